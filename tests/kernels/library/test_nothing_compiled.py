"""What CuPy has to compile for a plan: nothing. Arrays of a pretended GPU refuse what it has no machine code for."""

import contextlib
import importlib
import sys
from functools import partial

import numpy as np
import pytest
import racing
import scipy.sparse as sp
from pretend import Array, Strict, as_array

import kernels
from kernels import formats, jit
from kernels.formats import bcsr, csr, nm, two_four, wcsr
from kernels.library import operands, routes
from kernels.nm_spmm import analysis
from kernels.tensor_core_24 import gpcs

REFUSED = (
    *("__array_ufunc__", "__array_function__", "__setitem__", "astype", "fill", "take", "nonzero", "repeat"),
    *("sum", "any", "all", "min", "max", "argmax", "cumsum"),
)


@pytest.fixture
def strict(pretended, monkeypatch):
    """A pretended Hopper whose arrays only let themselves be made, sorted, looked at and copied whole."""
    device = pretended(racing.H200)
    monkeypatch.setattr(jit, "run_on_cupy_stream", lambda *_: None)
    monkeypatch.setitem(sys.modules, "cupy", Strict("cupy"))
    for name in REFUSED:
        refuse = partial(pytest.fail, f"{name} of a CuPy array would be compiled")
        monkeypatch.setattr(Array, name, lambda *_, refuse=refuse, **__: refuse(), raising=False)
    take = np.ndarray.__getitem__

    def item(self, index):
        every = index if isinstance(index, tuple) else (index,)
        assert not any(isinstance(x, np.ndarray | list) for x in every), "indexing by an array would be compiled"
        return take(self, index)

    def whole(what):
        def checked(self, *given, **options):
            assert self.flags.forc, "of an array with gaps it would be compiled"
            return what(self, *given, **options)

        return checked

    monkeypatch.setattr(Array, "__getitem__", item, raising=False)
    monkeypatch.setattr(Array, "reshape", whole(np.ndarray.reshape), raising=False)
    monkeypatch.setattr(Array, "copy", whole(lambda x, *_: as_array(np.asarray(x).copy("K"))), raising=False)
    return device


rng = np.random.default_rng(0)
M, K = 128, 192
DENSE = rng.standard_normal((M, K)).astype(np.float32)
HALF = DENSE.astype(np.float16)
CSR = sp.random(M, K, 0.1, format="csr", dtype=np.float32, random_state=0)
GIVEN = {
    "blocks": (bcsr.random(M, K, 0.6, 0, block=64, dtype="bfloat16"), {}),
    "low blocks": (bcsr.random(M, K, 0.6, 0, block=(16, 32), dtype="float16"), {}),
    "blocks of float32": (bcsr.random(M, K, 0.6, 0, block=64, dtype="float32"), {}),
    "blocks in TF32": (bcsr.random(M, K, 0.6, 0, block=64, dtype="float32"), {"accuracy": "tf32"}),
    "windows": (wcsr.from_csr(csr.from_scipy(CSR), window=16, pad=4, dtype="float32"), {}),
    "windows of 16 bits": (wcsr.from_csr(csr.from_scipy(CSR), window=16, pad=4, dtype="float16"), {}),
    "2:4": (two_four.random(M, K, "bfloat16", 0), {}),
    "2:4 of odd sizes": (two_four.random(M + 3, K + 5, "float16", 0), {}),
    "2:4 in float32": (two_four.random(M, K, "float16", 0), {"dtype": "float32"}),
    "N:M": (nm.random(K, M, 8, 32, 16, 0), {}),
    "N:M in TF32": (nm.random(K, M, 8, 32, 16, 0), {"accuracy": "tf32"}),
    "N:M in bfloat16": (nm.random(K, M, 8, 32, 16, 0), {"dtype": "bfloat16", "accuracy": "bf16"}),
    "N:M of vectors of 1": (nm.random(K, M, 2, 4, 1, 0), {}),
    "N:M in parts of 3 rows": (nm.random(K, M, 3, 8, 4, 0), {}),
    "prune 2:4": (HALF, {"prune": "2:4", "dtype": "float16"}),
    "prune 2:4 in float32": (DENSE, {"prune": "2:4"}),
    "prune 2:4 of float64": (DENSE.astype(np.float64), {"prune": "2:4"}),
    "prune nm": (DENSE, {"prune": "nm", "density": 0.25}),
    "prune nm in bfloat16": (DENSE, {"prune": "nm", "density": 0.25, "dtype": "bfloat16", "accuracy": "bf16"}),
    "prune block": (HALF, {"prune": "block", "density": 0.5, "dtype": "float16"}),
    "prune block in float32": (DENSE[:, ::2], {"prune": "block"}),
    "CSR of float64": (csr.from_scipy(CSR), {}),
}


def on_device(a):
    return as_array(a) if isinstance(a, np.ndarray) else formats.to_device(a)


@pytest.mark.parametrize("name", GIVEN)
def test_a_plan_lets_cupy_compile_nothing(strict, name):
    a, asked = GIVEN[name]
    made = kernels.plan(on_device(a), 64, tune=False, **asked)
    assert made._steps


#: What is tried, and what says what is right.
TRIED = {
    "blocks": ("opt5", "opt0"),
    "low blocks": ("opt5", "opt0"),
    "blocks in TF32": ("opt5", "opt0"),
    "2:4": ("mma_sp", "wgmma_one_stage"),
    "2:4 of odd sizes": ("mma_sp", "wgmma_one_stage"),
    "N:M": ("v1", "wide"),
    "N:M in parts of 3 rows": ("v1", "wide"),
}


@pytest.mark.parametrize("n", [64, 1024])
@pytest.mark.parametrize("name", TRIED)
def test_trials_let_cupy_compile_nothing(strict, monkeypatch, name, n):
    """The preparation of candidates and references; how they are timed and compared is the tuner's."""
    monkeypatch.setattr(gpcs, "places", lambda ordinal: as_array(np.zeros(132, np.int32)))
    monkeypatch.setattr(analysis, "device_of", lambda *_: None)
    monkeypatch.setattr(analysis, "class_of", lambda *_: "medium")
    a, asked = GIVEN[name]
    dtype = asked.get("dtype", getattr(a, "dtype", "float32"))
    accuracy = asked.get("accuracy", operands.resolved(None, dtype))
    way = routes.route(on_device(a), dtype, accuracy, strict)
    problem, system = routes.multiplication(way, n), importlib.import_module(f"kernels.{way.room}")
    configs = way.family.candidates(problem, strict)
    assert configs and all(routes.prepare(way, config, problem, strict).steps for config in configs)
    for reference in TRIED[name]:
        with contextlib.suppress(ValueError):  # it does not take every shape
            system.prepare(reference, problem, strict)
