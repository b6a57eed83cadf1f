"""casperSPARSE: FP32 CSR x dense, a warp per row (Hastor et al.), and the ladder from there."""

from .launch import BASELINES, TRIED, VARIANTS, entry, prepare
from .operands import problem, problem_from_csr, sweeps

__all__ = [
    "BASELINES",
    "TRIED",
    "VARIANTS",
    "prepare",
    "entry",
    "problem",
    "problem_from_csr",
    "sweeps",
]

bind = prepare  # its former name
