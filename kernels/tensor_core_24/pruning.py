"""How A is made: a dense matrix pruned by magnitude and compressed, as a launch that can be timed.

`two_four.compress` does the same, but allocates what it writes; here that is done beforehand.
"""

from math import ceil

import numpy as np

from .. import jit
from ..contract import Launch, Operands, Problem
from ..formats import two_four
from ..formats.half import Half, require_dtype
from ..formats.two_four import TwoFour
from ..lazy import core, cupy
from .operands import LABELS, SYSTEM, device_dense, host_dense, require_sizes

VARIANT = "prune_compress"
ENTRY = "compress<PRUNE>"
#: preset -> m = k. None of `sweeps`, whose shapes are of products.
SIZES = {"full": (4096, 16384), "kick": (4096,)}


def problem(m: int, k: int, seed: int = 0, *, dtype: str = "bfloat16") -> Problem:
    """Return a dense A (m, k), a `Half` of random values, that is to become 2:4; without a B, n is 0.

    density is the share that is kept, least_bytes what must be moved: the matrix in, values and
    metadata out. Raises ValueError with one sentence for sizes that the kernel does not take, an
    unknown dtype or a seed outside 0 to 2^32 - 1.
    """
    require_dtype(dtype)
    require_sizes(m, 1, k, seed=seed)
    stored = 8 * two_four.count_threads(m, k)  # values: a thread's eight of sixteen columns
    m, k = int(m), int(k)  # NumPy's would wrap in the products
    moved = 2 * m * k + 2 * stored + stored // 4
    return Problem(
        room=SYSTEM,
        label=LABELS[dtype],
        m=m,
        n=0,
        k=k,
        nnz=stored,
        density=0.5,
        seed=seed,
        useful_flops=0,
        flops_def="none",
        least_bytes=moved,
        requested_bytes=moved,
        make_host=lambda: Operands(Half(dtype, host_dense(m, k, seed, dtype)), None),
        make_device=lambda: Operands(Half(dtype, device_dense(m, k, seed, dtype)), None),
    )


def prepare(problem: Problem, device) -> Launch:
    """Compiled for `device` (a current `cuda.core.Device`), its output allocated: a `TwoFour`."""
    dense, threads = problem.device().a, two_four.count_threads(problem.m, problem.k)
    made = TwoFour.empty(cupy, problem.m, problem.k, dense.dtype)
    launch = core.LaunchConfig(grid=ceil(threads / two_four.THREADS), block=two_four.THREADS)
    given = np.int32(made.m), np.int32(made.k), *(x.data.ptr for x in (dense.bits, made.val, made.meta))
    kernel = jit.loaded(two_four.SOURCE, ENTRY, device)
    step = kernel, launch, (*given, 0)  # nothing that does not fit is to be reported
    return Launch(VARIANT, [step], made, keep=(dense,))
