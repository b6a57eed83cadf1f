"""A small model of times, fitted to the records of real matrices: how long, and which kernel.

A kernel's time is a sum of a few terms of the pattern (`terms`) that its format has, each with a weight that is not
negative: least squares of relative errors. The sum is corrected by how far it was off at the recorded points that are
nearest (`features`). A sum needs more matrices than it has terms; where there are fewer than `ENOUGH` of each term,
kernels are ranked by how much slower than the best they were at the nearest points, and the sum only says how long the
first one takes. `evaluate` tests all of it: each matrix is left out in turn, with all its points.

The advice for a matrix (`advise`) is what the model says of it, how far that can be trusted, and what a GPU says.
"""

import importlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jinja2
import numpy as np
import pandas as pd
from scipy.optimize import nnls

from artifact import registry
from artifact.measure import run
from artifact.recommend import landscape, statistics
from artifact.recommend.landscape import AT, GOOD, Pool, Real
from artifact.recommend.statistics import WINDOWS, Statistics
from kernels.contract import PreparedKernel, Problem
from kernels.formats.csr import Csr

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

    table: pd.DataFrame  #: variant, expected_us, slower (than the first), prepare_ms; the advised, then fastest first
    neighbours: tuple[tuple[str, int], ...]  #: (matrix, N), nearest first
    made_of: dict[str, float]  #: term -> share of the first one's sum, the largest first
    sums: bool  #: whether the sums rank, or the neighbours

    @property
    def variant(self) -> str:
        """Return the variant that is advised."""
        return self.table["variant"].iloc[0]


def terms(s: Statistics, n: int) -> np.ndarray:
    """TERMS of a matrix and N, a vector."""
    work = s.nnz * n / 1e6
    named = [work / max(1, getattr(s, f"{kind}_{h}")) for kind in ("windows", "similar") for h in WINDOWS]
    return np.array(
        [
            1.0,
            work,
            (s.m + s.k) * n / 1e6,
            s.m * n / 1e6,
            *named,
            work / max(1 / 64, s.blocks_64 * 64),
            s.row_most / 100,
            s.row_most * n / 1e5,
        ]
    )


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
    weights = np.full((len(variants), len(TERMS)), np.nan)
    for own, variant, of in zip(weights, variants, times.T, strict=True):
        # Only blocks read B by blocks, and they by nothing else.
        others = ("work", "windows", "similar", "longest") if pool.about.format(variant) == "blocks" else ("blocks",)
        applies, there = [not term.startswith(others) for term in TERMS], ~np.isnan(of)
        if there.sum() >= LEAST_POINTS:
            # None negative, by least squares of relative errors.
            own[:] = nnls(x[there] * applies / of[there, None], np.ones(there.sum()))[0]
    logs = np.log2(times)
    return Model(
        tuple(variants),
        tuple(wide.index),
        (raw - raw.mean(axis=0)) / scale,
        raw.mean(axis=0),
        scale,
        weights,
        logs - _logs(x @ weights.T),
        logs - np.nanmin(logs, axis=1)[:, None],
        np.log2(1 + 1e3 * waits),
        df["label"].nunique() >= ENOUGH * len(TERMS),
    )


def guess(model: Model, s: Statistics, n: int, lead: str = "") -> Guess:
    """Return what the model says of a matrix times n columns; lead: who is advised whatever the model says."""
    away = ((model.features - (features(s, n) - model.mean) / model.scale) ** 2).sum(axis=1)
    nearest = np.argsort(away, kind="stable")

    def near(values: np.ndarray, count: int) -> np.ndarray:
        return _mean(values[nearest[:count]], 1 / (away[nearest[:count]] + SOFTENING[count]))

    x = terms(s, n)
    expected = _logs(x @ model.weights.T) + near(model.off, CORRECTING)
    slower = expected if model.sums else near(model.slower, RANKING)
    slower = slower - np.nanmin(slower)
    every = {
        "variant": model.variants,
        "expected_us": 2 ** (np.nanmin(expected) + slower),
        "slower": 2**slower,
        "prepare_ms": (2 ** near(model.prepare, RANKING) - 1) / 1e3,
    }
    table = pd.DataFrame(every).dropna().sort_values("expected_us", kind="stable")
    table = table.sort_values("variant", key=lambda names: names != lead, ignore_index=True, kind="stable")
    table["slower"] /= table["slower"].iloc[0]
    of_first = pd.Series(x * np.nan_to_num(model.weights[model.variants.index(table["variant"].iloc[0])]), [*TERMS])
    made_of = (of_first / of_first.sum())[of_first > 0].sort_values(ascending=False, kind="stable")
    return Guess(table, tuple(model.points[i] for i in nearest[:RANKING]), made_of.to_dict(), model.sums)


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


