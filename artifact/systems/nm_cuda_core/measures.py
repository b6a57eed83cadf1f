"""What only claims of N:M on CUDA cores need: the largest stall."""

from collections.abc import Sequence

import pandas as pd

from artifact.profiling.ncu import STALLED, STALLS
from artifact.verdicts.evidence import Evidence, Values, contenders, need


def stall(e: Evidence, experiments: Sequence[str], reason: str, of: str | Sequence[str]) -> Values:
    """Return the stall counter of one reason over the largest of all others that were profiled.

    Above 1, it is why most warps that do not issue wait. One that issues, "selected", is no stall.
    """
    known = {*e.counters["metric"]} - {STALLED.format("selected")}
    metrics = {why: STALLED.format(why) for why in STALLS if STALLED.format(why) in known}
    need({reason} < set(metrics), f"The stalls were not profiled, {reason} among others.")
    tables = {
        v: pd.DataFrame({why: e.counter(v, metric, experiments) for why, metric in metrics.items()})
        for v in contenders(of)
    }
    by = {v: table[reason] / table.drop(columns=reason).max(axis=1) for v, table in tables.items()}
    return Values(by, unit="×", data={"most": {v: table.mean().nlargest(3) for v, table in tables.items()}})


QUANTITIES = (stall,)
