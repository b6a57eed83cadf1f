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
        first, last = (geomean(data.loc[(data["variant"] == variant) & (data[size] == end), "speedup"]) for end in ends)
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
