"""Kernels for CSR: windows on Hopper's tensor cores, the source's and ours, and groups of rows on CUDA cores.

    wcsr           the source's kernel for windows (WCSR) of 64 rows padded to 8 columns (section IV-A), with its parts
                   as variants: tasks or whole windows, and their sizes
    windows        windows of 8 to 64 rows with roles exchanged, in TF32, or in 3xTF32 for float32 operands
    windows_half   the same with A, B and C in 16 bits
    union_rows     groups of 1 to 8 rows on CUDA cores, exact float32: each row of B that a group names is fetched once
                   for all of them; a group is a window without padding, and single rows are CSR itself
    union_half     the same with B and C in 16 bits, and float32 products and sums

wcsr: B and C are row-major, since a row of B that a column index names must lie side by side. What the text leaves
open, and is decided here: how wide a tile of C is, how long a task, and that a window with a single task is stored, so
that only rows of cut windows are cleared, inside the launch. The source measures WCSR in TF32 alone (section IV-A); in
16-bit types cut windows add in float32 and are rounded once, by a second kernel.

windows: C^T = B^T A^T: wgmma's 64 rows are columns of C, and the height of a window is its narrow side, 8 at least.
Preparation is offline: a window's values by slices of 8 columns, as wgmma reads them, and large windows cut into even
tasks. 3xTF32: x = big + small, both rounded to TF32; a product is big·big + big·small + small·big. What is left out,
small·small and the rounding of small, is 2^-21 of a product at most; float32 itself has 2^-24.
"""

from dataclasses import dataclass, field, replace
from math import ceil

import numpy as np

from ..autotune import choices
from ..contract import Kernel, Launch, Problem, Slot, require, timed
from ..formats import half, wcsr
from ..formats.csr import INT32_MAX, Csr
from ..lazy import cupy
from ..tma import tensor_map
from . import planning
from .family import (
    A_BYTES,
    DTYPES,
    HERE,
    LINE,
    ROWS,
    TARGETS,
    Lines,
    dtype_of,
    instance,
    lines,
    require_hopper,
)

WCSR_SOURCE, SOURCE, SHORT_SOURCE = HERE / "wcsr.cu", HERE / "windows.cu", HERE / "windows_half.cu"
UNION_SOURCE, HALF_SOURCE = HERE / "union_rows.cu", HERE / "union_half.cu"
PAD = 8  #: columns
WIDTHS = (64, 128, 256)  #: of a tile of wcsr
CHUNKS = (256, 512, 1024, 2048)  #: of its tasks
HEIGHTS = (8, 16, 32, 64)  #: rows of a window: what wgmma has as its narrow side, and no more than the source
STEP, GROUP_BYTES = 32, 512  #: rows of B of a step; bytes of each that a warpgroup multiplies
LEAST_CHUNK = 256  #: columns of a window that are not cut
MOST_STAGES = 8
#: Bytes of shared memory of an SM and of a block, without what the driver and barriers take of each block.
SM_SHARED, BLOCK_SHARED, TAKEN = 233_472, 231_424, 2048
GROUP_HEIGHTS = (1, 2, 4, 8)  #: rows of a group
VECTORS = (4, 2, 1)  #: float32 values of a load
LOADS = (1, 2)  #: of a row of B
MOST_TASKS = 8  #: of a warp, a power of 2
#: Bytes of B that a warp's tasks load together, where it has several: blocks that run side by side then lie side by
#: side in A as well, and what one has fetched of B is still in L2 for the next. With fewer, blocks of tasks of two or
#: three columns would begin more often than they multiply (artifact/systems/async_sparse/scripts.py).
WORK = 48 * 1024
#: Times L2 that a panel of B is where it is so large that neighbours find nothing of each other's in L2, if rows are so
#: uneven that groups are cut: there a warp has many tasks, which evens out how long warps of a block take.
FAR = 4
MOST_LOADS = 2**32 - 1  #: of B: the kernel counts them with 32 bits
LONG = 4  #: times the average group's columns that a task has at most
WARPS = 8  #: of a block
#: (rows * loads, loads * unroll) -> blocks that share an SM: as many as registers allow, inner loops without spills.
BLOCKS = {
    (1, 4): 6,
    (1, 8): 4,
    (2, 4): 6,
    (2, 8): 4,
    (2, 16): 3,
    (4, 4): 4,
    (4, 8): 3,
    (4, 16): 2,
    (8, 4): 2,
    (8, 8): 2,
    (8, 16): 2,
}
#: The same of union_half.cu, of 1 load.
HALF_BLOCKS = {(1, 4): 5, (1, 8): 4, (2, 4): 4, (2, 8): 3, (4, 4): 3, (8, 4): 2}


