"""What tables, figures and facts are computed from: speedups, rules, bounds, prices, overlaps."""

from __future__ import annotations

from types import SimpleNamespace

import async_records as made
import numpy as np
import pandas as pd
import pytest

from artifact.measure import apart, records
from artifact.rooms.async_sparse import (
    contenders,
    experiments,
    facts,
    scripts,
    shown,
)
from artifact.rooms.async_sparse.contenders import AUTO_FP32, CSR, KEPT, UNION, WCSR
from kernels.async_sparse import operands, union
from kernels.formats import csr

STATED = {name: records.published(path) for name, path in made.TABLES.items()}
TF32, FLOAT32 = map(experiments.with_csr, (made.spmm_tf32(), made.spmm_exact()))


def test_speedups_are_those_of_points_of_both():
    df = made.ablation()
    found = contenders.speedups(df, ["opt5", "absent"], "cusparse_bell")
    np.testing.assert_allclose(found["speedup"], records.speedup(df, "opt5", "cusparse_bell"))
    assert set(found["variant"]) == {"opt5"}
    assert contenders.means(df, ["opt5"], "absent").empty and contenders.means(df, [], "opt5").empty


def test_the_limit_is_the_slower_of_multiplying_and_moving():
    df = made.gate_proj()
    free, bound = (
        shown.gate(df, STATED["table3"], SimpleNamespace(ceiling=lambda *_, gbps=gbps: gbps))
        .query("source == 'measured' and variant == 'limit'")
        .set_index(["n", "density"])["limit"]
        for gbps in (np.nan, 4230.0)
    )
    np.testing.assert_allclose(free, 1 / free.index.get_level_values("density"))
    assert (bound <= free + 1e-9).all() and (bound < free).any()


def test_break_even_lies_between_the_points_or_nowhere():
    s = pd.Series({0.5: 0.5, 0.125: 2.0, 0.01: 8.0})
    assert contenders.break_even(s) == pytest.approx(0.25)
    assert np.isnan(contenders.break_even(s * 0.1)) and np.isnan(contenders.break_even(s * 10))


def test_sides_of_blocks_are_read_from_labels():
    labels = pd.Series(["", "linear", "blocks of 16", "bfloat16, blocks of 128, linear"])
    assert contenders.side(labels).tolist() == [64, 64, 16, 128]


def test_each_kernel_builds_on_one_of_the_ladder():
    assert {*contenders.BEFORE} == {*contenders.LADDER} - {"opt0"}
    assert (contenders.BEFORE["opt7"], contenders.BEFORE["auto"]) == (KEPT, "unit_ring")
    found = shown.ladder(made.ladder(), STATED["table3"]).set_index("variant")
    assert found["gain"][:12]["opt7"] == pytest.approx(4.10 / 4.40)


# ---------------------------------------------------------------- who is ahead, and the rule


def test_statistics_of_a_record_are_those_of_the_matrix():
    rng = np.random.default_rng(1)
    row_ptr = np.arange(0, 200 * 7 + 1, 7).astype(np.int32)
    a = csr.Csr(200, 300, row_ptr, rng.integers(0, 300, 1400).astype(np.int32), np.ones(1400, np.float32))
    for n in (64, 200, 1024):
        p = operands.problem_from_csr(a, n, dtype="tf32", reorder="", format="csr")
        row = {x: [getattr(p, x)] for x in ("m", "n", "k", "nnz", "requested_bytes")}
        found, kept = facts.statistics(pd.DataFrame(row)).iloc[0], p.host().a
        assert found["per_row"] == pytest.approx(kept.nnz / 200)
        assert found["shared"] == pytest.approx(kept.nnz / operands.column_vectors(kept))


