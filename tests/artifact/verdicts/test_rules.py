"""Quantities, reducers and expectations: verdicts on both sides of each limit, and numbers that are known."""

import re

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import ALL, SPEEDUP, evidence, frames, outcome

from artifact.verdicts import measures, quantities
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED
from artifact.verdicts.quantities import INDEX, Values

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
    ],
)
def test_a_verdict_on_both_sides_of_each_limit(speedup, reduce, expect, where, expected):
    got = outcome(evidence(frames(speedup)), SPEEDUP, reduce, expect, where)
    assert got.verdict == expected
    assert got.low * (1 - 1e-9) <= got.value <= got.high * (1 + 1e-9) and got.points == {"wide": 21}.get(
        "".join(where), 54
    )


@pytest.mark.parametrize(
    "speedup,reduce,expect,close",
    [
        (4.96, MEAN, {"at_least": 5.99, "partly": 5.04}, "1.6% below"),
        (5.1, MEAN, {"at_least": 5.99, "partly": 5.04}, "1.2% above"),
        (5.5, MEAN, {"at_least": 5.99, "partly": 5.04}, ""),
        (0.96, MEAN, {"at_most": 0.97, "partly": 1.0}, "1.0% below"),
        (1.0, {"share_of_points_at_least": 0.5}, {"at_least": 1.0, "partly": 0.5}, ""),  # all
        (1.26, POINTS, {"near": [1.0, 1.0], "factor": 1.25, "partly": 2}, "0.8% above"),
        (1.0, POINTS, {"near": [1.0, 1.0], "factor": 1.05, "partly": 1.25}, ""),
        (1.04, POINTS, {"near": [1.0, 1.0], "factor": 1.05, "partly": 1.25}, "1.0% below"),
        (1.6, POINTS, {"near": [1.0, 1.0], "factor": 1.25, "partly": 2}, ""),
    ],
)
def test_a_verdict_at_a_threshold_says_so(speedup, reduce, expect, close):
    got = outcome(evidence(frames(speedup)), SPEEDUP, reduce, expect, WIDE)
    assert close in got.close and bool(close) == bool(got.close)


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
    got = outcome(evidence(frames(**made), synthetic.counters(counted)), quantity, reduce, expect)
    assert got.verdict == expected


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
    got = outcome(e, SPEEDUP, MEAN, {"larger_in": ["wide", "square"], "than_in": "tall", "by": 0.03})
    assert got.verdict == PARTLY and got.measured.startswith("wide and square 0.70×, against tall 0.70×")


def test_memory_limits_at_a_share_of_the_points():
    table = synthetic.counters({"warp_per_row": {"dram": 80}})
    table.loc[table["density"] == 0.05, "value"] = 5
    e, memory = evidence(frames(tflops=10.0), table), {"memory_use": "warp_per_row", "metric": "dram"}
    expect = {"memory_limits_from": 0.6, "at_points": 0.6}
    assert outcome(e, memory, POINTS, expect).verdict == REPRODUCED
    assert outcome(e, memory, POINTS, expect | {"at_points": 0.7}).verdict == NOT_REPRODUCED


def test_lines_are_judged_one_by_one():
    lines = pd.Series([2.0, 8.0])
    r = measures.Reduced(Values({"a": lines}, "Size"), lines, "", "", lines=True)
    assert measures.near(r, [2, 2], 1.0, 2.0).verdict == PARTLY  # else nine in ten are asked for
    assert measures.near(r, [2, 8], 1.0, 2.0).verdict == REPRODUCED
    assert measures.within(r, [2, 2], 0.1).verdict == PARTLY  # half of the fits
    assert measures.within(r, [3, 5], 0.1).verdict == NOT_REPRODUCED  # no mean of exponents


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
    e = evidence(frames(1.0))
    assert outcome(e, SPEEDUP, POINTS, expect).threshold == pytest.approx(threshold)
    for end, sign in zip(threshold, (1, -1), strict=True):
        for away in (0.001, -0.001) if end else ():
            inside = outcome(evidence(frames(end + sign * away)), SPEEDUP, MEAN, expect).verdict == REPRODUCED
            assert inside == (away > 0) or expect is SPANS


# ---------------------------------------------------------------- quantities in numbers


def test_a_speedup_is_the_baselines_time_over_the_contenders():
    values = quantities.speedup(evidence(frames(0.5)), ALL, "warp_per_row", "cusparse_best")
    assert np.allclose(values.all, 0.5) and len(values.all) == 54
    alone = quantities.speedup(evidence(), ALL, ["any_n"], "column_tiles")
    assert np.allclose(alone.by["any_n"], 1.05 / 1.3)


