"""The microbenchmarks: what each does, how much work that is, and what it must compute.

Those of the tensor cores add one product of random BF16 matrices to their accumulators over and
over, so that iterations * A B is what they must leave. The sparse ones count a multiplication with
each zero of A as done, as everyone does: 2 m n k FLOP for an instruction of m x n x k.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import jit
from ..contract import Kernel, Launch, require, step
from ..formats import half, two_four
from ..lazy import cupy

HERE = Path(__file__).parent
SYSTEM = "ceilings"
THREADS = 1024
BLOCKS_PER_SM = 2
FMA_CHAINS, FMA_ITERATIONS = 8, 8192
COPY_BYTES, COPY_THREADS = 2**31, 256
L2_BYTES, L2_ROUNDS, L2_UNROLL = 2**23, 4, 4
SHARED_WORDS, SHARED_ROUNDS, SHARED_UNROLL = 8192, 4096, 8
#: Accumulators of 16 x 8 of a warp, down and across, and the columns of A that an iteration adds up.
MMA_DOWN, MMA_ACROSS, MMA_K, MMA_SP_K, MMA_ITERATIONS = 4, 4, 32, 64, 4096
MMA_WARPS = 8
#: Rows and columns of C of a block of two warpgroups, and the columns of A.
WGMMA_M, WGMMA_N, WGMMA_K, WGMMA_SP_K, WGMMA_ITERATIONS = 128, 256, 64, 128, 2048
TENSOR_THREADS = 256
HOPPER = ("sm_90a",)
FMA_FLOPS, MMA_FLOPS = "2·FMA", "2·m·n·k of an MMA"
#: float32 sums of up to 10^5 terms are compared with float64 ones; a wrong index is off by far more.
TOLERANCE = 1e-3
#: Tensor cores truncate where others round, so their sums of 8192 products drift toward zero; one
#: wrong index or value is still off by 10^-1.
TENSOR_TOLERANCE = 1e-2

VARIANTS = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "fma",
            HERE / "fma.cu",
            "fused multiply-adds on registers only",
            entries=(f"fma<{FMA_CHAINS}>",),
        ),
        Kernel(
            "copy",
            HERE / "copy.cu",
            "DRAM to DRAM, bytes read plus bytes written",
            entries=(f"copy<{COPY_THREADS}>",),
        ),
        Kernel(
            "l2_read",
            HERE / "l2_read.cu",
            "every SM reads a buffer that L2 holds",
            entries=(f"l2_read<{L2_UNROLL}>",),
        ),
        Kernel(
            "shared_read",
            HERE / "shared_read.cu",
            "16-byte loads from shared memory without bank conflicts",
            entries=(f"shared_read<{SHARED_WORDS}, {SHARED_UNROLL}>",),
        ),
        Kernel(
            "mma",
            HERE / "mma.cu",
            "dense tensor cores from registers, mma.sync.m16n8k16",
            entries=(f"mma_loop<{MMA_DOWN}, {MMA_ACROSS}, {MMA_K // 16}>",),
        ),
        Kernel(
            "mma_sp",
            HERE / "mma_sp.cu",
            "sparse tensor cores from registers, mma.sp.m16n8k32",
            entries=(f"mma_sp_loop<{MMA_DOWN}, {MMA_ACROSS}, {MMA_SP_K // 64}>",),
        ),
        Kernel(
            "wgmma",
            HERE / "wgmma.cu",
            "dense tensor cores from shared memory, wgmma.m64n256k16",
            entries=(f"wgmma_loop<{WGMMA_K // 16}>",),
            targets=HOPPER,
        ),
        Kernel(
            "wgmma_sp",
            HERE / "wgmma_sp.cu",
            "sparse tensor cores from shared memory, wgmma.sp.m64n256k32",
            entries=(f"wgmma_sp_loop<{WGMMA_SP_K // 64}, false>",),
            targets=HOPPER,
        ),
        Kernel(
            "wgmma_sp_ra",
            HERE / "wgmma_sp.cu",
            "the same with A in registers",
            entries=(f"wgmma_sp_loop<{WGMMA_SP_K // 64}, true>",),
            targets=HOPPER,
        ),
    )
}


@dataclass
class Ceiling:
    """A bound microbenchmark, the work of one launch, and the output that it must leave."""

    bound: Launch
    flops: int  #: floating-point operations, as `flops_def` counts them
    bytes: int  #: bytes that pass the level under test, in both directions
    expected: Any  #: float64 or exact CuPy array of the shape of `bound.result()`
    flops_def: str = FMA_FLOPS
    tolerance: float = TOLERANCE  #: largest error allowed, over the mean size of `expected`


def supports(variant: str, device) -> bool:
    """Whether a `cuda.core.Device` has the instructions that a microbenchmark is about."""
    targets = VARIANTS[variant].targets
    return targets == jit.TARGETS or jit.arch_of(device) in targets


def prepare(variant: str, device, seed: int = 0) -> Ceiling:
    """Compile and make ready one microbenchmark for a current `cuda.core.Device`.

    Raises ValueError for an unknown variant and for a GPU without its instructions.
    """
    require(variant in VARIANTS, f"{SYSTEM} has no {variant!r}: choose one of {', '.join(VARIANTS)}")
    require(
        supports(variant, device),
        f"{variant} is for {', '.join(VARIANTS[variant].targets)}, but this GPU is {jit.arch_of(device)}: leave it out",
    )
    return _BIND[variant](device, np.random.default_rng(seed))


def _ready(variant, device, grid, *arguments, threads=THREADS, shared_bytes=0) -> Launch:
    """Return a launch; arguments: numbers and arrays, the last one what it writes."""
    (entry,) = VARIANTS[variant].entries
    *keep, output = (x for x in arguments if not isinstance(x, int))
    job = VARIANTS[variant].source, entry
    return Launch(variant, [step(job, device, grid, threads, arguments, shared_bytes)], output, keep=tuple(keep))


def _blocks(device) -> int:
    return BLOCKS_PER_SM * device.properties.multiprocessor_count


def _prepare_fma(device, rng) -> Ceiling:
    threads = _blocks(device) * THREADS
    a = cupy.asarray(rng.uniform(0.1, 0.9, threads).astype(np.float32))
    b = cupy.asarray(rng.uniform(0.1, 0.9, threads).astype(np.float32))
    out = cupy.empty(threads, cupy.float32)
    expected = b.astype(np.float64) / (1 - a.astype(np.float64))
    bound = _ready("fma", device, _blocks(device), FMA_ITERATIONS, a, b, out)
    return Ceiling(bound, 2 * threads * FMA_CHAINS * FMA_ITERATIONS, 0, expected)


def _prepare_copy(device, rng) -> Ceiling:
    block = 16 * COPY_THREADS
    # A quarter of a small card's free memory at most, for each of the two buffers.
    grid = min(COPY_BYTES, cupy.cuda.runtime.memGetInfo()[0] // 4) // block
    words = cupy.random.RandomState(int(rng.integers(2**31))).rand(grid * block // 4, dtype=np.float32)
    out = cupy.empty_like(words)
    bound = _ready("copy", device, grid, words, out, threads=COPY_THREADS)
    return Ceiling(bound, 0, 2 * words.nbytes, words)


def _prepare_l2_read(device, rng) -> Ceiling:
    values = cupy.asarray(rng.random(L2_BYTES // 4, np.float32))
    out = cupy.empty(_blocks(device) * THREADS, cupy.float32)
    # Thread t of a block sums the float4 values t, t + THREADS, ...: the same in every block.
    per_thread = values.astype(np.float64).reshape(-1, THREADS, 4).sum(axis=(0, 2)) * L2_ROUNDS
    bound = _ready("l2_read", device, _blocks(device), values.size // 4, L2_ROUNDS, values, out)
    work = values.nbytes * L2_ROUNDS * _blocks(device)
    return Ceiling(bound, 0, work, cupy.tile(per_thread, _blocks(device)))


def _prepare_shared_read(device, rng) -> Ceiling:
    values = cupy.asarray(rng.random(SHARED_WORDS, np.float32))
    threads = _blocks(device) * THREADS
    out = cupy.empty(threads, cupy.float32)
    loads = SHARED_ROUNDS * SHARED_UNROLL
    laps = SHARED_WORDS // 4 // THREADS  # a thread comes back to its first value after so many loads
    fours = values.astype(np.float64).reshape(laps, THREADS, 4).sum(axis=(0, 2)) * (loads / laps)
    bound = _ready("shared_read", device, _blocks(device), SHARED_ROUNDS, values, out)
    return Ceiling(bound, 0, 16 * loads * threads, cupy.tile(fours, _blocks(device)))


def _left(rng, rows: int, columns: int, sparse: bool) -> tuple[tuple, np.ndarray]:
    """Return (what a kernel reads of A, A in float32)."""
    if sparse:
        a = two_four.random(rows, columns, "bfloat16", int(rng.integers(2**32)))
        return (a.val, a.meta), two_four.to_dense(a)
    bits = _random(rng, rows, columns)
    return (bits,), half.from_bits(bits, "bfloat16")


def _prepare_mma(device, rng, variant: str = "mma", k: int = MMA_K) -> Ceiling:
    left, a = _left(rng, MMA_WARPS * 16 * MMA_DOWN, k, variant != "mma")  # the rows of one warp after another's
    right = _random(rng, MMA_WARPS * 8 * MMA_ACROSS, k)  # B, column-major
    b = half.from_bits(right, "bfloat16").reshape(MMA_WARPS, -1, k)
    product = a.astype(np.float64).reshape(MMA_WARPS, -1, k) @ b.astype(np.float64).swapaxes(1, 2)
    return _tensor(variant, device, (*left, right), product, k, MMA_ITERATIONS, 0)


def _prepare_wgmma(device, rng, variant: str = "wgmma", k: int = WGMMA_K) -> Ceiling:
    left, a = _left(rng, WGMMA_M, k, variant != "wgmma")
    right = _random(rng, k, WGMMA_N)
    product = a.astype(np.float64) @ half.from_bits(right, "bfloat16").astype(np.float64)
    shared_bytes = right.nbytes + (left[0].nbytes if variant != "wgmma_sp_ra" else 0)  # A is in registers there
    return _tensor(variant, device, (*left, right), product, k, WGMMA_ITERATIONS, shared_bytes)


def _tensor(
    variant: str, device, operands: tuple, product: np.ndarray, k: int, iterations: int, shared: int
) -> Ceiling:
    """One block an SM, all with the same operands, which add `product` again and again."""
    operands = tuple(cupy.asarray(operand) for operand in operands)
    blocks = device.properties.multiprocessor_count
    out = cupy.empty((blocks, *product.shape), cupy.float32)
    given = iterations, *operands, out
    bound = _ready(variant, device, blocks, *given, threads=TENSOR_THREADS, shared_bytes=shared)
    expected = cupy.broadcast_to(cupy.asarray(iterations * product), out.shape)
    flops = 2 * out.size * k * iterations
    return Ceiling(bound, flops, 0, expected, MMA_FLOPS, TENSOR_TOLERANCE)


def _random(rng, rows: int, columns: int) -> np.ndarray:
    """Bit patterns of bfloat16 values from (-1, 1)."""
    return half.to_bits(rng.uniform(-1, 1, (rows, columns)).astype(np.float32), "bfloat16")


_BIND: dict[str, Callable[..., Ceiling]] = {
    "fma": _prepare_fma,
    "copy": _prepare_copy,
    "l2_read": _prepare_l2_read,
    "shared_read": _prepare_shared_read,
    "mma": _prepare_mma,
    "mma_sp": partial(_prepare_mma, variant="mma_sp", k=MMA_SP_K),
    "wgmma": _prepare_wgmma,
    "wgmma_sp": partial(_prepare_wgmma, variant="wgmma_sp", k=WGMMA_SP_K),
    "wgmma_sp_ra": partial(_prepare_wgmma, variant="wgmma_sp_ra", k=WGMMA_SP_K),
}
