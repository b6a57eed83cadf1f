"""The source's operands: row counts, prefix sum, LCG entries (casperSPARSE, section IV.B).

`host_operands` and `device_operands` make the same bits, the one with NumPy, the other with the
kernels of `generate.cu`.
"""

import math
from pathlib import Path

import numpy as np

from .. import jit
from ..contract import Operands, require, require_seed, require_whole
from ..formats import csr
from ..lazy import cupy

SOURCE = Path(__file__).with_name("generate.cu")
ENTRIES = ("row_counts", "sparse_entries", "dense")
THREADS = 256
_PANEL = 1 << 24  # elements that NumPy makes at a time, to bound its temporaries


def row_count_range(k: int, density: float) -> tuple[int, int]:
    """Least and most non-zeros of a row: [K·S/200, K·S/100], S = 100·density (Eq. 3)."""
    # The tolerance keeps 0.05 * 1000 at 50 although the product is 50.000000000000004 or 49.99….
    high = math.floor(k * density + 1e-6)
    low = math.floor(k * density / 2 + 1e-6)
    return low, high


def row_counts(m: int, k: int, density: float, seed: int) -> np.ndarray:
    """Non-zeros of each row: int32 (m,)."""
    low, high = row_count_range(k, density)
    return (low + _below(_random(seed, 0, np.arange(m, dtype=np.uint32)), high - low + 1)).astype(np.int32)


def host_operands(m: int, n: int, k: int, density: float, seed: int) -> Operands:
    """Return A as CSR and B (k, n) float32, made with NumPy."""
    row_ptr = np.append(0, np.cumsum(row_counts(m, k, density, seed), dtype=np.int64))
    require_int32(int(row_ptr[-1]))
    entries = np.arange(row_ptr[-1], dtype=np.uint32)
    a = csr.Csr(
        m,
        k,
        row_ptr.astype(np.int32),
        _below(_random(seed, 1, entries), k).astype(np.int32),
        _unit(seed, 2, entries),
    )
    return Operands(a, host_dense(k, n, seed))


def host_dense(k: int, n: int, seed: int) -> np.ndarray:
    """B (k, n) float32, uniform in (0, 1)."""
    flat = np.empty(k * n, np.float32)
    for start in range(0, flat.size, _PANEL):
        stop = min(start + _PANEL, flat.size)
        flat[start:stop] = _unit(seed, 3, np.arange(start, stop, dtype=np.uint64).astype(np.uint32))
    return flat.reshape(k, n)


def device_operands(m: int, n: int, k: int, density: float, seed: int) -> Operands:
    """Return the same operands as CuPy arrays, and an output C (m, n) of unspecified content."""
    low, high = row_count_range(k, density)
    counts = cupy.empty(m, cupy.int32)
    _generate("row_counts", m, (np.int32(m), np.int32(low), np.int32(high), np.uint32(seed), counts))
    row_ptr = cupy.zeros(m + 1, cupy.int32)
    cupy.cumsum(counts, out=row_ptr[1:])
    nnz = int(row_ptr[-1])
    col_idx, val = cupy.empty(nnz, cupy.int32), cupy.empty(nnz, cupy.float32)
    _generate("sparse_entries", nnz, (np.int32(nnz), np.int32(k), np.uint32(seed), col_idx, val))
    return Operands(
        csr.Csr(m, k, row_ptr, col_idx, val),
        device_dense(k, n, seed),
        cupy.empty((m, n), cupy.float32),
    )


def device_dense(k: int, n: int, seed: int):
    """B (k, n) float32 as a CuPy array, the same bits as `host_dense`."""
    b = cupy.empty((k, n), cupy.float32)
    _generate("dense", k * n, (np.uint64(k * n), np.uint32(seed), b))
    return b


def validate(m: int, n: int, k: int, density: float, seed: int) -> None:
    """Raise ValueError where the sizes make no problem; one sentence that names the value."""
    for name, value in (("m", m), ("n", n), ("k", k)):
        require_whole(f"size {name}", value, 1, csr.INT32_MAX, "2^31 - 1")
    require(
        isinstance(density, (float, int)) and 0 <= density <= 1,
        f"density is {density!r}, but must be a share from 0 to 1 (the source's S over 100)",
    )
    require_seed(seed)


def _generate(entry: str, size: int, arguments: tuple) -> None:
    if size == 0:
        return
    raw = tuple(a.data.ptr if isinstance(a, cupy.ndarray) else a for a in arguments)
    jit.run_on_cupy_stream(SOURCE, entry, size, THREADS, *raw)


def require_int32(nnz: int) -> None:
    """Raise ValueError where the non-zeros are too many for CSR with 32-bit offsets."""
    require(
        nnz <= csr.INT32_MAX,
        f"{nnz} non-zeros do not fit 32-bit row offsets: lower m, k or the density",
    )


# The lines below mirror the device functions of generate.cu one for one.


def _lcg(x: np.ndarray) -> np.ndarray:
    return x * np.uint32(1664525) + np.uint32(1013904223)


def _random(seed: int, stream: int, index: np.ndarray) -> np.ndarray:
    key = np.uint32((seed * 0x9E3779B9 + stream * 0x85EBCA6B) & 0xFFFFFFFF)
    x = _lcg(index ^ key)
    x = _lcg(x ^ (x >> np.uint32(16)))
    x = _lcg(x ^ (x >> np.uint32(15)))
    return x ^ (x >> np.uint32(16))


def _below(x: np.ndarray, bound: int) -> np.ndarray:
    return ((x.astype(np.uint64) * np.uint64(bound)) >> np.uint64(32)).astype(np.uint32)


def _unit(seed: int, stream: int, index: np.ndarray) -> np.ndarray:
    steps = (_random(seed, stream, index) >> np.uint32(9)).astype(np.float32)
    return (steps + np.float32(0.5)) * np.float32(2.0**-23)
