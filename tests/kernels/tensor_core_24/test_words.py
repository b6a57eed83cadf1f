"""A's values and metadata in the order in which Hopper's kernels read them, in 16 bits and in 8."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.measure import check
from kernels.formats import half, two_four
from kernels.formats.two_four import TwoFour
from kernels.tensor_core_24 import fp8, fp8_operands, wgmma
from kernels.tensor_core_24.family import Wgmma


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
    if columns == 64:
        assert np.array_equal(made, wgmma.ring_metadata(a, rows)), "a step, where nothing else is asked for"


@given(
    m=st.integers(1, 200),
    k=st.integers(1, 200),
    rows=st.sampled_from([64, 128, 256]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=25)
def test_packed_values_lie_as_the_copy_engine_would_swizzle_them(m, k, rows, seed):
    """Of a byte's place in 64 rows of 64 bytes, bits 4 and 5 are combined with bits 7 and 8."""
    a = two_four.random(m, k, "bfloat16", seed)
    before = a.val.copy()
    made = wgmma.pack_values(a, rows)
    high, wide = ceil(m / rows) * rows // 64, ceil(k / 64)
    assert made.shape == (high, wide, 64, 32) and made.dtype == np.uint16
    assert made.flags.c_contiguous and np.array_equal(a.val, before)
    whole = np.zeros((64 * high, 32 * wide), np.uint16)
    whole[:m, : a.val.shape[1]] = a.val
    place = np.arange(0, 4096, 2)
    place ^= (place >> 7 & 3) << 4
    for i, j in np.ndindex(high, wide):
        piece = whole[64 * i : 64 * i + 64, 32 * j : 32 * j + 32].ravel()
        assert np.array_equal(made[i, j].ravel()[place // 2], piece)


def multiplied(a: TwoFour, b: np.ndarray, ring: np.ndarray, config: Wgmma) -> np.ndarray:
    """The product as the kernels make it: tiles, stages, warps and lanes, A's zeros beyond its edges.

    ring: uint32, row-major; b: float64 (k, n). sparse_stages.cuh, load: boxes of M/64 x 128 words at row / 64 and 2 k,
    and of M x 32 values at row and k / 2. multiply: block i of a warpgroup reads word (group BLOCKS + i) 128 + thread.
    """
    steps, high = (
        ring.shape[1] // 128,
        ceil(a.m / config.m),
    )  # of whole rounds, where they are asked for
    val = np.zeros((high * config.m, 32 * steps))
    val[: a.m, : a.val.shape[1]] = half.from_bits(a.val, a.dtype)
    wide = np.zeros((64 * steps, b.shape[1]))
    wide[: a.k] = b
    out = np.zeros((high * config.m, b.shape[1]))
    for row in range(0, high * config.m, config.m):
        for k in range(0, 64 * steps, 64):
            stage = ring[row // 64 : (row + config.m) // 64, 2 * k : 2 * k + 128].ravel()
            for block in range(config.m // 64):
                words = stage[block * 128 : block * 128 + 128].reshape(4, 8, 4)  # warp, g, t
                for selector in (0, 1):
                    dense = np.zeros((64, 32))
                    for warp, g, t, upper in np.ndindex(4, 8, 2, 2):
                        bits = int(words[warp, g, 2 * selector + t]) >> 16 * upper & 0xFFFF
                        r = 16 * warp + g + 8 * upper
                        for group in range(4):
                            pair = bits >> 4 * group & 15
                            c = k // 2 + 16 * selector + 8 * t + 2 * group
                            for i in (0, 1):
                                at = 16 * t + 4 * group + (pair >> 2 * i & 3)
                                dense[r, at] += val[row + 64 * block + r, c + i]
                    at = k + 32 * selector
                    out[row + 64 * block : row + 64 * block + 64] += dense @ wide[at : at + 32]
    return out[: a.m]


@pytest.mark.parametrize(
    "config",
    [
        Wgmma(),
        Wgmma("three", 3, 1, 256, 4, 1),
    ],
    ids=["128", "192 in rounds"],
)
@pytest.mark.parametrize(("m", "k"), [(150, 200)])
def test_the_words_multiply_to_the_product_and_any_other_order_does_not(config, m, k):
    """The harness's own limit must refuse metadata that is in the order of rows, of ldmatrix, …"""
    a = two_four.random(m, k, "bfloat16", 9)
    b = np.random.default_rng(4).uniform(-1, 1, (k, 24))
    reference = check.reference(two_four.to_dense(a).astype(np.float64) @ b)
    rows = 192 if config.m == 192 else 256
    ring = wgmma.ring_metadata(a, rows, 64 * config.steps(1))
    right = multiplied(a, b, ring, config)
    assert np.allclose(right, reference.values, rtol=0, atol=1e-12)
    for name, words in wrong_orders(a, ring, rows).items():
        assert words.shape == ring.shape, name
        out = half.from_dense(multiplied(a, b, words, config).astype(np.float32), "bfloat16")
        with pytest.raises(check.WrongResult, match="is wrong: relative error"):
            check.compare(out, reference, name)


def wrong_orders(a: TwoFour, ring: np.ndarray, rows: int = 256) -> dict[str, np.ndarray]:
    """The same words of metadata at wrong places; rows: what those of `ring` are rounded up to."""
    by_lane = ring.reshape(ring.shape[0], -1, 4, 8, 4)  # rows, steps, warps, g, t

    def at(words: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(words).reshape(ring.shape)

    return {
        "swizzled for ldmatrix": at(two_four.swizzle(a.meta, rows, ring.shape[1] // 2).view(np.uint32)),
        "lanes swapped": at(by_lane[..., [1, 0, 3, 2]]),
        "selectors swapped": at(by_lane[..., [2, 3, 0, 1]]),
        "warps swapped": at(by_lane[:, :, [1, 0, 3, 2]]),
        "rows g and g + 8 swapped": ring << 16 | ring >> 16,
    }


@pytest.mark.parametrize(("m", "k", "rows"), [(64, 128, 64), (70, 150, 128), (200, 40, 192), (1, 1, 256)])
def test_a_stage_takes_256_words_for_64_rows_and_128_columns(m, k, rows):
    a = fp8.problem(m, 8, k, seed=5).host().a
    words = fp8_operands.ring_metadata(a, rows)
    high, wide = -(-m // rows) * rows // 64, -(-k // 128)
    assert words.shape == (high, wide * 256) and words.dtype == np.uint32
    meta = np.full((high * 64, wide * 8), 0x4444, np.uint16)  # what is added: the columns 0 and 1 of every group
    meta[:m, : a.meta.shape[1]] = a.meta
    for tile, step, part, warp, lane in np.ndindex(high, wide, 2, 4, 32):
        row = 64 * tile + 16 * warp + 8 * (lane % 2) + lane // 4
        at = 8 * step + 4 * part + 2 * (lane // 2 % 2)
        expected = int(meta[row, at]) | int(meta[row, at + 1]) << 16
        assert words[tile, 256 * step + 128 * part + 32 * warp + lane] == expected


@pytest.mark.parametrize(("m", "k"), [(64, 128), (70, 150), (300, 257)])
def test_a_piece_is_what_the_copy_engine_would_have_brought(m, k):
    """Unit u of a row of 64 bytes at u ^ bits 7 and 8 of its address, as the 64-byte swizzle has it; then the words."""
    a = fp8.problem(m, 8, k, seed=6).host().a
    pieces, words = fp8_operands.pack(a), fp8_operands.ring_metadata(a, 256)
    high, wide = -(-m // 256) * 4, -(-k // 128)
    assert pieces.shape == (high, wide, 5120) and pieces.dtype == np.uint8
    val = np.zeros((64 * high, 64 * wide), np.uint8)
    val[:m, : a.val.shape[1]] = a.val
    at = np.arange(4096)
    found = np.empty_like(val)
    for i, step in np.ndindex(high, wide):
        linear = pieces[i, step, at ^ (at >> 7 & 3) << 4]
        found[64 * i : 64 * i + 64, 64 * step : 64 * step + 64] = linear.reshape(64, 64)
        own = words[i, 256 * step : 256 * step + 256]
        assert np.array_equal(pieces[i, step, 4096:].view(np.uint32), own)
    assert np.array_equal(found, val)
