"""The pictures of tensor_core_24, which are drawn from arrays."""

import re

import drawn
import matplotlib
import numpy as np
import pytest

matplotlib.use("agg")

from drawn import words
from matplotlib import pyplot as plt

from artifact.rooms.tensor_core_24 import pictures
from kernels.formats import two_four


def metadata(rows: int) -> np.ndarray:
    """Of a random matrix, every uint16 another one, so that each can be followed."""
    for seed in range(100):
        meta = two_four.random(rows, 64, "bfloat16", seed).meta
        if len(np.unique(meta)) == meta.size or rows > 16:
            return meta
    raise AssertionError("no matrix has metadata without repetitions")


legible = drawn.legible


# ---------------------------------------------------------------- pictures of the format


@pytest.mark.parametrize("dtype", two_four.DTYPES)
def test_meta_picture_is_of_the_arrays(dtype):
    a = two_four.random(3, 32, dtype, 1)
    fig, data = pictures.meta_picture(a)
    dense = np.zeros(16, np.float32)
    dense[data["column"]] = data["value"]
    np.testing.assert_array_equal(dense, two_four.to_dense(a)[0, :16])
    meta = int(a.meta[0, 0])
    assert set(data["meta"]) == {f"0x{meta:04X}"} and f"meta 0x{meta:04X}" in words(fig)
    packed = "".join(reversed(data["bits"]))
    assert int(packed, 2) == meta
    drawn = [t for t in fig.findobj(plt.Text) if re.fullmatch("[01]", t.get_text())]
    heights = [round(text.get_position()[1], 3) for text in drawn]
    (row_of_bits,) = {y for y in heights if heights.count(y) == 16}
    bits = [t for t, y in zip(drawn, heights, strict=True) if y == row_of_bits]
    bits = sorted((text.get_position()[0], text.get_text()) for text in bits)
    assert "".join(bit for _, bit in bits) == packed
    legible(fig)


def test_meta_picture_of_the_source_s_example():
    """[0, 2.1, -8.9, 0] has the positions 01 and 10, and the metadata 1001."""
    row = np.zeros((1, 16), np.float32)
    row[0, :4] = 0, 2.1, -8.9, 0
    fig, data = pictures.meta_picture(two_four.compress(row, "bfloat16"))
    assert data["bits"].tolist()[:2] == ["01", "10"] and data["meta"][0].endswith("9")
    assert data["value"].tolist()[2:] == [0] * 6  # groups without non-zeros store zeros
    legible(fig)


def test_the_map_of_the_metadata_is_that_of_the_instruction():
    """PTX ISA, mma.sp.m16n8k32: lane 4g + t holds row g in the low half and row g + 8 in the high
    one; t of 0 and 1 with selector 0 the columns 0–15 and 16–31, t of 2 and 3 the next with 1."""
    data = pictures.metadata_map(metadata(64))
    assert len(data) == 256 and not data.duplicated(["row", "column"]).any()
    assert not data.duplicated(["register", "lane", "half"]).any()
    row = data["row"] % 16
    assert (data["lane"] == 4 * (row % 8) + data["column"]).all()
    assert (data["half"] == np.where(row < 8, "low", "high")).all()
    assert (data["register"] == data["row"] // 16).all()
    assert (data["selector"] == data["column"] // 2).all()


def test_lanes_picture_shows_every_value_once_in_memory_and_once_in_a_lane():
    meta = metadata(16)
    fig, data = pictures.lanes_picture(meta)
    said = words(fig)
    for value in meta.ravel():
        assert said.count(f"{value:04X}") == 1
        assert sum(f"{value:04X}" in text for text in said) == 2
    for place in data.itertuples():
        assert int(place.meta, 16) == meta[place.row, place.column]
    idle = [p for p in fig.get_axes()[0].patches if p.get_hatch()]
    assert len(idle) == 32  # sixteen lanes of each instruction, told by more than colour
    first = data[(data["lane"] == 0)].set_index("half")["meta"]
    assert f"{first['high'][2:]}\u2009{first['low'][2:]}" in said
    legible(fig)


def test_swizzle_picture_shows_both_orders():
    meta = metadata(16)
    fig, data = pictures.swizzle_picture(meta, 3)
    swizzled = two_four.swizzle(meta, 16, 64)
    rebuilt = np.zeros((8, 8), np.uint16)
    rebuilt[data["swizzled_row"], data["swizzled_column"]] = [int(v, 16) for v in data["meta"]]
    np.testing.assert_array_equal(rebuilt, swizzled)
    cells = [t for t in fig.findobj(plt.Text) if re.fullmatch("[0-9A-F]{4}", t.get_text())]
    cells.sort(key=lambda t: (round(t.get_position()[1], 3), t.get_position()[0]))
    right = [int(t.get_text(), 16) for t in cells if t.get_position()[0] > 10]
    left = [int(t.get_text(), 16) for t in cells if t.get_position()[0] < 10]
    assert right == swizzled.ravel().tolist() and left == meta.ravel().tolist()
    legible(fig)


def test_warp_metadata_is_one_ldmatrix():
    meta = metadata(64)
    fig, data = pictures.warp_metadata(meta)
    swizzled = two_four.swizzle(meta, 64, 64)
    assert swizzled.shape == (32, 8) and len(data) == 256
    for place in data.sample(40, random_state=0).itertuples():
        assert swizzled[place.swizzled_row, place.swizzled_column] == int(place.meta, 16)
        assert place.swizzled_row // 8 == place.register
    legible(fig)
