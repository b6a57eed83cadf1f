"""The kinds of charts: a tidy table in, a figure out. What a figure shows is data (`figures`), not code.

lines      values over a size, a line for each contender, panels by rows and columns
dots       a row for each problem or contender, a mark for each value of `hue`; with stems, ranges, text beside it
bars       a row for each contender, a bar for each value of `hue`
stacked    shares that add up, a bar for each row
boxes      distributions, a row for each contender, a dot for each matrix
cloud      points over two quantities, with a histogram beside them; a roofline where there are ceilings
heat       a table of ratios, tinted

A table's column `source` tells rows apart: "measured" (also without the column), "stated" by the source of the claims,
drawn hollow and in violet, and "ceiling", drawn as a dashed line with its name. A range that is stated has the columns
`low` and `high`. Contenders look the same in every figure (`style.look`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import MaxNLocator

from artifact.book import text as texts
from artifact.drawing import plot, sketch, style
from artifact.drawing.style import BASELINE, BEST, BOUND, CLAIM, INK, PUBLISHED, ROWS, WIDTH

#: Looks of what is no contender, in turn.
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
DASHES = ((), (6, 2), (2, 2), (5, 1, 1, 1), (1, 1), (3, 1, 1, 1, 1, 1))
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++")
STATED, CEILING, MEASURED, QUANTITY = "stated", "ceiling", "measured", "quantity"
DASHED: dict[str, Any] = {"linestyle": (0, (5, 3)), "linewidth": 1.2, "color": BOUND}
EDGE: dict[str, Any] = {"edgecolor": INK, "linewidth": 0.5}
ARROW = {"arrowstyle": "<|-", "color": CLAIM, "shrinkA": 0, "shrinkB": 3}
#: Inches of a row, of a panel's title and axis, of a legend.
ROW, FRAME, LEGEND = 0.24, 0.75, 0.35
Text = Sequence[Mapping[str, Any]]
Levels = Mapping[Any, Mapping[str, Any]]


# ---------------------------------------------------------------- what kinds share


@dataclass(frozen=True)
class About:
    """What every kind takes: the words of a figure, the looks of contenders, its panels."""

    labels: Mapping[str, str] = field(default_factory=dict)  #: column → what an axis says
    names: Mapping[str, str] = field(default_factory=dict)  #: level → what it is called
    order: Sequence[str] = ()  #: the system's variants, the published kernel first and our best last
    row: str = ""  #: column of which each value has a row of panels
    col: str = ""
    titles: str = "{}"  #: of a panel, filled with the values of `row` and `col`
    sharex: bool = True
    sharey: bool | str = "row"
    legend: int = 0  #: most columns of the legend, by default as many as suit the kind

    def called(self, level: Any) -> str:
        """Return what a level is called: by the figure's own names, as a contender, or as a number."""
        return self.names.get(str(level), style.name(level) if isinstance(level, str) else plot.number(float(level)))

    def label(self, column: str) -> str:
        """Return how a column's name is written."""
        return self.labels.get(column, column)

    def panels(
        self,
        df: pd.DataFrame,
        height: float,
        draw: Callable[..., None],
        handles: Mapping[str, object] | None = None,
        columns: int = 4,
        keyed: pd.DataFrame | None = None,
        width: float = WIDTH,
    ):
        """Return a figure with a panel for each value of `row` and `col`, drawn by `draw(axes, rows)`.

        height: inches. A panel without rows is left empty. With handles the figure has a legend, of so many columns at
        most, that says what is stated and which ceilings there are in `keyed`, by default the table.
        """
        rows, cols = _levels(df, self.row), _levels(df, self.col)
        shape = {"height": height, "aspect": width / max(1, len(cols)) / height}
        of = {"row": self.row or None, "col": self.col or None, "row_order": rows or None, "col_order": cols or None}
        with plt.rc_context({"figure.constrained_layout.use": False}):  # seaborn lays out by itself
            grid = sns.FacetGrid(df, sharex=self.sharex, sharey=self.sharey, **shape, **of)
        grid.figure.set_layout_engine("constrained")
        for (i, j, _), part in grid.facet_data():
            if part.empty:
                grid.axes[i, j].axis("off")
                continue
            draw(grid.facet_axis(i, j), part)
            heads = {c: part[c].iloc[0] for c in (self.row, self.col) if c and c != QUANTITY}
            said = [
                plot.percent(v) if c == "density" else v if isinstance(v, float) else self.called(v)
                for c, v in heads.items()
            ]
            hidden = not said or (i and self.row == QUANTITY)
            grid.axes[i, j].set_title("" if hidden else self.titles.format(*said))  # not the titles of seaborn
        if handles is not None:
            self.key(grid.figure, handles, df if keyed is None else keyed, columns)
        return grid.figure

    def key(self, fig, handles: Mapping[str, object], df: pd.DataFrame, columns: int = 4, bands: bool = False) -> None:
        """Write the legend: `handles`, and what is stated and which ceilings there are in the table.

        bands: what is stated is drawn as such.
        """
        _, stated, ceilings = parts(df)
        every = dict(handles)
        if len(stated):
            gpu = [f" ({gpu})" for gpu in stated["gpu"].dropna().iloc[:1]] if "gpu" in stated else []
            look = Patch(facecolor=CLAIM, alpha=0.3) if bands else Line2D([], [], **plot.hollow())
            every[self.names.get(STATED, "".join(["stated by the source", *gpu]))] = look
        if len(ceilings):
            every[self.names.get(CEILING, "measured ceiling")] = Line2D([], [], **DASHED)
        if every:
            plot.legend(fig, every, columns=self.legend or columns)


