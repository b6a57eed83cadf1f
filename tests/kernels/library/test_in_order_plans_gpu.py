"""Plans of every format on a GPU, asked to be deterministic, give the same bits at every call."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from test_plans_gpu import numbers, on_gpu, open_gpu  # noqa: F401

import kernels
from kernels import formats, jit
from kernels.formats.half import Half
from kernels.library import routes

pytestmark = pytest.mark.gpu
CALLS = 50
#: What is multiplied -> keyword arguments of `plan`.
WAYS = {
    "CSR fp32": {"dtype": "float32"},
    "CSR tf32": {"dtype": "float32", "accuracy": "tf32"},
    "CSR bf16": {"dtype": "bfloat16"},
    "CSR fp16": {"dtype": "float16"},
    "values that change": {"dtype": "float32", "in_place": True},
    "blocks bf16": {"prune": "block", "density": 0.2, "dtype": "bfloat16"},
    "blocks tf32": {"prune": "block", "density": 0.2, "dtype": "float32", "accuracy": "tf32"},
    "2:4 bf16": {"prune": "2:4", "dtype": "bfloat16"},
    "2:4 fp16": {"prune": "2:4", "dtype": "float16"},
    "N:M fp32": {"prune": "nm", "density": 0.25, "dtype": "float32"},
    "N:M tf32": {"prune": "nm", "density": 0.25, "dtype": "float32", "accuracy": "tf32"},
    "N:M bf16": {"prune": "nm", "density": 0.25, "dtype": "bfloat16"},
}


def heavy(dtype: str) -> sp.csr_array:
    """Short rows, and ten of 40 to 4000 non-zeros."""
    lengths = np.random.default_rng(3).integers(0, 9, 500)
    lengths[::50] = 40 * np.arange(1, 11) ** 2
    rows = [np.random.default_rng(i).choice(5000, x, False) for i, x in enumerate(lengths)]
    row_ptr = np.concatenate([[0], np.cumsum(lengths)])
    val = numbers(row_ptr[-1], dtype, 5)
    return sp.csr_array((val, np.concatenate(rows), row_ptr), shape=(500, 5000))


@pytest.mark.parametrize("tune", [False, True])
@pytest.mark.parametrize("which", WAYS)
def test_the_same_call_gives_the_same_bits(device, which, tune):
    keywords, n = WAYS[which], 264
    if which == "N:M bf16" and jit.arch_of(device) not in routes.HOPPER:
        pytest.skip("N:M in bfloat16 is multiplied by wgmma")
    dtype = keywords["dtype"]
    a = heavy(dtype) if which.startswith(("CSR", "values")) else numbers((1216, 2048), dtype, 5)
    b = on_gpu(numbers((a.shape[1], n), dtype, 6), dtype)
    made = kernels.plan(a, n, tune=tune, deterministic=True, **keywords)
    found = {bytes_of(made(b)) for _ in range(CALLS)}
    again = kernels.plan(a, n, tune=False, deterministic=True, **keywords)
    if again.choice == made.choice:  # which trials may have made otherwise
        found |= {bytes_of(again(b)) for _ in range(5)}
    assert len(found) == 1, f"{made} gave {len(found)} results in {CALLS} calls"


def test_who_does_not_ask_gets_the_same_kernel_as_it_was(device):
    """And the same product but for the order of its additions."""
    a = heavy("float32")
    b = on_gpu(numbers((5000, 264), "float32", 6))
    made = [kernels.plan(a, 264, tune=False, deterministic=x) for x in (False, True)]
    assert made[1].choice == f"{made[0].choice} in_order=True"
    first, second = (formats.to_host(plan(b)).astype(np.float64) for plan in made)
    size = np.abs(a) @ np.abs(formats.to_host(b))
    assert (np.abs(first - second) <= 1e-5 * size).all()
    assert len({bytes_of(kernels.spmm(a, b, deterministic=True)) for _ in range(5)}) == 1


def bytes_of(out) -> bytes:
    host = formats.to_host(out)
    return (host.bits if isinstance(host, Half) else host).tobytes()
