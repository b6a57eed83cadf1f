"""Fresh records against the shipped ones: do they agree, and what still holds on another GPU?

Absolute times move by a few per cent from machine to machine, so the speedups over the library,
taken in one run, are held to the narrower tolerance. On a GPU of another kind times say nothing
about each other: there the speedups are shown side by side and the claims decide. Where the two have
too little in common to say that they agree, that is bad input.

What moved where the verdict on a claim is not the same on both (`cause`), as far as their records can say:

1. Another kind of evidence: counters of hardware on one GPU, bounds from bytes on the other.
2. The rule says the same of both, and one of the two is the GPU that the source speaks of.
3. A close call: on both GPUs what is judged would get the other's verdict if it moved by at most `limit`, three per
   cent or what a second run of the room moves, whichever is more.
4. All else moved by more. What decides is exchanged between the two, one contender's times or one ceiling at a time;
   and of the contender that decides, or else moved most, it is told which ceiling it comes nearest to, and how those
   differ.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import again, records
from artifact.verdicts import evidence, judge, load, measures, quantities
from artifact.verdicts.evidence import CEILINGS, Evidence, NotMeasured

SPEEDUP_TOLERANCE = 0.05  #: median difference of the speedups of a variant in an experiment
TIME_TOLERANCE = 0.10  #: the same of its times
#: Share of the shipped rows, and on another GPU of the shipped verdicts, that the fresh side must have.
COVERAGE = 0.5
#: Prefixes of what speedups are over: the first that was measured.
BASELINES = ("cusparse", "cublas")
AGREE, DIFFER, BAD_INPUT = 0, 1, 2  #: exit codes
SIDES = ("fresh", "shipped")
_POINT = ["room", "experiment", *records.POINT]

#: What two verdicts rest on.
OWN, NO_GPU, TWO_KINDS = "own records", "no GPU", "two kinds of evidence"

MOVED = "times, counters or ceilings that moved"
KIND = "another kind of evidence"
SOURCE = "the GPU that the source speaks of"
CLOSE = "a close call at the rule's edge"
CAUSES = (MOVED, KIND, SOURCE, CLOSE)

FEW = 0.03  #: of a value: what is closer to a threshold is close, whatever second runs show
STEP = 0.0025  #: of a value: how finely the way to the other verdict is searched
NEAR = 0.25  #: of a ceiling: a contender below that comes near to none
NAMED = 3  #: contenders that are named beside the one whose times decide
#: Microbenchmarks of memories -> what they are called, what of a record they limit.
MEMORIES = {"copy": ("copying in memory", "least_bytes"), "l2_read": ("reading the L2 cache", "requested_bytes")}
TIMED = ["median_us", "tflops", "gbps"]


@dataclass(frozen=True)
class Comparison:
    """fresh and shipped are the GPUs' names. Ratios are fresh over shipped.

    points: experiment, variant, POINT, median_us_fresh, median_us_shipped, time_ratio, and, where
    there is a baseline, speedup_fresh, speedup_shipped and speedup_ratio. summary: one row per
    experiment and variant with the medians of these ratios and `agrees`. verdicts: one row per claim: id, room, says,
    fresh, shipped, fresh_measured, shipped_measured, agrees, why; basis: what the two rest on, OWN, NO_GPU or TWO_KINDS
    where both are given; lacks: what the records of one side do not have where it gives none and the other does; cause
    and told: one of CAUSES, and what moved, where a verdict changes, else "". covered: of the `total` points (shapes
    and densities) of the shipped records, those that the fresh ones have too. ceilings: of each that both have, the
    ratio of its rates.
    """

    fresh: str
    shipped: str
    points: pd.DataFrame
    summary: pd.DataFrame
    verdicts: pd.DataFrame
    covered: int
    total: int
    ceilings: Mapping[str, float] = field(default_factory=dict)

    @property
    def same_gpu(self) -> bool:
        return self.fresh == self.shipped

    @property
    def agrees(self) -> bool:
        """On the same GPU: every experiment and variant within tolerance. On another: every verdict
        the same that both could give, which are enough."""
        return bool(self.summary["agrees"].all() if self.same_gpu else self.verdicts["agrees"].all())

    @property
    def exit_code(self) -> int:
        return AGREE if self.agrees else DIFFER


def compare(
    fresh: str | Path,
    shipped: str | Path,
    room: str | None = None,
    speedup_tolerance: float = SPEEDUP_TOLERANCE,
    time_tolerance: float = TIME_TOLERANCE,
) -> Comparison:
    """Compare two GPUs' folders, all rooms that both have or just `room`.

    Raises FileNotFoundError or ValueError, one sentence, if a folder has no records, a record is
    not valid or not complete, or the two have too little in common (COVERAGE).
    """
    sides = fresh, shipped = Path(fresh), Path(shipped)
    tolerances = {"time": time_tolerance, "speedup": speedup_tolerance}
    for tolerance in tolerances.values():
        if not tolerance > 0:
            raise ValueError(f"A tolerance must be a positive number, not {tolerance}.")
    for folder in sides:
        if not records.rooms(folder):
            raise FileNotFoundError(f"{folder}: there are no records of any room; `make measure` makes them.")
    common = [name for name in records.rooms(fresh) if name in records.rooms(shipped) and name != CEILINGS]
    rooms = [name for name in common if room in (None, name)]
    if not rooms:
        which, known = f"The room {room!r} has no" if room else "No room has", ", ".join(common) or "none"
        raise ValueError(f"{which} records on both sides; those that have: {known}.")
    gpus = [[records.read_machine(side / name) for name in rooms][0]["gpu"] for side in sides]
    every = [room] if room else [name for name in records.rooms(shipped) if name != CEILINGS]
    total = _rows(shipped, [(name, experiment) for name in every for experiment in records.experiments(shipped / name)])
    points, rows = _points(fresh, shipped, rooms), total[total["room"].isin(rooms)]
    shared = int((~points["variant"].isin([f"{name}_best" for name in BASELINES])).sum())
    _enough(shared, len(rows), f"{fresh} has", f"rows of {', '.join(rooms)} in {shipped}", "`make measure` measures")
    verdicts = _verdicts([claim for claim in load.claims() if claim.room in rooms], sides)
    if gpus[0] != gpus[1]:
        known = verdicts[verdicts["shipped"] != measures.NOT_MEASURED]
        given, how = int((known["fresh"] != measures.NOT_MEASURED).sum()), "`make measure` and `make profile` measure"
        _enough(given, len(known), f"{fresh} gives", f"verdicts that {shipped} gives", how)
    ours, theirs = map(evidence.ceilings, sides)
    return Comparison(
        fresh=gpus[0],
        shipped=gpus[1],
        points=points,
        summary=_summary(points, tolerances, gpus[0] == gpus[1]),
        verdicts=verdicts,
        covered=len(points[_POINT].drop_duplicates()),
        total=len(total[_POINT].drop_duplicates()),
        ceilings={
            name: ours[name][unit] / theirs[name][unit]
            for name in ours
            for unit in ("tflops", "gbps")
            if theirs.get(name, {}).get(unit) and ours[name][unit]
        },
    )


def _enough(have: int, of: int, who: str, what: str, how: str) -> None:
    """Raise ValueError if fresh records have too few of what the shipped ones have."""
    if have < COVERAGE * of:
        raise ValueError(f"{who} only {have} of the {of} {what}, too few to say whether they agree; {how} the rest.")


def _rows(folder: Path, places: Iterable[tuple[str, str]], read: Callable = records.read) -> pd.DataFrame:
    """Return every row of these experiments, (room, name) each, as `read` gives them."""
    made = [read(folder / room / f"{experiment}.csv") for room, experiment in places]
    return pd.concat(made or [pd.DataFrame(columns=["variant", *_POINT, "median_us", "speedup"])], ignore_index=True)


def _points(fresh: Path, shipped: Path, rooms: Iterable[str]) -> pd.DataFrame:
    """Return what both have, with the ratios of times and of speedups over the library."""
    having = {name: {*records.experiments(fresh / name)} & {*records.experiments(shipped / name)} for name in rooms}
    common, key = [(name, e) for name, both in having.items() for e in sorted(both)], ["variant", *_POINT]
    one, other = (_rows(side, common, _timed)[[*key, "median_us", "speedup"]] for side in (fresh, shipped))
    both = one.merge(other, on=key, suffixes=[f"_{side}" for side in SIDES])
    return both.assign(
        time_ratio=both["median_us_fresh"] / both["median_us_shipped"],
        speedup_ratio=both["speedup_fresh"] / both["speedup_shipped"],
    )


def _timed(path: Path) -> pd.DataFrame:
    """Return a record with the speedup of each row over the library's fastest, NaN where there is none."""
    df = records.complete(records.read(path), path)
    library = next((b for b in BASELINES if df["variant"].str.startswith(b).any()), "")
    df = records.best_of(df, library, f"{library}_best") if library else df
    best = df[df["variant"] == f"{library}_best"].set_index(list(records.POINT))["median_us"]
    at = pd.MultiIndex.from_frame(df[list(records.POINT)])
    return df.assign(speedup=best.reindex(at).to_numpy() / df["median_us"].to_numpy())


