"""What the chapter's tables and figures show, as DataFrames; tables.toml and figures.toml say how.

TFLOP/s count 2·M·N·K for every contender, sparse or dense. What the source states was measured on another GPU, so only
its ratios are drawn.
"""

from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.book import text
from artifact.book.study import pivot, where
from artifact.measure import apart
from artifact.systems.tensor_core_24 import experiments
from artifact.systems.tensor_core_24.experiments import KEYS, LIBRARIES, SYSTEM, Chapter, together
from kernels import tensor_core_24 as system
from kernels.tensor_core_24 import family

WHOLE_MODEL, HOST_MODEL = (registry.FOLDER / SYSTEM / name for name in ("model.csv", "model_host.csv"))
STEP = ["model", "phase", "tokens", "context", "precision"]
KEY = [*STEP, "weight"]
EIGHT_SIZES = (4096, 8192)  #: m = n = k at which the rungs in FP8 are shown


def shapes(df: pd.DataFrame) -> pd.DataFrame:
    """Return a table by m, n and k with the column `shape` instead."""
    return df.assign(shape=[" × ".join(map(str, key)) for key in df.index]).reset_index(drop=True)


def over(post: Chapter, experiment: str, ours: str = "auto", dense: str = "cublaslt") -> pd.DataFrame:
    """Return times, µs, with the columns `lib` and `dense`, ours over either library."""
    us = post.by_shape(experiment, "median_us")
    return shapes(us.assign(lib=us["cusparselt"] / us[ours], dense=us[dense] / us[ours]))


def gains(post: Chapter) -> pd.DataFrame:
    """Return what was predicted of each rung, as a factor, and what came of it at each size."""
    return post.rungs[["rung", "before", "predicted"]].join(post.gains.rename(text.cube).T).reset_index(drop=True)


def tried(post: Chapter, part: str) -> pd.DataFrame:
    """Return the trials of a part.

    What each was, on which kernel, what was expected, and by what factor time or clocks became less, by size.
    """
    return (
        post.tried(part)
        .assign(at=lambda df: [f"{r.gain:.2f}× at {text.shape((r.m, r.n, r.k))}" for r in df.itertuples()])
        .replace({"unit": {"us": "in time", "kiloclocks": "in clocks"}})
        .groupby("trial", sort=False)
        .agg(on=("beside", "first"), came=("at", text.listed), unit=("unit", "first"))
        .join(pd.DataFrame(registry.toml(registry.FOLDER / SYSTEM / "tried.toml")[part]).T)
        .assign(came=lambda df: [f"{r.came} {r.unit}; {r.became}" for r in df.itertuples()])
        .drop(columns="unit")
    )


def chosen(post: Chapter) -> pd.DataFrame:
    """Return what the tuner chose for squares and layers, and how fast it is."""
    rates = post.by_shape("both", "tflops")
    return (
        experiments.chosen(post.run, rates.index)
        .join((rates["auto"] / rates["cusparselt"]).rename("lib"))
        .join(rates["auto"])
        .assign(
            shape=lambda df: list(map(text.shape, df.index)),
            tile=lambda df: [f"{c.m} × {c.n}" for c in df.itertuples()],
            keeps=lambda df: df["keeps"].str.upper().replace("", "–"),
            ceiling=lambda df: df["auto"] / post.peak[post.loops.iloc[-1]],
        )
    )


def ragged(post: Chapter) -> pd.DataFrame:
    """Return TFLOP/s at any size, and per cent of the same contender's at 4096³."""
    rate = post.by_shape("ragged", "tflops")
    return shapes(
        rate.assign(over=rate["auto"] / rate["cublaslt"]).join(
            (100 * rate / post.by_shape("square", "tflops").loc[4096, 4096, 4096]).add_suffix("_of")
        )
    )


