"""What only claims of casperSPARSE need: DRAM use, preparation in launches, "there are scenarios"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from artifact.verdicts.evidence import Evidence, NotMeasured
from artifact.verdicts.expectations import NOT_REPRODUCED, PARTLY, REPRODUCED, Judged
from artifact.verdicts.quantities import Values, by_variant, contenders, density, rows
from artifact.verdicts.reducers import Reduced


def dram_use(e: Evidence, experiments, of: str | Sequence[str], metric: str) -> Values:
    """Share of the DRAM bandwidth in use, as the counter `metric` has it in per cent.

    Without hardware counters the share lies between two bounds: least bytes over the copy ceiling (all
    reuse in caches) and requested bytes over it (none). Where both give one verdict, that stands; else
    the claim is not measured.
    """
    names = contenders(of)
    use = Values({}, "DRAM use", ".0f", 100, "%", " of the DRAM's bandwidth", named=not isinstance(of, str))
    try:
        by = {name: e.counter(name, metric, experiments) / 100 for name in names}
        return replace(use, by=by, how="By hardware counters.")
    except NotMeasured as missing:
        copy = e.ceiling("copy", "gbps")
        df = rows(e, experiments, *names)
        low, high = (
            by_variant(df, (df[c] / df["median_us"] / 1e3 / copy).clip(upper=1.0), names)
            for c in ("least_bytes", "requested_bytes")
        )
        how = f"{missing} Bounds: least and requested bytes over the copy ceiling."
        return replace(use, by=low, how=how, upper=replace(use, by=high))


def preparation(e: Evidence, experiments, of: str) -> Values:
    """Preprocessing in units of launches: prepare time over the time of one launch."""
    df = rows(e, experiments, of)
    by = by_variant(df, df["prepare_ms"] * 1e3 / df["median_us"], [of])
    how = f"Median preprocessing {df['prepare_ms'].median():.3g} ms."
    return Values(by, "Preparation", ".3g", unit=" launches", how=how)


def somewhere_above(r: Reduced, limit: float) -> Judged:
    """There is a scenario, a density of an experiment, whose mean is over `limit`: reproduced if so,
    partly if only single points are."""
    means, points = r.values, r.of.all
    verdict = REPRODUCED if means.max() > limit else PARTLY if points.max() > limit else NOT_REPRODUCED
    experiment, fraction = means.idxmax()[1]
    return Judged(
        verdict,
        f"Over {limit:g} in {(means > limit).sum()} of {len(means)} scenarios "
        f"and at {(points > limit).sum()} of {len(points)} points.",
        f"best scenario {r.of.one(means.max())}{r.of.tail} ({experiment}, {density(fraction)})",
    )


QUANTITIES = (dram_use, preparation)
EXPECTATIONS = (somewhere_above,)
