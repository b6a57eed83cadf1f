"""What moved where the verdict on a claim is not the same on two GPUs, as far as their records can say.

1. Another kind of evidence: counters of hardware on one GPU, bounds from bytes on the other.
2. The rule says the same of both, and one of the two is the GPU that the source speaks of.
3. A close call: on both GPUs what is judged would get the other's verdict if it moved by at most `limit`, three per
   cent or what a second run of the room moves, whichever is more.
4. All else moved by more. What decides is exchanged between the two, one contender's times or one ceiling at a time;
   and of the contender that decides, or else moved most, it is told which ceiling it comes nearest to, and how those
   differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import again, records
from artifact.verdicts import evidence, load, measures, quantities
from artifact.verdicts.evidence import CEILINGS, Evidence, NotMeasured

MOVED = "times, counters or ceilings that moved"
KIND = "another kind of evidence"
SOURCE = "the GPU that the source speaks of"
CLOSE = "a close call at the rule's edge"
CAUSES = (MOVED, KIND, SOURCE, CLOSE)

FEW = 0.03  #: of a value: what is closer to a threshold is close, whatever second runs show
STEP = 0.0025  #: of a value: how finely the way to the other verdict is searched
NEAR = 0.25  #: of a ceiling: a contender below that comes near to none
OTHERS = 3  #: contenders that are named beside the one whose times decide
#: Microbenchmarks of memories -> what they are called, what of a record they limit.
MEMORIES = {"copy": ("copying in memory", "least_bytes"), "l2_read": ("reading the L2 cache", "requested_bytes")}
TIMED = ["median_us", "tflops", "gbps"]
#: What takes the place of the evidence of one GPU, made of it and of the other's.
Mix = Callable[[Evidence, Evidence], Evidence]


@dataclass(frozen=True)
class Side:
    """One GPU's records of a room, with what is judged by them."""

    gpu: str
    evidence: Evidence
    ceilings: Mapping[str, Mapping[str, float]]

    def rate(self, name: str) -> float:
        """Return what a microbenchmark reached, in GB/s or TFLOP/s."""
        return self.ceilings[name]["tflops"] or self.ceilings[name]["gbps"]


def side(gpu: str, folder: Path, room: str) -> Side:
    """Open a GPU's records of a room."""
    return Side(gpu, Evidence(folder, room), evidence.ceilings(folder))


def limit(sides: Iterable[Side]) -> float:
    """Return what counts as close, relative: FEW, or by how much nine in ten times of a second run of the room moved
    against those beside them, on the GPU where that is more."""
    spreads = (again.spread(s.evidence.folder, s.evidence.room) for s in sides)
    return max([FEW, *filter(math.isfinite, spreads)])


def of(claim: load.Claim, sides: Sequence[Side], rests: Sequence[Sequence[str]]) -> tuple[str, str]:
    """Return one of CAUSES, and what moved in a sentence or a few, of a claim whose verdicts differ on the two sides.
    rests: what each verdict rests on, as `judge` says it."""
    counted, rule, near = [records.COUNTERS in each for each in rests], claim.rule, limit(sides)
    if counted[0] != counted[1]:
        how = {True: "by hardware counters", False: "by bytes over the ceiling of copying"}
        return KIND, f"Judged {how[counted[0]]} on the {sides[0].gpu}, {how[counted[1]]} on the {sides[1].gpu}."
    own = [s.evidence.only(rule.at, rule.repeats) for s in sides]
    values = [rule.quantity(e, claim.experiment) for e in own]
    verdicts = [measures.judged(rule, v).verdict for v in values]
    if verdicts[0] == verdicts[1]:
        return SOURCE, f"The rule says the same of both; the source speaks of {', '.join(claim.gpu)}."
    ways = ((values[0], values[1], verdicts[1]), (values[1], values[0], verdicts[0]))
    off = [distance(rule, here, there, goal, near) for here, there, goal in ways]
    if max(off) <= near:
        said = " and ".join(f"{by * 100:.3g}% on the {s.gpu}" for by, s in zip(off, sides, strict=True))
        return CLOSE, f"A change by {said} is enough for the other verdict; up to {near:.1%} counts as close."
    if all(counted):
        first, second = values[0].all.align(values[1].all, join="inner")
        ratio, memories = records.geomean((second / first)[(first > 0) & (second > 0)]), _ratios(sides, MEMORIES)
        return MOVED, f"What the counter gives is {ratio:.2f}× on the {sides[1].gpu}; {memories}."
    if set(rests[0]) == set(rests[1]) == {CEILINGS}:
        return MOVED, _by_ceilings(claim, sides, own, verdicts)
    return MOVED, _by_times(claim, sides, own, verdicts, list(values[0].by))


# ---------------------------------------------------------------- how far the other verdict is


