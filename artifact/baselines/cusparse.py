"""cuSPARSE's CSR times dense: every algorithm that the library has.

A matrix in CSR is multiplied as it is: float32, B and C row-major. Where B is bfloat16 or float16, A's values are
rounded to that in `prepare`, whose time is in `prepare_ms`.

Where B is the sparse one, N:M with column-major A and C, the same call computes C^T = B^T · A^T: A^T
and C^T are row-major as they lie, and B^T is made CSR in `prepare`, whose time is in `prepare_ms` too.

Where A is in blocks (BCSR), it is made CSR in `prepare`, zeros left out, and that time counts likewise.
Values, B and C are bfloat16 or float16, or float32; sums are in float32. B and C each lie by rows or by
columns: `ready` says how the library is told.

cuSPARSE documents `cusparseSpMM_preprocess` as useful for CSR_ALG1 and CSR_ALG3 and without effect
otherwise; it is called for all, once, in `prepare`, and its time is `prepare_ms`. A preprocessed
buffer belongs to one matrix descriptor and one algorithm, so every `prepare` makes its own.

`ready` is all of this but for the sparse matrix: `cusparse_block` calls it with others.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from artifact.baselines._library import (
    ALPHA,
    BETA,
    PreparedKernel,
    cusparse,
    data_type,
    hold,
    offers,
    on_stream,
    owned,
    refusing,
    require_taken,
    sizes,
)
from artifact.baselines.cublas import require_column_major
from kernels.contract import Operands, Problem, require, timed
from kernels.formats import bcsr, half
from kernels.formats.bcsr import Bcsr
from kernels.formats.csr import Csr
from kernels.formats.half import Half, array_module, array_of
from kernels.formats.nm import Nm, per_column_index
from kernels.lazy import cupy

#: Our name -> the member of cusparseSpMMAlg_t.
_ENUM = {"default": "DEFAULT", "alg1": "CSR_ALG1", "alg2": "CSR_ALG2", "alg3": "CSR_ALG3"}
ALGORITHMS = tuple(_ENUM)


@dataclass(frozen=True)
class Sparse:
    """A matrix as `ready` gives it to the library, and what that cost."""

    words: str  #: the algorithm in a sentence
    algorithm: str  #: member of cusparseSpMMAlg_t
    describe: Callable[[int], int]  #: member of cudaDataType -> the matrix's descriptor
    keep: Any  #: what holds the arrays behind the descriptor
    ms: float = 0.0  #: of making them
    nbytes: int = 0  #: bytes that were made
    preprocess: bool = False  #: whether cusparseSpMM_preprocess does anything for it


def prepare(algorithm: str, problem: Problem, device) -> PreparedKernel:
    """Make cuSPARSE ready: descriptors, work buffer, preprocessing; CSR of an N:M B or a BCSR A.

    algorithm: one of ALGORITHMS. device: `cuda.core.Device`, current. Overwrites C. Raises ValueError
    for a problem without non-zeros, for alg3 with a row of more than k entries, for an N:M B where A
    or C is not a float32 array in Fortran order, for a BCSR A with a B or C of another dtype, and,
    naming the algorithm, where the library refuses the problem.
    """
    require_work(problem)
    operands = problem.device()
    a, b, c, ms, nbytes = operands.a, operands.b, operands.c, 0.0, 0
    if isinstance(b, Nm):
        require_column_major("cuSPARSE", problem, operands)
        a, ms = timed(lambda: transposed_csr(operands.b))
        b, c, nbytes = operands.a.T, operands.c.T, a.nbytes
    elif isinstance(a, Bcsr):
        require_blocks("cuSPARSE", problem, operands)
        a, ms = timed(lambda: csr_of_blocks(operands.a))
        nbytes = a.nbytes
    elif isinstance(b, Half):
        a, ms = timed(lambda: replace(operands.a, val=half.to_bits(operands.a.val, operands.b.dtype)))
        nbytes = a.val.nbytes
    # alg3's reordering of rows (do_reorder_ker of cuSPARSE 12.6.3) then writes outside its buffer, as
    # compute-sanitizer shows: rows of C stay unwritten, or the context is lost.
    longest = int((a.row_ptr[1:] - a.row_ptr[:-1]).max()) if algorithm == "alg3" else 0
    require(
        longest <= problem.k,
        f"cuSPARSE's alg3 fails where a row holds more entries than A has columns, here "
        f"{longest} in {problem.k}: use another algorithm",
    )

    def describe(data: int) -> int:
        return cusparse.create_csr(a.m, a.k, a.nnz, *pointers(a), data)

    sparse = Sparse(algorithm, _ENUM[algorithm], describe, (a, operands), ms, nbytes, True)
    return ready(f"cusparse_{algorithm}", sparse, b, c, operands.c, problem)


def pointers(a: Csr | Bcsr) -> tuple[int, ...]:
    """Return the addresses of what a matrix holds, and that both arrays of indices are int32, from zero."""
    index = int(cusparse.IndexType.INDEX_32I)
    return a.row_ptr.data.ptr, a.col_idx.data.ptr, a.val.data.ptr, index, index, int(cusparse.IndexBase.ZERO)


def ready(name: str, sparse: Sparse, b, c, output, problem: Problem) -> PreparedKernel:
    """Descriptors, work buffer and preprocessing of a matrix times b into c, whose view is `output`.

    b, c: CuPy arrays or `Half`s without gaps, each row-major or column-major. Where they lie in two
    orders, the library is given the B^T that lies there, in C's order, and is told to transpose it, as
    PyTorch does; where it refuses that, B as it lies. The device is current. Overwrites c. Raises
    ValueError, naming the algorithm, where the library refuses the problem.
    """
    flags = array_of(b).flags, array_of(c).flags
    orders = ["row-major" if each.c_contiguous else "column-major" for each in flags]
    # A vector is both.
    alike = flags[0].c_contiguous if flags[1].c_contiguous else flags[0].f_contiguous
    what = f"{sizes(problem)}, nnz={problem.nnz}, B {orders[0]} and C {orders[1]} in {number(c)}"
    with refusing(f"cuSPARSE refuses {sparse.words} at {what}", cusparse.cuSPARSEError) as stack:
        # Freed in reverse order: the handle last.
        handle = owned(stack, cusparse.destroy, cusparse.create())
        cusparse.set_stream(handle, cupy.cuda.get_current_stream().ptr)
        prepare = partial(_prepare, handle, sparse, b, c)
        # The first time in a process also loads the library's code: prepare twice, time the second.
        transpose = _first_way(prepare, (False,) if alike else (True, False))
        begin = time.perf_counter()
        arguments, buffer = prepare(transpose, stack)
        cupy.cuda.get_current_stream().synchronize()
        prepare_ms = sparse.ms + (time.perf_counter() - begin) * 1e3
        call = on_stream(partial(cusparse.set_stream, handle), partial(cusparse.sp_mm, *arguments))
        bound = PreparedKernel(name, prepare_ms, int(buffer.nbytes) + int(sparse.nbytes), call, output)
        return hold(bound, stack, buffer, sparse.keep, b, c)


contenders = offers(prepare, {f"cusparse_{algorithm}": (algorithm,) for algorithm in ALGORITHMS})


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
    """Return A (m, k) as CSR without the zeros of its blocks, on the side where it lives.

    `val` is as in the blocks: float32, or the bit patterns of 16-bit floats (uint16).
    """
    made = bcsr.to_csr(a)
    return Csr(a.m, a.k, made.row_ptr, made.col_idx, half.to_bits(made.val, a.dtype))


def require_work(problem: Problem) -> None:
    """Raise ValueError for a problem without non-zeros or columns."""
    require(
        problem.nnz > 0 and problem.n > 0,
        f"cuSPARSE has nothing to multiply at m={problem.m}, n={problem.n}, nnz={problem.nnz}: "
        "give it a non-zero and a column",
    )


def require_blocks(contender: str, problem: Problem, operands: Operands) -> None:
    """Raise ValueError unless A is BCSR, and B and C of its dtype and without gaps."""
    blocks = isinstance(operands.a, Bcsr) and all(
        number(x) == operands.a.dtype and (array_of(x).flags.c_contiguous or array_of(x).flags.f_contiguous)
        for x in (operands.b, operands.c)
    )
    require_taken(blocks, contender, "a BCSR A with a B and a C of its dtype, without gaps,", problem)


def number(x) -> str:
    """Return the dtype of a dense operand: "bfloat16", "float16", "float32"."""
    return x.dtype if isinstance(x, Half) else np.dtype(x.dtype).name


def _first_way(prepare: Callable, ways: tuple[bool, ...]) -> bool:
    """Return the first of the ways, to transpose B or not, in which the library multiplies.

    Raise its first refusal where there is none.
    """
    refused = []
    for transpose in ways:
        try:
            with ExitStack() as attempt:
                arguments, _ = prepare(transpose, attempt)
                cusparse.sp_mm(*arguments)
                cupy.cuda.get_current_stream().synchronize()
            return transpose
        except cusparse.cuSPARSEError as error:
            refused.append(error)
    raise refused[0]


def _prepare(handle: int, sparse: Sparse, b, c, transpose: bool, stack: ExitStack) -> tuple[tuple, Any]:
    """Descriptors, buffer and preprocessing: return the arguments of sp_mm, and the buffer."""
    data = data_type(number(c))

    def dense(array) -> int:
        by_rows = array.flags.c_contiguous
        order = int(cusparse.Order.ROW if by_rows else cusparse.Order.COL)
        made = cusparse.create_dn_mat(*array.shape, array.shape[by_rows], array.data.ptr, data, order)
        return owned(stack, cusparse.destroy_dn_mat, made)

    mat_a = owned(stack, cusparse.destroy_sp_mat, sparse.describe(data))
    mat_b, mat_c = dense(array_of(b).T if transpose else array_of(b)), dense(array_of(c))
    as_is, transposed = int(cusparse.Operation.NON_TRANSPOSE), int(cusparse.Operation.TRANSPOSE)
    matrices = ALPHA.ctypes.data, mat_a, mat_b, BETA.ctypes.data, mat_c
    # The library has no other compute type for these than float32.
    how = data_type("float32"), int(cusparse.SpMMAlg[sparse.algorithm])
    call = (handle, as_is, transposed if transpose else as_is, *matrices, *how)
    buffer = cupy.empty(cusparse.sp_mm_buffer_size(*call), cupy.uint8)
    if sparse.preprocess:
        cusparse.sp_mm_preprocess(*call, buffer.data.ptr)
    return (*call, buffer.data.ptr), buffer
