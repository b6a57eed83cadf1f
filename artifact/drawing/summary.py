"""Each system against the vendor's library on all GPUs that have records: as published, the best of ours, the limit.

A race is a set of a system's recorded points at which three were measured: a kernel as the source publishes it, one of
ours, and a library of the vendor. Its summary.toml names them; a system without one races in the experiments that
have all three, those with the most points first.
"""

import fnmatch
import importlib
import re
import textwrap
from collections import namedtuple
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from pydantic import with_config

from artifact import registry
from artifact.book import facts, study, text
from artifact.drawing import plot, style
from artifact.measure import records
from artifact.verdicts import judge, load

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
    vendor: Sequence[str] = ("cusparse*", "cublas*")  #: the vendor's libraries
    ceiling: str = ""  #: microbenchmark that limits the useful work; else bytes alone
    stated: Sequence[str] = ()  #: claims whose published numbers are speedups over the library
    stated_at: str = ""  #: over what or where, if that is not what is raced


def races(system: str, folder: Path) -> list[Race]:
    """Return the system's own, or those that its records under a GPU's `folder` allow.

    Raises ValueError for a key of summary.toml that is none.
    """
    if (declared := registry.races(system)) is not None:
        path = registry.FOLDER / system / registry.RACES
        return [registry.checked(Race, {"room": system} | race, path) for race in declared]
    variants = importlib.import_module(f"kernels.{system}").VARIANTS
    published, ours = ([n for n, kernel in variants.items() if kernel.published == theirs] for theirs in (True, False))
    found = [Race(system, name, [name], published, ours) for name in records.experiments(folder / system)]
    count = {race.says: len(points(race, folder)) for race in found}
    return [race for race in sorted(found, key=lambda race: -count[race.says])[:MOST] if count[race.says]]


def points(race: Race, folder: Path) -> pd.DataFrame:
    """Return published, best, vendor and limit in µs at each point that has the first three.

    The limit is NaN where the GPU's ceilings were not measured. Of several contenders the fastest counts at each
    point.
    """
    files = [folder / race.room / f"{e}.csv" for e in race.experiments]
    read = [records.read(path) for path in files if path.is_file()] or [pd.DataFrame(columns=list(records.COLUMNS))]
    df, times = study.where(pd.concat(read, ignore_index=True), **race.at), {}
    for side in ("published", "best", "vendor"):
        named = {n for pattern in getattr(race, side) for n in fnmatch.filter(df["variant"].unique(), pattern)}
        times[side] = df[df["variant"].isin(named)].groupby(KEY)["median_us"].min()
    made = pd.DataFrame(times).dropna()
    work = df.groupby(KEY)[["least_bytes", "useful_flops"]].max().reindex(made.index)
    known = records.ceilings(folder)
    gbps = known.get("copy", {}).get("gbps", np.nan)
    tflops = known.get(race.ceiling, {}).get("tflops", np.nan) if race.ceiling else np.inf
    # The least time: every operand once at the rate of a copy, and the useful work at the ceiling.
    return made.assign(limit=np.maximum(work["least_bytes"] / gbps / 1e3, work["useful_flops"] / tflops / 1e6))


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
            for gpu, df in raced.items():
                over = df[["published", "best", "limit"]].rdiv(df["vendor"], axis=0)
                # NaN of the limit where no ceiling is known.
                ends = {"": np.exp(np.log(over).mean(skipna=False)), "_least": over.min(), "_most": over.max()}
                rows.append(
                    told
                    | {"gpu": gpu, "points": len(df)}
                    | {f"{side}{end}": of[side] for end, of in ends.items() for side in over}
                )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _raced(race: Race, having: Mapping[str, Path]) -> tuple[Race, dict[str, pd.DataFrame]]:
    """Return the race in its experiments, or in the others if more of the GPUs can take part there.

    And each GPU's points, those that all have; a GPU that shares none with the first is left out.
    """
    tried = []
    for one in (race, *([replace(race, experiments=race.otherwise)] if race.otherwise else [])):
        found = {gpu: df for gpu, folder in having.items() if len(df := points(one, folder))}
        index = next(iter(found.values()), pd.DataFrame()).index
        shared = {gpu: df for gpu, df in found.items() if df.index.isin(index).any()}
        for df in shared.values():
            index = index[index.isin(df.index)]
        tried.append((one, {gpu: df.loc[index] for gpu, df in shared.items() if len(index)}))
    return max(tried, key=lambda pair: len(pair[1]))  # the first of them, if they are alike


def _stated(claims: Sequence[load.Claim]) -> dict[str, Any]:
    """Return what the source states in these claims, in its words if it is one, and its least and largest number.

    Nothing where there is none.
    """
    found = [float(n) for c in claims for n in re.findall(r"\d+(?:\.\d+)?", c.published)]
    if not found:
        return {"stated": "", "stated_at": ""}
    return {
        "stated": claims[0].published if len(claims) == 1 else f"{min(found):g}–{max(found):g}×",
        "stated_low": min(found),
        "stated_high": max(found),
    }


