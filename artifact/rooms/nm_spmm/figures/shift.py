"""Where the bottleneck shifts: intensity by Eq. 3 against the ridge."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact.drawing import plot
from artifact.drawing.style import BOUND, CLAIM, ROWS, WIDTH
from artifact.rooms.nm_spmm.pictures.marks import MARKS


def transition(df: pd.DataFrame, stated: float | None = 0.7):
    """Arithmetic intensity by Eq. 3 against sparsity, a panel per GPU, under its ridge, with the sparsity
    at which each line falls below it.

    df: gpu, kind (what a line is of: such as "packed"), sparsity (0 to 1), intensity and ridge (both
    FLOP per byte; one ridge a GPU), any number of points per line. stated: the source's transition.
    The data behind it has the crossing of its line: 0 where it is below throughout, NaN where never.
    Raises ValueError for a GPU with several ridges, or over four kinds.
    """
    if (df.groupby("gpu")["ridge"].nunique() > 1).any():
        raise ValueError("A GPU has one ridge, and the table has several of one.")
    gpus, kinds = list(dict.fromkeys(df["gpu"])), list(dict.fromkeys(df["kind"]))
    if len(kinds) > 4:
        raise ValueError(f"The figure has room for four kinds of lines, not {len(kinds)}.")
    across = min(len(gpus), 2)
    down = -(-len(gpus) // across)
    fig, axes = plt.subplots(down, across, figsize=(WIDTH, 0.9 + 2.75 * down), sharex=True, sharey=True, squeeze=False)
    handles: dict[str, object] = {}
    data = df.assign(crossing=np.nan)
    for ax, gpu in zip(axes.flat, gpus, strict=False):
        ridge, said = float(df.loc[df["gpu"] == gpu, "ridge"].iloc[0]), []
        for place, kind in enumerate(kinds):
            chosen = (df["gpu"] == gpu) & (df["kind"] == kind)
            rows = df[chosen].sort_values("sparsity")
            if rows.empty:
                continue
            how = {
                "color": ROWS[place],
                "linestyle": ("-", "--", "-.", ":")[place],
                "linewidth": 1.8,
            }
            (handles[kind],) = ax.plot(100 * rows["sparsity"], rows["intensity"], **how)
            at = _falls_below(rows["sparsity"].to_numpy(), rows["intensity"].to_numpy(), ridge)
            data.loc[chosen, "crossing"] = at
            text = f"{kind}: " + ("never" if np.isnan(at) else f"{100 * at:.0f} %" if at else "always")
            said.append(text)
            if at > 0:
                ax.plot(100 * at, ridge, MARKS[place], color=ROWS[place], markersize=8, mew=0)
        ax.axhline(ridge, color=BOUND, linewidth=1.4, linestyle=(0, (5, 2)))
        if stated is not None:
            line = {"color": CLAIM, "linewidth": 1.2, "linestyle": (0, (2, 2))}
            handles[f"stated transition: {100 * stated:g} %"] = ax.axvline(100 * stated, **line)
        ax.set_yscale("log")
        ax.set_title(f"{gpu}: ridge at {ridge:.3g} FLOP/B")
        text = "memory-bound from\n" + "\n".join(said)
        ax.text(0.02, 0.03, text, transform=ax.transAxes, va="bottom", fontsize=8)
    values = [*df["intensity"], *df["ridge"]]
    # Room below for what is said of each panel.
    axes[0, 0].set_ylim(min(values) / (max(values) / min(values)) ** 0.45, max(values) * 1.3)
    plot.log(axes[0, 0].yaxis, fine=True)
    axes[0, 0].set_xlim(0, 100)
    for ax in axes.flat[len(gpus) :]:
        ax.axis("off")
    for ax in axes[-1]:
        ax.set_xlabel("sparsity (%)")
    for ax in axes[:, 0]:
        ax.set_ylabel("intensity (FLOP/B)")
    handles["ridge: FMA over bandwidth"] = Line2D([], [], color=BOUND, linestyle=(0, (5, 2)))
    plot.legend(fig, handles, columns=3)
    return fig, data


def _falls_below(sparsity: np.ndarray, intensity: np.ndarray, ridge: float) -> float:
    """Where a line falls under the ridge and stays there: 0 if it begins below, NaN if it ends above."""
    above = intensity >= ridge
    if above[-1]:
        return np.nan
    if not above.any():
        return 0.0
    i = int(np.flatnonzero(above)[-1])
    share = (intensity[i] - ridge) / (intensity[i] - intensity[i + 1])
    return float(sparsity[i] + share * (sparsity[i + 1] - sparsity[i]))
