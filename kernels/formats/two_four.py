"""2:4 for sparse tensor cores: of every four consecutive columns of a row, two are stored.

One row of A, k = 16, and what it becomes (. is zero):

           group 0     group 1     group 2     group 3
   A       a . b .     . . . .     . c . .     . . d e      k columns, padded with zeros to k_pad
   kept    0 . 2 .     0 1 . .     0 1 . .     . . 2 3      two positions of each group
   val     a   b       .   .       .   c       d   e        k_pad / 2 values

   meta    1 1 1 0     0 1 0 0     0 1 0 0     1 0 0 0      k_pad / 16 uint16: this one is 0xE448
           3   2       1   0       1   0       2   0
           group 3     group 2     group 1     group 0      bits 15..12, 11..8, 7..4, 3..0

Values are kept as bit patterns of bfloat16, float16, e4m3 or int8: see `half`.

Of a group's four bits, the lower two are the smaller index: `mma.sp::ordered_metadata` requires the
indices in increasing order from the least significant bit (PTX ISA, section on the instruction
mma.sp). Two equal indices are undefined behaviour (section "Sparse matrix storage"), so every group
has one of the six pairs, also where it has nothing to store: a group with fewer than two non-zeros
stores its lowest zeros too, hence one without any has the pair (0, 1).

Of 16-bit floats, k_pad is k rounded up to a multiple of 16, so that whole uint16 of metadata cover it; the columns
that this adds are zeros.

The format is the one of "Implementing a 2:4 Sparse GEMM Kernel with Tensor Cores", section "Meta";
`swizzle` is its section "Metadata".

Of 8-bit numbers, k_pad is k rounded up to a multiple of 32, so that a row of `val` is whole units of 16 bytes, which
TMA asks for, and a row of `meta` whole words of 32 bits; a number is scale · value, with one scale for the matrix,
(1, 1), or one for each row, (m, 1).

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
include/cute/atom/mma_traits_sm90_gmma_sparse.hpp. The 16-bit types' order (`swizzle`) is another one.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import jit
from ..contract import require, require_seed, require_whole
from ..lazy import cupy
from . import compress as on_gpu, half, layout
from .arrays import Arrays, array_module, checked, require_arrays, require_known, require_none, to_device, to_host  # noqa: F401 (for callers)
from .csr import INT32_MAX

SOURCE = Path(__file__).with_name("two_four.cu")
EIGHT_SOURCE = Path(__file__).with_name("two_four_eight.cu")
#: Of both sources.
ENTRIES = {
    SOURCE: ("compress<FIT>", "compress<PRUNE>"),
    EIGHT_SOURCE: tuple(f"compress_eight<{x}, {dtype.upper()}>" for x in ("FIT", "PRUNE") for dtype in half.EIGHT),
}
THREADS = 256
_NONE = 2**64 - 1  # where no group is reported
#: The pairs of indices (0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3) as four bits of metadata: the
#: first three lie in the first three columns, the first one in the first two.
PAIRS = np.array([0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110], np.uint16)
_IS_PAIR = sum(1 << int(pair) for pair in PAIRS)  # bit i: whether i is a pair
#: Metadata of sixteen zeros.
EMPTY = 0x4444
#: Elements of the dense matrix worked on at a time, to bound the temporaries. `random` draws chunk by
#: chunk, so another value gives other matrices.
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Pairs(Arrays):
    """What 2:4 matrices have, whatever the dtype of their values."""

    NAME: ClassVar[str] = "2:4"
    UNIT: ClassVar[int] = 16  #: columns of a thread of the kernel that compresses
    DTYPES: ClassVar[tuple[str, ...]] = half.DTYPES
    ENTRY: ClassVar[tuple[Path, str]] = SOURCE, "compress<{mode}>"  #: that kernel; mode: FIT or PRUNE
    VALUES: ClassVar[Any] = np.uint16

    m: int
    k: int
    dtype: str
    val: Any
    meta: Any

    @classmethod
    def empty(cls, xp, m: int, k: int, dtype: str, *scale):
        """Return a matrix whose arrays hold nothing yet; xp: NumPy or CuPy."""
        k_pad = padded(k, cls.UNIT)
        return cls(m, k, dtype, xp.empty((m, k_pad // 2), cls.VALUES), xp.empty((m, k_pad // 16), np.uint16), *scale)

    @property
    def k_pad(self) -> int:
        """Columns stored, k rounded up to a multiple of `UNIT`."""
        return padded(self.k, self.UNIT)

    @property
    def nnz(self) -> int:
        """Stored values, explicit zeros included."""
        return self.m * self.k_pad // 2


@dataclass(frozen=True)
class TwoFour(Pairs):
    """A sparse m x k matrix, 2:4 along k; the arrays are NumPy's or CuPy's, both on one side.

    dtype: "bfloat16" or "float16"; val: uint16 (m, k_pad / 2) row-major, bit patterns of it; meta: uint16 (m, k_pad /
    16) row-major, four groups each, group 0 in the low bits; k_pad: k rounded up to a multiple of 16.
    """


@dataclass(frozen=True)
class TwoFourEight(Pairs):
    """A sparse m x k matrix of 8-bit numbers, 2:4 along k; the arrays are NumPy's or CuPy's, all on one side.

    dtype: "e4m3" or "int8"; val: uint8 (m, k_pad / 2) row-major, bit patterns of it; meta: uint16 (m, k_pad / 16)
    row-major; scale: float32 (1, 1) or (m, 1); k_pad: k rounded up to a multiple of 32.
    """

    NAME = "8-bit 2:4"
    UNIT = 32
    DTYPES = half.EIGHT
    ENTRY = EIGHT_SOURCE, "compress_eight<{mode}, {dtype}>"
    VALUES = np.uint8

    scale: Any


def compress(dense, dtype: str, prune: bool = False, scale="tensor") -> Any:
    """Return the 2:4 form of an (m, k) array, on the side where it lives: NumPy here, CuPy by the kernel.

    It is a `TwoFour`, or of 8 bits a `TwoFourEight`. The array is float32, over its scales rounded by `half.to_bits`
    first, or bit patterns of `dtype`. scale, of 8 bits: "tensor" or "rows", for `half.scales`, or the float32 scales
    themselves, (1, 1) or (m, 1); with bit patterns "tensor" means 1. With `prune`, each group keeps its two largest
    magnitudes, the lower columns where they are equal. Magnitudes compare as bit patterns without the sign: a NaN is
    larger than infinity, and of two NaNs the one with the larger payload. Zeros of either sign are no non-zeros. Both
    sides make the same bits.

    Raises ValueError that names row and group where a group has three or four non-zeros and `prune` is not set, and
    where the array is not 2-dimensional, empty or of another dtype, or the scales do not fit.
    """
    require_known("dtype", dtype, (*half.BITS,))
    of = TwoFour if dtype in half.DTYPES else TwoFourEight
    xp = array_module(dense)
    dense = xp.asarray(dense)
    require(
        dense.ndim == 2 and dense.dtype in (np.float32, of.VALUES),
        f"a matrix of {of.NAME} is made from a 2-dimensional array of float32 or of {np.dtype(of.VALUES)} bit "
        f"patterns, but the given one is {dense.ndim}-dimensional {dense.dtype}",
    )
    m, k = require_sizes(dense.shape[0], dense.shape[1], of)
    as_numbers, scales = dense.dtype == np.float32, []
    if of is TwoFourEight:
        if isinstance(scale, str):
            require(
                scale in ("tensor", "rows"),
                f"an 8-bit 2:4 matrix has scales by {scale!r}, but must have them by tensor or by rows: a sum runs "
                "over its columns",
            )
            whole = as_numbers or scale == "tensor"
            require(whole, "bit patterns have no scales by rows of their own: give the scales")
            scale = half.scales(dense, dtype, scale) if as_numbers else xp.ones((1, 1), xp.float32)
        half.require_scale(scale, ((1, 1), (m, 1)))
        scales = [scale]
    a, bits = of.empty(xp, m, k, dtype, *scales), dense
    if as_numbers and of is TwoFour and xp is not np:
        bits = half.to_bits(dense, dtype)
    elif as_numbers:
        bits = xp.empty(dense.shape, of.VALUES)
        for rows in row_chunks(m, k):
            part = dense[rows] / xp.broadcast_to(scale, (m, 1))[rows] if scales else dense[rows]
            bits[rows] = half.to_bits(part, dtype)
    (_fill if xp is np else _fill_on_gpu)(a, bits, prune)
    return a


def _fill(a: Any, bits, prune: bool) -> None:
    """Make a matrix whose arrays hold nothing yet of the bit patterns of its dense one, as `compress` says."""
    for rows in row_chunks(a.m, a.k):
        groups = np.pad(bits[rows], ((0, 0), (0, a.k_pad - a.k))).reshape(-1, a.k_pad // 4, 4)
        size = half.magnitude(groups, a.dtype)
        if not prune:
            _require_fit(size, rows.start, a.k)
        # The two largest of four, of equal ones the lower.
        order = np.argsort(-size.astype(np.int32), axis=-1, kind="stable")
        pair = np.sort(order[..., :2], axis=-1)
        a.val[rows] = np.take_along_axis(groups, pair, axis=-1).reshape(-1, a.val.shape[1])
        a.meta[rows] = pack_pairs((pair[..., 0] | pair[..., 1] << 2).astype(np.uint16))


def _fill_on_gpu(a: Any, bits, prune: bool) -> None:
    """`_fill` by the kernel, on CuPy's current device and stream; waits only without `prune`, to know whether all fits.

    It reads the matrix once and writes half of it. Where rows do not begin at multiples of 16 bytes, it reads a number
    at a time.
    """
    threads = count_threads(a.m, a.k, a.UNIT)
    bits = on_gpu.contiguous(bits)
    if bits.data.ptr % 16:  # a part of another array
        bits = bits.copy()
    found = cupy.empty(1, cupy.uint64)
    found.data.memset_async(0xFF, found.nbytes)
    source, entry = a.ENTRY
    entry = entry.format(mode="PRUNE" if prune else "FIT", dtype=a.dtype.upper())
    arguments = (np.int32(a.m), np.int32(a.k), bits.data.ptr, a.val.data.ptr, a.meta.data.ptr)
    jit.run_on_cupy_stream(source, entry, threads, THREADS, *arguments, 0 if prune else found.data.ptr)
    place = _NONE if prune else int(found.get()[0])  # waits for the kernel
    if place != _NONE:
        row = place // (a.k_pad // 4)
        wrong = np.pad(bits[row].get(), (0, a.k_pad - a.k)).reshape(1, -1, 4)
        _require_fit(half.magnitude(wrong, a.dtype), row, a.k)


def count_threads(m: int, k: int, unit: int = Pairs.UNIT) -> int:
    """Threads of the kernel, which read `unit` columns each; ValueError where it cannot count them."""
    threads = m * (padded(k, unit) // unit)
    require(
        threads <= INT32_MAX,
        f"a matrix of {m} x {k} has {threads} blocks of {unit} columns, but the kernel counts to 2^31 - 1: compress it "
        "by rows",
    )
    return threads


def random(m: int, k: int, dtype: str, seed: int) -> TwoFour:
    """Return a random pattern with random values, on the host; the same bits for the same arguments.

    Values are uniform in (-1, 1), rounded to `dtype`, and never zero; each group's two positions
    are drawn uniformly from the six pairs. A last group of one column stores one value and a zero.
    Raises ValueError for an unknown dtype, sizes that make no matrix, or a seed outside 0 to
    2^32 - 1.
    """
    half.require_dtype(dtype)
    m, k = require_sizes(m, k)
    require_seed(seed)
    rng = np.random.default_rng([int(seed), m, k, half.DTYPES.index(dtype)])
    a = TwoFour.empty(np, m, k, dtype)
    whole, rest = divmod(k, 4)
    for rows in row_chunks(m, k):
        height = rows.stop - rows.start
        choice = rng.integers(0, 6, (height, a.k_pad // 4), np.uint8)
        if rest:  # as many of the six as lie in that many columns; 6 is a multiple of 3 and of 1
            choice[:, whole] %= max(1, rest * (rest - 1) // 2)
        choice[:, -(-k // 4) :] = 0
        a.meta[rows] = pack_pairs(PAIRS[choice])
        # Odd multiples of 2^-24, which float32 holds exactly and float16 does not round to zero.
        steps = rng.integers(0, 2**24, (height, a.val.shape[1]), np.uint32).astype(np.float32)
        a.val[rows] = half.to_bits((steps - 2**23 + np.float32(0.5)) * np.float32(2.0**-23), dtype)
        a.val[rows, 2 * whole + min(rest, 2) :] = 0
    return a


def validate(a: Pairs) -> Any:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    require_known(f"{a.NAME} dtype", a.dtype, a.DTYPES)
    m, k = require_sizes(a.m, a.k, type(a))
    wanted = {"val": (a.VALUES, (m, a.k_pad // 2)), "meta": (np.uint16, (m, a.k_pad // 16))}
    require_arrays(a.NAME, a, wanted, f" where m = {m} and k = {k}")
    if isinstance(a, TwoFourEight):
        half.require_scale(a.scale, ((1, 1), (m, 1)))
        return checked(a, None, _require_right)
    look = "two_four", a.meta.size, a.meta, a.val, np.int64(m), np.int64(k), np.uint32(_IS_PAIR)
    return checked(a, look, _require_right)


def _require_right(a: Pairs) -> None:
    for rows in row_chunks(a.m, a.k):
        pairs = unpack_pairs(a.meta[rows])

        def said(at: int, pairs=pairs, above: int = rows.start) -> str:
            row, group = divmod(at, pairs.shape[1])
            return (
                f"{a.NAME} meta has the indices {pairs[row, group] & 3} and {pairs[row, group] >> 2} in row "
                f"{above + row}, group {group}, but a group's two indices must differ, the smaller in the low bits"
            )

        require_none(_IS_PAIR >> pairs & 1 == 0, said)
    # Only the last columns may lie beyond k.
    width = a.k_pad - a.k
    last = expand(a.val[:, -a.UNIT // 2 :], a.meta[:, -a.UNIT // 16 :])[:, a.UNIT - width :]
    require_none(
        half.magnitude(last, a.dtype) != 0,
        lambda at: (
            f"{a.NAME} val has a non-zero in row {at // width}, column {a.k + at % width}, but the columns {a.k} to "
            f"{a.k_pad - 1} are padding and must be 0"
        ),
    )


def to_dense(a: Pairs):
    """(m, k) float32 array, row-major, on the side where `a` lives: exact, except a NaN's payload.

    Of 8 bits it is value times scale, rounded once.
    """
    dense = half.from_bits(to_dense_bits(a), a.dtype)
    return dense * a.scale if isinstance(a, TwoFourEight) else dense


def to_dense_bits(a: Pairs):
    """(m, k) bit patterns of `a.dtype`, row-major: what a dense GEMM of the same dtype reads."""
    dense = a.xp.empty((a.m, a.k), a.VALUES)
    for rows in row_chunks(a.m, a.k):
        dense[rows] = expand(a.val[rows], a.meta[rows])[:, : a.k]
    return dense


def swizzle(meta, rows: int = 64, columns: int = 64):
    """Metadata in the order in which `ldmatrix` hands it to `mma.sp.m16n8k32` (16-bit types).

    For two such instructions, one after the other along the reduction, a block of 16 rows and 4
    uint16 (64 columns of A) becomes an 8 x 8 matrix, with g from 0 to 7 and h = g + 8:

             meta, 16 x 4                           swizzled, 8 x 8
       row g   g0 g1 │ g2 g3              row g   g0 h0   g1 h1 │ g2 h2   g3 h3
             ...                  ──►              ...
       row h   h0 h1 │ h2 h3              thread   4g     4g+1  │ 4g+2    4g+3     of the warp
                1st  │  2nd  k32          selector      0       │       1

    So meta[16 i + 8 s + g, 4 j + t] moves to swizzled[8 i + g, 8 j + 2 t + s]. `ldmatrix` gives the
    uint16 2t and 2t + 1 of row g of a matrix to thread 4g + t, the first in the low half (PTX ISA,
    section "Warp-level matrix load instruction: ldmatrix", figure of the fragment), and thread
    4g + t must hold row g in the low half and row g + 8 in the high half, columns 0 to 15 of A where
    t is even and 16 to 31 where it is odd, t from 0 and 1 with selector 0 and from 2 and 3 with
    selector 1 (section "Matrix Fragments for sparse mma.m16n8k32 with .f16 and .bf16 types", figure
    of the metadata; 9.7.14.6.2.2 and Fig. 122 of PTX ISA 9.1).

    A warp tile of 64 rows and 64 columns of A thus is 32 rows of 8 uint16, and lane l of
    `ldmatrix.x4` gives the address of row l: register q then holds the metadata of rows 16q to
    16q + 15. In the source a block of 128 x 64 reads 64 rows of 8 uint16, 16 bytes each.

    meta (m, k_pad / 16) gives uint16 (m' / 2, k' / 8), where m' and k' are m and k_pad rounded up to
    multiples of `rows` and `columns`, a tile of the kernel; what is added is valid metadata of
    zeros. NumPy or CuPy. Raises ValueError where the tile is no multiple of 16 x 64, or meta not
    uint16 of two dimensions.
    """
    for name, value, unit in (("rows", rows, 16), ("columns", columns, 64)):
        require(
            isinstance(value, (int, np.integer)) and value >= unit and value % unit == 0,
            f"2:4 tile has {value!r} {name}, but must have a positive multiple of {unit}",
        )
    require(
        meta.dtype == np.uint16 and meta.ndim == 2,
        f"2:4 meta is {meta.ndim}-dimensional {meta.dtype}, but must be 2-dimensional uint16",
    )
    xp = array_module(meta)
    m, width = meta.shape
    high, wide = -(-m // rows) * rows, -(-16 * width // columns) * columns // 16
    if xp is not np:
        return layout.swizzled(meta, high, wide, ring=False)
    whole = np.full((high, wide), EMPTY, np.uint16)
    whole[:m, :width] = meta
    blocks = whole.reshape(high // 16, 2, 8, wide // 4, 4)  # i, s, g, j, t
    return np.ascontiguousarray(blocks.transpose(0, 2, 3, 4, 1)).reshape(high // 2, 2 * wide)


def words(meta, rows: int = 64):
    """Metadata in the order in which a warpgroup hands it to wgmma.sp: uint32 (m' / 64, k' / 64, 4, 32).

    The axes are 64 rows of A, 64 columns of A, the warp and its lane, as in the picture above. m' and k' are m and
    k rounded up to multiples of `rows`, the tile's, and 64; what is added is valid metadata of zeros. meta: uint16
    (m, k_pad / 16), NumPy or CuPy. Raises ValueError where `rows` is no positive multiple of 64, or meta not
    uint16 of two dimensions with whole words a row.
    """
    require(
        isinstance(rows, (int, np.integer)) and rows >= 64 and rows % 64 == 0,
        f"a tile of 8-bit 2:4 has {rows!r} rows, but must have a positive multiple of 64",
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


def padded(k: int, unit: int) -> int:
    """k rounded up to a multiple of `unit`."""
    return -(-k // unit) * unit


def require_sizes(m, k, of: type[Pairs] = Pairs) -> tuple[int, int]:
    """Return the same as Python's integers; k is what lets k_pad fit the kernels' int."""
    most = INT32_MAX - of.UNIT + 1
    return require_whole(f"{of.NAME} m", m, 1, INT32_MAX), require_whole(f"{of.NAME} k", k, 1, most)


def row_chunks(m: int, k: int):
    """Slices of rows."""
    step = max(1, _CHUNK // k)
    for start in range(0, m, step):
        yield slice(start, min(start + step, m))


def pack_pairs(pairs: np.ndarray) -> np.ndarray:
    """Four bits a group, uint16 (rows, k_pad / 4), to uint16 (rows, k_pad / 16)."""
    g = pairs.reshape(pairs.shape[0], -1, 4)
    return g[:, :, 0] | g[:, :, 1] << 4 | g[:, :, 2] << 8 | g[:, :, 3] << 12


def unpack_pairs(meta):
    """Return the inverse of `pack_pairs`, NumPy or CuPy."""
    xp = array_module(meta)
    shifts = xp.arange(0, 16, 4, dtype=xp.uint16)
    return (meta[:, :, None] >> shifts & 15).reshape(meta.shape[0], -1)


def expand(val, meta):
    """Rows of the dense matrix with its padding, (rows, k_pad), bit patterns as `val` has them, NumPy or CuPy."""
    xp, pairs, nothing = array_module(val), unpack_pairs(meta)[:, :, None], val.dtype.type(0)
    column = xp.arange(4, dtype=meta.dtype)
    first, second = (val.reshape(*pairs.shape[:2], 2)[:, :, i : i + 1] for i in range(2))
    groups = xp.where(pairs & 3 == column, first, nothing) | xp.where(pairs >> 2 == column, second, nothing)
    return groups.reshape(val.shape[0], -1)


def _require_fit(size: np.ndarray, start: int, k: int) -> None:
    """Raise ValueError for the first group, from row `start` on, with three or four magnitudes that are not 0."""
    count = (size != 0).sum(axis=-1)

    def said(at: int) -> str:
        row, group = divmod(at, count.shape[1])
        return (
            f"row {start + row}, group {group} (columns {4 * group} to {min(4 * group + 4, k) - 1}) has "
            f"{count[row, group]} non-zeros, but 2:4 keeps 2: prune the matrix"
        )

    require_none(count > 2, said)
