"""A small model of times, fitted to the records of real matrices: how long, and which kernel.

How long the best kernel takes is a power law: the logarithm of its time is linear in the logarithms of a few
statistics (`features`), fitted by ridge regression. How much slower each kernel is than the best is what it was at the
`NEIGHBOURS` recorded points whose features are nearest, weighted by nearness. `evaluate` tests both: it leaves each
matrix out in turn, with all its points, and asks the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.which.pool import Pool
from artifact.which.statistics import Statistics

#: What a matrix and N are compared by, all as logarithms to the base 2.
FEATURES = {
    "work": "non-zeros times N",
    "dense": "rows and columns, times N",
    "longest": "non-zeros of the longest row",
    "row": "non-zeros of a row, on average, and 1",
    "variation": "variation of rows' lengths, and 0.1",
    "windows": "non-zeros of a column of a window of 16 rows",
    "tall": "non-zeros of a column of a window of 64 rows",
    "blocks": "non-zeros of a block of 64 × 64",
    "spread": "mean distance from the diagonal over k, and 0.001",
}
#: Recorded points that vote on how much slower each kernel is.
NEIGHBOURS = 7
#: Squared distance that is added to each of theirs, so that none has all the weight.
SOFTENING = 0.1
#: Weight of the ridge: what a standard deviation of a feature must explain.
RIDGE = 1.0
#: Advice this much slower than the best is still good.
GOOD = 1.1


@dataclass(frozen=True)
class Model:
    """What is left of a pool for predictions; made by `fit`."""

    variants: tuple[str, ...]
    points: tuple[tuple[str, int], ...]  #: (matrix, N)
    features: np.ndarray  #: (points, features), standardised
    mean: np.ndarray
    scale: np.ndarray
    slower: (
        np.ndarray
    )  #: (points, variants), log2 of the time over the best one's; NaN: not measured
    best: np.ndarray  #: coefficients of log2 of the best time in µs, the constant last
    prepare: np.ndarray  #: (points, variants), log2 of 1 + preparation in µs


@dataclass(frozen=True)
class Guess:
    """What a model says of a matrix: a row of times, and whose times they are."""

    table: (
        pd.DataFrame
    )  #: variant, expected_us, slower (than the expected best), prepare_ms; fastest first
    neighbours: tuple[tuple[str, int], ...]  #: (matrix, N), nearest first

    @property
    def variant(self) -> str:
        return self.table["variant"].iloc[0]


def features(s: Statistics, n: int) -> np.ndarray:
    """FEATURES of a matrix and N, a vector; what is 0 or missing counts as something small."""
    values = (
        max(s.nnz, 1) * n, (s.m + s.k) * n, max(s.row_most, 1), s.row_mean + 1, s.row_variation + 0.1,
        max(s.windows_16, 1), max(s.windows_64, 1), max(s.blocks_64 * 64**2, 1), s.spread + 1e-3,
    )  # fmt: skip
    return np.log2(np.array(values, float))


def fit(pool: Pool, without: str = "") -> Model:
    """A model of a pool, without one matrix if it is named. Raises ValueError where nothing is left."""
    df = pool.df[(pool.df["label"] != without) & pool.df["variant"].isin(pool.advisable)]
    if df.empty:
        raise ValueError(f"There is no record left without {without!r}.")
    at = ["label", "n"]
    times = df.pivot_table(index=at, columns="variant", values="median_us", sort=False)
    times = times[[v for v in pool.advisable if v in times]]
    waits = df.pivot_table(index=at, columns="variant", values="prepare_ms", sort=False)[
        times.columns
    ]
    raw = np.array([features(pool.matrices[label], n) for label, n in times.index])
    mean, scale = raw.mean(axis=0), raw.std(axis=0)
    scale[scale < 1e-9] = np.inf  # what all have alike tells nothing
    standard, logs = (raw - mean) / scale, np.log2(times.to_numpy())
    fastest = np.nanmin(logs, axis=1)
    return Model(
        tuple(times.columns), tuple(times.index), standard, mean, scale,
        logs - fastest[:, None], _ridge(standard, fastest), np.log2(1 + 1e3 * waits.to_numpy()),
    )  # fmt: skip


def guess(model: Model, s: Statistics, n: int) -> Guess:
    """What the model says of a matrix times n columns."""
    at = (features(s, n) - model.mean) / model.scale
    away = ((model.features - at) ** 2).sum(axis=1)
    nearest = np.argsort(away, kind="stable")[:NEIGHBOURS]
    weight = 1 / (away[nearest] + SOFTENING)
    slower = _mean(model.slower[nearest], weight)
    best = float(np.append(at, 1) @ model.best)
    table = pd.DataFrame(
        {
            "variant": model.variants,
            "expected_us": 2 ** (best + slower),
            "slower": 2**slower,
            "prepare_ms": (2 ** _mean(model.prepare[nearest], weight) - 1) / 1e3,
        }
    )
    table = table.dropna().sort_values("expected_us", ignore_index=True, kind="stable")
    return Guess(table, tuple(model.points[i] for i in nearest))


def evaluate(pool: Pool) -> pd.DataFrame:
    """Each matrix left out in turn: label, n, what is advised, its measured time, the best of all that were measured,
    its time, their ratio, and the expected time.

    The best is of everybody, also of those that try others on the GPU. Where the advised one was not measured at a
    point, as it did not take it, the next one is asked, as a user would.
    """
    rows = []
    for label in pool.matrices:
        model, here = fit(pool, label), pool.df[pool.df["label"] == label]
        for n, point in here.groupby("n"):
            times = point.set_index("variant")["median_us"]
            asked = guess(model, pool.matrices[label], n).table
            asked = asked[asked["variant"].isin(times.index)].iloc[0]
            rows.append(
                {"label": label, "n": n, "advised": asked["variant"],
                 "advised_us": times[asked["variant"]], "best": times.idxmin(), "best_us": times.min(),
                 "expected_us": asked["expected_us"]}
            )  # fmt: skip
    df = pd.DataFrame(rows)
    df["ratio"] = df["advised_us"] / df["best_us"]
    return df


def good(evaluated: pd.DataFrame) -> float:
    """Share of the points at which the advice was at most `GOOD` times as slow as the best."""
    return float((evaluated["ratio"] <= GOOD).mean())


def always(pool: Pool) -> tuple[str, float]:
    """The one contender that is the best advice for all matrices alike, and its share of good points: what a model
    must beat. A point that it does not take is none of its good ones."""
    best = pool.df.groupby(["label", "n"])["median_us"].transform("min")
    fine = pool.df.assign(good=pool.df["median_us"] <= GOOD * best).groupby("variant")["good"].sum()
    fine = fine[fine.index.isin(pool.advisable)]
    return str(fine.idxmax()), float(fine.max() / len(pool.df[["label", "n"]].drop_duplicates()))


def off(evaluated: pd.DataFrame) -> tuple[float, float]:
    """The factors over the expected time within which four of five advised kernels were."""
    ratio = evaluated["advised_us"] / evaluated["expected_us"]
    return float(ratio.quantile(0.1)), float(ratio.quantile(0.9))


def _ridge(features: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Coefficients of a linear fit and, last, its constant, which is not held to be small."""
    a = np.column_stack([features, np.ones(len(features))])
    hold = np.diag([RIDGE] * features.shape[1] + [0.0])
    return np.linalg.solve(a.T @ a + hold, a.T @ values)


def _mean(values: np.ndarray, weight: Sequence[float]) -> np.ndarray:
    """Weighted mean of the rows, of what is not NaN; NaN where all is."""
    there = ~np.isnan(values) * np.asarray(weight)[:, None]
    total = there.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(total > 0, np.nansum(np.nan_to_num(values) * there, axis=0) / total, np.nan)
