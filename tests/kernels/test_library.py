"""What a caller of the library needs first: systems, a GPU, operands on demand, a kernel that is ready."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import compiled
import numpy as np
import pytest
from refused import refused, says

import kernels
from kernels import casper_sparse, contract, gpu, jit
from kernels.autotune import probe
from kernels.distributed import generate
from kernels.formats import arrays, compress, layout

ROOT = Path(kernels.__file__).parent


def problem(system: str = "casper_sparse", make=lambda: contract.Operands(1, 2)) -> contract.Problem:
    sizes = dict.fromkeys(
        ("m", "n", "k", "nnz", "density", "seed", "useful_flops", "least_bytes", "requested_bytes"), 1
    )
    return contract.Problem(room=system, label="", flops_def="", make_host=make, make_device=make, **sizes)


def test_the_systems_are_those_that_are_on_trial():
    tried = ROOT.parent / "artifact" / "systems"
    assert set(kernels.systems()) == {path.parent.name for path in tried.glob("*/system.toml")}
    assert all(system.__name__ == f"kernels.{name}" for name, system in kernels.systems().items())


def test_binding_is_the_systems_own_with_a_gpu_that_is_current(monkeypatch):
    calls, p = [], problem()
    monkeypatch.setattr(casper_sparse, "prepare", lambda *given: calls.append(given) or "bound")
    monkeypatch.setattr(kernels, "open_device", lambda: "GPU 0")
    assert kernels.prepare("any_n", p) == kernels.prepare("any_n", p, "GPU 1") == "bound"
    assert calls == [("any_n", p, "GPU 0"), ("any_n", p, "GPU 1")]
    monkeypatch.setattr(kernels, "open_device", lambda: pytest.fail("looked for a GPU"))
    says(["casper_sparse has no variant 'fast': choose one of warp"], lambda: kernels.prepare("fast", p))
    says(["no system 'nowhere': choose one of async_sparse, "], lambda: kernels.prepare("any_n", problem("nowhere")))


def test_a_gpu_is_made_current_and_a_driver_that_fails_is_one_sentence(monkeypatch):
    current = []
    devices = {2: SimpleNamespace(set_current=lambda: current.append(2))}
    monkeypatch.setattr("cuda.core.Device", devices.__getitem__)
    assert kernels.open_device(2) is devices[2] and current == [2]

    fails = RuntimeError("no device 3 here.\nand a trace")
    monkeypatch.setattr("cuda.core.Device", Mock(side_effect=fails))
    refused(r"^GPU 3 cannot be used \(no device 3 here\): [^\n]*$", kernels.open_device, 3, kind=gpu.NoGpu)


@pytest.mark.parametrize(("missing", "raised"), [("cupy", gpu.NoGpu), ("scipy", ImportError)])
def test_without_cupy_operands_on_the_gpu_say_what_to_install(missing, raised):
    make = Mock(side_effect=ModuleNotFoundError(f"No module named {missing!r}", name=missing))
    refused("install cupy-cuda13x" if missing == "cupy" else "scipy", problem(make=make).device, kind=raised)


def test_operands_are_made_when_asked_for_and_once_and_steps_are_launched_in_order(monkeypatch):
    made, done = [], []
    p = problem(make=lambda: made.append(contract.Operands(1, 2)) or made[-1])
    assert not made and p.host() is p.host() and p.device() is p.device() is not p.host() and len(made) == 2
    p.release()
    assert p.device() is made[-1] and len(made) == 3
    monkeypatch.setattr("cuda.core.launch", lambda *arguments: done.append(arguments))
    bound = contract.Launch("twice", [("clear", "one block", (1,)), ("multiply", "many blocks", (2, 3))], "C")
    for _ in range(2):
        bound.launch("stream")
    assert done == [("stream", "one block", "clear", 1), ("stream", "many blocks", "multiply", 2, 3)] * 2
    assert bound.result() == "C" and bound.prepare_ms == bound.prepare_bytes == 0


def test_a_kernel_file_can_be_studied_alone():
    """One idea a file: a header that says what it computes, and not much more than a page."""
    for source in ROOT.rglob("*.cu"):
        text = source.read_text()
        lines = text.splitlines()
        assert lines[0].startswith("// "), f"{source.name} does not begin with what it is"
        if source.parent.name != "formats" and source.name != "planning.cu":  # many small ones, which prepare a matrix
            assert len("".join(text.split())) <= 5500, f"{source.name} is long"
            assert "template <" not in text or any(line.startswith("// Template:") for line in lines), source.name


def test_the_kernels_stand_alone():
    """They neither import the harness nor load a GPU's packages before something needs a GPU."""
    paths = [path.relative_to(ROOT.parent) for path in ROOT.rglob("*.py") if path.name != "__init__.py"]
    modules = [".".join(path.with_suffix("").parts) for path in paths]
    assert jit.__name__ in modules
    code = (
        f"import sys, importlib; [importlib.import_module(m) for m in {modules!r}]\n"
        "bad = {'artifact', 'cupy', 'nvmath', 'cuda', 'pandas'} & {m.split('.')[0] for m in sys.modules}\n"
        "sys.exit(f'imported: {bad}' if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


#: Sources that are no system's variants -> their entries.
BESIDE = {
    arrays.CHECKS: arrays.CHECKS_ENTRIES,
    compress.SOURCE: compress.ENTRIES,
    layout.SOURCE: layout.ENTRIES,
    generate.SOURCE: generate.ENTRIES,
    casper_sparse.operands.SOURCE: casper_sparse.operands.ON_HOST,
    probe.COMPARE: [f"compare<{name}>" for name in probe.ELEMENTS.values()],
    probe.SOURCE: ["magnitudes", *(f"whole<{name}>" for name in probe.ELEMENTS.values())],
}


def test_kernels_beside_the_variants_compile_without_spills():
    """But for those of compress.cu, of which some do."""
    made = compiled.spread(((source, entry) for source in BESIDE for entry in BESIDE[source]), always=())
    assert {x.entry for x in made.values()} == {entry for entries in BESIDE.values() for entry in entries}
    found = compiled.reports(made)
    assert not [key for key, (used, _) in found.items() if used.spills and made[key].source != compress.SOURCE]


@pytest.mark.parametrize(
    ("former", "name", "now"),
    [
        ("kernels", "bind", "kernels.prepare"),
        ("kernels", "rooms", "kernels.systems"),
        ("kernels", "Bound", "kernels.PreparedKernel"),
        ("kernels.contract", "Bound", "kernels.contract.PreparedKernel"),
        ("kernels.tuning", "tune", "kernels.autotune.tune"),
        ("artifact.rooms.nm_spmm", "__doc__", "artifact.systems.nm_spmm.__doc__"),
        ("artifact.which.model", "__doc__", "artifact.recommend.model.__doc__"),
        *((f"kernels.{name}", "bind", f"kernels.{name}.prepare") for name in kernels.systems()),
    ],
)
def test_former_names_are_aliases(former, name, now):
    module, _, attribute = now.rpartition(".")
    assert getattr(importlib.import_module(former), name) == getattr(importlib.import_module(module), attribute)


def test_a_launch_keeps_the_arrays_that_its_steps_were_given_and_hands_on_their_addresses():
    """Also of what runs before the kernel, which nobody else may hold."""
    array = SimpleNamespace(data=SimpleNamespace(ptr=64))
    bound = contract.Launch("", [("kernel", "grid", (np.int32(3), array, 128))], None)
    assert bound.steps == bound.named == [("kernel", "grid", (3, 64, 128))] and bound.given[0][2][1] is array
