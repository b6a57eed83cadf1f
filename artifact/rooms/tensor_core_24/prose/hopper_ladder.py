"""Sentences on the ladder for Hopper: what came of each rung, and what bounds it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from artifact.drawing.cells import NO_COUNTERS
from artifact.drawing.words import change, cube, listed, more
from artifact.measure.ceilings import TENSOR_FLOP_PER_CLOCK
from artifact.rooms.tensor_core_24 import sass, tables, variants
from artifact.rooms.tensor_core_24.experiments import (
    AT_L2,
    CLOCK,
    FROM_DRAM,
    INSTRUCTIONS,
    SHARED,
    TENSOR,
    TIME,
    TO_SM,
    Ceilings,
    Counters,
    Ladder,
    Profile,
    by_size,
)
from kernels import tensor_core_24 as room
from kernels.tensor_core_24 import bounds as bounds_
from kernels.tensor_core_24 import family

#: Clocks of an SM's tensor cores, in dense-equivalent FLOP.
PER_CLOCK = 2 * TENSOR_FLOP_PER_CLOCK[(9, 0)]


def only_compiled(machine: variants.Machine) -> str:
    """A warning where the GPU does not run the ladder."""
    if variants.is_hopper(machine):
        return ""
    return "**This GPU has no `wgmma`**: what follows of the ladder is compiled, but not measured."


def compiled(report: pd.DataFrame) -> str:
    """report: the room's compile report."""
    rows = sass.ladder_rows(report)
    spilled = sorted(set(report[report["spills"]]["variant"]) & set(rows.index))
    other = sum(int(rows[op].sum()) for op in ("HMMA", "HMMA.SP", "HGMMA") if op in rows)
    return (
        f"Compiled here for sm_90a, in BF16. **{'Spilling: ' + ', '.join(spilled) if spilled else 'Nothing spills'}**, although a "
        "thread of `wgmma_tall` holds 192 accumulators: the compiler plans with the registers that a thread is launched with, "
        "and `setmaxnreg` then takes 40 for the producer's warps and 232 for the others. For `wgmma_three` and `wgmma_pieces` it plans with 160, see below. `HGMMA.SP` is `wgmma.sp`; of other "
        f"tensor-core instructions there are {other or 'none'}."
    )


def what_came(ladder: Ladder) -> str:
    """Before the table of gains: how the predictions did. Nothing without rungs."""
    if not ladder.rungs:
        return ""
    judged = tables.gains(ladder).dropna(subset=["predicted"])
    came = judged[[cube(s) for s in ladder.climbed]].mean(axis=1)
    near = judged[(came / judged["predicted"] - 1).abs() < 0.05]["rung"]
    named = f": {listed(f'`{v}`' for v in near)}" if len(near) else ""
    text = (
        f"What came of each rung, as a factor over the one that it builds on. Of {len(judged)} predictions with a number, "
        f"{len(near)} {'was' if len(near) == 1 else 'were'} within 5% of {'the mean of ' if len(ladder.climbed) > 1 else 'what came at '}{listed(map(cube, ladder.climbed))}{named}. To expect nothing of any rung would "
        f"have been within 5% for {((came - 1).abs() < 0.05).sum()}."
    )
    if ladder.has_gaps:
        text += " A dash: no number was predicted, or the rung does not take the size, because there are fewer tiles than SMs."
    return text


# ---------------------------------------------------------------- what bounds it


def profiled(profile: Profile) -> str:
    if not profile.sizes:
        return NO_COUNTERS
    return (
        f"Nsight Compute at {cube(profile.sizes[-1])}, clocks left alone. *Tensor cores*, *shared memory*: share of the time that "
        "the pipe is busy. *L2 to SMs*: bytes that arrive; *in L2*: bytes that its slices handle."
    )


