"""Dense matrices of 16-bit floats and of 8-bit numbers as bit patterns, because NumPy has no bfloat16 and no e4m3.

               sign   exponent   fraction
    bfloat16     1       8          7          bits 15 … 0, the upper half of a float32
    float16      1       5         10          IEEE 754's binary16, NumPy's float16
    e4m3         1       4          3          bits 7 … 0, bias 7; no infinity: S.1111.111 is NaN, 448 the largest
    int8         two's complement              -128 … 127

Those of 8 bits, what FP8 and INT8 tensor cores multiply, have scales: one for all, (1, 1), for each row, (rows, 1), or
for each column, (1, columns); the number at row i, column j is scale · value of bits[i, j]. A product of A with a scale
for each row and B with one for each column needs no scale within its sums:
C[i, j] = scale_A[i] · scale_B[j] · sum over k of the values.

e4m3 as in Micikevicius et al., "FP8 Formats for Deep Learning" (2022), table 1, and as PTX ISA has it, section
"Alternate Floating-Point Data Formats". Arrays of the package `formats` beside the sparse formats, but no sparse
formats themselves.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import jit
from ..contract import require
from ..lazy import cupy
from . import compress
from .arrays import Arrays, array_module, require_arrays, require_known, to_device, to_host  # noqa: F401 (for callers)

#: The order is part of the seed of `two_four.random`.
DTYPES = ("bfloat16", "float16")
EIGHT = ("e4m3", "int8")
#: dtype -> of a bit pattern, what every NaN becomes; in e4m3 0xFF is one, too.
BITS = dict.fromkeys(DTYPES, np.uint16) | dict.fromkeys(EIGHT, np.uint8)
_NAN = dict.fromkeys(DTYPES, 0x7FFF) | {"e4m3": 0x7F}
#: The largest number that a scale maps to: int8 leaves out -128, whose opposite it lacks.
LARGEST = {"e4m3": 448.0, "int8": 127.0}
SCALES = {"tensor": None, "rows": 1, "columns": 0}  #: -> the axis that a scale is the largest of
#: No scale is smaller, so that dividing by it does not overflow: the smallest normal float32.
LEAST_SCALE = float(np.finfo(np.float32).tiny)
SOURCE = Path(__file__).with_suffix(".cu")


@dataclass(frozen=True)
class Dense(Arrays):
    """What a dense matrix of bit patterns has, its arrays NumPy's or CuPy's, all on one side."""

    dtype: str
    #: uint16 or uint8 (rows, columns), bit patterns of `dtype`; row-major, except where a system says otherwise
    bits: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Return (rows, columns)."""
        return self.bits.shape

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return self.bits.size

    def fill(self, value: float) -> None:
        """Set every bit pattern, in place, to a value rounded to the dtype, scales left aside; NaN becomes 0x7F…."""
        self.bits.fill(int(to_bits(np.full(1, value, np.float32), self.dtype)[0]))


@dataclass(frozen=True)
class Half(Dense):
    """A dense matrix of 16-bit floats; dtype: "bfloat16" or "float16"."""

    @property
    def T(self) -> "Half":
        """Return the transpose, without moving anything."""
        return Half(self.dtype, self.bits.T)


@dataclass(frozen=True)
class Eight(Dense):
    """A dense matrix of 8-bit numbers; dtype: "e4m3" or "int8"."""

    scale: Any  #: float32 (1, 1), (rows, 1) or (1, columns)


