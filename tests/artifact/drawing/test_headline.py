"""The README's figure: the front page's race, as an SVG that stands alone, and what the README says in numbers."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
import synthetic
from drawn import texts

from artifact import paths
from artifact.drawing import headline, races
from artifact.measure import records

SHIPPED = paths.RECORDED / "nvidia-h200"


@pytest.fixture(autouse=True)
def race(monkeypatch):
    """What the synthetic records have: their ladder ends earlier than the room's. The shipped ones race as they are."""
    declared = races.races
    one = races.Race("casper_sparse", "CSR", ("wide", "square"), ("warp_per_row",), ("rows_per_warp",))
    monkeypatch.setattr(races, "races", lambda room, f: declared(room, f) if paths.RECORDED in f.parents else [one])


def test_the_figure_of_the_readme_stands_alone(gpu_folder, tmp_path):
    target = tmp_path / "figure" / "readme.svg"
    assert headline.readme(gpu_folder, target) == target
    assert [p.name for p in target.parent.iterdir()] == ["readme.svg"], "nothing half-written stays"
    text = target.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg", "without it a browser shows no picture"
    assert "prefers-color-scheme: dark" in text
    assert set(re.findall(r"https?://([^/\"]+)", text)) == {"www.w3.org"}, "it asks no other host"
    assert "casperSPARSE, CSR: here 0.74× (0.70 to 0.80) as published, 1.25× ours" in root.get("aria-label")
    assert "here 0.70–0.80×; ours 1.25×" in texts(root) and "verdicts on its claims" in texts(root)


def test_records_without_a_race(tmp_path):
    df = synthetic.experiment("wide")
    alone = {"wide": df[df["variant"].str.startswith("cusparse_")]}
    folder, target = synthetic.folder(tmp_path, alone), tmp_path / "readme.svg"
    with pytest.raises(FileNotFoundError, match="no records of a kernel beside a library"):
        headline.readme(folder, target)
    assert not target.exists()


def test_the_figure_from_the_shell(gpu_folder, tmp_path, capsys):
    arguments = ["readme", "--records", str(gpu_folder.parent), "--output", str(tmp_path / "r.svg")]
    assert headline.main(arguments) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "r.svg")
    assert headline.main([*arguments, "--gpu", "abacus"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith("error: ") and "nvidia-h200" in err


def test_the_figure_in_the_readme_is_that_of_the_shipped_records(tmp_path):
    """Its words too, with the counts of verdicts: a claim that changes is a figure that is drawn again."""
    made = headline.readme(SHIPPED, tmp_path / "readme.svg")
    here, shipped = (ElementTree.parse(path).getroot() for path in (made, headline.README_FIGURE))
    assert here.get("aria-label") == shipped.get("aria-label"), headline.REDRAW
    assert texts(here) == texts(shipped), headline.REDRAW
    assert "NVIDIA H100" in shipped.get("aria-label")


def test_the_speedup_in_the_readme_is_that_of_the_records():
    text = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    pattern = r"([\d.]+) \(N = (\d+)\) to ([\d.]+) times \(N = (\d+)\) the fastest of cuSPARSE's CSR .* over (\d+) real"
    low, first, high, last, matrices = re.search(pattern, text).groups()
    df = records.read(SHIPPED / "async_sparse" / "spmm.csv")
    times = df.pivot_table(index=list(records.POINT), columns="variant", values="median_us")
    library = times[[v for v in times if v.startswith("cusparse_")]].min(axis=1)
    mean = (library / times["auto_fp32"]).groupby("n").apply(records.geomean)
    assert f"{mean[int(first)]:.2f}" == low == f"{mean.min():.2f}"
    assert f"{mean[int(last)]:.2f}" == high == f"{mean.max():.2f}"
    assert times.index.get_level_values("label").nunique() == int(matrices)