def shared_memory(profile: Profile, ceilings: Ceilings) -> str:
    """The first bound; nothing where the rungs in question were not profiled."""
    if not profile.holds("wgmma_keep"):
        return ""
    size, keep, counters = profile.sizes[-1], variants.rungs()["wgmma_keep"], profile.counters
    busy = counters.get("wgmma_keep", size, SHARED)
    if busy > 90:
        verdict = "is nearly full: that is the bound"
    elif busy > 70:
        verdict = "is near its bound, but not at it"
    else:
        verdict = "is not yet what holds the kernel back"
    bare = ""
    if {"wgmma_sp_ra", "wgmma_sp"} <= set(ceilings.peak):
        registers, memory = (ceilings.peak[v] for v in ("wgmma_sp_ra", "wgmma_sp"))
        alike = "differ likewise" if memory < 0.98 * registers else "do not differ so"
        bare = f"The bare instructions {alike}, {registers:.0f} TFLOP/s with A in registers and {memory:.0f} from shared memory."
    return f"""
**Shared memory runs beside the tensor cores, clock for clock.** The instruction reads all of B for every 64 rows of A. A step of {keep.m} × {keep.n} × {variants.STEP_K} is
{2 * keep.m * keep.n * variants.STEP_K / PER_CLOCK:.0f} clocks of multiplication, and {keep.b_bytes / 1024:.0f} KiB of B for its {keep.rows_of_64} × 64 rows, at 128 bytes a clock, are {keep.b_bytes / variants.BYTES_PER_CLOCK:.0f}. A itself adds 32/N: {32 / keep.n:.1%}. So shared memory
must be busier than the tensor cores, by {1 + 32 / keep.n:.3f} and a little for metadata; counted: {busy / counters.get("wgmma_keep", size, TENSOR):.3f} (`wgmma_keep`, {cube(size)}). At {busy:.0f}% it
{verdict}. With A in shared memory no kernel can keep the tensor cores busy more than
{1 / (1 + 32 / keep.n):.0%} of the time.
{bare}"""


def from_l2(profile: Profile, ladder: Ladder, sms: int) -> str:
    """What a tile costs of L2; nothing where the rungs in question were not profiled."""
    if not profile.holds("wgmma_keep", "wgmma_tall"):
        return ""
    size, rungs = profile.sizes[-1], variants.rungs()
    keep, tall = rungs["wgmma_keep"], rungs["wgmma_tall"]
    counted = profile.counters.ratio("wgmma_tall", "wgmma_keep", size, TO_SM)
    gain = ladder.gain("wgmma_tall", size)
    pays = f": what it saves there it pays for in shared memory, where A's share is {32 / tall.n:.1%} instead of {32 / keep.n:.1%}"
    per_clock = [
        profile.counters.get(v, size, TO_SM)
        / (profile.counters.get(v, size, TIME) * profile.counters.get(v, size, CLOCK) * 1e-9 * sms)
        for v in ("wgmma_keep", "wgmma_tall")
    ]
    bound = per_clock[0] > 0.9 * variants.PORT_BYTES
    return f"""
**What arrives from L2 depends on the tile.** For the same work, {tall.m} × {tall.n} needs {tall.l2_bytes / keep.l2_bytes:.0%} of the bytes that {keep.m} × {keep.n} needs; counted: {counted:.0%}. It is {change(gain)}
at {cube(size)}{pays if gain < 1.01 else ""}. The port of an SM takes about {variants.PORT_BYTES} bytes a clock; counted are {per_clock[0]:.1f} for `wgmma_keep`{", which is near it," if bound else ""} and {per_clock[1]:.1f} for `wgmma_tall`.
"""


def clock(profile: Profile, ladder: Ladder, machine: variants.Machine) -> str:
    """What power does to the clock; nothing where the rungs in question were not profiled."""
    path = ("wgmma_persistent", "wgmma_bands", "wgmma_keep")
    if not profile.holds(*path):
        return ""
    size, get, top = profile.sizes[-1], profile.counters.get, machine["sm_mhz_max"] * 1e6
    seen = [
        get(v, s, CLOCK)
        for v in variants.rungs()
        for s in profile.sizes
        if profile.counters.has(v, size=s, metrics=[CLOCK])
    ]
    held = max(seen) > 0.97 * top
    nvml, watt, reason = (by_size(ladder.frame, path[-1], column)[size] for column in ("sm_mhz", "power_w", "throttle"))
    needed = [get(v, size, TIME) * get(v, size, CLOCK) / 1e15 for v in path]  # million clocks
    capped = f" (“{reason}”)" if "power" in str(reason) else ""
    dram = [f"{get(v, size, FROM_DRAM) / 1e9:.2f}" for v in path]
    rate = [f"{ladder.rate(v, size):.0f}" for v in path]
    slower = get(path[-1], size, CLOCK) / get(path[0], size, CLOCK)
    pays = ": it waits less, works more in each clock, and pays for that in clock rate"
    energy = "So what saves energy is worth as much as what saves clocks, and moving a byte costs energy."
    return f"""
**{"The clock holds" if held else "Power sets the clock"}.** This GPU may run at {top / 1e9:.2f} GHz. Under the kernels of the ladder the profile counts {min(seen) / 1e9:.2f} to {max(seen) / 1e9:.2f}; NVML, during the
measurement at {cube(size)}, {nvml:.0f} MHz at {watt:.0f} of {machine["power_limit_w"]:.0f} W{capped}. At the highest clock the same {needed[-1]:.2f} million clocks of `wgmma_keep` would take
{needed[-1] / top * 1e12:.0f} instead of {get(path[-1], size, TIME) / 1e3:.0f} µs. {"" if held else energy}
Tiles in bands and a hint to L2 change no instruction of the loop. They take the reads from DRAM from {dram[0]} to {dram[1]} and then {dram[2]} GB, and the
throughput at {cube(size)} from {" over ".join(rate[:2])} to {rate[2]} TFLOP/s. From the first of the three to the last the kernel needs
{more(needed[-1] / needed[0] - 1, "clocks")}, and the clock rate changes by {slower - 1:+.0%}{pays if needed[-1] < 0.98 * needed[0] and slower < 0.99 else ""}.
"""


