"""What only claims of NM-SpMM need: the ideal speedup, intensities, its roofline, vectors and memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from artifact.measure import records
from artifact.verdicts import quantities
from artifact.verdicts.evidence import Evidence, need
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED, Judged, Reduced
from artifact.verdicts.quantities import INDEX, Values, contenders, density, rows
from kernels.nm_spmm import analysis


def share_of_ideal(e: Evidence, experiments, of: str, over: str) -> Values:
    """How much of the work that sparsity saves is saved in time: the speedup over a dense baseline as a
    share of the ideal one, 1 / density."""
    s = quantities.speedup(e, experiments, of, over).by[of]
    shares = s * s.index.get_level_values("density")
    each = ", ".join(f"{density(d)} {records.geomean(v):.0%}" for d, v in shares.groupby(level="density", sort=False))
    how = f"Ideal is 1 / density. {each}."
    return Values({of: shares}, "Share", ".0f", 100, "%", f" of the ideal speedup over {over}", how=how)


def share_of_peak(e: Evidence, experiments, peak: float, of: str) -> Values:
    """Useful TFLOP/s as a share of a peak that the source states, in TFLOP/s."""
    df = rows(e, experiments, of)
    shares = quantities.by_variant(df, df["tflops"] / peak, [of])
    return Values(shares, "Share", ".0f", 100, "%", " of the stated peak", how=f"Of the stated {peak:g} TFLOP/s.")


def flops_per_count(e: Evidence, experiments, metric: str, of: str | Sequence[str]) -> Values:
    """Useful FLOPs for each unit of a hardware counter: an intensity where that counts bytes or loads."""
    by = {}
    for name in contenders(of):
        counts = e.counter(name, metric, experiments)
        df = rows(e, experiments, name).set_index(list(counts.index.names))
        rate = (df["useful_flops"].groupby(level=counts.index.names).first() / counts).dropna()
        need(bool(np.isfinite(rate).all()), f"The counter {metric} of {name} has a value of 0.")
        by[name] = rate
    tail = f" (FLOPs for each of the {quantities.counted(metric)[1]})"
    return Values(by, f"FLOPs for each of {metric}", ".4g", tail=tail, named=True)


def added_memory(e: Evidence, experiments, of: str, over: str) -> Values:
    """Device memory that the preprocessing of a variant adds to that of another one, over that of the
    sparse operand's values, 4 bytes each."""
    df = rows(e, experiments, of, over)
    ours, theirs = (df[df["variant"] == name].set_index(INDEX) for name in (of, over))
    added = ((ours["prepare_bytes"] - theirs["prepare_bytes"]) / (4 * ours["nnz"])).dropna()
    need(not added.empty, f"{of} and {over} were not measured at any common point.")
    return Values({of: added.clip(lower=0)}, "Added memory", ".1f", 100, " %", f" over {over}")


def roofline_transition(e: Evidence, experiments, block: Sequence[int]) -> Values:
    """The sparsity at which NM-SpMM's Eq. 3, for blocks of [rows, columns] that stage all of A, falls
    under the ridge of the roofline: the FMA ceiling over that of copies in DRAM. What the bandwidth of
    the L2 would give is said beside it."""
    peak, *gbps = e.ceiling("fma", "tflops"), e.ceiling("copy", "gbps"), e.ceiling("l2_read", "gbps")
    dram, l2 = (analysis.Device("", 0, 0.0, peak, rate, 0, 0) for rate in gbps)
    sparsity, beside = (analysis.transition(device, *block) for device in (dram, l2))
    how = (
        f"Blocks of {block[0]} × {block[1]}; ridge at {dram.ridge:.1f} FLOP/B, the FMA ceiling of {peak:.3g} TFLOP/s "
        f"over the copy ceiling. Against the bandwidth of the L2: {beside:.0%}."
    )
    return Values({"transition": pd.Series([sparsity])}, "Transition", ".0f", 100, "%", " sparsity", how=how)


def steps(v: Values, densities: Sequence[float] = ()) -> Reduced:
    """Geometric means, in order: at each of these densities of one contender, or of one contender after
    the other."""
    at = {
        f"{name} at {density(d)}": s[s.index.get_level_values("density") == d]
        for name, s in v.by.items()
        for d in densities
    }
    parts: Mapping[str, pd.Series] = at or v.by
    missing = [name for name, s in parts.items() if s.empty]
    need(not missing, f"{v.name}: nothing was measured of {', '.join(missing[:1])}.")
    means = pd.Series({name: records.geomean(s) for name, s in parts.items()})
    each = ", ".join(f"{name} {v.one(value)}" for name, value in means.items())
    return Reduced(v, means, each + v.tail, f"{v.name}: {each}.")


def trend_of_labels(v: Values, labels: Sequence[str]) -> Reduced:
    """The values along labels, in each size and density on its own: the largest of each of `labels` that
    was measured there, in this order."""
    (s,) = v.by.values()
    lines = s.groupby(level=["m", "n", "k", "density"], sort=False)
    best = {at: line.groupby(level="label").max().reindex(labels).dropna() for at, line in lines}
    course = [(f"{m} × {n} × {k}, {density(d)}", values) for (m, n, k, d), values in best.items() if len(values) > 1]
    need(bool(course), "No size was measured with two of these labels.")
    first, last = (name or "the usual pattern" for name in (labels[0], labels[-1]))
    why = f"{v.name} from {first} to {last}."
    return Reduced(v, pd.Series(dtype=float), "", why, lines=True, course=course)


def rank_correlation(v: Values, against: str) -> Reduced:
    """The rank correlation of the values of each other experiment with those of the experiment `against`, over the
    points that both have, for each contender."""
    tables = {who: s.unstack("experiment") for who, s in v.by.items()}
    both = all(against in table and table.shape[1] > 1 for table in tables.values())
    need(both, f"There is nothing to hold against {against}.")
    found = {
        (who, other): table[[against, other]].dropna().corr("spearman").loc[against, other]
        for who, table in tables.items()
        for other in table.columns.drop(against)
    }
    each = ", ".join(f"{who} {other} {value:.2f}" for (who, other), value in found.items())
    values, plain, why = pd.Series(found), replace(v, unit=""), f"{v.name}, with {against}: {each}."
    return Reduced(plain, values, f"rank correlation {plain.range(values)}", why, again=lambda s: float(s.min()))


def falls_at_each_step(r: Reduced, change: float) -> Judged:
    """Reproduced if each value is less than the one before it by more than the relative `change`, partly
    if the last is less than the first by more than that."""
    values = list(r.values)
    falls = [after * (1 + change) < before for before, after in itertools.pairwise(values)]
    overall = values[-1] * (1 + change) < values[0]
    return Judged(
        REPRODUCED if all(falls) else PARTLY if overall else NOT_REPRODUCED,
        f"A step within {change:.0%} counts as none.",
        f"{sum(falls)} of {len(falls)} steps fall, {values[0] / values[-1]:.2f}× over all",
    )


QUANTITIES = (share_of_ideal, share_of_peak, flops_per_count, added_memory, roofline_transition)
REDUCERS = (steps, trend_of_labels, rank_correlation)
EXPECTATIONS = (falls_at_each_step,)
