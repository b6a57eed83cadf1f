import ctypes
import types
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from capturing import check_captured
from fake_libraries import DEVICE, STREAM, Array, install, nm_problem

from artifact import registry
from artifact.baselines import cublas
from artifact.measure import check
from kernels.contract import Operands, Problem
from kernels.formats import csr, nm

runtime = pytest.importorskip("cuda.bindings.runtime")

F32, COMPUTE_32F = 0, 68


class FakeLibrary(types.ModuleType):
    """Stands in for nvmath.bindings.cublas: multiplies on the CPU, at the addresses it is given."""

    class cuBLASError(Exception):
        pass

    def __init__(self):
        super().__init__("cublas")
        self.alive, self.made, self.log, self.refuse = set(), 0, [], None
        self.Operation = SimpleNamespace(N=0)
        self.ComputeType = SimpleNamespace(COMPUTE_32F=COMPUTE_32F)
        self.GemmAlgo = SimpleNamespace(DEFAULT=-1)

    def create(self):
        if self.refuse:
            raise self.cuBLASError(self.refuse)
        self.made += 1
        self.alive.add(self.made)
        self.log.append("create")
        return self.made

    def destroy(self, handle):
        self.alive.remove(handle)  # twice is a KeyError
        self.log.append("destroy")

    def set_stream(self, handle, stream):
        assert handle in self.alive
        self.log.append(f"stream {stream}")

    def gemm_ex(
        self,
        handle,
        trans_a,
        trans_b,
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
        assert handle in self.alive
        self.log.append("gemm")
        assert (trans_a, trans_b, algorithm) == (0, 0, -1), "as they are, the library's choice"
        assert (a_type, b_type, c_type, compute) == (F32, F32, F32, COMPUTE_32F)
        assert (at(alpha, 1, 1, 1)[0, 0], at(beta, 1, 1, 1)[0, 0]) == (1, 0)
        at(c, m, n, ldc)[...] = at(a, m, k, lda) @ at(b, k, n, ldb)


def at(address, rows, columns, leading):
    """The column-major float32 matrix at an address."""
    floats = (ctypes.c_float * (leading * columns)).from_address(address)
    return np.frombuffer(floats, np.float32).reshape(columns, leading).T[:rows]


@pytest.fixture
def library(monkeypatch):
    """The fake library, and a CUDA runtime that copies on the CPU."""
    fake = FakeLibrary()
    install(monkeypatch, fake)

    ok = runtime.cudaError_t.cudaSuccess
    fake.memory, fake.copies, fake.skip, fake.full = {}, 0, None, None

    def malloc(size):
        fake.log.append(f"malloc {size}")
        if fake.full == len(fake.memory):
            return runtime.cudaError_t.cudaErrorMemoryAllocation, 0
        buffer = ctypes.create_string_buffer(size)
        fake.memory[ctypes.addressof(buffer)] = buffer
        return ok, ctypes.addressof(buffer)

    def free(pointer):
        fake.log.append("free")
        del fake.memory[pointer]
        return (ok,)

    def copy(to, source, size, kind, stream):
        fake.log.append(f"{kind.name.removeprefix('cudaMemcpy')} {size}")
        if fake.copies != fake.skip:
            ctypes.memmove(to, source, size)
        fake.copies += 1
        return (ok,)

    monkeypatch.setattr(runtime, "cudaMalloc", malloc)
    monkeypatch.setattr(runtime, "cudaFree", free)
    monkeypatch.setattr(runtime, "cudaMemcpyAsync", copy)
    return fake


M, N, K = 6, 10, 12


def make_problem(m=M, n=N, k=K, order="F") -> Problem:
    a = np.random.default_rng(1).uniform(-1, 1, (m, k)).astype(np.float32)
    host = Operands(np.array(a, order=order), nm.random(max(k, 1), max(n, 1), 2, 4, 1, 0))
    c = np.zeros((m, n), np.float32, order).view(Array)
    operands = Operands(host.a.view(Array), host.b, c)
    return Problem(
        room="toy",
        label="",
        m=m,
        n=n,
        k=k,
        nnz=k * n // 2,
        density=0.5,
        seed=0,
        useful_flops=1,
        flops_def="",
        least_bytes=1,
        requested_bytes=1,
        make_host=lambda: host,
        make_device=lambda: operands,
    )


# ---------------------------------------------------------------- what is computed


@pytest.mark.parametrize("reading", cublas.READINGS)
def test_every_reading_gives_the_product(library, reading):
    problem = make_problem()
    bound = cublas.bind(reading, problem, DEVICE)
    assert bound.name == reading
    assert bound.prepare_ms > 0 and bound.prepare_bytes == 4 * K * N, "the dense B"
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        assert check.check(bound, problem, reference, STREAM).rel_err < 1e-6
    assert bound.result().flags.f_contiguous
    assert bound.needs_host_clock == (reading != "cublas")


@pytest.mark.parametrize("dtype", ["float32", "tf32"])
@pytest.mark.parametrize("shape", [(6, 10, 40, 0.25), (1, 33, 64, 0.5), (9, 7, 5, 1.0)])
def test_problems_of_the_other_nm_room_are_taken_as_they_are(library, shape, dtype):
    problem = nm_problem(*shape, dtype=dtype)
    bound = cublas.bind("cublas", problem, DEVICE)
    assert bound.result() is problem.device().c
    assert check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM).rel_err < 1e-6


