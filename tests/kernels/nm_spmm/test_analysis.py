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
TILE, DENSITY = st.sampled_from([*TABLE_1.values()]), st.sampled_from([keep / 32 for keep in (1, 4, 8, 12, 16, 32)])
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


@given(TILE, DENSITY, DEPTH, st.integers(1, 20))
def test_intensity_lies_between_its_bounds_and_grows_with_density_depth_and_equal_choices(
    tile, density, depth, vectors
):
    """Sections III-A and IV-E: a larger k_s raises it where C counts."""
    size, share = (tile.rows, tile.columns), analysis.needed_share(density, vectors)
    least, most = (analysis.intensity(*size, density, share=s, depth=depth) for s in (1, density))
    found = analysis.intensity(*size, density, share=share, depth=depth)
    assert least <= found * (1 + 1e-12) and found <= most * (1 + 1e-12)
    assert least < analysis.intensity(*size, min(1, 1.1 * density), depth=depth) or density == 1
    assert (found < analysis.intensity(*size, density, share=share, depth=2 * depth)) == (depth < math.inf)
    assert share >= analysis.needed_share(density, max(1, vectors - 1)) >= density * (1 - 1e-12)
    for device in DEVICES:
        limit = analysis.attainable(device, found)
        assert limit == (
            device.peak_tflops if found >= device.ridge else pytest.approx(found * device.bandwidth_gbs / 1e3)
        )


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


@given(st.sampled_from(DEVICES), TILE, st.sampled_from((4, 8, 16, 32)), st.sampled_from((None, 32)))
def test_the_largest_step_fits_and_one_window_more_does_not(device, tile, keep, vector):
    """And is what is proposed, where k has so many; half of the memory of the blocks that share an SM."""
    size = tile.rows, tile.columns
    windows = analysis.largest_windows(device.shared_bytes, *size, keep, 32, vector=vector)
    for count, fits in ((windows, True), (windows + 1, False)):
        assert (analysis.shared_bytes(*size, count, keep, 32, vector=vector) <= device.shared_bytes / 2) == fits
    made = analysis.propose(device, 4096, 4096, 4096, keep, 32, resident=2)
    large = TABLE_1["large"]
    assert made.windows == analysis.largest_windows(device.shared_bytes // 2, large.rows, large.columns, keep, 32)
    alone = analysis.largest_windows(device.shared_bytes, large.rows, large.columns, keep, 32)
    assert analysis.propose(device, 4096, 4096, 70, keep, 32).windows == min(3, alone)
    assert made.packed == (keep <= 8) and made.blocks(4096, 4095) == 64 * 32


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
