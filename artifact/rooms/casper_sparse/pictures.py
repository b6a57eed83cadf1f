"""Pictures of CSR and of what a warp does with it."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BEST, BOUND, INK, ROWS, RUNGS, WIDTH

# ---------------------------------------------------------------- pictures of formats


def csr_picture(csr):
    """A small matrix and its three CSR arrays, one colour per row. csr: has m, k, row_ptr, col_idx
    and val.

    Raises ValueError over 12 rows, 16 columns or 24 nonzeros, where the picture could no longer be
    read.
    """

    def short(value: float) -> str:
        return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.2g}"

    m, k, count = int(csr.m), int(csr.k), len(csr.val)
    if not (1 <= m <= 12 and 1 <= k <= 16 and 1 <= count <= 24):
        raise ValueError(f"A matrix of {m} x {k} with {count} nonzeros is too large or too empty to draw.")
    pointers = [int(p) for p in csr.row_ptr]
    owner = np.repeat(np.arange(m), np.diff(pointers))
    left = k + 4.4
    width = left + max(count, m + 1) + 0.6
    height = max(m + 1.7, 7.6)
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * height / width))
    for row in range(m):
        for column in range(k):
            ax.add_patch(
                Rectangle(
                    (column + 1, row + 1),
                    1,
                    1,
                    fill=False,
                    edgecolor=INK,
                    linewidth=0.5,
                    alpha=0.35,
                )
            )
        sketch.put(ax, 0.75, row + 1.5, f"{row}", ha="right")
    for column in range(k):
        sketch.put(ax, column + 1.5, 0.75, f"{column}", va="bottom")
    sketch.put(ax, k / 2 + 1, m + 1.6, f"A: {m} × {k}")
    rows = []
    for at in range(count):
        row, column, value = int(owner[at]), int(csr.col_idx[at]), float(csr.val[at])
        # Repeated entries share a cell of the matrix, though not a place in the arrays.
        times = int(np.sum((owner == row) & (np.asarray(csr.col_idx) == column)))
        if times == 1 or column not in csr.col_idx[pointers[row] : at]:
            text = short(value) if times == 1 else f"{times}×"
            sketch.box(ax, column + 1, row + 1, text, ROWS[row % len(ROWS)])
        sketch.box(ax, left + at, 4.3, f"{column}", ROWS[row % len(ROWS)])
        sketch.box(ax, left + at, 6.3, short(value), ROWS[row % len(ROWS)])
        sketch.put(ax, left + at + 0.5, 7.65, f"{at}", alpha=0.7)
        rows.append({"position": at, "row": row, "column": column, "value": value})
    for row in range(m + 1):
        sketch.box(ax, left + row, 1, f"{pointers[row]}", ROWS[row % len(ROWS)] if row < m else BOUND)
        # An arrow from a row's pointer to its first nonzero; an empty row has none.
        if row < m and pointers[row] < pointers[row + 1]:
            arrow = ((left + row + 0.5, 2.02), (left + pointers[row] + 0.5, 4.26))
            ax.add_patch(
                FancyArrowPatch(
                    *arrow,
                    arrowstyle="-|>",
                    mutation_scale=7,
                    color=ROWS[row % len(ROWS)],
                    linewidth=1,
                )
            )
    for y, text in ((1.5, "row_ptr"), (4.8, "col_idx"), (6.8, "val")):
        sketch.put(ax, left - 0.3, y, text, ha="right", family="monospace")
    ax.set(xlim=(0, width), ylim=(height + 0.4, 0))
    ax.set_aspect("equal")
    ax.axis("off")
    return fig, pd.DataFrame(rows)


def warp_picture(csr, n: int, row: int | None = None, tile: int = 0):
    """How one warp computes one row of C: chunks of 32 nonzeros, each lane four columns of B and of
    C.

    csr: a CSR matrix; n: columns of B, divisible by 4; row: which row (default: the first whose
    nonzeros need two chunks, else the longest); tile: which group of 128 columns. Raises ValueError
    if these do not exist.
    """
    counts = np.diff(np.asarray(csr.row_ptr, dtype=np.int64))
    if n < 4 or n % 4:
        raise ValueError(f"The published kernel needs a number of columns divisible by 4, not {n}.")
    if not 0 <= tile < -(-n // 128):
        raise ValueError(f"B has {-(-n // 128)} tiles of 128 columns, there is no tile {tile}.")
    if row is None:
        long = np.flatnonzero((counts > 32) & (counts <= 64))
        row = int(long[0]) if long.size else int(counts.argmax())
    if not 0 <= row < csr.m or not counts[row]:
        raise ValueError(f"Row {row} does not exist or is empty.")
    start, count = int(csr.row_ptr[row]), int(counts[row])
    columns = [int(c) for c in csr.col_idx[start : start + count]]
    values = [float(v) for v in csr.val[start : start + count]]
    lanes = min(32, n // 4 - 32 * tile)

    fig, ax = plt.subplots(figsize=(WIDTH, 5.4))
    step = 0.96
    chunks = [range(c, min(c + 32, count)) for c in range(0, min(count, 64), 32)]
    y = 1.0
    sketch.put(
        ax,
        0,
        y - 0.45,
        f"row {row} of A: {count} nonzeros, read in chunks of 32, lane i reads nonzero i",
        ha="left",
    )
    for number, chunk in enumerate(chunks):
        for at in chunk:
            sketch.box(ax, (at % 32) * step, y, "", ROWS[number], height=0.8, width=step * 0.92)
        sketch.put(
            ax,
            32 * step + 0.3,
            y + 0.42,
            f"chunk {number}",
            ha="left",
            color=ROWS[number],
            weight="bold",
        )
        y += 1.0
    if count > 64:
        sketch.put(ax, 0, y + 0.15, f"… and {count - 64} more", ha="left")
        y += 0.6
    y += 0.75
    sketch.put(
        ax,
        0,
        y - 0.45,
        "shared memory of this warp: column and value of the current chunk (chunk 0)",
        ha="left",
    )
    for at in chunks[0]:
        sketch.box(ax, at * step, y, f"{columns[at]}", ROWS[0], width=step * 0.92, height=1.7, rotation=90)
    sketch.put(ax, 32 * step + 0.3, y + 0.85, "sh_col", ha="left", family="monospace")
    y += 1.8
    for at in chunks[0]:
        sketch.box(
            ax,
            at * step,
            y,
            f"{values[at]:.2g}",
            ROWS[0],
            width=step * 0.92,
            height=1.7,
            rotation=90,
        )
    sketch.put(ax, 32 * step + 0.3, y + 0.85, "sh_val", ha="left", family="monospace")
    middle = (16 * step, y + 1.75)
    y += 3.6
    first = columns[0]
    head = (
        "every lane, for each nonzero j:  acc += sh_val[j] · B[sh_col[j]][its four columns]"
        f"   (j = 0: row {first} of B)"
    )
    sketch.put(ax, 0, y - 0.85, head, ha="left")
    ax.add_patch(
        FancyArrowPatch(
            middle,
            (middle[0], y - 1.2),
            arrowstyle="-|>",
            mutation_scale=9,
            color=INK,
            linewidth=0.9,
        )
    )
    low = 128 * tile
    for lane in range(lanes):
        colour = BEST if lane % 2 else RUNGS[1]
        sketch.box(ax, lane * step, y, f"{lane}", colour, width=step * 0.92, size=8)
        for part in range(1, 4):
            x = lane * step + part * step * 0.92 / 4
            ax.plot([x, x], [y + 0.72, y + 1], color=INK, linewidth=0.5, alpha=0.6)
        sketch.box(ax, lane * step, y + 2.1, "", colour, width=step * 0.92, height=0.8)
        ax.plot([lane * step + step * 0.46] * 2, [y + 1.12, y + 1.98], color=colour, linewidth=0.8)
    sketch.put(ax, 32 * step + 0.3, y + 0.5, "lane; one float4 of B", ha="left")
    sketch.put(ax, 32 * step + 0.3, y + 2.5, f"one float4 of C, row {row}", ha="left")
    sketch.put(ax, 0, y + 3.35, f"column {low}", ha="left")
    sketch.put(ax, lanes * step, y + 3.35, f"column {low + 4 * lanes - 1}", ha="right")
    idle = 32 - lanes
    if idle:
        sketch.put(ax, (lanes + 0.3) * step, y + 0.5, f"{idle} lanes idle", ha="left")
    ax.set(xlim=(-0.3, 40.5), ylim=(y + 3.8, 0))
    ax.axis("off")
    data = pd.DataFrame({"nonzero": range(count), "column": columns, "value": values})
    data["chunk"], data["lane"] = data["nonzero"] // 32, data["nonzero"] % 32
    return fig, data
