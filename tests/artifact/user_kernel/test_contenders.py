"""Contenders from a user's folder: loaded by path or name, compiled without a GPU, refused with a sentence."""

import contextlib
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from refused import refused

from artifact import user_kernel
from artifact.user_kernel import benchmark, header
from kernels import async_sparse, casper_sparse, jit, nm_spmm, tensor_core_24
from kernels.contract import Operands

TEMPLATES = Path(user_kernel.__file__).parent


@pytest.fixture
def problem():
    return casper_sparse.problem(m=48, n=40, k=32, density=0.2, seed=3)


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.cu").write_text((TEMPLATES / "template.cu").read_text())
    return tmp_path / "mine.cu"


def test_the_template_compiles_for_every_target_and_fits_csr(mine, problem):
    contender = benchmark.load(str(mine))
    assert contender.name == "mine" and contender.source == mine and contender.header.entry
    benchmark.check_header(contender, problem)
    rows = benchmark.compiled(contender)
    assert [row["target"] for row in rows] == list(jit.TARGETS)
    assert all(row["registers"] > 0 and not row["spills"] for row in rows)


def test_a_header_that_does_not_fit_is_refused_before_a_gpu_is_looked_for(mine, problem):
    mine.write_text(mine.read_text().replace("a.val:float32", "a.weights:float32"))
    refused("a.weights", benchmark.check_header, benchmark.load(str(mine)), problem)


def test_another_source_has_another_digest(mine):
    before = benchmark.load(str(mine)).digest
    assert benchmark.load(str(mine)).digest == before
    mine.write_text(mine.read_text().replace("0.f", "0.0f"))
    assert benchmark.load(str(mine)).digest != before


def test_what_does_not_compile_is_one_sentence_with_the_first_error(mine):
    mine.write_text(mine.read_text().replace("float sum = 0.f;", "float sum = nought;"))
    says = r'does not compile for sm_80: .*"nought" is undefined'
    refused(says, benchmark.compiled, benchmark.load(str(mine)))


def test_a_kernel_for_one_target_is_refused_elsewhere(mine, problem):
    mine.write_text(mine.read_text().replace("// require:", "// targets:   sm_90a\n// require:"))
    refused(
        "mine is made for sm_90a, but this GPU takes sm_80",
        benchmark.load(str(mine)).prepare,
        problem,
        SimpleNamespace(compute_capability=(8, 0)),
    )


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
    assert (bound.result(), bound.prepare_ms, bound.prepare_bytes) == (problem.n, 0.0, 0)


def test_a_file_may_have_dataclasses_whose_annotations_are_postponed(tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "postponed", raising=False)
    text = "from __future__ import annotations\nimport dataclasses\n@dataclasses.dataclass\nclass Made:\n size: int\n"
    (tmp_path / "postponed.py").write_text(text + MODULE)
    assert benchmark.load(f"{tmp_path}/postponed.py:prepare").name == "postponed"


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
    refused(re.escape(says), lambda: benchmark.load(what).prepare(problem, None), kind=error)


def test_the_python_template_launches_what_it_prepares_and_says_what_it_does_not_take(monkeypatch):
    """A column of C for each thread, a row for each row of the grid, of which there are 65535 at most."""
    launched = []
    cuda = SimpleNamespace(ExternalStream=contextlib.nullcontext)
    cupy = SimpleNamespace(RawKernel=lambda source, name: lambda *how: launched.append(how), cuda=cuda)
    mine = benchmark.load(f"{TEMPLATES}/template.py:prepare", "mine")
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    operands = SimpleNamespace(a=SimpleNamespace(row_ptr=0, col_idx=1, val=2), b=3, c=4)
    problem = SimpleNamespace(m=65535, n=130, device=lambda: operands)
    bound = mine.prepare(problem, None)
    bound.launch(SimpleNamespace(handle=7))
    assert mine.name == "mine" and launched == [((2, 65535), (128,), (130, 0, 1, 2, 3, 4))] and bound.result() == 4
    problem.m += 1
    refused("65536", mine.prepare, problem, None)


