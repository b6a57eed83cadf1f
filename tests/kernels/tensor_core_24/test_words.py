"""A's values and metadata in the order in which Hopper's kernels read them, in 16 bits and in 8."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.formats import two_four
from kernels.formats.two_four import TwoFour
from kernels.tensor_core_24 import fp8, wgmma


def word_by_word(a: TwoFour, rows: int, columns: int) -> np.ndarray:
    """The ring's metadata as the PTX ISA assigns it, one lane at a time.

    "Matrix Fragments for sparse wgmma.mma_async.m64nNk32": warp w has rows 16 w to 16 w + 15; lane 4 g + t
    holds row g in the low half and row g + 8 in the high half; of 32 columns, lanes t = 0 and 1 serve
    the first and the second 16 with selector 0, lanes t = 2 and 3 with selector 1.
    """

    def group_of_16(row: int, column: int) -> int:
        inside = row < a.m and column < 16 * a.meta.shape[1]
        return int(a.meta[row, column // 16]) if inside else two_four.EMPTY

    high, wide = ceil(a.m / rows) * rows // 64, ceil(a.k / columns) * columns // 64
    ring = np.zeros((high, wide, 4, 32), np.uint32)
    for i, j, warp, lane in np.ndindex(ring.shape):
        g, t = divmod(lane, 4)
        row = 64 * i + 16 * warp + g
        column = 64 * j + 32 * (t // 2) + 16 * (t % 2)
        low, upper = group_of_16(row, column), group_of_16(row + 8, column)
        ring[i, j, warp, lane] = low | upper << 16
    return ring.reshape(high, -1)


@given(
    m=st.integers(1, 200),
    k=st.integers(1, 200),
    rows=st.sampled_from([64, 128, 192, 256]),
    columns=st.sampled_from([64, 128, 256]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=25)
def test_every_lane_gets_its_word(m, k, rows, columns, seed):
    a = two_four.random(m, k, "bfloat16", seed)
    made = wgmma.ring_metadata(a, rows, columns)
    assert made.dtype == np.uint32 and made.flags.c_contiguous
    assert made.shape == (ceil(m / rows) * rows // 64, 2 * ceil(k / columns) * columns)
    assert np.array_equal(made, word_by_word(a, rows, columns))


def unswizzled(piece: np.ndarray) -> np.ndarray:
    """64 rows of 64 bytes as they were: of a byte's place, bits 4 and 5 are combined with bits 7 and 8."""
    place = np.arange(4096)
    return piece.view(np.uint8).ravel()[place ^ (place >> 7 & 3) << 4]


@given(m=st.integers(1, 200), k=st.integers(1, 200), rows=st.sampled_from([64, 256]), eight=st.booleans())
@settings(deadline=None, max_examples=40)
def test_packed_values_lie_as_the_copy_engine_would_swizzle_them(m, k, rows, eight):
    """In 8 bits with the words of metadata behind them."""
    a = fp8.problem(m, 8, k, seed=6).host().a if eight else two_four.random(m, k, "bfloat16", 6)
    before, deep = a.val.copy(), 128 if eight else 64  # columns of A in a piece
    made = wgmma.pack_values(a, rows, deep)
    high, wide = ceil(m / rows) * rows // 64, ceil(k / deep)
    assert made.shape == ((high, wide, 5120) if eight else (high, wide, 64, 32)) and made.dtype == a.val.dtype
    assert made.flags.c_contiguous and np.array_equal(a.val, before)
    whole = np.zeros((64 * high, wide * deep // 2), a.val.dtype)
    whole[:m, : a.val.shape[1]] = a.val
    for i, j in np.ndindex(high, wide):
        piece = whole[64 * i : 64 * i + 64, deep // 2 * j : deep // 2 * (j + 1)]
        assert np.array_equal(
            unswizzled(made[i, j].reshape(-1)[: 4096 // a.val.itemsize]), piece.copy().view(np.uint8).ravel()
        )
        if eight:
            words = wgmma.ring_metadata(a, rows, 128)[i, 256 * j : 256 * j + 256]
            assert np.array_equal(made[i, j, 4096:].view(np.uint32), words)


@pytest.mark.parametrize(("m", "k", "rows"), [(64, 128, 64), (70, 150, 128), (200, 40, 192), (1, 1, 256)])
def test_a_stage_takes_256_words_for_64_rows_and_128_columns(m, k, rows):
    a = fp8.problem(m, 8, k, seed=5).host().a
    words = wgmma.ring_metadata(a, rows, 128)
    high, wide = -(-m // rows) * rows // 64, -(-k // 128)
    assert words.shape == (high, wide * 256) and words.dtype == np.uint32
    meta = np.full((high * 64, wide * 8), 0x4444, np.uint16)  # what is added: the columns 0 and 1 of every group
    meta[:m, : a.meta.shape[1]] = a.meta
    for tile, step, part, warp, lane in np.ndindex(high, wide, 2, 4, 32):
        row = 64 * tile + 16 * warp + 8 * (lane % 2) + lane // 4
        at = 8 * step + 4 * part + 2 * (lane // 2 % 2)
        expected = int(meta[row, at]) | int(meta[row, at + 1]) << 16
        assert words[tile, 256 * step + 128 * part + 32 * warp + lane] == expected
