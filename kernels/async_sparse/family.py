"""Kernels for blocks beyond the source's, and what all kernels of the system share: lines of B and C, the launch.

    unit_ring    Hopper: a ring of units for each of two warpgroups, whose tile and rings are a `Unit`
    blocks_mma   16 bits on any GPU from sm_80 on: a warp's mma.sync and a ring of cp.async in a `Tile`

What a problem fixes (dtype, memory orders, blocks) is its `Shape`. unit_ring multiplies blocks of 64 or 128 rows, so
lower ones are stacked to 64 first; a mma.sync has 16 rows, and blocks_mma takes blocks as they are. The order of its
additions is fixed, so results are the same bits every time.

A line is what lies side by side: a row of a row-major matrix, a column of a column-major one. The copy engine and
16-byte loads need lines that begin at multiples of 16 bytes; others are copied in the launch.
"""

import functools
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import contract, jit, padding
from ..autotune import Choices, Rounds
from ..contract import Kernel, Launch, Problem, holds, require, timed
from ..formats import bcsr, csr, half, layout
from ..lazy import cupy
from ..tma import tensor_map
from . import planning

HERE = Path(__file__).parent
SOURCE, MMA_SOURCE = HERE / "unit_ring.cu", HERE / "blocks_mma.cu"
TARGETS = ("sm_90a",)
ROWS = 64  #: of A that a wgmma multiplies
LINE = 128  #: bytes of k in a step
A_BYTES = ROWS * LINE
THREADS, MMA_THREADS = 384, 128
#: Columns that a warpgroup multiplies at a time; where B is row-major, multiples of 64 of them.
WIDTHS = (256, 192, 128, 96, 64, 32, 16, 8)
#: Bytes of static shared memory (barriers, the queue) and of what the driver takes for itself, at most.
STATIC = 2048
#: Units of the two rings: a warpgroup hands back what it read in a step when it has begun the next one, so with
#: fewer it would wait for a unit that it holds itself.
LEAST_SHARED, LEAST_PRIVATE, MOST_UNITS = 2, 3, 16
#: dtype -> what the kernels call it, bytes of a value.
DTYPES = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "tf32": ("TF32", 4)}
MMA_STEP = 32  #: of k, in a step of blocks_mma
#: Its blocks of threads that share an SM, and the shared memory that the driver takes for each.
TOGETHER, DRIVER = 2, 1024
MOST_STAGES = 5
#: Of B: panels whose B is as large as that are worked on together.
GROUP_KIB = 4096
#: Bytes that an SM gets from L2 in a cycle when all ask, and that it writes; FLOPs of its tensor cores, dense 16-bit.
L2, WRITE, FLOPS = 42, 24, 8192
TILE = 700  # cycles from a tile's last wgmma to the next one's first
FILL = 3000  # cycles until the first step has come from DRAM
ONE_TILE, ONE_TILE_L2 = 2800, 47.5  # TILE and L2 of opt5: a block of threads begins, its ring fills
STEP_CYCLES, TILE_CYCLES = 100, 1000  # of a step and of a tile of blocks_mma, that no bytes explain


# ---------------------------------------------------------------- what a problem fixes


