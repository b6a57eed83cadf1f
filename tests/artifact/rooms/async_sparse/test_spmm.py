"""Real matrices in CSR: experiments, statistics, rule, tables, sentences and figures, on a made-up machine."""

from types import SimpleNamespace

import async_records as made
import numpy as np
import pandas as pd
import pytest
from drawn import drawn_in, labels, legible, on_a_page, words

from artifact import registry
from artifact.drawing import style
from artifact.measure import matrices, records
from artifact.rooms.async_sparse import (
    arithmetic,
    contenders,
    fit,
    in_order,
    plans,
    tasks_of_a_warp,
)
from artifact.rooms.async_sparse import experiments as room_experiments
from artifact.rooms.async_sparse import facts as room_facts
from artifact.rooms.async_sparse.contenders import AUTO_FP32, BELL, CSR, KEPT, TRITON, UNION, WCSR
from artifact.rooms.async_sparse.experiments import with_csr
from artifact.rooms.async_sparse.spmm import experiments, facts, figures, rule, tables
from kernels.async_sparse import operands, union
from kernels.formats import csr

TABLE1, APART = arithmetic.stated("table1"), arithmetic.apart()
TF32, FLOAT32 = with_csr(made.spmm_tf32()), with_csr(made.spmm_exact())
RCM, PARTS = with_csr(made.spmm_rcm()), made.wcsr_parts()


# ---------------------------------------------------------------- statistics and rule


def test_statistics_of_a_record_are_those_of_the_matrix():
    rng = np.random.default_rng(1)
    row_ptr = np.arange(0, 200 * 7 + 1, 7).astype(np.int32)
    a = csr.Csr(200, 300, row_ptr, rng.integers(0, 300, 1400).astype(np.int32), np.ones(1400, np.float32))
    for n in (64, 200, 1024):
        for dtype in ("tf32", "float32"):
            p = operands.problem_from_csr(a, n, dtype=dtype, reorder="", format="csr")
            row = {x: [getattr(p, x)] for x in ("m", "n", "k", "nnz", "requested_bytes")}
            found = experiments.statistics(pd.DataFrame(row)).iloc[0]
            kept = p.host().a
            assert found["per_row"] == pytest.approx(kept.nnz / 200)
            assert found["shared"] == pytest.approx(kept.nnz / operands.column_vectors(kept))


def test_the_fastest_of_each_group_is_compared():
    groups = {"ours": (UNION, AUTO_FP32), "theirs": (CSR,)}
    points = experiments.fastest(FLOAT32, groups)
    assert len(points) == 36 and set(points["winner"]) <= set(groups)
    at = points.iloc[0]
    own = FLOAT32[(FLOAT32["label"] == at["label"]) & (FLOAT32["n"] == at["n"])]
    own = own.set_index("variant")["median_us"]
    assert at["ours"] == min(own[UNION], own[AUTO_FP32]) and at["theirs"] == own[CSR]
    with pytest.raises(ValueError, match="No point of the records has all of ours, nobody"):
        experiments.fastest(FLOAT32, {"ours": (UNION,), "nobody": ("x",)})


def points(shared, a, b) -> pd.DataFrame:
    df = pd.DataFrame({"shared": shared, "per_row": 5.0, "a": a, "b": b})
    labels_ = [f"matrix{i}" for i in range(len(df))]
    return df.assign(label=labels_, winner=df[["a", "b"]].idxmin(axis=1))


def test_a_split_lies_between_the_points_that_differ():
    found = rule.split(points([1.0, 2.0, 8.0, 9.0], [1, 1, 4, 4], [2, 2, 2, 2]), ["a", "b"])
    assert (found.statistic, found.below, found.above) == ("shared", "a", "b")
    assert found.at == pytest.approx(4.0)
    same = rule.split(points([3.0, 3.0], [1, 1], [2, 2]), ["a", "b"])
    assert same.below == same.above == "a"
    with pytest.raises(ValueError, match="needs two points, and there is 1"):
        rule.split(points([3.0], [1], [2]), ["a", "b"])