def looks(levels: Iterable[Any], order: Sequence[str] = ()) -> dict[Any, dict[str, Any]]:
    """Return colour, marker and dashes of each level: of contenders and verdicts as everywhere, of others in turn."""
    return {
        level: style.look(str(level), order)
        if str(level) in (*order, *style.VERDICTS) or str(level).startswith(style.BASELINES)
        else dict(zip(("color", "marker", "dashes"), other, strict=True))
        for level, other in zip(levels, zip(cycle(ROWS), cycle(MARKERS), cycle(DASHES), strict=True), strict=False)
    }


def _semantics(of: Levels, hue: str) -> dict[str, Any]:
    """Return what seaborn takes for the looks of the levels of a column."""
    palette, markers = ({level: look[what] for level, look in of.items()} for what in ("color", "marker"))
    return {"hue": hue, "style": hue, "palette": palette, "markers": markers, "legend": False}


def _handles(of: Levels, about: About, line: bool = False) -> dict[str, object]:
    """Entries of a legend."""
    how: dict[str, Any] = {"markeredgewidth": 0, "markersize": 6}
    return {
        about.called(level): Line2D(
            [],
            [],
            color=look["color"],
            marker=look["marker"],
            linestyle=(0, look["dashes"] or (1, 0)) if line else "",
            **how,
        )
        for level, look in of.items()
    }


