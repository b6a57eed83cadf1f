"""Each system against the vendor's library on all GPUs that have records: as published, the best of ours, the limit.

A race is a set of a system's recorded points at which three were measured: a kernel as the source publishes it, one of
ours, and a library of the vendor. Its summary.toml names them; a system without one races in the experiments that
have all three, those with the most points first.
"""

import importlib
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pydantic import with_config

from artifact import registry
from artifact.book import facts, study, text
from artifact.drawing import formatting, plot, style
from artifact.measure import records
from artifact.verdicts import evidence, load, measures, page

#: What the vendor's libraries are called in records.
VENDOR = ("cusparse*", "cublas*")
#: Races of a system that says nothing of them.
MOST = 2
COLUMNS = (
    *("room", "system", "race", "gpu", "experiments", "instead_of", "points"),
    *("published", "published_least", "published_most", "best", "limit", "limit_least", "limit_most"),
    *("stated", "stated_at", "stated_low", "stated_high"),
)
KEY = ["experiment", *records.POINT]


@with_config(registry.STRICT)
@dataclass(frozen=True)
class Race:
    """One row of the figure."""

    room: str
    says: str  #: what is multiplied, in a few words
    experiments: Sequence[str]
    published: Sequence[str]  #: contenders as published; patterns, as the others
    best: Sequence[str]  #: ours
    otherwise: Sequence[str] = ()  #: experiments, where not all GPUs with records of the system have those
    at: Mapping[str, list] = field(default_factory=dict)  #: column of the records -> values
    vendor: Sequence[str] = VENDOR
    ceiling: str = ""  #: microbenchmark that limits the useful work; else bytes alone
    stated: Sequence[str] = ()  #: claims whose published numbers are speedups over the library
    stated_at: str = ""  #: over what or where, if that is not what is raced


def races(system: str, folder: Path) -> list[Race]:
    """Return the system's own, or those that its records under a GPU's `folder` allow.

    Raises ValueError for a key of summary.toml that is none.
    """
    if (declared := registry.races(system)) is None:
        return _found(system, folder)
    return [
        registry.checked(Race, {"room": system} | race, registry.FOLDER / system / registry.RACES) for race in declared
    ]


def _found(system: str, folder: Path) -> list[Race]:
    variants = importlib.import_module(f"kernels.{system}").VARIANTS
    published = [name for name, kernel in variants.items() if kernel.published]
    ours = [name for name, kernel in variants.items() if not kernel.published]
    made = [
        Race(system, experiment, [experiment], published, ours) for experiment in records.experiments(folder / system)
    ]
    raced = [(len(points(race, folder)), race) for race in made]
    return [race for n, race in sorted(raced, key=lambda pair: -pair[0])[:MOST] if n]


def points(race: Race, folder: Path) -> pd.DataFrame:
    """Return published, best, vendor and limit in µs at each point that has the first three.

    The limit is NaN where the GPU's ceilings were not measured. Of several contenders the fastest counts at each
    point.
    """
    files = [folder / race.room / f"{e}.csv" for e in race.experiments]
    found = [records.read(path) for path in files if path.is_file()] or [pd.DataFrame(columns=list(records.COLUMNS))]
    df = study.where(pd.concat(found, ignore_index=True), **race.at)
    sides = ("published", "best", "vendor")
    times = pd.DataFrame({side: _fastest(df, getattr(race, side)) for side in sides}).dropna()
    work = df.groupby(KEY)[["least_bytes", "useful_flops"]].max().reindex(times.index)
    known = evidence.ceilings(folder)
    gbps = known.get("copy", {}).get("gbps", np.nan)
    tflops = known.get(race.ceiling, {}).get("tflops", np.nan) if race.ceiling else np.inf
    # The least time: every operand once at the rate of a copy, and the useful work at the ceiling.
    return times.assign(limit=np.maximum(work["least_bytes"] / gbps / 1e3, work["useful_flops"] / tflops / 1e6))


def _fastest(df: pd.DataFrame, names: Sequence[str]) -> pd.Series:
    chosen = df["variant"].map(lambda v: any(fnmatch(v, name) for name in names))
    return df[chosen.astype(bool)].groupby(KEY)["median_us"].min()


