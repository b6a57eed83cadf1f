"""Figures as data: a room's `figures.toml` says what each shows, `charts` draws it, Sphinx numbers it.

    [real]
    kind = "dots"                                   of `charts`, with its arguments below; none for a picture by code
    y = "matrix"
    x = "speedup"
    hue = "variant"
    caption = "Speedup on each of {{ real.matrices }} real matrices."       a template over the chapter's facts
    where = { variant = ["auto", "cusparse_best"] }  which measured rows are drawn; the CSV has all
    alt = "Dots, a row for each matrix"             a sentence's beginning; the values are added from the data
    fold = "Time and throughput"                    the figure unfolds, and is called so

`show("real", df)` of a chapter draws the table, saves the figure as SVG with its CSV beside it, and displays it: in the
book as a numbered figure, in JupyterLab as an image. The table may hold more columns than are drawn.
"""

from __future__ import annotations

import html
import io
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib
import pandas as pd
from IPython.display import display
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from artifact import paths, registry
from artifact.book import charts, text
from artifact.drawing import findings, style
from artifact.measure import records

FILE = "figures.toml"
#: What of a specification is no argument of its kind.
ABOUT = ("kind", "caption", "alt", "fold", "at", "by", "how", "where")
Spec = Mapping[str, Any]
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@cache
def specs(path: Path) -> dict[str, Spec]:
    """Return what a file says of its figures, by their names. Raises ValueError where one is not whole."""
    found = registry.toml(path)
    for name, spec in found.items():
        if not NAME.fullmatch(name) or not {"caption", "alt"} <= set(spec):
            raise ValueError(f"{path}, [{name}]: a figure has a lower-case name, a caption and an alternative text.")
        if spec.get("kind", "lines") not in charts.KINDS:
            raise ValueError(f"{path}, [{name}]: there is no kind {spec['kind']!r} of charts.")
    return found


