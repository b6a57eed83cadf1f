"""What charts that any room can draw show, as alternative texts: found in the data behind each."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real

import pandas as pd

from artifact.drawing import plot, style
from artifact.drawing.words import listed
from artifact.measure.records import geomean

Found = Callable[[pd.DataFrame], str]


def _most(data: pd.DataFrame, memory: str) -> str:
    rows = data[data["memory"] == memory]
    most = rows.groupby("variant", sort=False)["most"].max() / rows["ceiling"].iloc[0]
    return listed([f"{style.name(v)} {share:.0%}" for v, share in most.items()])


def memories(data: pd.DataFrame) -> str:
    """Of `memories.memories`: the largest rate of each contender at each memory."""
    told = [f"{memory}: {_most(data, memory)}" for memory in dict.fromkeys(data["memory"])]
    return f"Ranges of TB/s, at most in per cent of the ceiling; {'; '.join(told)}."


def ladder(data: pd.DataFrame) -> str:
    """Of `charts.ladder`: each rung's mean, by experiment where there are several."""
    several = data["experiment"].nunique() > 1
    told = []
    for variant, rows in data.groupby("variant", sort=False):
        means = [f"{r.speedup:.2f}{f' {r.experiment}' * several}" for r in rows.itertuples()]
        told.append(f"{style.name(variant)} {', '.join(means)}")
    return f"Geometric-mean speedup over the library, rung by rung: {'; '.join(told)}."


def dots(data: pd.DataFrame) -> str:
    """Of `charts.dots`: at how many rows each contender is ahead of 1, and its largest value."""
    told = []
    for variant, rows in data.groupby("variant", sort=False):
        ahead, most = (rows["value"] > 1).sum(), rows["value"].max()
        told.append(f"{style.name(variant)} is above 1 at {ahead} of {len(rows)}, at most {most:.2f}")
    return f"Dot plot, a row for each problem: {'; '.join(told)}."


def spread(data: pd.DataFrame) -> str:
    """Of `charts.spread`: how many points of a second run lie within 3% of the first."""
    apart = (data["ratio"] - 1).abs()
    return (
        f"Second run over first: {(apart <= 0.03).mean():.0%} of {len(data)} points lie within 3%, the farthest is "
        f"{apart.max():.0%} off."
    )


# ---------------------------------------------------------------- of lines and clouds of points


def means(said: str, value: str, by: str = "variant", at: str = "") -> Found:
    """`said`, and of each contender in the column `by` the mean of `value` and its range; apart for each
    value of the column `at`, and for what is stated where there is a column `source`."""

    def told(rows: pd.DataFrame) -> str:
        texts = []
        for name, values in rows.groupby(by, sort=False)[value]:
            low, high = values.min(), values.max()
            spread = "" if low == high else f" ({short(low)} to {short(high)})"
            texts.append(f"{style.name(str(name))} {short(_mean(values))}{spread}")
        return listed(texts)

    return lambda data: _said(said, data, value, by, at, told)


def ends(said: str, value: str, along: str, by: str = "variant", at: str = "") -> Found:
    """`said`, and of each contender in the column `by` the mean of `value` at the least and at the largest
    `along`, and its largest value on the way where that is neither; apart as in `means`."""

    def told(rows: pd.DataFrame) -> str:
        texts = []
        for name, line in rows[rows[along].notna()].groupby(by, sort=False):
            course = line.groupby(along)[value].agg(_mean)
            first, last = course.iloc[0], course.iloc[-1]
            text = f"{style.name(str(name))} from {short(first)} at {value_of(along, course.index[0])}"
            if course.max() > 1.02 * max(first, last):
                text += f" over {short(course.max())} at {value_of(along, course.idxmax())}"
            text += f" to {short(last)} at {value_of(along, course.index[-1])}"
            texts.append(text if len(course) > 1 else text.split(" to ")[0].replace(" from ", " "))
        return listed(texts)

    return lambda data: _said(said, data, value, by, at, told)


def each(said: str, value: str, by: str, how: str = "max") -> Found:
    """`said`, and of each value of the column `by` the largest `value`, or their sum."""

    def of(data: pd.DataFrame) -> str:
        found = data.groupby(by, sort=False)[value].agg(how)
        told = listed([f"{style.name(str(name))} {short(v)}" for name, v in found.items()])
        return f"{said}: {told}."

    return of


def counts(said: str, column: str, at: str) -> Found:
    """`said`, and how often the column has each of its values, apart for each value of the column `at`."""

    def of(data: pd.DataFrame) -> str:
        texts = []
        for where, rows in data.groupby(at, sort=False):
            told = listed([f"{n} of {len(rows)} {v}" for v, n in rows[column].value_counts().items()])
            texts.append(f"{value_of(at, where)}: {told}")
        return f"{said}. {'; '.join(texts)}."

    return of


def _said(said: str, data: pd.DataFrame, value: str, by: str, at: str, told: Callable) -> str:
    data = data[data[value].notna() & data[by].notna()]
    sources = data["source"] if "source" in data else pd.Series("measured", data.index)
    texts = []
    for source, rows in data.groupby(sources, sort=False):
        parts = rows.groupby(at, sort=False) if at else [("", rows)]
        said_of = [(value_of(at, where) if at else "", told(part)) for where, part in parts]
        text = "; ".join(f"{where}: {text}" if where else text for where, text in said_of if text)
        if text:
            texts.append(text if source == "measured" or by == "source" else f"{source}: {text}")
    return f"{said}: {'. '.join(texts)}." if texts else f"{said}."


def _mean(values: pd.Series) -> float:
    """Geometric, as of speedups, where all are positive."""
    return geomean(values) if (values > 0).all() else float(values.mean())


def short(value: float) -> str:
    """Three digits."""
    return plot.number(float(f"{value:.3g}"))


def value_of(column: str, value: object) -> str:
    """A value of a column, as a sentence writes it: a density in per cent, a contender by its name."""
    if column == "density":
        return f"{100 * float(value):g}% kept"
    return plot.number(float(value)) if isinstance(value, Real) else style.name(str(value))
