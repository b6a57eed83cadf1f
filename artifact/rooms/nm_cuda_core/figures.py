"""Figures of the room `nm_cuda_core`: those of its source, drawn from records, beside its own values.

Every function returns `(fig, data)`, as in `artifact.drawing.style`, whose palette and style they share
(`counters_table` returns `(table, data)`). Common arguments:

    df         records; several experiments may stand below each other, and where two have the same
               contender at the same size, the first one counts
    published  what the source states: a table with the columns quantity, size, variant, low, high
               and unit (`artifact/published/nm_*.csv`), or None; an empty bound is not stated
    order      the room's own variants in ladder order, for their looks (see `figures.look`)

What the source states was measured on another GPU. It is drawn hollow in the colour of claims, in
the marker of its contender: a range as a bar, a bound with no other side as an arrow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator
from scipy.optimize import nnls

from artifact.baselines.cublas import READINGS
from artifact.drawing import plot
from artifact.drawing.style import (
    BASELINES,
    BOUND,
    CLAIM,
    INK,
    MARKER,
    RUNGS,
    SIZE,
    WIDTH,
    look,
    name,
)
from artifact.profiling import ncu

STATED = "stated by the source (RTX 4070)"
SCALING = ("cpu_loop", "cublas", "cublas_handle", "baseline", "prefetch", "double_buffer")
PROFILED = ("baseline", "prefetch", "double_buffer")
STALL = ncu.STALLED
HATCHES = ("", "////", "....", "\\\\\\\\", "xxx", "++", "oo", "----", "||||")


# ---------------------------------------------------------------- what several figures need


def _points(df: pd.DataFrame, wanted: Sequence[str], order: Sequence[str]) -> pd.DataFrame:
    """Rows of the contenders `wanted` at M = N = K, with their size, time in ms and TFLOP/s.

    The records give every contender the FLOPs of the sparse product; a contender that is not of the
    room multiplies the dense matrix, so that it does 2·M·N·K. Raises ValueError where there is no
    such row, or rows of several patterns.
    """
    rows = df[df["variant"].isin(wanted) & (df["m"] == df["n"]) & (df["n"] == df["k"])]
    if rows.empty:
        raise ValueError(f"The records have none of {', '.join(wanted)} at {SIZE}.")
    patterns = rows[["label", "density"]].drop_duplicates()
    if len(patterns) > 1:
        mixed = ", ".join(
            f"{row.label or 'usual'} at {row.density:g}" for row in patterns.itertuples()
        )
        raise ValueError(f"The records mix patterns ({mixed}), and a line is of one: choose one.")
    rows = rows.drop_duplicates(["variant", "m"])
    position = {variant: i for i, variant in enumerate(wanted)}
    rows = rows.sort_values(
        ["variant", "m"], key=lambda c: c.map(position) if c.name == "variant" else c
    )
    dense = ~rows["variant"].isin(order)
    flops = np.where(dense, 2.0 * rows["m"] * rows["n"] * rows["k"], rows["useful_flops"])
    return rows.assign(
        size=rows["m"], time_ms=rows["median_us"] / 1e3, tflops=flops / rows["median_us"] / 1e6
    ).reset_index(drop=True)


def _times(points: pd.DataFrame) -> pd.DataFrame:
    """Time in ms, one row per size, one column per contender."""
    table = points.pivot(index="size", columns="variant", values="time_ms")
    return table[list(dict.fromkeys(points["variant"]))]


def _of(published: pd.DataFrame | None, quantity: str) -> pd.DataFrame:
    """The rows of a quantity that belong to a size, with `size` as a whole number."""
    if published is None:
        return pd.DataFrame(columns=["quantity", "size", "variant", "low", "high", "unit"])
    rows = published[(published["quantity"] == quantity) & published["size"].notna()]
    rows = rows.dropna(subset=["low", "high"], how="all")
    return rows.assign(size=rows["size"].astype(int))


def _middle(rows: pd.DataFrame) -> pd.Series:
    """The value of each row: the geometric middle of a range, or the only bound."""
    low, high = rows["low"].fillna(rows["high"]), rows["high"].fillna(rows["low"])
    return np.sqrt(low.astype(float) * high.astype(float))


def _stated(ax, rows: pd.DataFrame, order: Sequence[str]) -> None:
    """Draw published rows at their sizes."""
    for row, middle in zip(rows.itertuples(), _middle(rows), strict=True):
        marker = look(row.variant, order)["marker"] if _known(row.variant, order) else "+"
        if row.low < row.high:
            ax.plot([row.size] * 2, [row.low, row.high], color=CLAIM, linewidth=3.2, alpha=0.45)
        elif not row.low == row.high:
            arrow = {"arrowstyle": "<|-", "color": CLAIM, "shrinkA": 0, "shrinkB": 3}
            ax.annotate(
                "",
                (row.size, middle),
                xytext=(0, -17 if np.isnan(row.low) else 17),
                textcoords="offset points",
                arrowprops=arrow,
            )
        ax.plot(row.size, middle, **plot.hollow(marker))


def _stated_handles(order: Sequence[str], *stated: pd.DataFrame) -> dict[str, Line2D]:
    """Entries of the legend for what `_stated` drew: in a contender's marker, or of no one kernel."""
    known = {_known(v, order) for rows in stated for v in rows["variant"]}
    handles = {STATED: Line2D([], [], **plot.hollow())} if True in known else {}
    if False in known:
        handles["stated of the sparse kernels"] = Line2D([], [], **plot.hollow("+"))
    return handles