def table(folders: Mapping[str, Path], only: str = "") -> pd.DataFrame:
    """Return COLUMNS, a row for each race and GPU, at the points that all GPUs of this race have.

    Geometric means of the speedups over the vendor's fastest, the least and the largest of the published kernel's and
    of the limit's, and what the source states. folders: name of a GPU -> its records; only: of one system. No rows
    without records.
    """
    rows, claims = [], {claim.id: claim for claim in load.claims()}
    for system in (system for system in registry.find().values() if only in ("", system.room)):
        having = {gpu: f for gpu, f in folders.items() if system.room in records.systems(f)}
        for asked in races(system.room, next(iter(having.values()))) if having else ():
            race, raced = _raced(asked, having)
            told = {
                "room": system.room,
                "system": system.name,
                "race": race.says,
                "experiments": ", ".join(race.experiments),
                "instead_of": "" if race is asked else ", ".join(asked.experiments),
                "stated_at": race.stated_at,
            } | _stated([claims[i] for i in asked.stated if i in claims])
            rows += [told | {"gpu": gpu, "points": len(df)} | _speeds(df) for gpu, df in raced.items()]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _speeds(df: pd.DataFrame) -> dict[str, float]:
    """Return means and ends of the speedups over the vendor; NaN of the limit where no ceiling is known."""
    over = df[["published", "best", "limit"]].rdiv(df["vendor"], axis=0)
    means = {side: records.geomean(values) if values.notna().all() else np.nan for side, values in over.items()}
    ends = {"least": over.min(), "most": over.max()}
    return means | {f"{side}_{end}": of[side] for side in ("published", "limit") for end, of in ends.items()}


def _raced(race: Race, having: Mapping[str, Path]) -> tuple[Race, dict[str, pd.DataFrame]]:
    """Return the race in its experiments, or in the others if more of the GPUs can take part there.

    And each GPU's points, those that all have; a GPU that shares none with the first is left out.
    """
    tried = []
    for one in (race, *([replace(race, experiments=race.otherwise)] if race.otherwise else [])):
        found = {gpu: df for gpu, folder in having.items() if len(df := points(one, folder))}
        first = next(iter(found.values()), pd.DataFrame()).index
        shared = {gpu: df for gpu, df in found.items() if df.index.isin(first).any()}
        index = reduce(lambda index, df: index[index.isin(df.index)], shared.values(), first)
        tried.append((one, {gpu: df.loc[index] for gpu, df in shared.items() if len(index)}))
    return max(tried, key=lambda pair: len(pair[1]))  # the first of them, if they are alike


def _stated(claims: Sequence[load.Claim]) -> dict[str, Any]:
    """Return what the source states in these claims, in its words if it is one, and its least and largest number.

    Nothing where there is none.
    """
    found = [float(n) for c in claims for n in re.findall(r"\d+(?:\.\d+)?", c.published)]
    if not found:
        return {"stated": "", "stated_at": ""}
    low, high = min(found), max(found)
    said = claims[0].published if len(claims) == 1 else f"{low:g}–{high:g}×"
    return {"stated": said, "stated_low": low, "stated_high": high}


# ---------------------------------------------------------------- the figure

#: side -> what the legend says, and how it is drawn.
SIDES: dict[str, tuple[str, dict[str, str]]] = {
    "published": ("as published, rebuilt here", {"color": style.PUBLISHED, "marker": "o"}),
    "best": ("our best kernel", {"color": style.BEST, "marker": "D"}),
    "limit": ("the limit of the GPU", {"color": style.BOUND, "marker": "|"}),
}
#: Claims that a series of the source's own decides, and no record of a GPU here: counted apart from all verdicts.
OWN = "the source's own data"
#: Verdict -> sign, and how its part of a bar is drawn: half transparent, so that the ink on it can be read in both
#: modes of the page; in a frame if nothing was measured here.
VERDICTS: dict[str, tuple[str, dict[str, Any]]] = {
    verdict: (page.LOOKS[verdict][0], {"facecolor": colour, "alpha": 0.45, "linewidth": 0})
    for verdict, colour in (
        (measures.REPRODUCED, style.BASELINE),
        (measures.PARTLY, style.RUNGS[3]),
        (measures.NOT_REPRODUCED, style.PUBLISHED),
        (measures.NOT_CARRIED, style.RUNGS[0]),
        (measures.NOT_MEASURED, style.BOUND),
    )
} | {OWN: ("=", {"facecolor": "none", "edgecolor": style.BOUND, "linewidth": 0.8})}
#: (system, GPU) -> verdict or OWN -> number of claims.
Counts = Mapping[tuple[str, str], Mapping[str, int]]
#: Inches of a row: what the source states, the marks of each GPU, the gap to the next row; a line of words.
STATED, STEP, GAP, LINE = 0.13, 0.175, 0.08, 0.17
#: A verdict's number is written into its part of a bar where it has so many inches.
ROOM_FOR_NUMBER = 0.3


