import weakref
from dataclasses import replace

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import (
    DEVICE,
    STREAM,
    Cusparse,
    bcsr_problem,
    blocks_with_addresses,
    csr_problem,
    install,
    nm_problem,
    sparse_matrix,
)

from artifact import registry
from artifact.baselines import cusparse, cusparse_block
from artifact.measure import check
from kernels.async_sparse import operands
from kernels.contract import Operands
from kernels.formats import bcsr, half, stored
from kernels.formats.half import Half

pytest.importorskip("cuda.bindings.runtime")

FORMATS = cusparse_block.FORMATS
#: Sizes in whole blocks of 16, and some that are not.
WHOLE, RAGGED = (64, 24, 96), (50, 24, 83)


@pytest.fixture
def library(monkeypatch):
    fake = Cusparse()
    install(monkeypatch, fake)
    monkeypatch.setattr(cusparse_block, "free_bytes", lambda: 2**40)
    return fake


# ---------------------------------------------------------------- the formats


@pytest.mark.parametrize("dtype", stored.DTYPES)
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


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", operands.DTYPES)
@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("shape", [WHOLE, RAGGED])
def test_the_product_is_that_of_the_same_operands(library, shape, layout, dtype, format):
    problem = bcsr_problem(*shape, block=16, layout=layout, dtype=dtype)
    bound = cusparse_block.bind(format, problem, DEVICE)
    assert bound.name == f"cusparse_{format}" and bound.prepare_ms > 0
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        check.check(bound, problem, reference, STREAM)
    assert (bound.result() is problem.device().c) == (shape == WHOLE)
    kind = {"bell": "blocked_ell", "bsr": "bsr"}[format]
    number = {"bell": 13, "bsr": 14}[format]
    assert set(library.launched) == {(kind, number, layout == "source")}
    assert not library.count("preprocess"), "which does nothing for these formats"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", operands.CSR_DTYPES)
@pytest.mark.parametrize("m, n, k", [(128, 24, 192), (100, 24, 150)])
def test_a_csr_matrix_is_made_blocks_first(monkeypatch, library, m, n, k, dtype, format):
    blocks_with_addresses(monkeypatch)
    problem = csr_problem(m, n, k, dtype=dtype)
    bound = cusparse_block.bind(format, problem, DEVICE)
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)
    size = 2 if dtype in half.DTYPES else 4
    blocks = bcsr.from_csr(problem.device().a, dtype="bfloat16" if size == 2 else "float32")
    made = blocks.nbytes + size * n * (128 + 192) * (m != 128)
    made += cusparse_block.ell_bytes(blocks) * (format == "bell")
    assert bound.prepare_bytes == 512 + made and bound.prepare_ms > 0
    assert (bound.result() is problem.device().c) == (m == 128)


@pytest.mark.parametrize("format", FORMATS)
def test_b_is_given_as_it_lies_where_the_library_does_not_transpose(library, format):
    library.refuses = lambda b, c, transposed: transposed
    problem = bcsr_problem(*RAGGED, block=16, layout="source")
    bound = cusparse_block.bind(format, problem, DEVICE)
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)
    assert {transposed for *_, transposed in library.launched} == {False}
    assert len(library.alive) == 4, "a handle and three descriptors: what was refused is gone"


def test_memory_is_what_was_made_of_the_operands(library):
    problem = bcsr_problem(*WHOLE, block=16)
    a = problem.device().a
    assert cusparse_block.bind("bsr", problem, DEVICE).prepare_bytes == 512, "the work buffer"
    bound = cusparse_block.bind("bell", problem, DEVICE)
    assert bound.prepare_bytes == 512 + cusparse_block.ell_bytes(a)
    bound = cusparse_block.bind("bsr", bcsr_problem(*RAGGED, block=16), DEVICE)
    assert bound.prepare_bytes == 512 + 2 * 24 * (96 + 64), "B and C of whole blocks"


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(("format", "words"), [("bell", "Blocked-ELL"), ("bsr", "BSR")])
def test_a_refusal_names_the_algorithm_and_leaves_nothing_behind(library, format, words):
    library.refuses = lambda b, c, transposed: True
    problem = bcsr_problem(*WHOLE, block=16, layout="source")
    message = f"cuSPARSE refuses {words} at m=64, n=24, k=96, .* B column-major and C row-major in bfl"
    with pytest.raises(ValueError, match=message + ".*NOT_SUPPORTED"):
        cusparse_block.bind(format, problem, DEVICE)
    assert not library.alive


def test_padding_beyond_the_memory_is_refused_with_its_bytes(monkeypatch, library):
    problem = bcsr_problem(*WHOLE, block=16)
    need = cusparse_block.ell_bytes(problem.device().a)
    monkeypatch.setattr(cusparse_block, "free_bytes", lambda: need - 1)
    with pytest.raises(ValueError, match=f"takes {need} bytes for m=64, k=96, and {need - 1} are"):
        cusparse_block.bind("bell", problem, DEVICE)
    monkeypatch.setattr(cusparse_block, "free_bytes", lambda: need)
    assert cusparse_block.bind("bell", problem, DEVICE).name == "cusparse_bell"


