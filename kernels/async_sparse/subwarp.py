"""Rows by a few lanes each (subwarp.cu): CSR on CUDA cores times a B of few columns, float32 sums.

What it has of A is CSR itself, or groups of up to 4 rows over the union of their columns. Of these rows or groups
only the long ones need a table: so a plan of an even matrix is made of nothing. Sums are added up in one order.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np

from ..contract import Kernel, Launch, Problem, require, timed
from ..formats import half, intake
from ..formats.csr import INT32_MAX, Csr
from ..lazy import cupy
from . import planning
from .family import DTYPES, HERE, Lines, dtype_of, instance
from .windows import require_rows

SOURCE = HERE / "subwarp.cu"
GROUP_HEIGHTS = (1, 2, 4)  #: rows of a group
WARP, WARPS = 32, 8  #: lanes of a warp, warps of a block
UNROLL = 4  #: entries that a slot asks for together
#: Of so many entries, that a slot has at least before a row is called long, and that one of a block has.
ROUNDS, BLOCK_ROUNDS = 8, 4
CLASSES = 6  #: of rows by their slots, 32 to 1
SLOTS = tuple(1 << i for i in range(CLASSES))
AGAIN = 8  #: columns of B whose loads cost what it costs to read A for one more panel
RESIDENT = 40  #: warps that an SM holds
MOST_LOADS = 4  #: of a lane for a row of B
#: Registers for sums of a lane, rows times columns.
MOST_SUMS = 16
#: Of L2: what all threads fetch when a kernel begins, of A and B, at most.
COLD = 0.5


@dataclass(frozen=True)
class Lanes:
    """How a row of B is spread over lanes."""

    vec: int  #: columns of a load
    loads: int  #: of a lane, `lanes * vec` columns apart
    lanes: int  #: a power of 2

    @property
    def columns(self) -> int:
        """Return the columns of C that a team has."""
        return self.vec * self.loads * self.lanes


def spread(n: int, dtype: str, rows: int = 1, columns: int = 0) -> Lanes:
    """Return the lanes for n columns: the widest loads that n divides by, and as few idle lanes as possible.

    dtype: of B, "tf32" for float32. rows: of a group, whose sums take registers. columns: of a panel, at most; 0: any.
    """
    most = 16 // DTYPES[dtype][1]
    vec = next(v for v in (8, 4, 2, 1) if v <= most and n % v == 0)
    fits = (
        Lanes(vec, loads, 1 << bits)
        for loads in range(1, MOST_LOADS + 1)
        if rows * loads * vec <= max(MOST_SUMS, rows * vec)
        for bits in range(CLASSES)
        if vec * loads << bits <= (columns or n * WARP) or vec * loads << bits == vec
    )
    return min(fits, key=lambda x: (ceil(n / x.columns) * (x.columns + AGAIN), ceil(n / x.columns), x.loads))


@dataclass(frozen=True)
class Made:
    """What the kernel reads of A."""

    row_ptr: Any
    col_idx: Any
    val: Any
    most: int
    lengthy: Any = None
    parts: Any = None
    places: int = 0
    skipped: int = 0  #: groups that `lengthy` has
    sorted: Any = None
    ends: tuple[int, ...] = ()


@dataclass(frozen=True)
class Subwarp:
    """A configuration of subwarp.cu."""

    rows: int = 1  #: of a group: 1, 2 or 4
    slots: int = 4  #: entries of a row that are multiplied side by side; as many as a warp has room for
    columns: int = 0  #: of C in a panel, at most: with fewer there are more panels, and more warps; 0: as many as fit
    quads: bool = True  #: whether a slot has four entries side by side
    #: 0: rows as they come, each with `slots`; else the longest first, with slots for this many rounds of loads.
    rounds: int = 0

    order = ""  # of rows: what is asked of the other configurations for CSR

    def fitted(self, n: int, dtype: str) -> tuple[Lanes, int]:
        """(lanes of a row of B, slots that there is room for)."""
        lanes = spread(n, dtype, self.rows, self.columns)
        return lanes, min(self.slots, WARP // lanes.lanes)

    def entry(self, n: int, dtype: str = "tf32") -> str:
        """Return the template instantiation for n columns; dtype: of B, "tf32" for float32."""
        x = spread(n, dtype, self.rows, self.columns)
        kind = "FLOAT32" if dtype == "tf32" else dtype
        blocks = 2 if self.rows > 1 else 5 if x.vec * x.loads <= 2 else 4  # by what sums and loads take of registers
        return instance("subwarp", kind, self.rows, x.vec, x.loads, x.lanes, self.quads, blocks)

    def convert(self, a: Csr, sms: int, room: int, slots: int, panels: int) -> Made:
        """Return what the kernel reads of A, which lies on a GPU. room: slots of a warp."""
        if self.rows == 1:
            row_ptr, col_idx, val, longest = a.row_ptr, a.col_idx, a.val, intake.facts_of(a).longest
        else:
            row_ptr, col_idx, val, _, _ = planning.grouped(planning.ascending(a), self.rows, 0, 0)
            longest = INT32_MAX
        # Twice what a warp has on average, where a GPU full of them has them all.
        share = 2 * col_idx.size * panels // (sms * RESIDENT)
        slots = room if self.rounds else slots
        most = max(ROUNDS * UNROLL * slots, share * slots // room)
        chunk = max(BLOCK_ROUNDS * UNROLL * room, share) * WARPS
        if longest <= most and not self.rounds:
            return Made(row_ptr, col_idx, val, most)
        edges = row_ptr.get().astype(np.int64)
        made = Made(row_ptr, col_idx, val, most, *lengthy(edges, most, chunk))
        if not self.rounds:
            return made
        length, takes = np.diff(edges), self.rounds * UNROLL
        ends = [
            int((length > takes * (room >> i) // 2).sum()) if room >> i > 1 else len(length) for i in range(CLASSES)
        ]
        return replace(made, sorted=planning.tasks(row_ptr, 0, longest_first=True)[0].table, ends=tuple(ends))

    def prepare(self, name: str, problem: Problem, device) -> Launch:
        """Return a configuration ready to run. `prepare_ms` is what is made of A, CSR: groups, and tables of rows.

        Where a group of several rows names an infinite or NaN row of B, all its rows become NaN. Launches of one
        `Launch` must not overlap where rows are cut. Raises ValueError where A is not CSR, B and C are not row-major,
        or a grid would have too many blocks.
        """
        operands = problem.device()
        require_rows(name, operands)
        require(
            self.rows in GROUP_HEIGHTS and self.slots in SLOTS,
            f"{name} has groups of {self.rows} rows and {self.slots} slots, but must have groups of "
            f"{', '.join(map(str, GROUP_HEIGHTS))} and a power of 2 up to {WARP} of slots",
        )
        dtype, n, m = dtype_of(operands.b), problem.n, problem.m
        (x, slots), sms = self.fitted(n, dtype), device.properties.multiprocessor_count
        panels, room = ceil(n / x.columns), WARP // x.lanes
        of, prepare_ms = timed(lambda: self.convert(operands.a, sms, room, slots, panels))
        groups, first = ceil(m / self.rows), 0 if of.lengthy is None else len(of.lengthy)
        ends = of.ends or (groups,) * CLASSES
        if of.sorted is None:
            warps = ceil(groups / (room // slots))
        else:
            counts = np.diff((of.skipped, *ends))
            warps = sum(ceil(count / min(room, 1 << i)) for i, count in enumerate(counts.tolist()))
        blocks = first + ceil(warps / WARPS)
        require(
            blocks * WARPS <= INT32_MAX and panels <= planning.MOST_PANELS,
            f"{name} has {blocks} blocks for each of {panels} panels, and a grid has fewer: use union_rows",
        )
        dense = Lines(half.array_of(operands.b), half.array_of(operands.c))
        counts = cupy.zeros((panels, of.places), cupy.uint32)
        sums = cupy.empty((of.places, self.rows, n), cupy.float32)
        entries = int(of.col_idx.size)
        b_bytes = problem.k * n * DTYPES[dtype][1] if entries >= problem.k else 0
        threads = min(blocks * WARPS, sms * RESIDENT) * WARP
        cold = b_bytes + 4 * (1 + self.rows) * entries <= COLD * device.properties.l2_cache_size
        own = (of.col_idx, of.val, of.row_ptr) if self.rows > 1 else ()
        quads = self.quads and not any(x.data.ptr % 16 for x in (of.col_idx, of.val))
        return dense.bound(
            name,
            operands,
            (SOURCE, replace(self, quads=quads).entry(n, dtype)),
            device,
            ((max(1, blocks), panels), WARP * WARPS),
            (
                *(of.row_ptr, of.col_idx, of.val, entries, of.lengthy, first, groups, slots, of.most),
                *(of.sorted, of.skipped, *ends[:-1], threads if cold else 0, of.parts, counts, of.places, sums),
                *(dense.b, np.int64(b_bytes), dense.c, m, n),
            ),
            prepare_ms,
            planning.bytes_of((*own, of.lengthy, of.parts, of.sorted, counts, sums)),
            scratch=(counts, sums),
        )


def lengthy(edges: np.ndarray, most: int, chunk: int) -> tuple:
    """(tasks, parts, places, rows) of rows of more than `most` entries, cut into parts of about `chunk` at most.

    edges: int64 (rows + 1,), as CSR has them, on the host. tasks: int32 (tasks, 4), row, first entry, the one past its
    last, -1 or its place in parts, the longest rows first. parts: int32 (cut rows, 4), as in_order.cuh has them.
    places: of all parts.
    """
    length = np.diff(edges)
    rows = np.flatnonzero(length > most)
    rows = rows[np.argsort(-length[rows], kind="stable")]
    first, length = edges[rows], length[rows]
    count = np.maximum(1, -(-length // chunk))
    size = -(-length // (count * planning.STEP)) * planning.STEP
    count = -(-length // size)
    which = np.repeat(np.arange(len(rows)), count)
    begin = first[which] + (np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)) * size[which]
    cut = count > 1
    place = np.where(cut, np.cumsum(cut) - 1, -1)
    end = np.minimum(begin + size[which], (first + length)[which])
    tasks = np.stack([rows[which], begin, end, place[which]], axis=1)
    count = count[cut]
    parts = np.stack([np.cumsum(count) - count, count, first[cut], size[cut]], axis=1)
    return *(cupy.asarray(x.astype(np.int32)) for x in (tasks, parts)), int(count.sum()), len(rows)


CONFIGS = {"subwarp": Subwarp(rounds=2)}  #: what is bindable
KERNELS = {
    "subwarp": Kernel(
        "subwarp",
        SOURCE,
        "CUDA cores, few columns: a row by a few lanes, several entries and rows at once",
        "Twice union_rows at 8 columns, whose warps then have 2 of 32 lanes busy; nothing from 128 columns on.",
        tuple(Subwarp().entry(n, dtype) for dtype in DTYPES for n in (1, 8, 32, 41)),
    )
}