@pytest.mark.parametrize("reading", cublas.READINGS)
def test_a_reading_that_does_not_multiply_is_caught(library, reading):
    problem = make_problem()
    reference = check.oracle(problem, on="cpu")
    other = cublas.bind("cublas", problem, DEVICE)
    check.check(other, problem, reference, STREAM)  # leaves the right product in the shared C
    library.gemm_ex = lambda *arguments: None
    with pytest.raises(check.WrongResult, match="60 of 60 elements unwritten"):
        check.check(cublas.bind(reading, problem, DEVICE), problem, reference, STREAM)


@pytest.mark.parametrize("left_out", range(3))
def test_a_transfer_that_is_left_out_is_caught(library, left_out):
    problem = make_problem()
    bound = cublas.bind("cublas_transfers", problem, DEVICE)
    library.skip = left_out
    with pytest.raises(check.WrongResult, match="unwritten or NaN"):
        check.check(bound, problem, check.oracle(problem, on="cpu"), STREAM)


# ---------------------------------------------------------------- what a call contains


def launched(library, reading) -> list[str]:
    """What a second launch asks of the library and of the runtime."""
    bound = cublas.bind(reading, make_problem(), DEVICE)
    bound.launch(STREAM)
    library.log.clear()
    bound.launch(STREAM)
    return library.log.copy()


def test_the_first_reading_is_the_multiplication_alone(library):
    assert launched(library, "cublas") == ["gemm"]


def test_transfers_go_both_ways_and_into_pageable_memory(library):
    sizes = 4 * M * K, 4 * K * N, 4 * M * N
    assert launched(library, "cublas_transfers") == [
        f"HostToDevice {sizes[0]}",
        f"HostToDevice {sizes[1]}",
        "gemm",
        f"DeviceToHost {sizes[2]}",
    ]
    bound = cublas.bind("cublas_transfers", make_problem(), DEVICE)
    assert type(bound.result()) is np.ndarray, "as malloc gives it, where the caller has it"


def test_memory_is_allocated_and_freed_in_every_call(library):
    sizes = 4 * M * K, 4 * K * N, 4 * M * N
    expected = [*(f"malloc {size}" for size in sizes), "gemm", "free", "free", "free"]
    assert launched(library, "cublas_allocation") == expected
    assert not library.memory


def test_memory_that_was_allocated_is_freed_where_there_is_no_more(library):
    bound = cublas.bind("cublas_allocation", make_problem(), DEVICE)
    library.full = 2
    with pytest.raises(RuntimeError, match="cudaMalloc failed with cudaErrorMemoryAllocation"):
        bound.launch(STREAM)
    assert not library.memory


def test_the_handle_is_made_and_destroyed_in_every_call(library):
    assert launched(library, "cublas_handle") == ["create", "stream 7", "gemm", "destroy"]


