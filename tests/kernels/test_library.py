"""What a caller of the library needs first: the rooms, a GPU, a kernel that is ready to run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import kernels
from kernels import gpu
from kernels.contract import Operands, Problem


def problem(room: str = "casper_sparse", make=lambda: Operands(1, 2)) -> Problem:
    sizes = dict.fromkeys(
        ("m", "n", "k", "nnz", "density", "seed", "useful_flops", "least_bytes", "requested_bytes"), 1
    )
    return Problem(room=room, label="", flops_def="", make_host=make, make_device=make, **sizes)


def test_the_rooms_are_those_that_are_on_trial():
    tried = Path(kernels.__file__).parents[1] / "artifact" / "rooms"
    assert set(kernels.rooms()) == {path.parent.name for path in tried.glob("*/room.toml")}
    assert all(room.__name__ == f"kernels.{name}" for name, room in kernels.rooms().items())


def test_binding_is_the_rooms_own_with_a_gpu_that_is_current(monkeypatch):
    from kernels import casper_sparse

    calls = []
    monkeypatch.setattr(casper_sparse, "bind", lambda *given: calls.append(given) or "bound")
    monkeypatch.setattr(kernels, "open_device", lambda: "GPU 0")
    p = problem()
    assert kernels.bind("any_n", p) == kernels.bind("any_n", p, "GPU 1") == "bound"
    assert calls == [("any_n", p, "GPU 0"), ("any_n", p, "GPU 1")]


def test_an_unknown_variant_or_room_is_refused_before_a_gpu_is_looked_for(monkeypatch):
    monkeypatch.setattr(kernels, "open_device", lambda: pytest.fail("looked for a GPU"))
    with pytest.raises(ValueError, match="^casper_sparse has no variant 'fast': choose one of warp"):
        kernels.bind("fast", problem())
    with pytest.raises(ValueError, match="^there is no room 'nowhere': choose one of async_sparse, "):
        kernels.bind("any_n", problem("nowhere"))


def test_a_driver_that_fails_is_one_sentence(monkeypatch):
    import cuda.core

    def fails(ordinal):
        raise RuntimeError(f"no device {ordinal} here.\nand a trace")

    monkeypatch.setattr(cuda.core, "Device", fails)
    with pytest.raises(gpu.NoGpu, match=r"^GPU 3 cannot be used \(no device 3 here\): ") as caught:
        kernels.open_device(3)
    assert "\n" not in str(caught.value)


def test_the_device_is_made_current(monkeypatch):
    import cuda.core

    current = []
    device = SimpleNamespace(set_current=lambda: current.append(device))
    monkeypatch.setattr(cuda.core, "Device", {2: device}.__getitem__)
    assert kernels.open_device(2) is device and current == [device]


@pytest.mark.parametrize(("missing", "raised"), [("cupy", gpu.NoGpu), ("scipy", ImportError)])
def test_without_cupy_operands_on_the_gpu_say_what_to_install(missing, raised):
    def make():
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    with pytest.raises(raised, match="install cupy-cuda13x" if missing == "cupy" else "scipy"):
        problem(make=make).device()
