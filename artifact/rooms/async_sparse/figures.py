"""The tables behind the chapter's figures; figures.toml says how each is drawn. What was not measured is None."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from artifact.book.study import Study, given, where
from artifact.drawing import plot
from artifact.drawing.words import times
from artifact.measure.records import geomean
from artifact.rooms.async_sparse import arithmetic, contenders
from artifact.rooms.async_sparse.arithmetic import N, break_even, means, padded, side, speedups
from artifact.rooms.async_sparse.contenders import (
    BEFORE,
    BELL,
    BRANCHES,
    BSR,
    CSR,
    KEPT,
    LADDER,
    OURS,
    STEPS,
    TILES,
    TORCH,
    TRITON,
)
from artifact.rooms.async_sparse.facts import ACCURATE
from artifact.rooms.async_sparse.tables import OF_TABLE1, SHOWN
from kernels.async_sparse import VARIANTS

LAYER = (KEPT, TRITON, "auto")


@given
def ablation(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup of each step over cuSPARSE Blocked-ELL, at each matrix, and the stated one (Fig. 6)."""
    data = speedups(df, (*STEPS, *BRANCHES, CSR, BSR, TRITON, *OURS), BELL)
    stated = arithmetic.over_bell(table2).rename("speedup").reset_index()
    return plot.behind(data, stated[stated["variant"].isin(data["variant"])])


@given
def shares(df: pd.DataFrame, table2: pd.DataFrame) -> pd.DataFrame:
    """Return what each step adds from opt0 to opt4, as a share of the whole: by difference of speedups, as the source
    counts, and by factor; stated and measured."""
    found = {"stated": arithmetic.over_bell(table2), "measured": means(df, STEPS, BELL)}
    hows = ["by difference", "by factor"]
    parts = [arithmetic.shares(of)[hows].assign(source=source) for source, of in found.items()]
    return pd.concat(parts).reset_index(names="step").melt(["source", "step"], hows, "counted", "share")


@given
def tiles(df: pd.DataFrame, text: pd.DataFrame) -> pd.DataFrame:
    """Return the throughput over WGMMA_N, geometric mean and quartiles over the matrices, with stated values, and the
    work beyond N (Fig. 7): `value`, from `least` to `most`, of `what`."""
    of = df.assign(width=df["variant"].map(TILES)).groupby("width")["tflops"]
    data = pd.DataFrame({"tflops": of.agg(geomean), "low": of.quantile(0.25), "high": of.quantile(0.75)}).reset_index()
    data["extra"] = [padded(width) / N - 1 for width in data["width"]]
    rate = data.assign(what="useful TFLOP/s", value=data["tflops"], least=data["low"], most=data["high"])
    extra = data.assign(what="work beyond N (%)", value=100 * data["extra"])
    stated = where(text, quantity="tflops").dropna(subset=["size"]).rename(columns={"size": "width", "low": "tflops"})
    said = stated[["width", "tflops"]].assign(what="useful TFLOP/s", value=stated["tflops"])
    return plot.behind(pd.concat([rate, extra]), said).assign(variant=KEPT)


@given
def gate(df: pd.DataFrame, table3: pd.DataFrame, study: Study) -> pd.DataFrame:
    """Return speedups over dense cuBLAS by N and the share of blocks that is kept, in per cent, their limit, and the
    stated ones (Table III)."""
    # The dense rate for the blocks that are left, or each operand moved once, whichever takes longer.
    dense = where(df, variant=TORCH)
    least = np.fmax(dense["median_us"] * dense["density"], dense["least_bytes"] / study.ceiling("copy", "gbps") / 1e3)
    limit = dense[["n", "density"]].assign(limit=dense["median_us"] / least)
    data = speedups(df, LAYER, TORCH).merge(limit, on=["n", "density"], how="left")
    top = limit.assign(variant="limit", speedup=limit["limit"])
    stated = where(table3, quantity="speedup_cublas").rename(columns={"low": "speedup"})
    found = plot.behind(pd.concat([data, top]), stated[["variant", "n", "density", "speedup"]])
    return found.assign(kept=100 * found["density"], N=found["n"].astype(int)).sort_values("n", kind="stable")


