"""The pictures of the room `nm_spmm`: Fig. 1 to 6 of its source, drawn from real arrays, tiles and
durations.

Every function returns `(fig, data)`, as in `artifact.drawing.style`, whose palette and style they share.
Charts of the room's records are in `artifact.rooms.nm_spmm.figures`.
"""

from artifact.rooms.nm_spmm.pictures.blocks import blocking
from artifact.rooms.nm_spmm.pictures.marks import MARKS
from artifact.rooms.nm_spmm.pictures.packed import packing_picture
from artifact.rooms.nm_spmm.pictures.steps import (
    PARTS,
    SLICES,
    period_of,
    pipeline,
    schedule,
    shares,
)
from artifact.rooms.nm_spmm.pictures.windows import footprint, format_picture, working_set

__all__ = [
    "MARKS",
    "PARTS",
    "SLICES",
    "blocking",
    "footprint",
    "format_picture",
    "packing_picture",
    "period_of",
    "pipeline",
    "schedule",
    "shares",
    "working_set",
]
