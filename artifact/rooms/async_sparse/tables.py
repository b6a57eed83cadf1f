"""The tables of the chapter, and those behind its figures; tables.toml and figures.toml say how each is shown. What was
not measured is None, or NaN."""

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
from artifact.rooms.async_sparse.arithmetic import (
    BLOCK,
    N,
    filled,
    means,
    over,
    padded,
    side,
    speedups,
    until_even,
)
from artifact.rooms.async_sparse.contenders import (
    AUTO_FP32,
    AUTO_TF32,
    BEFORE,
    BELL,
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
    called,
    name,
)
from artifact.rooms.async_sparse.facts import ACCURATE, LAYER, SLOW
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


def _named(df: pd.DataFrame) -> pd.Series:
    return df["variant"].map(name)


# ---------------------------------------------------------------- kernels


def ideas(shown: Iterable[str], bases: Mapping[str, str], **records_of: pd.DataFrame | None) -> pd.DataFrame:
    """Return idea, prediction and author of the kernels that there are, and what came of each on real matrices: the
    speedup over its base by each record. bases: kernel -> whom it is to gain over; records_of: column -> record."""
    offered = {v: async_sparse.VARIANTS[v] for v in shown if v in async_sparse.VARIANTS}
    rows = [
        (v, k.idea, times(k.prediction) or None, "the paper" if k.published else "ours") for v, k in offered.items()
    ]
    came = {column: [over(df, v, bases.get(v)) for v in offered] for column, df in records_of.items()}
    return pd.DataFrame(rows, columns=["variant", "idea", "predicted", "by"]).assign(**came)


def compiled(report: pd.DataFrame, shown: Iterable[str] = LADDER) -> pd.DataFrame:
    """Return what each kernel compiles to for Hopper; report: the room's compile report."""
    of = where(report, target=HOPPER, variant=shown).groupby("variant")
    ends = of["registers"].agg(lambda r: " to ".join(map(str, dict.fromkeys([r.min(), r.max()]))))
    most = of[[op for op in (*OPS, "instructions") if op in report]].max()
    table = most.assign(kernels=of.size(), registers=ends, spills=of["spills"].sum().astype(int)).replace(0, np.nan)
    return table.reindex([v for v in shown if v in table.index]).dropna(axis=1, how="all").reset_index()


@given
def counted(df: pd.DataFrame) -> pd.DataFrame:
    """Return what the profile says of each kernel at the point of the ladder; df: of `facts.profile`."""
    waits = df["reason"].str.replace("_", " ") + df["waiting"].map(" {:.1f}".format)
    rates = {"us": df["ns"] / 1e3, "tbps": df["gbps"] / 1e3, "busy": 100 * df["balance"]}
    return df.assign(waits=waits, **rates).reset_index().assign(kernel=_named)


# ---------------------------------------------------------------- the ablation and its sweeps


def implied(table2: pd.DataFrame) -> pd.DataFrame:
    """Return of Table II the rate of cuSPARSE that each stated speedup is over."""
    return arithmetic.implied(table2).reset_index().assign(kernel=_named)


