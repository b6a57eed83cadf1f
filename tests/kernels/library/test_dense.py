"""B and out without a GPU: how they lie, whose stream, and the kernel that copies them on every target."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import compiled
import emulated
import numpy as np
import pytest
from compiled import count
from hypothesis import given, strategies as st
from matrices import of_lengths
from refused import says

from kernels import formats, workspace
from kernels.formats import csr, half
from kernels.formats.half import Half
from kernels.library import Sampled, dense, direct, operands
from kernels.library.dense import Dense


def of(x: np.ndarray) -> Dense:
    """An array of the host, as if it were on GPU 0."""
    return Dense(x.ctypes.data, x.shape, tuple(s // x.itemsize for s in x.strides), x.dtype.name, 0)


BIG = np.zeros((40, 60), np.float32)
PLACES = np.arange(36, dtype=np.float32).reshape(6, 6)


@pytest.mark.parametrize(
    ("x", "orders"),
    [
        (BIG, "C"),
        (BIG.T, "F"),
        (BIG[:, :10], ""),
        (BIG[::2], ""),
        (BIG[:, ::2], ""),
        (BIG[:1], "CF"),
        (BIG[:1, :10], "CF"),
        (np.asfortranarray(BIG)[:, :7], "F"),
        (BIG[:, :1], ""),
        (np.zeros((9, 1)), "CF"),
        (np.zeros(9), "CF"),
        (np.zeros(18)[::2], ""),
        (np.zeros((1, 1)), "CF"),
        (np.zeros((9, 0)), "CF"),
        (BIG[:0, ::2], "CF"),
    ],
)
def test_an_array_without_gaps_is_laid_in_an_order(x, orders):
    assert "".join(order for order in "CF" if dense.is_laid(of(x), order)) == orders


def test_the_order_that_a_plan_is_made_for():
    assert dense.order_of(of(BIG)) == dense.order_of(of(BIG[:, :10])) == "C"
    assert dense.order_of(of(BIG.T)) == "F" and dense.order_of(of(BIG[0])) == "C"


class Tensor:
    """What is asked of a tensor of PyTorch's on GPU 1."""

    is_cuda, shape, layout, dtype, requires_grad = True, (3, 4), "strided", "torch.float32", False

    def __init__(self, negative: bool = False):
        given = {"data_ptr": 0x1000, "stride": (4, 1), "get_device": 1, "is_neg": negative}
        vars(self).update({name: lambda value=value: value for name, value in given.items()})


def test_a_view_with_signs_to_be_changed_is_refused_and_lies_otherwise(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, strided="strided"))
    dense._libraries.clear()
    plain, negative = Tensor(), Tensor(True)
    assert dense.describe(plain, "B") == Dense(0x1000, (3, 4), (4, 1), "float32", 1)
    says(["B is a view", "resolve_neg()"], lambda: dense.describe(negative, "B"))
    # A plan keeps what it knows of how arrays lie.
    assert dense.place(plain, "B")[1] == dense.place(Tensor(), "B")[1]
    assert dense.place(plain, "B")[1] != dense.place(negative, "B")[1]


def test_cupys_current_stream_is_that_of_the_arrays_gpu(monkeypatch):
    streams = [SimpleNamespace(ptr=7), SimpleNamespace(ptr=9)]
    cuda = SimpleNamespace(get_current_stream=lambda device=0: streams[device])
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda, ndarray=Tensor))
    assert [dense.current(np.zeros(3), device) for device in (0, 1)] == [7, 9]


# ---------------------------------------------------------------- where memory is shared


@pytest.mark.parametrize(
    "x", [BIG, BIG.T, BIG[3:9, ::2], BIG[::-1], BIG[:, ::-3], BIG[5], BIG[:0], BIG[7:8, 3:4], BIG[::-2, 5:9]]
)
def test_the_extent_is_numpys(x):
    low, high = np.lib.array_utils.byte_bounds(x)
    expected = (low, high) if x.size else (x.ctypes.data, x.ctypes.data)
    assert tuple(x.ctypes.data + byte for byte in dense.extent(of(x))) == expected


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (BIG[:, :20], BIG[:, 20:]),
        (BIG[:, 50:], BIG[:, 10:50]),
        (BIG[:10], BIG[10:]),
        (BIG[::2], BIG[1::2]),
        (BIG[:9, 7:20], BIG[30:, 3:7]),
        (BIG[:, :20].T, BIG[:, 20:].T),
        (BIG.T[:, :9], BIG.T[:, 9:]),
        (BIG[:, 0], BIG[:, 1:]),
        (BIG[:0], BIG),
        (BIG[:, 20:40], np.zeros((40, 20), np.float32)),
    ],
)
def test_parts_of_one_matrix_are_apart(x, y):
    assert not np.shares_memory(x, y) and dense.apart(of(x), of(y)) and dense.apart(of(y), of(x))