def _summary(points: pd.DataFrame, tolerances: Mapping[str, float], same_gpu: bool) -> pd.DataFrame:
    """Return the medians of the ratios of each contender of each experiment, and whether they are within tolerance."""
    # The median of the differences, not the difference of the medians: errors of both signs do not cancel.
    off = points.assign(**{what: (points[f"{what}_ratio"] - 1).abs() for what in tolerances})
    medians, means = ("time_ratio", "speedup_ratio", *tolerances), [f"speedup_{side}" for side in SIDES]
    table = off.groupby(["room", "experiment", "variant"], sort=False).agg(
        points=("variant", "size"),
        **{column: (column, "median") for column in medians},
        **{column: (column, lambda v: np.exp(np.log(v.astype(float)).mean())) for column in means},
    )
    apart = table[list(tolerances)] > pd.Series(tolerances)
    agrees = ~(apart["speedup"] | (apart["time"] & same_gpu))
    return table.drop(columns=list(tolerances)).assign(agrees=agrees).reset_index()


def _verdicts(judged: list[load.Claim], folders: tuple[Path, Path]) -> pd.DataFrame:
    """Return `Comparison.verdicts`."""
    here, there = (judge.kept(judged, folder) for folder in folders)
    df = here[["id", "room", "says"]].assign(
        fresh=here["verdict"],
        shipped=there["verdict"],
        fresh_measured=here["measured"],
        shipped_measured=there["measured"],
    )
    pairs = list(zip(judged, here.iloc, there.iloc, strict=True))
    rests = [[row["rests"] for row in pair] for _, *pair in pairs]
    df = df.assign(
        agrees=agreeing(df),
        why=[_why(*pair) for _, *pair in pairs],
        basis=[_basis(*each) for each in rests],
        lacks=[_lacks(claim, pair, folders) for claim, *pair in pairs],
    )
    sides = cache(partial(_sides, folders))
    moved = [
        ("", "") if agrees else cause(claim, sides(claim.room), each)
        for agrees, claim, each in zip(df["agrees"], judged, rests, strict=True)
    ]
    return df.assign(cause=[name for name, _ in moved], told=[told for _, told in moved])


