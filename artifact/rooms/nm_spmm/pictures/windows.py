"""Fig. 1 and 2: the format, and what a block needs of A."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullLocator

from artifact.drawing import plot, sketch
from artifact.drawing.style import BOUND, INK, MARKER, PUBLISHED, ROWS, RUNGS, WIDTH
from artifact.rooms.nm_spmm import model
from artifact.rooms.nm_spmm.pictures.marks import MARKS
from kernels.formats import nm


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
    small = 8
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
                sketch.put(ax, x - 0.25, edge + 0.5, f"{edge}", ha="right", fontsize=8, alpha=0.7)
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
    sketch.put(ax, left, b.w + 0.75, "framed: one vector in all three", ha="left", va="top", fontsize=8)
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
        raise ValueError(f"There is no step {step} of {depth} rows, a multiple of {b.group}, in {b.k} rows.")
    vectors = np.arange(block * columns, min((block + 1) * columns, b.n)) // b.vector
    vectors = sorted(set(vectors.tolist()))
    if not vectors:
        raise ValueError(f"There is no block {block} of {columns} columns in {b.n} columns.")
    windows = slice(first // b.group * b.keep, -(-last // b.group) * b.keep)
    index = np.asarray(b.index)[windows][:, vectors] - first
    needed = np.zeros((len(vectors), last - first), bool)
    needed[np.arange(len(vectors)), index] = True
    return needed


def working_set(cases: Mapping[str, nm.Nm], columns: int = 128, depth: int = 64, block: int = 0, step: int = 0):
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
        sketch.put(ax, rows, y + 2.6, f"row {step * depth + rows - 1}", ha="right", fontsize=8, alpha=0.7)
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
        for count in (c for c in counts if c <= b.q):
            expected = 1 - (1 - b.keep / b.group) ** count
            rows.append((title, count, 100 * model.needed(b, count), 100 * expected))
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
