"""The figures of async_sparse, on records of a made-up machine that are good for nothing else."""

import async_records as made
import numpy as np
import pandas as pd
import pytest
from drawn import drawn_in, labels, legible, on_a_page, words

from artifact.drawing import style
from artifact.measure import records
from artifact.rooms.async_sparse import arithmetic, contenders, figures, sketches, timeline

TABLE2, TABLE3, TEXT = (arithmetic.stated(name) for name in ("table2", "table3", "text"))
ROOFS = {
    "wgmma": {"gbps": 0.0, "tflops": 907.0},
    "shared_read": {"gbps": 32800.0, "tflops": 0.0},
    "l2_read": {"gbps": 11000.0, "tflops": 0.0},
    "copy": {"gbps": 4230.0, "tflops": 0.0},
}
MACHINE = {"sm_count": 132, "l2_bytes": 62914560, "memory_bytes": 150109880320}
MACHINE |= {"shared_bytes_per_sm": 233472, "registers_per_sm": 65536}
PREDICTIONS = {v: f"{v} should gain something over the one before" for v in contenders.LADDER}


EVERY = {
    "ablation": lambda: figures.ablation(made.ablation(), TABLE2),
    "shares": lambda: figures.shares(made.ablation(), TABLE2),
    "tiles": lambda: figures.tiles(made.tile_n(), TEXT),
    "gate": lambda: figures.gate(made.gate_proj(), TABLE3, 4230.0),
    "pays": lambda: figures.pays(made.gate_proj()),
    "ladder": lambda: figures.ladder(made.ladder(), PREDICTIONS),
    "blocks": lambda: figures.blocks(made.blocks()),
    "layers": lambda: figures.layers(made.shapes()),
    "layout": lambda: figures.layout_cost(figures.both_layouts(made.gate_proj(), made.ladder())),
    "machine": lambda: sketches.machine(MACHINE, ROOFS),
    "thread-block": lambda: sketches.thread_block(),
    "timeline": lambda: timeline.draw(made.timeline(), ("opt1", "opt5")),
}


@pytest.mark.parametrize("drawn", EVERY)
def test_every_figure_can_be_read_and_has_its_data(drawn):
    fig, data = EVERY[drawn]()
    assert len(data) and not data.isna().all().any()
    legible(fig)
    on_a_page(fig)


# ---------------------------------------------------------------- Fig. 6, Table II


def test_ablation_has_each_matrix_and_both_means():
    df = made.ablation()
    fig, data = figures.ablation(df, TABLE2)
    measured = data[data["source"] == "measured"]
    assert set(measured["variant"]) == set(made.OVER_BELL) - {"cusparse_bell", "cusparse_alg2"}
    own = measured[measured["variant"] == "opt5"]
    expected = records.speedup(df, "opt5", "cusparse_bell")
    np.testing.assert_allclose(own["speedup"], expected)
    stated = data[data["source"] == "stated"].set_index("variant")["speedup"]
    assert stated["opt7"] == 4.10 and stated["triton_bsr"] == 2.42 and "auto" not in stated.index
    (ax,) = fig.axes
    assert len(drawn_in(ax, style.CLAIM)) == 9
    assert "4.40×" in words(fig) and "opt3, warp specialisation" in words(fig)


def test_contenders_without_records_are_left_out_and_without_the_baseline_there_is_nothing():
    df = made.ablation()
    _, data = figures.ablation(df[~df["variant"].isin(["opt6", "auto"])], TABLE2)
    assert not {"opt6", "auto"} & set(data.loc[data["source"] == "measured", "variant"])
    with pytest.raises(ValueError, match="nothing beside 'cusparse_bell'"):
        figures.ablation(df[df["variant"] != "cusparse_bell"], TABLE2)


def test_shares_add_up_and_differ_by_how_they_are_counted():
    _, data = figures.shares(made.ablation(), TABLE2)
    sums = data.groupby(["source", "counted"])["share"].sum()
    assert len(sums) == 4 and np.allclose(sums, 1)
    stated = data[data["source"] == "stated"].set_index(["counted", "step"])["share"]
    assert stated["by difference"].idxmax() == "opt3" and stated["by factor"].idxmax() == "opt1"


