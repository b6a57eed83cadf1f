"""The system's problems: C (m, n) = A (m, k) · B (k, n), B vector-wise N:M along k.

A and C are column-major (m contiguous), as the authors' kernels read A, and as the system
nm_cuda_core has both. `host_operands` and `device_operands` make the same bits, the one with NumPy,
the other with the kernels of `generate.cu`.
"""

from math import ceil
from pathlib import Path

import numpy as np

from .. import jit, splitmix
from ..contract import Operands, Problem, require, require_seed, require_whole
from ..formats import nm
from ..formats.half import Half
from ..formats.nm import INT32_MAX, Nm
from ..lazy import cupy

SYSTEM = "nm_spmm"
FLOPS_DEF = "2·M·N·W"  # a multiply and an add for every stored value and every row of A
WINDOW = 32  #: rows of a group and columns of a vector in the paper's patterns
TILE = (64, 128)  #: rows and columns of C in a block of the paper's large kernel (Table I)
#: dtype -> bits of a float32 that its values use; the products of the last two are exact.
MASKS = {"float32": 0xFFFFFFFF, "tf32": 0xFFFFE000, "bfloat16": 0xFFFF0000}
SOURCE = Path(__file__).with_name("generate.cu")
#: What generate.cu calls a dtype.
_ENUM = {"float32": "FP32", "tf32": "TF32", "bfloat16": "BF16"}
THREADS = 256
_A, _B, _PATTERN = range(3)  # streams


def problem(
    m: int,
    n: int,
    k: int,
    density: float = 0.5,
    seed: int = 0,
    *,
    group: int = WINDOW,
    vector: int = WINDOW,
    dtype: str = "float32",
) -> Problem:
    """C (m, n) = A (m, k) · B (k, n), B pruned to density·group of every `group` rows.

    Each vector of `vector` neighbouring columns draws its rows uniformly. dtype "float32": values
    uniform in (0, 1]. "tf32" (float32 arrays) and "bfloat16": uniform in (-1, 1), cut to what the
    dtype holds, never 0. For "bfloat16", A and C are `Half` with bits in Fortran order, and B's
    float32 values are ones that bfloat16 holds exactly. Sizes need not be multiples of anything.
    Raises ValueError with one sentence for what makes no problem.
    """
    for name, value in (("m", m), ("n", n), ("k", k), ("vector", vector)):
        require_whole(name, value, 1, INT32_MAX, "2^31 - 1")
    require_seed(seed)
    require(dtype in MASKS, f"dtype is {dtype!r}, but the system's kernels take one of {', '.join(MASKS)}")
    keep = nm.keep_of(density, group)
    m, n, k, seed, group, vector = map(int, (m, n, k, seed, group, vector))
    arguments = (m, n, k, keep, group, vector, seed, dtype)
    q, w, _ = _compressed(n, k, keep, group, vector)
    size = 2 if dtype == "bfloat16" else 4  # bytes; B's values too, which bind converts offline
    a, val, index, c = size * m * k, size * w * n, 4 * w * q, size * m * n
    rows, columns = (ceil(m / TILE[0]), ceil(n / TILE[1]))  # of blocks
    pattern = [f"{keep}:{group}"] * (group != WINDOW)
    pattern += ["element-wise" if vector == 1 else f"vectors of {vector}"] * (vector != WINDOW)
    return Problem(
        room=SYSTEM,
        label=", ".join(filter(None, (dtype * (dtype != "float32"), " ".join(pattern)))),
        m=m,
        n=n,
        k=k,
        nnz=w * n,
        density=keep / group,
        seed=seed,
        useful_flops=2 * m * n * w,
        flops_def=FLOPS_DEF,
        least_bytes=a + val + index + c,
        # Every block reads its rows of A and its columns of B; a vector may span several blocks.
        requested_bytes=columns * a + rows * (val + max(index, 4 * w * columns)) + c,
        make_host=lambda: host_operands(*arguments),
        make_device=lambda: device_operands(*arguments),
        limit=dtype if dtype == "tf32" else "",
    )


