"""The races against the vendor's libraries: at which points they are run, what is said and drawn of them."""

from dataclasses import replace
from types import SimpleNamespace

import drawn
import pandas as pd
import pytest
import synthetic
from refused import refused

from artifact import paths, registry
from artifact.drawing import outputs, provenance, style, summary
from artifact.drawing.pages import front
from artifact.measure import records
from artifact.verdicts import judge, load, measures

SYSTEM, SHIPPED = "casper_sparse", paths.RECORDED / "nvidia-h200"


def part(root, gpu, name, rows=None, **how):
    """The folder of a GPU with so many rows of one experiment."""
    return synthetic.folder(
        root / gpu, {name: synthetic.experiment(name, gpu=gpu, **how).iloc[:rows]}, gpu, gpu.lower()
    )


def test_speedups_are_over_the_vendors_fastest(gpu_folder, race):
    points = summary.points(race, gpu_folder)
    over = points.rdiv(points["vendor"], axis=0).round(9)
    usual = over.index.get_level_values("experiment").map(synthetic.SPEEDUP)
    assert len(points) == 3 * (7 + 5) and over["published"].eq(usual).all() and over["best"].eq(1 / 0.8).all()
    assert points["limit"].gt(0).all()
    few = summary.points(replace(race, at={"density": [0.01], "n": [512]}), gpu_folder)
    assert 0 < len(few) and few.equals(points.query("density == 0.01 and n == 512"))
    (row,) = summary.table({"one": gpu_folder}).itertuples()
    assert (row.published, row.best, row.points) == (pytest.approx(records.geomean(over["published"])), 1.25, 36)
    assert row.stated_low == row.stated_high == 1  # "above 1×"


def test_gpus_are_compared_at_the_points_that_both_have(tmp_path, gpu_folder, race):
    other = part(tmp_path, "X1", "wide", 32, speedup=2.0)
    df = summary.table({"H200": gpu_folder, "X1": other}).set_index("gpu")
    assert set(df["points"]) == {len(summary.points(race, other))} and df["points"].max() < 12
    assert df["published"].to_dict() == pytest.approx({"H200": 0.7, "X1": 2.0})


def test_a_system_that_says_nothing_races_where_all_three_were_measured(gpu_folder, monkeypatch):
    monkeypatch.setattr(registry, "races", lambda *_: None)
    found = summary.races(SYSTEM, gpu_folder)
    assert [race.says for race in found] == ["wide", "tall"]  # the most points first
    assert "warp_per_row" in found[0].published and "rows_per_warp" in found[0].best
    monkeypatch.setattr(registry, "races", lambda *_: [{"says": "x", "wheels": 4}])
    refused("summary.toml: the key 'experiments' is missing", summary.races, SYSTEM, gpu_folder)


def test_an_experiment_that_not_all_gpus_have_is_raced_in_another(tmp_path, gpu_folder, race, monkeypatch):
    """As NM-SpMM's, whose layers of LLaMA were measured on one GPU only."""
    one = replace(race, experiments=("wide",), otherwise=("square",))
    monkeypatch.setattr(summary, "races", lambda system, folder: [one] if system == SYSTEM else [])
    alone = summary.table({"H200": gpu_folder})
    assert alone[["experiments", "instead_of"]].to_numpy().tolist() == [["wide", ""]]
    assert "wide" not in summary.told(alone)["caption"]
    df = summary.table(
        {"H200": gpu_folder} | {"X1": part(tmp_path, "X1", "square"), "Y2": part(tmp_path, "Y2", "tall")}
    )
    assert df["gpu"].tolist() == ["H200", "X1"], "the most GPUs that can take part"
    assert df[["experiments", "instead_of"]].to_numpy().tolist() == [["square", "wide"]] * 2
    assert "at the 15 points of square, as not every GPU has wide." in summary.told(df)["caption"]


def test_shipped_records_have_what_systems_declare_on_every_gpu():
    found, known = provenance.folders(SHIPPED), {claim.id for claim in load.claims()}
    df = summary.table(found)
    for _, own in df.groupby(["room", "race"]):
        assert set(own["gpu"]) == set(found) and own["points"].nunique() == 1, "an empty line of the front page"
    assert (df["instead_of"] == "").all(), "a GPU lacks what another race stands in for"
    # A range lies within a range and a mean below a mean, so that no kernel seems faster than the GPU allows.
    assert (df["published_most"] < df["limit_most"]).all()
    assert (df[["published", "best"]].max(axis=1) < df["limit"]).all()
    for race in (race for system in registry.find() for race in summary.races(system, SHIPPED)):
        points = summary.points(race, SHIPPED)
        # Nothing can be faster than the limit; a tenth for the noise of two measurements.
        assert (points.drop(columns="limit").min(axis=1) > 0.9 * points["limit"]).all(), race
        assert len(points) and set(race.stated) <= known


