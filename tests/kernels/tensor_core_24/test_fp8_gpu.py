"""FP8 on a GPU: exact products at ragged sizes, scales, both outputs, pruning, and metadata that betrays a lane."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace

import exact_eight
import numpy as np
import pytest

from artifact.measure import check
from kernels import jit
from kernels.formats import eight, half, two_four_eight
from kernels.formats.eight import Eight
from kernels.tensor_core_24 import fp8, fp8_family
from kernels.tensor_core_24 import fp8_operands as operands

#: Fresh for every run; part of every failure's message. Set SPARSITY_TEST_SEED to run one again.
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def hopper(device):
    if jit.arch_of(device) not in fp8_family.TARGETS:
        pytest.skip("this GPU has no wgmma")
    return device


def fits(config, m: int, n: int, k: int, device) -> bool:
    most = device.properties.max_shared_memory_per_block_optin
    return fp8_family.fits(config, m, n, k, most)


@pytest.mark.parametrize("shape", exact_eight.RAGGED, ids=str)
@pytest.mark.parametrize(("scale", "out"), exact_eight.KINDS)
def test_every_rung_multiplies_exactly(hopper, shape, scale, out):
    """What a launch does not write stays NaN, which equals nothing."""
    problem, expected = exact_eight.exact(*shape, scale, out, SEED)
    for name, (config, *_) in fp8_family.RUNGS.items():
        if fits(config, *shape, hopper):
            bound = fp8.bind(name, problem, hopper)
            assert exact_eight.compare(bound, expected, hopper) == "", (name, SEED)


@pytest.mark.parametrize("shape", [(77, 136, 100), (513, 1030, 1025)], ids=str)
def test_every_configuration_multiplies_exactly(hopper, shape):
    problem, expected = exact_eight.exact(*shape, seed=SEED)
    for name, config in exact_eight.configurations().items():
        if fits(config, *shape, hopper):
            bound = fp8.bind_config(name, problem, hopper, config)
            assert exact_eight.compare(bound, expected, hopper) == "", (name, SEED)


@pytest.mark.parametrize("pair", [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110])
def test_one_group_picks_its_rows_of_b(hopper, pair):
    """A single group of A, anywhere: C is what its two columns meet in B. Another lane's word would show."""
    draw = np.random.default_rng([SEED, pair])
    for _ in range(8):
        a = operands.host_operands(128, 64, 256, SEED, "tensor").a
        row, group = int(draw.integers(128)), int(draw.integers(64))
        val, meta = np.zeros_like(a.val), a.meta.copy()
        val[row, 2 * group : 2 * group + 2] = eight.to_bits(np.float32([1, 2]), "e4m3")
        word, shift = group // 4, 4 * (group % 4)
        meta[row, word] = meta[row, word] & ~np.uint16(15 << shift) | np.uint16(pair << shift)
        one = np.ones((1, 1), np.float32)
        a = replace(a, val=val, meta=meta, scale=one)
        b_t = draw.integers(-8, 9, (64, 256)).astype(np.float32)
        b = Eight("e4m3", eight.to_bits(b_t, "e4m3").T, one)
        expected = np.zeros((128, 64), np.float32)
        expected[row] = b_t[:, 4 * group + (pair & 3)] + 2 * b_t[:, 4 * group + (pair >> 2)]
        for name in ("fp8_persistent", "fp8_refilling", "fp8_packed", "fp8_direct"):
            bound = fp8.bind(name, fp8.problem_from(a, b), hopper)
            assert exact_eight.compare(bound, expected, hopper) == "", (name, row, group, SEED)


def test_metadata_of_another_order_is_seen(hopper, monkeypatch):
    """The exact products are no test if words in another order gave them, too."""
    problem, expected = exact_eight.exact(128, 64, 256, seed=SEED)
    right = fp8.ring_metadata
    monkeypatch.setattr(fp8, "ring_metadata", lambda *what: right(*what)[:, ::-1].copy())
    for name in ("fp8_persistent", "fp8_packed"):
        assert exact_eight.compare(fp8.bind(name, problem, hopper), expected, hopper)


@pytest.mark.parametrize(("scale", "out"), exact_eight.KINDS)
@pytest.mark.parametrize("shape", [(256, 512, 8192), (1024, 768, 1024)], ids=str)
def test_random_products_keep_the_limits_of_fp8(hopper, shape, scale, out):
    problem = fp8.problem(*shape, seed=SEED, scale=scale, out=out)
    reference = check.oracle(problem)
    errors = [
        check.check(fp8.bind(name, problem, hopper), problem, reference, hopper.default_stream)
        for name in fp8_family.RUNGS
    ]
    assert all(e.rel_err > 1e-5 for e in errors), "an exact result is not the product of e4m3"


def test_new_scales_are_seen_by_a_launch_that_is_bound_already(hopper):
    problem, expected = exact_eight.exact(77, 136, 100, "vectors", seed=SEED)
    bound = fp8.bind("fp8_tall", problem, hopper)
    problem.device().a.scale[:] *= 2
    assert exact_eight.compare(bound, 2 * expected, hopper) == ""


@pytest.mark.parametrize("prune", [True, False])
@pytest.mark.parametrize("dtype", eight.DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 33), (333, 1001), (64, 4096)], ids=str)
def test_the_gpu_compresses_to_the_same_bits(hopper, shape, dtype, prune):
    import cupy

    draw = np.random.default_rng([SEED, *shape])
    dense = draw.integers(0, 256, shape, dtype=np.uint8)
    if not prune:
        dense = two_four_eight.to_dense_bits(two_four_eight.compress(dense, dtype, prune=True))
    here = two_four_eight.compress(dense, dtype, prune)
    there = two_four_eight.to_host(two_four_eight.compress(cupy.asarray(dense), dtype, prune))
    assert np.array_equal(here.val, there.val) and np.array_equal(here.meta, there.meta), SEED


def test_the_gpu_names_the_first_group_that_does_not_fit(hopper):
    import cupy

    dense = np.zeros((70, 100), np.uint8)
    dense[5, 40:43] = dense[60, 0:4] = 9
    with pytest.raises(ValueError, match=r"row 5, group 10 \(columns 40 to 43\) has 3 non-zeros"):
        two_four_eight.compress(cupy.asarray(dense), "e4m3")


def test_host_and_device_make_the_same_operands(hopper):
    for scale in operands.SCALES:
        problem = fp8.problem(70, 33, 150, seed=SEED % 2**31, scale=scale)
        here, there = problem.host(), problem.device()
        a = two_four_eight.to_host(there.a)
        for name in ("val", "meta", "scale"):
            assert np.array_equal(getattr(here.a, name), getattr(a, name)), name
        assert np.array_equal(here.b.bits, there.b.bits.get())
        assert np.array_equal(here.b.scale, there.b.scale.get())


def test_the_tuner_chooses_and_remembers(hopper, tmp_path):
    problem = fp8.problem(512, 512, 512, seed=SEED)
    file = tmp_path / "choices.csv"
    reference = check.oracle(problem)
    first = fp8.bind("fp8_auto", problem, hopper, file=file)
    check.check(first, problem, reference, hopper.default_stream)
    again = fp8.bind("fp8_auto", problem, hopper, file=file)
    assert again.prepare_ms < first.prepare_ms and "fp8" in file.read_text()
    assert half.to_dense(again.result()).shape == (512, 512)
