"""What casperSPARSE's chapter computes where records lack a part, and the measures that only its claims need."""

from dataclasses import replace

import numpy as np
import pytest

from artifact.book import study as studies
from artifact.measure import records
from artifact.systems.casper_sparse import facts


@pytest.fixture(scope="module")
def study():
    return studies.start("casper_sparse", mode="recorded")


@pytest.fixture(scope="module")
def everything(study):
    return records.best_of(facts.sweeps(study.run))


def test_what_was_not_measured_is_no_fact(study, everything, tmp_path):
    none = studies.Study(replace(study.run, folder=tmp_path))
    assert not none.counters and not list(facts.limits(none.counters or None))
    assert facts.at_most_dense(None) is None and facts.memories(none, None) is None
    assert facts.real(none) is None and facts.by_matrix(None) is None
    assert facts.again(none.run) is None and facts.spread(everything, None) is None
    part = dict(facts.limits(study.counters.where(m=[1024, 4096])))
    assert part and not any("16384" in name for name in part)


def test_preprocessing_is_even_after_what_it_costs(everything):
    df = everything.assign(median_us=100.0, prepare_ms=1.0, prepare_bytes=2.0**21)
    ahead = df["variant"].isin(["auto"])
    df.loc[ahead, ["median_us", "prepare_ms"]] = 50.0, 2.0  # 1000 µs more, 50 µs less each time
    df.loc[df["variant"] == "split_rows", "prepare_ms"] = 9.0  # and never faster
    table = facts.preprocessing(df).set_index("variant")
    assert table["even"][["auto", "split_rows", "in_flight"]].tolist() == [20, np.inf, 0]
    assert (table["mib"] == 2).all()
