"""Why the side of a mesh decided how fast it was multiplied: DRAM's bytes with one task a warp, and with eight.

    python -m artifact.rooms.async_sparse.neighbours     neighbours.csv beside this file anew: a GPU, and ncu

Each launch is one panel of 128 columns of the kernel for groups of four rows, the second of two, under ncu with its
clocks left alone. Of the columns l2_hit is the share of sectors read that L2 had.
"""

from __future__ import annotations

import argparse
import csv
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd

from kernels import distributed
from kernels.async_sparse import union
from kernels.distributed import generate

FILE = Path(__file__).with_suffix(".csv")
SIDES, TASKS, WIDTH, SEED = (203, 255, 256), (8, 1), 128, 5
METRICS = {
    "ms": "gpu__time_duration.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
    "asked": "lts__t_sectors_op_read.sum",
    "hit": "lts__t_sectors_op_read_lookup_hit.sum",
}
NCU = "ncu --clock-control none -k regex:union_rows --csv --print-units base --metrics".split()


def counted(lines: Iterable[str]) -> dict[str, float]:
    """Return what ncu's CSV says of the last launch: ms, DRAM's bytes, l2_hit. Raises ValueError where it says
    nothing."""
    table = [row for row in csv.DictReader(x for x in lines if x.startswith('"'))]
    if not table:
        raise ValueError("ncu counted no launch: run it by hand and read what it says")
    last = [row for row in table if row["ID"] == table[-1]["ID"]]
    found = {row["Metric Name"]: float(row["Metric Value"].replace(",", "")) for row in last}
    ns, read, written, asked, hit = (found[metric] for metric in METRICS.values())
    return {"ms": ns / 1e6, "dram_read_bytes": read, "dram_write_bytes": written, "l2_hit": hit / asked}


def multiply(side: int, tasks: int) -> None:
    """Multiply a mesh twice, on the GPU that is here."""
    here, mesh = distributed.Gpu(0), generate.Stencil(side, SEED)
    with mock.patch.multiple(union, MOST_TASKS=tasks, WORK=np.inf):
        plan = distributed.plan(generate.part(mesh, np.array([0, mesh.m]), 0), WIDTH, machine=here)
    generate.fill_dense(plan.operand(), 0, SEED)
    for _ in range(2):
        plan()
    here.sync()


def measured(side: int, tasks: int) -> dict[str, float]:
    """Count a launch in a process of its own."""
    command = [
        *NCU,
        ",".join(METRICS.values()),
        sys.executable,
        "-m",
        __spec__.name,
        "--multiply",
        str(side),
        str(tasks),
    ]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=True)
    return {"side": side, "n": WIDTH, "tasks": tasks, **counted(done.stdout.splitlines())}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--multiply", type=int, nargs=2, metavar=("SIDE", "TASKS"), help="only this, for ncu")
    given = parser.parse_args(argv)
    if given.multiply:
        return multiply(*given.multiply)
    if shutil.which("ncu") is None:
        raise FileNotFoundError("counters need ncu, of Nsight Compute, which is not on the PATH")
    table = pd.DataFrame([measured(side, tasks) for side in SIDES for tasks in TASKS])
    table.to_csv(FILE, index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    main()
