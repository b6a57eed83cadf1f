"""The front page: the race of all systems, what was found, where to go on, and what a verdict means."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml

from artifact import paths
from artifact.drawing import gpus, prose, races, systems
from artifact.measure import records
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


# ---------------------------------------------------------------- the race


def raced(found: Mapping[str, Path], judged: Mapping[str, pd.DataFrame]) -> tuple[tuple | None, dict[str, str]]:
    """The figure over all rooms as `races.drawn` has it, and its alternative text and caption. found: `gpus.folders`;
    judged: verdicts of each of these GPUs on all claims."""
    df = races.table(found)
    return races.drawn(df, counts(judged)), {"alt": races.alt(df), "caption": races.caption(df)}


def counts(judged: Mapping[str, pd.DataFrame]) -> dict[tuple[str, str], dict[str, int]]:
    """(room, GPU) -> verdict -> number of claims; those that a series of the source's own decides are counted as
    `races.OWN`, whatever the verdict."""
    room_of = {claim.id: claim.room for claim in load.claims()}
    found = {}
    for gpu, verdicts in judged.items():
        claims = judge.counted(verdicts)
        own = claims["id"].isin(judge.on_their_data(claims)["id"])
        told = claims["verdict"].mask(own, races.OWN)
        for room, of in told.groupby(claims["id"].map(room_of), sort=False):
            found[room, gpu] = of.value_counts().to_dict()
    return found


# ---------------------------------------------------------------- the findings

#: A number that a claim's records gave, as the ledger words it.
NUMBER = re.compile(r"\d+ of \d+(?: [a-z]+)?|\d[\d.]*(?:–\d[\d.]*)?[×%]?")
#: {id of a claim}: what was measured; {id stated}: what the source says; {id m}: at which values of a column it is judged.
PLACE = re.compile(r"\{([^{} ]+)(?: ([a-z]+))?\}")
#: Instead of a claim: on how many GPUs differ, and of how many that is.
CHANGED, DECIDED = "changed", "decided"
#: Letters that are spoken with a vowel first: an H200, an RTX 4090.
SPOKEN = "AEFHILMNORSX"


#: Heads, and what is said below each.
SURPRISES = (
    (
        "“{async-wcsr-bell stated} over cuSPARSE” is {async-wcsr-csr} once cuSPARSE may take CSR",
        "The opponent decides. Over Blocked-ELL, the only format of cuSPARSE that the source ran, on an H100, its kernel has "
        "{async-wcsr-bell}; over the fastest of the library's algorithms for CSR {async-wcsr-csr}.",
    ),
    (
        "{nm-gain-small-medium} over cuBLAS turns into {nm-gain-small-medium-alone} once kernels alone are timed",
        "The stopwatch decides. Up to 2048³ the speedup over cuBLAS of a kernel for 2:4 on CUDA cores is {nm-gain-small-medium} if each "
        "call makes the library's handle anew, as in the source's code, and {nm-gain-small-medium-alone} if none does.",
    ),
    (
        "“{tc-range stated} of cuSPARSELt” is {tc-range} against wgmma.sp",
        "The instruction decides. The source's kernel with <code>mma.sp</code> has {tc-range}, since the library uses Hopper's "
        "<code>wgmma.sp</code>. A tuned family of kernels with that instruction, which the source left to the future, has {tc-family} "
        "on the largest squares alone, {tc-family m}; “ours” in the figure is over small ones as well, where it gains more.",
    ),
    (
        "“Consistently faster than cuSPARSE” holds at {abstract-speedup}",
        "A source contradicts itself. Its abstract says so, and its evaluation “consistently slower”; the kernel is ahead at "
        "{abstract-speedup}.",
    ),
    (
        "Another GPU changes {changed} of {decided} verdicts",
        "What shifts is the balance between memory and arithmetic. By the source's own Eq. 3, memory becomes the limit of NM-SpMM at a "
        "sparsity of {spmm-transition}, where about 70% is stated and 0% is the dense product. “{async-wcsr-bell stated}” was said of an "
        "H100, and is {async-wcsr-bell} here.",
    ),
)


def findings(judged: Mapping[str, pd.DataFrame], *texts: tuple[str, str]) -> str:
    """Heads, each with its sentences, as an HTML list; PLACE in them is replaced, and what was measured links to the
    ledger: in a head by the first GPU, below it by all that have a number. One without a number of the first GPU is left
    out. judged: name of a GPU -> its verdicts. Raises ValueError for an id that is none."""
    if not judged:
        return ""
    known = {gpu: df.set_index("id") for gpu, df in judged.items()}
    between = changes(judged)
    told = [(_told(known, between, head, first=True), _told(known, between, text)) for head, text in texts]
    items = "".join(f"<li><h3>{head}</h3><p>{text}</p></li>" for head, text in told if head and text)
    return f'<ol class="findings">{items}</ol>' if items else ""


def changes(judged: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """CHANGED and DECIDED: of the claims that records of two GPUs or more decide, those whose verdict is not the same on
    all; empty where there are none."""
    claims = {gpu: judge.by_evidence(df)[0] for gpu, df in judged.items()}
    given = pd.DataFrame({gpu: df.set_index("id")["verdict"] for gpu, df in claims.items()})
    decided = int(((given != measures.NOT_MEASURED).sum(axis=1) > 1).sum())
    return {CHANGED: str(len(gpus.changed(claims))), DECIDED: str(decided)} if decided else {}


def _told(known: Mapping[str, pd.DataFrame], between: Mapping[str, str], text: str, first: bool = False) -> str:
    """The text with its numbers; nothing where one is missing. first: only the first GPU's."""
    home, named, missing = next(iter(known)), (), False
    shown = records.short_gpus(known)

    def number(place: re.Match) -> str:
        nonlocal named, missing
        name, of = place.groups()
        if name in (CHANGED, DECIDED):
            missing |= name not in between
            return f'<a href="elsewhere.html"><strong>{between.get(name)}</strong></a>'
        if name not in known[home].index:
            raise ValueError(f"A finding of the front page names a claim {name!r} that is none.")
        if of == "stated":
            return html.escape(known[home].loc[name, "published"])
        if of:
            return _judged_at(name, of)
        found = {gpu: _number(df.loc[name]) for gpu, df in known.items()}
        missing |= not found[home]
        found = {gpu: n for gpu, n in found.items() if n and (gpu == home or not first)}
        # Which number is whose is said once, and again where other GPUs have one.
        silent, named = first or len(known) == 1 or named == tuple(found), tuple(found)
        each = [f"<strong>{n}</strong>" + ("" if silent else f" on {_article(shown[g])}") for g, n in found.items()]
        joined = " and ".join(each) if silent else ", ".join(each)
        return f'<a href="ledger.html#claim-{name}">{joined}</a>'

    said = PLACE.sub(number, text)
    return "" if missing else said


