"""The page that holds two GPUs' records, or two measurements on one, against each other: the picture of `make compare`."""

from __future__ import annotations

import html
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.ticker import FixedLocator
from matplotlib.transforms import ScaledTranslation

from artifact import paths, registry
from artifact.drawing import plot, prose, style
from artifact.drawing.words import listed
from artifact.measure import records
from artifact.verdicts import causes, compare, load, measures, page
from kernels.library import families

LEDGER = "ledger.html"
COMMANDS = """```sh
make measure                    # every room on your GPU, into build/records/
make artifact                   # this book: your GPU beside the shipped ones
make artifact GPU=… RECORDS=…   # the same elsewhere, from a copy of build/records/
make compare FRESH=… SHIPPED=…  # two folders or GPUs; the exit code answers
```"""
#: Whose contender it is -> how it is drawn.
LOOKS = {
    "the source's kernels, rebuilt": {"color": style.PUBLISHED, "marker": "o"},
    "ours": {"color": style.BEST, "marker": "D"},
    "libraries": {"color": style.BASELINE, "marker": "s"},
}
#: Ceilings whose ratio the figure has as a line, if it is further from 1 than APART.
LINES = {"copy": "memory", "l2_read": "L2"}
APART = 0.05
#: Inches of a room's strip, and of what is above and below all; contenders that each end of a strip names.
STRIP, HEAD, FOOT, NAMED = 0.92, 0.75, 0.55, 1
#: What each panel shows: column of the data -> label of its axis, with the names of the two.
PANELS = {
    "faster": "times as fast on {} as on {}",
    "gain": "speedup over the library on {} over that on {}",
}


def alone(found: Mapping[str, Path]) -> str:
    """What the page says where there is nothing to compare with; nothing where there is."""
    if len(found) > 1:
        return ""
    have = f"one GPU: {next(iter(found))}" if found else "no GPU"
    return (
        f"**There are records of {have}.** Nothing to hold against each other yet. Yours appears here, in the ledger, on the front "
        "page and at the head of every chapter by one command; no line of code names a GPU:"
    )


@prose.captioned("What the library multiplies with, as its routes say when they are asked about each GPU.")
def multiplied() -> pd.DataFrame:
    """A row for each format and dtype of B, a column for all families of GPUs that get the same in every row."""
    rows = families.table()
    columns: dict[tuple[str, ...], list[str]] = {}
    for family in families.FAMILIES:
        columns.setdefault(tuple(row[family.name] for row in rows.values()), []).append(family.name)
    asked = pd.DataFrame(list(rows), columns=["A", "B"])
    return asked.assign(**{"; ".join(names): list(cells) for cells, names in columns.items()})


@prose.captioned("The families of GPUs, and whether anybody has run the kernels there.")
def tried(root: Path = paths.RECORDED) -> pd.DataFrame:
    """A row for each family: its GPUs, compute capability, what is compiled for it, and the GPUs of which there are
    records in a folder."""
    measured: dict[str, list[str]] = {}
    for slug in records.list_gpus(root):
        machine = records.read_machine(root / slug / records.rooms(root / slug)[0])
        measured.setdefault(str(machine.get("compute_capability")), []).append(str(machine["gpu"]))
    rows = []
    for family in families.FAMILIES:
        capability = ".".join(map(str, family.compute_capability))
        there = measured.get(capability)
        state = f"measured: {listed(there)}" if there else "compiled, never run"
        rows.append((family.name, capability, f"`{family.target}`", state))
    return pd.DataFrame(rows, columns=["GPUs", "compute capability", "target", "kernels"])


