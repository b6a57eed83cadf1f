"""Measure how long it takes to prune and compress a dense matrix to 2:4, checked to the bit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from artifact.measure import bench, check, records
from artifact.measure.run import BUDGETS_S, Run, prepared, row, select
from kernels.contract import Launch, Problem
from kernels.formats import half, two_four
from kernels.tensor_core_24 import pruning

EXPERIMENT = "prepare"


def measure(run: Run) -> pd.DataFrame | None:
    """One row per size, in `records.COLUMNS`: measured where `run` measures, else read.

    Measuring keeps the sizes that the record already holds. None where `run` only reads and there
    is no such record, as from before there was one. Raises `check.WrongResult` where the GPU and
    NumPy do not make the same bits; nothing of that size is recorded.
    """
    path = run.folder / f"{EXPERIMENT}.csv"
    problems = [pruning.problem(size, size, run.seed) for size in pruning.SIZES[run.preset]]
    if run.mode == "measure":
        keys = [(pruning.VARIANT, p.label, p.m, p.n, p.k, p.density) for p in problems]
        records.plan(path, keys)
        for problem in problems:
            if not _has(path, problem):
                records.append(path, [_measure(run, problem)])
    elif not path.exists():
        return None
    where = f"{run.room}/{EXPERIMENT} on {run.gpu}"
    return select(records.read(path), problems, [pruning.VARIANT], where)


def _has(path, problem: Problem) -> bool:
    if not path.exists():
        return False
    df = records.read(path)
    return bool(((df["m"] == problem.m) & (df["seed"] == problem.seed)).any())


def _measure(run: Run, problem: Problem) -> dict:
    stream = run.device.create_stream()

    def once() -> None:
        bound.launch(stream)
        stream.sync()

    def verify(_: str, launch: Callable[[], Any]) -> check.Errors:
        return _check(bound, problem, run.device, launch)

    try:
        bound = pruning.bind(problem, run.device)
        errors = verify("", once)
        budget_s = BUDGETS_S[run.preset]
        timing = bench.time({pruning.VARIANT: bound}, run.device, budget_s=budget_s, verify=verify)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        return row(
            problem,
            pruning.VARIANT,
            EXPERIMENT,
            prepared(bound),
            errors,
            timing[pruning.VARIANT],
            gpu=run.machine["gpu"],
            when=when,
        )
    finally:
        problem.release()
        stream.close()


def _check(bound: Launch, problem: Problem, device, launch: Callable[[], Any]) -> check.Errors:
    """Poison the output, launch once, compare all of it with what NumPy makes of that matrix."""
    made = bound.result()
    for array in (made.val, made.meta):
        array.fill(0xFFFF)  # a NaN, and no pair of indices
    device.sync()
    launch()
    dense, out = half.to_host(problem.device().a), two_four.to_host(made)
    expected = two_four.compress(dense.bits, dense.dtype, prune=True)
    for name in ("val", "meta"):
        wrong = getattr(out, name) != getattr(expected, name)
        if wrong.any():
            line, column = divmod(int(np.argmax(wrong)), wrong.shape[1])
            raise check.WrongResult(
                f"{bound.name} of {problem.m} x {problem.k} differs from NumPy in "
                f"{int(wrong.sum())} of {wrong.size} elements of {name}, the first at row {line}, "
                f"column {column}"
            )
    return check.Errors(0.0, 0.0)
