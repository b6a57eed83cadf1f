"""Sparse matrices of PyTorch on a GPU: gradients against float64."""

import numpy as np
import pytest
from given import LIMITS, of_format
from products import SEED

import kernels
from kernels.formats import csr
from kernels.formats.csr import Csr

torch = pytest.importorskip("torch")
M, K = 129, 200
pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("open_gpu")]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(SEED)


def repeated(m: int = M, k: int = K) -> Csr:
    """CSR with repeated columns, and with empty rows and columns, among them the first and the last."""
    rng = np.random.default_rng(SEED)
    lengths = rng.integers(0, 12, m)
    lengths[[0, m // 2, m - 1]] = 0
    lengths[1] = 150
    columns = rng.integers(1, k - 1, lengths.sum()).astype(np.int32)
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return csr.validate(Csr(m, k, row_ptr, columns, rng.standard_normal(len(columns)).astype("f4")))


def close(found, right, limit: float) -> None:
    assert torch.isfinite(found).all(), f"seed {SEED}"
    error = float((found.double() - right).norm() / right.norm())
    assert error < limit, (error, f"seed {SEED}")


def derived(product, x, w, g, h, u) -> list:
    """A product, its gradients, and theirs."""
    y = product(x, w)
    first = torch.autograd.grad(y, (x, w), g.to(y.dtype), create_graph=True)
    return [y, *first, *torch.autograd.grad((first[0] * h).sum() + (first[1] * u).sum(), (x, w))]


@pytest.mark.parametrize("n", [1, 16, 33, 128])
def test_gradients_hold_where_places_repeat_and_rows_and_columns_are_empty(n):
    a = repeated()
    rows, columns = (torch.tensor(x, device="cuda").long() for x in (csr.rows(a), a.col_idx))
    shapes = (K, n), (a.nnz,), (M, n), (K, n), (a.nnz,)
    given = [torch.randn(*shape, device="cuda", requires_grad=i < 2) for i, shape in enumerate(shapes)]
    wide = [x.detach().double().requires_grad_(x.requires_grad) for x in given]

    def right(x, w):
        return x.new_zeros(M, K).index_put((rows, columns), w, accumulate=True) @ x

    ours, theirs = derived(kernels.SparseMatrix(a, tune=False).matmul, *given), derived(right, *wide)
    for found, expected in zip(ours, theirs, strict=True):
        close(found.detach(), expected.detach(), 2e-5)


@pytest.mark.parametrize("kind", ["csr", "bcsr64 bfloat16", "2:4 bfloat16", "nm"])
def test_a_vector_and_no_columns_at_all_on_another_stream(kind):
    (a, right), name = of_format(kind, 192, 256), kind.partition(" ")[2] or "float32"
    matrix, stream, right = kernels.SparseMatrix(a, tune=False), torch.cuda.Stream(), torch.tensor(right).cuda()
    x, g = (torch.randn(size, device="cuda").to(getattr(torch, name)) for size in (256, 192))
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = matrix @ x.requires_grad_()
        y.backward(g)
    stream.synchronize()
    close(y.detach(), right @ x.detach().double(), LIMITS[name])
    close(x.grad, right.t() @ g.double(), LIMITS[name])
    nothing = torch.empty(256, 0, device="cuda", dtype=x.dtype, requires_grad=True)
    (matrix @ nothing).sum().backward()
    assert nothing.grad.shape == nothing.shape