def test_the_fastest_of_each_group_is_compared():
    groups = {"ours": (UNION, AUTO_FP32), "theirs": (CSR,)}
    points = facts.fastest(FLOAT32, groups)
    assert len(points) == 36 and list(points["winner"].cat.categories) == list(groups)
    at = points.iloc[0]
    own = FLOAT32[(FLOAT32["label"] == at["label"]) & (FLOAT32["n"] == at["n"])].set_index("variant")["median_us"]
    assert at["ours"] == min(own[UNION], own[AUTO_FP32]) and at["theirs"] == own[CSR]


def points(shared, a, b) -> pd.DataFrame:
    df = pd.DataFrame({"shared": shared, "per_row": 5.0, "a": a, "b": b})
    winner = pd.Categorical(df[["a", "b"]].idxmin(axis=1), ["a", "b"])
    return df.assign(label=[f"matrix{i}" for i in range(len(df))], winner=winner)


def test_a_split_lies_between_the_points_that_differ():
    found = facts.split(points([1.0, 2.0, 8.0, 9.0], [1, 1, 4, 4], [2, 2, 2, 2]))
    assert (found["statistic"], found["below"], found["above"]) == ("shared", "a", "b")
    assert found["at"] == pytest.approx(4.0)
    same = facts.split(points([3.0, 3.0], [1, 1], [2, 2]))
    assert same["below"] == same["above"] == "a"


def test_what_a_rule_costs_is_asked_where_it_has_not_looked():
    """One odd matrix among many: a rule that knew it would lose nothing; without it, it chooses the other kernel."""
    shared = [1.0, 1.1, 1.2, 8.0, 8.1, 8.2, 100.0]
    a, b = [1, 1, 1, 2, 2, 2, 1], [2, 2, 2, 1, 1, 1, 3]
    found = facts.leave_out(points(shared, a, b))
    assert found["right"] == pytest.approx(6 / 7)
    assert found["worst"] == pytest.approx(2) and found["lost"] == pytest.approx(3 ** (1 / 7) - 1)
    assert found["fixed"] in ("a", "b") and found["fixed_lost"] > found["lost"]


def test_all_n_of_a_matrix_are_left_out_together():
    odd = points([1.0, 1.2, 8.0, 9.0], [1, 1, 2, 1], [2, 2, 1, 9])
    assert facts.leave_out(pd.concat([odd] * 3, ignore_index=True))["worst"] == 8


# ---------------------------------------------------------------- tables


def test_table_1_has_rates_and_speedups_here_and_as_stated():
    table = shown.table1(TF32, STATED["table1"], 1024).set_index(["kernel", "source"])
    assert list(table.columns[1:]) == ["all", "> 0.1 %", "> 0.5 %", "> 1 %"]
    assert table.loc[("WCSR", "here"), "all"].endswith(" (1.00×)") and table.loc[("WCSR", "stated"), "all"] == "4.13"
    assert table.loc[("cuSPARSE Blocked-ELL", "stated"), "> 1 %"] == "5.01 (4.86×)"
    assert ("DTC-SpMM", "stated") not in table.index  # it does not run at 1024
    assert set(shown.table1(None, STATED["table1"], 256)["source"]) == {"stated"}


def test_table_2_without_a_record_has_what_is_stated():
    stated = shown.table2(None, STATED["table2"])
    assert len(stated) == 10 and "here" not in stated  # nine rows and the library


def test_preparing_pays_off_after_so_many_multiplications():
    at = {"label": "x", "m": 8, "n": 4, "k": 8, "density": 0.1}
    rows = [(CSR, 30.0, 1.0), (WCSR, 10.0, 5.0), (UNION, 40.0, 2.0), ("windows", 20.0, 0.5)]
    df = pd.DataFrame([at | {"variant": v, "median_us": us, "prepare_ms": ms} for v, us, ms in rows])
    count = shown.multiplications(df).set_index("variant")["count"]
    assert count[WCSR] == pytest.approx(200) and count[UNION] == np.inf and count["windows"] == 0
    slow = shown.pays_off(made.faster(FLOAT32, UNION, 0.1), TF32).set_index(["values", "variant"])
    assert slow.loc[("float32", UNION), "N = 256"] == "–<br><small>12 of 12 never</small>"


