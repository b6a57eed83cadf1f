"""A GPU's part as far as it goes without one: the kernel that is chosen, bound and launched, on which stream."""

import sys
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import racing
from pretend import Array, Cupy, as_array

from kernels import contract, distributed
from kernels.async_sparse import any_csr, windows
from kernels.autotune import knobs
from kernels.distributed import backend, comm, generate, plans
from kernels.distributed.plans import Part
from kernels.formats import bcsr
from kernels.formats.csr import Csr

#: Addresses of streams: the current one, and those that a plan makes, for products and for what travels.
CURRENT, PRODUCTS, TRAVELS = 1, 2, 3


class Stream(nullcontext):
    made = CURRENT

    def __init__(self, non_blocking: bool = False, priority: int = 0):
        self.ptr = Stream.made
        Stream.made += 1

    def wait_event(self, event=None):
        pass

    record = synchronize = wait_event


@pytest.fixture
def here(pretended, monkeypatch):
    Stream.made = CURRENT
    current = Stream()
    monkeypatch.setattr(
        Cupy,
        "cuda",
        SimpleNamespace(
            get_current_stream=lambda device=-1: current,
            Device=lambda *ordinal: SimpleNamespace(id=0, use=lambda: None),
            Stream=Stream,
            get_elapsed_time=lambda begin, end: 1.0,
        ),
    )
    pool = SimpleNamespace(free_all_blocks=lambda: None)
    monkeypatch.setattr(Cupy, "get_default_memory_pool", staticmethod(lambda: pool), raising=False)
    monkeypatch.setattr(contract, "timed", lambda work: (work(), 0.0))
    device = pretended(racing.H200)
    device.sync = device.set_current = lambda: None
    device.uuid = "one"
    return distributed.Gpu(0)


@pytest.mark.parametrize("made", [generate.Rmat(10, 16, 3), generate.Stencil(12, 1)], ids=str)
def test_a_large_part_gets_the_kernel_that_the_model_predicts(here, made, monkeypatch):
    monkeypatch.setattr(backend, "TRIED", 0)
    monkeypatch.setattr(backend, "SAMPLE", 3000)
    part = generate.host_part(made, np.array([0, made.m]), 0)
    plan = distributed.plan(Part(as_array(part.a), part.rows), 512, chunks=4, machine=here)
    assert len({id(step[0]) for steps in plan._steps for step in steps}) == 1, "chunks of one width share a plan"
    assert plan._steps[0][0][0].args[0].choice.startswith("union ")
    plan(timed=True)
    launched = here.device.launched
    assert len(launched) == 4 and {flow for flow, *_ in launched} == {PRODUCTS}
    addresses = [x.ctypes.data for x in (*plan.operand().arrays, *plan.result().arrays)]
    assert set(addresses) <= {x for _, _, _, *arguments in launched for x in arguments if type(x) is int}
    assert plan.times.multiplication == 4


def test_a_large_parts_kernel_needs_no_order_of_all_rows_and_may_have_to_read_in_place(here, monkeypatch):
    every, seen, sampled = [windows.Union(4, order="similar"), windows.Union(4), windows.Union(1)], [], []
    real = any_csr.statistics
    monkeypatch.setattr(any_csr, "statistics", lambda a: sampled.append(a) or real(a))
    monkeypatch.setattr(any_csr, "ranked", lambda accuracy, of, n: seen.append(of) or every)
    monkeypatch.setattr(backend, "SAMPLE", 3000)
    a = as_array(generate.host_part(generate.Rmat(9, 16, 3), np.array([0, 512]), 0).a)
    found = [backend.choice_of(a, 64, in_place) for in_place in (False, True)]
    assert found == [f"union {knobs(x)}" for x in every[1:]]
    assert (seen[0].m, seen[0].k, seen[0].nnz, seen[0].longest) == (a.m, a.k, a.nnz, np.diff(a.row_ptr).max())
    assert sampled[-1].m < 256 and sampled[-1].nnz <= 3000 < sampled[-1].nnz + np.diff(a.row_ptr).max()


