"""The product of two dense matrices at the places of a sparse one (SDDMM): what training asks of A's values.

Of C = A · B with the gradient G of C, the gradient of A's value at row i, column j is the product of row i of G and
row j of B, so (G · Bᵀ) at A's places. `sddmm.cu` says how.
"""

from math import ceil

import numpy as np

from .. import jit, workspace
from ..contract import require
from ..formats import csr
from ..formats.csr import Csr
from . import current, dense
from .dense import require_no_grad

SOURCE = jit.ROOT / "library" / "sddmm.cu"
WARPS = 8  #: of a block
ENTRIES = tuple(f"sddmm<{width}>" for width in (4, 2, 1))


def width(n: int, *addresses: int) -> int:
    """float32 values that a lane loads at once: rows of n must begin at multiples of them."""
    found = (v for v in (4, 2, 1) if n % v == 0 and all(x % (4 * v) == 0 for x in addresses))
    made = next(found, 0)
    require(made > 0, "G or B begins at an address that is no multiple of 4 bytes: copy it")
    return made


class Sampled:
    """(G · Bᵀ) at the places of A (m, k), a `Csr` on a current GPU: float32 (nnz,), in the order of A's values.

    made = Sampled(a, device)
    made(g, b)      # G (m, n), B (k, n): row-major float32 of PyTorch, CuPy or others
    """

    def __init__(self, a: Csr, device):
        self.a, self.device = a, device
        self._row = csr.rows(a).astype(np.int32)
        device.sync()  # rows are there, whatever stream comes next

    def __call__(self, g, b, out=None, *, stream=None):
        """Return the values; `out` where it is given. Raises ValueError, one sentence, for other shapes or dtypes."""
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
        pointer = dense.current(b, ordinal) if stream is None else dense.address_of(stream)
        if out is None:
            where = None if stream is None else pointer
            out = dense.empty(b, (nnz,), "float32", "C", ordinal, where)
        target = dense.describe(out, "out")
        require(
            target.shape == (nnz,)
            and target.dtype == "float32"
            and dense.is_laid(target, "C")
            and target.device == ordinal
            and not target.readonly,
            f"out is {target.dtype} {tuple(target.shape)} on GPU {target.device}, but must be contiguous float32 "
            f"{(nnz,)} on GPU {ordinal} that may be written",
        )
        if nnz == 0:
            return out
        v = width(n, left.ptr, right.ptr)
        with current.opened(ordinal):
            workspace.enqueue(
                self.device,
                dense.opened(pointer, self.device),
                SOURCE,
                f"sddmm<{v}>",
                ceil(nnz / (32 * WARPS)),
                (32, WARPS),
                np.int32(nnz),
                np.int32(n),
                self._row.data.ptr,
                self.a.col_idx.data.ptr,
                left.ptr,
                right.ptr,
                target.ptr,
            )
        return out
