"""Microbenchmarks that find a GPU's ceilings: the roofs under which every room's kernels are drawn."""

from kernels.ceilings.launch import VARIANTS, Ceiling, bind

__all__ = ["VARIANTS", "Ceiling", "bind"]
