"""What the axes of several figures need."""

import pytest
from drawn import overlaps, placed
from matplotlib import pyplot as plt

from artifact.drawing import plot


@pytest.mark.parametrize(
    "values,labels",
    [
        ([2**p for p in range(9, 16)], ["2⁹", "2¹¹", "2¹³", "2¹⁵"]),
        ([2**p for p in range(15, 21)], ["2¹⁶", "2¹⁸", "2²⁰"]),
        ([1024, 2048, 4096, 8192, 16384], ["1,024", "4,096", "16,384"]),
        ([1000, 2**15, 2**20], ["1,000", "32,768", "1,048,576"]),
        ([1, 3, 512], ["1", "3", "512"]),
    ],
)
def test_sizes_of_an_axis_have_one_notation(values, labels):
    fig, ax = plt.subplots()
    ax.plot(values, values)
    plot.sizes(ax, values)
    fig.canvas.draw()
    assert [t.get_text() for t in ax.get_xticklabels()] == labels


@pytest.mark.parametrize(
    ("value", "text"),
    [(999, "999"), (1000, "1,000"), (16384, "16,384"), (2e6, "2M"), (0.5, "0.5")],
)
def test_numbers_have_no_exponent(value, text):
    assert plot.number(value) == text


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


@pytest.mark.parametrize(
    ("wanted", "places"),
    [
        ([0.1, 0.5, 0.9], [0.1, 0.5, 0.9]),
        ([0.5, 0.5, 0.53], [0.41, 0.51, 0.61]),
        ([0.0, 0.01], [0.0, 0.1]),
        ([0.4, 0.98, 1.0], [0.4, 0.9, 1.0]),
        # Two that are apart from a third until they are pushed towards it.
        ([0.86, 0.99, 1.0], [0.8, 0.9, 1.0]),
    ],
)
def test_places_of_names_are_spread_around_their_mean_within_the_axes(wanted, places):
    assert plot.spaced(wanted, 0.1) == pytest.approx(places)


def test_lines_are_named_where_they_end():
    fig, ax = plt.subplots(layout="constrained")
    lines = {
        "a": ([1, 10], [1, 2]),
        "b": ([1, 10], [1, 2.01]),
        "short": ([1, 4], [3, 4]),
        "one": ([6], [1]),
    }
    ends = []
    for called, (x, y) in lines.items():
        (line,) = ax.plot(x, y)
        ends.append(plot.End(called, x[-1], y[-1], line.get_color(), alone=len(x) == 1))
    plot.ends(ax, ends)
    assert not overlaps(placed(fig))
    box = {text.get_text(): text.get_window_extent() for text in ax.texts}
    right = ax.get_window_extent().x1
    assert box["a"].x0 > right and box["b"].x0 > right  # in the margin
    at = {called: ax.transData.transform((x[-1], y[-1])) for called, (x, y) in lines.items()}
    assert at["short"][0] < box["short"].x0 < box["short"].x1 < right
    assert box["one"].x1 < at["one"][0]  # beside a point that stands alone, on its left


@pytest.mark.parametrize(("width", "rows"), [(8.3, 1), (5.0, 2), (1.0, 6)])
def test_a_legend_is_one_row_or_as_even_as_fits(width, rows):
    fig, ax = plt.subplots(figsize=(width, 3), layout="constrained")
    plot.legend(fig, {f"contender {i}": ax.plot([0, 1], [i, i])[0] for i in range(6)}, columns=4)
    (legend,) = fig.legends
    fig.canvas.draw()
    assert len({round(text.get_window_extent().y0) for text in legend.get_texts()}) == rows
    if rows < 6:
        assert legend.get_window_extent().width <= fig.bbox.width
