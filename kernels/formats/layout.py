"""Sparse matrices on a GPU as kernels read them: layout.cu, launched, on CuPy's current stream.

The systems say what each layout is, and make the same bits with NumPy.
"""

from math import ceil, gcd
from pathlib import Path
from typing import Any

import numpy as np

from ..lazy import cupy
from ..workspace import MOST_BLOCKS, THREADS, On, ints, longs
from . import compress
from .arrays import array_module

SOURCE = Path(__file__).with_name("layout.cu")
COLUMNS = 128  #: of a tile of `vector_tiles`
ENTRIES = (
    "padded<u16>",
    "padded<float>",
    "row_keys<0>",
    "ordered_rows<0>",
    "stacked<uint4>",
    "stacked<u16>",
    "swizzled<true>",
    "swizzled<false>",
    "packed_values<0>",
    "tiled<0>",
    "step_index<0>",
    "marked<0>",
    "tile_ranks<0>",
    "tile_steps<0>",
    "tile_rows<0>",
    "tile_values<float>",
    "tile_values<u16>",
)


def with_zeros(x, rows: int, columns: int):
    """(rows, columns): a row-major matrix of float32 or 16 bits, NumPy or CuPy, with zeros below and beside it."""
    xp = array_module(x)
    if xp is np:
        made = np.zeros((rows, columns), x.dtype)
        made[: x.shape[0], : x.shape[1]] = x
        return made
    made = xp.empty((rows, columns), x.dtype)
    if made.size:
        with On(SOURCE) as on:
            kind = "float" if x.dtype == np.float32 else "u16"
            on.launch(
                f"padded<{kind}>",
                0,
                x,
                *longs(*x.shape),
                made,
                *longs(rows, columns),
                blocks=min(rows, 8 * MOST_BLOCKS),
            )
    return made


# ---------------------------------------------------------------- blocks


def ordered_rows(row_ptr, longest_first: bool):
    """int32 (rows, 4): row, its first entry, the one past its last, 0; the longest first, or as they lie."""
    m = int(row_ptr.shape[0]) - 1
    table, key = cupy.empty((m, 4), np.int32), None
    with On(SOURCE, *["row_keys<0>"] * longest_first, "ordered_rows<0>") as on:
        if longest_first and m:
            key = cupy.empty(m, np.uint64)
            on.launch("row_keys<0>", m, row_ptr, np.int32(m), key)
            key = cupy.sort(key)
        on.launch("ordered_rows<0>", m, row_ptr, np.int32(m), key, table)
    return table