def to_bits(x, dtype: str):
    """Bit patterns (uint16 or uint8) of a float32 array rounded to `dtype`, NumPy or CuPy; for "float32" `x` itself.

    Rounds to the nearest, to even between two, keeps subnormal numbers and the sign of zero. What is beyond the largest
    number becomes infinity in 16 bits and the largest number in 8, infinity, too. Every NaN becomes 0x7FFF or 0x7F, as
    in CUDA's conversions; in int8 a NaN becomes 0. Those of 8 bits are PTX's cvt.rn.satfinite.e4m3x2.f32 and
    cvt.rni.sat.s8.f32. Raises ValueError for an array of another dtype, which would be rounded twice.
    """
    xp = array_module(x)
    require_known("dtype", dtype, (*BITS, "float32"))
    require(x.dtype == np.float32, f"bit patterns are made from float32, but the array is {x.dtype}")
    if dtype == "float32":
        return x
    if dtype in DTYPES and xp is not np:
        return _on_gpu("to_bits", x, dtype, np.uint16)
    nan = xp.isnan(x)
    if dtype == "int8":
        return xp.rint(xp.clip(xp.where(nan, np.float32(0), x), -128, 127)).astype(xp.int8).view(xp.uint8)
    if dtype == "e4m3":
        size = xp.searchsorted(xp.asarray(_BEGINS), xp.abs(x), side="right").astype(xp.uint8)
        bits = size | xp.signbit(x).astype(xp.uint8) << np.uint8(7)
    elif dtype == "float16":
        with np.errstate(over="ignore"):
            bits = x.astype(np.float16).view(np.uint16)
    else:
        wide = x.view(np.uint32)
        bits = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    return xp.where(nan, BITS[dtype](_NAN[dtype]), bits)


def from_bits(bits, dtype: str):
    """Return the float32 array that bit patterns of `dtype` stand for, without a scale: exact, NumPy or CuPy.

    That of "float32" is the array itself.
    """
    xp = array_module(bits)
    require_known("dtype", dtype, (*BITS, "float32"))
    wanted = np.dtype(BITS.get(dtype, np.float32))
    require(bits.dtype == wanted, f"bit patterns of {dtype} are {wanted}, but the array is {bits.dtype}")
    if dtype in DTYPES and xp is not np:
        return _on_gpu("from_bits", bits, dtype, np.float32)
    if dtype == "bfloat16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if dtype == "e4m3":
        return xp.asarray(_E4M3)[bits]
    return bits.view({"float16": np.float16, "int8": np.int8}.get(dtype, np.float32)).astype(np.float32, copy=False)


def magnitude(bits, dtype: str):
    """Numbers in the order of what bit patterns stand for without signs, 0 for zeros of either sign; NumPy or CuPy.

    A NaN is larger than all numbers.
    """
    if dtype == "int8":
        return array_module(bits).abs(bits.view(np.int8).astype(np.int16)).astype(np.uint8)
    return bits & bits.dtype.type(_NAN[dtype])


def first_not_held(x, dtype: str) -> int | None:
    """Return the index, in memory order, of the first element of a float32 array that `dtype` does not hold.

    dtype: of 16 bits. NumPy or CuPy.
    """
    if array_module(x) is np:
        with np.errstate(invalid="ignore"):
            wrong = np.ravel((from_bits(to_bits(x, dtype), dtype) != x) & ~np.isnan(x), order="K")
        return int(wrong.argmax()) if wrong.any() else None
    first = cupy.zeros(1, np.uint64)
    x = x.T if x.flags.f_contiguous else compress.contiguous(x)
    _launch("not_held", x.size, dtype, x.data.ptr, first.data.ptr)
    found = int(first.get()[0])
    return 2**63 - found if found else None


def _on_gpu(kernel: str, x, dtype: str, kind):
    """Return a kernel of half.cu over a CuPy array, element by element, in the same memory order."""
    turned = not x.flags.c_contiguous and x.flags.f_contiguous
    x = x.T if turned else compress.contiguous(x)
    made = cupy.empty(x.shape, kind)
    _launch(kernel, x.size, dtype, x.data.ptr, made.data.ptr)
    return made.T if turned else made


def _launch(kernel: str, size: int, dtype: str, *addresses: int) -> None:
    if size:
        kind = {"bfloat16": "BF16", "float16": "F16"}[dtype]
        jit.run_on_cupy_stream(SOURCE, f"{kernel}<{kind}>", size, 256, np.int64(size), *addresses)


