"""Dense matrices of 16-bit floats as bit patterns, because NumPy has no bfloat16.

               sign   exponent   fraction      bits 15 … 0
    bfloat16     1       8          7          the upper half of a float32
    float16      1       5         10          IEEE 754's binary16, NumPy's float16

An array of the package `formats` beside the sparse formats, but no sparse format itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

#: The order is part of the seed of `two_four.random`.
DTYPES = ("bfloat16", "float16")
_NAN = 0x7FFF


@dataclass(frozen=True)
class Half:
    """A dense matrix of 16-bit floats, its array NumPy's or CuPy's."""

    dtype: str  #: "bfloat16" or "float16"
    #: uint16 (rows, columns), bit patterns of `dtype`; row-major, except where a room says otherwise
    bits: Any

    @property
    def shape(self) -> tuple[int, int]:
        return self.bits.shape

    @property
    def size(self) -> int:
        return self.bits.size

    @property
    def nbytes(self) -> int:
        return self.bits.nbytes

    def fill(self, value: float) -> None:
        """Set every element, in place, to a number rounded to the dtype; NaN becomes 0x7FFF."""
        self.bits.fill(int(to_bits(np.array(value, np.float32), self.dtype)))


def to_bits(x, dtype: str):
    """Bit patterns (uint16) of a float32 array rounded to `dtype`, NumPy or CuPy.

    Rounds to the nearest, to even between two, overflows to infinity, keeps subnormal numbers and
    the sign of zero. Every NaN becomes 0x7FFF, as in CUDA's conversions. Raises ValueError for an
    array of another dtype, which would be rounded twice.
    """
    require_dtype(dtype)
    xp = array_module(x)
    if x.dtype != np.float32:
        raise ValueError(f"bit patterns are made from float32, but the array is {x.dtype}")
    with np.errstate(over="ignore"):
        if dtype == "float16":
            bits = x.astype(xp.float16).view(xp.uint16)
        else:
            wide = x.view(xp.uint32)
            bits = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(xp.uint16)
    return xp.where(xp.isnan(x), xp.uint16(_NAN), bits)


def from_bits(bits, dtype: str):
    """The float32 array that uint16 bit patterns of `dtype` stand for: exact, NumPy or CuPy."""
    require_dtype(dtype)
    xp = array_module(bits)
    if bits.dtype != np.uint16:
        raise ValueError(f"bit patterns are uint16, but the array is {bits.dtype}")
    if dtype == "float16":
        return bits.view(xp.float16).astype(xp.float32)
    return (bits.astype(xp.uint32) << 16).view(xp.float32)


def from_dense(dense, dtype: str) -> Half:
    """A 2-dimensional float32 array rounded to `dtype` by `to_bits`, on the side where it lives.

    Raises ValueError for an array of another dtype or another number of dimensions.
    """
    return validate(Half(dtype, array_module(dense).ascontiguousarray(to_bits(dense, dtype))))


def to_dense(x: Half):
    """(rows, columns) float32 array, row-major, on the side where `x` lives: exact."""
    return array_module(x.bits).ascontiguousarray(from_bits(x.bits, x.dtype))


def to_device(x: Half) -> Half:
    """Copy to the current GPU; an array that lives there already is shared."""
    import cupy

    return Half(x.dtype, cupy.asarray(x.bits))


def to_host(x: Half) -> Half:
    """Copy from the GPU; `x` itself where it is on the host already."""
    return x if isinstance(x.bits, np.ndarray) else Half(x.dtype, x.bits.get())


def validate(x: Half) -> Half:
    """Return `x`, or raise ValueError: one sentence, what is wrong with it."""
    require_dtype(x.dtype)
    if x.bits.dtype != np.uint16 or x.bits.ndim != 2:
        raise ValueError(
            f"the bits of a {x.dtype} matrix are {x.bits.ndim}-dimensional {x.bits.dtype}, but must "
            "be 2-dimensional uint16"
        )
    if not x.bits.flags.c_contiguous:
        raise ValueError(f"the bits of a {x.dtype} matrix are not row-major contiguous: copy them")
    return x


def require_dtype(dtype) -> None:
    """Raise ValueError, one sentence, for what is no 16-bit dtype."""
    if dtype not in DTYPES:
        raise ValueError(f"16-bit dtype is {dtype!r}, but must be one of {', '.join(DTYPES)}")


def array_of(x):
    """The array behind a dense operand: the bit patterns of a `Half` or an `Eight`, any other array itself."""
    return getattr(x, "bits", x)


def array_module(array):
    """CuPy for what lives on a GPU, NumPy for the rest."""
    if not hasattr(array, "__cuda_array_interface__"):
        return np
    import cupy

    return cupy
