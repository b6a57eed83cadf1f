"""The library on a GPU: every way against float64, and what a plan promises of its calls."""

import time

import numpy as np
import pytest
import scipy.sparse as sp
from given import HOPPERS, LIMITS, WAYS, error, left_alone, numbers, of_format, on_gpu, planned, poisoned, scattered

import kernels
from kernels import formats, jit, workspace
from kernels.formats import bcsr, csr, two_four
from kernels.library import Sampled, dense

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("open_gpu")]
SIZES = [(200, 320, 64, "C"), (129, 130, 33, "F"), (257, 515, 130, "C"), (64, 64, 1, "F")]
#: The GPU that is here; taken for one without Hopper's instructions; for one with a GeForce's shared memory.
TARGETS = ("", "portable", "101376")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("m", "k", "n", "order"), SIZES)
@pytest.mark.parametrize(("kind", "dtype", "accuracy", "limit"), WAYS)
def test_every_way_is_right_for_each_array_it_is_called_with(
    kind, dtype, accuracy, limit, m, k, n, order, target, device
):
    if kind == HOPPERS and (target or jit.arch_of(device) != "sm_90a"):
        pytest.skip("has no kernel on this GPU")
    a, right = of_format(kind, m, k)
    made = planned(a, n, dtype, accuracy, order=order, target=target)
    assert not target or jit.arch_of(made.device) != "sm_90a"
    for seed in (0, 1):  # other arrays, so other addresses and tensor maps
        x, out = numbers((k, n), dtype, seed), poisoned(m, n, dtype, order)
        for found in (made(on_gpu(x, dtype, order), out), made(on_gpu(x, dtype, order))):
            assert found.shape == (m, n) and error(found, right @ x.astype(np.float64)) < LIMITS[limit], repr(made)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("csr", "float32"), ("csr bfloat16", "bfloat16"), ("nm", "float32"), ("2:4 bfloat16", "bfloat16")],
)
def test_trials_choose_among_what_other_gpus_have(kind, dtype):
    a, right = of_format(kind, 300, 640)
    made, x = planned(a, 96, dtype, target="portable", tune=True), numbers((640, 96), dtype, 5)
    assert "windows" not in made.choice and "wgmma" not in made.choice
    assert error(made(on_gpu(x, dtype), poisoned(300, 96, dtype)), right @ x.astype(np.float64)) < LIMITS[dtype]


@pytest.mark.parametrize("kind", ["csr", "bcsr64 bfloat16", "bcsr64 float32", "2:4 float16", "nm"])
@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize(
    ("of_b", "of_out"), [("C", "C"), ("C", "F"), ("F", "C"), ("F", "F"), ("gaps", "odd"), ("odd", "gaps")]
)
def test_however_b_and_out_lie(kind, order, of_b, of_out):
    m, k, n = 192, 256, 48
    a, right = of_format(kind, m, k)
    dtype = kind.partition(" ")[2] or "float32"
    accuracy = "tf32" if kind == "bcsr64 float32" else None
    made = kernels.plan(a, n, dtype=dtype, order=order, accuracy=accuracy, tune=False)
    x, y = numbers((k, n), dtype), numbers((m, n), dtype, 5)
    for alpha, beta in ((1.0, 0.0), (-0.5, 0.25), (2.0, 0.0)):
        out = on_gpu(y, dtype, of_out) if beta else poisoned(m, n, dtype, of_out)
        assert made(on_gpu(x, dtype, of_b), out, alpha=alpha, beta=beta) is out and left_alone(out)
        expected = alpha * (right @ x.astype(np.float64)) + beta * y
        assert error(out, expected) < 2 * LIMITS["tf32" if accuracy else dtype], repr(made)


def test_work_is_on_the_stream_that_is_current_or_given():
    import cupy

    (a, right), x = of_format("csr", 2000, 2000), numbers((2000, 64))
    made, stream = kernels.plan(a, 64, tune=False), cupy.cuda.Stream(non_blocking=True)
    with stream:
        b = on_gpu(x)
        for _ in range(20):  # B is still being made when the plan is called
            b = b + 0
        outs = [made(b), made(b, stream=stream), made(b, stream=stream.ptr)]
    stream.synchronize()
    assert all(error(out, right @ x.astype(np.float64)) < LIMITS["float32"] for out in outs)


