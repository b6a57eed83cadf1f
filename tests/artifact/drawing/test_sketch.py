"""Small things of which pictures are made."""

import pytest

from artifact.drawing import sketch


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.533, ".53"), (-0.5, "-.50"), (0.996, "1.0"), (1.25, "1.2"), (12.34, "12.3")],
)
def test_a_value_in_a_cell_has_two_digits(value, text):
    assert sketch.short(value) == text


def test_text_in_lines():
    assert sketch.wrap("one two three", 8) == "one two\nthree"
    assert sketch.wrap("", 8) == "–"
