"""The library on a GPU: every way against float64, what a plan promises of its calls, and what comes in.

Nothing is read through an index that is wrong, or written where nobody may write; who asks for the same bits has them.
"""

import time

import numpy as np
import pytest
import scipy.sparse as sp
from given import HOPPERS, LIMITS, WAYS, error, left_alone, numbers, of_format, on_gpu, planned, poisoned, scattered
from refused import says

import kernels
from kernels import formats, jit, workspace
from kernels.formats import bcsr, csr, two_four
from kernels.formats.half import array_of
from kernels.library import Sampled, dense, routes

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("open_gpu")]
SIZES = [(200, 320, 64, "C"), (129, 130, 33, "F"), (257, 515, 130, "C"), (64, 64, 1, "F")]
#: The GPU that is here; taken for one without Hopper's instructions; for one with a GeForce's shared memory.
CASES = [
    *((*size, "") for size in SIZES),
    *((*size, target) for size in SIZES[:2] for target in ("portable", "101376")),
]


@pytest.mark.parametrize(("m", "k", "n", "order", "target"), CASES)
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


@pytest.mark.parametrize("kind", ["csr", "bcsr64 bfloat16", "2:4 float16"])
@pytest.mark.parametrize("order", "CF")
def test_a_plan_of_the_transpose_is_one_of_a_and_x_times_it_too(kind, order):
    (a, right), dtype = of_format(kind, 192, 256), kind.partition(" ")[2] or "float32"
    made = kernels.plan(formats.to_device(a), 40, transpose=True, dtype=dtype, order=order, tune=False)
    x = numbers((40, 192), dtype)
    for out, expected in ((made(on_gpu(x.T.copy(), dtype)), right.T @ x.T), (on_gpu(x, dtype) @ made, x @ right)):
        assert error(out, expected) < LIMITS[dtype]
    assert made.shape == (256, 192) and made.prepare_ms > 0


@pytest.mark.parametrize("kind", ["csr", "bcsr64 float32"])
def test_batches_and_many_small_matrices(kind):
    a, right = of_format(kind, 192, 256)
    b = on_gpu(numbers((3 * 40, 256))).reshape(3, 40, 256).swapaxes(1, 2)
    for n, order in ((120, "F"), (40, "C")):
        made = kernels.plan(a, n, order=order, accuracy="fp32", tune=False)
        assert error(made.batched(b).reshape(576, 40), (right @ b.get()).reshape(576, 40)) < LIMITS["float32"]
    small = [scattered(m, k) for m, k in ((30, 50), (70, 20))]
    whole, rows, columns = kernels.block_diagonal(small)
    x = numbers((int(columns[-1]), 24))
    out = kernels.plan(whole, 24, tune=False)(on_gpu(x))
    for i, matrix in enumerate(small):
        expected = matrix @ x[columns[i] : columns[i + 1]].astype(float)
        assert error(out[rows[i] : rows[i + 1]], expected) < LIMITS["float32"]


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


@pytest.mark.parametrize(("n", "dtype"), [(64, "float32"), (30, "float16"), (64, "bfloat16"), (127, "bfloat16")])
@pytest.mark.parametrize("how", ["C", "odd"])
def test_a_product_sampled_at_the_places_of_a_matrix(n, dtype, how, device):
    a = csr.from_scipy(scattered(150, 120))
    g, b = numbers((150, n), dtype), numbers((120, n), dtype, 1)
    found = Sampled(csr.to_device(a), device)(on_gpu(g, dtype, how), on_gpu(b, dtype, how))
    assert error(found, (g[csr.rows(a)].astype(np.float64) * b[a.col_idx]).sum(axis=1)) < LIMITS[dtype]


@pytest.mark.alone
@pytest.mark.parametrize("kind", ["csr", "bcsr64 bfloat16", "2:4 bfloat16", "nm"])
def test_a_call_costs_the_host_less_than_ten_microseconds(kind, device):
    """Or, on a host that is slower, not much more than the launches alone take once more."""
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
    assert call < max(10, 2.5 * alone), f"{call:.1f} us, {alone:.1f} of them for {len(made._steps)} launches"


# ---------------------------------------------------------------- the same bits

CALLS, WIDE = 30, 264
OF_BLOCKS, OF_VECTORS = {"prune": "block", "density": 0.2}, {"prune": "nm", "density": 0.25}
#: What is multiplied -> keyword arguments of `plan`.
ORDERED = {
    "CSR fp32": {"dtype": "float32"},
    "CSR tf32": {"dtype": "float32", "accuracy": "tf32"},
    "CSR bf16": {"dtype": "bfloat16"},
    "CSR fp16": {"dtype": "float16"},
    "values that change": {"dtype": "float32", "in_place": True},
    "blocks bf16": OF_BLOCKS | {"dtype": "bfloat16"},
    "blocks tf32": OF_BLOCKS | {"dtype": "float32", "accuracy": "tf32"},
    "2:4 bf16": {"prune": "2:4", "dtype": "bfloat16"},
    "2:4 fp16": {"prune": "2:4", "dtype": "float16"},
    "N:M fp32": OF_VECTORS | {"dtype": "float32"},
    "N:M tf32": OF_VECTORS | {"dtype": "float32", "accuracy": "tf32"},
    "N:M bf16": OF_VECTORS | {"dtype": "bfloat16"},
}


