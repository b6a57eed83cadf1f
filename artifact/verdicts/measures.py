"""A rule: a quantity, a reducer and an expectation, and what the three say of the records.

A quantity (`quantities`) is a value at every point. A reducer is a function of these values and of what the claim says
of it: `reduce = "geometric mean"`, or with a parameter `reduce = { quantile = 0.1 }`. An expectation is a function of
what was reduced and of what the claim says, as in `expect = { at_least = 1.10, partly = 1.0 }`. It returns the verdict,
what was asked as a sentence, and what to show instead of the reducer's own text, if anything. Where the value lies
close to a threshold that would change the verdict, it says so (`close`): within 5% of the threshold, or within half of
a tolerance that is narrower.

A claim may also name what its room adds in its own `artifact/rooms/<room>/measures.py`, found by looking.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import records
from artifact.verdicts.evidence import Evidence, NotMeasured
from artifact.verdicts.quantities import QUANTITIES, Values, contenders, density, points, stated

REPRODUCED = "reproduced"
PARTLY = "partly"
NOT_REPRODUCED = "not reproduced"
NOT_CARRIED = "does not carry over to this GPU"  #: which of those not reproduced these are: `judge.carried`
NOT_MEASURED = "not measured on this GPU"
VERDICTS = (REPRODUCED, PARTLY, NOT_REPRODUCED, NOT_CARRIED, NOT_MEASURED)
OFTEN = 0.9  #: "nine in ten" of the points
EDGE = 0.05  #: of a threshold, relative: a verdict that lies closer says so


#: What is said of an extension, an open question of a source or a kernel of ours: nothing was claimed, so that nothing
#: is reproduced. The sign and the colour are those of the verdict.
ANSWERS = {
    REPRODUCED: "holds here",
    PARTLY: "holds here in part",
    NOT_REPRODUCED: "does not hold here",
    NOT_CARRIED: "does not hold here",
}
#: Quantities that follow from programs and formats, whatever GPU runs them: those of `quantities`, and of rooms.
OF_PROGRAMS = {
    *("column", "true_density", "prepared_bytes", "added_memory"),
    *("stored_over_blocks", "counter_less", "machine_code"),
}
#: Each of what a mean may be taken over apart -> the levels of the index that tell them apart.
GROUPS = {
    "each experiment": ["experiment"],
    "each density": ["experiment", "density"],
}


@dataclass(frozen=True)
class Reduced:
    """What an expectation judges: `values`, one for each contender, group, point or line."""

    of: Values
    values: pd.Series
    measured: str
    why: str
    #: One value for each line (a sweep along a size): each must do what is expected, or some do in part.
    lines: bool = False
    #: The lines themselves, name -> values in the order of the sizes, for expectations on their course.
    course: Sequence[tuple[str, pd.Series]] = ()
    #: How values of any choice of points become one, for expectations that compare choices.
    again: Callable[[pd.Series], float] | None = None


# ---------------------------------------------------------------- reducers


def each_point(v: Values) -> Reduced:
    """Every point counts by itself."""
    named = ", ".join(f"{name} {_digits(s * v.scale)}{v.unit}" for name, s in v.by.items())
    several = v.range([v.all.min()]) != v.range([v.all.max()])
    mean = f", geometric mean {v.one(records.geomean(v.all))}" if several else ""
    shown = f"{named}{v.tail}" if v.named else f"{v.range(v.all)}{v.tail}{mean}"
    return Reduced(v, v.all, v.text or shown, f"{v.points}.")


def _digits(values: pd.Series) -> str:
    """Return the range of values: three significant digits, or all before the point."""
    return "–".join(dict.fromkeys(f"{v:.3g}" if v < 1000 else f"{v:.0f}" for v in (values.min(), values.max())))


def geometric_mean(v: Values, of: str = "all") -> Reduced:
    """The geometric mean over all points, or over those of "each experiment" or of "each density" in
    each experiment."""
    several, means = "s" * (of == "each density"), {}
    for name, s in v.by.items():
        groups = [("", s)] if of == "all" else s.groupby(level=GROUPS[of], sort=False)
        means[name] = {key: _mean(v, group) for key, group in groups}
    shown = {who: v.range(means[who].values()) if several else v.one(_mean(v, s)) for who, s in v.by.items()}
    told = ", ".join(f"{f'{name} ' * v.named}geometric mean{several} {text}" for name, text in shown.items())
    apart = ", ".join(f"{name} {v.one(_mean(v, s))}" for name, s in v.all.groupby(level="experiment", sort=False))
    why = f"{v.points}: {apart}; range {v.range(v.all)}."
    each = pd.Series({(name, key): mean for name, of_one in means.items() for key, mean in of_one.items()})
    return Reduced(v, each, told + v.tail, why, again=lambda s: _mean(v, s))


def _mean(v: Values, values: pd.Series) -> float:
    if (values <= 0).any():
        raise NotMeasured(f"{v.name} is not positive at every point, so it has no geometric mean.")
    return records.geomean(values)


def mean(v: Values) -> Reduced:
    """The arithmetic mean over all points."""
    return _each(v, lambda s: float(s.mean()), "")


def median(v: Values) -> Reduced:
    """The median over all points."""
    return _each(v, lambda s: float(s.median()), "median ", spread=True)


def largest(v: Values) -> Reduced:
    """The largest value of any point."""
    return _each(v, lambda s: float(s.max()), "at most ", bound=True)


def smallest(v: Values) -> Reduced:
    """The smallest value of any point."""
    return _each(v, lambda s: float(s.min()), "at least ", bound=True)


def quantile(v: Values, share: float) -> Reduced:
    """The value below which this share of the points lies: 0.1 is what nine in ten points reach."""
    return _each(v, lambda s: float(s.quantile(share)), f"{share:g} quantile ")


def _each(v: Values, take: Callable, head: str, bound: bool = False, spread: bool = False) -> Reduced:
    """Reduce each contender's values by `take`. head: what that is called; bound: values lie on one side of it, which
    their median tells; spread: their range does."""
    each, texts = {name: take(s) for name, s in v.by.items()}, []
    for name, s in v.by.items():
        several = s.nunique() > 1  # else it is the value, no bound
        said = f"{name} " * v.named + head * (several if bound else not v.named)
        median, values = f", median {v.one(s.median())}", f", {v.range(s)}"
        beside = median * (bound and several) + values * (spread and several and not v.named)
        texts.append(f"{said}{v.one(each[name])}{v.tail}{beside}")
    why = f"{v.name}: {v.points}, {v.range(v.all)}."
    return Reduced(v, pd.Series(each), ", ".join(texts), why, again=take)


def share_of_points_above(v: Values, limit: float) -> Reduced:
    """The share of the points whose value is over `limit`."""
    return _share(v, v.all > limit, v.words.get("above", f"over {limit:g}"))


def share_of_points_below(v: Values, limit: float) -> Reduced:
    """The share of the points whose value is under `limit`."""
    return _share(v, v.all < limit, v.words.get("below", f"under {limit:g}"))


def share_of_points_at_least(v: Values, limit: float, tolerance: float = 0.0) -> Reduced:
    """The share of the points whose value is not under `limit` by more than the relative
    `tolerance`."""
    return _share(v, v.all * (1 + tolerance) >= limit, v.words.get("at_least", f"at least {limit:g}"))


def _share(v: Values, held: pd.Series, what: str) -> Reduced:
    apart = ", ".join(f"{name} {v.range(s)}" for name, s in v.all.groupby(level="experiment", sort=False))
    told = f"{what} at {held.sum()} of {points(len(held))}"
    return Reduced(v, pd.Series([held.mean()]), told, f"{v.name}: {apart}.")


def trend(v: Values, along: str) -> Reduced:
    """The values along a size ("m", "n" or "useful_flops"), in each experiment and at each density on
    its own; where several points have one size, their mean."""
    course = [(name, line) for (_, name), line in _lines({"": v.all}, along, 2).items()]
    return Reduced(v, pd.Series(dtype=float), "", f"{v.name}.", lines=True, course=course)


def power_law(v: Values, along: str, scatter: float) -> Reduced:
    """The exponent of the values as a power of a size, fitted on log axes in each experiment and at
    each density; none where a point is further than the factor `scatter` from its fit."""
    lines = _lines(v.by, along, 3)
    fits = pd.DataFrame({key: _fit(line) for key, line in lines.items()}, index=["slope", "off"]).T
    shown = "–".join(dict.fromkeys(f"{slope:.2f}" for slope in (fits["slope"].min(), fits["slope"].max())))
    return Reduced(
        v,
        fits["slope"].where(fits["off"] <= scatter),
        f"exponent {shown}, points within {fits['off'].max():.2f}× of the fit",
        f"{len(fits)} fits of {v.name.lower()} against {along}, a point further than {scatter:g}× from its "
        "fit being no power law.",
        lines=True,
    )


def _fit(line: pd.Series) -> tuple[float, float]:
    """Return the slope of a line on log axes, and the factor by which a point is off at most."""
    x, y = np.log(line.index.to_numpy(float)), np.log(line.to_numpy())
    slope, offset = np.polyfit(x, y, 1)
    return slope, float(np.exp(np.abs(y - slope * x - offset).max()))


def _lines(by: Mapping[str, pd.Series], along: str, least: int) -> dict[tuple[str, str], pd.Series]:
    """Return the values by size of each contender, experiment and density that has so many sizes; NotMeasured if none
    has."""
    lines = {
        (who, f"{experiment}, {density(d)}"): line.groupby(level=along).mean()
        for who, s in by.items()
        for (experiment, d), line in s.groupby(level=["experiment", "density"], sort=False)
    }
    if not (long := {key: line for key, line in lines.items() if len(line) >= least}):
        raise NotMeasured(f"No sweep has {['two', 'three'][least - 2]} sizes.")
    return long


REDUCERS = (
    *(each_point, geometric_mean, mean, median, largest, smallest, quantile),
    *(share_of_points_above, share_of_points_below, share_of_points_at_least, trend, power_law),
)


# ---------------------------------------------------------------- expectations


@dataclass(frozen=True)
class Judged:
    verdict: str
    asked: str
    measured: str = ""
    close: str = ""  #: a sentence where the verdict lies close to a threshold
    threshold: tuple[float | None, float | None] = (None, None)  #: between which what is judged is as claimed


def edge(values: Iterable[float], limits: Mapping[float, float], show: Callable[[float], str] = "{:.4g}".format) -> str:
    """Return the sentence on the value that lies closest to one of the limits; "" where none is close.

    limits: limit → what counts as close, relative. A value that is the limit itself, as "all points" are, lies on no
    edge.
    """
    apart = [(abs(v / limit - 1), v, limit) for v in values for limit in limits if limit]
    found = [pair for pair in apart if 1e-8 < pair[0] <= limits[pair[2]]]
    by, value, limit = min(found, default=(0, 0, 0))
    side = "above" if value > limit else "below"
    return f"A close call: {show(value)} is {by:.1%} {side} the threshold of {show(limit)}." if found else ""


def grade(value: float, reproduced: float, partly: float) -> str:
    """Return the verdict on a value of which more is better; `partly` is the weaker threshold."""
    return REPRODUCED if value >= reproduced else PARTLY if value >= partly else NOT_REPRODUCED


def all_of(verdicts: Sequence[str]) -> str:
    """Return the verdict on a claim about several things at once."""
    return verdicts[0] if len(set(verdicts)) == 1 else PARTLY


def at_least(r: Reduced, limit: float, partly: float) -> Judged:
    """Reproduced if the value is at least `limit`, partly if it is at least `partly`; of several
    values (contenders, experiments) all must be, and partly if they differ."""
    return _bound(r, limit, partly, "least", 1)


def at_most(r: Reduced, limit: float, partly: float) -> Judged:
    """Reproduced if the value is at most `limit`, partly if it is at most `partly`; of several
    values (contenders, experiments) all must be, and partly if they differ."""
    return _bound(r, limit, partly, "most", -1)


def _bound(r: Reduced, limit: float, partly: float, word: str, sign: int) -> Judged:
    def plain(value: float) -> str:
        return f"{value * r.of.scale:.4g}{r.of.unit}" if r.again else f"{value:.0%}"

    verdicts = [grade(sign * value, sign * limit, sign * partly) for value in r.values]
    close = edge(r.values, dict.fromkeys((limit, partly), EDGE), plain)
    threshold = (limit, None) if sign > 0 else (None, limit)
    return Judged(all_of(verdicts), f"Asked: at {word} {plain(limit)}.", close=close, threshold=threshold)


def near(r: Reduced, between: Sequence[float], factor: float, partly: float) -> Judged:
    """Near the stated range, by factors: reproduced if nine in ten of the values lie within the
    factor `factor` of [low, high], partly if nine in ten lie within the factor `partly`. Lines are
    judged one by one instead: reproduced if all are, partly if they differ."""
    scale, unit = (1, "") if r.lines else (r.of.scale, r.of.unit)
    groups = [pd.Series([value]) for value in r.values] if r.lines else [r.values]
    low, high = between
    verdicts, off = zip(*(_near(group, low, high, factor, partly) for group in groups), strict=True)
    ends = stated(*(end * scale for end in between))
    asked = f"Asked: {ends}{unit}, within a factor of {factor:g}; off by a factor of {max(off):.3g}."
    close, threshold = _factors_close(off, factor, partly), (low / factor, high * factor)
    return Judged(all_of(verdicts), asked, close=close, threshold=threshold)


def _factors_close(off: Sequence[float], *limits: float) -> str:
    """Return `edge` of factors by which values lie outside: closer than half of the tolerance that they are held to."""
    return edge(off, {limit: min(EDGE, (limit - 1) / 2) for limit in limits}, "a factor of {:.4g}".format)


def _near(values: pd.Series, low: float, high: float, factor: float, partly: float) -> tuple[str, float]:
    """Return the verdict, and the farthest distance: the factor by which a value lies outside, 1 inside."""
    with np.errstate(divide="ignore"):
        off = np.maximum(1.0, np.maximum(low / values, values / high)) * (1 - 1e-9)
    shares = [(off <= limit).mean() >= OFTEN for limit in (factor, partly)]
    return REPRODUCED if shares[0] else PARTLY if shares[1] else NOT_REPRODUCED, float(off.max())


def spans(r: Reduced, between: Sequence[float], factor: float, partly: float) -> Judged:
    """The values have the stated range, both ends of it: the smallest value is that end within the
    factor `factor` and the largest the other, partly within `partly` or if the ends differ in this;
    and the verdict is no better than that of `near` on all values, reproduced if nine in ten lie in
    the range, widened by `factor`, partly by `partly`."""
    low, high = between
    inside, _ = _near(r.values, low, high, factor, partly)
    ends = [(r.values.min(), low), (r.values.max(), high)]
    verdicts, off = zip(*(_near(pd.Series([v]), end, end, factor, partly) for v, end in ends), strict=True)
    asked = (
        f"Asked: from {r.of.one(low)} to {r.of.one(high)}, each end within a factor of {factor:g}; "
        f"the ends are off by factors of {off[0]:.3g} and {off[1]:.3g}."
    )
    verdict = max(inside, all_of(verdicts), key=VERDICTS.index)
    close, threshold = _factors_close(off, factor, partly), (low / factor, high * factor)
    return Judged(verdict, asked, close=close, threshold=threshold)


def within(r: Reduced, between: Sequence[float], tolerance: float, partly: float | None = None) -> Judged:
    """In the stated range, widened by `tolerance` on each side: reproduced if nine in ten of the
    values are, and every line. With `partly`, a wider tolerance, partly if nine in ten are within
    that; without, partly if half of the values are, or the geometric mean of the points."""
    low, high = between
    often = 1.0 if r.lines else OFTEN
    inside, wider = (float(r.values.between(low - by, high + by).mean()) for by in (tolerance, partly or tolerance))
    if partly is not None:
        half = wider >= OFTEN
    else:
        half = inside >= 0.5 or (not r.lines and low - tolerance <= records.geomean(r.values) <= high + tolerance)
    if len(r.values) > 1:
        close = edge([inside], dict.fromkeys((often, 0.5) if partly is None else (OFTEN,), EDGE), "{:.0%}".format)
    else:
        narrow = {by: min(EDGE, by / 2 / max(low, high, by)) for by in (tolerance, partly) if by}
        close = edge(r.values, {end: narrow[by] for by in narrow for end in (low - by, high + by)}, r.of.one)
    what = f"{len(r.values)} fits" if r.lines else points(len(r.values))
    asked = f"{inside:.0%} of {what} lie in {low:g}–{high:g} ± {tolerance:g}."
    verdict = REPRODUCED if inside >= often else PARTLY if half else NOT_REPRODUCED
    return Judged(verdict, asked, close=close, threshold=(low - tolerance, high + tolerance))


def rises(r: Reduced, change: float, each_step: bool = False) -> Judged:
    """From the smallest to the largest size the value rises by more than the relative `change`, and
    the rank correlation is positive. With `each_step` a line that follows counts half if it does not
    rise from every size to the next. Reproduced if every line follows, partly if half do."""
    return _moves(r, change, each_step, "rises", 1)


def falls(r: Reduced, change: float, each_step: bool = False) -> Judged:
    """From the smallest to the largest size the value falls by more than the share `change`, and the
    rank correlation is negative. With `each_step` a line that follows counts half if it does not fall
    from every size to the next. Reproduced if every line follows, partly if half do."""
    return _moves(r, change, each_step, "falls", -1)


def _moves(r: Reduced, change: float, each_step: bool, word: str, sign: int) -> Judged:
    follow, texts = [], []
    for name, line in r.course:
        values = line.to_numpy(float)
        first, last = values[0], values[-1]
        order = pd.Series(values).rank().corr(pd.Series(range(len(values)), dtype=float))
        follows = sign * (last - first) > change * first and sign * order > 0
        follow.append(follows * (0.5 if each_step and (sign * np.diff(values) <= 0).any() else 1.0))
        steps = ", ".join(f"{v:.3g}" for v in (values if each_step else (first, last)))
        texts.append(f"{name}: {f'{last / first:.2f}×' if first else 'from 0'} ({steps})")
    said = f", at every step in {sum(f == 1 for f in follow)}" * each_step
    return Judged(
        grade(float(np.mean(follow)), 1.0, 0.5),
        f"Largest size over smallest: {'; '.join(texts)}. Asked: {word} by over {change:.0%}.",
        f"{r.of.called or r.of.name}: {word} in {sum(f > 0 for f in follow)} of {len(follow)} sweeps{said}",
        threshold=(1 + change, None) if sign > 0 else (None, 1 - change),
    )


def larger_in(r: Reduced, larger: Sequence[str], than_in: Sequence[str], by: float) -> Judged:
    """Reproduced if the value of the experiments `larger`, taken together, exceeds that of each of
    `than_in` by more than the relative `by`; partly if it exceeds some, or if none differs by more."""
    larger, than_in = contenders(larger), contenders(than_in)

    def value(names: Sequence[str]) -> float:
        assert r.again is not None, "of a reducer that makes one number"
        return r.again(r.of.all[r.of.all.index.get_level_values("experiment").isin(names)])

    best, others = value(larger), {name: value([name]) for name in than_in}
    above = [best > (1 + by) * other for other in others.values()]
    even = all(abs(best - other) <= by * other for other in others.values())
    against = ", ".join(f"{name} {r.of.one(other)}" for name, other in others.items())
    limits = [other * (1 + sign * by) for other in others.values() for sign in (1, -1)]
    return Judged(
        REPRODUCED if all(above) else PARTLY if any(above) or even else NOT_REPRODUCED,
        f"A difference within {by:.0%} counts as none.",
        f"{' and '.join(larger)} {r.of.one(best)}, against {against}{r.of.tail}",
        edge([best], dict.fromkeys(limits, min(EDGE, by / 2)), r.of.one),
        (max(others.values()) * (1 + by), None),
    )


def memory_limits_from(r: Reduced, busy: float, at_points: float) -> Judged:
    """Memory limits the kernel rather than arithmetic: its use is at least `busy` and more than that
    of the FMA units. Reproduced if both hold at a share `at_points` of the points, partly if only
    "more" does."""
    used, fma = r.of.by["memory"], r.of.by["FMA units"]
    more, both = (used > fma).mean(), ((used > fma) & (used >= busy)).mean()
    return Judged(
        REPRODUCED if both >= at_points else PARTLY if more >= at_points else NOT_REPRODUCED,
        f"Memory over {busy:.0%} and over arithmetic at {both:.0%} of {points(len(used))}.",
        close=edge([both], {at_points: EDGE}, "{:.0%} of points".format),
    )


EXPECTATIONS = (at_least, at_most, near, spans, within, rises, falls, larger_in, memory_limits_from)


# ---------------------------------------------------------------- rules

#: Key of a claim -> the functions that all rooms share, what a room's own are listed as, and how many of their
#: parameters are no words of the claim: evidence and experiments, then what came of the one before.
PARTS: dict[str, tuple[tuple[Callable, ...], str, int]] = {
    "quantity": (QUANTITIES, "QUANTITIES", 2),
    "reduce": (REDUCERS, "REDUCERS", 1),
    "expect": (EXPECTATIONS, "EXPECTATIONS", 1),
}


def said(verdict: str, extension: bool = False) -> str:
    """Return a verdict in words: as it is of a claim, as an answer of an extension."""
    return ANSWERS.get(verdict, verdict) if extension else verdict


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


@dataclass(frozen=True)
class Outcome:
    """What a rule makes of records: the verdict and its numbers, and the same in words."""

    verdict: str
    measured: str  #: value with its unit
    why: str
    close: str = ""  #: a sentence where the verdict lies close to a threshold
    values: Values | None = None  #: what it was judged by
    #: What it rests on: experiments, "counters", "ceilings"; nothing where it follows from programs alone.
    rests: tuple[str, ...] = ()
    value: float = math.nan  #: of what is judged the mean, geometric where all are positive; of a course its last over
    low: float = math.nan  #: its first
    high: float = math.nan
    unit: str = ""
    threshold: tuple[float | None, float | None] = (None, None)
    points: int = 0


def outcome(rule: Rule, e: Evidence, experiments: Iterable[str]) -> Outcome:
    """Return what the rule makes of the records. Raises NotMeasured where they do not decide."""
    return judged(rule, rule.quantity(e, experiments))


def judged(rule: Rule, values: Values) -> Outcome:
    """Return what the rule makes of values. Raises NotMeasured where they do not decide."""
    reduced = rule.reduce(values)
    found = rule.expect(reduced)
    why = " ".join(filter(None, (found.asked, reduced.why, values.how)))
    ends = pd.Series([line.iloc[-1] / line.iloc[0] for _, line in reduced.course if line.iloc[0]], dtype=float)
    judged_by = pd.Series(reduced.values if len(reduced.values) else ends, dtype=float)
    below = Outcome(
        found.verdict,
        found.measured or reduced.measured,
        why,
        found.close,
        values,
        value=records.geomean(judged_by) if (judged_by > 0).all() and len(judged_by) else judged_by.mean(),
        low=judged_by.min(),
        high=judged_by.max(),
        unit="" if reduced.lines else values.unit.strip() if values.scale == 1 else "",
        threshold=found.threshold,
        points=len(values.all),
    )
    if values.upper is None:
        return below
    above = judged(rule, values.upper)
    if below.verdict != above.verdict:
        raise NotMeasured(f"{values.how} These leave it between {below.measured} and {above.measured}.")
    return replace(below, measured=f"between {below.measured} and {above.measured}")


def table(part: str, room: str) -> dict[str, Callable[..., Any]]:
    """Return every function that a claim of the room may name as this part, by name."""
    shared, listed, _ = PARTS[part]
    here = (registry.FOLDER / room / "measures.py").is_file()
    return {f.__name__: f for f in (*shared, *(getattr(registry.module(room, "measures"), listed, ()) if here else ()))}


def part(key: str, words: Mapping[Any, Any], room: str, name: str) -> partial:
    """Return a part of a rule from what a claim says under `key`, {name: its first parameter or None, parameter:
    value …}. Raises ValueError, one sentence that begins with `name`."""
    (first, value), *rest = words.items()
    said, known = str(first).replace(" ", "_"), table(key, room)
    if said not in known:
        raise ValueError(f"{name} names {said!r} as its {key!r}; known: {', '.join(known)}.")
    skip = PARTS[key][2]
    given = [None] * skip + [value] * (value is not None)
    try:
        bound = inspect.signature(known[said]).bind(*given, **dict(rest))
    except TypeError as error:
        raise ValueError(f"{name} names {said!r} as its {key!r}, with {error}.") from None
    return partial(known[said], **dict(list(bound.arguments.items())[skip:]))