def _known(variant: str, order: Sequence[str]) -> bool:
    return variant in order or str(variant).startswith(BASELINES)


# ---------------------------------------------------------------- scaling (Fig. 2)


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
    points = _points(df, shown, order)
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 3.9))
    handles: dict[str, object] = {}
    for variant in dict.fromkeys(points["variant"]):
        rows = points[points["variant"] == variant]
        for ax, quantity in zip(axes, ("tflops", "time_ms"), strict=True):
            handles[name(variant)] = plot.line(
                ax, rows["size"], rows[quantity], variant, order, markersize=MARKER
            )
    stated = [_of(published, quantity) for quantity in ("tflops", "time")]
    for ax, rows, label in zip(
        axes, stated, ("throughput (TFLOP/s)", "run time (ms)"), strict=True
    ):
        _stated(ax, rows, order)
        ax.set(yscale="log", ylabel=label, xlabel=SIZE)
        plot.log(ax.yaxis)
        plot.sizes(ax, points["size"].tolist())
    handles |= _stated_handles(order, *stated)
    plot.legend(fig, handles)
    columns = ["experiment", "variant", "size", "density", "median_us", "q25_us", "q75_us"]
    return fig, plot.behind(points[[*columns, "time_ms", "tflops"]], *stated)


def speedups(
    df: pd.DataFrame,
    published: pd.DataFrame | None,
    order: Sequence[str],
    shown: Sequence[str] = ("baseline", "prefetch", "double_buffer"),
):
    """Fig. 2b: speedup over the sequential CPU (left) and over cuBLAS (right), over the size.

    On the right a full line is over the report's own reading of cuBLAS (a handle created and
    destroyed in every call), a dotted one with hollow markers over the kernel alone. Published
    quantities: "speedup_cpu" and "speedup_cublas".
    """
    cublas = ("cublas", "cublas_handle")
    points = _points(df, ["cpu_loop", *cublas, *shown], order)
    times = _times(points)
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
    stated = [_of(published, quantity) for quantity in ("speedup_cpu", "speedup_cublas")]
    data = pd.DataFrame(rows)
    on_the_left = data["over"] == "cpu_loop"
    panels = zip(
        axes, stated, ("the sequential CPU", "cuBLAS"), (on_the_left, ~on_the_left), strict=True
    )
    for ax, values, over, here in panels:
        _stated(ax, values, order)
        ax.axhline(1, color=BOUND, linewidth=1.2)
        ax.set(yscale="log", xlabel=SIZE, ylabel=f"speedup over {over}")
        plot.log(ax.yaxis)
        plot.sizes(ax, data.loc[here, "size"].tolist() or points["size"].tolist())
    if {"cublas", "cublas_handle"} <= set(times):
        handles["over cuBLAS, kernel alone"] = Line2D(
            [], [], color=INK, linestyle=":", marker="o", markerfacecolor="none"
        )
    handles |= _stated_handles(order, *stated)
    plot.legend(fig, handles)
    return fig, plot.behind(data, *stated)


# ---------------------------------------------------------------- what cuBLAS's time contains


