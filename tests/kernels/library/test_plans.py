"""A plan without a GPU: which addresses it puts where, what it launches around a kernel, what it keeps on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
import racing
import scipy.sparse as sp
from refused import says

import kernels
from kernels import formats, tma
from kernels.contract import Launch, Operand, Slot
from kernels.formats import bcsr, csr, nm, two_four
from kernels.library import buffers, current, dense, plans, routes, saved
from kernels.library.dense import Dense
from kernels.library.plans import SCRATCH

M, K, N = 6, 10, 4
B_AT, OUT_AT, VALUES_AT = 0x1000, 0x2000, 0x3000  # of arrays that stand for others


@dataclass
class Array:
    """An array on a GPU, of which only its place matters."""

    at: Dense


def array(ptr: int, rows: int, columns: int, order: str = "C", dtype: str = "float32", gpu: int = 0):
    return Array(Dense(ptr, (rows, columns), dense.strides_of(rows, columns, order), dtype, gpu))


def b(ptr: int = 0x10000, **options) -> Array:
    return array(ptr, K, N, **options)


def out(ptr: int = 0x20000, **options) -> Array:
    return array(ptr, M, N, **options)


def strided(*strides: int, readonly: bool = False) -> Array:
    """An out whose rows and columns are so many elements apart."""
    return Array(Dense(0x20000, (M, N), strides, "float32", 0, readonly))


def wide(ptr: int, rows: int, gap: int = N) -> Array:
    """Columns of a larger matrix."""
    return Array(Dense(ptr, (rows, N), (N + gap, 1), "float32", 0))


@pytest.fixture
def device(monkeypatch):
    """GPU 0, which is not there: arrays are `Array`, streams are numbers."""
    made = SimpleNamespace(**vars(racing.H200))
    monkeypatch.setattr(dense, "describe", lambda x, name: x.at)
    monkeypatch.setattr(dense, "place", lambda x, name: (x.at.ptr, x.at[1:]))
    monkeypatch.setattr(dense, "current", lambda like, gpu: 77)
    monkeypatch.setattr(dense, "opened", lambda address, gpu: address)
    monkeypatch.setattr(dense, "combiner", lambda dtype, rows, columns, gpu: (f"combine {rows}", "grid"))
    monkeypatch.setattr(current, "now", lambda: 0)
    return made


@pytest.fixture
def launched() -> list:
    return []


def planned(device, launched, *, in_place: bool = False, steps=None) -> plans.Plan:
    a = csr.from_scipy(sp.random(M, K, 0.5, format="csr", dtype=np.float32, random_state=0))
    if in_place:
        a = replace(a, val=SimpleNamespace(data=SimpleNamespace(ptr=VALUES_AT), shape=a.val.shape))
    p = plans.Plan(
        routes.Route("casper_sparse", "in_place", a, "float32", in_place=in_place), N, "float32", "fp32", device
    )
    arguments = np.int32(M), 0x9000, Operand.VALUES if in_place else VALUES_AT, Operand.B, Operand.OUT
    p._repeat("any_n", Launch("", steps or [("kernel", "grid", arguments)], None))
    p._enqueue = lambda *given: launched.append(given)
    return p


# ---------------------------------------------------------------- addresses


def test_a_call_launches_the_kernel_on_its_arrays_and_nothing_else(device, launched):
    p = planned(device, launched)
    to = out()
    assert p(b(), to) is to
    assert launched == [(77, "grid", "kernel", np.int32(M), 0x9000, VALUES_AT, 0x10000, 0x20000)]


def test_the_same_arrays_are_not_looked_for_again(device, launched, monkeypatch):
    p = planned(device, launched)
    p(b(), out())
    monkeypatch.setattr(plans.Step, "at", lambda *_: pytest.fail("laid out again"))
    p(b(), out())
    assert launched[0] == launched[1]


def test_nothing_but_the_places_that_are_named_changes(device, launched):
    steps = [("kernel", "grid", (np.int32(Operand.OUT), 0, int(Operand.OUT), 2.5, Operand.OUT, Operand.B, Operand.B))]
    planned(device, launched, steps=steps)(b(), out())
    assert launched[0][3:] == (16, 0, 16, 2.5, 0x20000, 0x10000, 0x10000)


def test_scratch_is_the_buffers_of_a_call(device, launched, driver):
    """A graph's launches have their own."""
    made = [Slot(B_AT, (8,), "uint8"), Slot(OUT_AT, (0,), "uint8"), Slot(VALUES_AT, (4,), "float32")]
    mapped = tma.Mapped(VALUES_AT, (4, 4), (16, 4), "<f4", (4, 4))
    p = planned(device, launched)
    bound = Launch("", [("kernel", "grid", (B_AT, OUT_AT, np.int64(B_AT), Operand.B))], None, scratch=tuple(made))
    bound.named = [("kernel", "grid", (*bound.steps[0][2][:3], mapped))]
    p._repeat("any_n", bound)
    assert p._sizes == (8, 16) and p._buffers.scratch == (B_AT, VALUES_AT)
    assert p._steps[0].places == [(0, SCRATCH, None), (3, SCRATCH + 1, mapped)]


