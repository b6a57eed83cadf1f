"""Series of records by point: the rows of a contender, speedups, means."""

from __future__ import annotations

import numpy as np
import pandas as pd

from artifact.measure import records

#: What tells one point of a record from another.
POINT = ["label", "m", "n", "k", "density"]


def of(df: pd.DataFrame, variant: str, column: str = "median_us") -> pd.Series:
    """A column of a contender's rows, by `POINT`."""
    return df[df["variant"] == variant].set_index(POINT)[column]


def over(df: pd.DataFrame, variant: str, baseline: str) -> pd.Series:
    """Speedup of a contender over another by `POINT`, where both are."""
    return (of(df, baseline) / of(df, variant)).dropna()


def has(df: pd.DataFrame, variant: str) -> bool:
    return bool((df["variant"] == variant).any())


def at(series: pd.Series, density: float) -> pd.Series:
    return series[series.index.get_level_values("density") == density]


def mean(series: pd.Series) -> float:
    """Geometric mean; NaN of nothing."""
    return records.geomean(series) if len(series) else np.nan


def by_density(series: pd.Series) -> pd.Series:
    """Geometric mean for each density, the densest first."""
    kept = sorted(set(series.index.get_level_values("density")), reverse=True)
    return pd.Series({d: mean(at(series, d)) for d in kept}, dtype=float)


def rates(df: pd.DataFrame) -> dict[str, pd.Series]:
    """Contender -> TFLOP/s by density, the densest first."""
    return {v: by_density(of(df, v, "tflops")) for v in dict.fromkeys(df["variant"])}
