"""Every way as far as it goes without a GPU: A converted, a system's kernel bound, B's and out's addresses found.

And what CuPy has to compile for that: nothing. Arrays of a pretended GPU refuse what it has no machine code for.
"""

import contextlib
import importlib
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import racing
import scipy.sparse as sp
from pretend import Array, Strict, as_array
from refused import says

import kernels
from kernels import autotune, formats, jit
from kernels.async_sparse import any_csr, windows
from kernels.formats import bcsr, csr, nm, two_four, wcsr
from kernels.formats.half import Half
from kernels.library import direct, explanation, operands, routes
from kernels.tensor_core_24 import gpcs

M, K = 128, 192
KINDS = {
    "csr": csr.from_scipy(sp.random(M, K, 0.1, format="csr", dtype=np.float32, random_state=0)),
    "blocks": bcsr.random(M, K, 0.6, 0, block=64, dtype="bfloat16"),
    "small blocks": bcsr.random(M, K, 0.6, 0, block=(32, 16), dtype="float16"),
    "tf32": bcsr.random(M, K, 0.6, 0, block=64, dtype="tf32"),
    "2:4": two_four.random(M, K, "bfloat16", 0),
    "2:4 float16": two_four.random(M, K, "float16", 0),
    "nm": nm.random(K, M, 8, 32, 16, 0),
    "csr bfloat16": csr.Csr(2, 2, np.array([0, 1, 2], np.int32), np.array([1, 0], np.int32), np.ones(2, np.float32)),
}
ROWS = [
    ("csr", "float32", None),
    ("blocks", "bfloat16", None),
    ("small blocks", "float16", None),
    ("tf32", "float32", "tf32"),
    ("tf32", "float32", None),
    ("2:4", "bfloat16", None),
    ("2:4 float16", "float16", None),
    ("nm", "float32", None),
    ("nm", "float32", "tf32"),
    ("nm", "bfloat16", "bf16"),
    ("csr bfloat16", "bfloat16", None),
]
HOPPER_ONLY = {("nm", "bfloat16"), ("csr bfloat16", "bfloat16")}


def array(rows: int, columns: int, dtype: str, order: str):
    x = as_array(np.zeros((rows, columns), np.float32 if dtype == "float32" else np.uint16, order))
    return x if dtype == "float32" else Half(dtype, x)


def address(x) -> int:
    return (x.bits if isinstance(x, Half) else x).data.ptr


def addresses(given: tuple) -> set[int]:
    """All that the arguments of a launch point to, by themselves or in a tensor map."""
    maps = {x.address for x in given if isinstance(x, SimpleNamespace) and hasattr(x, "address")}
    return maps | {x for x in given if type(x) is int}


@pytest.mark.parametrize("gpu", [racing.H200, racing.A100], ids=lambda x: x.name)
@pytest.mark.parametrize("n", [64, 33, 1])
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("kind", "dtype", "accuracy"), ROWS)
def test_a_call_points_the_kernel_to_its_arrays_and_to_no_other(
    kind, dtype, accuracy, order, n, gpu, pretended, monkeypatch
):
    if (kind, dtype) in HOPPER_ONLY and gpu is not racing.H200:
        pytest.skip("has no kernel on this GPU")
    monkeypatch.setattr(routes, "_laid", lambda *_: pytest.fail("without trials, B and out are made"))
    device = pretended(gpu)
    made = kernels.plan(KINDS[kind], n, dtype=dtype, accuracy=accuracy, order=order, tune=False)
    seen = []
    for _ in range(2):
        b, out = array(made.k, n, dtype, made.b_order), array(made.m, n, dtype, made.out_order)
        device.launched.clear()
        assert made(b, out) is out
        assert all("combine" not in step[2] for step in device.launched), "as it is"
        found = [addresses(step[3:]) for step in device.launched]
        assert any(address(b) in x for x in found) and any(address(out) in x for x in found)
        seen.append([x - {address(b), address(out)} for x in found])
    assert seen[0] == seen[1], "nothing else changes from call to call"
    out = array(made.m, n, dtype, "F" if made.out_order == "C" else "C")
    device.launched.clear()
    made(b, out)
    assert [step[2].partition(":")[0] for step in device.launched].count("combine") == (n > 1)


