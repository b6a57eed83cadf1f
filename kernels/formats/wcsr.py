"""Window Compressed Sparse Row (WCSR): rows in windows, and of each window the columns it has.

Windows of 2 rows padded to 2 columns here; the format takes powers of two from 1 to 64:

                k = 5
           a . . . b      window 0    row_ptr  0   4   6           windows + 1 offsets
       m   . . c . .                  col_idx  0   2   4  -1   1  -1     columns, ascending, then -1
       =   ---------
       3   . d . . .      window 1    val      a   0   b   0   d   0     window x columns: what the
                                               0   c   0   0   0   0     matrix has there

Each window's columns are padded with zeros to a multiple of `pad`, their index is -1. Where m is no
multiple of the window, the last one has rows of zeros below. The fill ratio is nnz / (window ·
columns), here 4 / 12. Values are float32 or, as bit patterns, bfloat16 or float16: see `half`.

AsyncSparse, section II-C and Fig. 2: windows of 64 rows, padded to 8 columns (section IV-A).
"""

from dataclasses import dataclass

import numpy as np

from ..contract import require
from . import arrays, compress, csr, half
from .arrays import require_known, require_none
from .csr import INT32_MAX, Stored

SIDES = (1, 2, 4, 8, 16, 32, 64)  #: rows that a window, and columns that its padding, may have


