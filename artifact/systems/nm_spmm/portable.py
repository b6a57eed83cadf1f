"""What other GPUs get of this system, for `artifact.measure.portable`."""

from functools import partial

from artifact.measure.portable import Point
from kernels import nm_spmm


def points() -> list[Point]:
    """Return the points that every GPU measures."""
    return [Point("n:m", "auto", "auto", partial(nm_spmm.problem, 4096, 4096, 4096, d)) for d in (0.5, 0.125)]
