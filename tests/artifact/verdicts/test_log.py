"""The log of rules: whole, in step with the claims, and able to judge again what it holds."""

import pandas as pd
import pytest

from artifact.verdicts import load, measures, rules

KNOWN = load.claims()
LOG = rules.log()


def test_a_rule_has_its_line():
    """Whoever changes one runs `python -m artifact.verdicts.rules`, which writes the line and both verdicts."""
    assert [claim.id for claim in rules.missing(KNOWN, LOG)] == []


def test_the_log_holds_its_own_digests_and_verdicts():
    assert list(LOG.columns) == list(rules.COLUMNS)
    assert (LOG["rule"].map(rules.digest) == LOG["sha256"]).all()
    assert set(LOG["verdict"]) <= {*measures.VERDICTS, rules.NOT_COMPARABLE}
    assert (LOG["before"] == LOG.groupby("claim")["verdict"].shift(fill_value="")).all()


def test_a_rule_is_read_from_the_log_as_it_was_written():
    for claim in KNOWN:
        told = rules.text(claim)
        again = rules.again(claim, told, claim.id)
        assert rules.text(again) == told and again.rule.expect.func is claim.rule.expect.func


def test_a_changed_rule_is_missed():
    (claim, *_) = KNOWN
    assert rules.missing([claim], LOG.assign(sha256=LOG["sha256"].where(LOG["claim"] != claim.id, "0" * 12))) == [claim]


@pytest.mark.parametrize(
    "before,after,way",
    [
        (measures.NOT_REPRODUCED, measures.PARTLY, "up"),
        (measures.PARTLY, measures.EXCEEDED, "up"),
        (measures.REPRODUCED, measures.NOT_CARRIED, "down"),
        (measures.NOT_REPRODUCED, measures.NOT_CARRIED, "same"),
        (rules.NOT_COMPARABLE, measures.PARTLY, "neither"),
        (measures.PARTLY, measures.UNDECIDED, "neither"),
    ],
)
def test_in_which_way_a_change_moves_a_verdict(before, after, way):
    lines = [("a", "", before, "one"), ("b", "", measures.PARTLY, "other"), ("a", before, after, "two")]
    (change,) = rules.changes(pd.DataFrame(lines, columns=["claim", "before", "verdict", "rule"])).itertuples()
    assert (change.claim, change.old, change.way) == ("a", "one", way)
