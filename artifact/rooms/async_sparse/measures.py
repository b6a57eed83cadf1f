"""What only claims of AsyncSparse need: rates over its own set of matrices, gains, tile widths, densities, bytes."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import records
from artifact.rooms.async_sparse.contenders import BLOCK, KEPT, TILES
from artifact.verdicts import quantities
from artifact.verdicts.evidence import Evidence, need
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED, Judged, Reduced, within
from artifact.verdicts.quantities import Values, by_variant, contenders, density, rows

STEP = 8  #: of WGMMA_N


def above(s: pd.Series, than: float) -> pd.Series:
    """Return the points that are denser than a share of non-zeros; NotMeasured where there are none."""
    kept = s[s.index.get_level_values("density") > than]
    need(len(kept) > 0, f"No point was measured above {density(than)}.")
    return kept


def means(by: Mapping[str, pd.Series], names: Iterable[str]) -> pd.Series:
    """Return the geometric mean of each of these contenders; NotMeasured where one is not there."""
    missing = [name for name in names if name not in by]
    need(not missing, f"{', '.join(missing)} was not measured.")
    return pd.Series({name: records.geomean(by[name]) for name in names})


# ---------------------------------------------------------------- quantities


def tflops_denser(e: Evidence, experiments, of: str, than: float = 0, matrices: int = 0) -> Values:
    """TFLOP/s on the matrices that are denser than this share of non-zeros. A mean of rates belongs to its set, so for
    one of the source a record of fewer than this many matrices decides nothing."""
    values = quantities.tflops(e, experiments, of)
    count = values.all.index.get_level_values("label").nunique()
    need(count >= matrices, f"The rate is a mean over {matrices} matrices of the source, and the records hold {count}.")
    return _denser(values, than)


def speedup_denser(e: Evidence, experiments, of: str | Sequence[str], over: str | Sequence[str], than: float) -> Values:
    """`speedup` on the matrices that are denser than this share of non-zeros."""
    return _denser(quantities.speedup(e, experiments, of, over), than)


def _denser(values: Values, than: float) -> Values:
    return replace(values, by={who: above(s, than) for who, s in values.by.items()})


def cells(e: Evidence, experiments, of: str, over: Sequence[str], densities: Sequence[float]) -> Values:
    """The cells of a table such as Table I: the geometric mean of the speedup over each of `over`, at each n and over
    the matrices that are denser than each of `densities`."""
    by = {
        rival: pd.Series(
            {
                (n, d): records.geomean(above(line, d))
                for n, line in e.ratio(experiments, of, rival).groupby(level="n", sort=False)
                for d in densities
            }
        )
        for rival in contenders(over)
    }
    tail = "" if len(by) > 1 else f" over {registry.library(contenders(over)[0])}"
    return Values(by, f"Speedup of {of}, by n and density", unit="×", named=len(by) > 1, tail=tail)


def blocks_over(e: Evidence, experiments, of: str) -> Values:
    """Bytes that blocks of 64 x 64 take on the GPU (opt5) over those of a contender's own format; without the
    column-major copy of B that is made for the blocks, 4 bytes an element."""
    df = rows(e, experiments, KEPT, of)
    copies = np.where(df["variant"] == KEPT, 4.0 * df["k"] * df["n"], 0.0)
    bytes_of = by_variant(df, df["prepare_bytes"] - copies, (KEPT, of))
    blocks, own = bytes_of[KEPT].align(bytes_of[of], join="inner")
    need(len(own) > 0 and min(*own, *blocks) > 0, f"The records do not say how many bytes blocks and {of} store.")
    return Values({of: blocks / own}, "Bytes of blocks", unit="×", tail=f" of the bytes of {of}")


def tile_sweep(e: Evidence, experiments, rate: str) -> Values:
    """`rate`, "tflops", of the contenders of the sweep over WGMMA_N, in the order of the width, at the points that
    all of them have."""
    wide = pd.DataFrame(by_variant(e.frame(experiments), rate, TILES)).dropna(axis=1, how="all")
    need(len(wide.columns) > 2, "Fewer than three widths of the WGMMA tile were measured.")
    need(len(wide.dropna()) > 0, "No point was measured with all widths of the WGMMA tile.")
    return Values(dict(wide.dropna().items()), "Throughput", ".3g", unit=" TFLOP/s", named=True)


def stored_over_blocks(e: Evidence, experiments, of: str) -> Values:
    """What a contender stores of the sparse operand over the bytes of BCSR: the memory that its preprocessing adds,
    without copies of B and C in whole blocks where m or k is no multiple of one, over the least traffic without B
    and C; 2 bytes an element."""
    df = rows(e, experiments, of)
    m, n, k = (df[size].astype(float) for size in ("m", "n", "k"))
    blocks = df["least_bytes"] - 2 * n * (m + k)
    copies = sum(2 * n * np.ceil(size / BLOCK) * BLOCK * (size % BLOCK > 0) for size in (m, k))
    stored = df["prepare_bytes"] - copies
    need(min(*blocks, *stored) > 0, f"The records do not say how many bytes {of} stores.")
    by = by_variant(df, stored / blocks, [of])
    return Values(by, "Stored bytes", unit="×", tail=" of the bytes of BCSR", words={"above": f"{of} stores more"})


def counter_less(e: Evidence, experiments, metric: str, of: str, than: str) -> Values:
    """By how much a hardware counter of `of` is less than that of `than`."""
    ours, theirs = e.counter(of, metric, experiments).align(e.counter(than, metric, experiments), join="inner")
    need(len(ours) > 0, f"The counter {metric} was not profiled for {of} and {than} at one point.")
    how = f"{than} {theirs.mean():.4g}, {of} {ours.mean():.4g}."
    unit, what = quantities.counted(metric)
    return Values({of: theirs - ours}, f"Counter {metric}", ".4g", unit=unit, tail=f" fewer ({what})", how=how)


def bandwidth_share(
    e: Evidence, experiments, stated: float, of: str | Sequence[str], metric: str, plus: Sequence[str], share_of: str
) -> Values:
    """Bytes between the L2 and DRAM in a second, the counter `metric` with all of `plus` over the profiled time
    `share_of` in ns, as a share of the bandwidth that the source states for its GPU, in GB/s."""
    rate = quantities.counter_share(e, experiments, metric, share_of, of, plus)
    by = {name: s / stated for name, s in rate.by.items()}
    how = f"Of the stated {stated:g} GB/s; at most {rate.all.max():.4g} GB/s."
    return replace(rate, by=by, name="DRAM bandwidth", format=".0f", tail=f" of {stated:g} GB/s", how=how)


# ---------------------------------------------------------------- reducers


def share_of_gain(v: Values, part: Sequence[str], whole: Sequence[str]) -> Reduced:
    """What the step from the first to the second contender of `part` adds to the geometric mean, as a share of
    what the step of `whole` adds. The same as factors, whose logarithms add up, is said beside it."""
    mean = means(v.by, v.by)
    added, of = (mean[b] - mean[a] for a, b in (part, whole))
    need(of > 0, f"From {whole[0]} to {whole[1]} nothing is gained.")
    logs = [np.log(mean[b] / mean[a]) for a, b in (part, whole)]
    each = ", ".join(f"{name} {v.one(value)}" for name, value in mean.items())
    why = f"{v.name}: {each}. By factors it is {logs[0] / logs[1]:.0%}."
    return Reduced(replace(v, unit=""), pd.Series([added / of]), f"{added / of:.0%} of the gain", why)


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
    mean = means(v.by, v.by)
    width = mean.rename(TILES)
    beside = pd.concat([width.rename(lambda at: at + STEP), width.rename(lambda at: at - STEP)]).groupby(level=0).max()
    values = (mean / mean.index.map(TILES).map(beside)).reindex(of)
    need(values.notna().all(), f"{', '.join(of)} or their neighbours were not measured.")
    shown = ", ".join(f"{name} {value:.2f}×" for name, value in values.items())
    return Reduced(v, values, f"{shown} of the better neighbour", f"{v.name}: {v.points}.")


def over_the_others(v: Values, of: str) -> Reduced:
    """The geometric mean of one contender over that of the best of all others."""
    mean = means(v.by, [of, *v.by])
    best = mean.drop(of).idxmax()
    over, why = mean[of] / mean[best], f"{v.name}: {v.one(mean[of])}, {v.one(mean[best])}."
    return Reduced(v, pd.Series([over]), f"{of} {over:.2f}× of {best}, the best other one", why)


def _along(v: Values, what: str, course: Iterable[tuple[str, pd.Series]]) -> Reduced:
    course = [(name, line) for name, line in course if len(line) > 1]
    need(len(course) > 0, f"Only one {what} was measured.")
    return Reduced(v, pd.Series(dtype=float), "", f"{v.name}.", lines=True, course=course)


def along_contenders(v: Values, only: Sequence[str] = ()) -> Reduced:
    """The geometric means of the contenders, or of `only` these, in their order, as one line."""
    mean = means(v.by, only or v.by)
    return replace(_along(v, "contender", [("contenders", mean)]), values=mean)


def along_density(v: Values) -> Reduced:
    """The values from the densest to the sparsest, at each m, n and k on its own."""
    return _along(
        v,
        "density",
        (
            (f"{who}, {m} × {n} × {k}", s.groupby(level="density").mean().sort_index(ascending=False))
            for who, points in v.by.items()
            for (m, n, k), s in points.groupby(level=["m", "n", "k"], sort=False)
        ),
    )


def along_n(v: Values) -> Reduced:
    """The geometric means over all points of one n, from the smallest to the largest."""
    return _along(v, "n", ((who, s.groupby(level="n").apply(records.geomean)) for who, s in v.by.items()))


def over_thresholds(v: Values, densities: Sequence[float]) -> Reduced:
    """The geometric means over the points that are denser than each of these, in this order, at each n on its own."""
    return _along(
        v,
        "density",
        (
            (f"{who}, n = {n}", pd.Series({d: records.geomean(above(s, d)) for d in densities}))
            for who, points in v.by.items()
            for n, s in points.groupby(level="n", sort=False)
        ),
    )


# ---------------------------------------------------------------- expectations


def within_and_each_step_gains(
    r: Reduced, between: Sequence[float], tolerance: float, partly: float, steps: Sequence[str]
) -> Judged:
    """As `within`: reproduced or partly by the tolerance. Partly at best if the geometric mean does not rise from each
    contender of `steps` to the next."""
    judged, mean = within(r, between, tolerance, partly), means(r.of.by, steps)
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
    *(tflops_denser, speedup_denser, cells, tile_sweep),
    *(stored_over_blocks, blocks_over, counter_less, bandwidth_share),
)
REDUCERS = (
    *(share_of_gain, along_contenders, over_neighbours, over_the_others),
    *(along_density, along_n, over_thresholds, median_at_each_n),
)
EXPECTATIONS = (within_and_each_step_gains, crosses)