def test_a_plan_has_paid_after_what_it_costs_over_what_each_multiplication_saves():
    df = pd.DataFrame({"plan_us": [500.0, 500.0, 100.0], "us": [10.0, 30.0, 10.0], "cusparse_us": [30.0, 30.0, 20.0]})
    assert list(scripts.paid(df.assign(cusparse_prepare_us=[100.0, 100.0, 150.0]))["count"]) == [20.0, np.inf, 0.0]
    assert shown.planned()["matrices"].sum() == 74


def test_the_price_of_one_order_is_a_geometric_mean_over_matrices():
    rows = [("a", "auto_fp32", 2, 10.0, 10.0), ("b", "auto_fp32", 3, 10.0, 12.1), ("c", "auto_half", 1, 5.0, 5.0)]
    df = pd.DataFrame(rows, columns=["matrix", "auto", "parts", "us", "in_order_us"])
    exact, sixteen = scripts.price(df).to_dict("records")
    assert exact["mean"] == pytest.approx(1.1) and exact["largest"] == exact["cut_mean"] == pytest.approx(1.21)
    assert (exact["matrices"], exact["cut"], exact["worst"]) == (2, 1, "b")
    assert sixteen["mean"] == 1 and sixteen["cut"] == 0 and np.isnan(sixteen["cut_mean"])


def test_the_rule_for_a_warps_tasks_is_held_against_what_was_measured():
    df = apart.read(scripts.TASKS)
    found = scripts.ruled(df)
    assert len(found) * len(scripts.MOST) == len(df)
    assert records.geomean(found["gain"]) > 1.03 and found["gain"].min() > 0.8
    long, short = found[found["loaded"] > union.WORK], found[found["loaded"] <= union.WORK / 8]
    assert (long["gain"] == long["gain_1"]).all() and (short["gain"] == 1).all(), "as many as there were"


# ---------------------------------------------------------------- counters and clocks


def test_the_profile_has_why_warps_wait():
    head, tail = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
    stalls = {("opt1", f"{head}{reason}{tail}"): v for reason, v in (("barrier", 1.5), ("long_scoreboard", 8.25))}
    stalls[("opt1", f"{head}selected{tail}")] = 99.0  # one that issues does not wait
    more = {("opt6", "sm__cycles_active.avg"): 60.0, ("opt6", "sm__cycles_active.max"): 100.0}
    df = facts.profile(facts.Counters(made.counters(stalls | more)))
    assert df["the tensor pipe"]["opt5"] == 70.0 and df["busy"]["opt6"] == 60 and np.isnan(df["busy"]["opt5"])
    assert df.loc["opt1", ["reason", "waits"]].tolist() == ["long_scoreboard", "long scoreboard 8.2"]
    assert df.index[0] == "opt1" and df.index[-1] == "triton_bsr"
    assert facts.profile(facts.Counters(made.counters().head(0))) is None


def test_ncu_is_read_for_the_last_launch():
    names = dict(zip(scripts.METRICS, ("8,000,000", "32,000", "4,000", "2,000", "500"), strict=True))
    lines = ["==PROF== Connected", '"ID","Metric Name","Metric Value"', '"0","gpu__time_duration.sum","9,999"']
    found = scripts.counted([*lines, *(f'"1","{metric}","{value}"' for metric, value in names.items())])
    assert found == {"ms": 8.0, "dram_read_bytes": 32000, "dram_write_bytes": 4000, "l2_hit": 0.25}
    with pytest.raises(ValueError, match="ncu counted no launch"):
        scripts.counted(["==ERROR== no"])


def test_overlap_is_none_where_the_two_take_turns():
    shares = dict(facts.traced(made.timeline()))
    assert shares["overlap.opt1"] == 0 and 0.5 < shares["overlap.opt5"] <= 1
