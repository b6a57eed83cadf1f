"""What Nsight Compute counts, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from artifact.rooms.nm_cuda_core.counters import PIPES, TRAFFIC, Counters

FIG3 = (
    "**Figure 3**, measured above stated. The report's stall “percentages” are per issued instruction: 421% are 4.2 "
    "warps waiting for each one that issues."
)


def profile(launches: pd.DataFrame, metrics: set[str]) -> str:
    """What a kept profile holds. launches: `ncu.launches`; metrics: those that were counted."""
    if launches.empty:
        return "There is no profile of this GPU; `make profile` keeps one."
    return (
        f"The profile has {len(launches)} launches of {launches['kernel'].nunique()} kernels, and {len(metrics)} "
        "metrics of them."
    )


def reasons(counted: Counters, machine: Mapping[str, Any], fig3: pd.DataFrame) -> str:
    """Why the kernels are as fast as they are, in four paragraphs. fig3: the report's counters."""
    parts = (
        _idle(counted, machine),
        _busy(counted, machine),
        _wavefronts(counted),
        _traffic(counted, fig3),
    )
    return "\n\n".join(parts)


def _idle(counted: Counters, machine: Mapping[str, Any]) -> str:
    two, one = (counted.get(v, 256, "gpu__time_duration.sum") / 1e3 for v in ("double_buffer", "double_buffer_split1"))
    drain = {v: counted.stalled(v, 256, "drain") for v in ("double_buffer", "baseline", "double_buffer_split1")}
    return (
        f"**At 256³ most of the GPU is idle.** 64 tiles occupy 64 of {machine['sm_count']} SMs, two warps each, which "
        f"wait for an index and then for a row. Split-K puts a second block on an SM of its own: {two:.1f} µs instead "
        f"of {one:.1f}. On the 46 SMs of the report's card the second block shares an SM, which is why active warps "
        f"and IPC rise there and not here. The drain stalls of `double_buffer`, {drain['double_buffer']:.2f} against "
        f"{drain['baseline']:.2f}, are warps at their end that wait for their atomic additions, not for “the "
        "asynchronous copy machinery” of section 5.2: with the same copies and without split-K they are "
        f"{drain['double_buffer_split1']:.2f}."
    )


def _busy(counted: Counters, machine: Mapping[str, Any]) -> str:
    shared, dram, l2 = (counted.get("baseline", 4096, PIPES[p]) for p in ("shared", "DRAM", "L2"))
    full = "shared memory is full" if shared > 80 else "shared memory is the busiest pipe"
    return (
        f"**At 2048³ and 4096³ {full}.** Two `float4` from shared memory for 16 multiply-adds are more than it can "
        f"deliver: the FMA units stand still half of the time while DRAM is at {dram:.0f}% and L2 at {l2:.0f}%. Hiding "
        "the latency of global memory, which all three of the report's kernels are about, cannot do much where that is "
        "so. The report calls them bandwidth-bound from 4096³ on; on a GPU with "
        f"{machine['l2_bytes'] / 2**20:.0f} MiB of L2 they are not." + _busy_to_the_letter(counted)
    )


def _busy_to_the_letter(counted: Counters) -> str:
    """The same of `verbatim`; nothing where a profile does not have it."""
    pipes = {name: counted.get("verbatim", 4096, PIPES[name]) for name in ("shared", "DRAM", "L2")}
    if not all(value > 0 for value in pipes.values()):
        return ""
    return (
        f" To the letter, as `verbatim`, shared memory is at {pipes['shared']:.0f}% there, DRAM at "
        f"{pipes['DRAM']:.0f}% and L2 at {pipes['L2']:.0f}%."
    )


def _wavefronts(counted: Counters) -> str:
    waits = counted.stalled("zigzag", 4096, "long_scoreboard") > counted.stalled("zigzag", 4096, "short_scoreboard")
    return (
        f"**Three wavefronts or two.** In the baseline a 16-byte read takes {counted.wavefronts('baseline', 2048):.2f} "
        "wavefronts on average: probably four where eight neighbouring lanes have eight addresses (A), two where they "
        "have one (B). `zigzag` deals the 4 × 4 tiles so that both operands are read in pairs, and it takes "
        f"{counted.wavefronts('zigzag', 2048):.2f}."
        + (
            " The pipe is no longer full, and the largest stall is the long scoreboard: the gather of A, still "
            "synchronous."
            if waits
            else ""
        )
    )


def _traffic(counted: Counters, fig3: pd.DataFrame) -> str:
    stated = fig3[(fig3["variant"] == "baseline") & (fig3["metric"] == TRAFFIC)]
    theirs = stated.drop_duplicates("size").set_index("size")["low"]
    ours = {s: counted.get("baseline", s, TRAFFIC) / 1e6 + 12e-6 * s**2 for s in (256, 2048)}
    base = counted.get("baseline", 2048, TRAFFIC)
    letter = [counted.get("verbatim", s, TRAFFIC) / 1e6 for s in ours]
    counts = (
        f"; to the letter, as `verbatim`, it is counted at {letter[0]:.2f} and {letter[1]:.1f}"
        if all(x > 0 for x in letter)
        else ""
    )
    removed, kept = (counted.get(v, 2048, TRAFFIC) / base for v in ("prefetch", "prefetch_kept"))
    return (
        "**Same traffic, to the digit.** The report's code stores C element by element, ours a `float4` at a time, "
        "which touches every sector of C once instead of four times. Add 3·4·M·N bytes to the L1 traffic of our "
        f"baseline, and it is {ours[256]:.2f} MB at 256³ and {ours[2048]:.1f} MB at 2048³; the report counts "
        f"{theirs[256]:.2f} and {theirs[2048]:.1f}{counts}. `prefetch` moves {removed:.3f} times the baseline's, "
        f"`prefetch_kept` {kept:.2f} times."
    )