def alone(bounds: Counters, profile: Profile) -> str:
    """What is left of a step without its loads, and without its multiplications; nothing where it was not profiled.

    bounds: of the room's part of that name.
    """
    if not profile.sizes:
        return ""
    size = profile.sizes[-1]
    clocks = {
        name: [_clocks(bounds, name + part, size) for part in bounds_.LEFT_OUT]
        for name in bounds_.TILES
        if bounds.has(*(name + part for part in bounds_.LEFT_OUT), size=size, metrics=(TIME, CLOCK, SHARED))
    }
    if not clocks:
        return ""
    tiles = {name: bounds_.TILES[name] for name in clocks}
    each = [
        f"{tiles[v].m} × {tiles[v].n} {bare:.2f} of {whole:.2f} million clocks ({bare / whole:.0%}), loads alone {load:.2f}"
        for v, (whole, bare, load) in clocks.items()
    ]
    shares = [bare / whole for whole, bare, _ in clocks.values()]
    read = [bounds.get(f"{v}_unloaded", size, SHARED) for v in clocks]
    hidden = min(shares) > 0.95
    verdict = (
        "So it is the instruction that bounds them, and loads are hidden" if hidden else "So loads are not all hidden"
    )
    left = (
        f" For such tiles at most {1 - min(shares):.0%} of the clocks are to be had from what surrounds the multiplication; the rest are waves that are not full, and joules."
        if hidden
        else ""
    )
    return f"""
**The multiplication alone.** The same kernels once more, with one text of their source left out: without loads they multiply whatever lies in shared memory, and still round and store. Then they take, at {cube(size)},
{"; ".join(each)}. {verdict}: with nothing else to do, shared memory delivers {min(read):.0f} to {max(read):.0f}% of 128 bytes a clock over the whole launch.{left}
"""


def _clocks(counters: Counters, variant: str, size: int) -> float:
    """Million clocks of a launch."""
    return counters.get(variant, size, TIME) * counters.get(variant, size, CLOCK) / 1e15


# ---------------------------------------------------------------- more ideas


def more_ideas(ladder: Ladder, counters: Counters, sms: int) -> Iterable[str]:
    """A paragraph for each idea that was measured, or one that says that none was."""
    found = [
        _multicast(ladder, counters),
        _packed(ladder, counters),
        _stream_k(ladder, counters, sms),
        _split_k(ladder),
        _fewer_instructions(ladder, counters),
        _last_wave(ladder, counters, sms),
        _refilling(ladder, counters),
        _three(ladder, counters),
        _pieces(ladder, counters, sms),
        _cp_async(ladder),
        _gpc(ladder, counters),
    ]
    return list(filter(None, found)) or ["Nothing of it was measured on this GPU."]


def _multicast(ladder: Ladder, counters: Counters) -> str:
    name, keep, size = "wgmma_multicast", "wgmma_keep", ladder.climbed[-1]
    if name not in ladder.rungs:
        return ""
    gain = np.mean([ladder.gain(name, s) for s in ladder.climbed])
    text = f"**Multicast**: {_gains(ladder, name)} of `wgmma_keep`. A cluster of two blocks fetches each half of B once for both."
    if not counters.has(name, keep, size=size, metrics=(TO_SM, AT_L2)):
        return text
    arrives, handled = counters.get(keep, size, TO_SM), counters.get(keep, size, AT_L2)
    served = ": neighbours that ask for the same line at about the same time are served once already"
    waits = ", and the blocks of a cluster have to wait for each other's stages"
    return (
        f"{text} Yet without it, {arrives / 1e9:.1f} GB arrive at the SMs while the slices of L2 handle {handled / 1e9:.1f}"
        f"{served if handled < 0.95 * arrives else ''}. Multicast makes it {counters.get(name, size, AT_L2) / 1e9:.1f}"
        f"{waits if gain < 0.98 else ''}."
    )


