import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import (
    DEVICE,
    STREAM,
    Array,
    Cusparse,
    Library,
    array,
    bcsr_problem,
    csr_problem,
    install,
    nm_problem,
)

from artifact.baselines import cusparse
from artifact.measure import check
from kernels.async_sparse import operands as block_operands
from kernels.contract import Operands, Problem
from kernels.formats import bcsr, csr, half, nm, stored


class FakeLibrary(Library):
    """Stands in for nvmath.bindings.cusparse."""

    class cuSPARSEError(Exception):
        pass

    def __init__(self, refuse=None):
        super().__init__("cusparse")
        self.refuse = refuse
        self.SpMMAlg = {"DEFAULT": 0, "CSR_ALG1": 4, "CSR_ALG2": 6, "CSR_ALG3": 12}
        self.IndexType = SimpleNamespace(INDEX_32I=2)
        self.IndexBase = SimpleNamespace(ZERO=0)
        self.Order = SimpleNamespace(ROW=2)
        self.Operation = SimpleNamespace(NON_TRANSPOSE=0, TRANSPOSE=1)
        self.destroy = self.destroy_sp_mat = self.destroy_dn_mat = self.unmake

    def create(self):
        return self.make("handle")

    def create_csr(self, *arguments):
        return self.make("csr", *arguments)

    def create_dn_mat(self, *arguments):
        return self.make("dense", *arguments)

    def set_stream(self, handle, stream):
        self.log.append(("set_stream", handle, stream))

    def sp_mm_buffer_size(self, *arguments):
        assert len(arguments) == 10
        return 512

    def sp_mm_preprocess(self, *arguments):
        assert len(arguments) == 11
        self.log.append(("preprocess", *arguments))
        if self.refuse:
            raise self.cuSPARSEError(self.refuse)

    def sp_mm(self, *arguments):
        self.log.append(("multiply", *arguments))


@pytest.fixture
def library(monkeypatch):
    fake = FakeLibrary()
    install(monkeypatch, fake)
    return fake


def make_problem(m=4, n=8, k=6, nnz=5) -> Problem:
    a = SimpleNamespace(
        m=m,
        k=k,
        nnz=nnz,
        row_ptr=array(m + 1, np.int32),
        col_idx=array(nnz, np.int32),
        val=array(nnz, np.float32),
    )
    operands = Operands(a, array((k, n), np.float32), array((m, n), np.float32))
    return Problem(
        room="test",
        label="",
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=0.1,
        seed=0,
        useful_flops=1,
        flops_def="",
        least_bytes=1,
        requested_bytes=1,
        make_host=lambda: operands,
        make_device=lambda: operands,
    )


@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
def test_bind_describes_the_problem_to_the_library(library, algorithm):
    problem = make_problem()
    bound = cusparse.bind(algorithm, problem, DEVICE)
    assert bound.name == f"cusparse_{algorithm}"
    assert bound.prepare_ms > 0 and bound.prepare_bytes == 512
    assert bound.result() is problem.device().c
    csr, b, c = [entry for entry in library.log if entry[0] in ("csr", "dense")][-3:]
    operands = problem.device()
    assert csr[1:4] == (4, 6, 5) and csr[6] == operands.a.val.data.ptr
    assert csr[7:] == (2, 2, 0, 0), "int32 offsets and columns, from zero, float32"
    # Row-major: the leading dimension is the number of columns.
    assert b[1:] == (6, 8, 8, operands.b.data.ptr, 0, 2)
    assert c[1:] == (4, 8, 8, operands.c.data.ptr, 0, 2)


def test_launch_only_multiplies_and_sets_the_stream_when_it_changes(library):
    bound = cusparse.bind("alg2", make_problem(), DEVICE)
    before = len(library.log)
    one, two = SimpleNamespace(handle=11), SimpleNamespace(handle=22)
    for stream in (one, one, two, two, one):
        bound.launch(stream)
    assert [entry[0] for entry in library.log[before:]] == [
        "set_stream",
        "multiply",
        "multiply",
        "set_stream",
        "multiply",
        "multiply",
        "set_stream",
        "multiply",
    ]
    multiply = library.log[-1]
    assert multiply[-2] == 6, "CUSPARSE_SPMM_CSR_ALG2"
    assert multiply[1:] == library.log[before - 1][1:], "the arguments that were preprocessed"


