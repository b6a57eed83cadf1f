"""What the machine code of the room's kernels says: which entry to look at, its loop, its clashes of register banks."""

from __future__ import annotations

import html
from collections.abc import Iterable

import pandas as pd

from artifact.drawing.prose import captioned
from kernels import jit
from kernels import nm_spmm as room
from kernels.contract import Problem
from kernels.nm_spmm import analysis, banks, published


def fullest(report: pd.DataFrame, variant: str, target: str) -> pd.Series | None:
    """The row of a variant's entry with the most multiply-adds: its unrolled step of the largest tile.

    report: `artifact.measure.run.compile_report`. None where the variant is not compiled for the target.
    """
    rows = report[(report["variant"] == variant) & (report["target"] == target)]
    return rows.loc[rows["FFMA"].idxmax()] if len(rows) else None


def sass(variant: str, entry: str, target: str) -> str:
    return jit.disassemble(jit.compile_cubin(room.VARIANTS[variant].source, entry, target))


def loop_bytes(report: pd.DataFrame, target: str, variants: Iterable[str]) -> dict[str, int]:
    """Variant -> bytes of the largest loop of multiply-adds; those that are compiled for the target."""
    found = {v: fullest(report, v, target) for v in variants}
    return {
        v: 16 * banks.instructions(banks.loop(sass(v, most["entry"], target)))
        for v, most in found.items()
        if most is not None
    }


def clashes(report: pd.DataFrame, target: str, variants: Iterable[str]) -> pd.DataFrame:
    """Of each variant's main loop: useful (share of multiply-adds in all instructions), clash (share of them with
    two operands in one register bank), left (the share of the ceiling that remains if each clash costs a cycle).

    Indexed by variant; without those that multiply on tensor cores, or are not compiled for the target.
    """
    rows = {}
    for variant in variants:
        most = fullest(report, variant, target)
        if most is None or not most["FFMA"]:
            continue
        code = sass(variant, most["entry"], target)
        code = banks.loop(code) or code
        found = banks.conflicts(code)
        useful = found["ffma"] / banks.instructions(code)
        clash = (found["two_same"] + found["three_same"]) / found["ffma"]
        rows[variant] = {"useful": useful, "clash": clash, "left": useful / (1 + useful * clash)}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["useful", "clash", "left"])


@captioned("V1 to V3 as they are compiled for a size of your own.")
def own(here: analysis.Device, problem: Problem, target: str) -> pd.DataFrame:
    """V1 to V3 as they are compiled for a reader's own problem on the GPU `here`: their template instantiation,
    registers a thread, multiply-adds in the machine code. Raises ValueError, one sentence, for what V3 does not take.
    """
    b, name = problem.host().b, analysis.class_of(here, problem.m, problem.n)
    rows = []
    for variant in ("v1", "v2", "v3"):
        tile = published.configured(variant, name, b.keep, b.group)
        stem = published.source_of(variant, tile.packed)
        entry = published.entry(stem, tile, b.keep, b.group, published.slot_of(variant, b))
        cubin = jit.compile_cubin(published.HERE / f"{stem}.cu", entry, target)
        used, mix = jit.resources(cubin), jit.instruction_mix(cubin)
        count = sum(n for op, n in mix.items() if op.startswith("FFMA"))
        rows.append(
            {"variant": f"<code>{variant}</code>", "kernel": f"<code>{html.escape(entry)}</code>"}
            | {"registers": used.registers, "FFMA": count}
            | {"of all instructions": f"{count / sum(mix.values()):.0%}"}
        )
    return pd.DataFrame(rows)
