"""Charts of the room `nm_spmm` from its records, beside what its source states: Fig. 7 to 10, and what
goes beyond them. Its pictures, Fig. 1 to 6, are in `artifact.rooms.nm_spmm.pictures`.

Every function returns `(fig, data)`, as in `artifact.drawing.style`, whose palette and style they share.
Common arguments:

    df         records; where two experiments have the same contender at the same point, the first
               one counts. Only rows with `label` count ("": float32, vectors of 32, groups of 32)
    shown      contenders in the order in which they are drawn; those without records are left out
    published  what the source states, or None: published/fig9.csv for Fig. 9, in
               dense-equivalent TFLOP/s, and published/text.csv for the others
    fma        measured FMA ceiling, TFLOP/s

TFLOP/s are those of useful work, 2·M·N·W; cuBLAS multiplies the dense matrix, so its are 2·M·N·K, and
where a figure has it at no sparsity but 0, that is why. Sparsity is 1 − density. What the source
states was measured on other GPUs: it is drawn hollow or dashed, in the colour of claims.
"""

from artifact.rooms.nm_spmm.figures.authors import anchors
from artifact.rooms.nm_spmm.figures.common import (
    LLAMA,
    LOOKS,
    PROFILED,
    SIZES,
    STEPWISE,
    look,
    pattern,
)
from artifact.rooms.nm_spmm.figures.layers import llama, llama_gpus, llama_means
from artifact.rooms.nm_spmm.figures.patterns import TENSOR, compared, crossing_of, tensor, vectors
from artifact.rooms.nm_spmm.figures.roofs import counted, roofline
from artifact.rooms.nm_spmm.figures.shift import transition
from artifact.rooms.nm_spmm.figures.steps import sizes, stepwise
from artifact.rooms.nm_spmm.figures.tried import trials

__all__ = [
    "LLAMA",
    "LOOKS",
    "PROFILED",
    "SIZES",
    "STEPWISE",
    "TENSOR",
    "anchors",
    "compared",
    "counted",
    "crossing_of",
    "llama",
    "llama_gpus",
    "llama_means",
    "look",
    "pattern",
    "roofline",
    "sizes",
    "stepwise",
    "tensor",
    "transition",
    "trials",
    "vectors",
]
