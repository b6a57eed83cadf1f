"""Pictures that code draws: what Fig. 2 shows is what the formats store."""

from __future__ import annotations

import async_records as made
import drawn
import numpy as np
import pytest
from matplotlib.patches import Rectangle

from artifact.book.study import start
from artifact.rooms.async_sparse import shown
from kernels.formats import bcsr, csr, wcsr


@pytest.mark.parametrize("units", [(16, 16, 8), (32, 8, 16)])
def test_the_picture_says_what_is_stored(units):
    block, window, pad = units
    fig, data = shown.formats(shown.examples(), *units)
    said = drawn.words(fig)
    for title, a in shown.examples().items():
        b, w = bcsr.from_csr(a, block=block), wcsr.from_csr(a, window=window, pad=pad)
        assert title in said and f"{a.m} × {a.k}, {a.nnz} non-zeros" in said
        for stored in (b, w):
            assert f"fill {a.nnz} / {stored.val.size} = {stored.fill_ratio:.1%}" in said
        rows = data[data["case"] == title]
        # At the places that the data name, the formats have these non-zeros.
        assert (b.val[rows["block"], rows["row"] % block, rows["column"] % block] != 0).all()
        assert (w.val[rows["row"] % window, rows["packed"]] != 0).all()
        assert (w.col_idx[rows["packed"]] == rows["column"]).all() and len(rows) == a.nnz
    drawn.legible(fig)


def test_every_block_is_tinted_and_all_padding_hatched():
    a = shown.examples()["after reverse Cuthill-McKee"]
    shapes = shown.formats({"one": a})[0].findobj(Rectangle)
    assert sum(x.get_width() == 16 for x in shapes if x.get_alpha() == 0.28) == bcsr.from_csr(a, block=16).blocks
    w = wcsr.from_csr(a, window=16)
    assert sum(x.get_width() for x in shapes if x.get_hatch()) == (w.col_idx < 0).sum() > 0


def test_the_mesh_is_the_same_everywhere_and_symmetric():
    a = csr.validate(shown.mesh())
    dense = csr.to_dense(a)
    assert dense.shape == (64, 64) and a.nnz == 64 + 2 * 2 * 7 * 8
    assert np.array_equal(dense, dense.T) and (np.diag(dense) == 1).all()
    assert a.col_idx[:5].tolist() == [0, 3, 22, 41, 58], "the same numbers on every machine"


def test_a_thread_block_takes_what_its_arithmetic_says():
    fig, data = shown.thread_block()
    assert len(data) == 3 and set(data["registers"]) == {64512} and set(data["shared_bytes"]) == {3 * (8192 + 65536)}
    drawn.legible(fig)


def test_the_machine_is_the_one_that_was_measured():
    fig, data = shown.machine(start("async_sparse", "recorded", "nvidia-h200"))
    here = data.set_index("what")["here"]
    assert here["SMs"] == "132" and here["L2"] == "60 MiB" and here["from L2"].endswith(" TB/s")
    drawn.legible(fig)


def test_timeline_has_a_lane_for_each_role_and_warpgroup():
    fig, data = shown.timeline(made.timeline(), ("opt1", "opt5", "opt7"))
    assert [text.get_text() for text in fig.axes[0].get_yticklabels()] == [
        *("load, warpgroup 0", "multiply, warpgroup 0"),
        *("load, warpgroup 0", "multiply, warpgroup 1", "multiply, warpgroup 2"),
        *("store, warpgroup 1", "store, warpgroup 2"),
    ]
    assert data["begin_ns"].min() == 0 and data.loc[data["role"] != "store", "step"].max() == 7
