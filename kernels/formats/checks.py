"""What `checks.cu` finds in a format whose arrays are on the GPU: the first fault, in one launch and one short copy.

A fault is (kind, place), or None. Kinds are numbered as in the source, the gravest first: while pointers are wrong,
what they point to is not looked at. Each format says of its own faults what they are, wherever its arrays live.
"""

from pathlib import Path

import numpy as np

from ..contract import require
from ..lazy import cupy
from .arrays import on_device as on_device
from .launches import On

SOURCE = Path(__file__).with_name("checks.cu")
#: dtype of indices, and of stored values, -> what the source calls it.
_INDEX = {"int32": "int", "int64": "long long"}
_BITS = {"float32": "unsigned", "uint16": "u16"}
ENTRIES = (
    *(f"compressed<{x}, {y}>" for x in _INDEX.values() for y in _INDEX.values()),
    *(f"within<{x}>" for x in _INDEX.values()),
    *(f"{name}<{bits}>" for name in ("bcsr", "wcsr") for bits in _BITS.values()),
    "two_four",
    "nm",
)
_KINDS, _NONE = 8, 2**64 - 1


def bcsr(a) -> tuple[int, int] | None:
    """Of a `Bcsr` whose arrays have the right shapes; places: row, block."""
    return _first(
        f"bcsr<{_BITS[a.val.dtype.name]}>",
        32 * a.block_rows,
        a.row_ptr,
        a.col_idx,
        a.val,
        np.int64(a.blocks),
        np.int64(a.m),
        np.int64(a.k),
        *map(np.int32, a.block),
    )


def wcsr(a) -> tuple[int, int] | None:
    """Of a `Wcsr` whose arrays have the right shapes; places: window, column of a window."""
    return _first(
        f"wcsr<{_BITS[a.val.dtype.name]}>",
        32 * a.windows,
        a.row_ptr,
        a.col_idx,
        a.val,
        np.int64(a.columns),
        np.int64(a.m),
        np.int64(a.k),
        np.int32(a.window),
        np.int32(a.pad),
    )


def two_four(a, pairs: int) -> tuple[int, int] | None:
    """Of a `TwoFour` whose arrays have the right shapes; pairs: bit i, whether i is one.

    Places: row · groups + group, 16 · row + column of the last sixteen.
    """
    return _first("two_four", a.meta.size, a.meta, a.val, np.int64(a.m), np.int64(a.k), np.uint32(pairs))


def nm(b, surplus: int) -> tuple[int, int] | None:
    """Of an `Nm` whose arrays have the right shapes; places in index, and in val. surplus: rows at the end."""
    sizes = (b.k, b.n, b.keep, b.group, b.w, b.q, surplus)
    return _first("nm", b.index.size, b.index, b.val, *map(np.int64, sizes))


def compressed(kind: str, arrays: dict, stored: int, within: int) -> tuple[int, int] | None:
    """Of pointers and indices, {name: array, name: array}, that both have whole numbers; places: row, entry."""
    (pointers, ptr), (indices, index) = arrays.items()
    entry = f"compressed<{_index(kind, pointers, ptr)}, {_index(kind, indices, index)}>"
    sizes = np.int64(ptr.shape[0] - 1), index, np.int64(stored), np.int64(within)
    return _first(entry, max(ptr.shape[0], stored), ptr, *sizes)


def within(kind: str, name: str, index, count: int) -> tuple[int, int] | None:
    """Of indices that count from 0 to count - 1."""
    entry, size = f"within<{_index(kind, name, index)}>", index.shape[0]
    return _first(entry, size, index, np.int64(size), np.int64(count))


def _index(kind: str, name: str, index) -> str:
    require(
        index.dtype.name in _INDEX and index.flags.c_contiguous,
        f"{kind} {name} is {index.dtype}, but must be contiguous {' or '.join(_INDEX)}: convert it",
    )
    return _INDEX[index.dtype.name]


def _first(entry: str, threads: int, *arguments) -> tuple[int, int] | None:
    """Return what a kernel of the source finds, on CuPy's current device and stream.

    (kind, place), the gravest and first.
    """
    found = cupy.empty(_KINDS, cupy.uint64)
    found.data.memset_async(0xFF, found.nbytes)
    with On(SOURCE) as on:
        on.on(entry, threads or 1, *arguments, found)
    return next((fault for fault in enumerate(found.get().tolist()) if fault[1] != _NONE), None)
