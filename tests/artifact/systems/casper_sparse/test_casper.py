"""What casperSPARSE's chapter computes where records lack a part, and the measures that only its claims need."""

from dataclasses import replace

from artifact.book import study as studies
from artifact.systems.casper_sparse import facts


def test_what_was_not_measured_is_no_fact(tmp_path):
    study = studies.start("casper_sparse", mode="recorded")
    none = studies.Study(replace(study.run, folder=tmp_path))
    assert not none.counters and not list(facts.limits(none.counters or None))
    made = [facts.at_most_dense(None), facts.memories(none, None), facts.real(none), facts.by_matrix(None)]
    assert all(x is None for x in (*made, facts.again(none.run), facts.spread(study, None)))
    part = dict(facts.limits(study.counters.where(m=[1024, 4096])))
    assert part and not any("16384" in name for name in part)
