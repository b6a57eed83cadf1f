"""Pictures of 2:4's metadata."""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BOUND, INK, ROWS, WIDTH
from kernels.formats import two_four

# ---------------------------------------------------------------- pictures of the format


def meta_picture(a: two_four.TwoFour, row: int = 0, first: int = 0):
    """Sixteen columns of one row of A, from the columns `first` on, as the source's section Meta has
    them: the dense values, the stored ones, their positions as two bits, and the uint16 of metadata.

    A colour per group of four. The data behind it: one row per stored value: group, column,
    position, bits, value, meta (hexadecimal, of all). Raises ValueError where A has no such columns.
    """
    if not (0 <= row < a.m and first % 16 == 0 and 0 <= first < a.k_pad):
        raise ValueError(
            f"There is no row {row} with sixteen columns from {first} on, a multiple of 16, in a "
            f"matrix of {a.m} x {a.k}."
        )
    block = first // 16
    meta = int(a.meta[row, block])
    values = two_four.from_bits(np.asarray(a.val[row, 8 * block : 8 * block + 8]), a.dtype)
    rows = []
    for at, value in enumerate(values):
        group = at // 2
        position = meta >> 2 * at & 3
        rows.append(
            {
                "group": group,
                "column": first + 4 * group + position,
                "position": position,
                "bits": f"{position:02b}",
                "value": float(value),
                "meta": f"0x{meta:04X}",
            }
        )
    fig, ax = plt.subplots(figsize=(WIDTH, 4.6))
    left, step = 4.0, 1.0
    dense, stored, index, bits = 0.0, 2.6, 4.2, 6.8
    for column in range(16):
        sketch.put(ax, column + 0.5, dense - 0.4, f"{first + column}", fontsize=8, alpha=0.7)
        if not any(r["column"] == first + column for r in rows):
            sketch.put(ax, column + 0.5, dense + 0.5, "0", alpha=0.6)
        sketch.put(ax, column + 0.5, bits + 1.4, f"{15 - column}", fontsize=8, alpha=0.7)
    for at, r in enumerate(rows):
        colour = ROWS[r["group"]]
        x = left + at * step
        column = r["column"] - first
        sketch.box(ax, column, dense, sketch.short(r["value"]), colour, size=8)
        sketch.box(ax, x, stored, sketch.short(r["value"]), colour, size=8)
        sketch.box(ax, x, index, r["bits"], colour, size=8.5)
        sketch.arrow(ax, (column + 0.5, dense + 1.05), (x + 0.5, stored - 0.05), colour)
        for bit in range(2):  # the lower index in the lower bits, group 0 in the lowest
            cell = 15 - 2 * at - bit
            sketch.box(ax, cell, bits, f"{r['position'] >> bit & 1}", colour, size=8.5)
    for group in range(4):
        colour = ROWS[group]
        start = (left + 2 * group + 1, index + 1.05)
        sketch.arrow(ax, start, (16 - 4 * group - 2, bits - 0.05), colour)
        middle = 16 - 4 * group - 2
        sketch.put(ax, middle, bits + 2.0, f"group {group}", color=colour, weight="bold")
    for edge in range(5):
        sketch.rule(ax, (4 * edge, 4 * edge), (dense, dense + 1), True)
        sketch.rule(ax, (4 * edge, 4 * edge), (bits, bits + 1), True)
    for y in (dense, dense + 1, bits, bits + 1):
        sketch.rule(ax, (0, 16), (y, y), True)
    for y, text in (
        (dense, f"A, row {row}"),
        (stored, "val"),
        (index, "positions"),
        (bits, f"meta 0x{meta:04X}"),
    ):
        sketch.put(ax, -0.3, y + 0.5, text, ha="right")
    sketch.put(ax, -0.3, bits + 1.4, "bit", ha="right", fontsize=8, alpha=0.7)
    sketch.put(ax, -0.3, dense - 0.4, "column", ha="right", fontsize=8, alpha=0.7)
    ax.set(xlim=(-3.6, 16.2), ylim=(bits + 2.5, dense - 0.9))
    ax.axis("off")
    return fig, pd.DataFrame(rows)


