"""What comes in on a GPU: nothing is read through an index that is wrong, or written where nobody may write."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from refused import says

import kernels
from kernels import formats
from kernels.library import operands

pytestmark = pytest.mark.gpu
M, K, N = 70, 90, 33


@pytest.fixture(autouse=True)
def open_gpu(device, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))
    return device


def sparse(seed: int = 3):
    return sp.random(M, K, 0.1, format="csr", dtype=np.float32, random_state=seed)


def numbers(*shape) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


@pytest.fixture
def cupy():
    return pytest.importorskip("cupy")


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


# ---------------------------------------------------------------- A


@pytest.mark.parametrize("index", [10**8, K, -1])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_indices_of_cupys_matrices_are_looked_at_before_they_are_followed(cupy, kind, index):
    from cupyx.scipy import sparse as there

    a = getattr(there, f"{kind}_matrix")(there.csr_matrix(sp.csr_matrix(sparse())))
    b = cupy.asarray(numbers(K, N))
    right = sparse() @ b.get()
    assert np.allclose(kernels.spmm(a, b).get(), right, atol=1e-4)
    name = "row_idx" if kind == "csc" else "col_idx"
    spoiled = (a.col if kind == "coo" else a.indices).copy()
    spoiled[7] = index
    setattr(a, "col" if kind == "coo" else "indices", spoiled)
    says([f"{name}[7] is {index}", "outside"], lambda: kernels.plan(a, N, tune=False))


LAYOUTS = ("coo", "csr", "csc", "bsr", "bsc")


def of_torch(torch, layout: str):
    x = torch.tensor(np.kron(sparse().toarray(), np.ones((2, 2), np.float32))).cuda()
    block = ((2, 2),) if layout in ("bsr", "bsc") else ()
    return x, getattr(x, f"to_sparse_{layout}")(*block)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_tensors_of_any_layout_are_the_same_matrix(torch, layout, dtype):
    x, there = of_torch(torch, layout)
    there = there.to(getattr(torch, dtype))
    made = operands.operand(there)
    assert np.array_equal(formats.to_dense(formats.to_host(made)), x.to(there.dtype).float().cpu().numpy())


@pytest.mark.parametrize("index", [10**6, -5, 2**40])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_indices_that_are_nowhere_are_refused_before_they_are_followed(torch, layout, index):
    _, there = of_torch(torch, layout)
    if layout == "coo":
        there = there.coalesce()
        indices = there.indices().clone()
        indices[1, 4] = index
        spoiled = torch.sparse_coo_tensor(indices, there.values(), there.shape, check_invariants=False)
    else:
        rows = layout in ("csr", "bsr")
        pointers = there.crow_indices() if rows else there.ccol_indices()
        indices = (there.col_indices() if rows else there.row_indices()).clone()
        indices[4] = index
        make = getattr(torch, f"sparse_{layout}_tensor")
        spoiled = make(pointers, indices, there.values(), there.shape, check_invariants=False)
    says([f"_idx[4] is {index}"], lambda: kernels.plan(spoiled, N, tune=False))
    assert torch.ones(3, device="cuda").sum().item() == 3, "the GPU works on"


# ---------------------------------------------------------------- out, alpha and beta


class Wrapped:
    """An array of another library, which may be read only."""

    def __init__(self, x, readonly: bool):
        self.x = x
        said = x.__cuda_array_interface__
        self.__cuda_array_interface__ = said | {"data": (said["data"][0], readonly)}


def test_out_that_may_not_be_written_or_overlaps_itself_stays_as_it_is(cupy):
    a, b = sparse(), cupy.asarray(numbers(K, N))
    made = kernels.plan(a, N, tune=False)
    right = a @ b.get()
    fixed = cupy.full((M, N), cupy.nan, cupy.float32)
    free = cupy.full((M, N), cupy.nan, cupy.float32)
    made(b, Wrapped(free, False))
    assert np.allclose(free.get(), right, atol=1e-4)
    says(["out may not be written"], lambda: made(b, Wrapped(fixed, True)))
    line = cupy.zeros(2 * M + N, cupy.float32)
    for strides in ((0, 4), (4, 4), (8, 4)):
        view = cupy.lib.stride_tricks.as_strided(line, (M, N), strides)
        says(["elements of out share memory"], lambda view=view: made(b, view))
    assert cupy.isnan(fixed).all() and not line.any()
    free.fill(0)
    assert np.allclose(made(Wrapped(b, True), free).get(), right, atol=1e-4)


def test_an_array_of_jax_is_read_but_never_written(cupy):
    jax = pytest.importorskip("jax")
    if not any(x.platform in ("gpu", "cuda") for x in jax.devices()):
        pytest.skip("JAX sees no GPU here")
    a, b = sparse(), numbers(K, N)
    made, there = kernels.plan(a, N, tune=False), jax.numpy.asarray(b)
    out = cupy.full((M, N), cupy.nan, cupy.float32)
    assert np.allclose(made(there, out).get(), a @ b, atol=1e-4)
    says(["out may not be written"], lambda: made(cupy.asarray(b), jax.numpy.zeros((M, N))))