def _packed(ladder: Ladder, counters: Counters) -> str:
    name, size = "wgmma_packed", ladder.climbed[-1]
    if name not in ladder.rungs:
        return ""
    before = ladder.rungs[name].before
    text = (
        f"**Packed A**: {_gains(ladder, name)} of `{before}`. A is the weight, "
        "so its order is ours: a stage's part lies side by side, and one request brings 4 KiB of it."
    )
    if counters.has(name, before, size=size, metrics=(AT_L2,)):
        text += f" L2 handles {more(counters.ratio(name, before, size, AT_L2) - 1, 'bytes')}."
    return text


def _stream_k(ladder: Ladder, counters: Counters, sms: int) -> str:
    name, keep, size = "wgmma_stream_k", "wgmma_keep", ladder.climbed[-1]
    if name not in ladder.rungs or np.isnan(ladder.rate(name, size)):
        return ""
    fill = {s: variants.rungs()[keep].tiles(s) / sms for s in ladder.climbed}
    costs = "" if ladder.gain(name, size) > 1.01 else ": the sharing costs more than it saves"
    text = (
        f"**Stream-K**: whole tiles fill {listed(f'{f:.2f} waves at {cube(s)}' for s, f in fill.items())}, so at best "
        f"{listed(f'{np.ceil(f) / f - 1:.0%}' for f in fill.values())} could be gained by sharing the last ones. "
        f"{_gains(ladder, name)} came of it{costs}."
    )
    if not counters.has(name, keep, size=size, metrics=(AT_L2,)):
        return text
    worst = min(ladder.climbed, key=lambda s: ladder.gain(name, s))
    if counters.has(name, keep, size=worst, metrics=(AT_L2, FROM_DRAM)):
        size = worst
    grown, reads = (counters.ratio(name, keep, size, metric) - 1 for metric in (AT_L2, FROM_DRAM))
    apart = ": blocks that stand at different k no longer read what their neighbours read"
    return f"{text} At {cube(size)} L2 handles {more(grown, 'bytes')}, DRAM delivers {more(reads, 'bytes')}{apart if grown > 0.1 else ''}."


def _split_k(ladder: Ladder) -> str:
    rung = ladder.rungs.get("wgmma_split_k")
    if rung is None:
        return ""
    few = listed(f"{cube(s)} has {rung.tiles(s)}" for s in ladder.sizes)
    came = listed(f"{ladder.gain(rung.name, s):.2f}×" for s in ladder.sizes)
    return (
        f"**Split-K** is for few tiles, and {few} of {rung.m} × {rung.n}: {came} of `wgmma_keep`. The tuner takes it where it "
        "pays (next section)."
    )


def _cp_async(ladder: Ladder) -> str:
    rung = ladder.rungs.get("wgmma_cp_async")
    if rung is None:
        return ""
    return (
        f"**Threads copy**: {_gains(ladder, rung.name)} of `{rung.before}`. Tiles of {rung.m} × {rung.n} read each operand "
        f"far too often where there are {rung.tiles(ladder.climbed[0])} of them, as at {cube(ladder.climbed[0])}. They are for products "
        "of microseconds, which have a section of their own below."
    )


def _gains(ladder: Ladder, name: str) -> str:
    return listed(f"{ladder.gain(name, s):.2f}× at {cube(s)}" for s in ladder.climbed)