def distance(rule: measures.Rule, here: quantities.Values, there: quantities.Values, goal: str, most: float) -> float:
    """Return the least relative change towards the other GPU's values that gives `here` the verdict `goal`: of every
    value, or of what the rule reduces them to, whichever is less; infinite where `most` is not enough. As a rule may
    judge values against each other, they also move without what all of them have in common."""
    ours, theirs = rule.reduce(here), rule.reduce(there)
    lines = dict(theirs.course)
    #: A share of points is no value that moves by per cents: there the points themselves have to.
    shares = rule.reduce.name.startswith("share")
    ways = [
        (
            {name: _way(s, there.by.get(name), alike) for name, s in here.by.items()},
            _way(ours.values, theirs.values, alike),
            {name: _way(line, lines.get(name), alike) for name, line in ours.course},
        )
        for alike in (False, True)
    ]
    for by in np.arange(STEP, most + STEP / 2, STEP):
        for values, reduced, course in ways:
            moved = replace(here, by={name: _along(s, values[name], by) for name, s in here.by.items()})
            along = [(name, _along(line, course[name], by)) for name, line in ours.course]
            less = replace(ours, values=_along(ours.values, reduced, by), course=along)
            if _gives(goal, measures.judged, rule, moved) or (not shares and _gives(goal, rule.expect, less)):
                return float(by)
    return math.inf


def _gives(goal: str, judge: Callable, *given: Any) -> bool:
    """Tell whether judging gives the verdict `goal`; what records lack gives none."""
    try:
        return judge(*given).verdict == goal
    except NotMeasured:
        return False


def _way(here: pd.Series, there: pd.Series | None, alike: bool) -> np.ndarray:
    """Return the logarithms of the ratios that lead to the other GPU's values, 0 where there is none. alike: what all
    move by is left out."""
    if there is None or not (here.index.is_unique and there.index.is_unique):
        return np.zeros(len(here))
    ratio = (there.reindex(here.index) / here).to_numpy(float)
    usable = (here.to_numpy(float) > 0) & (ratio > 0)
    way = np.log(np.where(usable, ratio, 1.0))
    return np.where(usable, way - way[usable].mean(), 0.0) if alike and usable.any() else way


def _along(here: pd.Series, way: np.ndarray, by: float) -> pd.Series:
    """Return each value moved along its way, but by no more than the factor 1 + by."""
    most = math.log1p(by)
    return pd.Series(here.to_numpy(float) * np.exp(np.clip(way, -most, most)), here.index)


# ---------------------------------------------------------------- what has to come from the other GPU


def _exchanged(claim: load.Claim, own: Sequence[Evidence], verdicts: Sequence[str], mix: Mix) -> list[bool]:
    """Tell whether the first side, and whether the second, gets the other's verdict where `mix` of both is its
    evidence."""

    ways = ((own[0], own[1], verdicts[1]), (own[1], own[0], verdicts[0]))
    return [_gives(goal, measures.outcome, claim.rule, mix(*pair), claim.experiment) for *pair, goal in ways]


def _with(here: Evidence, read: Mapping[str, pd.DataFrame]) -> Evidence:
    return replace(here, read={**here.read, **read}, frames={})


def _by_ceilings(claim: load.Claim, sides: Sequence[Side], own: Sequence[Evidence], verdicts: Sequence[str]) -> str:
    """Say which ceiling, exchanged alone, gives each GPU the verdict of the other, or one of them."""

    def mix(name: str) -> Mix:
        return lambda here, there: _with(
            here, {CEILINGS: here.read[CEILINGS].assign(**{name: there.read[CEILINGS][name]})}
        )

    swaps = {n: _exchanged(claim, own, verdicts, mix(n)) for n in sides[0].ceilings if n in sides[1].ceilings}
    alone = [name for name, ways in swaps.items() if all(ways)]
    some = alone or [name for name, ways in swaps.items() if any(ways)]
    rates = [
        f"{name} {a:,.0f} and {b:,.0f} {quantities.RATES['tflops' if sides[0].ceilings[name]['tflops'] else 'gbps']} "
        f"({a / b:.2f}×)"
        for name in some
        for a, b in [[s.rate(name) for s in sides]]
    ]
    clocks = "; ".join(f"{_clock(s, some)} on the {s.gpu}" for s in sides)
    how = "it gives" if alone else "none of them gives"
    return f"{', '.join(rates)}. Exchanged alone, {how} each GPU the verdict of the other. The clock: {clocks}."


def _clock(s: Side, names: Sequence[str]) -> str:
    df = records.read(s.evidence.folder / CEILINGS / f"{CEILINGS}.csv")
    df = df[df["variant"].isin(names)]
    held = ", ".join(dict.fromkeys(df["throttle"].replace("", "none")))
    return f"{df['sm_mhz'].min():.0f} MHz, limited by {held}"


# ---------------------------------------------------------------- times, and which ceiling is near