@dataclass(frozen=True)
class Wcsr(Stored):
    """A sparse m x k matrix; the arrays are NumPy's or CuPy's, all on one side.

    row_ptr: int32 (windows + 1,), counts columns; col_idx: int32 (columns,), -1 for padding; val:
    uint16 bit patterns of `dtype`, or float32, (window, columns) row-major.
    """

    window: int  #: rows
    pad: int  #: each window's columns are a multiple of it

    @property
    def windows(self) -> int:
        """Return the number of windows."""
        return -(-self.m // self.window)

    @property
    def columns(self) -> int:
        """Columns of all windows, padding included."""
        return int(self.val.shape[1])


def from_csr(a, *, window: int = 64, pad: int = 8, dtype: str = "bfloat16") -> Wcsr:
    """Return the windows of a `Csr`, on the side where it lives, or of a SciPy sparse array, on the host.

    Values are rounded to `dtype` once; repeated entries add up first. nnz counts the positions that
    are stored, also of a stored zero. Raises ValueError, one sentence, for another window, padding or
    dtype, and where columns pass 2^31 - 1.
    """
    _require_sides(window, pad)
    require_known("WCSR dtype", dtype, csr.DTYPES)
    a = csr.as_csr(a)
    xp, windows, element = a.xp, -(-a.m // window), csr.storage(dtype)
    if a.nnz == 0:
        nothing = xp.zeros(windows + 1, xp.int32), xp.zeros(0, xp.int32)
        return Wcsr(a.m, a.k, dtype, *nothing, xp.zeros((window, 0), element), 0, window, pad)
    row = csr.rows(a)
    # By window, then column, then row: a column of a window is a run.
    key = (row // window * a.k + a.col_idx) * window + row % window
    key, values = csr.sorted_sums(key, a.val)
    place = key // window
    first = csr.changes(place)
    found = place[first]
    unpadded = csr.offsets(found, windows, a.k).astype(xp.int64)
    count = unpadded[1:] - unpadded[:-1]
    row_ptr = xp.zeros(windows + 1, xp.int64)
    row_ptr[1:] = xp.cumsum(-(-count // pad) * pad)
    columns = int(row_ptr[-1])
    fits = columns <= INT32_MAX
    require(fits, f"{columns} columns of windows do not fit 32-bit offsets: split the matrix by rows")
    owner = found // a.k
    at = xp.arange(found.shape[0]) - unpadded[owner] + row_ptr[owner]
    col_idx = xp.full(columns, -1, xp.int32)
    col_idx[at] = (found % a.k).astype(xp.int32)
    val = xp.zeros((window, columns), element)
    val[key % window, at[xp.cumsum(first, dtype=xp.int64) - 1]] = half.to_bits(values, dtype)
    row_ptr = row_ptr.astype(xp.int32)
    return Wcsr(a.m, a.k, dtype, row_ptr, col_idx, val, int(key.shape[0]), window, pad)


def validate(a: Wcsr) -> Wcsr:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    _require_sides(a.window, a.pad)
    csr.require_layout("WCSR", a, ("window", "columns"))
    csr.require_counts("WCSR", a, a.windows, "windows")
    indices, stored = a.col_idx.shape[0], tuple(a.val.shape)
    ends = f"there are {indices} column indices and {stored} values: it must be {a.window} rows of as many"
    require(stored == (a.window, indices), f"WCSR row_ptr ends at {int(a.row_ptr[-1])}, but {ends}")
    sizes = *map(np.int64, (a.columns, a.m, a.k)), *map(np.int32, (a.window, a.pad))
    look = f"wcsr<{arrays.BITS[a.val.dtype.name]}>", 32 * a.windows, a.row_ptr, a.col_idx, a.val, *sizes
    return arrays.checked(a, look, lambda here: _require_right(here, ends))


def _require_right(a: Wcsr, ends: str) -> None:
    ptr, col = a.row_ptr, a.col_idx
    csr.require_pointers("WCSR", "row_ptr", ptr, a.columns, ends)
    require_none(
        ptr % a.pad != 0,
        lambda at: f"WCSR row_ptr[{at}] is {ptr[at]}, but must be a multiple of the padding, {a.pad}",
    )
    require_none(
        (col < -1) | (col >= a.k),
        lambda at: f"WCSR col_idx[{at}] is {col[at]}, outside the columns 0 to {a.k - 1} and no padding, which is -1",
    )
    # Padding counts as column k, which it may repeat.
    padding, owner = col < 0, csr.owners(ptr, a.columns)
    place = np.where(padding, a.k, col).astype(np.int64)
    same = (place[1:] == place[:-1]) & ~padding[1:]
    require_none(
        (owner[1:] == owner[:-1]) & ((place[1:] < place[:-1]) | same),
        lambda at: (
            f"WCSR col_idx goes from {col[at]} to {col[at + 1]} at column {at + 1}, but must ascend within a window, "
            "padding last"
        ),
    )
    filled = csr.nonzero(a.val[:, padding]).any()
    require(not filled, "WCSR val has a non-zero in a column of padding, where it must be 0")
    below = a.val[a.m % a.window :, ptr[a.m // a.window] :]  # nothing where m is a multiple
    require(not csr.nonzero(below).any(), f"WCSR val has a non-zero below row {a.m - 1}, where padding must be 0")


def to_dense(a: Wcsr):
    """(m, k) float32 array, row-major, on the side where `a` lives: exact."""
    xp = a.xp
    dense = xp.zeros((a.windows * a.window, a.k), xp.float32)
    kept = xp.flatnonzero(a.col_idx >= 0)
    if kept.size:
        row = csr.owners(a.row_ptr, a.columns)[kept] * a.window
        row = row[None, :] + xp.arange(a.window)[:, None]
        col = xp.broadcast_to(a.col_idx[kept], row.shape)
        dense[row, col] = half.from_bits(a.val[:, kept], a.dtype)
    return xp.ascontiguousarray(dense[: a.m])


def to_csr(a: Wcsr) -> csr.Csr:
    """Return the values that are not 0 as `Csr` on the side where `a` lives, columns ascending: exact."""
    if a.xp is not np:
        entry, sizes = f"window_rows<{compress.STORED[a.dtype][0]}>", compress.ints(a.m, a.window)
        given = a.row_ptr, a.col_idx, a.val, *sizes, np.int64(a.columns)
        return compress.csr_of(a.m, a.k, entry, 32 * a.m, *given)
    at = np.flatnonzero(csr.nonzero(a.val))
    inside, column = at // max(1, a.columns), at % max(1, a.columns)
    row = csr.owners(a.row_ptr, a.columns)[column] * a.window + inside
    return csr.csr_of(a, at, row, a.col_idx[column].astype(np.int64))


def _require_sides(window, pad) -> None:
    for name, value in (("window", window), ("padding", pad)):
        require_known(f"WCSR {name}", value, SIDES)
