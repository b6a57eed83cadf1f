"""The operators of PyTorch without a GPU: what they do with tensors on the host in the place of a plan."""

from __future__ import annotations

import gc

import pytest
import racing
import scipy.sparse as sp
from pretend import pretended  # noqa: F401
from refused import says

from kernels import formats
from kernels.formats import bcsr, csr, nm, two_four
from kernels.library import dense, torch_ops
from kernels.library.dense import Dense

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


@pytest.fixture
def as_if_on_a_gpu(pretended, monkeypatch):  # noqa: F811
    """A GPU that is not there, on which tensors of the host are."""

    def describe(x, name):
        if not isinstance(x, torch.Tensor):
            return Dense(x.data.ptr, x.shape, dense.row_major(x.shape), x.dtype.name, 0)
        return Dense(
            x.data_ptr(), tuple(x.shape), x.stride(), str(x.dtype).removeprefix("torch."), 0
        )

    monkeypatch.setattr(dense, "describe", describe)
    monkeypatch.setattr(
        dense, "place", lambda x, name: (describe(x, name).ptr, describe(x, name)[1:])
    )
    monkeypatch.setattr(dense, "current", lambda like, gpu: 0)
    monkeypatch.setattr(dense, "empty", lambda like, shape, *_: torch.empty(shape))
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return pretended(racing.H200)


def test_each_gradient_is_a_launch_on_the_tensors_themselves(as_if_on_a_gpu):
    launched = as_if_on_a_gpu.launched
    made = torch_ops.SparseMatrix(sp.random(M, K, 0.5, random_state=0, dtype="float32"), tune=False)
    assert repr(made).startswith(f"SparseMatrix({M} x {K}, Csr, ")
    b = torch.randn(K, N, requires_grad=True)
    values = torch.randn(made.a.nnz, requires_grad=True)
    g = torch.randn(M, N)
    out = made.matmul(b, values)
    out.backward(g)
    assert out.shape == (M, N) and b.grad.shape == (K, N) and values.grad.shape == values.shape
    names = [step[2].partition(":")[0] for step in launched]
    assert names == ["split_rows", "split_rows", "sddmm"]
    forward, backward, sampled = ([x for x in step[3:] if type(x) is int] for step in launched)
    assert {b.data_ptr(), values.data_ptr(), out.data_ptr()} <= set(forward)
    assert g.data_ptr() in backward and values.data_ptr() not in backward, (
        "Aᵀ has them in another order"
    )
    assert sampled[2:4] == [g.data_ptr(), b.data_ptr()]
    launched.clear()
    made.matmul(b.detach())
    assert [step[2].partition(":")[0] for step in launched] == ["union_rows"]


def test_blocks_are_transposed_as_blocks(as_if_on_a_gpu):
    made = torch_ops.SparseMatrix(bcsr.random(128, 192, 0.6, 0, block=(64, 32)), tune=False)
    b = torch.randn(192, 16).bfloat16().requires_grad_()
    made.matmul(b).backward(torch.randn(128, 16).bfloat16())
    kinds = {key[0]: found.a for key, found in made._plans.items()}
    assert (kinds[False].block, kinds[True].block) == ((64, 32), (32, 64))
    assert b.grad.shape == (192, 16)
    assert (formats.to_dense(kinds[True]) == formats.to_dense(kinds[False]).T).all()


@pytest.mark.parametrize("kind", ["nm", "2:4"])
def test_what_has_no_transposed_pattern_is_transposed_dense(kind, as_if_on_a_gpu):
    a = nm.random(64, 32, 8, 32, 16, 0) if kind == "nm" else two_four.random(32, 64, "bfloat16", 0)
    made = torch_ops.SparseMatrix(a, tune=False)
    b = torch.randn(64, 16).to(torch.float32 if kind == "nm" else torch.bfloat16).requires_grad_()
    g = torch.randn(32, 16).to(b.dtype)
    made.matmul(b).backward(g)
    right = torch.tensor(formats.to_dense(a))
    right = (right if kind == "nm" else right.T) @ g.float()
    assert torch.allclose(b.grad.float(), right, rtol=2e-2, atol=5e-2 if kind == "2:4" else 1e-5)
    with pytest.raises(ValueError, match="values change in place for CSR|gradient of A's values"):
        made.matmul(b, torch.ones(3, requires_grad=True)).sum().backward()


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
