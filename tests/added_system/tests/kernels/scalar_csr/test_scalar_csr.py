"""The system's format, its kernels on every target, and wrong input."""

import numpy as np
import pytest

from kernels import jit, scalar_csr
from kernels.formats import csr


def test_a_problem_is_what_it_says():
    problem = scalar_csr.problem(m=6, n=4, k=10, density=0.3, seed=1)
    a = csr.validate(problem.host().a)
    assert a.nnz == problem.nnz == 18 and (np.diff(a.row_ptr) == 3).all() and (csr.to_dense(a) != 0).sum() == 18


@pytest.mark.parametrize("entry", ["scalar<1>", "scalar<4>"])
@pytest.mark.parametrize("target", jit.TARGETS)
def test_it_compiles_without_spills(entry, target):
    assert jit.resources(jit.compile_cubin(scalar_csr.VARIANTS["scalar"].source, entry, target)).spills == 0


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="n is 0"):
        scalar_csr.problem(m=1, n=0, k=1, density=0.5)
