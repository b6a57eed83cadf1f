"""Operands without signs, and operands whose product is exact: of every system, by kernels that the host runs,
and by the GPU."""

from dataclasses import replace

import numpy as np
import pytest
from emulated import anything_there, moved, there  # noqa: F401

from kernels import async_sparse, casper_sparse, formats, nm_cuda_core, nm_spmm, tensor_core_24
from kernels.autotune import probe
from kernels.contract import Operands, Problem
from kernels.formats import half
from kernels.formats.csr import Csr
from kernels.formats.half import Eight, Half
from kernels.tensor_core_24 import fp8


def scattered(m: int, k: int, density: float, seed: int = 0, heavy: int = 0) -> Csr:
    """A matrix with some explicit zeros; heavy: its row 0 has so many entries."""
    rng = np.random.default_rng(seed)
    named = rng.random((m, k)) < density
    named[0, : heavy or 1] = True
    row, col = np.nonzero(named)
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
    "2:4, 8 bits": lambda: fp8.problem(70, 48, 200, scale="vectors"),
}
EXACT_IN = {"": 14, "tf32": 11}


@pytest.fixture(params=PROBLEMS)
def problem(request, moved) -> Problem:  # noqa: F811
    return moved(PROBLEMS[request.param]())


def dense(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """A and B."""
    ops = problem.host()
    return tuple(np.asarray(formats.to_dense(x), np.float64) for x in (ops.a, ops.b))


def wide(problem: Problem) -> int:
    """Bits of the widest numbers; 0: there are none."""
    ops = problem.host()
    other = ops.b if formats.is_sparse(ops.a) else ops.a
    return 0 if isinstance(other, (Half, Eight)) else EXACT_IN[problem.limit]


def rounded(x: np.ndarray, bits: int) -> np.ndarray:
    fraction, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits)


def test_magnitudes_are_the_numbers_without_their_signs(problem):
    for x, y in zip(dense(problem), dense(probe.magnitudes(problem)), strict=True):
        assert np.array_equal(np.abs(x), y)
    jobs = {entry for _, entry in probe.jobs(problem)}
    assert "magnitudes" in jobs and len(jobs) in (2, 3)


def test_whole_numbers_keep_the_pattern_and_the_layout(problem):
    ops, made = problem.device(), probe.exact(problem)
    for x, y in ((ops.a, made.device().a), (ops.b, made.device().b)):
        one, other = (z.val if formats.is_sparse(z) else half.array_of(z) for z in (x, y))
        assert type(x) is type(y) and (one.dtype, one.shape) == (other.dtype, other.shape)
        assert one.strides == other.strides and one.data.ptr != other.data.ptr, "the problem's own numbers stay"
        if hasattr(y, "scale"):
            assert (y.scale == 1).all() and y.scale.shape == x.scale.shape
    which = 0 if formats.is_sparse(ops.a) else 1
    assert np.array_equal(dense(problem)[which] != 0, dense(made)[which] != 0)
    assert (made.m, made.n, made.k, made.nnz) == (problem.m, problem.n, problem.k, problem.nnz)


def test_sums_are_exact_in_every_order_and_fewer_bits_show(problem):
    """The sum of all magnitudes is below 2^24: no partial sum is rounded. TF32 has 11 bits where float32 is asked for,
    and bfloat16 8 where TF32 is."""
    a, b = dense(probe.exact(problem))
    assert (a == np.rint(a)).all() and (b == np.rint(b)).all() and len(np.unique(a @ b)) > 10
    assert (np.abs(a) @ np.abs(b)).max() < 2**24
    bits, largest = wide(problem), max(np.abs(a).max(), np.abs(b).max())
    if not bits:  # and what 16 bits hold, too
        assert np.abs(a @ b).max() <= 256 and largest == 2
        return
    assert 2 ** (bits - 1) < largest < 2**bits
    fewer = 11 if bits > 11 else 8
    for one, other in ((rounded(a, fewer), b), (a, rounded(b, fewer))):
        assert (one @ other != a @ b).mean() > 0.1


def test_both_operands_are_drawn_apart(moved):  # noqa: F811
    """What is unlike the rest of one is so elsewhere than in the other."""
    ops = probe.exact(moved(PROBLEMS["csr, 16 bits"]())).host()
    a, b = (np.abs(formats.to_host(x))[:1000] for x in (ops.a.val, np.ravel(half.to_dense(ops.b))))
    assert ((a == 2) != (b != 1))[a != 0].mean() > 0.3


def test_any_lost_product_shows(problem):
    """Of every non-zero: it is not multiplied, or with another row of B."""
    a, b = dense(probe.exact(problem))
    if not formats.is_sparse(problem.host().a):
        a, b = b.T, a.T
    row, col = np.nonzero(a)
    lost = a[row, col][:, None] * b[col]
    assert ((lost != 0).mean(axis=1) > 0.4).all(), "in nearly half of all columns of C"
    others = a[row, col][:, None] * (b[col] - b[(col + 1) % len(b)])
    assert (others != 0).any(axis=1).mean() > 0.5


def test_a_problem_without_a_sparse_operand_is_refused(moved):  # noqa: F811
    operands = Operands(np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32))
    p = replace(casper_sparse.problem(8, 8, 8, 0.5), make_host=lambda: operands, make_device=lambda: operands)
    with pytest.raises(ValueError, match="^a problem of casper_sparse has no sparse operand"):
        probe.exact(moved(p)).host()