@pytest.mark.parametrize("layout", [summary.WIDE, summary.NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("gpus", [1, 3])
def test_the_figure_has_a_row_for_a_race_and_marks_for_each_gpu(two, race, layout, gpus):
    """A GPU that did not run the race has its verdicts, and is named."""
    short = dict(zip(("H200", "X1"), two.values(), strict=True))
    counts = {(SYSTEM, gpu): {measures.REPRODUCED: 3, measures.PARTLY: 1, summary.OWN: 4} for gpu in short}
    df = summary.table(short)
    df = pd.concat([df, df.iloc[1:].assign(gpu="Y2", published=3.0)], ignore_index=True).iloc[:gpus]
    fig, data = summary.figure(df, counts, layout)
    drawn.legible(fig)
    ax, bars = fig.axes
    said = " ".join(text.get_text().replace("\n", " ") for text in ax.texts)
    assert said.count("ours 1.25×") == 1 and ("not measured on X1" in said) == (gpus == 1)
    for colour, side in ((style.PUBLISHED, "published"), (style.BEST, "best")):
        assert filled(ax, colour) == [(pytest.approx(v), i == 0) for i, v in enumerate(df[side])]
    assert [patch.get_width() for patch in bars.patches][:6] == [0.375, 0.125, 0.5] * 2
    assert [patch.get_x() for patch in bars.patches][:6] == [0, 0.375, 0.5] * 2
    assert data[summary.OWN].tolist() == [4, 4, 0][:gpus]
    assert all(f"{gpu}: " in summary.told(df)["alt"] or gpus == 1 for gpu in df["gpu"])


def filled(ax, colour: str) -> list[tuple[float, bool]]:
    """Where the marks of a colour are, from the top, and whether they are filled."""
    marks = [line for line in ax.get_lines() if line.get_marker() in ("o", "D") and line.get_color() == colour]
    marks = sorted(marks, key=lambda line: line.get_ydata()[0])
    return [(line.get_xdata()[0], line.get_markerfacecolor() != "none") for line in marks]


def test_no_rows_no_figure_and_no_limit_without_ceilings(tmp_path, race):
    df = summary.table(
        {
            "one": synthetic.folder(
                tmp_path, {name: synthetic.experiment(name) for name in race.experiments}, with_ceilings=False
            )
        }
    )
    assert df["limit"].isna().all() and df["best"].notna().all() and summary.figure(df)
    assert summary.drawn(df.iloc[:0]) is None


@pytest.mark.parametrize(
    "ids,said", [([], ""), (["tc-range"], "0.94–0.98×"), (["async-gate-80", "async-gate-99"], "1.46–3.19×")]
)
def test_what_several_claims_state_is_a_range(ids, said):
    known = {claim.id: claim for claim in load.claims()}
    stated = summary._stated([known[i] for i in ids])
    assert stated["stated"] == said
    assert not said or f"{stated['stated_low']}–{stated['stated_high']}×" == said


def test_the_shipped_figure_can_be_read_wide_and_narrow():
    found = provenance.folders(SHIPPED)
    judged = judge.everywhere(load.claims(), found)
    (wide, data, narrow), said = front.raced(found, judged)
    for fig, at_most in ((wide, style.WIDTH), (narrow, 4.2)):
        drawn.legible(fig)
        assert fig.get_size_inches()[0] <= at_most
    assert wide.get_size_inches()[1] < 6, "doors and figure within the first thousand pixels of a page"
    assert (
        max([text.get_text().count("\n") + 1 for text in narrow.axes[0].texts]) <= 2 and len(said["caption"]) < 230
    ), "three lines"
    # As the ledger says: what a source's own data decide is counted apart, as not measured here.
    for gpu, df in judged.items():
        counts = data[data["gpu"] == gpu].drop_duplicates("room")[list(summary.VERDICTS)].sum()
        told = judge.counts(df, summary.OWN)
        assert told[summary.OWN] > 0 and counts[counts > 0].to_dict() == told


def test_a_chapter_shows_both_gpus_and_nothing_with_one(tmp_path, two, monkeypatch, race, shipped):
    shown, run = [], SimpleNamespace(room=SYSTEM, folder=two["NVIDIA X1"] / SYSTEM)
    for module in (outputs, outputs.figures):
        monkeypatch.setattr(module, "display", shown.append)
    shipped(tmp_path / "none")
    outputs.beside(run)
    assert not shown
    shipped(two["NVIDIA H200"].parent)
    outputs.beside(run)
    figure, said = shown
    assert figure.csv.name == "gpus.csv" and "H200" in figure.markdown
    assert "NVIDIA X1 and NVIDIA H200" in said.data and "abstract-speedup" in said.data
