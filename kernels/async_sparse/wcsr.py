"""The source's kernel for windows (WCSR), with its parts as variants: tasks or whole windows, and their sizes.

Windows of 64 rows padded to 8 columns (section IV-A), B and C row-major, since a row of B that a column
index names must lie side by side. What the text leaves open, and is decided here: how wide a tile of C is
(`Config.width`), how long a task (`Config.chunk`), and that a window with a single task is stored, so that only
rows of cut windows are cleared, inside the launch. The source measures WCSR in TF32 alone (section IV-A); in 16-bit
types cut windows add in float32 and are rounded once, by a second kernel.
"""

from dataclasses import dataclass
from math import ceil
from pathlib import Path

import numpy as np

from ..contract import Kernel, Launch, Problem, Slot, require, timed
from ..formats import wcsr
from ..formats.csr import Csr
from ..formats.half import array_of
from ..tma import tensor_map
from . import family, planning, tasks
from .family import A_BYTES, DTYPES, LINE, ROWS, TARGETS
from .lines import lines
from .unit import require_hopper

HERE = Path(__file__).parent
SOURCE = HERE / "wcsr.cu"
PAD = 8  #: columns
WIDTHS = (64, 128, 256)  #: of a tile
CHUNKS = (256, 512, 1024, 2048)
MOST_PANELS = 65_535  #: blocks in the second dimension of a grid


@dataclass(frozen=True)
class Config:
    """A tile of the published kernel and its tasks."""

    width: int = 128  #: columns of C in a tile
    chunk: int = 512  #: columns of a window in a task at most; 0: windows stay whole


#: What is bindable and no variant: name -> (configuration, what it changes).
TRIALS: dict[str, tuple[Config, str]] = {
    **{
        f"wcsr_c{chunk}": (Config(chunk=chunk), f"tasks of {chunk} columns")
        for chunk in CHUNKS
        if chunk != Config().chunk
    },
    **{
        f"wcsr_n{width}": (Config(width=width), f"tiles of 64 x {width}") for width in WIDTHS if width != Config().width
    },
}


def entry(dtype: str, width: int) -> str:
    """Return the template instantiation; dtype: of `family.DTYPES`."""
    return family.instance("wcsr", dtype, width)


_ENTRIES = (*(entry("tf32", n) for n in WIDTHS), entry("bfloat16", 128), entry("float16", 128))
KERNELS: dict[str, Kernel] = {
    "wcsr": Kernel(
        "wcsr",
        SOURCE,
        "windows of 64 rows: A by TMA, B's rows gathered by all threads, large windows cut into tasks",
        "Half of what windows of 16 rows reach, where columns are shared little: 64 rows have a union of "
        "columns that most of them do not have. The source: 6.2 times cuSPARSE's Blocked-ELL.",
        _ENTRIES,
        published=True,
        targets=TARGETS,
    ),
    "wcsr_whole": Kernel(
        "wcsr_whole",
        SOURCE,
        "… windows whole, no atomics",
        "As wcsr on finite elements, whose windows are alike; 3 times slower where one window has most columns.",
        _ENTRIES,
        published=True,
        targets=TARGETS,
    ),
}


def config_of(name: str) -> Config:
    """Return the configuration of a variant or a trial."""
    if name in TRIALS:
        return TRIALS[name][0]
    return Config(chunk=0) if name == "wcsr_whole" else Config()


def prepare(name: str, problem: Problem, device, config: Config | None = None) -> Launch:
    """Return a variant or trial ready to run. `prepare_ms` is the conversion of A, CSR, into windows and tasks.

    Launches of one `Launch` must not overlap where windows are cut. Raises ValueError where A is not CSR, B and
    C are not row-major, the GPU has no wgmma, TF32 would lose digits, or n is too large for a grid.
    """
    import cupy

    require_hopper(name, device)
    config = config or config_of(name)
    require(
        config.width in WIDTHS,
        f"a tile has {config.width} columns, but must have {', '.join(map(str, WIDTHS))}",
    )
    operands = problem.device()
    require_rows(name, operands)
    dtype = family.dtype_of(operands.b)
    if dtype == "tf32":
        require_tf32(name, operands)
    panels = ceil(problem.n / config.width)
    require(
        panels <= MOST_PANELS,
        f"{name} has a row of blocks for each panel of C, but n={problem.n} makes {panels} of them and a grid "
        f"has at most {MOST_PANELS}: use windows",
    )
    (a, work), prepare_ms = timed(lambda: prepared(operands.a, dtype, config.chunk))
    dense = lines(operands, device, by_rows=True)
    kind, size = DTYPES[dtype]
    m, width = problem.m, dense.c.shape[1]
    sums, before, after = None, [], []
    if dtype == "tf32":
        pointers = 0, dense.c.data.ptr
        before = tasks.of_cut(SOURCE, f"clear_cut<{ROWS}>", work.cut, pointers, dense.c, m, device)
    elif len(work.cut):
        sums = cupy.zeros((len(work.cut) * ROWS, width), cupy.float32)
        pointers = sums.data.ptr, dense.c.data.ptr
        after = tasks.of_cut(SOURCE, f"round_cut<{kind}, {ROWS}>", work.cut, pointers, dense.c, m, device)
    val = a.val if a.columns else cupy.zeros((ROWS, PAD), a.val.dtype)
    arguments = (
        tensor_map(val, (ROWS, LINE // size), LINE),
        a.col_idx.data.ptr,
        work.table.data.ptr,
        dense.b.data.ptr,
        np.int64(dense.b.shape[1] * size),
        dense.c.data.ptr,
        tasks.pointer(sums),
        np.int32(m),
        np.int32(width),
    )
    job, need = (SOURCE, entry(dtype, config.width)), A_BYTES + config.width * LINE  # a step of A and of B
    held, keep = a.nbytes + work.nbytes + (0 if sums is None else sums.nbytes), (a, val, work, sums)
    how = device, ((work.count, panels), 128), arguments, need, prepare_ms, held, keep
    return dense.bound(name, operands, job, *how, around=(before, after))


def prepared(a: Csr, dtype: str, chunk: int) -> tuple[wcsr.Wcsr, tasks.Tasks]:
    """(windows of 64 rows, their tasks), on the side where A lives."""
    stored = "float32" if dtype == "tf32" else dtype
    made = wcsr.from_csr(a, window=ROWS, pad=PAD, dtype=stored)
    return made, tasks.tasks(made.row_ptr, chunk)


# ---- what both kernels for windows ask of a problem


def require_rows(name: str, operands) -> None:
    """Raise ValueError unless A is CSR, and B and C row-major."""
    require(
        isinstance(operands.a, Csr),
        f"{name} makes windows of a CSR matrix, but A is {type(operands.a).__name__}: make the problem with "
        'problem_from_csr(..., format="csr")',
    )
    for which, x in (("B", operands.b), ("C", operands.c)):
        require(
            array_of(x).flags.c_contiguous,
            f"{name} gathers rows of a row-major B for a row-major C, but {which} is column-major: make the "
            'problem with layout="row"',
        )


def require_tf32(name: str, operands) -> None:
    """Raise ValueError unless TF32 holds every value of A and B."""
    for x in (operands.a.val, *([] if isinstance(operands.b, Slot) else [operands.b])):
        require(
            planning.holds_tf32(x),
            f'{name} would lose digits of its operands: make the problem with dtype="tf32", or use windows_exact',
        )
