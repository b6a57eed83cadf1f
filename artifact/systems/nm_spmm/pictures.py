"""The chapter's pictures, Fig. 1 to 6 of its source, drawn from real arrays, tiles and durations: (figure, data)."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.patches import Patch

from artifact.drawing import plot, sketch
from artifact.drawing.style import BASELINE, BOUND, CLAIM, INK, PUBLISHED, ROWS, RUNGS, WIDTH
from artifact.systems.nm_spmm import model
from kernels.formats import nm
from kernels.nm_spmm import launch as launching
from kernels.nm_spmm.analysis import Tile
from kernels.nm_spmm.packing import Packed

LANES = (*ROWS, RUNGS[5])  #: colours of a warp's rows of lanes, of which Table I has up to eight
#: What a step does: its lane, how it is called, its colour.
BARS = {
    "col_info": ("global → shared", "col_info", RUNGS[5]),
    "load": ("global → shared", "A_s and B_s", BASELINE),
    "index": ("shared → registers", "index", CLAIM),
    "fragments": ("shared → registers", "A_t and B_t", RUNGS[1]),
    "compute": ("FMA", "C_t += A_t · B_t", PUBLISHED),
}
#: What a part of a tile is to its block, and what becomes of its sums.
PARTS = {
    "whole": ("a whole tile", PUBLISHED),
    "gives": ("a tile's first steps: sums to the workspace", RUNGS[4]),
    "adds": ("a tile's last steps: adds the others' sums", RUNGS[1]),
}
SLICES = 4  #: of the inner loop that are drawn
SMALL = {"fontsize": 8}
#: Outlines of what no vector needs.
UNUSED: dict[str, Any] = {"edgecolor": BOUND, "linewidth": 0.5, "alpha": 0.55, "zorder": 0.5}
Drawn = tuple[Any, pd.DataFrame]


def handles(what: Iterable[tuple[str, str]]) -> dict[str, Patch]:
    """Return entries of a legend for (name, colour)."""
    return {name: Patch(facecolor=(*to_rgb(colour), 0.28), edgecolor=colour) for name, colour in what}


# ---------------------------------------------------------------- Fig. 1 and 2: the format, what a block needs of A


def format_picture(b: nm.Nm) -> Drawn:
    """Draw a small vector-wise N:M matrix (k x n) with its windows and vectors.

    With its values (w x n) and its index matrix (w x q), which holds the position of a vector in its window.

    A colour per window; the first vector of the second is framed in all three. The data: a row for each stored value.
    """
    index, val, cell, kept = np.asarray(b.index), np.asarray(b.val), 1.7, b.keep
    row, column = np.indices(val.shape).reshape(2, -1)
    needs = index[row, column // b.vector]
    data = pd.DataFrame(
        {"compressed_row": row, "window": row // kept, "vector": column // b.vector, "column": column}
        | {"position": needs % b.group, "row": needs, "value": val.ravel().astype(float)}
    )
    what, own = (
        (data["value"].map(sketch.short), np.take(ROWS, data["window"])),
        data.drop_duplicates(["row", "vector"]),
    )
    lefts = left, right = b.n + 2.8, 2 * (b.n + 2.8)
    words = {"ha": "left", "va": "top", "fontsize": 8}
    return sketch.picture(
        (-2.6, right + cell * b.q + 0.3),
        (b.k + 1.9, -1.5),
        (sketch.box, data["column"], data["row"], *what),
        (sketch.box, left + data["column"], data["compressed_row"], *what),
        (
            sketch.box,
            right + cell * own["vector"],
            own["compressed_row"],
            own["position"].astype(str),
            np.take(ROWS, own["window"]),
            {"width": cell, "size": 8.5},
        ),
        (sketch.grid, 0, b.k, b.n, b.group, b.vector),
        (sketch.grid, lefts, b.w, [b.n, b.q], kept, [b.vector, 1], [1, cell]),
        (
            sketch.frame,
            [0, *lefts],
            [index[kept, 0], kept, kept],
            [b.vector, b.vector, cell],
            1,
            {"linewidth": 2.6, "zorder": 3},
        ),
        (sketch.put, b.n / 2, -0.8, f"B: {b.k} × {b.n}"),
        (sketch.put, left + b.n / 2, -0.8, f"values: {b.w} × {b.n}"),
        (sketch.put, right + cell * b.q / 2, -0.8, f"index: {b.w} × {b.q}"),
        (
            sketch.segment,
            [-1.35, 0.1],
            [0.1, b.k + 0.4],
            [-1.35, b.vector - 0.1],
            [b.group - 0.1, b.k + 0.4],
            {"linewidth": 1.4},
        ),
        (sketch.put, -1.75, b.group / 2, f"window: {kept} of {b.group} rows", {"rotation": 90, "fontsize": 8}),
        (sketch.put, 0, b.k + 0.8, f"a vector: {b.vector} columns, kept or pruned as one", words),
        (sketch.put, lefts, b.w + 0.4, ["framed: one vector in all three", "position in\nthe window"], words),
    ), data


def working_set(cases: Mapping[str, nm.Nm], vectors: int = 4, depth: int = 64) -> Drawn:
    """Draw the rows of A_s that the vectors of the first block need in its first step, for each case: title -> matrix.

    Each line is a vector of B_s, each column a row of A_s, hatched below where no vector needs it. depth: rows of A_s.
    """
    data, marks, tall = [], [], len(cases) * (vectors + 5.4)
    names = [f"vector {v} of B_s" for v in range(vectors)]
    for number, (title, b) in enumerate(cases.items()):
        need, top = model.asked(b)[:depth, :vectors], number * (vectors + 5.4)
        used, y, (row, vector) = need.any(axis=1), top + 1.5 + vectors, np.nonzero(need)
        edges, lines = np.arange(0, depth + 1, b.group), [y + 1, *(top + 1.7 + np.arange(vectors))]
        marks += [
            (sketch.put, 0, top + 0.5, f"{title}, {b.keep}:{b.group}", {"ha": "left", "weight": "bold"}),
            (
                sketch.put,
                depth,
                top + 0.5,
                f"{used.sum()} of {depth} rows of A_s are needed: {100 * used.mean():.0f} %",
                {"ha": "right"},
            ),
            (sketch.box, row, top + 1.2 + vector, "", RUNGS[3]),
            (sketch.box, np.flatnonzero(used), y, "", PUBLISHED, {"height": 2}),
            (sketch.frame, np.flatnonzero(~used), y, 1, 2, UNUSED | {"hatch": "////"}),
            (sketch.segment, edges, top + 1.2, edges, y + 2, sketch.THICK),
            (sketch.put, -0.6, lines, ["rows of A_s", *names], {"ha": "right", "fontsize": 8}),
            (sketch.put, [0, depth], y + 2.6, ["row 0", f"row {depth - 1}"], sketch.FAINT | {"ha": ["left", "right"]}),
        ]
        data.append(pd.DataFrame({"case": title, "row": range(depth), "vectors": need.sum(axis=1)}))
    return sketch.picture((-10.5, depth + 0.3), (tall - 0.6, -0.2), *marks, height=0.2 + 0.19 * tall), pd.concat(
        data, ignore_index=True
    )


# ---------------------------------------------------------------- Fig. 3: blocks, warps and threads


def blocking(tile: Tile, title: str = "") -> Drawn:
    """Draw C in blocks, a block in warp tiles, a warp tile in thread tiles, lane by lane along a row, a thread tile.

    Lanes that begin in the same row, and so read the same values of A_t, have a colour. The data: each lane's tile.
    """
    block, warp, thread = (tile.rows, tile.columns), tile.warp, tile.thread
    sizes = np.array(((4 * block[0], 4 * block[1]), block, warp, thread))
    scales = np.minimum((8, 8, 16, 7) / sizes.max(axis=1), 16)
    tall, broad = (sizes * scales[:, None]).T
    high, wide = tall.max(), np.maximum(broad, 7) + 3.4
    middles = np.cumsum(wide) - wide / 2 - 1.7
    xs, ys, cuts = middles - broad / 2, (high - tall) / 2, np.array((block, warp, thread, (1, 1)))

    def place(i: int, row: Any, column: Any) -> tuple[Any, ...]:
        """Return x, y, width and height of a piece of a panel."""
        height, width = scales[i] * cuts[i]
        return xs[i] + column * width, ys[i] + row * height, width, height

    names, colours = ("", "warp\n{}", "{}", ""), ([BOUND], [BOUND], LANES, LANES[:1])
    marks, chosen, dashed = [], [], partial(sketch.segment, linestyle=(0, (3, 2)))
    for i, (size, cut) in enumerate(zip(sizes, cuts, strict=True)):
        row, column = np.indices(size // cut).reshape(2, -1)
        x, y, *sides = place(i, row, column)
        marks.append(
            (sketch.box, x, y, [*map(names[i].format, range(len(row)))], np.take(colours[i], row, mode="wrap"), *sides)
        )
        chosen.append(place(i, int(not i), column.max()))
    for i, (x, y, width, height) in enumerate(chosen[:3], 1):
        ends = [y, y + height], xs[i] - 1.2 * (i == 3), [ys[i], ys[i] + tall[i]]
        marks += [
            (sketch.box, x, y, "", PUBLISHED, width, height),
            (dashed, x + width, *ends, {"color": PUBLISHED, "linewidth": 0.8}),
        ]
    for i, (x, y, width, height), which in ((0, chosen[0], "s"), (3, (xs[3], ys[3], broad[3], tall[3]), "t")):
        marks += [
            (sketch.box, xs[i] - 1.1, y, "", RUNGS[3], 0.8, height),
            (sketch.box, x, ys[i] - 1.1, "", RUNGS[3], width, 0.8),
            (sketch.put, xs[i] - 0.7, y + height + 0.7, f"A_{which}", SMALL),
            (sketch.put, x - 0.9, ys[i] - 0.7, f"B_{which}", SMALL),
        ]
    captions = (
        f"C in blocks of\nm_s × n_s = {block[0]} × {block[1]}",
        f"a block in warp tiles of\nm_r × n_r = {warp[0]} × {warp[1]}",
        f"a warp tile by lane,\nm_t × n_t = {thread[0]} × {thread[1]} each",
        f"a thread: {thread[0] * thread[1]} FMA\nfor {sum(thread)} values read",
    )
    marks += [
        (sketch.put, middles, high + 0.8, captions, {"va": "top"}),
        (sketch.put, -1.7, -1.0, title, {"ha": "left", "weight": "bold"}),
    ]
    row, column = np.indices((warp[0] // thread[0], warp[1] // thread[1])).reshape(2, -1)
    return sketch.picture((-1.9, wide.sum() - 1.8), (high + 3.8, -1.8), *marks), pd.DataFrame(
        {"lane": range(len(row)), "row": row * thread[0], "column": column * thread[1]}
        | {"height": thread[0], "width": thread[1]}
    )


# ---------------------------------------------------------------- Fig. 4: what is done to B beforehand


def packing_picture(b: nm.Nm, packed: Packed) -> Drawn:
    """Draw the preprocessing of the first block and step, from its arrays.

    The index of B, the rows of A_s that its vectors need, `col_info`, the reordered index, and how the values lie in
    memory.

    packed: of `b`, tiled, on the host, a slot for each vector. A colour per vector. The data: each entry of the index.
    """
    index, stored = np.asarray(b.index), np.asarray(packed.index)[0, 0]
    vectors, depth, rows = packed.columns // packed.slot, packed.depth, packed.rows
    staged = np.asarray(packed.col_info)[0, 0, : int(np.asarray(packed.count)[0, 0])]
    vector, row = np.indices((vectors, rows)).reshape(2, -1)
    data = pd.DataFrame(
        {"slot": vector, "vector": vector, "compressed_row": row, "row": index[row, vector]}
        | {"position": index[row, vector] % b.group, "stored": stored[vector, row]}
    )
    high, cell, need = max(depth, 11), 1.7, model.asked(b)[:depth, :vectors]
    top, low, wide, block = (high - depth) / 2, (high - rows) / 2, cell * vectors, 3.4
    x_rows, x_list = wide + 3.6, wide + 6.8 + 1.1 * vectors
    x_again, x_layout = x_list + 5.8, x_list + 9.4 + wide
    every, slots, marks = np.arange(depth), np.arange(len(staged)), []
    for x, column in ((0.0, "position"), (x_again, "stored")):
        what, windows = (data[column].astype(str), np.take(ROWS, vector)), low + np.arange(0, rows + 1, b.keep)
        marks += [
            (sketch.box, x + cell * vector, low + row, *what, {"width": cell, "size": 8.5}),
            (sketch.segment, x, windows, x + wide, windows, sketch.THICK),
            (sketch.put, x + wide / 2, low + rows + 0.7, f"vectors {', '.join(map(str, range(vectors)))}", SMALL),
        ]
    (asked, of), groups = np.nonzero(need), top + np.arange(0, depth + 1, b.group)
    y, alone = (high - len(staged)) / 2 + slots, need[staged].sum(axis=1) == 1
    colours = np.where(alone, np.take(ROWS, need[staged].argmax(axis=1)), BOUND)
    marks += [
        (sketch.put, x_rows - 0.3, top + every + 0.5, every, SMALL | {"ha": "right", "alpha": 0.8}),
        (
            sketch.frame,
            x_rows,
            top + every,
            1.1 * vectors,
            1,
            UNUSED | {"hatch": np.where(need.any(axis=1), "", "////")},
        ),
        (sketch.box, x_rows + 1.1 * of, top + asked, "", np.take(ROWS, of), {"width": 1.1}),
        (sketch.segment, x_rows, groups, x_rows + 1.1 * vectors, groups, sketch.THICK),
        (sketch.box, x_list, y, staged.astype(str), colours, {"width": 2.2, "size": 8.5}),
        (sketch.put, x_list + 2.5, y + 0.5, slots, SMALL | {"ha": "left", "alpha": 0.8}),
        (sketch.pointer, x_list - 3.1, top + staged + 0.5, x_list - 0.1, y + 0.5, colours),
    ]
    shown, size = (min(packed.steps, 3), min(packed.blocks, 3)), rows * packed.columns
    layouts = (
        ("values, row by row:", f"{rows} pieces a step", packed.columns, size * packed.blocks),
        ("values, tiled:", "one piece a step", packed.steps * size, size),
    )
    step, across = np.indices(shown).reshape(2, -1)
    middle = x_layout + block * shown[1] / 2
    for i, (title, pieces, of_block, of_step) in enumerate(layouts):
        head, starts = high / 2 + (i - 1) * (shown[0] * 1.5 + 3.0), across * of_block + step * of_step
        what = [f"+{at}" for at in starts], np.where(step + across, BOUND, PUBLISHED)
        marks += [
            (sketch.put, middle, head + 0.2, title),
            (sketch.put, middle, head + 1.15, pieces, SMALL),
            (sketch.box, x_layout + block * across, head + 1.8 + 1.5 * step, *what, {"width": block, "height": 1.5}),
        ]
    titles = {
        "index of B:\nin the window": wide / 2,
        "rows of A_s,\nby vector": x_rows + 0.55 * vectors,
        f"col_info:\n{len(staged)} of {depth} rows": x_list + 1.1,
        "index, reordered:\nin col_info": x_again + wide / 2,
        "where each block and\nstep begins (floats)": middle,
    }
    return sketch.picture(
        (-0.5, x_layout + 3 * block + 0.8),
        (high + 0.6, -2.6),
        *marks,
        (sketch.put, [*titles.values()], -1.3, [*titles]),
        height=0.235 * (high + 4.2),
    ), data


# ---------------------------------------------------------------- Fig. 5 and 6: a block's steps; stream-K's shares


def schedule(durations: Mapping[str, float], steps: int, overlap: bool) -> pd.DataFrame:
    """Return a block's steps as bars: step, lane, what, start, end, in the unit of `durations`.

    durations: of one step: "load" (A_s and B_s into shared memory), "index" (into registers), "fragments" (A_t and B_t
    into registers), "compute"; with "col_info" its load, without which A_s cannot be packed. Without `overlap` one
    waits for the other (Listing 3); with it (Listing 4) the next step is loaded while this one is computed, behind it
    the col_info of the step after, the index is read after the wait, and A_t and B_t one slice ahead.
    """
    bars: list[tuple] = []

    def bar(step: int, what: str, start: float, share: float = 1.0) -> float:
        """Add a bar of a step that there is and that takes time; return its end."""
        end = start + share * durations.get(what, 0) * (step < steps)
        bars.append((step, BARS[what][0], what, start, end))
        return end

    def compute(step: int, start: float) -> float:
        ready = bar(step, "fragments", start, 1 / SLICES)
        for slice_ in range(SLICES):
            done = bar(step, "compute", ready, 1 / SLICES)
            if slice_ < SLICES - 1:
                ready = max(done, bar(step, "fragments", ready if overlap else done, 1 / SLICES))
        return done

    time = loaded = bar(0, "load", bar(0, "col_info", 0.0))
    free = bar(1, "col_info", loaded) if overlap else loaded
    for step in range(steps):
        time = bar(step, "index", time)
        if overlap:
            loaded = bar(step + 1, "load", max(time, free))
            free = bar(step + 2, "col_info", loaded)
            time = max(compute(step, time), loaded)
        else:
            time = compute(step, time)
            time = bar(step + 1, "load", bar(step + 1, "col_info", time))
    return pd.DataFrame(bars, columns=["step", "lane", "what", "start", "end"]).query("end > start")


def period_of(bars: pd.DataFrame) -> float:
    """Return the time of a step: from the start of the last one's multiplications but one to that of the last."""
    return float(bars[bars["what"] == "compute"].groupby("step")["start"].min().diff().iloc[-1])


