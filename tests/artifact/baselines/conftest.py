"""NVIDIA's libraries without a GPU."""

import numpy as np
import pytest
from fake_libraries import Array, install_all

from artifact.baselines import cusparse, cusparse_block
from kernels.formats import csr


@pytest.fixture
def libraries(monkeypatch):
    """All libraries; CuPy's arrays in what cuSPARSE is given."""
    for name in ("transposed_csr", "csr_of_blocks"):
        made = getattr(cusparse, name)
        monkeypatch.setattr(cusparse, name, lambda x, made=made: with_addresses(made(x)))
    rounded = cusparse.stored.rounded
    monkeypatch.setattr(cusparse.stored, "rounded", lambda *given: np.asarray(rounded(*given)).view(Array))
    monkeypatch.setattr(cusparse_block, "free_bytes", lambda: 2**40)
    return install_all(monkeypatch)


def with_addresses(a: csr.Csr) -> csr.Csr:
    return csr.Csr(a.m, a.k, *(np.asarray(x).view(Array) for x in (a.row_ptr, a.col_idx, a.val)))
