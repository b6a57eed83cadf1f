import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic

from artifact import baselines, paths
from artifact.drawing import style
from artifact.measure import records
from artifact.profiling import ncu
from artifact.verdicts import evidence as evidence_
from artifact.verdicts import judge, measures, page
from artifact.verdicts import load as load_
from artifact.verdicts.measures import NOT_MEASURED, NOT_REPRODUCED, PARTLY, REPRODUCED

ALL = ("wide", "square", "tall")


def evidence(tmp_path, frames=None, counters=None, with_ceilings=True) -> evidence_.Evidence:
    folder = synthetic.folder(tmp_path, frames, with_ceilings=with_ceilings)
    if counters is not None:
        (folder / "casper_sparse" / "counters.csv").write_text(counters.to_csv(index=False))
    return evidence_.Evidence(folder, "casper_sparse")


def frames(speedup=None, **more) -> dict[str, pd.DataFrame]:
    """The three sweeps; `speedup` a number, a function of the point, or one of these per sweep."""
    per = speedup if isinstance(speedup, dict) else dict.fromkeys(ALL, speedup)
    return {name: synthetic.experiment(name, per.get(name), **more) for name in ALL}


# ---------------------------------------------------------------- each rule, both ways


def judged(tmp_path, measure: str, speedup=None, experiment=ALL, counters=None, **rule) -> str:
    e = evidence(tmp_path, frames(speedup), counters)
    outcome = measures.MEASURES[measure](e, experiment, **rule)
    assert outcome.measured and outcome.why.endswith(".") and outcome.verdict in measures.VERDICTS
    return outcome.verdict


@pytest.mark.parametrize(
    "speedup,who,verdict",
    [
        (1.2, "variant", REPRODUCED),
        (0.8, "variant", NOT_REPRODUCED),
        (0.8, "baseline", REPRODUCED),
        (1.2, "baseline", NOT_REPRODUCED),
        (lambda m, n, k, d: 1.2 if d > 0.005 else 0.8, "variant", PARTLY),
        (1.0, "variant", NOT_REPRODUCED),  # a tie is nobody's win
    ],
)
def test_share_of_points(tmp_path, speedup, who, verdict):
    rule = {"variant": "warp_per_row", "faster": who}
    assert judged(tmp_path, "share_of_points", speedup, **rule) == verdict


@pytest.mark.parametrize(
    "speedup,verdict",
    [
        (0.7, REPRODUCED),
        (0.52, REPRODUCED),  # within the tolerance
        (0.4, NOT_REPRODUCED),
        (1.1, NOT_REPRODUCED),
        (lambda m, n, k, d: 0.7 if d > 0.005 else 1.2, PARTLY),
        (lambda m, n, k, d: 0.4 if n > 2048 else 1.2, PARTLY),  # none inside, but their mean is
    ],
)
def test_speedup_range(tmp_path, speedup, verdict):
    rule = {"variant": "warp_per_row", "low": 0.55, "high": 0.9, "tolerance": 0.05}
    assert judged(tmp_path, "speedup_range", speedup, ["wide"], **rule) == verdict


@pytest.mark.parametrize(
    "speedup,rule,verdict",
    [
        (1.2, {"reproduced": 1.1, "partly": 1.0}, REPRODUCED),
        (1.05, {"reproduced": 1.1, "partly": 1.0}, PARTLY),
        (0.9, {"reproduced": 1.1, "partly": 1.0}, NOT_REPRODUCED),
        (0.9, {"reproduced": 0.97, "partly": 1.0}, REPRODUCED),  # a claim of being slow
        (0.99, {"reproduced": 0.97, "partly": 1.0}, PARTLY),
        (1.1, {"reproduced": 0.97, "partly": 1.0}, NOT_REPRODUCED),
        (
            {"wide": 0.5, "square": 1.2, "tall": 1.2},
            {"reproduced": 1.1, "partly": 1, "each": True},
            PARTLY,
        ),
        (1.2, {"reproduced": 1.1, "partly": 1, "each": True}, REPRODUCED),
        (0.9, {"reproduced": 1.1, "partly": 1, "each": True}, NOT_REPRODUCED),
    ],
)
def test_speedup_mean(tmp_path, speedup, rule, verdict):
    assert judged(tmp_path, "speedup_mean", speedup, variant="warp_per_row", **rule) == verdict


@pytest.mark.parametrize(
    "speedup,verdict",
    [
        (1.2, REPRODUCED),  # inside
        (0.84, REPRODUCED),  # within the factor
        (1.8, REPRODUCED),
        (0.5, PARTLY),
        (3.4, PARTLY),
        (0.2, NOT_REPRODUCED),
        (4.0, NOT_REPRODUCED),
        (lambda m, n, k, d: 1.2 if d > 0.005 else 4.0, NOT_REPRODUCED),  # a third is far off
    ],
)
def test_speedup_near(tmp_path, speedup, verdict):
    rule = {"variants": ["warp_per_row"], "low": 1.0, "high": 1.5, "reproduced": 1.2, "partly": 2.4}
    assert judged(tmp_path, "speedup_near", speedup, ["wide"], **rule) == verdict


@pytest.mark.parametrize(
    "speedup,verdict", [(1e6, REPRODUCED), (0.9, REPRODUCED), (0.5, PARTLY), (0.2, NOT_REPRODUCED)]
)
def test_speedup_near_with_a_lower_bound_alone(tmp_path, speedup, verdict):
    rule = {"variants": ["warp_per_row"], "low": 1.0, "high": math.inf}
    rule |= {"reproduced": 1.2, "partly": 2.4}
    assert judged(tmp_path, "speedup_near", speedup, ["wide"], **rule) == verdict
    e = evidence(tmp_path / "text", frames(speedup))
    assert "Asked: at least 1×, within" in measures.speedup_near(e, ["wide"], **rule).why


@pytest.mark.parametrize(
    "mean,speedup,verdict",
    [
        # Half of the points at 3, half at 1/3 of it: the mean is 1, no point is.
        ("all", lambda m, n, k, d: 3.0 if n in (512, 2048, 8192) else 1 / 3, REPRODUCED),
        ("", lambda m, n, k, d: 3.0 if n in (512, 2048, 8192) else 1 / 3, NOT_REPRODUCED),
        ("all", 1.2, PARTLY),
        ("all", 0.5, NOT_REPRODUCED),
        ("density", 1.0, REPRODUCED),
        ("density", 0.8, PARTLY),
        # One density of three is off, by which the mean over all is not.
        ("density", lambda m, n, k, d: 1.6 if d == 0.01 else 0.9, NOT_REPRODUCED),
        ("all", lambda m, n, k, d: 1.6 if d == 0.01 else 0.9, REPRODUCED),
    ],
)
def test_speedup_near_by_means(tmp_path, mean, speedup, verdict):
    made = frames(speedup)
    made["wide"] = made["wide"][made["wide"]["n"] < 32768]  # an even number of sizes
    rule = {"low": 1.0, "high": 1.0, "reproduced": 1.1, "partly": 1.3, "mean": mean}
    outcome = measures.speedup_near(evidence(tmp_path, made), ["wide"], ["warp_per_row"], **rule)
    assert outcome.verdict == verdict
    assert ("geometric mean" in outcome.measured) == bool(mean)