def metadata_map(rows: int = 16) -> pd.DataFrame:
    """Where `two_four.swizzle` puts each uint16 of the metadata of `rows` x 64 of A, and who reads it:
    row, column of meta; swizzled_row, swizzled_column; register, lane and half ("low" or "high") of
    `ldmatrix`; selector of the mma.sp. Found by swizzling numbers, not by the formula."""
    numbers = np.arange(rows * 4, dtype=np.uint16).reshape(rows, 4)
    swizzled = two_four.swizzle(numbers, rows, 64)
    found = []
    for (y, x), number in np.ndenumerate(swizzled):
        row, column = divmod(int(number), 4)
        found.append(
            {
                "row": row,
                "column": column,
                "swizzled_row": y,
                "swizzled_column": x,
                "register": y // 8,
                "lane": 4 * (y % 8) + x // 2,
                "half": "high" if x % 2 else "low",
                "selector": column // 2,
            }
        )
    return pd.DataFrame(found).sort_values(["row", "column"], ignore_index=True)


def _of_rows(meta, rows: int) -> tuple[np.ndarray, pd.DataFrame]:
    meta = np.asarray(meta)
    if meta.shape != (rows, 4) or meta.dtype != np.uint16:
        raise ValueError(f"The picture is of metadata of {rows} x 4 uint16, not of {meta.shape} {meta.dtype}.")
    data = metadata_map(rows)
    hexadecimal = [f"0x{meta[r.row, r.column]:04X}" for r in data.itertuples()]
    return meta, data.assign(meta=hexadecimal)


def _array(ax, meta: np.ndarray, x: float, y: float, wide: float) -> None:
    """The metadata of 16 x 64 of A as it lies in memory, a colour per column."""
    for (row, column), value in np.ndenumerate(meta):
        colour = ROWS[column]
        sketch.box(ax, x + wide * column, y + row, f"{value:04X}", colour, width=wide, size=8)
    for row in range(16):
        sketch.put(ax, x - 0.2, y + row + 0.5, f"{row}", ha="right", fontsize=8, alpha=0.7)
    for edge in (0, 2, 4):
        sketch.rule(ax, (x + wide * edge,) * 2, (y, y + 16), True)
    for edge in (0, 8, 16):
        sketch.rule(ax, (x, x + 4 * wide), (y + edge,) * 2, True)
    for column in range(4):
        head = f"{16 * column}–{16 * column + 15}"
        sketch.put(ax, x + wide * (column + 0.5), y - 0.5, head, fontsize=8, alpha=0.7)
    for half in range(2):
        text = f"k32 step {half}"
        sketch.put(ax, x + wide * (2 * half + 1), y + 16.7, text)
    sketch.put(ax, x + 2 * wide, y - 1.5, "meta, rows × columns of A")


