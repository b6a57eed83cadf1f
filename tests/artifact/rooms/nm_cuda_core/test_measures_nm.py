"""The measures that only claims of N:M on CUDA cores need."""

import numpy as np
import pytest
import synthetic
from judging import evidence, frames, outcome

from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED

ROOM = "nm_cuda_core"
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
LARGEST = ({"share_of_points_above": 1.0}, {"at_least": 1.0, "partly": 0.5})
QUANTITY = {"stall": "long_scoreboard", "of": ["warp_per_row"]}


def stalls(**values: float):
    named = {STALL.format(reason): value for reason, value in values.items()}
    return synthetic.counters({"warp_per_row": named})


@pytest.mark.parametrize(
    "memory,others,expected",
    [
        (4.2, {"wait": 1.0, "barrier": 2.0}, REPRODUCED),
        (4.2, {"wait": 1.0, "selected": 9.0}, REPRODUCED),  # a warp that issues does not wait
        (1.5, {"wait": 1.0, "barrier": 2.0}, NOT_REPRODUCED),
    ],
)
def test_the_largest_stall(memory, others, expected):
    e = evidence(counters=stalls(long_scoreboard=memory, **others))
    got = outcome(e, QUANTITY, *LARGEST, room=ROOM)
    assert got.verdict == expected and "long_scoreboard the largest stall at" in got.measured


def test_the_largest_stall_at_half_of_the_points_is_partly():
    table = stalls(wait=1.0, long_scoreboard=0.9)
    memory = table["metric"].str.contains("long") & (table["n"] > 2048)
    table.loc[memory, "value"] = 1.1
    got = outcome(evidence(counters=table), QUANTITY, *LARGEST, ["wide"], ROOM)
    assert got.verdict == PARTLY


def test_one_stall_alone_is_not_measured():
    e = evidence(counters=stalls(long_scoreboard=4.2, selected=1.0))
    with pytest.raises(NotMeasured, match="not profiled, long_scoreboard among others"):
        outcome(e, QUANTITY, *LARGEST, room=ROOM)


@pytest.mark.parametrize(
    "knee,expected",
    [
        (2048, REPRODUCED),
        (1024, PARTLY),  # one step off
        (4096, PARTLY),
        (8192, NOT_REPRODUCED),
        (512, NOT_REPRODUCED),
    ],
)
def test_the_knee(knee, expected):
    made = frames()
    wide = made["wide"]
    wide["tflops"] = np.minimum(wide["n"], knee) * np.where(wide["n"] > knee, 0.95, 1.0)
    expect = {"near": [2048, 2048], "factor": 1.0, "partly": 2.0}
    quantity = {"tflops": ["warp_per_row", "any_n"]}
    got = outcome(evidence(made), quantity, {"knee": "n", "flat": 0.1}, expect, ["wide"], ROOM)
    assert got.verdict == expected and f"any_n from N = {knee} on" in got.measured


def test_a_knee_needs_three_sizes():
    e, expect = evidence().only({"n": [512, 1024]}), {"near": [1, 1], "factor": 1.0, "partly": 2.0}
    with pytest.raises(NotMeasured, match="three sizes"):
        outcome(e, {"tflops": "any_n"}, {"knee": "n", "flat": 0.1}, expect, ["wide"], ROOM)
