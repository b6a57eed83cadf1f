"""Generated matrices: any part is the same whoever makes it, and is what its model says; streamed ones multiply."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import kernels
from kernels import distributed, jit, splitmix
from kernels.distributed import generate, partition, plans, streaming
from kernels.distributed.generate import Rmat, Stencil
from kernels.formats import csr

SMALL = (Rmat(10, 16, 3), Rmat(9, 5, 1), Stencil(7, 2), Stencil(1))
EMULATED = """
#include <algorithm>
#include <cmath>
using std::max, std::min;
#define __device__
#define __global__
#define __forceinline__ inline
#define __restrict__
struct Place { unsigned x, y, z; };
static Place blockIdx, threadIdx, blockDim{256, 1, 1}, gridDim{2, 1, 1};
static int __popc(unsigned x) { return __builtin_popcount(x); }
#include "generate.cu"
#define EACH(threads) \\
    for (blockIdx.x = 0; blockIdx.x < (threads + 255) / 256; ++blockIdx.x) \\
        for (threadIdx.x = 0; threadIdx.x < 256; ++threadIdx.x)
extern "C" {
void lengths(int rows, u64 begin, int bits, unsigned f, unsigned s, u64 key, double* mean, int* to)
{ EACH(rows) rmat_lengths(rows, begin, bits, f, s, key, mean, to); }
void rmat(int rows, u64 begin, int bits, unsigned f, unsigned s, unsigned bf, unsigned bs, unsigned upper,
          unsigned lower, u64 key, int* row_ptr, int* col_idx, float* val)
{ EACH(32 * rows) rmat_entries(rows, begin, bits, f, s, bf, bs, upper, lower, key, row_ptr, col_idx, val); }
void stencil(int rows, u64 begin, int side, u64 key, int* row_ptr, int* col_idx, float* val)
{ EACH(rows) stencil_entries(rows, begin, side, key, row_ptr, col_idx, val); }
void dense(u64 size, int width, u64 begin, u64 right, u64 n, u64 key, float* out)
{ EACH(512) dense_rows(size, width, begin, right, n, key, out); }
}
"""


def whole(made) -> sp.csr_array:
    return csr.to_scipy(generate.host_part(made, np.array([0, made.m]), 0).a)


@pytest.mark.parametrize("made", SMALL, ids=str)
@pytest.mark.parametrize("parts", [1, 3])
def test_parts_are_the_whole(made, parts):
    edges = np.linspace(0, made.m, parts + 1).astype(np.int64)
    found = [csr.to_scipy(generate.host_part(made, edges, p).a) for p in range(parts)]
    assert (sp.vstack(found) != whole(made)).nnz == 0


@pytest.mark.parametrize("bits", [2, 3, 9, 28])
def test_rows_are_scrambled_by_a_bijection(bits):
    made = Rmat(bits, 1, 5)
    rows = np.unique(np.random.default_rng(0).integers(0, made.m, 4000))
    vertices = made.vertices(rows)
    assert len(np.unique(vertices)) == len(rows) and vertices.max() < made.m
    assert (made.rows_of(vertices) == rows).all()


def test_an_rmat_has_its_degrees_and_its_quadrants():
    made = Rmat(12, 16, 3)
    a = whole(made)
    assert a.nnz == pytest.approx(16 * made.m, rel=0.01)
    place = made.vertices(np.arange(made.m))
    row, column = place[np.repeat(np.arange(made.m), np.diff(a.indptr))], place[a.indices]
    half = made.m // 2
    shares = [((row >= half) == low) & ((column >= half) == right) for low in (0, 1) for right in (0, 1)]
    for share, expected in zip(shares, (0.57, 0.19, 0.19, 0.05), strict=True):
        assert share.mean() == pytest.approx(expected, abs=0.01)
    longest = np.diff(a.indptr).max()
    assert longest > 50 * 16, "a power law has rows much longer than the mean"
    assert longest == pytest.approx(16 * made.m * 0.76**12, rel=0.01)


def test_a_stencil_is_a_mesh():
    a = whole(Stencil(6))
    assert a.nnz == (3 * 6 - 2) ** 3
    pattern = (a != 0).astype(int)
    assert (pattern != pattern.T).nnz == 0
    assert (np.diff(a.indptr) == Stencil(6).lengths(np.arange(216))).all()


def test_a_row_of_the_product_is_made_anew():
    made = Rmat(9, 8, 1)
    a, rows, columns = whole(made), np.arange(made.m), np.array([0, 5, 39])
    b = generate.dense(rows, np.arange(40), 40, 7).astype(np.float64)
    for row in (0, 17, int(np.diff(a.indptr).argmax())):
        value, size = generate.expected(made, row, columns, 40, 7)
        assert value == pytest.approx((a[[row]].astype(float) @ b)[0][columns])
        assert (size >= np.abs(value)).all()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Rmat(29, 4), "scale is 29"),
        (lambda: Rmat(4, 0), "degree is 0"),
        (lambda: Rmat(4, 1, a=0.9), "must be shares over 0"),
        (lambda: Stencil(1291), "side is 1291"),
    ],
)
def test_what_is_no_matrix_is_one_sentence(make, says):
    with pytest.raises(ValueError, match=says):
        make()


# ---------------------------------------------------------------- the kernels, compiled for the host


@pytest.fixture(scope="module")
def emulated(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("there is no g++")
    folder = tmp_path_factory.mktemp("emulated")
    (folder / "emulated.cpp").write_text(EMULATED)
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-I", generate.SOURCE.parent, "-I", jit.COMMON]
        + ["-o", folder / "emulated.so", folder / "emulated.cpp"],
        check=True,
    )
    return ctypes.CDLL(str(folder / "emulated.so"))


def at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


@pytest.mark.parametrize("made", SMALL[:3], ids=str)
def test_kernels_make_the_same_entries(emulated, made):
    u32, u64 = ctypes.c_uint, ctypes.c_uint64
    begin, end = made.m // 5, made.m * 4 // 5
    rows = end - begin
    host = generate.host_part(made, np.array([0, begin, end, made.m]), 1).a
    lengths, row_ptr = np.zeros(rows, np.int32), host.row_ptr
    col_idx, val = np.zeros_like(host.col_idx), np.zeros_like(host.val)
    key = u64(splitmix.key(made.seed, generate._ENTRIES))
    into = at(row_ptr), at(col_idx), at(val)
    if isinstance(made, Rmat):
        factors, mean = [u32(x) for x in made._factors()], made._mean()
        other = u64(splitmix.key(made.seed, generate._LENGTHS))
        emulated.lengths(rows, u64(begin), made.scale, *factors, other, at(mean), at(lengths))
        assert (lengths == np.diff(row_ptr)).all()
        more = [u32(x) for x in (*made._back(), *made._thresholds())]
        emulated.rmat(rows, u64(begin), made.scale, *factors, *more, key, *into)
    else:
        emulated.stencil(rows, u64(begin), made.side, key, *into)
    assert (col_idx == host.col_idx).all() and (val == host.val).all()


def test_kernels_make_the_same_dense_rows(emulated):
    out, u64 = np.zeros((20, 8), np.float32), ctypes.c_uint64
    key = u64(splitmix.key(5, generate._DENSE))
    emulated.dense(u64(160), 8, u64(33), u64(16), u64(40), key, at(out))
    assert (out == generate.dense(np.arange(33, 53), np.arange(16, 24), 40, 5)).all()


@pytest.mark.parametrize("entry", generate.ENTRIES)
@pytest.mark.parametrize("arch", jit.TARGETS)
def test_generators_compile_without_spills(entry, arch):
    assert not jit.resources(jit.compile_cubin(generate.SOURCE, entry, arch)).spills


# ---------------------------------------------------------------- streamed


@pytest.mark.parametrize("panel", [1, 50, 10**6])
def test_a_streamed_matrix_multiplies(panel):
    a = whole(Rmat(8, 6, 2))
    made = distributed.streamed(a, 16, panel=panel, machine=distributed.Host())
    b = np.random.default_rng(0).standard_normal((256, 16)).astype(np.float32)
    for _ in range(2):
        out = made(b, timed=True)
        assert np.abs(out - a.astype(np.float64) @ b).max() < 1e-4
    assert made.bytes == 8 * a.nnz and made.times.total > 0
    assert [x for x, _ in made.panels] == [0, *(y for _, y in made.panels[:-1])]


def test_a_streamed_matrix_may_come_in_slabs(monkeypatch):
    a = whole(Rmat(8, 6, 2))
    b = np.random.default_rng(0).standard_normal((256, 16)).astype(np.float32)
    monkeypatch.setattr(streaming, "INT32_MAX", 1000)
    monkeypatch.setattr(partition, "INT32_MAX", 1000)
    monkeypatch.setattr(partition, "SLAB", 400)
    for given in ([a[:100], a[100:101], a[101:]], a):
        made = distributed.streamed(given, 16, panel=300, machine=distributed.Host())
        assert np.abs(made(b) - a.astype(np.float64) @ b).max() < 1e-4
        assert made.bytes == 8 * a.nnz and len(made.panels) > 3
        assert [x for x, _ in made.panels] == [0, *(y for _, y in made.panels[:-1])]
    with pytest.raises(ValueError, match=r"slabs have \[255, 256\] columns"):
        distributed.streamed([a, a[:, 1:]], 16, panel=300, machine=distributed.Host())


@pytest.mark.parametrize("make", [distributed.plan, partial(distributed.streamed, panel=50)], ids=["plan", "streamed"])
def test_indices_of_large_matrices_are_looked_at_before_they_are_cut(monkeypatch, make):
    for module in (streaming, partition, plans):
        monkeypatch.setattr(module, "INT32_MAX", 100)
    a = whole(Rmat(8, 6, 2))
    for given, name in ((a.tocsc(), "row_idx"), (a, "col_idx")):
        given.indices = given.indices.copy()
        given.indices[5] = 10**7
        with pytest.raises(ValueError, match=rf"{name}\[5\] is 10000000, outside"):
            make(given, 16, machine=distributed.Host())
    a = whole(Rmat(8, 6, 2))
    a.indptr[3] = 10**7
    with pytest.raises(ValueError, match="falls from 10000000"):
        make(a, 16, machine=distributed.Host())


@pytest.mark.parametrize("make", [distributed.plan, distributed.streamed])
def test_without_cupy_there_is_no_gpu(monkeypatch, make):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(kernels.NoGpu, match="CuPy, which is not installed here"):
        make(whole(Rmat(4, 3, 2)), 4)


def test_panels_have_at_most_so_many_entries_or_a_row():
    row_ptr = np.array([0, 3, 4, 20, 20, 25, 26])
    assert streaming.cut(row_ptr, 5) == [(0, 2), (2, 3), (3, 5), (5, 6)]
    assert streaming.cut(np.array([0]), 5) == []


def test_what_cannot_be_streamed_is_one_sentence():
    made = distributed.streamed(sp.csr_array((3, 4), dtype=np.float32), 2, machine=distributed.Host())
    with pytest.raises(ValueError, match=r"B is float32 \(3, 2\), but must be float32 \(4, 2\)"):
        made(np.zeros((3, 2), np.float32))
    b = np.zeros((4, 2), np.float32)
    for out in (np.zeros((3, 2)), np.zeros((4, 2), np.float32), np.zeros((3, 1), np.float32)):
        with pytest.raises(ValueError, match=r"^out is float.* but must be float32 \(3, 2\)$"):
            made(b, out)
    with pytest.raises(ValueError, match="panel is 0"):
        distributed.streamed(sp.csr_array((3, 4)), 2, panel=0)
