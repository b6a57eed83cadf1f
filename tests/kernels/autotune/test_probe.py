"""When two outputs agree: what is not written, what is off, and what rounding explains. And operands without signs, and
operands whose product is exact: of every system. By kernels that the host runs, and by the GPU."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from refused import refused

from kernels import async_sparse, casper_sparse, formats, nm_cuda_core, nm_spmm, tensor_core_24
from kernels.autotune import probe
from kernels.autotune.probe import Allowed
from kernels.contract import Operands, Problem
from kernels.formats import half
from kernels.formats.csr import Csr
from kernels.formats.half import DTYPES, Eight, Half, array_of as array
from kernels.lazy import cupy
from kernels.tensor_core_24 import fp8

DEVICE = SimpleNamespace(sync=lambda: cupy.cuda.runtime.deviceSynchronize())
STREAM = SimpleNamespace(sync=DEVICE.sync, handle=0)
ALL = ("float32", *DTYPES, "e4m3")
#: Of sums of a hundred products, each output with its own error.
MAY = {dtype: probe.allowed(dtype, dtype, 100, outputs=2) for dtype in ALL}
SIGN = {"float32": 1 << 31, "bfloat16": 1 << 15, "float16": 1 << 15, "e4m3": 1 << 7}


@pytest.fixture
def differ(anything_there):
    """`probe.difference` of outputs of the host."""
    return lambda *given: probe.difference(*(x if isinstance(x, Allowed) else anything_there(x) for x in given))


def made_of(values, dtype: str, order="C"):
    bits = np.asarray(half.to_bits(np.asarray(values, np.float32), dtype), order=order)
    kinds = dict.fromkeys(DTYPES, Half) | {"e4m3": lambda *of: Eight(*of, np.ones((1, 1), np.float32))}
    return kinds[dtype](dtype, bits) if dtype in kinds else bits.copy(order="K")


def output(dtype: str = "float32", shape=(37, 50), order="C", seed=0):
    values = np.random.default_rng(seed).normal(0, 3, shape)
    return made_of(np.where(np.abs(values) < 0.1, 0.1, values), dtype, order)


def sizes(dtype: str = "float32", shape=(37, 50), order="C", value=10.0):
    """Magnitudes of an output's sums: of e4m3 in bfloat16."""
    return made_of(np.full(shape, value), "bfloat16" if dtype == "e4m3" else dtype, order)


def copy(x):
    """Of an output of the host, in its order."""
    return made_of(half.from_bits(array(x), probe.dtype_of(x)), probe.dtype_of(x), order(x))


def order(x) -> str:
    return "C" if array(x).flags.c_contiguous else "F"


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("how", ["C", "F"])
def test_one_wrong_element_is_found_wherever_it_is(differ, dtype, how):
    right, more = output(dtype, order=how), (sizes(dtype, order=how), MAY[dtype])
    assert differ(copy(right), right) == differ(copy(right), right, *more) == ""
    for at in ((0, 0), (36, 49), (17, 3)):
        said = f"1 of 1850 elements differ, the first at row {at[0]}, column {at[1]}"
        for change in ("NaN", "sign", "a bit"):
            found = copy(right)
            bits = array(found).view(f"u{array(found).itemsize}")
            bits[at] = {"NaN": SIGN[dtype] - 1, "sign": bits[at] ^ SIGN[dtype], "a bit": bits[at] ^ 1}[change]
            assert differ(found, right) == said
            assert change == "a bit" or differ(found, right, *more).startswith(f"{said}, by up to "), change


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("how", ["C", "F"])
def test_what_a_launch_leaves_alone_is_nan(differ, anything_there, dtype, how):
    """An output that still holds the right values proves nothing of who wrote them. A copy is no view."""
    held, right, size = (anything_there(x) for x in (output(dtype, order=how),) * 2 + (sizes(dtype, order=how),))
    kept = probe.copy(held)
    idle = SimpleNamespace(result=lambda: held, launch=lambda stream: array(held).__setitem__(0, array(kept)[0]))
    found = probe.run(idle, DEVICE, STREAM)
    assert np.isnan(half.from_bits(formats.to_host(array(found)[1:]), dtype)).all() and order(kept) == how
    said = probe.difference(found, right, size, MAY[dtype])
    assert said.startswith(f"{36 * 50} of {37 * 50} elements differ, the first at row 1, column 0")
    assert probe.difference(kept, right) == ""


