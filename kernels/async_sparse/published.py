"""The source's ladder, opt0 to opt7 (section IV-B), and its sweep over WGMMA_N (section IV-C).

All read blocks of 64 x 64 and a column-major B, as the source has it, and write C in either order. What the
text leaves open is said in each file's head; tiles have the width that section IV-C chooses, `wgmma_n`.
"""

from math import ceil
from typing import Any

import numpy as np

from .. import jit
from ..contract import Kernel, Launch, Problem, require
from ..formats import half
from ..lazy import cupy
from ..tma import tensor_map
from . import family
from .family import A_BYTES, DTYPES, HERE, LINE, ROWS, TARGETS, Lines, OneTile
from .planning import MOST_PANELS

STAGES = 3  #: of the ring, Q of section III-C
STRIP = 16  #: block rows of a strip of the PID swizzle, GROUP_M of section III-E, which names no number
WIDTHS = tuple(range(8, 257, 8))  #: WGMMA_N, section IV-C
#: Rungs with two warpgroups that multiply, 2 WGMMA_N columns; the others have one.
PAIRS = ("opt3", "opt4", "opt5", "opt6", "opt6_atomic", "opt6_stealing", "opt7")
TRACED = ("opt1", "opt2", "opt5")  #: rungs that can keep clocks
PERSISTENT = ("opt6", "opt6_atomic", "opt6_stealing")
SWEEP = {f"opt5_n{n}": n for n in WIDTHS}


def entry(name: str, dtype: str, c_order: str, n: int, traced: bool = False) -> str:
    """Return the template instantiation; c_order: "C" for a row-major C, "F" for a column-major one."""
    stages = () if name in ("opt1", "opt2") else (STAGES,)
    return family.instance(name, dtype, c_order == "F", n, *stages, *(True,) * traced)


#: (dtype, order of C) of instantiations that stand for all.
_STANDING = (("bfloat16", "C"), ("bfloat16", "F"), ("tf32", "C"))
#: Rung -> its idea, and what that should gain.
_IDEAS = {
    "opt0": (
        "CUDA cores: 128 threads share a block, each multiplies it with a column of B",
        "4 TFLOP/s of stored values: a multiply-add for each load from shared memory. The source: 0.08 of Blocked-ELL.",
    ),
    "opt1": (
        "WGMMA: one warpgroup loads block and B together, by hand into the swizzle, then multiplies",
        "15 times opt0: a step waits for memory once, about 2 microseconds for 256 columns. The source: 5.3 times.",
    ),
    "opt2": (
        "TMA: one thread asks for the next step while this one is multiplied",
        "3 times opt1: loads overlap, and two blocks fit an SM. The source: 3.8 times.",
    ),
    "opt3": (
        "warp specialisation: a warpgroup that loads, two that multiply 512 columns, three stages",
        "1.3 times opt2, which has two blocks an SM that do as much: A is read once for 512 columns, and two "
        "steps are on their way. The source: 2.7 times.",
    ),
    "opt4": (
        "one arrival a warpgroup at each barrier instead of 128",
        "2% over opt3: a step of 1024 tensor cycles hides the arrivals. The source: 2%.",
    ),
    "opt5": (
        "no zeroing: the first wgmma of a tile overwrites the accumulators",
        "Nothing: 128 registers are cleared while the first copies are on their way. The source: nothing.",
    ),
    "opt6": (
        "persistent: a block for each SM, a fixed order of tiles in strips, stores that overlap",
        "1.1 times opt5 where block rows are alike, since stores overlap; less where they are not. The "
        "source: 0.62 times.",
    ),
    "opt6_atomic": (
        "persistent, each block claims its next tile from one counter",
        "As opt6 where block rows are alike, better where they are not. The source: no better than opt5.",
    ),
    "opt6_stealing": (
        "persistent, each block has a queue and takes from others when its own is empty",
        "As opt6_atomic. The source: no better than opt5.",
    ),
    "opt7": (
        "multicast: two blocks of a cluster share A",
        "3% over opt5: L2 delivers 68 KiB instead of 72 for a step, and blocks wait for each other. The "
        "source: 0.93 times, on other matrices than opt5.",
    ),
}
_ENTRIES = {name: tuple(entry(name, *of, 256) for of in _STANDING) for name in _IDEAS}
_ENTRIES["opt0"] = tuple(family.instance("opt0", dtype) for dtype in DTYPES)
KERNELS: dict[str, Kernel] = {
    name: Kernel(
        name,
        HERE / f"{name}.cu",
        *said,
        _ENTRIES[name],
        published=True,
        targets=jit.TARGETS if name == "opt0" else TARGETS,
    )
    for name, said in _IDEAS.items()
}


def wgmma_n(n: int, groups: int = 2) -> int:
    """Return the width that section IV-C chooses: the largest WGMMA_N whose tile of `groups` of them divides n.

    Where none does, which the source does not say: the one that pads n the least, the largest of those.
    """
    return min(WIDTHS, key=lambda width: (-n % (groups * width), -width))


def fits(config: OneTile, problem: Problem, device) -> bool:
    """Whether opt5 takes the problem on this GPU in tiles of a width."""
    takes = config.width in WIDTHS and ceil(problem.n / config.columns) <= MOST_PANELS
    of_source = problem.device().a.block == (ROWS, ROWS) and family.shape_of(problem).b_order == "F"
    return takes and of_source and jit.arch_of(device) in TARGETS


