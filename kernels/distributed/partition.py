"""Who has which rows of A, of B and of C, which rows of B travel, and what is multiplied while they do.

    1D by rows, 4 parts          by columns, 4 parts           1.5D, 4 parts, 2 replicas
    A  ┌──────────┐  B ┌──┐      A  ┌──┬──┬──┬──┐  B ┌──┐      A  ┌────┬────┐   B ┌──┐
       │    0     │    │0 │         │  │  │  │  │    │0 │         │0   │1   │     │0 │ columns of 0 and 2
       ├──────────┤    ├──┤         │  │  │  │  │    ├──┤         │    │    │     │2 │
       │    1     │    │1 │         │0 │1 │2 │3 │    │1 │         ├────┼────┤     ├──┤
       ├──────────┤    ├──┤         │  │  │  │  │    ├──┤         │2   │3   │     │1 │ columns of 1 and 3
       │    …     │    │… │         │  │  │  │  │    │… │         │    │    │     │3 │
       └──────────┘    └──┘         └──┴──┴──┴──┘    └──┘         └────┴────┘     └──┘

All three are one grid of parts, `size / replicas` by `replicas`, where part p is at divmod(p, replicas): rows of B
travel among the parts of a column of the grid, sums of C among those of a row. One replica is 1D by rows, as many as
there are parts is 1D by columns.

Each part gets the rows of B that its entries name and that others have, each row once; that only these travel is what
SHIRO, SpComm3D and others call sparsity-aware. They are counted in units: one row of B for CSR, a block's columns for
BCSR. All works where the pattern lives, NumPy or CuPy. Which pieces come first, while rows of B are on their way:

    interior rows                   local columns                          whole
    ┌──────────────┐                ┌─────────┬──────────────┐             ┌──────────────┐
    │ 1  after     │  rows whose    │         │              │             │              │
    ├──────────────┤  entries name  │ 0 early │ 1 added      │             │ 0 after      │
    │ 0  early     │  own rows of B │         │              │             │              │
    ├──────────────┤  only          └─────────┴──────────────┘             └──────────────┘
    │ 2  after     │                 own        received rows of B
    └──────────────┘

Interior rows cost nothing: a mesh in slabs has nearly nothing else. Adding reads and writes C once more, so it is
only done for the first chunk of columns; later ones have been travelling meanwhile, and are multiplied whole.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import formats
from ..contract import require
from ..formats import csr
from ..formats.bcsr import Bcsr
from ..formats.csr import INT32_MAX
from ..formats.half import array_module

#: Non-zeros of a slab: half of what 32 bits count, so that a long row more does no harm.
SLAB = 1 << 30
#: Columns that are written over at a time.
STEP = 1 << 26
FIRST = ("auto", "local", "whole")
#: A run of interior rows with less than this share of the entries is not worth three products.
WORTH = 0.25


# ---------------------------------------------------------------- cuts


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
    xp, m = array_module(row_ptr), int(row_ptr.shape[0]) - 1
    cost = row_ptr.astype(xp.float64) + row_cost * xp.arange(m + 1)
    share = xp.arange(1, parts) * (float(cost[-1]) / parts)
    after = xp.searchsorted(cost, share)
    before = xp.maximum(after - 1, 0)
    nearer = xp.where(share - cost[before] <= cost[xp.minimum(after, m)] - share, before, after)
    return np.maximum.accumulate(np.minimum([0, *formats.to_host(nearer).tolist(), m], m, dtype=np.int64))


def slabs(row_ptr) -> list[tuple[int, int]]:
    """Ranges of rows, (first, past the last), with about as many entries each, `SLAB` at most but for half of a row.

    row_ptr: (m + 1,), from anywhere on, NumPy or CuPy. One range where 32 bits count all entries.
    """
    nnz = int(row_ptr[-1]) - int(row_ptr[0])
    parts = 1 if nnz <= INT32_MAX else -(-nnz // SLAB)
    return list(itertools.pairwise(by_nonzeros(row_ptr - row_ptr[0], parts, row_cost=0.0).tolist()))


def cut(row_ptr, most: int, begin: int = 0) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows, (first, past the last), from row `begin` on: of at most `most` entries, or one row."""
    xp, m = array_module(row_ptr), int(row_ptr.shape[0]) - 1
    while begin < m:
        last = min(int(row_ptr[begin]) + most, np.iinfo(row_ptr.dtype).max)
        end = int(xp.searchsorted(row_ptr, xp.asarray([last], row_ptr.dtype), side="right")[0]) - 1
        first, begin = begin, min(m, max(begin + 1, end))
        yield first, begin


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


