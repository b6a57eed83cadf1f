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


def exact_in_16_bits():
    a = sparse()
    a.data = a.data.astype(np.float16).astype(np.float32)
    return a


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


def test_pointers_of_cupys_matrices_are_looked_at(cupy):
    from cupyx.scipy import sparse as there

    for make in (there.csr_matrix, there.csc_matrix):
        a = make(there.csr_matrix(sp.csr_matrix(sparse())))
        pointers = a.indptr.copy()
        pointers[3] = 10**6
        a.indptr = pointers
        says(["falls from 1000000"], lambda a=a: kernels.plan(a, N, tune=False))


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


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_torch_blocks_stay_blocks_in_any_order(torch, dtype):
    values = torch.arange(3 * 256, device="cuda").reshape(3, 16, 16).to(getattr(torch, dtype))
    for indices in ([0, 2, 1], [2, 0, 1]):
        parts = (torch.tensor(x, device="cuda") for x in ([0, 2, 3], indices))
        there = torch.sparse_bsr_tensor(*parts, values, (32, 48), check_invariants=False)
        made = operands.operand(there)
        assert made.dtype == dtype and made.block == (16, 16)
        right = there.to_dense().float().cpu().numpy()
        assert np.array_equal(formats.to_dense(formats.to_host(made)), right)


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


def test_csc_that_counts_from_one_is_refused_on_the_way_to_the_gpu(cupy):
    a = sp.csc_array((np.float32([4]), [1], [0, 1]), shape=(1, 1))
    says(["CSC row_idx[0] is 1"], lambda: kernels.plan(a, 4, tune=False))


@pytest.mark.parametrize("dtype", ["fp16", np.float16, "torch.half"])
def test_a_dtype_by_any_spelling(cupy, dtype):
    made = kernels.plan(exact_in_16_bits(), N, dtype=dtype, tune=False)
    assert made.dtype == "float16"


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


def test_an_expanded_tensor_is_refused_as_out_and_taken_as_b(torch):
    a = sparse()
    made = kernels.plan(a, N, tune=False)
    b = torch.tensor(numbers(K, 1)).cuda().expand(K, N)
    assert np.allclose(made(b).cpu().numpy(), a @ b.cpu().numpy(), atol=1e-4)
    out = torch.zeros(1, N, device="cuda").expand(M, N)
    says(["elements of out share memory"], lambda: made(b, out))


@pytest.mark.parametrize("wrong", [None, "2", 1j, True, 1e300])
def test_factors_that_are_no_numbers_are_refused(cupy, wrong):
    made, b = kernels.plan(sparse(), N, tune=False), cupy.asarray(numbers(K, N))
    out = cupy.full((M, N), 7, cupy.float32)
    for name in ("alpha", "beta"):
        says([f"{name} is"], lambda name=name: made(b, out, **{name: wrong}))
    assert (out == 7).all()
    made(b, out, alpha=np.float32(2), beta=np.array(1.0))
    assert np.allclose(out.get(), 2 * (sparse() @ b.get()) + 7, atol=1e-4)


def test_an_array_of_jax_is_read_but_never_written(cupy):
    jax = pytest.importorskip("jax")
    if not any(x.platform in ("gpu", "cuda") for x in jax.devices()):
        pytest.skip("JAX sees no GPU here")
    a, b = sparse(), numbers(K, N)
    made, there = kernels.plan(a, N, tune=False), jax.numpy.asarray(b)
    out = cupy.full((M, N), cupy.nan, cupy.float32)
    assert np.allclose(made(there, out).get(), a @ b, atol=1e-4)
    says(["out may not be written"], lambda: made(cupy.asarray(b), jax.numpy.zeros((M, N))))
