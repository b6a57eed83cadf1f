"""casperSPARSE: FP32 CSR x dense, a warp per row (Hastor et al.), and the ladder from there."""

from .family import TRIED, VARIANTS, entry
from .launch import BASELINES, FAMILIES, prepare
from .operands import problem, problem_from_csr
from .sweeps import sweeps

__all__ = [
    "BASELINES",
    "FAMILIES",
    "TRIED",
    "VARIANTS",
    "prepare",
    "entry",
    "problem",
    "problem_from_csr",
    "sweeps",
]

bind = prepare  # its former name
