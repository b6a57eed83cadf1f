"""Pictures of CSR and of what a warp does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BEST, BOUND, INK, ROWS, RUNGS, WIDTH


def csr_picture(csr) -> tuple[Any, pd.DataFrame]:
    """Draw a small matrix and its three CSR arrays, one colour per row; csr: has m, k, row_ptr, col_idx and val."""
    of_row, starts = np.diff(csr.row_ptr), csr.row_ptr.tolist()
    data = pd.DataFrame({"row": np.repeat(range(csr.m), of_row), "column": csr.col_idx, "value": csr.val.astype(float)})
    left = csr.k + 4.4
    width, height = left + max(len(data), csr.m + 1) + 0.6, max(csr.m + 1.7, 7.6)
    colours = [*(ROWS[row % len(ROWS)] for row in range(csr.m)), BOUND]
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * height / width))
    for row, column in np.ndindex(csr.m, csr.k):
        ax.add_patch(Rectangle((column + 1, row + 1), 1, 1, fill=False, edgecolor=INK, linewidth=0.5, alpha=0.35))
    for row in range(csr.m):
        sketch.put(ax, 0.75, row + 1.5, f"{row}", ha="right")
    for column in range(csr.k):
        sketch.put(ax, column + 1.5, 0.75, f"{column}", va="bottom")
    sketch.put(ax, csr.k / 2 + 1, csr.m + 1.6, f"A: {csr.m} × {csr.k}")
    # Repeated entries share a cell of the matrix, though not a place in the arrays.
    for (row, column), values in data.groupby(["row", "column"])["value"]:
        text = sketch.short(values.iloc[0]) if len(values) == 1 else f"{len(values)}×"
        sketch.box(ax, column + 1, row + 1, text, colours[row])
    for at, row, column, value in data.itertuples():
        sketch.box(ax, left + at, 4.3, f"{column}", colours[row])
        sketch.box(ax, left + at, 6.3, sketch.short(value), colours[row])
        sketch.put(ax, left + at + 0.5, 7.65, f"{at}", alpha=0.7)
    for row, start in enumerate(starts):
        sketch.box(ax, left + row, 1, f"{start}", colours[row])
    # An arrow from a row's pointer to its first nonzero; an empty row has none.
    for row in np.flatnonzero(of_row):
        sketch.arrow(ax, (left + row + 0.5, 2.02), (left + starts[row] + 0.5, 4.26), colours[row], linewidth=1)
    for y, name in ((1.5, "row_ptr"), (4.8, "col_idx"), (6.8, "val")):
        sketch.put(ax, left - 0.3, y, name, ha="right", family="monospace")
    ax.set(xlim=(0, width), ylim=(height + 0.4, 0), aspect="equal")
    ax.axis("off")
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
    first = f"(j = 0: row {data['column'][0]} of B)"
    fig, ax = plt.subplots(figsize=(WIDTH, 5.4))
    heads = (
        (0, 0.55, f"row {row} of A: {len(data)} nonzeros, read in chunks of 32, lane i reads nonzero i"),
        (0, 3.3, "shared memory of this warp: column and value of the current chunk (chunk 0)"),
        (0, 8.3, f"every lane, for each nonzero j:  {formula}   {first}"),
        (32 * step + 0.3, 9.65, "lane; one float4 of B"),
        (32 * step + 0.3, 11.65, f"one float4 of C, row {row}"),
        (0, 12.5, "column 0"),
    )
    for x, y, text in heads:
        sketch.put(ax, x, y, text, ha="left")
    for _, chunk, lane in data[["chunk", "lane"]].itertuples():
        sketch.box(ax, lane * step, 1.0 + chunk, "", ROWS[chunk], height=0.8, width=step * 0.92)
    for chunk in data["chunk"].unique():
        named = {"ha": "left", "color": ROWS[chunk], "weight": "bold"}
        sketch.put(ax, 32 * step + 0.3, 1.42 + chunk, f"chunk {chunk}", **named)
    cell = {"width": step * 0.92, "height": 1.7, "rotation": 90}
    for at, column, value in data[["column", "value"]][:32].itertuples():
        sketch.box(ax, at * step, 3.75, f"{column}", ROWS[0], **cell)
        sketch.box(ax, at * step, 5.55, f"{value:.2g}", ROWS[0], **cell)
    for y, name in ((4.6, "sh_col"), (6.4, "sh_val")):
        sketch.put(ax, 32 * step + 0.3, y, name, ha="left", family="monospace")
    sketch.arrow(ax, (16 * step, 7.3), (16 * step, 7.95), INK, mutation_scale=9)
    for lane in range(32):
        x, colour = lane * step, BEST if lane % 2 else RUNGS[1]
        sketch.box(ax, x, 9.15, f"{lane}", colour, width=step * 0.92)
        sketch.box(ax, x, 11.25, "", colour, width=step * 0.92, height=0.8)
        for part in range(1, 4):
            ax.plot([x + part * step * 0.23] * 2, [9.87, 10.15], color=INK, linewidth=0.5, alpha=0.6)
        ax.plot([x + step * 0.46] * 2, [10.27, 11.13], color=colour, linewidth=0.8)
    sketch.put(ax, 32 * step, 12.5, "column 127", ha="right")
    ax.set(xlim=(-0.3, 40.5), ylim=(12.95, 0))
    ax.axis("off")
    return fig, data
