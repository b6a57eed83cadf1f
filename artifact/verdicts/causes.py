"""Why the verdict on a claim is not the same on two GPUs, as far as their records can say.

The rule, in this order; what none of it decides is "not explained by these records":

1. The evidence is of two kinds: counters of hardware on one GPU, bounds from bytes on the other.
2. The rule says the same of both, and one of the two is the GPU that the source speaks of.
3. A close call: on both GPUs what is judged would get the other's verdict if it moved by at most `limit`, three per
   cent or what a second run of the room moves, whichever is more.
4. A claim that is judged by ceilings alone: the one ceiling that gives each GPU the other's verdict, exchanged alone.
5. A claim about times: the contender whose times, exchanged alone, do that; else the one that moved most, if all that
   moved have one cause. The cause is another version of its library if the versions differ. Else it is the ceiling that
   the contender comes nearest to, if its times moved by more than `limit`, in the direction of that ceiling and no
   further. Where it comes near to none, every ceiling that would do is named. Then the clock, by the same measure; then
   another driver.
6. A counter of DRAM or of the L2 cache: the ceiling of it, if the counter moved by that ratio gives the other's
   verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.measure import again, records
from artifact.verdicts import closeness, evidence, load, quantities
from artifact.verdicts.evidence import CEILINGS, Evidence, NotMeasured

MEMORY, L2, ARITHMETIC = "memory bandwidth", "the L2 cache", "arithmetic"
EITHER = "memory bandwidth or the L2 cache, not told apart"
CLOCK = "power or clock"
STATE = "another state of library or driver"
KIND = "another kind of evidence"
SOURCE = "the GPU that the source speaks of"
CLOSE = "a close call at the rule's edge"
UNKNOWN = "not explained by these records"
CAUSES = (MEMORY, L2, EITHER, ARITHMETIC, CLOCK, STATE, KIND, SOURCE, CLOSE, UNKNOWN)

FEW = 0.03  #: of a value: what is closer to a threshold is close, whatever second runs show
NEAR = 0.25  #: of a ceiling: a contender below that comes near to none
OTHERS = 3  #: contenders that are named beside the one whose times decide
#: Microbenchmarks of memories -> cause, and what of a record they limit.
MEMORIES = {"copy": (MEMORY, "least_bytes"), "l2_read": (L2, "requested_bytes")}
#: Beginnings of counters -> the ceiling that they are of.
COUNTED = {"dram__": "copy", "lts__": "l2_read"}
#: What a library's version is called in machine.json, by the beginning of its contenders' names; longest first.
VERSIONS = ("cusparselt", "cusparse", "cublas")
TIMED = ["median_us", "tflops", "gbps"]


@dataclass(frozen=True)
class Side:
    """One GPU's records of a room, with what is judged by them."""

    gpu: str
    folder: Path
    room: registry.Room
    evidence: Evidence

    @cached_property
    def ceilings(self) -> dict[str, dict[str, float]]:
        try:
            return records.ceilings(self.folder)
        except FileNotFoundError:
            return {}

    @cached_property
    def machine(self) -> dict:
        return records.read_machine(self.folder / self.room.room)


@dataclass(frozen=True)
class Cause:
    name: str  #: of CAUSES
    told: str  #: with its numbers, in a sentence or a few


def side(gpu: str, folder: Path, room: str) -> Side:
    return Side(gpu, Path(folder), registry.find()[room], Evidence(Path(folder), room))


def limit(sides: Sequence[Side]) -> float:
    """What counts as close, relative: FEW, or by how much nine in ten times of a second run of the room moved against
    those beside them, on the GPU where that is more."""
    spreads = (again.spread(s.folder, s.room.room) for s in sides)
    return max([FEW, *(s for s in spreads if math.isfinite(s))])


def of(claim: load.Claim, sides: Sequence[Side], rests: Sequence[Sequence[str]]) -> Cause:
    """Of a claim whose verdicts differ on the two sides. rests: what each verdict rests on, as `judge` says it."""
    first, second = sides
    counted = [records.COUNTERS in each for each in rests]
    if counted[0] != counted[1]:
        return Cause(KIND, kinds(sides, rests))
    rule = claim.rule
    own = [s.evidence.only(rule.at, rule.repeats) for s in sides]
    try:
        values = [rule.quantity(e, claim.experiment) for e in own]
        verdicts = [closeness.verdict(rule, v) for v in values]
    except NotMeasured as missing:
        return Cause(UNKNOWN, str(missing))
    if verdicts[0] == verdicts[1]:
        return Cause(SOURCE, f"The rule says the same of both; the source speaks of {', '.join(claim.gpu)}.")
    near = limit(sides)
    pairs = ((values[0], values[1], verdicts[1]), (values[1], values[0], verdicts[0]))
    off = [closeness.distance(rule, *pair, near) for pair in pairs]
    if max(off) <= near:
        said = " and ".join(f"{by * 100:.3g}% on the {s.gpu}" for by, s in zip(off, sides, strict=True))
        return Cause(
            CLOSE,
            f"A change by {said} is enough for the other verdict; up to {near:.1%} counts as close.",
        )
    if set(rests[0]) == set(rests[1]) == {CEILINGS}:
        return _by_ceilings(claim, sides, own, verdicts)
    if all(counted):
        return _by_counter(claim, sides, values, verdicts)
    return _by_times(claim, sides, own, verdicts, values, near)


