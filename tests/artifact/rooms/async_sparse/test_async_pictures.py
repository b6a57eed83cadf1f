"""Fig. 2 of async_sparse: what it shows is what the formats store."""

from __future__ import annotations

import drawn
import numpy as np
import pytest
from matplotlib.patches import Rectangle
from scipy.sparse import random_array

from artifact.rooms.async_sparse import pictures
from kernels.formats import bcsr, csr, wcsr


def scattered(m: int, k: int) -> csr.Csr:
    return csr.from_scipy(random_array((m, k), density=0.03, rng=1, dtype=np.float32))


@pytest.mark.parametrize("units", [(16, 16, 8), (32, 8, 16)])
@pytest.mark.parametrize("case", ["mesh", "ragged"])
def test_the_picture_says_what_is_stored(units, case):
    block, window, pad = units
    cases = pictures.examples() if case == "mesh" else {"ragged": scattered(50, 77)}
    fig, data = pictures.formats_picture(cases, *units)
    said = drawn.words(fig)
    for title, a in cases.items():
        b, w = bcsr.from_csr(a, block=block), wcsr.from_csr(a, window=window, pad=pad)
        assert title in said and f"{a.m} × {a.k}, {a.nnz} non-zeros" in said
        assert f"{b.blocks} of {b.block_rows * b.block_columns} blocks of {block} × {block}" in said
        assert f"{w.columns} columns of {window}, padded to {pad}" in said
        for stored in (b, w):
            assert f"fill {a.nnz} / {stored.val.size} = {stored.fill_ratio:.1%}" in said
            assert "row_ptr " + " ".join(map(str, stored.row_ptr)) in said
        rows = data[data["case"] == title]
        assert np.array_equal(csr.to_dense(a) != 0, placed(rows, a))
        # At the places that the data name, the formats have these non-zeros.
        assert (b.val[rows["block"], rows["row"] % block, rows["column"] % block] != 0).all()
        assert (w.val[rows["row"] % window, rows["packed"]] != 0).all()
        assert (w.col_idx[rows["packed"]] == rows["column"]).all()
        assert (rows["window"] == rows["row"] // window).all() and len(rows) == a.nnz
    drawn.legible(fig)


def placed(rows, a: csr.Csr) -> np.ndarray:
    there = np.zeros((a.m, a.k), bool)
    there[rows["row"], rows["column"]] = True
    return there


def test_every_block_is_tinted_and_all_padding_hatched():
    a = pictures.examples()["after reverse Cuthill-McKee"]
    fig, _ = pictures.formats_picture({"one": a})
    shapes = fig.findobj(Rectangle)
    tinted = [x for x in shapes if x.get_alpha() == 0.28]
    assert sum(x.get_width() == 16 for x in tinted) == bcsr.from_csr(a, block=16).blocks
    w = wcsr.from_csr(a, window=16)
    hatched = sum(x.get_width() for x in shapes if x.get_hatch())
    assert hatched == (w.col_idx < 0).sum() > 0


def test_the_mesh_is_the_same_everywhere_and_symmetric():
    a = csr.validate(pictures.mesh())
    dense = csr.to_dense(a)
    assert dense.shape == (64, 64) and a.nnz == 64 + 2 * 2 * 7 * 8
    assert np.array_equal(dense, dense.T) and (np.diag(dense) == 1).all()
    assert sorted(np.bincount(csr.rows(a)))[::63] == [3, 5]
    assert a.col_idx[:5].tolist() == [0, 3, 22, 41, 58], "the same numbers on every machine"
    before, after = (bcsr.from_csr(x, block=16).blocks for x in pictures.examples().values())
    assert after < before


def test_a_corner_of_a_larger_matrix():
    a = scattered(200, 150)
    part = csr.validate(pictures.corner(a, 64, 10))
    assert np.array_equal(csr.to_dense(part), csr.to_dense(a)[10:74, 10:74])
    assert (pictures.corner(a, 64, 100).m, pictures.corner(a, 64, 100).k) == (64, 50)


@pytest.mark.parametrize("sizes", [(97, 20), (20, 97)])
def test_what_could_not_be_read_is_refused(sizes):
    with pytest.raises(ValueError, match=f"large is {sizes[0]} x {sizes[1]}"):
        pictures.formats_picture({"large": scattered(*sizes)})
    nothing = csr.Csr(4, 4, np.zeros(5, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
    with pytest.raises(ValueError, match="0 non-zeros"):
        pictures.formats_picture({"empty": nothing})
    with pytest.raises(ValueError, match="BCSR block is 8"):
        pictures.formats_picture(pictures.examples(), block=8)