def test_tensor_maps_of_b_and_out_are_encoded_for_each_array_once(device, launched, monkeypatch):
    encoded = []
    monkeypatch.setattr(tma, "encoded", lambda said: encoded.append(said) or f"map {len(encoded)}")
    maps = [tma.Mapped(at, (64, 64), (128, 2), "<u2", (8, 64), 128) for at in (0x9000, Operand.B, Operand.OUT)]
    p = planned(device, launched, steps=[("kernel", "grid", tuple(maps))])
    for at in (0x10000, 0x50000, 0x10000):
        p(b(at), out())
    assert [given[3:] for given in launched] == [
        ("map 1", "map 2", "map 3"),
        ("map 1", "map 4", "map 3"),
        ("map 1", "map 2", "map 3"),
    ]
    assert [x.address for x in encoded] == [0x9000, 0x10000, 0x20000, 0x50000]
    assert all(replace(x, address=0) == replace(maps[0], address=0) for x in encoded)


def test_maps_of_arrays_that_are_gone_are_forgotten(device, launched, monkeypatch):
    monkeypatch.setattr(tma, "encoded", lambda said: said.address)
    said = tma.Mapped(Operand.B, (64, 64), (128, 2), "<u2", (8, 64))
    p = planned(device, launched, steps=[("kernel", "grid", (said,))])
    for i in range(500):
        p(b(0x10000 + 0x1000 * i), out(0x8000000))
        assert launched[-1][3] == 0x10000 + 0x1000 * i
    assert 0 < len(p._steps[0].maps) < 100


@pytest.mark.parametrize("shape", [(0, N), (M, 0)])
def test_an_empty_out_is_returned_and_nothing_is_launched(shape, device, launched, memory):
    p = planned(device, launched)
    p._steps, p.m, p.n = [], *shape
    given, to = array(0x10000, K, shape[1]), array(0x20000, *shape)
    assert p(given, to) is to and p(given, to, beta=2.0) is to and not launched and not memory


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("shape", [(6, 4), (1, 4), (6, 1), (1, 1), (7,)])
def test_a_slot_says_of_itself_what_an_array_does(shape, order):
    x, slot = np.zeros(shape, np.uint16, order), Slot(Operand.B, shape, np.uint16, order)
    for of, its in ((x, slot), (x.T, slot.T)):
        for name in ("shape", "dtype", "itemsize", "size", "nbytes", "ndim"):
            assert getattr(its, name) == getattr(of, name)
        assert its.flags.c_contiguous == of.flags.c_contiguous and its.flags.f_contiguous == of.flags.f_contiguous
        assert its.data.ptr is Operand.B
        assert its.reshape(-1).strides == of.reshape(-1).strides
        if of.size > max(of.shape):
            assert its.strides == of.strides


def test_values_are_the_plans_own_until_others_are_given(device, launched):
    p = planned(device, launched, in_place=True)
    values = Array(Dense(0x70000, (p.a.nnz,), (1,), "float32", 0))
    p(b(), out())
    p(b(), out(), values=values)
    assert [given[5] for given in launched] == [VALUES_AT, 0x70000]
    short = Array(values.at._replace(shape=(3,)))
    says(["(3,)", f"({p.a.nnz},)"], lambda: p(b(), out(), values=short))
    fixed = planned(device, launched)
    says(["in_place=True"], lambda: fixed(b(), out(), values=values))


