import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import (
    BFLOAT16,
    COMPUTE_32F,
    DEVICE,
    F32,
    FAST_TF32,
    ORDER,
    ORDERS,
    RESULT,
    STREAM,
    CublasLt,
    Timer,
    array,
    install_cublaslt,
    two_four_problem,
)

from artifact import registry
from artifact.baselines import cublaslt
from artifact.measure import bench, check
from kernels.contract import Operands
from kernels.formats import half
from kernels.formats.half import Half
from kernels.tensor_core_24 import operands

runtime = pytest.importorskip("cuda.bindings.runtime")

M, N, K = 10, 24, 33
#: What a bound contender holds: a handle, a description and three layouts.
HELD = 5


@pytest.fixture
def library(monkeypatch):
    fake = install_cublaslt(monkeypatch)
    Timer(monkeypatch, lambda name, turn: 1.0)
    return fake


@pytest.fixture
def problem(monkeypatch, library):
    return two_four_problem(monkeypatch, M, N, K)


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("dtype", half.DTYPES)
def test_the_product_is_that_of_the_same_operands(monkeypatch, library, dtype):
    problem = two_four_problem(monkeypatch, M, N, K, dtype)
    bound = cublaslt.bind(problem, DEVICE)
    assert bound.name == "cublaslt" and bound.prepare_ms > 0
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        check.check(bound, problem, reference, STREAM)
    assert bound.result() is problem.device().c
    seen = BFLOAT16 if dtype == "bfloat16" else np.float16
    row_major = (K, 1, N, 1)
    assert library.matmul_of_nvmath.calls[0] == ("matmul", seen, COMPUTE_32F, row_major)
    assert set(library.orders.values()) == {ORDERS["ROW"]}


def test_a_launch_that_does_nothing_is_caught(library, problem):
    bound = cublaslt.bind(problem, DEVICE)
    bound.call = lambda stream: None
    with pytest.raises(check.WrongResult, match="240 of 240 elements unwritten"):
        check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)


# ---------------------------------------------------------------- which algorithm


def test_matmul_plans_and_tunes_and_the_timer_has_the_last_word(monkeypatch, library, problem):
    us = {7: 1.0, 8: 3.0, 9: 2.0}
    timer = Timer(monkeypatch, lambda name, turn: us[int(name.split()[1].rstrip(","))])
    bound = cublaslt.bind(problem, DEVICE)
    assert library.matmul_of_nvmath.calls[1:] == [
        ("plan", cublaslt.PLANNED),
        ("autotune", cublaslt.ITERATIONS, cublaslt.TUNED),
    ]
    assert len(timer.seen[0]) == 3
    assert bound.choice == "algorithm 7, split-K 1, option 0, place 3 after autotuning"
    assert bound.prepare_bytes == 2 * M * K, "the dense A; this algorithm needs no workspace"
    library.launched.clear()
    for handle in (11, 22):
        bound.launch(SimpleNamespace(handle=handle))
    assert library.launched == [(7, ORDERS["ROW"], 11), (7, ORDERS["ROW"], 22)]


def test_the_workspace_is_memory_too(monkeypatch, library, problem):
    Timer(monkeypatch, lambda name, turn: 1.0 if "algorithm 9" in name else 2.0)
    bound = cublaslt.bind(problem, DEVICE)
    assert bound.prepare_bytes == 2 * M * K + 128
    assert not library.matmul_of_nvmath.open, "freed before the first launch"


# ---------------------------------------------------------------- life and errors


def test_everything_is_released_with_the_last_reference(library, problem):
    operands = weakref.ref(problem.device())
    bound = cublaslt.bind(problem, DEVICE)
    assert len(library.alive) == HELD
    problem.make_device = problem.make_host = None
    problem.release()
    assert operands() is not None, "the library still holds their addresses"
    bound.launch(STREAM)
    del bound
    assert not library.alive and operands() is None
    assert library.made[library.log[-1][1]][0] == "handle", "the last to go"


def test_close_releases_early_and_once(library, problem):
    bound = cublaslt.bind(problem, DEVICE)
    bound.close()
    assert not library.alive
    bound.close()
    del bound


