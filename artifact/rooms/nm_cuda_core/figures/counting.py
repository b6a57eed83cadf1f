"""Fig. 3: counters of Nsight Compute, and why warps wait."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Patch

from artifact.drawing import plot
from artifact.drawing.style import BOUND, INK, RUNGS, SIZE, WIDTH
from artifact.profiling import ncu
from artifact.rooms.nm_cuda_core.figures.common import AS_PUBLISHED, HATCHES, PROFILED, STALL


def counters_table(
    df: pd.DataFrame, published: pd.DataFrame | None, shown: Sequence[str] = PROFILED
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fig. 3: the report's nine metrics of each kernel at each size, measured above stated.

    df: counters (`records.read_counters`) at M = N = K. `ncu.REPORT_METRICS` says which counter is
    behind each metric, and so does the column `metric` of published (`nm_fig3.csv`), whose
    quantities that end in "_ratio" are over the baseline; of several rows for one value the first
    counts. What is stated of a kernel stands under its variant to the letter, where that is shown. The
    table is text, ready to be shown: two rows per metric, and per size a column for each
    of `shown` and for its ratio to the baseline; "–" is missing. The data are the same numbers,
    tidy: metric, source, size, variant, quantity ("value" or "ratio"), low and high. Raises
    ValueError where there are no counters, or a counter twice.
    """

    counters = _counters(df, shown)
    first, rows = shown[0], []
    for metric, (counter, factor) in ncu.REPORT_METRICS.items():
        measured = counters[counters["metric"] == counter]
        values = {(int(r.m), r.variant): (factor * r.value,) * 2 for r in measured.itertuples()}
        ratios: dict = {}
        for source in ("measured", "stated"):
            if source == "stated":
                values, ratios = (
                    {(s, _named(v, shown)): bounds for (s, v), bounds in of.items()}
                    for of in _stated_counter(published, counter)
                )
            for (size, variant), bounds in values.items():
                rows.append((metric, source, size, variant, "value", *bounds))
                base = values.get((size, first), (np.nan, np.nan))
                if variant != first and (size, variant) not in ratios:
                    ratios[size, variant] = (_over(bounds, base),) * 2
            rows += [(metric, source, *key, "ratio", *bounds) for key, bounds in ratios.items()]
    columns = ["metric", "source", "size", "variant", "quantity", "low", "high"]
    data = pd.DataFrame(rows, columns=columns)
    data = data[data["variant"].isin(shown)].dropna(subset=["low", "high"], how="all")
    cells = {tuple(row[:5]): row[5:] for row in data.itertuples(index=False)}
    others = [variant for variant in shown if variant != first]
    titles = [(variant, variant, "value", "") for variant in shown]
    titles += [(f"{variant} / {first}", variant, "ratio", "×") for variant in others]
    lines = []
    for metric in ncu.REPORT_METRICS:
        for source in ("measured", "stated"):
            line = {("", "metric"): metric if source == "measured" else "", ("", "source"): source}
            for size in sorted(set(data["size"])):
                for title, variant, quantity, unit in titles:
                    bounds = cells.get((metric, source, size, variant, quantity))
                    line[f"{size}³", title] = _between(bounds, unit)
            lines.append(line)
    table = pd.DataFrame(lines)
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return table, data.reset_index(drop=True)


def _named(variant: str, shown: Sequence[str]) -> str:
    """Under which of `shown` a kernel of the source stands."""
    letter = AS_PUBLISHED.get(variant, variant)
    return letter if letter in shown else variant


def _stated_counter(published: pd.DataFrame | None, counter: str) -> tuple[dict, dict]:
    """What is stated of a counter: the values and their ratios to the baseline, by (size, variant).

    The source's stall metrics are per cent (.pct) of what other versions call a .ratio.
    """
    values, ratios = {}, {}
    if published is None:
        return values, ratios
    stem = published["metric"].str.rpartition(".")[0]
    rows = published[(stem == counter.rpartition(".")[0]) & published["size"].notna()]
    for row in rows.dropna(subset=["low", "high"], how="all").itertuples():
        into = ratios if row.quantity.endswith("_ratio") else values
        into.setdefault((int(row.size), row.variant), (float(row.low), float(row.high)))
    return values, ratios


def _over(bounds: tuple[float, float], base: tuple[float, float]) -> float:
    """The ratio of two values; NaN where one is a range, or for nothing over nothing."""
    if bounds[0] != bounds[1] or base[0] != base[1] or bounds[0] == base[0] == 0:
        return np.nan
    return np.inf if base[0] == 0 else bounds[0] / base[0]


