"""Fig. 7 and 8: the kernels step by step, and over the sizes of Table II."""

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact.drawing import plot, sketch
from artifact.drawing.style import BOUND, CLAIM, INK, MARKER, WIDTH, name
from artifact.rooms.nm_spmm.figures.common import (
    POINT,
    SERIES,
    SIZES,
    STEPWISE,
    as_sparsity,
    categories,
    densities_of,
    draw_line,
    look,
    peak_share,
    present_of,
    rows_of,
)


def stepwise(
    df: pd.DataFrame,
    fma: float,
    published: pd.DataFrame | None = None,
    shown: Sequence[str] = STEPWISE,
    base: str = "v1",
    label: str = "",
):
    """Fig. 7: useful work in per cent of the FMA ceiling over the sparsity, a line for each contender, named where it
    ends; cuBLAS was measured at 0 % and is a level.

    df: one size. Published quantity: "peak_share", of the source's own peak: joined, of those of its libraries whose
    contender of ours is shown. `base`: what the column over_base of the data is over. Raises ValueError for records
    of several sizes, or without `base`.
    """
    rows = rows_of(df, shown, label)
    sizes = rows[["m", "n", "k"]].drop_duplicates()
    if len(sizes) > 1:
        raise ValueError(f"The figure is of one size, and the records have {len(sizes)}.")
    rows = rows[~rows["variant"].str.startswith("cublas") | (rows["density"] == 1)]
    present, densities = present_of(rows, shown), densities_of(rows["density"])
    place = {density: i for i, density in enumerate(densities)}
    rates = rows.pivot(index="density", columns="variant", values="useful").loc[densities]
    if base not in rates:
        raise ValueError(f"The records lack {base!r}, which the others are compared to.")
    ratios = rates.div(rates[base], axis=0)
    fig, ax = plt.subplots(figsize=(WIDTH, 2.7 + 0.14 * len(present)))
    ends = []
    for variant in present:
        values = 100 * rates[variant].dropna() / fma
        x = [place[d] for d in values.index]
        line = draw_line(ax, x, values, variant, markersize=MARKER, linewidth=1.3)
        if variant.startswith("cublas"):  # it multiplies the dense matrix whatever the sparsity
            ax.axhline(values.iloc[0], color=line.get_color(), linewidth=1, linestyle=(0, (1, 2)))
            x = [len(densities) - 1]
        end = x[-1], float(values.iloc[-1]), line.get_color()
        ends.append(plot.End(name(variant), *end, alone=len(x) == 1))
    stated = peak_share(published, present)
    for library, theirs in stated[stated["density"].isin(place)].groupby("library", sort=False):
        theirs = theirs.sort_values("density", ascending=False)
        x, shares = [place[d] for d in theirs["density"]], 100 * theirs["stated"]
        marker = look(theirs["variant"].iloc[0])["marker"]
        ax.plot(
            x,
            shares,
            **plot.hollow(marker) | {"linestyle": (0, (4, 3)), "linewidth": 1, "color": CLAIM},
        )
        called = SERIES[library][0] if library in SERIES else library
        ends.append(plot.End(f"{called}, stated", x[-1], float(shares.iloc[-1]), CLAIM))
    ax.axhline(100, color=BOUND, linewidth=1.3, linestyle=(0, (5, 3)))
    said = f"FMA ceiling, {fma:.1f} TFLOP/s"
    sketch.put(ax, len(densities) - 0.52, 101.5, said, ha="right", va="bottom", fontsize=8)
    ax.set(
        ylabel="useful work (% of the ceiling)",
        ylim=(0, max(112, 1.05 * 100 * rows["useful"].max() / fma)),
    )
    ax.set_yticks(range(0, 101, 20))
    categories(ax, densities)
    if len(stated):
        plot.legend(fig, {"stated by the source, % of its peak": Line2D([], [], **plot.hollow())})
    plot.ends(ax, ends)
    data = rows[["experiment", "variant", *POINT, "median_us", "useful"]].assign(per_cent=100 * rows["useful"] / fma)
    over = ratios.stack().rename("over_base").reset_index()
    data = data.merge(over, on=["variant", "density"], how="left")
    stated = stated.assign(per_cent=100 * stated["stated"].astype(float))
    return fig, plot.behind(data.rename(columns={"useful": "tflops"}), stated)


