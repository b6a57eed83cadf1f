"""Beyond the paper: tensor cores, vector lengths and windows."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from artifact.drawing import plot
from artifact.drawing.style import BASELINE, BEST, BOUND, INK, MARKER, ROWS, RUNGS, WIDTH, name
from artifact.rooms.nm_spmm.figures.common import (
    IDEAL,
    POINT,
    as_sparsity,
    densities_of,
    pattern,
    rows_of,
    speed_axis,
    speedups_of,
)
from artifact.rooms.nm_spmm.pictures.marks import MARKS

#: Label -> variant, library, how the type is called.
TENSOR = {"tf32": ("tf32", "cublas_tf32", "TF32"), "bfloat16": ("bf16", "cublas_bf16", "BF16")}
LENGTHS = (
    BEST,
    RUNGS[4],
    RUNGS[1],
    RUNGS[0],
)  # colours of vector lengths, none of them a library's


#: How far apart markers of windows stand at one vector length, in powers of two.
BESIDE = 0.16


def crossing_of(density: np.ndarray, speedup: np.ndarray) -> float:
    """The sparsity from which on a contender wins, densities falling: where the line between two
    points passes 1 for good, both logarithmic. NaN where the last point does not win; the first
    point's sparsity where all do."""
    wins = speedup >= 1
    if not wins[-1]:
        return np.nan
    losses = np.flatnonzero(~wins)
    if not losses.size:
        return 1 - float(density[0])
    i = int(losses[-1])
    (d0, d1), (s0, s1) = np.log(density[i : i + 2]), np.log(speedup[i : i + 2])
    return 1 - float(np.exp(d0 - s0 * (d1 - d0) / (s1 - s0)))


def compared(df: pd.DataFrame) -> pd.DataFrame:
    """Speedups of the tensor-core variants over dense cuBLAS of the same type, with the crossing of their line, NaN
    where it never wins. df: as `tensor`. Raises ValueError without any of them beside its library."""
    parts = []
    for dtype, (variant, library, _) in TENSOR.items():
        here = df[df["label"].str.startswith(dtype)]
        if {variant, library} <= set(here["variant"]):
            parts.append(speedups_of(here, [variant], library, None).assign(dtype=dtype))
    if not parts:
        raise ValueError("The records have no tf32 or bf16 beside cuBLAS of the same type.")
    data = pd.concat(parts, ignore_index=True)
    data["vector"] = [pattern(label)[1] for label in data["label"]]
    data = data.sort_values("density", ascending=False, kind="stable")
    lines = data.groupby(["dtype", "vector", "m", "n", "k"])
    data["crossing"] = np.nan
    for _, rows in lines:
        data.loc[rows.index, "crossing"] = crossing_of(rows["density"].to_numpy(), rows["speedup"].to_numpy())
    return data


def tensor(df: pd.DataFrame):
    """Speedup of the tensor-core variants over dense cuBLAS of the same type against sparsity, a panel
    for TF32 and BF16, a line per size and vector length; below, from which sparsity on each wins.

    df: labels "tf32" and "bfloat16", also with ", vectors of L". The x axis is logarithmic in the
    density, so that the ideal M/N is straight. The data behind it has the crossing of its line, NaN
    where it never wins. Raises ValueError without any of them beside its library.
    """
    data = compared(df)
    dtypes = [dtype for dtype in TENSOR if (data["dtype"] == dtype).any()]
    lines = list(data.groupby(["vector", "m", "n", "k"]).groups)
    if len(lines) > len(MARKS):
        raise ValueError(f"The figure has room for {len(MARKS)} lines, not {len(lines)}.")
    vectors = sorted({vector for vector, *_ in lines})
    shapes = sorted({tuple(shape) for _, *shape in lines})
    densities = densities_of(data["density"])
    fig, axes = plt.subplots(
        2,
        len(dtypes),
        figsize=(WIDTH, 4.3 + 0.24 * len(lines)),
        sharex=True,
        sharey="row",
        squeeze=False,
        height_ratios=(3.4, 0.5 + 0.27 * len(lines)),
    )
    handles: dict[str, object] = {}
    for (ax, side), dtype in zip(axes.T, dtypes, strict=True):
        for place, (vector, *shape) in enumerate(lines):
            chosen = (data["dtype"] == dtype) & (data["vector"] == vector)
            for column, size in zip(("m", "n", "k"), shape, strict=True):
                chosen &= data[column] == size
            rows = data[chosen]
            if rows.empty:
                continue
            how = {
                "color": LENGTHS[vectors.index(vector) % len(LENGTHS)],
                "marker": MARKS[place],
                "linestyle": ("-", "--", ":")[shapes.index(tuple(shape)) % 3],
                "markeredgewidth": 0,
                "markersize": MARKER + 1,
            }
            (line,) = ax.plot(1 / rows["density"], rows["speedup"], **how)
            size = f"{plot.number(shape[0])}³" if len(set(shape)) == 1 else " × ".join(map(plot.number, shape))
            handles[f"L = {vector}, {size}"] = line
            at = rows["crossing"].iloc[0]
            never = np.isnan(at)
            if not never:
                first = at == 1 - rows["density"].iloc[0]
                side.plot(1 / (1 - at), place, **(how | {"linestyle": "none"}))
                end = 1 / rows["density"].min()
                side.plot([1 / (1 - at), end], [place] * 2, color=how["color"], linewidth=2.4, alpha=0.45)
            text = "never" if never else f"{'' if first else '≥ '}{100 * at:.0f} %"
            plot.right(side, place, 36, text)
        ax.plot([1, 1 / min(densities)], [1, 1 / min(densities)], **IDEAL)
        ax.axhline(1, color=BASELINE, linewidth=1.3)
        ax.set_xscale("log", base=2)
        side.set_xticks([1 / d for d in densities], [as_sparsity(d) for d in densities])
        side.xaxis.set_minor_locator(NullLocator())
        side.set(ylim=(len(lines) - 0.4, -0.6), xlabel="sparsity")
        side.set_yticks([])
        side.set_xlim(0.93 / max(densities), 1.08 / min(densities))
        ax.set_title(f"{TENSOR[dtype][2]}, over cuBLAS {TENSOR[dtype][2]}")
    speed_axis(axes[0, 0], [*data["speedup"], 1 / min(densities)])
    axes[0, 0].set_ylabel("speedup over dense cuBLAS")
    axes[1, 0].set_ylabel("wins from")
    order = [f"L = {v}" for v in vectors]
    handles = dict(sorted(handles.items(), key=lambda h: order.index(h[0].split(",")[0])))
    handles["ideal, M/N"] = Line2D([], [], **IDEAL)
    handles["cuBLAS"] = Line2D([], [], color=BASELINE, linewidth=1.3)
    plot.legend(fig, handles, columns=3)
    columns = [
        "experiment",
        "variant",
        "label",
        *POINT,
        "vector",
        "median_us",
        "speedup",
        "crossing",
    ]
    return fig, data[columns].reset_index(drop=True)