def test_speedup_near_knows_its_means(tmp_path):
    rule = {"low": 1.0, "high": 1.0, "reproduced": 1.1, "partly": 1.3, "mean": "m"}
    with pytest.raises(ValueError, match="`mean` is 'm'"):
        measures.speedup_near(evidence(tmp_path), ["wide"], ["warp_per_row"], **rule)


@pytest.mark.parametrize("share,verdict", [(0.9, REPRODUCED), (0.7, PARTLY), (0.3, NOT_REPRODUCED)])
def test_share_of_ideal(tmp_path, share, verdict):
    rule = {"variant": "warp_per_row", "reproduced": 0.85, "partly": 0.6}
    e = evidence(tmp_path, frames(lambda m, n, k, d: share / d))
    outcome = measures.share_of_ideal(e, ALL, **rule)
    assert outcome.verdict == verdict and f"geometric mean {share:.0%}" in outcome.measured
    assert judged(tmp_path / "b", "share_of_ideal", 1.0, **rule) == NOT_REPRODUCED  # of 20 to 200


@pytest.mark.parametrize(
    "speedup,tolerance,verdict",
    [
        (1.3, 0.0, REPRODUCED),  # rows_per_warp is the fastest other, by 1.25
        (1.2, 0.0, NOT_REPRODUCED),
        (1.2, 0.05, REPRODUCED),
        (lambda m, n, k, d: 1.3 if d > 0.005 else 1.0, 0.0, PARTLY),
        (lambda m, n, k, d: 1.3 if d > 0.01 else 1.0, 0.0, NOT_REPRODUCED),
    ],
)
def test_fastest_of(tmp_path, speedup, tolerance, verdict):
    among = ["any_n", "rows_per_warp", "cusparse_best"]
    rule = {"variant": "warp_per_row", "among": among, "tolerance": tolerance}
    assert judged(tmp_path, "fastest_of", speedup, **rule) == verdict


def test_fastest_of_needs_all_others(tmp_path):
    with pytest.raises(evidence_.NotMeasured, match="'elsewhere' was not measured"):
        measures.fastest_of(evidence(tmp_path), ALL, "any_n", ["warp_per_row", "elsewhere"])


def test_speedup_near_is_of_every_variant(tmp_path):
    e = evidence(tmp_path, frames(1.0))
    rule = {"low": 0.95, "high": 1.05, "reproduced": 1.1, "partly": 1.3}
    near = measures.speedup_near(e, ALL, ["warp_per_row", "column_tiles"], **rule)
    far = measures.speedup_near(e, ALL, ["warp_per_row", "rows_per_warp"], **rule)
    assert (near.verdict, far.verdict) == (REPRODUCED, PARTLY)
    assert far.measured == "warp_per_row 1×, rows_per_warp 1.25×"
    alone = measures.speedup_near(e, ALL, ["any_n"], baseline="column_tiles", **rule)
    assert alone.measured == "any_n 0.808× over column_tiles"


@pytest.mark.parametrize("tflops,verdict", [(10, REPRODUCED), (25, PARTLY), (1, NOT_REPRODUCED)])
def test_rate_near(tmp_path, tflops, verdict):
    e = evidence(tmp_path, frames(tflops=float(tflops)))
    rule = {"low": 8, "high": 9, "reproduced": 1.2, "partly": 3}
    assert measures.rate_near(e, ALL, ["warp_per_row"], **rule).verdict == verdict


def test_rate_near_counts_the_dense_product(tmp_path):
    e = evidence(tmp_path, frames(tflops=2.0)).only({"density": 0.01})
    rule = {"low": 200, "high": 200, "reproduced": 1.0, "partly": 1.5}
    dense = measures.rate_near(e, ALL, ["cusparse_alg2"], dense=True, **rule)
    assert dense.verdict == REPRODUCED and dense.measured == "cusparse_alg2 200 TFLOP/s"
    assert measures.rate_near(e, ALL, ["cusparse_alg2"], **rule).verdict == NOT_REPRODUCED


@pytest.mark.parametrize(
    "knee,verdict",
    [
        (2048, REPRODUCED),
        (1024, PARTLY),  # one step off
        (4096, PARTLY),
        (8192, NOT_REPRODUCED),
        (512, NOT_REPRODUCED),
    ],
)
def test_levels_off(tmp_path, knee, verdict):
    made = frames()
    wide = made["wide"]
    wide["tflops"] = np.minimum(wide["n"], knee) * np.where(wide["n"] > knee, 0.95, 1.0)
    e = evidence(tmp_path, made)
    rule = {"along": "n", "low": 2048, "high": 2048, "flat": 0.1}
    outcome = measures.levels_off(e, ["wide"], ["warp_per_row", "any_n"], **rule)
    assert outcome.verdict == verdict and f"any_n from N = {knee} on" in outcome.measured


def test_levels_off_needs_three_sizes(tmp_path):
    e = evidence(tmp_path).only({"n": [512, 1024]})
    with pytest.raises(evidence_.NotMeasured, match="three sizes"):
        measures.levels_off(e, ["wide"], ["any_n"], along="n", low=1, high=1, flat=0.1)


@pytest.mark.parametrize(
    "speedup,verdict",
    [
        ({"wide": 0.7, "square": 0.8, "tall": 1.1}, REPRODUCED),
        (0.9, NOT_REPRODUCED),
        (lambda m, n, k, d: 1.1 if n == 512 else 0.5, PARTLY),
    ],
)
def test_somewhere_faster(tmp_path, speedup, verdict):
    assert judged(tmp_path, "somewhere_faster", speedup, variant="warp_per_row") == verdict


@pytest.mark.parametrize(
    "speedup,direction,verdict",
    [
        (lambda m, n, k, d: 0.9 - 0.05 * np.log2(n / 512), "falls", REPRODUCED),
        (lambda m, n, k, d: 0.9 - 0.05 * np.log2(n / 512), "rises", NOT_REPRODUCED),
        (lambda m, n, k, d: 0.5 + 0.05 * np.log2(n / 512), "rises", REPRODUCED),
        (0.7, "falls", NOT_REPRODUCED),
        (lambda m, n, k, d: 0.7 - 0.002 * np.log2(n / 512), "falls", NOT_REPRODUCED),  # within 5%
        (lambda m, n, k, d: 0.9 - (d > 0.005) * 0.05 * np.log2(n / 512), "falls", PARTLY),
    ],
)
def test_speedup_trend(tmp_path, speedup, direction, verdict):
    rule = {"variant": "warp_per_row", "along": "n", "direction": direction, "change": 0.05}
    assert judged(tmp_path, "speedup_trend", speedup, ["wide"], **rule) == verdict