# ---------------------------------------------------------------- the figure

#: How a mark of the first GPU is drawn, and one of another.
FILLED, HOLLOW = {"markersize": 7}, {"markersize": 5, "markerfacecolor": "none", "markeredgewidth": 1.3}
#: side -> what the legend says, and how it is drawn, for the first GPU and for the others.
SIDES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "published": ("as published, rebuilt here", {"color": style.PUBLISHED, "marker": "o"}, FILLED, HOLLOW),
    "best": ("our best kernel", {"color": style.BEST, "marker": "D"}, FILLED, HOLLOW),
    "limit": (
        "the limit of the GPU",
        {"color": style.BOUND, "marker": "|", "markeredgewidth": 1.6},
        {"markersize": 11},
        {"markersize": 7},
    ),
}
#: Claims that a series of the source's own decides, and no record of a GPU here: counted apart from all verdicts.
OWN = "the source's own data"
#: Verdict -> sign, and how its part of a bar is drawn: half transparent, so that the ink on it can be read in both
#: modes of the page; in a frame if nothing was measured here.
VERDICTS: dict[str, tuple[str, dict[str, Any]]] = {
    verdict: (judge.LOOKS[verdict][0], {"facecolor": colour, "alpha": 0.45, "linewidth": 0})
    for verdict, (colour, _) in style.VERDICTS.items()
} | {
    judge.REBUILT: (judge.LOOKS[judge.REBUILT][0], {"facecolor": style.RUNGS[1], "alpha": 0.45, "linewidth": 0}),
    OWN: ("=", {"facecolor": "none", "edgecolor": style.BOUND, "linewidth": 0.8}),
}
#: (system, GPU) -> verdict or OWN -> number of claims.
Counts = Mapping[tuple[str, str], Mapping[str, int]]
Decide = Mapping[str, str]  #: system -> the GPU that decides its claims
NOBODY: Decide = {}
#: Inches of a row: what the source states, the marks of each GPU, the gap to the next row; a line of words.
STATED, STEP, GAP, LINE = 0.13, 0.175, 0.08, 0.17
#: A figure for a page, or for a narrow one, where the verdicts lie below the races and not beside them. width: inches;
#: letters: of a line of words above the marks; around: inches for the legend above and the axis below; legend: inches
#: for the legend of the verdicts; columns: of the legends; bar: inches of a bar of verdicts, about; lines: of words
#: above the marks, the finding, or narrow, the system and two lines for the finding.
Layout = namedtuple("Layout", "width letters around legend columns bar lines")
WIDE, NARROW = Layout(style.WIDTH, 200, 1.0, 0.4, 4, 1.5, 1), Layout(4.1, 54, 1.3, 0.75, 2, 3.2, 3)


def drawn(df: pd.DataFrame, verdicts: Counts | None = None, decide: Decide = NOBODY) -> tuple | None:
    """Draw `figure` for a page, return the data behind it, and `figure` for a narrow page; None for no rows."""
    return None if df.empty else (*figure(df, verdicts, WIDE, decide), figure(df, verdicts, NARROW, decide)[0])


def figure(
    df: pd.DataFrame, verdicts: Counts | None = None, layout: Layout = WIDE, decide: Decide = NOBODY
) -> tuple[Any, pd.DataFrame]:
    """Draw a row for each race of `table`.

    Speedups over the vendor's fastest on a log axis, the first GPU's in filled marks, below them those of the others,
    smaller and hollow. verdicts: a bar for each system and GPU, beside the system's first row; the name of the GPU that
    decides is bold. (fig, data), with a column for each verdict and whether the GPU decides.
    """
    gpus = list(dict.fromkeys([*(gpu for _, gpu in verdicts or ()), *df["gpu"]]))
    marks, words, narrow = STEP * len(gpus), layout.lines * LINE + STATED, layout is NARROW
    top = df.groupby(["room", "race"], sort=False).ngroup() * (words + marks + GAP)
    #: All places are inches from the top of the axes: where a row begins, its marks begin and end, a GPU's are.
    rows = df.assign(top=top, begin=top + words, low=top + words + marks)
    rows["at"] = rows["begin"] + STEP * (df["gpu"].map(gpus.index) + 0.5)
    #: Inches of the races, and of the verdicts below or beside them.
    high = [rows["low"].max() + GAP / 2]
    high += [(LINE + marks + GAP) * df["room"].nunique() if narrow else high[0]] * bool(verdicts)
    cells: Any = (
        {"nrows": len(high), "height_ratios": high}
        if narrow
        else {"ncols": len(high), "width_ratios": (3.1, 1)[: len(high)]}
    )
    fig, axes = plt.subplots(
        **cells,
        figsize=(layout.width, layout.around + (sum(high) if narrow else high[0]) + layout.legend * bool(verdicts)),
        squeeze=False,
    )
    for ax, end in zip(axes.flat, high, strict=True):
        ax.set_ylim(end, 0)
        ax.grid(visible=False)
        ax.tick_params(axis="y", length=0)
        ax.spines["left"].set_visible(False)
    handles = _race(axes.flat[0], rows, gpus)
    _words(axes.flat[0], rows, gpus, layout)
    if verdicts:
        _bars(axes.flat[1], rows.drop_duplicates("room"), gpus, verdicts, layout, decide)
        counts = [verdicts.get(key, {}) for key in zip(df["room"], df["gpu"], strict=True)]
        each = {verdict: [of.get(verdict, 0) for of in counts] for verdict in VERDICTS}
        df = df.assign(**each, decides=df["gpu"] == df["room"].map(decide))
    plot.legend(fig, handles, columns=layout.columns)
    return fig, df