@pytest.mark.parametrize("dtype", ALL)
def test_what_may_differ_is_a_share_of_the_magnitudes_and_of_the_element(differ, dtype):
    """Just below it agrees, just above it does not; an element without products is what it is."""
    may, right = Allowed(0.25, 0.125, 0.0), made_of([[4.0, 4.0, 0.0]], dtype)
    for off, value, agrees in ((2.0, 8.0, True), (3.0, 8.0, False), (0.0, 0.0, True)):  # 0.25 * 8 + 0.125 * 4 = 2.5
        found = made_of([[4.0, 4.0 + off, 0.0]], dtype)
        assert (differ(found, right, sizes(dtype, (1, 3), value=value), may) == "") == agrees
    found = made_of([[4.0, 4.0, 0.25]], dtype)
    assert differ(found, right, sizes(dtype, (1, 3), value=0.0), may).startswith("1 of 3")
    assert differ(found, right, sizes(dtype, (1, 3), value=0.0), Allowed(0.0, 0.0, 0.25)) == ""


def test_an_outputs_scale_is_not_that_of_its_magnitudes(differ):
    """C's numbers are sums over its scale; magnitudes come without it."""
    found, right = (
        Eight("e4m3", made_of(x, "e4m3").bits, np.full((1, 1), 0.5, np.float32)) for x in ([[4, 6]], [[4, 4]])
    )
    for limit, agrees in ((0.126, True), (0.124, False)):
        assert (differ(found, right, sizes("e4m3", (1, 2), value=8.0), Allowed(limit, 0.0, 0.0)) == "") == agrees


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 5.0])
def test_what_operands_make_infinite_or_nan_agrees_where_both_have_it(differ, value):
    right = output()
    right[0, :3] = math.inf, -math.inf, math.nan
    for column in range(4):
        found = right.copy()
        found[0, column] = value
        assert (differ(found, right, sizes(), MAY["float32"]) == "") == np.array_equal(found, right, equal_nan=True)
    # Where magnitudes overflow a finite element's limit is none, but it is finite still.
    found = output()
    found[5, 5] = value
    assert (differ(found, output(), sizes(value=math.inf), MAY["float32"]) == "") == math.isfinite(value)


@pytest.mark.parametrize("how", ["C", "F"])
@pytest.mark.parametrize("dtype", ALL)
def test_any_bits_are_compared_as_their_numbers_are(differ, dtype, how):
    """NaN, infinite, subnormal, wrong, a little off: as NumPy has it, in the order of memory."""
    rng, may = np.random.default_rng(11), MAY[dtype]
    for shape in ((1, 1), (3, 5), (57, 129)):
        right, magnitudes = output(dtype, shape, how, 5), sizes(dtype, shape, how)
        found = copy(right)
        bits = array(found).view(f"u{array(found).itemsize}")
        for row in rng.integers(0, shape[0], 40):
            bits[row, rng.integers(shape[1])] = rng.integers(0, 2 * SIGN[dtype])
        array(right).view(bits.dtype)[0, 0] = bits[0, 0] = SIGN[dtype] - 1  # NaN in both
        x, y = (half.from_bits(array(z), dtype) for z in (found, right))
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.abs(x - y) <= np.float32(may.limit * 10 + may.least) + np.float32(may.rounding) * np.abs(y)
        wrong = ~(near & np.isfinite(x) & np.isfinite(y) | (x == y) | np.isnan(x) & np.isnan(y))
        first = np.unravel_index(wrong.reshape(-1, order=how).argmax(), shape, how)
        said = f"{wrong.sum()} of {wrong.size} elements differ, the first at row {first[0]}, column {first[1]}, by"
        assert differ(found, right, magnitudes, may).startswith(said if wrong.any() else "")
        assert wrong.any() == (shape != (1, 1))


