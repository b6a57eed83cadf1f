"""Variants, problems and launches of the system."""

import math
from pathlib import Path

import numpy as np

from .. import jit
from ..contract import Kernel, Launch, Operands, Problem, require, require_seed, require_whole
from ..formats import csr

SYSTEM = "scalar_csr"
SOURCE = Path(__file__).parent / "scalar.cu"
BASELINES = ("cusparse",)
THREADS = 128
UNROLL = {"scalar": 1, "unrolled": 4}

VARIANTS: dict[str, Kernel] = {
    "scalar": Kernel("scalar", SOURCE, "a thread to an element of C", entries=("scalar<1>",), published=True),
    "unrolled": Kernel("unrolled", SOURCE, "four products a step", "1.2x: fewer branches.", entries=("scalar<4>",)),
}


def problem(m: int, n: int, k: int, density: float, seed: int = 0) -> Problem:
    """C (m, n) = A (m, k) · B (k, n), non-zeros of A anywhere. Raises ValueError for what makes no problem."""
    for name, value in (("m", m), ("n", n), ("k", k)):
        require_whole(name, value, 1, csr.INT32_MAX, "2^31 - 1")
    require(0 <= density <= 1, f"density is {density!r}, but must be a share from 0 to 1")
    require_seed(seed)
    each = round(k * density)

    def host() -> Operands:
        draw = np.random.default_rng(seed)
        columns = np.argsort(draw.random((m, k)), axis=1)[:, :each].astype(np.int32)
        row_ptr = np.arange(0, m * each + 1, max(each, 1), dtype=np.int32)[: m + 1]
        row_ptr = row_ptr if each else np.zeros(m + 1, np.int32)
        values = draw.uniform(0.5, 1, m * each).astype(np.float32)
        b = draw.uniform(0.5, 1, (k, n)).astype(np.float32)
        return Operands(csr.Csr(m, k, row_ptr, columns.ravel(), values), b)

    def device() -> Operands:
        import cupy

        made = host()
        return Operands(csr.to_device(made.a), cupy.asarray(made.b), cupy.empty((m, n), cupy.float32))

    nnz = m * each
    return Problem(
        room=SYSTEM,
        label="",
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=density,
        seed=seed,
        useful_flops=2 * nnz * n,
        flops_def="2·nnz·N",
        least_bytes=8 * nnz + 4 * (m + 1) + 4 * n * (m + k),
        requested_bytes=12 * nnz * n + 4 * m * n,
        make_host=host,
        make_device=device,
    )


def prepare(variant: str, problem: Problem, device) -> Launch:
    """Compile `variant` for `device` and make it ready. Raises ValueError where there is no such variant."""
    from cuda.core import LaunchConfig

    require(variant in VARIANTS, f"{SYSTEM} has no variant {variant!r}: choose {', '.join(VARIANTS)}")
    require(problem.m < 2**16, f"m is {problem.m}, but the rows of a grid are at most 65535")
    ops = problem.device()
    kernel = jit.load(jit.compile_cubin(SOURCE, f"scalar<{UNROLL[variant]}>", jit.arch_of(device)))
    config = LaunchConfig(grid=(math.ceil(problem.n / THREADS), problem.m), block=THREADS)
    arrays = (ops.a.row_ptr, ops.a.col_idx, ops.a.val, ops.b, ops.c)
    sizes = (np.int32(problem.m), np.int32(problem.n))
    return Launch(variant, [(kernel, config, (*sizes, *(x.data.ptr for x in arrays)))], ops.c)


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes of `problem`; preset: "full" or "kick"."""
    sizes = {"full": (512, 1024, 2048), "kick": (512,)}[preset]
    return {"columns": [{"m": 1024, "n": n, "k": 1024, "density": 0.01} for n in sizes]}
