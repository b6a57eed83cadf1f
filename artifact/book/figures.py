"""Figures and tables as data: what a page shows of a DataFrame a system's figures.toml and tables.toml say.

`charts` draws a figure, Sphinx numbers both.

    [real]
    kind = "dots"                                   of `charts`, with its arguments below; none for a picture by code
    y = "matrix"
    x = "speedup"
    hue = "variant"
    caption = "Speedup on each of {{ real.matrices }} real matrices."       a template over the chapter's facts
    where = { variant = ["auto", "cusparse_best"] }  which measured rows are drawn; the CSV has all
    alt = "Dots, a row for each matrix"             a sentence's beginning; the values are added from the data
    fold = "Time and throughput"                    the figure unfolds, and is called so
    like = "wide"                                   it has all that the one above of that name says and it does not

`show("real", df)` of a chapter draws the table, saves the figure as SVG with its CSV beside it, and displays it: in the
book as a numbered figure, in JupyterLab as an image. The table may hold more columns than are drawn.

A system's `tables.toml` has for each table which columns of a DataFrame it shows, what they are called there, and how a
value is written:

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

import html
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from IPython.display import display
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from pandas.io.formats.style import Styler
from pydantic import ConfigDict

from artifact import paths, registry
from artifact.book import charts, text
from artifact.drawing import plot, style
from artifact.measure import records

#: What of a specification is no argument of its kind.
ABOUT = ("kind", "caption", "alt", "fold", "at", "by", "how", "where")
Spec = Mapping[str, Any]
#: What every kind has; its arguments stand beside them.
FIGURE = registry.keys(
    {"caption": str, "alt": str},
    {"kind": Literal[tuple(charts.KINDS)], "how": Literal["ends", "means", "each", "none"]}
    | {"fold": str, "where": dict[str, list]},
    ConfigDict(extra="allow", strict=True),
)


TABLE = registry.keys(
    {"caption": str},
    {
        "columns": list[registry.keys({"of": str}, {"title": str, "as": str})],  # type: ignore[misc]
        "na": str,
        "fold": str,
        "prose": bool,
        "rows": list[list[str]],
    },
)
LEFT = [{"selector": cell, "props": "text-align: left"} for cell in ("td", "th")]
#: Name of a format: the filters of templates, a contender's name, text in which `backticks` mark code.
FORMATS = text.FILTERS | {"name": style.name, "code": text.code, "number": plot.number}


@cache
def specs(system: str, kind: str = "figures") -> dict[str, Spec]:
    """Return what a system, or the pages of none ("book"), say of their figures or their tables, by their names.

    Raises ValueError for a key, or a kind of figure, that is none.
    """
    path, schema = registry.home(system) / f"{kind}.toml", TABLE if kind == "tables" else FIGURE
    specified = registry.toml(path).items() if path.is_file() else ()
    return {name: registry.checked(schema, spec, f"{path}, [{name}]") for name, spec in specified}


def drawn_rows(spec: Spec, df: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are drawn: of what was measured those that `where` names, in its order, and all others."""
    for column, values in spec.get("where", {}).items():
        other = df["source"].isin([charts.STATED, charts.CEILING]) if "source" in df else pd.Series(False, df.index)
        place = df[column].map({value: i for i, value in enumerate(values)})
        df = df[place.notna() | other].assign(_place=place).sort_values("_place", kind="stable").drop(columns="_place")
    return df


def draw(spec: Spec, df: pd.DataFrame, order: tuple[str, ...] = (), names: Mapping[str, str] | None = None) -> Figure:
    """Return the rows that are drawn (`drawn_rows`), as their specification says.

    order: a system's variants, for their looks; names: what it calls them.
    """
    arguments = {k: v for k, v in spec.items() if k not in ABOUT}
    common = {f.name: arguments.pop(f.name) for f in fields(charts.About) if f.name in arguments}
    common = {"order": order} | common | {"names": {**(names or {}), **common.get("names", {})}}
    return charts.KINDS[spec["kind"]](df, charts.About(**common), **arguments)


# ---------------------------------------------------------------- what a figure shows, in words


