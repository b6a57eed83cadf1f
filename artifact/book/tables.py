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
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pandas as pd
from pandas.io.formats.style import Styler

from artifact import registry
from artifact.book import text
from artifact.drawing import plot, prose, style

FILE = "tables.toml"
PAGES = "book"  #: stands for a room on pages that are of none
KEYS = {"caption", "columns", "na", "fold", "prose", "rows"}
COLUMN_KEYS = {"title", "of", "as"}
LEFT = [{"selector": cell, "props": "text-align: left"} for cell in ("td", "th")]
Spec = Mapping[str, Any]
#: Name of a format: the filters of templates, a contender's name, text in which `backticks` mark code.
FORMATS = text.FILTERS | {"name": style.name, "code": prose.inline_code, "number": plot.number}


@cache
def specs(room: str) -> dict[str, Spec]:
    """Return what a room, or PAGES, says of its tables, by their names. Raises ValueError for a key that is none."""
    path = (text.PAGES if room == PAGES else registry.FOLDER / room) / FILE
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


def _columns(df: pd.DataFrame, spec: Spec) -> Iterator[tuple[str, str, str | Callable | None]]:
    """Yield title, column and format of what is shown."""
    for column in spec.get("columns", ()):
        found = re.compile(column["of"]).search if column["of"].startswith("^") else column["of"].__eq__
        for of in filter(found, df.columns):
            yield column.get("title", of), of, _format(column.get("as"))


def _format(said: str | None) -> str | Callable | None:
    return None if said is None else FORMATS.get(said, said)
