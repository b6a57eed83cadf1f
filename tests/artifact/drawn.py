"""What tests of figures ask: which texts and marks were drawn, and whether they can be read."""

import re
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from artifact import paths
from artifact.book import figures
from artifact.drawing import style

matplotlib.use("agg")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Figures are saved here, in the book's style, and closed after each test; for a conftest.py to import."""
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    style.apply()
    yield tmp_path
    plt.close("all")


def placed(fig) -> list[tuple[Text, Bbox]]:
    """Lay a figure out, once; return its texts and where they are."""
    fig.draw_without_rendering()
    texts = [t for t in fig.findobj(Text) if t.get_text().strip() and t.get_visible()]
    return [(t, box) for t in texts if (box := t.get_window_extent()).width > 0]


def visible(fig, found: list[tuple[Text, Bbox]]) -> list[tuple[Text, Bbox]]:
    """Tick labels out of the view are laid out but not drawn."""
    canvas = fig.bbox
    return [(t, box) for t, box in found if canvas.x0 <= box.x0 and box.x1 <= canvas.x1 and canvas.y0 <= box.y0]


def overlaps(found: list[tuple[Text, Bbox]]) -> list[tuple[str, str]]:
    """Pairs of texts that lie on each other."""
    found = [(t, box) for t, box in found if t.get_rotation() in (0, 90)]
    boxes = np.array([box.shrunk(0.9, 0.8).extents for _, box in found]).reshape(-1, 4)
    low, high = (np.sort(boxes.reshape(-1, 2, 2), axis=1)[:, i] for i in (0, 1))
    meet = (low[:, None] <= high[None]).all(axis=2)  # a begins before b ends, in x and in y
    return [(found[a][0].get_text(), found[b][0].get_text()) for a, b in np.argwhere(np.triu(meet & meet.T, 1))]


#: Points; on a page a figure of `style.WIDTH` is 676 px wide, where these are 9 px.
LEAST = 8.0


def legible(fig) -> None:
    """No text lies on another one, none leaves the figure or is too small, no legend covers an axis."""
    found = placed(fig)
    seen, canvas, undrawn = visible(fig, found), fig.bbox, set()
    wide = max(1.0, fig.get_size_inches()[0] / style.WIDTH)
    for text in (text for text, _ in seen):
        raised = 0.7 if re.search(r"[$].*[_^]", text.get_text()) else 1.0  # an exponent is smaller than its base
        size = text.get_fontsize() * raised / wide
        assert size >= LEAST, f"{text.get_text()!r} has {size:g} points"
    assert not overlaps(seen), overlaps(seen)
    for axis in (axis for ax in fig.get_axes() for axis in (ax.xaxis, ax.yaxis)):
        low, high = sorted(axis.get_view_interval())
        undrawn |= {
            tick.label1
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            if not low <= tick.get_loc() <= high
        }
    for text, box in found:
        inside = canvas.x0 - 1 <= box.x0 and box.x1 <= canvas.x1 + 1
        inside = inside and canvas.y0 - 1 <= box.y0 and box.y1 <= canvas.y1 + 1
        assert inside or text in undrawn, text.get_text()
    for legend in fig.legends:
        for ax in fig.get_axes():
            assert not legend.get_window_extent().overlaps(ax.get_window_extent())


def words(fig) -> list[str]:
    return [text.get_text() for text in fig.findobj(Text)]


def on_a_page(fig, name="x") -> ElementTree.Element:
    """The figure as the page gets it, which must be well-formed."""
    return ElementTree.fromstring(figures.to_svg(fig, name))


def texts(root: ElementTree.Element) -> str:
    """All texts of a figure on a page."""
    return " ".join(" ".join("".join(e.itertext()).split()) for e in root.iter() if "text" in e.tag)
