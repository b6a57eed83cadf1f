"""CSR, blocks and windows: what is stored, against SciPy; random ones; another order; what is refused."""

import numpy as np
import pytest
import scipy.sparse as sp
from alike import alike
from hypothesis import given, settings, strategies as st
from refused import says
from scipy.sparse import bsr_array, csr_array, random_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from kernels import formats
from kernels.formats import bcsr, csr, half, reorder, wcsr

INT32, FLOAT32 = np.int32, np.float32


def scattered(m: int, k: int, density: float = 0.05, seed: int = 0) -> csr_array:
    """Non-zeros anywhere."""
    made = random_array((m, k), density=density, rng=seed, dtype=FLOAT32).tocsr()
    made.data = np.random.default_rng(seed).uniform(0.5, 1, made.nnz).astype(FLOAT32)
    made.sort_indices()
    return made


scatters = st.builds(scattered, st.integers(1, 150), st.integers(1, 150), st.floats(0, 0.3), st.integers(0, 99))

# ---------------------------------------------------------------------------------------- CSR


@st.composite
def matrices(draw) -> csr.Csr:
    """Unsorted and repeated columns, empty rows, no rows, no columns; sums are exact in float32."""
    k, entry = draw(st.integers(0, 8)), st.tuples(st.integers(0, 7), st.integers(-64, 64))
    rows = draw(st.lists(st.lists(entry, max_size=12 * (k > 0)), max_size=8))
    column, value = np.array([x for row in rows for x in row], int).reshape(-1, 2).T
    row_ptr = np.cumsum([0, *map(len, rows)]).astype(INT32)
    return csr.Csr(len(rows), k, row_ptr, (column % max(1, k)).astype(INT32), (value / 8).astype(FLOAT32))


@given(a=matrices())
@settings(deadline=None)
def test_a_matrix_means_to_scipy_what_it_means_here(a):
    dense, there = np.zeros((a.m, a.k)), csr.to_scipy(csr.validate(a))
    for row, column, value in zip(np.repeat(np.arange(a.m), np.diff(a.row_ptr)), a.col_idx, a.val, strict=True):
        dense[row, column] += value
    assert np.array_equal(csr.to_dense(a), dense) and np.array_equal(there.toarray(), dense)
    assert there.shape == dense.shape and there.nnz == a.nnz, "repeated entries must stay apart"
    for container in ("array", "matrix") if dense.size else ():
        for form in ("csr", "csc", "coo", "lil", "dok", "bsr"):
            back = csr.from_scipy(getattr(sp, f"{form}_{container}")(dense))
            assert csr.validate(back) is back and np.array_equal(csr.to_dense(back), dense)


@pytest.mark.parametrize("wrong", [2**32, 2**31, -(2**32), 2**63 - 1])
@pytest.mark.parametrize("name", ["indices", "indptr"])
def test_indices_of_more_than_32_bits_are_refused_and_not_cut(name, wrong):
    there = csr_array(np.array([[0, 1.5], [2.5, 0]]))
    index = getattr(there, name).astype(np.int64)
    index[1] = wrong
    setattr(there, name, index)
    says(["CSR ", f"[1] is {wrong}, but indices have 32 bits here"], lambda: csr.from_scipy(there))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.uint32, np.int32, np.int16, np.uint8])
def test_indices_of_any_dtype_are_narrowed_where_32_bits_hold_them(dtype):
    most = min(np.iinfo(dtype).max, 2**31 - 1)
    for numbers in ([0, 7, most], []):
        index = csr.narrowed("CSR", "col_idx", np.array(numbers, dtype))
        assert index.dtype == INT32 and index.tolist() == numbers
    if np.iinfo(dtype).max > most:
        says(["[1] is 2147483648"], lambda: csr.narrowed("CSR", "col_idx", np.array([3, 2**31], dtype)))


@pytest.mark.parametrize(("nnz", "words"), [(2**31, "2147483648 non-zeros do not fit"), (2**31 - 1, "row_ptr ends at")])
def test_more_entries_than_an_offset_counts_are_refused_before_they_are_narrowed(nnz, words):
    """Stands for a matrix of that many entries: their offsets would wrap around."""

    class Huge:
        ndim, dtype, shape, format = 2, np.dtype(FLOAT32), (1, 5), "csr"
        indptr = np.array([0, nnz])
        indices = np.broadcast_to(np.int64(0), nnz if nnz > 2**31 - 1 else 1)
        data = indices.astype(FLOAT32) if nnz < 2**31 else np.broadcast_to(FLOAT32(1), nnz)
        tocsr = lambda self: self  # noqa: E731

    says([words], lambda: csr.from_scipy(Huge()))


@pytest.mark.parametrize(
    ("given_", "word"),
    [(np.ones(3), "2 dimensions, but the given array has 1"), (np.ones((3, 3), complex), "complex")],
    ids=["vector", "complex"],
)
def test_a_vector_or_a_complex_matrix_is_no_matrix_here(given_, word):
    says([word], lambda: csr.from_scipy(sp.coo_array(given_)))


# ------------------------------------------------------------------------------ blocks and windows


