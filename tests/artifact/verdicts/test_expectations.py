"""Each expectation, with verdicts on both sides of each of its limits."""

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import SPEEDUP, evidence, frames, outcome, verdict

from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED

FAST, SLOW = {"at_least": 1.1, "partly": 1.0}, {"at_most": 0.97, "partly": 1.0}


@pytest.mark.parametrize(
    "speedup,reduce,expect,expected",
    [
        (1.2, "geometric mean", FAST, REPRODUCED),
        (1.1, "geometric mean", FAST, REPRODUCED),
        (1.05, "geometric mean", FAST, PARTLY),
        (0.9, "geometric mean", FAST, NOT_REPRODUCED),
        (0.9, "geometric mean", SLOW, REPRODUCED),
        (0.99, "geometric mean", SLOW, PARTLY),
        (1.1, "geometric mean", SLOW, NOT_REPRODUCED),
        # Of several values all must be, and some are in part.
        ({"wide": 0.5, "square": 1.2, "tall": 1.2}, "each", FAST, PARTLY),
        (1.2, "each", FAST, REPRODUCED),
        (0.9, "each", FAST, NOT_REPRODUCED),
    ],
)
def test_at_least_and_at_most(speedup, reduce, expect, expected):
    reduce = {"geometric_mean": "each experiment"} if reduce == "each" else reduce
    assert verdict(speedup, reduce, expect) == expected


@pytest.mark.parametrize(
    "speedup,expected",
    [
        (1.2, REPRODUCED),  # inside
        (0.84, REPRODUCED),  # within the factor
        (1.79, REPRODUCED),
        (0.8, PARTLY),
        (1.82, PARTLY),
        (0.5, PARTLY),
        (3.4, PARTLY),
        (0.2, NOT_REPRODUCED),
        (4.0, NOT_REPRODUCED),
        (lambda m, n, k, d: 1.2 if d > 0.005 else 4.0, NOT_REPRODUCED),  # a third is far off
        # One of seven sizes: 86% is less than nine in ten; of 21 points two are 90.5%.
        (lambda m, n, k, d: 1.2 if n > 512 else 2.0, PARTLY),
        (lambda m, n, k, d: 1.2 if n > 512 or d > 0.01 else 9.0, REPRODUCED),
    ],
)
def test_near(speedup, expected):
    expect = {"near": [1.0, 1.5], "factor": 1.2, "partly": 2.4}
    assert verdict(speedup, "each point", expect, ["wide"]) == expected


@pytest.mark.parametrize(
    "low,high,expected",
    [
        (0.55, 0.9, REPRODUCED),
        (0.60, 0.85, REPRODUCED),
        (0.45, 1.1, PARTLY),
        (0.55, 2.0, PARTLY),  # one end, and all but a tenth of the points
        (0.89, 0.9, PARTLY),  # in the range, and nowhere near its lower end
        (0.1, 3.0, NOT_REPRODUCED),
    ],
)
def test_a_range_has_two_ends(low, high, expected):
    """Of 21 points one is the lower end, one the upper one, the others lie at the lower end but within the range."""

    def speedup(m, n, k, d):
        return {512: low, 32768: high}.get(n, max(low, 0.55)) if d == 0.01 else max(low, 0.55)

    expect = {"spans": [0.55, 0.9], "factor": 1.1, "partly": 1.5}
    got = outcome(evidence(frames(speedup)), SPEEDUP, "each point", expect, ["wide"])
    assert got.verdict == expected, got.why
    assert "Asked: from 0.55× to 0.90×, each end" in got.why