@pytest.mark.parametrize(
    "speedups,verdict",
    [
        ((0.9, 0.8, 0.7, 0.6), REPRODUCED),
        ((0.8, 0.9, 0.7, 0.6), PARTLY),  # up before it falls
        ((0.9, 0.8, 0.8, 0.6), PARTLY),  # even for a step
        ((0.6, 0.7, 0.8, 0.9), NOT_REPRODUCED),
    ],
)
def test_speedup_trend_at_each_step(tmp_path, speedups, verdict):
    sizes = sorted(frames()["wide"]["n"].unique())
    at = dict(zip(sizes, np.interp(np.linspace(0, 3, len(sizes)), range(4), speedups), strict=True))
    rule = {"variant": "warp_per_row", "along": "n", "direction": "falls", "change": 0.05}
    of = {"wide": lambda m, n, k, d: at[n]}
    assert judged(tmp_path / "a", "speedup_trend", of, ["wide"], **rule, each_step=True) == verdict
    loose = REPRODUCED if verdict == PARTLY else verdict
    assert judged(tmp_path / "b", "speedup_trend", of, ["wide"], **rule) == loose


@pytest.mark.parametrize(
    "tall,verdict",
    [(0.9, REPRODUCED), (0.75, PARTLY), (0.5, NOT_REPRODUCED)],
)
def test_faster_scenario(tmp_path, tall, verdict):
    rule = {"larger": ["tall"], "smaller": ["wide", "square"], "tolerance": 0.03}
    speedup = {"wide": 0.7, "square": 0.8, "tall": tall}
    assert judged(tmp_path, "faster_scenario", speedup, variant="warp_per_row", **rule) == verdict


def test_faster_scenario_of_equals_is_partly(tmp_path):
    rule = {"larger": ["tall"], "smaller": ["wide"], "tolerance": 0.03}
    assert judged(tmp_path, "faster_scenario", 0.7, variant="warp_per_row", **rule) == PARTLY


@pytest.mark.parametrize(
    "factors,verdict",
    [
        ((1.2, 1.2, 1.2), REPRODUCED),
        ((1.2, 1.2, 1.0), PARTLY),
        ((1.2, 1.0, 0.9), NOT_REPRODUCED),
        ((1.04, 1.04, 1.04), NOT_REPRODUCED),  # within 5%
    ],
)
def test_label_trend(tmp_path, factors, verdict):
    """factors: of the rate from the first label to the last, at each density."""
    first = synthetic.experiment("wide", label="vectors of 4")
    last = synthetic.experiment("wide")
    last["tflops"] *= last["density"].map(dict(zip(synthetic.DENSITIES, factors, strict=True)))
    made = {"wide": pd.concat([first, last], ignore_index=True)}
    rule = {"labels": ["vectors of 2", "vectors of 4", ""], "change": 0.05}
    e = evidence(tmp_path, made)
    outcome = measures.label_trend(e, ["wide"], "warp_per_row", **rule)
    assert outcome.verdict == verdict
    with pytest.raises(evidence_.NotMeasured, match="two of these labels"):
        measures.label_trend(e, ["wide"], "warp_per_row", labels=["", "other"], change=0.05)


@pytest.mark.parametrize(
    "speedup,verdict",
    [
        (0.7, REPRODUCED),
        (
            lambda m, n, k, d: 2**15 / m,
            PARTLY,
        ),  # the kernel's time grows with m², cuSPARSE's does not
    ],
)
def test_power_law(tmp_path, speedup, verdict):
    rule = {"variants": ["warp_per_row", "cusparse_best"], "along": "m"}
    rule |= {"low": 1, "high": 1, "tolerance": 0.1, "scatter": 1.25}
    assert judged(tmp_path, "power_law", speedup, ["tall"], **rule) == verdict


def test_power_law_fails_on_the_wrong_exponent_and_on_scatter(tmp_path):
    rule = {"along": "m", "low": 1, "high": 1, "tolerance": 0.1}
    alone = {"variants": ["warp_per_row"], "scatter": 1.25}
    squared = judged(tmp_path / "a", "power_law", lambda m, *_: 2**15 / m, ["tall"], **rule | alone)
    jumpy = judged(
        tmp_path / "b",
        "power_law",
        lambda m, *_: 2.0 if m in (2**16, 2**19) else 0.5,
        ["tall"],
        **rule | alone,
    )
    assert squared == jumpy == NOT_REPRODUCED


@pytest.mark.parametrize(
    "error,verdict", [(2e-7, REPRODUCED), (5e-6, PARTLY), (2e-5, NOT_REPRODUCED)]
)
def test_largest(tmp_path, error, verdict):
    e = evidence(tmp_path, frames(rel_err=error))
    rule = {"column": "rel_err", "reproduced": 1e-6, "partly": 1e-5}
    assert measures.largest(e, ALL, "warp_per_row", **rule).verdict == verdict


def test_largest_of_several_variants_is_that_of_the_worst(tmp_path):
    made = frames()
    made["wide"].loc[made["wide"]["variant"] == "any_n", "max_err"] = 0.015
    e, rule = evidence(tmp_path, made), {"column": "max_err", "reproduced": 1e-3, "partly": 1e-2}
    assert measures.largest(e, ALL, ["warp_per_row"], **rule).verdict == REPRODUCED
    assert measures.largest(e, ALL, ["warp_per_row", "any_n"], **rule).verdict == NOT_REPRODUCED


@pytest.mark.parametrize(
    "fill,verdict", [(1.0, REPRODUCED), (0.95, PARTLY), (0.75, NOT_REPRODUCED)]
)
def test_true_density(tmp_path, fill, verdict):
    e = evidence(tmp_path, frames(fill=fill))
    assert measures.true_density(e, ALL, "warp_per_row", tolerance=0.02).verdict == verdict


@pytest.mark.parametrize(
    "tflops,verdict", [(20.0, REPRODUCED), (40.0, PARTLY), (55.0, NOT_REPRODUCED)]
)
def test_share_of_ceiling(tmp_path, tflops, verdict):
    e = evidence(tmp_path, frames(tflops=tflops))
    rule = {"ceiling": "fma", "unit": "tflops", "reproduced": 0.5, "partly": 0.75}
    assert measures.share_of_ceiling(e, ALL, ["warp_per_row"], **rule).verdict == verdict


@pytest.mark.parametrize(
    "tflops,verdict", [(50.0, REPRODUCED), (44.0, PARTLY), (10.0, NOT_REPRODUCED)]
)
def test_share_of_ceiling_that_must_be_reached(tmp_path, tflops, verdict):
    """The point farthest from the ceiling decides, where the others reach it."""
    made = frames(tflops=60.0)
    made["wide"].loc[made["wide"]["n"] == 1024, "tflops"] = tflops
    rule = {"ceiling": "fma", "unit": "tflops", "reproduced": 0.8, "partly": 0.7}
    outcome = measures.share_of_ceiling(evidence(tmp_path, made), ALL, ["warp_per_row"], **rule)
    assert outcome.verdict == verdict and outcome.measured.startswith(f"at least {tflops / 60:.0%}")


