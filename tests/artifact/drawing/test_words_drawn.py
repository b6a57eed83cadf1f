"""Numbers in words, texts in cells, and names of files that become links."""

import pytest

from artifact.book import text
from artifact.drawing import sketch
from artifact.drawing.pages.sources import linked


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (text.listed([]), ""),
        (text.listed(["a"]), "a"),
        (text.listed(["a", "b", "c"]), "a, b and c"),
        (text.shape((512, 512, 512)), "512³"),
        (text.shape((512, 512, 64)), "512 × 512 × 64"),
        (text.more(0.123, "bytes"), "12% more bytes"),
        (text.more(-0.5, "clocks"), "50% fewer clocks"),
        (text.change(1.2), "20% faster"),
        (text.change(0.9), "10% slower"),
        (text.change(1.019), "the same within 2%"),
        (text.change(0.981), "the same within 2%"),
        (text.times("1.3x over 128 x 256: 2x."), "1.3× over 128 x 256: 2×."),
        (sketch.wrap("one two three", 8), "one two\nthree"),
        (sketch.wrap("", 8), "–"),
        *((sketch.short(value), text) for value, text in ((0, "0"), (0.533, ".53"), (-0.5, "-.50"), (0.996, "1.0"))),
        *((sketch.short(value), text) for value, text in ((1.25, "1.2"), (12.34, "12.3"))),
    ],
)
def test_what_is_said(said, expected):
    assert said == expected


def test_a_file_that_is_named_is_linked_and_comes_along(tmp_path):
    for name in ("one/a.cu", "two/a.cu", "two/b.cuh", "common/c.cuh"):
        path = tmp_path / "kernels" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    page = (
        '<code class="x"><span class="pre">a.cu</span></code> <code>b.cuh</code> <code>common/c.cuh</code> '
        '<code>kernels/two/a.cu</code> <code>none.cu</code> <a href="y"><code>b.cuh</code></a> a.cu'
    )
    text, files = linked(page, "one", tmp_path)
    assert files == {
        f"sources/kernels/{name}.txt": name for name in ("one/a.cu", "two/b.cuh", "common/c.cuh", "two/a.cu")
    }
    assert text.count("<a ") == 5 and 'href="sources/kernels/one/a.cu.txt"><code' in text
    assert '<a href="y"><code>b.cuh</code></a> a.cu' in text
    # On a page of no system a name that two folders have says nothing.
    assert linked("<code>a.cu</code>", "index", tmp_path) == ("<code>a.cu</code>", {})


def test_a_mark_is_drawn_at_all_entries_of_its_arrays_as_it_says():
    marks = (sketch.put, [0, 1], 2, ["a", "b"], {"ha": ["left", "right"]}), (sketch.frame, 0, [0, 1], 1, 1)
    ax = sketch.picture((0, 4), (3, 0), *marks).axes[0]
    assert [(t.get_text(), t.get_position(), t.get_ha()) for t in ax.texts] == [
        ("a", (0, 2), "left"),
        ("b", (1, 2), "right"),
    ]
    assert [patch.get_xy() for patch in ax.patches] == [(0, 0), (0, 1)] and ax.get_ylim() == (3, 0)
