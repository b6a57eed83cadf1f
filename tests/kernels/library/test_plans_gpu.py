"""The library on a GPU: every way against float64, and what a plan promises of its calls."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import kernels
from kernels import formats, jit
from kernels.formats import bcsr, csr, half, nm, two_four, wcsr
from kernels.formats.half import Half
from kernels.formats.nm import Nm
from kernels.library import Sampled, dense

pytestmark = pytest.mark.gpu
#: The largest ‖out − right‖ / ‖right‖, by what products are made in, or by the dtype that out is rounded to.
LIMITS = {"float32": 1e-5, "tf32": 2e-3, "bfloat16": 4e-3, "float16": 1e-3}
SIZES = [(200, 320, 64), (129, 130, 33), (64, 64, 1)]


@pytest.fixture(autouse=True)
def open_gpu(device, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))  # tests' matrices are nobody's
    return device


@pytest.fixture
def hopper(device) -> bool:
    return jit.arch_of(device) == "sm_90a"


def numbers(shape, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """float32, of normal distribution, that a dtype holds."""
    x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return half.from_bits(half.to_bits(x, dtype), dtype) if dtype in half.DTYPES else x


def on_gpu(x: np.ndarray, dtype: str = "float32", order: str = "C"):
    """An array of CuPy's, or a `Half` of one."""
    import cupy

    bits = half.to_bits(x, dtype) if dtype in half.DTYPES else x
    made = cupy.asarray(np.asarray(bits, order=order), order=order)
    return Half(dtype, made) if dtype in half.DTYPES else made


def wide(x) -> np.ndarray:
    """float64 on the host."""
    x = formats.to_host(x)
    return (half.to_dense(x) if isinstance(x, Half) else np.asarray(x)).astype(np.float64)


def error(found, right: np.ndarray) -> float:
    return float(np.linalg.norm(wide(found) - right) / np.linalg.norm(right))


def scattered(m: int, k: int, density: float = 0.1, dtype: str = "float32"):
    a = sp.random(m, k, density, format="csr", random_state=1, dtype=np.float32)
    a.data = numbers(a.nnz, dtype, 2)
    return a


def of_format(kind: str, m: int, k: int):
    """(A, as float64): values that float16 or bfloat16 hold where the name says so."""
    name, _, dtype = kind.partition(" ")
    if name == "csr":
        a = csr.from_scipy(scattered(m, k, dtype=dtype or "float32"))
    elif name == "wcsr":
        a = wcsr.from_csr(scattered(m, k), dtype="float32")
    elif name == "2:4":
        a = two_four.random(m, k, dtype, 0)
    elif name == "nm":
        a = nm.random(k, m, 8, 32, 16, 0)
        if dtype:
            a = replace(a, val=half.from_bits(half.to_bits(a.val, dtype), dtype))
    else:
        a = bcsr.random(m, k, 0.6, 0, block=int(name.removeprefix("bcsr")), dtype=dtype)
    dense = formats.to_dense(a).astype(np.float64)
    return a, dense.T if isinstance(a, Nm) else dense


WAYS = [  # A, dtype of B, accuracy, limit, whether Hopper alone has it
    ("csr", "float32", None, "float32", False),
    ("csr", "float32", "tf32", "tf32", False),
    ("csr bfloat16", "bfloat16", None, "bfloat16", False),
    ("csr float16", "float16", None, "float16", False),
    ("wcsr", "float32", None, "float32", False),
    ("bcsr64 float32", "float32", None, "float32", False),
    ("bcsr64 float32", "float32", "tf32", "tf32", False),
    ("bcsr64 bfloat16", "bfloat16", None, "bfloat16", False),
    ("bcsr32 float16", "float16", None, "float16", False),
    ("2:4 bfloat16", "bfloat16", None, "bfloat16", False),
    ("2:4 float16", "float16", None, "float16", False),
    ("2:4 bfloat16", "float32", None, "float32", False),
    ("nm", "float32", None, "float32", False),
    ("nm", "float32", "tf32", "tf32", False),
    ("nm bfloat16", "bfloat16", None, "bfloat16", True),
]


