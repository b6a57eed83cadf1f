"""Block Compressed Sparse Row (BCSR): the blocks that hold a non-zero, each stored dense.

Blocks of 2 x 2 here, to draw them; the format takes powers of two from 16 to 128:

                k = 5
           a . | . . | b      row 0   row_ptr  0   2   2   3        block rows + 1 offsets
           . c | . . | .              col_idx  0   2   1            blocks, ascending in a row
           ----+-----+----
   m       . . | . . | .      row 1   val      a .   b 0   d .
   =       . . | . . | .                       . c   . 0   0 0      blocks x b_row x b_col
   5       ----+-----+----
           . . | d . | .      row 2   block row i owns the blocks row_ptr[i] ... row_ptr[i + 1] - 1

Where m or k is no multiple of the block, the blocks at the edge are padded with zeros (0 above). The
fill ratio is nnz / (blocks · b_row · b_col), here 4 / 12: what is stored and multiplied for nothing is
the rest. Values are float32 or, as bit patterns, bfloat16 or float16: see `half`.

AsyncSparse, section II-C and Fig. 2, whose block is 64 x 64.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import splitmix
from ..contract import require, require_seed
from . import checks, compress, csr, stored
from .arrays import array_module, gravest, require_share
from .arrays import to_device as to_device
from .arrays import to_host as to_host
from .csr import INT32_MAX, Csr
from .half import Half
from .stored import Stored

SIDES = (16, 32, 64, 128)  #: rows, and columns, that a block may have
_PATTERN, _VALUES = range(2)  # streams of `random`


@dataclass(frozen=True)
class Bcsr(Stored):
    """A sparse m x k matrix; the arrays are NumPy's or CuPy's, all on one side.

    row_ptr: int32 (block_rows + 1,); col_idx: int32 (blocks,), columns of blocks; val: uint16 bit
    patterns of `dtype`, or float32, (blocks, b_row, b_col) row-major.
    """

    @property
    def block(self) -> tuple[int, int]:
        """Rows and columns of a block."""
        return tuple(self.val.shape[1:])

    @property
    def blocks(self) -> int:
        """Return the number of stored blocks."""
        return int(self.val.shape[0])

    @property
    def block_rows(self) -> int:
        """Return the number of rows of blocks."""
        return -(-self.m // self.val.shape[1])

    @property
    def block_columns(self) -> int:
        """Return the number of columns of blocks."""
        return -(-self.k // self.val.shape[2])


def from_csr(a, *, block: int | tuple[int, int] = 64, dtype: str = "bfloat16") -> Bcsr:
    """Return the blocks of a `Csr`, on the side where it lives, or of a SciPy sparse array, on the host.

    block: rows and columns of a block, or one number for both. Values are rounded to `dtype` once;
    repeated entries add up first. nnz counts the positions that are stored, also of a stored zero.
    Raises ValueError, one sentence, for another block or dtype and where sizes pass 2^31 - 1.
    """
    b_row, b_col = sides(block)
    stored.require_dtype("BCSR", dtype)
    a = stored.as_csr(a)
    xp, rows, columns, area = a.xp, -(-a.m // b_row), -(-a.k // b_col), b_row * b_col
    if a.nnz == 0:
        return _empty(xp, a.m, a.k, (b_row, b_col), dtype)
    row, col = csr.rows(a), a.col_idx.astype(xp.int64)
    key = (row // b_row * columns + col // b_col) * area + row % b_row * b_col + col % b_col
    key, values = csr.sorted_sums(key, a.val)
    place = key // area
    first = csr.changes(place)
    found = place[first]
    blocks = int(found.shape[0])
    require_blocks(blocks, b_row)
    slot = (xp.cumsum(first, dtype=xp.int64) - 1) * area + key % area
    val = xp.zeros(blocks * area, stored.storage(dtype))
    val[slot] = stored.rounded(values, dtype)
    row_ptr, col_idx = csr.offsets(found, rows, columns), (found % columns).astype(xp.int32)
    return Bcsr(a.m, a.k, dtype, row_ptr, col_idx, val.reshape(-1, b_row, b_col), int(key.shape[0]))


def count_blocks(a, block: int | tuple[int, int] = 64) -> int:
    """How many blocks `from_csr` would store, without storing them."""
    return int(blocks_by_row(a, block).sum())


def blocks_by_row(a, block: int | tuple[int, int] = 64):
    """How many blocks `from_csr` would store in each row of blocks: int64 (block_rows,), where `a` lives."""
    b_row, b_col = sides(block)
    a = stored.as_csr(a)
    rows, columns = -(-a.m // b_row), -(-a.k // b_col)
    place = csr.distinct(csr.rows(a) // b_row * columns + a.col_idx.astype(a.xp.int64) // b_col)
    return a.xp.diff(csr.offsets(place, rows, columns).astype(a.xp.int64))


def from_dense(
    dense, *, block: int | tuple[int, int] = 64, dtype: str = "bfloat16", density: float | None = None
) -> Bcsr:
    """Return the blocks of a dense (m, k) matrix that hold a non-zero, on the side where it lives.

    dense: float32, rounded to `dtype` first, or a `Half`, which keeps its own dtype. density: keep only the blocks
    with the largest sums of squares, that share of all, of equal ones the first; what is no number counts as infinite.
    Of float32 only. Raises ValueError, one sentence, for another array, block, dtype or density.
    """
    b_row, b_col = sides(block)
    if isinstance(dense, Half):
        dtype, given = dense.dtype, dense.bits
    else:
        stored.require_dtype("BCSR", dtype)
        require(
            dense.dtype == np.float32 and dense.ndim == 2,
            f"BCSR is made from a 2-dimensional float32 array, but the given one is {dense.ndim}-dimensional "
            f"{dense.dtype}",
        )
        given = dense
    xp = array_module(given)
    m, k = csr.require_sizes(given.shape[0], given.shape[1], "BCSR")
    rows, columns = -(-m // b_row), -(-k // b_col)
    count = None
    if density is not None:
        share = require_share("density", density)
        require(given.dtype == np.float32, f"blocks are pruned in float32, but the array is {given.dtype}")
        count = round(share * (rows * columns))
    if given.size == 0:
        return _empty(xp, m, k, (b_row, b_col), dtype)
    if xp is not np:
        return Bcsr(m, k, dtype, *compress.blocks(given, (b_row, b_col), dtype, count))
    cells = np.zeros((rows * b_row, columns * b_col), given.dtype)
    cells[:m, :k] = given
    cells = cells.reshape(rows, b_row, columns, b_col)
    keep = np.ones((rows, columns), bool) if count is None else _largest(cells, count)
    if given.dtype == np.float32:
        cells = stored.rounded(cells, dtype)
    row, col = np.nonzero(keep & stored.nonzero(cells).any(axis=(1, 3)))
    require_blocks(int(row.shape[0]), b_row)
    val = np.ascontiguousarray(cells.transpose(0, 2, 1, 3)[row, col])
    row_ptr = csr.offsets(row * columns + col, rows, columns)
    return Bcsr(m, k, dtype, row_ptr, col.astype(np.int32), val, stored.count_nonzero(val))


def _largest(cells: np.ndarray, count: int) -> np.ndarray:
    """bool (rows, columns): the blocks with the largest sums of squares; cells: (rows, b_row, columns, b_col).

    Squares add up row after row, then neighbouring columns, and pairs of them: as on a GPU, to the last bit.
    """
    rows, b_row, columns, b_col = cells.shape
    sums = np.zeros((rows, columns, b_col))
    for row in range(b_row):
        sums += cells[:, row].astype(np.float64) ** 2
    while sums.shape[-1] > 1:
        sums = sums[..., ::2] + sums[..., 1::2]
    score = np.where(np.isnan(sums), np.inf, sums).reshape(-1)
    keep = np.zeros(score.size, bool)
    keep[np.argsort(-score, kind="stable")[:count]] = True
    return keep.reshape(rows, columns)


def in_order(a: Bcsr) -> Bcsr:
    """Return the same matrix with its blocks in order, where `a` lives; those of one place add up, in float64.

    Its indices lie within the matrix.
    """
    if a.blocks == 0:
        return a
    if a.xp is not np:
        return Bcsr(a.m, a.k, a.dtype, *compress.in_order(a))
    place = block_rows_of(a) * a.block_columns + a.col_idx
    order = np.argsort(place, kind="stable")
    place, val = place[order], a.val[order]
    first = csr.changes(place)
    if not first.all():
        begin = np.flatnonzero(first)
        many = np.diff(begin, append=place.size) > 1
        sums = np.add.reduceat(stored.numbers(val, a.dtype).astype(np.float64), begin, axis=0)
        place, val = place[begin], val[begin]
        val[many] = stored.rounded(sums[many].astype(np.float32), a.dtype)
    row_ptr = csr.offsets(place, a.block_rows, a.block_columns)
    col_idx = (place % a.block_columns).astype(np.int32)
    return Bcsr(a.m, a.k, a.dtype, row_ptr, col_idx, val, stored.count_nonzero(val))


def random(
    m: int,
    k: int,
    density: float,
    seed: int,
    *,
    block: int | tuple[int, int] = 64,
    dtype: str = "bfloat16",
    xp=np,
) -> Bcsr:
    """Random blocks full of random values: the same bits with NumPy as with CuPy, which `xp` is.

    round(density · all blocks) blocks, each choice of them equally likely; values uniform in
    (-1, 1), rounded to `dtype` and never 0. dtype: a matrix's, or "tf32": float32 values that
    TF32 holds exactly. Raises ValueError, one sentence, for what makes no matrix.
    """
    row_ptr, col_idx, nnz = random_pattern(m, k, density, seed, block=block, xp=xp)
    (m, k), (b_row, b_col) = csr.require_sizes(m, k, "BCSR"), sides(block)
    key = splitmix.key(seed, _VALUES)
    val = splitmix.uniform(key, int(col_idx.shape[0]) * b_row * b_col, dtype, xp)
    val = val.reshape(-1, b_row, b_col)
    if m % b_row:
        val[int(row_ptr[-2]) :, m % b_row :] = 0
    right = xp.flatnonzero(col_idx == k // b_col)  # none where k is a multiple
    if right.size:
        val[right, :, k % b_col :] = 0
    return Bcsr(m, k, "float32" if dtype == "tf32" else dtype, row_ptr, col_idx, val, nnz)


def random_pattern(
    m: int, k: int, density: float, seed: int, *, block: int | tuple[int, int] = 64, xp=np
) -> tuple[Any, Any, int]:
    """(row_ptr, col_idx, nnz) of `random`, and none of its values."""
    (m, k), (b_row, b_col) = csr.require_sizes(m, k, "BCSR"), sides(block)
    share = require_share("BCSR density", density)
    require_seed(seed)
    rows, columns = -(-m // b_row), -(-k // b_col)
    total = rows * columns
    require(
        total <= INT32_MAX,
        f"a random matrix of {m} x {k} is drawn from {total} blocks, but at most 2^31 - 1 can be: take larger blocks "
        "or a smaller matrix",
    )
    count = round(share * total)
    require_blocks(count, b_row)
    if count == 0:
        return xp.zeros(rows + 1, xp.int32), xp.zeros(0, xp.int32), 0
    # The blocks with the smallest numbers, of two equal ones the first.
    index = splitmix.positions(range(total), xp)
    drawn = splitmix.random_u32(splitmix.key(seed, _PATTERN), index) << np.uint64(32) | index
    chosen = xp.sort(xp.sort(drawn)[:count] & np.uint64(2**32 - 1)).astype(xp.int64)
    col = chosen % columns
    short, narrow = rows * b_row - m, columns * b_col - k  # of the blocks at the edges
    low, right = chosen >= total - columns, col == columns - 1
    nnz = count * b_row * b_col
    nnz -= int(low.sum()) * short * b_col + int(right.sum()) * narrow * b_row
    nnz += int((low & right).sum()) * short * narrow
    return csr.offsets(chosen, rows, columns), col.astype(xp.int32), nnz


def validate(a: Bcsr) -> Bcsr:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    stored.require_layout("BCSR", a, ("blocks", "b_row", "b_col"))
    b_row, _ = sides(a.block)
    require_blocks(a.blocks, b_row)
    stored.require_counts("BCSR", a, a.block_rows, "rows of blocks")
    fault = (csr.ENDS, -1) if a.col_idx.shape[0] != a.blocks else first_fault(a)
    if fault:
        raise _refused(a, *fault)
    return a


ASCENDS, _BELOW = 4, 5  #: kinds of faults after those of `csr`, as checks.cu numbers them


def first_fault(a: Bcsr) -> tuple[int, int] | None:
    """(kind, place) of the gravest fault of a matrix whose arrays have the right shapes, wherever it lives."""
    return checks.bcsr(a) if checks.on_device(a.val) else gravest(_faults(a))


def _faults(a: Bcsr) -> Iterator[tuple[int, Any]]:
    """Yield what `checks.bcsr` looks for on a GPU, of a matrix on the host."""
    yield from csr.faults(a.row_ptr, a.col_idx, a.blocks, a.block_columns)
    place = block_rows_of(a) * a.block_columns + a.col_idx
    yield 0, place[1:] <= place[:-1]
    (b_row, b_col), last = a.block, int(a.row_ptr[-2]) if a.m else 0
    below = a.val[last:, a.m % b_row :] if a.m % b_row else a.val[:0]
    yield last, stored.nonzero(below).any(axis=(1, 2))
    right = np.flatnonzero(a.col_idx == a.k // b_col)  # none where k is a multiple
    beyond = np.zeros(a.blocks, bool)
    beyond[right] = stored.nonzero(a.val[right][:, :, a.k % b_col :]).any(axis=(1, 2))
    yield 0, beyond


def _refused(a: Bcsr, kind: int, at: int) -> ValueError:
    """Return the error, one sentence, on a fault."""
    if kind < ASCENDS:
        arrays = {"row_ptr": a.row_ptr, "col_idx": a.col_idx}
        ends = f"there are {a.col_idx.shape[0]} column indices and {a.blocks} blocks: all three must agree"
        return csr.refused("BCSR", (kind, at), arrays, ends, a.block_columns, "columns of blocks")
    if kind == ASCENDS:
        return ValueError(
            f"BCSR col_idx goes from {int(a.col_idx[at])} to {int(a.col_idx[at + 1])} at block {at + 1}, but must "
            "ascend within a row of blocks"
        )
    where = f"below row {a.m - 1}" if kind == _BELOW else f"beyond column {a.k - 1}"
    return ValueError(f"BCSR val has a non-zero {where}, where padding must be 0")


def to_dense(a: Bcsr):
    """(m, k) float32 array, row-major, on the side where `a` lives: exact."""
    xp = a.xp
    (b_row, b_col), rows, columns = a.block, a.block_rows, a.block_columns
    cells = xp.zeros((rows * columns, b_row, b_col), xp.float32)
    if a.blocks:
        cells[block_rows_of(a) * columns + a.col_idx] = stored.numbers(a.val, a.dtype)
    dense = cells.reshape(rows, columns, b_row, b_col).transpose(0, 2, 1, 3)
    return xp.ascontiguousarray(dense.reshape(rows * b_row, columns * b_col)[: a.m, : a.k])


def to_csr(a: Bcsr) -> Csr:
    """Return the values that are not 0 as `Csr` on the side where `a` lives, columns ascending: exact."""
    xp, (b_row, b_col) = a.xp, a.block
    if a.blocks == 0:
        nothing = (xp.zeros(0, dtype) for dtype in (xp.int32, xp.float32))
        return Csr(a.m, a.k, xp.zeros(a.m + 1, xp.int32), *nothing)
    if xp is not np:
        return compress.csr_of_blocks(a)
    at = np.flatnonzero(stored.nonzero(a.val))
    block, inside = at // (b_row * b_col), at % (b_row * b_col)
    row = block_rows_of(a)[block] * b_row + inside // b_col
    col = a.col_idx[block].astype(np.int64) * b_col + inside % b_col
    return stored.csr_of(a, at, row, col)


def block_rows_of(a: Bcsr):
    """Return the row of blocks that every block is in: int64 (blocks,), where `a` lives."""
    return csr.owners(a.row_ptr, a.blocks)


def sides(block) -> tuple[int, int]:
    """(b_row, b_col) of a block, given as one number or as two; ValueError for any that is no block."""
    both = (block, block) if isinstance(block, (int, np.integer)) else block
    require(
        isinstance(both, (tuple, list)) and len(both) == 2 and all(side in SIDES for side in both),
        f"BCSR block is {block!r}, but its rows and columns must each be one of {', '.join(map(str, SIDES))}",
    )
    return int(both[0]), int(both[1])


def require_blocks(blocks: int, b_row: int) -> None:
    """Raise ValueError where blocks, one below the other, have more rows than 32 bits count."""
    require(
        blocks * b_row <= INT32_MAX,
        f"{blocks} blocks of {b_row} rows, one below the other, pass row 2^31 - 1, the last that a tensor map "
        "reaches: split the matrix by rows",
    )


def _empty(xp, m: int, k: int, block: tuple[int, int], dtype: str) -> Bcsr:
    row_ptr = xp.zeros(-(-m // block[0]) + 1, xp.int32)
    return Bcsr(m, k, dtype, row_ptr, xp.zeros(0, xp.int32), xp.zeros((0, *block), stored.storage(dtype)), 0)
