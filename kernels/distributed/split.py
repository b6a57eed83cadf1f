"""How a part's own rows are multiplied while rows of B are still on their way: which pieces come first.

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

from dataclasses import dataclass, replace
from typing import Any

from ..formats.bcsr import Bcsr
from ..formats.csr import changes, owners
from ..formats.half import array_module
from .backend import changed, rows_of, units

FIRST = ("auto", "local", "whole")
#: A run of interior rows with less than this share of the entries is not worth three products.
WORTH = 0.25


@dataclass(frozen=True)
class Piece:
    """A product of some rows of a part by some columns."""

    a: Any
    rows: tuple[int, int]  #: of the part's C
    early: bool  #: needs nothing that travels
    adds: bool = False  #: to what an earlier piece left in C


def pieces(a, own_units: int, first: str, sums_exactly: bool) -> tuple[list[Piece], list[Piece]]:
    """(of the first chunk of columns, of the later ones).

    a: CSR or BCSR with compacted columns, the first `own_units` of them, or of blocks, its own. first: one of `FIRST`;
    "auto" adds only where C holds sums as exactly as kernels do (`sums_exactly`): 16 bits would be rounded twice.
    """
    remote = a.col_idx >= own_units
    count, every = int(remote.sum()), int(a.col_idx.shape[0])
    if count == 0:
        whole = [Piece(a, (0, a.m), early=True)]
        return whole, whole
    whole = [Piece(a, (0, a.m), early=False)]
    if first == "whole":
        return whole, whole
    begin, end = interior(a, remote)
    entries = int(a.row_ptr[end]) - int(a.row_ptr[begin])
    if entries >= WORTH * every:
        unit = units(a)[0]
        begin, end = begin * unit, min(end * unit, a.m)
        ranges = [(begin, end, True), (0, begin, False), (end, a.m, False)]
        cut = [Piece(rows_of(a, x, y), (x, y), early) for x, y, early in ranges if y > x]
        return cut, cut
    if count == every or (first == "auto" and not sums_exactly):
        return whole, whole
    local = Piece(kept(a, ~remote), (0, a.m), early=True)
    return [local, Piece(kept(a, remote), (0, a.m), early=False, adds=True)], whole


def of_slabs(slabs, own_units: int, first: str, adds: bool) -> tuple[list[Piece], list[Piece]]:
    """`pieces` of matrices of consecutive rows, as one part: what is early of any comes before what is not."""
    early, late, begin = [], [], 0
    for a in slabs:
        of_first, of_later = pieces(a, own_units, first, adds)
        # The same piece stays the same: chunks share its product.
        moved = {id(x): replace(x, rows=(x.rows[0] + begin, x.rows[1] + begin)) for x in (*of_first, *of_later)}
        early += [moved[id(x)] for x in of_first]
        late += [moved[id(x)] for x in of_later]
        begin += a.m
    return sorted(early, key=lambda x: not x.early), sorted(late, key=lambda x: not x.early)


def interior(a, remote) -> tuple[int, int]:
    """Return the longest run of rows, or rows of blocks, without remote entries: first, and the one past the last."""
    xp, rows = array_module(a.row_ptr), int(a.row_ptr.shape[0]) - 1
    outside = xp.zeros(rows + 2, bool)
    outside[0] = outside[-1] = True
    # Which rows have any: a sum over entries would take their memory eight times.
    entries = xp.flatnonzero(remote)
    if entries.shape[0]:
        row = xp.searchsorted(a.row_ptr[1:], entries.astype(a.row_ptr.dtype), side="right")
        outside[row[changes(row)] + 1] = True
    edges = xp.flatnonzero(outside)
    gap = edges[1:] - edges[:-1]
    at = int(gap.argmax())
    begin = int(edges[at])
    return begin, begin + int(gap[at]) - 1


def kept(a, mask):
    """Return the matrix with some of its entries, or blocks."""
    xp = array_module(a.col_idx)
    before = xp.zeros(int(mask.shape[0]) + 1, xp.int32)
    before[1:] = xp.cumsum(mask, dtype=xp.int32)
    return changed(a, row_ptr=before[a.row_ptr], col_idx=a.col_idx[mask], val=a.val[mask])


def ascending(a):
    """Return a BCSR matrix with the blocks of each row in the order of their columns, as the format has them.

    CSR as it is.
    """
    if not isinstance(a, Bcsr):
        return a
    xp = array_module(a.col_idx)
    row = owners(a.row_ptr, a.blocks)
    order = xp.argsort(row * (int(a.k) + 1) + a.col_idx)
    return replace(a, col_idx=a.col_idx[order], val=a.val[order])