def _basis(here: tuple[str, ...], there: tuple[str, ...]) -> str:
    """Return what two verdicts rest on: no record of a GPU, as the source's own series or a program."""
    if not any(evidence.SERIES not in name for name in (*here, *there)):
        return NO_GPU
    return TWO_KINDS if (records.COUNTERS in here) != (records.COUNTERS in there) else OWN


def _lacks(claim: load.Claim, pair: Sequence[pd.Series], folders: tuple[Path, Path]) -> str:
    """Return, where one of a pair of verdicts is given and the other is not, what the records of the other lack."""
    unknown = [row["verdict"] == measures.NOT_MEASURED for row in pair]
    if unknown[0] == unknown[1]:
        return ""
    lacking, having = folders if unknown[0] else folders[::-1]
    gone = [
        name
        for name in claim.experiment
        if name.startswith(evidence.OTHERS)
        or [evidence.place(name, side, claim.room).is_file() for side in (lacking, having)] == [False, True]
    ]
    if not gone:
        return "some of the rows or counters that decide"
    if gone[0].startswith(evidence.OTHERS):
        return "a run of the code of others"
    counters = gone[0] == records.COUNTERS
    return f"hardware counters of {claim.source}" if counters else f"the experiment `{gone[0]}` of {claim.source}"


