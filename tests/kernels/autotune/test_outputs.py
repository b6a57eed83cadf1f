"""When two outputs agree: what is not written, what is off, and what rounding explains; by a kernel that the host runs,
and by the GPU."""

import math
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from emulated import anything_there, there  # noqa: F401

from kernels import formats
from kernels.autotune import outputs, probe
from kernels.autotune.outputs import Allowed
from kernels.formats import half
from kernels.formats.half import DTYPES, Eight, Half
from kernels.lazy import cupy

DEVICE = SimpleNamespace(sync=lambda: cupy.cuda.runtime.deviceSynchronize())
STREAM = SimpleNamespace(sync=DEVICE.sync, handle=0)
ALL = ("float32", *DTYPES, "e4m3")
#: Of sums of a hundred products, each output with its own error.
MAY = {dtype: outputs.allowed(dtype, dtype, 100, outputs=2) for dtype in ALL}
SIGN = {"float32": 1 << 31, "bfloat16": 1 << 15, "float16": 1 << 15, "e4m3": 1 << 7}


@pytest.fixture
def differ(anything_there):  # noqa: F811
    """`outputs.difference` of outputs of the host."""
    return lambda *given: outputs.difference(*(x if isinstance(x, Allowed) else anything_there(x) for x in given))


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
    return made_of(half.from_bits(array(x), outputs.dtype_of(x)), outputs.dtype_of(x), order(x))


def array(x):
    return half.array_of(x)


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
def test_what_a_launch_leaves_alone_is_nan(differ, anything_there, dtype, how):  # noqa: F811
    """An output that still holds the right values proves nothing of who wrote them. A copy is no view."""
    held, right, size = (anything_there(x) for x in (output(dtype, order=how),) * 2 + (sizes(dtype, order=how),))
    kept = outputs.copy(held)
    idle = SimpleNamespace(result=lambda: held, launch=lambda stream: array(held).__setitem__(0, array(kept)[0]))
    found = outputs.run(idle, DEVICE, STREAM)
    assert np.isnan(half.from_bits(formats.to_host(array(found)[1:]), dtype)).all() and order(kept) == how
    said = outputs.difference(found, right, size, MAY[dtype])
    assert said.startswith(f"{36 * 50} of {37 * 50} elements differ, the first at row 1, column 0")
    assert outputs.difference(kept, right) == ""


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
        said = differ(found, right, sizes("e4m3", (1, 2), value=8.0), Allowed(limit, 0.0, 0.0))
        assert (said == "") == agrees


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
    one, two = (outputs.allowed("float32", "float32", length, outputs=x).limit for x in (1, 2))
    for how in ("one after the other", "from the other end", "in 32 lanes", "in pairs"):
        assert (np.abs(sums(products, how) - exact) <= one * most / 4).all() and two == 2 * one


@pytest.mark.parametrize("dtype", ALL[1:])
def test_one_rounding_to_the_outputs_dtype_is_allowed_and_two_are_not(differ, dtype):
    exact = np.random.default_rng(3).uniform(1, 400, (50, 40)).astype(np.float32)
    held, may = half.from_bits(array(made_of(exact, dtype)), dtype), outputs.allowed("", dtype, 1)
    assert (np.abs(held - exact) <= may.rounding * exact + may.least).all()
    one, other = made_of(exact, dtype), made_of(exact * np.float32(1 + 1e-6), dtype)
    more = sizes(dtype, exact.shape, value=1e-30), outputs.allowed("", dtype, 1, outputs=2)
    assert differ(other, one, *more) == ""
    array(other)[7, 7] += 3  # bits
    assert differ(other, one, *more)


def test_the_kernels_compile_without_spills():
    jobs = [(outputs.SOURCE, f"compare<{name}>") for name in outputs.ELEMENTS.values()]
    jobs += [(probe.SOURCE, f"whole<{name}>") for name in outputs.ELEMENTS.values()] + [(probe.SOURCE, "magnitudes")]
    assert not any(used.spills for used, _ in compiled.reports(compiled.spread(jobs)).values())
