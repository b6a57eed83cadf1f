import sys
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import (
    COMPUTE_32F,
    DEVICE,
    F32,
    FAST_TF32,
    NAME,
    STREAM,
    Library,
    Timer,
    at,
    bcsr_problem,
    install_cublaslt,
    nm_problem,
)

from artifact import registry
from artifact.baselines import cublas_dense, cublas_tensor, cublaslt
from artifact.measure import check
from kernels.async_sparse import operands
from kernels.formats import half
from kernels.formats.half import Half

pytest.importorskip("cuda.bindings.runtime")

M, N, K = 50, 24, 83
NAMES = cublas_dense.NAMES
BYTES = {"tf32": 4, "bfloat16": 2, "float16": 2}
#: What a bound contender holds: cuBLASLt a handle, and for each order of A a description and three layouts.
HELD = {"cublas_dense": 9, "cublas_dense_default": 1}


class Cublas(Library):
    """Stands in for nvmath.bindings.cublas: multiplies on the CPU, at the addresses it is given."""

    class cuBLASError(Exception):
        pass

    ComputeType = SimpleNamespace(COMPUTE_32F=COMPUTE_32F, COMPUTE_32F_FAST_TF32=FAST_TF32)
    Operation = SimpleNamespace(N=0, T=1)
    GemmAlgo = SimpleNamespace(DEFAULT=-1)

    def __init__(self):
        super().__init__("cublas")
        self.destroy, self.refuse = self.unmake, None

    def create(self):
        return self.make("handle")

    def set_stream(self, handle, stream):
        self.what(handle)
        self.log.append(("stream", stream))

    def gemm_ex(
        self,
        handle,
        op_a,
        op_b,
        m,
        n,
        k,
        alpha,
        a,
        a_type,
        lda,
        b,
        b_type,
        ldb,
        beta,
        c,
        c_type,
        ldc,
        compute,
        algorithm,
    ):
        if self.refuse:
            raise self.cuBLASError(self.refuse)
        self.what(handle)
        assert a_type == b_type == c_type and algorithm == -1
        assert compute == (FAST_TF32 if c_type == F32 else COMPUTE_32F)
        assert (at(alpha, (1,), np.float32)[0], at(beta, (1,), np.float32)[0]) == (1, 0)
        storage = np.float32 if c_type == F32 else np.uint16

        def matrix(address, leading, columns):
            return at(address, (columns, leading), storage).T

        left = matrix(a, lda, m if op_a else k)
        right = matrix(b, ldb, k if op_b else n)
        left, right = left.T if op_a else left, right.T if op_b else right
        assert (left.shape, right.shape) == ((m, k), (k, n))
        if c_type != F32:
            left, right = (half.from_bits(x, NAME[c_type]) for x in (left, right))
        product = left @ right
        matrix(c, ldc, n)[:] = product if c_type == F32 else half.to_bits(product, NAME[c_type])
        self.log.append(("gemm", op_a, op_b))


@pytest.fixture
def library(monkeypatch):
    """cuBLASLt's fake; its `cublas` is the other."""
    fake = install_cublaslt(monkeypatch)
    fake.cublas = Cublas()
    monkeypatch.setitem(sys.modules, "nvmath.bindings.cublas", fake.cublas)
    Timer(monkeypatch, lambda name, turn: 1.0)
    return fake


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("dtype", operands.DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_the_product_is_that_of_the_same_operands(library, name, dtype, layout):
    problem = bcsr_problem(M, N, K, block=16, dtype=dtype, layout=layout)
    bound = cublas_dense.bind(name, problem, DEVICE)
    assert bound.name == name and bound.prepare_ms > 0
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        check.check(bound, problem, reference, STREAM)
    assert bound.result() is problem.device().c
    workspace = 128 * (name == "cublas_dense")
    assert bound.prepare_bytes == BYTES[dtype] * M * K + workspace


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("layout", operands.LAYOUTS)
def test_the_better_order_of_a_wins(monkeypatch, library, layout, order):
    timer = Timer(monkeypatch, lambda name, turn: 1.0 if f"A {order}-major" in name else 2.0)
    problem = bcsr_problem(M, N, K, block=16, layout=layout)
    bound = cublas_dense.bind("cublas_dense", problem, DEVICE)
    assert bound.choice.endswith(f"A {order}-major")
    assert len(timer.seen[0]) == 6, "three algorithms for each order"
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)


@pytest.mark.parametrize("layout", operands.LAYOUTS)
def test_algorithms_are_planned_for_a_result_that_lies_as_c(library, layout):
    order_b, order_c = operands.LAYOUTS[layout]
    cublas_dense.bind("cublas_dense", bcsr_problem(M, N, K, block=16, layout=layout), DEVICE)
    calls = [entry[3] for entry in library.matmul_of_nvmath.calls if entry[0] == "matmul"]
    a = {"C": (K, 1), "F": (1, M)}
    b = (N, 1) if order_b == "C" else (1, K)
    c = (N, 1) if order_c == "C" else (1, M)
    assert calls == [(*a[x], *b, *(() if x == order_c else c)) for x in "CF"]
    tuning = [("plan", cublaslt.PLANNED), ("autotune", cublaslt.ITERATIONS, cublaslt.TUNED)]
    assert library.matmul_of_nvmath.calls[1:3] == tuning


