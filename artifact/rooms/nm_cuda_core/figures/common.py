"""What several figures of the room need: rows of records, and how published values are drawn."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from artifact.drawing import plot
from artifact.drawing.style import BASELINES, CLAIM, SIZE, look
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


def draw_stated(ax, rows: pd.DataFrame, order: Sequence[str]) -> None:
    """Draw published rows at their sizes, in the marker of what is to the letter of each."""
    for row, middle in zip(rows.itertuples(), middle_of(rows), strict=True):
        ours = AS_PUBLISHED.get(row.variant)
        who = ours if ours in order else row.variant
        marker = look(who, order)["marker"] if is_known(who, order) else "+"
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


def stated_handles(order: Sequence[str], *stated: pd.DataFrame) -> dict[str, Line2D]:
    """Entries of the legend for what `draw_stated` drew: in a contender's marker, or of no one kernel."""
    known = {is_known(v, order) for rows in stated for v in rows["variant"]}
    handles = {STATED: Line2D([], [], **plot.hollow())} if True in known else {}
    if False in known:
        handles["stated of the sparse kernels"] = Line2D([], [], **plot.hollow("+"))
    return handles


def is_known(variant: str, order: Sequence[str]) -> bool:
    return variant in order or str(variant).startswith(BASELINES)
