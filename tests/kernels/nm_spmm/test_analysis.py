"""The analysis of NM-SpMM: hand-computed values, what must hold of any values, and the paper's tables."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from kernels.formats import nm
from kernels.nm_spmm import analysis, packing
from kernels.nm_spmm.analysis import TABLE_1, TABLE_2, TABLE_3, Device

A100 = TABLE_3["A100"]
H200 = Device("H200", 132, 1980, 64.8, 4230, 228 * 1024, 50 * 2**20)
LARGE = (64, 128)
KEEPS = (32, 16, 12, 8, 4)  # of 32: 0, 50, 62.5, 75 and 87.5% sparsity


# ---------------------------------------------------------------- Eq. 3


def test_intensity_by_hand():
    # 64 x 128 of C, 32 rows of A and 16 of B: 2 * 64 * 128 * 16 FLOPs over 4 * (2048 + 2048) B.
    assert analysis.intensity(*LARGE, 0.5) == 262144 / 16384 == 16
    # C counted: 8192 elements more.
    assert analysis.intensity(*LARGE, 0.5, depth=32) == pytest.approx(262144 / (4 * 12288))
    # The whole product, 4096^3 at 75%: A, B and C once.
    whole = 2 * 4096**3 / 4 / (4 * 4096**2 * (1 + 1 / 4 + 1))
    assert analysis.intensity(4096, 4096, 0.25, depth=4096) == pytest.approx(whole)


@pytest.mark.parametrize("depth", [32, 256, math.inf])
@pytest.mark.parametrize("tile", TABLE_1.values(), ids=TABLE_1)
def test_intensity_falls_with_sparsity_unless_only_what_is_needed_is_read(tile, depth):
    least, most = zip(*(analysis.bounds(tile.rows, tile.columns, n / 32, depth=depth) for n in KEEPS), strict=True)
    assert list(least) == sorted(least, reverse=True) and len(set(least)) == len(KEEPS)
    assert least[0] == most[0]  # dense, A is read whole either way
    assert all(a < b for a, b in zip(least[1:], most[1:], strict=True))
    if depth == math.inf:  # FLOPs and bytes shrink alike
        assert most == pytest.approx([most[0]] * len(KEEPS))
    else:
        assert list(most) == sorted(most, reverse=True)


def test_a_deeper_step_raises_the_intensity_only_where_c_counts():
    """Section IV-E: "Larger [k_s and w_s] could lead to higher arithmetic intensity"."""
    depths = (32, 64, 128, 192)
    counted = [analysis.intensity(*LARGE, 0.5, depth=depth) for depth in depths]
    assert counted == sorted(counted) and counted[-1] < analysis.intensity(*LARGE, 0.5)


def test_packing_has_a_higher_intensity_at_75_percent_than_staging_all_at_62_5():
    """Section IV-E, with the k_s of Eq. 5 on the A100."""

    def of(keep, share):
        windows = analysis.largest_windows(A100.shared_bytes, *LARGE, keep, 32)
        return analysis.intensity(*LARGE, keep / 32, share=share, depth=32 * windows)

    staged, packed = of(12, 1.0), of(8, analysis.needed_share(0.25, 4))
    assert staged == pytest.approx(9.93, abs=0.01) and packed == pytest.approx(9.50, abs=0.01)
    assert packed < staged  # on average the four choices differ too much for the paper's order
    assert of(8, 0.25) > staged  # it holds where they are equal, the upper bound
    # Without C it holds at the upper bound too, and there at any k_s.
    assert analysis.bounds(*LARGE, 0.25)[1] > analysis.intensity(*LARGE, 0.375)


@pytest.mark.parametrize(
    "density,vectors,share",
    [(0.25, 1, 0.25), (0.5, 2, 0.75), (0.125, 4, 1 - 0.875**4), (1.0, 3, 1.0)],
)
def test_needed_share(density, vectors, share):
    assert analysis.needed_share(density, vectors) == pytest.approx(share)


def test_needed_share_lies_between_the_bounds_and_rises_with_the_vectors():
    shares = [analysis.needed_share(0.125, vectors) for vectors in range(1, 20)]
    assert shares == sorted(shares) and shares[0] == pytest.approx(0.125) and shares[-1] < 1


def test_the_expected_share_is_that_of_a_random_matrix():
    b = nm.random(32 * 200, 128 * 4, 4, 32, 32, seed=3)
    packed = packing.prepare(b, 128, 2, packed=True, slot=8)
    exact = analysis.staged_share(packed)
    assert exact == pytest.approx(analysis.needed_share(0.125, 4), rel=0.01)
    # By the definition: rows that any of a block's four vectors names.
    rows = [len(np.unique(b.index[:, first : first + 4])) for first in range(0, b.q, 4)]
    assert exact == np.mean(rows) / b.k


def test_what_is_not_packed_stages_all():
    b = nm.random(64, 64, 4, 32, 32, seed=0)
    assert analysis.staged_share(packing.prepare(b, 64, 1, packed=False, slot=8)) == 1


@pytest.mark.parametrize(
    "rows,columns,density,more,word",
    [
        (64, 128, 0.0, {}, "density is 0.0"),
        (64, 128, 1.5, {}, "density is 1.5"),
        (64, 128, 0.5, {"share": 0}, "share is 0"),
        (0, 128, 0.5, {}, "rows is 0"),
        (64, 128, 0.5, {"depth": 0}, "depth is 0"),
    ],
)
def test_what_is_no_block_is_refused(rows, columns, density, more, word):
    with pytest.raises(ValueError, match=word):
        analysis.intensity(rows, columns, density, **more)


def test_no_vectors_need_no_rows():
    with pytest.raises(ValueError, match="vectors is 0"):
        analysis.needed_share(0.5, 0)


# ---------------------------------------------------------------- the roofline


@pytest.mark.parametrize("name,ridge", [("A100", 10.08), ("RTX 3090", 38.03), ("RTX 4090", 81.94)])
def test_ridge_by_hand(name, ridge):
    device = TABLE_3[name]
    assert device.ridge == pytest.approx(ridge, abs=0.01)
    assert analysis.attainable(device, device.ridge) == pytest.approx(device.peak_tflops)
    assert analysis.attainable(device, 2 * device.ridge) == device.peak_tflops
    assert analysis.attainable(device, device.ridge / 4) == pytest.approx(device.peak_tflops / 4)


@pytest.mark.parametrize(
    "name,block,depth,sparsity",
    [
        ("A100", LARGE, math.inf, 0.770),  # d = R / (64 - 2 R) with R = 10.08
        ("A100", LARGE, 192, 0.617),
        ("A100", (32, 64), math.inf, 0.149),
        ("A100", (32, 32), math.inf, 0.0),
        ("RTX 3090", LARGE, math.inf, 0.0),
        ("RTX 4090", LARGE, math.inf, 0.0),
        ("A100", (4096, 4096), 4096, 0.990),
        ("RTX 3090", (4096, 4096), 4096, 0.962),
        ("RTX 4090", (4096, 4096), 4096, 0.917),
    ],
)
def test_transition_of_table_3(name, block, depth, sparsity):
    assert analysis.transition(TABLE_3[name], *block, depth=depth) == pytest.approx(sparsity, abs=1e-3)


@pytest.mark.parametrize("vectors", [0, 1, 4])
@pytest.mark.parametrize("device", [A100, H200], ids=lambda device: device.name)
def test_transition_is_where_intensity_and_ridge_meet(device, vectors):
    def at(sparsity):
        density = 1 - sparsity
        share = analysis.needed_share(density, vectors) if vectors else 1.0
        return analysis.intensity(*LARGE, density, share=share)

    found = analysis.transition(device, *LARGE, vectors=vectors)
    if found == 1:  # packing reads so little that memory is the limit of no sparsity
        assert vectors and at(0.9999) >= device.ridge
    else:
        assert 0 < found < 1
        assert at(found + 1e-3) < device.ridge < at(found - 1e-3)


def test_packing_moves_the_transition_towards_higher_sparsity():
    unpacked = analysis.transition(H200, *LARGE)
    assert unpacked == pytest.approx(0.541, abs=1e-3)
    assert analysis.transition(H200, *LARGE, vectors=4) > unpacked + 0.05


# ---------------------------------------------------------------- Eqs. 4 to 6


def test_shared_memory_by_hand():
    # 64 x 128 at 16:32, one window: 32 x 64 of A, 16 x 128 of B; the index: 16 x 4 times 5 bits.
    assert analysis.shared_bytes(*LARGE, 1, 16, 32) == 4 * (2048 + 2048)
    assert analysis.shared_bytes(*LARGE, 1, 16, 32, vector=32) == 4 * 4096 + 40
    assert analysis.shared_bytes(*LARGE, 3, 16, 32) == 3 * 4 * 4096
    # Half of 192 KB has room for six of these, k_s = 192.
    assert analysis.largest_windows(A100.shared_bytes, *LARGE, 16, 32) == 6
    assert analysis.largest_windows(A100.shared_bytes, *LARGE, 16, 32, vector=32) == 5
    assert analysis.largest_windows(16 * 1024, *LARGE, 16, 32) == 0


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("tile", TABLE_1.values(), ids=TABLE_1)
@pytest.mark.parametrize("vector", [None, 32])
def test_the_largest_step_fits_and_one_window_more_does_not(tile, keep, vector):
    for device in (*TABLE_3.values(), H200):
        arguments = tile.rows, tile.columns
        windows = analysis.largest_windows(device.shared_bytes, *arguments, keep, 32, vector=vector)
        for count, fits in ((windows, True), (windows + 1, False)):
            size = analysis.shared_bytes(*arguments, count, keep, 32, vector=vector)
            assert (size <= device.shared_bytes / 2) == fits


def test_cmar_by_hand_and_in_the_order_of_table_1():
    assert analysis.cmar(8, 8) == 16 and analysis.cmar(8, 8, words=1) == 4
    assert analysis.cmar(4, 4) == 8 and analysis.cmar(8, 4) == pytest.approx(32 / 3)
    ratios = [analysis.cmar(*tile.thread) for tile in TABLE_1.values()]
    assert ratios == sorted(ratios)
    with pytest.raises(ValueError, match="words is 3"):
        analysis.cmar(4, 4, words=3)


def test_registers_by_hand():
    assert analysis.registers(8, 8) == 80 and analysis.registers(4, 4) == 24
    assert analysis.registers(15, 15) == 255 == analysis.REGISTERS  # the largest square tile


# ---------------------------------------------------------------- Tables I to III


@pytest.mark.parametrize("tile", TABLE_1.values(), ids=TABLE_1)
def test_a_configuration_of_table_1_is_one(tile):
    assert math.prod(tile.warp) == 32 * math.prod(tile.thread)  # 32 threads tile a warp
    assert tile.rows % tile.warp[0] == tile.columns % tile.warp[1] == 0
    assert tile.rows % 32 == tile.columns % 32 == 0  # III-B1
    assert analysis.registers(*tile.thread) <= analysis.REGISTERS
    assert (
        tile.threads
        == {"small": 64, "medium": 64, "large": 128}[next(name for name, other in TABLE_1.items() if other is tile)]
    )


def test_the_peaks_of_table_3_follow_from_its_clocks():
    for device, flops in zip(TABLE_3.values(), (128, 256, 256), strict=True):
        peak = device.sm_count * flops * device.clock_mhz / 1e6
        assert peak == pytest.approx(device.peak_tflops, rel=0.002)


@pytest.mark.parametrize("device", [*TABLE_3.values(), H200], ids=lambda device: device.name)
def test_the_sizes_of_table_2_get_their_class(device):
    for label, (expected, (m, n, _)) in TABLE_2.items():
        assert analysis.class_of(device, m, n) == expected, label


# ---------------------------------------------------------------- a proposal


@pytest.mark.parametrize("keep,windows,packed", [(32, 4, False), (16, 6, False), (8, 8, True)])
def test_propose(keep, windows, packed):
    tile = analysis.propose(A100, 4096, 4096, 4096, keep, 32)
    assert (tile.rows, tile.columns) == LARGE and tile.thread == (8, 8)
    assert (tile.windows, tile.packed) == (windows, packed)
    assert tile.blocks(4096, 4096) == 64 * 32


def test_packing_begins_above_70_percent():
    packed = [analysis.propose(A100, 4096, 4096, 4096, keep, 10).packed for keep in (4, 3, 2)]
    assert packed == [False, False, True]


def test_a_proposal_takes_no_more_windows_than_k_has():
    assert analysis.propose(A100, 4096, 4096, 70, 8, 32).windows == 3
    assert analysis.propose(A100, 4096, 4096, 70, 1, 4).windows == 18


def test_blocks_that_share_an_sm_share_its_memory():
    alone, four = (analysis.propose(H200, 4096, 4096, 4096, 16, 32, resident=count) for count in (1, 4))
    assert (alone.windows, four.windows) == (7, 1)


@pytest.mark.parametrize(
    "arguments,more,word",
    [
        ((0, 64, 64, 2, 4), {}, "m is 0"),
        ((64, 64, 64, 5, 4), {}, "keep is 5"),
        ((64, 64, 64, 2, 4), {"resident": 0}, "resident is 0"),
        ((4096, 4096, 4096, 1024, 2048), {}, "2048 rows does not fit"),
    ],
)
def test_what_cannot_be_proposed_is_refused(arguments, more, word):
    with pytest.raises(ValueError, match=word):
        analysis.propose(A100, *arguments, **more)


def test_device_of_reads_the_properties():
    properties = SimpleNamespace(
        multiprocessor_count=132,
        clock_rate=1980000,
        max_shared_memory_per_multiprocessor=233472,
        l2_cache_size=52428800,
    )
    device = SimpleNamespace(name="NVIDIA H200", properties=properties)
    assert analysis.device_of(device, 64.8, 4230) == Device(
        "NVIDIA H200", 132, 1980, 64.8, 4230, 228 * 1024, 50 * 2**20
    )


@pytest.mark.gpu
def test_device_of_the_gpu_at_hand():
    from cuda.core import Device as Opened

    device = analysis.device_of(Opened(), 60.0, 4000.0)
    assert device.ridge == 15
    assert 100 < device.clock_mhz < 5000 and device.shared_bytes >= 64 * 1024
    assert analysis.propose(device, 4096, 4096, 4096, 8, 32).windows >= 1
