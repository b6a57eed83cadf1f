"""A as callers bring it: every source gives the same matrix, and nothing is rounded in silence."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from refused import says

from kernels import formats
from kernels.formats import bcsr, csr, nm, two_four, wcsr
from kernels.formats.bcsr import Bcsr
from kernels.formats.csr import Csr
from kernels.formats.nm import Nm
from kernels.formats.two_four import TwoFour
from kernels.library import operands


def sparse(m: int = 50, k: int = 40, density: float = 0.1, seed: int = 0):
    """float32 values that every dtype here holds exactly."""
    a = sp.random(m, k, density, format="csr", random_state=seed)
    a.data = np.random.default_rng(seed).integers(-64, 64, a.nnz) / np.float32(8)
    return a.astype(np.float32)


def dense(m: int = 64, k: int = 96, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((m, k)).astype(np.float32)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dia"])
def test_scipy_matrices_of_any_kind_become_csr(kind):
    a = sparse()
    made = operands.operand(a.asformat(kind))
    assert isinstance(made, Csr) and (formats.to_dense(made) == a.toarray()).all()


@pytest.mark.parametrize(
    ("sides", "kind"), [((16, 32), Bcsr), ((64, 64), Bcsr), ((8, 8), Csr), ((5, 4), Csr)]
)
def test_blocks_stay_blocks_where_the_format_has_their_sides(sides, kind):
    a = sparse(320, 320, 0.005)
    made = operands.operand(a.tobsr(sides))
    assert isinstance(made, kind) and (formats.to_dense(made) == a.toarray()).all()
    assert not isinstance(made, Bcsr) or made.block == sides


def test_blocks_in_any_order_are_sorted():
    blocks = np.arange(3 * 256, dtype=np.float32).reshape(3, 16, 16)
    a = sp.bsr_array((blocks, [2, 0, 1], [0, 2, 3]), shape=(32, 48))
    made = operands.operand(a)
    assert isinstance(made, Bcsr) and list(made.col_idx) == [0, 2, 1]
    assert (formats.to_dense(made) == a.toarray()).all()


def test_formats_of_ours_are_taken_as_they_are_once_they_are_checked():
    a = sparse(64, 64)
    for made in (
        csr.from_scipy(a),
        bcsr.from_csr(a, block=16),
        wcsr.from_csr(a),
        nm.random(64, 32, 2, 4, 4, 0),
        two_four.random(16, 64, "bfloat16", 0),
    ):
        assert operands.operand(made) is made
    broken = Csr(
        2, 2, np.array([0, 1, 1], np.int32), np.array([5], np.int32), np.ones(1, np.float32)
    )
    says(["col_idx[0] is 5"], lambda: operands.operand(broken))


def test_values_that_float32_does_not_hold_need_an_accuracy():
    a = sparse().astype(np.float64)
    assert operands.operand(a).val.dtype == np.float32, "these it holds"
    a.data[3] = 0.1
    says(["float64", "0.1", "accuracy='fp32'"], lambda: operands.operand(a))
    assert operands.operand(a, accuracy="fp32").val[3] == np.float32(0.1)
    assert operands.operand(a > 0).val.max() == 1, "a pattern without values"
    says(["complex64"], lambda: operands.operand(a.astype(np.complex64)))


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int32, np.uint32])
def test_integers_that_float32_does_not_hold_need_an_accuracy(dtype):
    most = np.iinfo(dtype).max
    for value in (2**24 + 1, 2**53 + 1, most - 1, most):
        if value <= most:
            a = sp.csr_array(np.array([[1, 0], [0, value]], dtype))
            says([np.dtype(dtype).name, str(value)], lambda a=a: operands.operand(a))
            assert operands.operand(a, accuracy="fp32").val[1] == np.float32(value)
    held = [0, 1, 2**24, 2**24 + 2, most // 2 + 1, np.iinfo(dtype).min]
    a = sp.csr_array((np.array(held, dtype), np.arange(6), np.array([0, 6])), shape=(1, 6))
    assert operands.operand(a).val.tolist() == held


def test_an_infinite_double_is_held():
    a = sp.csr_array(np.array([[1.0, np.inf], [np.nan, -np.inf]]))
    assert np.array_equal(operands.operand(a).val, a.data, equal_nan=True)


@pytest.mark.parametrize("side", [8, 16])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indices": [0, 2**32]}, ["col_idx[1] is 4294967296", "32 bits"]),
        ({"indices": [0, 2]}, ["col_idx[1] is 2", "outside the columns of blocks 0 to 1"]),
        ({"indices": [-1, 0]}, ["col_idx[0] is -1", "columns of blocks"]),
        ({"indptr": [0, 2**32, 2]}, ["row_ptr[1] is 4294967296", "32 bits"]),
        ({"indptr": [0, 3, 2]}, ["row_ptr falls from 3 to 2"]),
        ({"indptr": [0, 1, 5]}, ["ends at 5", "2 column indices", "2 blocks"]),
    ],
)
def test_blocks_that_are_nowhere_are_refused_as_blocks(change, words, side):
    blocks = np.ones((2, side, side), np.float32)
    a = sp.bsr_array((blocks, [1, 0], [0, 1, 2]), shape=(2 * side, 2 * side))
    assert operands.operand(a).nnz == blocks.size
    for name, value in change.items():
        setattr(a, name, np.array(value))
    says(["BSR", *words], lambda: operands.operand(a))


def test_wide_indices_of_csr_are_refused_and_not_cut():
    a = sparse()
    a.indices = a.indices.astype(np.int64)
    a.indices[3] += 2**32
    says(["CSR col_idx[3] is 42949", "32 bits"], lambda: operands.operand(a))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (dense(), ["numpy.ndarray", "prune="]),
        (3, ["builtins.int", "SciPy"]),
        (np.ones((2, 2), "U1"), ["prune="]),
    ],
)
def test_what_is_no_sparse_matrix_is_refused(given, words):
    says(words, lambda: operands.operand(given))


# ---------------------------------------------------------------- pruning


def test_two_of_four_in_float32_and_in_sixteen_bits_are_the_same_pattern():
    x = dense().astype(np.float16).astype(np.float32)
    wide = operands.operand(x, prune="2:4")
    narrow = operands.operand(x, prune="2:4", dtype="float16")
    assert isinstance(wide, Nm) and (wide.keep, wide.group, wide.vector) == (2, 4, 1)
    assert isinstance(narrow, TwoFour)
    kept = formats.to_dense(narrow)
    assert (formats.to_dense(wide).T == kept).all()
    groups = np.abs(x).reshape(64, 24, 4)
    most = np.sort(groups, axis=2)[:, :, 2:].sum()
    assert np.isclose(np.abs(kept).sum(), most)


def test_nm_prunes_along_the_columns_of_a():
    x = dense(64, 96)
    made = operands.operand(x, prune="nm", density=0.25, group=32, vector=16)
    assert operands.size_of(made) == (64, 96) and made.keep == 8
    kept = formats.to_dense(made).T
    assert ((kept != 0).reshape(64, 3, 32).sum(axis=2) == 8).all()
    assert ((kept == x) | (kept == 0)).all()


@pytest.mark.parametrize("density", [0.0, 0.25, 1.0])
def test_blocks_with_the_largest_sums_of_squares_are_kept(density):
    x = dense(70, 100)
    made = operands.operand(x, prune="block", density=density, block=16)
    kept = formats.to_dense(made)
    assert made.blocks == round(density * 5 * 7) and ((kept == x) | (kept == 0)).all()
    padded = np.zeros((80, 112))
    padded[:70, :100] = x
    score = (padded.reshape(5, 16, 7, 16) ** 2).sum(axis=(1, 3)).ravel()
    assert np.isclose((kept**2.0).sum(), np.sort(score)[::-1][: made.blocks].sum())


def test_without_a_density_blocks_of_zeros_fall_away():
    x = np.zeros((64, 64), np.float32)
    x[20, 40] = 1
    assert operands.operand(x, prune="block", block=32).blocks == 1


def test_pruning_says_what_it_needs():
    x = dense()
    for words, work in (
        (["'unstructured'", "2:4"], lambda: operands.operand(x, prune="unstructured")),
        (["needs a density"], lambda: operands.operand(x, prune="nm")),
        (["0.4", "half"], lambda: operands.operand(x, prune="2:4", density=0.4)),
        (["1.5"], lambda: operands.operand(x, prune="block", density=1.5)),
        (["density is 'x'"], lambda: operands.operand(x, prune="block", density="x")),
        (["A is 0 x 96", "prune='2:4'"], lambda: operands.operand(x[:0], prune="2:4")),
        (["A is 64 x 0"], lambda: operands.operand(x[:, :0], prune="nm", density=0.25)),
        (["sparse already"], lambda: operands.operand(sparse(), prune="2:4")),
        (["nothing is pruned"], lambda: operands.operand(sparse(), density=0.5)),
        (["accuracy='bf16'"], lambda: operands.operand(x, prune="2:4", dtype="bfloat16")),
        (["1 dimensions"], lambda: operands.operand(x[0], prune="2:4")),
    ):
        says(words, work)
    operands.operand(x, prune="2:4", dtype="bfloat16", accuracy="bf16")


# ---------------------------------------------------------------- accuracy


@pytest.mark.parametrize(
    ("accuracy", "dtype", "is_"),
    [
        (None, "float32", "fp32"), (None, "bfloat16", "bf16"), (None, "float16", "fp16"),
        ("tf32", "float32", "tf32"), ("bf16", "float32", "bf16"), ("bf16", "bfloat16", "bf16"),
    ],
)  # fmt: skip
def test_the_default_accuracy_is_what_the_dtype_holds(accuracy, dtype, is_):
    assert operands.resolved(accuracy, dtype) == is_


@pytest.mark.parametrize(
    ("accuracy", "dtype", "words"),
    [
        ("fp32", "bfloat16", ["'fp32'", "bfloat16"]),
        ("tf32", "float16", ["'tf32'", "float16"]),
        ("fp16", "bfloat16", ["'fp16'"]),
        ("int8", "float32", ["'int8'", "tf32"]),
        (None, "float64", ["float64", "float32"]),
    ],
)
def test_less_than_asked_is_refused(accuracy, dtype, words):
    says(words, lambda: operands.resolved(accuracy, dtype))


# ---------------------------------------------------------------- from format to format


@pytest.mark.parametrize(
    "a",
    [
        bcsr.from_csr(sparse(70, 90), block=16, dtype="float32"),
        wcsr.from_csr(sparse(70, 90), window=16),
        nm.random(64, 40, 2, 8, 4, 0),
        two_four.random(24, 40, "float16", 1),
        csr.from_scipy(sparse(0, 5)),
    ],
    ids=lambda a: type(a).__name__,
)
def test_every_format_as_csr_is_the_same_matrix(a):
    dense = formats.to_dense(a)
    made = operands.as_csr(a)
    csr.validate(made)
    assert (formats.to_dense(made) == (dense.T if isinstance(a, Nm) else dense)).all()


def test_a_transpose_and_the_places_of_its_values():
    a = csr.from_scipy(sparse())
    made, order = operands.transposed(a)
    csr.validate(made)
    assert (formats.to_dense(made) == formats.to_dense(a).T).all()
    assert (a.val[order] == made.val).all()


# ---------------------------------------------------------------- PyTorch's


def test_torch_matrices_are_the_same_as_scipys():
    torch = pytest.importorskip("torch")
    a = sparse(64, 64)
    there = torch.sparse_csr_tensor(
        *(torch.tensor(x) for x in (a.indptr, a.indices, a.data)), size=a.shape
    )
    for given in (there, there.to_sparse_coo(), there.requires_grad_(), there.to(torch.bfloat16)):
        made = operands.operand(given)
        assert isinstance(made, Csr) and (formats.to_dense(made) == a.toarray()).all()
    says(["sparse_csc"], lambda: operands.operand(there.detach().to_sparse_csc()))
    says(["torch.Tensor", "prune="], lambda: operands.operand(torch.ones(4, 4)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_torch_blocks_keep_their_dtype(dtype):
    torch = pytest.importorskip("torch")
    x = torch.tensor(sparse(64, 64).toarray()).to(getattr(torch, dtype))
    made = operands.operand(x.to_sparse_bsr((16, 16)))
    assert isinstance(made, Bcsr) and made.dtype == dtype
    assert (formats.to_dense(made) == x.float().numpy()).all()


def test_torch_dense_tensors_are_pruned_with_or_without_a_gradient():
    torch = pytest.importorskip("torch")
    x = torch.tensor(dense())
    same = operands.operand(x.numpy(), prune="block", density=0.5, block=16)
    for given in (x, torch.nn.Parameter(x)):
        made = operands.operand(given, prune="block", density=0.5, block=16)
        assert (made.val == same.val).all()
