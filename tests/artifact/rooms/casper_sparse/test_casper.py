"""What casperSPARSE's chapter computes where records lack a part, and the measures that only its claims need."""

from dataclasses import replace

import numpy as np
import pytest
import synthetic
from judging import SPEEDUP, evidence, frames, outcome

from artifact.book import study as studies
from artifact.measure import records
from artifact.rooms.casper_sparse import experiments, facts
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED


@pytest.fixture(scope="module")
def study():
    return studies.start("casper_sparse", mode="recorded")


@pytest.fixture(scope="module")
def everything(study):
    return records.best_of(experiments.sweeps(study.run))


def test_what_was_not_measured_is_no_fact(study, everything, tmp_path):
    none = studies.Study(replace(study.run, folder=tmp_path))
    assert not none.counters and not list(facts.limits(none.counters))
    assert experiments.at_most_dense(none.counters) is None and experiments.memories(none) is None
    assert experiments.speedups(experiments.real(none)) is None and experiments.by_matrix(None) is None
    assert experiments.again(none.run) is None and experiments.spread(everything, None) is None
    part = dict(facts.limits(study.counters.where(m=[1024, 4096])))
    assert part and not any("16384" in name for name in part)


def test_preprocessing_is_even_after_what_it_costs(everything):
    df = everything.assign(median_us=100.0, prepare_ms=1.0, prepare_bytes=2.0**21)
    ahead = df["variant"].isin(["auto"])
    df.loc[ahead, ["median_us", "prepare_ms"]] = 50.0, 2.0  # 1000 µs more, 50 µs less each time
    df.loc[df["variant"] == "split_rows", "prepare_ms"] = 9.0  # and never faster
    table = experiments.preprocessing(df).set_index("variant")
    assert table["even"][["auto", "split_rows", "in_flight"]].tolist() == [20, np.inf, 0]
    assert (table["mib"] == 2).all()


@pytest.mark.parametrize(
    "ours,theirs,expected",
    [
        (93, 92, REPRODUCED),
        (70, 65, PARTLY),
        (93, 20, PARTLY),  # only one of the two
        (30, 20, NOT_REPRODUCED),
    ],
)
def test_dram_use_from_counters(ours, theirs, expected):
    table = synthetic.counters({"warp_per_row": {"dram": ours}, "cusparse_alg2": {"dram": theirs}})
    quantity = {"dram_use": ["warp_per_row", "cusparse_best"], "metric": "dram"}
    expect = {"at_least": 0.9, "partly": 0.6}
    got = outcome(evidence(counters=table), quantity, "median", expect)
    assert got.verdict == expected
    dram = "% of the DRAM's bandwidth"
    assert got.measured == f"warp_per_row {ours}{dram}, cusparse_best {theirs}{dram}"


@pytest.mark.parametrize("launches,expected", [(3, REPRODUCED), (50, PARTLY), (500, NOT_REPRODUCED)])
def test_preparation_is_counted_in_launches(launches, expected):
    """By the median: a third of the points takes a thousand times as long, which is no matter."""
    made = frames()
    for df in made.values():
        more = np.where(df["density"] == 0.05, 1000, 1)
        df["prepare_ms"] = launches * more * df["median_us"] / 1e3
    expect = {"at_most": 10, "partly": 100}
    got = outcome(evidence(made), {"preparation": "cusparse_best"}, "median", expect)
    assert got.verdict == expected and got.measured.startswith(f"median {launches} launches")


@pytest.mark.parametrize(
    "speedup,expected",
    [
        ({"wide": 0.7, "square": 0.8, "tall": 1.1}, REPRODUCED),
        (0.9, NOT_REPRODUCED),
        (1.0, NOT_REPRODUCED),
        (lambda m, n, k, d: 1.1 if n == 512 else 0.5, PARTLY),
    ],
)
def test_some_scenario(speedup, expected):
    reduce, expect = {"geometric_mean": "each density"}, {"somewhere_above": 1.0}
    got = outcome(evidence(frames(speedup)), SPEEDUP, reduce, expect)
    assert got.verdict == expected and got.measured.startswith("best scenario")
    if expected == REPRODUCED:
        assert "1.10× over cuSPARSE (tall, density" in got.measured and "in 3 of 9 scenarios" in got.why
