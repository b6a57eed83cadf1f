"""Energy from counters and from NVML's power: the fit, what is left out of it, bytes of a tile, and the sentences."""

import numpy as np
import pandas as pd
import pytest

from artifact.systems.tensor_core_24 import energy

WEIGHTS = {"clocks": 0.2, "tensor": 0.1, "slices": 0.02, "port": 0.01, "dram": 0.05}
SMS = 132


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


# ---------------------------------------------------------------- the chapter


def test_the_prediction_does_not_know_what_came(post):
    view = energy.view(post)
    found = energy.larger_tile(view.rows, view.size, SMS)
    assert found.index.tolist() == list(energy.ANCHORS)
    mine = view.rows["variant"].isin(energy.OF_THREE)
    slow = view.rows.assign(us=view.rows["us"].where(~mine, 9e9), ghz=view.rows["ghz"].where(~mine, 0.1))
    assert energy.larger_tile(slow, view.size, SMS).equals(found)
    assert found["us"].is_monotonic_increasing, "shared memory waits, the port does not"
    assert energy.larger_tile(view.rows[view.rows["variant"] != "wgmma_tall"], view.size, SMS).empty
