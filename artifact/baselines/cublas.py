"""cuBLAS's dense float32 multiplication of the same operands, and what else a timing may contain.

The sparse B is made dense in `prepare`, once: that is `prepare_ms`. CUBLAS_COMPUTE_32F in the default
math mode multiplies in full float32; TF32 would need another mode or another compute type.

`READINGS` put more and more into a call, to find out what a published number contains:

    cublas              the multiplication alone: handle, operands and result are where they belong
    cublas_transfers    + A and B copied to the device and C back, from and to pageable memory
    cublas_allocation   + device memory for A, B and C allocated and freed, without transfers
    cublas_handle       + the handle created and destroyed, as Zeng's public code does

Each adds to the first one alone. All but the first make the host wait for the GPU: they are for
`bench.time_calls`, where host time counts.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from artifact.baselines._library import (
    ALPHA,
    BETA,
    PreparedKernel,
    cublas,
    data_type,
    hold,
    offers,
    on_stream,
    owned,
    refusing,
    sizes,
)
from kernels import formats
from kernels.contract import Operands, Problem, require, timed
from kernels.gpu import succeeded
from kernels.lazy import cupy, runtime

READINGS = ("cublas", "cublas_transfers", "cublas_allocation", "cublas_handle")


def prepare(reading: str, problem: Problem, device) -> PreparedKernel:
    """Make cuBLAS ready: a handle, B dense in Fortran order, and what the reading needs besides.

    reading: one of READINGS. device: `cuda.core.Device`, current. Raises ValueError for a problem
    without elements, where A or C is not a float32 array in Fortran order, and where the library
    refuses a handle.
    """
    require(
        min(problem.m, problem.n, problem.k) > 0,
        f"cuBLAS has nothing to multiply at {sizes(problem)}: give it a row and a column",
    )
    operands = problem.device()
    require_column_major("cuBLAS", problem, operands)
    dense, prepare_ms = timed(lambda: cupy.array(formats.to_dense(operands.b), order="F"))
    with refusing(f"cuBLAS refuses a handle at {sizes(problem)}", cublas.cuBLASError) as stack:
        ours = Operands(operands.a, dense, operands.c)
        call, output, *keep = _READY[reading](owned(stack, cublas.destroy, cublas.create()), ours)
        made = PreparedKernel(
            reading, prepare_ms, int(dense.nbytes), call, output, needs_host_clock=reading != "cublas"
        )
        return hold(made, stack, ours, keep)


#: What a kernel is compared with.
contenders = offers(prepare, {"cublas": ("cublas",)})
#: Every reading as a contender of `bench.time_calls`.
readings = offers(prepare, {name: (name,) for name in READINGS})


def require_column_major(contender: str, problem: Problem, operands: Operands) -> None:
    """Raise ValueError unless A and C are float32 arrays in Fortran order."""
    for name, array in (("A", operands.a), ("C", operands.c)):
        require(
            getattr(array, "dtype", None) == np.float32 and array.flags.f_contiguous,
            f"{contender} takes {name} as a float32 array in Fortran order here, and {problem.room} "
            "has it otherwise: compare with another baseline",
        )


def gemm_arguments(a, b, c, dtype: str = "float32", compute: str = "COMPUTE_32F") -> tuple:
    """Return what gemm_ex takes after the handle for c = a · b, with the algorithm left to the library.

    a (m, k), b (k, n), c (m, n): CuPy arrays without gaps, each row-major or column-major; a
    row-major c is computed as its transpose, which is what lies there by columns. dtype: of all
    of them; compute: member of ComputeType, with float32 scalars.
    """
    if not c.flags.f_contiguous:
        a, b, c = b.T, a.T, c.T
    (m, k), n = a.shape, b.shape[1]
    kind, by_columns = data_type(dtype), (a.flags.f_contiguous, b.flags.f_contiguous)
    operations = (int(cublas.Operation.N if each else cublas.Operation.T) for each in by_columns)
    lda, ldb = (x.shape[0 if each else 1] for x, each in zip((a, b), by_columns, strict=True))
    alpha, beta = ALPHA.ctypes.data, BETA.ctypes.data
    matrices = (alpha, a.data.ptr, kind, lda, b.data.ptr, kind, ldb, beta, c.data.ptr, kind, m)
    return *operations, m, n, k, *matrices, int(getattr(cublas.ComputeType, compute)), int(cublas.GemmAlgo.DEFAULT)


def multiplication(handle: int, a, b, c, *how: str) -> Callable[[int], None]:
    """Return the multiplication alone. a, b, c, how: as `gemm_arguments` takes them."""
    arguments = gemm_arguments(a, b, c, *how)
    return on_stream(partial(cublas.set_stream, handle), partial(cublas.gemm_ex, handle, *arguments))


# One function for each reading: its call, the output to check, and other arrays that both need.


def _kernel(handle: int, ours: Operands) -> tuple:
    return multiplication(handle, ours.a, ours.b, ours.c), ours.c


def _transfers(handle: int, ours: Operands) -> tuple:
    """Return the output, which is the copy on the host that `check` poisons.

    The arrays on the device begin as NaN and belong to this contender alone, so that a copy left out cannot go
    unnoticed.
    """
    kinds = runtime.cudaMemcpyKind
    a, b = (array.get(order="F") for array in (ours.a, ours.b))  # pageable, as malloc gives it
    c = np.full(ours.c.shape, np.nan, np.float32, order="F")
    there = Operands(*(cupy.full_like(x, np.nan) for x in (ours.a, ours.b, ours.c)))
    multiply, pairs = multiplication(handle, there.a, there.b, there.c), ((there.a, a), (there.b, b))
    inputs = [(x.data.ptr, y.ctypes.data, y.nbytes, kinds.cudaMemcpyHostToDevice) for x, y in pairs]
    output = (c.ctypes.data, there.c.data.ptr, c.nbytes, kinds.cudaMemcpyDeviceToHost)

    def call(stream: int) -> None:
        for copy in inputs:
            _ask("cudaMemcpyAsync", *copy, stream)
        multiply(stream)
        _ask("cudaMemcpyAsync", *output, stream)

    return call, c, a, b, there


def _allocation(handle: int, ours: Operands) -> tuple:
    """Fresh memory holds no operands unless something copies them there, which is another reading.

    So the product is still that of the operands that stay, and the fresh memory only costs time.
    """
    multiply, sizes = (
        multiplication(handle, ours.a, ours.b, ours.c),
        [array.nbytes for array in (ours.a, ours.b, ours.c)],
    )

    def call(stream: int) -> None:
        fresh: list[int] = []
        try:
            for size in sizes:
                fresh.append(_ask("cudaMalloc", size))
            multiply(stream)
        finally:
            for pointer in fresh:
                _ask("cudaFree", pointer)

    return call, ours.c


def _handle(handle: int, ours: Operands) -> tuple:
    """Return a handle of its own for every call; the one that `prepare` made stays unused."""
    arguments = gemm_arguments(ours.a, ours.b, ours.c)

    def call(stream: int) -> None:
        fresh = cublas.create()
        try:
            cublas.set_stream(fresh, stream)
            cublas.gemm_ex(fresh, *arguments)
        finally:
            cublas.destroy(fresh)

    return call, ours.c


_READY = dict(zip(READINGS, (_kernel, _transfers, _allocation, _handle), strict=True))


def _ask(call: str, *arguments: Any) -> Any:
    """Call the CUDA runtime and return what it answers. Raise RuntimeError, one sentence, where it fails."""
    return succeeded(getattr(runtime, call)(*arguments), f"{call} failed with {{}}")
