"""Each system against the vendor's library on all GPUs that have records: as published, the best of ours, the limit.

A race is a set of a room's recorded points at which three were measured: a kernel as the source publishes it, one of
ours, and a library of the vendor. The room's races.toml names them; a room without one races in the experiments that
have all three, those with the most points first.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact import rooms
from artifact.drawing import plot, style
from artifact.measure import records
from artifact.verdicts import load, measures, page

#: What the vendor's libraries are called in records.
VENDOR = ("cusparse*", "cublas*")
#: Races of a room that says nothing of them.
MOST = 2
#: Inches of a lane of the figure, and of what is above and below all.
LANE, HEAD, FOOT = 0.56, 0.62, 0.52
#: Two speedups with less than this factor between them have their numbers apart.
APART = 1.35
#: A number this near to 1 stands beside the line there, not on it.
BESIDE = 1.2
COLUMNS = (
    "room", "system", "race", "gpu", "points", "published", "published_least", "published_most", "best", "limit",
    "stated", "stated_low", "stated_high",
)  # fmt: skip
KEY = ["experiment", *records.POINT]


@dataclass(frozen=True)
class Race:
    """One row of the figure."""

    room: str
    says: str  #: what is multiplied, in a few words
    experiments: tuple[str, ...]
    published: tuple[str, ...]  #: contenders as published; patterns, as the others
    best: tuple[str, ...]  #: ours
    vendor: tuple[str, ...] = VENDOR
    ceiling: str = ""  #: microbenchmark that limits the useful work; else bytes alone
    stated: str = ""  #: claim whose published numbers are over the same library


def races(room: str, folder: Path) -> list[Race]:
    """The room's own, or those that its records under a GPU's `folder` allow. Raises ValueError for a key of races.toml
    that is none."""
    if (declared := rooms.races(room)) is None:
        return _found(room, folder)
    try:
        return [
            Race(room, **{k: tuple(v) if isinstance(v, list) else v for k, v in race.items()})
            for race in declared
        ]
    except TypeError as error:
        raise ValueError(
            f"{rooms.FOLDER / room / rooms.RACES}: a race is not whole or has a key too many ({error})."
        ) from None


def _found(room: str, folder: Path) -> list[Race]:
    variants = importlib.import_module(f"kernels.{room}").VARIANTS
    published = tuple(name for name, kernel in variants.items() if kernel.published)
    ours = tuple(name for name, kernel in variants.items() if not kernel.published)
    made = [
        Race(room, experiment, (experiment,), published, ours)
        for experiment in records.experiments(folder / room)
    ]
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
    speedups over the vendor's fastest, the least and the largest of the published kernel's, and what the source states.
    folders: name of a GPU -> its records; only: of one room. No rows without records."""
    rows = []
    claims = {claim.id: claim for claim in load.claims()}
    for room in rooms.find().values():
        having = {gpu: f for gpu, f in folders.items() if room.room in records.rooms(f)}
        if only not in ("", room.room) or not having:
            continue
        for race in races(room.room, next(iter(having.values()))):
            raced = {gpu: points(race, folder) for gpu, folder in having.items()}
            raced = {gpu: df for gpu, df in raced.items() if len(df)}
            claim = claims.get(race.stated)
            low, high = _stated(claim)
            for gpu, df in _common(raced).items():
                rebuilt = df["vendor"] / df["published"]
                over = {
                    side: records.geomean(df["vendor"] / df[side])
                    for side in ("published", "best", "limit")
                    if df[side].notna().all()
                }
                rows.append({"room": room.room, "system": room.name, "race": race.says, "gpu": gpu, "points": len(df),
                             "published_least": rebuilt.min(), "published_most": rebuilt.max(), **over,
                             "stated": claim.published if claim else "", "stated_low": low,
                             "stated_high": high})  # fmt: skip
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _common(raced: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Each at the points that all have; a GPU that shares none with the first is left out."""
    first = next(iter(raced.values()), None)
    shared = {gpu: df for gpu, df in raced.items() if df.index.isin(first.index).any()}
    index = first.index if shared else None
    for df in shared.values():
        index = index[index.isin(df.index)]
    return {gpu: df.loc[index] for gpu, df in shared.items() if len(index)}


def _stated(claim: load.Claim | None) -> tuple[float, float]:
    """The least and the largest number of what a claim's source states; NaN where there is none."""
    numbers = [float(n) for n in re.findall(r"\d+(?:\.\d+)?", claim.published)] if claim else []
    return (min(numbers), max(numbers)) if numbers else (np.nan, np.nan)


# ---------------------------------------------------------------- the figure

#: side -> what the legend says, and how it is drawn.
SIDES = {
    "published": ("as published, rebuilt here", {"color": style.PUBLISHED, "marker": "o"}),
    "best": ("our best kernel", {"color": style.BEST, "marker": "D"}),
    "limit": ("the limit of the GPU, mean", {"color": style.BOUND, "marker": "|"}),
}


def figure(df: pd.DataFrame, verdicts: Mapping[tuple[str, str], Mapping[str, int]] | None = None):
    """A lane for each row of `table`: speedups over the vendor's fastest on a log axis. verdicts: (room, GPU) ->
    verdict -> number of claims, drawn as a bar on the right of the room's first lane of that GPU, which is empty where
    the race was not run on it. (fig, data); None for no rows."""
    if df.empty:
        return None
    data, df = df, _with_absent(df, verdicts or {})
    lanes = np.arange(len(df))
    wide = {"width_ratios": (2.3, 1)} if verdicts else {}
    size = (style.WIDTH, HEAD + FOOT + LANE * len(df))
    fig, axes = plt.subplots(
        1, 2 if verdicts else 1, figsize=size, sharey=True, squeeze=False, **wide
    )
    ax = axes[0, 0]
    handles = _race(ax, df, lanes)
    if verdicts:
        _bars(axes[0, 1], df, verdicts)
    ax.set_ylim(len(df) - 0.45, -0.6)
    ax.set_yticks(lanes, _labels(df))
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    plot.legend(fig, handles, columns=3)
    return fig, data


def _with_absent(
    df: pd.DataFrame, verdicts: Mapping[tuple[str, str], Mapping[str, int]]
) -> pd.DataFrame:
    """With a row without numbers behind those of a room for each GPU that gave verdicts on it and ran no race of it."""
    found = []
    for room, own in df.groupby("room", sort=False):
        found.append(own)
        for gpu in dict.fromkeys(df["gpu"]):
            given = {**verdicts.get((room, gpu), {}), measures.NOT_MEASURED: 0}
            if gpu not in set(own["gpu"]) and sum(given.values()):
                last = own.iloc[-1]
                kept = {key: last[key] for key in ("room", "system", "race")}
                found.append(
                    pd.DataFrame([{**dict.fromkeys(df.columns, np.nan), **kept, "gpu": gpu}])
                )
    return pd.concat(found, ignore_index=True)


def _race(ax, df: pd.DataFrame, lanes: np.ndarray) -> dict[str, object]:
    drawn = ["published_least", "published_most", "best", "limit", "stated_low", "stated_high"]
    numbers = df[drawn].to_numpy(float)
    low, high = np.nanmin([*numbers.ravel(), 1]), np.nanmax([*numbers.ravel(), 1])
    ax.set_xscale("log")
    ax.set_xlim(low / 1.25, high * 1.3)
    handles = {"the vendor's fastest library": ax.axvline(1, color=style.BASELINE, linewidth=1.6)}
    for lane, row in zip(lanes, df.itertuples(), strict=True):
        ends = [v for v in (row.published, row.best, row.limit) if np.isfinite(v)]
        if not ends:
            continue
        ax.plot(
            [min(ends), max(ends)],
            [lane] * 2,
            color=style.BOUND,
            linewidth=1,
            alpha=0.45,
            zorder=1,
        )
        spread = {"color": style.PUBLISHED, "linewidth": 3.5, "alpha": 0.4, "zorder": 2}
        ax.plot([row.published_least, row.published_most], [lane] * 2, **spread)
        if np.isfinite(row.stated_low):
            stated = [row.stated_low, row.stated_high]
            ax.plot(
                stated,
                [lane + 0.24] * 2,
                **plot.hollow() | {"linestyle": "-", "color": style.CLAIM},
            )
            handles["stated by the source"] = Line2D([], [], **plot.hollow())
        for side, (called, how) in SIDES.items():
            value = getattr(row, side)
            if not np.isfinite(value):
                continue
            size = 13 if side == "limit" else 7.5
            handles[called] = ax.plot(
                value, lane, linestyle="none", markersize=size, zorder=3, **how
            )[0]
            ax.annotate(
                f"{value:.2f}" if value < 10 else f"{value:.0f}", (value, lane), (0, 8.5 if side == "limit" else 6.5),
                textcoords="offset points", ha=_aligned(row, side), fontsize=8.2, color=style.INK,
            )  # fmt: skip
    plot.log(ax.xaxis, fine=True)
    ax.set_xlabel("times as fast as the vendor's fastest library (geometric means)")
    return handles


def _aligned(row, side: str) -> str:
    """Where two markers nearly meet, their numbers go apart, if the third leaves room; none lies on the line at 1."""
    if side == "limit":
        return "left" if 1 < row.limit / max(row.best, row.published) < APART else "center"
    if not 1 / APART < row.best / row.published < APART:
        value = getattr(row, side)
        return "center" if not 1 / BESIDE < value < BESIDE else "right" if value < 1 else "left"
    left = "best" if row.best < row.published else "published"
    if side == left:
        return "right"
    return "center" if 1 < row.limit / getattr(row, side) < APART else "left"


def _labels(df: pd.DataFrame) -> list[str]:
    """What each lane finds; a race's first lane says before that which race it is, and what its source states."""
    several = df["gpu"].nunique() > 1
    called = dict(zip(df["gpu"], _short(df["gpu"]), strict=True))
    labels, last = [], None
    for row in df.itertuples():
        head = [f"{row.system} · {row.race}"] if (row.room, row.race) != last else []
        if head and row.stated:
            head.append(f"stated {row.stated}")
        of = f"{called[row.gpu]}: " if several else ""
        labels.append("\n".join([*head, f"{of}{finding(row)}"]))
        last = (row.room, row.race)
    return labels


def _short(gpus: Sequence[str]) -> list[str]:
    """Names of GPUs without their maker, and without their memory where that leaves them apart."""
    whole = [gpu.removeprefix("NVIDIA ") for gpu in gpus]
    first = [name.split()[0] for name in whole]
    return first if len(set(first)) == len(set(whole)) else whole


def finding(row) -> str:
    """What a row of `table` says: the range of the published kernel here, and our best."""
    if np.isnan(row.best):
        return "not measured"
    ends = list(dict.fromkeys(f"{v:.2f}" for v in (row.published_least, row.published_most)))
    return f"here {'–'.join(ends)}×, ours {row.best:.2f}×"


#: Drawn half transparent, so that the ink on them can be read in both modes of the page.
VERDICT_COLOURS = {
    measures.REPRODUCED: style.BASELINE,
    measures.PARTLY: style.RUNGS[3],
    measures.NOT_REPRODUCED: style.PUBLISHED,
    measures.NOT_CARRIED: style.RUNGS[0],
    measures.NOT_MEASURED: style.BOUND,
}


def _bars(ax, df: pd.DataFrame, verdicts: Mapping[tuple[str, str], Mapping[str, int]]) -> None:
    """Shares of the verdicts; the largest number written into its part."""
    seen = set()
    for lane, row in enumerate(df.itertuples()):
        found = verdicts.get((row.room, row.gpu), {})
        if (row.room, row.gpu) in seen or not sum(found.values()):
            continue
        seen.add((row.room, row.gpu))
        left, total = 0.0, sum(found.values())
        for verdict in measures.VERDICTS:
            share = found.get(verdict, 0) / total
            ax.barh(
                lane, share, 0.5, left=left, color=VERDICT_COLOURS[verdict], alpha=0.45, linewidth=0
            )
            told = f"{page.BADGES[verdict][0]}\u2009{found.get(verdict, 0)}"
            if share > 0.05 * len(told):
                how = {"color": style.INK, "fontsize": 8, "weight": "bold"}
                ax.text(left + share / 2, lane, told, ha="center", va="center", **how)
            left += share
    ax.set(xlim=(0, 1), xticks=[], xlabel="verdicts on its claims")
    ax.grid(visible=False)
    for side in ("left", "bottom"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", left=False)


def alt(df: pd.DataFrame) -> str:
    """What `figure` shows, in words."""
    several = df["gpu"].nunique() > 1
    parts = []
    for row in df.itertuples():
        of = f"{row.system}, {row.race}{f', {row.gpu}' if several else ''}"
        limit = f", limit {row.limit:.1f}×" if np.isfinite(row.limit) else ""
        stated = f"stated {row.stated}, " if row.stated else ""
        here = f"here {row.published:.2f}× ({row.published_least:.2f} to {row.published_most:.2f}) as published"
        parts.append(f"{of}: {stated}{here}, {row.best:.2f}× ours{limit}")
    return (
        "Times as fast as the vendor's fastest library, geometric means. " + "; ".join(parts) + "."
    )


CAPTION = (
    "Each system against the fastest that the vendor's libraries offer at each point, which is 1; geometric means "
    "over all points with times of the library, the source's kernel and ours. Orange: the source's kernel, rebuilt, "
    "and its range; green: the fastest of ours; grey: reading every operand once at the rate of a copy and, for units "
    "that were measured, doing the useful work at their peak, so that no kernel's mean can be to the right of it. Of "
    "several kernels the fastest counts at each point. On the left: what the source states, from where to where its "
    "kernel comes here, and the mean of our best."
)