def _logs(sums: np.ndarray) -> np.ndarray:
    """log2 of times in µs, none of which is under half a microsecond."""
    return np.log2(np.maximum(sums, 0.5))


def _mean(values: np.ndarray, weights: Sequence[float]) -> np.ndarray:
    """Weighted mean of the rows, of what is not NaN; NaN where all is."""
    return np.ma.filled(np.ma.average(np.ma.masked_invalid(values), axis=0, weights=weights), np.nan)


# ---------------------------------------------------------------- the advice for a matrix


#: More than this and reverse Cuthill-McKee takes too long for a question.
MOST_REORDERED = 50_000_000
#: How statistics are called in the answer.
WORDS = {
    "row_mean": "non-zeros a row",
    "row_variation": "variation of rows' lengths",
    "row_most": "longest row",
    "empty_rows": "empty rows",
    "bandwidth": "bandwidth",
    "spread": "mean distance from the diagonal, over k",
    **{f"windows_{h}": f"non-zeros of a column of {h} rows" for h in WINDOWS},
    **{f"similar_{h}": f"… with similar rows side by side, {h} rows" for h in WINDOWS},
    **{f"blocks_{b}": f"fill of blocks of {b} × {b}" for b in statistics.BLOCKS},
}


#: The answer in words: `lines`.
IN_WORDS = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True
).get_template("advice.j2")


@dataclass(frozen=True)
class Advice:
    """The answer for a matrix times n columns."""

    name: str
    n: int
    pool: Pool
    statistics: Statistics  #: as the matrix lies
    guess: Guess
    reordered: tuple[Statistics, Guess] | None  #: after reverse Cuthill-McKee, where it can be
    dense_us: float  #: of a dense multiplication, estimated; NaN where there is nothing to estimate it from
    evaluated: pd.DataFrame  #: `evaluate` of the pool


def advise(
    a: Csr,
    n: int,
    gpu_folder: Path,
    precision: str = "FP32",
    name: str = "",
    folder: Path = registry.FOLDER,
) -> Advice:
    """Return the advice for a matrix on the host.

    Needs no GPU. A matrix that is itself in the records, by its name, is left out of the model, so that the answer is
    as good as for any other. Where the model is no better than one contender for all matrices, that one is advised.

    Raises ValueError, one sentence, for a matrix without non-zeros, or a precision that was not recorded.
    """
    if a.nnz == 0:
        raise ValueError(f"{name or 'The matrix'} has no non-zeros: there is nothing to multiply.")
    chosen = landscape.pool(gpu_folder, precision, folder, n)
    evaluated, (one, share) = evaluate(chosen), always(chosen)
    lead = one if share >= good(evaluated) else ""
    fitted, found, reordered = fit(chosen, name), statistics.of(a), None
    if a.m == a.k and a.nnz <= MOST_REORDERED:
        other = statistics.of(statistics.ordered(a, statistics.RCM))
        reordered = other, guess(fitted, other, n, lead)
    dense = landscape.dense_us(
        landscape.dense_rates(gpu_folder, folder), precision, a.m, n, a.k, landscape.copy_gbps(gpu_folder)
    )
    return Advice(name, n, chosen, found, guess(fitted, found, n, lead), reordered, dense, evaluated)