def test_blocks_keep_their_kernel_and_their_dtype(here):
    a = as_array(bcsr.random(256, 192, 0.3, 0, dtype="bfloat16"))
    plan = distributed.plan(a, 512, chunks=2, machine=here, dtype="bfloat16")
    assert all(x.dtype == np.uint16 for x in plan.operand().arrays)
    plan()
    assert [kernel.split(":")[0] for _, _, kernel, *_ in here.device.launched] == ["unit_ring"] * 2


@pytest.mark.parametrize(
    ("dtype", "columns", "word"),
    [("float32", 128, "uint4"), ("float32", 2, "uint2"), ("float32", 3, "unsigned"), ("bfloat16", 3, "unsigned short")],
)
def test_rows_are_gathered_in_the_widest_words_that_fit(here, dtype, columns, word):
    b, out = here.empty(40, columns, dtype), here.empty(5, columns, dtype)
    here.gather(b, as_array(np.arange(5)), out, SimpleNamespace(ptr=TRAVELS))
    ((flow, _, kernel, rows, words, *_),) = here.device.launched
    assert (flow, kernel) == (TRAVELS, f"gather_rows: gather_rows<{word}>")
    assert rows == 5 and words * {"uint4": 16, "uint2": 8, "unsigned": 4}.get(word, 2) == columns * b.dtype.itemsize
    here.gather(b, as_array(np.arange(0)), out)
    assert len(here.device.launched) == 1


def test_a_streamed_matrix_is_multiplied_where_its_panels_come(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace(empty_pinned=np.empty))
    copied = []
    monkeypatch.setattr(Array, "set", lambda self, x, stream: copied.append(stream.ptr), raising=False)
    part = generate.host_part(generate.Rmat(8, 9, 1), np.array([0, 256]), 0)
    plan = distributed.streamed(part.a, 64, panel=500, machine=here)
    plan(as_array(np.zeros((256, 64), np.float32)))
    count = len(plan.panels)
    assert count > 2 and {product.args[0].choice for _, product in plan._steps} == {plans.CHOICE}
    launched = here.device.launched
    assert len(launched) == count and len(copied) == 2 * count
    buffers = [{x.ctypes.data for x in pair} for pair in plan._buffers]
    for i, (_, _, _, *arguments) in enumerate(launched):
        assert buffers[i % 2] <= {x for x in arguments if type(x) is int}


def test_a_rank_without_rows_or_non_zeros_has_no_kernel_to_choose(here):
    for rows in (0, 3):
        a = Csr(rows, 40, np.zeros(rows + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32))
        part = Part(as_array(a), np.array([0, rows]), np.array([0, 40]), consumed=True)
        assert distributed.plan(part, 8, machine=here)._steps[0][0][0].args[0].choice == ""


def test_a_move_on_the_host_ends_when_all_has_arrived(monkeypatch):
    """By gloo, which only begins to send and to receive; a fake, since PyTorch may not be there."""
    begun, waited = [], []

    def begin(x, rank, group):
        begun.append((x, rank))
        return SimpleNamespace(wait=lambda: waited.append((x, rank)))

    size = {"get_rank": lambda _: 1, "get_world_size": lambda _: 3, "get_process_group_ranks": lambda _: [4, 5, 6]}
    monkeypatch.setattr(comm, "dist", SimpleNamespace(irecv=begin, isend=begin, **size))
    made, copied = comm.Torch(None, None, None), []
    made._tensor = lambda x: SimpleNamespace(numel=lambda: len(x), copy_=copied.append, of=x)
    made.ready(["a", "b", "c"], ["x", "y", ""])()
    assert [x.of for x in copied] == ["b"] and waited == begun
    assert {(x.of, rank) for x, rank in begun} == {("x", 4), ("a", 4), ("c", 6)}
