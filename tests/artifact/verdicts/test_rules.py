"""Quantities, reducers and expectations: verdicts on both sides of each limit, and numbers that are known."""

import re

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import ALL, SPEEDUP, evidence, frames, outcome
from refused import refused

from artifact.verdicts import evidence as quantities, measures
from artifact.verdicts.evidence import INDEX, NotMeasured, Values
from artifact.verdicts.measures import (
    EXCEEDED,
    NOT_CARRIED,
    NOT_MEASURED,
    NOT_REPRODUCED,
    PARTLY,
    REPRODUCED,
    UNDECIDED,
)

FAST, SLOW = {"at_least": 1.1, "partly": 1.0}, {"at_most": 0.97, "partly": 1.0}
NEAR = {"near": [1.0, 1.5], "factor": 1.2, "partly": 2.4}
SPANS = {"spans": [0.55, 0.9], "factor": 1.1, "partly": 1.5}
WITHIN = {"within": [0.55, 0.9], "tolerance": 0.05}
MEANS = {"near": [1.0, 1.0], "factor": 1.1, "partly": 1.3}
LARGER = {"larger_in": ["tall"], "than_in": ["wide", "square"], "by": 0.03}
SOME = {"at_least": 1.0, "partly": 0.5}
EACH, DENSITIES = {"geometric_mean": "each experiment"}, {"geometric_mean": "each density"}
MEAN, POINTS, WIDE, TREND = "geometric mean", "each point", ["wide"], {"trend": "n"}
STEPS = {"falls": 0.05, "each_step": True}
MORE, LESS = {"better": "more"}, {"better": "less"}


def ends(low, high):
    """Of 21 points one is the lower end, one the upper one, the others lie at the lower end but within the range."""
    return lambda m, n, k, d: {512: low, 32768: high}.get(n, max(low, 0.55)) if d == 0.01 else max(low, 0.55)


def course(*speedups):
    """Speedups along the sizes of the wide sweep, 512 to 32768."""
    return lambda m, n, k, d: float(np.interp(np.log2(n / 512), np.linspace(0, 6, len(speedups)), speedups))


