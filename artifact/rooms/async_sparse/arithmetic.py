"""Speedups of records, and what follows from the source's own numbers: ratios, shares, padding, bytes.

`table1`, `table2`, `table3` and `text` are its published tables, as `Study.published` reads them.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from artifact import paths
from artifact.book.study import given, where
from artifact.measure import others, records
from artifact.rooms.async_sparse.contenders import BELL, STEPS

ROOM = "async_sparse"
N = 1024  #: columns of B in the ablation and in the sweep over tiles
BLOCK = 64  #: rows and columns of a block
CONSUMERS = 2  #: warpgroups that multiply, side by side along N
STAGES = 3
REGISTERS = (24, 240, 240)  #: a thread, by setmaxnreg, of the producer and of the consumers
WARPGROUP = 128  #: threads
SM_REGISTERS, SM_SHARED = 65536, 233472  #: of an H100's SM: registers, bytes of shared memory
RESERVED = 1024  #: bytes of shared memory that a block takes besides
#: Bytes of A and of B in a stage, in BF16, with the widest WGMMA_N.
STAGE = {"A": BLOCK * BLOCK * 2, "B": BLOCK * CONSUMERS * 256 * 2}
#: WGMMA_N by the source's rule: the widest whose tile divides N.
RULE = max(width for width in range(8, 257, 8) if N % (CONSUMERS * width) == 0)
SIZES = {"bfloat16": 2, "tf32": 4, "float32": 4}  #: bytes of a value
HALF = 0.005  #: of the last digit of a number in Table I


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
    """Return the multiplications after which a cost has been paid, of which each saves so much; infinite where it saves
    nothing, 0 where there is no cost."""
    return (cost.clip(lower=0) / saved.where(saved > 0)).fillna(np.inf)


def break_even(speedup: pd.Series) -> float:
    """Return the density at which a speedup by density crosses 1, between two points on log axes; NaN where it is on
    one side of it throughout."""
    s = speedup.sort_index()
    x, y = np.log(s.index), np.log(s.to_numpy())
    crossed = np.flatnonzero((y[:-1] > 0) & (y[1:] <= 0))[:1]  # before it, from sparse to dense
    at = x[crossed] + y[crossed] / (y[crossed] - y[crossed + 1]) * (x[crossed + 1] - x[crossed])
    return float(np.exp(at).item()) if len(at) else np.nan


# ---------------------------------------------------------------- of the source's tables


def apart() -> pd.DataFrame:
    """Return what the code of others gave on real matrices here, apart from this harness: Voltrix."""
    return others.read(ROOM, "apart", paths.HOME).table()


def value(df: pd.DataFrame, quantity: str, **at: Any) -> float:
    """Return the one number of a quantity."""
    return float(where(df, quantity=quantity, **at)["low"].item())


def recomputed(table1: pd.DataFrame) -> pd.DataFrame:
    """Return the speedups of WCSR in Table I beside those that its rates give: kernel, n, density, stated, ratio, the
    ends of what the rounded rates allow, and whether it agrees with them."""
    at = ["kernel", "n", "density"]
    rate, over = (where(table1, quantity=q).set_index(at)["low"] for q in ("tflops", "wcsr_speedup"))
    theirs, ours = rate.reindex(over.index), rate["WCSR"].reindex(over.index.droplevel("kernel")).to_numpy()
    least, most = (ours - HALF) / (theirs + HALF), (ours + HALF) / (theirs - HALF)
    found = {"stated": over, "ratio": ours / theirs, "least": least, "most": most}
    return pd.DataFrame(found).assign(agrees=over.between(least - HALF, most + HALF)).reset_index()


def over_bell(table2: pd.DataFrame) -> pd.Series:
    """Return the speedups over Blocked-ELL that Table II states, by contender."""
    return where(table2, quantity="speedup_bell").set_index("variant")["low"]


def implied(table2: pd.DataFrame) -> pd.Series:
    """Return of each row of Table II the TFLOP/s of cuSPARSE that its speedup is over, which over one set of matrices
    is one number: the ratio of geometric means is the geometric mean of ratios."""
    rates = where(table2, quantity="tflops").set_index("variant")["low"]
    return (rates.drop(BELL) / over_bell(table2)).rename("implied")


def shares(speedups: pd.Series) -> pd.DataFrame:
    """Return what each step of the ladder, to opt4, is of the whole: by difference of speedups, as the source counts,
    and by factor, whose logarithms add up. speedups: by contender."""
    s = speedups.reindex(STEPS[:-1]).dropna()
    steps = pd.DataFrame({"gain": s.diff(), "factor": s / s.shift()}).iloc[1:]
    by_factor = np.log(steps["factor"]) / np.log(s.iloc[-1] / s.iloc[0])
    return steps.assign(**{"by difference": steps["gain"] / steps["gain"].sum(), "by factor": by_factor})


# ---------------------------------------------------------------- of a kernel


def padded(width: Any) -> Any:
    """Return the columns that are computed where a block takes 2 · width of N; width: a number, or several."""
    return -(-N // (CONSUMERS * width)) * CONSUMERS * width


def side(label: pd.Series) -> pd.Series:
    """Return the rows of a block from the label of its problem: "blocks of 32, linear"; 64 where it says nothing."""
    return label.str.extract(r"blocks of (\d+)", expand=False).fillna(str(BLOCK)).astype(int)
