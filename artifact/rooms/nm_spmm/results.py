"""What follows from the room's records: against the authors' kernels, predictions and what came of them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from artifact.book.study import Study, pivot
from artifact.drawing.words import shape, times
from artifact.measure import records
from artifact.profiling import ncu
from artifact.rooms.nm_spmm.study import (
    BIG,
    DTYPES,
    FOR_FEW,
    GROUP,
    PLACE,
    POINT,
    PROFILED,
    RUNGS,
    TRIALS,
    VECTOR,
    Spmm,
    by,
    by_density,
    over,
    rates,
)
from kernels import nm_spmm as room
from kernels.nm_spmm import analysis

AIM, AIM_SHARE = 1.10, 0.80  #: over the authors' kernels; of the FMA ceiling
CLASSES = ["small", "medium", "large"]
#: Metric -> column of `counters`; from "FMA pipe [%]" on in per cent, then warps that wait per instruction issued.
METRICS = {
    ncu.TIME: "ns",
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum": "ffma",
    "smsp__inst_executed.sum": "issued",
    "dram__bytes_read.sum": "dram_read",
    "dram__bytes_write.sum": "dram_write",
    "lts__t_sectors_op_read.sum": "l2_read",
    "lts__t_sectors_op_red.sum": "l2_red",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "wavefronts",
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": "FMA pipe [%]",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue slots [%]",
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed": "shared memory [%]",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "L2 [%]",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "DRAM [%]",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps [%]",
    ncu.STALLED.format("dispatch_stall"): "dispatch",
    ncu.STALLED.format("short_scoreboard"): "shared",
    ncu.STALLED.format("long_scoreboard"): "memory",
    ncu.STALLED.format("barrier"): "barrier",
    ncu.STALLED.format("no_instruction"): "instructions",
    ncu.STALLED.format("not_selected"): "not selected",
}
OUTCOME = ["rung", "idea", "prediction", "predicted", "came", "low", "high", "at", "over"]  #: columns of `outcome`
#: Who is compared where there are few tiles.
CUTS = ["v3", "v3_split_k", *RUNGS, "auto"]
#: Size -> its label in Table II.
SIZES = {size: label for label, (_, size) in analysis.TABLE_2.items()}


def sizes_of(df: pd.DataFrame) -> pd.Series:
    """Return the label in Table II of each row's size; missing where it has none."""
    return pd.Series([SIZES.get(tuple(size)) for size in df[["m", "n", "k"]].to_numpy().tolist()], df.index)


def won_by_packing(packed: pd.DataFrame) -> pd.Series:
    """Return the speed of packing over staging all, by density."""
    return by_density(over(packed, "v3_packed", "v3_unpacked"))


def best_shares(stepwise: pd.DataFrame, fma: float) -> pd.Series:
    """Return the largest share of the FMA ceiling of each contender at any sparsity but 0."""
    rate = rates(stepwise)
    return rate[rate.index < 1].max() / fma


def of_ideal(df: pd.DataFrame) -> pd.Series:
    """Return the speedup of `auto` over cuBLAS, of what skipping the zeros alone would give, by point."""
    gained = over(df, "auto", "cublas")
    return gained * gained.index.get_level_values("density")


def best_csr(loose: pd.DataFrame) -> pd.Series:
    """Return µs of cuSPARSE's best algorithm at each point."""
    return loose[loose["variant"].str.startswith("cusparse")].groupby(POINT)["median_us"].min()


def counters(study: Spmm) -> pd.DataFrame:
    """Return what Nsight Compute counted at 4096³, a row for each contender and density: METRICS, us, useful (FFMA
    of all issued), useful_flops, tflops, bytes of DRAM, of reads of L2 (32 B a sector), of shared memory (128 B a
    wavefront). cuBLAS multiplies the dense matrix at every density."""
    df = study.counters.where(variant=PROFILED, m=BIG, n=BIG, k=BIG).wide(METRICS, "density")
    df = df.reindex(columns=["variant", "density", *METRICS.values()])
    dense = df["variant"].str.startswith("cublas")
    flops = 2.0 * BIG**3 * df["density"].where(~dense, 1.0)
    df = df.assign(
        place=df["variant"].map(PROFILED.index),
        us=df["ns"] / 1e3,
        useful=df["ffma"] / 32 / df["issued"],
        useful_flops=flops,
        tflops=flops / df["ns"] / 1e3,
        dram_bytes=df["dram_read"] + df["dram_write"],
        l2_bytes=32 * (df["l2_read"] + df["l2_red"].fillna(0)),
        shared_bytes=128 * df["wavefronts"],
    )
    return df.sort_values(["place", "density"], ascending=[True, False]).drop(columns="place")


