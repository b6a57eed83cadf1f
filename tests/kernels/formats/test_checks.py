"""What the GPU finds in a format's arrays is what the host finds: the same fault at the same place, in one launch.

Without a GPU the source is compiled for the host, where its threads run one after the other.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from refused import said, says

from kernels import formats, jit
from kernels.formats import arrays, bcsr, checks, csr, nm, two_four, wcsr

_SHIM = """
#define __global__
#define __device__ static
struct Place { int x; };
static Place blockIdx, blockDim, threadIdx, gridDim;
static void atomicMin(unsigned long long* at, unsigned long long x) { if (x < *at) *at = x; }
#include "checks.cu"
template <typename Work> void launch(int blocks, Work work) {
    gridDim.x = blocks, blockDim.x = 64;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < 64; ++threadIdx.x) work();
}
#define HOST(name, entry, given, ...) \\
    extern "C" void name(int blocks, given, u64* found) { launch(blocks, [&] { entry(__VA_ARGS__, found); }); }
#define GIVEN(...) __VA_ARGS__
#define BLOCKS(bits) GIVEN(const int* p, const int* i, const bits* v, i64 n, i64 m, i64 k, int high, int wide)
HOST(bcsr_uint16, bcsr<u16>, BLOCKS(u16), p, i, v, n, m, k, high, wide)
HOST(bcsr_float32, bcsr<unsigned>, BLOCKS(unsigned), p, i, v, n, m, k, high, wide)
HOST(wcsr_uint16, wcsr<u16>, BLOCKS(u16), p, i, v, n, m, k, high, wide)
HOST(wcsr_float32, wcsr<unsigned>, BLOCKS(unsigned), p, i, v, n, m, k, high, wide)
HOST(two_four_, two_four, GIVEN(const u16* m, const u16* v, i64 rows, i64 k, unsigned pairs), m, v, rows, k, pairs)
HOST(nm_, nm, GIVEN(const int* i, const unsigned* v, i64 k, i64 n, i64 keep, i64 group, i64 w, i64 q, i64 surplus),
     i, v, k, n, keep, group, w, q, surplus)
HOST(compressed_, (compressed<int, int>), GIVEN(const int* p, i64 rows, const int* i, i64 entries, i64 past),
     p, rows, i, entries, past)
"""


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """The kernels on the host: (name, *arguments) -> the first fault."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no compiler for the host here")
    source = tmp_path_factory.mktemp("checks") / "host.cpp"
    source.write_text(_SHIM)
    made = source.with_suffix(".so")
    command = [compiler, "-O1", "-shared", "-fPIC", f"-I{checks.SOURCE.parent}", source, "-o", made]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(made))

    def run(name: str, *arguments):
        found = np.full(8, 2**64 - 1, np.uint64)
        given = [ctypes.c_void_p(x.ctypes.data) if isinstance(x, np.ndarray) else x for x in arguments]
        getattr(library, name)(2, *given, ctypes.c_void_p(found.ctypes.data))
        return checks.first_of(found)

    return run


def sparse(rng) -> csr.Csr:
    m, k = int(rng.integers(0, 120)), int(rng.integers(1, 120))
    density = float(rng.choice([0.0, 0.02, 0.3]))
    made = sp.random(m, k, density, format="csr", dtype=np.float32, random_state=int(rng.integers(2**31)))
    return csr.from_scipy(made)


def spoiled(rng, a, choices: dict):
    """The matrix with up to two numbers of one of its arrays changed, mostly; choices: array -> what is put there."""
    name = rng.choice([*choices, "none"])
    if name == "none" or getattr(a, name).size == 0:
        return a
    x = getattr(a, name).copy()
    for _ in range(rng.integers(1, 3)):
        x.reshape(-1)[rng.integers(x.size)] = rng.choice(choices[name])
    return replace(a, **{name: x})