# ------------------------------------------------------------------------- what rounding explains


def sums(products: np.ndarray, how: str) -> np.ndarray:
    """float32 sums of each row of float32 products, in some order."""
    if how == "one after the other":
        return np.add.accumulate(products, axis=1, dtype=np.float32)[:, -1]
    if how == "from the other end":
        return sums(products[:, ::-1], "one after the other")
    if how == "in 32 lanes":
        lanes = np.pad(products, ((0, 0), (0, -products.shape[1] % 32))).reshape(len(products), -1, 32)
        return sums(np.add.accumulate(lanes, axis=1, dtype=np.float32)[:, -1], "one after the other")
    return products.sum(axis=1, dtype=np.float32)  # NumPy's pairs


@pytest.mark.parametrize("length", [1, 200, 75_000])
@pytest.mark.parametrize("kind", ["of both signs", "of one sign", "with one that is larger than the rest together"])
def test_the_limit_holds_for_sums_in_any_order(kind, length):
    """With a factor of 4 to spare, for what is a matter of chance."""
    rng = np.random.default_rng(length)
    products = rng.normal(size=(max(4, 50_000 // length), length)).astype(np.float32)
    if kind == "of one sign":
        products = np.abs(products)
    elif kind != "of both signs":
        products[:, rng.integers(length)] = 3e3 * length
    exact, most = products.sum(axis=1, dtype=float), np.abs(products).sum(axis=1, dtype=float)
    one, two = (probe.allowed("float32", "float32", length, outputs=x).limit for x in (1, 2))
    for how in ("one after the other", "from the other end", "in 32 lanes", "in pairs"):
        assert (np.abs(sums(products, how) - exact) <= one * most / 4).all() and two == 2 * one


@pytest.mark.parametrize("dtype", ALL[1:])
def test_one_rounding_to_the_outputs_dtype_is_allowed_and_two_are_not(differ, dtype):
    exact = np.random.default_rng(3).uniform(1, 400, (50, 40)).astype(np.float32)
    held, may = half.from_bits(array(made_of(exact, dtype)), dtype), probe.allowed("", dtype, 1)
    assert (np.abs(held - exact) <= may.rounding * exact + may.least).all()
    one, other = made_of(exact, dtype), made_of(exact * np.float32(1 + 1e-6), dtype)
    more = sizes(dtype, exact.shape, value=1e-30), probe.allowed("", dtype, 1, outputs=2)
    assert differ(other, one, *more) == ""
    array(other)[7, 7] += 3  # bits
    assert differ(other, one, *more)


# ------------------------------------------------------------------------- operands to check with


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
def problem(request, moved) -> Problem:
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


def test_all_that_checks_is_compiled_beside_the_candidates(moved):
    p = moved(PROBLEMS["csr, 16 bits"]())
    ops = replace(p.device(), c=np.zeros((1, 1), np.float32))
    entries = [entry for _, entry in probe.jobs(replace(p, make_device=lambda: ops, _device=None))]
    assert entries == ["compare<Float>", "magnitudes", "whole<Float>", "whole<Sixteen<F16>>"]


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


def test_both_operands_are_drawn_apart(moved):
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


def test_a_problem_without_a_sparse_operand_is_refused(moved):
    operands = Operands(np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32))
    p = replace(casper_sparse.problem(8, 8, 8, 0.5), make_host=lambda: operands, make_device=lambda: operands)
    refused("^a problem of casper_sparse has no sparse operand", probe.exact(moved(p)).host)
