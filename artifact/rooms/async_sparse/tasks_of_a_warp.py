"""How many tasks a warp of union_rows.cu should have: the experiment behind `union.WORK`.

    python -m artifact.rooms.async_sparse.tasks_of_a_warp [FILE]       the file anew: a GPU, SPARSITY_MATRICES
    python -m artifact.rooms.async_sparse.tasks_of_a_warp --counters   neighbours.csv beside it anew: a GPU, and ncu

The file has the median of six launches, cold L2, with up to 1, 2, 4 and 8 tasks a warp, of real matrices that have
enough groups of rows for more than one, and of meshes and power-law graphs that are made from a seed. Its columns rows
and loads are of the configuration, columns is of a task, on average, and tasks of a warp at most.

neighbours.csv says why the side of a mesh decided how fast it was multiplied: DRAM's bytes with one task a warp, and
with eight. Each launch is one panel of 128 columns of the kernel for groups of four rows, the second of two, under ncu
with its clocks left alone. Of the columns l2_hit is the share of sectors read that L2 had.
"""

import io
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from artifact.rooms.async_sparse.experiments import SEED, problem, real, script
from kernels import distributed
from kernels.async_sparse import union
from kernels.async_sparse.union import Union
from kernels.distributed import generate
from kernels.distributed.generate import Rmat, Stencil
from kernels.formats import csr
from kernels.formats.csr import Csr
from kernels.tuning import heats

FILE = Path(__file__).with_suffix(".csv")
NEIGHBOURS = FILE.with_name("neighbours.csv")
COLUMNS = ["matrix", "m", "nnz", "n", "rows", "loads", "columns", "tasks", "us"]
MOST = (1, 2, 4, 8)  #: tasks of a warp at most
CONFIGS = (Union(1, 4, 1, 8), Union(1, 4, 2, 4), Union(2, 4, 1, 8), Union(4, 4, 1, 4))
SIDES, SCALES, DEGREE = (64, 100, 128, 150), (16, 18), 32  #: of meshes; of graphs
WIDTHS, LAUNCHES = (128, 512), 6
COUNTED_SIDES, COUNTED_TASKS, COUNTED_WIDTH = (203, 255, 256), (8, 1), 128
METRICS = (
    "gpu__time_duration.sum",
    *("dram__bytes_read.sum", "dram__bytes_write.sum"),
    *("lts__t_sectors_op_read.sum", "lts__t_sectors_op_read_lookup_hit.sum"),
)
NCU = "ncu --clock-control none -k regex:union_rows --csv --print-units base --metrics".split()


def gains(df: pd.DataFrame) -> pd.DataFrame:
    """Return for each launch: loaded, the bytes of B in a task, and for 1, 2 and 4 tasks a warp how many times as fast
    it is as with 8."""
    wide = df.pivot_table(index=COLUMNS[:-2], columns="tasks", values="us").reset_index()
    # Of a panel of columns: loads are of 4 values for each of 32 lanes.
    loaded = wide["columns"] * (128 * wide["loads"]).clip(upper=wide["n"]) * 4
    each = {f"gain_{most}": wide[MOST[-1]] / wide[most] for most in MOST[:-1]}
    return wide.assign(loaded=loaded, **each).drop(columns=list(MOST))


def ruled(df: pd.DataFrame) -> pd.DataFrame:
    """Return `gains`, and gain: how many times as fast a launch is with the largest number of `MOST` that the rule
    allows."""
    made = gains(df).assign(gain_8=1.0)
    gain = made[[f"gain_{most}" for most in MOST]].to_numpy()
    allowed = np.searchsorted(MOST, (union.WORK / made["loaded"]).clip(lower=1), side="right") - 1
    return made.assign(gain=gain[np.arange(len(made)), allowed])


def every() -> Iterator[tuple[str, Csr]]:
    """Yield real matrices, and made ones, on the host."""
    yield from real(listed=False)
    made = {f"mesh {side}³": Stencil(side, SEED) for side in SIDES}
    for name, which in (made | {f"graph 2^{scale}": Rmat(scale, DEGREE, SEED) for scale in SCALES}).items():
        yield name, csr.to_host(generate.part(which, np.array([0, which.m]), 0).a)


def rows(device: Any) -> Iterator[tuple]:
    """Measure the file's rows: about a minute on an H200."""
    slots = device.properties.multiprocessor_count
    for name, a in every():
        # With fewer groups a warp has one task whatever is asked for.
        configs = [c for c in CONFIGS if a.m / c.rows >= 4 * slots * union.blocks_of(c) * union.WARPS]
        for n in WIDTHS if configs else ():
            with problem(a, n, name, "tf32") as p:
                for config in configs:
                    bounds = {}
                    for most in MOST:
                        with mock.patch.multiple(union, MOST_TASKS=most, WORK=np.inf):
                            bounds[str(most)] = union.bind("union_rows", p, device, config)
                    prepared = union.prepare(p.device().a, config)
                    at = config.rows, config.loads, f"{prepared.col_idx.size / prepared.work.count:.4g}"
                    for tasks, us in heats.race(bounds, device, LAUNCHES).items():
                        yield name, a.m, a.nnz, n, *at, tasks, f"{us:.2f}"


# ---------------------------------------------------------------- counters


def counted(lines: Iterable[str]) -> dict[str, float]:
    """Return what ncu's CSV says of the last launch: ms, DRAM's bytes, l2_hit. Raises ValueError where it says
    nothing."""
    table = [line for line in lines if line.startswith('"')]
    if not table:
        raise ValueError("ncu counted no launch: run it by hand and read what it says")
    df = pd.read_csv(io.StringIO("\n".join(table)), thousands=",")
    last = df[df["ID"] == df["ID"].iloc[-1]].set_index("Metric Name")["Metric Value"].astype(float)
    ns, read, written, asked, hit = last[list(METRICS)]
    return {"ms": ns / 1e6, "dram_read_bytes": read, "dram_write_bytes": written, "l2_hit": hit / asked}


def multiply(side: int, tasks: int) -> None:
    """Multiply a mesh twice, on the GPU that is here."""
    here, mesh = distributed.Gpu(0), generate.Stencil(side, SEED)
    with mock.patch.multiple(union, MOST_TASKS=tasks, WORK=np.inf):
        plan = distributed.plan(generate.part(mesh, np.array([0, mesh.m]), 0), COUNTED_WIDTH, machine=here)
    generate.fill_dense(plan.operand(), 0, SEED)
    for _ in range(2):
        plan()
    here.sync()


def launched(side: int, tasks: int) -> dict[str, float]:
    """Count a launch in a process of its own."""
    this = [sys.executable, "-m", __spec__.name, "--multiply", str(side), str(tasks)]
    said = subprocess.run([*NCU, ",".join(METRICS), *this], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    return {"side": side, "n": COUNTED_WIDTH, "tasks": tasks, **counted(said.splitlines())}


if __name__ == "__main__":
    if sys.argv[1:] == ["--counters"]:
        table = pd.DataFrame([launched(*at) for at in product(COUNTED_SIDES, COUNTED_TASKS)])
        table.to_csv(NEIGHBOURS, index=False, float_format="%.6g", lineterminator="\n")
    elif sys.argv[1:2] == ["--multiply"]:  # only this, for ncu
        multiply(*map(int, sys.argv[2:]))
    else:
        script(__doc__, FILE, COLUMNS, rows)
