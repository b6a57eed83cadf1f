"""NM-SpMM as published: v1, v2 and v3, in the configurations of Table I, and as its authors' benchmark times it.

With nmSPARSE as they time that: its tiles, its loads and stores, and no split-K (section IV-D, Fig. 9).
"""

from dataclasses import replace
from math import ceil, gcd
from pathlib import Path

import numpy as np

from .. import autotune, jit, padding
from ..autotune import Rounds
from ..contract import Kernel, Launch, PreparedKernel, Problem, require, timed
from ..formats import layout, nm
from ..formats.nm import INT32_MAX, Nm
from ..lazy import core
from . import analysis, packing
from .analysis import TABLE_1, Tile
from .family import MAX_GRID
from .packing import slot_of

HERE = Path(__file__).parent
#: N of the paper's patterns, of M = 32 rows.
KEPT = (32, 16, 12, 8, 4)
GROUP = 32
#: Rows of A^T in a step, about: the authors' k_s, unpacked and packed.
DEPTH = {False: 32, True: 64}
BLOCKS_PER_SM = 2  # that split-K provides, where shares suffice
SHARES = 4  # of split-K, at most
#: Table I, and the fourth tile of the authors' code, which calls it large and Table I's large one huge.
TILES = TABLE_1 | {"square": Tile(64, 64, (64, 32), (8, 8))}
#: Shares of k that the authors time for every tile, to keep the best (benchmark/kernel_performance/run_test/nmspmm).
SPLITS = (1, 2, 4, 8)
#: Blocks an SM from which on cutting k is not tried: more blocks can no longer help, and what they add costs.
ENOUGH_BLOCKS = 8
ROUNDS = Rounds(first=5, final=9, finalists=3, short_us=60, factor=2)
#: Variant -> the class of Table I that it always has; the others have that of the size.
FORCED = {
    "v3_packed": "large",
    "v3_unpacked": "large",
    "small": "small",
    "medium": "medium",
    "large": "large",
    "square": "square",
}


#: Variants that pack at every sparsity, or at none; the others do above 70% (III-A).
PACKS = {"v1": False, "v3_unpacked": False, "v3_packed": True}


