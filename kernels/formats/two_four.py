"""2:4 for sparse tensor cores: of every four consecutive columns of a row, two are stored.

One row of A, k = 16, and what it becomes (. is zero):

           group 0     group 1     group 2     group 3
   A       a . b .     . . . .     . c . .     . . d e      k columns, padded with zeros to k_pad
   kept    0 . 2 .     0 1 . .     0 1 . .     . . 2 3      two positions of each group
   val     a   b       .   .       .   c       d   e        k_pad / 2 values

   meta    1 1 1 0     0 1 0 0     0 1 0 0     1 0 0 0      k_pad / 16 uint16: this one is 0xE448
           3   2       1   0       1   0       2   0
           group 3     group 2     group 1     group 0      bits 15..12, 11..8, 7..4, 3..0

Values are kept as bit patterns of bfloat16 or float16: see `half`.

Of a group's four bits, the lower two are the smaller index: `mma.sp::ordered_metadata` requires the
indices in increasing order from the least significant bit (PTX ISA, section on the instruction
mma.sp). Two equal indices are undefined behaviour (section "Sparse matrix storage"), so every group
has one of the six pairs, also where it has nothing to store: a group with fewer than two non-zeros
stores its lowest zeros too, hence one without any has the pair (0, 1).

k_pad is k rounded up to a multiple of 16, so that whole uint16 of metadata cover it; the columns
that this adds are zeros.

The format is the one of "Implementing a 2:4 Sparse GEMM Kernel with Tensor Cores", section "Meta";
`swizzle` is its section "Metadata".
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from .. import jit
from . import checks
from .half import DTYPES, array_module, from_bits, require_dtype, to_bits

SOURCE = Path(__file__).with_name("two_four.cu")
ENTRIES = ("compress<CHECK>", "compress<FIT>", "compress<PRUNE>")
THREADS = 256
INT32_MAX = 2**31 - 1
UNIT = 16  #: columns of a thread, and of a uint16 of metadata
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
class TwoFour:
    """A sparse m x k matrix, 2:4 along k; the arrays are NumPy's or CuPy's, both on one side.

    val: uint16 (m, k_pad / 2) row-major, bit patterns of `dtype`; meta: uint16 (m, k_pad / 16)
    row-major, four groups each, group 0 in the low bits.
    """

    m: int
    k: int
    dtype: str  #: "bfloat16" or "float16"
    val: Any
    meta: Any

    @property
    def k_pad(self) -> int:
        """Columns stored, k rounded up to a multiple of 16."""
        return padded(self.k, UNIT)

    @property
    def nnz(self) -> int:
        """Stored values, explicit zeros included."""
        return self.m * self.k_pad // 2

    @property
    def nbytes(self) -> int:
        return self.val.nbytes + self.meta.nbytes


def compress(dense, dtype: str, prune: bool = False) -> TwoFour:
    """The 2:4 form of an (m, k) array, on the side where it lives: NumPy here, CuPy by the kernel.

    The array is float32, rounded by `to_bits` first, or uint16 bit patterns of `dtype`. With
    `prune`, each group keeps its two largest magnitudes, the lower columns where they are equal.
    Magnitudes compare as bit patterns without the sign: a NaN is larger than infinity, and of two
    NaNs the one with the larger payload. Zeros of either sign are no non-zeros. Both sides make
    the same bits.

    Raises ValueError that names row and group where a group has three or four non-zeros and `prune`
    is not set, and where the array is not 2-dimensional, empty or of another dtype.
    """
    bits = _bits(dense, dtype)
    if array_module(bits) is not np:
        return compress_on_device(bits, dtype, prune)
    m, k = bits.shape
    val = np.empty((m, padded(k, UNIT) // 2), np.uint16)
    meta = np.empty((m, padded(k, UNIT) // 16), np.uint16)
    for rows in row_chunks(m, k):
        groups = groups_of(bits, rows, UNIT)
        keep_two(groups, groups & 0x7FFF, rows, k, prune, val, meta)
    return TwoFour(m, k, dtype, val, meta)


def check(dense, dtype: str) -> None:
    """Raise the ValueError of `compress` where an (m, k) array is not 2:4, and compress nothing."""
    bits = _bits(dense, dtype)
    if array_module(bits) is not np:
        _require_fit_on_device("compress<CHECK>", bits)
        return
    for rows in row_chunks(*bits.shape):
        require_fit(groups_of(bits, rows, UNIT) & 0x7FFF, rows.start, bits.shape[1])


def compress_on_device(bits, dtype: str, prune: bool = False) -> TwoFour:
    """`compress` of CuPy bit patterns (m, k) on the current GPU and CuPy's current stream.

    Reads the matrix once and writes half of it. Where k is no multiple of 8, rows do not begin at
    multiples of 16 bytes, and it reads two bytes at a time. Waits for the result only without
    `prune`, to know whether the matrix fits.
    """
    import cupy

    require_dtype(dtype)
    m, k = bits.shape
    val = cupy.empty((m, padded(k, UNIT) // 2), cupy.uint16)
    meta = cupy.empty((m, padded(k, UNIT) // 16), cupy.uint16)
    if prune:
        _launch("compress<PRUNE>", bits, val.data.ptr, meta.data.ptr)
    else:
        _require_fit_on_device("compress<FIT>", bits, val.data.ptr, meta.data.ptr)
    return TwoFour(m, k, dtype, val, meta)


def count_threads(m: int, k: int) -> int:
    """Threads of two_four.cu for an m x k matrix; ValueError where the kernel cannot count them."""
    return threads_of(*require_sizes(m, k), UNIT)


def threads_of(m: int, k: int, unit: int) -> int:
    """The same of a kernel whose threads read `unit` columns each."""
    threads = m * (padded(k, unit) // unit)
    if threads > INT32_MAX:
        raise ValueError(
            f"a matrix of {m} x {k} has {threads} blocks of {unit} columns, but the kernel counts to "
            "2^31 - 1: compress it by rows"
        )
    return threads


def random(m: int, k: int, dtype: str, seed: int) -> TwoFour:
    """A random pattern with random values, on the host; the same bits for the same arguments.

    Values are uniform in (-1, 1), rounded to `dtype`, and never zero; each group's two positions
    are drawn uniformly from the six pairs. A last group of one column stores one value and a zero.
    Raises ValueError for an unknown dtype, sizes that make no matrix, or a seed outside 0 to
    2^32 - 1.
    """
    require_dtype(dtype)
    m, k = require_sizes(m, k)
    require_integer("seed", seed, 0, 2**32 - 1)
    rng = np.random.default_rng([int(seed), m, k, DTYPES.index(dtype)])
    val = np.empty((m, padded(k, UNIT) // 2), np.uint16)
    meta = np.empty((m, padded(k, UNIT) // 16), np.uint16)
    whole, rest = divmod(k, 4)
    for rows in row_chunks(m, k):
        height = rows.stop - rows.start
        choice = rng.integers(0, 6, (height, padded(k, UNIT) // 4), np.uint8)
        if rest:  # as many of the six as lie in that many columns; 6 is a multiple of 3 and of 1
            choice[:, whole] %= max(1, rest * (rest - 1) // 2)
        choice[:, -(-k // 4) :] = 0
        meta[rows] = pack_pairs(PAIRS[choice])
        # Odd multiples of 2^-24, which float32 holds exactly and float16 does not round to zero.
        steps = rng.integers(0, 2**24, (height, val.shape[1]), np.uint32).astype(np.float32)
        val[rows] = to_bits((steps - 2**23 + np.float32(0.5)) * np.float32(2.0**-23), dtype)
        val[rows, 2 * whole + min(rest, 2) :] = 0
    return TwoFour(m, k, dtype, val, meta)


def validate(a: TwoFour) -> TwoFour:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    require_dtype(a.dtype)
    m, k = require_sizes(a.m, a.k)
    checks.require_arrays("2:4", {"val": a.val, "meta": a.meta})
    require_shapes("2:4", a, m, k, np.uint16)
    fault = checks.two_four(a, _IS_PAIR) if checks.on_device(a.val) else _first_fault(a)
    if fault is None:
        return a
    kind, at = fault
    if kind == _PAIR:
        row, group = divmod(at, a.k_pad // 4)
        refuse_pair("2:4", row, group, int(a.meta[row, group // 4]) >> 4 * (group % 4) & 15)
    row, column = divmod(at, 16)
    refuse_padding("2:4", a, row, a.k_pad - 16 + column)


def require_shapes(what: str, a, m: int, k: int, of_val) -> None:
    """Raise ValueError unless `val`, of dtype `of_val`, and `meta` have the shapes that m and k need, row-major."""
    for name, kind, shape in (
        ("val", of_val, (m, a.k_pad // 2)),
        ("meta", np.uint16, (m, a.k_pad // 16)),
    ):
        array = getattr(a, name)
        if array.dtype != kind or tuple(array.shape) != shape:
            raise ValueError(
                f"{what} {name} is {array.dtype} {tuple(array.shape)}, but m = {m} and k = {k} need "
                f"{np.dtype(kind)} {shape}"
            )
        if not array.flags.c_contiguous:
            raise ValueError(f"{what} {name} is not row-major contiguous: copy it")


def refuse_pair(what: str, row: int, group: int, pair: int) -> NoReturn:
    raise ValueError(
        f"{what} meta has the indices {pair & 3} and {pair >> 2} in row {row}, group {group}, but a group's two "
        "indices must differ, the smaller in the low bits"
    )


def refuse_padding(what: str, a, row: int, column: int) -> NoReturn:
    raise ValueError(
        f"{what} val has a non-zero in row {row}, column {column}, but the columns {a.k} to {a.k_pad - 1} are "
        "padding and must be 0"
    )


#: Kinds of faults, as checks.cu numbers them.
_PAIR, _FILLED = range(2)


def _first_fault(a: TwoFour) -> tuple[int, int] | None:
    """(kind, place) of the gravest fault of a matrix on the host, as `checks.two_four` finds it on the GPU."""
    for rows in row_chunks(a.m, a.k):
        wrong = np.flatnonzero(~is_pair(unpack_pairs(np, a.meta[rows])))
        if wrong.size:
            return _PAIR, rows.start * (a.k_pad // 4) + int(wrong[0])
    # Only the last sixteen columns may lie beyond k.
    groups = np.zeros((a.m, 4, 4), bool)
    pairs, used = unpack_pairs(np, a.meta[:, -1:]), (a.val[:, -8:] & 0x7FFF != 0).reshape(-1, 4, 2)
    for c in range(4):
        groups[:, :, c] = (used[:, :, 0] & (pairs & 3 == c)) | (used[:, :, 1] & (pairs >> 2 == c))
    filled = groups.reshape(a.m, 16)
    filled[:, : a.k - (a.k_pad - 16)] = False
    wrong = np.flatnonzero(filled)
    return (_FILLED, int(wrong[0])) if wrong.size else None


def to_dense(a: TwoFour):
    """(m, k) float32 array, row-major, on the side where `a` lives: exact, except a NaN's payload."""
    xp = array_module(a.val)
    dense = xp.empty((a.m, a.k), xp.float32)
    for rows in row_chunks(a.m, a.k):
        dense[rows] = from_bits(expand(xp, a, rows)[:, : a.k], a.dtype)
    return dense


