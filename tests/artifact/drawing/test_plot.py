"""What the axes of several figures need."""

from __future__ import annotations

import pandas as pd
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


@pytest.mark.parametrize(
    ("value", "text"),
    [(999, "999"), (1000, "1 000"), (16384, "16 384"), (2e6, "2M"), (0.5, "0.5")],
)
def test_numbers_have_no_exponent(value, text):
    assert plot.number(value).replace("\u202f", " ") == text


@pytest.mark.parametrize("values", [[0.7, 0.8], [1.3, 9], [0.11, 4], [1.0]])
def test_an_axis_of_ratios_has_1_inside_and_few_ticks(values):
    fig, ax = plt.subplots()
    ax.plot(range(len(values)), values)
    plot.ratio(ax, values)
    fig.canvas.draw()
    low, high = ax.get_ylim()
    assert low < min(*values, 1) and max(*values, 1) < high < 1.3 * max(*values, 1)
    ticks = ax.get_yticks()
    assert 1 in ticks and 2 <= len(ticks) <= 9 and all(low <= tick <= high for tick in ticks)


def test_what_is_stated_stands_below_what_was_measured():
    measured = pd.DataFrame({"variant": ["a", "b"], "tflops": [1.0, 2.0]})
    stated = pd.DataFrame({"variant": ["a"], "low": [3.0]})
    df = plot.behind(measured, stated, stated.iloc[:0])
    assert list(df.columns) == ["source", "variant", "tflops", "low"]
    assert df["source"].tolist() == ["measured", "measured", "stated"]
    assert df["low"].isna().tolist() == [True, True, False]
    assert plot.stated("GPU X") == "stated by the source (GPU X)"
