"""The README's figure: the front page's race, as an SVG that stands alone, and what the README says in numbers."""

import re
from xml.etree import ElementTree

import synthetic
from drawn import texts
from refused import refused

from artifact import paths
from artifact.drawing import headline
from artifact.measure import records

SHIPPED = paths.RECORDED / "nvidia-h200"


def test_records_without_a_race(tmp_path, monkeypatch):
    monkeypatch.setattr(headline.load, "claims", lambda: [])
    folder, target = (
        synthetic.folder(tmp_path, {"wide": synthetic.experiment("wide").query("variant == 'cusparse_alg1'")}),
        tmp_path / "readme.svg",
    )
    refused("no records of a kernel beside a library", headline.readme, folder, target, kind=FileNotFoundError)
    assert not target.exists()


def test_the_figure_in_the_readme_stands_alone_and_is_that_of_the_shipped_records(tmp_path, capsys):
    """Its words too, with the counts of verdicts: a claim that changes is a figure that is drawn again."""
    target = tmp_path / "figure" / "readme.svg"
    assert headline.main(["readme", "--output", str(target)]) == 0 and capsys.readouterr().out.strip() == str(target)
    assert [p.name for p in target.parent.iterdir()] == ["readme.svg"], "nothing half-written stays"
    text, (here, shipped) = target.read_text(encoding="utf-8"), (on(path) for path in (target, headline.README_FIGURE))
    assert here.tag == "{http://www.w3.org/2000/svg}svg", "without it a browser shows no picture"
    assert "prefers-color-scheme: dark" in text
    assert set(re.findall(r"https?://([^/\"]+)", text)) == {"www.w3.org"}, "it asks no other host"
    assert here.get("aria-label") == shipped.get("aria-label") and texts(here) == texts(shipped), (
        "python -m artifact.drawing.headline readme"
    )
    assert "NVIDIA H100" in shipped.get("aria-label") and "verdicts on its claims" in texts(here)
    assert headline.main(["readme", "--gpu", "abacus"]) == 2
    assert re.fullmatch("error: .*nvidia-h200.*\n", capsys.readouterr().err)


def on(path) -> ElementTree.Element:
    return ElementTree.parse(path).getroot()


def test_the_speedup_in_the_readme_is_that_of_the_records():
    text = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    pattern = r"([\d.]+) \(N = (\d+)\) to ([\d.]+) times \(N = (\d+)\) the fastest of cuSPARSE's CSR .* over (\d+) real"
    low, first, high, last, matrices = re.search(pattern, text).groups()
    times = records.read(SHIPPED / "async_sparse" / "spmm.csv").pivot_table(
        index=list(records.POINT), columns="variant", values="median_us"
    )
    mean = (
        (times[[v for v in times if v.startswith("cusparse_")]].min(axis=1) / times["auto_fp32"])
        .groupby("n")
        .apply(records.geomean)
    )
    assert f"{mean[int(first)]:.2f}" == low == f"{mean.min():.2f}"
    assert f"{mean[int(last)]:.2f}" == high == f"{mean.max():.2f}"
    assert times.index.get_level_values("label").nunique() == int(matrices)
