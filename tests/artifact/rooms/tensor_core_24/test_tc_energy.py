"""Energy from counters and from NVML's power: the fit, what is left out of it, bytes of a tile, and the sentences."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from artifact.measure import ceilings as ceilings_
from artifact.measure import run as harness
from artifact.rooms.tensor_core_24 import energy, experiments, facts, figures, tables
from artifact.rooms.tensor_core_24.experiments import Counters
from kernels import tensor_core_24 as room
from kernels.tensor_core_24 import family

WEIGHTS = {"clocks": 0.2, "tensor": 0.1, "slices": 0.02, "port": 0.01, "dram": 0.05}
SMS = 132


@pytest.fixture(scope="module")
def square(run):
    return experiments.measure(run, "square")


@pytest.fixture(scope="module")
def view(run, counters, ladder):
    records = experiments.together(experiments.measure(run, "square"), experiments.studies(run), ladder.frame)
    return energy.view(counters, records, run.machine)


def launches(seed=0, count=12) -> pd.DataFrame:
    """Launches that keep to `WEIGHTS`, two sizes of each contender."""
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({term: rng.uniform(0.5, 2, count) for term in energy.TERMS})
    rows["slices"] *= 6
    rows["port"] *= 10
    rows["size"] = np.tile([4096, 8192], count // 2)
    rows["variant"] = [f"v{i // 2}" for i in range(count)]
    rows["ghz"] = np.sqrt(rows["clocks"] / (rows[list(WEIGHTS)] * pd.Series(WEIGHTS)).sum(axis=1))
    rows["us"] = rows["clocks"] * 1e3 / rows["ghz"]
    return rows


# ---------------------------------------------------------------- the model


def test_the_fit_finds_the_weights():
    model = energy.fit(launches())
    assert model.weights.to_dict() == pytest.approx(WEIGHTS)
    rows = launches(seed=1)
    assert model.us(rows).to_numpy() == pytest.approx(rows["us"].to_numpy())
    assert model.parts(rows).sum(axis=1).to_numpy() == pytest.approx(model.energy(rows).to_numpy())


def test_no_weight_is_negative():
    rows = launches()
    rows["ghz"] *= 1 + 0.3 * rows["dram"]  # as if DRAM gave energy back
    assert (energy.fit(rows).weights >= 0).all()


def test_a_contender_that_keeps_to_no_model_is_missed_and_spoils_no_other():
    rows = launches(count=24)
    odd = rows["variant"] == "v3"
    rows.loc[odd, "us"] *= 1.5
    rows.loc[odd, "ghz"] /= 1.5
    judged = energy.left_out(rows).set_index("variant")["error"]
    assert judged["v3"].to_numpy() == pytest.approx(1 / 1.5 - 1)
    assert len(judged) == len(rows)
    exact = energy.left_out(launches(count=24))["error"]
    assert exact.abs().max() < 1e-9


def test_a_size_is_predicted_from_the_others_alone():
    rows = launches(count=24)
    assert energy.other_size(rows)["error"].abs().max() < 1e-9
    slower = rows.assign(us=rows["us"].where(rows["size"] == 4096, 2 * rows["us"]))
    slower["ghz"] = slower["clocks"] * 1e3 / slower["us"]
    errors = energy.other_size(slower).groupby("size")["error"].mean()
    assert errors[8192] == pytest.approx(-0.5) and errors[4096] == pytest.approx(1.0)
    assert energy.other_size(rows[rows["size"] == 4096]).empty


def test_too_few_launches_are_refused():
    with pytest.raises(ValueError, match="5 weights, but only 4 launches"):
        energy.fit(launches().head(4))


# ---------------------------------------------------------------- what was counted


def test_activity_of_a_launch():
    values = dict(zip(energy.NEEDED, (1e6, 1.5e9, 50.0, 6e9, 11e9, 1e9, 1e8), strict=True))
    counted = {("auto", 8192, metric): value for metric, value in values.items()}
    partly = {("mma_sp", 8192, energy.NEEDED[0]): 1e6}
    row = energy.activity(Counters(counted | partly), SMS)
    assert row["variant"].tolist() == ["auto"], "a launch without all counters is no launch"
    expected = {
        "us": 1e3,
        "ghz": 1.5,
        "clocks": 1.5,
        "tensor": 0.75,
        "slices": 6,
        "port": 11,
        "dram": 1.1,
    }
    assert row.iloc[0][list(expected)].to_dict() == pytest.approx(expected)
    assert row["port_per_clock"][0] == pytest.approx(11e9 / (1.5e6 * SMS))


@pytest.mark.parametrize("variant", ["wgmma_one_stage", "wgmma_keep", "wgmma_tall", "wgmma_packed"])
@pytest.mark.parametrize("size", [4096, 8192])
def test_the_bytes_of_a_tile_are_those_that_were_counted(counters, variant, size):
    counted = counters.get(variant, size, experiments.TO_SM)
    assert energy.port_bytes(room.RUNGS[variant][0], size) == pytest.approx(counted, rel=1e-3)


def test_the_larger_tile_is_three_warpgroups_and_moves_less():
    c = energy.THREE_GROUPS
    assert (c.m, c.n) == (192, 256) and c.shared_bytes <= 227 * 1024
    step = 192 * 64 + 192 * 8 + 256 * 128  # values of A, metadata, B
    assert energy.port_bytes(c, 192 * 256) == 256 * 192 * (192 * 256 // 64) * step
    assert energy.port_bytes(c, 8192) < 0.8 * energy.port_bytes(family.Wgmma(), 8192)


def test_who_computes_the_larger_tile():
    assert energy.OF_THREE == ("wgmma_refilling", "wgmma_three", "wgmma_pieces")
    assert all((room.RUNGS[name][0].m, room.RUNGS[name][0].n) == (192, 256) for name in energy.OF_THREE)


# ---------------------------------------------------------------- NVML


def records(**more) -> pd.DataFrame:
    row = {
        "experiment": "square",
        "variant": "auto",
        "m": 8,
        "n": 8,
        "k": 8,
        "median_us": 1000.0,
        "power_w": 680.0,
        "useful_flops": 1e12,
    }
    return pd.DataFrame([row | more])


def test_joules_lie_between_the_average_and_the_limit():
    found = energy.joules(records(), {"power_limit_w": 700.0}).iloc[0]
    assert (found["low_j"], found["high_j"]) == pytest.approx((0.68, 0.7))
    assert (found["low_pj"], found["high_pj"]) == pytest.approx((0.68, 0.7))


@pytest.mark.parametrize("watt", [320.0, 629.0, np.nan])
def test_a_point_far_from_the_limit_says_nothing(watt):
    assert energy.joules(records(power_w=watt), {"power_limit_w": 700.0}).empty


def test_without_a_limit_nothing_is_said():
    assert energy.joules(records(), {}).empty and energy.joules(records(), {"power_limit_w": None}).empty


def test_4096_is_too_short_to_tell(view):
    assert 4096 not in set(view.joules["m"]) and {12288, 16384} <= set(view.joules["m"])


def test_how_often_nvml_was_asked():
    df = pd.concat([records(samples=25), records(samples=100, variant="mma_sp"), records(samples=1, m=16)])
    found = energy.asked(df).set_index("m")
    assert found["ms"].to_dict() == pytest.approx({8: 125.0, 16: 1.0})
    assert found["times"].to_dict() == {8: 3, 16: 1}, "at once, and every 50 ms"


# ---------------------------------------------------------------- a peak's clock


def test_the_least_clock_of_a_peak_does_its_rate():
    hopper = {"compute_capability": "9.0", "sm_count": 132}
    assert ceilings_.least_mhz("wgmma", 4096 * 132 * 1500 / 1e6, hopper) == pytest.approx(1500)
    assert ceilings_.least_mhz("wgmma_sp", 4096 * 132 * 1500 / 1e6, hopper) == pytest.approx(750)
    assert np.isnan(ceilings_.least_mhz("mma", 100.0, {"compute_capability": "8.9", "sm_count": 46}))


# ---------------------------------------------------------------- the chapter


def test_the_prediction_does_not_know_what_came(view):
    found = energy.larger_tile(view.rows, view.size, SMS)
    assert found["anchor"].tolist() == list(energy.ANCHORS)
    mine = view.rows["variant"].isin(energy.OF_THREE)
    slow = view.rows.assign(us=view.rows["us"].where(~mine, 9e9), ghz=view.rows["ghz"].where(~mine, 0.1))
    assert energy.larger_tile(slow, view.size, SMS).equals(found)
    assert found["us"].is_monotonic_increasing, "shared memory waits, the port does not"
    got = dict(facts.models(view))
    assert got["larger.came.ratio"] == view.largest["us"]["auto"] / view.largest["us"][energy.LARGER]
    unseen = dict(facts.models(replace(view, rows=view.rows[~mine])))
    assert "larger.port" in unseen and "larger.came.ratio" not in unseen
    some = view.rows[view.rows["variant"] != "wgmma_tall"]
    assert energy.larger_tile(some, view.size, SMS).empty
    assert "larger.port" not in dict(facts.models(replace(view, rows=some)))


def test_an_anchor_takes_the_models_errors_along(view):
    """Launches as slow again as they are, in clocks and in clock, make the new tile as slow again."""
    before = energy.larger_tile(view.rows, view.size, SMS).set_index("anchor")
    tall = view.rows["variant"] == "wgmma_tall"
    slower = view.rows.assign(us=view.rows["us"].where(~tall, 1.1 * view.rows["us"]))
    after = energy.larger_tile(slower, view.size, SMS).set_index("anchor")
    assert after["us"]["wgmma_tall"] == pytest.approx(1.1 * before["us"]["wgmma_tall"])
    assert after["us"]["wgmma_keep"] == pytest.approx(before["us"]["wgmma_keep"])


def test_who_runs_alone(run, square):
    told = experiments.alone(run)
    assert set(told["variant"]) == set(experiments.ALONE)
    ratios = experiments.over(told, "auto", "cusparselt")
    got = dict(facts.turns(told, square))
    assert all(got[f"alone.at.{size}³.alone"] == ratio for size, ratio in ratios.items())
    assert "16384³" in got["alone.sizes"], "the largest was capped"
    thrifty = told.assign(median_us=told["median_us"].where(told["variant"] != "auto", 0.9 * told["median_us"]))
    assert dict(facts.turns(thrifty, square))["alone.mean"] == pytest.approx((1 + got["alone.mean"]) / 0.9 - 1)
    assert "alone.mean" not in dict(facts.turns(told.assign(throttle="none"), square))
    assert set(dict(facts.turns(None, square))) == {"alone.seconds", "alone.launches"}


def test_a_record_without_it_says_nothing_of_who_runs_alone(run, tmp_path):
    assert experiments.alone(replace(run, folder=tmp_path)) is None


def test_one_by_one_times_each_without_the_others(monkeypatch):
    seen = []
    monkeypatch.setattr(
        experiments.bench,
        "time",
        lambda bounds, device, **how: seen.append((list(bounds), how)) or bounds,
    )
    found = experiments.one_by_one({"x": 1, "y": 2}, None, budget_s=0.15, verify=len)
    assert found == {"x": 1, "y": 2} and [names for names, _ in seen] == [["x"], ["y"]]
    assert all(how["budget_s"] == experiments.ALONE_S and how["verify"] is len for _, how in seen)


def test_both_models_together_are_further_off_than_the_one(view):
    found = energy.both(view.rows, SMS)
    assert set(found["variant"]) == set(energy.STREAMING)
    alone = view.judged.set_index(["size", "variant"])["error"].abs()
    assert found["error"].abs().max() > alone[list(zip(found["size"], found["variant"], strict=True))].max()


def test_without_counters(run, ladder):
    view = energy.view(Counters({}), ladder.frame, run.machine)
    assert not list(facts.models(view)) and not view.tells
    assert tables.energy(view, ladder) is None
    assert "energy.points" in dict(facts.power(view, ladder, run.machine))
    nothing = energy.view(Counters({}), ladder.frame.assign(power_w=100.0), run.machine)
    assert "energy.points" not in dict(facts.power(nothing, ladder, run.machine))


def test_there_is_no_table_where_the_profiled_size_was_not_measured(view, ladder):
    kicked = replace(ladder, frame=ladder.frame[ladder.frame["m"] != view.size])
    assert tables.energy(view, kicked) is None


def test_the_table_has_what_was_measured_alone(view, ladder):
    table = tables.energy(view, ladder).data.set_index("contender")
    assert "wgmma_split_k" not in table.index, "it was not profiled"
    auto = ladder.frame[(ladder.frame["m"] == view.size) & (ladder.frame["variant"] == "auto")].iloc[0]
    assert table.loc["auto", "J, to"] == pytest.approx(700e-6 * auto["median_us"])
    assert table.loc["auto", "clock, harness [GHz]"] < table.loc["auto", "clock, profile [GHz]"]


def test_the_figure_draws_every_term(view):
    fig, data = figures.energy(view.parts, energy.CALLED, view.size)
    assert data[data["variant"] == "auto"]["share"].sum() == pytest.approx(1)
    assert set(data["term"]) == set(energy.TERMS)
    with pytest.raises(ValueError, match="'nobody' is not known"):
        figures.energy(view.parts, energy.CALLED, view.size, reference="nobody")


def test_peaks_are_stated_with_their_clocks(view, run):
    ceilings = experiments.ceilings(harness.start("ceilings", mode="recorded"), run.machine)
    got = dict(facts.peaks(view, ceilings, run.machine))
    assert got["peaks.share"] == pytest.approx(got["peaks.rate"] / ceilings.peak[ceilings.best_sparse])
    assert got["peaks.needs"] > got["peaks.ghz"]
    assert not list(facts.peaks(view, replace(ceilings, peak={}), run.machine))