@pytest.mark.parametrize(
    "low,high,verdict",
    [(2, 2, REPRODUCED), (1.9, 1.9, PARTLY), (2.2, 2.2, PARTLY), (1, 1, NOT_REPRODUCED)],
)
def test_ceiling_ratio(tmp_path, low, high, verdict):
    """The L2 of the model delivers twice what its DRAM does."""
    rule = {"ceiling": "l2_read", "over": "copy", "unit": "gbps", "low": low, "high": high}
    e = evidence(tmp_path)
    outcome = measures.ceiling_ratio(e, ["ceilings"], **rule, reproduced=1.02, partly=1.2)
    assert outcome.verdict == verdict and outcome.measured == "2.00× over copy"
    assert "l2_read 8000 GB/s, copy 4000 GB/s" in outcome.why


@pytest.mark.parametrize(
    "low,high,verdict",
    [
        (0.5, 0.6, REPRODUCED),
        (0.6, 0.6, REPRODUCED),
        (0.7, 0.7, PARTLY),
        (0.4, 0.4, PARTLY),
        (0.8, 0.8, NOT_REPRODUCED),
    ],
)
def test_roofline_transition(tmp_path, low, high, verdict):
    """The ridge of the model is at 15 FLOP/B: 1 - 15 / (64 - 2 * 15) of the large block."""
    rule = {"rows": 64, "columns": 128, "low": low, "high": high}
    outcome = measures.roofline_transition(
        evidence(tmp_path), ["ceilings"], **rule, reproduced=0.05, partly=0.2
    )
    assert outcome.verdict == verdict and outcome.measured == "56% sparsity"
    assert "ridge at 15.0 FLOP/B" in outcome.why and "L2: 85%" in outcome.why


@pytest.mark.parametrize("names", [("wgmma_sp", "copy"), ("copy", "wgmma")])
def test_ceiling_ratio_needs_both(tmp_path, names):
    rule = dict(zip(("ceiling", "over"), names, strict=True)) | {"unit": "gbps"}
    with pytest.raises(evidence_.NotMeasured, match="The ceiling 'wgmma.*' was not measured"):
        measures.ceiling_ratio(
            evidence(tmp_path), [], **rule, low=2, high=2, reproduced=1, partly=1
        )


DRAM = "dram__throughput.avg.pct_of_peak_sustained_elapsed"


@pytest.mark.parametrize(
    "ours,theirs,verdict",
    [
        (93, 92, REPRODUCED),
        (70, 65, PARTLY),
        (93, 20, PARTLY),  # only one of the two
        (30, 20, NOT_REPRODUCED),
    ],
)
def test_dram_share_from_counters(tmp_path, ours, theirs, verdict):
    table = synthetic.counters({"warp_per_row": {DRAM: ours}, "cusparse_alg2": {DRAM: theirs}})
    rule = {"variants": ["warp_per_row", "cusparse_best"], "metric": [DRAM], "often": 0.5}
    rule |= {"reproduced": 0.9, "partly": 0.6}
    assert judged(tmp_path, "dram_share", counters=table, **rule) == verdict


@pytest.mark.parametrize(
    "least,requested,verdict",
    [
        (0.95, 2.0, REPRODUCED),  # even with perfect reuse DRAM is that busy
        (0.1, 0.5, NOT_REPRODUCED),  # not even without any reuse
        (0.65, 0.8, PARTLY),
        (0.1, 2.0, None),  # could be anything: the claim is left open
    ],
)
def test_dram_share_from_bounds(tmp_path, least, requested, verdict):
    per_us = synthetic.COPY_GBPS * 1e3
    made = frames()
    for df in made.values():
        df["least_bytes"] = least * per_us * df["median_us"]
        df["requested_bytes"] = requested * per_us * df["median_us"]
    e = evidence(tmp_path, made)
    rule = {"metric": [DRAM], "often": 0.5, "reproduced": 0.9, "partly": 0.6}
    if verdict is None:
        with pytest.raises(evidence_.NotMeasured, match="between 10% and 100%"):
            measures.dram_share(e, ALL, ["warp_per_row"], **rule)
    else:
        assert measures.dram_share(e, ALL, ["warp_per_row"], **rule).verdict == verdict


MEMORY_BOUND = {"memory": ["dram", "l2"], "busy": 0.6, "share": 0.9}


@pytest.mark.parametrize(
    "dram,l2,tflops,verdict",
    [
        (10, 80, 10.0, REPRODUCED),  # any memory counts
        (40, 30, 10.0, PARTLY),  # more than arithmetic, but waiting
        (40, 30, 50.0, NOT_REPRODUCED),
    ],
)
def test_memory_bound(tmp_path, dram, l2, tflops, verdict):
    table = synthetic.counters({"warp_per_row": {"dram": dram, "l2": l2}})
    e = evidence(tmp_path, frames(tflops=tflops), table)
    outcome = measures.memory_bound(e, ALL, "warp_per_row", **MEMORY_BOUND)
    assert outcome.verdict == verdict and "the largest of dram, l2" in outcome.why


@pytest.mark.parametrize("tflops,verdict", [(1.0, REPRODUCED), (59.0, NOT_REPRODUCED)])
def test_memory_bound_without_counters(tmp_path, tflops, verdict):
    e = evidence(tmp_path, frames(tflops=tflops))
    outcome = measures.memory_bound(e, ["tall"], "warp_per_row", **MEMORY_BOUND)
    assert outcome.verdict == verdict and "no hardware counters" in outcome.why


@pytest.mark.parametrize(
    "value,rule,verdict",
    [
        (32, {"reproduced": 28.8, "partly": 24}, REPRODUCED),
        (25, {"reproduced": 28.8, "partly": 24}, PARTLY),
        (16, {"reproduced": 28.8, "partly": 24}, NOT_REPRODUCED),
        (0, {"reproduced": 0, "partly": 1000}, REPRODUCED),
        (500, {"reproduced": 0, "partly": 1000}, PARTLY),
        (5000, {"reproduced": 0, "partly": 1000}, NOT_REPRODUCED),
    ],
)
def test_counter_limit(tmp_path, value, rule, verdict):
    table = synthetic.counters({"warp_per_row": {"c": value}})
    rule = rule | {"variants": ["warp_per_row"], "metric": ["missing", "c"], "often": 1.0}
    assert judged(tmp_path, "counter_limit", counters=table, **rule) == verdict


@pytest.mark.parametrize("part,verdict", [(3, REPRODUCED), (20, PARTLY), (60, NOT_REPRODUCED)])
def test_counter_share(tmp_path, part, verdict):
    table = synthetic.counters({"warp_per_row": {"c": part, "all": 100}})
    rule = {"variants": ["warp_per_row"], "metric": ["c"], "of": "all"}
    rule |= {"reproduced": 0.05, "partly": 0.25}
    assert judged(tmp_path, "counter_share", counters=table, **rule) == verdict


@pytest.mark.parametrize("part,verdict", [(20, REPRODUCED), (3, PARTLY), (0, NOT_REPRODUCED)])
def test_counter_share_that_must_be_there(tmp_path, part, verdict):
    table = synthetic.counters({"warp_per_row": {"c": 90, "all": 100}})
    table.loc[(table["metric"] == "c") & (table["n"] == 1024), "value"] = part
    rule = {"variants": ["warp_per_row"], "metric": ["c"], "of": "all"}
    rule |= {"reproduced": 0.05, "partly": 0.01}
    assert judged(tmp_path, "counter_share", counters=table, **rule) == verdict


