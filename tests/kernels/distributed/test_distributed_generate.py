"""Generated matrices: any part is the same whoever makes it, and is what its model says."""

import functools
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from refused import refused

import kernels
from kernels import distributed
from kernels.distributed import generate, partition
from kernels.distributed.generate import Rmat, Stencil
from kernels.distributed.plans import Panels
from kernels.formats import csr

SMALL = (Rmat(8, 16, 3), Rmat(7, 5, 1), Stencil(5, 2), Stencil(1))


@functools.cache
def whole(made) -> sp.csr_array:
    return csr.to_scipy(generate.host_part(made, np.array([0, made.m]), 0).a)


ANY = whole(Rmat(7, 6, 2))


def streamed(a, **more):
    return distributed.streamed(a, 16, machine=distributed.Host(), **more)


@given(made=st.sampled_from(SMALL), cuts=st.lists(st.floats(0, 1), max_size=3), n=st.integers(1, 40))
@settings(deadline=None, max_examples=20)
def test_parts_are_the_whole_and_an_element_of_b_is_made_anew(made, cuts, n):
    edges = np.array([0, *sorted(int(x * made.m) for x in cuts), made.m])
    a = whole(made)
    found = [csr.to_scipy(generate.host_part(made, edges, p).a) for p in range(len(edges) - 1)]
    assert (sp.vstack(found) != a).nnz == 0 and (np.diff(a.indptr) == made.lengths(np.arange(made.m))).all()
    b = generate.dense(np.arange(made.m), np.arange(n), n, 7)
    for row, column in np.random.default_rng(0).integers((made.m, n), size=(9, 2)):
        assert generate.dense(np.array([row]), np.array([column]), n, 7) == b[row, column]


@given(bits=st.integers(2, 28), seed=st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_rows_are_scrambled_by_a_bijection(bits, seed):
    made = Rmat(bits, 1, seed)
    rows = np.unique(np.random.default_rng(0).integers(0, made.m, 500))
    vertices = made.vertices(rows)
    assert len(np.unique(vertices)) == len(rows) and vertices.max() < made.m and (made.rows_of(vertices) == rows).all()


def test_an_rmat_has_its_degrees_and_its_quadrants_and_a_stencil_is_a_mesh():
    made = Rmat(10, 16, 3)
    a = whole(made)
    assert a.nnz == pytest.approx(16 * made.m, rel=0.01)
    place = made.vertices(np.arange(made.m))
    row, column = place[np.repeat(np.arange(made.m), np.diff(a.indptr))], place[a.indices]
    half = made.m // 2
    shares = [((row >= half) == low) & ((column >= half) == right) for low in (0, 1) for right in (0, 1)]
    assert [share.mean() for share in shares] == pytest.approx([0.57, 0.19, 0.19, 0.05], abs=0.01)
    assert np.diff(a.indptr).max() == pytest.approx(16 * made.m * 0.76**10, rel=0.01), "a power law"
    mesh = whole(Stencil(6)) != 0
    assert mesh.nnz == (3 * 6 - 2) ** 3 and (mesh != mesh.T).nnz == 0


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Rmat(29, 4), "scale is 29"),
        (lambda: Rmat(4, 0), "degree is 0"),
        (lambda: Stencil(1291), "side is 1291"),
        (lambda: streamed(ANY, panel=0), "panel is 0"),
        (lambda: streamed(ANY)(np.zeros((3, 2), np.float32)), "B is float32 .*but must be float32 .128, 16"),
        (lambda: streamed(ANY)(np.zeros((128, 16), np.float32), np.zeros((128, 16))), "out is float64"),
        (lambda: streamed([ANY, ANY[:, 1:]]), r"slabs have \[127, 128\] columns"),
    ],
)
def test_what_is_no_matrix_is_one_sentence(make, says):
    refused(says, make)


# ---------------------------------------------------------------- the kernels


@pytest.mark.parametrize("made", SMALL[:3], ids=str)
def test_what_is_made_on_a_gpu_is_that_of_the_cpu(anything_there, made):
    edges = generate.edges(made, 3)
    assert edges.tolist() == partition.by_nonzeros(whole(made).indptr, 3).tolist()
    for rank in range(3):
        found, host = (x.a for x in (generate.part(made, edges, rank), generate.host_part(made, edges, rank)))
        for name in ("row_ptr", "col_idx", "val"):
            assert (getattr(csr.to_host(found), name) == getattr(host, name)).all(), name
    panels = Panels((0, 24, 40), [anything_there(np.zeros((20, width), np.float32)) for width in (24, 16)])
    generate.fill_dense(panels, 33, 5)
    for array, columns in zip(panels.arrays, (range(24), range(24, 40)), strict=True):
        assert (array.get() == generate.dense(np.arange(33, 53), np.array(columns), 40, 5)).all()


@pytest.mark.parametrize("make", [distributed.plan, distributed.streamed])
def test_without_cupy_there_is_no_gpu(monkeypatch, make):
    monkeypatch.setitem(sys.modules, "cupy", None)
    refused("CuPy, which is not installed here", make, ANY, 4, kind=kernels.NoGpu)
