"""Our ladder: predictions, waves, loops, what was tried, register banks, and what warps wait for."""

from __future__ import annotations

import numpy as np
import pandas as pd

from artifact.drawing.words import change, listed
from artifact.rooms.nm_spmm.contenders import LADDER, rows_of_a_step
from artifact.rooms.nm_spmm.counters import PIPES, STALLS, Counters
from artifact.rooms.nm_spmm.points import by_density, has, mean, over
from artifact.rooms.nm_spmm.results import before
from artifact.rooms.nm_spmm.trial import GROUP
from artifact.rooms.nm_spmm.words import at_each, named, sparsity
from kernels import jit

HALF, SPARSE = 0.5, 0.125  # densities
TRIED = "Ideas that are no rung, each over the rung that its expectation names: where did the gain not come?"
REASONS = (
    "Warps stalled per issued instruction, by reason: *dispatch* is where a clash of banks shows, *shared* and *memory* "
    "are loads from them, *instructions* are those that have not been fetched."
)


def absent(rungs: list[str]) -> str:
    """Rungs that this GPU does not take; nothing where it takes all."""
    others = [v for v in LADDER if v not in rungs]
    return f"Not for this GPU: {named(others)}, compiled above, but not measured." if others else ""


def predictions(outcome: pd.DataFrame) -> str:
    """outcome: `results.outcome`."""
    judged = outcome.dropna(subset=["predicted"])
    near = judged[(judged["came"] / judged["predicted"] - 1).abs() < 0.05]
    verb = "is" if len(near) == 1 else "are"
    return (
        f"Of {len(judged)} predictions with a number, {len(near)} {verb} within 5% of what came. "
        if len(judged)
        else ""
    ) + "All rungs and what they sustain, in TFLOP/s of useful work and per cent of the FMA ceiling:"


def waves(shares: pd.DataFrame, tiles: int, sms: int, stepwise: pd.DataFrame) -> str:
    """What evening out the last wave would gain, and what it did. shares: the data behind that figure."""
    last = shares.groupby("schedule")["end"].max()
    evened = (
        f"{tiles} tiles on {sms} SMs are {tiles / sms:.2f} waves; evened out they take {last['stream-K']} steps "
        f"instead of {last['waves']}, {last['waves'] / last['stream-K']:.2f}× as fast if nothing else changed. "
    )
    if has(stepwise, "stream") and has(stepwise, "bulk"):
        came = at_each(by_density(over(stepwise, "stream", "bulk")))
        evened += f"`stream` does just that to `bulk`, and is at {came} of it."
    return evened


def loops(looped: dict[str, int]) -> str:
    """looped: rung -> bytes of its largest loop of multiply-adds."""
    said = listed(f"`{v}` {size / 1024:.0f} KiB" for v, size in looped.items())
    return (
        f"Code of the largest loop of multiply-adds, compiled here: {said}. A step that is unrolled whole reads no "
        "loop counter and has every offset at hand, which is why `bulk` does it; and in `bulk` the warps of a block "
        f"begin each tile together and run through these {looped.get('bulk', 0) / 1024:.0f} KiB at each other's heels, "
        "one fetch for all. Blocks that stay are never lined up again: a warp that has written its sums goes on alone, "
        "warps drift apart, and each fetches the code for itself. `rolled` is `stream` with 8 rows in its loop."
    )


def trials(outcomes: pd.DataFrame) -> str:
    """outcomes: `results.trials`."""
    lost = sum(came.max() < 1.0 for came in outcomes["came"])
    off = sum(
        abs(mean(came) / factor - 1) >= 0.05 for came, factor in zip(outcomes["came"], outcomes["factor"], strict=True)
    )
    return (
        f"{lost} of {len(outcomes)} lose at every sparsity. {off} of the expectations were off by 5% or more. What "
        "`auto` takes of these it takes where they pay: deeper steps at high sparsity, other bodies, other tiles."
    )