@pytest.mark.parametrize("how", [{}, {"accuracy": "tf32"}, {"in_place": True}])
def test_a_plan_that_is_asked_to_adds_up_in_one_order(how, pretended):
    pretended(racing.H200)
    first, made = (kernels.plan(KINDS["csr"], 64, tune=False, deterministic=x, **how) for x in (False, True))
    assert routes.in_order(made._config) == made._config == routes.in_order(first._config)


@pytest.mark.parametrize("edited", ["", "unit width=7", "unit nothing", "unit height=3", "nothing"])
@pytest.mark.parametrize("kind", ["csr", "blocks", "2:4", "nm"])
def test_a_saved_plan_is_the_same_plan_whose_choice_is_made_again_where_it_was_edited(
    kind, edited, pretended, tmp_path, monkeypatch
):
    pretended(racing.H200)
    a, path = KINDS[kind], tmp_path / "some.plan"
    made = kernels.plan(a, 64, dtype="float32" if kind in ("csr", "nm") else "bfloat16", tune=False)
    right = repr(made)
    with monkeypatch.context() as patch:
        patch.setattr(kernels.Plan, "choice", edited or made.choice)
        made.save(path)
    loaded = kernels.load_plan(path, tune=False)
    assert repr(loaded) == right and isinstance(loaded.a.val, Array)
    assert (formats.to_dense(formats.to_host(loaded.a)) == formats.to_dense(a)).all()


@pytest.mark.parametrize("accuracy", ["fp32", "tf32"])
def test_infinite_values_are_never_multiplied_in_three_products(accuracy, pretended, monkeypatch):
    """Whatever was kept for the pattern, or saved with a plan."""
    pretended(racing.H200)
    exact = windows.Windows(8, 1, True)
    monkeypatch.setattr(any_csr, "ranked", lambda *_: [exact, windows.Union(2)])
    kept = []
    monkeypatch.setattr(
        routes.autotune,
        "look_up",
        lambda choices, key, device, fits, *_, **__: kept.append(fits(exact)),
    )
    a = KINDS["csr"]
    assert kernels.plan(a, 64, accuracy=accuracy, tune=False).choice.startswith("windows")
    val = a.val.copy()
    val[7] = np.inf
    a = csr.Csr(a.m, a.k, a.row_ptr, a.col_idx, val)
    made = kernels.plan(a, 64, accuracy=accuracy, tune=False)
    assert made.choice.startswith("union rows=2") and kept == [True, False]
    way = routes.Route("async_sparse", "auto_fp32", "float32", a=made.a)
    p = routes.multiplication(way, 64)
    assert routes.written(way, f"windows {autotune.knobs(exact)}", p, racing.H200) is None
    says(["infinite", "union_rows"], lambda: routes.prepare(way, exact, p, racing.H200))


