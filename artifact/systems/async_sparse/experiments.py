"""The chapter's experiments: measured on the GPU that is here, or read from records; None where there is none.

Those on real matrices have rows of "cusparse_csr", the fastest of cuSPARSE's algorithms for CSR. TF32 and float32 are
experiments apart: values differ (TF32's hold 11 bits, so that no contender rounds an operand), the limit of the error
does, and nothing here divides a time of one by a time of the other.

Beside the records lie traces/timeline.csv, what warpgroups of the kernels that keep clocks did (`kernels.async_sparse.
published`), and traces/formats.csv, what the formats cost before the first multiplication, a row for each real matrix:

    matrix, m, k, nnz
    bcsr_fill, wcsr_fill            non-zeros over stored values, as it comes: blocks of 64 x 64, windows of 64
    bcsr_fill_rcm, wcsr_fill_rcm    the same after reverse Cuthill-McKee, as the source has its matrices
    rcm_ms                          SciPy's reordering on the host
    bcsr_ms, wcsr_ms                conversion from CSR on the GPU, of the reordered matrix, in BF16
    bcsr_bytes, wcsr_bytes          what it leaves in the GPU's memory
"""

import importlib.util
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.book.study import Study, given, has
from artifact.drawing import compiled
from artifact.measure import matrices, records
from artifact.measure import run as harness
from artifact.measure.run import Run
from artifact.systems.async_sparse.contenders import (
    AUTO_FP32,
    AUTO_HALF,
    AUTO_TF32,
    BELL,
    BLOCK,
    BSR,
    CSR,
    CSR_ALGORITHMS,
    DENSE,
    EXACT,
    KEPT,
    LADDER,
    PARTS,
    SIZES,
    SYSTEM,
    TILES,
    TORCH,
    TRIED,
    TRITON,
    TUNED,
    UNION,
    UNION_HALF,
    WCSR,
    WINDOWS,
    N,
)
from kernels import async_sparse as kernels
from kernels.async_sparse import operands, published, wcsr, windows
from kernels.contract import PreparedKernel, Problem, timed
from kernels.formats import bcsr, csr, half
from kernels.formats import wcsr as wcsr_format

LAYER = (KEPT, "auto", TORCH, DENSE, TRITON)
#: Sweep of the system's kernels -> contenders; those that a GPU or an installation does not offer are left out.
SWEEPS = {
    "ladder": (*LADDER, TORCH, DENSE, TRITON, TUNED),
    "gate_proj": LAYER,
    "shapes": LAYER,
    "tried": ("unit_ring", *TRIED),
    "blocks": ("auto", TRITON, TUNED, BSR),
    "ragged": ("auto", DENSE),
    "half": ("auto", DENSE),
}


@dataclass(frozen=True)
class Real:
    """An experiment on the real matrices of the system's list that are in the user's folder."""

    contenders: tuple[str, ...]
    sizes: tuple[int, ...]  #: N
    every_nth: int = 1  #: of the matrices, where all would take too long
    order: str = "rcm"  #: of rows and columns, of `operands.REORDERS`
    how: Mapping[str, Any] = field(default_factory=dict)  #: arguments of `problem_from_csr`


TF32, FP32, HALF = ({"format": "csr", "dtype": dtype} for dtype in ("tf32", "float32", "bfloat16"))
WIDE = (256, 512, 1024)
#: cuSPARSE's first algorithm for CSR is in "spmm", where it is never the fastest and takes most of the time. Of them
#: the third alone is right in bfloat16: the others add heavy rows up in it.
REAL = {
    "ablation": Real((*LADDER, BELL, BSR, *CSR_ALGORITHMS, TRITON), (N,)),
    "tile_n": Real(tuple(TILES), (N,), every_nth=3),
    "spmm_tf32": Real((WCSR, WINDOWS, AUTO_TF32, KEPT, BELL, BSR, TRITON, *CSR_ALGORITHMS[1:]), WIDE, how=TF32),
    "spmm": Real((UNION, EXACT, AUTO_FP32, *CSR_ALGORITHMS), WIDE, order="", how=FP32),
    "spmm_rcm": Real((AUTO_FP32, *CSR_ALGORITHMS), WIDE[-1:], every_nth=3, how=FP32),
    "spmm_half": Real((WCSR, UNION_HALF, AUTO_HALF, CSR_ALGORITHMS[2]), WIDE, every_nth=2, order="", how=HALF),
    "wcsr_parts": Real(PARTS, (512,), every_nth=5, how=TF32),
}
KICK_MATRICES = 3
#: What takes a matrix in blocks.
IN_BLOCKS = {*LADDER, *TILES, BELL, BSR, TRITON}
#: Contenders that a run binds by name and that are no variants.
BY_NAME = {*TILES, *TRIED, *wcsr.TRIALS, *windows.TRIALS}
LIBRARIES = ("cusparse", "cublas", TRITON)  #: how their contenders' names begin
#: Of a matrix in BCSR; with more, one pass over an experiment takes longer than all the others together.
MOST_BYTES = 2**32
#: Share of the GPU's memory that a padded copy of a matrix may take.
MOST_PADDED = 0.25
#: Of a float32 matrix for PyTorch's Triton kernel, which then sums in float64: with more, it takes most of the time.
MOST_SUMMED = 2**15
Bind = Callable[[Problem], PreparedKernel]


