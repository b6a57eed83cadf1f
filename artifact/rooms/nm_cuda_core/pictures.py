"""Pictures of N:M and of its gather."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BEST, BOUND, INK, PUBLISHED, ROWS, WIDTH
from kernels.formats import nm

# ---------------------------------------------------------------- pictures of the format


def nm_picture(b: nm.Nm):
    """A small N:M matrix (k x n), its values and its indices (both w x n), a colour per group along K.

    The index is drawn as the published kernels read it, repeated for every column of a vector; the
    format stores it once per vector. The data behind it: one row per value. Raises ValueError over
    16 rows or columns, where the picture could no longer be read.
    """
    if not (1 <= b.k <= 16 and 1 <= b.n <= 16):
        raise ValueError(f"A matrix of {b.k} x {b.n} is too large to draw, 16 x 16 is the limit.")
    val, index = np.asarray(b.val), np.asarray(nm.per_column_index(b))
    beside = b.n <= 10  # three panels side by side, else values above indices
    gap = 2.6
    left = b.n + gap
    down = b.w + 3.4
    at = (left + b.n + gap, 0.0) if beside else (left, down)
    width = at[0] + b.n + 0.3
    height = max(b.k, at[1] + b.w) + (1.4 if beside else 1.2)
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * (height + 2.2) / (width + 1.4)))
    small = 8
    colours = [ROWS[group % len(ROWS)] for group in range(-(-b.k // b.group))]
    rows = []
    for r in range(b.w):
        group = r // b.keep
        seen = (index[group * b.keep : r] == index[r]).any(axis=0)  # a short group's surplus rows
        for column in range(b.n):
            value, row = float(val[r, column]), int(index[r, column])
            text = sketch.short(value)
            if not (seen[column] and value == 0):
                sketch.box(ax, column, row, text, colours[group], size=small)
            sketch.box(ax, left + column, r, text, colours[group], size=small)
            sketch.box(ax, at[0] + column, at[1] + r, f"{row}", colours[group], size=small)
            rows.append(
                {
                    "compressed_row": r,
                    "column": column,
                    "vector": column // b.vector,
                    "group": group,
                    "row": row,
                    "value": value,
                }
            )
    panels = (
        (0, 0, b.k, b.group, f"B: {b.k} × {b.n}, {b.keep}:{b.group} along K"),
        (left, 0, b.w, b.keep, f"values: {b.w} × {b.n}"),
        (*at, b.w, b.keep, "index: rows of B"),
    )
    for x, y, count, step, title in panels:
        sketch.put(ax, x + b.n / 2, y - 1.25, title)
        for r in range(count):
            sketch.put(ax, x - 0.25, y + r + 0.5, f"{r}", ha="right", fontsize=8, alpha=0.7)
        for column in range(b.n):
            sketch.put(ax, x + column + 0.5, y - 0.45, f"{column}", fontsize=8, alpha=0.7)
        for edge in range(count + 1):
            thick = edge % step == 0 or edge == count
            sketch.rule(ax, (x, x + b.n), (y + edge, y + edge), thick)
        for edge in range(b.n + 1):
            thick = edge % b.vector == 0 or edge == b.n
            sketch.rule(ax, (x + edge, x + edge), (y, y + count), thick and b.vector > 1)
        if b.vector > 1:
            for start in range(0, b.n, b.vector):
                end = min(start + b.vector, b.n)
                ends = [x + start + 0.12, x + end - 0.12]
                ax.plot(ends, [y + count + 0.45] * 2, color=INK, linewidth=1, solid_capstyle="butt")
    what = (
        f"a vector: {b.vector} columns that share their indices (thick lines)"
        if b.vector > 1
        else "element-wise: every column has indices of its own"
    )
    bottom = max(b.k, at[1] + b.w) + 1.2
    sketch.put(ax, 0, bottom, what, ha="left")
    ax.set(xlim=(-1.1, width), ylim=(bottom + 0.6, -1.8))
    ax.set_aspect("equal")
    ax.axis("off")
    return fig, pd.DataFrame(rows)


def gather_picture(b: nm.Nm, block: int = 32, row: int = 0, first: int = 0):
    """What the published gather reads for one compressed row in one block of columns.

    block: width of the block, from 2 to 32; row: which compressed row; first: first column of the
    block. The block gathers the row of B that its first column needs for all of its columns. The
    data behind it: per column, the row it needs, the row it gets, and whether that is right. Raises
    ValueError where the matrix has no such block.
    """
    if not 2 <= block <= 32:
        raise ValueError(f"A block of {block} columns cannot be drawn: take 2 to 32.")
    if not (0 <= row < b.w and 0 <= first and first + block <= b.n):
        raise ValueError(
            f"There is no compressed row {row} with columns {first} to {first + block - 1} in values of {b.w} x {b.n}."
        )
    needs = [int(i) for i in np.asarray(nm.per_column_index(b))[row, first : first + block]]
    gets = needs[0]
    top = row // b.keep * b.group
    count = min(b.group, b.k - top)
    if count > 16:
        raise ValueError(f"A group of {count} rows is too high to draw, 16 is the limit.")
    label, step = 9.0, max(1.0, 24 / block)  # few columns are drawn wide
    width, height = label + block * step + 0.3, count + 6.6
    small = 8.5 if block <= 16 else 8
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * height * (0.75 if step > 1 else 1) / width))
    for r in range(count):
        sketch.put(ax, label - 0.3, r + 0.5, f"row {top + r} of B", ha="right")
    band = (label, gets - top)
    ax.add_patch(Rectangle(band, block * step, 1, facecolor=BOUND, alpha=0.22, linewidth=0))
    lines = ("column of the block", "it needs row", "it gets row", "")
    y = count + 0.9
    for offset, text in enumerate(lines):
        sketch.put(ax, label - 0.3, y + offset + 0.5, text, ha="right")
    for j, need in enumerate(needs):
        x, right = label + j * step, need == gets
        colour = BEST if right else PUBLISHED
        for r in range(count):
            cell = Rectangle((x, r), step, 1, fill=False, edgecolor=INK, linewidth=0.5, alpha=0.35)
            ax.add_patch(cell)
        sketch.box(ax, x, need - top, "", colour, width=step)
        if not right:
            cell = Rectangle((x, need - top), step, 1, fill=False, hatch="////", edgecolor=colour)
            ax.add_patch(cell)
        sketch.put(ax, x + step / 2, y + 0.5, f"{first + j}", alpha=0.7, fontsize=small)
        sketch.box(ax, x, y + 1, f"{need}", colour, width=step, size=small)
        sketch.box(ax, x, y + 2, f"{gets}", BOUND, width=step, size=small)
        sign = "=" if right else "≠"
        sketch.put(ax, x + step / 2, y + 3.5, sign, weight="bold", fontsize=small + 1)
    wrong = sum(need != gets for need in needs)
    said = (
        f"{wrong} of {block} columns are multiplied with the wrong column of A"
        if wrong
        else f"all {block} columns need the row that the first one needs"
    )
    sketch.put(ax, label, y + 4.75, said, ha="left", weight="bold")
    sketch.put(ax, label, -0.55, f"grey: row {gets}, the one that the block gathers", ha="left")
    ax.set(xlim=(0, width), ylim=(y + 5.3, -1.1))
    ax.axis("off")
    data = pd.DataFrame(
        {
            "column": range(first, first + block),
            "compressed_row": row,
            "needs": needs,
            "gets": gets,
            "right": [need == gets for need in needs],
        }
    )
    return fig, data
