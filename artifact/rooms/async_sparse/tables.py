"""The tables of the chapter; tables.toml says how each is written. What was not measured is None, or NaN."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from artifact.book.study import Study, by, given, pivot, where
from artifact.drawing import plot
from artifact.drawing.compiled import HOPPER
from artifact.drawing.words import shape, times
from artifact.measure import apart
from artifact.measure.records import POINT, geomean
from artifact.rooms.async_sparse import arithmetic, plans, tasks_of_a_warp
from artifact.rooms.async_sparse.arithmetic import BLOCK, means, present, speedups
from artifact.rooms.async_sparse.contenders import (
    AUTO_FP32,
    AUTO_TF32,
    BEFORE,
    BELL,
    BSR,
    CSR,
    DENSE,
    EXACT,
    KEPT,
    LADDER,
    TORCH,
    TRITON,
    UNION,
    WCSR,
    WHOLE,
    WINDOWS,
    called,
    name,
)
from artifact.rooms.async_sparse.facts import SLOW, denser
from kernels import async_sparse
from kernels.async_sparse import family
from kernels.async_sparse.operands import TILE

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
CLASSES = [0, 10_000, 100_000, 1_000_000, np.inf]  #: of non-zeros


def step(df: pd.DataFrame | None, variant: str, base: str | None) -> float:
    """Return the geometric-mean speedup over another contender; NaN where one of the two was not measured."""
    return np.nan if df is None or base is None else means(df, [variant], base).get(variant, np.nan)


def ideas(shown: Iterable[str], bases: Mapping[str, str], **records_of: pd.DataFrame | None) -> pd.DataFrame:
    """Return idea, prediction and author of the kernels that there are, and what came of each on real matrices: the
    speedup over its base by each record. bases: kernel -> whom it is to gain over; records_of: column -> record."""
    offered = {v: async_sparse.VARIANTS[v] for v in shown if v in async_sparse.VARIANTS}
    rows = [
        (v, k.idea, times(k.prediction) or None, "the paper" if k.published else "ours") for v, k in offered.items()
    ]
    came = {name: [step(df, v, bases.get(v)) for v in offered] for name, df in records_of.items()}
    return pd.DataFrame(rows, columns=["variant", "idea", "predicted", "by"]).assign(**came)


def compiled(report: pd.DataFrame, shown: Iterable[str] = LADDER) -> pd.DataFrame:
    """Return what each kernel compiles to for Hopper; report: the room's compile report."""
    of = where(report, target=HOPPER).groupby("variant")
    ends = of["registers"].agg(lambda r: " to ".join(map(str, dict.fromkeys([r.min(), r.max()]))))
    most = of[[op for op in (*OPS, "instructions") if op in report]].max()
    table = most.assign(kernels=of.size(), registers=ends, spills=of["spills"].sum().astype(int)).replace(0, np.nan)
    return table.reindex(present(report, shown)).dropna(axis=1, how="all").reset_index()


def implied(table2: pd.DataFrame) -> pd.DataFrame:
    """Return of Table II the rate of cuSPARSE that each stated speedup is over."""
    return arithmetic.implied(table2).reset_index().assign(kernel=_named)


def table2(df: pd.DataFrame | None, stated: pd.DataFrame) -> pd.DataFrame:
    """Return Table II, and beside it the geometric means here; without a record its own columns alone."""
    order = [*LADDER, TRITON, BSR, CSR, BELL]
    over, bases = arithmetic.over_bell(stated).reindex(order), {v: BEFORE.get(v) for v in order}
    rate = where(stated, quantity="tflops").drop_duplicates("variant").set_index("variant")["low"]
    found = {"stated": rate, "stated_over": over, "stated_step": over / over.reindex(bases.values()).to_numpy()}
    if df is not None:
        found |= {
            "here": df.groupby("variant")["tflops"].agg(geomean),
            "over": means(df, order[:-1], BELL),
            "step": pd.Series({v: step(df, v, base) for v, base in bases.items()}),
            "matrices": df["variant"].value_counts(),
        }
    return pd.DataFrame(found).reindex(order).dropna(how="all").reset_index(names="variant").assign(kernel=_named)


def _named(df: pd.DataFrame) -> pd.Series:
    return df["variant"].map(name)


@given
def counted(df: pd.DataFrame) -> pd.DataFrame:
    """Return what the profile says of each kernel at the point of the ladder; df: of `facts.profile`."""
    waits = df["reason"].str.replace("_", " ") + df["waiting"].map(" {:.1f}".format)
    rates = {"us": df["ns"] / 1e3, "tbps": df["gbps"] / 1e3, "busy": 100 * df["balance"]}
    return df.assign(waits=waits, **rates).reset_index().assign(kernel=_named)


