"""Pictures of 2:4's metadata, drawn from arrays."""

from typing import Any

import numpy as np
import pandas as pd

from artifact.drawing import sketch
from artifact.drawing.sketch import FAINT, THICK, Mark, box, frame, pointer, put, segment
from artifact.drawing.style import BOUND, INK, ROWS
from kernels.formats import half, two_four

#: How words are written.
PLAIN: dict[str, Any] = {"fontsize": 8}
RIGHT, LEFT = {"ha": "right"}, {"ha": "left"}
COLOURS = np.array(ROWS)
WORD = 1.9  #: how wide a word of metadata is drawn


def grid(xs: Any, ys: Any, across: Any, down: Any) -> list[Mark]:
    """Return thick lines at `xs`, as long as `down`, and at `ys`, as long as `across`."""
    return [(segment, xs, down[0], xs, down[1], THICK), (segment, across[0], ys, across[1], ys, THICK)]


def meta_picture(a: two_four.TwoFour):
    """Draw the first sixteen columns of the first row of A, as the source has them in section Meta.

    Dense values, the stored ones, their positions as two bits, and the uint16 of metadata; a colour for each group of
    four.

    The data behind it: a row for each stored value: group, column, position, bits, value, meta (hexadecimal, of all).
    """
    meta, at, c, group = int(a.meta[0, 0]), np.arange(8), np.arange(16), np.arange(4)
    position = meta >> 2 * at & 3
    data = pd.DataFrame(
        {
            **{"group": at // 2, "column": 4 * (at // 2) + position, "position": position},
            "bits": [f"{p:02b}" for p in position],
            "value": half.from_bits(np.asarray(a.val[0, :8]), a.dtype).astype(float),
            "meta": f"0x{meta:04X}",
        }
    )
    dense, stored, index, bits = 0.0, 2.6, 4.2, 6.8
    own, texts, column, zeros = (
        COLOURS[at // 2],
        data["value"].map(sketch.short),
        data["column"],
        c[~np.isin(c, data["column"])],
    )
    return sketch.picture(
        (-3.6, 16.2),
        (bits + 2.5, dense - 0.9),
        (
            put,
            -0.3,
            np.array([dense, stored, index, bits]) + 0.5,
            ("A, row 0", "val", "positions", f"meta 0x{meta:04X}"),
            RIGHT,
        ),
        (put, c + 0.5, dense - 0.4, c, FAINT),
        (put, c + 0.5, bits + 1.4, 15 - c, FAINT),
        (put, zeros + 0.5, dense + 0.5, "0", {"alpha": 0.6}),
        (put, 14 - 4 * group, bits + 2, [f"group {g}" for g in group], {"color": COLOURS[:4], "weight": "bold"}),
        (put, -0.3, [bits + 1.4, dense - 0.4], ["bit", "column"], FAINT | RIGHT),
        # The lower index in the lower bits, group 0 in the lowest.
        (box, 15 - 2 * at, bits, (position & 1).astype(str), own),
        (box, 14 - 2 * at, bits, (position >> 1).astype(str), own),
        (box, column, dense, texts, own),
        (box, 4 + at, stored, texts, own),
        (box, 4 + at, index, data["bits"], own),
        *(line for y in (dense, bits) for line in grid(np.arange(0, 17, 4), [y, y + 1], (0, 16), (y, y + 1))),
        (pointer, 5 + 2 * group, index + 1.05, 14 - 4 * group, bits - 0.05, COLOURS[:4]),
        (pointer, column + 0.5, dense + 1.05, 4.5 + at, stored - 0.05, own),
        height=4.6,
    ), data


def metadata_map(meta: np.ndarray) -> pd.DataFrame:
    """Return where `two_four.swizzle` puts each uint16 of the metadata, and who reads it.

    meta: (rows, 4) of 64 columns of A. Returns row, column of meta; swizzled_row, swizzled_column; register, lane and
    half ("low" or "high") of `ldmatrix`; selector of the mma.sp; the word in hexadecimal. Found by swizzling numbers,
    not by the formula.
    """
    rows = len(meta)
    swizzled = two_four.swizzle(np.arange(rows * 4, dtype=np.uint16).reshape(rows, 4), rows, 64)
    y, x = np.indices(swizzled.shape).reshape(2, -1)
    row, column = np.divmod(swizzled.ravel().astype(int), 4)
    return pd.DataFrame(
        {
            **{"row": row, "column": column, "swizzled_row": y, "swizzled_column": x},
            **{"register": y // 8, "lane": 4 * (y % 8) + x // 2, "half": np.where(x % 2, "high", "low")},
            **{"selector": column // 2, "meta": [f"0x{word:04X}" for word in meta[row, column]]},
        }
    ).sort_values(["row", "column"], ignore_index=True)


def _array(meta: np.ndarray) -> list[Mark]:
    """Return the metadata of 16 x 64 of A as it lies in memory, a colour for each column."""
    row, c = np.arange(16), np.arange(4)
    return [
        (put, -0.2, row + 0.5, row, FAINT | RIGHT),
        (put, WORD * (c + 0.5), -0.5, [f"{16 * i}–{16 * i + 15}" for i in c], FAINT),
        (put, [WORD, 3 * WORD], 16.7, ["k32 step 0", "k32 step 1"]),
        (put, 2 * WORD, -1.5, "meta, rows × columns of A"),
        (
            box,
            WORD * c,
            row[:, None],
            np.array([f"{word:04X}" for word in meta.ravel()]).reshape(16, 4),
            COLOURS[:4],
            WORD,
            1,
        ),
        *grid([0, 2 * WORD, 4 * WORD], [0, 8, 16], (0, 4 * WORD), (0, 16)),
    ]


def lanes_picture(meta: np.ndarray):
    """Draw which lane of a warp holds which metadata for mma.sp.m16n8k32.

    The source's second figure of section "mma.sp PTX Instructions", and the use of both selectors in section Metadata.

    meta: uint16 (16, 4), the metadata of 16 rows and 64 columns of A, two instructions along K. Left it lies in memory;
    then the registers of the lanes for the first instruction, with selector 0, and for the second, with selector 1;
    lanes that the instruction does not look at are hatched. The data behind it is `metadata_map`.
    """
    data, marks, wide = metadata_map(meta), _array(meta), 2.9
    words = data.pivot(index="lane", columns="half", values="meta")
    lane, each = words.index.to_numpy(), (words["high"].str[2:] + "\u2009" + words["low"].str[2:]).to_numpy()
    (g, t), idle = np.divmod(lane, 4), {"edgecolor": BOUND, "linewidth": 0.6, "hatch": "////", "alpha": 0.35}
    for selector, which in enumerate(("first", "second")):
        left = 4 * WORD + 2.2 + selector * (4 * wide + 1.6)
        x, middle, used, no = left + wide * t, left + wide * (t + 0.5), t // 2 == selector, t // 2 != selector
        marks += [
            (put, left + 2 * wide, -1.5, f"selector {selector}: {which} instruction"),
            (put, left + 2 * wide, 16.7, "register: row g + 8, row g"),
            (put, left + wide * (np.arange(4) + 0.5), -0.5, [f"4g+{i}" for i in range(4)], FAINT),
            (box, x[used], 2 * g[used], "", COLOURS[t[used]], wide, 2),
            (put, middle[used], 2 * g[used] + 0.5, [f"lane {i}" for i in lane[used]], FAINT),
            (put, middle[used], 2 * g[used] + 1.4, each[used], PLAIN),
            (frame, x[no], 2 * g[no], wide, 2, idle),
            (put, middle[no], 2 * g[no] + 1, lane[no], FAINT),
        ]
    return sketch.picture((-1.2, 4 * WORD + 4.0 + 8 * wide), (17.4, -2.2), *marks, height=5.0), data


def swizzle_picture(meta: np.ndarray, follow: int = 1):
    """Draw how the metadata of 16 rows and 64 columns of A becomes an 8 x 8 matrix for `ldmatrix`.

    The source's figures of section Metadata: left in memory, right swizzled, a lane for each pair of cells.

    meta: uint16 (16, 4); follow: the row of the matrix that arrows lead to. The data behind it is `metadata_map`.
    """
    data, left, top, cell, high = metadata_map(meta), 12.6, 1.6, 1.75, 1.5
    right, bottom, y = left + 8 * cell, top + 8 * high, top + high * follow
    row, t, s = np.arange(8), np.arange(4), np.arange(2)
    middles, places = (
        top + high * (row + 0.5),
        (left + cell * data["swizzled_column"], top + high * data["swizzled_row"]),
    )
    two, parts = np.array([follow, follow + 8]), np.array([0.3, 0.7])  # rows of 8 bytes, which become one of 16
    return sketch.picture(
        (-1.2, right + 4.2),
        (17.4, -2.2),
        *_array(meta),
        (box, *places, data["meta"].str[2:], COLOURS[data["column"]], cell, high),
        (put, left - 0.2, middles, row, FAINT | RIGHT),
        (put, right + 0.25, middles, [f"lanes {4 * i}–{4 * i + 3}" for i in row], PLAIN | LEFT),
        (put, left + cell * (row + 0.5), top - 0.5, ["row g", "row g+8"] * 4, FAINT),
        (put, left + cell * (2 * t + 1), bottom + 0.6, [f"lane 4g+{i}" for i in t], FAINT),
        (put, left + cell * (4 * s + 2), bottom + 1.6, [f"selector {i}" for i in s]),
        (put, left + 4 * cell, top - 1.5, "swizzled: a row is 16 bytes of an 8 × 8 matrix"),
        *grid(left + 2 * cell * np.arange(5), [top, bottom], (left, right), (top, bottom)),
        (frame, left, y, 8 * cell, high, {"linewidth": 1.8}),
        (frame, 0, two, 4 * WORD, 1, {"linewidth": 1.8}),
        (pointer, 4 * WORD + 0.1, two + 0.5, left - 0.9, y + high * parts, INK),
        height=4.8,
    ), data


def warp_metadata(meta: np.ndarray):
    """Draw the metadata of a warp tile, 64 rows and 64 columns of A.

    As it lies in memory, and swizzled to 32 rows of 16 bytes, one `ldmatrix.x4` (the source's last figure of section
    Metadata).

    meta: uint16 (64, 4). A colour for each register, that is for 16 rows of A. The data behind it is `metadata_map`.
    """
    data, wide, left, cell, r = metadata_map(meta), 2.6, 17.0, 2.6, np.arange(4)
    right, x, y = left + 8 * cell, left + cell * data["swizzled_column"], 2 * data["swizzled_row"]
    colours, strong = COLOURS[data["register"]], np.where(data["row"] % 16 < 8, 0.2, 0.5)
    how = {"edgecolor": colours, "fill": True, "facecolor": colours, "linewidth": 0.3, "alpha": strong}
    return sketch.picture(
        (-6.5, right + 6.5),
        (67.5, -3.5),
        (put, 2 * wide, -2, "meta: 64 × 4 uint16"),
        (put, left + 4 * cell, -2, "swizzled: 32 rows of 8 uint16, read by one ldmatrix.x4"),
        (put, 2 * wide, 66, "stronger: rows 8–15 of each 16", PLAIN),
        (put, left + 4 * cell, 66, "each lane gets a cell pair of every register", PLAIN),
        (frame, wide * data["column"], data["row"], wide, 1, how),
        (frame, x, y, cell, 2, how),
        (put, x + cell / 2, y + 1, data["meta"].str[2:], PLAIN),
        (put, right + 0.4, 16 * r + 8, [f"register {i}" for i in r], LEFT | {"weight": "bold"}),
        *(
            (put, at, 16 * r + 8, [said.format(each * i, each * i + each - 1) for i in r], looks)
            for said, (at, each, looks) in {
                "rows {}–{}": (-0.4, 16, RIGHT),
                "lanes {}–{}\ngive addresses": (left - 0.4, 8, RIGHT | PLAIN),
            }.items()
        ),
        (frame, [[0], [left]], 16 * r, [[4 * wide], [8 * cell]], 16, {"edgecolor": COLOURS[:4], "linewidth": 1.6}),
        (pointer, 4 * wide + 0.2, 16 * r + 3, left - 0.2, 16 * r + 3, COLOURS[:4]),
        height=6.6,
    ), data
