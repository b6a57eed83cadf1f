"""Sparse tensors of PyTorch as A: COO, CSR, CSC, BSR, BSC and 2:4, checked before anything reads through their indices.

PyTorch checks no index by default, and its conversions read and write wherever one points. All that is asked of indices
here is asked with PyTorch's own operations, which are compiled already, and comes to the host in one copy. PyTorch is
imported by whoever has a tensor.
"""

from __future__ import annotations

import numpy as np

from ..contract import require
from ..formats import bcsr, csr, half, stored, two_four
from ..formats.bcsr import Bcsr
from . import operands


def operand(a, accuracy):
    """One of `operands.FORMATS`, on the tensor's side; what an own format checks is still to come."""
    import torch

    a = a.detach()
    if a.layout is torch.sparse_csr and a.dim() == 2 and a.is_cuda:
        return _of_csr(a, accuracy)
    require(a.dim() == 2, f"A has {a.dim()} dimensions, but a matrix has 2")
    require(
        a.device.type in ("cpu", "cuda"),
        f"A is a tensor on {a.device.type}, but must be on the host or on a GPU: copy it",
    )
    if operands.is_semi_structured(a):
        dtype = _dtype(a)
        half.require_dtype(dtype)
        return two_four.compress(_bits(a.to_dense()), dtype)
    layout = str(a.layout).removeprefix("torch.")
    make = {
        "sparse_coo": _of_coo,
        "sparse_csr": _of_csr,
        "sparse_csc": _of_csc,
        "sparse_bsr": _of_bsr,
        "sparse_bsc": _of_bsc,
    }.get(layout)
    require(
        make is not None,
        f"A is a PyTorch tensor in {layout}, but COO, CSR, CSC, BSR, BSC and 2:4 are taken: convert it with "
        "to_sparse_csr()",
    )
    return make(a, accuracy)


def values(x):
    """Values in a dtype that NumPy has, exact: floats of 16 and 8 bits in float32. ValueError for what is not real."""
    require(
        not x.is_complex() and not x.is_quantized,
        f"A holds {_dtype(x)}, but a matrix is real here",
    )
    if not x.is_floating_point() or x.dtype.itemsize >= 4:
        return x
    try:
        return x.float()
    except RuntimeError as error:
        raise ValueError(f"A holds {_dtype(x)}, which PyTorch does not convert: bring float32") from error


def _bits(x):
    """Bit patterns, uint16, of a tensor of 16 bits, whose dtype not every library has."""
    import torch

    return operands.array(x.resolve_neg().contiguous().view(torch.int16)).view(np.uint16)


def _dtype(x) -> str:
    return str(x.dtype).removeprefix("torch.")


# ---------------------------------------------------------------- by layout


def _of_coo(a, accuracy):
    import torch

    require(
        a.dense_dim() == 0,
        f"A is a hybrid COO tensor, whose entries are {a.dense_dim()}-dimensional arrays, as an embedding's sparse "
        "gradient has them: bring numbers for entries, as to_dense().to_sparse() makes them",
    )
    index, val = a._indices(), values(a._values())
    _require_whole_numbers("COO", "indices", index, 2)
    require(
        index.shape == (2, val.shape[0]),
        f"COO indices are {tuple(index.shape)}, but {val.shape[0]} values need {(2, val.shape[0])}",
    )
    _require_within("COO", {"row_idx": index[0], "col_idx": index[1]}, a.shape, ("rows", "columns"))
    # Whoever says that a tensor is coalesced need not be right.
    sums = a.is_coalesced() and bool((index[0, 1:] >= index[0, :-1]).all())
    made = torch.sparse_coo_tensor(index, val, a.shape, is_coalesced=sums or None, check_invariants=False)
    return _of_csr(made.coalesce().to_sparse_csr(), accuracy)


def _of_csr(a, accuracy):
    val = operands.float32(operands.array(values(a.values())), accuracy)
    if a.is_cuda:  # one launch narrows and checks them
        return operands.csr_of(*a.shape, operands.array(a.crow_indices()), operands.array(a.col_indices()), val)
    row_ptr, col_idx = (
        _index("CSR", "row_ptr", a.crow_indices()),
        _index("CSR", "col_idx", a.col_indices()),
    )
    return operands.csr_of(*a.shape, row_ptr, col_idx, val)


def _of_csc(a, accuracy):
    import torch

    _require_compressed(a, "CSC", ("col_ptr", a.ccol_indices()), ("row_idx", a.row_indices()), (1, 1))
    made = torch.sparse_csc_tensor(
        a.ccol_indices(), a.row_indices(), values(a.values()), a.shape, check_invariants=False
    )
    return _of_csr(made.to_sparse_csr(), accuracy)


