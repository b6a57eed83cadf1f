"""A rule: a quantity, a reducer and an expectation, and what the three make of the records.

A quantity (`evidence`) is a value at every point. A reducer is a function of these values and of what the claim says
of it: `reduce = "geometric mean"`, or with a parameter `reduce = { quantile = 0.1 }`. An expectation is a function of
what was reduced and of what the claim says, as in `expect = { at_least = 1.10, partly = 1.0 }`. It returns the verdict.
All three return numbers.

A claim may also name what its system adds in its own `artifact/systems/<system>/measures.py`, found by looking.

The sentences of a verdict stand in `words.j2`, here and beside each system's `measures.py`: macros called
<function>_<what>, as `median_measured`. A macro gets the parameters that the claim gives the function, and what came of
it.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jinja2
import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import records
from artifact.verdicts import evidence
from artifact.verdicts.evidence import QUANTITIES, Evidence, Values, contenders, denser, need
from kernels.contract import require

REPRODUCED = "reproduced"
EXCEEDED = "exceeded"  #: beyond what is stated, on the better side
PARTLY = "partly"
NOT_REPRODUCED = "not reproduced"
NOT_CARRIED = "does not carry over to this GPU"  #: which of those not reproduced these are: `judge.judge`
UNDECIDED = "undecided on these inputs"  #: the source's own set of inputs was not measured
NOT_MEASURED = "not measured on this GPU"
VERDICTS = (REPRODUCED, EXCEEDED, PARTLY, NOT_REPRODUCED, NOT_CARRIED, UNDECIDED, NOT_MEASURED)
HOLDS, FAILS, OPEN = (REPRODUCED, EXCEEDED), (NOT_REPRODUCED, NOT_CARRIED), (UNDECIDED, NOT_MEASURED)
OFTEN = 0.9  #: "nine in ten" of the points


#: What is said of an extension, an open question of a source or a kernel of ours, and of a stand-in: nothing was
#: claimed of it, so that nothing is reproduced. The sign and the colour are those of the verdict.
ANSWERS = {
    REPRODUCED: "holds here",
    EXCEEDED: "holds here, by more than asked",
    PARTLY: "holds here in part",
    NOT_REPRODUCED: "does not hold here",
    NOT_CARRIED: "does not hold here",
}
#: Quantities that follow from programs and formats, whatever GPU runs them: those of `evidence`, and of systems.
OF_PROGRAMS = {"column", "true_density", "prepared_bytes", "added_memory", "stored_over_blocks", "machine_code"}
#: Each of what a mean may be taken over apart -> the levels of the index that tell them apart.
GROUPS: dict[str, list[str]] = {
    "all": [],
    "each experiment": ["experiment"],
    "each density": ["experiment", "density"],
    "each n": ["n"],
}
#: How several values of one size become one.
MEANS: dict[str, Callable | str] = {"mean": "mean", "largest": "max", "geometric mean": records.geomean}


@dataclass(frozen=True)
class Reduced:
    """What an expectation judges: `values`, one for each contender, group, point or line."""

    of: Values
    values: pd.Series
    #: One value for each line (a sweep along a size): each must do what is expected, or some do in part.
    lines: bool = False
    #: The lines themselves, what tells one from the others -> values in order, for expectations on their course.
    course: Sequence[tuple[Mapping[str, Any], pd.Series]] = ()
    #: How values of any choice of points are reduced, for expectations that compare choices, and for resamples.
    again: Callable[[Any], Any] | None = None
    groups: np.ndarray | None = None  #: row of `of.all` -> number of the choice that it is part of
    data: Mapping[str, Any] = field(default_factory=dict)  #: what else its words name


# ---------------------------------------------------------------- reducers


def each_point(v: Values) -> Reduced:
    """Every point counts by itself."""
    return Reduced(v, v.all, again=np.asarray, groups=np.zeros(len(v.all), dtype=int))


def geometric_mean(v: Values, of: str = "all") -> Reduced:
    """Return the geometric mean over all points, or by `of`.

    of: "each experiment", or "each density" in each experiment.
    """
    need(bool((v.all > 0).all()), "A value is not positive, so that there is no geometric mean.")
    return _reduced(v, records.geomean, of)


def mean(v: Values) -> Reduced:
    """Return the arithmetic mean over all points."""
    return _reduced(v, np.mean)


def median(v: Values, of: str = "all") -> Reduced:
    """Return the median over all points, or over those of "each n"."""
    return _reduced(v, np.median, of)


def largest(v: Values) -> Reduced:
    """Return the largest value of any point."""
    return _reduced(v, np.max)


def smallest(v: Values) -> Reduced:
    """Return the smallest value of any point."""
    return _reduced(v, np.min)


def quantile(v: Values, share: float) -> Reduced:
    """Return the value below which this share of the points lies: 0.1 is what nine in ten points reach."""
    return _reduced(v, partial(np.quantile, q=share))


def _reduced(v: Values, take: Callable[[Any], float], of: str = "all") -> Reduced:
    """Reduce each contender's values by `take`, or those of each of GROUPS."""
    groups = v.all.groupby(level=["contender", *GROUPS[of]], sort=False)
    return Reduced(v, groups.agg(take), again=take, groups=groups.ngroup().to_numpy())


