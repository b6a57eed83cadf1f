"""Contenders from a user's folder: loaded by path or name, compiled without a GPU, refused with a sentence."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from artifact import user_kernel
from artifact.user_kernel import benchmark
from kernels import jit
from kernels.contract import Operands

TEMPLATES = Path(user_kernel.__file__).parent


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.cu").write_text((TEMPLATES / "template.cu").read_text())
    return tmp_path / "mine.cu"


def targets(path, *names):
    path.write_text(path.read_text().replace("// require:", f"// targets:   {', '.join(names)}\n// require:"))


def test_the_template_compiles_for_every_target_and_fits_csr(mine, problem):
    contender = benchmark.load(str(mine))
    assert contender.name == "mine" and contender.source == mine and contender.header.entry
    benchmark.check_header(contender, problem)
    rows = benchmark.compiled(contender)
    assert [row["target"] for row in rows] == list(jit.TARGETS)
    assert all(row["registers"] > 0 and not row["spills"] for row in rows)


def test_a_header_that_does_not_fit_is_refused_before_a_gpu_is_looked_for(mine, problem):
    mine.write_text(mine.read_text().replace("a.val:float32", "a.weights:float32"))
    with pytest.raises(ValueError, match="a.weights"):
        benchmark.check_header(benchmark.load(str(mine)), problem)


def test_another_source_has_another_digest(mine):
    before = benchmark.load(str(mine)).digest
    assert benchmark.load(str(mine)).digest == before
    mine.write_text(mine.read_text().replace("0.f", "0.0f"))
    assert benchmark.load(str(mine)).digest != before


def test_what_does_not_compile_is_one_sentence_with_the_first_error(mine):
    mine.write_text(mine.read_text().replace("float sum = 0.f;", "float sum = nought;"))
    with pytest.raises(ValueError, match=r'does not compile for sm_80: .*"nought" is undefined') as caught:
        benchmark.compiled(benchmark.load(str(mine)))
    assert "\n" not in str(caught.value)


def test_a_kernel_for_one_target_is_refused_elsewhere(mine, problem):
    targets(mine, "sm_90a")
    with pytest.raises(ValueError, match="mine is made for sm_90a, but this GPU takes sm_80"):
        benchmark.load(str(mine)).prepare(problem, SimpleNamespace(compute_capability=(8, 0)))


MODULE = """
from types import SimpleNamespace
def prepare(problem, device):
    return SimpleNamespace(launch=lambda stream: None, result=lambda: problem.n)
def other(problem): pass
number = 3
def nothing(problem, device): return problem.m
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "my_module.py").write_text(MODULE)
    (tmp_path / "9.cu").write_text((TEMPLATES / "template.cu").read_text())
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("what", ["./my_module.py:prepare", "my_module:prepare"])
@pytest.mark.parametrize("name", ["", "another"])
def test_a_python_function_by_path_and_by_name(module, problem, what, name):
    contender = benchmark.load(what, name)
    bound = contender.prepare(problem, None)
    assert contender.name == bound.name == (name or "my_module") and benchmark.compiled(contender) == []
    assert (bound.result(), bound.prepare_ms) == (problem.n, 0.0)


@pytest.mark.parametrize(
    "what,error,says",
    [
        ("my_module:bend", ValueError, "my_module has no function 'bend'"),
        ("my_module:number", ValueError, "has no function 'number'"),
        ("my_module:other", ValueError, "is not called with (problem, device)"),
        ("your_module:prepare", ValueError, "There is no module 'your_module'"),
        ("my_module", ValueError, "name a file that ends in .cu, or module:function"),
        ("my_module:nothing", ValueError, "binds a int without launch()"),
        ("9.cu", ValueError, "cannot be called '9': give --name"),
        ("mine.cu", FileNotFoundError, "there is no such"),
        ("mine.py:prepare", FileNotFoundError, "there is no such"),
    ],
)
def test_what_is_no_contender_is_refused(module, problem, what, error, says):
    with pytest.raises(error, match=re.escape(says)):
        benchmark.load(what).prepare(problem, None)


def test_the_python_template_loads_without_a_gpu():
    assert benchmark.load(f"{TEMPLATES}/template.py:prepare", "mine").name == "mine"


@pytest.mark.parametrize("text", ["import sys\nsys.exit(0)\n", "raise SystemExit\n"])
def test_a_module_that_ends_the_program_is_one_sentence(tmp_path, monkeypatch, text):
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    for place in ("broken_module", f"{tmp_path}/broken_module.py"):
        monkeypatch.delitem(sys.modules, "broken_module", raising=False)
        with pytest.raises(ValueError, match="broken_module.* raises SystemExit while it is loaded"):
            benchmark.load(f"{place}:prepare")


@pytest.mark.parametrize("raised", ["SystemExit(0)", "KeyError('a')"])
def test_a_contender_that_fails_while_it_prepares_is_one_sentence(tmp_path, problem, raised):
    (tmp_path / "fails.py").write_text(f"def prepare(problem, device):\n    raise {raised}\n")
    contender = benchmark.load(f"{tmp_path}/fails.py:prepare")
    with pytest.raises(ValueError, match="fails fails with (SystemExit|KeyError)"):
        contender.prepare(problem, None)


class Array(np.ndarray):
    """What a launch asks of a GPU's arrays."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)


@pytest.mark.parametrize("clear", [True, False])
def test_a_header_says_whether_each_launch_clears_the_output(mine, problem, monkeypatch, clear):
    if clear:
        mine.write_text(mine.read_text().replace("// require:", "// clear:     c\n// require:"))
    ops = problem.host()
    there = {name: getattr(ops.a, name).view(Array) for name in ("row_ptr", "col_idx", "val")}
    c = np.zeros((problem.m, problem.n), np.float32).view(Array)
    operands = Operands(replace(ops.a, **there), ops.b.view(Array), c)
    monkeypatch.setattr(jit, "load", lambda cubin, shared: cubin)
    bound = benchmark.load(str(mine)).prepare(
        replace(problem, make_device=lambda: operands), SimpleNamespace(compute_capability=(9, 0))
    )
    assert bound.accumulates == clear and bound.result() is c
