"""Our FP32 rungs: what they are made of, and how they are launched."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np

from kernels import jit, pitch, tma
from kernels.contract import Kernel, Launch, Problem, require, timed
from kernels.formats.nm import Nm
from kernels.nm_spmm import packing, schedule

HERE = Path(__file__).parent
#: Columns of C that a warp computes, and that share an index where vectors are long enough.
WARP_COLUMNS = 32
#: Patterns (N, M) that the chapter measures; every other one is compiled when it is first bound.
PATTERNS = ((32, 32), (16, 32), (12, 32), (8, 32), (4, 32))
HOPPER = ("sm_90a",)  # what has TMA and clusters as these kernels use them
RESERVED = 1024  # bytes of shared memory that every block loses to the system
MAX_GRID = 65535
BARRIERS = 128  # bytes at most of a block's mbarriers


@dataclass(frozen=True)
class Config:
    """What the tuner chooses; the kernels' template arguments follow from it and from the pattern."""

    kernel: str = "bulk"  #: wide, bulk, stream or cluster
    bm: int = 128  #: rows of C that a block computes
    bn: int = 256  #: columns of C that a block computes
    tm: int = 16  #: rows of C that a thread computes
    tn: int = 8  #: columns of C that a thread computes
    depth: int = 32  #: rows of A in a step at least: whole windows
    stages: int = 3  #: steps in shared memory
    blocks: int = 1  #: that an SM holds at once
    ahead: bool = (
        True  #: the next step's first fragment is loaded before the last row is multiplied
    )
    banks: bool = True  #: multiply-adds whose operands lie in two banks
    split: int = 1  #: blocks that share a tile of C; cluster only
    unroll: int = 0  #: rows of the main loop's body at most; 0: a whole step

    @property
    def threads(self) -> int:
        return self.bm * self.bn // (self.tm * self.tn)


_WIDE = Config("wide", bn=128, blocks=2, ahead=False, banks=False)
_BULK = Config("bulk", depth=64, ahead=False)
_STREAM = Config("stream", depth=64, ahead=False)
#: name -> configuration, idea, prediction: each rung adds one thing to the one before.
RUNGS: dict[str, tuple[Config, str, str]] = {
    "wide": (
        _WIDE,
        "16 x 8 of C a thread, lanes of a warp that share their rows of A, steps unrolled whole",
        "1.15x over v3: 128 multiply-adds for 6 loads and one address, 93% of the main loop instead of 86%.",
    ),
    "banks": (
        Config("wide", bn=128, blocks=2, ahead=False),
        "accumulators that need not lie where 16-byte stores want them, and values of A kept for 8 multiply-adds",
        "1.15x: an FFMA that reads two registers of one bank takes two cycles, and 3 of 10 do.",
    ),
    "bulk": (
        _BULK,
        "the copy engine fetches steps of 128 x 256 tiles; no addresses, no block-wide barrier",
        "1.05x: 36 of 2240 instructions a step go, and so do the waits of all for the slowest; "
        "three quarters of the bytes.",
    ),
    "ahead": (
        Config("bulk", depth=64),
        "the next step's first fragment is loaded before the last row of this one is multiplied",
        "1.03x: two shared-memory latencies a step, some 70 of 2400 cycles, in which a warp has nothing to issue.",
    ),
    "stream": (
        _STREAM,
        "blocks that stay, each with the same number of steps: the tiles that fill no wave are cut along K (stream-K)",
        "1.03x over bulk: 3.88 waves of tiles instead of 4, and no pause of the copy engine between tiles.",
    ),
    "rolled": (
        replace(_STREAM, unroll=8),
        "a loop of 8 rows in place of a whole step: 18 KB of code, which the instruction cache holds",
        "1.03x over bulk, what stream was to gain: without a common start warps drift apart, and each then "
        "fetches the 70 KB of a step for itself.",
    ),
    "turned": (
        replace(_STREAM, unroll=8, tm=8, tn=16),
        "8 x 16 of C a thread: two loads of a row follow its index, not four, and values of B are kept, not of A",
        "1.00x over rolled: as many loads and multiply-adds, fewer of them behind an index.",
    ),
    "cluster": (
        Config("cluster", bm=64, bn=64, tm=8, blocks=4, split=4),
        "split-K whose partial sums meet in distributed shared memory, on 64 x 64 tiles",
        "3x over ahead at 512 cubed, where 8 tiles of 128 x 256 leave 124 of 132 SMs idle; behind it from 2048 on.",
    ),
}  # fmt: skip