def test_a_stream_of_the_call_comes_before_the_plans_and_that_before_the_current(device, launched):
    p = planned(device, launched)
    p(b(), out())
    p.stream = SimpleNamespace(ptr=5)
    p(b(), out())
    p(b(), out(), stream=6)
    assert [given[0] for given in launched] == [77, 5, 6]


def test_a_call_waits_for_the_one_before(device, launched, driver):
    """On a stream of the same address, too, which may be another; the default stream is one and the same."""
    p = planned(device, launched)
    for stream in (0, 0, 5, 5, 6, 0):
        p(b(), out(), stream=stream)
    assert driver.waits == [(5, 0), (5, 5), (6, 5), (0, 6)]


def test_calls_in_a_graph_share_buffers_with_no_others(device, launched, driver, memory):
    p = planned(device, launched)
    p(b(order="F"), out(), stream=5)  # with a copy of B
    driver.captures |= {7: 1, 8: 1, 9: 2}
    for stream in (7, 8, 9):
        p(b(order="F"), out(), stream=stream)
    p(b(order="F"), out(), stream=5)
    copies = [given[6] for given in launched if given[2] == "kernel"]
    eager, first, same, second, again = copies
    assert eager == again and first == same and len({eager, first, second}) == 3
    assert driver.waits == [(8, 7), (5, 5)], "streams of one graph are joined, and nothing else is"


@pytest.mark.parametrize("how", ["captures", "gone"])
def test_whatever_became_of_a_stream_its_last_call_is_waited_for(how, device, launched, driver):
    p = planned(device, launched)
    p(b(), out(), stream=5)
    getattr(driver, how).update({5: 1} if how == "captures" else {5})
    p(b(), out(), stream=6)
    assert driver.waits == [(6, 5)]


def test_a_stream_that_nobody_can_wait_for_keeps_its_buffers(device, launched, driver, memory):
    p = planned(device, launched)
    p(b(order="F"), out(), stream=0)
    driver.refuses.add(0)  # as where another stream is captured
    p(b(order="F"), out(), stream=6)
    before, now = [given[6] for given in launched if given[2] == "kernel"]
    assert before != now and not driver.waits
    driver.refuses.add(6)
    says(["0x6", "no event"], lambda: p(b(), out(), stream=6))


def test_a_new_out_is_of_the_plans_order_on_the_calls_stream(device, launched, monkeypatch):
    made = []
    monkeypatch.setattr(dense, "empty", lambda *x: made.append(x) or out())
    p = planned(device, launched)
    given = b()
    p(given)
    p(given, stream=6)
    assert [x[1:] for x in made] == [
        ((M, N), "float32", "C", 0, None),
        ((M, N), "float32", "C", 0, 6),
    ]
    says(["beta is 1.0", "no out"], lambda: p(given, beta=1.0))


def test_another_current_gpu_is_current_again_after_a_call(device, launched, monkeypatch):
    order = []
    device.set_current = lambda: order.append(0)
    monkeypatch.setattr(current, "now", lambda: 3)
    monkeypatch.setattr(current.gpu, "open_device", order.append)
    planned(device, launched)(b(), out())
    assert order == [0, 3] and launched


@pytest.mark.parametrize(("before", "after"), [(None, []), (1, []), (0, [0])])
def test_a_gpu_is_current_meanwhile_and_the_one_before_afterwards(before, after, monkeypatch):
    opened = []
    monkeypatch.setattr(current, "now", lambda: before)
    monkeypatch.setattr(current.gpu, "current_device", lambda ordinal: ordinal)
    monkeypatch.setattr(current.gpu, "open_device", opened.append)
    with pytest.raises(KeyError), current.opened(1) as ordinal:
        assert ordinal == 1 and not opened
        raise KeyError
    assert opened == after


# ---------------------------------------------------------------- around the kernel


@pytest.fixture
def memory(monkeypatch):
    """Allocations of buffers, by their bytes."""
    made = []

    def zeros(mine, size):
        made.append(size)
        return 0x100000 * len(made)

    monkeypatch.setattr(buffers, "zeros", zeros)
    return made


def names(launched) -> list[str]:
    return [given[2] for given in launched]