@given
def gate(df: pd.DataFrame, stated: pd.DataFrame) -> pd.DataFrame:
    """Return Table III: speedups over dense cuBLAS, stated and here, by N and share of blocks."""
    key = ["n", "density"]
    said = where(stated, quantity="speedup_cublas").set_index(key)["low"]
    over = speedups(df, (KEPT, TRITON, "auto"), TORCH).pivot(index=key, columns="variant", values="speedup")
    dense = by(df, TORCH, key=key) / 1e3
    table = pd.DataFrame({"dense_ms": dense, "stated": said.reindex(dense.index)}).join(over)
    return table.sort_index(ascending=[True, False]).reset_index()


@given
def tried(df: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations that did not become unit_ring: its time over theirs, by the share of blocks that is
    kept."""
    us = pivot(df, "median_us", "density").T
    over = (us.loc["unit_ring"] / us).drop(index="unit_ring").rename(columns="{:.0%} kept".format)
    return over.assign(instead=[family.TRIALS[variant][1] for variant in over.index])


@given
def bounds(df: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return what bounds auto on gate_proj: the least time by each unit at its measured peak, and the time.

    DRAM moves every operand once. L2 delivers, for each block and panel of 512 columns, a block of A and its 64 rows
    of B; B and C pass it on their way from and to DRAM, too. Tensor cores multiply what is stored.
    """
    df = where(df, variant="auto").query("n >= 16384")
    through_l2 = df["nnz"] / BLOCK**2 * df["n"] / TILE * (BLOCK + TILE) * BLOCK * 2 + df["least_bytes"]
    least = {
        "dram": df["least_bytes"] / study.ceiling("copy", "gbps") / 1e3,
        "l2": through_l2 / study.ceiling("l2_read", "gbps") / 1e3,
        "tensor": df["useful_flops"] / study.ceiling("wgmma", "tflops") / 1e6,
    }
    return df.assign(**least, share=pd.DataFrame(least).max(axis=1) / df["median_us"])


@given
def beside_dense(df: pd.DataFrame) -> pd.DataFrame:
    """Return auto at each point, its shape and what its values are, and its speedup over the dense library."""
    at = ["variant", *POINT]
    found = where(df, variant="auto").merge(speedups(df, ["auto"], DENSE), on=at, how="left")
    values = found["label"].str.split(",").str[0].map({"float16": "FP16", "tf32": "TF32"}).fillna("BF16")
    return found.assign(values=values, shape=[shape(sizes) for sizes in found[["m", "n", "k"]].values.tolist()])


# ---------------------------------------------------------------- real matrices in CSR


def table1(df: pd.DataFrame | None, stated: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return Table I at one N: geometric-mean TFLOP/s in TF32 over the matrices denser than a share, and in brackets
    the speedup of WCSR over that kernel; as measured here, and below it as stated."""
    said = where(stated, n=n).pivot(index=["kernel", "density"], columns="quantity", values="low").reset_index()
    known = [said.assign(variant=said["kernel"].replace(OF_TABLE1), source="stated")]
    for d in DENSITIES.values() if df is not None else ():
        here = where(denser(df, d), n=n)
        rates = here.groupby("variant")["tflops"].agg(geomean)
        over = pd.Series({v: means(here, [WCSR], v).get(WCSR, np.nan) for v in rates.index})
        known.append(pd.DataFrame({"tflops": rates, "wcsr_speedup": over, "density": d}).reset_index(names="variant"))
    table = pd.concat(known).fillna({"source": "here"})
    ratio = table["wcsr_speedup"].map(" ({:.2f}×)".format, na_action="ignore").fillna("")
    cells = table.assign(cell=table["tflops"].map("{:.2f}".format) + ratio)
    wide = cells.pivot(index=["variant", "source"], columns="density", values="cell")
    order = [v for v in dict.fromkeys((*SHOWN, *said["kernel"].replace(OF_TABLE1))) if v in wide.index]
    wide = wide.loc[order].rename(columns={d: head for head, d in DENSITIES.items()}).reset_index()
    return wide.assign(kernel=[called(v) + OTHERWISE.get(v, "") for v in wide["variant"]])


@given
def matrices(df: pd.DataFrame) -> pd.DataFrame:
    """Return how many matrices stand behind each threshold of Table I, and behind those that not all fit."""
    parts = [denser(df, d) for d in DENSITIES.values()]
    of = {v: [where(part, variant=v)["label"].nunique() for part in parts] for v in (BELL, TRITON, BSR)}
    return pd.DataFrame({"density": list(DENSITIES), "matrices": [part["label"].nunique() for part in parts], **of})


@given
def over_csr(df: pd.DataFrame, variants: Iterable[str]) -> pd.DataFrame:
    """Return each contender over cuSPARSE's CSR, matrix by matrix, at each N: geometric mean, least, and how often
    slower."""
    found = speedups(df, variants, CSR)
    parts = found.groupby(["variant", "n"], sort=False)["speedup"]
    table = parts.agg(mean=geomean, least="min", most="max", at="idxmin").reset_index()
    slow = parts.agg(lambda ratio: f"{(ratio < SLOW).sum()} of {len(ratio)}").to_numpy()
    return table.assign(kernel=table["variant"].map(called), matrix=table["at"].map(found["label"]), slow=slow)


def multiplications(df: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `PREPARED` with count: after how many multiplications a contender has paid for what its
    preparation costs beyond that of cuSPARSE's CSR; infinite where it is not faster, 0 where it costs no more."""
    theirs = where(df, variant=CSR)[[*POINT, "median_us", "prepare_ms"]]
    both = where(df, variant=PREPARED).merge(theirs, on=list(POINT), suffixes=("", "_base"))
    saved = (both["median_us_base"] - both["median_us"]) / 1e3
    cost = (both["prepare_ms"] - both["prepare_ms_base"]).clip(lower=0)
    return both.assign(count=(cost / saved.where(saved > 0)).fillna(np.inf))


@given
def pays_off(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return after how many multiplications preparing a matrix has paid, over cuSPARSE's CSR with its own preparation:
    the median of the matrices on which it does, and on how many it never does, by N."""
    df = _both(multiplications(float32), multiplications(tf32))
    order = pd.MultiIndex.from_product([df["values"].unique(), PREPARED], names=["values", "variant"])
    cells = df.groupby(["values", "variant", "n"])["count"].agg(_often).unstack().add_prefix("N = ")
    table = cells.assign(ms=df.groupby(["values", "variant"])["prepare_ms"].median())
    return table.reindex(order).dropna(how="all").reset_index().assign(kernel=_named)


def _both(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([tf32.assign(values="TF32"), float32.assign(values="float32")], ignore_index=True)


def _often(count: pd.Series) -> str:
    never = np.isinf(count).sum()
    paid = "–" if never == len(count) else f"{np.ceil(count[count < np.inf].median()):,.0f}"
    return paid + f"<br><small>{never} of {len(count)} never</small>" * bool(never)


def planned() -> pd.DataFrame:
    """Return by non-zeros what a plan costs, and after how many multiplications it has paid."""
    df = apart.read(plans.FILE)
    ends = [f"from {plot.number(low)} to {plot.number(high)}" for low, high in zip(CLASSES, CLASSES[1:], strict=False)]
    sizes = pd.cut(df["nnz"], CLASSES, right=False, labels=[end.removesuffix(" to infM") for end in ends])
    df = df.assign(count=plans.until_even(df), over=df["cusparse_us"] / df["us"])
    parts = df.groupby(sizes.rename("size"), observed=True)
    table = parts.agg(
        matrices=("us", "size"), plan_us=("plan_us", "median"), over=("over", geomean), paid=("count", "median")
    )
    never = parts["count"].agg(lambda count: f"{np.isinf(count).sum()} of {len(count)}")
    return table.assign(paid=np.ceil(table["paid"]), never=never).reset_index()


def voltrix(found: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured apart, over cuSPARSE's CSR of the same run."""
    over = where(found, quantity="speedup_csr").pivot(index=["kernel", "matrices"], columns="n", values="low")
    return over.add_prefix("N = ").reset_index()


@given
def errors(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return the relative error of every contender against float64, its largest and that of an element, with what the
    values were."""
    of = _both(float32, tf32).groupby(["values", "variant"], sort=False)
    table = of["rel_err"].agg(["median", "max"]).assign(element=of["max_err"].max())
    shown = list(dict.fromkeys((*SHOWN, UNION, EXACT, AUTO_FP32)))
    order = pd.MultiIndex.from_product([("TF32", "float32"), shown], names=table.index.names)
    return table.reindex(order).dropna(how="all").reset_index().assign(kernel=lambda df: df["variant"].map(called))


def mesh() -> pd.DataFrame:
    """Return what neighbours.csv beside the room has: time, DRAM's bytes, hits in L2."""
    df = pd.read_csv(tasks_of_a_warp.NEIGHBOURS)
    read = df["dram_read_bytes"]
    return df.assign(mesh=df["side"].map("{}³".format), gb=read / 1e9, of_b=read / (4 * df["n"] * df["side"] ** 3))
