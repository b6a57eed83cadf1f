"""The prefill without PyTorch or a GPU: what is measured, what is read, drawn and said."""

from __future__ import annotations

from types import SimpleNamespace

import async_records as made
import numpy as np
import pandas as pd
import pytest
from drawn import labels, legible, on_a_page, words

from artifact.drawing import plot
from artifact.measure import records
from artifact.rooms.async_sparse import arithmetic
from artifact.rooms.async_sparse.prefill import attention, experiments, facts, figures, tables
from artifact.rooms.async_sparse.prefill.configurations import (
    CONFIGURATIONS,
    DENSITIES,
    LENGTHS,
    PARTS,
    SIZES,
    flops,
)

TEXT = arithmetic.stated("text")


@pytest.fixture
def recorded(run):
    made.prefill_tables(run.folder)
    return run


# ------------------------------------------------------------------------------------- the plan


def test_every_configuration_is_measured_at_every_length_beside_the_dense_model():
    points = experiments.plan("full")
    assert {(n, d) for n, d, _ in points} == {(n, d) for n in LENGTHS for d in DENSITIES}
    assert {names for *_, names in points} == {tuple(CONFIGURATIONS)}
    assert next(iter(CONFIGURATIONS)) == "dense"


def test_a_kick_is_one_short_point():
    assert [(n, d) for n, d, _ in experiments.plan("kick")] == [(1024, 0.1)]
    run = SimpleNamespace(preset="kick")
    assert experiments.sizes(run)["num_hidden_layers"] == 4 and experiments._label(run) == "4 layers"


def test_real_weights_have_a_label_of_their_own(monkeypatch, recorded):
    monkeypatch.setenv("WEIGHTS", "/models/Qwen2.5-7B")
    assert experiments._label(SimpleNamespace(preset="full")) == "weights of Qwen2.5-7B"
    assert len(experiments.missing(recorded.folder / "prefill.csv", experiments.plan("full"), recorded)) == 14


def test_a_page_shows_the_whole_model_where_a_kick_stands_beside_it(recorded):
    path = recorded.folder / "prefill.csv"
    records.append(path, made.prefill().query("n == 1024").assign(label="4 layers"))
    assert set(records.read(path)["label"]) == {"", "4 layers"}
    assert set(experiments.whole(recorded)["label"]) == {""}


def test_gpus_stand_beside_each_other_at_the_lengths_that_all_have(recorded):
    home, slower = made.prefill(), made.prefill().query("n < 65536").copy()
    slower.loc[slower["variant"] == "ffn", "median_us"] *= 2
    each = {"A": home, "B": slower}
    table = tables.beside(each, 0.1)
    assert list(table["tokens"])[-1] == plot.number(32768)
    for row in table["sparse FFN, as published"]:
        a, b = (float(x.rstrip("×")) for x in row.split(" / "))
        assert a == pytest.approx(2 * b, abs=0.02)
    said = dict(facts.beside(each))
    assert said.pop("prefill.home") == "A"
    changes = [round(value, 6) for name, value in said.items() if name.endswith("change")]
    assert changes.count(-0.5) == 1 and changes.count(0) == len(CONFIGURATIONS) - 2
    assert tables.beside({"A": home}, 0.1) is None and not list(facts.beside({"A": home}))


def test_the_other_gpus_of_a_page_are_those_with_a_record_of_the_whole_model(recorded):
    path = recorded.folder / "prefill.csv"
    found = experiments.elsewhere(recorded)
    assert len(found) >= 2  # this one's, and the shipped ones'
    assert {label for df in found.values() for label in df["label"]} == {""}
    records.write(path, records.read(path).assign(label="4 layers"))  # a kick's alone
    assert len(experiments.elsewhere(recorded)) == len(found) - 1
    assert experiments.elsewhere(None) == {}


def test_what_is_there_is_not_measured_again(recorded):
    path = recorded.folder / "prefill.csv"
    assert experiments.missing(path, experiments.plan("full"), recorded) == []
    df = records.read(path)
    records.write(path, df[~((df["n"] == 8192) & (df["variant"] == "both"))])
    todo = experiments.missing(path, experiments.plan("full"), recorded)
    assert [(n, d) for n, d, _ in todo] == [(8192, 0.1), (8192, 0.05)]


