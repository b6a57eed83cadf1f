"""What the same bits twice cost: kernels for CSR as they were chosen, and the same with parts added up in order.

    python -m artifact.rooms.async_sparse.in_order [FILE]     in_order.csv anew: a GPU, SPARSITY_MATRICES; and the price

The file has medians of launches in turns, cold L2, of real matrices at N = 256, with the configuration that trials
chose for each. Where no group or window has more than two parts, both are one kernel, and two times tell the noise.
"""

from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.rooms.async_sparse.experiments import problem, real, script
from kernels.async_sparse import any_csr, union, windows
from kernels.contract import Problem
from kernels.library.in_order import in_order
from kernels.tuning import heats, knobs

FILE = Path(__file__).with_suffix(".csv")
N, LAUNCHES = 256, 21
COLUMNS = ["matrix", "m", "nnz", "n", "auto", "config", "parts", "us", "in_order_us"]
#: Way of the library -> dtype of the problem.
DTYPES = {"auto_fp32": "float32", "auto_tf32": "tf32", "auto_half": "bfloat16"}


def price(df: pd.DataFrame) -> pd.DataFrame:
    """Return of each auto: matrices, geometric mean and largest of in_order_us / us, and the matrix of the largest; how
    many matrices have three parts or more, and the mean over these."""
    ratio, auto = df["in_order_us"] / df["us"], df["auto"]
    table = ratio.groupby(auto, sort=False).agg(matrices="size", mean=records.geomean, largest="max", worst="idxmax")
    cut = ratio[df["parts"] > 2].groupby(auto).agg(cut="size", cut_mean=records.geomean)
    return table.assign(worst=table["worst"].map(df["matrix"])).join(cut).fillna({"cut": 0}).reset_index()


def rows(device: Any) -> Iterator[tuple]:
    """Measure the file's rows: some minutes on an H100."""
    for name, a in real():
        for auto, dtype in DTYPES.items():
            with problem(a, N, name, dtype) as p:
                config = any_csr.tune(p, device, any_csr.ACCURACIES[auto]).config
                configs = {"us": config, "in_order_us": in_order(config)}
                us = heats.race({x: any_csr.bind_config(x, p, device, configs[x]) for x in configs}, device, LAUNCHES)
                at = name, a.m, a.nnz, N, auto, knobs(config), parts_of(p, device, config)
                yield *at, *(f"{us[x]:.2f}" for x in configs)


def parts_of(p: Problem, device: Any, config: Any) -> int:
    """Return the parts of the group or window that has the most, 1 where none is cut."""
    a = p.device().a
    if isinstance(config, union.Union):
        made: Any = union.prepare(a, config)
    else:
        blocks = device.properties.multiprocessor_count * (3 - config.groups)
        panels = ceil(p.n / (windows.GROUP_COLUMNS * config.groups))
        made = windows.prepare(a, config, blocks, panels)
    place = made.work.table[:, 3].get()
    return int(np.bincount(place[place >= 0]).max(initial=1))


if __name__ == "__main__":
    script(__doc__, FILE, COLUMNS, rows, price)