class Layout(NamedTuple):
    """A figure for a page, or for a narrow one, where the verdicts lie below the races and not beside them."""

    width: float  #: inches
    letters: int  #: of a line of words above the marks
    around: float  #: inches for the legend above and the axis below
    legend: float  #: inches for the legend of the verdicts
    columns: int  #: of the legends
    bar: float  #: inches of a bar of verdicts, about
    lines: int  #: of words above the marks: the finding; narrow, the system and two lines for the finding


WIDE = Layout(style.WIDTH, 200, 1.0, 0.4, 4, 1.5, 1)
NARROW = Layout(4.1, 54, 1.3, 0.75, 2, 3.2, 3)


def drawn(df: pd.DataFrame, verdicts: Counts | None = None) -> tuple | None:
    """Draw `figure` for a page, return the data behind it, and `figure` for a narrow page; None for no rows."""
    made = figure(df, verdicts)
    return None if made is None else (*made, figure(df, verdicts, NARROW)[0])


def figure(df: pd.DataFrame, verdicts: Counts | None = None, layout: Layout = WIDE) -> Any:
    """Draw a row for each race of `table`.

    Speedups over the vendor's fastest on a log axis, the first GPU's in filled marks, below them those of the others,
    smaller and hollow. verdicts: a bar for each system and GPU, beside the system's first row. (fig, data), with a
    column for each verdict; None for no rows.
    """
    if df.empty:
        return None
    gpus = list(dict.fromkeys([*(gpu for _, gpu in verdicts or ()), *df["gpu"]]))
    marks, words = STEP * len(gpus), layout.lines * LINE + STATED
    top = df.groupby(["room", "race"], sort=False).ngroup() * (words + marks + GAP)
    #: All places are inches from the top of the axes: where a row begins, its marks begin and end, a GPU's are.
    rows = df.assign(top=top, begin=top + words, low=top + words + marks)
    rows["at"] = rows["begin"] + STEP * (df["gpu"].map(gpus.index) + 0.5)
    below = (LINE + marks + GAP) * df["room"].nunique()
    fig, axes = _axes(rows["low"].max() + GAP / 2, below if verdicts else 0, layout)
    handles = _race(axes[0], rows, gpus)
    _words(axes[0], rows, gpus, layout)
    if verdicts:
        _bars(axes[1], rows.drop_duplicates("room"), gpus, verdicts, layout)
        counts = [verdicts.get(key, {}) for key in zip(df["room"], df["gpu"], strict=True)]
        df = df.assign(**{verdict: [of.get(verdict, 0) for of in counts] for verdict in VERDICTS})
    plot.legend(fig, handles, columns=layout.columns)
    return fig, df


def _axes(high: float, below: float, layout: Layout) -> tuple[Any, Sequence[Any]]:
    """Return the figure, and the axes of the races and of the verdicts, so many inches high.

    below: of the bars of verdicts where they lie below the races; 0 where none are drawn.
    """
    ends = [high, below if layout is NARROW else high][: 2 if below else 1]
    size = (layout.width, layout.around + high + (below * (layout is NARROW) + layout.legend) * bool(below))
    wide = {"ncols": len(ends), "width_ratios": (3.1, 1)[: len(ends)]}
    cells: Any = {"nrows": len(ends), "height_ratios": ends} if layout is NARROW else wide
    fig, axes = plt.subplots(**cells, figsize=size, squeeze=False)
    for ax, end in zip(axes.flat, ends, strict=True):
        ax.set_ylim(end, 0)
        ax.grid(visible=False)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    return fig, axes.flat


def _line(ax: Any, at: float, said: str, **how: Any) -> None:
    """Write words from the left end of an axes on, that may go on over what is right of it."""
    how = {"va": "center", "fontsize": 8.5, "color": style.INK, "linespacing": 1.2} | how
    ax.text(0, at, said, transform=ax.get_yaxis_transform(), **how).set_in_layout(False)