def test_spmm_once():
    a, x = scattered(150, 120), numbers((120, 30))
    right = a.astype(np.float64) @ x
    for given in (a, formats.to_device(csr.from_scipy(a))):
        for order in "CF":
            assert error(kernels.spmm(given, on_gpu(x, how=order)), right) < LIMITS["float32"]
        out = on_gpu(np.ones((150, 30), np.float32))
        assert kernels.spmm(given, on_gpu(x), alpha=2.0, beta=1.0, out=out) is out
        assert error(out, 2 * right + 1) < LIMITS["float32"]


def test_values_change_in_place_and_with_a_call():
    a, b = scattered(150, 120), numbers((120, 30))
    made, values = kernels.plan(a, 30, in_place=True), on_gpu(numbers((1, a.nnz), seed=9))[0]
    other = a.copy()
    other.data = values.get()
    outs = [made(on_gpu(b)), made(on_gpu(b), values=values)]
    made.a.val[...] = values
    for out, of in zip((*outs, made(on_gpu(b))), (a, other, other), strict=True):
        assert error(out, of.astype(np.float64) @ b) < LIMITS["float32"]


def test_nothing_to_multiply():
    b, out = on_gpu(numbers((50, 8))), on_gpu(numbers((40, 8)))
    empty, before = kernels.plan(sp.csr_array((40, 50), dtype=np.float32), 8), out.copy()
    assert not empty(b).any() and bool((empty(b, out, beta=2.0) == 2 * before).all())
    assert kernels.plan(sp.csr_array((0, 50), dtype=np.float32), 8)(b).shape == (0, 8)
    assert kernels.plan(scattered(40, 50), 0)(b[:, :0]).shape == (40, 0)


@pytest.mark.parametrize("n", [1, 30, 64, 127])
def test_a_product_sampled_at_the_places_of_a_matrix(n, device):
    a = csr.from_scipy(scattered(150, 120))
    g, b = numbers((150, n)), numbers((120, n), seed=1)
    found = Sampled(csr.to_device(a), device)(on_gpu(g), on_gpu(b))
    right = (g[csr.rows(a)].astype(np.float64) * b[a.col_idx]).sum(axis=1)
    assert error(found, right) < LIMITS["float32"]


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["csr", "bcsr64 bfloat16", "2:4 bfloat16", "nm"])
def test_a_call_costs_the_host_less_than_ten_microseconds(kind, device):
    """Or, on a host where the launches alone take most of that, four more than they."""
    dtype = kind.partition(" ")[2] or "float32"
    made, b = planned(of_format(kind, 128, 128)[0], 128, dtype), on_gpu(numbers((128, 128), dtype), dtype)
    out, flow = made(b), workspace.stream_at(dense.current(b, 0), device)

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
        return min(spent)

    call, alone = host_us(lambda: made(b, out)), host_us(launches)
    device.sync()
    assert call < max(10, alone + 4), f"{call:.1f} us, {alone:.1f} of them for {len(made._steps)} launches"


# ---------------------------------------------------------------- PyTorch


@pytest.mark.parametrize(
    ("dtype", "layout"), [("float32", "csr"), ("bfloat16", "bsr"), ("float16", "bsr"), ("float16", "semi_structured")]
)
def test_tensors_of_pytorch(dtype, layout):
    torch = pytest.importorskip("torch")
    two_fours = layout == "semi_structured"
    w = two_four.random(128, 256, "float16", 0) if two_fours else bcsr.random(128, 256, 0.5, 0, dtype="bfloat16")
    w = torch.tensor(formats.to_dense(w)).cuda().to(getattr(torch, dtype))
    x = torch.randn(256, 40, device="cuda").to(w.dtype)
    try:
        a = torch.sparse.to_sparse_semi_structured(w) if two_fours else getattr(w, f"to_sparse_{layout}")
        a = a if two_fours else a(*[(64, 64)] * (layout == "bsr"))
    except (RuntimeError, NotImplementedError) as why:
        pytest.skip(f"PyTorch makes none here: {why}")
    made = kernels.plan(a, 40, tune=False)
    assert made.dtype == dtype and (made.room == "tensor_core_24") == two_fours
    for given in (x, x.t().contiguous().t()):
        found = made(given)
        assert found.dtype == w.dtype and found.is_cuda
        assert error(found.double().cpu().numpy(), (w.double() @ x.double()).cpu().numpy()) < LIMITS[dtype]
