"""The page that holds two GPUs' records, or two measurements on one, against each other: the picture of `make compare`."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import ScaledTranslation

from artifact import paths, registry
from artifact.book import html, text
from artifact.book.facts import Fact, each, under
from artifact.drawing import gpus, plot, style
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.verdicts import causes, compare, load, measures
from kernels.library import families

LEDGER = "ledger.html"
#: Whose contender it is -> how it is drawn.
LOOKS = {
    "the source's kernels, rebuilt": {"color": style.PUBLISHED, "marker": "o"},
    "ours": {"color": style.BEST, "marker": "D"},
    "libraries": {"color": style.BASELINE, "marker": "s"},
}
#: Ceilings whose ratio the figure has as a line, if it is further from 1 than APART.
LINES = {"copy": "memory", "l2_read": "L2"}
APART = 0.05
#: Inches of a room's strip, and of what is above and below all.
STRIP, HEAD, FOOT = 0.92, 0.75, 0.55
#: What each panel shows: column of the data -> label of its axis, with the names of the two.
PANELS = {
    "faster": "times as fast on {} as on {}",
    "gain": "speedup over the library on {} over that on {}",
}
Made = Mapping[str, compare.Comparison | str]


# ---------------------------------------------------------------- what runs on which


def multiplied() -> pd.DataFrame:
    """Return a row for each format and dtype of B, a column for all families of GPUs that get the same in every row."""
    rows = families.table()
    columns: dict[tuple[str, ...], list[str]] = {}
    for family in families.FAMILIES:
        columns.setdefault(tuple(row[family.name] for row in rows.values()), []).append(family.name)
    asked = pd.DataFrame(list(rows), columns=["A", "B"])
    return asked.assign(**{"; ".join(names): list(cells) for cells, names in columns.items()})


def tried(root: Path = paths.RECORDED) -> pd.DataFrame:
    """Return a row for each family: its GPUs, compute capability, what is compiled for it, and the GPUs of which there
    are records in a folder."""
    measured: dict[str, list[str]] = {}
    for folder in (root / slug for slug in records.list_gpus(root)):
        machine = records.read_machine(folder / records.rooms(folder)[0])
        measured.setdefault(str(machine.get("compute_capability")), []).append(str(machine["gpu"]))
    capabilities = [".".join(map(str, family.compute_capability)) for family in families.FAMILIES]
    there = [f"measured: {listed(measured[c])}" if c in measured else "compiled, never run" for c in capabilities]
    targets = [f"`{family.target}`" for family in families.FAMILIES]
    names = [family.name for family in families.FAMILIES]
    return pd.DataFrame({"GPUs": names, "compute capability": capabilities, "target": targets, "kernels": there})


# ---------------------------------------------------------------- two GPUs against each other


def comparisons(found: Mapping[str, Path]) -> dict[str, compare.Comparison | str]:
    """Return name of each further GPU -> the first's records held against its own; a sentence where they have too
    little in common. found: `gpus.sides`."""
    made: dict[str, compare.Comparison | str] = {}
    for other, folder in list(found.items())[1:]:
        try:
            made[other] = compare.compare(next(iter(found.values())), folder)
        except ValueError as error:
            made[other] = str(error)
    return made


def start(found: Mapping[str, Path], made: Made) -> Iterator[Fact]:
    """Yield the GPUs, and how many verdicts change between the first and any other."""
    whole = [c.verdicts for c in made.values() if isinstance(c, compare.Comparison)]
    yield "gpus", listed(found)
    yield "changes", len({claim for df in whole for claim in df.loc[~df["agrees"], "id"]})
    yield "large", gpus.LARGE
    yield "few", causes.FEW


def facts(c: compare.Comparison) -> Iterator[Fact]:
    """Yield what the figure shows, and what `make compare` ends with: what the two sides are called, how many points and
    verdicts they have in common, and what the records of one lack."""
    df, (first, second), n = marks(c), titles(c), compare.counted(c.verdicts)
    yield from [("first", first), ("second", second), ("covered", c.covered), ("total", c.total)]
    yield from [("off", int((~c.summary["agrees"]).sum())), ("contenders", len(c.summary))]
    for room, own in df.groupby("room", sort=False)["faster"]:
        yield from under(f"faster.{registry.find()[room].name}", median=own.median(), low=own.min(), high=own.max())
    gain, near = df["gain"].dropna(), compare.SPEEDUP_TOLERANCE
    yield from under("gains", count=len(gain), near=int((np.abs(gain - 1) <= near).sum()), tolerance=near)
    yield from each("ceilings", {called: c.ceilings[name] for name, called in LINES.items() if name in c.ceilings})
    ours = c.verdicts["id"].isin([claim.id for claim in load.claims() if claim.extension])
    yield "rows", len(c.verdicts)
    yield from under("extensions", count=int(ours.sum()), changed=int((~c.verdicts["agrees"] & ours).sum()))
    yield from under("own", count=n.own, kept=n.kept, share=n.kept / max(1, n.own))
    yield from [("no_gpu", n.no_gpu), ("two_kinds", html.part("links", n.two_kinds, LEDGER) if n.two_kinds else "")]
    missing = c.verdicts[["fresh", "shipped"]] == measures.NOT_MEASURED
    yield "neither", int(missing.all(axis=1).sum())
    close = c.verdicts["cause"] == causes.CLOSE
    yield from under("changed", close=int(close.sum()), others=int((~c.verdicts["agrees"] & ~close).sum()))
    for side, there in (("fresh", second), ("shipped", first)):
        lacks = c.verdicts.loc[missing[side] & (c.verdicts["lacks"] != ""), "lacks"]
        for what, count in lacks.value_counts().items():
            yield from [(f"lacking.{there}.count", len(lacks)), (f"lacking.{there}.each.{what}", count)]


def titles(c: compare.Comparison) -> tuple[str, str]:
    """Return what the two sides are called."""
    return (f"{c.fresh}, first", f"{c.shipped}, second") if c.same_gpu else (c.fresh, c.shipped)


def changes(c: compare.Comparison, close: bool = False) -> pd.DataFrame | None:
    """Return the claims whose verdict changes, close calls alone or all others, with what was measured on both and what
    moved; None where there is none."""
    df, names = c.verdicts[~c.verdicts["agrees"] & ((c.verdicts["cause"] == causes.CLOSE) == close)], titles(c)
    ours, short = {claim.id for claim in load.claims() if claim.extension}, [*records.short_gpus(names).values()]
    rows = []
    for row in df.itertuples():
        #: Whose verdict is farther from what is claimed, as `compare` has it.
        worse = measures.VERDICTS.index(row.shipped) > measures.VERDICTS.index(row.fresh)
        given = [(row.fresh, row.fresh_measured), (row.shipped, row.shipped_measured)]
        outcomes = [html.part("outcome", verdict, row.id in ours, measured) for verdict, measured in given]
        moved = html.part("moved", row.told, row.why, short[worse])
        rows.append((html.part("worded", row.id, row.says, LEDGER), *outcomes, moved))
    return pd.DataFrame(rows, columns=["claim", *names, "what moved"]) if rows else None


def summary(changed: pd.DataFrame, found: Sequence[str] | Mapping[str, Path]) -> str:
    """Say which verdicts of a room are not the same on all GPUs, with links; changed: `gpus.changed`."""
    links = html.part("links", list(changed["id"]), LEDGER)
    told = [("gpus", listed(found)), ("count", len(changed)), ("links", links)]
    return text.page("elsewhere")("differ" if len(changed) else "same", told)


# ---------------------------------------------------------------- the figure


def figure(c: compare.Comparison) -> tuple[Any, pd.DataFrame] | None:
    """Draw a strip for each room, a mark for each contender of each experiment: how many times as fast it is on the
    first GPU as on the second, and the same of its speedup over the library, where there is one. (fig, data)."""
    df = marks(c)
    if df.empty:
        return None
    names = {name: room.name for name, room in registry.find().items() if name in set(df["room"])}
    size = (style.WIDTH, HEAD + FOOT + STRIP * len(names))
    fig, axes = plt.subplots(1, 2, figsize=size, sharey=True)
    handles: dict[str, object] = {}
    for ax, (column, label) in zip(axes, PANELS.items(), strict=True):
        handles |= _strips(ax, df.dropna(subset=[column]), column, list(names))
        ax.set_xlabel(label.format(*records.short_gpus(titles(c)).values()))
        _lines(ax, c.ceilings)
    axes[0].set_yticks(range(len(names)), map(_folded, names.values()))
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    plot.legend(fig, {name: handles[name] for name in LOOKS if name in handles}, columns=3)
    return fig, df


def marks(c: compare.Comparison) -> pd.DataFrame:
    """Return the data of `figure`: room, experiment, variant, whose, points, faster and gain, medians over the
    points."""
    df = c.summary[~c.summary["variant"].isin([f"{name}_best" for name in compare.BASELINES])]
    whose = [_whose(*pair) for pair in zip(df["room"], df["variant"], strict=True)]
    df = df.assign(whose=whose, faster=1 / df["time_ratio"], gain=df["speedup_ratio"])
    return df[["room", "experiment", "variant", "whose", "points", *PANELS]].reset_index(drop=True)


def _whose(room: str, variant: str) -> str:
    """Return one of LOOKS."""
    theirs, ours, libraries = LOOKS
    if variant.startswith(registry.PREFIXES):
        return libraries
    kernel = importlib.import_module(f"kernels.{room}").VARIANTS.get(variant)
    return theirs if kernel is not None and kernel.published else ours


def _strips(ax: Any, df: pd.DataFrame, column: str, order: Sequence[str]) -> dict[str, object]:
    """Draw marks of all rooms, those of one strip spread over its height; the outermost of each strip are named."""
    handles: dict[str, object] = {}
    ax.set_xscale("log")
    ax.set_xlim(min([*df[column], 1]) / 1.06, max([*df[column], 1]) * 1.1)
    # A fixed order that looks like none, so that neighbours seldom touch.
    df = df.assign(y=df["room"].map(order.index) + (df.groupby("room").cumcount() * 0.618) % 1 * 0.46 - 0.23)
    for whose, of in df.groupby("whose"):
        looks = {"linestyle": "none", "markersize": 3.6, "alpha": 0.75} | LOOKS[whose]
        (handles[whose],) = ax.plot(of[column], of["y"], **looks)
    for room, own in df.groupby("room"):
        ranked = own.sort_values(column)
        for mark, side, up in ((ranked.iloc[0], "left", 0.4), (ranked.iloc[-1], "right", -0.4)):
            if abs(np.log(mark[column])) > np.log1p(APART):
                # The left end below, the right one above, so that the two names cannot meet.
                ax.annotate(
                    f"{mark['variant']}, {mark['experiment']}",
                    (mark[column], mark["y"]),
                    (mark[column], order.index(room) + up),
                    ha=side,
                    va="center",
                    fontsize=8,
                    arrowprops={"arrowstyle": "-", "color": style.BOUND, "linewidth": 0.7, "shrinkA": 2, "shrinkB": 1},
                )
    for lane in range(1, len(order)):
        ax.axhline(lane - 0.5, color=style.BOUND, linewidth=0.6, alpha=0.5)
    _ticks(ax.xaxis)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    return handles


def _ticks(axis: Any) -> None:
    """Set up a log axis whose labels are even where it spans little, as ratios of two GPUs do."""
    low, high = axis.get_view_interval()
    plot.log(axis, fine=high / low > 3)
    if high / low <= 3:
        ticks = 1 + (0.1 if high / low < 1.8 else 0.2) * np.arange(-4, 11)
        axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))


def _lines(ax: Any, ceilings: Mapping[str, float]) -> None:
    """Draw where a contender lies that is the same on both, and one that goes with a ceiling."""
    ax.axvline(1, color=style.BOUND, linewidth=1.2, zorder=0)
    low, high = ax.get_xlim()
    above = ax.get_xaxis_transform() + ScaledTranslation(0, 3 / 72, ax.get_figure().dpi_scale_trans)
    for name, called in LINES.items():
        ratio = ceilings.get(name, 1.0)
        if abs(ratio - 1) > APART and low < ratio < high:
            ax.axvline(ratio, color=style.CLAIM, linewidth=1.2, linestyle=(0, (4, 3)), zorder=0)
            ax.text(ratio, 1, f"{called} {ratio:.2f}×", transform=above, ha="center", fontsize=8)


def _folded(name: str) -> str:
    """Return a name on two lines where it is long."""
    words = name.split()
    half = (len(words) + 1) // 2
    return name if len(name) < 14 else "\n".join(filter(None, (" ".join(words[:half]), " ".join(words[half:]))))
