"""Windows of 8 to 64 rows on tensor cores with roles exchanged: TF32, and 3xTF32 for float32 operands.

C^T = B^T A^T: wgmma's 64 rows are columns of C, and the height of a window is its narrow side, 8 at least. Preparation
is offline: a window's values by slices of 8 columns, as wgmma reads them, and large windows cut into even tasks.

3xTF32: x = big + small, both rounded to TF32; a product is big·big + big·small + small·big. What is left out,
small·small and the rounding of small, is 2^-21 of a product at most; float32 itself has 2^-24.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from pathlib import Path

import numpy as np

from ..autotune import choices
from ..contract import Kernel, Launch, Problem, require, timed
from ..formats.csr import INT32_MAX, Csr
from ..formats.half import array_module
from . import planning, tasks
from .family import TARGETS, dtype_of, instance
from .lines import lines
from .unit import require_hopper
from .wcsr import PAD, require_rows, require_tf32

HERE = Path(__file__).parent
SOURCE = HERE / "windows.cu"
HEIGHTS = (
    8,
    16,
    32,
    64,
)  #: rows of a window: what wgmma has as its narrow side, and no more than the source
SLICES, GROUP_COLUMNS = 4, 128  #: of a step; columns of C that a warpgroup multiplies
LEAST_CHUNK = 256  #: columns of a window that are not cut
MOST_STAGES = 8
#: Bytes of shared memory of an SM and of a block, without what the driver and barriers take of each block.
SM_SHARED, BLOCK_SHARED, TAKEN = 233_472, 231_424, 2048


@dataclass(frozen=True)
class Windows:
    """A configuration of windows.cu."""

    window: int = 16  #: rows: 8, 16, 32 or 64
    #: Warpgroups that multiply 128 columns of C each: 1, and two blocks share an SM, or 2.
    groups: int = 2
    exact: bool = False  #: 3xTF32 for float32 operands; otherwise TF32
    #: Columns of a window in a task at most; 0: windows stay whole; -1: by the load of a block.
    chunk: int = -1
    longest_first: bool = True  #: the order of tasks; otherwise window after window
    order: str = ""  #: of rows: one of `tasks.ORDERS`
    #: Parts of a cut window are added up in one order (in_order.cuh), so that results repeat bit by bit; otherwise as
    #: they are done, which windows of three parts and more can tell.
    in_order: bool = field(default=False, metadata=choices.UNSAID)


def _named(exact: bool) -> str:
    return "windows_exact" if exact else "windows"


#: What is bindable and no variant: name -> (configuration, what it changes).
TRIALS: dict[str, tuple[Windows, str]] = {
    f"{_named(exact)}_{window}{suffix}": (
        replace(Windows(window, exact=exact), **change),
        f"windows of {window} rows{said}",
    )
    for exact in (False, True)
    for window in HEIGHTS
    for suffix, change, said in (
        ("", {}, ""),
        ("_narrow", {"groups": 1}, ", tiles of 128 columns, two blocks an SM"),
        ("_whole", {"chunk": 0}, ", none cut"),
        ("_in_order", {"longest_first": False}, " as they lie"),
        ("_similar", {"order": "similar"}, " of similar rows"),
    )
}


def stage_bytes(config: Windows) -> int:
    """Shared memory of a stage of the ring: values, and gathered rows of B."""
    values = SLICES * config.window * 32 * (1 + config.exact)
    return values + 8 * SLICES * (GROUP_COLUMNS * config.groups + 8) * 4


def stages(config: Windows) -> int:
    """As many as shared memory takes, `MOST_STAGES` at most."""
    most = min(BLOCK_SHARED, SM_SHARED // (3 - config.groups) - TAKEN)
    return min(MOST_STAGES, most // stage_bytes(config))


def entry(config: Windows) -> str:
    """Return the template instantiation."""
    last = tasks.IN_ORDER * config.in_order
    return instance("windows", config.window, config.groups, stages(config), config.exact, *last)


def _entries(exact: bool) -> tuple[str, ...]:
    return tuple(entry(Windows(w, groups, exact)) for w in HEIGHTS for groups in (2, 1))


KERNELS: dict[str, Kernel] = {
    "windows": Kernel(
        "windows",
        SOURCE,
        "windows of 16 rows in exchanged roles: rows of B through registers, gathered by warps of their own",
        "1.5 to 3 times wcsr: a ring hides the gather, and windows of 16 rows name fewer columns. Gathering "
        "bounds it: 5 TFLOP/s times the non-zeros that a column of a window has.",
        _entries(False),
        targets=TARGETS,
    ),
    "windows_exact": Kernel(
        "windows_exact",
        SOURCE,
        "… in three products, 3xTF32, for errors as small as float32's",
        "0.9 of windows: gathering bounds both, and tensor cores have time for three products.",
        _entries(True),
        targets=TARGETS,
    ),
}


def config_of(name: str, n: int) -> Windows:
    """Return the configuration of a variant, which nobody tunes, or of a trial; n: columns of C."""
    if name in TRIALS:
        return TRIALS[name][0]
    return Windows(groups=2 if n > GROUP_COLUMNS else 1, exact=name == "windows_exact")


def convert(a: Csr, config: Windows, blocks: int, panels: int) -> tasks.Prepared:
    """Windows of A, which lies on a GPU. blocks: that run at a time; panels: tiles along n."""
    order, rows = tasks.ordered(tasks.ascending(a), config.order)
    row_ptr, col_idx, slices = planning.sliced(rows, config.window, PAD, config.exact)
    chunk = config.chunk if config.chunk >= 0 else balanced(col_idx.size * panels / blocks)
    work, _ = planning.tasks(row_ptr, chunk, longest_first=config.longest_first)
    parts = tasks.parts(row_ptr, work.cut, chunk) if config.in_order else None
    return tasks.Prepared(order, col_idx, slices, work, parts, (order, col_idx, slices))


def balanced(load: float) -> int:
    """Columns of a task at most, where a block has so many to multiply on average: half of them, in whole steps."""
    half = ceil(load / 2 / tasks.STEP) * tasks.STEP
    return max(LEAST_CHUNK, half)


def tf32(x):
    """float32 rounded to what TF32 holds, to the nearest, halves away from zero; NaN is NaN. NumPy or CuPy."""
    if array_module(x) is not np:
        return planning.tf32(x)
    x = np.ascontiguousarray(x)
    bits = x.view(np.uint32) + np.uint32(0x1000)
    rounded = (bits & np.uint32(0xFFFFE000)).view(np.float32)
    return np.where(np.isnan(x), np.float32(np.nan), rounded)  # a carry would make it 0 or infinity


def prepare(name: str, problem: Problem, device, config: Windows | None = None) -> Launch:
    """Return a configuration ready to run. `prepare_ms` is the conversion of A, CSR, into slices and tasks.

    Where a window is cut into three parts or more, the order of their additions, and with it the last bits of C,
    changes from launch to launch unless the configuration is `in_order`. Launches of one `Launch` must not overlap
    where windows are cut. Raises ValueError where A is not CSR, B and C are not row-major float32, the GPU has no
    wgmma, TF32 would lose digits, or 3xTF32 would make NaN of infinity.
    """
    require_hopper(name, device)
    config = config or config_of(name, problem.n)
    require(
        config.window in HEIGHTS and config.groups in (1, 2),
        f"windows have {config.window} rows for {config.groups} warpgroups, but must have "
        f"{', '.join(map(str, HEIGHTS))} for 1 or 2",
    )
    operands = problem.device()
    require_rows(name, operands)
    require(
        dtype_of(operands.b) == "tf32",
        f"{name} multiplies float32 arrays, but B is {dtype_of(operands.b)}: use wcsr",
    )
    if not config.exact:
        require_tf32(name, operands)
    require(
        not config.exact or planning.splits(operands.a),
        f"{name} multiplies in 3xTF32, but A has values that are infinite or as good as that: use union_rows",
    )
    blocks = device.properties.multiprocessor_count * (3 - config.groups)
    panels = ceil(problem.n / (GROUP_COLUMNS * config.groups))
    made, prepare_ms = timed(partial(convert, operands.a, config, blocks, panels))
    config = replace(config, in_order=made.parts is not None)
    tiles = made.work.count * panels
    require(
        tiles <= INT32_MAX,
        f"{name} has {tiles} tiles, but counts up to {INT32_MAX}: use longer tasks or higher windows",
    )
    dense = lines(operands, device, by_rows=True)
    width = dense.c.shape[1]
    strips = panels * config.groups * 4  # what a warp has of a tile
    last, in_order = tasks.slots(made.parts, strips, config.window, width)
    arguments = (
        dense.b.data.ptr,
        np.int32(dense.b.shape[1]),
        made.work.table.data.ptr,
        np.int32(made.work.count),
        np.int32(panels),
        made.col_idx.data.ptr,
        made.values.data.ptr,
        tasks.pointer(made.order),
        dense.c.data.ptr,
        np.int32(problem.m),
        np.int32(width),
        *last,
    )
    need, shape = stages(config) * stage_bytes(config), (min(blocks, tiles), GROUP_COLUMNS * (config.groups + 1))
    cut = made.work.cut[:0] if in_order else made.work.cut  # whose rows are added to
    pointers = tasks.pointer(made.order), dense.c.data.ptr
    clear = tasks.of_cut(SOURCE, f"clear_cut<{config.window}>", cut, pointers, dense.c, problem.m, device)
    held = made.nbytes + sum(x.nbytes for x in in_order)
    how = device, shape, arguments, need, prepare_ms, held, (made, in_order), in_order[1:]
    return dense.bound(name, operands, (SOURCE, entry(config)), *how, around=(clear, ()))