def _number(row: pd.Series) -> str:
    found = NUMBER.search(row["measured"])
    return found[0] if found and row["verdict"] != measures.NOT_MEASURED else ""


def _judged_at(name: str, column: str) -> str:
    claim = next(claim for claim in load.claims() if claim.id == name)
    values = claim.rule.at[column]
    return f"{min(values)} to {max(values)}"


def _article(gpu: str) -> str:
    """A GPU's name with its indefinite article: "an H200", "a GeForce GTX 1080"."""
    word = gpu.split()[0]
    vowel = word[0] in (SPOKEN if word.upper() == word else "AEIOU")
    return f"{'an' if vowel else 'a'} {gpu}"


# ---------------------------------------------------------------- where to go on

#: Title, address, what is there.
DOORS = (
    ("Read", "ledger.html", "Every claim and its verdict; a chapter for each system."),
    ("Rerun", "reviewers.html", "`make artifact`; with a GPU `make measure`."),
    ("Use", "library.html", "The kernels as a library, for your own matrix."),
)


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
    claims = {gpu: judge.counted(df) for gpu, df in judged.items()}
    own = {gpu: judge.on_their_data(df) for gpu, df in claims.items()}
    each = "".join(f"<li>{html.escape(gpu)}: {page.counts(df.drop(own[gpu].index))}</li>" for gpu, df in claims.items())
    which = f"{sources} sources" if sources > 1 else known[0].source
    theirs = next(iter(own.values()))
    consistent = (theirs["verdict"] == measures.REPRODUCED).sum()
    apart = (
        f" Of these {len(theirs)} are decided by a source's own published series, of other GPUs, and were not measured here: "
        f"{consistent} are consistent with it. The others:"
    )
    total = len(next(iter(claims.values())))
    return f"<p>The ledger holds {total} claims of {which}.{apart if len(theirs) else ''}</p><ul>{each}</ul>"


def citation(root: Path = paths.ROOT) -> str:
    """CITATION.cff as BibTeX, in a block of code."""
    said = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    who = " and ".join(
        f"{{{author['name']}}}" if "name" in author else f"{author['family-names']}, {author['given-names']}"
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
