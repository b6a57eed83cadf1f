"""The system's problems: C (m, n) = A (m, k) · B (k, n), B vector-wise N:M along k.

A and C are column-major (m contiguous), as the authors' kernels read A, and as the system
nm_cuda_core has both. `host_operands` and `device_operands` make the same bits, the one with NumPy,
the other with the kernels of `generate.cu`.
"""

from collections.abc import Callable
from math import ceil
from pathlib import Path

import numpy as np

from .. import formats, jit, splitmix
from ..contract import Operands, Problem, require, require_seed, require_whole
from ..formats import nm
from ..formats.half import Half, array_module
from ..formats.nm import INT32_MAX, Nm

SYSTEM = "nm_spmm"
FLOPS_DEF = "2·M·N·W"  # a multiply and an add for every stored value and every row of A
WINDOW = 32  #: rows of a group and columns of a vector in the paper's patterns
TILE = (64, 128)  #: rows and columns of C in a block of the paper's large kernel (Table I)
#: dtype -> bits of a float32 that its values use; the products of the last two are exact.
MASKS = {"float32": 0xFFFFFFFF, "tf32": 0xFFFFE000, "bfloat16": 0xFFFF0000}
SOURCE = Path(__file__).with_name("generate.cu")
#: What generate.cu calls a dtype.
_ENUM = {"float32": "FP32", "tf32": "TF32", "bfloat16": "BF16"}
ENTRIES = (
    *(f"values<{dtype}, float>" for dtype in _ENUM.values()),
    "values<BF16, unsigned short>",
    "pattern",
)
THREADS = 256
_A, _B, _PATTERN = range(3)  # streams
_PANEL = 1 << 22  # numbers that NumPy makes at a time, to bound its temporaries


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
    _sizes(m, n, k, seed)
    require_whole("vector", vector, 1, INT32_MAX, "2^31 - 1")
    _require_dtype(dtype)
    keep = nm.keep_of(density, group)
    m, n, k, seed, group, vector = map(int, (m, n, k, seed, group, vector))
    arguments = (m, n, k, keep, group, vector, seed, dtype)
    return _problem(
        _label(keep, group, vector, dtype),
        *arguments,
        lambda: host_operands(*arguments),
        lambda: device_operands(*arguments),
    )


def problem_from_nm(b: Nm, m: int, seed: int = 0, label: str = "", *, dtype: str = "float32") -> Problem:
    """C (m, n) = A (m, k) · B for a given B, on the host or the device, and A of `seed`.

    label: "" for the one that `problem` gives to the pattern. Raises ValueError with one sentence
    where B is malformed or has values that `dtype` does not hold exactly.
    """
    nm.validate(b)
    _sizes(m, b.n, b.k, seed)
    _require_dtype(dtype)
    xp = array_module(b.val)
    lost = ~np.uint32(MASKS[dtype])
    require(
        not lost or not bool((b.val.view(xp.uint32) & lost).any()),
        f"B has values that {dtype} does not hold exactly: round them first",
    )
    m, n, k, seed = map(int, (m, b.n, b.k, seed))

    def on_host() -> Operands:
        return Operands(host_dense(m, k, seed, dtype), formats.to_host(b))

    def on_device() -> Operands:
        return Operands(device_dense(m, k, seed, dtype), nm.to_device(b), _output(m, n, dtype))

    pattern = int(b.keep), int(b.group), int(b.vector)
    return _problem(label or _label(*pattern, dtype), m, n, k, *pattern, seed, dtype, on_host, on_device)


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
    import cupy

    q, w, real = _compressed(n, k, keep, group, vector)
    val = cupy.empty((w, n), cupy.float32)
    index = cupy.empty((w, q), cupy.int32)
    _fill(val, splitmix.key(seed, _B), dtype, real * n)
    jit.run_on_cupy_stream(
        SOURCE,
        "pattern",
        ceil(k / group) * q,
        THREADS,
        *map(np.int32, (k, q, keep, group)),
        np.uint64(splitmix.key(seed, _PATTERN)),
        index.data.ptr,
    )
    b = Nm(k, n, keep, group, vector, val, index)
    return Operands(device_dense(m, k, seed, dtype), b, _output(m, n, dtype))


def host_dense(m: int, k: int, seed: int, dtype: str):
    """Return A (m, k) of a seed, column-major: float32, for "bfloat16" a Half."""
    a = _values(splitmix.key(seed, _A), m * k, dtype)
    if dtype == "bfloat16":
        return Half(dtype, (a.view(np.uint32) >> 16).astype(np.uint16).reshape(k, m).T)
    return a.reshape(k, m).T


