"""A plan without a GPU: launches are NumPy's, on memory of the host; what it waits for, refuses, keeps on disk."""

import ctypes
import itertools
import json
from dataclasses import fields, replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import racing
import scipy.sparse as sp
from refused import refused, says

import kernels
from kernels import formats, tma, workspace
from kernels.async_sparse import windows
from kernels.contract import Launch, Operand, Slot
from kernels.formats import bcsr, csr, nm, two_four
from kernels.library import current, dense, plans, routes
from kernels.library.dense import Dense
from kernels.library.plans import SCRATCH

M, K, N = 6, 10, 4
A = csr.from_scipy(sp.random(M, K, 0.5, format="csr", random_state=0, data_rvs=lambda n: np.arange(1, n + 1)))
WAY, CONFIG = routes.Route("async_sparse", "in_place", "float32", orders=("CF",), a=A), windows.Union(1)
CURRENT = 77  # address of the current stream


def memory_at(x: Dense) -> np.ndarray:
    """The array that lies at a place of the host's memory."""
    first, past = dense.extent(x)
    whole = (ctypes.c_byte * (past - first)).from_address(x.ptr + first)
    return np.ndarray(x.shape, x.dtype, whole, -first, tuple(4 * step for step in x.strides))


def at(address: int, rows: int, columns: int, order: str) -> np.ndarray:
    """A matrix without gaps at an address."""
    return memory_at(Dense(address, (rows, columns), (columns, 1) if order == "C" else (1, rows), "float32", 0))


