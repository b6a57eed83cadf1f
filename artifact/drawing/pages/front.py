"""The front page: the race of all systems, what was found, where to go on, and what a verdict means."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml

from artifact import paths
from artifact.drawing import prose, races, systems
from artifact.drawing.words import listed
from artifact.verdicts import judge, load, measures, page

MEANING = {
    measures.REPRODUCED: "The records satisfy the claim, within a tolerance that the ledger states.",
    measures.PARTLY: "It holds for some of what it speaks of, or in a weaker form; the ledger says which.",
    measures.NOT_REPRODUCED: "The records contradict it on this GPU. The chapter looks into why.",
    measures.NOT_CARRIED: "The source measured it on another GPU, and it does not hold on this one. That does not make it wrong there.",
    measures.NOT_MEASURED: "The records that would decide are not there. This is no verdict on the source.",
}


def below_map(data: pd.DataFrame) -> dict[str, str]:
    """Alternative text and caption of the map of the systems; data: behind it."""
    missing = (data["state"] == systems.NOT_BUILT).any()
    dashed = "; a dashed one is a room that is not built yet" if missing else ""
    cards = " ".join(f"{row.name}: {row.format}, {row.unit}, {row.state}." for row in _rows(data))
    return {
        "alt": f"Map of the systems by sparsity pattern and arithmetic unit. {cards}",
        "caption": f"The systems. A filled card has kernels in this repository{dashed}.",
    }


def table_of_systems(data: pd.DataFrame, notebooks: Path = paths.ROOT / "notebooks") -> str:
    """In Markdown, which cites the sources; a system with a chapter links to it."""
    lines = ["| system | source | what its authors claim | here |", "|---|---|---|---|"]
    for row in _rows(data):
        has_chapter = (notebooks / f"{row.room}.ipynb").is_file()
        name = f"[{row.name}]({row.room}.ipynb)" if has_chapter else row.name
        lines.append(f"| {name} | {{cite:t}}`{row.cite}` | {row.claims} | {row.state} |")
    return "\n".join(lines)


def _rows(data: pd.DataFrame):
    return data.itertuples(index=False)


def not_built(data: pd.DataFrame) -> str:
    """Which rooms have no kernels yet; nothing where all have."""
    waiting = data[data["state"] == systems.NOT_BUILT]
    there = len(data) - len(waiting)
    if waiting.empty:
        return ""
    return (
        f"**{there} of {len(data)} rooms {'has' if there == 1 else 'have'} kernels.** Not built yet: {', '.join(waiting['name'])}. For "
        "these the table repeats what the authors say; nothing of it was tried here."
    )


#: A number that a claim's records gave, as the ledger words it.
NUMBER = re.compile(r"\d+ of \d+(?: [a-z]+)?|\d[\d.]*(?:–\d[\d.]*)?[×%]?")
PLACE = re.compile(r"\{([^{}]+)\}")


def raced(
    found: Mapping[str, Path], judged: Mapping[str, pd.DataFrame]
) -> tuple[tuple | None, dict[str, str]]:
    """The figure over all rooms, and its alternative text and caption. found: `gpus.folders`; judged: verdicts of each of
    these GPUs on all claims."""
    df = races.table(found)
    room_of = {claim.id: claim.room for claim in load.claims()}
    counted = {
        (room, gpu): own["verdict"].value_counts().to_dict()
        for gpu, verdicts in judged.items()
        for room, own in judge.counted(verdicts).groupby(lambda i, v=verdicts: room_of[v["id"][i]])
    }
    of = listed(found)
    return races.figure(df, counted), {"alt": races.alt(df), "caption": f"{of}. {races.CAPTION}"}


def findings(judged: pd.DataFrame | None, *texts: str) -> str:
    """Sentences as an HTML list, each {id of a claim} in them replaced by the number that the records gave for it, which
    links to the ledger. One of whose claims there is no number is left out. Raises ValueError for an id that is none."""
    if judged is None:
        return ""
    known = judged.set_index("id")
    told = [_told(known, text) for text in texts]
    items = "".join(f"<li>{text}</li>" for text in told if text)
    return f"<ol>{items}</ol>" if items else ""


def _told(known: pd.DataFrame, text: str) -> str:
    ids = PLACE.findall(text)
    for name in ids:
        if name not in known.index:
            raise ValueError(f"A finding of the front page names a claim {name!r} that is none.")
    rows = known.loc[ids]
    if (rows["verdict"] == measures.NOT_MEASURED).any():
        return ""
    numbers = {name: NUMBER.search(row["measured"]) for name, row in rows.iterrows()}
    if not all(numbers.values()):
        return ""
    return PLACE.sub(
        lambda m: f'<a href="ledger.html#claim-{m[1]}"><strong>{numbers[m[1]][0]}</strong></a>',
        text,
    )


#: Title, address, what is there.
DOORS = (
    ("Read", "ledger.html", "The ledger has every claim with its verdict; a chapter tells how a system works, what holds and why."),
    ("Rerun", "reviewers.html", "`make artifact` without a GPU, `make measure` and `make compare` with one: minutes, commands, what to expect."),
    ("Use", "library.html", "The kernels as a library. Or ask which kernel for your matrix, or put your own on trial."),
)  # fmt: skip


def doors(*found: tuple[str, str, str]) -> str:
    """Where to go on, as HTML cards: each as in DOORS."""
    cards = "".join(
        f'<a class="door" href="{address}"><strong>{title}</strong><span>{prose.inline_code(text)}</span></a>'
        for title, address, text in found
    )
    return f'<div class="doors">{cards}</div>'


def verdicts(judged: Mapping[str, pd.DataFrame], known: Sequence[load.Claim]) -> str:
    """How many of each on each GPU, as HTML; nothing without records. judged: as `ledger.everywhere` has them."""
    if not judged:
        return ""
    sources = len({claim.source for claim in known})
    claims = [judge.counted(df) for df in judged.values()]
    each = "".join(
        f"<li>{html.escape(gpu)}: {page.counts(df)}</li>"
        for gpu, df in zip(judged, claims, strict=True)
    )
    which = f"{sources} sources" if sources > 1 else known[0].source
    return f"<p>The ledger holds {len(claims[0])} claims of {which}.</p><ul>{each}</ul>"


def citation(root: Path = paths.ROOT) -> str:
    """CITATION.cff as BibTeX, in a block of code."""
    said = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    who = " and ".join(
        f"{{{author['name']}}}"
        if "name" in author
        else f"{author['family-names']}, {author['given-names']}"
        for author in said["authors"]
    )
    fields = {
        "author": who,
        "title": said["title"],
        "version": said["version"],
        "year": str(said["date-released"])[:4],
        "doi": said.get("doi"),
        "note": f"Software, {said['license']}",
    }
    lines = ",\n".join(f"  {key} = {{{value}}}" for key, value in fields.items() if value)
    key = re.split(r"\W+", said["title"].lower())
    return f"```bibtex\n@software{{{'_'.join(key[:3])},\n{lines}\n}}\n```"


def meanings() -> str:
    """Each verdict and what it means, as HTML."""
    return prose.facts({page.badge(v): MEANING[v] for v in measures.VERDICTS})
