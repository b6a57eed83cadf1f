"""Tables of the chapter: DataFrames, which tables.toml says how to show."""

from __future__ import annotations

import numpy as np
import pandas as pd

from artifact.book.study import Study, by, ratio, where
from artifact.profiling import ncu
from artifact.rooms.nm_cuda_core.experiments import LETTER, ON_CPU, PATTERN_KERNELS, PUBLISHED
from artifact.rooms.nm_cuda_core.facts import PIPES, stalled, wavefronts

#: What identifies a number of Fig. 3, and the sizes that it has.
NUMBER = ["metric", "source", "size", "variant", "quantity"]
SIZES = (256, 2048)


def over_cublas(published: pd.DataFrame, scaling: pd.DataFrame, fma: float) -> pd.DataFrame:
    """Compare kernels with cuBLAS by size: the published one by what is counted as cuBLAS, and ours beside it; with
    shares of the FMA ceiling, TFLOP/s."""
    columns = {
        "handle": ratio(published, LETTER[0], "cublas_handle"),
        "call": ratio(published, LETTER[0], "cublas"),
        "kernel": ratio(scaling, LETTER[0], "cublas"),
        "double_buffer": ratio(scaling, LETTER[2], "cublas"),
        "share": by(scaling, LETTER[0], "tflops") / fma,
        "ours": ratio(scaling, "baseline", "cublas"),
        "our_share": by(scaling, "baseline", "tflops") / fma,
    }
    return pd.DataFrame(columns).rename_axis("size").reset_index()


def metrics(study: Study) -> pd.DataFrame:
    """List the report's metrics, and whether the profile here has them, by another name where that is "ratio"."""
    table, held = study.published("table1"), set(study.counters.rows["metric"])
    # What the report calls smps__ is smsp__, and its stalls are the .pct of what is counted as .ratio here.
    ours = table["metric"].str.replace("smps__", "smsp__").str.replace("issue_active.pct", "issue_active.ratio")
    here = np.where(ours == table["metric"], "yes", "ratio")
    return table.assign(here=np.where(ours.isin(held), here, "–"))


def fig3(study: Study) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return Fig. 3, a row for each size, metric and source, and its numbers, tidy: NUMBER, low and high.

    Measured is what `ncu.REPORT_METRICS` names of the kernels to the letter, under which stands what is stated of a
    kernel; of several rows for one number the first counts. Ratios that the report does not state are those of its
    values.
    """
    stems = {counter.rpartition(".")[0]: metric for metric, (counter, _) in ncu.REPORT_METRICS.items()}
    factors = dict(ncu.REPORT_METRICS.values())
    rows = where(study.counters.rows, variant=LETTER, m=SIZES, metric=factors)
    value = rows["value"] * rows["metric"].map(factors)
    theirs = study.published("fig3").replace({"variant": dict(zip(PUBLISHED, LETTER, strict=True))})
    kind = np.where(theirs["quantity"].str.endswith("_ratio"), "ratio", "value")
    values = pd.concat(
        [
            rows.assign(source="measured", size=rows["m"], quantity="value", low=value, high=value),
            theirs.assign(source="stated", quantity=kind),
        ]
    )
    values["metric"] = values["metric"].str.rpartition(".")[0].map(stems)
    exact = where(values, quantity="value").query("low == high")
    base = where(exact, variant=LETTER[0]).drop_duplicates(NUMBER)
    pairs = where(exact, variant=LETTER[1:]).merge(base, on=["metric", "source", "size"], suffixes=("", "_base"))
    over = pairs["low"] / pairs["low_base"]
    data = pd.concat([values, pairs.assign(quantity="ratio", low=over, high=over)])[[*NUMBER, "low", "high"]]
    data = (
        data.dropna(subset=["low", "high"], how="all")
        .dropna(subset=NUMBER)
        .drop_duplicates(NUMBER)
        .astype({"size": int})
    )
    return _as_text(data), data


def _as_text(data: pd.DataFrame) -> pd.DataFrame:
    text = [_between(row.low, row.high, "×" * (row.quantity == "ratio")) for row in data.itertuples()]
    title = data["variant"] + np.where(data["quantity"] == "ratio", " ratio", "")
    shown = data.assign(text=text, title=title)
    table = shown.pivot(index=["size", "metric", "source"], columns="title", values="text")
    return table.reindex(list(ncu.REPORT_METRICS), level="metric").reset_index()


def _between(low: float, high: float, unit: str) -> str:
    """Write a value, a range or an open bound."""
    sign = "< " if np.isnan(low) else "> " if np.isnan(high) else ""
    return sign + "–".join(dict.fromkeys(_digits(end, unit) for end in (low, high) if end == end))


def _digits(value: float, unit: str) -> str:
    """Write three digits (of a small ratio two decimals), or a whole number in groups of three."""
    form = ",.0f" if value >= 1000 else ".2f" if unit and value < 10 else ".3g"
    return f"{value:{form}}{unit}".replace(",", "\u202f").replace("inf", "∞")


def pipes(study: Study) -> pd.DataFrame:
    """Tell what is busy, what warps wait for, and the wavefronts of a read from shared memory."""
    shown = ("baseline", "pipelined", "double_buffer", "double_buffer_split1", "zigzag")
    return pd.DataFrame(
        {"size": size, "variant": v}
        | {pipe: study.counters.get(v, metric, m=size) for pipe, metric in PIPES.items()}
        | {reason: stalled(study, v, size, f"{reason}_scoreboard") for reason in ("long", "short")}
        | {"waves": wavefronts(study, v, size)}
        for size in (256, 2048, 4096)
        for v in shown
    )


def patterns(df: pd.DataFrame) -> pd.DataFrame:
    """Return speedups over cuBLAS at one size, by pattern, beside what skipping the zeros alone would give."""
    speed = {v: ratio(df, v, "cublas", ["label", "density"]) for v in PATTERN_KERNELS}
    table = pd.DataFrame(speed).reset_index().replace({"label": {"": "2:4"}})
    return table.assign(ideal=1 / table["density"])


def on_cpu(sequential: pd.DataFrame) -> pd.DataFrame:
    """Return the ms of the CPUs and of the published kernel by size, and its speedup over one thread and all cores."""
    times = pd.DataFrame({v: by(sequential, v) / 1e3 for v in (*ON_CPU, LETTER[0])})
    over = {f"over_{v}": times[v] / times[LETTER[0]] for v in ("cpu_loop", "cpu_blas")}
    return times.assign(**over).rename_axis("size").reset_index()