@pytest.mark.parametrize(
    "speedup,reduce,expect,close",
    [
        (4.96, "geometric mean", {"at_least": 5.99, "partly": 5.04}, "4.96× is 1.6% below"),
        (5.1, "geometric mean", {"at_least": 5.99, "partly": 5.04}, "5.1× is 1.2% above"),
        (5.5, "geometric mean", {"at_least": 5.99, "partly": 5.04}, ""),
        (0.96, "geometric mean", {"at_most": 0.97, "partly": 1.0}, "0.96× is 1.0% below"),
        (1.0, {"share_of_points_at_least": 0.5}, {"at_least": 1.0, "partly": 0.5}, ""),  # all
        (1.26, "each point", {"near": [1.0, 1.0], "factor": 1.25, "partly": 2}, "0.8% above"),
        (1.0, "each point", {"near": [1.0, 1.0], "factor": 1.05, "partly": 1.25}, ""),
        (1.04, "each point", {"near": [1.0, 1.0], "factor": 1.05, "partly": 1.25}, "1.0% below"),
        (1.6, "each point", {"near": [1.0, 1.0], "factor": 1.25, "partly": 2}, ""),
    ],
)
def test_a_verdict_at_a_threshold_says_so(speedup, reduce, expect, close):
    got = outcome(evidence(frames(speedup)), SPEEDUP, reduce, expect, ["wide"])
    assert got.close.startswith("A close call: ") if close else got.close == ""
    assert close in got.close


@pytest.mark.parametrize(
    "reduce,speedup,expected",
    [
        # Half of the points at 3, half at 1/3 of it: the mean is 1, no point is.
        ("all", lambda m, n, k, d: 3.0 if n in (512, 2048, 8192) else 1 / 3, REPRODUCED),
        ("", lambda m, n, k, d: 3.0 if n in (512, 2048, 8192) else 1 / 3, NOT_REPRODUCED),
        ("all", 1.2, PARTLY),
        ("all", 0.5, NOT_REPRODUCED),
        ("each density", 1.0, REPRODUCED),
        ("each density", 0.8, PARTLY),
        # One density of three is off, by which the mean over all is not.
        ("each density", lambda m, n, k, d: 1.6 if d == 0.01 else 0.9, NOT_REPRODUCED),
        ("all", lambda m, n, k, d: 1.6 if d == 0.01 else 0.9, REPRODUCED),
    ],
)
def test_near_by_means(reduce, speedup, expected):
    made = frames(speedup)
    made["wide"] = made["wide"][made["wide"]["n"] < 32768]  # an even number of sizes
    e = evidence(made)
    reduce = {"geometric_mean": reduce} if reduce else "each point"
    expect = {"near": [1.0, 1.0], "factor": 1.1, "partly": 1.3}
    got = outcome(e, SPEEDUP | {"speedup": ["warp_per_row"]}, reduce, expect, ["wide"])
    assert got.verdict == expected
    assert ("geometric mean" in got.measured) == (reduce != "each point")


def test_near_is_of_every_contender():
    e, expect = (
        evidence(frames(1.0)),
        {"near": [0.95, 1.05], "factor": 1.1, "partly": 1.3},
    )
    names = {"near": ["warp_per_row", "column_tiles"], "far": ["warp_per_row", "rows_per_warp"]}
    got = {key: outcome(e, SPEEDUP | {"speedup": of}, "each point", expect) for key, of in names.items()}
    assert (got["near"].verdict, got["far"].verdict) == (REPRODUCED, PARTLY)
    assert got["far"].measured == "warp_per_row 1×, rows_per_warp 1.25× over cuSPARSE"


@pytest.mark.parametrize(
    "speedup,expected",
    [
        (0.7, REPRODUCED),
        (0.52, REPRODUCED),  # within the tolerance
        (0.94, REPRODUCED),
        (0.4, NOT_REPRODUCED),
        (1.1, NOT_REPRODUCED),
        (lambda m, n, k, d: 0.7 if d > 0.005 else 1.2, PARTLY),
        (lambda m, n, k, d: 0.4 if n > 2048 else 1.2, PARTLY),  # none inside, but their mean is
        # 18 of 21 points, 86%: more than 70%, less than nine in ten.
        (lambda m, n, k, d: 0.7 if n > 512 else 1.2, PARTLY),
        # 9 of 21 points, 43%, and a mean outside.
        (lambda m, n, k, d: 0.7 if n < 4096 else 2.0, NOT_REPRODUCED),
    ],
)
def test_within(speedup, expected):
    expect = {"within": [0.55, 0.9], "tolerance": 0.05}
    assert verdict(speedup, "each point", expect, ["wide"]) == expected