def _words(ax: Any, rows: pd.DataFrame, gpus: Sequence[str], layout: Layout) -> None:
    """Write what was found, above the marks of a row; system and race left of them, or narrow, above that."""
    first = rows.drop_duplicates(["room", "race"])
    for (_, own), row in zip(rows.groupby(["room", "race"], sort=False), first.itertuples(), strict=True):
        said = "\n".join(textwrap.wrap(finding(own, gpus), layout.letters))
        if layout is NARROW:
            _line(ax, row.top + LINE / 2, f"{row.system}: {row.race}", weight="bold")
            _line(ax, row.top + LINE, said, va="top")
        else:
            _line(ax, row.top + LINE / 2, said)
    ax.set_yticks([])
    if layout is WIDE:
        names = ["\n".join(textwrap.wrap(race, 22)) for race in first["race"]]
        ax.set_yticks(first["top"] + LINE / 2, first["system"], weight="bold")
        ax.set_yticks(first["top"] + LINE, names, minor=True, va="top", fontsize=8.2, linespacing=1.2)
        ax.tick_params(axis="y", which="both", length=0, pad=6)


def _race(ax: Any, rows: pd.DataFrame, gpus: Sequence[str]) -> dict[str, object]:
    """Draw the marks of all rows, and return what the legend says of them."""
    first, ends = rows.drop_duplicates(["room", "race"]), ["published_least", "published_most", "best", "limit"]
    every = rows[[*ends, "stated_low", "stated_high"]].assign(vendor=1).to_numpy(float)
    ax.set_xscale("log")
    ax.set_xlim(np.nanmin(every) / 1.15, np.nanmax(every) * 1.45)
    plot.log(ax.xaxis, fine=True)
    ax.set_xlabel("times as fast as the vendor's fastest library")
    # The words between the rows stay free of lines.
    for tick in ax.get_xticks():
        at = ([tick] * len(first), first["begin"] - STATED, first["low"])
        ax.vlines(*at, color=style.INK, alpha=0.16, linewidth=0.6, zorder=0)
    blue: dict[str, Any] = {"color": style.BASELINE, "linewidth": 1.6}
    ax.vlines([1] * len(first), first["begin"] - STATED, first["low"], zorder=1, **blue)
    handles: dict[str, object] = {"the vendor's fastest library": Line2D([], [], **blue)}
    for row in first[first["stated_low"].notna()].itertuples():
        handles["stated by the source"] = Line2D([], [], **plot.hollow())
        _said(ax, row)
    for one in rows.itertuples():
        handles |= _marks(ax, one, one.gpu == gpus[0])
    for i, name in enumerate(records.short_gpus(gpus).values() if len(gpus) > 1 else ()):
        below = "hollow, below" if len(gpus) == 2 else f"hollow, {i} below"
        how: Any = {"color": style.INK, "linestyle": "none"} | _size(not i, "o")
        handles[f"{name}: {below if i else 'filled'}"] = Line2D([], [], **how)
    return handles


def _said(ax: Any, row: Any) -> None:
    """Draw what the source states: a value, from one to another, or from one on."""
    at = row.begin - STATED / 2
    how = plot.hollow() | {"linestyle": "-", "color": style.CLAIM, "markersize": 6}
    ax.plot([row.stated_low, row.stated_high], [at] * 2, **how)
    if re.match(r"(above|over|at least)\b", row.stated):
        to = {"arrowstyle": "->", "color": style.CLAIM, "linewidth": 1.3, "shrinkA": 4, "shrinkB": 0}
        ax.annotate("", (row.stated_high * 1.35, at), (row.stated_high, at), arrowprops=to)


def _size(home: bool, marker: str) -> dict[str, Any]:
    """Return how a mark of the first GPU is drawn, or one of another."""
    if marker == "|":
        return {"marker": marker, "markersize": 11 if home else 7, "markeredgewidth": 1.6}
    hollow = {"markersize": 5, "markerfacecolor": "none", "markeredgewidth": 1.3}
    return {"marker": marker} | ({"markersize": 7} if home else hollow)


