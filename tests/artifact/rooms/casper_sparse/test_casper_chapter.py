"""What the chapter's tables and figures show, on the shipped records and on others that are made up."""

from dataclasses import replace

import numpy as np
import pytest

from artifact.book import study as studies
from artifact.measure import records
from artifact.rooms.casper_sparse import experiments, facts
from kernels import casper_sparse as room


@pytest.fixture(scope="module")
def study():
    return studies.start("casper_sparse", mode="recorded")


@pytest.fixture(scope="module")
def everything(study):
    return records.best_of(experiments.sweeps(study.run))


def test_memories_are_beside_their_ceilings(study, everything):
    data = experiments.asked(everything, study)
    rows = everything[(everything["variant"] == "warp_per_row") & (everything["experiment"] == "tall")]
    drawn = data[(data["variant"] == "warp_per_row") & (data["group"] == "tall")]
    assert drawn["most"].iloc[0] == pytest.approx((rows["requested_bytes"] / rows["median_us"] / 1e6).max())
    data = experiments.memories(study)
    assert not (data["most"] >= 1.05 * data["ceiling"]).any()  # no memory delivers more than it can


def test_traffic_is_bytes_over_time(study):
    at = {"m": 1048576, "density": 0.05}
    moved = sum(study.counters.get("shared_tiles", f"dram__bytes_{way}.sum", **at) for way in ("read", "write"))
    time_ns = study.counters.get("shared_tiles", "gpu__time_duration.sum", **at)
    row = experiments.traffic(study.counters.where(variant="shared_tiles", **at)).set_index("memory").loc["DRAM"]
    assert row["tbps"] == pytest.approx(moved / time_ns / 1e3) and row["group"] == "tall"


def test_what_was_not_measured_is_no_fact(study, everything, tmp_path):
    none = studies.Study(replace(study.run, folder=tmp_path))
    assert not none.counters and not list(facts.limits(none.counters))
    assert experiments.at_most_dense(none.counters) is None and experiments.memories(none) is None
    assert experiments.speedups(experiments.real(none)) is None and experiments.by_matrix(None) is None
    assert experiments.again(none.run) is None and experiments.spread(everything, None) is None
    part = dict(facts.limits(study.counters.where(m=[1024, 4096])))
    assert part and not any("16384" in name for name in part)


def test_a_rung_is_compared_with_the_one_that_it_changes(everything):
    ones = everything.assign(median_us=np.where(everything["variant"] == "column_tiles", 4.0, 1.0))
    found = dict(facts.ladder(ones, {"sm_count": 132}))
    assert {found[f"ladder.column_tiles.{sweep}"] for sweep in experiments.SWEEPS} == {0.25}
    assert found["ladder.l2_panels.wide"] == pytest.approx(4)


def test_last_rung_at_the_roofline(study, everything):
    copied = study.ceiling("copy", "gbps") * 1e6
    table = experiments.last_rung(everything.assign(median_us=1e3, least_bytes=copied, useful_flops=0.0), study)
    assert table["experiment"].tolist() == list(room.sweeps("full"))
    assert np.allclose(table[["mean", "share"]], 1)


def test_preprocessing_is_even_after_what_it_costs(everything):
    df = everything.assign(median_us=100.0, prepare_ms=1.0, prepare_bytes=2.0**21)
    ahead = df["variant"].isin(["auto"])
    df.loc[ahead, ["median_us", "prepare_ms"]] = 50.0, 2.0  # 1000 µs more, 50 µs less each time
    df.loc[df["variant"] == "split_rows", "prepare_ms"] = 9.0  # and never faster
    table = experiments.preprocessing(df).set_index("variant")
    assert table["even"][["auto", "split_rows", "in_flight"]].tolist() == [20, np.inf, 0]
    assert (table["mib"] == 2).all()