def kinds(sides: Sequence[Side], rests: Sequence[Sequence[str]]) -> str:
    """Which evidence each of two verdicts rests on, where one has counters and the other has not."""
    counters, bounds = "by hardware counters", "by bytes over the ceiling of copying"
    words = (counters if records.COUNTERS in each else bounds for each in rests)
    said = ", ".join(f"{how} on the {s.gpu}" for how, s in zip(words, sides, strict=True))
    return f"Judged {said}."


# ---------------------------------------------------------------- what has to come from the other GPU


def _exchanged(claim: load.Claim, own: Sequence[Evidence], verdicts: Sequence[str], mix) -> tuple[bool, bool]:
    """Whether the first side, and whether the second, gets the other's verdict where `mix(here, there)` is its
    evidence."""
    found = []
    for here, there, goal in ((own[0], own[1], verdicts[1]), (own[1], own[0], verdicts[0])):
        try:
            found.append(closeness.verdict(claim.rule, claim.rule.quantity(mix(here, there), claim.experiment)) == goal)
        except NotMeasured:
            found.append(False)
    return found[0], found[1]


def _with(here: Evidence, read: Mapping[str, pd.DataFrame]) -> Evidence:
    return replace(here, read={**here.read, **read}, frames={})


def _by_ceilings(claim, sides, own, verdicts) -> Cause:
    first, second = (s.ceilings for s in sides)
    common = [name for name in first if name in second]

    def mix(name):
        def exchange(here: Evidence, there: Evidence) -> Evidence:
            table = here.read[CEILINGS].copy()
            table[name] = there.read[CEILINGS][name]
            return _with(here, {CEILINGS: table})

        return exchange

    swaps = {name: _exchanged(claim, own, verdicts, mix(name)) for name in common}
    alone = [name for name, ways in swaps.items() if all(ways)]
    if len(alone) == 1:
        return Cause(
            _cause(alone[0]),
            f"{_rates(alone, sides)}. Exchanged alone, it gives each GPU the verdict of the other.",
        )
    some = alone or [name for name, ways in swaps.items() if any(ways)]
    if not some:
        return Cause(UNKNOWN, "No ceiling, exchanged alone, changes the verdict.")
    how = "each of these" if alone else "none of them"
    clocks = "; ".join(f"{_clock(s, some)} on the {s.gpu}" for s in sides)
    return Cause(
        UNKNOWN,
        f"{_rates(some, sides)}. Exchanged alone, {how} gives each GPU the verdict of the other. The clock: {clocks}.",
    )


def _rates(names: Sequence[str], sides: Sequence[Side]) -> str:
    """The rates of ceilings on both, with their ratios."""
    said = []
    for name in names:
        unit = "tflops" if sides[0].ceilings[name]["tflops"] else "gbps"
        a, b = (s.ceilings[name][unit] for s in sides)
        said.append(f"{name} {a:,.0f} and {b:,.0f} {quantities.RATES[unit]} ({a / b:.2f}×)")
    return ", ".join(said)


def _clock(s: Side, names: Sequence[str]) -> str:
    df = records.read(s.folder / CEILINGS / f"{CEILINGS}.csv")
    df = df[df["variant"].isin(names)]
    held = ", ".join(dict.fromkeys(df["throttle"].replace("", "none")))
    return f"{df['sm_mhz'].min():.0f} MHz, limited by {held}"