def _marks(ax: Any, one: Any, home: bool) -> dict[str, object]:
    """Draw a GPU's line of a row: the ranges of the published kernel and of the limit, and the three means."""
    grey = {"color": style.BOUND, "alpha": 0.6, "zorder": 1}
    orange: dict[str, Any] = {"color": style.PUBLISHED, "alpha": 0.4, "solid_capstyle": "butt", "zorder": 2}
    # At points of microseconds the limit is hundreds of times as fast and says little: the axis ends before.
    ends = min(one.limit_most, ax.get_xlim()[1] / 1.03)
    ax.plot([one.limit_least, ends], [one.at] * 2, linewidth=1.2, **grey)
    if ends < one.limit_most:
        ax.plot(ends, one.at, marker=">", markersize=4, **grey)
    ax.plot([one.published_least, one.published_most], [one.at] * 2, linewidth=5 if home else 2.5, **orange)
    handles: dict[str, object] = {}
    for side, (called, how) in SIDES.items():
        if side == "best":
            handles["its range"] = Line2D([], [], linewidth=5, **orange)
        if np.isfinite(value := getattr(one, side)):
            looks = {"linestyle": "none", "zorder": 3} | how | _size(home, how["marker"])
            (handles[called],) = ax.plot(value, one.at, **looks)
    return handles if home else {}


def _bars(ax: Any, systems: pd.DataFrame, gpus: Sequence[str], verdicts: Counts, layout: Layout) -> None:
    """Draw shares of the verdicts, their numbers written into the larger parts, and what the colours mean."""
    short, ticks = records.short_gpus(gpus), {}
    for i, row in enumerate(systems.itertuples()):
        begin = row.begin
        if layout is NARROW:
            begin = (LINE + STEP * len(gpus) + GAP) * i + LINE
            _line(ax, begin - LINE / 2, row.system, weight="bold")
        places = {gpu: begin + STEP * (j + 0.5) for j, gpu in enumerate(gpus) if verdicts.get((row.room, gpu))}
        for gpu, at in places.items():
            shares, left = pd.Series(verdicts[row.room, gpu]) / sum(verdicts[row.room, gpu].values()), 0.0
            ticks[at] = short[gpu] if len(gpus) > 1 else ""
            for verdict, (sign, how) in ((v, looks) for v, looks in VERDICTS.items() if shares.get(v)):
                ax.barh(at, shares[verdict], STEP * 0.82, left=left, **how)
                if shares[verdict] * layout.bar > ROOM_FOR_NUMBER:
                    ink = {"color": style.INK, "fontsize": 8, "weight": "bold", "ha": "center", "va": "center"}
                    said = f"{sign}\u2009{verdicts[row.room, gpu][verdict]}"
                    ax.text(left + shares[verdict] / 2, at, said, **ink)
                left += shares[verdict]
    ax.set(xlim=(0, 1), xticks=[], xlabel="verdicts on its claims")
    ax.set_yticks(list(ticks), list(ticks.values()))
    ax.spines["bottom"].set_visible(False)
    seen = [v for v in VERDICTS if any(of.get(v) for of in verdicts.values())]
    ax.get_figure().legend(
        [Patch(**VERDICTS[v][1]) for v in seen],
        [f"{VERDICTS[v][0]} {re.sub(' (?:on|to) this.*', '', v)}" for v in seen],
        loc="outside lower left",
        ncols=layout.columns - 1 + (layout is NARROW),
        handlelength=1.2,
        columnspacing=1.4,
        borderaxespad=0.2,
    )


# ---------------------------------------------------------------- in words


def finding(of: pd.DataFrame, gpus: Sequence[str]) -> str:
    """Say what a race finds, by the first GPU that ran it.

    What is stated, the range of the published kernel here, the mean of our best; and which GPUs did not run it.
    """
    short = records.short_gpus(gpus)
    absent = formatting.listed(short[gpu] for gpu in gpus if gpu not in set(of["gpu"]))
    return text.page("races")("finding", facts.flat({"of": of.iloc[0].to_dict(), "absent": absent}))


def _told(df: pd.DataFrame, block: str) -> str:
    gpus = records.short_gpus(df["gpu"])
    told = {"several": len(gpus) > 1, "first": next(iter(gpus.values()), ""), "home": next(iter(gpus), "")}
    return text.page("races")(block, facts.flat(told | {"races": {str(i): dict(row) for i, row in df.iterrows()}}))


def alt(df: pd.DataFrame) -> str:
    """Say what `figure` shows."""
    return _told(df, "alt")


def caption(df: pd.DataFrame) -> str:
    """Say how `figure` is read, and which race is not in the experiment that was asked for; three lines of a page."""
    return _told(df, "caption")