def host_operands(m: int, n: int, k: int, keep: int, group: int, vector: int, seed: int, dtype: str) -> Operands:
    """Return A, column-major, and B as Nm, made with NumPy."""
    q, w, real = _compressed(n, k, keep, group, vector)
    key = splitmix.key(seed, _PATTERN)

    def draw(groups: range, row: int, rows: int) -> np.ndarray:
        place = splitmix.positions(range(groups.start * q, groups.stop * q)) * np.uint64(group) + np.uint64(row)
        return (splitmix.random_u32(key, place) * np.uint64(rows - row) >> np.uint64(32)).reshape(-1, q)

    index = nm.sampled(k, keep, group, q, draw)
    val = np.zeros((w, n), np.float32)
    val[:real] = _values(splitmix.key(seed, _B), real * n, dtype).reshape(real, n)
    return Operands(host_dense(m, k, seed, dtype), Nm(k, n, keep, group, vector, val, index))


def device_operands(m: int, n: int, k: int, keep: int, group: int, vector: int, seed: int, dtype: str) -> Operands:
    """Return the same operands as CuPy arrays, and an output C (m, n) of unspecified content."""
    q, w, real = _compressed(n, k, keep, group, vector)
    index = cupy.empty((w, q), cupy.int32)
    given = *map(np.int32, (k, q, keep, group)), np.uint64(splitmix.key(seed, _PATTERN)), index.data.ptr
    jit.run_on_cupy_stream(SOURCE, "pattern", ceil(k / group) * q, THREADS, *given)
    val = _filled(cupy.empty((w, n), cupy.float32), splitmix.key(seed, _B), dtype, real * n)
    a, c = (
        cupy.empty(shape, np.uint16 if dtype == "bfloat16" else np.float32, order="F") for shape in ((m, k), (m, n))
    )
    _filled(a, splitmix.key(seed, _A), dtype, a.size)
    if dtype == "bfloat16":
        a, c = Half(dtype, a), Half(dtype, c)
    return Operands(a, Nm(k, n, keep, group, vector, val, index), c)


def host_dense(m: int, k: int, seed: int, dtype: str):
    """Return A (m, k) of a seed, column-major: float32, for "bfloat16" a Half."""
    a = _values(splitmix.key(seed, _A), m * k, dtype)
    if dtype == "bfloat16":
        return Half(dtype, (a.view(np.uint32) >> 16).astype(np.uint16).reshape(k, m).T)
    return a.reshape(k, m).T


def _filled(array, key: int, dtype: str, real: int):
    """Return a CuPy array, whose first `real` elements in memory get values, the others 0."""
    element = "float" if array.dtype == np.float32 else "unsigned short"
    given = np.uint64(array.size), np.uint64(real), np.uint64(key), array.data.ptr
    jit.run_on_cupy_stream(SOURCE, f"values<{_ENUM[dtype]}, {element}>", array.size, THREADS, *given)
    return array


def require_float32(name: str, ops: Operands) -> None:
    """Raise ValueError unless B is N:M and A holds float32, which all kernels but tensor cores' take."""
    require(
        isinstance(ops.b, Nm) and getattr(ops.a, "dtype", None) == np.float32,
        f"{name} multiplies float32 by N:M, not {getattr(ops.a, 'dtype', '?')}: use bf16 or tf32",
    )


def _compressed(n: int, k: int, keep: int, group: int, vector: int) -> tuple[int, int, int]:
    """Vectors of a row, compressed rows, and how many of them are not surplus."""
    w = ceil(k / group) * keep
    last = k - (k - 1) // group * group
    return ceil(n / vector), w, w - max(0, keep - last)


def _values(key: int, size: int, dtype: str) -> np.ndarray:
    """Return the first values of a stream, float32 (size,), as generate.cu makes them."""
    made = splitmix.uniform(key, size, "float32")
    if dtype == "float32":  # odd multiples of 2^-24 in (-1, 1) become multiples of it in (0, 1]
        return ((made + np.float64(1 + 2.0**-24)) / 2).astype(np.float32)
    return (made.view(np.uint32) & np.uint32(MASKS[dtype])).view(np.float32)
