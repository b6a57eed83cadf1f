"""What a plan costs without trials, and after how many multiplications it has paid against the best of cuSPARSE.

    python -m artifact.rooms.async_sparse.plans [FILE]     plans.csv anew: a GPU, SPARSITY_MATRICES; and its quartiles

Of each real matrix, in CSR on the GPU, N = 256, float32: the median of `plan(a, 256, tune=False)`, of a matrix that
was not seen before, by the host's clock; and of launches in turns, cold L2, of what it chose and of cuSPARSE's
algorithms, whose own preparation counts as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.rooms.async_sparse.contenders import CSR_ALGORITHMS
from artifact.rooms.async_sparse.measured import N, problem, real, script
from kernels import library
from kernels.async_sparse import any_csr
from kernels.tuning import choices, heats

FILE = Path(__file__).with_suffix(".csv")
PLANS, LAUNCHES = 25, 15
#: choice: the configuration that was predicted; cusparse: the fastest algorithm; microseconds.
COLUMNS = (
    *("matrix", "m", "k", "nnz", "n", "choice", "plan_us", "us"),
    *("cusparse", "cusparse_us", "cusparse_prepare_us"),
)


def until_even(df: pd.DataFrame) -> pd.Series:
    """Return the multiplications after which the plan has paid for what it costs beyond cuSPARSE's preparation;
    infinite where its kernel is not faster, 0 where it costs no more."""
    saved = df["cusparse_us"] - df["us"]
    cost = (df["plan_us"] - df["cusparse_prepare_us"]).clip(lower=0)
    return (cost / saved.where(saved > 0)).fillna(np.inf)


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
            makers = {"plan": partial(any_csr.bind_config, "plan", device=device, config=config)}
            bounds: dict[str, Any] = {
                key: make(p) for key, make in (makers | {key: every[key] for key in CSR_ALGORITHMS}).items()
            }
            found = heats.race(bounds, device, LAUNCHES)
            ours = found.pop("plan")
            best = min(found, key=lambda key: found[key])
            times = np.median(us[2:]), ours, best, found[best], bounds[best].prepare_ms * 1e3
            yield name, a.m, a.k, a.nnz, N, made.choice, *(x if isinstance(x, str) else round(x, 2) for x in times)
            for key in CSR_ALGORITHMS:
                bounds[key].close()


def quartiles(df: pd.DataFrame) -> pd.DataFrame:
    """Return what a plan costs and after how many multiplications it has paid, by quantile."""
    return df[["plan_us"]].assign(multiplications=until_even(df)).quantile([0.25, 0.5, 0.75, 0.9])


if __name__ == "__main__":
    script(__doc__, FILE, COLUMNS, rows, quartiles)