def test_what_a_rule_costs_is_asked_where_it_has_not_looked():
    """One odd matrix among many: a rule that knew it would lose nothing; without it, it chooses the other kernel."""
    shared = [1.0, 1.1, 1.2, 8.0, 8.1, 8.2, 100.0]
    a, b = [1, 1, 1, 2, 2, 2, 1], [2, 2, 2, 1, 1, 1, 3]
    found = rule.leave_out(points(shared, a, b), ["a", "b"])
    assert found.matrices == 7 and found.right == pytest.approx(6 / 7)
    assert found.worst == pytest.approx(3) and found.lost == pytest.approx(3 ** (1 / 7))
    assert found.fixed in ("a", "b") and found.fixed_lost > found.lost
    with pytest.raises(ValueError, match="needs three of them, and there are 2"):
        rule.leave_out(points([1.0, 2.0], [1, 1], [2, 2]), ["a", "b"])


def test_all_n_of_a_matrix_are_left_out_together():
    once = points([1.0, 1.2, 8.0, 8.2], [1, 1, 2, 2], [2, 2, 1, 1])
    twice = pd.concat([once, once], ignore_index=True)
    assert rule.leave_out(twice, ["a", "b"]).matrices == 4
    odd = points([1.0, 1.2, 8.0, 9.0], [1, 1, 2, 1], [2, 2, 1, 9])
    assert rule.leave_out(pd.concat([odd] * 3, ignore_index=True), ["a", "b"]).worst == 9


# ---------------------------------------------------------------- tables


def test_table_1_has_rates_speedups_and_what_is_only_stated():
    table = tables.table1(TF32, TABLE1, 1024).set_index("kernel")
    assert list(table.columns) == ["all", "> 0.1 %", "> 0.5 %", "> 1 %"]
    both = "<br><small>stated</small>"  # the first line is of what was measured here
    here, stated = table.loc[f"WCSR{both}", "all"].split("<br>")
    assert here.endswith(" (1.00×)") and stated == "<small>4.13</small>"
    here, stated = table.loc[f"cuSPARSE Blocked-ELL{both}", "all"].split("<br>")
    assert stated == "<small>0.72 (6.24×)</small>"
    wide = made.spmm_tf32().query("n == 1024")
    rates = wide.pivot(index="label", columns="variant", values="tflops")
    ratio = np.exp(np.log(rates["wcsr"] / rates[BELL]).mean())
    assert here == f"{np.exp(np.log(rates[BELL]).mean()):.2f} ({ratio:.2f}×)"
    assert "5.01 (4.86×)" in table.loc[f"cuSPARSE Blocked-ELL{both}", "> 1 %"]
    assert table.loc["AccSpMM <small>stated</small>", "all"] == "<small>2.81 (1.47×)</small>"
    assert "<br>" not in table.loc["cuSPARSE CSR, in FP32", "all"]
    assert set(table.loc["DTC-SpMM"]) == {tables.NONE}  # it does not run at 1024
    stated = tables.table1(None, TABLE1, 256)
    assert len(stated) == 8 and not stated.map(lambda cell: "<br>" in cell).any().any()
    assert tables.table1(TF32.query("variant != 'triton_bsr'"), TABLE1, 512)["kernel"].is_unique


def test_thresholds_keep_fewer_matrices():
    table = tables.matrices(TF32)
    assert table["density"].tolist() == ["all", "> 0.1 %", "> 0.5 %", "> 1 %"]
    assert table["matrices"].is_monotonic_decreasing and table["matrices"].iloc[0] == 12
    few = TF32[(TF32["variant"] != BELL) | (TF32["label"] == "matrix0")]
    assert tables.matrices(few)["with cuSPARSE Blocked-ELL"].tolist() == [1, 0, 0, 0]
    assert tables.matrices(None) is None


def test_kernels_have_their_prediction_and_what_came_in_each_accuracy():
    said = {WCSR: ("windows of `A`", "2x over it"), UNION: ("rows", "")}
    table = tables.kernels(said, FLOAT32, TF32).set_index("kernel")
    assert table.loc["<code>wcsr</code>", "predicted"] == "2× over it"
    assert table.loc["<code>wcsr</code>", "FP32, over CSR in FP32"] == tables.NONE
    assert table.loc["<code>union_rows</code>", "FP32, over CSR in FP32"] == "1.10×"
    assert set(tables.kernels(said, None, None)["TF32, over CSR in FP32"]) == {tables.NONE}


