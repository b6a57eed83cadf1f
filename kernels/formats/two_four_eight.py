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

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import eight, two_four
from .half import array_module
from .two_four import EMPTY, INT32_MAX, expand, groups_of, is_pair, padded, row_chunks, unpack_pairs

SOURCE = Path(__file__).with_name("two_four_eight.cu")
ENTRIES = tuple(
    f"compress_eight<{mode}, {dtype.upper()}>" for mode in ("CHECK", "FIT", "PRUNE") for dtype in eight.DTYPES
)
UNIT = 32  #: columns of a thread
#: Rows and columns of A that an instruction of a warpgroup multiplies.
ROWS = COLUMNS = 64


@dataclass(frozen=True)
class TwoFourEight:
    """A sparse m x k matrix, 2:4 along k; the arrays are NumPy's or CuPy's, all on one side.

    val: uint8 (m, k_pad / 2) row-major, bit patterns of `dtype`; meta: uint16 (m, k_pad / 16) row-major; scale:
    float32 (1, 1) or (m, 1).
    """

    m: int
    k: int
    dtype: str  #: "e4m3" or "int8"
    val: Any
    meta: Any
    scale: Any

    @property
    def k_pad(self) -> int:
        """Columns stored, k rounded up to a multiple of 32."""
        return padded(self.k, UNIT)

    @property
    def nnz(self) -> int:
        """Stored values, explicit zeros included."""
        return self.m * self.k_pad // 2

    @property
    def nbytes(self) -> int:
        return self.val.nbytes + self.meta.nbytes + self.scale.nbytes