def described(x, name: str = "") -> Dense:
    """Of an array of NumPy's, as if it were on GPU 0; a `Dense` stands for itself."""
    if isinstance(x, Dense):
        return x
    return Dense(x.ctypes.data, x.shape, tuple(step // x.itemsize for step in x.strides), x.dtype.name, 0)


@pytest.fixture
def device(monkeypatch):
    """A GPU 0 that is not there; `combined` lists the streams of the small kernels around a product."""
    made = SimpleNamespace(**vars(racing.H200), combined=[])

    def combine(x, y, alpha, beta, device, stream):
        made.combined.append(stream)
        to = memory_at(y)
        to[...] = np.float32(alpha) * memory_at(x) + (np.float32(beta) * to if beta else 0)

    def empty(like, shape, dtype, order, device, stream):
        made.empty = shape, dtype, order, device, stream
        return np.full(shape, np.nan, dtype, order)

    for where, name, what in (
        (dense, "describe", described),
        (dense, "place", lambda x, name: (described(x).ptr, described(x)[1:])),
        (dense, "current", lambda like, gpu: CURRENT),
        (workspace, "stream_at", lambda address, gpu: address),
        (dense, "combine", combine),
        (dense, "empty", empty),
        (current, "now", lambda: 0),
    ):
        monkeypatch.setattr(where, name, what)
    return made


def planned(device, *, orders: str = "CC", n: int = N, in_place: bool = False, arguments=(), a=A) -> plans.Plan:
    """A plan whose kernel multiplies on the host; its `launched` lists (stream, arguments of the launch).

    arguments: what the kernel has besides the addresses of values, B and out.
    """
    values = a.val.copy()
    if in_place:
        values = SimpleNamespace(data=SimpleNamespace(ptr=values.ctypes.data), shape=values.shape, keep=values)
    way = replace(WAY, a=replace(a, val=values), orders=(orders,), in_place=in_place)
    own = Operand.VALUES if in_place else values.ctypes.data
    bound = Launch("", [("kernel", "grid", (own, Operand.B, Operand.OUT, *arguments))], None)
    p = plans.Plan(way, n, "float32", "fp32", device, config=CONFIG, bound=bound)
    p.launched = []

    def launch(flow, config, kernel, values, b, out, *more):
        p.launched.append((flow, (values, b, out, *more)))
        numbers = at(values, 1, a.nnz, "C")[0]
        at(out, a.m, n, orders[1])[...] = formats.to_dense(replace(a, val=numbers)) @ at(b, a.k, n, orders[0])

    p._enqueue = launch
    return p


def laid(x: np.ndarray, how: str) -> np.ndarray:
    """The same numbers in a larger array of NaN, which begins at a multiple of 16 bytes: along rows or columns, with
    gaps, backwards, or 4 bytes further."""
    memory = np.full(8 * x.size + 64, np.nan, np.float32)
    memory = memory[-memory.ctypes.data % 16 // 4 :]
    rows, columns = x.shape
    made = {
        "C": lambda: memory[: x.size].reshape(x.shape),
        "F": lambda: memory[: x.size].reshape(x.shape[::-1]).T,
        "gaps": lambda: memory[: 6 * x.size].reshape(2 * rows, 3 * columns)[::2, ::3],
        "backwards": lambda: memory[: x.size].reshape(x.shape)[::-1],
        "odd": lambda: memory[1 : x.size + 1].reshape(x.shape),
    }[how]()
    made[...] = x
    return made


def whole(x: np.ndarray) -> np.ndarray:
    """The memory that an array of `laid` is a part of."""
    return whole(x.base) if isinstance(x.base, np.ndarray) else x


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def b(**how) -> np.ndarray:
    return laid(numbers(K, N), how.get("how", "C"))


def out(how: str = "C") -> np.ndarray:
    return laid(numbers(M, N, seed=1), how)


# ---------------------------------------------------------------- products


@pytest.mark.parametrize("n", [N, 1])
@pytest.mark.parametrize("orders", ["CC", "FF", "FC"])
@pytest.mark.parametrize(("of_b", "of_out"), list(itertools.product(("C", "F", "gaps", "backwards", "odd"), repeat=2)))
def test_a_call_is_the_product_however_b_and_out_lie(of_b, of_out, orders, n, device):
    """Small kernels come only where they are needed, what lies between is left alone, and the second call is alike."""
    p, right = planned(device, orders=orders, n=n), formats.to_dense(A) @ numbers(K, n)
    for alpha, beta in ((1, 0), (2.0, 0), (1, 1.0), (-0.5, 0.25)):
        x = laid(numbers(K, n), of_b)
        before = not dense.is_laid(described(x), orders[0]) or x.ctypes.data % 16 != 0
        sizes = set()
        for _ in range(2):
            y = laid(numbers(M, n, seed=1) if beta else np.full((M, n), np.nan), of_out)
            ready = dense.is_laid(described(y), orders[1]) and not y.ctypes.data % 16
            p.launched.clear(), device.combined.clear()
            assert p(x, y, alpha=alpha, beta=beta, stream=5) is y
            assert np.array_equal(y, alpha * right + beta * numbers(M, n, seed=1)), (alpha, beta)
            assert np.isnan(whole(y)).sum() == whole(y).size - y.size and np.array_equal(x, numbers(K, n))
            after = not ready or alpha != 1 or beta != 0
            assert device.combined == [5] * (before + after) and [flow for flow, _ in p.launched] == [5]
            sizes.add(len(p._buffers.keep))
        assert len(sizes) == 1, "what is allocated is kept"


@pytest.mark.parametrize("orders", ["CC", "FF", "FC"])
@pytest.mark.parametrize("stored", [(0, 1, 2), (0, 2, 1), (1, 0, 2)], ids=str)
def test_a_batch_is_multiplied_at_once_where_it_is_as_long_as_the_plan(orders, stored, device):
    """And B is read where it lies, if the batch lies as columns of the plan do."""
    b = np.ascontiguousarray(numbers(2, K * N).reshape(2, K, N).transpose(stored)).transpose(np.argsort(stored))
    right = formats.to_dense(A) @ b
    for columns, launches in ((2 * N, 1), (N, 2)):
        p = planned(device, orders=orders, n=columns)
        assert np.array_equal(p.batched(b), right) and len(p.launched) == launches
        as_it_lies = {"C": (1, 0, 2), "F": (0, 2, 1)}[orders[0]] == stored
        assert launches == 2 or not as_it_lies or p.launched[0][1][1] == b.ctypes.data
    says(["2 times", "for 5 columns"], lambda: planned(device, n=5).batched(b))
    says(["2 dimensions"], lambda: p.batched(b[0]))


def test_x_times_a_plan_of_the_transpose_reads_x_where_it_lies(device):
    p, x = planned(device, orders="FC"), laid(numbers(N, K), "C")
    says(["x · A", "transpose=True"], lambda: x @ p)
    p.transposed = True
    assert np.array_equal(x @ p, (formats.to_dense(A) @ x.T).T)
    assert p.launched[0][1][1] == x.ctypes.data and len(p.launched) == 1


@pytest.mark.parametrize("shape", [(M, N), (0, N), (M, 0)])
def test_a_matrix_of_zeros_launches_no_kernel_but_writes_out(shape, device):
    p = planned(device)
    p._steps, p.m, p.n = [], *shape
    x, y = np.zeros((K, shape[1]), np.float32), out()[: shape[0], : shape[1]].copy()
    for beta in (2.0, 0.0):
        right = beta * y
        assert p(x, y, beta=beta) is y and np.array_equal(y, right) and not p.launched
    assert y.size or not device.combined and not p._buffers.keep


def test_a_new_out_is_of_the_plans_order_on_the_stream_of_the_call_or_else_of_the_plan(device):
    p, right = planned(device, orders="CF"), formats.to_dense(A) @ b()
    for own, given, stream in ((None, None, None), (None, 6, 6), (SimpleNamespace(ptr=5), None, 5), (5, 6, 6)):
        p.stream = own
        assert np.array_equal(p(b(), stream=given), right)
        assert device.empty == ((M, N), "float32", "F", 0, stream) and p.launched[-1][0] == (stream or CURRENT)
    says(["beta is 1.0", "no out"], lambda: p(b(), beta=1.0))
    p = planned(device, n=1)
    assert np.array_equal(p(numbers(K)), formats.to_dense(A) @ numbers(K)), "a vector is a column"


def test_values_are_the_plans_own_until_others_are_given(device):
    p, others = planned(device, in_place=True), numbers(A.nnz, seed=2)
    for values in (None, others, None):
        right = formats.to_dense(A if values is None else replace(A, val=values)) @ b()
        assert np.array_equal(p(b(), values=values), right)
    says(["(3,)", f"({A.nnz},)"], lambda: p(b(), out(), values=others[:3]))
    for wrong in (others.astype("f8"), described(others)._replace(device=1), np.repeat(others, 2)[::2]):
        says(["values are", "contiguous float32"], lambda wrong=wrong: p(b(), values=wrong))
    two = csr.from_scipy(sp.csr_array((np.ones(2, np.float32), ([0, 1], [2, 3])), shape=(M, K)))
    says(["contiguous"], lambda: planned(device, in_place=True, a=two)(b(), values=numbers(4)[::2]))
    says(["in_place=True"], lambda: planned(device)(b(), out(), values=others))


# ---------------------------------------------------------------- addresses


def test_only_what_is_named_changes_and_the_same_arrays_are_not_laid_out_again(device, monkeypatch):
    p = planned(device, arguments=(np.int32(Operand.OUT), 0, int(Operand.OUT), np.float32(2.5)))
    x, y, z = b(), out(), out()
    p(x, y), p(x, z), p(x, y)
    monkeypatch.setattr(plans.Step, "at", lambda *_: pytest.fail("laid out again"))
    p(x, y)
    first, second, *again = (given for _, given in p.launched)
    assert again == [first] * 2 and first[1:3] == (x.ctypes.data, y.ctypes.data) and first[3:] == (16, 0, 16, 2.5)
    assert second == (*first[:2], z.ctypes.data, *first[3:])


def test_scratch_is_the_buffers_of_a_call(device):
    """A graph's launches have their own."""
    made = [Slot(0x1000, (8,), "uint8"), Slot(0x2000, (0,), "uint8"), Slot(0x3000, (4,), "float32")]
    mapped = tma.Mapped(0x3000, (4, 4), (16, 4), "<f4", (4, 4))
    bound = Launch("", [("kernel", "grid", (0x1000, 0x2000, np.int64(0x1000), 0))], None, scratch=tuple(made))
    bound.named = [("kernel", "grid", (*bound.steps[0][2][:3], mapped))]
    p = plans.Plan(WAY, N, "float32", "fp32", device, config=CONFIG, bound=bound)
    assert p._sizes == (8, 16) and p._buffers.scratch == (0x1000, 0x3000)
    assert p._steps[0].places == [(0, SCRATCH, None), (3, SCRATCH + 1, mapped)]


def test_tensor_maps_are_encoded_for_each_array_once_and_forgotten(device, monkeypatch):
    encoded = []
    monkeypatch.setattr(tma, "MOST_KEPT", 64)
    monkeypatch.setattr(tma, "encoded", lambda said: encoded.append(said) or said.address)
    maps = [tma.Mapped(where, (64, 64), (128, 2), "<u2", (8, 64), 128) for where in (0x9000, Operand.B, Operand.OUT)]
    p = planned(device, arguments=maps)
    arrays, y = [b() for _ in range(500)], out()
    for x in (*arrays[:2], *arrays):
        p(x, y)
        assert p.launched[-1][1][3:] == (0x9000, x.ctypes.data, y.ctypes.data)
    assert len(encoded) <= 1 + 502 + 10 and 0 < len(p._steps[0].maps) < 100
    assert all(replace(x, address=0) == replace(maps[0], address=0) for x in encoded)


# ---------------------------------------------------------------- streams


def waits(device, driver, *calls) -> list:
    """Who waited for whom: calls that copy B and write at a stage, of (stream, what the driver is told before)."""
    p, kept = planned(device, orders="FF"), []
    for stream, told in calls:
        for name, value in told.items():
            getattr(driver, name).update(value)
        x = numbers(K, N, seed=stream)
        y = p(laid(x, "C"), out(), stream=stream)
        assert np.array_equal(y, formats.to_dense(A) @ x)
        kept.append(p._buffers)
    driver.copies = [given[1] for _, given in p.launched]
    return driver.waits


@pytest.mark.parametrize(
    ("calls", "expected", "sets"),
    [
        ([(s, {}) for s in (0, 0, 5, 5, 6, 0)], [(5, 0), (5, 5), (6, 5), (0, 6)], "aaaaaa"),
        ([(5, {}), (6, {"captures": {5: 1}})], [(6, 5)], "aa"),
        ([(5, {}), (6, {"gone": {5}})], [(6, 5)], "aa"),
        ([(5, {}), (7, {"captures": {7: 1, 8: 1, 9: 2}}), (8, {}), (9, {}), (5, {})], [(8, 7), (5, 5)], "abbca"),
        ([(0, {}), (6, {"refuses": {0}})], [], "ab"),  # as where another stream is captured
    ],
)
def test_a_call_waits_for_the_one_before_that_has_its_buffers(calls, expected, sets, device, driver):
    """On a stream of the same address, too, which may be another, and whatever became of the other; in a graph only for
    those in it. The default stream is one and the same. Calls in a graph share buffers with no others."""
    assert waits(device, driver, *calls) == expected
    same = [[x == y for x, y in itertools.combinations(of, 2)] for of in (driver.copies, sets)]
    assert same[0] == same[1]
    driver.refuses.add(6)
    says(["0x6", "no event"], lambda: planned(device)(b(), out(), stream=6))


@pytest.mark.parametrize(("before", "order"), [(None, [1]), (1, [1]), (3, [1, 3])])
def test_a_gpu_is_current_meanwhile_and_the_one_before_afterwards(before, order, device, monkeypatch):
    """Whatever happens; a call that is on its GPU already asks for nothing."""
    opened, made, at = [], planned(device), [before]

    def become_current(ordinal: int) -> int:
        opened.append(ordinal)
        at.append(ordinal)
        return ordinal

    monkeypatch.setattr(current, "now", lambda: at[-1])
    for name in ("current_device", "open_device"):
        monkeypatch.setattr(current.gpu, name, become_current)
    with pytest.raises(KeyError), current.opened(1) as ordinal:
        assert ordinal == 1 == opened[-1]
        raise KeyError
    assert opened == order
    opened.clear()
    at.append(before)
    made(b(), out())
    assert opened == [0, before][: 1 + (before is not None)]


# ---------------------------------------------------------------- what does not fit

PLACE = np.zeros(400, np.float32)


def part(begin: int, rows: int, columns: int = N, *strides: int) -> np.ndarray:
    """A matrix from an element of one array on, row-major unless strides, in elements, say otherwise."""
    steps = [4 * step for step in strides or (columns, 1)]
    return np.lib.stride_tricks.as_strided(PLACE[begin:], (rows, columns), steps)


@pytest.mark.parametrize(
    ("given", "to", "words"),
    [
        (numbers(K + 1, N), out(), ["B is 11 x 4", "10 x 4"]),
        (numbers(K), out(), ["B is 10,", "10 x 4"]),
        (b(), numbers(M, N + 1), ["out is 6 x 5", "6 x 4"]),
        (b().astype("f2"), out(), ["B is float16", "float32"]),
        (b(), out().astype("f8"), ["out is float64"]),
        (b(), out().astype("i4"), ["out is int32", "float32: convert it"]),
        (described(b())._replace(device=1), out(), ["B is on GPU 1", "GPU 0"]),
        (b(), part(0, M, N, 0, 1), ["elements of out share memory", "(0, 1)"]),
        (b(), part(0, M, N, 2, 1), ["elements of out share memory", "(2, 1)"]),
        (b(), described(out())._replace(readonly=True), ["out may not be written"]),
        (part(200, K), part(200, M), ["out is B itself"]),
        (part(204, K), part(200, M), ["out overlaps B in memory"]),
        (part(201 - K * N, K), part(200, M), ["out overlaps B in memory"]),
        (part(204, K, N, 1, K), part(200, M), ["out overlaps B in memory"]),
        (part(196, K, N, 8, 1), part(200, M, N, 7, 1), ["out overlaps B in memory"]),
        (part(199 + M * N, K), part(200, M), ["out overlaps B in memory"]),
        (part(200 + N * (K - 1), K, N, -N, 1), part(200, M), ["out overlaps B in memory"]),
        (part(200 + N * (M + K - 1), K, N, -N, 1), part(200, M), []),
        (part(200 - N, K, N, -N, 1), part(200, M), []),
        (part(200 - K * N, K), part(200, M), []),
        (part(200 + M * N, K), part(200, M), []),
        (part(196, K, N, 8, 1), part(200, M, N, 8, 1), []),  # columns beside each other
    ],
)
def test_what_does_not_fit_the_plan_is_one_sentence(given, to, words, device):
    """No words: it does fit."""
    p = planned(device)
    if not words:
        assert p(given, to) is p(given, to) is to
    else:
        says(words, lambda: p(given, to))
        assert not p.launched and not device.combined


def test_wrong_arguments_are_refused_before_a_gpu_is_looked_for(monkeypatch):
    monkeypatch.setattr(current.gpu, "open_device", lambda _: pytest.fail("looked for a GPU"))
    for words, options in (
        (["n is -1"], {"n": -1}),
        (["order is 'K'"], {"n": 2, "order": "K"}),
        (["out_order is 'K'"], {"n": 2, "out_order": "K"}),
        (["B is int8"], {"n": 2, "dtype": "int8"}),
        (["'fp8'"], {"n": 2, "accuracy": "fp8"}),
        (["'fp32'", "float16"], {"n": 2, "accuracy": "fp32", "dtype": "float16"}),
    ):
        says(words, lambda options=options: kernels.plan(sp.eye(4, format="csr", dtype=np.float32), **options))


def test_without_a_gpu_or_cupy_a_plan_says_so_in_one_sentence(monkeypatch):
    fails = Mock(side_effect=RuntimeError("no device here.\nand a trace"))
    gpu = SimpleNamespace(set_current=lambda: None, sync=lambda: None, device_id=0)
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    for found, words in (
        (fails, r"^GPU \d cannot be used \(no device here\): "),
        (lambda _: gpu, "install cupy-cuda13x"),
    ):
        monkeypatch.setattr("cuda.core.Device", found)
        refused(words, kernels.plan, sp.eye(4, format="csr", dtype=np.float32), 2, kind=kernels.NoGpu)


def test_the_gpu_of_a_is_the_one_to_plan_on(monkeypatch):
    cupys = SimpleNamespace(device=SimpleNamespace(id=2))
    torchs, host = (
        SimpleNamespace(device=SimpleNamespace(index=i, type=kind)) for i, kind in ((1, "cuda"), (0, "cpu"))
    )
    for now, expected in ((4, 4), (None, 0)):
        monkeypatch.setattr(current, "now", lambda now=now: now)
        found = [
            current.ordinal_for(a) for a in (sp.eye(3), np.zeros(3), host, cupys, SimpleNamespace(val=cupys), torchs)
        ]
        assert found == [expected, expected, expected, 2, 2, 1]


# ---------------------------------------------------------------- on disk

MATRICES = [
    csr.from_scipy(sp.random(20, 30, 0.2, format="csr", dtype=np.float32, random_state=0)),
    bcsr.random(64, 96, 0.5, 0, block=(16, 32)),
    two_four.random(16, 32, "float16", 0),
    nm.random(64, 32, 2, 8, 4, 0),
]


def written(a, device, path):
    plans.Plan(replace(WAY, a=a), 24, "float32", "tf32", device, config=CONFIG).save(path)


@pytest.fixture
def path(device, tmp_path):
    """The file of a plan of the first matrix."""
    written(MATRICES[0], device, tmp_path / "some.plan")
    return tmp_path / "some.plan"


@pytest.mark.parametrize("a", MATRICES, ids=lambda a: type(a).__name__)
def test_a_saved_matrix_is_the_same_to_the_last_bit(a, device, path):
    written(a, device, path)
    about, same = plans.read_plan(path)
    assert type(same) is type(a)
    for f in fields(a):
        left, right = getattr(a, f.name), getattr(same, f.name)
        assert type(left) is type(right) and np.array_equal(left, right)
    assert {"n": 24, "dtype": "float32", "accuracy": "tf32", "b_order": "C", "out_order": "F"}.items() <= about.items()


def changed(path, resigned: bool = True, **given):
    """The file with other arrays, or other words in what it says of itself; resigned: with the right digest of them."""
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays.pop("about")))
    for name, x in given.items():
        (arrays if name in arrays else about)[name] = x
    if resigned:
        about["sha256"] = plans._digest(about, arrays)
    with path.open("wb") as file:
        np.savez(file, about=np.array(json.dumps(about)), **arrays)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"val": np.zeros(3, np.float32), "resigned": False}, ["damaged"]),
        ({"val": MATRICES[0].val[:, None], "resigned": False}, ["damaged"]),
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
        ({"col_idx": MATRICES[0].col_idx + 30}, ["col_idx[0]"]),
    ],
)
def test_a_file_that_is_no_plan_is_refused(given, words, path):
    changed(path, **given)
    says(words, lambda: plans.read_plan(path))


