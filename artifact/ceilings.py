"""Measure a GPU's ceilings with the microbenchmarks of `kernels.ceilings`, checked like everything else."""

from __future__ import annotations

from datetime import UTC, datetime

import pandas as pd

from artifact import bench, check, records
from artifact.run import Run, prepared, row
from kernels import ceilings
from kernels.contract import Problem

EXPERIMENT = "ceilings"
#: float32 sums of up to 10^5 terms are compared with float64 ones; a wrong index is off by far more.
TOLERANCE = 1e-3


def measure(run: Run) -> pd.DataFrame:
    """One row per microbenchmark, in `records.COLUMNS`: measured where `run` measures, else read.

    Raises `check.WrongResult` if a microbenchmark did not compute what it must.
    """
    path = run.folder / f"{EXPERIMENT}.csv"
    if run.mode == "recorded" or path.exists():
        return records.read(path)
    rows = [_measure(run, name) for name in ceilings.VARIANTS]
    records.write(path, pd.DataFrame(rows))
    return records.read(path)


def _measure(run: Run, name: str) -> dict:
    ceiling = ceilings.bind(name, run.device, run.seed)
    bound = ceiling.bound
    stream = run.device.create_stream()
    run.device.sync()
    bound.result().fill(float("nan"))
    run.device.sync()
    bound.launch(stream)
    stream.sync()
    stream.close()
    errors = _errors(name, bound.result(), ceiling.expected)
    timing = bench.time({name: bound}, run.device)[name]
    when = datetime.now(UTC).isoformat(timespec="seconds")
    work = _as_problem(name, ceiling, run.seed)
    return row(
        work, name, EXPERIMENT, prepared(bound), errors, timing, gpu=run.machine["gpu"], when=when
    )


def _errors(name: str, out, expected) -> check.Errors:
    # Not `check.compare`: its limits are for products, and these are one-accumulator sums.
    off = abs(out.astype("float64") - expected) / abs(expected).mean()
    worst = float(off.max())
    if not worst <= TOLERANCE:  # NaN, an element left unwritten, fails as well
        raise check.WrongResult(
            f"microbenchmark {name} is off by {worst:.1e}, above {TOLERANCE:.0e}: its rate means nothing"
        )
    return check.Errors(float((off**2).mean() ** 0.5), worst)


def _as_problem(name: str, ceiling: ceilings.Ceiling, seed: int) -> Problem:
    """The record's columns speak of multiplications; only the work of a launch means something here."""

    def nothing():
        raise NotImplementedError(f"microbenchmark {name} has no operands")

    return Problem(
        room="ceilings", label=name, m=1, n=1, k=1, nnz=1, density=1.0, seed=seed,
        useful_flops=ceiling.flops, flops_def="2·FMA", least_bytes=ceiling.bytes,
        requested_bytes=ceiling.bytes, make_host=nothing, make_device=nothing,
    )  # fmt: skip
