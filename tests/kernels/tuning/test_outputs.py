"""When two outputs agree: what is not written, what is off, and what rounding explains."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from artifact.measure import check
from kernels.formats import half
from kernels.formats.half import DTYPES, Half
from kernels.tuning import outputs

DEVICE = SimpleNamespace(sync=lambda: None)
STREAM = SimpleNamespace(sync=lambda: None)


def output(dtype: str = "float32", shape=(37, 50), order="C", seed=0):
    values = np.random.default_rng(seed).normal(0, 3, shape).astype(np.float32)
    if dtype == "float32":
        return np.asarray(values, order=order)
    return Half(dtype, np.asarray(half.to_bits(values, dtype), order=order))


def array(x):
    return x.bits if isinstance(x, Half) else x


@pytest.mark.parametrize("dtype", ["float32", *DTYPES])
@pytest.mark.parametrize("order", ["C", "F"])
def test_one_wrong_element_is_found_wherever_it_is(monkeypatch, dtype, order):
    monkeypatch.setattr(outputs, "CHUNK", 100)
    right = output(dtype, order=order)
    assert outputs.difference(outputs.copy(right), right) == ""
    for at in ((0, 0), (36, 49), (17, 3)):
        found = outputs.copy(right)
        array(found)[at] = 0x7FFF if dtype != "float32" else math.nan
        assert outputs.difference(found, right).startswith("1 of 1850 elements differ")
        value = array(right)[at]
        array(found)[at] = value ^ 0x8000 if dtype != "float32" else -value
        said = outputs.difference(found, right)
        assert said.startswith("1 of 1850 elements differ, by up to "), "its sign"


def test_a_copy_keeps_the_order_of_memory_and_is_no_view():
    for order in "CF":
        for dtype in ("float32", "bfloat16"):
            made = output(dtype, order=order)
            copied = outputs.copy(made)
            assert array(copied).flags.f_contiguous == (order == "F")
            assert not np.shares_memory(array(copied), array(made))


def test_the_limits_are_the_harnesses():
    """Half of them is what sums in another order and one rounding may make; twice is wrong. Two sums of e4m3 may end
    on either side of one rounding, an eighth apart, where the harness compares one of them with the exact sum."""
    shared = {d: check.LIMITS[d].max_err for d in ("float32", *DTYPES)}
    assert outputs.LIMITS == shared | {"e4m3": 0.14}
    assert 0.125 < outputs.LIMITS["e4m3"] < 2 * check.LIMITS["fp8_e4m3"].max_err
    right = output()
    right[np.abs(right) < 3] = 3.0  # or the root mean square is what counts
    for factor, agrees in ((0.5, True), (2, False)):
        found = right * np.float32(1 + factor * outputs.LIMITS["float32"])
        assert (outputs.difference(found, right) == "") == agrees


def test_small_elements_are_held_to_the_root_mean_square():
    """A sum that cancels has no relative accuracy of its own."""
    right = output()
    right[0, 0] = 1e-9
    found = right.copy()
    found[0, 0] = 1e-5
    assert outputs.difference(found, right) == ""
    found[0, 0] = 1e-2
    assert outputs.difference(found, right)


def test_what_operands_make_infinite_or_nan_agrees_where_both_have_it():
    right = output()
    right[0, :3] = math.inf, -math.inf, math.nan
    assert outputs.difference(right.copy(), right) == ""
    for column, value in ((0, -math.inf), (1, 5.0), (2, 0.0), (5, math.inf), (5, math.nan)):
        found = right.copy()
        found[0, column] = value
        assert outputs.difference(found, right).startswith("1 of"), (column, value)


def test_no_elements_agree_and_zeros_differ_from_anything():
    empty, zeros = np.zeros((0, 5), np.float32), np.zeros((2, 2), np.float32)
    assert outputs.difference(empty, empty) == outputs.difference(zeros, zeros.copy()) == ""
    assert outputs.difference(np.full((2, 2), 1e-30, np.float32), zeros)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_a_launch_leaves_alone_is_nan(dtype):
    """An output that still holds the right values proves nothing of who wrote them."""
    right = output(dtype)
    held = outputs.copy(right)

    class Idle:
        def result(self):
            return held

        def launch(self, stream):
            array(held)[0] = array(right)[0]

    said = outputs.difference(outputs.run(Idle(), DEVICE, STREAM), right)
    assert said.startswith(f"{36 * 50} of {37 * 50} elements differ")
