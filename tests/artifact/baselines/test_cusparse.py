"""cuSPARSE: what CSR and block formats are made of the operands, how the library is told of orders, what it is
refused."""

from dataclasses import replace

import numpy as np
import pytest
from contenders import refused
from fake_libraries import DEVICE, STREAM, bcsr_problem, csr_problem

from artifact.baselines import cusparse, cusparse_block
from artifact.measure import verification
from kernels.async_sparse import operands
from kernels.contract import Operands
from kernels.formats import bcsr, csr, half, nm
from kernels.formats.half import Half

FORMATS = cusparse_block.FORMATS
#: Sizes in whole blocks of 16, and some that are not.
WHOLE, RAGGED = (64, 24, 96), (50, 24, 83)


@pytest.fixture
def library(libraries):
    return libraries.cusparse


@pytest.mark.parametrize("vector", [1, 4, 128])
@pytest.mark.parametrize(
    ("k", "keep", "group", "real"),
    [(64, 8, 32, 16), (45, 16, 32, 29), (33, 2, 32, 3), (7, 4, 4, 7)],
)
def test_the_transpose_is_csr_without_surplus_rows(k, keep, group, real, vector):
    b = nm.random(k, 10, keep, group, vector, 3)
    made = csr.validate(cusparse.transposed_csr(b))
    assert (made.m, made.k, made.nnz) == (10, k, 10 * real)
    assert (csr.to_dense(made) == nm.to_dense(b).T).all()
    ascending = np.diff(made.col_idx.reshape(10, real), axis=1) > 0
    assert ascending.all(), "no column twice, so that no algorithm meets repeated ones"


@pytest.mark.parametrize("dtype", csr.DTYPES)
def test_the_csr_of_blocks_has_the_original_non_zeros_only(dtype):
    matrix = csr.Csr(
        40,
        50,
        np.r_[0, np.full(39, 3), 5].astype(np.int32),
        np.array([49, 3, 17, 2, 44], np.int32),
        np.array([1, -2, 0.5, 4, -1], np.float32),
    )
    made = cusparse.csr_of_blocks(bcsr.from_csr(matrix, block=16, dtype=dtype))
    assert made.nnz == 5 and made.row_ptr.tolist() == matrix.row_ptr.tolist()
    assert made.col_idx.tolist() == [3, 17, 49, 2, 44]
    values = made.val if dtype == "float32" else half.from_bits(made.val, dtype)
    assert values.tolist() == [-2, 0.5, 1, 4, -1]
    assert made.val.dtype == (np.float32 if dtype == "float32" else np.uint16)


@pytest.mark.parametrize(("layout", "transposed"), [("source", 1), ("linear", 0), ("row", 0)])
def test_where_orders_differ_b_is_transposed_or_given_as_it_lies(library, layout, transposed):
    prepare = cusparse.prepare("alg3", bcsr_problem(*RAGGED, block=16, layout=layout), DEVICE).launch
    prepare(STREAM)
    assert library.log[-1][3] == transposed and library.log[-1][-2] == 12
    assert len(library.calls("preprocess")) == 2, "the second is timed"
    assert library.log[-1][2:] == library.calls("preprocess")[-1][2:], "the arguments that were preprocessed"
    library.refuses = lambda b, c, transposed: transposed
    problem = bcsr_problem(*RAGGED, block=16, layout=layout)
    bound = cusparse_block.prepare("bsr", problem, DEVICE)
    verification.check(bound, problem, verification.oracle(problem, on="cpu"), STREAM)
    assert library.log[-1][3] == 0 and len(library.calls("preprocess")) == 2, "which does nothing for blocks"


def test_rows_that_repeat_columns_are_not_for_alg3(library):
    problem = csr_problem(8, 24, 64)
    problem.k = 3
    assert cusparse.prepare("alg3", problem, DEVICE)
    problem.k = 2
    assert cusparse.prepare("alg2", problem, DEVICE)
    refused(
        "alg3 fails where a row holds more entries than A has columns, here 3 in 2",
        cusparse.prepare,
        "alg3",
        problem,
        DEVICE,
    )