@pytest.mark.parametrize(
    ("change", "launched"),
    [
        ({}, ["direct<int, int, Float, 2>"]),
        ({"n": 132}, ["direct<int, int, Float, 4>"]),
        ({"n": 33}, ["direct<int, int, Float, 1>"]),
        ({"check": False, "longest": 10**6}, ["direct<int, int, Float, 2>"]),
        ({"longest": direct.LONGEST + 1}, ["subwarp"]),
        ({"longest": direct.LONGEST}, ["direct<int, int, Float, 2>"]),
        ({"accuracy": "fp32"}, ["direct<int, int, Float, 2>"]),
        ({"accuracy": "tf32"}, ["subwarp"]),
        ({"order": "F"}, ["combine<float>", "subwarp"]),
        ({"a": KINDS["csr"]}, ["subwarp"]),
    ],
)
def test_csr_that_lies_on_the_gpu_is_multiplied_as_it_is_or_else_by_a_plan(change, launched, pretended, monkeypatch):
    device, how = (
        pretended(racing.H200),
        {"n": 64, "order": "C", "longest": 5, "check": True, "accuracy": None} | change,
    )
    a, n = how.get("a") or formats.to_device(KINDS["csr"]), how["n"]
    monkeypatch.setattr(direct.intake, "looked", lambda *_, **__: SimpleNamespace(longest=how["longest"]))
    b, out = array(K, n, "float32", how["order"]), array(M, n, "float32", "C")
    assert kernels.spmm(a, b, out=out, alpha=2.0, check=how["check"], accuracy=how["accuracy"]) is out
    named = [step[2].partition(": ")[2] for step in device.launched]
    assert all(name.startswith(right) for name, right in zip(named, launched, strict=False)), named
    if launched[0].startswith("direct"):
        ((_, config, _, row_ptr, col_idx, val, *given),) = device.launched
        words, width = int(launched[0][-2]), n
        assert (row_ptr, col_idx, val) == tuple(address(x) for x in (a.row_ptr, a.col_idx, a.val))
        assert given == [address(b), width, address(out), width, M, width, 2.0, 0.0]
        assert config.grid == -(-M // direct.WARPS) * -(-width // (32 * words))


# ---------------------------------------------------------------- why a plan is as it is


@pytest.mark.parametrize("gpu", [racing.H200, racing.A100], ids=lambda x: x.name)
@pytest.mark.parametrize(("kind", "dtype", "accuracy"), ROWS)
def test_a_plan_says_what_it_rests_on_and_what_would_be_faster(kind, dtype, accuracy, gpu, pretended):
    if (kind, dtype) in HOPPER_ONLY and gpu is not racing.H200:
        pytest.skip("has no kernel on this GPU")
    pretended(gpu)
    for n in (1, 64, 512):
        made = kernels.plan(KINDS[kind], n, dtype=dtype, accuracy=accuracy, tune=False)
        said, of_csr = made.explain(), isinstance(made.a, csr.Csr)
        assert (said.m, said.k) == made.shape and made.choice in said.kernel and said.prepare_ms == made.prepare_ms
        assert (said.longest is not None) == of_csr and all(1 <= times <= rows for rows, times in said.shared)
        on = explanation.MODELLED if of_csr and gpu is racing.H200 else gpu.name
        assert said.on == on and (said.expected_us is None or 1 < said.expected_us < 1000)
        assert (said.cusparse_us is not None) == (on == explanation.MODELLED)
        assert str(said).endswith(said.advice) and str(said.nnz) in str(said)
    assert str(kernels.explain(KINDS[kind], n, dtype=dtype, accuracy=accuracy)).splitlines()[0] in str(said)


@pytest.mark.parametrize(
    ("expected", "dense", "cusparse", "right"),
    [
        (None, None, None, "time it"),
        (10.0, None, None, "fastest"),
        (10.0, 20.0, 15.0, "from 400 multiplications on"),
        (10.0, 20.0, 10.0, "fastest."),
        (10.0, 8.0, 15.0, "a dense product to be faster: 8 us"),
        (10.0, 8.0, 7.0, "cuSPARSE to be faster: 7 us"),
        (10.0, 2000.0, 10.1, "from 20000 multiplications on"),
    ],
)
def test_the_advice_is_what_is_expected_to_be_fastest(expected, dense, cusparse, right):
    times = {"expected_us": expected, "dense_us": dense, "cusparse_us": cusparse}
    assert right in explanation.Explanation(9, 9, 9, 5, "float32", "fp32", "x", 2.0, "a GPU", **times).advice


# ---------------------------------------------------------------- what CuPy would compile

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

    for name, what in {
        "__getitem__": item,
        "reshape": whole(np.ndarray.reshape),
        "copy": whole(lambda x, *_: as_array(np.asarray(x).copy("K"))),
    }.items():
        monkeypatch.setattr(Array, name, what, raising=False)
    return device


rng = np.random.default_rng(0)
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
    assert kernels.plan(on_device(a), 64, tune=False, **asked)._steps


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
