"""FP32 N:M sparsity on CUDA cores: the three kernels of Zeng's report, and what they leave open."""

from .launch import (
    BASELINES,
    VARIANTS,
    as_gathered,
    entry,
    prepare,
    problem,
    problem_from_nm,
    sweeps,
)

__all__ = [
    "BASELINES",
    "VARIANTS",
    "as_gathered",
    "prepare",
    "entry",
    "problem",
    "problem_from_nm",
    "sweeps",
]

bind = prepare  # its former name
