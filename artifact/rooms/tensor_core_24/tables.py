"""The chapter's tables, as DataFrames; tables.toml says which columns a page shows, and how."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.book.study import pivot, where
from artifact.drawing import words
from artifact.measure import apart
from artifact.rooms.tensor_core_24 import energy as energies
from artifact.rooms.tensor_core_24 import variants
from artifact.rooms.tensor_core_24.experiments import ROOM, Chapter
from kernels.tensor_core_24 import family, fp8_family

WHOLE_MODEL, HOST_MODEL = (registry.FOLDER / ROOM / name for name in ("model.csv", "model_host.csv"))
STEP = ["model", "phase", "tokens", "context", "precision"]
KEY = [*STEP, "weight"]
EIGHT_SIZES = (4096, 8192)  #: m = n = k at which the rungs in FP8 are shown


def shapes(df: pd.DataFrame) -> pd.DataFrame:
    """Return a table by m, n and k with the column `shape` instead."""
    return df.assign(shape=[" × ".join(map(str, key)) for key in df.index]).reset_index(drop=True)


def over(us: pd.DataFrame, ours: str = "auto", dense: str = "cublaslt") -> pd.DataFrame:
    """Return times by shape with the columns `lib` and `dense`, ours over either library."""
    return us.assign(lib=us["cusparselt"] / us[ours], dense=us[dense] / us[ours])


def gains(post: Chapter) -> pd.DataFrame:
    """Return what was predicted of each rung, as a factor, and what came of it at each size."""
    rungs = post.rungs[["rung", "before", "predicted"]]
    return rungs.join(post.gains.rename(words.cube).T).reset_index(drop=True)


def tried(post: Chapter, part: str) -> pd.DataFrame:
    """Return the trials of a part: what each was, on which kernel, what was expected, and by what factor time or clocks
    became less, by size."""
    said = pd.DataFrame(registry.toml(registry.FOLDER / ROOM / "tried.toml")[part]).T
    rows = {}
    for name, df in post.tried(part).groupby("trial", sort=False):
        came = words.listed(f"{r.gain:.2f}× at {words.shape((r.m, r.n, r.k))}" for r in df.itertuples())
        unit = {"us": "in time"}.get(df["unit"].iloc[0], "in clocks")
        rows[name] = {"on": df["beside"].iloc[0], "came": f"{came} {unit}; {said['became'][name]}"}
    return pd.DataFrame(rows, ["on", "came"]).T.join(said)


def energy(post: Chapter) -> pd.DataFrame | None:
    """Return bytes, energy and clocks of each contender at the largest size that was profiled, of those that were
    measured there; None without a model."""
    view = energies.view(post)
    if not view.tells:
        return None
    at, us = view.largest, where(post.ladder, m=view.size).set_index("variant")["median_us"]
    told = where(view.joules, m=view.size, experiment="ladder").set_index("variant")[["low_j", "high_j", "high_pj"]]
    off = where(energies.held_out(view.rows), size=view.size).set_index("variant")["error"]
    df = at.join(told).assign(harness=at["clocks"] * 1e3 / us, error=100 * off)
    return df[df["harness"].notna()].reset_index()


def chosen(post: Chapter) -> pd.DataFrame:
    """Return what the tuner chose for squares and layers, and how fast it is."""
    rates, us = (post.by_shape("both", column) for column in ("tflops", "median_us"))
    df = variants.chosen(post.run, rates.index).join(over(us)["lib"]).join(rates["auto"])
    keeps, tile = df["keeps"].str.upper().replace("", "–"), [f"{c.m} × {c.n}" for c in df.itertuples()]
    ceiling = df["auto"] / post.peak[post.loops.iloc[-1]]
    return df.assign(shape=list(map(words.shape, df.index)), tile=tile, keeps=keeps, ceiling=ceiling)


def ragged(post: Chapter) -> pd.DataFrame:
    """Return TFLOP/s at any size, and per cent of the same contender's at 4096³."""
    rate = post.by_shape("ragged", "tflops")
    of = 100 * rate / post.by_shape("square", "tflops").loc[4096, 4096, 4096]
    return shapes(rate.assign(over=rate["auto"] / rate["cublaslt"]).join(of.add_suffix("_of")))


def rows(post: Chapter) -> pd.DataFrame:
    """Return TFLOP/s by where rows of B begin."""
    rate = post.by_shape("rows", "tflops")
    begin = [family.begin_at(n) for _, n, _ in rate.index]
    return shapes(rate.assign(begin=begin, over=rate["auto"] / rate["cusparselt"]))


def small(post: Chapter) -> pd.DataFrame:
    """Return the time where there are few tiles, and `auto` over either library."""
    return shapes(over(post.by_shape("small", "median_us")))


def linear(post: Chapter, experiment: str) -> pd.DataFrame:
    """Return ours and over both libraries in the layout of a linear layer, BF16 and FP8, a row for each shape."""
    half = over(post.by_shape(experiment, "median_us"))
    eight = over(post.by_shape("fp8_linear", "median_us"), "fp8_auto", "cublaslt_eight")
    return shapes(half.round({"auto": 1}).join(eight.round({"fp8_auto": 1}).add_suffix("_eight")))


def float16(post: Chapter) -> pd.DataFrame:
    """Return FP16 beside BF16 at 4096³."""
    fp, bf = (df.set_index("variant")[["tflops", "rel_err"]] for df in (post["float16"], where(post["square"], m=4096)))
    both = bf.join(fp.add_suffix("_fp"))
    return both.assign(over=both["tflops_fp"] / both["tflops"]).reset_index()


def eight_rungs(post: Chapter) -> pd.DataFrame:
    """Return the ladder in FP8: name and tile, idea, what was expected, and TFLOP/s at two sizes where they were
    measured."""
    df = pd.DataFrame(
        {"rung": name, "tile": f"{config.m} × {config.n}", "idea": idea, "expected": expected}
        for name, (config, idea, expected) in fp8_family.RUNGS.items()
    )
    cubes = where(post["fp8"].query("m == n and n == k"), m=EIGHT_SIZES)
    return df.join(pivot(cubes, "tflops").rename(words.cube).T, on="rung")


def models(path: Path = WHOLE_MODEL) -> pd.DataFrame:
    """Return the rows of model.csv, and speedup: over the dense contender of the same precision; step: in words, decode
    has as many sequences as tokens."""
    df = apart.read(path)
    dense = df[STEP].merge(where(df, weight="dense")[[*STEP, "ms"]], "left")["ms"]
    said = {"prefill": "prefill, {:,} tokens", "decode": "decode, {:,} sequence{}"}
    step = [said[r.phase].format(r.tokens, "s" * (r.tokens > 1)) for r in df.itertuples()]
    return df.assign(speedup=dense / df["ms"], step=step)


def whole() -> pd.DataFrame:
    """Return a row for each model and step: milliseconds of each contender, and their speedup, "… over"."""
    df = models().assign(contender=lambda rows: rows["precision"] + " " + rows["weight"])
    tables = [df.pivot_table(v, ["model", "step"], "contender", sort=False) for v in ("ms", "speedup")]
    return tables[0].join(tables[1].add_suffix(" over")).reset_index()


def host() -> pd.DataFrame:
    """Return a row for each layer: microseconds of a call on the host, for each number of tokens."""
    df = apart.read(HOST_MODEL)
    df["size"] = [f"{r.inputs:,} × {r.outputs:,}" for r in df.itertuples()]
    return df.pivot_table("us", ["layer", "size"], "tokens", sort=False).add_prefix("us_").reset_index()
