"""One palette that everyone can tell apart, and figures that can stand in a page."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot as plt

from artifact.drawing import style
from artifact.measure import records
from artifact.paths import ROOT

WHITE, NEAR_BLACK = "#FFFFFF", "#121212"

# Machado, Oliveira and Fernandes 2009: how linear RGB looks to someone without one kind of cone.
SIGHT = {
    "full": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


def linear(colour: str) -> np.ndarray:
    c = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2's contrast ratio."""
    light = sorted(float(linear(c) @ (0.2126, 0.7152, 0.0722)) for c in (a, b))
    return (light[1] + 0.05) / (light[0] + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ np.clip(rgb, 0, 1) / (0.9505, 1, 1.089)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


# ---------------------------------------------------------------- palette


@pytest.mark.parametrize("role", style.PALETTE)
@pytest.mark.parametrize("background", [WHITE, NEAR_BLACK])
def test_every_colour_is_seen_on_white_and_on_near_black(role, background):
    assert contrast(style.PALETTE[role], background) >= 3


def test_contrast_is_that_of_wcag():
    assert contrast("#FFFFFF", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("sight", SIGHT)
def test_the_main_roles_are_told_apart_by_everyone(sight):
    roles = [style.PALETTE[r] for r in ("published", "baseline", "best", "bound", "claim")]
    for a, b in itertools.combinations(roles, 2):
        apart = lab(SIGHT[sight] @ linear(a)) - lab(SIGHT[sight] @ linear(b))
        assert np.linalg.norm(apart) > 12, (a, b)


def test_no_two_contenders_look_the_same():
    ladder = [f"v{i}" for i in range(11)]  # nine rungs between the published kernel and the last
    ours = [style.look(v, ladder) for v in ladder]
    for what in ("color", "marker"):
        assert len({look[what] for look in ours}) == 11
    assert ours[0]["color"] == style.PUBLISHED and ours[-1]["color"] == style.BEST
    # What uses tensor cores, or multiplies blocks, is never drawn beside cuBLAS in float32 or the CPU.
    tensor_cores = ("cusparselt", "cublaslt", "cublas_tf32", "cublas_bf16")
    blocks = ("cusparse_bell", "cusparse_bsr", "triton_bsr", "cublas_dense")
    csr = [v for v in style.NAMES if v.startswith("cusparse_") and not v.startswith(blocks)]
    drawn = [
        [v for v in style.NAMES if v.startswith(tensor_cores)],
        [v for v in style.NAMES if v.startswith(blocks)] + csr,
        [v for v in style.NAMES if not v.startswith(tensor_cores + blocks)],
    ]
    assert set().union(*drawn) == set(style.NAMES) and len(csr) == 5
    for names in drawn:
        theirs = [style.look(v, ladder) for v in names]
        assert len({look["marker"] for look in [*ours, *theirs]}) == 11 + len(theirs)
        assert {look["color"] for look in theirs} == {style.BASELINE}


def test_every_two_colours_are_told_apart():
    for a, b in itertools.combinations(style.PALETTE.values(), 2):
        assert np.linalg.norm(lab(linear(a)) - lab(linear(b))) > 18, (a, b)


#: The book's background in dark mode, in its style sheet.
DARK_PAGE = "#14171B"


def test_colours_of_dark_pages_are_seen_there_and_told_apart():
    sheet = (ROOT / "book" / "_static" / "custom.css").read_text().lower()
    assert f"--pst-color-background: {DARK_PAGE.lower()}" in sheet
    dark = {role: style.DARK.get(colour, colour) for role, colour in style.PALETTE.items()}
    for role, colour in dark.items():
        assert contrast(colour, DARK_PAGE) >= 4.5, role
    for a, b in itertools.combinations(dark.values(), 2):
        assert np.linalg.norm(lab(linear(a)) - lab(linear(b))) > 18, (a, b)
    roles = [dark[r] for r in ("published", "baseline", "best", "bound", "claim")]
    for sight, (a, b) in itertools.product(SIGHT.values(), itertools.combinations(roles, 2)):
        assert np.linalg.norm(lab(sight @ linear(a)) - lab(sight @ linear(b))) > 12, (a, b)
    for colour, instead in style.DARK.items():
        assert f"--sot-{colour[1:].lower()}: {instead.lower()};" in sheet


def test_a_page_may_change_colours_that_are_too_dark_for_it_and_the_file_keeps_them(folder):
    fig, ax = plt.subplots()
    ax.plot([1, 2], color=style.BASELINE)
    shown = style.show(fig, "casper_sparse", "two", pd.DataFrame({"x": [1]}), "A line.", "Caption.")
    assert "stroke: var(--sot-0072b2, #0072b2)" in shown.markup
    assert "var(" not in shown.svg_path.read_text() and "#0072b2" in shown.svg_path.read_text()


def test_a_variant_that_is_not_of_the_room_cannot_be_drawn():
    with pytest.raises(ValueError, match="no variant 'x' to draw; the room has a, b"):
        style.look("x", ["a", "b"])


# ---------------------------------------------------------------- show


def drawn(name="one", label="x", room="casper_sparse") -> style.Shown:
    fig, ax = plt.subplots()
    ax.plot([1, 2], [3, 4], marker="o", color=style.PUBLISHED, clip_on=True)
    ax.set_xlabel(label)
    data = pd.DataFrame({"x": [1, 2]})
    return style.show(fig, room, name, data, "A line that rises.", "Caption with 2 < 3.")


def test_a_figure_for_a_narrow_page_is_beside_the_wide_one(folder):
    """The style sheet shows one of them; without it, as in an editor, it is the wide one."""
    (wide, _), (small, _) = plt.subplots(), plt.subplots(figsize=(3, 5))
    shown = style.show(wide, "room", "x", pd.DataFrame({"a": [1]}), "alt", "Caption.", small)
    first, second = re.findall(r"<svg [^>]*>", shown.markup)
    assert 'class="wide"' in first and "display:none" not in first
    assert 'class="narrow"' in second and 'style="display:none;' in second and 'width="288"' in second
    assert shown.markup.count("<figcaption>") == 1 and not plt.get_fignums()
    ids = re.findall(r'id="([^"]+)"', shown.markup)
    assert len(ids) == len(set(ids)), "two on one page"
    assert len(list(shown.svg_path.parent.iterdir())) == 2
    sheet = (ROOT / "book" / "_static" / "custom.css").read_text()
    assert "figure > svg.narrow { display: none !important; }" in sheet
    assert "figure > svg.narrow { display: block !important;" in sheet.partition("@media (max-width: 45rem)")[2]


def test_show_saves_the_figure_and_its_data(folder):
    shown = drawn()
    assert shown.svg_path == folder / "casper_sparse" / "one.svg"
    assert pd.read_csv(shown.csv_path)["x"].tolist() == [1, 2]
    assert sorted(p.name for p in shown.svg_path.parent.iterdir()) == ["one.csv", "one.svg"]
    assert not plt.get_fignums()


def test_the_page_gets_an_accessible_inline_figure():
    text = drawn()._repr_html_()
    assert 'role="img"' in text and 'aria-label="A line that rises."' in text
    assert 'href="../figures/casper_sparse/one.csv"' in text
    assert "2 &lt; 3" in text
    root = ElementTree.fromstring(text)  # well-formed
    assert root.tag == "figure"


def test_the_svg_takes_its_ink_from_the_page_and_nothing_from_elsewhere():
    text = drawn()._repr_html_()
    assert "currentColor" in text and style.INK not in text
    assert "<style" not in text and "<metadata" not in text and "@import" not in text
    assert set(re.findall(r"https?://[^\"' )]*", text)) == {"http://www.w3.org/2000/svg"}
    assert "<text" in text  # not outlines: text can be read out and searched
    assert not re.search(r"<rect[^>]*fill: #fff|<path[^>]*fill: #ffffff", text)  # transparent


def test_ids_are_unique_on_a_page_with_two_figures():
    a, b = drawn("one")._repr_html_(), drawn("two")._repr_html_()
    ids = re.findall(r'\bid="([^"]*)"', a + b)
    assert len(ids) > 10 and len(ids) == len(set(ids))
    for text in (a, b):
        own = set(re.findall(r'\bid="([^"]*)"', text))
        used = set(re.findall(r'href="#([^"]*)"', text)) | set(re.findall(r"url\(#(.*?)\)", text))
        assert used and used <= own


def test_the_same_figure_gives_the_same_bytes():
    assert drawn()._repr_html_() == drawn()._repr_html_()


def test_hostile_text_stays_text():
    text = drawn(label="a<b & 'c'")._repr_html_()
    ElementTree.fromstring(text)


@pytest.mark.parametrize("name", ["../up", "Big", "", "a b", "a/b"])
def test_a_name_cannot_leave_the_folder(name, folder):
    with pytest.raises(ValueError, match="cannot be called"):
        drawn(name)
    assert not list(folder.rglob("*.svg"))


def test_a_figure_needs_data_and_alternative_text():
    fig, _ = plt.subplots()
    with pytest.raises(ValueError, match="no data"):
        style.show(fig, "room", "x", pd.DataFrame(), "alt", "caption")
    with pytest.raises(ValueError, match="alternative text"):
        style.show(fig, "room", "x", pd.DataFrame({"a": [1]}), " ", "caption")


def test_an_interrupted_save_leaves_nothing_half_written(folder, monkeypatch):
    monkeypatch.setattr(records.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        drawn()
    assert not [p for p in folder.rglob("*") if p.is_file()]
