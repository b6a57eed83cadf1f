"""Fidelity: whether what is rebuilt of a source is as fast as the source's own kernel, at a named anchor.

On a GPU of the source's own kind it is the absolute time or rate that the source states, elsewhere, and where it states
none, the ratio to a library that both measured. Our rebuilding decides claims that say why only where it meets every
anchor of its system; else the verdict is "on our rebuilding", and stands apart.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class Held(NamedTuple):
    """What a source states at an anchor, from least to most, and what was measured there, all in a unit."""

    low: float
    high: float
    here: float
    unit: str  #: behind the number: "×", " ms"

    @property
    def ratio(self) -> float:
        """What was measured over what is stated, the end of it that is nearer; 1 between the ends."""
        return self.here / min(max(self.here, self.low), self.high)

    @property
    def met(self) -> bool:
        """Whether the two agree."""
        return 1 / FACTOR <= self.ratio <= FACTOR


def met(anchors: Iterable[Anchor], e: Evidence, own: bool) -> bool:
    """Tell whether there are anchors and each is met. own: the records are of the source's own kind of GPU."""
    found = [held(anchor, e, own) for anchor in anchors]
    return bool(found) and all(of is not None and of.met for of in found)


def held(anchor: Anchor, e: Evidence, own: bool) -> Held | None:
    """Return what is stated at an anchor beside what was measured; None where either is missing. own: as `met`."""
    stated, unit, per, e = anchor.ratio, "×", 1.0, e.only(anchor.at)
    try:
        if own and anchor.absolute:
            stated, unit, (column, per) = anchor.absolute, f" {anchor.unit}", UNITS[anchor.unit]
            df = e.frame(anchor.experiment, anchor.of)
            values = df.loc[df["variant"] == anchor.of, column]
        else:
            values = e.ratio(anchor.experiment, anchor.of, anchor.over)
    except NotMeasured:
        return None
    return Held(*stated, records.geomean(values) / per, unit) if stated else None
