"""From arrays on a GPU to the sparse formats, and from these to CSR: compress.cu, launched.

Each function does what NumPy does where the arrays are on the host, to the bit, but for what a NaN carries. Arrays are
CuPy's; work is on its current stream.
"""

import struct
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from ..lazy import cupy
from ..workspace import MOST_BLOCKS, THREADS, On, ints, longs
from .arrays import array_module

SOURCE = Path(__file__).with_name("compress.cu")
_COUNTS = struct.Struct("2Q2I")  #: values, places, and what only the source needs
_FIRST = 2**63
#: dtype of a matrix -> what stored values are in the source, what they become, and their type there.
STORED = {
    "float32": ("float", 0, "float"),
    "bfloat16": ("Brain", 1, "u16"),
    "float16": ("Ieee", 2, "u16"),
}
#: dtype of an array -> its type in the source.
_NUMBERS = {
    "float64": "double",
    "float32": "float",
    "float16": "Ieee",
    "bfloat16": "Brain",
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "u16",
    "uint32": "unsigned",
    "uint64": "unsigned long long",
}
_WIDTHS = (1, 2, 4, 8, 16, 32)  #: of vectors, with kernels of their own
_MOST_SCORES = 1 << 26  #: that there are at a time
#: Instantiations that stand for all.
ENTRIES = (
    *(f"cast<{kind}, float>" for kind in _NUMBERS.values()),
    "cast<u16, u16>",
    "filled<float>",
    "filled<u16>",
    "has_bits<0>",
    "look_at_blocks<float, 0>",
    "look_at_blocks<float, 1>",
    "look_at_blocks<float, 2>",
    "look_at_blocks<u16, 0>",
    "flagged<0>",
    "kept<0>",
    "place_blocks<0>",
    "gather_blocks<float, 0, float>",
    "gather_blocks<float, 1, u16>",
    "gather_blocks<float, 2, u16>",
    "gather_blocks<u16, 0, u16>",
    *(f"vector_scores<{width}>" for width in (0, *_WIDTHS)),
    "chosen_rows<0>",
    "chosen_values<0>",
    *(f"{name}<{kind}>" for name in ("block_rows", "window_rows", "pair_rows") for kind, _, _ in STORED.values()),
    "vector_rows<0>",
    "begins<0>",
    "block_keys<0>",
    "distinct<0>",
    "place_distinct<0>",
    *(f"merge_blocks<{kind}, {become}, {bits}>" for kind, become, bits in STORED.values()),
)


# ---------------------------------------------------------------- numbers


def float32(x, check: bool = False) -> tuple[Any, int | None]:
    """Return an array of real numbers as float32, row-major, and the first place that float32 does not hold.

    check: look for that; without it, None, and nothing is waited for.
    """
    made = cupy.empty(x.shape, np.float32)
    first = cupy.zeros(1, np.uint64) if check else None
    _cast(x, "float", made, first)
    found = 0 if first is None else int(first.get()[0])
    return made, _FIRST - found if found else None


def contiguous(x):
    """Return a row-major array, NumPy or CuPy: itself, or a copy."""
    if x.flags.c_contiguous:
        return x
    if array_module(x) is np or x.itemsize == 1:
        return array_module(x).ascontiguousarray(x)
    made = cupy.empty(x.shape, x.dtype)
    _cast(x, "u16" if x.dtype == np.uint16 else "float", made, None)
    return made


