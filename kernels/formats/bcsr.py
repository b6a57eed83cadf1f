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

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import splitmix
from ..contract import require, require_seed
from . import arrays, compress, csr, half
from .arrays import array_module, require_known, require_none, require_share, to_device, to_host  # noqa: F401
from .csr import INT32_MAX, Csr, Stored
from .half import Half

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
    require_known("BCSR dtype", dtype, csr.DTYPES)
    a = csr.as_csr(a)
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
    val = xp.zeros(blocks * area, csr.storage(dtype))
    val[slot] = half.to_bits(values, dtype)
    row_ptr, col_idx = csr.offsets(found, rows, columns), (found % columns).astype(xp.int32)
    return Bcsr(a.m, a.k, dtype, row_ptr, col_idx, val.reshape(-1, b_row, b_col), int(key.shape[0]))


def count_blocks(a, block: int | tuple[int, int] = 64) -> int:
    """How many blocks `from_csr` would store, without storing them."""
    return int(blocks_by_row(a, block).sum())


def blocks_by_row(a, block: int | tuple[int, int] = 64):
    """How many blocks `from_csr` would store in each row of blocks: int64 (block_rows,), where `a` lives."""
    b_row, b_col = sides(block)
    a = csr.as_csr(a)
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
    is_half = isinstance(dense, Half)
    given, dtype = (dense.bits, dense.dtype) if is_half else (dense, dtype)
    require_known("BCSR dtype", dtype, csr.DTYPES)
    require(
        given.ndim == 2 and (is_half or given.dtype == np.float32),
        f"BCSR is made from a 2-dimensional float32 array, but the given one is {given.ndim}-dimensional {given.dtype}",
    )
    require(density is None or not is_half, f"blocks are pruned in float32, but the array is {given.dtype}")
    xp = array_module(given)
    m, k = csr.require_sizes(given.shape[0], given.shape[1], "BCSR")
    rows, columns = -(-m // b_row), -(-k // b_col)
    count = None if density is None else round(require_share("density", density) * (rows * columns))
    if given.size == 0:
        return _empty(xp, m, k, (b_row, b_col), dtype)
    if xp is not np:
        return Bcsr(m, k, dtype, *compress.blocks(given, (b_row, b_col), dtype, count))
    padding = (0, rows * b_row - m), (0, columns * b_col - k)
    cells = np.pad(given, padding).reshape(rows, b_row, columns, b_col)
    keep = np.ones((rows, columns), bool) if count is None else _largest(cells, count)
    if not is_half:
        cells = half.to_bits(cells, dtype)
    row, col = np.nonzero(keep & csr.nonzero(cells).any(axis=(1, 3)))
    require_blocks(int(row.shape[0]), b_row)
    val = np.ascontiguousarray(cells.transpose(0, 2, 1, 3)[row, col])
    row_ptr = csr.offsets(row * columns + col, rows, columns)
    return Bcsr(m, k, dtype, row_ptr, col.astype(np.int32), val, csr.count_nonzero(val))


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

    `a` itself where they are in order already. Its indices lie within the matrix.
    """
    if a.xp is not np:
        fault = arrays.first_fault(*_look(a))
        return Bcsr(a.m, a.k, a.dtype, *compress.in_order(a)) if fault and fault[0] == _ASCENDS else a
    place = block_rows_of(a) * a.block_columns + a.col_idx
    if (place[1:] > place[:-1]).all():
        return a
    order = np.argsort(place, kind="stable")
    place, val = place[order], a.val[order]
    begin = np.flatnonzero(csr.changes(place))
    many = np.diff(begin, append=place.size) > 1
    sums = np.add.reduceat(half.from_bits(val, a.dtype).astype(np.float64), begin, axis=0)
    place, val = place[begin], val[begin]
    val[many] = half.to_bits(sums[many].astype(np.float32), a.dtype)
    row_ptr = csr.offsets(place, a.block_rows, a.block_columns)
    col_idx = (place % a.block_columns).astype(np.int32)
    return Bcsr(a.m, a.k, a.dtype, row_ptr, col_idx, val, csr.count_nonzero(val))


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
    val[int(row_ptr[m // b_row]) :, m % b_row :] = 0  # nothing where m is a multiple
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
    # Blocks at the edges are lower and narrower.
    high, wide = xp.minimum(m - chosen // columns * b_row, b_row), xp.minimum(k - col * b_col, b_col)
    nnz = int((high * wide).sum())
    return csr.offsets(chosen, rows, columns), col.astype(xp.int32), nnz


def validate(a: Bcsr) -> Bcsr:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    csr.require_layout("BCSR", a, ("blocks", "b_row", "b_col"))
    b_row, _ = sides(a.block)
    require_blocks(a.blocks, b_row)
    csr.require_counts("BCSR", a, a.block_rows, "rows of blocks")
    require(a.col_idx.shape[0] == a.blocks, f"BCSR row_ptr ends at {int(a.row_ptr[-1])}, but {_ends(a)}")
    return arrays.checked(a, _look(a), _require_right)


_ASCENDS = 4  # the kind of a fault, as checks.cu numbers them


def _look(a: Bcsr) -> tuple:
    """Return what `arrays.first_fault` takes of a matrix whose arrays have the right shapes."""
    sizes = np.int64(a.blocks), np.int64(a.m), np.int64(a.k), *map(np.int32, a.block)
    return f"bcsr<{arrays.BITS[a.val.dtype.name]}>", 32 * a.block_rows, a.row_ptr, a.col_idx, a.val, *sizes


def _ends(a: Bcsr) -> str:
    return f"there are {a.col_idx.shape[0]} column indices and {a.blocks} blocks: all three must agree"


def _require_right(a: Bcsr) -> None:
    indices = {"row_ptr": a.row_ptr, "col_idx": a.col_idx}
    csr.require_indices("BCSR", indices, a.blocks, _ends(a), a.block_columns, "columns of blocks")
    col = a.col_idx
    place = block_rows_of(a) * a.block_columns + col
    require_none(
        place[1:] <= place[:-1],
        lambda at: (
            f"BCSR col_idx goes from {col[at]} to {col[at + 1]} at block {at + 1}, but must ascend within a row of "
            "blocks"
        ),
    )
    b_row, b_col = a.block  # no block is beyond a multiple of it
    below = a.val[a.row_ptr[a.m // b_row] :, a.m % b_row :]
    beyond = a.val[col == a.k // b_col, :, a.k % b_col :]
    said = "BCSR val has a non-zero {} {}, where padding must be 0"
    require(not csr.nonzero(below).any(), said.format("below row", a.m - 1))
    require(not csr.nonzero(beyond).any(), said.format("beyond column", a.k - 1))


def to_dense(a: Bcsr):
    """(m, k) float32 array, row-major, on the side where `a` lives: exact."""
    xp = a.xp
    (b_row, b_col), rows, columns = a.block, a.block_rows, a.block_columns
    cells = xp.zeros((rows * columns, b_row, b_col), xp.float32)
    if a.blocks:
        cells[block_rows_of(a) * columns + a.col_idx] = half.from_bits(a.val, a.dtype)
    dense = cells.reshape(rows, columns, b_row, b_col).transpose(0, 2, 1, 3)
    return xp.ascontiguousarray(dense.reshape(rows * b_row, columns * b_col)[: a.m, : a.k])


def to_csr(a: Bcsr) -> Csr:
    """Return the values that are not 0 as `Csr` on the side where `a` lives, columns ascending: exact."""
    b_row, b_col = a.block
    if a.xp is not np:
        entry = f"block_rows<{compress.STORED[a.dtype][0]}>"
        sizes = compress.ints(a.m, b_row, b_col)
        return compress.csr_of(a.m, a.k, entry, 32 * a.m, a.row_ptr, a.col_idx, a.val, *sizes)
    at = np.flatnonzero(csr.nonzero(a.val))
    block, inside = at // (b_row * b_col), at % (b_row * b_col)
    row = block_rows_of(a)[block] * b_row + inside // b_col
    col = a.col_idx[block].astype(np.int64) * b_col + inside % b_col
    return csr.csr_of(a, at, row, col)


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
    return Bcsr(m, k, dtype, row_ptr, xp.zeros(0, xp.int32), xp.zeros((0, *block), csr.storage(dtype)), 0)
