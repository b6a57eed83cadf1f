"""What the axes of several figures need."""

from __future__ import annotations

import pytest
from matplotlib import pyplot as plt

from artifact.drawing import plot


@pytest.mark.parametrize(
    "values,labels",
    [
        ([2**p for p in range(9, 16)], ["2⁹", "2¹¹", "2¹³", "2¹⁵"]),
        ([2**p for p in range(15, 21)], ["2¹⁶", "2¹⁸", "2²⁰"]),
        ([1024, 2048, 4096, 8192, 16384], ["1 024", "4 096", "16 384"]),
        ([1000, 2**15, 2**20], ["1 000", "32 768", "1 048 576"]),
        ([1, 3, 512], ["1", "3", "512"]),
    ],
)
def test_sizes_of_an_axis_have_one_notation(values, labels):
    fig, ax = plt.subplots()
    ax.plot(values, values)
    plot.sizes(ax, values)
    fig.canvas.draw()
    shown = [t.get_text().replace("\u202f", " ") for t in ax.get_xticklabels()]
    assert shown == labels