def vectors(df: pd.DataFrame, fma: float | None = None, shown: Sequence[str] = ("auto", "v3")):
    """Useful TFLOP/s against the vector length L, a line per window M, a panel per sparsity.

    df: one size, patterns by their labels (see `pattern`). The first of `shown` is drawn full, the
    second hollow and dashed. fma: with it, the ceiling as a line. Raises ValueError for records of
    several sizes, or over two of `shown`.
    """
    if not 1 <= len(shown) <= 2:
        raise ValueError(f"The figure draws one contender or two, not {', '.join(shown) or 'none'}.")
    rows = rows_of(df, shown, None)
    if len(rows[["m", "n", "k"]].drop_duplicates()) > 1:
        raise ValueError("The figure is of one size, and the records are of several.")
    found = [pattern(label) for label in rows["label"]]
    rows = rows.assign(window=[m for m, _ in found], vector=[length for _, length in found])
    windows, densities = sorted(set(rows["window"])), densities_of(rows["density"])
    lengths = sorted(set(rows["vector"]))
    if len(windows) > len(MARKS):
        raise ValueError(f"The figure has room for {len(MARKS)} windows, not {len(windows)}.")
    fig, axes = plt.subplots(1, len(densities), figsize=(WIDTH, 4.0), sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    for ax, density in zip(axes[0], densities, strict=True):
        for place, window in enumerate(windows):
            for number, variant in enumerate(shown):
                here = rows[(rows["variant"] == variant) & (rows["density"] == density)]
                here = here[here["window"] == window].sort_values("vector")
                how = {"color": ROWS[place], "marker": MARKS[place], "markersize": MARKER + 1}
                how |= (
                    {"markeredgewidth": 0}
                    if not number
                    else {
                        "linestyle": "--",
                        "markerfacecolor": "none",
                        "markeredgewidth": 1.3,
                        "linewidth": 1.1,
                    }
                )
                beside = 2 ** (BESIDE * (place - (len(windows) - 1) / 2))  # most are alike
                ax.plot(here["vector"] * beside, here["useful"], **how)
            how = {"color": ROWS[place], "marker": MARKS[place], "markeredgewidth": 0}
            handles[f"M = {window}"] = Line2D([], [], markersize=MARKER + 1, **how)
        if fma:
            handles["FMA ceiling"] = ax.axhline(fma, color=BOUND, linewidth=1.3, linestyle=(0, (5, 3)))
        ax.set_xscale("log", base=2)
        ax.set_xticks(lengths, [f"{length}" for length in lengths])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.set(title=f"{as_sparsity(density)} sparsity", xlabel="vector length L (columns)")
    ends = {"": {}, "hollow": {"linestyle": "--", "markerfacecolor": "none"}}
    for variant, more in zip(shown, ends.values(), strict=False):
        handles[name(variant)] = Line2D([], [], **({"color": INK, "marker": "o"} | more))
    axes[0, 0].set_ylim(0, 1.06 * max(rows["useful"].max(), fma or 0))
    axes[0, 0].set_ylabel("useful work (TFLOP/s)")
    plot.legend(fig, handles, columns=7)
    columns = ["experiment", "variant", "label", *POINT, "window", "vector", "median_us", "useful"]
    return fig, rows[columns].rename(columns={"useful": "tflops"})
