"""Block-sparse times dense on Hopper: AsyncSparse's ladder as published, and a ladder beyond it."""

from .launch import BASELINES, VARIANTS, bind
from .operands import problem, problem_from_csr
from .sweeps import sweeps

__all__ = ["BASELINES", "VARIANTS", "bind", "problem", "problem_from_csr", "sweeps"]