def windows(keep: int, group: int, packed: bool) -> int:
    """Pruning windows of a step: about the authors' k_s, 32 rows of A^T and packed 64.

    A multiple that makes whole 16-byte reads of the index, where so few windows have one.
    """
    most = max(1, DEPTH[packed] // group)
    unit = 4 // gcd(4, keep)
    return most // unit * unit or most


def shared_bytes(source: str, tile: Tile, keep: int, group: int, slot: int, capacity: int) -> int:
    """Dynamic shared memory of a block of v1, v2 or v3. capacity: rows of A^T in a buffer."""
    rows, depth = tile.windows * keep, tile.windows * group
    entries = tile.columns // slot * rows
    floats = capacity * tile.rows + rows * tile.columns
    if source == "v3":
        return 2 * 4 * (floats + ceil(entries / 4) * 4 + tile.packed * depth)
    return 4 * (floats + entries + tile.packed * depth)


def entry(
    source: str,
    tile: Tile,
    keep: int,
    group: int,
    slot: int = 32,
    *,
    add: bool = False,
    vector: bool = True,
) -> str:
    """Return the template instantiation of v1.cu, v2.cu or v3.cu.

    add: whether partial sums meet in C. vector: whether C is stored 16 bytes at a time.
    """
    sizes = (tile.rows, tile.columns, *tile.thread, tile.windows * group, tile.windows * keep, slot)
    flags = (tile.packed, add, vector) if source == "v3" else (vector,)
    return f"{source}<{', '.join(map(str, sizes + flags)).lower()}>"


def configured(variant: str, name: str, keep: int, group: int) -> Tile:
    """Return a variant's configuration for keep:group with the class `name` of Table I."""
    packed = PACKS.get(variant, 1 - keep / group > analysis.HIGH)
    return replace(TILES[FORCED.get(variant, name)], windows=windows(keep, group, packed), packed=packed)


def source_of(variant: str, packed: bool) -> str:
    """Return the stem of the .cu file; v2 packs from 70% sparsity on and is v1 below it (the paper's rule)."""
    return {"v1": "v1", "v2": "v2" if packed else "v1"}.get(variant, "v3")


def _kernel(variant: str, idea: str, classes: tuple[str, ...] = tuple(TABLE_1), prediction: str = "") -> Kernel:
    """prediction: of a study, which the paper does not have."""
    stem, cuts = source_of(variant, True), (False, True) if variant in ("v3_split_k", "v3_searched") else (False,)
    tiles = [(keep, configured(variant, name, keep, GROUP)) for name in classes for keep in KEPT]
    entries = (
        entry(stem, tile, keep, GROUP, add=add)
        for keep, tile in tiles
        if source_of(variant, tile.packed) == stem  # v2's others are v1's
        for add in cuts
    )
    return Kernel(variant, HERE / f"{stem}.cu", idea, prediction, tuple(entries), published=not prediction)


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        _kernel("v1", "hierarchical blocking: load, synchronise, multiply, synchronise"),
        _kernel("v2", "above 70% sparsity only the rows of A that a block needs are staged"),
        _kernel("v3", "double buffers in shared memory and in registers, the index prefetched"),
        _kernel(
            "v3_packed",
            "v3 with the large blocks, packed at every sparsity",
            ("large",),
            "1.2x over v3_unpacked at 87.5%, where a block needs 41% of its rows of A; behind it at 50%, "
            "where it needs 94%.",
        ),
        _kernel(
            "v3_unpacked",
            "v3 with the large blocks, packed at none",
            ("large",),
            "1.05x over v3_packed at 50%: nothing waits for a list of rows.",
        ),
        _kernel(
            "v3_split_k",
            "v3 with up to 4 shares of k, added atomically, for few blocks",
            prediction="1.2x over v3 at 512 cubed, whose 256 blocks of 32 x 32 are two an SM; as fast from "
            "2048 on, where it is v3.",
        ),
        _kernel(
            "v3_searched",
            "v3 as its authors time it: the fastest of their four tiles, with 1, 2, 4 or 8 shares of k",
            tuple(TILES),
            "1.06x over v3 in the mean of the anchors: 1.2x at 1024 x 2048 and at 256 x 4096, where 64 x 64 fills the "
            "GPU and 32 x 64 reads too much, and nothing from 2048 x 4096 on.",
        ),
        _kernel("small", "v3 with blocks of 32 x 32, 4 x 4 a thread", ("small",)),
        _kernel("medium", "v3 with blocks of 32 x 64, 8 x 4 a thread", ("medium",)),
        _kernel("large", "v3 with blocks of 64 x 128, 8 x 8 a thread", ("large",)),
        _kernel(
            "square",
            "v3 with blocks of 64 x 64, 8 x 8 a thread: in the authors' code, not in Table I",
            ("square",),
            "1.2x over v3 at 1024 x 2048, whose class in Table I has 32 x 64: a third fewer bytes, and as many blocks "
            "as an SM needs.",
        ),
    )
}


SQUARE = 32  #: rows and columns of C that a block of nmSPARSE computes, and that share an index
TURN = 8  #: compressed rows that the block loads at once
VW32 = "nmsparse_vw32"  #: what nmSPARSE calls vectors of 32
NMSPARSE: dict[str, Kernel] = {
    VW32: Kernel(
        VW32,
        HERE / "nmsparse.cu",
        "what the paper compares with: nmSPARSE's 32 x 32 tiles, loads and stores, steps of 128 or 256 rows of B",
        "0.7x over nm_baseline, as the authors' own build of it on an H200: 0.9x at 4096 cubed, 0.5x at 512 cubed.",
        tuple(f"nmsparse<{SQUARE}, {SQUARE}, {depth}>" for depth in (128, 256)),
    )
}


