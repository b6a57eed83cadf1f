"""Fig. 2 and 4: scaling, speedups, variants, and what the right gather costs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import plot
from artifact.drawing.style import BEST, BOUND, INK, PUBLISHED, SIZE, WIDTH, look, name
from artifact.rooms.nm_cuda_core.figures.common import (
    AS_PUBLISHED,
    PROFILED,
    SCALING,
    draw_stated,
    of_quantity,
    points_of,
    stated_handles,
    times_of,
)


def _lines(ax, table: pd.DataFrame, order: Sequence[str], called: str = "", **more) -> list[plot.End]:
    """Draw a line for each column of `table`, whose index is the size; `more` overrides its look. Returns what
    `plot.ends` names: every line, or all of them `called` one thing, at the end of the first."""
    named = []
    for variant in table:
        values = table[variant].dropna()
        if values.empty:
            continue
        line = plot.line(ax, values.index, values, variant, order, **({"markersize": 4} | more))
        end = float(values.index[-1]), float(values.iloc[-1])
        named.append(plot.End(called or name(variant), *end, line.get_color(), len(values) == 1))
    return named[:1] if called else named


def scaling(
    df: pd.DataFrame,
    published: pd.DataFrame | None,
    order: Sequence[str],
    shown: Sequence[str] = SCALING,
):
    """Fig. 2a: TFLOP/s (above) and run time (below) over the size, both logarithmic; each line is named at its end.

    TFLOP/s of the room's variants count 2·M·N·W, those of cuBLAS and of a CPU 2·M·N·K, as the
    source counts. Contenders of `shown` without records are left out. Published quantities:
    "tflops" in TFLOP/s and "time" in ms.
    """
    points = points_of(df, shown, order)
    fig, axes = plt.subplots(2, 1, figsize=(WIDTH, 6.6), sharex=True, height_ratios=(1.35, 1))
    stated = [of_quantity(published, quantity) for quantity in ("tflops", "time")]
    named = []
    for ax, rows, quantity in zip(axes, stated, ("tflops", "time_ms"), strict=True):
        table = points.pivot(index="size", columns="variant", values=quantity)
        table = table[list(dict.fromkeys(points["variant"]))]
        named.append(draw_stated(ax, rows) + _lines(ax, table, order))
        label = "throughput (TFLOP/s)" if quantity == "tflops" else "run time (ms)"
        ax.set(yscale="log", ylabel=label)
        plot.log(ax.yaxis)
    plot.sizes(axes[1], points["size"].tolist(), most=8)
    axes[1].set_xlabel(SIZE)
    if handles := stated_handles(*stated):
        plot.legend(fig, handles)
    for ax, lines in zip(axes, named, strict=True):
        plot.ends(ax, lines)
    columns = ["experiment", "variant", "size", "density", "median_us", "q25_us", "q75_us"]
    return fig, plot.behind(points[[*columns, "time_ms", "tflops"]], *stated)


def speedups(
    df: pd.DataFrame,
    published: pd.DataFrame | None,
    order: Sequence[str],
    shown: Sequence[str] = PROFILED,
):
    """Fig. 2b: speedup over the sequential CPU (above) and over cuBLAS (below), over the size; each line is named at
    its end.

    Below, a full line is over the report's own reading of cuBLAS (a handle created and destroyed in every call), a
    dotted one over the kernel alone. Published quantities: "speedup_cpu" and "speedup_cublas".
    """
    cublas = ("cublas", "cublas_handle")
    points = points_of(df, ["cpu_loop", *cublas, *shown], order)
    times = times_of(points)
    tables = {
        over: pd.DataFrame({v: times[over] / times[v] for v in (*more, *shown) if v in times})
        for over, more in (("cpu_loop", cublas), ("cublas_handle", ()), ("cublas", ()))
        if over in times
    }
    rows = [
        {"variant": variant, "size": size, "over": over, "speedup": value}
        for over, table in tables.items()
        for variant in table
        for size, value in table[variant].dropna().items()
    ]
    if not rows:
        raise ValueError("The records have neither cpu_loop nor cublas beside a variant.")
    stated = [of_quantity(published, quantity) for quantity in ("speedup_cpu", "speedup_cublas")]
    fig, axes = plt.subplots(2, 1, figsize=(WIDTH, 6.6), sharex=True)
    above, below = (draw_stated(ax, values) for ax, values in zip(axes, stated, strict=True))
    if "cpu_loop" in tables:
        above += _lines(axes[0], tables["cpu_loop"], order)
    if "cublas_handle" in tables:
        below += _lines(axes[1], tables["cublas_handle"], order)
    if "cublas" in tables:
        both = "cublas_handle" in tables
        alone = {"linestyle": ":", "markerfacecolor": "none", "markeredgewidth": 1} if both else {}
        called = "over the kernel alone" if both else ""
        below += _lines(axes[1], tables["cublas"], order, called, **alone)
    for ax, over in zip(axes, ("the sequential CPU", "cuBLAS"), strict=True):
        ax.axhline(1, color=BOUND, linewidth=1.2)
        ax.margins(y=0.1)
        ax.set(yscale="log", ylabel=f"speedup over {over}")
        plot.log(ax.yaxis)
    plot.sizes(axes[1], points["size"].tolist(), most=8)
    axes[1].set_xlabel(SIZE)
    if handles := stated_handles(*stated):
        plot.legend(fig, handles)
    for ax, lines in zip(axes, (above, below), strict=True):
        plot.ends(ax, lines)
    return fig, plot.behind(pd.DataFrame(rows), *stated)


#: Times that differ by less are called equal: those of one kernel's runs do.
SAME = 1.02


def variants(
    df: pd.DataFrame,
    order: Sequence[str],
    published: pd.DataFrame | None = None,
    shown: Sequence[str] | None = None,
    base: str = "baseline",
):
    """Fig. 4: performance of every variant over that of `base`, a row each and a column for each size, tinted by how
    far it is ahead or behind; framed is what is fastest at a size, and all that is within `SAME` of it. Below, the
    time of the fastest.

    shown: the variants that take part (default: all of `order`); those without records are left
    out. Published quantity: "speedup_baseline", in the cell of the kernel that is to its letter. Raises ValueError
    without `base`.
    """
    points = points_of(df, shown or order, order)
    times = times_of(points)
    if base not in times:
        raise ValueError(f"The records lack {base!r}, which the other variants are compared to.")
    if not [v for v in times if v != base]:
        raise ValueError(f"The records have no variant but {base!r}, so there is none to compare.")
    ratio, best = times.rdiv(times[base], axis=0), times.min(axis=1)
    fastest = times.le(SAME * best, axis=0)
    stated = of_quantity(published, "speedup_baseline")
    letter = {variant: AS_PUBLISHED.get(variant, variant) for variant in stated["variant"]}
    said = {
        (letter[r.variant] if letter[r.variant] in times else r.variant, r.size): _bounds(r)
        for r in stated.itertuples()
    }
    tall = 0.38 if any(variant in times for variant, _ in said) else 0.27
    fig, ax = plt.subplots(figsize=(WIDTH, 0.75 + tall * len(times.columns) + 0.3))
    for y, variant in enumerate(times):
        for x, size in enumerate(times.index):
            value = ratio.loc[size, variant]
            if np.isnan(value):
                continue
            colour, strength = (BEST if value > 1 else PUBLISHED), abs(np.log2(value))
            cell = {"facecolor": colour, "alpha": min(0.55, 0.8 * strength), "linewidth": 0}
            ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, **cell))
            first = fastest.loc[size, variant]
            if first:
                frame = {"fill": False, "edgecolor": INK, "linewidth": 1.4}
                ax.add_patch(Rectangle((x - 0.46, y - 0.44), 0.92, 0.88, **frame))
            theirs = said.get((variant, size))
            weight = "bold" if first else "normal"
            ax.text(
                x,
                y - (0.17 if theirs else 0),
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize=8.5,
                weight=weight,
            )
            if theirs:
                ax.text(x, y + 0.2, theirs, ha="center", va="center", fontsize=8.5)
    low = len(times.columns)
    for x, size in enumerate(times.index):
        ax.text(
            x,
            low,
            plot.number(float(f"{1e3 * best[size]:.3g}")),
            ha="center",
            va="center",
            fontsize=8.5,
        )
    ax.axhline(low - 0.5, color=INK, linewidth=0.8)
    ax.set(xlim=(-0.5, len(times) - 0.5), ylim=(low + 0.5, -0.5), xlabel=SIZE)
    ax.set_yticks(range(low + 1), [*map(name, times), "fastest (µs)"])
    ax.set_xticks(range(len(times)), [plot.number(size) for size in times.index])
    ax.xaxis.set_label_position("top")
    ax.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    data = points[["experiment", "variant", "size", "time_ms"]]
    data = data.assign(
        over_baseline=[ratio.loc[r.size, r.variant] for r in data.itertuples(index=False)],
        fastest=[bool(fastest.loc[r.size, r.variant]) for r in data.itertuples(index=False)],
    )
    return fig, plot.behind(data, stated)


def _bounds(row) -> str:
    """What a source states, in brackets below what was measured."""
    if np.isnan(row.low):
        return f"(< {row.high:g})"
    if np.isnan(row.high):
        return f"(> {row.low:g})"
    return f"({row.low:g})" if row.low == row.high else f"({row.low:g}–{row.high:g})"


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