def get(run: Run, name: str) -> pd.DataFrame | None:
    """Measure or read an experiment of `SWEEPS` or `REAL`.

    None where it was not recorded, or no kernel of it runs on the GPU.
    """
    if name in SWEEPS:
        here = offered(run, name, SWEEPS[name])
        problems = [partial(kernels.problem, **shape, seed=run.seed) for shape in kernels.sweeps(run.preset)[name]]
        return run.measure(name, problems, here) if set(here) & set(LADDER) else None
    if where := _matrices(run):
        _measure_real(run, name, REAL[name], where)
    return with_csr(Study(run).read(name))


def _matrices(run: Run) -> Path | None:
    return matrices.folder() if run.mode == "measure" else None


def offered(run: Run, experiment: str, names: Iterable[str]) -> dict[str, Any]:
    """Return those of the contenders that are here, or in the record, in their order."""
    if run.mode != "measure":
        df = Study(run).read(experiment)
        return {name: None for name in names if has(df, name)}
    every = run.variants() | run.variants([n for n in names if n in BY_NAME]) | run.baselines()
    missing = () if importlib.util.find_spec("torch") else (TRITON, TUNED)
    return {n: every[n] for n in names if n in every and n not in missing and _runs(run, n)}


def _runs(run: Run, name: str) -> bool:
    kernel = kernels.VARIANTS.get(name) or kernels.VARIANTS.get(name.split("_")[0])  # of a trial
    # A library is taken to run; most kernels need Hopper's wgmma.
    hopper = str(run.machine.get("compute_capability")) == "9.0"
    return kernel is None or hopper or set(kernel.targets) != {compiled.HOPPER}


# ---------------------------------------------------------------- real matrices


@given
def with_csr(df: pd.DataFrame) -> pd.DataFrame:
    """Return a record with the rows of "cusparse_csr", where an algorithm for CSR was measured."""
    return records.best_of(df, "cusparse_alg", CSR) if set(CSR_ALGORITHMS) & set(df["variant"]) else df


def present(where: Path, most: int | None = None) -> pd.Series:
    """List the matrices that a folder has, of the first so many of the system's list."""
    return matrices.present(matrices.listed(registry.FOLDER / SYSTEM / registry.MATRICES)[:most], where)["name"]


def _measure_real(run: Run, experiment: str, of: Real, where: Path) -> None:
    path, every = run.folder / f"{experiment}.csv", offered(run, experiment, of.contenders)
    if all(name.startswith(LIBRARIES) for name in every):
        return
    few = KICK_MATRICES if run.preset == "kick" else None
    sizes = WIDE[:1] if few and of.how else of.sizes
    for name in present(where)[:: of.every_nth][:few]:
        if _is_there(path, name, sizes, every):
            continue  # without reading and reordering it once more
        a = matrix(name, where, of.order)
        left = too_large(a, every, of.how.get("dtype", "bfloat16"), run.machine.get("memory_bytes", np.inf))
        if not of.how and set(left) - {BELL, TRITON}:
            continue  # the matrix itself is in blocks
        problems = [operands.problem_from_csr(a, n, run.seed, name, reorder="", **of.how) for n in sizes]
        for contender, why in left.items():
            harness.leave_out(path, contender, problems, why)
        here = {n: prepare for n, prepare in every.items() if n not in left}
        if of.how and KEPT in here:
            here[KEPT] = partial(in_source_layout, here[KEPT])
        # Ours must not fail: then the measurement ends, as everywhere.
        harness.measure_willing(run, experiment, problems, here, [n for n in here if not n.startswith(LIBRARIES)])


def _is_there(path: Path, label: str, sizes: Iterable[int], names: Iterable[str]) -> bool:
    """Tell whether a record has a matrix at these N with all contenders that were not left out there."""
    if not path.is_file():
        return False
    df, absent = records.read(path).query("label == @label"), records.read_absent(path.parent).get(path.stem, {})
    have = {*zip(df["variant"], df["n"], strict=True)} | {(v, n) for v, of, _, n, *_ in absent if of == label}
    return have >= {*product(names, sizes)}


