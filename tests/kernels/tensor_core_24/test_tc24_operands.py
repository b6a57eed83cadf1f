"""The system's operands: their bits, what a problem counts and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_by_position import random_u32
from refused import says

from kernels.formats import half, two_four
from kernels.tensor_core_24 import operands

DTYPES = half.DTYPES
PAIRS = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def same(one, two) -> bool:
    """Operands that are equal to the bit."""
    pairs = ((one.a.val, two.a.val), (one.a.meta, two.a.meta), (one.b.bits, two.b.bits))
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in pairs)


@given(
    m=st.integers(1, 5),
    n=st.integers(1, 5),
    k=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from(DTYPES),
    panel=st.sampled_from((7, 50, 1 << 22)),
)
@settings(deadline=None, max_examples=60)
def test_every_element_is_the_one_of_its_position(m, n, k, seed, dtype, panel):
    """As generate.cu makes them, one at a time, however many are made at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operands, "_PANEL", panel)
        made = operands.problem(m, n, k, seed=seed, dtype=dtype).host()
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
    assert np.array_equal(two_four.to_dense_bits(two_four.validate(made.a)), dense)
    assert half.validate(made.b).bits.tolist() == [[value(2, i * n + j) for j in range(n)] for i in range(k)]
    # Two of each whole group; one of a single last column, two of two or three.
    assert (dense != 0).sum(axis=1).tolist() == [k // 4 * 2 + min(k % 4, 2)] * m


def test_the_bits_never_change():
    """The shipped records name a seed; another generator would make them of other matrices."""
    made = operands.host_operands(2, 3, 18, 7, "bfloat16")
    assert made.a.meta.tolist() == [[59881, 17476], [55773, 17476]]
    assert made.a.val[1, 4:10].tolist() == [48981, 16171, 15966, 16194, 16076, 48901]
    assert made.b.bits[17].tolist() == [48850, 48852, 15892]


@dtypes
def test_a_problem_counts_its_work_and_is_that_of_its_matrices(dtype):
    """128 x 128 tiles: A is read for each of three columns of tiles, B for each of two rows."""
    p = operands.problem(m=200, n=260, k=300, seed=4, dtype=dtype)
    a, b = p.host().a, p.host().b
    assert (p.label, p.density, p.seed) == ("float16" * (dtype == "float16"), 0.5, 4) and p.nnz == a.nnz == a.val.size
    assert p.useful_flops == 2 * 200 * 260 * 300 and p.least_bytes == a.nbytes + b.nbytes + 2 * 200 * 260
    assert p.requested_bytes == 3 * a.nbytes + 2 * b.nbytes + 2 * 200 * 260


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"k": 2**31 - 15}, ["k is 2147483633"]),
        ({"density": 0.25}, ["density is 0.25", "2:4"]),
        ({"dtype": "float32"}, ["'float32'", "bfloat16, float16"]),
        ({"orders": "RC"}, ["orders is 'RC'", "CC, FF"]),
    ],
)
def test_what_makes_no_problem_gets_one_sentence(change, words):
    says(words, lambda: operands.problem(**({"m": 10, "n": 4, "k": 100} | change)))


@pytest.mark.gpu
@dtypes
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_the_gpu_makes_the_same_bits(device, seed, dtype):
    """Whole tiles, ragged ends, smaller than a group, more than one block of threads."""
    for m, n, k in ((1, 1, 1), (2, 3, 3), (3, 5, 17), (7, 9, 70), (64, 128, 64), (129, 131, 135), (300, 1001, 517)):
        p = operands.problem(m, n, k, seed=seed, dtype=dtype)
        there = p.device()
        two_four.validate(there.a)
        assert same(p.host(), replace(there, a=two_four.to_host(there.a), b=half.to_host(there.b))), (m, n, k)
        assert (there.c.dtype, there.c.shape, there.c.bits.dtype) == (dtype, (m, n), np.uint16)