@pytest.mark.parametrize("more,verdict", [(1, REPRODUCED), (20, PARTLY), (60, NOT_REPRODUCED)])
def test_counter_share_of_a_sum(tmp_path, more, verdict):
    table = synthetic.counters({"warp_per_row": {"c": 3, "d": more, "all": 100}})
    rule = {"variants": ["warp_per_row"], "metric": ["c"], "plus": ["d"], "of": "all"}
    rule |= {"reproduced": 0.05, "partly": 0.25}
    assert judged(tmp_path / "a", "counter_share", counters=table, **rule) == verdict
    e = evidence(tmp_path / "b", counters=table[table["metric"] != "d"])
    with pytest.raises(evidence_.NotMeasured, match="counter d was not profiled"):
        measures.counter_share(e, ALL, **rule)


@pytest.mark.parametrize(
    "counts,tolerance,verdict",
    [
        # FLOPs are as the density, 1 : 2 : 10 (0.005, 0.01, 0.05).
        ((1, 2, 10), 0.01, NOT_REPRODUCED),  # the same for each
        ((1, 1.8, 8), 0.05, REPRODUCED),  # read from the highest density down
        ((1, 1.8, 8), 0.2, PARTLY),  # 25% over all
        ((1, 2.1, 8), 0.05, PARTLY),
        ((1, 2.1, 11), 0.05, NOT_REPRODUCED),
    ],
)
def test_flops_per_count_along_densities(tmp_path, counts, tolerance, verdict):
    table = synthetic.counters({"warp_per_row": {"c": 1.0}})
    table["value"] = table["density"].map(dict(zip(synthetic.DENSITIES, counts, strict=True)))
    rule = {"metric": ["missing", "c"], "variants": ["warp_per_row"], "tolerance": tolerance}
    rule["densities"] = sorted(synthetic.DENSITIES, reverse=True)
    assert judged(tmp_path, "flops_per_count", counters=table, **rule) == verdict


@pytest.mark.parametrize("value,verdict", [(9, REPRODUCED), (11, NOT_REPRODUCED)])
def test_flops_per_count_along_variants(tmp_path, value, verdict):
    table = synthetic.counters({"warp_per_row": {"c": value}, "any_n": {"c": 10}})
    rule = {"metric": ["c"], "variants": ["warp_per_row", "any_n"], "densities": [0.01]}
    rule["tolerance"] = 0.05
    assert judged(tmp_path, "flops_per_count", counters=table, **rule) == verdict


def test_flops_per_count_divides_by_no_zero(tmp_path):
    e = evidence(tmp_path, counters=synthetic.counters({"any_n": {"c": 0}}))
    rule = {"metric": ["c"], "variants": ["any_n"], "densities": [0.01, 0.05], "tolerance": 0.0}
    with pytest.raises(evidence_.NotMeasured, match="a value of 0"):
        measures.flops_per_count(e, ALL, **rule)


@pytest.mark.parametrize("sign,verdict", [(1, REPRODUCED), (-1, NOT_REPRODUCED)])
def test_counter_trend(tmp_path, sign, verdict):
    table = synthetic.counters({"warp_per_row": {"c": 0.0}})
    table["value"] = 1e6 + sign * (table["m"] + table["n"])
    rule = {"variant": "warp_per_row", "metric": ["c"], "along": "n", "change": 0.0}
    assert judged(tmp_path, "counter_trend", None, ["wide"], table, **rule) == verdict


@pytest.mark.parametrize("ours,verdict", [(20, REPRODUCED), (10, PARTLY), (5, NOT_REPRODUCED)])
def test_counter_ratio(tmp_path, ours, verdict):
    table = synthetic.counters({"warp_per_row": {"c": ours}, "cusparse_alg2": {"c": 10}})
    rule = {"variant": "warp_per_row", "metric": ["c"], "reproduced": 1.1, "partly": 1.0}
    assert judged(tmp_path, "counter_ratio", counters=table, **rule) == verdict


@pytest.mark.parametrize("ours,verdict", [(8, REPRODUCED), (10, PARTLY), (12, NOT_REPRODUCED)])
def test_counter_ratio_of_a_claim_to_be_smaller(tmp_path, ours, verdict):
    table = synthetic.counters(
        {"warp_per_row": {"c": ours}, "scalar": {"c": 1}, "any_n": {"c": 10}}
    )
    rule = {"variant": "warp_per_row", "baseline": "any_n", "metric": ["c"]}
    rule |= {"reproduced": 0.9, "partly": 1.0}
    assert judged(tmp_path, "counter_ratio", counters=table, **rule) == verdict


@pytest.mark.parametrize(
    "value,verdict",
    [(3.4e6, REPRODUCED), (3.7e6, REPRODUCED), (4.5e6, PARTLY), (9e6, NOT_REPRODUCED), (0, None)],
)
def test_counter_near(tmp_path, value, verdict):
    table = synthetic.counters({"warp_per_row": {"c": value}})
    rule = {"variants": ["warp_per_row"], "metric": ["c"], "low": 3.4, "high": 3.4, "per": 1e6}
    rule |= {"reproduced": 1.1, "partly": 1.5}
    verdict = verdict or NOT_REPRODUCED  # nothing is infinitely far from something
    assert judged(tmp_path, "counter_near", counters=table, **rule) == verdict


@pytest.mark.parametrize("ours,verdict", [(92, REPRODUCED), (70, PARTLY), (30, NOT_REPRODUCED)])
def test_counter_near_over_a_baseline(tmp_path, ours, verdict):
    table = synthetic.counters({"warp_per_row": {"c": ours}, "any_n": {"c": 10}})
    rule = {"variants": ["warp_per_row"], "metric": ["c"], "low": 9.2, "high": 9.2}
    rule |= {"reproduced": 1.25, "partly": 2, "baseline": "any_n"}
    assert judged(tmp_path, "counter_near", counters=table, **rule) == verdict


def test_counter_near_divides_by_no_zero(tmp_path):
    table = synthetic.counters({"warp_per_row": {"c": 5}, "any_n": {"c": 0}})
    e = evidence(tmp_path, counters=table)
    rule = {"metric": ["c"], "low": 1, "high": 1, "reproduced": 1, "partly": 2, "baseline": "any_n"}
    with pytest.raises(evidence_.NotMeasured, match="c of any_n has no positive values"):
        measures.counter_near(e, ALL, ["warp_per_row"], **rule)


STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.{}"


def stalls(**values: float) -> dict[str, float]:
    return {STALL.format(reason, "ratio"): value for reason, value in values.items()}


@pytest.mark.parametrize(
    "memory,others,verdict",
    [
        (4.2, {"wait": 1.0, "barrier": 2.0}, REPRODUCED),
        (4.2, {"wait": 1.0, "selected": 9.0}, REPRODUCED),  # a warp that issues does not wait
        (1.5, {"wait": 1.0, "barrier": 2.0}, NOT_REPRODUCED),
    ],
)
def test_dominant_stall(tmp_path, memory, others, verdict):
    table = synthetic.counters({"warp_per_row": stalls(long_scoreboard=memory, **others)})
    rule = {"variants": ["warp_per_row"], "reason": "long_scoreboard"}
    assert judged(tmp_path, "dominant_stall", counters=table, **rule) == verdict


