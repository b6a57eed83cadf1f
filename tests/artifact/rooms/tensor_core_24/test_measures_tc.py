"""The measure that only claims of 2:4 on tensor cores need: one ceiling over another."""

import pytest
from judging import evidence, outcome

from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED


def over(ceiling: str, other: str, low=2.0, high=2.0):
    quantity = {"ceiling": ceiling, "over": other, "rate": "gbps"}
    expect = {"near": [low, high], "factor": 1.02, "partly": 1.2}
    return outcome(evidence(), quantity, "each point", expect, ["ceilings"], "tensor_core_24")


@pytest.mark.parametrize(
    "low,high,expected",
    [(2, 2, REPRODUCED), (1.9, 1.9, PARTLY), (2.2, 2.2, PARTLY), (1, 1, NOT_REPRODUCED)],
)
def test_a_ceiling_over_another(low, high, expected):
    """The L2 of the model delivers twice what its DRAM does."""
    got = over("l2_read", "copy", low, high)
    assert got.verdict == expected and got.measured == "2.00× over copy"
    assert "l2_read 8000 GB/s, copy 4000 GB/s" in got.why


@pytest.mark.parametrize("names", [("wgmma_sp", "copy"), ("copy", "wgmma")])
def test_both_are_needed(names):
    with pytest.raises(NotMeasured, match="The ceiling 'wgmma.*' was not measured"):
        over(*names)