def share_of_points_above(v: Values, limit: float) -> Reduced:
    """Return the share of the points whose value is over `limit`."""
    return _share(v, lambda values: values > limit)


def share_of_points_below(v: Values, limit: float) -> Reduced:
    """Return the share of the points whose value is under `limit`."""
    return _share(v, lambda values: values < limit)


def share_of_points_at_least(v: Values, limit: float, tolerance: float = 0.0) -> Reduced:
    """Return the share of the points whose value is at least `limit`.

    A value may be under it by the relative `tolerance`.
    """
    return _share(v, lambda values: values * (1 + tolerance) >= limit)


def _share(v: Values, holds: Callable[[Any], Any]) -> Reduced:
    return Reduced(
        v,
        pd.Series([np.mean(holds(v.all))]),
        again=lambda values: float(np.mean(holds(values))),
        groups=np.zeros(len(v.all), dtype=int),
        data={"held": holds(v.all)},
    )


def trend(
    v: Values,
    along: str,
    apart: Sequence[str] = ("experiment", "density"),
    by: str = "mean",
    order: Sequence[Any] = (),
) -> Reduced:
    """Return the values along a level, for each of `apart` on its own.

    along: "m", "n", "useful_flops", "density", "label" or "contender"; where several points have one size, their mean,
    or as `by` says. With `order` at these places alone, in this order; along "denser" a place is all points that are
    denser than it.
    """
    course = _lines(v, along, list(apart), by, 2, order)
    return Reduced(v, pd.Series(dtype=float) if apart else course[0][1], lines=True, course=course)


def growth(
    v: Values,
    along: str,
    apart: Sequence[str] = ("experiment", "density"),
    by: str = "mean",
    order: Sequence[Any] = (),
) -> Reduced:
    """Return the last value along a level over the first, of each line that `trend` finds; arguments as there."""
    lines = trend(v, along, apart, by, order)
    return replace(lines, values=pd.Series([line.iloc[-1] / line.iloc[0] for _, line in lines.course]))


def power_law(v: Values, along: str, scatter: float) -> Reduced:
    """Return the exponent of the values as a power of a size, fitted on log axes.

    In each experiment and at each density; none where a point is further than the factor `scatter` from its fit.
    """
    found = []
    for _, line in _lines(v, along, ["contender", "experiment", "density"], "mean", 3):
        x, y = np.log(line.index.to_numpy(float)), np.log(line.to_numpy())
        slope, offset = np.polyfit(x, y, 1)
        found.append((slope, np.exp(np.abs(y - slope * x - offset).max())))
    fits = pd.DataFrame(found, columns=["slope", "off"])  # off: the factor by which a point is off at most
    return Reduced(v, fits["slope"].where(fits["off"] <= scatter), lines=True, data={"fits": fits})


