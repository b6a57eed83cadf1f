"""The system's problems: C (m, n) = A (m, k) · B (k, n), A in CSR, B and C row-major, all float32.

The source's operands: row counts, prefix sum, LCG entries (casperSPARSE, section IV.B). NumPy and the kernels of
generate.cu make the same bits.

The source names wide, square and tall matrices and a target S, and gives neither a size nor a value of S: the shapes
of its three sweeps (its section V) are ours, powers of two along the axis that a sweep varies.
"""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from .. import jit
from ..contract import Operands, Problem, require, require_seed, require_whole
from ..formats import csr
from ..lazy import cupy
from ..workspace import argument

SYSTEM = "casper_sparse"
FLOPS_DEF = "2·nnz·N"  # a multiply and an add for every non-zero and every column (source, Eq. 4)
SOURCE = Path(__file__).with_name("generate.cu")
THREADS = 256
_PANEL = 1 << 24  # elements that NumPy makes at a time, to bound its temporaries
#: Our values of the source's S, "the target sparsity percentage": per cent of K that a row holds at most.
S_PERCENT = (0.5, 1.0, 5.0)
#: preset -> experiment -> list of (m, n, k)
SIZES = {
    "full": {
        "wide": [(4096, n, 4096) for n in (512, 1024, 2048, 4096, 8192, 16384, 32768)],
        "square": [(size, size, size) for size in (1024, 2048, 4096, 8192, 16384)],
        "tall": [(2**e, 256, 2048) for e in range(15, 21)],
    },
    "kick": {
        "wide": [(4096, n, 4096) for n in (512, 2048)],
        "square": [(size, size, size) for size in (1024, 4096)],
        "tall": [(2**e, 256, 2048) for e in (15, 17)],
    },
}


def problem(m: int, n: int, k: int, density: float, seed: int = 0) -> Problem:
    """C (m, n) = A (m, k) · B (k, n) with the source's generators.

    density is the source's S / 100: a row holds between K·S/200 and K·S/100 non-zeros.
    Raises ValueError with one sentence for sizes that make no problem.
    """
    m, n, k, seed = _checked(m, n, k, density, seed)
    nnz = int(_row_ptr(np, m, k, density, seed)[-1])
    require(
        nnz <= csr.INT32_MAX,
        f"{nnz} non-zeros do not fit 32-bit row offsets: lower m, k or the density",
    )
    return _problem("", (m, n, k), nnz, density, seed, lambda xp: generated(xp, m, k, density, seed))


def problem_from_csr(a: csr.Csr, n: int, seed: int = 0, label: str = "") -> Problem:
    """C (m, n) = A · B for a given A on the host, with the source's generator of B; validates A."""
    csr.validate(a)
    # Repeated entries could make it more than 1, and no rows or no columns make it nothing.
    density = min(1.0, a.nnz / (a.m * a.k)) if a.m * a.k else 0.0
    _, n, _, seed = _checked(max(a.m, 1), n, max(a.k, 1), density, seed)
    return _problem(label, (a.m, n, a.k), a.nnz, density, seed, lambda xp: a if xp is np else csr.to_device(a))


def _checked(m, n, k, density, seed) -> tuple[int, ...]:
    """Return m, n, k and the seed as Python's integers: NumPy's would wrap in products."""
    sizes = [require_whole(f"size {x}", of, 1, csr.INT32_MAX, "2^31 - 1") for x, of in (("m", m), ("n", n), ("k", k))]
    require(
        isinstance(density, (float, int)) and 0 <= density <= 1,
        f"density is {density!r}, but must be a share from 0 to 1 (the source's S over 100)",
    )
    require_seed(seed)
    return *sizes, int(seed)


def _problem(label: str, sizes: tuple[int, int, int], nnz: int, density: float, seed: int, make_a: Callable) -> Problem:
    """sizes: m, n, k. make_a: A of NumPy or CuPy."""
    m, n, k = sizes

    def operands(xp) -> Operands:
        return Operands(make_a(xp), dense(xp, k, n, seed), None if xp is np else xp.empty((m, n), xp.float32))

    return Problem(
        room=SYSTEM,
        label=label,
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=density,
        seed=seed,
        useful_flops=2 * nnz * n,
        flops_def=FLOPS_DEF,
        least_bytes=8 * nnz + 4 * (m + 1) + 4 * k * n + 4 * m * n,
        # The published kernel reads its row of A again for each tile of 128 columns.
        requested_bytes=8 * nnz * math.ceil(n / 128) + 8 * m + 4 * nnz * n + 4 * m * n,
        make_host=lambda: operands(np),
        make_device=lambda: operands(cupy),
    )


