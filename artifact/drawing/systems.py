"""The systems on trial: what they are, how far each is here, and the map of them."""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

from artifact import registry
from artifact.drawing import sketch, style
from artifact.measure import records

MEASURED, BUILT = "measured", "built, not measured"
#: An 8 x 8 example of each of `registry.PATTERNS`, of similar density.
EXAMPLES = (
    "......#. ##....## ........ #......# ...#.... ##.####. ...#...# .....#..",
    "##....## ##....## ..##.... ..##.... ##...... ##...... ....#### ....####",
    "####.... ####.... ....#### ....#### ####.... ######## ....#### ........",
    "#..##..# #..##..# ##..#..# ##...#.# #.#..#.# #.#.##.. .##.##.. ..###.#.",
)

#: Of the cards, in turn.
COLOURS = (style.PUBLISHED, style.CLAIM, style.BEST, style.BASELINE, *style.RUNGS[1:])
#: Sizes on the map, where a column of patterns is 1 wide: its left margin, the top of the first row of cards, the gap
#: between rows, a cell of an example, a card of one column (width, height).
LEFT, TOP, GAP, CELL, CARD = 0.52, 0.98, 0.1, 0.068, (0.94, 0.78)
INCHES = 5.15 / (TOP + 2 * (CARD[1] + GAP))  #: of paper, for 1 of that


def systems(folder: Path | None) -> pd.DataFrame:
    """Return one row per system: the fields of `registry.Room` that tell what it is, and whether a GPU's `folder` has
    records of it."""
    told = [field.name for field in fields(registry.Room) if field.name not in ("headline", "names")]
    found, measured = registry.find().values(), records.rooms(folder) if folder else []
    df = pd.DataFrame([{key: getattr(system, key) for key in told} for system in found])
    return df.assign(state=df["room"].isin(measured).map({True: MEASURED, False: BUILT}))


def systems_map(folder: Path | None) -> tuple[Any, pd.DataFrame]:
    """Draw the systems by what kind of sparsity they take (columns) and which unit computes (rows), a card each; where
    cards would lie on one another, their row has several lanes. (fig, data)"""
    data = systems(folder)
    placed = list(zip(data.itertuples(), lanes(data), itertools.cycle(COLOURS), strict=False))
    depth = [max((lane + 1 for s, lane, _ in placed if s.unit == unit), default=1) for unit in registry.UNITS]
    tops = TOP + (CARD[1] + GAP) * np.cumsum([0, *depth])
    fig, ax = plt.subplots(figsize=(style.WIDTH, tops[-1] * INCHES), layout="none")
    fig.subplots_adjust(0, 0, 1, 1)
    for column, (name, grid) in enumerate(zip(registry.PATTERNS, EXAMPLES, strict=True)):
        _example(ax, LEFT + column + (1 - 8 * CELL) / 2, 0.26, grid)
        sketch.put(ax, LEFT + column + 0.5, 0.13, name, weight="bold")
    for unit, top, below in zip(registry.UNITS, tops[:-1], tops[1:], strict=True):
        sketch.put(ax, 0.28, (top + below - GAP) / 2, unit.replace(" ", "\n"), weight="bold", linespacing=1.5)
    for system, lane, colour in placed:
        x = LEFT + registry.PATTERNS.index(system.patterns[0]) + (1 - CARD[0]) / 2
        y = tops[registry.UNITS.index(system.unit)] + lane * (CARD[1] + GAP)
        _card(ax, x, y, system, colour)
    ax.set(xlim=(0, LEFT + len(registry.PATTERNS) + 0.02), ylim=(tops[-1], 0))
    ax.axis("off")
    return fig, data.drop(columns=["title", "order", "patterns"])


def lanes(data: pd.DataFrame) -> list[int]:
    """Return the lane of each system in the row of its unit, from 0: the first in which no system before it has one of
    its patterns."""
    taken: set[tuple[str, int, str]] = set()
    found = []
    for system in data.itertuples():
        mine = ({(system.unit, lane, pattern) for pattern in system.patterns} for lane in itertools.count())
        lane, cells = next((lane, cells) for lane, cells in enumerate(mine) if not cells & taken)
        taken |= cells
        found.append(lane)
    return found


def _example(ax: Any, x: float, y: float, grid: str) -> None:
    """Draw a matrix of 8 x 8 cells, its non-zeros filled."""
    for row, cells in enumerate(grid.split()):
        for col, cell in enumerate(cells):
            how: Any = {"#": {"facecolor": style.BOUND, "alpha": 0.85}, ".": {"facecolor": "none", "alpha": 0.3}}[cell]
            at = (x + col * CELL, y + row * CELL)
            ax.add_patch(Rectangle(at, CELL, CELL, edgecolor=style.INK, linewidth=0.35, **how))


def _card(ax: Any, x: float, y: float, system: Any, colour: str) -> None:
    """Draw what a system is and how far, in a frame."""
    span = len(system.patterns)
    width, height = span - 1 + CARD[0], CARD[1]
    shape: Any = {"boxstyle": "round,pad=0,rounding_size=0.04", "linewidth": 1.5}
    tint: Any = {"facecolor": colour, "edgecolor": "none", "alpha": 0.2}
    for looks in (tint, {"facecolor": "none", "edgecolor": colour}):
        ax.add_patch(FancyBboxPatch((x, y), width, height, **looks, **shape))
    lines = [
        f"{system.format}, {system.precision}",
        *textwrap.wrap(system.idea, 25 if span == 1 else 54),
        *textwrap.wrap("on " + system.written_for, 24 if span == 1 else 54),
    ]
    sketch.put(ax, x + 0.05, y + 0.11, system.name, ha="left", weight="bold", fontsize=9.5)
    for number, line in enumerate(lines):
        sketch.put(ax, x + 0.05, y + 0.22 + number * 0.083, line, ha="left", fontsize=8)
    sketch.put(ax, x + width - 0.05, y + height - 0.07, system.state, ha="right", fontsize=8, weight="bold")
