"""One plan on two streams, and in two graphs, at the same time; and while others hold most multiprocessors.

Operands are small whole numbers, whose sums every dtype's accumulators hold: a result is right bit for bit, in whatever
order its parts were added, or it is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

import kernels
from kernels import formats, jit
from kernels.async_sparse.union import Union
from kernels.async_sparse.windows import Windows
from kernels.formats import bcsr, csr, half, nm, two_four
from kernels.formats.half import Half, array_of
from kernels.formats.nm import Nm
from kernels.library import operands, plans, routes
from kernels.nm_spmm import family as of_nm
from kernels.tensor_core_24 import family as of_two_four
from kernels.tuning.choices import knobs

pytestmark = [pytest.mark.gpu, pytest.mark.alone]
#: Different matrices B; launches of a test, more than these; calls in a graph.
BS, LAUNCHES, IN_GRAPH = 5, 40, 8
FREE = 26  #: multiprocessors that others leave: of eight GPCs one has four of them, which a cluster of four needs

HOLDS = """
// Each block stays on its multiprocessor until it is let go, or so many clocks have passed.
__global__ void holds(volatile unsigned* let_go, long long most)
{
    const long long since = clock64();
    while (!*let_go && clock64() - since < most) __nanosleep(1000);
}
"""


def with_long_rows(m: int = 8000, k: int = 8000) -> csr.Csr:
    """Rows of 0 to 60 columns, and eight long ones, which kernels cut."""
    rng = np.random.default_rng(0)
    length = rng.integers(0, 61, m)
    length[rng.permutation(m)[:8]] = k // 2
    row_ptr = np.concatenate([[0], np.cumsum(length)]).astype(np.int32)
    columns = [np.sort(rng.choice(k, n, replace=False)) for n in length]
    col_idx = np.concatenate(columns).astype(np.int32)
    val = rng.integers(1, 4, len(col_idx)).astype(np.float32)
    return csr.Csr(m, k, row_ptr, col_idx, val)


def whole(x: np.ndarray, dtype: str, seed: int) -> np.ndarray:
    """1 to 3 in the place of every value that is not 0, as the format keeps them."""
    made = np.random.default_rng(seed).integers(1, 4, x.shape).astype(np.float32)
    if dtype in half.DTYPES:
        return np.where(half.from_bits(x, dtype) != 0, half.to_bits(made, dtype), np.uint16(0))
    return np.where(x != 0, made, np.float32(0))


def of_blocks(dtype: str) -> bcsr.Bcsr:
    a = bcsr.random(4096, 4096, 0.2, 0, dtype=dtype)
    return replace(a, val=whole(a.val, dtype, 1))


def of_two_fours(dtype: str) -> two_four.TwoFour:
    a = two_four.random(4096, 4096, dtype, 0)
    return replace(a, val=whole(a.val, dtype, 2))


def of_vectors() -> Nm:
    a = nm.random(2048, 2048, 8, 32, 32, 0)
    return replace(a, val=whole(a.val, "float32", 3))


def stream_of_nm() -> str:
    config = next(c for name, (c, *_) in of_nm.RUNGS.items() if name == "turned")
    return f"fp32 {knobs(config)}"


def of_rung(name: str) -> str:
    return f"wgmma {knobs(of_two_four.RUNGS[name][0])}"


@dataclass(frozen=True)
class Kind:
    make: Callable
    n: int
    dtype: str
    accuracy: str | None = None
    choice: str = ""  #: of the room's kernels, "" for the one that is predicted
    hopper: bool = True  #: whether Hopper alone has it
    deterministic: bool = False


KINDS = {
    "single rows": Kind(with_long_rows, 1024, "float32", None, f"union {knobs(Union(1, chunk=32))}", False),
    "groups of rows": Kind(with_long_rows, 1024, "float32", None, f"union {knobs(Union(4, chunk=32))}", False),
    "groups of rows in 16 bits": Kind(
        with_long_rows, 1024, "bfloat16", None, f"union {knobs(Union(4, chunk=32))}", False
    ),
    "rows in order": Kind(with_long_rows, 1024, "float32", hopper=False, deterministic=True),
    "windows": Kind(with_long_rows, 1024, "float32", "tf32", f"windows {knobs(Windows())}"),
    "blocks": Kind(lambda: of_blocks("bfloat16"), 4096, "bfloat16"),
    "2:4": Kind(lambda: of_two_fours("bfloat16"), 2048, "bfloat16"),
    "2:4, cut along k": Kind(lambda: of_two_fours("float16"), 2048, "float16", None, of_rung("wgmma_stream_k")),
    "N:M": Kind(of_vectors, 1024, "float32", None, stream_of_nm()),
}


@dataclass
class Ready:
    plan: plans.Plan
    b: list  #: matrices B
    right: list  #: what each gives, alone


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("choices")


@pytest.fixture(scope="module", params=KINDS)
def ready(request, device, folder) -> Ready:
    """A plan of a kind, and products one after the other, the first of them compared with float64's."""
    import cupy

    kind = KINDS[request.param]
    hopper = jit.arch_of(device) == "sm_90a"
    if kind.hopper and not hopper:
        pytest.skip("wgmma and the copy engine are compute capability 9.0's")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARSITY_CHOICES", str(folder))
        a = kind.make()
        if kind.choice and hopper:
            asked = operands.resolved(kind.accuracy, kind.dtype)
            way = routes.route(formats.to_device(a), kind.dtype, asked, device, explicit=True)
            plan = plans.built(way, kind.n, kind.dtype, asked, device, False, kind.choice)
            assert plan.choice == kind.choice, "otherwise another kernel is tested"
        else:
            plan = kernels.plan(
                a, kind.n, dtype=kind.dtype, accuracy=kind.accuracy, tune=False, deterministic=kind.deterministic
            )
    b = [_whole_numbers(plan.k, kind.n, kind.dtype, seed) for seed in range(BS)]
    right = []
    for x in b:
        right.append(_poisoned(plan, kind.dtype))
        plan(x, right[-1])
        device.sync()
    dense = formats.to_dense(a)
    dense = cupy.asarray(dense.T if isinstance(a, Nm) else dense).astype(cupy.float64)
    product = dense @ _numbers(b[0]).astype(cupy.float64)
    expected = half.to_bits(product.astype(cupy.float32), kind.dtype) if kind.dtype in half.DTYPES else product
    found = array_of(right[0])
    assert bool((found == expected.astype(found.dtype)).all())
    assert not bool((array_of(right[0]) == array_of(right[1])).all()), "products can be told apart"
    yield Ready(plan, b, right)
    cupy.get_default_memory_pool().free_all_blocks()