@dataclass(frozen=True)
class Shape:
    """What an instantiation depends on besides its configuration."""

    dtype: str
    b_row: int  #: rows of a block: 64 or 128
    b_col: int
    b_order: str  #: of B in memory: "C" is row-major, "F" column-major
    c_order: str

    @property
    def size(self) -> int:
        """Bytes of a value."""
        return DTYPES[self.dtype][1]

    @property
    def pieces(self) -> int:
        """Blocks that share a step, since each has less than 128 bytes of k."""
        return max(1, LINE // (self.b_col * self.size))

    @property
    def steps(self) -> int:
        """Steps of a block, or of as many blocks as share one."""
        return max(1, self.b_col * self.size // LINE)


def order(matrix) -> str:
    """Return "F" for a column-major array or `Half`, "C" for a row-major one; a single row or column is either."""
    return "F" if half.array_of(matrix).flags.f_contiguous else "C"


def dtype_of(b) -> str:
    """Return the dtype of a dense operand: float32 arrays are multiplied as TF32."""
    return b.dtype if isinstance(b, half.Half) else "tf32"


def shape_of(problem: Problem) -> Shape:
    """Return the shape of a problem on the device, its blocks stacked to 64 rows."""
    operands = problem.device()
    b_row, b_col = operands.a.block
    return Shape(dtype_of(operands.b), max(ROWS, b_row), b_col, order(operands.b), order(operands.c))


def require_hopper(name: str, device) -> None:
    """Raise ValueError, one sentence, where the GPU has no wgmma."""
    require(
        jit.arch_of(device) in TARGETS,
        f"{name} is made of wgmma, which compute capability 9.0 has and this GPU, "
        f"{'.'.join(map(str, device.compute_capability))}, has not: use blocks_mma, or opt0 in TF32",
    )


def instance(kernel: str, *of) -> str:
    """Return a template instantiation; of: its arguments, truths as Python has them, dtypes of `DTYPES`."""
    said = (str(x).lower() if isinstance(x, bool) else DTYPES[x][0] if x in DTYPES else str(x) for x in of)
    return f"{kernel}<{', '.join(said)}>"


def prepare_config(name: str, problem: Problem, device, config) -> Launch:
    """Return a configuration of any of the system's kernels, ready to run."""
    return config.prepare(name, problem, device)


# ---------------------------------------------------------------- operands as kernels read them, and the launch


@dataclass
class Lines:
    """Dense operands of a launch, and what has to run before and after it."""

    b: Any  #: CuPy (lines, elements), row-major: rows of B, or its columns
    c: Any  #: likewise of C
    before: list = field(default_factory=list)  #: launches that fill a padded B
    after: list = field(default_factory=list)  #: launches that bring a padded C back
    copies: tuple = ()  #: the padded ones

    def bound(
        self,
        name: str,
        operands,
        job: tuple[Path, str],
        device,
        shape: tuple[Any, int],
        arguments: tuple,
        prepare_ms: float = 0.0,
        held: int = 0,
        *,
        need: int = 0,
        cluster: tuple[int, ...] | None = None,
        keep: tuple = (),
        scratch: tuple = (),
        around: tuple = ((), ()),
    ) -> Launch:
        """Return the launch of a kernel between the copies of lines; whatever CuPy's stream does is done before.

        job, arguments, cluster: as `contract.step` takes them. shape: (grid, block). held: bytes that preparation
        leaves. need: bytes of dynamic shared memory. keep: what lives as long as the launch, besides arguments.
        around: launches right before and after the kernel.
        """
        step = contract.step(job, device, *shape, arguments, need, cluster)
        cupy.cuda.get_current_stream().synchronize()  # zeros are there, whatever stream comes next
        steps = [*self.before, *around[0], step, *around[1], *self.after]
        keep, scratch = (operands, self.b, self.c, arguments, *keep), (*scratch, *self.copies)
        return Launch(name, steps, operands.c, prepare_ms, held, keep=keep, scratch=scratch)


def lines(operands, device, *, by_rows: bool = False, copy_c: bool = True) -> Lines:
    """B and C themselves where their lines are aligned, else padded copies and the launches for them.

    by_rows: take both as row-major, which a single column may be as well as column-major. copy_c: False leaves C as it
    is, for kernels that write lines of any kind. A padded C holds NaN at first, so that what a kernel leaves unwritten
    is seen.
    """
    arrays = ((x, half.array_of(x)) for x in (operands.b, operands.c))
    b, c = (array if by_rows or order(x) == "C" else array.T for x, array in arrays)
    made = Lines(_aligned(b), _aligned(c) if copy_c else c)
    if made.b is not b:
        made.before.append(padding.copy(b, made.b, device))
    if made.c is not c:
        if made.c.nbytes:  # all bits set is NaN in every dtype
            made.c.data.memset_async(0xFF, made.c.nbytes)
        made.after.append(padding.copy(made.c, c, device))
    made.copies = tuple(x for x, own in ((made.b, b), (made.c, c)) if x is not own)
    return made


def _aligned(array):
    """Return the array itself, or where the copy engine does not take its lines, an empty one of longer lines."""
    size, unit = array.dtype.itemsize, padding.ALIGNMENT
    # A single line may have any distance to the next, and the copy engine looks at it.
    if not any(x % unit for x in (array.shape[1] * size, array.strides[0], array.data.ptr)):
        return array
    return cupy.empty((array.shape[0], ceil(array.shape[1] * size / unit) * unit // size), array.dtype)


def blocks_of(a: bcsr.Bcsr):
    """Return the rows of all blocks, one after another, (blocks * b_row, b_col); of no block at all, one of zeros."""
    val = a.val if a.blocks else cupy.zeros((1, *a.block), a.val.dtype)
    return (val.copy() if val.data.ptr % 16 else val).reshape(-1, a.block[1])


def c_map(c, wide: int, shape: Shape):
    """Return the tensor map of C's boxes (output.cuh).

    `wide` columns of it, in lines of 128 bytes or of their width.
    """
    if shape.c_order == "F":
        return tensor_map(c, (wide, LINE // shape.size), LINE)
    width = wide * shape.size
    return tensor_map(c, (ROWS, wide), width if width > 16 else 0)


def box_columns(n: int, size: int, c_order: str, widest: int = 64) -> int:
    """Columns of C in a box of `Output` (output.cuh)."""
    if n % 64 == 0:
        return min(widest, 32) if size == 4 and c_order == "C" else widest
    return next(x for x in (32, 16, 8) if n % x == 0)


# ---------------------------------------------------------------- unit_ring


@dataclass(frozen=True)
class Unit:
    """A tile of unit_ring and its rings."""

    width: int = 256  #: columns that a warpgroup multiplies, WGMMA_N of the source
    tall: bool = False  #: 128 rows and width columns of C, for blocks of 128 rows; otherwise 64 and 2 width
    shared: int = 3  #: units of the ring that both warpgroups read
    private: int = 5  #: units of the ring whose units one warpgroup reads
    buffers: int = 2  #: boxes that a warpgroup stores C through
    group_kib: int = GROUP_KIB  #: of B: panels whose B is as large as that are worked on together
    longest_first: bool = True  #: block rows by their length; otherwise as they lie, which a band's B in L2 likes

    @property
    def columns(self) -> int:
        """Columns of C in a tile."""
        return self.width if self.tall else 2 * self.width

    def prepare(self, name: str, problem: Problem, device) -> Launch:
        """Return unit_ring so configured, ready to run. `prepare_ms` is the stacking and the order of block rows.

        Launches of one `Launch` share a counter of tiles: they must not overlap. Raises ValueError where the GPU has no
        wgmma, or the configuration does not take the problem.
        """
        require_hopper(name, device)
        operands = problem.device()
        shape = shape_of(problem)
        check(self, shape, device.properties.max_shared_memory_per_block_optin)
        (a, rows), prepare_ms = timed(lambda: stacked(operands.a, self.longest_first))
        dense = lines(operands, device)
        val = blocks_of(a)
        counters = cupy.zeros(2, cupy.uint32)
        grid, numbers = dealt(self, shape, problem.m, problem.n, problem.k, device)
        piece = LINE // shape.pieces  # bytes of k in a box
        k = piece // shape.size
        b_box = ((self.width, k), piece) if shape.b_order == "F" else ((k, 64), LINE)
        maps = (
            tensor_map(val, (ROWS, k), piece),
            tensor_map(dense.b, *b_box),
            c_map(dense.c, box_columns(self.width, shape.size, shape.c_order), shape),
        )
        return dense.bound(
            name,
            operands,
            (SOURCE, entry(self, shape)),
            device,
            (grid, THREADS),
            (*maps, rows, a.col_idx, counters, *numbers),
            prepare_ms,
            rows.nbytes + (a.nbytes if a is not operands.a else 0),
            need=shared_bytes(self, shape),
            keep=(val,),
            scratch=(counters,),
        )


@dataclass(frozen=True)
class OneTile:
    """A tile of opt5, the source's kernel: a block of threads for each, whose ring has whole steps."""

    width: int = 256  #: columns that a warpgroup multiplies

    @property
    def columns(self) -> int:
        """Columns of C in a tile."""
        return 2 * self.width


#: What was tried on the way to unit_ring and is no rung: name -> (configuration, what it changes). Rings are as
#: deep as shared memory allows.
TRIALS: dict[str, tuple[Unit, str]] = {
    "unit_ring_half": (Unit(128), "tiles of 64 x 256, deeper rings"),
    "unit_ring_192": (Unit(192), "tiles of 64 x 384"),
    "unit_ring_boxes": (Unit(buffers=4), "all boxes of C at once, a unit of the ring less"),
    "unit_ring_groups": (Unit(group_kib=16384), "16 MiB of B worked on together instead of 4"),
    "unit_ring_in_order": (Unit(longest_first=False), "block rows as they lie, not the longest first"),
}


def stacked(a: bcsr.Bcsr, longest_first: bool) -> tuple[bcsr.Bcsr, Any]:
    """Return (a, the order of its block rows), on a GPU, lower blocks than 64 rows stacked, with zeros between.

    A stacked block stands where any of its 64 / b_row blocks does: of blocks chosen at random, at density d
    a share of (1 - (1 - d)^s) / (s d) of what is multiplied is not zero, for s of them.
    """
    high = ROWS // a.block[0]
    if high > 1:
        pattern = csr.Csr(a.block_rows, a.block_columns, a.row_ptr, a.col_idx, a.val)  # of blocks
        first, row_ptr, count = planning.groups(pattern, high)
        bcsr.require_blocks(count, ROWS)
        col_idx, val = layout.stacked(a, high, first, row_ptr, count)
        a = replace(a, row_ptr=row_ptr, col_idx=col_idx, val=val)
    return a, layout.ordered_rows(a.row_ptr, longest_first)


def shared_bytes(config: Unit, shape: Shape) -> int:
    """Dynamic shared memory of a block: both rings, the boxes of C, one of zeros."""
    b = config.width * LINE
    both, own = (b, A_BYTES) if config.tall else (A_BYTES, b)
    box = ROWS * shape.size * box_columns(config.width, shape.size, shape.c_order)
    return config.shared * both + config.private * own + (2 * config.buffers + 1) * box


@functools.lru_cache(1024)
def filled(config: Unit, shape: Shape, most: int) -> Unit:
    """Return the configuration with rings as deep as a block's shared memory takes; most: its bytes."""
    left = most - STATIC - shared_bytes(replace(config, shared=0, private=0), shape)
    b = config.width * LINE
    both, own = (b, A_BYTES) if config.tall else (A_BYTES, b)
    shared = min(MOST_UNITS, max(LEAST_SHARED, ceil(left / (both + 2 * own))))
    while shared > LEAST_SHARED and (left - shared * both) // own < LEAST_PRIVATE:
        shared -= 1
    return replace(config, shared=shared, private=min(2 * shared, (left - shared * both) // own))


def entry(config: Unit, shape: Shape) -> str:
    """Return the template instantiation."""
    major, rings = "K_MAJOR" if shape.b_order == "F" else "MN_MAJOR", (config.shared, config.private, config.buffers)
    column = shape.c_order == "F"
    return instance("unit_ring", shape.dtype, major, column, config.tall, config.width, *rings, shape.pieces)


def check(config: Unit, shape: Shape, most: int) -> None:
    """Raise ValueError, one sentence, where a configuration does not take a shape.

    most: bytes of shared memory that a block of the GPU may have.
    """
    require(
        config.width in WIDTHS,
        f"a warpgroup multiplies {config.width} columns, but must one of {', '.join(map(str, WIDTHS))}",
    )
    require(
        shape.b_order == "F" or (config.width % 64 == 0 and shape.size == 2),
        f"a row-major B of {shape.dtype} is not read in {config.width} columns: only 16-bit types are, in "
        "multiples of 64; use a column-major one",
    )
    require(
        config.tall == (shape.b_row == 128),
        f"blocks of {shape.b_row} rows need tiles of as many, but the configuration says tall={config.tall}",
    )
    require(
        config.shared >= LEAST_SHARED and config.private >= LEAST_PRIVATE and config.buffers >= 1,
        f"rings have {config.shared} and {config.private} units and {config.buffers} boxes, but need "
        f"{LEAST_SHARED}, {LEAST_PRIVATE} and 1",
    )
    need = shared_bytes(config, shape) + STATIC
    require(
        need <= most,
        f"a tile of {config.columns} columns with rings of {config.shared} and {config.private} units "
        f"needs {need} bytes of shared memory, but a block has at most {most}: use fewer units",
    )


def takes(config: Unit, shape: Shape, most: int) -> bool:
    """Whether `check` finds nothing."""
    return holds(check, config, shape, most)


def fits(config: Unit, problem: Problem, device) -> bool:
    """Whether the GPU takes a configuration for the problem."""
    most = device.properties.max_shared_memory_per_block_optin
    return jit.arch_of(device) in TARGETS and takes(config, shape_of(problem), most)


def tiles(shape: Shape, most: int) -> list[Unit]:
    """Return a tile of each width that takes a shape, its rings as deep as a block's shared memory takes.

    most: its bytes.
    """
    every = (filled(Unit(width, tall=shape.b_row == 128), shape, most) for width in WIDTHS)
    return [config for config in every if takes(config, shape, most)]


def dealt(config: Unit, shape: Shape, m: int, n: int, k: int, device) -> tuple[int, tuple]:
    """Return the blocks of threads and the last arguments of unit_ring and gated for C (m, n).

    The arguments: rows of blocks, panels, how many of these are worked on together, steps of a block.
    """
    rows, panels = ceil(m / shape.b_row), ceil(n / config.columns)
    group = config.group_kib * 1024 // (k * shape.size * config.columns)
    numbers = tuple(map(np.int32, (rows, panels, min(panels, max(1, group)), shape.steps)))
    return min(device.properties.multiprocessor_count, rows * panels), numbers


# ---------------------------------------------------------------- what the tuner chooses from


CHOICES: Choices[Unit | OneTile] = Choices(
    "async_sparse",
    HERE / "choices",
    {
        "m": int,
        "n": int,
        "k": int,
        "blocks": int,
        "b_row": int,
        "b_col": int,
        "dtype": str,
        "b_order": str,
        "c_order": str,
    },
    {"unit": Unit, "opt5": OneTile},
    lambda config: [SOURCE, HERE / "opt5.cu"],
)
ROUNDS = Rounds(first=5, final=9, finalists=3, short_us=60, factor=2)
GROUPS_KIB = (4096, 16384)
MOST = 8  #: candidates that are tried with the longest block rows first,
AS_THEY_LIE = 2  #: and of these so many with block rows in their own order


def key(problem: Problem) -> tuple:
    """Return what a choice is kept under."""
    a, shape = problem.device().a, shape_of(problem)
    return (problem.m, problem.n, problem.k, a.blocks, *a.block, shape.dtype, shape.b_order, shape.c_order)


def candidates(problem: Problem, device) -> list[Unit]:
    """Return what takes the problem on this GPU, the best first by `predict`, at most `MOST`."""
    shape, properties = shape_of(problem), device.properties
    blocks, sms = problem.device().a.blocks, properties.multiprocessor_count
    every = tiles(shape, properties.max_shared_memory_per_block_optin)
    every.sort(key=lambda c: predict(c, problem.m, problem.n, blocks, shape, sms))
    best = every[: MOST // len(GROUPS_KIB)]

    def differs(config: Unit, kib: int) -> bool:
        """One panel a group is the same as any smaller one, as one group for all is as any larger."""
        together = kib * 1024 // (problem.k * shape.size * config.columns)
        return kib == GROUPS_KIB[0] or ceil(problem.n / config.columns) > 1 and together > 1

    wanted = [replace(config, group_kib=kib) for config in best for kib in GROUPS_KIB if differs(config, kib)]
    return wanted + [replace(config, longest_first=False) for config in best[:AS_THEY_LIE]]


def predict(config: Unit | OneTile, m: int, n: int, blocks: int, shape: Shape, sms: int) -> float:
    """Cycles of a configuration, to rank them: what bounds its steps, and C (m, n); the SMs share all tiles.

    blocks: how many A has. What is opt5's (`ONE_TILE`, `ONE_TILE_L2`) was fitted to shipped records of an H100 and an
    H200, 218 problems beside the choice of each: three whole steps on their way are more than rings of units have,
    which long block rows show, but nothing of a tile overlaps the one before.
    """
    whole_steps = isinstance(config, OneTile)
    panels = ceil(n / config.columns)
    rows = ceil(m / shape.b_row)
    height = shape.b_row // ROWS
    steps = ceil(blocks * (shape.steps if shape.pieces == 1 else 1 / shape.pieces))
    bytes_of_step = A_BYTES * height + config.columns * LINE
    math = 2 * shape.b_row * config.columns * (LINE // shape.size) / (FLOPS / (shape.size // 2))
    step = max(bytes_of_step / (ONE_TILE_L2 if whole_steps else L2), math, 250)
    store = shape.b_row * config.columns * shape.size / WRITE
    tile = ONE_TILE + store if whole_steps else TILE + store / 2
    whole = panels * (steps * step + rows * tile) / sms
    longest = steps / max(1, rows) * step + tile  # a tile of average length, when others are done
    waves = ceil(rows * panels / sms)
    return FILL + max(whole, waves * longest)


# ---------------------------------------------------------------- blocks_mma


@dataclass(frozen=True)
class Tile:
    """A tile of blocks_mma, as high as a block, and its ring; of 0 columns: what is expected to be the fastest."""

    columns: int = 256  #: of C
    stages: int = 4

    def prepare(self, name: str, problem: Problem, device) -> Launch:
        """Return blocks_mma ready to run. `prepare_ms` is the order of rows of blocks.

        B and C lie in either order; C is written where it lies. Launches may overlap unless B has to be copied. Raises
        ValueError where B is not of 16 bits, or a grid would have too many blocks of threads.
        """
        operands = problem.device()
        a = operands.a
        shape = replace(shape_of(problem), b_row=a.block[0])  # blocks as they are
        require(
            shape.dtype in half.DTYPES,
            f"{name} multiplies {' and '.join(half.DTYPES)}, but B is float32: use opt0, or convert A to CSR",
        )
        tile = self if self.columns else chosen(shape, a.blocks, a.block_rows, problem.n, device)
        panels = ceil(problem.n / tile.columns)
        tiles = a.block_rows * panels
        require(
            tiles <= csr.INT32_MAX,
            f"{name} has a block of threads for each of {tiles} tiles of C, but a grid has at most 2^31 - 1: multiply "
            "in several ranges of columns",
        )
        rows, prepare_ms = timed(lambda: layout.ordered_rows(a.row_ptr, True))
        dense = lines(operands, device, copy_c=False)
        together = max(1, GROUP_KIB * 1024 // (problem.k * 2 * tile.columns))
        b_pitch, c_pitch = map(np.int64, (dense.b.shape[1], problem.m if shape.c_order == "F" else problem.n))
        sizes = problem.m, problem.n, problem.k, panels, a.block_rows, min(panels, together)
        return dense.bound(
            name,
            operands,
            (MMA_SOURCE, tile_entry(tile, shape)),
            device,
            (tiles, MMA_THREADS),
            (rows, a.col_idx, blocks_of(a), dense.b, b_pitch, half.array_of(operands.c), c_pitch, *sizes),
            prepare_ms,
            rows.nbytes,
            need=tile_bytes(tile, shape.b_row),
        )


def tile_widths(b_row: int) -> tuple[int, ...]:
    """Columns that a tile of blocks_mma may have: a warp has 64 x 64 of it at most."""
    return (128, 64) if b_row == 128 else (256, 128, 64)


def tile_bytes(tile: Tile, b_row: int) -> int:
    """Dynamic shared memory of a block of threads of blocks_mma."""
    return tile.stages * (b_row + tile.columns) * MMA_STEP * 2


def filled_tile(columns: int, b_row: int, most: int) -> Tile:
    """Return a tile whose ring is so deep that two share an SM; most: bytes of shared memory that a block may have."""
    each = (most + DRIVER) // TOGETHER - DRIVER
    return Tile(columns, min(MOST_STAGES, each // tile_bytes(Tile(columns, 1), b_row)))


def chosen(shape: Shape, blocks: int, rows: int, n: int, device) -> Tile:
    """Return the tile of blocks_mma that is expected to be the fastest.

    Wide ones read A less often, narrow ones keep more SMs at work.

    blocks: of A; rows: of blocks.
    """
    slots = TOGETHER * device.properties.multiprocessor_count
    steps = blocks * shape.b_col / MMA_STEP / max(1, rows)

    def cycles(columns: int) -> float:
        step = STEP_CYCLES + TOGETHER * (shape.b_row + columns) * MMA_STEP * 2 / L2
        tile = TILE_CYCLES + TOGETHER * shape.b_row * columns * 2 / WRITE
        return ceil(rows * ceil(n / columns) / slots) * (steps * step + tile)

    best = min(tile_widths(shape.b_row), key=cycles)
    return filled_tile(best, shape.b_row, device.properties.max_shared_memory_per_block_optin)


def tile_entry(tile: Tile, shape: Shape) -> str:
    """Return the template instantiation of blocks_mma."""
    by_columns = shape.b_order == "F", shape.c_order == "F"
    return instance("blocks_mma", shape.dtype, shape.b_row, shape.b_col, *by_columns, tile.columns, tile.stages)


# ---------------------------------------------------------------- variants

#: What unit_ring is where nobody tunes: tiles of 64 x 512, or 128 x 256 for blocks of 128 rows.
_USUAL = Shape("bfloat16", 64, 64, "F", "C")
_SHAPES = (
    _USUAL,
    Shape("bfloat16", 64, 64, "F", "F"),
    Shape("bfloat16", 64, 64, "C", "C"),
    Shape("bfloat16", 64, 32, "F", "F"),
    Shape("float16", 128, 128, "F", "F"),
    Shape("tf32", 64, 64, "F", "C"),
)


def _entries(widths: tuple[int, ...]) -> tuple[str, ...]:
    """Return instantiations that stand for all: every shape in the widest tile, the usual shape in every one."""
    pairs = [(shape, widths[0]) for shape in _SHAPES] + [(_USUAL, n) for n in widths[1:]]
    most = 232_448  # bytes of shared memory of a block on compute capability 9.0
    return tuple(entry(filled(Unit(n, tall=shape.b_row == 128), shape, most), shape) for shape, n in pairs)


KERNELS: dict[str, Kernel] = {
    "unit_ring": Kernel(
        "unit_ring",
        SOURCE,
        "blocks that stay and claim tiles, longest first; a ring of units for each warpgroup; stores overlap",
        "2.1 times opt5 at 80%, where it waits for L2: 72 KiB a step at 42 bytes a cycle and SM are 1,760 "
        "cycles, 530 TFLOP/s. At 99% writing C bounds it.",
        _entries(WIDTHS[:1]),
        targets=TARGETS,
    ),
    "auto": Kernel(
        "auto",
        SOURCE,
        "unit_ring in the tile and the order that were the fastest on the problem, or opt5 (tuning)",
        "As unit_ring where n is large; twice as fast where tiles of 512 columns leave SMs idle, or pad n.",
        _entries(WIDTHS),
        targets=TARGETS,
    ),
    "blocks_mma": Kernel(
        "blocks_mma",
        MMA_SOURCE,
        "for every GPU from sm_80 on: mma.sync, ldmatrix and a ring of cp.async; two tiles of 64 x 256 an SM",
        "51 FLOP for each byte from L2, which bounds it: 200 useful TFLOP/s on an A100 at 10% of 18944 x 16384 x 3584, "
        "7 times its dense product. On an H200, forced, 0.65 ms: 1.5 times unit_ring's time, 1/34 of opt0's, 1/3.7 of "
        "the dense product's.",
        #: Instantiations that stand for all: each height of blocks, orders and widths, rings of a large and a small SM.
        tuple(
            tile_entry(tile, shape)
            for tile, shape in (
                (Tile(256, 4), Shape("bfloat16", 64, 64, "F", "C")),
                (Tile(256, 5), Shape("float16", 64, 64, "C", "C")),
                (Tile(256, 2), Shape("bfloat16", 64, 32, "F", "F")),
                (Tile(128, 4), Shape("bfloat16", 128, 128, "C", "F")),
                (Tile(128, 4), Shape("bfloat16", 32, 32, "C", "C")),
                (Tile(256, 4), Shape("bfloat16", 16, 16, "F", "F")),
                (Tile(64, 5), Shape("float16", 16, 16, "C", "F")),
            )
        ),
    ),
}
