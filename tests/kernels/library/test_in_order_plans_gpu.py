"""Plans of every format on a GPU give the same bits at every call, once their choice is one that adds up in order."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from test_plans_gpu import numbers, on_gpu, open_gpu  # noqa: F401

import kernels
from kernels import formats, jit, tuning
from kernels.async_sparse.union import Union
from kernels.async_sparse.windows import Windows
from kernels.formats.half import Half
from kernels.library import in_order, plans, routes

pytestmark = pytest.mark.gpu
CALLS = 50
KINDS = {"union": Union, "windows": Windows}
#: What is multiplied -> keyword arguments of `plan`.
WAYS = {
    "CSR fp32": {"dtype": "float32"},
    "CSR tf32": {"dtype": "float32", "accuracy": "tf32"},
    "CSR bf16": {"dtype": "bfloat16"},
    "CSR fp16": {"dtype": "float16"},
    "blocks bf16": {"prune": "block", "density": 0.2, "dtype": "bfloat16"},
    "blocks tf32": {"prune": "block", "density": 0.2, "dtype": "float32", "accuracy": "tf32"},
    "2:4 bf16": {"prune": "2:4", "dtype": "bfloat16"},
    "2:4 fp16": {"prune": "2:4", "dtype": "float16"},
    "N:M fp32": {"prune": "nm", "density": 0.25, "dtype": "float32"},
    "N:M tf32": {"prune": "nm", "density": 0.25, "dtype": "float32", "accuracy": "tf32"},
    "N:M bf16": {"prune": "nm", "density": 0.25, "dtype": "bfloat16"},
}


def ordered(made):
    """The plan again, with what was chosen in order."""
    name, _, knobs = made.choice.partition(" ")
    if name in in_order.WHOLE:
        way, choice = routes.Route(made.room, "auto", made.a, "float32"), in_order.in_order(name)
    elif name in KINDS:
        config = in_order.in_order(tuning.choices.parse_knobs(knobs, KINDS[name]))
        variant = {"fp32": "auto_fp32", "tf32": "auto_tf32"}.get(made.accuracy, "auto_half")
        numbers_are = "tf32" if made.accuracy == "tf32" else made.dtype
        way = routes.Route(made.room, variant, made.a, numbers_are)
        choice = f"{name} {tuning.knobs(config)}"
    else:
        return made
    again = plans.built(way, made.n, made.dtype, made.accuracy, made.device, False, choice=choice)
    assert again.choice == choice
    return again


@pytest.mark.parametrize("which", WAYS)
def test_the_same_call_gives_the_same_bits(device, which):
    keywords, n = WAYS[which], 264
    if which.startswith("N:M bf16") and jit.arch_of(device) not in routes.HOPPER:
        pytest.skip("N:M in bfloat16 is multiplied by wgmma")
    if which.startswith("CSR"):
        lengths = np.random.default_rng(3).integers(0, 9, 500)
        lengths[::50] = 40 * np.arange(1, 11) ** 2
        rows = [np.random.default_rng(i).choice(5000, x, False) for i, x in enumerate(lengths)]
        row_ptr = np.concatenate([[0], np.cumsum(lengths)])
        val = numbers(row_ptr[-1], keywords["dtype"], 5)
        a = sp.csr_array((val, np.concatenate(rows), row_ptr), shape=(500, 5000))
    else:
        a = numbers((1216, 2048), keywords["dtype"], 5)
    b = on_gpu(numbers((a.shape[1], n), keywords["dtype"], 6), keywords["dtype"])
    made = ordered(kernels.plan(a, n, tune=False, **keywords))
    found = {bytes_of(made(b)) for _ in range(CALLS)}
    assert len(found) == 1, f"{made} gave {len(found)} results in {CALLS} calls"


def bytes_of(out) -> bytes:
    host = formats.to_host(out)
    return (host.bits if isinstance(host, Half) else host).tobytes()