def test_everything_is_released_with_the_last_reference(library):
    problem = make_problem()
    operands = weakref.ref(problem.device())
    bound = cusparse.bind("alg3", problem, DEVICE)
    assert len(library.alive) == 4, "a handle and three descriptors"
    problem.make_device = problem.make_host = None
    problem.release()
    assert operands() is not None, "the library still holds their addresses"
    del bound
    assert not library.alive and operands() is None


def test_close_releases_early_and_once(library):
    bound = cusparse.bind("default", make_problem(), DEVICE)
    bound.close()
    assert not library.alive
    bound.close()
    del bound


def test_a_refusal_names_the_algorithm_and_leaves_nothing_behind(library):
    library.refuse = "CUSPARSE_STATUS_NOT_SUPPORTED"
    with pytest.raises(ValueError, match="cuSPARSE refuses alg1 at m=4, n=8.*NOT_SUPPORTED"):
        cusparse.bind("alg1", make_problem(), DEVICE)
    assert not library.alive


@pytest.mark.parametrize("shape", [{"nnz": 0}, {"n": 0}])
def test_an_empty_problem_is_refused(shape):
    with pytest.raises(ValueError, match="nothing to multiply"):
        cusparse.bind("alg1", make_problem(**shape), DEVICE)


def test_contenders_have_the_names_of_the_records():
    names = ["cusparse_default", "cusparse_alg1", "cusparse_alg2", "cusparse_alg3"]
    assert list(cusparse.contenders(DEVICE)) == names


def test_the_names_exist_in_the_library():
    bindings = pytest.importorskip("nvmath.bindings.cusparse")
    for member in cusparse._ENUM.values():
        assert member in bindings.SpMMAlg.__members__
    for name in ("sp_mm", "sp_mm_buffer_size", "sp_mm_preprocess", "create_csr", "create_dn_mat"):
        assert callable(getattr(bindings, name))


# ---------------------------------------------------------------- an N:M B


@pytest.fixture
def convert(monkeypatch):
    """`transposed_csr` with arrays of the fake CuPy, and what it returned."""
    made, convert = [], cusparse.transposed_csr

    def with_addresses(b):
        x = convert(b)
        made.append(csr.Csr(x.m, x.k, *(y.view(Array) for y in (x.row_ptr, x.col_idx, x.val))))
        return made[-1]

    monkeypatch.setattr(cusparse, "transposed_csr", with_addresses)
    return made


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


@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
def test_an_nm_problem_is_multiplied_transposed_as_it_lies(library, convert, algorithm):
    problem = nm_problem(6, 10, 40, 0.25)
    bound = cusparse.bind(algorithm, problem, DEVICE)
    operands, made = problem.device(), convert[-1]
    assert bound.name == f"cusparse_{algorithm}" and bound.prepare_ms > 0
    assert bound.result() is operands.c and bound.result().shape == (6, 10)
    assert bound.prepare_bytes == 512 + made.nbytes, "the work buffer and the CSR matrix"
    sparse, b, c = [entry for entry in library.log if entry[0] in ("csr", "dense")][-3:]
    pointers = tuple(x.data.ptr for x in (made.row_ptr, made.col_idx, made.val))
    assert sparse[1:7] == (10, 40, 160, *pointers)
    # Row-major A^T and C^T: the leading dimension is m.
    assert b[1:] == (40, 6, 6, operands.a.data.ptr, 0, 2)
    assert c[1:] == (10, 6, 6, operands.c.data.ptr, 0, 2)


def test_an_nm_problem_lives_as_long_as_its_addresses(library, convert):
    problem = nm_problem(6, 10, 40)
    a, c = (weakref.ref(x) for x in (problem.device().a, problem.device().c.base))
    bound = cusparse.bind("alg2", problem, DEVICE)
    values = weakref.ref(convert.pop().val)
    convert.clear()
    problem.make_device = problem.make_host = None
    problem.release()
    assert all(x() is not None for x in (a, c, values))
    del bound
    assert not library.alive and not any(x() is not None for x in (a, c, values))


