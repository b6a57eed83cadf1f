"""Compressed Sparse Row (CSR).

             k = 5                    row_ptr  0   2   2   5   6        m + 1 offsets
       . a . . b                      col_idx  1   4   0   2   3   1    nnz columns
   m   . . . . .                      val      a   b   c   d   e   f    nnz values
   =   c . d e .
   4   . f . . .      row i owns the entries row_ptr[i] ... row_ptr[i + 1] - 1

Within a row the columns may come in any order and may repeat; repeated entries add up. The
generator of casperSPARSE draws columns independently, so its matrices have both properties.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..contract import require
from .arrays import Arrays, array_module, require_contiguous, require_one_side
from .arrays import to_device as to_device
from .arrays import to_host as to_host

INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Csr(Arrays):
    """A sparse m x k matrix; the arrays are NumPy's or CuPy's, all on one side.

    row_ptr: int32 (m + 1,); col_idx: int32 (nnz,); val: float32 (nnz,).
    """

    m: int
    k: int
    row_ptr: Any
    col_idx: Any
    val: Any
    #: What `intake` found when it looked at arrays on a GPU, for whoever plans with this very object.
    facts: Any = field(default=None, compare=False, repr=False)

    @property
    def nnz(self) -> int:
        return int(self.val.shape[0])


def validate(a: Csr) -> Csr:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    if a.facts and a.xp is not np:  # by a look at these arrays
        return a
    require_sizes(a.m, a.k)
    require_one_side("CSR", {name: getattr(a, name) for name in ("row_ptr", "col_idx", "val")})
    for name, dtype in (("row_ptr", np.int32), ("col_idx", np.int32), ("val", np.float32)):
        array = getattr(a, name)
        require(
            array.dtype == dtype and array.ndim == 1,
            f"CSR {name} is {array.ndim}-dimensional {array.dtype}, but must be 1-dimensional {np.dtype(dtype).name}",
        )
        require_contiguous(f"CSR {name}", array, "contiguous")
    require_lengths(a.m, a.row_ptr.shape[0], a.col_idx.shape[0], a.val.shape[0])
    if a.xp is not np:
        from . import intake

        return intake.checked(a)
    require_offsets("CSR", a.row_ptr)
    require(int(a.row_ptr[-1]) == a.nnz, ends_elsewhere(int(a.row_ptr[-1]), a.nnz))
    require_columns("CSR", a.col_idx, a.k)
    return a


def require_sizes(m, k, format: str = "CSR") -> tuple[int, int]:
    """(m, k) as Python's integers, because NumPy's would wrap in products; ValueError unless they are sizes."""
    for name, value in (("m", m), ("k", k)):
        require(
            isinstance(value, (int, np.integer)) and 0 <= value <= INT32_MAX,
            f"{format} size {name} is {value!r}, but it must be an integer from 0 to 2^31 - 1",
        )
    return int(m), int(k)


def require_lengths(m: int, offsets: int, columns: int, values: int) -> None:
    """Raise ValueError unless arrays of these lengths may be a CSR matrix of m rows."""
    require(offsets == m + 1, f"CSR row_ptr has {offsets} entries, but m = {m} rows need {m + 1}")
    require(columns == values, f"CSR has {columns} column indices, but {values} values: both must agree")
    require(values <= INT32_MAX, f"A has {values} non-zeros, but row offsets have 32 bits: split it by rows")


def require_entries(count: int) -> None:
    """Raise ValueError where row offsets of 32 bits do not count the entries of CSR."""
    require(count <= INT32_MAX, f"{count} non-zeros do not fit 32-bit row offsets: split the matrix by rows")


# ---- what is wrong with indices, for hosts and GPUs


def starts_elsewhere(format: str, begin: int, name: str = "row_ptr") -> str:
    """The sentence on pointers that start elsewhere."""
    return f"{format} {name} starts at {begin}, but must start at 0"


def ends_elsewhere(end: int, nnz: int) -> str:
    """The sentence on pointers that end elsewhere."""
    return f"CSR row_ptr ends at {end}, but there are {nnz} column indices and values: all must agree"


def require_columns(format: str, col_idx, count: int, what: str = "columns", name: str = "col_idx") -> None:
    """Raise ValueError, one sentence, unless indices are 0 to count - 1; NumPy or CuPy. name: theirs."""
    # Two numbers, since of a part that fills a GPU's memory a flag for each entry is too much.
    if col_idx.shape[0] and not 0 <= int(col_idx.min()) <= int(col_idx.max()) < count:
        entry = int(((col_idx < 0) | (col_idx >= count)).argmax())
        raise ValueError(outside(format, name, entry, int(col_idx[entry]), what, count))


def outside(format: str, name: str, at: int, index: int, what: str, count: int) -> str:
    """The sentence on an index that is none of 0 to count - 1."""
    return f"{format} {name}[{at}] is {index}, outside the {what} 0 to {count - 1}"


def too_wide(format: str, name: str, at: int, index: int) -> str:
    """The sentence on an index of more than 32 bits."""
    return f"{format} {name}[{at}] is {index}, but indices have 32 bits here: make the matrix smaller, or split it"


def falls(format: str, name: str, at: int, high: int, low: int) -> str:
    """The sentence on pointers that fall."""
    of = "column" if name.startswith("col") else "row"
    return f"{format} {name} falls from {high} to {low} at {of} {at}, but must never fall"


def narrowed(format: str, name: str, index, copy: bool = True):
    """Indices as int32, or ValueError, one sentence: cut off, 2^32 would be column 0. NumPy or CuPy.

    copy: also of what is int32 already.
    """
    if index.dtype.itemsize >= 4 and index.dtype != np.int32 and index.shape[0]:
        low, high = int(index.min()), int(index.max())
        if low < -INT32_MAX or high > INT32_MAX:
            wrong = high if high > INT32_MAX else low
            entry = int((index == index.dtype.type(wrong)).argmax())
            raise ValueError(too_wide(format, name, entry, wrong))
    return index.astype(np.int32, copy=copy)


def require_offsets(format: str, row_ptr, name: str = "row_ptr") -> None:
    """Raise ValueError, one sentence, unless offsets start at 0 and never fall; NumPy or CuPy. name: theirs."""
    require(int(row_ptr[0]) == 0, starts_elsewhere(format, int(row_ptr[0]), name))
    falling = row_ptr[1:] < row_ptr[:-1]
    if bool(falling.any()):
        row = int(falling.argmax())
        raise ValueError(falls(format, name, row, int(row_ptr[row]), int(row_ptr[row + 1])))


def from_scipy(matrix) -> Csr:
    """Any SciPy sparse array to CSR with int32 indices and float32 values; validates, before it is converted, too.

    Raises ValueError where the matrix is not 2-dimensional, too large for int32 or malformed.
    """
    from . import foreign

    require(matrix.ndim == 2, f"a CSR matrix has 2 dimensions, but the given array has {matrix.ndim}")
    require(not np.iscomplexobj(matrix), f"a CSR matrix is real here, but the given array is {matrix.dtype}")
    row_ptr, col_idx, val = foreign.csr_arrays(matrix)
    require_entries(val.shape[0])
    row_ptr, col_idx = narrowed("CSR", "row_ptr", row_ptr), narrowed("CSR", "col_idx", col_idx)
    m, k = map(int, matrix.shape)
    return validate(Csr(m, k, row_ptr, col_idx, val.astype(np.float32)))


def to_scipy(a: Csr):
    """The same matrix as `scipy.sparse.csr_array` on the host, duplicates and order kept.

    It shares the arrays of `a`: copy it before an operation that sorts or sums in place.
    """
    from scipy.sparse import csr_array

    return csr_array((a.val, a.col_idx, a.row_ptr), shape=(a.m, a.k))


def to_dense(a: Csr) -> np.ndarray:
    """m x k float32 array on the host; repeated entries are summed."""
    dense = np.zeros((a.m, a.k), np.float32)
    rows = np.repeat(np.arange(a.m), np.diff(a.row_ptr))
    np.add.at(dense, (rows, a.col_idx), a.val)
    return dense


# ---------------------------------------------------------------- what other formats are made with


def rows(a: Csr):
    """The row of every entry: int64 (nnz,), where `a` lives."""
    return owners(a.row_ptr, a.nnz)


def owners(row_ptr, size: int):
    """For each of `size` entries the row that owns it: int64 (size,), NumPy or CuPy."""
    xp = array_module(row_ptr)
    if size == 0:
        return xp.zeros(0, xp.int64)
    entries = xp.arange(size, dtype=row_ptr.dtype)
    return xp.searchsorted(row_ptr[1:], entries, side="right").astype(xp.int64)


def offsets(place, rows: int, columns: int):
    """int32 (rows + 1,): where each row begins; place: int64, ascending, row · columns + column."""
    xp = array_module(place)
    if place.shape[0] == 0:
        return xp.zeros(rows + 1, xp.int32)
    begin = xp.arange(rows + 1, dtype=xp.int64) * columns
    return xp.searchsorted(place, begin).astype(xp.int32)


def changes(x):
    """bool: where a value differs from the one before it, the first one included; x is not empty."""
    xp = array_module(x)
    return xp.concatenate((xp.ones(1, bool), x[1:] != x[:-1]))


def distinct(x):
    """The values of an array, ascending, each once; NumPy or CuPy.

    By a sort, since from 2.3 on NumPy's `unique` hashes, which takes a hundred times as long for millions of integers.
    """
    if x.shape[0] == 0:
        return x
    x = array_module(x).sort(x)
    return x[changes(x)]


def sorted_sums(key, val):
    """(keys, values): ascending, each key once, with the sum of its values in float64, as float32.

    key: int64, val: float32, of one length over 0; NumPy or CuPy.
    """
    xp = array_module(key)
    order = xp.argsort(key)
    key, val = key[order], val[order]
    first = changes(key)
    if bool(first.all()):
        return key, val
    sums = xp.bincount(xp.cumsum(first, dtype=xp.int64) - 1, weights=val.astype(xp.float64))
    return key[first], sums.astype(xp.float32)
