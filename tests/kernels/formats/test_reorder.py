"""Reverse Cuthill-McKee: a permutation, of rows and columns alike, that gathers the non-zeros."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from kernels.formats import bcsr, csr, reorder

INT32, FLOAT32 = np.int32, np.float32


def shuffled_band(size: int = 400, width: int = 3) -> csr.Csr:
    """A band whose rows and columns were put into a random order."""
    rng = np.random.default_rng(0)
    dense = np.triu(np.tril(rng.uniform(1, 2, (size, size)), width), -width).astype(FLOAT32)
    order = rng.permutation(size)
    return csr.from_scipy(csr_array(dense[order][:, order]))


def bandwidth(a: csr.Csr) -> int:
    return int(np.abs(csr.rows(a) - a.col_idx).max())


def test_a_shuffled_band_becomes_a_band_again():
    a = shuffled_band()
    order, ms = reorder.rcm(a)
    assert ms > 0 and np.array_equal(np.sort(order), np.arange(a.m))
    made = csr.validate(reorder.permuted(a, order))
    assert bandwidth(a) > 300 and bandwidth(made) <= 12
    assert np.array_equal(csr.to_dense(made), csr.to_dense(a)[order][:, order])
    assert bcsr.count_blocks(made, 16) < bcsr.count_blocks(a, 16) / 5


def test_the_order_is_scipy_s_of_the_pattern_both_ways():
    matrix = random_array((200, 200), density=0.01, rng=3, dtype=FLOAT32).tocsr()
    both = csr_array(((matrix != 0) + (matrix != 0).T).astype(FLOAT32))
    order, _ = reorder.rcm(csr.from_scipy(matrix))
    assert np.array_equal(order, reverse_cuthill_mckee(both, symmetric_mode=True))


def test_repeated_entries_stay_and_link_once():
    row_ptr, col_idx = np.array([0, 256, 256, 257], INT32), np.array([2] * 256 + [1], INT32)
    a = csr.Csr(3, 3, row_ptr, col_idx, np.arange(257, dtype=FLOAT32))
    order, _ = reorder.rcm(a)
    once = csr_array((np.ones(2), ([0, 2], [2, 1])), shape=(3, 3))
    assert np.array_equal(order, reorder.rcm(csr.from_scipy(once))[0])
    made = csr.validate(reorder.permuted(a, order))
    assert made.nnz == 257
    assert np.array_equal(csr.to_dense(made), csr.to_dense(a)[order][:, order])


def test_nothing_has_an_order_too():
    nothing = csr.Csr(0, 0, np.zeros(1, INT32), np.zeros(0, INT32), np.zeros(0, FLOAT32))
    order, ms = reorder.rcm(nothing)
    assert order.shape == (0,) and ms == 0 and reorder.permuted(nothing, order).nnz == 0
    empty = csr.Csr(5, 5, np.zeros(6, INT32), np.zeros(0, INT32), np.zeros(0, FLOAT32))
    assert np.array_equal(np.sort(reorder.rcm(empty)[0]), np.arange(5))


def test_only_square_matrices_and_permutations_are_taken():
    wide = csr.from_scipy(random_array((3, 4), density=0.5, rng=0, dtype=FLOAT32))
    with pytest.raises(ValueError, match="3 x 4"):
        reorder.rcm(wide)
    a = shuffled_band(20)
    for order in (np.zeros(20, int), np.arange(19), np.arange(1, 21), np.arange(20) - 1):
        with pytest.raises(ValueError, match="permutation of the 20 rows"):
            reorder.permuted(a, order)


@given(m=st.integers(1, 60), k=st.integers(1, 50), density=st.floats(0, 0.6), seed=st.integers(0, 999))
def test_rows_in_another_order_are_those_rows(m, k, density, seed):
    rng = np.random.default_rng(seed)
    dense = np.where(rng.random((m, k)) < density, rng.random((m, k)) + 1, 0).astype(np.float32)
    a = csr.from_scipy(csr_array(dense))
    order = reorder.similar(a)
    assert order.dtype == np.int32 and np.array_equal(np.sort(order), np.arange(m))
    empty = np.flatnonzero(~dense[order].any(1))
    assert np.array_equal(empty, np.arange(m - empty.size, m)), "empty rows come last"
    assert np.array_equal(csr.to_dense(csr.validate(reorder.rows_permuted(a, order))), dense[order])


def test_similar_rows_come_together():
    """Copies of 50 rows, dealt out: afterwards the copies of each lie side by side."""
    rng = np.random.default_rng(3)
    dense = np.tile(rng.random((50, 400)) < 0.05, (8, 1)).astype(np.float32)
    kinds = np.tile(np.arange(50), 8)[reorder.similar(csr.from_scipy(csr_array(dense)))]
    assert np.count_nonzero(kinds[1:] != kinds[:-1]) < 60
