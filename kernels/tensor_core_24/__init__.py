"""BF16 2:4 on sparse tensor cores: the source's `mma.sp` kernel, and what Hopper adds."""

from .launch import BASELINES, FAMILIES, RUNGS, VARIANTS, prepare
from .operands import problem
from .sweeps import sweeps

__all__ = ["BASELINES", "FAMILIES", "RUNGS", "VARIANTS", "prepare", "problem", "sweeps"]

bind = prepare  # its former name
