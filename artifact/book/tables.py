"""Tables as data: which columns of a DataFrame a page shows, what they are called there, and how a value is written.

A system's `tables.toml` has a table for each:

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

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pandas as pd
from IPython.display import display
from pandas.io.formats.style import Styler

from artifact import registry
from artifact.book import text
from artifact.drawing import plot, style

FILE = "tables.toml"
COLUMN = registry.keys({"of": str}, {"title": str, "as": str})
TABLE = registry.keys(
    {"caption": str},
    {
        "columns": list[COLUMN],  # type: ignore[valid-type]
        "na": str,
        "fold": str,
        "prose": bool,
        "rows": list[list[str]],
    },
)
LEFT = [{"selector": cell, "props": "text-align: left"} for cell in ("td", "th")]
Spec = Mapping[str, Any]
#: Name of a format: the filters of templates, a contender's name, text in which `backticks` mark code.
FORMATS = text.FILTERS | {"name": style.name, "code": text.code, "number": plot.number}


@cache
def specs(system: str) -> dict[str, Spec]:
    """Return what a system, or the pages of none ("book"), say of their tables, by their names.

    Raises ValueError for a key that is none.
    """
    path = registry.home(system) / FILE
    return {name: registry.checked(TABLE, spec, f"{path}, [{name}]") for name, spec in registry.toml(path).items()}


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
    return made.set_caption(text.code(text.rendered(spec["caption"], facts or {})))


def shown(system: str, name: str, styler: Styler, spec: Spec, caption: str, fold: str = "") -> text.Shown:
    """Keep the data of a table that `styled` made, and return what displays it."""
    words = styler.data.select_dtypes(exclude="number").columns
    head, *rows = [
        " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in line.split("\x1f"))
        for line in styler.to_string(delimiter="\x1f").splitlines()
    ]
    rule = " | ".join(":--" if column in words else "--:" for column in styler.data)
    body = "\n".join(f"| {line} |" for line in (head, rule, *rows))
    about = f":name: {system}-{name}".replace("_", "-") + f"\n:class: {'prose' if spec.get('prose') else 'numbers'}"
    table = f":::{{table}} {caption} {{data}}\n{about}\n\n{body}\n:::"
    return text.Shown(table, styler.to_html(), caption, text.kept(system, name, styler.data), fold)


def tabler(system: str, said: text.Text | None = None) -> Callable[..., None]:
    """Return a chapter's `table(name, df)`, which displays a table of the system's file and keeps its data.

    said: the chapter's text, whose facts captions may name. A table without rows shows nothing; without `df` it is what
    its specification writes out itself. One that is shown again has a number behind its name.
    """
    known, times = specs(system), Counter[str]()

    def table(name: str, df: pd.DataFrame | None = None) -> None:
        spec, facts = known[name], said.facts if said else {}
        df = rows(spec, facts) if df is None else df
        if df is None or df.empty:
            return
        times[name] += 1
        called = f"table-{name}" + f"-{times[name]}" * (times[name] > 1)
        caption, fold = (text.rendered(spec.get(key, ""), facts) for key in ("caption", "fold"))
        display(shown(system, called, styled(df, spec, facts), spec, caption, fold))

    return table


def _columns(df: pd.DataFrame, spec: Spec) -> Iterator[tuple[str, str, str | Callable | None]]:
    """Yield title, column and format of what is shown."""
    for column in spec.get("columns", ()):
        found = re.compile(column["of"]).search if column["of"].startswith("^") else column["of"].__eq__
        for of in filter(found, df.columns):
            yield column.get("title", of), of, FORMATS.get(column.get("as", ""), column.get("as"))
