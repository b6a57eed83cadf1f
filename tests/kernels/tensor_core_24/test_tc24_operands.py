"""The system's operands in 16 bits and in 8: their bits, what a problem counts and what is refused."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import racing
from hypothesis import given, settings, strategies as st
from numbers_by_position import random_u32
from refused import says

from kernels import formats, jit
from kernels.formats import half, two_four
from kernels.tensor_core_24 import fp8, operands

DTYPES = (*half.DTYPES, "e4m3")
PAIRS = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
dtypes = pytest.mark.parametrize("dtype", DTYPES)


def problem_of(dtype: str):
    """A function: sizes and the rest of a problem of this dtype."""
    return fp8.problem if dtype == "e4m3" else partial(operands.problem, dtype=dtype)


def arrays(of) -> list:
    return [x for operand in (of.a, of.b) for x in (*vars(operand).values(),) if hasattr(x, "dtype")]


def same(one, two) -> bool:
    """Operands that are equal to the bit."""
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(arrays(one), arrays(two), strict=True))


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
    """As the kernels make them, one at a time, however many are made at once. In e4m3 B lies by columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operands, "_PANEL", panel)
        made = problem_of(dtype)(m, n, k, seed=seed).host()
    in_8 = dtype == "e4m3"
    k_pad = -(-k // 32) * 32 if in_8 else -(-k // 16) * 16

    def value(stream: int, index: int) -> int:
        number = np.full(1, ((random_u32(seed, stream, index) >> 8) - 2**23 + 0.5) / 2**23, np.float32)
        return int(half.to_bits(number * np.float32(448 if in_8 else 1), dtype)[0])

    dense = np.zeros((m, k), made.a.val.dtype)
    for i, g in np.ndindex(m, -(-k // 4)):
        left = min(4, k - 4 * g)
        fits = [pair for pair in PAIRS if max(pair) < left] or [(0, 1)]
        group = i * k_pad // 4 + g
        pair = fits[random_u32(seed, 0, group) * len(fits) >> 32]
        for j, column in enumerate(pair[:left]):
            dense[i, 4 * g + column] = value(1, 2 * group + j)
    assert np.array_equal(two_four.to_dense_bits(two_four.validate(made.a)), dense)
    # Two of each whole group; one of a single last column, two of two or three.
    assert in_8 or (dense != 0).sum(axis=1).tolist() == [k // 4 * 2 + min(k % 4, 2)] * m
    place = [[j * k + i if in_8 else i * n + j for j in range(n)] for i in range(k)]
    assert made.b.bits.tolist() == [[value(2, at) for at in row] for row in place]


def test_scales_never_change():
    one, many = (fp8.problem(2, 3, 18, seed=7, scale=scale).host() for scale in operands.SCALES)
    assert one.a.scale.tolist() == one.b.scale.tolist() == [[np.float32(1 / 448)]]
    assert (448 * many.a.scale[:, 0]).tolist() == pytest.approx([1.84944, 0.7027], abs=1e-5), "of 0.5 to 2"


@dtypes
def test_a_problem_counts_its_work_and_is_that_of_its_matrices(dtype):
    """128 x 128 tiles: A is read for each of three columns of tiles, B for each of two rows."""
    p = problem_of(dtype)(m=200, n=260, k=300, seed=4)
    a, b = p.host().a, p.host().b
    assert (p.label, p.density, p.seed) == (dtype * (dtype != "bfloat16"), 0.5, 4) and p.nnz == a.nnz == a.val.size
    of_a, of_b, of_c = a.val.nbytes + a.meta.nbytes, b.bits.nbytes, 2 * 200 * 260
    assert p.useful_flops == 2 * 200 * 260 * 300 and p.least_bytes == of_a + of_b + of_c
    assert p.requested_bytes == 3 * of_a + 2 * of_b + of_c


@pytest.mark.parametrize(
    ("make", "change", "words"),
    [
        (operands.problem, {"k": 2**31 - 15}, ["k is 2147483633"]),
        (fp8.problem, {"k": 2**31 - 31}, ["k is 2147483617"]),
        (operands.problem, {"density": 0.25}, ["density is 0.25", "2:4"]),
        (operands.problem, {"dtype": "float32"}, ["'float32'", "bfloat16, float16"]),
        (operands.problem, {"orders": "RC"}, ["orders is 'RC'", "CC, FF"]),
        (fp8.problem, {"orders": "FC"}, ["orders is 'FC'", "'FF' in bfloat16"]),
        (fp8.problem, {"orders": "FF", "out": "e4m3"}, ["orders is 'FF' for C in e4m3"]),
        (fp8.problem, {"scale": "rows"}, ["scale is 'rows'", "vectors"]),
        (fp8.problem, {"out": "float16"}, ["C is 'float16'", "e4m3"]),
    ],
)
def test_what_makes_no_problem_gets_one_sentence(make, change, words):
    says(words, lambda: make(**({"m": 10, "n": 4, "k": 100} | change)))


@dtypes
@pytest.mark.parametrize("orders", operands.ORDERS)
def test_what_a_gpu_fills_lies_as_on_the_host_and_c_as_the_orders_say(pretended, monkeypatch, dtype, orders):
    pretended(racing.H200)
    monkeypatch.setattr(jit, "run_on_cupy_stream", lambda *_: None)
    in_8 = dtype == "e4m3"
    if in_8 and orders not in ("CC", "FF"):
        return
    p = problem_of(dtype)(7, 9, 70, orders=orders)
    host, there = p.host(), p.device()
    for one, two in zip(arrays(host), arrays(there), strict=True):
        assert (one.shape, one.dtype) == (two.shape, two.dtype)
    assert there.b.bits.flags.f_contiguous == (in_8 or orders[0] == "F") and there.c.shape == (7, 9)
    assert there.c.bits.flags.f_contiguous == (orders[1] == "F") and there.c.dtype == ("bfloat16" if in_8 else dtype)
    if in_8 and orders == "CC":  # room for eight standard deviations of sums of 35 products
        c = fp8.problem(7, 9, 70, out="e4m3").device().c
        assert float(c.scale[0, 0]) * 448 == pytest.approx(8 * 35**0.5 / 3, rel=1e-5)


@pytest.mark.gpu
@dtypes
@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_the_gpu_makes_the_same_bits(device, seed, dtype):
    """Whole tiles, ragged ends, smaller than a group, more than one block of threads."""
    for m, n, k in ((1, 1, 1), (2, 3, 3), (3, 5, 17), (7, 9, 70), (64, 128, 64), (129, 131, 135), (300, 1001, 517)):
        p = problem_of(dtype)(m, n, k, seed=seed)
        there = p.device()
        two_four.validate(there.a)
        assert same(p.host(), replace(there, a=formats.to_host(there.a), b=formats.to_host(there.b))), (m, n, k)
        of_c = "bfloat16" if dtype == "e4m3" else dtype
        assert (there.c.dtype, there.c.shape, there.c.bits.dtype) == (of_c, (m, n), np.uint16)
