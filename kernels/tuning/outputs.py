"""Is a candidate's output right? It is compared with a simple kernel's before its time counts.

The harness checks against a float64 oracle, which belongs to it; here another kernel on the same operands
is enough, and cheap. A difference counts relative to the element, or to the root mean square of all
where the element is smaller: |found - expected| / max(|expected|, rms).
"""

from __future__ import annotations

from math import nan, sqrt

import numpy as np

from ..contract import Bound
from ..formats import eight, half
from ..formats.eight import Eight
from ..formats.half import Half, array_module, array_of

#: dtype of C -> the largest difference between two right outputs: sums in another order, rounded once.
LIMITS = {"float32": 1e-4, "float16": 4e-3, "bfloat16": 1.6e-2, "e4m3": 1.4e-1}
#: Elements that are compared at a time, to bound the temporaries.
CHUNK = 2**24


def run(bound: Bound, device, stream):
    """The output of one launch; what the launch does not write is NaN. An array, a `Half` or an `Eight`."""
    output = bound.result()
    output.fill(nan)
    device.sync()
    bound.launch(stream)
    stream.sync()
    return output


def copy(output):
    """An output that the next launch does not overwrite."""
    if isinstance(output, Half):
        return Half(output.dtype, output.bits.copy(order="A"))
    if isinstance(output, Eight):
        return Eight(output.dtype, output.bits.copy(order="A"), output.scale)
    return output.copy(order="A")


def difference(found, expected) -> str:
    """ "" where two outputs agree, else in a few words how they differ.

    Both (m, n) of one dtype and memory order, NumPy, CuPy, `Half` or, with one scale for all, `Eight`. What is
    infinite or NaN in both, as operands may make it, agrees.
    """
    dtype, xp = str(expected.dtype), array_module(array_of(expected))
    limit, size = LIMITS[dtype], expected.size
    square = finite = 0.0
    for _, right in _chunks(found, expected):
        right = right.astype(xp.float64)
        right = right[xp.isfinite(right)]
        square, finite = square + float((right * right).sum()), finite + right.size
    rms = sqrt(square / max(finite, 1))
    wrong, worst = 0, 0.0
    for one, right in _chunks(found, expected):
        with np.errstate(invalid="ignore", divide="ignore"):
            error = xp.abs(one - right) / xp.maximum(xp.abs(right), xp.float32(rms))
        error[(one == right) | (xp.isnan(one) & xp.isnan(right))] = 0
        bad = ~(error <= limit)  # NaN, too
        wrong += int(bad.sum())
        if bad.any():
            worst = max(worst, float(xp.nan_to_num(error, nan=xp.inf).max()))
    if not wrong:
        return ""
    return f"{wrong} of {size} elements differ, by up to {worst:.1e} (limit {limit:.1e})"


def _chunks(*outputs):
    """The outputs' elements as float32, a part of each at a time, in the order of memory."""
    flat = [
        (x.T if x.flags.f_contiguous else x).reshape(-1) for x in (array_of(o) for o in outputs)
    ]
    for start in range(0, flat[0].size, CHUNK):
        yield tuple(
            _numbers(o, x[start : start + CHUNK]) for o, x in zip(outputs, flat, strict=True)
        )


def _numbers(output, part):
    """What a part of `array_of(output)` stands for, but for the scale of an `Eight`."""
    if isinstance(output, Eight):
        return eight.from_bits(part, output.dtype)
    return half.from_bits(part, output.dtype) if isinstance(output, Half) else part
