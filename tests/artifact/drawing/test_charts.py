import itertools
import re
from types import SimpleNamespace
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import overlaps

matplotlib.use("agg")

from matplotlib import pyplot as plt

from artifact import paths
from artifact.drawing import charts, plot, style
from artifact.measure import records
from artifact.rooms.casper_sparse import pictures

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
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ np.clip(rgb, 0, 1) / (0.9505, 1, 1.089)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "FIGURES", tmp_path)
    style.apply()
    yield tmp_path
    plt.close("all")


@pytest.fixture(scope="module")
def sweeps() -> pd.DataFrame:
    made = [records.best_of(synthetic.experiment(name, jitter=0.05)) for name in synthetic.SHAPES]
    return pd.concat(made, ignore_index=True)


def drawn(name="one", label="x", room="casper_sparse") -> style.Shown:
    fig, ax = plt.subplots()
    ax.plot([1, 2], [3, 4], marker="o", color=style.PUBLISHED, clip_on=True)
    ax.set_xlabel(label)
    data = pd.DataFrame({"x": [1, 2]})
    return style.show(fig, room, name, data, "A line that rises.", "Caption with 2 < 3.")


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
    # What uses tensor cores is never drawn beside cuSPARSE and cuBLAS.
    tensor_cores = ("cusparselt", "cublaslt", "cublas_tf32", "cublas_bf16")
    for drawn in (True, False):
        names = [v for v in style.NAMES if v.startswith(tensor_cores) == drawn]
        theirs = [style.look(v, ladder) for v in names]
        assert len({look["marker"] for look in [*ours, *theirs]}) == 11 + len(theirs)
        assert {look["color"] for look in theirs} == {style.BASELINE}


def test_every_two_colours_are_told_apart():
    for a, b in itertools.combinations(style.PALETTE.values(), 2):
        assert np.linalg.norm(lab(linear(a)) - lab(linear(b))) > 18, (a, b)


def test_a_variant_that_is_not_of_the_room_cannot_be_drawn():
    with pytest.raises(ValueError, match="no variant 'x' to draw; the room has a, b"):
        style.look("x", ["a", "b"])


# ---------------------------------------------------------------- show


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


# ---------------------------------------------------------------- plots


@pytest.mark.parametrize("experiment,x", [("wide", "n"), ("square", "n"), ("tall", "m")])
def test_sweep_panel(sweeps, experiment, x):
    df = sweeps[sweeps["experiment"] == experiment]
    fig, data = charts.sweep_panel(
        df, x, synthetic.LADDER, claim=(0.55, 0.9), copy_gbps=4000, xlabel="size"
    )
    axes = fig.get_axes()
    assert len(axes) == 9 and axes[0].get_xscale() == axes[0].get_yscale() == "log"
    labels = [t.get_text() for t in fig.legends[0].get_texts()]
    assert "stated by the source: 0.55–0.90×" in labels and "cuSPARSE, best algorithm" in labels
    assert set(data["variant"]) == {"warp_per_row", "rows_per_warp", "cusparse_best"}
    assert data.loc[data["variant"] == "cusparse_best", "speedup"].eq(1).all()
    assert len(data) == 3 * len(synthetic.SHAPES[experiment]) * len(synthetic.DENSITIES)
    drawn = dict(zip(labels, fig.legends[0].get_lines(), strict=False))
    measured = pd.concat(
        records.speedup(df, v, "cusparse_best").to_frame().assign(variant=v)
        for v in ("warp_per_row", "rows_per_warp")
    ).reset_index()
    for row, quantity in enumerate(("median_us", "gbps", "speedup")):
        for column, density in enumerate(synthetic.DENSITIES):
            lines = axes[3 * row + column].get_lines()
            for variant in ("warp_per_row", "rows_per_warp", "cusparse_best"):
                if quantity == "speedup" and variant == "cusparse_best":
                    continue  # it is 1
                here = measured if quantity == "speedup" else df
                here = here[(here["variant"] == variant) & (here["density"] == density)]
                here = here.sort_values(x)
                look = drawn[style.name(variant)]
                (line,) = (at for at in lines if at.get_marker() == look.get_marker())
                assert line.get_color() == look.get_color()
                np.testing.assert_array_equal(line.get_xdata(), here[x])
                np.testing.assert_allclose(line.get_ydata(), here[quantity])
    assert not overlaps(fig)


def test_sweep_panel_of_one_point(sweeps):
    df = sweeps[
        (sweeps["experiment"] == "wide") & (sweeps["n"] == 512) & (sweeps["density"] < 0.006)
    ]
    fig, data = charts.sweep_panel(df, "n", synthetic.LADDER)
    assert len(fig.get_axes()) == 3 and len(data) == 3


@pytest.mark.parametrize("traffic", ["least_bytes", "requested_bytes"])
def test_roofline(sweeps, traffic):
    ceilings = {"DRAM copy": 4200, "L2 read": 8000, "FMA": 61}
    fig, data = charts.roofline(sweeps, ceilings, synthetic.LADDER, traffic)
    assert [ax.get_title() for ax in fig.get_axes()] == ["wide", "square", "tall"]
    np.testing.assert_allclose(data["intensity"], data["useful_flops"] / data[traffic])
    assert not overlaps(fig)
    assert set(data["variant"]) == {*synthetic.LADDER, "cusparse_best"}
    labels = [t.get_text() for t in fig.legends[0].get_texts()]
    assert labels == ["warp_per_row", "rows_per_warp", "cuSPARSE, best algorithm", "other rungs"]
    drawn = {  # the points of the first panel; the roofs have a line
        tuple(point)
        for line in fig.get_axes()[0].get_lines()
        if line.get_linestyle() == "None"
        for point in line.get_xydata()
    }
    wide = data[data["experiment"] == "wide"]
    assert drawn == set(wide[["intensity", "tflops"]].itertuples(index=False, name=None))
    left, right = fig.get_axes()[0].get_xlim()
    ends = [*data["intensity"], 61 / 4.2, 61 / 8]  # the data and the ridges, and little more
    assert min(ends) / 1.5 < left < min(ends) and max(ends) < right < max(ends) * 1.6
    with pytest.raises(ValueError, match="needs the ceiling 'FMA'"):
        charts.roofline(sweeps, {"DRAM copy": 4200}, synthetic.LADDER)


