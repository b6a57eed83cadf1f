"""G · Bᵀ at the places of a matrix in CSR, by libraries: cuSPARSE, with B in both orders, and PyTorch.

cuSPARSE computes op(X) · op(Y) at the places of C: Y is B (k, n), row-major and transposed, or Bᵀ column-major, which
is the same memory. float32, or float16 with float32 sums; bfloat16 it refuses. PyTorch's `sampled_addmm` is float32
alone, and writes into one tensor, since it would copy the pattern for a new one.
"""

from typing import Any

import numpy as np

from artifact.baselines._library import (
    ALPHA,
    BETA,
    PreparedKernel,
    cusparse,
    data_type,
    hold,
    on_stream,
    owned,
    refusing,
)
from artifact.baselines.cusparse import dense_matrix, pointers
from kernels.contract import timed
from kernels.formats import csr
from kernels.formats.csr import Csr
from kernels.lazy import cupy, torch
from kernels.library import Sampled

ORDERS = ("row", "column")  #: in which cuSPARSE is told that B lies
PART = 2**25  #: numbers that a reference multiplies at once


def prepare(order: str, a: Csr, g: Any, b: Any) -> PreparedKernel:
    """Make cuSPARSE's SDDMM ready: descriptors, work buffer, preprocessing.

    order: one of ORDERS. a: the pattern (m, k). g, b: CuPy arrays (m, n) and (k, n), row-major, float32 or float16. The
    result is (nnz,) in their dtype. Raises ValueError where the library refuses them.
    """
    (m, n), k, dtype = g.shape, b.shape[0], g.dtype.name
    out, data = cupy.zeros(a.nnz, g.dtype), data_type(dtype)
    by_rows = order == "row"
    says = f"cuSPARSE refuses SDDMM at {m} x {k}, nnz={a.nnz}, n={n} in {dtype}, B by {order}s"
    with refusing(says, cusparse.cuSPARSEError) as stack:
        handle = owned(stack, cusparse.destroy, cusparse.create())
        where = a.row_ptr.data.ptr, a.col_idx.data.ptr, out.data.ptr, *pointers(a)[3:]
        mat_c = owned(stack, cusparse.destroy_sp_mat, cusparse.create_csr(m, k, a.nnz, *where, data))
        mat_g, mat_b = (dense_matrix(x, data, stack) for x in (g, b if by_rows else b.T))
        as_is, transposed = int(cusparse.Operation.NON_TRANSPOSE), int(cusparse.Operation.TRANSPOSE)
        call = (
            *(
                handle,
                as_is,
                transposed if by_rows else as_is,
                ALPHA.ctypes.data,
                mat_g,
                mat_b,
                BETA.ctypes.data,
                mat_c,
            ),
            *(data_type("float32"), int(cusparse.SDDMMAlg.DEFAULT)),
        )
        cusparse.set_stream(handle, cupy.cuda.get_current_stream().ptr)

        def made():
            size = np.zeros(1, np.uint64)
            cusparse.sddmm_buffer_size(*call, size.ctypes.data)
            buffer = cupy.empty(max(1, int(size[0])), cupy.uint8)
            cusparse.sddmm_preprocess(*call, buffer.data.ptr)
            cusparse.sddmm(*call, buffer.data.ptr)
            return buffer

        made()  # the first time in a process also loads the library's code
        buffer, prepare_ms = timed(made)
        at = buffer.data.ptr
        launch = on_stream(lambda stream: cusparse.set_stream(handle, stream), lambda: cusparse.sddmm(*call, at))
        bound = PreparedKernel(f"cusparse_{order}", prepare_ms, int(buffer.nbytes), launch, out)
        return hold(bound, stack, buffer, a, g, b)


def prepare_torch(a: Csr, g: Any, b: Any) -> PreparedKernel:
    """Make `torch.sparse.sampled_addmm` ready, of float32 arrays as `prepare` takes them."""
    places = (torch.as_tensor(x, device="cuda") for x in (a.row_ptr, a.col_idx, cupy.zeros(a.nnz, "float32")))
    to = torch.sparse_csr_tensor(*places, size=(a.m, a.k), check_invariants=False)
    left, right = (torch.as_tensor(x, device="cuda") for x in (g, b))

    def call(stream: int) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
            torch.sparse.sampled_addmm(to, left, right.t(), beta=0.0, out=to)

    _, prepare_ms = timed(lambda: call(cupy.cuda.get_current_stream().ptr))
    return PreparedKernel("torch", prepare_ms, 0, call, cupy.asarray(to.values()))


def prepare_ours(made: Sampled, g: Any, b: Any) -> PreparedKernel:
    """Make what the library has ready, called as users do, of arrays or `Half`s of a dtype."""
    out = made(g, b)

    def call(stream: int) -> None:
        with cupy.cuda.ExternalStream(stream):
            made(g, b, out=out)

    return PreparedKernel("ours", 0.0, 0, call, out)


def reference(a: Csr, g: Any, b: Any) -> Any:
    """Return what all of them compute, float64 (nnz,) on the GPU, in parts that fit beside it."""
    out, row, step = cupy.empty(a.nnz, np.float64), csr.rows(a), max(1, PART // g.shape[1])
    for part in (slice(i, i + step) for i in range(0, a.nnz, step)):
        out[part] = (g[row[part]].astype(np.float64) * b[a.col_idx[part]]).sum(axis=1)
    return out
