"""What the axes of several figures need: ticks, lines, legends."""

import itertools
from collections import namedtuple
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.ticker import FixedFormatter, FixedLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation
from scipy.optimize import isotonic_regression

from artifact.drawing.style import CLAIM

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float, _=None) -> str:
    """1000 -> 1,000, without an exponent; also a formatter of ticks, whose position does not matter."""
    if value >= 1e6:
        return f"{value / 1e6:g}M"
    return f"{value:,.0f}" if value >= 1000 else f"{value:g}"


def ticks(axis, at: Sequence[float], form=number) -> None:
    """Put ticks of an axis at these places and nowhere else, which `form` writes."""
    axis.set_major_locator(FixedLocator(at))
    axis.set_major_formatter(form)
    axis.set_minor_locator(NullLocator())


def log(axis, fine: bool = False) -> None:
    """Make an axis logarithmic, labelled at 1, 10, 100 … (also at 2 and 5 if `fine` or if it spans little)."""
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    usual = (1, 2, 5) if fine or decades < 1.6 else (1,)
    steps = (1, 1.5, *range(2, 10)) if decades < 0.45 else (1, 1.5, 2, 3, 5, 7) if decades < 0.9 else usual
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    ticks(
        axis,
        [t for t in [step * 10.0**power for power in powers for step in steps] if low * 0.999 <= t <= high * 1.001],
    )


def sizes(ax, values: Sequence[float], most: int = 4) -> None:
    """Make the x axis logarithmic, with ticks at the measured sizes.

    Where there are many, every second or third tick is labelled: by 2ⁿ if all are powers of two and the largest is at
    least 2¹⁵, else by digits in groups of three.
    """
    values = sorted(set(values))
    labelled = values[::-1][:: -(-len(values) // most)][::-1]
    powers, labels = np.log2(labelled).round().astype(int), [f"{x:,.0f}" for x in labelled]
    if labelled[-1] >= 2**15 and np.array_equal(labelled, 2.0**powers):
        labels = ["2" + f"{p}".translate(SUPERSCRIPTS) for p in powers]
    ax.set_xscale("log", base=2)
    ticks(ax.xaxis, labelled, FixedFormatter(labels))
    ax.xaxis.set_minor_locator(FixedLocator(values))
    ax.xaxis.set_minor_formatter(NullFormatter())


def ratio(ax, values: Sequence[float], axis: str = "y") -> None:
    """Log axis, "x" or "y", for ratios, from `values` and with 1 inside."""
    low, high = min(*values, 0.9), max(*values, 1.12)
    ax.set(**{f"{axis}scale": "log", f"{axis}lim": (low / 1.08, high * 1.08)})
    wide, narrow = [0.1, 0.2, 0.5, 1, 2, 5, 10], [0.4, 0.5, 0.6, 0.7, 0.8, 1, 1.2, 1.4, 1.6, 2, 2.5]
    usual = [0.1, 0.2, 0.3, 0.5, 0.7, 1, 1.5, 2, 3, 5, 7, 10]
    chosen = wide if high / low > 8 else narrow if high / low < 3 else usual
    ticks(getattr(ax, f"{axis}axis"), [t for t in chosen if low / 1.08 <= t <= high * 1.08])


def percent(density: float) -> str:
    """0.005 -> 0.5 %"""
    return f"{density * 100:g} %"


def legend(fig, handles: Mapping[str, object], columns: int = 4) -> None:
    """Place a legend above the axes, outside all of them, so that it can cover nothing.

    It has one row if that fits into the figure, else rows of at most so many columns, as even as can be, and is never
    wider than the figure.
    """
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


def behind(data: pd.DataFrame, *stated: pd.DataFrame) -> pd.DataFrame:
    """Return the table behind a figure: what was measured, and below it what was stated."""
    parts = [data.assign(source="measured"), *(rows.assign(source="stated") for rows in stated if len(rows))]
    return pd.concat(parts, ignore_index=True)[
        ["source", *dict.fromkeys(c for part in parts for c in part.columns if c != "source")]
    ]


def right(ax, y: float, points: float, text: str, **how) -> None:
    """Right-aligned text in the margin, so many points right of the axes.

    A width that the layout knows, where a share of the axes would change with it.
    """
    ax.annotate(
        text,
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(points, 0),
        textcoords="offset points",
        annotation_clip=False,
        **({"va": "center", "ha": "right", "fontsize": 8.5} | how),
    )


#: Where a line ends, and what it is called there; `alone` is a point that no line leads to.
End = namedtuple("End", "name x y colour alone", defaults=[False])


def ends(ax, lines: Sequence[End], apart: float = 11.0) -> None:
    """Write the names of lines where they end, in place of a legend.

    They are `apart` points apart where they would lie on each other, each with a thin line to its end: in the right
    margin if that is near, else beside the last point; on the left of a point that stands alone. The axes' limits and
    scales must be final.
    """
    fig = ax.get_figure()
    fig.draw_without_rendering()  # the layout must be settled before heights mean anything
    height = ax.get_window_extent().height / fig.dpi * 72
    at = {line: ax.transAxes.inverted().transform(ax.transData.transform(line[1:3])) for line in lines}

    def place(line: End) -> tuple[float, bool]:
        """Where a name stands, the margin first, and whether on the left of there."""
        # From there on, there is no room for a name beside a point.
        return (-np.inf, False) if at[line][0] > 0.8 else (line.x, line.alone and at[line][0] > 0.4)

    for (x, left), group in itertools.groupby(sorted(lines, key=lambda line: (place(line), at[line][1])), place):
        here, side = list(group), -1 if left else 1
        near, name = (ax.transAxes + ScaledTranslation(side * p / 72, 0, fig.dpi_scale_trans) for p in (16, 19))
        for line, level in zip(here, spaced([at[line][1] for line in here], apart / height), strict=True):
            where = {"xytext": (1 if x == -np.inf else at[line][0], level), "annotation_clip": False}
            ax.annotate(
                "",
                line[1:3],
                **where,
                textcoords=near,
                arrowprops={"arrowstyle": "-", "color": line.colour, "linewidth": 0.9, "shrinkA": 0, "shrinkB": 4},
            )
            how = {"va": "center", "ha": "right" if left else "left", "fontsize": 8.5}
            ax.annotate(line.name, line[1:3], **where, textcoords=name, **how)


def spaced(places: Sequence[float], apart: float) -> list[float]:
    """Places between 0 and 1 in ascending order, moved until each is `apart` from the next.

    Those that would meet spread around their mean, and none leaves 0 to 1 while all have room there.
    """
    steps = apart * np.arange(len(places))
    return (np.clip(isotonic_regression(places - steps).x, 0, max(0, 1 - steps[-1])) + steps).tolist()
