"""Fig. 4: what is done to B beforehand."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BOUND, PUBLISHED, ROWS, WIDTH
from kernels.formats import nm
from kernels.nm_spmm.packing import Packed


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
            f"There is no block {block} with a step {step} among {packed.blocks} blocks of {packed.steps} steps."
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
        sketch.put(ax, x - 0.3, y + 0.5, f"{row}", ha="right", fontsize=8, alpha=0.8)
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
            sketch.put(ax, left + 2.5, y + 0.5, f"{place}", ha="left", fontsize=8, alpha=0.8)
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
