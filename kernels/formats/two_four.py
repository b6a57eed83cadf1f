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

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from .. import jit
from ..contract import require, require_seed, require_whole
from ..lazy import cupy
from . import checks, eight, half, layout, stored
from . import compress as on_gpu
from .arrays import Arrays, array_module, require_arrays
from .arrays import to_device as to_device
from .arrays import to_host as to_host
from .csr import INT32_MAX

SOURCE = Path(__file__).with_name("two_four.cu")
ENTRIES = ("compress<FIT>", "compress<PRUNE>")
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
    SOURCE: ClassVar[Path] = SOURCE
    ENTRY: ClassVar[str] = "compress<{mode}>"  #: of that kernel; mode: FIT or PRUNE
    VALUES: ClassVar[Any] = np.uint16

    m: int
    k: int
    dtype: str  #: of `stored.PATTERNS`
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


def compress(dense, dtype: str, prune: bool = False) -> TwoFour:
    """Return the 2:4 form of an (m, k) array, on the side where it lives: NumPy here, CuPy by the kernel.

    The array is float32, rounded by `to_bits` first, or uint16 bit patterns of `dtype`. With
    `prune`, each group keeps its two largest magnitudes, the lower columns where they are equal.
    Magnitudes compare as bit patterns without the sign: a NaN is larger than infinity, and of two
    NaNs the one with the larger payload. Zeros of either sign are no non-zeros. Both sides make
    the same bits.

    Raises ValueError that names row and group where a group has three or four non-zeros and `prune`
    is not set, and where the array is not 2-dimensional, empty or of another dtype.
    """
    half.require_dtype(dtype)
    xp = array_module(dense)
    bits = xp.asarray(dense)
    require_dense("a 2:4 matrix", bits, np.uint16)
    m, k = require_sizes(*bits.shape)
    if bits.dtype == np.float32:
        bits = rounded(bits, dtype) if xp is np else half.to_bits(bits, dtype)
    return filled(TwoFour.empty(xp, m, k, dtype), bits, prune)


def rounded(dense, dtype: str, scale=None):
    """Bit patterns of a float32 array over its scales, (1, 1) or (m, 1), made some rows at a time."""
    bits = array_module(dense).empty(dense.shape, Pairs.VALUES if dtype in half.DTYPES else np.uint8)
    for rows in row_chunks(*dense.shape):
        part = dense[rows]
        if scale is not None:
            part = part / (scale if scale.shape[0] == 1 else scale[rows])
        bits[rows] = stored.PATTERNS[dtype].to_bits(part, dtype)
    return bits


def filled(a: Any, bits, prune: bool):
    """Return `a`, whose arrays hold nothing yet, made of the bit patterns of its dense matrix as `compress` says."""
    if a.xp is not np:
        _fill_on_gpu(a, bits, prune)
        return a
    for rows in row_chunks(a.m, a.k):
        groups = _groups_of(a, bits[rows])
        size = magnitude(groups, a.dtype)
        if not prune:
            _require_fit(size, rows.start, a.k)
        pair = two_largest(size)
        a.val[rows] = np.take_along_axis(groups, pair, axis=-1).reshape(-1, a.val.shape[1])
        a.meta[rows] = pack_pairs((pair[..., 0] | pair[..., 1] << 2).astype(np.uint16))
    return a


def _fill_on_gpu(a: Any, bits, prune: bool) -> None:
    """Run the kernel on CuPy's current device and stream; waits only without `prune`, to know whether all fits.

    It reads the matrix once and writes half of it. Where rows do not begin at multiples of 16 bytes, it reads a number
    at a time.
    """
    threads = count_threads(a.m, a.k, a.UNIT)
    bits = on_gpu.contiguous(bits) if bits.itemsize == 2 else cupy.ascontiguousarray(bits)
    if bits.data.ptr % 16:  # a part of another array
        bits = bits.copy()
    found, first = None, 0
    if not prune:
        found = cupy.empty(1, cupy.uint64)
        found.data.memset_async(0xFF, found.nbytes)
        first = found.data.ptr
    entry = a.ENTRY.format(mode="PRUNE" if prune else "FIT", dtype=a.dtype.upper())
    arguments = (np.int32(a.m), np.int32(a.k), bits.data.ptr, a.val.data.ptr, a.meta.data.ptr, first)
    jit.run_on_cupy_stream(a.SOURCE, entry, threads, THREADS, *arguments)
    place = _NONE if found is None else int(found.get()[0])  # waits for the kernel
    if place != _NONE:
        row = place // (a.k_pad // 4)
        _require_fit(magnitude(_groups_of(a, bits[row : row + 1].get()), a.dtype), row, a.k)


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


