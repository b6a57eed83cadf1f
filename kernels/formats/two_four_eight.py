"""2:4 of 8-bit numbers for sparse tensor cores: `two_four` with values of one byte, scales, and metadata for Hopper.

Of a row of A, k = 32, what is stored (. is zero):

           group 0     group 1      …      group 7
   A       a . b .     . c . d      …      . . y z      k columns, padded with zeros to k_pad
   val     a   b       c   d        …      y   z        k_pad / 2 values, uint8
   meta    1 0 0 0     1 1 0 1      …      1 1 1 0      four bits a group as in `two_four`: k_pad / 16 uint16,
                                                        group 0 lowest; the smaller position in the lower two bits
   number  =  scale · value, with one scale for the matrix, (1, 1), or one for each row, (m, 1)

k_pad is k rounded up to a multiple of 32, so that a row of `val` is whole units of 16 bytes, which TMA asks for, and a
row of `meta` whole words of 32 bits.

Who needs which word. wgmma.mma_async.sp m64nNk64 multiplies 64 × 64 of A, 64 × 32 as stored. Each of the 128 threads of
the warpgroup gives one word, the metadata of 32 columns of one row; there is no selector (it must be 0). Of a warp's 16
rows and 64 columns, in lane 4g + 2c + s is row 8s + g, half c:

                 columns 0 … 31          columns 32 … 63
   row 0         lane 0                  lane 2
   row 1         lane 4                  lane 6
    …
   row 7         lane 28                 lane 30
   row 8         lane 1                  lane 3
    …
   row 15        lane 29                 lane 31           warp w of the warpgroup: rows 16w to 16w + 15

PTX ISA, section "Matrix Fragments for sparse wgmma.mma_async.m64nNk64", figures "metadata layout for
.e4m3/.e5m2/.s8/.u8 type", for columns 0 to 31 and 32 to 63, which are those of the sparse mma.m16n8k64 with these
types; of a group's four bits, section "Sparse matrix storage". CUTLASS says the same as a layout: ELayout_64x64 in
include/cute/atom/mma_traits_sm90_gmma_sparse.hpp. The 16-bit types' order (`two_four.swizzle`) is another one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..contract import require
from . import eight, two_four
from .arrays import array_module
from .arrays import to_device as to_device
from .two_four import EMPTY, Pairs
from .two_four import to_dense_bits as to_dense_bits

SOURCE = Path(__file__).with_name("two_four_eight.cu")
ENTRIES = tuple(f"compress_eight<{mode}, {dtype.upper()}>" for mode in ("FIT", "PRUNE") for dtype in eight.DTYPES)
#: Rows and columns of A that an instruction of a warpgroup multiplies.
ROWS = COLUMNS = 64


@dataclass(frozen=True)
class TwoFourEight(Pairs):
    """A sparse m x k matrix, 2:4 along k; the arrays are NumPy's or CuPy's, all on one side.

    dtype: "e4m3" or "int8"; val: uint8 (m, k_pad / 2) row-major, bit patterns of it; meta: uint16 (m, k_pad / 16)
    row-major; scale: float32 (1, 1) or (m, 1); k_pad: k rounded up to a multiple of 32.
    """

    NAME = "8-bit 2:4"
    UNIT = 32
    SOURCE = SOURCE
    ENTRY = "compress_eight<{mode}, {dtype}>"
    VALUES = np.uint8

    scale: Any


def compress(dense, dtype: str, prune: bool = False, scale="tensor") -> TwoFourEight:
    """Return the 2:4 form of an (m, k) array, on the side where it lives: NumPy here, CuPy by the kernel.

    The array is float32, which is divided by its scales and rounded by `eight.to_bits` first, or uint8 bit
    patterns of `dtype`. scale: "tensor" or "rows", for `eight.scales`, or the float32 scales themselves, (1, 1) or
    (m, 1); with bit patterns "tensor" means 1. With `prune`, each group keeps its two largest magnitudes, the
    lower columns where the rounded ones are equal; an e4m3 NaN is larger than all numbers.

    Raises ValueError that names row and group where a group has three or four non-zeros and `prune` is not set,
    and where the array is not 2-dimensional, empty or of another dtype, or the scales do not fit.
    """
    eight.require_dtype(dtype)
    xp = array_module(dense)
    dense = xp.asarray(dense)
    two_four.require_dense("an 8-bit 2:4 matrix", dense, np.uint8)
    m, k = two_four.require_sizes(dense.shape[0], dense.shape[1], TwoFourEight)
    if isinstance(scale, str):
        require(
            scale in ("tensor", "rows"),
            f"an 8-bit 2:4 matrix has scales by {scale!r}, but must have them by tensor or by rows: a sum runs over "
            "its columns",
        )
        as_numbers = dense.dtype == np.float32
        require(as_numbers or scale == "tensor", "bit patterns have no scales by rows of their own: give the scales")
        scale = eight.scales(dense, dtype, scale) if as_numbers else xp.ones((1, 1), xp.float32)
    eight.require_scale(scale, ((1, 1), (m, 1)))
    bits = dense if dense.dtype == np.uint8 else two_four.rounded(dense, dtype, scale)
    return two_four.filled(TwoFourEight.empty(xp, m, k, dtype, scale), bits, prune)


def validate(a: TwoFourEight) -> TwoFourEight:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    eight.require_dtype(a.dtype)
    m, k = two_four.require_sizes(a.m, a.k, TwoFourEight)
    two_four.require_shapes(a, m, k)
    eight.require_scale(a.scale, ((1, 1), (m, 1)))
    return two_four.without_fault(a, two_four.first_fault(a))


def to_dense(a: TwoFourEight):
    """(m, k) float32 array, row-major, on the side where `a` lives: value times scale, rounded once."""
    dense = two_four.to_dense(a)
    dense *= a.scale
    return dense


def words(meta, rows: int = ROWS):
    """Metadata in the order in which a warpgroup hands it to wgmma.sp: uint32 (m' / 64, k' / 64, 4, 32).

    The axes are 64 rows of A, 64 columns of A, the warp and its lane, as in the picture above. m' and k' are m and
    k rounded up to multiples of `rows`, the tile's, and 64; what is added is valid metadata of zeros. meta: uint16
    (m, k_pad / 16), NumPy or CuPy. Raises ValueError where `rows` is no positive multiple of 64, or meta not
    uint16 of two dimensions with whole words a row.
    """
    require(
        isinstance(rows, (int, np.integer)) and rows >= ROWS and rows % ROWS == 0,
        f"a tile of 8-bit 2:4 has {rows!r} rows, but must have a positive multiple of {ROWS}",
    )
    require(
        meta.dtype == np.uint16 and meta.ndim == 2 and meta.shape[1] % 2 == 0,
        f"8-bit 2:4 meta is {meta.dtype} {tuple(meta.shape)}, but must be 2-dimensional uint16, an even number a row",
    )
    xp = array_module(meta)
    m, width = meta.shape
    high, wide = -(-m // rows) * rows, -(-width // 4) * 4
    whole = xp.full((high, wide), EMPTY, xp.uint16)
    whole[:m, :width] = meta
    low, upper = whole[:, 0::2].astype(xp.uint32), whole[:, 1::2].astype(xp.uint32)
    lanes = (low | upper << 16).reshape(high // 64, 4, 2, 8, wide // 4, 2)  # tile, warp, s, g, tile of k, c
    return xp.ascontiguousarray(lanes.transpose(0, 4, 1, 3, 5, 2)).reshape(high // 64, wide // 4, 4, 32)