def test_an_nm_problem_in_another_order_or_dtype_is_refused(library, convert):
    problem = nm_problem(6, 10, 40)
    problem.device().c = np.zeros((6, 10), np.float32)
    with pytest.raises(ValueError, match="cuSPARSE takes C as a float32 array in Fortran order"):
        cusparse.bind("alg1", problem, DEVICE)
    with pytest.raises(ValueError, match="cuSPARSE takes A as a float32 array .*nm_spmm has it"):
        cusparse.bind("alg1", nm_problem(6, 10, 40, dtype="bfloat16"), DEVICE)
    assert not library.alive


# ---------------------------------------------------------------- a BCSR A


@pytest.mark.parametrize("dtype", stored.DTYPES)
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


@pytest.fixture
def multiplies(monkeypatch):
    """A library that multiplies on the CPU, and `csr_of_blocks` with arrays of the fake CuPy."""
    fake, convert = Cusparse(), cusparse.csr_of_blocks

    def with_addresses(a):
        x = convert(a)
        return csr.Csr(x.m, x.k, *(y.view(Array) for y in (x.row_ptr, x.col_idx, x.val)))

    install(monkeypatch, fake)
    monkeypatch.setattr(cusparse, "csr_of_blocks", with_addresses)
    return fake


@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
@pytest.mark.parametrize("dtype", block_operands.DTYPES)
@pytest.mark.parametrize("layout", block_operands.LAYOUTS)
def test_blocks_are_multiplied_as_csr_in_either_order(multiplies, algorithm, dtype, layout):
    problem = bcsr_problem(50, 24, 83, block=16, dtype=dtype, layout=layout)
    bound = cusparse.bind(algorithm, problem, DEVICE)
    assert bound.name == f"cusparse_{algorithm}" and bound.prepare_ms > 0
    assert bound.result() is problem.device().c
    size = 4 if dtype == "tf32" else 2
    assert bound.prepare_bytes == 512 + 4 * 51 + (4 + size) * problem.nnz
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        check.check(bound, problem, reference, STREAM)
    assert {transposed for *_, transposed in multiplies.launched} == {layout == "source"}
    assert multiplies.count("preprocess") == 2
    del bound
    assert not multiplies.alive


@pytest.mark.parametrize("dtype", block_operands.CSR_DTYPES)
@pytest.mark.parametrize("layout", block_operands.LAYOUTS)
def test_a_csr_matrix_is_multiplied_in_the_dtype_of_b(multiplies, monkeypatch, dtype, layout):
    problem = csr_problem(50, 24, 83, layout, dtype=dtype)
    rounded = cusparse.stored.rounded
    monkeypatch.setattr(cusparse.stored, "rounded", lambda val, dtype: np.asarray(rounded(val, dtype)).view(Array))
    bound = cusparse.bind("alg2", problem, DEVICE)
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)
    assert bound.prepare_bytes == 512 + 2 * problem.nnz * (dtype in half.DTYPES)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 24, 40), (40, 1, 40), (40, 24, 1), (1, 1, 1)])
@pytest.mark.parametrize("layout", block_operands.LAYOUTS)
def test_vectors_have_both_orders(multiplies, m, n, k, layout):
    problem = bcsr_problem(m, n, k, 1.0, block=16, layout=layout)
    bound = cusparse.bind("default", problem, DEVICE)
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)


def test_blocks_with_other_operands_are_refused(multiplies):
    problem = bcsr_problem(50, 24, 83, block=16)
    problem.device().b = half.Half("float16", problem.device().b.bits)
    with pytest.raises(ValueError, match="cuSPARSE takes a BCSR A with a B and a C of its dtype"):
        cusparse.bind("alg1", problem, DEVICE)
    multiplies.refuses = lambda b, c, transposed: True
    message = "cuSPARSE refuses alg3 at m=50, .* B column-major and C row-major in bfloat16: NOT_SUPP"
    with pytest.raises(ValueError, match=message):
        cusparse.bind("alg3", bcsr_problem(50, 24, 83, block=16), DEVICE)
    assert not multiplies.alive


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def gpu(device):
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
@pytest.mark.parametrize("n", [1, 3, 4, 5, 128, 257])
def test_cusparse_is_right_on_repeated_and_unsorted_columns(gpu, algorithm, n):
    from artifact.measure import check
    from kernels import casper_sparse as room

    problem = room.problem(m=513, n=n, k=300, density=0.05, seed=n)
    reference = check.oracle(problem)
    bound = cusparse.bind(algorithm, problem, gpu)
    stream = gpu.create_stream()
    errors = check.check(bound, problem, reference, stream)
    assert errors.rel_err < 1e-6
    assert bound.prepare_ms >= 0 and bound.prepare_bytes >= 0


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
def test_cusparse_can_be_captured(gpu, algorithm):
    from artifact.measure import check
    from kernels import casper_sparse as room

    problem = room.problem(m=1000, n=64, k=500, density=0.05)
    reference = check.oracle(problem)
    bound = cusparse.bind(algorithm, problem, gpu)
    assert check_captured(bound, problem, reference, gpu).rel_err < 1e-6


