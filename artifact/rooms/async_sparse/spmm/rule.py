"""The rule that a map of winners suggests, and how good it is on matrices that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

STATISTICS = ("shared", "per_row")


@dataclass(frozen=True)
class Split:
    """Choose `below` where a statistic is less than `at`, `above` elsewhere."""

    statistic: str
    at: float
    below: str
    above: str

    def choose(self, points: pd.DataFrame) -> pd.Series:
        less = points[self.statistic] < self.at
        return pd.Series(np.where(less, self.below, self.above), points.index)


@dataclass(frozen=True)
class LeftOut:
    """What a rule costs on matrices that were left out while it was made."""

    matrices: int
    right: float  #: share of the points at which it chose the fastest
    lost: float  #: time of its choices over that of the fastest, geometric mean
    worst: float  #: the largest such factor
    fixed: str  #: who is the best without a choice
    fixed_lost: float  #: and what that costs, on the same points


def split(points: pd.DataFrame, groups: Sequence[str]) -> Split:
    """The split of one statistic that loses the least time; points: of `experiments.fastest`.

    Raises ValueError for less than two points.
    """
    if len(points) < 2:
        raise ValueError(f"A rule needs two points, and there is {len(points)}.")
    logs = np.log(points[list(groups)].to_numpy(float))
    best, found = np.inf, None
    for statistic in STATISTICS:
        x = points[statistic].to_numpy(float)
        order = np.argsort(x, kind="stable")
        before = np.cumsum(logs[order], axis=0)
        for i in range(1, len(x)):
            low, high = x[order[i - 1]], x[order[i]]
            if low == high:
                continue
            below, above = before[i - 1], before[-1] - before[i - 1]
            if below.min() + above.min() < best:
                best = below.min() + above.min()
                names = groups[int(below.argmin())], groups[int(above.argmin())]
                found = Split(statistic, float(np.sqrt(low * high)), *names)
    return found or Split(STATISTICS[0], 0.0, *[groups[int(logs.sum(axis=0).argmin())]] * 2)


def leave_out(points: pd.DataFrame, groups: Sequence[str]) -> LeftOut:
    """Make the rule without each matrix in turn, all of its N, and apply it there."""
    groups = list(groups)
    labels = list(dict.fromkeys(points["label"]))
    if len(labels) < 3:
        raise ValueError(f"Leaving a matrix out needs three of them, and there are {len(labels)}.")
    chosen = pd.concat(
        split(points[points["label"] != label], groups).choose(points[points["label"] == label]) for label in labels
    ).reindex(points.index)
    best = points[groups].min(axis=1)
    took = pd.Series([points.at[i, chosen[i]] for i in points.index], points.index)
    one = np.log(points[groups]).mean().idxmin()
    return LeftOut(
        len(labels),
        float((chosen == points["winner"]).mean()),
        _mean(took / best),
        float((took / best).max()),
        one,
        _mean(points[one] / best),
    )


def _mean(factors: pd.Series) -> float:
    return float(np.exp(np.log(factors).mean()))
