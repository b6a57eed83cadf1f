"""What the formats of blocks and of windows share: values in float32 or as 16-bit patterns, and checks.

A matrix of theirs has m, k, dtype, row_ptr, col_idx, val and nnz; a check's sentence begins with the
name of the format, which is its first argument.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..contract import require
from . import compress, csr, eight, half
from .arrays import Arrays, array_module, require_arrays, require_known
from .csr import Csr

DTYPES = ("bfloat16", "float16", "float32")
#: dtype -> what rounds numbers to its bit patterns, and reads them.
PATTERNS: dict[str, Any] = dict.fromkeys(half.DTYPES, half) | dict.fromkeys(eight.DTYPES, eight)


@dataclass(frozen=True)
class Stored(Arrays):
    """What matrices of blocks and of windows have."""

    m: int
    k: int
    dtype: str  #: "bfloat16", "float16" or "float32"
    row_ptr: Any
    col_idx: Any
    val: Any
    nnz: int  #: non-zeros of the matrix that it was made from, padding not counted

    @property
    def fill_ratio(self) -> float:
        """Non-zeros over stored values; 0 where nothing is stored."""
        return self.nnz / self.val.size if self.val.size else 0.0


def as_csr(a) -> Csr:
    """Return `a` if it is a `Csr`, else a SciPy sparse array as one."""
    return a if isinstance(a, Csr) else csr.from_scipy(a)


def storage(dtype: str) -> np.dtype:
    """Return what an element of `val` is."""
    return np.dtype(np.float32 if dtype == "float32" else np.uint16)


def rounded(x, dtype: str):
    """Return a float32 array as `val` stores it."""
    return x if dtype == "float32" else PATTERNS[dtype].to_bits(x, dtype)


def numbers(val, dtype: str):
    """Return the float32 array that stored values stand for: exact."""
    return val if dtype == "float32" else PATTERNS[dtype].from_bits(val, dtype)


def nonzero(val):
    """bool: whether stored values are not 0, of either sign."""
    return val != 0 if val.dtype == np.float32 else val & 0x7FFF != 0


def csr_of(a, at, row, col) -> Csr:
    """Return some stored values on the host as `Csr`, columns ascending.

    at, row, col: their places in val, rows and columns, int64, in any order.
    """
    csr.require_entries(at.shape[0])
    place = row * a.k + col
    order = np.argsort(place)
    row_ptr = csr.offsets(place[order], a.m, a.k)
    kept = a.val.reshape(-1)[at[order]]
    return Csr(a.m, a.k, row_ptr, col[order].astype(np.int32), numbers(kept, a.dtype))


def count_nonzero(val) -> int:
    """How many stored values are not 0, of either sign; NumPy or CuPy, row-major."""
    if array_module(val) is np:
        return int(np.count_nonzero(nonzero(val)))
    return compress.filled(val)


def require_dtype(name: str, dtype) -> None:
    """Raise ValueError, one sentence, for a dtype that no value has."""
    require_known(f"{name} dtype", dtype, DTYPES)


def require_layout(name: str, a: Stored, shape: tuple[str, ...]) -> None:
    """Raise ValueError unless dtype and sizes are some, and the arrays fit them; shape: of val, in words."""
    require_dtype(name, a.dtype)
    csr.require_sizes(a.m, a.k, name)
    indices = {"row_ptr": (np.int32, ("rows + 1",)), "col_idx": (np.int32, ("columns",))}
    require_arrays(name, a, indices | {"val": (storage(a.dtype), shape)}, f" in a {a.dtype} matrix")


def require_counts(name: str, a: Stored, rows: int, what: str) -> None:
    """Raise ValueError unless there are pointers for `rows`, and nnz counts at most what is stored."""
    found = a.row_ptr.shape[0]
    require(found == rows + 1, f"{name} row_ptr has {found} entries, but {rows} {what} need {rows + 1}")
    require(
        isinstance(a.nnz, (int, np.integer)) and 0 <= a.nnz <= a.val.size,
        f"{name} nnz is {a.nnz!r}, but must be a whole number up to the {a.val.size} stored values",
    )
