"""The tables behind the chapter's figures; figures.toml says how each is drawn.

TFLOP/s are those of useful work; cuBLAS multiplies the dense matrix, at whatever sparsity.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from artifact.book.study import by, pivot
from artifact.drawing.words import shape
from artifact.measure.records import geomean
from artifact.rooms.nm_spmm import model, results
from artifact.rooms.nm_spmm.study import BIG, IN_ROOFLINE, PLACE, Spmm, sparsity
from artifact.rooms.nm_spmm.tables import placed
from kernels.formats import nm
from kernels.nm_spmm import analysis

#: The room's contenders, for their looks: the published kernel, what leads from it to our best, that last.
ORDER = (
    *("v3", "v1", "v2", "wide", "banks", "bulk", "turned", "nmsparse_vw32", "v3_searched", "ahead", "cluster"),
    *("v3_split_k", "small", "medium", "large", "tf32", "bf16", "auto"),
)
#: Of the published libraries: our contenders of the same idea, in whose lane they are drawn.
OURS = {"nm_spmm": "v3_searched", "nmsparse": "nmsparse_vw32"}
RECORD = ["experiment", "variant", "label", *PLACE, "median_us"]  #: columns of a record that figures keep
COUNTS = (1, 2, 4, 8, 16)  #: vectors of a block


def joined(measured: pd.DataFrame, stated: pd.DataFrame, *ceilings: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured, what is stated, and ceilings below each other, told apart by `source`."""
    parts = [measured.assign(source="measured"), stated.assign(source="stated")]
    return pd.concat([*parts, *(df.assign(source="ceiling") for df in ceilings)], ignore_index=True)


def useful(df: pd.DataFrame) -> pd.DataFrame:
    """Return records with TFLOP/s of useful work, all of cuBLAS, and their sparsity in per cent and in words."""
    dense = df["variant"].str.startswith("cublas")
    flops = df["useful_flops"] / df["density"].where(dense, 1.0)
    return worded(df[RECORD].assign(tflops=flops / df["median_us"] / 1e6))


