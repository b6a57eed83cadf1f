"""What was tried and not kept: what was expected beside what came."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from artifact.drawing import plot
from artifact.drawing.style import BASELINE, BEST, INK, WIDTH
from artifact.rooms.nm_spmm.words import sparsity

#: From the least density to the largest, one hue.
ALPHAS = (0.45, 1.0)


def trials(outcomes: pd.DataFrame):
    """A row for each trial: the factor that was expected (hollow) and what came at each density (filled, the denser the
    stronger), both over the rung that the expectation names. outcomes: `results.trials`. Raises ValueError without one.
    """
    if outcomes.empty:
        raise ValueError("There is nothing to draw: no trial was measured.")
    rows = [
        {"trial": row.trial, "density": density, "expected": row.factor, "came": ratio}
        for row in outcomes.itertuples()
        for density, ratio in row.came.items()
    ]
    data = pd.DataFrame(rows)
    names, densities = list(outcomes["trial"]), sorted(set(data["density"]))
    place, handles = {name: i for i, name in enumerate(names)}, {}
    fig, ax = plt.subplots(figsize=(WIDTH, 0.26 * len(names) + 1.2))
    for density, alpha in zip(densities, np.linspace(*ALPHAS, len(densities)), strict=True):
        at = data[data["density"] == density]
        how = {"linestyle": "none", "markersize": 6, "markeredgewidth": 0, "alpha": float(alpha)}
        (dots,) = ax.plot(at["came"], at["trial"].map(place), "D", color=BEST, **how)
        handles[f"at {sparsity(density)}"] = dots
    (hollow,) = ax.plot(outcomes["factor"], range(len(names)), **plot.hollow())
    handles["expected"] = hollow
    for name, of in data.groupby("trial"):
        ends = [of["came"].median(), of["expected"].iloc[0]]
        ax.plot(ends, [place[name]] * 2, color=INK, alpha=0.3, linewidth=1, zorder=1)
    ax.axvline(1, color=BASELINE, linewidth=1.2)
    ax.set(ylim=(len(names) - 0.4, -0.6), xlabel="speed over the rung that the trial builds on")
    ax.set_yticks(range(len(names)), names)
    ax.tick_params(axis="y", length=0)
    plot.legend(fig, handles, columns=6)
    return fig, data
