"""Rows of few non-zeros in two trips to memory (heads.cu): CSR on CUDA cores times a B of few columns, float32 sums.

A launch on a small matrix takes as long as its chain of loads. So rows have a table with their first entries, which the
host makes of all entries: for matrices of some 100,000 of them, at most.
"""

from dataclasses import dataclass
from math import ceil

import numpy as np

from ..contract import Kernel, Launch, Problem, require, timed
from ..formats import half
from ..formats.csr import INT32_MAX, Csr
from ..lazy import cupy
from . import planning
from .family import DTYPES, HERE, Lines, dtype_of, instance
from .subwarp import COLD, WARP, Lanes, spread
from .windows import require_rows

SOURCE = HERE / "heads.cu"
QUAD = 4  #: entries that a slot multiplies at a time
WARPS = 4  #: of a block: so that blocks of a small grid are spread evenly over SMs
WHOLE = 4  #: quads of a slot at most in a row that is a warp's; longer rows have a block
#: (32-bit words of a row of B that a lane loads, at most; blocks that share an SM): as many as registers allow.
BLOCKS = ((4, 10), (8, 8), (12, 6), (16, 5))


@dataclass(frozen=True)
class Heads:
    """A configuration of heads.cu."""

    columns: int = 0  #: of C in a panel, at most: with fewer there are more warps, each with more slots; 0: any
    rounds: int = 1  #: quads of a slot in a row that has several slots, at most, and a warp or less

    rows, order = 1, ""  # what is asked of the other configurations for CSR

    def lanes(self, n: int, dtype: str) -> Lanes:
        """Return how a row of B is spread over lanes; dtype: of B, "tf32" for float32."""
        return spread(n, dtype, 1, self.columns)

    def entry(self, n: int, dtype: str = "tf32") -> str:
        """Return the template instantiation for n columns; dtype: of B, "tf32" for float32."""
        x = self.lanes(n, dtype)
        blocks = next(blocks for words, blocks in BLOCKS if max(x.vec, 4) * x.loads <= words)
        return instance("heads", "FLOAT32" if dtype == "tf32" else dtype, x.vec, x.loads, x.lanes, WARPS, blocks)

    def prepare(self, name: str, problem: Problem, device) -> Launch:
        """Return a configuration ready to run. `prepare_ms` is the making of the table, of a copy of A on the host.

        Raises ValueError where A is not CSR, B and C are not row-major, or a grid would have too many blocks.
        """
        operands = problem.device()
        require_rows(name, operands)
        dtype, n = dtype_of(operands.b), problem.n
        x, size = self.lanes(n, dtype), DTYPES[dtype][1]
        room, panels = WARP // x.lanes, ceil(n / x.columns)
        (heads, quads), prepare_ms = timed(lambda: tables(operands.a, room, self.rounds))
        blocks = len(heads) // (room * WARPS)
        require(
            len(heads) <= INT32_MAX and panels <= planning.MOST_PANELS,
            f"{name} has {blocks} blocks for each of {panels} panels, and a grid has fewer: use union_rows",
        )
        dense = Lines(half.array_of(operands.b), half.array_of(operands.c))
        b_bytes = problem.k * n * size if operands.a.nnz >= problem.k else 0
        cold = b_bytes + quads.nbytes <= COLD * device.properties.l2_cache_size
        first = min(blocks, device.properties.multiprocessor_count * BLOCKS[-1][1])
        return dense.bound(
            name,
            operands,
            (SOURCE, self.entry(n, dtype)),
            device,
            ((blocks, panels), WARP * WARPS),
            (heads, quads, np.int64(quads.nbytes), first if cold else 0, dense.b, np.int64(b_bytes), dense.c, n),
            prepare_ms,
            planning.bytes_of((heads, quads)),
        )


def tables(a: Csr, room: int, rounds: int) -> tuple:
    """(heads, quads) of A, which lies on a GPU, as heads.cu has them, for warps of `room` slots.

    heads: int32 (slots of whole blocks, 3, 4), row or -1, its next quad, the one past its last, its slots; columns, -1:
    none; values. quads: int32 (quads, 2, 4), columns and values. Rows with most slots come first, else as they lie.
    """
    edges, column, value = (x.get() for x in (a.row_ptr, a.col_idx, a.val))
    edges, length = edges.astype(np.int64), np.diff(edges)
    slots = np.minimum(room, 1 << np.ceil(np.log2(np.maximum(1, length / (QUAD * rounds)))).astype(np.int64))
    slots[length > QUAD * WHOLE * room] = WARPS * room
    sizes = [WARPS * room, *(room >> i for i in range(room.bit_length()))]
    of_size = [np.flatnonzero(slots == size) for size in sizes]
    rows = [
        np.pad(x, (0, -len(x) % max(1, room // size)), constant_values=-1)
        for x, size in zip(of_size, sizes, strict=True)
    ]
    count = np.repeat(sizes, [len(x) for x in rows])
    more = max(1, ceil(count.sum() / (WARPS * room))) * WARPS * room - count.sum()
    row = np.concatenate([*rows, np.full(more, -1)])  # of teams
    count = np.concatenate([count, np.ones(more, np.int64)])
    begin, end = (np.where(row < 0, 0, edges[row + i]) for i in (0, 1))
    left = np.maximum(0, -(-(end - begin) // QUAD) - count)  # quads beyond the heads
    first = np.cumsum(left) - left
    column, value = np.append(column, np.int32(-1)), np.append(value, np.float32(0))

    def quads(of: np.ndarray, which: np.ndarray) -> np.ndarray:
        at = (begin[of] + QUAD * which)[:, None] + np.arange(QUAD)
        at[at >= end[of][:, None]] = -1
        return np.stack([column[at], value[at].view(np.int32)], axis=1)

    team, slot = _each(count)
    head = np.stack([row[team], (first[team] + slot), (first + left)[team], count[team]], axis=1).astype(np.int32)
    heads = np.concatenate([head[:, None], quads(team, slot)], axis=1)
    team, which = _each(left)
    return cupy.asarray(heads), cupy.asarray(quads(team, count[team] + which))


def _each(count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(owner, which of the owner's) of each of count.sum() things."""
    owner = np.repeat(np.arange(len(count)), count)
    return owner, np.arange(len(owner)) - (np.cumsum(count) - count)[owner]


CONFIGS = {"heads": Heads()}  #: what is bindable
KERNELS = {
    "heads": Kernel(
        "heads",
        SOURCE,
        "CUDA cores, few columns, few non-zeros: a row's first entries beside its number, two trips to memory",
        "A trip less than subwarp, and 200 instructions less before the first; nothing on large matrices.",
        tuple(Heads().entry(n, dtype) for dtype in DTYPES for n in (1, 8, 32, 41)),
    )
}
