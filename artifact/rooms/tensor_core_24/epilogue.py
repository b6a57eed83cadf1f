"""C = alpha·A·B + beta·C + bias, tried where there is a GPU: against NumPy, and its time beside the plain product's."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artifact.measure import bench
from artifact.measure.run import Run
from kernels import tensor_core_24 as room
from kernels.formats import half, two_four

ALPHA, BETA = 0.5, 2.0
CHECKED = {"m": 1000, "n": 520, "k": 712}
TIMED = {"m": 4096, "n": 4096, "k": 4096}


@dataclass(frozen=True)
class Tried:
    rel_err: float  #: Frobenius, against float64, at CHECKED
    all_us: float  #: at TIMED
    plain_us: float


def tried(run: Run) -> Tried | None:
    """None where `run` only reads: nothing of it is recorded."""
    if run.device is None:
        return None
    return Tried(_error(run), *_times(run))


def _error(run: Run) -> float:
    import cupy

    case = room.problem(**CHECKED, seed=run.seed)
    try:
        more = _extras(run.seed, case.m, case.n)
        bound = room.bind("auto", case, run.device, **more)
        bound.launch(run.device.default_stream)
        run.device.sync()
        host = case.host()
        a, b, c = two_four.to_dense(host.a), half.to_dense(host.b), half.to_dense(more["c"])
        wanted = ALPHA * (a.astype(np.float64) @ b.astype(np.float64))
        wanted += BETA * cupy.asnumpy(c).astype(np.float64)
        wanted += cupy.asnumpy(more["bias"])[:, None]
        off = cupy.asnumpy(half.to_dense(bound.result())) - wanted
    finally:
        case.release()
    return float(np.linalg.norm(off) / np.linalg.norm(wanted))


def _times(run: Run) -> tuple[float, float]:
    case = room.problem(**TIMED, seed=run.seed)
    try:
        contenders = {
            "plain": room.bind("auto", case, run.device),
            "all": room.bind("auto", case, run.device, **_extras(run.seed, case.m, case.n)),
        }
        timed = bench.time(contenders, run.device)
    finally:
        case.release()
    return timed["all"].median_us, timed["plain"].median_us


def _extras(seed: int, m: int, n: int) -> dict:
    """alpha, beta, a random BF16 c (m, n) and a float32 bias (m,), on the device."""
    import cupy

    random = cupy.random.default_rng(seed).random((m, n), dtype=cupy.float32)
    c = half.Half("bfloat16", half.to_bits(random, "bfloat16"))
    return {"alpha": ALPHA, "beta": BETA, "c": c, "bias": cupy.arange(m, dtype=cupy.float32) / m}
