"""Rows by a few lanes, run on the host: products of every pattern, by every way of dealing rows out to lanes."""

from dataclasses import replace
from functools import partial

import emulated
import numpy as np
import pytest
from matrices import of_lengths, pattern
from pretend import as_array
from racing import H200

import kernels
from kernels import async_sparse as system
from kernels.async_sparse import heads, subwarp
from kernels.formats import csr, half

#: Rows that are cut, into few parts and many, beside short ones and empty ones.
CUT = partial(of_lengths, [0, 3, 5000, 70, 1, 1500, 0, 300, 5], 5100)


@pytest.mark.parametrize(("n", "dtype"), emulated.FEW_COLUMNS)
@pytest.mark.parametrize("which", ["cut", "empty windows", "none", "one"])
def test_the_host_finds_every_product(pretended, which, n, dtype):
    """Of cut rows twice, since counts of parts have to be 0 again; C is NaN before."""
    device, read = pretended(H200), np.asarray if dtype == "tf32" else half.to_dense
    a = CUT(np.random.default_rng(n)) if which == "cut" else pattern(which)
    p = system.problem_from_csr(a, n, dtype="float32" if dtype == "tf32" else dtype, format="csr", reorder="")
    c = p.device().c
    given = [x.astype(np.float64) for x in (csr.to_dense(p.host().a), read(p.host().b))]
    exact, near = np.matmul(*given), np.matmul(*map(np.abs, given)) + 1e-30
    for config in emulated.FEW + emulated.HEADS:
        source = subwarp.SOURCE if config in emulated.FEW else heads.SOURCE
        ((_, how, arguments),) = (bound := config.prepare("x", p, device)).steps  # whose arrays have to live
        for _ in range(1 + (which == "cut")):
            np.asarray(half.array_of(c)).view(np.uint8)[...] = 0xFF
            emulated._enqueue(None, None, source, config.entry(n, dtype), how.grid, how.block, *arguments)
            off = np.abs(read(c) - exact) / near
            assert off.max(initial=0) < {"tf32": 1e-6, "bfloat16": 4e-3, "float16": 1e-3}[dtype], config


def test_values_of_a_call_are_read_where_they_lie(pretended):
    """At whatever multiple of 4 bytes."""
    device, a, rng = pretended(H200), pattern("empty windows"), np.random.default_rng(0)
    b, out, longer = (as_array(rng.random(size, np.float32)) for size in ((a.k, 8), (a.m, 8), a.nnz + 1))
    plan = kernels.plan(a, 8, in_place=True, tune=False)
    device.launched.clear()
    plan(b, out, values=longer[1:])
    ((_, how, kernel, *arguments),) = device.launched
    emulated._enqueue(None, None, subwarp.SOURCE, kernel.partition(": ")[2], how.grid, how.block, *arguments)
    assert np.abs(out - csr.to_dense(replace(a, val=np.asarray(longer[1:]))).astype(np.float64) @ b).max() < 1e-5
