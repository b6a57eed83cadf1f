"""The verdict on each claim, from the records of one GPU."""

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from artifact import baselines
from artifact.verdicts import evidence, measures
from artifact.verdicts.evidence import SERIES, Evidence, NotMeasured
from artifact.verdicts.load import Claim
from artifact.verdicts.measures import NOT_MEASURED, Outcome

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
GOLDEN_COLUMNS = ("id", "verdict", "measured")  # what the tests hold of the shipped records


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
    rule = claim.rule
    e = e.only(rule.at, rule.repeats)
    try:
        outcome = measures.outcome(rule, e, claim.experiment)
    except NotMeasured as missing:
        outcome = Outcome(NOT_MEASURED, "—", str(missing))
    why = [outcome.why]
    if rule.at and outcome.verdict != NOT_MEASURED:
        why.append(f"Judged at {e.kept}.")
    if any(SERIES in experiment for experiment in claim.experiment):
        why.append("Judged by the series that the source published, not by this GPU's records.")
    if rule.repeats and outcome.verdict != NOT_MEASURED:
        why.append(f"Judged by the geometric means of the runs; {_each_run(claim, e)}.")
    if rule.also_over and outcome.verdict != NOT_MEASURED:
        with contextlib.suppress(NotMeasured):
            over = rule.quantity.parameters | {"over": rule.also_over}
            other = replace(rule, quantity=replace(rule.quantity, parameters=over))
            beside = measures.outcome(other, e, claim.experiment)
            library = baselines.library(rule.also_over)
            why.append(f"Against {library}: {beside.measured} ({beside.verdict}).")
    if claim.note:
        why.append(claim.note)
    if claim.contradicts:
        why.append(f"The source also claims the opposite: {', '.join(claim.contradicts)}.")
    return replace(outcome, why=" ".join(why))


def _each_run(claim: Claim, e: Evidence) -> str:
    """What a claim whose experiments repeat each other would be by each of them alone."""
    sweeps, texts = evidence.sweeps(claim.experiment), []
    for name in sweeps:
        run = [other for other in claim.experiment if other == name or other not in sweeps]
        try:
            outcome = measures.outcome(claim.rule, e, run)
            texts.append(f"{name} alone: {outcome.measured} ({outcome.verdict})")
        except NotMeasured:
            texts.append(f"{name} alone: {NOT_MEASURED}")
    return "; ".join(texts)
