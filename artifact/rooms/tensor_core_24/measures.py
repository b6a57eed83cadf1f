"""What only claims of 2:4 on tensor cores need: one measured ceiling over another."""

from __future__ import annotations

import pandas as pd

from artifact.verdicts.evidence import Evidence
from artifact.verdicts.quantities import RATES, Values


def ceiling(e: Evidence, experiments, name: str, over: str, rate: str) -> Values:
    """One ceiling that a microbenchmark measured over another. `rate` is the column: "tflops" or
    "gbps"."""
    ours, theirs = e.ceiling(name, rate), e.ceiling(over, rate)
    unit = RATES[rate]
    how = f"Ceilings measured here: {name} {ours:.4g} {unit}, {over} {theirs:.4g} {unit}."
    return Values(
        {name: pd.Series([ours / theirs])}, "Ceiling", unit="×", tail=f" over {over}", how=how
    )


QUANTITIES = (ceiling,)
