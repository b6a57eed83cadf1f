"""What the examples measured, for the page on the library: examples/recorded/<gpu>.csv, which `--record` writes."""

from __future__ import annotations

import csv
import re
from itertools import groupby
from pathlib import Path

from artifact.drawing.plot import SUPERSCRIPTS
from artifact.paths import ROOT

RECORDED = ROOT / "examples" / "recorded"
NONE = (
    "No record of these examples has been made yet, so this page shows none of their numbers. What the kernels behind "
    "them reach is measured in the chapters of their rooms."
)
#: What a kernel was set to, which is for the record.
SETTINGS = re.compile(r"(?<=[\w)]) \w+=[^\s),]*")
COLUMNS = ("example", "problem", "contender", "us", "error", "note", "gpu", "when")


def tables(folder: Path = RECORDED) -> str:
    """A table in MyST Markdown for each example, problem and GPU on record, or one sentence where there is none.

    Raises ValueError, one sentence, for a file that is no such record.
    """
    made = []
    for path in sorted(folder.glob("*.csv")) if folder.is_dir() else ():
        with path.open(newline="", encoding="utf-8") as file:
            table = csv.DictReader(file)
            if tuple(table.fieldnames or ()) != COLUMNS:
                raise ValueError(
                    f"{path.name} has the columns {', '.join(table.fieldnames or ())}, but a record of the examples "
                    f"has {', '.join(COLUMNS)}: write it with --record"
                )
            rows = list(table)
        for head, of in groupby(rows, lambda row: [row[x] for x in ("example", "problem", "gpu")]):
            made.append(_table(*head, list(of)))
    return "\n\n".join(made) or NONE


def _table(example: str, problem: str, gpu: str, rows: list[dict[str, str]]) -> str:
    day = max(row["when"] for row in rows)
    lines = [
        f":::{{table}} `{example}`, {problem}, on an {gpu}, {day}.",
        "",
        "| | microseconds | times as long as ours | error |",
        "|---|---:|---:|---:|",
    ]
    ours = float(rows[0]["us"])
    for row in rows:
        name = SETTINGS.sub("", row["contender"])
        if row["us"] == "":
            lines.append(f"| {name} | {row['note']} | | |")
            continue
        us = float(row["us"])
        lines.append(f"| {name} | {us:,.1f} | {us / ours:.2f} | {_power(float(row['error']))} |")
    return "\n".join([*lines, "", ":::"])


def _power(x: float) -> str:
    """2.1 · 10⁻⁴, which stays in one line."""
    digits, exponent = f"{x:.1e}".split("e")
    raised = str(int(exponent)).translate(SUPERSCRIPTS)
    return f"{digits}\u202f·\u202f10{raised}"