@pytest.mark.parametrize(
    "speedup,reduce,expect,where,expected",
    [
        (1.2, MEAN, FAST, ALL, REPRODUCED),
        (1.1, MEAN, FAST, ALL, REPRODUCED),
        (1.05, MEAN, FAST, ALL, PARTLY),
        (0.9, MEAN, FAST, ALL, NOT_REPRODUCED),
        (0.9, MEAN, SLOW, ALL, REPRODUCED),
        (0.99, MEAN, SLOW, ALL, PARTLY),
        (1.1, MEAN, SLOW, ALL, NOT_REPRODUCED),
        # Of several values all must be, and some are in part.
        ({"wide": 0.5, "square": 1.2, "tall": 1.2}, EACH, FAST, ALL, PARTLY),
        (1.2, EACH, FAST, ALL, REPRODUCED),
        (0.9, EACH, FAST, ALL, NOT_REPRODUCED),
        (1.2, POINTS, NEAR, WIDE, REPRODUCED),
        (0.84, POINTS, NEAR, WIDE, REPRODUCED),  # within the factor
        (1.79, POINTS, NEAR, WIDE, REPRODUCED),
        (0.8, POINTS, NEAR, WIDE, PARTLY),
        (1.82, POINTS, NEAR, WIDE, PARTLY),
        (0.2, POINTS, NEAR, WIDE, NOT_REPRODUCED),
        (4.0, POINTS, NEAR, WIDE, NOT_REPRODUCED),
        # One of seven sizes: 86% is less than nine in ten; of 21 points two are 90.5%.
        (lambda m, n, k, d: 1.2 if n > 512 else 2.0, POINTS, NEAR, WIDE, PARTLY),
        (lambda m, n, k, d: 1.2 if n > 512 or d > 0.01 else 9.0, POINTS, NEAR, WIDE, REPRODUCED),
        # One density of three is off, by which the mean over all is not.
        (lambda m, n, k, d: 1.6 if d == 0.01 else 0.9, DENSITIES, MEANS, WIDE, NOT_REPRODUCED),
        (lambda m, n, k, d: 1.6 if d == 0.01 else 0.9, MEAN, MEANS, WIDE, REPRODUCED),
        (0.8, DENSITIES, MEANS, WIDE, PARTLY),
        (ends(0.55, 0.9), POINTS, SPANS, WIDE, REPRODUCED),
        (ends(0.60, 0.85), POINTS, SPANS, WIDE, REPRODUCED),
        (ends(0.45, 1.1), POINTS, SPANS, WIDE, PARTLY),
        (ends(0.55, 2.0), POINTS, SPANS, WIDE, PARTLY),  # one end, and all but a tenth of the points
        (ends(0.89, 0.9), POINTS, SPANS, WIDE, PARTLY),  # in the range, and nowhere near its lower end
        (ends(0.1, 3.0), POINTS, SPANS, WIDE, NOT_REPRODUCED),
        (0.52, POINTS, WITHIN, WIDE, REPRODUCED),  # within the tolerance
        (0.94, POINTS, WITHIN, WIDE, REPRODUCED),
        (0.4, POINTS, WITHIN, WIDE, NOT_REPRODUCED),
        (1.1, POINTS, WITHIN, WIDE, NOT_REPRODUCED),
        (lambda m, n, k, d: 0.4 if n > 2048 else 1.2, POINTS, WITHIN, WIDE, PARTLY),  # none inside, but their mean is
        # 18 of 21 points, 86%, are less than nine in ten; 9 of them, and a mean outside, are less than half.
        (lambda m, n, k, d: 0.7 if n > 512 else 1.2, POINTS, WITHIN, WIDE, PARTLY),
        (lambda m, n, k, d: 0.7 if n < 4096 else 2.0, POINTS, WITHIN, WIDE, NOT_REPRODUCED),
        (
            lambda m, n, k, d: 0.7 if d > 0.005 else 3.0,
            POINTS,
            WITHIN,
            WIDE,
            PARTLY,
        ),  # two in three
        (course(0.9, 0.6), TREND, {"falls": 0.05}, WIDE, REPRODUCED),
        (course(0.9, 0.6), TREND, {"rises": 0.05}, WIDE, NOT_REPRODUCED),
        (course(0.5, 0.8), TREND, {"rises": 0.05}, WIDE, REPRODUCED),
        (course(1.0, 2.0, 1.3), TREND, {"rises": 0.25}, WIDE, REPRODUCED),  # of the first value, not of the next
        (0.7, TREND, {"falls": 0.05}, WIDE, NOT_REPRODUCED),
        (course(0.7, 0.688), TREND, {"falls": 0.05}, WIDE, NOT_REPRODUCED),  # within 5%
        (lambda m, n, k, d: course(0.9, 0.6)(m, n, k, d) if d > 0.005 else 0.9, TREND, {"falls": 0.05}, WIDE, PARTLY),
        # Up all the way but for the last size: the rank correlation has the other sign.
        (lambda m, n, k, d: 0.5 if n == 32768 else 0.7 + n / 1e6, TREND, {"falls": 0.05}, WIDE, NOT_REPRODUCED),
        (course(0.9, 0.8, 0.7, 0.6), TREND, STEPS, WIDE, REPRODUCED),
        (course(0.8, 0.9, 0.7, 0.6), TREND, STEPS, WIDE, PARTLY),  # up before it falls
        (course(0.8, 0.9, 0.7, 0.6), TREND, {"falls": 0.05}, WIDE, REPRODUCED),
        (course(0.9, 0.8, 0.8, 0.6), TREND, STEPS, WIDE, PARTLY),  # even for a step
        ({"wide": 0.7, "square": 0.8, "tall": 0.9}, MEAN, LARGER, ALL, REPRODUCED),
        ({"wide": 0.7, "square": 0.8, "tall": 0.75}, MEAN, LARGER, ALL, PARTLY),  # more than in one of the two
        ({"wide": 0.7, "square": 0.8, "tall": 0.5}, MEAN, LARGER, ALL, NOT_REPRODUCED),
        (0.7, MEAN, LARGER, ALL, PARTLY),  # even with both
        ({"wide": 0.7, "square": 0.8, "tall": 0.7}, MEAN, LARGER, ALL, NOT_REPRODUCED),  # with one, and under the other
        ({"wide": 0.7, "square": 0.7, "tall": 0.72}, MEAN, LARGER, ALL, PARTLY),
        (1.2, {"share_of_points_above": 1.0}, SOME, ALL, REPRODUCED),
        (0.8, {"share_of_points_above": 1.0}, SOME, ALL, NOT_REPRODUCED),
        (0.8, {"share_of_points_below": 1.0}, SOME, ALL, REPRODUCED),
        (lambda m, n, k, d: 1.2 if d > 0.005 else 0.8, {"share_of_points_above": 1.0}, SOME, ALL, PARTLY),
        (1.0, {"share_of_points_above": 1.0}, SOME, ALL, NOT_REPRODUCED),  # a tie is nobody's win
        (1.0, {"share_of_points_below": 1.0}, SOME, ALL, NOT_REPRODUCED),
        # More is better: what lies beyond the range there keeps nothing from being reproduced.
        (4.0, POINTS, NEAR | MORE, WIDE, EXCEEDED),
        (1.82, POINTS, NEAR | MORE, WIDE, EXCEEDED),
        (1.79, POINTS, NEAR | MORE, WIDE, REPRODUCED),
        (0.8, POINTS, NEAR | MORE, WIDE, PARTLY),
        (0.2, POINTS, NEAR | MORE, WIDE, NOT_REPRODUCED),
        (4.0, POINTS, NEAR | LESS, WIDE, NOT_REPRODUCED),
        (0.2, POINTS, NEAR | LESS, WIDE, EXCEEDED),
        (lambda m, n, k, d: 9.0 if n > 512 or d > 0.01 else 0.1, POINTS, NEAR | MORE, WIDE, EXCEEDED),  # nine in ten
        (lambda m, n, k, d: 9.0 if n > 512 else 0.1, POINTS, NEAR | MORE, WIDE, NOT_REPRODUCED),
        (ends(0.89, 2.0), POINTS, SPANS | MORE, WIDE, EXCEEDED),
        (ends(0.1, 3.0), POINTS, SPANS | MORE, WIDE, PARTLY),  # one end is missed, the other exceeded
        (ends(0.1, 3.0), POINTS, SPANS | LESS, WIDE, PARTLY),
        (1.1, POINTS, WITHIN | MORE, WIDE, EXCEEDED),
        (0.4, POINTS, WITHIN | MORE, WIDE, NOT_REPRODUCED),
        (0.4, POINTS, WITHIN | LESS, WIDE, EXCEEDED),
        ({"wide": 1.6, "square": 1.0, "tall": 1.0}, EACH, MEANS | MORE, ALL, EXCEEDED),
    ],
)
def test_a_verdict_on_both_sides_of_each_limit(speedup, reduce, expect, where, expected):
    got = outcome(evidence(frames(speedup)), SPEEDUP, reduce, expect, where)
    assert got.verdict == expected
    assert got.low * (1 - 1e-9) <= got.value <= got.high * (1 + 1e-9) and got.points == {"wide": 21}.get(
        "".join(where), 54
    )


