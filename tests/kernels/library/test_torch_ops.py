"""The operators of PyTorch without a GPU: what they do with tensors on the host in the place of a plan."""

from __future__ import annotations

import gc

import pytest
import scipy.sparse as sp
from refused import says

from kernels.formats import csr
from kernels.library import torch_ops

torch = pytest.importorskip("torch")
M, K, N = 7, 5, 4


class OnHost(torch_ops.SparseMatrix):
    """A matrix whose products PyTorch makes on the host."""

    def __init__(self, a):
        self.a, self.shape, self.number = a, (a.m, a.k), next(torch_ops._numbers)
        torch_ops._matrices[self.number] = self
        torch_ops.operators()
        self._spmm = torch.ops.sparsity_on_trial.spmm.default
        self.row, self.column = (torch.tensor(x).long() for x in (csr.rows(a), a.col_idx))

    def multiply(self, b, values, transposed):
        dense = torch.zeros(self.shape, dtype=b.dtype)
        values = torch.tensor(self.a.val, dtype=b.dtype) if values is None else values
        dense.index_put_((self.row, self.column), values.detach(), accumulate=True)
        return (dense.t() if transposed else dense) @ b.detach()

    def sample(self, g, b):
        return (g.detach()[self.row] * b.detach()[self.column]).sum(1)


@pytest.fixture
def matrix() -> OnHost:
    return OnHost(csr.from_scipy(sp.random(M, K, 0.5, random_state=0)))


def tensors(matrix):
    torch.manual_seed(0)
    b = torch.randn(K, N, dtype=torch.float64, requires_grad=True)
    values = torch.randn(matrix.a.nnz, dtype=torch.float64, requires_grad=True)
    return b, values


def test_gradients_of_b_and_of_values_are_right_and_so_are_theirs(matrix):
    b, values = tensors(matrix)
    assert torch.autograd.gradcheck(lambda x: matrix @ x, (b,))
    assert torch.autograd.gradcheck(matrix.matmul, (b, values))
    assert torch.autograd.gradgradcheck(matrix.matmul, (b, values))


@pytest.mark.parametrize("transposed", [False, True])
def test_the_operators_are_what_pytorch_asks_of_one(matrix, transposed):
    b, values = tensors(matrix)
    g = torch.randn(M, N, dtype=torch.float64, requires_grad=True)
    op = torch.ops.sparsity_on_trial
    left, rows = (g, K) if transposed else (b, M)
    for given in (None, values):
        torch.library.opcheck(op.spmm.default, (left, given, matrix.number, transposed, rows))
    pair = (b, g) if transposed else (g, b)
    torch.library.opcheck(op.sddmm.default, (*pair, matrix.number, transposed, matrix.a.nnz))


def test_a_layer_is_compiled_as_one_graph(matrix):
    b, values = tensors(matrix)
    layer = torch.compile(
        lambda x, w: torch.relu(matrix.matmul(x, values=w)).sum(),
        backend="aot_eager",
        fullgraph=True,
    )
    for y in (layer(b, values), torch.relu(matrix.matmul(b, values=values)).sum()):
        y.backward()
    assert torch.allclose(layer(b, values), torch.relu(matrix.matmul(b, values=values)).sum())
    once = torch.autograd.grad(torch.relu(matrix.matmul(b, values=values)).sum(), (b, values))
    for found, right in zip((b.grad, values.grad), once, strict=True):
        assert torch.allclose(found, 2 * right)


def test_the_operator_of_python_splits_the_graph_but_is_right(matrix):
    b, _ = tensors(matrix)
    layer = torch.compile(lambda x: (matrix @ x).sum(), backend="aot_eager")
    assert torch.allclose(layer(b), (matrix @ b).sum())


def test_another_number_of_columns_needs_no_other_matrix(matrix):
    for n in (1, 3, 8):
        assert (matrix @ torch.ones(K, n)).shape == (M, n)


def test_a_wrong_size_is_one_sentence(matrix):
    says(["B is 9 x 2", f"{K} columns"], lambda: matrix @ torch.ones(9, 2))


def test_a_matrix_that_is_gone_is_said():
    made = OnHost(csr.from_scipy(sp.eye(3)))
    number = made.number
    assert torch_ops.matrix_of(number) is made
    del made
    gc.collect()
    says([f"number {number} is gone"], lambda: torch_ops.matrix_of(number))