def heavy(dtype: str) -> sp.csr_array:
    """Short rows, and ten of 40 to 4000 non-zeros."""
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 9, 500)
    lengths[::50] = 40 * np.arange(1, 11) ** 2
    columns = np.concatenate([rng.choice(5000, x, False) for x in lengths])
    return sp.csr_array((numbers(len(columns), dtype, 5), columns, np.cumsum([0, *lengths])), shape=(500, 5000))


def bits(out) -> bytes:
    return formats.to_host(array_of(out)).tobytes()


@pytest.mark.parametrize("tune", [False, True])
@pytest.mark.parametrize("which", ORDERED)
def test_the_same_call_gives_the_same_bits(device, which, tune):
    if which == "N:M bf16" and jit.arch_of(device) not in routes.HOPPER:
        pytest.skip("N:M in bfloat16 is multiplied by wgmma")
    dtype = ORDERED[which]["dtype"]
    a = numbers((1216, 2048), dtype, 5) if "prune" in ORDERED[which] else heavy(dtype)
    b = on_gpu(numbers((a.shape[1], WIDE), dtype, 6), dtype)
    made, again = (kernels.plan(a, WIDE, tune=tries, deterministic=True, **ORDERED[which]) for tries in (tune, False))
    found = {bits(made(b)) for _ in range(CALLS)}
    if again.choice == made.choice:  # which trials may have made otherwise
        found |= {bits(again(b)) for _ in range(5)}
    assert len(found) == 1, f"{made} gave {len(found)} results in {CALLS} calls"


def test_spmm_that_is_asked_to_gives_the_same_bits():
    a, b = heavy("float32"), on_gpu(numbers((5000, WIDE), "float32", 6))
    assert len({bits(kernels.spmm(a, b, deterministic=True)) for _ in range(5)}) == 1


# ---------------------------------------------------------------- what comes in

M, K, N = 70, 90, 33
A, B = scattered(M, K), numbers((K, N))
PRODUCT = A.astype(np.float64) @ B


@pytest.mark.parametrize("index", [10**8, K, -1])
@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_indices_of_cupys_matrices_are_looked_at_before_they_are_followed(kind, index):
    from cupyx.scipy import sparse as there

    a = getattr(there, f"{kind}_matrix")(there.csr_matrix(A))
    assert error(kernels.spmm(a, on_gpu(B)), PRODUCT) < 1e-5
    part = "col" if kind == "coo" else "indices"
    spoiled = getattr(a, part).copy()
    spoiled[7] = index
    setattr(a, part, spoiled)
    name = "row_idx" if kind == "csc" else "col_idx"
    says([f"{name}[7] is {index}", "outside"], lambda: kernels.plan(a, N, tune=False))


class Wrapped:
    """An array of another library, which may be read only."""

    def __init__(self, x, readonly: bool):
        self.x, said = x, x.__cuda_array_interface__
        self.__cuda_array_interface__ = said | {"data": (said["data"][0], readonly)}


def test_out_that_may_not_be_written_or_overlaps_itself_stays_as_it_is():
    import cupy

    made, b, fixed, free = kernels.plan(A, N, tune=False), on_gpu(B), *(poisoned(M, N, "float32") for _ in range(2))
    says(["out may not be written"], lambda: made(b, Wrapped(fixed, True)))
    line = cupy.zeros(2 * M + N, cupy.float32)
    for strides in ((0, 4), (4, 4), (8, 4)):
        view = cupy.lib.stride_tricks.as_strided(line, (M, N), strides)
        says(["elements of out share memory"], lambda view=view: made(b, view))
    assert cupy.isnan(fixed).all() and not line.any()
    for given, to in ((b, Wrapped(free, False)), (Wrapped(b, True), free)):
        made(given, to)
        assert error(free, PRODUCT) < 1e-5
        free.fill(np.nan)


def test_an_array_of_jax_is_read_but_never_written():
    jax = pytest.importorskip("jax")
    if not any(x.platform in ("gpu", "cuda") for x in jax.devices()):
        pytest.skip("JAX sees no GPU here")
    made = kernels.plan(A, N, tune=False)
    assert error(made(jax.numpy.asarray(B), poisoned(M, N, "float32")), PRODUCT) < 1e-5
    says(["out may not be written"], lambda: made(on_gpu(B), jax.numpy.zeros((M, N))))


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
