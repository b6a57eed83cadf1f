"""The system's variants, how our FP32 configurations are launched (`family` says what they are), and the tuner.

Stream-K says which steps of which tiles of C each block multiplies, so that all multiply equally many: Osama, Merrill,
Cecka, Garland, Owens: "Stream-K: work-centric parallel decomposition for dense matrix-matrix multiplication on the
GPU", PPoPP 2023. The tiles beyond whole waves, and one wave more where there is one, are cut along k into equal shares;
the remaining whole waves are left alone.
"""

import functools
from math import ceil
from pathlib import Path

import numpy as np

from .. import autotune, jit, padding, tma
from ..contract import Family, Kernel, Launch, PreparedKernel, Problem, require, single, timed
from ..formats import layout
from ..lazy import core, cupy
from . import family, published, tensor
from .family import MAX_GRID, Config
from .operands import SYSTEM, require_float32

BASELINES = ("cublas", "cublas.tensor", "nm_baseline", "cusparse")
_AUTO = Kernel(
    "auto",
    Path(__file__).with_name("stream.cu"),
    "the fastest of stream, bulk and cluster in ten tiles, tried on the problem (tuning)",
    "1.2x over v3 at 4096 cubed, and as much at small sizes, where the published tiles leave SMs idle.",
    family.KERNELS["turned"].entries,
    targets=family.HOPPER,
)
VARIANTS: dict[str, Kernel] = {
    **published.KERNELS,
    **published.NMSPARSE,
    **family.KERNELS,
    "auto": _AUTO,
    **tensor.KERNELS,
}
#: A block with fewer steps than this spends more on the workspace than on its product.
LEAST_STEPS = 3
MAX_TILES = 1 << 15  # along m, and along n: a part has 16 bits for each