def parts(df: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Split a table by its column `source`: measured, stated, ceilings."""
    source = df["source"] if "source" in df else pd.Series(MEASURED, df.index)
    return df[~source.isin([STATED, CEILING])], df[source == STATED], df[source == CEILING]


def _values(df: pd.DataFrame, *columns: str) -> list[float]:
    """All numbers in columns that the table may have."""
    return [v for c in dict.fromkeys(columns) if c in df for v in df[c].dropna()]


def _levels(df: pd.DataFrame, column: str) -> list[Any]:
    return list(dict.fromkeys(df[column].dropna())) if column else []


def _scaled(ax, axis: str, scale: str, values: Iterable[float], reference: float | None) -> None:
    """Set the scale of an axis, "x" or "y": size, log, fine (a log axis with more labels), ratio, zero or linear.

    With a line at the reference.
    """
    of = getattr(ax, f"{axis}axis")
    known = [v for v in values if np.isfinite(v)] + [v for v in [reference] if v is not None]
    if scale == "size":
        plot.sizes(ax, known, most=9)
    elif scale in ("log", "fine"):
        ax.set(**{f"{axis}scale": "log", f"{axis}lim": (min(known) / 1.08, max(known) * 1.08)})
        plot.log(of, fine=scale == "fine")
    elif scale == "ratio":
        plot.ratio(ax, known, axis)
    elif scale == "zero":
        top = 1.06 * max(known)
        ax.set(**{f"{axis}lim": (0, top)})
        plot.ticks(of, [tick for tick in MaxNLocator(6).tick_values(0, top) if tick <= top])
    if reference is not None:
        (ax.axvline if axis == "x" else ax.axhline)(reference, color=BASELINE, linewidth=1.3, zorder=1)


# ---------------------------------------------------------------- over a size


def lines(
    df: pd.DataFrame,
    about: About,
    *,
    x: str,
    y: str | Sequence[str],
    hue: str = "variant",
    scale: Mapping[str, str] | None = None,
    height: float = 3.4,
    interval: Sequence[str] = (),
    reference: float | None = None,
    ends: bool = False,
    markers: bool = True,
):
    """Draw values over `x`, a line for each level of `hue`.

    y: a column, or several, a row of panels each. interval: columns of the least and the largest of each value. scale:
    of `x` and of each `y`, see `_scaled`. ends: name lines where they end and not in a legend. markers: false for lines
    of so many points that markers would hide them; what is stated is then told apart by its dashes.
    """
    scale, value = scale or {}, y if isinstance(y, str) else "value"
    if not isinstance(y, str):  # a row for each value; rows that name their quantity have it in `low` and `high`
        df, about = df.assign(**{QUANTITY: df.get(QUANTITY)}), replace(about, row=QUANTITY, sharey="row")
        wide, own = df[df[QUANTITY].isna()].drop(columns=QUANTITY), df[df[QUANTITY].isin(y)]
        long = wide.melt([c for c in wide if c not in y], y, QUANTITY, "value").dropna(subset=["value"])
        df = pd.concat([long, *([own.assign(value=own["low"].where(own["low"] == own["high"]))] if len(own) else [])])
    elif QUANTITY in df:
        df = df[df[QUANTITY].isna() | (df[QUANTITY] == y)]
    measured, stated, _ = parts(df)
    of = looks(_levels(measured, hue), about.order)
    dashed = {level: DASHES[i] or (1, 0) for i, level in enumerate([] if markers else _levels(stated, hue))}
    named: list[tuple[Any, list[plot.End]]] = []
    how = _semantics(of, hue) | {
        "dashes": {level: look["dashes"] or "" for level, look in of.items()},
        **{"markersize": 6 * markers, "markeredgewidth": 0, "estimator": None},
    }

    def draw(ax, part: pd.DataFrame) -> None:
        here, said, tops = (rows.sort_values(x) for rows in parts(part))
        what = part[QUANTITY].iloc[0] if about.row == QUANTITY else value
        if len(here):
            sns.lineplot(here, x=x, y=value, ax=ax, **how)
        for level, line in here.groupby(hue, sort=False) if interval else ():
            ax.fill_between(line[x], *(line[c] for c in interval), color=of[level]["color"], alpha=0.18, linewidth=0)
        one_row = about.row and about.sharey == "row"
        whole = df[df[about.row] == part[about.row].iloc[0]] if one_row else df if about.sharey else part
        _scaled(ax, "x", scale.get(x, "size"), _values(here if len(here) else part, x), None)
        _scaled(ax, "y", scale.get(what, "linear"), _values(whole, value, *interval, "low", "high"), reference)
        _stated_along(ax, said, x, value, of, hue, dashed)
        _roofs(ax, tops, value, hue, about)
        ax.set(xlabel=about.label(x), ylabel=about.label(what))
        named.append((ax, [*_ends(here, x, value, hue, of, about), *_ends(said, x, value, hue, {}, about)]))

    handles = ({} if ends else _handles(of, about, line=True)) | {
        f"{about.called(level)}, stated": Line2D([], [], color=CLAIM, linewidth=1, linestyle=(0, dashes))
        for level, dashes in dashed.items()
    }
    fig = about.panels(df, height, draw)
    fig.align_ylabels()
    about.key(fig, handles, df if markers else df.drop(stated.index), bands=bool(stated[x].isna().all()))
    for ax, found in named if ends else ():
        plot.ends(ax, found)
    return fig


def _roofs(ax, tops: pd.DataFrame, value: str, hue: str, about: About) -> None:
    """Draw ceilings as dashed lines, their names on the right, moved apart where they would lie on each other."""
    tops, points = tops.sort_values(value), ax.get_window_extent().height / ax.figure.dpi * 72
    ends = ax.transData.transform([(ax.get_xlim()[1], level) for level in tops[value]] or np.empty((0, 2)))
    places = plot.spaced(ax.transAxes.inverted().transform(ends)[:, 1], 11 / points) if len(tops) else ()
    how: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
    for level, top, place in zip(tops[value], tops[hue], places, strict=True):
        ax.axhline(level, **DASHED)
        ax.annotate(about.called(top), (1, place), (5, 0), va="center", fontsize=8.1, **how)


def _ends(df: pd.DataFrame, x: str, y: str, hue: str, of: Levels, about: About) -> Iterator[plot.End]:
    """Where lines end, and what they are called there; those without a look are stated."""
    for level, line in df.dropna(subset=[x, y]).groupby(hue, sort=False):
        colour, said = (of[level]["color"], "") if of else (CLAIM, ", stated")
        yield plot.End(about.called(level) + said, line[x].iloc[-1], line[y].iloc[-1], colour, len(line) == 1)


def _stated_along(
    ax, said: pd.DataFrame, x: str, y: str, of: Levels, hue: str, dashed: Mapping[Any, tuple[int, ...]]
) -> None:
    """Draw what is stated.

    At a size hollow, with a bar where it is a range, with an arrow where it is one end of it, joined where it is of
    several sizes; of no size as a band. dashed: those that are lines without markers.
    """
    for row in said.to_dict("records"):
        low, high = row.get("low", np.nan), row.get("high", np.nan)
        edges = [v for v in (low, high) if v == v and v > 0]
        if pd.isna(row[x]):
            if edges:
                bottom, top = ax.get_ylim()
                ax.axhspan(
                    low if low > 0 else bottom, high if high == high else top, facecolor=CLAIM, alpha=0.2, linewidth=0
                )
            for edge in edges:
                ax.axhline(edge, color=CLAIM, linewidth=0.9, linestyle=(0, (2, 2)))
        elif low < high:
            ax.plot([row[x]] * 2, [low, high], color=CLAIM, linewidth=3.2, alpha=0.45)
        elif len(edges) == 1:
            edge, away = (low, 17) if low == low else (high, -17)
            ax.plot(row[x], edge, **plot.hollow(of.get(row[hue], {}).get("marker", "o")))
            ax.annotate("", (row[x], edge), (0, away), textcoords="offset points", arrowprops=ARROW)
    for level, line in said.dropna(subset=[x, y]).groupby(hue, sort=False):
        ax.plot(line[x], line[y], color=CLAIM, linewidth=1, linestyle=(0, dashed.get(level, (4, 3))))
        if level not in dashed or len(line) == 1:
            ax.plot(line[x], line[y], **plot.hollow(of.get(level, {}).get("marker", "o")))


# ---------------------------------------------------------------- a row each


def _in_rows(
    df: pd.DataFrame,
    about: About,
    mark: Callable[..., None],
    inches: float,
    x: str,
    y: str,
    hue: str = "",
    *,
    lane: float = 0.0,
    frame: float = FRAME,
    scale: str = "",
    interval: Sequence[str] = (),
    reference: float | None = None,
    text: Text = (),
    tops: bool = False,
    handles: Mapping[str, object],
    columns: int = 4,
):
    """Return a figure of rows so many inches high, one for each level of `y`, the first on top.

    `mark(axes, rows)` draws what was measured, of which `_row` is the category and `_at` where it lies: levels of `hue`
    have lanes, `lane` apart together. What is stated is drawn here, and with `tops` ceilings. handles, columns: of the
    legend.
    """
    measured, _, _ = parts(df)
    levels, groups = _levels(measured, y), _levels(measured, hue)
    lanes = {g: lane / len(groups) * (i - (len(groups) - 1) / 2) for i, g in enumerate(groups)}
    at = df[y].map({level: float(i) for i, level in enumerate(levels)})
    row = pd.Categorical(df[y].astype(str).where(df[y].isin(levels)), list(map(str, levels)), ordered=True)
    df = df.assign(_row=row, _at=at + (df[hue].map(lanes).fillna(0) if hue else 0))

    def draw(ax, part: pd.DataFrame) -> None:
        here, said, ceilings = parts(part)
        mark(ax, here)
        if scale:
            _scaled(ax, "x", scale, _values(df if about.sharex else part, x, *interval, "low", "high"), reference)
        for row in said.dropna(subset=["_at"]).to_dict("records"):  # hollow; a range with a bar, one end with an arrow
            low, high = row.get("low", row.get(x)), row.get("high", row.get(x))
            known = list(dict.fromkeys(v for v in (low, high) if v == v and v is not None))
            ax.plot(known, [row["_at"]] * len(known), **plot.hollow() | {"linestyle": "-", "color": CLAIM})
            if len(known) == 1 and not low == high:
                off = (22 if low == low else -22, 0)
                ax.annotate("", (known[0], row["_at"]), off, textcoords="offset points", arrowprops=ARROW)
        ax.set_yticks(range(len(levels)), [about.called(level) for level in levels])
        ax.set_ylim(len(levels) - 0.4, -1.05 if tops and len(ceilings) else -0.6)
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="y", visible=False)
        for place in range(1, len(levels)):
            ax.axhline(place - 0.5, color=INK, alpha=0.13, linewidth=0.6)
        ax.set(xlabel=about.label(x), ylabel=about.labels.get(y, ""))
        for top in ceilings.to_dict("records") if tops else ():
            ax.axvline(top[x], **DASHED)
            side, away = ("right", -3) if top[x] > ax.get_xlim()[1] / 2 else ("left", 3)
            how = {"ha": side, "xytext": (away, 0), "textcoords": "offset points", "va": "bottom", "fontsize": 8.1}
            ax.annotate(f"{about.called(top[y])} {top[x]:.3g}", (top[x], -0.62), **how)
        _beside(ax, here, y, text)

    return about.panels(
        df, len(levels) * inches + frame, draw, handles, columns, df if tops else df.drop(parts(df)[2].index)
    )


def _beside(ax, df: pd.DataFrame, y: str, columns: Text) -> None:
    """Write columns of text right of the axes.

    In the lane of each row of the table, or once where all of a category say the same.
    """
    right = 0.0
    for column in columns:
        wrap, form = column.get("wrap", 0), column.get("as", "{}")
        write = texts.FILTERS.get(form, form.format)
        right += column.get("width", 12 if wrap else 42)
        how = {"ha": "left" if wrap else "right", "fontsize": 8.1}
        if "title" in column:
            plot.right(ax, ax.get_ylim()[1], right, column["title"], **how | {"va": "bottom", "fontweight": "bold"})
        for _, rows in df.dropna(subset=[column["of"], "_at"]).groupby(y, sort=False):
            if rows[column["of"]].nunique() == 1:
                rows = rows.head(1).assign(_at=round(rows["_at"].mean()))
            for at, value in zip(rows["_at"], rows[column["of"]], strict=True):
                plot.right(ax, at, right, sketch.wrap(write(value), wrap) if wrap else write(value), **how)


def dots(
    df: pd.DataFrame,
    about: About,
    *,
    x: str,
    y: str,
    hue: str = "",
    scale: str = "linear",
    interval: Sequence[str] = (),
    reference: float | None = None,
    stems: bool = False,
    lanes: bool = True,
    text: Text = (),
    height: float = ROW,
):
    """Draw a row for each level of `y` and a mark for each level of `hue`, in lanes beside each other.

    interval: columns of a range. stems: join marks to the reference. text: columns of words or numbers on the right,
    {of, as, title, wrap} each. height: inches of a row. Without `hue` a row's own look colours it.
    """
    measured, colours = parts(df)[0], hue or y
    of = looks(_levels(measured, colours), about.order)

    def mark(ax, here: pd.DataFrame) -> None:
        if interval:
            ax.hlines(
                here["_at"],
                here[interval[0]],
                here[interval[1]],
                color=[of[level]["color"] for level in here[colours]],
                linewidth=1.6,
                alpha=0.55,
            )
        if stems:
            ax.hlines(here["_at"], reference or 0, here[x], color=INK, linewidth=1, alpha=0.3)
        how = {"s": 46, "clip_on": False, "zorder": 3, "linewidth": 0} | _semantics(of, colours)
        sns.scatterplot(here, x=x, y="_at", ax=ax, **how)

    return _in_rows(
        *(df, about, mark, max(height, 0.03 + 0.15 * len(_levels(measured, hue)) * lanes), x, y, hue),
        lane=0.75 * lanes,
        scale=scale,
        interval=interval,
        reference=reference,
        text=text,
        tops=True,
        handles=_handles(of, about) if hue else {},
    )


def bars(
    df: pd.DataFrame,
    about: About,
    *,
    x: str,
    y: str,
    hue: str = "",
    scale: str = "zero",
    reference: float | None = None,
    best: bool = False,
    text: Text = (),
    height: float = ROW,
):
    """Draw a row for each level of `y` and a bar for each level of `hue`, hatched.

    Ceilings as lines across, what is stated hollow. best: all bars grey but those of the row with the largest value.
    """
    measured, _, ceilings = parts(df)
    rows, groups = _levels(measured, y), _levels(measured, hue)
    of, top = looks(rows, about.order), measured.loc[measured[x].idxmax(), y]
    handles: dict[str, object] = {
        f"{about.label(hue)} {about.called(group)}".strip(): Patch(facecolor=BOUND, hatch=hatch, **EDGE)
        for group, hatch in zip(groups, HATCHES, strict=False)
    }
    lines: dict[float, dict[str, Any]] = {}
    for dashes, ceiling in zip(DASHES, ceilings.to_dict("records"), strict=False):
        lines[ceiling[x]] = {"color": BASELINE, "linewidth": 1.3, "linestyle": (0, dashes or (1, 0))}
        of_group = f", {about.called(ceiling[hue])}" if hue and pd.notna(ceiling[hue]) else ""
        handles[about.called(ceiling[y]) + of_group] = Line2D([], [], **lines[ceiling[x]])

    def mark(ax, here: pd.DataFrame) -> None:
        hued = {"hue": hue, "hue_order": groups} if hue else {}
        sns.barplot(here, x=x, y="_row", errorbar=None, legend=False, ax=ax, **hued)
        for hatch, container in zip(HATCHES, ax.containers, strict=False):
            for level, bar in zip(rows, container, strict=False):
                own = (BEST if level == top else BOUND) if best else ROWS[3] if hue else of[level]["color"]
                bar.set(facecolor=own, hatch=hatch, **EDGE)
        for at, how in lines.items():
            ax.axvline(at, **how)

    return _in_rows(
        *(df, about, mark, max(height, 0.19 * max(1, len(groups)) + 0.1), x, y, hue),
        lane=0.8,
        frame=FRAME + LEGEND,
        scale=scale,
        reference=reference,
        text=text,
        handles=handles,
        columns=3,
    )


def stacked(
    df: pd.DataFrame,
    about: About,
    *,
    x: str,
    y: str,
    hue: str,
    colours: Sequence[str] = (),
    text: Text = (),
):
    """Draw parts that add up, a bar for each level of `y`, hatched by `hue`."""
    df, _, _ = parts(df)
    groups = _levels(df, hue)
    palette = dict(zip(groups, [style.PALETTE.get(c, c) for c in colours] or [*ROWS, BOUND], strict=False))
    looks = {g: {"facecolor": palette[g], "hatch": hatch} for g, hatch in zip(groups, cycle(HATCHES), strict=False)}
    how = {"multiple": "stack", "shrink": 0.72, "alpha": 0.85, "legend": False, "palette": palette} | EDGE

    def mark(ax, here: pd.DataFrame) -> None:
        sns.histplot(here, y="_row", weights=x, hue=hue, hue_order=groups[::-1], ax=ax, **how)
        for group, container in zip(groups[::-1], ax.containers[::-1], strict=False):
            for bar in container:
                bar.set(**looks[group])

    handles = {about.called(g): Patch(**look, **EDGE) for g, look in looks.items()}
    return _in_rows(df, about, mark, ROW, x, y, frame=FRAME + LEGEND, text=text, handles=handles, columns=5)


def boxes(
    df: pd.DataFrame,
    about: About,
    *,
    x: str,
    y: str,
    scale: str = "fine",
    reference: float | None = None,
    text: Text = (),
    height: float = 0.3,
):
    """Draw the distribution of each level of `y`: a box of the quartiles, a dot for each value, the geometric mean."""
    measured, _, _ = parts(df)
    palette = {str(level): look["color"] for level, look in looks(_levels(measured, y), about.order).items()}
    within = [measured[c] for c in (about.row, about.col, y) if c]
    df = df.assign(mean=np.exp(np.log(measured[x]).groupby(within).transform("mean")))
    how = {"x": x, "y": "_row", "hue": "_row", "palette": palette, "dodge": False, "legend": False}

    def mark(ax, here: pd.DataFrame) -> None:
        box = {"width": 0.6, "fliersize": 0, "linewidth": 0.9, "boxprops": {"alpha": 0.3}}
        sns.boxplot(here, log_scale=scale != "linear", ax=ax, **box, **how)
        np.random.seed(0)  # where dots lie across a row: the same in each build
        sns.stripplot(here, size=3, alpha=0.6, jitter=0.22, ax=ax, **how)
        means = here.drop_duplicates("_at").sort_values("_at")
        ax.plot(means["mean"], means["_at"], "|", color=INK, markersize=13, markeredgewidth=1.8, zorder=5)

    return _in_rows(
        df,
        about,
        mark,
        height,
        x,
        y,
        scale=scale,
        reference=reference,
        text=text,
        handles={
            "geometric mean": Line2D([], [], color=INK, marker="|", linestyle="", markersize=10, markeredgewidth=1.8)
        },
    )


# ---------------------------------------------------------------- points and tables


def cloud(
    df: pd.DataFrame,
    about: About,
    *,
    x: str,
    y: str,
    hue: str = "variant",
    scale: Mapping[str, str] | None = None,
    reference: float | None = None,
    band: Sequence[float] = (),
    xrange: Sequence[str] = (),
    yrange: Sequence[str] = (),
    histogram: bool = False,
    height: float = 3.6,
    size: float = 26,
):
    """Draw a point for each row of the table.

    band: a grey range of `y`; xrange, yrange: columns of the ends of each point's range; histogram: of all points
    along `y`, beside them.

    Rows whose source is "ceiling" make it a roofline, both axes logarithmic: they bound a panel, by `slope`, in the
    units of y over x, up to the least level `y`.
    """
    scale, about = scale or {}, replace(about, sharey=True)
    measured, _, ceilings = parts(df)
    of = looks(_levels(measured, hue), about.order)

    def draw(ax, part: pd.DataFrame) -> None:
        here, said, tops = parts(part)
        how: dict[str, Any] = {"s": 46, "zorder": 3} if len(tops) else {"s": size, "alpha": 0.8}
        sns.scatterplot(here, x=x, y=y, linewidth=0, ax=ax, **how, **_semantics(of, hue))
        for ends, at, span in ((xrange, y, ax.hlines), (yrange, x, ax.vlines)):
            if ends:
                span(here[at], here[ends[0]], here[ends[1]], color=[of[v]["color"] for v in here[hue]], alpha=0.55)
        if len(said):
            ax.plot(said[x], said[y], **plot.hollow())
        if len(tops):  # roofs, named where they end
            level, left, right = tops[y].min(), measured[x].min() / 2.5, measured[x].max() * 3
            ax.set(xscale="log", yscale="log")
            for top in tops.dropna(subset=["slope"]).to_dict("records"):
                ridge = level / top["slope"]
                reach = [min(left, ridge / 2), ridge, max(right, 2 * ridge)]
                ax.plot(reach, [reach[0] * top["slope"], level, level], color=BOUND, linewidth=1.6)
                side = "left" if top["slope"] == tops["slope"].min() else "right"
                look = {"textcoords": "offset points", "ha": side, "fontsize": 8.1}
                ax.annotate(about.called(top[hue]), (ridge, level), xytext=(0, 3), **look)
            ax.set_ylim(measured[y].min() / 2, ceilings[y].max() * 1.4)
            plot.log(ax.xaxis)
            plot.log(ax.yaxis)
        else:
            _scaled(ax, "x", scale.get(x, "log"), _values(df, x, *xrange), None)
            _scaled(ax, "y", scale.get(y, "linear"), _values(df, y, *yrange), reference)
        if band:
            ax.axhspan(*band, facecolor=BOUND, alpha=0.13, linewidth=0)
        ax.set(xlabel=about.label(x), ylabel=about.label(y))

    fig = about.panels(df, height, draw, width=WIDTH * (0.78 if histogram else 1))
    if histogram:
        fig.set_size_inches(WIDTH, height)
        fig.get_layout_engine().set(rect=(0, 0, 0.78, 1))
        side = fig.axes[0].inset_axes((1.04, 0, 0.22, 1), sharey=fig.axes[0])
        sns.histplot(measured, y=y, bins=31, color=BOUND, linewidth=0, ax=side)
        side.set(xlabel="points", ylabel="")
        side.tick_params(labelleft=False)
        side.xaxis.set_major_locator(MaxNLocator(2, prune="upper"))
    about.key(fig, _handles(of, about), df)
    return fig


def heat(
    df: pd.DataFrame,
    about: About,
    *,
    x: str,
    y: str,
    value: str,
    form: str = ".2f",
    frame: str = "",
    height: float = 0.3,
):
    """Draw a table of ratios: green above 1, orange below, the stronger the farther.

    What is stated in brackets. frame: a column that tells which values have a frame.
    """
    measured, stated, _ = parts(df)
    rows, columns = _levels(measured, y), sorted(_levels(measured, x))
    table = measured.pivot_table(index=y, columns=x, values=value, sort=False).reindex(index=rows, columns=columns)
    written = table.map(lambda v: "" if pd.isna(v) else f"{v:{form}}")
    for row in stated[stated[y].isin(rows) & stated[x].isin(columns)].to_dict("records"):
        known = dict.fromkeys(f"{row[c]:g}" for c in ("low", "high") if pd.notna(row[c]))
        sign = "< " if pd.isna(row["low"]) else "> " if pd.isna(row["high"]) else ""
        written.loc[row[y], row[x]] += f"\n({sign}{'–'.join(known)})"
    fig, ax = plt.subplots(figsize=(WIDTH, (height + 0.12 * bool(len(stated))) * len(rows) + FRAME))
    colours = sns.blend_palette([PUBLISHED, "#ffffff00", BEST], as_cmap=True)
    how = {"center": 0, "vmin": -1.5, "vmax": 1.5, "cbar": False, "annot_kws": {"color": INK, "fontsize": 8.5}}
    sns.heatmap(np.log2(table), annot=written, fmt="", cmap=colours, ax=ax, **how)
    for row in measured[measured[frame].astype(bool)].to_dict("records") if frame else ():
        ax.add_patch(
            Rectangle(
                (columns.index(row[x]) + 0.04, rows.index(row[y]) + 0.05),
                0.92,
                0.9,
                fill=False,
                edgecolor=INK,
                linewidth=1.4,
            )
        )
    ax.set_xticklabels([about.called(c) for c in columns], rotation=0)
    ax.set_yticklabels([about.called(r) for r in rows], rotation=0)
    ax.tick_params(length=0)
    ax.set(xlabel=about.label(x), ylabel="")
    return fig


KINDS: Mapping[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (lines, dots, bars, stacked, boxes, cloud, heat)
}
