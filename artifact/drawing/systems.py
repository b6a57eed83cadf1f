"""The systems on trial: what they are, how far each is here, and the map of them."""

from __future__ import annotations

import itertools
import textwrap
from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

from artifact import paths, registry
from artifact.drawing import sketch, style
from artifact.measure import records

MEASURED, BUILT, NOT_BUILT = "measured", "built, not measured", "not built yet"

#: Of the cards, in turn.
COLOURS = (style.PUBLISHED, style.CLAIM, style.BEST, style.BASELINE, *style.RUNGS[1:])
#: Sizes on the map, where a column of patterns is 1 wide: its left margin, the top of the first row of cards, the gap
#: between rows, a cell of an example, a card of one column (width, height).
LEFT, TOP, GAP, CELL, CARD = 0.52, 0.98, 0.1, 0.068, (0.94, 0.78)
INCHES = 5.15 / (TOP + 2 * (CARD[1] + GAP))  #: of paper, for 1 of that


def state(room: str, folder: Path | None) -> str:
    """How far a room is, from what is there: its launch.py, and records under a GPU's `folder`."""
    if not (paths.ROOT / "kernels" / room / "launch.py").is_file():
        return NOT_BUILT
    return MEASURED if folder and room in records.rooms(folder) else BUILT


def systems(folder: Path | None) -> pd.DataFrame:
    """One row per system: the fields of `registry.Room` that tell what it is, and its state."""
    told = [field.name for field in fields(registry.Room) if field.name not in ("headline", "names")]
    found = registry.find().values()
    rows = [{key: getattr(s, key) for key in told} | {"state": state(s.room, folder)} for s in found]
    return pd.DataFrame(rows)


def systems_map(folder: Path | None):
    """The systems by what kind of sparsity they take (columns) and which unit computes (rows), a card each; where cards
    would lie on one another, their row has several lanes. (fig, data)"""
    data = systems(folder)
    placed = list(zip(data.itertuples(), lanes(data), itertools.cycle(COLOURS), strict=False))
    depth = [max((lane + 1 for s, lane, _ in placed if s.unit == unit), default=1) for unit in registry.UNITS]
    tops = TOP + (CARD[1] + GAP) * np.cumsum([0, *depth])
    height = tops[-1] * INCHES
    fig, ax = plt.subplots(figsize=(style.WIDTH, height), layout="none")
    fig.subplots_adjust(0, 0, 1, 1)
    for column, (name, grid) in enumerate(zip(registry.PATTERNS, examples(), strict=True)):
        _example(ax, LEFT + column + (1 - 8 * CELL) / 2, 0.26, grid)
        sketch.put(ax, LEFT + column + 0.5, 0.13, name, weight="bold")
    for unit, top, below in zip(registry.UNITS, tops[:-1], tops[1:], strict=True):
        middle, text = (top + below - GAP) / 2, unit.replace(" ", "\n")
        sketch.put(ax, 0.28, middle, text, weight="bold", linespacing=1.5)
    for system, lane, colour in placed:
        x = LEFT + registry.PATTERNS.index(system.patterns[0]) + (1 - CARD[0]) / 2
        y = tops[registry.UNITS.index(system.unit)] + lane * (CARD[1] + GAP)
        _card(ax, x, y, system, colour)
    ax.set(xlim=(0, LEFT + len(registry.PATTERNS) + 0.02), ylim=(tops[-1], 0))
    ax.axis("off")
    return fig, data.drop(columns=["title", "order", "patterns"])


def lanes(data: pd.DataFrame) -> list[int]:
    """The lane of each system in the row of its unit, from 0: the first in which no system before it has one of its
    patterns."""
    taken: set[tuple[str, int, str]] = set()
    found = []
    for system in data.itertuples():
        lane = 0
        while any((system.unit, lane, pattern) in taken for pattern in system.patterns):
            lane += 1
        taken |= {(system.unit, lane, pattern) for pattern in system.patterns}
        found.append(lane)
    return found


def _example(ax, x: float, y: float, grid: np.ndarray) -> None:
    """A matrix of 8 x 8 cells, its non-zeros filled."""
    for (row, col), on in np.ndenumerate(grid):
        how = {"facecolor": style.BOUND if on else "none", "alpha": 0.85 if on else 0.3}
        at = (x + col * CELL, y + row * CELL)
        ax.add_patch(Rectangle(at, CELL, CELL, edgecolor=style.INK, linewidth=0.35, **how))


def _card(ax, x: float, y: float, system, colour: str) -> None:
    """What a system is and how far, in a frame: filled where it is built, dashed where not."""
    there, span = system.state != NOT_BUILT, len(system.patterns)
    width, height = span - 1 + CARD[0], CARD[1]
    shape = {"boxstyle": "round,pad=0,rounding_size=0.04", "linewidth": 1.5}
    if there:
        tint = {"facecolor": colour, "edgecolor": "none", "alpha": 0.2}
        ax.add_patch(FancyBboxPatch((x, y), width, height, **tint, **shape))
    frame = {"facecolor": "none", "edgecolor": colour, "linestyle": "-" if there else (0, (4, 3))}
    ax.add_patch(FancyBboxPatch((x, y), width, height, **frame, **shape))
    lines = [
        f"{system.format}, {system.precision}",
        *textwrap.wrap(system.idea, 25 if span == 1 else 54),
        *textwrap.wrap("on " + system.written_for, 24 if span == 1 else 54),
    ]
    sketch.put(ax, x + 0.05, y + 0.11, system.name, ha="left", weight="bold", fontsize=9.5)
    for number, line in enumerate(lines):
        sketch.put(ax, x + 0.05, y + 0.22 + number * 0.083, line, ha="left", fontsize=8)
    how = {"weight": "bold"} if there else {"style": "italic"}
    at = (x + width - 0.05, y + height - 0.07)
    sketch.put(ax, *at, system.state, ha="right", fontsize=8, **how)


def examples() -> list[np.ndarray]:
    """8 x 8 examples of `registry.PATTERNS`, of similar density; drawn once with a fixed seed."""
    rng = np.random.default_rng(3)
    anywhere = np.zeros((8, 8), bool)
    for row, count in enumerate((1, 4, 0, 2, 1, 6, 2, 1)):
        anywhere[row, rng.choice(8, count, replace=False)] = True
    blocks = np.kron(np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]]), np.ones((2, 2)))
    vectors = np.zeros((8, 8), bool)
    for window in (0, 4):  # two of every four rows, per group of four columns
        for group in (0, 4):
            for row in rng.choice(4, 2, replace=False):
                vectors[window + row, group : group + 4] = True
    elements = np.zeros((8, 8), bool)
    for row in range(8):
        for group in (0, 4):
            elements[row, group + rng.choice(4, 2, replace=False)] = True
    return [anywhere, blocks.astype(bool), vectors, elements]
