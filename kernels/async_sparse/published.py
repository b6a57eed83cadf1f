"""The source's ladder, opt0 to opt7 (section IV-B), and its sweep over WGMMA_N (section IV-C).

All read blocks of 64 x 64 and a column-major B, as the source has it, and write C in either order. What the
text leaves open is said in each file's head; tiles have the width that section IV-C chooses, `wgmma_n`.
"""

from __future__ import annotations

from math import ceil
from pathlib import Path

import numpy as np

from .. import jit
from ..contract import Kernel, Launch, Problem, require
from ..formats.half import array_of
from ..tma import tensor_map
from . import family
from .family import A_BYTES, DTYPES, LINE, ROWS, TARGETS
from .lines import Lines, lines
from .unit import blocks_of, c_map, require_hopper

HERE = Path(__file__).parent
STAGES = 3  #: of the ring, Q of section III-C
STRIP = 16  #: block rows of a strip of the PID swizzle, GROUP_M of section III-E, which names no number
WIDTHS = tuple(range(8, 257, 8))  #: WGMMA_N, section IV-C
MOST_PANELS = 65_535  #: blocks in the second dimension of a grid
#: Rungs with two warpgroups that multiply, 2 WGMMA_N columns; the others have one.
PAIRS = ("opt3", "opt4", "opt5", "opt6", "opt6_atomic", "opt6_stealing", "opt7")
TRACED = ("opt1", "opt2", "opt5")  #: rungs that can keep clocks
PERSISTENT = ("opt6", "opt6_atomic", "opt6_stealing")
SWEEP = {f"opt5_n{n}": n for n in WIDTHS}


def _kernel(name: str, idea: str, prediction: str, published: bool = True) -> Kernel:
    entries = (
        tuple(f"opt0<{DTYPES[dtype][0]}>" for dtype in DTYPES)
        if name == "opt0"
        else tuple(
            entry(name, dtype, order, 256) for dtype, order in (("bfloat16", "C"), ("bfloat16", "F"), ("tf32", "C"))
        )
    )
    targets = jit.TARGETS if name == "opt0" else TARGETS
    return Kernel(name, HERE / f"{name}.cu", idea, prediction, entries, published, targets=targets)


def entry(name: str, dtype: str, c_order: str, n: int, traced: bool = False) -> str:
    """The template instantiation; c_order: "C" for a row-major C, "F" for a column-major one."""
    stages = "" if name in ("opt1", "opt2") else f", {STAGES}"
    trace = ", true" if traced else ""
    return f"{name}<{DTYPES[dtype][0]}, {str(c_order == 'F').lower()}, {n}{stages}{trace}>"


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        _kernel(
            "opt0",
            "CUDA cores: 128 threads share a block, each multiplies it with a column of B",
            "4 TFLOP/s of stored values: a multiply-add for each load from shared memory. The source: "
            "0.08 of Blocked-ELL.",
        ),
        _kernel(
            "opt1",
            "WGMMA: one warpgroup loads block and B together, by hand into the swizzle, then multiplies",
            "15 times opt0: a step waits for memory once, about 2 microseconds for 256 columns. The source: 5.3 times.",
        ),
        _kernel(
            "opt2",
            "TMA: one thread asks for the next step while this one is multiplied",
            "3 times opt1: loads overlap, and two blocks fit an SM. The source: 3.8 times.",
        ),
        _kernel(
            "opt3",
            "warp specialisation: a warpgroup that loads, two that multiply 512 columns, three stages",
            "1.3 times opt2, which has two blocks an SM that do as much: A is read once for 512 columns, and "
            "two steps are on their way. The source: 2.7 times.",
        ),
        _kernel(
            "opt4",
            "one arrival a warpgroup at each barrier instead of 128",
            "2% over opt3: a step of 1024 tensor cycles hides the arrivals. The source: 2%.",
        ),
        _kernel(
            "opt5",
            "no zeroing: the first wgmma of a tile overwrites the accumulators",
            "Nothing: 128 registers are cleared while the first copies are on their way. The source: nothing.",
        ),
        _kernel(
            "opt6",
            "persistent: a block for each SM, a fixed order of tiles in strips, stores that overlap",
            "1.1 times opt5 where block rows are alike, since stores overlap; less where they are not. The "
            "source: 0.62 times.",
        ),
        _kernel(
            "opt6_atomic",
            "persistent, each block claims its next tile from one counter",
            "As opt6 where block rows are alike, better where they are not. The source: no better than opt5.",
        ),
        _kernel(
            "opt6_stealing",
            "persistent, each block has a queue and takes from others when its own is empty",
            "As opt6_atomic. The source: no better than opt5.",
        ),
        _kernel(
            "opt7",
            "multicast: two blocks of a cluster share A",
            "3% over opt5: L2 delivers 68 KiB instead of 72 for a step, and blocks wait for each other. The "
            "source: 0.93 times, on other matrices than opt5.",
        ),
    )
}


def wgmma_n(n: int, groups: int = 2) -> int:
    """The width that section IV-C chooses: the largest WGMMA_N whose tile of `groups` of them divides n.

    Where none does, which the source does not say: the one that pads n the least, the largest of those.
    """
    return min(WIDTHS, key=lambda width: (-n % (groups * width), -width))


