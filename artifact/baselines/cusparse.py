"""cuSPARSE's CSR times dense, float32, B and C row-major: every algorithm that the library has.

Where B is the sparse one, N:M with column-major A and C, the same call computes C^T = B^T · A^T: A^T
and C^T are row-major as they lie, and B^T is made CSR in `bind`, whose time is in `prepare_ms` too.

cuSPARSE documents `cusparseSpMM_preprocess` as useful for CSR_ALG1 and CSR_ALG3 and without effect
otherwise; it is called for all, once, in `bind`, and its time is `prepare_ms`. A preprocessed
buffer belongs to one matrix descriptor and one algorithm, so every `bind` makes its own.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from artifact.baselines.cublas import require_column_major
from artifact.measure.device import first_line
from kernels.contract import Operands, Problem, require, timed
from kernels.formats.csr import Csr
from kernels.formats.half import array_module
from kernels.formats.nm import Nm, per_column_index

#: Our name -> the member of cusparseSpMMAlg_t.
_ENUM = {"default": "DEFAULT", "alg1": "CSR_ALG1", "alg2": "CSR_ALG2", "alg3": "CSR_ALG3"}
ALGORITHMS = tuple(_ENUM)


@dataclass(eq=False)
class Bound:
    """A `kernels.contract.Bound` over a cuSPARSE handle; `close()` frees that one early."""

    name: str
    prepare_ms: float
    prepare_bytes: int  #: the work buffer, and the CSR matrix where `bind` made it
    multiply: Callable[[], None] = field(repr=False)
    set_stream: Callable[[int], None] = field(repr=False)
    output: Any = field(repr=False)
    close: Callable[[], None] = field(default=lambda: None, repr=False)
    _stream: int | None = field(default=None, repr=False)

    def launch(self, stream) -> None:
        """Enqueue the multiplication on a `cuda.core.Stream`, which may be under capture."""
        handle = int(stream.handle)
        if handle != self._stream:
            self.set_stream(handle)
            self._stream = handle
        self.multiply()

    def result(self):
        """C, float32 (m, n), a CuPy array."""
        return self.output


def bind(algorithm: str, problem: Problem, device) -> Bound:
    """Make cuSPARSE ready: descriptors, work buffer, preprocessing; CSR of an N:M B.

    device: `cuda.core.Device`, current. Raises ValueError for an unknown algorithm, for a problem
    without non-zeros, for alg3 with a row of more than k entries, for an N:M B where A or C is not
    a float32 array in Fortran order, and, naming the algorithm, where the library refuses the
    problem.
    """
    require(
        algorithm in ALGORITHMS,
        f"cuSPARSE has no algorithm {algorithm!r} for CSR: choose one of {', '.join(ALGORITHMS)}",
    )
    require(
        problem.nnz > 0 and problem.n > 0,
        f"cuSPARSE has nothing to multiply at m={problem.m}, n={problem.n}, nnz={problem.nnz}: "
        "give it a non-zero and a column",
    )
    import cupy
    from nvmath.bindings import cusparse

    device.set_current()
    operands, converting_ms, converted_bytes = problem.device(), 0.0, 0
    output = operands.c
    if isinstance(operands.b, Nm):
        require_column_major("cuSPARSE", problem, operands)
        csr, converting_ms = timed(lambda: transposed_csr(problem.device().b))
        converted_bytes = csr.nbytes
        operands = Operands(csr, operands.a.T, output.T)
    if algorithm == "alg3":
        # Its reordering of rows (do_reorder_ker of cuSPARSE 12.6.3) then writes outside its buffer, as
        # compute-sanitizer shows: rows of C stay unwritten, or the context is lost.
        lengths = operands.a.row_ptr[1:] - operands.a.row_ptr[:-1]
        require(
            int(lengths.max()) <= problem.k,
            f"cuSPARSE's alg3 fails where a row holds more entries than A has columns, here "
            f"{int(lengths.max())} in {problem.k}: use another algorithm",
        )
    handle = cusparse.create()
    # Freed in reverse order: the handle last.
    release: list[tuple[Callable[[int], None], int]] = [(cusparse.destroy, handle)]
    try:
        cusparse.set_stream(handle, cupy.cuda.get_current_stream().ptr)
        # The first preprocessing in a process also loads the library's code: prepare twice, time
        # the second.
        _prepare(cusparse, handle, algorithm, operands, release)
        cupy.cuda.get_current_stream().synchronize()
        _release(release, leave=1)
        begin = time.perf_counter()
        arguments, buffer, keep = _prepare(cusparse, handle, algorithm, operands, release)
        cupy.cuda.get_current_stream().synchronize()
        prepare_ms = (time.perf_counter() - begin) * 1e3
    except cusparse.cuSPARSEError as error:
        _release(release)
        raise ValueError(
            f"cuSPARSE refuses {algorithm} at m={problem.m}, n={problem.n}, k={problem.k}, "
            f"nnz={problem.nnz}: {first_line(error)}"
        ) from error
    except BaseException:
        _release(release)
        raise

    def multiply() -> None:
        cusparse.sp_mm(*arguments)

    bound = Bound(
        name=f"cusparse_{algorithm}",
        prepare_ms=converting_ms + prepare_ms,
        prepare_bytes=int(buffer.nbytes) + converted_bytes,
        multiply=multiply,
        set_stream=lambda stream: cusparse.set_stream(handle, stream),
        output=output,
    )
    # `keep` holds the arrays behind the raw pointers for as long as the library may read them.
    bound.close = weakref.finalize(bound, _release, release, keep)
    return bound


def contender(algorithm: str, device) -> Callable[[Problem], Bound]:
    """`bind` as a measurement takes it: problem -> Bound."""
    return lambda problem: bind(algorithm, problem, device)


def contenders(device) -> dict[str, Callable[[Problem], Bound]]:
    """Every algorithm as a contender, by the name that the records use: "cusparse_default" ..."""
    return {f"cusparse_{algorithm}": contender(algorithm, device) for algorithm in ALGORITHMS}


def transposed_csr(b: Nm) -> Csr:
    """B^T (n, k) as CSR, columns ascending, on the side where `b` lives.

    The surplus rows of the format are left out: they would repeat the column k - 1. Other zeros that
    are stored stay.
    """
    xp = array_module(b.val)
    real = b.k // b.group * b.keep + min(b.keep, b.k % b.group)
    col_idx, val = (
        xp.ascontiguousarray(x[:real].T).reshape(-1) for x in (per_column_index(b), b.val)
    )
    return Csr(b.n, b.k, xp.arange(b.n + 1, dtype=xp.int32) * xp.int32(real), col_idx, val)


def _prepare(cusparse, handle: int, algorithm: str, operands: Operands, release: list):
    """Descriptors, buffer and preprocessing.

    Returns the arguments of sp_mm, the buffer, and what must stay alive as long as they are used.
    """
    import cupy
    from cuda.bindings import runtime

    float32 = int(runtime.cudaDataType.CUDA_R_32F)
    int32 = int(cusparse.IndexType.INDEX_32I)
    a, b, c = operands.a, operands.b, operands.c
    (m, n), k = c.shape, a.k

    mat_a = cusparse.create_csr(
        m, k, a.nnz, a.row_ptr.data.ptr, a.col_idx.data.ptr, a.val.data.ptr,
        int32, int32, int(cusparse.IndexBase.ZERO), float32,
    )  # fmt: skip
    release.append((cusparse.destroy_sp_mat, mat_a))
    row = int(cusparse.Order.ROW)
    mat_b = cusparse.create_dn_mat(k, n, n, b.data.ptr, float32, row)
    release.append((cusparse.destroy_dn_mat, mat_b))
    mat_c = cusparse.create_dn_mat(m, n, n, c.data.ptr, float32, row)
    release.append((cusparse.destroy_dn_mat, mat_c))

    # Host scalars: cuSPARSE's default pointer mode. It reads them when the call is made, captured
    # or not.
    alpha, beta = np.ones(1, np.float32), np.zeros(1, np.float32)
    keep_as_is = int(cusparse.Operation.NON_TRANSPOSE)
    call = (
        handle, keep_as_is, keep_as_is, alpha.ctypes.data, mat_a, mat_b, beta.ctypes.data, mat_c,
        float32, int(cusparse.SpMMAlg[_ENUM[algorithm]]),
    )  # fmt: skip
    buffer = cupy.empty(cusparse.sp_mm_buffer_size(*call), cupy.uint8)
    arguments = (*call, buffer.data.ptr)
    cusparse.sp_mm_preprocess(*arguments)
    return arguments, buffer, (alpha, beta, buffer, operands)


def _release(release: list, keep: tuple = (), leave: int = 0) -> None:
    """Destroy what was made but for the first `leave`; `keep` only has to live until then."""
    while len(release) > leave:
        destroy, thing = release.pop()
        destroy(thing)