def sizes(
    df: pd.DataFrame,
    shapes: Mapping[str, tuple[int, int, int]],
    fma: float,
    published: pd.DataFrame | None = None,
    shown: Sequence[str] = SIZES,
    label: str = "",
):
    """Fig. 8: efficiency in per cent of the FMA ceiling, in a region per sparsity the sizes of
    `shapes` (label -> (m, n, k), Table II) in their order; cuBLAS at 0 % only. published: POINT and the per cent of
    its own peak that the source's series has, of its best kernel at each point: hollow, joined."""
    rows = rows_of(df, shown, label)
    at = {shape: i for i, shape in enumerate(shapes.values())}
    shape = list(zip(rows["m"], rows["n"], rows["k"], strict=True))
    rows = rows.assign(place=[at.get(s, -1) for s in shape], per_cent=100 * rows["useful"] / fma)
    rows = rows[(rows["place"] >= 0)]
    rows = rows[~rows["variant"].str.startswith("cublas") | (rows["density"] == 1)]
    if rows.empty:
        raise ValueError(f"The records have none of the sizes {', '.join(shapes)}.")
    densities, wide = densities_of(rows["density"]), len(shapes) + 1
    fig, ax = plt.subplots(figsize=(WIDTH, 4.2))
    handles: dict[str, object] = {}
    for variant in present_of(rows, shown):
        for region, density in enumerate(densities):
            here = rows[(rows["variant"] == variant) & (rows["density"] == density)]
            here = here.sort_values("place")
            x = here["place"] + region * wide
            if len(here):
                handles[name(variant)] = draw_line(ax, x, here["per_cent"], variant, linewidth=1.2)
    stated = pd.DataFrame() if published is None else _placed(published, at)
    for region, density in enumerate(densities if len(stated) else ()):
        here = stated[stated["density"] == density].sort_values("place")
        how = plot.hollow() | {"linestyle": (0, (4, 3)), "linewidth": 1, "color": CLAIM}
        how |= {"markersize": 5.5, "markeredgewidth": 1.2}
        (line,) = ax.plot(here["place"] + region * wide, here["per_cent"], **how)
        handles[f"best of theirs, stated, % of the {here['gpu'].iloc[0]}'s peak"] = line
    top = 1.13 * max(rows["per_cent"].max(), 100)
    for region, density in enumerate(densities):
        middle = region * wide + (len(shapes) - 1) / 2
        sketch.put(ax, middle, 0.965 * top, f"{as_sparsity(density)} sparsity", fontsize=8.5)
        if region:
            ax.axvline(region * wide - 1, color=INK, alpha=0.3, linewidth=0.8)
    ax.axhline(100, color=BOUND, linewidth=1.3, linestyle=(0, (5, 3)))
    ticks = [(r * wide + i, s) for r in range(len(densities)) for i, s in enumerate(shapes)]
    ax.set_xticks([x for x, _ in ticks], [s for _, s in ticks])
    ax.set(xlim=(-1, len(densities) * wide - 1), ylim=(0, top))
    ax.set_yticks(range(0, 101, 20))
    ax.grid(axis="x", visible=False)
    said = "; ".join(f"{s}: " + " × ".join(map(plot.number, map(int, size))) for s, size in shapes.items())
    half = said.find("; ", len(said) // 2 - 8)
    said = said if half < 0 else said[: half + 1] + "\n" + said[half + 2 :]
    ax.set(xlabel=f"m × n × k of {said}", ylabel="efficiency (% of the FMA ceiling)")
    plot.legend(fig, handles, columns=6)
    keep = ["experiment", "variant", *POINT, "median_us", "useful", "per_cent"]
    names = dict(zip(at.values(), shapes, strict=True))
    data = rows[keep].rename(columns={"useful": "tflops"}).assign(size=rows["place"].map(names))
    if stated.empty:
        return fig, data.reset_index(drop=True)
    stated = stated[stated["density"].isin(densities)].assign(size=stated["place"].map(names))
    return fig, plot.behind(data, stated.drop(columns="place"))


def _placed(published: pd.DataFrame, at: Mapping[tuple[int, int, int], int]) -> pd.DataFrame:
    shape = zip(published["m"], published["n"], published["k"], strict=True)
    placed = published.assign(place=[at.get(s, -1) for s in shape])
    return placed[placed["place"] >= 0]
