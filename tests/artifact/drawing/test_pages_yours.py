"""The pages for a reader's own matrix and own kernel: with the shipped records, and without any."""

import importlib

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawn import legible

from artifact import paths, registry
from artifact.book import facts, text
from artifact.drawing import provenance
from artifact.drawing.pages import which, yours
from artifact.measure import records
from artifact.recommend import landscape, model
from artifact.user_kernel import benchmark, header

NOTHING = provenance.Origin("nvidia-h200", None, False)


@pytest.fixture(scope="module")
def origin():
    return provenance.Origin("nvidia-h200", paths.RECORDED / "nvidia-h200", False)


def test_without_records_pages_say_so():
    df = which.points(NOTHING)
    assert df.empty and which.evaluated(NOTHING) == list(which.map_facts(df)) == [] and which.example(NOTHING, 64) == ""
    shown = [draw(df) for draw in (which.drawn, which.dense_table, which.crossing_table)]
    assert all(x is None for x in (*shown, which.payoff_table(NOTHING), which.weights([]), which.left_out([])))
    assert set(dict(which.advice_facts([]))) == {"bar", "within", "good"} and yours.stand_in(NOTHING) == (None, [])


@pytest.mark.parametrize(
    ("below", "behind", "said"),
    [
        (0.1, 3, ": sparse pays below 10 %."),
        (np.inf, 0, ": sparse pays at every density that was measured, up to 50 %."),
        (np.inf, 3, ": on the mean sparse pays at every"),
        (0.0, 3, ": sparse does not pay at any density that was measured, from 1 % on."),
    ],
)
def test_the_map_in_words_has_one_line_for_each_outcome(below, behind, said):
    made = text.page("which")
    made.add(
        facts.flat(
            {
                "map.blocks FP32": {"below": below, "behind": behind}
                | {"pattern": "blocks", "precision": "FP32", "least": 0.01, "most": 0.5}
            }
        )
    )
    (line,) = made("map").splitlines()
    assert said in line


def test_the_bar_is_judged_by_the_records(origin):
    """Of one pool, and where its advice were worse."""
    pool, *_ = which.pools(origin)
    df, name, (best, share) = (
        model.evaluate(pool),
        f"advice.{pool.about.room}/{pool.about.experiment}",
        model.always(pool),
    )
    for rows in (df, df.assign(ratio=1.5)):
        known, good, made = dict(which.advice_facts([(pool, rows)])), model.good(rows), text.page("which")
        told = {
            "precision": pool.about.precision,
            "good": good,
            "verdict": "reaches" if good >= which.BAR else "misses",
        }
        assert {key: known[f"{name}.{key}"] for key in told} == told and known[f"{name}.always.{best}"] == share
        made.add(known.items())
        assert len(made("trusted").splitlines()) == 1
    assert good == 0
    (fig, data), table = which.left_out([(pool, df)]), which.weights([(pool, df)])
    legible(fig)
    assert len(data) == len(df) and table.shape == (len(model.TERMS), 2) and (table.iloc[:, 1] != "").any()


def test_the_example_is_a_mesh_and_what_the_command_prints(origin):
    a = which.mesh(30)
    assert (a.m, a.k, a.nnz) == (900, 900, 900 + 4 * 30 * 29)
    said = which.example(origin, n=128, side=30)
    assert said.startswith("```text\nmesh: 900 x 900, 4380 non-zeros") and "Advice: " in said


# ---------------------------------------------------------------- one's own kernel


def test_the_template_and_its_grammar_are_those_of_the_code():
    assert "// arguments:" in yours.template("cu") and "def prepare(" in yours.template("py")
    assert all(f"// {key}:" in yours.grammar() for key in (*header.ONCE, *header.MAYBE, "require"))
    df = yours.compiled()
    assert (df["registers"] > 0).all() and set(df["spills"]) == {"none"}


def test_every_system_has_a_row_of_what_may_be_named():
    df = yours.arguments().set_index("room")["names"]
    assert list(df.index) == [f"`{system}`" for system in registry.find()]
    assert df.str.contains("`c` the output, 256 x 128").all() and "`a.row_ptr` int32 (257)" in df["`casper_sparse`"]


def test_trials_that_were_held_are_drawn(tmp_path):
    df = synthetic.experiment("wide", experiment="trial").replace({"variant": {"warp_per_row": "mine"}})
    place = tmp_path / "mine" / "nvidia-h200" / "casper_sparse"
    records.write(place / f"{benchmark.EXPERIMENT}.csv", df)
    records.write_machine(place, synthetic.machine())
    (shown,) = yours.held(tmp_path)
    assert shown.svg.name == "mine-casper_sparse.svg" and "slower at 21" in shown.markdown
    assert yours.held(tmp_path / "none") == []


def test_a_published_kernel_stands_in_where_no_trial_was_held(origin):
    (fig, data), told = yours.stand_in(origin)
    system = next(
        importlib.import_module(f"kernels.{name}") for name, system in registry.find().items() if system.headline
    )
    first = fig.get_axes()[0].get_yticklabels()[0].get_text()
    assert system.VARIANTS[first].published and first == dict(told)["trial.name"]
    assert isinstance(data, pd.DataFrame) and set(data["variant"]) > {first}
    legible(fig)


# ---------------------------------------------------------------- when to use a format

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
