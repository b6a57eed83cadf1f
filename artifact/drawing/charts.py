"""Charts over records that any room can draw."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from artifact.drawing import plot, sketch
from artifact.drawing.style import BASELINE, BOUND, CLAIM, INK, WIDTH, look, name
from artifact.drawing.words import times
from artifact.measure import records

# ---------------------------------------------------------------- plots over records


def sweep_panel(
    df: pd.DataFrame,
    x: str,
    variants: Sequence[str],
    show_variants: Sequence[str] | None = None,
    baseline: str = "cusparse_best",
    claim: tuple[float, float] | None = None,
    copy_gbps: float | None = None,
    xlabel: str = "",
    claim_share: tuple[float, float] | None = None,
    rows: Sequence[str] = ("median_us", "gbps", "speedup"),
):
    """Rows (time, memory throughput, speedup over `baseline`, or those of them that `rows` names) by one column per
    density.

    df: one experiment's records, with `baseline` among its variants (see `records.best_of`). x: the
    size that is swept, "m" or "n". variants: the room's ladder, for the colours; show_variants:
    those to draw (default: first and last). claim: the source's range of the speedup; a lower
    bound of NaN or 0 is none. copy_gbps:
    measured copy ceiling, GB/s. claim_share: the source's range of the memory throughput, as shares
    of the peak, which the copy ceiling stands for.
    """
    shown = list(show_variants or dict.fromkeys((variants[0], variants[-1])))
    drawn = [*shown, baseline]
    data = df[df["variant"].isin(drawn)].copy()
    ratio = pd.concat([records.speedup(df, v, baseline).to_frame().assign(variant=v) for v in drawn])
    data = data.merge(ratio.reset_index(), on=["experiment", "variant", *records.POINT], how="left")
    data = data.sort_values(["density", "variant", x])
    densities = sorted(data["density"].unique())
    fig, axes = plt.subplots(
        len(rows),
        len(densities),
        figsize=(WIDTH, 1.0 + 1.85 * len(rows) + 0.9 * (len(rows) == 1)),
        sharex=True,
        sharey="row",
        squeeze=False,
    )
    handles: dict[str, object] = {}
    for column, density in enumerate(densities):
        here = data[data["density"] == density]
        for variant in drawn:
            of = here[here["variant"] == variant].sort_values(x)
            for ax, quantity in zip(axes[:, column], rows, strict=True):
                if quantity != "speedup" or variant != baseline:
                    handles[name(variant)] = plot.line(ax, of[x], of[quantity], variant, variants)
        at = dict(zip(rows, axes[:, column], strict=True))
        rate, speed = at.get("gbps"), at.get("speedup")
        axes[0, column].set_title(f"S = {plot.percent(density)}")
        axes[-1, column].set_xlabel(xlabel or x.upper())
        if copy_gbps and rate is not None:
            handles["measured copy (bound)"] = rate.axhline(
                copy_gbps, color=BOUND, linestyle=(0, (5, 3)), linewidth=1.2
            )
        if claim_share and copy_gbps and rate is not None:
            low, high = (share * copy_gbps for share in claim_share)
            stated = rate.axhspan(low, high, facecolor=CLAIM, alpha=0.35, linewidth=0)
            text = "–".join(dict.fromkeys(f"{share:.0%}" for share in claim_share))
            handles[f"stated: {text} of peak"] = stated
        if claim and speed is not None:
            low, high = claim
            open_below = not low > 0
            if open_below:  # the source gives no lower bound: the band begins below the points
                low = min(0.8 * high, 0.95 * float(ratio["speedup"].min()))
            band = speed.axhspan(low, high, facecolor=CLAIM, alpha=0.2, linewidth=0)
            for edge in (high,) if open_below else (low, high):
                speed.axhline(edge, color=CLAIM, linewidth=0.9, linestyle=(0, (2, 2)))
            limits = f"below {high:g}" if open_below else f"{low:.2f}–{high:.2f}"
            handles[f"stated by the source: {limits}×"] = band
        if speed is not None:
            speed.axhline(1, color=BASELINE, linewidth=1.2)
    labels = {
        "median_us": "execution time (µs)",
        "gbps": "memory throughput,\nleast bytes (GB/s)",
        "speedup": "speedup over\n" + name(baseline).replace(" algorithm", ""),
    }
    for quantity, ax in zip(rows, axes[:, 0], strict=True):
        ax.set_ylabel(labels[quantity])
        if quantity == "speedup":
            plot.ratio(ax, [*ratio["speedup"], *(edge for edge in claim or () if edge > 0)])
        else:
            ax.set_yscale("log")
            plot.log(ax.yaxis)
    plot.sizes(axes[0, 0], data[x].tolist())
    plot.legend(fig, handles, columns=3)
    columns = [
        "experiment",
        "variant",
        *records.POINT,
        "nnz",
        "median_us",
        "q25_us",
        "q75_us",
        "gbps",
        "speedup",
    ]
    return fig, data[[*columns, *(["best_of"] if "best_of" in data else [])]]


def dots(table: pd.DataFrame, looks: Callable[[str], dict], xlabel: str):
    """A row for each line of `table` (its index), a dot for each contender (its columns), on a log axis with a line at
    1; what is absent is NaN. The last contender is joined to 1. Returns the figure and the table in long form.

    looks: contender -> colour, marker and line. Raises ValueError for a table without a value.
    """
    if not np.isfinite(table.to_numpy(float)).any():
        raise ValueError("There is nothing to draw: the table has no value.")
    fig, ax = plt.subplots(figsize=(WIDTH, 0.23 * len(table) + 1.1))
    rows, handles = np.arange(len(table)), {}
    ax.hlines(rows, 1, table.iloc[:, -1], color=INK, alpha=0.3, linewidth=1)
    for variant in table:
        how = {"linestyle": "none", "markersize": 6, "clip_on": False}
        how = {"markeredgewidth": 0} | looks(variant) | how
        (handles[name(variant)],) = ax.plot(table[variant], rows, **how)
    ax.axvline(1, color=BASELINE, linewidth=1.2)
    ax.set(xscale="log", ylim=(len(table) - 0.4, -0.6), xlabel=xlabel)
    ax.set_yticks(rows, [str(label) for label in table.index])
    ax.tick_params(axis="y", length=0)
    plot.log(ax.xaxis, fine=True)
    plot.legend(fig, handles)
    long = table.rename_axis(index="row", columns="variant").stack().rename("value").dropna().reset_index()
    return fig, long


def along(ax, text: str, at, ends, gap: float, size: float) -> None:
    """Write `text` along the line between two points `ends`, `gap` points above the point `at` of it.

    All three in data coordinates; the axes' limits and scales must be final, since the angle on the
    page follows from them.
    """
    a, b = ax.transData.transform(ends)
    angle = np.degrees(np.arctan2(b[1] - a[1], b[0] - a[0]))
    ax.annotate(
        text,
        at,
        xytext=(-gap * np.sin(np.radians(angle)), gap * np.cos(np.radians(angle))),
        textcoords="offset points",
        rotation=angle,
        rotation_mode="anchor",
        ha="center",
        fontsize=size,
    )


def ladder(
    df: pd.DataFrame,
    variants: Mapping[str, str],
    baseline: str = "cusparse_best",
    names: Mapping[str, str] | None = None,
    stated: Mapping[str, tuple[float, float]] | None = None,
):
    """Geometric-mean speedup over `baseline` per experiment, one row per rung, with its prediction
    beside it.

    variants: rung -> what was predicted before it was measured, in ladder order; an empty one is
    drawn as "–". Rungs without records are left out. The first and the last are in colour, as in
    every figure; what led from one to the other is grey. stated: experiment -> the range that the
    source states of its kernel, drawn in the first row; an end that it does not state is NaN.
    """
    present = [v for v in variants if (df["variant"] == v).any()]
    if not present:
        raise ValueError(f"None of the rungs {', '.join(variants)} has a record.")
    rows = []
    for variant in present:
        for experiment, values in records.speedup(df, variant, baseline).groupby("experiment", sort=False):
            rows.append(
                {
                    "variant": variant,
                    "experiment": experiment,
                    "speedup": records.geomean(values),
                    "least": values.min(),
                    "most": values.max(),
                    "points": len(values),
                    "prediction": variants[variant],
                }
            )
    data = pd.DataFrame(rows)
    experiments = list(dict.fromkeys(data["experiment"]))
    wrapped = [sketch.wrap(times(variants[v]), 50) for v in present]
    heights = [max(0.24 * len(experiments), 0.17 * (text.count("\n") + 1)) + 0.16 for text in wrapped]
    tops = np.cumsum([0, *heights])
    fig, ax = plt.subplots(figsize=(WIDTH, tops[-1] + 1.0))
    markers = dict(zip(experiments, "osD^vP", strict=False))
    across = ax.get_yaxis_transform()
    for row, variant in enumerate(present):
        ends = next(iter(variants)), next(reversed(variants))
        colour = look(variant, list(variants))["color"] if variant in ends else BOUND
        centre = tops[row] + heights[row] / 2
        if row:
            ax.axhline(tops[row], color=INK, alpha=0.15, linewidth=0.6)
        for place, experiment in zip(
            centre + 0.22 * (np.arange(len(experiments)) - (len(experiments) - 1) / 2),
            experiments,
            strict=True,
        ):
            one = data[(data["variant"] == variant) & (data["experiment"] == experiment)]
            if one.empty:
                continue
            one = one.iloc[0]
            if row == 0 and experiment in (stated or {}):
                _stated_range(ax, stated[experiment], place + 0.075)
            ax.plot([one["least"], one["most"]], [place] * 2, color=colour, linewidth=1.1, alpha=0.6)
            ax.plot(
                one["speedup"],
                place,
                markers[experiment],
                color=colour,
                markersize=6.5,
                markeredgewidth=0,
            )
            if len(experiments) > 1:
                ax.text(0.8, place, experiment, transform=across, va="center", ha="right", fontsize=8)
            ax.text(
                0.92,
                place,
                f"{one['speedup']:.2f}×",
                transform=across,
                va="center",
                ha="right",
                fontsize=8,
            )
        ax.text(1.0, centre, wrapped[row], transform=across, va="center", fontsize=8.5)
    ax.axvline(1, color=BASELINE, linewidth=1.3)
    ax.set_xscale("log")
    low, high = min(data["least"].min(), 0.9), max(data["most"].max(), 1.1)
    ax.set(xlim=(low / 1.08, high * (high / low) ** 0.5), ylim=(tops[-1], 0))  # room for the numbers on the right
    ticks = [t for t in (0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10) if low / 1.08 <= t <= high * 1.04]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(NullLocator())
    ax.xaxis.set_major_formatter(FuncFormatter(plot.number))
    ax.set_yticks(tops[:-1] + np.array(heights) / 2, [(names or {}).get(v, v) for v in present])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.set_xlabel(f"speedup over {name(baseline)}: geometric mean, and range over the sweep")
    for place, header in ((0.92, "geomean"), (1.0, "predicted before measuring")):
        side = "left" if place == 1 else "right"
        ax.text(
            place,
            -0.06,
            header,
            transform=across,
            va="bottom",
            ha=side,
            fontweight="bold",
            fontsize=8.5,
        )
    if stated:
        given = pd.DataFrame(stated, index=["stated_low", "stated_high"]).T
        first = data["variant"] == present[0]
        data = data.join(given.reindex(data["experiment"]).set_index(data.index).where(first))
    one = "cuSPARSE = 1" if baseline.startswith("cusparse") else f"{name(baseline)} = 1"
    ax.text(1, -0.06, one, color=BASELINE, ha="center", va="bottom", fontsize=8.5)
    return fig, data


def _stated_range(ax, ends: tuple[float, float], place: float) -> None:
    """What a source states, hollow: both ends joined, or one with an arrow to where the other would be."""
    known = [end for end in ends if np.isfinite(end) and end > 0]
    ax.plot(
        known,
        [place] * len(known),
        **plot.hollow() | {"linestyle": "-", "color": CLAIM, "markersize": 5},
    )
    if len(known) == 1 and ends[0] != ends[1]:
        away = {"arrowstyle": "<|-", "color": CLAIM, "shrinkA": 0, "shrinkB": 3}
        to = (-22 if known[0] == ends[1] else 22, 0)
        ax.annotate("", (known[0], place), to, textcoords="offset points", arrowprops=away)


def spread(first: pd.DataFrame, second: pd.DataFrame, variants: Sequence[str], tolerance: float = 0.03):
    """Second run over first run of the same measurement, per point, against the time of the first.

    Raises ValueError if the two share no point.
    """
    key = ["experiment", *records.KEY]
    data = first.merge(second, on=key, suffixes=("_first", "_second"))
    if data.empty:
        raise ValueError("The two runs share no point.")
    data = data[[*key, "median_us_first", "median_us_second"]]
    data["ratio"] = data["median_us_second"] / data["median_us_first"]
    fig, (ax, side) = plt.subplots(1, 2, figsize=(WIDTH, 3.6), sharey=True, width_ratios=(3.4, 1))
    handles: dict[str, object] = {}
    for variant in dict.fromkeys(data["variant"]):
        rows = data[data["variant"] == variant]
        more = {"linestyle": "none", "alpha": 0.85}
        percent = 100 * (rows["ratio"] - 1)
        handles[name(variant)] = plot.line(ax, rows["median_us_first"], percent, variant, variants, **more)
    percent = 100 * (data["ratio"] - 1)
    limit = max(float(percent.abs().max()) * 1.15, 100 * tolerance * 1.3)
    side.hist(percent, bins=np.linspace(-limit, limit, 31), orientation="horizontal", color=BOUND)
    for each in (ax, side):
        each.axhspan(-100 * tolerance, 100 * tolerance, facecolor=BOUND, alpha=0.13, linewidth=0)
        each.axhline(0, color=INK, linewidth=0.8)
    ax.set(xscale="log", ylim=(-limit, limit), xlabel="execution time of the first run (µs)")
    ax.set_ylabel("second run against first (%)")
    side.set_xlabel("points")
    ax.annotate(
        f"±{100 * tolerance:g} %",
        (1, 100 * tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(-2, 3),
        textcoords="offset points",
        ha="right",
        fontsize=8,
    )
    plot.log(ax.xaxis)
    plot.legend(fig, handles)
    return fig, data
