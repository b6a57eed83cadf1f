"""Pictures of CSR and of what a warp does with it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from drawn import overlaps, words

from artifact.rooms.casper_sparse import pictures


def csr(m, k, row_ptr, col_idx) -> SimpleNamespace:
    val = np.arange(1, len(col_idx) + 1) / 10
    return SimpleNamespace(m=m, k=k, row_ptr=np.array(row_ptr), col_idx=np.array(col_idx), val=val)


def test_csr_picture_shows_the_arrays():
    fig, data = pictures.csr_picture(csr(4, 5, [0, 2, 2, 5, 6], [1, 4, 0, 2, 2, 1]))
    assert data["row"].tolist() == [0, 0, 2, 2, 2, 3]
    assert {"row_ptr", "col_idx", "val", "2×"} <= set(words(fig))
    assert not overlaps(fig)


def test_warp_picture_shows_a_real_row():
    columns = np.random.default_rng(0).integers(0, 4096, 70)
    fig, data = pictures.warp_picture(csr(3, 4096, [0, 10, 50, 70], columns))
    assert data["column"].tolist() == columns[10:50].tolist()  # row 1: the one with two chunks
    assert data["chunk"].tolist() == [0] * 32 + [1] * 8
    assert not overlaps(fig)
