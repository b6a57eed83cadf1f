"""What the chapter shows.

Its tables, those behind its figures, and pictures drawn by code (Figs. 1 to 4 of the paper); tables.toml and
figures.toml say how. What was not measured is None, or NaN.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from artifact.book.study import Study, by, given, pivot, where
from artifact.book.text import shape, times
from artifact.drawing import plot, sketch
from artifact.drawing.compiled import HOPPER
from artifact.drawing.style import BASELINE, BEST, BOUND, CLAIM, INK, PUBLISHED, ROWS, RUNGS, WIDTH
from artifact.measure import apart, records
from artifact.systems.async_sparse import experiments, scripts
from artifact.systems.async_sparse.experiments import (
    AUTO_FP32,
    AUTO_TF32,
    BEFORE,
    BELL,
    BLOCK,
    BRANCHES,
    BSR,
    CALLED,
    CSR,
    DENSE,
    EXACT,
    KEPT,
    LADDER,
    OURS,
    STEPS,
    TILES,
    TORCH,
    TRITON,
    UNION,
    WCSR,
    WHOLE,
    WINDOWS,
    N,
    called,
    filled,
    means,
    name,
    over,
    padded,
    side,
    sized,
    speedups,
    until_even,
)
from artifact.systems.async_sparse.facts import ACCURATE, LAYER, MILLION, SLOW
from kernels import async_sparse, splitmix
from kernels.async_sparse import any_csr, family, operands
from kernels.async_sparse.subwarp import Subwarp
from kernels.async_sparse.windows import Union
from kernels.autotune import knobs
from kernels.formats import bcsr, csr, reorder, wcsr

#: Instructions that tell the kernels apart.
OPS = ["FFMA", "HGMMA", "UTMALDG", "BAR", "ATOMG", "REDG"]
SHOWN = (WCSR, WHOLE, WINDOWS, AUTO_TF32, KEPT, TRITON, BELL, BSR, CSR)  #: of a table in TF32
#: Row of Table I -> our contender.
OF_TABLE1 = {"WCSR": WCSR, "BCSR": KEPT, "TorchAO": TRITON, "cuSPARSE": BELL}
#: Of a table in TF32: who computes otherwise.
OTHERWISE = {CSR: ", in FP32", TRITON: ", summed in FP64"}
#: Preprocessing is compared of these, in either record.
PREPARED = (WCSR, WINDOWS, AUTO_TF32, UNION, EXACT, AUTO_FP32)
#: Table I's: matrices that are denser than each.
DENSITIES = {"all": 0.0, **{f"> {plot.percent(d)}": d for d in (0.001, 0.005, 0.01)}}
#: What the source says of an H100 (Fig. 1, section IV).
SOURCE = {"SMs": "132", "L2": "50 MB", "memory": "80 GB, section IV: 96 GB", "from memory": "3.35 TB/s"}
PADDING: dict[str, Any] = {"edgecolor": BOUND, "linewidth": 0.5, "hatch": "//////", "alpha": 0.7}
FILLED: dict[str, Any] = {"fill": True, "facecolor": INK, "linewidth": 0}
THIN = {"linewidth": 0.5, "alpha": 0.35}
Drawn = tuple[Any, pd.DataFrame]
CLASSES = [0, 10_000, 100_000, 1_000_000, np.inf]  #: of non-zeros


def _named(df: pd.DataFrame) -> pd.Series:
    return df["variant"].map(name)


# ---------------------------------------------------------------- kernels


def ideas(shown: Iterable[str], bases: Mapping[str, str], **records_of: pd.DataFrame | None) -> pd.DataFrame:
    """Return idea, prediction and author of the kernels that there are, and what came of each on real matrices.

    The speedup over its base by each record. bases: kernel -> whom it is to gain over; records_of: column -> record.
    """
    offered = {v: async_sparse.VARIANTS[v] for v in shown if v in async_sparse.VARIANTS}
    return pd.DataFrame(
        [(v, k.idea, times(k.prediction) or None, "the paper" if k.published else "ours") for v, k in offered.items()],
        columns=["variant", "idea", "predicted", "by"],
    ).assign(**{column: [over(df, v, bases.get(v)) for v in offered] for column, df in records_of.items()})


def compiled(report: pd.DataFrame, shown: Iterable[str] = LADDER) -> pd.DataFrame:
    """Return what each kernel compiles to for Hopper; report: the system's compile report."""
    of = where(report, target=HOPPER, variant=shown).groupby("variant")
    table = (
        of[[op for op in (*OPS, "instructions") if op in report]]
        .max()
        .assign(
            kernels=of.size(),
            registers=of["registers"].agg(lambda r: " to ".join(map(str, dict.fromkeys([r.min(), r.max()])))),
            spills=of["spills"].sum().astype(int),
        )
        .replace(0, np.nan)
    )
    return table.reindex([v for v in shown if v in table.index]).dropna(axis=1, how="all").reset_index()


# ---------------------------------------------------------------- the ablation and its sweeps


def implied(table2: pd.DataFrame) -> pd.DataFrame:
    """Return of Table II the rate of cuSPARSE that each stated speedup is over."""
    return experiments.implied(table2).reset_index().assign(kernel=_named)