def _by_counter(claim, sides, values, verdicts) -> Cause:
    metric = claim.rule.quantity.parameters.get("metric")
    ratio = records.geomean(_common(values[1].all, values[0].all))
    said = f"What the counter gives is {ratio:.2f}× on the {sides[1].gpu}"
    name = next((c for head, c in COUNTED.items() if str(metric).startswith(head)), None)
    if name is None or not all(name in s.ceilings for s in sides) or "over" in claim.rule.quantity.parameters:
        return Cause(UNKNOWN, f"{said}, and no ceiling is of it.")
    by = sides[0].ceilings[name]["gbps"] / sides[1].ceilings[name]["gbps"]
    moved = [_scaled(values[0], by), _scaled(values[1], 1 / by)]
    if all(closeness.verdict(claim.rule, v) == goal for v, goal in zip(moved, verdicts[::-1], strict=True)):
        return Cause(
            MEMORIES[name][0],
            f"{said}; the ceiling differs by {by:.2f}×, which is enough for the other verdict.",
        )
    return Cause(
        UNKNOWN,
        f"{said}; the ceiling differs by {by:.2f}×, which is not enough for the other verdict.",
    )


def _scaled(values: quantities.Values, by: float) -> quantities.Values:
    return replace(values, by={name: s * by for name, s in values.by.items()})


def _common(one: pd.Series, other: pd.Series) -> pd.Series:
    """The ratios at what both have."""
    one, other = one.align(other, join="inner")
    return (one / other)[(one > 0) & (other > 0)]


# ---------------------------------------------------------------- times, and which ceiling is near


def _by_times(claim, sides, own, verdicts, values, near: float) -> Cause:
    sweeps = evidence.sweeps(claim.experiment)
    if any(name.startswith(evidence.OTHERS) or evidence.SERIES in name for name in sweeps):
        return Cause(UNKNOWN, "It does not rest on times of ours.")
    times = _times(own, sweeps)
    given = claim.rule.quantity.parameters
    said = [n for key in ("of", "over") for n in quantities.contenders(given.get(key) or ())]
    names = [n for n in dict.fromkeys([*said, *values[0].by]) if n in times and len(times[n])]
    moved = {n: records.geomean(times[n]["median_us_b"] / times[n]["median_us_a"]) for n in names}
    if not moved:
        return Cause(UNKNOWN, "The two have times of no contender of the claim in common.")
    swaps = {n: _exchanged(claim, own, verdicts, _times_of(n, sweeps)) for n in names}
    alone = [n for n, ways in swaps.items() if all(ways)]
    ranked = sorted(names, key=lambda n: -abs(math.log(moved[n])))
    which = next((n for n in ranked if n in alone), ranked[0])
    how = (
        "Its times, exchanged alone, give each GPU the verdict of the other."
        if alone
        else "No contender's times, exchanged alone, give each GPU the verdict of the other."
    )
    others = [n for n in names if n != which]
    shown = ", ".join(f"{n} {moved[n]:.2f}×" for n in others[:OTHERS])
    if len(others) > OTHERS:
        ends = sorted(moved[n] for n in others)
        shown = f"the other {len(others)} {ends[0]:.2f}× to {ends[-1]:.2f}×"
    said = f"{which} takes {moved[which]:.2f}× on the {sides[1].gpu}{f' ({shown})' * bool(shown)}. {how}"
    found = _named(which, moved[which], times[which], sides, near, said)
    if not alone:
        shifted = [n for n in names if abs(math.log(moved[n])) > math.log1p(near)]
        every = {_named(n, moved[n], times[n], sides, near, "").name for n in shifted}
        if len(every) > 1:
            return Cause(UNKNOWN, f"{said} Those that moved have no cause in common.")
    return found


