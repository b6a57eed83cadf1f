"""Fig. 5 and 6: a block's steps, one after the other and double-buffered; and stream-K's shares."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch, Rectangle

from artifact.drawing import plot, sketch
from artifact.drawing.style import BASELINE, CLAIM, INK, PUBLISHED, RUNGS, WIDTH
from kernels.nm_spmm import schedule as stream_k

#: What a step does: its lane, how it is called, its colour.
BARS = {
    "col_info": ("global → shared", "col_info", RUNGS[5]),
    "load": ("global → shared", "A_s and B_s", BASELINE),
    "index": ("shared → registers", "index", CLAIM),
    "fragments": ("shared → registers", "A_t and B_t", RUNGS[1]),
    "compute": ("FMA", "C_t += A_t · B_t", PUBLISHED),
}
SLICES = 4  # of the inner loop that are drawn


def schedule(durations: Mapping[str, float], steps: int, overlap: bool) -> pd.DataFrame:
    """A block's steps as bars: step, lane, what, start, end, in the unit of `durations`.

    durations: of one step: "load" (A_s and B_s into shared memory) and "compute"; where they are not
    0 also "col_info" (its load, without which A_s cannot be packed), "index" (into registers) and
    "fragments" (A_t and B_t into registers). Without `overlap` one waits for the other (Listing 3);
    with it (Listing 4) the next step is loaded while this one is computed, behind it the col_info of
    the step after, the index is read after the wait, and A_t and B_t one slice ahead. Raises
    ValueError for a duration that is unknown, negative or missing, or for no step.
    """
    unknown = [key for key in durations if key not in BARS]
    if unknown or any(not value >= 0 for value in durations.values()) or steps < 1:
        raise ValueError(
            f"A schedule takes durations from 0 of {', '.join(BARS)} and steps from 1, not "
            f"{dict(durations)} and {steps}."
        )
    if not (durations.get("load") and durations.get("compute")):
        raise ValueError("A schedule needs the durations 'load' and 'compute', both over 0.")
    bars = []

    def bar(step: int, what: str, start: float, share: float = 1.0) -> float:
        end = start + share * durations.get(what, 0)
        if end > start:
            bars.append((step, BARS[what][0], what, start, end))
        return end

    def compute(step: int, start: float) -> float:
        if not durations.get("fragments"):
            return bar(step, "compute", start)
        share = 1 / SLICES
        ready = bar(step, "fragments", start, share)
        for slice_ in range(SLICES):
            done = bar(step, "compute", ready, share)
            if slice_ < SLICES - 1:
                ahead = bar(step, "fragments", ready if overlap else done, share)
                ready = max(done, ahead)
        return done

    if not overlap:
        time = 0.0
        for step in range(steps):
            time = bar(step, "load", bar(step, "col_info", time))
            time = compute(step, bar(step, "index", time))
    else:
        loaded = bar(0, "load", bar(0, "col_info", 0.0))
        free = bar(1, "col_info", loaded) if steps > 1 else loaded
        time = bar(0, "index", loaded)
        for step in range(steps):
            ready = time
            if step + 1 < steps:
                ready = free = bar(step + 1, "load", max(time, free))
            if step + 2 < steps:
                free = bar(step + 2, "col_info", free)
            time = max(compute(step, time), ready)
            if step + 1 < steps:
                time = bar(step + 1, "index", time)
    return pd.DataFrame(bars, columns=["step", "lane", "what", "start", "end"])


def period_of(bars: pd.DataFrame) -> float:
    """Time of a step in the middle: from the start of its multiplications to that of the next."""
    starts = bars[bars["what"] == "compute"].groupby("step")["start"].min()
    return float(starts.iloc[-1] - starts.iloc[-2]) if len(starts) > 1 else float(bars["end"].max())


def pipeline(durations: Mapping[str, float], unit: str, title: str = "", steps: int = 5):
    """Fig. 5 and 6: a block's steps one after the other and as the double-buffered pipeline, drawn from
    the durations that are given, as `schedule` has them.

    unit: of the durations, such as "ns". With "col_info" it is the pipeline of high sparsity (Fig. 6),
    without that of moderate (Fig. 5). Steps alternate between two buffers; those of the second are
    hatched, and a number names the step. The data behind it: schedule, and the columns of `schedule`.
    """
    both = {"one after the other": False, "double-buffered": True}
    bars = {what: schedule(durations, steps, overlap) for what, overlap in both.items()}
    lanes = list(dict.fromkeys(lane for lane, *_ in BARS.values()))
    used = set(bars["double-buffered"]["lane"])
    lanes = [lane for lane in lanes if lane in used]
    end = max(float(df["end"].max()) for df in bars.values())
    fig, ax = plt.subplots(figsize=(WIDTH, 1.5 + 0.3 * (2 * len(lanes) + 2)))
    handles: dict[str, object] = {}
    ticks, y = [], 0.0
    for what, df in bars.items():
        text = f"{what}: {period_of(df):.3g} {unit} a step"
        sketch.put(ax, 0, y + 0.35, text, ha="left", weight="bold")
        for place, lane in enumerate(lanes):
            ticks.append((y + 1.35 + place, lane))
        for row in df.itertuples():
            lane, label, colour = BARS[row.what]
            low, width = y + 0.95 + lanes.index(lane), row.end - row.start
            sketch.box(ax, row.start, low, "", colour, width=width, height=0.8)
            if row.step % 2:
                hatch = {"fill": False, "hatch": "////", "edgecolor": colour, "linewidth": 0}
                ax.add_patch(Rectangle((row.start, low), width, 0.8, alpha=0.5, **hatch))
            if width > 0.022 * end:
                sketch.put(ax, row.start + width / 2, low + 0.4, f"{row.step}", fontsize=8)
            how = {"facecolor": (*to_rgb(colour), 0.28), "edgecolor": colour}
            handles.setdefault(label, Patch(**how))
        y += len(lanes) + 1.3
    ax.set_yticks([at for at, _ in ticks], [lane for _, lane in ticks])
    ax.set(xlim=(0, 1.005 * end), ylim=(y - 0.1, -0.15), xlabel=f"time ({unit})", title=title)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    order = [label for _, label, _ in BARS.values() if label in handles]
    plot.legend(fig, {label: handles[label] for label in order}, columns=5)
    frames = [df.assign(schedule=what) for what, df in bars.items()]
    columns = ["schedule", "step", "lane", "what", "start", "end"]
    return fig, pd.concat(frames, ignore_index=True)[columns]


#: What a part of a tile is to its block, and what becomes of its sums.
PARTS = {
    "whole": ("a whole tile", PUBLISHED),
    "gives": ("a tile's first steps: sums to the workspace", RUNGS[4]),
    "adds": ("a tile's last steps: adds the others' sums", RUNGS[1]),
}


def shares(tiles: tuple[int, int], steps: int, blocks: int, shown: int = 12):
    """The steps of `shown` of `blocks` blocks, evenly picked, one wave of tiles after the other and as
    stream-K deals them out (`kernels.nm_spmm.schedule`).

    tiles: of C along m and n; steps: of a tile along k. A tile that is cut has the same number in all
    its parts. The data behind it, of all blocks: schedule, block, tile, what (a key of PARTS), start,
    end, in steps. Raises ValueError where there is no tile, step or block to draw.
    """
    if min(*tiles, steps, blocks, shown) < 1:
        raise ValueError(f"Shares are drawn from 1 tile, step and block on, not {tiles}, {steps}, {blocks}, {shown}.")
    count = tiles[0] * tiles[1]
    rows = [
        (
            "waves",
            tile % blocks,
            tile,
            "whole",
            tile // blocks * steps,
            (tile // blocks + 1) * steps,
        )
        for tile in range(count)
    ]
    for block, parts in enumerate(stream_k.parts(*tiles, steps, blocks)):
        for (name, _, start, others), after in zip(parts, parts[1:], strict=False):
            if after[2] > start:
                what = "gives" if others < 0 else "adds" if others else "whole"
                tile = (name & 0xFFFF) + (name >> 16) * tiles[0]
                rows.append(("stream-K", block, int(tile), what, int(start), int(after[2])))
    data = pd.DataFrame(rows, columns=["schedule", "block", "tile", "what", "start", "end"])
    end = data["end"].max()
    drawn = np.unique(np.linspace(0, data["block"].max(), shown).round().astype(int)).tolist()
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 1.3 + 0.22 * len(drawn)), sharex=True, sharey=True)
    for ax, (title, df) in zip(axes, data.groupby("schedule", sort=False), strict=True):
        for row in df[df["block"].isin(drawn)].itertuples():
            low = drawn.index(row.block)
            sketch.box(
                ax,
                row.start,
                low + 0.1,
                "",
                PARTS[row.what][1],
                width=row.end - row.start,
                height=0.8,
            )
            if row.end - row.start > 0.05 * end:
                sketch.put(ax, (row.start + row.end) / 2, low + 0.5, f"{row.tile}", fontsize=8)
        last = df["end"].max()
        ax.axvline(last, color=INK, linewidth=1.1, linestyle="--")
        ax.set(
            xlabel="steps",
            title=f"{title}: {last} steps, {df.groupby('block')['end'].max().mean() / last:.0%} of them used",
        )
        ax.grid(visible=False)
    axes[0].set(xlim=(0, 1.01 * end), ylim=(len(drawn) + 0.1, -0.1), ylabel="block")
    axes[0].set_yticks(np.arange(len(drawn)) + 0.5, drawn)
    handles = {label: Patch(facecolor=(*to_rgb(colour), 0.28), edgecolor=colour) for label, colour in PARTS.values()}
    plot.legend(fig, handles, columns=3)
    return fig, data
