"""The systems on trial: what they are, how far each is here, and the map of them."""

from __future__ import annotations

import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch, Rectangle

from artifact import paths, rooms
from artifact.drawing import sketch, style
from artifact.measure import records

MEASURED, BUILT, NOT_BUILT = "measured", "built, not measured", "not built yet"


PATTERNS = ("non-zeros anywhere", "blocks", "N of M vectors", "2 of 4 elements")
UNITS = ("CUDA cores", "tensor cores")


def state(room: str, folder: Path | None) -> str:
    """How far a room is, from what is there: its launch.py, and records under a GPU's `folder`."""
    if not (paths.ROOT / "kernels" / room / "launch.py").is_file():
        return NOT_BUILT
    return MEASURED if folder and room in records.rooms(folder) else BUILT


def systems(folder: Path | None) -> pd.DataFrame:
    """One row per system: the fields of `rooms.Room`, and its state."""
    return pd.DataFrame([vars(s) | {"state": state(s.room, folder)} for s in rooms.find().values()])


def systems_map(folder: Path | None):
    """The five systems by what kind of sparsity they take and which unit computes. (fig, data)"""
    data = systems(folder)
    fig, ax = plt.subplots(figsize=(style.WIDTH, 5.15), layout="none")
    fig.subplots_adjust(0, 0, 1, 1)
    left, top, cell, card = 0.52, 0.92, 0.068, (0.94, 0.78)
    for column, (name, grid) in enumerate(zip(PATTERNS, _patterns(), strict=True)):
        x, y = left + column + (1 - 8 * cell) / 2, 0.26
        for row in range(8):
            for col in range(8):
                on = bool(grid[row, col])
                box = Rectangle(
                    (x + col * cell, y + row * cell),
                    cell,
                    cell,
                    facecolor=style.BOUND if on else "none",
                    edgecolor=style.INK,
                    linewidth=0.35,
                    alpha=0.85 if on else 0.3,
                )
                ax.add_patch(box)
        sketch.write(ax, left + column + 0.5, 0.13, name, weight="bold")
    for row, unit in enumerate(UNITS):
        middle = top + 0.06 + row * (card[1] + 0.1) + card[1] / 2
        sketch.write(ax, 0.28, middle, unit.replace(" ", "\n"), weight="bold", linespacing=1.5)
    colours = (
        style.PUBLISHED,
        style.CLAIM,
        style.BEST,
        style.BASELINE,
        style.RUNGS[1],
    )
    for system, colour in zip(data.itertuples(), colours, strict=True):
        row = UNITS.index(system.unit)
        x = left + PATTERNS.index(system.patterns[0]) + (1 - card[0]) / 2
        y = top + 0.06 + row * (card[1] + 0.1)
        there = system.state != NOT_BUILT
        span = len(system.patterns)
        width = span - 1 + card[0]
        shape = {"boxstyle": "round,pad=0,rounding_size=0.04", "linewidth": 1.5}
        if there:
            tint = FancyBboxPatch(
                (x, y), width, card[1], facecolor=colour, edgecolor="none", alpha=0.2, **shape
            )
            ax.add_patch(tint)
        frame = FancyBboxPatch(
            (x, y),
            width,
            card[1],
            facecolor="none",
            edgecolor=colour,
            linestyle="-" if there else (0, (4, 3)),
            **shape,
        )
        ax.add_patch(frame)
        lines = [
            f"{system.format}, {system.precision}",
            *textwrap.wrap(system.idea, 25 if span == 1 else 60),
            *textwrap.wrap("on " + system.written_for, 24 if span == 1 else 60),
        ]
        sketch.write(ax, x + 0.05, y + 0.11, system.name, ha="left", weight="bold", fontsize=9.5)
        for number, line in enumerate(lines):
            sketch.write(ax, x + 0.05, y + 0.22 + number * 0.083, line, ha="left", fontsize=7.8)
        sketch.write(
            ax,
            x + width - 0.05,
            y + card[1] - 0.07,
            system.state,
            ha="right",
            fontsize=7.8,
            style="normal" if there else "italic",
            weight="bold" if there else "normal",
        )
    bottom = top + 0.06 + 2 * (card[1] + 0.1)
    ax.set(xlim=(0, left + 4 + 0.02), ylim=(bottom, 0))
    ax.axis("off")
    return fig, data.drop(columns=["title", "order", "patterns"])


def _patterns() -> list[np.ndarray]:
    """8 x 8 examples of PATTERNS, of similar density; drawn once with a fixed seed."""
    rng = np.random.default_rng(3)
    anywhere = np.zeros((8, 8), bool)
    for row, count in enumerate((1, 4, 0, 2, 1, 6, 2, 1)):
        anywhere[row, rng.choice(8, count, replace=False)] = True
    blocks = np.kron(
        np.array([[1, 0, 0, 1], [0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]]), np.ones((2, 2))
    )
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
