"""The prefill without PyTorch or a GPU: what is to be measured, what is read, shown and said."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from refused import refused

from artifact.book.study import start
from artifact.measure import records
from artifact.systems.async_sparse.prefill import attention, facts, measure
from artifact.systems.async_sparse.prefill.model import (
    DENSITIES,
    LENGTHS,
    WHOLE,
    label,
)


@pytest.fixture(scope="module")
def study():
    return start("async_sparse", mode="recorded")


@pytest.fixture(scope="module")
def parts(study):
    return study.table("prefill/parts")


def fresh(folder, preset: str = "full") -> SimpleNamespace:
    return SimpleNamespace(mode="measure", preset=preset, seed=0, folder=folder, machine={"compute_capability": "9.0"})


# ------------------------------------------------------------------------------------- what is to be measured


def test_what_is_there_is_not_measured_again(study, tmp_path):
    run, path = fresh(tmp_path), tmp_path / "prefill.csv"
    plan = measure.Prefill(run)
    assert [plan.missing(WHOLE, d) for d in DENSITIES] == [list(LENGTHS)] * 2
    df = study.read("prefill")
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
    assert not measure.can_measure(fresh(tmp_path))


def test_patterns_keep_all_of_a_short_sequence_and_a_fifth_of_a_long_one():
    kept = [attention.most_kept(n) for n in LENGTHS]
    assert kept[0] == 1 and kept == sorted(kept, reverse=True) and 0.15 < kept[-1] < 0.25
    rows = 65536 // 128
    brute = np.minimum(np.arange(rows) + 1, 8 + 48).sum() / (rows * (rows + 1) / 2)
    assert kept[-1] == pytest.approx(brute)
    assert [n for n in LENGTHS if attention.most_kept(n) <= attention.WORTH] == [32768, 65536]


# ------------------------------------------------------------------------------------- what is read, shown and said


def test_what_faster_parts_are_worth(parts):
    us = parts[(parts["configuration"] == "dense") & (parts["n"] == 1024)].set_index("part")["us"]
    gain = us.sum() / (us.sum() - us["ffn"] / 2)
    assert dict(facts.faster(parts, 1024, {"FFN": 2}))["faster.gain"] == pytest.approx(gain)
    refused("Parts were not profiled at 7 tokens", facts.faster, parts, 7, {"FFN": 2})
    refused("'ffn' is no part of the model", facts.faster, parts, 1024, {"ffn": 2})


def test_of_what_was_measured_again_the_last_counts(study, parts):
    attention = study.table("prefill/attention")
    for make, table, number in ((facts.in_parts, parts, "us"), (facts.chosen, attention, "kept_share")):
        twice = pd.concat([table.assign(**{number: table[number] ** 2}), table], ignore_index=True)
        found, right = (make(df).reset_index(drop=True) for df in (twice, table))
        pd.testing.assert_frame_equal(found, right)
