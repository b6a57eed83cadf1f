"""What Hopper's kernels share, in 16 bits and in 8.

Kinds of kernels, each a row of a table, and tiles, which are their configurations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import jit, tma
from ..contract import holds, require
from ..lazy import core

HERE = Path(__file__).parent
TARGETS = ("sm_90a",)
INT32_MAX = 2**31 - 1
KEEP = {"": 0, "a": 1, "b": 2, "ab": 3}
ACTIVATIONS = ("relu", "gelu", "silu")  #: that a kernel applies to what it stores, GELU by the error function
#: Bytes that pass between DRAM and the L2 of an H200 in a cycle, at most.
DRAM_BYTES = 2600
#: Of 128 bytes a clock, what wgmma.sp reads of shared memory where nothing else goes on: clocks of kernels that load
#: nothing (bounds.py), less what `predict` has for storing, are those of 0.91 to 0.93 in three tiles on an H200.
SHARED_REACHED = 0.92
#: Of the candidates, those within this factor of the least predicted time are tried.
WITHIN = 1.5


@dataclass(frozen=True)
class Kind:
    """What a kernel is, whatever its tile: its loader, tile scheduler and epilogue (roles.cuh)."""

    groups: Sequence[int] = (1, 2)  #: warpgroups that multiply
    rows: Sequence[int] = (64, 128, 256)  #: of a tile
    widths: Sequence[int] = (64, 128, 192, 256)  #: of a tile
    narrow: Sequence[int] = ()  #: and those for few tokens, where B and C lie by columns
    stages: Sequence[int] = range(2, 33)
    buffers: Sequence[int] = range(1, 17)
    splits: Sequence[int] = (1,)
    share: Sequence[int] = (1,)
    keep: Sequence[str] = ("", "a", "b")  #: what L2 may be asked to keep; ("",): it is not asked
    orders: Sequence[str] = ("CC",)  #: memory orders of B and C
    producer: bool = True  #: one more warpgroup asks for copies; otherwise those that multiply do
    deep: int = 1  #: steps of a stage; more: threads copy, past the copy engine, and store from registers
    packed: bool = False  #: A is read in the order of use
    adds: bool = True  #: beta·C and a bias, too
    stays: bool = True  #: as many blocks as have room go from tile to tile; otherwise one for each tile
    everywhere: bool = False  #: one on each multiprocessor at once, with a tile or without
    below: int = 1  #: blocks, one below the other, that always fetch B for each other
    pairs: bool = False  #: clusters of two blocks, whatever the configuration says
    #: Warpgroups exchange registers after launch; steps are whole rounds of the ring.
    exchanging: bool = False
    box: int = 0  #: rows of a request for A; 0: those of a tile

    @property
    def ordered(self) -> bool:
        """Whether B and C may lie by rows or by columns."""
        return "FF" in self.orders


@dataclass(frozen=True)
class Tile:
    """The knobs of the kernels, as their .cuh files describe them."""

    kernel: str = "persistent"  #: <NAME>_<kernel>.cu
    groups: int = 2  #: warpgroups that multiply
    blocks: int = 1  #: blocks of 64 rows of C of each
    n: int = 256  #: columns of C that a block computes
    stages: int = 4  #: of the ring
    buffers: int = 2  #: squares of 64 x 64 that a warpgroup stores C through
    splits: int = 1  #: blocks that share the steps of a tile; split_k and few only
    band: int = 8  #: rows of tiles that are worked on at a time
    keep: str = ""  #: the operands that L2 is asked to keep; the others it may let go

    NAME: ClassVar[str]
    K: ClassVar[int]  #: columns of A in a step
    KINDS: ClassVar[dict[str, Kind]]
    INSTEAD: ClassVar[str]  #: what to do where a GPU has no wgmma
    # What only some kernels have a knob for.
    share = 1  #: blocks, one below the other, that fetch B for each other
    ahead = 0  #: bytes of B that L2 fetches at a time from DRAM; 0: those of a stage
    copied = False  #: whether B is copied first, to rows that begin at multiples of 128 bytes
    packed = False  #: whether A lies in the order of use, where a kernel leaves that open

    @property
    def kind(self) -> Kind:
        """Return the kind of kernel that the tile is of."""
        return self.KINDS[self.kernel]

    @property
    def name(self) -> str:
        """Return the variant's name."""
        return f"{self.NAME}_{self.kernel}"

    @property
    def source(self) -> Path:
        """Return the `.cu` file."""
        return HERE / f"{self.name}.cu"

    @property
    def m(self) -> int:
        """Rows of C that a block computes."""
        return 64 * self.groups * self.blocks

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return 128 * (self.groups + self.kind.producer)

    @property
    def direct(self) -> bool:
        """Whether C goes from registers to memory."""
        return self.kind.buffers == (0,)

    @property
    def in_order_of_use(self) -> bool:
        """Whether A is read so."""
        return self.kind.packed or self.packed

    @property
    def below(self) -> int:
        """Blocks of a cluster, one below the other, that fetch B for each other."""
        return max(self.kind.below, self.share)

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return max(self.below, self.splits, 1 + self.kind.pairs)

    @property
    def step_bytes(self) -> int:
        """Of shared memory, for a step: values of A, B and metadata."""
        return self.m * 64 + self.n * 128 + self.m * self.K // 8

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: the ring, rounded to 1024, and the squares of each warpgroup."""
        ring = self.stages * self.kind.deep * self.step_bytes
        return ceil(ring / 1024) * 1024 + self.groups * self.buffers * 8192

    def steps(self, k: int) -> int:
        """Return steps of a tile."""
        whole = self.stages if self.kind.exchanging else 1
        return ceil(ceil(k / self.K) / whole) * whole

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Tiles in a column and in a row of C."""
        return ceil(m / self.m), ceil(n / self.n)

    def grid(self, m: int, n: int) -> tuple[int, int]:
        """Tiles in a column, or what those that fetch B for each other multiply at a time, and in a row of C."""
        high, wide = self.tiles(m, n)
        return ceil(high / self.below), wide

    def check(self, m: int, n: int, k: int, sms: int, shared_most: int, orders: str = "CC") -> None:
        """Raise ValueError, one sentence, where a configuration does not take a problem on a GPU.

        sms: its multiprocessors; shared_most: bytes of shared memory that a block may have; orders: of B and C in
        memory.
        """
        c, name = self, self.name
        require(c.kernel in c.KINDS, f"{name} has kernel {c.kernel!r}, but takes {', '.join(map(repr, c.KINDS))}")
        kind, steps, need = c.kind, ceil(k / c.K), c.shared_bytes
        others = ", ".join(x for x, other in c.KINDS.items() if orders in other.orders)
        require(
            orders in kind.orders,
            f"{name} takes B and C in orders {', '.join(kind.orders)}, not {orders!r}: use one of {others}",
        )
        split = len(kind.splits) > 1
        for what, value, known in (
            ("groups", c.groups, kind.groups),
            ("keep", c.keep, kind.keep),
            ("buffers", c.buffers, kind.buffers),
            ("splits", c.splits, kind.splits),
            ("stages", c.stages, kind.stages),
            ("share", c.share, kind.share),
            ("ahead", c.ahead, tuple(tma.AHEAD)),
            ("rows of a tile", c.m, kind.rows),
            ("n", c.n, (*kind.narrow, *kind.widths) if orders == "FF" else kind.widths),
        ):
            by = f" by {known.step}" if isinstance(known, range) and known.step > 1 else ""
            choice = f"{known[0]} to {known[-1]}{by}" if isinstance(known, range) else ", ".join(map(repr, known))
            require(value in known, f"{name} has {what} {value!r}, but takes {choice}")
        for taken, said in (
            (c.band >= 1, f"{name} has bands of {c.band} rows of tiles: give it 1 or more"),
            (
                c.blocks * c.n <= 384,
                f"{name} keeps {c.blocks} x {c.n} / 2 sums in a thread, but has registers for 192: use a smaller tile",
            ),
            (
                max(m, n, k) <= INT32_MAX // 2,
                f"{name} takes sizes up to {INT32_MAX // 2}, not m={m}, n={n}, k={k}: multiply in several ranges",
            ),
            (
                need + 1024 <= shared_most,
                f"{name} with {c.stages} stages of {c.m} x {c.n} needs {need} bytes of shared memory and a KiB for its "
                f"barriers, but a block may have {shared_most}: use fewer stages",
            ),
            (
                not split or steps >= c.splits,
                f"{name} cannot cut {steps} steps of {c.K} columns into {c.splits} parts: use fewer",
            ),
            (
                not split or 4 * c.m * c.n <= c.stages * c.step_bytes,
                f"{name} adds {c.m} x {c.n} sums in the memory of its {c.stages} stages: use more stages",
            ),
        ):
            require(taken, said)

    def takes(self, m: int, n: int, k: int, sms: int, shared_most: int, orders: str = "CC") -> bool:
        """Whether a configuration takes a problem: `check`."""
        return holds(self.check, m, n, k, sms, shared_most, orders)

    def clocks(self, rows: int, asked: float = 0) -> float:
        """Return what bounds a step of so many times 64 rows.

        The tensor cores take rows·N cycles, shared memory (128 bytes a cycle, `SHARED_REACHED` of them) what it reads
        for them, and the SM's port of L2 (about 64 bytes a cycle) what it copies. asked: of B's rows, as bytes that
        take as long.
        """
        shared = rows * (128 * self.n + 4096) / 128 / SHARED_REACHED
        copied = (rows * 64 * 64 + self.m * self.K // 8 + max(self.n * 128, asked)) / 64  # metadata of all rows
        return max(rows * self.n, shared, copied)

    def order(self, m: int, n: int, k: int, own: tuple = ()) -> tuple:
        """Return how many steps there are, in which order tiles are multiplied, and what L2 keeps, as arguments."""
        high, wide = self.grid(m, n)
        order = () if self.kind.deep > 1 else (high, wide, min(self.band, high))
        hint = [np.int32(KEEP[self.keep])] if len(self.kind.keep) > 1 else []
        return (*map(np.int32, (self.steps(k), *order)), *own, *hint)

    def launch(self, m: int, n: int, kernel, device, count: int = 0):
        """Return the `cuda.core.LaunchConfig` of a loaded kernel. count: of what is multiplied; 0: of the tiles."""
        kind, (high, wide), sms = self.kind, self.grid(m, n), device.properties.multiprocessor_count
        how: dict[str, Any] = {"block": self.threads, "shmem_size": self.shared_bytes}
        if self.cluster > 1:
            how["cluster"] = self.cluster
        grid: Any = count or high * wide
        if kind.everywhere:
            grid, how["is_cooperative"] = sms, True
        elif kind.deep > 1:
            grid = high, wide
        elif len(kind.share) > 1:  # of four there need not be as many as SMs allow, but what GPCs have room for
            grid = min(grid, jit.most_clusters(kernel, core.LaunchConfig(grid=1, **how), device))
        elif kind.stays:
            grid = min(grid, sms // self.cluster)  # of clusters, where there are any
        return core.LaunchConfig(grid=grid, **how)


def limits(device) -> tuple[int, int]:
    """Multiprocessors of a GPU, and bytes of shared memory that a block may have."""
    properties = device.properties
    return properties.multiprocessor_count, properties.max_shared_memory_per_block_optin


def require_gpu(name: str, device, instead: str) -> None:
    """Raise ValueError, one sentence, where a GPU has no wgmma. instead: what to do there."""
    require(
        jit.arch_of(device) in TARGETS,
        f"{name} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: {instead}",
    )


def require_activation(activation: str) -> None:
    """Raise ValueError, one sentence, for an unknown activation."""
    require(
        activation in ("", *ACTIVATIONS),
        f"activation is {activation!r}, but must be one of {', '.join(ACTIVATIONS)}, or empty",
    )
