"""The four microbenchmarks: what each does, how much work that is, and what it must compute."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernels import jit
from kernels.contract import Kernel, Launch, require

HERE = Path(__file__).parent
ROOM = "ceilings"
THREADS = 1024
BLOCKS_PER_SM = 2
FMA_CHAINS, FMA_ITERATIONS = 8, 8192
COPY_BYTES, COPY_THREADS = 2**31, 256
L2_BYTES, L2_ROUNDS, L2_UNROLL = 2**23, 4, 4
SHARED_WORDS, SHARED_ROUNDS, SHARED_UNROLL = 8192, 4096, 8

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
    )
}


@dataclass
class Ceiling:
    """A bound microbenchmark, the work of one launch, and the output that it must leave."""

    bound: Launch
    flops: int  #: floating-point operations, an FMA being two
    bytes: int  #: bytes that pass the level under test, in both directions
    expected: Any  #: float64 or exact CuPy array of the shape of `bound.result()`


def bind(variant: str, device, seed: int = 0) -> Ceiling:
    """Compile and make ready one microbenchmark for a current `cuda.core.Device`.

    Raises ValueError for an unknown variant.
    """
    require(variant in VARIANTS, f"{ROOM} has no {variant!r}: choose one of {', '.join(VARIANTS)}")
    return _BIND[variant](device, np.random.default_rng(seed))


def _ready(variant, device, grid, arguments, output, keep, threads=THREADS) -> Launch:
    from cuda.core import LaunchConfig

    (entry,) = VARIANTS[variant].entries
    kernel = jit.load(jit.compile_cubin(VARIANTS[variant].source, entry, jit.arch_of(device)))
    step = (kernel, LaunchConfig(grid=grid, block=threads), arguments)
    return Launch(variant, [step], output, keep=keep)


def _blocks(device) -> int:
    return BLOCKS_PER_SM * device.properties.multiprocessor_count


def _bind_fma(device, rng) -> Ceiling:
    import cupy

    threads = _blocks(device) * THREADS
    a = cupy.asarray(rng.uniform(0.1, 0.9, threads).astype(np.float32))
    b = cupy.asarray(rng.uniform(0.1, 0.9, threads).astype(np.float32))
    out = cupy.empty(threads, cupy.float32)
    arguments = (np.int32(FMA_ITERATIONS), a.data.ptr, b.data.ptr, out.data.ptr)
    expected = b.astype(np.float64) / (1 - a.astype(np.float64))
    bound = _ready("fma", device, _blocks(device), arguments, out, (a, b))
    return Ceiling(bound, 2 * threads * FMA_CHAINS * FMA_ITERATIONS, 0, expected)


def _bind_copy(device, rng) -> Ceiling:
    import cupy

    block = 16 * COPY_THREADS
    # A quarter of a small card's free memory at most, for each of the two buffers.
    grid = min(COPY_BYTES, cupy.cuda.runtime.memGetInfo()[0] // 4) // block
    words = cupy.random.RandomState(int(rng.integers(2**31))).rand(
        grid * block // 4, dtype=np.float32
    )
    out = cupy.empty_like(words)
    bound = _ready(
        "copy", device, grid, (words.data.ptr, out.data.ptr), out, (words,), COPY_THREADS
    )
    return Ceiling(bound, 0, 2 * words.nbytes, words)


def _bind_l2_read(device, rng) -> Ceiling:
    import cupy

    values = cupy.asarray(rng.random(L2_BYTES // 4, np.float32))
    out = cupy.empty(_blocks(device) * THREADS, cupy.float32)
    arguments = (np.int32(values.size // 4), np.int32(L2_ROUNDS), values.data.ptr, out.data.ptr)
    # Thread t of a block sums the float4 values t, t + THREADS, ...: the same in every block.
    per_thread = values.astype(np.float64).reshape(-1, THREADS, 4).sum(axis=(0, 2)) * L2_ROUNDS
    bound = _ready("l2_read", device, _blocks(device), arguments, out, (values,))
    work = values.nbytes * L2_ROUNDS * _blocks(device)
    return Ceiling(bound, 0, work, cupy.tile(per_thread, _blocks(device)))


def _bind_shared_read(device, rng) -> Ceiling:
    import cupy

    values = cupy.asarray(rng.random(SHARED_WORDS, np.float32))
    threads = _blocks(device) * THREADS
    out = cupy.empty(threads, cupy.float32)
    arguments = (np.int32(SHARED_ROUNDS), values.data.ptr, out.data.ptr)
    loads = SHARED_ROUNDS * SHARED_UNROLL
    laps = (
        SHARED_WORDS // 4 // THREADS
    )  # a thread comes back to its first value after so many loads
    fours = values.astype(np.float64).reshape(laps, THREADS, 4).sum(axis=(0, 2)) * (loads / laps)
    bound = _ready("shared_read", device, _blocks(device), arguments, out, (values,))
    return Ceiling(bound, 0, 16 * loads * threads, cupy.tile(fours, _blocks(device)))


_BIND = {
    "fma": _bind_fma,
    "copy": _bind_copy,
    "l2_read": _bind_l2_read,
    "shared_read": _bind_shared_read,
}
