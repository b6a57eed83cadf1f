"""What the chapter's figures show, as alternative texts: found in the data behind each."""

from __future__ import annotations

import pandas as pd

from artifact.drawing import style
from artifact.drawing.words import listed
from artifact.measure.records import geomean
from artifact.rooms.casper_sparse.experiments import BEST

PUBLISHED = "warp_per_row"


def speedups(data: pd.DataFrame) -> str:
    """Of a sweep: where each contender lies at the smallest and at the largest size."""
    size = "m" if data["m"].nunique() > 1 else "n"
    ends = data[size].min(), data[size].max()
    told = []
    for variant in (v for v in dict.fromkeys(data["variant"]) if v != BEST):
        first, last = (
            geomean(data.loc[(data["variant"] == variant) & (data[size] == end), "speedup"])
            for end in ends
        )
        told.append(f"{style.name(variant)} goes from {first:.2f} to {last:.2f} times")
    return (
        f"Lines over {size.upper()} from {ends[0]} to {ends[1]}, a panel for each density, with the range that the "
        f"source states: of the speed of cuSPARSE's best algorithm, {listed(told)}."
    )


def times(data: pd.DataFrame) -> str:
    """Of a sweep: how long a multiplication takes, and how far its least traffic is from a copy."""
    ours = data[data["variant"] == PUBLISHED]
    return (
        f"Time and memory throughput over the size, a column for each density: {style.name(PUBLISHED)} takes "
        f"{ours['median_us'].min():.0f} to {ours['median_us'].max():.0f} µs, and no contender moves what it must "
        f"faster than {data['gbps'].max():.0f} GB/s."
    )


def _most(data: pd.DataFrame, memory: str) -> str:
    rows = data[data["memory"] == memory]
    most = rows.groupby("variant", sort=False)["most"].max() / rows["ceiling"].iloc[0]
    return listed([f"{style.name(v)} {share:.0%}" for v, share in most.items()])


def memories(data: pd.DataFrame) -> str:
    """Of the dot ranges: the largest rate of each contender at each memory."""
    told = [f"{memory}: {_most(data, memory)}" for memory in dict.fromkeys(data["memory"])]
    return f"Ranges of TB/s, at most in per cent of the ceiling; {'; '.join(told)}."


def ladder(data: pd.DataFrame) -> str:
    """Each rung's mean in each sweep."""
    told = []
    for variant, rows in data.groupby("variant", sort=False):
        means = ", ".join(
            f"{s:.2f} {e}" for e, s in zip(rows["experiment"], rows["speedup"], strict=True)
        )
        told.append(f"{variant} {means}")
    return f"Geometric-mean speedup over cuSPARSE's best algorithm of each rung: {'; '.join(told)}."


def real(data: pd.DataFrame) -> str:
    """At how many matrices each kernel is ahead of the library."""
    told = [
        f"{style.name(variant)} is ahead at {(rows['value'] > 1).sum()} of {len(rows)}"
        for variant, rows in data.groupby("variant", sort=False)
    ]
    return f"Dot plot over real matrices, speedup over cuSPARSE's best algorithm: {listed(told)}."


def spread(data: pd.DataFrame) -> str:
    """How many points of a second run lie within 3% of the first."""
    apart = (data["ratio"] - 1).abs()
    return (
        f"Second run over first: {(apart <= 0.03).mean():.0%} of {len(data)} points lie within 3%, the farthest is "
        f"{apart.max():.0%} off."
    )
