"""Sparse times dense on Hopper, blocks and windows: AsyncSparse's kernels as published, and others beyond them."""

from .launch import BASELINES, FAMILIES, VARIANTS, prepare
from .operands import problem, problem_from_csr, sweeps

__all__ = ["BASELINES", "FAMILIES", "VARIANTS", "prepare", "problem", "problem_from_csr", "sweeps"]

bind = prepare  # its former name
