"""The headline: who is in the contest, what is drawn of it, and the README's figure."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pandas as pd
import pytest
import synthetic
from drawn import on_a_page, texts

from artifact import paths
from artifact.drawing import headline
from artifact.measure import records

# ---------------------------------------------------------------- the contest


def test_the_contest_is_between_the_published_kernel_and_the_last_rung(gpu_folder):
    c = headline.contest(gpu_folder)
    assert (c.published, c.last) == ("warp_per_row", synthetic.LADDER[-1])
    assert c.experiments == ["wide", "square", "tall"], "in the order of the source"
    for name, ratio in synthetic.SPEEDUP.items():
        assert c.geomean("warp_per_row", name) == pytest.approx(ratio)
        assert c.geomean(c.last, name) == pytest.approx(1 / synthetic.SLOWER[c.last])


def test_each_sweep_is_drawn_over_what_it_sweeps(gpu_folder):
    df = headline.contest(gpu_folder).speedups
    points = len(synthetic.DENSITIES) * sum(map(len, synthetic.SHAPES.values()))
    assert len(df) == 2 * points
    swept = {"wide": "n", "square": "m", "tall": "m"}
    for name, here in df.groupby("experiment"):
        assert (here["size"] == here[swept[name]]).all()
        assert here["size"].nunique() == len(synthetic.SHAPES[name])


def only(df: pd.DataFrame, *prefixes: str) -> pd.DataFrame:
    return df[df["variant"].str.startswith(prefixes)]


@pytest.mark.parametrize(
    "change",
    [
        lambda df: only(df, "warp_per_row", "rows_per_warp"),  # no library
        lambda df: only(df, "any_n", "rows_per_warp", "cusparse"),  # no published kernel
        lambda df: only(df, "warp_per_row", "cusparse"),  # no rung of ours
        lambda df: df.assign(label="wiki-Vote"),  # real matrices
        lambda df: df[df["n"] == 512],  # one size is no sweep
    ],
)
def test_records_without_a_contest(tmp_path, change):
    folder = synthetic.folder(tmp_path, frames={"wide": change(synthetic.experiment("wide"))})
    assert headline.contest(folder) is None
    target = tmp_path / "readme.svg"
    with pytest.raises(FileNotFoundError, match="no records of casper_sparse with cuSPARSE"):
        headline.readme(folder, target)
    assert not target.exists()


def test_the_contest_in_panels(gpu_folder):
    c = headline.contest(gpu_folder)
    fig, data = headline.contest_figure(c)
    assert [ax.get_title() for ax in fig.axes] == ["wide", "square", "tall"]
    assert [ax.get_xlabel() for ax in fig.axes] == ["N", "M = N = K", "M"]
    assert list(data.columns) == ["experiment", "variant", *records.POINT, "speedup"]
    assert len(data) == len(c.speedups) and (data["speedup"] > 0).all()
    published, ours, library = fig.axes[0].get_lines()
    assert published.get_ydata() == pytest.approx([0.7] * 7)
    assert ours.get_ydata() == pytest.approx([1.25] * 7) and set(library.get_ydata()) == {1}
    assert "warp_per_row (as published)" in texts(on_a_page(fig))


# ---------------------------------------------------------------- the README's figure


def test_the_figure_of_the_readme_stands_alone(gpu_folder, tmp_path):
    target = tmp_path / "figure" / "readme.svg"
    assert headline.readme(gpu_folder, target) == target
    assert [p.name for p in target.parent.iterdir()] == ["readme.svg"], "nothing half-written stays"
    text = target.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg", "without it a browser shows no picture"
    assert "prefers-color-scheme:dark" in text and "currentColor" in text
    assert re.findall(r"https?://([^/\"]+)", text) == ["www.w3.org"], "it asks no other host"
    assert root.get("aria-label") == (
        "Speedup of warp_per_row and rows_per_warp over cuSPARSE's best algorithm on NVIDIA H200: "
        "wide 0.70 and 1.25, square 0.80 and 1.25, tall 0.85 and 1.25"
    )


def test_the_same_records_give_the_same_figure(gpu_folder, tmp_path):
    one, other = (headline.readme(gpu_folder, tmp_path / f"{i}.svg").read_bytes() for i in (1, 2))
    assert one == other


def test_the_figure_from_the_shell(gpu_folder, tmp_path, capsys):
    arguments = ["readme", "--records", str(gpu_folder.parent), "--output", str(tmp_path / "r.svg")]
    assert headline.main(arguments) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "r.svg")
    assert headline.main([*arguments, "--gpu", "abacus"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("artifact.drawing.headline: ") and "nvidia-h200" in err


def test_the_figure_in_the_readme_is_that_of_the_shipped_records(tmp_path):
    made = headline.readme(records.resolve("nvidia-h200", paths.RECORDED), tmp_path / "readme.svg")
    here, shipped = (
        ElementTree.parse(path).getroot().get("aria-label")
        for path in (made, headline.README_FIGURE)
    )
    assert here == shipped, "python -m artifact.drawing.headline readme"
