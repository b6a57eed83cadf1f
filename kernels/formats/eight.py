"""Dense matrices of 8-bit numbers as bit patterns, with scales: what FP8 and INT8 tensor cores multiply.

             sign   exponent   fraction      bits 7 … 0
    e4m3      1        4          3          bias 7; no infinity: S.1111.111 is NaN, and 448 the largest number
    int8      two's complement               -128 … 127

                                             scale: one for all, (1, 1)
    the number at row i, column j            for each row, (rows, 1)
      =  scale · value of bits[i, j]         for each column, (1, columns)

A product of A with a scale for each row and B with one for each column needs no scale within its sums:
C[i, j] = scale_A[i] · scale_B[j] · sum over k of the values.

e4m3 as in Micikevicius et al., "FP8 Formats for Deep Learning" (2022), table 1, and as PTX ISA has it, section
"Alternate Floating-Point Data Formats". An array of the package `formats` beside the sparse formats, but no sparse
format itself.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..contract import require
from .arrays import array_module, require_arrays, require_known
from .half import Dense

DTYPES = ("e4m3", "int8")
#: The largest number that a scale maps to: int8 leaves out -128, whose opposite it lacks.
LARGEST = {"e4m3": 448.0, "int8": 127.0}
SCALES = ("tensor", "rows", "columns")
NAN = 0x7F  #: what every NaN becomes in e4m3; 0xFF is one, too
#: No scale is smaller, so that dividing by it does not overflow: the smallest normal float32.
LEAST_SCALE = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Eight(Dense):
    """A dense matrix of 8-bit numbers; dtype: "e4m3" or "int8"."""

    scale: Any  #: float32 (1, 1), (rows, 1) or (1, columns)


def to_bits(x, dtype: str):
    """Bit patterns (uint8) of a float32 array rounded to `dtype`, NumPy or CuPy.

    Rounds to the nearest, to even between two, and saturates: what is beyond the largest number, infinity too,
    becomes it. e4m3 keeps subnormal numbers and the sign of zero, and every NaN becomes 0x7F; in int8 a NaN
    becomes 0. This is PTX's cvt.rn.satfinite.e4m3x2.f32 and cvt.rni.sat.s8.f32. Raises ValueError for an array
    of another dtype, which would be rounded twice.
    """
    require_dtype(dtype)
    xp = array_module(x)
    require(x.dtype == np.float32, f"8-bit patterns are made from float32, but the array is {x.dtype}")
    nan = xp.isnan(x)
    if dtype == "int8":
        whole = xp.rint(xp.clip(xp.where(nan, np.float32(0), x), -128, 127))
        return whole.astype(xp.int8).view(xp.uint8)
    bits = xp.searchsorted(xp.asarray(_BEGINS), xp.abs(x), side="right").astype(xp.uint8)
    sign = xp.signbit(x).astype(xp.uint8) << np.uint8(7)
    return xp.where(nan, xp.uint8(NAN), bits | sign)


def from_bits(bits, dtype: str):
    """Return the float32 array that uint8 bit patterns of `dtype` stand for, without a scale: exact, NumPy or CuPy."""
    require_dtype(dtype)
    xp = array_module(bits)
    require(bits.dtype == np.uint8, f"8-bit patterns are uint8, but the array is {bits.dtype}")
    if dtype == "int8":
        return bits.view(xp.int8).astype(xp.float32)
    return xp.asarray(_E4M3)[bits]


def magnitude(bits, dtype: str):
    """uint8 whose order is that of the numbers' sizes, 0 for zeros of either sign; an e4m3 NaN is the largest."""
    require_dtype(dtype)
    xp = array_module(bits)
    if dtype == "e4m3":
        return bits & np.uint8(0x7F)
    return xp.abs(bits.view(xp.int8).astype(xp.int16)).astype(xp.uint8)


