"""Programs about kernels: whether records are of these, and what other GPUs get, by force on this one."""

import importlib
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest
from refused import refused

from artifact import paths
from artifact.measure import portable, run, same_code, verification
from artifact.measure.portable import Point
from kernels import jit
from kernels.formats import csr
from kernels.library import routes

CSR = {"dtype": "float32", "format": "csr", "reorder": ""}


def test_what_two_trees_make_of_the_entries():
    here = {"a.cu: a<1>": "FFMA", "a.cu: a<2>": "FFMA", "b.cu: b": "MOV"}
    found = same_code.compare(here, {"a.cu: a<1>": "FFMA", "a.cu: a<2>": "FADD", "c.cu: c": "MOV"})
    assert found["same"] == ["a.cu: a<1>"]
    assert same_code.said("room", "abc1234", found) == (
        "room at abc1234: 1 kernels with the same machine code; differ: a.cu: a<2>; "
        "only here: b.cu: b; only there: c.cu: c"
    )


def test_a_tree_is_compiled_with_its_own_kernels(tmp_path):
    """A changed constant is other machine code, a comment is none; a tree that does not compile says what is wrong."""
    pytest.importorskip("cuda.core")
    kernels = tmp_path / "kernels"
    (kernels / "tiny").mkdir(parents=True)
    (kernels / "__init__.py").touch()
    for path in (paths.ROOT / "kernels").glob("[!_]*.py"):
        (kernels / path.name).symlink_to(path)
    (kernels / "tiny" / "__init__.py").write_text(
        "from pathlib import Path\nfrom ..contract import Kernel\n"
        "VARIANTS = {'k': Kernel('k', Path(__file__).with_name('k.cu'), '', entries=('k',))}\n"
    )
    source = kernels / "tiny" / "k.cu"

    def made(text: str) -> dict[str, str]:
        source.write_text(text)
        return same_code.sass(tmp_path, "tiny")

    first = made("__global__ void k(float* x) { x[threadIdx.x] *= 3.0f; }")
    assert list(first) == ["k.cu: k"] and "FMUL" in first["k.cu: k"]
    assert made("// said\n__global__ void k(float* x) { x[threadIdx.x] *= 3.0f; }") == first
    assert made("__global__ void k(float* x) { x[threadIdx.x] *= 5.0f; }") != first
    package = kernels / "tiny" / "__init__.py"
    package.write_text(package.read_text().replace("('k',)", "('k<3>',)"))
    once = made("template <int N> __global__ void k(float* x) { x[threadIdx.x] *= N; }")
    more = made("template <int N, class... T> __global__ void k(float* x, T...) { x[threadIdx.x] *= N; }")
    assert once == more and "FMUL" in once["k.cu: k<3>"], "another symbol is no other code"
    refused(
        "^tiny does not compile in ", made, "__global__ void k(float* x) { x[threadIdx.x] *= y; }", kind=RuntimeError
    )


def test_every_commit_once_and_what_differs_is_a_status(monkeypatch, capsys):
    """Of the shipped records: systems with variants alone, trees that git makes and takes away again."""
    asked, called = [], []
    monkeypatch.setattr(same_code, "sass", lambda tree, system: asked.append((tree, system)) or {"k.cu: k": system})
    monkeypatch.setattr(same_code.device, "git", lambda *words: called.append(words[:2]))
    assert same_code.main([]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == len(set(out)) >= 5 and all("1 kernels with the same" in x for x in out)
    assert {system for _, system in asked} >= {"casper_sparse", "tensor_core_24"}
    assert called.count(("worktree", "add")) == called.count(("worktree", "remove")) == len(out)
    monkeypatch.setattr(same_code, "sass", lambda tree, system: {"k.cu: k": str(tree == paths.ROOT)})
    assert same_code.main([]) == 1 and "differ: k.cu: k" in capsys.readouterr().out


# ---------------------------------------------------------------- what other GPUs get, by force


def test_every_point_is_a_problem_of_a_kernel_that_other_gpus_have():
    found = list(portable.points())
    assert {point.what for _, point in found} == {"blocks", "csr", "2:4", "n:m"}
    for system, point in found:
        module, problem = importlib.import_module(f"kernels.{system}"), point.make()
        assert problem.room == system and problem.useful_flops > 0
        assert point.own in module.VARIANTS
        elsewhere = point.elsewhere
        assert elsewhere == "auto" or module.VARIANTS[elsewhere].targets == jit.TARGETS, point


def test_the_variants_are_those_of_the_routes():
    asked = {"blocks": ("blocks", "bfloat16, float16"), "csr": ("CSR", "float32")}
    a100 = next(f for f in routes.FAMILIES if f.compute_capability == (8, 0))
    for what, key in asked.items():
        make, dtype, accuracy = routes.ASKED[key]
        way = routes.route(make(), dtype, accuracy, a100, explicit=True)
        assert way.variant in {point.elsewhere for _, point in portable.points() if point.what == what}


def test_rates_are_the_problems_and_over_the_fastest_dense_product(monkeypatch):
    of = portable.points()[0][1].make()
    us = {portable.PORTABLE: 4.0, "cublas_dense": 2.0, "cublas_dense_default": 3.0}

    def point(problem, here, **_):
        timings = {name: SimpleNamespace(median_us=time) for name, time in us.items()}
        return {
            name: (run.Prepared(1.0, 0), verification.Errors(0.0, 0.0), timings[name]) for name in us if name in here
        }

    monkeypatch.setattr(portable, "measure_point", point)
    monkeypatch.setattr(portable, "points", lambda: [("async_sparse", Point("blocks", "auto", "auto", lambda: of))])
    df = portable.measure(SimpleNamespace(name="H200", properties=None), say=lambda _: None).set_index("contender")
    assert df["over_dense"].to_dict() == pytest.approx({name: 2.0 / time for name, time in us.items()})
    assert df["tflops"].to_dict() == pytest.approx({name: of.useful_flops / time / 1e6 for name, time in us.items()})


def test_a_band_has_its_non_zeros_beside_the_diagonal():
    a = portable.banded("casper_sparse", {"n": 8}, size=200).host().a
    near = np.abs(a.col_idx - csr.rows(a)) <= 6
    assert (np.bincount(csr.rows(a)[near])[6:-6] == 12).all() and 0 < (~near).sum() < 20


def test_rows_are_written_where_they_shall_be(monkeypatch, tmp_path):
    monkeypatch.setattr(portable.gpus, "require", MagicMock())
    monkeypatch.setattr(portable, "measure", lambda opened, *asked: pd.DataFrame([asked]))
    assert portable.main(["--out", f"{tmp_path}/made.csv", "--budget", "2"]) == 0
    assert (tmp_path / "made.csv").read_text() == "0,1\n,2.0\n" and portable.main(["--only", "stripes"]) == 2


@pytest.mark.gpu
@pytest.mark.alone
def test_a_point_of_each_is_right_and_timed(device, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))
    async_sparse = importlib.import_module("kernels.async_sparse")
    small = [
        Point("blocks", "blocks_mma", "opt0", lambda: async_sparse.problem(300, 200, 250, 0.3)),
        Point("csr", "auto_fp32", "auto_fp32", lambda: portable.banded("async_sparse", CSR | {"n": 64})),
    ]
    monkeypatch.setattr(portable, "points", lambda: [("async_sparse", point) for point in small])
    df = portable.measure(device, budget_s=0.05, say=lambda _: None)
    assert set(df["contender"]) >= {portable.PORTABLE, portable.SMALLER}
    assert (df["median_us"] > 0).all() and (df["rel_err"] < 0.01).all()