@given(st.data())
def test_apart_is_said_of_no_two_parts_that_share_memory(data):
    """Each element holds its own place."""

    def part() -> slice:
        begin, end = sorted((data.draw(st.integers(0, 6)), data.draw(st.integers(0, 6))))
        return slice(begin, end, data.draw(st.sampled_from((1, 1, 2))))

    whole = PLACES[:: data.draw(st.sampled_from((1, -1)))]
    x, y = (whole[part(), part()] for _ in range(2))
    x, y = (z.T if data.draw(st.booleans()) else z for z in (x, y))
    shared = bool(set(x.flat) & set(y.flat))
    assert not (dense.apart(of(x), of(y)) and shared)


def test_any_librarys_stream_has_an_address():
    for how in ({"ptr": 9}, {"cuda_stream": 9}, {"__cuda_stream__": (0, 9)}, {"__cuda_stream__": lambda: (0, 9)}):
        assert dense.address_of(SimpleNamespace(**how)) == dense.address_of(9) == 9


def test_every_kernel_of_the_library_compiles_without_spills():
    jobs = [(dense.SOURCE, f"combine<{name}>") for name, _ in dense.DTYPES.values()]
    jobs += [(source, entry) for source in (direct.SAMPLED, direct.PANELS) for entry in emulated.ENTRIES[source]]
    for (entry, target), (used, mix) in compiled.reports(compiled.spread(jobs)).items():
        assert not used.spills, (entry, target)
        if entry.startswith("sddmm<"):
            numbers, _, *team = entry.removeprefix("sddmm<").split(", ")
            vec, loads = map(int, team[:2])
            bits = 8 * vec * (4 if numbers == "FLOAT32" else 2)
            assert bits <= 32 or count(mix, "LDG", bits) >= 9 * loads, (entry, target)


@pytest.mark.parametrize(
    ("n", "addresses", "width"),
    [(8, (16, 32), 4), (8, (8, 16), 2), (6, (16,), 2), (7, (16,), 1), (8, (4,), 1), (8, (2,), 0)],
)
def test_lanes_load_as_much_at_once_as_rows_allow(n, addresses, width):
    assert direct.width(n, *addresses) == width


@pytest.fixture
def sampling(request, anything_there, monkeypatch):
    """A function: A of the host -> `Sampled` of it, on a GPU or on the host in its place, into NaN between NaN."""

    def poisoned(like, shape, dtype, *_):
        whole = anything_there(half.to_bits(np.full(shape[0] + 2, np.nan, np.float32), dtype))
        sampled.wholes.append((whole, dtype))
        return Half(dtype, whole[1:-1]) if dtype in half.DTYPES else whole[1:-1]

    def sampled(a):
        return Sampled(anything_there(a), device)

    sampled.wholes = []

    monkeypatch.setattr(dense, "empty", poisoned)
    if request.node.get_closest_marker("gpu"):
        device = request.getfixturevalue("device")
    else:
        has = SimpleNamespace(multiprocessor_count=5, max_shared_memory_per_block_optin=2**16)
        device = SimpleNamespace(device_id=0, sync=lambda: None, properties=has)
        monkeypatch.setattr(direct.current, "opened", lambda ordinal: nullcontext(device))
        monkeypatch.setattr(workspace, "stream_at", lambda address, gpu: address)
    return sampled


