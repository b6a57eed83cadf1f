"""The forced routes as they are timed: what is measured is what routes lead to elsewhere."""

from __future__ import annotations

import importlib

import pytest

from artifact.measure import portable
from artifact.measure.portable import Point
from artifact.rooms.async_sparse.portable import of_csr
from kernels import jit
from kernels.library import families


def test_every_point_is_a_problem_of_a_kernel_that_other_gpus_have():
    found = list(portable.points())
    assert {point.what for _, point in found} == {"blocks", "csr", "2:4", "n:m"}
    for room, point in found:
        module, problem = importlib.import_module(f"kernels.{room}"), point.make()
        assert problem.room == room and problem.useful_flops > 0
        assert point.own in module.VARIANTS
        elsewhere = point.elsewhere
        assert elsewhere == "auto" or module.VARIANTS[elsewhere].targets == jit.TARGETS, point


def test_the_variants_are_those_of_the_routes():
    asked = {"blocks": ("blocks", "bfloat16, float16"), "csr": ("CSR", "float32")}
    a100 = next(f for f in families.FAMILIES if f.compute_capability == (8, 0))
    for what, key in asked.items():
        make, dtype, accuracy = families.ASKED[key]
        way = families.routes.route(make(), dtype, accuracy, a100, explicit=True)
        named = {point.elsewhere for _, point in portable.points() if point.what == what}
        assert way.variant in named


@pytest.mark.gpu
@pytest.mark.alone
def test_a_point_of_each_is_right_and_timed(device, monkeypatch, tmp_path):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))
    async_sparse = importlib.import_module("kernels.async_sparse")
    small = [
        Point("blocks", "blocks_mma", "opt0", lambda: async_sparse.problem(300, 200, 250, 0.3)),
        Point("csr", "auto_fp32", "auto_fp32", lambda: of_csr(64, "float32")),
    ]
    monkeypatch.setattr(portable, "points", lambda: [("async_sparse", point) for point in small])
    df = portable.measure(device, budget_s=0.05, say=lambda _: None)
    assert set(df["contender"]) >= {portable.PORTABLE, portable.SMALLER}
    assert (df["median_us"] > 0).all() and (df["rel_err"] < 0.01).all()
