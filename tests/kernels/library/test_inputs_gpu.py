"""What comes in on a GPU: nothing is read through an index that is wrong, or written where nobody may write."""

import numpy as np
import pytest
from given import error, numbers, on_gpu, poisoned, scattered
from refused import says

import kernels

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("open_gpu")]
M, K, N = 70, 90, 33
A, B = scattered(M, K), numbers((K, N))
RIGHT = A.astype(np.float64) @ B


@pytest.mark.parametrize("index", [10**8, K, -1])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_indices_of_cupys_matrices_are_looked_at_before_they_are_followed(kind, index):
    from cupyx.scipy import sparse as there

    a = getattr(there, f"{kind}_matrix")(there.csr_matrix(A))
    assert error(kernels.spmm(a, on_gpu(B)), RIGHT) < 1e-5
    part = "col" if kind == "coo" else "indices"
    spoiled = getattr(a, part).copy()
    spoiled[7] = index
    setattr(a, part, spoiled)
    name = "row_idx" if kind == "csc" else "col_idx"
    says([f"{name}[7] is {index}", "outside"], lambda: kernels.plan(a, N, tune=False))


class Wrapped:
    """An array of another library, which may be read only."""

    def __init__(self, x, readonly: bool):
        self.x, said = x, x.__cuda_array_interface__
        self.__cuda_array_interface__ = said | {"data": (said["data"][0], readonly)}


def test_out_that_may_not_be_written_or_overlaps_itself_stays_as_it_is():
    import cupy

    made, b, fixed, free = kernels.plan(A, N, tune=False), on_gpu(B), *(poisoned(M, N, "float32") for _ in range(2))
    says(["out may not be written"], lambda: made(b, Wrapped(fixed, True)))
    line = cupy.zeros(2 * M + N, cupy.float32)
    for strides in ((0, 4), (4, 4), (8, 4)):
        view = cupy.lib.stride_tricks.as_strided(line, (M, N), strides)
        says(["elements of out share memory"], lambda view=view: made(b, view))
    assert cupy.isnan(fixed).all() and not line.any()
    for given, to in ((b, Wrapped(free, False)), (Wrapped(b, True), free)):
        made(given, to)
        assert error(free, RIGHT) < 1e-5
        free.fill(np.nan)


def test_an_array_of_jax_is_read_but_never_written():
    jax = pytest.importorskip("jax")
    if not any(x.platform in ("gpu", "cuda") for x in jax.devices()):
        pytest.skip("JAX sees no GPU here")
    made = kernels.plan(A, N, tune=False)
    assert error(made(jax.numpy.asarray(B), poisoned(M, N, "float32")), RIGHT) < 1e-5
    says(["out may not be written"], lambda: made(on_gpu(B), jax.numpy.zeros((M, N))))
