"""What the compiler makes of the room's kernels, compiled here: counts and excerpts of SASS."""

import re

import pandas as pd

from artifact.drawing.compiled import instructions
from artifact.rooms.tensor_core_24 import variants
from kernels import jit
from kernels import tensor_core_24 as room

#: Of the step of a kernel, what moves data or multiplies.
_PUBLISHED_LOOP = r"(@!?P\d )?(HMMA|LDSM|LDGSTS)"
_PERSISTENT_LOOP = r"(@!?U?P\d )?(HGMMA|WARPGROUP|SYNCS|LDS|UTMALDG)"


def ladder_rows(report: pd.DataFrame, *names: str) -> pd.DataFrame:
    """Return the rows of a compile report for these kernels, by default the rungs: their first instantiation, which is
    of BF16 and whole tiles, with the shared memory of a rung's block."""
    rows = report[report["variant"].isin(names or room.RUNGS)].drop_duplicates(["variant", "target"])
    rows = rows.assign(spilled=rows["spills"].map({True: "yes", False: "no"}))
    return rows.join(variants.rungs()["shared"], on="variant")


def published(report: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the published kernel's rows of a compile report, one for each target, with LDSM, copies and those past L1;
    and of its loop on Hopper, in order, multiplications, loads from shared memory and copies."""
    kernel, rows = room.VARIANTS["mma_sp"], ladder_rows(report, "mma_sp")
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
    ops = [op for op in instructions(room.VARIANTS["wgmma_persistent"]) if re.match(_PERSISTENT_LOOP, op)]
    where = [i for i, op in enumerate(ops) if op.startswith("HGMMA")]
    start = next(i for i in range(where[2], -1, -1) if "TRYWAIT" in ops[i])
    return "\n".join(ops[start : where[3] + 3])
