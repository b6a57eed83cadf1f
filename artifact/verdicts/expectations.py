"""What a rule expects of the reduced values, and which verdict that gives.

An expectation is a function of what was reduced and of what the claim says, as in
`expect = { at_least = 1.10, partly = 1.0 }`. It returns the verdict, what was asked as a sentence, and what to show
instead of the reducer's own text, if anything. Where the value lies close to a threshold that would change the
verdict, it says so (`close`): within 5% of the threshold, or within half of a tolerance that is narrower.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.verdicts.quantities import contenders, points, stated
from artifact.verdicts.reducers import Reduced

REPRODUCED = "reproduced"
PARTLY = "partly"
NOT_REPRODUCED = "not reproduced"
NOT_CARRIED = "does not carry over to this GPU"  #: which of those not reproduced these are: `judge.carried`
NOT_MEASURED = "not measured on this GPU"
VERDICTS = (REPRODUCED, PARTLY, NOT_REPRODUCED, NOT_CARRIED, NOT_MEASURED)
OFTEN = 0.9  #: "nine in ten" of the points
EDGE = 0.05  #: of a threshold, relative: a verdict that lies closer says so


@dataclass(frozen=True)
class Judged:
    verdict: str
    asked: str
    measured: str = ""
    close: str = ""  #: a sentence where the verdict lies close to a threshold


def edge(
    values: Iterable[float],
    limits: Sequence[float],
    show: Callable[[float], str] = "{:.4g}".format,
    within: float = EDGE,
) -> str:
    """Return the sentence on the value that lies closest to one of the limits, if it is closer than `within`,
    relative; "" else. A value that is the limit itself, as "all points" are, lies on no edge."""
    pairs = ((abs(v / limit - 1), v, limit) for v in values for limit in limits if limit)
    by, value, limit = min((pair for pair in pairs if pair[0] > 1e-8), default=(math.inf, 0, 0))
    side = "above" if value > limit else "below"
    said = f"A close call: {show(value)} is {by:.1%} {side} the threshold of {show(limit)}."
    return said if by <= within else ""


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
    close = edge(r.values, (limit, partly), plain)
    return Judged(all_of(verdicts), f"Asked: at {word} {plain(limit)}.", close=close)


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
    return Judged(all_of(verdicts), asked, close=_factors_close(off, factor, partly))


def _factors_close(off: Sequence[float], *limits: float) -> str:
    """Return `edge` of factors by which values lie outside: closer than half of the tolerance that they are held to."""
    found = (edge(off, [t], "a factor of {:.4g}".format, min(EDGE, (t - 1) / 2)) for t in limits)
    return next(filter(None, found), "")


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
    return Judged(verdict, asked, close=_factors_close(off, factor, partly))


def within(r: Reduced, between: Sequence[float], tolerance: float, partly: float | None = None) -> Judged:
    """In the stated range, widened by `tolerance` on each side: reproduced if nine in ten of the
    values are, and every line. With `partly`, a wider tolerance, partly if nine in ten are within
    that; without, partly if half of the values are, or the geometric mean of the points."""
    low, high = between
    often = 1.0 if r.lines else OFTEN

    def share(by: float) -> float:
        return float(r.values.between(low - by, high + by).mean())

    def weaker() -> bool:
        if partly is not None:
            return share(partly) >= OFTEN
        mean = math.nan if r.lines else records.geomean(r.values)
        return share(tolerance) >= 0.5 or low - tolerance <= mean <= high + tolerance

    verdict = REPRODUCED if share(tolerance) >= often else PARTLY if weaker() else NOT_REPRODUCED
    if len(r.values) > 1:
        close = edge([share(tolerance)], (often, 0.5) if partly is None else (OFTEN,), "{:.0%}".format)
    else:
        sides = ((by, by / 2 / max(low, high, by)) for by in (tolerance, partly) if by)
        found = (edge(r.values, (low - by, high + by), r.of.one, min(EDGE, narrow)) for by, narrow in sides)
        close = next(filter(None, found), "")
    what = f"{len(r.values)} fits" if r.lines else points(len(r.values))
    asked = f"{share(tolerance):.0%} of {what} lie in {low:g}–{high:g} ± {tolerance:g}."
    return Judged(verdict, asked, close=close)


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
        edge([best], limits, r.of.one, min(EDGE, by / 2)),
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
        close=edge([both], [at_points], "{:.0%} of points".format),
    )


EXPECTATIONS = (
    at_least,
    at_most,
    near,
    spans,
    within,
    rises,
    falls,
    larger_in,
    memory_limits_from,
)
