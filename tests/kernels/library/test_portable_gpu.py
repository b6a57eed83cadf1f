"""Every way of other GPUs, by force on the one that is here: against float64, at ragged sizes, outputs poisoned."""

from __future__ import annotations

import numpy as np
import pytest
from test_plans_gpu import LIMITS, WAYS, error, numbers, of_format, on_gpu

from kernels import formats, gpu, jit
from kernels.library import current, operands, plans, routes

pytestmark = pytest.mark.gpu
SIZES = [(129, 130, 33), (257, 515, 130), (64, 64, 1)]
#: Bytes of shared memory of a block: the GPU's own, a GeForce's.
SHARED = [None, 101_376]


@pytest.fixture(autouse=True)
def open_gpu(device, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARSITY_CHOICES", str(tmp_path))  # tests' matrices are nobody's
    return device


def forced(a, n: int, dtype: str, accuracy, order: str, shared_bytes=None, tune=False):
    """A plan as other GPUs make it."""
    with current.opened(0) as here:
        here = gpu.Portable(here, shared_bytes)
        asked = operands.resolved(accuracy, dtype)
        way = routes.route(
            formats.to_device(a), dtype, asked, here, order=order, out_order=order, explicit=accuracy is not None
        )
        return plans.built(way, n, dtype, asked, here, tune)


def poisoned(made, dtype: str, order: str):
    return on_gpu(np.full((made.m, made.n), np.nan, np.float32), dtype, order)


@pytest.mark.parametrize("shared_bytes", SHARED)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("size", SIZES, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize(("kind", "dtype", "accuracy", "limit", "only_hopper"), WAYS)
def test_every_way_is_right(kind, dtype, accuracy, limit, only_hopper, size, order, shared_bytes, device):
    if only_hopper:
        pytest.skip("has no kernel on other GPUs")
    m, k, n = size
    a, right = of_format(kind, m, k)
    made = forced(a, n, dtype, accuracy, order, shared_bytes)
    assert jit.arch_of(made.device) != "sm_90a"
    x, out = numbers((k, n), dtype, 3), poisoned(made, dtype, order)
    made(on_gpu(x, dtype, order), out)
    assert error(out, right @ x.astype(np.float64)) < LIMITS[limit], repr(made)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("csr", "float32"), ("csr bfloat16", "bfloat16"), ("nm", "float32"), ("2:4 bfloat16", "bfloat16")],
)
def test_trials_choose_among_what_other_gpus_have(kind, dtype):
    m, k, n = 300, 640, 96
    a, right = of_format(kind, m, k)
    made = forced(a, n, dtype, None, "C", tune=True)
    assert "windows" not in made.choice and "wgmma" not in made.choice
    x = numbers((k, n), dtype, 5)
    out = poisoned(made, dtype, "C")
    made(on_gpu(x, dtype), out)
    assert error(out, right @ x.astype(np.float64)) < LIMITS[dtype], repr(made)
