"""Products without a plan, in one launch: `spmm` of CSR that lies on the GPU, and SDDMM at its places.

look   checks A's indices, and is waited for
direct multiplies A as it was brought: anything else, and rows so long that one block would be busy with them for
       long, goes by a plan
sddmm  what training asks of A's values. Of C = A · B with the gradient G of C, the gradient of A's value at row i,
       column j is the product of row i of G and row j of B, so (G · Bᵀ) at A's places
"""

import sys
from math import ceil
from typing import Any

import numpy as np

from .. import jit, workspace
from ..contract import require
from ..formats import arrays, csr, intake
from . import current, dense
from .dense import Dense, require_no_grad

SOURCE, SAMPLED = (jit.ROOT / "library" / f"{name}.cu" for name in ("direct", "sddmm"))
WARPS = 8  #: of a block, each with a row
LONGEST = 16384  #: entries of a row
#: dtype of indices -> their bytes, what direct.cu calls them; of values: what it calls them, how many a word holds.
_INDICES = {"int32": (4, "int"), "int64": (8, "long long")}
_NUMBERS = {"float32": ("Float", 1), "bfloat16": ("Sixteen<BF16>", 2), "float16": ("Sixteen<F16>", 2)}


def brought(a) -> tuple[Any, ...] | None:
    """Return (row_ptr, col_idx, val) of CSR on a GPU in arrays of PyTorch or CuPy; None of anything else."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(a, torch.Tensor):
        if a.layout is not torch.sparse_csr or not a.is_cuda or a.dim() != 2:
            return None
        require_no_grad(a, "A")
        a = a.detach()
        val = a.values()
        return None if val.dim() != 1 or val.is_neg() else (a.crow_indices(), a.col_indices(), val)
    if type(a) is csr.Csr and arrays.array_module(a.val) is not np:
        return a.row_ptr, a.col_idx, a.val
    if getattr(a, "format", "") == "csr" and type(a).__module__.startswith("cupyx."):
        return a.indptr, a.indices, a.data
    return None


def multiplied(a, b, given: Dense, out, alpha: float, beta: float, stream, check: bool):
    """alpha · A · B + beta · out, or None where a plan has to do it; given: what `dense.describe` says of B.

    Raises ValueError, one sentence, where the lengths of A's arrays make no CSR matrix, or its indices are wrong.
    """
    parts = brought(a)
    if parts is None:
        return None
    rows, columns, values = (dense.describe(x, "A") for x in parts)
    plain = all(len(x.shape) == 1 and (x.strides == (1,) or x.shape[0] < 2) for x in (rows, columns, values))
    if not plain or not {rows.dtype, columns.dtype} <= _INDICES.keys() or values.dtype not in _NUMBERS:
        return None
    m, k = map(int, (a.m, a.k) if type(a) is csr.Csr else a.shape)
    csr.require_sizes(m, k)
    csr.require_lengths(m, rows.shape[0], columns.shape[0], values.shape[0])
    for x, name in ((b, "B"), (out, "out")):
        require_no_grad(x, name)
    nnz, ordinal = values.shape[0], values.device
    fits = len(given.shape) == 2 and given.shape[0] == k and given.dtype == values.dtype and given.device == ordinal
    if not fits or not dense.is_laid(given, "C") or 0 in (m, nnz, *given.shape):
        return None
    kind, in_a_word = _NUMBERS[given.dtype]
    wide, odd = divmod(given.shape[1], in_a_word)
    words = width(wide, given.ptr)
    while words > 1 and wide <= 16 * words:  # lanes would have nothing to do
        words //= 2
    blocks = ceil(m / WARPS) * ceil(wide / (32 * max(1, words)))
    if odd or not words or blocks > csr.INT32_MAX:
        return None
    pointer = dense.current(b, ordinal) if stream is None else dense.address_of(stream)
    if out is not None:
        to = dense.describe(out, "out")
        fits = (
            to.shape == (m, given.shape[1])
            and to.dtype == given.dtype
            and to.device == ordinal
            and dense.is_laid(to, "C")
        )
        if not fits or to.ptr % (4 * words) or not dense.apart(given, to):
            return None  # a plan does it, or says what is wrong
    (row_bytes, row_kind), (col_bytes, col_kind) = _INDICES[rows.dtype], _INDICES[columns.dtype]
    with current.opened(ordinal) as device:
        flow = workspace.stream_at(pointer, device)
        lies = intake.Arrays(m, k, nnz, rows.ptr, columns.ptr, row_bytes, col_bytes)
        if check and intake.looked(lies, device, flow, prints=False).longest > LONGEST:
            return None
        if out is None:
            out = dense.empty(b, (m, given.shape[1]), given.dtype, "C", ordinal, None if stream is None else pointer)
        entry = f"direct<{row_kind}, {col_kind}, {kind}, {words}>"
        places = rows.ptr, columns.ptr, values.ptr, given.ptr, np.int64(wide), dense.describe(out, "out").ptr
        sizes = np.int64(wide), np.int32(m), np.int32(wide), np.float32(alpha), np.float32(beta)
        workspace.enqueue(device, flow, SOURCE, entry, blocks, 32 * WARPS, *places, *sizes)
    return out


def width(n: int, *addresses: int) -> int:
    """Words of 4 bytes that a lane loads at once: rows of n of them begin at multiples; 0: at no word."""
    return next((w for w in (4, 2, 1) if n % w == 0 and all(x % (4 * w) == 0 for x in addresses)), 0)


class Sampled:
    """(G · Bᵀ) at the places of A (m, k), a `Csr` on a current GPU: float32 (nnz,), in the order of A's values.

    made = Sampled(a, device)
    made(g, b)      # G (m, n), B (k, n): row-major float32 of PyTorch, CuPy or others
    """

    def __init__(self, a: csr.Csr, device):
        self.a, self.device = a, device
        self._row = csr.rows(a).astype(np.int32)
        device.sync()  # rows are there, whatever stream comes next

    def __call__(self, g, b):
        """Return the values, on the current stream. Raises ValueError, one sentence, for other shapes or dtypes."""
        ordinal, nnz = self.device.device_id, self.a.nnz
        require_no_grad(g, "G")
        require_no_grad(b, "B")
        left, right = dense.describe(g, "G"), dense.describe(b, "B")
        for name, x, rows in (("G", left, self.a.m), ("B", right, self.a.k)):
            require(
                len(x.shape) == 2
                and x.shape[0] == rows
                and x.dtype == "float32"
                and x.device == ordinal
                and dense.is_laid(x, "C"),
                f"{name} is {x.dtype} {tuple(x.shape)} on GPU {x.device}, but must be row-major float32 of {rows} rows "
                f"on GPU {ordinal}",
            )
        n = left.shape[1]
        require(
            right.shape[1] == n,
            f"G has {n} columns and B {right.shape[1]}, but a product of their rows needs as many",
        )
        out = dense.empty(b, (nnz,), "float32", "C", ordinal, None)
        if nnz == 0:
            return out
        words = width(n, left.ptr, right.ptr)
        require(words > 0, "G or B begins at an address that is no multiple of 4 bytes: copy it")
        with current.opened(ordinal):
            flow = workspace.stream_at(dense.current(b, ordinal), self.device)
            blocks = ceil(nnz / (32 * WARPS))
            places = self._row.data.ptr, self.a.col_idx.data.ptr, left.ptr, right.ptr, dense.describe(out, "out").ptr
            sizes = np.int32(nnz), np.int32(n)
            workspace.enqueue(self.device, flow, SAMPLED, f"sddmm<{words}>", blocks, (32, WARPS), *sizes, *places)
        return out
