"""Dense matrices of 16 and of 8 bits: the bits of every number, both ways, scales, and what is refused."""

import struct
from functools import partial

import numpy as np
import pytest
from refused import says

from kernels.formats import half

FLOAT32 = np.float32
EVERY = {"bfloat16": np.arange(2**16).astype(np.uint16), "e4m3": np.arange(256).astype(np.uint8)}
EVERY |= {"float16": EVERY["bfloat16"], "int8": EVERY["e4m3"]}
#: dtype -> what every NaN becomes; the least pattern beyond all numbers.
NAN = {"bfloat16": 0x7FFF, "float16": 0x7FFF, "e4m3": 0x7F, "int8": 0}
TOP = {"bfloat16": 0x7F80, "float16": 0x7C00, "e4m3": 0x7F}
each = pytest.mark.parametrize("dtype", half.BITS)


def number(bits: int, dtype: str) -> float:
    """One bit pattern, by the standard library, or by its definition."""
    if dtype == "int8":
        return struct.unpack("<b", bytes([bits]))[0]
    if dtype in half.DTYPES:
        return struct.unpack(
            "<e" if dtype == "float16" else "<f", bytes(2 * (dtype != "float16")) + struct.pack("<H", bits)
        )[0]
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = (1 + fraction / 8) * 2.0 ** (exponent - 7) if exponent else fraction / 8 * 2**-6
    return np.nan if bits & 0x7F == 0x7F else -size if bits >> 7 else size


def floats(*bits: int) -> np.ndarray:
    return np.array(bits, np.uint32).view(FLOAT32)


def matrix(rows: int = 9, columns: int = 13) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, columns)).astype(FLOAT32)


@each
def test_every_bit_pattern_stands_for_its_number(dtype):
    every = EVERY[dtype]
    made = half.from_bits(every, dtype)
    assert made.dtype == FLOAT32 and np.array_equal(made, [number(int(b), dtype) for b in every], equal_nan=True)
    back = half.to_bits(made, dtype)
    assert back.dtype == every.dtype and np.array_equal(back, np.where(np.isnan(made), NAN[dtype], every))
    assert (half.to_bits(floats(0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF), dtype) == NAN[dtype]).all()


@pytest.mark.parametrize("dtype", TOP)
def test_rounding_goes_to_the_nearest_and_to_even_between_two(dtype):
    """Up to infinity, as what would be the next number; e4m3 saturates at its largest number instead."""
    low = np.arange(TOP[dtype] - (dtype == "e4m3"))
    top = {"bfloat16": 2.0**128, "float16": 2.0**16, "e4m3": 448.0}[dtype]
    high = np.append([number(int(b), dtype) for b in low[1:]], top)
    middle = ((np.array([number(int(b), dtype) for b in low]) + high) / 2).astype(FLOAT32)
    for sign, x in ((0, middle), (1 << 8 * EVERY[dtype].itemsize - 1, -middle)):
        to_bits, away = half.to_bits, FLOAT32(-np.inf if sign else np.inf)
        assert np.array_equal(to_bits(x, dtype), low + low % 2 + sign)
        assert np.array_equal(to_bits(np.nextafter(x, FLOAT32(0)), dtype), low + sign)
        assert np.array_equal(to_bits(np.nextafter(x, away), dtype), low + 1 + sign)
        least, largest = np.array([[x[0] / 4, x[0] * 0], [away, away / 2]], FLOAT32)
        assert to_bits(least, dtype).tolist() == [sign] * 2
        assert (to_bits(largest, dtype) == TOP[dtype] - (dtype == "e4m3") + sign).all()


def test_whole_numbers_saturate_and_go_to_even():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.4, 127.5, 1e9, np.inf, -128.4, -129, -np.inf], FLOAT32)
    assert half.to_bits(x, "int8").view(np.int8).tolist() == [0, 2, 2, 0, -2] + [127] * 4 + [-128] * 3


def test_magnitudes_are_in_the_order_of_sizes():
    for dtype in half.EIGHT:
        numbers, order = np.abs(half.from_bits(EVERY[dtype], dtype)), half.magnitude(EVERY[dtype], dtype).astype(int)
        known = ~np.isnan(numbers)
        assert np.array_equal(numbers[known][:, None] < numbers[known], order[known][:, None] < order[known])
        assert (order[~known] == 127).all() and np.array_equal(numbers == 0, order == 0)


