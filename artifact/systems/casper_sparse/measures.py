"""What only claims of casperSPARSE need: preparation in launches, "there are scenarios"."""

from artifact.verdicts.evidence import Evidence, Values, by_variant, rows
from artifact.verdicts.measures import NOT_REPRODUCED, PARTLY, REPRODUCED, Judged, Reduced


def preparation(e: Evidence, experiments, of: str) -> Values:
    """Preprocessing in units of launches: prepare time over the time of one launch."""
    df = rows(e, experiments, of)
    by = by_variant(df, df["prepare_ms"] * 1e3 / df["median_us"], [of])
    return Values(by, ".3g", " launches", data={"prepare_ms": df["prepare_ms"].median()})


def somewhere_above(r: Reduced, limit: float) -> Judged:
    """There is a scenario, a density of an experiment, whose mean is over `limit`.

    Reproduced if so, partly if only single points are.
    """
    verdict = REPRODUCED if r.values.max() > limit else PARTLY if r.of.all.max() > limit else NOT_REPRODUCED
    return Judged(verdict)


QUANTITIES = (preparation,)
EXPECTATIONS = (somewhere_above,)
