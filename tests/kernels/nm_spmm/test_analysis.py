"""The analysis of NM-SpMM: what must hold of any values, some by hand, and the paper's tables."""

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from refused import says

from kernels.formats import nm
from kernels.nm_spmm import analysis
from kernels.nm_spmm.analysis import TABLE_1, TABLE_2, TABLE_3, Device

DEVICES = (*TABLE_3.values(), Device("H200", 132, 64.8, 4230, 228 * 1024))
LARGE = (64, 128)


def test_by_hand():
    """64 x 128 of C, 32 rows of A and 16 of B: 2 * 64 * 128 * 16 FLOPs over 4 * (2048 + 2048) B."""
    assert analysis.intensity(*LARGE, 0.5) == 262144 / 16384 == 16
    assert analysis.intensity(*LARGE, 0.5, depth=32) == pytest.approx(262144 / (4 * 12288)), "C's 8192 more"
    whole = 2 * 4096**3 / 4 / (4 * 4096**2 * (1 + 1 / 4 + 1))
    assert analysis.intensity(4096, 4096, 0.25, depth=4096) == pytest.approx(whole), "A, B and C once"
    assert analysis.shared_bytes(*LARGE, 3, 16, 32) == 3 * 4 * (2048 + 2048)
    assert [analysis.cmar(8, 8), analysis.cmar(4, 4)] == [16, 8] and analysis.registers(15, 15) == 255
    assert [round(device.ridge, 2) for device in TABLE_3.values()] == [10.08, 38.03, 81.94]


def test_the_expected_share_is_that_of_a_random_matrix():
    b = nm.random(32 * 200, 128 * 4, 4, 32, 32, seed=3)
    rows = [len(np.unique(b.index[:, first : first + 4])) for first in range(0, b.q, 4)]
    assert np.mean(rows) / b.k == pytest.approx(analysis.needed_share(0.125, 4), rel=0.01)


@given(st.sampled_from(DEVICES), st.sampled_from([*TABLE_1.values()]), st.sampled_from((32, 256, 4096, math.inf)))
def test_the_transition_is_where_intensity_and_ridge_meet(device, tile, depth):
    def at(sparsity):
        return analysis.intensity(tile.rows, tile.columns, 1 - sparsity, depth=depth)

    found = analysis.transition(device, tile.rows, tile.columns, depth=depth)
    assert 0 <= found <= 1
    assert found == 0 or at(found * (1 - 1e-3)) >= device.ridge
    assert found == 1 or at(found + 1e-3 * (1 - found)) < device.ridge


@given(st.sampled_from(DEVICES), st.sampled_from((4, 8, 16, 32)))
def test_the_largest_step_that_fits_half_of_the_memory_is_proposed(device, keep):
    made = analysis.propose(device, 4096, 4096, 4096, keep, 32)
    need = [analysis.shared_bytes(made.rows, made.columns, x, keep, 32) for x in (made.windows, made.windows + 1)]
    assert need[0] <= device.shared_bytes / 2 < need[1] and made.packed == (keep <= 8)
    assert analysis.propose(device, 4096, 4096, 70, keep, 32).windows == min(3, made.windows)
    says(["2048 rows does not fit"], lambda: analysis.propose(device, 4096, 4096, 4096, 1024, 2048))


def test_the_tables_are_of_configurations_and_agree_with_each_other():
    for tile in TABLE_1.values():
        assert math.prod(tile.warp) == 32 * math.prod(tile.thread), "32 threads tile a warp"
        assert tile.rows % tile.warp[0] == tile.columns % tile.warp[1] == 0 == tile.threads % 32
        assert analysis.registers(*tile.thread) <= 255
    for device in DEVICES:
        for label, (expected, (m, n, _)) in TABLE_2.items():
            assert analysis.class_of(device.sm_count, m, n) == expected, label