# ---------------------------------------------------------------- the generators


def generated(xp, m: int, k: int, density: float, seed: int) -> csr.Csr:
    """Return A of NumPy or CuPy (`xp`), the same bits."""
    row_ptr = _row_ptr(xp, m, k, density, seed).astype(xp.int32)
    nnz = int(row_ptr[-1])
    col_idx, val = xp.empty(nnz, xp.int32), xp.empty(nnz, xp.float32)
    _generate(xp, "sparse_entries", np.int32(nnz), np.int32(k), np.uint32(seed), col_idx, val)
    return csr.Csr(m, k, row_ptr, col_idx, val)


def dense(xp, k: int, n: int, seed: int):
    """B (k, n) float32 of NumPy or CuPy (`xp`), uniform in (0, 1), the same bits."""
    b = xp.empty((k, n), xp.float32)
    _generate(xp, "dense", np.uint64(k * n), np.uint32(seed), b)
    return b


def _row_ptr(xp, m: int, k: int, density: float, seed: int):
    # From K·S/200 to K·S/100, S = 100·density (Eq. 3). The tolerance keeps 0.05 * 1000 at 50 although the product is
    # 50.000000000000004 or 49.99….
    low, high = (np.int32(math.floor(k * density / of + 1e-6)) for of in (2, 1))
    counts = xp.empty(m, xp.int32)
    _generate(xp, "row_counts", np.int32(m), low, high, np.uint32(seed), counts)
    row_ptr = xp.zeros(m + 1, xp.int64)
    row_ptr[1:] = xp.cumsum(counts, dtype=xp.int64)
    return row_ptr


def _generate(xp, entry: str, size: np.integer, *arguments) -> None:
    """Fill arrays, the last arguments, by NumPy, or by a kernel of generate.cu with a thread for each of `size`."""
    if xp is np:
        ON_HOST[entry](size, *arguments)
    elif size:
        jit.run_on_cupy_stream(SOURCE, entry, int(size), THREADS, size, *map(argument, arguments))


# The lines below mirror generate.cu one for one.


def _lcg(x: np.ndarray) -> np.ndarray:
    return x * np.uint32(1664525) + np.uint32(1013904223)


def _random(seed: int | np.uint32, stream: int, index: np.ndarray) -> np.ndarray:
    key = np.uint32((int(seed) * 0x9E3779B9 + stream * 0x85EBCA6B) & 0xFFFFFFFF)
    x = _lcg(index ^ key)
    x = _lcg(x ^ (x >> np.uint32(16)))
    x = _lcg(x ^ (x >> np.uint32(15)))
    return x ^ (x >> np.uint32(16))


def _below(x: np.ndarray, bound: int) -> np.ndarray:
    return ((x.astype(np.uint64) * np.uint64(bound)) >> np.uint64(32)).astype(np.uint32)


def _unit(seed: int | np.uint32, stream: int, index: np.ndarray) -> np.ndarray:
    steps = (_random(seed, stream, index) >> np.uint32(9)).astype(np.float32)
    return (steps + np.float32(0.5)) * np.float32(2.0**-23)


def _row_counts(m, low, high, seed, counts: np.ndarray) -> None:
    counts[:] = low + _below(_random(seed, 0, np.arange(m, dtype=np.uint32)), high - low + 1)


def _sparse_entries(nnz, k, seed, col_idx: np.ndarray, val: np.ndarray) -> None:
    entries = np.arange(nnz, dtype=np.uint32)
    col_idx[:] = _below(_random(seed, 1, entries), k)
    val[:] = _unit(seed, 2, entries)


def _dense(size, seed, b: np.ndarray) -> None:
    for start in range(0, int(size), _PANEL):
        stop = min(start + _PANEL, int(size))
        b.reshape(-1)[start:stop] = _unit(seed, 3, np.arange(start, stop, dtype=np.uint64).astype(np.uint32))


ON_HOST: dict[str, Callable] = {"row_counts": _row_counts, "sparse_entries": _sparse_entries, "dense": _dense}


def sweeps(preset: str) -> dict[str, list[dict]]:
    """experiment -> shapes as keyword arguments of `problem`: m, n, k and density = S / 100.

    preset: "full" (for Figs. 4-6 of the source, at sizes of ours) or "kick" (two sizes of each); else ValueError.
    """
    require(preset in SIZES, f"preset is {preset!r}, but must be 'full' or 'kick'")
    return {
        experiment: [{"m": m, "n": n, "k": k, "density": s / 100} for s in S_PERCENT for m, n, k in shapes]
        for experiment, shapes in SIZES[preset].items()
    }
