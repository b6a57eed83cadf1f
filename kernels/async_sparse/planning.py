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
from typing import Any

import numpy as np

from ..contract import require
from ..formats import launches
from ..formats.csr import INT32_MAX, Csr

SOURCE = Path(__file__).with_name("planning.cu")
THREADS, _MOST_BLOCKS = launches.THREADS, launches.MOST_BLOCKS
HEIGHTS = 7  #: 1, 2, 4, … 64 rows
WINDOW = 64
FEW, ALL = 256, 2**20  #: windows of 64 rows that a sample looks at, at most
#: `Shared` and `Counts` of the source, and the end of `group_ptr`.
_SHARED, _COUNTS, _END = (struct.Struct(x) for x in (f"{HEIGHTS}Q", "3QI", "I"))


class _On(launches.On):
    def __init__(self):
        super().__init__(SOURCE)

    def launch(self, entry: str, *arguments, **options) -> None:
        super().launch(f"{entry}<0>", *arguments, **options)


_ints = launches.ints


# ---------------------------------------------------------------- statistics


def shared(a: Csr, windows: int = ALL) -> tuple[int, ...]:
    """Columns that groups of 1, 2, 4, … 64 rows have together, by a sample of so many windows of 64 rows at most.

    Right where every window is looked at and has a thousand entries at most; else by a sample of its columns.
    """
    if a.nnz == 0:
        return (0,) * HEIGHTS
    blocks = min(ceil(a.m / WINDOW), windows)
    with _On() as on:
        on.launch(
            "sample", 0, a.row_ptr, a.col_idx, *_ints(a.m, a.nnz), on.work.sums, on.work.found, blocks=blocks
        )  # fmt: skip
        columns = on.found(_SHARED)
    scale = a.nnz / max(1, columns[0])
    return tuple(round(x * scale) for x in columns)


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
        on.launch(
            "permuted", a.nnz, a.row_ptr, a.col_idx, a.val, order, row_ptr, *_ints(a.m, a.nnz), col_idx, val
        )  # fmt: skip
    return order, Csr(a.m, a.k, row_ptr, col_idx, val)


def _groups(on: _On, a: Csr, rows: int, pad: int) -> tuple[Any, Any, int]:
    """(firsts, where groups begin, columns of all)."""
    first = on.scan("firsts", a.nnz, a.row_ptr, a.col_idx, *_ints(a.m, a.nnz, rows))
    begin = on.scan(
        "group_ptr", ceil(a.m / rows), a.row_ptr, first, *_ints(a.m, rows, pad), on.work.found
    )
    return first, begin, on.found(_END)[0] if a.m else 0


def groups(a: Csr, rows: int) -> tuple[Any, Any, int]:
    """(firsts, where groups of `rows` rows begin, columns of all), as planning.cu's kernels have them.

    firsts: int32 (nnz + 1,), entries before each that are the first of their column in their group. Columns of A ascend
    in every row; its values are not looked at.
    """
    with _On() as on:
        return _groups(on, a, rows, 1)


def grouped(a: Csr, rows: int) -> tuple[Any, Any, Any]:
    """(row_ptr, col_idx, val) of groups of `rows` rows over the union of their columns; val: float32 (columns, rows).

    Columns of A ascend in every row, and none repeats.
    """
    import cupy

    with _On() as on:
        first, begin, columns = _groups(on, a, rows, 1)
        col_idx, val = cupy.empty(columns, np.int32), cupy.zeros((columns, rows), np.float32)
        on.launch(
            "grouped", a.nnz, a.row_ptr, a.col_idx, a.val, first, begin, *_ints(a.m, a.nnz, rows), col_idx, val
        )  # fmt: skip
    return begin, col_idx, val


