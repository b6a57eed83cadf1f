"""What the chapter asks of the kernels' configurations: what fits where, the ladder, what was chosen.

A machine is a run's machine.json, a shape m, n and k (and how operands lie) as `sweeps` gives it.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from artifact.drawing import words
from artifact.measure.run import Run
from kernels import tensor_core_24 as room
from kernels import tuning
from kernels.tensor_core_24 import family

BYTES_PER_CLOCK = 128  #: of an SM's shared memory
PORT_BYTES = 64  #: that an SM gets from L2 in a clock, about
RESERVED = 1024  #: bytes of shared memory that CUDA keeps of each block
#: Who is looked at in most figures: the source's kernel, our best, and the libraries.
MAIN = ("mma_sp", "auto", "cusparselt_default", "cusparselt", "cublaslt")
#: Variants for their looks: the source's kernel first, our best last.
ORDER = ("mma_sp", *room.RUNGS, "auto")
STUDIES = tuple(name for name in room.VARIANTS if name.startswith("mma_sp_"))
PREDICTIONS = {v: words.times(kernel.prediction) for v, kernel in room.VARIANTS.items()}
Machine = Mapping[str, Any]
Shape = tuple[int, int, int]


def is_hopper(machine: Machine) -> bool:
    return machine["compute_capability"] == "9.0"


def takes(machine: Machine, variant: str, *shapes: Mapping[str, Any]) -> bool:
    """Tell whether a GPU has a kernel, whose block fits into shared memory, and whether these shapes have work for all
    of it."""
    block = machine["shared_bytes_per_sm"] - RESERVED
    if variant not in room.RUNGS:
        return family.STUDIES.get(variant, family.PUBLISHED).shared_bytes <= block
    try:
        for s in shapes:
            room.RUNGS[variant][0].check(s["m"], s["n"], s["k"], machine["sm_count"], block)
    except ValueError:
        return False
    return is_hopper(machine)


def step() -> tuple[int, int, int]:
    """Return what a step of a block of the published kernel is, 64 columns of A: dense-equivalent FLOP, bytes that its
    warps read from shared memory by ldmatrix, and bytes that cp.async writes there."""
    c = family.PUBLISHED
    read = c.threads // 32 * (c.wm * c.bk + 2 * c.bk * c.wn + c.wm * c.bk // 8)
    return 2 * c.bm * c.bn * c.bk, read, c.shared_bytes // c.stages


def blocks(machine: Machine, variant: str = "mma_sp") -> dict[str, int]:
    """Return how many blocks of the published kernel, or of a study, an SM has room for, by what they need: registers,
    256 a thread, and shared memory."""
    shared = family.STUDIES.get(variant, family.PUBLISHED).shared_bytes + RESERVED
    registers = 256 * family.PUBLISHED.threads
    return {
        "registers": machine["registers_per_sm"] // registers,
        "shared": machine["shared_bytes_per_sm"] // shared,
    }


@cache
def rungs() -> pd.DataFrame:
    """Return the ladder, a row for each kernel: its configuration, file, tile, KiB of shared memory of a block with its
    barriers, idea, prediction, the factor in that (NaN for none), and the kernel before: the one that the prediction
    names, else the row above. Split-K is for other shapes, and held against `wgmma_keep`."""
    df = pd.DataFrame(
        {
            "rung": name,
            "config": c,
            "file": c.source.name,
            "tile": f"{c.m} × {c.n}",
            "shared": round((c.shared_bytes + RESERVED) / 1024),
            "idea": idea,
            "prediction": PREDICTIONS[name],
        }
        for name, (c, idea, _) in room.RUNGS.items()
    )
    named = df["prediction"].str.extract(r"over (wgmma_\w+)")[0].mask(df["rung"] == "wgmma_split_k", "wgmma_keep")
    factor = df["prediction"].str.extract(r"^([\d.]+)×")[0].astype(float)
    before = named.fillna(df["rung"].shift(fill_value="mma_sp"))
    return df.assign(predicted=factor, before=before).set_index("rung", drop=False)


def chosen(run: Run, shapes: Iterable[Shape]) -> pd.DataFrame:
    """Return what the tuner chose, a row for each shape (m, n, k) for which there is a choice: kernel, m and n of a
    tile, splits, the operand that L2 is asked to keep, and whether B is copied to rows that begin at whole lines. It is
    looked up where `run` measures, else in the shipped file."""
    path = family.CHOICES.shipped / f"{run.gpu}.csv"

    def look_up(shape: Shape) -> Any:
        if run.device is None:
            return tuning.read(family.CHOICES, path).get((*shape, "bfloat16")) if path.is_file() else None
        key = family.key(room.problem(*shape, seed=run.seed))
        return tuning.look_up(family.CHOICES, key, run.device, lambda config: True)

    columns = ["kernel", "m", "n", "splits", "keeps", "copied"]
    found = {shape: choice.config for shape in shapes if (choice := look_up(shape)) is not None}
    rows = {
        shape: (c.kernel, c.m, c.n, c.splits, c.keep, c.copied)
        if isinstance(c, family.Wgmma)
        else ("mma_sp", c.bm, c.bn, 1, "", False)
        for shape, c in found.items()
    }
    return pd.DataFrame(list(rows.values()), pd.MultiIndex.from_tuples(rows, names=["m", "n", "k"]), columns)
