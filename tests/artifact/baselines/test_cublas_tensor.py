import weakref

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import (
    BFLOAT16,
    COMPUTE_32F,
    DEVICE,
    FAST_TF32,
    ORDERS,
    STREAM,
    Timer,
    install_cublaslt,
    nm_problem,
)

from artifact import registry
from artifact.baselines import cublas_tensor, cublaslt
from artifact.measure import check
from kernels.contract import Operands
from kernels.formats import nm
from kernels.formats.half import Half
from kernels.nm_spmm import operands

M, N, K = 10, 24, 33
NAMES = {"tf32": "cublas_tf32", "bfloat16": "cublas_bf16"}
BYTES = {"tf32": 4, "bfloat16": 2}
#: What a bound contender holds: a handle, and for each order of B a description and three layouts.
HELD = 9


@pytest.fixture
def library(monkeypatch):
    fake = install_cublaslt(monkeypatch)
    Timer(monkeypatch, lambda name, turn: 1.0)
    return fake


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("vector", [1, 32])
@pytest.mark.parametrize("dtype", NAMES)
def test_the_product_is_that_of_the_same_operands(monkeypatch, library, dtype, vector, order):
    Timer(monkeypatch, lambda name, turn: 1.0 if f"B {order}-major" in name else 2.0)
    problem = nm_problem(M, N, K, 0.25, dtype=dtype, vector=vector)
    bound = cublas_tensor.bind(dtype, problem, DEVICE)
    assert bound.name == NAMES[dtype] and bound.prepare_ms > 0
    assert bound.choice.endswith(f"place 1 after autotuning, B {order}-major")
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        check.check(bound, problem, reference, STREAM)
    assert bound.result() is problem.device().c
    assert {entry[1] for entry in library.launched[-2:]} == {ORDERS["ROW" if order == "row" else "COL"]}


@pytest.mark.parametrize("dtype", NAMES)
def test_both_orders_of_b_are_tuned_and_a_stays_as_it_is(monkeypatch, library, dtype):
    timer = Timer(monkeypatch, lambda name, turn: 1.0)
    cublas_tensor.bind(dtype, nm_problem(M, N, K, dtype=dtype), DEVICE)
    seen = (BFLOAT16, COMPUTE_32F) if dtype == "bfloat16" else (np.float32, FAST_TF32)
    tuning = [("plan", cublaslt.PLANNED), ("autotune", cublaslt.ITERATIONS, cublaslt.TUNED)]
    assert library.matmul_of_nvmath.calls == [
        ("matmul", *seen, (1, M, 1, K)),
        *tuning,
        ("matmul", *seen, (1, M, N, 1)),
        *tuning,
    ]
    assert len(timer.seen[0]) == 6, "three algorithms for each order"


def test_a_launch_that_does_nothing_is_caught(library):
    problem = nm_problem(M, N, K, dtype="tf32")
    bound = cublas_tensor.bind("tf32", problem, DEVICE)
    bound.call = lambda stream: None
    with pytest.raises(check.WrongResult, match="240 of 240 elements unwritten"):
        check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)


@pytest.mark.parametrize("dtype", NAMES)
def test_memory_is_one_dense_b_and_the_workspace(monkeypatch, library, dtype):
    problem = nm_problem(M, N, K, dtype=dtype)
    bound = cublas_tensor.bind(dtype, problem, DEVICE)
    assert bound.prepare_bytes == BYTES[dtype] * K * N + 128, "algorithm 9 needs a workspace"
    Timer(monkeypatch, lambda name, turn: 1.0 if "algorithm 7" in name else 2.0)
    bound = cublas_tensor.bind(dtype, problem, DEVICE)
    assert bound.prepare_bytes == BYTES[dtype] * K * N


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("dtype", NAMES)
def test_problems_of_another_dtype_are_refused(library, dtype):
    for other in ("float32", *NAMES):
        if other != dtype:
            with pytest.raises(ValueError, match=f"{NAMES[dtype]} takes .* nm_spmm has"):
                cublas_tensor.bind(dtype, nm_problem(M, N, K, dtype=other), DEVICE)
    assert not library.alive


@pytest.mark.parametrize(("dtype", "operand"), [("tf32", "a"), ("tf32", "b"), ("bfloat16", "b")])
def test_a_value_that_would_be_rounded_is_refused(library, dtype, operand):
    problem = nm_problem(M, N, K, dtype=dtype)
    x = getattr(problem.device(), operand)
    (x.val if operand == "b" else x)[1, 2] = np.float32(1 / 3)
    message = f"takes values of {operand.upper()} that {dtype} holds exactly"
    with pytest.raises(ValueError, match=message):
        cublas_tensor.bind(dtype, problem, DEVICE)


@pytest.mark.parametrize("dtype", NAMES)
def test_operands_in_another_order_or_format_are_refused(library, dtype):
    problem = nm_problem(M, N, K, dtype=dtype)
    a, b, c = problem.device().a, problem.device().b, problem.device().c
    bits = np.zeros((M, N), np.uint16 if dtype == "bfloat16" else np.float32)
    by_rows = Half(dtype, bits) if dtype == "bfloat16" else bits
    for made in (Operands(a, b, by_rows), Operands(a, nm.to_dense(b), c)):
        problem._device = made
        with pytest.raises(ValueError, match="an N:M B with a column-major A and C in " + dtype):
            cublas_tensor.bind(dtype, problem, DEVICE)


