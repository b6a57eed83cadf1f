"""Fig. 10: the roofline, by Eq. 3 and by what was counted."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact.drawing import plot
from artifact.drawing.charts import along
from artifact.drawing.style import BOUND, WIDTH, name
from artifact.profiling import ncu
from artifact.rooms.nm_spmm.figures.common import (
    POINT,
    PROFILED,
    as_sparsity,
    densities_of,
    draw_line,
    look,
    peak_share,
    present_of,
    step_ticks,
)


def counted(counters: pd.DataFrame, shown: Sequence[str] = PROFILED) -> pd.DataFrame:
    """What the counters say of each contender: variant, POINT, useful FLOPs, time_us, useful TFLOP/s,
    and bytes of DRAM, of reads of L2 (32 B a sector) and of shared memory (128 B a wavefront).

    counters: as `records.read_counters` has them. Of cuBLAS, which multiplies the dense matrix at
    every density, only the densest row. Raises ValueError without the time of any of `shown`.
    """
    rows = counters[counters["variant"].isin(shown)]
    table = rows.pivot_table(index=["variant", *POINT], columns="metric", values="value")
    table = table.reset_index()
    if ncu.TIME not in table:
        raise ValueError(f"There are no counters of {', '.join(shown)} with {ncu.TIME}.")

    def of(metric: str) -> pd.Series:
        for known in (metric, ncu.OTHER_NAMES.get(metric)):
            if known in table:
                return table[known]
        return pd.Series(np.nan, table.index)

    dense = table["variant"].str.startswith("cublas")
    share = np.where(dense, 1.0, table["density"])
    flops = 2.0 * table["m"] * table["n"] * table["k"] * share
    out = table[["variant", *POINT]].assign(
        useful_flops=flops,
        time_us=table[ncu.TIME] / 1e3,
        tflops=flops / table[ncu.TIME] / 1e3,
        dram_bytes=of("dram__bytes_read.sum") + of("dram__bytes_write.sum"),
        l2_bytes=32 * (of("lts__t_sectors_op_read.sum") + of("lts__t_sectors_op_red.sum").fillna(0)),
        shared_bytes=128 * of("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"),
    )
    out = out.sort_values("density", ascending=False, kind="stable")
    again = out["variant"].str.startswith("cublas") & out.duplicated(["variant", "m", "n", "k"])
    place = {variant: i for i, variant in enumerate(shown)}
    order = out.loc[~again, "variant"].map(place).argsort(kind="stable")
    return out[~again].iloc[order].reset_index(drop=True)


def roofline(
    counters: pd.DataFrame,
    intensity: Mapping[tuple[str, float], float],
    ceilings: Mapping[str, float],
    published: pd.DataFrame | None = None,
    shown: Sequence[str] = PROFILED,
):
    """Fig. 10: useful TFLOP/s over FLOP per byte, by Eq. 3 and by what Nsight Compute counted of DRAM,
    L2 and shared memory, a panel each, under the measured ceilings.

    counters: of one size (`records.read_counters`); intensity: (variant, density) -> FLOP per byte by
    Eq. 3, of those that have one; ceilings: "FMA" in TFLOP/s, "DRAM", "L2" and "shared memory" in
    GB/s. Markers grow with the sparsity. Published quantity: "peak_share", of the source's peak,
    drawn hollow at our intensity under our ceiling. Raises ValueError for a missing ceiling, or
    counters of several sizes.
    """
    needed = ("FMA", "DRAM", "L2", "shared memory")
    if missing := [what for what in needed if what not in ceilings]:
        raise ValueError(f"The roofline needs the ceilings {', '.join(missing)}.")
    data = counted(counters, shown)
    if len(data[["m", "n", "k"]].drop_duplicates()) > 1:
        raise ValueError("The roofline is of one size, and the counters are of several.")
    key = zip(data["variant"], data["density"], strict=True)
    data["eq3"] = [intensity.get(pair, np.nan) for pair in key]
    for what in ("dram", "l2", "shared"):
        data[what] = data["useful_flops"] / data[f"{what}_bytes"].where(data[f"{what}_bytes"] > 0)
    densities = densities_of(data.loc[~data["variant"].str.startswith("cublas"), "density"])
    grow = dict(zip(densities, np.linspace(6, 12, max(len(densities), 2)), strict=False))
    panels = {
        "eq3": ("by Eq. 3", ("DRAM", "L2")),
        "dram": ("bytes of DRAM, counted", ("DRAM",)),
        "l2": ("bytes read from L2, counted", ("L2",)),
        "shared": ("bytes of shared memory, counted", ("shared memory",)),
    }
    roof = ceilings["FMA"]
    bottom, top = min(data["tflops"].min(), roof / 3) / 1.5, roof * 1.5
    fig, axes = plt.subplots(2, 2, figsize=(WIDTH, 6.8), sharey=True)
    handles: dict[str, object] = {}
    stated = peak_share(published, shown)
    labels = []
    for ax, (column, (title, memories)) in zip(axes.flat, panels.items(), strict=True):
        slopes = {what: ceilings[what] / 1000 for what in memories}
        ridges = [roof / slope for slope in slopes.values()]
        known = data[column].dropna()
        # The slopes come up from the bottom.
        left = min([*(ridge * bottom / roof for ridge in ridges), *(known / 1.5)])
        right = max([*ridges, *known]) * 1.8
        ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom, top), title=title)
        ax.plot([min(ridges), right], [roof, roof], color=BOUND, linewidth=1.3)
        for what, slope in slopes.items():
            ends = (left, left * slope), (roof / slope, roof)
            ax.plot(*zip(*ends, strict=True), color=BOUND, linewidth=1.3, linestyle=(0, (5, 2)))
            labels.append((ax, what, slope, max(left, bottom / slope)))
        for variant in present_of(data, shown):
            rows = data[(data["variant"] == variant) & data[column].notna()]
            how = look(variant)
            ax.plot(rows[column], rows["tflops"], color=how["color"], linewidth=0.8, alpha=0.6)
            for row in rows.itertuples():
                size = grow.get(row.density, 7.0) if not variant.startswith("cublas") else 7.0
                more = {"linestyle": "none", "markersize": size}
                x = getattr(row, column)
                handles[name(variant)] = draw_line(ax, x, row.tflops, variant, **more)
        plot.log(ax.xaxis, fine=True)
        step_ticks(ax.yaxis)
        if ax in axes[1]:
            ax.set_xlabel("useful FLOP per byte")
    said = []
    for row in stated.itertuples():
        x = intensity.get((row.variant, row.density))
        if x is not None:
            how = plot.hollow(look(row.variant)["marker"])
            how["markersize"] = grow.get(row.density, 7.0)
            axes[0, 0].plot(x, row.stated * roof, **how)
            said.append((row.variant, row.density, x, row.stated * roof))
    fig.canvas.draw()  # the layout must be settled before a label can be turned along a slope
    for ax, what, slope, start in labels:
        middle = start**0.55 * (roof / slope) ** 0.45
        ends = (start, start * slope), (roof / slope, roof)
        text = f"{what} {slope:.1f} TB/s"
        along(ax, text, (middle, middle * slope), ends, gap=4, size=8)
    for ax in axes.flat:
        how = {"xytext": (-2, 4), "textcoords": "offset points", "ha": "right", "fontsize": 8}
        ax.annotate(f"FMA {roof:.1f} TFLOP/s", (ax.get_xlim()[1], roof), **how)
    for ax in axes[:, 0]:
        ax.set_ylabel("useful TFLOP/s")
    handles = {name(v): handles[name(v)] for v in shown if name(v) in handles}
    for density in densities:
        dot = {"color": BOUND, "marker": "o", "linestyle": "none", "markersize": grow[density]}
        handles[f"{as_sparsity(density)} sparsity"] = Line2D([], [], markeredgewidth=0, **dot)
    if said:
        handles["stated, % of its peak"] = Line2D([], [], **plot.hollow())
    plot.legend(fig, handles)
    theirs = pd.DataFrame(said, columns=["variant", "density", "eq3", "tflops"])
    return fig, plot.behind(data, theirs)
