"""What other GPUs get of this system, for `artifact.measure.portable`."""

from functools import partial

from artifact.measure.portable import Point
from kernels import tensor_core_24


def points() -> list[Point]:
    """Return the points that every GPU measures."""
    return [Point("2:4", "auto", "auto", partial(tensor_core_24.problem, n, n, n)) for n in (1024, 4096, 8192)]
