"""Each system against the vendor's library on all GPUs that have records: as published, the best of ours, the limit.

A race is a set of a room's recorded points at which three were measured: a kernel as the source publishes it, one of
ours, and a library of the vendor. The room's races.toml names them; a room without one races in the experiments that
have all three, those with the most points first.
"""

from __future__ import annotations

import importlib
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from artifact import registry
from artifact.drawing import plot, style
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.verdicts import load, measures, page

#: What the vendor's libraries are called in records.
VENDOR = ("cusparse*", "cublas*")
#: Races of a room that says nothing of them.
MOST = 2
COLUMNS = (
    "room",
    "system",
    "race",
    "gpu",
    "experiments",
    "instead_of",
    "points",
    "published",
    "published_least",
    "published_most",
    "best",
    "limit",
    "limit_least",
    "limit_most",
    "stated",
    "stated_at",
    "stated_low",
    "stated_high",
)
KEY = ["experiment", *records.POINT]


@dataclass(frozen=True)
class Race:
    """One row of the figure."""

    room: str
    says: str  #: what is multiplied, in a few words
    experiments: tuple[str, ...]
    published: tuple[str, ...]  #: contenders as published; patterns, as the others
    best: tuple[str, ...]  #: ours
    otherwise: tuple[str, ...] = ()  #: experiments, where not all GPUs with records of the room have those
    at: Mapping[str, list] = field(default_factory=dict)  #: column of the records -> values
    vendor: tuple[str, ...] = VENDOR
    ceiling: str = ""  #: microbenchmark that limits the useful work; else bytes alone
    stated: tuple[str, ...] = ()  #: claims whose published numbers are speedups over the library
    stated_at: str = ""  #: over what or where, if that is not what is raced


def races(room: str, folder: Path) -> list[Race]:
    """The room's own, or those that its records under a GPU's `folder` allow. Raises ValueError for a key of races.toml
    that is none."""
    if (declared := registry.races(room)) is None:
        return _found(room, folder)
    try:
        return [Race(room, **{k: tuple(v) if isinstance(v, list) else v for k, v in race.items()}) for race in declared]
    except TypeError as error:
        raise ValueError(
            f"{registry.FOLDER / room / registry.RACES}: a race is not whole or has a key too many ({error})."
        ) from None


def _found(room: str, folder: Path) -> list[Race]:
    variants = importlib.import_module(f"kernels.{room}").VARIANTS
    published = tuple(name for name, kernel in variants.items() if kernel.published)
    ours = tuple(name for name, kernel in variants.items() if not kernel.published)
    made = [Race(room, experiment, (experiment,), published, ours) for experiment in records.experiments(folder / room)]
    raced = [(len(points(race, folder)), race) for race in made]
    return [race for n, race in sorted(raced, key=lambda pair: -pair[0])[:MOST] if n]


def points(race: Race, folder: Path) -> pd.DataFrame:
    """published, best, vendor and limit in µs at each point that has the first three; the limit is NaN where the GPU's
    ceilings were not measured. Of several contenders the fastest counts at each point."""
    paths = [folder / race.room / f"{e}.csv" for e in race.experiments]
    found = [records.read(path) for path in paths if path.is_file()]
    if not found:
        return pd.DataFrame(columns=["published", "best", "vendor", "limit"], dtype=float)
    df = pd.concat(found, ignore_index=True)
    for column, values in race.at.items():
        df = df[df[column].isin(values)]
    sides = {"published": race.published, "best": race.best, "vendor": race.vendor}
    times = pd.DataFrame({side: _fastest(df, names) for side, names in sides.items()})
    times = times.dropna()
    work = df.groupby(KEY)[["least_bytes", "useful_flops"]].max().reindex(times.index)
    return times.assign(limit=_limit_us(work, race.ceiling, folder))


