"""Tasks of windows (WCSR): which columns a block multiplies, large windows cut into several (section III-C).

    row_ptr  0    160   160    200      chunk 128, fixed        chunk 128, even
             │ 0   │ 1   │  2   │          0   0 128  cut 0        0   0  96  cut 0
                                           0 128 160  cut 0        0  96 160  cut 0
                                           1 160 160  -1           1 160 160  -1
                                           2 160 200  -1           2 160 200  -1

Tasks of one window add to the same rows of C; who has a window alone stores it, zeros where it is empty.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np

from .. import formats, jit
from ..contract import require
from ..formats import csr, intake
from ..formats.csr import INT32_MAX, Csr
from ..formats.half import array_module
from . import planning
from .planning import Tasks

STEP = 32  #: columns: parts of equal size are multiples of it
MOST_BLOCKS = 65_535  #: in the second dimension of a grid
ORDERS = ("", "similar")  #: of rows: as they come, or those with common columns side by side
#: What the instantiation of a kernel that adds up in order ends with: the types of the arguments of `slots`.
IN_ORDER = ("const Parts*", "unsigned*", "int", "float*")


def tasks(row_ptr, chunk: int) -> Tasks:
    """Windows cut into tasks of `chunk` columns but the last one of each, as the source has it; 0: none is cut.

    row_ptr: int32 (windows + 1,), of a `Wcsr`; NumPy or CuPy. `planning.tasks` cuts evenly. Raises ValueError, one
    sentence, where chunk is no multiple of `STEP`.
    """
    require(
        chunk >= 0 and chunk % STEP == 0,
        f"a task has {chunk} columns, but must have a multiple of {STEP}, or 0 for whole windows",
    )
    xp = array_module(row_ptr)
    first, last = (x.astype(xp.int64) for x in (row_ptr[:-1], row_ptr[1:]))
    size = chunk or INT32_MAX
    parts = xp.maximum(-(-(last - first) // size), 1)
    at = xp.zeros(len(parts) + 1, xp.int64)
    at[1:] = xp.cumsum(parts)
    total = int(at[-1])
    require(
        total <= INT32_MAX,
        f"windows make {total} tasks, but kernels count up to {INT32_MAX}: use longer ones",
    )
    window = csr.owners(at, total)
    begin = first[window] + (xp.arange(total) - at[window]) * size
    place = xp.where(parts > 1, xp.cumsum(parts > 1, dtype=xp.int64) - 1, -1)
    table = xp.stack([window, begin, xp.minimum(begin + size, last[window]), place[window]], axis=1)
    return Tasks(table.astype(xp.int32), xp.flatnonzero(parts > 1).astype(xp.int32))


@dataclass(frozen=True)
class Parts:
    """What in_order.cuh reads of cut windows: each part has a slot for its sums, those of a window side by side."""

    table: np.ndarray  #: int32 (cut windows, 4): first slot, parts, first column, columns of each part but the last
    slots: int  #: parts of all cut windows


def parts(row_ptr, cut, chunk: int) -> Parts | None:
    """Return the parts of the windows `cut` that `planning.tasks(row_ptr, chunk)` makes, on the host.

    None where no window has more than two, whose sum is the same either way round. row_ptr: int32 (windows + 1,); cut:
    `Tasks.cut`; NumPy or CuPy. Raises ValueError where slots are too many.
    """
    # As long as there are rows, at most, and no GPU has to compile anything for it.
    edges, which = (formats.to_host(x).astype(np.int64) for x in (row_ptr, cut))
    first = edges[which]
    length = edges[which + 1] - first
    count = -(-length // max(chunk, 1))
    size = -(-length // (count * STEP)) * STEP
    end = np.cumsum(count)
    slots = int(count.sum())
    require(
        slots <= INT32_MAX,
        f"cut windows have {slots} parts, but kernels count up to {INT32_MAX}: use longer ones",
    )
    made = Parts(np.stack([end - count, count, first, size], axis=1).astype(np.int32), slots)
    return made if count.max(initial=0) > 2 else None


def slots(of: Parts | None, strips: int, window: int, width: int) -> tuple[tuple, tuple]:
    """Return (what a kernel's arguments end with, device arrays behind it) to add up parts in one order.

    None without parts.

    strips: ranges of columns of C that different warps add up. Of the arrays launches write all but the first one.
    """
    if of is None:
        return (), ()
    import cupy

    table, counts = cupy.asarray(of.table), cupy.zeros((strips, of.slots), cupy.uint32)
    sums = cupy.empty((of.slots, window, width), cupy.float32)
    return (table.data.ptr, counts.data.ptr, np.int32(of.slots), sums.data.ptr), (table, counts, sums)


@dataclass(frozen=True)
class Prepared:
    """A on the GPU as union_rows.cu and windows.cu read it."""

    order: Any  #: int32 (m,), row order[i] of A is row i of the groups or windows; None: the same
    col_idx: Any  #: int32 (columns,)
    values: Any  #: float32: (columns, rows of a group), or as `planning.sliced` has them
    work: Tasks
    parts: Parts | None  #: where they are added up in order, and that makes a difference
    own: tuple  #: of the arrays those that A itself does not have

    @property
    def nbytes(self) -> int:
        """Return the bytes that preparation leaves on the GPU."""
        return self.work.nbytes + sum(x.nbytes for x in self.own if x is not None)


def ordered(a: Csr, how: str) -> tuple[Any, Csr]:
    """(order, A in it): int32 (m,), row order[i] becomes row i, or None where `how` is ""; see `ORDERS`."""
    require(how in ORDERS, f"rows are ordered by {how!r}, but must be by one of {ORDERS}")
    return planning.similar(a) if how else (None, a)


def ascending(a: Csr) -> Csr:
    """Return a with the columns of each row in order, each once: A itself where they are."""
    if intake.facts_of(a).ascending:
        return a
    place, val = csr.sorted_sums(csr.rows(a) * a.k + a.col_idx, a.val)
    return Csr(a.m, a.k, csr.offsets(place, a.m, a.k), (place % a.k).astype(np.int32), val)


def pointer(array) -> int:
    """Where a CuPy array begins; 0 for None."""
    return 0 if array is None else array.data.ptr


def of_cut(source, entry: str, cut, pointers: tuple, c, m: int, device) -> list[tuple]:
    """Return the launch (kernel, config, arguments) of a kernel of cut_windows.cuh on the rows of cut windows.

    None without.

    entry: clear_cut, which clears them in C, of pointers to the order of rows (0: theirs) and to C, or round_cut, which
    rounds sums into C and leaves zeros, of pointers to both. c: CuPy (m, any), row-major.
    """
    from cuda.core import LaunchConfig

    if not len(cut):
        return []
    width = c.shape[1]
    blocks = min(MOST_BLOCKS, ceil(width / 256))  # beyond these, each goes on to further columns
    config = LaunchConfig(grid=(len(cut), blocks), block=256)
    return [(jit.loaded(source, entry, device), config, (cut.data.ptr, *pointers, np.int32(m), np.int32(width)))]