def worded(df: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its sparsity in per cent, and as the title of a panel."""
    kept = df["density"]
    return df.assign(sparsity=100 * (1 - kept), at=kept.map(sparsity) + " sparsity")


def footprint(patterns: Mapping[float, nm.Nm]) -> pd.DataFrame:
    """Return the share of A_s that a block needs, over the number of vectors in it, and what random patterns would
    need, 1 − (1 − N/M)^vectors."""
    rows = [
        (f"{sparsity(d)} sparsity", count, 100 * model.needed(b, count), 100 * analysis.needed_share(d, count))
        for d, b in patterns.items()
        for count in COUNTS
    ]
    return pd.DataFrame(rows, columns=["case", "vectors", "per_cent", "expected"])


def transition(study: Spmm, stated: float) -> pd.DataFrame:
    """Return the intensity of Eq. 3 over sparsity, the ridge of each GPU, and the sparsity at which each line crosses
    it: 0 where it is below throughout, NaN where never."""
    df = model.intensities(study.here)
    for _, line in df.groupby(["gpu", "kind"]):
        falling, sparsities = line["intensity"].to_numpy()[::-1], line["sparsity"].to_numpy()[::-1]
        df.loc[line.index, "crossing"] = np.interp(line["ridge"].iloc[0], falling, sparsities, left=np.nan, right=0.0)
    ridge = df.drop_duplicates("gpu")[["gpu", "ridge"]].assign(intensity=lambda df: df["ridge"])
    return joined(df, ridge.assign(kind="transition", sparsity=stated), ridge.assign(kind="ridge"))


def stepwise(study: Spmm, df: pd.DataFrame) -> pd.DataFrame:
    """Return useful work in per cent of the FMA ceiling, over V1, and the shares of its own peak that the source
    states."""
    rows, stated = useful(df), results.peak_shares(study)
    base = rows["density"].map(by(rows, "v1", "tflops", "density"))
    rows = rows.assign(per_cent=100 * rows["tflops"] / study.fma, over_base=rows["tflops"] / base)
    stated = worded(stated.assign(per_cent=100 * stated["stated"]))
    return joined(rows, stated, pd.DataFrame({"variant": [f"FMA, {study.fma:.1f} TFLOP/s"], "per_cent": 100}))


def sizes(study: Spmm, df: pd.DataFrame) -> pd.DataFrame:
    """Return the same for the matrices of Table II, with the fastest of the authors' three kernels over the peak of
    their GPU."""
    rows, stated = useful(df), results.published_sizes(study)
    rows = rows.assign(per_cent=100 * rows["tflops"] / study.fma, line=rows["variant"])
    stated = stated[stated["density"].isin(rows["density"])]
    both = joined(rows, worded(stated).assign(line="theirs"))
    gflop = 2e-9 * both["m"] * both["n"] * both["k"]
    return both.assign(size=results.sizes_of(both), gflop=gflop)


def llama(study: Spmm, df: pd.DataFrame, only: str = "") -> pd.DataFrame:
    """Return speedups over cuBLAS at the hundred points of the layers of Llama here, the ideal M/N, and the published
    ones of three GPUs, or of one of them beside ours; place: of a point along the figure."""
    us, stated = pivot(df, "median_us", PLACE), results.published_speedups(study.published("fig9"))
    points = stated.drop_duplicates("point").set_index(["m", "n", "k"])["point"].rename("place")
    stated = stated[stated["gpu"].isin([only] if only else stated["gpu"])].rename(columns={"point": "place"})
    stated = stated.assign(panel=study.here.name if only else stated["gpu"], line=stated["library"])
    rows = df[RECORD].assign(speedup=us["cublas"].loc[pd.MultiIndex.from_frame(df[PLACE])].array / df["median_us"])
    rows = rows[rows["variant"] != "cublas"].join(points, on=["m", "n", "k"])
    both = joined(rows.assign(panel=study.here.name, line=rows["variant"]), stated)
    ideal = both.drop_duplicates(["panel", "density", "place"]).assign(line="ideal, M/N", source="ideal", variant=None)
    return worded(pd.concat([both, ideal.assign(speedup=1 / ideal["density"])], ignore_index=True))


def llama_means(points: pd.DataFrame) -> pd.DataFrame:
    """Return geometric means and ranges of the speedups at each sparsity. points: `llama`."""
    key = ["source", "panel", "line", "density"]
    groups = points.groupby(key, sort=False)["speedup"]
    df = groups.agg(points="count", least="min", most="max", mean=geomean).reset_index()
    df = worded(df.assign(low=df["least"], high=df["most"], variant=df["line"]))
    return df.rename(columns={"panel": "gpu", "line": "contender"})


def anchors(study: Spmm, df: pd.DataFrame) -> pd.DataFrame:
    """Return speedups over cuBLAS at each shape of the anchors and their geometric means: ours, and in another run the
    authors' own kernels; over: `auto` over their NM-SpMM; points: of a mean."""
    us, theirs = pivot(df, "median_us", PLACE), study.others("anchors").numbers()
    ours = us.rdiv(us["cublas"], axis=0)[["auto", *OURS.values()]]
    wide = ours.join(theirs.pivot(index=PLACE, columns="library", values="speedup")[[*OURS]])
    means = wide.groupby(level="density", sort=False).agg(geomean).assign(points=len(wide.groupby(["m", "n", "k"])))
    both = pd.concat([wide.reset_index(), means.reset_index()], ignore_index=True)
    both = both.assign(over=both["auto"] / both["nm_spmm"], sparsity=both["density"].map(sparsity))
    both["shape"] = [
        "geometric mean" if at[0] == 0 else shape(at) for at in both[["m", "n", "k"]].fillna(0).to_numpy(int)
    ]
    long = both.melt([*PLACE, "points", "over", "sparsity", "shape"], var_name="contender", value_name="speedup")
    long = long.assign(variant=long["contender"].replace(OURS), over=long["over"].where(long["contender"] == "auto"))
    return long.assign(source=np.where(long["contender"].isin([*OURS]), "stated", "measured"))


def trials(outcomes: pd.DataFrame) -> pd.DataFrame:
    """Return what came of each trial, and the factor that was expected. outcomes: `results.trials`."""
    rows = outcomes.assign(expected=outcomes["factor"], sparsity=outcomes["density"].map(sparsity))
    return rows[["trial", "density", "sparsity", "expected", "came"]]


def few_tiles(anchored: pd.DataFrame, sms: int) -> pd.DataFrame:
    """Return how many times as fast as V3 each contender is where there are fewer tiles of 64 × 128 than SMs."""
    us = results.few_tiles(anchored, sms)
    times = us.rdiv(us["v3"], axis=0).drop(columns=["tiles", "v3"])
    times.index = placed(us)[["shape", "sparsity"]].agg(" · ".join, axis=1)
    return times.rename_axis(index="row", columns="variant").stack().rename("value").reset_index()


def roofline(study: Spmm, counted: pd.DataFrame) -> pd.DataFrame:
    """Return useful TFLOP/s over FLOP per byte, by Eq. 3 and by what was counted of DRAM, L2 and shared memory, under
    the measured ceilings, and the shares of its peak that the source states, at our intensity under our ceiling."""
    eq3, stated = model.by_eq3(study), results.peak_shares(study)
    df = counted[counted["variant"].isin(IN_ROOFLINE)].rename(columns={"us": "time_us"}).assign(m=BIG, n=BIG, k=BIG)
    df = df[~df["variant"].str.startswith("cublas") | ~df.duplicated("variant")]
    df["eq3"] = [eq3.get(at, np.nan) for at in zip(df["variant"], df["density"], strict=True)]
    df = df.assign(**{what: df["useful_flops"] / df[f"{what}_bytes"] for what in ("dram", "l2", "shared")})
    stated["eq3"] = [eq3[at] for at in zip(stated["variant"], stated["density"], strict=True)]
    both = joined(df, stated.assign(tflops=stated["stated"] * study.fma))
    panels = {
        "by Eq. 3": ("eq3", ["DRAM", "L2"]),
        "DRAM, counted": ("dram", ["DRAM"]),
        "L2 reads, counted": ("l2", ["L2"]),
        "shared memory, counted": ("shared", ["shared memory"]),
    }
    parts = []
    roof = {"tflops": study.fma, "source": "ceiling", "variant": "FMA"}
    for panel, (column, memories) in panels.items():
        slopes = [{"variant": name, "source": "ceiling", "slope": study.gbps[name] / 1e3} for name in memories]
        tops = pd.DataFrame([roof, *slopes]).assign(memory=panel)
        parts += [both.assign(intensity=both[column], memory=panel).dropna(subset=["intensity"]), tops]
    return pd.concat(parts, ignore_index=True)


def vectors(study: Spmm, df: pd.DataFrame) -> pd.DataFrame:
    """Return useful TFLOP/s over the vector length, by window, sparsity and contender, under the FMA ceiling."""
    rows = useful(df)
    rows[["window", "vector"]] = [results.pattern(label) for label in rows["label"]]
    rows = rows.sort_values("density", ascending=False, kind="stable")
    tops = rows.drop_duplicates(["variant", "density"]).assign(tflops=study.fma, window=0)
    return joined(rows, rows.iloc[:0], tops)


def tensor(df: pd.DataFrame) -> pd.DataFrame:
    """Return speedups of the tensor-core kernels over dense cuBLAS of the same type, over M/N, which is the ideal."""
    rows = results.compared(df)
    names = [shape(at) for at in rows[["m", "n", "k"]].to_numpy()]
    line = [f"L = {vector}, {size}" for vector, size in zip(rows["vector"], names, strict=True)]
    return rows.assign(ideal=1 / rows["density"], line=line)