def _line(ax: Any, at: float, said: str, **how: Any) -> None:
    """Write words from the left end of an axes on, that may go on over what is right of it."""
    how = {"va": "center", "fontsize": 8.5, "color": style.INK, "linespacing": 1.2} | how
    ax.text(0, at, said, transform=ax.get_yaxis_transform(), **how).set_in_layout(False)


def _words(ax: Any, rows: pd.DataFrame, gpus: Sequence[str], layout: Layout) -> None:
    """Write what was found, above the marks of a row; system and race left of them, or narrow, above that."""
    ax.set_yticks([])
    short = records.short_gpus(gpus)
    for _, own in rows.groupby(["room", "race"], sort=False):
        # What a race finds by the first GPU that ran it, and which GPUs did not.
        row, absent = own.iloc[0], text.listed(short[gpu] for gpu in gpus if gpu not in set(own["gpu"]))
        found = text.page("races")("finding", facts.flat({"of": row.to_dict(), "absent": absent}))
        said = "\n".join(textwrap.wrap(found, layout.letters))
        if layout is NARROW:
            _line(ax, row.top + LINE / 2, f"{row.system}: {row.race}", weight="bold")
            _line(ax, row.top + LINE, said, va="top")
        else:
            _line(ax, row.top + LINE / 2, said)
    if layout is WIDE:
        first = rows.drop_duplicates(["room", "race"])
        names = ["\n".join(textwrap.wrap(race, 22)) for race in first["race"]]
        ax.set_yticks(first["top"] + LINE / 2, first["system"], weight="bold")
        ax.set_yticks(first["top"] + LINE, names, minor=True, va="top", fontsize=8.2, linespacing=1.2)
        ax.tick_params(axis="y", which="both", length=0, pad=6)


def _race(ax: Any, rows: pd.DataFrame, gpus: Sequence[str]) -> dict[str, object]:
    """Draw the marks of all rows, and return what the legend says of them."""
    first, ends = rows.drop_duplicates(["room", "race"]), ["published_least", "published_most", "best", "limit"]
    every, top = rows[[*ends, "stated_low", "stated_high"]].assign(vendor=1).to_numpy(float), first["begin"] - STATED
    ax.set_xscale("log")
    ax.set_xlim(np.nanmin(every) / 1.15, right := np.nanmax(every) * 1.45)
    plot.log(ax.xaxis, fine=True)
    ax.set_xlabel("times as fast as the vendor's fastest library")
    # The words between the rows stay free of lines.
    for tick in ax.get_xticks():
        ax.vlines([tick] * len(first), top, first["low"], color=style.INK, alpha=0.16, linewidth=0.6, zorder=0)
    blue: dict[str, Any] = {"color": style.BASELINE, "linewidth": 1.6}
    ax.vlines([1] * len(first), top, first["low"], zorder=1, **blue)
    handles: dict[str, object] = {"the vendor's fastest library": Line2D([], [], **blue)}
    for row in first[first["stated_low"].notna()].itertuples():  # a value, from one to another, or from one on
        handles["stated by the source"] = Line2D([], [], **plot.hollow())
        place = row.begin - STATED / 2
        how = plot.hollow() | {"linestyle": "-", "color": style.CLAIM, "markersize": 6}
        ax.plot([row.stated_low, row.stated_high], [place] * 2, **how)
        if re.match(r"(above|over|at least)\b", row.stated):
            to = {"arrowstyle": "->", "color": style.CLAIM, "linewidth": 1.3, "shrinkA": 4, "shrinkB": 0}
            ax.annotate("", (row.stated_high * 1.35, place), (row.stated_high, place), arrowprops=to)
    # At points of microseconds the limit is hundreds of times as fast and says little: the axis ends before.
    grey: dict[str, Any] = {"color": style.BOUND, "alpha": 0.6, "zorder": 1}
    orange: dict[str, Any] = {"color": style.PUBLISHED, "alpha": 0.4}
    home, shown = rows["gpu"] == gpus[0], rows["limit_most"].clip(upper=right / 1.03)
    beyond, wide = shown < rows["limit_most"], np.where(home, 5, 2.5)
    ax.hlines(rows["at"], rows["limit_least"], shown, linewidth=1.2, capstyle="projecting", **grey)
    ax.plot(shown[beyond], rows["at"][beyond], marker=">", markersize=4, linestyle="none", **grey)
    ax.hlines(rows["at"], rows["published_least"], rows["published_most"], linewidth=wide, zorder=2, **orange)
    for side, (called, how, *sizes) in SIDES.items():
        if side == "best":
            handles["its range"] = Line2D([], [], linewidth=5, solid_capstyle="butt", **orange)
        for one in rows[rows[side].notna()].itertuples():
            looks = {"linestyle": "none", "zorder": 3} | how | sizes[one.gpu != gpus[0]]
            (mark,) = ax.plot(getattr(one, side), one.at, **looks)
            handles |= {called: mark} if one.gpu == gpus[0] else {}
    for i, name in enumerate(records.short_gpus(gpus).values() if len(gpus) > 1 else ()):
        below = "hollow, below" if len(gpus) == 2 else f"hollow, {i} below"
        look: Any = {"color": style.INK, "linestyle": "none", "marker": "o"} | (HOLLOW if i else FILLED)
        handles[f"{name}: {below if i else 'filled'}"] = Line2D([], [], **look)
    return handles


