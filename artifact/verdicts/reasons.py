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

import pandas as pd

from artifact.measure import records
from artifact.verdicts import quantities
from artifact.verdicts.evidence import Evidence, NotMeasured
from artifact.verdicts.load import Claim
from artifact.verdicts.measures import NOT_MEASURED, Outcome

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_WHERE = re.compile(r"^(.*?)(?: at (\w+) = ([\d.]+))?(?: in ([\w/]+))?$")
_REDUCED: Mapping[str, Callable[[pd.Series], float]] = {
    "least": pd.Series.min,
    "most": pd.Series.max,
    "median": pd.Series.median,
    "mean": records.geomean,
}


def filled(claim: Claim, e: Evidence, outcome: Outcome, others: Callable[[str], Outcome]) -> str:
    """Return the claim's reason with numbers; what was asked and what came if it has none, as on a GPU on which a claim
    fails that holds on others, or if a record that it speaks of is not there, counters say.

    e: the claim's own evidence. others: from the id of another claim what came of it.
    Raises ValueError, one sentence, for a placeholder that is none.
    """
    asked = f"Asked for {claim.published}, it came to" if claim.published else "It came to"
    plain = f"{asked}: {outcome.measured}. These records do not hold what would say why"
    try:
        return PLACEHOLDER.sub(lambda m: _value(m[1], claim, e, outcome, others), claim.reason) or f"{plain}."
    except NotMeasured as missing:
        return f"{plain}: {missing}"


def _value(word: str, claim: Claim, e: Evidence, outcome: Outcome, others: Callable[[str], Outcome]) -> str:
    if word in _REDUCED and outcome.values is not None:
        return outcome.values.one(_REDUCED[word](outcome.values.all))
    ((said, column, at, experiment),) = _WHERE.findall(word)
    e = e.only({**e.where, column: float(at)}, e.repeats) if column else e
    experiments = [experiment] if experiment else claim.experiment
    match said.split():
        case ["measured"]:
            return outcome.measured
        case ["published"]:
            return claim.published
        case ["claim", other]:
            found = others(other)
            return "not measured here" if found.verdict == NOT_MEASURED else found.measured
        case ["speedup", of, "/", over]:
            return f"{records.geomean(e.ratio(experiments, of, over)):.2f}×"
        case ["counter", metric, "of", of]:
            return f"{e.counter(of, metric, experiments).median():.3g}"
        case ["counter", metric, "of", of, "/", over]:
            return f"{records.geomean(quantities.counter(e, experiments, metric, of, over).by[of]):.2f}×"
        case ["value", name, "of", of]:
            return f"{e.rows(experiments, [of])[name].median():.4g}"
    raise ValueError(f"The reason of the claim {claim.id!r} has a placeholder {word!r} that is none.")