def rows(post: Chapter) -> pd.DataFrame:
    """Return TFLOP/s by where rows of B begin."""
    rate = post.by_shape("rows", "tflops")
    return shapes(
        rate.assign(begin=[family.begin_at(n) for _, n, _ in rate.index], over=rate["auto"] / rate["cusparselt"])
    )


def linear(post: Chapter, experiment: str) -> pd.DataFrame:
    """Return ours and over both libraries in the layout of a linear layer, BF16 and FP8, a row for each shape."""
    return (
        over(post, experiment)
        .round({"auto": 1})
        .merge(
            over(post, "fp8_linear", "fp8_auto", "cublaslt_eight").round({"fp8_auto": 1}).add_suffix("_eight"),
            "left",
            left_on="shape",
            right_on="shape_eight",
        )
    )


def float16(post: Chapter) -> pd.DataFrame:
    """Return FP16 beside BF16 at 4096³."""
    return (
        where(post["square"], m=4096)
        .merge(post["float16"], "left", on="variant", suffixes=("", "_fp"))
        .assign(over=lambda both: both["tflops_fp"] / both["tflops"])
    )


def eight_rungs(post: Chapter) -> pd.DataFrame:
    """Return the ladder in FP8.

    Name and tile, idea, what was expected, and TFLOP/s at two sizes where they were measured.
    """
    return pd.DataFrame(
        {"rung": name, "tile": f"{config.m} × {config.n}", "idea": idea, "expected": expected}
        for name, (config, idea, expected) in family.FP8_RUNGS.items()
    ).join(
        pivot(where(post["fp8"].query("m == n and n == k"), m=EIGHT_SIZES), "tflops").rename(text.cube).T,
        on="rung",
    )


def models(path: Path = WHOLE_MODEL) -> pd.DataFrame:
    """Return the rows of model.csv, and speedup: over the dense contender of the same precision.

    step: in words, decode has as many sequences as tokens.
    """
    df = apart.read(path)
    return df.assign(
        speedup=df[STEP].merge(where(df, weight="dense")[[*STEP, "ms"]], "left")["ms"] / df["ms"],
        step=[
            f"{r.phase}, {r.tokens:,} {'tokens' if r.phase == 'prefill' else 'sequence' + 's' * (r.tokens > 1)}"
            for r in df.itertuples()
        ],
    )


def whole() -> pd.DataFrame:
    """Return a row for each model and step: milliseconds of each contender, and their speedup, "… over"."""
    df = models().assign(contender=lambda rows: rows["precision"] + " " + rows["weight"])
    ms, speedup = (df.pivot_table(v, ["model", "step"], "contender", sort=False) for v in ("ms", "speedup"))
    return ms.join(speedup.add_suffix(" over")).reset_index()


def host() -> pd.DataFrame:
    """Return a row for each layer: microseconds of a call on the host, for each number of tokens."""
    return (
        apart.read(HOST_MODEL)
        .assign(size=lambda df: [f"{r.inputs:,} × {r.outputs:,}" for r in df.itertuples()])
        .pivot_table("us", ["layer", "size"], "tokens", sort=False)
        .add_prefix("us_")
        .reset_index()
    )


# ---------------------------------------------------------------- figures


def stated(post: Chapter, quantity: str) -> pd.DataFrame:
    """Return what the source states of its kernel, and of the library, at each size."""
    return (
        post.stated("benchmarks", quantity)
        .dropna(subset="size")[["variant", "size", "value"]]
        .assign(size=lambda rows: rows["size"].astype(int), source="stated")
    )


def throughput(post: Chapter) -> pd.DataFrame:
    """Return TFLOP/s by size, and what loops of one instruction sustain."""
    return together(
        post["square"].assign(size=post["square"]["m"], source="measured"),
        post.peak[post.loops].rename("tflops").to_frame().assign(variant=post.loops.index, source="ceiling"),
    )


