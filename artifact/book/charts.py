"""The kinds of charts: a tidy table in, a figure out. What a figure shows is data (`figures`), not code.

lines      values over a size, a line for each contender, panels by rows and columns
dots       a row for each problem or contender, a mark for each value of `hue`; with stems, ranges, text beside it
bars       a row for each contender, a bar for each value of `hue`
stacked    shares that add up, a bar for each row
boxes      distributions, a row for each contender, a dot for each matrix
cloud      points over two quantities, with a histogram beside them
heat       a table of ratios, tinted
roofline   points under measured ceilings, both axes logarithmic

A table's column `source` tells rows apart: "measured" (also without the column), "stated" by the source of the claims,
drawn hollow and in violet, and "ceiling", drawn as a dashed line with its name. A range that is stated has the columns
`low` and `high`. Contenders look the same in every figure (`style.look`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Real
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, MaxNLocator

from artifact.book import text as texts
from artifact.drawing import plot, sketch, style
from artifact.drawing.style import BASELINE, BEST, BOUND, CLAIM, INK, PUBLISHED, ROWS, WIDTH

#: Looks of what is no contender, in turn.
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "*")
DASHES = ((), (6, 2), (2, 2), (5, 1, 1, 1), (1, 1), (3, 1, 1, 1, 1, 1))
NAMED_DASHES = {"-": (), "--": (4, 2), "-.": (5, 1, 1, 1), ":": (1, 1)}
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "++")
STATED, CEILING, MEASURED = "stated", "ceiling", "measured"
DASHED: dict[str, Any] = {"linestyle": (0, (5, 3)), "linewidth": 1.2, "color": BOUND}
ARROW = {"arrowstyle": "<|-", "color": CLAIM, "shrinkA": 0, "shrinkB": 3}
#: Inches of a row, of a panel's title and axis, of a legend.
ROW, FRAME, LEGEND = 0.24, 0.75, 0.35
Text = Sequence[Mapping[str, Any]]
Levels = Mapping[Any, Mapping[str, Any]]


# ---------------------------------------------------------------- what kinds share


def looks(levels: Iterable[Any], order: Sequence[str] = ()) -> dict[Any, dict[str, Any]]:
    """Return colour, marker and dashes of each level: of contenders as in every figure, of others in turn.

    order: the room's variants, the published kernel first and our best last.
    """
    found = {}
    for i, level in enumerate(levels):
        if str(level) in order or str(level).startswith(style.BASELINES):
            known = style.look(str(level), order)
            line = known["linestyle"]
            dashes = NAMED_DASHES[line] if isinstance(line, str) else line[1]
            found[level] = {"color": known["color"], "marker": known["marker"], "dashes": dashes}
        else:
            turn = {"color": ROWS[i % len(ROWS)], "marker": MARKERS[i % len(MARKERS)]}
            found[level] = turn | {"dashes": DASHES[i % len(DASHES)]}
    return found


def _semantics(of: Levels) -> dict[str, dict]:
    """What seaborn takes for the looks of levels."""
    return {
        "palette": {level: look["color"] for level, look in of.items()},
        "markers": {level: look["marker"] for level, look in of.items()},
    }


def _handles(of: Levels, names: Mapping[str, str], line: bool) -> dict[str, object]:
    """Entries of a legend."""
    how: dict[str, Any] = {"markeredgewidth": 0, "markersize": 6}
    return {
        called(level, names): Line2D(
            [],
            [],
            color=look["color"],
            marker=look["marker"],
            linestyle=(0, look["dashes"] or (1, 0)) if line else "",
            **how,
        )
        for level, look in of.items()
    }


def called(level: Any, names: Mapping[str, str]) -> str:
    """What a level is called in a figure: by the figure's own names, as a contender, or as a number."""
    if str(level) in names:
        return names[str(level)]
    return plot.number(float(level)) if isinstance(level, Real) else style.name(str(level))


