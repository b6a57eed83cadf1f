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
from matplotlib.collections import PatchCollection
from matplotlib.patches import Patch, Rectangle

from artifact.book.study import Study, by, given, pivot, where
from artifact.book.text import shape, times
from artifact.drawing import plot, sketch
from artifact.drawing.compiled import HOPPER
from artifact.drawing.style import BASELINE, BEST, BOUND, CLAIM, INK, PUBLISHED, ROWS, RUNGS, WIDTH
from artifact.measure import apart, records
from artifact.systems.async_sparse import contenders, scripts
from artifact.systems.async_sparse.contenders import (
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
    speedups,
    until_even,
)
from artifact.systems.async_sparse.facts import ACCURATE, LAYER, SLOW
from kernels import async_sparse, splitmix
from kernels.async_sparse import family, operands
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
PADDING: dict[str, Any] = {"fill": False, "edgecolor": BOUND, "linewidth": 0.5, "hatch": "//////", "alpha": 0.7}
BARE: dict[str, Any] = {"frame_on": False, "xticks": [], "yticks": []}  #: no axes
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
    rows = [
        (v, k.idea, times(k.prediction) or None, "the paper" if k.published else "ours") for v, k in offered.items()
    ]
    came = {column: [over(df, v, bases.get(v)) for v in offered] for column, df in records_of.items()}
    return pd.DataFrame(rows, columns=["variant", "idea", "predicted", "by"]).assign(**came)


def compiled(report: pd.DataFrame, shown: Iterable[str] = LADDER) -> pd.DataFrame:
    """Return what each kernel compiles to for Hopper; report: the system's compile report."""
    of = where(report, target=HOPPER, variant=shown).groupby("variant")
    ends = of["registers"].agg(lambda r: " to ".join(map(str, dict.fromkeys([r.min(), r.max()]))))
    most = of[[op for op in (*OPS, "instructions") if op in report]].max()
    table = most.assign(kernels=of.size(), registers=ends, spills=of["spills"].sum().astype(int)).replace(0, np.nan)
    return table.reindex([v for v in shown if v in table.index]).dropna(axis=1, how="all").reset_index()


# ---------------------------------------------------------------- the ablation and its sweeps


def implied(table2: pd.DataFrame) -> pd.DataFrame:
    """Return of Table II the rate of cuSPARSE that each stated speedup is over."""
    return contenders.implied(table2).reset_index().assign(kernel=_named)


