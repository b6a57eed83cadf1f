"""What the machine code of the room's kernels says: which entry to look at, its loop, its clashes of register banks."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from artifact.rooms.nm_spmm.study import Spmm
from kernels import jit
from kernels import nm_spmm as room
from kernels.contract import Problem
from kernels.nm_spmm import analysis, banks, published


def fullest(report: pd.DataFrame) -> pd.DataFrame:
    """Return, by variant, the entry with the most multiply-adds: its unrolled step of the largest tile.

    report: `artifact.measure.run.compile_report` for one target.
    """
    return report.loc[report.groupby("variant", sort=False)["FFMA"].idxmax()].set_index("variant")


def loops(study: Spmm, variants: Iterable[str]) -> dict[str, str]:
    """Return the machine code of each variant's largest loop of multiply-adds, of those that the page's target has."""
    most = fullest(study.report)["entry"]
    cubins = {v: jit.compile_cubin(room.VARIANTS[v].source, most[v], study.target) for v in variants if v in most}
    code = {v: jit.disassemble(cubin) for v, cubin in cubins.items()}
    return {v: banks.loop(sass) or sass for v, sass in code.items()}


def clashes(loops: dict[str, str]) -> pd.DataFrame:
    """Of each main loop return, by variant: useful (share of multiply-adds in all instructions), clash (share of them
    with two operands in one register bank), left (of the ceiling, if each clash costs a cycle)."""
    rows = pd.DataFrame.from_dict({v: banks.conflicts(code) for v, code in loops.items()}, orient="index")
    all_, same = pd.Series({v: banks.instructions(code) for v, code in loops.items()}), rows["two_same"]
    useful, clash = rows["ffma"] / all_, (same + rows["three_same"]) / rows["ffma"]
    return pd.DataFrame({"useful": useful, "clash": clash, "left": useful / (1 + useful * clash)})


def compiled(report: pd.DataFrame) -> pd.DataFrame:
    """Return registers, shared memory, spills and multiply-adds of the variants, a row each, over all their entries."""
    own, most = report.groupby("variant", sort=False), fullest(report)
    registers = own["registers"].agg(lambda used: " to ".join(map(str, sorted({used.min(), used.max()}))))
    tensor = most.filter(regex="^HG?MMA").sum(axis=1)
    return pd.DataFrame(
        {
            "kernels": own.size(),
            "registers": registers,
            "shared": own["shared_bytes"].max(),
            "spilling": own["spills"].sum().replace(0, "none"),
            "FFMA": most["FFMA"],
            "useful": (most["FFMA"] / most["instructions"]).replace(0, np.nan),
            "tensor": tensor.replace(0, np.nan),
        }
    ).reset_index()


def own(here: analysis.Device, problem: Problem, target: str) -> pd.DataFrame:
    """Return V1 to V3 as they are compiled for a reader's own problem on the GPU `here`: their template instantiation,
    registers a thread, multiply-adds in the machine code. Raises ValueError, one sentence, for what V3 does not take.
    """
    b, name, rows = problem.host().b, analysis.class_of(here, problem.m, problem.n), []
    for variant in ("v1", "v2", "v3"):
        tile = published.configured(variant, name, b.keep, b.group)
        stem = published.source_of(variant, tile.packed)
        entry = published.entry(stem, tile, b.keep, b.group, published.slot_of(variant, b))
        cubin = jit.compile_cubin(published.HERE / f"{stem}.cu", entry, target)
        mix = jit.instruction_mix(cubin)
        count = sum(n for op, n in mix.items() if op.startswith("FFMA"))
        used = jit.resources(cubin).registers
        rows.append((variant, f"`{entry}`", used, count, count / sum(mix.values())))
    return pd.DataFrame(rows, columns=["variant", "kernel", "registers", "FFMA", "useful"])
