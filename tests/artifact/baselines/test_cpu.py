"""The CPU's contenders: right in either format, compiled once by the compiler that is asked for."""

import subprocess

import numpy as np
import pytest
from contenders import drawn
from refused import refused

from artifact import paths
from artifact.baselines import cpu
from artifact.measure import verification
from kernels.formats import to_dense

needs_compiler = pytest.mark.skipif(cpu.compiler() is None, reason="there is no C compiler here")
NAMES = [pytest.param("cpu_loop", marks=needs_compiler), "cpu_scipy", "cpu_blas"]


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """An empty build folder, so that the library has to be compiled."""
    monkeypatch.setattr(paths, "BUILD", tmp_path / "build")
    cpu.library.cache_clear()
    yield tmp_path / "build"
    cpu.library.cache_clear()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["csr", "nm"])
@pytest.mark.parametrize("shape", [(7, 9, 11), (1, 1, 1), (64, 32, 48), (5, 64, 3)])
def test_every_contender_gives_the_product_and_one_that_does_nothing_is_caught(name, kind, shape):
    problem = drawn(kind, *shape, nnz=shape[0] * shape[2] // 3 + 1)
    bound, reference = cpu.contenders(None)[name](problem), verification.oracle(problem, on="cpu")
    assert bound.name == name and bound.prepare_ms >= 0 and bound.prepare_bytes == 0
    for _ in range(2):
        assert verification.check(bound, problem, reference).rel_err < 1e-6
    assert bound.result().dtype == np.float32 and bound.needs_host_clock and bound.on_cpu
    out = bound.result()
    bound.call = lambda _: out
    refused("elements unwritten", verification.check, bound, problem, reference, kind=verification.WrongResult)


@needs_compiler
def test_the_loop_adds_in_the_order_of_the_report():
    """One accumulator from row 0 of B on: any other order, as -ffast-math allows, rounds elsewhere."""
    problem = drawn("nm", 4, 5, 301)
    a, b = problem.host().a, to_dense(problem.host().b)
    expected = np.zeros((4, 5), np.float32)
    for p in range(301):
        expected += a[:, p : p + 1] * b[p]
    bound = cpu.prepare("cpu_loop", problem)
    bound.launch(None)
    assert np.array_equal(bound.result(), expected)
    assert not np.array_equal(expected, a[:, ::-1] @ b[::-1]), "the order was to matter"


@needs_compiler
def test_a_source_that_does_not_compile_is_one_sentence(fresh, monkeypatch, tmp_path):
    source = tmp_path / "broken.c"
    source.write_text("void cpu_loop( {\n")
    monkeypatch.setattr(cpu, "SOURCE", source)
    refused("does not compile broken.c: .*error", cpu.library, kind=RuntimeError)
    assert not list(fresh.iterdir())


def test_without_a_compiler_the_loop_is_left_out(fresh, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert cpu.compiler() is None
    refused("none of cc, gcc, clang was found", cpu.prepare, "cpu_loop", drawn("nm"), kind=FileNotFoundError)


@needs_compiler
def test_the_compiler_can_be_chosen(fresh, monkeypatch):
    (name, *_) = cpu.compiler()
    monkeypatch.setenv("CC", f"{name} -g0")
    assert cpu.compiler() == (name, "-g0")
    asked = []
    original = subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda words, **k: asked.append(words) or original(words, **k))
    cpu.library()
    assert asked[-1][:2] == (name, "-g0") and "-ffast-math" not in asked[-1] and "-O3" in asked[-1]
    monkeypatch.setenv("CC", "no-such-compiler-here")
    assert cpu.compiler() != ("no-such-compiler-here",)