@pytest.mark.parametrize(("layout", "ops"), [("source", (1, 0)), ("linear", (1, 0)), ("row", (0, 0))])
def test_the_default_is_called_as_torch_calls_it(library, layout, ops):
    problem = bcsr_problem(M, N, K, block=16, layout=layout)
    bound = cublas_dense.bind("cublas_dense_default", problem, DEVICE)
    library.cublas.log.clear()
    for handle in (11, 11, 22):
        bound.launch(SimpleNamespace(handle=handle))
    multiply = ("gemm", *ops)
    assert library.cublas.log == [("stream", 11), multiply, multiply, ("stream", 22), multiply]


@pytest.mark.parametrize(("m", "n", "k"), [(1, 24, 40), (40, 1, 40), (40, 24, 1)])
@pytest.mark.parametrize("layout", operands.LAYOUTS)
def test_vectors_are_for_the_default_alone(library, m, n, k, layout):
    problem = bcsr_problem(m, n, k, 1.0, block=16, layout=layout)
    bound = cublas_dense.bind("cublas_dense_default", problem, DEVICE)
    check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)
    with pytest.raises(ValueError, match="one is a vector.*cublas_dense_default"):
        cublas_dense.bind("cublas_dense", problem, DEVICE)


# ---------------------------------------------------------------- what is refused, and life


@pytest.mark.parametrize("name", NAMES)
def test_other_operands_are_refused(library, name):
    with pytest.raises(ValueError, match=f"{name} takes a BCSR A .*nm_spmm has something"):
        cublas_dense.bind(name, nm_problem(6, 10, 40), DEVICE)
    problem = bcsr_problem(M, N, K, block=16)
    problem.device().c = Half("float16", problem.device().c.bits)
    with pytest.raises(ValueError, match="a B and a C of its dtype"):
        cublas_dense.bind(name, problem, DEVICE)
    problem = bcsr_problem(M, N, K, block=16, dtype="tf32")
    problem.device().b[1, 2] = np.float32(1 / 3)
    with pytest.raises(ValueError, match="values of B that tf32 holds exactly"):
        cublas_dense.bind(name, problem, DEVICE)
    assert not library.alive and not library.cublas.alive


@pytest.mark.parametrize("name", NAMES)
def test_a_refusal_is_one_sentence_and_leaves_nothing_behind(library, name):
    library.refuse = library.cublas.refuse = "not supported.\nAnd more"
    with pytest.raises(ValueError, match="refuses m=50, n=24, k=83 in bfloat16: not supp") as caught:
        cublas_dense.bind(name, bcsr_problem(M, N, K, block=16), DEVICE)
    assert "\n" not in str(caught.value)
    assert not library.alive and not library.cublas.alive


@pytest.mark.parametrize("name", NAMES)
def test_everything_is_released_with_the_last_reference(monkeypatch, library, name):
    made, convert = [], cublas_tensor.made_dense

    def dense(*arguments):
        x = convert(*arguments)
        made.append(weakref.ref(x))
        return x

    monkeypatch.setattr(cublas_tensor, "made_dense", dense)
    problem = bcsr_problem(M, N, K, block=16)
    given = weakref.ref(problem.device())
    bound = cublas_dense.bind(name, problem, DEVICE)
    assert len(library.alive | library.cublas.alive) == HELD[name]
    problem.make_device = problem.make_host = None
    problem.release()
    assert given() is not None and sum(x() is not None for x in made) == 1, "the A that won"
    bound.launch(STREAM)
    del bound
    assert not library.alive and not library.cublas.alive and given() is None
    assert not any(x() is not None for x in made)


def test_contenders_have_the_names_of_the_records():
    assert tuple(registry.contenders(["cublas_dense"], None)) == NAMES


def test_the_names_exist_in_the_library():
    bindings = pytest.importorskip("nvmath.bindings.cublas")
    for name in ("ComputeType", "Operation", "GemmAlgo"):
        for member, value in vars(getattr(Cublas, name)).items():
            assert getattr(bindings, name)[member] == value
    for name in ("create", "destroy", "set_stream", "gemm_ex", "cuBLASError"):
        assert hasattr(bindings, name)


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def gpu(device):
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", operands.DTYPES)
@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("shape", [(256, 64, 384), (300, 41, 500), (1001, 128, 777)])
@pytest.mark.parametrize("name", NAMES)
def test_cublas_is_right_in_every_layout(gpu, name, shape, layout, dtype):
    problem = operands.problem(*shape, 0.3, dtype=dtype, layout=layout)
    reference = check.oracle(problem)
    bound = cublas_dense.bind(name, problem, gpu)
    stream = gpu.create_stream()
    for _ in range(2):
        check.check(bound, problem, reference, stream)
    assert bound.prepare_bytes >= BYTES[dtype] * problem.m * problem.k


@pytest.mark.gpu
@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("order", ["row", "column"])
def test_either_order_of_a_is_right(gpu, monkeypatch, order, layout):
    only = {words: x for words, x in cublas_dense._ORDERS.items() if f"A {order}" in words}
    monkeypatch.setattr(cublas_dense, "_ORDERS", only)
    problem = operands.problem(384, 200, 320, 0.3, layout=layout)
    bound = cublas_dense.bind("cublas_dense", problem, gpu)
    assert bound.choice.endswith(f"A {order}-major")
    check.check(bound, problem, check.oracle(problem), gpu.create_stream())


@pytest.mark.gpu
@pytest.mark.parametrize("name", NAMES)
def test_dense_cublas_can_be_captured(gpu, name):
    problem = operands.problem(512, 256, 1024, 0.3, layout="linear")
    reference = check.oracle(problem)
    bound = cublas_dense.bind(name, problem, gpu)
    check_captured(bound, problem, reference, gpu)