def test_the_fastest_of_several_is_asked_where_all_of_them_were_measured():
    """A point that one of them lacks does not count, for it or against it."""
    made = frames(1.3)
    made["wide"] = made["wide"].query("not (variant == 'rows_per_warp' and n == 512)")
    made["wide"].loc[made["wide"].eval("variant == 'warp_per_row' and n == 512"), "median_us"] *= 1e6
    values = quantities.speedup(evidence(made), ALL, "warp_per_row", ["any_n", "rows_per_warp"])
    assert len(values.all) == 54 - 3 and (values.all > 1).all()


def test_rates_and_shares():
    e = evidence(frames(tflops=2.0, gbps=1000.0)).only({"density": 0.01})
    assert np.allclose(quantities.tflops(e, ALL, "cusparse_alg2").all, 2)
    assert np.allclose(quantities.tflops(e, ALL, "cusparse_alg2", flops="dense").all, 200)
    assert np.allclose(quantities.share_of_ceiling(e, ALL, "copy", "any_n", "gbps").all, 0.25)
    with pytest.raises(NotMeasured, match="'wgmma'"):
        quantities.share_of_ceiling(e, ALL, "wgmma", "any_n", "tflops")


def test_the_largest_of_a_column_is_that_of_the_worst_contender():
    made = frames(rel_err=1e-9)
    made["wide"].loc[made["wide"]["variant"] == "any_n", "rel_err"] = 5e-6
    expect, of = {"at_most": 1e-6, "partly": 1e-5}, ["warp_per_row", "any_n"]
    assert outcome(evidence(made), {"column": "rel_err", "of": of}, "largest", expect).verdict == PARTLY
    assert outcome(evidence(made), {"column": "rel_err", "of": of[0]}, "largest", expect).verdict == REPRODUCED


def test_the_true_density_is_that_of_generated_matrices_in_the_sparse_operand():
    """B is k × n: right for A of any shape but n = m only."""
    made = frames(fill=0.75)
    made["wide"].loc[made["wide"]["n"] == 512, ["label", "nnz"]] = ["a real one", 1]
    assert np.allclose(quantities.true_density(evidence(made), ALL, "warp_per_row").all, 0.75, rtol=1e-3)
    of_b = quantities.true_density(evidence(made), ["tall"], "warp_per_row", "B").all
    points = of_b.index.to_frame()
    assert np.allclose(of_b * points["n"] / points["m"], 0.75, rtol=1e-3) and (points["m"] != points["n"]).any()
    with pytest.raises(NotMeasured, match="generated"):
        quantities.true_density(evidence(made).only({"label": "a real one"}), ["wide"], "any_n")


def test_counters_by_themselves_over_another_and_as_shares():
    table = synthetic.counters(
        {
            "warp_per_row": {"c": 3e6, "d": 20e6, "all": 100e6},
            "any_n": {"c": 1e6, "zero": 0},
            "cusparse_alg1": {"c": 1},
            "cusparse_alg2": {"c": 2},
        }
    )
    e = evidence(counters=table)
    assert np.allclose(quantities.counter(e, ALL, "c", "any_n", per=1e6).all, 1)
    assert np.allclose(quantities.counter(e, ALL, "c", ["warp_per_row"], over="any_n").all, 3)
    assert set(quantities.counter(e, ALL, "c", "cusparse_best").all) == {2}  # that of the one that was fastest
    assert np.allclose(quantities.counter_share(e, ALL, "c", "all", "warp_per_row").all, 0.03)
    both = quantities.counter_share(e, ALL, "c", "all", "warp_per_row", plus=["d"])
    assert np.allclose(both.all, 0.23)
    # Where one of them was not read, there is no share.
    lacks = evidence(counters=table[(table["metric"] != "d") | (table["m"] < table["m"].max())])
    fewer = quantities.counter_share(lacks, ALL, "c", "all", "warp_per_row", plus=["d"])
    assert 0 < len(fewer.all) < len(both.all) and np.allclose(fewer.all, 0.23)


@pytest.mark.parametrize(
    "ask,says",
    [
        (lambda e: quantities.counter(e, ALL, "c", "warp_per_row", over="any_n"), "no positive values"),
        (lambda e: quantities.counter_share(e, ALL, "c", "c", "any_n"), "no positive values"),
        (lambda e: quantities.counter(e, ALL, "d", "any_n"), "d was not profiled"),
        (lambda e: quantities.counter_share(e, ALL, "c", "c", "warp_per_row", plus=["d"]), "d was not profiled"),
    ],
)
def test_nothing_is_divided_by_no_count(ask, says):
    with pytest.raises(NotMeasured, match=says):
        ask(evidence(counters=synthetic.counters({"warp_per_row": {"c": 5}, "any_n": {"c": 0}})))


