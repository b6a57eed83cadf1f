"""nmSPARSE as NM-SpMM's authors time it: its tiles, its loads and stores, and no split-K (section IV-D, Fig. 9)."""

from math import ceil
from pathlib import Path

import numpy as np

from .. import jit
from ..contract import Kernel, Launch, PreparedKernel, Problem, require, timed
from ..formats import layout, nm
from ..formats.nm import INT32_MAX, Nm

HERE = Path(__file__).parent
TILE = 32  #: rows and columns of C that a block computes, and that share an index
THREADS = TILE * TILE // 16  #: 4 x 4 of C a thread
TURN = 8  #: compressed rows that the block loads at once
MAX_GRID = 2**16 - 1


def entry(depth: int) -> str:
    """Return the template instantiation for steps of so many rows of B."""
    return f"nmsparse<{TILE}, {TILE}, {depth}>"


NAME = "nmsparse_vw32"  #: what nmSPARSE calls vectors of 32
KERNELS: dict[str, Kernel] = {
    NAME: Kernel(
        NAME,
        HERE / "nmsparse.cu",
        "what the paper compares with: nmSPARSE's 32 x 32 tiles, loads and stores, steps of 128 or 256 rows of B",
        "0.7x over nm_baseline, as the authors' own build of it on an H200: 0.9x at 4096 cubed, 0.5x at 512 cubed.",
        (entry(128), entry(256)),
    )
}


def depth(keep: int, group: int) -> int:
    """Rows of B in a step: 128 at 50% sparsity, else 256."""
    return 128 if 2 * keep == group else 256


def prepare(variant: str, problem: Problem, device) -> PreparedKernel:
    """Compile the kernel for `device` (a current `cuda.core.Device`), expand the indices of B and make it ready.

    B is padded with zeros to whole steps where k has none (`prepare_ms`). Raises ValueError, one sentence, where m or n
    is no multiple of 32, where 32 columns do not share their indices, where groups do not divide a step, and where a
    matrix has 2^31 elements.
    """
    ops = problem.device()
    b: Nm = ops.b
    for name, value in (("m", problem.m), ("n", problem.n)):
        require(
            value % TILE == 0,
            f"{variant} needs {name} to be a multiple of {TILE}, the tile of a block, not {value}: use v3",
        )
    require(
        problem.n // TILE <= MAX_GRID,
        f"{variant} has a grid row for every {TILE} columns of C and n = {problem.n} needs more than "
        f"{MAX_GRID}: multiply in several column ranges",
    )
    require(
        b.vector % TILE == 0 or b.vector >= b.n,
        f"{variant} reads the indices of a block's first column only, but B shares them among {b.vector} "
        f"columns, no multiple of {TILE}: use v3",
    )
    deep = depth(b.keep, b.group)
    rows, rest = divmod(deep * b.keep, b.group)
    require(
        rest == 0 and rows % TURN == 0 and rows % b.keep == 0,
        f"{variant} has steps of {deep} rows of B, of which {b.keep}:{b.group} makes no multiple of "
        f"{TURN} compressed rows in whole groups: use v3",
    )
    shared, limit = 4 * rows * 2 * TILE, device.properties.max_shared_memory_per_block_optin
    require(
        shared <= limit,
        f"{variant} stages {rows} compressed rows, which takes {shared} B of the {limit} B of shared memory that a "
        "block may have: use v3",
    )
    w = ceil(b.w / rows) * rows
    largest = max(problem.m * problem.k, w * problem.n, problem.m * problem.n)
    require(
        largest <= INT32_MAX,
        f"{variant} counts elements in 32 bits, and a matrix here has {largest}: use v3",
    )
    (val, index), prepare_ms = timed(lambda: whole_steps(b, w))
    kernel = jit.load(jit.compile_cubin(KERNELS[variant].source, entry(deep), jit.arch_of(device)), shared)
    from cuda.core import LaunchConfig

    config = LaunchConfig(grid=(problem.m // TILE, problem.n // TILE), block=THREADS, shmem_size=shared)
    # Exact in FP32, and so is what the kernel makes of it: `rows` is a whole number of at most 256 parts of `deep`.
    sparsity = np.float32(1 - b.keep / b.group)
    sizes = *map(np.int32, (problem.m, problem.n, w // rows * deep)), sparsity
    pointers = (x.data.ptr for x in (ops.a, val, index, ops.c))
    copied = val.nbytes if val is not b.val else 0
    return Launch(
        variant,
        [(kernel, config, (*sizes, *pointers))],
        ops.c,
        prepare_ms,
        index.nbytes + copied,
        keep=(ops, val, index),
    )


def whole_steps(b: Nm, w: int):
    """(values, indices) of `w` compressed rows, w x n each, where B lives: beyond its own, zeros and its last indices.

    The values are b.val itself where nothing is added.
    """
    xp, index = b.xp, nm.per_column_index(b)
    if w == b.w:
        return b.val, index
    more = xp.broadcast_to(index[-1:], (w - b.w, b.n))
    return layout.with_zeros(b.val, w, b.n), xp.concatenate([index, more])
