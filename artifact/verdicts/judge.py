"""The verdict on each claim, from the records of one GPU.

When a claim "does not carry over to this GPU" (`carried`): its rule says "not reproduced", it is one of what the source
measured on its GPU (`depends_on = "gpu"`, see `load`), the records that decide are this GPU's and not a series of the
source's own, and none of the GPUs that the source speaks of is this one. GPUs of one chip count as one (CHIPS): an H200
is an H100 with more and faster memory, and no excuse for what was said of an H100. All else that fails is "not
reproduced": a statement in words about the method in general, which one GPU is enough to contradict; a count or a size
that follows from the programs; what a source's own data contradicts.
"""

import contextlib
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pandas as pd

from artifact import registry
from artifact.verdicts import evidence, load, measures, reasons
from artifact.verdicts.evidence import OTHERS, SERIES, Evidence, NotMeasured
from artifact.verdicts.load import Claim
from artifact.verdicts.measures import (
    NOT_CARRIED,
    NOT_MEASURED,
    NOT_REPRODUCED,
    REPRODUCED,
    Outcome,
)

LEDGER_COLUMNS = (
    "id",
    "source",
    "where",
    "says",
    "published",
    "measured",
    "verdict",
    "close",
    "reason",
    "why",
    "minutes",
    "gpu",
    "extension",
    "rests",
)
#: GPUs that are one chip with another memory -> the chip.
CHIPS = {"h100": "gh100", "h200": "gh100", "gh200": "gh100"}
#: What behind a GPU's number makes another GPU of it.
_OTHERS = ("ti", "super", "d")
GOLDEN_COLUMNS = ("id", "verdict", "measured")  # what the tests hold of the shipped records


def judge(claims: Iterable[Claim], folder: str | Path) -> pd.DataFrame:
    """Verdicts from the records in `folder`, that of one GPU: one row per claim, columns
    LEDGER_COLUMNS.

    A record that is there but not valid raises ValueError, one without its machine.json
    FileNotFoundError: a broken file is no verdict.
    """
    claims, folder = list(claims), Path(folder)
    found = {room: Evidence(folder, room) for room in dict.fromkeys(c.room for c in claims)}
    outcomes = {claim.id: _outcome(claim, found[claim.room]) for claim in claims}

    def measured(i: str) -> str:
        """Of another claim, which may be none of those that are judged."""
        if i not in outcomes:
            known = {claim.id: claim for claim in load.claims()}
            if i not in known:
                raise ValueError(f"A reason speaks of the claim {i!r}, which is none.")
            outcomes[i] = _outcome(known[i], Evidence(folder, known[i].room))
        missing = outcomes[i].verdict == NOT_MEASURED
        return "not measured here" if missing else outcomes[i].measured

    rows = []
    for claim in claims:
        outcome = outcomes[claim.id]
        row = {key: getattr(outcome if hasattr(outcome, key) else claim, key) for key in LEDGER_COLUMNS}
        if outcome.verdict == NOT_REPRODUCED and carried(claim, folder.name):
            row["verdict"] = NOT_CARRIED
        e = found[claim.room].only(claim.rule.at, claim.rule.repeats)
        if outcome.verdict == NOT_MEASURED:
            row["reason"] = outcome.why
        elif outcome.verdict == REPRODUCED:
            row["reason"] = ""
        else:
            row["reason"] = reasons.filled(claim, e, outcome, measured)
        row["gpu"] = ", ".join(claim.gpu)
        rows.append(row)
    return pd.DataFrame(rows, columns=list(LEDGER_COLUMNS))


def counted(df: pd.DataFrame) -> pd.DataFrame:
    """Those of the verdicts of `judge` that are on claims of the sources: extensions are listed, not counted."""
    return df[~df["extension"].astype(bool)]


def on_their_data(df: pd.DataFrame) -> pd.DataFrame:
    """Those that series of the source's own decide, whose experiments have an @, and nothing that was measured here."""
    own = {c.id for c in load.claims() if c.experiment and all(SERIES in e for e in c.experiment)}
    return df[df["id"].isin(own)]


def by_evidence(df: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The `counted` verdicts apart: those that something measured here decides, and those `on_their_data`."""
    claims = counted(df)
    theirs = on_their_data(claims)
    return claims.drop(theirs.index), theirs


def carried(claim: Claim, gpu: str) -> bool:
    """Whether a claim that fails on this GPU is one that may hold on the source's."""
    own = any(SERIES in experiment for experiment in claim.experiment)
    return claim.depends_on == load.GPU and not own and not any(same_gpu(g, gpu) for g in claim.gpu)


def same_gpu(said: str, measured: str) -> bool:
    """Whether a source that says `said` ("RTX 4070", "H100 96 GB") speaks of the GPU `measured`, a name or a slug
    of one, or of one with the same chip."""
    said = re.sub(r"\d+ ?GB", "", said, flags=re.IGNORECASE)
    ours, theirs = ([CHIPS.get(w, w) for w in re.findall(r"[a-z0-9]+", s.lower())] for s in (measured, said))
    for i in range(len(ours) - len(theirs) + 1):
        if ours[i : i + len(theirs)] == theirs and not set(ours[i + len(theirs) :][:1]) & {*_OTHERS}:
            return True
    return False


def _outcome(claim: Claim, e: Evidence) -> Outcome:
    rule = claim.rule
    e = e.only(rule.at, rule.repeats)
    try:
        outcome = measures.outcome(rule, e, claim.experiment)
        outcome = replace(outcome, rests=tuple(sorted(e.seen)))
    except NotMeasured as missing:
        outcome = Outcome(NOT_MEASURED, "—", str(missing))
    why = [outcome.why]
    if rule.at and outcome.verdict != NOT_MEASURED:
        why.append(f"Judged at {e.kept}.")
    if any(SERIES in experiment for experiment in claim.experiment):
        why.append("Judged by the series that the source published, not by this GPU's records.")
    if any(name.startswith(OTHERS) for name in claim.experiment) and outcome.verdict != NOT_MEASURED:
        why.append("Judged by the authors' own code, run on this GPU, and not by kernels of ours.")
    if rule.repeats and outcome.verdict != NOT_MEASURED:
        why.append(f"Judged by the geometric means of the runs; {_each_run(claim, e)}.")
    if rule.also_over and outcome.verdict != NOT_MEASURED:
        with contextlib.suppress(NotMeasured):
            over = rule.quantity.parameters | {"over": rule.also_over}
            other = replace(rule, quantity=replace(rule.quantity, parameters=over))
            beside = measures.outcome(other, e, claim.experiment)
            library = registry.library(rule.also_over)
            why.append(f"Against {library}: {beside.measured} ({measures.said(beside.verdict, claim.extension)}).")
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
