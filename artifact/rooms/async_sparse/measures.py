"""What only claims of AsyncSparse need: rates over its own set of matrices, gains, tile widths, densities, bytes."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import records
from artifact.verdicts import counters, expectations, quantities
from artifact.verdicts.evidence import Evidence, NotMeasured
from artifact.verdicts.expectations import NOT_REPRODUCED, PARTLY, REPRODUCED, Judged
from artifact.verdicts.quantities import Values, by_variant, contenders, density, rows
from artifact.verdicts.reducers import Reduced

TILE = re.compile(r"opt5_n(\d+)")  #: a contender of the sweep over WGMMA_N
STEP = 8  #: of WGMMA_N
BLOCK = 64  #: rows and columns of a block
KEPT = "opt5"  #: the source's kernel for blocks


# ---------------------------------------------------------------- quantities


def tflops_of_the_set(e: Evidence, experiments, of: str, matrices: int, than: float = 0) -> Values:
    """TFLOP/s over the set of matrices of the source, or over those of them that are denser than a share. A mean of
    rates belongs to its set, so a record of fewer than this many matrices decides nothing."""
    values = quantities.tflops(e, experiments, of)
    count = values.all.index.get_level_values("label").nunique()
    if count < matrices:
        raise NotMeasured(f"The rate is a mean over {matrices} matrices of the source, and the records hold {count}.")
    return _denser(values, than, experiments) if than else values


def tflops_denser(e: Evidence, experiments, of: str, than: float) -> Values:
    """TFLOP/s on the matrices that are denser than this share of non-zeros."""
    df = rows(e, experiments, of)
    df = df[df["nnz"] / (df["m"].astype(float) * df["k"]) > than]
    if df.empty:
        raise NotMeasured(f"No matrix of {', '.join(experiments)} is denser than {than:g}.")
    return Values(by_variant(df, "tflops", [of]), "Throughput", ".3g", unit=" TFLOP/s")


def speedup_denser(e: Evidence, experiments, of: str | Sequence[str], over: str | Sequence[str], than: float) -> Values:
    """`speedup` on the matrices that are denser than this share of non-zeros."""
    return _denser(quantities.speedup(e, experiments, of, over), than, experiments)


def _denser(values: Values, than: float, experiments: Sequence[str]) -> Values:
    by = {who: s[s.index.get_level_values("density") > than] for who, s in values.by.items()}
    if any(s.empty for s in by.values()):
        raise NotMeasured(f"No matrix of {', '.join(experiments)} is denser than {than:g}.")
    return replace(values, by=by)


def cells(e: Evidence, experiments, of: str, over: Sequence[str], densities: Sequence[float]) -> Values:
    """The cells of a table such as Table I: the geometric mean of the speedup over each of `over`, at each n and over
    the matrices that are denser than each of `densities`."""
    by = {}
    for rival in contenders(over):
        ratio = e.ratio(experiments, of, rival)
        found = {}
        for n, line in ratio.groupby(level="n", sort=False):
            for d in densities:
                kept = line[line.index.get_level_values("density") > d]
                if kept.empty:
                    raise NotMeasured(f"No point was measured above {density(d)}.")
                found[n, d] = records.geomean(kept)
        by[rival] = pd.Series(found)
    named = len(by) > 1
    return Values(
        by,
        f"Speedup of {of}, by n and density",
        unit="×",
        named=named,
        tail="" if named else f" over {registry.library(contenders(over)[0])}",
    )


def blocks_over(e: Evidence, experiments, of: str) -> Values:
    """Bytes that blocks of 64 x 64 take on the GPU (opt5) over those of a contender's own format; without the
    column-major copy of B that is made for the blocks, 4 bytes an element."""
    bytes_of = {}
    for name in (KEPT, of):
        df = rows(e, experiments, name)
        copy = 4.0 * df["k"] * df["n"] if name == KEPT else 0.0
        (bytes_of[name],) = by_variant(df, df["prepare_bytes"] - copy, [name]).values()
    blocks, own = bytes_of[KEPT].align(bytes_of[of], join="inner")
    if blocks.empty or (own <= 0).any() or (blocks <= 0).any():
        raise NotMeasured(f"The records do not say how many bytes blocks and {of} store.")
    return Values({of: blocks / own}, "Bytes of blocks", unit="×", tail=f" of the bytes of {of}")


def tile_sweep(e: Evidence, experiments, rate: str) -> Values:
    """`rate`, "tflops", of the contenders of the sweep over WGMMA_N, in the order of the width, at the points that
    all of them have."""
    df = e.frame(experiments)
    names = sorted({v for v in df["variant"] if TILE.fullmatch(v)}, key=width)
    if len(names) < 3:
        raise NotMeasured("Fewer than three widths of the WGMMA tile were measured.")
    by = by_variant(df, rate, names)
    common = set.intersection(*(set(s.index) for s in by.values()))
    if not common:
        raise NotMeasured("No point was measured with all widths of the WGMMA tile.")
    kept = {name: s[s.index.isin(common)] for name, s in by.items()}
    return Values(kept, "Throughput", ".3g", unit=" TFLOP/s", named=True)


def stored_over_blocks(e: Evidence, experiments, of: str) -> Values:
    """What a contender stores of the sparse operand over the bytes of BCSR: the memory that its preprocessing adds,
    without copies of B and C in whole blocks where m or k is no multiple of one, over the least traffic without B
    and C; 2 bytes an element."""
    df = rows(e, experiments, of)
    m, n, k = (df[size].astype(float) for size in ("m", "n", "k"))
    blocks = df["least_bytes"] - 2 * n * (m + k)
    copies = sum(2 * n * np.ceil(size / BLOCK) * BLOCK * (size % BLOCK > 0) for size in (m, k))
    stored = df["prepare_bytes"] - copies
    if (blocks <= 0).any() or (stored <= 0).any():
        raise NotMeasured(f"The records do not say how many bytes {of} stores.")
    return Values(
        by_variant(df, stored / blocks, [of]),
        "Stored bytes",
        unit="×",
        tail=" of the bytes of BCSR",
        words={"above": f"{of} stores more"},
    )


def counter_less(e: Evidence, experiments, metric: str, of: str, than: str) -> Values:
    """By how much a hardware counter of `of` is less than that of `than`."""
    ours, theirs = (e.counter(name, metric, experiments) for name in (of, than))
    ours, theirs = ours.align(theirs, join="inner")
    if ours.empty:
        raise NotMeasured(f"The counter {metric} was not profiled for {of} and {than} at one point.")
    how = f"{than} {theirs.mean():.4g}, {of} {ours.mean():.4g}."
    unit, what = counters.words(metric)
    tail = f" fewer ({what})"
    return Values({of: theirs - ours}, f"Counter {metric}", ".4g", unit=unit, tail=tail, how=how)


def bandwidth_share(
    e: Evidence,
    experiments,
    stated: float,
    of: str | Sequence[str],
    metric: str,
    plus: Sequence[str],
    share_of: str,
) -> Values:
    """Bytes between the L2 and DRAM in a second, the counter `metric` with all of `plus` over the profiled time
    `share_of` in ns, as a share of the bandwidth that the source states for its GPU, in GB/s."""
    rate = quantities.counter_share(e, experiments, metric, share_of, of, plus)
    by = {name: s / stated for name, s in rate.by.items()}
    highest = max(s.max() for s in rate.by.values())
    how = f"Of the stated {stated:g} GB/s; at most {highest:.4g} GB/s."
    tail = f" of {stated:g} GB/s"
    return Values(by, "DRAM bandwidth", ".0f", 100, "%", tail, named=not isinstance(of, str), how=how)


def width(variant: str) -> int:
    """WGMMA_N of a contender of the sweep."""
    return int(TILE.fullmatch(variant)[1])


# ---------------------------------------------------------------- reducers


def share_of_gain(v: Values, part: Sequence[str], whole: Sequence[str]) -> Reduced:
    """What the step from the first to the second contender of `part` adds to the geometric mean, as a share of
    what the step of `whole` adds. The same as factors, whose logarithms add up, is said beside it."""
    mean = {name: records.geomean(s) for name, s in v.by.items()}
    gain = {ends: mean[ends[1]] - mean[ends[0]] for ends in (tuple(part), tuple(whole))}
    added, of = gain[tuple(part)], gain[tuple(whole)]
    if of <= 0:
        raise NotMeasured(f"From {whole[0]} to {whole[1]} nothing is gained.")
    logs = [np.log(mean[b] / mean[a]) for a, b in (part, whole)]
    each = ", ".join(f"{name} {v.one(value)}" for name, value in mean.items())
    return Reduced(
        replace(v, unit=""),
        pd.Series([added / of]),
        f"{added / of:.0%} of the gain",
        f"{v.name}: {each}. By factors it is {logs[0] / logs[1]:.0%}.",
    )


def along_contenders(v: Values, only: Sequence[str] = ()) -> Reduced:
    """The geometric means of the contenders, or of `only` these, in their order, as one line."""
    names = list(only) or list(v.by)
    _all_there(v, names)
    means = pd.Series({name: records.geomean(v.by[name]) for name in names})
    return Reduced(v, means, "", f"{v.name}.", lines=True, course=[("contenders", means)])


def median_at_each_n(v: Values) -> Reduced:
    """The median over the points of each n."""
    (s,) = v.by.values()
    each = s.groupby(level="n").median()
    shown = ", ".join(f"{v.one(value)} at n = {n}" for n, value in each.items())
    return Reduced(
        v, each, f"median {shown}", f"{v.name}: {v.points}, {v.range(s)}.", again=lambda s: float(s.median())
    )


def over_neighbours(v: Values, of: Sequence[str]) -> Reduced:
    """The geometric mean of each of these widths over that of the better one of its neighbours, one step away;
    above 1 it is a peak."""
    mean = {width(name): records.geomean(s) for name, s in v.by.items()}
    _all_there(v, of)
    values = {}
    for name in of:
        beside = [mean[n] for n in (width(name) - STEP, width(name) + STEP) if n in mean]
        if not beside:
            raise NotMeasured(f"No neighbour of {name} was measured.")
        values[name] = mean[width(name)] / max(beside)
    shown = ", ".join(f"{name} {value:.2f}×" for name, value in values.items())
    return Reduced(v, pd.Series(values), f"{shown} of the better neighbour", f"{v.name}: {v.points}.")


def over_the_others(v: Values, of: str) -> Reduced:
    """The geometric mean of one contender over that of the best of all others."""
    _all_there(v, [of])
    means = pd.Series({name: records.geomean(s) for name, s in v.by.items()})
    others = means.drop(of)
    best = others.idxmax()
    ratio = means[of] / others[best]
    shown = f"{of} {ratio:.2f}× of {best}, the best other one"
    return Reduced(v, pd.Series([ratio]), shown, f"{v.name}: {v.one(means[of])}, {v.one(others[best])}.")


def along_density(v: Values) -> Reduced:
    """The values from the densest to the sparsest, at each m, n and k on its own."""
    course = []
    for who, s in v.by.items():
        for (m, n, k), line in s.groupby(level=["m", "n", "k"], sort=False):
            values = line.groupby(level="density").mean().sort_index(ascending=False)
            if len(values) > 1:
                course.append((f"{who}, {m} × {n} × {k}", values))
    if not course:
        raise NotMeasured("No shape was measured at two densities.")
    return Reduced(v, pd.Series(dtype=float), "", f"{v.name}.", lines=True, course=course)


def along_n(v: Values) -> Reduced:
    """The geometric means over all points of one n, from the smallest to the largest."""
    course = []
    for who, s in v.by.items():
        means = s.groupby(level="n").apply(records.geomean)
        if len(means) > 1:
            course.append((who, means))
    if not course:
        raise NotMeasured("Only one n was measured.")
    return Reduced(v, pd.Series(dtype=float), "", f"{v.name}.", lines=True, course=course)


def over_thresholds(v: Values, densities: Sequence[float]) -> Reduced:
    """The geometric means over the points that are denser than each of these, in this order, at each n on its own."""
    course = []
    for who, s in v.by.items():
        for n, line in s.groupby(level="n", sort=False):
            kept = {d: line[line.index.get_level_values("density") > d] for d in densities}
            missing = [density(d) for d, part in kept.items() if part.empty]
            if missing:
                raise NotMeasured(f"No point was measured above {missing[0]}.")
            means = {d: records.geomean(part) for d, part in kept.items()}
            course.append((f"{who}, n = {n}", pd.Series(means)))
    return Reduced(v, pd.Series(dtype=float), "", f"{v.name}.", lines=True, course=course)


def _all_there(v: Values, names: Sequence[str]) -> None:
    missing = [name for name in contenders(names) if name not in v.by]
    if missing:
        raise NotMeasured(f"{missing[0]} was not measured.")


# ---------------------------------------------------------------- expectations


def within_and_each_step_gains(
    r: Reduced, between: Sequence[float], tolerance: float, partly: float, steps: Sequence[str]
) -> Judged:
    """As `within`: reproduced or partly by the tolerance. Partly at best if the geometric mean does not rise from each
    contender of `steps` to the next."""
    judged = expectations.within(r, between, tolerance, partly)
    _all_there(r.of, steps)
    mean = {name: records.geomean(r.of.by[name]) for name in steps}
    idle = [f"{a} to {b}" for a, b in itertools.pairwise(steps) if mean[b] <= mean[a]]
    verdict = PARTLY if idle and judged.verdict == REPRODUCED else judged.verdict
    said = f"Nothing is gained from {' and from '.join(idle)}." if idle else "Each step gains."
    return replace(judged, verdict=verdict, asked=f"{judged.asked} {said}")


def crosses(r: Reduced, limit: float) -> Judged:
    """Reproduced if the first value of the line is below `limit` and the last one above, partly if only the last one
    is above and the first one is less."""
    ((_, line),) = r.course
    first, last = line.iloc[0], line.iloc[-1]
    verdict = REPRODUCED if first < limit < last else PARTLY if limit < last > first else NOT_REPRODUCED
    shown = ", ".join(f"{name} {r.of.one(value)}" for name, value in line.items())
    return Judged(verdict, f"Asked: from below {limit:g} to above it.", f"{shown}{r.of.tail}")


QUANTITIES = (
    tflops_of_the_set,
    tflops_denser,
    speedup_denser,
    cells,
    tile_sweep,
    stored_over_blocks,
    blocks_over,
    counter_less,
    bandwidth_share,
)
REDUCERS = (
    share_of_gain,
    along_contenders,
    over_neighbours,
    over_the_others,
    along_density,
    along_n,
    over_thresholds,
    median_at_each_n,
)
EXPECTATIONS = (within_and_each_step_gains, crosses)
