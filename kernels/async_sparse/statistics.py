"""What of a matrix decides which kernel is the fastest: counts from a sort of its entries, on the host or a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..formats import csr, intake
from ..formats.csr import Csr
from ..formats.half import array_module
from . import tasks

HEIGHTS = intake.HEIGHTS  #: rows of a window or group
#: Odd factors of `fingerprint`.
_COLUMN, _PLACE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


@dataclass(frozen=True)
class Statistics:
    """Of an m x k matrix with nnz entries."""

    m: int
    k: int
    nnz: int
    longest: int  #: entries of the row that has most
    #: order of rows (`tasks.ORDERS`) -> for each of `HEIGHTS` the columns that windows of so many rows have together.
    columns: dict[str, tuple[int, ...]]
    ascending: bool = True  #: False: of some row columns do not ascend, or repeat, so groups of rows are costly to make

    def union(self, height: int, order: str = "") -> int:
        """Columns of all windows of `height` rows, one of `HEIGHTS`."""
        return self.columns[order][HEIGHTS.index(height)]

    def shared(self, height: int, order: str = "") -> float:
        """Entries that a column of a window has on average; 1 where rows share none, 0 for an empty matrix."""
        return self.nnz / max(1, self.union(height, order))


def statistics(a: Csr) -> Statistics:
    """Statistics of A, in both orders of its rows; NumPy or CuPy, where A lives; CuPy's by a sample of columns."""
    if array_module(a.val) is not np:
        columns = {how: intake.shared(tasks.ordered(a, how)[1]) for how in tasks.ORDERS}
        return Statistics(a.m, a.k, a.nnz, intake.facts_of(a).longest, columns)
    length = a.row_ptr[1:] - a.row_ptr[:-1]
    return Statistics(
        a.m,
        a.k,
        a.nnz,
        int(length.max()) if a.m else 0,
        {how: _unions(tasks.ordered(a, how)[1]) for how in tasks.ORDERS},
    )


def at_a_glance(a: Csr) -> Statistics:
    """Statistics of a matrix on a GPU in the order of its rows alone, by the sample that its facts have."""
    if array_module(a.val) is np:
        return statistics(a)
    facts = intake.facts_of(a)
    return Statistics(a.m, a.k, a.nnz, facts.longest, {"": facts.columns}, facts.ascending)


def _unions(a: Csr) -> tuple[int, ...]:
    if a.nnz == 0:
        return (0,) * len(HEIGHTS)
    most = HEIGHTS[-1]
    row = csr.rows(a)
    # By window of the highest kind, column and row: then a column of any lower window is a run as well.
    key = np.sort((row // most * a.k + a.col_idx) * most + row % most)
    return tuple(int(csr.changes(key // height).sum()) for height in HEIGHTS)


def fingerprint(a: Csr) -> str:
    """16 hexadecimal digits of where A's entries are: the key under which a choice for it is kept."""
    if array_module(a.val) is not np:
        return f"{intake.facts_of(a).fingerprint:016x}"
    place = np.arange(a.nnz, dtype=np.uint64)
    of_entries = _mixed((a.col_idx.astype(np.uint64) + np.uint64(1)) * _COLUMN ^ place * _PLACE)
    rows = np.arange(a.m + 1, dtype=np.uint64)
    of_rows = _mixed((a.row_ptr.astype(np.uint64) + np.uint64(1)) * _PLACE ^ rows * _COLUMN)
    total = int(of_entries.sum()) + 3 * int(of_rows.sum())
    return f"{total % 2**64:016x}"


def _mixed(x):
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