def parts(df: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Split a table by its column `source`: measured, stated, ceilings."""
    source = df["source"] if "source" in df else pd.Series(MEASURED, df.index)
    return df[~source.isin([STATED, CEILING])], df[source == STATED], df[source == CEILING]


def _long(df: pd.DataFrame, quantities: Sequence[str]) -> pd.DataFrame:
    """A row for each value of each quantity; rows that name their quantity have it in `low` and `high`."""
    own = df["quantity"].notna() if "quantity" in df else pd.Series(False, df.index)
    measured = df[~own].drop(columns="quantity", errors="ignore")
    keep = [c for c in measured if c not in quantities]
    long = measured.melt(keep, quantities, "quantity", "value").dropna(subset=["value"])
    said = df[own & df["quantity"].isin(quantities)]
    return pd.concat([long, said.assign(value=said["low"].where(said["low"] == said["high"]))] if own.any() else [long])


def _values(df: pd.DataFrame, *columns: str) -> list[float]:
    """All numbers in columns that the table may have."""
    return [v for c in dict.fromkeys(columns) if c in df for v in df[c].dropna()]


def _levels(df: pd.DataFrame, column: str) -> list[Any]:
    return list(dict.fromkeys(df[column].dropna())) if column else []


def _scaled(ax, axis: str, scale: str, values: Iterable[float], reference: float | None) -> None:
    """Set the scale of an axis, "x" or "y": size, log, fine (a log axis with more labels), ratio, zero or linear."""
    of = ax.xaxis if axis == "x" else ax.yaxis
    known = [v for v in values if np.isfinite(v)] + [v for v in [reference] if v is not None]
    if scale == "size":
        plot.sizes(ax, known, most=9)
    elif scale in ("log", "fine"):
        low, high = min(known), max(known)
        ax.set(**{f"{axis}scale": "log"})
        ax.set(**{f"{axis}lim": (low / 1.08, high * 1.08)})
        plot.log(of, fine=scale == "fine")
    elif scale == "ratio":
        plot.ratio(ax, known, axis)
    elif scale == "zero":
        top = 1.06 * max(known)
        ax.set(**{f"{axis}lim": (0, top)})
        ticks = [tick for tick in MaxNLocator(6).tick_values(0, top) if tick <= top]
        of.set_ticks(ticks)
        of.set_major_formatter(FuncFormatter(plot.number))


def _reference(ax, axis: str, value: float | None) -> None:
    if value is not None:
        line = ax.axvline if axis == "x" else ax.axhline
        line(value, color=BASELINE, linewidth=1.3, zorder=1)


def _grid(
    df: pd.DataFrame, row: str, col: str, height: float, sharey: Any, width: float = WIDTH, sharex: bool = True
) -> sns.FacetGrid:
    columns = max(1, len(_levels(df, col)))
    order = {"row_order": _levels(df, row) or None, "col_order": _levels(df, col) or None}
    with matplotlib.rc_context({"figure.constrained_layout.use": False}):  # seaborn lays out by itself
        shape = {"height": height, "aspect": width / columns / height, "sharey": sharey, "sharex": sharex}
        grid = sns.FacetGrid(df, row=row or None, col=col or None, **shape, **order)
    grid.figure.set_layout_engine("constrained")
    return grid


def _titles(grid: sns.FacetGrid, row: str, col: str, names: Mapping[str, str], titles: str) -> None:
    """Head each panel by its column, and by its row where that is no quantity."""
    for (i, j, _), part in grid.facet_data():
        heads = [part[c].iloc[0] for c in (row, col) if c and c != "quantity" and len(part)]
        said = [head if isinstance(head, float) else called(head, names) for head in heads]
        said = [plot.percent(s) if isinstance(s, float) and col == "density" else s for s in said]
        grid.axes[i, j].set_title(titles.format(*said) if said and not (i and row == "quantity") else "")


def _panels(grid: sns.FacetGrid) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield the axes of each panel and its rows; a panel without any is left empty."""
    for (i, j, _), part in grid.facet_data():
        ax = grid.facet_axis(i, j)
        if part.empty:
            ax.axis("off")
        else:
            yield ax, part


# ---------------------------------------------------------------- over a size


def lines(
    df: pd.DataFrame,
    *,
    x: str,
    y: str | Sequence[str],
    hue: str = "variant",
    row: str = "",
    col: str = "",
    order: Sequence[str] = (),
    scale: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    titles: str = "{}",
    height: float = 3.4,
    interval: Sequence[str] = (),
    reference: float | None = None,
    ends: bool = False,
    markers: bool = True,
    legend: int = 4,
    sharey: Any = "row",
):
    """Draw values over `x`, a line for each level of `hue`.

    y: a column, or several, a row of panels each. interval: columns of the least and the largest of each value. scale,
    labels: of `x` and of each `y`, see `_scaled`. ends: name lines where they end and not in a legend. markers: false
    for lines of so many points that markers would hide them; what is stated is then told apart by its dashes.
    """
    scale, labels, names = scale or {}, labels or {}, names or {}
    quantities = [y] if isinstance(y, str) else list(y)
    if len(quantities) > 1:
        df, row, value, sharey = _long(df, quantities), "quantity", "value", "row"
    else:
        value = quantities[0]
        df = df[df["quantity"].isna() | (df["quantity"] == value)] if "quantity" in df else df
    measured, stated, ceilings = parts(df)
    of = looks(_levels(measured, hue), order)
    grid = _grid(df, row, col, height, sharey)
    dashed = {level: DASHES[i] or (1, 0) for i, level in enumerate([] if markers else _levels(stated, hue))}
    named: list[tuple[Any, list[plot.End]]] = []
    for ax, part in _panels(grid):
        here, said, tops = parts(part)
        what = part["quantity"].iloc[0] if row == "quantity" else value
        dashes = {level: look["dashes"] or "" for level, look in of.items()}
        how = {"hue": hue, "style": hue, "estimator": None, "legend": False} | _semantics(of) | {"dashes": dashes}
        if len(here):
            sns.lineplot(here.sort_values(x), x=x, y=value, ax=ax, markersize=6 * markers, markeredgewidth=0, **how)
        for level, line in here.groupby(hue, sort=False) if interval else ():
            line = line.sort_values(x)
            ax.fill_between(line[x], *(line[c] for c in interval), color=of[level]["color"], alpha=0.18, linewidth=0)
        whole = df[df[row] == part[row].iloc[0]] if row and sharey == "row" else df if sharey else part
        _scaled(ax, "x", scale.get(x, "size"), _values(here if len(here) else part, x), None)
        _scaled(ax, "y", scale.get(what, "linear"), _values(whole, value, *interval, "low", "high"), reference)
        _reference(ax, "y", reference)
        _stated_along(ax, said, x, value, of, hue, dashed)
        _roofs(ax, tops, value, hue, names)
        ax.set(xlabel=labels.get(x, x), ylabel=labels.get(what, what))
        lines_ = [*_ends(here, x, value, hue, of, names), *_ends_stated(said, x, value, hue, names)] if ends else []
        named.append((ax, lines_))
    _titles(grid, row, col, names, titles)
    grid.axes[0, 0].figure.align_ylabels()
    handles = {} if ends else _handles(of, names, line=True)
    handles |= {
        f"{called(level, names)}, stated": Line2D([], [], color=CLAIM, linewidth=1, linestyle=(0, dashes))
        for level, dashes in dashed.items()
    }
    bands = x not in stated or stated[x].isna().all()
    _legend(grid.figure, handles, stated.iloc[: len(stated) * markers], ceilings, legend, names, bool(bands))
    for ax, found in named:
        if found:
            plot.ends(ax, found)
    return grid.figure


def _roofs(ax, tops: pd.DataFrame, value: str, hue: str, names: Mapping[str, str]) -> None:
    """Draw ceilings as dashed lines, their names on the right, moved apart where they would lie on each other."""
    tops, points = tops.sort_values(value), ax.get_window_extent().height / ax.figure.dpi * 72
    ends = ax.transData.transform([(ax.get_xlim()[1], level) for level in tops[value]] or np.empty((0, 2)))
    places = plot.spaced([float(y) for _, y in ax.transAxes.inverted().transform(ends)], 11 / points)
    for level, top, place in zip(tops[value], tops[hue], places, strict=True):
        ax.axhline(level, **DASHED)
        how = {"xycoords": "axes fraction", "textcoords": "offset points", "annotation_clip": False}
        ax.annotate(called(top, names), (1, place), (5, 0), va="center", fontsize=8.1, **how)


def _ends(df: pd.DataFrame, x: str, y: str, hue: str, of: Levels, names: Mapping[str, str]) -> Iterator[plot.End]:
    for level, line in df.dropna(subset=[y]).sort_values(x).groupby(hue, sort=False):
        last = line.iloc[-1]
        yield plot.End(called(level, names), last[x], last[y], of[level]["color"], len(line) == 1)


def _ends_stated(said: pd.DataFrame, x: str, y: str, hue: str, names: Mapping[str, str]) -> Iterator[plot.End]:
    rows = said.dropna(subset=[x, y]) if y in said else said.iloc[:0]
    for who, line in rows.sort_values(x).groupby(hue, sort=False):
        yield plot.End(f"{called(who, names)}, stated", line[x].iloc[-1], line[y].iloc[-1], CLAIM, len(line) == 1)


def _stated_along(
    ax, said: pd.DataFrame, x: str, y: str, of: Levels, hue: str, dashed: Mapping[Any, tuple[int, ...]]
) -> None:
    """Draw what is stated: at a size hollow, with a bar where it is a range, with an arrow where it is one end of it,
    joined where it is of several sizes; of no size as a band. dashed: those that are lines without markers."""
    for row in said.to_dict("records"):
        low, high = row.get("low", np.nan), row.get("high", np.nan)
        if x not in row or pd.isna(row[x]):
            edges = [v for v in (low, high) if v == v and v > 0]
            bottom = low if low == low and low > 0 else ax.get_ylim()[0]
            if edges:
                ax.axhspan(bottom, high if high == high else ax.get_ylim()[1], facecolor=CLAIM, alpha=0.2, linewidth=0)
            for edge in edges:
                ax.axhline(edge, color=CLAIM, linewidth=0.9, linestyle=(0, (2, 2)))
        elif low < high:
            ax.plot([row[x]] * 2, [low, high], color=CLAIM, linewidth=3.2, alpha=0.45)
        elif low != high:
            edge, away = (low, 17) if low == low else (high, -17)
            ax.plot(row[x], edge, **plot.hollow(of.get(row[hue], {}).get("marker", "o")))
            ax.annotate("", (row[x], edge), (0, away), textcoords="offset points", arrowprops=ARROW)
    points = said.dropna(subset=[x, y]) if {x, y} <= set(said) else said.iloc[:0]
    for level, line in points.sort_values(x).groupby(hue, sort=False):
        marker = of.get(level, {}).get("marker", "o")
        ax.plot(line[x], line[y], color=CLAIM, linewidth=1, linestyle=(0, dashed.get(level, (4, 3))))
        if level not in dashed or len(line) == 1:
            ax.plot(line[x], line[y], **plot.hollow(marker))


def _legend(
    fig,
    handles: dict[str, object],
    stated: pd.DataFrame,
    ceilings: pd.DataFrame,
    columns: int,
    names: Mapping[str, str],
    bands: bool = False,
) -> None:
    """Name what is drawn; names: of levels, and where a figure says otherwise of what is stated and of ceilings."""
    if len(stated):
        band = Patch(facecolor=CLAIM, alpha=0.3)
        who = stated["gpu"].iloc[0] if "gpu" in stated and pd.notna(stated["gpu"].iloc[0]) else ""
        point = Line2D([], [], **plot.hollow())
        usual = plot.stated(who) if who else "stated by the source"
        handles[names.get(STATED, usual)] = band if bands else point
    if len(ceilings):
        handles[names.get(CEILING, "measured ceiling")] = Line2D([], [], **DASHED)
    if handles:
        plot.legend(fig, handles, columns=columns)


# ---------------------------------------------------------------- a row each


def dots(
    df: pd.DataFrame,
    *,
    x: str,
    y: str,
    hue: str = "",
    col: str = "",
    order: Sequence[str] = (),
    scale: str = "linear",
    labels: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    titles: str = "{}",
    interval: Sequence[str] = (),
    reference: float | None = None,
    stems: bool = False,
    lanes: bool = True,
    sharex: bool = True,
    text: Text = (),
    height: float = ROW,
    legend: int = 4,
):
    """Draw a row for each level of `y` and a mark for each level of `hue`, in lanes beside each other.

    interval: columns of a range. stems: join marks to the reference. text: columns of words or numbers on the right,
    {of, as, title, wrap} each. height: inches of a row. Without `hue` a row's own look colours it.
    """
    labels, names = labels or {}, names or {}
    measured, stated, ceilings = parts(df)
    colours = hue or y
    of = looks(_levels(measured, colours), order)
    rows, groups = _levels(measured, y), _levels(measured, hue)
    offset = {g: 0.75 / len(groups) * (i - (len(groups) - 1) / 2) if lanes else 0 for i, g in enumerate(groups)}
    place = {level: i for i, level in enumerate(rows)}
    df = df.assign(_at=df[y].map(place) + (df[hue].map(offset).fillna(0) if hue else 0))
    panel = len(rows) * max(height, 0.03 + 0.15 * len(groups) * lanes) + FRAME
    grid = _grid(df, "", col, panel, True, sharex=sharex)
    for ax, part in _panels(grid):
        here, said, tops = parts(part)
        if interval:
            colour = [of[level]["color"] for level in here[colours]]
            ax.hlines(here["_at"], here[interval[0]], here[interval[1]], color=colour, linewidth=1.6, alpha=0.55)
        if stems:
            ax.hlines(here["_at"], reference or 0, here[x], color=INK, linewidth=1, alpha=0.3)
        how = {"hue": colours, "style": colours, "legend": False, "linewidth": 0} | _semantics(of)
        sns.scatterplot(here, x=x, y="_at", s=46, ax=ax, clip_on=False, zorder=3, **how)
        _stated_across(ax, said, x)
        _scaled(ax, "x", scale, _values(df if sharex else part, x, *interval, "low", "high"), reference)
        _reference(ax, "x", reference)
        _rows(ax, rows, names)
        ax.set_ylim(top=-1.05 if len(tops) else -0.6)
        for top in tops.to_dict("records"):
            ax.axvline(top[x], **DASHED)
            left = top[x] > ax.get_xlim()[1] / 2
            how = {"ha": "right" if left else "left", "xytext": (-3 if left else 3, 0), "textcoords": "offset points"}
            ax.annotate(f"{called(top[y], names)} {top[x]:.3g}", (top[x], -0.62), va="bottom", fontsize=8.1, **how)
        _beside(ax, part[~part["_at"].isna()], y, text)
        ax.set(xlabel=labels.get(x, x), ylabel=labels.get(y, ""))
    _titles(grid, "", col, names, titles)
    _legend(grid.figure, _handles(of, names, line=False) if hue else {}, stated, ceilings, legend, names)
    return grid.figure


def _rows(ax, rows: Sequence[Any], names: Mapping[str, str]) -> None:
    """Name the rows, the first on top, with a thin line between them."""
    ax.set_yticks(range(len(rows)), [called(level, names) for level in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    for place in range(1, len(rows)):
        ax.axhline(place - 0.5, color=INK, alpha=0.13, linewidth=0.6)


def _stated_across(ax, said: pd.DataFrame, x: str) -> None:
    """Draw what is stated in rows: a value hollow, a range as a line between its ends, one end with an arrow."""
    for row in said.dropna(subset=["_at"]).to_dict("records"):
        low, high = row.get("low", row.get(x)), row.get("high", row.get(x))
        known = list(dict.fromkeys(v for v in (low, high) if v == v and v is not None))
        ax.plot(known, [row["_at"]] * len(known), **plot.hollow() | {"linestyle": "-", "color": CLAIM})
        if len(known) == 1 and not low == high:
            away = (22 if low == low else -22, 0)
            ax.annotate("", (known[0], row["_at"]), away, textcoords="offset points", arrowprops=ARROW)


def _beside(ax, df: pd.DataFrame, y: str, columns: Text) -> None:
    """Write columns of text right of the axes: in the lane of each row of the table, or once where all of a category
    say the same."""
    right = 0.0
    for column in columns:
        wrap, write = column.get("wrap", 0), _writes(column)
        right += column.get("width", 42 if not wrap else 12)
        how = {"ha": "left" if wrap else "right", "fontsize": 8.1}
        if "title" in column:
            plot.right(ax, ax.get_ylim()[1], right, column["title"], **how | {"va": "bottom", "fontweight": "bold"})
        for _, rows in df.dropna(subset=[column["of"]]).groupby(y, sort=False):
            values = rows[column["of"]]
            same = values.nunique() == 1
            for at, value in (
                [(round(rows["_at"].mean()), values.iloc[0])] if same else zip(rows["_at"], values, strict=True)
            ):
                said = sketch.wrap(write(value), wrap) if wrap else write(value)
                plot.right(ax, at, right, said, **how)


def _writes(column: Mapping[str, Any]) -> Callable[[Any], str]:
    """How a column's values are written: a filter of templates, a format of Python, or as they are."""
    form = column.get("as", "{}")
    return texts.FILTERS.get(form, form.format)


def bars(
    df: pd.DataFrame,
    *,
    x: str,
    y: str,
    hue: str = "",
    order: Sequence[str] = (),
    scale: str = "zero",
    labels: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    reference: float | None = None,
    best: bool = False,
    text: Text = (),
    height: float = ROW,
    legend: int = 3,
):
    """Draw a row for each level of `y` and a bar for each level of `hue`, hatched; ceilings as lines across, what is
    stated hollow. best: all bars grey but those of the row with the largest value."""
    labels, names = labels or {}, names or {}
    measured, stated, ceilings = parts(df)
    rows, groups = _levels(measured, y), _levels(measured, hue) or [None]
    fig, ax = plt.subplots(figsize=(WIDTH, len(rows) * max(height, 0.19 * len(groups) + 0.1) + FRAME + LEGEND))
    data = measured.assign(_row=measured[y].astype(str))
    named = [str(level) for level in rows]
    sns.barplot(
        data,
        x=x,
        y="_row",
        hue=hue or None,
        order=named,
        hue_order=groups if hue else None,
        errorbar=None,
        legend=False,
        ax=ax,
    )
    top = measured.loc[measured[x].idxmax(), y]
    of = looks(rows, order)
    for group, container in zip(groups, ax.containers, strict=True):
        for level, bar in zip(rows, container, strict=False):
            own = (BEST if level == top else BOUND) if best else of[level]["color"] if not hue else ROWS[3]
            bar.set(facecolor=own, edgecolor=INK, linewidth=0.5, hatch=HATCHES[groups.index(group)])
    wide = 0.8 / len(groups)
    offset = {g: wide * (i - (len(groups) - 1) / 2) for i, g in enumerate(groups)}
    place = {level: i for i, level in enumerate(rows)}
    at = df[y].map(place) + (df[hue].map(offset).fillna(0) if hue else 0)
    _stated_across(ax, df.assign(_at=at).loc[stated.index], x)
    _scaled(ax, "x", scale, _values(df, x, "low", "high"), reference)
    _reference(ax, "x", reference)
    handles: dict[str, object] = {
        f"{labels.get(hue, hue)} {called(g, names)}".strip(): Patch(
            facecolor=BOUND, edgecolor=INK, hatch=HATCHES[i], linewidth=0.5
        )
        for i, g in enumerate(groups)
        if g is not None
    }
    for i, ceiling in enumerate(ceilings.to_dict("records")):
        how: dict[str, Any] = {"color": BASELINE, "linewidth": 1.3, "linestyle": (0, DASHES[i % len(DASHES)] or (1, 0))}
        ax.axvline(ceiling[x], **how)
        said = called(ceiling[y], names) + (
            f", {called(ceiling[hue], names)}" if hue and pd.notna(ceiling[hue]) else ""
        )
        handles[said] = Line2D([], [], **how)
    _rows(ax, rows, names)
    _beside(ax, df.assign(_at=at).loc[measured.index], y, text)
    ax.set(xlabel=labels.get(x, x), ylabel="")
    _legend(fig, handles, stated, stated.iloc[:0], legend, names)
    return fig


def stacked(
    df: pd.DataFrame,
    *,
    x: str,
    y: str,
    hue: str,
    col: str = "",
    labels: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    titles: str = "{}",
    colours: Sequence[str] = (),
    text: Text = (),
    height: float = ROW,
    legend: int = 5,
):
    """Draw parts that add up, a bar for each level of `y`, hatched by `hue`."""
    labels, names = labels or {}, names or {}
    df, _, _ = parts(df)
    rows, groups = _levels(df, y), _levels(df, hue)
    df = df.assign(_row=pd.Categorical(df[y].astype(str), [str(r) for r in rows], ordered=True))
    df["_at"] = df[y].map({r: i for i, r in enumerate(rows)})
    grid = _grid(df, "", col, len(rows) * height + FRAME + LEGEND, True)
    palette = dict(zip(groups, [style.PALETTE.get(c, c) for c in colours] or [*ROWS, BOUND], strict=False))
    how = {"multiple": "stack", "shrink": 0.72, "edgecolor": INK, "linewidth": 0.5, "alpha": 0.85, "legend": False}
    for ax, part in _panels(grid):
        sns.histplot(part, y="_row", weights=x, hue=hue, hue_order=groups[::-1], palette=palette, ax=ax, **how)
        for group, container in zip(groups[::-1], ax.containers[::-1], strict=False):
            for bar in container:
                bar.set(facecolor=palette[group], hatch=HATCHES[groups.index(group) % len(HATCHES)])
        _rows(ax, rows, names)
        _beside(ax, part, y, text)
        ax.set(xlabel=labels.get(x, x), ylabel="")
    _titles(grid, "", col, names, titles)
    hatched = {
        called(g, names): Patch(facecolor=palette[g], edgecolor=INK, linewidth=0.5, hatch=HATCHES[i % len(HATCHES)])
        for i, g in enumerate(groups)
    }
    plot.legend(grid.figure, hatched, columns=legend)
    return grid.figure


def boxes(
    df: pd.DataFrame,
    *,
    x: str,
    y: str,
    row: str = "",
    col: str = "",
    order: Sequence[str] = (),
    scale: str = "fine",
    labels: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    titles: str = "{}",
    reference: float | None = None,
    text: Text = (),
    height: float = 0.3,
    legend: int = 4,
):
    """Draw the distribution of each level of `y`: a box of the quartiles, a dot for each value, the geometric mean."""
    labels, names = labels or {}, names or {}
    measured, stated, ceilings = parts(df)
    rows = _levels(measured, y)
    named = [str(level) for level in rows]
    palette = {str(level): look["color"] for level, look in looks(rows, order).items()}
    df = df.assign(_row=df[y].astype(str), _at=df[y].map({r: i for i, r in enumerate(rows)}))
    grid = _grid(df, row, col, len(rows) * height + FRAME, True)
    for ax, part in _panels(grid):
        here, said, _ = parts(part)
        how = {"x": x, "y": "_row", "order": named, "hue": "_row", "palette": palette, "legend": False, "ax": ax}
        sns.boxplot(
            here, width=0.6, fliersize=0, linewidth=0.9, boxprops={"alpha": 0.3}, log_scale=scale != "linear", **how
        )
        state = np.random.get_state()
        np.random.seed(0)  # where dots lie across a row: the same in each build
        sns.stripplot(here, size=3, alpha=0.6, jitter=0.22, **how)
        np.random.set_state(state)
        means = here.groupby("_at")[x].agg(lambda v: np.exp(np.log(v).mean()))
        ax.plot(means, means.index, "|", color=INK, markersize=13, markeredgewidth=1.8, zorder=5)
        _stated_across(ax, said, x)
        _scaled(ax, "x", scale, _values(df, x, "low", "high"), reference)
        _reference(ax, "x", reference)
        _rows(ax, rows, names)
        _beside(ax, here.assign(mean=here["_at"].map(means)), y, text)
        ax.set(xlabel=labels.get(x, x), ylabel="")
    _titles(grid, row, col, names, titles)
    handles: dict[str, object] = {
        "geometric mean": Line2D([], [], color=INK, marker="|", linestyle="", markersize=10, markeredgewidth=1.8)
    }
    _legend(grid.figure, handles, stated, ceilings, legend, names)
    return grid.figure


# ---------------------------------------------------------------- points and tables


def cloud(
    df: pd.DataFrame,
    *,
    x: str,
    y: str,
    hue: str = "variant",
    col: str = "",
    order: Sequence[str] = (),
    scale: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    titles: str = "{}",
    reference: float | None = None,
    band: Sequence[float] = (),
    xrange: Sequence[str] = (),
    yrange: Sequence[str] = (),
    histogram: bool = False,
    height: float = 3.6,
    size: float = 26,
    legend: int = 4,
):
    """Draw a point for each row of the table. band: a grey range of `y`; xrange, yrange: columns of the ends of each
    point's range; histogram: of all points along `y`, beside them."""
    scale, labels, names = scale or {}, labels or {}, names or {}
    measured, stated, ceilings = parts(df)
    of = looks(_levels(measured, hue), order)
    grid = _grid(df, "", col, height, True, WIDTH * (0.78 if histogram else 1))
    for ax, part in _panels(grid):
        here, said, _ = parts(part)
        how = {"hue": hue, "style": hue, "legend": False, "linewidth": 0} | _semantics(of)
        sns.scatterplot(here, x=x, y=y, s=size, alpha=0.8, ax=ax, **how)
        for ends, at, span in ((xrange, y, ax.hlines), (yrange, x, ax.vlines)):
            if ends:
                span(here[at], here[ends[0]], here[ends[1]], color=[of[v]["color"] for v in here[hue]], alpha=0.55)
        if len(said):
            ax.plot(said[x], said[y], **plot.hollow())
        _scaled(ax, "x", scale.get(x, "log"), _values(df, x, *xrange), None)
        _scaled(ax, "y", scale.get(y, "linear"), _values(df, y, *yrange), reference)
        _reference(ax, "y", reference)
        if band:
            ax.axhspan(*band, facecolor=BOUND, alpha=0.13, linewidth=0)
        ax.set(xlabel=labels.get(x, x), ylabel=labels.get(y, y))
    _titles(grid, "", col, names, titles)
    if histogram:
        ax = grid.axes[0, 0]
        grid.figure.set_size_inches(WIDTH, height)
        grid.figure.get_layout_engine().set(rect=(0, 0, 0.78, 1))
        side = ax.inset_axes((1.04, 0, 0.22, 1), sharey=ax)
        sns.histplot(measured, y=y, bins=31, color=BOUND, linewidth=0, ax=side)
        side.set(xlabel="points", ylabel="")
        side.tick_params(labelleft=False)
        side.xaxis.set_major_locator(MaxNLocator(2, prune="upper"))
    _legend(grid.figure, _handles(of, names, line=False), stated, ceilings, legend, names)
    return grid.figure


def heat(
    df: pd.DataFrame,
    *,
    x: str,
    y: str,
    value: str,
    form: str = ".2f",
    labels: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    frame: str = "",
    height: float = 0.3,
):
    """Draw a table of ratios: green above 1, orange below, the stronger the farther; what is stated in brackets. frame:
    a column that tells which values have a frame."""
    labels, names = labels or {}, names or {}
    measured, stated, _ = parts(df)
    rows, columns = _levels(measured, y), sorted(_levels(measured, x))
    table = measured.pivot_table(index=y, columns=x, values=value, sort=False).reindex(index=rows, columns=columns)
    written = table.map(lambda v: "" if pd.isna(v) else f"{v:{form}}")
    for row in stated.to_dict("records"):
        if row[y] in written.index and row[x] in written.columns:
            known = dict.fromkeys(f"{row[c]:g}" for c in ("low", "high") if pd.notna(row[c]))
            sign = "< " if pd.isna(row["low"]) else "> " if pd.isna(row["high"]) else ""
            written.loc[row[y], row[x]] += f"\n({sign}{'–'.join(known)})"
    fig, ax = plt.subplots(figsize=(WIDTH, (height + 0.12 * bool(len(stated))) * len(rows) + FRAME))
    colours = sns.blend_palette([PUBLISHED, "#ffffff00", BEST], as_cmap=True)
    how = {"center": 0, "vmin": -1.5, "vmax": 1.5, "cbar": False, "annot_kws": {"color": INK, "fontsize": 8.5}}
    sns.heatmap(np.log2(table), annot=written, fmt="", cmap=colours, ax=ax, **how)
    for row in measured[measured[frame].astype(bool)].to_dict("records") if frame else ():
        place = columns.index(row[x]) + 0.04, rows.index(row[y]) + 0.05
        ax.add_patch(Rectangle(place, 0.92, 0.9, fill=False, edgecolor=INK, linewidth=1.4))
    ax.set_xticklabels([called(c, names) for c in columns], rotation=0)
    ax.set_yticklabels([called(r, names) for r in rows], rotation=0)
    ax.tick_params(length=0)
    ax.set(xlabel=labels.get(x, x), ylabel="")
    return fig


def roofline(
    df: pd.DataFrame,
    *,
    x: str,
    y: str,
    hue: str = "variant",
    col: str = "",
    order: Sequence[str] = (),
    labels: Mapping[str, str] | None = None,
    names: Mapping[str, str] | None = None,
    titles: str = "{}",
    height: float = 3.4,
    legend: int = 4,
):
    """Draw work per second over work per byte under measured ceilings, both axes logarithmic.

    Rows whose source is "ceiling" bound a panel: `slope`, bytes per second in the units of y over x, or `y`, a level.
    """
    labels, names = labels or {}, names or {}
    measured, stated, ceilings = parts(df)
    of = looks(_levels(measured, hue), order)
    grid = _grid(df, "", col, height, True)
    span = np.array([measured[x].min() / 2.5, measured[x].max() * 3])
    for ax, part in _panels(grid):
        here, said, tops = parts(part)
        level = tops[y].min()
        for top in tops.dropna(subset=["slope"]).itertuples():
            ridge = level / top.slope
            ends = [min(span[0], ridge / 2), ridge]
            ax.plot(ends, [end * top.slope for end in ends], color=BOUND, linewidth=1.6)
            ax.plot([ridge, max(span[1], 2 * ridge)], [level] * 2, color=BOUND, linewidth=1.6)
            side = "left" if top.slope == tops["slope"].min() else "right"
            how = {"textcoords": "offset points", "ha": side, "fontsize": 8.1}
            ax.annotate(called(getattr(top, hue), names), (ridge, level), xytext=(0, 3), **how)
        how = {"hue": hue, "style": hue, "legend": False, "linewidth": 0} | _semantics(of)
        sns.scatterplot(here, x=x, y=y, s=46, ax=ax, zorder=3, **how)
        if len(said):
            ax.plot(said[x], said[y], **plot.hollow())
        ax.set(xscale="log", yscale="log", xlabel=labels.get(x, x), ylabel=labels.get(y, y))
        ax.set_ylim(measured[y].min() / 2, ceilings[y].max() * 1.4)
        plot.log(ax.xaxis)
        plot.log(ax.yaxis)
    _titles(grid, "", col, names, titles)
    _legend(grid.figure, _handles(of, names, line=False), stated, ceilings, legend, names)
    return grid.figure


KINDS: Mapping[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (lines, dots, bars, stacked, boxes, cloud, heat, roofline)
}