@pytest.mark.parametrize("expect", ["rises", "falls"])
@pytest.mark.parametrize("change", [0.9, 0.96, 1.04, 1.1])
def test_a_course_is_as_claimed_where_its_last_over_its_first_is_beyond_the_threshold(expect, change):
    got = outcome(evidence(frames(course(0.5, 0.5 * change))), SPEEDUP, TREND, {expect: 0.05}, WIDE)
    beyond = got.value > got.threshold[0] if expect == "rises" else got.value < got.threshold[1]
    assert got.value == pytest.approx(change) and (got.verdict == REPRODUCED) == beyond


@pytest.mark.parametrize(
    "made,counted,quantity,reduce,expect,expected",
    [
        ({"fill": 0.985}, {}, {"true_density": "any_n"}, "mean", {"within": [1, 1], "tolerance": 0.02}, REPRODUCED),
        *(
            (
                {"fill": fill},
                {},
                {"true_density": "any_n"},
                "mean",
                {"within": [1, 1], "tolerance": 0.02, "partly": 0.1},
                verdict,
            )
            for fill, verdict in ((1.0, REPRODUCED), (0.95, PARTLY), (0.91, PARTLY), (0.89, NOT_REPRODUCED))
        ),
        *(
            (
                {"tflops": tflops},
                {"warp_per_row": {"dram": dram, "l2": l2}},
                {"memory_use": "warp_per_row", "metric": "dram", "beside": "l2"},
                POINTS,
                {"memory_limits_from": 0.6, "at_points": 0.9},
                verdict,
            )
            for dram, l2, tflops, verdict in (
                (80, 10, 10.0, REPRODUCED),
                (10, 80, 10.0, NOT_REPRODUCED),  # what the L2 serves is no DRAM
                (40, 30, 10.0, PARTLY),  # more than arithmetic, but waiting
                (40, 30, 50.0, NOT_REPRODUCED),
            )
        ),
        *(
            (
                {},
                {"warp_per_row": {"c": 93}, "any_n": {"c": 93}, "l2_panels": {"c": 2}},
                {"counter": "c", "of": of},
                "median",
                {"at_least": 90, "partly": 60},
                verdict,
            )
            for of, verdict in (
                (["warp_per_row", "any_n"], REPRODUCED),
                (["warp_per_row", "l2_panels"], PARTLY),  # several must agree
                (["l2_panels"], NOT_REPRODUCED),
            )
        ),
        *(
            (
                {"speedup": speedup},
                {},
                SPEEDUP | {"over": ["any_n", "rows_per_warp", "cusparse_best"]},
                {"share_of_points_at_least": 1.0, "tolerance": tolerance},
                SOME,
                verdict,
            )
            for speedup, tolerance, verdict in (
                (1.3, 0.0, REPRODUCED),  # rows_per_warp is the fastest other, by 1.25
                (1.2, 0.0, NOT_REPRODUCED),
                (1.2, 0.05, REPRODUCED),
                (lambda m, n, k, d: 1.3 if d > 0.005 else 1.0, 0.0, PARTLY),
            )
        ),
        *(
            (
                {"tflops": tflops},
                {},
                {"share_of_ceiling": "fma", "of": "any_n", "rate": "tflops"},
                reduce,
                {limit: 0.5, "partly": partly},
                verdict,
            )
            for tflops, reduce, limit, partly, verdict in (
                (20.0, "largest", "at_most", 0.75, REPRODUCED),
                (40.0, "largest", "at_most", 0.75, PARTLY),
                (55.0, "largest", "at_most", 0.75, NOT_REPRODUCED),
                (40.0, "smallest", "at_least", 0.3, REPRODUCED),
                (20.0, "smallest", "at_least", 0.3, PARTLY),
            )
        ),
    ],
)
def test_a_verdict_by_other_quantities(made, counted, quantity, reduce, expect, expected):
    assert outcome(evidence(frames(**made), synthetic.counters(counted)), quantity, reduce, expect).verdict == expected


