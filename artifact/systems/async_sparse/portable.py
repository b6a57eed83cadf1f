"""What other GPUs get of this system, for `artifact.measure.portable`."""

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from artifact.measure.portable import Point
from kernels import async_sparse
from kernels.contract import Problem
from kernels.formats import csr

GATE = {"m": 18944, "n": 16384, "k": 3584, "density": 0.1}
RAGGED = ((18943, 16383, 3583), (4096, 64, 4096), (333, 77, 1111))
#: What differs from gate_proj.
SHAPES: list[dict[str, Any]] = [
    *({"layout": layout} for layout in ("source", "linear", "row")),
    *({"density": density} for density in (0.01, 0.05, 0.2, 0.5, 1.0)),
    *({"block": block} for block in (16, 32, 128)),
    {"dtype": "float16"},
    *(dict(zip("mnk", sizes, strict=True)) for sizes in RAGGED),
]


def points() -> list[Point]:
    """Return the points that every GPU measures."""
    return [
        *(Point("blocks", "blocks_mma", "auto", partial(async_sparse.problem, **GATE | shape)) for shape in SHAPES),
        *(
            Point("csr", auto, auto, partial(of_csr, n, dtype))
            for n in (256, 1024)
            for auto, dtype in (("auto_fp32", "float32"), ("auto_half", "bfloat16"))
        ),
    ]


def of_csr(n: int, dtype: str) -> Problem:
    """Make 20,000 rows of a band with 12 non-zeros each, and a few anywhere."""
    size, rng = 20_000, np.random.default_rng(0)
    band = sp.diags_array([1.0] * 12, offsets=range(-6, 6), shape=(size, size))
    a = sp.csr_array(band + sp.random_array((size, size), density=1e-4, rng=rng)).astype(np.float32)
    return async_sparse.problem_from_csr(csr.from_scipy(a), n, dtype=dtype, format="csr", reorder="")
