"""The weights of `kernels/async_sparse/model.csv`: fitted to measured candidates, and how well they choose.

    python -m artifact.rooms.async_sparse.fit            weights from candidates.csv and candidate_matrices.csv
    python -m artifact.rooms.async_sparse.fit --measure  both files made anew first: a GPU, SPARSITY_MATRICES

candidates.csv has the median of four launches, cold L2, of every configuration in the model's pools, and of
cuSPARSE's algorithms for CSR in the same heat; candidate_matrices.csv what `kernels.async_sparse.statistics`
says of the matrices, in their given order and with similar rows side by side.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from artifact.baselines import cusparse
from artifact.measure import apart, records
from artifact.measure import device as gpu
from artifact.rooms.async_sparse.experiments import problem, real
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


def read() -> pd.DataFrame:
    """Return what was measured: matrix, n, config (knobs, or an algorithm of cuSPARSE), us; and of the configurations
    in the model's pools their kernel and its terms."""
    of = {
        row.matrix: Statistics(
            *(row.m, row.k, row.nnz, row.longest),
            {how: tuple(getattr(row, f"{begin}_{h}") for h in HEIGHTS) for how, begin in ORDERS.items()},
        )
        for row in apart.read(MATRICES).itertuples()
    }
    df, configs = apart.read(TIMES), {knobs(c): c for c in model.POOLS["tf32"]}
    at = zip(df["matrix"], df["n"], df["config"].map(configs), strict=True)
    terms = [np.array(model.terms(config, of[name], n)) if pd.notna(config) else None for name, n, config in at]
    return df.assign(kernel=df["config"].map({name: model.kernel(c) for name, c in configs.items()}), terms=terms)


def fit(measured: pd.DataFrame) -> dict[str, tuple[float, ...]]:
    """Return kernel -> weights of its terms that are not negative, least squares of relative errors; measured: of
    `read`."""
    found = {
        kernel: nnls(np.stack(rows["terms"]) / rows[["us"]].to_numpy(), np.ones(len(rows)))[0]
        for kernel, rows in measured.groupby("kernel")
    }
    return {kernel: tuple(float(f"{w:.4g}") for w in weights) for kernel, weights in found.items()}


def held_out(measured: pd.DataFrame, accuracy: str, most: int = 5) -> pd.DataFrame:
    """Return what the model would have chosen among for matrices that it was not fitted to, a tenth of them at a time.

    Columns: matrix, n, regret (time of the best of the proposed `most` over that of the best of the pool), first
    (of the proposed one), speedup (of the best proposed over cuSPARSE's fastest algorithm for CSR).
    """
    names, found = sorted(measured["matrix"].unique()), []
    pooled = measured["config"].isin({knobs(c) for c in model.POOLS[accuracy]})
    for fold in range(FOLDS):
        left_out = measured["matrix"].isin(names[fold::FOLDS])
        weights = fit(measured[~left_out])
        libraries = measured[left_out & measured["config"].str.startswith("cusparse")].groupby(["matrix", "n"])["us"]
        ours = measured[left_out & pooled]
        ours = ours.assign(
            guess=[terms @ weights[kernel] for kernel, terms in zip(ours["kernel"], ours["terms"], strict=True)]
        )
        for at, rows in ours.sort_values("guess", kind="stable").groupby(["matrix", "n"])["us"]:
            got = rows[:most].min()
            found.append((*at, got / rows.min(), rows.iloc[0] / rows.min(), libraries.get_group(at).min() / got))
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
    pd.DataFrame.from_dict(fit(measured), "index", columns=list(model.TERMS)).to_csv(
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
