"""Pictures of N:M and of its gather."""

import numpy as np
import pandas as pd

from artifact.drawing import sketch
from artifact.drawing.style import BEST, BOUND, PUBLISHED, ROWS
from kernels.formats import nm


def nm_picture(b: nm.Nm):
    """Draw a small element-wise N:M matrix (k × n), its values and its indices (both w × n).

    A colour for each group along K; behind it lies a row for each value.

    The index is drawn as the published kernels read it, repeated for every column of a vector.
    """
    row, column = np.indices(b.val.shape).reshape(2, -1)
    index, values = np.asarray(nm.per_column_index(b)).ravel(), np.asarray(b.val, float).ravel()
    data = pd.DataFrame(
        {"compressed_row": row, "column": column, "vector": column // b.vector}
        | {"group": row // b.keep, "row": index, "value": values}
    )
    lefts, colours = (b.n + 2.6) * np.arange(3), np.take(ROWS, data["group"], mode="wrap")
    texts, columns = data["value"].map(sketch.short), np.arange(b.n)
    return sketch.picture(
        (-1.1, lefts[2] + b.n + 0.3),
        (b.k + 1.8, -1.8),
        (sketch.box, column, index, texts, colours),
        (sketch.box, lefts[1] + column, row, texts, colours),
        (sketch.box, lefts[2] + column, row, index.astype(str), colours),
        (sketch.put, lefts[0] + b.n / 2, -1.25, f"B: {b.k} × {b.n}, {b.keep}:{b.group} along K"),
        (sketch.put, lefts[1:] + b.n / 2, -1.25, [f"values: {b.w} × {b.n}", "index: rows of B"]),
        (sketch.put, lefts[:, None] + columns + 0.5, -0.45, columns, sketch.FAINT),
        (sketch.grid, lefts, [b.k, b.w, b.w], b.n, [b.group, b.keep, b.keep], b.n),
        (sketch.put, 0, b.k + 1.2, "element-wise: every column has indices of its own", {"ha": "left"}),
    ), data


def gather_picture(b: nm.Nm, block: int):
    """Draw what the published gather reads for the first compressed row of a block of columns.

    The row of B that the first one needs, for all of them. Behind it lies, for each column, the row that it needs, the
    one that it gets, and whether that is right.
    """
    needs = np.asarray(nm.per_column_index(b))[0, :block]
    right, label, step, y = needs == needs[0], 9.0, 24 / block, b.group + 0.9
    data = pd.DataFrame({"column": range(block), "compressed_row": 0, "needs": needs, "gets": needs[0], "right": right})
    width, at = label + block * step + 0.3, label + np.arange(block) * step
    lines, colours = np.arange(b.group), np.where(right, BEST, PUBLISHED)
    return sketch.picture(
        (0, width),
        (y + 5.3, -1.1),
        (
            sketch.frame,
            label,
            needs[0],
            block * step,
            1,
            {"fill": True, "facecolor": BOUND, "alpha": 0.22, "linewidth": 0},
        ),
        (sketch.frame, at, lines[:, None], step, 1, {"linewidth": 0.5, "alpha": 0.35}),
        (sketch.put, label - 0.3, lines + 0.5, [f"row {r} of B" for r in lines], {"ha": "right"}),
        (
            sketch.put,
            label - 0.3,
            [y + 0.5, y + 1.5, y + 2.5],
            ["column of the block", "it needs row", "it gets row"],
            {"ha": "right"},
        ),
        (sketch.box, at, needs, "", colours, step, {"hatch": np.where(right, "", "////")}),
        (sketch.put, at + step / 2, y + 0.5, data["column"], {"alpha": 0.7}),
        (sketch.box, at, y + 1, needs.astype(str), colours, step, {"size": 8.5}),
        (sketch.box, at, y + 2, f"{needs[0]}", BOUND, step, {"size": 8.5}),
        (sketch.put, at + step / 2, y + 3.5, np.where(right, "=", "≠"), {"weight": "bold", "fontsize": 9.5}),
        (
            sketch.put,
            label,
            y + 4.75,
            f"{(~right).sum()} of {block} columns are multiplied with the wrong column of A",
            {"ha": "left", "weight": "bold"},
        ),
        (sketch.put, label, -0.55, f"grey: row {needs[0]}, the one that the block gathers", {"ha": "left"}),
        height=6.225 * (b.group + 6.6) / width,
    ), data
