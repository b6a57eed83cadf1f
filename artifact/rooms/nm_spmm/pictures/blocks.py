"""Fig. 3: blocks, warps and threads."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import INK, PUBLISHED, ROWS, RUNGS, WIDTH
from kernels.nm_spmm.analysis import Tile

LANES = (*ROWS, RUNGS[5])  # colours of a warp's rows of lanes, of which Table I has up to eight


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
            small = 8
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
