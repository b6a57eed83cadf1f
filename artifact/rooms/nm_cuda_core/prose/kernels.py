"""Which index the published gather reads, and what the compiler leaves of the prefetch."""

from __future__ import annotations

import pandas as pd

from artifact.rooms.nm_cuda_core.gather import Gathered
from artifact.rooms.nm_cuda_core.machine_code import HOPPER, loads, the_same
from kernels import jit
from kernels import nm_cuda_core as room


def which_index(case: Gathered) -> str:
    """The smallest case that shows what the published gather multiplies with."""
    right = case.right_columns
    named = ", ".join(f"column {c}" for c in right[:4])
    return (
        "The smallest case that shows it: M = N = 32, K = 64, element-wise 2:4. `as_gathered(B)` is the matrix that "
        f"the published gather multiplies with, A · as_gathered(B) differs from A · B by {case.error:.0%} in the norm, "
        f"and of 32 columns {len(right)} {'is' if len(right) == 1 else 'are'} right ({named}). For a vector-wise "
        "matrix of the same size the two "
        + ("are the same matrix." if case.same_if_shared else "differ, which they should not.")
    )


def run_here(off: tuple[float, float] | None) -> str:
    """off: `gather.run_it`; nothing without a GPU."""
    if off is None:
        return ""
    return (
        f"The kernel itself, run here on that case: {off[0]:.0%} from A · B, and {off[1]:.0e} from A · as_gathered(B)."
    )


def compiled(report: pd.DataFrame) -> str:
    distinct = report.drop_duplicates(["entry", "target"])
    spilling = int(distinct["spills"].astype(bool).sum())
    return (
        f"Compiled here for {', '.join(dict.fromkeys(report['target']))}: {distinct['entry'].nunique()} "
        f"instantiations, {spilling or 'none'} of {len(distinct)} compilations spill. Registers a thread, static "
        "shared memory a block, and instructions of the disassembly for sm_90a, for the 2:4 pattern:"
    )


def letter() -> str:
    """What the compiler makes of the report to the letter, beside ours."""
    names = ("verbatim", "baseline", "verbatim_double_buffer", "double_buffer")
    cubins = [jit.compile_cubin(room.VARIANTS[v].source, room.entry(v), HOPPER) for v in names]
    made = dict(zip(names, jit.reports(cubins), strict=True))

    def count(variant: str, *prefixes: str) -> int:
        return sum(n for op, n in made[variant][1].items() if op.startswith(prefixes))

    theirs = made["verbatim_double_buffer"][0]
    generic, ours = (count(v, "LD.") for v in names[2:])
    return (
        f"For {HOPPER}: a thread of `verbatim` writes C in {count('verbatim', 'STG')} stores of 4 bytes, one of "
        f"`baseline` in {count('baseline', 'STG')} of 16, with {made['verbatim'][0].registers} and "
        f"{made['baseline'][0].registers} registers. `verbatim_double_buffer` chooses its buffer from an array of two "
        f"pointers, as section 3.6 has it. The array lies in local memory ({theirs.stack_bytes} bytes of stack), the "
        f"compiler no longer knows that it points to shared memory, and B is read by {generic} generic loads of 4 bytes "
        f"in a step, where `double_buffer` has {ours or 'none'}. `verbatim_prefetch` has "
        f"{loads('verbatim_prefetch', HOPPER)} global loads, `verbatim` {loads('verbatim', HOPPER)}."
    )


def prefetch_is_removed(targets: list[str]) -> bool:
    """Whether `prefetch` is the baseline, instruction by instruction, on every target."""
    return all(the_same("baseline", "prefetch", target) for target in targets)


def prefetch(removed: bool) -> str:
    if not removed:
        return "With this compiler the two differ on some target:"
    return (
        "**The prefetch kernel is the baseline**, instruction by instruction, on every target. A load whose value "
        "nobody uses is dead code, and the compiler removes it; `(void)prefetch_A`, as the public code has it, "
        "silences the warning and keeps nothing. The report saw it without recognising it: “the reported L1 traffic is "
        "*identical* to the baseline”. Of the report's text to the letter the compiler removes the loads as well: "
        "its two kernels load as often and differ in how they count their steps. What section 5.3 measures as the price of prefetching "
        "is that, and no prefetch."
    )