@pytest.mark.parametrize("dtype", csr.DTYPES)
@pytest.mark.parametrize("shape", [(64, 96), (50, 83), (16, 16)])
def test_blocked_ell_pads_every_row_of_blocks_to_the_longest(shape, dtype):
    a = bcsr.random(*shape, 0.4, 3, block=16, dtype=dtype)
    columns, values = cusparse_block.blocked_ell(a)
    lengths = np.diff(a.row_ptr)
    assert columns.shape == (a.block_rows, lengths.max()) and columns.dtype == np.int32
    assert values.shape == (16 * a.block_rows, 16 * lengths.max()) and values.dtype == a.val.dtype
    assert columns.nbytes + values.nbytes == cusparse_block.ell_bytes(a)
    assert ((columns >= 0).sum(axis=1) == lengths).all()
    for row, length in enumerate(lengths):
        first = a.row_ptr[row]
        assert (columns[row, :length] == a.col_idx[first : first + length]).all()
        assert (columns[row, length:] == -1).all()
        cells = values[16 * row : 16 * row + 16].reshape(16, -1, 16).transpose(1, 0, 2)
        assert (cells[:length] == a.val[first : first + length]).all()
        assert not cells[length:].any()


@pytest.mark.parametrize("dtype", ["bfloat16", "tf32"])
@pytest.mark.parametrize("layout", operands.LAYOUTS)
def test_whole_operands_are_shared_and_others_padded(layout, dtype):
    problem = bcsr_problem(*WHOLE, block=16, layout=layout, dtype=dtype)
    given = problem.device()
    whole, output = cusparse_block.padded(given)
    assert whole.b is given.b and whole.c is given.c and output is given.c
    problem = bcsr_problem(*RAGGED, block=16, layout=layout, dtype=dtype)
    given = problem.device()
    whole, output = cusparse_block.padded(given)
    assert (whole.a.m, whole.a.k, whole.b.shape, whole.c.shape) == (64, 96, (96, 24), (64, 24))
    b, c = map(cusparse.array_of, (whole.b, whole.c))
    assert (b[:83] == cusparse.array_of(given.b)).all() and not b[83:].any()
    for ours, theirs in ((b, given.b), (c, given.c)):
        assert ours.flags.c_contiguous == cusparse.array_of(theirs).flags.c_contiguous
    assert output.shape == (50, 24) and np.shares_memory(cusparse.array_of(output), c)
    assert isinstance(output, Half) == (dtype == "bfloat16")


def test_padding_beyond_the_memory_is_refused_with_its_bytes(monkeypatch, library):
    problem = bcsr_problem(*WHOLE, block=16)
    need = cusparse_block.ell_bytes(problem.device().a)
    monkeypatch.setattr(cusparse_block, "free_bytes", lambda: need - 1)
    refused(f"takes {need} bytes for m=64, k=96, and {need - 1} are", cusparse_block.prepare, "bell", problem, DEVICE)
    monkeypatch.setattr(cusparse_block, "free_bytes", lambda: need)
    assert cusparse_block.prepare("bell", problem, DEVICE).name == "cusparse_bell"


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_the_csr_of_blocks_is_the_same_on_the_gpu(device):
    a = bcsr.random(300, 500, 0.3, 1, block=32)
    ours, theirs = cusparse.csr_of_blocks(a), cusparse.csr_of_blocks(bcsr.to_device(a))
    for name in ("row_ptr", "col_idx", "val"):
        assert (getattr(ours, name) == getattr(theirs, name).get()).all()


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
def test_empty_rows_and_one_long_row_are_right(device, format):
    problem = operands.problem(640, 64, 512, 0.2, layout="linear")
    a = bcsr.to_host(problem.device().a)
    row_ptr = np.array([0, 8, *[8] * 8, 9], np.int32)  # all columns, nothing eight times, one
    columns = np.array([*range(8), 3], np.int32)
    val = np.resize(a.val, (9, 64, 64))
    made = replace(a, row_ptr=row_ptr, col_idx=columns, val=val, nnz=val.size)
    problem.device().a = bcsr.to_device(bcsr.validate(made))
    problem.host().a = made
    bound = cusparse_block.prepare(format, problem, device)
    verification.check(bound, problem, verification.oracle(problem), device.create_stream())


@pytest.mark.gpu
def test_padding_beyond_the_memory_of_the_gpu_is_refused(device):
    import cupy

    _, total = cupy.cuda.runtime.memGetInfo()
    assert 0 < cusparse_block.free_bytes() <= total
    blocks = int((total / 2 / 64**2) ** 0.5) + 1  # in one row, and rows: their square is too much
    a = bcsr.Bcsr(
        64 * blocks,
        64 * blocks,
        "bfloat16",
        np.r_[0, np.full(blocks, blocks)].astype(np.int32),
        np.arange(blocks, dtype=np.int32),
        np.ones((blocks, 64, 64), np.uint16),
        blocks * 64 * 64,
    )
    problem = operands.problem(64, 8, 64, density=1.0)
    b, c = (Half("bfloat16", cupy.zeros((64 * blocks, 8), np.uint16)) for _ in range(2))
    problem._device = Operands(bcsr.to_device(a), b, c)
    refused("would pad every row of blocks .* bytes for", cusparse_block.prepare, "bell", problem, device)