@dataclass(frozen=True)
class Fit:
    """A run time as constant + square·n² + cube·n³, in seconds; residuals: model over time, − 1."""

    constant: float
    square: float
    cube: float
    residuals: np.ndarray

    def seconds(self, sizes) -> np.ndarray:
        n = np.asarray(sizes, dtype=float)
        return self.constant + self.square * n**2 + self.cube * n**3

    @property
    def gbps(self) -> float:
        """Rate at which three float32 matrices would move in the time of the n² term."""
        return 12 / self.square / 1e9 if self.square else np.inf

    @property
    def tflops(self) -> float:
        """Rate of 2·n³ FLOP in the time of the n³ term."""
        return 2 / self.cube / 1e12 if self.cube else np.inf


def fit_readings(sizes: Iterable[float], seconds: Iterable[float]) -> Fit:
    """Fit t = a + b·n² + c·n³ with a, b, c ≥ 0 in relative error, so that every size counts alike.

    The three terms are what a timed cuBLAS call may contain: a cost per call (launch, handle,
    allocation), a cost per element of a matrix (transfers) and a cost per multiplication (the
    kernel). Raises ValueError for fewer than three sizes, or for a time that is not positive.
    """
    n, t = np.asarray(list(sizes), dtype=float), np.asarray(list(seconds), dtype=float)
    if n.shape != t.shape or len(set(n)) < 3:
        raise ValueError(
            f"Three terms need times at three sizes or more, not {len(t)} at {len(n)}."
        )
    columns = np.stack([np.ones_like(n), n**2, n**3], axis=1)
    coefficients, residuals = _relative_nnls(columns, t)
    return Fit(*(float(c) for c in coefficients), residuals)


