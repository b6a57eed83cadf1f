"""What the harness may rely on: lazy operands, launches in order, and rooms that keep the contract."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_a_problem_prints_without_its_operands():
    problem = make_problem([])
    problem.host()
    assert "host" not in repr(problem) and "m=1" in repr(problem)


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


def test_require_raises_its_message():
    contract.require(True, "not said")
    with pytest.raises(ValueError, match="^N is 3$"):
        contract.require(False, "N is 3")


def test_a_kernel_is_a_constant():
    with pytest.raises(dataclasses.FrozenInstanceError):
        casper_sparse.VARIANTS["warp_per_row"].name = "another"


# ---------------------------------------------------------------------------------- the rooms


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_a_room_describes_its_variants(room):
    folder = Path(room.__file__).parent
    for name, kernel in room.VARIANTS.items():
        assert kernel.name == name and kernel.idea and "\n" not in kernel.idea
        assert kernel.source.is_file() and kernel.source.parent == folder
        assert len(set(kernel.entries)) == len(kernel.entries)
        assert bool(kernel.entries) == (kernel.source.suffix == ".cu")
        for entry in kernel.entries:
            template = entry.split("<")[0]
            assert f"{template}(" in kernel.source.read_text(), f"{entry} is not in {kernel.source}"
    assert callable(room.bind)


def test_the_room_starts_with_the_published_kernel_and_predicts_every_other():
    first, *ours = casper_sparse.VARIANTS.values()
    assert first.published and first.name == "warp_per_row"
    for kernel in ours:
        assert not kernel.published and kernel.prediction, kernel.name


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_no_source_is_left_over(room):
    used = {kernel.source.name for kernel in room.VARIANTS.values()} | {"generate.cu"}
    assert {path.name for path in Path(room.__file__).parent.glob("*.cu")} <= used


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
        if path.name not in ("__init__.py", "semi_structured.py")  # which is for whoever has PyTorch
    ]
    assert jit.__name__ in modules
    code = (
        f"import sys, importlib; [importlib.import_module(m) for m in {modules!r}]\n"
        "bad = {'artifact', 'cupy', 'nvmath', 'cuda', 'pandas'} & {m.split('.')[0] for m in sys.modules}\n"
        "sys.exit(f'imported: {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
