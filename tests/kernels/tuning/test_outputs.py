"""When two outputs agree: what is not written, what is off, and what rounding explains."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from kernels import formats, jit
from kernels.formats import eight, half
from kernels.formats.eight import Eight
from kernels.formats.half import DTYPES, Half
from kernels.tuning import outputs
from kernels.tuning.outputs import Allowed

DEVICE = SimpleNamespace(sync=lambda: None)
STREAM = SimpleNamespace(sync=lambda: None)
ALL = ("float32", *DTYPES, "e4m3")
#: Of sums of a hundred products, each output with its own error.
MAY = {dtype: outputs.allowed(dtype, dtype, 100, outputs=2) for dtype in ALL}


def stored(values, dtype: str, order="C"):
    if dtype == "float32":
        return np.asarray(values, np.float32, order=order)
    if dtype == "e4m3":
        bits = np.asarray(eight.to_bits(values.astype(np.float32), dtype), order=order)
        return Eight(dtype, bits, np.ones((1, 1), np.float32))
    return Half(dtype, np.asarray(half.to_bits(values.astype(np.float32), dtype), order=order))


def output(dtype: str = "float32", shape=(37, 50), order="C", seed=0):
    values = np.random.default_rng(seed).normal(0, 3, shape)
    return stored(np.where(np.abs(values) < 0.1, 0.1, values), dtype, order)


def sizes(dtype: str = "float32", shape=(37, 50), order="C", value=10.0):
    """Magnitudes of an output's sums: of e4m3 in bfloat16."""
    return stored(np.full(shape, value), "bfloat16" if dtype == "e4m3" else dtype, order)


def array(x):
    return getattr(x, "bits", x)


def wrong(found, right, dtype="float32", order="C") -> str:
    return outputs.difference(found, right, sizes(dtype, order=order), MAY[dtype])


SIGN = {"float32": 1 << 31, "bfloat16": 1 << 15, "float16": 1 << 15, "e4m3": 1 << 7}


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("order", ["C", "F"])
def test_one_wrong_element_is_found_wherever_it_is(monkeypatch, dtype, order):
    monkeypatch.setattr(outputs, "CHUNK", 100)
    right = output(dtype, order=order)
    assert wrong(outputs.copy(right), right, dtype, order) == ""
    for at in ((0, 0), (36, 49), (17, 3)):
        named = f"1 of 1850 elements differ, the first at row {at[0]}, column {at[1]}, by up to "
        for change in ("NaN", "sign"):
            found = outputs.copy(right)
            bits = array(found).view(f"u{array(found).itemsize}")
            bits[at] = SIGN[dtype] - 1 if change == "NaN" else bits[at] ^ SIGN[dtype]
            assert wrong(found, right, dtype, order).startswith(named), change
            assert outputs.difference(found, right) == named.removesuffix(", by up to ")
        found = outputs.copy(right)
        array(found)[at] = array(right)[at] + array(right).dtype.type(1)
        assert outputs.difference(found, right), "a bit, where nothing may differ"


def test_a_copy_keeps_the_order_of_memory_and_is_no_view():
    for order in "CF":
        for dtype in ALL:
            made = output(dtype, order=order)
            copied = outputs.copy(made)
            assert array(copied).flags.f_contiguous == (order == "F")
            assert not np.shares_memory(array(copied), array(made))


@pytest.mark.parametrize("dtype", ALL)
def test_what_may_differ_is_a_share_of_the_magnitudes_and_of_the_element(dtype):
    """Just below it agrees, just above it does not; an element without products is what it is."""
    may = Allowed(0.25, 0.125, 0.0)
    right = stored(np.array([[4.0, 4.0, 0.0]]), dtype)
    magnitudes = sizes(dtype, (1, 3), value=8.0)
    for off, agrees in ((2.0, True), (3.0, False)):  # 0.25 * 8 + 0.125 * 4 = 2.5
        found = stored(np.array([[4.0, 4.0 + off, 0.0]]), dtype)
        assert (outputs.difference(found, right, magnitudes, may) == "") == agrees
    nothing = sizes(dtype, (1, 3), value=0.0)
    found = stored(np.array([[4.0, 4.0, 0.25]]), dtype)
    assert outputs.difference(found, right, nothing, may).startswith("1 of 3")


def test_an_outputs_scale_is_not_that_of_its_magnitudes():
    """C's numbers are sums over its scale; magnitudes come without it."""
    right = Eight("e4m3", stored(np.full((1, 2), 4.0), "e4m3").bits, np.full((1, 1), 0.5, np.float32))
    found = outputs.copy(right)
    found.bits[0, 1] = eight.to_bits(np.float32([6.0]), "e4m3")[0]
    magnitudes = sizes("e4m3", (1, 2), value=8.0)
    assert outputs.difference(found, right, magnitudes, Allowed(0.126, 0.0, 0.0)) == ""
    assert outputs.difference(found, right, magnitudes, Allowed(0.124, 0.0, 0.0))


def test_what_operands_make_infinite_or_nan_agrees_where_both_have_it():
    right = output()
    right[0, :3] = math.inf, -math.inf, math.nan
    assert wrong(right.copy(), right) == ""
    for column, value in ((0, -math.inf), (1, 5.0), (2, 0.0), (5, math.inf), (5, math.nan)):
        found = right.copy()
        found[0, column] = value
        assert wrong(found, right).startswith("1 of"), (column, value)
    # Where magnitudes overflow a finite element's limit is none, but it is finite still.
    endless = sizes(value=math.inf)
    assert outputs.difference(right + np.float32(1), right, endless, MAY["float32"]) == ""
    found = right.copy()
    found[5, 5] = math.inf
    assert outputs.difference(found, right, endless, MAY["float32"]).startswith("1 of")