@pytest.mark.parametrize("text", [b"", b"PK\x03\x04 no zip", b"a,b\n1,2\n", "cut", "nested", "packed"])
def test_whatever_is_wrong_with_a_file_is_one_sentence(text, path):
    with np.load(path) as file:
        arrays = dict(file)
    arrays = {"about": np.array("[" * 100_000)} if text == "nested" else arrays
    text = path.read_bytes()[:-40] if text == "cut" else text
    with path.open("wb") as file:
        if isinstance(text, bytes):
            file.write(text)
        else:
            (np.savez_compressed if text == "packed" else np.savez)(file, **arrays)
    says(["some.plan is no saved plan"], lambda: plans.read_plan(path))
    refused("nowhere.npz", plans.read_plan, path.with_name("nowhere.npz"), kind=FileNotFoundError)


def test_a_plan_that_cannot_be_written_leaves_the_one_before(device, path, monkeypatch):
    before = path.read_bytes()

    def full(file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plans.np, "savez", full)
    refused("No space left", written, MATRICES[1], device, path, kind=OSError)
    assert path.read_bytes() == before and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("variant", "right", "choice"),
    [("in_place", "union rows=1", x) for x in ("union rows=8", "union rows=1 order=similar", "windows")]
    + [
        ("auto_fp32", "union rows=8", x)
        for x in ("union __class__=x", "union rows", "union rows=8 rows=8=", "union teeth=3", "nothing rows=8", "")
    ],
)
def test_a_choice_that_nobody_would_make_is_not_taken(variant, right, choice, device):
    way = routes.Route("async_sparse", variant, "float32", a=MATRICES[0])
    p = routes.multiplication(way, 24)
    assert routes.text(way, routes.written(way, right, p, device)).startswith(right)
    assert routes.written(way, choice, p, device) is None


@pytest.mark.parametrize(
    ("other", "choice"),
    [({}, "union rows=1"), ({"name": "NVIDIA H100"}, ""), ({"nvrtc": "1.0"}, ""), ({"kernels": "0" * 12}, "")],
)
def test_a_choice_holds_on_the_same_gpu_with_the_same_compiler_and_kernels(other, choice, device, path, monkeypatch):
    changed(path, **{x: y for x, y in other.items() if x != "name"})
    device.name = other.get("name", device.name)
    monkeypatch.setattr(current.gpu, "open_device", lambda ordinal: device)
    monkeypatch.setattr(formats, "to_device", lambda x: x)
    calls = []
    monkeypatch.setattr(plans, "built", lambda *given: calls.append(given))
    monkeypatch.setattr(routes, "route", lambda *_, **__: WAY)
    plans.load_plan(path)
    assert (
        calls[0][1:4] == (24, "float32", "tf32")
        and calls[0][6].startswith(choice)
        and bool(calls[0][6]) == bool(choice)
    )