@pytest.mark.parametrize("where", ["planning", "launching"])
def test_a_refusal_is_one_sentence_and_leaves_nothing_behind(library, problem, where):
    says = "no suitable algorithm.\nAnd more"
    if where == "planning":
        library.matmul_of_nvmath.refuse = says
    else:
        library.refuse = says
    with pytest.raises(ValueError, match="refuses m=10, n=24, k=33 in bfloat16: no suit") as caught:
        cublaslt.bind(problem, DEVICE)
    assert "\n" not in str(caught.value) and not library.alive


def test_a_bind_that_fails_elsewhere_leaves_nothing_behind(monkeypatch, library, problem):
    def fails(*arguments, **budget):
        raise MemoryError

    monkeypatch.setattr(bench, "time", fails)
    with pytest.raises(MemoryError):
        cublaslt.bind(problem, DEVICE)
    assert not library.alive


@pytest.mark.parametrize("shape", [(1, 24, 32), (16, 1, 32), (16, 24, 1)])
def test_a_vector_is_refused(shape):
    with pytest.raises(ValueError, match="one is a vector"):
        cublaslt.bind(operands.problem(*shape), DEVICE)


def test_other_operands_are_refused(problem):
    problem._device = Operands(problem.device().a, array((K, N), np.float32), problem.device().c)
    with pytest.raises(ValueError, match="cuBLASLt takes a 2:4 A .*tensor_core_24 has something"):
        cublaslt.bind(problem, DEVICE)


def test_contenders_have_the_names_of_the_records():
    assert list(registry.contenders(["cublaslt"], None)) == ["cublaslt"]


def test_the_names_exist_in_the_library():
    bindings = pytest.importorskip("nvmath.bindings.cublasLt")
    cublas = pytest.importorskip("nvmath.bindings.cublas")
    assert {name: bindings.Order[name] for name in ORDERS} == ORDERS
    assert bindings.MatrixLayoutAttribute.ORDER == ORDER
    assert cublas.ComputeType.COMPUTE_32F == COMPUTE_32F
    assert cublas.ComputeType.COMPUTE_32F_FAST_TF32 == FAST_TF32
    assert bindings.get_matrix_layout_attribute_dtype(ORDER) == np.int32
    assert np.dtype(bindings.matmul_heuristic_result_dtype) == RESULT
    for number, name in ((14, "CUDA_R_16BF"), (2, "CUDA_R_16F"), (F32, "CUDA_R_32F")):
        assert int(getattr(runtime.cudaDataType, name)) == number
    for name in vars(CublasLt):
        if not name.startswith("_"):
            assert hasattr(bindings, name), name


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def gpu(device):
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", half.DTYPES)
@pytest.mark.parametrize("shape", [(64, 64, 64), (256, 128, 512), (100, 60, 300), (512, 8, 1024)])
def test_cublaslt_is_right(gpu, shape, dtype):
    problem = operands.problem(*shape, dtype=dtype)
    reference = check.oracle(problem)
    bound = cublaslt.bind(problem, gpu)
    assert isinstance(bound.result(), Half) and bound.choice.startswith("algorithm ")
    stream = gpu.create_stream()
    for _ in range(2):
        assert check.check(bound, problem, reference, stream).rel_err > 0, "rounded once"
    assert bound.prepare_bytes >= 2 * problem.m * problem.k and bound.prepare_ms > 0


@pytest.mark.gpu
def test_cublaslt_can_be_captured(gpu):
    problem = operands.problem(512, 256, 1024)
    reference = check.oracle(problem)
    bound = cublaslt.bind(problem, gpu)
    check_captured(bound, problem, reference, gpu)


@pytest.mark.gpu
def test_two_on_one_problem_do_not_disturb_each_other(gpu):
    from artifact.baselines import cusparselt

    problem = operands.problem(512, 512, 512)
    reference = check.oracle(problem)
    everything = cublaslt.contenders(gpu) | cusparselt.contenders(gpu)
    bounds = [make(problem) for make in everything.values()]
    stream = gpu.create_stream()
    for bound in bounds + bounds[::-1]:
        check.check(bound, problem, reference, stream)