def knee(v: Values, along: str, flat: float) -> Reduced:
    """Where the values stop rising along a size.

    The smallest size at which they are within the share `flat` of their largest, for each contender, experiment and
    density of three sizes or more.
    """
    lines = _lines(v, along, ["contender", "experiment", "density"], "largest", 3)
    return Reduced(
        v,
        pd.Series([float(line.index[line >= (1 - flat) * line.max()].min()) for _, line in lines]),
        lines=True,
        course=lines,
    )


def _lines(
    v: Values, along: str, apart: list[str], by: str, least: int, order: Sequence[Any] = ()
) -> list[tuple[dict[str, Any], pd.Series]]:
    """Return what tells a line from the others, and its values, of each line that has so many sizes.

    NotMeasured if none has. Arguments as those of `trend`.
    """
    groups = v.all.groupby(level=apart, sort=False) if apart else [((), v.all)]
    means(v, order if along == "contender" else ())
    found = []
    for key, s in groups:
        places = {d: denser(s, d) for d in order} if along == "denser" else dict(iter(s.groupby(level=along)))
        line = pd.Series({place: some.agg(MEANS[by]) for place, some in places.items()})
        found.append((dict(zip(apart, key, strict=True)), line.reindex(list(order)).dropna() if order else line))
    found = [(at, line) for at, line in found if len(line) >= least]
    need(bool(found), f"No sweep has {['two', 'three'][least - 2]} sizes.")
    return found


def over_best(v: Values, of: Mapping[str, Sequence[str]]) -> Reduced:
    """Return the geometric mean of each of these contenders over that of the best of those listed for it.

    As far as they were measured; of all others where none is listed.
    """
    mean = means(v, of)
    beside = {name: means(v).drop(name).reindex(list(others) or None).dropna() for name, others in of.items()}
    need(all(map(len, beside.values())), f"What {', '.join(of)} stand beside was not measured.")
    best = {name: others.idxmax() for name, others in beside.items()}
    return Reduced(v, mean / pd.Series({n: s.max() for n, s in beside.items()}), data={"best": best, "means": means(v)})


def means(v: Values, names: Iterable[str] = ()) -> pd.Series:
    """Return the geometric mean of each of these contenders, or of all; NotMeasured where one is not there."""
    missing = [name for name in names if name not in v.by]
    need(not missing, f"{', '.join(missing)} was not measured.")
    return pd.Series({name: records.geomean(v.by[name]) for name in names or v.by})


REDUCERS = (
    *(each_point, geometric_mean, mean, median, largest, smallest, quantile),
    *(
        share_of_points_above,
        share_of_points_below,
        share_of_points_at_least,
        trend,
        growth,
        power_law,
        knee,
        over_best,
    ),
)


# ---------------------------------------------------------------- expectations


@dataclass(frozen=True)
class Judged:
    """What a rule says of a value."""

    verdict: str
    threshold: tuple[float | None, float | None] = (None, None)  #: between which what is judged is as claimed
    data: Mapping[str, Any] = field(default_factory=dict)  #: what else its words name


def grade(value: float, reproduced: float, partly: float) -> str:
    """Return the verdict on a value of which more is better; `partly` is the weaker threshold."""
    return REPRODUCED if value >= reproduced else PARTLY if value >= partly else NOT_REPRODUCED


def all_of(verdicts: Iterable[str]) -> str:
    """Return the verdict on several things at once: that of all of them, or partly.

    Some exceeded and the others reproduced is exceeded. What is open counts only where nothing is decided.
    """
    decided = set(verdicts) - set(OPEN) or set(verdicts)
    if len(decided) == 1:
        return decided.pop()
    alike = ((HOLDS, EXCEEDED), (FAILS, NOT_REPRODUCED), (OPEN, UNDECIDED))
    return next((told for kinds, told in alike if decided <= set(kinds)), PARTLY)


