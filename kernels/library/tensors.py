"""Sparse tensors of PyTorch as A: COO, CSR, CSC, BSR, BSC and 2:4, checked before anything reads through their indices.

PyTorch checks no index by default, and its conversions read and write wherever one points. PyTorch is imported by
whoever has a tensor.
"""

from types import SimpleNamespace

import numpy as np

from ..contract import require
from ..formats import bcsr, csr, foreign, half, two_four
from ..formats.bcsr import Bcsr
from ..lazy import torch
from . import operands
from .dense import named


def operand(a, accuracy):
    """One of `operands.FORMATS`, on the tensor's side; what an own format checks is still to come."""
    a = a.detach()
    require(a.dim() == 2, f"A has {a.dim()} dimensions, but a matrix has 2")
    require(
        a.device.type in ("cpu", "cuda"),
        f"A is a tensor on {a.device.type}, but must be on the host or on a GPU: copy it",
    )
    if operands.is_semi_structured(a):
        dtype = named(a.dtype)
        half.require_dtype(dtype)
        return two_four.compress(_bits(a.to_dense()), dtype)
    layout = str(a.layout).removeprefix("torch.")
    require(
        layout in _LAYOUTS,
        f"A is a PyTorch tensor in {layout}, but COO, CSR, CSC, BSR, BSC and 2:4 are taken: convert it with "
        "to_sparse_csr()",
    )
    return _LAYOUTS[layout](a, accuracy)


def _bits(x):
    """Bit patterns, uint16, of a tensor of 16 bits, whose dtype not every library has."""
    return operands.array(x.resolve_neg().contiguous().view(torch.int16)).view(np.uint16)


# ---------------------------------------------------------------- by layout


def _of_coo(a, accuracy):
    require(
        a.dense_dim() == 0,
        f"A is a hybrid COO tensor, whose entries are {a.dense_dim()}-dimensional arrays, as an embedding's sparse "
        "gradient has them: bring numbers for entries, as to_dense().to_sparse() makes them",
    )
    index, val = a._indices(), operands.real(a._values())
    row, column, data = map(operands.array, (*index, val))
    foreign.checked(SimpleNamespace(format="coo", shape=a.shape, row=row, col=column, data=data))
    # Whoever says that a tensor is coalesced need not be right.
    sums = a.is_coalesced() and bool((index[0, 1:] >= index[0, :-1]).all())
    made = torch.sparse_coo_tensor(index, val, a.shape, is_coalesced=sums or None, check_invariants=False)
    return _of_csr(made.coalesce().to_sparse_csr(), accuracy)


def _of_csr(a, accuracy):
    val = operands.float32(operands.array(operands.real(a.values())), accuracy)
    return operands.csr_of(*a.shape, operands.array(a.crow_indices()), operands.array(a.col_indices()), val)


def _of_csc(a, accuracy):
    pointers, indices = _checked(a, "CSC")
    made = torch.sparse_csc_tensor(pointers, indices, operands.real(a.values()), a.shape, check_invariants=False)
    return _of_csr(made.to_sparse_csr(), accuracy)


def _of_bsr(a, accuracy):
    row_ptr, col_idx = (operands.array(x.int()) for x in _checked(a, "BSR"))
    val, dtype = a.values(), named(a.dtype)
    if dtype not in csr.DTYPES or not set(val.shape[1:]) <= set(bcsr.SIDES):
        val = operands.float32(operands.array(operands.real(val)), accuracy)
        return operands.blocks_of(*a.shape, row_ptr, col_idx, val)
    nnz = int(torch.count_nonzero(val))
    val = operands.array(val) if dtype == "float32" else _bits(val)
    return bcsr.in_order(Bcsr(*map(int, a.shape), dtype, row_ptr, col_idx, val, nnz))


def _of_bsc(a, accuracy):
    pointers, indices = _checked(a, "BSC")
    made = torch.sparse_bsc_tensor(pointers, indices, a.values(), a.shape, check_invariants=False)
    return _of_bsr(made.to_sparse_bsr(tuple(a.values().shape[1:])), accuracy)


_LAYOUTS = {
    "sparse_coo": _of_coo,
    "sparse_csr": _of_csr,
    "sparse_csc": _of_csc,
    "sparse_bsr": _of_bsr,
    "sparse_bsc": _of_bsc,
}


def _checked(a, kind: str) -> tuple:
    """(pointers, indices) of CSC, BSR or BSC; ValueError, one sentence, where a conversion would read beyond."""
    val = a.values()
    require(
        val.dim() == (1 if kind == "CSC" else 3) and 0 not in val.shape[1:],
        f"the values of A are {tuple(val.shape)}, but must be blocks, rows and columns of a block",
    )
    sizes = [-(-size // side) for size, side in zip(a.shape, val.shape[1:] or (1, 1), strict=True)]
    if kind == "BSR":
        names, parts, what = ("row_ptr", "col_idx"), (a.crow_indices(), a.col_indices()), "columns"
    else:
        names, parts, what = ("col_ptr", "row_idx"), (a.ccol_indices(), a.row_indices()), "rows"
        sizes.reverse()
    entries = min(val.shape[0], parts[1].shape[0])
    arrays = dict(zip(names, map(operands.array, parts), strict=True))
    rows, within = sizes
    foreign.require_compressed(kind, arrays, rows, within, what + " of blocks" * (kind != "CSC"), entries)
    end = int(parts[0][-1])
    require(
        end == val.shape[0] == parts[1].shape[0],
        f"{kind} {names[0]} ends at {end}, but there are {parts[1].shape[0]} indices and {val.shape[0]} values: all "
        "three must agree",
    )
    return parts
