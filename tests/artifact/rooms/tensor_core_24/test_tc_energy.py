"""Energy from counters and from NVML's power: the fit, what is left out of it, bytes of a tile, and the sentences."""

import numpy as np
import pandas as pd
import pytest

from artifact.book.study import Counters
from artifact.measure import records
from artifact.rooms.tensor_core_24 import energy, experiments

WEIGHTS = {"clocks": 0.2, "tensor": 0.1, "slices": 0.02, "port": 0.01, "dram": 0.05}
SMS = 132


@pytest.fixture(scope="module")
def view(post):
    return energy.view(post)


def launches(seed=0, count=12) -> pd.DataFrame:
    """Launches that keep to `WEIGHTS`."""
    rows = pd.DataFrame(np.random.default_rng(seed).uniform(0.5, 2, (count, len(WEIGHTS))), columns=[*WEIGHTS])
    rows[["slices", "port"]] *= [6, 10]
    ghz = np.sqrt(rows["clocks"] / (rows * pd.Series(WEIGHTS)).sum(axis=1))
    return rows.assign(ghz=ghz, us=rows["clocks"] * 1e3 / ghz)


# ---------------------------------------------------------------- the model


def test_the_fit_finds_the_weights():
    weights = energy.fit(launches())
    assert weights.to_dict() == pytest.approx(WEIGHTS)
    rows = launches(seed=1)
    assert energy.predicted_us(weights, rows).to_numpy() == pytest.approx(rows["us"].to_numpy())
    rows["ghz"] *= 1 + 0.3 * rows["dram"]  # as if DRAM gave energy back
    assert (energy.fit(rows) >= 0).all()


# ---------------------------------------------------------------- what was counted


def test_activity_of_a_launch():
    told = {"us": 1e6, "ghz": 1.5e9, "tensor": 50.0, "slices": 6e9, "port": 11e9, "dram": 1e9, "written": 1e8}
    rows = [("auto", 8192, 8192, 8192, 0.5, experiments.COUNTED[name][0], v, "") for name, v in told.items()]
    rows += [(v, m, 2 * n, k, d, metric, value, unit) for v, m, n, k, d, metric, value, unit in rows]  # no cube
    counters = Counters(pd.DataFrame(rows, columns=records.COUNTER_COLUMNS))
    (row,) = energy.activity(experiments.launches(counters, {"sm_count": SMS})).to_dict("records")
    expected = {"us": 1e3, "ghz": 1.5, "clocks": 1.5, "tensor": 0.75, "slices": 6, "port": 11, "dram": 1.1}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    assert row["port_per_clock"] == pytest.approx(11e9 / (1.5e6 * SMS))
    nothing = experiments.launches(Counters(counters.rows.iloc[:0]), {"sm_count": SMS})
    assert nothing.empty and {"size", "variant", "clocks"} <= set(nothing)


# ---------------------------------------------------------------- NVML


RECORD = {"experiment": "square", "variant": "auto", "m": 8, "n": 8, "k": 8, "median_us": 1e3, "useful_flops": 1e12}


def test_joules_lie_between_the_average_and_the_limit_and_far_from_it_a_point_says_nothing():
    df = pd.DataFrame([RECORD | {"power_w": watt} for watt in (680.0, 320.0, 629.0, np.nan)])
    (found,) = energy.joules(df, 700.0)[["low_j", "high_j", "low_pj", "high_pj"]].to_numpy()
    assert found == pytest.approx((0.68, 0.7, 0.68, 0.7))


def test_how_often_nvml_was_asked():
    df = pd.DataFrame(
        [RECORD | {"samples": n, "variant": v, "m": m} for n, v, m in ((25, "a", 8), (100, "b", 8), (1, "a", 9))]
    )
    found = energy.asked(df).set_index("m")
    assert found["ms"].to_dict() == pytest.approx({8: 125.0, 9: 1.0})
    assert found["times"].to_dict() == {8: 3, 9: 1}, "at once, and every 50 ms"


# ---------------------------------------------------------------- the chapter


def test_the_prediction_does_not_know_what_came(view):
    found = energy.larger_tile(view.rows, view.size, SMS)
    assert found.index.tolist() == list(energy.ANCHORS)
    mine = view.rows["variant"].isin(energy.OF_THREE)
    slow = view.rows.assign(us=view.rows["us"].where(~mine, 9e9), ghz=view.rows["ghz"].where(~mine, 0.1))
    assert energy.larger_tile(slow, view.size, SMS).equals(found)
    assert found["us"].is_monotonic_increasing, "shared memory waits, the port does not"
    assert energy.larger_tile(view.rows[view.rows["variant"] != "wgmma_tall"], view.size, SMS).empty


def test_an_anchor_takes_the_models_errors_along(view):
    """Launches as slow again as they are, in clocks and in clock, make the new tile as slow again."""
    before = energy.larger_tile(view.rows, view.size, SMS)
    tall = view.rows["variant"] == "wgmma_tall"
    slower = view.rows.assign(us=view.rows["us"].where(~tall, 1.1 * view.rows["us"]))
    after = energy.larger_tile(slower, view.size, SMS)
    assert after["us"]["wgmma_tall"] == pytest.approx(1.1 * before["us"]["wgmma_tall"])
    assert after["us"]["wgmma_keep"] == pytest.approx(before["us"]["wgmma_keep"])
