"""When to use the format of a system, in the words of its chapter."""

import numpy as np
import pytest

from artifact import paths, registry
from artifact.drawing.pages import which
from artifact.measure import records
from artifact.recommend import landscape

GPU = paths.RECORDED / "nvidia-h200"


@pytest.fixture(scope="module")
def points():
    return landscape.points(GPU)


@pytest.mark.parametrize("system", registry.find())
def test_the_paragraph_has_the_numbers_of_the_records(system, points, monkeypatch):
    monkeypatch.setattr(landscape, "points", lambda folder: points)
    text, df = which.of_system(GPU, system), points[points["room"] == system].dropna(subset="speedup")
    groups = df.groupby(["precision", "pattern"])
    assert len(df) and len(text.splitlines()) == len(groups)
    assert "nan" not in text and "inf" not in text.split()
    for (precision, pattern), some in groups:
        (line,) = [t for t in text.splitlines() if f" {precision}:" in t and pattern.lower() in t.lower()]
        assert f"{(some['speedup'] > 1).sum()} of {len(some)} points" in line
        if pattern != landscape.REAL:
            for _, at in some.groupby("density"):
                assert f"{records.geomean(at['speedup']):.2f}×" in line


def test_a_crossing_is_told_where_there_is_one(points, monkeypatch):
    df = points[(points["room"] == "casper_sparse") & (points["pattern"] != landscape.REAL)]
    monkeypatch.setattr(landscape, "points", lambda _: df.assign(speedup=np.where(df["density"] > 0.02, 0.5, 2.0)))
    assert "so that sparse pays below 2.24 %" in which.of_system(GPU, "casper_sparse")


def test_without_records_it_is_not_measured_yet(tmp_path):
    assert which.of_system(tmp_path, "casper_sparse").endswith("is not measured yet.")