@pytest.mark.parametrize(
    "fill,expected",
    [
        (1.0, REPRODUCED),
        (0.985, REPRODUCED),
        (0.95, PARTLY),
        (0.91, PARTLY),
        (0.89, NOT_REPRODUCED),
    ],
)
def test_within_with_a_wider_tolerance_for_partly(fill, expected):
    """At 0.89 the mean is within ten times the tolerance, which is too far."""
    expect = {"within": [1.0, 1.0], "tolerance": 0.02, "partly": 0.1}
    e = evidence(frames(fill=fill))
    assert outcome(e, {"true_density": "warp_per_row"}, "mean", expect).verdict == expected


@pytest.mark.parametrize(
    "speedup,direction,expected",
    [
        (lambda m, n, k, d: 0.9 - 0.05 * np.log2(n / 512), "falls", REPRODUCED),
        (lambda m, n, k, d: 0.9 - 0.05 * np.log2(n / 512), "rises", NOT_REPRODUCED),
        (lambda m, n, k, d: 0.5 + 0.05 * np.log2(n / 512), "rises", REPRODUCED),
        (0.7, "falls", NOT_REPRODUCED),
        (lambda m, n, k, d: 0.7 - 0.002 * np.log2(n / 512), "falls", NOT_REPRODUCED),  # within 5%
        (lambda m, n, k, d: 0.9 - (d > 0.005) * 0.05 * np.log2(n / 512), "falls", PARTLY),
        # Up all the way but for the last size: the rank correlation has the other sign.
        (lambda m, n, k, d: 0.5 if n == 32768 else 0.7 + n / 1e6, "falls", NOT_REPRODUCED),
    ],
)
def test_rises_and_falls(speedup, direction, expected):
    expect = {direction: 0.05}
    assert verdict(speedup, {"trend": "n"}, expect, ["wide"]) == expected


@pytest.mark.parametrize(
    "speedups,expected",
    [
        ((0.9, 0.8, 0.7, 0.6), REPRODUCED),
        ((0.8, 0.9, 0.7, 0.6), PARTLY),  # up before it falls
        ((0.9, 0.8, 0.8, 0.6), PARTLY),  # even for a step
        ((0.6, 0.7, 0.8, 0.9), NOT_REPRODUCED),
    ],
)
def test_falls_at_each_step(speedups, expected):
    sizes = sorted(frames()["wide"]["n"].unique())
    at = dict(zip(sizes, np.interp(np.linspace(0, 3, len(sizes)), range(4), speedups), strict=True))
    e = evidence(frames({"wide": lambda m, n, k, d: at[n]}))

    def got(**more):
        return outcome(e, SPEEDUP, {"trend": "n"}, {"falls": 0.05, **more}, ["wide"]).verdict

    assert got(each_step=True) == expected
    assert got() == (REPRODUCED if expected == PARTLY else expected)


@pytest.mark.parametrize(
    "tall,expected",
    [
        (0.9, REPRODUCED),
        (0.75, PARTLY),  # more than in one of the two
        (0.5, NOT_REPRODUCED),
    ],
)
def test_larger_in(tall, expected):
    expect = {"larger_in": ["tall"], "than_in": ["wide", "square"], "by": 0.03}
    speedup = {"wide": 0.7, "square": 0.8, "tall": tall}
    assert verdict(speedup, "geometric mean", expect) == expected


@pytest.mark.parametrize(
    "wide,square,tall,expected",
    [
        (0.7, 0.7, 0.7, PARTLY),  # even with both
        (0.7, 0.8, 0.7, NOT_REPRODUCED),  # even with one and under the other is no part of it
        (0.7, 0.7, 0.72, PARTLY),
    ],
)
def test_larger_in_of_equals_is_partly(wide, square, tall, expected):
    expect = {"larger_in": "tall", "than_in": ["wide", "square"], "by": 0.03}
    speedup = {"wide": wide, "square": square, "tall": tall}
    assert verdict(speedup, "geometric mean", expect) == expected


def test_larger_in_several_is_of_all_their_points():
    expect = {"larger_in": ["wide", "square"], "than_in": "tall", "by": 0.03}
    e = evidence(frames({"wide": 0.9, "square": 0.5, "tall": 0.7}))
    got = outcome(e, SPEEDUP, "geometric mean", expect)
    assert got.measured == "wide and square 0.70×, against tall 0.70× over cuSPARSE"
    assert got.verdict == PARTLY


