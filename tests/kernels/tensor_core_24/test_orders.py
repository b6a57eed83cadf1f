"""B and C by columns, as a linear layer has them: which kernels take them so, and that nothing is copied for it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import racing
import scipy.sparse as sp  # noqa: F401 (the library asks whether it is there)
from pretend import Array, as_array, pretended  # noqa: F401 (fixtures)

import kernels
from artifact.measure import check, device
from kernels import formats, jit
from kernels.formats import half, two_four
from kernels.tensor_core_24 import family, fp8, fp8_family, fp8_operands, launch, operands, wgmma
from kernels.tensor_core_24.family import Wgmma
from kernels.tensor_core_24.fp8_family import Fp8
from kernels.tuning import probe

ORDERS = [orders for orders in operands.ORDERS if orders != "CC"]
#: Of each kernel that takes them, a configuration, and of those for few tokens two.
CONFIGS = [
    Wgmma("lean", 2, 2, 192, 4, 2, band=8, keep="a"),
    Wgmma("rounds", 2, 1, 256, 4, 2, band=8, keep="a"),
    Wgmma("last_wave", 2, 2, 192, 4, 2, band=8, keep="a"),
    Wgmma("three", 3, 1, 256, 4, 1, band=12),
    Wgmma("split_k", 2, 1, 128, 6, 1, 2, keep="b"),
    Wgmma("clusters", 2, 1, 256, 4, 2, keep="a", share=4),
    Wgmma("few", 2, 1, 64, 5, 1, 4, keep="b"),
    Wgmma("lean", 1, 1, 8, 12, 1, keep="b"),
    Wgmma("split_k", 2, 1, 32, 12, 1, 4, keep="b"),
]
#: And those with A in the order of use.
CONFIGS += [replace(c, packed=True) for c in CONFIGS if not c.kind.packed]
SIZES = [
    (64, 8, 64),
    (200, 264, 392),
    (333, 77, 520),
    (1000, 1, 1000),
    (136, 24, 2056),
    (712, 1000, 1096),
    (4096, 3, 4096),
    (520, 512, 1024),
]


def test_every_kernel_that_takes_orders_is_tried_here():
    assert {config.kernel for config in CONFIGS} == set(family.ORDERED)


@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_orders_cost_no_registers_in_memory(config, orders):
    if (config.n < 64 or config.kernel == "few") and orders != "FF":
        pytest.skip("tiles for few tokens are for both by columns")
    cubin = jit.compile_cubin(config.source, config.entry("bfloat16", True, orders), "sm_90a")
    jit.require_registers(cubin)
    ((used, mix),) = jit.reports([cubin])
    assert used.spill_loads == used.spill_stores == 0
    assert mix.get("STSM.16.MT88.4", 0) or mix.get("STSM.16.MT88.2", 0) if orders[1] == "F" else True


@pytest.mark.parametrize("activation", family.ACTIVATIONS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_activations_cost_no_registers_in_memory(config, activation):
    cubin = jit.compile_cubin(config.source, config.entry("bfloat16", activation, "FF"), "sm_90a")
    ((used, _),) = jit.reports([cubin])
    assert used.spill_loads == used.spill_stores == 0


def test_kernels_without_orders_say_so():
    with pytest.raises(ValueError, match="row-major B and C, not orders 'FF': use one of "):
        Wgmma("persistent").check(4096, 4096, 4096, 132, 232448, "FF")
    with pytest.raises(ValueError, match="has n 8, but takes"):
        Wgmma("lean", 1, 1, 8, 12, 1).check(4096, 8, 4096, 132, 232448, "FC")


@pytest.mark.parametrize("tokens", [1, 3, 16, 100])
@pytest.mark.parametrize("orders", operands.ORDERS)
def test_a_plan_takes_both_orders_as_they_lie(pretended, monkeypatch, orders, tokens):  # noqa: F811
    """One launch where lines of B and C are multiples of 8 elements long, whatever the number of tokens."""
    pretended(racing.H200)
    monkeypatch.setattr(jit, "most_clusters", lambda *_: 66)
    a = formats.to_device(two_four.random(256, 512, "bfloat16", 1))
    made = kernels.plan(a, tokens, dtype="bfloat16", order=orders[0], out_order=orders[1], tune=False)
    assert made.b_order + made.out_order == orders
    by_rows = orders.count("C") if tokens % 8 else 0
    assert len(made._steps) == 1 + by_rows


def test_choices_of_orders_are_kept_apart():
    keys = {family.key(operands.problem(64, 64, 64, orders=x)) for x in operands.ORDERS}
    assert len(keys) == len(operands.ORDERS) and (64, 64, 64, "bfloat16") in keys


def test_the_numbers_are_the_same_in_every_order():
    one, other = (operands.problem(24, 40, 64, seed=3, orders=x).host() for x in ("CC", "FF"))
    assert np.array_equal(one.b.bits, other.b.bits)


@pytest.mark.gpu
@pytest.mark.parametrize("orders", ORDERS)
@pytest.mark.parametrize("dtype", half.DTYPES)
@pytest.mark.parametrize("config", [*CONFIGS, *family.NARROW_FAMILY], ids=str)
def test_products_are_exact_in_every_order(config, dtype, orders):
    opened = device.require().open()
    stream, done = opened.create_stream(), 0
    for m, n, k in SIZES:
        problem = operands.problem(m, n, k, seed=m + n, dtype=dtype, orders=orders)
        if family.fits(config, problem, opened):
            exact = probe.exact(problem)
            bound = wgmma.bind("one", exact, opened, config)
            check.exactly(bound, exact, check.oracle(exact, sizes=False), stream)
            done += 1
    assert done or (config.n < 64 or config.kernel == "few") and orders != "FF"


FUNCTIONS = {
    "": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("activation", FUNCTIONS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_bias_and_activation_are_part_of_the_launch(config, activation):
    import cupy

    opened = device.require().open()
    problem = operands.problem(200, 40, 512, seed=6, orders="FF")
    if not family.fits(config, problem, opened):
        pytest.skip("takes another shape")
    bias = np.linspace(-4, 4, 200, dtype=np.float32)
    bound = wgmma.bind("one", problem, opened, config, alpha=0.1, bias=cupy.asarray(bias), activation=activation)
    right = FUNCTIONS[activation](0.1 * check.oracle(problem, on="cpu").values + bias[:, None].astype(np.float64))
    check.check(bound, problem, check.reference(right), opened.create_stream())


@pytest.mark.gpu
@pytest.mark.parametrize("orders", ORDERS)
def test_trials_are_judged_by_rows(orders):
    opened = device.require().open()
    problem = operands.problem(520, 72, 1024, seed=4, orders=orders)
    won = launch.tune(problem, opened)
    check.check(won.bound, problem, check.oracle(problem), opened.create_stream())


# ---------------------------------------------------------------- 8 bits

EIGHT = {c.kernel: c for c, *_ in fp8_family.RUNGS.values()}
EIGHTS = [*EIGHT.values(), *fp8_family.NARROW_FAMILY, Fp8("direct", 2, 2, 184, 5, 0, keep="a")]


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("config", EIGHTS, ids=str)
def test_fp8_by_columns_costs_no_more_registers_in_memory(config, scaled):
    def spills(orders: str) -> int:
        entry = config.entry("bfloat16", scaled, scaled, orders)
        ((used, _),) = jit.reports([jit.compile_cubin(config.source, entry, "sm_90a")])
        return used.spill_loads + used.spill_stores

    assert spills("FF") <= (spills("CC") if config.n >= 64 else 0)


def test_fp8_by_columns_is_bfloat16():
    with pytest.raises(ValueError, match="for C in e4m3, but must be 'CC', or 'FF' in bfloat16"):
        fp8_operands.problem(64, 64, 64, out="e4m3", orders="FF")
    assert fp8_operands.problem(64, 64, 64, orders="FF").label == "e4m3 linear"


@pytest.mark.gpu
@pytest.mark.parametrize("scale", fp8_operands.SCALES)
@pytest.mark.parametrize("config", EIGHTS, ids=str)
def test_fp8_products_by_columns(config, scale):
    opened = device.require().open()
    stream, done = opened.create_stream(), 0
    most = opened.properties.max_shared_memory_per_block_optin
    for m, n, k in (*SIZES, (300, 500, 1000)):
        if fp8_family.fits(config, m, n, k, most, "FF"):
            problem = fp8_operands.problem(m, n, k, seed=m + n, scale=scale, orders="FF")
            bound = fp8.bind_config("one", problem, opened, config)
            check.check(bound, problem, check.oracle(problem), stream)
            done += 1
    assert done
