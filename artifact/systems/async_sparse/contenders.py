"""The system's contenders in order, and how figures call and draw them; their speedups in records.

And what follows from the source's own numbers: ratios, shares, padding, bytes.

`table1`, `table2`, `table3` and `text` are its published tables, as `Study.published` reads them.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from artifact import paths
from artifact.book.study import given, where
from artifact.drawing import style
from artifact.measure import external, records

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
HALF = 0.005  #: of the last digit of a number in Table I

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
UNION_HALF, AUTO_HALF = "union_half", "auto_half"  #: the same with B and C in 16 bits
#: The parts of both kernels for windows as variants and trials, in the order in which a page tells of them.
PARTS = (
    *(WCSR, WHOLE, "wcsr_c256", "wcsr_c1024", "wcsr_c2048", "wcsr_n64", "wcsr_n256"),
    *("windows_64", "windows_32", WINDOWS, "windows_8", "windows_16_whole", "windows_16_in_order", "windows_16_narrow"),
)
#: That take CSR.
ROWS = (WCSR, WHOLE, WINDOWS, EXACT, UNION, UNION_HALF, AUTO_FP32, AUTO_TF32, AUTO_HALF)

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
    ours = pd.concat([df.head(0), *(where(df, variant=variant) for variant in variants)])
    both = ours.merge(where(df, variant=baseline)[[*at, "median_us"]], on=at, suffixes=("", "_base"))
    return both.assign(speedup=both["median_us_base"] / both["median_us"])[["variant", *at, "speedup"]]


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


def apart() -> pd.DataFrame:
    """Return what the code of others gave on real matrices here, apart from this harness: Voltrix."""
    return external.read(SYSTEM, "apart", paths.HOME).table()


def value(df: pd.DataFrame, quantity: str, **at: Any) -> float:
    """Return the one number of a quantity."""
    return float(where(df, quantity=quantity, **at)["low"].item())


def recomputed(table1: pd.DataFrame) -> pd.DataFrame:
    """Return the speedups of WCSR in Table I beside those that its rates give.

    Kernel, n, density, stated, ratio, the ends of what the rounded rates allow, and whether it agrees with them.
    """
    at = ["kernel", "n", "density"]
    rate, over = (where(table1, quantity=q).set_index(at)["low"] for q in ("tflops", "wcsr_speedup"))
    theirs, ours = rate.reindex(over.index), rate["WCSR"].reindex(over.index.droplevel("kernel")).to_numpy()
    least, most = (ours - HALF) / (theirs + HALF), (ours + HALF) / (theirs - HALF)
    return (
        pd.DataFrame({"stated": over, "ratio": ours / theirs, "least": least, "most": most})
        .assign(agrees=over.between(least - HALF, most + HALF))
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
