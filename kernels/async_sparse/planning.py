"""What kernels for CSR want to know of a matrix on a GPU, and the matrix as they read it: planning.cu, launched.

CuPy's own operations would do as well, in some hundred launches, each of a kernel that it compiles for a tenth of a
second where it never ran before. Tasks say which columns of which row, group or window a block multiplies; large
windows are cut into several (section III-C):

    row_ptr  0    160   160    200      chunk 128, fixed        chunk 128, even
             │ 0   │ 1   │  2   │          0   0 128  cut 0        0   0  96  cut 0
                                           0 128 160  cut 0        0  96 160  cut 0
                                           1 160 160  -1           1 160 160  -1
                                           2 160 200  -1           2 160 200  -1

Tasks of one window add to the same rows of C; who has a window alone stores it, zeros where it is empty.
"""

import struct
from collections import namedtuple
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import formats
from ..contract import require, step
from ..formats import compress, csr, half, intake
from ..formats.csr import INT32_MAX, Csr
from ..formats.half import array_module
from ..lazy import cupy
from ..workspace import MOST_BLOCKS, THREADS, On, ints

SOURCE = Path(__file__).with_name("planning.cu")
INFINITE = 0x7F7FF000  #: bits of the least float32 that TF32 has no finite number for
#: `Counts` of the source, and the end of `group_ptr`.
_COUNTS, _END = struct.Struct("3QIxxxx2i"), struct.Struct("I")
_Counts = namedtuple("_Counts", "parts cut_parts room cuts columns chunk")
STEP = 32  #: columns: parts of equal size are multiples of it
MOST_PANELS = 65_535  #: blocks in the second dimension of a grid
ORDERS = ("", "similar")  #: of rows: as they come, or those with common columns side by side
#: What the instantiation of a kernel that adds up in order ends with: the types of the arguments of `slots`.
IN_ORDER = ("const Parts*", "unsigned*", "int", "float*")


@dataclass(frozen=True)
class Tasks:
    """Which columns of which window, group or row a kernel multiplies; the arrays lie where A does."""

    table: Any  #: int32 (tasks, 4): window, first of its columns, the one past its last, -1 or its place in `cut`
    cut: Any  #: int32, the windows that have several tasks, ascending
    others: Any = None  #: int32, of each of these the tasks but the first one, where a kernel asks for it

    @property
    def nbytes(self) -> int:
        """Return the bytes of the tables on the GPU."""
        return bytes_of((self.table, self.cut, self.others))


def bytes_of(arrays) -> int:
    """Return the bytes of arrays; numbers and None have none."""
    return sum(x.nbytes for x in arrays if getattr(x, "ndim", 0))


@dataclass(frozen=True)
class Prepared:
    """A on the GPU as union_rows.cu and windows.cu read it."""

    order: Any  #: int32 (m,), row order[i] of A is row i of the groups or windows; None: the same
    col_idx: Any  #: int32 (columns,)
    values: Any  #: float32: (columns, rows of a group), or as `sliced` has them
    work: Tasks
    parts: np.ndarray | None  #: as `parts` has them, where they are added up in order, and that makes a difference
    nbytes: int  #: that preparation leaves on the GPU


# ---------------------------------------------------------------- values


def flags(x):
    """(whether a value is infinite, or TF32 rounds it to that, whether TF32 does not hold a value); NumPy or CuPy."""
    if array_module(x) is np:
        bits = x.view(np.uint32)
        magnitude = bits & np.uint32(0x7FFFFFFF)
        return ((magnitude >= INFINITE) & (magnitude <= 0x7F800000)).any(), (bits & np.uint32(0x1FFF)).any()
    found = cupy.zeros(2, np.int32)
    with On(SOURCE) as on:
        on.on("values<0>", x.size, x, np.int64(x.size), np.uint32(INFINITE), found)
    return found.get()


def tf32(x):
    """float32 rounded to what TF32 holds, to the nearest, halves away from zero; NaN is NaN. NumPy or CuPy."""
    if array_module(x) is np:
        bits = np.ascontiguousarray(x).view(np.uint32) + np.uint32(0x1000)
        rounded = (bits & np.uint32(0xFFFFE000)).view(np.float32)
        return np.where(np.isnan(x), np.float32(np.nan), rounded)  # a carry would make it 0 or infinity
    made = cupy.empty(x.shape, np.float32)
    with On(SOURCE) as on:
        on.on("rounded<0>", x.size, compress.contiguous(x), np.int64(x.size), made)
    return made