def validate(a: TwoFour) -> TwoFour:
    """Return `a`, or raise ValueError: one sentence, which array is wrong and where."""
    half.require_dtype(a.dtype)
    require_shapes(a, *require_sizes(a.m, a.k))
    return without_fault(a, checks.two_four(a, _IS_PAIR) if checks.on_device(a.val) else first_fault(a))


def require_shapes(a: Pairs, m: int, k: int) -> None:
    """Raise ValueError unless `val` and `meta` have the dtypes, and the shapes that m and k need, row-major."""
    wanted = {"val": (a.VALUES, (m, a.k_pad // 2)), "meta": (np.uint16, (m, a.k_pad // 16))}
    require_arrays(a.NAME, a, wanted, f" where m = {m} and k = {k}")


#: Kinds of faults, as checks.cu numbers them.
_PAIR, _FILLED = range(2)


def first_fault(a: Pairs) -> tuple[int, int] | None:
    """(kind, place) of the gravest fault, wherever `a` lives, as `checks.two_four` finds it of 16 bits on a GPU."""
    for rows in row_chunks(a.m, a.k):
        wrong = _IS_PAIR >> unpack_pairs(a.meta[rows]) & 1 == 0
        if bool(wrong.any()):
            return _PAIR, rows.start * (a.k_pad // 4) + int(wrong.argmax())
    # Only the last columns may lie beyond k.
    tail = magnitude(expand(a.val[:, -a.UNIT // 2 :], a.meta[:, -a.UNIT // 16 :]), a.dtype) != 0
    tail[:, : a.k - a.k_pad + a.UNIT] = False
    return (_FILLED, int(tail.argmax())) if bool(tail.any()) else None


def without_fault(a: Any, fault: tuple[int, int] | None):
    """Return `a`, or raise the ValueError on a fault."""
    if fault is None:
        return a
    kind, at = fault
    row, place = divmod(at, a.k_pad // 4 if kind == _PAIR else a.UNIT)
    if kind == _PAIR:
        pair = int(a.meta[row, place // 4]) >> 4 * (place % 4) & 15
        raise ValueError(
            f"{a.NAME} meta has the indices {pair & 3} and {pair >> 2} in row {row}, group {place}, but a group's two "
            "indices must differ, the smaller in the low bits"
        )
    raise ValueError(
        f"{a.NAME} val has a non-zero in row {row}, column {a.k_pad - a.UNIT + place}, but the columns {a.k} to "
        f"{a.k_pad - 1} are padding and must be 0"
    )


def to_dense(a: Pairs):
    """(m, k) float32 array, row-major, on the side where `a` lives: exact, except a NaN's payload."""
    dense = a.xp.empty((a.m, a.k), np.float32)
    for rows in row_chunks(a.m, a.k):
        dense[rows] = stored.numbers(expand(a.val[rows], a.meta[rows])[:, : a.k], a.dtype)
    return dense


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


def require_dense(what: str, dense, kind) -> None:
    """Raise ValueError unless `what` can be made of an array: float32, or bit patterns of dtype `kind`, (m, k)."""
    require(
        dense.ndim == 2 and dense.dtype in (np.float32, kind),
        f"{what} is made from a 2-dimensional array of float32 or of {np.dtype(kind)} bit patterns, but the given one "
        f"is {dense.ndim}-dimensional {dense.dtype}",
    )


def magnitude(bits, dtype: str):
    """Numbers in the order of what bit patterns stand for without signs, 0 for zeros of either sign."""
    return bits & 0x7FFF if dtype in half.DTYPES else eight.magnitude(bits, dtype)


def _groups_of(a: Any, bits: np.ndarray) -> np.ndarray:
    """Return some rows of the dense matrix as (rows, k_pad / 4, 4)."""
    whole = np.zeros((len(bits), a.k_pad), bits.dtype)
    whole[:, : a.k] = bits
    return whole.reshape(len(whole), -1, 4)


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
    wrong = count > 2
    if wrong.any():
        row, group = divmod(int(wrong.argmax()), wrong.shape[1])
        raise ValueError(
            f"row {start + row}, group {group} (columns {4 * group} to {min(4 * group + 4, k) - 1}) has "
            f"{count[row, group]} non-zeros, but 2:4 keeps 2: prune the matrix"
        )


def two_largest(magnitude: np.ndarray) -> np.ndarray:
    """Positions (..., 2), ascending, of the two largest of the last axis's four; of equal ones the lower."""
    order = np.argsort(-magnitude.astype(np.int32), axis=-1, kind="stable")
    return np.sort(order[..., :2], axis=-1)
