"""Beside the authors' own kernels, measured on a GPU of the same type."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact.drawing import plot
from artifact.drawing.style import BASELINE, INK, WIDTH, name
from artifact.rooms.nm_spmm.figures.common import (
    IDEAL,
    POINT,
    SERIES,
    as_sparsity,
    densities_of,
    lanes_of,
    look,
    speedups_of,
    step_ticks,
)


def anchors(
    df: pd.DataFrame,
    theirs: pd.DataFrame,
    shown: Sequence[str] = ("auto", "v3", "nm_baseline"),
    best: str = "auto",
    label: str = "",
):
    """Speedup over cuBLAS at each shape of the anchors, a panel per sparsity: ours, what the authors'
    kernels reach on a GPU of the same type (hollow), and the ideal M/N; on the right `best` over the
    authors' NM-SpMM, and below the geometric means.

    theirs: m, n, k, density, library ("nm_spmm" or "nmsparse"), speedup over cuBLAS. Means are of the shapes that
    all contenders of a panel have. Raises ValueError where the two share no shape.
    """
    ours = speedups_of(df, shown, "cublas", label).rename(columns={"variant": "contender"})
    theirs = theirs.rename(columns={"library": "contender"})
    theirs = theirs[theirs["contender"].isin(SERIES)]
    key = [*POINT, "contender", "speedup"]
    data = pd.concat(
        [ours[key].assign(source="measured"), theirs[key].assign(source="stated")],
        ignore_index=True,
    )
    shape = list(zip(data["m"], data["n"], data["k"], strict=True))
    shapes = list(dict.fromkeys(s for s, of in zip(shape, data["source"], strict=True) if of == "stated"))
    shapes = [s for s in shapes if (s, "measured") in set(zip(shape, data["source"], strict=True))]
    if not shapes:
        raise ValueError("The records and the anchors have no shape in common.")
    data["place"] = [shapes.index(s) if s in shapes else -1 for s in shape]
    data = data[data["place"] >= 0]
    contenders = [c for c in (*shown, *SERIES) if (data["contender"] == c).any()]
    densities = [d for d in densities_of(ours["density"]) if (theirs["density"] == d).any()]
    data = data[data["density"].isin(densities)]
    down = -(-len(densities) // 2)
    fig, axes = plt.subplots(
        down,
        2 if len(densities) > 1 else 1,
        figsize=(WIDTH, 1.0 + down * (0.95 + 0.31 * (len(shapes) + 1))),
        sharey=True,
        squeeze=False,
    )
    handles: dict[str, object] = {}
    means = []
    for number, (ax, density) in enumerate(zip(axes.flat, densities, strict=False)):
        table = data[data["density"] == density].pivot_table(index="place", columns="contender", values="speedup")
        whole = table.dropna()
        if len(whole):
            table.loc[len(shapes)] = np.exp(np.log(whole).mean())
            means += [
                {"contender": c, "density": density, "speedup": v, "points": len(whole)}
                for c, v in table.loc[len(shapes)].items()
            ]
        lanes = [c for c in contenders if c in table]
        for contender, offset in zip(lanes, lanes_of(len(lanes), 0.56), strict=True):
            own = contender not in SERIES
            how = look(contender) if own else plot.hollow(SERIES[contender][1])
            how |= {"linestyle": "none", "markersize": 6.5}
            how |= {"markeredgewidth": 0} if own else {}
            values = table[contender].dropna()
            (line,) = ax.plot(values, values.index + offset, **how)
            called = name(contender) if own else f"{SERIES[contender][0]}, authors' kernel"
            handles[called] = line
        for place, values in table.iterrows():
            ax.plot([values.min(), values.max()], [place] * 2, color=INK, alpha=0.18, linewidth=1)
            if {best, "nm_spmm"} <= set(lanes) and values[[best, "nm_spmm"]].notna().all():
                plot.right(ax, place, 34, f"{values[best] / values['nm_spmm']:.2f}×")
        ax.axvline(1, color=BASELINE, linewidth=1.2)
        handles["ideal, M/N"] = ax.axvline(1 / density, **IDEAL)
        ax.axhline(len(shapes) - 0.5, color=INK, linewidth=0.8)
        low, high = table.min().min(), max(table.max().max(), 1 / density)
        ax.set(xscale="log", xlim=(min(low, 0.95) / 1.1, high * 1.1))
        step_ticks(ax.xaxis)
        ax.set_title(f"{as_sparsity(density)} sparsity", loc="left")
        plot.right(ax, -0.75, 34, f"{name(best)} / NM-SpMM", fontsize=8)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        if number // 2 == down - 1:
            ax.set_xlabel("speedup over cuBLAS")
    for ax in axes.flat[len(densities) :]:
        ax.axis("off")
    said = [" × ".join(map(plot.number, map(int, s))) for s in shapes]
    for ax in axes[:, 0]:
        ax.set_yticks(range(len(shapes) + 1), [*said, "geometric mean"])
        ax.set(ylim=(len(shapes) + 0.6, -0.6), ylabel="m × n × k")
    handles["cuBLAS SGEMM"] = Line2D([], [], color=BASELINE, linewidth=1.2)
    plot.legend(fig, handles)
    sources = data.drop_duplicates("contender").set_index("contender")["source"]
    means = pd.DataFrame(means, columns=["contender", "density", "speedup", "points"])
    means = means.assign(source=means["contender"].map(sources))
    columns = ["source", "contender", *POINT, "speedup", "points"]
    return fig, pd.concat([data, means], ignore_index=True).reindex(columns=columns)
