"""Figures of the room `tensor_core_24`: the pictures of its source from real arrays, and its charts
from records, beside what the source states.

Every function returns `(fig, data)`, as in `artifact.figures`, whose palette and style they share.
Common arguments:

    df         records; where two experiments have the same contender at the same point, the first
               one counts. Only rows with `label` count ("": bfloat16)
    published  what the source states (`artifact/published/tensor_core_24_*.csv`), or None
    order      variants for their looks (see `figures.look`): the first is the published kernel, the
               last our best

TFLOP/s count 2·M·N·K for every contender, sparse or dense. What the source states was measured on
another GPU, so only its ratios are drawn, hollow and in the colour of claims.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from artifact.figures import (
    BASELINE,
    BASELINES,
    BOUND,
    CLAIM,
    INK,
    MARKER,
    ROWS,
    SIZE,
    WIDTH,
    _arrow,
    _behind,
    _box,
    _hollow,
    _legend,
    _number,
    _put,
    _right,
    _rule,
    _short,
    _sizes,
    _wrap,
)
from artifact.figures import look as _look
from artifact.nm_figures import STATED
from kernels.formats import two_four

SHOWN = ("mma_sp", "auto", "cusparselt_default", "cusparselt", "cublaslt")
NAMES = {
    "cusparselt": "cuSPARSELt, best algorithm",
    "cusparselt_default": "cuSPARSELt, default",
    "cusparselt_colmajor_b": "cuSPARSELt, B column-major",
    "cublaslt": "cuBLASLt, dense",
}
#: These take the looks of the libraries that have their part in other rooms.
ALIKE = {
    "cusparselt": "cusparse_best",
    "cusparselt_default": "cusparse_default",
    "cusparselt_colmajor_b": "cusparse_alg1",
    "cublaslt": "cublas",
}
#: Of sizes, in a figure whose lines are no contenders.
MARKS = "osD^vP"
SIZE_HATCHES = ("", "////", "....")
#: Of a library in the ladder, by its place, and of a size.
LINES = (("-", (0, (6, 2)), (0, (3, 3))), ("-.", ":", (0, (1, 3))))


# ---------------------------------------------------------------- what several figures need


def name(variant: str) -> str:
    """How a contender is called in a figure."""
    return NAMES.get(variant, variant)


def look(variant: str, order: Sequence[str]) -> dict:
    """Colour, marker and line of a contender; ValueError for one that is of no room."""
    return _look(ALIKE.get(variant, variant), order)


def _rows(df: pd.DataFrame, wanted: Sequence[str], label: str, square: bool) -> pd.DataFrame:
    """Rows of the contenders `wanted`, one a point, in their order; with `square` at M = N = K, with
    their `size`. ValueError where there are none."""
    rows = df[df["variant"].isin(wanted) & (df["label"] == label)]
    if square:
        rows = rows[(rows["m"] == rows["n"]) & (rows["n"] == rows["k"])]
    if rows.empty:
        where = f" at {SIZE}" if square else ""
        raise ValueError(
            f"The records have none of {', '.join(wanted)}{where} with label {label!r}."
        )
    rows = rows.drop_duplicates(["variant", "m", "n", "k"])
    place = {variant: i for i, variant in enumerate(wanted)}
    rows = rows.assign(place=rows["variant"].map(place), size=rows["m"])
    rows = rows.sort_values(["place", "m"] if square else "place", kind="stable")
    return rows.drop(columns="place").reset_index(drop=True)


def _line(ax, x, y, variant: str, order: Sequence[str], **more):
    how = {"markeredgewidth": 0, "markersize": MARKER} | look(variant, order)
    return ax.plot(x, y, **(how | more))[0]


def _stated(ax, rows: pd.DataFrame, order: Sequence[str]) -> dict[str, Line2D]:
    """Draw published values at their sizes, hollow, and give their entry of the legend."""
    for row in rows.itertuples():
        ax.plot(row.size, row.value, **_hollow(look(row.variant, order)["marker"]))
    return {STATED: Line2D([], [], **_hollow())} if len(rows) else {}


def _published(published: pd.DataFrame | None, quantity: str, shown: Sequence[str]) -> pd.DataFrame:
    """Single values of a quantity at a size, of contenders that are drawn: variant, size, value."""
    if published is None:
        return pd.DataFrame(columns=["variant", "size", "value"])
    rows = published[(published["quantity"] == quantity) & published["variant"].isin(shown)]
    rows = rows[rows["size"].notna() & (rows["low"] == rows["high"])]
    return rows.assign(size=rows["size"].astype(int), value=rows["low"])[
        ["variant", "size", "value"]
    ]


def _from_zero(ax, top: float) -> None:
    """A y axis from 0 to `top`, without ticks outside."""
    ax.set_ylim(0, top)
    ax.set_yticks([tick for tick in ax.get_yticks() if 0 <= tick <= top])


def _present(df: pd.DataFrame, wanted: Sequence[str]) -> list[str]:
    return [variant for variant in wanted if (df["variant"] == variant).any()]


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
        _put(ax, column + 0.5, dense - 0.4, f"{first + column}", fontsize=7.5, alpha=0.7)
        if not any(r["column"] == first + column for r in rows):
            _put(ax, column + 0.5, dense + 0.5, "0", alpha=0.6)
        _put(ax, column + 0.5, bits + 1.4, f"{15 - column}", fontsize=7.5, alpha=0.7)
    for at, r in enumerate(rows):
        colour = ROWS[r["group"]]
        x = left + at * step
        column = r["column"] - first
        _box(ax, column, dense, _short(r["value"]), colour, size=8)
        _box(ax, x, stored, _short(r["value"]), colour, size=8)
        _box(ax, x, index, r["bits"], colour, size=8.5)
        _arrow(ax, (column + 0.5, dense + 1.05), (x + 0.5, stored - 0.05), colour)
        for bit in range(2):  # the lower index in the lower bits, group 0 in the lowest
            cell = 15 - 2 * at - bit
            _box(ax, cell, bits, f"{r['position'] >> bit & 1}", colour, size=8.5)
    for group in range(4):
        colour = ROWS[group]
        start = (left + 2 * group + 1, index + 1.05)
        _arrow(ax, start, (16 - 4 * group - 2, bits - 0.05), colour)
        middle = 16 - 4 * group - 2
        _put(ax, middle, bits + 2.0, f"group {group}", color=colour, weight="bold")
    for edge in range(5):
        _rule(ax, (4 * edge, 4 * edge), (dense, dense + 1), True)
        _rule(ax, (4 * edge, 4 * edge), (bits, bits + 1), True)
    for y in (dense, dense + 1, bits, bits + 1):
        _rule(ax, (0, 16), (y, y), True)
    for y, text in (
        (dense, f"A, row {row}"),
        (stored, "val"),
        (index, "positions"),
        (bits, f"meta 0x{meta:04X}"),
    ):
        _put(ax, -0.3, y + 0.5, text, ha="right")
    _put(ax, -0.3, bits + 1.4, "bit", ha="right", fontsize=7.5, alpha=0.7)
    _put(ax, -0.3, dense - 0.4, "column", ha="right", fontsize=7.5, alpha=0.7)
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
        raise ValueError(
            f"The picture is of metadata of {rows} x 4 uint16, not of {meta.shape} {meta.dtype}."
        )
    data = metadata_map(rows)
    hexadecimal = [f"0x{meta[r.row, r.column]:04X}" for r in data.itertuples()]
    return meta, data.assign(meta=hexadecimal)


def _array(ax, meta: np.ndarray, x: float, y: float, wide: float) -> None:
    """The metadata of 16 x 64 of A as it lies in memory, a colour per column."""
    for (row, column), value in np.ndenumerate(meta):
        colour = ROWS[column]
        _box(ax, x + wide * column, y + row, f"{value:04X}", colour, width=wide, size=7)
    for row in range(16):
        _put(ax, x - 0.2, y + row + 0.5, f"{row}", ha="right", fontsize=7, alpha=0.7)
    for edge in (0, 2, 4):
        _rule(ax, (x + wide * edge,) * 2, (y, y + 16), True)
    for edge in (0, 8, 16):
        _rule(ax, (x, x + 4 * wide), (y + edge,) * 2, True)
    for column in range(4):
        head = f"{16 * column}–{16 * column + 15}"
        _put(ax, x + wide * (column + 0.5), y - 0.5, head, fontsize=7, alpha=0.7)
    for half in range(2):
        text = f"k32 step {half}"
        _put(ax, x + wide * (2 * half + 1), y + 16.7, text)
    _put(ax, x + 2 * wide, y - 1.5, "meta, rows × columns of A")


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
        _put(ax, left + 2 * lane_wide, -1.5, title)
        for t in range(4):
            _put(ax, left + lane_wide * (t + 0.5), -0.5, f"4g+{t}", fontsize=7, alpha=0.7)
        for lane in range(32):
            g, t = divmod(lane, 4)
            x, y = left + lane_wide * t, 2 * g
            held = data[data["lane"] == lane].set_index("half")
            used = held["selector"].iloc[0] == selector
            if not used:
                _rest(ax, x, y, lane_wide)
                _put(ax, x + lane_wide / 2, y + 1, f"{lane}", fontsize=7, alpha=0.6)
                continue
            _box(ax, x, y, "", ROWS[t], width=lane_wide, height=2)
            _put(ax, x + lane_wide / 2, y + 0.5, f"lane {lane}", fontsize=7, alpha=0.75)
            value = held.loc["high", "meta"][2:] + "\u2009" + held.loc["low", "meta"][2:]
            _put(ax, x + lane_wide / 2, y + 1.4, value, fontsize=7)
        _put(ax, left + 2 * lane_wide, 16.7, "register: row g + 8, row g")
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
        _box(ax, x, y, text, ROWS[place.column], width=cell, height=high, size=7)
    for row in range(8):
        y = top + high * row
        _put(ax, left - 0.2, y + high / 2, f"{row}", ha="right", fontsize=7, alpha=0.7)
        lanes = f"lanes {4 * row}–{4 * row + 3}"
        _put(ax, left + 8 * cell + 0.25, y + high / 2, lanes, ha="left", fontsize=8)
    for edge in range(0, 9, 2):
        _rule(ax, (left + cell * edge,) * 2, (top, top + 8 * high), True)
    for edge in range(9):
        _rule(ax, (left, left + 8 * cell), (top + high * edge,) * 2, edge in (0, 8))
    for column in range(8):
        half = ("row g", "row g+8")[column % 2]
        _put(ax, left + cell * (column + 0.5), top - 0.5, half, fontsize=6.5, alpha=0.7)
    for t in range(4):
        text = f"lane 4g+{t}"
        _put(ax, left + cell * (2 * t + 1), top + 8 * high + 0.6, text, fontsize=7.5, alpha=0.8)
    for selector in range(2):
        text = f"selector {selector}"
        _put(ax, left + cell * (4 * selector + 2), top + 8 * high + 1.6, text)
    _put(ax, left + 4 * cell, top - 1.5, "swizzled: a row is 16 bytes of an 8 × 8 matrix")
    # The two rows of 8 bytes that become one row of 16.
    for row in (follow, follow + 8):
        frame = Rectangle((0, row), 4 * wide, 1, fill=False, edgecolor=INK, linewidth=1.8)
        ax.add_patch(frame)
        end = (left - 0.9, top + high * (follow + (0.3 if row == follow else 0.7)))
        _arrow(ax, (4 * wide + 0.1, row + 0.5), end, INK)
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
    fig, ax = plt.subplots(figsize=(WIDTH, 5.6))
    wide, left, cell = 2.6, 17.0, 2.6
    for place in data.itertuples():
        colour = ROWS[place.register]
        more = {"facecolor": colour, "linewidth": 0.3, "edgecolor": colour}
        alpha = 0.2 if place.row % 16 < 8 else 0.5
        ax.add_patch(Rectangle((wide * place.column, place.row), wide, 1, alpha=alpha, **more))
        at = (left + cell * place.swizzled_column, 2 * place.swizzled_row)
        ax.add_patch(Rectangle(at, cell, 2, alpha=alpha, **more))
        text = place.meta[2:]
        _put(ax, at[0] + cell / 2, at[1] + 1, text, fontsize=6)
    for register in range(4):
        y, colour = 16 * register, ROWS[register]
        for x, width in ((0, 4 * wide), (left, 8 * cell)):
            ax.add_patch(Rectangle((x, y), width, 16, fill=False, edgecolor=colour, linewidth=1.6))
        _put(ax, -0.4, y + 8, f"rows {y}–{y + 15}", ha="right")
        _put(ax, left + 8 * cell + 0.4, y + 8, f"register {register}", ha="left", weight="bold")
        lanes = f"lanes {8 * register}–{8 * register + 7}\ngive addresses"
        _put(ax, left - 0.4, y + 8, lanes, ha="right", fontsize=7.5)
        _arrow(ax, (4 * wide + 0.2, y + 3), (left - 0.2, y + 3), colour)
    _put(ax, 2 * wide, -2, "meta: 64 × 4 uint16")
    _put(ax, left + 4 * cell, -2, "swizzled: 32 rows of 8 uint16, read by one ldmatrix.x4")
    _put(ax, 2 * wide, 66, "stronger: rows 8–15 of each 16", fontsize=7.5)
    _put(ax, left + 4 * cell, 66, "each lane gets a cell pair of every register", fontsize=7.5)
    ax.set(xlim=(-6.5, left + 8 * cell + 6.5), ylim=(67.5, -3.5))
    ax.axis("off")
    return fig, data


# ---------------------------------------------------------------- over the size


def throughput(
    df: pd.DataFrame,
    ceilings: Mapping[str, float],
    order: Sequence[str],
    shown: Sequence[str] = SHOWN,
    label: str = "",
):
    """TFLOP/s over M = N = K, with the measured ceilings as lines.

    ceilings: what they are called -> TFLOP/s, sparse ones and dense ones. Contenders of `shown`
    without records are left out. Raises ValueError without any.
    """
    points = _rows(df, shown, label, square=True)
    fig, ax = plt.subplots(figsize=(WIDTH, 4.2))
    handles: dict[str, object] = {}
    for variant in _present(points, shown):
        rows = points[points["variant"] == variant]
        handles[name(variant)] = _line(ax, rows["size"], rows["tflops"], variant, order)
    top = 1.06 * max([points["tflops"].max(), *ceilings.values()])
    _sizes(ax, points["size"].tolist(), most=9)
    ax.set(ylabel="throughput, 2·M·N·K (TFLOP/s)", xlabel=SIZE)
    _from_zero(ax, top)
    _ceilings(ax, ceilings, top)
    if ceilings:
        handles["measured ceilings"] = Line2D([], [], color=BOUND, linestyle=(0, (5, 3)))
    _legend(fig, handles)
    columns = ["experiment", "variant", "size", "label", "median_us", "q25_us", "q75_us", "tflops"]
    data = points[columns].assign(source="measured")
    roofs = pd.DataFrame(
        {"variant": list(ceilings), "tflops": list(ceilings.values()), "source": "ceiling"}
    )
    return fig, pd.concat([data, roofs], ignore_index=True) if len(roofs) else data


def _ceilings(ax, ceilings: Mapping[str, float], top: float) -> None:
    """Dashed lines with their names in the right margin, moved apart where they would overlap."""
    points = 72 * ax.figure.get_size_inches()[1] * 0.72  # height of the axes, nearly
    last = -np.inf
    for what, value in sorted(ceilings.items(), key=lambda item: item[1]):
        ax.axhline(value, color=BOUND, linestyle=(0, (5, 3)), linewidth=1.2)
        at = max(value / top * points, last + 21)
        last = at
        ax.annotate(
            f"{what}\n{_number(round(value))}",
            (1, value),
            xycoords=("axes fraction", "data"),
            xytext=(5, at - value / top * points),
            textcoords="offset points",
            va="center",
            fontsize=8,
            annotation_clip=False,
        )


def per_cent_of(
    df: pd.DataFrame,
    published: pd.DataFrame | None,
    order: Sequence[str],
    baseline: str = "cusparselt",
    shown: Sequence[str] = SHOWN,
    label: str = "",
):
    """Throughput of each contender in per cent of the baseline's, over M = N = K.

    Published quantity: "speedup_cusparselt" of `tensor_core_24_benchmarks.csv`, at its sizes. Raises
    ValueError where the baseline, or everything beside it, has no records.
    """
    points = _rows(df, [*shown, baseline], label, square=True)
    times = points.pivot(index="size", columns="variant", values="median_us")
    others = [v for v in _present(points, shown) if v != baseline]
    if baseline not in times or not others:
        raise ValueError(f"The records lack {baseline!r} or anything that it is compared with.")
    fig, ax = plt.subplots(figsize=(WIDTH, 4.0))
    handles: dict[str, object] = {}
    rows = []
    for variant in others:
        share = (100 * times[baseline] / times[variant]).dropna()
        handles[name(variant)] = _line(ax, share.index, share, variant, order)
        rows += [{"variant": variant, "size": s, "per_cent": v} for s, v in share.items()]
    handles[f"{name(baseline)} = 100 %"] = ax.axhline(100, color=BASELINE, linewidth=1.4)
    stated = _published(published, "speedup_cusparselt", shown).assign(
        value=lambda r: 100 * r["value"]
    )
    handles |= _stated(ax, stated, order)
    data = pd.DataFrame(rows)
    _sizes(ax, data["size"].tolist(), most=9)
    high = 1.06 * max([data["per_cent"].max(), 100, *stated["value"]])
    ax.set(xlabel=SIZE, ylabel=f"throughput (% of {name(baseline).split(',')[0]})")
    _from_zero(ax, high)
    _legend(fig, handles, columns=3)
    return fig, _behind(data, stated.rename(columns={"value": "per_cent"}))


def share_of_peak(
    df: pd.DataFrame,
    peaks: Mapping[str, tuple[str, float]],
    published: pd.DataFrame | None,
    order: Sequence[str],
    label: str = "",
):
    """Throughput of each contender in per cent of a measured ceiling of its own, over M = N = K.

    peaks: contender -> (what the ceiling is called, TFLOP/s), in the order in which they are drawn.
    A contender may be there once; to hold one against two instructions, draw two figures. Published
    quantities: "tflops", over "peak" of mma_sp, both of `tensor_core_24_benchmarks.csv`. Raises
    ValueError for a peak that is not positive.
    """
    for variant, (what, peak) in peaks.items():
        if not peak > 0:
            raise ValueError(
                f"The ceiling {what!r} of {variant!r} is {peak}, and must be positive."
            )
    points = _rows(df, list(peaks), label, square=True)
    fig, ax = plt.subplots(figsize=(WIDTH, 4.0))
    handles: dict[str, object] = {}
    rows = []
    for variant in _present(points, list(peaks)):
        what, peak = peaks[variant]
        here = points[points["variant"] == variant]
        share = 100 * here["tflops"] / peak
        handles[f"{name(variant)}: of {what}"] = _line(ax, here["size"], share, variant, order)
        rows += [
            {
                "variant": variant,
                "size": s,
                "tflops": t,
                "ceiling": what,
                "peak": peak,
                "per_cent": v,
            }
            for s, t, v in zip(here["size"], here["tflops"], share, strict=True)
        ]
    stated = _published(published, "tflops", list(peaks))
    if published is not None and len(stated):
        of = published[(published["quantity"] == "peak") & (published["variant"] == "mma_sp")]
        peak = float(of["low"].iloc[0])
        stated = stated.assign(tflops=stated["value"], peak=peak, ceiling="mma_sp")
        stated["value"] = 100 * stated["tflops"] / peak
    handles |= _stated(ax, stated, order)
    ax.axhline(100, color=BOUND, linewidth=1.3, linestyle=(0, (5, 3)))
    data = pd.DataFrame(rows)
    _sizes(ax, data["size"].tolist(), most=9)
    high = 1.06 * max([data["per_cent"].max(), 100, *stated["value"]])
    ax.set(xlabel=SIZE, ylabel="throughput (% of the measured ceiling)")
    _from_zero(ax, high)
    _legend(fig, handles, columns=2)
    return fig, _behind(data, stated.rename(columns={"value": "per_cent"}))


# ---------------------------------------------------------------- shapes of language models


def llm(
    df: pd.DataFrame,
    order: Sequence[str],
    best: str = "auto",
    baseline: str = "cusparselt",
    shown: Sequence[str] = SHOWN,
    label: str = "",
):
    """TFLOP/s of every contender at each shape (M, N, K), a row of dots per shape, in the order of
    the records; on the right, `best` in per cent of `baseline` where both were measured."""
    points = _rows(df, shown, label, square=False)
    shapes = list(dict.fromkeys(zip(df["m"], df["n"], df["k"], strict=True)))
    at = list(zip(points["m"], points["n"], points["k"], strict=True))
    shapes = [shape for shape in shapes if shape in set(at)]
    points["place"] = [shapes.index(shape) for shape in at]
    present = _present(points, shown)
    fig, ax = plt.subplots(figsize=(WIDTH, 1.4 + 0.52 * len(shapes)))
    handles: dict[str, object] = {}
    for lane, variant in enumerate(present):
        rows = points[points["variant"] == variant]
        y = rows["place"] + 0.12 * (lane - (len(present) - 1) / 2)
        more = {"linestyle": "none", "markersize": 7}
        handles[name(variant)] = _line(ax, rows["tflops"], y, variant, order, **more)
    times = points.pivot(index="place", columns="variant", values="median_us")
    for place in range(len(shapes)):
        rates = points.loc[points["place"] == place, "tflops"]
        ax.plot([rates.min(), rates.max()], [place] * 2, color=INK, alpha=0.18, linewidth=1)
        if {best, baseline} <= set(times) and times.loc[place, [best, baseline]].notna().all():
            text = f"{100 * times.loc[place, baseline] / times.loc[place, best]:.0f} %"
            _right(ax, place, 42, text)
        if place:
            ax.axhline(place - 0.5, color=INK, alpha=0.15, linewidth=0.6)
    head = f"{name(best)} of {name(baseline).split(',')[0]}"
    _right(ax, -0.62, 42, head, va="bottom")
    ax.set_yticks(
        range(len(shapes)), [" × ".join(_number(size) for size in shape) for shape in shapes]
    )
    ax.set(ylim=(len(shapes) - 0.5, -0.5), xlabel="throughput, 2·M·N·K (TFLOP/s)")
    ax.set_ylabel("M × N × K")
    ax.set_xlim(0, 1.05 * points["tflops"].max())
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    _legend(fig, handles, columns=3)
    columns = ["experiment", "variant", "m", "n", "k", "label", "median_us", "tflops"]
    over = [
        times.loc[r.place, baseline] / r.median_us if baseline in times else np.nan
        for r in points.itertuples()
    ]
    return fig, points[columns].assign(**{f"over_{baseline}": over})


# ---------------------------------------------------------------- the ladder


def ladder(
    df: pd.DataFrame,
    rungs: Mapping[str, str],
    lines: Sequence[str] = ("cusparselt", "cublaslt"),
    label: str = "",
    wrap: int = 40,
    over: Mapping[str, str] | None = None,
):
    """TFLOP/s of every rung as horizontal bars, one per size M = N = K, with its gain over the rung
    that it builds on and what was predicted before it was measured.

    rungs: variant -> prediction, in ladder order; an empty one is drawn as "–". lines: contenders
    that are drawn across all rungs. over: variant -> the one that it builds on, none for a variant
    that is not in it; by default the row before. Rungs and lines without records are left out;
    ValueError without any rung.
    """
    points = _rows(df, list(rungs), label, square=True)
    order, present = list(rungs), _present(points, list(rungs))
    sizes = sorted(set(points["size"]))
    if len(sizes) > len(SIZE_HATCHES) or len(lines) > len(LINES):
        raise ValueError(
            f"The ladder is drawn at up to {len(SIZE_HATCHES)} sizes, with up to {len(LINES)} "
            f"libraries; there are {', '.join(map(str, [*sizes, *lines]))}."
        )
    rates = points.pivot(index="variant", columns="size", values="tflops")
    texts = [_wrap(rungs[variant], wrap) for variant in present]
    heights = [max(0.2 * len(sizes), 0.16 * (t.count("\n") + 1)) + 0.2 for t in texts]
    tops = np.cumsum([0, *heights])
    fig, ax = plt.subplots(figsize=(WIDTH, tops[-1] + 1.3))
    handles: dict[str, object] = {}
    lines = list(lines)
    for place, size in enumerate(sizes):
        how = {"facecolor": BOUND, "edgecolor": INK, "linewidth": 0.6}
        handles[f"{SIZE} = {_number(size)}"] = Patch(hatch=SIZE_HATCHES[place], **how)
    most = float(rates.max().max())
    rows = []
    across = ax.get_yaxis_transform()
    for i, variant in enumerate(present):
        colour = look(variant, order)["color"]
        middle = tops[i] + heights[i] / 2
        if i:
            ax.axhline(tops[i], color=INK, alpha=0.15, linewidth=0.6)
        for place, size in enumerate(sizes):
            rate = rates.loc[variant, size]
            if np.isnan(rate):
                continue
            before = [r["tflops"] for r in rows if r["size"] == size]
            if over is not None:
                before = rates[size].reindex([over.get(variant)]).dropna().tolist()
            gain = rate / before[-1] - 1 if before else np.nan
            y = middle + 0.2 * (place - (len(sizes) - 1) / 2)
            more = {"hatch": SIZE_HATCHES[place], "edgecolor": INK, "linewidth": 0.5}
            ax.barh(y, rate, 0.17, facecolor=colour, **more)
            said = (0.84, _number(round(rate))), (0.99, f"{100 * gain:+.0f} %" if before else "")
            for x, text in said:
                how = {"transform": across, "va": "center", "ha": "right", "fontsize": 7.5}
                ax.text(x, y, text, **how)
            rows.append({"variant": variant, "size": size, "tflops": rate, "gain": gain})
        ax.text(1.02, middle, texts[i], transform=across, va="center", fontsize=8)
    data = pd.DataFrame(rows).assign(prediction=lambda d: d["variant"].map(rungs))
    others = df[df["variant"].isin(lines)]
    if not others.empty:
        others = _rows(df, list(lines), label, square=True)
        others = others[others["size"].isin(sizes)]
    for row in others.itertuples():
        dashes = LINES[lines.index(row.variant)][sizes.index(row.size)]
        style = {"color": BASELINE, "linewidth": 1.3, "linestyle": dashes}
        ax.axvline(row.tflops, **style)
        handles[f"{name(row.variant)}, {_number(row.size)}"] = Line2D([], [], **style)
    most = max([most, *others["tflops"]]) if len(others) else most
    ax.set(xlim=(0, 1.35 * most), ylim=(tops[-1], 0))  # the numbers have the last quarter
    ax.set_yticks(tops[:-1] + np.array(heights) / 2, present)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    built_on = "the rung before" if over is None else "what it builds on"
    ax.set_xlabel(f"throughput, 2·M·N·K (TFLOP/s); gain over {built_on}")
    ax.text(
        1.02,
        -0.06,
        "predicted before measuring",
        transform=across,
        va="bottom",
        fontweight="bold",
        fontsize=8.5,
    )
    _legend(fig, handles, columns=2)
    compared = others[["variant", "size", "tflops"]] if len(others) else data.iloc[:0]
    return fig, pd.concat([data, compared], ignore_index=True) if len(compared) else data


# ---------------------------------------------------------------- side studies


def studies(
    df: pd.DataFrame,
    names: Mapping[str, str],
    published: pd.DataFrame | None,
    baseline: str = "mma_sp",
    label: str = "",
):
    """Throughput of every side study in per cent of the published kernel's, a row each, a marker per
    size M = N = K; the numbers on the right.

    names: variant -> what it changes, in the order in which they are drawn; those without records
    are left out. Published quantity: "speedup_mma_sp" of `tensor_core_24_design.csv`: a value is
    drawn hollow, an upper bound as an arrow to the left. Raises ValueError without the baseline or
    without any study.
    """
    points = _rows(df, [baseline, *names], label, square=True)
    times = points.pivot(index="variant", columns="size", values="median_us")
    present = [v for v in _present(points, list(names)) if v != baseline]
    if baseline not in times.index or not present:
        raise ValueError(f"The records lack {baseline!r} or any variant that is compared with it.")
    share = 100 * times.loc[baseline] / times.loc[present]
    sizes = [size for size in share.columns if share[size].notna().any()]
    if len(sizes) > len(MARKS):
        raise ValueError(f"The studies are drawn at up to {len(MARKS)} sizes, not {sizes}.")
    fig, ax = plt.subplots(figsize=(WIDTH, 1.5 + 0.46 * len(present)))
    handles: dict[str, object] = {}
    stated = _stated_studies(published, present)
    rows = []
    for place, variant in enumerate(present):
        colour = BASELINE if variant.startswith(BASELINES) else ROWS[3]
        for i, size in enumerate(sizes):
            value = share.loc[variant, size]
            if np.isnan(value):
                continue
            y = place + 0.17 * (i - (len(sizes) - 1) / 2)
            ax.plot([100, value], [y, y], color=colour, linewidth=1.2, alpha=0.6)
            ax.plot(value, y, MARKS[i], color=colour, markersize=6.5, markeredgewidth=0)
            rows.append({"variant": variant, "size": size, "per_cent": value})
        for i, size in enumerate(sizes):
            value = share.loc[variant, size]
            text = "–" if np.isnan(value) else f"{value:.1f}"
            _right(ax, place, 38 * (i + 1), text)
        if place:
            ax.axhline(place - 0.5, color=INK, alpha=0.15, linewidth=0.6)
    for row in stated.itertuples():
        y = present.index(row.variant) - 0.36
        if np.isnan(row.low):
            arrow = {"arrowstyle": "-|>", "color": CLAIM, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", (100 * row.high - 4, y), (100 * row.high, y), arrowprops=arrow)
            handles["stated by the source: slower"] = Line2D([], [], color=CLAIM, marker="<")
        else:
            ax.plot(100 * row.low, y, **_hollow("*"))
            handles[STATED] = Line2D([], [], **_hollow("*"))
    sized = {
        f"{SIZE} = {_number(size)}": Line2D([], [], color=ROWS[3], marker=MARKS[i], linestyle="")
        for i, size in enumerate(sizes)
    }
    ax.axvline(100, color=look(baseline, [baseline])["color"], linewidth=1.4)
    ax.set_yticks(range(len(present)), [names[v] or name(v) for v in present])
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    values = [*(r["per_cent"] for r in rows), 100.0, *(100 * stated["low"].dropna())]
    if stated["low"].isna().any():
        values.append(95.0)
    pad = max(0.06 * (max(values) - min(values)), 1.0)
    ax.set(xlim=(min(values) - pad, max(values) + pad), ylim=(len(present) - 0.4, -0.65))
    ax.set_xlabel(f"throughput (% of {name(baseline)})")
    for i, size in enumerate(sizes):
        _right(ax, -0.68, 38 * (i + 1), _number(size), va="bottom", fontweight="bold")
    _legend(fig, sized | handles, columns=3)
    said = stated.assign(low=100 * stated["low"], high=100 * stated["high"])
    return fig, _behind(pd.DataFrame(rows), said)


def _stated_studies(published: pd.DataFrame | None, present: Sequence[str]) -> pd.DataFrame:
    """What is stated of the studies that are drawn: variant, low, high; without words alone."""
    if published is None:
        return pd.DataFrame(columns=["variant", "low", "high"], dtype=float)
    rows = published[
        (published["quantity"] == "speedup_mma_sp") & published["variant"].isin(present)
    ]
    return rows.dropna(subset=["low", "high"], how="all")[["variant", "low", "high"]]
