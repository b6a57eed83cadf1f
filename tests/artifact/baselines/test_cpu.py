import subprocess

import numpy as np
import pytest

from artifact import paths
from artifact.baselines import cpu
from artifact.measure import check
from kernels.contract import Operands, Problem
from kernels.formats import csr, nm, to_dense

needs_compiler = pytest.mark.skipif(cpu.compiler() is None, reason="there is no C compiler here")
NAMES = [pytest.param("cpu_loop", marks=needs_compiler), "cpu_scipy", "cpu_blas"]


def make_problem(m=7, n=9, k=11, sparse="b", vector=1) -> Problem:
    """A dense problem but for one sparse operand: B in N:M, or A in CSR."""
    generator = np.random.default_rng([m, n, k])
    if sparse == "b":
        a = np.asfortranarray(generator.uniform(-1, 1, (m, k)).astype(np.float32))
        b = nm.random(k, n, 2, 4, vector, 0)
    else:
        dense = generator.uniform(-1, 1, (m, k)) * (generator.random((m, k)) < 0.3)
        from scipy.sparse import csr_array

        a = csr.from_scipy(csr_array(dense.astype(np.float32)))
        b = generator.uniform(-1, 1, (k, n)).astype(np.float32)
    operands = Operands(a, b)
    return Problem(
        room="toy",
        label="",
        m=m,
        n=n,
        k=k,
        nnz=m * k,
        density=0.5,
        seed=0,
        useful_flops=1,
        flops_def="",
        least_bytes=1,
        requested_bytes=1,
        make_host=lambda: operands,
        make_device=lambda: pytest.fail("a CPU contender has no use for operands on a GPU"),
    )


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty build folder, so that the library has to be compiled."""
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    cpu.library.cache_clear()
    yield tmp_path / "build"
    cpu.library.cache_clear()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sparse", ["a", "b"])
@pytest.mark.parametrize("shape", [(7, 9, 11), (1, 1, 1), (64, 32, 48), (5, 64, 3)])
def test_every_contender_gives_the_product(name, sparse, shape):
    problem = make_problem(*shape, sparse)
    bound = cpu.contenders()[name](problem)
    assert bound.name == name and bound.prepare_ms >= 0 and bound.prepare_bytes == 0
    reference = check.oracle(problem, on="cpu")
    for _ in range(2):
        assert check.check(bound, problem, reference).rel_err < 1e-6
    assert bound.result().dtype == np.float32
    assert bound.needs_host_clock and bound.on_cpu


@pytest.mark.parametrize("name", NAMES)
def test_a_contender_that_does_nothing_is_caught(name):
    problem = make_problem()
    bound = cpu.bind(name, problem)
    bound.launch(None)
    out = bound.result()
    bound.call = lambda _: out
    with pytest.raises(check.WrongResult, match="63 of 63 elements unwritten"):
        check.check(bound, problem, check.oracle(problem, on="cpu"))


@needs_compiler
def test_the_loop_adds_in_the_order_of_the_report():
    """One accumulator from row 0 of B on: any other order, as -ffast-math allows, rounds elsewhere."""
    problem = make_problem(4, 5, 301)
    a, b = problem.host().a, to_dense(problem.host().b)
    expected = np.zeros((4, 5), np.float32)
    for p in range(301):
        expected += a[:, p : p + 1] * b[p]
    bound = cpu.bind("cpu_loop", problem)
    bound.launch(None)
    assert np.array_equal(bound.result(), expected)
    assert not np.array_equal(expected, a[:, ::-1] @ b[::-1]), "the order was to matter"


@needs_compiler
def test_a_source_that_does_not_compile_is_one_sentence(fresh, monkeypatch, tmp_path):
    source = tmp_path / "broken.c"
    source.write_text("void cpu_loop( {\n")
    monkeypatch.setattr(cpu, "SOURCE", source)
    with pytest.raises(RuntimeError, match="does not compile broken.c: .*error") as caught:
        cpu.library()
    assert "\n" not in str(caught.value) and not list(fresh.iterdir())


def test_without_a_compiler_the_loop_is_left_out(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert cpu.available() == ("cpu_scipy", "cpu_blas")
    with pytest.raises(FileNotFoundError, match="none of cc, gcc, clang was found") as caught:
        cpu.bind("cpu_loop", make_problem())
    assert "\n" not in str(caught.value)
    assert check.check(cpu.bind("cpu_blas", make_problem()), make_problem(), reference())


def reference():
    return check.oracle(make_problem(), on="cpu")


@needs_compiler
def test_the_compiler_can_be_chosen(fresh, monkeypatch):
    (name, *_) = cpu.compiler()
    monkeypatch.setenv("CC", f"{name} -g0")
    assert cpu.compiler() == (name, "-g0") and "cpu_loop" in cpu.available()
    asked = []
    original = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda words, **k: asked.append(words) or original(words, **k))
    cpu.library()
    assert asked[-1][:2] == (name, "-g0") and "-ffast-math" not in asked[-1] and "-O3" in asked[-1]
    monkeypatch.setenv("CC", "no-such-compiler-here")
    assert cpu.compiler() != ("no-such-compiler-here",)


# ---------------------------------------------------------------- on a GPU


@pytest.mark.gpu
@pytest.mark.alone
def test_cpu_and_gpu_are_checked_and_timed_together(device):
    """The oracle is on the GPU here, the outputs are on both sides."""
    from artifact.baselines import cublas
    from artifact.measure import bench

    problem = make_problem(320, 256, 512, vector=32)

    def make_device():
        import cupy

        c = cupy.empty((320, 256), cupy.float32, order="F")
        host = problem.host()
        return Operands(cupy.asarray(host.a, order="F"), nm.to_device(host.b), c)

    problem.make_device = make_device
    makers = {name: cpu.contenders()[name] for name in cpu.available()} | cublas.contenders(device)
    bounds = {name: make(problem) for name, make in makers.items()}
    exact = check.oracle(problem)
    assert not isinstance(exact.values, np.ndarray)
    stream = device.create_stream()
    for bound in bounds.values():
        assert check.check(bound, problem, exact, stream).rel_err < 1e-6
    timings = bench.time_calls(bounds, device)
    assert timings["cpu_scipy"].median_us > 10 * timings["cublas"].median_us, timings
    assert timings["cublas"].sm_mhz > 100