def markdown(df: pd.DataFrame) -> str:
    """A table as Markdown, as the README has it."""
    lines = [list(df.columns), ["---"] * df.shape[1], *df.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def coded(df: pd.DataFrame) -> pd.DataFrame:
    """The same with `code` as HTML, for a page."""
    made = df.map(prose.inline_code)
    made.attrs = df.attrs
    return made


def comparisons(found: Mapping[str, Path]) -> dict[str, compare.Comparison | str]:
    """Name of each further GPU -> the first's records held against its own; a sentence where they have too little in
    common. found: `gpus.sides`."""
    made: dict[str, compare.Comparison | str] = {}
    for other, folder in list(found.items())[1:]:
        try:
            made[other] = compare.compare(next(iter(found.values())), folder)
        except ValueError as error:
            made[other] = str(error)
    return made


def figure(c: compare.Comparison):
    """A strip for each room, a mark for each contender of each experiment: how many times as fast it is on the first GPU
    as on the second, and the same of its speedup over the library, where there is one. (fig, data)."""
    df = marks(c)
    if df.empty:
        return None
    order = [name for name in registry.find() if name in set(df["room"])]
    size = (style.WIDTH, HEAD + FOOT + STRIP * len(order))
    fig, axes = plt.subplots(1, 2, figsize=size, sharey=True)
    handles: dict[str, object] = {}
    for ax, (column, label) in zip(axes, PANELS.items(), strict=True):
        handles |= _strips(ax, df.dropna(subset=[column]), column, order)
        ax.set_xlabel(label.format(*_short(c)))
        _lines(ax, c.ceilings)
    axes[0].set_yticks(range(len(order)), [_folded(registry.find()[name].name) for name in order])
    axes[0].set_ylim(len(order) - 0.5, -0.5)
    plot.legend(fig, {name: handles[name] for name in LOOKS if name in handles}, columns=3)
    return fig, df


def marks(c: compare.Comparison) -> pd.DataFrame:
    """The data of `figure`: room, experiment, variant, whose, points, faster and gain, medians over the points."""
    df = c.summary[~c.summary["variant"].isin([f"{name}_best" for name in compare.BASELINES])]
    whose = [_whose(*pair) for pair in zip(df["room"], df["variant"], strict=True)]
    df = df.assign(whose=whose, faster=1 / df["time_ratio"], gain=df["speedup_ratio"])
    return df[["room", "experiment", "variant", "whose", "points", *PANELS]].reset_index(drop=True)


def _whose(room: str, variant: str) -> str:
    """One of LOOKS."""
    theirs, ours, libraries = LOOKS
    if variant.startswith(registry.PREFIXES):
        return libraries
    kernel = importlib.import_module(f"kernels.{room}").VARIANTS.get(variant)
    return theirs if kernel is not None and kernel.published else ours


def _strips(ax, df: pd.DataFrame, column: str, order: Sequence[str]) -> dict[str, object]:
    """Marks of all rooms, those of one strip spread over its height; the outermost of each strip are named."""
    handles: dict[str, object] = {}
    ax.set_xscale("log")
    low, high = min([*df[column], 1]), max([*df[column], 1])
    ax.set_xlim(low / 1.06, high * 1.1)
    for lane, room in enumerate(order):
        own = df[df["room"] == room]
        # A fixed order that looks like none, so that neighbours seldom touch.
        spread = (np.arange(len(own)) * 0.618) % 1 * 0.46 - 0.23
        places = pd.Series(lane + spread, own.index)
        for whose, look in LOOKS.items():
            of = own[own["whose"] == whose]
            if len(of):
                handles[whose] = ax.plot(
                    of[column],
                    places[of.index],
                    linestyle="none",
                    markersize=3.6,
                    alpha=0.75,
                    **look,
                )[0]
        ranked = own.sort_values(column)
        for row, side in ((ranked.head(NAMED), "left"), (ranked.tail(NAMED), "right")):
            for mark in row.itertuples():
                value = getattr(mark, column)
                if abs(np.log(value)) > np.log1p(APART):
                    _name(
                        ax,
                        f"{mark.variant}, {mark.experiment}",
                        value,
                        places[mark.Index],
                        lane,
                        side,
                    )
        if lane:
            ax.axhline(lane - 0.5, color=style.BOUND, linewidth=0.6, alpha=0.5)
    _ticks(ax.xaxis)
    ax.tick_params(axis="y", length=0)
    ax.grid(axis="y", visible=False)
    return handles


def _ticks(axis) -> None:
    """A log axis whose labels are even where it spans little, as ratios of two GPUs do."""
    low, high = axis.get_view_interval()
    if high / low > 3:
        return plot.log(axis, fine=True)
    plot.log(axis)
    step = 0.1 if high / low < 1.8 else 0.2
    ticks = 1 + step * np.arange(-4, 11)
    axis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))


def _name(ax, text: str, x: float, y: float, lane: int, side: str) -> None:
    """What a mark at this end of a strip is called, with a thin line to it: the left end below, the right one above, so
    that the two names cannot meet."""
    ax.annotate(
        text,
        (x, y),
        xytext=(x, lane + (0.4 if side == "left" else -0.4)),
        textcoords="data",
        ha=side,
        va="center",
        fontsize=8,
        arrowprops={"arrowstyle": "-", "color": style.BOUND, "linewidth": 0.7, "shrinkA": 2, "shrinkB": 1},
    )