@pytest.mark.parametrize(
    ("given", "to", "scale", "expected"),
    [
        (b(), out(), {}, ["kernel"]),
        (b(), out(), {"alpha": 2.0}, ["kernel", f"combine {M}"]),
        (b(), out(), {"beta": 1.0}, ["kernel", f"combine {M}"]),
        (b(order="F"), out(), {}, [f"combine {K}", "kernel"]),
        (b(), out(order="F"), {}, ["kernel", f"combine {M}"]),
        (b(0x10008), out(), {}, [f"combine {K}", "kernel"]),
        (b(order="F"), out(order="F"), {"alpha": 2.0, "beta": 1.0}, [f"combine {K}", "kernel", f"combine {M}"]),
    ],
)
def test_small_kernels_come_only_where_they_are_needed(given, to, scale, expected, device, launched, memory):
    p = planned(device, launched)
    for _ in range(2):
        launched.clear()
        assert p(given, to, **scale) is to
        assert names(launched) == expected
    staged = (expected[0] != "kernel") + (to.at.strides != (N, 1) or "beta" in scale)
    assert len(memory) == staged, "allocated once, if at all"


def test_beta_adds_out_to_a_product_elsewhere(device, launched, memory):
    planned(device, launched)(b(), out(), alpha=3.0, beta=0.5)
    kernel, add = launched
    assert kernel[-1] == 0x100000 == add[5] and add[8] == 0x20000 and add[11:] == (3.0, 0.5)
    assert memory == [M * N * 4]


def test_a_matrix_of_zeros_launches_no_kernel_but_writes_out(device, launched, memory):
    p = planned(device, launched)
    p._steps = []
    p(b(), out())
    p(b(), out(), beta=2.0)
    assert names(launched) == [f"combine {M}"] * 2
    assert launched[0][5] == 0x100000 and [x[11:] for x in launched] == [(1.0, 0.0), (1.0, 2.0)]


@pytest.mark.parametrize(
    ("given", "to", "words"),
    [
        (array(0x10000, K + 1, N), out(), ["B is 11 x 4", "10 x 4"]),
        (b(), array(0x20000, M, N + 1), ["out is 6 x 5", "6 x 4"]),
        (b(dtype="float16"), out(), ["B is float16", "float32"]),
        (b(), out(dtype="float64"), ["out is float64"]),
        (b(), out(dtype="int32"), ["out is int32", "float32: convert it"]),
        (b(gpu=1), out(), ["B is on GPU 1", "GPU 0"]),
        (b(), strided(0, 1), ["elements of out share memory", "(0, 1)"]),
        (b(), strided(2, 1), ["elements of out share memory", "(2, 1)"]),
        (b(), strided(N, 1, readonly=True), ["out may not be written"]),
        (b(0x20000), out(), ["out is B itself"]),
        (b(0x20010), out(), ["out overlaps B in memory"]),
        (b(0x20000 - 4 * K * N + 4), out(), ["out overlaps B in memory"]),
        (b(0x20010, order="F"), out(), ["out overlaps B in memory"]),
        (wide(0x20000 - 16, K), wide(0x20000, M, gap=3), ["out overlaps B in memory"]),
        (b(0x20000 + 4 * M * N - 4), out(), ["out overlaps B in memory"]),
    ],
)
def test_what_does_not_fit_the_plan_is_one_sentence(given, to, words, device, launched):
    says(words, lambda: planned(device, launched)(given, to))
    assert not launched


@pytest.mark.parametrize(
    ("given", "to"),
    [
        (b(0x20000 - 4 * K * N), out()),
        (b(0x20000 + 4 * M * N), out()),
        (wide(0x20000 - 16, K), wide(0x20000, M)),  # columns beside each other
    ],
)
def test_b_and_out_may_lie_side_by_side(given, to, device, launched, memory):
    p = planned(device, launched)
    for _ in range(2):
        assert p(given, to) is to and launched


def test_a_vector_is_a_column(device, launched, monkeypatch):
    p = planned(device, launched)
    p.n = 1
    x = Array(Dense(0x10000, (K,), (1,), "float32", 0))
    y = Array(Dense(0x20000, (M,), (1,), "float32", 0))
    shapes = []
    monkeypatch.setattr(dense, "empty", lambda like, shape, *_: shapes.append(shape) or y)
    assert p(x) is y and shapes == [(M,)] and names(launched) == ["kernel"]


# ---------------------------------------------------------------- on disk

