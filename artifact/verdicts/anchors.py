"""Fidelity: whether what is rebuilt of a source is as fast as the source's own kernel, at a named anchor.

On a GPU of the source's own kind it is the absolute time or rate that the source states, elsewhere, and where it states
none, the ratio to a library that both measured. Our rebuilding decides claims that say why only where it meets every
anchor of its system; else the verdict is "on our rebuilding", and stands apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from artifact.measure import records
from artifact.verdicts.evidence import Evidence, NotMeasured

FACTOR = 1.25  #: within which the two must agree
#: Unit of a stated number -> the column of the records, and one of that unit in its own.
UNITS = {"ms": ("median_us", 1e3), "µs": ("median_us", 1.0), "TFLOP/s": ("tflops", 1.0)}


@dataclass(frozen=True)
class Anchor:
    """A point at which a source states how fast its kernel is: an `[[anchor]]` of claims.toml."""

    where: str  #: section, figure or table of the source
    experiment: Sequence[str]
    of: str  #: contender
    over: str  #: the library
    at: Mapping[str, object]
    unit: str
    absolute: tuple[float, float] | None = None  #: least and most that is stated
    ratio: tuple[float, float] | None = None  #: of the speedup over the library


def met(anchors: Iterable[Anchor], e: Evidence, own: bool) -> bool:
    """Tell whether there are anchors and each is met. own: the records are of the source's own kind of GPU."""
    found = [_met(anchor, e.only(anchor.at), own) for anchor in anchors]
    return bool(found) and all(found)


def _met(anchor: Anchor, e: Evidence, own: bool) -> bool:
    stated, per = anchor.ratio, 1.0
    try:
        if own and anchor.absolute:
            stated, (column, per) = anchor.absolute, UNITS[anchor.unit]
            df = e.frame(anchor.experiment, anchor.of)
            values = df.loc[df["variant"] == anchor.of, column]
        else:
            values = e.ratio(anchor.experiment, anchor.of, anchor.over)
    except NotMeasured:
        return False
    low, high = (end * per for end in stated or (0.0, 0.0))
    return low / FACTOR <= records.geomean(values) <= high * FACTOR