def test_nothing_is_measured_without_hopper_or_the_libraries(recorded, monkeypatch):
    ready = SimpleNamespace(mode="measure", machine={"compute_capability": "9.0"})
    monkeypatch.setattr(experiments, "installed", lambda: True)
    assert experiments.can_measure(ready) and not experiments.can_measure(recorded)
    assert not experiments.can_measure(SimpleNamespace(mode="measure", machine={"compute_capability": "8.0"}))
    monkeypatch.setattr(experiments, "installed", lambda: False)
    assert not experiments.can_measure(ready) and not experiments.can_measure(None)


def test_the_work_is_the_dense_models():
    """82% of it is FFN at 4,096 tokens, by the model's sizes."""
    whole, without = (flops(SIZES, 4096, share) for share in (1.0, 0.0))
    assert (whole - without) / whole == pytest.approx(0.82, abs=0.02)
    assert flops(SIZES, 4096, 0.1) == pytest.approx(without + 0.1 * (whole - without))


# ------------------------------------------------------------------------------------- patterns


def test_patterns_keep_all_of_a_short_sequence_and_a_fifth_of_a_long_one():
    kept = [attention.most_kept(n) for n in LENGTHS]
    assert kept[0] == 1 and kept == sorted(kept, reverse=True) and 0.15 < kept[-1] < 0.25
    rows = 65536 // 128
    brute = np.minimum(np.arange(rows) + 1, 8 + 48).sum() / (rows * (rows + 1) / 2)
    assert kept[-1] == pytest.approx(brute)


def test_ours_leave_attention_dense_where_patterns_keep_most():
    pays = [n for n in LENGTHS if attention.most_kept(n) <= attention.WORTH]
    assert pays == [32768, 65536]


# ------------------------------------------------------------------------------------- tables, figures, facts


def test_a_table_with_a_gap_is_refused(recorded):
    path = recorded.folder / "prefill" / "parts.csv"
    path.write_text(path.read_text().replace("part,us", "part,time"))
    with pytest.raises(ValueError, match=r"parts\.csv.*'us'.*again"):
        experiments.table(recorded, "parts")


def test_without_records_there_is_nothing_and_pages_say_so(tmp_path):
    made.folder(tmp_path, without=["prefill", "prefill_ffn"])
    run = SimpleNamespace(mode="recorded", folder=tmp_path / "nvidia-h200" / "async_sparse", machine={}, preset="full")
    assert experiments.whole(run) is experiments.layer(run) is experiments.table(run, "parts") is None
    assert experiments.whole(None) is None
    for found in (
        facts.whole(None, TEXT),
        facts.beside({}),
        facts.patterns(None),
        facts.shares(None),
        facts.faster(None, 1024, {}),
        facts.checked(None),
    ):
        assert not list(found)
    assert tables.whole(None, 0.1) is tables.layer(None, 0.1) is tables.chosen(None) is None


@pytest.mark.parametrize("name", ["fig8", "parts", "layer"])
def test_every_figure_of_the_prefill_can_be_read_and_has_its_data(recorded, name):
    drawn = {
        "fig8": lambda: figures.fig8(experiments.whole(recorded), TEXT),
        "parts": lambda: figures.parts(experiments.table(recorded, "parts")),
        "layer": lambda: figures.layer(experiments.layer(recorded)),
    }
    fig, data = drawn[name]()
    assert len(data) and not data.isna().all().any()
    legible(fig)
    on_a_page(fig)


def test_fig8_shows_what_was_measured_and_what_the_source_states(recorded):
    fig, data = figures.fig8(experiments.whole(recorded), TEXT)
    own = data[data["source"] == "measured"].set_index(["variant", "n", "density"])["speedup"]
    assert own["both", 65536, 0.1] == pytest.approx(2.66)
    said = data[data["source"] == "stated"].set_index(["variant", "n"])["speedup"]
    assert said.to_dict() == {
        ("ffn", 1024): 1.37,
        ("ffn", 65536): 1.08,
        ("attention", 32768): 0.98,
        ("attention", 65536): 1.73,
        ("both", 65536): 2.66,
    }


