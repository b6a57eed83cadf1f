"""A's values and metadata in the order in which Hopper's kernels read them, in 16 bits and in 8."""

from math import ceil

import numpy as np
from hypothesis import given, settings, strategies as st

from kernels.formats import two_four
from kernels.tensor_core_24 import fp8, wgmma


def word_by_word(a, rows: int, columns: int) -> np.ndarray:
    """The ring's metadata as the PTX ISA assigns it, one lane at a time; what is added has columns 0 and 1 of groups.

    "Matrix Fragments for sparse wgmma.mma_async.m64nNk32": warp w has rows 16 w to 16 w + 15; lane 4 g + t
    holds row g in the low half and row g + 8 in the high half; of 32 columns, lanes t = 0 and 1 serve
    the first and the second 16 with selector 0, lanes t = 2 and 3 with selector 1. "m64nNk64", of 8 bits: lane
    4 g + 2 c + s holds row 8 s + g, of 32 columns c the first 16 in the low half.
    """
    high, wide = ceil(a.m / rows) * rows // 64, ceil(a.k / columns) * columns // 64
    meta = np.full((64 * high, 4 * wide), 0x4444, np.uint32)
    meta[: a.m, : a.meta.shape[1]] = a.meta
    ring = np.zeros((high, wide, 4, 32), np.uint32)
    for i, j, warp, lane in np.ndindex(ring.shape):
        g, t = divmod(lane, 4)
        row, at = 64 * i + 16 * warp + g, 4 * j + t // 2 * 2
        low, upper = (row, at + t % 2), (row + 8, at + t % 2)
        if a.dtype == "e4m3":
            low, upper = (row + 8 * (t % 2), at), (row + 8 * (t % 2), at + 1)
        ring[i, j, warp, lane] = meta[low] | meta[upper] << 16
    return ring.reshape(high, -1)


def matrix(m: int, k: int, in_8: bool, seed: int):
    return fp8.problem(m, 8, k, seed=seed).host().a if in_8 else two_four.random(m, k, "bfloat16", seed)


@given(
    m=st.integers(1, 200),
    k=st.integers(1, 200),
    rows=st.sampled_from([64, 128, 192, 256]),
    columns=st.sampled_from([64, 128, 256]),
    in_8=st.booleans(),
)
@settings(deadline=None, max_examples=30)
def test_every_lane_gets_its_word(m, k, rows, columns, in_8):
    columns = max(columns, 64 * (1 + in_8))  # a step in 8 bits
    a = matrix(m, k, in_8, 5)
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
    a, deep = matrix(m, k, eight, 6), 128 if eight else 64  # columns of A in a piece
    before = a.val.copy()
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
