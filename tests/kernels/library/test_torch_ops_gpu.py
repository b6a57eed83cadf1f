"""Sparse matrices of PyTorch on a GPU: gradients against float64, copies and files, modes, what is refused."""

from __future__ import annotations

import os
import secrets

import numpy as np
import pytest

import kernels
from kernels import formats
from kernels.formats import bcsr, csr, nm, two_four
from kernels.formats.csr import Csr
from kernels.formats.nm import Nm

torch = pytest.importorskip("torch")
SEED = int(os.environ.get("SPARSITY_TEST_SEED", secrets.randbits(31)))
M, K, N = 129, 200, 33
#: What of -> the dtype of B, the largest error.
KINDS = {
    "csr": ("float32", 1e-5),
    "blocks": ("bfloat16", 4e-3),
    "2:4": ("bfloat16", 4e-3),
    "nm": ("float32", 1e-5),
}

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def open_gpu(device, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))  # tests' matrices are nobody's
    torch.manual_seed(SEED)
    return device


def repeated(m: int = M, k: int = K) -> Csr:
    """CSR with repeated columns, and with empty rows and columns, among them the first and the last."""
    rng = np.random.default_rng(SEED)
    lengths = rng.integers(0, 12, m)
    lengths[[0, m // 2, m - 1]] = 0
    lengths[1] = 150
    columns = rng.integers(1, k - 1, lengths.sum()).astype(np.int32)
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return csr.validate(Csr(m, k, row_ptr, columns, rng.standard_normal(len(columns)).astype("f4")))


def of_kind(kind: str):
    """(A, as a float64 tensor on the GPU, B's dtype, the limit)."""
    a = {
        "csr": repeated,
        "blocks": lambda: bcsr.random(192, 256, 0.5, SEED, block=64, dtype="bfloat16"),
        "2:4": lambda: two_four.random(192, 256, "bfloat16", SEED),
        "nm": lambda: nm.random(256, 192, 8, 32, 16, SEED),
    }[kind]()
    dense = torch.tensor(np.asarray(formats.to_dense(a)), dtype=torch.float64, device="cuda")
    dtype, limit = KINDS[kind]
    return a, dense.t() if isinstance(a, Nm) else dense, getattr(torch, dtype), limit


def close(found, right, limit: float) -> None:
    assert torch.isfinite(found).all(), f"seed {SEED}"
    error = float((found.double() - right).norm() / right.norm())
    assert error < limit, (error, f"seed {SEED}")


def products(layer, x, g):
    """(A · X, Aᵀ · G)."""
    x = x.detach().requires_grad_()
    y = layer(x)
    y.backward(g)
    return y.detach(), x.grad


@pytest.mark.parametrize("n", [1, 16, 33, 128])
def test_gradients_hold_where_places_repeat_and_rows_and_columns_are_empty(n):
    a, right, _, limit = of_kind("csr")
    matrix = kernels.SparseMatrix(a, tune=False)
    rows = torch.tensor(csr.rows(a), device="cuda").long()
    columns = torch.tensor(a.col_idx, device="cuda").long()
    x = torch.randn(K, n, device="cuda", requires_grad=True)
    w = torch.randn(a.nnz, device="cuda", requires_grad=True)
    g, h, u = (
        torch.randn(M, n, device="cuda"),
        torch.randn(K, n, device="cuda"),
        torch.randn_like(w),
    )
    given = [t.detach().double().requires_grad_() for t in (x, w)]
    theirs = torch.zeros(M, K, dtype=torch.float64, device="cuda")
    theirs = theirs.index_put((rows, columns), given[1], accumulate=True) @ given[0]
    ours = matrix.matmul(x, w)
    close(ours.detach(), theirs.detach(), limit)
    for y, at, wide in ((ours, (x, w), False), (theirs, given, True)):
        first = torch.autograd.grad(y, at, g.to(y.dtype), create_graph=True)
        second = torch.autograd.grad((first[0] * h.to(y.dtype)).sum() + (first[1] * u.to(y.dtype)).sum(), at)
        if not wide:
            found = [*first, *second]
        else:
            for one, other in zip(found, [*first, *second], strict=True):
                close(one.detach(), other.detach(), 2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_and_no_columns_at_all(kind):
    a, right, dtype, limit = of_kind(kind)
    matrix = kernels.SparseMatrix(a, tune=False)
    x = torch.randn(right.shape[1], device="cuda").to(dtype).requires_grad_()
    g = torch.randn(right.shape[0], device="cuda").to(dtype)
    y = matrix @ x
    y.backward(g)
    close(y.detach(), right @ x.detach().double(), limit)
    close(x.grad, right.t() @ g.double(), limit)
    nothing = torch.empty(right.shape[1], 0, device="cuda", dtype=dtype, requires_grad=True)
    (matrix @ nothing).sum().backward()
    assert nothing.grad.shape == nothing.shape


def test_gradients_on_another_stream():
    a, right, _, limit = of_kind("csr")
    matrix = kernels.SparseMatrix(a, tune=False)
    x, g = torch.randn(K, N, device="cuda"), torch.randn(M, N, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y, of_x = products(matrix.matmul, x, g)
    stream.synchronize()
    close(y, right @ x.double(), limit)
    close(of_x, right.t() @ g.double(), limit)
