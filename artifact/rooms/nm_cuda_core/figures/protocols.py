"""What the source's cuBLAS time contains: fits of a run time, and how near each reading comes."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from scipy.optimize import nnls

from artifact.baselines.cublas import READINGS
from artifact.drawing import plot
from artifact.drawing.style import BASELINE, INK, PUBLISHED, RUNGS, WIDTH
from artifact.rooms.nm_cuda_core.figures.common import (
    STATED,
    middle_of,
    of_quantity,
    points_of,
    times_of,
)


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
        raise ValueError(f"Three terms need times at three sizes or more, not {len(t)} at {len(n)}.")
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
    rows = of_quantity(published, "tflops")
    rows = rows[rows["variant"] == "cublas"]
    if rows.empty:
        raise ValueError("The published numbers have no 'tflops' of 'cublas' at a size.")
    size = rows["size"].to_numpy()
    seconds = 2.0 * size.astype(float) ** 3 / (middle_of(rows).to_numpy() * 1e12)
    return pd.Series(seconds, index=pd.Index(size, name="size"), name="seconds").sort_index()


def fit_published(published: pd.DataFrame) -> Fit:
    """The source's times of cuBLAS as a cost per call, per element and per multiplication."""
    theirs = cublas_times(published)
    return fit_readings(theirs.index, theirs)


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
    times = times_of(points_of(df, READINGS, ())) / 1e3
    if "cublas" not in times:
        raise ValueError("The records lack 'cublas', the kernel alone, which others are compared to.")
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


#: Part of a call: what it is called, its colour and hatch, the reading that adds it (None: the kernel itself), and the
#: term of the fit that grows as it does.
PARTS = (
    ("kernel; in the fit, n³", BASELINE, "", None, "cube_ms"),
    ("copies of A, B and C; n²", RUNGS[1], "....", "cublas_transfers", "square_ms"),
    ("allocation", RUNGS[0], "xxx", "cublas_allocation", None),
    ("handle; a constant", PUBLISHED, "////", "cublas_handle", "constant_ms"),
)


def _parts(times: pd.DataFrame, size: int) -> dict[str, float]:
    """Part -> ms at a size, of what the records have."""
    kernel, of = times.loc[size, "cublas"], {}
    for called, *_, reading, _ in PARTS:
        ms = kernel if reading is None else times.get(reading, {}).get(size, np.nan) - kernel
        of[called] = max(float(ms), 0.0)
    return {called: ms for called, ms in of.items() if ms == ms}


def readings(df: pd.DataFrame, published: pd.DataFrame, fit: Fit):
    """What a call of cuBLAS contains at each size that the source has a time of, a panel each: what was measured here,
    part upon part, and beside it the terms of the fit of the published times, with the published time as a dot.

    fit: `fit_readings` of the published times.
    """
    points = points_of(df, READINGS, ())
    target = cublas_times(published).groupby(level=0).mean()
    _, models = _compare(df, published)
    times = times_of(points)
    sizes = [size for size in target.index if size in times.index]
    fig, axes = plt.subplots(1, len(sizes), figsize=(WIDTH, 3.9), squeeze=False)
    looks = {called: (colour, hatch) for called, colour, hatch, _, _ in PARTS}
    terms = pd.DataFrame(
        {
            "constant_ms": 1e3 * fit.constant,
            "square_ms": 1e3 * fit.square * target.index.to_numpy(float) ** 2,
            "cube_ms": 1e3 * fit.cube * target.index.to_numpy(float) ** 3,
        },
        index=target.index,
    )
    term_of = {called: term for called, *_, term in PARTS if term}
    for ax, size in zip(axes[0], sizes, strict=True):
        here = _parts(times, size)
        theirs = {called: float(terms.loc[size, term]) for called, term in term_of.items()}
        unit, times_unit = ("µs", 1e3) if max(sum(here.values()), sum(theirs.values())) < 1 else ("ms", 1)
        top = times_unit * max(sum(here.values()), sum(theirs.values()), 1e3 * target[size])
        for x, stack in enumerate((here, theirs)):
            low = 0.0
            for called, ms in stack.items():
                colour, hatch = looks[called]
                tall = times_unit * ms
                how = {"facecolor": colour, "edgecolor": INK, "linewidth": 0.5, "hatch": hatch}
                ax.bar(x, tall, 0.72, bottom=low, alpha=0.8, **how)
                low += tall
        ax.plot(1.9, times_unit * 1e3 * target[size], **plot.hollow())
        ax.set(xlim=(-0.6, 2.35), ylim=(0, 1.1 * top), title=f"{plot.number(size)}³")
        ax.set_xticks([0, 1, 1.9], ["here", "fit", "stated"])
        ax.set_yticks([tick for tick in MaxNLocator(4).tick_values(0, top) if tick <= top])
        ax.yaxis.set_major_formatter(FuncFormatter(plot.number))
        ax.set_ylabel(unit, rotation=0, ha="right", va="bottom", y=1.0)
        ax.tick_params(axis="x", length=0)
        ax.grid(axis="x", visible=False)
    present = set().union(*(_parts(times, size) for size in sizes), term_of)
    handles = {
        called: Patch(facecolor=colour, edgecolor=INK, hatch=hatch, linewidth=0.5, alpha=0.8)
        for called, (colour, hatch) in looks.items()
        if called in present
    }
    plot.legend(fig, handles | {STATED: Line2D([], [], **plot.hollow())}, columns=3)
    rows = []
    for variant, size, time_ms in points[["variant", "size", "time_ms"]].itertuples(index=False):
        extra = max(time_ms - times.loc[size, "cublas"], 0.0) if variant != "cublas" else np.nan
        scaled = 1e3 * models[variant][size] if size in models[variant].index else np.nan
        row = {"variant": variant, "size": size, "time_ms": time_ms, "over_kernel_ms": extra}
        rows.append(row | {"scaled_ms": scaled})
    stated = pd.DataFrame(
        {
            "variant": "cublas",
            "size": target.index,
            "time_ms": 1e3 * target.to_numpy(),
            "fitted_ms": 1e3 * fit.seconds(target.index),
        }
    ).join(terms.reset_index(drop=True))
    return fig, plot.behind(pd.DataFrame(rows), stated)
