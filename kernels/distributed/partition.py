"""Who has which rows of A, of B and of C.

    1D by rows, 4 parts          by columns, 4 parts           1.5D, 4 parts, 2 replicas
    A  ┌──────────┐  B ┌──┐      A  ┌──┬──┬──┬──┐  B ┌──┐      A  ┌────┬────┐   B ┌──┐
       │    0     │    │0 │         │  │  │  │  │    │0 │         │0   │1   │     │0 │ columns of 0 and 2
       ├──────────┤    ├──┤         │  │  │  │  │    ├──┤         │    │    │     │2 │
       │    1     │    │1 │         │0 │1 │2 │3 │    │1 │         ├────┼────┤     ├──┤
       ├──────────┤    ├──┤         │  │  │  │  │    ├──┤         │2   │3   │     │1 │ columns of 1 and 3
       │    …     │    │… │         │  │  │  │  │    │… │         │    │    │     │3 │
       └──────────┘    └──┘         └──┴──┴──┴──┘    └──┘         └────┴────┘     └──┘

All three are one grid of parts, `size / replicas` by `replicas`: rows of B travel among the parts of a column of the
grid, sums of C among those of a row. One replica is 1D by rows, as many as there are parts is 1D by columns.
"""

from dataclasses import dataclass

import numpy as np

from .. import formats
from ..contract import require, require_whole
from ..formats.csr import INT32_MAX
from ..formats.half import array_module

_MOST = 2**20
#: Non-zeros of a slab: half of what 32 bits count, so that a long row more does no harm.
SLAB = 1 << 30


@dataclass(frozen=True)
class Grid:
    """Where each of `size` parts is: row rank // replicas, column rank % replicas."""

    size: int
    replicas: int = 1

    def __post_init__(self):
        require_whole("the number of parts", self.size, 1, _MOST)
        require_whole("replicas", self.replicas, 1, _MOST)
        require(
            self.size % self.replicas == 0,
            f"replicas is {self.replicas}, but must divide the {self.size} parts",
        )

    @property
    def rows(self) -> int:
        """Return the number of rows of the grid."""
        return self.size // self.replicas

    def at(self, rank: int) -> tuple[int, int]:
        """(row, column) of a part."""
        return divmod(rank, self.replicas)


def even(size: int, parts: int, unit: int = 1) -> np.ndarray:
    """int64 (parts + 1,): `size` cut into ranges as long as each other but for one unit; edges are multiples of it."""
    units = -(-size // unit)
    edges = np.arange(parts + 1, dtype=np.int64) * units // parts * unit
    return np.minimum(edges, size)


def by_nonzeros(row_ptr, parts: int, *, row_cost: float = 1.0) -> np.ndarray:
    """int64 (parts + 1,): rows cut where the cost so far is nearest to each part's share.

    row_ptr: (m + 1,), on the host or a GPU; only its own side is used. A row costs its entries, each of which reads a
    row of B, and `row_cost` for the row of C that is written: parts of empty rows alone would not fit memory. No part
    costs more than its share and half of the longest row at each end.
    """
    xp = array_module(row_ptr)
    m = int(row_ptr.shape[0]) - 1
    if parts == 1:
        return np.array([0, m], np.int64)
    cost = row_ptr.astype(xp.float64) + row_cost * xp.arange(m + 1)
    share = xp.arange(1, parts) * (float(cost[-1]) / parts)
    after = xp.searchsorted(cost, share)
    before = xp.maximum(after - 1, 0)
    nearer = xp.where(share - cost[before] <= cost[xp.minimum(after, m)] - share, before, after)
    edges = np.zeros(parts + 1, np.int64)
    edges[1:-1] = formats.to_host(nearer)
    edges[-1] = m
    return np.maximum.accumulate(np.minimum(edges, m))


def slabs(row_ptr) -> list[tuple[int, int]]:
    """Ranges of rows, (first, past the last), with about as many entries each, `SLAB` at most but for half of a row.

    row_ptr: (m + 1,), from anywhere on, NumPy or CuPy. One range where 32 bits count all entries.
    """
    m = int(row_ptr.shape[0]) - 1
    nnz = int(row_ptr[-1]) - int(row_ptr[0])
    parts = 1 if nnz <= INT32_MAX else -(-nnz // SLAB)
    edges = by_nonzeros(row_ptr - row_ptr[0], parts, row_cost=0.0).tolist()
    return list(zip(edges, edges[1:], strict=False)) if parts > 1 else [(0, m)]


def end_of(row_ptr, begin: int, most: int) -> int:
    """Return the row past the last of those from `begin` on that have at most `most` entries, or of one row."""
    xp, m = array_module(row_ptr), int(row_ptr.shape[0]) - 1
    last = min(int(row_ptr[begin]) + most, np.iinfo(row_ptr.dtype).max)
    end = int(xp.searchsorted(row_ptr, xp.asarray([last], row_ptr.dtype), side="right")[0]) - 1
    return min(m, max(begin + 1, end))


def require_bounds(name: str, bounds, parts: int, size: int, unit: int = 1) -> np.ndarray:
    """Bounds as int64, or ValueError, one sentence: `parts` ranges that cover 0 to `size`, of whole units."""
    made = np.asarray(bounds, np.int64)
    require(
        made.shape == (parts + 1,) and made[0] == 0 and made[-1] == size,
        f"{name} cut {made.tolist()}, but must be {parts + 1} edges from 0 to {size}",
    )
    require(bool((np.diff(made) >= 0).all()), f"{name} cut {made.tolist()}, but edges must not fall")
    inner = made[1:-1][made[1:-1] < size]  # nothing is cut at the end, where a block may be short
    require(
        not bool((inner % unit).any()),
        f"{name} cut {made.tolist()}, but blocks of {unit} rows must stay whole",
    )
    return made
