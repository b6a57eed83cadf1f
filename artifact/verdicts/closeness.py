"""How far the verdict on a claim is from another one: by how much what was measured would have to move."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from artifact.verdicts import measures, quantities
from artifact.verdicts.evidence import NotMeasured

STEP = 0.0025  #: of a value: how finely the way to the other verdict is searched


def verdict(rule: measures.Rule, values: quantities.Values) -> str:
    """What a rule says of values. Raises `evidence.NotMeasured` where it cannot."""
    return rule.expect(rule.reduce(values)).verdict


def distance(rule: measures.Rule, here: quantities.Values, there: quantities.Values, goal: str, most: float) -> float:
    """The least relative change towards the other GPU's values that gives `here` the verdict `goal`: of every value, or
    of what the rule reduces them to, whichever is less; infinite where `most` is not enough. As a rule may judge values
    against each other, they also move without what all of them have in common."""
    ours, theirs = rule.reduce(here), rule.reduce(there)
    #: A share of points is no value that moves by per cents: there the points themselves have to.
    shares = rule.reduce.function.__name__.startswith("share")
    lines = dict(theirs.course)
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
            moved = {name: _along(s, values[name], by) for name, s in here.by.items()}
            if _gives(rule, rule.reduce, replace(here, by=moved), goal):
                return float(by)
            along = [(name, _along(line, course[name], by)) for name, line in ours.course]
            moved = replace(ours, values=_along(ours.values, reduced, by), course=along)
            if not shares and _gives(rule, None, moved, goal):
                return float(by)
    return math.inf


def _gives(rule: measures.Rule, reduce, moved, goal: str) -> bool:
    try:
        return rule.expect(reduce(moved) if reduce else moved).verdict == goal
    except NotMeasured:
        return False


def _way(here: pd.Series, there: pd.Series | None, alike: bool) -> np.ndarray:
    """The logarithms of the ratios that lead to the other GPU's values, 0 where there is none. alike: what all move by
    is left out."""
    if there is None or not (here.index.is_unique and there.index.is_unique):
        return np.zeros(len(here))
    ratio = (there.reindex(here.index) / here).to_numpy(float)
    usable = (here.to_numpy(float) > 0) & (ratio > 0)
    way = np.log(np.where(usable, ratio, 1.0))
    return np.where(usable, way - way[usable].mean(), 0.0) if alike and usable.any() else way


def _along(here: pd.Series, way: np.ndarray, by: float) -> pd.Series:
    """Each value moved along its way, but by no more than the factor 1 + by."""
    most = math.log1p(by)
    return pd.Series(here.to_numpy(float) * np.exp(np.clip(way, -most, most)), here.index)