@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize(("kind", "dtype", "accuracy", "limit", "only_hopper"), WAYS)
def test_every_way_is_right_for_each_array_it_is_called_with(kind, dtype, accuracy, limit, only_hopper, size, hopper):
    if only_hopper and not hopper:
        pytest.skip("has no kernel on this GPU")
    m, k, n = size
    a, right = of_format(kind, m, k)
    made = kernels.plan(a, n, dtype=dtype, accuracy=accuracy, tune=False)
    for seed in (0, 1, 2):  # other arrays, so other addresses and tensor maps
        x = numbers((k, n), dtype, seed)
        out = made(on_gpu(x, dtype))
        assert out.shape == (m, n)
        assert error(out, right @ x.astype(np.float64)) < LIMITS[limit], repr(made)


@pytest.mark.parametrize("kind", ["csr", "bcsr64 bfloat16", "bcsr64 float32", "2:4 float16", "nm"])
@pytest.mark.parametrize("planned", ["C", "F"])
@pytest.mark.parametrize(("b_order", "out_order"), ["CC", "CF", "FC", "FF"])
def test_either_memory_order_of_b_and_out(kind, planned, b_order, out_order):
    m, k, n = 192, 256, 48
    a, right = of_format(kind, m, k)
    dtype = kind.partition(" ")[2] or "float32"
    accuracy = "tf32" if kind == "bcsr64 float32" else None
    made = kernels.plan(a, n, dtype=dtype, order=planned, accuracy=accuracy, tune=False)
    x = numbers((k, n), dtype)
    y = numbers((m, n), dtype, 5)
    for alpha, beta in ((1.0, 0.0), (-0.5, 0.25), (2.0, 0.0)):
        out = on_gpu(y if beta else np.full_like(y, np.nan), dtype, out_order)
        assert made(on_gpu(x, dtype, b_order), out, alpha=alpha, beta=beta) is out
        expected = alpha * (right @ x.astype(np.float64)) + beta * y
        assert error(out, expected) < 2 * LIMITS["tf32" if accuracy else dtype], repr(made)


def test_work_is_on_the_stream_that_is_current_or_given():
    import cupy

    a, right = of_format("csr", 2000, 2000)
    made = kernels.plan(a, 64, tune=False)
    stream = cupy.cuda.Stream(non_blocking=True)
    x = numbers((2000, 64))
    with stream:
        b = on_gpu(x)
        for _ in range(20):  # B is still being made when the plan is called
            b = b + 0
        outs = [made(b), made(b, stream=stream), made(b, stream=stream.ptr)]
    stream.synchronize()
    assert all(error(out, right @ x.astype(np.float64)) < LIMITS["float32"] for out in outs)


def test_arrays_with_gaps_or_at_odd_places():
    import cupy

    a, right = of_format("csr", 100, 96)
    made = kernels.plan(a, 40, tune=False)
    x = numbers((96, 40))
    big, flat = cupy.zeros((96, 100), np.float32), cupy.zeros(96 * 40 + 1, np.float32)
    places = big[:, 5:45], big[:, 5:85:2], flat[1:].reshape(96, 40)
    for b in places:
        b[...] = cupy.asarray(x)
        target = cupy.full((100, 90), np.nan, np.float32)
        out = made(b, target[:, 3:83:2])
        assert error(out, right @ x.astype(np.float64)) < LIMITS["float32"]
        assert bool(cupy.isnan(target[:, 4:83:2]).all()), "what lies between is left alone"


def test_spmm_once():
    a = scattered(150, 120)
    x = numbers((120, 30))
    right = a.astype(np.float64) @ x
    for order in "CF":
        assert error(kernels.spmm(a, on_gpu(x, order=order)), right) < LIMITS["float32"]
    out = on_gpu(np.ones((150, 30), np.float32))
    assert kernels.spmm(a, on_gpu(x), alpha=2.0, beta=1.0, out=out) is out
    assert error(out, 2 * right + 1) < LIMITS["float32"]


def test_values_change_in_place_and_with_a_call():
    import cupy

    a = scattered(150, 120)
    x = numbers((120, 30))
    made = kernels.plan(a, 30, in_place=True)
    b = on_gpu(x)
    values = cupy.asarray(numbers(a.nnz, seed=9))
    other = a.copy()
    other.data = values.get()
    assert error(made(b), a.astype(np.float64) @ x) < LIMITS["float32"]
    assert error(made(b, values=values), other.astype(np.float64) @ x) < LIMITS["float32"]
    made.a.val[...] = values
    assert error(made(b), other.astype(np.float64) @ x) < LIMITS["float32"]


