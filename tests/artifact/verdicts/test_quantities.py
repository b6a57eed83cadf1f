"""Quantities: their values at each point, in numbers that are known."""

import numpy as np
import pytest
import synthetic
from judging import ALL, evidence, frames, outcome

from artifact.verdicts import quantities
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED

SOME = {"at_least": 1.0, "partly": 0.5}


def test_a_speedup_is_the_baselines_time_over_the_contenders():
    values = quantities.speedup(evidence(frames(0.5)), ALL, "warp_per_row", "cusparse_best")
    assert np.allclose(values.all, 0.5) and len(values.all) == 54
    assert values.tail == " over cuSPARSE" and "of warp_per_row over cuSPARSE" in values.name
    alone = quantities.speedup(evidence(frames(1.0)), ALL, ["any_n"], "column_tiles")
    assert np.allclose(alone.by["any_n"], 1.05 / 1.3) and alone.tail == " over column_tiles"


@pytest.mark.parametrize(
    "speedup,tolerance,expected",
    [
        (1.3, 0.0, REPRODUCED),  # rows_per_warp is the fastest other, by 1.25
        (1.2, 0.0, NOT_REPRODUCED),
        (1.2, 0.05, REPRODUCED),
        (lambda m, n, k, d: 1.3 if d > 0.005 else 1.0, 0.0, PARTLY),
        (lambda m, n, k, d: 1.3 if d > 0.01 else 1.0, 0.0, NOT_REPRODUCED),
    ],
)
def test_a_speedup_over_several_is_over_the_fastest_of_them(speedup, tolerance, expected):
    quantity = {"speedup": "warp_per_row", "over": ["any_n", "rows_per_warp", "cusparse_best"]}
    reduce = {"share_of_points_at_least": 1.0, "tolerance": tolerance}
    got = outcome(evidence(frames(speedup)), quantity, reduce, SOME)
    assert got.verdict == expected and "warp_per_row the fastest at" in got.measured


def test_the_fastest_of_several_is_asked_where_all_of_them_were_measured():
    """A point that one of them lacks does not count, for it or against it."""
    made = frames(1.3)
    lost = (made["wide"]["variant"] == "rows_per_warp") & (made["wide"]["n"] == 512)
    slow = (made["wide"]["variant"] == "warp_per_row") & (made["wide"]["n"] == 512)
    made["wide"].loc[slow, "median_us"] *= 1e6
    made["wide"] = made["wide"][~lost]
    values = quantities.speedup(evidence(made), ALL, "warp_per_row", ["any_n", "rows_per_warp"])
    assert len(values.all) == 54 - 3 and (values.all > 1).all()
    with pytest.raises(NotMeasured, match="'elsewhere' was not measured"):
        quantities.speedup(evidence(), ALL, "any_n", ["warp_per_row", "elsewhere"])


def test_throughput_of_the_dense_product_counts_its_flops():
    e = evidence(frames(tflops=2.0)).only({"density": 0.01})
    useful = quantities.tflops(e, ALL, ["cusparse_alg2"])
    dense = quantities.tflops(e, ALL, ["cusparse_alg2"], flops="dense")
    assert np.allclose(useful.all, 2) and np.allclose(dense.all, 200)


def test_a_share_of_a_ceiling_has_its_unit():
    made = frames(tflops=30.0)
    fma = quantities.share_of_ceiling(evidence(made), ALL, "fma", "any_n", "tflops")
    assert np.allclose(fma.all, 0.5) and "60 TFLOP/s" in fma.how
    copy = quantities.share_of_ceiling(evidence(frames(gbps=1000.0)), ALL, "copy", "any_n", "gbps")
    assert np.allclose(copy.all, 0.25) and "GB/s" in copy.how
    with pytest.raises(NotMeasured, match="ceiling 'wgmma' was not measured"):
        quantities.share_of_ceiling(evidence(made), ALL, "wgmma", "any_n", "tflops")


@pytest.mark.parametrize(
    "tflops,reduce,expect,expected",
    [
        (20.0, "largest", {"at_most": 0.5, "partly": 0.75}, REPRODUCED),
        (40.0, "largest", {"at_most": 0.5, "partly": 0.75}, PARTLY),
        (55.0, "largest", {"at_most": 0.5, "partly": 0.75}, NOT_REPRODUCED),
        (50.0, "smallest", {"at_least": 0.8, "partly": 0.7}, REPRODUCED),
        (44.0, "smallest", {"at_least": 0.8, "partly": 0.7}, PARTLY),
        (10.0, "smallest", {"at_least": 0.8, "partly": 0.7}, NOT_REPRODUCED),
    ],
)
def test_the_point_nearest_to_a_limit_decides(tflops, reduce, expect, expected):
    made = frames(tflops=60.0 if reduce == "smallest" else 1.0)
    made["wide"].loc[made["wide"]["n"] == 1024, "tflops"] = tflops
    quantity = {"share_of_ceiling": "fma", "of": "warp_per_row", "rate": "tflops"}
    got = outcome(evidence(made), quantity, reduce, expect)
    word = "at least" if reduce == "smallest" else "at most"
    assert got.verdict == expected
    assert got.measured.startswith(f"{word} {tflops / 60:.0%} of the fma ceiling, median ")


@pytest.mark.parametrize("error,expected", [(2e-7, REPRODUCED), (5e-6, PARTLY), (2e-5, NOT_REPRODUCED)])
def test_the_largest_of_a_column_is_that_of_the_worst_contender(error, expected):
    made = frames(rel_err=1e-9)
    made["wide"].loc[made["wide"]["variant"] == "any_n", "rel_err"] = error
    expect = {"at_most": 1e-6, "partly": 1e-5}

    def got(of):
        return outcome(evidence(made), {"column": "rel_err", "of": of}, "largest", expect)

    assert got(["warp_per_row", "any_n"]).verdict == expected
    assert got("warp_per_row").verdict == REPRODUCED
    assert "The largest is at m = 4096" in got("any_n").why


