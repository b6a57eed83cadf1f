"""BF16 2:4 on sparse tensor cores: the source's `mma.sp` kernel, and what Hopper adds."""

from kernels.tensor_core_24.launch import BASELINES, RUNGS, VARIANTS, bind
from kernels.tensor_core_24.operands import problem, problem_from
from kernels.tensor_core_24.sweeps import sweeps

__all__ = ["BASELINES", "RUNGS", "VARIANTS", "bind", "problem", "problem_from", "sweeps"]