def clashes(found: pd.DataFrame, best: dict[str, float], stepwise: pd.DataFrame) -> str:
    """found: `machine_code.clashes`. best: variant -> the largest share of the FMA ceiling that it reached."""
    text = (
        "*Ceiling if every clash cost a cycle*: every instruction takes a cycle of its scheduler and a clash a second one, of which "
        "only the multiply-adds count. All counts are of the main loop, and no simulation."
    )
    first = before("banks")
    if {"banks", first} <= set(found.index) and has(stepwise, "banks"):
        gain = change(mean(over(stepwise, "banks", first)))
        text += (
            f" `banks` takes the clashes from {found['clash'][first]:.0%} to {found['clash']['banks']:.0%}, and is "
            f"{gain} for it."
        )
    if above := [v for v in best if best[v] > 1.02 * found["left"][v]]:
        text += (
            f" {named(above)} {'is' if len(above) == 1 else 'are'} above it, so not every clash costs a cycle: the "
            "count names a cause, but it does not predict a time."
        )
    return text


def compiler(made_by: str) -> str:
    """That the code shown is not the code measured, where it is not. made_by: NVRTC's version of the records."""
    if jit.nvrtc_version() == made_by.rpartition(".")[0]:
        return ""
    return (
        f"This is the code of NVRTC {jit.nvrtc_version()}, which made this page; what was measured is that of NVRTC "
        f"{made_by}. Versions place accumulators differently: the same source may have many clashes with one and few "
        "with another. So a choice of the tuner names the compiler that it was made with, and is made again with "
        "another one."
    )


def waits(counted: Counters) -> str:
    """What V3, `auto` and the nmSPARSE-style kernel wait for; nothing where these were not profiled."""
    if not {"v3", "auto", "nm_baseline"} <= set(counted.profiled):
        return ""
    slots, fma, shared = (PIPES[c] for c in ("issue slots [%]", "FMA pipe [%]", "shared memory [%]"))
    reasons = [name for name in STALLS if name != "not selected"]
    stalled = {name: counted.stalled("v3", HALF, STALLS[name]) for name in reasons}
    worst = max(stalled, key=lambda name: np.nan_to_num(stalled[name]))
    dispatch = {v: counted.stalled(v, HALF, "dispatch_stall") for v in ("v3", "auto")}
    most = max(counted.memory().values())
    fed = counted.get("nm_baseline", HALF, shared)
    return (
        f"V3 issues in {counted.get('v3', HALF, slots):.0f}% of the cycles at {sparsity(HALF)} sparsity, and "
        f"{counted.ffma_share('v3', HALF):.0%} of what it issues are multiply-adds; `auto` in "
        f"{counted.get('auto', HALF, slots):.0f}%, with {counted.ffma_share('auto', HALF):.0%}. V3's warps wait most "
        f"for *{worst}*, {stalled[worst]:.2f} per instruction issued; dispatch stalls are {dispatch['v3']:.2f} there "
        f"and {dispatch['auto']:.2f} in `auto`. Neither L2 nor DRAM is above {most:.0f}% at {sparsity(HALF)} or "
        f"{sparsity(SPARSE)}"
        + (
            ": at this size, on this GPU, high sparsity is not memory-bound"
            if most < 60
            else ", so memory does have a say"
        )
        + f". The kernel in nmSPARSE's style keeps the FMA pipe busy {counted.get('nm_baseline', HALF, fma):.0f}% of "
        f"the time, with the pipe of shared memory at {fed:.0f}%"
        + (": its 4 × 4 a thread asks for more than shared memory delivers" if fed > 80 else "")
        + "."
    )


def fetches(counted: Counters) -> str:
    """Waits for instructions in the rungs that differ in their loop; nothing where these were not profiled."""
    if not {"bulk", "stream", "rolled"} <= set(counted.profiled):
        return ""
    bulk, stream, rolled = (counted.stalled(v, HALF, "no_instruction") for v in ("bulk", "stream", "rolled"))
    height = {d: rows_of_a_step("stream", round(d * GROUP), GROUP) for d in (HALF, SPARSE)}
    return (
        f"For instructions that were not there yet `bulk` has {bulk:.2f} warps waiting per instruction issued at "
        f"{sparsity(HALF)}, `stream` {stream:.2f}, `rolled` {rolled:.2f}: "
        + (
            "the same schedule and the same multiply-adds, but a loop that the cache holds."
            if rolled < bulk < stream
            else "the length of the loop does not explain these."
        )
        + f" At {sparsity(SPARSE)}, where a step has {height[SPARSE]} rows in place of {height[HALF]}, `stream` has "
        f"{counted.stalled('stream', SPARSE, 'no_instruction'):.2f}."
    )
