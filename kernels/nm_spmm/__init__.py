"""FP32 vector-wise N:M on CUDA cores: NM-SpMM as published, a ladder beyond it, and tensor cores."""

from .launch import BASELINES, FAMILIES, VARIANTS, prepare
from .operands import problem, problem_from_nm
from .sweeps import sweeps

__all__ = ["BASELINES", "FAMILIES", "VARIANTS", "prepare", "problem", "problem_from_nm", "sweeps"]

bind = prepare  # its former name