def _fewer_instructions(ladder: Ladder, counters: Counters) -> str:
    lean, keep, rounds, size = "wgmma_lean", "wgmma_keep", "wgmma_rounds", ladder.climbed[-1]
    if not {lean, rounds} <= set(ladder.rungs):
        return ""
    text = (
        f"**Fewer instructions**: `{lean}` is {_gains(ladder, lean)} of `{keep}`, with 256 × 192 of C "
        f"{_gains(ladder, 'wgmma_lean_tall')} of `wgmma_tall`, and `{rounds}` {_gains(ladder, rounds)} of `{lean}`."
    )
    who = (keep, lean, rounds, "cusparselt")
    if not counters.has(*who, size=size, metrics=(INSTRUCTIONS, TIME, CLOCK, AT_L2)):
        return text
    done = {v: counters.get(v, size, INSTRUCTIONS) / 1e6 for v in who}
    clocks = {v: counters.get(v, size, TIME) * counters.get(v, size, CLOCK) for v in who}
    first, second = clocks[lean] / clocks[keep], clocks[rounds] / clocks[lean]
    why = (
        " The first cut helped, the second hardly: a stage that goes back a little earlier may be why, or the "
        f"{more(counters.ratio(lean, keep, size, AT_L2) - 1, 'bytes')} that L2 handles for `{lean}`."
        if first < 0.99 < second
        else ""
    )
    return (
        f"{text} A warp hands its work to the tensor cores and does the rest while they multiply; that the rest should cost anything is not "
        f"obvious. At {cube(size)} warps execute {done[keep]:.0f}, {done[lean]:.0f} and {done[rounds]:.0f} million instructions (cuSPARSELt's best "
        f"{done['cusparselt']:.0f}), and `{lean}` takes {more(first - 1, 'clocks')} than `{keep}`, `{rounds}` {more(second - 1, 'clocks')} than `{lean}`.{why}"
    )


def _last_wave(ladder: Ladder, counters: Counters, sms: int) -> str:
    name, tall = "wgmma_last_wave", "wgmma_lean_tall"
    if name not in ladder.rungs:
        return ""
    fill = {s: ladder.rungs[name].tiles(s) / sms for s in ladder.climbed}
    told = [
        f"{f:.2f} waves at {cube(s)}, of which the last is {'cut' if 0 < f % 1 <= 0.5 else 'too full to be cut'}"
        for s, f in fill.items()
    ]
    cut = [s for s, f in fill.items() if 0 < f % 1 <= 0.5]
    text = (
        f"**The last wave cut in two**: 256 × 192 tiles fill {listed(told)}. {_gains(ladder, name)} of `{tall}` came of it. Two "
        "blocks of a cluster share a tile's steps, and all blocks are at the same k until then."
    )
    if not cut:
        return text
    size, before = cut[-1], np.ceil(fill[cut[-1]])
    text += f" {before:.0f} waves become {before - 0.5}, worth {before / (before - 0.5):.2f}× at best."
    if not counters.has(name, tall, size=size, metrics=(TIME, CLOCK, FROM_DRAM)):
        return text
    time, rate, dram = (counters.ratio(name, tall, size, metric) for metric in (TIME, CLOCK, FROM_DRAM))
    return (
        f"{text} The profile has {1 / time:.2f}×: {more(time * rate - 1, 'clocks')}, at a clock rate that is {rate - 1:+.0%}; DRAM delivers "
        f"{more(dram - 1, 'bytes')}."
    )


def _refilling(ladder: Ladder, counters: Counters) -> str:
    name, tall, size = "wgmma_refilling", "wgmma_lean_tall", ladder.climbed[-1]
    if name not in ladder.rungs:
        return ""
    gain = np.mean([ladder.gain(name, s) for s in ladder.climbed])
    text = (
        f"**192 × 256 without a producer**: {_gains(ladder, name)} of `{tall}`{', less than expected' if gain < 1.02 else ''}. For an instruction of 256 columns the "
        "compiler wants 155 registers a thread at launch, whatever `setmaxnreg` gives later. With a fourth warpgroup that copies there are 128, so here the warps of three take "
        "turns to ask."
    )
    if not counters.has(name, tall, size=size, metrics=(SHARED, AT_L2, CLOCK, INSTRUCTIONS)):
        return text
    done, busy, rate = (
        [counters.get(v, size, metric) for v in (name, tall)] for metric in (INSTRUCTIONS, SHARED, CLOCK)
    )
    cost = ": asking in turn may cost what the tile saves" if done[0] > done[1] and gain < 1.02 else ""
    return (
        f"{text} At {cube(size)} L2 handles {more(counters.ratio(name, tall, size, AT_L2) - 1, 'bytes')} than for `{tall}`, and the clock that power leaves is {rate[0] / 1e9:.2f} instead of "
        f"{rate[1] / 1e9:.2f} GHz. But warps execute {done[0] / 1e6:.0f} million instructions instead of {done[1] / 1e6:.0f}, and shared memory is busy {busy[0]:.0f}% of the time instead of {busy[1]:.0f}%{cost}."
    )