@pytest.mark.gpu
def test_two_algorithms_on_one_problem_do_not_disturb_each_other(gpu):
    from artifact.measure import check
    from kernels import casper_sparse as room

    problem = room.problem(m=2000, n=32, k=1000, density=0.02)
    reference = check.oracle(problem)
    bounds = [cusparse.bind(a, problem, gpu) for a in cusparse.ALGORITHMS]
    stream = gpu.create_stream()
    for bound in bounds + bounds[::-1]:
        assert check.check(bound, problem, reference, stream).rel_err < 1e-6


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
@pytest.mark.parametrize("shape", [(64, 96, 128, 0.25), (1, 33, 64, 0.5), (130, 100, 45, 0.5), (257, 5, 7, 1.0)])
def test_cusparse_is_right_on_an_nm_problem(gpu, algorithm, shape):
    from artifact.measure import check
    from kernels.nm_spmm import operands

    problem = operands.problem(*shape)
    bound = cusparse.bind(algorithm, problem, gpu)
    assert bound.result() is problem.device().c
    made = nm.to_dense(problem.device().b).T
    assert (csr.to_dense(csr.to_host(cusparse.transposed_csr(problem.device().b))) == made.get()).all()
    stream, reference = gpu.create_stream(), check.oracle(problem)
    for _ in range(2):
        assert check.check(bound, problem, reference, stream).rel_err < 1e-6


def make_signs(ops: Operands) -> None:
    """Make 1 and -1 of A's and B's numbers, in place: their sums are exact, also where a library rounds to 16 bits on
    the way. cuSPARSE does for rows of many non-zeros, and random numbers are then off by more than `check` allows."""
    for bits, dtype in ((ops.a.val, ops.a.dtype), (ops.b.bits, ops.b.dtype)):
        one = half.to_bits(np.ones(1, np.float32), dtype)[0]
        bits[...] = (bits & 0x8000 | one) * (bits != 0)


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", cusparse.ALGORITHMS)
@pytest.mark.parametrize("dtype", block_operands.DTYPES)
@pytest.mark.parametrize("layout", block_operands.LAYOUTS)
def test_cusparse_is_right_on_blocks(gpu, algorithm, dtype, layout):
    stream = gpu.create_stream()
    for shape in ((256, 64, 384), (300, 41, 500), (65, 1, 130)):
        problem = block_operands.problem(*shape, 0.3, block=32, dtype=dtype, layout=layout)
        if dtype in half.DTYPES:
            make_signs(problem.device())
        try:
            bound = cusparse.bind(algorithm, problem, gpu)
        except ValueError as error:
            # What the library's documentation has for these types is its default and alg2.
            assert algorithm in ("alg1", "alg3"), error
            assert str(error).startswith(f"cuSPARSE refuses {algorithm} at m={problem.m}")
            continue
        reference = check.oracle(problem)
        for _ in range(2):
            check.check(bound, problem, reference, stream)


@pytest.mark.gpu
def test_the_csr_of_blocks_is_the_same_on_the_gpu(gpu):
    a = bcsr.random(300, 500, 0.3, 1, block=32)
    ours, theirs = cusparse.csr_of_blocks(a), cusparse.csr_of_blocks(bcsr.to_device(a))
    for name in ("row_ptr", "col_idx", "val"):
        assert (getattr(ours, name) == getattr(theirs, name).get()).all()