def _times(own: Sequence[Evidence], sweeps: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Contender -> its rows at the points that both have, with the columns of either side: _a and _b."""
    first, second = (e.frame(sweeps) for e in own)
    key = ["variant", "experiment", *records.POINT]
    both = first.merge(second, on=key, suffixes=("_a", "_b"))
    return dict(list(both.groupby("variant")))


def _times_of(name: str, sweeps: Sequence[str]):
    """How the times of a contender come from the other side, where that has them."""

    def exchange(here: Evidence, there: Evidence) -> Evidence:
        return _with(here, {e: _from(here.read[e], there.read[e], name) for e in sweeps})

    return exchange


def _from(here: pd.DataFrame, there: pd.DataFrame, name: str) -> pd.DataFrame:
    point = list(records.POINT)
    theirs = there[there["variant"] == name].set_index(point)[TIMED]
    ours = here["variant"].eq(name) & pd.MultiIndex.from_frame(here[point]).isin(theirs.index)
    mixed = here.copy()
    mixed.loc[ours, TIMED] = theirs.reindex(pd.MultiIndex.from_frame(here.loc[ours, point])).to_numpy()
    return mixed


def _named(which: str, moved: float, df: pd.DataFrame, sides: Sequence[Side], near: float, said: str) -> Cause:
    """The cause of the times of one contender, moved by this factor, at the points `df`."""
    library = next((v for v in VERSIONS if which.startswith(v)), None)
    versions = [s.machine.get(library) or (s.machine.get("packages") or {}).get(which.split("_")[0]) for s in sides]
    if all(versions) and versions[0] != versions[1]:
        return Cause(
            STATE,
            f"{said} {registry.library(which)} is {versions[0]} on the {sides[0].gpu} and {versions[1]} on the "
            f"{sides[1].gpu}.",
        )
    if abs(math.log(moved)) <= math.log1p(near):
        return Cause(
            UNKNOWN,
            f"{said} That is no more than {near:.1%}, within which times move by themselves.",
        )
    shares = _shares(which, df, sides)
    ratios = {name: _ratio(name, sides) for name in shares}
    fits = [name for name, ratio in ratios.items() if _explains(ratio, moved, near)]
    nearest = max(shares, key=lambda name: min(shares[name]), default="")
    if nearest and min(shares[nearest]) >= NEAR:
        a, b = shares[nearest]
        said += (
            f" It comes nearest to {_called(nearest)}, at {a:.0%} and {b:.0%} of what was measured there, "
            f"whose ratio is {ratios[nearest]:.2f}×."
        )
        fits = [nearest] if nearest in fits else []
    elif fits:
        would = ", ".join(f"{_called(name)} ({ratios[name]:.2f}×)" for name in fits)
        said += f" It comes near to no ceiling; its times lie between 1 and the ratio of {would}."
    causes = list(dict.fromkeys(_cause(name) for name in fits))
    if len(causes) == 1 or set(causes) == {MEMORY, L2}:
        return Cause(causes[0] if len(causes) == 1 else EITHER, said)
    a, b = (df[f"sm_mhz_{s}"].median() for s in "ab")
    if _explains(a / b, moved, near):
        return Cause(CLOCK, f"{said} The clock was {a:.0f} and {b:.0f} MHz (medians).")
    drivers = [s.machine["driver"] for s in sides]
    if drivers[0] != drivers[1]:
        return Cause(
            STATE,
            f"{said} The driver is {drivers[0]} on the {sides[0].gpu}, {drivers[1]} on the {sides[1].gpu}.",
        )
    return Cause(UNKNOWN, f"{said} No ceiling and no clock ({a:.0f} and {b:.0f} MHz) goes with that.")


def _explains(ratio: float, moved: float, near: float) -> bool:
    """Whether a ceiling that differs by `ratio` goes with times that moved by this factor: it differs itself, in the
    same direction, and at least as much."""
    least = math.log1p(near)
    r, m = math.log(ratio), math.log(moved)
    return abs(r) > least and r * m > 0 and abs(m) <= abs(r) + least


def _cause(ceiling: str) -> str:
    return MEMORIES[ceiling][0] if ceiling in MEMORIES else ARITHMETIC


def _called(name: str) -> str:
    return {"copy": "copying in memory", "l2_read": "reading the L2 cache"}.get(name, f"arithmetic ({name})")


def _ratio(name: str, sides: Sequence[Side]) -> float:
    unit = "gbps" if name in MEMORIES else "tflops"
    return sides[0].ceilings[name][unit] / sides[1].ceilings[name][unit]


def _shares(which: str, df: pd.DataFrame, sides: Sequence[Side]) -> dict[str, tuple[float, float]]:
    """Ceiling -> what a contender reaches of it on either side, medians over its points: the operands' bytes of the
    memory, the bytes that it asks for of L2, its arithmetic of the fastest loop that does the like."""
    room = sides[0].room
    dense = which.startswith("cublas")
    loops = ("fma",)
    if room.unit != "CUDA cores":
        loops = ("wgmma", "mma") if dense or "2:4" not in room.format else ("wgmma_sp_ra", "wgmma_sp", "mma_sp")
    both = [name for name in loops if all(name in s.ceilings for s in sides)]
    fastest = sorted(both, key=lambda name: -sides[0].ceilings[name]["tflops"])[:1]
    found = {}
    for name in [*MEMORIES, *fastest]:
        if not all(name in s.ceilings for s in sides):
            continue
        each = []
        for s, end in zip(sides, "ab", strict=True):
            us = df[f"median_us_{end}"]
            flops = 2.0 * df["m"] * df["n"] * df["k"] if dense else df[f"useful_flops_{end}"]
            rate = flops / us / 1e6 if name not in MEMORIES else df[f"{MEMORIES[name][1]}_{end}"] / us / 1e3
            each.append(float((rate / s.ceilings[name]["gbps" if name in MEMORIES else "tflops"]).median()))
        found[name] = (each[0], each[1])
    return found
