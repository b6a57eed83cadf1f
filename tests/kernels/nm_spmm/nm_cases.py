"""Problems of N:M on a GPU, and on one that is not there, for the tests of this folder."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import racing
from hypothesis import strategies as st
from pretend import as_array, pretended  # noqa: F401 (a fixture)
from products import SEED

from kernels import contract, formats
from kernels import nm_spmm as room
from kernels.contract import Operands, Problem
from kernels.formats import nm
from kernels.formats.half import Half
from kernels.nm_spmm import ladder, nmsparse, operands, published, tensor
from kernels.tuning import probe

DTYPES = {"tf32": "tf32", "bf16": "bfloat16"}  #: of the variants that are not for float32
FLOAT32 = tuple(name for name in room.VARIANTS if name not in (*DTYPES, "auto"))
#: keep, group, vector: the paper's, few and many rows, narrow and wide vectors, windows that are no power of two.
PATTERNS = (
    *((keep, 32, 32) for keep in (32, 16, 12, 8, 4)),
    *((2, 4, 32), (3, 5, 4), (16, 32, 4), (8, 16, 128), (1, 4, 8), (8, 32, 96), (31, 32, 64)),
)
SIZE = st.sampled_from((1, 4, 31, 32, 61, 64, 96, 128, 130, 256, 300, 512))


def fake(p: Problem) -> Problem:
    """The same problem on a GPU that is not there."""
    host, shape = p.host(), (p.m, p.n)
    b = replace(host.b, val=as_array(host.b.val), index=as_array(host.b.index))
    if isinstance(host.a, Half):
        a = Half(host.a.dtype, as_array(host.a.bits))
        c: object = Half(host.a.dtype, as_array(np.zeros(shape, np.uint16, order="F")))
    else:
        a, c = as_array(host.a), as_array(np.zeros(shape, np.float32, order="F"))
    made = Operands(a, b, c)
    return replace(p, make_device=lambda: made)


@pytest.fixture
def here(pretended, monkeypatch):  # noqa: F811
    """A function: numbers of a GPU -> that GPU, without being there; preparation takes 1.25 ms."""
    for module in (contract, published, nmsparse, ladder, tensor):
        monkeypatch.setattr(module, "timed", lambda work: (work(), 1.25))

    def opened(gpu=racing.H200, **properties):
        device = pretended(gpu)
        device.properties = SimpleNamespace(**vars(gpu.properties) | {"clock_rate": 1_980_000} | properties)
        return device

    return opened


def whole_numbers(m: int, n: int, k: int, keep: int, group: int, vector: int) -> Problem:
    """Small ones, so that every sum is exact in any order."""
    return probe.exact(operands.problem(m, n, k, keep / group, SEED % 2**32, group=group, vector=vector))


def product(p: Problem) -> np.ndarray:
    """In float64."""
    host = p.host()
    a = host.a if not isinstance(host.a, Half) else formats.half.to_dense(host.a)
    return a.astype(np.float64) @ nm.to_dense(host.b).astype(np.float64)


def right(bound, p: Problem, device, exact=None) -> None:
    """Assert that two launches give the exact product, bit by bit, into a C full of NaN."""
    exact, stream, b = product(p) if exact is None else exact, device.create_stream(), p.host().b
    for _ in range(2):
        bound.result().fill(math.nan)
        device.sync()
        bound.launch(stream)
        stream.sync()
        wrong = bound.result().get() != exact
        assert not wrong.any(), (
            f"{bound.name} on {b.keep}:{b.group} in vectors of {b.vector}: {p.m} x {p.n} x {p.k}, seed {SEED}: "
            f"{wrong.sum()} of {wrong.size} elements are wrong, the first at {tuple(np.argwhere(wrong)[0])}"
        )


def among_sevens(p: Problem):
    """The problem with its C in the middle of a larger array, and what lies before and behind it."""
    import cupy

    margin = 4096
    whole = cupy.full(p.m * p.n + 2 * margin, 7, cupy.float32)
    ops = replace(p.device(), c=whole[margin:-margin].reshape((p.m, p.n), order="F"))
    return replace(p, make_device=lambda: ops, _device=None), (whole[:margin], whole[-margin:])