def _numbers(x):
    return half.from_bits(x.bits, x.dtype) if isinstance(x, Half) else x


def _whole_numbers(rows: int, columns: int, dtype: str, seed: int):
    import cupy

    made = np.random.default_rng([seed, 9]).integers(-3, 4, (rows, columns)).astype(np.float32)
    if dtype in half.DTYPES:
        return Half(dtype, cupy.asarray(half.to_bits(made, dtype)))
    return cupy.asarray(made)


def _poisoned(plan, dtype: str):
    """An out of NaN, in the plan's memory order."""
    import cupy

    kind = np.uint16 if dtype in half.DTYPES else np.float32
    array = cupy.empty((plan.m, plan.n), kind, order=plan.out_order)
    array.data.memset(0xFF, array.nbytes)
    return Half(dtype, array) if dtype in half.DTYPES else array


def _require_right(ready: Ready, outs, which, said: str) -> None:
    """outs[i] is the product of B number which[i]."""
    wrong = [i for i, out in enumerate(outs) if not bool((array_of(out) == array_of(ready.right[which[i]])).all())]
    assert not wrong, f"{said}: {len(wrong)} of {len(outs)} results are wrong, the first of launch {wrong[0]}"


@pytest.mark.parametrize("lasting", [True, False])
def test_one_plan_on_streams_that_come_in_no_order(ready, device, lasting):
    """Runs of calls on one stream, and changes to another, by chance; or each is destroyed while its work waits, and
    the next may have its address."""
    import cupy

    plan, rng = ready.plan, np.random.default_rng(1)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    which = rng.integers(0, BS, LAUNCHES).tolist()
    outs = [_poisoned(plan, plan.dtype) for _ in which]
    device.sync()
    for number, out in zip(which, outs, strict=True):
        stream = streams[rng.integers(4)] if lasting else cupy.cuda.Stream(non_blocking=True)
        plan(ready.b[number], out, stream=stream)
    plan(ready.b[which[0]], outs[0])
    device.sync()
    _require_right(ready, outs, which, f"on streams, lasting {lasting}")