def to_dense_bits(a: TwoFour):
    """(m, k) uint16 bit patterns of `a.dtype`, row-major: what a dense GEMM of the same dtype reads."""
    xp = array_module(a.val)
    dense = xp.empty((a.m, a.k), xp.uint16)
    for rows in row_chunks(a.m, a.k):
        dense[rows] = expand(xp, a, rows)[:, : a.k]
    return dense


def to_device(a: TwoFour) -> TwoFour:
    """Copy to the current GPU; arrays that live there already are shared."""
    import cupy

    return TwoFour(a.m, a.k, a.dtype, cupy.asarray(a.val), cupy.asarray(a.meta))


def to_host(a: TwoFour) -> TwoFour:
    """Copy from the GPU; `a` itself where it is on the host already."""
    if isinstance(a.val, np.ndarray):
        return a
    return TwoFour(a.m, a.k, a.dtype, a.val.get(), a.meta.get())


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
    _require_tile(rows, columns)
    _require_uint16("meta", meta)
    xp = array_module(meta)
    m, width = meta.shape
    high, wide = -(-m // rows) * rows, -(-16 * width // columns) * columns // 16
    if xp is not np:
        from . import layout

        return layout.swizzled(meta, high, wide, ring=False)
    whole = np.full((high, wide), EMPTY, np.uint16)
    whole[:m, :width] = meta
    blocks = whole.reshape(high // 16, 2, 8, wide // 4, 4)  # i, s, g, j, t
    return np.ascontiguousarray(blocks.transpose(0, 2, 3, 4, 1)).reshape(high // 2, 2 * wide)


def unswizzle(swizzled, m: int, k: int):
    """The metadata (m, k_pad / 16) that `swizzle` was given, of a matrix of m x k.

    Raises ValueError where the array is not made of 8 x 8 matrices or is too small for m x k.
    """
    m, k = require_sizes(m, k)
    _require_uint16("swizzled metadata", swizzled)
    high, wide = 2 * swizzled.shape[0], swizzled.shape[1] // 2
    width = padded(k, UNIT) // 16
    if swizzled.shape[0] % 8 or swizzled.shape[1] % 8 or high < m or wide < width:
        raise ValueError(
            f"swizzled metadata is {tuple(swizzled.shape)}, but a matrix of {m} x {k} needs at least "
            f"{(-(-m // 16) * 8, -(-width // 4) * 8)}, multiples of 8"
        )
    xp = array_module(swizzled)
    blocks = swizzled.reshape(high // 16, 8, wide // 4, 4, 2)  # i, g, j, t, s
    whole = blocks.transpose(0, 4, 1, 2, 3).reshape(high, wide)
    return xp.ascontiguousarray(whole[:m, :width])


def is_pair(pairs):
    """Of four bits each, whether they are one of `PAIRS`."""
    return _IS_PAIR >> pairs & 1 == 1


def padded(k: int, unit: int) -> int:
    """k rounded up to a multiple of `unit`."""
    return -(-k // unit) * unit


def require_integer(name: str, value, least: int, most: int) -> None:
    if not isinstance(value, (int, np.integer)) or not least <= value <= most:
        raise ValueError(f"2:4 {name} is {value!r}, but must be an integer from {least} to {most}")


def _require_uint16(name: str, array) -> None:
    if array.dtype != np.uint16 or array.ndim != 2:
        raise ValueError(f"2:4 {name} is {array.ndim}-dimensional {array.dtype}, but must be 2-dimensional uint16")


def _require_tile(rows, columns) -> None:
    for name, value, unit in (("rows", rows, 16), ("columns", columns, 64)):
        if not isinstance(value, (int, np.integer)) or value < unit or value % unit:
            raise ValueError(f"2:4 tile has {value!r} {name}, but must have a positive multiple of {unit}")


def require_sizes(m, k) -> tuple[int, int]:
    """The same as Python's integers, because NumPy's would wrap in the products."""
    require_integer("m", m, 1, INT32_MAX)
    require_integer("k", k, 1, INT32_MAX - 15)  # or k_pad would not fit the kernels' int
    return int(m), int(k)


def row_chunks(m: int, k: int):
    """Slices of rows."""
    step = max(1, _CHUNK // k)
    for start in range(0, m, step):
        yield slice(start, min(start + step, m))


def _bits(dense, dtype: str):
    """The bit patterns of an (m, k) array that is float32 or has them already."""
    require_dtype(dtype)
    xp = array_module(dense)
    dense = xp.asarray(dense)
    if dense.ndim != 2 or dense.dtype not in (np.float32, np.uint16):
        raise ValueError(
            f"a 2:4 matrix is made from a 2-dimensional array of float32 or of uint16 bit patterns, "
            f"but the given one is {dense.ndim}-dimensional {dense.dtype}"
        )
    m, k = require_sizes(*dense.shape)
    if dense.dtype == np.uint16:
        return dense
    if xp is not np:
        return to_bits(dense, dtype)
    bits = np.empty((m, k), np.uint16)
    for rows in row_chunks(m, k):
        bits[rows] = to_bits(dense[rows], dtype)
    return bits


def groups_of(bits: np.ndarray, rows: slice, unit: int) -> np.ndarray:
    """Some rows as (rows, k_pad / 4, 4), with k_pad a multiple of `unit`."""
    k = bits.shape[1]
    whole = np.zeros((rows.stop - rows.start, padded(k, unit)), bits.dtype)
    whole[:, :k] = bits[rows]
    return whole.reshape(len(whole), -1, 4)


def keep_two(groups, size, rows: slice, k: int, prune: bool, val, meta) -> None:
    """Write the values and metadata of some rows' groups, whose magnitudes are `size`, as `compress` says."""
    if not prune:
        require_fit(size, rows.start, k)
    low, high = two_largest(size)
    pair = np.stack((low, high), axis=-1)
    val[rows] = np.take_along_axis(groups, pair, axis=-1).reshape(-1, val.shape[1])
    meta[rows] = pack_pairs((low | high << 2).astype(np.uint16))


def pack_pairs(pairs: np.ndarray) -> np.ndarray:
    """Four bits a group, uint16 (rows, k_pad / 4), to uint16 (rows, k_pad / 16)."""
    g = pairs.reshape(pairs.shape[0], -1, 4)
    return g[:, :, 0] | g[:, :, 1] << 4 | g[:, :, 2] << 8 | g[:, :, 3] << 12


def unpack_pairs(xp, meta):
    """The inverse of `pack_pairs`."""
    shifts = xp.arange(0, 16, 4, dtype=xp.uint16)
    return (meta[:, :, None] >> shifts & 15).reshape(meta.shape[0], -1)


def expand(xp, a, rows: slice):
    """Some rows of the dense matrix with its padding, (rows, k_pad), bit patterns as `val` has them."""
    pairs = unpack_pairs(xp, a.meta[rows])
    low, high = pairs & 3, pairs >> 2
    val = a.val[rows].reshape(*pairs.shape, 2)
    nothing = a.val.dtype.type(0)
    groups = xp.zeros((*pairs.shape, 4), a.val.dtype)
    for c in range(4):
        second = xp.where(high == c, val[:, :, 1], nothing)
        groups[:, :, c] = xp.where(low == c, val[:, :, 0], second)
    return groups.reshape(pairs.shape[0], -1)


def require_fit(size: np.ndarray, start: int, k: int) -> None:
    """Raise ValueError for the first group, from row `start` on, with three or four magnitudes that are not 0."""
    count = (size != 0).sum(axis=-1)
    wrong = count > 2
    if wrong.any():
        row, group = divmod(int(wrong.argmax()), wrong.shape[1])
        raise ValueError(
            f"row {start + row}, group {group} (columns {4 * group} to {min(4 * group + 4, k) - 1}) has "
            f"{count[row, group]} non-zeros, but 2:4 keeps 2: prune the matrix"
        )


# The function below mirrors the one of the same name in two_largest.cuh.


def two_largest(magnitude: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Positions, ascending, of the two largest of the last axis's four; equal ones: the lower."""
    a, b, c, d = (magnitude[..., i] for i in range(4))
    ab, ac, ad, bc, bd, cd = a >= b, a >= c, a >= d, b >= c, b >= d, c >= d
    keep_a = _two_of(ab, ac, ad)
    keep_b = _two_of(~ab, bc, bd)
    keep_c = _two_of(~ac, ~bc, cd)
    keep_d = _two_of(~ad, ~bd, ~cd)
    low = np.where(keep_a, np.uint8(0), np.where(keep_b, np.uint8(1), np.uint8(2)))
    high = np.where(keep_d, np.uint8(3), np.where(keep_c, np.uint8(2), np.uint8(1)))
    return low, high


def _two_of(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    return (x & y) | (z & (x | y))


def _require_fit_on_device(entry: str, bits, val: int = 0, meta: int = 0) -> None:
    """Run the kernel; where it reports a group, raise the ValueError that names it."""
    place = _launch(entry, bits, val, meta)
    if place is not None:
        row = place // (padded(bits.shape[1], UNIT) // 4)
        there = groups_of(bits[row : row + 1].get(), slice(0, 1), UNIT)
        require_fit(there & 0x7FFF, row, bits.shape[1])


def _launch(entry: str, bits, val: int, meta: int) -> int | None:
    """Run one instantiation over CuPy bit patterns; the others are device addresses."""
    from . import compress as on_gpu

    threads = count_threads(*bits.shape)
    bits = on_gpu.contiguous(bits)
    return run(SOURCE, entry, bits, threads, val, meta, report="PRUNE" not in entry)


def run(source: Path, entry: str, bits, threads: int, val: int, meta: int, *, report: bool) -> int | None:
    """Run a kernel over row-major CuPy bit patterns; val, meta: device addresses.

    report: whether to wait for the place of the first group that does not fit, which is returned; None: all fit.
    """
    import cupy

    if bits.data.ptr % 16:  # a part of another array
        bits = bits.copy()
    m, k = bits.shape
    first = 0
    if report:
        found = cupy.empty(1, cupy.uint64)
        found.data.memset_async(0xFF, found.nbytes)
        first = found.data.ptr
    arguments = (np.int32(m), np.int32(k), bits.data.ptr, val, meta, first)
    jit.run_on_cupy_stream(source, entry, threads, THREADS, *arguments)
    place = int(found.get()[0]) if report else _NONE  # waits for the kernel
    return None if place == _NONE else place
