"""Your kernel in Python: copy this file, change it, and put it on trial with

    python -m artifact trial --contender my_kernel.py:prepare --room SYSTEM

`prepare` is called once a problem and prepares; `launch` does nothing but the multiplication. Here a CuPy kernel stands
for whatever you have: Triton, the CUTLASS DSL, a compiled extension. What only the GPU needs is imported in `prepare`.
"""

import time
from types import SimpleNamespace

SOURCE = r"""
extern "C" __global__ void csr(
    int n, const int* row_ptr, const int* col_idx, const float* val, const float* B, float* C)
{
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= n) return;
    float sum = 0.f;
    for (int i = row_ptr[blockIdx.y]; i < row_ptr[blockIdx.y + 1]; ++i) sum += val[i] * B[(size_t)col_idx[i] * n + col];
    C[(size_t)blockIdx.y * n + col] = sum;
}
"""


def prepare(problem, device):
    """problem: sizes m, n, k, nnz, and `device()`, the operands a, b and c.

    Raise ValueError, one sentence, for a problem that the kernel does not take: it is then left out. Return a
    `PreparedKernel` of kernels/contract.py.
    """
    import cupy
    import numpy as np

    operands = problem.device()
    if problem.m > 65535:
        raise ValueError(f"m is {problem.m}, but a grid has 65535 rows at most")
    began = time.perf_counter()
    kernel = cupy.RawKernel(SOURCE, "csr")  # your conversion and analysis, once a matrix: their time is prepare_ms
    prepare_ms = (time.perf_counter() - began) * 1e3
    a = operands.a
    arguments = (np.int32(problem.n), a.row_ptr, a.col_idx, a.val, operands.b, operands.c)
    grid = (-(-problem.n // 128), problem.m)

    def launch(stream) -> None:
        """Enqueue on a cuda.core.Stream; with PyTorch it is torch.cuda.ExternalStream(int(stream.handle))."""
        with cupy.cuda.ExternalStream(int(stream.handle)):
            kernel(grid, (128,), arguments)

    return SimpleNamespace(
        launch=launch,
        result=lambda: operands.c,  # C, the same array in every launch: it is filled with NaN before the first one
        prepare_ms=prepare_ms,
        prepare_bytes=0,  # of device memory that the preparation leaves behind
    )