#: Tried beside the ladder, and not kept: name -> configuration, idea, what was expected. `bind` takes these, too.
TRIALS: dict[str, tuple[Config, str, str]] = {
    "shallow": (
        replace(_BULK, depth=32),
        "bulk in steps of one window",
        "0.97x over bulk: twice as many barriers, half the code.",
    ),
    "two_stages": (
        replace(_BULK, depth=96, stages=2),
        "bulk in steps of three windows, two stages of which fit",
        "1.02x over bulk: fewer barriers, but a stage is refilled only when the next one is used up.",
    ),
    "two_blocks": (
        replace(_BULK, bn=128, depth=32, blocks=2),
        "bulk with 128 x 128 tiles, two blocks an SM that do not wait for each other",
        "1.00x over bulk: one block's barriers behind the other's work, for a third more traffic.",
    ),
    "turned_bulk": (
        replace(_BULK, tm=8, tn=16),
        "bulk with 8 x 16 of C a thread",
        "1.00x over bulk: as many loads.",
    ),
    "rolled_bulk": (
        replace(_BULK, unroll=8),
        "bulk with a loop of 8 rows",
        "1.01x over bulk: less code to fetch, a branch every 8 rows.",
    ),
    "body_4": (
        replace(_STREAM, unroll=4),
        "rolled with 4 rows in its loop",
        "0.99x over rolled: a branch every 4 rows.",
    ),
    "body_16": (
        replace(_STREAM, unroll=16),
        "rolled with 16 rows in its loop, 35 KB of code",
        "1.00x over rolled.",
    ),
    "rolled_ahead": (
        replace(_STREAM, unroll=8, ahead=True),
        "rolled that loads the next step's first fragment early, as ahead does",
        "1.02x over rolled: what a step waits for is the same as in bulk.",
    ),
    "deep": (
        replace(_STREAM, unroll=8, tm=8, tn=16, depth=96),
        "turned in steps of three windows, where three stages fit (75% and 87.5%)",
        "1.01x over turned: barriers every 24 rows, not 16, at 75%.",
    ),
}


def windows(config: Config, group: int) -> int:
    """Pruning windows of a step: as many as `depth` rows of A take."""
    return ceil(config.depth / group)


def rows(config: Config, keep: int, group: int) -> int:
    """Compressed rows of a step: those of its windows, filled up with zeros to a multiple of four."""
    return ceil(windows(config, group) * keep / 4) * 4


def unrolled(config: Config, keep: int, group: int) -> int:
    """Rows of the main loop's body: the most up to `unroll` that divide a step's."""
    height = rows(config, keep, group)
    most = config.unroll or height
    return max(x for x in range(4, height + 1, 4) if height % x == 0 and x <= max(4, most))


def tail(config: Config, keep: int, group: int, w: int) -> int:
    """Rows of the last step that the loop has to do, whole bodies; w: compressed rows of the matrix."""
    step, body = windows(config, group) * keep, unrolled(config, keep, group)
    return ceil(((w - 1) % step + 1) / body) * body


def slot_of(b: Nm) -> int:
    """Columns that share an entry of the kernels' index: a warp's, or four.

    Raises ValueError for vectors that are no multiple of four columns.
    """
    if b.vector % WARP_COLUMNS == 0 or b.vector >= b.n:
        return WARP_COLUMNS
    require(
        b.vector % 4 == 0,
        f"vectors of {b.vector} columns do not fit four columns that share their rows of A: use "
        "nm_cuda_core.element_wise",
    )
    return 4