def prepare(variant: str, problem: Problem, device, **extra) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess B and make it ready.

    extra: `file` of "auto", see `autotune.prepare_choice`. Raises ValueError where the variant does not exist, or does
    not take the problem or the GPU.
    """
    require(
        variant in VARIANTS,
        f"{SYSTEM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    if variant in tensor.KERNELS:
        return tensor.prepare(variant, problem, device)
    require_float32(variant, problem.device())
    if variant == "auto":
        return autotune.prepare_choice(variant, FAMILIES[variant], problem, device, **extra)
    return (prepare_rung if variant in family.RUNGS else published.prepare)(variant, problem, device)


def prepare_rung(variant: str, problem: Problem, device) -> Launch:
    """One of `family.RUNGS` or `family.TRIALS`, ready to run on float32 operands."""
    return prepare_config(variant, problem, device, family.named(variant, problem, device))


def prepare_config(name: str, problem: Problem, device, config: Config) -> Launch:
    """Compile a configuration for `device` (a current `cuda.core.Device`), lay B out, make it ready.

    Raises ValueError where the GPU or the configuration does not take the problem.
    """
    ops, arch = problem.device(), jit.arch_of(device)
    require_float32(name, ops)
    require(
        config.kernel == "wide" or arch in family.HOPPER,
        f"{name} needs the copy engine of {family.HOPPER[0]}, which {arch} has not: use wide",
    )
    c, b, m, n, k = config, ops.b, problem.m, problem.n, problem.k
    slot, pattern = family.slot_of(b), (b.keep, b.group)
    family.check(c, *pattern, slot, device.properties.max_shared_memory_per_block_optin)

    # Zeros fill a step's rows up to a multiple of four, their index is 0.
    windows, height = family.windows(c, b.group), family.rows(c, *pattern)
    depth, tiles = windows * b.group, (ceil(m / c.bm), ceil(n / c.bn))
    steps = ceil(k / depth)
    (val, index), prepare_ms = timed(lambda: layout.vector_steps(b, c.bn, windows, slot, height, True))
    require(
        tiles[1] <= MAX_GRID,
        f"{name} has a grid row for every {c.bn} columns of C and n = {n} needs more than {MAX_GRID}: "
        "multiply in several column ranges",
    )
    a, lda, copies = padding.aligned(ops.a, device)
    shared = family.shared_bytes(c, *pattern, slot)
    aligned = m % 4 == 0 and ops.c.data.ptr % padding.ALIGNMENT == 0
    kernel = jit.loaded(family.SOURCES[c.kernel], family.entry(c, *pattern, slot, aligned), device, shared)
    how: dict = {"cluster": (1, 1, c.split)} if c.kernel == "cluster" else {}
    grid: int | tuple[int, int] = tiles  # with a cluster it counts clusters, which are split blocks deep
    work: tuple = ()
    shares: tuple = ()
    if c.kernel == "stream":
        table = cupy.asarray(_parts(*tiles, steps, device.properties.multiprocessor_count * c.blocks))
        grid = len(table)  # one list of parts for each block, a tile of partial sums, for each warp a `Handover`
        partial = cupy.empty((grid, c.bm, c.bn), np.float32)
        work = table, partial, cupy.zeros((grid, c.threads // 32, 2), np.uint32)
        tail, length = map(np.int32, (family.tail(c, *pattern, b.w), table.shape[1]))
        shares = tail, table.data.ptr, length, *(x.data.ptr for x in work[1:])
    arrays, one = (val.data.ptr, index.data.ptr, *shares, ops.c.data.ptr), np.float32(1)
    arguments: tuple = (*map(np.int32, (m, n, k, steps, lda)), one, a.data.ptr, *arrays)
    if c.kernel != "wide":
        across = a[:, :m] if copies else a.T  # A^T (k, m), its rows lda apart: a copy is made so
        arguments = (*map(np.int32, (m, n, steps)), one, tma.tensor_map(across, (depth, c.bm)), *arrays)
    launch = core.LaunchConfig(grid=grid, block=c.threads, shmem_size=shared, **how)
    return Launch(
        name,
        [*copies, (kernel, launch, arguments)],
        ops.c,
        prepare_ms,
        val.nbytes + index.nbytes,
        keep=(ops, (val, index), a, work, arguments),
        scratch=(*work[1:], *([a] if copies else [])),
    )


def parts(tiles_m: int, tiles_n: int, steps: int, blocks: int) -> np.ndarray:
    """Return what each block does, in order: int32 (blocks, most, 4), the `Part`s of stream.cu.

    tiles_m, tiles_n: tiles of C along m and n; steps: of a tile along k, at least 1; blocks: that run at
    the same time. Fewer come back where there is not work for all.

    A part is (tile, first, start, others): the row of tiles and, times 65536, its column; the part's
    first step; the steps that the block has done before it; and, if the tile's last step is in it, how
    many blocks before this one have the others of its steps, else -1. Each list is filled up with parts
    of no steps, of which `start` is all the block's steps.

    Raises ValueError for more tiles along m or n than a part can name.
    """
    require(
        max(tiles_m, tiles_n) < MAX_TILES,
        f"C has {tiles_m} x {tiles_n} tiles, but a schedule names at most {MAX_TILES - 1} along each: "
        "multiply in several ranges",
    )
    tiles = tiles_m * tiles_n
    waves, rest = divmod(tiles, blocks)
    cut = rest + blocks * (waves > 0) if rest else 0  # tiles
    if waves == 0:
        blocks = max(1, min(blocks, tiles * steps // LEAST_STEPS))
    ends = cut * steps * np.arange(1, blocks + 1) // blocks  # of the blocks' shares, counted in steps
    # Where a share or a tile ends, so does a part. A block begins with its last one.
    at = np.unique(np.concatenate([ends, steps * np.arange(cut + 1)]))
    begin, end, part = at[:-1], at[1:], np.arange(len(at) - 1)
    tile, block = begin // steps, np.searchsorted(ends, end)
    others = np.where(end == (tile + 1) * steps, part - np.searchsorted(begin, tile * steps), -1)
    of_block, whole, every = np.bincount(block, minlength=blocks), (tiles - cut) // blocks, np.arange(blocks)
    table = np.zeros((blocks, of_block.max() + whole + 1, 4), np.int64)
    shares = np.diff(ends, prepend=0)
    table[:, :, 2] = (shares + whole * steps)[:, None]
    place = np.searchsorted(block, block, side="right") - 1 - part
    table[block, place] = np.stack([tile, begin - tile * steps, ends[block] - end, others], axis=1)
    for i in range(whole):
        table[every, of_block + i] = np.stack(
            [cut + every + i * blocks, 0 * every, shares + i * steps, 0 * every], axis=1
        )
    table[:, :, 0] = table[:, :, 0] % tiles_m + (table[:, :, 0] // tiles_m << 16)
    return table.astype(np.int32)


_parts = functools.lru_cache(256)(parts)


def tune(problem: Problem, device) -> autotune.Winner:
    """Return the fastest candidate whose output is that of the paper's v1, or where v1 cannot run, of `wide`."""
    configs, b = family.candidates(problem, device), problem.device().b
    require(
        bool(configs),
        f"no configuration takes {b.keep}:{b.group} on this GPU: a step of whole windows is too large "
        "for shared memory, see family.TILES",
    )
    return autotune.tune(
        problem,
        configs,
        lambda p, config: prepare_config("trial", p, device, config),
        (lambda p: published.prepare("v1", p, device), lambda p: prepare_rung("wide", p, device)),
        device,
        family.ROUNDS,
        family.jobs(configs, problem),
    )


FAMILIES = {
    "auto": Family(prepare_config, family.candidates, family.fits, tune, family.CHOICES, family.key),
    **{name: single(name, tensor.prepare) for name in tensor.KERNELS},
}