def alt(spec: Spec, df: pd.DataFrame) -> str:
    """Return the alternative text: the sentence of the specification, and the values in the rows that are drawn.

    `how` chooses which values: "ends" along x (lines), "means" of each `hue`, "each" sum or "none"; by default
    what suits the kind. `by` is the column of those whose values are said, `at` one whose values are told apart;
    by default hue and col. What is stated is said apart.
    """
    said, kind = spec["alt"], spec.get("kind", "")
    how = spec.get("how", {"lines": "ends", "": "none"}.get(kind, "means"))
    if how == "none":
        return f"{said}.".replace("..", ".")
    upward = kind in ("lines", "cloud")
    first = spec["y"] if upward else spec.get("value", spec["x"])
    value = first if isinstance(first, str) else first[0]
    by = spec.get("by") or spec.get("hue") or ("variant" if upward else spec["y"])
    at = spec.get("at", spec.get("col", ""))
    df, texts = df.dropna(subset=[value, by, *filter(None, (at, spec["x"] if how == "ends" else ""))]), []
    for source, rows in df.groupby(df.get("source", pd.Series(charts.MEASURED, df.index)), sort=False):
        parts = {f"{_level(at, where)}: ": part for where, part in rows.groupby(at, sort=False)} if at else {"": rows}
        named = {where: part.groupby(part[by].astype(str).map(style.name), sort=False) for where, part in parts.items()}
        each = (
            where + text.listed(f"{name} {_told(own, value, how, spec['x'])}" for name, own in of)
            for where, of in named.items()
        )
        texts.append(f"{source}: " * (source != charts.MEASURED) + "; ".join(each))
    return f"{said}: {'. '.join(texts)}." if texts else f"{said}."


def _told(rows: pd.DataFrame, value: str, how: str, along: str) -> str:
    """Say the sum of values or their mean and range.

    Or of ends the mean at the least and at the largest `along`, and the largest on the way where that is neither.
    """
    low, high = rows[value].min(), rows[value].max()
    if how == "each":
        return _short(rows[value].sum())
    if how == "means":
        return _short(_mean(rows[value])) + f" ({_short(low)} to {_short(high)})" * bool(low != high)
    course = rows.groupby(along)[value].agg(_mean)
    if len(course) == 1:
        return f"{_short(course.iloc[0])} at {_level(along, course.index[0])}"
    first, peak, last = course.index[0], course.idxmax(), course.index[-1]
    over = [("over", peak)] if course[peak] > 1.02 * max(course[first], course[last]) else []
    return " ".join(
        f"{word} {_short(course[where])} at {_level(along, where)}"
        for word, where in [("from", first), *over, ("to", last)]
    )


def _mean(values: pd.Series) -> float:
    """Geometric, as of speedups, where all are positive."""
    return records.geomean(values) if (values > 0).all() else float(values.mean())


def _short(value: float) -> str:
    """Three digits."""
    return plot.number(float(f"{value:.3g}"))


def _level(column: str, value: Any) -> str:
    """Return a value of a column, as a sentence writes it: a density in per cent, a contender by its name."""
    if column == "density":
        return f"{100 * float(value):g}% kept"
    return style.name(value) if isinstance(value, str) else plot.number(float(value))


# ---------------------------------------------------------------- what a page shows