def _of_bsr(a, accuracy):
    import torch

    val, block = a.values(), _block(a)
    _require_compressed(a, "BSR", ("row_ptr", a.crow_indices()), ("col_idx", a.col_indices()), block)
    row_ptr, col_idx = (
        _index("BSR", "row_ptr", a.crow_indices()),
        _index("BSR", "col_idx", a.col_indices()),
    )
    dtype = _dtype(a)
    if dtype not in stored.DTYPES or not set(block) <= set(bcsr.SIDES):
        val = operands.float32(operands.array(values(val)), accuracy)
        return operands.blocks_of(*a.shape, row_ptr, col_idx, val)
    nnz = int(torch.count_nonzero(val))
    val = operands.array(val) if dtype == "float32" else _bits(val)
    made = Bcsr(*map(int, a.shape), dtype, row_ptr, col_idx, val, nnz)
    return operands.ascending(made)


def _of_bsc(a, accuracy):
    import torch

    block = _block(a)
    _require_compressed(a, "BSC", ("col_ptr", a.ccol_indices()), ("row_idx", a.row_indices()), block)
    made = torch.sparse_bsc_tensor(a.ccol_indices(), a.row_indices(), a.values(), a.shape, check_invariants=False)
    return _of_bsr(made.to_sparse_bsr(block), accuracy)


def _block(a) -> tuple[int, int]:
    val = a.values()
    require(
        val.dim() == 3 and 0 not in val.shape[1:],
        f"the values of A are {tuple(val.shape)}, but must be blocks, rows and columns of a block",
    )
    return tuple(val.shape[1:])


# ---------------------------------------------------------------- indices


def _index(kind: str, name: str, x):
    """Indices as a NumPy or CuPy array of int32; ValueError where one needs more bits."""
    import torch

    _require_whole_numbers(kind, name, x)
    if x.dtype == torch.int32 or not x.is_cuda:
        return csr.narrowed(kind, name, operands.array(x), copy=False)
    low, high = _ends([x])[0]
    if not -csr.INT32_MAX <= low <= high <= csr.INT32_MAX:
        at = int((x == (high if high > csr.INT32_MAX else low)).nonzero()[0])
        raise ValueError(csr.too_wide(kind, name, at, int(x[at])))
    return operands.array(x.to(torch.int32))


def _ends(every: list) -> list[tuple[int, int]]:
    """(least, largest) of several tensors of one length, in one copy; (0, 0) of empty ones."""
    import torch

    if every[0].shape[0] == 0:
        return [(0, 0)] * len(every)
    found = torch.stack([end for x in every for end in torch.aminmax(x)]).tolist()
    return list(zip(found[::2], found[1::2], strict=True))


def _require_whole_numbers(kind: str, name: str, x, dimensions: int = 1) -> None:
    import torch

    require(
        x.dtype in (torch.int64, torch.int32) and x.dim() == dimensions,
        f"{kind} {name} is {x.dim()}-dimensional {_dtype(x)}, but must be {dimensions}-dimensional int64 or int32",
    )


def _require_within(kind: str, every: dict, counts, what) -> None:
    """Raise ValueError, one sentence, unless indices are 0 to count - 1."""
    ends = _ends(list(every.values()))
    for (name, x), (low, high), count, word in zip(every.items(), ends, counts, what, strict=True):
        if x.shape[0] and not 0 <= low <= high < count:
            at = int(((x < 0) | (x >= count)).nonzero()[0])
            raise ValueError(csr.outside(kind, name, at, int(x[at]), word, count))


def _require_compressed(a, kind: str, pointers, indices, block: tuple[int, int]) -> None:
    """Raise ValueError, one sentence, for pointers or indices that would be read through in a conversion."""
    (name, ptr), (index_name, index) = pointers, indices
    _require_whole_numbers(kind, name, ptr)
    _require_whole_numbers(kind, index_name, index)
    rows, columns = (-(-size // side) for size, side in zip(a.shape, block, strict=True))
    by_columns = name == "col_ptr"
    counted, within = (columns, rows) if by_columns else (rows, columns)
    of_blocks = " of blocks" * (block != (1, 1))
    word, other = ("columns", "rows") if by_columns else ("rows", "columns")
    entries = a.values().shape[0]
    require(
        ptr.shape[0] == counted + 1,
        f"{kind} {name} has {ptr.shape[0]} entries, but {counted} {word}{of_blocks} need {counted + 1}",
    )
    first, last = ptr[[0, -1]].tolist()
    require(first == 0, f"{kind} {name} starts at {first}, but must start at 0")
    falling = ptr[1:] < ptr[:-1]
    if bool(falling.any()):
        at = int(falling.nonzero()[0])
        raise ValueError(csr.falls(kind, name, at, int(ptr[at]), int(ptr[at + 1])))
    require(
        last == index.shape[0] == entries,
        f"{kind} {name} ends at {last}, but there are {index.shape[0]} {other[:-1]} indices and {entries} "
        f"{'blocks' if of_blocks else 'values'}: all three must agree",
    )
    _require_within(kind, {index_name: index}, (within,), (f"{other}{of_blocks}",))
