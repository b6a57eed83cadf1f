"""Boxes, arrows and text, of which pictures are made."""

from __future__ import annotations

import textwrap

from matplotlib.patches import FancyArrowPatch, Rectangle

from artifact.drawing.style import INK


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
