"""One plan on two streams, and in two graphs, at the same time; and while others hold most multiprocessors.

Operands are small whole numbers, whose sums every dtype's accumulators hold: a result is right bit for bit, in whatever
order its parts were added, or it is not.
"""

import time
from collections import namedtuple
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from given import on_gpu, planned, wide

import kernels
from kernels import formats, jit
from kernels.async_sparse.windows import Union, Windows
from kernels.autotune.choices import knobs
from kernels.formats import bcsr, csr, half, nm, two_four
from kernels.formats.half import Half, array_of
from kernels.formats.nm import Nm
from kernels.nm_spmm import family as of_nm
from kernels.tensor_core_24 import family as of_two_four

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
    columns = np.concatenate([np.sort(rng.choice(k, n, replace=False)) for n in length]).astype(np.int32)
    val = rng.integers(1, 4, len(columns)).astype(np.float32)
    return csr.Csr(m, k, np.cumsum([0, *length]).astype(np.int32), columns, val)


def whole(a):
    """The same matrix with 1 to 3 in the place of every value that is not 0."""
    dtype = getattr(a, "dtype", "float32")
    made = np.random.default_rng(1).integers(1, 4, a.val.shape).astype(np.float32)
    if dtype in half.DTYPES:
        return replace(a, val=np.where(half.from_bits(a.val, dtype) != 0, half.to_bits(made, dtype), np.uint16(0)))
    return replace(a, val=np.where(a.val != 0, made, np.float32(0)))


def of_union(rows: int) -> str:
    return f"union {knobs(Union(rows, chunk=32))}"


#: choice: of the system's kernels, "" for the one that is predicted; hopper: whether Hopper alone has it.
Kind = namedtuple("Kind", "make n dtype accuracy choice hopper deterministic", defaults=(None, "", True, False))
STREAM_K = f"wgmma {knobs(of_two_four.RUNGS['wgmma_stream_k'][0])}"
KINDS = {
    "single rows": Kind(with_long_rows, 1024, "float32", None, of_union(1), False),
    "groups of rows": Kind(with_long_rows, 1024, "float32", None, of_union(4), False),
    "groups of rows in 16 bits": Kind(with_long_rows, 1024, "bfloat16", None, of_union(4), False),
    "rows in order": Kind(with_long_rows, 1024, "float32", hopper=False, deterministic=True),
    "windows": Kind(with_long_rows, 1024, "float32", "tf32", f"windows {knobs(Windows())}"),
    "blocks": Kind(lambda: whole(bcsr.random(4096, 4096, 0.2, 0, dtype="bfloat16")), 4096, "bfloat16"),
    "2:4": Kind(lambda: whole(two_four.random(4096, 4096, "bfloat16", 0)), 2048, "bfloat16"),
    "2:4, cut along k": Kind(lambda: whole(two_four.random(4096, 4096, "float16", 0)), 2048, "float16", None, STREAM_K),
    "N:M": Kind(
        lambda: whole(nm.random(2048, 2048, 8, 32, 32, 0)),
        1024,
        "float32",
        None,
        f"fp32 {knobs(of_nm.RUNGS['turned'][0])}",
    ),
}


@pytest.fixture(scope="module", params=KINDS)
def ready(request, device, tmp_path_factory):
    """A plan of a kind, matrices B, and what each gives alone, the first of them compared with float64's."""
    import cupy

    kind = KINDS[request.param]
    hopper = jit.arch_of(device) == "sm_90a"
    if kind.hopper and not hopper:
        pytest.skip("wgmma and the copy engine are compute capability 9.0's")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARSITY_CHOICES", str(tmp_path_factory.mktemp("choices")))
        a, choice = kind.make(), kind.choice if hopper else ""
        how = {"dtype": kind.dtype, "accuracy": kind.accuracy, "tune": False}
        if choice:
            plan = planned(a, kind.n, choice=choice, **how)
        else:
            plan = kernels.plan(a, kind.n, deterministic=kind.deterministic, **how)
        assert not choice or plan.choice == choice, "otherwise another kernel is tested"
    rng = np.random.default_rng(9)
    b = [on_gpu(rng.integers(-3, 4, (plan.k, kind.n)).astype(np.float32), kind.dtype) for _ in range(BS)]
    right = [array_of(plan(x, _poisoned(plan))) for x in b]
    device.sync()
    dense = formats.to_dense(a)
    dense = cupy.asarray(dense.T if isinstance(a, Nm) else dense).astype(cupy.float64)
    product = (dense @ cupy.asarray(wide(b[0]))).astype(cupy.float32)
    assert bool((right[0] == (half.to_bits(product, kind.dtype) if kind.dtype in half.DTYPES else product)).all())
    assert not bool((right[0] == right[1]).all()), "products can be told apart"
    yield SimpleNamespace(plan=plan, b=b, right=right)
    cupy.get_default_memory_pool().free_all_blocks()


