"""cuSPARSE's sparse times dense: every algorithm that the library has for CSR, and its block formats.

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

The block formats, the first of which AsyncSparse compares with:

    cusparse_bell   CUSPARSE_SPMM_BLOCKED_ELL_ALG1: every row of blocks as long as the longest one

                      . a . b      columns  1   3      values  a b    row-major, (m, ellCols)
                      c . . .               0  -1              c 0    -1: nothing, and zeros for it

    cusparse_bsr    CUSPARSE_SPMM_BSR_ALG1: the blocks of BCSR as they are, row-major inside

Both are called with CUDA_R_32F as compute type, the only one that the library offers for them: cusparseSpMM takes a
cudaDataType there, which has no TF32. Its documentation lists float32 in Blocked-ELL among what runs on
tensor cores from compute capability 8.0 on, hence in TF32; BSR in float32 is named with CSR's types.

What the library refuses is a ValueError. Blocked-ELL is made in `prepare_blocks`: its time is `prepare_ms`, its arrays
and the work buffer are `prepare_bytes`. So is what `padded` makes where the blocks reach over the edge of A, and, of an
A in CSR, the blocks of 64 x 64 that AsyncSparse has (`in_whole_blocks`).
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

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
    require_column_major,
    require_taken,
    sizes,
)
from kernels.autotune.probe import dtype_of
from kernels.contract import Operands, Problem, require, timed
from kernels.formats import bcsr, half
from kernels.formats.csr import Csr
from kernels.formats.half import Half, array_module, array_of
from kernels.formats.nm import Nm, per_column_index
from kernels.lazy import cupy

#: What a contender is called behind cusparse_ -> in a sentence, and the member of cusparseSpMMAlg_t.
ALGORITHMS = {
    "default": ("default", "DEFAULT"),
    **{name: (name, f"CSR_{name.upper()}") for name in ("alg1", "alg2", "alg3")},
}
#: The same of cusparseSpMVAlg_t, for a single column.
VECTOR_ALGORITHMS = {name: (f"SpMV's {name}", f"CSR_{name.upper()}") for name in ("alg1", "alg2")}
FORMATS = {"bell": ("Blocked-ELL", "BLOCKED_ELL_ALG1"), "bsr": ("BSR", "BSR_ALG1")}
BLOCK = 64  #: rows and columns of the blocks that an A in CSR is made of


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
    elif isinstance(a, bcsr.Bcsr):
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

    describe = partial(cusparse.create_csr, a.m, a.k, a.nnz, *pointers(a))
    return ready(algorithm, describe, b, c, operands.c, problem, ms, nbytes, a, operands)


def pointers(a: Csr | bcsr.Bcsr) -> tuple[int, ...]:
    """Return the addresses of what a matrix holds, and that both arrays of indices are int32, from zero."""
    index = int(cusparse.IndexType.INDEX_32I)
    return a.row_ptr.data.ptr, a.col_idx.data.ptr, a.val.data.ptr, index, index, int(cusparse.IndexBase.ZERO)


def prepare_blocks(format: str, problem: Problem, device) -> PreparedKernel:
    """Make cuSPARSE ready: the format, descriptors, work buffer. Overwrites C.

    format: one of FORMATS. device: `cuda.core.Device`, current. Raises ValueError for a problem
    without non-zeros, where A is not CSR, or BCSR with a B and a C of its dtype, for "bell" where a
    block is not square or the padding does not fit in the GPU's memory, and, naming the algorithm,
    where the library refuses the problem.
    """
    whole, output, ms, nbytes = in_whole_blocks(f"cusparse_{format}", problem)
    a, (block, b_col) = whole.a, whole.a.block
    if format == "bsr":

        def describe(data: int) -> int:
            return cusparse.create_bsr(
                *(a.block_rows, a.block_columns, a.blocks, *a.block), *pointers(a), data, int(cusparse.Order.ROW)
            )

        return ready(format, describe, whole.b, whole.c, output, problem, ms, nbytes, a)
    require(
        block == b_col,
        f"cusparse_bell takes square blocks only, and here they are {block} x {b_col}: compare with cusparse_bsr",
    )
    need, free = ell_bytes(a), free_bytes()
    require(
        need <= free,
        f"cusparse_bell would pad every row of blocks to the longest one's {_width(a)} blocks, which "
        f"takes {need} bytes for m={problem.m}, k={problem.k}, and {free} are free on the GPU: compare "
        "with cusparse_bsr",
    )
    (columns, values), padding_ms = timed(lambda: blocked_ell(a))
    arrays = columns.data.ptr, values.data.ptr, int(cusparse.IndexType.INDEX_32I), int(cusparse.IndexBase.ZERO)
    described = partial(cusparse.create_blocked_ell, a.m, a.k, block, values.shape[1], *arrays)
    nbytes += columns.nbytes + values.nbytes
    return ready(format, described, whole.b, whole.c, output, problem, ms + padding_ms, nbytes, columns, values)


def ready(
    name: str,
    describe: Callable[[int], int],
    b,
    c,
    output,
    problem: Problem,
    ms: float,
    nbytes: int,
    *keep: Any,
) -> PreparedKernel:
    """Descriptors, work buffer and preprocessing of a matrix times b into c, whose view is `output`.

    name: of ALGORITHMS or FORMATS. describe: member of cudaDataType -> the matrix's descriptor. b, c: CuPy arrays or
    `Half`s without gaps, each row-major or column-major. Where they lie in two orders, the library is given the B^T
    that lies there, in C's order, and is told to transpose it, as PyTorch does; where it refuses that, B as it lies.
    ms, nbytes: what making the matrix took; keep: what holds its arrays. The device is current. Overwrites c. Raises
    ValueError, naming the algorithm, where the library refuses the problem.
    """
    words, member = (ALGORITHMS | FORMATS)[name]
    flags = array_of(b).flags, array_of(c).flags
    orders = ["row-major" if each.c_contiguous else "column-major" for each in flags]
    # A vector is both.
    alike = flags[0].c_contiguous if flags[1].c_contiguous else flags[0].f_contiguous
    what = f"{sizes(problem)}, nnz={problem.nnz}, B {orders[0]} and C {orders[1]} in {dtype_of(c)}"
    with refusing(f"cuSPARSE refuses {words} at {what}", cusparse.cuSPARSEError) as stack:
        # Freed in reverse order: the handle last.
        handle = owned(stack, cusparse.destroy, cusparse.create())
        cusparse.set_stream(handle, cupy.cuda.get_current_stream().ptr)
        # Preprocessing does nothing for blocks.
        prepare = partial(_prepare, handle, member, name in ALGORITHMS, describe, b, c)
        # The first time in a process also loads the library's code: prepare twice, time the second.
        transpose = _first_way(prepare, (False,) if alike else (True, False))
        begin = time.perf_counter()
        arguments, buffer = prepare(transpose, stack)
        cupy.cuda.get_current_stream().synchronize()
        prepare_ms = ms + (time.perf_counter() - begin) * 1e3
        call = on_stream(partial(cusparse.set_stream, handle), partial(cusparse.sp_mm, *arguments))
        bound = PreparedKernel(f"cusparse_{name}", prepare_ms, int(buffer.nbytes) + int(nbytes), call, output)
        return hold(bound, stack, buffer, keep, b, c)


contenders = offers(prepare, {f"cusparse_{name}": (name,) for name in ALGORITHMS})
blocks = offers(prepare_blocks, {f"cusparse_{name}": (name,) for name in FORMATS})


def prepare_vector(algorithm: str, problem: Problem, device) -> PreparedKernel:
    """Make cuSPARSE's product of a matrix and a vector ready: descriptors, work buffer, preprocessing. Overwrites C.

    algorithm: one of VECTOR_ALGORITHMS. device: `cuda.core.Device`, current. Raises ValueError for a problem without
    non-zeros or of several columns, unless A is CSR and B float32, and where the library refuses the problem.
    """
    require_work(problem)
    operands = problem.device()
    a, b, c = operands.a, operands.b, operands.c
    taken = problem.n == 1 and isinstance(a, Csr) and dtype_of(b) in ("float32", "tf32")
    require_taken(taken, "cuSPARSE's SpMV", "a CSR A and a single column of float32", problem)
    words, member = VECTOR_ALGORITHMS[algorithm]
    with refusing(f"cuSPARSE refuses {words} at {sizes(problem)}, nnz={a.nnz}", cusparse.cuSPARSEError) as stack:
        handle = owned(stack, cusparse.destroy, cusparse.create())
        data = data_type("float32")
        mat = owned(stack, cusparse.destroy_sp_mat, cusparse.create_csr(a.m, a.k, a.nnz, *pointers(a), data))
        x, y = (
            owned(stack, cusparse.destroy_dn_vec, cusparse.create_dn_vec(array.size, array.data.ptr, data))
            for array in (b, c)
        )
        given = handle, int(cusparse.Operation.NON_TRANSPOSE), ALPHA.ctypes.data, mat, x, BETA.ctypes.data, y
        call = (*given, data, int(cusparse.SpMVAlg[member]))
        cusparse.set_stream(handle, cupy.cuda.get_current_stream().ptr)

        def made():
            buffer = cupy.empty(cusparse.sp_mv_buffer_size(*call), cupy.uint8)
            cusparse.sp_mv_preprocess(*call, buffer.data.ptr)
            cusparse.sp_mv(*call, buffer.data.ptr)
            return buffer

        made()  # the first time in a process also loads the library's code
        buffer, prepare_ms = timed(made)
        launch = on_stream(partial(cusparse.set_stream, handle), partial(cusparse.sp_mv, *call, buffer.data.ptr))
        bound = PreparedKernel(f"cusparse_spmv_{algorithm}", prepare_ms, int(buffer.nbytes), launch, c)
        return hold(bound, stack, buffer, a, b, c)


vectors = offers(prepare_vector, {f"cusparse_spmv_{name}": (name,) for name in VECTOR_ALGORITHMS})


def transposed_csr(b: Nm) -> Csr:
    """B^T (n, k) as CSR, columns ascending, on the side where `b` lives.

    The surplus rows of the format are left out: they would repeat the column k - 1. Other zeros that
    are stored stay.
    """
    xp = array_module(b.val)
    real = b.k // b.group * b.keep + min(b.keep, b.k % b.group)
    col_idx, val = (xp.ascontiguousarray(x[:real].T).reshape(-1) for x in (per_column_index(b), b.val))
    return Csr(b.n, b.k, xp.arange(b.n + 1, dtype=xp.int32) * xp.int32(real), col_idx, val)


def csr_of_blocks(a: bcsr.Bcsr) -> Csr:
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
    taken = isinstance(operands.a, bcsr.Bcsr) and all(
        dtype_of(x) == operands.a.dtype and (array_of(x).flags.c_contiguous or array_of(x).flags.f_contiguous)
        for x in (operands.b, operands.c)
    )
    require_taken(taken, contender, "a BCSR A with a B and a C of its dtype, without gaps,", problem)


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


def _prepare(
    handle: int,
    algorithm: str,
    preprocess: bool,
    describe: Callable[[int], int],
    b,
    c,
    transpose: bool,
    stack: ExitStack,
) -> tuple[tuple, Any]:
    """Descriptors, buffer and preprocessing: return the arguments of sp_mm, and the buffer."""
    data = data_type(dtype_of(c))
    mat_a = owned(stack, cusparse.destroy_sp_mat, describe(data))
    mat_b, mat_c = (dense_matrix(x, data, stack) for x in (array_of(b).T if transpose else array_of(b), array_of(c)))
    as_is, transposed = int(cusparse.Operation.NON_TRANSPOSE), int(cusparse.Operation.TRANSPOSE)
    matrices = ALPHA.ctypes.data, mat_a, mat_b, BETA.ctypes.data, mat_c
    # The library has no other compute type for these than float32.
    how = data_type("float32"), int(cusparse.SpMMAlg[algorithm])
    call = (handle, as_is, transposed if transpose else as_is, *matrices, *how)
    buffer = cupy.empty(cusparse.sp_mm_buffer_size(*call), cupy.uint8)
    if preprocess:
        cusparse.sp_mm_preprocess(*call, buffer.data.ptr)
    return (*call, buffer.data.ptr), buffer


def dense_matrix(array, data: int, stack: ExitStack) -> int:
    """Return the descriptor of a matrix without gaps, row-major or column-major, which the stack destroys.

    data: member of cudaDataType.
    """
    by_rows = array.flags.c_contiguous
    order = int(cusparse.Order.ROW if by_rows else cusparse.Order.COL)
    made = cusparse.create_dn_mat(*array.shape, array.shape[by_rows], array.data.ptr, data, order)
    return owned(stack, cusparse.destroy_dn_mat, made)


# ---------------------------------------------------------------- blocks


def in_whole_blocks(name: str, problem: Problem) -> tuple[Operands, Any, float, int]:
    """Return operands whose sizes are multiples of the blocks, and what making them took.

    They lie on the device, C (m, n) as a view of their C; the cost is (milliseconds, bytes).

    name: the contender's. An A in CSR becomes blocks of 64 x 64 in B's dtype. Raises ValueError for a problem without
    non-zeros, and where A is not CSR, or BCSR with a B and a C of its dtype.
    """
    require_work(problem)
    operands, ms, nbytes = problem.device(), 0.0, 0
    b, c = operands.b, operands.c
    if isinstance(operands.a, Csr):
        a, ms = timed(lambda: bcsr.from_csr(problem.device().a, block=BLOCK, dtype=dtype_of(b)))
        operands, nbytes = Operands(a, b, c), a.nbytes
    require_blocks(name, problem, operands)
    (whole, output), padding_ms = timed(lambda: padded(operands))
    nbytes += sum(array_of(ours).nbytes for ours, theirs in ((whole.b, b), (whole.c, c)) if ours is not theirs)
    return whole, output, ms + padding_ms, nbytes


def padded(operands: Operands) -> tuple[Operands, Any]:
    """Operands whose sizes are multiples of the blocks, and C (m, n) as a view of their C.

    Where m is none, C is a longer one, for whole blocks of rows. Where k is none, B is a copy with zeros
    below; a program that multiplies once would pay for that in each multiplication. What is whole
    already is shared.
    """
    a, (b_row, b_col) = operands.a, operands.a.block
    rows, columns = a.block_rows * b_row, a.block_columns * b_col
    whole = Operands(replace(a, m=rows, k=columns), _longer(operands.b, columns), _longer(operands.c, rows))
    return whole, operands.c if rows == a.m else _with(whole.c, array_of(whole.c)[: a.m])


def blocked_ell(a: bcsr.Bcsr) -> tuple[Any, Any]:
    """(columns, values) of A in Blocked-ELL, on the side where it lives; blocks are square.

    columns: int32 (rows of blocks, width), -1 where a row has no more blocks, width being the blocks
    of the longest row; values: of A's storage, row-major (rows of blocks · block, width · block).
    """
    xp, width, block = array_module(a.val), _width(a), a.block[0]
    row = bcsr.block_rows_of(a)
    slot = xp.arange(a.blocks, dtype=xp.int64) - a.row_ptr[row]
    columns = xp.full_like(a.col_idx, -1, order="C", shape=(a.block_rows, width))
    columns[row, slot] = a.col_idx
    values = xp.zeros_like(a.val, order="C", shape=(a.block_rows, block, width, block))
    values.transpose(0, 2, 1, 3)[row, slot] = a.val
    return columns, values.reshape(a.block_rows * block, width * block)


def ell_bytes(a: bcsr.Bcsr) -> int:
    """Bytes of both arrays of `blocked_ell`."""
    b_row, b_col = a.block
    return a.block_rows * _width(a) * (b_row * b_col * a.val.dtype.itemsize + 4)


def free_bytes() -> int:
    """Device memory that CuPy can still hand out, in bytes."""
    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


def _width(a: bcsr.Bcsr) -> int:
    """Blocks in the longest row of blocks."""
    return int((a.row_ptr[1:] - a.row_ptr[:-1]).max())


def _longer(dense, rows: int):
    """Return a dense operand with rows of zeros below, in its order; itself where it has as many."""
    array = array_of(dense)
    if len(array) == rows:
        return dense
    order = "C" if array.flags.c_contiguous else "F"
    made = array_module(array).zeros_like(array, order=order, shape=(rows, array.shape[1]))
    made[: len(array)] = array
    return _with(dense, made)


def _with(dense, array):
    return replace(dense, bits=array) if isinstance(dense, Half) else array
