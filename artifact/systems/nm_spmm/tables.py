"""The tables that the chapter shows, as they are (tables.toml) or drawn (figures.toml): records in, a DataFrame out.

TFLOP/s of figures are those of useful work; cuBLAS multiplies the dense matrix, at whatever sparsity.
"""

from collections.abc import Mapping
from itertools import product

import numpy as np
import pandas as pd

from artifact.book.study import by, given, pivot, where
from artifact.book.text import shape
from artifact.measure import records
from artifact.systems.nm_spmm import model
from artifact.systems.nm_spmm.model import (
    BIG,
    BLOCK,
    CLASSES,
    DENSITIES,
    GROUP,
    PLACE,
    POINT,
    SPARSITIES,
    VECTOR,
    Spmm,
    by_density,
    kept,
    over,
    rates,
    sizes_of,
    sparsity,
)
from artifact.verdicts.measures import NOT_CARRIED, NOT_REPRODUCED
from kernels import nm_spmm as system
from kernels.formats import nm
from kernels.nm_spmm import analysis

#: The system's contenders, for their looks: the published kernel, what leads from it to our best, that last.
ORDER = (
    *("v3", "v1", "v2", "wide", "banks", "bulk", "turned", "nmsparse_vw32", "v3_searched", "ahead", "cluster"),
    *("v3_split_k", "small", "medium", "large", "tf32", "bf16", "auto"),
)
#: Of the published libraries: our contenders of the same idea, in whose lane they are drawn.
OURS = {"nm_spmm": "v3_searched", "nmsparse": "nmsparse_vw32"}
RECORD = ["experiment", "variant", "label", *PLACE, "median_us"]  #: columns of a record that figures keep
#: What Eq. 3 is of -> FLOP per byte at a density.
KINDS = {
    "staged whole": lambda d: analysis.intensity(BLOCK.rows, BLOCK.columns, d),
    f"packed, {BLOCK.columns // VECTOR} vectors": lambda d: analysis.intensity(
        BLOCK.rows, BLOCK.columns, d, share=analysis.needed_share(d, BLOCK.columns // VECTOR)
    ),
    "whole product": lambda d: analysis.intensity(BIG, BIG, d, depth=BIG),
}
#: Panel of the roofline -> what its bytes are of, and the memories whose ceilings it has.
ROOFS = {
    "by Eq. 3": ("eq3", ["DRAM", "L2"]),
    "DRAM, counted": ("dram", ["DRAM"]),
    "L2 reads, counted": ("l2", ["L2"]),
    "shared memory, counted": ("shared", ["shared memory"]),
}


def placed(df: pd.DataFrame) -> pd.DataFrame:
    """Return a table by `POINT` with the sizes and the sparsity of its points in words, as first columns."""
    return pd.DataFrame(
        {"shape": [shape(at[1:4]) for at in df.index], "sparsity": [sparsity(at[4]) for at in df.index]}, df.index
    ).join(df)


def joined(measured: pd.DataFrame, stated: pd.DataFrame, *ceilings: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured, what is stated, and ceilings below each other, told apart by `source`."""
    return pd.concat(
        [measured.assign(source="measured"), stated.assign(source="stated")]
        + [df.assign(source="ceiling") for df in ceilings],
        ignore_index=True,
    )


def useful(df: pd.DataFrame) -> pd.DataFrame:
    """Return records with TFLOP/s of useful work, all of cuBLAS, and their sparsity in per cent and in words."""
    done = df["density"].where(df["variant"].str.startswith("cublas"), 1.0)
    return worded(df[RECORD].assign(tflops=df["useful_flops"] / done / df["median_us"] / 1e6))


def worded(df: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its sparsity in per cent, and as the title of a panel."""
    return df.assign(sparsity=100 * (1 - df["density"]), at=df["density"].map(sparsity) + " sparsity")


# ---------------------------------------------------------------- the kernels and the analysis


def variants() -> pd.DataFrame:
    """Return every variant: its file, its idea, whose it is."""
    return pd.DataFrame(
        [(v, k.source.name, k.idea, "the paper" if k.published else "ours") for v, k in system.VARIANTS.items()],
        columns=["variant", "file", "idea", "by"],
    )


def footprint(patterns: Mapping[float, nm.Nm]) -> pd.DataFrame:
    """Return the share of A_s that a block needs, over the number of vectors in it.

    With what random patterns would need, 1 − (1 − N/M)^vectors.
    """
    return pd.DataFrame(
        {"case": f"{sparsity(d)} sparsity", "vectors": count}
        | {"per_cent": 100 * model.needed(b, count), "expected": 100 * analysis.needed_share(d, count)}
        for d, b in patterns.items()
        for count in (1, 2, 4, 8, 16)
    )


def transition(spmm: Spmm, stated: float) -> pd.DataFrame:
    """Return Eq. 3 over sparsity, FLOP/B, and where it crosses the ridge of each GPU.

    Of the large block and of the whole product. The crossing is 0 where the line is below throughout, NaN where it
    never crosses.
    """
    kept = np.linspace(1, 0.005, 200)
    lines = {kind: np.array([value(d) for d in kept]) for kind, value in KINDS.items()}
    df = pd.concat(
        pd.DataFrame({"sparsity": 1 - kept, "intensity": line})
        .assign(gpu=device.name, kind=kind, ridge=device.ridge)
        .assign(crossing=np.interp(device.ridge, line[::-1], 1 - kept[::-1], left=np.nan, right=0.0))
        for device, (kind, line) in product([*analysis.TABLE_3.values(), spmm.here], lines.items())
    )
    ridges = df.drop_duplicates("gpu")[["gpu", "ridge"]].assign(intensity=lambda df: df["ridge"])
    return joined(df, ridges.assign(kind="transition", sparsity=stated), ridges.assign(kind="ridge"))


def blockings() -> pd.DataFrame:
    """Return Table I, with what Eq. 6 says of it."""
    return pd.DataFrame(
        {"class": label, "block": f"{t.rows} × {t.columns}", "warp": "{} × {}".format(*t.warp), "threads": t.threads}
        | {"thread": "{} × {}".format(*t.thread), "fma": analysis.cmar(*t.thread)}
        | {"registers": analysis.registers(*t.thread)}
        for label, t in analysis.TABLE_1.items()
    )


def proposed(here: analysis.Device) -> pd.DataFrame:
    """Return what the analysis proposes on a GPU for the sizes of Table II, beside what that has."""
    return pd.DataFrame(
        {"size": label, "shape": shape((m, n, k)), "expected": expected, "chosen": chosen}
        | {"blocks": analysis.TABLE_1[chosen].blocks(m, n) / here.sm_count}
        | {
            f"k_s at {sparsity(d)}": f"{tile.windows * GROUP}{', packed' * tile.packed}"
            for d in SPARSITIES
            for tile in [analysis.propose(here, m, n, k, kept(d), GROUP)]
        }
        for label, (expected, (m, n, k)) in analysis.TABLE_2.items()
        for chosen in [analysis.class_of(here.sm_count, m, n)]
    )


# ---------------------------------------------------------------- the paper's figures


def stepwise(spmm: Spmm, df: pd.DataFrame) -> pd.DataFrame:
    """Return useful work in per cent of the FMA ceiling, over V1.

    With the shares of its own peak that the source states.
    """
    return joined(
        useful(df).assign(
            per_cent=lambda rows: 100 * rows["tflops"] / spmm.fma,
            over_base=lambda rows: rows["tflops"] / rows["density"].map(by(rows, "v1", "tflops", "density")),
        ),
        worded(model.peak_shares(spmm).assign(per_cent=lambda said: 100 * said["stated"])),
        pd.DataFrame({"variant": [f"FMA, {spmm.fma:.1f} TFLOP/s"], "per_cent": 100}),
    )


def packing(packed: pd.DataFrame) -> pd.DataFrame:
    """Return TFLOP/s of V3 packed and with all rows staged, by sparsity, and what four vectors need of A's rows."""
    return (
        rates(packed)
        .assign(won=by_density(over(packed, "v3_packed", "v3_unpacked")))
        .reset_index()
        .assign(
            sparsity=lambda df: df["density"].map(sparsity),
            needed=lambda df: [analysis.needed_share(d, 4) for d in df["density"]],
        )
    )


def sizes(spmm: Spmm, df: pd.DataFrame) -> pd.DataFrame:
    """Return the same as `stepwise` for the matrices of Table II.

    With the fastest of the authors' three kernels at each point, over the peak that Table III gives their GPU.
    """
    rows, own = useful(df), spmm.published("fig8").query("library in @CLASSES")
    peaks = spmm.published("tables").query("quantity == 'peak_fp32'").set_index("of")["value"].astype(float)
    own = where(own, density=set(rows["density"]))
    stated = worded(own.loc[own.groupby(PLACE)["tflops"].idxmax(), ["gpu", "library", *PLACE, "tflops"]]).assign(
        tflops=lambda at: at["tflops"] * at["density"],
        per_cent=lambda at: 100 * at["tflops"] / at["gpu"].map(peaks),
        line="theirs",
    )
    return joined(rows.assign(per_cent=100 * rows["tflops"] / spmm.fma, line=rows["variant"]), stated).assign(
        size=sizes_of, gflop=lambda both: 2e-9 * both[["m", "n", "k"]].prod(axis=1)
    )


def best_of_three(by_size: pd.DataFrame) -> pd.DataFrame:
    """Return the fastest of the classes of Table I at each size of Table II and each sparsity."""
    return (
        pivot(by_size, "median_us", PLACE)[CLASSES]
        .idxmin(axis=1)
        .unstack("density")
        .sort_index(axis=1, ascending=False)
        .rename(columns=sparsity)
        .reset_index()
        .assign(
            size=sizes_of,
            shape=lambda best: [shape(at) for at in best[["m", "n", "k"]].to_numpy()],
            expected=lambda best: [analysis.TABLE_2[label][0] for label in best["size"]],
        )
    )


def fig8(by_size: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """Return the three kernels at each matrix of Table II, each over the best of the three.

    Geometric means over the sparsities that both have: here, and as the authors published it for a GPU of theirs, with
    the best of split-K and with one pass.
    """
    heads = {
        "here": by_size.rename(columns={"variant": "library"}),
        "theirs": stated,
        "theirs, one pass": stated.assign(tflops=stated["tflops_one_pass"]),
    }
    df = (
        pd.concat(heads, names=["head"])
        .reset_index("head")
        .query("library in @CLASSES")
        .loc[lambda df: df.groupby(PLACE)["head"].transform("nunique") == len(heads)]
        .assign(share=lambda df: df["tflops"] / df.groupby([*PLACE, "head"])["tflops"].transform("max"), size=sizes_of)
    )
    means = df.pivot_table("share", "size", ["library", "head"], aggfunc=records.geomean)[CLASSES]
    return means.set_axis([", ".join(column) for column in means], axis=1).assign(
        matrix=[f"{label}: {shape(analysis.TABLE_2[label][1])}" for label in means.index]
    )


def llama_points(spmm: Spmm, df: pd.DataFrame, only: str = "") -> pd.DataFrame:
    """Return speedups over cuBLAS at the hundred points of the layers of Llama, and the ideal M/N.

    With the published ones of three GPUs, or of one of them beside ours. place: of a point along the figure.
    """
    stated = model.published_speedups(spmm.published("fig9")).rename(columns={"point": "place"})
    points = stated.drop_duplicates("place").set_index(["m", "n", "k"])["place"]
    stated = stated[stated["gpu"].isin([only] if only else stated["gpu"])].assign(
        panel=lambda said: spmm.here.name if only else said["gpu"], line=lambda said: said["library"]
    )
    rows = (
        df[RECORD]
        .join(by(df, "cublas", key=PLACE).rename("dense"), on=PLACE)
        .join(points, on=["m", "n", "k"])
        .assign(speedup=lambda df: df["dense"] / df["median_us"], panel=spmm.here.name, line=df["variant"])
    )
    both = joined(rows[rows["variant"] != "cublas"].drop(columns="dense"), stated)
    ideal = both.drop_duplicates(["panel", "density", "place"]).assign(line="ideal, M/N", source="ideal", variant=None)
    return worded(pd.concat([both, ideal.assign(speedup=1 / ideal["density"])], ignore_index=True))


def llama_means(points: pd.DataFrame) -> pd.DataFrame:
    """Return geometric means and ranges of the speedups at each sparsity. points: `llama_points`."""
    return (
        points.groupby(["source", "panel", "line", "density"], sort=False)["speedup"]
        .agg(points="count", least="min", most="max", mean=records.geomean)
        .reset_index()
        .assign(low=lambda df: df["least"], high=lambda df: df["most"], variant=lambda df: df["line"])
        .pipe(worded)
        .rename(columns={"panel": "gpu", "line": "contender"})
    )


def llama(df: pd.DataFrame, fig9: pd.DataFrame) -> pd.DataFrame:
    """Return geometric means over the layers of Llama by sparsity, beside the published ones of the A100."""
    theirs = model.published_speedups(where(fig9, gpu="A100")).groupby(["density", "library"])["speedup"]
    return (
        pd.DataFrame(
            {v: by_density(over(df, v, "cublas")) for v in ("auto", "v3", "nmsparse_vw32")}
            | {f"{v} over it": by_density(over(df, v, "nmsparse_vw32")) for v in ("auto", "v3")}
        )
        .join(theirs.agg(records.geomean).unstack())
        .reset_index()
        .assign(sparsity=lambda df: df["density"].map(sparsity), ideal=lambda df: 1 / df["density"])
    )


# ---------------------------------------------------------------- against the authors' kernels


def anchors(spmm: Spmm, df: pd.DataFrame) -> pd.DataFrame:
    """Return speedups over cuBLAS at each shape of the anchors and their geometric means.

    Ours, and in another run the authors' own kernels; over: `auto` over their NM-SpMM; points: of a mean.
    """
    us, theirs = pivot(df, "median_us", PLACE), spmm.others("anchors").numbers()
    wide = us.rdiv(us["cublas"], axis=0)[["auto", *OURS.values()]].join(
        theirs.pivot(index=PLACE, columns="library", values="speedup")[[*OURS]]
    )
    means = (
        wide.groupby(level="density", sort=False)
        .agg(records.geomean)
        .reset_index()
        .assign(points=len(wide.groupby(["m", "n", "k"])), shape="geometric mean")
    )
    return (
        pd.concat([wide.assign(shape=[shape(at[:3]) for at in wide.index]).reset_index(), means], ignore_index=True)
        .assign(over=lambda df: df["auto"] / df["nm_spmm"], sparsity=lambda df: df["density"].map(sparsity))
        .melt([*PLACE, "points", "over", "sparsity", "shape"], var_name="contender", value_name="speedup")
        .assign(
            variant=lambda df: df["contender"].replace(OURS),
            over=lambda df: df["over"].where(df["contender"] == "auto"),
            source=lambda df: np.where(df["contender"].isin([*OURS]), "stated", "measured"),
        )
    )


def against_authors(anchored: pd.DataFrame, theirs: pd.DataFrame) -> pd.DataFrame:
    """Return `auto` and the authors' kernels at 4096³, and over all shapes, by sparsity."""
    auto = model.against(anchored, theirs)["auto"].dropna()
    big = where(theirs, m=BIG, n=BIG, k=BIG, library="nm_spmm")
    return (
        pd.DataFrame(
            {"all": by_density(auto), "theirs": big.set_index("density")["speedup"], "over": model.at_big(auto)}
        )
        .sort_index(ascending=False)
        .assign(auto=lambda df: df["theirs"] * df["over"], sparsity=lambda df: df.index.map(sparsity))
    )


def side_by_side(beside: pd.DataFrame) -> pd.DataFrame:
    """Return our rebuildings over the authors' own kernels in one run: means and ranges. beside: rebuilt.csv."""
    return (
        beside.groupby(["density", "library"], sort=False)["speedup"]
        .agg(lambda own: f"{records.geomean(own):.2f}× ({own.min():.2f} to {own.max():.2f})")
        .unstack()
        .sort_index(ascending=False)
        .rename(index=sparsity)
        .reset_index(names="sparsity")
    )


# ---------------------------------------------------------------- our ladder


def predictions(outcome: pd.DataFrame) -> pd.DataFrame:
    """Return each rung with what was predicted and what came, in words. outcome: `Spmm.outcome`."""
    return outcome.assign(
        came=[
            f"{r.came:.2f}× over `{r.over}` at {r.at}; all: {r.low:.2f} to {r.high:.2f}×" for r in outcome.itertuples()
        ]
    )


def sustained(stepwise: pd.DataFrame, fma: float, rungs: list[str]) -> pd.DataFrame:
    """Return TFLOP/s and share of the FMA ceiling of V3, our rungs and `auto`, by sparsity."""
    rate = rates(stepwise)[["v3", *[v for v in rungs if v in set(stepwise["variant"])], "auto"]]
    return (rate.map("{:.1f}".format) + (rate / fma).map(" ({:.0%})".format)).rename(index=sparsity).T.reset_index()


@given
def trial_points(trials: pd.DataFrame) -> pd.DataFrame:
    """Return what came of each trial, and the factor that was expected. trials: `Spmm.trials`."""
    return trials.assign(expected=trials["factor"], sparsity=trials["density"].map(sparsity))[
        ["trial", "density", "sparsity", "expected", "came"]
    ]


@given
def trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Return what each trial was, and what came by sparsity. trials: `Spmm.trials`."""
    return (
        trials.assign(density=trials["density"].map(sparsity))
        .pivot_table("came", ["trial", "idea", "expected"], "density", sort=False)
        .reset_index()
    )


def counters(counted: pd.DataFrame) -> pd.DataFrame:
    """Return what the counters say at 50 and 87.5% sparsity. counted: `Spmm.counted`."""
    return (
        counted[counted["density"].isin(DENSITIES)]
        .sort_values("density", ascending=False, kind="stable")
        .assign(sparsity=lambda rows: rows["density"].map(sparsity))
    )


# ---------------------------------------------------------------- beyond the paper


def few_tiles(anchored: pd.DataFrame, sms: int) -> pd.DataFrame:
    """Return µs where there are fewer tiles of 64 × 128 than SMs."""
    us = model.few_tiles(anchored, sms)
    return placed(us.rename(columns={v: f"{v} [µs]" for v in us.columns[1:]}))


def few_tiles_gain(anchored: pd.DataFrame, sms: int) -> pd.DataFrame:
    """Return how many times as fast as V3 each contender is where there are fewer tiles of 64 × 128 than SMs."""
    us = model.few_tiles(anchored, sms)
    return (
        us.rdiv(us["v3"], axis=0)
        .drop(columns=["tiles", "v3"])
        .set_axis(placed(us)[["shape", "sparsity"]].agg(" · ".join, axis=1))
        .rename_axis(index="row", columns="variant")
        .stack()
        .rename("value")
        .reset_index()
    )


def roofline(spmm: Spmm, counted: pd.DataFrame) -> pd.DataFrame:
    """Return useful TFLOP/s over FLOP per byte, by Eq. 3 and as counted, under the measured ceilings.

    Counted of DRAM, L2 and shared memory. With the shares of its peak that the source states, at our intensity under
    our ceiling.
    """
    df = (
        where(counted, variant=["auto", "v3", "nmsparse_vw32", "cublas"])
        .rename(columns={"us": "time_us"})
        .loc[lambda df: ~df["variant"].str.startswith("cublas") | ~df.duplicated("variant")]
        .assign(
            **{"m": BIG, "n": BIG, "k": BIG},
            dram=lambda df: df["useful_flops"] / df["dram_bytes"],
            l2=lambda df: df["useful_flops"] / df["l2_bytes"],
            shared=lambda df: df["useful_flops"] / df["shared_bytes"],
        )
    )
    both = joined(df, model.peak_shares(spmm).assign(tflops=lambda said: said["stated"] * spmm.fma)).join(
        pd.Series(model.by_eq3(spmm)).rename_axis(["variant", "density"]).rename("eq3"), on=["variant", "density"]
    )
    roofs = [
        (
            both.assign(intensity=both[column], memory=panel).dropna(subset=["intensity"]),
            pd.DataFrame(
                [{"tflops": spmm.fma, "variant": "FMA"}]
                + [{"variant": name, "slope": spmm.gbps[name] / 1e3} for name in memories]
            ).assign(source="ceiling", memory=panel),
        )
        for panel, (column, memories) in ROOFS.items()
    ]
    return pd.concat([df for panel in roofs for df in panel], ignore_index=True)


def roofline_shares(spmm: Spmm, counted: pd.DataFrame) -> pd.DataFrame:
    """Return the share of the FMA ceiling by contender and sparsity, while profiled, beside what the source states."""
    tflops = counted.pivot(index="variant", columns="density", values="tflops")
    shown = tflops.loc[["auto", "v3", "nmsparse_vw32"], list(SPARSITIES)] / spmm.fma
    theirs = (
        model.peak_shares(spmm)
        .pivot(index="variant", columns="density", values="stated")
        .reindex_like(shown)
        .map(" (paper: {:.0%})".format, na_action="ignore")
        .fillna("")
    )
    return (shown.map("{:.0%}".format) + theirs).rename(columns=sparsity).reset_index()


def vectors(spmm: Spmm, df: pd.DataFrame) -> pd.DataFrame:
    """Return useful TFLOP/s over the vector length, by window, sparsity and contender, under the FMA ceiling."""
    rows = useful(df).sort_values("density", ascending=False, kind="stable")
    rows[["window", "vector"]] = [model.pattern(label) for label in rows["label"]]
    return joined(rows, rows.iloc[:0], rows.drop_duplicates(["variant", "density"]).assign(tflops=spmm.fma, window=0))


def ragged(df: pd.DataFrame) -> pd.DataFrame:
    """Return TFLOP/s of V3 and `auto`, and speedups, at sizes that no tile divides."""
    return placed(
        pivot(df, "tflops", POINT).assign(
            **{"auto over cuBLAS": over(df, "auto", "cublas"), "over V3": over(df, "auto", "v3")},
            **{"V3 over cuBLAS": over(df, "v3", "cublas")},
        )
    )


def unstructured(loose: pd.DataFrame) -> pd.DataFrame:
    """Return speedups over cuSPARSE's best algorithm."""
    df = records.best_of(loose)
    return placed(
        pd.DataFrame(
            {v: over(df, v, "cusparse_best") for v in ("auto", "v3", "nmsparse_vw32", "nm_baseline", "cublas")}
        )
    )


@given
def tensor(df: pd.DataFrame) -> pd.DataFrame:
    """Return speedups of the tensor-core kernels over dense cuBLAS of the same type, over M/N, which is the ideal."""
    return model.compared(df).assign(
        ideal=lambda rows: 1 / rows["density"],
        line=lambda rows: [
            f"L = {vector}, {shape(size)}" for vector, *size in rows[["vector", "m", "n", "k"]].to_numpy()
        ],
    )


def failed(verdicts: pd.DataFrame) -> pd.DataFrame:
    """Return claims that were not reproduced or do not carry over, with the reasons."""
    return (
        where(verdicts, verdict=[NOT_REPRODUCED, NOT_CARRIED])
        .astype(str)
        .assign(why=lambda df: df["reason"].where(df["reason"] != "", df["why"]))
    )
