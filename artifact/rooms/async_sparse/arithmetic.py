"""Speedups of records, and what follows from the source's own numbers: ratios, shares, padding, bytes.

`table1`, `table2`, `table3` and `text` are its published tables, as `stated` reads them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from artifact import paths, registry
from artifact.book.study import given, where
from artifact.drawing import plot
from artifact.measure import others, records

ROOM = "async_sparse"
N = 1024  #: columns of B in the ablation and in the sweep over tiles
BLOCK = 64  #: rows and columns of a block
CONSUMERS = 2  #: warpgroups that multiply, side by side along N
STAGES = 3
REGISTERS = (24, 240, 240)  #: a thread, by setmaxnreg, of the producer and of the consumers
WARPGROUP = 128  #: threads
SM_REGISTERS, SM_SHARED = 65536, 233472  #: of an H100's SM: registers, bytes of shared memory
RESERVED = 1024  #: bytes of shared memory that a block takes besides
STEPS = ("opt0", "opt1", "opt2", "opt3", "opt4")  #: the ladder that the source adds up
#: Bytes of A and of B in a stage, in BF16, with the widest WGMMA_N.
STAGE = {"A": BLOCK * BLOCK * 2, "B": BLOCK * CONSUMERS * 256 * 2}
#: WGMMA_N by the source's rule: the widest whose tile divides N.
RULE = max(width for width in range(8, 257, 8) if N % (CONSUMERS * width) == 0)
SIZES = {"bfloat16": 2, "tf32": 4, "float32": 4}  #: bytes of a value
STATED = plot.stated("H100")  #: what a legend calls what the source states
HALF = 0.005  #: of the last digit of a number in Table I


# ---------------------------------------------------------------- of records


@given
def speedups(df: pd.DataFrame, variants: Iterable[str], baseline: str) -> pd.DataFrame:
    """Return variant, POINT and the speedup over a baseline, of those that were measured beside it, in their order."""
    at = list(records.POINT)
    ours = pd.concat([df.head(0), *(where(df, variant=variant) for variant in variants)])
    both = ours.merge(where(df, variant=baseline)[[*at, "median_us"]], on=at, suffixes=("", "_base"))
    return both.assign(speedup=both["median_us_base"] / both["median_us"])[["variant", *at, "speedup"]]


def means(df: pd.DataFrame, variants: Iterable[str], baseline: str) -> pd.Series:
    """Return the geometric-mean speedup over a baseline of each contender that was measured beside it."""
    parts = speedups(df, variants, baseline).groupby("variant", sort=False)["speedup"]
    return pd.Series({variant: records.geomean(part) for variant, part in parts}, dtype=float)


def present(df: pd.DataFrame, wanted: Iterable[str]) -> list[str]:
    """List those of the contenders that records have."""
    return [variant for variant in wanted if (df["variant"] == variant).any()]


def break_even(speedup: pd.Series) -> float:
    """Return the density at which a speedup by density crosses 1, between two points on log axes; NaN where it is on
    one side of it throughout."""
    logs = np.log(speedup.sort_index())
    for (sparse, below), (dense, above) in itertools.pairwise(logs.items()):
        if above <= 0 < below:
            share = below / (below - above)
            return float(np.exp(np.log(sparse) + share * (np.log(dense) - np.log(sparse))))
    return np.nan


# ---------------------------------------------------------------- of the source's tables


def stated(part: str) -> pd.DataFrame:
    """Return what the source states in "table1", "table2", "table3" or "text"."""
    return records.published(registry.published(ROOM, part))


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
    theirs = rate.reindex(over.index)
    ours = rate["WCSR"].reindex(over.index.droplevel("kernel")).to_numpy()
    found = {"ratio": ours / theirs, "least": (ours - HALF) / (theirs + HALF), "most": (ours + HALF) / (theirs - HALF)}
    agrees = over.between(found["least"] - HALF, found["most"] + HALF)
    return pd.DataFrame({"stated": over} | found | {"agrees": agrees}).reset_index()


def over_bell(table2: pd.DataFrame) -> pd.Series:
    """Return the speedups over Blocked-ELL that Table II states, by contender."""
    return where(table2, quantity="speedup_bell").set_index("variant")["low"]


def implied(table2: pd.DataFrame) -> pd.Series:
    """Return of each row of Table II the TFLOP/s of cuSPARSE that its speedup is over, which over one set of matrices
    is one number: the ratio of geometric means is the geometric mean of ratios."""
    rates = where(table2, quantity="tflops").set_index("variant")["low"]
    return (rates.drop("cusparse_bell") / over_bell(table2)).rename("implied")


def shares(speedups: pd.Series) -> pd.DataFrame:
    """Return what each step of the ladder is of the whole: by difference of speedups, as the source counts, and by
    factor, whose logarithms add up. speedups: by contender; those of STEPS that are there."""
    s = speedups.reindex(STEPS).dropna()
    gain, factor = s.diff().iloc[1:], (s / s.shift()).iloc[1:]
    by_factor = factor.map(math.log) / math.log(s.iloc[-1] / s.iloc[0])
    return pd.DataFrame({"gain": gain, "factor": factor, "by difference": gain / gain.sum(), "by factor": by_factor})


# ---------------------------------------------------------------- of a kernel


def padded(width: int) -> int:
    """Return the columns that are computed where a block takes 2 · width of N."""
    return -(-N // (CONSUMERS * width)) * CONSUMERS * width


def side(label: str) -> int:
    """Return the rows of a block from the label of its problem: "blocks of 32, linear"; 64 where it says nothing."""
    return int(label.partition("blocks of ")[2].split(",")[0].split(" ")[0] or BLOCK)
