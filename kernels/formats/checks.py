"""What `checks.cu` finds in a format whose arrays are on the GPU: the first fault, in one launch and one short copy.

A fault is (kind, place), or None. Kinds are numbered as in the source, the gravest first: while pointers are wrong,
what they point to is not looked at. Each format says of its own faults what they are, wherever its arrays live.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from .. import jit, workspace
from ..contract import require

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
STARTS, FALLS, ENDS, OUTSIDE = range(4)  #: of pointers and indices
_KINDS, _BLOCK, _MOST_BLOCKS = 8, 256, 2048
_NONE = 2**64 - 1


def on_device(array) -> bool:
    """Whether an array is CuPy's."""
    return hasattr(array, "__cuda_array_interface__") and not isinstance(array, np.ndarray)


def require_arrays(kind: str, arrays: dict) -> None:
    """Raise ValueError, one sentence, unless all of a format's arrays are NumPy's, or CuPy's on one GPU."""
    sides = {}
    for name, x in arrays.items():
        require(
            isinstance(x, np.ndarray) or (on_device(x) and hasattr(x, "flags")),
            f"{kind} {name} is {type(x).__module__}.{type(x).__qualname__}, but must be an array of NumPy or CuPy",
        )
        sides[f"GPU {x.device.id}" if on_device(x) else "the host"] = name
    require(
        len(sides) == 1,
        f"{kind} has {' and '.join(f'{name} on {side}' for side, name in sides.items())}: copy all to one of them",
    )


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
    """Of a `TwoFour` whose arrays have the right shapes; pairs: bit i, whether i is one. Places: row · groups + group,
    16 · row + column of the last sixteen."""
    return _first("two_four", a.meta.size, a.meta, a.val, np.int64(a.m), np.int64(a.k), np.uint32(pairs))


def nm(b, surplus: int) -> tuple[int, int] | None:
    """Of an `Nm` whose arrays have the right shapes; places in index, and in val. surplus: rows at the end."""
    sizes = (b.k, b.n, b.keep, b.group, b.w, b.q, surplus)
    return _first("nm", b.index.size, b.index, b.val, *map(np.int64, sizes))


def require_compressed(kind: str, arrays: dict, within: int, what: str, stored: int) -> None:
    """As `foreign.require_compressed`, of CuPy arrays, for what they hold."""
    from . import csr

    (pointers, ptr), (indices, index) = arrays.items()
    entry = f"compressed<{_index(kind, pointers, ptr)}, {_index(kind, indices, index)}>"
    found = _first(
        entry,
        max(ptr.shape[0], stored),
        ptr,
        np.int64(ptr.shape[0] - 1),
        index,
        np.int64(stored),
        np.int64(within),
    )
    if found is None:
        return
    fault, at = found
    raise ValueError(
        {
            STARTS: lambda: f"{kind} {pointers} starts at {int(ptr[0])}, but must start at 0",
            FALLS: lambda: (
                f"{kind} {pointers} falls from {int(ptr[at])} to {int(ptr[at + 1])} at row {at}, but must never fall"
            ),
            ENDS: lambda: (
                f"{kind} {pointers} ends at {int(ptr[-1])}, but there are {index.shape[0]} indices and "
                f"{stored} values: all three must agree"
            ),
            OUTSIDE: lambda: csr.outside(kind, indices, at, int(index[at]), what, within),
        }[fault]()
    )


def require_within(kind: str, name: str, index, count: int, what: str) -> None:
    """As `csr.require_columns`, of a CuPy array of any name."""
    from . import csr

    entry = f"within<{_index(kind, name, index)}>"
    found = _first(entry, index.shape[0], index, np.int64(index.shape[0]), np.int64(count))
    if found is not None:
        at = found[1]
        raise ValueError(csr.outside(kind, name, at, int(index[at]), what, count))


def _index(kind: str, name: str, index) -> str:
    require(
        index.dtype.name in _INDEX and index.flags.c_contiguous,
        f"{kind} {name} is {index.dtype}, but must be contiguous {' or '.join(_INDEX)}: convert it",
    )
    return _INDEX[index.dtype.name]


def _first(entry: str, threads: int, *arguments) -> tuple[int, int] | None:
    """What a kernel of the source finds, on CuPy's current device and stream: the first place of the gravest kind."""
    import cupy
    from cuda.core import Device, LaunchConfig, launch

    ordinal = cupy.cuda.Device().id
    device = Device(ordinal)
    device.set_current()
    stream = cupy.cuda.get_current_stream()
    found = cupy.empty(_KINDS, cupy.uint64)
    found.data.memset_async(0xFF, found.nbytes, stream)
    config = LaunchConfig(grid=min(-(-threads // _BLOCK) or 1, _MOST_BLOCKS), block=_BLOCK)
    given = [x.data.ptr if on_device(x) else x for x in arguments]
    launch(
        workspace.stream_at(stream.ptr, device),
        config,
        jit.ready(SOURCE, entry, jit.arch_of(device)),
        *given,
        found.data.ptr,
    )
    return first_of(found.get())


def first_of(found) -> tuple[int, int] | None:
    """(kind, place) of the gravest kind that was found; found: uint64, 2^64 - 1 where there is none."""
    places = enumerate(int(x) for x in found)
    return next((fault for fault in places if fault[1] != _NONE), None)