def at_least(r: Reduced, limit: float, partly: float) -> Judged:
    """Reproduced if the value is at least `limit`, partly if it is at least `partly`.

    Of several values (contenders, experiments) all must be, and partly if they differ.
    """
    return Judged(all_of([grade(value, limit, partly) for value in r.values]), (limit, None))


def at_most(r: Reduced, limit: float, partly: float) -> Judged:
    """Reproduced if the value is at most `limit`, partly if it is at most `partly`.

    Of several values (contenders, experiments) all must be, and partly if they differ.
    """
    return Judged(all_of([grade(-value, -limit, -partly) for value in r.values]), (None, limit))


def near(r: Reduced, between: Sequence[float], factor: float, partly: float, better: str = "") -> Judged:
    """Near the stated range, by factors.

    Reproduced if nine in ten of the values lie within the factor `factor` of [low, high], partly if nine in ten lie
    within the factor `partly`. Lines are judged one by one instead: reproduced if all are, partly if they differ.
    With `better`, "more" or "less", exceeded if only values beyond the range on that side keep it from being
    reproduced.
    """
    groups = [pd.Series([value]) for value in r.values] if r.lines else [r.values]
    verdicts, off = zip(*(_near(group, between, factor, partly, better) for group in groups), strict=True)
    return Judged(all_of(verdicts), (between[0] / factor, between[1] * factor), {"off": off})


