"""Pictures of CSR and of what a warp does with it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from drawn import overlaps, words

from artifact.rooms.casper_sparse import pictures


def csr(m, k, row_ptr, col_idx, val=None) -> SimpleNamespace:
    val = np.arange(1, len(col_idx) + 1) / 10 if val is None else val
    return SimpleNamespace(m=m, k=k, row_ptr=np.array(row_ptr), col_idx=np.array(col_idx), val=np.array(val))


def test_csr_picture_shows_the_arrays():
    fig, data = pictures.csr_picture(csr(4, 5, [0, 2, 2, 5, 6], [1, 4, 0, 2, 3, 1]))
    assert data["row"].tolist() == [0, 0, 2, 2, 2, 3]
    said = words(fig)
    assert {"row_ptr", "col_idx", "val"} <= set(said)
    assert not overlaps(fig)


@pytest.mark.parametrize("a", [csr(20, 5, [0] * 21, [0]), csr(2, 2, [0, 0, 0], [])])
def test_csr_picture_refuses_what_cannot_be_read(a):
    with pytest.raises(ValueError, match="cannot|too large"):
        pictures.csr_picture(a)


def test_warp_picture_shows_a_real_row():
    counts = np.array([10, 40, 20])
    pointers = np.concatenate([[0], np.cumsum(counts)])
    columns = np.random.default_rng(0).integers(0, 4096, pointers[-1])
    a = csr(3, 4096, pointers, columns)
    fig, data = pictures.warp_picture(a, 512)
    assert data["column"].tolist() == columns[10:50].tolist()  # row 1: the one with two chunks
    assert data["chunk"].tolist() == [0] * 32 + [1] * 8
    assert not overlaps(fig)
    fig, _ = pictures.warp_picture(a, 12, row=0)
    assert "29 lanes idle" in words(fig)
    for bad in ({"n": 6}, {"n": 128, "tile": 1}, {"n": 128, "row": 7}):
        with pytest.raises(ValueError):
            pictures.warp_picture(a, **bad)