@given(a=scatters, block=st.tuples(*[st.sampled_from(bcsr.SIDES)] * 2))
@settings(max_examples=60, deadline=None)
def test_the_blocks_are_scipy_s(a, block):
    made = bcsr.validate(bcsr.from_csr(a, block=block, dtype="float32"))
    padded = csr_array(a, copy=True)
    padded.resize(*(-(-size // side) * side for size, side in zip(a.shape, block, strict=True)))
    theirs = bsr_array(padded, blocksize=block)
    theirs.sort_indices()
    for ours, other in ((made.row_ptr, theirs.indptr), (made.col_idx, theirs.indices), (made.val, theirs.data)):
        assert np.array_equal(ours, other)
    assert (made.block, made.nnz) == (block, a.nnz) and made.blocks == bcsr.count_blocks(a, block) == len(theirs.data)
    assert made.fill_ratio == (a.nnz / made.val.size if a.nnz else 0)
    alike(bcsr.to_csr(made), csr.from_scipy(a))
    alike(bcsr.from_dense(a.toarray(), block=block, dtype="float32"), made)


@given(a=scatters, window=st.sampled_from(wcsr.SIDES), pad=st.sampled_from(wcsr.SIDES))
@settings(max_examples=60, deadline=None)
def test_each_window_stores_the_columns_that_it_has(a, window, pad):
    made, dense = wcsr.validate(wcsr.from_csr(a, window=window, pad=pad, dtype="float32")), a.toarray()
    for i, begin in enumerate(range(0, len(dense), window)):
        rows, part = dense[begin : begin + window], slice(*made.row_ptr[i : i + 2])
        columns = np.flatnonzero(rows.any(axis=0))
        expected = np.pad(rows[:, columns], ((0, window - len(rows)), (0, -len(columns) % pad)))
        assert made.col_idx[part].tolist() == columns.tolist() + [-1] * (-len(columns) % pad)
        assert np.array_equal(made.val[:, part], expected)
    assert made.windows == i + 1 and made.nnz == a.nnz and made.columns == made.row_ptr[-1]
    assert made.fill_ratio == (a.nnz / (window * made.columns) if a.nnz else 0)
    alike(wcsr.to_csr(made), csr.from_scipy(a))


def test_a_stored_zero_counts_and_a_negative_one_of_a_dense_matrix_does_not():
    made = bcsr.validate(bcsr.from_csr(csr_array((np.zeros(1, FLOAT32), [19], [0] * 20 + [1]), (20, 20)), block=16))
    assert (made.nnz, made.blocks, bcsr.to_csr(made).nnz) == (1, 1, 0)
    assert bcsr.from_dense(np.full((4, 4), -0.0, FLOAT32), block=16).blocks == 0


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_blocks_of_sixteen_bits_are_rounded_once_from_anything(dtype):
    a = scattered(100, 90)
    made, x = bcsr.from_csr(a, block=32, dtype=dtype), half.from_dense(a.toarray(), dtype)
    for given_ in (a.toarray(), x, half.Half(dtype, np.asfortranarray(x.bits))):
        alike(bcsr.from_dense(given_, block=32, dtype=dtype), made)


@given(
    size=st.tuples(*[st.integers(1, 300)] * 2),
    density=st.floats(0, 1),
    block=st.sampled_from(bcsr.SIDES),
    dtype=st.sampled_from(["float32", "tf32", "bfloat16"]),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_a_random_matrix_has_the_blocks_that_were_asked_for(size, density, block, dtype, seed):
    made = bcsr.validate(bcsr.random(*size, density, seed, block=block, dtype=dtype))
    assert made.blocks == round(density * -(-size[0] // block) * -(-size[1] // block))
    full = bcsr.to_csr(made)
    assert made.nnz == full.nnz, "a value is zero, or padding is not"
    assert full.nnz == 0 or (np.abs(full.val).max() <= 1 and np.abs(full.val).min() > 0)
    assert made.dtype == dtype.replace("tf32", "float32")
    alike(bcsr.from_csr(full, block=block, dtype=made.dtype), made)
    assert dtype != "tf32" or not (made.val.view(np.uint32) & 0x1FFF).any()
    kept = bcsr.from_dense(np.ones((48, 80), FLOAT32), block=16, density=density)
    assert kept.blocks == round(density * 15), "and pruning keeps as large a share"


def test_every_block_is_as_likely_as_the_others_and_values_are_uniform():
    counts = np.zeros(12)
    for seed in range(600):
        counts += np.bincount(bcsr.random_pattern(1, 12 * 16, 0.25, seed, block=16)[1], minlength=12)
    assert counts.sum() == 3 * 600 and (np.abs(counts - 150) < 6 * np.sqrt(150 * 0.75)).all()
    one, other = (formats.to_dense(bcsr.random(64, 64, 1, seed, block=32)) for seed in (3, 4))
    assert 0.45 < np.abs(one).mean() < 0.55 and abs(one.mean()) < 0.05 and not np.array_equal(one, other)


@pytest.mark.parametrize("block", [8, 256, 48, (64, 24), "64", None, (16, 16, 16), 64.5])
def test_a_block_is_a_power_of_two_from_16_to_128(block):
    says([repr(block), "16, 32, 64, 128"], lambda: bcsr.from_csr(scattered(9, 9), block=block))


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (["2^31 - 1", "134217728"], lambda: bcsr.require_blocks(2**27, 16)),
        (["blocks", "2^31 - 1"], lambda: bcsr.random(2**31 - 1, 2**20, 0.0, 0, block=16)),
        (["seed", "-1"], lambda: bcsr.random(16, 16, 1, -1)),
        (["density", "1.5"], lambda: bcsr.random(16, 16, 1.5, 0)),
        (["int8", "bfloat16"], lambda: bcsr.random(16, 16, 1, 0, dtype="int8")),
        (["float64"], lambda: bcsr.from_dense(np.zeros((4, 4)))),
        (["1-dimensional"], lambda: bcsr.from_dense(np.zeros(4, FLOAT32))),
        (["window", "128"], lambda: wcsr.from_csr(scattered(9, 9), window=128)),
        (["padding", "0"], lambda: wcsr.from_csr(scattered(9, 9), pad=0)),
        (["int8"], lambda: wcsr.from_csr(scattered(9, 9), dtype="int8")),
    ],
)
def test_what_makes_no_blocks_and_no_windows_is_refused(words, work):
    bcsr.require_blocks(2**27 - 1, 16)
    says(words, work)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "tf32"])
@pytest.mark.parametrize(("m", "k", "density"), [(1000, 777, 0.3), (64, 64, 0), (1, 1, 1), (5000, 64, 0.5)])
def test_the_gpu_draws_the_same_matrix(device, m, k, density, dtype):
    import cupy

    there = bcsr.validate(bcsr.random(m, k, density, 5, dtype=dtype, xp=cupy))
    assert isinstance(there.val, cupy.ndarray)
    alike(formats.to_host(there), bcsr.random(m, k, density, 5, dtype=dtype))


# ------------------------------------------------------------------------------------ another order


@given(
    m=st.integers(0, 60),
    k=st.integers(0, 50),
    density=st.floats(0, 0.6),
    square=st.booleans(),
    seed=st.integers(0, 999),
)
@settings(deadline=None)
def test_another_order_is_one_of_those_rows_and_columns(m, k, density, square, seed):
    """Entries of odd seeds repeat; rcm's order is SciPy's of the pattern of A + Aᵀ, similar's ends with empty rows."""
    rng, k = np.random.default_rng(seed), m if square else k
    row, col = np.nonzero(np.repeat(rng.random((m, k)) < density, 1 + seed % 2, axis=1))
    row_ptr = np.searchsorted(row, np.arange(m + 1)).astype(INT32)
    a = csr.Csr(m, k, row_ptr, (col // (1 + seed % 2)).astype(INT32), rng.integers(1, 99, row.size).astype(FLOAT32))
    dense, order = csr.to_dense(a), reorder.similar(a)
    assert order.dtype == INT32 and np.array_equal(np.sort(order), np.arange(m))
    empty = np.flatnonzero(~dense[order].any(1))
    assert np.array_equal(empty, np.arange(m - empty.size, m))
    if square:
        order, ms = reorder.rcm(a)
        pattern = csr_array((dense != 0) | (dense != 0).T)
        if m and not seed % 2:
            assert ms > 0 and np.array_equal(order, reverse_cuthill_mckee(pattern, symmetric_mode=True))
        made = csr.validate(reorder.permuted(a, order))
        assert made.nnz == a.nnz and np.array_equal(csr.to_dense(made), dense[order][:, order])
        place = csr.rows(made) * k + made.col_idx
        assert (place[1:] >= place[:-1]).all()


def test_a_shuffled_band_becomes_a_band_again_and_similar_rows_come_together():
    rng = np.random.default_rng(0)
    order = rng.permutation(400)
    a = csr.from_scipy(csr_array(np.triu(np.tril(rng.uniform(1, 2, (400, 400)), 3), -3)[order][:, order]))
    made = reorder.permuted(a, reorder.rcm(a)[0])
    assert [int(np.abs(csr.rows(x) - x.col_idx).max()) // 13 > 0 for x in (a, made)] == [True, False]
    assert bcsr.count_blocks(made, 16) < bcsr.count_blocks(a, 16) / 5
    copies = csr_array(np.tile(rng.random((50, 400)) < 0.05, (8, 1)).astype(FLOAT32))
    kinds = np.tile(np.arange(50), 8)[reorder.similar(csr.from_scipy(copies))]
    assert np.count_nonzero(kinds[1:] != kinds[:-1]) < 60


def test_only_square_matrices_and_permutations_are_taken():
    says(["3 x 4"], lambda: reorder.rcm(csr.from_scipy(scattered(3, 4))))
    a = csr.from_scipy(scattered(20, 20))
    for order in (np.zeros(20, int), np.arange(19), np.arange(1, 21), np.arange(20) - 1):
        says(["permutation of the 20 rows"], lambda order=order: reorder.permuted(a, order))
