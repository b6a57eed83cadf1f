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

First its contenders in order, and how figures call and draw them; their speedups in records; and what follows from the
source's own numbers: ratios, shares, padding, bytes. `table1`, `table2`, `table3` and `text` are its published tables,
as `Study.published` reads them.
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
from artifact.book.study import Study, given, has, where
from artifact.drawing import compiled, style
from artifact.measure import bench, external, matrices, records, run as harness
from artifact.measure.run import Run
from artifact.verdicts import sets
from kernels import async_sparse as kernels
from kernels.async_sparse import operands, published, windows
from kernels.contract import PreparedKernel, Problem, timed
from kernels.formats import bcsr, csr, half, wcsr as wcsr_format

SYSTEM = "async_sparse"
N = 1024  #: columns of B in the ablation and in the sweep over tiles
BLOCK = 64  #: rows and columns of a block
STAGES, CONSUMERS, WARPGROUP = 3, 2, 128  #: of a block; warpgroups that multiply, side by side along N; threads of one
REGISTERS = (24, 240, 240)  #: a thread, by setmaxnreg, of the producer and of the consumers
#: Of an H100's SM: registers, bytes of shared memory, and of these what a block takes besides.
SM_REGISTERS, SM_SHARED, RESERVED = 65536, 233472, 1024
#: Bytes of A and of B in a stage, in BF16, with the widest WGMMA_N.
STAGE = {"A": BLOCK * BLOCK * 2, "B": BLOCK * CONSUMERS * 256 * 2}
#: WGMMA_N by the source's rule: the widest whose tile divides N.
RULE = max(width for width in range(8, 257, 8) if N % (CONSUMERS * width) == 0)
SIZES = {"bfloat16": 2, "tf32": 4, "float32": 4}  #: bytes of a value
ROUNDED = 0.005  #: of the last digit of a number in Table I

# ---------------------------------------------------------------- contenders

STEPS = ("opt0", "opt1", "opt2", "opt3", "opt4", "opt5")  #: of the source, each on the one before
BRANCHES = ("opt6", "opt6_atomic", "opt6_stealing", "opt7")  #: of the source, each on opt5
OURS = ("unit_ring", "auto")
LADDER = (*STEPS, *BRANCHES, *OURS)
#: Configurations of `kernels.async_sparse.family.TRIALS` that are no variants.
TRIED = ("unit_ring_half", "unit_ring_192", "unit_ring_boxes", "unit_ring_groups", "unit_ring_in_order")
KEPT = "opt5"  #: what the source goes on with
BELL, TRITON, TUNED, BSR = "cusparse_bell", "triton_bsr", "triton_bsr_tuned", "cusparse_bsr"
DENSE, TORCH = "cublas_dense", "cublas_dense_default"
CSR = "cusparse_csr"  #: the fastest of cuSPARSE's algorithms for CSR at each point
CSR_ALGORITHMS = ("cusparse_alg1", "cusparse_alg2", "cusparse_alg3")
TILES = {f"opt5_n{width}": width for width in range(8, 257, 8)}  #: contender of the sweep over tiles -> WGMMA_N

# ---- of matrices in CSR: windows, and rows
WCSR, WHOLE = "wcsr", "wcsr_whole"  #: the source's kernel for windows; no window cut
WINDOWS, EXACT = "windows", "windows_exact"  #: ours: TF32, and 3xTF32 for float32
UNION = "union_rows"  #: ours: CUDA cores in exact float32, groups of rows over the union of their columns
AUTO_TF32, AUTO_FP32 = "auto_tf32", "auto_fp32"  #: ours: the fastest of each accuracy
WINDOWS_HALF, UNION_HALF, AUTO_HALF = "windows_half", "union_half", "auto_half"  #: the same with B and C in 16 bits
VECTOR_ALGORITHMS = ("cusparse_spmv_alg1", "cusparse_spmv_alg2")  #: of cuSPARSE, for a single column
#: The parts of both kernels for windows as variants and trials, in the order in which a page tells of them.
PARTS = (
    *(WCSR, WHOLE, "wcsr_c256", "wcsr_c1024", "wcsr_c2048", "wcsr_n64", "wcsr_n256"),
    *("windows_64", "windows_32", WINDOWS, "windows_8", "windows_16_whole", "windows_16_in_order", "windows_16_narrow"),
)
#: That take CSR.
ROWS = (WCSR, WHOLE, WINDOWS, EXACT, UNION, WINDOWS_HALF, UNION_HALF, AUTO_FP32, AUTO_TF32, AUTO_HALF)