def test_one_plan_in_two_graphs_that_run_at_once(ready, device):
    """Replayed on two streams, with calls on a third one meanwhile; B changes from round to round."""
    import cupy

    plan = ready.plan
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(3)]
    b = [[_like(x) for x in ready.b[:1] * IN_GRAPH] for _ in range(2)]
    outs = [[_poisoned(plan, plan.dtype) for _ in range(IN_GRAPH)] for _ in range(3)]
    graphs = []
    for stream, given, out in zip(streams, b, outs, strict=False):
        plan(given[0], out[0], stream=stream)
        stream.synchronize()
        with stream:
            stream.begin_capture()
            for x, y in zip(given, out, strict=True):
                plan(x, y)
            graphs.append(stream.end_capture())
    rng = np.random.default_rng(2)
    for turn in range(8):
        which = rng.integers(0, BS, (3, IN_GRAPH)).tolist()
        for given, numbers in zip(b, which, strict=False):
            for x, number in zip(given, numbers, strict=True):
                array_of(x)[...] = array_of(ready.b[number])
        for of_one in outs:
            for out in of_one:
                array_of(out).data.memset(0xFF, array_of(out).nbytes)
        device.sync()
        for graph, stream in zip(graphs, streams, strict=False):
            graph.launch(stream)
        for number, out in zip(which[2], outs[2], strict=True):
            plan(ready.b[number], out, stream=streams[2])
        device.sync()
        for of_one, numbers in zip(outs, which, strict=True):
            _require_right(ready, of_one, numbers, f"in two graphs, round {turn}")


def _like(x):
    return Half(x.dtype, x.bits.copy()) if isinstance(x, Half) else x.copy()


def test_a_few_multiprocessors_are_enough(ready, device, tmp_path):
    """Others hold all but a few until the product is there: no kernel counts on all of its blocks running at once."""
    import cupy
    from cuda.core import LaunchConfig, launch

    path = tmp_path / "holds.cu"
    path.write_text(HOLDS)
    shared = device.properties.max_shared_memory_per_block_optin - 1024  # nobody fits beside it
    kernel = jit.load(jit.compile_cubin(path, "holds", jit.arch_of(device)), shared)
    sms = device.properties.multiprocessor_count
    held, mine, third = (cupy.cuda.Stream(non_blocking=True) for _ in range(3))
    let_go = cupy.zeros(1, cupy.uint32)
    out, done = _poisoned(ready.plan, ready.plan.dtype), cupy.cuda.Event()
    ready.plan(ready.b[0], out, stream=mine)  # whatever is made at first is there
    for turn in range(3):
        number = turn % BS
        let_go.data.memset(0, 4)
        array_of(out).data.memset(0xFF, array_of(out).nbytes)
        device.sync()
        begin = time.perf_counter()
        launch(
            device.create_stream(jit.StreamAt(held.ptr)),
            LaunchConfig(grid=sms - FREE, block=32, shmem_size=shared),
            kernel,
            let_go.data.ptr,
            np.int64(2 * 10**10),
        )
        done.record(held)
        ready.plan(ready.b[number], out, stream=mine)
        mine.synchronize()
        seconds, still = time.perf_counter() - begin, not done.done
        let_go.data.memset_async(1, 4, third)
        device.sync()
        assert still, f"the product came after the others had left, {seconds:.1f} s later"
        _require_right(ready, [out], [number], f"on {FREE} multiprocessors, turn {turn}")
