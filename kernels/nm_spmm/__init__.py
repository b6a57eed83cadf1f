"""FP32 vector-wise N:M on CUDA cores: NM-SpMM as published, a ladder beyond it, and tensor cores."""

from .launch import BASELINES, FAMILIES, VARIANTS, prepare
from .operands import problem
from .sweeps import sweeps

__all__ = ["BASELINES", "FAMILIES", "VARIANTS", "prepare", "problem", "sweeps"]

bind = prepare  # its former name
