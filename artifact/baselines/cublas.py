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

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from artifact.measure.device import first_line
from kernels import formats
from kernels.contract import Operands, Problem, require, timed

READINGS = ("cublas", "cublas_transfers", "cublas_allocation", "cublas_handle")
#: Host scalars, cuBLAS's default pointer mode, read when the call is made, captured or not.
_ALPHA, _BETA = np.ones(1, np.float32), np.zeros(1, np.float32)


@dataclass(eq=False)
class Bound:
    """A `kernels.contract.Bound` over a cuBLAS handle; `close()` frees that one early."""

    name: str
    prepare_ms: float
    prepare_bytes: int  #: the dense B
    call: Callable[[int], None] = field(repr=False)  #: takes the stream's handle
    output: Any = field(repr=False)
    needs_host_clock: bool  #: `bench.time` would see the multiplication only
    keep: tuple = field(repr=False)  #: the arrays behind the addresses in `call`
    close: Callable[[], None] = field(default=lambda: None, repr=False)

    def launch(self, stream) -> None:
        """Multiply on a `cuda.core.Stream`; "cublas" only enqueues, and may be under capture."""
        self.call(int(stream.handle))

    def result(self):
        """C, float32 (m, n) in Fortran order: a CuPy array, NumPy's for "cublas_transfers"."""
        return self.output


def bind(reading: str, problem: Problem, device) -> Bound:
    """Make cuBLAS ready: a handle, B dense in Fortran order, and what the reading needs besides.

    device: `cuda.core.Device`, current. Raises ValueError for an unknown reading, for a problem
    without elements, where A or C is not a float32 array in Fortran order, and where the library
    refuses a handle.
    """
    require(
        reading in READINGS,
        f"cuBLAS has no reading {reading!r}: choose one of {', '.join(READINGS)}",
    )
    m, n, k = problem.m, problem.n, problem.k
    require(
        min(m, n, k) > 0,
        f"cuBLAS has nothing to multiply at m={m}, n={n}, k={k}: give it a row and a column",
    )
    operands = problem.device()
    require_column_major("cuBLAS", problem, operands)
    import cupy
    from nvmath.bindings import cublas

    device.set_current()
    dense, prepare_ms = timed(lambda: cupy.array(formats.to_dense(operands.b), order="F"))
    try:
        handle = cublas.create()
    except cublas.cuBLASError as error:
        raise ValueError(f"cuBLAS refuses a handle at m={m}, n={n}, k={k}: {first_line(error)}") from error
    try:
        ours = Operands(operands.a, dense, operands.c)
        call, output, keep = _READY[reading](cublas, handle, problem, ours)
        cupy.cuda.get_current_stream().synchronize()  # a launch may come on another stream
    except BaseException:
        cublas.destroy(handle)
        raise
    waits = reading != "cublas"
    bound = Bound(reading, prepare_ms, int(dense.nbytes), call, output, waits, keep)
    bound.close = weakref.finalize(bound, cublas.destroy, handle)
    return bound


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


def gemm_arguments(cublas, a, b, c, data: str, compute: str) -> tuple:
    """What gemm_ex takes after the handle for c = a · b, with the algorithm left to the library.

    a (m, k), b (k, n), c (m, n): CuPy arrays without gaps, each row-major or column-major; a
    row-major c is computed as its transpose, which is what lies there by columns. data: member of
    cudaDataType for all of them; compute: of ComputeType, with float32 scalars.
    """
    from cuda.bindings import runtime

    if not c.flags.f_contiguous:
        a, b, c = b.T, a.T, c.T
    (m, k), n = a.shape, b.shape[1]
    kind = int(getattr(runtime.cudaDataType, data))

    def operand(array) -> tuple[int, int]:
        """The operation, and the leading dimension."""
        rows, columns = array.shape
        by_columns = array.flags.f_contiguous
        operation = cublas.Operation.N if by_columns else cublas.Operation.T
        return int(operation), rows if by_columns else columns

    (op_a, lda), (op_b, ldb) = operand(a), operand(b)
    return (
        op_a,
        op_b,
        m,
        n,
        k,
        _ALPHA.ctypes.data,
        a.data.ptr,
        kind,
        lda,
        b.data.ptr,
        kind,
        ldb,
        _BETA.ctypes.data,
        c.data.ptr,
        kind,
        m,
        int(getattr(cublas.ComputeType, compute)),
        int(cublas.GemmAlgo.DEFAULT),
    )


def _arguments(cublas, ours: Operands) -> tuple:
    """What gemm_ex takes after the handle for C = A · B in float32."""
    return gemm_arguments(cublas, ours.a, ours.b, ours.c, "CUDA_R_32F", "COMPUTE_32F")


def multiplication(cublas, handle: int, arguments: tuple) -> Callable[[int], None]:
    """The multiplication alone. Its stream is set where it changes: that call takes host time."""
    current = None

    def call(stream: int) -> None:
        nonlocal current
        if stream != current:
            cublas.set_stream(handle, stream)
            current = stream
        cublas.gemm_ex(handle, *arguments)

    return call


# One function for each reading: its call, the output to check, and the arrays that both need.


def _kernel(cublas, handle: int, problem: Problem, ours: Operands):
    call = multiplication(cublas, handle, _arguments(cublas, ours))
    return call, ours.c, (ours,)


def _transfers(cublas, handle: int, problem: Problem, ours: Operands):
    """The output is the copy on the host, which `check` poisons. The arrays on the device begin as
    NaN and belong to this contender alone, so that a copy left out cannot go unnoticed."""
    import cupy
    from cuda.bindings import runtime

    to_device, to_host = (
        runtime.cudaMemcpyKind.cudaMemcpyHostToDevice,
        runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost,
    )
    a, b = (array.get(order="F") for array in (ours.a, ours.b))  # pageable, as malloc gives it
    c = np.full((problem.m, problem.n), np.nan, np.float32, order="F")
    there = Operands(*(cupy.full_like(x, np.nan) for x in (ours.a, ours.b, ours.c)))
    multiply = multiplication(cublas, handle, _arguments(cublas, there))
    inputs = [
        (there.a.data.ptr, a.ctypes.data, a.nbytes, to_device),
        (there.b.data.ptr, b.ctypes.data, b.nbytes, to_device),
    ]
    output = (c.ctypes.data, there.c.data.ptr, c.nbytes, to_host)

    def call(stream: int) -> None:
        for copy in inputs:
            _succeed("cudaMemcpyAsync", *runtime.cudaMemcpyAsync(*copy, stream))
        multiply(stream)
        _succeed("cudaMemcpyAsync", *runtime.cudaMemcpyAsync(*output, stream))

    return call, c, (a, b, there)


def _allocation(cublas, handle: int, problem: Problem, ours: Operands):
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

    return call, ours.c, (ours,)


def _handle(cublas, handle: int, problem: Problem, ours: Operands):
    """A handle of its own for every call; the one that `bind` made stays unused."""
    arguments = _arguments(cublas, ours)

    def call(stream: int) -> None:
        fresh = cublas.create()
        try:
            cublas.set_stream(fresh, stream)
            cublas.gemm_ex(fresh, *arguments)
        finally:
            cublas.destroy(fresh)

    return call, ours.c, (ours,)


_READY = dict(zip(READINGS, (_kernel, _transfers, _allocation, _handle), strict=True))


def _succeed(call: str, error, *_) -> None:
    from cuda.bindings import runtime

    if error != runtime.cudaError_t.cudaSuccess:
        raise RuntimeError(f"{call} failed with {error.name}")