@pytest.mark.parametrize(
    "speedup,of,expected",
    [
        (0.7, ["warp_per_row", "cusparse_best"], REPRODUCED),
        # The kernel's time grows with m², cuSPARSE's does not.
        (lambda m, n, k, d: 2**15 / m, ["warp_per_row", "cusparse_best"], PARTLY),
        (lambda m, n, k, d: 2**15 / m, ["warp_per_row"], NOT_REPRODUCED),
        (lambda m, *_: 2.0 if m in (2**16, 2**19) else 0.5, ["warp_per_row"], NOT_REPRODUCED),
    ],
)
def test_time_as_a_power_of_a_size(speedup, of, expected):
    reduce, expect = {"power_law": "m", "scatter": 1.25}, {"within": [1, 1], "tolerance": 0.1}
    assert outcome(evidence(frames(speedup)), {"time": of}, reduce, expect, ["tall"]).verdict == expected


def test_larger_in_several_is_of_all_their_points():
    """The geometric mean of 0.9 at 21 points and 0.5 at 15 is even with 0.7."""
    e = evidence(frames({"wide": 0.9, "square": 0.5, "tall": 0.7}))
    assert outcome(e, SPEEDUP, MEAN, {"larger_in": ["wide", "square"], "than_in": "tall", "by": 0.03}).verdict == PARTLY