@pytest.mark.parametrize(
    "text,says",
    [
        ("import sys\nsys.exit(0)\n", "SystemExit while it is loaded (broken_module.py, line 2: 0)"),
        ("raise SystemExit\n", "SystemExit while it is loaded (broken_module.py, line 1: )"),
        ("raise OSError('No luck.\\nNone')", "OSError while it is loaded (broken_module.py, line 1: No luck)."),
    ],
)
def test_a_module_that_fails_or_ends_the_program_is_one_sentence(tmp_path, monkeypatch, text, says):
    (tmp_path / "broken_module.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    for place in ("broken_module", f"{tmp_path}/broken_module.py"):
        monkeypatch.delitem(sys.modules, "broken_module", raising=False)
        refused(f"broken_module.* raises {re.escape(says)}", benchmark.load, f"{place}:prepare")


@pytest.mark.parametrize("raised", ["SystemExit(0)", "KeyError('a')"])
def test_a_contender_that_fails_while_it_prepares_is_one_sentence(tmp_path, problem, raised):
    (tmp_path / "fails.py").write_text(f"def prepare(problem, device):\n    raise {raised}\n")
    contender = benchmark.load(f"{tmp_path}/fails.py:prepare")
    refused("fails fails with (SystemExit|KeyError)", contender.prepare, problem, None)


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


# ---------------------------------------------------------------- the header of a .cu


TEXT = """\
// A kernel of mine, and a word about it: nothing.
//
// entry:     mine<4, true>
// grid:      ceil(n / 32), m // 2, min(m, 7)
// block:     32 * 4
// shared:    8 * k + 4
// arguments: m, n - 1, nnz:int64, 2:float32, a.row_ptr:int32, a.val, b:float32, c:float32
// require:   n % 4 == 0
// require:   k <= 4096
// targets:   sm_90a, sm_80

// block: 64, in a comment that is not the first one
"""


@pytest.fixture
def write(tmp_path):
    def written(text: str = TEXT):
        (tmp_path / "mine.cu").write_text(text)
        return tmp_path / "mine.cu"

    return written


def test_what_a_header_says(write):
    head = header.read(write())
    assert head.entry == "mine<4, true>" and head.targets == ("sm_90a", "sm_80")
    assert head.grid == ("ceil(n / 32)", "m // 2", "min(m, 7)") and head.block == ("32 * 4",)
    assert head.arguments[1:4] == (("n - 1", ""), ("nnz", "int64"), ("2", "float32"))
    assert head.require == ("n % 4 == 0", "k <= 4096") and not head.clear
    short = header.read(write("// entry: f\n// grid: m\n// block: 1\n// arguments: c\n// clear: c\n"))
    assert short.shared == "0" and short.clear and short.targets == jit.TARGETS


def test_what_it_comes_to(write, problem):
    head, known = header.read(write()), header.names(problem, problem.host())
    assert header.dimensions(head, known) == ((2, 24, 7), (128,), 8 * 32 + 4)
    assert header.number(head, "n - 1", "", known) == 39
    wide = header.number(head, "nnz", "int64", known)
    assert wide == problem.nnz and wide.dtype == np.int64
    assert known["a.row_ptr"] is problem.host().a.row_ptr and known["b"] is problem.host().b
    assert known["c"] is None, "there is none on the host"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("// entry:     mine<4, true>\n", "", "no line `// entry: …`; it needs entry, grid"),
        ("mine<4, true>", "", "line 3: entry says nothing"),
        ("// shared:    8 * k + 4", "// grid: m", "line 6: grid is there a second time"),
        ("min(m, 7)", "1, 1", "grid has 4 dimensions, at most 3"),
        ("nnz:int64", "nnz:int46", "the argument nnz has the type 'int46', none of int32"),
        ("m // 2", "m +", "'m +' is neither a name nor a sum"),
        ("sm_80", "sm_70", "no target 'sm_70'; known: sm_80"),
        ("// targets:", "// clear: b\n// targets:", "clear is 'b', but only c"),
        ("m // 2", "-" * 50_000 + "m", "has 50001 characters, at most 1000"),
        ("m // 2", " + ".join(["m"] * 20_000), "characters, at most 1000 are read"),
        ("m // 2", "(" * 400 + "m" + ")" * 400, "is neither a name nor a sum"),
        ("m // 2", "m\0", "is neither a name nor a sum"),
    ],
)
def test_a_header_that_is_not_whole_is_refused(write, old, new, says):
    assert old in TEXT
    refused(f"^mine.cu.*{re.escape(says)}", header.read, write(TEXT.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("a.val,", "a.values,", "no argument 'a.values'; the system has m, n, k, nnz, a.m"),
        ("b:float32", "b:uint16", "b is float32 in this system, but the kernel takes uint16"),
        ("nnz:int64", "nnz * 10000000", "which is no int32: name another type"),
        ("n - 1", "n / 3", "'n / 3' is 13.3333 here, no whole number: use ceil()"),
        ("m // 2", "m // (n - 40)", "'m // (n - 40)' divides by 0"),
        ("m // 2", "b // 2", "'b // 2' names 'b', which is no number here; numbers are m, n, k"),
        ("m // 2", "open('x')", "names \"open('x')\", which is no number here"),
        ("m // 2", "m - 48", "grid 'm - 48' is 0 here, but must be 1 at least"),
        ("8 * k + 4", "-k", "shared '-k' is -32 here"),
        ("m // 2", "-" * 990 + "m", "is nested too deep"),
        ("n % 4 == 0", "n % 3 == 0", "mine.cu requires n % 3 == 0, but n = 40"),
        ("n % 4 == 0", "n % 4", "mine.cu requires n % 4, but n = 40"),
        ("ceil(n / 32)", "n / 1.6 / 2", "'n / 1.6 / 2' is 12.5 here, no whole number"),
        ("ceil(n / 32)", "1.5 / n", "'1.5 / n' is 0.0375 here, no whole number"),
        ("ceil(n / 32)", "ceil()", "'ceil()' calls ceil() with 0 numbers"),
        ("ceil(n / 32)", "ceil(n, 2)", "calls ceil() with 2 numbers"),
        ("min(m, 7)", "min()", "calls min() with 0 numbers"),
        ("ceil(n / 32)", "ceil(1e400)", "no number here"),
        ("ceil(n / 32)", "n % 0", "divides by 0"),
        ("ceil(n / 32)", "n == 40", "grid 'n == 40' is True here"),
        ("nnz:int64", "-1:uint32", "-1, which is no uint32"),
        ("2:float32", "1e300:float32", "the argument 1e300 is no float32"),
    ],
)
def test_what_does_not_fit_the_problem_is_refused(write, problem, old, new, says):
    assert old in TEXT
    head, known = (
        header.read(write(TEXT.replace(old, new, 1))),
        header.names(problem, problem.host()),
    )
    refused(f"^(?=mine.cu).*{re.escape(says)}", header.dimensions, head, known)


