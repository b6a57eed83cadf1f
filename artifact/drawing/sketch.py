"""Boxes, arrows and text, of which pictures are made."""

import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import FancyArrowPatch, Rectangle

from artifact.drawing.style import INK, WIDTH


def canvas(xlim: tuple[float, float], ylim: tuple[float, float], height: float = 0.0) -> tuple[Any, Any]:
    """Open a figure without axes: as high as its limits ask for, or so many inches."""
    fig, ax = plt.subplots(figsize=(WIDTH, height or WIDTH * abs(ylim[1] - ylim[0]) / (xlim[1] - xlim[0])))
    ax.set(xlim=xlim, ylim=ylim, aspect="auto" if height else "equal")
    ax.axis("off")
    return fig, ax


def each(draw: Callable[..., None], ax, *columns, **how) -> None:
    """Draw, with `put` or `box`, each entry of arrays, which are broadcast against each other, `how` as well."""
    for values in np.broadcast(*columns, *how.values()):
        draw(ax, *values[: len(columns)], **dict(zip(how, values[len(columns) :], strict=True)))


def put(ax, x: float, y: float, text: str, **how) -> None:
    """Text around a point."""
    ax.text(x, y, text, **({"ha": "center", "va": "center", "fontsize": 8.5} | how))


def box(ax, x, y, text, colour, width=1.0, height=1.0, size=8, rotation=0, hatch="") -> None:
    """A cell with its text, tinted so that text in the page's own colour reads on it in both modes."""
    ax.add_patch(Rectangle((x, y), width, height, facecolor=colour, alpha=0.28, linewidth=0))
    ax.add_patch(Rectangle((x, y), width, height, fill=False, edgecolor=colour, linewidth=1, hatch=hatch))
    if text:
        put(ax, x + width / 2, y + height / 2, text, fontsize=size, rotation=rotation)


def numbers(ax, places, **how) -> None:
    """Count places, (x, y) each, from 0, in small faint digits."""
    for number, (x, y) in enumerate(places):
        put(ax, x, y, f"{number}", **({"fontsize": 8, "alpha": 0.7} | how))


def rule(ax, x, y, thick: bool) -> None:
    """A line between cells: thick where groups meet, else faint."""
    more = {"linewidth": 1.8} if thick else {"linewidth": 0.5, "alpha": 0.35}
    ax.plot(x, y, color=INK, solid_capstyle="projecting", **more)


def grid(ax, x: float, rows: int, columns: int, steps: tuple[int, int], cell: float = 1.0) -> None:
    """Rule a matrix, thick where `steps` rows and columns meet, and number its rows."""
    for edge in range(rows + 1):
        rule(ax, (x, x + cell * columns), (edge, edge), edge % steps[0] == 0 or edge == rows)
    for edge in range(columns + 1):
        rule(ax, (x + cell * edge,) * 2, (0, rows), edge % steps[1] == 0 or edge == columns)
    numbers(ax, [(x - 0.25, row + 0.5) for row in range(rows)], ha="right")


def arrow(ax, start, end, colour, **how) -> None:
    """An arrow between two points, (x, y) each."""
    more = {"arrowstyle": "-|>", "mutation_scale": 7, "linewidth": 0.9, "color": colour} | how
    ax.add_patch(FancyArrowPatch(start, end, shrinkA=0, shrinkB=0, **more))


def short(value: float) -> str:
    """Two digits, since a cell has no room for more: .53, 1.2."""
    if value == 0:
        return "0"
    return f"{value:.2f}".replace("0.", ".", 1) if abs(value) < 0.995 else f"{value:.1f}"


def wrap(text: str, width: int) -> str:
    """Text in lines of so many characters; "–" for none."""
    return "\n".join(textwrap.wrap(text, width)) or "–"
