"""The ladder on a GPU beyond the contract of all systems: every width, awkward matrices, depths, large operands."""

from functools import partial

import numpy as np
import pytest
from products import SEED, exact, launched
from test_casper_sparse import NEED_FOURS, ragged

from kernels import casper_sparse as system
from kernels.casper_sparse import launch, operands
from kernels.formats import csr

pytestmark = pytest.mark.gpu
VARIANTS = tuple(system.VARIANTS)
#: What a kernel does at the ends of rows, of chunks, of tiles and of the matrix: (lengths of rows, columns).
MATRICES = {
    "no non-zeros": ([0] * 70, 300),
    "one row": ([777], 1817),
    "one column": ([1, 0, 40, 2] * 30, 1),
    "empty rows": ([0, 0, 5, 0, 70, 0, 0, 31, 0], 300),
    "enormous rows": ([4] * 300 + [6000] + [4] * 300 + [5000, 0, 4097], 4000),
    "lengths around every chunk": ([c + d for c in (4, 8, 16, 32, 64, 128, 256, 512) for d in (-1, 0, 1)], 1900),
    "few columns, many repeats": ([100] * 50, 3),
    "a tail without rows": ([20] * 5 + [0] * 2000, 1363),
}


def tried(variant: str, a: csr.Csr, n: int, device) -> None:
    p = system.problem_from_csr(a, n, SEED)
    if (n % 4 and variant in NEED_FOURS) or (a.nnz == 0 and variant == "shared_tiles"):
        with pytest.raises(ValueError, match=f"N is {n}:|without non-zeros"):
            system.prepare(variant, p, device)
    else:
        exact(p, partial(system.prepare, variant, device=device), device)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "auto"])
@pytest.mark.parametrize("label", MATRICES)
def test_awkward_matrices_in_every_width(device, label, variant):
    for n in (1, 2, 4, 31, 33, 68, 100, 128, 257, 260):
        tried(variant, ragged(*MATRICES[label], SEED), n, device)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_matrix_without_rows_is_multiplied(device, variant):
    p = system.problem_from_csr(ragged([], 5), 8)
    assert launched(system.prepare(variant, p, device), device).shape == (0, 8)


@pytest.mark.parametrize("variant", ["shared_tiles", "auto"])
def test_every_depth_of_shared_tiles(device, variant):
    """k = 320 to 383, whose tile and static memory are around 48 KiB together, failed for a launch's static memory."""
    rng = np.random.default_rng(SEED)
    for k in (1, 7, 100, 318, 319, 320, 350, 383, 384, 1023, 1100) if variant != "auto" else (319, 350):
        tried(variant, ragged(rng.integers(0, 41, 512), k, SEED), 64, device)


@pytest.mark.parametrize("variant", [name for name in VARIANTS if name != "auto"])
def test_rows_of_b_that_no_non_zero_names_are_not_multiplied(device, variant):
    """They are infinite or NaN; column 0 has no non-zero."""
    a = ragged([40, 3, 0, 64] * 90, 1363, SEED)
    a.col_idx[a.col_idx == 0] = 1
    p = system.problem_from_csr(a, 132, SEED)

    def with_nan(p):
        p.device().b[np.setdiff1d(np.arange(a.k), a.col_idx)] = np.nan
        return system.prepare(variant, p, device)

    exact(p, with_nan, device)


@pytest.mark.parametrize("label", MATRICES)
def test_preprocessing_on_the_gpu_makes_what_numpy_makes(device, label):
    a = ragged(*MATRICES[label])
    there = csr.to_device(a)
    work = [partial(launch.split, chunk=chunk) for chunk in (None, 32, 256)]
    work += [partial(launch.cut_columns, k_tile=k, m_pad=-(-a.m // 128) * 128) for k in (17, a.k) if a.nnz]
    for make in work:
        for ours, theirs in zip(make(a), make(there), strict=True):
            assert np.array_equal(ours, theirs.get()), f"{label}, seed {SEED}"


@pytest.mark.alone
def test_the_gpu_continues_past_32_bits_of_elements(device):
    """17 GiB of B: the index of an element wraps at 2^32, on the GPU as in NumPy."""
    import cupy

    k, n = 2**17 + 2, 2**15
    if cupy.cuda.runtime.memGetInfo()[0] < 24 * 2**30:
        pytest.skip("needs 24 GiB of free GPU memory")
    b = operands.dense(cupy, k, n, 5)
    assert np.array_equal(b[2**17 : 2**17 + 2].get(), b[:2].get())
    last = np.arange(k * n - 8, k * n, dtype=np.uint64).astype(np.uint32)
    assert np.array_equal(b.ravel()[-8:].get(), operands._unit(5, 3, last))
    del b
    cupy.get_default_memory_pool().free_all_blocks()
