"""The prefill without PyTorch or a GPU: what is to be measured, what is read, shown and said."""

from __future__ import annotations

from types import SimpleNamespace

import async_records as made
import numpy as np
import pandas as pd
import pytest

from artifact.book.study import Study, start
from artifact.measure import records
from artifact.rooms.async_sparse.prefill import attention, facts, measure
from artifact.rooms.async_sparse.prefill.model import (
    CONFIGURATIONS,
    DENSITIES,
    LENGTHS,
    SIZES,
    WHOLE,
    flops,
    label,
)

TEXT = records.published(made.TABLES["text"])


@pytest.fixture(scope="module")
def study():
    return start("async_sparse", mode="recorded")


@pytest.fixture(scope="module")
def parts(study):
    return study.table("prefill/parts")


def fresh(folder, preset: str = "full") -> SimpleNamespace:
    return SimpleNamespace(mode="measure", preset=preset, seed=0, folder=folder, machine={"compute_capability": "9.0"})


# ------------------------------------------------------------------------------------- what is to be measured


def test_what_is_there_is_not_measured_again(tmp_path):
    run, path = fresh(tmp_path), tmp_path / "prefill.csv"
    plan = measure.Prefill(run)
    assert [plan.missing(WHOLE, d) for d in DENSITIES] == [list(LENGTHS)] * 2
    df = made.prefill()
    records.write(path, df)
    assert [plan.missing(WHOLE, d) for d in DENSITIES] == [[], []]
    records.write(path, df[~((df["n"] == 8192) & (df["variant"] == "both"))])
    assert [plan.missing(WHOLE, d) for d in DENSITIES] == [[8192], [8192]]


def test_a_kick_is_one_short_point_with_a_label_of_its_own(tmp_path, monkeypatch):
    run = fresh(tmp_path, "kick")
    plan = measure.Prefill(run)
    assert [plan.missing(WHOLE, d) for d in plan.densities] == [[1024]]
    assert plan.sizes["num_hidden_layers"] == 4 and label(run) == "4 layers"
    monkeypatch.setenv("WEIGHTS", "/models/Qwen2.5-7B")
    assert label(fresh(tmp_path)) == "weights of Qwen2.5-7B"


