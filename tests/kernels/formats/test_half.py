"""Dense 16-bit matrices: the bits of every number, both ways, and what is refused."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from refused import says

from kernels.formats import half

UINT16, FLOAT32 = np.uint16, np.float32
INFINITY = {"bfloat16": 0x7F80, "float16": 0x7C00}
EVERY = np.arange(2**16, dtype=np.uint32).astype(UINT16)


def number(bits: int, dtype: str) -> float:
    """One bit pattern, by the standard library."""
    if dtype == "float16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    return struct.unpack("<f", struct.pack("<HH", 0, bits))[0]


def matrix(dtype: str, rows: int = 5, columns: int = 7, seed: int = 0) -> half.Half:
    dense = np.random.default_rng(seed).uniform(-1, 1, (rows, columns)).astype(FLOAT32)
    return half.from_dense(dense, dtype)


# ---------------------------------------------------------------------------- bit patterns


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_every_bit_pattern_stands_for_its_number(dtype):
    made = half.from_bits(EVERY, dtype)
    assert made.dtype == FLOAT32
    assert np.array_equal(made, [number(b, dtype) for b in range(2**16)], equal_nan=True)
    back = half.to_bits(made, dtype)
    assert back.dtype == UINT16
    assert np.array_equal(back, np.where(np.isnan(made), 0x7FFF, EVERY))


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_rounding_goes_to_the_nearest_and_to_even_between_two(dtype):
    low = np.arange(INFINITY[dtype], dtype=np.uint32)  # each with its upper neighbour
    high = [number(int(b), dtype) for b in low[1:]]
    high.append(2.0 ** (128 if dtype == "bfloat16" else 16))  # what infinity stands for
    middle = ((half.from_bits(low.astype(UINT16), dtype) + np.array(high)) / 2).astype(FLOAT32)
    assert np.all(np.diff(middle) > 0)
    for sign in (0, 0x8000):
        x = -middle if sign else middle
        assert np.array_equal(half.to_bits(x, dtype), low + low % 2 + sign)
        inside = np.nextafter(x, FLOAT32(0))
        assert np.array_equal(half.to_bits(inside, dtype), low + sign)
        outside = np.nextafter(x, FLOAT32(-np.inf if sign else np.inf))
        assert np.array_equal(half.to_bits(outside, dtype), low + 1 + sign)


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_nan_infinity_and_zero(dtype):
    nan = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0xFFFFFFFF], np.uint32).view(FLOAT32)
    assert half.to_bits(nan, dtype).tolist() == [0x7FFF] * 4
    other = np.array([np.inf, -np.inf, 3.4e38, -3.4e38, 0.0, -0.0], FLOAT32)
    top = INFINITY[dtype]
    expected = [top, top | 0x8000, top, top | 0x8000, 0, 0x8000]
    assert half.to_bits(other, dtype).tolist() == expected
    assert half.to_bits(np.array(-np.inf, FLOAT32), dtype) == top | 0x8000


def test_what_would_be_rounded_twice_is_refused():
    says(["float32", "float64"], lambda: half.to_bits(np.ones(3), "bfloat16"))
    says(["float32", "int64"], lambda: half.to_bits(np.arange(3), "float16"))
    says(["float32", "float64"], lambda: half.from_dense(np.ones((3, 3)), "float16"))
    says(["uint16", "int32"], lambda: half.from_bits(np.zeros(3, np.int32), "float16"))


@pytest.mark.parametrize("dtype", ["float32", "bf16", None, 16])
def test_another_dtype_is_refused_everywhere(dtype):
    words = [f"dtype is {dtype!r}", "bfloat16, float16"]
    x, bits = np.ones((4, 4), FLOAT32), np.zeros((4, 4), UINT16)
    says(words, lambda: half.to_bits(x, dtype))
    says(words, lambda: half.from_bits(bits, dtype))
    says(words, lambda: half.from_dense(x, dtype))
    says(words, lambda: half.validate(half.Half(dtype, bits)))
    says(words, lambda: half.Half(dtype, bits).fill(1.0))


# ---------------------------------------------------------------------------- matrices


@pytest.mark.parametrize("dtype", half.DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_dense_and_back_rounds_once(dtype, order):
    dense = np.random.default_rng(0).normal(0, 1, (9, 4)).astype(FLOAT32)
    made = half.from_dense(np.array(dense, order=order), dtype)
    assert made.dtype == dtype and made.bits.dtype == UINT16 and made.bits.flags.c_contiguous
    assert (made.shape, made.size, made.nbytes) == ((9, 4), 36, 72)
    assert np.array_equal(made.bits, half.to_bits(dense, dtype))
    back = half.to_dense(made)
    assert back.dtype == FLOAT32 and back.flags.c_contiguous
    assert np.array_equal(back, half.from_bits(made.bits, dtype))
    assert np.abs(back / dense - 1).max() <= {"bfloat16": 2.0**-8, "float16": 2.0**-11}[dtype]


@pytest.mark.parametrize("dtype", half.DTYPES)
@pytest.mark.parametrize("value", [math.nan, 0.0, -0.0, 1.0, -2.5, 1e30, -math.inf, 0.1])
def test_filling_writes_the_bits_of_the_number_in_place(dtype, value):
    x = matrix(dtype)
    bits = x.bits
    x.fill(value)
    assert x.bits is bits
    assert np.all(bits == half.to_bits(np.array(value, FLOAT32), dtype))
    assert np.array_equal(np.isnan(half.to_dense(x)), np.full(x.shape, math.isnan(value)))


@pytest.mark.parametrize(
    ("bits", "words"),
    [
        (np.zeros((2, 2), np.int16), ["int16", "uint16"]),
        (np.zeros(4, UINT16), ["1-dimensional", "2-dimensional"]),
        (np.zeros((4, 3), UINT16, order="F"), ["row-major"]),
        (np.zeros((4, 6), UINT16)[:, ::2], ["row-major"]),
    ],
)
def test_a_malformed_matrix_gets_one_sentence(bits, words):
    says(["float16", *words], lambda: half.validate(half.Half("float16", bits)))


# ---------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", half.DTYPES)
def test_the_gpu_converts_alike(device, dtype):
    import cupy

    made = half.from_bits(cupy.asarray(EVERY), dtype)
    assert isinstance(made, cupy.ndarray) and made.dtype == FLOAT32
    assert np.array_equal(made.get(), half.from_bits(EVERY, dtype), equal_nan=True)
    words = np.random.default_rng(0).integers(0, 2**32, 1 << 20, np.uint64).astype(np.uint32)
    special = [0x7F800001, 0xFFFFFFFF, 0x7F7FFFFF, 0x80000001, 0x477FEFFF, 0x477FF000, 0x33000000]
    words[: len(special)] = special
    x = words.view(FLOAT32)
    back = half.to_bits(cupy.asarray(x), dtype)
    assert isinstance(back, cupy.ndarray) and back.dtype == UINT16
    assert np.array_equal(back.get(), half.to_bits(x, dtype))