def too_large(a: csr.Csr, names: Iterable[str], dtype: str, memory: float) -> dict[str, str]:
    """Return those of the contenders for which blocks of a matrix are too many -> why. memory: of the GPU, in bytes."""
    blocked = [name for name in names if name in IN_BLOCKS]
    rows = bcsr.blocks_by_row(a, BLOCK) if blocked else np.zeros(1, int)
    blocks, size = int(rows.sum()), SIZES[dtype] * BLOCK**2
    if blocks * size > MOST_BYTES:
        return dict.fromkeys(blocked, f"blocks take {blocks * size} bytes")
    padded = len(rows) * int(rows.max(initial=0)) * size
    found = {
        BELL: f"its padding takes {padded} bytes" * (padded > MOST_PADDED * memory),
        TRITON: f"it sums {blocks} blocks in float64, which takes too long"
        * (SIZES[dtype] == 4 and blocks > MOST_SUMMED),
    }
    return {n: found[n] for n in blocked if found.get(n)}


def in_source_layout(prepare: Bind, problem: Problem) -> PreparedKernel:
    """Bind a contender with B column-major, as the source's kernel for blocks reads it.

    A copy, which is part of what preparing costs.
    """
    given = problem.device()
    b, ms = timed(lambda: half.array_module(given.b).asfortranarray(given.b))
    found = prepare(replace(problem, make_device=lambda: replace(given, b=b), _device=None))
    found.prepare_ms += ms
    found.prepare_bytes += b.nbytes
    return found


@cache
def matrix(name: str, where: Path, order: str = "rcm") -> csr.Csr:
    """Return a real matrix reordered as in the source, or not (""), with empty columns up to a whole block.

    B then has lines that the copy engine takes, as the source's has.

    Otherwise a launch would begin with a copy of B, which whoever allocates B for these kernels spares.
    """
    a = operands.reordered(matrices.load(name, where), order)[0]
    return replace(a, k=-(-a.k // BLOCK) * BLOCK)


# ---------------------------------------------------------------- beside the records


def trace(run: Run) -> pd.DataFrame | None:
    """Write the timeline at the point of the ladder where `run` measures and the GPU has the instructions; read it."""
    if run.mode == "measure" and _runs(run, KEPT):
        problem = kernels.problem(**kernels.sweeps(run.preset)["ladder"][0], seed=run.seed)
        _write(run, "timeline", published.timeline(problem, run.device))
        problem.release()
    return Study(run).table("traces/timeline")


def conversions(run: Run) -> pd.DataFrame | None:
    """Measure what the formats cost where there are a GPU and matrices, and read the table."""
    if (where := _matrices(run)) and Study(run).table("traces/formats") is None:
        _write(run, "formats", filter(None, (_conversion(name, where) for name in present(where))))
    return Study(run).table("traces/formats")


def _write(run: Run, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    text = pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")
    records.write_text(run.folder / "traces" / f"{name}.csv", text)


def _conversion(name: str, where: Path, dtype: str = "bfloat16") -> dict[str, Any] | None:
    given = operands.with_values(matrices.load(name, where), 0, dtype)
    if bcsr.count_blocks(given) * BLOCK**2 * SIZES[dtype] > MOST_BYTES:
        return None
    a, rcm_ms = operands.reordered(given, "rcm")
    device = csr.to_device(a)
    blocks, bcsr_ms = timed(lambda: bcsr.from_csr(device, dtype=dtype))
    windowed, wcsr_ms = timed(lambda: wcsr_format.from_csr(device, dtype=dtype))
    (bcsr_fill, wcsr_fill), (bcsr_rcm, wcsr_rcm) = map(fills, (given, a))
    return {
        **{"matrix": name, "m": a.m, "k": a.k, "nnz": a.nnz},
        **{"bcsr_fill": bcsr_fill, "wcsr_fill": wcsr_fill, "bcsr_fill_rcm": bcsr_rcm, "wcsr_fill_rcm": wcsr_rcm},
        **{"rcm_ms": rcm_ms, "bcsr_ms": bcsr_ms, "wcsr_ms": wcsr_ms},
        **{"bcsr_bytes": blocks.nbytes, "wcsr_bytes": windowed.nbytes},
    }


def fills(a: csr.Csr) -> tuple[float, float]:
    """Return the fill ratios of A in blocks of 64 x 64, counted without storing any, and in windows of 64 rows."""
    return a.nnz / max(1, bcsr.count_blocks(a) * BLOCK**2), wcsr_format.from_csr(a, dtype="bfloat16").fill_ratio