@pytest.mark.parametrize(
    ("n", "panels"), [(n, p) for n in emulated.SAMPLED_COLUMNS for p in (False, True) if not p or direct.staged(n, 4)]
)
def test_values_are_sampled_at_every_place_and_have_the_same_bits_again(
    sampling, anything_there, n, panels, monkeypatch
):
    rng = np.random.default_rng(n)

    def widest(cuts, nnz, n, made, size, shared):
        return next((x for x in cuts[::-1] if panels and x.wide * made.row_bytes <= shared), None)

    monkeypatch.setattr(direct, "quickest", widest)
    monkeypatch.setattr(direct, "FEW_PLACES", 0)  # of any length, and for any number of places
    monkeypatch.setattr(direct, "OF_A_BLOCK", 0)
    for lengths in ([0, 0], [0, 1, 0], [500], [0, 3, 70, 1, 0, 301, 5, 0], rng.integers(0, 9, 90)):
        a = of_lengths(lengths, 600, rng)
        if len(lengths) == 1:
            a = replace(a, col_idx=rng.permutation(a.col_idx))
        for dtype, out, _ in emulated.SAMPLED_DTYPES:
            g, b = (half.to_bits(rng.standard_normal((rows, n), np.float32), dtype) for rows in (a.m, a.k))
            given = [Half(dtype, anything_there(x)) if dtype in half.DTYPES else anything_there(x) for x in (g, b)]
            made = sampling(a)
            found, again = (formats.to_dense(formats.to_host(made(*given, out))) for _ in range(2))
            g, b = (half.from_bits(x, dtype).astype(np.float64) for x in (g, b))
            each = g[csr.rows(a)] * b[a.col_idx]
            limit = {"float32": 1e-6, "bfloat16": 4e-3, "float16": 1e-3}[out] * np.abs(each).sum(axis=1)
            assert (np.abs(found - each.sum(axis=1)) <= limit).all() and np.array_equal(found, again), (lengths, dtype)
        for whole, kind in sampling.wholes:
            assert np.isnan(half.from_bits(formats.to_host(whole)[[0, -1]], kind)).all(), "written beside the values"


