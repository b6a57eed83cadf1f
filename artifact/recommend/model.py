"""A small model of times, fitted to the records of real matrices: how long, and which kernel.

A kernel's time is a sum of a few terms of the pattern (`terms`) that its format has, each with a weight that is not
negative: least squares of relative errors. The sum is corrected by how far it was off at the recorded points that are
nearest (`features`). A sum needs more matrices than it has terms; where there are fewer than `ENOUGH` of each term,
kernels are ranked by how much slower than the best they were at the nearest points, and the sum only says how long the
first one takes. `evaluate` tests all of it: each matrix is left out in turn, with all its points.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from artifact.recommend.landscape import AT, GOOD, Pool
from artifact.recommend.statistics import WINDOWS, Statistics

#: Terms of a time, with what one is a unit of.
TERMS = {
    "launch": "a launch",
    "work": "10⁶ non-zeros times columns of B",
    "dense": "10⁶ elements of B and C",
    "rows": "10⁶ elements of C",
    **{f"windows_{h}": f"10⁶ elements of B that windows of {h} rows name" for h in WINDOWS},
    **{f"similar_{h}": f"… with similar rows side by side, {h} rows" for h in WINDOWS},
    "blocks_64": "10⁶ elements of B that blocks of 64 × 64 read",
    "longest": "100 non-zeros of the longest row",
    "longest_n": "10⁵ of them times columns of B",
}
#: What a time goes to, in words.
SAID = {
    "launch": "the launch itself",
    "work": "a row of B for every non-zero",
    "dense": "reading B and writing C once",
    "rows": "writing C",
    **{f"windows_{h}": f"rows of B for windows of {h} rows" for h in WINDOWS},
    **{f"similar_{h}": f"rows of B for {h} similar rows at a time" for h in WINDOWS},
    "blocks_64": "rows of B for blocks of 64 × 64",
    "longest": "the longest row",
    "longest_n": "the longest row, for all columns",
}
#: Matrices for each term that a sum needs to rank kernels by itself.
ENOUGH = 3
#: Nearest points that correct a sum, and that rank kernels where it cannot.
CORRECTING, RANKING = 15, 7
#: Squared distance that is added to each of theirs, so that none has all the weight.
SOFTENING = {CORRECTING: 0.5, RANKING: 0.1}
#: A contender that was measured at fewer points has no sum.
LEAST_POINTS = 5


@dataclass(frozen=True)
class Model:
    """What is left of a pool for predictions; made by `fit`."""

    variants: tuple[str, ...]
    points: tuple[tuple[str, int], ...]  #: (matrix, N)
    features: np.ndarray  #: (points, `features`), standardised
    mean: np.ndarray
    scale: np.ndarray
    weights: np.ndarray  #: (variants, TERMS), µs; NaN: of too few points
    off: np.ndarray  #: (points, variants), log2 of the time over the sum; NaN: not measured
    slower: np.ndarray  #: (points, variants), log2 of the time over the fastest one's, likewise
    prepare: np.ndarray  #: (points, variants), log2 of 1 + preparation in µs
    sums: bool  #: whether there were enough matrices to rank by sums


@dataclass(frozen=True)
class Guess:
    """What a model says of a matrix: times, whose times they rest on, and what the first one's is made of."""

    table: pd.DataFrame  #: variant, expected_us, slower (than the first), prepare_ms; fastest first
    neighbours: tuple[tuple[str, int], ...]  #: (matrix, N), nearest first
    made_of: dict[str, float]  #: term -> share of the first one's sum, the largest first
    sums: bool  #: whether the sums rank, or the neighbours

    @property
    def variant(self) -> str:
        """Return the variant that is expected to be the fastest."""
        return self.table["variant"].iloc[0]


def terms(s: Statistics, n: int) -> np.ndarray:
    """TERMS of a matrix and N, a vector."""
    work = s.nnz * n / 1e6
    named = [work / max(1, getattr(s, f"{kind}_{h}")) for kind in ("windows", "similar") for h in WINDOWS]
    blocks = work / max(1 / 64, s.blocks_64 * 64)
    longest = s.row_most / 100, s.row_most * n / 1e5
    return np.array([1.0, work, (s.m + s.k) * n / 1e6, s.m * n / 1e6, *named, blocks, *longest])


def features(s: Statistics, n: int) -> np.ndarray:
    """Return what a matrix and N are near others in, a vector of logarithms to the base 2.

    What is 0 or missing counts as something small.
    """
    near = [
        max(s.nnz, 1) * n,
        (s.m + s.k) * n,
        max(s.row_most, 1),
        s.row_mean + 1,
        s.row_variation + 0.1,
        max(s.windows_16, 1),
        max(s.windows_64, 1),
        max(s.blocks_64 * 64**2, 1),
        s.spread + 1e-3,
    ]
    return np.log2(np.array(near, float))


