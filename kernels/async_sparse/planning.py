"""What kernels for CSR want to know of a matrix on a GPU, and the matrix as they read it: planning.cu, launched.

Each function does what its namesake for NumPy does (`statistics`, `reorder`, `wcsr`, `tasks`), for CuPy arrays, in a
launch or two on CuPy's current stream. CuPy's own operations would do as well, in some hundred launches, each of a
kernel that it compiles for a tenth of a second where it never ran before.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..contract import require
from ..formats import launches
from ..formats.csr import INT32_MAX, Csr

SOURCE = Path(__file__).with_name("planning.cu")
THREADS, _MOST_BLOCKS = launches.THREADS, launches.MOST_BLOCKS
#: `Counts` of the source, and the end of `group_ptr`.
_COUNTS, _END = struct.Struct("3QIxxxx2i"), struct.Struct("I")


class _On(launches.On):
    def __init__(self, *names: str):
        super().__init__(SOURCE, *(f"{name}<0>" for name in names))

    def launch(self, entry: str, *arguments, **options) -> None:
        super().launch(f"{entry}<0>", *arguments, **options)


_ints = launches.ints


# ---------------------------------------------------------------- values


def splits(a: Csr, infinite: np.uint32) -> bool:
    """Whether no value's magnitude has these bits or more, but for NaN."""
    return not _flags(a.val, infinite)[0]


def holds_tf32(x) -> bool:
    """Whether TF32 holds every value of a float32 array."""
    return not _flags(x, np.uint32(0x7F800001))[1]


def _flags(x, infinite) -> tuple[bool, bool]:
    import cupy

    if x.size == 0:
        return False, False
    flags = cupy.zeros(2, np.int32)
    with _On() as on:
        blocks = min(_MOST_BLOCKS, ceil(x.size / THREADS))
        on.launch("values", 0, x, np.int64(x.size), np.uint32(infinite), flags, blocks=blocks)
    large, longer = flags.get()
    return bool(large), bool(longer)


def tf32(x):
    """A float32 array rounded to what TF32 holds, contiguous."""
    import cupy

    x = cupy.ascontiguousarray(x)
    made = cupy.empty(x.shape, np.float32)
    with _On() as on:
        blocks = min(_MOST_BLOCKS, ceil(x.size / THREADS))
        on.launch("rounded", 0, x, np.int64(x.size), made, blocks=blocks)
    return made


# ---------------------------------------------------------------- rows in another order, groups of rows


def similar(a: Csr) -> tuple[Any, Csr]:
    """(order, A in it) as `reorder.similar` has it: int32 (m,), row order[i] becomes row i."""
    import cupy

    order = cupy.empty(a.m, np.int32)
    with _On() as on:
        key = cupy.empty(a.m, np.uint64)
        on.launch("similar", 8 * a.m, a.row_ptr, a.col_idx, *_ints(a.m), key)
        by_key = cupy.argsort(key, kind="stable")
        row_ptr = on.scan("permuted_ptr", a.m, a.row_ptr, by_key, *_ints(a.m), order)
        col_idx, val = cupy.empty(a.nnz, np.int32), cupy.empty(a.nnz, np.float32)
        on.launch("permuted", a.nnz, a.row_ptr, a.col_idx, a.val, order, row_ptr, *_ints(a.m, a.nnz), col_idx, val)
    return order, Csr(a.m, a.k, row_ptr, col_idx, val)


def _groups(on: _On, a: Csr, rows: int, pad: int) -> tuple[Any, Any]:
    """(firsts, where groups begin); how many columns all have is on its way to the host."""
    first = on.scan("firsts", a.nnz, a.row_ptr, a.col_idx, *_ints(a.m, a.nnz, rows))
    begin = on.scan("group_ptr", ceil(a.m / rows), a.row_ptr, first, *_ints(a.m, rows, pad), on.work.found)
    return first, begin


def groups(a: Csr, rows: int, pad: int = 1) -> tuple[Any, Any, int]:
    """(firsts, where groups of `rows` rows begin, columns of all), as planning.cu's kernels have them.

    firsts: int32 (nnz + 1,), entries before each that are the first of their column in their group. pad: what a group's
    columns are a multiple of. Columns of A ascend in every row; its values are not looked at.
    """
    with _On() as on:
        first, begin = _groups(on, a, rows, pad)
        return first, begin, on.found(_END)[0] if a.m else 0


def grouped(a: Csr, rows: int, chunk: int, block: int) -> tuple[Any, Any, Any, Table, int]:
    """(row_ptr, col_idx, val) of groups of `rows` rows over the union of their columns, and their `tasks` for blocks.

    val: float32 (columns, rows). The last one: columns of a task at most. Columns of A ascend in every row, and none
    repeats. One wait, for the columns and for the tasks.
    """
    import cupy

    with _On("firsts", "group_ptr", "count_tasks", "grouped", "tasks_in_blocks") as on:
        first, begin = _groups(on, a, rows, 1)
        counts = _counted(on, begin, chunk, block)
        col_idx = cupy.empty(counts.columns, np.int32)
        val = cupy.zeros((counts.columns, rows), np.float32)
        on.launch("grouped", a.nnz, a.row_ptr, a.col_idx, a.val, first, begin, *_ints(a.m, a.nnz, rows), col_idx, val)
        return begin, col_idx, val, _in_blocks(on, begin, counts, block), counts.chunk


