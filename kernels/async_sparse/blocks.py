"""Blocks in 16 bits on any GPU from sm_80 on: blocks_mma.cu's tile and ring for a problem, its arguments, the launch.

Blocks have the sides of `bcsr.SIDES`; none are stacked, since a warp's mma.sync has 16 rows where a wgmma has 64. B and
C lie in either order. Lines of B that do not begin at multiples of 16 bytes are copied in the launch (`lines.py`); C
is written where it lies. The order of additions is fixed, so results are the same bits every time.
"""

from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np

from ..contract import Kernel, Launch, Problem, require, timed
from ..formats import half, layout
from ..formats.csr import INT32_MAX
from ..formats.half import array_of
from . import unit
from .family import Shape, instance, shape_of
from .lines import lines

NAME = "blocks_mma"
SOURCE = Path(__file__).with_name("blocks_mma.cu")
THREADS = 128
STEP = 32  #: of k
#: Blocks of threads that share an SM, and the shared memory that the driver takes for each.
TOGETHER, DRIVER = 2, 1024
MOST_STAGES = 5
#: Of B: panels whose B is as large as that are worked on together.
GROUP_BYTES = 4 * 2**20
#: To rank tiles: bytes that an SM gets from L2 in a cycle, and that it writes; cycles of a step and of a tile that no
#: bytes explain.
L2, WRITE, STEP_CYCLES, TILE_CYCLES = 42, 24, 100, 1000


@dataclass(frozen=True)
class Tile:
    """A tile of blocks_mma, as high as a block, and its ring."""

    columns: int = 256  #: of C
    stages: int = 4


def widths(b_row: int) -> tuple[int, ...]:
    """Columns that a tile may have: a warp has 64 x 64 of it at most."""
    return (128, 64) if b_row == 128 else (256, 128, 64)


def shared_bytes(tile: Tile, b_row: int) -> int:
    """Dynamic shared memory of a block of threads."""
    return tile.stages * (b_row + tile.columns) * STEP * 2


def filled(columns: int, b_row: int, most: int) -> Tile:
    """Return a tile whose ring is so deep that two share an SM; most: bytes of shared memory that a block may have."""
    each = (most + DRIVER) // TOGETHER - DRIVER
    return Tile(columns, min(MOST_STAGES, each // shared_bytes(Tile(columns, 1), b_row)))


def chosen(shape: Shape, blocks: int, rows: int, n: int, device) -> Tile:
    """Return the tile that is expected to be the fastest.

    Wide ones read A less often, narrow ones keep more SMs at work.

    blocks: of A; rows: of blocks.
    """
    slots = TOGETHER * device.properties.multiprocessor_count
    steps = blocks * shape.b_col / STEP / max(1, rows)

    def cycles(columns: int) -> float:
        step = STEP_CYCLES + TOGETHER * (shape.b_row + columns) * STEP * 2 / L2
        tile = TILE_CYCLES + TOGETHER * shape.b_row * columns * 2 / WRITE
        return ceil(rows * ceil(n / columns) / slots) * (steps * step + tile)

    best = min(widths(shape.b_row), key=cycles)
    return filled(best, shape.b_row, device.properties.max_shared_memory_per_block_optin)


def entry(tile: Tile, shape: Shape) -> str:
    """Return the template instantiation."""
    by_columns = shape.b_order == "F", shape.c_order == "F"
    return instance(NAME, shape.dtype, shape.b_row, shape.b_col, *by_columns, tile.columns, tile.stages)


#: Instantiations that stand for all: each height of blocks, orders and widths, rings of a large and a small SM.
_ENTRIES = tuple(
    entry(tile, shape)
    for tile, shape in (
        (Tile(256, 4), Shape("bfloat16", 64, 64, "F", "C")),
        (Tile(256, 5), Shape("float16", 64, 64, "C", "C")),
        (Tile(256, 2), Shape("bfloat16", 64, 32, "F", "F")),
        (Tile(128, 4), Shape("bfloat16", 128, 128, "C", "F")),
        (Tile(128, 4), Shape("bfloat16", 32, 32, "C", "C")),
        (Tile(256, 4), Shape("bfloat16", 16, 16, "F", "F")),
        (Tile(64, 5), Shape("float16", 16, 16, "C", "F")),
    )
)
KERNELS: dict[str, Kernel] = {
    NAME: Kernel(
        NAME,
        SOURCE,
        "for every GPU from sm_80 on: mma.sync, ldmatrix and a ring of cp.async; two tiles of 64 x 256 an SM",
        "51 FLOP for each byte from L2, which bounds it: 200 useful TFLOP/s on an A100 at 10% of 18944 x 16384 x 3584, "
        "7 times its dense product. On an H200, forced, 0.65 ms: 1.5 times unit_ring's time, 1/34 of opt0's, 1/3.7 of "
        "the dense product's.",
        _ENTRIES,
    ),
}


def prepare(name: str, problem: Problem, device, tile: Tile | None = None) -> Launch:
    """Return the kernel ready to run, in the tile given or in `chosen`'s.

    `prepare_ms` is the order of rows of blocks.

    Launches may overlap unless B has to be copied. Raises ValueError where B is not of 16 bits, or a grid would have
    too many blocks of threads.
    """
    operands = problem.device()
    a = operands.a
    shape = replace(shape_of(problem), b_row=a.block[0])  # blocks as they are
    require(
        shape.dtype in half.DTYPES,
        f"{name} multiplies {' and '.join(half.DTYPES)}, but B is float32: use opt0, or convert A to CSR",
    )
    tile = tile or chosen(shape, a.blocks, a.block_rows, problem.n, device)
    panels = ceil(problem.n / tile.columns)
    require(
        a.block_rows * panels <= INT32_MAX,
        f"{name} has a block of threads for each of {a.block_rows * panels} tiles of C, but a grid has at most 2^31 - "
        "1: multiply in several ranges of columns",
    )
    rows, prepare_ms = timed(lambda: layout.ordered_rows(a.row_ptr, True))
    dense, val = lines(operands, device, copy_c=False), unit.blocks_of(a)
    c = array_of(operands.c)
    together = max(1, GROUP_BYTES // (problem.k * 2 * tile.columns))
    arguments = (
        rows.data.ptr,
        a.col_idx.data.ptr,
        val.data.ptr,
        dense.b.data.ptr,
        np.int64(dense.b.shape[1]),
        c.data.ptr,
        np.int64(problem.m if shape.c_order == "F" else problem.n),
        *map(np.int32, (problem.m, problem.n, problem.k, panels, a.block_rows, min(panels, together))),
    )
    need, job = shared_bytes(tile, shape.b_row), (SOURCE, entry(tile, shape))
    how = device, (a.block_rows * panels, THREADS), arguments, need, prepare_ms, rows.nbytes, (val, rows)
    return dense.bound(name, operands, job, *how)