# ---------------------------------------------------------------- rows in another order, groups of rows


def ascending(a: Csr) -> Csr:
    """Return a with the columns of each row in order, each once: A itself where they are."""
    if intake.facts_of(a).ascending:
        return a
    place, val = csr.sorted_sums(csr.rows(a) * a.k + a.col_idx, a.val)
    return Csr(a.m, a.k, csr.offsets(place, a.m, a.k), (place % a.k).astype(np.int32), val)


def ordered(a: Csr, how: str) -> tuple[Any, Csr]:
    """(order, A in it): int32 (m,), row order[i] becomes row i, or None where `how` is ""; see `ORDERS`."""
    require(how in ORDERS, f"rows are ordered by {how!r}, but must be by one of {ORDERS}")
    return similar(a) if how else (None, a)


def similar(a: Csr) -> tuple[Any, Csr]:
    """(order, A in it) as `reorder.similar` has it: int32 (m,), row order[i] becomes row i."""
    order = cupy.empty(a.m, np.int32)
    with On(SOURCE) as on:
        key = cupy.empty(a.m, np.uint64)
        on.launch("similar<0>", 8 * a.m, a.row_ptr, a.col_idx, *ints(a.m), key)
        by_key = cupy.argsort(key, kind="stable")
        row_ptr = on.scan("permuted_ptr<0>", a.m, a.row_ptr, by_key, *ints(a.m), order)
        col_idx, val = cupy.empty(a.nnz, np.int32), cupy.empty(a.nnz, np.float32)
        on.launch("permuted<0>", a.nnz, a.row_ptr, a.col_idx, a.val, order, row_ptr, *ints(a.m, a.nnz), col_idx, val)
    return order, Csr(a.m, a.k, row_ptr, col_idx, val)


def _groups(on: On, a: Csr, rows: int, pad: int) -> tuple[Any, Any]:
    """(firsts, where groups begin); how many columns all have is on its way to the host."""
    first = on.scan("firsts<0>", a.nnz, a.row_ptr, a.col_idx, *ints(a.m, a.nnz, rows))
    begin = on.scan("group_ptr<0>", ceil(a.m / rows), a.row_ptr, first, *ints(a.m, rows, pad), on.work.found)
    return first, begin


def groups(a: Csr, rows: int, pad: int = 1) -> tuple[Any, Any, int]:
    """(firsts, where groups of `rows` rows begin, columns of all), as planning.cu's kernels have them.

    firsts: int32 (nnz + 1,), entries before each that are the first of their column in their group. pad: what a group's
    columns are a multiple of. Columns of A ascend in every row; its values are not looked at.
    """
    with On(SOURCE) as on:
        first, begin = _groups(on, a, rows, pad)
        return first, begin, on.found(_END)[0] if a.m else 0


def grouped(a: Csr, rows: int, chunk: int, block: int) -> tuple[Any, Any, Any, Tasks, int]:
    """(row_ptr, col_idx, val) of groups of `rows` rows over the union of their columns, and their `tasks` for blocks.

    val: float32 (columns, rows). The last one: columns of a task at most. Columns of A ascend in every row, and none
    repeats. One wait, for the columns and for the tasks.
    """
    with On(SOURCE, "firsts<0>", "group_ptr<0>", "count_tasks<0>", "grouped<0>", "tasks_in_blocks<0>") as on:
        first, begin = _groups(on, a, rows, 1)
        counts = _counted(on, begin, chunk, block)
        col_idx = cupy.empty(counts.columns, np.int32)
        val = cupy.zeros((counts.columns, rows), np.float32)
        on.launch("grouped<0>", a.nnz, a.row_ptr, a.col_idx, a.val, first, begin, *ints(a.m, a.nnz, rows), col_idx, val)
        return begin, col_idx, val, _made(on, begin, counts, block), counts.chunk


