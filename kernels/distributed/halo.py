"""Which rows of B travel: each part gets those that its entries name and that others have, each row once.

Rows are counted in units: one row of B for CSR, a block's columns for BCSR. `columns` are bounds as `partition` makes
them: part q has the units columns[q] … columns[q + 1] - 1 of B. All works where the pattern lives, NumPy or CuPy.

That only the rows named travel is what SHIRO, SpComm3D and others call sparsity-aware.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import formats
from ..formats.half import array_module

#: Columns that are written over at a time.
STEP = 1 << 26


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
    """int64 (parts,): how many of the ids, ascending, each part has."""
    xp = array_module(ids)
    at = xp.searchsorted(ids, xp.asarray(columns))
    return np.diff(formats.to_host(at)).astype(np.int64)


def compact(names: Sequence, units: int, own: tuple[int, int], received, *, over: bool = False) -> list:
    """int32 columns of the part's own B: its own units first, then those received, in the order of `received`.

    names: as `needed`'s. over: the columns are written over those that are given, without a second copy of them.
    """
    xp = array_module(names[0])
    place = xp.zeros(units, xp.int32)
    mine = own[1] - own[0]
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

    @property
    def units(self) -> int:
        """Of B, that the part multiplies by: its own, and what it gets."""
        return self.own[1] - self.own[0] + int(self.recv_counts.sum())


def exchange(names: Sequence, columns: np.ndarray, comm) -> Exchange:
    """Agree with the other parts on who sends what; collective.

    names: as `needed`'s, this part's entries, by global units. comm: as in `comm`, one part a rank.
    """
    xp, units = array_module(names[0]), int(columns[-1])
    own = int(columns[comm.rank]), int(columns[comm.rank + 1])
    received = needed(names, units, own)
    recv_counts = counts_of(received, columns)
    table = np.stack(comm.gather(recv_counts))  # table[p, q]: what p gets of q
    send_counts = table[:, comm.rank].copy()
    send = xp.empty(int(send_counts.sum()), xp.int64)
    comm.ready(split(received, recv_counts), split(send, send_counts))()
    return Exchange(own, send - own[0], send_counts, received, recv_counts)


def split(array, counts) -> list:
    """Return views of an array's rows, one after the other."""
    edges = [0, *np.cumsum(counts).tolist()]
    return [array[a:b] for a, b in zip(edges, edges[1:], strict=False)]


# ---------------------------------------------------------------- of a whole matrix, to look at


def volumes(row_ptr, col_idx, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """int64 (parts, parts): [p, q] is how many units of q's B part p needs; on the diagonal those it has itself."""
    parts = len(rows) - 1
    table = np.zeros((parts, parts), np.int64)
    for p in range(parts):
        mine = col_idx[int(row_ptr[rows[p]]) : int(row_ptr[rows[p + 1]])]
        table[p] = counts_of(needed([mine], int(columns[-1]), (0, 0)), columns)
    return table


def sent(table: np.ndarray) -> int:
    """Units that travel, of all parts: the least with this partition, since each is needed where it is not."""
    return int(table.sum() - np.trace(table))