MATRICES = [
    csr.from_scipy(sp.random(20, 30, 0.2, format="csr", dtype=np.float32, random_state=0)),
    bcsr.random(64, 96, 0.5, 0, block=(16, 32)),
    two_four.random(16, 32, "float16", 0),
    nm.random(64, 32, 2, 8, 4, 0),
]


def written(a, device, path, **options):
    made = plans.Plan(routes.Route("casper_sparse", "in_place", a, "float32", "C", "F"), 24, "float32", "tf32", device)
    made._config = "any_n"
    made.save(path)
    return made


@pytest.mark.parametrize("a", MATRICES, ids=lambda a: type(a).__name__)
def test_a_saved_matrix_is_the_same_to_the_last_bit(a, device, tmp_path):
    path = tmp_path / "some.plan"
    written(a, device, path)
    about, same = saved.read(path)
    assert type(same) is type(a)
    for f in fields(a):
        left, right = getattr(a, f.name), getattr(same, f.name)
        assert type(left) is type(right) and np.array_equal(left, right)
    assert {key: about[key] for key in ("n", "dtype", "accuracy", "b_order", "out_order")} == {
        "n": 24,
        "dtype": "float32",
        "accuracy": "tf32",
        "b_order": "C",
        "out_order": "F",
    }


def changed(path, resigned: bool = True, **given):
    """The file with other arrays, or other words in what it says of itself; resigned: with the right digest of them."""
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays.pop("about")))
    for name, x in given.items():
        (arrays if name in arrays else about)[name] = x
    if resigned:
        about["sha256"] = saved._digest(about, arrays)
    with path.open("wb") as file:
        np.savez(file, about=np.array(json.dumps(about)), **arrays)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"val": np.zeros(3, np.float32), "resigned": False}, ["damaged"]),
        ({"choice": "scalar", "resigned": False}, ["damaged"]),
        ({"n": 25, "resigned": False}, ["damaged"]),
        ({"version": 1}, ["version 1", "2"]),
        ({"version": "1"}, ["no saved plan", "version"]),
        ({"format": "Ell"}, ["'Ell'"]),
        ({"format": "Bcsr"}, ["'Bcsr'", "no format"]),
        ({"n": -1}, ["n of some.plan is -1"]),
        ({"dtype": "int8"}, ["int8"]),
        ({"dtype": "bfloat16"}, ["'tf32'", "bfloat16"]),
        ({"b_order": "X"}, ["b_order", "'X'"]),
    ],
)
def test_a_file_that_is_no_plan_is_refused(given, words, device, tmp_path):
    path = tmp_path / "some.plan"
    written(MATRICES[0], device, path)
    changed(path, **given)
    says(words, lambda: saved.read(path))


def nested(path):
    with path.open("wb") as file:
        np.savez(file, about=np.array("[" * 100_000))


def packed(path):
    with np.load(path) as file:
        arrays = dict(file)
    with path.open("wb") as file:
        np.savez_compressed(file, **arrays)


@pytest.mark.parametrize(
    "damage",
    [
        nested,
        packed,
        lambda path: path.write_bytes(path.read_bytes()[:-40]),
    ],
)
def test_whatever_is_wrong_with_a_file_is_one_sentence(damage, device, tmp_path):
    path = tmp_path / "some.plan"
    written(MATRICES[0], device, path)
    damage(path)
    says(["some.plan is no saved plan"], lambda: saved.read(path))


