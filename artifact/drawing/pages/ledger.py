"""The ledger's tables and sentences besides the verdicts themselves, which are `artifact.verdicts.page`'s."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd

from artifact import paths, registry
from artifact.drawing import gpus, prose
from artifact.drawing.prose import captioned
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.verdicts import evidence, judge, load, measures, page

SCRIPT = Path(__file__).with_suffix(".js")
NUMBERS = "records"  #: folder of copies of records, beside the figures
#: Claims of an abstract that a source's finding names.
WORST = 2
#: What `page.contradictions` says of a pair -> how the table puts it; else it names the claim that stands.
STANDS = {
    "both": "both: the two rules are wide enough",
    "neither": "neither",
    "undecided": "undecided: one of them was not measured",
}


def judged(known: Sequence[load.Claim], origin: prose.Origin) -> pd.DataFrame | None:
    """Verdicts; None where there are no records at all."""
    return None if origin.folder is None else judge.judge(known, origin.folder)


def everywhere(
    known: Sequence[load.Claim],
    origin: prose.Origin,
    judged: pd.DataFrame | None,
    shipped: Path = paths.RECORDED,
) -> dict[str, pd.DataFrame]:
    """Name of a GPU -> verdicts, of every GPU that has records: that of this page first, whose verdicts are `judged`,
    then the others beside it, then those that are shipped. Empty without records of this page's."""
    if judged is None:
        return {}
    (own, _), *others = gpus.folders(origin.folder, shipped).items()
    return {own: judged} | {gpu: judge.judge(known, folder) for gpu, folder in others}


def without_records(known: Sequence[load.Claim], origin: prose.Origin) -> str:
    if origin.folder is not None:
        return ""
    return f"{origin.missing} Until then there are {len(load.of_sources(known))} claims and no verdicts."


def without_claims(known: Sequence[load.Claim], found: Iterable[registry.Room]) -> str:
    """Systems of which nothing is claimed yet; nothing where each has claims. found: all rooms."""
    found, claimed = list(found), {claim.room for claim in known}
    silent = [room.name for room in found if room.room not in claimed]
    if not silent:
        return ""
    return (
        f"No claims are written down yet for {len(silent)} of the {len(found)} systems: {', '.join(silent)}. Their rooms are not "
        "built, so they have no verdicts, good or bad."
    )


def numbers(
    known: Sequence[load.Claim], origin: prose.Origin, shipped: Path = paths.RECORDED
) -> dict[str, dict[str, dict[str, str]]]:
    """For `page.ledger`: the records by which each claim is judged on each GPU, copied to where a page finds them."""

    @cache  # many claims are judged by one file
    def copied(path: Path) -> str:
        to = Path(NUMBERS, *path.parts[-3:])
        records.write_text(paths.FIGURES / to, path.read_text(encoding="utf-8"))
        return f"{paths.FROM_PAGES}/{to.as_posix()}"

    return {
        gpu: {
            claim.id: {copied(p): p.stem for p in evidence.files(claim.experiment, folder, claim.room)}
            for claim in known
        }
        for gpu, folder in gpus.folders(origin.folder, shipped).items()
    }


def table(judged: Mapping[str, pd.DataFrame], files: page.Files | None = None) -> str:
    """The ledger as HTML, with a column for each GPU of `everywhere`, and what makes it searchable in the built book.
    files: `numbers`."""
    if not judged:
        return ""
    script = SCRIPT.read_text(encoding="utf-8")
    whole = page.ledger(judged, files=files)
    return f'{whole}<script src="{paths.TABLES}"></script><script>\n{script}</script>'


def bars(judged: pd.DataFrame | None) -> str:
    return "" if judged is None else page.bars(judged)


# ---------------------------------------------------------------- the findings