def lanes_picture(meta):
    """Which lane of a warp holds which metadata for mma.sp.m16n8k32 (the source's second figure of
    section "mma.sp PTX Instructions", and the use of both selectors in section Metadata).

    meta: uint16 (16, 4), the metadata of 16 rows and 64 columns of A, two instructions along K. Left
    it lies in memory; then the registers of the lanes for the first instruction, with selector 0,
    and for the second, with selector 1; lanes that the instruction does not look at are hatched. The
    data behind it is `metadata_map` with the values. Raises ValueError for another shape.
    """
    meta, data = _of_rows(meta, 16)
    fig, ax = plt.subplots(figsize=(WIDTH, 5.0))
    wide, gap, lane_wide = 1.9, 2.2, 2.9
    _array(ax, meta, 0, 0, wide)
    for selector in range(2):
        left = 4 * wide + gap + selector * (4 * lane_wide + 1.6)
        title = f"selector {selector}: " + ("first instruction", "second instruction")[selector]
        sketch.put(ax, left + 2 * lane_wide, -1.5, title)
        for t in range(4):
            sketch.put(ax, left + lane_wide * (t + 0.5), -0.5, f"4g+{t}", fontsize=8, alpha=0.7)
        for lane in range(32):
            g, t = divmod(lane, 4)
            x, y = left + lane_wide * t, 2 * g
            held = data[data["lane"] == lane].set_index("half")
            used = held["selector"].iloc[0] == selector
            if not used:
                _rest(ax, x, y, lane_wide)
                sketch.put(ax, x + lane_wide / 2, y + 1, f"{lane}", fontsize=8, alpha=0.6)
                continue
            sketch.box(ax, x, y, "", ROWS[t], width=lane_wide, height=2)
            sketch.put(ax, x + lane_wide / 2, y + 0.5, f"lane {lane}", fontsize=8, alpha=0.75)
            value = held.loc["high", "meta"][2:] + "\u2009" + held.loc["low", "meta"][2:]
            sketch.put(ax, x + lane_wide / 2, y + 1.4, value, fontsize=8)
        sketch.put(ax, left + 2 * lane_wide, 16.7, "register: row g + 8, row g")
    right = 4 * wide + gap + 8 * lane_wide + 1.6
    ax.set(xlim=(-1.2, right + 0.2), ylim=(17.4, -2.2))
    ax.axis("off")
    return fig, data


def _rest(ax, x: float, y: float, wide: float) -> None:
    """A lane that is not looked at."""
    how = {"fill": False, "edgecolor": BOUND, "linewidth": 0.6, "hatch": "////", "alpha": 0.35}
    ax.add_patch(Rectangle((x, y), wide, 2, **how))


def swizzle_picture(meta, follow: int = 1):
    """How the metadata of 16 rows and 64 columns of A becomes an 8 x 8 matrix for `ldmatrix` (the
    source's figures of section Metadata): left in memory, right swizzled, a lane per pair of cells.

    meta: uint16 (16, 4); follow: which row g of the matrix is followed by arrows. The data behind it
    is `metadata_map` with the values. Raises ValueError for another shape, or for no such row.
    """
    meta, data = _of_rows(meta, 16)
    if not 0 <= follow < 8:
        raise ValueError(f"The matrix has the rows 0 to 7, there is no row {follow}.")
    swizzled = two_four.swizzle(meta, 16, 64)
    fig, ax = plt.subplots(figsize=(WIDTH, 4.8))
    wide, left, top, cell, high = 1.9, 12.6, 1.6, 1.75, 1.5
    _array(ax, meta, 0, 0, wide)
    for place in data.itertuples():
        x = left + cell * place.swizzled_column
        y = top + high * place.swizzled_row
        text = f"{swizzled[place.swizzled_row, place.swizzled_column]:04X}"
        sketch.box(ax, x, y, text, ROWS[place.column], width=cell, height=high, size=8)
    for row in range(8):
        y = top + high * row
        sketch.put(ax, left - 0.2, y + high / 2, f"{row}", ha="right", fontsize=8, alpha=0.7)
        lanes = f"lanes {4 * row}–{4 * row + 3}"
        sketch.put(ax, left + 8 * cell + 0.25, y + high / 2, lanes, ha="left", fontsize=8)
    for edge in range(0, 9, 2):
        sketch.rule(ax, (left + cell * edge,) * 2, (top, top + 8 * high), True)
    for edge in range(9):
        sketch.rule(ax, (left, left + 8 * cell), (top + high * edge,) * 2, edge in (0, 8))
    for column in range(8):
        half = ("row g", "row g+8")[column % 2]
        sketch.put(ax, left + cell * (column + 0.5), top - 0.5, half, fontsize=8, alpha=0.7)
    for t in range(4):
        text = f"lane 4g+{t}"
        sketch.put(ax, left + cell * (2 * t + 1), top + 8 * high + 0.6, text, fontsize=8, alpha=0.8)
    for selector in range(2):
        text = f"selector {selector}"
        sketch.put(ax, left + cell * (4 * selector + 2), top + 8 * high + 1.6, text)
    sketch.put(ax, left + 4 * cell, top - 1.5, "swizzled: a row is 16 bytes of an 8 × 8 matrix")
    # The two rows of 8 bytes that become one row of 16.
    for row in (follow, follow + 8):
        frame = Rectangle((0, row), 4 * wide, 1, fill=False, edgecolor=INK, linewidth=1.8)
        ax.add_patch(frame)
        end = (left - 0.9, top + high * (follow + (0.3 if row == follow else 0.7)))
        sketch.arrow(ax, (4 * wide + 0.1, row + 0.5), end, INK)
    frame = (left, top + high * follow), 8 * cell, high
    ax.add_patch(Rectangle(*frame, fill=False, edgecolor=INK, linewidth=1.8))
    ax.set(xlim=(-1.2, left + 8 * cell + 4.2), ylim=(17.4, -2.2))
    ax.axis("off")
    return fig, data