def shared_bytes(config: Config, keep: int, group: int, slot: int) -> int:
    """Dynamic shared memory of a block: the ring, or the partial sums where they are larger."""
    c = config
    height = rows(c, keep, group)
    floats = windows(c, group) * group * c.bm + height * c.bn + c.bn // slot * height
    if c.kernel != "wide":
        floats = ceil(floats / 32) * 32
    ring = 4 * c.stages * floats
    return max(ring, 4 * c.bm * c.bn) if c.kernel == "cluster" else ring


def entry(
    config: Config, keep: int, group: int, slot: int = WARP_COLUMNS, aligned: bool = True
) -> str:
    """The template instantiation of a configuration for a pattern."""
    c = config
    depth = windows(c, group) * group
    tile = f"{c.bm}, {c.bn}, {c.tm}, {c.tn}, {slot}, {rows(c, keep, group)}, {depth}, {c.stages}"
    flag = str(aligned).lower()
    loop = f"{str(c.ahead).lower()}, {unrolled(c, keep, group)}"
    if c.kernel == "wide":
        return f"wide<{tile}, {c.blocks}, {flag}, {str(c.banks).lower()}>"
    if c.kernel == "bulk":
        return f"bulk<{tile}, {loop}, {c.blocks}, {flag}>"
    if c.kernel == "stream":
        return f"stream<{tile}, {loop}, {c.blocks}, {flag}>"
    return f"cluster<{tile}, {loop}, {c.blocks}, {flag}, {c.split}>"


def source(config: Config) -> Path:
    return HERE / f"{config.kernel}.cu"


def check(config: Config, keep: int, group: int, slot: int, most: int) -> None:
    """Raise ValueError where the pattern's steps do not fit a configuration's block.

    most: bytes of dynamic shared memory that a block of the GPU may have.
    """
    c = config
    depth = windows(c, group) * group
    require(
        depth <= 256,
        f"a step of {keep}:{group} needs {depth} rows of A, but a box of TMA has at most 256: use "
        "smaller windows",
    )
    least = 3 if c.kernel != "wide" and c.ahead else 2
    require(
        c.stages >= least,
        f"{c.kernel} with ahead={c.ahead} has {c.stages} stages, but needs {least}: use more stages",
    )
    need = shared_bytes(c, keep, group, slot) + BARRIERS
    require(
        need <= most,
        f"{c.kernel} with {c.bm} x {c.bn} tiles and {c.stages} stages of {keep}:{group} needs {need} "
        f"bytes of shared memory, but a block has at most {most}: use fewer stages",
    )


def _kernel(name: str) -> Kernel:
    config, idea, prediction = RUNGS[name]
    entries = tuple(
        entry(replace(config, depth=32) if keep == group else config, keep, group)
        for keep, group in PATTERNS
    )  # the dense one in shorter steps, as bind makes it where shared memory is an SM's 228 KiB
    targets = jit.TARGETS if config.kernel == "wide" else HOPPER
    return Kernel(name, source(config), idea, prediction, entries, targets=targets)


KERNELS: dict[str, Kernel] = {name: _kernel(name) for name in RUNGS}