def findings(judged: pd.DataFrame | None) -> str:
    """What matters first, as HTML: all together, then for each source how its abstract fares and the worst of that."""
    if judged is None:
        return ""
    claims = judge.counted(judged)
    measured = claims[claims["verdict"] != measures.NOT_MEASURED]
    holds = (measured["verdict"] == measures.REPRODUCED).sum()
    close = (measured["close"] != "").sum()
    theirs = judge.on_their_data(measured)
    consistent = (theirs["verdict"] == measures.REPRODUCED).sum()
    apart = (
        f" Of the {holds}, {consistent} are so in the source's own published series, of other GPUs: consistent with its data, and "
        f"not measured here; {holds - consistent} were."
    )
    items = [
        f"Of {len(measured)} claims that the records decide {holds} are reproduced, {holds / max(1, len(measured)):.0%}; "
        f"{close} verdicts lie so close to a threshold that the table says by how much.{apart if consistent else ''}"
    ]
    for source, own in measured.groupby("source", sort=False):
        head = own[own["where"].str.contains("abstract", case=False)]
        first, of = (head, "its abstract") if len(head) > WORST else (own, "the source")
        kept = (first["verdict"] == measures.REPRODUCED).sum()
        items.append(
            f"<b>{html.escape(source)}</b>: {kept} of {len(first)} claims of {of} {'is' if kept == 1 else 'are'} reproduced.{_worst(first)}"
        )
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _worst(claims: pd.DataFrame) -> str:
    """The first of those that fail, or else hold in part, each with its reason."""
    order = {measures.NOT_REPRODUCED: 0, measures.NOT_CARRIED: 0, measures.PARTLY: 1}
    rank = claims["verdict"].map(order).dropna()
    rows = claims.loc[rank.sort_values(kind="stable").index[:WORST]]
    items = (
        f'<div>{page.badge(row.verdict)} <a href="#claim-{row.id}">{html.escape(row.says)}</a> {html.escape(row.reason)}</div>'
        for row in rows.itertuples()
    )
    return "".join(items)


def carries(known: Sequence[load.Claim]) -> str:
    """When a claim does not carry over, as Markdown, with the chips that count as one."""
    chips: dict[str, list[str]] = {}
    for gpu, chip in judge.CHIPS.items():
        chips.setdefault(chip, []).append(gpu.upper())
    same = "; ".join(listed(names) for names in chips.values())
    bound = sum(claim.depends_on == load.GPU for claim in known)
    return (
        f"*{measures.NOT_CARRIED}* is said of a claim whose rule gives *{measures.NOT_REPRODUCED}*, if four things hold: the source "
        "measured it, as a time, a rate or a counter of hardware; the records of this GPU decide it, not the source's own series; "
        "none of the GPUs that it speaks of is this one; and no other cause is known that is enough, such as a kernel of ours that differs "
        f"from the source's, a compiler, or what the source timed. GPUs of one chip count as one ({same}). All else that fails is "
        f"*{measures.NOT_REPRODUCED}*: what is said in words of the method in general, which one GPU is enough to contradict, what "
        "follows from programs, formats or arithmetic, and what a source's own data contradicts. In `claims.toml` it is the key "
        f"`depends_on`: {bound} of {len(known)} claims depend on the GPU."
    )


# ---------------------------------------------------------------- where a source contradicts itself


@captioned("Claims of one source of which at most one can stand.")
def pairs(judged: pd.DataFrame | None, known: Sequence[load.Claim]) -> pd.DataFrame | None:
    """Pairs of claims of which at most one can stand; None without verdicts."""
    if judged is None:
        return None
    verdicts, where = judged.set_index("id"), {claim.id: claim.where for claim in known}

    def cell(i: str) -> str:
        row = verdicts.loc[i]
        badge = page.badge(row["verdict"])
        return f'{row["says"]} <em>({where[i]})</em><br>{badge} <a href="#claim-{i}">{i}</a>'

    return pd.DataFrame(
        [
            (
                cell(row.one),
                cell(row.other),
                STANDS.get(row.stands, f"<code>{row.stands}</code>"),
            )
            for row in page.contradictions(judged, known).itertuples(index=False)
        ],
        columns=["one", "the other", "which stands"],
    )


def decided(judged: pd.DataFrame | None, known: Sequence[load.Claim]) -> str:
    if judged is None:
        count = len({frozenset((c.id, other)) for c in known for other in c.contradicts})
        return f"There are {count} such pairs; without records none is decided."
    stands = page.contradictions(judged, known)["stands"]
    count = (~stands.isin(list(STANDS))).sum()
    return f"There are {len(stands)} such pairs, and the records decide {count} of them."


# ---------------------------------------------------------------- how a verdict is reached


@captioned("What the rules of the claims are made of.")
def rules(known: Sequence[load.Claim], linked: bool) -> pd.DataFrame:
    """What rules are made of. linked: whether the claims have their rows on the page."""
    made_of = page.rules(known)

    return pd.DataFrame(
        {
            "part": made_of["part"],
            "name": "<code>" + made_of["name"] + "</code>",
            "definition": made_of["definition"].map(prose.inline_code),
            "claims": [page.links(ids) if linked else ", ".join(ids) for ids in made_of["claims"]],
        }
    )


def rerun(known: Sequence[load.Claim]) -> str:
    """The commands for one claim, as a block of Markdown."""
    one = known[0].id
    return (
        "```sh\n"
        f"python -m artifact claims --id {one}   # verdict, rule, minutes\n"
        f"make measure {' ' * (len(one) + 21)}# new records, on your GPU\n"
        f"python -m artifact claims --id {one} --records build/records\n"
        "```"
    )
