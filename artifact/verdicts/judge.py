"""The verdict on each claim, from the records of one GPU."""

import contextlib
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pandas as pd

from artifact.verdicts import evidence
from artifact.verdicts.evidence import SERIES, Evidence, NotMeasured
from artifact.verdicts.load import COMMON, Claim
from artifact.verdicts.measures import DEFAULTS, MEASURES, NOT_MEASURED, Outcome

# ---------------------------------------------------------------- judging

LEDGER_COLUMNS = (
    "id",
    "source",
    "where",
    "says",
    "published",
    "measured",
    "verdict",
    "why",
    "minutes",
)


def judge(claims: Iterable[Claim], folder: str | Path) -> pd.DataFrame:
    """Verdicts from the records in `folder`, that of one GPU: one row per claim, columns
    LEDGER_COLUMNS.

    A record that is there but not valid raises ValueError, one without its machine.json
    FileNotFoundError: a broken file is no verdict.
    """
    evidence: dict[str, Evidence] = {}
    rows = []
    for claim in claims:
        if claim.room not in evidence:
            evidence[claim.room] = Evidence(Path(folder), claim.room)
        outcome = _outcome(claim, evidence[claim.room])
        rows.append(
            {
                key: getattr(outcome if hasattr(outcome, key) else claim, key)
                for key in LEDGER_COLUMNS
            }
        )
    return pd.DataFrame(rows, columns=list(LEDGER_COLUMNS))


def _outcome(claim: Claim, e: Evidence) -> Outcome:
    measure = MEASURES[claim.measure]
    rule = {key: value for key, value in claim.rule.items() if key not in COMMON}
    e = e.only(claim.rule.get("where", {}), claim.rule.get("repeats", False))
    try:
        outcome = measure(e, claim.experiment, **rule)
    except NotMeasured as missing:
        outcome = Outcome(NOT_MEASURED, "—", str(missing))
    why = outcome.why
    if claim.rule.get("where") and outcome.verdict != NOT_MEASURED:
        why += f" Judged at {e.kept}."
    if any(SERIES in experiment for experiment in claim.experiment):
        why += " Judged by the series that the source published, not by this GPU's records."
    if e.repeats and outcome.verdict != NOT_MEASURED:
        why += f" Judged by the geometric means of the runs; {_each_run(claim, e, rule)}."
    # Where a source does not say which algorithm of cuSPARSE it ran, the default is judged as well.
    parameter = inspect.signature(measure).parameters.get("baseline")
    chosen = rule.get("baseline", parameter.default) if parameter else ""
    if outcome.verdict != NOT_MEASURED and chosen in DEFAULTS:
        library, default = DEFAULTS[chosen]
        with contextlib.suppress(NotMeasured):
            other = measure(e, claim.experiment, **rule | {"baseline": default})
            why += f" Against {library}'s default algorithm: {other.measured} ({other.verdict})."
    if claim.note:
        why += f" {claim.note}"
    if claim.contradicts:
        why += f" The source also claims the opposite: {', '.join(claim.contradicts)}."
    return replace(outcome, why=why)


def _each_run(claim: Claim, e: Evidence, rule: Mapping[str, object]) -> str:
    """What a claim whose experiments repeat each other would be by each of them alone."""
    sweeps, texts = evidence.sweeps(claim.experiment), []
    for name in sweeps:
        run = [other for other in claim.experiment if other == name or other not in sweeps]
        try:
            outcome = MEASURES[claim.measure](e, run, **rule)
            texts.append(f"{name} alone: {outcome.measured} ({outcome.verdict})")
        except NotMeasured:
            texts.append(f"{name} alone: {NOT_MEASURED}")
    return "; ".join(texts)