def _near(
    values: pd.Series, between: Sequence[float], factor: float, partly: float, better: str = ""
) -> tuple[str, float]:
    """Return the verdict, and the farthest distance: the factor by which a value lies outside, 1 inside."""
    values = np.asarray(values, dtype=float)  # hundreds of resamples come here

    def off(values: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.maximum(1.0, np.maximum(between[0] / values, values / between[1])) * (1 - 1e-9)

    def judge(values: np.ndarray) -> str:
        shares = [(off(values) <= limit).mean() >= OFTEN for limit in (factor, partly)]
        return REPRODUCED if shares[0] else PARTLY if shares[1] else NOT_REPRODUCED

    return _sided(judge, values, between, better), float(off(values).max())


def _sided(judge: Callable[[np.ndarray], str], values: np.ndarray, between: Sequence[float], better: str) -> str:
    """Return what `judge` says of values; with `better` of those that lie beyond the range there as if at its end."""
    plain = judge(values)
    if not better or plain == REPRODUCED:
        return plain
    held = judge(np.minimum(values, between[1]) if better == "more" else np.maximum(values, between[0]))
    return EXCEEDED if held == REPRODUCED else held


def spans(r: Reduced, between: Sequence[float], factor: float, partly: float, better: str = "") -> Judged:
    """Reproduced if the values have the stated range, both ends of it.

    The smallest value must be that end within the factor `factor` and the largest the other, partly within `partly` or
    if the ends differ in this; and the verdict is no better than that of `near` on all values, reproduced if nine in
    ten lie in the range, widened by `factor`, partly by `partly`. With `better`, "more" or "less", exceeded if only
    values beyond the range on that side keep it from being reproduced.
    """
    inside, _ = _near(r.values, between, factor, partly, better)
    ends = zip((r.values.min(), r.values.max()), between, strict=True)
    verdicts, off = zip(*(_near(pd.Series([v]), (end, end), factor, partly, better) for v, end in ends), strict=True)
    verdict = max(inside, all_of(verdicts), key=VERDICTS.index)
    return Judged(verdict, (between[0] / factor, between[1] * factor), {"off": off})


def within(
    r: Reduced, between: Sequence[float], tolerance: float, partly: float | None = None, better: str = ""
) -> Judged:
    """In the stated range, widened by `tolerance` on each side.

    Reproduced if nine in ten of the values are, and every line. With `partly`, a wider tolerance, partly if nine in
    ten are within that; without, partly if half of the values are, or the geometric mean of the points. With `better`,
    "more" or "less", exceeded if only values beyond the range on that side keep it from being reproduced.
    """
    low, high = between

    def share(values: np.ndarray, by: float) -> float:
        return float(((low - by <= values) & (values <= high + by)).mean())

    def judge(values: np.ndarray) -> str:
        inside = share(values, tolerance)
        half = inside >= 0.5 if partly is None else share(values, partly) >= OFTEN
        if partly is None and not r.lines and inside < 0.5:
            half = low - tolerance <= records.geomean(values) <= high + tolerance
        return REPRODUCED if inside >= (1.0 if r.lines else OFTEN) else PARTLY if half else NOT_REPRODUCED

    values, threshold = np.asarray(r.values, dtype=float), (low - tolerance, high + tolerance)
    return Judged(_sided(judge, values, between, better), threshold, {"inside": share(values, tolerance)})


def rises(r: Reduced, change: float, each_step: bool = False) -> Judged:
    """Reproduced if the value rises from the smallest to the largest size by more than the relative `change`.

    The rank correlation must be positive. With `each_step` a line that follows counts half if it does not rise from
    every size to the next. Reproduced if every line follows, partly if half do.
    """
    return _moves(r, change, each_step, (1 + change, None), 1)


def falls(r: Reduced, change: float, each_step: bool = False) -> Judged:
    """Reproduced if the value falls from the smallest to the largest size by more than the share `change`.

    The rank correlation must be negative. With `each_step` a line that follows counts half if it does not fall from
    every size to the next. Reproduced if every line follows, partly if half do.
    """
    return _moves(r, change, each_step, (None, 1 - change), -1)


def _moves(
    r: Reduced, change: float, each_step: bool, threshold: tuple[float | None, float | None], sign: int
) -> Judged:
    follow = []
    for values in (line.to_numpy(float) for _, line in r.course):
        order = pd.Series(values).rank().corr(pd.Series(range(len(values)), dtype=float))
        follows = sign * (values[-1] - values[0]) > change * values[0] and sign * order > 0
        follow.append(follows * (0.5 if each_step and (sign * np.diff(values) <= 0).any() else 1.0))
    return Judged(grade(float(np.mean(follow)), 1.0, 0.5), threshold, data={"follow": np.array(follow)})


def larger_in(r: Reduced, larger: Sequence[str], than_in: Sequence[str], by: float) -> Judged:
    """Reproduced if the value of the experiments `larger` exceeds that of each of `than_in`.

    Taken together, by more than the relative `by`; partly if it exceeds some, or if none differs by more.
    """

    def value(names: Sequence[str]) -> float:
        assert r.again is not None, "of a reducer that makes one number"
        return r.again(r.of.all[r.of.all.index.get_level_values("experiment").isin(names)])

    best, others = value(contenders(larger)), {name: value([name]) for name in contenders(than_in)}
    above = [best > (1 + by) * other for other in others.values()]
    even = all(abs(best - other) <= by * other for other in others.values())
    return Judged(
        REPRODUCED if all(above) else PARTLY if any(above) or even else NOT_REPRODUCED,
        (max(others.values()) * (1 + by), None),
        {"best": best, "others": others},
    )


def memory_limits_from(r: Reduced, busy: float, at_points: float) -> Judged:
    """Memory limits the kernel rather than arithmetic.

    Its use is at least `busy` and more than that of the FMA units. Reproduced if both hold at a share `at_points` of
    the points, partly if only "more" does.
    """
    used, fma = r.of.by["memory"], r.of.by["FMA units"]
    more, both = (used > fma).mean(), ((used > fma) & (used >= busy)).mean()
    return Judged(
        REPRODUCED if both >= at_points else PARTLY if more >= at_points else NOT_REPRODUCED,
        data={"both": both},
    )


EXPECTATIONS = (at_least, at_most, near, spans, within, rises, falls, larger_in, memory_limits_from)


# ---------------------------------------------------------------- rules

#: Key of a claim -> the functions that all systems share, what a system's own are listed as, and how many of their
#: parameters are no words of the claim: evidence and experiments, then what came of the one before.
PARTS: dict[str, tuple[tuple[Callable, ...], str, int]] = {
    "quantity": (QUANTITIES, "QUANTITIES", 2),
    "reduce": (REDUCERS, "REDUCERS", 1),
    "expect": (EXPECTATIONS, "EXPECTATIONS", 1),
}


def said(verdict: str, aside: str = "") -> str:
    """Return a verdict in words: as it is of a claim, as an answer of what stands aside."""
    return ANSWERS.get(verdict, verdict) if aside else verdict


@dataclass(frozen=True)
class Rule:
    """What a claim asks for; the three parts are functions with the parameters that the claim gives them."""

    quantity: partial
    reduce: partial
    expect: partial
    written: Mapping[str, object]  #: as the claim has it, key by key
    also_over: str = ""  #: a second baseline, whose verdict is given beside the first
    at: Mapping[str, object] = field(default_factory=dict)  #: column: value, or list of values
    repeats: bool = False  #: the experiments are runs of one measurement

    @property
    def named(self) -> list[str]:
        """The contenders that the quantity is of, and those that it is over."""
        return [name for key in ("of", "over") for name in contenders(self.quantity.keywords.get(key) or ())]


@dataclass(frozen=True)
class Outcome:
    """What a rule makes of records: the verdict and its numbers, and the same in words."""

    verdict: str
    measured: str  #: value with its unit
    why: str
    values: Values | None = None  #: what it was judged by
    #: What it rests on: experiments, "counters", "ceilings"; nothing where it follows from programs alone.
    rests: tuple[str, ...] = ()
    value: float = math.nan  #: of what is judged the mean, geometric where all are positive; of a course its last over
    low: float = math.nan  #: its first
    high: float = math.nan
    unit: str = ""
    threshold: tuple[float | None, float | None] = (None, None)
    points: int = 0
    #: Of a claim over a set of matrices: class of non-zeros -> value, matrices, and what was measured in words.
    classes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lacks: str = ""  #: what of that set was not measured, where that leaves it undecided


def outcome(rule: Rule, e: Evidence, experiments: Iterable[str]) -> Outcome:
    """Return what the rule makes of the records. Raises NotMeasured where they do not decide."""
    return judged(rule, rule.quantity(e, experiments))


def judged(rule: Rule, values: Values) -> Outcome:
    """Return what the rule makes of values. Raises NotMeasured where they do not decide."""
    reduced = rule.reduce(values)
    found, judged_by = rule.expect(reduced), numbers(reduced)
    below = Outcome(
        found.verdict,
        *told(rule, reduced, found),
        values=values,
        value=middle(judged_by),
        low=judged_by.min(),
        high=judged_by.max(),
        unit="" if reduced.lines else values.unit.strip() if values.scale == 1 else "",
        threshold=found.threshold,
        points=len(values.all),
    )
    if values.upper is None:
        return below
    above, how = judged(rule, values.upper), _said_of(rule.quantity, "how", {"v": values, **values.data})
    between = f"between {below.measured} and {above.measured}"
    need(below.verdict == above.verdict, f"{how} These leave it {between}.")
    return replace(below, measured=between)


def numbers(reduced: Reduced) -> np.ndarray:
    """Return what is judged, of courses their last value over their first."""
    ends = [line.iloc[-1] / line.iloc[0] for _, line in reduced.course if line.iloc[0]]
    return np.asarray(reduced.values if len(reduced.values) else ends, dtype=float)


def middle(values: np.ndarray) -> float:
    """Return the mean of values, geometric where all are positive."""
    return records.geomean(values) if len(values) and (values > 0).all() else float(np.mean(values))


def table(part: str, system: str) -> dict[str, Callable[..., Any]]:
    """Return every function that a claim of the system may name as this part, by name."""
    shared, listed, _ = PARTS[part]
    here = (registry.FOLDER / system / "measures.py").is_file()
    own = getattr(registry.module(system, "measures"), listed, ()) if here else ()
    return {f.__name__: f for f in (*shared, *own)}


def part(key: str, words: Mapping[Any, Any], system: str, name: str) -> partial:
    """Return a part of a rule, with all parameters, from what a claim says under `key`.

    That is {name: its first parameter or None, parameter: value …}. Raises ValueError, one sentence that begins with
    `name`.
    """
    (first, value), *rest = words.items()
    said, known, skip = str(first).replace(" ", "_"), table(key, system), PARTS[key][2]
    require(said in known, f"{name} names {said!r} as its {key!r}; known: {', '.join(known)}.")
    given = [None] * skip + [value] * (value is not None)
    try:
        bound = inspect.signature(known[said]).bind(*given, **dict(rest))
    except TypeError as error:
        raise ValueError(f"{name} names {said!r} as its {key!r}, with {error}.") from None
    bound.apply_defaults()
    return partial(known[said], **dict(list(bound.arguments.items())[skip:]))


# ---------------------------------------------------------------- in words

#: What a quantity says of itself: its name, what stands behind its numbers, where they come from, how a course of it
#: is told, and what a point is called that lies on one side of a limit.
OF_QUANTITIES = ("name", "tail", "how", "called", "above", "below", "at_least")


def told(rule: Rule, r: Reduced, judged: Judged) -> tuple[str, str]:
    """Return what was measured, and why the verdict is as it is, in words."""
    seen: dict[str, Any] = {what: _said_of(rule.quantity, what, {"v": r.of, **r.of.data}) for what in OF_QUANTITIES}
    named = not isinstance(rule.quantity.keywords.get("of", ""), str) if r.of.named is None else r.of.named
    seen |= {"tail": f" {seen['tail']}".rstrip(), "v": r.of, "each": r.values, "r": r, "named": named}
    seen |= {**r.data, **judged.data}
    why = (_said_of(rule.expect, "asked", seen), _said_of(rule.reduce, "why", seen), seen["how"])
    measured = _said_of(rule.expect, "measured", seen) or _said_of(rule.reduce, "measured", seen)
    return measured, " ".join(filter(None, why))


def _said_of(part: partial, what: str, seen: Mapping[str, Any]) -> str:
    """Return what the template beside a part's module says of it; nothing where it says nothing."""
    return say(f"{part.func.__name__}_{what}", {**seen, **part.keywords}, Path(part.func.__code__.co_filename).parent)


def say(macro: str, seen: Mapping[str, Any], folder: Path = Path(__file__).parent) -> str:
    """Return what a macro of a folder's words.j2 makes of `seen`, on one line; nothing where there is none."""
    found = getattr(_macros(folder), macro, None)
    return " ".join(found(SimpleNamespace(**seen)).split()) if found else ""


@cache
def _macros(folder: Path) -> Any:
    """Return the macros of a folder's template; nothing where it has none."""
    loader, path = jinja2.FileSystemLoader(Path(__file__).parent), folder / "words.j2"
    made = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True)
    shared = (evidence.span, evidence.density, evidence.stated, contenders, registry.library)
    made.filters |= {f.__name__: f for f in (*shared, points, apart, each)} | {"f": format, "geomean": records.geomean}
    made.globals["counted"] = evidence.counted
    return made.from_string(path.read_text(encoding="utf-8")).module if path.is_file() else None


def points(count: int) -> str:
    """Return a number of points in words."""
    return f"{count} point" + ("s" if count != 1 else "")


def apart(s: pd.Series, level: str = "experiment") -> dict[Any, pd.Series]:
    """Split values by a level of their index."""
    return dict(iter(s.groupby(level=level, sort=False)))


def each(of: Mapping[str, Any], show: Any) -> str:
    """List names, each with its value as `show` has it: a function, or a format."""
    return ", ".join(f"{name} {(show if callable(show) else show.format)(value)}" for name, value in of.items())
