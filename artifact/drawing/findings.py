"""What charts show, as alternative texts: found in the data behind each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from numbers import Real
from typing import Any

import pandas as pd

from artifact.drawing import plot, style
from artifact.drawing.words import listed
from artifact.measure.records import geomean

Found = Callable[[pd.DataFrame], str]


def means(said: str, value: str, by: str = "variant", at: str = "") -> Found:
    """Return what says `said`, and of each contender in the column `by` the mean of `value` and its range; apart for
    each value of the column `at`, and for what is stated where there is a column `source`."""

    def told(values: pd.Series) -> str:
        low, high = values.min(), values.max()
        return f"{short(_mean(values))}" + f" ({short(low)} to {short(high)})" * bool(low != high)

    return partial(_said, said, value, by, at, lambda rows: told(rows[value]))


def ends(said: str, value: str, along: str, by: str = "variant", at: str = "") -> Found:
    """Return what says `said`, and of each contender in the column `by` the mean of `value` at the least and at the
    largest `along`, and its largest value on the way where that is neither; apart as in `means`."""

    def told(rows: pd.DataFrame) -> str:
        course = rows.groupby(along)[value].agg(_mean)
        if len(course) < 2:
            return "".join(f"{short(v)} at {value_of(along, at)}" for at, v in course.items())
        first, peak, last = course.index[0], course.idxmax(), course.index[-1]
        high = course[peak] > 1.02 * max(course[first], course[last])
        stops = [("from", first), *[("over", peak)] * int(high), ("to", last)]
        return " ".join(f"{word} {short(course[at])} at {value_of(along, at)}" for word, at in stops)

    return partial(_said, said, value, by, at, told)


def each(said: str, value: str, by: str, how: str = "max") -> Found:
    """Return what says `said`, and of each value of the column `by` the largest `value`, or their sum."""
    return lambda data: f"{said}: {_listed(data, by, lambda rows: short(rows[value].agg(how)))}."


def _listed(data: pd.DataFrame, by: str, told: Callable[[pd.DataFrame], str]) -> str:
    said = {style.name(str(name)): told(rows) for name, rows in data.groupby(by, sort=False)}
    return listed(f"{name} {text}" for name, text in said.items() if text)


def _said(said: str, value: str, by: str, at: str, told: Callable[[pd.DataFrame], str], data: pd.DataFrame) -> str:
    data = data[data[value].notna() & data[by].notna()]
    sources = data["source"] if "source" in data else pd.Series("measured", data.index)
    texts = []
    for source, rows in data.groupby(sources, sort=False):
        parts = {f"{value_of(at, where)}: ": part for where, part in rows.groupby(at, sort=False)} if at else {"": rows}
        found = {where: _listed(part, by, told) for where, part in parts.items()}
        text = "; ".join(where + text for where, text in found.items() if text)
        texts += [text if source == "measured" or by == "source" else f"{source}: {text}"] if text else []
    return f"{said}: {'. '.join(texts)}." if texts else f"{said}."


def _mean(values: pd.Series) -> float:
    """Geometric, as of speedups, where all are positive."""
    return geomean(values) if (values > 0).all() else float(values.mean())


def short(value: float) -> str:
    """Three digits."""
    return plot.number(float(f"{value:.3g}"))


def value_of(column: str, value: Any) -> str:
    """A value of a column, as a sentence writes it: a density in per cent, a contender by its name."""
    if column == "density":
        return f"{100 * float(value):g}% kept"
    return plot.number(float(value)) if isinstance(value, Real) else style.name(str(value))
