"""What the formats of blocks and of windows share: values in float32 or as 16-bit patterns, and checks.

A matrix of theirs has m, k, dtype, row_ptr, col_idx, val and nnz; a check's sentence begins with the
name of the format, which is its first argument.
"""

from __future__ import annotations

import numpy as np

from . import checks, csr, half
from .csr import INT32_MAX, Csr

DTYPES = ("bfloat16", "float16", "float32")


def as_csr(a) -> Csr:
    """`a` if it is a `Csr`, else a SciPy sparse array as one."""
    return a if isinstance(a, Csr) else csr.from_scipy(a)


def storage(dtype: str) -> np.dtype:
    """What an element of `val` is."""
    return np.dtype(np.float32 if dtype == "float32" else np.uint16)


def rounded(x, dtype: str):
    """A float32 array as `val` stores it."""
    return x if dtype == "float32" else half.to_bits(x, dtype)


def numbers(val, dtype: str):
    """The float32 array that stored values stand for: exact."""
    return val if dtype == "float32" else half.from_bits(val, dtype)


def nonzero(val):
    """bool: whether stored values are not 0, of either sign."""
    return val != 0 if val.dtype == np.float32 else val & 0x7FFF != 0


def csr_of(a, at, row, col) -> Csr:
    """Some stored values on the host as `Csr`, columns ascending.

    at, row, col: their places in val, rows and columns, int64, in any order.
    """
    require_entries(at.shape[0])
    place = row * a.k + col
    order = np.argsort(place)
    row_ptr = csr.offsets(place[order], a.m, a.k)
    kept = a.val.reshape(-1)[at[order]]
    return Csr(a.m, a.k, row_ptr, col[order].astype(np.int32), numbers(kept, a.dtype))


def require_entries(count: int) -> None:
    """Raise ValueError where row offsets of 32 bits do not count the entries of CSR."""
    if count > INT32_MAX:
        raise ValueError(f"{count} non-zeros do not fit 32-bit row offsets: split the matrix by rows")


def count_nonzero(val) -> int:
    """How many stored values are not 0, of either sign; NumPy or CuPy, row-major."""
    if half.array_module(val) is np:
        return int(np.count_nonzero(nonzero(val)))
    from . import compress

    return compress.filled(val)


def fill_ratio(a) -> float:
    """Non-zeros over stored values; 0 where nothing is stored."""
    return a.nnz / a.val.size if a.val.size else 0.0


def require_dtype(name: str, dtype) -> None:
    """Raise ValueError, one sentence, for a dtype that no value has."""
    if dtype not in DTYPES:
        raise ValueError(f"{name} dtype is {dtype!r}, but must be one of {', '.join(DTYPES)}")


def require_sizes(name: str, m, k) -> tuple[int, int]:
    """(m, k) as Python's integers, because NumPy's would wrap in products; ValueError for no sizes."""
    for size, value in (("m", m), ("k", k)):
        if not isinstance(value, (int, np.integer)) or not 0 <= value <= INT32_MAX:
            raise ValueError(f"{name} size {size} is {value!r}, but it must be an integer from 0 to 2^31 - 1")
    return int(m), int(k)


def require_arrays(name: str, a, dimensions: int) -> None:
    """Raise ValueError unless row_ptr, col_idx and val, of so many dimensions, have their dtypes, on one side."""
    checks.require_arrays(name, {x: getattr(a, x) for x in ("row_ptr", "col_idx", "val")})
    for array, dtype, ndim in (
        ("row_ptr", np.dtype(np.int32), 1),
        ("col_idx", np.dtype(np.int32), 1),
        ("val", storage(a.dtype), dimensions),
    ):
        given = getattr(a, array)
        if given.dtype != dtype or given.ndim != ndim:
            raise ValueError(
                f"{name} {array} is {given.ndim}-dimensional {given.dtype}, but must be "
                f"{ndim}-dimensional {dtype.name} in a {a.dtype} matrix"
            )
        if not given.flags.c_contiguous:
            raise ValueError(f"{name} {array} is not row-major contiguous: copy it")


def require_nnz(name: str, a) -> None:
    """Raise ValueError unless nnz counts at most what is stored."""
    if not isinstance(a.nnz, (int, np.integer)) or not 0 <= a.nnz <= a.val.size:
        raise ValueError(f"{name} nnz is {a.nnz!r}, but must be a whole number up to the {a.val.size} stored values")
