"""Tasks of windows (WCSR): which columns a block multiplies, large windows cut into several (section III-C).

    row_ptr  0    160   160    200      chunk 128, fixed        chunk 128, even
             │ 0   │ 1   │  2   │          0   0 128  cut 0        0   0  96  cut 0
                                           0 128 160  cut 0        0  96 160  cut 0
                                           1 160 160  -1           1 160 160  -1
                                           2 160 200  -1           2 160 200  -1

Tasks of one window add to the same rows of C; who has a window alone stores it, zeros where it is empty.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from .. import formats, jit
from ..contract import require
from ..formats import csr, reorder
from ..formats.csr import INT32_MAX, Csr
from ..formats.half import array_module
from . import planning

STEP = 32  #: columns: parts of equal size are multiples of it
MOST_BLOCKS = 65_535  #: in the second dimension of a grid
ORDERS = ("", "similar")  #: of rows: as they come, or those with common columns side by side


@dataclass(frozen=True)
class Tasks:
    """The arrays are NumPy's or CuPy's, where `row_ptr` was."""

    table: Any  #: int32 (tasks, 4): window, first of its columns, the one past its last, -1 or its place in `cut`
    cut: Any  #: int32, the windows that have several tasks, ascending

    @property
    def count(self) -> int:
        return int(self.table.shape[0])

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + self.cut.nbytes


def tasks(row_ptr, chunk: int = 0, *, even: bool = False, longest_first: bool = False) -> Tasks:
    """Windows cut into tasks of at most `chunk` columns, a multiple of `STEP`; 0: none is cut.

    row_ptr: int32 (windows + 1,), of a `Wcsr`. even: the parts of a window are as long as each other, but for
    whole steps; otherwise all are `chunk` long but the last one, as the source has it. longest_first: in
    that order, otherwise window after window. Raises ValueError, one sentence, for another chunk.
    """
    require(
        chunk >= 0 and chunk % STEP == 0,
        f"a task has {chunk} columns, but must have a multiple of {STEP}, or 0 for whole windows",
    )
    xp = array_module(row_ptr)
    first = row_ptr[:-1].astype(xp.int64)
    length = row_ptr[1:].astype(xp.int64) - first
    size = xp.maximum(length, 1)
    if chunk:
        size = even_size(length, chunk) if even else xp.full_like(length, chunk)
    parts = xp.maximum(-(-length // size), 1)
    at = xp.zeros(len(parts) + 1, xp.int64)
    at[1:] = xp.cumsum(parts)
    total = int(at[-1])
    require(
        total <= INT32_MAX,
        f"windows make {total} tasks, but kernels count up to {INT32_MAX}: use longer ones",
    )
    window = csr.owners(at, total)
    begin = first[window] + (xp.arange(total) - at[window]) * size[window]
    end = xp.minimum(begin + size[window], (first + length)[window])
    place = xp.where(parts > 1, xp.cumsum(parts > 1, dtype=xp.int64) - 1, -1)
    table = xp.stack([window, begin, end, place[window]], axis=1)
    if longest_first:
        table = table[xp.argsort(begin - end, kind="stable")]
    return Tasks(xp.ascontiguousarray(table.astype(xp.int32)), xp.flatnonzero(parts > 1).astype(xp.int32))


def even_size(length, chunk: int):
    """Columns of each part but the last of windows of so many columns, cut evenly at `chunk`; 1 at least. An array."""
    xp = array_module(length)
    parts = xp.maximum(-(-length // chunk), 1)
    return xp.maximum(-(-length // (parts * STEP)) * STEP, 1)


@dataclass(frozen=True)
class Parts:
    """What in_order.cuh reads of cut windows: each part has a slot for its sums, those of a window side by side."""

    table: np.ndarray  #: int32 (cut windows, 4): first slot, parts, first column, columns of each part but the last
    slots: int  #: parts of all cut windows

    @property
    def most(self) -> int:
        """Parts of the window that has the most; 0 where none is cut."""
        return int(self.table[:, 1].max(initial=0))


def parts(row_ptr, cut, chunk: int) -> Parts | None:
    """The parts of the windows `cut` that `tasks(row_ptr, chunk, even=True)` makes, on the host.

    None where no window has more than two, whose sum is the same either way round. row_ptr: int32 (windows + 1,); cut:
    `Tasks.cut`; NumPy or CuPy. Raises ValueError where slots are too many.
    """
    # As long as there are rows, at most, and no GPU has to compile anything for it.
    edges, which = (formats.to_host(x).astype(np.int64) for x in (row_ptr, cut))
    first = edges[which]
    length = edges[which + 1] - first
    size = even_size(length, chunk) if len(which) else length
    count = -(-length // np.maximum(size, 1))
    end = np.cumsum(count)
    slots = int(end[-1]) if len(which) else 0
    require(
        slots <= INT32_MAX,
        f"cut windows have {slots} parts, but kernels count up to {INT32_MAX}: use longer ones",
    )
    made = Parts(np.stack([end - count, count, first, size], axis=1).astype(np.int32), slots)
    return made if made.most > 2 else None


@dataclass(frozen=True)
class Slots:
    """Device arrays of in_order.cuh, and how a kernel is given them."""

    table: Any  #: `Parts.table`
    counts: Any  #: uint32 (strips, slots), zeros between launches
    sums: Any  #: float32 (slots, rows of a window, width)

    #: What the instantiation of a kernel that adds up in order ends with: the types of `arguments`.
    TEMPLATE = "const Parts*, unsigned*, int, float*"

    @property
    def arguments(self) -> tuple:
        slots = np.int32(self.counts.shape[1])
        return self.table.data.ptr, self.counts.data.ptr, slots, self.sums.data.ptr

    @property
    def scratch(self) -> tuple:
        """What launches write."""
        return self.counts, self.sums

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + self.counts.nbytes + self.sums.nbytes


def slots(of: Parts, strips: int, window: int, width: int) -> Slots:
    """Memory for parts on the current GPU. strips: ranges of columns of C that different warps add up."""
    import cupy

    return Slots(
        cupy.asarray(of.table),
        cupy.zeros((strips, of.slots), cupy.uint32),
        cupy.empty((of.slots, window, width), cupy.float32),
    )


def in_blocks(work: Tasks, windows: int, block: int) -> Tasks:
    """The tasks in an order for blocks of so many of them, in which those of a cut window wait for each other little.

    Parts of a window add to its first one, so a block waits for the one before it where a window goes on from one to
    the next; where many windows are cut, as in a graph's heavy rows, blocks then wait in a chain. So a cut window of up
    to a block's tasks lies in one block, a longer one begins with a block, the longest come first, and tasks of whole
    windows fill what is left over, or tasks of no row and no column where there are too few of these. block: a power of
    2; blocks of a smaller one do as well.
    """
    if not len(work.cut):
        return work
    xp = array_module(work.table)
    place, index = work.table[:, 3], xp.arange(work.count)
    of_cut = place >= 0
    before = xp.cumsum(of_cut) - of_cut  # tasks of cut windows before each
    starts = of_cut & (xp.roll(place, 1) != place)
    starts[0] = of_cut[0]
    first = xp.flatnonzero(starts)  # of each cut window
    # What is left is as short as the list of cut windows: quick on the host, where kernels would wait for each other.
    parts = np.diff(formats.to_host(before[first]), append=int(of_cut.sum())).astype(np.int64)
    power = 2 ** np.ceil(np.log2(parts)).astype(np.int64)
    room = np.where(parts > block, -(-parts // block) * block, power)
    longest = np.argsort(-room, kind="stable")
    begin = np.empty_like(room)
    begin[longest] = np.cumsum(room[longest]) - room[longest]
    total, left = int(room.sum()), room - parts
    free = np.repeat(begin + parts - np.cumsum(left) + left, left) + np.arange(left.sum())
    whole = work.count - int(parts.sum())
    fills, size = min(len(free), whole), total + max(0, whole - len(free))
    spots = xp.concatenate([xp.asarray(free[:fills]), xp.arange(total, size)])
    table = xp.zeros((size, 4), xp.int32)
    table[:, 0], table[:, 3] = windows, -1
    to = xp.empty(work.count, xp.int64)
    to[~of_cut] = spots
    shift = xp.asarray(begin) - first
    to[of_cut] = (index + shift[place])[of_cut]
    table[to] = work.table
    return Tasks(table, work.cut)


def ordered(a: Csr, how: str) -> tuple[Any, Csr]:
    """(order, A in it): int32 (m,), row order[i] becomes row i, or None where `how` is ""; see `ORDERS`."""
    require(how in ORDERS, f"rows are ordered by {how!r}, but must be by one of {ORDERS}")
    if not how:
        return None, a
    if array_module(a.val) is not np:
        return planning.similar(a)
    order = reorder.similar(a)
    return order, reorder.rows_permuted(a, order)


def clear(source, window: int, cut, c, m: int, device, order=None) -> list[tuple]:
    """The launch (kernel, config, arguments) that clears the rows of cut windows in c; none without any.

    source: a kernel file that includes cut_windows.cuh. window: rows. c: CuPy float32 (m, any), row-major.
    order: int32 (m,), the row of C that a row of the windows is; None: the same.
    """
    pointers = pointer(order), c.data.ptr
    return _of_cut(source, f"clear_cut<{window}>", cut, pointers, m, c.shape[1], device)


def pointer(array) -> int:
    """Where a CuPy array begins; 0 for None."""
    return 0 if array is None else array.data.ptr


def rounded(source, dtype: str, window: int, cut, sums, c, m: int, device) -> list[tuple]:
    """The launch that rounds the sums of cut windows into c, and leaves zeros; none without any.

    dtype: "BF16" or "F16". sums: float32 (cut · window, width), c: uint16 (m, width).
    """
    pointers = sums.data.ptr, c.data.ptr
    return _of_cut(source, f"round_cut<{dtype}, {window}>", cut, pointers, m, c.shape[1], device)


def _of_cut(source, entry: str, cut, pointers, m: int, width: int, device) -> list[tuple]:
    from cuda.core import LaunchConfig

    if not len(cut):
        return []
    kernel = jit.loaded(source, entry, device)
    blocks = min(MOST_BLOCKS, ceil(width / 256))  # beyond these, each goes on to further columns
    config = LaunchConfig(grid=(len(cut), blocks), block=256)
    return [(kernel, config, (cut.data.ptr, *pointers, np.int32(m), np.int32(width)))]