def _why(here: pd.Series, there: pd.Series) -> str:
    """Of two verdicts on a claim: the reason of the one that is farther from what is claimed, and what lies close to a
    threshold."""
    worse = max((here, there), key=lambda row: measures.VERDICTS.index(row["verdict"]))
    return " ".join(filter(None, dict.fromkeys((worse["reason"], here["close"], there["close"]))))


def agreeing(verdicts: pd.DataFrame) -> pd.Series:
    """Whether the columns fresh and shipped say the same, or one of them cannot say."""
    unknown = (verdicts[["fresh", "shipped"]] == measures.NOT_MEASURED).any(axis=1)
    return (verdicts["fresh"] == verdicts["shipped"]) | unknown


def counted(verdicts: pd.DataFrame) -> dict[str, Any]:
    """Count the verdicts that are given on both sides, apart by what they rest on.

    own: on records of both GPUs; kept: of these, the same; no_gpu: on no record of a GPU, which cannot differ;
    two_kinds: ids of those of `own` that are judged by counters on one side alone.
    """
    given = verdicts[(verdicts[["fresh", "shipped"]] != measures.NOT_MEASURED).all(axis=1)]
    own = given[given["basis"] != NO_GPU]
    kinds = tuple(own.loc[own["basis"] == TWO_KINDS, "id"])
    return {"own": len(own), "kept": int(own["agrees"].sum()), "no_gpu": len(given) - len(own), "two_kinds": kinds}


def report(comparison: Comparison) -> str:
    """Return the comparison as plain text for a terminal."""
    c, n = comparison, counted(comparison.verdicts)
    table = c.summary.assign(agrees=c.summary["agrees"].map({True: "yes", False: "NO"}))
    shown = table if c.same_gpu else table.drop(columns=["time_ratio", "agrees"])
    changes = [
        f"  {row.id}: shipped {row.shipped} ({row.shipped_measured}),\n    fresh {row.fresh} ({row.fresh_measured})"
        + f"\n    {row.cause}: {row.told}" * bool(row.cause)
        for row in c.verdicts[c.verdicts["fresh"] != c.verdicts["shipped"]].itertuples()
    ]
    others = "Different GPUs: times are not held against each other, the claims decide.\n"
    parts = {
        f"fresh: {c.fresh}    shipped: {c.shipped}    "
        f"the fresh records cover {c.covered} of the {c.total} shipped points\n": True,
        others: not c.same_gpu,
        shown.to_string(index=False, float_format="{:.3f}".format, na_rep="-") + "\n": True,
        f"Claims: of {n['own']} that the records of both decide {n['kept']} have the same verdict, and "
        f"{n['no_gpu']} that no GPU decides.": len(c.verdicts),
        "\n".join(changes): changes,
        "The GPU is the same: the tolerances decide, not the verdicts.": c.same_gpu and not c.verdicts["agrees"].all(),
        "\nThe records agree." if c.agrees else "\nThe records DIFFER.": True,
    }
    return "\n".join(text for text, holds in parts.items() if holds)


