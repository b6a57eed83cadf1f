"""What the compiler made of a room's kernels: registers, spills and the instructions that tell them apart."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor

import pandas as pd

#: SASS opcodes that tell kernels of these rooms apart; for loads and stores the width of one access
#: counts as well.
MEMORY_OPS = ("LDG", "STG", "LDS", "STS", "LDGSTS", "LDL", "STL")
OTHER_OPS = (
    "FFMA",
    "FFMA2",
    "SHFL",
    "ATOMG",
    "ATOMS",
    "RED",
    "REDG",
    "BAR",
    "HMMA",
    "HMMA.SP",
    "HGMMA",
    "HGMMA.SP",
    "UTMALDG",
)


def compile_report(room: str, variants: Collection[str] | None = None, target: str | None = None) -> pd.DataFrame:
    """Every entry of every variant of a room, or of some, compiled for all of its targets, or one; no GPU is needed.

    Columns: variant, entry, target, registers (per thread), shared_bytes (per block, static),
    stack_bytes, spills, instructions (in all), and static counts such as "LDG.128" (bits of one
    access), "FFMA" or "HMMA.SP", where any kernel has them.
    """
    from kernels import jit

    module = importlib.import_module(f"kernels.{room}")
    jobs = [
        (kernel, entry, made)
        for kernel in module.VARIANTS.values()
        for entry in kernel.entries
        for made in kernel.targets
        if (variants is None or kernel.name in variants) and target in (None, made)
    ]

    # The compiler lets go of Python's lock, so threads suffice.
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        cubins = list(pool.map(lambda job: jit.compile_cubin(job[0].source, *job[1:]), jobs))
    rows = [
        {
            "variant": kernel.name,
            "entry": entry,
            "target": made,
            "registers": used.registers,
            "shared_bytes": used.shared_bytes,
            "stack_bytes": used.stack_bytes,
            "spills": used.spills,
            "instructions": sum(mix.values()),
            **count_instructions(mix),
        }
        for (kernel, entry, made), (used, mix) in zip(jobs, jit.reports(cubins), strict=True)
    ]
    df = pd.DataFrame(rows)
    fixed = list(df.columns[:8])
    counts = sorted(df.columns[8:], key=_column_order)
    return df[fixed + counts].fillna({c: 0 for c in counts}).astype({c: "int64" for c in counts})


def count_instructions(mix: Mapping[str, int]) -> dict[str, int]:
    """Sum a SASS instruction mix into the columns of the compile report.

    {"LDG.E.128.CONSTANT": 4, "LDG.E": 1} -> {"LDG.128": 4, "LDG.32": 1}
    """
    counts: dict[str, int] = {}
    for instruction, count in mix.items():
        op, *modifiers = instruction.split(".")
        if op in MEMORY_OPS:
            # Bytes and halves are U8, S8, U16 or S16; an access without a width is of one 32-bit
            # register.
            width = next((m.lstrip("US") for m in modifiers if re.fullmatch(r"[US]?(8|16|64|128)", m)), "32")
            name = f"{op}.{width}"
        elif op in OTHER_OPS:
            # On sparse tensor cores: another instruction, at another rate.
            name = f"{op}.SP" if modifiers[:1] == ["SP"] else op
        else:
            continue
        counts[name] = counts.get(name, 0) + count
    return counts


def _column_order(column: str) -> tuple[int, int]:
    if column in OTHER_OPS:
        return len(MEMORY_OPS) + OTHER_OPS.index(column), 0
    op, _, width = column.partition(".")
    return MEMORY_OPS.index(op), int(width)
