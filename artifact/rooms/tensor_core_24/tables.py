"""The chapter's tables, from records and configurations; DataFrames, or Stylers where numbers are rounded."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from pandas.io.formats.style import Styler

from artifact.drawing import plot, prose, words
from artifact.drawing.prose import captioned
from artifact.rooms.tensor_core_24 import experiments, figures, variants
from artifact.rooms.tensor_core_24.energy import View
from artifact.rooms.tensor_core_24.experiments import Ceilings, Ladder, Profile, by_size, wide
from kernels.tensor_core_24 import fp8_family

EIGHT_SIZES = (4096, 8192)  #: m = n = k at which the rungs in FP8 are shown


@captioned("The ladder: the file and tile of each rung, and its idea.")
def rungs() -> pd.DataFrame:
    """The ladder: name, file, tile, idea."""
    return pd.DataFrame(
        {
            "rung": f"<code>{r.name}</code>",
            "file": f"<code>{r.file}</code>",
            "tile": f"{r.m} × {r.n}",
            "idea": prose.inline_code(r.idea),
        }
        for r in variants.rungs().values()
    )


def gains(ladder: Ladder) -> pd.DataFrame:
    """Of each rung, the factor that was predicted (NaN where none was) and what came of it at each size."""
    rows = []
    for name, rung in ladder.rungs.items():
        number = re.match(r"([\d.]+)×", rung.prediction)
        rows.append(
            {
                "rung": name,
                "over": rung.before,
                "predicted": float(number[1]) if number else np.nan,
            }
            | {words.cube(s): ladder.gain(name, s) for s in ladder.sizes}
        )
    return pd.DataFrame(rows)


@captioned("The ladder in FP8: idea, what was expected, and TFLOP/s at two sizes.")
def eight_rungs(eights: pd.DataFrame | None) -> pd.DataFrame:
    """The ladder in FP8: name and tile, idea, what was expected, and TFLOP/s at two sizes where they were measured."""
    rate = {}
    if eights is not None:
        cubes = eights[(eights["m"] == eights["n"]) & (eights["n"] == eights["k"])]
        rate = cubes.set_index(["variant", "m"])["tflops"].to_dict()
    return pd.DataFrame(
        {
            "rung": f"<code>{name}</code><br>{config.m} × {config.n}",
            "idea": prose.inline_code(idea),
            "expected": prose.inline_code(expected),
            **{
                f"TFLOP/s, {words.cube(size)}": f"{rate[name, size]:,.0f}"
                for size in EIGHT_SIZES
                if (name, size) in rate
            },
        }
        for name, (config, idea, expected) in fp8_family.RUNGS.items()
    )


@captioned("What the profiler counted of the FP8 kernels and of both libraries.")
def eight_counted(rows: pd.DataFrame) -> Styler | None:
    """Counters of the FP8 kernels and both libraries; rows: `fp8.counted`. None without."""
    if rows.empty:
        return None
    df = pd.DataFrame(
        {
            "size": words.cube(size),
            "contender": v,
            "µs": row["us"],
            "clock [GHz]": row["ghz"],
            "tensor cores [%]": 100 * row["tensor"] / row["clocks"],
            "into SMs [B a clock and SM]": row["port_per_clock"],
            "in L2 [GB]": row["slices"],
        }
        for (size, v), row in rows.iterrows()
    )
    whole = ["µs", "tensor cores [%]"]
    one = ["into SMs [B a clock and SM]"]
    return _rounded(df).format("{:.0f}", subset=whole).format("{:.1f}", subset=one)


@captioned("What was predicted of each rung, as a factor, and what came of it at each size.")
def gains_rounded(ladder: Ladder) -> Styler | None:
    """`gains` for the page; None without rungs."""
    return _rounded(gains(ladder)) if ladder.rungs else None


def _rounded(df: pd.DataFrame) -> Styler:
    return df.style.hide(axis="index").format(precision=2, na_rep="–")


@captioned("What the profiler counted at the largest size.")
def profile(profile: Profile) -> Styler | None:
    """Counters at the largest size; None without."""
    if not profile.sizes:
        return None
    size, get = profile.sizes[-1], profile.counters.get
    rows = [
        {
            "contender": v,
            "µs": get(v, size, experiments.TIME) / 1e3,
            "tensor cores [%]": get(v, size, experiments.TENSOR),
            "shared memory [%]": get(v, size, experiments.SHARED),
            "L2 to SMs [GB]": get(v, size, experiments.TO_SM) / 1e9,
            "in L2 [GB]": get(v, size, experiments.AT_L2) / 1e9,
            "from DRAM [GB]": get(v, size, experiments.FROM_DRAM) / 1e9,
            "clock [GHz]": get(v, size, experiments.CLOCK) / 1e9,
        }
        for v in profile.contenders
    ]
    whole = ["µs", "tensor cores [%]", "shared memory [%]"]
    return _rounded(pd.DataFrame(rows)).format("{:.0f}", subset=whole, na_rep="–")


@captioned("Bytes, energy and clocks of each contender at the largest size that was profiled.")
def energy(view: View, ladder: Ladder) -> Styler | None:
    """Bytes, energy and clocks of each contender at the largest profiled size; None without a model, and where no rung
    was measured at that size, as in a kick."""
    if view.model is None:
        return None
    size, at = view.size, view.largest
    told = view.joules[(view.joules["m"] == size) & (view.joules["experiment"] == "ladder")]
    told, errors = (
        told.set_index("variant"),
        view.judged[view.judged["size"] == size].set_index("variant")["error"],
    )
    us = ladder.frame[ladder.frame["m"] == size].set_index("variant")["median_us"]
    names = [v for v in at.index if v in us.index]
    if not names:
        return None
    df = pd.DataFrame(
        {
            "contender": v,
            "in L2 [GB]": at["slices"][v],
            "L2 to SMs [GB]": at["port"][v],
            "B a clock and SM": at["port_per_clock"][v],
            "J, from": told["low_j"].get(v, np.nan),
            "J, to": told["high_j"].get(v, np.nan),
            "pJ/FLOP, to": told["high_pj"].get(v, np.nan),
            "clock, profile [GHz]": at["ghz"][v],
            "clock, harness [GHz]": at["clocks"][v] * 1e3 / us[v],
            "model is off [%]": 100 * errors[v],
        }
        for v in names
    )
    one = ["B a clock and SM", "model is off [%]"]
    return _rounded(df).format("{:.1f}", subset=one, na_rep="–")


@captioned("What the tuner chose for each shape, and how fast that is.")
def chosen(chosen: dict[tuple, variants.Chosen], both: pd.DataFrame, ceilings: Ceilings) -> pd.DataFrame:
    """What the tuner chose, and how fast it is; both: records of the shapes."""
    rates, us = wide(both, "tflops")["auto"], wide(both, "median_us")
    best = ceilings.best_sparse
    rows = []
    for key, c in chosen.items():
        row = {
            "shape": words.shape(key),
            "kernel": c.kernel,
            "tile": f"{c.m} × {c.n}",
            "splits": c.splits,
            "keeps": (c.keeps or "–").upper(),
            "TFLOP/s": round(rates[key]),
            "over lib.": f"{us['cusparselt'][key] / us['auto'][key]:.2f}×",
        }
        rows.append(row | ({"ceiling": f"{rates[key] / ceilings.peak[best]:.0%}"} if best else {}))
    return pd.DataFrame(rows)


@captioned("Useful TFLOP/s at any size; in brackets per cent of the same contender's at 4096³.")
def ragged(ragged: pd.DataFrame, square: pd.DataFrame) -> pd.DataFrame:
    """TFLOP/s at any size, and per cent of the same contender's at 4096³."""
    rate = wide(ragged, "tflops")
    base = {v: by_size(square, v)[4096] for v in rate}
    return pd.DataFrame(
        {
            "M × N × K": " × ".join(map(str, key)),
            "mma_sp": f"{row['mma_sp']:.0f}",
            "auto": f"{row['auto']:.0f}",
            "dense": f"{row['cublaslt']:.0f}",
            "auto over it": f"{row['auto'] / row['cublaslt']:.2f}×",
            "mma_sp [%]": f"{100 * row['mma_sp'] / base['mma_sp']:.0f}",
            "auto [%]": f"{100 * row['auto'] / base['auto']:.0f}",
            "dense [%]": f"{100 * row['cublaslt'] / base['cublaslt']:.0f}",
        }
        for key, row in rate.iterrows()
    )