def sliced(a: Csr, rows: int, pad: int, exact: bool) -> tuple[Any, Any, Any]:
    """(row_ptr, col_idx, slices) of windows of `rows` rows, padded to `pad` columns, as windows.cu reads them.

    slices: float32 (columns / 8, 1 or, exact, 2, rows, 2, 4), `windows.slices_of`. Columns of A ascend in every row.
    """
    import cupy

    parts = 1 + exact
    with _On() as on:
        first, begin, columns = _groups(on, a, rows, pad)
        col_idx = cupy.empty(columns, np.int32)
        col_idx.data.memset_async(0xFF, col_idx.nbytes)  # -1
        slices = cupy.zeros((columns // 8, parts, rows, 2, 4), np.float32)
        on.launch(
            "sliced", a.nnz, a.row_ptr, a.col_idx, a.val, first, begin, *_ints(a.m, a.nnz, rows, parts),
            col_idx, slices,
        )  # fmt: skip
    return begin, col_idx, slices


# ---------------------------------------------------------------- tasks


@dataclass(frozen=True)
class Table:
    """What `tasks.Tasks` holds, and of each cut row the tasks but the first one."""

    table: Any  #: int32 (tasks, 4)
    cut: Any  #: int32 (cut rows,)
    others: Any  #: int32 (cut rows,)


def tasks(row_ptr, chunk: int, *, block: int = 0, longest_first: bool = False) -> Table:
    """Rows, groups or windows cut evenly into tasks of at most `chunk` columns: `tasks.tasks` and `tasks.in_blocks`.

    row_ptr: int32 (rows + 1,). block: in the order for blocks of so many tasks, a power of 2; 0: row after row, or
    longest_first. Raises ValueError, one sentence, where there are too many.
    """
    import cupy

    m = int(row_ptr.shape[0]) - 1
    if m == 0:
        nothing = cupy.empty(0, np.int32)
        return Table(cupy.empty((0, 4), np.int32), nothing, nothing)
    with _On() as on:
        on.launch(
            "count_tasks", 0, row_ptr, *_ints(m, chunk, max(block, 1)), on.work.sums, on.work.found,
            blocks=min(_MOST_BLOCKS, ceil(m / THREADS)),
        )  # fmt: skip
        parts, cut_parts, room, cuts = on.found(_COUNTS)
        spare = room - cut_parts if block else 0
        count = parts + max(0, spare - (m - cuts))
        require(
            count <= INT32_MAX,
            f"windows make {count} tasks, but kernels count up to {INT32_MAX}: use longer ones",
        )
        table = cupy.empty((count, 4), np.int32)
        cut, others = cupy.empty(cuts, np.int32), cupy.empty(cuts, np.int32)
        rank = on.scan("cut_ranks", m, row_ptr, *_ints(m, chunk)) if cuts else None
        if cuts:
            on.launch("cut_rows", m, rank, *_ints(m), cut)
        if block:
            begin = free = None
            if cuts:
                begin, free = cupy.empty(cuts, np.int32), cupy.empty(cuts + 1, np.int32)
                on.launch(
                    "cut_places", 0, row_ptr, cut, *_ints(cuts, chunk, block), begin, free, blocks=1, threads=1024
                )  # fmt: skip
                on.launch(
                    "cut_tasks",
                    0,
                    row_ptr,
                    cut,
                    begin,
                    *_ints(0, chunk),
                    table,
                    others,
                    blocks=cuts,
                )
            on.launch(
                "tasks_in_blocks", m + max(0, spare - (m - cuts)), row_ptr, *_ints(m), rank, *_ints(cuts, room, chunk),
                cut, begin, free, table,
            )  # fmt: skip
            return Table(table, cut, others)
        at = on.scan("task_ranks", m, row_ptr, *_ints(m, chunk))
        on.launch("tasks_in_order", m, row_ptr, *_ints(m), at, table)
        if cuts:
            on.launch(
                "cut_tasks", 0, row_ptr, cut, at, *_ints(1, chunk), table, others, blocks=cuts
            )
        if longest_first:
            key, ordered = cupy.empty(count, np.uint64), cupy.empty((count, 4), np.int32)
            on.launch("task_keys", count, table, *_ints(count), key)
            key = cupy.sort(key)
            on.launch("tasks_by_keys", count, table, *_ints(count), key, ordered)
            table = ordered
    return Table(table, cut, others)