# ---------------------------------------------------------------- what the kernels ask of a problem


def require_rows(name: str, operands) -> None:
    """Raise ValueError unless A is CSR, and B and C row-major."""
    require(
        isinstance(operands.a, Csr),
        f"{name} makes windows of a CSR matrix, but A is {type(operands.a).__name__}: make the problem with "
        'problem_from_csr(..., format="csr")',
    )
    for which, x in (("B", operands.b), ("C", operands.c)):
        require(
            half.array_of(x).flags.c_contiguous,
            f"{name} gathers rows of a row-major B for a row-major C, but {which} is column-major: make the "
            'problem with layout="row"',
        )


def require_tf32(name: str, operands) -> None:
    """Raise ValueError unless TF32 holds every value of A and B."""
    for x in (operands.a.val, *([] if isinstance(operands.b, Slot) else [operands.b])):
        require(
            not planning.flags(x)[1],
            f'{name} would lose digits of its operands: make the problem with dtype="tf32", or use windows_exact',
        )


# ---------------------------------------------------------------- wcsr


@dataclass(frozen=True)
class WcsrTile:
    """A tile of wcsr and its tasks."""

    width: int = 128  #: columns of C in a tile
    chunk: int = 512  #: columns of a window in a task at most; 0: windows stay whole

    def convert(self, a: Csr, dtype: str) -> tuple[wcsr.Wcsr, planning.Tasks]:
        """(windows of 64 rows, their tasks), on the side where A lives."""
        made = wcsr.from_csr(a, window=ROWS, pad=PAD, dtype="float32" if dtype == "tf32" else dtype)
        return made, planning.fixed_tasks(made.row_ptr, self.chunk)

    def prepare(self, name: str, problem: Problem, device) -> Launch:
        """Return wcsr ready to run. `prepare_ms` is the conversion of A, CSR, into windows and tasks.

        Launches of one `Launch` must not overlap where windows are cut. Raises ValueError where A is not CSR, B and
        C are not row-major, the GPU has no wgmma, TF32 would lose digits, or n is too large for a grid.
        """
        require_hopper(name, device)
        require(
            self.width in WIDTHS,
            f"a tile has {self.width} columns, but must have {', '.join(map(str, WIDTHS))}",
        )
        operands = problem.device()
        require_rows(name, operands)
        dtype = dtype_of(operands.b)
        if dtype == "tf32":
            require_tf32(name, operands)
        panels = ceil(problem.n / self.width)
        require(
            panels <= planning.MOST_PANELS,
            f"{name} has a row of blocks for each panel of C, but n={problem.n} makes {panels} of them and a grid "
            f"has at most {planning.MOST_PANELS}: use windows",
        )
        (a, work), prepare_ms = timed(lambda: self.convert(operands.a, dtype))
        dense = lines(operands, device, by_rows=True)
        width = dense.c.shape[1]
        kind, size = DTYPES[dtype]
        clears = dtype == "tf32"  # the rows of cut windows; else their sums are rounded
        sums = cupy.zeros((0 if clears else len(work.cut) * ROWS, width), cupy.float32)
        entry = f"clear_cut<{ROWS}>" if clears else f"round_cut<{kind}, {ROWS}>"
        first = None if clears else sums
        cut = planning.of_cut(WCSR_SOURCE, entry, work.cut, first, dense.c, problem.m, device)
        val = a.val if a.columns else cupy.zeros((ROWS, PAD), a.val.dtype)
        windows = tensor_map(val, (ROWS, LINE // size), LINE), a.col_idx, work.table
        return dense.bound(
            name,
            operands,
            (WCSR_SOURCE, instance("wcsr", dtype, self.width)),
            device,
            ((len(work.table), panels), 128),
            (*windows, dense.b, np.int64(dense.b.shape[1] * size), dense.c, sums, problem.m, width),
            prepare_ms,
            a.nbytes + work.nbytes + sums.nbytes,
            need=A_BYTES + self.width * LINE,  # a step of A and of B
            keep=(val,),
            around=(cut, ()) if clears else ((), cut),
        )


# ---------------------------------------------------------------- windows


@dataclass(frozen=True)
class Windows:
    """A configuration of windows.cu, or of windows_half.cu, which has no 3xTF32."""

    window: int = 16  #: rows: 8, 16, 32 or 64
    #: Warpgroups that multiply 128 columns of C each, 256 in 16 bits: 1, and two blocks share an SM, or 2; 0: as many
    #: as C has columns for.
    groups: int = 2
    exact: bool = False  #: 3xTF32 for float32 operands; otherwise TF32
    #: Columns of a window in a task at most; 0: windows stay whole; -1: by the load of a block.
    chunk: int = -1
    longest_first: bool = True  #: the order of tasks; otherwise window after window
    order: str = ""  #: of rows: one of `planning.ORDERS`
    #: Parts of a cut window are added up in one order (in_order.cuh), so that results repeat bit by bit; otherwise as
    #: they are done, which windows of three parts and more can tell. In 16 bits they always are.
    in_order: bool = field(default=False, metadata=choices.UNSAID)

    def entry(self, dtype: str = "tf32") -> str:
        """Return the template instantiation; dtype: of B, "tf32" for float32."""
        if dtype in half.DTYPES:
            return instance("windows_half", dtype, self.window, self.groups, stages(self, dtype))
        last = planning.IN_ORDER * self.in_order
        return instance("windows", self.window, self.groups, stages(self), self.exact, *last)

    def convert(self, a: Csr, blocks: int, panels: int, dtype: str = "tf32") -> planning.Prepared:
        """Windows of A, which lies on a GPU. blocks: that run at a time; panels: tiles along n; dtype: as `entry`."""
        order, rows = planning.ordered(planning.ascending(a), self.order)
        row_ptr, col_idx, slices = planning.sliced(rows, self.window, dtype, self.exact)
        chunk = self.chunk if self.chunk >= 0 else balanced(col_idx.size * panels / blocks)
        work, _ = planning.tasks(row_ptr, chunk, longest_first=self.longest_first)
        in_half = dtype in half.DTYPES
        parts = planning.parts(row_ptr, work.cut, chunk, 2 - in_half) if self.in_order or in_half else None
        held = planning.bytes_of((order, col_idx, slices))
        return planning.Prepared(order, col_idx, slices, work, parts, held + work.nbytes)

    def prepare(self, name: str, problem: Problem, device) -> Launch:
        """Return a configuration ready to run. `prepare_ms` is the conversion of A, CSR, into slices and tasks.

        Where a window is cut into three parts or more, the order of their additions, and with it the last bits of C,
        changes from launch to launch unless the configuration is `in_order`, as it is in 16 bits. Launches of one
        `Launch` must not overlap where windows are cut. Raises ValueError where A is not CSR, B and C are not
        row-major, the GPU has no wgmma, TF32 or the 16 bits of B would lose digits of A, or 3xTF32 would make NaN of
        infinity.
        """
        require_hopper(name, device)
        dtype = dtype_of(problem.device().b)
        width = group_columns(dtype)
        groups = self.groups or 1 + (problem.n > width)
        require(
            self.window in HEIGHTS and groups in (1, 2),
            f"windows have {self.window} rows for {groups} warpgroups, but must have "
            f"{', '.join(map(str, HEIGHTS))} for 1 or 2",
        )
        operands = problem.device()
        require_rows(name, operands)
        in_half = dtype in half.DTYPES
        require(
            (name not in CONFIGS or in_half == (name == "windows_half")) and not (in_half and self.exact),
            f"{name} is not made for float32 arrays and those of 16 bits alike, and B is "
            f"{'float32' if dtype == 'tf32' else dtype}: use {'windows_half' if in_half else 'windows'}",
        )
        if in_half:
            require(
                half.first_not_held(operands.a.val, dtype) is None,
                f"{name} multiplies A in {dtype}, which would lose digits of its values: use union_half",
            )
        elif not self.exact:
            require_tf32(name, operands)
        require(
            not self.exact or splits(operands.a),
            f"{name} multiplies in 3xTF32, but A has values that are infinite or as good as that: use union_rows",
        )
        blocks = device.properties.multiprocessor_count * (3 - groups)
        panels = ceil(problem.n / (width * groups))
        made, prepare_ms = timed(lambda: self.convert(operands.a, blocks, panels, dtype))
        config = replace(self, groups=groups, in_order=made.parts is not None)
        count = len(made.work.table)
        require(
            count * panels <= INT32_MAX,
            f"{name} has {count * panels} tiles, but counts up to {INT32_MAX}: use longer tasks or higher windows",
        )
        dense = lines(operands, device, by_rows=True)
        width = dense.c.shape[1]
        strips = panels * groups * 4  # what a warp has of a tile, of which windows_half adds up 16 rows at a time
        if in_half:
            strips *= max(1, self.window // 16)
        last = planning.slots(made.parts, strips, self.window, width, always=in_half)
        cut = made.work.cut[: 0 if last else None]  # whose rows are added to
        entry = f"clear_cut<{self.window}>"
        work = made.work.table, count, panels, made.col_idx, made.values, made.order
        return dense.bound(
            name,
            operands,
            (SHORT_SOURCE if in_half else SOURCE, config.entry(dtype)),
            device,
            (min(blocks, count * panels), 128 * (groups + 1)),
            (dense.b, dense.b.shape[1], *work, dense.c, problem.m, width, *last),
            prepare_ms,
            made.nbytes + planning.bytes_of(last),
            need=stages(config, dtype) * stage_bytes(config, dtype),
            scratch=last[1::2],
            around=(planning.of_cut(SOURCE, entry, cut, made.order, dense.c, problem.m, device), ()),
        )


def group_columns(dtype: str) -> int:
    """Columns of C that a warpgroup multiplies; dtype: of B, "tf32" for float32."""
    return GROUP_BYTES // DTYPES[dtype][1]


def stage_bytes(config: Windows, dtype: str = "tf32") -> int:
    """Shared memory of a stage of the ring: values, and gathered rows of B, each 8 elements longer."""
    size = DTYPES[dtype][1]
    values = config.window * STEP * size * (1 + config.exact)
    return values + STEP * (GROUP_BYTES * config.groups + 8 * size)


def stages(config: Windows, dtype: str = "tf32") -> int:
    """As many as shared memory takes, `MOST_STAGES` at most."""
    most = min(BLOCK_SHARED, SM_SHARED // (3 - config.groups) - TAKEN)
    return min(MOST_STAGES, most // stage_bytes(config, dtype))


def balanced(load: float) -> int:
    """Columns of a task at most, where a block has so many to multiply on average: half of them, in whole steps."""
    return max(LEAST_CHUNK, ceil(load / 2 / planning.STEP) * planning.STEP)


def splits(a: Csr) -> bool:
    """Whether 3xTF32 takes A's values: infinity, and what TF32 rounds to it, times B's rest is NaN where that is 0."""
    return not planning.flags(a.val)[0]


# ---------------------------------------------------------------- groups of rows


@dataclass(frozen=True)
class Union:
    """A configuration of union_rows.cu, or of union_half.cu: 1 load of 16 bytes, and twice as many columns in it."""

    rows: int = 4  #: of a group: 1, 2, 4 or 8
    #: float32 values of a load of B, and 32 times as many columns in a panel; where n does not divide by it, loads of
    #: half of it and twice as many.
    vec: int = 4
    #: Loads of a row of B, each 32 * vec columns of C: 1 or 2.
    loads: int = 1
    #: Rows of B that are asked for together: 4 or 8.
    unroll: int = 4
    #: Columns of a group in a task at most; 0: groups stay whole; -1: `LONG` times what they have on average.
    chunk: int = -1
    order: str = ""  #: of rows: one of `planning.ORDERS`
    #: Parts of a cut group are added up in one order (in_order.cuh), so that results repeat bit by bit; otherwise as
    #: they are done, which groups of three parts and more can tell.
    in_order: bool = field(default=False, metadata=choices.UNSAID)

    def entry(self, dtype: str = "tf32") -> str:
        """Return the template instantiation; dtype: of B, "tf32" for float32."""
        last = WARPS, blocks_of(self, dtype), self.unroll, *planning.IN_ORDER * self.in_order
        if dtype in half.DTYPES:
            return instance("union_half", dtype, self.rows, self.vec, *last)
        return instance("union_rows", self.rows, self.vec, self.loads, *last)

    def convert(self, a: Csr) -> planning.Prepared:
        """Return groups of A, which lies on a GPU."""
        order, rows = planning.ordered(a if self.rows == 1 else planning.ascending(a), self.order)
        asked, block = self.chunk if self.chunk >= 0 else -LONG, WARPS * MOST_TASKS
        if self.rows == 1:
            row_ptr, col_idx, val = rows.row_ptr, rows.col_idx, rows.val
            work, chunk = planning.tasks(row_ptr, asked, block=block)
        else:
            row_ptr, col_idx, val, work, chunk = planning.grouped(rows, self.rows, asked, block)
        parts = planning.parts(row_ptr, work.cut, chunk) if self.in_order else None
        held = planning.bytes_of((order, col_idx, val) if self.rows > 1 or self.order else ())
        return planning.Prepared(order, col_idx, val, work, parts, held + work.nbytes)

    def prepare(self, name: str, problem: Problem, device) -> Launch:
        """Return a configuration ready to run. `prepare_ms` is the conversion of A, CSR, into groups and tasks.

        Where a group of several rows names an infinite or NaN row of B, all its rows become NaN. Where one is cut into
        three parts or more, the order of their additions, and with it the last bits of C, changes from launch to launch
        unless the configuration is `in_order`. Launches of one `Launch` must not overlap where groups are cut. Raises
        ValueError where A is not CSR, B and C are not row-major, their dtype is the other kernel's, or a grid would
        have too many blocks.
        """
        require(
            made_for(self) or made_for(self, "bfloat16"),
            f"union_rows is not made for groups of {self.rows} rows with {self.loads} loads of {self.vec} values for "
            f"each of {self.unroll} rows of B: use groups of {', '.join(map(str, GROUP_HEIGHTS))}, 1 load of 4, 4 rows",
        )
        operands = problem.device()
        require_rows(name, operands)
        dtype = dtype_of(operands.b)
        in_half = dtype in half.DTYPES
        require(
            made_for(self, dtype) and (name not in CONFIGS or in_half == (name == "union_half")),
            f"{name} is not made for B in {'float32' if dtype == 'tf32' else dtype} with groups of {self.rows}: use "
            f"{'union_half' if in_half else 'union_rows'}",
        )
        dense = lines(operands, device, by_rows=True) if in_half else Lines(operands.b, operands.c)
        config = fitted(self, problem.n, dtype)
        width, columns = dense.c.shape[1], columns_of(config, dtype)
        panels = ceil(width / columns)
        loads = problem.k * (width // (columns // (32 * config.loads)))
        require(
            loads <= MOST_LOADS,
            f"{name} reads B of {problem.k} x {problem.n} in {loads} loads, but counts up to {MOST_LOADS} of them: "
            "multiply in several ranges of columns",
        )
        made, prepare_ms = timed(lambda: config.convert(operands.a))
        config = replace(config, in_order=made.parts is not None)
        count, cuts = len(made.work.table), len(made.work.cut)
        row_bytes = min(width, columns) * dense.b.itemsize
        far = cuts and problem.k * row_bytes > FAR * device.properties.l2_cache_size
        loaded = 0 if far else made.col_idx.size / max(1, count) * row_bytes
        each = per_block(count, device.properties.multiprocessor_count * blocks_of(config, dtype), loaded, cuts)
        blocks = ceil(count / each) * panels
        require(
            max(blocks, panels * cuts) <= INT32_MAX,
            f"{name} has {blocks} blocks, and {panels} panels of {cuts} cut groups, but a grid has {INT32_MAX} at "
            "most: use wider panels or longer tasks",
        )
        last = planning.slots(made.parts, panels, self.rows, width)
        awaited = 0 if last else cuts
        handovers = cupy.zeros((panels, awaited, 2), cupy.uint32)
        sums = cupy.empty((awaited, self.rows, width) if in_half else 0, cupy.float32)
        work = made.work.table, count, each, made.col_idx, made.values, made.order, made.work.others, handovers, cuts
        return dense.bound(
            name,
            operands,
            (HALF_SOURCE if in_half else UNION_SOURCE, config.entry(dtype)),
            device,
            (blocks, 32 * WARPS),
            (*work, *[sums] * in_half, dense.b, dense.c, problem.m, width, *last),
            prepare_ms,
            made.nbytes + planning.bytes_of((handovers, sums, *last)),
            scratch=(handovers, sums, *last[1::2]),
        )


def made_for(config: Union, dtype: str = "tf32") -> bool:
    """Whether there is such a kernel; dtype: of B, "tf32" for float32."""
    loads, vectors = ((1,), (4,)) if dtype in half.DTYPES else (LOADS, VECTORS)
    known = config.rows in GROUP_HEIGHTS and config.loads in loads and config.vec in vectors
    return known and blocks_of(config, dtype) > 0


def blocks_of(config: Union, dtype: str = "tf32") -> int:
    """Blocks that share an SM; 0 where there is no such kernel."""
    blocks, most = (HALF_BLOCKS, 4) if dtype in half.DTYPES else (BLOCKS, 5)
    loads = config.loads * config.vec // 4 or 1  # in registers
    found = blocks.get((config.rows * loads, loads * config.unroll), 0)
    return min(found, most) if config.in_order else found  # whose slots take registers, too


def columns_of(config: Union, dtype: str = "tf32") -> int:
    """Columns of C in a panel."""
    return 32 * config.vec * config.loads * (2 if dtype in half.DTYPES else 1)


def fitted(config: Union, n: int, dtype: str = "tf32") -> Union:
    """Return the configuration with loads that divide n, narrower and as many more.

    So a panel keeps its columns. Rows of 16-bit types are padded to whole loads instead.
    """
    if dtype in half.DTYPES or n % config.vec == 0:
        return config
    vec = next(v for v in VECTORS if v <= config.vec and n % v == 0)
    return replace(config, vec=vec, loads=config.loads * config.vec // vec)


def per_block(tasks: int, slots: int, loaded: float, cuts: int = 0) -> int:
    """Tasks of a block. slots: blocks that the GPU holds at once.

    Two rounds of them a panel keep its end from idling SMs. loaded: bytes of B in a task, on average, of which a warp
    has `WORK` at most, or one task; it has `MOST_TASKS` at most, and a power of 2 of them where groups are cut
    (`planning.tasks`).
    """
    each = max(1, int(min(MOST_TASKS, WORK / max(loaded, 1.0), tasks // (2 * slots * WARPS))))
    return WARPS * (1 << each.bit_length() - 1 if cuts else each)


# ---------------------------------------------------------------- variants

#: What is bindable and no variant: name -> (configuration, what it changes).
TRIALS: dict[str, tuple[WcsrTile | Windows | Union, str]] = {
    **{
        f"wcsr_c{chunk}": (WcsrTile(chunk=chunk), f"tasks of {chunk} columns")
        for chunk in CHUNKS
        if chunk != WcsrTile().chunk
    },
    **{
        f"wcsr_n{width}": (WcsrTile(width=width), f"tiles of 64 x {width}")
        for width in WIDTHS
        if width != WcsrTile().width
    },
    **{
        f"windows{'_exact' * exact}_{window}{suffix}": (
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
    },
    **{
        f"union_rows_{rows}{suffix}": (
            replace(usual, rows=rows),
            f"groups of {rows} row{'s' * (rows > 1)}{said}",
        )
        for rows in GROUP_HEIGHTS
        for suffix, usual, said in (
            ("", Union(), ""),
            ("_64", Union(vec=2), ", panels of 64 columns"),
            ("_256", Union(loads=2), ", panels of 256 columns"),
            ("_whole", Union(chunk=0), ", none cut"),
            ("_similar", Union(order="similar"), ", similar ones"),
        )
        if rows * usual.loads <= 8
    },
}
#: Every variant, which nobody tunes, and trial.
CONFIGS: dict[str, WcsrTile | Windows | Union] = {
    "wcsr": WcsrTile(),
    "wcsr_whole": WcsrTile(chunk=0),
    "windows": Windows(groups=0),
    "windows_exact": Windows(groups=0, exact=True),
    "windows_half": Windows(groups=0),
    "union_rows": Union(),
    "union_half": Union(),
    **{name: config for name, (config, _) in TRIALS.items()},
}
_WCSR = (*(instance("wcsr", "tf32", n) for n in WIDTHS), *(instance("wcsr", dtype, 128) for dtype in half.DTYPES))
_WINDOWS = {exact: tuple(Windows(w, g, exact).entry() for w in HEIGHTS for g in (2, 1)) for exact in (False, True)}
KERNELS: dict[str, Kernel] = {
    "wcsr": Kernel(
        "wcsr",
        WCSR_SOURCE,
        "windows of 64 rows: A by TMA, B's rows gathered by all threads, large windows cut into tasks",
        "Half of what windows of 16 rows reach, where columns are shared little: 64 rows have a union of "
        "columns that most of them do not have. The source: 6.2 times cuSPARSE's Blocked-ELL.",
        _WCSR,
        published=True,
        targets=TARGETS,
    ),
    "wcsr_whole": Kernel(
        "wcsr_whole",
        WCSR_SOURCE,
        "… windows whole, no atomics",
        "As wcsr on finite elements, whose windows are alike; 3 times slower where one window has most columns.",
        _WCSR,
        published=True,
        targets=TARGETS,
    ),
    "windows": Kernel(
        "windows",
        SOURCE,
        "windows of 16 rows in exchanged roles: rows of B through registers, gathered by warps of their own",
        "1.5 to 3 times wcsr: a ring hides the gather, and windows of 16 rows name fewer columns. Gathering "
        "bounds it: 5 TFLOP/s times the non-zeros that a column of a window has.",
        _WINDOWS[False],
        targets=TARGETS,
    ),
    "windows_exact": Kernel(
        "windows_exact",
        SOURCE,
        "… in three products, 3xTF32, for errors as small as float32's",
        "0.9 of windows: gathering bounds both, and tensor cores have time for three products.",
        _WINDOWS[True],
        targets=TARGETS,
    ),
    "windows_half": Kernel(
        "windows_half",
        SHORT_SOURCE,
        "… with A, B and C in 16 bits",
        "1.7 times windows: half the bytes are gathered, and gathering bounds it.",
        tuple(Windows(w, g).entry(x) for x, g in (("bfloat16", 2), ("bfloat16", 1), ("float16", 1)) for w in HEIGHTS),
        targets=TARGETS,
        spill_free=False,  # windows of 64 rows, outside the inner loop
    ),
    "union_rows": Kernel(
        "union_rows",
        UNION_SOURCE,
        "CUDA cores: groups of 4 rows over the union of their columns, exact float32",
        "As many times a row-by-row kernel as non-zeros share a column of a group, 4 at most: 2 to 3 on finite "
        "elements, nothing on graphs.",
        tuple(fitted(Union(rows), n).entry() for rows in GROUP_HEIGHTS for n in VECTORS),
        spill_free=False,  # a register or two outside the inner loop: groups of 2 on Hopper, 1 to 4 elsewhere
    ),
    "union_half": Kernel(
        "union_half",
        HALF_SOURCE,
        "… with B and C in 16 bits, products and sums in float32",
        "1.6 times union_rows, which L2 bounds, where B and C do not bound both; half the bytes.",
        tuple(Union(rows).entry(dtype) for dtype in half.DTYPES for rows in GROUP_HEIGHTS),
        spill_free=False,  # groups of 4 on sm_120
    ),
}
