"""The log of rules: every rule that a claim has had, and what each says of today's records.

A rule that changes after its value is known may have changed for it. So each stands in rules.csv, beside the records,
one line a rule, those of a claim in the order of time: the date, the commit that brought it or on which it was
written, the claim, its verdict on today's records by the rule before and by this one, the SHA-256 of the rule, and the
rule itself with all its numbers, so that it can be judged again. A test refuses a claim whose rule has no line;
`python -m artifact.verdicts.rules` adds the lines that are missing, and judges every rule of the log anew. Who renames
what rules name renames it in the log, too: that is no change. A rule whose functions are gone keeps the verdict that it
had, or is "not comparable".
"""

import contextlib
import datetime
import hashlib
import inspect
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from artifact import command, paths
from artifact.measure import device, records
from artifact.verdicts import judge, load, measures
from artifact.verdicts.load import Claim

FILE = paths.RECORDED / "rules.csv"
COLUMNS = ("date", "commit", "claim", "before", "verdict", "sha256", "rule")
NOT_COMPARABLE = "not comparable"
WAYS = ("up", "down", "same", "neither")  #: in which a verdict moves
#: Groups of verdicts, the best first; those that decide nothing are in none.
RANKS = [measures.HOLDS, (measures.PARTLY,), measures.FAILS]


def text(claim: Claim) -> str:
    """Return all that decides a claim's verdict, on one line: its experiments, and the parts of its rule.

    A part has the name of its function and those of its parameters that are not the default.
    """
    rule = claim.rule
    beside = {"at": dict(rule.at), "repeats": rule.repeats, "set": claim.set}
    found = {"experiment": list(claim.experiment)} | {key: value for key, value in beside.items() if value}
    for name in measures.PARTS:
        part = getattr(rule, name)
        usual = inspect.signature(part.func).parameters
        said = {key: value for key, value in part.keywords.items() if value != usual[key].default}
        found[name] = {"function": part.func.__name__, **said}
    return judge.written(found)


def digest(rule: str) -> str:
    """Return the first 12 digits of the SHA-256 of a rule."""
    return hashlib.sha256(rule.encode()).hexdigest()[:12]


def log() -> pd.DataFrame:
    """Return the log, all its columns as text."""
    return pd.read_csv(FILE, dtype=str, keep_default_na=False)


def missing(claims: Sequence[Claim], log: pd.DataFrame) -> list[Claim]:
    """Return the claims whose rule is not the last one that the log has of them."""
    last = log.drop_duplicates("claim", keep="last").set_index("claim")["sha256"]
    return [claim for claim in claims if last.get(claim.id) != digest(text(claim))]


def again(claim: Claim, rule: str, name: str) -> Claim:
    """Return a claim with another rule, as `text` has it, and another id; ValueError where a function of it is gone."""
    table = tomllib.loads(f"rule = {rule}")["rule"]
    words = {key: {table[key].pop("function"): None, **table[key]} for key in measures.PARTS}
    parts: dict[str, Any] = {key: measures.part(key, said, claim.room, name) for key, said in words.items()}
    made = replace(claim.rule, **parts, at=table.get("at", {}), repeats=table.get("repeats", False))
    seen: dict[str, Any] = {"experiment": tuple(table["experiment"]), "typed": dict.fromkeys(table["experiment"], 0)}
    return replace(claim, id=name, rule=made, set=table.get("set", False), reason="", **seen)


def judged(log: pd.DataFrame, claims: Sequence[Claim]) -> pd.DataFrame:
    """Return the log with the digest of each rule, and its verdict and that before by the GPU that decides."""
    known, made = {claim.id: claim for claim in claims}, []
    for line in log.itertuples():
        with contextlib.suppress(ValueError, KeyError):
            made.append(again(known[line.claim], line.rule, str(line.Index)))
    found = judge.by_decider(made, judge.shipped()).set_index("id")["verdict"].rename(int)
    verdict = found.reindex(log.index).fillna(log["verdict"].replace("", NOT_COMPARABLE))
    before, sha256 = verdict.groupby(log["claim"]).shift(fill_value=""), log["rule"].map(digest)
    return log.assign(verdict=verdict, before=before, sha256=sha256)


def changes(log: pd.DataFrame) -> pd.DataFrame:
    """Return the lines of the log that change a rule, with `old`, the rule before, and `way`, one of WAYS.

    It is how the verdict on today's records moves; "neither" where one of the two decides nothing.
    """
    df = log.assign(old=log.groupby("claim")["rule"].shift()).dropna(subset="old")
    ranks = {verdict: rank for rank, verdicts in enumerate(RANKS) for verdict in verdicts}
    down = df["verdict"].map(ranks) - df["before"].map(ranks)
    return df.assign(way=np.select([down < 0, down > 0, down == 0], WAYS[:3], WAYS[3]))


@command.program(
    "artifact.verdicts.rules", "Write the lines that the log of rules lacks, and judge all its rules anew."
)
def main(_: command.Options) -> None:
    """Say how many lines were written."""
    told, claims = log(), load.claims()
    seen = {"date": datetime.date.today().isoformat(), "commit": device.commit()}
    new = [seen | {"claim": c.id, "sha256": digest(text(c)), "rule": text(c)} for c in missing(claims, told)]
    table = pd.concat([told, pd.DataFrame(new, columns=told.columns)]).fillna("").reset_index(drop=True)
    records.write_text(FILE, judged(table, claims).to_csv(index=False))
    print(f"{FILE}: {len(new)} new of {len(table)} lines.")


if __name__ == "__main__":
    raise SystemExit(main())