@each
@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_and_back_rounds_once_and_filling_writes_in_place(dtype, order):
    x = np.array(matrix(), order=order)
    made = half.from_dense(x, dtype)
    scale = getattr(made, "scale", FLOAT32(1))
    assert made.bits.flags.c_contiguous and made.shape == x.shape and made.size == x.size
    back = half.to_dense(made)
    assert back.dtype == FLOAT32 and back.flags.c_contiguous
    assert np.array_equal(back, half.from_bits(half.to_bits(x / scale, dtype), dtype) * scale)
    for value in (np.nan, 0.0, -0.0, 1.0, -2.5, 1e30, -np.inf, 0.1):
        bits = made.bits
        made.fill(value)
        assert made.bits is bits and (bits == half.to_bits(np.full(1, value, FLOAT32), dtype)).all()


@pytest.mark.parametrize("dtype", half.EIGHT)
@pytest.mark.parametrize(("by", "axis"), [("tensor", None), ("rows", 1), ("columns", 0)])
def test_a_scale_takes_the_largest_to_the_largest(dtype, by, axis):
    x = matrix() * np.array([1e-3, 1, 1e3] * 3, FLOAT32)[:, None]
    made = half.from_dense(x, dtype, by)
    assert made.scale.shape == x.max(axis=axis, keepdims=True).shape and made.scale.dtype == FLOAT32
    assert (np.abs(half.from_bits(made.bits, dtype)).max(axis=axis) == half.LARGEST[dtype]).all()
    again = half.from_dense(x, dtype, made.scale)
    assert again.scale is made.scale and np.array_equal(again.bits, made.bits)


def test_scales_of_zeros_and_of_the_smallest_numbers():
    x = np.array([[0, 0], [1e-45, 0], [3e38, 1]], FLOAT32)
    made = half.scales(x, "e4m3", "rows").ravel().tolist()
    assert made == [1.0, pytest.approx(half.LEAST_SCALE), pytest.approx(3e38 / 448)]
    assert np.isfinite(half.to_dense(half.from_dense(x, "e4m3", "rows"))).all()


@each
def test_what_would_be_rounded_twice_or_is_no_dtype_is_refused(dtype):
    x, every = matrix(), (half.to_bits, half.from_bits, half.from_dense)
    for words, work, *of in (
        (["float32", "float64"], half.to_bits, x.astype(float), dtype),
        (["float32", "int64"], half.from_dense, x.astype(int), dtype),
        (["uint", "int32"], half.from_bits, np.zeros(3, np.int32), dtype),
        (["dtype is 'float32'", dtype], half.from_dense, x, "float32"),
        *(([f"dtype is {other!r}", dtype], work, x, other) for other in ("bf16", None, 16) for work in every),
    ):
        says(words, partial(work, *of))


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["'blocks'"], (matrix(), "e4m3", "blocks")),
        (["1-dimensional"], (matrix()[0], "e4m3")),
        (["NaN or an infinity"], (np.array([[1, np.inf]], FLOAT32), "int8")),
    ],
)
def test_scales_that_are_none_are_refused(words, given):
    says(words, lambda: half.scales(*given))


@pytest.mark.gpu
@each
def test_the_gpu_converts_alike(device, dtype):
    import cupy

    every = EVERY[dtype]
    made = half.from_bits(cupy.asarray(every), dtype)
    assert np.array_equal(made.get(), half.from_bits(every, dtype), equal_nan=True)
    x = np.random.default_rng(0).integers(0, 2**32, 1 << 20, np.uint64).astype(np.uint32).view(FLOAT32)
    x[:7] = floats(0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x80000001, 0x477FEFFF, 0x477FF000, 0x33000000)
    x[7:1000] = np.arange(-496.5, 496.5)
    back = half.to_bits(cupy.asarray(x), dtype)
    assert back.dtype == every.dtype and np.array_equal(back.get(), half.to_bits(x, dtype))