# ---------------------------------------------------------------- what moved


@dataclass(frozen=True)
class Side:
    """One GPU's records of a room, with what is judged by them."""

    gpu: str  #: as a sentence calls it
    evidence: Evidence

    @cached_property
    def ceilings(self) -> Mapping[str, Mapping[str, float]]:
        return evidence.ceilings(self.evidence.folder)

    @cached_property
    def spread(self) -> float:
        """What a second run of the room moved; NaN where there was none."""
        return again.spread(self.evidence.folder, self.evidence.room)

    def rate(self, name: str) -> float:
        """Return what a microbenchmark reached, in GB/s or TFLOP/s."""
        return self.ceilings[name]["tflops"] or self.ceilings[name]["gbps"]


def _sides(folders: tuple[Path, Path], room: str) -> list[Side]:
    """Open two GPUs' records of a room; the second measurement on one is called apart from the first."""
    gpus = [str(records.read_machine(folder / records.rooms(folder)[0])["gpu"]) for folder in folders]
    again = [f"{gpu}, {which}" for gpu, which in zip(gpus, ("first", "second"), strict=True)]
    names = again if gpus[0] == gpus[1] else records.short_gpus(gpus).values()
    return [Side(name, Evidence(folder, room)) for name, folder in zip(names, folders, strict=True)]


def cause(claim: load.Claim, sides: Sequence[Side], rests: Sequence[Sequence[str]]) -> tuple[str, str]:
    """Return one of CAUSES, and what moved in a sentence or a few, of a claim whose verdicts differ on the two sides.
    rests: what each verdict rests on, as `judge` says it."""
    counted, rule = [records.COUNTERS in each for each in rests], claim.rule
    if counted[0] != counted[1]:
        how = {True: "by hardware counters", False: "by bytes over the ceiling of copying"}
        return KIND, f"Judged {how[counted[0]]} on the {sides[0].gpu}, {how[counted[1]]} on the {sides[1].gpu}."
    own = [s.evidence.only(rule.at, rule.repeats) for s in sides]
    values = [rule.quantity(e, claim.experiment) for e in own]
    verdicts = [measures.judged(rule, v).verdict for v in values]
    if verdicts[0] == verdicts[1]:
        return SOURCE, f"The rule says the same of both; the source speaks of {', '.join(claim.gpu)}."
    # What a second run of the room moved, on the GPU where that is more.
    near = max([FEW, *filter(math.isfinite, (s.spread for s in sides))])
    off = [distance(rule, here, there, goal, near) for here, there, goal in _turned(values, verdicts)]
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


def _turned(pair: Sequence[Any], verdicts: Sequence[str]) -> list[tuple[Any, Any, str]]:
    """Return each of a pair, the other one, and the verdict of the other's side."""
    return [(pair[0], pair[1], verdicts[1]), (pair[1], pair[0], verdicts[0])]


# ---------------------------------------------------------------- how far the other verdict is


def distance(rule: measures.Rule, here: quantities.Values, there: quantities.Values, goal: str, most: float) -> float:
    """Return the least relative change towards the other GPU's values that gives `here` the verdict `goal`: of every
    value, or of what the rule reduces them to, whichever is less; infinite where `most` is not enough. As a rule may
    judge values against each other, they also move without what all of them have in common."""
    ours, theirs = rule.reduce(here), rule.reduce(there)
    lines = dict(theirs.course)
    #: A share of points is no value that moves by per cents: there the points themselves have to.
    shares = rule.reduce.func.__name__.startswith("share")
    ways = [
        (
            {name: _way(s, there.by.get(name), alike) for name, s in here.by.items()},
            _way(ours.values, theirs.values, alike),
            {name: _way(line, lines.get(name), alike) for name, line in ours.course},
        )
        for alike in (False, True)
    ]

    def reached(by: float) -> bool:
        for values, reduced, course in ways:
            moved = replace(here, by={name: _along(s, values[name], by) for name, s in here.by.items()})
            along = [(name, _along(line, course[name], by)) for name, line in ours.course]
            less = replace(ours, values=_along(ours.values, reduced, by), course=along)
            if _gives(goal, measures.judged, rule, moved) or (not shares and _gives(goal, rule.expect, less)):
                return True
        return False

    steps = np.arange(STEP, most + STEP / 2, STEP)
    if reached(steps[-1]):
        return next(float(by) for by in steps if reached(by))
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


