"""The forced routes as they are timed: what is measured is what routes lead to elsewhere."""

import importlib
from types import SimpleNamespace

import pytest

from artifact.measure import portable, run, verification
from artifact.measure.portable import Point
from kernels import jit
from kernels.library import routes

CSR = {"dtype": "float32", "format": "csr", "reorder": ""}


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
        named = {point.elsewhere for _, point in portable.points() if point.what == what}
        assert way.variant in named


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
    gpu = SimpleNamespace(name="H200", properties=None)
    df = portable.measure(gpu, say=lambda _: None).set_index("contender")
    assert df["over_dense"].to_dict() == pytest.approx({name: 2.0 / time for name, time in us.items()})
    assert df["tflops"].to_dict() == pytest.approx({name: of.useful_flops / time / 1e6 for name, time in us.items()})


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