@pytest.mark.parametrize("at_points,expected", [(0.6, REPRODUCED), (0.7, NOT_REPRODUCED)])
def test_memory_limits_at_a_share_of_the_points(at_points, expected):
    table = synthetic.counters({"warp_per_row": {"dram": 80}})
    table.loc[table["density"] == 0.05, "value"] = 5
    expect = {"memory_limits_from": 0.6, "at_points": at_points}
    assert (
        outcome(
            evidence(frames(tflops=10.0), table), {"memory_use": "warp_per_row", "metric": "dram"}, POINTS, expect
        ).verdict
        == expected
    )


@pytest.mark.parametrize(
    "expect,expected",
    [
        (lambda r: measures.near(r, [2, 2], 1.0, 2.0), PARTLY),  # else nine in ten are asked for
        (lambda r: measures.near(r, [2, 8], 1.0, 2.0), REPRODUCED),
        (lambda r: measures.within(r, [2, 2], 0.1), PARTLY),  # half of the fits
        (lambda r: measures.within(r, [3, 5], 0.1), NOT_REPRODUCED),  # no mean of exponents
    ],
)
def test_lines_are_judged_one_by_one(expect, expected):
    lines = pd.Series([2.0, 8.0])
    assert expect(measures.Reduced(Values({"a": lines}), lines, lines=True)).verdict == expected


@pytest.mark.parametrize(
    "expect,threshold",
    [
        (FAST, (1.1, None)),
        (SLOW, (None, 0.97)),
        (NEAR, (1 / 1.2, 1.8)),
        (WITHIN, (0.5, 0.95)),
        (SPANS, (0.5, 0.99)),
    ],
)
def test_the_threshold_is_where_the_verdict_changes(expect, threshold):
    assert outcome(evidence(frames(1.0)), SPEEDUP, POINTS, expect).threshold == pytest.approx(threshold)
    for end, sign in zip(threshold, (1, -1), strict=True):
        for away in (0.001, -0.001) if end else ():
            assert (outcome(evidence(frames(end + sign * away)), SPEEDUP, MEAN, expect).verdict == REPRODUCED) == (
                away > 0
            ) or expect is SPANS


# ---------------------------------------------------------------- quantities in numbers


def test_the_fastest_of_several_is_asked_where_all_of_them_were_measured():
    """A point that one of them lacks does not count, for it or against it."""
    made = frames(1.3)
    made["wide"] = made["wide"].query("not (variant == 'rows_per_warp' and n == 512)")
    made["wide"].loc[made["wide"].eval("variant == 'warp_per_row' and n == 512"), "median_us"] *= 1e6
    values = quantities.speedup(evidence(made), ALL, "warp_per_row", ["any_n", "rows_per_warp"])
    assert len(values.all) == 54 - 3 and (values.all > 1).all()


COUNTED = {
    "warp_per_row": {"c": 3e6, "d": 20e6, "all": 100e6},
    "any_n": {"c": 1e6, "zero": 0},
    "cusparse_alg1": {"c": 1},
    "cusparse_alg2": {"c": 2},
}


