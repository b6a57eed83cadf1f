"""Verdicts on a page: which of two claims that contradict each other stands."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
import synthetic

from artifact.verdicts import judge, load, measures, page

REPRODUCED, PARTLY, NOT_REPRODUCED, NOT_CARRIED, NOT_MEASURED = measures.VERDICTS


@pytest.mark.parametrize(
    ("a", "b", "stands"),
    [
        (REPRODUCED, NOT_REPRODUCED, "a"),
        (NOT_REPRODUCED, REPRODUCED, "b"),
        (PARTLY, NOT_REPRODUCED, "a"),
        (PARTLY, REPRODUCED, "b"),
        (REPRODUCED, REPRODUCED, "both"),
        (PARTLY, PARTLY, "neither"),
        (NOT_REPRODUCED, NOT_REPRODUCED, "neither"),
        (NOT_REPRODUCED, NOT_CARRIED, "neither"),
        (NOT_CARRIED, PARTLY, "b"),
        (NOT_MEASURED, REPRODUCED, "undecided"),
        (NOT_REPRODUCED, NOT_MEASURED, "undecided"),
    ],
)
def test_which_of_two_claims_stands(a, b, stands):
    any_claim = load.claims()[0]
    known = [
        replace(any_claim, id="a", contradicts=()),
        replace(any_claim, id="b", contradicts=("a",)),
    ]
    judged = pd.DataFrame({"id": ["a", "b"], "verdict": [a, b]})
    df = page.contradictions(judged, known)
    assert df.to_dict("records") == [{"one": "a", "other": "b", "stands": stands}]


def test_a_contradiction_that_both_claims_state_is_one():
    any_claim = load.claims()[0]
    known = [replace(any_claim, id=i, contradicts=(o,)) for i, o in (("a", "b"), ("b", "a"))]
    judged = pd.DataFrame({"id": ["a", "b"], "verdict": [PARTLY, REPRODUCED]})
    assert len(page.contradictions(judged, known)) == 1
    alone = [replace(any_claim, id="a", contradicts=())]
    none = page.contradictions(judged, alone)
    assert none.empty and list(none.columns) == ["one", "other", "stands"]


def test_the_contradictions_of_the_ledger(tmp_path):
    known = load.claims()
    df = page.contradictions(judge.judge(known, synthetic.folder(tmp_path)), known)
    stated = {frozenset((c.id, o)) for c in known for o in c.contradicts}
    assert stated and {frozenset(pair) for pair in df[["one", "other"]].to_numpy()} == stated
    # In the synthetic records the published kernel is slower everywhere.
    by_pair = df.set_index(["one", "other"])["stands"]
    assert by_pair["abstract-speedup", "summary-cusparse-faster"] == "summary-cusparse-faster"