def _exchanged(
    claim: load.Claim,
    own: Sequence[Evidence],
    verdicts: Sequence[str],
    tables: Sequence[str],
    swap: Callable[[str, pd.DataFrame, pd.DataFrame], pd.DataFrame],
    name: str,
) -> list[bool]:
    """Tell whether the first side, and whether the second, gets the other's verdict where `swap(name, one's own, the
    other's)` takes the place of these tables of its evidence."""

    def mixed(here: Evidence, there: Evidence) -> Evidence:
        made = {table: swap(name, here.read[table], there.read[table]) for table in tables}
        return replace(here, read=here.read | made, frames={})

    ways = _turned(own, verdicts)
    return [_gives(end, measures.outcome, claim.rule, mixed(one, other), claim.experiment) for one, other, end in ways]


def _by_ceilings(claim: load.Claim, sides: Sequence[Side], own: Sequence[Evidence], verdicts: Sequence[str]) -> str:
    """Say which ceiling, exchanged alone, gives each GPU the verdict of the other, or one of them."""
    swaps = {
        n: _exchanged(claim, own, verdicts, [CEILINGS], _ceiling_of, n)
        for n in sides[0].ceilings
        if n in sides[1].ceilings
    }
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
    sweeps, given = evidence.sweeps(claim.experiment), claim.rule.quantity.keywords
    first, second = (e.frame(sweeps) for e in own)
    both = first.merge(second, on=["variant", "experiment", *records.POINT], suffixes=("_a", "_b"))
    times = dict(list(both.groupby("variant")))
    said = [name for key in ("of", "over") for name in quantities.contenders(given.get(key) or ())]
    names = [name for name in dict.fromkeys([*said, *judged]) if name in times]
    if not names:
        return "It does not rest on times of contenders that both have."
    moved = {n: records.geomean(times[n]["median_us_b"] / times[n]["median_us_a"]) for n in names}
    names.sort(key=lambda name: -abs(math.log(moved[name])))
    alone = [n for n in names if all(_exchanged(claim, own, verdicts, sweeps, _times_of, n))]
    which, *others = dict.fromkeys([*alone[:1], *names])
    shown = ", ".join(f"{n} {moved[n]:.2f}×" for n in others)
    if len(others) > NAMED:
        ends = sorted(moved[n] for n in others)
        shown = f"the other {len(others)} {ends[0]:.2f}× to {ends[-1]:.2f}×"
    whose = "Its" if alone else "No contender's"
    clocks = " and ".join(f"{times[which][f'sm_mhz_{end}'].median():.0f}" for end in "ab")
    return (
        f"{which} takes {moved[which]:.2f}× on the {sides[1].gpu}{f' ({shown})' * bool(shown)}. "
        f"{whose} times, exchanged alone, give each GPU the verdict of the other. "
        f"{_near(which, times[which], sides)} The clock was {clocks} MHz (medians)."
    )


def _ceiling_of(name: str, here: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    return here.assign(**{name: there[name]})


def _times_of(name: str, here: pd.DataFrame, there: pd.DataFrame) -> pd.DataFrame:
    """Return a record with the times of a contender from the other side, where that has them."""
    theirs = there[there["variant"] == name].set_index([*records.POINT])[TIMED]
    at = pd.MultiIndex.from_frame(here[[*records.POINT]])
    ours, found = here["variant"].eq(name).to_numpy() & at.isin(theirs.index), here.copy()
    found.loc[ours, TIMED] = theirs.reindex(at[ours]).to_numpy()
    return found


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
