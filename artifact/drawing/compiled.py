"""What a page shows of kernels that it compiles itself."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from kernels import jit
from kernels.contract import Kernel

HOPPER = "sm_90a"  #: whose machine code pages show


def instructions(kernel: Kernel, target: str = HOPPER, anew: bool = False) -> list[str]:
    """Return the SASS of a kernel's first instantiation, an instruction each, without addresses.

    anew: of another compilation than the one that is kept.
    """
    text = jit.disassemble(jit.compile_cubin(kernel.source, kernel.entries[0], target, anew=anew))
    return [" ".join(op.split()) for op in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", text)]


def registers(used: pd.DataFrame) -> pd.Series:
    """Join registers a thread on each target (columns) to one column: "48, 48, 40, 48", or once where all are alike."""
    written = used.astype(int).astype(str)
    return written.iloc[:, 0].where(used.nunique(axis=1) == 1, written.agg(", ".join, axis=1)).rename("registers")


def table(report: pd.DataFrame, shown: Iterable[str], by: str = "entry") -> pd.DataFrame:
    """Return a row for each of these entries, or variants.

    `registers` and, of Hopper's machine code, the other columns of a compile report.
    """
    df = report.drop_duplicates([by, "target"])
    return (
        df[df["target"] == HOPPER]
        .set_index(by)
        .drop(columns="registers")
        .join(registers(df.pivot(index=by, columns="target", values="registers")[df["target"].unique()]))
        .loc[list(dict.fromkeys(shown))]
        .reset_index()
    )


def own(entries: Mapping[str, tuple[Path, str]], target: str) -> pd.DataFrame:
    """Return what a reader's own problem is compiled to.

    Variant, kernel (its template instantiation), registers a thread, instructions, FFMA, useful (their share).
    entries: variant -> source, entry.
    """
    reports = jit.reports(jit.compile_cubin(*at, target) for at in entries.values())
    return pd.DataFrame(
        [
            {"variant": variant, "kernel": entry, "registers": used.registers, "instructions": sum(mix.values())}
            | {"FFMA": sum(n for op, n in mix.items() if op.startswith("FFMA"))}
            for (variant, (_, entry)), (used, mix) in zip(entries.items(), reports, strict=True)
        ]
    ).assign(useful=lambda df: df["FFMA"] / df["instructions"])


def told(kernel: Kernel) -> str:
    """Say the registers and the spills of a kernel's first instantiation, for Hopper where it is made for that."""
    if not kernel.entries:
        return f"`{kernel.name}` chooses among the others and has no kernel of its own to compile."
    target = HOPPER if HOPPER in kernel.targets else kernel.targets[-1]
    used = jit.resources(jit.compile_cubin(kernel.source, kernel.entries[0], target))
    spills = "some" if used.spills else "none"
    return (
        f"`{kernel.entries[0]}`, compiled for {target}, takes {used.registers} registers a thread and spills {spills}."
    )