def fit(pool: Pool, without: str = "") -> Model:
    """Return a model of a pool, without one matrix if it is named. Raises ValueError where nothing is left."""
    df = pool.df[(pool.df["label"] != without) & pool.df["variant"].isin(pool.advisable)]
    if df.empty:
        raise ValueError(f"There is no record left without {without!r}.")
    wide = df.pivot_table(index=AT, columns="variant", values=["median_us", "prepare_ms"], sort=False)
    variants = [v for v in pool.advisable if v in wide["median_us"]]
    times, waits = (wide[what][variants].to_numpy() for what in ("median_us", "prepare_ms"))
    raw, x = (np.array([make(pool.matrices[label], n) for label, n in wide.index]) for make in (features, terms))
    scale = raw.std(axis=0)
    scale[scale < 1e-9] = np.inf  # what all have alike tells nothing
    weights = [_weights(x * _applies(pool.about.format(v)), of) for v, of in zip(variants, times.T, strict=True)]
    logs = np.log2(times)
    return Model(
        tuple(variants),
        tuple(wide.index),
        (raw - raw.mean(axis=0)) / scale,
        raw.mean(axis=0),
        scale,
        np.array(weights),
        logs - _logs(x @ np.array(weights).T),
        logs - np.nanmin(logs, axis=1)[:, None],
        np.log2(1 + 1e3 * waits),
        df["label"].nunique() >= ENOUGH * len(TERMS),
    )


def guess(model: Model, s: Statistics, n: int) -> Guess:
    """Return what the model says of a matrix times n columns."""
    away = ((model.features - (features(s, n) - model.mean) / model.scale) ** 2).sum(axis=1)
    nearest = np.argsort(away, kind="stable")

    def near(values: np.ndarray, count: int) -> np.ndarray:
        return _mean(values[nearest[:count]], 1 / (away[nearest[:count]] + SOFTENING[count]))

    x = terms(s, n)
    expected = _logs(x @ model.weights.T) + near(model.off, CORRECTING)
    slower = expected if model.sums else near(model.slower, RANKING)
    slower = slower - np.nanmin(slower)
    table = pd.DataFrame(
        {
            "variant": model.variants,
            "expected_us": 2 ** (np.nanmin(expected) + slower),
            "slower": 2**slower,
            "prepare_ms": (2 ** near(model.prepare, RANKING) - 1) / 1e3,
        }
    )
    table = table.dropna().sort_values("expected_us", ignore_index=True, kind="stable")
    of_first = pd.Series(x * np.nan_to_num(model.weights[model.variants.index(table["variant"].iloc[0])]), [*TERMS])
    made_of = (of_first / of_first.sum())[of_first > 0].sort_values(ascending=False, kind="stable")
    neighbours = tuple(model.points[i] for i in nearest[:RANKING])
    return Guess(table, neighbours, made_of.to_dict(), model.sums)


def evaluate(pool: Pool) -> pd.DataFrame:
    """Each matrix left out in turn.

    Label, n, what is advised, its measured time, the best of all that were measured, its time, their ratio, and the
    expected time.

    The best is of everybody, also of those that try others on the GPU. Where the advised one was not measured at a
    point, as it did not take it, the next one is asked, as a user would.
    """
    rows = []
    for label, here in pool.df.groupby("label", sort=False):
        model = fit(pool, label)
        for n, point in here.groupby("n"):
            times = point.set_index("variant")["median_us"]
            asked = guess(model, pool.matrices[label], n).table.set_index("variant")["expected_us"]
            advised = next(variant for variant in asked.index if variant in times)
            rows.append((label, n, advised, times[advised], times.idxmin(), times.min(), asked[advised]))
    df = pd.DataFrame(rows, columns=["label", "n", "advised", "advised_us", "best", "best_us", "expected_us"])
    return df.assign(ratio=df["advised_us"] / df["best_us"])


def good(evaluated: pd.DataFrame) -> float:
    """Share of the points at which the advice was at most `GOOD` times as slow as the best."""
    return float((evaluated["ratio"] <= GOOD).mean())


def always(pool: Pool) -> tuple[str, float]:
    """Return the one contender that is the best advice for all matrices alike, and its share of good points.

    What a model must beat. A point that it does not take is none of its good ones.
    """
    best = pool.df.groupby(AT)["median_us"].transform("min")
    fine = pool.df[pool.df["variant"].isin(pool.advisable)].assign(good=pool.df["median_us"] <= GOOD * best)
    share = fine.groupby("variant")["good"].sum() / len(pool.df[AT].drop_duplicates())
    return str(share.idxmax()), float(share.max())


def off(evaluated: pd.DataFrame) -> tuple[float, float]:
    """Return the factors over the expected time within which four of five advised kernels were."""
    ratio = evaluated["advised_us"] / evaluated["expected_us"]
    return float(ratio.quantile(0.1)), float(ratio.quantile(0.9))


def _applies(form: str) -> np.ndarray:
    """1 for the TERMS of a kernel for that format, else 0: only blocks read B by blocks, and they by nothing else."""
    others = ("work", "windows", "similar", "longest") if form == "blocks" else ("blocks",)
    return np.array([not term.startswith(others) for term in TERMS], float)


def _weights(x: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Of the terms `x` (points, terms), none negative, by least squares of relative errors; NaN of too few points."""
    there = ~np.isnan(times)
    if there.sum() < LEAST_POINTS:
        return np.full(x.shape[1], np.nan)
    return nnls(x[there] / times[there, None], np.ones(there.sum()))[0]


def _logs(sums: np.ndarray) -> np.ndarray:
    """log2 of times in µs, none of which is under half a microsecond."""
    return np.log2(np.maximum(sums, 0.5))


def _mean(values: np.ndarray, weight: Sequence[float]) -> np.ndarray:
    """Weighted mean of the rows, of what is not NaN; NaN where all is."""
    there = ~np.isnan(values) * np.asarray(weight)[:, None]
    total = there.sum(axis=0)
    with np.errstate(invalid="ignore"):
        return np.where(total > 0, np.nansum(np.nan_to_num(values) * there, axis=0) / total, np.nan)
