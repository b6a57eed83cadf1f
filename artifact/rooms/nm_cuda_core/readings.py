"""What the report's cuBLAS time contains: fits of a run time, and how near each reading of a call comes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from artifact.baselines.cublas import READINGS
from artifact.book.study import Study, pivot, where


@dataclass(frozen=True)
class Fit:
    """A run time as constant + square·n² + cube·n³, in seconds; residuals: model over time, − 1."""

    constant: float
    square: float
    cube: float
    residuals: np.ndarray

    def terms(self, sizes: Iterable[int]) -> pd.DataFrame:
        """Return what each of the terms takes at each size, ms."""
        n = np.asarray(list(sizes), dtype=float)
        terms = {"constant": self.constant * n**0, "square": self.square * n**2, "cube": self.cube * n**3}
        return pd.DataFrame({f"{name}_ms": 1e3 * seconds for name, seconds in terms.items()}, n.astype(int))

    @property
    def gbps(self) -> float:
        """Rate at which three float32 matrices would move in the time of the n² term; NaN without one."""
        return 12 / (self.square or np.nan) / 1e9

    @property
    def tflops(self) -> float:
        """Rate of 2·n³ FLOP in the time of the n³ term; NaN without one."""
        return 2 / (self.cube or np.nan) / 1e12


def fit(times: pd.Series) -> Fit:
    """Fit t = a + b·n² + c·n³ to `times`, seconds by size, in relative error, so that every size counts alike.

    The three terms, none negative, are what a timed cuBLAS call may contain: a cost per call (launch, handle,
    allocation), per element of a matrix (transfers) and per multiplication (the kernel).
    """
    n = times.index.to_numpy(float)
    (constant, square, cube), residuals = _nearest(np.stack([np.ones_like(n), n**2, n**3], axis=1), times)
    return Fit(float(constant), float(square), float(cube), residuals)


def _nearest(columns: np.ndarray, times: pd.Series) -> tuple[np.ndarray, np.ndarray]:
    """Return the non-negative weights of `columns` (points × terms) nearest to `times` in relative error, and the model
    over the times, minus 1."""
    rows = columns / times.to_numpy()[:, None]
    lengths = np.linalg.norm(rows, axis=0)  # n³ is 10¹¹ times the constant: solve in equal lengths
    weights = nnls(rows / lengths, np.ones(len(rows)))[0] / lengths
    return weights, rows @ weights - 1


def stated(study: Study) -> pd.Series:
    """Return the report's run time of cuBLAS in seconds, by size, from its TFLOP/s (2·n³ over the time)."""
    rate = (
        study.stated("fig2", "tflops", variant="cublas").astype({"size": int}).set_index("size")["value"].sort_index()
    )
    return 2.0 * rate.index.to_numpy(float) ** 3 / (rate * 1e12)


def measured(published: pd.DataFrame) -> pd.DataFrame:
    """Return the ms of each reading of cuBLAS by size, under the published protocol."""
    return pivot(where(published, variant=READINGS), "median_us") / 1e3


def compare(published: pd.DataFrame, theirs: pd.Series) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tell how near each reading of cuBLAS comes to the report's times, `theirs`, seconds by size.

    The report measured on another machine, whose GPU and host are slower by factors that we do not know. So a reading
    is compared in shape: its kernel (what "cublas" takes) and what it adds to that are each scaled by one factor of
    their own, which brings them nearest to the report's times at the sizes that both have. Additions of the same shape
    come equally near – a handle and an allocation both cost so much a call –, and then the factor must tell which of
    them another machine explains.

    Returns a row for each reading, and one for the report's own times: those factors, kernel_scale and extra_scale;
    rms_error of the model over the times, minus 1; worst_factor between the two, either way round; constant_us, gbps
    and tflops of the reading's own fit. And the models, ms by size, a column for each reading.
    """
    times, own = measured(published) / 1e3, fit(theirs)
    both, rows, models = times.index.intersection(theirs.index), {}, {}
    for reading in READINGS:
        extra = (times[reading] - times["cublas"]).clip(lower=0)  # a small one drowns in noise
        parts = pd.DataFrame({"kernel_scale": times["cublas"], "extra_scale": extra}).loc[both, lambda df: df.any()]
        scales, residuals = _nearest(parts.to_numpy(), theirs[both])
        models[reading] = 1e3 * (parts @ scales)
        rows[reading] = dict(zip(parts, scales, strict=True)) | _nearness(residuals, fit(times[reading]))
    rows["published"] = _nearness(own.residuals, own)
    return pd.DataFrame.from_dict(rows, orient="index"), pd.DataFrame(models)


def _nearness(residuals: np.ndarray, own: Fit) -> dict[str, float]:
    """residuals: of a model of the report's times. own: the fit of the reading's."""
    over = 1 + residuals
    return {
        "rms_error": np.sqrt(np.mean(residuals**2)),
        "worst_factor": max(over.max(), (1 / over).max()),
        "constant_us": 1e6 * own.constant,
        "gbps": own.gbps,
        "tflops": own.tflops,
    }
