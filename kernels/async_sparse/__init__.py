"""Sparse times dense on Hopper, blocks and windows: AsyncSparse's kernels as published, and others beyond them."""

from kernels.async_sparse.launch import BASELINES, VARIANTS, bind
from kernels.async_sparse.operands import problem, problem_from_csr
from kernels.async_sparse.sweeps import sweeps

__all__ = ["BASELINES", "VARIANTS", "bind", "problem", "problem_from_csr", "sweeps"]