def pipeline(durations: Mapping[str, float], title: str, steps: int = 5) -> Drawn:
    """Draw a block's steps one after the other and as the double-buffered pipeline. durations: ns, see `schedule`.

    With "col_info" it is the pipeline of high sparsity (Fig. 6), without that of moderate (Fig. 5). Steps alternate
    between two buffers; those of the second are hatched, and a number names the step.
    """
    frames = {
        "one after the other": schedule(durations, steps, overlap=False),
        "double-buffered": schedule(durations, steps, overlap=True),
    }
    data = pd.concat(frames, names=["schedule"]).reset_index("schedule").reset_index(drop=True)
    lanes, end = list(dict.fromkeys(lane for lane, *_ in BARS.values())), data["end"].max()
    fig, ax = plt.subplots(figsize=(WIDTH, 1.5 + 0.3 * (2 * len(lanes) + 2)))
    tops = {name: i * (len(lanes) + 1.3) for i, name in enumerate(frames)}
    width, colours = data["end"] - data["start"], data["what"].map(lambda what: BARS[what][2])
    sketch.draw(
        ax,
        (
            sketch.put,
            0,
            np.array([*tops.values()]) + 0.35,
            [f"{name}: {period_of(bars):.3g} ns a step" for name, bars in frames.items()],
            {"ha": "left", "weight": "bold"},
        ),
        (
            sketch.box,
            data["start"],
            data["schedule"].map(tops) + 0.95 + data["lane"].map(lanes.index),
            data["step"].astype(str).where(width > 0.022 * end, ""),
            colours,
            width,
            0.8,
            {"hatch": np.where(data["step"] % 2, "////", "")},
        ),
    )
    ticks = [(y + 1.35 + place, lane) for y in tops.values() for place, lane in enumerate(lanes)]
    ax.set_yticks(*zip(*ticks, strict=True))
    ax.set(xlim=(0, 1.005 * end), ylim=(ticks[-1][0] + 0.5, -0.15), xlabel="time (ns)", title=title)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    ax.spines["left"].set_visible(False)
    plot.legend(
        fig, handles((name, colour) for what, (_, name, colour) in BARS.items() if what in durations), columns=5
    )
    return fig, data