@captioned(
    "Useful TFLOP/s by where rows of B begin: at multiples of so many bytes, or of 128. lean, tall and clusters: "
    "wgmma_lean, wgmma_lean_tall and wgmma_clusters."
)
def rows(rows: pd.DataFrame) -> pd.DataFrame:
    """TFLOP/s by where rows of B begin."""
    rate = wide(rows, "tflops")
    return pd.DataFrame(
        {
            "M × N × K": " × ".join(map(str, key)),
            "rows at [B]": variants.begin_at(key[1]),
            "lean": f"{row['wgmma_lean']:.0f}",
            "tall": f"{row['wgmma_lean_tall']:.0f}",
            "clusters": f"{row['wgmma_clusters']:.0f}",
            "auto": f"{row['auto']:.0f}",
            "lib.": f"{row['cusparselt']:.0f}",
            "dense": f"{row['cublaslt']:.0f}",
            "over lib.": f"{row['auto'] / row['cusparselt']:.2f}×",
        }
        for key, row in rate.iterrows()
    )


@captioned("Products of microseconds, in microseconds.")
def small(df: pd.DataFrame) -> pd.DataFrame:
    """Time where there are few tiles, and `auto` over either library."""
    us = wide(df, "median_us")
    return pd.DataFrame(
        {
            "M × N × K": " × ".join(map(str, key)),
            "cp_async [µs]": f"{row['wgmma_cp_async']:.2f}",
            "auto [µs]": f"{row['auto']:.2f}",
            "lib. [µs]": f"{row['cusparselt']:.2f}",
            "dense [µs]": f"{row['cublaslt']:.2f}",
            "over lib.": f"{row['cusparselt'] / row['auto']:.2f}×",
            "over dense": f"{row['cublaslt'] / row['auto']:.2f}×",
        }
        for key, row in us.iterrows()
    )


