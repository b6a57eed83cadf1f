"""Problems of N:M on a GPU, and on one that is not there, for the tests of this folder."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import racing
from hypothesis import strategies as st
from pretend import as_array, pretended  # noqa: F401 (a fixture)
from products import SEED

from kernels import contract
from kernels import nm_spmm as system
from kernels.contract import Operands, Problem
from kernels.formats.half import Half
from kernels.nm_spmm import launch, operands, published, tensor

DTYPES = {"tf32": "tf32", "bf16": "bfloat16"}  #: of the variants that are not for float32
FLOAT32 = tuple(name for name in system.VARIANTS if name not in (*DTYPES, "auto"))
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
    for module in (contract, launch, published, tensor):
        monkeypatch.setattr(module, "timed", lambda work: (work(), 1.25))

    def opened(gpu=racing.H200, **properties):
        device = pretended(gpu)
        device.properties = SimpleNamespace(**vars(gpu.properties) | {"clock_rate": 1_980_000} | properties)
        return device

    return opened


def point(m: int, n: int, k: int, keep: int = 12, group: int = 32, vector: int = 32, **more) -> Problem:
    """A problem of keep:group, of the run's seed."""
    return operands.problem(m, n, k, keep / group, SEED % 2**32, group=group, vector=vector, **more)