def _cast(x, to: str, made, first) -> None:
    shape, strides = (1,) * (3 - x.ndim) + x.shape, (x.nbytes,) * (3 - x.ndim) + x.strides
    sizes = longs(x.size, *shape[1:], *(step // x.itemsize for step in strides))
    with On(SOURCE) as on:
        on.on(f"cast<{_NUMBERS[x.dtype.name]}, {to}>", x.size, x, *sizes, made, first)


def filled(val) -> int:
    """How many values, float32 or bits of 16, are not 0 of either sign; row-major."""
    if val.size == 0:
        return 0
    with On(SOURCE) as on:
        kind = "float" if val.dtype == np.float32 else "u16"
        on.on(f"filled<{kind}>", val.size, val, *longs(val.size), on.work.sums, on.work.found)
        return on.found(_COUNTS)[0]


def has_bits(x, bits: int) -> bool:
    """Whether some float32 number has one of these bits; in any order of memory without gaps."""
    flag = cupy.zeros(1, np.int32)
    with On(SOURCE) as on:
        on.on("has_bits<0>", x.size, x, *longs(x.size), np.uint32(bits), flag)
    return bool(flag.get()[0])


# ---------------------------------------------------------------- blocks


def blocks(x, block: tuple[int, int], dtype: str, count: int | None) -> tuple[Any, Any, Any, int]:
    """(row_ptr, col_idx, val, nnz) of a `Bcsr` of a dense matrix (m, k), not empty.

    x: float32, rounded to `dtype`, or bits of it. count: blocks with the largest sums of squares that stay, those
    that hold something; None: all of these. Raises ValueError where they are too many.
    """
    from . import bcsr

    x, (m, k), (high, wide) = contiguous(x), x.shape, block
    rows, columns = ceil(m / high), ceil(k / wide)
    size = rows * columns
    kind, become, bits = ("u16", 0, "u16") if x.dtype == np.uint16 else ("float", *STORED[dtype][1:])
    look, gather = f"look_at_blocks<{kind}, {become}>", f"gather_blocks<{kind}, {become}, {bits}>"
    pruning = ("flagged<0>",) if count is not None else ()
    with On(SOURCE, look, *pruning, "kept<0>", "place_blocks<0>", gather) as on:
        some = cupy.empty(size, np.int32)
        key = None if count is None else cupy.empty(size, np.uint64)
        sizes = (*longs(m, k), *ints(high, wide))
        looks = ceil(size / (THREADS // wide))
        on.launch(look, 0, x, *sizes, *longs(columns, size), key, some, blocks=looks)
        flags = None
        if count is not None:
            flags = cupy.zeros(size, np.uint8)
            order = cupy.argsort(key, kind="stable")
            on.launch("flagged<0>", count, order, np.int64(count), flags)
        at = on.scan("kept<0>", size, some, flags, np.int32(size), on.work.sums, on.work.found)
        nnz, kept, *_ = on.found(_COUNTS)
        bcsr.require_blocks(kept, high)
        row_ptr, col_idx = cupy.empty(rows + 1, np.int32), cupy.empty(kept, np.int32)
        from_ = cupy.empty(kept, np.int32)
        on.launch("place_blocks<0>", max(size, rows + 1), at, *ints(rows, columns), row_ptr, col_idx, from_)
        val = cupy.empty((kept, high, wide), np.float32 if bits == "float" else np.uint16)
        on.launch(gather, 0, x, *sizes, np.int32(columns), from_, val, blocks=kept)
    return row_ptr, col_idx, val, nnz


def in_order(a) -> tuple[Any, Any, Any, int]:
    """(row_ptr, col_idx, val, nnz) of a `Bcsr` whose blocks come in any order, in order, each place once."""
    kind, become, bits = STORED[a.dtype]
    merge, sizes = (
        f"merge_blocks<{kind}, {become}, {bits}>",
        ints(a.block_rows, a.block_columns, a.blocks),
    )
    val = contiguous(a.val)
    with On(SOURCE, "block_keys<0>", "distinct<0>", "place_distinct<0>", merge, f"filled<{bits}>") as on:
        key = cupy.empty(a.blocks, np.uint64)
        on.launch("block_keys<0>", a.blocks, a.row_ptr, a.col_idx, *sizes, key)
        order = cupy.argsort(key, kind="stable")
        at = on.scan("distinct<0>", a.blocks, key, order, sizes[2])
        kept = int(at[-1:].get()[0])
        row_ptr, col_idx = cupy.empty(a.block_rows + 1, np.int32), cupy.empty(kept, np.int32)
        made = cupy.empty((kept, *a.block), val.dtype)
        on.launch(
            "place_distinct<0>",
            max(a.blocks, a.block_rows + 1),
            key,
            order,
            at,
            *sizes,
            row_ptr,
            col_idx,
        )
        area = np.int32(val.shape[1] * val.shape[2])
        on.launch(merge, 0, val, order, at, sizes[2], area, made, blocks=a.blocks)
    return row_ptr, col_idx, made, filled(made)


# ---------------------------------------------------------------- N:M


def nm(x, keep: int, group: int, vector: int, prune: bool) -> tuple[Any, Any, int | None]:
    """(val, index, None) of an `Nm` of a float32 array (k, n) in any memory order, `nm.compress`.

    Without `prune`, the last is the first group · vectors + vector of more rows than `keep` that are not 0, or None.
    """
    (k, n), size = x.shape, x.dtype.itemsize
    row, column = (step // size for step in x.strides)
    q, whole = ceil(n / vector), k // group
    w = ceil(k / group) * keep
    rest = k - whole * group
    real = whole * keep + min(keep, rest)
    lanes = min(vector, n)
    scoring = f"vector_scores<{lanes if lanes in _WIDTHS else 0}>"
    by_rows = np.int32(row < column)
    val, index = cupy.empty((w, n), np.float32), cupy.empty((w, q), np.int32)
    first = None if prune else cupy.zeros(1, np.uint64)
    with On(SOURCE, scoring, "chosen_rows<0>", "chosen_values<0>") as on:
        step = max(1, _MOST_SCORES // (group * q))
        parts = [(g, min(step, whole - g), group, keep) for g in range(0, whole, step)]
        parts += [(whole, 1, rest, min(keep, rest))] * (rest > 0)
        for begin, groups, rows, taken in parts:
            scores = cupy.empty((groups * rows, q), np.float64)
            at = int(x.data.ptr) + begin * group * x.strides[0]
            on.launch(
                scoring,
                scores.size,
                at,
                *longs(groups * rows, n, row, column, vector, q, lanes),
                by_rows,
                np.int32(prune),
                scores,
            )
            on.launch(
                "chosen_rows<0>",
                groups * q,
                scores,
                *longs(groups, begin),
                *ints(rows, taken, keep),
                *longs(group, q, k),
                index,
                first,
            )
        on.launch(
            "chosen_values<0>",
            0,
            x,
            *longs(n, row, column, vector, q, w, real),
            by_rows,
            index,
            val,
            blocks=ceil(w / 32) * ceil(n / 32),
        )
    found = 0 if first is None else int(first.get()[0])
    return val, index, _FIRST - found if found else None


# ---------------------------------------------------------------- CSR


def csr_of_pairs(a):
    """Return a `TwoFour` as CSR."""
    return csr_of(a.m, a.k, f"pair_rows<{STORED[a.dtype][0]}>", 32 * a.m, a.meta, a.val, *ints(a.m, a.k_pad // 16))


def csr_of_vectors(b):
    """Return the transpose of an `Nm` as CSR."""
    return csr_of(b.n, b.k, "vector_rows<0>", b.n, b.index, b.val, *longs(b.real, b.n, b.vector, b.q))


def csr_of(m: int, k: int, entry: str, threads: int, *arguments):
    """Return the values of a matrix (m, k) that are not 0 as CSR, by a kernel for all or for a warp of each row."""
    from . import csr

    with On(SOURCE, entry, "begins<0>") as on:
        blocks = ceil(threads / THREADS)
        if threads > m:  # a warp a row, which goes on to further ones
            blocks = min(MOST_BLOCKS, blocks)
        counts, sums = cupy.empty(m, np.int32), (on.work.sums, on.work.found)
        on.launch(entry, 0, *arguments, counts, None, None, None, *sums, blocks=blocks)
        row_ptr = on.scan("begins<0>", m, counts, np.int32(m))
        nnz = on.found(_COUNTS)[0] if m else 0
        csr.require_entries(nnz)
        col_idx, val = cupy.empty(nnz, np.int32), cupy.empty(nnz, np.float32)
        if nnz:
            on.launch(entry, 0, *arguments, None, row_ptr, col_idx, val, *sums, blocks=blocks)
    return csr.Csr(m, k, row_ptr, col_idx, val)
