"""What the compiler leaves of a kernel: its instructions one by one, and its loads."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from artifact.drawing import compiled
from artifact.measure.run import count_instructions
from kernels import jit
from kernels import nm_cuda_core as room
from kernels.contract import Problem

#: How often two kernels are compiled anew before they count as different.
AGAIN = 4


def instructions(variant: str, target: str, anew: bool = False) -> list[str]:
    """Return the SASS without addresses and labels' names. anew: of another compilation than the one that is kept."""
    return compiled.instructions(room.VARIANTS[variant], target, anew)


def the_same(one: str, two: str, target: str) -> bool:
    """Tell whether the compiler makes the same of two variants, instruction by instruction.

    Of one source, too, a compilation now and then comes out otherwise (see `jit.compile_cubin`). Two variants whose
    instructions differ are therefore compiled anew, and are the same where any of one are those of the other.
    """
    made: dict[str, set[tuple[str, ...]]] = {one: set(), two: set()}
    for compilation in range(1 + AGAIN):
        for variant, known in made.items():
            known.add(tuple(instructions(variant, target, anew=compilation > 0)))
        if made[one] & made[two]:
            return True
    return False


def loads(variant: str, target: str) -> int:
    """Count the loads from global memory."""
    return sum("LDG." in line for line in instructions(variant, target))


def prefetch(targets: Iterable[str]) -> pd.DataFrame:
    """Compare `prefetch` with the baseline on each target, instruction by instruction, and the loads of both."""
    return pd.DataFrame(
        {"target": target, "same": "yes" if the_same("baseline", "prefetch", target) else "no"}
        | {v: len(instructions(v, target)) for v in ("baseline", "prefetch")}
        | {f"loads_{v}": loads(v, target) for v in ("baseline", "prefetch", "prefetch_kept")}
        for target in targets
    )


def own(problem: Problem, target: str) -> pd.DataFrame:
    """List every variant as it is compiled for a reader's own pattern: its template instantiation, registers a thread,
    multiply-adds in the machine code and their share."""
    b = problem.host().b
    entries = {variant: room.entry(variant, b.keep, b.group) for variant in room.VARIANTS}
    cubins = [jit.compile_cubin(room.VARIANTS[v].source, entry, target) for v, entry in entries.items()]
    table = pd.DataFrame(
        {"variant": variant, "kernel": entry, "registers": used.registers}
        | {"ffma": count_instructions(mix)["FFMA"], "instructions": sum(mix.values())}
        for (variant, entry), (used, mix) in zip(entries.items(), jit.reports(cubins), strict=True)
    )
    return table.assign(share=table["ffma"] / table["instructions"])