#: Of this system alone: the shared looks (`style.NAMES`) have no markers left for so many libraries.
NAMES = {
    "opt0": "CUDA cores",
    "opt1": "WGMMA",
    "opt2": "TMA",
    "opt3": "warp specialisation",
    "opt4": "one arrival",
    "opt5": "no zeroing",
    "opt6": "persistent",
    "opt6_atomic": "atomic counter",
    "opt6_stealing": "work stealing",
    "opt7": "multicast",
    "unit_ring": "ring of units",
    "auto": "auto",
    BELL: "cuSPARSE Blocked-ELL",
    BSR: "cuSPARSE BSR",
    CSR: "cuSPARSE CSR",
    TRITON: "Triton bsr_dense_mm",
    TUNED: "Triton tuned",
    DENSE: "dense cuBLASLt",
    TORCH: "dense cuBLAS",
    WCSR: "WCSR",
    WHOLE: "WCSR, windows whole",
    WINDOWS: "windows of 16, TF32",
    EXACT: "windows of 16, 3×TF32",
    UNION: "rows over their union",
    AUTO_FP32: "auto, FP32",
    AUTO_TF32: "auto, TF32",
    WINDOWS_HALF: "windows, 16 bits",
    UNION_HALF: "rows over their union, 16 bits",
    AUTO_HALF: "auto, 16 bits",
    "wcsr_c256": "WCSR, tasks of 256",
    "wcsr_c1024": "WCSR, tasks of 1024",
    "wcsr_c2048": "WCSR, tasks of 2048",
    "wcsr_n64": "WCSR, tiles of 64",
    "wcsr_n256": "WCSR, tiles of 256",
    "windows_8": "windows of 8",
    "windows_32": "windows of 32",
    "windows_64": "windows of 64",
    "windows_16_whole": "windows of 16, none cut",
    "windows_16_in_order": "windows of 16, as they lie",
    "windows_16_narrow": "windows of 16, narrow tiles",
}
#: Whom figures show, for their looks: what the source keeps first and our best last.
ORDER = (KEPT, *dict.fromkeys((*LADDER[:-1], *PARTS, *ROWS)), OURS[-1])


def name(variant: str) -> str:
    """Call a contender: of the source's steps "opt3, warp specialisation", others as everywhere."""
    said = NAMES.get(variant, style.name(variant))
    return f"{variant}, {said}" if variant.startswith("opt") else said


def told(variant: str) -> str:
    """Call a contender inside a sentence: "opt3 (warp specialisation)"."""
    return f"{variant} ({NAMES[variant]})" if variant.startswith("opt") else name(variant)


def called(variant: str) -> str:
    """Call a contender where matrices are in CSR: the source's kernel for blocks is its BCSR there."""
    return f"BCSR ({KEPT})" if variant == KEPT else name(variant)


#: The kernel that one builds on: a step on the one before, a branch and ours on the one that the source keeps, our last
#: rung on our first.
BEFORE = dict(zip(STEPS[1:], STEPS, strict=False)) | dict.fromkeys((*BRANCHES, OURS[0]), KEPT) | {OURS[1]: OURS[0]}
#: What figures call contenders.
CALLED = {variant: name(variant) for variant in NAMES}


# ---------------------------------------------------------------- of records


@given
def speedups(df: pd.DataFrame, variants: Iterable[str], baseline: str) -> pd.DataFrame:
    """Return variant, POINT and the speedup over a baseline, of those that were measured beside it, in their order."""
    at = list(records.POINT)
    return (
        pd.concat([df.head(0), *(where(df, variant=variant) for variant in variants)])
        .merge(where(df, variant=baseline)[[*at, "median_us"]], on=at, suffixes=("", "_base"))
        .assign(speedup=lambda both: both["median_us_base"] / both["median_us"])[["variant", *at, "speedup"]]
    )


def sized(df: pd.DataFrame, variants: Iterable[str], baseline: str) -> pd.DataFrame:
    """Return `speedups` with the non-zeros of each matrix, and their class, as claims over a set have them."""
    found = speedups(df, variants, baseline).merge(df[["label", "nnz"]].drop_duplicates("label"), on="label")
    size = pd.cut(found["nnz"], [0, *sets.CLASSES.values()], right=False, labels=[*sets.CLASSES])
    return found.assign(size=size.cat.remove_unused_categories())