def test_nothing_is_measured_without_hopper_or_the_libraries(study, tmp_path, monkeypatch):
    ready = fresh(tmp_path)
    monkeypatch.setattr(measure.importlib.util, "find_spec", lambda name: name)
    assert measure.can_measure(ready) and not measure.can_measure(study.run)
    ready.machine["compute_capability"] = "8.0"
    assert not measure.can_measure(ready)
    monkeypatch.setattr(measure.importlib.util, "find_spec", lambda name: None)
    measure.measure(fresh(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_work_is_the_dense_models():
    """82% of it is FFN at 4,096 tokens, by the model's sizes."""
    whole, without = (flops(SIZES | {"intermediate_size": size}, 4096) for size in (SIZES["intermediate_size"], 0))
    assert (whole - without) / whole == pytest.approx(0.82, abs=0.02)
    assert (SIZES["intermediate_size"], SIZES["hidden_size"]) == (measure.M, measure.K)


def test_patterns_keep_all_of_a_short_sequence_and_a_fifth_of_a_long_one():
    kept = [attention.most_kept(n) for n in LENGTHS]
    assert kept[0] == 1 and kept == sorted(kept, reverse=True) and 0.15 < kept[-1] < 0.25
    rows = 65536 // 128
    brute = np.minimum(np.arange(rows) + 1, 8 + 48).sum() / (rows * (rows + 1) / 2)
    assert kept[-1] == pytest.approx(brute)
    assert [n for n in LENGTHS if attention.most_kept(n) <= attention.WORTH] == [32768, 65536]


# ------------------------------------------------------------------------------------- what is read, shown and said


def test_a_page_shows_the_whole_model_where_a_kick_stands_beside_it(tmp_path):
    made.folder(tmp_path)
    run = start("async_sparse", "recorded", folder=str(tmp_path)).run
    path = run.folder / "prefill.csv"
    records.append(path, made.prefill().query("n == 1024").assign(label="4 layers"))
    assert set(facts.read(Study(run), WHOLE)["label"]) == {""}
    found = facts.elsewhere(run)
    assert len(found) >= 2  # this one's, and the shipped ones'
    records.write(path, made.prefill().assign(label="4 layers"))  # a kick's alone
    assert len(facts.elsewhere(run)) == len(found) - 1


def test_gpus_stand_beside_each_other_at_the_lengths_that_all_have():
    home, slower = made.prefill(), made.prefill().query("n < 65536").copy()
    slower.loc[slower["variant"] == "ffn", "median_us"] *= 2
    table = facts.abreast({"A": home, "B": slower})
    assert table["n"].tolist() == list(LENGTHS[:-1])
    for row in table["sparse FFN, as published"]:
        a, b = map(float, row.split(" / "))
        assert a == pytest.approx(2 * b, abs=0.02)
    said = dict(facts.beside({"A": home, "B": slower}))
    assert said.pop("prefill.home") == "A"
    changes = [round(value, 6) for name, value in said.items() if name.endswith("change")]
    assert changes.count(-0.5) == 1 and changes.count(0) == len(CONFIGURATIONS) - 2
    assert facts.abreast({"A": home}) is None


def test_what_was_not_measured_is_neither_shown_nor_said():
    said = (facts.whole(None, TEXT), facts.patterns(None), facts.shares(None), facts.checked(None))
    assert not any(map(list, said)) and not list(facts.faster(None, 1024, {}))
    shown = (facts.over_dense(None), facts.along(None, "dense", TEXT), facts.chosen(None), facts.in_parts(None))
    assert not any(df is not None for df in shown)


def test_fig8_has_what_was_measured_and_what_the_source_states():
    data = facts.along(made.prefill(), "dense", TEXT).set_index(["source", "variant", "n", "density"])["speedup"]
    assert data["measured", "both", 65536, 0.1] == pytest.approx(2.66)
    assert data["stated"].to_dict() == {
        ("ffn", 1024, 0.1): 1.37,
        ("ffn", 65536, 0.1): 1.08,
        ("attention", 32768, 0.1): 0.98,
        ("attention", 65536, 0.1): 1.73,
        ("both", 65536, 0.1): 2.66,
    }
    said = dict(facts.whole(made.prefill(), TEXT))
    assert said["prefill.found.both.65536.here"] == pytest.approx(2.66)
    assert said["prefill.slower"] > 0 and said["prefill.slow.attention.1024"] < 1


def test_parts_are_over_the_dense_models_time_and_the_last_ones_count(parts):
    once = facts.in_parts(parts)
    assert np.allclose(once[once["configuration"] == "dense"].groupby("n")["share"].sum(), 1)
    twice = pd.concat([parts.assign(us=parts["us"] ** 2), parts], ignore_index=True)
    pd.testing.assert_frame_equal(once, facts.in_parts(twice).reset_index(drop=True))


def test_what_faster_parts_are_worth(parts):
    us = parts[(parts["configuration"] == "dense") & (parts["n"] == 1024)].set_index("part")["us"]
    gain = us.sum() / (us.sum() - us["ffn"] / 2)
    assert dict(facts.faster(parts, 1024, {"FFN": 2}))["faster.gain"] == pytest.approx(gain)
    with pytest.raises(ValueError, match="Parts were not profiled at 7 tokens"):
        facts.faster(parts, 7, {"FFN": 2})
    with pytest.raises(ValueError, match="'ffn' is no part of the model"):
        facts.faster(parts, 1024, {"ffn": 2})


def test_what_has_no_parts_is_named(parts):
    some = parts[(parts["n"] != 4096) | ~parts["configuration"].isin(["both", "attention"])]
    said, before = dict(facts.shares(some)), dict(facts.shares(parts))
    assert said["prefill.unprofiled"] == before["prefill.unprofiled"] + 2
    assert said["prefill.unprofiled_at.4096.both"] == "both, as published"
