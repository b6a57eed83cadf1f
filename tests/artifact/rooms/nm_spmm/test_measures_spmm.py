"""The measures that only claims of NM-SpMM need."""

import pandas as pd
import pytest
import synthetic
from judging import ALL, evidence, frames, outcome

from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED

ROOM = "nm_spmm"


@pytest.mark.parametrize(
    "speedup,expected",
    [
        (lambda m, n, k, d: 0.9 / d, REPRODUCED),
        (lambda m, n, k, d: 0.7 / d, PARTLY),
        (lambda m, n, k, d: 0.3 / d, NOT_REPRODUCED),
        (1.0, NOT_REPRODUCED),  # of 20 to 200
    ],
)
def test_the_share_of_the_ideal_speedup(speedup, expected):
    quantity = {"share_of_ideal": "warp_per_row", "over": "cusparse_best"}
    expect = {"at_least": 0.85, "partly": 0.6}
    got = outcome(evidence(frames(speedup)), quantity, "geometric mean", expect, room=ROOM)
    assert got.verdict == expected and "of the ideal speedup over cusparse_best" in got.measured


DOWN = sorted(synthetic.DENSITIES, reverse=True)


@pytest.mark.parametrize(
    "counts,change,expected",
    [
        # FLOPs are as the density, 1 : 2 : 10 (0.005, 0.01, 0.05).
        ((1, 2, 10), 0.01, NOT_REPRODUCED),  # the same for each
        ((1, 1.8, 8), 0.05, REPRODUCED),  # read from the highest density down
        ((1, 1.8, 8), 0.2, PARTLY),  # 25% over all
        ((1, 2.1, 8), 0.05, PARTLY),
        ((1, 2.1, 11), 0.05, NOT_REPRODUCED),
    ],
)
def test_flops_per_count_along_densities(counts, change, expected):
    table = synthetic.counters({"warp_per_row": {"c": 1.0}})
    table["value"] = table["density"].map(dict(zip(synthetic.DENSITIES, counts, strict=True)))
    quantity = {"flops_per_count": "c", "of": "warp_per_row"}
    expect = {"falls_at_each_step": change}
    got = outcome(evidence(counters=table), quantity, {"steps": DOWN}, expect, room=ROOM)
    assert got.verdict == expected and "of 2 steps fall" in got.measured


@pytest.mark.parametrize("value,expected", [(9, REPRODUCED), (11, NOT_REPRODUCED)])
def test_flops_per_count_along_contenders(value, expected):
    table = synthetic.counters({"warp_per_row": {"c": value}, "any_n": {"c": 10}})
    e = evidence(counters=table).only({"density": 0.01})
    quantity = {"flops_per_count": "c", "of": ["warp_per_row", "any_n"]}
    got = outcome(e, quantity, "steps", {"falls_at_each_step": 0.05}, room=ROOM)
    assert got.verdict == expected


def test_flops_per_count_divides_by_no_zero():
    e = evidence(counters=synthetic.counters({"any_n": {"c": 0}}))
    quantity, expect = {"flops_per_count": "c", "of": "any_n"}, {"falls_at_each_step": 0.0}
    with pytest.raises(NotMeasured, match="a value of 0"):
        outcome(e, quantity, {"steps": [0.01, 0.05]}, expect, room=ROOM)
    e = evidence(counters=synthetic.counters({"any_n": {"c": 1}}))
    with pytest.raises(NotMeasured, match="nothing was measured of any_n at density 70 %"):
        outcome(e, quantity, {"steps": [0.01, 0.7]}, expect, room=ROOM)


@pytest.mark.parametrize(
    "low,high,expected",
    [
        (0.5, 0.6, REPRODUCED),
        (0.6, 0.6, REPRODUCED),
        (0.7, 0.7, PARTLY),
        (0.4, 0.4, PARTLY),
        (0.8, 0.8, NOT_REPRODUCED),
    ],
)
def test_the_transition_of_the_roofline(low, high, expected):
    """The ridge of the model is at 15 FLOP/B: 1 - 15 / (64 - 2 * 15) of the large block."""
    expect = {"within": [low, high], "tolerance": 0.05, "partly": 0.2}
    quantity = {"roofline_transition": [64, 128]}
    got = outcome(evidence(), quantity, "each point", expect, ["ceilings"], ROOM)
    assert got.verdict == expected and got.measured == "56% sparsity"
    assert "ridge at 15.0 FLOP/B" in got.why and "L2: 85%" in got.why


@pytest.mark.parametrize(
    "factors,expected",
    [
        ((1.2, 1.2, 1.2), REPRODUCED),
        ((1.2, 1.2, 1.0), PARTLY),
        ((1.2, 1.0, 0.9), NOT_REPRODUCED),
        ((1.04, 1.04, 1.04), NOT_REPRODUCED),  # within 5%
    ],
)
def test_the_trend_of_labels(factors, expected):
    """factors: of the rate from the first label to the last, at each density."""
    first = synthetic.experiment("wide", label="vectors of 4")
    last = synthetic.experiment("wide")
    last["tflops"] *= last["density"].map(dict(zip(synthetic.DENSITIES, factors, strict=True)))
    e = evidence({"wide": pd.concat([first, last], ignore_index=True)})

    def got(*labels):
        reduce = {"trend_of_labels": list(labels)}
        return outcome(e, {"tflops": "warp_per_row"}, reduce, {"rises": 0.05}, ["wide"], ROOM)

    assert got("vectors of 2", "vectors of 4", "").verdict == expected
    with pytest.raises(NotMeasured, match="two of these labels"):
        got("", "other")


@pytest.mark.parametrize(
    "share,expected",
    [
        (0.05, REPRODUCED),
        (0.11, REPRODUCED),
        (0.15, PARTLY),
        (0.3, NOT_REPRODUCED),
        (0.0, NOT_REPRODUCED),
        (-0.05, NOT_REPRODUCED),
    ],
)
def test_added_memory(share, expected):
    made = frames()
    for df in made.values():
        df["prepare_bytes"] = 1e9
        df.loc[df["variant"] == "any_n", "prepare_bytes"] += share * 4 * df["nnz"]
    quantity = {"added_memory": "any_n", "over": "warp_per_row"}
    expect = {"near": [0.01, 0.1], "factor": 1.2, "partly": 2.0}
    got = outcome(evidence(made), quantity, "each point", expect, ALL, ROOM)
    assert got.verdict == expected


@pytest.mark.parametrize("sign,expected", [(1.0, REPRODUCED), (-1.0, NOT_REPRODUCED)], ids=["alike", "opposite"])
def test_the_rank_correlation_with_another_experiment(sign, expected):
    speedups = {
        "wide": lambda m, n, k, d: n**0.1 + d,
        "square": lambda m, n, k, d: (n**0.1 + d) ** (3 * sign),
    }
    made = {name: synthetic.experiment("wide", of).assign(experiment=name) for name, of in speedups.items()}
    quantity = {"speedup": ["warp_per_row"], "over": "cusparse_best"}

    def got(*names):
        expect = {"at_least": 0.9, "partly": 0.7}
        reduce = {"rank_correlation": "wide"}
        return outcome(evidence(made), quantity, reduce, expect, names, ROOM)

    found = got("wide", "square")
    assert found.verdict == expected and f"warp_per_row square {sign:.2f}" in found.why
    with pytest.raises(NotMeasured, match="nothing to hold against wide"):
        got("square")
