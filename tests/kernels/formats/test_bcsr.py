"""BCSR: what is stored, against SciPy's blocks; what comes back; what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import says
from scipy.sparse import bsr_array, csr_array, random_array

from kernels import formats
from kernels.formats import bcsr, csr, half

INT32, UINT16, FLOAT32 = np.int32, np.uint16, np.float32
DTYPES = ("bfloat16", "float16", "float32")


def scattered(m: int, k: int, density: float = 0.05, seed: int = 0) -> csr_array:
    """Non-zeros anywhere; half a dozen rows of them may be empty."""
    values = np.random.default_rng(seed)
    made = random_array((m, k), density=density, rng=seed, dtype=FLOAT32).tocsr()
    made.data = values.uniform(0.5, 1, made.nnz).astype(FLOAT32)
    return made


def small(dtype: str = "float32") -> bcsr.Bcsr:
    """Three rows of blocks, the middle one empty, ragged at both edges."""
    dense = np.zeros((40, 37), FLOAT32)
    dense[0, 0], dense[3, 36], dense[39, 20] = 1, 2, 3
    return bcsr.validate(bcsr.from_dense(dense, block=16, dtype=dtype))


def same(one: bcsr.Bcsr, other: bcsr.Bcsr) -> None:
    for name in ("m", "k", "dtype", "nnz"):
        assert getattr(one, name) == getattr(other, name), name
    for name in ("row_ptr", "col_idx", "val"):
        x, y = (formats.to_host(getattr(a, name)) for a in (one, other))
        assert x.dtype == y.dtype and np.array_equal(x, y), name


# ---------------------------------------------------------------------------- what is stored


@given(
    m=st.integers(1, 150),
    k=st.integers(1, 150),
    density=st.floats(0, 0.3),
    b_row=st.sampled_from(bcsr.SIDES),
    b_col=st.sampled_from(bcsr.SIDES),
    seed=st.integers(0, 99),
)
@settings(max_examples=60, deadline=None)
def test_the_blocks_are_scipy_s(m, k, density, b_row, b_col, seed):
    given = scattered(m, k, density, seed)
    made = bcsr.validate(bcsr.from_csr(given, block=(b_row, b_col), dtype="float32"))
    padded = csr_array(given, copy=True)
    padded.resize(-(-m // b_row) * b_row, -(-k // b_col) * b_col)
    theirs = bsr_array(padded, blocksize=(b_row, b_col))
    theirs.sort_indices()
    assert np.array_equal(made.row_ptr, theirs.indptr)
    assert np.array_equal(made.col_idx, theirs.indices)
    assert np.array_equal(made.val, theirs.data)
    assert made.block == (b_row, b_col) and made.nnz == given.nnz
    assert made.blocks == bcsr.count_blocks(given, (b_row, b_col)) == len(theirs.data)
    if made.blocks:
        assert made.fill_ratio == given.nnz / (made.blocks * b_row * b_col)
    assert np.array_equal(bcsr.to_dense(made), given.toarray())
    back = csr.validate(bcsr.to_csr(made))
    assert np.array_equal(back.row_ptr, given.indptr)
    given.sort_indices()
    assert np.array_equal(back.col_idx, given.indices) and np.array_equal(back.val, given.data)
    same(bcsr.from_dense(given.toarray(), block=(b_row, b_col), dtype="float32"), made)


@pytest.mark.parametrize("dtype", ("bfloat16", "float16"))
def test_values_are_rounded_once(dtype):
    given = scattered(100, 90)
    made = bcsr.validate(bcsr.from_csr(given, block=32, dtype=dtype))
    assert made.val.dtype == UINT16
    expected = half.from_dense(given.toarray(), dtype)
    assert np.array_equal(formats.to_dense(made), half.to_dense(expected))
    same(bcsr.from_dense(given.toarray(), block=32, dtype=dtype), made)
    same(bcsr.from_dense(expected, block=32), made)
    column_major = half.Half(dtype, np.asfortranarray(expected.bits))
    same(bcsr.from_dense(column_major, block=32), made)
    assert np.array_equal(csr.to_dense(bcsr.to_csr(made)), half.to_dense(expected))


def test_a_stored_zero_counts_and_keeps_its_block():
    a = csr.Csr(20, 20, np.array([0] * 20 + [1], INT32), np.array([19], INT32), np.zeros(1, FLOAT32))
    made = bcsr.validate(bcsr.from_csr(a, block=16))
    assert (made.nnz, made.blocks, bcsr.to_csr(made).nnz) == (1, 1, 0)
    negative = bcsr.from_dense(np.full((4, 4), -0.0, FLOAT32), block=16, dtype="bfloat16")
    assert (negative.nnz, negative.blocks) == (0, 0)


@pytest.mark.parametrize(("m", "k"), [(0, 0), (0, 7), (7, 0), (33, 40)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_matrix_without_non_zeros_has_no_blocks(m, k, dtype):
    nothing = csr.Csr(m, k, np.zeros(m + 1, INT32), np.zeros(0, INT32), np.zeros(0, FLOAT32))
    for made in (
        bcsr.from_csr(nothing, block=16, dtype=dtype),
        bcsr.from_dense(np.zeros((m, k), FLOAT32), block=16, dtype=dtype),
    ):
        bcsr.validate(made)
        assert made.blocks == made.nnz == made.fill_ratio == bcsr.count_blocks(nothing) == 0
        assert np.array_equal(bcsr.to_dense(made), np.zeros((m, k)))
        back = csr.validate(formats.to_csr(made))
        assert (back.m, back.k, back.nnz) == (m, k, 0)


# ---------------------------------------------------------------------------- random ones


@given(
    m=st.integers(1, 300),
    k=st.integers(1, 300),
    density=st.floats(0, 1),
    block=st.sampled_from(bcsr.SIDES),
    seed=st.integers(0, 99),
)
@settings(max_examples=40, deadline=None)
def test_a_random_matrix_has_the_blocks_that_were_asked_for(m, k, density, block, seed):
    made = bcsr.validate(bcsr.random(m, k, density, seed, block=block, dtype="float32"))
    total = -(-m // block) * -(-k // block)
    assert made.blocks == round(density * total)
    full = bcsr.to_csr(made)
    assert made.nnz == full.nnz, "a value is zero, or padding is not"
    assert full.nnz == 0 or (np.abs(full.val).max() < 1 and np.abs(full.val).min() > 0)
    same(bcsr.from_csr(full, block=block, dtype="float32"), made)


@given(density=st.floats(0, 1))
@settings(max_examples=40, deadline=None)
def test_pruning_keeps_that_share_of_all_blocks(density):
    made = bcsr.from_dense(np.ones((48, 80), FLOAT32), block=16, density=density)
    assert made.blocks == round(density * 15)


def test_every_block_is_as_likely_as_the_others():
    counts = np.zeros(12)
    for seed in range(600):
        counts += np.bincount(bcsr.random_pattern(1, 12 * 16, 0.25, seed, block=16)[1], minlength=12)
    assert counts.sum() == 3 * 600
    assert (np.abs(counts - 150) < 6 * np.sqrt(150 * 0.75)).all()


@pytest.mark.parametrize("dtype", (*DTYPES, "tf32"))
def test_random_values_fit_their_dtype(dtype):
    made = bcsr.random(64, 64, 1, 3, block=32, dtype=dtype)
    assert made.dtype == ("float32" if dtype == "tf32" else dtype)
    values = formats.to_dense(made)
    assert 0.45 < np.abs(values).mean() < 0.55 and abs(values.mean()) < 0.05
    if dtype == "tf32":
        assert not (made.val.view(np.uint32) & 0x1FFF).any()
    assert len(np.unique(values)) > 0.05 * values.size
    assert not np.array_equal(bcsr.random(64, 64, 1, 4, block=32, dtype=dtype).val, made.val)


# ---------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (8, ["8"]),
        (256, ["256"]),
        (48, ["48"]),
        ((64, 24), ["(64, 24)"]),
        ("64", ["'64'"]),
        (None, ["None"]),
        ((16, 16, 16), ["(16, 16, 16)"]),
        (64.5, ["64.5"]),
    ],
)
def test_a_block_is_a_power_of_two_from_16_to_128(block, words):
    says([*words, "16, 32, 64, 128"], lambda: bcsr.from_csr(scattered(9, 9), block=block))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dtype": "float64"}, ["float64", "bfloat16"]),
        ({"m": -1}, ["m", "-1"]),
        ({"k": 2**31}, ["k", "2147483648"]),
        ({"m": 1.5}, ["m", "1.5"]),
        ({"row_ptr": np.array([0, 2, 2, 3])}, ["row_ptr", "int64", "int32"]),
        ({"col_idx": np.array([[0, 2, 1]], INT32)}, ["col_idx", "2-dimensional"]),
        ({"val": np.zeros((3, 16, 16), UINT16)}, ["val", "uint16", "float32"]),
        ({"val": np.zeros((3, 32, 16), FLOAT32)[:, ::2]}, ["val", "contiguous"]),
        ({"val": np.zeros((3, 8, 16), FLOAT32)}, ["(8, 16)", "16, 32"]),
        ({"row_ptr": np.array([0, 2, 3], INT32)}, ["row_ptr", "3 entries", "4"]),
        ({"row_ptr": np.array([1, 2, 2, 3], INT32)}, ["starts at 1"]),
        ({"row_ptr": np.array([0, 2, 1, 3], INT32)}, ["falls from 2 to 1", "row 1"]),
        ({"row_ptr": np.array([0, 2, 2, 2], INT32)}, ["ends at 2", "3 blocks"]),
        ({"col_idx": np.array([0, 3, 1], INT32)}, ["col_idx[1] is 3", "0 to 2"]),
        ({"col_idx": np.array([0, 2, -1], INT32)}, ["col_idx[2] is -1"]),
        ({"col_idx": np.array([2, 0, 1], INT32)}, ["from 2 to 0", "block 1"]),
        ({"col_idx": np.array([2, 2, 1], INT32)}, ["from 2 to 2", "ascend"]),
        ({"nnz": -1}, ["nnz", "-1"]),
        ({"nnz": 769}, ["nnz", "768"]),
    ],
)
def test_a_malformed_matrix_gets_one_sentence(changes, words):
    says(["BCSR", *words], lambda: bcsr.validate(replace(small(), **changes)))


def test_sizes_that_32_bits_do_not_count_are_refused():
    says(["2^31 - 1", "134217728"], lambda: bcsr.require_blocks(2**27, 16))
    bcsr.require_blocks(2**27 - 1, 16)
    says(["blocks", "2^31 - 1"], lambda: bcsr.random(2**31 - 1, 2**20, 0.0, 0, block=16))
    says(["seed", "-1"], lambda: bcsr.random(16, 16, 1, -1))
    says(["density", "1.5"], lambda: bcsr.random(16, 16, 1.5, 0))
    says(["int8", "bfloat16"], lambda: bcsr.random(16, 16, 1, 0, dtype="int8"))
    says(["float64"], lambda: bcsr.from_dense(np.zeros((4, 4))))
    says(["1-dimensional"], lambda: bcsr.from_dense(np.zeros(4, FLOAT32)))


# ---------------------------------------------------------------------------- PyTorch


# ---------------------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", (*DTYPES, "tf32"))
@pytest.mark.parametrize(
    ("m", "k", "density"),
    [(1000, 777, 0.3), (256, 128, 1), (64, 64, 0), (1, 1, 1), (5000, 64, 0.5)],
)
def test_the_gpu_draws_the_same_matrix(device, m, k, density, dtype):
    import cupy

    here = bcsr.random(m, k, density, 5, dtype=dtype)
    there = bcsr.validate(bcsr.random(m, k, density, 5, dtype=dtype, xp=cupy))
    assert isinstance(there.val, cupy.ndarray)
    same(there, here)
