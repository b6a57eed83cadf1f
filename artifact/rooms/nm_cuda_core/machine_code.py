"""What the compiler leaves of a kernel: its instructions one by one, and its loads."""

from __future__ import annotations

import re

import pandas as pd
from pandas.io.formats.style import Styler

from artifact.drawing.prose import captioned
from kernels import jit
from kernels import nm_cuda_core as room
from kernels.contract import Problem

#: Instructions that the chapter counts, where any kernel has them.
COUNTED = ("LDG.128", "LDG.32", "LDGSTS.128", "STS.128", "LDS.128", "FFMA", "REDG")
HOPPER = "sm_90a"
#: How often two kernels are compiled anew before they count as different.
AGAIN = 4


def instructions(variant: str, target: str, anew: bool = False) -> list[str]:
    """The SASS without addresses and labels' names. anew: of another compilation than the one that is kept."""
    source = room.VARIANTS[variant].source
    cubin = jit.compile_cubin(source, room.entry(variant), target, anew=anew)
    return re.findall(r"/\*[0-9a-f]{4,}\*/\s+(.*?;)", jit.disassemble(cubin))


def the_same(one: str, two: str, target: str) -> bool:
    """Whether the compiler makes the same of two variants, instruction by instruction.

    Of one source, too, a compilation now and then comes out otherwise (see `jit.compile_cubin`). Two variants whose
    instructions differ are therefore compiled anew, and are the same where any of one are those of the other.
    """
    ones, twos = [instructions(one, target)], [instructions(two, target)]
    while not any(first == second for first in ones for second in twos):
        if len(ones) > AGAIN:
            return False
        ones.append(instructions(one, target, anew=True))
        twos.append(instructions(two, target, anew=True))
    return True


def loads(variant: str, target: str) -> int:
    """Loads from global memory."""
    return sum(bool(re.search(r"\bLDG\b", line)) for line in instructions(variant, target))


def of_pattern(report: pd.DataFrame) -> pd.DataFrame:
    """The rows of a compile report that are of the 2:4 pattern, one for each variant and target."""
    return report[report["entry"].isin({room.entry(name) for name in room.VARIANTS})]


def registers(report: pd.DataFrame, variant: str, target: str = HOPPER) -> int:
    """Registers a thread, of the 2:4 pattern."""
    rows = of_pattern(report)
    rows = rows[(rows["variant"] == variant) & (rows["target"] == target)]
    return int(rows["registers"].iloc[0])


@captioned("Every kernel as it is compiled for a pattern of your own.")
def own(problem: Problem, target: str) -> Styler:
    """Every variant as it is compiled for a reader's own pattern: its template instantiation, registers a thread,
    multiply-adds in the machine code."""
    b, rows = problem.host().b, []
    for variant, kernel in room.VARIANTS.items():
        entry = room.entry(variant, b.keep, b.group)
        cubin = jit.compile_cubin(kernel.source, entry, target)
        mix = jit.instruction_mix(cubin)
        count = sum(n for op, n in mix.items() if op.startswith("FFMA"))
        rows.append(
            {"variant": variant, "kernel": entry, "registers": jit.resources(cubin).registers}
            | {"FFMA": count, "of all instructions": f"{count / sum(mix.values()):.0%}"}
        )
    return pd.DataFrame(rows).style.hide(axis="index").format(escape="html")