def bind(name: str, problem: Problem, device, spans=None) -> Launch:
    """A rung, or "opt5_n<N>" of the sweep, ready to run: nothing but its kernel in a launch.

    spans: CuPy array for the clocks of a rung of `TRACED` (`timeline.py`); a launch is slower then.
    Raises ValueError where blocks are not 64 x 64, where n is too large for a grid, and, but for opt0, where B
    is not column-major or the GPU has no wgmma.
    """
    operands = problem.device()
    require(
        operands.a.block == (ROWS, ROWS),
        f"{name} multiplies blocks of 64 x 64, but these are {' x '.join(map(str, operands.a.block))}: use unit_ring",
    )
    if name == "opt0":
        return _bind_cuda_cores(problem, device)
    require_hopper(name, device)
    shape = family.shape_of(problem)
    require(
        shape.b_order == "F",
        f"{name} reads a column-major B, but this one is row-major: use {'opt0' if shape.size == 4 else 'unit_ring'}",
    )
    kernel_name = "opt5" if name in SWEEP else name
    groups = 2 if kernel_name in PAIRS else 1
    width = SWEEP.get(name) or wgmma_n(problem.n, groups)
    return _bind_wgmma(name, kernel_name, width, groups, shape, problem, device, spans)


def shared_bytes(name: str, width: int, size: int, c_order: str) -> int:
    """Dynamic shared memory of a rung's block; size: bytes of a value."""
    if name in ("opt1", "opt2"):
        return (1 if name == "opt1" else 2) * (A_BYTES + width * LINE)
    boxes = 2 * family.box_bytes(width, size, c_order, widest(name, size))
    boxes = boxes if name in PERSISTENT else 0
    return STAGES * (A_BYTES + 2 * width * LINE) + boxes


def widest(name: str, size: int) -> int:
    """Columns of a box of C at most: few where it has shared memory of its own, beside a full ring."""
    return 64 // size if name in PERSISTENT else 64


def _bind_wgmma(name: str, kernel_name: str, width: int, groups: int, shape, problem: Problem, device, spans) -> Launch:
    import cupy

    operands = problem.device()
    a = operands.a
    val = blocks_of(a)
    dense = lines(operands, device)  # and what was copied is there
    m, n = problem.m, problem.n
    k = LINE // shape.size
    rows, panels = a.block_rows, ceil(n / (groups * width))
    if kernel_name not in PERSISTENT:
        _require_panels(name, n, panels + (panels % 2 if kernel_name == "opt7" else 0))
    need = shared_bytes(kernel_name, width, shape.size, shape.c_order)
    index = a.row_ptr.data.ptr, a.col_idx.data.ptr
    direct = dense.c.data.ptr, np.int64(dense.c.shape[1]), np.int32(m), np.int32(n)
    keep = [val]
    cluster: tuple[int, ...] = ()
    staying = min(device.properties.multiprocessor_count, rows * panels)
    grid = staying if kernel_name in PERSISTENT else (rows, panels)
    arguments: tuple
    if kernel_name == "opt1":
        pitch = dense.b.shape[1] * shape.size
        arguments = (*index, val.data.ptr, dense.b.data.ptr, np.int64(pitch), *direct)
    else:
        maps = (
            tensor_map(val, (ROWS, k), LINE),
            tensor_map(dense.b, (width, k), LINE),
        )
        if kernel_name == "opt7":
            # A cluster is two neighbouring panels, where their number is odd the last one is beyond C. cuda.core's
            # grid counts clusters.
            grid, cluster = (rows, ceil(panels / 2)), (1, 2, 1)
            arguments = (*maps, *index, *direct)
        else:
            most = widest(kernel_name, shape.size)
            boxes = family.box_columns(width, shape.size, shape.c_order, most)
            arguments = (*maps, c_map(dense.c, boxes, shape), *index)
        if kernel_name in PERSISTENT:
            arguments += tuple(map(np.int32, (rows, panels, min(STRIP, rows))))
            if kernel_name != "opt6":
                counters = cupy.zeros(staying + 1, cupy.uint32)
                keep.append(counters)
                arguments += (counters.data.ptr,)
    if kernel_name in TRACED:
        arguments += (0 if spans is None else spans.data.ptr,)
    job = HERE / f"{kernel_name}.cu", entry(kernel_name, shape.dtype, shape.c_order, width, spans is not None)
    threads = family.THREADS if kernel_name in PAIRS else 128
    return dense.bound(name, operands, job, device, (grid, threads), arguments, need, keep=tuple(keep), cluster=cluster)


def _bind_cuda_cores(problem: Problem, device) -> Launch:
    operands = problem.device()
    a = operands.a
    panels = ceil(problem.n / 128)
    _require_panels("opt0", problem.n, panels)
    b, c = (
        (x.data.ptr, *(np.int64(step // x.dtype.itemsize) for step in x.strides))
        for x in map(array_of, (operands.b, operands.c))
    )
    arguments = (
        a.row_ptr.data.ptr,
        a.col_idx.data.ptr,
        a.val.data.ptr,
        *b,
        *c,
        *map(np.int32, (problem.m, problem.n, problem.k)),
    )
    job = HERE / "opt0.cu", f"opt0<{DTYPES[family.dtype_of(operands.b)][0]}>"
    dense = Lines(operands.b, operands.c)
    return dense.bound("opt0", operands, job, device, ((a.block_rows, panels), 128), arguments)


def _require_panels(name: str, n: int, panels: int) -> None:
    require(
        panels <= MOST_PANELS,
        f"{name} has a row of blocks for each panel of C, but n={n} makes {panels} of them and a grid has at "
        f"most {MOST_PANELS}: use unit_ring",
    )