def _by_times(
    claim: load.Claim, sides: Sequence[Side], own: Sequence[Evidence], verdicts: Sequence[str], judged: list[str]
) -> str:
    """Say whose times, exchanged alone, give each GPU the verdict of the other, or moved most; and the ceilings beside.
    judged: contenders whose values are."""
    sweeps, given = evidence.sweeps(claim.experiment), claim.rule.quantity.parameters
    first, second = (e.frame(sweeps) for e in own)
    both = first.merge(second, on=["variant", "experiment", *records.POINT], suffixes=("_a", "_b"))
    times = dict(list(both.groupby("variant")))
    said = [name for key in ("of", "over") for name in quantities.contenders(given.get(key) or ())]
    names = [name for name in dict.fromkeys([*said, *judged]) if name in times]
    if not names:
        return "It does not rest on times of contenders that both have."
    moved = {n: records.geomean(times[n]["median_us_b"] / times[n]["median_us_a"]) for n in names}
    names.sort(key=lambda name: -abs(math.log(moved[name])))
    alone = [n for n in names if all(_exchanged(claim, own, verdicts, _times_of(n, sweeps)))]
    which, *others = dict.fromkeys([*alone[:1], *names])
    shown = ", ".join(f"{n} {moved[n]:.2f}×" for n in others)
    if len(others) > OTHERS:
        ends = sorted(moved[n] for n in others)
        shown = f"the other {len(others)} {ends[0]:.2f}× to {ends[-1]:.2f}×"
    whose = "Its" if alone else "No contender's"
    clocks = " and ".join(f"{times[which][f'sm_mhz_{end}'].median():.0f}" for end in "ab")
    return (
        f"{which} takes {moved[which]:.2f}× on the {sides[1].gpu}{f' ({shown})' * bool(shown)}. "
        f"{whose} times, exchanged alone, give each GPU the verdict of the other. "
        f"{_near(which, times[which], sides)} The clock was {clocks} MHz (medians)."
    )


def _times_of(name: str, sweeps: Sequence[str]) -> Mix:
    """Make the times of a contender come from the other side, where that has them."""
    point = list(records.POINT)

    def mixed(here: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
        theirs = there[there["variant"] == name].set_index(point)[TIMED]
        at = pd.MultiIndex.from_frame(here[point])
        ours, found = here["variant"].eq(name).to_numpy() & at.isin(theirs.index), here.copy()
        found.loc[ours, TIMED] = theirs.reindex(at[ours]).to_numpy()
        return found

    return lambda here, there: _with(here, {e: mixed(here.read[e], there.read[e]) for e in sweeps})


def _near(which: str, df: pd.DataFrame, sides: Sequence[Side]) -> str:
    """Say which ceiling a contender comes nearest to, at the points `df` of both sides, and how much of it it reaches,
    medians: the operands' bytes of the memory, the bytes that it asks for of L2, its arithmetic of the fastest loop
    that does the like; where it comes near to none, how the memories differ."""
    room, dense = registry.find()[sides[0].evidence.room], which.startswith("cublas")
    loops: tuple[str, ...] = (
        ("wgmma", "mma") if dense or "2:4" not in room.format else ("wgmma_sp_ra", "wgmma_sp", "mma_sp")
    )
    loops = loops if room.unit == "tensor cores" else ("fma",)
    common = [name for name in (*MEMORIES, *loops) if all(name in s.ceilings for s in sides)]
    fastest = max((n for n in common if n not in MEMORIES), key=sides[0].rate, default="")
    flops = 2.0 * df["m"] * df["n"] * df["k"] if dense else df["useful_flops_a"]
    work = {name: df[f"{MEMORIES[name][1]}_a"] / 1e3 for name in common if name in MEMORIES} | {fastest: flops / 1e6}
    shares = {
        name: [(of / df[f"median_us_{end}"]).median() / s.rate(name) for end, s in zip("ab", sides, strict=True)]
        for name, of in work.items()
        if name
    }
    nearest = max(shares, key=lambda name: min(shares[name]), default="")
    if not nearest or min(shares[nearest]) < NEAR:
        return f"It comes near to no ceiling; {_ratios(sides, [*MEMORIES])}."
    called = MEMORIES[nearest][0] if nearest in MEMORIES else f"arithmetic ({nearest})"
    a, b = shares[nearest]
    ratio = sides[0].rate(nearest) / sides[1].rate(nearest)
    return (
        f"It comes nearest to {called}, at {a:.0%} and {b:.0%} of what was measured there, whose ratio is {ratio:.2f}×."
    )


def _ratios(sides: Sequence[Side], names: Iterable[str]) -> str:
    """Say how the ceilings of memories differ, the first GPU's over the second's."""
    both = [name for name in names if all(name in s.ceilings for s in sides)]
    return " and ".join(f"{MEMORIES[n][0]} differs by {sides[0].rate(n) / sides[1].rate(n):.2f}×" for n in both)
