"""cuBLAS and cuBLASLt: what a timed call contains, which algorithm and which order win."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest
from fake_libraries import (
    BFLOAT16,
    COMPUTE_32F,
    DEVICE,
    FAST_TF32,
    STREAM,
    Timer,
    bcsr_problem,
    eight_problem,
    nm_problem,
    two_four_problem,
)
from refused import refused

from artifact.baselines import cublas
from artifact.measure import bench, verification
from kernels.async_sparse import operands as of_blocks
from kernels.nm_spmm import operands

runtime = pytest.importorskip("cuda.bindings.runtime")

M, N, K = 6, 10, 40


@pytest.fixture
def library(libraries, monkeypatch):
    """All libraries, and a CUDA runtime that copies on the CPU."""
    made = libraries
    log, ok = made.cublas.log, runtime.cudaError_t.cudaSuccess
    made.memory, made.copies, made.skip, made.full = {}, 0, None, None

    def malloc(size):
        log.append(("malloc", size))
        if made.full == len(made.memory):
            return runtime.cudaError_t.cudaErrorMemoryAllocation, 0
        buffer = ctypes.create_string_buffer(size)
        made.memory[ctypes.addressof(buffer)] = buffer
        return ok, ctypes.addressof(buffer)

    def free(pointer):
        log.append(("free",))
        del made.memory[pointer]
        return (ok,)

    def copy(to, source, size, kind, stream):
        log.append((kind.name.removeprefix("cudaMemcpy"), size))
        if made.copies != made.skip:
            ctypes.memmove(to, source, size)
        made.copies += 1
        return (ok,)

    for name, call in (("cudaMalloc", malloc), ("cudaFree", free), ("cudaMemcpyAsync", copy)):
        monkeypatch.setattr(runtime, name, call)
    return made


SIZES = 4 * M * K, 4 * K * N, 4 * M * N
CONTAINS = {
    "cublas": ["gemm"],
    "cublas_transfers": [("HostToDevice", SIZES[0]), ("HostToDevice", SIZES[1]), "gemm", ("DeviceToHost", SIZES[2])],
    "cublas_allocation": [*(("malloc", size) for size in SIZES), "gemm", *["free"] * 3],
    "cublas_handle": ["create", "stream", "gemm", "destroy"],
}


@pytest.mark.parametrize("reading", cublas.READINGS)
def test_a_reading_gives_the_product_and_contains_what_it_says(library, reading):
    problem = nm_problem(M, N, K)
    bound, reference = cublas.prepare(reading, problem, DEVICE), verification.oracle(problem, on="cpu")
    assert bound.name == reading and bound.needs_host_clock == (reading != "cublas")
    for _ in range(2):
        assert verification.check(bound, problem, reference, STREAM).rel_err < 1e-6
    assert (type(bound.result()) is np.ndarray) == (reading == "cublas_transfers"), "as malloc gives it"
    library.cublas.log.clear()
    bound.launch(STREAM)
    assert [x if x[0][0] in "HDm" else x[0] for x in library.cublas.log] == CONTAINS[reading] and not library.memory
    library.cublas.gemm_ex = lambda *arguments: None  # the right product lies in the shared C
    refused(
        "60 of 60 elements unwritten",
        verification.check,
        cublas.prepare(reading, problem, DEVICE),
        problem,
        reference,
        STREAM,
        kind=verification.WrongResult,
    )


@pytest.mark.parametrize("left_out", range(3))
def test_a_transfer_that_is_left_out_is_caught(library, left_out):
    problem = nm_problem(M, N, K)
    bound = cublas.prepare("cublas_transfers", problem, DEVICE)
    library.skip = left_out
    refused(
        "unwritten or NaN",
        verification.check,
        bound,
        problem,
        verification.oracle(problem, on="cpu"),
        STREAM,
        kind=verification.WrongResult,
    )


def test_what_a_call_made_is_undone_where_it_fails(library):
    allocating, handling = (
        cublas.prepare(f"cublas_{x}", nm_problem(M, N, K), DEVICE) for x in ("allocation", "handle")
    )
    library.full = 2
    refused("cudaMalloc failed with cudaErrorMemoryAllocation", allocating.launch, STREAM, kind=RuntimeError)
    before, library.cublas.refuse = set(library.cublas.alive), "gemm"
    with pytest.raises(library.cublas.cuBLASError):
        handling.launch(STREAM)
    assert not library.memory and library.cublas.alive == before


# ---------------------------------------------------------------- cuBLASLt: which algorithm, which order


def test_matmul_plans_and_tunes_and_the_timer_has_the_last_word(monkeypatch, library):
    us = {7: 1.0, 8: 3.0, 9: 2.0}
    timer = Timer(monkeypatch, lambda name, turn: us[int(name.split()[1].rstrip(","))])
    bound = cublas.prepare_lt(two_four_problem(10, 24, 33), DEVICE)
    assert library.planner.calls == [
        ("matmul", BFLOAT16, COMPUTE_32F, (33, 1, 24, 1)),
        ("plan", cublas.PLANNED),
        ("autotune", cublas.ITERATIONS, cublas.TUNED),
    ]
    assert len(timer.seen[0]) == 3 and not library.planner.open, "freed before the first launch"
    assert bound.choice == "algorithm 7, split-K 1, option 0, place 3 after autotuning"
    assert bound.prepare_bytes == 2 * 10 * 33, "the dense A; this algorithm needs no workspace"
    library.lt.launched.clear()
    for handle in (11, 22):
        bound.launch(SimpleNamespace(handle=handle))
    assert library.lt.launched == [(7, 1, None, 11), (7, 1, None, 22)]


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize(
    ("prepare", "made", "letter"),
    [
        (lambda p: cublas.prepare_dense("cublas_dense", p, DEVICE), lambda: bcsr_problem(50, 24, 83, block=16), "A"),
        *(
            (lambda p, x=x: cublas.prepare_tensor(x, p, DEVICE), lambda d=d: nm_problem(10, 24, 33, dtype=d), "B")
            for x, d in cublas.TENSOR.items()
        ),
    ],
)
def test_both_orders_of_what_is_made_dense_are_tuned_and_the_better_wins(
    monkeypatch, library, prepare, made, letter, order
):
    problem = made()
    timer = Timer(monkeypatch, lambda name, turn: 1.0 if f"{letter} {order}-major" in name else 2.0)
    bound = prepare(problem)
    assert bound.choice.endswith(f"place 1 after autotuning, {letter} {order}-major")
    assert len(timer.seen[0]) == 6, "three algorithms for each order"
    verification.check(bound, problem, verification.oracle(problem, on="cpu"), STREAM)


@pytest.mark.parametrize("layout", of_blocks.LAYOUTS)
def test_algorithms_are_planned_for_a_result_that_lies_as_c(library, layout):
    order_b, order_c = of_blocks.LAYOUTS[layout]
    cublas.prepare_dense("cublas_dense", bcsr_problem(50, 24, 83, block=16, layout=layout), DEVICE)
    a, b = {"C": (83, 1), "F": (1, 50)}, (24, 1) if order_b == "C" else (1, 83)
    c = (24, 1) if order_c == "C" else (1, 50)
    calls = [entry[3] for entry in library.planner.calls if entry[0] == "matmul"]
    assert calls == [(*a[x], *b, *(() if x == order_c else c)) for x in "CF"]


@pytest.mark.parametrize(
    ("name", "how"), [("cublas_tf32", (np.float32, FAST_TF32)), ("cublas_bf16", (BFLOAT16, COMPUTE_32F))]
)
def test_sums_are_computed_as_the_dtype_asks(library, name, how):
    cublas.prepare_tensor(name, nm_problem(10, 24, 33, dtype=cublas.TENSOR[name]), DEVICE)
    assert {entry[1:3] for entry in library.planner.calls if entry[0] == "matmul"} == {(np.dtype(how[0]), how[1])}


@pytest.mark.parametrize(("layout", "ops"), [("source", (1, 0)), ("linear", (1, 0)), ("row", (0, 0))])
def test_the_default_is_called_as_torch_calls_it(library, layout, ops):
    problem = bcsr_problem(50, 24, 83, block=16, layout=layout)
    cublas.prepare_dense("cublas_dense_default", problem, DEVICE).launch(STREAM)
    assert library.cublas.calls("gemm")[-1][2:] == ops


# ---------------------------------------------------------------- e4m3


def test_both_ways_to_add_are_tried_and_the_timer_decides(monkeypatch, library):
    library.lt.broken = (8,)  # at place 2
    timer = Timer(monkeypatch, lambda name, turn: 1.0 if "place 3" in name and "promoted" in name else 2.0)
    problem = eight_problem(16, 48, 32)
    bound = cublas.prepare_eight(problem, DEVICE)
    scales = [{value for (_, name), value in library.lt.attributes.items() if name == each} for each in (6, 7)]
    assert scales == [{x.scale.data.ptr} for x in (problem.device().b, problem.device().a)], "of C transposed"
    assert sorted(timer.seen[0]) == [
        f"place {place} of the library's proposals, sums {sums}" for place in (1, 3) for sums in ("fast", "promoted")
    ]
    assert bound.choice == "place 3 of the library's proposals, sums promoted"
    assert bound.prepare_bytes == 16 * 32 + 128
    bound.launch(SimpleNamespace(handle=11))
    assert library.lt.launched[-1][::3] == (9, 11) and library.lt.launched[-1][2] == 0


@pytest.mark.parametrize("change", [{"knows": ()}, {"ids": (8,), "broken": (8,)}, {"ids": ()}, {"knows": (1,)}])
def test_without_an_algorithm_it_is_refused_in_one_sentence(monkeypatch, library, change):
    vars(library.lt).update(change)
    problem = eight_problem(16, 48, 32)
    if change == {"knows": (1,)}:
        assert cublas.prepare_eight(problem, DEVICE).choice.endswith("sums fast")
    else:
        refused("cuBLASLt refuses m=16, n=48, k=32 in e4m3: it knows", cublas.prepare_eight, problem, DEVICE)
        assert not library.alive()


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
def test_readings_on_one_problem_are_right_and_what_they_add_takes_time(device):
    problem = operands.problem(256, 256, 256, 0.5)
    reference, stream = verification.oracle(problem), device.create_stream()
    bounds = {name: make(problem) for name, make in cublas.readings(device).items()}
    for bound in [*bounds.values(), *list(bounds.values())[::-1]]:
        # TF32 rounds the operands to 11 bits, which would show as 1e-4 and more.
        assert verification.check(bound, problem, reference, stream).rel_err < 1e-6
    times = {name: t.median_us for name, t in bench.time_calls(bounds, device).items()}
    assert all(times[name] > 1.5 * times["cublas"] for name in cublas.READINGS[1:]), times


@pytest.mark.gpu
@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("name", cublas.TENSOR)
def test_either_order_is_right(device, monkeypatch, name, order):
    monkeypatch.setattr(cublas, "ORDERS", {words: x for words, x in cublas.ORDERS.items() if words.startswith(order)})
    problem = operands.problem(384, 200, 320, dtype=cublas.TENSOR[name])
    bound = cublas.prepare_tensor(name, problem, device)
    assert bound.choice.endswith(f"B {order}-major")
    verification.check(bound, problem, verification.oracle(problem), device.create_stream())


@pytest.mark.gpu
def test_tf32_is_what_multiplies(device):
    problem = operands.problem(256, 256, 256, dtype="tf32")
    bound, stream = cublas.prepare_tensor("cublas_tf32", problem, device), device.create_stream()
    verification.check(bound, problem, verification.oracle(problem), stream)
    a = problem.device().a
    a *= np.float32(1 / 3)  # values that TF32 does not hold: it rounds them to 11 bits
    refused(
        "relative error .*e-0[34]",
        verification.check,
        bound,
        problem,
        verification.oracle(problem),
        stream,
        kind=verification.WrongResult,
    )