def _bars(
    ax: Any, systems: pd.DataFrame, gpus: Sequence[str], verdicts: Counts, layout: Layout, decide: Decide
) -> None:
    """Draw shares of the verdicts, their numbers written into the larger parts, and what the colours mean."""
    short, ticks, bold, narrow = records.short_gpus(gpus), {}, [], layout is NARROW
    ink = {"color": style.INK, "fontsize": 8, "weight": "bold", "ha": "center", "va": "center"}
    for i, row in enumerate(systems.itertuples()):
        begin = (LINE + STEP * len(gpus) + GAP) * i + LINE if narrow else row.begin
        if narrow:
            _line(ax, begin - LINE / 2, row.system, weight="bold")
        for gpu in (gpu for gpu in gpus if verdicts.get((row.room, gpu))):
            counts = pd.Series(verdicts[row.room, gpu]).reindex(list(VERDICTS)).dropna()
            at, shares = begin + STEP * (gpus.index(gpu) + 0.5), counts / counts.sum()
            ticks[at] = short[gpu] if len(gpus) > 1 else ""
            bold += [at] * (decide.get(row.room) == gpu)
            for verdict, share, end in zip(counts.index, shares, shares.cumsum(), strict=True):
                sign, how = VERDICTS[verdict]
                ax.barh(at, share, STEP * 0.82, left=end - share, **how)
                if share * layout.bar > 0.3:  # inches that a number needs
                    ax.text(end - share / 2, at, f"{sign}\u2009{counts[verdict]:g}", **ink)
    ax.set(xlim=(0, 1), xticks=[], xlabel="verdicts on its claims")
    ax.set_yticks(list(ticks), list(ticks.values()))
    for at, label in zip(ticks, ax.get_yticklabels(), strict=True):
        label.set_weight("bold" if at in bold else "normal")
    ax.spines["bottom"].set_visible(False)
    seen = [v for v in VERDICTS if any(of.get(v) for of in verdicts.values())]
    ax.get_figure().legend(
        [Patch(**VERDICTS[v][1]) for v in seen],
        [f"{VERDICTS[v][0]} {re.sub(' (?:on|to) th.*', '', v)}" for v in seen],
        loc="outside lower left",
        ncols=layout.columns - 1 + narrow,
        handlelength=1.2,
        columnspacing=1.4,
        borderaxespad=0.2,
    )


# ---------------------------------------------------------------- in words


def told(df: pd.DataFrame, decide: Decide = NOBODY) -> dict[str, str]:
    """Return alternative text and caption of `figure`.

    What it shows; and how it is read, and which race is not in the experiment that was asked for, in three lines.
    """
    gpus, made = records.short_gpus(df["gpu"]), text.page("races")
    names = dict(zip(df["room"], df["system"], strict=True))
    known = {
        **{"several": len(gpus) > 1, "first": next(iter(gpus.values()), ""), "home": next(iter(gpus), "")},
        "deciders": text.listed(f"{names[room]} by the {gpus[gpu]}" for room, gpu in decide.items() if gpu in gpus),
        "races": {str(i): dict(row) for i, row in df.iterrows()},
    }
    made.add(facts.flat(known))
    return {block: made(block) for block in ("alt", "caption")}
