"""How a rule gets from the values at all points to what is judged.

A reducer is a function of the values and of what the claim says of it: `reduce = "geometric mean"`, or with a
parameter `reduce = { quantile = 0.1 }`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.verdicts.evidence import NotMeasured
from artifact.verdicts.quantities import Values, density, digits, points

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


def each_point(v: Values) -> Reduced:
    """Every point counts by itself."""
    named = ", ".join(f"{n} {digits(s * v.scale)}{v.unit}" for n, s in v.by.items())
    low, high = v.range([v.all.min()]), v.range([v.all.max()])
    mean = f", geometric mean {v.one(records.geomean(v.all))}" if low != high else ""
    shown = f"{named}{v.tail}" if v.named else f"{v.range(v.all)}{v.tail}{mean}"
    return Reduced(v, v.all, v.text or shown, f"{v.points}.")


# ---------------------------------------------------------------- one number for many


def geometric_mean(v: Values, of: str = "all") -> Reduced:
    """The geometric mean over all points, or over those of "each experiment" or of "each density" in
    each experiment."""
    each: dict[tuple, float] = {}
    texts, several = [], "s" * (of == "each density")
    for name, s in v.by.items():
        groups = [("", s)] if of == "all" else s.groupby(level=GROUPS[of], sort=False)
        means = {key: _mean(v, group) for key, group in groups}
        each |= {(name, key): mean for key, mean in means.items()}
        shown = v.range(means.values()) if several else v.one(_mean(v, s))
        texts.append(f"{f'{name} ' * v.named}geometric mean{several} {shown}")
    apart = ", ".join(f"{name} {v.one(_mean(v, s))}" for name, s in v.all.groupby(level="experiment", sort=False))
    why = f"{v.points}: {apart}; range {v.range(v.all)}."
    return Reduced(v, pd.Series(each), ", ".join(texts) + v.tail, why, again=lambda s: _mean(v, s))


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


def _each(v: Values, take: Callable[[pd.Series], float], head: str, bound: bool = False, spread: bool = False):
    """Reduce each contender's values by `take`. head: what that is called; bound: values lie on one side of it, which
    their median tells; spread: their range does."""
    each, texts = {name: take(s) for name, s in v.by.items()}, []
    for name, s in v.by.items():
        several = s.nunique() > 1  # else it is the value, no bound
        said = head * (several if bound else not v.named)
        beside = f", median {v.one(s.median())}" * (bound and several)
        beside += f", {v.range(s)}" * (spread and several and not v.named)
        texts.append(f"{f'{name} ' * v.named}{said}{v.one(each[name])}{v.tail}{beside}")
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


# ---------------------------------------------------------------- along a size


def trend(v: Values, along: str) -> Reduced:
    """The values along a size ("m", "n" or "useful_flops"), in each experiment and at each density on
    its own; where several points have one size, their mean."""
    course = [(name, line) for name, line in _lines(v.all, along) if len(line) > 1]
    if not course:
        raise NotMeasured("No sweep has two sizes.")
    return Reduced(v, pd.Series(dtype=float), "", f"{v.name}.", lines=True, course=course)


def power_law(v: Values, along: str, scatter: float) -> Reduced:
    """The exponent of the values as a power of a size, fitted on log axes in each experiment and at
    each density; none where a point is further than the factor `scatter` from its fit."""
    lines = {(who, name): line for who, s in v.by.items() for name, line in _lines(s, along) if len(line) > 2}
    if not lines:
        raise NotMeasured("No sweep has three sizes.")
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


def _lines(s: pd.Series, along: str) -> Iterator[tuple[str, pd.Series]]:
    """Yield (name, values by size) of each experiment and density."""
    for (experiment, d), line in s.groupby(level=["experiment", "density"], sort=False):
        yield f"{experiment}, {density(d)}", line.groupby(level=along).mean()


REDUCERS = (
    each_point,
    geometric_mean,
    mean,
    median,
    largest,
    smallest,
    quantile,
    share_of_points_above,
    share_of_points_below,
    share_of_points_at_least,
    trend,
    power_law,
)
