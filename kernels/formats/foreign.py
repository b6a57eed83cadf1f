"""Sparse matrices of SciPy and CuPy as they come: whose they are, and checks before anything reads through them.

SciPy's conversions read and write wherever indices and pointers say, and check none of them: an index beyond the
matrix ends the process, or makes a matrix that looks right. So `checked` comes first, in a few passes over the indices.
"""

import sys

import numpy as np

from ..contract import require
from . import arrays, csr
from .arrays import INDEX, array_module, require_none

#: Format -> (its pointers, its indices, what these count).
COMPRESSED = {
    "csr": ("row_ptr", "col_idx", "columns"),
    "csc": ("col_ptr", "row_idx", "rows"),
    "bsr": ("row_ptr", "col_idx", "columns of blocks"),
    "bsc": ("col_ptr", "row_idx", "rows of blocks"),  # PyTorch's
}


def is_sparse(a) -> bool:
    """Whether it is a sparse matrix of SciPy or CuPy, or of a class made from theirs; neither need be there."""
    libraries = (sys.modules.get(name) for name in ("scipy.sparse", "cupyx.scipy.sparse"))
    return any(library is not None and library.issparse(a) for library in libraries)


def checked(a, everything: bool = False):
    """Return a sparse matrix (m, k) of SciPy or CuPy, or raise ValueError: one sentence, which array is wrong, where.

    What may follow of it is its own conversion. Indices of CSR are only counted, since `csr.validate` looks at them,
    unless `everything` is asked.
    """
    require(len(a.shape) == 2, f"A has {len(a.shape)} dimensions, but a matrix has 2")
    kind = a.format
    if kind in COMPRESSED:
        _require_compressed(a, everything)
    elif kind == "coo":
        for name, index, count, what in (
            ("row_idx", a.row, a.shape[0], "rows"),
            ("col_idx", a.col, a.shape[1], "columns"),
        ):
            require_whole_numbers("COO", name, index)
            require(
                a.data.ndim == 1 and index.shape == a.data.shape,
                f"COO {name} has {index.shape[0]} entries, but there are {a.data.size} values: there must be as many",
            )
            require_within("COO", name, index, count, what)
    elif kind == "dia":
        require_whole_numbers("DIA", "offsets", a.offsets)
        require(
            a.data.ndim == 2 and a.data.shape[0] == a.offsets.shape[0],
            f"DIA values are {tuple(a.data.shape)}, but {a.offsets.shape[0]} diagonals need a row of them each",
        )
    elif kind == "lil":
        columns, values = (np.array([len(x) for x in lists]) for lists in (a.rows, a.data))
        require(
            len(columns) == len(values) == a.shape[0],
            f"LIL has {len(columns)} lists of columns and {len(values)} of values, but {a.shape[0]} rows",
        )
        require_none(
            columns != values,
            lambda row: f"LIL row {row} has {columns[row]} columns and {values[row]} values, but must have as many",
        )
    return a  # "dok", whose conversion checks each key


def csr_arrays(a) -> tuple:
    """(pointers, indices, values) in CSR of what `checked` takes, which it is; `csr.validate` is yet to come."""
    a = checked(a).tocsr()
    stored = a.data.shape[0]
    if array_module(a.data) is np and a.indptr.shape[0]:
        stored = max(0, int(a.indptr[-1]))  # SciPy's arrays may be longer
    return a.indptr, a.indices[:stored], a.data[:stored]


def _require_compressed(a, everything: bool) -> None:
    kind, (m, k) = a.format, a.shape
    pointers, indices, what = COMPRESSED[kind]
    block = (1, 1)
    if kind in ("bsr", "bsc"):
        dimensions = getattr(a.data, "ndim", 0)
        require(
            dimensions == 3 and min(a.data.shape[1:]) > 0,
            f"{kind.upper()} values have {dimensions} dimensions, but must be blocks, rows and columns of a block",
        )
        block = a.data.shape[1:]
    counted, within = (-(-size // side) for size, side in zip((m, k), block, strict=True))
    if kind in ("csc", "bsc"):
        counted, within = within, counted
    stored = min((*getattr(x, "shape", ()), 0)[0] for x in (a.indices, a.data))
    parts = {pointers: a.indptr, indices: a.indices}
    require_compressed(kind.upper(), parts, counted, within, what, stored, everything or kind != "csr")


def require_compressed(
    kind: str, parts: dict, rows: int, within: int, what: str, stored: int, indices_too: bool = True
) -> None:
    """Raise ValueError, one sentence, for pointers or indices of a compressed format that are wrong; NumPy or CuPy.

    parts: {name: pointers (rows + 1,), name: indices}. within: an index is under it. what: the indices' word. stored:
    entries that there are, at least as many as pointers end at. indices_too: look at indices, and at pointers between.
    """
    for name, x in parts.items():
        require_whole_numbers(kind, name, x)
    (pointers, ptr), (indices, index) = parts.items()
    require(
        ptr.shape[0] == rows + 1,
        f"{kind} {pointers} has {ptr.shape[0]} entries, but {rows} {'columns' if pointers == 'col_ptr' else 'rows'}"
        f"{' of blocks' if 'blocks' in what else ''} need {rows + 1}",
    )
    word, held = "column" if indices == "col_idx" else "row", "blocks" if kind in ("BSR", "BSC") else "values"
    ends = f"there are {index.shape[0]} {word} indices and {stored} {held}: all three must agree"
    fault = None
    if array_module(ptr) is not np:
        sizes = np.int64(rows), index, np.int64(stored), np.int64(within)
        entry = f"compressed<{_named(kind, pointers, ptr)}, {_named(kind, indices, index)}>"
        fault = arrays.first_fault(entry, max(rows + 1, stored), ptr, *sizes) if indices_too else None
        if not fault:
            return
        ptr, index = ptr.get(), index.get()
    if indices_too or ptr[-1] > stored:
        end = min(int(ptr[-1]), stored)
        csr.require_indices(kind, {pointers: ptr, indices: index[:end]}, end, ends, within, what)
    arrays.require_both(fault)


def require_within(kind: str, name: str, index, count: int, what: str) -> None:
    """Raise ValueError, one sentence, unless indices are 0 to count - 1; NumPy or CuPy."""
    fault = None
    if array_module(index) is not np:
        size, entry = index.shape[0], f"within<{_named(kind, name, index)}>"
        fault = arrays.first_fault(entry, size, index, np.int64(size), np.int64(count))
        if not fault:
            return
        index = index.get()
    csr.require_within(kind, name, index, count, what)
    arrays.require_both(fault)


def _named(kind: str, name: str, index) -> str:
    """Return what checks.cu calls the dtype of indices."""
    require(
        index.dtype.name in INDEX and index.flags.c_contiguous,
        f"{kind} {name} is {index.dtype}, but must be contiguous {' or '.join(INDEX)}: convert it",
    )
    return INDEX[index.dtype.name]


def require_whole_numbers(kind: str, name: str, x) -> None:
    """Raise ValueError, one sentence, unless an array of indices has one dimension and whole numbers."""
    dtype = getattr(x, "dtype", type(x).__name__)
    require(
        getattr(dtype, "kind", "") in ("i", "u") and x.ndim == 1,
        f"{kind} {name} is {getattr(x, 'ndim', 1)}-dimensional {dtype}, but must be 1-dimensional whole numbers",
    )
