"""Our FP32 kernels: which configurations exist, which are valid, what they need, how long they may take.

`RUNGS` are the system's variants, each a step beyond the one before; `TRIALS` were tried beside them; the tuner
chooses among `members`, of which `candidates` are worth a trial on a problem.
"""

import functools
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

from .. import jit
from ..autotune import Choices, Rounds
from ..contract import Kernel, Problem, holds, require
from .packing import WARP_COLUMNS, slot_of

HERE = Path(__file__).parent
#: Patterns (N, M) that the chapter measures; every other one is compiled when it is first bound.
PATTERNS = ((32, 32), (16, 32), (12, 32), (8, 32), (4, 32))
HOPPER = ("sm_90a",)  # what has TMA and clusters as these kernels use them
MAX_GRID = 2**16 - 1  #: blocks of a grid along y, at most
RESERVED = 1024  # bytes of shared memory that every block loses to the system
BARRIERS = 128  # bytes at most of a block's mbarriers
SOURCES = {kernel: HERE / f"{kernel}.cu" for kernel in ("wide", "bulk", "stream", "cluster")}


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
    ahead: bool = True  #: the next step's first fragment is loaded before the last row is multiplied
    banks: bool = True  #: multiply-adds whose operands lie in two banks
    split: int = 1  #: blocks that share a tile of C; cluster only
    unroll: int = 0  #: rows of the main loop's body at most; 0: a whole step

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
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
}


#: Tried beside the ladder, and not kept: name -> configuration, idea, what was expected. `prepare` takes these, too.
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


def shared_bytes(config: Config, keep: int, group: int, slot: int) -> int:
    """Dynamic shared memory of a block: the ring, or the partial sums where they are larger."""
    c = config
    height = rows(c, keep, group)
    floats = windows(c, group) * group * c.bm + height * c.bn + c.bn // slot * height
    if c.kernel != "wide":
        floats = ceil(floats / 32) * 32
    ring = 4 * c.stages * floats
    return max(ring, 4 * c.bm * c.bn) if c.kernel == "cluster" else ring


def entry(config: Config, keep: int, group: int, slot: int = WARP_COLUMNS, aligned: bool = True) -> str:
    """Return the template instantiation of a configuration for a pattern."""
    c = config
    depth, body = windows(c, group) * group, unrolled(c, keep, group)
    tile = c.bm, c.bn, c.tm, c.tn, slot, rows(c, keep, group), depth, c.stages
    if c.kernel == "wide":
        rest: tuple = c.blocks, aligned, c.banks
    else:
        rest = c.ahead, body, c.blocks, aligned, *([c.split] if c.kernel == "cluster" else [])
    return f"{c.kernel}<{', '.join(map(str, (*tile, *rest))).lower()}>"