def test_roofline_marks_what_it_is_asked_to(sweeps):
    ceilings = {"DRAM copy": 4200, "FMA": 61}
    strong = ["any_n", "column_tiles", "not_measured"]
    fig, _ = charts.roofline(sweeps, ceilings, synthetic.LADDER, strong=strong)
    labels = [t.get_text() for t in fig.legends[0].get_texts()]
    assert {"any_n", "column_tiles", "l2_panels"} < set(labels)  # a single other by its name
    assert "not_measured" not in labels and "other rungs" not in labels
    fig, _ = charts.roofline(sweeps, ceilings, synthetic.LADDER, strong=synthetic.LADDER)
    assert len(fig.legends[0].get_texts()) == len(synthetic.LADDER) + 1


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


def test_ladder_without_a_prediction(sweeps):
    fig, data = charts.ladder(sweeps, {"warp_per_row": "", "any_n": "Faster."})
    words = [t.get_text() for t in fig.findobj(matplotlib.text.Text)]
    assert words.count("–") == 1 and "Faster." in words
    assert set(data["prediction"]) == {"", "Faster."}


def test_ladder(sweeps):
    predictions = dict.fromkeys([*synthetic.LADDER, "not_measured"], "Faster, by a lot. " * 6)
    fig, data = charts.ladder(sweeps, predictions)
    assert list(dict.fromkeys(data["variant"])) == list(synthetic.LADDER)
    one = data[(data["variant"] == "warp_per_row") & (data["experiment"] == "wide")].iloc[0]
    wide = sweeps[sweeps["experiment"] == "wide"]
    expected = records.geomean(records.speedup(wide, "warp_per_row", "cusparse_best"))
    assert one["speedup"] == pytest.approx(expected) and one["least"] < expected < one["most"]
    assert not overlaps(fig)
    with pytest.raises(ValueError, match="None of the rungs"):
        charts.ladder(sweeps, {"x": ""})


def test_spread():
    first = synthetic.experiment("wide")
    second = first.assign(median_us=first["median_us"] * 1.02)
    fig, data = charts.spread(first, second, synthetic.LADDER)
    np.testing.assert_allclose(data["ratio"], 1.02)
    assert not overlaps(fig)
    with pytest.raises(ValueError, match="share no point"):
        charts.spread(first, synthetic.experiment("tall"), synthetic.LADDER)


def test_plots_can_be_shown_on_one_page(sweeps):
    wide = sweeps[sweeps["experiment"] == "wide"]
    pages = [
        style.show(*pair[:1], "casper_sparse", name, pair[1], "alt", "caption")._repr_html_()
        for name, pair in {
            "wide": charts.sweep_panel(wide, "n", synthetic.LADDER),
            "spread": charts.spread(wide, wide, synthetic.LADDER),
        }.items()
    ]
    ids = re.findall(r'\bid="([^"]*)"', "".join(pages))
    assert len(ids) == len(set(ids))


# ---------------------------------------------------------------- pictures


def csr(m, k, row_ptr, col_idx, val=None) -> SimpleNamespace:
    val = np.arange(1, len(col_idx) + 1) / 10 if val is None else val
    return SimpleNamespace(
        m=m, k=k, row_ptr=np.array(row_ptr), col_idx=np.array(col_idx), val=np.array(val)
    )


def test_csr_picture_shows_the_arrays():
    fig, data = pictures.csr_picture(csr(4, 5, [0, 2, 2, 5, 6], [1, 4, 0, 2, 3, 1]))
    assert data["row"].tolist() == [0, 0, 2, 2, 2, 3]
    words = [t.get_text() for t in fig.findobj(matplotlib.text.Text)]
    assert {"row_ptr", "col_idx", "val"} <= set(words)
    assert not overlaps(fig)


@pytest.mark.parametrize("a", [csr(20, 5, [0] * 21, [0]), csr(2, 2, [0, 0, 0], [])])
def test_csr_picture_refuses_what_cannot_be_read(a):
    with pytest.raises(ValueError, match="cannot|too large"):
        pictures.csr_picture(a)


def test_warp_picture_shows_a_real_row():
    counts = np.array([10, 40, 20])
    pointers = np.concatenate([[0], np.cumsum(counts)])
    columns = np.random.default_rng(0).integers(0, 4096, pointers[-1])
    a = csr(3, 4096, pointers, columns)
    fig, data = pictures.warp_picture(a, 512)
    assert data["column"].tolist() == columns[10:50].tolist()  # row 1: the one with two chunks
    assert data["chunk"].tolist() == [0] * 32 + [1] * 8
    assert not overlaps(fig)
    fig, _ = pictures.warp_picture(a, 12, row=0)
    assert "29 lanes idle" in [t.get_text() for t in fig.findobj(matplotlib.text.Text)]
    for bad in ({"n": 6}, {"n": 128, "tile": 1}, {"n": 128, "row": 7}):
        with pytest.raises(ValueError):
            pictures.warp_picture(a, **bad)