def few_tiles(anchored: pd.DataFrame, sms: int) -> pd.DataFrame:
    """Return µs where there are fewer tiles of 64 × 128 than SMs: a row for each point, `tiles` per SM, a column for
    each of CUTS that the GPU takes."""
    us = pivot(anchored, "median_us", POINT)
    us = us.assign(tiles=[analysis.TABLE_1["large"].blocks(m, n) / sms for _, m, n, _, _ in us.index])
    return us.loc[us["tiles"] < 1, ["tiles", *us.columns.intersection(CUTS, sort=False)]]


def pattern(label: str) -> tuple[int, int]:
    """Return the group M and the vector length L of a record's label, which names them where they are not 32."""
    group, vector = re.search(r"\d+:(\d+)", label), re.search(r"vectors of (\d+)", label)
    length = 1 if "element-wise" in label else int(vector[1]) if vector else VECTOR
    return int(group[1]) if group else GROUP, length


def crossing_of(density: np.ndarray, speedup: np.ndarray) -> float:
    """Return the sparsity from which on a contender wins, densities falling: where the line between two points passes 1
    for good, both logarithmic. NaN where the last point does not win; the first point's sparsity where all do."""
    losses = np.flatnonzero(speedup < 1)
    if not losses.size or losses[-1] == len(speedup) - 1:
        return np.nan if losses.size else 1 - float(density[0])
    (d0, d1), (s0, s1) = (np.log(values[losses[-1] :][:2]) for values in (density, speedup))
    return 1 - float(np.exp(d0 - s0 * (d1 - d0) / (s1 - s0)))


def compared(tensor: pd.DataFrame) -> pd.DataFrame:
    """Return the tensor-core kernels beside dense cuBLAS of the same type: their records, the densest first, with
    vector, speedup, and the crossing of their line, NaN where it never wins."""
    library = dict(DTYPES.values())
    us = tensor.set_index(["variant", *POINT])["median_us"]
    rows = tensor[tensor["variant"].isin(library)].sort_values("density", ascending=False, kind="stable")
    dense = us.loc[[(library[v], *at) for v, *at in rows[["variant", *POINT]].itertuples(index=False)]]
    rows = rows.assign(vector=[pattern(label)[1] for label in rows["label"]], speedup=dense.array / rows["median_us"])
    for _, line in rows.groupby(["variant", "vector", "m", "n", "k"]):
        rows.loc[line.index, "crossing"] = crossing_of(line["density"].to_numpy(), line["speedup"].to_numpy())
    return rows


# ---------------------------------------------------------------- what the source states


def published_sizes(study: Study) -> pd.DataFrame:
    """Of the authors' series of Fig. 8 return the fastest of the three classes at each point: its size and density,
    gpu, library, tflops of useful work, and per_cent, that over the peak that Table III gives their GPU."""
    own, peaks = study.published("fig8"), study.published("tables").query("quantity == 'peak_fp32'")
    best = own.loc[own[own["library"].isin(CLASSES)].groupby(PLACE)["tflops"].idxmax()]
    useful, peak = best["tflops"] * best["density"], peaks.set_index("of")["value"].astype(float)
    best = best.assign(tflops=useful, per_cent=100 * useful / best["gpu"].map(peak))
    return best[["gpu", "library", *PLACE, "tflops", "per_cent"]].reset_index(drop=True)


def peak_shares(study: Study) -> pd.DataFrame:
    """Return what the source's text states of the share of its peak: library, variant (ours of the same idea), density,
    stated (0 to 1)."""
    rows = study.stated("text", "peak_share").rename(columns={"variant": "library", "low": "stated"})
    ours = rows["library"].map({"nm_spmm": "v3", "nmsparse": "nmsparse_vw32"})
    return rows.assign(variant=ours).dropna(subset=["density"])[["library", "variant", "density", "stated"]]


