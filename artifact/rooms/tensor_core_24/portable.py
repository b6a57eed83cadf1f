"""What other GPUs get of this room, for `artifact.measure.portable`."""

from collections.abc import Iterator
from functools import partial

from artifact.measure.portable import Point


def points() -> Iterator[Point]:
    from kernels import tensor_core_24

    for size in (1024, 4096, 8192):
        yield Point("2:4", "auto", "auto", partial(tensor_core_24.problem, size, size, size))
