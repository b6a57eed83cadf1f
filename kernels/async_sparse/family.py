"""Configurations of unit_ring: which there are, which of them a problem takes, what they need.

A configuration is a tile and how deep its two rings are; what a problem fixes (dtype, memory orders, blocks)
is its `Shape`. Blocks lower than 64 rows are stacked to 64 first (`unit.stacked`), so a shape has blocks of
64 or 128 rows.
"""

import functools
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np

from .. import jit
from ..autotune import Choices, Rounds
from ..contract import Problem, require
from ..formats.half import Half, array_of

HERE = Path(__file__).parent
SOURCE = HERE / "unit_ring.cu"
TARGETS = ("sm_90a",)
ROWS = 64  #: of A that a wgmma multiplies
LINE = 128  #: bytes of k in a step
A_BYTES = ROWS * LINE
THREADS = 384
#: Columns that a warpgroup multiplies at a time; where B is row-major, multiples of 64 of them.
WIDTHS = (256, 192, 128, 96, 64, 32, 16, 8)
#: Bytes of static shared memory (barriers, the queue) and of what the driver takes for itself, at most.
STATIC = 2048
#: Units of the two rings: a warpgroup hands back what it read in a step when it has begun the next one, so with
#: fewer it would wait for a unit that it holds itself.
LEAST_SHARED, LEAST_PRIVATE, MOST_UNITS = 2, 3, 16
#: dtype -> what the kernels call it, bytes of a value.
DTYPES = {"bfloat16": ("BF16", 2), "float16": ("F16", 2), "tf32": ("TF32", 4)}


@dataclass(frozen=True)
class Unit:
    """A tile of unit_ring and its rings."""

    width: int = 256  #: columns that a warpgroup multiplies, WGMMA_N of the source
    tall: bool = False  #: 128 rows and width columns of C, for blocks of 128 rows; otherwise 64 and 2 width
    shared: int = 3  #: units of the ring that both warpgroups read
    private: int = 5  #: units of the ring whose units one warpgroup reads
    buffers: int = 2  #: boxes that a warpgroup stores C through
    group_kib: int = 4096  #: of B: panels whose B is as large as that are worked on together
    longest_first: bool = True  #: block rows by their length; otherwise as they lie, which a band's B in L2 likes

    @property
    def columns(self) -> int:
        """Columns of C in a tile."""
        return self.width if self.tall else 2 * self.width


#: What was tried on the way to unit_ring and is no rung: name -> (configuration, what it changes). Rings are as
#: deep as shared memory allows.
TRIALS: dict[str, tuple[Unit, str]] = {
    "unit_ring_half": (Unit(128), "tiles of 64 x 256, deeper rings"),
    "unit_ring_192": (Unit(192), "tiles of 64 x 384"),
    "unit_ring_boxes": (Unit(buffers=4), "all boxes of C at once, a unit of the ring less"),
    "unit_ring_groups": (Unit(group_kib=16384), "16 MiB of B worked on together instead of 4"),
    "unit_ring_in_order": (
        Unit(longest_first=False),
        "block rows as they lie, not the longest first",
    ),
}


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
    return "F" if array_of(matrix).flags.f_contiguous else "C"


def dtype_of(b) -> str:
    """Return the dtype of a dense operand: float32 arrays are multiplied as TF32."""
    return b.dtype if isinstance(b, Half) else "tf32"


def shape_of(problem: Problem) -> Shape:
    """Return the shape of a problem on the device, its blocks stacked to 64 rows."""
    operands = problem.device()
    b_row, b_col = operands.a.block
    return Shape(dtype_of(operands.b), max(ROWS, b_row), b_col, order(operands.b), order(operands.c))


def box_columns(n: int, size: int, c_order: str, widest: int = 64) -> int:
    """Columns of C in a box of `Output` (output.cuh)."""
    if n % 64 == 0:
        return min(widest, 32) if size == 4 and c_order == "C" else widest
    return next(x for x in (32, 16, 8) if n % x == 0)


def box_bytes(n: int, size: int, c_order: str, widest: int = 64) -> int:
    """Return the bytes of a box of C."""
    return ROWS * box_columns(n, size, c_order, widest) * size


def shared_bytes(config: Unit, shape: Shape) -> int:
    """Dynamic shared memory of a block: both rings, the boxes of C, one of zeros."""
    b = config.width * LINE
    both, own = (b, A_BYTES) if config.tall else (A_BYTES, b)
    box = box_bytes(config.width, shape.size, shape.c_order)
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


def instance(kernel: str, *of) -> str:
    """Return a template instantiation; of: its arguments, truths as Python has them, dtypes of `DTYPES`."""
    said = (str(x).lower() if isinstance(x, bool) else DTYPES[x][0] if x in DTYPES else str(x) for x in of)
    return f"{kernel}<{', '.join(said)}>"


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
    try:
        check(config, shape, most)
    except ValueError:
        return False
    return True


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


# ---- what the tuner chooses from


CHOICES: Choices[Unit] = Choices(
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
    {"unit": Unit},
    lambda config: [SOURCE],
)
ROUNDS = Rounds(first=5, final=9, finalists=3, short_us=60, factor=2)
GROUPS_KIB = (4096, 16384)
MOST = 8  #: candidates that are tried with the longest block rows first,
AS_THEY_LIE = 2  #: and of these so many with block rows in their own order
#: Bytes that an SM gets from L2 in a cycle when all ask, and that it writes; FLOPs of its tensor cores, dense 16-bit.
L2, WRITE, FLOPS = 42, 24, 8192
TILE = 700  # cycles from a tile's last wgmma to the next one's first
FILL = 3000  # cycles until the first step has come from DRAM


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


def predict(config: Unit, m: int, n: int, blocks: int, shape: Shape, sms: int) -> float:
    """Cycles of a configuration, to rank them: what bounds its steps, and C (m, n); the SMs share all tiles.

    blocks: how many A has.
    """
    panels = ceil(n / config.columns)
    rows = ceil(m / shape.b_row)
    height = shape.b_row // ROWS
    steps = ceil(blocks * (shape.steps if shape.pieces == 1 else 1 / shape.pieces))
    bytes_of_step = A_BYTES * height + config.columns * LINE
    math = 2 * shape.b_row * config.columns * (LINE // shape.size) / (FLOPS / (shape.size // 2))
    step = max(bytes_of_step / L2, math, 250)
    tile = TILE + shape.b_row * config.columns * shape.size / WRITE / 2
    whole = panels * (steps * step + rows * tile) / sms
    longest = steps / max(1, rows) * step + tile  # a tile of average length, when others are done
    waves = ceil(rows * panels / sms)
    return FILL + max(whole, waves * longest)