def test_parts_are_over_the_dense_models_time(recorded):
    df = experiments.table(recorded, "parts")
    fig, data = figures.parts(df)
    dense = data[data["configuration"] == "dense"].set_index("n")[list(PARTS)].sum(axis=1)
    np.testing.assert_allclose(dense, 1)
    assert labels(fig) == [called for called, _ in PARTS.values()]
    assert "both, ours" in words(fig)
    with pytest.raises(ValueError, match="dense model"):
        figures.parts(df[df["configuration"] != "dense"])


def test_facts_hold_the_numbers_of_the_records(recorded):
    df = experiments.whole(recorded)
    said = dict(facts.whole(df, TEXT))
    assert said["prefill.found.both.65536.here"] == pytest.approx(2.66)
    assert said["prefill.found.ffn.1024.low"] == 1.37 and said["prefill.found.ffn.1024.high"] == 1.41
    assert said["prefill.at_longest.both_ours"] == pytest.approx(3.2)
    assert said["prefill.slower"] > 0 and said["prefill.slow.attention.1024"] < 1
    fast = df[~df["variant"].isin(["attention", "both"])]
    assert dict(facts.whole(fast, TEXT))["prefill.slower"] == 0
    assert dict(facts.checked(experiments.table(recorded, "checks")))["check.ffn"] == pytest.approx(8e-3)


def test_tables_have_a_row_for_each_length(recorded):
    whole = tables.whole(experiments.whole(recorded), 0.1)
    assert len(whole) == len(LENGTHS) and whole["both, as published"].iloc[-1] == "2.66×"
    layer = tables.layer(experiments.layer(recorded), 0.1)
    assert layer["ours, gate and up in one"].tolist() == ["6.20×"] * 3
    chosen = tables.chosen(experiments.table(recorded, "attention"))
    assert chosen["SDPA's backend"].unique().tolist() == ["cudnn"] and chosen["causal blocks kept"].iloc[0] == "100%"


def test_what_was_measured_once_more_replaces_what_was_there(recorded):
    df = experiments.table(recorded, "parts")
    twice = pd.concat([df, df.assign(us=2 * df["us"])], ignore_index=True)
    _, once = figures.parts(df)
    _, again = figures.parts(twice)
    pd.testing.assert_frame_equal(once, again)


def test_what_faster_parts_are_worth(recorded):
    df = experiments.table(recorded, "parts")
    own = df[df["configuration"] == "dense"]
    n = int(own["n"].min())
    us = own[own["n"] == n].drop_duplicates("part", keep="last").set_index("part")["us"]
    gain = us.sum() / (us.sum() - us["ffn"] / 2)
    assert dict(facts.faster(df, n, {"FFN": 2}))["faster.gain"] == pytest.approx(gain)
    assert dict(facts.faster(df, n, {"FFN": 1}))["faster.gain"] == 1
    with pytest.raises(ValueError, match="Parts were not profiled at 7 tokens"):
        list(facts.faster(df, 7, {"FFN": 2}))
    with pytest.raises(ValueError, match="'ffn' is no part of the model"):
        list(facts.faster(df, n, {"ffn": 2}))


def test_what_has_no_parts_is_named(recorded):
    df = experiments.table(recorded, "parts")
    assert dict(facts.shares(df))["prefill.unprofiled"] == 0
    some = df[(df["n"] != 65536) | ~df["configuration"].isin(["both", "attention"])]
    said = dict(facts.shares(some))
    assert said["prefill.unprofiled"] == 2
    assert said["prefill.unprofiled_at.65536.both"] == "both, as published"


def test_a_profiled_pass_is_held_against_the_timed_call(recorded):
    df = records.read(recorded.folder / "prefill.csv")
    row = df[(df["variant"] == "both") & (df["n"] == 65536)].iloc[-1]
    assert experiments.timed_us(recorded, "both", 65536, float(row["density"])) == row["median_us"]
    assert np.isnan(experiments.timed_us(recorded, "both", 7, 0.1))