def test_bars_are_held_at_each_n():
    table = tables.bars(FLOAT32, (AUTO_FP32, UNION))
    assert len(table) == 6 and table["N"].tolist()[:3] == ["256", "512", "1\u202f024"]
    row = table.set_index(["kernel", "N"]).loc[("rows over their union", "256")]
    assert row["below 0.95×"] == "0 of 12" and row["least"].startswith("1.10×<br><small>matrix")
    assert tables.bars(None, (UNION,)) is None and tables.bars(FLOAT32, (WCSR,)) is None
    assert tables.bars(FLOAT32.query("variant == 'union_rows'"), (UNION,)) is None


def test_preparing_pays_off_after_so_many_multiplications():
    at = {"label": "x", "m": 8, "n": 4, "k": 8, "density": 0.1}
    rows = [
        at | {"variant": CSR, "median_us": 30.0, "prepare_ms": 1.0},
        at | {"variant": WCSR, "median_us": 10.0, "prepare_ms": 5.0},
        at | {"variant": UNION, "median_us": 40.0, "prepare_ms": 2.0},
        at | {"variant": KEPT, "median_us": 20.0, "prepare_ms": 0.5},
    ]
    df = pd.DataFrame(rows)
    assert tables.multiplications(df, WCSR)["count"].item() == pytest.approx(200)
    assert tables.multiplications(df, UNION)["count"].item() == np.inf
    assert tables.multiplications(df, KEPT)["count"].item() == 0
    table = tables.pays_off(FLOAT32, TF32).set_index(["kernel", "values"])
    assert len(table) == 6
    assert table.loc[("WCSR", "TF32"), "preparing [ms], median"] == "0.90"
    assert table.loc[("rows over their union", "float32"), "N = 256"] == "0"
    found = tables.multiplications(TF32, WCSR).query("n == 1024")["count"]
    paid = found[found < np.inf]
    said = f"{np.ceil(paid.median()):,.0f}<br><small>{12 - len(paid)} of 12 never</small>"
    assert table.loc[("WCSR", "TF32"), "N = 1024"] == said
    slow = tables.pays_off(made.faster(FLOAT32, UNION, 0.1), None).set_index("kernel")
    never = slow.loc["rows over their union", "N = 256"]
    assert never == f"{tables.NONE}<br><small>12 of 12 never</small>"
    assert tables.pays_off(None, None) is None


def test_what_was_measured_apart_is_over_csr():
    table = tables.apart(APART).set_index("kernel")
    assert table.loc["Voltrix", "N = 1024"] == "1.05×"
    assert set(table.index) == {"Voltrix"}  # nobody else was


def test_errors_say_of_which_values():
    table = tables.errors(FLOAT32, TF32)
    assert set(table["values"]) == {"TF32", "float32"}
    row = table[(table["contender"] == "rows over their union")].iloc[0]
    assert row["relative error, median"] == "2.0e-07" and row["values"] == "float32"
    assert tables.errors(None, None) is None


# ---------------------------------------------------------------- facts


def test_who_was_left_out_is_counted_by_matrix():
    absent = {(TRITON, "wave", 9, n, 9, 0.1): "it sums" for n in (256, 512, 1024)}
    absent |= {(BELL, f"m{i}", 9, 256, 9, 0.1): "its padding" for i in range(2)}
    said = dict(room_facts.left_out("x", absent, TF32))
    assert (said[f"left_out.x.on.{BELL}"], said[f"left_out.x.on.{TRITON}"], said["left_out.x.matrices"]) == (2, 1, 12)
    assert [said[f"left_out.x.first.{name}"] for name in ("who", "matrix", "why")] == [
        "cuSPARSE Blocked-ELL",
        "m0",
        "its padding",
    ]
    assert dict(room_facts.left_out("x", {}, TF32))["left_out.x.contenders"] == 0
    assert not list(room_facts.left_out("x", absent, None))


