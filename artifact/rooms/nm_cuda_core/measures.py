"""What only claims of N:M on CUDA cores need: the largest stall, and the size at which throughput levels off."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

import pandas as pd

from artifact.verdicts.evidence import Evidence, NotMeasured
from artifact.verdicts.quantities import Values, contenders
from artifact.verdicts.reducers import Reduced

# Why warps do not issue, as Nsight Compute counts it; but one that issues is no stall.
STALL = re.compile(r"smsp__average_warps_issue_stalled_(?!selected_)(\w+)_per_issue_active\.(?:ratio|pct)")


def stall(e: Evidence, experiments, reason: str, of: str | Sequence[str]) -> Values:
    """The stall counter of one reason over the largest of all others that were profiled: above 1, it is
    why most warps that do not issue wait."""
    counters = {found[1]: name for name in e.counters["metric"].unique() if (found := STALL.fullmatch(name))}
    by, texts = {}, []
    for variant in contenders(of):
        stalls = {}
        for other, metric in counters.items():
            with contextlib.suppress(NotMeasured):
                per = 100 if metric.endswith(".pct") else 1
                stalls[other] = e.counter(variant, metric, experiments) / per
        if reason not in stalls or len(stalls) < 2:
            raise NotMeasured(f"The stalls of {variant} were not profiled, {reason} among others.")
        table = pd.DataFrame(stalls)
        by[variant] = table[reason] / table.drop(columns=reason).max(axis=1)
        most = table.mean().nlargest(3)
        texts.append(f"{variant} " + ", ".join(f"{name} {v:.3g}" for name, v in most.items()))
    how = f"Warps that wait, for each instruction issued; the largest means: {'; '.join(texts)}."
    words = {"above": f"{reason} the largest stall"}
    return Values(by, f"Stall by {reason} over the largest other", unit="×", words=words, how=how)


def knee(v: Values, along: str, flat: float) -> Reduced:
    """Where the values stop rising along a size: the smallest size at which they are within the share
    `flat` of their largest, for each contender, experiment and density of three sizes or more."""
    knees, texts = {}, []
    for who, s in v.by.items():
        for key, line in s.groupby(level=["experiment", "density"], sort=False):
            value = line.groupby(level=along).max()
            if len(value) < 3:
                continue
            size = value.index[value >= (1 - flat) * value.max()].min()
            knees[who, *key] = float(size)
            texts.append(f"{who} from {along.upper()} = {size} on")
    if not knees:
        raise NotMeasured("No sweep has three sizes.")
    how = f"Within {flat:.0%} of the largest of the sweep."
    return Reduced(v, pd.Series(knees), f"{v.name} level: {', '.join(texts)}", how, lines=True)


QUANTITIES = (stall,)
REDUCERS = (knee,)
