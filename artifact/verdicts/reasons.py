"""Why a claim is not reproduced: the sentence of its claims.toml, its placeholders filled from the records.

    reason = "Packing costs more than it saves here: V2 has {speedup v2 / v1} of the speed of V1."

- `{measured}` and `{published}`: as the ledger shows them;
- `{least}`, `{most}`, `{mean}` (geometric), `{median}`: of the quantity over all points that the claim is judged at;
- `{speedup A / B}`: the geometric mean over these points of the time of B over that of A;
- `{counter METRIC of A}`: the median of a hardware counter there; with `A / B` the geometric mean of the ratios;
- `{value COLUMN of A}`: the median of a column of the records;
- `{claim ID}`: what was measured for another claim of the room, as the ledger shows it, or "not measured here".

Behind the three in the middle ` at COLUMN = NUMBER` chooses points, and ` in EXPERIMENT` an experiment of the room,
those of others' code among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from artifact.measure import records
from artifact.verdicts import quantities
from artifact.verdicts.evidence import Evidence, NotMeasured
from artifact.verdicts.load import Claim
from artifact.verdicts.measures import Outcome

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_SPEEDUP = re.compile(r"speedup (\S+) / (\S+)")
_COUNTER = re.compile(r"counter (\S+) of (\S+?)(?: / (\S+))?")
_COLUMN = re.compile(r"value (\S+) of (\S+)")
_WHERE = re.compile(r"(.*?)(?: at (\w+) = ([\d.]+))?(?: in ([\w/]+))?")
_CLAIM = re.compile(r"claim (\S+)")


def filled(claim: Claim, e: Evidence, outcome: Outcome, measured: Callable[[str], str]) -> str:
    """The claim's reason with numbers; what was asked and what came if it has none, as on a GPU on which a claim fails
    that holds on others, or if a record that it speaks of is not there, counters say.

    e: the claim's own evidence. measured: from the id of another claim of the room what was measured for it.
    Raises ValueError, one sentence, for a placeholder that is none.
    """
    asked = f"Asked for {claim.published}, it came to" if claim.published else "It came to"
    plain = f"{asked}: {outcome.measured}. These records do not hold what would say why"
    try:
        said = PLACEHOLDER.sub(lambda m: _value(m[1], claim, e, outcome, measured), claim.reason)
    except NotMeasured as missing:
        return f"{plain}: {missing}"
    return said or f"{plain}."


def _value(word: str, claim: Claim, e: Evidence, outcome: Outcome, measured: Callable) -> str:
    if word in ("measured", "published"):
        return outcome.measured if word == "measured" else claim.published
    if word in _REDUCED and outcome.values is not None:
        return outcome.values.one(_REDUCED[word](outcome.values.all))
    if found := _CLAIM.fullmatch(word):
        return measured(found[1])
    word, column, value, experiment = _WHERE.fullmatch(word).groups()
    experiments = [experiment] if experiment else claim.experiment
    if column:
        e = e.only({**e.where, column: float(value)}, e.repeats)
    if found := _SPEEDUP.fullmatch(word):
        return f"{records.geomean(e.ratio(experiments, *found.groups())):.2f}×"
    if found := _COUNTER.fullmatch(word):
        metric, of, over = found.groups()
        if over:
            values = quantities.counter(e, experiments, metric, of, over).by[of]
            return f"{records.geomean(values):.2f}×"
        return f"{e.counter(of, metric, experiments).median():.3g}"
    if found := _COLUMN.fullmatch(word):
        column, of = found.groups()
        return f"{e.rows(experiments, [of])[column].median():.4g}"
    raise ValueError(f"The reason of the claim {claim.id!r} has a placeholder {word!r} that is none.")


_REDUCED: Mapping[str, Callable] = {
    "least": lambda s: s.min(),
    "most": lambda s: s.max(),
    "median": lambda s: s.median(),
    "mean": records.geomean,
}