def test_a_plan_that_cannot_be_written_leaves_the_one_before(device, tmp_path, monkeypatch):
    path = tmp_path / "some.plan"
    written(MATRICES[0], device, path)
    before = path.read_bytes()

    def full(file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(saved.np, "savez", full)
    with pytest.raises(OSError, match="No space left"):
        written(MATRICES[1], device, path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("room", "variant", "right", "choice"),
    [("casper_sparse", "in_place", "split_rows", x) for x in ("scalar", "union rows=8", "any_n x", "shared_tiles")]
    + [
        ("async_sparse", "auto_fp32", "union rows=8", x)
        for x in ("union __class__=x", "union rows", "union rows=8 rows=8=", "union teeth=3", "nothing rows=8", "")
    ],
)
def test_a_choice_that_nobody_would_make_is_not_taken(room, variant, right, choice, device):
    way = routes.Route(room, variant, MATRICES[0], "float32")
    p = routes.multiplication(way, 24)
    assert routes.text(way, routes.written(way, right, p, device)).startswith(right)
    assert routes.written(way, choice, p, device) is None


@pytest.mark.parametrize("text", [b"", b"PK\x03\x04 no zip", b"a,b\n1,2\n"])
def test_any_other_file_is_refused(text, tmp_path):
    path = tmp_path / "other.npz"
    path.write_bytes(text)
    says(["other.npz is no saved plan"], lambda: saved.read(path))
    with pytest.raises(FileNotFoundError):
        saved.read(tmp_path / "nowhere.npz")


@pytest.mark.parametrize(
    ("other", "choice"),
    [({}, "any_n"), ({"name": "NVIDIA H100"}, ""), ({"nvrtc": "1.0"}, ""), ({"kernels": "0" * 12}, "")],
)
def test_a_choice_holds_on_the_same_gpu_with_the_same_compiler_and_kernels(
    other, choice, device, tmp_path, monkeypatch
):
    path = tmp_path / "some.plan"
    way = routes.Route("casper_sparse", "in_place", MATRICES[0], "float32")
    made = plans.Plan(way, 24, "float32", "fp32", device)
    made._config = "any_n"
    made.save(path)
    changed(path, **{x: y for x, y in other.items() if x != "name"})
    device.name = other.get("name", device.name)
    monkeypatch.setattr(current.gpu, "open_device", lambda ordinal: device)
    monkeypatch.setattr(formats, "to_device", lambda x: x)
    calls = []
    monkeypatch.setattr(plans, "built", lambda *given: calls.append(given))
    monkeypatch.setattr(routes, "route", lambda *_, **__: way)
    saved.load_plan(path)
    assert calls[0][1:4] == (24, "float32", "fp32") and calls[0][6] == choice


# ---------------------------------------------------------------- before a GPU is looked for


def test_wrong_arguments_are_refused_before_a_gpu_is_looked_for(monkeypatch):
    monkeypatch.setattr(current.gpu, "open_device", lambda _: pytest.fail("looked for a GPU"))
    a = sp.eye(4, format="csr", dtype=np.float32)
    for words, options in (
        (["n is -1"], {"n": -1}),
        (["order is 'K'"], {"n": 2, "order": "K"}),
        (["out_order is 'K'"], {"n": 2, "out_order": "K"}),
        (["B is int8"], {"n": 2, "dtype": "int8"}),
        (["'fp8'"], {"n": 2, "accuracy": "fp8"}),
        (["'fp32'", "float16"], {"n": 2, "accuracy": "fp32", "dtype": "float16"}),
    ):
        says(words, lambda options=options: kernels.plan(a, **options))


def test_without_a_gpu_or_cupy_a_plan_says_so_in_one_sentence(monkeypatch):
    import sys

    import cuda.core

    a = sp.eye(4, format="csr", dtype=np.float32)

    def fails(ordinal):
        raise RuntimeError("no device here.\nand a trace")

    monkeypatch.setattr(cuda.core, "Device", fails)
    with pytest.raises(kernels.NoGpu, match=r"^GPU \d cannot be used \(no device here\): ") as caught:
        kernels.plan(a, 2)
    assert "\n" not in str(caught.value)
    gpu = SimpleNamespace(set_current=lambda: None, sync=lambda: None, device_id=0)
    monkeypatch.setattr(cuda.core, "Device", lambda ordinal: gpu)
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(kernels.NoGpu, match="CuPy, which is not installed here: install cupy-cuda13x"):
        kernels.plan(a, 2)


def test_the_gpu_of_a_is_the_one_to_plan_on(monkeypatch):
    monkeypatch.setattr(current, "now", lambda: 4)
    assert current.ordinal_for(sp.eye(3)) == current.ordinal_for(np.zeros(3)) == 4
    cupys = SimpleNamespace(device=SimpleNamespace(id=2))
    torchs = SimpleNamespace(device=SimpleNamespace(index=1, type="cuda"))
    assert current.ordinal_for(cupys) == current.ordinal_for(SimpleNamespace(val=cupys)) == 2
    assert current.ordinal_for(torchs) == 1
    assert current.ordinal_for(SimpleNamespace(device=SimpleNamespace(index=0, type="cpu"))) == 4
    monkeypatch.setattr(current, "now", lambda: None)
    assert current.ordinal_for(sp.eye(3)) == 0
