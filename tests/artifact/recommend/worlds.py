"""Pools of matrices that nobody measured: times follow simple laws, so that the right advice is known."""

import numpy as np
import pandas as pd
import synthetic

from artifact.measure import records
from artifact.recommend.landscape import Pool, Real
from artifact.recommend.statistics import FIELDS, Statistics

ABOUT = Real("casper_sparse", "real", "FP32", "given", {"win*": "windows", "*": "CSR"}, raced=["auto"])


def matrix(rng: np.random.Generator) -> Statistics:
    m, row = int(2 ** rng.uniform(10, 17)), 2 ** rng.uniform(1, 7)
    shared = 1 + 3 * rng.random() * np.log2(row)
    values = (
        m,
        m,
        int(m * row),
        row,
        2 * rng.random(),
        int(row * 2 ** rng.uniform(0, 6)),
        0,
        m // 2,
        0.3,
        shared**0.7,
        shared,
        shared**1.2,
        shared**1.4,
        shared,
        shared,
        shared,
        shared,
        0.02,
        0.01,
        0.005,
    )
    return Statistics(**dict(zip(FIELDS, values, strict=True)))


def laws(s: Statistics, n: int) -> dict[str, float]:
    """Microseconds: windows win where columns share, the cut rows where one is long, and plain CSR else."""
    work = 1e-5 * s.nnz * n + 5
    return {
        "plain": work + 0.05 * s.row_most * n / 64,
        "cut": 1.25 * work,
        "win": work * 2.5 / s.windows_16 + 0.02 * s.row_most * n / 64,
        "cusparse_alg2": 2 * work,
    }


def pool(matrices: int = 40, sizes=(128, 512), seed: int = 0) -> Pool:
    rng = np.random.default_rng(seed)
    known = {f"m{i}": matrix(rng) for i in range(matrices)}
    rows = []
    for name, s in known.items():
        for n in sizes:
            times = laws(s, n)
            times["auto"] = min(times.values())
            for variant, t in times.items():
                rows.append(
                    {
                        "variant": variant,
                        "label": name,
                        "m": s.m,
                        "n": n,
                        "k": s.k,
                        "nnz": s.nnz,
                        "density": s.density,
                        "median_us": t,
                        "q25_us": t,
                        "q75_us": t,
                        "prepare_ms": {"win": 2.0, "cut": 0.5, "auto": 90.0}.get(variant, 0.0),
                    }
                )
    usual = synthetic.experiment("wide").iloc[0].to_dict()
    df = pd.DataFrame([usual | {"experiment": "real"} | row for row in rows])
    return Pool(ABOUT, synthetic.consistent(df).reindex(columns=list(records.COLUMNS)), known)
