"""cuSPARSE's CSR times dense: every algorithm that the library has.

A matrix in CSR is multiplied as it is: float32, B and C row-major. Where B is bfloat16 or float16, A's values are
rounded to that in `bind`, whose time is in `prepare_ms`.

Where B is the sparse one, N:M with column-major A and C, the same call computes C^T = B^T · A^T: A^T
and C^T are row-major as they lie, and B^T is made CSR in `bind`, whose time is in `prepare_ms` too.

Where A is in blocks (BCSR), it is made CSR in `bind`, zeros left out, and that time counts likewise.
Values, B and C are bfloat16 or float16, or float32; sums are in float32. B and C each lie by rows or by
columns: `ready` says how the library is told.

cuSPARSE documents `cusparseSpMM_preprocess` as useful for CSR_ALG1 and CSR_ALG3 and without effect
otherwise; it is called for all, once, in `bind`, and its time is `prepare_ms`. A preprocessed
buffer belongs to one matrix descriptor and one algorithm, so every `bind` makes its own.

`ready` is all of this but for the sparse matrix: `cusparse_block` calls it with others.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from artifact.baselines.cublas import require_column_major
from artifact.baselines.cusparselt import DATA_TYPE, release_all
from artifact.measure.device import first_line
from kernels.contract import Operands, Problem, require, timed
from kernels.formats import bcsr, stored
from kernels.formats.bcsr import Bcsr
from kernels.formats.csr import Csr
from kernels.formats.half import Half, array_module, array_of
from kernels.formats.nm import Nm, per_column_index

#: Our name -> the member of cusparseSpMMAlg_t.
_ENUM = {"default": "DEFAULT", "alg1": "CSR_ALG1", "alg2": "CSR_ALG2", "alg3": "CSR_ALG3"}
ALGORITHMS = tuple(_ENUM)
#: Member of cudaDataType for a dtype of the operands. Sums are in float32; the library has no other
#: compute type for these.
_DATA = DATA_TYPE | {"float32": "CUDA_R_32F"}


@dataclass(eq=False)
class Bound:
    """A `kernels.contract.Bound` over a cuSPARSE handle; `close()` frees that one early."""

    name: str
    prepare_ms: float
    prepare_bytes: int  #: the work buffer, and what `bind` made of the operands
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
        """C (m, n), a CuPy array, or a `Half` of one."""
        return self.output


@dataclass(frozen=True)
class Sparse:
    """A matrix as `ready` gives it to the library, and what that cost."""

    words: str  #: the algorithm in a sentence
    algorithm: str  #: member of cusparseSpMMAlg_t
    #: (nvmath.bindings.cusparse, member of cudaDataType) -> the matrix's descriptor
    describe: Callable[[Any, int], int]
    keep: Any  #: what holds the arrays behind the descriptor
    ms: float = 0.0  #: of making them
    nbytes: int = 0  #: bytes that were made
    preprocess: bool = False  #: whether cusparseSpMM_preprocess does anything for it


def bind(algorithm: str, problem: Problem, device) -> Bound:
    """Make cuSPARSE ready: descriptors, work buffer, preprocessing; CSR of an N:M B or a BCSR A.

    device: `cuda.core.Device`, current. Overwrites C. Raises ValueError for an unknown algorithm,
    for a problem without non-zeros, for alg3 with a row of more than k entries, for an N:M B where A
    or C is not a float32 array in Fortran order, for a BCSR A with a B or C of another dtype, and,
    naming the algorithm, where the library refuses the problem.
    """
    require(
        algorithm in ALGORITHMS,
        f"cuSPARSE has no algorithm {algorithm!r} for CSR: choose one of {', '.join(ALGORITHMS)}",
    )
    require_work(problem)
    device.set_current()
    operands, ms, nbytes = problem.device(), 0.0, 0
    output = operands.c
    if isinstance(operands.b, Nm):
        require_column_major("cuSPARSE", problem, operands)
        made, ms = timed(lambda: transposed_csr(problem.device().b))
        nbytes = made.nbytes
        operands = Operands(made, operands.a.T, output.T)
    elif isinstance(operands.a, Bcsr):
        require_blocks("cuSPARSE", problem, operands)
        made, ms = timed(lambda: csr_of_blocks(problem.device().a))
        nbytes = made.nbytes
        operands = Operands(made, operands.b, output)
    elif isinstance(operands.b, Half):
        made, ms = timed(lambda: in_dtype(problem.device().a, problem.device().b.dtype))
        nbytes = made.val.nbytes
        operands = Operands(made, operands.b, output)
    if algorithm == "alg3":
        # Its reordering of rows (do_reorder_ker of cuSPARSE 12.6.3) then writes outside its buffer, as
        # compute-sanitizer shows: rows of C stay unwritten, or the context is lost.
        lengths = operands.a.row_ptr[1:] - operands.a.row_ptr[:-1]
        require(
            int(lengths.max()) <= problem.k,
            f"cuSPARSE's alg3 fails where a row holds more entries than A has columns, here "
            f"{int(lengths.max())} in {problem.k}: use another algorithm",
        )
    a = operands.a

    def describe(cusparse, data: int) -> int:
        int32 = int(cusparse.IndexType.INDEX_32I)
        return cusparse.create_csr(
            a.m,
            a.k,
            a.nnz,
            a.row_ptr.data.ptr,
            a.col_idx.data.ptr,
            a.val.data.ptr,
            int32,
            int32,
            int(cusparse.IndexBase.ZERO),
            data,
        )

    sparse = Sparse(algorithm, _ENUM[algorithm], describe, operands, ms, nbytes, True)
    return ready(f"cusparse_{algorithm}", sparse, operands.b, operands.c, output, problem)


def ready(name: str, sparse: Sparse, b, c, output, problem: Problem) -> Bound:
    """Descriptors, work buffer and preprocessing of a matrix times b into c, whose view is `output`.

    b, c: CuPy arrays or `Half`s without gaps, each row-major or column-major. Where they lie in two
    orders, the library is given the B^T that lies there, in C's order, and is told to transpose it, as
    PyTorch does; where it refuses that, B as it lies. The device is current. Overwrites c. Raises
    ValueError, naming the algorithm, where the library refuses the problem.
    """
    import cupy
    from nvmath.bindings import cusparse

    by_rows = array_of(b).flags.c_contiguous, array_of(c).flags.c_contiguous
    ways = (False,) if _fits(array_of(b), by_rows[1]) else (True, False)
    handle = cusparse.create()
    # Freed in reverse order: the handle last.
    release: list[tuple[Callable[[int], None], int]] = [(cusparse.destroy, handle)]
    try:
        cusparse.set_stream(handle, cupy.cuda.get_current_stream().ptr)
        # The first time in a process also loads the library's code: prepare twice, time the second.
        transpose = _first_way(cusparse, handle, sparse, b, c, ways, release)
        begin = time.perf_counter()
        arguments, buffer, keep = _prepare(cusparse, handle, sparse, b, c, transpose, release)
        cupy.cuda.get_current_stream().synchronize()
        prepare_ms = (time.perf_counter() - begin) * 1e3
    except cusparse.cuSPARSEError as error:
        release_all(release)
        orders = ["row-major" if rows else "column-major" for rows in by_rows]
        raise ValueError(
            f"cuSPARSE refuses {sparse.words} at m={problem.m}, n={problem.n}, k={problem.k}, "
            f"nnz={problem.nnz}, B {orders[0]} and C {orders[1]} in {number(c)}: {first_line(error)}"
        ) from error
    except BaseException:
        release_all(release)
        raise

    def multiply() -> None:
        cusparse.sp_mm(*arguments)

    bound = Bound(
        name=name,
        prepare_ms=sparse.ms + prepare_ms,
        prepare_bytes=int(buffer.nbytes) + int(sparse.nbytes),
        multiply=multiply,
        set_stream=lambda stream: cusparse.set_stream(handle, stream),
        output=output,
    )
    # `keep` holds the arrays behind the raw pointers for as long as the library may read them.
    bound.close = weakref.finalize(bound, release_all, release, (keep, sparse.keep, b, c))
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
    col_idx, val = (xp.ascontiguousarray(x[:real].T).reshape(-1) for x in (per_column_index(b), b.val))
    return Csr(b.n, b.k, xp.arange(b.n + 1, dtype=xp.int32) * xp.int32(real), col_idx, val)


def csr_of_blocks(a: Bcsr) -> Csr:
    """A (m, k) as CSR without the zeros of its blocks, on the side where it lives.

    `val` is as in the blocks: float32, or the bit patterns of 16-bit floats (uint16).
    """
    made = bcsr.to_csr(a)
    return Csr(a.m, a.k, made.row_ptr, made.col_idx, stored.rounded(made.val, a.dtype))


def in_dtype(a: Csr, dtype: str) -> Csr:
    """A with its values as bit patterns of "bfloat16" or "float16" (uint16), on the side where it lives."""
    return replace(a, val=stored.rounded(a.val, dtype))


def require_work(problem: Problem) -> None:
    """Raise ValueError for a problem without non-zeros or columns."""
    require(
        problem.nnz > 0 and problem.n > 0,
        f"cuSPARSE has nothing to multiply at m={problem.m}, n={problem.n}, nnz={problem.nnz}: "
        "give it a non-zero and a column",
    )


def require_blocks(contender: str, problem: Problem, operands: Operands) -> None:
    """Raise ValueError unless A is BCSR, and B and C of its dtype and without gaps."""
    dtype = getattr(operands.a, "dtype", None)
    require(
        isinstance(operands.a, Bcsr)
        and all(
            number(x) == dtype and (array_of(x).flags.c_contiguous or array_of(x).flags.f_contiguous)
            for x in (operands.b, operands.c)
        ),
        f"{contender} takes a BCSR A with a B and a C of its dtype, without gaps, and {problem.room} "
        "has something else here: compare with another baseline",
    )


def number(x) -> str:
    """The dtype of a dense operand: "bfloat16", "float16", "float32"."""
    return x.dtype if isinstance(x, Half) else np.dtype(x.dtype).name


def _fits(array, by_rows: bool) -> bool:
    """Whether an array is row-major, or column-major; a vector is both."""
    return bool(array.flags.c_contiguous if by_rows else array.flags.f_contiguous)


def _first_way(cusparse, handle: int, sparse: Sparse, b, c, ways, release: list) -> bool:
    """The first of the ways, to transpose B or not, in which the library multiplies."""
    import cupy

    refused = None
    for transpose in ways:
        try:
            arguments, *_ = _prepare(cusparse, handle, sparse, b, c, transpose, release)
            cusparse.sp_mm(*arguments)
            cupy.cuda.get_current_stream().synchronize()
            return transpose
        except cusparse.cuSPARSEError as error:
            refused = refused or error
        finally:
            release_all(release, leave=1)
    raise refused


def _prepare(cusparse, handle: int, sparse: Sparse, b, c, transpose: bool, release: list):
    """Descriptors, buffer and preprocessing.

    Returns the arguments of sp_mm, the buffer, and what must stay alive as long as they are used.
    """
    import cupy
    from cuda.bindings import runtime

    data = int(getattr(runtime.cudaDataType, _DATA[number(c)]))
    float32 = int(runtime.cudaDataType.CUDA_R_32F)

    def dense(array) -> int:
        rows, columns = array.shape
        by_rows = array.flags.c_contiguous
        order = cusparse.Order.ROW if by_rows else cusparse.Order.COL
        leading = columns if by_rows else rows
        matrix = cusparse.create_dn_mat(rows, columns, leading, array.data.ptr, data, int(order))
        release.append((cusparse.destroy_dn_mat, matrix))
        return matrix

    mat_a = sparse.describe(cusparse, data)
    release.append((cusparse.destroy_sp_mat, mat_a))
    mat_b = dense(array_of(b).T if transpose else array_of(b))
    mat_c = dense(array_of(c))

    # Host scalars: cuSPARSE's default pointer mode. It reads them when the call is made, captured
    # or not.
    alpha, beta = np.ones(1, np.float32), np.zeros(1, np.float32)
    as_is = cusparse.Operation.NON_TRANSPOSE
    op_b = cusparse.Operation.TRANSPOSE if transpose else as_is
    call = (
        handle,
        int(as_is),
        int(op_b),
        alpha.ctypes.data,
        mat_a,
        mat_b,
        beta.ctypes.data,
        mat_c,
        float32,
        int(cusparse.SpMMAlg[sparse.algorithm]),
    )
    buffer = cupy.empty(cusparse.sp_mm_buffer_size(*call), cupy.uint8)
    arguments = (*call, buffer.data.ptr)
    if sparse.preprocess:
        cusparse.sp_mm_preprocess(*arguments)
    return arguments, buffer, (alpha, beta, buffer)