@given(st.integers(0, 4096), st.sampled_from((2, 4)), st.sampled_from((16, 8, 4, 2)))
def test_a_team_has_every_column_once_in_loads_that_rows_allow(n, size, step):
    made = direct.team(n, size, 512, 512 + step)
    if step < size:
        assert made is None
        return
    assert made.vec * size <= 16 and n % made.vec == 0 and step % (made.vec * size) == 0
    assert made.times(n) * made.vec * made.loads * made.lanes >= n and 32 % made.lanes == 0
    assert made.vec * size in (16, step) or n % (2 * made.vec), "it could load more"
    assert made.lanes < 2 * max(1, n // made.vec), "half of them would have nothing"


@given(st.integers(2, 32), st.sampled_from((2, 4)), st.sampled_from((50_000, 101_376, 232_448)))
def test_panels_are_taken_where_pieces_are_long_and_shared_memory_holds_them(eights, size, shared):
    n, lists = 8 * eights, (np.zeros(133), np.zeros(9), np.zeros((10**5, 4)))
    made, cuts = direct.staged(n, size), [direct.Pieces(wide, 150, *lists) for wide in (96, 224, 896)]
    chosen = [direct.quickest(cuts, 10**5 << bits, n, made, size, shared) for bits in range(11)]
    taken = [x is not None for x in chosen]
    assert taken == sorted(taken) and not taken[0] and taken[-1] == (96 * made.row_bytes <= shared)
    assert all(x is None or x.wide * made.row_bytes <= shared for x in chosen)
    assert made.row_bytes >= n * size and direct.staged(n, size, 8) is direct.staged(n + 1, size) is None


def test_what_combine_is_launched_with(monkeypatch):
    x, y, launched = of(BIG[:, :8]), of(np.asfortranarray(BIG[:, :8])), []
    monkeypatch.setattr(dense.workspace, "enqueue", lambda *given: launched.append(given))
    dense.combine(x, y, 2.0, 0.5, "device", "stream")
    (((*how, blocks, _), given),) = [(step[:6], step[6:]) for step in launched]
    assert how == ["device", "stream", dense.SOURCE, "combine<float>"] and blocks == 2
    assert given == (40, 8, x.ptr, 60, 1, y.ptr, 1, 40, 2.0, 0.5)
    assert [type(given[i]) for i in (0, 3, 8)] == [np.int32, np.int64, np.float32]
    assert type(given[2]) is type(given[5]) is int, "what is a Python integer is an address"


# ---------------------------------------------------------------- out


@given(st.tuples(st.integers(0, 6), st.integers(0, 6)), st.tuples(st.integers(-9, 9), st.integers(-9, 9)))
def test_overlaps_are_those_that_counting_finds(shape, strides):
    places = [i * strides[0] + j * strides[1] for i in range(shape[0]) for j in range(shape[1])]
    assert dense.overlaps_itself(Dense(0, shape, strides, "float32", 0)) == (len(set(places)) < len(places))


class Foreign:
    """An array of another library on GPU 0, which says of it what `__cuda_array_interface__` has."""

    __cuda_array_interface__: ClassVar = {}

    def __init__(self, readonly: bool):
        self.readonly = readonly


class Jax(Foreign):
    """As JAX: a stream is an address or none, and arrays never change."""


Jax.__module__ = "jaxlib._jax"


@pytest.fixture
def asked(monkeypatch):
    """The streams on which arrays were asked where they lie; each refuses those that it says."""
    found = []

    def view(x, stream_ptr):
        found.append(stream_ptr)
        if stream_ptr in getattr(x, "refuses", ()):
            raise RuntimeError("CUDA_ERROR_INVALID_HANDLE: invalid resource handle.\nand a trace")
        lies = {"ptr": 0x1000, "shape": (3, 4), "strides": None, "dtype": np.dtype("f4"), "device_id": 0}
        return SimpleNamespace(**lies, readonly=x.readonly, is_device_accessible=True)

    monkeypatch.setattr("cuda.core.utils.StridedMemoryView", SimpleNamespace(from_any_interface=view), raising=False)
    monkeypatch.setattr(dense, "current", lambda x, ordinal: 0x77)
    return found


def test_what_may_not_be_written_is_known_and_lies_otherwise(asked):
    free, fixed = Foreign(False), Foreign(True)
    assert dense.describe(free, "out") == Dense(0x1000, (3, 4), (4, 1), "float32", 0)
    assert dense.describe(fixed, "out").readonly
    # A plan keeps what it knows of how arrays lie.
    assert dense.place(free, "out")[1] != dense.place(fixed, "out")[1]


@pytest.mark.parametrize(
    ("kind", "refuses", "streams"), [(Jax, [-1], [0x77]), (Foreign, [], [-1]), (Foreign, [-1], [-1, 0x77])]
)
def test_an_array_is_asked_for_on_a_stream_that_there_is(kind, refuses, streams, asked):
    x = kind(False)
    x.refuses = refuses
    assert dense.describe(x, "B").readonly == (kind is Jax) and asked == streams
    x.refuses = [-1, 0x77]
    says(["B is", "CUDA_ERROR_INVALID_HANDLE"], lambda: dense.describe(x, "B"))


HERE = SimpleNamespace(__dlpack__=lambda **_: pytest.fail("asked"), __dlpack_device__=lambda: (1, 0))
WITHIN = of(BIG)._replace(ptr=0x1002)


@pytest.mark.parametrize(
    ("words", "work"),
    [
        (["B is numpy.ndarray on the host"], lambda: dense.describe(np.zeros(3), "B")),
        (["B is types.SimpleNamespace on the host"], lambda: dense.describe(HERE, "B")),
        (["out is builtins.list", "DLPack"], lambda: dense.describe([1.0], "out")),
        (["out is builtins.NoneType"], lambda: dense.describe(None, "out")),
        (["strides of (6, 4) bytes"], lambda: dense._elements((6, 4), 4)),
        (["no multiple", "4 bytes"], lambda: dense.combine(WITHIN, of(BIG), 1.0, 0.0, None, None)),
        (["no multiple", "4 bytes"], lambda: dense.combine(of(BIG), WITHIN, 1.0, 0.0, None, None)),
        (["builtins.str"], lambda: dense.address_of("default")),
        (["builtins.bool"], lambda: dense.address_of(True)),
    ],
)
def test_what_is_no_array_or_stream_is_one_sentence(words, work):
    says(words, work)


# ---------------------------------------------------------------- alpha and beta


@pytest.mark.parametrize(
    ("x", "value"),
    [
        (2, 2.0),
        (0.5, 0.5),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3.0),
        (np.array(1.5), 1.5),
        (np.float16(2), 2.0),
        (float("inf"), float("inf")),
        (-float("inf"), -float("inf")),
        (3e38, 3e38),
        (dense._MOST, dense._MOST),
    ],
)
def test_a_factor_is_any_real_number_of_the_host(x, value):
    assert dense.factor("alpha", x) == value and type(dense.factor("alpha", x)) is float
    assert dense.factor("beta", float("nan")) != dense.factor("beta", float("nan"))


ON_GPU = SimpleNamespace(shape=(), device=SimpleNamespace(type="cuda"), item=lambda: 2.0)


@pytest.mark.parametrize(
    "x",
    [
        None,
        "2",
        1j,
        True,
        np.bool_(True),
        np.ones(1),
        np.ones(2),
        [1.0],
        np.complex64(1),
        1e39,
        10**400,
        -1e300,
        ON_GPU,
    ],
)
def test_a_factor_that_is_no_number_is_refused(x):
    says(["beta is"], lambda: dense.factor("beta", x))


def test_tensors_are_read_with_their_signs_changed_and_one_of_the_host_is_a_factor():
    torch = pytest.importorskip("torch")
    assert (operands.array(torch._neg_view(torch.ones(2, 3))) == -1).all()
    assert dense.factor("alpha", torch.tensor(2.5)) == 2.5
