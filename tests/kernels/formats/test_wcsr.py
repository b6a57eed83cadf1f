"""WCSR: the columns that each window has, their padding, what comes back and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import says
from scipy.sparse import random_array

from kernels import formats
from kernels.formats import csr, half, wcsr

INT32, UINT16, FLOAT32 = np.int32, np.uint16, np.float32


def scattered(m: int, k: int, density: float = 0.05, seed: int = 0):
    made = random_array((m, k), density=density, rng=seed, dtype=FLOAT32).tocsr()
    made.data = np.random.default_rng(seed).uniform(0.5, 1, made.nnz).astype(FLOAT32)
    return made


def small() -> wcsr.Wcsr:
    """Three windows, the middle one empty, the last one short."""
    dense = np.zeros((20, 30), FLOAT32)
    dense[0, 4], dense[7, 29], dense[3, 4], dense[19, 0] = 1, 2, 3, 4
    return wcsr.validate(wcsr.from_csr(csr.from_scipy(_sparse(dense)), window=8, dtype="float32"))


def _sparse(dense):
    from scipy.sparse import csr_array

    return csr_array(dense)


def columns_of(dense: np.ndarray, window: int, pad: int) -> list[list[int]]:
    """The columns that each window stores, one window at a time."""
    found = []
    for start in range(0, len(dense), window):
        columns = np.flatnonzero(dense[start : start + window].any(axis=0)).tolist()
        found.append(columns + [-1] * (-len(columns) % pad))
    return found


@given(
    m=st.integers(1, 150),
    k=st.integers(1, 150),
    density=st.floats(0, 0.3),
    window=st.sampled_from(wcsr.SIDES),
    pad=st.sampled_from(wcsr.SIDES),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_each_window_stores_the_columns_that_it_has(m, k, density, window, pad, seed):
    given = scattered(m, k, density, seed)
    dense = given.toarray()
    made = wcsr.validate(wcsr.from_csr(given, window=window, pad=pad, dtype="float32"))
    expected = columns_of(dense, window, pad)
    assert made.col_idx.tolist() == sum(expected, [])
    assert np.diff(made.row_ptr).tolist() == [len(columns) for columns in expected]
    assert made.windows == len(expected) and made.nnz == given.nnz
    assert made.columns == sum(map(len, expected))
    for i, columns in enumerate(expected):
        rows = dense[i * window : (i + 1) * window]
        part = made.val[:, made.row_ptr[i] : made.row_ptr[i + 1]]
        real = len([c for c in columns if c >= 0])
        assert np.array_equal(part[: len(rows), :real], rows[:, columns[:real]])
        assert not part[len(rows) :].any() and not part[:, real:].any()
    assert np.array_equal(wcsr.to_dense(made), dense)
    if made.columns:
        assert made.fill_ratio == given.nnz / (window * made.columns)


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_values_are_rounded_once(dtype):
    given = scattered(100, 90)
    made = wcsr.validate(wcsr.from_csr(given, dtype=dtype))
    assert made.val.dtype == UINT16 and (made.window, made.pad) == (64, 8)
    expected = half.to_dense(half.from_dense(given.toarray(), dtype))
    assert np.array_equal(formats.to_dense(made), expected)


@pytest.mark.parametrize(("m", "k"), [(0, 0), (0, 7), (7, 0), (33, 40)])
def test_a_matrix_without_non_zeros_has_no_columns(m, k):
    nothing = csr.Csr(m, k, np.zeros(m + 1, INT32), np.zeros(0, INT32), np.zeros(0, FLOAT32))
    made = wcsr.validate(wcsr.from_csr(nothing, window=16, pad=16))
    assert made.columns == made.nnz == made.fill_ratio == 0
    assert np.array_equal(wcsr.to_dense(made), np.zeros((m, k)))
    assert csr.validate(wcsr.to_csr(made)).nnz == 0


def changed(name: str, at: int, value: int):
    array = getattr(small(), name).copy()
    array[at] = value
    return {name: array}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float64"}, ["float64"]),
        ({"window": 12}, ["window", "12"]),
        ({"pad": 3}, ["padding", "3"]),
        ({"m": -1}, ["m", "-1"]),
        ({"m": 30}, ["row_ptr", "4 entries", "5"]),
        ({"val": np.zeros((8, 16), UINT16)}, ["val", "uint16"]),
        ({"val": np.zeros((16, 16), FLOAT32)}, ["(16, 16)", "8 rows"]),
        (changed("row_ptr", 0, 8), ["starts at 8"]),
        (changed("row_ptr", 3, 8), ["ends at 8"]),
        (changed("row_ptr", 1, 4), ["row_ptr[1] is 4", "multiple"]),
        (changed("col_idx", 1, 30), ["col_idx[1] is 30"]),
        (changed("col_idx", 1, -2), ["col_idx[1] is -2"]),
        (changed("col_idx", 1, 4), ["from 4 to 4", "ascend"]),
        (changed("col_idx", 1, 3), ["from 4 to 3"]),
        (changed("col_idx", 0, -1), ["from -1 to 29", "padding last"]),
        (changed("col_idx", 1, -1), ["non-zero", "padding"]),
        ({"nnz": 129}, ["nnz", "129"]),
    ],
)
def test_a_malformed_matrix_gets_one_sentence(changes, words):
    says(["WCSR", *words], lambda: wcsr.validate(replace(small(), **changes)))


def test_other_windows_and_dtypes_are_refused():
    says(["window", "128"], lambda: wcsr.from_csr(scattered(9, 9), window=128))
    says(["padding", "0"], lambda: wcsr.from_csr(scattered(9, 9), pad=0))
    says(["int8"], lambda: wcsr.from_csr(scattered(9, 9), dtype="int8"))