def scales(x, dtype: str, by: str = "tensor"):
    """float32 scales of an (m, k) float32 array, so that the largest size becomes `LARGEST[dtype]`.

    by: "tensor" gives (1, 1), "rows" (m, 1), "columns" (1, k). What is all zeros has the scale 1. Raises
    ValueError for a NaN or an infinity, which has no scale, and where the array is not 2-dimensional float32.
    """
    require_dtype(dtype)
    xp = array_module(x)
    require(by in SCALES, f"scales are by {by!r}, but must be by one of {', '.join(SCALES)}")
    require(
        x.dtype == np.float32 and x.ndim == 2 and x.size > 0,
        f"scales are of a 2-dimensional float32 array that is not empty, not of {x.ndim}-dimensional {x.dtype} "
        f"{tuple(x.shape)}",
    )
    most = xp.abs(x).max(axis={"tensor": None, "rows": 1, "columns": 0}[by], keepdims=True)
    require(bool(xp.isfinite(most).all()), "scales are of finite numbers, but the array has a NaN or an infinity")
    scale = xp.maximum(most / np.float32(LARGEST[dtype]), np.float32(LEAST_SCALE))
    return xp.where(most > 0, scale, np.float32(1)).astype(xp.float32)


def from_dense(x, dtype: str, scale="tensor") -> Eight:
    """Return a 2-dimensional float32 array over its scales, rounded by `to_bits`, on the side where it lives.

    scale: "tensor", "rows" or "columns", for `scales`, or the float32 scales themselves. Raises ValueError as
    `scales` and `validate` do.
    """
    xp = array_module(x)
    scale = scales(x, dtype, scale) if isinstance(scale, str) else scale
    bits = to_bits(x / scale, dtype)
    return validate(Eight(dtype, xp.ascontiguousarray(bits), scale))


def to_dense(x: Eight):
    """(rows, columns) float32 array, row-major, on the side where `x` lives: value times scale, rounded once."""
    return array_module(x.bits).ascontiguousarray(from_bits(x.bits, x.dtype) * x.scale)


def validate(x: Eight) -> Eight:
    """Return `x`, or raise ValueError: one sentence, what is wrong with it."""
    require_dtype(x.dtype)
    require_arrays(x.dtype, x, {"bits": (np.uint8, ("rows", "columns"))})
    rows, columns = x.bits.shape
    require_scale(x.scale, ((1, 1), (rows, 1), (1, columns)))
    return x


def require_dtype(dtype) -> None:
    """Raise ValueError, one sentence, for what is no 8-bit dtype."""
    require_known("8-bit dtype", dtype, DTYPES)


def require_scale(scale, shapes: tuple[tuple[int, int], ...]) -> None:
    """Raise ValueError, one sentence, unless `scale` is float32, of one of the shapes, positive and finite."""
    xp = array_module(scale)
    what = f"{scale.dtype} {tuple(scale.shape)}" if hasattr(scale, "dtype") else repr(scale)
    require(
        getattr(scale, "dtype", None) == np.float32 and tuple(scale.shape) in shapes,
        f"the scale is {what}, but must be float32 of {' or '.join(map(str, shapes))}",
    )
    good = bool((xp.isfinite(scale) & (scale > 0)).all())
    require(good, "the scale has a number that is not positive and finite")


def _numbers() -> np.ndarray:
    """Return what the 256 bit patterns of e4m3 stand for."""
    bits = np.arange(256)
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = np.where(exponent > 0, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
    size[bits & 0x7F == NAN] = np.nan
    return np.where(bits & 0x80, -size, size).astype(np.float32)


_E4M3 = _numbers()
_HALFWAY = (_E4M3[:126] + _E4M3[1:127]) / 2
#: Of each e4m3 pattern from 1 to 126 the least float32 that is rounded to it: between two the even one wins.
_BEGINS = np.where(np.arange(126) % 2, _HALFWAY, np.nextafter(_HALFWAY, np.float32(np.inf)))
