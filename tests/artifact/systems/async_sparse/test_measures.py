"""Quantities that only claims of AsyncSparse need: shares are shares, over a number times that is what there was."""

import pandas as pd
import pytest
from refused import refused

from artifact import paths
from artifact.systems.async_sparse import measures
from artifact.verdicts.evidence import Evidence, NotMeasured, Values


@pytest.fixture
def e():
    return Evidence(paths.RECORDED / paths.HOME, "async_sparse")


def test_parts_of_the_model_are_all_of_it(e):
    parts = pd.read_csv(e.folder / e.room / "prefill" / "parts.csv")["part"].unique()
    shares = sum(measures.part_of_model(e, ["prefill"], part, "dense").all.droplevel("contender") for part in parts)
    assert shares.to_numpy() == pytest.approx(1.0)
    over = measures.part_of_model(e, ["prefill"], "attention", "dense", "ffn").all.to_numpy()
    assert over == pytest.approx(
        measures.part_of_model(e, ["prefill"], "attention", "dense").all.to_numpy()
        / measures.part_of_model(e, ["prefill"], "ffn", "dense").all.to_numpy()
    )
    refused("not profiled", measures.part_of_model, e, ["prefill"], "ffn", "none", kind=NotMeasured)


@pytest.mark.parametrize("variant", ["opt1", "opt2", "opt5"])
def test_a_warpgroup_multiplies_for_a_share_of_its_loop(e, variant):
    shares = measures.multiplying(e, ["ladder"], variant).all
    assert ((shares > 0) & (shares <= 1)).all()


def test_the_fill_is_of_the_matrices_of_the_records_and_of_the_order(e):
    given, rcm = (measures.fill(e, ["ablation"], order).all for order in ("given", "rcm"))
    assert measures.fill(e, ["ablation"], "rcm", "given").all.to_numpy() == pytest.approx((rcm / given).to_numpy())
    label = given.index.get_level_values("label")[0]
    assert len(measures.fill(e.only({"label": label}), ["ablation"], "rcm").all) == 1 < len(rcm)


def test_what_is_over_a_stated_number_times_it_is_what_was_measured(e):
    time, df = measures.time_over_stated(e, ["gate_proj"], "opt5").all, e.frame(["gate_proj"])
    said = measures.stated(e, "table3", "latency").query("variant == 'opt5'").set_index(["n", "density"])["low"]
    us = df[df["variant"] == "opt5"].set_index(["n", "density"])["median_us"]
    at = time.index.to_frame()[["n", "density"]].itertuples(index=False, name=None)
    assert [x * said[p] for x, p in zip(time, at, strict=True)] == pytest.approx([us[p] / 1e3 for p in said.index])
    how = (e, ["spmm_tf32"], "wcsr", ["opt5"], [0, 0.01])
    said = measures.stated(e, "table1", "wcsr_speedup").query("kernel == 'BCSR'").set_index(["n", "density"])["low"]
    plain, beside = measures.cells(*how).by["opt5"], measures.cells(*how, against="BCSR").by["opt5"]
    assert (beside * said.reindex(beside.index)).to_numpy() == pytest.approx(plain.to_numpy())


def test_who_was_not_launched_is_counted_once_for_each_matrix(e):
    df = e.frame(["ablation"])
    kept = df[(df["variant"] != "opt7") | (df["label"] != df["label"].iloc[0])]
    e = Evidence(e.folder, e.room, read={"ablation": kept})
    assert measures.not_launched(e, ["ablation"], "opt7", "opt5").all.sum() == 1


def test_a_gain_is_over_the_stated_one_and_the_opposite_of_one_is_none():
    steps = {"opt0": 0.08, "opt1": 0.42, "opt2": 1.56, "opt3": 1.0, "opt4": 1.1, "opt5": 1.1, "opt6": 0.26, "opt7": 0.8}
    found = measures.gains_over_stated(Values({v: pd.Series([x]) for v, x in steps.items()})).values
    assert found[["opt1", "opt2"]].to_list() == pytest.approx([1.0, 1.0]) and found["opt3"] == 0.01
    assert found["opt6"] == pytest.approx(0.84 / 1.68)


def test_a_width_stands_over_the_next_narrower_one():
    rate = {f"opt5_n{width}": pd.Series([float(width)]) for width in (56, 64, 120, 128)}
    ((_, line),) = measures.over_narrower(Values(rate), [64, 128]).course
    assert list(line) == pytest.approx([64 / 56, 128 / 120])
