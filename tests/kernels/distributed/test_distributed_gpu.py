"""On a GPU: plans alone and streamed multiply, chunks and pieces included."""

import numpy as np
import pytest
import scipy.sparse as sp
import several_gpus
from several_gpus import GRAPH, MESH

from kernels import distributed
from kernels.distributed import backend, comm, generate, partition
from kernels.formats import csr
from kernels.library import plans

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def here():
    """Without the fixture of all systems, which compiles every kernel of theirs."""
    return distributed.Gpu(0)


def test_a_rank_alone_multiplies(here, monkeypatch):
    """As several do, by the script that torchrun starts."""
    several_gpus.layouts(comm.alone(), here)
    several_gpus.large(comm.alone(), here, monkeypatch.setattr)


def test_slabs_that_are_consumed_are_multiplied_where_they_lie(here):
    part = generate.part(MESH, np.array([0, MESH.m]), 0)
    a = part.a
    plan = distributed.plan(distributed.Part([a], part.rows, consumed=True), 64, machine=here)
    assert [x.a.col_idx.data.ptr for x in plan.pieces[0]] == [a.col_idx.data.ptr]


def test_without_memory_for_groups_of_rows_single_ones_multiply(here, monkeypatch):
    asked, real = [], plans.built

    def built(*given):
        asked.append(given[-1])
        if len(asked) % 2:  # what is fastest, before what needs nothing beside A
            raise MemoryError
        return real(*given)

    monkeypatch.setattr(plans, "built", built)
    monkeypatch.setattr(backend, "TRIED", 0)
    whole = several_gpus.whole(MESH)
    several_gpus.check(whole, whole, comm.alone(), here)
    assert asked and all("rows=1" in choice for choice in asked[1::2])
    a = csr.from_scipy(sp.random_array((90, 90), density=0.1, rng=np.random.default_rng(0)).tocsr())
    with pytest.raises(MemoryError):  # who asks for a kernel gets no other
        here.product(csr.to_device(a), 8, "float32", None, False, choice="union_rows rows=2")


def test_pieces_are_those_of_the_host(here):
    a = csr.from_scipy(sp.random_array((90, 90), density=0.1, rng=np.random.default_rng(0)).tocsr())
    for units in (0, 40, 90):
        both = [sum(partition.pieces([x], units, "auto", True), []) for x in (a, csr.to_device(a))]
        for one, other in zip(*both, strict=True):
            assert (one.rows, one.early, one.adds) == (other.rows, other.early, other.adds)
            assert (csr.to_dense(one.a) == csr.to_dense(csr.to_host(other.a))).all()


@pytest.mark.parametrize("width", [1, 2, 3, 8, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_are_gathered(here, width, dtype):
    rng = np.random.default_rng(0)
    b = rng.integers(0, 2**16, (50, width)).astype(csr.storage(dtype))
    ids, out = rng.permutation(50)[:31].astype(np.int64), here.empty(31, width, dtype)
    here.gather(here.xp.asarray(b), here.xp.asarray(ids), out)
    assert (out.get() == b[ids]).all()


@pytest.mark.parametrize("panel", [500, 10**6])
def test_a_streamed_matrix_multiplies(here, panel):
    a, b = several_gpus.whole(GRAPH), generate.dense(np.arange(GRAPH.m), np.arange(64), 64, 5)
    plan, expected = distributed.streamed(a, 64, panel=panel, machine=here), a.astype(np.float64) @ b
    out = here.empty(GRAPH.m, 64, "float32")
    for _ in range(2):
        out.fill(np.nan)
        plan(here.xp.asarray(b), out, timed=True)
        assert np.abs(out.get() - expected).max() < 1e-5 * np.abs(expected).max()
