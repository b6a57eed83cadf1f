"""What the harness may rely on: lazy operands, launches in order, and rooms that keep the contract."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import kernels
from kernels import casper_sparse, ceilings, contract, jit

ROOMS = [casper_sparse, ceilings]
ROOT = Path(kernels.__file__).parent


def make_problem(calls: list[str]) -> contract.Problem:
    def make(where):
        calls.append(where)
        return contract.Operands(where, where)

    return contract.Problem(
        room="test",
        label="",
        m=1,
        n=1,
        k=1,
        nnz=1,
        density=1.0,
        seed=0,
        useful_flops=2,
        flops_def="",
        least_bytes=1,
        requested_bytes=1,
        make_host=lambda: make("host"),
        make_device=lambda: make("device"),
    )


def test_operands_are_made_when_asked_for_and_once():
    calls = []
    problem = make_problem(calls)
    assert calls == []
    assert problem.host() is problem.host() and calls == ["host"]
    assert problem.device() is problem.device() and calls == ["host", "device"]
    problem.release()
    assert problem.device().a == "device" and calls == ["host", "device", "device"]


def test_a_launch_enqueues_its_steps_in_order(monkeypatch):
    import cuda.core

    done = []
    monkeypatch.setattr(cuda.core, "launch", lambda *arguments: done.append(arguments))
    steps = [("clear", "one block", (1,)), ("multiply", "many blocks", (2, 3))]
    bound = contract.Launch("twice", steps, "C")
    for _ in range(2):
        bound.launch("stream")
    one, two = ("stream", "one block", "clear", 1), ("stream", "many blocks", "multiply", 2, 3)
    assert done == [one, two, one, two]
    assert bound.result() == "C"
    assert bound.prepare_ms == bound.prepare_bytes == 0


# ---------------------------------------------------------------------------------- the rooms


def test_a_kernel_file_can_be_studied_alone():
    """One idea a file: a header that says what it computes, and not much more than a page."""
    for source in ROOT.rglob("*.cu"):
        text = source.read_text()
        lines, size = text.splitlines(), len("".join(text.split()))
        assert lines[0].startswith("// "), f"{source.name} does not begin with what it is"
        if source.parent.name == "formats" or source.name == "planning.cu":
            continue  # many small ones, which prepare a matrix
        assert size <= 5500, f"{source.name} has {size} characters, white space aside"
        if "template <" in text:
            assert any(line.startswith("// Template:") for line in lines), source.name


def test_the_kernels_stand_alone():
    """They neither import the harness nor load a GPU's packages before something needs a GPU."""
    modules = [
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts)
        for path in ROOT.rglob("*.py")
        if path.name != "__init__.py"
    ]
    assert jit.__name__ in modules
    code = (
        f"import sys, importlib; [importlib.import_module(m) for m in {modules!r}]\n"
        "bad = {'artifact', 'cupy', 'nvmath', 'cuda', 'pandas'} & {m.split('.')[0] for m in sys.modules}\n"
        "sys.exit(f'imported: {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
