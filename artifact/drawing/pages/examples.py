"""What the examples measured, for the page on the library: examples/recorded/<gpu>.csv, which `--record` writes."""

import re
from pathlib import Path

import pandas as pd

from artifact.drawing.plot import SUPERSCRIPTS
from artifact.paths import ROOT
from artifact.verdicts import page

RECORDED = ROOT / "examples" / "recorded"
NONE = (
    "No record of these examples has been made yet, so this page shows none of their numbers. What the kernels behind "
    "them reach is measured in the chapters of their systems."
)
#: What a kernel was set to, which is for the record.
SETTINGS = re.compile(r"(?<=[\w)]) \w+=[^\s),]*")
COLUMNS = ("example", "problem", "contender", "us", "error", "note", "gpu", "when")


def tables(folder: Path = RECORDED) -> str:
    """Return a table in MyST Markdown for each example, problem and GPU on record, or one sentence where there is none.

    Raises ValueError, one sentence, for a file that is no such record.
    """
    made = []
    for path in sorted(folder.glob("*.csv")):
        df = pd.read_csv(path, dtype=str, keep_default_na=False)
        if tuple(df.columns) != COLUMNS:
            raise ValueError(
                f"{path.name} has the columns {', '.join(df.columns)}, but a record of the examples "
                f"has {', '.join(COLUMNS)}: write it with --record"
            )
        run = df[["example", "problem", "gpu"]].ne(df[["example", "problem", "gpu"]].shift()).any(axis=1).cumsum()
        made += [_table(rows) for _, rows in df.groupby(run)]
    return "\n\n".join(made) or NONE


def _table(df: pd.DataFrame) -> str:
    first, us = df.iloc[0], pd.to_numeric(df["us"])
    ours, error = us / us.iloc[0], pd.to_numeric(df["error"])
    ran = us.notna()
    shown = pd.DataFrame(
        {
            "": df["contender"].str.replace(SETTINGS, "", regex=True),
            "microseconds": us.map("{:,.1f}".format).where(ran, df["note"]),
            "times as long as ours": ours.map("{:.2f}".format).where(ran, ""),
            "error": error.map(_power, na_action="ignore").where(ran, ""),
        }
    )
    caption = f"`{first['example']}`, {first['problem']}, on an {first['gpu']}, {df['when'].max()}."
    return f":::{{table}} {caption}\n\n{page.table(shown, right=3)}\n\n:::"


def _power(x: float) -> str:
    """Write 2.1 · 10⁻⁴, which stays in one line."""
    digits, exponent = f"{x:.1e}".split("e")
    return f"{digits}\u202f·\u202f10{str(int(exponent)).translate(SUPERSCRIPTS)}"
