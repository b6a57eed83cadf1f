"""What other GPUs get of this room, for `artifact.measure.portable`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from artifact.measure.portable import Point


def points() -> Iterator[Point]:
    from kernels import nm_spmm

    for density in (0.5, 0.125):
        yield Point("n:m", "auto", "auto", partial(nm_spmm.problem, 4096, 4096, 4096, density))
