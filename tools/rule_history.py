"""Begin the log of rules with the history: every change of a claim's rule, read from Git.

    python tools/rule_history.py && python -m artifact.verdicts.rules

Walks the commits of the main line. A rule is what `rules.text` says of it today, its contenders and experiments by the
names that they have now (RENAMED), the source's numbers in place. The first claims named one `measure` each; PARTED put
quantity, reducer and expectation in its place and changed no verdict. A rule before that which differs in numbers alone
stands in the log as PARTED has it, with these numbers. One whose functions are gone is, where the next one has its
numbers and contenders, that next one in other words; else the log has its text as it was, which nothing judges.
"""

import json
import re
import subprocess
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from artifact.measure import records
from artifact.verdicts import judge, load, rules

PARTED = "050a4d69"
PLACES = ("artifact/claims.toml", "artifact/published", "artifact/rooms", "artifact/systems")
RENAMED = {
    r'"tf32"': '"spmm_tf32"',
    "tflops_of_the_set": "tflops",
    r"(tflops|speedup)_denser": r"\1",
    r'\bbeside = "(?=given|opt5|TorchAO|BCSR|cuSPARSE|ffn)': 'against = "',
}
INHERITED = {"note", "reason", "contradicts", "like"}  #: of a claim, but not by one that is like it
KEPT = ("experiment", "at", "repeats", "set", *load.measures.PARTS, "measure", "rule")  #: of what is not judged
Rules = dict[str, tuple[str, str]]  #: id -> what a claim says, its rule
KNOWN = {claim.id: claim for claim in load.claims()}
READ: dict[str, str] = {}  #: a claim's table and its source's numbers -> its rule


def git(*words: str) -> bytes:
    """Return what Git says."""
    return subprocess.run(["git", *words], capture_output=True, check=True).stdout


def at(commit: str) -> Rules:
    """Return the rules of all claims as a commit has them."""
    listed = git("ls-tree", "-r", "--name-only", commit, *PLACES).decode().splitlines()
    wanted = [name for name in listed if re.search(r"claims\.toml$|published/.*\.csv$", name)]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["tar", "-x", "-C", folder], input=git("archive", commit, *wanted), check=True)
        return {i: found for path in sorted(Path(folder).rglob("claims.toml")) for i, found in of_file(path)}


def of_file(path: Path) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the id of each claim of a file, what it says and its rule."""
    text = path.read_text()
    seen: dict[str, dict[str, Any]] = {}
    for word, now in RENAMED.items():
        text = re.sub(word, now, text)
    for table in tomllib.loads(text).get("claim", ()):
        like = {k: v for k, v in seen.get(table.get("like", ""), {}).items() if k not in INHERITED}
        seen[table["id"]] = table = like | table
        said = table["published"]
        source = path.parent / "published" / f"{said['figure']}.csv" if isinstance(said, dict) else path
        key = json.dumps(table, sort_keys=True) + (source.read_text() if source != path and source.is_file() else "")
        READ[key] = READ.get(key) or ruled(table, path)
        yield table["id"], (table["says"], READ[key])


def ruled(table: dict[str, Any], path: Path) -> str:
    """Return the rule of a claim, as text: that of `rules.text`, or JSON of what cannot be judged any more."""
    numbers: dict[str, float] = {}
    experiments, said = tuple(table["experiment"]), table["published"]
    claim = KNOWN.get(table["id"]) or next(iter(KNOWN.values()))
    try:
        if isinstance(said, dict):
            numbers, _ = load.quoted(said, path.parent / "published", table["id"])
        rule = load._rule(table, experiments, numbers, claim.room, table["id"], 1.0)
    except (KeyError, ValueError, OSError):
        return json.dumps({k: table[k] for k in KEPT if k in table} | {"published": numbers}, sort_keys=True)
    return rules.text(replace(claim, rule=rule, experiment=experiments, set=table.get("set", False)))


def judgeable(rule: str) -> bool:
    """Tell whether a rule can be judged."""
    return not rule.startswith('{"')


def flat(value: Any, place: str = "") -> dict[str, Any]:
    """Return the place of each value in tables and lists -> the value."""
    if not isinstance(value, dict | list):
        return {place: value}
    items = value.items() if isinstance(value, dict) else enumerate(value)
    return {k: v for key, some in items for k, v in flat(some, f"{place}.{key}").items()}


def carried(was: str, old: str, new: str) -> str:
    """Return the rule `was` as PARTED would have it, which made `old` `new`; as it is where that does not tell."""
    before, after = flat(json.loads(was)), flat(json.loads(old))
    for key in {k for k in before.keys() | after.keys() if before.get(k) != after.get(k)}:
        if not isinstance(before.get(key), int | float) or not isinstance(after.get(key), int | float):
            return was
        place = rf"(?<![\w.]){re.escape(judge.written(after[key]))}(?![\w.])"
        if len(re.findall(place, new)) != 1:
            return was
        new = re.sub(place, judge.written(before[key]), new)
    return new


def same(was: str, now: str) -> bool:
    """Tell whether a rule that cannot be judged has the numbers, experiments and contenders of one that can."""
    old, new = json.loads(was), tomllib.loads(f"rule = {now}")["rule"]
    if old["experiment"] != new["experiment"] or old.get("at", {}) != new.get("at", {}):
        return False
    mine, others = flat([old.get("expect"), old.get("quantity")]).values(), [*flat(new).values()]
    said = {v for v in mine if v not in ("published", True, False) and v != old.get("quantity", {}).get("also_over")}
    return "expect" in old and said | {*old["published"].values()} <= {*others}


def history() -> pd.DataFrame:
    """Return date, commit, claim and rule of every change."""
    walked = git("log", "--first-parent", "--reverse", "--format=%h %as", "--", *PLACES).decode().split()
    parted, now = at(f"{PARTED}^"), at(PARTED)
    lines: list[dict[str, str]] = []
    last: Rules = {}
    names: dict[str, str] = {}
    for commit, date in zip(walked[::2], walked[1::2], strict=True):
        found = at(commit)
        gone = {said: i for i, (said, _) in last.items() if i not in found}
        names |= {gone[said]: i for i, (said, _) in found.items() if i not in last and said in gone}
        for i, (_, rule) in found.items():
            if "measure" in rule and i in parted and judgeable(now.get(i, ("", "{"))[1]):
                rule = carried(rule, parted[i][1], now[i][1])
            lines.append({"date": date, "commit": commit, "claim": i, "rule": rule})
        last = found
    df = pd.DataFrame(lines)
    while (again := df["claim"].replace(names)).ne(df["claim"]).any():
        df["claim"] = again
    return df[df["claim"].isin(KNOWN.keys())]


def main() -> None:
    """Write the log anew."""
    df = history()
    found: list[dict[str, str]] = []
    for _, lines in df.groupby("claim", sort=False):
        told = lines.to_dict("records")
        for line, after in reversed([*zip(told, told[1:], strict=False)]):
            if not judgeable(line["rule"]) and judgeable(after["rule"]) and same(line["rule"], after["rule"]):
                line["rule"] = after["rule"]
        found += [line for line, before in zip(told, [{}, *told], strict=False) if line["rule"] != before.get("rule")]
    log = pd.DataFrame(found).assign(before="", verdict="")
    log["sha256"] = log["rule"].map(rules.digest)
    records.write_text(rules.FILE, log[list(rules.COLUMNS)].to_csv(index=False))


if __name__ == "__main__":
    main()