@given
def ablation(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of each step over cuSPARSE Blocked-ELL, at each matrix, and the stated one (Fig. 6)."""
    data = speedups(df, (*STEPS, *BRANCHES, CSR, BSR, TRITON, *OURS), BELL)
    stated = arithmetic.over_bell(table2).rename("speedup").reset_index()
    return plot.behind(data, where(stated, variant=data["variant"]))


def table2(df: pd.DataFrame | None, stated: pd.DataFrame) -> pd.DataFrame:
    """Return Table II, and beside it the geometric means here; without a record its own columns alone."""
    order = [*LADDER, TRITON, BSR, CSR, BELL]
    told, bases = arithmetic.over_bell(stated).reindex(order), {v: BEFORE.get(v) for v in order}
    rate = where(stated, quantity="tflops").drop_duplicates("variant").set_index("variant")["low"]
    found = {"stated": rate, "stated_over": told, "stated_step": told / told.reindex(bases.values()).to_numpy()}
    if df is not None:
        found |= {
            "here": df.groupby("variant")["tflops"].agg(geomean),
            "over": means(df, order[:-1], BELL),
            "step": pd.Series({v: over(df, v, base) for v, base in bases.items()}),
            "matrices": df["variant"].value_counts(),
        }
    return pd.DataFrame(found).reindex(order).dropna(how="all").reset_index(names="variant").assign(kernel=_named)


@given
def shares(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return what each step adds from opt0 to opt4, as a share of the whole: by difference of speedups, as the source
    counts, and by factor; stated and measured."""
    found = {"stated": arithmetic.over_bell(table2), "measured": means(df, STEPS, BELL)}
    parts = pd.concat({source: arithmetic.shares(of) for source, of in found.items()}, names=["source", "step"])
    return parts.reset_index().melt(["source", "step"], ["by difference", "by factor"], "counted", "share")


@given
def tiles(df: pd.DataFrame, text: pd.DataFrame) -> pd.DataFrame:
    """Return the throughput over WGMMA_N, geometric mean and quartiles over the matrices, with stated values, and the
    work beyond N (Fig. 7): `value`, from `least` to `most`, of `what`."""
    of = df.groupby(df["variant"].map(TILES).rename("width"))["tflops"]
    data = pd.DataFrame({"tflops": of.agg(geomean), "low": of.quantile(0.25), "high": of.quantile(0.75)}).reset_index()
    data["extra"] = padded(data["width"]) / N - 1
    rate = data.assign(what="useful TFLOP/s", value=data["tflops"], least=data["low"], most=data["high"])
    extra = data.assign(what="work beyond N (%)", value=100 * data["extra"])
    stated = where(text, quantity="tflops").dropna(subset=["size"]).rename(columns={"size": "width", "low": "tflops"})
    said = stated[["width", "tflops"]].assign(what="useful TFLOP/s", value=stated["tflops"])
    return plot.behind(pd.concat([rate, extra]), said).assign(variant=KEPT)


# ---------------------------------------------------------------- a layer, and past it


@given
def gate(df: pd.DataFrame, table3: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return speedups over dense cuBLAS by N and the share of blocks that is kept, in per cent, their limit, and the
    stated ones (Table III)."""
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
    """Return the speedup over dense cuBLAS of every kernel at one point, its gain over the kernel that it builds on and
    what was predicted before it was measured; and what the source states of the one that it keeps, at that point."""
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
    through_l2 = df["nnz"] / BLOCK**2 * df["n"] / TILE * (BLOCK + TILE) * BLOCK * 2 + df["least_bytes"]
    least = {
        "dram": df["least_bytes"] / study.ceiling("copy", "gbps") / 1e3,
        "l2": through_l2 / study.ceiling("l2_read", "gbps") / 1e3,
        "tensor": df["useful_flops"] / study.ceiling("wgmma", "tflops") / 1e6,
    }
    return df.assign(**least, share=pd.DataFrame(least).max(axis=1) / df["median_us"])


@given
def tried(df: pd.DataFrame) -> pd.DataFrame:
    """Return the configurations that did not become unit_ring: its time over theirs, by the share of blocks that is
    kept."""
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
    points = zip(data["m"], data["n"], data["k"], data["density"], strict=True)
    return data.assign(problem=[f"{m} × {n} × {k}, {d:.0%}" for m, n, k, d in points])


@given
def beside_dense(df: pd.DataFrame) -> pd.DataFrame:
    """Return auto at each point, its shape and what its values are, and its speedup over the dense library."""
    found = where(df, variant="auto").merge(speedups(df, ["auto"], DENSE), on=["variant", *POINT], how="left")
    values = found["label"].str.split(",").str[0].map({"float16": "FP16", "tf32": "TF32"}).fillna("BF16")
    return found.assign(values=values, shape=[shape(sizes) for sizes in found[["m", "n", "k"]].values.tolist()])


# ---------------------------------------------------------------- real matrices in CSR


def table1(df: pd.DataFrame | None, stated: pd.DataFrame, n: int) -> pd.DataFrame:
    """Return Table I at one N: geometric-mean TFLOP/s in TF32 over the matrices denser than a share, and in brackets
    the speedup of WCSR over that kernel; as measured here, and below it as stated."""
    said = where(stated, n=n).pivot(index=["kernel", "density"], columns="quantity", values="low").reset_index()
    said = said.assign(variant=said["kernel"].replace(OF_TABLE1), source="stated")
    known = [said]
    for d in DENSITIES.values() if df is not None else ():
        here = where(df[filled(df) > d], n=n)
        rates = here.groupby("variant")["tflops"].agg(geomean).reset_index()
        known.append(rates.assign(wcsr_speedup=[over(here, WCSR, v) for v in rates["variant"]], density=d))
    table = pd.concat(known).fillna({"source": "here"})
    ratio = table["wcsr_speedup"].map(" ({:.2f}×)".format, na_action="ignore").fillna("")
    cells = table.assign(cell=table["tflops"].map("{:.2f}".format) + ratio)
    wide = cells.pivot(index=["variant", "source"], columns="density", values="cell")
    order = [v for v in dict.fromkeys((*SHOWN, *said["variant"])) if v in wide.index]
    wide = wide.loc[order].rename(columns={d: head for head, d in DENSITIES.items()}).reset_index()
    return wide.assign(kernel=[called(v) + OTHERWISE.get(v, "") for v in wide["variant"]])


@given
def matrices(df: pd.DataFrame) -> pd.DataFrame:
    """Return how many matrices stand behind each threshold of Table I, and behind those that not all fit."""
    parts = [df[filled(df) > d] for d in DENSITIES.values()]
    of = {v: [where(part, variant=v)["label"].nunique() for part in parts] for v in (BELL, TRITON, BSR)}
    return pd.DataFrame({"density": list(DENSITIES), "matrices": [part["label"].nunique() for part in parts], **of})


@given
def fig5(df: pd.DataFrame, table1: pd.DataFrame, apart: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over cuSPARSE's Blocked-ELL, as the source has it, and beside it over the fastest of its
    algorithms for CSR (Fig. 5); with what the source states, and what was measured apart, on other matrices."""
    here = [speedups(df, SHOWN, base).assign(over=base, source="measured") for base in (BELL, CSR)]
    rates = where(table1, quantity="tflops", density=0).pivot(index="kernel", columns="n", values="low")
    stated = (rates / rates.loc["cuSPARSE"]).drop("cuSPARSE").stack().rename("speedup").reset_index()
    beside = where(apart, quantity="speedup_csr").rename(columns={"low": "speedup"})
    known = pd.concat([stated.assign(over=BELL, source="stated"), beside.assign(over=CSR, source="measured apart")])
    known = known.rename(columns={"kernel": "variant"})[["variant", "n", "speedup", "over", "source"]]
    data = pd.concat([*here, known], ignore_index=True).query("variant != over")
    data = data.assign(contender=data["variant"].replace(OF_TABLE1), base=data["over"].map(CALLED))
    place = {variant: i for i, variant in enumerate((*SHOWN, *rates.index))}
    data = data.assign(_place=data["contender"].map(place)).sort_values(["n", "over", "_place"])
    return data.drop(columns="_place")


@given
def over_csr(df: pd.DataFrame, variants: Iterable[str]) -> pd.DataFrame:
    """Return each contender over cuSPARSE's CSR, matrix by matrix, at each N: geometric mean, least, and how often
    slower."""
    found = speedups(df, variants, CSR)
    parts = found.groupby(["variant", "n"], sort=False)["speedup"]
    table = parts.agg(mean=geomean, least="min", most="max", at="idxmin").reset_index()
    slow = parts.agg(lambda ratio: f"{(ratio < SLOW).sum()} of {len(ratio)}").to_numpy()
    return table.assign(kernel=table["variant"].map(called), matrix=table["at"].map(found["label"]), slow=slow)


def voltrix(found: pd.DataFrame) -> pd.DataFrame:
    """Return what was measured apart, over cuSPARSE's CSR of the same run."""
    table = where(found, quantity="speedup_csr").pivot(index=["kernel", "matrices"], columns="n", values="low")
    return table.add_prefix("N = ").reset_index()


# ---------------------------------------------------------------- choices, errors, costs


def tasks(df: pd.DataFrame) -> pd.DataFrame:
    """Return the speed with at most 1, 2 and 4 tasks a warp over that with 8, by what a task loads of B in KiB; df: of
    `tasks_of_a_warp.gains`."""
    parts = [df.assign(most=f"at most {most}", gain=df[f"gain_{most}"]) for most in (1, 2, 4)]
    return pd.concat(parts).assign(kib=lambda df: df["loaded"] / 1024)


def mesh() -> pd.DataFrame:
    """Return what neighbours.csv beside the room has: time, DRAM's bytes, hits in L2."""
    df = pd.read_csv(tasks_of_a_warp.NEIGHBOURS)
    read = df["dram_read_bytes"]
    return df.assign(mesh=df["side"].map("{}³".format), gb=read / 1e9, of_b=read / (4 * df["n"] * df["side"] ** 3))


@given
def winners(maps: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return who is ahead at each matrix; maps: of `facts.maps`."""
    return pd.concat(df.assign(values=values, winner=df["winner"].astype(str)) for values, df in maps.items())


def _both(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([tf32.assign(values="TF32"), float32.assign(values="float32")], ignore_index=True)


@given
def accuracy(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return error against float64 and speed of each method: geometric means over matrices and N with quartiles, speed
    over cuSPARSE's CSR in the same experiment. TF32's values hold 11 bits, so rounding operands is in no error."""
    found = []
    for values, df, shown in (
        ("float32 values", float32, ACCURATE["float32"]),
        ("values that TF32 holds", tf32, (*ACCURATE["tf32"], AUTO_TF32)),
    ):
        df = speedups(df, shown, CSR).merge(df)
        of = df.assign(rel_err=df["rel_err"].clip(lower=1e-12)).groupby("variant", sort=False)[["rel_err", "speedup"]]
        ends = {"low": of.quantile(0.25), "high": of.quantile(0.75)}
        short = {
            f"{s}_{end}": of[c] for c, s in (("rel_err", "err"), ("speedup", "speedup")) for end, of in ends.items()
        }
        found.append(of.agg(geomean).assign(**short, values=values).reset_index())
    return pd.concat(found, ignore_index=True).rename(columns=lambda column: column.replace("rel_err_", "err_"))


@given
def errors(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return the relative error of every contender against float64, its largest and that of an element, with what the
    values were."""
    of = _both(float32, tf32).groupby(["values", "variant"], sort=False)
    table = of["rel_err"].agg(["median", "max"]).assign(element=of["max_err"].max())
    shown = dict.fromkeys((*SHOWN, UNION, EXACT, AUTO_FP32))
    order = [at for at in ((values, v) for values in ("TF32", "float32") for v in shown) if at in table.index]
    return table.loc[order].reset_index().assign(kernel=lambda df: df["variant"].map(called))


def multiplications(df: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of `PREPARED` with count: after how many multiplications a contender has paid for what its
    preparation costs beyond that of cuSPARSE's CSR; infinite where it is not faster, 0 where it costs no more."""
    theirs = where(df, variant=CSR)[[*POINT, "median_us", "prepare_ms"]]
    both = where(df, variant=PREPARED).merge(theirs, on=list(POINT), suffixes=("", "_base"))
    saved_ms = (both["median_us_base"] - both["median_us"]) / 1e3
    return both.assign(count=until_even(saved_ms, both["prepare_ms"] - both["prepare_ms_base"]))


@given
def pays_off(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return after how many multiplications preparing a matrix has paid, over cuSPARSE's CSR with its own preparation:
    the median of the matrices on which it does, and on how many it never does, by N."""
    df = _both(multiplications(float32), multiplications(tf32))
    cells = df.groupby(["values", "variant", "n"])["count"].agg(_often).unstack().add_prefix("N = ")
    table = cells.assign(ms=df.groupby(["values", "variant"])["prepare_ms"].median())
    order = [at for at in ((values, v) for values in ("TF32", "float32") for v in PREPARED) if at in table.index]
    return table.loc[order].reset_index().assign(kernel=_named)


def _often(count: pd.Series) -> str:
    never = np.isinf(count).sum()
    paid = "–" if never == len(count) else f"{np.ceil(count[count < np.inf].median()):,.0f}"
    return paid + f"<br><small>{never} of {len(count)} never</small>" * bool(never)


def planned() -> pd.DataFrame:
    """Return by non-zeros what a plan costs, and after how many multiplications it has paid."""
    ends = [f"from {plot.number(low)} to {plot.number(high)}" for low, high in zip(CLASSES, CLASSES[1:], strict=False)]
    df = plans.paid(apart.read(plans.FILE)).assign(over=lambda df: df["cusparse_us"] / df["us"])
    sizes = pd.cut(df["nnz"], CLASSES, right=False, labels=[end.removesuffix(" to infM") for end in ends])
    parts = df.groupby(sizes.rename("size"), observed=True)
    return parts.agg(
        **{"matrices": ("us", "size"), "plan_us": ("plan_us", "median"), "over": ("over", geomean)},
        paid=("count", lambda count: np.ceil(count.median())),
        never=("count", lambda count: f"{np.isinf(count).sum()} of {len(count)}"),
    ).reset_index()