# ---------------------------------------------------------------- parts of a matrix


def units(a) -> tuple[int, int]:
    """Rows and columns that an entry of the pattern stands for."""
    return a.block if isinstance(a, Bcsr) else (1, 1)


def rows_of(a, begin: int, end: int):
    """Rows begin … end - 1 of a CSR matrix, or of a BCSR one from block to block; entries are shared."""
    unit = units(a)[0]
    row_ptr = a.row_ptr[-(-begin // unit) : -(-end // unit) + 1]
    of = slice(int(row_ptr[0]), int(row_ptr[-1]))
    return _changed(a, m=end - begin, row_ptr=row_ptr - row_ptr[0], col_idx=a.col_idx[of], val=a.val[of])


def columns_of(a, begin: int, end: int):
    """Columns begin … end - 1 of a matrix, counted from there."""
    if (begin, end) == (0, a.k):
        return a
    unit = units(a)[1]
    first, last = begin // unit, -(-end // unit)
    kept = _kept(a, (a.col_idx >= first) & (a.col_idx < last))
    return replace(kept, k=end - begin, col_idx=(kept.col_idx - first).astype(np.int32))


def _kept(a, mask):
    """Return the matrix with some of its entries, or blocks."""
    xp = array_module(a.col_idx)
    before = xp.zeros(int(mask.shape[0]) + 1, xp.int32)
    before[1:] = xp.cumsum(mask, dtype=xp.int32)
    return _changed(a, row_ptr=before[a.row_ptr], col_idx=a.col_idx[mask], val=a.val[mask])


def _changed(a, **arrays):
    """Return the matrix with other entries; of blocks the non-zeros are counted anew."""
    made = replace(a, **arrays)
    return replace(made, nnz=int(csr.nonzero(made.val).sum())) if isinstance(a, Bcsr) else made


# ---------------------------------------------------------------- which rows of B travel


def needed(names: Sequence, units: int, own: tuple[int, int]):
    """int64 (needed,): units outside `own` that entries name, ascending and each once.

    names: int32 arrays, of each slab of a part. A table of `units` bytes is the largest thing made.
    """
    xp = array_module(names[0])
    named = xp.zeros(units, bool)
    for col_idx in names:
        named[col_idx] = True
    named[own[0] : own[1]] = False
    return xp.flatnonzero(named).astype(xp.int64)


def counts_of(ids, columns: np.ndarray) -> np.ndarray:
    """int64 (parts,): how many of the ids, ascending, each part has; columns: the parts' bounds."""
    xp = array_module(ids)
    return np.diff(formats.to_host(xp.searchsorted(ids, xp.asarray(columns)))).astype(np.int64)


def compact(names: Sequence, units: int, own: tuple[int, int], received, *, over: bool = False) -> list:
    """int32 columns of the part's own B: its own units first, then those received, in the order of `received`.

    names: as `needed`'s. over: the columns are written over those that are given, without a second copy of them.
    """
    xp, mine = array_module(names[0]), own[1] - own[0]
    place = xp.zeros(units, xp.int32)
    place[own[0] : own[1]] = xp.arange(mine, dtype=xp.int32)
    place[received] = mine + xp.arange(received.shape[0], dtype=xp.int32)
    made = [col_idx if over else col_idx.copy() for col_idx in names]
    for col_idx in made:
        for at in range(0, col_idx.shape[0], STEP):
            col_idx[at : at + STEP] = place[col_idx[at : at + STEP]]
    return made


@dataclass(frozen=True)
class Exchange:
    """What one part sends and gets."""

    own: tuple[int, int]  #: units of B that it has
    send: Any  #: int64 (sent,): units of its own, from 0, by receiver, ascending
    send_counts: np.ndarray  #: int64 (parts,)
    received: Any  #: int64 (received,): units by sender, ascending
    recv_counts: np.ndarray  #: int64 (parts,)


def exchange(names: Sequence, columns: np.ndarray, comm) -> Exchange:
    """Agree with the other parts on who sends what; collective.

    names: as `needed`'s, this part's entries, by global units. columns: bounds of the parts, int64 (parts + 1,), in
    units. comm: as in `comm`, one part a rank.
    """
    own = int(columns[comm.rank]), int(columns[comm.rank + 1])
    received = needed(names, int(columns[-1]), own)
    recv_counts = counts_of(received, columns)
    send_counts = np.stack(comm.gather(recv_counts))[:, comm.rank]  # of a table: what p gets of q
    send = array_module(received).empty(int(send_counts.sum()), np.int64)
    comm.ready(split(received, recv_counts), split(send, send_counts))()
    return Exchange(own, send - own[0], send_counts, received, recv_counts)


def split(array, counts) -> list:
    """Return views of an array's rows, one after the other."""
    edges = [0, *np.cumsum(counts).tolist()]
    return [array[a:b] for a, b in itertools.pairwise(edges)]


def volumes(row_ptr, col_idx, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """int64 (parts, parts): [p, q] is how many units of q's B part p needs, of its own none.

    Of a whole matrix, to look at: the sum of all is the least that travels with these parts of A's rows and of B's.
    """
    pairs = zip(itertools.pairwise(row_ptr[rows].tolist()), itertools.pairwise(columns.tolist()), strict=True)
    return np.array([counts_of(needed([col_idx[x:y]], int(columns[-1]), own), columns) for (x, y), own in pairs])


# ---------------------------------------------------------------- what is multiplied while they do


@dataclass(frozen=True, eq=False)
class Piece:
    """A product of some rows of a part by some columns."""

    a: Any
    rows: tuple[int, int]  #: of the part's C
    early: bool  #: needs nothing that travels
    adds: bool = False  #: to what an earlier piece left in C


def pieces(slabs: Sequence, own_units: int, first: str, sums_exactly: bool) -> tuple[list[Piece], list[Piece]]:
    """(of the first chunk of columns, of the later ones): what is early of any slab comes before what is not.

    slabs: of consecutive rows, CSR or BCSR with compacted columns, the first `own_units` of them, or of blocks, its
    own. first: one of `FIRST`; "auto" adds only where C holds sums as exactly as kernels do (`sums_exactly`): 16 bits
    would be rounded twice.
    """
    begins = itertools.accumulate((a.m for a in slabs), initial=0)
    made = [_pieces(a, begin, own_units, first, sums_exactly) for a, begin in zip(slabs, begins, strict=False)]
    early, late = (sorted(itertools.chain(*x), key=lambda piece: not piece.early) for x in zip(*made, strict=True))
    return early, late


def _pieces(a, at: int, own_units: int, first: str, sums_exactly: bool) -> tuple[list[Piece], list[Piece]]:
    """Pieces of a slab whose rows begin at row `at` of the part."""
    remote, unit, rows = a.col_idx >= own_units, units(a)[0], (at, at + a.m)
    count, every = int(remote.sum()), int(remote.shape[0])
    whole = [Piece(a, rows, early=count == 0)]
    if count == 0 or first == "whole":
        return whole, whole
    begin, end = interior(a, remote)
    if int(a.row_ptr[end]) - int(a.row_ptr[begin]) >= WORTH * every:
        edges = itertools.pairwise((0, begin * unit, min(end * unit, a.m), a.m))
        ranges = [(x, y, early) for (x, y), early in zip(edges, (False, True, False), strict=True) if y > x]
        apart = [Piece(rows_of(a, x, y), (at + x, at + y), early) for x, y, early in ranges]
        return apart, apart
    if count == every or (first == "auto" and not sums_exactly):
        return whole, whole
    return [Piece(_kept(a, remote == late), rows, early=not late, adds=late) for late in (False, True)], whole


def interior(a, remote) -> tuple[int, int]:
    """Return the longest run of rows, or rows of blocks, without remote entries: first, and the one past the last."""
    xp, rows = array_module(a.row_ptr), int(a.row_ptr.shape[0]) - 1
    outside = xp.zeros(rows + 2, bool)
    outside[:: rows + 1] = True
    # Which rows have any: a sum over entries would take their memory eight times.
    entries = xp.flatnonzero(remote).astype(a.row_ptr.dtype)
    outside[1:][xp.searchsorted(a.row_ptr[1:], entries, side="right")] = True
    edges = xp.flatnonzero(outside)
    gap = edges[1:] - edges[:-1]
    at = int(gap.argmax())
    begin = int(edges[at])
    return begin, begin + int(gap[at]) - 1
