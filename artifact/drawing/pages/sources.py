"""What the built book makes of files: names of kernels' files as links to them, and tables of what the examples measured.

The examples' records are examples/recorded/<gpu>.csv, which `--record` writes; the page on the library shows them.
"""

import re
from pathlib import Path

import pandas as pd

from artifact.book import text
from artifact.drawing.plot import SUPERSCRIPTS
from artifact.paths import ROOT
from artifact.verdicts import judge

#: Where the copies lie, seen from a page; with an ending that browsers show instead of saving.
FOLDER, ENDING = "sources", ".txt"
#: A name of a file in code: what Sphinx makes of Markdown, and what tables hold.
NAMED = re.compile(
    r'(?P<link><a [^>]*>\s*)?<code[^>]*>(?:<span class="pre">)?(?P<name>[\w/]+\.cuh?)(?:</span>)?</code>'
)


def linked(page: str, name: str, root: Path = ROOT) -> tuple[str, dict[str, str]]:
    """Return the page, and the files that it links to: path seen from the page -> text. name: of the page, without ending.

    A file of the system whose chapter the page is comes first; a name that several other folders have, or none, stays as
    it is.
    """
    files: dict[str, str] = {}

    def replaced(found: re.Match) -> str:
        said, kernels = found["name"].removeprefix("kernels/"), root / "kernels"
        near = [path for path in (kernels / name / said, kernels / said) if path.is_file()]
        meant = near[:1] or list(kernels.glob(f"*/{said}"))
        if len(meant) != 1 or found["link"]:
            return found[0]
        to = f"{FOLDER}/{meant[0].relative_to(root).as_posix()}{ENDING}"
        files[to] = meant[0].read_text(encoding="utf-8")
        return text.part("source", to, found[0])

    return NAMED.sub(replaced, page), files


# ---------------------------------------------------------------- examples

RECORDED = ROOT / "examples" / "recorded"
NONE = (
    "No record of these examples has been made yet, so this page shows none of their numbers. What the kernels behind "
    "them reach is measured in the chapters of their systems."
)
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
    ours, ran = us / us.iloc[0], us.notna()
    error = pd.to_numeric(df["error"]).map("{:.1e}".format).str.split("e", expand=True).reindex(columns=[0, 1])
    power = pd.to_numeric(error[1]).map("{:.0f}".format)  # in 2.1 · 10⁻⁴, which stays in one line
    shown = pd.DataFrame(
        {
            # What a kernel was set to is for the record.
            "": df["contender"].str.replace(r"(?<=[\w)]) \w+=[^\s),]*", "", regex=True),
            "microseconds": us.map("{:,.1f}".format).where(ran, df["note"]),
            "times as long as ours": ours.map("{:.2f}".format).where(ran, ""),
            "error": (error[0] + "\u202f·\u202f10" + power.str.translate(SUPERSCRIPTS)).where(ran, ""),
        }
    )
    caption = f"`{first['example']}`, {first['problem']}, on an {first['gpu']}, {df['when'].max()}."
    return f":::{{table}} {caption}\n\n{judge.table(shown, right=3)}\n\n:::"
