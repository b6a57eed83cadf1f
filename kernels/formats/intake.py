"""CSR on a GPU as it comes in: checked before a kernel reads through its indices, in one launch and one wait.

`taken` makes a `Csr` of arrays that somebody brings; `checked` looks at one that is there. Both note on it what the
same look found (`Facts`), for whoever plans a multiplication. Facts belong to that one object, which nobody keeps: a
matrix that is brought again is looked at again.
"""

import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .. import gpu, jit, workspace
from ..lazy import cupy, driver
from . import csr
from .arrays import require_both
from .csr import Csr

SOURCE = Path(__file__).with_name("intake.cu")
_BLOCKS, _ENTRIES = 528, 4  #: blocks at most; entries of a thread before there are more blocks
HEIGHTS = (1, 2, 4, 8, 16, 32, 64)  #: rows whose columns are counted together
WINDOW, FEW, ALL = HEIGHTS[-1], 256, 2**20  #: rows of a window; windows that a sample looks at, at most
_FOUND = struct.Struct("3Q3I")  #: `Facts` of the source
_SHARED, _AT = struct.Struct(f"{len(HEIGHTS)}Q"), 64  #: `Shared` of the source, and where it lies behind them
_SAMPLE = "sample<0>"
_KINDS = {4: "int", 8: "long long"}


@dataclass(frozen=True)
class Facts:
    """Of a CSR matrix."""

    longest: int  #: entries of the longest row
    ascending: bool  #: columns ascend in every row, and none repeats
    fingerprint: int  #: of 64 bits: where entries are
    #: Columns that groups of `HEIGHTS` rows have together, by a sample of rows; empty where nobody asked.
    columns: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Arrays:
    """Where the parts of a CSR matrix lie on a GPU: addresses, and bytes of an index of each kind."""

    m: int
    k: int
    nnz: int
    row_ptr: int
    col_idx: int
    row_bytes: int
    col_bytes: int


def looked(
    arrays: Arrays,
    device,
    stream,
    *,
    check: bool = True,
    prints: bool = True,
    share: bool = False,
    rows: int = 0,
    columns: int = 0,
) -> Facts:
    """Return the facts of a CSR matrix on a current `cuda.core.Device`; waits for the stream.

    check: raise ValueError, one sentence, where indices are wrong. prints: find the fingerprint. share: and what rows
    share, of indices in int32. rows, columns: addresses to which int32 copies of row_ptr and col_idx are written; 0:
    none are.
    """
    work = workspace.of(device)
    size = max(arrays.nnz, arrays.m + 1)
    blocks = min(_BLOCKS, -(-size // (workspace.THREADS * _ENTRIES)))
    entry = f"look<{_KINDS[arrays.row_bytes]}, {_KINDS[arrays.col_bytes]}>"
    i64 = np.int64
    if share:
        workspace.compile_together(SOURCE, (entry, _SAMPLE), jit.arch_of(device))
    with work.lock:
        workspace.enqueue(
            device,
            stream,
            SOURCE,
            entry,
            blocks,
            workspace.THREADS,
            arrays.row_ptr,
            arrays.col_idx,
            i64(arrays.m),
            i64(arrays.k),
            i64(arrays.nnz),
            np.int32(prints),
            rows,
            columns,
            work.sums,
            work.found,
        )
        of = rows or arrays.row_ptr, columns or arrays.col_idx, arrays.m, arrays.nnz
        shares = _shares(work, device, stream, of, FEW) if share else ()
        stream.sync()
        row, entry, fingerprint, longest, falls, starts = work.read(_FOUND)
    if check and (row or entry):
        row_ptr = _copied(arrays.row_ptr, arrays.row_bytes, arrays.m + 1)
        csr.require_right(row_ptr, _copied(arrays.col_idx, arrays.col_bytes, arrays.nnz), arrays.nnz, arrays.k)
        require_both((row, entry))
    return Facts(longest, falls == starts, fingerprint, shares)


def _shares(work, device, stream, of: tuple[int, int, int, int], windows: int) -> tuple[int, ...]:
    """`shared`; of: addresses of row_ptr and col_idx, int32, m, and non-zeros; waits for the stream."""
    row_ptr, col_idx, m, nnz = of
    if not m or not nnz:
        return (0,) * len(HEIGHTS)
    blocks, given = min(-(-m // WINDOW), windows), (row_ptr, col_idx, np.int32(m), np.int32(nnz))
    sums = work.sums + _AT, work.found + _AT
    workspace.enqueue(device, stream, SOURCE, _SAMPLE, blocks, workspace.THREADS, *given, *sums)
    stream.sync()
    columns = work.read(_SHARED, _AT)
    scale = nnz / max(1, columns[0])  # for the whole matrix
    return tuple([round(x * scale) for x in columns])


def shared(a: Csr, windows: int = ALL) -> tuple[int, ...]:
    """Columns that groups of `HEIGHTS` rows have together, by a sample of so many windows of 64 rows at most.

    a: of CuPy arrays. Right where every window is looked at and has a thousand entries at most; else by a sample of its
    columns.
    """
    device, stream = workspace.on_cupys_stream()
    work = workspace.of(device)
    with work.lock:
        return _shares(work, device, stream, (a.row_ptr.data.ptr, a.col_idx.data.ptr, a.m, a.nnz), windows)


def _copied(address: int, size: int, count: int) -> np.ndarray:
    """Return integers of so many bytes that lie on the GPU, on the host."""
    made = np.empty(count, f"i{size}")
    read = driver.cuMemcpyDtoH(made.ctypes.data, address, made.nbytes)
    gpu.succeeded(read, "memory of the GPU cannot be read ({}): end what broke its context", gpu.NoGpu)
    return made


def taken(m: int, k: int, row_ptr, col_idx, val, *, check: bool = True) -> Csr:
    """Return a `Csr` of CuPy arrays: indices of 32 or 64 bits, float32 values; int32 indices are shared, not copied.

    Raises ValueError, one sentence, where they make no CSR matrix of that size.
    """
    csr.require_sizes(m, k)
    m, k, nnz = int(m), int(k), int(val.shape[0])
    csr.require_lengths(m, row_ptr.shape[0], col_idx.shape[0], nnz)
    given = row_ptr, col_idx
    rows, columns = (x if x.dtype == np.int32 else cupy.empty(x.shape, np.int32) for x in given)
    to = [0 if x is y else y.data.ptr for x, y in zip(given, (rows, columns), strict=True)]
    arrays = Arrays(m, k, nnz, row_ptr.data.ptr, col_idx.data.ptr, row_ptr.dtype.itemsize, col_idx.dtype.itemsize)
    device, stream = workspace.on_cupys_stream()
    facts = looked(arrays, device, stream, check=check, share=True, rows=to[0], columns=to[1])
    return Csr(m, k, rows, columns, val, facts)


def checked(a: Csr) -> Csr:
    """Return a `Csr` of CuPy arrays with its facts, or ValueError, one sentence, where its indices are wrong."""
    arrays = Arrays(a.m, a.k, a.nnz, a.row_ptr.data.ptr, a.col_idx.data.ptr, 4, 4)
    return replace(a, facts=looked(arrays, *workspace.on_cupys_stream(), share=True))


def facts_of(a: Csr) -> Facts:
    """Return the facts of a right `Csr` of CuPy arrays: those that it has, or by a look at it; with what rows share."""
    return a.facts or checked(a).facts