def published_speedups(fig9: pd.DataFrame) -> pd.DataFrame:
    """Return Fig. 9 as speedups over cuBLAS on the same GPU: gpu, library, density, point, m, n, k, speedup."""
    dense = fig9[fig9["library"] == "cublas"].set_index(["gpu", "point"])["tflops"].rename("dense")
    rows = fig9[fig9["library"] != "cublas"].join(dense, on=["gpu", "point"])
    return rows.assign(speedup=rows["tflops"] / rows["dense"]).drop(columns=["tflops", "dense"])


# ---------------------------------------------------------------- against the authors' kernels


def against(anchored: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of each contender over cuBLAS, over that of the authors' kernel that it is held against, by
    point. theirs: others/<gpu>/anchors.csv."""
    us = pivot(anchored, "median_us", PLACE)
    stated = theirs.pivot(index=PLACE, columns="library", values="speedup")
    libraries = ["nmsparse" if v in ("nm_baseline", "nmsparse_vw32") else "nm_spmm" for v in us]
    return us.rdiv(us["cublas"], axis=0) / stated.reindex(us.index)[libraries].set_axis(us.columns, axis=1)


def reached(anchored: pd.DataFrame, fma: float) -> pd.Series:
    """Return the share of the FMA ceiling that `auto` reaches at 50 to 75% sparsity, 4096³ and above."""
    large = (anchored[["m", "n", "k"]] >= BIG).all(axis=1) & anchored["density"].between(0.25, 0.5)
    return by(anchored[large], "auto", "tflops") / fma


def rebuilt(beside: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the speed of each of our rebuildings over the authors' own kernel in the same run, by point.

    beside: others/<gpu>/rebuilt.csv.
    """
    return {v: own.set_index(PLACE)["speedup"] for v, own in beside.groupby("library", sort=False)}


# ---------------------------------------------------------------- what was predicted, and what came


def before(variant: str) -> str:
    """Return what a rung is compared with: what its prediction names, else the rung before it; of `auto` V3."""
    rung_before = dict(zip(RUNGS, ["v3", *RUNGS], strict=False)) | {"auto": "v3"}
    named = re.findall(r"over (\w+)", room.VARIANTS[variant].prediction)
    return next((base for base in named[:1] if base in room.VARIANTS), rung_before[variant])


def outcome(rungs: list[str], stepwise: pd.DataFrame, anchored: pd.DataFrame) -> pd.DataFrame:
    """Return rungs beside their predictions, OUTCOME. predicted: a factor, NaN without one; came: at `at`, over `over`,
    of which low and high are the ends everywhere."""
    rows = []
    for variant in (*rungs, "auto"):
        kernel, base = room.VARIANTS[variant], before(variant)
        came, said = over(anchored if variant in FOR_FEW else stepwise, variant, base), times(kernel.prediction)
        # A rung for few tiles is judged where there are fewest.
        least = min(came.index, key=lambda at: at[1] * at[2] * at[3])[:4]
        there = records.geomean(came[[at[:4] == least for at in came.index]])
        factor = float(next(iter(re.findall(r"([\d.]+)×", said)), np.nan))
        rows.append((variant, kernel.idea, said, factor, there, came.min(), came.max(), shape(least[1:]), base))
    return pd.DataFrame(rows, columns=OUTCOME)


def trials(tried: pd.DataFrame | None) -> pd.DataFrame:
    """Return what was tried and not kept, a row for each density: trial, idea, expected (words), factor (the number in
    them), density, came, over the rung that the expectation names; empty where the GPU takes none."""
    rows: list[tuple] = []
    for name, (_, idea, expected) in TRIALS.items() if tried is not None else ():
        factor, base = re.findall(r"([\d.]+)x over (\w+)", expected)[0]
        same = (name, idea, times(expected), float(factor))
        rows += [(*same, d, came) for d, came in by_density(over(tried, name, base)).items()]
    return pd.DataFrame(rows, columns=["trial", "idea", "expected", "factor", "density", "came"])