# ---------------------------------------------------------------- figures

EVERY = {
    "fig5": lambda: figures.fig5(TF32, TABLE1, APART),
    "parts": lambda: figures.parts(PARTS),
    "winners": lambda: figures.winners(experiments.maps(FLOAT32, TF32)),
    "winners, float32": lambda: figures.winners(experiments.maps(FLOAT32, None)),
    "accuracy": lambda: figures.accuracy(FLOAT32, TF32),
    "reordering": lambda: figures.reordering(figures.gains(FLOAT32, RCM)),
}


@pytest.mark.parametrize("drawn", EVERY)
def test_every_figure_can_be_read_and_has_its_data(drawn):
    fig, data = EVERY[drawn]()
    assert len(data) and not data.isna().all().any()
    legible(fig)
    on_a_page(fig)


def test_fig_5_has_both_baselines_and_what_was_not_measured_here():
    fig, data = figures.fig5(TF32, TABLE1, APART)
    assert len(fig.axes) == 6 and figures.APART in labels(fig)
    assert {"AccSpMM", "FlashSparse", "Voltrix"} <= set(words(fig))
    stated = data[(data["source"] == "stated") & (data["n"] == 1024)].set_index("variant")
    assert stated.loc["WCSR", "speedup"] == pytest.approx(4.13 / 0.72)
    assert set(stated["over"]) == {BELL} and "cuSPARSE" not in stated.index
    apart = data[data["source"] == "measured apart"]
    assert set(apart["variant"]) == {"Voltrix"} and set(apart["over"]) == {CSR}
    ours = data[data["source"] == "measured"]
    assert len(ours[(ours["variant"] == WCSR) & (ours["over"] == CSR)]) == 36
    assert all(drawn_in(ax, style.CLAIM) for ax in fig.axes[::2])
    without = figures.fig5(TF32[TF32["variant"] != BELL], TABLE1, APART)[0]
    assert len(without.axes) == 3
    with pytest.raises(ValueError, match="neither Blocked-ELL nor an algorithm for CSR"):
        figures.fig5(TF32[TF32["variant"] == WCSR], TABLE1, APART)


def test_parts_are_over_the_published_kernel():
    _, data = figures.parts(PARTS)
    means = data.groupby("variant")["speedup"].mean()
    assert means["windows"] == pytest.approx(6.0 / 3.0 / made.GROWS[512])
    assert "wcsr" not in means.index and len(means) == len(contenders.PARTS) - 1


def test_the_map_has_each_matrix_and_its_winner():
    fig, data = figures.winners(experiments.maps(FLOAT32, TF32))
    assert len(data) == 24 and set(data["values"]) == {"float32", "TF32"} and set(data["n"]) == {1024}
    assert set(labels(fig)) == {*experiments.KINDS, *experiments.KINDS_TF32}
    with pytest.raises(ValueError, match="two kinds of kernels"):
        figures.winners([])


def test_maps_have_the_kinds_that_were_measured():
    few = FLOAT32[(FLOAT32["variant"] != UNION) & (FLOAT32["n"] < 1024)]
    (here,) = experiments.maps(few, None)
    assert (here.values, here.n) == ("float32", 512)
    assert here.groups == ("tensor cores, 3×TF32", "cuSPARSE CSR")
    assert experiments.maps(FLOAT32[FLOAT32["variant"] == UNION], None) == []
    one = experiments.maps(FLOAT32[FLOAT32["label"] == "matrix1"], None)
    assert figures.winners(one) and not any(name.startswith("rule") for name, _ in facts.winners(one))


def test_accuracy_keeps_tf32_and_float32_apart():
    fig, data = figures.accuracy(FLOAT32, TF32)
    assert [ax.get_title() for ax in fig.axes] == ["float32 values", "values that TF32 holds"]
    keyed = data.set_index(["values", "variant"])
    assert keyed.loc[("float32 values", UNION), "rel_err"] == pytest.approx(2e-7)
    assert keyed.loc[("values that TF32 holds", CSR), "speedup"] == 1
    with pytest.raises(ValueError, match="no records to take errors from"):
        figures.accuracy(None, None)


