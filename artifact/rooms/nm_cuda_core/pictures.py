"""Pictures of N:M and of its gather."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BEST, BOUND, INK, PUBLISHED, ROWS, WIDTH
from kernels.formats import nm


def nm_picture(b: nm.Nm):
    """Draw a small element-wise N:M matrix (k × n), its values and its indices (both w × n), a colour for each group
    along K; behind it lies a row for each value.

    The index is drawn as the published kernels read it, repeated for every column of a vector.
    """
    row, column = (axis.ravel() for axis in np.indices(b.val.shape))
    data = pd.DataFrame({"compressed_row": row, "column": column, "vector": column // b.vector})
    index, values = np.asarray(nm.per_column_index(b)).ravel(), np.asarray(b.val, float).ravel()
    data = data.assign(group=row // b.keep, row=index, value=values)
    apart = b.n + 2.6
    width, bottom = 2 * apart + b.n + 0.3, b.k + 1.2
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * (b.k + 3.6) / (width + 1.4)))
    for cell in data.itertuples():
        text, colour = sketch.short(cell.value), ROWS[cell.group % len(ROWS)]
        sketch.box(ax, cell.column, cell.row, text, colour)
        sketch.box(ax, apart + cell.column, cell.compressed_row, text, colour)
        sketch.box(ax, 2 * apart + cell.column, cell.compressed_row, f"{cell.row}", colour)
    titles = (f"B: {b.k} × {b.n}, {b.keep}:{b.group} along K", f"values: {b.w} × {b.n}", "index: rows of B")
    for panel, (title, rows, group) in enumerate(zip(titles, (b.k, b.w, b.w), (b.group, b.keep, b.keep), strict=True)):
        x = panel * apart
        sketch.put(ax, x + b.n / 2, -1.25, title)
        sketch.numbers(ax, [(x - 0.25, r + 0.5) for r in range(rows)], ha="right")
        sketch.numbers(ax, [(x + c + 0.5, -0.45) for c in range(b.n)])
        for edge in range(rows + 1):
            sketch.rule(ax, (x, x + b.n), (edge, edge), edge % group == 0)
        for edge in range(b.n + 1):
            sketch.rule(ax, (x + edge, x + edge), (0, rows), False)
    sketch.put(ax, 0, bottom, "element-wise: every column has indices of its own", ha="left")
    ax.set(xlim=(-1.1, width), ylim=(bottom + 0.6, -1.8), aspect="equal")
    ax.axis("off")
    return fig, data


def gather_picture(b: nm.Nm, block: int):
    """Draw what the published gather reads for the first compressed row of a block of columns: the row of B that the
    first one needs, for all of them. Behind it lies, for each column, the row that it needs, the one that it gets, and
    whether that is right."""
    needs = np.asarray(nm.per_column_index(b))[0, :block]
    data = pd.DataFrame({"column": range(block), "compressed_row": 0, "needs": needs, "gets": needs[0]})
    data["right"] = data["needs"] == data["gets"]
    label, step, y = 9.0, 24 / block, b.group + 0.9
    width = label + block * step + 0.3
    fig, ax = plt.subplots(figsize=(WIDTH, 0.75 * WIDTH * (b.group + 6.6) / width))
    ax.add_patch(Rectangle((label, needs[0]), block * step, 1, facecolor=BOUND, alpha=0.22, linewidth=0))
    for r in range(b.group):
        sketch.put(ax, label - 0.3, r + 0.5, f"row {r} of B", ha="right")
        for j in range(block):
            at = label + j * step, r
            ax.add_patch(Rectangle(at, step, 1, fill=False, edgecolor=INK, linewidth=0.5, alpha=0.35))
    for line, text in enumerate(("column of the block", "it needs row", "it gets row")):
        sketch.put(ax, label - 0.3, y + line + 0.5, text, ha="right")
    for j, column in enumerate(data.itertuples()):
        x, colour, sign = label + j * step, *((BEST, "=") if column.right else (PUBLISHED, "≠"))
        hatch = "" if column.right else "////"
        sketch.box(ax, x, column.needs, "", colour, width=step)
        ax.add_patch(Rectangle((x, column.needs), step, 1, fill=False, hatch=hatch, edgecolor=colour))
        sketch.put(ax, x + step / 2, y + 0.5, f"{j}", alpha=0.7)
        sketch.box(ax, x, y + 1, f"{column.needs}", colour, width=step, size=8.5)
        sketch.box(ax, x, y + 2, f"{column.gets}", BOUND, width=step, size=8.5)
        sketch.put(ax, x + step / 2, y + 3.5, sign, weight="bold", fontsize=9.5)
    said = f"{(~data['right']).sum()} of {block} columns are multiplied with the wrong column of A"
    sketch.put(ax, label, y + 4.75, said, ha="left", weight="bold")
    sketch.put(ax, label, -0.55, f"grey: row {needs[0]}, the one that the block gathers", ha="left")
    ax.set(xlim=(0, width), ylim=(y + 5.3, -1.1))
    ax.axis("off")
    return fig, data
