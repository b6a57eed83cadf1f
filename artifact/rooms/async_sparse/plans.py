"""What a plan costs without trials, and after how many multiplications it has paid against the best of cuSPARSE.

    python -m artifact.rooms.async_sparse.plans [FILE]     plans.csv anew: a GPU, SPARSITY_MATRICES; and its quartiles

Of each real matrix, in CSR on the GPU, N = 256, float32: the median of `plan(a, 256, tune=False)`, of a matrix that
was not seen before, by the host's clock; and of launches in turns, cold L2, of what it chose and of cuSPARSE's
algorithms, whose own preparation counts as well.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.rooms.async_sparse.arithmetic import until_even
from artifact.rooms.async_sparse.contenders import CSR_ALGORITHMS
from artifact.rooms.async_sparse.experiments import problem, real, script
from kernels import library
from kernels.async_sparse import any_csr
from kernels.tuning import choices, heats

FILE = Path(__file__).with_suffix(".csv")
N, PLANS, LAUNCHES = 256, 25, 15
#: choice: the configuration that was predicted; cusparse: the fastest algorithm; microseconds.
COLUMNS = (
    *("matrix", "m", "k", "nnz", "n", "choice", "plan_us", "us"),
    *("cusparse", "cusparse_us", "cusparse_prepare_us"),
)


def paid(df: pd.DataFrame) -> pd.DataFrame:
    """Return the file's rows with count: the multiplications after which the plan has paid for what it costs beyond
    cuSPARSE's preparation."""
    saved, cost = df["cusparse_us"] - df["us"], df["plan_us"] - df["cusparse_prepare_us"]
    return df.assign(saved_us=saved, cost_us=cost, count=until_even(saved, cost))


def rows(device: Any) -> Iterator[tuple]:
    """Measure the file's rows: a minute or two on an H100."""
    every = registry.contenders(["cusparse"], device)
    for name, a in real():
        with problem(a, N, name, "float32") as p:
            there, us = p.device().a, []
            for _ in range(PLANS):
                begin = time.perf_counter()
                made = library.plan(there, N, tune=False)
                us.append((time.perf_counter() - begin) * 1e6)
            family, _, knobs = made.choice.partition(" ")
            config = choices.parse_knobs(knobs, any_csr.CHOICES.families[family])
            bounds: dict[str, Any] = {key: every[key](p) for key in CSR_ALGORITHMS}
            bounds["plan"] = any_csr.bind_config("plan", p, device, config)
            found = heats.race(bounds, device, LAUNCHES)
            ours = round(np.median(us[2:]), 2), round(found.pop("plan"), 2)
            best = min(found, key=found.__getitem__)
            theirs = best, round(found[best], 2), round(bounds[best].prepare_ms * 1e3, 2)
            yield name, a.m, a.k, a.nnz, N, made.choice, *ours, *theirs
            for key in CSR_ALGORITHMS:
                bounds[key].close()


def quartiles(df: pd.DataFrame) -> pd.DataFrame:
    """Return what a plan costs and after how many multiplications it has paid, by quantile."""
    return paid(df)[["plan_us", "count"]].quantile([0.25, 0.5, 0.75, 0.9])


if __name__ == "__main__":
    script(__doc__, FILE, COLUMNS, rows, quartiles)
