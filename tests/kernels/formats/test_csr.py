"""CSR against SciPy: what is stored, what it means, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels.formats import csr


def make(k: int, rows: list[list[tuple[int, float]]]) -> csr.Csr:
    """A Csr from (column, value) lists, exactly in the order given."""
    entries = [entry for row in rows for entry in row]
    return csr.Csr(
        len(rows),
        k,
        np.cumsum([0] + [len(row) for row in rows]).astype(np.int32),
        np.array([column for column, _ in entries], np.int32),
        np.array([value for _, value in entries], np.float32),
    )


@st.composite
def matrices(draw, least_rows=0, least_columns=0) -> csr.Csr:
    """Unsorted and repeated columns, empty rows, no rows, no columns; sums are exact in float32."""
    m = draw(st.integers(least_rows, 8))
    k = draw(st.integers(least_columns, 8))
    value = st.integers(-64, 64).map(lambda x: x / 8)
    row = st.lists(st.tuples(st.integers(0, k - 1), value), max_size=12) if k else st.just([])
    return make(k, draw(st.lists(row, min_size=m, max_size=m)))


def dense(a: csr.Csr) -> np.ndarray:
    """What a matrix means, entry by entry and without SciPy."""
    out = np.zeros((a.m, a.k))
    for row in range(a.m):
        for entry in range(a.row_ptr[row], a.row_ptr[row + 1]):
            out[row, a.col_idx[entry]] += a.val[entry]
    return out


@given(a=matrices())
@settings(deadline=None)
def test_a_matrix_means_to_scipy_what_it_means_here(a):
    csr.validate(a)
    assert np.array_equal(csr.to_dense(a), dense(a))
    there = csr.to_scipy(a)
    assert there.shape == (a.m, a.k) and there.nnz == a.nnz, "repeated entries must stay apart"
    assert np.array_equal(there.toarray(), dense(a))
    assert a.nbytes == 4 * (a.m + 1) + 8 * a.nnz


@pytest.mark.parametrize("container", ["array", "matrix"])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@given(a=matrices(1, 1))
@settings(deadline=None, max_examples=15)
def test_every_scipy_format_is_taken(form, container, a):
    there = getattr(scipy.sparse, f"{form}_{container}")(dense(a))
    back = csr.from_scipy(there)
    assert (back.row_ptr.dtype, back.col_idx.dtype) == (np.int32, np.int32)
    assert back.val.dtype == np.float32
    assert np.array_equal(csr.to_dense(back), dense(a))


@pytest.mark.parametrize("wrong", [2**32, 2**31, -(2**32), 2**63 - 1])
@pytest.mark.parametrize("name", ["indices", "indptr"])
def test_indices_of_more_than_32_bits_are_refused_and_not_cut(name, wrong):
    there = scipy.sparse.csr_array(np.array([[0, 1.5], [2.5, 0]]))
    index = getattr(there, name).astype(np.int64)
    index[1] = wrong
    setattr(there, name, index)
    with pytest.raises(ValueError, match=rf"^CSR \w+\[1\] is {wrong}, but indices have 32 bits here"):
        csr.from_scipy(there)


def test_indices_of_any_dtype_are_narrowed_where_32_bits_hold_them():
    for dtype in (np.int64, np.uint64, np.uint32, np.int32, np.int16, np.uint8):
        index = csr.narrowed("CSR", "col_idx", np.array([0, 7, 100], dtype))
        assert index.dtype == np.int32 and index.tolist() == [0, 7, 100]
    assert csr.narrowed("CSR", "col_idx", np.zeros(0, np.int64)).dtype == np.int32
    for dtype in (np.uint32, np.uint64):
        with pytest.raises(ValueError, match=r"^CSR col_idx\[0\] is 4294967295, "):
            csr.narrowed("CSR", "col_idx", np.array([2**32 - 1, 3], dtype))


@pytest.mark.parametrize(
    ("nnz", "says"),
    [(2**31, "2147483648 non-zeros do not fit 32-bit"), (2**31 - 1, "row_ptr ends at")],
)
def test_more_entries_than_an_offset_counts_are_refused_before_they_are_narrowed(nnz, says):
    """Stands for a matrix of that many entries: their offsets would wrap around."""

    class Huge:
        ndim, dtype, shape, format = 2, np.dtype(np.float32), (1, 5), "csr"
        indptr = np.array([0, nnz])

        def tocsr(self):
            return self

    Huge.indices = np.broadcast_to(np.int64(0), nnz if nnz > 2**31 - 1 else 1)
    Huge.data = np.broadcast_to(np.float32(1), Huge.indices.shape)
    with pytest.raises(ValueError, match=says):
        csr.from_scipy(Huge())


# ------------------------------------------------------------------------------- refusals

GOOD = make(4, [[(3, 1.0), (0, 2.0)], [], [(2, 4.0), (2, 1.0), (1, 7.0)]])
INT32, FLOAT32 = np.int32, np.float32


def array(values, dtype=np.int32):
    return np.array(values, dtype)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        # sizes
        ({"m": float("nan")}, ["size m", "nan", "integer"]),
        ({"k": float("nan")}, ["size k", "nan", "integer"]),
        ({"m": 3.0}, ["size m", "3.0", "integer"]),
        ({"k": 4.5}, ["size k", "4.5"]),
        ({"k": "4"}, ["size k", "'4'"]),
        ({"m": None}, ["size m", "None"]),
        ({"m": -1}, ["size m", "-1"]),
        ({"k": 2**31}, ["size k", "2147483648", "2^31 - 1"]),
        # dtypes and dimensions
        ({"row_ptr": GOOD.row_ptr.astype(np.int64)}, ["row_ptr", "int64", "int32"]),
        ({"row_ptr": GOOD.row_ptr.astype(FLOAT32)}, ["row_ptr", "float32", "int32"]),
        ({"col_idx": GOOD.col_idx.astype(np.uint32)}, ["col_idx", "uint32", "int32"]),
        ({"val": GOOD.val.astype(np.float64)}, ["val", "float64", "float32"]),
        ({"val": GOOD.val.astype(np.float16)}, ["val", "float16", "float32"]),
        ({"val": GOOD.val.reshape(1, -1)}, ["val", "2-dimensional"]),
        ({"row_ptr": array(0)}, ["row_ptr", "0-dimensional"]),
        # gaps
        ({"row_ptr": array([0, 9, 2, 9, 2, 9, 5, 9])[::2]}, ["row_ptr", "contiguous", "copy it"]),
        ({"col_idx": np.repeat(GOOD.col_idx, 2)[::2]}, ["col_idx", "contiguous", "copy it"]),
        ({"val": GOOD.val[::-1]}, ["val", "contiguous", "copy it"]),
        # lengths
        ({"row_ptr": array([0, 2, 5])}, ["row_ptr", "3 entries", "m = 3", "4"]),
        ({"row_ptr": array([])}, ["row_ptr", "0 entries", "m = 3"]),
        ({"m": 2}, ["row_ptr", "4 entries", "m = 2", "3"]),
        ({"col_idx": array([3, 0, 2, 2])}, ["4 column indices", "5 values"]),
        ({"val": array([1, 2], FLOAT32)}, ["5 column indices", "2 values"]),
        ({"row_ptr": array([0, 2, 2, 4])}, ["ends at 4", "5 column"]),
        ({"row_ptr": array([0, 2, 2, 9])}, ["ends at 9", "5 column"]),
        # row_ptr
        ({"row_ptr": array([1, 2, 2, 5])}, ["row_ptr", "starts at 1", "0"]),
        ({"row_ptr": array([-1, 2, 2, 5])}, ["row_ptr", "starts at -1"]),
        ({"row_ptr": array([0, 3, 2, 5])}, ["row_ptr", "from 3 to 2", "row 1"]),
        ({"row_ptr": array([0, -2, 2, 5])}, ["row_ptr", "from 0 to -2", "row 0"]),
        ({"row_ptr": array([0, 2, 9, 5])}, ["row_ptr", "from 9 to 5", "row 2"]),
        # col_idx
        ({"col_idx": array([3, 0, 2, 4, 1])}, ["col_idx[3]", "is 4", "columns 0 to 3"]),
        ({"col_idx": array([3, -1, 2, 2, 1])}, ["col_idx[1]", "is -1", "columns 0 to 3"]),
        ({"col_idx": array([2**31 - 1, 0, 2, 2, 1])}, ["col_idx[0]", "2147483647"]),
        ({"k": 3}, ["col_idx[0]", "is 3", "columns 0 to 2"]),
        ({"k": 0}, ["col_idx[0]", "is 3"]),
    ],
)
def test_a_malformed_matrix_gets_one_sentence(change, words):
    with pytest.raises(ValueError) as caught:
        csr.validate(replace(GOOD, **change))
    message = str(caught.value)
    assert message.startswith("CSR ") and "\n" not in message and ". " not in message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


@given(a=matrices(1, 1), data=st.data())
@settings(deadline=None)
def test_an_index_out_of_range_is_found_wherever_it_is(a, data):
    assume(a.nnz)
    entry = data.draw(st.integers(0, a.nnz - 1))
    value = data.draw(st.integers(-(2**31), -1) | st.integers(a.k, 2**31 - 1))
    a.col_idx[entry] = value
    with pytest.raises(ValueError) as caught:
        csr.validate(a)
    assert f"col_idx[{entry}] is {value}, outside the columns 0 to {a.k - 1}" in str(caught.value)


@given(a=matrices(2, 1), data=st.data())
@settings(deadline=None)
def test_an_unsorted_row_ptr_is_found_wherever_it_is(a, data):
    row = data.draw(st.integers(1, a.m - 1))
    assume(a.row_ptr[row] < 2**31 - 1)
    a.row_ptr[row] = a.row_ptr[row + 1] + data.draw(st.integers(1, 1000))
    with pytest.raises(ValueError) as caught:
        csr.validate(a)
    said = f"falls from {a.row_ptr[row]} to {a.row_ptr[row + 1]} at row {row}"
    assert said in str(caught.value)


def test_a_vector_is_no_matrix():
    with pytest.raises(ValueError, match="2 dimensions, but the given array has 1"):
        csr.from_scipy(scipy.sparse.coo_array(np.ones(3)))


def test_a_malformed_scipy_matrix_is_refused_too():
    there = csr.to_scipy(GOOD)
    there.indices[2] = 17
    with pytest.raises(ValueError, match=r"col_idx\[2\] is 17"):
        csr.from_scipy(there)
