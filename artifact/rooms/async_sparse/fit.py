"""The weights of `kernels/async_sparse/model.csv`: fitted to measured candidates, and how well they choose.

    python -m artifact.rooms.async_sparse.fit            weights from candidates.csv and candidate_matrices.csv
    python -m artifact.rooms.async_sparse.fit --measure  both files made anew first: a GPU, SPARSITY_MATRICES

candidates.csv has the median of four launches, cold L2, of every configuration in the model's pools, and of
cuSPARSE's algorithms for CSR in the same heat; candidate_matrices.csv what `kernels.async_sparse.statistics`
says of the matrices, in their given order and with similar rows side by side.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from artifact.baselines import cusparse
from artifact.measure import apart, records
from artifact.measure import device as gpu
from artifact.rooms.async_sparse.measured import problem, real
from kernels.async_sparse import any_csr, model
from kernels.async_sparse.statistics import HEIGHTS, Statistics, statistics
from kernels.formats import csr
from kernels.tuning import heats
from kernels.tuning.choices import knobs

HERE = Path(__file__).parent
TIMES, MATRICES = HERE / "candidates.csv", HERE / "candidate_matrices.csv"
#: What groups of rows took while their tasks lay in the order of rows: before `tasks.in_blocks`.
IN_ROW_ORDER = HERE / "candidates_in_row_order.csv"
#: And after, while a warp had up to eight tasks whatever was in them: before `union.WORK`.
EIGHT_TASKS = HERE / "candidates_eight_tasks.csv"
SIZES = (256, 1024)
LAUNCHES = 4
FOLDS = 10
ORDERS = {"": "columns", "similar": "similar"}  #: of rows in `Statistics.columns` -> how its columns in the file begin


@dataclass(frozen=True)
class Measured:
    """What stands in the two files."""

    of: dict[str, Statistics]  #: matrix -> its statistics
    times: pd.DataFrame  #: matrix, n, config (knobs, or an algorithm of cuSPARSE), us

    @functools.cached_property
    def terms(self) -> dict[tuple[str, int, str], tuple[str, np.ndarray]]:
        """(matrix, n, config) -> the kernel and its terms, of the configurations in the model's pools."""
        configs = {knobs(c): c for c in model.POOLS["tf32"]}
        every = self.times[self.times["config"].isin(configs)]
        at = zip(every["matrix"], every["n"], every["config"], strict=True)
        return {
            (matrix, n, name): (
                model.kernel(configs[name]),
                np.array(model.terms(configs[name], self.of[matrix], n)),
            )
            for matrix, n, name in at
        }


def read() -> Measured:
    """Read the two files as they lie beside this one."""
    of = {
        row.matrix: Statistics(
            *(row.m, row.k, row.nnz, row.longest),
            {how: tuple(getattr(row, f"{begin}_{h}") for h in HEIGHTS) for how, begin in ORDERS.items()},
        )
        for row in apart.read(MATRICES).itertuples()
    }
    return Measured(of, apart.read(TIMES))


def fit(measured: Measured, names: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """Return kernel -> weights of its terms that are not negative, least squares of relative errors over these
    matrices."""
    times = measured.times[measured.times["matrix"].isin(list(names))]
    rows: dict[str, list] = {}
    for *place, us in times[["matrix", "n", "config", "us"]].itertuples(index=False, name=None):
        if tuple(place) in measured.terms:
            kernel, terms = measured.terms[tuple(place)]
            rows.setdefault(kernel, []).append((*terms, us))
    tables = {kernel: np.array(rows[kernel]) for kernel in sorted(rows)}
    found = {kernel: nnls(x[:, :-1] / x[:, -1:], np.ones(len(x)))[0] for kernel, x in tables.items()}
    return {kernel: tuple(float(f"{w:.4g}") for w in weights) for kernel, weights in found.items()}


def held_out(measured: Measured, accuracy: str, most: int = 5) -> pd.DataFrame:
    """Return what the model would have chosen among for matrices that it was not fitted to, a tenth of them at a time.

    Columns: matrix, n, regret (time of the best of the proposed `most` over that of the best of the pool), first
    (of the proposed one), speedup (of the best proposed over cuSPARSE's fastest algorithm for CSR).
    """
    names, found = sorted(measured.of), []
    pool = {knobs(c) for c in model.POOLS[accuracy]}
    for fold in range(FOLDS):
        left_out = names[fold::FOLDS]
        weights = fit(measured, {*names} - {*left_out})
        guess = {at: terms @ weights[kernel] for at, (kernel, terms) in measured.terms.items() if at[0] in left_out}
        for at, rows in measured.times[measured.times["matrix"].isin(left_out)].groupby(["matrix", "n"]):
            us = dict(zip(rows["config"], rows["us"], strict=True))
            ranked = [*pd.Series({x: guess[*at, x] for x in us if x in pool}).sort_values(kind="stable").index]
            best, got = (min(us[name] for name in part) for part in (ranked, ranked[:most]))
            library = min(t for name, t in us.items() if name.startswith("cusparse"))
            found.append((*at, got / best, us[ranked[0]] / best, library / got))
    return pd.DataFrame(found, columns=["matrix", "n", "regret", "first", "speedup"])


def measure() -> None:
    """Measure both files anew, on the GPU that is here, of the matrices in SPARSITY_MATRICES: about two minutes on an
    H200."""
    device = gpu.require().open()
    times, known = [], []
    for name, a in real(listed=False):
        of = statistics(csr.to_device(a))
        known.append((name, of.m, of.k, of.nnz, of.longest, *(x for how in ORDERS for x in of.columns[how])))
        for n in SIZES:
            with problem(a, n, name, "tf32", seed=0) as p:
                bounds: dict[str, Any] = {f"cusparse_{x}": cusparse.bind(x, p, device) for x in ("alg2", "alg3")}
                fitting = [config for config in model.POOLS["tf32"] if any_csr.fits(config, device)]
                bounds |= {knobs(config): any_csr.bind_config("auto", p, device, config) for config in fitting}
                times += [(name, n, x, f"{us:.2f}") for x, us in heats.race(bounds, device, LAUNCHES).items()]
                for bound in bounds.values():
                    getattr(bound, "close", lambda: None)()  # a library's handle
                bounds.clear()
    columns = [f"{begin}_{h}" for begin in ORDERS.values() for h in HEIGHTS]
    apart.write(MATRICES, __file__, device, ["matrix", "m", "k", "nnz", "longest", *columns], known)
    apart.write(TIMES, __file__, device, ["matrix", "n", "config", "us"], times)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure the candidates anew first")
    if parser.parse_args(argv).measure:
        measure()
    measured = read()
    pd.DataFrame.from_dict(fit(measured, measured.of), "index", columns=list(model.TERMS)).to_csv(
        model.FILE, index_label="kernel", lineterminator="\n"
    )
    for accuracy in model.POOLS:
        for n, rows in held_out(measured, accuracy).groupby("n"):
            print(
                f"{accuracy}, n={n}: of {len(rows)} matrices left out in turn the first proposal is within 10% of "
                f"the best for {(rows['first'] <= 1.1).mean():.0%}, the best of five for "
                f"{(rows['regret'] <= 1.1).mean():.0%}; {records.geomean(rows['speedup']):.2f} times "
                f"cuSPARSE, at least {rows['speedup'].min():.2f}"
            )


if __name__ == "__main__":
    main()