def prepare(variant: str, problem: Problem, device) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess B and make it ready.

    Any m, n and k, any N:M of which a window fits shared memory, vectors of any multiple of 4
    columns, or one vector of all; nmSPARSE takes less. Raises ValueError, one sentence, for what it does not take.
    """
    if variant in NMSPARSE:
        return prepare_nmsparse(variant, problem, device)
    if variant == "v3_searched":
        return search(variant, problem, device)
    name = analysis.class_of(device.properties.multiprocessor_count, problem.m, problem.n)
    return prepare_tile(variant, problem, device, name)


def candidates(problem: Problem, sms: int) -> list[tuple[str, int]]:
    """Return what the authors time for a problem, a tile and shares of k, without what cannot be faster."""
    b, found = problem.device().b, []
    for name, tile in TILES.items():
        depth = configured("v3", name, b.keep, b.group).windows * b.group
        most = ceil(b.k / depth) if tile.blocks(problem.m, problem.n) < ENOUGH_BLOCKS * sms else 1
        found += [(name, split) for split in SPLITS if split == 1 or split <= most]
    return found


def search(variant: str, problem: Problem, device) -> PreparedKernel:
    """Return the fastest of the authors' tiles and shares of k on this GPU, ready to run.

    `prepare_ms` holds the trials.

    With several shares C is cleared first, which is timed; the authors' benchmark adds to what is in C.
    """
    b, configs = problem.device().b, candidates(problem, device.properties.multiprocessor_count)
    pattern, slot, vector = (b.keep, b.group), slot_of(b), problem.m % 4 == 0
    tiles = ((configured("v3", name, *pattern), split > 1) for name, split in configs)
    winner = autotune.tune(
        problem,
        configs,
        lambda p, config: prepare_tile(variant, p, device, *config),
        (lambda p: prepare("v1", p, device),),
        device,
        ROUNDS,
        dict.fromkeys(
            (HERE / "v3.cu", entry("v3", tile, *pattern, slot, add=add, vector=vector)) for tile, add in tiles
        ),
    )
    winner.bound.prepare_ms += winner.spent_ms
    return winner.bound


def prepare_tile(variant: str, problem: Problem, device, name: str, split: int = 0) -> Launch:
    """One kernel with the tile `name` of TILES, or the variant's own. split: shares of k; 0: the variant's."""
    ops, properties = problem.device(), device.properties
    b: Nm = ops.b
    m, n, slot, limit = problem.m, problem.n, slot_of(b), properties.max_shared_memory_per_block_optin
    tile = configured(variant, name, b.keep, b.group)
    source = source_of(variant, tile.packed)

    def needed(tile: Tile) -> int:
        return shared_bytes(source, tile, b.keep, b.group, slot, tile.windows * b.group)

    while tile.windows > 1 and needed(tile) > limit:
        tile = replace(tile, windows=tile.windows // 2)
    require(
        needed(tile) <= limit,
        f"{variant} stages a window of {b.keep}:{b.group} at once, which takes {needed(tile)} B of the "
        f"{limit} B of shared memory that a block may have: choose a smaller group",
    )
    grid = ceil(n / tile.columns), ceil(m / tile.rows)
    require(
        grid[1] <= MAX_GRID,
        f"{variant} has a grid row for every {tile.rows} rows of C and m = {m} needs more than "
        f"{MAX_GRID}: multiply in several row ranges",
    )
    whole = replace(b, val=b.val.copy()) if b.val.data.ptr % padding.ALIGNMENT else b  # a view of a larger array
    packed, prepare_ms = timed(
        lambda: packing.convert(whole, tile.columns, tile.windows, packed=tile.packed, slot=slot)
    )
    shares = min(split, packed.steps) or 1
    if variant == "v3_split_k":  # the fewest that give every SM enough blocks
        enough = ceil(BLOCKS_PER_SM * properties.multiprocessor_count / (grid[0] * grid[1]))
        shares = min(packed.steps, SHARES, enough)
    vector = m % 4 == 0 and ops.c.data.ptr % padding.ALIGNMENT == 0
    capacity = int(packed.count.max()) if packed.packed else packed.depth
    shared = shared_bytes(source, tile, b.keep, b.group, slot, capacity)
    instance = entry(source, tile, b.keep, b.group, slot, add=shares > 1, vector=vector)
    kernel = jit.loaded(HERE / f"{source}.cu", instance, device, shared)
    config = core.LaunchConfig(grid=(*grid, shares), block=tile.threads, shmem_size=shared)
    a, lda, steps = padding.aligned(ops.a, device)
    sizes = m, n, problem.k, lda, packed.steps, *[capacity] * (source != "v1")
    lists = [0 if packed.col_info is None else packed.col_info.data.ptr] * (source != "v1")
    pointers = *(x.data.ptr for x in (a, packed.val, packed.index)), *lists, ops.c.data.ptr
    return Launch(
        variant,
        [*steps, (kernel, config, (*map(np.int32, sizes), *pointers))],
        ops.c,
        prepare_ms,
        packed.index.nbytes + packed.col_info_bytes + (packed.val.nbytes if packed.val is not b.val else 0),
        keep=(ops, packed, a),
        accumulates=shares > 1,
        scratch=(a,) if a is not ops.a else (),
    )


def prepare_nmsparse(variant: str, problem: Problem, device) -> Launch:
    """Compile nmSPARSE's kernel, expand the indices of B and make it ready; steps are of 128 rows at 50%, else 256.

    B is padded with zeros to whole steps where k has none (`prepare_ms`). Raises ValueError, one sentence, where m or n
    is no multiple of 32, where 32 columns do not share their indices, where groups do not divide a step, and where a
    matrix has 2^31 elements.
    """
    ops, m, n = problem.device(), problem.m, problem.n
    b: Nm = ops.b
    for name, value in (("m", m), ("n", n)):
        require(
            value % SQUARE == 0,
            f"{variant} needs {name} to be a multiple of {SQUARE}, the tile of a block, not {value}: use v3",
        )
    require(
        n // SQUARE <= MAX_GRID,
        f"{variant} has a grid row for every {SQUARE} columns of C and n = {n} needs more than "
        f"{MAX_GRID}: multiply in several column ranges",
    )
    require(
        b.vector % SQUARE == 0 or b.vector >= b.n,
        f"{variant} reads the indices of a block's first column only, but B shares them among {b.vector} "
        f"columns, no multiple of {SQUARE}: use v3",
    )
    half = 2 * b.keep == b.group
    deep = 128 if half else 256
    rows, rest = divmod(deep * b.keep, b.group)
    require(
        rest == 0 and rows % TURN == 0 and rows % b.keep == 0,
        f"{variant} has steps of {deep} rows of B, of which {b.keep}:{b.group} makes no multiple of "
        f"{TURN} compressed rows in whole groups: use v3",
    )
    shared, limit = 4 * rows * 2 * SQUARE, device.properties.max_shared_memory_per_block_optin
    require(
        shared <= limit,
        f"{variant} stages {rows} compressed rows, which takes {shared} B of the {limit} B of shared memory that a "
        "block may have: use v3",
    )
    w = ceil(b.w / rows) * rows
    largest = max(m * problem.k, w * n, m * n)
    require(
        largest <= INT32_MAX,
        f"{variant} counts elements in 32 bits, and a matrix here has {largest}: use v3",
    )
    (val, index), prepare_ms = timed(lambda: _whole_steps(b, w))
    kernel = jit.loaded(NMSPARSE[variant].source, NMSPARSE[variant].entries[not half], device, shared)
    config = core.LaunchConfig(grid=(m // SQUARE, n // SQUARE), block=SQUARE * SQUARE // 16, shmem_size=shared)
    # Exact in FP32, and so is what the kernel makes of it: `rows` is a whole number of at most 256 parts of `deep`.
    sparsity = np.float32(1 - b.keep / b.group)
    pointers = (x.data.ptr for x in (ops.a, val, index, ops.c))
    return Launch(
        variant,
        [(kernel, config, (*map(np.int32, (m, n, w // rows * deep)), sparsity, *pointers))],
        ops.c,
        prepare_ms,
        index.nbytes + (val.nbytes if val is not b.val else 0),
        keep=(ops, val, index),
    )


def _whole_steps(b: Nm, w: int):
    """(values, indices) of `w` compressed rows, w x n each, where B lives: beyond its own, zeros and its last indices.

    The values are b.val itself where nothing is added.
    """
    index = nm.per_column_index(b)
    if w == b.w:
        return b.val, index
    more = b.xp.broadcast_to(index[-1:], (w - b.w, b.n))
    return layout.with_zeros(b.val, w, b.n), b.xp.concatenate([index, more])
