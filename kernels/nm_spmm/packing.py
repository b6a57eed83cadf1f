"""Offline preprocessing of B: what a kernel with blocks of C reads, step by step (NM-SpMM, III-C1).

A block of the kernel computes `columns` columns of C. One of its steps multiplies `windows` pruning
windows: `depth` = windows * M rows of A^T with `rows` = windows * N compressed rows of B. The first
step at 2:4 with windows = 2, for a block of two vectors:

    index of B     col_info                index, packed

      0   0        0 2 3 4 5 -1 -1 -1        0   0
      2   3                                  1   2
      4   4        count = 5 of 8            3   3
      5   5                                  4   4

Without packing, a block stages all `depth` rows and `index` holds positions among them; packed, it
stages the `count` rows that its columns need in that step, which `col_info` names, and `index`
holds positions among those ("index reordering", Fig. 4 and Listing 3). The higher the sparsity and
the fewer the columns, the fewer the rows: of 32 rows, four vectors at 12.5% need 13 on average.

One code for NumPy and CuPy: it runs where B lives.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..contract import require
from ..formats import layout
from ..formats.half import array_module
from ..formats.nm import Nm

#: Columns of C that a warp computes, and that share an index where vectors are long enough.
WARP_COLUMNS = 32
#: Elements of B's padded values worked on at a time, to bound the temporaries (about 1 GB).
_CHUNK = 1 << 25


@dataclass(frozen=True)
class Packed:
    """B as the kernels read it; the arrays are NumPy's or CuPy's, all on one side, all row-major.

    val: float32, zeros beyond w and n; (steps * rows, blocks * columns), or where a step's part of
    B lies side by side ("tiled") (blocks, steps, rows, columns).
    index: int32 (blocks, steps, columns / slot, rows), for `slot` neighbouring columns the position
    of every compressed row's row of A^T among the rows that the step stages; 0 where B is padding.
    col_info: int32 (blocks, steps, depth), the rows of A^T (0 to k - 1) that a step stages,
    ascending, then -1; count: int32 (blocks, steps), how many there are, at least 1. Surplus rows
    of the format count like any other. Both are None where a step stages all of its rows.
    """

    rows: int  #: compressed rows of B in a step
    depth: int  #: rows of A^T in a step
    steps: int
    columns: int  #: of C in a block
    slot: int  #: neighbouring columns that share an entry of `index`; all lie in one vector
    blocks: int
    val: Any
    index: Any
    col_info: Any = None
    count: Any = None

    @property
    def packed(self) -> bool:
        """Tell whether A is packed by `col_info`."""
        return self.col_info is not None

    @property
    def col_info_bytes(self) -> int:
        """What packing adds: col_info and count."""
        return self.col_info.nbytes + self.count.nbytes if self.packed else 0


def slot_of(b: Nm) -> int:
    """Columns that share an entry of the kernels' index: a warp's, or four.

    Raises ValueError for vectors that are no multiple of four columns.
    """
    if b.vector % WARP_COLUMNS == 0 or b.vector >= b.n:
        return WARP_COLUMNS
    require(
        b.vector % 4 == 0,
        f"vectors of {b.vector} columns do not fit four columns that share their rows of A: use "
        "nm_cuda_core.element_wise",
    )
    return 4


def convert(b: Nm, columns: int, windows: int, *, packed: bool, slot: int, tiled: bool = False) -> Packed:
    """B for blocks of `columns` columns and steps of `windows` pruning windows, where B lives.

    Any k and n: the last window, step and block may be short. slot: neighbouring columns with one
    entry of `index`; it divides `columns`, and `b.vector` unless one vector covers all columns.
    `val` is b.val itself, not a copy, where nothing is padded and nothing is tiled.
    """
    xp = array_module(b.val)
    rows, depth = windows * b.keep, windows * b.group
    steps, blocks = math.ceil(b.k / depth), math.ceil(b.n / columns)
    # Aligned runs of `unit` columns lie in one vector and one block.
    unit = columns if b.vector >= b.n else math.gcd(columns, b.vector)
    units = columns // unit

    if xp is not np and not packed:
        val, index = layout.vector_steps(b, columns, windows, slot, rows, tiled)
        return Packed(rows, depth, steps, columns, slot, blocks, val, index)
    val = b.val
    if val.shape != (steps * rows, blocks * columns):
        val = layout.with_zeros(val, steps * rows, blocks * columns)
    if tiled:
        val = xp.ascontiguousarray(val.reshape(steps, rows, blocks, columns).transpose(2, 0, 1, 3))
    index = xp.empty((blocks, steps, units, unit // slot, rows), xp.int32)
    col_info: Any = xp.empty((blocks, steps, depth), xp.int32) if packed else None
    count: Any = xp.empty((blocks, steps), xp.int32) if packed else None

    # What is beyond B takes the indices of its last row and vector, which add nothing to the rows
    # that the last step and the last block need.
    vector = xp.minimum(xp.arange(blocks * units) * unit // b.vector, b.q - 1)
    batch = max(1, _CHUNK // max(rows * blocks * columns, depth * blocks))
    for start in range(0, steps, batch):
        stop = min(start + batch, steps)
        part = slice(start, stop)
        row = xp.arange(start * rows, stop * rows)
        found = b.index[xp.minimum(row, b.w - 1)[:, None], vector]
        found -= (row // rows * depth).astype(xp.int32)[:, None]
        found = found.reshape(stop - start, rows, blocks, units)
        if packed:
            found, col_info[:, part], count[:, part] = _pack(xp, found, depth, start)
        index[:, part] = found.transpose(2, 0, 3, 1)[:, :, :, None]
    index = index.reshape(blocks, steps, columns // slot, rows)
    index[-1, :, math.ceil((b.n - (blocks - 1) * columns) / slot) :] = 0
    index[:, -1, :, b.w - (steps - 1) * rows :] = 0
    return Packed(rows, depth, steps, columns, slot, blocks, val, index, col_info, count)


def _pack(xp, found, depth: int, start: int):
    """Positions among the rows that are needed, those rows, and their count, for some steps.

    found: int32 (steps, rows, blocks, units), positions in a step's `depth` rows of A^T; start: the
    first of the steps.
    """
    steps, _, blocks, _ = found.shape
    first = (xp.arange(blocks) * steps + xp.arange(steps)[:, None]) * depth  # of block and step
    place = found + first[:, None, :, None]
    needed = xp.zeros(blocks * steps * depth, xp.int32)
    needed[place] = 1
    rank = xp.cumsum(needed.reshape(blocks, steps, depth), axis=2, dtype=xp.int32)
    count = rank[:, :, -1]
    rank = rank.ravel() - 1
    needed = xp.flatnonzero(needed)
    inside = needed % depth
    col_info = xp.full(blocks * steps * depth, -1, xp.int32)
    absolute = (start + needed // depth % steps) * depth + inside
    col_info[needed - inside + rank[needed]] = absolute.astype(xp.int32)
    return rank[place], col_info.reshape(blocks, steps, depth), count