def bind(variant: str, problem: Problem, device) -> Launch:
    """One of `RUNGS` or `TRIALS`, ready to run on float32 operands; in steps half as deep where shared
    memory asks for it."""
    config = (RUNGS | TRIALS)[variant][0]
    b = problem.device().b
    most = device.properties.max_shared_memory_per_block_optin
    need = shared_bytes(config, b.keep, b.group, slot_of(b)) + BARRIERS if isinstance(b, Nm) else 0
    if need > most:
        config = replace(config, depth=config.depth // 2)
    return bind_config(variant, problem, device, config)


def bind_config(name: str, problem: Problem, device, config: Config) -> Launch:
    """Compile a configuration for `device` (a current `cuda.core.Device`), lay B out, make it ready.

    Raises ValueError where the GPU or the configuration does not take the problem.
    """
    ops = problem.device()
    b = ops.b
    require(
        isinstance(b, Nm) and getattr(ops.a, "dtype", None) == np.float32,
        f"{name} multiplies float32 by N:M, not {getattr(ops.a, 'dtype', '?')}: use bf16 or tf32",
    )
    arch = jit.arch_of(device)
    require(
        config.kernel == "wide" or arch in HOPPER,
        f"{name} needs the copy engine of {HOPPER[0]}, which {arch} has not: use wide",
    )
    slot = slot_of(b)
    check(config, b.keep, b.group, slot, device.properties.max_shared_memory_per_block_optin)
    from cuda.core import LaunchConfig

    c, m, n, k = config, problem.m, problem.n, problem.k
    packed, prepare_ms = timed(lambda: _lay_out(b, c, slot))
    require(
        ceil(n / c.bn) <= MAX_GRID,
        f"{name} has a grid row for every {c.bn} columns of C and n = {n} needs more than {MAX_GRID}: "
        "multiply in several column ranges",
    )
    a, lda, steps = pitch.aligned(ops.a, device)
    aligned = m % 4 == 0 and ops.c.data.ptr % pitch.ALIGNMENT == 0
    shared = shared_bytes(c, b.keep, b.group, slot)
    kernel = jit.load(
        jit.compile_cubin(source(c), entry(c, b.keep, b.group, slot, aligned), arch), shared
    )
    cluster = {"cluster": (1, 1, c.split)} if c.kernel == "cluster" else {}
    # With a cluster it counts clusters, which are split blocks deep.
    grid = ceil(m / c.bm), packed.blocks
    one, i32 = np.float32(1), np.int32
    work = shares = ()
    if c.kernel == "stream":
        resident = device.properties.multiprocessor_count * c.blocks
        work = table, partial, handovers = _work(schedule.parts(*grid, packed.steps, resident), c)
        grid = len(table)  # one list of parts for each block
        shares = (
            i32(tail(c, b.keep, b.group, b.w)), table.data.ptr, i32(table.shape[1]),
            partial.data.ptr, handovers.data.ptr,
        )  # fmt: skip
    launch = LaunchConfig(grid=grid, block=c.threads, shmem_size=shared, **cluster)
    arrays = packed.val.data.ptr, packed.index.data.ptr, *shares, ops.c.data.ptr
    if c.kernel == "wide":
        arguments = (
            i32(m), i32(n), i32(k), i32(packed.steps), i32(lda), one, a.data.ptr, *arrays,
        )  # fmt: skip
    else:
        across = (a if steps else a.T)[:, :m]  # A^T (k, m), its rows lda apart: a copy is made so
        box = tma.tensor_map(across, (packed.depth, c.bm))
        arguments = (i32(m), i32(n), i32(packed.steps), one, box, *arrays)
    return Launch(
        name, [*steps, (kernel, launch, arguments)], ops.c, prepare_ms, packed.nbytes,
        keep=(ops, packed, a, work, arguments),
    )  # fmt: skip


def _work(table: np.ndarray, config: Config) -> tuple:
    """A schedule on the device, for each of its blocks a tile of partial sums, for each warp a `Handover`."""
    import cupy

    blocks = len(table)
    partial = cupy.empty((blocks, config.bm, config.bn), np.float32)
    return cupy.asarray(table), partial, cupy.zeros((blocks, config.threads // 32, 2), np.uint32)


def _lay_out(b: Nm, config: Config, slot: int) -> packing.Packed:
    """B as the kernels read it; zeros fill a step's rows up to a multiple of four, their index is 0."""
    count = windows(config, b.group)
    packed = packing.prepare(b, config.bn, count, packed=False, slot=slot, tiled=True)
    more = rows(config, b.keep, b.group) - packed.rows
    if not more:
        return packed
    import cupy

    val = cupy.pad(packed.val, ((0, 0), (0, 0), (0, more), (0, 0)))
    index = cupy.pad(packed.index, ((0, 0), (0, 0), (0, 0), (0, more)))
    return replace(packed, rows=packed.rows + more, val=val, index=index)
