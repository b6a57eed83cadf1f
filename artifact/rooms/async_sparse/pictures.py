"""Fig. 2: one sparse matrix in both of the source's formats."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.collections import PatchCollection
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BOUND, INK, ROWS, WIDTH
from kernels import splitmix
from kernels.formats import bcsr, csr, reorder, wcsr

LARGEST = 96  #: rows and columns that can be told apart
_GAP, _TOP, _BELOW = 10, 9, 13  # cells: between matrices, above them and below them


def mesh(side: int = 8, seed: int = 0) -> csr.Csr:
    """Neighbours and selves on a grid of side x side points, which are numbered at random.

    Symmetric, (side², side²), five non-zeros in most rows, all 1; the same for the same arguments.
    """
    draws = splitmix.random_u32(splitmix.key(seed, 0), splitmix.positions(range(side * side)))
    number = np.argsort(draws, kind="stable").reshape(side, side)
    pairs = [(number, number)]
    for one, other in ((number[1:], number[:-1]), (number[:, 1:], number[:, :-1])):
        pairs += [(one, other), (other, one)]
    row, col = (np.concatenate([pair[i].ravel() for pair in pairs]) for i in range(2))
    place = np.sort(row * side * side + col)
    points = side * side
    return csr.Csr(
        points,
        points,
        csr.offsets(place, points, points),
        (place % points).astype(np.int32),
        np.ones(place.size, np.float32),
    )


def examples() -> dict[str, csr.Csr]:
    """A small mesh whose points are numbered at random, and after reverse Cuthill-McKee."""
    a = mesh()
    return {
        "a mesh as it comes": a,
        "after reverse Cuthill-McKee": reorder.permuted(a, reorder.rcm(a)[0]),
    }


def corner(a: csr.Csr, size: int = 64, first: int = 0) -> csr.Csr:
    """Rows and columns `first` to first + size - 1 of a matrix on the host, where it has them."""
    part = csr.to_scipy(a)[first : first + size, first : first + size]
    return csr.from_scipy(part)


def formats_picture(cases: Mapping[str, csr.Csr], block: int = 16, window: int = 16, pad: int = 8):
    """Fig. 2: matrices, each as it is, in BCSR and in WCSR, with what both store and their fill ratios.

    cases: title -> matrix on the host, such as `examples()`. A colour per row of blocks, or window;
    what is tinted is stored, what is hatched is WCSR's padding. The data behind it: one row per
    non-zero: case, row, column, block (its place in `val` of BCSR), window, packed (its column in
    `val` of WCSR). Raises ValueError over 96 rows or columns, where non-zeros could not be told
    apart, and for blocks or windows that the formats do not have.
    """
    for title, a in cases.items():
        if not (1 <= a.m <= LARGEST and 1 <= a.k <= LARGEST and a.nnz):
            raise ValueError(
                f"{title} is {a.m} x {a.k} with {a.nnz} non-zeros, but a picture takes 1 to {LARGEST} "
                "rows and columns and at least one non-zero"
            )
    blocked = {title: bcsr.from_csr(a, block=block) for title, a in cases.items()}
    windowed = {title: wcsr.from_csr(a, window=window, pad=pad) for title, a in cases.items()}
    wide = max(b.block_columns * b.block[1] for b in blocked.values())
    tall = {title: max(-(-a.m // unit) * unit for unit in (block, window)) for title, a in cases.items()}
    packed = max(int(np.diff(w.row_ptr).max()) for w in windowed.values())
    lefts = (0, wide + _GAP, 2 * (wide + _GAP))
    width, height = lefts[2] + packed, sum(rows + _TOP + _BELOW for rows in tall.values())
    fig, ax = plt.subplots(figsize=(WIDTH, WIDTH * (height - 2) / (width + 4)))
    top, data = _TOP, []
    for title, a in cases.items():
        b, w = blocked[title], windowed[title]
        rows = _places(a, b, w)
        _matrix(ax, lefts[0], top, a, rows, block)
        _blocks(ax, lefts[1], top, b, rows)
        _windows(ax, lefts[2], top, w, rows)
        blocks = f"{b.blocks} of {b.block_rows * b.block_columns} blocks of {block} × {block}"
        columns = f"{w.columns} columns of {window}, padded to {pad}"
        _say(ax, lefts[0], top, (title, f"{a.m} × {a.k}, {len(rows)} non-zeros"))
        _say(ax, lefts[1], top, ("BCSR", blocks), top + tall[title], _feet(b))
        _say(ax, lefts[2], top, ("WCSR", columns), top + tall[title], _feet(w))
        data.append(rows.assign(case=title)[["case", *rows.columns]])
        top += tall[title] + _TOP + _BELOW
    ax.set(xlim=(-2, width + 2), ylim=(top - _TOP - 3, -1))
    ax.set_aspect("equal")
    ax.axis("off")
    return fig, pd.concat(data, ignore_index=True)


def _places(a: csr.Csr, b: bcsr.Bcsr, w: wcsr.Wcsr) -> pd.DataFrame:
    """Where each non-zero is: row, column, block, window, packed; repeated entries once."""
    place = csr.distinct(csr.rows(a) * a.k + a.col_idx)
    row, column = place // a.k, place % a.k
    b_row, b_col = b.block
    blocks = bcsr.block_rows_of(b) * b.block_columns + b.col_idx
    block = np.searchsorted(blocks, row // b_row * b.block_columns + column // b_col)
    # Padding goes where no column is, behind all of its window.
    packed = csr.owners(w.row_ptr, w.columns) * (a.k + 1) + np.where(w.col_idx < 0, a.k, w.col_idx)
    window = row // w.window
    return pd.DataFrame(
        {
            "row": row,
            "column": column,
            "block": block,
            "window": window,
            "packed": np.searchsorted(packed, window * (a.k + 1) + column),
        }
    )


def _matrix(ax, left: float, top: float, a: csr.Csr, rows: pd.DataFrame, block: int) -> None:
    _dots(ax, left + rows["column"], top + rows["row"])
    _frame(ax, left, top, a.k, a.m)
    for edge in range(block, a.m, block):
        sketch.rule(ax, (left, left + a.k), (top + edge, top + edge), False)
    for edge in range(block, a.k, block):
        sketch.rule(ax, (left + edge, left + edge), (top, top + a.m), False)


def _blocks(ax, left: float, top: float, b: bcsr.Bcsr, rows: pd.DataFrame) -> None:
    b_row, b_col = b.block
    for row, col in zip(bcsr.block_rows_of(b), b.col_idx, strict=True):
        x, y = left + col * b_col, top + row * b_row
        sketch.box(ax, x, y, "", ROWS[row % len(ROWS)], width=b_col, height=b_row)
    _dots(ax, left + rows["column"], top + rows["row"])
    _frame(ax, left, top, b.block_columns * b_col, b.block_rows * b_row)


def _windows(ax, left: float, top: float, w: wcsr.Wcsr, rows: pd.DataFrame) -> None:
    for i in range(w.windows):
        first, end = int(w.row_ptr[i]), int(w.row_ptr[i + 1])
        used = int((w.col_idx[first:end] >= 0).sum())
        y, colour = top + i * w.window, ROWS[i % len(ROWS)]
        if used:
            sketch.box(ax, left, y, "", colour, width=used, height=w.window)
        if end - first > used:
            look = {"fill": False, "edgecolor": BOUND, "linewidth": 0.5, "hatch": "//////"}
            place = (left + used, y), end - first - used, w.window
            ax.add_patch(Rectangle(*place, alpha=0.7, **look))
    begin = np.asarray(w.row_ptr)[rows["window"]]
    _dots(ax, left + rows["packed"] - begin, top + rows["row"])


def _dots(ax, x, y) -> None:
    cells = [Rectangle(at, 1, 1) for at in zip(x, y, strict=True)]
    ax.add_collection(PatchCollection(cells, facecolor=INK, linewidth=0))


def _frame(ax, left: float, top: float, width: int, height: int) -> None:
    ax.add_patch(Rectangle((left, top), width, height, fill=False, edgecolor=INK, linewidth=1))


def _feet(stored) -> tuple[str, str]:
    """row_ptr, which few rows keep short, and the fill ratio with its terms."""
    row_ptr = "row_ptr " + " ".join(map(str, stored.row_ptr.tolist()))
    return row_ptr, f"fill {stored.nnz} / {stored.val.size} = {stored.fill_ratio:.1%}"


def _say(ax, left: float, top: float, head: tuple[str, str], bottom: float = 0, feet=()) -> None:
    """A title and a line above a matrix, and what is below it."""
    sketch.put(ax, left, top - 5.6, head[0], ha="left", weight="bold")
    sketch.put(ax, left, top - 2, head[1], ha="left", fontsize=8)
    for line, text in enumerate(feet):
        sketch.put(ax, left, bottom + 2.6 + 3.8 * line, text, ha="left", fontsize=8)