def test_gains_are_at_matrices_of_both():
    gained = figures.gains(FLOAT32, RCM)
    assert set(gained["variant"]) == {AUTO_FP32, CSR} and set(gained["n"]) == {1024}
    np.testing.assert_allclose(gained["gain"], 1.25)
    assert figures.gains(None, RCM) is None
    assert figures.gains(FLOAT32, RCM.assign(label="another")) is None


# ---------------------------------------------------------------- measuring


def test_block_contenders_are_left_out_where_blocks_are_too_many(monkeypatch):
    rng = np.random.default_rng(0)
    rows = np.sort(rng.integers(0, 640, 4000))
    a = csr.Csr(
        640,
        640,
        csr.offsets(rows * 640, 640, 640),
        rng.integers(0, 640, 4000).astype(np.int32),
        np.ones(4000, np.float32),
    )
    every = [WCSR, KEPT, BELL, TRITON, "cusparse_alg2"]
    assert room_experiments.too_large(a, every, "tf32", np.inf) == {}
    assert room_experiments.too_large(a, [WCSR, "cusparse_alg2"], "float32", 1) == {}
    monkeypatch.setattr(room_experiments, "MOST_SUMMED", 99)
    found = room_experiments.too_large(a, every, "tf32", np.inf)
    assert list(found) == [TRITON] and "sums 100 blocks in float64" in found[TRITON]
    assert room_experiments.too_large(a, every, "bfloat16", np.inf) == {}  # it has tensor cores
    assert list(room_experiments.too_large(a, [BELL], "tf32", 6e6)) == [BELL]
    monkeypatch.setattr(room_experiments, "MOST_BYTES", 1)
    assert list(room_experiments.too_large(a, every, "tf32", np.inf)) == [KEPT, BELL, TRITON]


def test_the_kernel_for_blocks_gets_b_as_the_source_has_it(monkeypatch):
    from fake_libraries import csr_problem, install

    install(monkeypatch)
    problem = csr_problem(64, 24, 96, dtype="tf32")
    seen = []

    def bind(given):
        seen.append(given.device())
        return SimpleNamespace(prepare_ms=1.0, prepare_bytes=10)

    bound = room_experiments.in_source_layout(bind)(problem)
    (operands_,) = seen
    assert operands_.b.flags.f_contiguous and not operands_.b.flags.c_contiguous
    np.testing.assert_array_equal(operands_.b, problem.host().b)
    assert operands_.c is problem.device().c and problem.device().b.flags.c_contiguous
    assert bound.prepare_ms > 1 and bound.prepare_bytes == 10 + 4 * 96 * 24


@pytest.mark.gpu
def test_a_matrix_is_measured_on_a_gpu(tmp_path, monkeypatch):
    import scipy.sparse

    where = tmp_path / "matrices"
    where.mkdir()
    name = matrices.listed(registry.matrices(made.ROOM))["name"].iloc[0]
    a = scipy.sparse.random(1000, 1000, 0.03, format="csr", random_state=1)
    scipy.sparse.save_npz(where / f"{name}.npz", a)
    monkeypatch.setenv(matrices.VARIABLE, str(where))
    run = room_experiments.start("measure", "", "kick", 0, str(tmp_path / "records"))
    tf32, float32 = experiments.tf32(run), experiments.exact(run)
    assert {WCSR, "windows", KEPT, CSR} <= set(tf32["variant"]) and set(tf32["n"]) == {256}
    assert (tf32["rel_err"] < 1e-4).all() and (float32["rel_err"] < 1e-5).all()
    assert {"windows_exact", CSR} <= set(float32["variant"])
    kept = room_experiments.matrix(name, where)
    columns = operands.column_vectors(kept)
    shared = experiments.statistics(tf32)["shared"]
    np.testing.assert_allclose(shared, kept.nnz / columns)
    parts = experiments.parts(run)
    assert set(contenders.PARTS) <= set(parts["variant"])
    assert figures.parts(parts) and figures.fig5(tf32, TABLE1, APART)
    assert figures.winners(experiments.maps(float32, tf32)) and figures.accuracy(float32, tf32)
    assert tables.pays_off(float32, tf32) is not None