@given
def means(df: pd.DataFrame, variants: Iterable[str], baseline: str | None) -> pd.Series:
    """Return the geometric-mean speedup over a baseline of each contender that was measured beside it."""
    return speedups(df, variants, baseline).groupby("variant", sort=False)["speedup"].agg(records.geomean)


def over(df: pd.DataFrame | None, variant: str, baseline: str | None) -> float:
    """Return the geometric-mean speedup of a contender over another; NaN where the two were not measured."""
    known = means(df, [variant], baseline)
    return np.nan if known is None else known.get(variant, np.nan)


def filled(df: pd.DataFrame) -> pd.Series:
    """Return the share of A's elements that are non-zeros, of each row of a record."""
    return df["nnz"] / (df["m"].astype(float) * df["k"])


def until_even(saved: pd.Series, cost: pd.Series) -> pd.Series:
    """Return the multiplications after which a cost has been paid, of which each saves so much.

    Infinite where it saves nothing, 0 where there is no cost.
    """
    return (cost.clip(lower=0) / saved.where(saved > 0)).fillna(np.inf)


def break_even(speedup: pd.Series) -> float:
    """Return the density at which a speedup by density crosses 1, between two points on log axes.

    NaN where it is on one side of it throughout.
    """
    s = speedup.sort_index()
    x, y = np.log(s.index), np.log(s.to_numpy())
    crossed = np.flatnonzero((y[:-1] > 0) & (y[1:] <= 0))[:1]  # before it, from sparse to dense
    at = x[crossed] + y[crossed] / (y[crossed] - y[crossed + 1]) * (x[crossed + 1] - x[crossed])
    return float(np.exp(at).item()) if len(at) else np.nan


# ---------------------------------------------------------------- of the source's tables


def value(df: pd.DataFrame, quantity: str, **at: Any) -> float:
    """Return the one number of a quantity."""
    return float(where(df, quantity=quantity, **at)["low"].item())


def peers(gpu: str) -> pd.DataFrame:
    """Return how many times as fast as other people's kernels WCSR is, at each matrix and N of their run on a GPU.

    By library; nnz, error: the largest of any element. On a GPU that has no such run, those of another.
    """
    df = external.nearest(SYSTEM, "peers", gpu).numbers()
    ours, at = where(df, library=WCSR), ["label", "n"]
    return (
        df.drop(ours.index)
        .merge(ours[[*at, "cold_us"]], on=at, suffixes=("", "_ours"))
        .assign(speedup=lambda both: both["cold_us"] / both["cold_us_ours"])
    )


def recomputed(table1: pd.DataFrame) -> pd.DataFrame:
    """Return the speedups of WCSR in Table I beside those that its rates give.

    Kernel, n, density, stated, ratio, the ends of what the rounded rates allow, and whether it agrees with them.
    """
    at = ["kernel", "n", "density"]
    rate, over = (where(table1, quantity=q).set_index(at)["low"] for q in ("tflops", "wcsr_speedup"))
    theirs, ours = rate.reindex(over.index), rate["WCSR"].reindex(over.index.droplevel("kernel")).to_numpy()
    least, most = (ours - ROUNDED) / (theirs + ROUNDED), (ours + ROUNDED) / (theirs - ROUNDED)
    return (
        pd.DataFrame({"stated": over, "ratio": ours / theirs, "least": least, "most": most})
        .assign(agrees=over.between(least - ROUNDED, most + ROUNDED))
        .reset_index()
    )


def over_bell(table2: pd.DataFrame) -> pd.Series:
    """Return the speedups over Blocked-ELL that Table II states, by contender."""
    return where(table2, quantity="speedup_bell").set_index("variant")["low"]


def implied(table2: pd.DataFrame) -> pd.Series:
    """Return the TFLOP/s of cuSPARSE that each speedup of Table II is over.

    Over one set of matrices it is one number: the ratio of geometric means is the geometric mean of ratios.
    """
    return (where(table2, quantity="tflops").set_index("variant")["low"].drop(BELL) / over_bell(table2)).rename(
        "implied"
    )


