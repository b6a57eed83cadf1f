"""How many tasks a warp of union_rows.cu should have: the experiment behind `union.WORK`.

    python -m artifact.rooms.async_sparse.tasks_of_a_warp     tasks_of_a_warp.csv anew: a GPU, SPARSITY_MATRICES

The file has the median of six launches, cold L2, with up to 1, 2, 4 and 8 tasks a warp, of real matrices that have
enough groups of rows for more than one, and of meshes and power-law graphs that are made from a seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

from artifact.measure import apart
from kernels.async_sparse import union
from kernels.async_sparse.union import Union
from kernels.formats.csr import Csr

FILE = Path(__file__).with_suffix(".csv")
MOST = (1, 2, 4, 8)  #: tasks of a warp at most
CONFIGS = (Union(1, 4, 1, 8), Union(1, 4, 2, 4), Union(2, 4, 1, 8), Union(4, 4, 1, 4))
SIDES, SCALES, DEGREE = (64, 100, 128, 150), (16, 18), 32  #: of meshes; of graphs
WIDTHS, LAUNCHES, SEED = (128, 512), 6, 5


def read() -> pd.DataFrame:
    """matrix, m, nnz, n, rows and loads (of the configuration), columns (of a task, on average), tasks (of a warp at
    most), us."""
    return apart.read(FILE)


def gains(df: pd.DataFrame) -> pd.DataFrame:
    """For each launch: loaded, the bytes of B in a task, and for 1, 2 and 4 tasks a warp how many times as fast it is
    as with 8."""
    at = ["matrix", "m", "nnz", "n", "rows", "loads", "columns"]
    wide = df.pivot_table(index=at, columns="tasks", values="us").reset_index()
    panel = 128 * wide["loads"]  # columns; loads are of 4 values for each of 32 lanes
    wide["loaded"] = wide["columns"] * panel.where(panel < wide["n"], wide["n"]) * 4
    for most in MOST[:-1]:
        wide[f"gain_{most}"] = wide[MOST[-1]] / wide[most]
    return wide.drop(columns=list(MOST))


def ruled(df: pd.DataFrame) -> pd.DataFrame:
    """`gains`, and gain: how many times as fast a launch is with the largest number of `MOST` that the rule allows."""
    made = gains(df).assign(gain_8=1.0)
    most = (union.WORK / made["loaded"]).clip(1, MOST[-1])
    names = [f"gain_{max(x for x in MOST if x <= allowed)}" for allowed in most]
    return made.assign(gain=[made.at[i, name] for i, name in zip(made.index, names, strict=True)])


def matrices() -> Iterator[tuple[str, Csr]]:
    """Real ones, and made ones, on the host."""
    from artifact.measure import matrices
    from kernels.distributed import generate
    from kernels.distributed.generate import Rmat, Stencil
    from kernels.formats import csr

    folder = matrices.folder()
    for path in sorted(folder.glob("*.npz")):
        yield path.stem, matrices.load(path.stem, folder)
    made = {f"mesh {side}³": Stencil(side, SEED) for side in SIDES}
    made |= {f"graph 2^{scale}": Rmat(scale, DEGREE, SEED) for scale in SCALES}
    for name, which in made.items():
        yield name, csr.to_host(generate.part(which, np.array([0, which.m]), 0).a)


def measure() -> None:
    """The file anew, on the GPU that is here: about a minute on an H200."""
    from artifact.measure import device as gpu
    from kernels.async_sparse import operands
    from kernels.tuning import heats

    device = gpu.require().open()
    slots = device.properties.multiprocessor_count
    rows = []
    for name, a in matrices():
        # With fewer groups a warp has one task whatever is asked for.
        configs = [c for c in CONFIGS if a.m / c.rows >= 4 * slots * union.blocks_of(c) * union.WARPS]
        for n in WIDTHS if configs else ():
            p = operands.problem_from_csr(a, n, SEED, name, format="csr", dtype="tf32", reorder="")
            for config in configs:
                bounds = {}
                for most in MOST:
                    with mock.patch.multiple(union, MOST_TASKS=most, WORK=np.inf):
                        bounds[str(most)] = union.bind("union_rows", p, device, config)
                prepared = union.prepare(p.device().a, config)
                columns = prepared.col_idx.size / prepared.work.count
                at = name, a.m, a.nnz, n, config.rows, config.loads, f"{columns:.4g}"
                for most, us in heats.race(bounds, device, LAUNCHES).items():
                    rows.append((*at, most, f"{us:.2f}"))
            apart.release(p)
    names = ["matrix", "m", "nnz", "n", "rows", "loads", "columns", "tasks", "us"]
    apart.write(FILE, __file__, device, names, rows)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    measure()