def stacked(a, high: int, first, groups, columns: int) -> tuple[Any, Any]:
    """(col_idx, val) of blocks of `high` rows of blocks each, `columns` of them.

    first, groups: of groups of `high` rows over the union of their columns, as `planning.groups` finds them.
    """
    b_row, b_col = a.block
    col_idx = cupy.empty(columns, np.int32)
    val = cupy.zeros((columns, high * b_row, b_col), a.val.dtype)
    word = 2 if a.val.data.ptr % 16 else 16
    with On(SOURCE) as on:
        on.launch(
            f"stacked<{'u16' if word == 2 else 'uint4'}>",
            0,
            a.row_ptr,
            a.col_idx,
            a.val,
            first,
            groups,
            *ints(a.block_rows, high, b_row * b_col * a.val.dtype.itemsize // word),
            col_idx,
            val,
            blocks=a.blocks,
        )
    return col_idx, val


# ---------------------------------------------------------------- 2:4


def swizzled(meta, rows: int, width: int, ring: bool):
    """Metadata for `rows` x `width` uint16, of zeros where there is none.

    `two_four.swizzle`, uint16 (rows / 2, 2 width), or `wgmma.ring_metadata`, uint32 (rows / 64, 32 width).
    """
    meta = compress.contiguous(meta)
    shape, kind = ((rows // 64, 32 * width), np.uint32) if ring else ((rows // 2, 2 * width), np.uint16)
    made = cupy.empty(shape, kind)
    words = made.nbytes // 4
    with On(SOURCE) as on:
        on.launch(f"swizzled<{str(ring).lower()}>", words, meta, *longs(*meta.shape, words, width), made)
    return made


def packed_values(val, rows: int, pieces: int):
    """`wgmma.pack_values`: uint16 (rows / 64, pieces, 64, 32)."""
    made = cupy.empty((rows // 64, pieces, 64, 32), np.uint16)
    with On(SOURCE) as on:
        units = made.nbytes // 16
        on.launch("packed_values<0>", units, val, *longs(*val.shape, pieces, units), made)
    return made


# ---------------------------------------------------------------- N:M


def vector_steps(b, columns: int, windows: int, slot: int, height: int, tiled: bool) -> tuple[Any, Any]:
    """(val, index) of `packing.prepare` of an `Nm` that is not packed; height: rows of a step, with those of zeros."""
    rows, depth = windows * b.keep, windows * b.group
    steps, blocks = ceil(b.k / depth), ceil(b.n / columns)
    unit = columns if b.vector >= b.n else gcd(columns, b.vector)
    index = cupy.empty((blocks, steps, columns // slot, height), np.int32)
    with On(SOURCE, *["tiled<0>"] * tiled, "step_index<0>") as on:
        if tiled:
            val = cupy.empty((blocks, steps, height, columns), np.float32)
            lines = blocks * steps * height
            on.launch(
                "tiled<0>",
                0,
                b.val,
                *longs(b.w, b.n, lines),
                *ints(steps, rows, height, columns),
                val,
                blocks=min(8 * MOST_BLOCKS, ceil(lines / (THREADS // 32))),
            )
        else:
            whole = b.val.shape == (steps * rows, blocks * columns)
            val = b.val if whole else with_zeros(b.val, steps * rows, blocks * columns)
        on.launch(
            "step_index<0>",
            0,
            b.index,
            *longs(b.w, b.n, b.q, b.vector, index.size),
            *ints(blocks, steps, rows, height, columns, slot, unit, depth),
            index,
            blocks=min(8 * MOST_BLOCKS, ceil(index.size / THREADS)),
        )
    return val, index


def vector_tiles(b, size: int) -> tuple[Any, Any, Any]:
    """Return an `Nm` for tiles of 128 columns, as tensor cores read it.

    size: 4 for TF32, 2 for BF16, to which it is rounded.

    start: int32 (tiles + 1), the steps of tile j are start[j] to start[j + 1] - 1.
    index: int32 (steps, depth), the rows of A^T that a step multiplies, ascending in a tile; its last one is repeated,
    with values of 0, to a whole number of steps.
    values: (steps, 128, depth), float32 or bits of bfloat16: for each column of the tile its values in these rows, 128
    bytes, whose 16-byte unit u is at u ^ column % 8 (128-byte swizzle).
    """
    depth, unit, real = 128 // size, gcd(COLUMNS, b.vector), b.real
    tiles, units = ceil(b.n / COLUMNS), ceil(b.n / unit)
    values_of = f"tile_values<{'u16' if size == 2 else 'float'}>"
    needed = cupy.zeros(tiles * b.k, np.uint8)
    pattern = longs(b.q, b.vector, b.k)
    with On(SOURCE, "marked<0>", "tile_ranks<0>", "tile_steps<0>", "tile_rows<0>", values_of) as on:
        on.on("marked<0>", real * units, b.index, np.int64(real), *pattern, *longs(units, unit), needed)
        rank = on.scan("tile_ranks<0>", needed.size, needed, np.int32(needed.size))
        start = on.scan("tile_steps<0>", tiles, rank, np.int32(tiles), np.int64(b.k), np.int32(depth))
        steps = int(start[-1:].get()[0])
        index = cupy.empty((steps, depth), np.int32)
        on.on("tile_rows<0>", needed.size, needed, rank, start, *longs(needed.size, b.k), np.int32(depth), index)
        values = cupy.zeros((steps, COLUMNS, depth), np.uint16 if size == 2 else np.float32)
        on.on(values_of, real * b.n, b.index, b.val, rank, start, *longs(real, b.n), *pattern, values)
    return start, index, values