def per_cent(post: Chapter) -> pd.DataFrame:
    """Return throughput by size, in per cent of cuSPARSELt's best algorithm's."""
    said = stated(post, "speedup_cusparselt")
    return together(_share(post["square"], "cusparselt"), said.assign(per_cent=100 * said.pop("value")))


def _share(df: pd.DataFrame, of: str, *but: str) -> pd.DataFrame:
    """Return the throughput of every contender but these, in per cent of that of one of them, by size."""
    us = pivot(df, "median_us")
    return _long(100 * us[[of]].to_numpy() / us.drop(columns=[of, *but]), "per_cent").assign(source="measured")


def _long(df: pd.DataFrame, value: str) -> pd.DataFrame:
    """Return a table by size, a column for each contender, as size, variant and value."""
    return df.melt(ignore_index=False, value_name=value).rename_axis("size").reset_index()


def share_of_peak(post: Chapter) -> pd.DataFrame:
    """Return throughput by size, in per cent of what a loop of each contender's own instruction sustains."""
    of = dict.fromkeys(("auto", "cusparselt"), "wgmma.sp") | {"cublaslt": "wgmma (dense)", "mma_sp": "mma.sp"}
    top = post.stated("benchmarks", "peak", variant="mma_sp")["value"].item()
    said = stated(post, "tflops").rename(columns={"value": "tflops"}).assign(ceiling="mma_sp", peak=top)
    return together(
        post["square"]
        .assign(
            source="measured",
            size=lambda df: df["m"],
            ceiling=lambda df: df["variant"].map(of),
            peak=lambda df: df["ceiling"].map(post.loops).map(post.peak),
        )
        .dropna(subset="peak"),
        said,
    ).assign(per_cent=lambda df: 100 * df["tflops"] / df["peak"])


def studies(post: Chapter) -> pd.DataFrame:
    """Return the throughput of side studies, in per cent of the published kernel's."""
    share = _share(post["studies"], "mma_sp", "cusparselt")
    said = where(post.stated("design", "speedup_mma_sp"), variant=set(share["variant"]))[["variant", "low", "high"]]
    said[["low", "high"]] *= 100
    return together(share, said.assign(source="stated")).assign(
        idea=lambda df: [system.VARIANTS[v].idea for v in df["variant"]]
    )


def ladder(post: Chapter) -> pd.DataFrame:
    """Return TFLOP/s of every rung at the sizes that all take, and its gain over the one before.

    The one before is the one that it builds on. With what was predicted, the libraries, and where the share of
    cuSPARSELt that the source states would be here.
    """
    rates, gains = (df.loc[post.climbed] for df in (post.rates, post.gains))
    df = (
        _long(rates[["mma_sp", *post.rungs.index, "auto"]], "tflops")
        .merge(_long(gains - 1, "gain"), "left", on=["size", "variant"])
        .assign(
            prediction=lambda df: df["variant"].map(experiments.PREDICTIONS),
            stated=lambda df: (
                df["size"].map(post.post("speedup_cusparselt") * rates["cusparselt"]).where(df["variant"] == "mma_sp")
            ),
            source="measured",
        )
    )
    return together(
        df,
        _long(rates[list(LIBRARIES)], "tflops").assign(source="ceiling"),
        df.dropna(subset="stated").assign(source="stated", tflops=df["stated"], stated=pd.NA),
    )


def layers(df: pd.DataFrame, best: str) -> pd.DataFrame | None:
    """Return TFLOP/s at each shape of records, and how far a contender is ahead of cuSPARSELt's best; None without."""
    if df.empty:
        return None
    library = df[KEYS].merge(where(df, variant="cusparselt")[[*KEYS, "median_us"]], "left")["median_us"].to_numpy()
    return df.assign(
        over_cusparselt=library / df["median_us"],
        shape=[text.shape(at) for at in df[KEYS].to_numpy()],
        best=lambda df: df["shape"].map(where(df, variant=best).set_index("shape")["over_cusparselt"]),
    )