def _poisoned(plan):
    """An out of NaN, in the plan's memory order."""
    import cupy

    bits = plan.dtype in half.DTYPES
    array = cupy.empty((plan.m, plan.n), np.uint16 if bits else np.float32, order=plan.out_order)
    array.data.memset(0xFF, array.nbytes)
    return Half(plan.dtype, array) if bits else array


def _streams(number: int) -> list:
    import cupy

    return [cupy.cuda.Stream(non_blocking=True) for _ in range(number)]


def _require_right(ready, outs, which, said: str) -> None:
    """outs[i] is the product of B number which[i]."""
    wrong = [i for i, out in enumerate(outs) if not bool((array_of(out) == ready.right[which[i]]).all())]
    assert not wrong, f"{said}: {len(wrong)} of {len(outs)} results are wrong, the first of launch {wrong[0]}"


@pytest.mark.parametrize("lasting", [True, False])
def test_one_plan_on_streams_that_come_in_no_order(ready, device, lasting):
    """Runs of calls on one stream, and changes to another, by chance; or each is destroyed while its work waits, and
    the next may have its address."""
    plan, rng, streams = ready.plan, np.random.default_rng(1), _streams(4)
    which = rng.integers(0, BS, LAUNCHES).tolist()
    outs = [_poisoned(plan) for _ in which]
    device.sync()
    for number, out in zip(which, outs, strict=True):
        plan(ready.b[number], out, stream=streams[rng.integers(4)] if lasting else _streams(1)[0])
    plan(ready.b[which[0]], outs[0])
    device.sync()
    _require_right(ready, outs, which, f"on streams, lasting {lasting}")


def test_one_plan_in_two_graphs_that_run_at_once(ready, device):
    """Replayed on two streams, with calls on a third one meanwhile; B changes from round to round."""
    plan, rng, (*captured, third) = ready.plan, np.random.default_rng(2), _streams(3)
    outs, graphs = [[_poisoned(plan) for _ in range(IN_GRAPH)] for _ in range(3)], []
    for stream, of_one in zip(captured, outs, strict=False):
        given = [on_gpu(np.zeros((plan.k, plan.n), np.float32), plan.dtype) for _ in of_one]
        plan(given[0], of_one[0], stream=stream)
        stream.synchronize()
        with stream:
            stream.begin_capture()
            for x, y in zip(given, of_one, strict=True):
                plan(x, y)
            graphs.append((stream.end_capture(), stream, given))
    for turn in range(8):
        which = rng.integers(0, BS, (3, IN_GRAPH)).tolist()
        for (_, _, given), numbers in zip(graphs, which, strict=False):
            for x, number in zip(given, numbers, strict=True):
                array_of(x)[...] = array_of(ready.b[number])
        for out in sum(outs, []):
            array_of(out).data.memset(0xFF, array_of(out).nbytes)
        device.sync()
        for graph, stream, _ in graphs:
            graph.launch(stream)
        for number, out in zip(which[2], outs[2], strict=True):
            plan(ready.b[number], out, stream=third)
        device.sync()
        _require_right(ready, sum(outs, []), sum(which, []), f"in two graphs, round {turn}")


def test_a_few_multiprocessors_are_enough(ready, device, tmp_path):
    """Others hold all but a few until the product is there: no kernel counts on all of its blocks running at once."""
    import cupy
    from cuda.core import LaunchConfig, launch

    path = tmp_path / "holds.cu"
    path.write_text(HOLDS)
    shared = device.properties.max_shared_memory_per_block_optin - 1024  # nobody fits beside it
    kernel = jit.load(jit.compile_cubin(path, "holds", jit.arch_of(device)), shared)
    config = LaunchConfig(grid=device.properties.multiprocessor_count - FREE, block=32, shmem_size=shared)
    (held, mine, third), let_go, done = _streams(3), cupy.zeros(1, cupy.uint32), cupy.cuda.Event()
    out = _poisoned(ready.plan)
    ready.plan(ready.b[0], out, stream=mine)  # whatever is made at first is there
    for number in range(3):
        let_go.data.memset(0, 4)
        array_of(out).data.memset(0xFF, array_of(out).nbytes)
        device.sync()
        begin = time.perf_counter()
        launch(device.create_stream(jit.StreamAt(held.ptr)), config, kernel, let_go.data.ptr, np.int64(2 * 10**10))
        done.record(held)
        ready.plan(ready.b[number], out, stream=mine)
        mine.synchronize()
        seconds, still = time.perf_counter() - begin, not done.done
        let_go.data.memset_async(1, 4, third)
        device.sync()
        assert still, f"the product came after the others had left, {seconds:.1f} s later"
        _require_right(ready, [out], [number], f"on {FREE} multiprocessors, turn {number}")