def payoff(table: pd.DataFrame) -> tuple[float, str]:
    """(multiplications, contender).

    After how many the fastest of a guess has paid for its preparation, against the one that is ready first; 0 where it
    is that one.
    """
    best, ready = table.iloc[0], table.sort_values(["prepare_ms", "expected_us"]).iloc[0]
    gain, more = ready["expected_us"] - best["expected_us"], 1e3 * (best["prepare_ms"] - ready["prepare_ms"])
    return (more / gain if gain > 0 and more > 0 else 0.0), str(ready["variant"])


def lines(answer: Advice, gpu: str) -> list[str]:
    """Return the advice in words, for a terminal. gpu: whose records these are."""
    table, df, there = answer.guess.table, answer.pool.df, {"as it lies": answer.statistics}
    again, of_this = table.iloc[0], (df["label"] == answer.name) & (df["n"] == answer.n)
    if answer.reordered:
        there["reordered"], again = answer.reordered[0], answer.reordered[1].table.iloc[0]
    said = IN_WORDS.render(
        **{"a": answer, "gpu": gpu, "rows": list(table.itertuples()), "orders": there, "again": again, "short": short},
        **{"words": WORDS, "goes_to": SAID, "paid": payoff(table), "off": off(answer.evaluated), "near": GOOD - 1},
        **{"good": good(answer.evaluated), "always": always(answer.pool)},
        recorded=df[of_this].set_index("variant")["median_us"].to_dict(),
    )
    return said.splitlines()


def short(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, or all of a larger one's before the point."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def measure(answer: Advice, a: Csr, opened, say: Callable[[str], None] = print, seed: int = 0) -> pd.DataFrame:
    """Return what the GPU here says: variant, expected_us, measured_us, over the fastest; fastest first.

    opened: the `cuda.core.Device`, current. Contenders of the pool that do not take the matrix are left out, which is
    said.
    """
    about = answer.pool.about
    system = importlib.import_module(f"kernels.{about.room}")
    asked = problem(about, a, answer.n, seed, answer.name)
    libraries = registry.contenders(getattr(system, "BASELINES", ()), opened)
    makers = {
        name: libraries.get(name) or partial(system.prepare, name, device=opened)
        for name in answer.pool.df["variant"].unique()
    }
    found = run.willing(
        {name: partial(_installed, prepare) for name, prepare in makers.items()},
        lambda here: run.measure_point(asked, here, opened, run.BUDGETS_S["full"]),
        lambda name, why: say(f"left out: {why}"),
    )
    expected = answer.guess.table.set_index("variant")["expected_us"]
    rows = [(name, expected.get(name), time.median_us, cost.prepare_ms) for name, (cost, _, time) in found.items()]
    df = pd.DataFrame(rows, columns=["variant", "expected_us", "measured_us", "prepare_ms"])
    return df.assign(over_best=df["measured_us"] / df["measured_us"].min()).sort_values(
        "measured_us", ignore_index=True
    )


def _installed(prepare: Callable, asked: Problem) -> PreparedKernel:
    """Return the contender, which refuses if its library is not installed instead of ending the measurement."""
    try:
        return prepare(asked)
    except ModuleNotFoundError as error:
        raise ValueError(f"needs {error.name}, which is not installed") from error


def judged(df: pd.DataFrame, advised: str) -> str:
    """How good an advice was; df: what `measure` found."""
    at = df.set_index("variant")["over_best"]
    if advised not in at:
        return f"The advised {advised} does not take this matrix here; the fastest is {at.idxmin()}."
    word = "good" if at[advised] <= GOOD else "not the best"
    return f"The advice was {word}: {advised} takes {at[advised]:.2f}× the time of {at.idxmin()}, the fastest here."


def problem(about: Real, a: Csr, n: int, seed: int, name: str) -> Problem:
    """Return the system's problem with this matrix as it lies, else as its record has them.

    What would reorder is told not to.
    """
    make = importlib.import_module(f"kernels.{about.room}").problem_from_csr
    as_it_lies = {"reorder": ""} if "reorder" in inspect.signature(make).parameters else {}
    return make(a, n, seed, name, **about.problem | as_it_lies)