@given
def pays(df: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over dense cuBLAS by the share of blocks, geometric mean over N with the range, and the share
    below which the mean is above 1."""
    of = speedups(df, LAYER, TORCH).groupby(["variant", "density"], sort=False)["speedup"]
    data = of.agg(speedup=geomean, least="min", most="max").reset_index()
    lines = data.set_index("density").groupby("variant")["speedup"]
    even = data["variant"].map({variant: break_even(line) for variant, line in lines})
    return data.assign(pays_from=even, kept=100 * data["density"])


@given
def ladder(df: pd.DataFrame, table3: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over dense cuBLAS of every kernel at one point, its gain over the kernel that it builds on and
    what was predicted before it was measured; and what the source states of the one that it keeps, at that point."""
    mean = means(df, LADDER, TORCH)
    said = where(table3, quantity="speedup_cublas", n=df["n"].unique())
    said = said[np.isclose(said["density"], df["density"].median(), rtol=0.05)].assign(
        variant=KEPT, speedup=said["low"]
    )
    base = pd.Series(BEFORE).reindex(mean.index)
    found = pd.DataFrame({"speedup": mean, "over": base, "gain": mean / base.map(mean)}).reset_index(names="variant")
    predicted = [times(VARIANTS[variant].prediction) for variant in mean.index]
    found = found.assign(prediction=predicted, stated=found["variant"].map(said.set_index("variant")["low"]))
    return plot.behind(found, said[["variant", "speedup"]])


@given
def blocks(df: pd.DataFrame) -> pd.DataFrame:
    """Return useful TFLOP/s over the side of a block, the same share of blocks kept."""
    return where(df, variant=("auto", TRITON, BSR)).assign(side=lambda df: df["label"].map(side))


@given
def layers(df: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over dense cuBLAS at each shape and density."""
    data = speedups(df, LAYER, TORCH)
    shapes = [f"{m:.0f} × {n:.0f} × {k:.0f}, {d:.0%}" for m, n, k, d in data[["m", "n", "k", "density"]].to_numpy()]
    return data.assign(problem=shapes)


@given
def fig5(df: pd.DataFrame, table1: pd.DataFrame, apart: pd.DataFrame) -> pd.DataFrame:
    """Return the speedup over cuSPARSE's Blocked-ELL, as the source has it, and beside it over the fastest of its
    algorithms for CSR (Fig. 5); with what the source states, and what was measured apart, on other matrices."""
    here = [speedups(df, SHOWN, base).assign(over=base) for base in (BELL, CSR)]
    rates = where(table1, quantity="tflops", density=0).pivot(index="kernel", columns="n", values="low")
    stated = (rates / rates.loc["cuSPARSE"]).stack().rename("speedup").reset_index().assign(over=BELL, source="stated")
    beside = where(apart, quantity="speedup_csr").rename(columns={"low": "speedup"}).assign(over=CSR)
    known = pd.concat([stated[stated["kernel"] != "cuSPARSE"], beside.assign(source="measured apart")])
    known = known.rename(columns={"kernel": "variant"})[["variant", "n", "speedup", "over", "source"]]
    data = pd.concat([*(part.assign(source="measured") for part in here), known], ignore_index=True)
    data = data[data["variant"] != data["over"]]
    place = {variant: i for i, variant in enumerate((*SHOWN, *rates.index))}
    data = data.assign(contender=data["variant"].replace(OF_TABLE1), base=data["over"].map(contenders.CALLED))
    return data.sort_values(
        ["n", "over", "contender"], key=lambda s: s.map(place).fillna(99) if s.name == "contender" else s
    )


@given
def winners(maps: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return who is ahead at each matrix; maps: of `rule.maps`."""
    return pd.concat(
        points.assign(values=values, winner=points["winner"].astype(str)) for values, points in maps.items()
    )


def tasks(df: pd.DataFrame) -> pd.DataFrame:
    """Return the speed with at most 1, 2 and 4 tasks a warp over that with 8, by what a task loads of B in KiB; df: of
    `tasks_of_a_warp.gains`."""
    parts = [df.assign(most=f"at most {most}", gain=df[f"gain_{most}"]) for most in (1, 2, 4)]
    return pd.concat(parts).assign(kib=lambda df: df["loaded"] / 1024)


@given
def accuracy(float32: pd.DataFrame, tf32: pd.DataFrame) -> pd.DataFrame:
    """Return error against float64 and speed of each method: geometric means over matrices and N with quartiles, speed
    over cuSPARSE's CSR in the same experiment. TF32's values hold 11 bits, so rounding operands is in no error."""
    methods = {"float32 values": (float32, ACCURATE["float32"])}
    methods |= {"values that TF32 holds": (tf32, (*ACCURATE["tf32"], contenders.AUTO_TF32))}
    found = []
    for values, (df, shown) in methods.items():
        df = speedups(df, shown, CSR).merge(df)
        of = df.assign(rel_err=df["rel_err"].clip(lower=1e-12)).groupby("variant", sort=False)
        ends = {
            f"{short}_{end}": of[column].quantile(share)
            for column, short in (("rel_err", "err"), ("speedup", "speedup"))
            for end, share in (("low", 0.25), ("high", 0.75))
        }
        middle = of[["rel_err", "speedup"]].agg(geomean)
        found.append(middle.assign(**ends, values=values).reset_index())
    return pd.concat(found, ignore_index=True)
