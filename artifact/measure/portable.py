"""What other GPUs get, by force on the one that is here, beside its own kernels and a dense product; checked and timed.

    python -m artifact.measure.portable [--out FILE.csv] [--only blocks] [--budget SECONDS]

Kernels are compiled without Hopper's own instructions (`gpu.Portable`). It says nothing about another GPU's speed, but
that the kernels are right, and what they make of the same caches and memory.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import baselines
from artifact.measure import device as gpus
from artifact.measure import willing
from artifact.measure.run import BUDGETS_S, measure_point
from kernels import gpu
from kernels.contract import Problem

GATE = {"m": 18944, "n": 16384, "k": 3584}
#: Bytes of shared memory of a block that a GeForce has.
GEFORCE = 101_376
PORTABLE, SMALLER = "portable", "portable_99kib"


def points() -> Iterator[tuple[str, str, str, str, Callable[[], Problem]]]:
    """(what, room, the routes' variant elsewhere, the room's own here, problem) of each point."""
    blocks = importlib.import_module("kernels.async_sparse")
    ragged = [
        {"m": m, "n": n, "k": k}
        for m, n, k in ((18943, 16383, 3583), (4096, 64, 4096), (333, 77, 1111))
    ]
    shapes = [GATE | {"layout": layout} for layout in ("source", "linear", "row")]
    shapes += [GATE | {"density": density} for density in (0.01, 0.05, 0.2, 0.5, 1.0)]
    shapes += (
        [GATE | {"block": block} for block in (16, 32, 128)]
        + [GATE | {"dtype": "float16"}]
        + ragged
    )
    for shape in shapes:
        made = partial(blocks.problem, **({"density": 0.1} | shape))
        yield "blocks", "async_sparse", "blocks_mma", "auto", made
    for n in (256, 1024):
        yield "csr", "async_sparse", "auto_fp32", "auto_fp32", partial(_csr, n, "float32")
        yield "csr", "async_sparse", "auto_half", "auto_half", partial(_csr, n, "bfloat16")
    structured = importlib.import_module("kernels.tensor_core_24")
    for size in (1024, 4096, 8192):
        yield "2:4", "tensor_core_24", "auto", "auto", partial(structured.problem, size, size, size)
    vectors = importlib.import_module("kernels.nm_spmm")
    for density in (0.5, 0.125):
        yield "n:m", "nm_spmm", "auto", "auto", partial(vectors.problem, 4096, 4096, 4096, density)


def _csr(n: int, dtype: str) -> Problem:
    """20,000 rows of a band with 12 non-zeros each, and a few anywhere."""
    import scipy.sparse as sp

    from kernels.async_sparse import problem_from_csr
    from kernels.formats import csr

    size, rng = 20_000, np.random.default_rng(0)
    band = sp.diags_array([1.0] * 12, offsets=range(-6, 6), shape=(size, size))
    a = sp.csr_array(band + sp.random_array((size, size), density=1e-4, rng=rng))
    a = a.astype(np.float32)
    return problem_from_csr(csr.from_scipy(a), n, dtype=dtype, format="csr", reorder="")


def measure(
    opened, only: str = "", budget_s: float = BUDGETS_S["kick"], say: Callable[[str], None] = print
) -> pd.DataFrame:
    """A row for each point and contender: the forced kernels, with all and with a GeForce's shared memory, the GPU's
    own, and dense cuBLAS; who does not take a point is left out, which is said. opened: `cuda.core.Device`, current."""
    rows = []
    for what, room, elsewhere, own, make in points():
        if only and what != only:
            continue
        module, problem = importlib.import_module(f"kernels.{room}"), make()
        libraries = [name for name in module.BASELINES if name.startswith("cublas")]
        dense = baselines.contenders(libraries, opened)
        contenders = {
            PORTABLE: partial(module.bind, elsewhere, device=gpu.Portable(opened)),
            SMALLER: partial(module.bind, elsewhere, device=gpu.Portable(opened, GEFORCE)),
            own: partial(module.bind, own, device=opened),
            **dense,
        }  # fmt: skip
        found = willing.measure(
            contenders,
            lambda here, problem=problem: measure_point(problem, here, opened, budget_s),
            lambda name, why: say(f"left out: {why}"),
            PORTABLE,
        )
        fastest = min((t.median_us for n, (_, _, t) in found.items() if n in dense), default=np.nan)
        for name, (cost, errors, timing) in found.items():
            rows.append(
                {"what": what, "label": problem.label, "m": problem.m, "n": problem.n, "k": problem.k,
                 "density": problem.density, "contender": name, "median_us": timing.median_us,
                 "tflops": problem.useful_flops / timing.median_us / 1e6, "over_dense": fastest / timing.median_us,
                 "rel_err": errors.rel_err, "prepare_ms": cost.prepare_ms}
            )  # fmt: skip
        problem.release()
        say(pd.DataFrame(rows[-len(found) :]).to_string(index=False))
    return pd.DataFrame(rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m artifact.measure.portable", description=__doc__.split("\n")[0]
    )
    parser.add_argument("--out", type=Path, help="a CSV file of the rows")
    parser.add_argument("--only", default="", choices=("", "blocks", "csr", "2:4", "n:m"))
    parser.add_argument(
        "--budget", type=float, default=BUDGETS_S["kick"], help="seconds a contender and point"
    )
    options = parser.parse_args(arguments)
    df = measure(gpus.require().open(), options.only, options.budget)
    if options.out:
        df.to_csv(options.out, index=False)


if __name__ == "__main__":
    main()
