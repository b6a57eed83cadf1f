"""The timing protocol as a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import sketch, style
from artifact.measure import bench


def timeline(names: Sequence[str] = ("A", "B"), rounds: int = 2):
    """A schematic of the timer: what the host enqueues, what the GPU runs, when NVML is asked.

    The order of the launches is the one that `bench.schedule` gives. (fig, data); times have no unit.
    """
    order = bench.schedule(dict.fromkeys(names, rounds))
    colours = dict(zip(names, (style.PUBLISHED, style.BASELINE, style.BEST), strict=False))
    length = dict(zip(names, (2.1, 1.3, 1.7), strict=False))
    flush, enqueue = 3.0, 0.42
    blocks, clock, host = [], 0.0, 0.0
    blocks.append(("GPU", "flush", clock, clock + flush))
    blocks.append(("host", "flush", host, host + enqueue))
    clock, host = clock + flush, host + enqueue
    for name in order:
        for what, time in (("flush", flush), (name, length[name])):
            blocks.append(("GPU", what, clock, clock + time))
            blocks.append(("host", what, host, host + enqueue))
            clock, host = clock + time, host + enqueue
    data = pd.DataFrame(blocks, columns=["lane", "what", "begin", "end"])

    fig, ax = plt.subplots(figsize=(style.WIDTH, 2.7), layout="none")
    fig.subplots_adjust(0, 0, 1, 1)
    lanes = {"host": 1.15, "GPU": 2.35}
    for block in data.itertuples():
        y = lanes[block.lane]
        colour = colours.get(block.what, style.BOUND)
        gap = 0.05
        box = (block.begin + gap, y), block.end - block.begin - 2 * gap, 0.7
        alpha = 0.16 if block.what == "flush" else 0.35
        ax.add_patch(Rectangle(*box, facecolor=colour, alpha=alpha, linewidth=0))
        ax.add_patch(Rectangle(*box, fill=False, edgecolor=colour, linewidth=1))
        if block.lane == "GPU":
            weight = "normal" if block.what == "flush" else "bold"
            sketch.put(ax, (block.begin + block.end) / 2, y + 0.35, block.what, weight=weight)
            if block.what != "flush":
                for x in (block.begin, block.end):
                    ax.plot([x, x], [y - 0.14, y + 0.84], color=style.INK, linewidth=1.3)
                    ax.plot(x, y - 0.14, "v", color=style.INK, markersize=4)
                ax.annotate(
                    "",
                    (block.begin, y + 1.05),
                    (block.end, y + 1.05),
                    arrowprops={"arrowstyle": "<->", "color": colour, "linewidth": 1},
                )
                sketch.put(
                    ax,
                    (block.begin + block.end) / 2,
                    y + 1.32,
                    f"a sample of {block.what}",
                    fontsize=8,
                )
    for x in np.linspace(host + 0.3, clock, 6):
        ax.plot(x, lanes["host"] + 0.35, "o", color=style.CLAIM, markersize=4)
    sketch.put(
        ax,
        (host + clock) / 2,
        0.72,
        "meanwhile NVML is asked for clock, power and throttling",
        fontsize=8,
    )
    sketch.put(ax, host / 2, 0.72, "everything is enqueued first", fontsize=8)
    for lane, label in (("host", "host"), ("GPU", "GPU stream")):
        sketch.put(ax, -0.3, lanes[lane] + 0.35, label, ha="right", weight="bold")
    sketch.put(ax, flush / 2, lanes["GPU"] + 1.05, "a head start", fontsize=8)
    ax.plot(-3.2, lanes["GPU"] + 1.32, "v", color=style.INK, markersize=4)
    sketch.put(ax, -2.9, lanes["GPU"] + 1.32, "CUDA event", ha="left", fontsize=8)
    ax.set(xlim=(-3.4, clock + 1), ylim=(4.25, 0.45))
    ax.axis("off")
    return fig, data
