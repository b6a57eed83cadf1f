"""Operands without signs, and operands whose product is exact: of every room's problems, on both sides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernels import async_sparse, casper_sparse, formats, jit, nm_cuda_core, nm_spmm, tensor_core_24
from kernels.contract import Operands, Problem
from kernels.formats import half
from kernels.formats.csr import Csr
from kernels.formats.eight import Eight
from kernels.formats.half import Half
from kernels.tensor_core_24 import fp8_operands
from kernels.tuning import outputs, probe


def scattered(m: int, k: int, density: float, seed: int = 0, heavy: int = 0) -> Csr:
    """A matrix with some explicit zeros; heavy: its row 0 has so many entries."""
    rng = np.random.default_rng(seed)
    there = rng.random((m, k)) < density
    there[0, : heavy or 1] = True
    row, col = np.nonzero(there)
    val = rng.normal(size=row.size).astype(np.float32)
    val[::9] = 0
    return Csr(m, k, np.searchsorted(row, np.arange(m + 1)).astype(np.int32), col.astype(np.int32), val)


def from_csr(a: Csr, n: int = 24, **more) -> Problem:
    return async_sparse.problem_from_csr(a, n, 1, reorder="", **more)


PROBLEMS = {
    "csr": lambda: casper_sparse.problem_from_csr(scattered(90, 140, 0.1), 40),
    "csr, 16 bits": lambda: from_csr(scattered(90, 140, 0.1), format="csr", dtype="float16"),
    "csr, tf32": lambda: from_csr(scattered(90, 140, 0.1), format="csr", dtype="tf32"),
    "csr, long rows": lambda: casper_sparse.problem_from_csr(scattered(30, 6_000, 0.004, heavy=5_800), 64),
    "blocks": lambda: from_csr(scattered(90, 140, 0.01), block=32),
    "blocks, tf32": lambda: from_csr(scattered(90, 140, 0.01), block=(64, 32), dtype="tf32"),
    "blocks, rows of B": lambda: async_sparse.problem(130, 40, 70, 0.4, 3, layout="row"),
    "n:m": lambda: nm_spmm.problem(40, 96, 200, 0.5),
    "n:m, tf32": lambda: nm_spmm.problem(40, 96, 200, 0.25, dtype="tf32"),
    "n:m, bfloat16": lambda: nm_spmm.problem(40, 96, 200, 0.25, dtype="bfloat16"),
    "n:m, element-wise": lambda: nm_cuda_core.problem(50, 64, 96, 0.5),
    "2:4": lambda: tensor_core_24.problem(70, 48, 200, 0.5, dtype="float16"),
    "2:4, 8 bits": lambda: fp8_operands.problem(70, 48, 200, scale="vectors"),
}
EXACT_IN = {"": 14, "tf32": 11}


@pytest.fixture(params=PROBLEMS)
def problem(request) -> Problem:
    return PROBLEMS[request.param]()


def dense(x) -> np.ndarray:
    return np.asarray(formats.to_dense(x), np.float64)


def left_sparse(ops: Operands) -> bool:
    return formats.is_sparse(ops.a)


def wide(problem: Problem) -> int:
    ops = problem.host()
    other = ops.b if left_sparse(ops) else ops.a
    return 0 if isinstance(other, (Half, Eight)) else EXACT_IN[problem.limit]


def test_magnitudes_are_the_numbers_without_their_signs(problem):
    ops, found = problem.host(), probe.magnitudes(problem).host()
    for x, y in ((ops.a, found.a), (ops.b, found.b)):
        assert np.array_equal(np.abs(dense(x)), dense(y))
    assert (dense(ops.a) @ dense(ops.b) != dense(found.a) @ dense(found.b)).any() == bool(
        (dense(ops.a) < 0).any() or (dense(ops.b) < 0).any()
    )


def test_whole_numbers_keep_the_pattern_and_the_layout(problem):
    ops, made = problem.host(), probe.exact(problem)
    found = made.host()
    for x, y in ((ops.a, found.a), (ops.b, found.b)):
        assert type(x) is type(y) and formats.is_sparse(x) == formats.is_sparse(y)
        one, other = (z.val if formats.is_sparse(z) else half.array_of(z) for z in (x, y))
        assert one.dtype == other.dtype and one.shape == other.shape and one.strides == other.strides
        assert not np.shares_memory(one, other), "the problem's own numbers stay"
        if formats.is_sparse(x):
            assert np.array_equal(dense(x) != 0, dense(y) != 0)
        for scaled in (y for y in (y,) if hasattr(y, "scale")):
            assert (scaled.scale == 1).all() and scaled.scale.shape == x.scale.shape
    assert (made.m, made.n, made.k, made.nnz) == (problem.m, problem.n, problem.k, problem.nnz)


def test_sums_are_exact_in_every_order(problem):
    """The sum of all magnitudes is below 2^24: no partial sum is rounded."""
    found = probe.exact(problem).host()
    a, b = dense(found.a), dense(found.b)
    assert (a == np.rint(a)).all() and (b == np.rint(b)).all()
    assert (np.abs(a) @ np.abs(b)).max() < 2**24
    bits = wide(problem)
    if not bits:  # and what 16 bits hold, too
        assert np.abs(a @ b).max() <= 256 and max(np.abs(a).max(), np.abs(b).max()) == 2
    else:
        assert 2 ** (bits - 1) < max(np.abs(a).max(), np.abs(b).max()) < 2**bits
    assert len(np.unique(a @ b)) > 10


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)


def test_fewer_bits_than_asked_for_show_in_either_operand(problem):
    """TF32 has 11 bits where float32 is asked for, and bfloat16 8 where TF32 is."""
    if not (bits := wide(problem)):
        pytest.skip("16 bits hold all of it")
    found = probe.exact(problem).host()
    a, b = dense(found.a), dense(found.b)
    fewer = 11 if bits > 11 else 8
    assert (rounded(a, bits) == a).all() and (rounded(b, bits) == b).all()
    for one, other in ((rounded(a, fewer), b), (a, rounded(b, fewer))):
        assert (one @ other != a @ b).mean() > 0.1


def test_any_lost_product_shows(problem):
    """Of every non-zero: it is not multiplied, or with another row of B."""
    found = probe.exact(problem).host()
    a, b = dense(found.a), dense(found.b)
    if not left_sparse(found):
        a, b = b.T, a.T
    row, col = np.nonzero(a)
    lost = a[row, col][:, None] * b[col]
    assert ((lost != 0).mean(axis=1) > 0.4).all(), "in nearly half of all columns of C"
    moved = a[row, col][:, None] * (b[col] - b[(col + 1) % len(b)])
    assert (moved != 0).any(axis=1).mean() > 0.5


def test_a_problem_without_a_sparse_operand_is_refused():
    p = casper_sparse.problem(8, 8, 8, 0.5)
    p = replace(p, make_host=lambda: Operands(np.zeros((8, 8), np.float32), None))
    with pytest.raises(ValueError, match="^a problem of casper_sparse has no sparse operand"):
        probe.exact(p).host()


def test_the_kernels_compile_for_every_target_without_spills():
    entries = ["magnitudes", *(f"whole<{name}>" for name in outputs.ELEMENTS.values())]
    cubins = [jit.compile_cubin(probe.SOURCE, entry, arch) for entry in entries for arch in jit.TARGETS]
    assert not any(used.spills for used, _ in jit.reports(cubins))


# ------------------------------------------------------------------------------------ on the GPU


def same(x, y) -> None:
    x = formats.to_host(x)
    one, other = (z.val if formats.is_sparse(z) else half.array_of(z) for z in (x, y))
    word = f"u{other.itemsize}"
    assert np.array_equal(np.ascontiguousarray(one).view(word), np.ascontiguousarray(other).view(word))


@pytest.mark.gpu
def test_the_gpu_makes_the_bits_that_numpy_makes(device, problem):
    for make in (probe.exact, probe.magnitudes):
        here, there = make(problem).host(), make(problem).device()
        same(there.a, here.a)
        same(there.b, here.b)
        assert half.array_of(there.c).shape == (problem.m, problem.n)
    jobs = {entry for _, entry in probe.jobs(problem)}
    assert "magnitudes" in jobs and len(jobs) in (2, 3)
