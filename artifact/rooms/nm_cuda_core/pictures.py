"""Pictures of N:M and of its gather."""

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BEST, BOUND, INK, PUBLISHED, ROWS
from kernels.formats import nm


def nm_picture(b: nm.Nm):
    """Draw a small element-wise N:M matrix (k × n), its values and its indices (both w × n), a colour for each group
    along K; behind it lies a row for each value.

    The index is drawn as the published kernels read it, repeated for every column of a vector.
    """
    row, column = np.indices(b.val.shape).reshape(2, -1)
    index, values = np.asarray(nm.per_column_index(b)).ravel(), np.asarray(b.val, float).ravel()
    data = pd.DataFrame({"compressed_row": row, "column": column, "vector": column // b.vector})
    data = data.assign(group=row // b.keep, row=index, value=values)
    apart, colours = b.n + 2.6, np.take(ROWS, data["group"], mode="wrap")
    fig, ax = sketch.canvas((-1.1, 2 * apart + b.n + 0.3), (b.k + 1.8, -1.8))
    texts = data["value"].map(sketch.short)
    sketch.each(sketch.box, ax, column, index, texts, colours)
    sketch.each(sketch.box, ax, apart + column, row, texts, colours)
    sketch.each(sketch.box, ax, 2 * apart + column, row, index.astype(str), colours)
    titles = (f"B: {b.k} × {b.n}, {b.keep}:{b.group} along K", f"values: {b.w} × {b.n}", "index: rows of B")
    for panel, (title, rows, group) in enumerate(zip(titles, (b.k, b.w, b.w), (b.group, b.keep, b.keep), strict=True)):
        sketch.put(ax, panel * apart + b.n / 2, -1.25, title)
        sketch.numbers(ax, [(panel * apart + c + 0.5, -0.45) for c in range(b.n)])
        sketch.grid(ax, panel * apart, rows, b.n, (group, b.n))
    sketch.put(ax, 0, b.k + 1.2, "element-wise: every column has indices of its own", ha="left")
    return fig, data


def gather_picture(b: nm.Nm, block: int):
    """Draw what the published gather reads for the first compressed row of a block of columns: the row of B that the
    first one needs, for all of them. Behind it lies, for each column, the row that it needs, the one that it gets, and
    whether that is right."""
    needs = np.asarray(nm.per_column_index(b))[0, :block]
    right, label, step, y = needs == needs[0], 9.0, 24 / block, b.group + 0.9
    data = pd.DataFrame({"column": range(block), "compressed_row": 0, "needs": needs, "gets": needs[0], "right": right})
    width, at = label + block * step + 0.3, label + np.arange(block) * step
    fig, ax = sketch.canvas((0, width), (y + 5.3, -1.1), 6.225 * (b.group + 6.6) / width)
    ax.add_patch(Rectangle((label, needs[0]), block * step, 1, facecolor=BOUND, alpha=0.22, linewidth=0))
    for r, x in np.ndindex(b.group, block):
        ax.add_patch(Rectangle((float(at[x]), r), step, 1, fill=False, edgecolor=INK, linewidth=0.5, alpha=0.35))
    names = *(f"row {r} of B" for r in range(b.group)), "column of the block", "it needs row", "it gets row"
    heights = *(r + 0.5 for r in range(b.group)), y + 0.5, y + 1.5, y + 2.5
    sketch.each(sketch.put, ax, label - 0.3, heights, names, ha="right")
    colours = np.where(right, BEST, PUBLISHED)
    sketch.each(sketch.box, ax, at, needs, "", colours, step, hatch=np.where(right, "", "////"))
    sketch.each(sketch.put, ax, at + step / 2, y + 0.5, data["column"].astype(str), alpha=0.7)
    sketch.each(sketch.box, ax, at, y + 1, needs.astype(str), colours, step, size=8.5)
    sketch.each(sketch.box, ax, at, y + 2, f"{needs[0]}", BOUND, step, size=8.5)
    sketch.each(sketch.put, ax, at + step / 2, y + 3.5, np.where(right, "=", "≠"), weight="bold", fontsize=9.5)
    said = f"{(~right).sum()} of {block} columns are multiplied with the wrong column of A"
    sketch.put(ax, label, y + 4.75, said, ha="left", weight="bold")
    sketch.put(ax, label, -0.55, f"grey: row {needs[0]}, the one that the block gathers", ha="left")
    return fig, data