def _three(ladder: Ladder, counters: Counters) -> str:
    name, before, size = "wgmma_three", "wgmma_refilling", ladder.climbed[-1]
    if name not in ladder.rungs:
        return ""
    text = (
        f"**Registers from the block's pool**: {_gains(ladder, name)} of `{before}`, for the same tile. What the compiler refuses the GPU can do: four warpgroups begin with "
        f"{family.AT_LAUNCH} registers a thread, the one that copies keeps 32, and the others take 160. So the kernel is compiled for 160, and the number in its binary that the driver "
        "launches by is set to what it begins with; a test walks the machine code for registers that nobody has."
    )
    if not counters.has(name, before, size=size, metrics=(TIME, CLOCK, AT_L2, INSTRUCTIONS)):
        return text
    done = [counters.get(v, size, INSTRUCTIONS) / 1e6 for v in (name, before)]
    time, rate, slices = (counters.ratio(name, before, size, metric) for metric in (TIME, CLOCK, AT_L2))
    pays = (
        ": in this profile what was saved in clocks was lost in clock rate again"
        if time * rate < 0.98 and time > 0.98
        else ""
    )
    return (
        f"{text} At {cube(size)} warps execute {done[0]:.0f} million instructions instead of {done[1]:.0f}, in {more(time * rate - 1, 'clocks')}. L2's slices handle "
        f"{more(slices - 1, 'bytes')}, and the clock that power leaves changes by {rate - 1:+.0%}{pays}."
    )


def _pieces(ladder: Ladder, counters: Counters, sms: int) -> str:
    name, before = "wgmma_pieces", "wgmma_three"
    if name not in ladder.rungs:
        return ""
    told = []
    for size in ladder.climbed:
        count = ladder.rungs[name].tiles(size)
        cut = family.cut_into_pieces(count, ladder.rungs[name].rows_of_64, sms)
        how = (
            f"whose {count % sms} last ones become {cut.pieces} of at most {64 * cut.groups} rows"
            if cut.pieces
            else "of which the last is too full to be cut"
        )
        told.append(f"{count / sms:.2f} waves at {cube(size)}, {how}")
    text = f"**Lower tiles last**: {_gains(ladder, name)} of `{before}`. Its tiles fill {listed(told)}. Unlike with stream-K and clusters, no sums are passed on and no block waits for another."
    size = ladder.climbed[-1]
    if not counters.has(name, before, size=size, metrics=(TIME, CLOCK, AT_L2)):
        return text
    time, rate, slices = (counters.ratio(name, before, size, metric) for metric in (TIME, CLOCK, AT_L2))
    costs = (
        ": a piece brings all of B's columns once more, and A comes in boxes of 64 rows, whose reads may merge less"
        if slices > 1.02
        else ""
    )
    return f"{text} At {cube(size)} the profile has {more(time * rate - 1, 'clocks')}, at a clock rate that is {rate - 1:+.0%}; L2's slices handle {more(slices - 1, 'bytes')}{costs}."


def _gpc(ladder: Ladder, counters: Counters) -> str:
    name, lean, size = "wgmma_gpc", "wgmma_lean", ladder.climbed[-1]
    if name not in ladder.rungs:
        return ""
    text = (
        f"**Tiles by GPC**: {_gains(ladder, name)} of `{lean}`. Clusters of blocks tell which SMs form a GPC, since none leaves one, and "
        "tiles side by side go to such SMs."
    )
    if not counters.has(name, lean, size=size, metrics=(AT_L2, FROM_DRAM)):
        return text
    slices, reads = (counters.ratio(name, lean, size, metric) - 1 for metric in (AT_L2, FROM_DRAM))
    same = "wgmma_rounds"  # in all that concerns L2
    if counters.has(same, size=size, metrics=(AT_L2,)):
        noise = abs(counters.ratio(same, lean, size, AT_L2) - 1)
        verdict = f"; `{same}` and `{lean}`, of one order, differ by {noise:.0%}"
    else:
        verdict = ""
    bands = [room.RUNGS[v][0].band for v in (name, lean)]
    return (
        f"{text} L2's slices handle {more(slices, 'bytes')}{verdict}. Hoped for was half. DRAM delivers {more(reads, 'bytes')}, for which the bands, of {bands[0]} rows "
        f"instead of {bands[1]}, may be to blame."
    )
