"""Two things of the chapter that are no plain product: pruning, and C = alpha·A·B + beta·C + bias."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from artifact.measure import bench, check, records
from artifact.measure import run as harness
from artifact.measure.run import Run
from kernels import tensor_core_24 as room
from kernels.contract import Problem
from kernels.formats import half, two_four
from kernels.tensor_core_24 import pruning as kernels

# ---------------------------------------------------------------- pruning and compressing


def pruning(run: Run) -> pd.DataFrame:
    """Return how long pruning and compressing a dense matrix takes, a row for each size, in `records.COLUMNS`: measured
    where `run` measures, else read.

    Measuring keeps the sizes that the record already holds. Raises `check.WrongResult` where the GPU and NumPy do not
    make the same bits; nothing of that size is recorded.
    """
    path = run.folder / "prepare.csv"
    problems = [kernels.problem(size, size, run.seed) for size in kernels.SIZES[run.preset]]
    if run.mode == "measure":
        records.plan(path, [(kernels.VARIANT, p.label, p.m, p.n, p.k, p.density) for p in problems])
        known = records.read(path)[["m", "seed"]].to_numpy().tolist() if path.exists() else []
        for problem in (p for p in problems if [p.m, p.seed] not in known):
            records.append(path, [_measured(run, problem)])
    return harness.select(records.read(path), problems, [kernels.VARIANT], f"{run.room}/prepare on {run.gpu}")


def _measured(run: Run, problem: Problem) -> dict[str, Any]:
    def verify(_: str, launch: Callable[[], Any]) -> check.Errors:
        """Poison the output, launch once, compare all of it with what NumPy makes of that matrix."""
        made = bound.result()
        for array in (made.val, made.meta):
            array.fill(0xFFFF)  # a NaN, and no pair of indices
        run.device.sync()
        launch()
        dense, out = half.to_host(problem.device().a), two_four.to_host(made)
        expected = two_four.compress(dense.bits, dense.dtype, prune=True)
        for name in ("val", "meta"):
            wrong = np.argwhere(getattr(out, name) != getattr(expected, name))
            if len(wrong):
                line, column = wrong[0]
                raise check.WrongResult(
                    f"{bound.name} of {problem.m} x {problem.k} differs from NumPy in {len(wrong)} of "
                    f"{getattr(out, name).size} elements of {name}, the first at row {line}, column {column}"
                )
        return check.Errors(0.0, 0.0)

    try:
        bound = kernels.bind(problem, run.device)
        return harness.measure_alone(run, problem, "prepare", bound, verify, harness.BUDGETS_S[run.preset])
    finally:
        problem.release()


# ---------------------------------------------------------------- beta·C and a bias

ALPHA, BETA = 0.5, 2.0
CHECKED, TIMED = (1000, 520, 712), (4096, 4096, 4096)


def epilogue(run: Run) -> dict[str, float] | None:
    """Try C = alpha·A·B + beta·C + bias: its error at CHECKED, rel_err (Frobenius, against float64), and at TIMED its
    time beside the plain product's, all_us and plain_us; None where `run` only reads: nothing of it is recorded."""
    if run.device is None:
        return None
    import cupy

    def more(case: Problem) -> dict[str, Any]:
        random = cupy.random.default_rng(run.seed).random((case.m, case.n), dtype=cupy.float32)
        c = half.Half("bfloat16", half.to_bits(random, "bfloat16"))
        return {"alpha": ALPHA, "beta": BETA, "c": c, "bias": cupy.arange(case.m, dtype=cupy.float32) / case.m}

    small, large = (room.problem(*sizes, seed=run.seed) for sizes in (CHECKED, TIMED))
    try:
        added = more(small)
        bound = room.bind("auto", small, run.device, **added)
        bound.launch(run.device.default_stream)
        run.device.sync()
        host = small.host()
        product = two_four.to_dense(host.a).astype(np.float64) @ half.to_dense(host.b).astype(np.float64)
        c, found = (cupy.asnumpy(half.to_dense(x)).astype(np.float64) for x in (added["c"], bound.result()))
        wanted = ALPHA * product + BETA * c + cupy.asnumpy(added["bias"])[:, None]
        plain = room.bind("auto", large, run.device)
        whole = room.bind("auto", large, run.device, **more(large))
        timed = bench.time({"plain_us": plain, "all_us": whole}, run.device)
    finally:
        small.release()
        large.release()
    error = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
    return {"rel_err": error} | {name: timing.median_us for name, timing in timed.items()}
