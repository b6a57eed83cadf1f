"""The analysis of NM-SpMM: what must hold of any values, some by hand, and the paper's tables."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels.formats import nm
from kernels.nm_spmm import analysis
from kernels.nm_spmm.analysis import TABLE_1, TABLE_2, TABLE_3, Device

A100 = TABLE_3["A100"]
H200 = Device("H200", 132, 1980, 64.8, 4230, 228 * 1024, 50 * 2**20)
DEVICES = (*TABLE_3.values(), H200)
LARGE = (64, 128)
TILE = st.sampled_from([*TABLE_1.values()])
DEPTH = st.sampled_from((32, 256, 4096, math.inf))


def test_by_hand():
    """64 x 128 of C, 32 rows of A and 16 of B: 2 * 64 * 128 * 16 FLOPs over 4 * (2048 + 2048) B."""
    assert analysis.intensity(*LARGE, 0.5) == 262144 / 16384 == 16
    assert analysis.intensity(*LARGE, 0.5, depth=32) == pytest.approx(262144 / (4 * 12288)), "C's 8192 more"
    whole = 2 * 4096**3 / 4 / (4 * 4096**2 * (1 + 1 / 4 + 1))
    assert analysis.intensity(4096, 4096, 0.25, depth=4096) == pytest.approx(whole), "A, B and C once"
    assert analysis.shared_bytes(*LARGE, 3, 16, 32) == 3 * 4 * (2048 + 2048)
    assert analysis.shared_bytes(*LARGE, 1, 16, 32, vector=32) == 4 * 4096 + 40, "16 x 4 indices of 5 bits"
    assert [analysis.cmar(8, 8), analysis.cmar(8, 8, words=1), analysis.cmar(4, 4)] == [16, 4, 8]
    assert analysis.registers(15, 15) == 255 == analysis.REGISTERS, "the largest square tile"
    assert [round(device.ridge, 2) for device in TABLE_3.values()] == [10.08, 38.03, 81.94]


def test_the_expected_share_is_that_of_a_random_matrix():
    b = nm.random(32 * 200, 128 * 4, 4, 32, 32, seed=3)
    rows = [len(np.unique(b.index[:, first : first + 4])) for first in range(0, b.q, 4)]
    assert np.mean(rows) / b.k == pytest.approx(analysis.needed_share(0.125, 4), rel=0.01)


@pytest.mark.parametrize(
    ("work", "word"),
    [
        (lambda: analysis.intensity(*LARGE, 0.0), "density is 0.0"),
        (lambda: analysis.intensity(*LARGE, 0.5, share=1.5), "share is 1.5"),
        (lambda: analysis.intensity(0, 128, 0.5), "rows is 0"),
        (lambda: analysis.intensity(*LARGE, 0.5, depth=0), "depth is 0"),
        (lambda: analysis.needed_share(0.5, 0), "vectors is 0"),
        (lambda: analysis.cmar(4, 4, words=3), "words is 3"),
        (lambda: analysis.propose(A100, 0, 64, 64, 2, 4), "m is 0"),
        (lambda: analysis.propose(A100, 64, 64, 64, 5, 4), "keep is 5"),
        (lambda: analysis.propose(A100, 64, 64, 64, 2, 4, resident=0), "resident is 0"),
        (lambda: analysis.propose(A100, 4096, 4096, 4096, 1024, 2048), "2048 rows does not fit"),
    ],
)
def test_what_makes_no_sense_is_refused(work, word):
    with pytest.raises(ValueError, match=word):
        work()


@given(st.sampled_from(DEVICES), TILE, DEPTH, st.integers(0, 4))
def test_the_transition_is_where_intensity_and_ridge_meet(device, tile, depth, vectors):
    def at(sparsity):
        share = analysis.needed_share(1 - sparsity, vectors) if vectors else 1.0
        return analysis.intensity(tile.rows, tile.columns, 1 - sparsity, share=share, depth=depth)

    found = analysis.transition(device, tile.rows, tile.columns, vectors=vectors, depth=depth)
    assert 0 <= found <= 1
    assert found == 0 or at(found * (1 - 1e-3)) >= device.ridge
    assert found == 1 or at(found + 1e-3 * (1 - found)) < device.ridge


@given(st.sampled_from(DEVICES), st.sampled_from((4, 8, 16, 32)), st.sampled_from((1, 2)))
def test_the_largest_step_that_fits_half_of_the_memory_is_proposed(device, keep, resident):
    made = analysis.propose(device, 4096, 4096, 4096, keep, 32, resident=resident)
    need = [analysis.shared_bytes(made.rows, made.columns, x, keep, 32) for x in (made.windows, made.windows + 1)]
    assert need[0] <= device.shared_bytes // resident / 2 < need[1] and made.packed == (keep <= 8)
    assert analysis.propose(device, 4096, 4096, 70, keep, 32, resident=resident).windows == min(3, made.windows)


@pytest.mark.parametrize("tile", TABLE_1.values(), ids=TABLE_1)
def test_a_configuration_of_table_1_is_one(tile):
    assert math.prod(tile.warp) == 32 * math.prod(tile.thread), "32 threads tile a warp"
    assert tile.rows % tile.warp[0] == tile.columns % tile.warp[1] == 0 == tile.threads % 32
    assert analysis.registers(*tile.thread) <= analysis.REGISTERS


def test_the_tables_agree_with_each_other():
    for device, flops in zip(TABLE_3.values(), (128, 256, 256), strict=True):
        assert device.sm_count * flops * device.clock_mhz / 1e6 == pytest.approx(device.peak_tflops, rel=0.002)
    for device in DEVICES:
        for label, (expected, (m, n, _)) in TABLE_2.items():
            assert analysis.class_of(device, m, n) == expected, label
    properties = {"multiprocessor_count": 132, "clock_rate": 1980000, "l2_cache_size": 50 * 2**20}
    of = SimpleNamespace(**properties, max_shared_memory_per_multiprocessor=233472)
    assert analysis.device_of(SimpleNamespace(name="H200", properties=of), 64.8, 4230) == H200