def test_dominant_stall_at_half_of_the_points_is_partly(tmp_path):
    held = {STALL.format("wait", "ratio"): 1.0, STALL.format("long_scoreboard", "pct"): 90.0}
    table = synthetic.counters({"warp_per_row": held})
    memory = table["metric"].str.contains("long") & (table["n"] > 2048)
    table.loc[memory, "value"] = 110.0  # per cent: 1.1 warps
    rule = {"variants": ["warp_per_row"], "reason": "long_scoreboard"}
    assert judged(tmp_path, "dominant_stall", None, ["wide"], table, **rule) == PARTLY


def test_dominant_stall_of_one_reason_alone_is_not_measured(tmp_path):
    table = synthetic.counters({"warp_per_row": stalls(long_scoreboard=4.2, selected=1.0)})
    e = evidence(tmp_path, counters=table)
    with pytest.raises(evidence_.NotMeasured, match="not profiled, long_scoreboard among others"):
        measures.dominant_stall(e, ALL, ["warp_per_row"], "long_scoreboard")


@pytest.mark.parametrize("wide,verdict", [(50, REPRODUCED), (80, PARTLY), (95, NOT_REPRODUCED)])
def test_counter_scenario(tmp_path, wide, verdict):
    table = synthetic.counters({"warp_per_row": {"c": 80}})
    table.loc[table["n"].gt(table["m"]) | table["n"].lt(table["k"]), "value"] = wide
    rule = {"variant": "warp_per_row", "metric": ["c"], "tolerance": 0.05}
    rule |= {"larger": "square", "smaller": "wide"}
    assert judged(tmp_path, "counter_scenario", counters=table, **rule) == verdict


@pytest.mark.parametrize(
    "share,verdict",
    [
        (0.05, REPRODUCED),
        (0.11, REPRODUCED),
        (0.15, PARTLY),
        (0.3, NOT_REPRODUCED),
        (0.0, NOT_REPRODUCED),
        (-0.05, NOT_REPRODUCED),
    ],
)
def test_added_memory(tmp_path, share, verdict):
    made = frames()
    for df in made.values():
        df["prepare_bytes"] = 1e9
        df.loc[df["variant"] == "any_n", "prepare_bytes"] += share * 4 * df["nnz"]
    rule = {"low": 0.01, "high": 0.1, "reproduced": 1.2, "partly": 2.0}
    e = evidence(tmp_path, made)
    assert measures.added_memory(e, ALL, "any_n", "warp_per_row", **rule).verdict == verdict


@pytest.mark.parametrize("launches,verdict", [(3, REPRODUCED), (50, PARTLY), (500, NOT_REPRODUCED)])
def test_prepare_cost(tmp_path, launches, verdict):
    made = frames()
    for df in made.values():
        df["prepare_ms"] = launches * df["median_us"] / 1e3
    e = evidence(tmp_path, made)
    outcome = measures.prepare_cost(e, ALL, "cusparse_best", reproduced=10, partly=100)
    assert outcome.verdict == verdict


def test_every_measure_has_a_rule_in_its_docstring_and_a_test():
    tests = " ".join(name for name in globals() if name.startswith("test_"))
    for name, measure in measures.MEASURES.items():
        text = " ".join(measure.__doc__.split()).lower()
        assert "reproduced" in text and "partly" in text, name
        assert f"test_{name}" in tests, name


# ---------------------------------------------------------------- evidence


def test_the_best_of_the_room_is_a_contender(tmp_path):
    e = evidence(tmp_path)
    outcome = measures.speedup_mean(e, ALL, "room_best", reproduced=1.1, partly=1.0)
    assert outcome.measured == "geometric mean 1.25×"  # rows_per_warp takes 0.8 of cuSPARSE's time


@pytest.mark.parametrize("library", ["cublas_handle", "cublas", "cpu_blas", "cusparselt"])
def test_a_library_is_never_the_best_of_the_room(tmp_path, library):
    """And a room whose baseline is another library than cuSPARSE is read all the same."""
    made = {
        name: df[~df["variant"].str.startswith("cusparse")].replace("rows_per_warp", library)
        for name, df in frames().items()
    }
    e = evidence(tmp_path, made)  # the library is the fastest of all
    df = e.frame(ALL)
    assert set(df.loc[df["variant"] == "room_best", "best_of"]) == {"l2_panels"}
    assert "cusparse_best" not in set(df["variant"])
    outcome = measures.share_of_points(e, ALL, "any_n", "baseline", baseline=library)
    assert outcome.measured.lower() == f"{library} faster at 54 of 54 points"
    assert "of any_n over " + library in outcome.why.lower()


def test_figures_know_every_library_that_claims_know():
    assert all(library.startswith(style.BASELINES) for library in baselines.PREFIXES)
    assert all(name.startswith(baselines.PREFIXES) for name in style.NAMES)


# ---------------------------------------------------------------- published series

FIG1 = """# Somebody, Fig. 1.
gpu,library,density,point,m,n,k,tflops
X,cublas,1,0,2,3,4,10
X,sparse,0.5,0,2,3,4,15
X,sparse,0.25,0,2,3,4,30
Y,sparse,0.5,0,2,3,4,5
"""


def series(tmp_path) -> evidence_.Evidence:
    (tmp_path / "casper_sparse_fig1.csv").write_text(FIG1)
    return evidence_.Evidence(tmp_path / "gpu", "casper_sparse", published=tmp_path)


def test_a_published_series_is_evidence(tmp_path):
    """Rates are those of the dense product, and the dense library stands at every density."""
    df = series(tmp_path).frame(["fig1@X"]).set_index(["variant", "density"])
    assert len(df) == 4 and set(df["experiment"]) == {"fig1@X"}
    assert df["median_us"]["cublas", 0.5] == df["median_us"]["cublas", 0.25]
    assert df["median_us"]["cublas", 0.5] == pytest.approx(48 / 10 / 1e6)
    assert df["tflops"]["sparse", 0.25] == pytest.approx(30 * 0.25)
    assert df["useful_flops"]["sparse", 0.25] == 12
    rule = {"variant": "sparse", "baseline": "cublas", "reproduced": 1.4, "partly": 1.0}
    half = series(tmp_path).only({"density": 0.5})
    assert measures.speedup_mean(half, ["fig1@X"], **rule).measured == (
        "geometric mean 1.50× over cublas"
    )


@pytest.mark.parametrize(
    "experiment,error,says",
    [
        ("fig1@Z", ValueError, "no series of the GPU 'Z'"),
        ("fig2@X", FileNotFoundError, "casper_sparse_fig2.csv: there are no such published"),
    ],
)
def test_a_series_that_is_not_there_is_an_error(tmp_path, experiment, error, says):
    with pytest.raises(error, match=says):
        series(tmp_path).frame([experiment])


