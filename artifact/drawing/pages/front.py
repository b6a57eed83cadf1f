"""The front page: the race of all systems, what was found, where to go on, and what a verdict means."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
import yaml
from markupsafe import Markup, escape

from artifact import paths
from artifact.book import html
from artifact.book.facts import Fact, each, under
from artifact.book.text import NOT_MEASURED, Text
from artifact.drawing import gpus, prose, races
from artifact.measure import records
from artifact.verdicts import judge, load, measures, page

MEANING = {
    measures.REPRODUCED: "The records satisfy the claim, within a tolerance that the ledger states.",
    measures.PARTLY: "It holds for some of what it speaks of, or in a weaker form; the ledger says which.",
    measures.NOT_REPRODUCED: "The records contradict it on this GPU. The chapter looks into why.",
    measures.NOT_CARRIED: "The source measured it on another GPU, and it does not hold on this one. That does not make it "
    "wrong there.",
    measures.NOT_MEASURED: "The records that would decide are not there. This is no verdict on the source.",
}
#: Title, address, what is there.
DOORS = (
    ("Read", "ledger.html", "Every claim and its verdict; a chapter for each system."),
    ("Rerun", "reviewers.html", "`make artifact`; with a GPU `make measure`."),
    ("Use", "library.html", "The kernels as a library, for your own matrix."),
)
#: Blocks of the text, each a head and what is said below it.
FINDINGS = ("opponent", "stopwatch", "instruction", "contradiction", "balance")
#: A number that a claim's records gave, as the ledger words it.
NUMBER = re.compile(r"\d+ of \d+(?: [a-z]+)?|\d[\d.]*(?:–\d[\d.]*)?[×%]?")


def facts(data: pd.DataFrame, judged: Mapping[str, pd.DataFrame], known: Sequence[load.Claim]) -> Iterator[Fact]:
    """Yield the systems, how to cite this, and of every claim what is stated and the numbers of the GPUs, with links to
    the ledger; of the claims that records of two GPUs or more decide, those whose verdict is not the same on all.

    data: `systems.systems`; judged: name of a GPU -> its verdicts, this page's first.
    """
    for room, of in data.set_index("room")[["name", "format", "unit", "state", "cite", "claims"]].iterrows():
        yield from each(f"systems.{room}", of)
    yield from each("citation", citation())
    frames = {gpu: df.set_index("id") for gpu, df in judged.items()}
    short = records.short_gpus(frames)
    for claim in known:
        rows = {short[gpu]: df.loc[claim.id] for gpu, df in frames.items()}
        told = {gpu: found for gpu, row in rows.items() if (found := _number(row))}
        yield f"claim.{claim.id}.stated", str(escape(claim.published))
        if told.keys() & list(short.values())[:1]:
            yield f"claim.{claim.id}.here", html.part("here", claim.id, next(iter(told.values())))
            yield f"claim.{claim.id}.each", html.part("each", claim.id, told)
        for column, values in claim.rule.at.items():
            sizes = values if isinstance(values, list) else [values]
            yield from under(f"claim.{claim.id}.at.{column}", least=min(sizes), most=max(sizes))
    claims = {gpu: judge.by_evidence(df)[0] for gpu, df in judged.items()}
    if len(claims) > 1:
        given = pd.DataFrame({gpu: df.set_index("id")["verdict"] for gpu, df in claims.items()})
        decided = ((given != measures.NOT_MEASURED).sum(axis=1) > 1).sum()
        yield from under("gpus", changed=len(gpus.changed(claims)), decided=int(decided))


def _number(row: pd.Series) -> str:
    found = NUMBER.search(row["measured"])
    return found[0] if found and row["verdict"] != measures.NOT_MEASURED else ""


def findings(text: Text) -> Markup:
    """Return heads, each with its sentences, as an HTML list, without those of which a number was not measured."""
    missing = NOT_MEASURED.partition("{")[0]
    return html.made("findings", items=[said for said in map(text, FINDINGS) if not said.startswith(missing)])


def raced(found: Mapping[str, Path], judged: Mapping[str, pd.DataFrame]) -> tuple[tuple | None, dict[str, str]]:
    """Return the figure over all rooms as `races.drawn` has it, and its alternative text and caption. found:
    `gpus.folders`; judged: verdicts of each of these GPUs on all claims."""
    df = races.table(found)
    return races.drawn(df, counts(judged)), {"alt": races.alt(df), "caption": races.caption(df)}


def counts(judged: Mapping[str, pd.DataFrame]) -> dict[tuple[str, str], dict[str, int]]:
    """Return (room, GPU) -> verdict, or `races.OWN`, -> number of claims."""
    return {
        (room, gpu): page.counts(own, races.OWN)
        for gpu, df in judged.items()
        for room, own in df.groupby("room", sort=False)
    }


def fare(judged: Mapping[str, pd.DataFrame]) -> Markup:
    """Return how many claims have which verdict on each GPU, as HTML; nothing without records."""
    for df in judged.values():
        theirs = judge.by_evidence(df)[1]
        apart = {gpu: judge.by_evidence(own)[0] for gpu, own in judged.items()}
        return html.made(
            "fare",
            total=len(judge.counted(df)),
            sources=df["source"].nunique(),
            theirs=len(theirs),
            consistent=(theirs["verdict"] == measures.REPRODUCED).sum(),
            each={gpu: page.counts(own) for gpu, own in apart.items()},
        )
    return Markup()


def doors() -> Markup:
    """Return where to go on, as HTML cards."""
    return html.made("doors", doors=DOORS)


def citation(root: Path = paths.ROOT) -> dict[str, str]:
    """Return what CITATION.cff says, as the fields of BibTeX."""
    said = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    return {
        "author": " and ".join(f"{{{author['name']}}}" for author in said["authors"]),
        "title": said["title"],
        "version": said["version"],
        "year": str(said["date-released"])[:4],
        "note": f"Software, {said['license']}",
    }


def meanings() -> Markup:
    """Return each verdict and what it means, as HTML."""
    return prose.facts({html.part("badge", verdict): said for verdict, said in MEANING.items()})
