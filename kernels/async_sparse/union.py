"""Groups of 1 to 8 rows on CUDA cores: each row of B that a group names is fetched once for all of them.

union_rows.cu is exact float32; union_half.cu has B and C in 16 bits, and float32 products and sums.

What the review of the system's kernels asks for beyond casper's ladder: "a warp takes 4 to 8 rows over their union". A
group is a window of a `Wcsr` without padding; single rows are CSR itself.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from pathlib import Path

import numpy as np

from ..autotune import choices
from ..contract import Kernel, Launch, Problem, require, timed
from ..formats import half
from ..formats.csr import INT32_MAX, Csr
from . import planning, tasks
from .family import dtype_of, instance
from .lines import Lines, lines
from .wcsr import require_rows

HERE = Path(__file__).parent
SOURCE, HALF_SOURCE = HERE / "union_rows.cu", HERE / "union_half.cu"
HEIGHTS = (1, 2, 4, 8)  #: rows of a group
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


@dataclass(frozen=True)
class Union:
    """A configuration of union_rows.cu, or of union_half.cu: 1 load of 16 bytes, and twice as many columns in it."""

    rows: int = 4  #: of a group: 1, 2, 4 or 8
    #: float32 values of a load of B, and 32 times as many columns in a panel; what n does not divide by is halved.
    vec: int = 4
    #: Loads of a row of B, each 32 * vec columns of C: 1 or 2.
    loads: int = 1
    #: Rows of B that are asked for together: 4 or 8.
    unroll: int = 4
    #: Columns of a group in a task at most; 0: groups stay whole; -1: `LONG` times what they have on average.
    chunk: int = -1
    order: str = ""  #: of rows: one of `tasks.ORDERS`
    #: Parts of a cut group are added up in one order (in_order.cuh), so that results repeat bit by bit; otherwise as
    #: they are done, which groups of three parts and more can tell.
    in_order: bool = field(default=False, metadata=choices.UNSAID)


#: What is bindable and no variant: name -> (configuration, what it changes).
TRIALS: dict[str, tuple[Union, str]] = {
    f"union_rows_{rows}{suffix}": (
        replace(usual, rows=rows),
        f"groups of {rows} row{'s' * (rows > 1)}{said}",
    )
    for rows in HEIGHTS
    for suffix, usual, said in (
        ("", Union(), ""),
        ("_64", Union(vec=2), ", panels of 64 columns"),
        ("_256", Union(loads=2), ", panels of 256 columns"),
        ("_whole", Union(chunk=0), ", none cut"),
        ("_similar", Union(order="similar"), ", similar ones"),
    )
    if rows * usual.loads <= 8
}


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


def made_for(config: Union, dtype: str = "tf32") -> bool:
    """Whether there is such a kernel; dtype: of B, "tf32" for float32."""
    loads, vectors = ((1,), (4,)) if dtype in half.DTYPES else (LOADS, VECTORS)
    known = config.rows in HEIGHTS and config.loads in loads and config.vec in vectors
    return known and blocks_of(config, dtype) > 0


def blocks_of(config: Union, dtype: str = "tf32") -> int:
    """Blocks that share an SM; 0 where there is no such kernel."""
    blocks, most = (HALF_BLOCKS, 4) if dtype in half.DTYPES else (BLOCKS, 5)
    found = blocks.get((config.rows * config.loads, config.loads * config.unroll), 0)
    return min(found, most) if config.in_order else found  # whose slots take registers, too


def columns_of(config: Union, dtype: str = "tf32") -> int:
    """Columns of C in a panel."""
    return 32 * config.vec * config.loads * (2 if dtype in half.DTYPES else 1)


def entry(config: Union, dtype: str = "tf32") -> str:
    """Return the template instantiation; dtype: of B, "tf32" for float32."""
    c, last = config, (WARPS, blocks_of(config, dtype), config.unroll, *tasks.IN_ORDER * config.in_order)
    if dtype in half.DTYPES:
        return instance("union_half", dtype, c.rows, c.vec, *last)
    return instance("union_rows", c.rows, c.vec, c.loads, *last)


KERNELS: dict[str, Kernel] = {
    "union_rows": Kernel(
        "union_rows",
        SOURCE,
        "CUDA cores: groups of 4 rows over the union of their columns, exact float32",
        "As many times a row-by-row kernel as non-zeros share a column of a group, 4 at most: 2 to 3 on finite "
        "elements, nothing on graphs.",
        tuple(entry(Union(rows, vec)) for rows in HEIGHTS for vec in VECTORS),
        spill_free=False,  # a register or two outside the inner loop: groups of 2 on Hopper, 1 to 4 elsewhere
    ),
    "union_half": Kernel(
        "union_half",
        HALF_SOURCE,
        "… with B and C in 16 bits, products and sums in float32",
        "1.6 times union_rows, which L2 bounds, where B and C do not bound both; half the bytes.",
        tuple(entry(Union(rows), dtype) for dtype in half.DTYPES for rows in HEIGHTS),
        spill_free=False,  # groups of 4 on sm_120
    ),
}


HALVES = ("union_half",)  #: variants of 16 bits


def config_of(name: str) -> Union:
    """Return the configuration of the variant, which nobody tunes, or of a trial."""
    return TRIALS[name][0] if name in TRIALS else Union()


def fitted(config: Union, n: int, dtype: str = "tf32") -> Union:
    """Return the configuration with loads that divide n; rows of 16-bit types are padded to whole loads instead."""
    if dtype in half.DTYPES or n % config.vec == 0:
        return config
    return replace(config, vec=next(v for v in VECTORS if v <= config.vec and n % v == 0))


def per_block(tasks: int, slots: int, loaded: float, cuts: int = 0) -> int:
    """Tasks of a block. slots: blocks that the GPU holds at once.

    Two rounds of them a panel keep its end from idling SMs. loaded: bytes of B in a task, on average, of which a warp
    has `WORK` at most, or one task; it has `MOST_TASKS` at most, and a power of 2 of them where groups are cut
    (`planning.tasks`).
    """
    each = max(1, int(min(MOST_TASKS, WORK / max(loaded, 1.0), tasks // (2 * slots * WARPS))))
    return WARPS * (1 << each.bit_length() - 1 if cuts else each)


def convert(a: Csr, config: Union) -> tasks.Prepared:
    """Return groups of A, which lies on a GPU."""
    order, a = tasks.ordered(a if config.rows == 1 else tasks.ascending(a), config.order)
    asked, block = config.chunk if config.chunk >= 0 else -LONG, WARPS * MOST_TASKS
    if config.rows == 1:
        row_ptr, col_idx, val = a.row_ptr, a.col_idx, a.val
        work, chunk = planning.tasks(row_ptr, asked, block=block)
    else:
        row_ptr, col_idx, val, work, chunk = planning.grouped(a, config.rows, asked, block)
    parts = tasks.parts(row_ptr, work.cut, chunk) if config.in_order else None
    own = (order, col_idx, val) if config.rows > 1 or config.order else ()
    return tasks.Prepared(order, col_idx, val, work, parts, own)


def prepare(name: str, problem: Problem, device, config: Union | None = None) -> Launch:
    """Return a configuration ready to run. `prepare_ms` is the conversion of A, CSR, into groups and tasks.

    Where a group of several rows names an infinite or NaN row of B, all its rows become NaN. Where one is cut into
    three parts or more, the order of their additions, and with it the last bits of C, changes from launch to launch
    unless the configuration is `in_order`. Launches of one `Launch` must not overlap where groups are cut. Raises
    ValueError where A is not CSR, B and C are not row-major, their dtype is the other kernel's, or a grid would have
    too many blocks.
    """
    config = config or config_of(name)
    require(
        made_for(config) or made_for(config, "bfloat16"),
        f"union_rows is not made for groups of {config.rows} rows with {config.loads} loads of {config.vec} values for "
        f"each of {config.unroll} rows of B: use groups of {', '.join(map(str, HEIGHTS))}, 1 load of 4, 4 rows",
    )
    import cupy

    operands = problem.device()
    require_rows(name, operands)
    dtype = dtype_of(operands.b)
    in_half = dtype in half.DTYPES
    named = name in KERNELS or name in TRIALS
    require(
        made_for(config, dtype) and (not named or in_half == (name in HALVES)),
        f"{name} is not made for B in {'float32' if dtype == 'tf32' else dtype} with groups of {config.rows}: use "
        f"{'union_half' if in_half else 'union_rows'}",
    )
    dense = lines(operands, device, by_rows=True) if in_half else Lines(operands.b, operands.c)
    config = fitted(config, problem.n, dtype)
    width = dense.c.shape[1]
    panels = ceil(width / columns_of(config, dtype))
    loads = problem.k * (width // (columns_of(config, dtype) // (32 * config.loads)))
    require(
        loads <= MOST_LOADS,
        f"{name} reads B of {problem.k} x {problem.n} in {loads} loads, but counts up to {MOST_LOADS} of them: "
        "multiply in several ranges of columns",
    )
    made, prepare_ms = timed(partial(convert, operands.a, config))
    config = replace(config, in_order=made.parts is not None)
    slots = device.properties.multiprocessor_count * blocks_of(config, dtype)
    cuts = len(made.work.cut)
    row_bytes = min(width, columns_of(config, dtype)) * dense.b.itemsize
    far = cuts and problem.k * row_bytes > FAR * device.properties.l2_cache_size
    loaded = 0 if far else made.col_idx.size / max(1, made.work.count) * row_bytes
    each = per_block(made.work.count, slots, loaded, cuts)
    blocks = ceil(made.work.count / each) * panels
    require(
        max(blocks, panels * cuts) <= INT32_MAX,
        f"{name} has {blocks} blocks, and {panels} panels of {cuts} cut groups, but a grid has {INT32_MAX} at most: "
        "use wider panels or longer tasks",
    )
    last, in_order = tasks.slots(made.parts, panels, config.rows, width)
    awaited = 0 if in_order else cuts
    handovers = cupy.zeros((panels, awaited, 2), cupy.uint32)
    sums = cupy.empty((awaited, config.rows, width) if in_half else 0, cupy.float32)
    arguments = (
        made.work.table.data.ptr,
        np.int32(made.work.count),
        np.int32(each),
        made.col_idx.data.ptr,
        made.values.data.ptr,
        tasks.pointer(made.order),
        made.work.others.data.ptr,
        handovers.data.ptr,
        np.int32(cuts),
        *([sums.data.ptr] if in_half else []),
        dense.b.data.ptr,
        dense.c.data.ptr,
        np.int32(problem.m),
        np.int32(width),
        *last,
    )
    job = HALF_SOURCE if in_half else SOURCE, entry(config, dtype)
    held = made.nbytes + sum(x.nbytes for x in (handovers, sums, *in_order))
    keep, scratch = (made, handovers, sums, in_order), (handovers, sums, *in_order[1:])
    how = device, (blocks, 32 * WARPS), arguments, 0, prepare_ms, held, keep, scratch
    return dense.bound(name, operands, job, *how)
