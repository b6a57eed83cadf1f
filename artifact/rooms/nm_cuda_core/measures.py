"""What only claims of N:M on CUDA cores need: the largest stall, and the size at which throughput levels off."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from artifact.profiling.ncu import STALLED, STALLS
from artifact.verdicts.evidence import Evidence, need
from artifact.verdicts.measures import Reduced
from artifact.verdicts.quantities import Values, contenders


def stall(e: Evidence, experiments: Sequence[str], reason: str, of: str | Sequence[str]) -> Values:
    """Return the stall counter of one reason over the largest of all others that were profiled: above 1, it is why most
    warps that do not issue wait. One that issues, "selected", is no stall."""
    known = set(e.counters["metric"])
    metrics = {why: STALLED.format(why) for why in STALLS if why != "selected" and STALLED.format(why) in known}
    need({reason} < set(metrics), f"The stalls were not profiled, {reason} among others.")
    tables = {
        v: pd.DataFrame({why: e.counter(v, metric, experiments) for why, metric in metrics.items()})
        for v in contenders(of)
    }
    by = {v: table[reason] / table.drop(columns=reason).max(axis=1) for v, table in tables.items()}
    most = {v: table.mean().nlargest(3).items() for v, table in tables.items()}
    told = [f"{v} " + ", ".join(f"{why} {value:.3g}" for why, value in means) for v, means in most.items()]
    how = f"Warps that wait, for each instruction issued; the largest means: {'; '.join(told)}."
    words = {"above": f"{reason} the largest stall"}
    return Values(by, f"Stall by {reason} over the largest other", unit="×", words=words, how=how)


def knee(v: Values, along: str, flat: float) -> Reduced:
    """Return where the values stop rising along a size: the smallest size at which they are within the share `flat` of
    their largest, for each contender, experiment and density of three sizes or more."""
    lines = {
        (who, *key): line.groupby(level=along).max()
        for who, values in v.by.items()
        for key, line in values.groupby(level=["experiment", "density"], sort=False)
    }
    knees = {at: float((s.index[s >= (1 - flat) * s.max()]).min()) for at, s in lines.items() if len(s) >= 3}
    need(bool(knees), "No sweep has three sizes.")
    told = ", ".join(f"{at[0]} from {along.upper()} = {size:.0f} on" for at, size in knees.items())
    how = f"Within {flat:.0%} of the largest of the sweep."
    return Reduced(v, pd.Series(knees), f"{v.name} level: {told}", how, lines=True)


QUANTITIES = (stall,)
REDUCERS = (knee,)