def drawn_rows(spec: Spec, df: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that are drawn: of what was measured those that `where` names, in its order, and all others."""
    for column, values in spec.get("where", {}).items():
        other = df["source"].isin([charts.STATED, charts.CEILING]) if "source" in df else pd.Series(False, df.index)
        place = df[column].map({value: i for i, value in enumerate(values)})
        df = df[place.notna() | other].assign(_place=place).sort_values("_place", kind="stable").drop(columns="_place")
    return df


def draw(spec: Spec, df: pd.DataFrame, order: tuple[str, ...] = (), names: Mapping[str, str] | None = None) -> Figure:
    """Return a table drawn as its specification says; order: a room's variants, for their looks; names: what it calls
    them. Raises ValueError where there is nothing to draw."""
    df = drawn_rows(spec, df)
    if charts.parts(df)[0].empty:
        raise ValueError("There is nothing to draw: the table has no row that was measured.")
    arguments = {k: v for k, v in spec.items() if k not in ABOUT}
    common = {f.name: arguments.pop(f.name) for f in fields(charts.About) if f.name in arguments}
    common = {"order": order} | common | {"names": {**(names or {}), **common.get("names", {})}}
    return charts.KINDS[spec["kind"]](df, charts.About(**common), **arguments)


def alt(spec: Spec, df: pd.DataFrame) -> str:
    """Return the alternative text: the sentence of the specification, and the values in the table.

    `how` chooses which values: "ends" along x (lines), "means" of each `hue`, "each" or "none"; by default what suits
    the kind. `by` is the column of those whose values are said, `at` one
    whose values are told apart; by default hue and col.
    """
    said, kind = spec["alt"], spec.get("kind", "")
    how = spec.get("how", {"lines": "ends", "": "none"}.get(kind, "means"))
    first = spec.get("y", "") if kind in ("lines", "cloud", "roofline") else spec.get("value", spec.get("x", ""))
    value = first if isinstance(first, str) else first[0]
    along, at = str(spec.get("x", "")), str(spec.get("at", spec.get("col", "")))
    usual = "variant" if kind in ("lines", "cloud", "roofline") else spec.get("y", "")
    by = str(spec.get("by") or spec.get("hue") or usual)
    found: dict[str, findings.Found] = {
        "ends": findings.ends(said, value, along, by, at),
        "means": findings.means(said, value, by, at),
        "each": findings.each(said, value, by, "sum" if kind == "stacked" else "max"),
        "none": lambda _: f"{said}.".replace("..", "."),
    }
    return found[how](drawn_rows(spec, df))


@dataclass(frozen=True)
class Shown:
    """A saved figure, as a notebook displays it."""

    svg: Path
    csv: Path
    number: str  #: what references to it are called
    alt: str
    caption: str
    fold: str = ""
    narrow: Path | None = None  #: the same figure for a page of a phone's width

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/markdown": self.markdown, "text/html": self.html, "text/plain": f"Figure: {self.alt}"}

    @property
    def markdown(self) -> str:
        """A directive of MyST, which Sphinx numbers."""
        where = f"{paths.FROM_PAGES}/{self.svg.parent.name}"
        about = f":alt: {self.alt}\n:class: themed"
        small = f"```{{image}} {where}/{self.narrow.name}\n{about} narrow\n```\n\n" if self.narrow else ""
        about += f"{' wide' * bool(small)}\n:name: {self.number}"
        figure = (
            f"{small}```{{figure}} {where}/{self.svg.name}\n{about}\n\n{self.caption} {text.download(self.csv)}\n```"
        )
        return text.folded(figure, self.fold)

    @property
    def html(self) -> str:
        """The figure itself, for who runs the notebook."""
        picture = self.svg.read_text(encoding="utf-8")
        return f"<figure>{picture}<figcaption>{html.escape(self.caption)}</figcaption></figure>"


def to_svg(fig: Figure, name: str) -> str:
    """Return a figure as SVG, and close it. The same figure of the same name gives the same bytes."""
    out = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": name}):
        fig.savefig(out, format="svg", transparent=True, metadata=nothing)
    plt.close(fig)
    return out.getvalue()[out.getvalue().index("<svg") :]


def save(fig: Figure, folder: str, name: str) -> Path:
    """Save a figure as <figures>/<folder>/<name>.svg, whole or not at all, and close it."""
    return records.write_text(Path(paths.FIGURES) / folder / f"{name}.svg", to_svg(fig, f"{folder}-{name}"))


def shown(
    room: str, name: str, fig: Figure, data: pd.DataFrame, alt: str, caption: str, fold: str = "", narrow: Any = None
) -> Shown:
    """Save a figure and the data behind it, and return what displays it. Raises ValueError where no data are behind it,
    or no alternative text says what it shows."""
    if data.empty or not alt.strip():
        raise ValueError(f"The figure {name!r} has no data behind it, or no alternative text.")
    csv = Path(paths.FIGURES) / room / f"{name}.csv"
    records.write_text(csv, data.to_csv(index=False, lineterminator="\n"))
    small = save(narrow, room, f"{name}-narrow") if narrow else None
    number = f"{room}-{name}".replace("_", "-")
    return Shown(save(fig, room, name), csv, number, " ".join(alt.split()), caption, fold, small)


Drawn: TypeAlias = pd.DataFrame | tuple[Figure, pd.DataFrame] | None


def shower(
    room: str,
    said: text.Text | None = None,
    order: Iterable[str] = (),
    names: Mapping[str, str] | None = None,
) -> Callable[[str, Drawn], None]:
    """Return a chapter's `show(name, df)`, which displays a figure of the room's file.

    said: the chapter's text, whose facts captions may name. order: the room's variants, for their looks; names: what it
    calls contenders. `show(name, (figure, df))` takes a picture that code has drawn. None and a table of which
    nothing that is drawn was measured show nothing.
    """
    style.apply()
    known = specs(registry.home(room) / FILE)

    def show(name: str, drawn: Drawn) -> None:
        if drawn is None:
            return
        spec = known[name]
        if not isinstance(drawn, tuple) and charts.parts(drawn_rows(spec, drawn))[0].empty:
            return  # as a table without rows
        fig, data = drawn if isinstance(drawn, tuple) else (draw(spec, drawn, tuple(order), names), drawn)
        caption, told = (text.rendered(spec[key], said.facts if said else {}) for key in ("caption", "alt"))
        display(shown(room, name, fig, data, alt({**spec, "alt": told}, data), caption, spec.get("fold", "")))

    return show