# ---------------------------------------------------------------- where

# ---------------------------------------------------------------- where


def test_where_keeps_points_for_times_and_for_counters(tmp_path):
    table = synthetic.counters({"warp_per_row": {"c": 1}})
    table.loc[table["n"] == 1024, "value"] = 7
    e = evidence(tmp_path, frames(lambda m, n, k, d: 2.0 if n == 1024 else 0.5), table)
    one = e.only({"n": 1024, "density": [0.01, 0.05]})
    assert len(one.frame(["wide"])["n"]) and set(one.frame(["wide"])["n"]) == {1024}
    assert set(one.frame(["wide"])["density"]) == {0.01, 0.05}
    assert set(one.counter("warp_per_row", ["c"], ["wide"])) == {7}
    rule = {"variant": "warp_per_row", "faster": "variant"}
    assert measures.share_of_points(one, ["wide"], **rule).verdict == REPRODUCED
    assert measures.share_of_points(e, ["wide"], **rule).verdict == NOT_REPRODUCED


def test_where_nothing_is_left_nothing_is_measured(tmp_path):
    e = evidence(tmp_path).only({"n": [3, 5]})
    with pytest.raises(evidence_.NotMeasured, match="of wide have nothing at n = 3 or 5"):
        measures.speedup_mean(e, ["wide"], "warp_per_row", reproduced=1.1, partly=1.0)


def test_the_ledger_says_where_a_claim_was_judged(tmp_path):
    text = GOOD.replace("tolerance = 0.05", "tolerance = 0.05, where = { n = [512, 1024] }")
    folder = synthetic.folder(tmp_path, frames(lambda m, n, k, d: 0.7 if n <= 1024 else 9.0))
    (row,) = judge.judge(load(tmp_path, text), folder).to_dict("records")
    assert row["verdict"] == REPRODUCED and "Judged at n = 512 or 1024." in row["why"]
    assert "of 6 points lie" in row["why"]
    assert judge.judge(load(tmp_path, GOOD), folder)["verdict"].item() != REPRODUCED


REPEATS = """
[sources.casper_sparse]
name = "casperSPARSE"
[sources.casper_sparse.minutes]
wide = 2
square = 3
counters = 1
[[claim]]
id = "a"
source = "casper_sparse"
where = "V.A"
says = "It is twice as fast."
experiment = ["wide", "square"]
published = "twice"
measure = "speedup_near"
[claim.rule]
variants = ["warp_per_row"]
baseline = "any_n"
low = 2
high = 2
reproduced = 1.1
partly = 1.5
repeats = true
"""


def two_runs(tmp_path, first=1.0, second=4.0) -> Path:
    """The wide sweep twice, the second time as the square one; warp_per_row is so much faster than
    any_n, but at the largest n, which the second lacks, exactly twice as fast."""
    made = {}
    for name, speedup in (("wide", first), ("square", second)):
        df = frames()["wide"].assign(experiment=name)
        last = df["n"] == df["n"].max()
        ours, theirs = df["variant"] == "warp_per_row", df["variant"] == "any_n"
        df.loc[theirs, "median_us"] = 100.0
        df.loc[ours, "median_us"] = np.where(last[ours], 50.0, 100.0 / speedup)
        df["q25_us"] = df["q75_us"] = df["median_us"]
        made[name] = df if name == "wide" else df[~last]
    return synthetic.folder(tmp_path, made)


def test_runs_of_one_measurement_are_judged_by_their_mean(tmp_path):
    folder = two_runs(tmp_path)
    (row,) = judge.judge(load(tmp_path, REPEATS), folder).to_dict("records")
    assert row["verdict"] == REPRODUCED and row["measured"] == "warp_per_row 2× over any_n"
    assert "wide alone: warp_per_row 1–2× over any_n (not reproduced)" in row["why"]
    assert "square alone: warp_per_row 4× over any_n (not reproduced)" in row["why"]
    points = len(frames()["wide"].drop_duplicates(list(records.POINT)))
    assert f"of {points} points" in row["why"]  # each once
    apart = judge.judge(load(tmp_path, REPEATS.replace("repeats = true", "")), folder)
    assert apart["verdict"].item() == NOT_REPRODUCED and "alone" not in apart["why"].item()


def test_a_point_that_one_run_lacks_is_that_of_the_other(tmp_path):
    folder = two_runs(tmp_path)
    largest = max(frames()["wide"]["n"])
    text = REPEATS.replace("repeats = true", f"repeats = true\nwhere = {{ n = {largest} }}")
    (row,) = judge.judge(load(tmp_path, text), folder).to_dict("records")
    assert row["verdict"] == REPRODUCED and "square alone: not measured" in row["why"]
    (folder / "casper_sparse" / "square.csv").unlink()
    assert judge.judge(load(tmp_path, text), folder)["verdict"].item() == NOT_MEASURED


def test_rates_and_best_contenders_of_runs_are_means_too(tmp_path):
    runs = evidence_.Evidence(two_runs(tmp_path), "casper_sparse").only({}, repeats=True)
    df = runs.frame(["wide", "square", "counters"])
    assert set(df["experiment"]) == {"wide and square"}
    assert not df.duplicated(list(records.KEY)).any() and "room_best" in set(df["variant"])
    assert set(runs.frame(["wide"])["experiment"]) == {"wide"}


def test_counters_of_the_best_algorithm_are_those_of_the_one_that_was_fastest(tmp_path):
    table = synthetic.counters({"cusparse_alg1": {"c": 1}, "cusparse_alg2": {"c": 2}})
    e = evidence(tmp_path, counters=table)
    assert set(e.counter("cusparse_best", ["c"], ALL)) == {2}


@pytest.mark.parametrize(
    "spoil,says",
    [
        (lambda folder: (folder / "casper_sparse" / "tall.csv").unlink(), "experiment 'tall'"),
        (lambda folder: None, "no hardware counters"),
    ],
)
def test_missing_records_are_not_measured(tmp_path, spoil, says):
    folder = synthetic.folder(tmp_path, with_ceilings=False)
    spoil(folder)
    df = judge.judge(load_.claims(), folder)
    assert df[df["verdict"] == NOT_MEASURED]["why"].str.contains(says).any()
    assert len(df) == len(load_.claims())


def test_an_empty_folder_measures_nothing(tmp_path):
    """But for the series that a source published, which need no GPU."""
    of_records = [c for c in load_.claims() if not all(evidence_.SERIES in e for e in c.experiment)]
    assert set(judge.judge(of_records, tmp_path)["verdict"]) == {NOT_MEASURED}


def test_a_broken_record_is_an_error_and_no_verdict(tmp_path):
    folder = synthetic.folder(tmp_path)
    path = folder / "casper_sparse" / "wide.csv"
    path.write_text(path.read_text()[:-40])
    with pytest.raises(ValueError, match=r"wide\.csv: row"):
        judge.judge(load_.claims(), folder)


# ---------------------------------------------------------------- the claims themselves