@pytest.mark.parametrize(
    "ask,value",
    [
        ({"speedup": "warp_per_row", "over": "cusparse_best"}, 0.5),
        ({"speedup": ["any_n"], "over": "column_tiles"}, 1.05 / 1.3),
        ({"tflops": "cusparse_alg2"}, 2),
        ({"tflops": "cusparse_alg2", "flops": "dense"}, 200),
        ({"share_of_ceiling": "copy", "of": "any_n", "rate": "gbps"}, 0.25),
        ({"share_of_ceiling": 8, "of": "any_n", "rate": "tflops"}, 0.25),
        ({"prepared_bytes": ["warp_per_row"]}, 4),
        ({"counter": "c", "of": "any_n", "per": 1e6}, 1),
        ({"counter": "c", "of": ["warp_per_row"], "over": "any_n"}, 3),
        ({"counter": "c", "of": "any_n", "than": "warp_per_row"}, 2e6),
        ({"counter": "c", "of": "cusparse_best"}, 2),  # that of the one that was fastest
        ({"counter_share": "c", "share_of": "all", "of": "warp_per_row"}, 0.03),
        ({"counter_share": "c", "share_of": "all", "of": "warp_per_row", "plus": ["d"]}, 0.23),
        ({"counter_share": "c", "share_of": "all", "of": "warp_per_row", "stated": 0.1}, 0.3),
    ],
)
def test_a_quantity_in_numbers(ask, value):
    made = {name: df.assign(prepare_bytes=4.0 * df["nnz"]) for name, df in frames(0.5, tflops=2.0, gbps=1e3).items()}
    found = measures.part("quantity", ask, "casper_sparse", "the test")(
        evidence(made, synthetic.counters(COUNTED)).only({"density": 0.01}), ALL
    )
    assert np.allclose(found.all, value) and len(found.all) == 18


@pytest.mark.parametrize("than,points", [(0.001, 21), (0.005, 14), (0.01, 7)])
@pytest.mark.parametrize("ask", [{"tflops": "any_n"}, SPEEDUP, SPEEDUP | {"over": ["any_n", "l2_panels"]}])
def test_only_the_matrices_that_are_denser(ask, than, points):
    ask = measures.part("quantity", ask | {"than": than}, "casper_sparse", "the test")
    assert len(ask(evidence(), WIDE).all) == points
    refused("above density 5 %", ask, evidence(), WIDE, than=0.05, kind=NotMeasured)


@pytest.mark.parametrize(
    "verdicts,expected",
    [
        ([REPRODUCED, REPRODUCED], REPRODUCED),
        ([REPRODUCED, EXCEEDED], EXCEEDED),
        ([REPRODUCED, PARTLY], PARTLY),
        ([EXCEEDED, NOT_REPRODUCED], PARTLY),
        ([NOT_REPRODUCED, NOT_CARRIED], NOT_REPRODUCED),
        ([NOT_CARRIED, NOT_MEASURED], NOT_CARRIED),  # what is open says nothing beside what is decided
        ([UNDECIDED, NOT_MEASURED], UNDECIDED),
        ([NOT_MEASURED], NOT_MEASURED),
    ],
)
def test_the_verdict_on_several_things_at_once(verdicts, expected):
    assert measures.all_of(verdicts) == measures.all_of(verdicts[::-1]) == expected


def test_a_share_needs_both_counters():
    table = synthetic.counters(COUNTED)
    lacks = evidence(counters=table[(table["metric"] != "d") | (table["m"] < table["m"].max())])
    fewer = quantities.counter_share(lacks, ALL, "c", "all", "warp_per_row", plus=["d"]).all
    assert 0 < len(fewer) < 54 and np.allclose(fewer, 0.23)


@pytest.mark.parametrize("of,expected", [(["warp_per_row", "any_n"], PARTLY), ("warp_per_row", REPRODUCED)])
def test_the_largest_of_a_column_is_that_of_the_worst_contender(of, expected):
    made = frames(rel_err=1e-9)
    made["wide"].loc[made["wide"]["variant"] == "any_n", "rel_err"] = 5e-6
    assert (
        outcome(evidence(made), {"column": "rel_err", "of": of}, "largest", {"at_most": 1e-6, "partly": 1e-5}).verdict
        == expected
    )