def sliced(a: Csr, rows: int, dtype: str, exact: bool) -> tuple[Any, Any, Any]:
    """(row_ptr, col_idx, slices) of windows of `rows` rows, padded to whole slices, as windows.cu reads them.

    slices: float32 (columns / 8, 1 or, exact, 2, rows, 2, 4): values of 8 columns, a line of 32 bytes for each row of
    the window, whose halves change places where row // 4 is odd (32-byte swizzle); exact: values rounded to TF32, and
    their rests, rounded likewise. dtype: of 16 bits: bit patterns of 16 columns, (columns / 16, 1, rows, 2, 8);
    "tf32": float32. Columns of A ascend in every row.
    """
    parts, in_half = 1 + exact, dtype in half.DTYPES
    pad, kind = (16, "unsigned short") if in_half else (8, "float")
    val = half.to_bits(a.val, dtype) if in_half else a.val
    first, begin, columns = groups(a, rows, pad)
    with On(SOURCE) as on:
        col_idx = cupy.empty(columns, np.int32)
        col_idx.data.memset_async(0xFF, col_idx.nbytes)  # -1
        slices = cupy.zeros((columns // pad, parts, rows, 2, pad // 2), val.dtype)
        on.launch(
            f"sliced<{kind}>",
            a.nnz,
            a.row_ptr,
            a.col_idx,
            val,
            first,
            begin,
            *ints(a.m, a.nnz, rows, parts),
            col_idx,
            slices,
        )
    return begin, col_idx, slices


# ---------------------------------------------------------------- tasks


def _counted(on: On, row_ptr, chunk: int, block: int) -> _Counts:
    """How many tasks there are; waits for the stream."""
    m = row_ptr.shape[0] - 1
    if m == 0:
        return _Counts(0, 0, 0, 0, 0, max(chunk, 0))
    on.launch(
        "count_tasks<0>",
        0,
        row_ptr,
        *ints(m, chunk, max(block, 1)),
        on.work.sums,
        on.work.found,
        blocks=min(MOST_BLOCKS, ceil(m / THREADS)),
    )
    counts = _Counts(*on.found(_COUNTS))
    count = counts.parts + _without_row(counts, m) * (block > 0)
    require(
        count <= INT32_MAX,
        f"windows make {count} tasks, but kernels count up to {INT32_MAX}: use longer ones",
    )
    return counts


def _without_row(counts: _Counts, m: int) -> int:
    """Tasks of no row, where there are fewer whole rows than systems of cut ones have left."""
    return max(0, counts.room - counts.cut_parts - (m - counts.cuts))


def tasks(row_ptr, chunk: int, *, block: int = 0, longest_first: bool = False) -> tuple[Tasks, int]:
    """Rows, groups or windows cut evenly into tasks of at most `chunk` columns, and this number.

    row_ptr: int32 (rows + 1,). chunk: 0: none is cut; below 0: -chunk times what rows have on average. block: in the
    order for blocks of so many tasks, a power of 2; 0: row after row, or longest_first. Raises ValueError, one
    sentence, where there are too many.

    Parts of a row add to its first one, so a block waits for the one before it where a row goes on from one to the
    next; where many rows are cut, as in a graph's heavy ones, blocks then wait in a chain. So a cut row of up to a
    block's tasks lies in one block, a longer one begins with a block, the longest come first, and tasks of whole rows
    fill what is left over, or tasks of no row and no column where there are too few of these. Blocks of a smaller power
    of 2 do as well.
    """
    with On(SOURCE, "count_tasks<0>", "tasks_in_blocks<0>" if block else "tasks_in_order<0>") as on:
        counts = _counted(on, row_ptr, chunk, block)
        return _made(on, row_ptr, counts, block, longest_first), counts.chunk


def _made(on: On, row_ptr, counts: _Counts, block: int, longest_first: bool = False) -> Tasks:
    m, cuts, chunk = row_ptr.shape[0] - 1, counts.cuts, counts.chunk
    more = _without_row(counts, m) if block else 0
    table = cupy.empty((counts.parts + more, 4), np.int32)
    cut, others = cupy.empty(cuts, np.int32), cupy.empty(cuts, np.int32)
    rank = on.scan("cut_rows<0>", m, row_ptr, *ints(m, chunk), cut) if cuts else None
    if block:
        begin, free = cupy.empty(cuts, np.int32), cupy.empty(cuts + 1, np.int32)
        places = row_ptr, cut, *ints(cuts, chunk, block), begin, free
        on.launch("cut_places<0>", 0, *places, blocks=min(cuts, 1), threads=1024)
        numbers = ints(cuts, counts.room, chunk)
        on.launch("tasks_in_blocks<0>", m + more, row_ptr, *ints(m), rank, *numbers, cut, begin, free, table)
    else:
        begin = on.scan("task_ranks<0>", m, row_ptr, *ints(m, chunk))
        on.launch("tasks_in_order<0>", m, row_ptr, *ints(m), begin, table)
    on.launch("cut_tasks<0>", 0, row_ptr, cut, begin, *ints(not block, chunk), table, others, blocks=cuts)
    if longest_first:
        key, by_length = cupy.empty(counts.parts, np.uint64), cupy.empty((counts.parts, 4), np.int32)
        on.launch("task_keys<0>", counts.parts, table, *ints(counts.parts), key)
        on.launch("tasks_by_keys<0>", counts.parts, table, *ints(counts.parts), cupy.sort(key), by_length)
        table = by_length
    return Tasks(table, cut, others)


def fixed_tasks(row_ptr, chunk: int) -> Tasks:
    """Windows cut into tasks of `chunk` columns but the last one of each, as the source has it; 0: none is cut.

    row_ptr: int32 (windows + 1,), of a `Wcsr`; NumPy or CuPy. `tasks` cuts evenly. Raises ValueError, one
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
    total = int(parts.sum())
    require(
        total <= INT32_MAX,
        f"windows make {total} tasks, but kernels count up to {INT32_MAX}: use longer ones",
    )
    ends = xp.cumsum(parts)
    window = xp.searchsorted(ends, xp.arange(total), side="right")
    begin = first[window] + (xp.arange(total) - (ends - parts)[window]) * size
    place = xp.where(parts > 1, xp.cumsum(parts > 1, dtype=xp.int64) - 1, -1)
    table = xp.stack([window, begin, xp.minimum(begin + size, last[window]), place[window]], axis=1)
    return Tasks(table.astype(xp.int32), xp.flatnonzero(parts > 1).astype(xp.int32))


def parts(row_ptr, cut, chunk: int, most: int = 2) -> np.ndarray | None:
    """Return the parts of the windows `cut` that `tasks(row_ptr, chunk)` makes, on the host, for in_order.cuh.

    int32 (cut windows, 4): first slot, parts, first column, columns of each part but the last. Each part has a slot for
    its sums, those of a window side by side. None where no window has more than `most`: the sum of two is the same
    either way round. row_ptr: int32 (windows + 1,); cut: `Tasks.cut`; NumPy or CuPy. Raises ValueError where slots are
    too many.
    """
    # As long as there are rows, at most, and no GPU has to compile anything for it.
    edges, which = (formats.to_host(x).astype(np.int64) for x in (row_ptr, cut))
    first = edges[which]
    length = edges[which + 1] - first
    count = -(-length // max(chunk, 1))
    size = -(-length // (count * STEP)) * STEP
    slot = np.cumsum(count) - count
    require(
        count.sum() <= INT32_MAX,
        f"cut windows have {count.sum()} parts, but kernels count up to {INT32_MAX}: use longer ones",
    )
    return np.stack([slot, count, first, size], axis=1).astype(np.int32) if count.max(initial=0) > most else None


def slots(of: np.ndarray | None, strips: int, window: int, width: int, always: bool = False) -> tuple:
    """Return what a kernel's arguments end with to add up parts in one order; without parts none, or empty ones.

    strips: ranges of columns of C that different warps add up. always: of a kernel that has no other way. Launches
    write the second array and the last one.
    """
    if of is None and not always:
        return ()
    of = np.empty((0, 4), np.int32) if of is None else of
    count = np.int32(of[:, 1].sum())
    sums = cupy.empty((count, window, width), cupy.float32)
    return cupy.asarray(of), cupy.zeros((strips, count), cupy.uint32), count, sums


def of_cut(source: Path, entry: str, cut, first, c, m: int, device) -> list[tuple]:
    """Return the launch (kernel, config, arguments) of a kernel of cut_windows.cuh on the rows of cut windows.

    None without.

    entry: clear_cut, which clears them in C, or round_cut, which rounds sums into C and leaves zeros. first: the order
    of rows (None: theirs), or the sums. c: CuPy (m, any), row-major.
    """
    width = c.shape[1]
    # Beyond the most blocks, each goes on to further columns.
    grid = len(cut), min(MOST_PANELS, ceil(width / 256))
    return [step((source, entry), device, grid, 256, (cut, first, c, m, width))] if len(cut) else []