def device_dense(m: int, k: int, seed: int, dtype: str):
    """Return the same matrix as a CuPy array."""
    a = _output(m, k, dtype)
    array = a.bits if dtype == "bfloat16" else a
    _fill(array, splitmix.key(seed, _A), dtype, array.size)
    return a


def _fill(array, key: int, dtype: str, real: int) -> None:
    """Enqueue values for the first `real` elements in memory of a CuPy array, 0 for the others."""
    element = "float" if array.dtype == np.float32 else "unsigned short"
    jit.run_on_cupy_stream(
        SOURCE,
        f"values<{_ENUM[dtype]}, {element}>",
        array.size,
        THREADS,
        np.uint64(array.size),
        np.uint64(real),
        np.uint64(key),
        array.data.ptr,
    )


def _output(m: int, n: int, dtype: str):
    import cupy

    if dtype == "bfloat16":
        return Half(dtype, cupy.empty((m, n), cupy.uint16, order="F"))
    return cupy.empty((m, n), cupy.float32, order="F")


def _label(keep: int, group: int, vector: int, dtype: str) -> str:
    """Return what tells a problem from the system's usual ones, float32 in windows and vectors of 32."""
    pattern = [f"{keep}:{group}"] if group != WINDOW else []
    if vector != WINDOW:
        pattern.append("element-wise" if vector == 1 else f"vectors of {vector}")
    parts = [dtype] if dtype != "float32" else []
    return ", ".join(parts + [" ".join(pattern)] * bool(pattern))


def _require_dtype(dtype) -> None:
    require(dtype in MASKS, f"dtype is {dtype!r}, but the system's kernels take one of {', '.join(MASKS)}")


def require_float32(name: str, ops: Operands) -> None:
    """Raise ValueError unless B is N:M and A holds float32, which all kernels but tensor cores' take."""
    require(
        isinstance(ops.b, Nm) and getattr(ops.a, "dtype", None) == np.float32,
        f"{name} multiplies float32 by N:M, not {getattr(ops.a, 'dtype', '?')}: use bf16 or tf32",
    )


def _sizes(m, n, k, seed) -> None:
    for name, value in (("m", m), ("n", n), ("k", k)):
        require_whole(name, value, 1, INT32_MAX, "2^31 - 1")
    require_seed(seed)


def _compressed(n: int, k: int, keep: int, group: int, vector: int) -> tuple[int, int, int]:
    """Vectors of a row, compressed rows, and how many of them are not surplus."""
    w = ceil(k / group) * keep
    last = k - (k - 1) // group * group
    return ceil(n / vector), w, w - max(0, keep - last)


def _problem(
    label: str,
    m: int,
    n: int,
    k: int,
    keep: int,
    group: int,
    vector: int,
    seed: int,
    dtype: str,
    on_host: Callable[[], Operands],
    on_device: Callable[[], Operands],
) -> Problem:
    q, w, _ = _compressed(n, k, keep, group, vector)
    size = 2 if dtype == "bfloat16" else 4  # bytes; B's values too, which bind converts offline
    a, val, index, c = size * m * k, size * w * n, 4 * w * q, size * m * n
    rows, columns = (ceil(m / TILE[0]), ceil(n / TILE[1]))  # of blocks
    # Every block reads its rows of A and its columns of B; a vector may span several blocks.
    requested = columns * a + rows * (val + max(index, 4 * w * columns)) + c
    return Problem(
        room=SYSTEM,
        label=label,
        m=m,
        n=n,
        k=k,
        nnz=w * n,
        density=keep / group,
        seed=seed,
        useful_flops=2 * m * n * w,
        flops_def=FLOPS_DEF,
        least_bytes=a + val + index + c,
        requested_bytes=requested,
        make_host=on_host,
        make_device=on_device,
        limit=dtype if dtype == "tf32" else "",
    )


def _values(key: int, size: int, dtype: str) -> np.ndarray:
    """Return the first values of a stream, float32 (size,)."""
    made = np.empty(size, np.float32)
    for start in range(0, size, _PANEL):
        part = range(start, min(start + _PANEL, size))
        made[part.start : part.stop] = _value(splitmix.random_u32(key, splitmix.positions(part)), dtype)
    return made


# What is below mirrors a device function of generate.cu.


def _value(x: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "float32":
        steps = (x >> np.uint64(8)).astype(np.float32)
        return (steps + np.float32(1)) * np.float32(2.0**-24)
    made = splitmix.symmetric(x)
    return (made.view(np.uint32) & np.uint32(MASKS[dtype])).view(np.float32)