def _lines(ax, ceilings: Mapping[str, float]) -> None:
    """Where a contender lies that is the same on both, and one that goes with a ceiling."""
    ax.axvline(1, color=style.BOUND, linewidth=1.2, zorder=0)
    low, high = ax.get_xlim()
    above = ax.get_xaxis_transform() + ScaledTranslation(0, 3 / 72, ax.get_figure().dpi_scale_trans)
    for name, called in LINES.items():
        ratio = ceilings.get(name, 1.0)
        if abs(ratio - 1) > APART and low < ratio < high:
            ax.axvline(ratio, color=style.CLAIM, linewidth=1.2, linestyle=(0, (4, 3)), zorder=0)
            ax.text(ratio, 1, f"{called} {ratio:.2f}×", transform=above, ha="center", fontsize=8)


def _folded(name: str) -> str:
    """A name on two lines where it is long."""
    words = name.split()
    half = (len(words) + 1) // 2
    return name if len(name) < 14 or half == len(words) else " ".join(words[:half]) + "\n" + " ".join(words[half:])


def _short(c: compare.Comparison) -> list[str]:
    return list(records.short_gpus(titles(c)).values())


def titles(c: compare.Comparison) -> tuple[str, str]:
    """What the two sides are called."""
    return (f"{c.fresh}, first", f"{c.shipped}, second") if c.same_gpu else (c.fresh, c.shipped)


def below(c: compare.Comparison) -> dict[str, str]:
    """Alternative text and caption."""
    df = marks(c)
    first, second = titles(c)
    each = "; ".join(
        f"{registry.find()[room].name} {own['faster'].median():.2f} ({own['faster'].min():.2f} to {own['faster'].max():.2f})"
        for room, own in df.groupby("room", sort=False)
    )
    gain = df["gain"].dropna()
    near = (np.abs(gain - 1) <= compare.SPEEDUP_TOLERANCE).sum()
    dashed = [f"{called}, {c.ceilings[name]:.2f}×" for name, called in LINES.items() if name in c.ceilings]
    lines = (
        f" Dashed: the ratios of what was measured of {listed(dashed)}, where a contender lies that is bound by it, and on the "
        "right one whose library is not."
    )
    return {
        "alt": f"How many times as fast contenders are on {first} as on {second}, median and range of each room: {each}. "
        f"Of {len(gain)} speedups over the library {near} differ by at most {compare.SPEEDUP_TOLERANCE:.0%}.",
        "caption": f"One mark for each contender of each experiment: medians over the points that both have.{lines * bool(dashed)}"
        " The outermost of each strip are named.",
    }


def verdict(c: compare.Comparison) -> str:
    """What `make compare` ends with, in a few sentences."""
    covers = f"The first have {f'all {c.total}' if c.covered == c.total else f'{c.covered} of the {c.total}'} points of the second."
    if c.same_gpu:
        off = (~c.summary["agrees"]).sum()
        said = "agree" if c.agrees else f"differ in {off} of {len(c.summary)} contenders and experiments"
        return f"{covers} On one kind of GPU times and speedups decide: the records {said}."
    n = compare.counted(c.verdicts)
    apart = f"; {n.no_gpu} more no GPU decides, as they rest on the sources' own series or on programs alone"
    ours = {claim.id for claim in load.claims() if claim.extension}
    own = c.verdicts["id"].isin(ours)
    more = (~c.verdicts["agrees"] & own).sum()
    of = f"{len(c.verdicts)} rows of the ledger" + f", {own.sum()} of them extensions," * bool(own.any())
    whose = "an extension's" if more == 1 else "extensions'"
    change = f"{n.own - n.kept} change" + f", {more} of them {whose}" * bool(more)
    kinds = f" Counters decide on one of them, bytes on the other, of {page.links(n.two_kinds, LEDGER)}."
    return (
        f"{covers} On another kind of GPU times say nothing about the first and the claims decide. Of {of} {n.own} are "
        f"judged by records of both: {n.kept} have the same verdict ({n.kept / max(1, n.own):.0%}), "
        f"{change}{apart * bool(n.no_gpu)}.{kinds * bool(n.two_kinds)} {lacking(c)}"
    ).strip()


def lacking(c: compare.Comparison) -> str:
    """How many verdicts one of the GPUs alone gives, and what the records of the other lack for them, by count."""
    parts = []
    first, second = titles(c)
    for side, here, there in (("fresh", first, second), ("shipped", second, first)):
        of = c.verdicts[(c.verdicts[side] == measures.NOT_MEASURED) & (c.verdicts["lacks"] != "")]
        if len(of):
            each = listed(f"{count} {_called(what)}" for what, count in of["lacks"].value_counts().items())
            parts.append(f"{len(of)} are given on {there} alone, as there is lacking on {here}: {each}.")
    none = (c.verdicts[["fresh", "shipped"]] == measures.NOT_MEASURED).all(axis=1).sum()
    parts += [f"{none} are given on neither."] * bool(none)
    return " ".join(parts)


