"""What the same bits twice cost: kernels for CSR as they were chosen, and the same with parts added up in order.

    python -m artifact.rooms.async_sparse.in_order [FILE]     in_order.csv anew: a GPU, SPARSITY_MATRICES; and the price

The file has medians of launches in turns, cold L2, of real matrices at N = 256, with the configuration that trials
chose for each. Where no group or window has more than two parts, both are one kernel, and two times tell the noise.
"""

from __future__ import annotations

import argparse
from math import ceil
from pathlib import Path

import numpy as np
import pandas as pd

from artifact.drawing.prose import captioned
from artifact.measure import apart
from artifact.rooms.async_sparse import measured
from kernels.async_sparse.any_csr import ACCURACIES

FILE = Path(__file__).with_suffix(".csv")
N, LAUNCHES, SEED, MATRICES = 256, 21, 5, 74
#: Way of the library -> dtype of the problem.
DTYPES = {"auto_fp32": "float32", "auto_tf32": "tf32", "auto_half": "bfloat16"}


def read(path: Path = FILE) -> pd.DataFrame:
    """matrix, m, nnz, n, auto, config, parts, us (as chosen), in_order_us."""
    return apart.read(path)


def price(df: pd.DataFrame) -> pd.DataFrame:
    """Of each auto: matrices, geometric mean and largest of in_order_us / us; cut, how many have three parts or more,
    cut_mean, the mean over these; worst, the matrix of the largest."""
    rows = []
    for auto, every in df.groupby("auto", sort=False):
        ratio = every["in_order_us"] / every["us"]
        cut = every["parts"] > 2
        means = (float(np.exp(np.log(x).mean())) if len(x) else np.nan for x in (ratio, ratio[cut]))
        worst = every.loc[ratio.idxmax(), "matrix"]
        rows.append((auto, len(every), next(means), ratio.max(), int(cut.sum()), next(means), worst))
    names = ["auto", "matrices", "mean", "largest", "cut", "cut_mean", "worst"]
    return pd.DataFrame(rows, columns=names)


@captioned("What it costs to add parts in one order, over the same kernels as they were chosen.")
def table(path: Path = FILE) -> pd.DataFrame | None:
    """`price` as a page shows it; None without the file."""
    if not path.is_file():
        return None
    df = price(read(path))
    return pd.DataFrame(
        {
            "way": "<code>" + df["auto"] + "</code>",
            "matrices": df["matrices"],
            "geometric mean": df["mean"].map("{:.3f}×".format),
            "at most": df["largest"].map("{:.2f}×".format) + "<br><small>" + df["worst"] + "</small>",
            "with three parts or more": df["cut"],
            "mean of these": df["cut_mean"].map("{:.3f}×".format),
        }
    )


def measure(path: Path = FILE) -> None:
    """The file anew, on the GPU that is here: some minutes on an H100."""
    from artifact.measure import device as gpu
    from kernels.async_sparse import any_csr, operands
    from kernels.library import in_order
    from kernels.tuning import heats, knobs

    device = gpu.require().open()
    rows = []
    for name, a in measured.real(MATRICES):
        for auto, dtype in DTYPES.items():
            p = operands.problem_from_csr(a, N, SEED, name, format="csr", dtype=dtype, reorder="")
            config = any_csr.tune(p, device, ACCURACIES[auto]).config
            bounds = {
                asked: any_csr.bind_config(asked, p, device, c)
                for asked, c in (("chosen", config), ("in order", in_order.in_order(config)))
            }
            us = heats.race(bounds, device, LAUNCHES)
            at = name, a.m, a.nnz, N, auto, knobs(config), parts_of(p, device, config)
            rows.append((*at, f"{us['chosen']:.2f}", f"{us['in order']:.2f}"))
            print(*rows[-1], flush=True)
            apart.release(p)
    names = ["matrix", "m", "nnz", "n", "auto", "config", "parts", "us", "in_order_us"]
    apart.write(path, __file__, device, names, rows)


def parts_of(p, device, config) -> int:
    """Parts of the group or window that has the most, 1 where none is cut."""
    from kernels.async_sparse import union, windows

    a = p.device().a
    if isinstance(config, union.Union):
        made = union.prepare(a, config)
    else:
        blocks = device.properties.multiprocessor_count * (3 - config.groups)
        panels = ceil(p.n / (windows.GROUP_COLUMNS * config.groups))
        made = windows.prepare(a, config, blocks, panels)
    place = made.work.table[:, 3].get()
    return int(np.bincount(place[place >= 0]).max(initial=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    where = parser.parse_args().file
    measure(where)
    print(price(read(where)).to_string(index=False))
