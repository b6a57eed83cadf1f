"""How fast each contender draws on each memory, against what that memory delivers at most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from artifact.drawing import plot
from artifact.drawing.style import BOUND, INK, WIDTH, look, name

#: Of the groups of points, in their order.
MARKERS = ("o", "s", "D", "^", "v", "P")
#: How far lanes of one contender lie apart, in rows.
LANE = 0.22


def memories(
    rates: pd.DataFrame,
    ceilings: Mapping[str, Mapping[str, float]],
    variants: Sequence[str],
    shown: Sequence[str],
):
    """A panel for each memory and a row for each contender of `shown` that has rates: the range of its TB/s (line) and
    their median (marker), a lane for each group of points. On the right of a row, its largest rate in per cent of the
    panel's first ceiling. Returns the figure and, for each marker, its numbers.

    rates: a row for each point, with the columns variant, group, memory and tbps. ceilings: panel -> what bounds it ->
    TB/s, the first of which is 100%. variants: the room's ladder, for the colours. Raises ValueError without a rate,
    and for a panel without a ceiling.
    """
    rates = rates[rates["variant"].isin(shown) & rates["tbps"].notna()]
    if rates.empty:
        raise ValueError(f"There is nothing to draw: none of {', '.join(shown)} has a rate.")
    panels = [memory for memory in ceilings if (rates["memory"] == memory).any()]
    if bare := [panel for panel in dict.fromkeys(rates["memory"]) if not ceilings.get(panel)]:
        raise ValueError(f"There is no ceiling of {', '.join(bare)}.")
    groups, present = (
        list(dict.fromkeys(rates["group"])),
        [v for v in shown if v in set(rates["variant"])],
    )
    key = ["memory", "variant", "group"]
    data = rates.groupby(key, sort=False)["tbps"].agg(["count", "min", "median", "max"])
    data = data.rename(columns={"count": "points", "min": "least", "max": "most"}).reset_index()
    first = {panel: next(iter(ceilings[panel].values())) for panel in panels}
    data["ceiling"] = data["memory"].map(first)
    fig, axes = plt.subplots(
        1,
        len(panels),
        figsize=(WIDTH, 1.3 + 0.17 * len(present) * max(2, len(groups))),
        sharey=True,
        squeeze=False,
    )
    for ax, panel in zip(axes[0], panels, strict=True):
        here = data[data["memory"] == panel]
        for row in here.itertuples():
            lane = LANE * (groups.index(row.group) - (len(groups) - 1) / 2)
            y, colour = present.index(row.variant) + lane, look(row.variant, variants)["color"]
            ax.plot([row.least, row.most], [y, y], color=colour, linewidth=2.2, alpha=0.5)
            how = {"color": colour, "markersize": 5.5, "markeredgewidth": 0}
            ax.plot(row.median, y, MARKERS[groups.index(row.group) % len(MARKERS)], **how)
        top = max(*ceilings[panel].values(), float(here["most"].max())) * 1.06
        ax.set(xlim=(0, top), ylim=(len(present) - 0.4, -1.15), xlabel="TB/s", title=panel)
        ax.set_xticks([tick for tick in MaxNLocator(4).tick_values(0, top) if tick <= top])
        for place, (what, ceiling) in enumerate(ceilings[panel].items()):
            dashes = "-" if not place else (0, (5, 3))
            ax.axvline(ceiling, color=BOUND, linewidth=1.4, linestyle=dashes)
            # A name stands on the side of its line where there is room.
            left = ceiling > top / 2
            ax.annotate(
                f"{what} {ceiling:.1f}",
                (ceiling, -0.8),
                xytext=(-3 if left else 3, 0),
                textcoords="offset points",
                ha="right" if left else "left",
                va="center",
                fontsize=8,
            )
        plot.right(ax, -0.8, 30, "most", fontsize=8)
        for place, variant in enumerate(present):
            most = here.loc[here["variant"] == variant, "most"].max()
            if most == most:
                plot.right(ax, place, 30, f"{most / first[panel]:.0%}")
            if place:
                ax.axhline(place - 0.5, color=INK, alpha=0.15, linewidth=0.6)
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
    axes[0, 0].set_yticks(range(len(present)), [name(variant) for variant in present])
    how = {"color": INK, "linestyle": "none", "markersize": 5.5, "markeredgewidth": 0}
    handles = {g: Line2D([], [], marker=MARKERS[i], **how) for i, g in enumerate(groups)}
    handles["range"] = Line2D([], [], color=INK, linewidth=2.2, alpha=0.5)
    handles["measured ceiling"] = Line2D([], [], color=BOUND, linewidth=1.4)
    plot.legend(fig, handles, columns=6)
    return fig, data
