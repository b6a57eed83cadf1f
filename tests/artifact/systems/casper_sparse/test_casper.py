"""What casperSPARSE's chapter computes where records lack a part, and the measures that only its claims need."""

from dataclasses import replace

from artifact.book import study as studies
from artifact.systems.casper_sparse import facts


def test_what_was_not_measured_is_no_fact(tmp_path):
    study = studies.start("casper_sparse", mode="recorded")
    none = studies.Study(replace(study.run, folder=tmp_path))
    assert not none.counters and not list(facts.limits(none.counters or None))
    assert facts.at_most_dense(None) is None and facts.memories(none, None) is None
    assert facts.real(none) is None and facts.by_matrix(None) is None
    assert facts.again(none.run) is None and facts.spread(study, None) is None
    part = dict(facts.limits(study.counters.where(m=[1024, 4096])))
    assert part and not any("16384" in name for name in part)
