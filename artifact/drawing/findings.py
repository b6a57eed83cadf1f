"""What charts that any room can draw show, as alternative texts: found in the data behind each."""

from __future__ import annotations

import pandas as pd

from artifact.drawing import style
from artifact.drawing.words import listed


def _most(data: pd.DataFrame, memory: str) -> str:
    rows = data[data["memory"] == memory]
    most = rows.groupby("variant", sort=False)["most"].max() / rows["ceiling"].iloc[0]
    return listed([f"{style.name(v)} {share:.0%}" for v, share in most.items()])


def memories(data: pd.DataFrame) -> str:
    """Of `memories.memories`: the largest rate of each contender at each memory."""
    told = [f"{memory}: {_most(data, memory)}" for memory in dict.fromkeys(data["memory"])]
    return f"Ranges of TB/s, at most in per cent of the ceiling; {'; '.join(told)}."


def ladder(data: pd.DataFrame) -> str:
    """Of `charts.ladder`: each rung's mean, by experiment where there are several."""
    several = data["experiment"].nunique() > 1
    told = []
    for variant, rows in data.groupby("variant", sort=False):
        means = [f"{r.speedup:.2f}{f' {r.experiment}' * several}" for r in rows.itertuples()]
        told.append(f"{style.name(variant)} {', '.join(means)}")
    return f"Geometric-mean speedup over the library, rung by rung: {'; '.join(told)}."


def dots(data: pd.DataFrame) -> str:
    """Of `charts.dots`: at how many rows each contender is ahead of 1, and its largest value."""
    told = []
    for variant, rows in data.groupby("variant", sort=False):
        ahead, most = (rows["value"] > 1).sum(), rows["value"].max()
        told.append(
            f"{style.name(variant)} is above 1 at {ahead} of {len(rows)}, at most {most:.2f}"
        )
    return f"Dot plot, a row for each problem: {'; '.join(told)}."


def spread(data: pd.DataFrame) -> str:
    """Of `charts.spread`: how many points of a second run lie within 3% of the first."""
    apart = (data["ratio"] - 1).abs()
    return (
        f"Second run over first: {(apart <= 0.03).mean():.0%} of {len(data)} points lie within 3%, the farthest is "
        f"{apart.max():.0%} off."
    )
