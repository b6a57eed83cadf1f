"""Pictures of CSR and of what a warp does with it."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BEST, BOUND, INK, ROWS, RUNGS


def csr_picture(csr) -> tuple[Any, pd.DataFrame]:
    """Draw a small matrix and its three CSR arrays, one colour per row; csr: has m, k, row_ptr, col_idx and val."""
    starts, rows, of_row = np.asarray(csr.row_ptr), np.arange(csr.m), np.diff(csr.row_ptr)
    data = pd.DataFrame({"row": np.repeat(rows, of_row), "column": csr.col_idx, "value": csr.val.astype(float)})
    left = csr.k + 4.4
    width, height = left + max(len(data), csr.m + 1) + 0.6, max(csr.m + 1.7, 7.6)
    colours = np.array([*(ROWS[row % len(ROWS)] for row in rows), BOUND])
    fig, ax = sketch.canvas((0, width), (height + 0.4, 0))
    for row, column in np.ndindex(csr.m, csr.k):
        ax.add_patch(Rectangle((column + 1, row + 1), 1, 1, fill=False, edgecolor=INK, linewidth=0.5, alpha=0.35))
    sketch.each(sketch.put, ax, 0.75, rows + 1.5, rows.astype(str), ha="right")
    sketch.each(sketch.put, ax, np.arange(csr.k) + 1.5, 0.75, np.arange(csr.k).astype(str), va="bottom")
    sketch.put(ax, csr.k / 2 + 1, csr.m + 1.6, f"A: {csr.m} × {csr.k}")
    # Repeated entries share a cell of the matrix, though not a place in the arrays.
    for (row, column), values in data.groupby(["row", "column"])["value"]:
        text = sketch.short(values.iloc[0]) if len(values) == 1 else f"{len(values)}×"
        sketch.box(ax, column + 1, row + 1, text, colours[row])
    at, own = left + data.index, colours[data["row"]]
    sketch.each(sketch.box, ax, at, 4.3, data["column"].astype(str), own)
    sketch.each(sketch.box, ax, at, 6.3, data["value"].map(sketch.short), own)
    sketch.each(sketch.put, ax, at + 0.5, 7.65, data.index.astype(str), alpha=0.7)
    sketch.each(sketch.box, ax, left + np.arange(csr.m + 1), 1, starts.astype(str), colours)
    # An arrow from a row's pointer to its first nonzero; an empty row has none.
    for row in np.flatnonzero(of_row):
        sketch.arrow(ax, (left + row + 0.5, 2.02), (left + starts[row] + 0.5, 4.26), colours[row], linewidth=1)
    names = "row_ptr", "col_idx", "val"
    sketch.each(sketch.put, ax, left - 0.3, (1.5, 4.8, 6.8), names, ha="right", family="monospace")
    return fig, data.rename_axis("position").reset_index()


def warp_picture(csr) -> tuple[Any, pd.DataFrame]:
    """Draw how one warp computes 128 columns of a row of C: chunks of 32 nonzeros, each lane four columns of B and C.

    csr: has rows of at most 64 nonzeros; the first that needs two chunks is drawn, else the first.
    """
    row = int(np.argmax(np.diff(csr.row_ptr) > 32))
    mine = slice(csr.row_ptr[row], csr.row_ptr[row + 1])
    data = pd.DataFrame({"column": csr.col_idx[mine], "value": csr.val[mine].astype(float)})
    data = data.rename_axis("nonzero").reset_index().assign(chunk=lambda df: df["nonzero"] // 32)
    data["lane"] = data["nonzero"] % 32
    step, formula = 0.96, "acc += sh_val[j] · B[sh_col[j]][its four columns]"
    cell, end, first = step * 0.92, 32 * step + 0.3, f"(j = 0: row {data['column'][0]} of B)"
    fig, ax = sketch.canvas((-0.3, 40.5), (12.95, 0), 5.4)
    heads = {
        f"row {row} of A: {len(data)} nonzeros, read in chunks of 32, lane i reads nonzero i": (0, 0.55),
        "shared memory of this warp: column and value of the current chunk (chunk 0)": (0, 3.3),
        f"every lane, for each nonzero j:  {formula}   {first}": (0, 8.3),
        "lane; one float4 of B": (end, 9.65),
        f"one float4 of C, row {row}": (end, 11.65),
        "column 0": (0, 12.5),
    }
    sketch.each(sketch.put, ax, *zip(*heads.values(), strict=True), [*heads], ha="left")
    chunk, colours = data["chunk"].unique(), np.take(ROWS, data["chunk"])
    sketch.each(sketch.box, ax, data["lane"] * step, 1.0 + data["chunk"], "", colours, cell, 0.8)
    named = {"ha": "left", "color": np.take(ROWS, chunk), "weight": "bold"}
    sketch.each(sketch.put, ax, end, 1.42 + chunk, [f"chunk {c}" for c in chunk], **named)
    now = data[:32]
    for y, texts in ((3.75, now["column"].astype(str)), (5.55, now["value"].map("{:.2g}".format))):
        sketch.each(sketch.box, ax, now.index * step, y, texts, ROWS[0], cell, 1.7, rotation=90)
    sketch.each(sketch.put, ax, end, (4.6, 6.4), ("sh_col", "sh_val"), ha="left", family="monospace")
    sketch.arrow(ax, (16 * step, 7.3), (16 * step, 7.95), INK, mutation_scale=9)
    lane, colours = np.arange(32), np.tile([RUNGS[1], BEST], 16)
    sketch.each(sketch.box, ax, lane * step, 9.15, lane.astype(str), colours, cell)
    sketch.each(sketch.box, ax, lane * step, 11.25, "", colours, cell, 0.8)
    for x, colour in zip(lane * step, colours, strict=True):
        parts = x + step * 0.23 * np.arange(1, 4)
        ax.plot([parts, parts], [9.87, 10.15], color=INK, linewidth=0.5, alpha=0.6)
        ax.plot([x + step * 0.46] * 2, [10.27, 11.13], color=colour, linewidth=0.8)
    sketch.put(ax, 32 * step, 12.5, "column 127", ha="right")
    return fig, data