WHOLE = [-1, 0, 1, 2, 3, 5, 8, 16, 1000, 2**31 - 1, -(2**31)]
I64, INT = ctypes.c_longlong, ctypes.c_int


def blocks(rng, host):
    sides = tuple(int(x) for x in rng.choice([16, 32], 2))
    a = bcsr.from_csr(sparse(rng), block=sides, dtype=str(rng.choice(["float32", "float16"])))
    a = spoiled(rng, a, {"row_ptr": WHOLE, "col_idx": WHOLE, "val": [1]})
    sizes = I64(a.blocks), I64(a.m), I64(a.k), *map(INT, a.block)
    return arrays.gravest(bcsr._faults(a)), host(f"bcsr_{a.val.dtype.name}", a.row_ptr, a.col_idx, a.val, *sizes)


def windows(rng, host):
    window, pad = int(rng.choice([1, 4, 16, 64])), int(rng.choice([1, 4, 8]))
    a = wcsr.from_csr(sparse(rng), window=window, pad=pad, dtype=str(rng.choice(["float32", "bfloat16"])))
    a = spoiled(rng, a, {"row_ptr": WHOLE, "col_idx": WHOLE, "val": [1]})
    sizes = I64(a.columns), I64(a.m), I64(a.k), INT(window), INT(pad)
    return arrays.gravest(wcsr._faults(a)), host(f"wcsr_{a.val.dtype.name}", a.row_ptr, a.col_idx, a.val, *sizes)


def pairs(rng, host):
    m, k = (int(x) for x in rng.integers(1, 90, 2))
    a = two_four.random(m, k, "float16", int(rng.integers(2**31)))
    a = spoiled(rng, a, {"meta": [0, 0x4444, 0xFFFF, 0x1234], "val": [1, 0x8000, 0x3C00]})
    valid = ctypes.c_uint(two_four._IS_PAIR)
    return two_four.first_fault(a), host("two_four_", a.meta, a.val, I64(m), I64(k), valid)


def vectors(rng, host):
    k, n, group, vector = (int(x) for x in rng.integers(1, 40, 4))
    b = nm.random(k, n, int(rng.integers(1, group + 1)), group, vector, int(rng.integers(2**31)))
    surplus = nm._surplus(k, b.keep, group)
    b = spoiled(rng, b, {"index": [*range(k), -1, k, 2**31 - 1], "val": [2.0]})
    sizes = map(I64, (k, n, b.keep, group, b.w, b.q, surplus))
    return arrays.gravest(nm._faults(b)), host("nm_", b.index, b.val, *sizes)


@pytest.mark.parametrize("case", [blocks, windows, pairs, vectors])
def test_the_source_finds_the_hosts_first_fault(host, case):
    kinds = set()
    for seed in range(250):
        expected, found = case(np.random.default_rng(seed), host)
        assert found == expected, seed
        kinds.add(expected and expected[0])
    assert None in kinds and len(kinds) > 2


@pytest.mark.parametrize(
    ("ptr", "index", "fault"),
    [
        ([0, 1, 3], [0, 4, 2], None),
        ([1, 1, 3], [0, 4, 2], (0, 0)),
        ([0, 4, 3], [0, 4, 2], (1, 1)),
        ([0, 1, 4], [9, 4, 2], (2, 2)),
        ([0, 1, 2], [0, 4, 5], (3, 2)),
        ([0, 1, 3], [0, -1, 5], (3, 1)),
    ],
)
def test_pointers_and_indices_of_a_compressed_matrix(host, ptr, index, fault):
    ptr, index = np.array(ptr, np.int32), np.array(index, np.int32)
    assert host("compressed_", ptr, I64(len(ptr) - 1), index, I64(len(index)), I64(5)) == fault


@pytest.mark.parametrize("arch", (jit.FAMILIES[0], jit.FAMILIES[-1]))
def test_every_check_compiles_without_spills(arch):
    found = jit.reports(jit.compile_cubin(checks.SOURCE, entry, arch) for entry in checks.ENTRIES)
    assert not any(used.spills for used, _ in found)


