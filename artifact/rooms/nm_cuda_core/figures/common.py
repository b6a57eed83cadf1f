"""What several figures of the room need: rows of records, and how published values are drawn."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from artifact.drawing import plot
from artifact.drawing.style import BASELINES, CLAIM, SIZE
from artifact.profiling import ncu

STATED = "stated by the source (RTX 4070)"
#: The source's name for a kernel -> our variant that is to its letter.
AS_PUBLISHED = {
    "baseline": "verbatim",
    "prefetch": "verbatim_prefetch",
    "double_buffer": "verbatim_double_buffer",
}
PROFILED = tuple(AS_PUBLISHED)
SCALING = ("cpu_loop", "cublas", "cublas_handle", *PROFILED)
AS_STATED = ("cpu_loop", "cublas", "cublas_handle", *AS_PUBLISHED.values())
STALL = ncu.STALLED
HATCHES = ("", "////", "....", "\\\\\\\\", "xxx", "++", "oo", "----", "||||")


def points_of(df: pd.DataFrame, wanted: Sequence[str], order: Sequence[str]) -> pd.DataFrame:
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
        mixed = ", ".join(f"{row.label or 'usual'} at {row.density:g}" for row in patterns.itertuples())
        raise ValueError(f"The records mix patterns ({mixed}), and a line is of one: choose one.")
    rows = rows.drop_duplicates(["variant", "m"])
    position = {variant: i for i, variant in enumerate(wanted)}
    rows = rows.sort_values(["variant", "m"], key=lambda c: c.map(position) if c.name == "variant" else c)
    dense = ~rows["variant"].isin(order)
    flops = np.where(dense, 2.0 * rows["m"] * rows["n"] * rows["k"], rows["useful_flops"])
    return rows.assign(
        size=rows["m"], time_ms=rows["median_us"] / 1e3, tflops=flops / rows["median_us"] / 1e6
    ).reset_index(drop=True)


def times_of(points: pd.DataFrame) -> pd.DataFrame:
    """Time in ms, one row per size, one column per contender."""
    table = points.pivot(index="size", columns="variant", values="time_ms")
    return table[list(dict.fromkeys(points["variant"]))]


def of_quantity(published: pd.DataFrame | None, quantity: str) -> pd.DataFrame:
    """The rows of a quantity that belong to a size, with `size` as a whole number."""
    if published is None:
        return pd.DataFrame(columns=["quantity", "size", "variant", "low", "high", "unit"])
    rows = published[(published["quantity"] == quantity) & published["size"].notna()]
    rows = rows.dropna(subset=["low", "high"], how="all")
    return rows.assign(size=rows["size"].astype(int))


def middle_of(rows: pd.DataFrame) -> pd.Series:
    """The value of each row: the geometric middle of a range, or the only bound."""
    low, high = rows["low"].fillna(rows["high"]), rows["high"].fillna(rows["low"])
    return np.sqrt(low.astype(float) * high.astype(float))


def draw_stated(ax, rows: pd.DataFrame) -> list[plot.End]:
    """Draw published rows at their sizes: those of cuBLAS as squares, those of the sparse kernels, which the source
    does not always tell apart, as circles, each joined; a range has a bar, a bound with no other side an arrow.

    Returns what `plot.ends` names.
    """
    named = []
    of_library = rows["variant"].astype(str).str.startswith(BASELINES)
    for called, marker, here in (
        ("cuBLAS, stated", "s", rows[of_library]),
        ("sparse kernels, stated", "o", rows[~of_library]),
    ):
        if here.empty:
            continue
        middles = middle_of(here)
        for row, middle in zip(here.itertuples(), middles, strict=True):
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
        line = np.exp(np.log(middles).groupby(here["size"]).mean())
        ax.plot(line.index, line, color=CLAIM, linewidth=1, linestyle=(0, (4, 3)), marker="")
        end = float(line.index[-1]), float(line.iloc[-1])
        named.append(plot.End(called, *end, CLAIM, alone=len(line) == 1))
    return named


def stated_handles(*stated: pd.DataFrame) -> dict[str, Line2D]:
    """The legend's entry for what `draw_stated` drew; none where nothing is stated."""
    return {STATED: Line2D([], [], **plot.hollow())} if any(len(rows) for rows in stated) else {}
