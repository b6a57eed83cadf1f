"""What other GPUs get of this room, for `artifact.measure.portable`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import scipy.sparse as sp

from artifact.measure.portable import Point
from kernels.contract import Problem

GATE = {"m": 18944, "n": 16384, "k": 3584}


def points() -> Iterator[Point]:
    from kernels import async_sparse

    ragged = ((18943, 16383, 3583), (4096, 64, 4096), (333, 77, 1111))
    shapes = [GATE | {"layout": layout} for layout in ("source", "linear", "row")]
    shapes += [GATE | {"density": density} for density in (0.01, 0.05, 0.2, 0.5, 1.0)]
    shapes += [GATE | {"block": block} for block in (16, 32, 128)]
    shapes += [GATE | {"dtype": "float16"}]
    shapes += [{"m": m, "n": n, "k": k} for m, n, k in ragged]
    for shape in shapes:
        made = partial(async_sparse.problem, **({"density": 0.1} | shape))
        yield Point("blocks", "blocks_mma", "auto", made)
    for n in (256, 1024):
        yield Point("csr", "auto_fp32", "auto_fp32", partial(of_csr, n, "float32"))
        yield Point("csr", "auto_half", "auto_half", partial(of_csr, n, "bfloat16"))


def of_csr(n: int, dtype: str) -> Problem:
    """20,000 rows of a band with 12 non-zeros each, and a few anywhere."""
    from kernels.async_sparse import problem_from_csr
    from kernels.formats import csr

    size, rng = 20_000, np.random.default_rng(0)
    band = sp.diags_array([1.0] * 12, offsets=range(-6, 6), shape=(size, size))
    a = sp.csr_array(band + sp.random_array((size, size), density=1e-4, rng=rng))
    a = a.astype(np.float32)
    return problem_from_csr(csr.from_scipy(a), n, dtype=dtype, format="csr", reorder="")
