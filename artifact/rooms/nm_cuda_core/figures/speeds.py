"""Fig. 2 and 4: scaling, speedups, variants, and what the right gather costs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator

from artifact.drawing import plot
from artifact.drawing.style import BOUND, INK, MARKER, SIZE, WIDTH, look, name
from artifact.rooms.nm_cuda_core.figures.common import (
    HATCHES,
    PROFILED,
    SCALING,
    draw_stated,
    of_quantity,
    points_of,
    stated_handles,
    times_of,
)


def scaling(
    df: pd.DataFrame,
    published: pd.DataFrame | None,
    order: Sequence[str],
    shown: Sequence[str] = SCALING,
):
    """Fig. 2a: TFLOP/s (left) and run time (right) over the size, both logarithmic.

    TFLOP/s of the room's variants count 2·M·N·W, those of cuBLAS and of a CPU 2·M·N·K, as the
    source counts. Contenders of `shown` without records are left out. Published quantities:
    "tflops" in TFLOP/s and "time" in ms.
    """
    points = points_of(df, shown, order)
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.9))
    handles: dict[str, object] = {}
    for variant in dict.fromkeys(points["variant"]):
        rows = points[points["variant"] == variant]
        for ax, quantity in zip(axes, ("tflops", "time_ms"), strict=True):
            handles[name(variant)] = plot.line(
                ax, rows["size"], rows[quantity], variant, order, markersize=MARKER
            )
    stated = [of_quantity(published, quantity) for quantity in ("tflops", "time")]
    for ax, rows, label in zip(
        axes, stated, ("throughput (TFLOP/s)", "run time (ms)"), strict=True
    ):
        draw_stated(ax, rows, order)
        ax.set(yscale="log", ylabel=label, xlabel=SIZE)
        plot.log(ax.yaxis)
        plot.sizes(ax, points["size"].tolist())
    handles |= stated_handles(order, *stated)
    plot.legend(fig, handles)
    columns = ["experiment", "variant", "size", "density", "median_us", "q25_us", "q75_us"]
    return fig, plot.behind(points[[*columns, "time_ms", "tflops"]], *stated)


def speedups(
    df: pd.DataFrame,
    published: pd.DataFrame | None,
    order: Sequence[str],
    shown: Sequence[str] = PROFILED,
):
    """Fig. 2b: speedup over the sequential CPU (left) and over cuBLAS (right), over the size.

    On the right a full line is over the report's own reading of cuBLAS (a handle created and
    destroyed in every call), a dotted one with hollow markers over the kernel alone. Published
    quantities: "speedup_cpu" and "speedup_cublas".
    """
    cublas = ("cublas", "cublas_handle")
    points = points_of(df, ["cpu_loop", *cublas, *shown], order)
    times = times_of(points)
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.9))
    handles: dict[str, object] = {}
    rows = []
    for ax, over in ((axes[0], "cpu_loop"), (axes[1], "cublas_handle"), (axes[1], "cublas")):
        for variant in (*(cublas if over == "cpu_loop" else ()), *shown):
            if variant not in times or over not in times:
                continue
            ratio = (times[over] / times[variant]).dropna()
            apart = (
                {"linestyle": ":", "markerfacecolor": "none", "markeredgewidth": 1}
                if over == "cublas"
                else {}
            )
            line = plot.line(ax, ratio.index, ratio, variant, order, markersize=MARKER, **apart)
            if over != "cublas":
                handles[name(variant)] = line
            rows += [
                {"variant": variant, "size": size, "over": over, "speedup": value}
                for size, value in ratio.items()
            ]
    if not rows:
        raise ValueError("The records have neither cpu_loop nor cublas beside a variant.")
    stated = [of_quantity(published, quantity) for quantity in ("speedup_cpu", "speedup_cublas")]
    data = pd.DataFrame(rows)
    on_the_left = data["over"] == "cpu_loop"
    panels = zip(
        axes, stated, ("the sequential CPU", "cuBLAS"), (on_the_left, ~on_the_left), strict=True
    )
    for ax, values, over, here in panels:
        draw_stated(ax, values, order)
        ax.axhline(1, color=BOUND, linewidth=1.2)
        ax.set(yscale="log", xlabel=SIZE, ylabel=f"speedup over {over}")
        plot.log(ax.yaxis)
        plot.sizes(ax, data.loc[here, "size"].tolist() or points["size"].tolist())
    if {"cublas", "cublas_handle"} <= set(times):
        handles["over cuBLAS, kernel alone"] = Line2D(
            [], [], color=INK, linestyle=":", marker="o", markerfacecolor="none"
        )
    handles |= stated_handles(order, *stated)
    plot.legend(fig, handles)
    return fig, plot.behind(data, *stated)


def variants(
    df: pd.DataFrame,
    order: Sequence[str],
    published: pd.DataFrame | None = None,
    shown: Sequence[str] | None = None,
    base: str = "baseline",
):
    """Fig. 4: performance of every other variant over that of `base` (left), and the best run time
    at each size with the variant that has it (right).

    shown: the variants that take part (default: all of `order`); those without records are left
    out. Published quantity: "speedup_baseline". Raises ValueError without `base`.
    """
    points = points_of(df, shown or order, order)
    times = times_of(points)
    if base not in times:
        raise ValueError(f"The records lack {base!r}, which the other variants are compared to.")
    ratio = times.rdiv(times[base], axis=0)
    fig, (ax, side) = plt.subplots(1, 2, figsize=(WIDTH, 4.1))
    handles: dict[str, object] = {}
    others = [v for v in times if v != base]
    if not others:
        raise ValueError(f"The records have no variant but {base!r}, so there is none to compare.")
    for variant in others:
        values = ratio[variant].dropna()
        handles[name(variant)] = plot.line(ax, values.index, values, variant, order)
    stated = of_quantity(published, "speedup_baseline")
    draw_stated(ax, stated, order)
    ax.axhline(1, color=look(base, order)["color"], linewidth=1.3)
    ax.set(xlabel=SIZE, ylabel=f"performance relative to {name(base)}")
    plot.ratio(ax, [*ratio[others].stack(), *stated[["low", "high"]].stack().astype(float)])
    plot.sizes(ax, points["size"].tolist())

    best, winner = times.min(axis=1), times.idxmin(axis=1)
    floor = 10 ** np.floor(np.log10(best.min() * 0.7))
    for position, size in enumerate(best.index):
        variant = winner[size]
        place = list(order).index(variant)
        colour = look(variant, order)["color"]
        side.bar(
            position,
            best[size] - floor,
            0.8,
            bottom=floor,
            facecolor=colour,
            edgecolor=INK,
            hatch=HATCHES[place % len(HATCHES)],
            linewidth=0.6,
        )
        side.annotate(
            f"{best[size]:.2g}",
            (position, best[size]),
            xytext=(0, 2),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    side.set(yscale="log", ylim=(floor, best.max() * 2.2), ylabel="best run time (ms)", xlabel=SIZE)
    plot.log(side.yaxis)
    side.xaxis.set_major_locator(FixedLocator(range(len(best))))
    side.set_xticks(range(len(best)), [f"{size}" for size in best.index], fontsize=8)
    side.grid(axis="x", visible=False)
    for variant in (v for v in order if v in set(winner)):
        handles[f"fastest: {name(variant)}"] = Patch(
            facecolor=look(variant, order)["color"],
            edgecolor=INK,
            hatch=HATCHES[list(order).index(variant) % len(HATCHES)],
            linewidth=0.6,
        )
    handles |= stated_handles(order, stated)
    plot.legend(fig, handles)
    data = points[["experiment", "variant", "size", "time_ms"]]
    data = data.assign(
        over_baseline=[ratio.loc[r.size, r.variant] for r in data.itertuples(index=False)],
        fastest=[winner.get(r.size) == r.variant for r in data.itertuples(index=False)],
    )
    return fig, plot.behind(data, stated)


def cost_of_element_wise(df: pd.DataFrame, order: Sequence[str]):
    """Time of `element_wise` over that of the baseline, over the size: what the right gather costs.

    Two lines: on the baseline's own operands (vectors of 32 columns, label ""), and on an
    element-wise 2:4 matrix (label "2:4 element-wise"), which the baseline would multiply wrongly, so
    that its time at the same size stands for it. Where there is one, cuBLAS on the dense matrix is
    the third. Raises ValueError if neither was measured beside the baseline.
    """
    usual = df[df["label"] == ""]
    base = times_of(points_of(usual, ["baseline"], order))["baseline"]
    lines = {
        "element_wise on vectors of 32": (usual, "element_wise", {}),
        "element_wise on element-wise 2:4": (
            df[df["label"] == "2:4 element-wise"],
            "element_wise",
            {"linestyle": "--", "markerfacecolor": "none", "markeredgewidth": 1.2},
        ),
        "cuBLAS, dense": (usual, "cublas", {}),
    }
    fig, ax = plt.subplots(figsize=(WIDTH, 3.4))
    handles: dict[str, object] = {}
    rows = []
    for label, (here, variant, more) in lines.items():
        if not ((here["variant"] == variant) & (here["m"] == here["n"])).any():
            continue
        ratio = (times_of(points_of(here, [variant], order))[variant] / base).dropna()
        handles[label] = plot.line(ax, ratio.index, ratio, variant, order, **more)
        rows += [
            {"line": label, "variant": variant, "size": size, "time_over_baseline": value}
            for size, value in ratio.items()
        ]
    if not any(row["variant"] == "element_wise" for row in rows):
        raise ValueError("The records have no 'element_wise' at a size of the baseline.")
    ax.axhline(1, color=look("baseline", order)["color"], linewidth=1.3)
    ax.set(xlabel=SIZE, ylabel="time over the baseline's")
    data = pd.DataFrame(rows)
    plot.ratio(ax, data["time_over_baseline"].tolist())
    plot.sizes(ax, data["size"].tolist(), most=8)
    plot.legend(fig, handles)
    return fig, data