def test_the_true_density_is_that_of_generated_matrices_in_the_sparse_operand():
    """B is k × n: right for A of any shape but n = m only."""
    made = frames(fill=0.75)
    made["wide"].loc[made["wide"]["n"] == 512, ["label", "nnz"]] = ["a real one", 1]
    assert np.allclose(quantities.true_density(evidence(made), ALL, "warp_per_row").all, 0.75, rtol=1e-3)
    of_b = quantities.true_density(evidence(made), ["tall"], "warp_per_row", "B").all
    points = of_b.index.to_frame()
    assert np.allclose(of_b * points["n"] / points["m"], 0.75, rtol=1e-3) and (points["m"] != points["n"]).any()
    refused(
        "generated",
        quantities.true_density,
        evidence(made).only({"label": "a real one"}),
        ["wide"],
        "any_n",
        kind=NotMeasured,
    )


@pytest.mark.parametrize(
    "ask,says",
    [
        (lambda e: quantities.counter(e, ALL, "c", "warp_per_row", over="any_n"), "no positive values"),
        (lambda e: quantities.counter_share(e, ALL, "c", "c", "any_n"), "no positive values"),
        (lambda e: quantities.counter(e, ALL, "d", "any_n"), "d was not profiled"),
        (lambda e: quantities.counter_share(e, ALL, "c", "c", "warp_per_row", plus=["d"]), "d was not profiled"),
        (lambda e: quantities.share_of_ceiling(e, ALL, "wgmma", "any_n", "tflops"), "'wgmma'"),
    ],
)
def test_nothing_is_divided_by_no_count(ask, says):
    refused(
        says,
        ask,
        evidence(counters=synthetic.counters({"warp_per_row": {"c": 5}, "any_n": {"c": 0}})),
        kind=NotMeasured,
    )


# ---------------------------------------------------------------- reducers in numbers


def values(numbers, named=False, **where) -> Values:
    """Contenders "a", "b" … with these numbers each, at n = 1, 2, 4 … unless `where` has other columns."""
    lists = numbers if isinstance(numbers[0], list) else [numbers]
    at = {"experiment": "e", "label": "", "m": 8, "n": [2**i for i in range(len(lists[0]))], "k": 8}
    at |= {"density": 0.5, "useful_flops": 1.0} | where
    made = {n: pd.DataFrame(at | {"value": v}).set_index(INDEX)["value"] for n, v in zip("abc", lists, strict=False)}
    return Values({name: s.astype(float) for name, s in made.items()}, unit="×", named=named)


APART = {"experiment": ["e", "e", "f", "f"], "density": [0.1, 0.2, 0.1, 0.1]}


@pytest.mark.parametrize(
    "reduce,numbers,where,expected",
    [
        *(
            (reduce, [3, 1, 100, 2, 6], {}, [expected])
            for reduce, expected in (
                (measures.median, 3),
                (measures.mean, 22.4),
                (measures.largest, 100),
                (measures.smallest, 1),
                (lambda v: measures.quantile(v, 0.25), 2),
                (lambda v: measures.quantile(v, 0.75), 6),
                (measures.geometric_mean, 3600**0.2),
                (lambda v: measures.share_of_points_above(v, 2.0), 0.6),
                (lambda v: measures.share_of_points_below(v, 2.0), 0.2),
                (lambda v: measures.share_of_points_at_least(v, 2.0), 0.8),  # a tie is no loss
                (lambda v: measures.share_of_points_at_least(v, 3.1, tolerance=0.05), 0.6),
            )
        ),
        (lambda v: measures.geometric_mean(v, "each experiment"), [1, 4, 9, 9], APART, [2, 9]),
        (lambda v: measures.geometric_mean(v, "each density"), [1, 4, 9, 9], APART, [1, 4, 9]),
        (lambda v: measures.median(v, "each n"), [1, 3, 5, 9], {"n": [1, 1, 1, 2]}, [3, 9]),
        (lambda v: measures.power_law(v, "n", 1.1), [1, 4, 16, 64], {}, [2]),
        (lambda v: measures.power_law(v, "n", 1.1), [1, 4, 16, 640], {}, [np.nan]),
        (lambda v: measures.knee(v, "n", 0.1), [1, 8.9, 9, 10], {}, [4]),
        (lambda v: measures.over_best(v, {"a": ["b"], "c": []}), [[2, 8], [1, 4], [3, 12]], {}, [2, 1.5]),
        (lambda v: measures.over_best(v, {"a": ["b", "none"]}), [[2, 8], [1, 4], [3, 12]], {}, [2]),
    ],
)
def test_a_reducer_in_numbers(reduce, numbers, where, expected):
    reduced = reduce(values(numbers, **where))
    assert list(reduced.values) == pytest.approx(expected, nan_ok=True)
    assert reduced.again is None or len(expected) > 1 or reduced.again(reduced.of.all) == pytest.approx(expected[0])