def test_nothing_to_multiply():
    import cupy

    b, out = on_gpu(numbers((50, 8))), on_gpu(numbers((40, 8)))
    before = out.copy()
    empty = kernels.plan(sp.csr_array((40, 50), dtype=np.float32), 8)
    assert not empty(b).any()
    empty(b, out, beta=2.0)
    assert bool((out == 2 * before).all())
    assert kernels.plan(sp.csr_array((0, 50), dtype=np.float32), 8)(b).shape == (0, 8)
    none = kernels.plan(scattered(40, 50), 0)
    assert none(cupy.zeros((50, 0), np.float32)).shape == (40, 0)


@pytest.mark.parametrize("n", [1, 30, 64, 127])
def test_a_product_sampled_at_the_places_of_a_matrix(n, device):
    a = csr.to_device(csr.from_scipy(scattered(150, 120)))
    g, b = numbers((150, n)), numbers((120, n), seed=1)
    found = Sampled(a, device)(on_gpu(g), on_gpu(b))
    host = csr.to_host(a)
    rows = csr.rows(host)
    right = (g[rows].astype(np.float64) * b[host.col_idx]).sum(axis=1)
    assert error(found, right) < LIMITS["float32"]


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["csr", "bcsr64 bfloat16", "2:4 bfloat16", "nm"])
def test_a_call_costs_the_host_less_than_ten_microseconds(kind, device):
    """Or, on a host where the launches alone take most of that, four more than they."""
    a, _ = of_format(kind, 128, 128)
    dtype = kind.partition(" ")[2] or "float32"
    made = kernels.plan(a, 128, dtype=dtype, tune=False)
    b = on_gpu(numbers((128, 128), dtype), dtype)
    out = made(b)
    flow = dense.opened(dense.current(b, 0), device)

    def launches() -> None:
        for config, kernel, arguments in made._buffers.ready:
            made._enqueue(flow, config, kernel, *arguments)

    def host_us(call) -> float:
        spent = []
        for _ in range(50):
            device.sync()  # fewer launches wait than the queue holds
            begin = time.perf_counter()
            for _ in range(100):
                call()
            spent.append((time.perf_counter() - begin) / 100 * 1e6)
        device.sync()
        return min(spent)

    call, alone = host_us(lambda: made(b, out)), host_us(launches)
    assert call < max(10, alone + 4), f"{call:.1f} us, {alone:.1f} of them for {len(made._steps)} launches"


# ---------------------------------------------------------------- PyTorch


@pytest.fixture
def torch():
    found = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("PyTorch has no GPU")
    return found


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_tensors_of_pytorch(dtype, torch):
    kind = getattr(torch, dtype)
    w = torch.tensor(bcsr.to_dense(bcsr.random(128, 192, 0.5, 0, dtype="bfloat16"))).cuda().to(kind)
    x = torch.randn(192, 40, device="cuda").to(kind)
    a = w.to_sparse_bsr((64, 64)) if dtype != "float32" else w.to_sparse_csr()
    made = kernels.plan(a, 40, accuracy=None, tune=False)
    assert made.dtype == dtype
    right = (w.double() @ x.double()).cpu().numpy()
    for given in (x, x.t().contiguous().t()):
        found = made(given)
        assert found.dtype == kind and found.is_cuda
        assert error(found.double().cpu().numpy(), right) < LIMITS[dtype]


def test_pytorchs_semi_structured_tensors(torch):
    from torch.sparse import to_sparse_semi_structured

    w = torch.tensor(formats.to_dense(two_four.random(128, 256, "float16", 0))).cuda().half()
    try:
        a = to_sparse_semi_structured(w)
    except (RuntimeError, NotImplementedError) as why:
        pytest.skip(f"PyTorch makes none here: {why}")
    x = torch.randn(256, 64, device="cuda").half()
    made = kernels.plan(a, 64, tune=False)
    right = (w.double() @ x.double()).cpu().numpy()
    assert made.room == "tensor_core_24"
    assert error(made(x).double().cpu().numpy(), right) < LIMITS["float16"]
