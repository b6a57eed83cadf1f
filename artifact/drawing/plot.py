"""What the axes of several figures need: ticks, lines, legends."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.ticker import (
    FixedFormatter,
    FixedLocator,
    FuncFormatter,
    NullFormatter,
    NullLocator,
)
from matplotlib.transforms import ScaledTranslation

from artifact.drawing.style import CLAIM, look

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, _=None) -> str:
    """1000 -> 1 000, without an exponent; also a formatter of ticks, whose position does not matter."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value:,.0f}".replace(",", "\u202f") if value >= 1000 else f"{value:g}"


def size_labels(ticks: Sequence[float]) -> list[str]:
    """Labels for sizes, one notation for the whole axis: 2ⁿ if all are powers of two and the
    largest is at least 2¹⁵, else digits in groups of three."""
    powers = [round(np.log2(tick)) for tick in ticks]
    if max(ticks) >= 2**15 and all(t == 2**p for t, p in zip(ticks, powers, strict=True)):
        return ["2" + f"{p}".translate(SUPERSCRIPTS) for p in powers]
    return [f"{tick:,.0f}".replace(",", "\u202f") for tick in ticks]


def log(axis, fine: bool = False) -> None:
    """A log axis labelled at 1, 10, 100 … (also at 2 and 5 if `fine` or if it spans little)."""
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    steps: tuple[float, ...] = (1, 2, 5) if fine or decades < 1.6 else (1,)
    if decades < 0.9:
        steps = (1, 1.5, 2, 3, 5, 7)
    if decades < 0.45:
        steps = (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    axis.set_major_locator(FixedLocator([t for t in ticks if low * 0.999 <= t <= high * 1.001]))
    axis.set_major_formatter(FuncFormatter(number))
    axis.set_minor_locator(NullLocator())


def sizes(ax, values: Sequence[float], most: int = 4) -> None:
    """Log x axis with ticks at the sizes measured, every second or third one labelled if there are
    many."""
    values = sorted(set(values))
    every = -(-len(values) // most)
    ax.set_xscale("log", base=2)
    ticks = values[::-1][::every][::-1]
    ax.xaxis.set_major_locator(FixedLocator(ticks))
    ax.xaxis.set_minor_locator(FixedLocator(values))
    ax.xaxis.set_major_formatter(FixedFormatter(size_labels(ticks)))
    ax.xaxis.set_minor_formatter(NullFormatter())


def ratio(ax, values: Sequence[float], axis: str = "y") -> None:
    """Log axis, "x" or "y", for ratios, from `values` and with 1 inside."""
    low, high = min(min(values), 0.9), max(max(values), 1.12)
    ax.set(**{f"{axis}scale": "log"})
    ax.set(**{f"{axis}lim": (low / 1.08, high * 1.08)})
    of = ax.xaxis if axis == "x" else ax.yaxis
    ticks = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10]
    if high / low > 8:
        ticks = [0.1, 0.2, 0.5, 1, 2, 5, 10]
    elif high / low < 3:
        ticks = [0.4, 0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.4, 1.6, 2, 2.5]
    of.set_major_locator(FixedLocator([t for t in ticks if low / 1.08 <= t <= high * 1.08]))
    of.set_major_formatter(FuncFormatter(number))
    of.set_minor_locator(NullLocator())


def percent(density: float) -> str:
    """0.005 -> 0.5 %"""
    return f"{density * 100:g} %"


def line(ax, x, y, variant: str, variants: Sequence[str], **more):
    """The line of a contender in its own look (see `style.look`); `more` overrides it."""
    return ax.plot(x, y, **({"markeredgewidth": 0} | look(variant, variants) | more))[0]


def legend(fig, handles: Mapping[str, object], columns: int = 4) -> None:
    """A legend above the axes, outside all of them, so that it can cover nothing: one row if that fits into the figure,
    else rows of at most so many columns, as even as can be, and never wider than the figure."""
    count, renderer = len(handles), fig.canvas.get_renderer()
    tried = [count, *(-(-count // rows) for rows in range(1, count + 1))]
    for ncols in dict.fromkeys(n for n in tried if n in (1, count) or n <= columns):
        made = fig.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper left",
            ncols=ncols,
            handlelength=2.6,
            columnspacing=1.6,
            borderaxespad=0.2,
        )
        if ncols == 1 or made.get_window_extent(renderer).width < 0.985 * fig.bbox.width:
            return
        made.remove()


def hollow(marker="o") -> dict:
    """How a value that a source states is drawn."""
    return {
        "marker": marker,
        "markersize": 9 if marker == "+" else 7,
        "markerfacecolor": "none",
        "markeredgecolor": CLAIM,
        "markeredgewidth": 1.4,
        "linestyle": "none",
        "zorder": 4,
    }


def stated(gpu: str) -> str:
    """What the legend calls values that a source states, which it measured on `gpu`."""
    return f"stated by the source ({gpu})"


def behind(data: pd.DataFrame, *stated: pd.DataFrame) -> pd.DataFrame:
    """The table behind a figure: what was measured, and below it what was stated."""
    parts = [data.assign(source="measured")]
    parts += [rows.assign(source="stated") for rows in stated if len(rows)]
    columns = list(dict.fromkeys(c for part in parts for c in part.columns if c != "source"))
    return pd.concat(parts, ignore_index=True)[["source", *columns]]


def right(ax, y: float, points: float, text: str, **how) -> None:
    """Right-aligned text in the margin, so many points right of the axes: a width that the layout
    knows, where a share of the axes would change with it."""
    ax.annotate(
        text,
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(points, 0),
        textcoords="offset points",
        annotation_clip=False,
        **({"va": "center", "ha": "right", "fontsize": 8.5} | how),
    )


class End(NamedTuple):
    """Where a line ends, and what it is called there; `alone` is a point that no line leads to."""

    name: str
    x: float
    y: float
    colour: str
    alone: bool = False


#: From this share of the axes' width on, there is no room for a name beside a point.
NEAR = 0.8


def ends(ax, lines: Sequence[End], apart: float = 11.0) -> None:
    """Names of lines where they end, in place of a legend, `apart` points apart where they would lie on each other,
    each with a thin line to its end: in the right margin if that is near, else beside the last point; on the left of a
    point that stands alone. The axes' limits and scales must be final."""
    fig = ax.get_figure()
    fig.draw_without_rendering()  # the layout must be settled before heights mean anything
    height = ax.get_window_extent().height / fig.dpi * 72
    at = {line: ax.transAxes.inverted().transform(ax.transData.transform(line[1:3])) for line in lines}
    margins = [line for line in lines if at[line][0] > NEAR]
    lefts = {line for line in lines if line.alone and 0.4 < at[line][0] <= NEAR}
    beside_points = [
        [line for line in lines if line.x == x and line not in margins and (line in lefts) == left]
        for x in sorted({line.x for line in lines})
        for left in (False, True)
    ]
    for here in filter(None, (margins, *beside_points)):
        margin, here = here is margins, sorted(here, key=lambda line: at[line][1])
        left = here[0] in lefts
        beside = ScaledTranslation((-16 if left else 16) / 72, 0, fig.dpi_scale_trans)
        places = spaced([at[line][1] for line in here], apart / height)
        for line, place in zip(here, places, strict=True):
            to = {
                "arrowstyle": "-",
                "color": line.colour,
                "linewidth": 0.9,
                "shrinkA": 0,
                "shrinkB": 4,
            }
            where = {"xytext": (1 if margin else at[line][0], place), "annotation_clip": False}
            near = ax.transAxes + beside
            ax.annotate("", (line.x, line.y), **where, textcoords=near, arrowprops=to)
            gap = ScaledTranslation((-3 if left else 3) / 72, 0, fig.dpi_scale_trans)
            how = {"va": "center", "ha": "right" if left else "left", "fontsize": 8.5}
            ax.annotate(line.name, (line.x, line.y), **where, textcoords=near + gap, **how)


def spaced(places: Sequence[float], apart: float) -> list[float]:
    """Places between 0 and 1 in ascending order, moved until each is `apart` from the next: those that would meet
    spread around their mean, and none leaves 0 to 1 while all have room there."""
    groups: list[list[float]] = []

    def middle(group: Sequence[float]) -> float:
        half = apart * (len(group) - 1) / 2
        return min(max(sum(group) / len(group), half), max(1 - half, half))

    for place in places:
        groups.append([place])
        while len(groups) > 1:
            a, b = groups[-2:]
            if middle(b) - middle(a) >= apart * (len(a) + len(b)) / 2 - 1e-12:
                break
            groups[-2:] = [a + b]
    return [middle(g) + apart * (i - (len(g) - 1) / 2) for g in groups for i in range(len(g))]
