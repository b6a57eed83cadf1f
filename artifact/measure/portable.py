"""What other GPUs get, by force on the one that is here, beside its own kernels and a dense product; checked and timed.

    python -m artifact.measure.portable [--out FILE.csv] [--only blocks] [--budget SECONDS]

Kernels are compiled without Hopper's own instructions (`gpu.Portable`). It says nothing about another GPU's speed, but
that the kernels are right, and what they make of the same caches and memory.
"""

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp

from artifact import command, registry
from artifact.measure import device as gpus
from artifact.measure.run import BUDGETS_S, Contender, measure_point, willing
from kernels import gpu
from kernels.contract import Problem, require
from kernels.formats import csr

#: Bytes of shared memory of a block that a GeForce has.
GEFORCE = 101_376
PORTABLE, SMALLER = "portable", "portable_99kib"


class Point(NamedTuple):
    """A problem for which routes lead other GPUs to another kernel than here."""

    what: str  #: of `--only`
    elsewhere: str  #: the system's variant that routes lead other GPUs to
    own: str  #: the one that they lead to here
    make: Callable[[], Problem]


def points() -> list[tuple[str, Point]]:
    """(system, point) of the systems that have a portable.toml."""
    return [
        (system, Point(spec["what"], spec["elsewhere"], spec["own"], partial(make, system, spec["problem"] | differs)))
        for system in registry.find()
        if (path := registry.FOLDER / system / "portable.toml").is_file()
        for spec in registry.toml(path)["point"]
        for differs, make in product(spec["each"], [banded if spec.get("banded") else problem])
    ]


def problem(system: str, options: Mapping[str, Any]) -> Problem:
    """Make a system's problem."""
    return importlib.import_module(f"kernels.{system}").problem(**options)


def banded(system: str, options: Mapping[str, Any], size: int = 20_000) -> Problem:
    """Make a system's problem of a matrix in CSR: a band with 12 non-zeros in each row, and a few anywhere."""
    band = sp.diags_array([1.0] * 12, offsets=range(-6, 6), shape=(size, size))
    a = sp.csr_array(band + sp.random_array((size, size), density=1e-4, rng=np.random.default_rng(0)), dtype=np.float32)
    return importlib.import_module(f"kernels.{system}").problem_from_csr(csr.from_scipy(a), **options)


def measure(
    opened, only: str = "", budget_s: float = BUDGETS_S["kick"], say: Callable[[str], None] = print
) -> pd.DataFrame:
    """Return a row for each point and contender.

    The forced kernels, with all and with a GeForce's shared memory, the GPU's own, and dense cuBLAS; who does not take
    a point is left out, which is said. opened: `cuda.core.Device`, current.
    """
    rows: list[dict[str, Any]] = []
    for system, point in ((r, p) for r, p in points() if only in ("", p.what)):
        module, asked = importlib.import_module(f"kernels.{system}"), point.make()
        dense = registry.contenders([name for name in module.BASELINES if name.startswith("cublas")], opened)
        contenders: dict[str, Contender] = {
            PORTABLE: partial(module.prepare, point.elsewhere, device=gpu.Portable(opened)),
            SMALLER: partial(module.prepare, point.elsewhere, device=gpu.Portable(opened, GEFORCE)),
            point.own: partial(module.prepare, point.own, device=opened),
            **dense,
        }
        found = willing(
            contenders,
            partial(measure_point, asked, opened=opened, budget_s=budget_s),
            lambda _, why: say(f"left out: {why}"),
            [PORTABLE],
        )
        fastest = min((t.median_us for n, (_, _, t) in found.items() if n in dense), default=np.nan)
        mine = [
            {
                "what": point.what,
                **{name: getattr(asked, name) for name in ("label", "m", "n", "k", "density")},
                "contender": name,
                "median_us": timing.median_us,
                "tflops": asked.useful_flops / timing.median_us / 1e6,
                "over_dense": fastest / timing.median_us,
                "rel_err": errors.rel_err,
                "prepare_ms": cost.prepare_ms,
            }
            for name, (cost, errors, timing) in found.items()
        ]
        say(pd.DataFrame(mine).to_string(index=False))
        rows += mine
    return pd.DataFrame(rows)


@command.program(
    "artifact.measure.portable",
    __doc__,
    command.option("--out", type=Path, help="a CSV file of the rows"),
    command.option("--only", default="", help="points of this kind, blocks say"),
    command.option("--budget", type=float, default=BUDGETS_S["kick"], help="seconds a contender and point"),
)
def main(o: command.Options) -> None:
    """Check and time one point of each system on this GPU, and write the rows."""
    known = sorted({p.what for _, p in points()})
    require(o.only in ("", *known), f"There are no points {o.only!r}; known: {', '.join(known)}.")
    df = measure(gpus.require().open(), o.only, o.budget)
    if o.out:
        df.to_csv(o.out, index=False)


if __name__ == "__main__":
    raise SystemExit(main())