def compress(dense, dtype: str, prune: bool = False, scale="tensor") -> TwoFourEight:
    """The 2:4 form of an (m, k) array, on the side where it lives: NumPy here, CuPy by the kernel.

    The array is float32, which is divided by its scales and rounded by `eight.to_bits` first, or uint8 bit
    patterns of `dtype`. scale: "tensor" or "rows", for `eight.scales`, or the float32 scales themselves, (1, 1) or
    (m, 1); with bit patterns "tensor" means 1. With `prune`, each group keeps its two largest magnitudes, the
    lower columns where the rounded ones are equal; an e4m3 NaN is larger than all numbers.

    Raises ValueError that names row and group where a group has three or four non-zeros and `prune` is not set,
    and where the array is not 2-dimensional, empty or of another dtype, or the scales do not fit.
    """
    bits, scale = _bits(dense, dtype, scale)
    xp = array_module(bits)
    m, k = bits.shape
    val = xp.empty((m, padded(k, UNIT) // 2), xp.uint8)
    meta = xp.empty((m, padded(k, UNIT) // 16), xp.uint16)
    if xp is not np:
        _compress_on_device(bits, dtype, prune, val, meta)
        return TwoFourEight(m, k, dtype, val, meta, scale)
    for rows in row_chunks(m, k):
        groups = groups_of(bits, rows, UNIT)
        size = eight.magnitude(groups, dtype)
        two_four.keep_two(groups, size, rows, k, prune, val, meta)
    return TwoFourEight(m, k, dtype, val, meta, scale)


def count_threads(m: int, k: int) -> int:
    """Threads of two_four_eight.cu for an m x k matrix; ValueError where the kernel cannot count them."""
    return two_four.threads_of(*_sizes(m, k), UNIT)


def validate(a: TwoFourEight) -> TwoFourEight:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    eight.require_dtype(a.dtype)
    m, k = _sizes(a.m, a.k)
    two_four.require_shapes("8-bit 2:4", a, m, k, np.uint8)
    eight.require_scale(a.scale, ((1, 1), (m, 1)))
    xp = array_module(a.meta)
    for rows in row_chunks(m, k):
        pairs = unpack_pairs(xp, a.meta[rows])
        wrong = ~is_pair(pairs)
        if bool(wrong.any()):
            row, group = divmod(int(wrong.argmax()), wrong.shape[1])
            two_four.refuse_pair("8-bit 2:4", rows.start + row, group, int(pairs[row, group]))
        beyond = eight.magnitude(expand(xp, a, rows)[:, k:], a.dtype) != 0
        if bool(beyond.any()):
            row, column = divmod(int(beyond.argmax()), beyond.shape[1])
            two_four.refuse_padding("8-bit 2:4", a, rows.start + row, k + column)
    return a


def to_dense(a: TwoFourEight):
    """(m, k) float32 array, row-major, on the side where `a` lives: value times scale, rounded once."""
    xp = array_module(a.val)
    dense = xp.empty((a.m, a.k), xp.float32)
    for rows in row_chunks(a.m, a.k):
        scale = a.scale if a.scale.shape[0] == 1 else a.scale[rows]
        dense[rows] = eight.from_bits(expand(xp, a, rows)[:, : a.k], a.dtype) * scale
    return dense


def to_dense_bits(a: TwoFourEight):
    """(m, k) uint8 bit patterns of `a.dtype`, row-major, to which the same scales belong."""
    xp = array_module(a.val)
    dense = xp.empty((a.m, a.k), xp.uint8)
    for rows in row_chunks(a.m, a.k):
        dense[rows] = expand(xp, a, rows)[:, : a.k]
    return dense


def to_device(a: TwoFourEight) -> TwoFourEight:
    """Copy to the current GPU; arrays that live there already are shared."""
    import cupy

    return TwoFourEight(a.m, a.k, a.dtype, *map(cupy.asarray, (a.val, a.meta, a.scale)))


def to_host(a: TwoFourEight) -> TwoFourEight:
    """Copy from the GPU; `a` itself where it is on the host already."""
    if array_module(a.val) is np:
        return a
    return TwoFourEight(a.m, a.k, a.dtype, a.val.get(), a.meta.get(), a.scale.get())


def words(meta, rows: int = ROWS):
    """Metadata in the order in which a warpgroup hands it to wgmma.sp: uint32 (m' / 64, k' / 64, 4, 32).

    The axes are 64 rows of A, 64 columns of A, the warp and its lane, as in the picture above. m' and k' are m and
    k rounded up to multiples of `rows`, the tile's, and 64; what is added is valid metadata of zeros. meta: uint16
    (m, k_pad / 16), NumPy or CuPy. Raises ValueError where `rows` is no positive multiple of 64, or meta not
    uint16 of two dimensions with whole words a row.
    """
    if not isinstance(rows, (int, np.integer)) or rows < ROWS or rows % ROWS:
        raise ValueError(f"a tile of 8-bit 2:4 has {rows!r} rows, but must have a positive multiple of {ROWS}")
    if meta.dtype != np.uint16 or meta.ndim != 2 or meta.shape[1] % 2:
        raise ValueError(
            f"8-bit 2:4 meta is {meta.dtype} {tuple(meta.shape)}, but must be 2-dimensional uint16, an even "
            "number a row"
        )
    xp = array_module(meta)
    m, width = meta.shape
    high, wide = -(-m // rows) * rows, -(-width // 4) * 4
    whole = xp.full((high, wide), EMPTY, xp.uint16)
    whole[:m, :width] = meta
    low, upper = whole[:, 0::2].astype(xp.uint32), whole[:, 1::2].astype(xp.uint32)
    lanes = (low | upper << 16).reshape(high // 64, 4, 2, 8, wide // 4, 2)  # tile, warp, s, g, tile of k, c
    return xp.ascontiguousarray(lanes.transpose(0, 4, 1, 3, 5, 2)).reshape(high // 64, wide // 4, 4, 32)


def from_words(words, m: int, k: int):
    """The metadata (m, k_pad / 16) that `words` was given, of a matrix of m x k; ValueError where it is too small."""
    m, k = _sizes(m, k)
    need = (-(-m // ROWS), -(-k // COLUMNS), 4, 32)
    if words.dtype != np.uint32 or words.ndim != 4 or words.shape[2:] != (4, 32):
        raise ValueError(f"words of 8-bit 2:4 are {words.dtype} {tuple(words.shape)}, but must be uint32 (…, …, 4, 32)")
    if words.shape[0] < need[0] or words.shape[1] < need[1]:
        raise ValueError(
            f"words of 8-bit 2:4 are {tuple(words.shape)}, but a matrix of {m} x {k} needs at least {need}"
        )
    xp = array_module(words)
    high, wide = words.shape[:2]
    lanes = words.reshape(high, wide, 4, 8, 2, 2).transpose(0, 2, 5, 3, 1, 4)
    lanes = xp.ascontiguousarray(lanes).reshape(64 * high, 2 * wide)
    whole = xp.stack((lanes & 0xFFFF, lanes >> 16), axis=-1).astype(xp.uint16)
    return xp.ascontiguousarray(whole.reshape(64 * high, 4 * wide)[:m, : padded(k, UNIT) // 16])


def _sizes(m, k) -> tuple[int, int]:
    m, k = two_four.require_sizes(m, k)
    if k > INT32_MAX - 31:
        raise ValueError(f"8-bit 2:4 k is {k}, but must be at most {INT32_MAX - 31}, so that k_pad fits an int")
    return m, k


def _bits(dense, dtype: str, scale):
    """Bit patterns (m, k) and scales of what `compress` takes."""
    eight.require_dtype(dtype)
    xp = array_module(dense)
    dense = xp.asarray(dense)
    if dense.ndim != 2 or dense.dtype not in (np.float32, np.uint8):
        raise ValueError(
            "an 8-bit 2:4 matrix is made from a 2-dimensional array of float32 or of uint8 bit patterns, but the "
            f"given one is {dense.ndim}-dimensional {dense.dtype}"
        )
    m, k = _sizes(*dense.shape)
    given = not isinstance(scale, str)
    if not given and scale not in ("tensor", "rows"):
        raise ValueError(
            f"an 8-bit 2:4 matrix has scales by {scale!r}, but must have them by tensor or by rows: a sum runs over "
            "its columns"
        )
    if dense.dtype == np.uint8:
        if not given and scale == "rows":
            raise ValueError("bit patterns have no scales by rows of their own: give the scales")
        scale = scale if given else xp.ones((1, 1), xp.float32)
    elif not given:
        scale = eight.scales(dense, dtype, scale)
    eight.require_scale(scale, ((1, 1), (m, 1)))
    if dense.dtype == np.uint8:
        return dense, scale
    bits = xp.empty((m, k), xp.uint8)
    for rows in row_chunks(m, k):
        part = scale if scale.shape[0] == 1 else scale[rows]
        bits[rows] = eight.to_bits(dense[rows] / part, dtype)
    return bits, scale


def _compress_on_device(bits, dtype: str, prune: bool, val, meta) -> None:
    """Run the kernel over CuPy bit patterns; where a group does not fit and `prune` is not set, ValueError."""
    import cupy

    m, k = bits.shape
    entry = f"compress_eight<{'PRUNE' if prune else 'FIT'}, {dtype.upper()}>"
    bits, threads = cupy.ascontiguousarray(bits), count_threads(m, k)
    place = two_four.run(SOURCE, entry, bits, threads, val.data.ptr, meta.data.ptr, report=not prune)
    if place is not None:
        row = place // (padded(k, UNIT) // 4)
        there = groups_of(bits[row : row + 1].get(), slice(0, 1), UNIT)
        two_four.require_fit(eight.magnitude(there, dtype), row, k)
