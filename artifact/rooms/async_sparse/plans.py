"""What a plan costs without trials, and after how many multiplications it has paid against the best of cuSPARSE.

    python -m artifact.rooms.async_sparse.plans [FILE]     plans.csv anew: a GPU, SPARSITY_MATRICES; and its quartiles

Of each real matrix, in CSR on the GPU, N = 256, float32: the median of `plan(a, 256, tune=False)`, of a matrix that
was not seen before, by the host's clock; and of launches in turns, cold L2, of what it chose and of cuSPARSE's
algorithms, whose own preparation counts as well.
"""

from __future__ import annotations

import argparse
import itertools
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from artifact.drawing import plot
from artifact.drawing.prose import captioned
from artifact.measure import apart, records
from artifact.rooms.async_sparse import contenders, measured

FILE = Path(__file__).with_suffix(".csv")
N, PLANS, LAUNCHES, SEED, MATRICES = 256, 25, 15, 5, 74
CLASSES = (0, 10_000, 100_000, 1_000_000, np.inf)  #: of non-zeros
#: choice: the configuration that was predicted; cusparse: the fastest algorithm; microseconds.
COLUMNS = (
    "matrix",
    "m",
    "k",
    "nnz",
    "n",
    "choice",
    "plan_us",
    "us",
    "cusparse",
    "cusparse_us",
    "cusparse_prepare_us",
)


def until_even(df: pd.DataFrame) -> pd.Series:
    """Multiplications after which the plan has paid for what it costs beyond cuSPARSE's preparation; infinite where its
    kernel is not faster, 0 where it costs no more."""
    saved = df["cusparse_us"] - df["us"]
    cost = (df["plan_us"] - df["cusparse_prepare_us"]).clip(lower=0)
    return (cost / saved.where(saved > 0)).fillna(np.inf)


@captioned(lambda path=FILE: f"What a plan without trials costs, {apart.origin(path)}.")
def table(path: Path = FILE) -> pd.DataFrame | None:
    """By non-zeros: what a plan costs, and after how many multiplications it has paid; None without the file."""
    if not path.is_file():
        return None
    df = apart.read(path)
    df["count"] = until_even(df)
    rows = []
    for low, high in itertools.pairwise(CLASSES):
        part = df[df["nnz"].between(low, high, inclusive="left")]
        if len(part):
            never = int(np.isinf(part["count"]).sum())
            rows.append(
                {
                    "non-zeros": f"from {plot.number(low)}" + ("" if np.isinf(high) else f" to {plot.number(high)}"),
                    "matrices": len(part),
                    "plan [µs], median": f"{part['plan_us'].median():,.0f}",
                    "over the best cuSPARSE": f"{records.geomean(part['cusparse_us'] / part['us']):.2f}×",
                    "paid after, median": f"{np.ceil(part['count'].median()):,.0f} multiplications",
                    "never": f"{never} of {len(part)}",
                }
            )
    return pd.DataFrame(rows)


def measure(path: Path = FILE) -> None:
    """The file anew, on the GPU that is here: a minute or two on an H100."""
    from artifact import registry
    from artifact.measure import device as gpu
    from kernels import library
    from kernels.async_sparse import any_csr, operands
    from kernels.tuning import choices, heats

    device = gpu.require().open()
    every = registry.contenders(["cusparse"], device)
    libraries = {name: every[name] for name in contenders.CSR_ALGORITHMS}
    rows = []
    for name, a in measured.real(MATRICES):
        p = operands.problem_from_csr(a, N, SEED, name, format="csr", dtype="float32", reorder="")
        there, us = p.device().a, []
        for _ in range(PLANS):
            begin = time.perf_counter()
            made = library.plan(there, N, tune=False)
            us.append((time.perf_counter() - begin) * 1e6)
        family, _, knobs = made.choice.partition(" ")
        config = choices.parse_knobs(knobs, any_csr.CHOICES.families[family])
        makers = {"plan": partial(any_csr.bind_config, "plan", device=device, config=config)}
        bounds = {key: make(p) for key, make in (makers | libraries).items()}
        found = heats.race(bounds, device, LAUNCHES)
        ours = found.pop("plan")
        best = min(found, key=found.get)
        prepared = bounds[best].prepare_ms * 1e3
        at = name, a.m, a.k, a.nnz, N, made.choice, np.median(us[2:]), ours, best, found[best], prepared
        rows.append([round(x, 2) if isinstance(x, float) else x for x in at])
        print(*rows[-1], flush=True)
        for key in libraries:
            bounds[key].close()
        apart.release(p)
    apart.write(path, __file__, device, COLUMNS, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    where = parser.parse_args().file
    measure(where)
    df = apart.read(where)
    every = pd.DataFrame({"plan_us": df["plan_us"], "multiplications": until_even(df)})
    print(every.quantile([0.25, 0.5, 0.75, 0.9]).to_string())
