"""Reducers: what they make of values that are known."""

import numpy as np
import pandas as pd
import pytest
import synthetic
from judging import SPEEDUP, evidence, frames, outcome

from artifact.verdicts import measures
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED
from artifact.verdicts.quantities import INDEX, Values

SOME = {"at_least": 1.0, "partly": 0.5}


def values(numbers, named=False, **where) -> Values:
    """One contender "a" with these numbers, at n = 1, 2, 4 … unless `where` has other columns."""
    count = len(numbers)
    at = {"experiment": "e", "label": "", "m": 8, "n": [2**i for i in range(count)], "k": 8}
    at |= {"density": 0.5, "useful_flops": 1.0, "value": numbers} | where
    series = pd.DataFrame(at).set_index(INDEX)["value"].astype(float)
    return Values({"a": series}, "Speedup", unit="×", named=named)


@pytest.mark.parametrize(
    "reducer,expected,shown",
    [
        (measures.median, 3, "median 3.00×, 1.00–100.00×"),
        (measures.mean, 22.4, "22.40×"),
        (measures.largest, 100, "at most 100.00×, median 3.00×"),
        (measures.smallest, 1, "at least 1.00×, median 3.00×"),
        (lambda v: measures.quantile(v, 0.25), 2, "0.25 quantile 2.00×"),
        (lambda v: measures.quantile(v, 0.75), 6, "0.75 quantile 6.00×"),
        (measures.geometric_mean, 3600**0.2, "geometric mean 5.14×"),
    ],
)
def test_one_number_for_many(reducer, expected, shown):
    reduced = reducer(values([3, 1, 100, 2, 6]))
    assert reduced.values.item() == pytest.approx(expected) and reduced.measured == shown
    assert reduced.again(reduced.of.all) == pytest.approx(expected) and not reduced.lines


def test_who_is_meant_is_said_where_the_rule_lists_contenders():
    named = values([2, 4], named=True)
    assert measures.each_point(named).measured == "a 2–4×"
    assert measures.median(named).measured == "a 3.00×"
    assert measures.largest(named).measured == "a at most 4.00×, median 3.00×"
    assert measures.geometric_mean(named).measured == "a geometric mean 2.83×"
    assert measures.each_point(values([2, 4])).measured == "2.00–4.00×, geometric mean 2.83×"
    assert measures.each_point(values([2])).measured == "2.00×"


def test_means_apart():
    v = values([1, 4, 9, 9], experiment=["e", "e", "f", "f"], density=[0.1, 0.2, 0.1, 0.1])
    assert list(measures.geometric_mean(v, "each experiment").values) == pytest.approx([2, 9])
    assert list(measures.geometric_mean(v, "each density").values) == pytest.approx([1, 4, 9])
    with pytest.raises(NotMeasured, match="not positive at every point"):
        measures.geometric_mean(values([1, 0]))


@pytest.mark.parametrize(
    "reducer,expected",
    [
        (lambda v: measures.share_of_points_above(v, 1.0), 0.25),
        (lambda v: measures.share_of_points_below(v, 1.0), 0.5),
        (lambda v: measures.share_of_points_at_least(v, 1.0), 0.5),  # a tie is no loss
        (lambda v: measures.share_of_points_at_least(v, 1.0, tolerance=0.05), 0.75),
    ],
)
def test_shares_of_points(reducer, expected):
    assert reducer(values([1.5, 1.0, 0.97, 0.5])).values.item() == expected


@pytest.mark.parametrize(
    "speedup,side,expected",
    [
        (1.2, "above", REPRODUCED),
        (0.8, "above", NOT_REPRODUCED),
        (0.8, "below", REPRODUCED),
        (lambda m, n, k, d: 1.2 if d > 0.005 else 0.8, "above", PARTLY),
        (1.0, "above", NOT_REPRODUCED),  # a tie is nobody's win
        (1.0, "below", NOT_REPRODUCED),
    ],
)
def test_who_is_faster_point_by_point(speedup, side, expected):
    got = outcome(evidence(frames(speedup)), SPEEDUP, {f"share_of_points_{side}": 1.0}, SOME)
    assert got.verdict == expected
    who = "warp_per_row" if side == "above" else "cuSPARSE"
    assert got.measured.startswith(f"{who} faster at ")


@pytest.mark.parametrize("quantile,expected", [(0.1, NOT_REPRODUCED), (0.5, REPRODUCED), (0.9, REPRODUCED)])
def test_a_quantile_is_the_value_below_which_that_share_lies(quantile, expected):
    """A third of the points has 1, the others 10: nine in ten reach 1, one in ten reaches 10."""
    table = synthetic.counters({"warp_per_row": {"c": 10}})
    table.loc[table["density"] == 0.05, "value"] = 1
    e, quantity = evidence(counters=table), {"counter": "c", "of": "warp_per_row"}
    got = outcome(e, quantity, {"quantile": quantile}, {"at_least": 9, "partly": 5})
    assert got.verdict == expected


# ---------------------------------------------------------------- along a size


def test_a_trend_is_along_the_size_in_each_density_alone():
    v = values([3, 1, 2, 9, 7], n=[4, 1, 1, 1, 2], density=[0.1, 0.1, 0.1, 0.2, 0.2])
    course = dict(measures.trend(v, "n").course)
    assert {k: list(line) for k, line in course.items()} == {
        "e, density 10 %": [1.5, 3],
        "e, density 20 %": [9, 7],
    }
    with pytest.raises(NotMeasured, match="two sizes"):
        measures.trend(values([1, 2], n=[1, 1]), "n")


def test_a_trend_is_along_the_flops_of_the_records():
    v = values([1, 2, 3], useful_flops=[30.0, 10.0, 20.0])
    ((_, line),) = measures.trend(v, "useful_flops").course
    assert list(line) == [2, 3, 1]


def test_a_power_law_is_fitted_on_log_axes():
    square = measures.power_law(values([1, 4, 16, 64]), "n", 1.1)
    assert square.values.item() == pytest.approx(2) and "exponent 2.00, points within 1.00×" in square.measured
    off = measures.power_law(values([1, 4, 16, 640]), "n", 1.1)
    assert np.isnan(off.values.item()) and off.lines
    with pytest.raises(NotMeasured, match="three sizes"):
        measures.power_law(values([1, 2]), "n", 1.1)


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
    got = outcome(evidence(frames(speedup)), {"time": of}, reduce, expect, ["tall"])
    assert got.verdict == expected


@pytest.mark.parametrize("sign,expected", [(1, REPRODUCED), (-1, NOT_REPRODUCED)])
def test_the_trend_of_a_counter(sign, expected):
    table = synthetic.counters({"warp_per_row": {"c": 0.0}})
    table["value"] = 1e6 + sign * (table["m"] + table["n"])
    quantity = {"counter": "c", "of": "warp_per_row"}
    got = outcome(evidence(counters=table), quantity, {"trend": "n"}, {"rises": 0.0}, ["wide"])
    assert got.verdict == expected


@pytest.mark.parametrize("reducer", measures.REDUCERS)
def test_every_reducer_is_defined(reducer):
    assert len(reducer.__doc__.split()) >= 5 and reducer.__doc__.rstrip().endswith(".")