@pytest.mark.parametrize(
    "numbers,where,how,lines",
    [
        ([3, 1, 2, 9, 7], {"n": [4, 1, 1, 1, 2], "density": [0.1, 0.1, 0.1, 0.2, 0.2]}, {}, [[1.5, 3], [9, 7]]),
        ([1, 2, 3], {"useful_flops": [30.0, 10.0, 20.0]}, {"along": "useful_flops"}, [[2, 3, 1]]),
        ([[1, 4, 9], [2, 2, 2]], {"n": [1, 1, 2]}, {"apart": ["contender"], "by": "geometric mean"}, [[2, 9], [2, 2]]),
        (
            [1, 2, 3],
            {"density": [0.1, 0.2, 0.4], "n": 8},
            {"along": "density", "order": [0.4, 0.1], "apart": ["n"]},
            [[3, 1]],
        ),
        ([1, 5, 3], {"label": ["x", "x", "y"]}, {"along": "label", "order": ["y", "x"], "by": "largest"}, [[3, 5]]),
        (
            [8, 2, 4],
            {"density": [0.1, 0.2, 0.4]},
            {"along": "denser", "order": [0, 0.1], "apart": ["contender"], "by": "geometric mean"},
            [[4, 8**0.5]],
        ),
        (
            [[1, 4], [9, 9], [5, 5]],
            {},
            {"along": "contender", "order": ["b", "a"], "apart": [], "by": "geometric mean"},
            [[9, 2]],
        ),
    ],
)
def test_the_course_of_a_trend(numbers, where, how, lines):
    reduced = measures.trend(values(numbers, **where), **{"along": "n"} | how)
    assert [list(line) for _, line in reduced.course] == [pytest.approx(line) for line in lines]
    assert list(reduced.values) == ([] if how.get("apart", True) else pytest.approx(lines[0]))


@pytest.mark.parametrize(
    "reduce,says",
    [
        (lambda: measures.geometric_mean(values([1, 0])), "not positive"),
        (lambda: measures.trend(values([1, 2], n=[1, 1]), "n"), "two sizes"),
        (lambda: measures.trend(values([1, 2]), "contender", (), "mean", ["a", "z"]), "z was not measured"),
        (lambda: measures.power_law(values([1, 2]), "n", 1.1), "three sizes"),
        (lambda: measures.knee(values([1, 2]), "n", 0.1), "three sizes"),
        (lambda: measures.over_best(values([1, 2]), {"z": []}), "z was not measured"),
        (lambda: measures.over_best(values([1, 2]), {"a": []}), "a stand beside was not measured"),
    ],
)
def test_what_cannot_be_reduced_is_not_measured(reduce, says):
    refused(says, reduce, kind=NotMeasured)


@pytest.mark.parametrize("shown,expected", [(["any_n"], "any_n "), ("any_n", "0.")])
def test_who_is_meant_is_said_where_the_rule_lists_contenders(shown, expected):
    assert outcome(
        evidence(), {"speedup": shown, "over": "l2_panels"}, POINTS, {"at_least": 1, "partly": 0}
    ).measured.startswith(expected)


@pytest.mark.parametrize("metric", sorted(quantities.COUNTERS))
def test_counters_have_words_and_units(metric):
    unit, what = quantities.counted(metric)
    assert (unit == "%") == ("pct" in metric) and not re.search("_|[.]", what)
