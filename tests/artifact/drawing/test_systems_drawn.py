"""The map of the systems: how far each is, and a card for each, whatever systems there are."""

import numpy as np
import pandas as pd
import pytest
from drawn import legible, on_a_page, texts

from artifact import registry
from artifact.drawing.pages import front as systems


def test_the_patterns_are_what_they_are_called():
    grids = (np.array([[cell == "#" for cell in row] for row in grid.split()]) for grid in systems.EXAMPLES)
    anywhere, blocks, vectors, elements = grids
    assert all(grid.shape == (8, 8) and grid.any() for grid in (anywhere, blocks))
    assert set(blocks.reshape(4, 2, 4, 2).sum(axis=(1, 3)).flat) == {0, 4}
    assert (vectors.reshape(2, 4, 2, 4).any(axis=3).sum(axis=1) == 2).all()
    assert (elements.reshape(8, 2, 4).sum(axis=2) == 2).all()


def system(name: str, unit: str, *patterns: str) -> dict:
    return {
        "room": name,
        "name": name,
        "cite": name,
        "format": "CSR",
        "precision": "FP32",
        "unit": unit,
        "patterns": list(patterns),
        "written_for": "a GPU",
        "idea": "an idea",
        "claims": "a claim",
        "title": name,
        "order": 1,
        "state": systems.BUILT,
    }


CUDA, TENSOR = registry.UNITS
ANYWHERE, BLOCKS, VECTORS, ELEMENTS = registry.PATTERNS


def test_cards_that_would_lie_on_one_another_get_lanes():
    data = pd.DataFrame(
        [
            system("a", CUDA, ANYWHERE),
            system("b", CUDA, ANYWHERE),
            system("c", CUDA, BLOCKS),
            system("d", CUDA, ANYWHERE, BLOCKS),
            system("e", TENSOR, ANYWHERE),
        ]
    )
    assert systems.lanes(data) == [0, 1, 0, 2, 0]


@pytest.mark.parametrize("count", [0, 1, 12])
def test_the_map_holds_any_number_of_systems(monkeypatch, count):
    made = [system(f"system {i}", registry.UNITS[i % 3 == 2], registry.PATTERNS[i % 2]) for i in range(count)]
    columns = list(system("x", CUDA, ANYWHERE))
    monkeypatch.setattr(systems, "systems", lambda _: pd.DataFrame(made, columns=columns))
    fig, data = systems.systems_map(None)
    cards = [p for p in fig.axes[0].patches if hasattr(p, "get_boxstyle") and p.get_facecolor()[3] == 0]
    boxes = [card.get_window_extent() for card in cards]
    assert len(boxes) == len(data) == count
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
        assert fig.axes[0].get_window_extent().containsx(box.x1)
        assert box.y0 > 0
    said = texts(on_a_page(fig))
    assert all(f"system {i}" in said for i in range(count))
    legible(fig)