@captioned("In the layout of a linear layer, by outputs × tokens × inputs: ours in µs, and over the libraries.")
def linear(*frames: pd.DataFrame | None) -> pd.DataFrame | None:
    """Ours and over both libraries in the layout of a linear layer, a row for each shape of the first record, and
    columns for each record: of BF16, and of FP8. None without the first."""
    if frames[0] is None:
        return None
    found = {}
    for df, ours, dense, kind in zip(
        frames, ("auto", "fp8_auto"), ("cublaslt", "cublaslt_eight"), ("BF16", "FP8"), strict=False
    ):
        if df is None:
            continue
        for key, us in wide(df, "median_us").iterrows():
            over = {"lib.": us.get("cusparselt", np.nan) / us[ours], "dense": us.get(dense, np.nan) / us[ours]}
            said = {f"{kind} over {what}": "–" if np.isnan(x) else f"{x:.2f}×" for what, x in over.items()}
            found.setdefault(key, {}).update({f"{kind} [µs]": plot.number(round(us[ours], 1))} | said)
    shapes = wide(frames[0], "median_us").index
    rows = ({"M × N × K": " × ".join(map(plot.number, key))} | found[key] for key in shapes)
    return pd.DataFrame(rows).fillna("–")


@captioned("FP16 beside BF16 at 4096³.")
def float16(halves: pd.DataFrame, square: pd.DataFrame) -> pd.DataFrame:
    """FP16 beside BF16 at 4096³."""
    fp, bf = (df.set_index("variant") for df in (halves, square[square["m"] == 4096]))
    return pd.DataFrame(
        {
            "contender": figures.name(v),
            "BF16 [TFLOP/s]": f"{bf['tflops'][v]:.0f}",
            "FP16 [TFLOP/s]": f"{fp['tflops'][v]:.0f}",
            "FP16 over BF16": f"{fp['tflops'][v] / bf['tflops'][v]:.2f}×",
            "error, BF16": f"{bf['rel_err'][v]:.1e}",
            "error, FP16": f"{fp['rel_err'][v]:.1e}",
        }
        for v in variants.MAIN
    )