# ---------------------------------------------------------------- arrays at all


def good() -> csr.Csr:
    return csr.Csr(2, 2, np.array([0, 1, 1], np.int32), np.zeros(1, np.int32), np.ones(1, np.float32))


@pytest.mark.parametrize(
    ("made", "name", "value"),
    [
        (good(), "col_idx", [0]),
        (bcsr.from_csr(good(), block=16), "val", None),
        (wcsr.from_csr(good()), "row_ptr", 3),
        (two_four.random(4, 16, "float16", 0), "meta", []),
        (nm.random(4, 4, 2, 4, 1, 0), "index", None),
    ],
)
def test_what_is_no_array_is_refused(made, name, value):
    says([f"{name} is builtins.{type(value).__name__}"], lambda: formats.validate(replace(made, **{name: value})))


# ---------------------------------------------------------------- on a GPU


def wrong() -> list:
    """Matrices of every format with a fault of each kind that a few changes make."""
    found = []
    a = csr.from_scipy(sp.random(90, 70, 0.2, format="csr", dtype=np.float32, random_state=1))
    changes: list = [
        (a, {"row_ptr": [(0, 1), (2, 999), (-1, 2)], "col_idx": [(4, 99), (3, -1)]}),
        (bcsr.from_csr(a, block=16), {"row_ptr": [(0, 1), (2, 9), (-1, 2)], "col_idx": [(4, 99), (3, 0)]}),
        (bcsr.from_csr(a, block=32, dtype="float32"), {"val": [((-1, -1, -1), 1), ((2, 0, 31), 1)]}),
        (wcsr.from_csr(a), {"row_ptr": [(0, 8), (1, 3), (-1, 8)], "col_idx": [(0, 70), (1, 0), (3, -2)]}),
        (wcsr.from_csr(a, dtype="float32"), {"val": [((0, -1), 1), ((63, 72), 1)]}),
        (two_four.random(33, 41, "bfloat16", 0), {"meta": [((20, 1), 0)], "val": [((32, -1), 0x3F80)]}),
        (nm.random(41, 30, 5, 16, 4, 0), {"index": [((7, 3), 40), ((1, 0), 0), ((3, 2), -1)]}),
        (nm.random(33, 30, 5, 16, 4, 0), {"index": [((-1, 0), 31)], "val": [((-1, 4), 2.0)]}),
    ]
    for made, places in changes:
        for name, wanted in places.items():
            for at, value in wanted:
                x = getattr(made, name).copy()
                x[at] = value
                found.append(replace(made, **{name: x}))
    return found


@pytest.mark.gpu
def test_a_fault_on_the_gpu_is_said_as_on_the_host(device):
    every = wrong()
    here = [said(lambda a=a: formats.validate(a)) for a in every]
    assert all(here) and len(set(here)) > 18
    assert [said(lambda a=a: formats.validate(formats.to_device(a))) for a in every] == here


_ALONE = """
import numpy as np, scipy.sparse as sp
from kernels import formats
from kernels.formats import arrays, bcsr, csr, nm, two_four, wcsr
a = csr.from_scipy(sp.random(900, 700, 0.02, format="csr", dtype=np.float32, random_state=1))
for made in (bcsr.from_csr(a, block=32), wcsr.from_csr(a), two_four.random(64, 72, "float16", 0),
             nm.random(64, 32, 2, 8, 4, 0)):
    there = formats.to_device(made)
    assert formats.validate(there) is there
"""


@pytest.mark.gpu
def test_nothing_is_compiled_by_cupy(device, tmp_path):
    root = str(jit.ROOT.parent)
    surroundings = os.environ | {"CUPY_CACHE_DIR": str(tmp_path), "PYTHONPATH": root}
    subprocess.run([sys.executable, "-c", _ALONE], check=True, env=surroundings, cwd=root)
    assert not list(tmp_path.rglob("*.cubin"))
