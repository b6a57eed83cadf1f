"""Tables as data: which columns of a DataFrame a page shows, what they are called there, and how a value is written.

A room's `tables.toml` has a table for each:

    [readings]
    caption = "How near each reading comes to the published times."     a template over the chapter's facts
    columns = [
        { title = "reading", of = "reading", as = "name" },             one of FORMATS,
        { title = "rms error", of = "rms_error", as = "{:.2f}" },       or a format of Python
        { of = "^sm_", as = "{:.0f}" },                                 all columns that a pattern finds, by their names
    ]
    na = "–"                                                            what stands where there is no value
    fold = "The counters"                                               the table unfolds, and is called so
    prose = true                                                        columns of sentences, which may be wide
    rows = [["T1", "{{ took.environment }}"]]                           the table itself: templates over facts

A column that the DataFrame lacks is left out; without `columns`, all are shown. Numbers stand on the right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import display
from pandas.io.formats.style import Styler

from artifact import paths, registry
from artifact.book import text
from artifact.drawing import plot, prose, style
from artifact.measure import records

FILE = "tables.toml"
KEYS = {"caption", "columns", "na", "fold", "prose", "rows"}
COLUMN_KEYS = {"title", "of", "as"}
LEFT = [{"selector": cell, "props": "text-align: left"} for cell in ("td", "th")]
Spec = Mapping[str, Any]
#: Name of a format: the filters of templates, a contender's name, text in which `backticks` mark code.
FORMATS = text.FILTERS | {"name": style.name, "code": prose.inline_code, "number": plot.number}


@cache
def specs(room: str) -> dict[str, Spec]:
    """Return what a room, or the pages of none ("book"), say of their tables, by their names. Raises ValueError for a
    key that is none."""
    path = registry.home(room) / FILE
    found = registry.toml(path)
    for name, spec in found.items():
        wrong = {*spec} - KEYS | {key for column in spec.get("columns", ()) for key in {*column} - COLUMN_KEYS}
        if wrong or "caption" not in spec:
            raise ValueError(f"{path}, [{name}]: a table has a caption and, of its columns, not {sorted(wrong)}.")
    return found


def rows(spec: Spec, facts: Mapping[str, Any]) -> pd.DataFrame | None:
    """Return the table that a specification writes out itself, filled; None of one that shows a DataFrame."""
    columns = [column["of"] for column in spec.get("columns", ())]
    cells = [[text.rendered(cell, facts) for cell in row] for row in spec.get("rows", ())]
    return pd.DataFrame(cells, columns=columns) if cells else None


def styled(df: pd.DataFrame, spec: Spec, facts: Mapping[str, Any] | None = None) -> Styler:
    """Return `df` as its specification writes it; facts: what the caption may name."""
    columns = [*_columns(df, spec)] or [(name, name, None) for name in df]
    shown = pd.DataFrame({title: df[of] for title, of, _ in columns})
    formats = {title: form for title, _, form in columns if form is not None}
    words: Any = {name: LEFT for name in shown.select_dtypes(exclude="number")}
    made = Styler(shown, cell_ids=False).hide(axis="index").format(formats, precision=2, na_rep=spec.get("na", ""))
    made.set_table_styles(words).set_table_attributes(f'class="dataframe{" prose" * spec.get("prose", False)}"')
    return made.set_caption(prose.inline_code(text.rendered(spec["caption"], facts or {})))


@dataclass(frozen=True)
class Shown:
    """A table as a notebook displays it: in the book as one that Sphinx numbers, in JupyterLab as HTML."""

    styler: Styler
    number: str  #: what references to it are called
    caption: str
    csv: Path
    fold: str = ""
    prose: bool = False

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/markdown": self.markdown, "text/html": self.styler.to_html(), "text/plain": self.caption}

    @property
    def markdown(self) -> str:
        """A directive of MyST, which Sphinx numbers; the data are beside it to download."""
        shown = self.styler.data
        words = shown.select_dtypes(exclude="number").columns
        rule = [":--" if column in words else "--:" for column in shown]
        head, *rows = self.styler.to_string(delimiter="\x1f").splitlines()
        lines = [" | ".join(cells) for cells in ([_cell(c) for c in line.split("\x1f")] for line in (head, *rows))]
        body = "\n".join(f"| {line} |" for line in (lines[0], " | ".join(rule), *lines[1:]))
        about = f":name: {self.number}\n:class: {'prose' if self.prose else 'numbers'}"
        table = f":::{{table}} {self.caption} {text.download(self.csv)}\n{about}\n\n{body}\n:::"
        return text.folded(table, self.fold)


def _cell(text: str) -> str:
    """A cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").split())


def tabler(room: str, said: text.Text | None = None) -> Callable[..., None]:
    """Return a chapter's `table(name, df)`, which displays a table of the room's file and keeps its data.

    said: the chapter's text, whose facts captions may name. A table without rows shows nothing; without `df` it is what
    its specification writes out itself. One that is shown again has a number behind its name.
    """
    known, shown = specs(room), Counter[str]()

    def table(name: str, df: pd.DataFrame | None = None) -> None:
        spec, facts = known[name], said.facts if said else {}
        df = rows(spec, facts) if df is None else df
        if df is None or df.empty:
            return
        made = styled(df, spec, facts)
        shown[name] += 1
        called = f"table-{name}" + f"-{shown[name]}" * (shown[name] > 1)
        csv = Path(paths.FIGURES) / room / f"{called}.csv"
        records.write_text(csv, made.data.to_csv(index=False, lineterminator="\n"))
        about = (text.rendered(spec["caption"], facts), csv, text.rendered(spec.get("fold", ""), facts))
        display(Shown(made, f"{room}-{called}".replace("_", "-"), *about, spec.get("prose", False)))

    return table


def _columns(df: pd.DataFrame, spec: Spec) -> Iterator[tuple[str, str, str | Callable | None]]:
    """Yield title, column and format of what is shown."""
    for column in spec.get("columns", ()):
        found = re.compile(column["of"]).search if column["of"].startswith("^") else column["of"].__eq__
        for of in filter(found, df.columns):
            yield column.get("title", of), of, _format(column.get("as"))


def _format(said: str | None) -> str | Callable | None:
    return None if said is None else FORMATS.get(said, said)