def test_a_handle_is_destroyed_where_the_call_fails(library):
    bound = cublas.bind("cublas_handle", make_problem(), DEVICE)
    before = set(library.alive)

    def fails(*arguments):
        raise library.cuBLASError("CUBLAS_STATUS_EXECUTION_FAILED")

    library.gemm_ex = fails
    with pytest.raises(library.cuBLASError):
        bound.launch(STREAM)
    assert library.alive == before


def test_the_stream_is_set_where_it_changes(library):
    bound = cublas.bind("cublas", make_problem(), DEVICE)
    library.log.clear()
    for handle in (11, 11, 22, 11):
        bound.launch(SimpleNamespace(handle=handle))
    assert library.log == [
        "stream 11",
        "gemm",
        "gemm",
        "stream 22",
        "gemm",
        "stream 11",
        "gemm",
    ]


# ---------------------------------------------------------------- life and errors


@pytest.mark.parametrize("reading", cublas.READINGS)
def test_everything_is_released_with_the_last_reference(library, reading):
    problem = make_problem()
    operands = weakref.ref(problem.device())
    bound = cublas.bind(reading, problem, DEVICE)
    bound.launch(STREAM)
    address = weakref.ref(bound)
    assert len(library.alive) == 1
    problem.make_device = problem.make_host = None
    problem.release()
    del bound
    assert not library.alive and operands() is None and address() is None


def test_the_operands_live_as_long_as_their_addresses(library):
    problem = make_problem()
    bound = cublas.bind("cublas", problem, DEVICE)
    a = weakref.ref(problem.device().a)
    problem.make_device = problem.make_host = None
    problem.release()
    assert a() is not None
    del bound
    assert a() is None


def test_close_releases_early_and_once(library):
    bound = cublas.bind("cublas", make_problem(), DEVICE)
    bound.close()
    assert not library.alive
    bound.close()
    del bound


def test_a_library_that_gives_no_handle_is_one_sentence(library):
    library.refuse = "CUBLAS_STATUS_NOT_INITIALIZED\nsome more"
    with pytest.raises(ValueError, match="refuses a handle at m=6, n=10, k=12: CUBLAS") as caught:
        cublas.bind("cublas", make_problem(), DEVICE)
    assert "\n" not in str(caught.value)


def test_a_bind_that_fails_later_leaves_no_handle(library, monkeypatch):
    def fails(*arguments):
        raise MemoryError

    monkeypatch.setitem(cublas._READY, "cublas", fails)
    with pytest.raises(MemoryError):
        cublas.bind("cublas", make_problem(), DEVICE)
    assert not library.alive


@pytest.mark.parametrize("shape", [{"m": 0}, {"n": 0}, {"k": 0}])
def test_an_empty_problem_is_refused(shape):
    with pytest.raises(ValueError, match="nothing to multiply"):
        cublas.bind("cublas", make_problem(**shape), DEVICE)


def test_operands_in_another_order_are_refused():
    with pytest.raises(ValueError, match="cuBLAS takes A as a float32 array in Fortran order"):
        cublas.bind("cublas", make_problem(order="C"), DEVICE)
    problem = make_problem()
    problem.device().a = csr.Csr(1, 1, *(np.zeros(2, t) for t in (np.int32, np.int32, np.float32)))
    with pytest.raises(ValueError, match="takes A as a float32 array .* toy has it otherwise"):
        cublas.bind("cublas", problem, DEVICE)
    with pytest.raises(ValueError, match="takes A as a float32 array .* nm_spmm has it otherwise"):
        cublas.bind("cublas", nm_problem(6, 10, 40, dtype="bfloat16"), DEVICE)


def test_contenders_have_the_names_of_the_records():
    assert list(cublas.contenders(None)) == ["cublas"]
    assert tuple(cublas.readings(None)) == cublas.READINGS


def test_baselines_are_merged_in_order():
    assert list(registry.contenders(("cublas", "cusparse"), None))[:2] == [
        "cublas",
        "cusparse_default",
    ]
    assert registry.contenders((), None) == {}
    with pytest.raises(
        ValueError,
        match="no baseline 'mkl'; known: cpu, cublas, cublas_dense, cublas_tensor, cublaslt",
    ):
        registry.contenders(("cublas", "mkl"), None)


