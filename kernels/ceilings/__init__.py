"""Microbenchmarks that find a GPU's ceilings: the roofs under which every system's kernels are drawn."""

from .launch import TOLERANCE, VARIANTS, Ceiling, prepare, supports

__all__ = ["TOLERANCE", "VARIANTS", "Ceiling", "prepare", "supports"]