def scales(x, dtype: str, by: str = "tensor"):
    """float32 scales of an (m, k) float32 array, so that the largest size becomes `LARGEST[dtype]`.

    by: "tensor" gives (1, 1), "rows" (m, 1), "columns" (1, k). What is all zeros has the scale 1. Raises
    ValueError for a NaN or an infinity, which has no scale, and where the array is not 2-dimensional float32.
    """
    require_known("8-bit dtype", dtype, EIGHT)
    xp = array_module(x)
    require(by in SCALES, f"scales are by {by!r}, but must be by one of {', '.join(SCALES)}")
    require(
        x.dtype == np.float32 and x.ndim == 2 and x.size > 0,
        f"scales are of a 2-dimensional float32 array that is not empty, not of {x.ndim}-dimensional {x.dtype} "
        f"{tuple(x.shape)}",
    )
    most = xp.abs(x).max(axis=SCALES[by], keepdims=True)
    require(bool(xp.isfinite(most).all()), "scales are of finite numbers, but the array has a NaN or an infinity")
    scale = xp.maximum(most / np.float32(LARGEST[dtype]), np.float32(LEAST_SCALE))
    return xp.where(most > 0, scale, np.float32(1)).astype(xp.float32)


def from_dense(x, dtype: str, scale="tensor"):
    """Return a 2-dimensional float32 array rounded to `dtype` by `to_bits`, on the side where it lives.

    It is a `Half`, or of 8 bits an `Eight` of the array over its scales: "tensor", "rows" or "columns", for `scales`,
    or the float32 scales themselves. Raises ValueError as `scales` and `validate` do.
    """
    require_known("dtype", dtype, (*BITS,))
    if dtype in DTYPES:
        return validate(Half(dtype, compress.contiguous(to_bits(x, dtype))))
    scale = scales(x, dtype, scale) if isinstance(scale, str) else scale
    return validate(Eight(dtype, compress.contiguous(to_bits(x / scale, dtype)), scale))


def to_dense(x: Dense):
    """(rows, columns) float32 array, row-major, on the side where `x` lives: exact, or with scales rounded once."""
    dense = from_bits(x.bits, x.dtype)
    return compress.contiguous(dense * x.scale if isinstance(x, Eight) else dense)


def validate(x: Dense) -> Any:
    """Return `x`, or raise ValueError: one sentence, what is wrong with it."""
    eight = isinstance(x, Eight)
    require_known(f"{8 if eight else 16}-bit dtype", x.dtype, EIGHT if eight else DTYPES)
    require_arrays(x.dtype, x, {"bits": (BITS[x.dtype], ("rows", "columns"))})
    rows, columns = x.shape
    if isinstance(x, Eight):
        require_scale(x.scale, ((1, 1), (rows, 1), (1, columns)))
    return x


def require_dtype(dtype) -> None:
    """Raise ValueError, one sentence, for what is no 16-bit dtype."""
    require_known("16-bit dtype", dtype, DTYPES)


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


def array_of(x):
    """Return the array behind a dense operand: the bit patterns of a `Half` or an `Eight`, any other array itself."""
    return getattr(x, "bits", x)


def _numbers() -> np.ndarray:
    """Return what the 256 bit patterns of e4m3 stand for."""
    bits = np.arange(256)
    exponent, fraction = bits >> 3 & 15, bits & 7
    size = np.where(exponent > 0, (8 + fraction) * 2.0 ** (exponent - 10), fraction * 2.0**-9)
    size[bits & 0x7F == _NAN["e4m3"]] = np.nan
    return np.where(bits & 0x80, -size, size).astype(np.float32)


_E4M3 = _numbers()
_HALFWAY = (_E4M3[:126] + _E4M3[1:127]) / 2
#: Of each e4m3 pattern from 1 to 126 the least float32 that is rounded to it: between two the even one wins.
_BEGINS = np.where(np.arange(126) % 2, _HALFWAY, np.nextafter(_HALFWAY, np.float32(np.inf)))