def test_the_names_exist_in_the_library():
    bindings = pytest.importorskip("nvmath.bindings.cublas")
    assert bindings.ComputeType.COMPUTE_32F == COMPUTE_32F
    assert int(runtime.cudaDataType.CUDA_R_32F) == F32
    assert bindings.Operation.N == 0 and bindings.GemmAlgo.DEFAULT == -1
    for name in ("create", "destroy", "set_stream", "gemm_ex", "get_property"):
        assert callable(getattr(bindings, name))


# ---------------------------------------------------------------- on a GPU


def on_gpu(m, n, k, vector=1, seed=0) -> Problem:
    """The same kind of problem with operands on the GPU; A has both signs."""
    generator = np.random.default_rng([seed, m, n, k])
    a = np.asfortranarray(generator.uniform(-1, 1, (m, k)).astype(np.float32))
    host = Operands(a, nm.random(k, n, 2, 4, vector, seed))

    def make_device():
        import cupy

        c = cupy.empty((m, n), cupy.float32, order="F")
        return Operands(cupy.asarray(host.a, order="F"), nm.to_device(host.b), c)

    return Problem(
        room="toy",
        label="",
        m=m,
        n=n,
        k=k,
        nnz=host.b.nnz,
        density=0.5,
        seed=seed,
        useful_flops=2 * m * host.b.nnz,
        flops_def="",
        least_bytes=1,
        requested_bytes=1,
        make_host=lambda: host,
        make_device=make_device,
    )


@pytest.fixture(scope="module")
def gpu(device):
    return device


@pytest.mark.gpu
@pytest.mark.parametrize("reading", cublas.READINGS)
@pytest.mark.parametrize("shape", [(64, 64, 64), (1, 1, 1), (37, 130, 99), (512, 256, 1024)])
def test_cublas_is_right_and_in_full_float32(gpu, reading, shape):
    problem = on_gpu(*shape)
    bound = cublas.bind(reading, problem, gpu)
    stream = gpu.create_stream()
    reference = check.oracle(problem)
    for _ in range(2):
        # TF32 rounds the operands to 11 bits, which would show as 1e-4 and more.
        assert check.check(bound, problem, reference, stream).rel_err < 1e-6
    assert isinstance(bound.result(), np.ndarray) == (reading == "cublas_transfers")


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(64, 96, 128, 0.25), (1, 33, 64, 0.5), (130, 100, 45, 0.5)])
def test_cublas_takes_the_problems_of_the_other_nm_room(gpu, shape):
    from kernels.nm_spmm import operands

    problem = operands.problem(*shape)
    bound = cublas.bind("cublas", problem, gpu)
    reference = check.oracle(problem)
    assert check.check(bound, problem, reference, gpu.create_stream()).rel_err < 1e-6


@pytest.mark.gpu
def test_cublas_can_be_captured(gpu):
    problem = on_gpu(300, 200, 500)
    reference = check.oracle(problem)
    bound = cublas.bind("cublas", problem, gpu)
    assert check_captured(bound, problem, reference, gpu).rel_err < 1e-6


@pytest.mark.gpu
def test_what_a_reading_adds_takes_time(gpu):
    from artifact.measure import bench

    problem = on_gpu(256, 256, 256)
    bounds = {name: make(problem) for name, make in cublas.readings(gpu).items()}
    stream = gpu.create_stream()
    reference = check.oracle(problem)
    for bound in bounds.values():
        check.check(bound, problem, reference, stream)
    times = {name: t.median_us for name, t in bench.time_calls(bounds, gpu).items()}
    for name in cublas.READINGS[1:]:
        assert times[name] > 1.5 * times["cublas"], times


@pytest.mark.gpu
def test_readings_on_one_problem_do_not_disturb_each_other(gpu):
    problem = on_gpu(128, 96, 64)
    reference = check.oracle(problem)
    bounds = [make(problem) for make in cublas.readings(gpu).values()]
    stream = gpu.create_stream()
    for bound in bounds + bounds[::-1]:
        assert check.check(bound, problem, reference, stream).rel_err < 1e-6
