"""Numbers in words."""

from artifact.drawing import words


def test_lists_and_sizes():
    assert words.listed([]) == "" and words.listed(["a"]) == "a"
    assert words.listed(["a", "b", "c"]) == "a, b and c"
    assert words.shape((512, 512, 512)) == words.cube(512) == "512³"
    assert words.shape((512, 512, 64)) == "512 × 512 × 64"


def test_differences():
    assert words.more(0.123, "bytes") == "12% more bytes" and words.more(-0.5, "clocks") == "50% fewer clocks"
    assert words.change(1.2) == "20% faster" and words.change(0.9) == "10% slower"
    assert words.change(1.019) == words.change(0.981) == "the same within 2%"


def test_factors_of_predictions():
    assert words.times("1.3x over 128 x 256: 2x.") == "1.3× over 128 x 256: 2×."
