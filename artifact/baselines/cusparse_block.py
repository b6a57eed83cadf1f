"""cuSPARSE's block formats times dense: Blocked-ELL, as AsyncSparse compares with, and BSR.

    cusparse_bell   CUSPARSE_SPMM_BLOCKED_ELL_ALG1: every row of blocks as long as the longest one

                      . a . b      columns  1   3      values  a b    row-major, (m, ellCols)
                      c . . .               0  -1              c 0    -1: nothing, and zeros for it

    cusparse_bsr    CUSPARSE_SPMM_BSR_ALG1: the blocks of BCSR as they are, row-major inside

Values, B and C are bfloat16 or float16 with sums in float32, or float32. Both are called with
CUDA_R_32F as compute type, the only one that the library offers for them: cusparseSpMM takes a
cudaDataType there, which has no TF32. Its documentation lists float32 in Blocked-ELL among what runs on
tensor cores from compute capability 8.0 on, hence in TF32; BSR in float32 is named with CSR's types.

Both take B and C by rows or by columns: `cusparse.ready` says how, and what the library refuses is a
ValueError. Blocked-ELL is made in `prepare`: its time is `prepare_ms`, its arrays and the work buffer are
`prepare_bytes`. So is what `padded` makes where the blocks reach over the edge of A, and, of an A in CSR, the
blocks of 64 x 64 that AsyncSparse has (`in_whole_blocks`).
"""

from dataclasses import replace
from typing import Any

from artifact.baselines._library import PreparedKernel, cusparse, offers
from artifact.baselines.cusparse import Sparse, number, pointers, ready, require_blocks, require_work
from kernels.contract import Operands, Problem, require, timed
from kernels.formats import bcsr
from kernels.formats.bcsr import Bcsr
from kernels.formats.csr import Csr
from kernels.formats.half import Half, array_module, array_of
from kernels.lazy import cupy

FORMATS = ("bell", "bsr")
BLOCK = 64  #: rows and columns of the blocks that an A in CSR is made of


def prepare(format: str, problem: Problem, device) -> PreparedKernel:
    """Make cuSPARSE ready: the format, descriptors, work buffer. Overwrites C.

    format: one of FORMATS. device: `cuda.core.Device`, current. Raises ValueError for a problem
    without non-zeros, where A is not CSR, or BCSR with a B and a C of its dtype, for "bell" where a
    block is not square or the padding does not fit in the GPU's memory, and, naming the algorithm,
    where the library refuses the problem.
    """
    whole, output, ms, nbytes = in_whole_blocks(f"cusparse_{format}", problem)
    sparse = _bell(problem, whole.a) if format == "bell" else _bsr(whole.a)
    sparse = replace(sparse, ms=sparse.ms + ms, nbytes=sparse.nbytes + nbytes)
    return ready(f"cusparse_{format}", sparse, whole.b, whole.c, output, problem)


contenders = offers(prepare, {f"cusparse_{format}": (format,) for format in FORMATS})


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
        a, ms = timed(lambda: bcsr.from_csr(problem.device().a, block=BLOCK, dtype=number(b)))
        operands, nbytes = Operands(a, b, c), a.nbytes
    require_blocks(name, problem, operands)
    (whole, output), padding_ms = timed(lambda: padded(operands))
    nbytes += sum(array_of(ours).nbytes for ours, theirs in ((whole.b, b), (whole.c, c)) if ours is not theirs)
    return whole, output, ms + padding_ms, nbytes


def padded(operands: Operands) -> tuple[Operands, Any]:
    """Operands whose sizes are multiples of the blocks, and C (m, n) as a view of their C.

    Where m is none, C is new memory for whole blocks of rows. Where k is none, B is a copy with zeros
    below; a program that multiplies once would pay for that in each multiplication. What is whole
    already is shared.
    """
    a, b, c = operands.a, operands.b, operands.c
    (b_row, b_col), n = a.block, c.shape[1]
    rows, columns = a.block_rows * b_row, a.block_columns * b_col
    whole = Operands(replace(a, m=rows, k=columns), b, c)
    if columns != a.k:
        whole.b = _matrix(b, (columns, n), zeros=True)
        array_of(whole.b)[: a.k] = array_of(b)
    if rows == a.m:
        return whole, c
    whole.c = _matrix(c, (rows, n))
    view = array_of(whole.c)[: a.m]
    return whole, Half(c.dtype, view) if isinstance(c, Half) else view


def blocked_ell(a: Bcsr) -> tuple[Any, Any]:
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


def ell_bytes(a: Bcsr) -> int:
    """Bytes of both arrays of `blocked_ell`."""
    b_row, b_col = a.block
    return a.block_rows * _width(a) * (b_row * b_col * a.val.dtype.itemsize + 4)


def free_bytes() -> int:
    """Device memory that CuPy can still hand out, in bytes."""
    free, _ = cupy.cuda.runtime.memGetInfo()
    return int(free) + int(cupy.get_default_memory_pool().free_bytes())


def _bell(problem: Problem, a: Bcsr) -> Sparse:
    block, b_col = a.block
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
    (columns, values), ms = timed(lambda: blocked_ell(a))

    def describe(data: int) -> int:
        arrays = columns.data.ptr, values.data.ptr, int(cusparse.IndexType.INDEX_32I), int(cusparse.IndexBase.ZERO)
        return cusparse.create_blocked_ell(a.m, a.k, block, values.shape[1], *arrays, data)

    nbytes = columns.nbytes + values.nbytes
    return Sparse("Blocked-ELL", "BLOCKED_ELL_ALG1", describe, (columns, values), ms, nbytes)


def _bsr(a: Bcsr) -> Sparse:
    def describe(data: int) -> int:
        blocks = a.block_rows, a.block_columns, a.blocks, *a.block
        return cusparse.create_bsr(*blocks, *pointers(a), data, int(cusparse.Order.ROW))

    return Sparse("BSR", "BSR_ALG1", describe, a)


def _width(a: Bcsr) -> int:
    """Blocks in the longest row of blocks."""
    return int((a.row_ptr[1:] - a.row_ptr[:-1]).max())


def _matrix(like, shape: tuple[int, int], zeros: bool = False):
    """Return a dense operand of another shape, in the order and dtype of one that is there."""
    array = array_of(like)
    xp = array_module(array)
    order = "C" if array.flags.c_contiguous else "F"
    made = (xp.zeros_like if zeros else xp.empty_like)(array, order=order, shape=shape)
    return Half(like.dtype, made) if isinstance(like, Half) else made
