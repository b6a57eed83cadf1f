"""What the chapter asks of the kernels.

What fits where, the ladder, what was chosen, and what the compiler makes of them here, counts and excerpts of SASS.

A machine is a run's machine.json, a shape m, n and k (and how operands lie) as `sweeps` gives it.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from artifact.book import text
from artifact.drawing.compiled import instructions
from artifact.measure.run import Run
from kernels import autotune, jit
from kernels import tensor_core_24 as system
from kernels.tensor_core_24 import family

BYTES_PER_CLOCK = 128  #: of an SM's shared memory
PORT_BYTES = 64  #: that an SM gets from L2 in a clock, about
RESERVED = 1024  #: bytes of shared memory that CUDA keeps of each block
#: Who is looked at in most figures: the source's kernel, our best, and the libraries.
MAIN = ("mma_sp", "auto", "cusparselt_default", "cusparselt", "cublaslt")
#: Variants for their looks: the source's kernel first, our best last.
ORDER = ("mma_sp", *system.RUNGS, "auto")
STUDIES = tuple(name for name in system.VARIANTS if name.startswith("mma_sp_"))
PREDICTIONS = {v: text.times(kernel.prediction) for v, kernel in system.VARIANTS.items()}
#: Of the step of a kernel, what moves data or multiplies.
_PUBLISHED_LOOP = r"(@!?P\d )?(HMMA|LDSM|LDGSTS)"
_PERSISTENT_LOOP = r"(@!?U?P\d )?(HGMMA|WARPGROUP|SYNCS|LDS|UTMALDG)"
Machine = Mapping[str, Any]
Shape = tuple[int, int, int]


def is_hopper(machine: Machine) -> bool:
    """Tell whether the machine's GPU has compute capability 9.0."""
    return machine["compute_capability"] == "9.0"


def takes(machine: Machine, variant: str, *shapes: Mapping[str, Any]) -> bool:
    """Tell whether a GPU has a kernel, and whether these shapes have work for all of it.

    Its block must fit into shared memory.
    """
    block = machine["shared_bytes_per_sm"] - RESERVED
    if variant not in system.RUNGS:
        return family.STUDIES.get(variant, family.PUBLISHED).shared_bytes <= block
    try:
        for s in shapes:
            system.RUNGS[variant][0].check(s["m"], s["n"], s["k"], machine["sm_count"], block)
    except ValueError:
        return False
    return is_hopper(machine)


def step() -> tuple[int, int, int]:
    """Return what a step of a block of the published kernel is, 64 columns of A.

    Dense-equivalent FLOP, bytes that its warps read from shared memory by ldmatrix, and bytes that cp.async writes
    there.
    """
    c = family.PUBLISHED
    read = c.threads // 32 * (c.wm * c.bk + 2 * c.bk * c.wn + c.wm * c.bk // 8)
    return 2 * c.bm * c.bn * c.bk, read, c.shared_bytes // c.stages


def blocks(machine: Machine, variant: str = "mma_sp") -> dict[str, int]:
    """Return how many blocks of the published kernel, or of a study, an SM has room for, by what they need.

    Registers, 256 a thread, and shared memory.
    """
    shared = family.STUDIES.get(variant, family.PUBLISHED).shared_bytes + RESERVED
    registers = 256 * family.PUBLISHED.threads
    return {
        "registers": machine["registers_per_sm"] // registers,
        "shared": machine["shared_bytes_per_sm"] // shared,
    }


@cache
def rungs() -> pd.DataFrame:
    """Return the ladder, a row for each kernel.

    Its configuration, file, tile, KiB of shared memory of a block with its barriers, idea, prediction, the factor in
    that (NaN for none), and the kernel before: the one that the prediction names, else the row above. Split-K is for
    other shapes, and held against `wgmma_keep`.
    """
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
        for name, (c, idea, _) in system.RUNGS.items()
    )
    named = df["prediction"].str.extract(r"over (wgmma_\w+)")[0].mask(df["rung"] == "wgmma_split_k", "wgmma_keep")
    factor = df["prediction"].str.extract(r"^([\d.]+)×")[0].astype(float)
    before = named.fillna(df["rung"].shift(fill_value="mma_sp"))
    return df.assign(predicted=factor, before=before).set_index("rung", drop=False)


