"""Figures of the room `nm_cuda_core`: those of its source, drawn from records, beside its own values.

Every function returns `(fig, data)`, as in `artifact.drawing.style`, whose palette and style they share
(`counters_table` returns `(table, data)`). Common arguments:

    df         records; several experiments may stand below each other, and where two have the same
               contender at the same size, the first one counts
    published  what the source states: a table with the columns quantity, size, variant, low, high
               and unit (`the room's published/`), or None; an empty bound is not stated
    order      the room's own variants in ladder order, for their looks (see `figures.look`)

What the source states was measured on another GPU. It is drawn hollow in the colour of claims, in
the marker of its contender: a range as a bar, a bound with no other side as an arrow.
"""

from artifact.baselines.cublas import READINGS
from artifact.rooms.nm_cuda_core.figures.common import AS_STATED, PROFILED, SCALING, STALL, STATED
from artifact.rooms.nm_cuda_core.figures.counting import counters_table, stalls
from artifact.rooms.nm_cuda_core.figures.protocols import (
    Fit,
    compare_readings,
    cublas_times,
    fit_published,
    fit_readings,
    readings,
)
from artifact.rooms.nm_cuda_core.figures.speeds import (
    cost_of_element_wise,
    scaling,
    speedups,
    variants,
)

__all__ = [
    "AS_STATED",
    "PROFILED",
    "READINGS",
    "SCALING",
    "STALL",
    "STATED",
    "Fit",
    "compare_readings",
    "cost_of_element_wise",
    "counters_table",
    "cublas_times",
    "fit_published",
    "fit_readings",
    "readings",
    "scaling",
    "speedups",
    "stalls",
    "variants",
]