def prepare(name: str, problem: Problem, device, spans=None, config: OneTile | None = None) -> Launch:
    """Return a rung, or "opt5_n<N>" of the sweep, ready to run: nothing but its kernel in a launch.

    spans: CuPy array for the clocks of a rung of `TRACED` (`timeline`); a launch is slower then. config: a tile of
    opt5, which is launched under another name. Raises ValueError where blocks are not 64 x 64, where n is too large for
    a grid, and, but for opt0, where B is not column-major or the GPU has no wgmma.
    """
    operands = problem.device()
    shape = family.shape_of(problem)
    a, m, n = operands.a, problem.m, problem.n
    require(
        a.block == (ROWS, ROWS),
        f"{name} multiplies blocks of 64 x 64, but these are {' x '.join(map(str, a.block))}: use unit_ring",
    )
    kernel = "opt5" if config or name in SWEEP else name
    if kernel != "opt0":
        family.require_hopper(name, device)
        require(
            shape.b_order == "F",
            f"{name} reads a column-major B, but this one is row-major: "
            f"use {'opt0' if shape.size == 4 else 'unit_ring'}",
        )
    groups, persistent = 2 if kernel in PAIRS else 1, kernel in PERSISTENT
    width = config.width if config else 128 if kernel == "opt0" else SWEEP.get(name) or wgmma_n(n, groups)
    # A cluster is two neighbouring panels; where their number is odd, the last one is beyond C.
    cluster = (1, 2, 1) if kernel == "opt7" else None
    together = 2 if cluster else 1
    rows, panels = a.block_rows, ceil(n / (groups * width * together)) * together
    require(
        persistent or panels <= MOST_PANELS,
        f"{name} has a row of blocks for each panel of C, but n={n} makes {panels} of them and a grid has at "
        f"most {MOST_PANELS}: use unit_ring",
    )
    arguments: tuple
    if kernel == "opt0":
        dense = Lines(*map(half.array_of, (operands.b, operands.c)))
        b, c = ((x, *(np.int64(step // x.dtype.itemsize) for step in x.strides)) for x in (dense.b, dense.c))
        arguments = a.row_ptr, a.col_idx, a.val, *b, *c, m, n, problem.k
        job = HERE / "opt0.cu", family.instance("opt0", shape.dtype)
        return dense.bound(name, operands, job, device, ((rows, panels), 128), arguments)
    dense = family.lines(operands, device)
    val = family.blocks_of(a)
    k = LINE // shape.size
    index = a.row_ptr, a.col_idx
    direct = dense.c, np.int64(dense.c.shape[1]), m, n
    grid: Any = min(device.properties.multiprocessor_count, rows * panels) if persistent else (rows, panels // together)
    if kernel == "opt1":
        arguments = *index, val, dense.b, np.int64(dense.b.shape[1] * shape.size), *direct
    else:
        arguments = tensor_map(val, (ROWS, k), LINE), tensor_map(dense.b, (width, k), LINE)
        boxes = family.box_columns(width, shape.size, shape.c_order, 64 // shape.size if persistent else 64)
        arguments += (*index, *direct) if cluster else (family.c_map(dense.c, boxes, shape), *index)
    if persistent:
        arguments += rows, panels, min(STRIP, rows)
    if persistent and kernel != "opt6":
        arguments += (cupy.zeros(grid + 1, cupy.uint32),)
    if kernel in TRACED:
        arguments += (spans,)
    return dense.bound(
        name,
        operands,
        (HERE / f"{kernel}.cu", entry(kernel, shape.dtype, shape.c_order, width, spans is not None)),
        device,
        (grid, family.THREADS if kernel in PAIRS else 128),
        arguments,
        need=shared_bytes(kernel, width, shape.size, shape.c_order),
        cluster=cluster,
        keep=(val,),
    )


def shared_bytes(name: str, width: int, size: int, c_order: str) -> int:
    """Dynamic shared memory of a rung's block; size: bytes of a value."""
    if name in ("opt1", "opt2"):
        return (1 if name == "opt1" else 2) * (A_BYTES + width * LINE)
    # A box of C has few columns where it has shared memory of its own, beside a full ring.
    box = ROWS * size * family.box_columns(width, size, c_order, 64 // size)
    return STAGES * (A_BYTES + 2 * width * LINE) + 2 * box * (name in PERSISTENT)


# ---------------------------------------------------------------- when a block loads, multiplies and stores

#: As trace.cuh has them: blocks, roles, warpgroups and steps that are kept.
KEPT = (8, 3, 3, 64)
ROLES = ("load", "multiply", "store")


def timeline(problem: Problem, device) -> list[dict]:
    """Rows of what the first thread blocks of a launch did (Figs. 3 and 4b), the second launch of each of `TRACED`.

    variant, block (its number in the grid), role ("load": from the request of a step until a thread that
    waits for it sees it there; "multiply": from then until its wgmma are done; "store": until C has left
    shared memory, or registers), warpgroup, step, begin_ns, end_ns from the block's first clock on, by the device's
    highest clock.
    """
    stream, rows = device.create_stream(), []
    for variant in TRACED:
        spans = cupy.zeros((*KEPT, 2), cupy.int64)
        bound = prepare(variant, problem, device, spans)
        for _ in range(2):  # the first one finds a cold instruction cache
            bound.launch(stream)
        stream.sync()
        found = spans.get()
        seen = (found > 0).all(axis=-1)
        zero = np.where(seen, found[..., 0], found.max()).min(axis=(1, 2, 3), keepdims=True)[..., None]
        ns = ((found - zero) / device.properties.clock_rate * 1e6).round(1)
        for block, role, group, step in np.argwhere(seen).tolist():
            begin, end = ns[block, role, group, step].tolist()
            at = {"variant": variant, "block": block, "role": ROLES[role], "warpgroup": group, "step": step}
            rows.append(at | {"begin_ns": begin, "end_ns": end})
    return rows
