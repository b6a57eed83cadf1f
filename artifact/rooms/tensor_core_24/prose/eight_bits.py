"""Sentences on FP8: our best against the libraries, what the rungs brought, how accurate it is."""

from __future__ import annotations

import pandas as pd

from artifact import baselines
from artifact.drawing.words import cube, listed, shape
from artifact.measure import check
from artifact.measure.records import geomean
from artifact.rooms.tensor_core_24 import energy
from artifact.rooms.tensor_core_24.experiments import KEYS, Counters, by_size, wide
from kernels.tensor_core_24 import fp8_family

#: Over cuSPARSELt's best: in the geometric mean, and nowhere below; and over dense cuBLASLt at a size.
AIM, LEAST, DENSE_AIM, DENSE_AT = 1.05, 0.95, 1.5, (8192, 8192, 8192)
NOT_MEASURED = "FP8 is not measured yet on this GPU."
#: Whose counters are shown, our best and what it is held against.
COUNTED = ("fp8_packed", "fp8_direct", "fp8_pairs", "fp8_auto", "cusparselt", "cublaslt_eight")
OURS, THEIRS = "fp8_auto", "cusparselt"
NOT_COUNTED = "Hardware counters of the FP8 kernels were not taken on this GPU."


def speedups(eights: pd.DataFrame, baseline: str) -> pd.Series:
    """Of `fp8_auto` by (m, n, k), where the baseline takes the shape."""
    us = wide(eights, "median_us")
    return (us[baseline] / us["fp8_auto"]).dropna()


def against_libraries(eights: pd.DataFrame | None) -> str:
    """Whether the aims are met, and by how much they are missed where they are not."""
    if eights is None:
        return NOT_MEASURED
    best, dense = speedups(eights, "cusparselt"), speedups(eights, "cublaslt_eight")
    mean, least = geomean(best), best.min()
    behind = [f"{shape(at)} ({x:.2f}×)" for at, x in best.items() if x < LEAST]
    words = [
        f"Over {baselines.library('cusparselt')}'s best algorithm `fp8_auto` is {mean:.2f}× in the geometric mean of "
        f"{len(best)} shapes ({'at least' if mean >= AIM else 'short of'} our aim of {AIM:.2f}×), from "
        f"{least:.2f}× at {shape(best.idxmin())} to {best.max():.2f}× at {shape(best.idxmax())}."
    ]
    if behind:
        words.append(f"Under {LEAST:.2f}×, where it should be nowhere: {listed(behind)}.")
    if DENSE_AT in dense.index:
        reached = dense[DENSE_AT]
        words.append(
            f"Over {baselines.library('cublaslt_eight')} it is {reached:.2f}× at {cube(DENSE_AT[0])}, "
            f"{'at least' if reached >= DENSE_AIM else 'short of'} our aim of {DENSE_AIM:.1f}×."
        )
    return " ".join([*words, power(eights)])


def power(eights: pd.DataFrame) -> str:
    """What bounds large products: the GPU's limit of power, by the clock that it falls to."""
    capped = eights[eights["throttle"].str.contains("power") & (eights["m"] == eights["n"])]
    cubes = capped[capped["n"] == capped["k"]].sort_values("m")
    if cubes.empty:
        return ""
    first, last = cubes.iloc[0], cubes.iloc[-1]
    return (
        f"From {cube(int(first['m']))} on power bounds all of them: at {cube(int(last['m']))} the GPU draws {last['power_w']:.0f} W and its "
        f"clock is down to {last['sm_mhz']:,.0f} MHz."
    )


def over_bfloat16(eights: pd.DataFrame | None, square: pd.DataFrame) -> str:
    """What half of the bytes bring."""
    if eights is None:
        return ""
    cubes = eights[(eights["m"] == eights["n"]) & (eights["n"] == eights["k"])]
    gain = (by_size(square, "auto", "median_us") / by_size(cubes, "fp8_auto", "median_us")).dropna()
    if gain.empty:
        return ""
    most = gain.idxmax()
    return (
        f"Against `auto` in BF16 it takes {1 / gain.max():.2f} of the time at {cube(most)}, {1 / gain.min():.2f} at "
        f"{cube(gain.idxmin())}."
    )