def _between(bounds: tuple[float, float] | None, unit: str) -> str:
    """A value, a range or an open bound as text; "–" for what is missing."""
    if bounds is None:
        return "–"
    low, high = (_digits(value, unit) for value in bounds)
    if np.isnan(bounds[0]):
        return f"< {high}"
    if np.isnan(bounds[1]):
        return f"> {low}"
    return "–".join(dict.fromkeys((low, high)))


def _counters(df: pd.DataFrame, wanted: Sequence[str]) -> pd.DataFrame:
    """The counters of `wanted` at M = N = K; ValueError for none, or for one that is there twice."""
    rows = df[df["variant"].isin(wanted) & (df["m"] == df["n"]) & (df["n"] == df["k"])]
    if rows.empty:
        raise ValueError(f"There are no counters of {', '.join(wanted)} at {SIZE}.")
    twice = rows[rows.duplicated(["variant", "m", "metric"])]
    if len(twice):
        row = twice.iloc[0]
        raise ValueError(
            f"The counter {row['metric']} of {row['variant']!r} at {row['m']}³ is there twice, of "
            "several densities or profiles: choose one."
        )
    return rows


def _digits(value: float, unit: str) -> str:
    """Three digits (of a small ratio two decimals), or a whole number in groups of three."""
    if not np.isfinite(value):
        return f"∞{unit}"
    if abs(value) >= 1000:
        return f"{value:,.0f}{unit}".replace(",", "\u202f")
    return f"{value:.2f}{unit}" if unit and abs(value) < 10 else f"{value:.3g}{unit}"


def stalls(
    df: pd.DataFrame,
    order: Sequence[str],
    least: float = 0.05,
    named: Sequence[str] = ("long_scoreboard", "barrier", "drain"),
):
    """Why warps waited: how many were stalled per issued instruction, by reason, one bar per variant
    and one panel per size.

    df: counters (`records.read_counters`) at M = N = K. Reasons under the share `least` of every
    bar are summed up as "other", but for `named` ones (those of the report's Table 1) that were
    counted. "selected" is no stall and left out. Raises ValueError without such counters.
    """
    before, after = STALL.split("{}")
    counters = _counters(df, order)
    here = counters[counters["metric"].str.startswith(before) & counters["metric"].str.endswith(after)]
    here = here.assign(reason=here["metric"].str[len(before) : -len(after)], size=here["m"])
    here = here[here["reason"] != "selected"]
    if here.empty:
        raise ValueError(f"The counters have no stall reasons ({STALL.format('*')}).")
    table = here.pivot(index=["size", "variant"], columns="reason", values="value").fillna(0)
    shares = table.div(table.sum(axis=1), axis=0).fillna(0).max().sort_values(ascending=False)
    large = [r for r in shares.index if shares[r] >= least or (r in named and shares[r] > 0)]
    large = large[: len(RUNGS)]
    other = [r for r in table if r not in large]
    if other:
        table["other"] = table[other].sum(axis=1)
        large = [*large, "other"]
    sizes = sorted(set(here["size"]))
    bars = {size: [v for v in order if (size, v) in table.index] for size in sizes}
    fig, axes = plt.subplots(
        len(sizes),
        1,
        figsize=(WIDTH, 1.3 + sum(0.45 + 0.27 * len(names) for names in bars.values())),
        sharex=True,
        squeeze=False,
        height_ratios=[len(names) for names in bars.values()],
    )
    handles: dict[str, object] = {}
    limit = 1.1 * float(table[large].sum(axis=1).max())
    for ax, (size, names) in zip(axes[:, 0], bars.items(), strict=True):
        for position, variant in enumerate(names):
            start = 0.0
            for place, reason in enumerate(large):
                value = float(table.loc[(size, variant), reason])
                how = {
                    "facecolor": BOUND if reason == "other" else RUNGS[place],
                    "edgecolor": INK,
                    "hatch": "" if reason == "other" else HATCHES[place],
                    "linewidth": 0.5,
                }
                ax.barh(position, value, 0.72, left=start, **how)
                handles.setdefault(reason.replace("_", " "), Patch(**how))
                start += value
            ax.text(start + limit / 120, position, f"{start:.1f}", va="center", fontsize=8)
        ax.set_title(f"{SIZE} = {plot.number(size)}", loc="left")
        ax.set_yticks(range(len(names)), names)
        ax.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, limit))
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
    axes[-1, 0].set_xlabel("warps stalled per issued instruction")
    plot.legend(fig, handles)
    data = table[large].stack().rename("warps_stalled_per_issue").reset_index()
    data.columns = ["size", "variant", "reason", "warps_stalled_per_issue"]
    return fig, data