def test_the_true_density_is_that_of_generated_matrices():
    made = frames(fill=0.75)
    made["wide"].loc[made["wide"]["n"] == 512, ["label", "nnz"]] = ["a real one", 1]
    values = quantities.true_density(evidence(made), ALL, "warp_per_row")
    assert np.allclose(values.all, 0.75, rtol=1e-3)
    with pytest.raises(NotMeasured, match="No generated matrix"):
        quantities.true_density(evidence(made).only({"label": "a real one"}), ["wide"], "any_n")


def test_the_true_density_is_of_the_sparse_operand():
    """B is k × n: right for A of any shape but n = m only."""
    made = frames(fill=0.75)
    e = evidence(made)
    of_b = quantities.true_density(e, ["tall"], "warp_per_row", "B").all
    points = of_b.index.to_frame()
    assert np.allclose(of_b * points["n"] / points["m"], 0.75, rtol=1e-3)
    assert (points["m"] != points["n"]).any()


# ---------------------------------------------------------------- counters


def test_a_counter_may_be_over_that_of_another_or_in_other_units():
    table = synthetic.counters({"warp_per_row": {"c": 8e6}, "any_n": {"c": 4e6}})
    e = evidence(counters=table)
    assert np.allclose(quantities.counter(e, ALL, "c", "any_n").all, 4e6)
    assert np.allclose(quantities.counter(e, ALL, "c", "any_n", per=1e6).all, 4)
    over = quantities.counter(e, ALL, "c", ["warp_per_row"], over="any_n")
    assert np.allclose(over.all, 2) and (over.unit, over.tail) == ("×", " over any_n (c)")


def test_nothing_is_divided_by_no_count():
    table = synthetic.counters({"warp_per_row": {"c": 5}, "any_n": {"c": 0}})
    e = evidence(counters=table)
    with pytest.raises(NotMeasured, match="c of any_n has no positive values"):
        quantities.counter(e, ALL, "c", "warp_per_row", over="any_n")
    with pytest.raises(NotMeasured, match="c has no positive values where c was read"):
        quantities.counter_share(e, ALL, "c", "c", "any_n")
    with pytest.raises(NotMeasured, match="'d'|d was not profiled"):
        quantities.counter(e, ALL, "d", "any_n")


def test_counters_of_the_best_algorithm_are_those_of_the_one_that_was_fastest():
    table = synthetic.counters({"cusparse_alg1": {"c": 1}, "cusparse_alg2": {"c": 2}})
    assert set(quantities.counter(evidence(counters=table), ALL, "c", "cusparse_best").all) == {2}


def test_a_share_of_a_counter_may_be_of_a_sum():
    table = synthetic.counters({"warp_per_row": {"c": 3, "d": 20, "all": 100}})
    e = evidence(counters=table)
    assert np.allclose(quantities.counter_share(e, ALL, "c", "all", ["warp_per_row"]).all, 0.03)
    both = quantities.counter_share(e, ALL, "c", "all", "warp_per_row", plus=["d"])
    assert np.allclose(both.all, 0.23) and "c + d over all" in both.name
    # Where one of them was not read, there is no share.
    lacks = (table["metric"] == "d") & (table["m"] == table["m"].max())
    fewer = quantities.counter_share(evidence(counters=table[~lacks]), ALL, "c", "all", "warp_per_row", plus=["d"])
    assert 0 < len(fewer.all) < len(both.all) and np.allclose(fewer.all, 0.23)
    few = evidence(counters=table[table["metric"] != "d"])
    with pytest.raises(NotMeasured, match="counter d was not profiled"):
        quantities.counter_share(few, ALL, "c", "all", "warp_per_row", plus=["d"])


@pytest.mark.parametrize("least,requested,expected", [(0.9, 0.95, REPRODUCED), (0.1, 0.2, NOT_REPRODUCED)])
def test_memory_use_without_counters_is_between_least_and_requested_bytes(least, requested, expected):
    quantity = {"memory_use": "warp_per_row", "metric": "dram", "beside": "l2"}
    expect = {"memory_limits_from": 0.6, "at_points": 0.9}
    made = frames(tflops=30.0)

    def judged(requested):
        for df in made.values():
            for name, share in (("least_bytes", least), ("requested_bytes", requested)):
                df[name] = share * synthetic.COPY_GBPS * 1e3 * df["median_us"]
        return outcome(evidence(made), quantity, "each point", expect, ["tall"])

    got = judged(requested)
    assert got.verdict == expected and "no hardware counters" in got.why
    assert got.measured.startswith(f"between DRAM {least:.0%}, FMA units 50%")
    if expected == NOT_REPRODUCED:  # what comes from DRAM of all that is asked for, nobody counted
        with pytest.raises(NotMeasured, match="leave it between DRAM 10%"):
            judged(0.9)


def test_bytes_beside_the_values():
    made = frames()
    for df in made.values():
        df["prepare_bytes"] = 4.0 * df["nnz"]
    values = quantities.prepared_bytes(evidence(made), ALL, ["warp_per_row"])
    assert np.allclose(values.all, 4)


@pytest.mark.parametrize("quantity", quantities.QUANTITIES)
def test_every_quantity_is_defined_and_shows_numbers(quantity):
    assert len(quantity.__doc__.split()) >= 5 and quantity.__doc__.rstrip().endswith(".")