def _called(lack: str) -> str:
    """What `compare` says is lacking, in words: "for counters of casperSPARSE"."""
    known = registry.find()
    counters = "counters of "
    if lack.startswith(counters):
        return f"for hardware counters of {known[lack.removeprefix(counters)].name}"
    room, _, experiment = lack.partition("/")
    return f"for the experiment `{experiment}` of {known[room].name}" if room in known else f"for {lack}"


def changes(c: compare.Comparison) -> dict[str, pd.DataFrame]:
    """Cause, in the order of `causes.CAUSES` -> the claims whose verdict it changes, with what was measured on both and
    what moved."""
    df = c.verdicts[~c.verdicts["agrees"]]
    ours = {claim.id for claim in load.claims() if claim.extension}
    found = {cause: df[df["cause"] == cause] for cause in causes.CAUSES}
    return {cause: _changed(own, cause, titles(c), ours) for cause, own in found.items() if len(own)}


def _changed(df: pd.DataFrame, cause: str, names: tuple[str, str], ours: set[str]) -> pd.DataFrame:
    def cell(row, given: str, measured: str) -> str:
        return f"{page.badge(given, row.id in ours)}<br>{html.escape(measured)}"

    def reason(row) -> str:
        """Of the GPU whose verdict is farther from what is claimed, as `compare` has it."""
        worse = int(measures.VERDICTS.index(row.shipped) > measures.VERDICTS.index(row.fresh))
        said = f"the ledger's reason on the {short[worse]}"
        folded = f"<details><summary>{said}</summary>{html.escape(row.why)}</details>"
        return folded if row.why else ""

    short = [html.escape(name) for name in records.short_gpus(names).values()]
    made = pd.DataFrame(
        {
            "claim": f'{html.escape(row.says)}<br><a href="{LEDGER}#claim-{row.id}">{row.id}</a>',
            names[0]: cell(row, row.fresh, row.fresh_measured),
            names[1]: cell(row, row.shipped, row.shipped_measured),
            "what moved": f'<div class="why">{html.escape(row.told)}{reason(row)}</div>',
        }
        for row in df.itertuples()
    )
    made.attrs["caption"] = f"{len(df)} verdict{'s that change' if len(df) > 1 else ' that changes'}: {cause}."
    return made


def title(cause: str, changed: pd.DataFrame) -> str:
    """The heading of a group of changes, also where it is folded."""
    return f"{cause[:1].upper()}{cause[1:]}: {len(changed)}"


def rule(c: compare.Comparison) -> str:
    """How a cause is found, and how far that goes; nothing where no verdict changes."""
    if c.verdicts["agrees"].all():
        return ""
    return (
        "A cause is given only where the records name it. What would get the other verdict on both by a change of "
        f"{causes.FEW:.0%}, or of what a second run of its system moves, is a close call. Else what decides is exchanged between "
        "the GPUs, one contender's times or one ceiling at a time: what gives each the verdict of the other has moved it. "
        "Its cause is the ceiling that it comes nearest to, if that differs in the same direction and at least as much. What "
        "this does not tell is not explained. Kernels and timer may be of different states on the two, as the commits above say; "
        "`python -m artifact.measure.same_code` compares their machine code."
    )


def summary(changed: pd.DataFrame, found: Sequence[str] | Mapping[str, Path]) -> str:
    """Which verdicts of a room are not the same on all GPUs, in a sentence with links; changed: `gpus.changed`."""
    names = listed(found)
    if changed.empty:
        return f"The verdicts on its claims are the same on {names}, where both could be given."
    one = len(changed) == 1
    links = page.links(list(changed["id"]), LEDGER)
    return (
        f"On {names} {len(changed)} verdict{'' if one else 's'} of this chapter {'differs' if one else 'differ'}: {links}. "
        '<a href="elsewhere.html">Another GPU</a> says what was measured on each, and how the machines differ.'
    )


def differing(machines: pd.DataFrame, made: Mapping[str, compare.Comparison | str]) -> str:
    """The sentence above the table of machines. made: `comparisons`, whose changed verdicts count once."""
    if machines.shape[1] < 3:
        return ""
    whole = [c.verdicts for c in made.values() if not isinstance(c, str)]
    count = len({claim for df in whole for claim in df.loc[~df["agrees"], "id"]})
    return (
        "What may change a verdict from one GPU to another is how its rates relate: bandwidth of memory and of the L2 cache, "
        "arithmetic, and the power under which the clock is held. Ratios are to the first column."
        + (f" {count} verdict{'s change' if count > 1 else ' changes'}." if count else " No verdict changes.")
    )


def table(df: pd.DataFrame | None) -> str:
    return "" if df is None or df.empty else prose.table(df, prose=True)
