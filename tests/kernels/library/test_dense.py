"""B and out without a GPU: how they lie, whose stream, and the kernel that copies them on every target."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refused import says

from kernels import jit, workspace
from kernels.library import dense, operands, sampled
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
        (np.zeros((9, 0)), "CF"), (BIG[:0, ::2], "CF"),
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


class Tensor:
    """What is asked of a tensor of PyTorch's on GPU 1."""

    is_cuda, shape, layout, dtype, negative = True, (3, 4), "strided", "torch.float32", False
    requires_grad = False

    def data_ptr(self):
        return 0x1000

    def stride(self):
        return (4, 1)

    def get_device(self):
        return 1

    def is_neg(self):
        return self.negative


def test_a_view_with_signs_to_be_changed_is_refused_and_lies_otherwise(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, strided="strided"))
    monkeypatch.setattr(dense, "_libraries", {})
    plain, negative = Tensor(), Tensor()
    negative.negative = True
    assert dense.describe(plain, "B") == Dense(0x1000, (3, 4), (4, 1), "float32", 1)
    says(["B is a view", "resolve_neg()"], lambda: dense.describe(negative, "B"))
    # A plan keeps what it knows of how arrays lie.
    assert dense.place(plain, "B")[1] == dense.place(Tensor(), "B")[1]
    assert dense.place(plain, "B")[1] != dense.place(negative, "B")[1]


def test_tensors_with_signs_to_be_changed_are_read_with_them_changed():
    torch = pytest.importorskip("torch")
    x = torch._neg_view(torch.ones(2, 3))
    assert (operands.array(x) == -1).all()


def test_cupys_current_stream_is_that_of_the_arrays_gpu(monkeypatch):
    streams = [SimpleNamespace(ptr=7), SimpleNamespace(ptr=9)]
    cuda = SimpleNamespace(get_current_stream=lambda device=0: streams[device])
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=Tensor))
    assert [dense.current(np.zeros(3), device) for device in (0, 1)] == [7, 9]


# ---------------------------------------------------------------- where memory is shared


@pytest.mark.parametrize(
    "x", [BIG, BIG.T, BIG[3:9, ::2], BIG[::-1], BIG[:, ::-3], BIG[5], BIG[:0], BIG[7:8, 3:4], BIG[::-2, 5:9]]
)  # fmt: skip
def test_the_extent_is_numpys(x):
    low, high = np.lib.array_utils.byte_bounds(x)
    expected = (low, high) if x.size else (x.ctypes.data, x.ctypes.data)
    assert tuple(x.ctypes.data + byte for byte in dense.extent(of(x))) == expected


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (BIG[:, :20], BIG[:, 20:]), (BIG[:, 50:], BIG[:, 10:50]), (BIG[:10], BIG[10:]), (BIG[::2], BIG[1::2]),
        (BIG[:9, 7:20], BIG[30:, 3:7]), (BIG[:, :20].T, BIG[:, 20:].T), (BIG.T[:, :9], BIG.T[:, 9:]),
        (BIG[:, 0], BIG[:, 1:]), (BIG[:0], BIG), (BIG[:, 20:40], np.zeros((40, 20), np.float32)),
    ],
)  # fmt: skip
def test_parts_of_one_matrix_are_apart(x, y):
    assert not np.shares_memory(x, y)
    assert dense.apart(of(x), of(y)) and dense.apart(of(y), of(x))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (BIG, BIG), (BIG[:, :21], BIG[:, 20:]), (BIG[:11], BIG[10:]), (BIG[:, 10:40], BIG[:, 20:30]),
        (BIG[:20], BIG[19::-1]), (BIG[:40, :40], BIG[:40, :40].T), (BIG[5], BIG[:, 3]),
    ],
)  # fmt: skip
def test_what_shares_memory_is_not_apart(x, y):
    assert np.shares_memory(x, y)
    assert not dense.apart(of(x), of(y)) and not dense.apart(of(y), of(x))


@given(st.data())
def test_apart_is_never_said_of_what_shares_memory(data):
    def part() -> slice:
        begin, end = sorted((data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))))
        return slice(begin, end, data.draw(st.sampled_from((1, 1, 2))))

    whole = np.zeros((6, 6), np.float32)[:: data.draw(st.sampled_from((1, -1)))]
    x, y = (whole[part(), part()] for _ in range(2))
    x, y = (z.T if data.draw(st.booleans()) else z for z in (x, y))
    if dense.apart(of(x), of(y)):
        assert not np.shares_memory(x, y)


def test_any_librarys_stream_has_an_address():
    protocol = SimpleNamespace(__cuda_stream__=lambda: (0, 9))
    as_property = SimpleNamespace(__cuda_stream__=(0, 9))
    for stream in (
        9,
        SimpleNamespace(ptr=9),
        SimpleNamespace(cuda_stream=9),
        protocol,
        as_property,
    ):
        assert dense.address_of(stream) == 9
    says(["builtins.str"], lambda: dense.address_of("default"))
    says(["builtins.bool"], lambda: dense.address_of(True))


def test_a_stream_is_opened_once(monkeypatch):
    monkeypatch.setattr(workspace, "_streams", {})
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
