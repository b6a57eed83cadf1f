"""Which kernel for a matrix: what the model says of it, how far that can be trusted, and what a GPU says."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.measure import run
from artifact.recommend import landscape, model, statistics
from artifact.recommend.landscape import Pool, Real
from artifact.recommend.model import Guess
from artifact.recommend.statistics import Statistics
from kernels.contract import PreparedKernel, Problem
from kernels.formats.csr import Csr

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
    **{f"windows_{h}": f"non-zeros of a column of {h} rows" for h in statistics.WINDOWS},
    **{f"similar_{h}": f"… with similar rows side by side, {h} rows" for h in statistics.WINDOWS},
    **{f"blocks_{b}": f"fill of blocks of {b} × {b}" for b in statistics.BLOCKS},
}


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
    known: pd.DataFrame  #: rows of the record that are of this very matrix and N
    evaluated: pd.DataFrame  #: `model.evaluate` of the pool


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
    as good as for any other.

    Raises ValueError, one sentence, for a matrix without non-zeros, or a precision that was not recorded.
    """
    if a.nnz == 0:
        raise ValueError(f"{name or 'The matrix'} has no non-zeros: there is nothing to multiply.")
    chosen = landscape.pool(gpu_folder, precision, folder)
    fitted, found, reordered = model.fit(chosen, name), statistics.of(a), None
    if a.m == a.k and a.nnz <= MOST_REORDERED:
        other = statistics.of(statistics.ordered(a, statistics.RCM))
        reordered = other, model.guess(fitted, other, n)
    dense = landscape.dense_us(
        landscape.dense_rates(gpu_folder, folder), precision, a.m, n, a.k, landscape.copy_gbps(gpu_folder)
    )
    known = chosen.df[(chosen.df["label"] == name) & (chosen.df["n"] == n)]
    return Advice(
        name, n, chosen, found, model.guess(fitted, found, n), reordered, dense, known, model.evaluate(chosen)
    )


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
    s, about, table, evaluated = answer.statistics, answer.pool.about, answer.guess.table, answer.evaluated
    orders = {"as it lies": s} | ({"reordered": answer.reordered[0]} if answer.reordered else {})
    best, us, (after, ready) = table.iloc[0], table["expected_us"].iloc[0], payoff(table)
    again = answer.reordered[1].table.iloc[0] if answer.reordered else best
    low, high = (short(by * us) for by in model.off(evaluated))
    ratio, dense = answer.dense_us / us, f"{short(answer.dense_us)} µs"  # NaN where nothing tells it
    always, share = model.always(answer.pool)
    return [
        f"{answer.name}: {s.m} x {s.k}, {s.nnz} non-zeros ({100 * s.density:.3g} %), times {answer.n} columns",
        "",
        f"{'':44}" + "".join(f"{order:>12}" for order in orders),
        *(
            f"{said:<44}" + "".join(f"{short(getattr(of, key), 4):>12}" for of in orders.values())
            for key, said in WORDS.items()
        ),
        "",
        f"Advice: {best['variant']}, A as {about.format(best['variant'])} (system {about.room}, {about.precision}): "
        f"{short(us)} µs expected on {gpu}, {low} to {high} µs in four of five cases.",
        _why(answer.guess),
        *[
            f"It prepares A for about {best['prepare_ms']:.2g} ms, which pays off after {after:.0f} multiplications; "
            f"for fewer take {ready}."
        ]
        * bool(after),
        *[f"Reordered (reverse Cuthill-McKee) {again['variant']} would take {short(again['expected_us'])} µs."]
        * bool(again["expected_us"] < us / 1.05),
        *[f"A dense multiplication would take some {dense}, {short(ratio, 2)} times as long."] * bool(ratio >= 1),
        *[f"But a dense multiplication takes some {dense}: make A dense, if it fits."] * bool(ratio < 1),
        f"How far to trust it: with each of the {evaluated['label'].nunique()} recorded matrices "
        f"(N = {'/'.join(map(str, sorted(set(evaluated['n']))))}) left out in turn, the advice was within "
        f"{model.GOOD - 1:.0%} of the best at {model.good(evaluated):.0%} of {len(evaluated)} points; "
        f"always {always} is at {share:.0%}.",
        *_truth(answer),
    ]


def short(value: float, digits: int = 3) -> str:
    """Return a number with so many digits, or all of a larger one's before the point."""
    return f"{value:.{digits}g}" if abs(value) < 10**digits else f"{value:.0f}"


def _why(guess: Guess) -> str:
    """Return what its time goes to, who else was looked at, and whose records say so."""
    parts = [f"{model.SAID[term]} ({share:.0%})" for term, share in guess.made_of.items() if share >= 0.1]
    names = ", ".join(dict.fromkeys(label for label, _ in guess.neighbours))
    others = ", ".join(f"{row.variant} {row.slower:.2f}×" for row in guess.table.iloc[1:4].itertuples())
    said = (
        f"Of {len(guess.table)} kernels the next ones are expected to take"
        if guess.sums
        else f"It was the fastest of {len(guess.table)} there; the next ones took"
    )
    return (
        f"Why: its time goes to {', '.join(parts) or 'many small things'}. The recorded matrices most like this one "
        f"are {names}. {said} {others or 'nothing'} of its time."
    )


def _truth(answer: Advice) -> list[str]:
    """Return what the records say of this very matrix, which the model has not seen.

    Nothing where they do not have it.
    """
    times = answer.known.set_index("variant")["median_us"]
    mine = [f", the advised {v} {short(us)} µs" for v, us in times.items() if v == answer.guess.variant]
    best = [f"Recorded of this very matrix: {v} {short(us)} µs" for v, us in times.nsmallest(1).items()]
    return [f"{''.join(best + mine)}."] if best else []


def measure(answer: Advice, a: Csr, opened, say: Callable[[str], None] = print, seed: int = 0) -> pd.DataFrame:
    """Return what the GPU here says: variant, expected_us, measured_us, over the fastest; fastest first.

    opened: the `cuda.core.Device`, current. Contenders of the pool that do not take the matrix are left out, which is
    said.
    """
    about = answer.pool.about
    system = importlib.import_module(f"kernels.{about.room}")
    asked = problem(about, a, answer.n, seed, answer.name)
    libraries = registry.contenders(getattr(system, "BASELINES", ()), opened)
    names = answer.pool.df["variant"].unique()
    makers = {name: libraries.get(name) or partial(system.prepare, name, device=opened) for name in names}
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
    word = "good" if at[advised] <= model.GOOD else "not the best"
    return f"The advice was {word}: {advised} takes {at[advised]:.2f}× the time of {at.idxmin()}, the fastest here."


def problem(about: Real, a: Csr, n: int, seed: int, name: str) -> Problem:
    """Return the system's problem with this matrix as it lies, else as its record has them.

    What would reorder is told not to.
    """
    make = importlib.import_module(f"kernels.{about.room}").problem_from_csr
    as_it_lies = {"reorder": ""} if "reorder" in inspect.signature(make).parameters else {}
    return make(a, n, seed, name, **about.problem | as_it_lies)
