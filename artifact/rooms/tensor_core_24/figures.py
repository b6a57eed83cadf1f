"""The tables behind the chapter's figures; figures.toml says how each is drawn.

TFLOP/s count 2·M·N·K for every contender, sparse or dense. What the source states was measured on another GPU, so only
its ratios are drawn.
"""

from __future__ import annotations

import pandas as pd

from artifact.book.study import pivot, where
from artifact.drawing import words
from artifact.rooms.tensor_core_24 import energy as energies
from artifact.rooms.tensor_core_24 import tables, variants
from artifact.rooms.tensor_core_24.experiments import LIBRARIES, Chapter, together
from kernels import tensor_core_24 as room


def stated(post: Chapter, quantity: str) -> pd.DataFrame:
    """Return what the source states of its kernel, and of the library, at each size."""
    rows = post.stated("benchmarks", quantity).dropna(subset="size")[["variant", "size", "value"]]
    return rows.assign(size=rows["size"].astype(int), source="stated")


def throughput(post: Chapter) -> pd.DataFrame:
    """Return TFLOP/s by size, and what loops of one instruction sustain."""
    roofs = post.peak[post.loops].rename("tflops").to_frame().assign(variant=post.loops.index, source="ceiling")
    return together(post["square"].assign(size=post["square"]["m"], source="measured"), roofs)


def per_cent(post: Chapter) -> pd.DataFrame:
    """Return throughput by size, in per cent of cuSPARSELt's best algorithm's."""
    us = pivot(post["square"], "median_us")
    share = 100 * us[["cusparselt"]].to_numpy() / us.drop(columns="cusparselt")
    df = share.melt(ignore_index=False, value_name="per_cent").rename_axis("size").reset_index()
    said = stated(post, "speedup_cusparselt")
    return together(df.assign(source="measured"), said.assign(per_cent=100 * said.pop("value")))


def share_of_peak(post: Chapter) -> pd.DataFrame:
    """Return throughput by size, in per cent of what a loop of each contender's own instruction sustains."""
    of = dict.fromkeys(("auto", "cusparselt"), "wgmma.sp") | {"cublaslt": "wgmma (dense)", "mma_sp": "mma.sp"}
    df = post["square"].assign(source="measured", size=post["square"]["m"], ceiling=post["square"]["variant"].map(of))
    df = df[df["ceiling"].isin(post.loops.index)]
    top = post.stated("benchmarks", "peak", variant="mma_sp")["value"].item()
    said = stated(post, "tflops").rename(columns={"value": "tflops"}).assign(ceiling="mma_sp", peak=top)
    df = together(df.assign(peak=df["ceiling"].map(post.loops).map(post.peak)), said)
    return df.assign(per_cent=100 * df["tflops"] / df["peak"])


def studies(post: Chapter) -> pd.DataFrame:
    """Return the throughput of side studies, in per cent of the published kernel's."""
    us = pivot(post["studies"], "median_us")
    share = 100 * us[["mma_sp"]].to_numpy() / us.drop(columns=["mma_sp", "cusparselt"])
    df = share.melt(ignore_index=False, value_name="per_cent").rename_axis("size").reset_index()
    said = where(post.stated("design", "speedup_mma_sp"), variant=share.columns)[["variant", "low", "high"]]
    said[["low", "high"]] *= 100
    df = together(df.assign(source="measured"), said.assign(source="stated"))
    return df.assign(idea=[room.VARIANTS[v].idea for v in df["variant"]])


def ladder(post: Chapter) -> pd.DataFrame:
    """Return TFLOP/s of every rung at the sizes that all take, its gain over the one that it builds on, what was
    predicted; the libraries, and where the share of cuSPARSELt that the source states would be here."""
    rates, gains = (df.loc[post.climbed] for df in (post.rates, post.gains))
    rows = rates[["mma_sp", *post.rungs.index, "auto"]].melt(ignore_index=False, value_name="tflops")
    gain = gains.melt(ignore_index=False, value_name="gain").set_index("variant", append=True)["gain"] - 1
    df = rows.rename_axis("size").reset_index().join(gain.rename_axis(["size", "variant"]), on=["size", "variant"])
    share = post.post("speedup_cusparselt") * rates["cusparselt"]
    said = df["size"].map(share).where(df["variant"] == "mma_sp")
    df = df.assign(prediction=df["variant"].map(variants.PREDICTIONS), stated=said, source="measured")
    libraries = rates[list(LIBRARIES)].melt(ignore_index=False, value_name="tflops").rename_axis("size").reset_index()
    hollow = df.dropna(subset="stated").assign(source="stated", tflops=said, stated=pd.NA)
    return together(df, libraries.assign(source="ceiling"), hollow)


def energy(post: Chapter) -> pd.DataFrame | None:
    """Return the energy of a multiplication by term, over all of it for `auto`; None without a model."""
    view = energies.view(post)
    if not view.tells:
        return None
    parts = view.parts[list(energies.CALLED)]
    share = parts / parts.loc["auto"].sum()
    df = share.reset_index().melt("variant", var_name="term", value_name="share")
    return df.assign(size=view.size, total=df["variant"].map(share.sum(axis=1)))


def layers(df: pd.DataFrame, best: str) -> pd.DataFrame | None:
    """Return TFLOP/s at each shape of records, and how far a contender is ahead of cuSPARSELt's best; None without."""
    if df.empty:
        return None
    key = ["m", "n", "k"]
    library = df[key].merge(where(df, variant="cusparselt")[[*key, "median_us"]], "left")["median_us"].to_numpy()
    df = df.assign(over_cusparselt=library / df["median_us"], shape=[words.shape(at) for at in df[key].to_numpy()])
    return df.assign(best=df["shape"].map(where(df, variant=best).set_index("shape")["over_cusparselt"]))


def models() -> pd.DataFrame:
    """Return how many times as fast a step of a model is with 2:4 weights as with dense ones."""
    return where(tables.models(), weight="2:4")