def test_other_blocks_formats_and_operands_are_refused(library):
    with pytest.raises(ValueError, match="square blocks only, and here they are 16 x 32"):
        cusparse_block.bind("bell", bcsr_problem(*WHOLE, block=(16, 32)), DEVICE)
    assert cusparse_block.bind("bsr", bcsr_problem(*WHOLE, block=(16, 32)), DEVICE)
    with pytest.raises(ValueError, match="cusparse_bsr takes a BCSR A .*nm_spmm has something"):
        cusparse_block.bind("bsr", nm_problem(6, 10, 40), DEVICE)
    with pytest.raises(ValueError, match="nothing to multiply"):
        cusparse_block.bind("bsr", bcsr_problem(*WHOLE, density=0, block=16), DEVICE)
    problem = bcsr_problem(*WHOLE, block=16)
    given = problem.device()
    other = Half("float16", given.b.bits)
    gaps = Half("bfloat16", np.zeros((96, 48), np.uint16)[:, ::2])
    for b in (other, gaps):
        problem._device = Operands(given.a, b, given.c)
        with pytest.raises(ValueError, match="a B and a C of its dtype, without gaps"):
            cusparse_block.bind("bell", problem, DEVICE)
    assert not library.alive


# ---------------------------------------------------------------- life


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("shape", [WHOLE, RAGGED])
def test_everything_is_released_with_the_last_reference(library, shape, format):
    problem = bcsr_problem(*shape, block=16)
    a, b, c = (getattr(problem.device(), name) for name in "abc")
    seen = [weakref.ref(x) for x in ((b.bits, c.bits) if shape == WHOLE else ())]
    seen += [weakref.ref(a.val)] if format == "bsr" else []
    del a, b, c
    bound = cusparse_block.bind(format, problem, DEVICE)
    assert len(library.alive) == 4
    problem.make_device = problem.make_host = None
    problem.release()
    assert all(x() is not None for x in seen), "the library still holds their addresses"
    bound.launch(STREAM)
    del bound
    assert not library.alive and all(x() is None for x in seen)


def test_contenders_have_the_names_of_the_records():
    names = ["cusparse_bell", "cusparse_bsr"]
    assert list(registry.contenders(["cusparse_block"], None)) == names


def test_the_names_exist_in_the_library():
    bindings = pytest.importorskip("nvmath.bindings.cusparse")
    for name, value in Cusparse.SpMMAlg.items():
        assert bindings.SpMMAlg[name] == value
    for kind in (Cusparse.Order, Cusparse.Operation):
        for name, value in vars(kind).items():
            here = bindings.Order if kind is Cusparse.Order else bindings.Operation
            assert here[name] == value
    for name in vars(Cusparse):
        if not name.startswith("_") and name != "TAKES":
            assert hasattr(bindings, name), name


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def gpu(device):
    return device


def taken(format: str, problem, gpu):
    """What is bound, or None where the library refuses the problem in a sentence that says so."""
    try:
        return cusparse_block.bind(format, problem, gpu)
    except ValueError as error:
        assert str(error).startswith(f"cuSPARSE refuses {'BSR' if format == 'bsr' else 'Blocked'}")
        return None


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", operands.DTYPES)
@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("format", FORMATS)
def test_the_library_is_right_in_every_layout_that_it_takes(gpu, format, layout, dtype):
    stream, took = gpu.create_stream(), []
    for block in bcsr.SIDES:
        for shape in ((256, 64, 384), (300, 40, 500), (1000, 128, 777)):
            problem = operands.problem(*shape, 0.3, block=block, dtype=dtype, layout=layout)
            bound = taken(format, problem, gpu)
            if bound is None:
                continue
            reference = check.oracle(problem)
            for _ in range(2):
                check.check(bound, problem, reference, stream)
            took.append(block)
            bound.close()
    assert took or layout == "source", "both formats take B and C in one order"


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", operands.CSR_DTYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_the_library_is_right_on_a_csr_matrix(gpu, format, dtype):
    a = sparse_matrix(1000, 777)
    problem = operands.problem_from_csr(a, 128, 1, dtype=dtype, format="csr", reorder="")
    bound = taken(format, problem, gpu)
    if bound is not None and not (format == "bell" and dtype == "float32"):  # it multiplies in TF32
        check.check(bound, problem, check.oracle(problem), gpu.create_stream())
        assert bound.prepare_ms > 0 and bound.prepare_bytes > 0


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
def test_empty_rows_and_one_long_row_are_right(gpu, format):
    problem = operands.problem(640, 64, 512, 0.2, layout="linear")
    a = bcsr.to_host(problem.device().a)
    row_ptr = np.array([0, 8, *[8] * 8, 9], np.int32)  # all columns, nothing eight times, one
    columns = np.array([*range(8), 3], np.int32)
    val = np.resize(a.val, (9, 64, 64))
    made = replace(a, row_ptr=row_ptr, col_idx=columns, val=val, nnz=val.size)
    problem.device().a = bcsr.to_device(bcsr.validate(made))
    problem.host().a = made
    bound = taken(format, problem, gpu)
    assert bound is not None
    check.check(bound, problem, check.oracle(problem), gpu.create_stream())


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
def test_the_library_can_be_captured(gpu, format):
    problem = operands.problem(1024, 256, 512, 0.2, layout="linear")
    reference = check.oracle(problem)
    bound = taken(format, problem, gpu)
    assert bound is not None
    check_captured(bound, problem, reference, gpu)


@pytest.mark.gpu
def test_padding_beyond_the_memory_of_the_gpu_is_refused(gpu):
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
    with pytest.raises(ValueError, match="would pad every row of blocks .* bytes for"):
        cusparse_block.bind("bell", problem, gpu)