def test_what_the_order_of_tasks_is_worth_is_of_the_same_launches(tmp_path, monkeypatch):
    rows = [("graph", 256, "rows=1", 100.0), ("graph", 1024, "rows=2", 60.0)]
    rows.append(("mesh", 256, "rows=1", 10.5))
    names = ["matrix", "n", "config", "us"]
    for which, scale in (("IN_ROW_ORDER", 1.0), ("EIGHT_TASKS", 0.25)):
        table = pd.DataFrame(rows, columns=names)
        table["us"] *= [scale, 1, 1]
        path = tmp_path / f"{which}.csv"
        path.write_text("# a GPU\n" + table.to_csv(index=False))
        monkeypatch.setattr(fit, which, path)
    said = dict(facts.waits())
    assert (said["in_blocks.gaining"], said["in_blocks.matrices"], said["in_blocks.first"]) == (1, 2, "graph")
    assert [said[f"in_blocks.best.{name}"] for name in ("gain", "before", "after")] == [4, 100, 25]


def test_the_price_of_one_order_is_a_geometric_mean_over_matrices(tmp_path):
    df = pd.DataFrame(
        [("a", "auto_fp32", 2, 10.0, 10.0), ("b", "auto_fp32", 3, 10.0, 12.1), ("c", "auto_half", 1, 5.0, 5.0)],
        columns=["matrix", "auto", "parts", "us", "in_order_us"],
    )
    exact, sixteen = in_order.price(df).to_dict("records")
    assert exact["mean"] == pytest.approx(1.1) and exact["largest"] == pytest.approx(1.21)
    assert (exact["matrices"], exact["cut"], exact["worst"]) == (2, 1, "b")
    assert exact["cut_mean"] == pytest.approx(1.21)
    assert sixteen["mean"] == 1 and sixteen["cut"] == 0 and np.isnan(sixteen["cut_mean"])
    path = tmp_path / "in_order.csv"
    assert in_order.table(path) is None
    path.write_text("# a GPU\n" + df.to_csv(index=False))
    assert list(in_order.table(path)["geometric mean"]) == ["1.100×", "1.000×"]


def test_a_plan_has_paid_after_what_it_costs_over_what_each_multiplication_saves(tmp_path):
    df = pd.DataFrame(
        {
            "nnz": [100, 50_000, 60_000],
            "plan_us": [500.0, 500.0, 100.0],
            "us": [10.0, 30.0, 10.0],
            "cusparse_us": [30.0, 30.0, 20.0],
            "cusparse_prepare_us": [100.0, 100.0, 150.0],
        }
    )
    assert list(plans.until_even(df)) == [20.0, np.inf, 0.0]
    path = tmp_path / "plans.csv"
    assert plans.table(path) is None
    path.write_text("# A GPU, 2026-11-25: see plans.py\n" + df.to_csv(index=False))
    few, more = plans.table(path).to_dict("records")
    assert (few["matrices"], few["paid after, median"], few["never"]) == (1, "20 multiplications", "0 of 1")
    assert (more["matrices"], more["over the best cuSPARSE"], more["never"]) == (2, "1.41×", "1 of 2")
    assert "A GPU, 2026-11-25" in plans.table(path).attrs["caption"]


def test_the_rule_for_a_warps_tasks_is_held_against_what_was_measured():
    df = tasks_of_a_warp.read()
    made = tasks_of_a_warp.ruled(df)
    assert len(made) * len(tasks_of_a_warp.MOST) == len(df)
    assert set(made["n"]) == set(tasks_of_a_warp.WIDTHS)
    assert records.geomean(made["gain"]) > 1.03 and made["gain"].min() > 0.8
    long = made[made["loaded"] > union.WORK]
    assert (long["gain"] == long["gain_1"]).all()
    short = made[made["loaded"] <= union.WORK / 8]
    assert (short["gain"] == 1).all(), "as many as there were"
    fig, data = figures.tasks(made)
    assert len(fig.axes[0].lines) == 7 and len(data) == len(made)
    assert dict(facts.tasks())["tasks.kib"] == union.WORK // 1024
