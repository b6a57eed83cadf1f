"""On a GPU: generated matrices are those of the CPU, plans alone and streamed multiply, chunks and pieces included."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kernels import distributed
from kernels.distributed import comm, generate, machine, partition, pieces
from kernels.distributed.generate import Rmat, Stencil
from kernels.distributed.plans import Panels
from kernels.formats import bcsr, csr, half

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def here():
    """Without the fixture of all rooms, which compiles every kernel of theirs."""
    return distributed.Gpu(0)


def product(made, n: int) -> np.ndarray:
    """Of a generated matrix and the dense one of seed 5, in float64."""
    a = csr.to_scipy(generate.host_part(made, np.array([0, made.m]), 0).a).astype(np.float64)
    return a @ generate.dense(np.arange(made.m), np.arange(n), n, 5)


def right(plan, made, n: int) -> None:
    """Assert that two calls give the product, into a C that was full of NaN."""
    generate.fill_dense(plan.operand(), 0, 5)
    expected = product(made, n)
    for _ in range(2):
        for panel in plan.result().arrays:
            panel.fill(np.nan)
        out = plan(timed=True).whole().get()
        assert np.abs(out - expected).max() < 1e-5 * np.abs(expected).max()
    assert plan.times.multiplication > 0


@pytest.mark.parametrize("made", [Rmat(10, 16, 3), Stencil(7, 2)], ids=str)
def test_what_is_made_on_the_gpu_is_that_of_the_cpu(here, made):
    edges = generate.edges(made, 3)
    for rank in range(3):
        found, host = (x.a for x in (generate.part(made, edges, rank), generate.host_part(made, edges, rank)))
        for name in ("row_ptr", "col_idx", "val"):
            assert (getattr(csr.to_host(found), name) == getattr(host, name)).all(), name
    panels = Panels((0, 24, 40), [here.empty(20, 24, "float32"), here.empty(20, 16, "float32")])
    generate.fill_dense(panels, 33, 5)
    assert (panels.whole().get() == generate.dense(np.arange(33, 53), np.arange(40), 40, 5)).all()


@pytest.mark.parametrize("made", [Rmat(12, 16, 3), Stencil(15, 2)], ids=str)
@pytest.mark.parametrize("chunks", [1, 3])
@pytest.mark.parametrize("large", [False, True])
def test_a_plan_alone_multiplies(here, made, chunks, large, monkeypatch):
    """large: as parts that are too large to be tried."""
    if large:
        monkeypatch.setattr(machine, "TRIED", 0)
        monkeypatch.setattr(machine, "SAMPLE", 5000)
    part = generate.part(made, np.array([0, made.m]), 0)
    right(distributed.plan(part, 96, chunks=chunks, machine=here), made, 96)


@pytest.mark.parametrize("consumed", [False, True])
@pytest.mark.parametrize("made", [Rmat(12, 16, 3), Stencil(15, 2)], ids=str)
def test_slabs_multiply(here, made, consumed, monkeypatch):
    """As parts whose entries 32 bits do not count."""
    monkeypatch.setattr(partition, "INT32_MAX", 10000)
    monkeypatch.setattr(partition, "SLAB", 20000)
    part = replace(generate.part(made, np.array([0, made.m]), 0), consumed=consumed)
    entries = [x.col_idx.data.ptr for x in part.slabs]
    plan = distributed.plan(part, 64, machine=here)
    assert len(entries) > 2 and entries == [x.a.col_idx.data.ptr for x in plan.pieces[0]]
    right(plan, made, 64)


def test_without_memory_for_groups_of_rows_single_ones_multiply(here, monkeypatch):
    from kernels.library import plans

    asked, real, made = [], plans.built, Stencil(15, 2)

    def built(*given):
        asked.append(given[-1])
        if "rows=1" not in given[-1]:
            raise MemoryError
        return real(*given)

    monkeypatch.setattr(plans, "built", built)
    monkeypatch.setattr(machine, "TRIED", 0)
    plan = distributed.plan(generate.part(made, np.array([0, made.m]), 0), 96, machine=here)
    assert "rows=1" not in asked[0] and "rows=1" in asked[-1]
    right(plan, made, 96)


def test_pieces_are_those_of_the_host(here):
    a = csr.from_scipy(sp.random_array((90, 90), density=0.1, rng=np.random.default_rng(0)).tocsr())
    for units in (0, 40, 90):
        both = [sum(pieces.pieces(x, units, "auto", True), []) for x in (a, csr.to_device(a))]
        for one, other in zip(*both, strict=True):
            assert (one.rows, one.early, one.adds) == (other.rows, other.early, other.adds)
            assert (csr.to_dense(one.a) == csr.to_dense(csr.to_host(other.a))).all()


@pytest.mark.parametrize("width", [1, 2, 3, 8, 128])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_are_gathered(here, width, dtype):
    rng = np.random.default_rng(0)
    b = rng.integers(0, 2**16, (50, width)).astype(machine.element(dtype))
    ids, out = rng.permutation(50)[:31].astype(np.int64), here.empty(31, width, dtype)
    here.gather(here.xp.asarray(b), here.xp.asarray(ids), out)
    assert (out.get() == b[ids]).all()


def test_blocks_multiply(here):
    a = bcsr.random(256, 192, 0.2, 0, dtype="bfloat16")
    plan = distributed.plan(a, 128, machine=here, dtype="bfloat16", chunks=2)
    b = half.to_bits(generate.dense(np.arange(192), np.arange(128), 128, 5), "bfloat16")
    out = half.from_bits(plan(here.xp.asarray(b)).whole().get(), "bfloat16")
    expected = bcsr.to_dense(a).astype(np.float64) @ half.from_bits(b, "bfloat16")
    assert np.abs(out - expected).max() < 1e-2 * np.abs(expected).max()


@pytest.mark.parametrize("panel", [500, 10**6])
def test_a_streamed_matrix_multiplies(here, panel):
    made = Rmat(10, 16, 3)
    a = csr.to_scipy(generate.host_part(made, np.array([0, made.m]), 0).a)
    plan = distributed.streamed(a, 64, panel=panel, machine=here)
    b, expected = generate.dense(np.arange(made.m), np.arange(64), 64, 5), product(made, 64)
    for _ in range(2):
        out = plan(here.xp.asarray(b), timed=True).get()
        assert np.abs(out - expected).max() < 1e-5 * np.abs(expected).max()


def test_a_rank_alone_exchanges_with_itself(here):
    plan = distributed.plan(
        generate.part(Stencil(5), np.array([0, 125]), 0), 8, comm.alone(), machine=here, b="replicated", c="replicated"
    )
    assert plan.sent_bytes == 0 and plan.b_rows == plan.c_rows == (0, 125)
    right(plan, Stencil(5), 8)
