"""The timing protocol as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import sketch, style
from artifact.measure import bench

#: Height of a lane, and what it is called; lengths of a flush, of a host's call, and of each contender in turn.
LANES = {"host": (1.15, "host"), "GPU": (2.35, "GPU stream")}
FLUSH, ENQUEUE, LENGTHS = 3.0, 0.42, (2.1, 1.3, 1.7)


def timeline(names: Sequence[str] = ("A", "B"), rounds: int = 2) -> tuple[Any, pd.DataFrame]:
    """Draw a schematic of the timer: what the host enqueues, what the GPU runs, when NVML is asked.

    The order of the launches is the one that `bench.schedule` gives. (fig, data); times have no unit.
    """
    length = dict(zip(names, LENGTHS, strict=False)) | {"flush": FLUSH}
    launches = [what for name in bench.schedule(dict.fromkeys(names, rounds)) for what in ("flush", name)]
    data = pd.DataFrame({"what": ["flush", *launches]})
    spans = {"GPU": data["what"].map(length).cumsum(), "host": ENQUEUE * (data.index + 1.0)}
    data = pd.concat([data.assign(lane=lane, end=end) for lane, end in spans.items()]).sort_index(kind="stable")
    data["begin"] = data.groupby("lane")["end"].shift(fill_value=0.0)
    host, clock = data.groupby("lane")["end"].max()[["host", "GPU"]]

    fig, ax = plt.subplots(figsize=(style.WIDTH, 2.7), layout="none")
    fig.subplots_adjust(0, 0, 1, 1)
    colours = dict(zip(names, (style.PUBLISHED, style.BASELINE, style.BEST), strict=False))
    for block in data.itertuples():
        _block(ax, block, LANES[block.lane][0], colours.get(block.what, style.BOUND))
    for x in np.linspace(host + 0.3, clock, 6):
        ax.plot(x, LANES["host"][0] + 0.35, "o", color=style.CLAIM, markersize=4)
    meanwhile = "meanwhile NVML is asked for clock, power and throttling"
    sketch.put(ax, (host + clock) / 2, 0.72, meanwhile, fontsize=8)
    sketch.put(ax, host / 2, 0.72, "everything is enqueued first", fontsize=8)
    for y, label in LANES.values():
        sketch.put(ax, -0.3, y + 0.35, label, ha="right", weight="bold")
    top = LANES["GPU"][0]
    sketch.put(ax, FLUSH / 2, top + 1.05, "a head start", fontsize=8)
    ax.plot(-3.2, top + 1.32, "v", color=style.INK, markersize=4)
    sketch.put(ax, -2.9, top + 1.32, "CUDA event", ha="left", fontsize=8)
    ax.set(xlim=(-3.4, clock + 1), ylim=(4.25, 0.45))
    ax.axis("off")
    return fig, data[["lane", "what", "begin", "end"]]


def _block(ax: Any, block: Any, y: float, colour: str) -> None:
    """Draw what the host or the GPU does for a while; a launch on the GPU lies between two events."""
    flush, middle, gap = block.what == "flush", (block.begin + block.end) / 2, 0.05
    box = (block.begin + gap, y), block.end - block.begin - 2 * gap, 0.7
    ax.add_patch(Rectangle(*box, facecolor=colour, alpha=0.16 if flush else 0.35, linewidth=0))
    ax.add_patch(Rectangle(*box, fill=False, edgecolor=colour, linewidth=1))
    if block.lane == "host":
        return
    sketch.put(ax, middle, y + 0.35, block.what, weight="normal" if flush else "bold")
    if not flush:
        for x in (block.begin, block.end):
            ax.plot([x, x], [y - 0.14, y + 0.84], color=style.INK, linewidth=1.3)
            ax.plot(x, y - 0.14, "v", color=style.INK, markersize=4)
        ends = (block.begin, y + 1.05), (block.end, y + 1.05)
        ax.annotate("", *ends, arrowprops={"arrowstyle": "<->", "color": colour, "linewidth": 1})
        sketch.put(ax, middle, y + 1.32, f"a sample of {block.what}", fontsize=8)
