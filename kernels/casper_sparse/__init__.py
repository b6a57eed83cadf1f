"""casperSPARSE: FP32 CSR x dense, a warp per row (Hastor et al.), and the ladder from there."""

from kernels.casper_sparse.family import TRIED, VARIANTS, entry
from kernels.casper_sparse.launch import BASELINES, bind
from kernels.casper_sparse.operands import problem, problem_from_csr
from kernels.casper_sparse.sweeps import sweeps

__all__ = [
    "BASELINES",
    "TRIED",
    "VARIANTS",
    "bind",
    "entry",
    "problem",
    "problem_from_csr",
    "sweeps",
]