def shares(tiles: tuple[int, int], steps: int, blocks: int, shown: int = 12) -> Drawn:
    """Draw the steps of `shown` of `blocks` blocks, wave by wave and as stream-K deals them out.

    The blocks are evenly picked (`kernels.nm_spmm.launch.parts`).

    tiles: of C along m and n; steps: of a tile along k. A tile that is cut has the same number in all its parts. The
    data is of all blocks, in steps.
    """
    rows = [
        ("waves", tile % blocks, tile, "whole", tile // blocks * steps, (tile // blocks + 1) * steps)
        for tile in range(tiles[0] * tiles[1])
    ]
    rows += [
        ("stream-K", block, int((name & 0xFFFF) + (name >> 16) * tiles[0]), what, int(start), int(end))
        for block, parts in enumerate(launching.parts(*tiles, steps, blocks))
        for (name, _, start, others), (_, _, end, _) in zip(parts, parts[1:], strict=False)
        for what in ["gives" if others < 0 else "adds" if others else "whole"]
    ]
    data = pd.DataFrame(rows, columns=["schedule", "block", "tile", "what", "start", "end"]).query("end > start")
    end, drawn = data["end"].max(), np.unique(np.linspace(0, blocks - 1, shown).round().astype(int)).tolist()
    fig, axes = plt.subplots(1, 2, figsize=(WIDTH, 1.3 + 0.22 * len(drawn)), sharex=True, sharey=True)
    for ax, (title, df) in zip(axes, data.groupby("schedule", sort=False), strict=True):
        bars = df[df["block"].isin(drawn)]
        low, width = bars["block"].map(drawn.index) + 0.1, bars["end"] - bars["start"]
        what = bars["tile"].astype(str).where(width > 0.05 * end, ""), bars["what"].map(lambda part: PARTS[part][1])
        sketch.draw(ax, (sketch.box, bars["start"], low, *what, width, 0.8))
        last, used = df["end"].max(), df.groupby("block")["end"].max().mean()
        ax.axvline(last, color=INK, linewidth=1.1, linestyle="--")
        ax.set(xlabel="steps", title=f"{title}: {last} steps, {used / last:.0%} of them used")
        ax.grid(visible=False)
    axes[0].set(xlim=(0, 1.01 * end), ylim=(len(drawn) + 0.1, -0.1), ylabel="block")
    axes[0].set_yticks(np.arange(len(drawn)) + 0.5, drawn)
    plot.legend(fig, handles(PARTS.values()), columns=3)
    return fig, data