@pytest.mark.parametrize(
    "least,requested,expected", [(0.9, 0.95, REPRODUCED), (0.1, 0.2, NOT_REPRODUCED), (0.1, 0.9, None)]
)
def test_memory_use_without_counters_is_between_least_and_requested_bytes(least, requested, expected):
    """Where both bounds give one verdict, that stands; what comes from DRAM of all that is asked for nobody counted."""
    made = frames(tflops=30.0)
    for df in made.values():
        per = synthetic.COPY_GBPS * 1e3 * df["median_us"]
        df[["least_bytes", "requested_bytes"]] = np.outer(per, [least, requested])
    asked = evidence(made), {"memory_use": "warp_per_row", "metric": "dram"}, POINTS
    expect = {"memory_limits_from": 0.6, "at_points": 0.9}
    if expected is None:
        with pytest.raises(NotMeasured, match="between DRAM 10%"):
            outcome(*asked, expect, ["tall"])
    else:
        assert outcome(*asked, expect, ["tall"]).verdict == expected


def test_bytes_beside_the_values():
    made = {name: df.assign(prepare_bytes=4.0 * df["nnz"]) for name, df in frames().items()}
    assert np.allclose(quantities.prepared_bytes(evidence(made), ALL, ["warp_per_row"]).all, 4)


# ---------------------------------------------------------------- reducers in numbers


def values(numbers, named=False, **where) -> Values:
    """One contender "a" with these numbers, at n = 1, 2, 4 … unless `where` has other columns."""
    at = {"experiment": "e", "label": "", "m": 8, "n": [2**i for i in range(len(numbers))], "k": 8}
    at |= {"density": 0.5, "useful_flops": 1.0, "value": numbers} | where
    series = pd.DataFrame(at).set_index(INDEX)["value"].astype(float)
    return Values({"a": series}, "Speedup", unit="×", named=named)


@pytest.mark.parametrize(
    "reducer,expected",
    [
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
    ],
)
def test_one_number_for_many(reducer, expected):
    reduced = reducer(values([3, 1, 100, 2, 6]))
    assert reduced.values.item() == pytest.approx(expected) and reduced.measured and not reduced.lines
    assert reduced.again is None or reduced.again(reduced.of.all) == pytest.approx(expected)


def test_means_apart():
    v = values([1, 4, 9, 9], experiment=["e", "e", "f", "f"], density=[0.1, 0.2, 0.1, 0.1])
    assert list(measures.geometric_mean(v, "each experiment").values) == pytest.approx([2, 9])
    assert list(measures.geometric_mean(v, "each density").values) == pytest.approx([1, 4, 9])
    with pytest.raises(NotMeasured, match="not positive"):
        measures.geometric_mean(values([1, 0]))


def test_a_trend_is_along_the_size_in_each_density_alone():
    v = values([3, 1, 2, 9, 7], n=[4, 1, 1, 1, 2], density=[0.1, 0.1, 0.1, 0.2, 0.2])
    assert [list(line) for _, line in measures.trend(v, "n").course] == [[1.5, 3], [9, 7]]
    ((_, line),) = measures.trend(values([1, 2, 3], useful_flops=[30.0, 10.0, 20.0]), "useful_flops").course
    assert list(line) == [2, 3, 1]
    with pytest.raises(NotMeasured, match="two sizes"):
        measures.trend(values([1, 2], n=[1, 1]), "n")


def test_a_power_law_is_fitted_on_log_axes():
    assert measures.power_law(values([1, 4, 16, 64]), "n", 1.1).values.item() == pytest.approx(2)
    assert np.isnan(measures.power_law(values([1, 4, 16, 640]), "n", 1.1).values.item())
    with pytest.raises(NotMeasured, match="three sizes"):
        measures.power_law(values([1, 2]), "n", 1.1)


@pytest.mark.parametrize("shown,expected", [(True, "a 2–4×"), (False, "2.00–4.00×")])
def test_who_is_meant_is_said_where_the_rule_lists_contenders(shown, expected):
    assert measures.each_point(values([2, 4], named=shown)).measured.startswith(expected)


@pytest.mark.parametrize("metric", sorted(quantities.COUNTERS))
def test_counters_have_words_and_units(metric):
    unit, what = quantities.counted(metric)
    assert (unit == "%") == ("pct" in metric) and not re.search("_|[.]", what)
