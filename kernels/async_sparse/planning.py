"""What kernels for CSR want to know of a matrix on a GPU, and the matrix as they read it: planning.cu, launched.

Each function takes CuPy arrays, and is a launch or two on CuPy's current stream. CuPy's own operations would do as
well, in some hundred launches, each of a kernel that it compiles for a tenth of a second where it never ran before.
"""

import struct
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..contract import require
from ..formats import compress
from ..formats.csr import INT32_MAX, Csr
from ..formats.half import array_module
from ..workspace import MOST_BLOCKS, THREADS, On, ints

SOURCE = Path(__file__).with_name("planning.cu")
#: Bits of the least float32 that TF32 has no finite number for; those that no number has, but NaN.
_ROUNDED_TO_INFINITY, _NO_NUMBER = 0x7F7FF000, 0x7F800001
#: `Counts` of the source, and the end of `group_ptr`.
_COUNTS, _END = struct.Struct("3QIxxxx2i"), struct.Struct("I")


@dataclass(frozen=True)
class Tasks:
    """Which columns of which window, group or row a kernel multiplies; the arrays lie where A does."""

    table: Any  #: int32 (tasks, 4): window, first of its columns, the one past its last, -1 or its place in `cut`
    cut: Any  #: int32, the windows that have several tasks, ascending
    others: Any = None  #: int32, of each of these the tasks but the first one, where a kernel asks for it

    @property
    def count(self) -> int:
        """Return the number of tasks."""
        return int(self.table.shape[0])

    @property
    def nbytes(self) -> int:
        """Return the bytes of the tables on the GPU."""
        return sum(x.nbytes for x in (self.table, self.cut, self.others) if x is not None)


# ---------------------------------------------------------------- values


def splits(a: Csr) -> bool:
    """Whether 3xTF32 takes A's values: infinity, and what TF32 rounds to it, times B's rest is NaN where that is 0."""
    return not flags(a.val, _ROUNDED_TO_INFINITY)[0]


def holds_tf32(x) -> bool:
    """Whether TF32 holds every value of a float32 array."""
    return not flags(x, _NO_NUMBER)[1]


def flags(x, infinite: int):
    """(whether a magnitude, but NaN's, has these bits or more, whether TF32 does not hold a value); NumPy or CuPy."""
    if array_module(x) is np:
        bits = x.view(np.uint32)
        magnitude = bits & np.uint32(0x7FFFFFFF)
        return ((magnitude >= infinite) & (magnitude < _NO_NUMBER)).any(), (bits & np.uint32(0x1FFF)).any()
    import cupy

    found = cupy.zeros(2, np.int32)
    if x.size:
        with On(SOURCE) as on:
            on.on("values<0>", x.size, x, np.int64(x.size), np.uint32(infinite), found)
    return found.get()


def tf32(x):
    """Return a float32 array rounded to what TF32 holds, contiguous."""
    import cupy

    x = compress.contiguous(x)
    made = cupy.empty(x.shape, np.float32)
    with On(SOURCE) as on:
        on.on("rounded<0>", x.size, x, np.int64(x.size), made)
    return made


# ---------------------------------------------------------------- rows in another order, groups of rows


def similar(a: Csr) -> tuple[Any, Csr]:
    """(order, A in it) as `reorder.similar` has it: int32 (m,), row order[i] becomes row i."""
    import cupy

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
    import cupy

    with On(SOURCE, "firsts<0>", "group_ptr<0>", "count_tasks<0>", "grouped<0>", "tasks_in_blocks<0>") as on:
        first, begin = _groups(on, a, rows, 1)
        counts = _counted(on, begin, chunk, block)
        col_idx = cupy.empty(counts.columns, np.int32)
        val = cupy.zeros((counts.columns, rows), np.float32)
        on.launch("grouped<0>", a.nnz, a.row_ptr, a.col_idx, a.val, first, begin, *ints(a.m, a.nnz, rows), col_idx, val)
        return begin, col_idx, val, _made(on, begin, counts, block), counts.chunk


def sliced(a: Csr, rows: int, pad: int, exact: bool) -> tuple[Any, Any, Any]:
    """(row_ptr, col_idx, slices) of windows of `rows` rows, padded to `pad` columns, as windows.cu reads them.

    slices: float32 (columns / 8, 1 or, exact, 2, rows, 2, 4): values of 8 columns, a line of 32 bytes for each row of
    the window, whose halves change places where row // 4 is odd (32-byte swizzle); exact: values rounded to TF32, and
    their rests, rounded likewise. Columns of A ascend in every row.
    """
    import cupy

    parts = 1 + exact
    first, begin, columns = groups(a, rows, pad)
    with On(SOURCE) as on:
        col_idx = cupy.empty(columns, np.int32)
        col_idx.data.memset_async(0xFF, col_idx.nbytes)  # -1
        slices = cupy.zeros((columns // 8, parts, rows, 2, 4), np.float32)
        on.launch(
            "sliced<0>",
            a.nnz,
            a.row_ptr,
            a.col_idx,
            a.val,
            first,
            begin,
            *ints(a.m, a.nnz, rows, parts),
            col_idx,
            slices,
        )
    return begin, col_idx, slices


# ---------------------------------------------------------------- tasks


class _Counts(NamedTuple):
    """`Counts` of the source."""

    parts: int
    cut_parts: int
    room: int
    cuts: int
    columns: int
    chunk: int


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
    import cupy

    m, cuts, chunk = row_ptr.shape[0] - 1, counts.cuts, counts.chunk
    more = _without_row(counts, m) if block else 0
    table = cupy.empty((counts.parts + more, 4), np.int32)
    cut, others, rank = cupy.empty(cuts, np.int32), cupy.empty(cuts, np.int32), None
    if cuts:
        rank = on.scan("cut_rows<0>", m, row_ptr, *ints(m, chunk), cut)
    if block:
        begin = free = None
        if cuts:
            begin, free = cupy.empty(cuts, np.int32), cupy.empty(cuts + 1, np.int32)
            on.launch("cut_places<0>", 0, row_ptr, cut, *ints(cuts, chunk, block), begin, free, blocks=1, threads=1024)
        numbers = ints(cuts, counts.room, chunk)
        on.launch("tasks_in_blocks<0>", m + more, row_ptr, *ints(m), rank, *numbers, cut, begin, free, table)
    else:
        begin = on.scan("task_ranks<0>", m, row_ptr, *ints(m, chunk))
        on.launch("tasks_in_order<0>", m, row_ptr, *ints(m), begin, table)
    by_row = int(not block)
    on.launch("cut_tasks<0>", 0, row_ptr, cut, begin, *ints(by_row, chunk), table, others, blocks=cuts)
    if longest_first:
        count = counts.parts
        key, ordered = cupy.empty(count, np.uint64), cupy.empty((count, 4), np.int32)
        on.launch("task_keys<0>", count, table, *ints(count), key)
        on.launch("tasks_by_keys<0>", count, table, *ints(count), cupy.sort(key), ordered)
        table = ordered
    return Tasks(table, cut, others)