def to_svg(fig: Figure, name: str) -> str:
    """Return a figure as SVG, and close it. The same figure of the same name gives the same bytes."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with plt.rc_context({"svg.hashsalt": name}):
        fig.savefig(out, format="svg", transparent=True, metadata=nothing)
    plt.close(fig)
    return out.getvalue()[out.getvalue().index("<svg") :]


def save(fig: Figure, folder: str, name: str) -> Path:
    """Save a figure as <figures>/<folder>/<name>.svg, whole or not at all, and close it."""
    return records.write_text(Path(paths.FIGURES) / folder / f"{name}.svg", to_svg(fig, f"{folder}-{name}"))


def shown(
    system: str, name: str, fig: Figure, data: pd.DataFrame, alt: str, caption: str, fold: str = "", narrow: Any = None
) -> text.Shown:
    """Save a figure and the data behind it, and return what displays it.

    Raises ValueError where no data are behind it, or no alternative text says what it shows.
    """
    if data.empty or not alt.strip():
        raise ValueError(f"The figure {name!r} has no data behind it, or no alternative text.")
    said, svg, where = " ".join(alt.split()), save(fig, system, name), f"{paths.FROM_PAGES}/{system}"
    about, number = f":alt: {said}\n:class: themed", f"{system}-{name}".replace("_", "-")
    small = save(narrow, system, f"{name}-narrow").name if narrow else ""
    before = f"```{{image}} {where}/{small}\n{about} narrow\n```\n\n" * bool(small)
    about += f"{' wide' * bool(small)}\n:name: {number}\n\n{caption} {{data}}"
    return text.Shown(
        f"{before}```{{figure}} {where}/{svg.name}\n{about}\n```",
        f"<figure>{svg.read_text(encoding='utf-8')}<figcaption>{html.escape(caption)}</figcaption></figure>",
        f"Figure: {said}",
        text.kept(system, name, data),
        fold,
        svg,
    )


def shower(
    system: str, said: text.Text | None = None, order: Iterable[str] = (), names: Mapping[str, str] | None = None
) -> Callable[..., None]:
    """Return a chapter's `show(name, df)`, which displays a figure of the system's file.

    said: the chapter's text, of which captions name facts. order: the variants, for their looks; names: what it
    calls contenders. `show(name, (figure, df))` takes a picture that code has drawn, and as a third the same for a
    narrow page; `alt` and `caption` may be given with it. None and a table of which nothing that is drawn was measured
    show nothing.
    """
    style.apply()
    known = specs(system)

    def show(name: str, drawn: pd.DataFrame | tuple | None, **given: str) -> None:
        spec, rows = given or known[name], drawn
        if isinstance(drawn, pd.DataFrame):
            rows = drawn_rows(spec, drawn)
            drawn = None if charts.parts(rows)[0].empty else (draw(spec, rows, tuple(order), names), drawn)
        if drawn is None:
            return
        fig, data, *narrow = drawn
        facts = said.facts if said and not given else {}
        caption, told = (text.rendered(spec[key], facts) for key in ("caption", "alt"))
        about = (alt({**spec, "alt": told}, rows), caption, text.rendered(spec.get("fold", ""), facts))
        display(shown(system, name, fig, data, *about, *narrow))

    return show


# ---------------------------------------------------------------- tables


def rows(spec: Spec, facts: Mapping[str, Any]) -> pd.DataFrame | None:
    """Return the table that a specification writes out itself, filled; None of one that shows a DataFrame."""
    cells = [[text.rendered(cell, facts) for cell in row] for row in spec.get("rows", ())]
    return pd.DataFrame(cells, columns=[column["of"] for column in spec.get("columns", ())]) if cells else None


def styled(df: pd.DataFrame, spec: Spec, facts: Mapping[str, Any] | None = None) -> Styler:
    """Return `df` as its specification writes it; facts: what the caption may name."""
    columns: list[tuple[str, str, str | Callable | None]] = []
    for column in spec.get("columns", ()):
        found = re.compile(column["of"]).search if column["of"].startswith("^") else column["of"].__eq__
        form = FORMATS.get(column.get("as", ""), column.get("as"))
        columns += [(column.get("title", of), of, form) for of in filter(found, df.columns)]
    columns = columns or [(name, name, None) for name in df]
    shown = pd.DataFrame({title: df[of] for title, of, _ in columns})
    formats = {title: form for title, _, form in columns if form is not None}
    words: Any = {name: LEFT for name in shown.select_dtypes(exclude="number")}
    made = Styler(shown, cell_ids=False).hide(axis="index").format(formats, precision=2, na_rep=spec.get("na", ""))
    made.set_table_styles(words).set_table_attributes(f'class="dataframe{" prose" * spec.get("prose", False)}"')
    return made.set_caption(text.code(text.rendered(spec["caption"], facts or {})))


def shown_table(system: str, name: str, styler: Styler, spec: Spec, caption: str, fold: str = "") -> text.Shown:
    """Keep the data of a table that `styled` made, and return what displays it."""
    words = styler.data.select_dtypes(exclude="number").columns
    head, *rows = [
        " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in line.split("\x1f"))
        for line in styler.to_string(delimiter="\x1f").splitlines()
    ]
    rule = " | ".join(":--" if column in words else "--:" for column in styler.data)
    body = "\n".join(f"| {line} |" for line in (head, rule, *rows))
    about = f":name: {system}-{name}".replace("_", "-") + f"\n:class: {'prose' if spec.get('prose') else 'numbers'}"
    return text.Shown(
        f":::{{table}} {caption} {{data}}\n{about}\n\n{body}\n:::",
        styler.to_html(),
        caption,
        text.kept(system, name, styler.data),
        fold,
    )


def tabler(system: str, said: text.Text | None = None) -> Callable[..., None]:
    """Return a chapter's `table(name, df)`, which displays a table of the system's file and keeps its data.

    said: the chapter's text, whose facts captions may name. A table without rows shows nothing; without `df` it is what
    its specification writes out itself. One that is shown again has a number behind its name.
    """
    known, times = specs(system, "tables"), dict[str, int]()

    def table(name: str, df: pd.DataFrame | None = None) -> None:
        spec, facts = known[name], said.facts if said else {}
        df = rows(spec, facts) if df is None else df
        if df is None or df.empty:
            return
        times[name] = times.get(name, 0) + 1
        called = f"table-{name}" + f"-{times[name]}" * (times[name] > 1)
        caption, fold = (text.rendered(spec.get(key, ""), facts) for key in ("caption", "fold"))
        display(shown_table(system, called, styled(df, spec, facts), spec, caption, fold))

    return table