@pytest.mark.parametrize("shape", [(1, 24, 32), (16, 1, 32), (16, 24, 1)])
def test_a_vector_is_refused(shape):
    with pytest.raises(ValueError, match="one is a vector"):
        cublas_tensor.bind("tf32", operands.problem(*shape, 1.0, dtype="tf32"), DEVICE)


@pytest.mark.parametrize("where", ["planning", "launching"])
def test_a_refusal_is_one_sentence_and_leaves_nothing_behind(library, where):
    says = "no suitable algorithm.\nAnd more"
    if where == "planning":
        library.matmul_of_nvmath.refuse = says
    else:
        library.refuse = says
    with pytest.raises(ValueError, match="refuses m=10, n=24, k=33 in tf32: no suit") as caught:
        cublas_tensor.bind("tf32", nm_problem(M, N, K, dtype="tf32"), DEVICE)
    assert "\n" not in str(caught.value) and not library.alive


# ---------------------------------------------------------------- life


@pytest.mark.parametrize("dtype", NAMES)
def test_everything_is_released_with_the_last_reference(library, dtype):
    problem = nm_problem(M, N, K, dtype=dtype)
    operands = weakref.ref(problem.device())
    bound = cublas_tensor.bind(dtype, problem, DEVICE)
    assert len(library.alive) == HELD
    problem.make_device = problem.make_host = None
    problem.release()
    assert operands() is not None, "the library still holds their addresses"
    bound.launch(STREAM)
    del bound
    assert not library.alive and operands() is None


def test_the_b_that_lost_is_freed_and_the_other_kept(monkeypatch, library):
    made, dense = [], cublas_tensor.made_dense

    def remembered(*arguments):
        b = dense(*arguments)
        made.append((arguments[-1], weakref.ref(b)))
        return b

    monkeypatch.setattr(cublas_tensor, "made_dense", remembered)
    Timer(monkeypatch, lambda name, turn: 1.0 if "B row-major" in name else 2.0)
    bound = cublas_tensor.bind("bfloat16", nm_problem(M, N, K, dtype="bfloat16"), DEVICE)
    assert [order for order, b in made if b() is not None] == ["C"]
    bound.close()
    bound.close()
    assert not library.alive


def test_contenders_have_the_names_of_the_records():
    made = registry.contenders(["cublas_tensor"], None)
    assert list(made) == ["cublas_tf32", "cublas_bf16"]
    with pytest.raises(ValueError, match="cublas_bf16 takes .* in bfloat16"):
        registry.contenders(["cublas_tensor"], DEVICE)["cublas_bf16"](nm_problem(M, N, K))


# ---------------------------------------------------------------- on a GPU


@pytest.fixture(scope="module")
def gpu(device):
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize(
    "shape", [(64, 64, 64, 0.5), (256, 128, 512, 0.25), (101, 60, 301, 0.5), (512, 8, 1024, 0.125)]
)
def test_cublas_is_right_on_the_tensor_cores(gpu, shape, dtype):
    problem = operands.problem(*shape, dtype=dtype)
    reference = check.oracle(problem)
    bound = cublas_tensor.bind(dtype, problem, gpu)
    assert bound.name == NAMES[dtype] and bound.choice.startswith("algorithm ")
    assert isinstance(bound.result(), Half) == (dtype == "bfloat16")
    stream = gpu.create_stream()
    for _ in range(2):
        check.check(bound, problem, reference, stream)
    assert bound.prepare_ms > 0
    assert bound.prepare_bytes >= BYTES[dtype] * problem.k * problem.n


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("dtype", NAMES)
def test_either_order_of_b_is_right(gpu, monkeypatch, dtype, order):
    only = {words: x for words, x in cublas_tensor._ORDERS.items() if f"B {order}" in words}
    monkeypatch.setattr(cublas_tensor, "_ORDERS", only)
    problem = operands.problem(384, 200, 320, dtype=dtype)
    bound = cublas_tensor.bind(dtype, problem, gpu)
    assert bound.choice.endswith(f"B {order}-major")
    check.check(bound, problem, check.oracle(problem), gpu.create_stream())


@pytest.mark.gpu
def test_tf32_is_what_multiplies(gpu):
    problem = operands.problem(256, 256, 256, dtype="tf32")
    bound = cublas_tensor.bind("tf32", problem, gpu)
    stream = gpu.create_stream()
    check.check(bound, problem, check.oracle(problem), stream)
    a = problem.device().a
    a *= np.float32(1 / 3)  # values that TF32 does not hold: it rounds them to 11 bits
    with pytest.raises(check.WrongResult, match="relative error .*e-0[34]"):
        check.check(bound, problem, check.oracle(problem), stream)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", NAMES)
def test_cublas_on_the_tensor_cores_can_be_captured(gpu, dtype):
    problem = operands.problem(512, 256, 1024, dtype=dtype)
    reference = check.oracle(problem)
    bound = cublas_tensor.bind(dtype, problem, gpu)
    check_captured(bound, problem, reference, gpu)
