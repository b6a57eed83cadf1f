"""Dense 8-bit matrices: the bits of every number, both ways, scales, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from refused import says

from kernels.formats import eight

FLOAT32 = np.float32
EVERY = np.arange(256).astype(np.uint8)


def number(bits: int) -> float:
    """One e4m3 pattern, by its definition."""
    sign, exponent, fraction = bits >> 7, bits >> 3 & 15, bits & 7
    if exponent == 15 and fraction == 7:
        return float("nan")
    size = (1 + fraction / 8) * 2 ** (exponent - 7) if exponent else fraction / 8 * 2**-6
    return -size if sign else size


SIZES = [number(b) for b in range(127)]  # 0 … 448, ascending


def nearest(x: float) -> int:
    """The e4m3 pattern of a number, by looking at all of them; ties go to the even pattern."""
    if np.isnan(x):
        return 0x7F
    x_size = min(abs(x), 1000.0)  # beyond, 448 stays the nearest, and differences would round
    off = [abs(x_size - size) for size in SIZES]
    least = min(off)
    found = [b for b, distance in enumerate(off) if distance == least]
    best = found[0] if len(found) == 1 or found[0] % 2 == 0 else found[1]
    return best | (0x80 if np.signbit(x) else 0)


def matrix(rows=9, columns=13, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, columns)).astype(FLOAT32)


# ---------------------------------------------------------------------------- bit patterns


def test_every_bit_pattern_stands_for_its_number():
    made = eight.from_bits(EVERY, "e4m3")
    assert made.dtype == FLOAT32
    assert np.array_equal(made, [number(b) for b in range(256)], equal_nan=True)
    back = eight.to_bits(made, "e4m3")
    assert back.dtype == np.uint8
    assert np.array_equal(back, np.where(np.isnan(made), 0x7F, EVERY))
    whole = eight.from_bits(EVERY, "int8")
    assert whole.tolist() == [b - 256 if b > 127 else b for b in range(256)]
    assert np.array_equal(eight.to_bits(whole, "int8"), EVERY)


def test_every_float16_and_every_bfloat16_becomes_the_nearest():
    patterns = np.arange(2**16).astype(np.uint16)
    for x in (
        patterns.view(np.float16).astype(FLOAT32),
        (patterns.astype(np.uint32) << 16).view(FLOAT32),
    ):
        part = x[::7]  # 9363 of them, looked at one by one
        assert np.array_equal(eight.to_bits(part, "e4m3"), [nearest(float(v)) for v in part])


def test_what_is_beyond_saturates():
    x = np.array([448, 449, 463, 464, 1e4, np.inf, -464, -np.inf, 3e38], FLOAT32)
    assert eight.to_bits(x, "e4m3").tolist() == [0x7E] * 6 + [0xFE] * 2 + [0x7E]
    x = np.array([127.4, 127.5, 1e9, np.inf, -128.4, -129, -np.inf], FLOAT32)
    assert eight.to_bits(x, "int8").view(np.int8).tolist() == [127] * 4 + [-128] * 3


def test_nan_zero_and_what_is_too_small():
    nan = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF], np.uint32).view(FLOAT32)
    assert eight.to_bits(nan, "e4m3").tolist() == [0x7F] * 4
    assert eight.to_bits(nan, "int8").tolist() == [0] * 4
    small = np.array([0.0, -0.0, 1e-45, -1e-45, 2**-10, -(2**-10), 2**-9], FLOAT32)
    assert eight.to_bits(small, "e4m3").tolist() == [0, 0x80, 0, 0x80, 0, 0x80, 1]
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5], FLOAT32)
    assert eight.to_bits(halves, "int8").view(np.int8).tolist() == [0, 2, 2, 0, -2]


def test_magnitudes_are_in_the_order_of_sizes():
    for dtype in eight.DTYPES:
        numbers = np.abs(eight.from_bits(EVERY, dtype))
        order = eight.magnitude(EVERY, dtype).astype(int)
        known = ~np.isnan(numbers)
        size, place = numbers[known], order[known]
        assert np.array_equal(size[:, None] < size, place[:, None] < place)
        assert np.array_equal(size == 0, place == 0)
    assert eight.magnitude(np.array([0x7F, 0xFF, 0x7E], np.uint8), "e4m3").tolist() == [
        127,
        127,
        126,
    ]


# ---------------------------------------------------------------------------- scales


@pytest.mark.parametrize("dtype", eight.DTYPES)
@pytest.mark.parametrize(("by", "shape"), [("tensor", (1, 1)), ("rows", (9, 1)), ("columns", (1, 13))])
def test_a_scale_takes_the_largest_to_the_largest(dtype, by, shape):
    x = matrix() * np.array([1e-3, 1, 1e3] * 3, FLOAT32)[:, None]
    made = eight.from_dense(x, dtype, by)
    assert made.scale.shape == shape and made.scale.dtype == FLOAT32
    axis = {"tensor": None, "rows": 1, "columns": 0}[by]
    most = np.abs(eight.from_bits(made.bits, dtype)).max(axis=axis)
    assert np.all(most == eight.LARGEST[dtype])
    step = 2.0**-4 if dtype == "e4m3" else 0.0
    floor = made.scale * (2.0**-10 if dtype == "e4m3" else 0.5)
    assert np.all(np.abs(eight.to_dense(made) - x) <= 1.001 * (step * np.abs(x) + floor))


def test_scales_of_zeros_and_of_the_smallest_numbers():
    x = np.array([[0, 0], [1e-45, 0], [3e38, 1]], FLOAT32)
    made = eight.scales(x, "e4m3", "rows")
    assert made.ravel().tolist() == [
        1.0,
        pytest.approx(eight.LEAST_SCALE),
        pytest.approx(3e38 / 448),
    ]
    assert np.isfinite(eight.to_dense(eight.from_dense(x, "e4m3", "rows"))).all()


def test_given_scales_are_kept():
    scale = np.array([[2.0]], FLOAT32)
    made = eight.from_dense(np.array([[2, 4, -6]], FLOAT32), "int8", scale)
    assert made.scale is scale and made.bits.view(np.int8).tolist() == [[1, 2, -3]]
    assert eight.to_dense(made).tolist() == [[2, 4, -6]]


# ---------------------------------------------------------------------------- the package, CuPy, errors


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", eight.DTYPES)
def test_cupy_gives_the_same_bits(dtype):
    import cupy

    x = np.concatenate([matrix(300, 64) * 100, np.array([[np.nan, np.inf, -0.0, 2**-10] * 16], FLOAT32)])
    assert np.array_equal(eight.to_bits(cupy.asarray(x), dtype).get(), eight.to_bits(x, dtype))
    numbers = eight.from_bits(cupy.asarray(EVERY), dtype).get()
    assert np.array_equal(numbers, eight.from_bits(EVERY, dtype), equal_nan=True)
    here, there = (eight.from_dense(a, dtype, "rows") for a in (x[:-1], cupy.asarray(x[:-1])))
    assert np.array_equal(there.scale.get(), here.scale) and np.array_equal(there.bits.get(), here.bits)


def test_what_is_refused():
    x = matrix()
    says(["'e5m2'", "e4m3, int8"], lambda: eight.to_bits(x, "e5m2"))
    says(["float64"], lambda: eight.to_bits(x.astype(float), "e4m3"))
    says(["uint16"], lambda: eight.from_bits(np.zeros(3, np.uint16), "int8"))
    says(["'blocks'"], lambda: eight.scales(x, "e4m3", "blocks"))
    says(["1-dimensional"], lambda: eight.scales(x[0], "e4m3"))
    says(["NaN or an infinity"], lambda: eight.scales(np.array([[1, np.inf]], FLOAT32), "int8"))
    made = eight.from_dense(x, "e4m3")
    says(["(9, 13)", "(9, 1)"], lambda: eight.validate(eight.Eight("e4m3", made.bits, x)))
    says(["not positive"], lambda: eight.validate(eight.Eight("e4m3", made.bits, -made.scale)))
    says(["contiguous"], lambda: eight.validate(eight.Eight("e4m3", made.bits.T, made.scale)))
    says(
        ["int16"],
        lambda: eight.validate(eight.Eight("e4m3", made.bits.astype(np.int16), made.scale)),
    )