@pytest.mark.parametrize("dtype", ALL)
def test_what_a_launch_leaves_alone_is_nan(dtype):
    """An output that still holds the right values proves nothing of who wrote them."""
    right = output(dtype)
    held = outputs.copy(right)

    class Idle:
        def result(self):
            return held

        def launch(self, stream):
            array(held)[0] = array(right)[0]

    said = wrong(outputs.run(Idle(), DEVICE, STREAM), right, dtype)
    assert said.startswith(f"{36 * 50} of {37 * 50} elements differ, the first at row 1, column 0")


# ------------------------------------------------------------------------- what rounding explains


def sums(products: np.ndarray, how: str) -> np.ndarray:
    """float32 sums of each row of float32 products, in some order."""
    if how == "one after the other":
        return np.add.accumulate(products, axis=1, dtype=np.float32)[:, -1]
    if how == "from the other end":
        return sums(products[:, ::-1], "one after the other")
    if how == "in 32 lanes":
        padded = np.pad(products, ((0, 0), (0, -products.shape[1] % 32)))
        lanes = padded.reshape(len(products), -1, 32).transpose(0, 2, 1)
        found = np.stack([sums(x, "one after the other") for x in lanes])
        return sums(found, "one after the other")
    return products.sum(axis=1, dtype=np.float32)  # NumPy's pairs


def drawn(kind: str, rows: int, length: int, rng) -> np.ndarray:
    x = rng.normal(size=(rows, length)).astype(np.float32)
    if kind == "of one sign":
        return np.abs(x)
    if kind == "with one that is larger than the rest together":
        x[:, rng.integers(length)] = 3e3 * length
    return x


@pytest.mark.parametrize("length", [1, 5, 200, 4096, 75_000])
@pytest.mark.parametrize("kind", ["of both signs", "of one sign", "with one that is larger than the rest together"])
def test_the_limit_holds_for_sums_in_any_order(kind, length):
    """With a factor of 4 to spare, for what is a matter of chance."""
    products = drawn(kind, max(4, 200_000 // length // 4), length, np.random.default_rng(length))
    magnitudes = np.abs(products).sum(axis=1, dtype=np.float64)
    exact = products.sum(axis=1, dtype=np.float64)
    may = outputs.allowed("float32", "float32", length)
    found = [sums(products, how) for how in ("one after the other", "from the other end", "in 32 lanes", "in pairs")]
    for one in found:
        assert (np.abs(one - exact) <= may.limit * magnitudes / 4).all()
    both = outputs.allowed("float32", "float32", length, outputs=2)
    for one in found:
        pair = (x[:, None].astype(np.float32) for x in (one, found[0], magnitudes))
        assert outputs.difference(*pair, both) == ""


def test_one_rounding_to_the_outputs_dtype_is_allowed_and_two_are_not():
    rng = np.random.default_rng(3)
    exact = rng.uniform(1, 400, (500, 40)).astype(np.float32)
    tiny = np.full(exact.shape, 1e-30, np.float32)
    for dtype in ALL[1:]:
        kind = "bfloat16" if dtype == "e4m3" else dtype
        may = outputs.allowed("", dtype, 1)
        held = outputs.numbers(stored(exact, dtype), array(stored(exact, dtype)))
        assert (np.abs(held - exact) <= may.rounding * exact + may.least).all()
        one, other = stored(exact, dtype), stored(exact * np.float32(1 + 1e-6), dtype)
        both = outputs.allowed("", dtype, 1, outputs=2)
        assert outputs.difference(other, one, stored(tiny, kind), both) == ""
        array(other)[7, 7] += 3  # bits
        assert outputs.difference(other, one, stored(tiny, kind), both)


def test_the_kernel_compiles_for_every_target_without_spills():
    jobs = [(f"compare<{name}>", arch) for name in outputs.ELEMENTS.values() for arch in jit.TARGETS]
    cubins = [jit.compile_cubin(outputs.SOURCE, *job) for job in jobs]
    assert not any(used.spills for used, _ in jit.reports(cubins))


# ------------------------------------------------------------------------------------ on the GPU


def moved(x):
    import cupy

    return cupy.asarray(x) if isinstance(x, np.ndarray) else formats.to_device(x)


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ALL)
def test_the_kernel_says_what_numpy_says(device, dtype, order):
    rng = np.random.default_rng(11)
    bits, word = 8 * array(output(dtype)).itemsize, f"u{array(output(dtype)).itemsize}"
    for shape in ((1, 1), (3, 5), (257, 129), (1000, 1003)):
        right, magnitudes = output(dtype, shape, order, 5), sizes(dtype, shape, order)
        found = outputs.copy(right)
        flat = array(found).view(word)
        for row in rng.integers(0, shape[0], 40):  # any bits: NaN, infinite, subnormal, wrong, a little off
            flat[row, rng.integers(shape[1])] = rng.integers(0, 1 << bits)
        array(right).view(word)[0, 0] = array(found).view(word)[0, 0] = SIGN[dtype] - 1  # NaN in both
        for more in ((), (magnitudes, MAY[dtype])):
            here = outputs.difference(found, right, *more)
            there = outputs.difference(moved(found), moved(right), *(moved(x) if x is magnitudes else x for x in more))
            assert there.split(", by")[0] == here.split(", by")[0] and (shape == (1, 1)) == (not here)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ALL)
def test_what_is_poisoned_is_nan_to_the_last_element(device, dtype):
    made = moved(output(dtype, (7, 13)))
    outputs.poison(made, device.create_stream())
    device.sync()
    here = array(made).get()
    assert np.isnan(outputs.numbers(made, here)).all()