def _fastest(df: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    chosen = df["variant"].map(lambda v: any(fnmatch(v, name) for name in names))
    return df[chosen.astype(bool)].groupby(KEY)["median_us"].min()


def _limit_us(work: pd.DataFrame, ceiling: str, folder: Path) -> pd.Series:
    """The least time: every operand once at the rate of a copy, and the useful work at the ceiling."""
    try:
        known = records.ceilings(folder)
    except FileNotFoundError:
        known = {}
    if "copy" not in known or (ceiling and ceiling not in known):
        return pd.Series(np.nan, work.index, float)
    bound = work["least_bytes"] / known["copy"]["gbps"] / 1e3
    if ceiling:
        bound = np.maximum(bound, work["useful_flops"] / known[ceiling]["tflops"] / 1e6)
    return bound


def table(folders: Mapping[str, Path], only: str = "") -> pd.DataFrame:
    """COLUMNS, a row for each race and GPU, at the points that all GPUs of this race have: geometric means of the
    speedups over the vendor's fastest, the least and the largest of the published kernel's and of the limit's, and what
    the source states. folders: name of a GPU -> its records; only: of one room. No rows without records."""
    rows = []
    claims = {claim.id: claim for claim in load.claims()}
    for room in registry.find().values():
        having = {gpu: f for gpu, f in folders.items() if room.room in records.rooms(f)}
        if only not in ("", room.room) or not having:
            continue
        for asked in races(room.room, next(iter(having.values()))):
            race, raced = _raced(asked, having)
            instead = "" if race is asked else ", ".join(asked.experiments)
            stated, low, high = _stated([claims[i] for i in asked.stated if i in claims])
            for gpu, df in raced.items():
                rebuilt, limit = (df["vendor"] / df[side] for side in ("published", "limit"))
                over = {
                    side: records.geomean(df["vendor"] / df[side])
                    for side in ("published", "best", "limit")
                    if df[side].notna().all()
                }
                rows.append(
                    {
                        "room": room.room,
                        "system": room.name,
                        "race": race.says,
                        "gpu": gpu,
                        "experiments": ", ".join(race.experiments),
                        "instead_of": instead,
                        "points": len(df),
                        "published_least": rebuilt.min(),
                        "published_most": rebuilt.max(),
                        "limit_least": limit.min(),
                        "limit_most": limit.max(),
                        **over,
                        "stated": stated,
                        "stated_at": race.stated_at if stated else "",
                        "stated_low": low,
                        "stated_high": high,
                    }
                )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _raced(race: Race, having: Mapping[str, Path]) -> tuple[Race, dict[str, pd.DataFrame]]:
    """The race in its experiments, or in the others if more of the GPUs can take part there; and the points of each."""
    tried = []
    for one in (race, *([replace(race, experiments=race.otherwise)] if race.otherwise else [])):
        found = {gpu: points(one, folder) for gpu, folder in having.items()}
        tried.append((one, _common({gpu: df for gpu, df in found.items() if len(df)})))
    return max(tried, key=lambda pair: len(pair[1]))  # the first of them, if they are alike


def _common(raced: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Each at the points that all have; a GPU that shares none with the first is left out."""
    first = next(iter(raced.values()), None)
    shared = {gpu: df for gpu, df in raced.items() if df.index.isin(first.index).any()}
    index = first.index if shared else None
    for df in shared.values():
        index = index[index.isin(df.index)]
    return {gpu: df.loc[index] for gpu, df in shared.items() if len(index)}


def _stated(claims: Sequence[load.Claim]) -> tuple[str, float, float]:
    """What the source states in these claims, in its words if it is one, and its least and largest number; NaN where
    there is none."""
    found = [float(n) for c in claims for n in re.findall(r"\d+(?:\.\d+)?", c.published)]
    if not found:
        return "", np.nan, np.nan
    low, high = min(found), max(found)
    return claims[0].published if len(claims) == 1 else f"{low:g}–{high:g}×", low, high


# ---------------------------------------------------------------- the figure

#: side -> what the legend says, and how it is drawn.
SIDES = {
    "published": ("as published, rebuilt here", {"color": style.PUBLISHED, "marker": "o"}),
    "best": ("our best kernel", {"color": style.BEST, "marker": "D"}),
    "limit": ("the limit of the GPU", {"color": style.BOUND, "marker": "|"}),
}
#: Claims that a series of the source's own decides, and no record of a GPU here: counted apart from all verdicts.
OWN = "the source's own data"
#: Drawn half transparent, so that the ink on them can be read in both modes of the page.
VERDICT_COLOURS = {
    measures.REPRODUCED: style.BASELINE,
    measures.PARTLY: style.RUNGS[3],
    measures.NOT_REPRODUCED: style.PUBLISHED,
    measures.NOT_CARRIED: style.RUNGS[0],
    measures.NOT_MEASURED: style.BOUND,
    OWN: "none",
}
SIGNS = {verdict: page.LOOKS[verdict][0] for verdict in measures.VERDICTS} | {OWN: "="}
#: (room, GPU) -> verdict or OWN -> number of claims.
Counts = Mapping[tuple[str, str], Mapping[str, int]]
#: Inches of a row: what the source states, the marks of each GPU, the gap to the next row; a line of words.
STATED, STEP, GAP, LINE = 0.13, 0.175, 0.08, 0.17
#: A verdict's number is written into its part of a bar where it has so many inches.
ROOM_FOR_NUMBER = 0.3


@dataclass(frozen=True)
class Layout:
    """A figure for a page, or for a narrow one, where the verdicts lie below the races and not beside them."""

    width: float  #: inches
    letters: int  #: of a line of words above the marks
    above: float  #: inches for the legend
    below: float  #: inches for the axis
    legend: float  #: inches for the legend of the verdicts
    columns: int  #: of the legends
    bar: float  #: inches of a bar of verdicts, about
    narrow: bool = False

    @property
    def words(self) -> float:
        """Inches of a row above its marks: the finding; narrow, the system and two lines for the finding."""
        return LINE * (3 if self.narrow else 1)


WIDE = Layout(style.WIDTH, 200, 0.5, 0.5, 0.4, 4, 1.5)
NARROW = Layout(4.1, 54, 0.8, 0.5, 0.75, 2, 3.2, narrow=True)


@dataclass(frozen=True)
class Row:
    """A race with a line of marks for each GPU; all places are inches from the top of the axes."""

    top: float
    low: float  #: where its marks end
    stated: float
    marks: Mapping[str, float]  #: GPU -> where
    of: pd.DataFrame  #: of `table`

    @property
    def first(self):
        return next(self.of.itertuples())


def drawn(df: pd.DataFrame, verdicts: Counts | None = None) -> tuple | None:
    """`figure` for a page, the data behind it, `figure` for a narrow page; None for no rows."""
    if df.empty:
        return None
    return *figure(df, verdicts), figure(df, verdicts, NARROW)[0]


def figure(df: pd.DataFrame, verdicts: Counts | None = None, layout: Layout = WIDE):
    """A row for each race of `table`: speedups over the vendor's fastest on a log axis, the first GPU's in filled
    marks, below them those of the others, smaller and hollow. verdicts: a bar for each room and GPU, beside the room's
    first row. (fig, data); None for no rows."""
    if df.empty:
        return None
    verdicts = verdicts or {}
    gpus = list(dict.fromkeys([*(gpu for _, gpu in verdicts), *df["gpu"]]))
    rows = list(_rows(df, gpus, layout))
    fig, ax, bars = _axes(rows, gpus, bool(verdicts), layout)
    handles = _race(ax, rows, gpus)
    _words(ax, rows, gpus, layout)
    if verdicts:
        _bars(bars, rows, gpus, verdicts, layout)
    plot.legend(fig, handles, columns=layout.columns)
    return fig, _with_counts(df, verdicts)


def _rows(df: pd.DataFrame, gpus: Sequence[str], layout: Layout) -> Iterator[Row]:
    top = 0.0
    for _, own in df.groupby(["room", "race"], sort=False):
        stated = top + layout.words + STATED / 2
        marks = {gpu: stated + STATED / 2 + STEP * (i + 0.5) for i, gpu in enumerate(gpus)}
        low = stated + STATED / 2 + STEP * len(gpus)
        yield Row(top, low, stated, marks, own)
        top = low + GAP


def _of_bars(gpus: Sequence[str]) -> float:
    """Inches of a room's bars where they have a place of their own, with the system's name above them."""
    return LINE + STEP * len(gpus) + GAP


def _axes(rows: Sequence[Row], gpus: Sequence[str], with_bars: bool, layout: Layout):
    """(fig, axes of the races, axes of the verdicts or None), both axes in inches from the top."""
    high = rows[-1].low + GAP / 2
    tall = _of_bars(gpus) * len({row.first.room for row in rows}) if layout.narrow else high
    size = layout.above + high + layout.below
    if not with_bars:
        fig, ax = plt.subplots(figsize=(layout.width, size))
        found = [(ax, high)]
    elif layout.narrow:
        size += tall + layout.legend
        fig, both = plt.subplots(2, 1, figsize=(layout.width, size), height_ratios=(high, tall))
        found = list(zip(both, (high, tall), strict=True))
    else:
        size += layout.legend
        fig, both = plt.subplots(1, 2, figsize=(layout.width, size), width_ratios=(3.1, 1))
        found = [(ax, high) for ax in both]
    for ax, end in found:
        ax.set_ylim(end, 0)
        ax.grid(visible=False)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    return fig, found[0][0], found[1][0] if with_bars else None


def _line(ax, at: float, text: str, **how) -> None:
    """Words from the left end of an axes on, that may go on over what is right of it."""
    how = {"va": "center", "fontsize": 8.5, "color": style.INK, "linespacing": 1.2} | how
    ax.text(0, at, text, transform=ax.get_yaxis_transform(), **how).set_in_layout(False)


def _words(ax, rows: Sequence[Row], gpus: Sequence[str], layout: Layout) -> None:
    """What was found, above the marks of a row; system and race left of them, or narrow, above that."""
    for row in rows:
        found = "\n".join(textwrap.wrap(finding(row.of, gpus), layout.letters))
        if layout.narrow:
            _line(ax, row.top + LINE / 2, f"{row.first.system}: {row.first.race}", weight="bold")
            _line(ax, row.top + LINE, found, va="top")
        else:
            _line(ax, row.top + LINE / 2, found)
    if layout.narrow:
        ax.set_yticks([])
        return
    races = ["\n".join(textwrap.wrap(row.first.race, 22)) for row in rows]
    ax.set_yticks([row.top + LINE / 2 for row in rows], [row.first.system for row in rows])
    for label in ax.get_yticklabels():
        label.set_weight("bold")
    ax.set_yticks([row.top + LINE for row in rows], races, minor=True)
    for label in ax.get_yticklabels(minor=True):
        label.set(va="top", fontsize=8.2, linespacing=1.2)
    ax.tick_params(axis="y", which="both", length=0, pad=6)


def _race(ax, rows: Sequence[Row], gpus: Sequence[str]) -> dict[str, object]:
    """The marks of all rows, and what the legend says of them."""
    ends = ["published_least", "published_most", "best", "limit", "stated_low", "stated_high"]
    every = np.concatenate([[1.0], *(row.of[ends].to_numpy(float).ravel() for row in rows)])
    low, high = np.nanmin(every) / 1.15, np.nanmax(every) * 1.45
    ax.set_xscale("log")
    ax.set_xlim(low, high)
    plot.log(ax.xaxis, fine=True)
    ax.set_xlabel("times as fast as the vendor's fastest library")
    # The words between the rows stay free of lines.
    starts, lows = [row.stated - STATED / 2 for row in rows], [row.low for row in rows]
    for tick in ax.get_xticks():
        ax.vlines([tick] * len(rows), starts, lows, color=style.INK, alpha=0.16, linewidth=0.6, zorder=0)
    ax.vlines([1] * len(rows), starts, lows, color=style.BASELINE, linewidth=1.6, zorder=1)
    handles = {"the vendor's fastest library": Line2D([], [], color=style.BASELINE, linewidth=1.6)}
    if any(np.isfinite(row.first.stated_low) for row in rows):
        handles["stated by the source"] = Line2D([], [], **plot.hollow())
    for row in rows:
        if np.isfinite(row.first.stated_low):
            _said(ax, row)
        for one in row.of.itertuples():
            handles |= _marks(ax, row.marks[one.gpu], one, one.gpu == gpus[0])
    for i, name in enumerate(records.short_gpus(gpus).values() if len(gpus) > 1 else ()):
        below = "hollow, below" if len(gpus) == 2 else f"hollow, {i} below"
        how = {"color": style.INK, "linestyle": "none"} | _size(not i, "o")
        handles[f"{name}: {below if i else 'filled'}"] = Line2D([], [], **how)
    return handles


def _said(ax, row: Row) -> None:
    """What the source states: a value, from one to another, or from one on."""
    low, high = row.first.stated_low, row.first.stated_high
    how = plot.hollow() | {"linestyle": "-", "color": style.CLAIM, "markersize": 6}
    ax.plot([low, high], [row.stated] * 2, **how)
    if re.match(r"(above|over|at least)\b", row.first.stated):
        to = {
            "arrowstyle": "->",
            "color": style.CLAIM,
            "linewidth": 1.3,
            "shrinkA": 4,
            "shrinkB": 0,
        }
        ax.annotate("", (high * 1.35, row.stated), (high, row.stated), arrowprops=to)


def _size(home: bool, marker: str) -> dict[str, Any]:
    """How a mark of the first GPU is drawn, or one of another."""
    if marker == "|":
        return {"marker": marker, "markersize": 11 if home else 7, "markeredgewidth": 1.6}
    hollow = {} if home else {"markerfacecolor": "none", "markeredgewidth": 1.3}
    return {"marker": marker, "markersize": 7 if home else 5} | hollow


def _marks(ax, at: float, one, home: bool) -> dict[str, object]:
    """A GPU's line of a row: the ranges of the published kernel and of the limit, and the three means."""
    if np.isfinite(one.limit):
        grey = {"color": style.BOUND, "alpha": 0.6, "zorder": 1}
        # At points of microseconds the limit is hundreds of times as fast and says little: the axis ends before.
        ends = min(one.limit_most, ax.get_xlim()[1] / 1.03)
        ax.plot([one.limit_least, ends], [at] * 2, linewidth=1.2, **grey)
        if ends < one.limit_most:
            ax.plot(ends, at, marker=">", markersize=4, **grey)
    orange = {"color": style.PUBLISHED, "alpha": 0.4, "solid_capstyle": "butt", "zorder": 2}
    ends = [one.published_least, one.published_most]
    ax.plot(ends, [at] * 2, linewidth=5 if home else 2.5, **orange)
    handles = {}
    for side, (called, how) in SIDES.items():
        if home and side == "best":
            handles["its range"] = Line2D([], [], linewidth=5, **orange)
        if np.isfinite(value := getattr(one, side)):
            how = {"linestyle": "none", "zorder": 3} | how | _size(home, how["marker"])
            (mark,) = ax.plot(value, at, **how)
            handles |= {called: mark} if home else {}
    return handles


def finding(of: pd.DataFrame, gpus: Sequence[str]) -> str:
    """What a race finds, by the first GPU that ran it: what is stated, the range of the published kernel here, the mean
    of our best; and which GPUs did not run it."""
    row, called = next(of.itertuples()), records.short_gpus(gpus)
    ends = list(dict.fromkeys(f"{v:.2f}" for v in (row.published_least, row.published_most)))
    at = f" ({row.stated_at})" if row.stated_at else ""
    said = [f"stated {row.stated}{at}"] if row.stated else []
    said += [f"here {'–'.join(ends)}×", f"ours {row.best:.2f}×"]
    absent = [called[gpu] for gpu in gpus if gpu not in set(of["gpu"])]
    said += [f"not measured on {listed(absent)}"] if absent else []
    return "; ".join(said)


def _bars(ax, rows: Sequence[Row], gpus: Sequence[str], verdicts: Counts, layout: Layout) -> None:
    """Shares of the verdicts, their numbers written into the larger parts, and what the colours mean."""
    places: dict[str, Mapping[str, float]] = {}
    for row in rows:
        if row.first.room in places:
            continue
        places[row.first.room] = row.marks
        if layout.narrow:
            top = _of_bars(gpus) * (len(places) - 1) + LINE
            places[row.first.room] = {g: top + STEP * (i + 0.5) for i, g in enumerate(gpus)}
            _line(ax, top - LINE / 2, row.first.system, weight="bold")
    ticks = {}
    for room, gpu in ((room, gpu) for room in places for gpu in gpus):
        counts, at, left = verdicts.get((room, gpu), {}), places[room][gpu], 0.0
        if not (total := sum(counts.values())):
            continue
        ticks[at] = records.short_gpus(gpus)[gpu] if len(gpus) > 1 else ""
        for verdict in (v for v in VERDICT_COLOURS if counts.get(v)):
            share = counts[verdict] / total
            ax.barh(at, share, STEP * 0.82, left=left, **_part(verdict))
            if share * layout.bar > ROOM_FOR_NUMBER:
                told = f"{SIGNS[verdict]}\u2009{counts[verdict]}"
                how = {"color": style.INK, "fontsize": 8, "weight": "bold"}
                ax.text(left + share / 2, at, told, ha="center", va="center", **how)
            left += share
    ax.set(xlim=(0, 1), xticks=[], xlabel="verdicts on its claims")
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.spines["bottom"].set_visible(False)
    seen = {verdict for counts in verdicts.values() for verdict, n in counts.items() if n}
    known = {
        f"{SIGNS[v]} {v.partition(' on this')[0].partition(' to this')[0]}": Patch(**_part(v))
        for v in VERDICT_COLOURS
        if v in seen
    }
    ax.get_figure().legend(
        list(known.values()),
        list(known),
        loc="outside lower left",
        ncols=layout.columns - 1 + layout.narrow,
        handlelength=1.2,
        columnspacing=1.4,
        borderaxespad=0.2,
    )


def _part(verdict: str) -> dict[str, Any]:
    """How a verdict's part of a bar is drawn: in its colour, with a frame if nothing was measured here."""
    if verdict == OWN:
        return {"facecolor": "none", "edgecolor": style.BOUND, "linewidth": 0.8}
    return {"facecolor": VERDICT_COLOURS[verdict], "alpha": 0.45, "linewidth": 0}


def _with_counts(df: pd.DataFrame, verdicts: Counts) -> pd.DataFrame:
    """The table with what the bars show: a column for each verdict."""
    if not verdicts:
        return df
    counts = [verdicts.get((row.room, row.gpu), {}) for row in df.itertuples()]
    return df.assign(**{v: [c.get(v, 0) for c in counts] for v in VERDICT_COLOURS})


def alt(df: pd.DataFrame) -> str:
    """What `figure` shows, in words."""
    several = df["gpu"].nunique() > 1
    parts = []
    for row in df.itertuples():
        of = f"{row.system}, {row.race}{f', {row.gpu}' if several else ''}"
        limit = f", limit {row.limit:.1f}×" if np.isfinite(row.limit) else ""
        at = f" ({row.stated_at})" if row.stated_at else ""
        stated = f"stated {row.stated}{at}, " if row.stated else ""
        here = f"here {row.published:.2f}× ({row.published_least:.2f} to {row.published_most:.2f}) as published"
        parts.append(f"{of}: {stated}{here}, {row.best:.2f}× ours{limit}")
    return "Times as fast as the vendor's fastest library, geometric means. " + "; ".join(parts) + "."


def caption(df: pd.DataFrame) -> str:
    """How `figure` is read, and which race is not in the experiment that was asked for; three lines of a page."""
    gpus = list(records.short_gpus(df["gpu"]).values())
    words = f" The words have the {gpus[0]}'s numbers." if len(gpus) > 1 else ""
    instead = df[df["instead_of"] != ""].drop_duplicates(["room", "race"])
    others = "".join(
        f" {row.system} is raced at the {row.points} points of {row.experiments}, as not every GPU has "
        f"{row.instead_of}."
        for row in instead.itertuples()
    )
    return f"{CAPTION}{words}{others}"


CAPTION = "Marks: geometric means; orange bars: all points; grey: how fast memory and units let a kernel be."