def accuracy(eights: pd.DataFrame | None) -> str:
    """The largest errors beside the limits."""
    if eights is None:
        return ""
    limit = check.LIMITS["fp8"]
    ours = eights[eights["variant"].isin([*fp8_family.RUNGS, "fp8_auto"])]
    worst = ours.loc[ours["rel_err"].idxmax()]
    return (
        f"Errors: up to {worst['rel_err']:.1e} in the norm, at {shape(tuple(worst[KEYS]))}, and {ours['max_err'].max():.1e} of an "
        f"element; the limits are {limit.rel_err:.0e} and {limit.max_err:.0e} ({limit.why})."
    )


def kinds(outputs: pd.DataFrame | None) -> str:
    """What scales by vectors and an output of e4m3 cost, at the largest size."""
    if outputs is None:
        return ""
    cubes = outputs[(outputs["m"] == outputs["n"]) & (outputs["n"] == outputs["k"])]
    size = int(cubes.loc[cubes["label"] != "e4m3", "m"].max())
    us = cubes[cubes["m"] == size].set_index("label")["median_us"]
    told = [f"{label} {us[label] / us['e4m3']:.3f}" for label in us.index if label != "e4m3"]
    return f"Time at {cube(size)} over that of one scale each and a BF16 output: {listed(told)}."


def counted(counters: Counters, sms: int) -> pd.DataFrame:
    """Of `COUNTED`, as `energy.activity`, by size and contender; empty where nothing was counted. sms: of the GPU."""
    rows = energy.activity(counters, sms)
    rows = rows[rows["variant"].isin(COUNTED)].set_index(["size", "variant"])
    order = {v: i for i, v in enumerate(COUNTED)}
    return rows.sort_index(key=lambda level: level.map(order) if level.name == "variant" else level)


def held_back(rows: pd.DataFrame, mhz_most: float) -> str:
    """What the kernel of ours lacks to cuSPARSELt's: clocks, or the rate of them. rows: `counted`; mhz_most: the highest
    clock of the GPU."""
    both = rows.unstack("variant")
    if rows.empty or not {("us", OURS), ("us", THEIRS)} <= set(both.columns):
        return NOT_COUNTED
    both = both[both["us"][[OURS, THEIRS]].notna().all(axis=1)]
    share = rows["tensor"].div(rows["clocks"]).unstack("variant").loc[both.index]
    over = {name: both[name][OURS] / both[name][THEIRS] for name in ("us", "clocks", "ghz", "tensor")}
    bytes_ = {name: both[name][OURS] / both[name][THEIRS] for name in ("port", "slices", "dram")}
    last = both.index[-1]
    lower = rows["ghz"].max() * 1e3 < mhz_most
    words = [
        f"In the profile `{OURS}` takes {over['us'].min():.2f} to {over['us'].max():.2f}× cuSPARSELt's time. At {cube(int(last))} it is "
        f"{over['us'][last]:.2f}×: {over['clocks'][last]:.2f}× its clocks at {over['ghz'][last]:.2f}× its clock rate"
        + (f"; all kernels run below the GPU's {mhz_most:,.0f} MHz." if lower else ".")
    ]
    words.append(
        f"The tensor cores work {over['tensor'].min():.2f} to {over['tensor'].max():.2f}× as many clocks in both, there "
        f"{share[OURS][last]:.0%} of all clocks in ours and {share[THEIRS][last]:.0%} in theirs."
    )
    words.append(
        f"Beside theirs, ours brings {bytes_['port'][last]:.2f}× as many bytes into the SMs, {bytes_['slices'][last]:.2f}× "
        f"through L2 and {bytes_['dram'][last]:.2f}× from and to DRAM."
    )
    cost, rate = geomean(over["clocks"]), geomean(1 / over["ghz"])
    words.append(
        f"In the mean over the sizes clocks make ours {cost:.2f}× and their rate {rate:.2f}× as long: what holds it back is "
        + ("clocks in which the tensor cores wait" if cost > rate else "the clock that power leaves it")
        + (", while it runs at the higher clock." if cost > rate and rate < 1 else ".")
    )
    return " ".join(words)