def shares(speedups: pd.Series) -> pd.DataFrame:
    """Return what each step of the ladder, to opt4, is of the whole.

    By difference of speedups, as the source counts, and by factor, whose logarithms add up. speedups: by contender.
    """
    s = speedups.reindex(STEPS[:-1]).dropna()
    steps = pd.DataFrame({"gain": s.diff(), "factor": s / s.shift()}).iloc[1:]
    return steps.assign(
        **{
            "by difference": steps["gain"] / steps["gain"].sum(),
            "by factor": np.log(steps["factor"]) / np.log(s.iloc[-1] / s.iloc[0]),
        }
    )


# ---------------------------------------------------------------- of a kernel


def padded(width: Any) -> Any:
    """Return the columns that are computed where a block takes 2 · width of N; width: a number, or several."""
    return -(-N // (CONSUMERS * width)) * CONSUMERS * width


def side(label: pd.Series) -> pd.Series:
    """Return the rows of a block from the label of its problem: "blocks of 32, linear"; 64 where it says nothing."""
    return label.str.extract(r"blocks of (\d+)", expand=False).fillna(str(BLOCK)).astype(int)


# ---------------------------------------------------------------- who is in which experiment

LAYER = (KEPT, "auto", TORCH, DENSE, TRITON)
WARM = "_warm"  #: behind the name of an experiment that is measured as the source does (IV), `as_the_source`
#: Sweep of the system's kernels -> contenders; those that a GPU or an installation does not offer are left out.
SWEEPS = {
    "ladder": (*LADDER, TORCH, DENSE, TRITON, TUNED),
    "gate_proj": LAYER,
    f"gate_proj{WARM}": LAYER,
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
    every_nth: int = 1  #: of the matrices that are not the source's, where all would take too long
    order: str = "rcm"  #: of rows and columns, of `operands.REORDERS`
    how: Mapping[str, Any] = field(default_factory=dict)  #: arguments of `problem_from_csr`


TF32, FP32, HALF = ({"format": "csr", "dtype": dtype} for dtype in ("tf32", "float32", "bfloat16"))
WIDE, FEW = (256, 512, 1024), (2, 4, 8, 16, 32, 64, 128)
ODD = tuple(
    n for odd in (3, 7, 41, 349, 1001) for n in (odd, -(-odd // 4) * 4)
)  #: each beside what it is rounded up to
#: cuSPARSE's first algorithm for CSR is in "spmm", where it is never the fastest and takes most of the time. Of them
#: the third alone is right in bfloat16: the others add heavy rows up in it.
REAL = {
    "ablation": Real((*LADDER, BELL, BSR, *CSR_ALGORITHMS, TRITON), (N,)),
    "tile_n": Real(tuple(TILES), (N,), every_nth=3),
    "spmm_tf32": Real((WCSR, WINDOWS, AUTO_TF32, KEPT, BELL, BSR, TRITON, *CSR_ALGORITHMS[1:]), WIDE, how=TF32),
    "spmm": Real((UNION, EXACT, AUTO_FP32, *CSR_ALGORITHMS), WIDE, order="", how=FP32),
    "spmv": Real((AUTO_FP32, *VECTOR_ALGORITHMS, *CSR_ALGORITHMS[1:]), (1,), order="", how=FP32),
    "spmm_few": Real((AUTO_FP32, *CSR_ALGORITHMS), FEW, order="", how=FP32),
    "spmm_odd": Real((AUTO_FP32, *CSR_ALGORITHMS[1:]), ODD, every_nth=7, order="", how=FP32),
    "spmm_rcm": Real((AUTO_FP32, *CSR_ALGORITHMS), WIDE[-1:], every_nth=3, how=FP32),
    "spmm_half": Real(
        (WCSR, WINDOWS_HALF, UNION_HALF, AUTO_HALF, CSR_ALGORITHMS[2]),
        (64, 128, *WIDE),
        every_nth=2,
        order="",
        how=HALF,
    ),
    "wcsr_parts": Real(PARTS, (512,), every_nth=5, how=TF32),
}
REAL |= {f"{name}{WARM}": REAL[name] for name in ("ablation", "spmm_tf32")}
KICK_MATRICES = 3
#: What takes a matrix in blocks.
IN_BLOCKS = {*LADDER, *TILES, BELL, BSR, TRITON}
#: Contenders that a run binds by name and that are no variants.
BY_NAME = {*TILES, *TRIED, *windows.TRIALS}
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
        shapes = kernels.sweeps(run.preset)[name.removesuffix(WARM)]
        problems = [partial(kernels.problem, **shape, seed=run.seed) for shape in shapes]
        return run.measure(name, problems, here, timer(name)) if set(here) & set(LADDER) else None
    if folder := _matrices(run):
        _measure_real(run, name, REAL[name], folder)
    return with_csr(Study(run).read(name))


def as_the_source(contenders: Mapping[str, Any], device, *, budget_s: float, **more: Any) -> dict[str, bench.Timing]:
    """Time ten launches that do not count and the mean of a hundred, nothing flushed; arguments of `bench.time_calls`.

    budget_s: an eighth of what a contender may take: a hundred launches are long.
    """
    return bench.time_calls(contenders, device, warmup=10, calls=100, samples=1, budget_s=8 * budget_s, **more)


def timer(experiment: str) -> harness.Timer:
    """Return what times an experiment: this book's timer, or loops as the source has them."""
    return as_the_source if experiment.endswith(WARM) else bench.time


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
    return (
        records.best_of(df, ("cusparse_alg", "cusparse_spmv"), CSR) if set(CSR_ALGORITHMS) & set(df["variant"]) else df
    )


def present(folder: Path, most: int | None = None) -> pd.Series:
    """List the matrices that a folder has, of the first so many of the system's list."""
    return matrices.present(matrices.listed(registry.FOLDER / SYSTEM / registry.MATRICES)[:most], folder)["name"]


def chosen(names: Iterable[str], every_nth: int) -> list[str]:
    """Return the matrices that the source measured, and of the others every so many."""
    theirs = sets.source(SYSTEM)
    return [name for i, name in enumerate(names) if name in theirs or i % every_nth == 0]


def _measure_real(run: Run, experiment: str, of: Real, folder: Path) -> None:
    path, every = run.folder / f"{experiment}.csv", offered(run, experiment, of.contenders)
    if all(name.startswith(LIBRARIES) for name in every):
        return
    few = KICK_MATRICES if run.preset == "kick" else None
    sizes = WIDE[:1] if few and of.how else of.sizes
    for name in chosen(present(folder), of.every_nth)[:few]:
        if _is_there(path, name, sizes, every):
            continue  # without reading and reordering it once more
        a = matrix(name, folder, of.order)
        left = too_large(a, every, of.how.get("dtype", "bfloat16"), run.machine.get("memory_bytes", np.inf))
        if not of.how and set(left) - {BELL, TRITON}:
            at = {n: (name, a.m, n, a.k, a.nnz / (float(a.m) * a.k)) for n in sizes}
            for contender, n in product(every, sizes):  # the matrix itself is in blocks
                records.leave_out(path, (contender, *at[n]), next(iter(left.values())))
            continue
        problems = [operands.problem_from_csr(a, n, run.seed, name, reorder="", **of.how) for n in sizes]
        for contender, why in left.items():
            harness.leave_out(path, contender, problems, why)
        here = {n: prepare for n, prepare in every.items() if n not in left}
        if of.how and KEPT in here:
            here[KEPT] = partial(in_source_layout, here[KEPT])
        # Ours must not fail: then the measurement ends, as everywhere.
        ours = [n for n in here if not n.startswith(LIBRARIES)]
        harness.measure_willing(run, experiment, problems, here, ours, timer(experiment))


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
def matrix(name: str, folder: Path, order: str = "rcm") -> csr.Csr:
    """Return a real matrix reordered as in the source, or not (""), with empty columns up to a whole block.

    B then has lines that the copy engine takes, as the source's has.

    Otherwise a launch would begin with a copy of B, which whoever allocates B for these kernels spares.
    """
    a = operands.reordered(matrices.load(name, folder), order)[0]
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
    if (folder := _matrices(run)) and Study(run).table("traces/formats") is None:
        _write(run, "formats", filter(None, (_conversion(name, folder) for name in present(folder))))
    return Study(run).table("traces/formats")


def _write(run: Run, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
    records.write_text(
        run.folder / "traces" / f"{name}.csv", pd.DataFrame(rows).to_csv(index=False, lineterminator="\n")
    )


def _conversion(name: str, folder: Path, dtype: str = "bfloat16") -> dict[str, Any] | None:
    given = operands.with_values(matrices.load(name, folder), 0, dtype)
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