def warp_metadata(meta):
    """The metadata of a warp tile, 64 rows and 64 columns of A: as it lies in memory, and swizzled to
    32 rows of 16 bytes, one `ldmatrix.x4` (the source's last figure of section Metadata).

    meta: uint16 (64, 4). A colour per register, that is per 16 rows of A. The data behind it is
    `metadata_map` with the values. Raises ValueError for another shape.
    """
    meta, data = _of_rows(meta, 64)
    fig, ax = plt.subplots(figsize=(WIDTH, 6.6))
    wide, left, cell = 2.6, 17.0, 2.6
    for place in data.itertuples():
        colour = ROWS[place.register]
        more = {"facecolor": colour, "linewidth": 0.3, "edgecolor": colour}
        alpha = 0.2 if place.row % 16 < 8 else 0.5
        ax.add_patch(Rectangle((wide * place.column, place.row), wide, 1, alpha=alpha, **more))
        at = (left + cell * place.swizzled_column, 2 * place.swizzled_row)
        ax.add_patch(Rectangle(at, cell, 2, alpha=alpha, **more))
        text = place.meta[2:]
        sketch.put(ax, at[0] + cell / 2, at[1] + 1, text, fontsize=8)
    for register in range(4):
        y, colour = 16 * register, ROWS[register]
        for x, width in ((0, 4 * wide), (left, 8 * cell)):
            ax.add_patch(Rectangle((x, y), width, 16, fill=False, edgecolor=colour, linewidth=1.6))
        sketch.put(ax, -0.4, y + 8, f"rows {y}–{y + 15}", ha="right")
        sketch.put(ax, left + 8 * cell + 0.4, y + 8, f"register {register}", ha="left", weight="bold")
        lanes = f"lanes {8 * register}–{8 * register + 7}\ngive addresses"
        sketch.put(ax, left - 0.4, y + 8, lanes, ha="right", fontsize=8)
        sketch.arrow(ax, (4 * wide + 0.2, y + 3), (left - 0.2, y + 3), colour)
    sketch.put(ax, 2 * wide, -2, "meta: 64 × 4 uint16")
    sketch.put(ax, left + 4 * cell, -2, "swizzled: 32 rows of 8 uint16, read by one ldmatrix.x4")
    sketch.put(ax, 2 * wide, 66, "stronger: rows 8–15 of each 16", fontsize=8)
    sketch.put(ax, left + 4 * cell, 66, "each lane gets a cell pair of every register", fontsize=8)
    ax.set(xlim=(-6.5, left + 8 * cell + 6.5), ylim=(67.5, -3.5))
    ax.axis("off")
    return fig, data
