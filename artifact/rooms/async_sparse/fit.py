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

import numpy as np
import pandas as pd

from artifact.measure import apart, matrices
from kernels.async_sparse import model
from kernels.async_sparse.statistics import HEIGHTS, Statistics, statistics
from kernels.formats import csr
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


@dataclass(frozen=True)
class Measured:
    """What stands in the two files."""

    of: dict[str, Statistics]  #: matrix -> its statistics
    times: pd.DataFrame  #: matrix, n, config (knobs, or an algorithm of cuSPARSE), us

    @functools.cached_property
    def terms(self) -> dict[tuple[str, int, str], tuple[str, np.ndarray]]:
        """(matrix, n, config) -> the kernel and its terms, of the configurations in the model's pools."""
        configs = {knobs(c): c for c in model.POOLS["tf32"]}
        return {
            (row.matrix, row.n, row.config): (
                model.kernel(configs[row.config]),
                np.array(model.terms(configs[row.config], self.of[row.matrix], row.n)),
            )
            for row in self.times.itertuples()
            if row.config in configs
        }


def read() -> Measured:
    """The two files as they lie beside this one."""
    rows = apart.read(MATRICES)
    of = {
        row.matrix: Statistics(
            row.m,
            row.k,
            row.nnz,
            row.longest,
            {
                "": tuple(getattr(row, f"columns_{h}") for h in HEIGHTS),
                "similar": tuple(getattr(row, f"similar_{h}") for h in HEIGHTS),
            },
        )
        for row in rows.itertuples()
    }
    return Measured(of, apart.read(TIMES))


def fit(measured: Measured, names: Iterable[str]) -> dict[str, tuple[float, ...]]:
    """kernel -> weights of its terms that are not negative, least squares of relative errors over these matrices."""
    from scipy.optimize import nnls

    names = set(names)
    rows: dict[str, list] = {}
    for row in measured.times.itertuples():
        place = row.matrix, row.n, row.config
        if row.matrix in names and place in measured.terms:
            kernel, terms = measured.terms[place]
            rows.setdefault(kernel, []).append((*terms, row.us))
    weights = {}
    for kernel, table in sorted(rows.items()):
        x = np.array(table)
        found, _ = nnls(x[:, :-1] / x[:, -1:], np.ones(len(x)))
        weights[kernel] = tuple(float(f"{w:.4g}") for w in found)
    return weights


def held_out(measured: Measured, accuracy: str, most: int = 5) -> pd.DataFrame:
    """What the model would have chosen among for matrices that it was not fitted to, a tenth of them at a time.

    Columns: matrix, n, regret (time of the best of the proposed `most` over that of the best of the pool), first
    (of the proposed one), speedup (of the best proposed over cuSPARSE's fastest algorithm for CSR).
    """
    names = sorted(measured.of)
    found = []
    pool = {knobs(c) for c in model.POOLS[accuracy]}
    for fold in range(FOLDS):
        left_out = names[fold::FOLDS]
        weights = fit(measured, set(names) - set(left_out))
        part = measured.times[measured.times["matrix"].isin(left_out)]
        for (matrix, n), rows in part.groupby(["matrix", "n"]):
            us = dict(zip(rows["config"], rows["us"], strict=True))

            def guess(name, matrix=matrix, n=n, weights=weights):
                kernel, terms = measured.terms[matrix, n, name]
                return terms @ weights[kernel]

            ranked = sorted((name for name in us if name in pool), key=guess)
            best = min(us[name] for name in ranked)
            got = min(us[name] for name in ranked[:most])
            library = min(t for name, t in us.items() if name.startswith("cusparse"))
            found.append((matrix, n, got / best, us[ranked[0]] / best, library / got))
    return pd.DataFrame(found, columns=["matrix", "n", "regret", "first", "speedup"])


def write(weights: dict[str, tuple[float, ...]], path: Path = model.FILE) -> None:
    table = pd.DataFrame.from_dict(weights, orient="index", columns=list(model.TERMS))
    table.to_csv(path, index_label="kernel", lineterminator="\n")


def measure() -> None:
    """Both files anew, on the GPU that is here, of the matrices in SPARSITY_MATRICES: about two minutes on an H200."""
    from artifact.baselines import cusparse
    from artifact.measure import device as gpu
    from kernels.async_sparse import any_csr, operands
    from kernels.tuning import heats

    device = gpu.require().open()
    folder = matrices.folder()
    times, known = [], []
    for path in sorted(folder.glob("*.npz")):
        a = matrices.load(path.stem, folder)
        of = statistics(csr.to_device(a))
        columns = [*of.columns[""], *of.columns["similar"]]
        known.append((path.stem, of.m, of.k, of.nnz, of.longest, *columns))
        for n in SIZES:
            p = operands.problem_from_csr(a, n, 0, path.stem, format="csr", dtype="tf32", reorder="")
            bounds = {f"cusparse_{x}": cusparse.bind(x, p, device) for x in ("alg2", "alg3")}
            for config in model.POOLS["tf32"]:
                if any_csr.fits(config, device):
                    bounds[knobs(config)] = any_csr.bind_config("auto", p, device, config)
            for name, us in heats.race(bounds, device, LAUNCHES).items():
                times.append((path.stem, n, name, f"{us:.2f}"))
            for bound in bounds.values():
                getattr(bound, "close", lambda: None)()  # a library's handle
            bounds.clear()
            apart.release(p)
    names = [f"{how}_{h}" for how in ("columns", "similar") for h in HEIGHTS]
    for path, columns, rows in (
        (MATRICES, ["matrix", "m", "k", "nnz", "longest", *names], known),
        (TIMES, ["matrix", "n", "config", "us"], times),
    ):
        apart.write(path, __file__, device, columns, rows)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", action="store_true", help="measure the candidates anew first")
    if parser.parse_args(argv).measure:
        measure()
    measured = read()
    write(fit(measured, measured.of))
    for accuracy in model.POOLS:
        for n, rows in held_out(measured, accuracy).groupby("n"):
            print(
                f"{accuracy}, n={n}: of {len(rows)} matrices left out in turn the first proposal is within 10% of "
                f"the best for {(rows['first'] <= 1.1).mean():.0%}, the best of five for "
                f"{(rows['regret'] <= 1.1).mean():.0%}; {np.exp(np.log(rows['speedup']).mean()):.2f} times "
                f"cuSPARSE, at least {rows['speedup'].min():.2f}"
            )


if __name__ == "__main__":
    main()
