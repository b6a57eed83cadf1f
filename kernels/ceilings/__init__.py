"""Microbenchmarks that find a GPU's ceilings: the roofs under which every room's kernels are drawn."""

from .launch import TOLERANCE, VARIANTS, Ceiling, bind, supports

__all__ = ["TOLERANCE", "VARIANTS", "Ceiling", "bind", "supports"]
