"""What the tests of trials share: a folder for figures, small problems."""

import pytest
from drawn import folder  # noqa: F401

from kernels import casper_sparse


@pytest.fixture
def problem():
    return casper_sparse.problem(m=48, n=40, k=32, density=0.2, seed=3)
