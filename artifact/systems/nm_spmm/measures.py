"""What only claims of NM-SpMM need: the ideal speedup, intensities, its roofline, vectors and memory."""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.verdicts.evidence import INDEX, Evidence, Values, contenders, density, need, rows, speedup
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED, Judged, Reduced
from kernels.nm_spmm import analysis


def share_of_ideal(e: Evidence, experiments, of: str, over: str) -> Values:
    """How much of the work that sparsity saves is saved in time.

    The speedup over a dense baseline as a share of the ideal one, 1 / density.
    """
    s = speedup(e, experiments, of, over).by[of]
    return Values({of: s * s.index.get_level_values("density")}, ".0f", "%", 100)


def flops_per_count(e: Evidence, experiments, metric: str, of: str | Sequence[str]) -> Values:
    """Return useful FLOPs for each unit of a hardware counter: an intensity where that counts bytes or loads."""
    by = {}
    for name in contenders(of):
        counts = e.counter(name, metric, experiments)
        df = rows(e, experiments, name).set_index(list(counts.index.names))
        by[name] = (df["useful_flops"].groupby(level=counts.index.names).first() / counts).dropna()
        need(bool(np.isfinite(by[name]).all()), f"The counter {metric} of {name} has a value of 0.")
    return Values(by, ".4g")


def added_memory(e: Evidence, experiments, of: str, over: str) -> Values:
    """Return the device memory that preprocessing of a variant adds to that of another one.

    Over that of the sparse operand's values, 4 bytes each.
    """
    df = rows(e, experiments, of, over)
    ours, theirs = (df[df["variant"] == name].set_index(INDEX) for name in (of, over))
    added = ((ours["prepare_bytes"] - theirs["prepare_bytes"]) / (4 * ours["nnz"])).dropna()
    need(not added.empty, f"{of} and {over} were not measured at any common point.")
    return Values({of: added.clip(lower=0)}, ".1f", " %", 100)


def roofline_transition(e: Evidence, experiments, block: Sequence[int]) -> Values:
    """Return the sparsity at which NM-SpMM's Eq. 3 falls under the ridge of the roofline.

    For blocks of [rows, columns] that stage all of A; the ridge is the FMA ceiling over that of copies in DRAM. What
    the bandwidth of the L2 would give is said beside it.
    """
    peak, *gbps = e.ceiling("fma", "tflops"), e.ceiling("copy", "gbps"), e.ceiling("l2_read", "gbps")
    dram, l2 = (analysis.Device("", 0, peak, rate, 0) for rate in gbps)
    sparsity, beside = (analysis.transition(device, *block) for device in (dram, l2))
    data = {"ridge": dram.ridge, "peak": peak, "beside": beside}
    return Values({"transition": pd.Series([sparsity])}, ".0f", "%", 100, data=data)


def steps(v: Values, densities: Sequence[float] = ()) -> Reduced:
    """Geometric means, in order.

    At each of these densities of one contender, or of one contender after the other.
    """
    at = {
        f"{name} at {density(d)}": s[s.index.get_level_values("density") == d]
        for name, s in v.by.items()
        for d in densities
    }
    missing = [name for name, s in (at or v.by).items() if s.empty]
    need(not missing, f"Nothing was measured of {', '.join(missing[:1])}.")
    return Reduced(v, pd.Series({name: records.geomean(s) for name, s in (at or v.by).items()}))


def rank_correlation(v: Values, against: str) -> Reduced:
    """Return the rank correlation of each other experiment's values with those of `against`.

    Over the points that both have, for each contender.
    """
    tables = {who: s.unstack("experiment") for who, s in v.by.items()}
    need(
        all(against in table and table.shape[1] > 1 for table in tables.values()),
        f"There is nothing to hold against {against}.",
    )
    return Reduced(
        replace(v, unit=""),
        pd.Series(
            {
                f"{who} {other}": table[[against, other]].dropna().corr("spearman").loc[against, other]
                for who, table in tables.items()
                for other in table.columns.drop(against)
            }
        ),
        again=pd.Series.min,
    )


def falls_at_each_step(r: Reduced, change: float) -> Judged:
    """Reproduced if each value is less than the one before it by more than the relative `change`.

    Partly if the last is less than the first by more than that.
    """
    values = list(r.values)
    falls = [after * (1 + change) < before for before, after in itertools.pairwise(values)]
    overall = values[-1] * (1 + change) < values[0]
    return Judged(REPRODUCED if all(falls) else PARTLY if overall else NOT_REPRODUCED, data={"falls": falls})


QUANTITIES = (share_of_ideal, flops_per_count, added_memory, roofline_transition)
REDUCERS = (steps, rank_correlation)
EXPECTATIONS = (falls_at_each_step,)
