"""Boxes, arrows and text, of which pictures are made."""

import textwrap
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from artifact.drawing.style import INK, WIDTH

#: How small digits and words are written that count or name places.
FAINT = {"fontsize": 8, "alpha": 0.7}
#: A line where groups of cells meet.
THICK = {"linewidth": 1.8, "solid_capstyle": "projecting"}


#: What is drawn (`put`, `box` …), its places and texts, and last, if it has one, a dictionary of how.
Mark = tuple[Any, ...]


def picture(
    xlim: tuple[float, float], ylim: tuple[float, float], *marks: Mark, height: float = 0.0, whole: bool = False
) -> Any:
    """Return a figure of marks without axes: as high as its limits ask for, or so many inches.

    whole: the limits are the edges of the figure.
    """
    size = WIDTH, height or WIDTH * abs(ylim[1] - ylim[0]) / (xlim[1] - xlim[0])
    fig, ax = plt.subplots(figsize=size, layout="none" if whole else None)
    if whole:
        fig.subplots_adjust(0, 0, 1, 1)
    ax.set(xlim=xlim, ylim=ylim, aspect="auto" if height else "equal")
    ax.axis("off")
    draw(ax, *marks)
    return fig


def draw(ax, *marks: Mark) -> None:
    """Draw marks one after the other, each at all entries of its arrays, which are broadcast against each other."""
    for what, *columns in marks:
        how = columns.pop() if isinstance(columns[-1], dict) else {}
        for values in np.broadcast(*columns, *how.values()):
            what(ax, *values[: len(columns)], **dict(zip(how, values[len(columns) :], strict=True)))


def put(ax, x: float, y: float, text: object, **how) -> None:
    """Text around a point."""
    ax.text(x, y, f"{text}", **({"ha": "center", "va": "center", "fontsize": 8.5} | how))


def box(ax, x, y, text, colour, width=1.0, height=1.0, size=8, rotation=0, hatch="") -> None:
    """Draw a cell with its text, tinted so that text in the page's own colour reads on it in both modes."""
    ax.add_artist(Rectangle((x, y), width, height, facecolor=colour, alpha=0.28, linewidth=0))
    ax.add_artist(Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=1, hatch=hatch))
    if text:
        put(ax, x + width / 2, y + height / 2, text, fontsize=size, rotation=rotation)


def frame(ax, x: float, y: float, width: float, height: float, **how) -> None:
    """Draw the outline of a rectangle."""
    outline: dict[str, Any] = {"fill": False, "edgecolor": INK} | how
    ax.add_artist(Rectangle((x, y), width, height, **outline))


def rule(ax, x, y, thick: bool) -> None:
    """Draw a line between cells: thick where groups meet, else faint."""
    ax.plot(x, y, **({"color": INK} | (THICK if thick else THICK | {"linewidth": 0.5, "alpha": 0.35})))


def segment(ax, x0: float, y0: float, x1: float, y1: float, **how) -> None:
    """Draw a line from one point to another."""
    ax.plot([x0, x1], [y0, y1], **({"color": INK} | how))


def grid(ax, x: float, rows: int, columns: int, down: int, across: int, cell: float = 1.0) -> None:
    """Rule a matrix, thick where so many rows and columns meet, and number its rows."""
    for edge in range(rows + 1):
        rule(ax, (x, x + cell * columns), (edge, edge), edge % down == 0 or edge == rows)
    for edge in range(columns + 1):
        rule(ax, (x + cell * edge,) * 2, (0, rows), edge % across == 0 or edge == columns)
    draw(ax, (put, x - 0.25, np.arange(rows) + 0.5, range(rows), FAINT | {"ha": "right"}))


def pointer(ax, x0: float, y0: float, x1: float, y1: float, colour: str, **how) -> None:
    """Draw an arrow from one point to another."""
    more: Any = {"arrowstyle": "-|>", "mutation_scale": 7, "linewidth": 0.9, "color": colour} | how
    ax.add_artist(FancyArrowPatch((x0, y0), (x1, y1), shrinkA=0, shrinkB=0, **more))


def short(value: float) -> str:
    """Two digits, since a cell has no room for more: .53, 1.2."""
    if value == 0:
        return "0"
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{value:.1f}"


def note(ax, x: float, y: float, text: str, right: float, above: float, **how) -> None:
    """Text so many points from a place."""
    ax.annotate(text, (x, y), xytext=(right, above), textcoords="offset points", **{"fontsize": 8.5} | how)


def wrap(text: str, width: int) -> str:
    """Text in lines of so many characters; "–" for none."""
    return "\n".join(textwrap.wrap(text, width)) or "–"