@given
def ablation(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of each step over cuSPARSE Blocked-ELL, at each matrix, and the stated one (Fig. 6)."""
    data = speedups(df, (*STEPS, *BRANCHES, CSR, BSR, TRITON, *OURS), BELL)
    return plot.behind(
        data, where(experiments.over_bell(table2).rename("speedup").reset_index(), variant=data["variant"])
    )


def table2(df: pd.DataFrame | None, stated: pd.DataFrame) -> pd.DataFrame:
    """Return Table II, and beside it the geometric means here; without a record its own columns alone."""
    order = [*LADDER, TRITON, BSR, CSR, BELL]
    told, bases = experiments.over_bell(stated).reindex(order), {v: BEFORE.get(v) for v in order}
    found = {
        "stated": where(stated, quantity="tflops").drop_duplicates("variant").set_index("variant")["low"],
        "stated_over": told,
        "stated_step": told / told.reindex(bases.values()).to_numpy(),
    }
    if df is not None:
        found |= {
            "here": df.groupby("variant")["tflops"].agg(records.geomean),
            "over": means(df, order[:-1], BELL),
            "step": pd.Series({v: over(df, v, base) for v, base in bases.items()}),
            "matrices": df["variant"].value_counts(),
        }
    return pd.DataFrame(found).reindex(order).dropna(how="all").reset_index(names="variant").assign(kernel=_named)


@given
def by_size(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of each step over cuSPARSE Blocked-ELL by classes of non-zeros of a matrix, and the stated."""
    table = sized(df, LADDER, BELL).pivot_table(
        "speedup", "variant", "size", records.geomean, observed=True, sort=False
    )
    table.columns = [f"{size} non-zeros" for size in table]
    return table.assign(stated=experiments.over_bell(table2)).reset_index().assign(kernel=_named)


@given
def special(df: pd.DataFrame) -> pd.DataFrame:
    """Return what warp specialisation is worth, opt3 over opt2, at each matrix by its non-zeros."""
    return sized(df, ["opt3"], "opt2")


@given
def as_the_source(cold: pd.DataFrame, warm: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over Blocked-ELL by this book's protocol and by the source's, on the same matrices."""
    here, there = (means(df[df["label"].isin(warm["label"])], LADDER, BELL) for df in (cold, warm))
    return (
        pd.DataFrame({"cold": here, "warm": there, "stated": experiments.over_bell(table2)})
        .loc[here.index]
        .reset_index(names="variant")
        .assign(kernel=_named)
    )


@given
def gate_as_the_source(cold: pd.DataFrame, warm: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """Return latencies of the layer (ms) by both protocols, and stated, where the source's protocol was measured."""
    at, who = ["n", "density"], {KEPT: "kernel", TORCH: "dense"}
    found = {
        f"{name}_{how}": by(df, variant, key=at) / 1e3
        for variant, name in who.items()
        for how, df in (("cold", cold), ("warm", warm))
    }
    said = where(stated, quantity="latency")
    found |= {f"{name}_stated": by(said, variant, "low", at) for variant, name in who.items()}
    return pd.DataFrame(found).dropna().sort_index(ascending=[True, False]).reset_index()


@given
def shares(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return what each step adds from opt0 to opt4, as a share of the whole.

    By difference of speedups, as the source counts, and by factor; stated and measured.
    """
    found = {"stated": experiments.over_bell(table2), "measured": means(df, STEPS, BELL)}
    return (
        pd.concat({source: experiments.shares(of) for source, of in found.items()}, names=["source", "step"])
        .reset_index()
        .melt(["source", "step"], ["by difference", "by factor"], "counted", "share")
    )


@given
def tiles(df: pd.DataFrame, text: pd.DataFrame) -> pd.DataFrame:
    """Return the throughput over WGMMA_N and the work beyond N (Fig. 7), with stated values.

    Geometric mean and quartiles over the matrices: `value`, from `least` to `most`, of `what`.
    """
    of = df.groupby(df["variant"].map(TILES).rename("width"))["tflops"]
    data = (
        pd.DataFrame({"tflops": of.agg(records.geomean), "low": of.quantile(0.25), "high": of.quantile(0.75)})
        .reset_index()
        .assign(extra=lambda df: padded(df["width"]) / N - 1)
    )
    said = (
        where(text, quantity="tflops")
        .dropna(subset=["size"])[["size", "low"]]
        .set_axis(["width", "tflops"], axis=1)
        .assign(what="useful TFLOP/s", value=lambda said: said["tflops"])
    )
    return plot.behind(
        pd.concat(
            [
                data.assign(what="useful TFLOP/s", value=data["tflops"], least=data["low"], most=data["high"]),
                data.assign(what="work beyond N (%)", value=100 * data["extra"]),
            ]
        ),
        said,
    ).assign(variant=KEPT)


# ---------------------------------------------------------------- a layer, and past it


@given
def gate(df: pd.DataFrame, table3: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return speedups over dense cuBLAS by N and the share of kept blocks, in per cent.

    With their limit, and the stated ones (Table III).
    """
    dense = where(df, variant=TORCH)
    # The dense rate for the blocks that are left, or each operand moved once, whichever takes longer.
    least = np.fmax(dense["median_us"] * dense["density"], dense["least_bytes"] / study.ceiling("copy", "gbps") / 1e3)
    limit = dense[["n", "density"]].assign(limit=dense["median_us"] / least)
    data = speedups(df, LAYER, TORCH).merge(limit, on=["n", "density"], how="left")
    found = pd.concat([data, limit.assign(variant="limit", speedup=limit["limit"])])
    stated = where(table3, quantity="speedup_cublas").rename(columns={"low": "speedup"})
    found = plot.behind(found, stated[["variant", "n", "density", "speedup"]])
    return found.assign(kept=100 * found["density"], N=found["n"].astype(int)).sort_values("n", kind="stable")


@given
def table3(df: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """Return Table III: speedups over dense cuBLAS, stated and here, by N and share of blocks."""
    key = ["n", "density"]
    return (
        speedups(df, LAYER, TORCH)
        .pivot(index=key, columns="variant", values="speedup")
        .assign(
            stated=where(stated, quantity="speedup_cublas").set_index(key)["low"], dense_ms=by(df, TORCH, key=key) / 1e3
        )
        .sort_index(ascending=[True, False])
        .reset_index()
    )


@given
def ladder(df: pd.DataFrame, table3: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of every kernel over dense cuBLAS at one point, and its gain over the one before.

    With what was predicted before it was measured, and what the source states of the one that it keeps, at that point.
    """
    mean, base = means(df, LADDER, TORCH), pd.Series(BEFORE)
    said = (
        where(table3, quantity="speedup_cublas", n=df["n"].unique())
        .loc[lambda said: np.isclose(said["density"], df["density"].median(), rtol=0.05)]
        .assign(variant=KEPT)
        .rename(columns={"low": "speedup"})
    )
    return plot.behind(
        pd.DataFrame({"speedup": mean, "over": base.reindex(mean.index)})
        .assign(
            gain=mean / base.map(mean).reindex(mean.index),
            prediction=[times(async_sparse.VARIANTS[variant].prediction) for variant in mean.index],
            stated=said.set_index("variant")["speedup"],
        )
        .reset_index(names="variant"),
        said[["variant", "speedup"]],
    )


@given
def bounds(df: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return what bounds auto on gate_proj: the least time by each unit at its measured peak, and the time.

    DRAM moves every operand once. L2 delivers, for each block and panel of 512 columns, a block of A and its 64 rows
    of B; B and C pass it on their way from and to DRAM, too. Tensor cores multiply what is stored.
    """
    df = where(df, variant="auto").query("n >= 16384")
    through_l2 = (
        df["nnz"] / BLOCK**2 * df["n"] / operands.TILE * (BLOCK + operands.TILE) * BLOCK * 2 + df["least_bytes"]
    )
    least = {
        "dram": df["least_bytes"] / study.ceiling("copy", "gbps") / 1e3,
        "l2": through_l2 / study.ceiling("l2_read", "gbps") / 1e3,
        "tensor": df["useful_flops"] / study.ceiling("wgmma", "tflops") / 1e6,
    }
    return df.assign(**least, share=pd.DataFrame(least).max(axis=1) / df["median_us"])


@given
def tried(df: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations that did not become unit_ring.

    Its time over theirs, by the share of blocks that is kept.
    """
    us = pivot(df, "median_us", "density").T
    return (
        (us.loc["unit_ring"] / us)
        .drop(index="unit_ring")
        .rename(columns="{:.0%} kept".format)
        .assign(instead=lambda table: [family.TRIALS[variant][1] for variant in table.index])
    )


@given
def blocks(df: pd.DataFrame) -> pd.DataFrame:
    """Return useful TFLOP/s over the side of a block, the same share of blocks kept."""
    return where(df, variant=("auto", TRITON, BSR)).assign(side=lambda df: side(df["label"]))


@given
def layers(df: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over dense cuBLAS at each shape and density."""
    data = speedups(df, LAYER, TORCH)
    return data.assign(
        problem=[f"{m} × {n} × {k}, {d:.0%}" for m, n, k, d in data[["m", "n", "k", "density"]].itertuples(index=False)]
    )


@given
def beside_dense(df: pd.DataFrame) -> pd.DataFrame:
    """Return auto at each point, its shape and what its values are, and its speedup over the dense library."""
    found = where(df, variant="auto").merge(speedups(df, ["auto"], DENSE), on=["variant", *records.POINT], how="left")
    return found.assign(
        values=found["label"].str.split(",").str[0].map({"float16": "FP16", "tf32": "TF32"}).fillna("BF16"),
        shape=[shape(sizes) for sizes in found[["m", "n", "k"]].values.tolist()],
    )


# ---------------------------------------------------------------- real matrices in CSR


def table1(df: pd.DataFrame | None, stated: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return Table I at one N.

    Geometric-mean TFLOP/s in TF32 over the matrices denser than a share, and in brackets the speedup of WCSR over that
    kernel; as measured here, and below it as stated.
    """
    said = (
        where(stated, n=n)
        .pivot(index=["kernel", "density"], columns="quantity", values="low")
        .reset_index()
        .assign(variant=lambda said: said["kernel"].replace(OF_TABLE1), source="stated")
    )
    known = [said]
    denser = {} if df is None else {d: where(df[filled(df) > d], n=n) for d in DENSITIES.values()}
    for d, here in denser.items():
        rates = here.groupby("variant")["tflops"].agg(records.geomean).reset_index()
        known.append(rates.assign(wcsr_speedup=[over(here, WCSR, v) for v in rates["variant"]], density=d))
    table = pd.concat(known).fillna({"source": "here"})
    wide = table.assign(
        cell=table["tflops"].map("{:.2f}".format)
        + table["wcsr_speedup"].map(" ({:.2f}×)".format, na_action="ignore").fillna("")
    ).pivot(index=["variant", "source"], columns="density", values="cell")
    wide = wide.loc[[v for v in dict.fromkeys((*SHOWN, *said["variant"])) if v in wide.index]].reset_index()
    return wide.assign(kernel=[called(v) + OTHERWISE.get(v, "") for v in wide["variant"]]).rename(
        columns={d: head for head, d in DENSITIES.items()}
    )


@given
def matrices(df: pd.DataFrame) -> pd.DataFrame:
    """Return how many matrices stand behind each threshold of Table I, and behind those that not all fit."""
    parts = [df[filled(df) > d] for d in DENSITIES.values()]
    return pd.DataFrame(
        {
            "density": list(DENSITIES),
            "matrices": [part["label"].nunique() for part in parts],
            **{v: [where(part, variant=v)["label"].nunique() for part in parts] for v in (BELL, TRITON, BSR)},
        }
    )


@given
def fig5(df: pd.DataFrame, table1: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over cuSPARSE's Blocked-ELL and its fastest CSR algorithm, and what is stated (Fig. 5)."""
    here = [speedups(df, SHOWN, base).assign(over=base, source="measured") for base in (BELL, CSR)]
    rates = where(table1, quantity="tflops", density=0).pivot(index="kernel", columns="n", values="low")
    stated = (rates / rates.loc["cuSPARSE"]).drop("cuSPARSE").stack().rename("speedup").reset_index()
    known, order = stated.assign(over=BELL, source="stated"), [*SHOWN, *rates.index]
    return (
        pd.concat([*here, known.rename(columns={"kernel": "variant"})], ignore_index=True)
        .query("variant != over")
        .assign(contender=lambda df: df["variant"].replace(OF_TABLE1), base=lambda df: df["over"].map(CALLED))
        .sort_values(["n", "over", "contender"], key=lambda c: c.map(order.index) if c.name == "contender" else c)
    )


@given
def over_csr(df: pd.DataFrame, variants: Iterable[str]) -> pd.DataFrame:
    """Return each contender over cuSPARSE's CSR, matrix by matrix, at each N.

    Geometric mean, least, and how often slower.
    """
    found = speedups(df, variants, CSR)
    parts = found.assign(slow=found["speedup"] < SLOW).groupby(["variant", "n"], sort=False)
    return (
        parts["speedup"]
        .agg(mean=records.geomean, least="min", most="max", at="idxmin")
        .assign(slow=parts["slow"].agg(lambda slow: f"{slow.sum()} of {len(slow)}"))
        .reset_index()
        .assign(kernel=lambda table: table["variant"].map(called), matrix=lambda table: table["at"].map(found["label"]))
    )


def peers(found: pd.DataFrame) -> pd.DataFrame:
    """Return what WCSR is over each of other people's kernels at each N: geometric mean, least, most, and their errors.

    Apart for matrices of a million non-zeros and more.
    """
    names = {of: source for source, of in OF_TABLE1.items()} | {"cusparse_csr": "cuSPARSE CSR, in FP32"}
    size = np.where(found["nnz"] >= MILLION, "≥ 10⁶", "< 10⁶")
    table = found.assign(size=size, library=found["library"].replace(names)).groupby(["size", "library", "n"])
    return (
        table["speedup"]
        .agg(matrices="size", mean=records.geomean, least="min", most="max")
        .assign(error=table["error"].max())
        .reset_index()
    )


# ---------------------------------------------------------------- choices, errors, costs


def tasks() -> pd.DataFrame:
    """Return the speed with at most 1, 2 and 4 tasks a warp over that with 8, by what a task loads of B in KiB."""
    df = scripts.gains(apart.read(scripts.TASKS))
    return pd.concat([df.assign(most=f"at most {most}", gain=df[f"gain_{most}"]) for most in (1, 2, 4)]).assign(
        kib=lambda df: df["loaded"] / 1024
    )


def few(df: pd.DataFrame) -> pd.DataFrame:
    """Return the speedups of few columns with what a figure calls their number; df: `facts.proposed`."""
    return df.assign(columns=df["n"].map("N = {}".format), variant=AUTO_FP32)


def decisions(alike: float = 1.5) -> pd.DataFrame:
    """Return for ranges of N, and rows alike and unlike, the one kernel of float32's accuracy that loses least.

    alike: non-zeros that a column of four rows has. n, rows, points, kernel, over and worst (of its times over the
    best kernel's, geometric mean and largest), ahead (of cuSPARSE's fastest, geometric mean).
    """
    measured, of = scripts.read().query("dtype == 'tf32'"), apart.read(scripts.STATISTICS).set_index("matrix")
    configs, at = {knobs(c): c for c in any_csr.POOLS["fp32"]}, ["matrix", "n"]
    theirs = measured[measured["config"].str.startswith("cusparse")].groupby(at)["us"].min()
    df = measured[measured["config"].isin(configs)].join(theirs.rename("library"), on=at)
    df["over"] = df["us"] / df.groupby(at)["us"].transform("min")
    df["range"] = pd.cut(df["n"], [0, 1, 16, any_csr.FEW, np.inf], labels=["1", "2 to 16", "17 to 128", "more"])
    df["rows"] = np.where(df["matrix"].map(of["nnz"] / of["columns_4"]) > alike, "alike", "unlike")
    found = []
    for (n, rows), cell in df.groupby(["range", "rows"], observed=True):
        points = len(cell.drop_duplicates(at))
        full = cell.groupby("config").filter(lambda x, points=points: len(x) == points)
        config = full.groupby("config")["over"].agg(records.geomean).idxmin()
        best = full[full["config"] == config]
        over, ahead = records.geomean(best["over"]), records.geomean(best["library"] / best["us"])
        found.append((n, rows, points, _in_words(configs[config]), over, best["over"].max(), ahead))
    return pd.DataFrame(found, columns=["n", "rows", "points", "kernel", "over", "worst", "ahead"])


def _in_words(config: any_csr.Config) -> str:
    """Return a configuration for CSR as a table calls it."""
    if isinstance(config, Subwarp):
        how = f"the longest rows first, {config.rounds} rounds" if config.rounds else f"{config.slots} slots a row"
        return f"subwarp, groups of {config.rows}, {how}" if config.rows > 1 else f"subwarp, {how}"
    kind = f"union_rows, groups of {config.rows}" if isinstance(config, Union) else f"windows of {config.window}"
    return kind + " similar rows" * (config.order != "")


def neighbours() -> pd.DataFrame:
    """Return what neighbours.csv beside the system has: time, DRAM's bytes, hits in L2."""
    return apart.read(scripts.NEIGHBOURS).assign(
        gb=lambda df: df["dram_read_bytes"] / 1e9,
        mesh=lambda df: df["side"].map("{}³".format),
        of_b=lambda df: df["gb"] * 1e9 / (4 * df["n"] * df["side"] ** 3),
    )


@given
def winners(maps: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return who is ahead at each matrix; maps: of `facts.maps`."""
    return pd.concat(df.assign(values=values, winner=df["winner"].astype(str)) for values, df in maps.items())


def _both(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([tf32.assign(values="TF32"), float32.assign(values="float32")], ignore_index=True)


@given
def accuracy(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return error against float64 and speed of each method.

    Geometric means over matrices and N with quartiles, speed over cuSPARSE's CSR in the same experiment. TF32's values
    hold 11 bits, so rounding operands is in no error.
    """
    df = pd.concat(
        {
            "float32 values": speedups(float32, ACCURATE["float32"], CSR).merge(float32),
            "values that TF32 holds": speedups(tf32, (*ACCURATE["tf32"], AUTO_TF32), CSR).merge(tf32),
        },
        names=["values"],
    ).assign(rel_err=lambda df: df["rel_err"].clip(lower=1e-12))
    of = df.rename(columns={"rel_err": "err"}).groupby(["values", "variant"], sort=False)[["err", "speedup"]]
    ends = [of.quantile(share).add_suffix(f"_{end}") for end, share in (("low", 0.25), ("high", 0.75))]
    return of.agg(records.geomean).join(ends).rename(columns={"err": "rel_err"}).reset_index()


@given
def errors(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return the relative error of every contender against float64, its largest and that of an element.

    With what the values were.
    """
    of = _both(float32, tf32).groupby(["values", "variant"], sort=False)
    return _in_order(
        of["rel_err"].agg(["median", "max"]).assign(element=of["max_err"].max()),
        dict.fromkeys((*SHOWN, UNION, EXACT, AUTO_FP32)),
    ).assign(kernel=lambda df: df["variant"].map(called))


@given
def pays_off(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return after how many multiplications preparing a matrix has paid, over cuSPARSE's CSR.

    cuSPARSE's own preparation counts. By N: the median of the matrices on which it pays, and on how many it never does,
    since it is not faster.
    """
    df, at = _both(float32, tf32), ["values", *records.POINT]
    df = where(df, variant=PREPARED).merge(
        where(df, variant=CSR)[[*at, "median_us", "prepare_ms"]], on=at, suffixes=("", "_base")
    )
    df = df.assign(
        count=until_even((df["median_us_base"] - df["median_us"]) / 1e3, df["prepare_ms"] - df["prepare_ms_base"])
    )
    return _in_order(
        df.groupby(["values", "variant", "n"])["count"]
        .agg(_often)
        .unstack()
        .add_prefix("N = ")
        .assign(ms=df.groupby(["values", "variant"])["prepare_ms"].median()),
        PREPARED,
    ).assign(kernel=_named)


def _in_order(table: pd.DataFrame, variants: Iterable[str]) -> pd.DataFrame:
    """Return a table by values and contender, TF32's first, contenders as given."""
    return table.loc[[at for at in product(("TF32", "float32"), variants) if at in table.index]].reset_index()


def _often(count: pd.Series) -> str:
    never = np.isinf(count).sum()
    paid = "–" if never == len(count) else f"{np.ceil(count[count < np.inf].median()):,.0f}"
    return paid + f"<br><small>{never} of {len(count)} never</small>" * bool(never)


def planned() -> pd.DataFrame:
    """Return by non-zeros what a plan costs, and after how many multiplications it has paid."""
    ends = [f"from {plot.number(low)} to {plot.number(high)}" for low, high in zip(CLASSES, CLASSES[1:], strict=False)]
    df = scripts.paid(apart.read(scripts.PLANS)).assign(over=lambda df: df["cusparse_us"] / df["us"])
    sizes = pd.cut(df["nnz"], CLASSES, right=False, labels=[end.removesuffix(" to infM") for end in ends])
    return (
        df.groupby(sizes.rename("size"), observed=True)
        .agg(
            **{"matrices": ("us", "size"), "plan_us": ("plan_us", "median"), "over": ("over", records.geomean)},
            paid=("count", lambda count: np.ceil(count.median())),
            never=("count", lambda count: f"{np.isinf(count).sum()} of {len(count)}"),
        )
        .reset_index()
    )


# ---------------------------------------------------------------- pictures: Fig. 1


def machine(study: Study) -> Drawn:
    """Draw SMs, L2 and memory of the GPU that was measured, with what moves between them.

    Beside it stands what the source gives for its own.
    """
    of, sms = study.machine, int(study.machine["sm_count"])
    read = {"from shared memory": "shared_read", "from L2": "l2_read", "from memory": "copy"}
    facts = {
        "SMs": f"{sms}",
        "shared memory": f"{of['shared_bytes_per_sm'] / 2**10:.0f} KiB",
        "registers": f"{of['registers_per_sm'] / 2**8:.0f} KiB",
        "L2": f"{of['l2_bytes'] / 2**20:.0f} MiB",
        "memory": f"{of['memory_bytes'] / 1e9:.0f} GB",
        "WGMMA, all SMs": f"{study.ceiling('wgmma', 'tflops'):.0f} TFLOP/s",
        **{what: f"{study.ceiling(name, 'gbps') / 1e3:.1f} TB/s" for what, name in read.items()},
    }
    at, quarter = np.arange(sms), np.arange(4)
    inside = f"shared memory {facts['shared memory']}\n{facts['from shared memory']}, all SMs"
    rates = f"{facts['from L2']} measured", f"{facts['from memory']} measured"
    return sketch.picture(
        (-0.05, 8.0),
        (4.6, -0.05),
        (sketch.box, 3.9 + 0.185 * (at % 22), 0.2 + 0.26 * (at // 22), "", RUNGS[3], 0.15, 0.2),
        (sketch.box, 0, 0, "", RUNGS[3], 3.4, 2.3),
        (sketch.box, 0.12 + 0.8 * quarter, 0.38, "tensor\ncore", PUBLISHED, 0.74, 0.5),
        (sketch.box, 0.12, 1.0, f"registers {facts['registers']}", BEST, 2.0, 0.36),
        (sketch.box, 2.24, 1.0, "TMA", CLAIM, 1.04, 0.36),
        (sketch.box, 0.12, 1.52, inside, BASELINE, 3.16, 0.62),
        (sketch.box, 0, 2.9, f"L2 {facts['L2']}", RUNGS[1], 7.96, 0.5, 9),
        (sketch.box, 0, 4.0, f"memory {facts['memory']}", BOUND, 7.96, 0.5, 9),
        (sketch.put, 5.9, 0.2 + 0.26 * (-(-sms // 22)) + 0.18, f"{sms} SMs", {"fontsize": 9}),
        (sketch.put, 1.7, 0.18, "an SM", {"fontweight": "bold"}),
        (sketch.pointer, 1.7, [2.88, 3.98], 1.7, [2.32, 3.42], INK),
        (sketch.put, 1.82, [2.6, 3.7], rates, {"ha": "left"}),
        (sketch.put, 5.9, 2.4, f"WGMMA on all of them: {facts['WGMMA, all SMs']}"),
        height=4.2,
    ), pd.DataFrame({"what": facts, "here": facts, "the source": SOURCE}).assign(what=list(facts))


# ---------------------------------------------------------------- pictures: Fig. 2


def mesh(side: int = 8, seed: int = 0) -> csr.Csr:
    """Make neighbours and selves on a grid of side x side points, which are numbered at random.

    Symmetric, (side², side²), five non-zeros in most rows, all 1; the same for the same arguments.
    """
    number = np.argsort(
        splitmix.random_u32(splitmix.key(seed, 0), splitmix.positions(range(side * side))), kind="stable"
    )
    line, one = sp.diags_array([1.0] * 3, offsets=(-1, 0, 1), shape=(side, side)), sp.eye_array(side)
    grid = sp.coo_array(sp.kron(line, one) + sp.kron(one, line))
    return csr.from_scipy(
        sp.csr_array((np.ones(grid.nnz, np.float32), (number[grid.row], number[grid.col])), shape=grid.shape)
    )


def examples() -> dict[str, csr.Csr]:
    """Make a small mesh whose points are numbered at random, and after reverse Cuthill-McKee."""
    a = mesh()
    return {"a mesh as it comes": a, "after reverse Cuthill-McKee": reorder.permuted(a, reorder.rcm(a)[0])}


def formats(cases: Mapping[str, csr.Csr], block: int = 16, window: int = 16, pad: int = 8) -> Drawn:
    """Draw matrices, each as it is, in BCSR and in WCSR, with what both store and their fill ratios.

    cases: title -> matrix on the host, such as `examples()`, all of one size. A colour per row of blocks, or window;
    what is tinted is stored, what is hatched is WCSR's padding. The data behind it: one row per non-zero: case, row,
    column, block (its place in `val` of BCSR), window, packed (its column in `val` of WCSR).
    """
    stored = {t: (a, bcsr.from_csr(a, block=block), wcsr.from_csr(a, window=window, pad=pad)) for t, a in cases.items()}
    size = max(a.k for a in cases.values())
    lefts, step = (size + 10) * np.arange(3), size + 22
    width = lefts[2] + max(int(np.diff(w.row_ptr).max()) for *_, w in stored.values())
    edges, data, marks = np.arange(block, size, block), [], []
    for top, (title, (a, b, w)) in zip(9 + step * np.arange(len(cases)), stored.items(), strict=True):
        rows, row, wide = _places(a, b, w), bcsr.block_rows_of(b), np.diff(w.row_ptr)
        used = np.bincount(csr.owners(w.row_ptr, w.columns), np.asarray(w.col_idx) >= 0, len(wide))
        windows, in_window = np.arange(len(wide)), rows["packed"] - np.asarray(w.row_ptr)[rows["window"]]
        places = np.r_[rows["column"], lefts[1] + rows["column"], lefts[2] + in_window]
        said = (
            f"{a.m} × {a.k}, {len(rows)} non-zeros",
            f"{b.blocks} of {b.block_rows * b.block_columns} blocks of {block} × {block}",
            f"{w.columns} columns of {window}, padded to {pad}",
        )
        pointers = [f"row_ptr {' '.join(map(str, kept.row_ptr))}" for kept in (b, w)]
        fills = [f"fill {kept.nnz} / {kept.val.size} = {kept.fill_ratio:.1%}" for kept in (b, w)]
        tints = np.take(ROWS, row, mode="wrap"), np.take(ROWS, windows, mode="wrap")
        marks += [
            (sketch.segment, 0, top + edges, size, top + edges, THIN),
            (sketch.segment, edges, top, edges, top + size, THIN),
            (sketch.box, lefts[1] + b.col_idx * block, top + row * block, "", tints[0], block, block),
            (sketch.box, lefts[2], top + windows * window, "", tints[1], used, window),
            (sketch.frame, lefts[2] + used, top + windows * window, wide - used, window, PADDING),
            (sketch.frame, places, top + np.tile(rows["row"], 3), 1, 1, FILLED),
            (sketch.frame, lefts[:2], top, size, size, {"linewidth": 1}),
            (sketch.put, lefts, top - 5.6, (title, "BCSR", "WCSR"), {"ha": "left", "weight": "bold"}),
            (sketch.put, lefts, top - 2, said, {"ha": "left", "fontsize": 8}),
            # Few rows keep row_ptr short; the ratio stands with its terms.
            (sketch.put, lefts[1:], top + size + 2.6, pointers, {"ha": "left", "fontsize": 8}),
            (sketch.put, lefts[1:], top + size + 6.4, fills, {"ha": "left", "fontsize": 8}),
        ]
        data.append(rows.assign(case=title)[["case", *rows.columns]])
    return sketch.picture((-2, width + 2), (step * len(cases) - 3, -1), *marks), pd.concat(data, ignore_index=True)


def _places(a: csr.Csr, b: bcsr.Bcsr, w: wcsr.Wcsr) -> pd.DataFrame:
    """Return where each non-zero is: row, column, block, window, packed; repeated entries once."""
    row, column = np.divmod(csr.distinct(csr.rows(a) * a.k + a.col_idx), a.k)
    (b_row, b_col), window = b.block, row // w.window
    block = np.searchsorted(
        bcsr.block_rows_of(b) * b.block_columns + b.col_idx, row // b_row * b.block_columns + column // b_col
    )
    # Padding goes where no column is, behind all of its window.
    at = np.searchsorted(
        csr.owners(w.row_ptr, w.columns) * (a.k + 1) + np.where(w.col_idx < 0, a.k, w.col_idx),
        window * (a.k + 1) + column,
    )
    return pd.DataFrame({"row": row, "column": column, "block": block, "window": window, "packed": at})


# ---------------------------------------------------------------- pictures: Figs. 3 and 4


def thread_block() -> Drawn:
    """Draw Fig. 4(a): a thread block of the source's kernel.

    A producer and two consumers, a ring of three stages, and what each consumer computes.
    """
    stage, (producer, consumer, _) = experiments.STAGE, experiments.REGISTERS
    a, b = f"A\n64 × 64\n{stage['A'] // 1024} KiB", f"B\n64 × 256\n{stage['B'] // 2048} KiB"
    ring, twice = 2.35 + 0.82 * np.arange(experiments.STAGES), np.array([0.2, 1.8])
    texts = [f"warpgroup {i}\nconsumer: WGMMA\n{consumer} registers a thread" for i in (1, 2)]
    return sketch.picture(
        (-0.05, 8.0),
        (3.5, -0.1),
        (sketch.box, 0, 0.9, f"warpgroup 0\nproducer: one thread\n{producer} registers a thread", CLAIM, 1.75, 1.3),
        (sketch.box, 5.0, twice, texts, PUBLISHED, 1.6, 1.1),
        (sketch.box, 7.1, twice, "C\n64 × 256", BEST, 0.85, 1.1),
        (sketch.box, ring, 0.2, a, RUNGS[3], 0.72, 0.7),
        (sketch.box, ring, [[1.0], [1.85]], b, BASELINE, 0.72, 0.8),
        (sketch.pointer, 6.62, twice + 0.55, 7.08, twice + 0.55, INK),
        (sketch.pointer, [4.83, 4.83, 1.77], [1.4, 2.25, 1.55], [4.98, 4.98, 2.3], [0.75, 2.35, 1.55], INK),
        (sketch.pointer, [4.98, 0.9], [3.15, 2.9], [0.9, 4.98], [3.15, 2.9], BOUND),
        (sketch.put, 2.04, 1.38, "TMA"),
        (sketch.put, 2.95, 3.32, "empty[q]: a consumer has read the stage"),
        (sketch.put, 2.95, 2.76, "full[q]: both tiles have landed"),
        (sketch.put, ring + 0.36, 0.05, [f"stage {q}" for q in range(experiments.STAGES)]),
        height=3.9,
    ), pd.DataFrame({"stage": range(experiments.STAGES), "A bytes": stage["A"], "B bytes": stage["B"]}).assign(
        registers=experiments.WARPGROUP * sum(experiments.REGISTERS), shared_bytes=3 * sum(stage.values())
    )


ROLES = {"load": BASELINE, "multiply": PUBLISHED, "store": BEST}


@given
def timeline(frame: pd.DataFrame, variants: Sequence[str], steps: int = 8) -> Drawn:
    """Draw Figs.

    3 and 4(b), what warpgroups of a thread block did by clocks that they read themselves: lanes for each variant, a
    lane for each role and warpgroup, over the first steps of its loop and its stores; nanoseconds from its first row
    on. frame: of `experiments.trace`, in which a kernel has a row for each step.
    """
    first = frame[frame["block"] == frame.groupby("variant")["block"].transform("min")]
    data = where(first, variant=variants).query("step < @steps or role == 'store'")
    order = {"variant": list(variants).index, "role": list(ROLES).index, "warpgroup": int}
    data = data.sort_values(list(order), key=lambda s: s.map(order[s.name]), kind="stable")
    begin = data.groupby("variant")["begin_ns"].transform("min")
    data = data.assign(begin_ns=data["begin_ns"] - begin, end_ns=data["end_ns"] - begin)
    last = data.loc[data["role"] != "store", "end_ns"].max()
    data = data[data["begin_ns"] <= 1.05 * last].reset_index(drop=True)  # later stores would be all there is to see
    lanes = data.groupby(list(order), sort=False)
    places = (lanes.ngroup() + 1.1 * (1 + data["variant"].factorize()[0])).rename("y")
    labels = (data["role"] + ", warpgroup " + data["warpgroup"].astype(str)).groupby(places).first()
    heads = data["variant"].groupby(places).first().drop_duplicates()
    fig, ax = plt.subplots(figsize=(WIDTH, 1.2 + 0.28 * lanes.ngroups + 0.3 * len(heads)))
    tints = [(ROLES[role], 0.45 if step % 2 else 0.8) for role, step in zip(data["role"], data["step"], strict=True)]
    ax.barh(places, data["end_ns"] - data["begin_ns"], 0.8, data["begin_ns"], color=tints, linewidth=0)
    for y, head in heads.items():
        ax.text(0, y - 0.62, name(head), fontweight="bold", fontsize=8.5, va="bottom")
    ax.set_yticks(labels.index, labels, fontsize=8)
    ax.set(ylim=(places.max() + 0.6, -0.2), xlim=(0, 1.08 * last))
    ax.set_xlabel(f"ns from the start of a thread block, {steps} steps")
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    plot.legend(fig, {role: Patch(color=tint, alpha=0.8) for role, tint in ROLES.items()})
    return fig, data
