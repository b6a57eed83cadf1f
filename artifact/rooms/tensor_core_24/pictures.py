"""Pictures of 2:4's metadata, drawn from arrays."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from artifact.drawing import sketch
from artifact.drawing.style import BOUND, INK, ROWS, WIDTH
from kernels.formats import half, two_four

How = dict[str, Any]
SMALL: How = {"fontsize": 8, "alpha": 0.7}
PLAIN: How = {"fontsize": 8}
RIGHT: How = {"ha": "right"}
LEFT: How = {"ha": "left"}
WORD = 1.9  #: how wide a word of metadata is drawn
Parts = list[tuple]


def picture(
    size: Sequence[float],
    texts: Iterable[tuple],
    boxes: Iterable[tuple] = (),
    rules: Iterable[tuple] = (),
    frames: Iterable[tuple] = (),
    arrows: Iterable[tuple] = (),
) -> Figure:
    """Draw texts, (x, y, text, how) each; cells, (x, y, text, colour, width, height); thick lines between them,
    (xs, ys); frames, (x, y, width, height, colour, how); and arrows, (start, end, colour).

    size: inches high, and where the axes end: left, right, below and above, y growing downwards.
    """
    height, left, right, below, above = size
    fig, ax = plt.subplots(figsize=(WIDTH, height))
    ax.set(xlim=(left, right), ylim=(below, above))
    ax.axis("off")
    for x, y, text, how in texts:
        sketch.put(ax, x, y, f"{text}", **how)
    for x, y, text, colour, wide, high in boxes:
        sketch.box(ax, x, y, text, colour, width=wide, height=high)
    for xs, ys in rules:
        sketch.rule(ax, xs, ys, True)
    for x, y, wide, high, colour, how in frames:
        ax.add_patch(Rectangle((x, y), wide, high, **({"fill": False, "edgecolor": colour, "linewidth": 1.8} | how)))
    for start, end, colour in arrows:
        sketch.arrow(ax, start, end, colour)
    return fig


def grid(xs: Iterable[float], ys: Iterable[float], across: Sequence[float], down: Sequence[float]) -> Parts:
    """Return lines at `xs`, as long as `down`, and at `ys`, as long as `across`."""
    return [((x, x), down) for x in xs] + [(across, (y, y)) for y in ys]


def meta_picture(a: two_four.TwoFour):
    """Draw the first sixteen columns of the first row of A, as the source has them in section Meta: dense values, the
    stored ones, their positions as two bits, and the uint16 of metadata; a colour for each group of four.

    The data behind it: a row for each stored value: group, column, position, bits, value, meta (hexadecimal, of all).
    """
    meta, at = int(a.meta[0, 0]), np.arange(8)
    position = meta >> 2 * at & 3
    data = pd.DataFrame({"group": at // 2, "column": 4 * (at // 2) + position, "position": position})
    values = half.from_bits(np.asarray(a.val[0, :8]), a.dtype).astype(float)
    data = data.assign(bits=[f"{p:02b}" for p in position], value=values, meta=f"0x{meta:04X}")
    dense, stored, index, bits = 0.0, 2.6, 4.2, 6.8
    heads = {dense: "A, row 0", stored: "val", index: "positions", bits: f"meta 0x{meta:04X}"}
    texts = [
        *((-0.3, y + 0.5, head, RIGHT) for y, head in heads.items()),
        *((c + 0.5, dense - 0.4, c, SMALL) for c in range(16)),
        *((c + 0.5, bits + 1.4, 15 - c, SMALL) for c in range(16)),
        *((c + 0.5, dense + 0.5, "0", {"alpha": 0.6}) for c in set(range(16)) - set(data["column"])),
        *((14 - 4 * g, bits + 2, f"group {g}", {"color": ROWS[g], "weight": "bold"}) for g in range(4)),
        (-0.3, bits + 1.4, "bit", SMALL | RIGHT),
        (-0.3, dense - 0.4, "column", SMALL | RIGHT),
    ]
    boxes: Parts = []
    arrows: Parts = [((5 + 2 * g, index + 1.05), (14 - 4 * g, bits - 0.05), ROWS[g]) for g in range(4)]
    for i, r in enumerate(data.itertuples()):
        # The lower index in the lower bits, group 0 in the lowest.
        cells = [(15 - 2 * i - bit, bits, f"{r.position >> bit & 1}") for bit in range(2)]
        value = sketch.short(r.value)
        cells += [(r.column, dense, value), (4 + i, stored, value), (4 + i, index, r.bits)]
        boxes += [(*cell, ROWS[r.group], 1, 1) for cell in cells]
        arrows.append(((r.column + 0.5, dense + 1.05), (4.5 + i, stored - 0.05), ROWS[r.group]))
    rules = [rule for y in (dense, bits) for rule in grid(range(0, 17, 4), (y, y + 1), (0, 16), (y, y + 1))]
    return picture((4.6, -3.6, 16.2, bits + 2.5, dense - 0.9), texts, boxes, rules, arrows=arrows), data


def metadata_map(meta: np.ndarray) -> pd.DataFrame:
    """Return where `two_four.swizzle` puts each uint16 of the metadata (rows, 4) of 64 columns of A, and who reads it:
    row, column of meta; swizzled_row, swizzled_column; register, lane and half ("low" or "high") of `ldmatrix`;
    selector of the mma.sp; the word in hexadecimal. Found by swizzling numbers, not by the formula."""
    rows = len(meta)
    swizzled = two_four.swizzle(np.arange(rows * 4, dtype=np.uint16).reshape(rows, 4), rows, 64)
    y, x = np.indices(swizzled.shape).reshape(2, -1)
    row, column = np.divmod(swizzled.ravel().astype(int), 4)
    data = pd.DataFrame({"row": row, "column": column, "swizzled_row": y, "swizzled_column": x})
    data = data.assign(register=y // 8, lane=4 * (y % 8) + x // 2, half=np.where(x % 2, "high", "low"))
    data = data.assign(selector=column // 2, meta=[f"0x{word:04X}" for word in meta[row, column]])
    return data.sort_values(["row", "column"], ignore_index=True)


def _array(meta: np.ndarray) -> tuple[Parts, Parts, Parts]:
    """Return texts, cells and lines of the metadata of 16 x 64 of A as it lies in memory, a colour for each column."""
    texts = [
        *((-0.2, row + 0.5, row, SMALL | RIGHT) for row in range(16)),
        *((WORD * (c + 0.5), -0.5, f"{16 * c}–{16 * c + 15}", SMALL) for c in range(4)),
        *((WORD * (1 + 2 * step), 16.7, f"k32 step {step}", {}) for step in range(2)),
        (2 * WORD, -1.5, "meta, rows × columns of A", {}),
    ]
    boxes = [(WORD * c, r, f"{word:04X}", ROWS[c], WORD, 1) for (r, c), word in np.ndenumerate(meta)]
    return texts, boxes, grid((0, 2 * WORD, 4 * WORD), (0, 8, 16), (0, 4 * WORD), (0, 16))


def lanes_picture(meta: np.ndarray):
    """Draw which lane of a warp holds which metadata for mma.sp.m16n8k32 (the source's second figure of section
    "mma.sp PTX Instructions", and the use of both selectors in section Metadata).

    meta: uint16 (16, 4), the metadata of 16 rows and 64 columns of A, two instructions along K. Left it lies in memory;
    then the registers of the lanes for the first instruction, with selector 0, and for the second, with selector 1;
    lanes that the instruction does not look at are hatched. The data behind it is `metadata_map`.
    """
    data, (texts, boxes, rules), wide, idle = metadata_map(meta), _array(meta), 2.9, []
    words = data.pivot(index="lane", columns="half", values="meta")
    for selector, which in enumerate(("first", "second")):
        left = 4 * WORD + 2.2 + selector * (4 * wide + 1.6)
        texts += [
            (left + 2 * wide, -1.5, f"selector {selector}: {which} instruction", {}),
            (left + 2 * wide, 16.7, "register: row g + 8, row g", {}),
            *((left + wide * (t + 0.5), -0.5, f"4g+{t}", SMALL) for t in range(4)),
        ]
        for lane, high, low in words.itertuples():
            g, t = divmod(lane, 4)
            x, y, middle = left + wide * t, 2 * g, left + wide * (t + 0.5)
            if t // 2 == selector:
                boxes.append((x, y, "", ROWS[t], wide, 2))
                texts += [
                    (middle, y + 0.5, f"lane {lane}", SMALL),
                    (middle, y + 1.4, f"{high[2:]}\u2009{low[2:]}", PLAIN),
                ]
            else:
                idle.append((x, y, wide, 2, BOUND, {"linewidth": 0.6, "hatch": "////", "alpha": 0.35}))
                texts.append((middle, y + 1, lane, SMALL))
    return picture((5.0, -1.2, 4 * WORD + 4.0 + 8 * wide, 17.4, -2.2), texts, boxes, rules, idle), data


def swizzle_picture(meta: np.ndarray, follow: int = 1):
    """Draw how the metadata of 16 rows and 64 columns of A becomes an 8 x 8 matrix for `ldmatrix` (the source's figures
    of section Metadata): left in memory, right swizzled, a lane for each pair of cells.

    meta: uint16 (16, 4); follow: the row of the matrix that arrows lead to. The data behind it is `metadata_map`.
    """
    data, (texts, boxes, rules), left, top, cell, high = metadata_map(meta), _array(meta), 12.6, 1.6, 1.75, 1.5
    right, bottom, y = left + 8 * cell, top + 8 * high, top + high * follow
    places = zip(
        left + cell * data["swizzled_column"], top + high * data["swizzled_row"], data.itertuples(), strict=True
    )
    boxes += [(x, down, p.meta[2:], ROWS[p.column], cell, high) for x, down, p in places]
    lines = [(row, top + high * (row + 0.5)) for row in range(8)]
    texts += [
        *((left - 0.2, middle, row, SMALL | RIGHT) for row, middle in lines),
        *((right + 0.25, middle, f"lanes {4 * row}–{4 * row + 3}", PLAIN | LEFT) for row, middle in lines),
        *((left + cell * (c + 0.5), top - 0.5, ("row g", "row g+8")[c % 2], SMALL) for c in range(8)),
        *((left + cell * (2 * t + 1), bottom + 0.6, f"lane 4g+{t}", SMALL) for t in range(4)),
        *((left + cell * (4 * s + 2), bottom + 1.6, f"selector {s}", {}) for s in range(2)),
        (left + 4 * cell, top - 1.5, "swizzled: a row is 16 bytes of an 8 × 8 matrix", {}),
    ]
    rules += grid(left + 2 * cell * np.arange(5), (top, bottom), (left, right), (top, bottom))
    two = {follow: 0.3, follow + 8: 0.7}  # rows of 8 bytes, which become one of 16
    frames: Parts = [(left, y, 8 * cell, high, INK, {}), *((0, row, 4 * WORD, 1, INK, {}) for row in two)]
    arrows = [((4 * WORD + 0.1, row + 0.5), (left - 0.9, y + high * part), INK) for row, part in two.items()]
    return picture((4.8, -1.2, right + 4.2, 17.4, -2.2), texts, boxes, rules, frames, arrows), data


def warp_metadata(meta: np.ndarray):
    """Draw the metadata of a warp tile, 64 rows and 64 columns of A: as it lies in memory, and swizzled to 32 rows of
    16 bytes, one `ldmatrix.x4` (the source's last figure of section Metadata).

    meta: uint16 (64, 4). A colour for each register, that is for 16 rows of A. The data behind it is `metadata_map`.
    """
    data, wide, left, cell = metadata_map(meta), 2.6, 17.0, 2.6
    right = left + 8 * cell
    texts: Parts = [
        (2 * wide, -2, "meta: 64 × 4 uint16", {}),
        (left + 4 * cell, -2, "swizzled: 32 rows of 8 uint16, read by one ldmatrix.x4", {}),
        (2 * wide, 66, "stronger: rows 8–15 of each 16", PLAIN),
        (left + 4 * cell, 66, "each lane gets a cell pair of every register", PLAIN),
    ]
    frames: Parts = []
    arrows: Parts = []
    for p in data.itertuples():
        x, y, strong = left + cell * p.swizzled_column, 2 * p.swizzled_row, 0.2 if p.row % 16 < 8 else 0.5
        how = {"fill": True, "facecolor": ROWS[p.register], "linewidth": 0.3, "alpha": strong}
        frames += [(wide * p.column, p.row, wide, 1, ROWS[p.register], how), (x, y, cell, 2, ROWS[p.register], how)]
        texts.append((x + cell / 2, y + 1, p.meta[2:], PLAIN))
    for r, colour in enumerate(ROWS[:4]):
        texts += [
            (-0.4, 16 * r + 8, f"rows {16 * r}–{16 * r + 15}", RIGHT),
            (right + 0.4, 16 * r + 8, f"register {r}", LEFT | {"weight": "bold"}),
            (left - 0.4, 16 * r + 8, f"lanes {8 * r}–{8 * r + 7}\ngive addresses", RIGHT | PLAIN),
        ]
        frames += [(x, 16 * r, w, 16, colour, {"linewidth": 1.6}) for x, w in ((0, 4 * wide), (left, 8 * cell))]
        arrows.append(((4 * wide + 0.2, 16 * r + 3), (left - 0.2, 16 * r + 3), colour))
    return picture((6.6, -6.5, right + 6.5, 67.5, -3.5), texts, frames=frames, arrows=arrows), data