def check(config: Config, keep: int, group: int, slot: int, most: int) -> None:
    """Raise ValueError where the pattern's steps do not fit a configuration's block.

    most: bytes of dynamic shared memory that a block of the GPU may have.
    """
    c = config
    require(
        c.kernel in SOURCES,
        f"kernel is {c.kernel!r}, but the FP32 rungs have {', '.join(SOURCES)}",
    )
    depth = windows(c, group) * group
    require(
        depth <= 256,
        f"a step of {keep}:{group} needs {depth} rows of A, but a box of TMA has at most 256: use smaller windows",
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


KERNELS: dict[str, Kernel] = {
    name: Kernel(
        name,
        SOURCES[config.kernel],
        idea,
        prediction,
        # The dense one in shorter steps, as bind makes it where shared memory is an SM's 228 KiB.
        tuple(entry(replace(config, depth=32) if keep == of else config, keep, of) for keep, of in PATTERNS),
        targets=jit.TARGETS if config.kernel == "wide" else HOPPER,
    )
    for name, (config, idea, prediction) in RUNGS.items()
}


def named(variant: str, problem: Problem, device) -> Config:
    """Return the configuration of one of `RUNGS` or `TRIALS`; in steps half as deep where shared memory asks for it."""
    config, b = (RUNGS | TRIALS)[variant][0], problem.device().b
    need = shared_bytes(config, b.keep, b.group, slot_of(b)) + BARRIERS
    deep = need > device.properties.max_shared_memory_per_block_optin
    return replace(config, depth=config.depth // 2) if deep else config


# ---- what the tuner chooses from


def sources(config: Config) -> list[Path]:
    """Return what a configuration was tried against: copies by the threads, or the copy engine's."""
    return [path for kernel, path in SOURCES.items() if (kernel == "wide") == (config.kernel == "wide")]


#: Where choices are kept. Where accumulators lie decides what the register file delivers, and compilers
#: differ in that: with another one a choice is made again.
CHOICES: Choices[Config] = Choices(
    "nm_spmm",
    HERE / "choices",
    dict.fromkeys(("m", "n", "k", "keep", "group", "vector"), int),
    {"fp32": Config},
    sources,
)
ROUNDS = Rounds(first=5, final=9, finalists=3, short_us=60, factor=2)


def key(problem: Problem) -> tuple[int, ...]:
    """Return what a choice is kept under."""
    b = problem.device().b
    return problem.m, problem.n, problem.k, b.keep, b.group, b.vector


#: Of the candidates, those within this factor of the least predicted time are tried, the best few of them;
#: more where the product takes SHORT_CYCLES at most, where predictions are worse and trials cheaper.
WITHIN, MOST, MOST_SHORT = 1.7, 8, 24
SHORT_CYCLES = 400_000
#: Cycles until the first step of a block has come from DRAM, and until a cluster's blocks have met twice.
FILL, MEET = 2500, 2500
#: Cycles of a step in which nothing is multiplied: its barrier, its first indices, its first fragment.
STEP = 150

#: Tiles as (bm, bn, tm, tn, blocks an SM), and the share of multiply-adds in the issue slots that they reach.
TILES = {
    (128, 256, 8, 16, 1): 0.84,
    (128, 256, 16, 8, 1): 0.83,
    (128, 128, 8, 8, 2): 0.77,
    (64, 256, 8, 8, 2): 0.77,
    (64, 128, 8, 8, 4): 0.74,
    (64, 64, 8, 8, 4): 0.70,
    (64, 128, 4, 8, 2): 0.66,
    (64, 64, 4, 8, 4): 0.66,
    (32, 64, 4, 8, 8): 0.64,
    (32, 32, 4, 8, 16): 0.60,
}
SPLITS = (1, 2, 4, 8)
DEPTHS = (32, 64, 96, 128)
#: Rows of the loop's body in a tile that fills an SM alone: more of its rows than 12 no instruction cache holds.
BODIES = (8, 12)
#: Rows of a step up to which smaller tiles' steps are unrolled whole.
MOST_ROWS = 48
#: Without TMA: copies by cp.async.
WIDE = tuple(
    Config("wide", bm, bn, tm, depth=depth, blocks=blocks, ahead=False)
    for bm, bn, tm, blocks in ((128, 128, 16, 2), (128, 128, 8, 2), (64, 64, 8, 4))
    for depth in DEPTHS[:2]
)


@functools.lru_cache(64)
def members(keep: int, group: int) -> tuple[Config, ...]:
    """Every configuration of the copy engine's kernels that the tuner knows for a pattern."""
    found = []
    for bm, bn, tm, tn, blocks in TILES:
        for depth in DEPTHS:
            c = Config("bulk", bm, bn, tm, tn, depth=depth, blocks=blocks, ahead=False)
            height = rows(c, keep, group)
            if blocks == 1:  # one block an SM, whose steps are evened out, or two that share a tile
                for body in BODIES:
                    c = replace(c, unroll=unrolled(replace(c, unroll=body), keep, group))
                    found += [replace(c, kernel="stream"), replace(c, kernel="cluster", split=2)]
            elif height <= MOST_ROWS or depth == DEPTHS[0]:
                stages = (3, 4) if tm == 4 else (3,)
                for split in SPLITS:
                    kernel = "cluster" if split > 1 else "bulk"
                    found += [replace(c, kernel=kernel, split=split, stages=s) for s in stages]
    return tuple(dict.fromkeys(found))


def candidates(problem: Problem, device) -> list[Config]:
    """Return what takes the problem on this GPU, without what a prediction rules out, the best first."""
    b, most = problem.device().b, device.properties
    sizes = problem.m, problem.n, b.w, b.keep, b.group, slot_of(b)
    of_sm = most.multiprocessor_count, most.max_shared_memory_per_multiprocessor
    return list(_likely(*sizes, jit.arch_of(device) in HOPPER, most.max_shared_memory_per_block_optin, *of_sm))


@functools.lru_cache(1024)
def _likely(
    m: int, n: int, w: int, keep: int, group: int, slot: int, hopper: bool, most: int, sms: int, memory: int
) -> tuple[Config, ...]:
    taken = [c for c in (members(keep, group) if hopper else WIDE) if takes(c, keep, group, slot, most)]
    cycles = {c: predict(c, m, n, w, keep, group, slot, sms, memory) for c in taken}
    least = min(cycles.values(), default=0.0)
    likely = tuple(c for c in sorted(taken, key=cycles.__getitem__) if cycles[c] <= WITHIN * least)
    return likely[: MOST_SHORT if least < SHORT_CYCLES else MOST]


def takes(config: Config, keep: int, group: int, slot: int, most: int) -> bool:
    """Whether the pattern's steps fit a configuration's block: `check`."""
    return holds(check, config, keep, group, slot, most)


def fits(config: Config, problem: Problem, device) -> bool:
    """Whether the GPU takes a configuration for the problem."""
    b, most = problem.device().b, device.properties.max_shared_memory_per_block_optin
    hopper = config.kernel == "wide" or jit.arch_of(device) in HOPPER
    return hopper and takes(config, b.keep, b.group, slot_of(b), most)


def jobs(configs: list[Config], problem: Problem) -> list[tuple[Path, str]]:
    """Return what has to be compiled for the problem: (source, entry) of each."""
    b = problem.device().b
    pattern = b.keep, b.group, slot_of(b), problem.m % 4 == 0
    return [(SOURCES[config.kernel], entry(config, *pattern)) for config in configs]


def predict(config: Config, m: int, n: int, w: int, keep: int, group: int, slot: int, sms: int, memory: int) -> float:
    """Cycles of a configuration, to rank them: what bounds a step, times steps, times waves.

    w: compressed rows of B, keep:group; memory: bytes of shared memory of an SM. An SM multiplies 128 pairs a cycle,
    times the tile's share of issue slots, and copies about 40 bytes a cycle from L2.
    """
    c = config
    height = rows(c, keep, group)
    shared = shared_bytes(c, keep, group, slot) + RESERVED
    resident = max(1, min(c.blocks, memory // shared))
    steps = ceil(w / (windows(c, group) * keep))
    share = TILES.get((c.bm, c.bn, c.tm, c.tn, c.blocks), 0.7)
    math = height * c.bm * c.bn / 128 / share
    depth = windows(c, group) * group
    copied = (depth * c.bm + height * c.bn) * 4 / 40
    alone = height * (c.tm * c.tn / 0.7 + 15)  # a warp that has its scheduler for itself
    tiles, store = ceil(m / c.bm) * ceil(n / c.bn), c.bm * c.bn / 32

    def block(steps: float, together: int) -> float:
        """Of a block, where so many share an SM."""
        return steps * (max(together * math, together * copied, alone) + STEP) + together * store

    if c.kernel == "stream":
        # Sums of tiles that are not whole pass through L2. With less than a tile for each block all of
        # them do, and at the end, where nothing else is left to do meanwhile.
        share = tiles / sms / resident
        extra = (share + (4 if share >= 1 else 24)) * store
        return FILL + block(ceil(share * steps), resident) + extra * resident
    meet = 0.0
    if c.split > 1:
        # Partial sums pass through shared memory, and every block reads its part of all its cluster's.
        steps = ceil(steps / c.split)
        meet = MEET + 9 * store
    full, rest = divmod(tiles * c.split, sms * resident)
    last = block(steps, ceil(rest / sms)) + meet + FILL if rest else 0.0
    return full * (block(steps, resident) + meet + FILL) + last
