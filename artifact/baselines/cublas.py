"""cuBLAS's dense float32 multiplication of the same operands, and what else a timing may contain.

The sparse B is made dense in `bind`, once: that is `prepare_ms`. CUBLAS_COMPUTE_32F in the default
math mode multiplies in full float32; TF32 would need another mode or another compute type.

`READINGS` put more and more into a call, to find out what a published number contains:

    cublas              the multiplication alone: handle, operands and result are where they belong
    cublas_transfers    + A and B copied to the device and C back, from and to pageable memory
    cublas_allocation   + device memory for A, B and C allocated and freed, without transfers
    cublas_handle       + the handle created and destroyed, as Zeng's public code does

Each adds to the first one alone. All but the first make the host wait for the GPU: they are for
`bench.time_calls`, where host time counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from artifact.baselines._library import ALPHA, BETA, Bound, data_type, hold, on_stream, owned, refusing, sizes
from artifact.measure.lazy import cupy
from kernels import formats
from kernels.contract import Operands, Problem, require, timed

READINGS = ("cublas", "cublas_transfers", "cublas_allocation", "cublas_handle")


def bind(reading: str, problem: Problem, device) -> Bound:
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
    from nvmath.bindings import cublas

    device.set_current()
    dense, prepare_ms = timed(lambda: cupy.array(formats.to_dense(operands.b), order="F"))
    with refusing(f"cuBLAS refuses a handle at {sizes(problem)}", cublas.cuBLASError) as stack:
        ours = Operands(operands.a, dense, operands.c)
        call, output, *keep = _READY[reading](cublas, owned(stack, cublas.destroy, cublas.create()), ours)
        bound = Bound(reading, prepare_ms, int(dense.nbytes), call, output, needs_host_clock=reading != "cublas")
        return hold(bound, stack, ours, keep)


def contenders(device) -> dict[str, Callable[[Problem], Bound]]:
    """What a kernel is compared with: "cublas"."""
    return {"cublas": partial(bind, "cublas", device=device)}


def readings(device) -> dict[str, Callable[[Problem], Bound]]:
    """Every reading as a contender of `bench.time_calls`, by the name that the records use."""
    return {name: partial(bind, name, device=device) for name in READINGS}


def require_column_major(contender: str, problem: Problem, operands: Operands) -> None:
    """Raise ValueError unless A and C are float32 arrays in Fortran order."""
    for name, array in (("A", operands.a), ("C", operands.c)):
        require(
            getattr(array, "dtype", None) == np.float32 and array.flags.f_contiguous,
            f"{contender} takes {name} as a float32 array in Fortran order here, and {problem.room} "
            "has it otherwise: compare with another baseline",
        )


def gemm_arguments(cublas, a, b, c, dtype: str, compute: str) -> tuple:
    """What gemm_ex takes after the handle for c = a · b, with the algorithm left to the library.

    a (m, k), b (k, n), c (m, n): CuPy arrays without gaps, each row-major or column-major; a
    row-major c is computed as its transpose, which is what lies there by columns. dtype: of all
    of them; compute: member of ComputeType, with float32 scalars.
    """
    if not c.flags.f_contiguous:
        a, b, c = b.T, a.T, c.T
    (m, k), n = a.shape, b.shape[1]
    kind = data_type(dtype)

    def operand(array) -> tuple[int, int]:
        """Return the operation, and the leading dimension."""
        by_columns = array.flags.f_contiguous
        return int(cublas.Operation.N if by_columns else cublas.Operation.T), array.shape[0 if by_columns else 1]

    (op_a, lda), (op_b, ldb) = operand(a), operand(b)
    alpha, beta = ALPHA.ctypes.data, BETA.ctypes.data
    matrices = (alpha, a.data.ptr, kind, lda, b.data.ptr, kind, ldb, beta, c.data.ptr, kind, m)
    how = int(getattr(cublas.ComputeType, compute)), int(cublas.GemmAlgo.DEFAULT)
    return op_a, op_b, m, n, k, *matrices, *how


def _arguments(cublas, ours: Operands) -> tuple:
    """Return what gemm_ex takes after the handle for C = A · B in float32."""
    return gemm_arguments(cublas, ours.a, ours.b, ours.c, "float32", "COMPUTE_32F")


def multiplication(cublas, handle: int, arguments: tuple) -> Callable[[int], None]:
    """Return the multiplication alone."""
    return on_stream(partial(cublas.set_stream, handle), partial(cublas.gemm_ex, handle, *arguments))


# One function for each reading: its call, the output to check, and other arrays that both need.


def _kernel(cublas, handle: int, ours: Operands) -> tuple:
    return multiplication(cublas, handle, _arguments(cublas, ours)), ours.c


def _transfers(cublas, handle: int, ours: Operands) -> tuple:
    """The output is the copy on the host, which `check` poisons. The arrays on the device begin as
    NaN and belong to this contender alone, so that a copy left out cannot go unnoticed."""
    from cuda.bindings import runtime

    to_device, to_host = (
        getattr(runtime.cudaMemcpyKind, f"cudaMemcpy{way}") for way in ("HostToDevice", "DeviceToHost")
    )
    a, b = (array.get(order="F") for array in (ours.a, ours.b))  # pageable, as malloc gives it
    c = np.full(ours.c.shape, np.nan, np.float32, order="F")
    there = Operands(*(cupy.full_like(x, np.nan) for x in (ours.a, ours.b, ours.c)))
    multiply = multiplication(cublas, handle, _arguments(cublas, there))
    pairs = zip((there.a, there.b), (a, b), strict=True)
    inputs = [(here.data.ptr, host.ctypes.data, host.nbytes, to_device) for here, host in pairs]
    output = (c.ctypes.data, there.c.data.ptr, c.nbytes, to_host)

    def call(stream: int) -> None:
        for copy in inputs:
            _succeed("cudaMemcpyAsync", *runtime.cudaMemcpyAsync(*copy, stream))
        multiply(stream)
        _succeed("cudaMemcpyAsync", *runtime.cudaMemcpyAsync(*output, stream))

    return call, c, a, b, there


def _allocation(cublas, handle: int, ours: Operands) -> tuple:
    """Fresh memory holds no operands unless something copies them there, which is another reading:
    so the product is still that of the operands that stay, and the fresh memory only costs time."""
    from cuda.bindings import runtime

    multiply = multiplication(cublas, handle, _arguments(cublas, ours))
    sizes = [array.nbytes for array in (ours.a, ours.b, ours.c)]

    def call(stream: int) -> None:
        fresh = []
        try:
            for size in sizes:
                error, pointer = runtime.cudaMalloc(size)
                _succeed("cudaMalloc", error)
                fresh.append(pointer)
            multiply(stream)
        finally:
            for pointer in fresh:
                _succeed("cudaFree", *runtime.cudaFree(pointer))

    return call, ours.c


def _handle(cublas, handle: int, ours: Operands) -> tuple:
    """A handle of its own for every call; the one that `bind` made stays unused."""
    arguments = _arguments(cublas, ours)

    def call(stream: int) -> None:
        fresh = cublas.create()
        try:
            cublas.set_stream(fresh, stream)
            cublas.gemm_ex(fresh, *arguments)
        finally:
            cublas.destroy(fresh)

    return call, ours.c


_READY = dict(zip(READINGS, (_kernel, _transfers, _allocation, _handle), strict=True))


def _succeed(call: str, error: Any, *_: Any) -> None:
    from cuda.bindings import runtime

    if error != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"{call} failed with {error.name}")
