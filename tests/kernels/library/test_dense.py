"""B and out without a GPU: how they lie, whose stream, and the kernel that copies them on every target."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from refused import says

from kernels import jit
from kernels.library import dense, sampled
from kernels.library.dense import Dense


def of(x: np.ndarray) -> Dense:
    """An array of the host, as if it were on GPU 0."""
    return Dense(x.ctypes.data, x.shape, tuple(s // x.itemsize for s in x.strides), x.dtype.name, 0)


BIG = np.zeros((40, 60), np.float32)


@pytest.mark.parametrize(
    ("x", "orders"),
    [
        (BIG, "C"), (BIG.T, "F"), (BIG[:, :10], ""), (BIG[::2], ""), (BIG[:, ::2], ""), (BIG[:1], "CF"),
        (BIG[:1, :10], "CF"), (np.asfortranarray(BIG)[:, :7], "F"), (BIG[:, :1], ""),
        (np.zeros((9, 1)), "CF"), (np.zeros(9), "CF"), (np.zeros(18)[::2], ""), (np.zeros((1, 1)), "CF"),
    ],
)  # fmt: skip
def test_an_array_without_gaps_is_laid_in_an_order(x, orders):
    assert "".join(order for order in "CF" if dense.is_laid(of(x), order)) == orders


def test_the_order_that_a_plan_is_made_for():
    assert dense.order_of(of(BIG)) == dense.order_of(of(BIG[:, :10])) == "C"
    assert dense.order_of(of(BIG.T)) == "F" and dense.order_of(of(BIG[0])) == "C"


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4)])
def test_strides_without_gaps_are_numpys(shape):
    assert dense.row_major(shape) == of(np.zeros(shape)).strides


def test_what_is_on_the_host_or_no_array_is_refused():
    says(["B is numpy.ndarray on the host"], lambda: dense.describe(np.zeros(3), "B"))
    says(["out is builtins.list", "DLPack"], lambda: dense.describe([1.0], "out"))
    says(["out is builtins.NoneType"], lambda: dense.describe(None, "out"))


def test_a_tensor_on_the_host_is_refused():
    torch = pytest.importorskip("torch")
    says(["B is torch.Tensor on the host"], lambda: dense.describe(torch.zeros(3), "B"))


def test_any_librarys_stream_has_an_address():
    protocol = SimpleNamespace(__cuda_stream__=lambda: (0, 9))
    as_property = SimpleNamespace(__cuda_stream__=(0, 9))
    for given in (9, SimpleNamespace(ptr=9), SimpleNamespace(cuda_stream=9), protocol, as_property):
        assert dense.address_of(given) == 9
    says(["builtins.str"], lambda: dense.address_of("default"))
    says(["builtins.bool"], lambda: dense.address_of(True))


def test_a_stream_is_opened_once(monkeypatch):
    monkeypatch.setattr(dense, "_streams", {})
    made = []
    device = SimpleNamespace(
        device_id=0, create_stream=lambda x: made.append(x.__cuda_stream__()) or len(made)
    )
    assert [dense.opened(address, device) for address in (5, 5, 7)] == [1, 1, 2]
    assert made == [(0, 5), (0, 7)]


@pytest.mark.parametrize("arch", jit.TARGETS)
def test_every_kernel_of_the_library_compiles_without_spills(arch):
    jobs = [(dense.SOURCE, f"combine<{name}>") for name, _ in dense.DTYPES.values()]
    jobs += [(sampled.SOURCE, entry) for entry in sampled.ENTRIES]
    found = jit.reports(jit.compile_cubin(*job, arch) for job in jobs)
    assert not any(used.spills for used, _ in found)
    mixes = [mix for _, mix in found[3:]]
    for mix, size in zip(mixes, (".128", ".64", ""), strict=True):
        loads = [op for op in mix if op.startswith("LDG")]
        assert any(op.endswith("CONSTANT" if not size else f"{size}.CONSTANT") for op in loads)


@pytest.mark.parametrize(
    ("n", "addresses", "width"),
    [(8, (16, 32), 4), (8, (8, 16), 2), (6, (16,), 2), (7, (16,), 1), (8, (4,), 1)],
)
def test_lanes_load_as_much_at_once_as_rows_allow(n, addresses, width):
    assert sampled.width(n, *addresses) == width


def test_what_combine_is_launched_with():
    x, y = of(BIG[:, :8]), of(np.asfortranarray(BIG[:, :8]))
    given = dense.combine_arguments(x, y, 2.0, 0.5)
    assert given[:2] == (40, 8) and given[2] == x.ptr and given[3:5] == (60, 1)
    assert given[5] == y.ptr and given[6:8] == (1, 40) and given[8:] == (2.0, 0.5)
    assert [type(given[i]) for i in (0, 3, 8)] == [np.int32, np.int64, np.float32]
    assert type(given[2]) is type(given[5]) is int, "what is a Python integer is an address"