def _relative_nnls(columns: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Non-negative weights of `columns` (points x terms) nearest to `times` in relative error, and
    the model over the times, minus 1."""
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("A fit in relative error needs times that are all positive and finite.")
    rows = columns / times[:, None]
    lengths = np.linalg.norm(rows, axis=0)  # n³ is 10¹¹ times the constant: solve in equal lengths
    lengths[lengths == 0] = 1
    weights, _ = nnls(rows / lengths, np.ones_like(times))
    weights = weights / lengths
    return weights, rows @ weights - 1


def cublas_times(published: pd.DataFrame) -> pd.Series:
    """The source's run time of cuBLAS in seconds, by size, from its TFLOP/s (2·n³ over the time).

    Of a range, the geometric middle. Raises ValueError where the source states none.
    """
    rows = _of(published, "tflops")
    rows = rows[rows["variant"] == "cublas"]
    if rows.empty:
        raise ValueError("The published numbers have no 'tflops' of 'cublas' at a size.")
    size = rows["size"].to_numpy()
    seconds = 2.0 * size.astype(float) ** 3 / (_middle(rows).to_numpy() * 1e12)
    return pd.Series(seconds, index=pd.Index(size, name="size"), name="seconds").sort_index()


def compare_readings(df: pd.DataFrame, published: pd.DataFrame) -> pd.DataFrame:
    """How near each reading of cuBLAS comes to the published times, one row per reading.

    The source measured on another machine, whose GPU and host are slower by factors that we do not
    know. So a reading is compared in shape: its kernel (what "cublas" takes) and what it adds to
    that are each scaled by one factor of their own, chosen (non-negative least squares, relative
    error) to come nearest to the published times at the sizes that both have. Additions of the same
    shape come equally near – a handle and an allocation both cost so much a call –, and then the
    factor must tell which of them another machine explains.

    Columns: kernel_scale and extra_scale, those factors (extra_scale is NaN for the kernel alone);
    rms_error, root mean square of model / published − 1; worst_factor, the largest ratio between
    the two, either way round; then of the reading's own fit (see `fit_readings`) constant_us, gbps
    and tflops. A last row, "published", has the fit of the published times, and its errors.
    Raises ValueError without the kernel alone, or without three common sizes.
    """
    table, _ = _compare(df, published)
    return table


def _compare(df: pd.DataFrame, published: pd.DataFrame) -> tuple[pd.DataFrame, dict]:
    """`compare_readings`, and for each reading its best model of the published times, in seconds."""
    target = cublas_times(published).groupby(level=0).mean()
    times = _times(_points(df, READINGS, ())) / 1e3
    if "cublas" not in times:
        raise ValueError(
            "The records lack 'cublas', the kernel alone, which others are compared to."
        )
    rows, models = [], {}
    for reading in (r for r in READINGS if r in times):
        both = times[[*{"cublas": 0, reading: 0}]].dropna()
        both = both[both.index.isin(target.index)]
        if len(both) < 3:
            raise ValueError(
                f"The reading {reading!r} shares {len(both)} sizes with the published times, "
                "and a comparison of shapes needs three."
            )
        kernel = both["cublas"].to_numpy()
        extra = np.maximum(both[reading].to_numpy() - kernel, 0)  # a small one drowns in noise
        columns = kernel[:, None] if reading == "cublas" else np.stack([kernel, extra], axis=1)
        here = target[both.index].to_numpy()
        scales, residuals = _relative_nnls(columns, here)
        models[reading] = pd.Series(columns @ scales, index=both.index)
        own = times[reading].dropna()
        fit = fit_readings(own.index, own)
        extra_scale = scales[1] if len(scales) > 1 else np.nan
        rows.append(_nearness(reading, residuals, fit, scales[0], extra_scale))
    fit = fit_readings(target.index, target)
    rows.append(_nearness("published", fit.residuals, fit, np.nan, np.nan))
    return pd.DataFrame(rows), models


def _nearness(reading, residuals, fit: Fit, kernel_scale, extra_scale) -> dict:
    over = 1 + residuals
    with np.errstate(divide="ignore"):  # a reading that adds nothing at a size may say 0 there
        worst = np.maximum(over, 1 / over).max()
    return {
        "reading": reading,
        "kernel_scale": kernel_scale,
        "extra_scale": extra_scale,
        "rms_error": float(np.sqrt(np.mean(residuals**2))),
        "worst_factor": float(worst),
        "constant_us": 1e6 * fit.constant,
        "gbps": fit.gbps,
        "tflops": fit.tflops,
    }


def readings(df: pd.DataFrame, published: pd.DataFrame, fit: Fit):
    """Run time of cuBLAS under every protocol over the size, and the published one (left); the
    published time over the best that each reading can say of it (right, see `compare_readings`).

    fit: `fit_readings` of the published times, drawn as a line on the left.
    """
    points = _points(df, READINGS, ())
    target = cublas_times(published).groupby(level=0).mean()
    _, models = _compare(df, published)
    fig, (ax, side) = plt.subplots(1, 2, figsize=(WIDTH, 4.0), width_ratios=(1.25, 1))
    handles: dict[str, object] = {}
    rows = []
    for reading in dict.fromkeys(points["variant"]):
        own = points[points["variant"] == reading]
        handles[name(reading)] = plot.line(
            ax, own["size"], own["time_ms"], reading, (), markersize=MARKER
        )
        model = models[reading]
        ratio = target[model.index] / model.where(model > 0)
        plot.line(side, ratio.index, ratio, reading, (), markersize=MARKER)
        for size, time_ms in zip(own["size"], own["time_ms"], strict=True):
            scaled = 1e3 * model[size] if size in model.index else np.nan
            rows.append({"variant": reading, "size": size, "time_ms": time_ms, "scaled_ms": scaled})
    ax.plot(target.index, 1e3 * target, **plot.hollow("o"))
    handles[STATED] = Line2D([], [], **plot.hollow())
    span = np.geomspace(target.index.min(), target.index.max(), 60)
    style = {"color": CLAIM, "linestyle": (0, (5, 2)), "linewidth": 1.2}
    (handles["a + b·n² + c·n³"],) = ax.plot(span, 1e3 * fit.seconds(span), **style)
    modelled = target / fit.seconds(target.index)
    side.plot(modelled.index, modelled, **(plot.hollow("o") | style))
    for each in (ax, side):
        each.set(xlabel=SIZE, yscale="log")
        plot.sizes(each, points["size"].tolist())
    ax.set_ylabel("run time (ms)")
    plot.log(ax.yaxis)
    side.axhline(1, color=INK, linewidth=0.8)
    drawn = np.concatenate([line.get_ydata() for line in side.get_lines()])
    plot.ratio(side, [float(value) for value in drawn if np.isfinite(value)])
    side.set_ylabel("published time over scaled reading")
    plot.legend(fig, handles, columns=3)
    stated = pd.DataFrame(
        {
            "variant": "cublas",
            "size": target.index,
            "time_ms": 1e3 * target.to_numpy(),
            "fitted_ms": 1e3 * fit.seconds(target.index),
        }
    )
    return fig, plot.behind(pd.DataFrame(rows), stated)


# ---------------------------------------------------------------- the variants (Fig. 4)


def variants(
    df: pd.DataFrame,
    order: Sequence[str],
    published: pd.DataFrame | None = None,
    shown: Sequence[str] | None = None,
):
    """Fig. 4: performance of every other variant over the baseline's (left), and the best run time
    at each size with the variant that has it (right).

    shown: the variants that take part (default: all of `order`); those without records are left
    out. Published quantity: "speedup_baseline". Raises ValueError without the baseline.
    """
    points = _points(df, shown or order, order)
    times = _times(points)
    if "baseline" not in times:
        raise ValueError("The records lack 'baseline', which the other variants are compared to.")
    ratio = times.rdiv(times["baseline"], axis=0)
    fig, (ax, side) = plt.subplots(1, 2, figsize=(WIDTH, 4.1))
    handles: dict[str, object] = {}
    others = [v for v in times if v != "baseline"]
    if not others:
        raise ValueError("The records have no variant but 'baseline', so there is none to compare.")
    for variant in others:
        values = ratio[variant].dropna()
        handles[name(variant)] = plot.line(ax, values.index, values, variant, order)
    stated = _of(published, "speedup_baseline")
    _stated(ax, stated, order)
    ax.axhline(1, color=look("baseline", order)["color"], linewidth=1.3)
    ax.set(xlabel=SIZE, ylabel="performance relative to the baseline")
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
            fontsize=7.5,
        )
    side.set(yscale="log", ylim=(floor, best.max() * 2.2), ylabel="best run time (ms)", xlabel=SIZE)
    plot.log(side.yaxis)
    side.xaxis.set_major_locator(FixedLocator(range(len(best))))
    side.set_xticks(range(len(best)), [f"{size}" for size in best.index], fontsize=7.5)
    side.grid(axis="x", visible=False)
    for variant in (v for v in order if v in set(winner)):
        handles[f"fastest: {name(variant)}"] = Patch(
            facecolor=look(variant, order)["color"],
            edgecolor=INK,
            hatch=HATCHES[list(order).index(variant) % len(HATCHES)],
            linewidth=0.6,
        )
    handles |= _stated_handles(order, stated)
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
    base = _times(_points(usual, ["baseline"], order))["baseline"]
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
        ratio = (_times(_points(here, [variant], order))[variant] / base).dropna()
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


# ---------------------------------------------------------------- counters (Fig. 3)


def counters_table(
    df: pd.DataFrame, published: pd.DataFrame | None, shown: Sequence[str] = PROFILED
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fig. 3: the report's nine metrics of each kernel at each size, measured above stated.

    df: counters (`records.read_counters`) at M = N = K. `ncu.REPORT_METRICS` says which counter is
    behind each metric, and so does the column `metric` of published (`nm_fig3.csv`), whose
    quantities that end in "_ratio" are over the baseline; of several rows for one value the first
    counts. The table is text, ready to be shown: two rows per metric, and per size a column for each
    of `shown` and for its ratio to the baseline; "–" is missing. The data are the same numbers,
    tidy: metric, source, size, variant, quantity ("value" or "ratio"), low and high. Raises
    ValueError where there are no counters, or a counter twice.
    """

    counters = _counters(df, shown)
    rows = []
    for metric, (counter, factor) in ncu.REPORT_METRICS.items():
        measured = counters[counters["metric"] == counter]
        values = {(int(r.m), r.variant): (factor * r.value,) * 2 for r in measured.itertuples()}
        ratios: dict = {}
        for source in ("measured", "stated"):
            if source == "stated":
                values, ratios = _stated_counter(published, counter)
            for (size, variant), bounds in values.items():
                rows.append((metric, source, size, variant, "value", *bounds))
                base = values.get((size, "baseline"), (np.nan, np.nan))
                if variant != "baseline" and (size, variant) not in ratios:
                    ratios[size, variant] = (_over(bounds, base),) * 2
            rows += [(metric, source, *key, "ratio", *bounds) for key, bounds in ratios.items()]
    columns = ["metric", "source", "size", "variant", "quantity", "low", "high"]
    data = pd.DataFrame(rows, columns=columns)
    data = data[data["variant"].isin(shown)].dropna(subset=["low", "high"], how="all")
    cells = {tuple(row[:5]): row[5:] for row in data.itertuples(index=False)}
    others = [variant for variant in shown if variant != "baseline"]
    titles = [(variant, variant, "value", "") for variant in shown]
    titles += [(f"{variant} / baseline", variant, "ratio", "×") for variant in others]
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
    here = counters[
        counters["metric"].str.startswith(before) & counters["metric"].str.endswith(after)
    ]
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
