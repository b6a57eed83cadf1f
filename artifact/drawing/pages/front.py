"""The front page: the systems on trial, the headline, and what a verdict means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from artifact import paths
from artifact.drawing import headline, prose, systems
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
    cards = " ".join(f"{row.name}: {row.format}, {row.unit}, {row.state}." for row in _rows(data))
    return {
        "alt": f"Map of the systems by sparsity pattern and arithmetic unit. {cards}",
        "caption": "The systems. A filled card has kernels in this repository; a dashed one is a room that is not built yet.",
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


def contest(origin: prose.Origin) -> headline.Contest | None:
    return None if origin.folder is None else headline.contest(origin.folder)


def _means(contest: headline.Contest) -> str:
    def of(variant: str, sweep: str) -> str:
        return f"{contest.geomean(variant, sweep):.2f}×"

    return "; ".join(
        f"{name} {of(contest.published, name)} as published, {of(contest.last, name)} with our last rung"
        for name in contest.experiments
    )


def measured(contest: headline.Contest | None, origin: prose.Origin) -> str:
    """The headline in words; one sentence where there is none."""
    if contest is None:
        none = "There are no records of sweeps against cuSPARSE yet."
        return origin.missing if origin.folder is None else none
    return (
        f"**{contest.name} on {prose.article(origin.machine()['gpu'])}.** Geometric-mean speedup over the fastest algorithm of "
        f"cuSPARSE at each point: {_means(contest)}. The published kernel is `{contest.published}`; `{contest.last}` is the end of "
        f"a ladder of our own. Its preprocessing is not in these times: {contest.prepare_ms:.0f} ms at the median, trials included."
    )


def below_headline(contest: headline.Contest | None) -> dict[str, str]:
    """Alternative text and caption of the figure."""
    return {
        "alt": f"Speedup over cuSPARSE's best algorithm by sweep and size. Geometric means: {_means(contest) if contest else 'none'}.",
        "caption": "Speedup over the fastest algorithm of cuSPARSE, taken in the same run. Lines are geometric means over the "
        "densities, bands run from the worst density to the best.",
    }


def verdicts(judged: pd.DataFrame | None, known: Sequence[load.Claim]) -> str:
    """How many of each, as HTML; nothing without records."""
    if judged is None:
        return ""
    counts = judge.counted(judged)["verdict"].value_counts()
    total = ", ".join(f"{counts[v]} {page.badge(v)}" for v in measures.VERDICTS if v in counts)
    sources = ", ".join(dict.fromkeys(claim.source for claim in known))
    return f"<p>The ledger holds {counts.sum()} claims, all of {sources}: {total}</p>"


def meanings() -> str:
    """Each verdict and what it means, as HTML."""
    return prose.facts({page.badge(v): MEANING[v] for v in measures.VERDICTS})
