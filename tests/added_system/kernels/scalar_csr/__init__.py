"""A room for a test: FP32 CSR x dense, one thread to an element of C."""

from .launch import BASELINES, VARIANTS, prepare, problem, sweeps

__all__ = ["BASELINES", "VARIANTS", "prepare", "problem", "sweeps"]
