"""What counters count, in words."""

import re

import pytest

from artifact import paths
from artifact.verdicts import judge, load, measures, quantities


def test_every_counter_that_a_claim_is_about_has_its_words():
    keys = ("metric", "share_of")
    asked = {
        str(claim.rule.quantity.keywords[key])
        for claim in load.claims()
        for key in keys
        if claim.rule.quantity.func.__name__.startswith("counter") and key in claim.rule.quantity.keywords
    }
    assert asked and asked <= set(quantities.COUNTERS)


def test_units_are_those_of_the_counter():
    assert all((unit == "%") == ("pct" in metric) for metric, (unit, _) in quantities.COUNTERS.items())
    assert quantities.counted("l1tex__t_bytes.sum", 1e6) == (" MB", "through L1")
    assert quantities.counted("an__other.pct") == ("%", "an__other.pct")
    assert quantities.counted("an__other.sum", 32) == ("", "an__other.sum, in units of 32")


def test_no_cell_of_the_ledger_is_a_bare_number():
    df = judge.judge(load.claims(), paths.RECORDED / "nvidia-h200")
    measured = df[df["verdict"] != measures.NOT_MEASURED].set_index("id")["measured"]
    told = measured.str.contains(
        r"×|%|µs|TFLOP/s|GB/s|\(|error|target|bytes| at \d|launches|exponent|correlation|: |HMMA|steps fall"
    )
    assert not list(measured[~told].items())


@pytest.mark.parametrize("metric", sorted(quantities.COUNTERS))
def test_words_are_no_identifiers(metric):
    assert not re.search("_|[.]", quantities.counted(metric)[1])