# ---------------------------------------------------------------- Fig. 7


def test_tiles_mark_the_rule_and_the_best():
    slower = made.faster(made.tile_n(), "opt5_n256", 0.7)
    fig, data = figures.tiles(slower, TEXT)
    assert {"the source's rule: 256", "best here: 176"} <= set(labels(fig))
    measured = data[data["source"] == "measured"].set_index("width")
    assert list(measured.index) == list(contenders.WIDTHS)
    assert measured["extra"][248] == pytest.approx(0.453, abs=0.001) and measured["extra"][64] == 0
    assert (measured["low"] <= measured["high"]).all()
    stated = data[data["source"] == "stated"].set_index("width")["tflops"]
    assert stated.to_dict() == {8: 0.56, 256: 5.90, 176: 5.30, 248: 4.13}
    with pytest.raises(ValueError, match="no width"):
        figures.tiles(made.ablation(), TEXT)


# ---------------------------------------------------------------- gate_proj


def test_gate_has_a_panel_for_each_n_and_the_stated_speedups():
    fig, data = figures.gate(made.gate_proj(), TABLE3)
    assert [ax.get_title() for ax in fig.axes] == [
        "N = 1\u202f024",
        "N = 4\u202f096",
        "N = 16\u202f384",
        "N = 65\u202f536",
    ]
    assert all(len(drawn_in(ax, style.CLAIM)) == 4 for ax in fig.axes)
    measured = data[data["source"] == "measured"]
    own = measured[(measured["variant"] == "opt5") & (measured["n"] == 65536) & (measured["density"] == 0.1)]
    assert own["speedup"].item() == pytest.approx(13.12 / 6.69)
    np.testing.assert_allclose(measured["limit"], 1 / measured["density"])  # without a ceiling of memory


def test_limits_are_the_slower_of_multiplying_and_moving():
    df = made.gate_proj()
    free, bound = figures.limits(df, None), figures.limits(df, 4230.0)
    assert (bound["limit"] <= free["limit"] + 1e-9).all()
    at = bound[(bound["n"] == 65536) & (bound["density"] == 0.01)]["limit"].item()
    row = df[(df["variant"] == contenders.TORCH) & (df["n"] == 65536) & (df["density"] == 0.01)].iloc[0]
    assert at == pytest.approx(row["median_us"] / (row["least_bytes"] / 4230.0 / 1e3))


def test_break_even_lies_between_the_points_or_nowhere():
    s = pd.Series({0.5: 0.5, 0.125: 2.0, 0.01: 8.0})
    assert figures.break_even(s) == pytest.approx(0.25)
    assert figures.break_even(s * 0.1) is None and figures.break_even(s * 10) is None
    _, data = figures.pays(made.gate_proj())
    by = data.groupby("variant")["pays_from"].first()
    assert 0.3 < by["triton_bsr"] < 0.5 and np.isnan(by["auto"])


# ---------------------------------------------------------------- ours


def test_the_ladder_has_what_the_source_states_at_its_point():
    df = made.ladder()
    at = {"quantity": "speedup_cublas", "n": df["n"].iloc[0], "density": df["density"].iloc[0]}
    table3 = pd.DataFrame([at | {"low": 2.5}, at | {"low": 9.0, "density": 0.9}])
    _, data = figures.ladder(df, PREDICTIONS, table3=table3)
    assert data.set_index("variant")["stated"].dropna().to_dict() == {contenders.KEPT: 2.5}
    assert "stated" not in figures.ladder(df, PREDICTIONS, table3=table3.iloc[1:])[1]


def test_ladder_gains_are_over_what_a_kernel_builds_on():
    _, data = figures.ladder(made.ladder(), PREDICTIONS)
    rows = data.set_index("variant")
    assert list(rows.index) == list(contenders.LADDER)
    assert rows["over"].to_dict() | {"opt0": None} == {
        "opt0": None,
        "opt1": "opt0",
        "opt2": "opt1",
        "opt3": "opt2",
        "opt4": "opt3",
        "opt5": "opt4",
        "opt6": "opt5",
        "opt6_atomic": "opt5",
        "opt6_stealing": "opt5",
        "opt7": "opt5",
        "unit_ring": "opt5",
        "auto": "unit_ring",
    }
    assert rows["gain"]["opt7"] == pytest.approx(4.10 / 4.40)