def chosen(run: Run, shapes: Iterable[Shape]) -> pd.DataFrame:
    """Return what the tuner chose, a row for each shape (m, n, k) for which there is a choice.

    Kernel, m and n of a tile, splits, the operand that L2 is asked to keep, and whether B is copied to rows that begin
    at whole lines. It is looked up where `run` measures, else in the shipped file.
    """
    path = family.CHOICES.shipped / f"{run.gpu}.csv"

    def look_up(shape: Shape) -> Any:
        if run.device is None:
            return autotune.read(family.CHOICES, path).get((*shape, "bfloat16")) if path.is_file() else None
        key = family.key(system.problem(*shape, seed=run.seed))
        return autotune.look_up(family.CHOICES, key, run.device, lambda config: True)

    def told(c: Any) -> tuple:
        wgmma = isinstance(c, family.Wgmma)
        return (c.kernel, c.m, c.n, c.splits, c.keep, c.copied) if wgmma else ("mma_sp", c.bm, c.bn, 1, "", False)

    rows = {shape: told(choice.config) for shape in shapes if (choice := look_up(shape))}
    index = pd.MultiIndex.from_tuples(rows, names=["m", "n", "k"])
    return pd.DataFrame(list(rows.values()), index, ["kernel", "m", "n", "splits", "keeps", "copied"])


# ---------------------------------------------------------------- what the compiler makes of them


def ladder_rows(report: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return the rows of a compile report for these kernels, by default the rungs.

    Their first instantiation, which is of BF16 and whole tiles, with the shared memory of a rung's block.
    """
    rows = report[report["variant"].isin(names or system.RUNGS)].drop_duplicates(["variant", "target"])
    rows = rows.assign(spilled=rows["spills"].map({True: "yes", False: "no"}))
    return rows.join(rungs()["shared"], on="variant")


def published(report: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the published kernel's rows of a compile report, and its loop on Hopper.

    One row for each target, with LDSM, copies and those past L1; of the loop, in order, multiplications, loads from
    shared memory and copies.
    """
    kernel, rows = system.VARIANTS["mma_sp"], ladder_rows(report, "mma_sp")
    cubins = [jit.compile_cubin(kernel.source, r.entry, r.target) for r in rows.itertuples()]
    mixes = [[(op.split("."), n) for op, n in jit.instruction_mix(cubin).items()] for cubin in cubins]
    counted = {"LDSM": {"LDSM"}, "past_l1": {"LDGSTS", "BYPASS"}, "copies": {"LDGSTS"}}
    found = {name: [sum(n for op, n in mix if parts <= {*op}) for mix in mixes] for name, parts in counted.items()}
    return rows.assign(**found), [op for op in instructions(kernel) if re.match(_PUBLISHED_LOOP, op)]


def published_excerpt(loop: list[str]) -> str:
    """Return the begin of the published kernel's loop, and where it goes over to the other selector."""
    begin = next(i for i, op in enumerate(loop) if op.startswith("HMMA"))
    switch = next(i for i, op in enumerate(loop) if op.endswith("0x1 ;") and op.startswith("HMMA"))
    return "\n".join([*loop[begin : begin + 10], "…", *loop[switch - 3 : switch + 5]])


def step_of_persistent() -> str:
    """Return a step of a warpgroup of `wgmma_persistent`, without the address arithmetic."""
    ops = [op for op in instructions(system.VARIANTS["wgmma_persistent"]) if re.match(_PERSISTENT_LOOP, op)]
    where = [i for i, op in enumerate(ops) if op.startswith("HGMMA")]
    start = next(i for i in range(where[2], -1, -1) if "TRYWAIT" in ops[i])
    return "\n".join(ops[start : where[3] + 3])