@given
def ablation(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of each step over cuSPARSE Blocked-ELL, at each matrix, and the stated one (Fig. 6)."""
    data = speedups(df, (*STEPS, *BRANCHES, CSR, BSR, TRITON, *OURS), BELL)
    stated = contenders.over_bell(table2).rename("speedup").reset_index()
    return plot.behind(data, where(stated, variant=data["variant"]))


def table2(df: pd.DataFrame | None, stated: pd.DataFrame) -> pd.DataFrame:
    """Return Table II, and beside it the geometric means here; without a record its own columns alone."""
    order = [*LADDER, TRITON, BSR, CSR, BELL]
    told, bases = contenders.over_bell(stated).reindex(order), {v: BEFORE.get(v) for v in order}
    rate = where(stated, quantity="tflops").drop_duplicates("variant").set_index("variant")["low"]
    found = {"stated": rate, "stated_over": told, "stated_step": told / told.reindex(bases.values()).to_numpy()}
    if df is not None:
        found |= {
            "here": df.groupby("variant")["tflops"].agg(records.geomean),
            "over": means(df, order[:-1], BELL),
            "step": pd.Series({v: over(df, v, base) for v, base in bases.items()}),
            "matrices": df["variant"].value_counts(),
        }
    return pd.DataFrame(found).reindex(order).dropna(how="all").reset_index(names="variant").assign(kernel=_named)


@given
def shares(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return what each step adds from opt0 to opt4, as a share of the whole.

    By difference of speedups, as the source counts, and by factor; stated and measured.
    """
    found = {"stated": contenders.over_bell(table2), "measured": means(df, STEPS, BELL)}
    parts = pd.concat({source: contenders.shares(of) for source, of in found.items()}, names=["source", "step"])
    return parts.reset_index().melt(["source", "step"], ["by difference", "by factor"], "counted", "share")


@given
def tiles(df: pd.DataFrame, text: pd.DataFrame) -> pd.DataFrame:
    """Return the throughput over WGMMA_N and the work beyond N (Fig. 7), with stated values.

    Geometric mean and quartiles over the matrices: `value`, from `least` to `most`, of `what`.
    """
    of = df.groupby(df["variant"].map(TILES).rename("width"))["tflops"]
    data = pd.DataFrame({"tflops": of.agg(records.geomean), "low": of.quantile(0.25), "high": of.quantile(0.75)})
    data = data.reset_index().assign(extra=lambda df: padded(df["width"]) / N - 1)
    rate = data.assign(what="useful TFLOP/s", value=data["tflops"], least=data["low"], most=data["high"])
    extra = data.assign(what="work beyond N (%)", value=100 * data["extra"])
    said = where(text, quantity="tflops").dropna(subset=["size"])[["size", "low"]].set_axis(["width", "tflops"], axis=1)
    said = said.assign(what="useful TFLOP/s", value=said["tflops"])
    return plot.behind(pd.concat([rate, extra]), said).assign(variant=KEPT)


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
    stated = where(table3, quantity="speedup_cublas").rename(columns={"low": "speedup"})
    found = pd.concat([data, limit.assign(variant="limit", speedup=limit["limit"])])
    found = plot.behind(found, stated[["variant", "n", "density", "speedup"]])
    return found.assign(kept=100 * found["density"], N=found["n"].astype(int)).sort_values("n", kind="stable")


@given
def table3(df: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """Return Table III: speedups over dense cuBLAS, stated and here, by N and share of blocks."""
    key = ["n", "density"]
    said = where(stated, quantity="speedup_cublas").set_index(key)["low"]
    found = speedups(df, LAYER, TORCH).pivot(index=key, columns="variant", values="speedup")
    table = found.assign(stated=said, dense_ms=by(df, TORCH, key=key) / 1e3)
    return table.sort_index(ascending=[True, False]).reset_index()


@given
def ladder(df: pd.DataFrame, table3: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of every kernel over dense cuBLAS at one point, and its gain over the one before.

    With what was predicted before it was measured, and what the source states of the one that it keeps, at that point.
    """
    mean, base = means(df, LADDER, TORCH), pd.Series(BEFORE)
    said = where(table3, quantity="speedup_cublas", n=df["n"].unique()).assign(variant=KEPT)
    said = said[np.isclose(said["density"], df["density"].median(), rtol=0.05)].rename(columns={"low": "speedup"})
    found = pd.DataFrame({"speedup": mean, "over": base.reindex(mean.index)}).assign(
        gain=mean / base.map(mean).reindex(mean.index),
        prediction=[times(async_sparse.VARIANTS[variant].prediction) for variant in mean.index],
        stated=said.set_index("variant")["speedup"],
    )
    return plot.behind(found.reset_index(names="variant"), said[["variant", "speedup"]])


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
    table = (us.loc["unit_ring"] / us).drop(index="unit_ring").rename(columns="{:.0%} kept".format)
    return table.assign(instead=[family.TRIALS[variant][1] for variant in table.index])


@given
def blocks(df: pd.DataFrame) -> pd.DataFrame:
    """Return useful TFLOP/s over the side of a block, the same share of blocks kept."""
    return where(df, variant=("auto", TRITON, BSR)).assign(side=lambda df: side(df["label"]))


@given
def layers(df: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over dense cuBLAS at each shape and density."""
    data = speedups(df, LAYER, TORCH)
    points = data[["m", "n", "k", "density"]].itertuples(index=False)
    return data.assign(problem=[f"{m} × {n} × {k}, {d:.0%}" for m, n, k, d in points])


@given
def beside_dense(df: pd.DataFrame) -> pd.DataFrame:
    """Return auto at each point, its shape and what its values are, and its speedup over the dense library."""
    found = where(df, variant="auto").merge(speedups(df, ["auto"], DENSE), on=["variant", *records.POINT], how="left")
    values = found["label"].str.split(",").str[0].map({"float16": "FP16", "tf32": "TF32"}).fillna("BF16")
    return found.assign(values=values, shape=[shape(sizes) for sizes in found[["m", "n", "k"]].values.tolist()])


# ---------------------------------------------------------------- real matrices in CSR


def table1(df: pd.DataFrame | None, stated: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return Table I at one N.

    Geometric-mean TFLOP/s in TF32 over the matrices denser than a share, and in brackets the speedup of WCSR over that
    kernel; as measured here, and below it as stated.
    """
    said = where(stated, n=n).pivot(index=["kernel", "density"], columns="quantity", values="low").reset_index()
    said = said.assign(variant=said["kernel"].replace(OF_TABLE1), source="stated")
    known = [said]
    denser = {} if df is None else {d: where(df[filled(df) > d], n=n) for d in DENSITIES.values()}
    for d, here in denser.items():
        rates = here.groupby("variant")["tflops"].agg(records.geomean).reset_index()
        known.append(rates.assign(wcsr_speedup=[over(here, WCSR, v) for v in rates["variant"]], density=d))
    table = pd.concat(known).fillna({"source": "here"})
    ratio = table["wcsr_speedup"].map(" ({:.2f}×)".format, na_action="ignore").fillna("")
    cells = table.assign(cell=table["tflops"].map("{:.2f}".format) + ratio)
    wide = cells.pivot(index=["variant", "source"], columns="density", values="cell")
    wide = wide.loc[[v for v in dict.fromkeys((*SHOWN, *said["variant"])) if v in wide.index]].reset_index()
    kernels = [called(v) + OTHERWISE.get(v, "") for v in wide["variant"]]
    return wide.assign(kernel=kernels).rename(columns={d: head for head, d in DENSITIES.items()})


@given
def matrices(df: pd.DataFrame) -> pd.DataFrame:
    """Return how many matrices stand behind each threshold of Table I, and behind those that not all fit."""
    parts = [df[filled(df) > d] for d in DENSITIES.values()]
    of = {v: [where(part, variant=v)["label"].nunique() for part in parts] for v in (BELL, TRITON, BSR)}
    return pd.DataFrame({"density": list(DENSITIES), "matrices": [part["label"].nunique() for part in parts], **of})


@given
def fig5(df: pd.DataFrame, table1: pd.DataFrame, apart: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over cuSPARSE's Blocked-ELL and over its fastest CSR algorithm (Fig. 5).

    With what the source states, and what was measured apart, on other matrices.
    """
    here = [speedups(df, SHOWN, base).assign(over=base, source="measured") for base in (BELL, CSR)]
    rates = where(table1, quantity="tflops", density=0).pivot(index="kernel", columns="n", values="low")
    stated = (rates / rates.loc["cuSPARSE"]).drop("cuSPARSE").stack().rename("speedup").reset_index()
    beside = where(apart, quantity="speedup_csr")[["kernel", "n", "low"]].rename(columns={"low": "speedup"})
    known = pd.concat([stated.assign(over=BELL, source="stated"), beside.assign(over=CSR, source="measured apart")])
    data = pd.concat([*here, known.rename(columns={"kernel": "variant"})], ignore_index=True).query("variant != over")
    data = data.assign(contender=data["variant"].replace(OF_TABLE1), base=data["over"].map(CALLED))
    place = data["contender"].map({variant: i for i, variant in enumerate((*SHOWN, *rates.index))})
    return data.assign(_place=place).sort_values(["n", "over", "_place"]).drop(columns="_place")


@given
def over_csr(df: pd.DataFrame, variants: Iterable[str]) -> pd.DataFrame:
    """Return each contender over cuSPARSE's CSR, matrix by matrix, at each N.

    Geometric mean, least, and how often slower.
    """
    found = speedups(df, variants, CSR)
    parts = found.assign(slow=found["speedup"] < SLOW).groupby(["variant", "n"], sort=False)
    table = parts["speedup"].agg(mean=records.geomean, least="min", most="max", at="idxmin")
    table = table.assign(slow=parts["slow"].agg(lambda slow: f"{slow.sum()} of {len(slow)}")).reset_index()
    return table.assign(kernel=table["variant"].map(called), matrix=table["at"].map(found["label"]))


def voltrix(found: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured apart, over cuSPARSE's CSR of the same run."""
    over = where(found, quantity="speedup_csr")
    return over.pivot(index=["kernel", "matrices"], columns="n", values="low").add_prefix("N = ").reset_index()


# ---------------------------------------------------------------- choices, errors, costs


def tasks() -> pd.DataFrame:
    """Return the speed with at most 1, 2 and 4 tasks a warp over that with 8, by what a task loads of B in KiB."""
    df = scripts.gains(apart.read(scripts.TASKS))
    parts = [df.assign(most=f"at most {most}", gain=df[f"gain_{most}"]) for most in (1, 2, 4)]
    return pd.concat(parts).assign(kib=lambda df: df["loaded"] / 1024)


def neighbours() -> pd.DataFrame:
    """Return what neighbours.csv beside the system has: time, DRAM's bytes, hits in L2."""
    df = apart.read(scripts.NEIGHBOURS).assign(gb=lambda df: df["dram_read_bytes"] / 1e9)
    return df.assign(mesh=df["side"].map("{}³".format), of_b=df["gb"] * 1e9 / (4 * df["n"] * df["side"] ** 3))


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
    methods = {
        "float32 values": speedups(float32, ACCURATE["float32"], CSR).merge(float32),
        "values that TF32 holds": speedups(tf32, (*ACCURATE["tf32"], AUTO_TF32), CSR).merge(tf32),
    }
    df = pd.concat(methods, names=["values"]).assign(rel_err=lambda df: df["rel_err"].clip(lower=1e-12))
    of = df.rename(columns={"rel_err": "err"}).groupby(["values", "variant"], sort=False)[["err", "speedup"]]
    ends = [of.quantile(share).add_suffix(f"_{end}") for end, share in (("low", 0.25), ("high", 0.75))]
    return of.agg(records.geomean).join(ends).rename(columns={"err": "rel_err"}).reset_index()


@given
def errors(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return the relative error of every contender against float64, its largest and that of an element.

    With what the values were.
    """
    of = _both(float32, tf32).groupby(["values", "variant"], sort=False)
    table = of["rel_err"].agg(["median", "max"]).assign(element=of["max_err"].max())
    shown = dict.fromkeys((*SHOWN, UNION, EXACT, AUTO_FP32))
    return _in_order(table, shown).assign(kernel=lambda df: df["variant"].map(called))


@given
def pays_off(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return after how many multiplications preparing a matrix has paid, over cuSPARSE's CSR.

    cuSPARSE's own preparation counts. By N: the median of the matrices on which it pays, and on how many it never does,
    since it is not faster.
    """
    df, at = _both(float32, tf32), ["values", *records.POINT]
    theirs = where(df, variant=CSR)[[*at, "median_us", "prepare_ms"]]
    df = where(df, variant=PREPARED).merge(theirs, on=at, suffixes=("", "_base"))
    saved_ms = (df["median_us_base"] - df["median_us"]) / 1e3
    df = df.assign(count=until_even(saved_ms, df["prepare_ms"] - df["prepare_ms_base"]))
    cells = df.groupby(["values", "variant", "n"])["count"].agg(_often).unstack().add_prefix("N = ")
    table = cells.assign(ms=df.groupby(["values", "variant"])["prepare_ms"].median())
    return _in_order(table, PREPARED).assign(kernel=_named)


def _in_order(table: pd.DataFrame, variants: Iterable[str]) -> pd.DataFrame:
    """Return a table by values and contender, TF32's first, contenders as given."""
    order = [at for at in product(("TF32", "float32"), variants) if at in table.index]
    return table.loc[order].reset_index()


def _often(count: pd.Series) -> str:
    never = np.isinf(count).sum()
    paid = "–" if never == len(count) else f"{np.ceil(count[count < np.inf].median()):,.0f}"
    return paid + f"<br><small>{never} of {len(count)} never</small>" * bool(never)


def planned() -> pd.DataFrame:
    """Return by non-zeros what a plan costs, and after how many multiplications it has paid."""
    ends = [f"from {plot.number(low)} to {plot.number(high)}" for low, high in zip(CLASSES, CLASSES[1:], strict=False)]
    df = scripts.paid(apart.read(scripts.PLANS)).assign(over=lambda df: df["cusparse_us"] / df["us"])
    sizes = pd.cut(df["nnz"], CLASSES, right=False, labels=[end.removesuffix(" to infM") for end in ends])
    parts = df.groupby(sizes.rename("size"), observed=True)
    return parts.agg(
        **{"matrices": ("us", "size"), "plan_us": ("plan_us", "median"), "over": ("over", records.geomean)},
        paid=("count", lambda count: np.ceil(count.median())),
        never=("count", lambda count: f"{np.isinf(count).sum()} of {len(count)}"),
    ).reset_index()


def in_one_order() -> pd.DataFrame:
    """Return what it costs to add parts in one order."""
    return scripts.price(apart.read(scripts.IN_ORDER))


# ---------------------------------------------------------------- pictures


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
    fig, ax = plt.subplots(figsize=(WIDTH, 4.2))
    for box in (
        *((3.9 + 0.185 * (i % 22), 0.2 + 0.26 * (i // 22), "", RUNGS[3], 0.15, 0.2) for i in range(sms)),
        (0, 0, "", RUNGS[3], 3.4, 2.3),
        *((0.12 + 0.8 * i, 0.38, "tensor\ncore", PUBLISHED, 0.74, 0.5) for i in range(4)),
        (0.12, 1.0, f"registers {facts['registers']}", BEST, 2.0, 0.36),
        (2.24, 1.0, "TMA", CLAIM, 1.04, 0.36),
        (
            0.12,
            1.52,
            f"shared memory {facts['shared memory']}\n{facts['from shared memory']}, all SMs",
            BASELINE,
            3.16,
            0.62,
        ),
        (0, 2.9, f"L2 {facts['L2']}", RUNGS[1], 7.96, 0.5, 9),
        (0, 4.0, f"memory {facts['memory']}", BOUND, 7.96, 0.5, 9),
    ):
        sketch.box(ax, *box)
    sketch.put(ax, 5.9, 0.2 + 0.26 * (-(-sms // 22)) + 0.18, f"{sms} SMs", fontsize=9)
    sketch.put(ax, 1.7, 0.18, "an SM", fontweight="bold")
    for top, bottom, rate in ((2.32, 2.88, "from L2"), (3.42, 3.98, "from memory")):
        sketch.pointer(ax, 1.7, bottom, 1.7, top, INK)
        sketch.put(ax, 1.82, (top + bottom) / 2, f"{facts[rate]} measured", ha="left")
    sketch.put(ax, 5.9, 2.4, f"WGMMA on all of them: {facts['WGMMA, all SMs']}")
    ax.set(xlim=(-0.05, 8.0), ylim=(4.6, -0.05), **BARE)
    return fig, pd.DataFrame({"what": facts, "here": facts, "the source": SOURCE}).assign(what=list(facts))


# ---------------------------------------------------------------- pictures: Fig. 2


def mesh(side: int = 8, seed: int = 0) -> csr.Csr:
    """Make neighbours and selves on a grid of side x side points, which are numbered at random.

    Symmetric, (side², side²), five non-zeros in most rows, all 1; the same for the same arguments.
    """
    draws = splitmix.random_u32(splitmix.key(seed, 0), splitmix.positions(range(side * side)))
    number = np.argsort(draws, kind="stable")
    line, one = sp.diags_array([1.0] * 3, offsets=(-1, 0, 1), shape=(side, side)), sp.eye_array(side)
    grid = sp.coo_array(sp.kron(line, one) + sp.kron(one, line))
    at = number[grid.row], number[grid.col]
    return csr.from_scipy(sp.csr_array((np.ones(grid.nnz, np.float32), at), shape=grid.shape))


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
    lefts = (0, size + 10, 2 * (size + 10))
    width, step = lefts[2] + max(int(np.diff(w.row_ptr).max()) for *_, w in stored.values()), size + 22
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * (step * len(cases) - 2) / (width + 4)))
    data = []
    for top, (title, (a, b, w)) in enumerate(stored.items()):
        top = 9 + step * top
        rows = _places(a, b, w)
        in_window = rows["packed"] - np.asarray(w.row_ptr)[rows["window"]]
        for edge in range(block, size, block):
            sketch.rule(ax, (0, size), (top + edge, top + edge), False)
            sketch.rule(ax, (edge, edge), (top, top + size), False)
        for row, col in zip(bcsr.block_rows_of(b), b.col_idx, strict=True):
            sketch.box(ax, lefts[1] + col * block, top + row * block, "", ROWS[row % len(ROWS)], block, block)
        for i, (first, end) in enumerate(zip(w.row_ptr[:-1], w.row_ptr[1:], strict=True)):
            used, y = int((w.col_idx[first:end] >= 0).sum()), top + i * window
            sketch.box(ax, lefts[2], y, "", ROWS[i % len(ROWS)], used, window)
            ax.add_patch(Rectangle((lefts[2] + used, y), end - first - used, window, **PADDING))
        for left, x in zip(lefts, (rows["column"], rows["column"], in_window), strict=True):
            cells = (Rectangle((left + at, top + y), 1, 1) for at, y in zip(x, rows["row"], strict=True))
            ax.add_collection(PatchCollection([*cells], facecolor=INK, linewidth=0))
        for left in lefts[:2]:
            ax.add_patch(Rectangle((left, top), size, size, fill=False, edgecolor=INK, linewidth=1))
        for left, *head, kept in (
            (lefts[0], title, f"{a.m} × {a.k}, {len(rows)} non-zeros", None),
            (lefts[1], "BCSR", f"{b.blocks} of {b.block_rows * b.block_columns} blocks of {block} × {block}", b),
            (lefts[2], "WCSR", f"{w.columns} columns of {window}, padded to {pad}", w),
        ):
            _say(ax, left, top, top + size, head, kept)
        data.append(rows.assign(case=title)[["case", *rows.columns]])
    ax.set(xlim=(-2, width + 2), ylim=(step * len(cases) - 3, -1), aspect="equal", **BARE)
    return fig, pd.concat(data, ignore_index=True)


def _places(a: csr.Csr, b: bcsr.Bcsr, w: wcsr.Wcsr) -> pd.DataFrame:
    """Return where each non-zero is: row, column, block, window, packed; repeated entries once."""
    row, column = np.divmod(csr.distinct(csr.rows(a) * a.k + a.col_idx), a.k)
    (b_row, b_col), window = b.block, row // w.window
    blocks = bcsr.block_rows_of(b) * b.block_columns + b.col_idx
    block = np.searchsorted(blocks, row // b_row * b.block_columns + column // b_col)
    # Padding goes where no column is, behind all of its window.
    packed = csr.owners(w.row_ptr, w.columns) * (a.k + 1) + np.where(w.col_idx < 0, a.k, w.col_idx)
    at = np.searchsorted(packed, window * (a.k + 1) + column)
    return pd.DataFrame({"row": row, "column": column, "block": block, "window": window, "packed": at})


def _say(ax: Any, left: float, top: float, bottom: float, head: Sequence[str], stored: Any) -> None:
    """Write a title and a line above a matrix, and row_ptr and the fill ratio below it.

    Few rows keep row_ptr short; the ratio stands with its terms.
    """
    sketch.put(ax, left, top - 5.6, head[0], ha="left", weight="bold")
    sketch.put(ax, left, top - 2, head[1], ha="left", fontsize=8)
    if stored is not None:
        fill = f"fill {stored.nnz} / {stored.val.size} = {stored.fill_ratio:.1%}"
        sketch.put(ax, left, bottom + 2.6, f"row_ptr {' '.join(map(str, stored.row_ptr))}", ha="left", fontsize=8)
        sketch.put(ax, left, bottom + 6.4, fill, ha="left", fontsize=8)


# ---------------------------------------------------------------- pictures: Figs. 3 and 4


def thread_block() -> Drawn:
    """Draw Fig. 4(a): a thread block of the source's kernel.

    A producer and two consumers, a ring of three stages, and what each consumer computes.
    """
    stage, (producer, consumer, _) = contenders.STAGE, contenders.REGISTERS
    fig, ax = plt.subplots(figsize=(WIDTH, 3.9))
    a, b = f"A\n64 × 64\n{stage['A'] // 1024} KiB", f"B\n64 × 256\n{stage['B'] // 2048} KiB"
    consumers = [(f"warpgroup {i}\nconsumer: WGMMA\n{consumer} registers a thread", 1.6 * i - 1.4) for i in (1, 2)]
    for box in (
        (0, 0.9, f"warpgroup 0\nproducer: one thread\n{producer} registers a thread", CLAIM, 1.75, 1.3),
        *((5.0, y, text, PUBLISHED, 1.6, 1.1) for text, y in consumers),
        *((7.1, y, "C\n64 × 256", BEST, 0.85, 1.1) for _, y in consumers),
        *((2.35 + 0.82 * q, 0.2, a, RUNGS[3], 0.72, 0.7) for q in range(contenders.STAGES)),
        *((2.35 + 0.82 * q, y, b, BASELINE, 0.72, 0.8) for q in range(contenders.STAGES) for y in (1.0, 1.85)),
    ):
        sketch.box(ax, *box)
    for start, end, colour, at, said in (
        *(((6.62, y + 0.55), (7.08, y + 0.55), INK, (0, 0), "") for _, y in consumers),
        ((4.83, 1.4), (4.98, 0.75), INK, (0, 0), ""),
        ((4.83, 2.25), (4.98, 2.35), INK, (0, 0), ""),
        ((1.77, 1.55), (2.3, 1.55), INK, (2.04, 1.38), "TMA"),
        ((4.98, 3.15), (0.9, 3.15), BOUND, (2.95, 3.32), "empty[q]: a consumer has read the stage"),
        ((0.9, 2.9), (4.98, 2.9), BOUND, (2.95, 2.76), "full[q]: both tiles have landed"),
    ):
        sketch.pointer(ax, *start, *end, colour)
        sketch.put(ax, *at, said)
    for q in range(contenders.STAGES):
        sketch.put(ax, 2.71 + 0.82 * q, 0.05, f"stage {q}")
    ax.set(xlim=(-0.05, 8.0), ylim=(3.5, -0.1), **BARE)
    registers = contenders.WARPGROUP * sum(contenders.REGISTERS)
    table = pd.DataFrame({"stage": range(contenders.STAGES), "A bytes": stage["A"], "B bytes": stage["B"]})
    return fig, table.assign(registers=registers, shared_bytes=3 * sum(stage.values()))


ROLES = {"load": BASELINE, "multiply": PUBLISHED, "store": BEST}


@given
def timeline(frame: pd.DataFrame, variants: Sequence[str], steps: int = 8) -> Drawn:
    """Draw Figs.

    3 and 4(b), what warpgroups of a thread block did by clocks that they read themselves: lanes for each variant, a
    lane for each role and warpgroup, over the first steps of its loop and its stores; nanoseconds from its first row
    on. frame: of `experiments.trace`, in which a kernel has a row for each step.
    """
    first = frame["block"] == frame.groupby("variant")["block"].transform("min")
    data = where(frame[first], variant=variants).query("step < @steps or role == 'store'")
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
