"""The room's operands: their bits, their distribution, what a problem counts and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.measure import check
from kernels.formats import half, two_four
from kernels.tensor_core_24 import operands

DTYPES = half.DTYPES
#: A statistic beyond this quantile happens once in 10^5 seeds; the seeds below are fixed.
CONFIDENCE = 1 - 1e-5
PAIRS = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))


def uniform(counts: np.ndarray) -> bool:
    """Chi-square test that draws fall into equally likely bins `counts`."""
    expected = counts.sum() / counts.size
    statistic = ((counts - expected) ** 2 / expected).sum()
    return statistic < scipy.stats.chi2.ppf(CONFIDENCE, counts.size - 1)


def same(one, two) -> bool:
    """Operands that are equal to the bit."""
    pairs = ((one.a.val, two.a.val), (one.a.meta, two.a.meta), (one.b.bits, two.b.bits))
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


# --------------------------------------------------------------------------- the generator's bits


def mix(x: int) -> int:
    """SplitMix64's finalizer in Python's unbounded integers."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def random_u32(seed: int, stream: int, index: int) -> int:
    key = mix((3 * seed + stream + 1) * 0x9E3779B97F4A7C15 % 2**64)
    return mix((key + (index + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 32


@given(
    m=st.integers(1, 5),
    n=st.integers(1, 5),
    k=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(DTYPES),
)
@settings(deadline=None, max_examples=60)
def test_every_element_is_the_one_of_its_position(m, n, k, seed, dtype):
    """As generate.cu makes them, one at a time."""
    made = operands.host_operands(m, n, k, seed, dtype)
    k_pad = -(-k // 16) * 16

    def value(stream: int, index: int) -> int:
        steps = (random_u32(seed, stream, index) >> 8) - 2**23 + 0.5
        return int(half.to_bits(np.array(steps / 2**23, np.float32), dtype))

    dense = np.zeros((m, k), np.uint16)
    for i, g in np.ndindex(m, -(-k // 4)):
        left = min(4, k - 4 * g)
        fits = [pair for pair in PAIRS if max(pair) < left] or [(0, 1)]
        group = i * k_pad // 4 + g
        pair = fits[random_u32(seed, 0, group) * len(fits) >> 32]
        for j, column in enumerate(pair):
            if column < left:
                dense[i, 4 * g + column] = value(1, 2 * group + j)
    assert np.array_equal(two_four.to_dense_bits(made.a), dense)
    b = [[value(2, i * n + j) for j in range(n)] for i in range(k)]
    assert made.b.bits.tolist() == b


def test_the_bits_never_change():
    """The shipped records name a seed; another generator would make them of other matrices."""
    made = operands.host_operands(2, 3, 18, 7, "bfloat16")
    assert made.a.meta.tolist() == GOLDEN_META
    assert made.a.val[:, 4:10].tolist() == GOLDEN_VAL
    assert made.b.bits[17].tolist() == GOLDEN_B


GOLDEN_META = [[59881, 17476], [55773, 17476]]
GOLDEN_VAL = [
    [15905, 16217, 16133, 48674, 16233, 16235],
    [48981, 16171, 15966, 16194, 16076, 48901],
]
GOLDEN_B = [48850, 48852, 15892]


# --------------------------------------------------------------------------- the matrices


@given(
    m=st.integers(1, 40),
    n=st.integers(1, 20),
    k=st.integers(1, 90),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(DTYPES),
)
@settings(deadline=None, max_examples=60)
def test_operands_are_well_formed(m, n, k, seed, dtype):
    made = operands.problem(m, n, k, seed=seed, dtype=dtype).host()
    a, b = two_four.validate(made.a), half.validate(made.b)
    assert (a.m, a.k, a.dtype, b.shape, b.dtype) == (m, k, dtype, (k, n), dtype)
    assert made.c is None
    dense = two_four.to_dense(a)
    # Two of each whole group; one of a single last column, two of two or three.
    assert (dense != 0).sum(axis=1).tolist() == [k // 4 * 2 + min(k % 4, 2)] * m
    again = two_four.compress(dense, dtype)
    assert np.array_equal(again.val, a.val) and np.array_equal(again.meta, a.meta)
    values = half.to_dense(b)
    assert np.all((values != 0) & (np.abs(values) <= 1))


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
@pytest.mark.parametrize("dtype", DTYPES)
def test_pairs_and_values_are_uniform(seed, dtype):
    made = operands.host_operands(400, 300, 512, seed, dtype)
    nibbles = np.concatenate([made.a.meta.ravel() >> 4 * g & 15 for g in range(4)])
    found, counts = np.unique(nibbles, return_counts=True)
    assert found.tolist() == sorted(two_four.PAIRS.tolist()) and uniform(counts)
    for bits in (made.a.val, made.b.bits):
        values = half.from_bits(bits, dtype)
        # Powers of two as edges, where rounding moves few values; the outer bins are twice as wide.
        bins = np.searchsorted([-0.5, -0.25, 0, 0.25, 0.5], values.ravel())
        counts = np.bincount(bins) / [2, 1, 1, 1, 1, 2]
        assert np.all(np.abs(counts * 8 / bits.size - 1) < 0.03)


@given(m=st.integers(1, 6), n=st.integers(1, 9), k=st.integers(1, 40), panel=st.integers(1, 50))
@settings(deadline=None, max_examples=60)
def test_panels_leave_no_seam(m, n, k, panel):
    whole = operands.host_operands(m, n, k, 3, "float16")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operands, "_PANEL", panel)
        assert same(operands.host_operands(m, n, k, 3, "float16"), whole)


# --------------------------------------------------------------------------- problems


@pytest.mark.parametrize(("dtype", "label"), [("bfloat16", ""), ("float16", "float16")])
def test_a_problem_counts_its_work(dtype, label):
    p = operands.problem(m=200, n=260, k=300, seed=4, dtype=dtype)
    a, b = p.host().a, p.host().b
    assert (p.room, p.label, p.m, p.n, p.k) == ("tensor_core_24", label, 200, 260, 300)
    assert (p.density, p.seed) == (0.5, 4) and p.nnz == a.nnz == a.val.size
    assert p.useful_flops == 2 * 200 * 260 * 300 and p.flops_def == "2·M·N·K"
    assert p.least_bytes == a.nbytes + b.nbytes + 2 * 200 * 260
    # 128 x 128 tiles: A is read for each of three columns of tiles, B for each of two rows.
    assert p.requested_bytes == 3 * a.nbytes + 2 * b.nbytes + 2 * 200 * 260


def test_a_problem_of_given_matrices():
    made = operands.host_operands(20, 6, 30, 1, "float16")
    p = operands.problem_from(made.a, made.b, label="some weight")
    assert p.host().a is made.a and p.host().b is made.b and p.label == "some weight"
    assert (p.m, p.n, p.k, p.nnz, p.seed) == (20, 6, 30, made.a.nnz, 0)
    assert operands.problem_from(made.a, made.b).label == "float16"
    generated = operands.problem(20, 6, 30, seed=1, dtype="float16")
    for name in ("useful_flops", "least_bytes", "requested_bytes"):
        assert getattr(p, name) == getattr(generated, name) > 0, name


A, B = (lambda x: (x.a, x.b))(operands.host_operands(20, 6, 30, 1, "bfloat16"))


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (A, half.Half("float16", B.bits), ["A is bfloat16", "B is float16"]),
        (A, half.Half("bfloat16", B.bits[:29]), ["30 columns", "29 rows"]),
        (A, half.Half("bfloat16", B.bits[:, :0].copy()), ["n is 0"]),
        (A, half.Half("bfloat16", B.bits[:, ::2]), ["row-major"]),
        (A, half.Half("bfloat16", B.bits.astype(np.int16)), ["int16"]),
        (replace(A, meta=np.zeros_like(A.meta)), B, ["indices 0 and 0", "row 0"]),
    ],
)
def test_matrices_that_make_no_problem_get_one_sentence(a, b, words):
    with pytest.raises(ValueError) as caught:
        operands.problem_from(a, b)
    message = str(caught.value)
    assert "\n" not in message and ". " not in message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


GOOD = {"m": 10, "n": 4, "k": 100, "density": 0.5, "seed": 0, "dtype": "bfloat16"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(({size: float("nan")}, [f"{size} is nan"]) for size in "mnk"),
        *(({size: 0}, [f"{size} is 0"]) for size in "mnk"),
        *(({size: -4}, [f"{size} is -4"]) for size in "mnk"),
        *(({size: 4.0}, [f"{size} is 4.0", "whole number"]) for size in "mnk"),
        *(({size: "8"}, [f"{size} is '8'"]) for size in "mnk"),
        *(({size: 2**31}, [f"{size} is 2147483648"]) for size in "mnk"),
        ({"k": 2**31 - 15}, ["k is 2147483633"]),
        *(({"density": x}, [f"density is {x!r}", "2:4"]) for x in (0.25, 1, float("nan"), "0.5")),
        *(({"dtype": x}, [f"dtype is {x!r}", "bfloat16, float16"]) for x in ("float32", "bf16")),
        *(({"seed": x}, [f"seed is {x!r}"]) for x in (-1, 2**32, 0.5, None)),
    ],
)
def test_what_makes_no_problem_gets_one_sentence(change, words):
    with pytest.raises(ValueError) as caught:
        operands.problem(**(GOOD | change))
    message = str(caught.value)
    assert "\n" not in message and ". " not in message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


# --------------------------------------------------------------------------- the kernel


#: m, n, k: whole tiles, ragged ends, smaller than a group, more than one block of threads.
ON_GPU = [
    (1, 1, 1),
    (2, 3, 3),
    (3, 5, 17),
    (7, 9, 70),
    (64, 128, 64),
    (129, 131, 135),
    (300, 1001, 517),
]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("m", "n", "k"), ON_GPU)
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_the_gpu_makes_the_same_bits(device, m, n, k, seed, dtype):
    p = operands.problem(m, n, k, seed=seed, dtype=dtype)
    here, there = p.host(), p.device()
    assert (there.a.m, there.a.k, there.a.dtype) == (m, k, dtype)
    two_four.validate(there.a)
    copy = replace(there, a=two_four.to_host(there.a), b=half.to_host(there.b))
    assert same(here, copy)
    assert (there.c.dtype, there.c.shape, there.c.bits.dtype) == (dtype, (m, n), np.uint16)
    assert there.b.dtype == dtype and there.c.bits.flags.c_contiguous


@pytest.mark.gpu
def test_the_largest_problem_fits_the_oracle(device):
    """16384 cubed, the largest of the sweeps, in memory and in seconds."""
    import time

    import cupy

    p = operands.problem(16384, 16384, 16384)
    there = p.device()
    began = time.perf_counter()
    reference = check.oracle(p)
    cupy.cuda.get_current_stream().synchronize()
    assert time.perf_counter() - began < 5
    assert reference.values.shape == (16384, 16384)
    # A right output, and one with a wrong element.
    bits = there.c.bits
    for start in range(0, 16384, 1024):
        part = reference.values[start : start + 1024].astype(cupy.float32)
        bits[start : start + 1024] = half.to_bits(part, "bfloat16")
    assert check.compare(there.c, reference).rel_err < 2e-3
    bits[12345, int(abs(reference.values[12345]).argmax())] ^= 0x8000
    with pytest.raises(check.WrongResult, match="is wrong"):
        check.compare(there.c, reference)
    del there, reference, bits
    p.release()
    cupy.get_default_memory_pool().free_all_blocks()
