"""How a rule gets from the values at all points to what is judged.

A reducer is a function of the values and of what the claim says of it: `reduce = "geometric mean"`, or with a
parameter `reduce = { quantile = 0.1 }`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    shown = v.text
    if not shown and v.named:
        shown = ", ".join(f"{n} {digits(s * v.scale)}{v.unit}" for n, s in v.by.items()) + v.tail
    elif not shown:
        (s,) = v.by.values()
        low, high = v.range([s.min()]), v.range([s.max()])
        mean = f", geometric mean {v.one(records.geomean(s))}" if low != high else ""
        shown = f"{v.range(s)}{v.tail}{mean}"
    return Reduced(v, v.all, shown, f"{v.points}.")


# ---------------------------------------------------------------- one number for many


def geometric_mean(v: Values, of: str = "all") -> Reduced:
    """The geometric mean over all points, or over those of "each experiment" or of "each density" in
    each experiment."""
    if of not in ("all", *GROUPS):
        raise ValueError(f"`geometric mean` is of {of!r}; it must be of {' or '.join(GROUPS)}.")
    each, texts = {}, []
    for name, s in v.by.items():
        means = {"": _mean(v, s)}
        if of != "all":
            means = s.groupby(level=GROUPS[of], sort=False).apply(lambda g: _mean(v, g)).to_dict()
        each |= {(name, key): mean for key, mean in means.items()}
        head = f"{name} " if v.named else ""
        several = "s" if of == "each density" else ""
        shown = v.range(means.values()) if several else v.one(_mean(v, s))
        texts.append(f"{head}geometric mean{several} {shown}")
    by_experiment = ", ".join(
        f"{name} {v.one(_mean(v, s))}" for name, s in v.all.groupby(level="experiment", sort=False)
    )
    return Reduced(
        v,
        pd.Series(each),
        ", ".join(texts) + v.tail,
        f"{v.points}: {by_experiment}; range {v.range(v.all)}.",
        again=lambda s: _mean(v, s),
    )


def _mean(v: Values, values: pd.Series) -> float:
    if (values <= 0).any():
        raise NotMeasured(f"{v.name} is not positive at every point, so it has no geometric mean.")
    return records.geomean(values)


def mean(v: Values) -> Reduced:
    """The arithmetic mean over all points."""
    return _each(v, lambda s: float(s.mean()), "")


def median(v: Values) -> Reduced:
    """The median over all points."""
    return _each(v, lambda s: float(s.median()), "median ")


def largest(v: Values) -> Reduced:
    """The largest value of any point."""
    return _each(v, lambda s: float(s.max()), "at most ")


def smallest(v: Values) -> Reduced:
    """The smallest value of any point."""
    return _each(v, lambda s: float(s.min()), "at least ")


def quantile(v: Values, share: float) -> Reduced:
    """The value below which this share of the points lies: 0.1 is what nine in ten points reach."""
    return _each(v, lambda s: float(s.quantile(share)), f"{share:g} quantile ")


def _each(v: Values, take: Callable[[pd.Series], float], head: str) -> Reduced:
    each = {name: take(s) for name, s in v.by.items()}
    texts = []
    for name, s in v.by.items():
        bound = head in ("at most ", "at least ")
        several = s.nunique() > 1  # else it is the value, no bound
        beside = f", median {v.one(s.median())}" if bound else f", {v.range(s)}"
        beside = beside if several and (bound or (head == "median " and not v.named)) else ""
        which = head if (bound and several) or not (bound or v.named) else ""
        who = f"{name} " if v.named else ""
        texts.append(f"{who}{which}{v.one(each[name])}{v.tail}{beside}")
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
    held = v.all * (1 + tolerance) >= limit
    return _share(v, held, v.words.get("at_least", f"at least {limit:g}"))


def _share(v: Values, held: pd.Series, what: str) -> Reduced:
    means = ", ".join(f"{name} {v.range(s)}" for name, s in v.all.groupby(level="experiment", sort=False))
    return Reduced(
        v,
        pd.Series([held.mean()]),
        f"{what} at {held.sum()} of {points(len(held))}",
        f"{v.name}: {means}.",
    )


# ---------------------------------------------------------------- along a size


def trend(v: Values, along: str) -> Reduced:
    """The values along a size ("m", "n" or "useful_flops"), in each experiment and at each density on
    its own; where several points have one size, their mean."""
    (s,) = v.by.values()
    course = [(name, line) for name, line in _lines(s, along) if len(line) > 1]
    if not course:
        raise NotMeasured("No sweep has two sizes.")
    return Reduced(v, pd.Series(dtype=float), "", f"{v.name}.", lines=True, course=course)


def power_law(v: Values, along: str, scatter: float) -> Reduced:
    """The exponent of the values as a power of a size, fitted on log axes in each experiment and at
    each density; none where a point is further than the factor `scatter` from its fit."""
    exponents, fits, worst = {}, [], 1.0
    for who, s in v.by.items():
        for name, line in _lines(s, along):
            if len(line) < 3:
                continue
            x, y = np.log(line.index.to_numpy(float)), np.log(line.to_numpy())
            slope, offset = np.polyfit(x, y, 1)
            off = float(np.exp(np.abs(y - slope * x - offset).max()))
            exponents[who, name] = slope if off <= scatter else np.nan
            fits.append(slope)
            worst = max(worst, off)
    if not exponents:
        raise NotMeasured("No sweep has three sizes.")
    shown = "–".join(dict.fromkeys(f"{v:.2f}" for v in (min(fits), max(fits))))
    return Reduced(
        v,
        pd.Series(exponents),
        f"exponent {shown}, points within {worst:.2f}× of the fit",
        f"{len(fits)} fits of {v.name.lower()} against {along}, a point further than {scatter:g}× from its "
        "fit being no power law.",
        lines=True,
    )


def _lines(s: pd.Series, along: str):
    """(name, values by size) of each experiment and density."""
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
