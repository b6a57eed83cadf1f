"""2:4 of 8-bit numbers: against every group there is, a warpgroup played thread by thread, and what is refused."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from refused import says

from kernels.formats import eight, two_four, two_four_eight
from kernels.formats.two_four_eight import TwoFourEight

FLOAT32 = np.float32
SHAPES = [(1, 1), (3, 5), (7, 32), (64, 64), (65, 100), (130, 68)]


def dense(m, k, seed=0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, k)).astype(FLOAT32)


def kept(group: np.ndarray, dtype: str) -> list[int]:
    """Columns of the two largest sizes of a group of patterns, by sorting."""
    size = eight.magnitude(group, dtype).astype(int)
    return sorted(sorted(range(len(group)), key=lambda i: (-size[i], i))[:2])


def slow_prune(bits: np.ndarray, dtype: str) -> np.ndarray:
    out = np.zeros_like(bits)
    for row in range(bits.shape[0]):
        for start in range(0, bits.shape[1], 4):
            group = bits[row, start : start + 4]
            for column in kept(group, dtype):
                out[row, start + column] = group[column]
    return out


def without_negative_zero(bits, dtype):
    return np.where(eight.magnitude(bits, dtype) == 0, 0, bits)


# ---------------------------------------------------------------------------- prune and compress


@pytest.mark.parametrize("dtype", eight.DTYPES)
def test_every_group_of_some_sizes(dtype):
    values = np.array([0, 1, -1, 2, -3, 5], FLOAT32)
    groups = np.array(list(itertools.product(values, repeat=4)), FLOAT32)  # 1296 rows of one group
    bits = eight.to_bits(groups, dtype)
    a = two_four_eight.validate(two_four_eight.compress(bits, dtype, prune=True))
    assert np.array_equal(two_four_eight.to_dense_bits(a), slow_prune(bits, dtype))
    pairs = a.meta[:, 0] & 15
    expected = [low | high << 2 for low, high in (kept(g, dtype) for g in bits)]
    assert pairs.tolist() == expected


@pytest.mark.parametrize("dtype", eight.DTYPES)
@pytest.mark.parametrize(("m", "k"), SHAPES)
def test_pruned_at_any_size(m, k, dtype):
    bits = np.random.default_rng(m * k).integers(0, 256, (m, k), np.uint8)
    a = two_four_eight.validate(two_four_eight.compress(bits, dtype, prune=True))
    assert a.k_pad % 32 == 0 and 0 <= a.k_pad - k < 32
    assert a.val.shape == (m, a.k_pad // 2) and a.meta.shape == (m, a.k_pad // 16)
    assert a.nnz == a.val.size and a.nbytes == a.val.nbytes + a.meta.nbytes + 4
    found = two_four_eight.to_dense_bits(a)
    assert np.array_equal(without_negative_zero(found, dtype), without_negative_zero(slow_prune(bits, dtype), dtype))
    again = two_four_eight.compress(found, dtype)  # it fits now
    assert np.array_equal(again.val, a.val) or np.any(found == 0x80)
    assert np.array_equal(two_four_eight.to_dense_bits(again), found)


@pytest.mark.parametrize("dtype", eight.DTYPES)
@pytest.mark.parametrize("by", ["tensor", "rows"])
def test_of_float32_the_scaled_and_rounded_numbers_are_kept(dtype, by):
    x = dense(50, 70) * np.logspace(-2, 2, 50, dtype=FLOAT32)[:, None]
    a = two_four_eight.compress(x, dtype, prune=True, scale=by)
    whole = eight.from_dense(x, dtype, by)
    assert np.array_equal(a.scale, whole.scale)
    expected = replace(whole, bits=slow_prune(whole.bits, dtype))
    assert np.array_equal(two_four_eight.to_dense(a), eight.to_dense(expected))


def test_a_nan_is_kept_and_infinity_has_no_scale():
    row = np.array([[1, 448, np.nan, 2]], FLOAT32)
    a = two_four_eight.compress(eight.to_bits(row, "e4m3"), "e4m3", prune=True)
    assert np.array_equal(two_four_eight.to_dense(a), [[0, 448, np.nan, 0]], equal_nan=True)
    says(["NaN or an infinity"], lambda: two_four_eight.compress(row, "e4m3", prune=True))


def test_rows_are_worked_on_in_parts(monkeypatch):
    x = dense(23, 40)
    whole = two_four_eight.compress(x, "e4m3", prune=True, scale="rows")
    numbers = two_four_eight.to_dense(whole)
    monkeypatch.setattr(two_four, "_CHUNK", 100)
    parts = two_four_eight.validate(two_four_eight.compress(x, "e4m3", prune=True, scale="rows"))
    assert np.array_equal(parts.val, whole.val) and np.array_equal(parts.meta, whole.meta)
    assert np.array_equal(two_four_eight.to_dense(parts), numbers)


def test_the_bytes_of_the_docstring():
    row = np.zeros((1, 32), FLOAT32)
    row[0, [0, 2, 5, 7, 30, 31]] = [1, 2, 3, 4, 5, 6]
    a = two_four_eight.compress(row, "int8", scale=np.ones((1, 1), FLOAT32))
    assert a.val.tolist() == [[1, 2, 3, 4, *[0] * 10, 5, 6]]
    assert a.meta.tolist() == [[0x44D8, 0xE444]]


# ---------------------------------------------------------------------------- who needs which word


@pytest.mark.parametrize(("m", "k", "rows"), [(64, 64, 64), (128, 192, 64), (70, 100, 192), (1, 4, 128)])
def test_each_thread_has_the_columns_of_its_row(m, k, rows):
    a = two_four_eight.compress(dense(m, k, 3), "e4m3", prune=True)
    words = two_four_eight.words(a.meta, rows)
    assert len(words) == -(-m // rows) * rows // 64
    whole = np.full((words.shape[0] * 64, words.shape[1] * 4), two_four.EMPTY, np.uint16)
    whole[:m, : a.k_pad // 16] = a.meta
    for tile, step, thread in np.ndindex(words.shape[0], words.shape[1], 128):
        # CUTLASS's ELayout_64x64: bits of the thread, from the lowest, are 8 rows, 32 columns, 1, 2, 4 and 16, 32 rows.
        bit = [thread >> i & 1 for i in range(7)]
        row = 8 * bit[0] + bit[2] + 2 * bit[3] + 4 * bit[4] + 16 * bit[5] + 32 * bit[6]
        low, high = whole[64 * tile + row, 4 * step + 2 * bit[1] :][:2]
        assert words[tile, step, thread // 32, thread % 32] == int(low) | int(high) << 16


# ---------------------------------------------------------------------------- the package, CuPy, errors


def test_three_of_four_are_named():
    bits = np.zeros((3, 70), np.uint8)
    bits[1, 66:69] = [1, 2, 0x80]
    bits[2, 64:67] = 1
    says(
        ["row 2, group 16 (columns 64 to 67)", "3 non-zeros", "prune"],
        lambda: two_four_eight.compress(bits, "int8"),
    )
    bits[2, 64:67] = [1, 0x80, 1]  # in e4m3 that is a zero
    assert np.array_equal(two_four_eight.to_dense(two_four_eight.compress(bits, "e4m3"))[2, 65], 0)


def broken(a: TwoFourEight, name: str, row: int, column: int, value: int) -> TwoFourEight:
    array = getattr(a, name).copy()
    array[row, column] = value
    return replace(a, **{name: array})


def test_what_is_refused():
    x, compress, validate = dense(6, 36), two_four_eight.compress, two_four_eight.validate
    says(["'bfloat16'"], lambda: compress(x, "bfloat16"))
    says(["float64"], lambda: compress(x.astype(float), "int8"))
    says(["by 'columns'", "a sum runs over"], lambda: compress(x, "int8", scale="columns"))
    says(["give the scales"], lambda: compress(x.view(np.uint8), "int8", True, scale="rows"))
    says(["(5, 1)"], lambda: compress(x, "int8", True, scale=np.ones((5, 1), FLOAT32)))
    a = compress(x, "e4m3", prune=True)
    says(["indices 1 and 1", "row 2, group 5"], lambda: validate(broken(a, "meta", 2, 1, 0x4454)))
    says(["row 3, column 36", "36 to 63"], lambda: validate(broken(a, "val", 3, 18, 7)))
    says(["val is uint16"], lambda: validate(replace(a, val=a.val.astype(np.uint16))))
    says(["contiguous"], lambda: validate(replace(a, meta=np.asfortranarray(a.meta))))
    says(["100 rows"], lambda: two_four_eight.words(a.meta, rows=100))
    says(["even number"], lambda: two_four_eight.words(a.meta[:, :3]))
