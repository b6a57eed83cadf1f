"""Compressed Sparse Row (CSR).

             k = 5                    row_ptr  0   2   2   5   6        m + 1 offsets
       . a . . b                      col_idx  1   4   0   2   3   1    nnz columns
   m   . . . . .                      val      a   b   c   d   e   f    nnz values
   =   c . d e .
   4   . f . . .      row i owns the entries row_ptr[i] ... row_ptr[i + 1] - 1

Within a row the columns may come in any order and may repeat; repeated entries add up. The
generator of casperSPARSE draws columns independently, so its matrices have both properties.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..contract import require, require_whole
from . import compress, half
from .arrays import (  # noqa: F401 (callers move matrices by it)
    Arrays,
    array_module,
    require_arrays,
    require_known,
    require_none,
    to_device,
    to_host,
)

INT32_MAX = 2**31 - 1
DTYPES = (*half.DTYPES, "float32")  #: of what blocks and windows store


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
        """Return the number of stored values."""
        return int(self.val.shape[0])


def validate(a: Csr) -> Csr:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    if a.facts and a.xp is not np:  # by a look at these arrays
        return a
    require_sizes(a.m, a.k)
    indices = {"row_ptr": (np.int32, ("m + 1",)), "col_idx": (np.int32, ("nnz",))}
    require_arrays("CSR", a, indices | {"val": (np.float32, ("nnz",))})
    require_lengths(a.m, a.row_ptr.shape[0], a.col_idx.shape[0], a.val.shape[0])
    if a.xp is not np:
        from . import intake

        return intake.checked(a)
    require_right(a.row_ptr, a.col_idx, a.nnz, a.k)
    return a


def require_right(row_ptr, col_idx, nnz: int, k: int) -> None:
    """Raise ValueError, one sentence, where what CSR's indices say is wrong; on the host."""
    ends = f"there are {nnz} column indices and values: all must agree"
    require_indices("CSR", {"row_ptr": row_ptr, "col_idx": col_idx}, nnz, ends, k)


def require_sizes(m, k, format: str = "CSR") -> tuple[int, int]:
    """(m, k) as Python's integers; ValueError, one sentence, unless they are sizes."""
    sizes = (("m", m), ("k", k))
    m, k = (require_whole(f"{format} size {name}", x, 0, INT32_MAX, "2^31 - 1") for name, x in sizes)
    return m, k


def require_lengths(m: int, offsets: int, columns: int, values: int) -> None:
    """Raise ValueError unless arrays of these lengths may be a CSR matrix of m rows."""
    require(offsets == m + 1, f"CSR row_ptr has {offsets} entries, but m = {m} rows need {m + 1}")
    require(columns == values, f"CSR has {columns} column indices, but {values} values: both must agree")
    require(values <= INT32_MAX, f"A has {values} non-zeros, but row offsets have 32 bits: split it by rows")


def require_entries(count: int) -> None:
    """Raise ValueError where row offsets of 32 bits do not count the entries of CSR."""
    require(count <= INT32_MAX, f"{count} non-zeros do not fit 32-bit row offsets: split the matrix by rows")


def require_indices(format: str, arrays: dict, end: int, ends: str, within: int, what: str = "columns") -> None:
    """Raise ValueError, one sentence, for pointers or indices of a compressed format that are wrong; on the host.

    arrays: {name: pointers, name: indices}. end: what pointers end at. ends: the sentence on those that end elsewhere.
    within: an index is under it. what: indices count.
    """
    (pointers, ptr), (indices, index) = arrays.items()
    require_pointers(format, pointers, ptr, end, ends)
    require_within(format, indices, index, within, what)


def require_pointers(format: str, name: str, ptr, end: int, ends: str) -> None:
    """Raise ValueError, one sentence, unless pointers start at 0, never fall, and end at `end`."""
    require(ptr[0] == 0, f"{format} {name} starts at {int(ptr[0])}, but must start at 0")
    line = "column" if name == "col_ptr" else "row"
    require_none(
        ptr[1:] < ptr[:-1],
        lambda at: f"{format} {name} falls from {ptr[at]} to {ptr[at + 1]} at {line} {at}, but must never fall",
    )
    require(ptr[-1] == end, f"{format} {name} ends at {int(ptr[-1])}, but {ends}")


def require_within(format: str, name: str, index, count: int, what: str) -> None:
    """Raise ValueError, one sentence, unless indices are 0 to count - 1."""
    require_none(
        (index < 0) | (index >= count),
        lambda at: f"{format} {name}[{at}] is {index[at]}, outside the {what} 0 to {count - 1}",
    )


def narrowed(format: str, name: str, index, copy: bool = True):
    """Return indices as int32, or ValueError, one sentence: cut off, 2^32 would be column 0. NumPy or CuPy.

    copy: also of what is int32 already.
    """
    if index.dtype.itemsize >= 4 and index.dtype != np.int32 and index.shape[0]:
        low, high = int(index.min()), int(index.max())
        if low < -INT32_MAX or high > INT32_MAX:
            wrong = high if high > INT32_MAX else low
            entry = int((index == index.dtype.type(wrong)).argmax())
            raise ValueError(
                f"{format} {name}[{entry}] is {wrong}, but indices have 32 bits here: make the matrix smaller, or "
                "split it"
            )
    return index.astype(np.int32, copy=copy)


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
    """Return the same matrix as `scipy.sparse.csr_array` on the host, duplicates and order kept.

    It shares the arrays of `a`: copy it before an operation that sorts or sums in place.
    """
    from scipy.sparse import csr_array

    return csr_array((a.val, a.col_idx, a.row_ptr), shape=(a.m, a.k))


def to_dense(a: Csr) -> np.ndarray:
    """m x k float32 array on the host; repeated entries are summed."""
    return to_scipy(a).toarray()


# ---------------------------------------------------------------- what other formats are made with


def rows(a: Csr):
    """Return the row of every entry: int64 (nnz,), where `a` lives."""
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
    """Return the values of an array, ascending, each once; NumPy or CuPy.

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


# ---------------------------------------------------------------- blocks and windows


@dataclass(frozen=True)
class Stored(Arrays):
    """What matrices of blocks and of windows have."""

    m: int
    k: int
    dtype: str  #: of `DTYPES`
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
    return a if isinstance(a, Csr) else from_scipy(a)


def storage(dtype: str) -> np.dtype:
    """Return what an element of `val` is."""
    return np.dtype(np.float32 if dtype == "float32" else np.uint16)


def nonzero(val):
    """bool: whether stored values are not 0, of either sign."""
    return val != 0 if val.dtype == np.float32 else val & 0x7FFF != 0


def count_nonzero(val) -> int:
    """How many stored values are not 0, of either sign; NumPy or CuPy, row-major."""
    return int(np.count_nonzero(nonzero(val))) if array_module(val) is np else compress.filled(val)


def csr_of(a: Stored, at, row, col) -> Csr:
    """Return some stored values on the host as `Csr`, columns ascending.

    at, row, col: their places in val, rows and columns, int64, in any order.
    """
    require_entries(at.shape[0])
    place = row * a.k + col
    order = np.argsort(place)
    kept = half.from_bits(a.val.reshape(-1)[at[order]], a.dtype)
    return Csr(a.m, a.k, offsets(place[order], a.m, a.k), col[order].astype(np.int32), kept)


def require_layout(name: str, a: Stored, shape: tuple[str, ...]) -> None:
    """Raise ValueError unless dtype and sizes are some, and the arrays fit them; shape: of val, in words."""
    require_known(f"{name} dtype", a.dtype, DTYPES)
    require_sizes(a.m, a.k, name)
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