@pytest.mark.parametrize("wide,expected", [(50, REPRODUCED), (80, PARTLY), (95, NOT_REPRODUCED)])
def test_larger_in_by_medians_of_a_counter(wide, expected):
    table = synthetic.counters({"warp_per_row": {"c": 80}})
    table.loc[table["n"].gt(table["m"]) | table["n"].lt(table["k"]), "value"] = wide
    expect = {"larger_in": "square", "than_in": "wide", "by": 0.05}
    quantity = {"counter": "c", "of": "warp_per_row"}
    got = outcome(evidence(counters=table), quantity, "median", expect)
    assert got.verdict == expected and got.measured.startswith("square 80, against wide ")


MEMORY = {"memory_use": "warp_per_row", "metric": "dram", "beside": "l2"}


@pytest.mark.parametrize(
    "dram,l2,tflops,expected",
    [
        (80, 10, 10.0, REPRODUCED),
        (10, 80, 10.0, NOT_REPRODUCED),  # what the L2 serves is no DRAM
        (40, 30, 10.0, PARTLY),  # more than arithmetic, but waiting
        (40, 30, 50.0, NOT_REPRODUCED),
    ],
)
def test_memory_limits(dram, l2, tflops, expected):
    table = synthetic.counters({"warp_per_row": {"dram": dram, "l2": l2}})
    e = evidence(frames(tflops=tflops), table)
    got = outcome(e, MEMORY, "each point", {"memory_limits_from": 0.6, "at_points": 0.9})
    assert got.verdict == expected and got.measured.startswith(f"DRAM {dram}%")
    assert "Memory: DRAM, dram." in got.why and f"Not counted: l2 {l2}% (median)" in got.why


def test_memory_limits_at_a_share_of_the_points():
    table = synthetic.counters({"warp_per_row": {"dram": 80}})
    table.loc[table["density"] == 0.05, "value"] = 5
    e = evidence(frames(tflops=10.0), table)
    expect = {"memory_limits_from": 0.6, "at_points": 0.6}
    assert outcome(e, MEMORY, "each point", expect).verdict == REPRODUCED
    assert outcome(e, MEMORY, "each point", expect | {"at_points": 0.7}).verdict == NOT_REPRODUCED


def test_several_contenders_must_agree():
    table = synthetic.counters({"warp_per_row": {"c": 93}, "any_n": {"c": 93}, "l2_panels": {"c": 2}})
    e = evidence(counters=table)
    expect = {"at_least": 90, "partly": 60}

    def got(*of):
        return outcome(e, {"counter": "c", "of": list(of)}, "median", expect).verdict

    assert got("warp_per_row", "any_n") == REPRODUCED
    assert got("warp_per_row", "l2_panels") == PARTLY
    assert got("l2_panels") == NOT_REPRODUCED


def test_lines_are_judged_one_by_one():
    from artifact.verdicts.measures import Reduced, near, within
    from artifact.verdicts.quantities import Values

    lines = pd.Series([2.0, 8.0])
    r = Reduced(Values({"a": lines}, "Size"), lines, "", "", lines=True)
    assert near(r, [2, 2], 1.0, 2.0).verdict == PARTLY  # else nine in ten are asked for
    assert near(r, [2, 8], 1.0, 2.0).verdict == REPRODUCED
    assert within(r, [2, 2], 0.1).verdict == PARTLY  # half of the fits
    assert within(r, [3, 5], 0.1).verdict == NOT_REPRODUCED  # no mean of exponents


def test_what_was_asked_has_the_unit_of_what_is_shown():
    """1 to 10 per cent, not 0.01 to 0.10 of them."""
    from artifact.verdicts.measures import Reduced, near
    from artifact.verdicts.quantities import Values

    shares = pd.Series([0.03, 0.06])
    r = Reduced(Values({"a": shares}, "Share", scale=100, unit=" %"), shares, "", "")
    assert near(r, [0.01, 0.10], 1.05, 2.0).asked.startswith("Asked: 1–10 %, within a factor")