def sliced(a: Csr, rows: int, pad: int, exact: bool) -> tuple[Any, Any, Any]:
    """(row_ptr, col_idx, slices) of windows of `rows` rows, padded to `pad` columns, as windows.cu reads them.

    slices: float32 (columns / 8, 1 or, exact, 2, rows, 2, 4), `windows.slices_of`. Columns of A ascend in every row.
    """
    import cupy

    parts = 1 + exact
    first, begin, columns = groups(a, rows, pad)
    with _On() as on:
        col_idx = cupy.empty(columns, np.int32)
        col_idx.data.memset_async(0xFF, col_idx.nbytes)  # -1
        slices = cupy.zeros((columns // 8, parts, rows, 2, 4), np.float32)
        on.launch(
            "sliced",
            a.nnz,
            a.row_ptr,
            a.col_idx,
            a.val,
            first,
            begin,
            *_ints(a.m, a.nnz, rows, parts),
            col_idx,
            slices,
        )
    return begin, col_idx, slices


# ---------------------------------------------------------------- tasks


@dataclass(frozen=True)
class Table:
    """What `tasks.Tasks` holds, and of each cut row the tasks but the first one."""

    table: Any  #: int32 (tasks, 4)
    cut: Any  #: int32 (cut rows,)
    others: Any  #: int32 (cut rows,)


class _Counts(NamedTuple):
    """`Counts` of the source."""

    parts: int
    cut_parts: int
    room: int
    cuts: int
    columns: int
    chunk: int


def _counted(on: _On, row_ptr, chunk: int, block: int) -> _Counts:
    """How many tasks there are; waits for the stream."""
    m = row_ptr.shape[0] - 1
    if m == 0:
        return _Counts(0, 0, 0, 0, 0, max(chunk, 0))
    on.launch(
        "count_tasks",
        0,
        row_ptr,
        *_ints(m, chunk, max(block, 1)),
        on.work.sums,
        on.work.found,
        blocks=min(_MOST_BLOCKS, ceil(m / THREADS)),
    )
    counts = _Counts(*on.found(_COUNTS))
    count = counts.parts + _without_row(counts, m) * (block > 0)
    require(
        count <= INT32_MAX,
        f"windows make {count} tasks, but kernels count up to {INT32_MAX}: use longer ones",
    )
    return counts


def _without_row(counts: _Counts, m: int) -> int:
    """Tasks of no row, where there are fewer whole rows than rooms of cut ones have left."""
    return max(0, counts.room - counts.cut_parts - (m - counts.cuts))


def tasks(row_ptr, chunk: int, *, block: int = 0, longest_first: bool = False) -> tuple[Table, int]:
    """Rows, groups or windows cut evenly into tasks of at most `chunk` columns: `tasks.tasks` and `tasks.in_blocks`.

    row_ptr: int32 (rows + 1,). chunk: 0: none is cut; below 0: -chunk times what rows have on average. block: in the
    order for blocks of so many tasks, a power of 2; 0: row after row, or longest_first. The second one: columns of a
    task at most. Raises ValueError, one sentence, where there are too many.
    """
    with _On("count_tasks", "tasks_in_blocks" if block else "tasks_in_order") as on:
        counts = _counted(on, row_ptr, chunk, block)
        if block:
            return _in_blocks(on, row_ptr, counts, block), counts.chunk
        return _in_rows(on, row_ptr, counts, longest_first), counts.chunk


def _cut(on: _On, row_ptr, counts: _Counts) -> tuple[Any, Any, Any]:
    """(ranks of rows among the cut ones, cut rows, room for `others`)."""
    import cupy

    m, cuts = row_ptr.shape[0] - 1, counts.cuts
    cut, others = cupy.empty(cuts, np.int32), cupy.empty(cuts, np.int32)
    if not cuts:
        return None, cut, others
    return on.scan("cut_rows", m, row_ptr, *_ints(m, counts.chunk), cut), cut, others


def _in_blocks(on: _On, row_ptr, counts: _Counts, block: int) -> Table:
    import cupy

    m, cuts, chunk = row_ptr.shape[0] - 1, counts.cuts, counts.chunk
    more = _without_row(counts, m)
    table = cupy.empty((counts.parts + more, 4), np.int32)
    rank, cut, others = _cut(on, row_ptr, counts)
    begin = free = None
    if cuts:
        begin, free = cupy.empty(cuts, np.int32), cupy.empty(cuts + 1, np.int32)
        on.launch("cut_places", 0, row_ptr, cut, *_ints(cuts, chunk, block), begin, free, blocks=1, threads=1024)
        on.launch("cut_tasks", 0, row_ptr, cut, begin, *_ints(0, chunk), table, others, blocks=cuts)
    on.launch(
        "tasks_in_blocks", m + more, row_ptr, *_ints(m), rank, *_ints(cuts, counts.room, chunk), cut, begin, free, table
    )
    return Table(table, cut, others)


def _in_rows(on: _On, row_ptr, counts: _Counts, longest_first: bool) -> Table:
    import cupy

    m, cuts, chunk = row_ptr.shape[0] - 1, counts.cuts, counts.chunk
    table = cupy.empty((counts.parts, 4), np.int32)
    _, cut, others = _cut(on, row_ptr, counts)
    at = on.scan("task_ranks", m, row_ptr, *_ints(m, chunk))
    on.launch("tasks_in_order", m, row_ptr, *_ints(m), at, table)
    if cuts:
        on.launch("cut_tasks", 0, row_ptr, cut, at, *_ints(1, chunk), table, others, blocks=cuts)
    if longest_first:
        count = counts.parts
        key, ordered = cupy.empty(count, np.uint64), cupy.empty((count, 4), np.int32)
        on.launch("task_keys", count, table, *_ints(count), key)
        key = cupy.sort(key)
        on.launch("tasks_by_keys", count, table, *_ints(count), key, ordered)
        table = ordered
    return Table(table, cut, others)
