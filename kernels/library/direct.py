"""`spmm` without a plan: CSR that lies on the GPU, read as it was brought.

    look   checks A's indices, and is waited for
    direct multiplies, in one launch

Everything else, and rows so long that one block would be busy with them for long, goes by a plan.
"""

import sys
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from .. import workspace
from ..formats import csr, intake
from ..formats.csr import INT32_MAX, Csr
from ..formats.half import array_module
from . import current, dense
from .dense import Dense, require_no_grad

SOURCE = Path(__file__).with_name("direct.cu")
WARPS = 8  #: of a block, each with a row
LONGEST = 16384  #: entries of a row
_KINDS = {4: "int", 8: "long long"}
_NUMBERS = {
    "float32": ("Float", 1),
    "bfloat16": ("Sixteen<BF16>", 2),
    "float16": ("Sixteen<F16>", 2),
}


@dataclass(frozen=True)
class Brought:
    """A CSR matrix on a GPU as somebody brings it; `keep` holds its arrays."""

    arrays: intake.Arrays
    values: Dense
    keep: Any


def brought(a) -> Brought | None:
    """Return A as it lies, where it is CSR on a GPU in contiguous arrays of PyTorch or CuPy; None for anything else.

    Raises ValueError, one sentence, where the arrays' lengths make no CSR matrix.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        if a.layout is not torch.sparse_csr or not a.is_cuda or a.dim() != 2:
            return None
        require_no_grad(a, "A")
        a = a.detach()
        parts = a.crow_indices(), a.col_indices(), a.values()
        if parts[2].dim() != 1 or parts[2].is_neg():
            return None
    elif type(a) is Csr and array_module(a.val) is not np:
        parts = a.row_ptr, a.col_idx, a.val
    elif getattr(a, "format", "") == "csr" and type(a).__module__.startswith("cupyx."):
        parts = a.indptr, a.indices, a.data
    else:
        return None
    rows, columns, values = (dense.describe(x, "A") for x in parts)
    m, k = (a.m, a.k) if type(a) is Csr else a.shape
    plain = all(len(x.shape) == 1 and (x.strides == (1,) or x.shape[0] < 2) for x in (rows, columns, values))
    row_bytes, col_bytes = _INDICES.get(rows.dtype), _INDICES.get(columns.dtype)
    if not plain or row_bytes is None or col_bytes is None or values.dtype not in _NUMBERS:
        return None
    csr.require_sizes(m, k)
    csr.require_lengths(m, rows.shape[0], columns.shape[0], values.shape[0])
    arrays = intake.Arrays(int(m), int(k), values.shape[0], rows.ptr, columns.ptr, row_bytes, col_bytes)
    return Brought(arrays, values, parts)


_INDICES = {"int32": 4, "int64": 8}


def multiplied(a: Brought, b, given: Dense, out, alpha: float, beta: float, stream, check: bool):
    """alpha · A · B + beta · out, or None where a plan has to do it; given: what `dense.describe` says of B.

    Raises ValueError, one sentence, where A's indices are wrong.
    """
    for x, name in ((b, "B"), (out, "out")):
        require_no_grad(x, name)
    m, k, nnz = a.arrays.m, a.arrays.k, a.arrays.nnz
    ordinal = a.values.device
    fits = len(given.shape) == 2 and given.shape[0] == k and given.dtype == a.values.dtype and given.device == ordinal
    n = given.shape[1] if fits else 0
    if not fits or not dense.is_laid(given, "C") or 0 in (m, k, n, nnz):
        return None
    kind, columns = _NUMBERS[given.dtype]
    width, odd = divmod(n, columns)
    words = next((w for w in (4, 2, 1) if width % w == 0 and given.ptr % (4 * w) == 0), 0)
    if odd or not words:
        return None
    while words > 1 and width <= 16 * words:  # lanes would have nothing to do
        words //= 2
    blocks = ceil(m / WARPS) * ceil(width / (32 * words))
    if blocks > INT32_MAX:
        return None
    pointer = dense.current(b, ordinal) if stream is None else dense.address_of(stream)
    if out is not None:
        to = dense.describe(out, "out")
        fits = to.shape == (m, n) and to.dtype == given.dtype and to.device == ordinal and dense.is_laid(to, "C")
        if not fits or to.ptr % (4 * words) or not dense.apart(given, to):
            return None  # a plan does it, or says what is wrong
    with current.opened(ordinal) as device:
        flow = dense.opened(pointer, device)
        if check and intake.looked(a.arrays, device, flow, prints=False).longest > LONGEST:
            return None
        if out is None:
            out = dense.empty(b, (m, n), given.dtype, "C", ordinal, None if stream is None else pointer)
        to = dense.describe(out, "out")
        entry = f"direct<{_KINDS[a.arrays.row_bytes]}, {_KINDS[a.arrays.col_bytes]}, {kind}, {words}>"
        workspace.enqueue(
            device,
            flow,
            SOURCE,
            entry,
            blocks,
            32 * WARPS,
            a.arrays.row_ptr,
            a.arrays.col_idx,
            a.values.ptr,
            given.ptr,
            np.int64(width),
            to.ptr,
            np.int64(width),
            np.int32(m),
            np.int32(width),
            np.float32(alpha),
            np.float32(beta),
        )
    return out
