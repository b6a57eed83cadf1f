"""Dense matrices of 16-bit floats as bit patterns, because NumPy has no bfloat16.

               sign   exponent   fraction      bits 15 … 0
    bfloat16     1       8          7          the upper half of a float32
    float16      1       5         10          IEEE 754's binary16, NumPy's float16

An array of the package `formats` beside the sparse formats, but no sparse format itself.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import jit
from ..contract import require
from ..lazy import cupy
from . import compress
from .arrays import Arrays, array_module, require_arrays, require_known
from .arrays import to_device as to_device
from .arrays import to_host as to_host

#: The order is part of the seed of `two_four.random`.
DTYPES = ("bfloat16", "float16")
_NAN = 0x7FFF
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
        rounded = sys.modules[type(self).__module__].to_bits(np.full(1, value, np.float32), self.dtype)
        self.bits.fill(int(rounded[0]))


@dataclass(frozen=True)
class Half(Dense):
    """A dense matrix of 16-bit floats; dtype: "bfloat16" or "float16"."""


def to_bits(x, dtype: str):
    """Bit patterns (uint16) of a float32 array rounded to `dtype`, NumPy or CuPy.

    Rounds to the nearest, to even between two, overflows to infinity, keeps subnormal numbers and
    the sign of zero. Every NaN becomes 0x7FFF, as in CUDA's conversions. Raises ValueError for an
    array of another dtype, which would be rounded twice.
    """
    require_dtype(dtype)
    require(x.dtype == np.float32, f"bit patterns are made from float32, but the array is {x.dtype}")
    if array_module(x) is not np:
        return _on_gpu("to_bits", x, dtype, np.uint16)
    with np.errstate(over="ignore"):
        if dtype == "float16":
            bits = x.astype(np.float16).view(np.uint16)
        else:
            wide = x.view(np.uint32)
            bits = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), np.uint16(_NAN), bits)


def from_bits(bits, dtype: str):
    """Return the float32 array that uint16 bit patterns of `dtype` stand for: exact, NumPy or CuPy."""
    require_dtype(dtype)
    require(bits.dtype == np.uint16, f"bit patterns are uint16, but the array is {bits.dtype}")
    if array_module(bits) is not np:
        return _on_gpu("from_bits", bits, dtype, np.float32)
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def first_not_held(x, dtype: str) -> int | None:
    """Return the index, in memory order, of the first element of a float32 array that `dtype` does not hold.

    NumPy or CuPy.
    """
    if array_module(x) is np:
        with np.errstate(invalid="ignore"):
            wrong = np.ravel(from_bits(to_bits(x, dtype), dtype) != x, order="K") & ~np.isnan(np.ravel(x, order="K"))
        return int(wrong.argmax()) if wrong.any() else None
    first = cupy.zeros(1, np.uint64)
    x = x.T if x.flags.f_contiguous else _row_major(x)
    if x.size:
        _launch("not_held", x.size, dtype, x.data.ptr, first.data.ptr)
    found = int(first.get()[0])
    return 2**63 - found if found else None


def _on_gpu(kernel: str, x, dtype: str, kind):
    """Return a kernel of half.cu over a CuPy array, element by element, in the same memory order."""
    turned = not x.flags.c_contiguous and x.flags.f_contiguous
    x = x.T if turned else _row_major(x)
    made = cupy.empty(x.shape, kind)
    if x.size:
        _launch(kernel, x.size, dtype, x.data.ptr, made.data.ptr)
    return made.T if turned else made


def _launch(kernel: str, size: int, dtype: str, *addresses: int) -> None:
    kind = {"bfloat16": "BF16", "float16": "F16"}[dtype]
    jit.run_on_cupy_stream(SOURCE, f"{kernel}<{kind}>", size, 256, np.int64(size), *addresses)


def _row_major(x):
    if array_module(x) is np:
        return np.ascontiguousarray(x)
    return compress.contiguous(x)


def from_dense(dense, dtype: str) -> Half:
    """Return a 2-dimensional float32 array rounded to `dtype` by `to_bits`, on the side where it lives.

    Raises ValueError for an array of another dtype or another number of dimensions.
    """
    return validate(Half(dtype, _row_major(to_bits(dense, dtype))))


def to_dense(x: Half):
    """(rows, columns) float32 array, row-major, on the side where `x` lives: exact."""
    return _row_major(from_bits(x.bits, x.dtype))


def validate(x: Half) -> Half:
    """Return `x`, or raise ValueError: one sentence, what is wrong with it."""
    require_dtype(x.dtype)
    require_arrays(x.dtype, x, {"bits": (np.uint16, ("rows", "columns"))})
    return x


def require_dtype(dtype) -> None:
    """Raise ValueError, one sentence, for what is no 16-bit dtype."""
    require_known("16-bit dtype", dtype, DTYPES)


def array_of(x):
    """Return the array behind a dense operand: the bit patterns of a `Half` or an `Eight`, any other array itself."""
    return getattr(x, "bits", x)
