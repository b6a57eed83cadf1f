"""The measures that only claims of casperSPARSE need; DRAM use without counters is in test_judge."""

import numpy as np
import pytest
import synthetic
from judging import SPEEDUP, evidence, frames, outcome

from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED


@pytest.mark.parametrize(
    "ours,theirs,expected",
    [
        (93, 92, REPRODUCED),
        (70, 65, PARTLY),
        (93, 20, PARTLY),  # only one of the two
        (30, 20, NOT_REPRODUCED),
    ],
)
def test_dram_use_from_counters(ours, theirs, expected):
    table = synthetic.counters({"warp_per_row": {"dram": ours}, "cusparse_alg2": {"dram": theirs}})
    quantity = {"dram_use": ["warp_per_row", "cusparse_best"], "metric": "dram"}
    expect = {"at_least": 0.9, "partly": 0.6}
    got = outcome(evidence(counters=table), quantity, "median", expect)
    assert got.verdict == expected
    dram = "% of the DRAM's bandwidth"
    assert got.measured == f"warp_per_row {ours}{dram}, cusparse_best {theirs}{dram}"


@pytest.mark.parametrize("launches,expected", [(3, REPRODUCED), (50, PARTLY), (500, NOT_REPRODUCED)])
def test_preparation_is_counted_in_launches(launches, expected):
    """By the median: a third of the points takes a thousand times as long, which is no matter."""
    made = frames()
    for df in made.values():
        more = np.where(df["density"] == 0.05, 1000, 1)
        df["prepare_ms"] = launches * more * df["median_us"] / 1e3
    expect = {"at_most": 10, "partly": 100}
    got = outcome(evidence(made), {"preparation": "cusparse_best"}, "median", expect)
    assert got.verdict == expected and got.measured.startswith(f"median {launches} launches")


@pytest.mark.parametrize(
    "speedup,expected",
    [
        ({"wide": 0.7, "square": 0.8, "tall": 1.1}, REPRODUCED),
        (0.9, NOT_REPRODUCED),
        (1.0, NOT_REPRODUCED),
        (lambda m, n, k, d: 1.1 if n == 512 else 0.5, PARTLY),
    ],
)
def test_some_scenario(speedup, expected):
    reduce, expect = {"geometric_mean": "each density"}, {"somewhere_above": 1.0}
    got = outcome(evidence(frames(speedup)), SPEEDUP, reduce, expect)
    assert got.verdict == expected and got.measured.startswith("best scenario")
    if expected == REPRODUCED:
        assert "1.10× over cuSPARSE (tall, density" in got.measured and "in 3 of 9 scenarios" in got.why
