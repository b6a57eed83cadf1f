"""The pictures of the room `nm_spmm`: Fig. 1 to 6 of its source, drawn from real arrays, tiles and
durations.

Every function returns `(fig, data)`, as in `artifact.drawing.style`, whose palette and style they share.
Charts of the room's records are in `artifact.rooms.nm_spmm.figures`.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullLocator

from artifact.drawing import plot, sketch
from artifact.drawing.style import (
    BASELINE,
    BOUND,
    CLAIM,
    INK,
    MARKER,
    PUBLISHED,
    ROWS,
    RUNGS,
    WIDTH,
)
from kernels.formats import nm
from kernels.nm_spmm import schedule as stream_k
from kernels.nm_spmm.analysis import Tile
from kernels.nm_spmm.packing import Packed

LANES = (*ROWS, RUNGS[5])  # colours of a warp's rows of lanes, of which Table I has up to eight
MARKS = "osD^vPp"  # of what is no contender: sparsities, sizes, windows


# ---------------------------------------------------------------- pictures of the format (Fig. 1, 2)


def format_picture(b: nm.Nm):
    """Fig. 1: a small vector-wise N:M matrix (k x n) with its windows and vectors, its values (w x n)
    and its index matrix (w x q), which holds the position of a vector in its window.

    A colour per window; one vector is framed and followed through the three. The data behind it: one
    row per stored value: compressed_row, window, vector, column, position, row, value. Raises
    ValueError over 16 rows or columns, where the picture could no longer be read.
    """
    if not (1 <= b.k <= 16 and 1 <= b.n <= 16):
        raise ValueError(f"A matrix of {b.k} x {b.n} is too large to draw, 16 x 16 is the limit.")
    val, index = np.asarray(b.val), np.asarray(b.index)
    gap, wide = 2.8, 1.7
    left, right = b.n + gap, 2 * (b.n + gap)
    width = right + b.q * wide
    small = 8 if b.n <= 8 else 7
    followed = min(b.keep, b.w - 1), 0  # the first of the second window, if there is one
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * (b.k + 5.0) / (width + 4.6)))
    rows, frames = [], []
    for r, vector in np.ndindex(b.w, b.q):
        window, row = r // b.keep, int(index[r, vector])
        colour, position = ROWS[window % len(ROWS)], row - window * b.group
        columns = range(vector * b.vector, min((vector + 1) * b.vector, b.n))
        surplus = row in index[window * b.keep : r, vector]  # a short window repeats its last row
        for column in columns:
            text = sketch.short(float(val[r, column]))
            if not surplus:
                sketch.box(ax, column, row, text, colour, size=small)
            sketch.box(ax, left + column, r, text, colour, size=small)
            rows.append(
                {
                    "compressed_row": r,
                    "window": window,
                    "vector": vector,
                    "column": column,
                    "position": position,
                    "row": row,
                    "value": float(val[r, column]),
                }
            )
        sketch.box(ax, right + wide * vector, r, f"{position}", colour, width=wide, size=8.5)
        if (r, vector) == followed:
            lanes = len(columns)
            frames = [(columns[0], row, lanes), (left + columns[0], r, lanes)]
            frames.append((right + wide * vector, r, wide))
    for x, rows_of, columns_of, step, cell, every in (
        (0, b.k, b.n, b.group, 1, b.vector),
        (left, b.w, b.n, b.keep, 1, b.vector),
        (right, b.w, b.q, b.keep, wide, 1),
    ):
        for edge in range(rows_of + 1):
            ends = (x, x + cell * columns_of)
            sketch.rule(ax, ends, (edge, edge), edge % step == 0 or edge == rows_of)
            if edge < rows_of:
                sketch.put(ax, x - 0.25, edge + 0.5, f"{edge}", ha="right", fontsize=7, alpha=0.7)
        for edge in range(columns_of + 1):
            thick = edge % every == 0 or edge == columns_of
            sketch.rule(ax, (x + cell * edge,) * 2, (0, rows_of), thick)
    for x, y, lanes in frames:
        frame = Rectangle((x, y), lanes, 1, fill=False, edgecolor=INK, linewidth=2.6, zorder=3)
        ax.add_patch(frame)
    for x, columns_of, title in (
        (0, b.n, f"B: {b.k} × {b.n}"),
        (left, b.n, f"values: {b.w} × {b.n}"),
        (right, wide * b.q, f"index: {b.w} × {b.q}"),
    ):
        sketch.put(ax, x + columns_of / 2, -0.8, title)
    ax.plot([-1.35, -1.35], [0.1, min(b.group, b.k) - 0.1], color=INK, linewidth=1.4)
    middle = min(b.group, b.k) / 2
    sketch.put(ax, -1.75, middle, f"window: {b.keep} of {b.group} rows", rotation=90, fontsize=8)
    ends = [0.1, min(b.vector, b.n) - 0.1]
    ax.plot(ends, [b.k + 0.4] * 2, color=INK, linewidth=1.4)
    text = f"a vector: {b.vector} columns, kept or pruned as one"
    sketch.put(ax, 0, b.k + 1.2, text, ha="left", fontsize=8)
    sketch.put(
        ax, left, b.w + 0.75, "framed: one vector in all three", ha="left", va="top", fontsize=8
    )
    sketch.put(ax, right, b.w + 0.75, "position in\nthe window", ha="left", va="top", fontsize=8)
    ax.set(xlim=(-2.6, width + 0.3), ylim=(b.k + 1.9, -1.5))
    ax.set_aspect("equal")
    ax.axis("off")
    return fig, pd.DataFrame(rows)


def _needed(b: nm.Nm, columns: int, depth: int, block: int, step: int) -> np.ndarray:
    """bool (vectors, rows): which of the `depth` rows of A_s from row step·depth on each vector of a
    block of `columns` columns needs. ValueError where there is no such block or step."""
    first, last = step * depth, min((step + 1) * depth, b.k)
    if depth < 1 or depth % b.group or not 0 <= first < b.k or block < 0:
        raise ValueError(
            f"There is no step {step} of {depth} rows, a multiple of {b.group}, in {b.k} rows."
        )
    vectors = np.arange(block * columns, min((block + 1) * columns, b.n)) // b.vector
    vectors = sorted(set(vectors.tolist()))
    if not vectors:
        raise ValueError(f"There is no block {block} of {columns} columns in {b.n} columns.")
    windows = slice(first // b.group * b.keep, -(-last // b.group) * b.keep)
    index = np.asarray(b.index)[windows][:, vectors] - first
    needed = np.zeros((len(vectors), last - first), bool)
    needed[np.arange(len(vectors)), index] = True
    return needed


def working_set(
    cases: Mapping[str, nm.Nm], columns: int = 128, depth: int = 64, block: int = 0, step: int = 0
):
    """Fig. 2: the rows of A_s that the vectors of a block need in a step, for each case.

    cases: title -> matrix, such as one of moderate and one of high sparsity; columns: of a block;
    depth: rows of A_s (k_s), up to 96. Each line is a vector of B_s, each column a row of A_s, which
    below is hatched where no vector needs it. The data behind it: case, row, vectors that need it.
    Raises ValueError for a block or step that a matrix does not have.
    """
    if not 1 <= depth <= 96:
        raise ValueError(f"A step of {depth} rows cannot be drawn: take 1 to 96.")
    needs = {title: _needed(b, columns, depth, block, step) for title, b in cases.items()}
    lines = sum(len(need) + 5.4 for need in needs.values())
    fig, ax = plt.subplots(figsize=(WIDTH, 0.2 + 0.19 * lines))
    top, data = 0.0, []
    for title, need in needs.items():
        b, (vectors, rows) = cases[title], need.shape
        used = need.any(axis=0)
        share = f"{used.sum()} of {rows} rows of A_s are needed: {100 * used.mean():.0f} %"
        sketch.put(ax, 0, top + 0.5, f"{title}, {b.keep}:{b.group}", ha="left", weight="bold")
        sketch.put(ax, rows, top + 0.5, share, ha="right")
        for vector in range(vectors):
            y = top + 1.2 + vector
            sketch.put(ax, -0.6, y + 0.5, f"vector {vector} of B_s", ha="right", fontsize=8)
            for row in np.flatnonzero(need[vector]):
                sketch.box(ax, row, y, "", RUNGS[3])
        y = top + 1.5 + vectors
        sketch.put(ax, -0.6, y + 1, "rows of A_s", ha="right", fontsize=8)
        for row in range(rows):
            if used[row]:
                sketch.box(ax, row, y, "", PUBLISHED, height=2)
            else:
                rest = {"fill": False, "edgecolor": BOUND, "linewidth": 0.5, "hatch": "////"}
                ax.add_patch(Rectangle((row, y), 1, 2, alpha=0.55, **rest))
        for edge in range(0, rows + 1, b.group):
            sketch.rule(ax, (edge, edge), (top + 1.2, y + 2), True)
        sketch.put(ax, 0, y + 2.6, f"row {step * depth}", ha="left", fontsize=8, alpha=0.7)
        sketch.put(
            ax, rows, y + 2.6, f"row {step * depth + rows - 1}", ha="right", fontsize=8, alpha=0.7
        )
        counts = enumerate(need.sum(axis=0).tolist())
        data += [{"case": title, "row": step * depth + r, "vectors": int(c)} for r, c in counts]
        top = y + 3.9
    ax.set(xlim=(-10.5, max(n.shape[1] for n in needs.values()) + 0.3), ylim=(top - 0.6, -0.2))
    ax.axis("off")
    return fig, pd.DataFrame(data)


def footprint(cases: Mapping[str, nm.Nm], counts: Sequence[int] = (1, 2, 4, 8, 16)):
    """What Fig. 2 shows of one block, over many: the share of A_s that a block needs, over the number
    of vectors in it, and what random patterns would need, 1 − (1 − N/M)^vectors.

    cases: title -> matrix; counts that a matrix is too narrow for are left out. Share 1 is the
    paper's upper bound, the share of one vector, N/M, its lower one. Raises ValueError over 7 cases.
    """
    if not 1 <= len(cases) <= len(MARKS):
        raise ValueError(f"The figure has room for 1 to {len(MARKS)} cases, not {len(cases)}.")
    fig, ax = plt.subplots(figsize=(WIDTH, 3.5))
    handles: dict[str, object] = {}
    rows = []
    for place, (title, b) in enumerate(cases.items()):
        index, windows = np.asarray(b.index), b.k // b.group
        local = index[: windows * b.keep].reshape(windows, b.keep, b.q) % b.group
        needed = np.zeros((windows, b.group, b.q), bool)
        np.put_along_axis(needed, local, True, axis=1)
        for count in (c for c in counts if c <= b.q):
            whole = b.q // count * count
            shared = needed[:, :, :whole].reshape(windows, b.group, -1, count).any(axis=3)
            expected = 1 - (1 - b.keep / b.group) ** count
            rows.append((title, count, 100 * shared.mean(), 100 * expected))
        here = [row[1:] for row in rows if row[0] == title]
        fine = np.geomspace(min(counts), max(x for x, _, _ in here), 40)
        colour = ROWS[place % len(ROWS)]
        ax.plot(fine, 100 * (1 - (1 - b.keep / b.group) ** fine), color=colour, linewidth=1.2)
        (handles[title],) = ax.plot(
            *zip(*[(x, y) for x, y, _ in here], strict=True),
            color=colour,
            marker=MARKS[place],
            markersize=MARKER + 1,
            linestyle="none",
            markeredgewidth=0,
        )
    handles["random patterns"] = Line2D([], [], color=INK, linewidth=1.2)
    ax.axhline(100, color=BOUND, linewidth=1.2, linestyle=(0, (5, 3)))
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(counts), [f"{count}" for count in counts])
    ax.xaxis.set_minor_locator(NullLocator())
    ax.set(ylim=(0, 106), xlabel="vectors of a block (n_s / L)", ylabel="rows of A_s needed (%)")
    plot.legend(fig, handles, columns=5)
    return fig, pd.DataFrame(rows, columns=["case", "vectors", "per_cent", "expected"])


# ---------------------------------------------------------------- blocking (Fig. 3)


def blocking(tile: Tile, title: str = "", lanes=None, grid: tuple[int, int] = (4, 4)):
    """Fig. 3: C in blocks, a block in warp tiles, a warp tile in thread tiles, a thread tile.

    tile: such as one of `analysis.TABLE_1`; grid: how many blocks of C are drawn, down and across.
    lanes: integers of the shape of the warp tile, the lane of every element; by default thread tiles
    lie side by side, lane by lane along a row. Lanes that begin in the same row, and so read the same
    values of A_t, have a colour. The data behind it: lane, row, column, height, width, of each piece.
    Raises ValueError where one size does not divide the other, or the lanes are not 32.
    """
    block, warp, thread = (tile.rows, tile.columns), tile.warp, tile.thread
    for what, outer, inner in (("warp", block, warp), ("thread", warp, thread)):
        if any(o < 1 or i < 1 or o % i for o, i in zip(outer, inner, strict=True)):
            raise ValueError(f"A {what} tile of {inner} does not divide a tile of {outer}.")
    if lanes is None:
        down, across = (np.arange(w) // t for w, t in zip(warp, thread, strict=True))
        lanes = down[:, None] * (warp[1] // thread[1]) + across
    lanes = np.asarray(lanes)
    if lanes.shape != tuple(warp) or sorted(np.unique(lanes)) != list(range(32)):
        raise ValueError(
            f"The lanes 0 to 31 of a warp tile of {warp} are an array of that shape, not "
            f"{lanes.shape} with {np.unique(lanes).size} lanes."
        )
    cuts = [
        [0, *(np.flatnonzero((np.diff(lanes, axis=axis) != 0).any(axis=1 - axis)) + 1), size]
        for axis, size in enumerate(warp)
    ]
    first_rows = [int(np.flatnonzero((lanes == lane).any(axis=1))[0]) for lane in range(32)]
    groups = {row: i for i, row in enumerate(sorted(set(first_rows)))}
    whole = grid[0] * block[0], grid[1] * block[1]
    tiles, rooms = (whole, block, warp, thread), (8, 8, 16, 7)
    scales = [min(room / max(tile), 16) for room, tile in zip(rooms, tiles, strict=True)]
    high = max(scale * tile[0] for scale, tile in zip(scales, tiles, strict=True))
    panels, middles, end, gap = [], [], 0.0, 3.4
    for scale, (rows, columns) in zip(scales, tiles, strict=True):
        wide = max(columns * scale, 7)
        middles.append(end + wide / 2)
        x, y = middles[-1] - columns * scale / 2, (high - rows * scale) / 2
        panels.append((x, y, scale, rows, columns))
        end += wide + gap
    across, down = end - gap + 3.5, high + 5.6
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * down / across))

    def cells(panel, height, width, chosen):
        x, y, scale, rows, columns = panel
        for top in range(0, rows, height):
            for left in range(0, columns, width):
                at = (x + left * scale, y + top * scale, width * scale, height * scale)
                sketch.rule(ax, (at[0], at[0] + at[2]), (at[1], at[1]), False)
                sketch.rule(ax, (at[0], at[0]), (at[1], at[1] + at[3]), False)
        outline = Rectangle((x, y), columns * scale, rows * scale, fill=False, edgecolor=INK)
        ax.add_patch(outline)
        return x + chosen[1] * scale, y + chosen[0] * scale, width * scale, height * scale

    at = (min(1, grid[0] - 1) * block[0], (grid[1] - 1) * block[1])
    chosen = [cells(panels[0], *block, at), cells(panels[1], *warp, (0, block[1] - warp[1]))]
    colours = {"facecolor": PUBLISHED, "alpha": 0.3, "linewidth": 0}
    for x, y, width, height in chosen:
        ax.add_patch(Rectangle((x, y), width, height, **colours))
        ax.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=PUBLISHED, lw=1.6))
    x, y, scale, rows, columns = panels[0]
    for strip in (
        (x - 1.1, chosen[0][1], 0.8, chosen[0][3]),
        (chosen[0][0], y - 1.1, chosen[0][2], 0.8),
    ):
        sketch.box(ax, strip[0], strip[1], "", RUNGS[3], width=strip[2], height=strip[3])
    sketch.put(ax, x - 0.7, chosen[0][1] + chosen[0][3] + 0.7, "A_s", fontsize=8)
    sketch.put(ax, chosen[0][0] - 0.9, y - 0.7, "B_s", fontsize=8)
    x, y, scale, _, _ = panels[1]
    per_row = block[1] // warp[1]
    for number in range(block[0] // warp[0] * per_row):
        top, left = number // per_row * warp[0], number % per_row * warp[1]
        middle = x + (left + warp[1] / 2) * scale, y + (top + warp[0] / 2) * scale
        sketch.put(ax, *middle, f"warp\n{number}" if per_row < 3 else f"{number}", fontsize=8)
    x, y, scale, _, _ = panels[2]
    data = []
    for top, bottom in zip(cuts[0], cuts[0][1:], strict=False):
        for left, right in zip(cuts[1], cuts[1][1:], strict=False):
            lane = int(lanes[top, left])
            colour = LANES[groups[first_rows[lane]] % len(LANES)]
            size = (right - left) * scale, (bottom - top) * scale
            small = 7.5 if min(size) > 1.2 else 6.5
            where = (x + left * scale, y + top * scale)
            sketch.box(ax, *where, f"{lane}", colour, width=size[0], height=size[1], size=small)
            piece = {"row": int(top), "column": int(left), "height": int(bottom - top)}
            data.append({"lane": lane} | piece | {"width": int(right - left)})
    x, y, scale, rows, columns = panels[3]
    for row, column in np.ndindex(*thread):
        place = (x + column * scale, y + row * scale)
        sketch.box(ax, *place, "", LANES[0], width=scale, height=scale)
    for row in range(rows):
        sketch.box(ax, x - 1.2, y + row * scale, "", RUNGS[3], width=0.9, height=scale)
    for column in range(columns):
        sketch.box(ax, x + column * scale, y - 1.2, "", RUNGS[3], width=scale, height=0.9)
    sketch.put(ax, x - 0.75, y + rows * scale + 0.7, "A_t", fontsize=8)
    sketch.put(ax, x + columns * scale + 0.8, y - 0.75, "B_t", fontsize=8)
    lane = next(p for p in data if not p["row"] and p["column"] + p["width"] == warp[1])
    x, y, scale, _, _ = panels[2]
    chosen.append(
        (
            x + lane["column"] * scale,
            y + lane["row"] * scale,
            lane["width"] * scale,
            lane["height"] * scale,
        )
    )
    for (left, top, width, height), panel in zip(chosen, panels[1:], strict=True):
        x, y, scale, rows, _ = panel
        x -= 1.2 if panel is panels[3] else 0  # the strip of A_t stands before the last one
        lines = {"color": PUBLISHED, "linewidth": 0.8, "linestyle": (0, (3, 2))}
        ax.plot([left + width, x], [top, y], **lines)
        ax.plot([left + width, x], [top + height, y + rows * scale], **lines)
    work = thread[0] * thread[1], thread[0] + thread[1]
    captions = (
        f"C in blocks of\nm_s × n_s = {block[0]} × {block[1]}",
        f"a block in warp tiles of\nm_r × n_r = {warp[0]} × {warp[1]}",
        f"a warp tile by lane,\nm_t × n_t = {thread[0]} × {thread[1]} each",
        f"a thread: {work[0]} FMA\nfor {work[1]} values read",
    )
    for middle, text in zip(middles, captions, strict=True):
        sketch.put(ax, middle, high + 0.8, text, va="top")
    sketch.put(ax, -1.7, -1.0, title, ha="left", weight="bold")
    ax.set(xlim=(-1.9, across - 1.9), ylim=(high + 3.8, -1.8))
    ax.set_aspect("equal")
    ax.axis("off")
    return fig, pd.DataFrame(data).sort_values(["lane", "row", "column"], ignore_index=True)


# ---------------------------------------------------------------- preprocessing (Fig. 4)


def packing_picture(b: nm.Nm, packed: Packed, block: int = 0, step: int = 0):
    """Fig. 4: the preprocessing of one block and step, from its arrays: the index of B, the rows of A_s
    that its vectors need, `col_info`, the reordered index, and how the values lie in memory.

    packed: of `b`, on the host; without `col_info`, all rows are staged and the index only counts from
    the step's first one. A colour per vector. The data behind it: slot, vector, compressed_row,
    position (in the window), row (of A), stored (in the reordered index). Raises ValueError for a
    block or step that there is not, and over 24 rows of A_s, 16 compressed rows or 7 vectors.
    """
    if not (0 <= block < packed.blocks and 0 <= step < packed.steps):
        raise ValueError(
            f"There is no block {block} with a step {step} among {packed.blocks} blocks of "
            f"{packed.steps} steps."
        )
    slots = range(packed.columns // packed.slot)
    slots = [s for s in slots if block * packed.columns + s * packed.slot < b.n]
    vector_of = [(block * packed.columns + s * packed.slot) // b.vector for s in slots]
    vectors = sorted(set(vector_of))
    first, last = step * packed.depth, min((step + 1) * packed.depth, b.k)
    rows = range(step * packed.rows, min((step + 1) * packed.rows, b.w))
    if last - first > 24 or len(rows) > 16 or len(vectors) > len(ROWS):
        raise ValueError(
            f"A step of {last - first} rows of A_s, {len(rows)} compressed rows and {len(vectors)} "
            f"vectors is too large to draw: 24, 16 and {len(ROWS)} is the limit."
        )
    index, stored = np.asarray(b.index), np.asarray(packed.index)[block, step]
    colour = {v: ROWS[i] for i, v in enumerate(vectors)}
    data = [
        {
            "slot": slot,
            "vector": vector,
            "compressed_row": r,
            "position": int(index[r, vector]) - r // b.keep * b.group,
            "row": int(index[r, vector]),
            "stored": int(stored[slot, r - rows[0]]),
        }
        for slot, vector in zip(slots, vector_of, strict=True)
        for r in rows
    ]
    staged = None
    if packed.col_info is not None:
        count = int(np.asarray(packed.count)[block, step])
        staged = np.asarray(packed.col_info)[block, step, :count].tolist()
    cell, gap, high = 1.7, 3.6, max(last - first, 11)
    fig, ax = plt.subplots(figsize=(WIDTH, 0.235 * (high + 4.2)))
    x, titles = 0.0, []

    def matrix(left, columns_of, what, title):
        """One row a compressed row, one column per entry of `columns_of`: its vector, where it is."""
        top = (high - len(rows)) / 2
        for column, entries in enumerate(columns_of):
            for entry in entries:
                y = top + entry["compressed_row"] - rows[0]
                text, ink = f"{entry[what]}", colour[entry["vector"]]
                sketch.box(ax, left + cell * column, y, text, ink, width=cell, size=8.5)
        width = cell * len(columns_of)
        for window in range(0, len(rows) + 1, b.keep):
            sketch.rule(ax, (left, left + width), (top + window,) * 2, True)
        own = ", ".join(f"{v}" for v in dict.fromkeys(e[0]["vector"] for e in columns_of))
        sketch.put(ax, left + width / 2, top + len(rows) + 0.7, f"vectors {own}", fontsize=8)
        titles.append((left + width / 2, title))
        return left + width

    chosen = [[e for e in data if e["slot"] == vector_of.index(v)] for v in vectors]
    x = matrix(x, chosen, "position", "index of B:\nin the window") + gap
    wide, top = 1.1 * len(vectors), (high - (last - first)) / 2
    needed = {row: {e["vector"] for e in data if e["row"] == row} for row in range(first, last)}
    for row, by in needed.items():
        y = top + row - first
        sketch.put(ax, x - 0.3, y + 0.5, f"{row}", ha="right", fontsize=7.5, alpha=0.8)
        for place, vector in enumerate(vectors):
            if vector in by:
                sketch.box(ax, x + 1.1 * place, y, "", colour[vector], width=1.1)
        rest = {"fill": False, "edgecolor": BOUND, "linewidth": 0.5}
        hatch = "" if by else "////"
        ax.add_patch(Rectangle((x, y), wide, 1, alpha=0.55, hatch=hatch, zorder=0.5, **rest))
        if row % b.group == 0:
            sketch.rule(ax, (x, x + wide), (y, y), True)
    sketch.rule(ax, (x, x + wide), (top + last - first,) * 2, True)
    titles.append((x + wide / 2, "rows of A_s,\nby vector"))
    x += wide
    if staged is not None:
        left, begin = x + 3.2, (high - len(staged)) / 2
        for place, row in enumerate(staged):
            y = begin + place
            inks = [colour[v] for v in vectors if v in needed.get(row, ())]
            ink = inks[0] if len(inks) == 1 else BOUND
            sketch.box(ax, left, y, f"{row}", ink, width=2.2, size=8.5)
            sketch.put(ax, left + 2.5, y + 0.5, f"{place}", ha="left", fontsize=7.5, alpha=0.8)
            sketch.arrow(ax, (x + 0.1, top + row - first + 0.5), (left - 0.1, y + 0.5), ink)
        titles.append((left + 1.1, f"col_info:\n{len(staged)} of {last - first} rows"))
        x = left + 3.4
    x += 2.4
    chosen = [[e for e in data if e["slot"] == slot] for slot in slots]
    where = "in col_info" if staged is not None else "in the step"
    x = matrix(x, chosen, "stored", f"index, reordered:\n{where}") + gap
    shown = min(packed.steps, 3), min(packed.blocks, 3)
    size = packed.rows * packed.columns
    pitch = packed.blocks * packed.columns
    layouts = [
        ("values, row by row:", f"{packed.rows} pieces a step", False),
        ("values, tiled:", "one piece a step", True),
    ]
    layouts = layouts if packed.tiled else layouts[:1]
    box, tall = 3.4, 1.5
    y = (high - len(layouts) * (shown[0] * tall + 3.0)) / 2
    for title, pieces, tiled in layouts:
        sketch.put(ax, x + box * shown[1] / 2, y + 0.2, title, fontsize=8.5)
        sketch.put(ax, x + box * shown[1] / 2, y + 1.15, pieces, fontsize=8)
        for s, n in np.ndindex(*shown):
            at = (n * packed.steps + s) * size
            at = at if tiled else s * packed.rows * pitch + n * packed.columns
            ink = PUBLISHED if (s, n) == (step, block) else BOUND
            place = (x + box * n, y + 1.8 + tall * s)
            sketch.box(ax, *place, f"+{at}", ink, width=box, height=tall, size=8)
        y += shown[0] * tall + 3.0
    titles.append((x + box * shown[1] / 2, "where each block and\nstep begins (floats)"))
    for middle, text in titles:
        sketch.put(ax, middle, -1.3, text)
    ax.set(xlim=(-0.5, x + box * shown[1] + 0.8), ylim=(high + 0.6, -2.6))
    ax.axis("off")
    return fig, pd.DataFrame(data)


# ---------------------------------------------------------------- pipelines (Fig. 5, 6)

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


def _period(bars: pd.DataFrame) -> float:
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
        text = f"{what}: {_period(df):.3g} {unit} a step"
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


# -------------------------------------------------------------------------- our own: stream-K's shares

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
        raise ValueError(
            f"Shares are drawn from 1 tile, step and block on, not {tiles}, {steps}, {blocks}, {shown}."
        )
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
    fig, axes = plt.subplots(
        1, 2, figsize=(WIDTH, 1.3 + 0.22 * len(drawn)), sharex=True, sharey=True
    )
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
                sketch.put(ax, (row.start + row.end) / 2, low + 0.5, f"{row.tile}", fontsize=7)
        last = df["end"].max()
        ax.axvline(last, color=INK, linewidth=1.1, linestyle="--")
        ax.set(
            xlabel="steps",
            title=f"{title}: {last} steps, {df.groupby('block')['end'].max().mean() / last:.0%} of them used",
        )
        ax.grid(visible=False)
    axes[0].set(xlim=(0, 1.01 * end), ylim=(len(drawn) + 0.1, -0.1), ylabel="block")
    axes[0].set_yticks(np.arange(len(drawn)) + 0.5, drawn)
    handles = {
        label: Patch(facecolor=(*to_rgb(colour), 0.28), edgecolor=colour)
        for label, colour in PARTS.values()
    }
    plot.legend(fig, handles, columns=3)
    return fig, data