def test_sides_of_blocks_are_read_from_labels():
    assert [figures.side(x) for x in ("", "linear", "blocks of 16", "bfloat16, blocks of 128, linear")] == [
        64,
        64,
        16,
        128,
    ]
    _, data = figures.blocks(made.blocks())
    assert sorted(set(data["side"])) == [16, 32, 64, 128]


def test_layouts_are_compared_at_points_of_both():
    both = figures.both_layouts(made.gate_proj(), made.ladder())
    assert set(both["n"]) == {16384} and set(both["density"]) == {0.1}
    assert set(both["variant"]) == {"opt5", "auto", contenders.TORCH}
    assert figures.both_layouts(made.gate_proj().query("n == 1024"), made.ladder()) is None
    assert figures.both_layouts(None, made.ladder()) is None


def test_looks_are_told_apart():
    shown = (contenders.KEPT, contenders.TRITON, "auto", contenders.BSR)
    assert len({str(contenders.look(v)["marker"]) for v in shown}) == len(shown)
    assert contenders.look("auto")["color"] == style.BEST
    assert contenders.look(contenders.DENSE)["color"] == style.BASELINE


# ---------------------------------------------------------------- Figs. 1, 3 and 4


def test_the_machine_is_the_one_that_was_measured():
    _, data = sketches.machine(MACHINE, ROOFS)
    here = data.set_index("what")["here"]
    assert here["SMs"] == "132" and here["L2"] == "60 MiB" and here["from L2"] == "11.0 TB/s"
    fig, data = sketches.machine({}, None)
    assert set(data["here"]) == {"?", "not recorded", "not measured"}


def test_a_thread_block_takes_what_its_arithmetic_says():
    fig, data = sketches.thread_block()
    assert len(data) == 3 and set(data["registers"]) == {64512}
    assert set(data["shared_bytes"]) == {3 * (8192 + 65536)}
    assert "A\n64 × 64\n8 KiB" in words(fig)


def test_timeline_has_a_lane_for_each_role_and_warpgroup():
    fig, data = timeline.draw(made.timeline(), ("opt1", "opt5", "opt7"))
    (ax,) = fig.axes
    shown = [text.get_text() for text in ax.get_yticklabels()]
    assert shown == [
        "load, warpgroup 0",
        "multiply, warpgroup 0",
        "load, warpgroup 0",
        "multiply, warpgroup 1",
        "multiply, warpgroup 2",
        "store, warpgroup 1",
        "store, warpgroup 2",
    ]
    assert data["begin_ns"].min() == 0 and data.loc[data["role"] != "store", "step"].max() == 7
    with pytest.raises(ValueError, match="none of opt7"):
        timeline.draw(made.timeline(), ("opt7",))
    with pytest.raises(ValueError, match="no thread block 5"):
        timeline.draw(made.timeline(), ("opt1",), block=5)


def test_overlap_is_none_where_the_two_take_turns():
    shares = timeline.overlap(made.timeline())
    assert shares["opt1"] == 0 and 0.5 < shares["opt5"] <= 1


def test_a_trace_is_read_or_refused(tmp_path):
    assert timeline.read(tmp_path) is None
    df = made.timeline()
    path = timeline.write(tmp_path, df)
    with pytest.raises(ValueError, match="row 2 ends before it begins"):
        timeline.write(tmp_path, df.assign(begin_ns=1e9))
    pd.testing.assert_frame_equal(timeline.read(tmp_path), df)
    df.drop(columns="role").to_csv(path, index=False)
    with pytest.raises(ValueError, match="timeline.csv: the column 'role' is missing"):
        timeline.read(tmp_path)
    df.assign(role="rest").to_csv(path, index=False)
    with pytest.raises(ValueError, match="row 2 has the role 'rest'"):
        timeline.read(tmp_path)
    df.assign(end_ns=0).to_csv(path, index=False)
    with pytest.raises(ValueError, match="ends before it begins"):
        timeline.read(tmp_path)
    assert records.experiments(tmp_path) == []  # it is no record