@pytest.mark.parametrize(
    ("problem", "has"),
    [
        (nm_spmm.problem(64, 64, 64, 0.5), {"a": "float32 (64 x 64), column-major", "b.keep": "whole"}),
        (async_sparse.problem(64, 64, 64, 1.0), {"a.val": "uint16 (1 x 64 x 64)", "b": "column-major"}),
        (tensor_core_24.problem(64, 64, 64), {"a.meta": "uint16 (64 x 4)", "c": "the output, 64 x 64"}),
    ],
    ids=["vectors", "blocks", "elements"],
)
def test_every_format_has_names(problem, has):
    found = header.described(problem, problem.host())
    assert list(found)[:4] == list(header.SIZES) and "c" in found
    assert all(text in found[name] for name, text in has.items())
    arrays = [text for text in found.values() if text.startswith(header.TYPES)]
    assert arrays and all((" x " in text) == ("-major" in text) for text in arrays), "one dimension has no order"


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("n * 1.0", 40),
        ("n / 1.6", 25),
        ("ceil(n / 1.5)", 27),
        ("max(n)", 40),
        ("min(m, n, 7)", 7),
        ("n * 0.1", 4),
        ("ceil(0.3 / 0.1)", 3),
        ("7 // 2.5", 2),
        ("-" * 100 + "n", 40),
    ],
)
def test_sums_are_exact_also_with_points(write, problem, text, is_):
    head, known = header.read(write()), header.names(problem, problem.host())
    found = header.value(head, text, known)
    assert type(found) is int and found == is_
    assert header.number(head, "n / 3", "float32", known) == np.float32(40 / 3)
    assert header.number(head, "0.5", "float64", known) == 0.5


def test_commas_in_brackets_do_not_part():
    assert header._parts("min(m, ceil((n) / 2)), k,max(n)") == ("min(m, ceil((n) / 2))", "k", "max(n)")