def test_the_ledger_follows_the_records(tmp_path):
    """The abstract and section V disagree about who is faster; the records decide."""
    slow = judge.judge(load_.claims(), synthetic.folder(tmp_path / "slow")).set_index("id")
    fast = judge.judge(load_.claims(), synthetic.folder(tmp_path / "fast", frames(1.3)))
    fast = fast.set_index("id")
    assert slow.verdict["abstract-speedup"] == NOT_REPRODUCED
    assert slow.verdict["summary-cusparse-faster"] == REPRODUCED
    assert fast.verdict["abstract-speedup"] == REPRODUCED
    assert fast.verdict["summary-cusparse-faster"] == NOT_REPRODUCED
    assert "summary-cusparse-faster" in slow.why["abstract-speedup"]
    assert "default algorithm" in slow.why["wide-speedup"]
    assert slow.published["wide-speedup"] == "0.55–0.90×"


def test_every_kind_of_claim_of_the_source_is_there():
    ids = {claim.id for claim in load_.claims() if claim.room == "casper_sparse"}
    assert len(ids) >= 30
    sections = {claim.where.split(",")[0].split(";")[0] for claim in load_.claims()}
    assert {"abstract", "I", "III.A", "III.B", "III.C", "V", "V.A", "V.B", "V.C", "V.D"} <= sections


def test_published_numbers_and_claims_belong_together():
    """Of casperSPARSE every number is put on trial; `test_published_nm.py` has its own rule."""
    used = {
        (claim["published"]["figure"], claim["published"]["quantity"])
        for claim in tomllib.loads(load_.TOML.read_text())["claim"]
        if isinstance(claim["published"], dict) and claim["source"] == "casper_sparse"
    }
    held = {
        (path.stem, quantity)
        for path in paths.PUBLISHED.glob("fig*.csv")
        for quantity in records.published(path)["quantity"]
    }
    assert used == held


def test_the_profiler_is_told_which_counters_claims_use():
    wanted = load_.counters_wanted(load_.claims())
    assert DRAM in wanted and len(wanted) == len(set(wanted))
    assert set(wanted) <= set(ncu.METRICS)
    asked = [c.rule[key] for c in load_.claims() for key in ("metric", "plus") if key in c.rule]
    assert {metric for metrics in asked for metric in metrics} <= set(wanted)


GOOD = """
[sources.casper_sparse]
name = "casperSPARSE"
[sources.casper_sparse.minutes]
wide = 2
counters = 3
[[claim]]
id = "a"
source = "casper_sparse"
where = "V.A"
says = "It is slower."
experiment = ["wide", "counters"]
measure = "speedup_range"
rule = { variant = "warp_per_row", tolerance = 0.05 }
published = { figure = "fig4_wide", quantity = "speedup" }
"""


def load(tmp_path, text: str) -> list[load_.Claim]:
    path = tmp_path / "claims.toml"
    path.write_text(text)
    return load_.claims(path)


def test_a_claim_takes_its_range_from_the_published_numbers(tmp_path):
    (claim,) = load(tmp_path, GOOD)
    assert (claim.rule["low"], claim.rule["high"]) == (0.55, 0.9)
    assert claim.minutes == 5 and claim.source == "casperSPARSE"


def test_a_claim_may_replace_one_bound_of_the_published_numbers(tmp_path):
    (claim,) = load(tmp_path, GOOD.replace("tolerance", "high = inf, tolerance"))
    assert (claim.rule["low"], claim.rule["high"]) == (0.55, math.inf)
    assert claim.published == "0.55–0.90×"


@pytest.mark.parametrize(
    "old,new,says",
    [
        ('says = "It is slower."\n', "", "claim 'a' has no 'says'"),
        ('where = "V.A"', 'where = "V.A"\nwhen = 1', "has a key 'when'"),
        ('"speedup_range"', '"guess"', "asks for the measure 'guess'; known: share_of_points"),
        ('["wide", "counters"]', '["deep"]', "experiment 'deep'; known: wide, counters"),
        ('source = "casper_sparse"', 'source = "x"', "is from 'x'; known sources: casper_sparse"),
        ("tolerance = 0.05", "slack = 1", "gives 'slack' to speedup_range"),
        (", tolerance = 0.05", "", "does not give 'tolerance'"),
        ('quantity = "speedup"', 'quantity = "joy"', "no single quantity 'joy'"),
        ('figure = "fig4_wide"', 'figure = "fig9"', "no such published numbers"),
        (
            'quantity = "speedup"',
            'quantity = "speedup", size = 1',
            "fig4_wide.csv has no column 'size'",
        ),
        ('"speedup" }', '"speedup", where = "V" }', "no single quantity 'speedup' at where = V"),
        ("tolerance = 0.05", 'tolerance = 0.05, where = "n"', "a 'where' that is not a table of"),
        ("tolerance = 0.05", "tolerance = 0.05, where = { size = 1 }", "not a table of columns"),
        ("tolerance = 0.05", "tolerance = 0.05, repeats = true", "no two experiments that repeat"),
        ("wide = 2", "wide = 2 2", "not valid TOML"),
        ('says = "It', 'contradicts = ["b"]\nsays = "It', "contradicts 'b', which is no claim"),
    ],
)
def test_a_malformed_claim_is_one_sentence(tmp_path, old, new, says):
    assert old in GOOD
    with pytest.raises((ValueError, FileNotFoundError)) as error:
        load(tmp_path, GOOD.replace(old, new))
    assert says in str(error.value) and "\n" not in str(error.value)


def test_an_id_is_there_once(tmp_path):
    with pytest.raises(ValueError, match="'a' is there twice"):
        load(tmp_path, GOOD + GOOD[GOOD.index("[[claim]]") :])


# ---------------------------------------------------------------- the table in the book


def test_the_ledger_is_a_table_with_badges_in_words(tmp_path):
    df = judge.judge(load_.claims(), synthetic.folder(tmp_path))
    text = page.ledger(df)
    assert text.count("<tr") == len(df) + 1
    assert f"<p>{len(df)} claims" in text
    for claim in load_.claims():
        assert f'id="claim-{claim.id}"' in text
    for verdict in set(df["verdict"]):
        assert f"{verdict}</span>" in text
    assert "http" not in text and "<script" not in text
    linked = set(re.findall('href="#(claim-[^"]*)"', text))
    assert "claim-wide-cusparse-faster" in linked
    assert linked <= set(re.findall('id="(claim-[^"]*)"', text))


def test_the_ledger_escapes_what_it_shows():
    row = dict.fromkeys(judge.LEDGER_COLUMNS, "<b> & co") | {"verdict": PARTLY, "minutes": 1.0}
    text = page.ledger(pd.DataFrame([row]))
    assert "<b>" not in text and "&lt;b&gt; &amp; co" in text


def test_only_verdicts_have_badges():
    with pytest.raises(ValueError, match="'maybe' is no verdict"):
        page.badge("maybe")


def test_the_style_sheet_knows_every_badge():
    sheet = (paths.ROOT / "book" / "_static" / "custom.css").read_text()
    for verdict in measures.VERDICTS:
        (name,) = re.findall(r'class="([\w-]+)"', page.badge(verdict))
        assert f".{name} {{ color:" in sheet, verdict
