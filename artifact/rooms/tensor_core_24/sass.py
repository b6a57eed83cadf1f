"""What the compiler makes of the room's kernels, compiled here: tables, counts and excerpts of SASS."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.drawing.compiled import instructions
from artifact.drawing.prose import captioned
from artifact.rooms.tensor_core_24 import variants
from kernels import jit
from kernels import tensor_core_24 as room

#: Of the step of a kernel, what moves data or multiplies.
_PUBLISHED_LOOP = r"(@!?P\d )?(HMMA|LDSM|LDGSTS)"
_PERSISTENT_LOOP = r"(@!?U?P\d )?(HGMMA|WARPGROUP|SYNCS|LDS|UTMALDG)"


def plain(report: pd.DataFrame) -> pd.DataFrame:
    """Of a compile report, each variant's first instantiation on each target: BF16, whole tiles."""
    return report.drop_duplicates(["variant", "target"])


@dataclass(frozen=True)
class Published:
    """The published kernel on all targets, and its multiplications on Hopper."""

    table: pd.DataFrame  #: a row per target
    multiplications: int  #: mma.sp of a warp and step
    selectors: dict[str, int]  #: of these, with selector "0x0" and "0x1"
    past_l1: bool  #: whether all copies pass L1 by, on all targets
    loop: list[str]  #: multiplications, loads from shared memory and copies on Hopper, in order


def published(report: pd.DataFrame) -> Published:
    """report: the room's compile report."""
    first = plain(report)
    kernel = room.VARIANTS["mma_sp"]
    rows = []
    for _, row in first[first["variant"] == "mma_sp"].iterrows():
        mix = jit.instruction_mix(jit.compile_cubin(kernel.source, row["entry"], row["target"]))
        rows.append(
            {
                "target": row["target"],
                "registers": row["registers"],
                "spills": "yes" if row["spills"] else "no",
                "HMMA.SP": row.get("HMMA.SP", 0),
                "LDSM": _count(mix, "LDSM"),
                "LDGSTS, past L1": _count(mix, "LDGSTS", "BYPASS"),
                "LDGSTS, all": _count(mix, "LDGSTS"),
            }
        )
    table = pd.DataFrame(rows)
    ops = instructions(kernel)
    multiplied = [op for op in ops if "HMMA.SP" in op]
    selectors = {s: sum(op.endswith(f"{s} ;") for op in multiplied) for s in ("0x0", "0x1")}
    past_l1 = bool((table["LDGSTS, past L1"] == table["LDGSTS, all"]).all())
    loop = [op for op in ops if re.match(_PUBLISHED_LOOP, op)]
    return Published(table, len(multiplied), selectors, past_l1, loop)


def published_excerpt(loop: list[str]) -> str:
    """The begin of the published kernel's loop, and where it goes over to the other selector."""
    begin = next(i for i, op in enumerate(loop) if op.startswith("HMMA"))
    switch = next(i for i, op in enumerate(loop) if op.endswith("0x1 ;") and op.startswith("HMMA"))
    return "\n".join([*loop[begin : begin + 10], "…", *loop[switch - 3 : switch + 5]])


def ladder_rows(report: pd.DataFrame) -> pd.DataFrame:
    """The rungs' rows of a compile report, by name."""
    first = plain(report)
    return first[first["variant"].isin(room.RUNGS)].set_index("variant")


@captioned("What the compiler makes of each rung for sm_90a.")
def ladder_table(report: pd.DataFrame) -> pd.DataFrame:
    rows = ladder_rows(report)
    used = rows[["registers", "HGMMA.SP", "UTMALDG", "instructions"]].copy()
    used["spills"] = np.where(rows["spills"], "yes", "no")
    rungs = variants.rungs()
    used.insert(1, "shared [KiB]", [rungs[name].shared_kib for name in used.index])
    return used.rename(columns={"UTMALDG": "TMA loads"}).reset_index()


def step_of_persistent() -> str:
    """A step of a warpgroup of `wgmma_persistent`, without the address arithmetic."""
    ops = [op for op in instructions(room.VARIANTS["wgmma_persistent"]) if re.match(_PERSISTENT_LOOP, op)]
    where = [i for i, op in enumerate(ops) if op.startswith("HGMMA")]
    start = next(i for i in range(where[2], -1, -1) if "TRYWAIT" in ops[i])
    return "\n".join(ops[start : where[3] + 3])


def _count(mix: dict[str, int], *parts: str) -> int:
    """Instructions whose opcode and modifiers hold all parts."""
    return sum(n for op, n in mix.items() if all(part in op.split(".") for part in parts))
