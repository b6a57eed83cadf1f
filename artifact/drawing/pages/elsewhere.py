"""The page that holds two GPUs' records, or two measurements on one, against each other: the picture of `make compare`."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.lines import Line2D

from artifact import rooms
from artifact.drawing import plot, prose, style
from artifact.drawing.prose import captioned
from artifact.drawing.words import listed
from artifact.verdicts import compare, load, measures, page

LEDGER = "ledger.html"
COMMANDS = """```sh
make measure                    # every room on your GPU, into build/records/
make artifact                   # this book: your GPU beside the shipped ones
make artifact GPU=… RECORDS=…   # the same elsewhere, from a copy of build/records/
make compare FRESH=… SHIPPED=…  # two folders or GPUs; the exit code answers
```"""
#: What is slower than this share of the library, as one thread of a CPU is, lies outside the picture.
LEAST = 0.05
#: Of the rooms, in turn; with the markers that tell them apart.
LOOKS = tuple(
    zip((style.PUBLISHED, style.BASELINE, style.BEST, style.CLAIM, *style.RUNGS), ("o", "s", "D", "^", "v", "P", "X", "*"), strict=False)
)  # fmt: skip


def alone(found: Mapping[str, Path]) -> str:
    """What the page says where there is nothing to compare with; nothing where there is."""
    if len(found) > 1:
        return ""
    have = f"one GPU: {next(iter(found))}" if found else "no GPU"
    return (
        f"**There are records of {have}.** Nothing to hold against each other yet. Yours appears here, in the ledger, on the front "
        "page and at the head of every chapter by one command; no line of code names a GPU:"
    )


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
    """Every experiment and contender: its speedup over the library on one GPU against that on the other. (fig, data);
    None where no experiment has a library beside it."""
    df = c.summary.dropna(subset=["speedup_fresh", "speedup_shipped"])
    df = df[~df["variant"].isin([f"{name}_best" for name in compare.BASELINES])]
    if df.empty:
        return None
    fig, ax = plt.subplots(figsize=(style.WIDTH * 0.72, 4.6))
    handles: dict[str, object] = {}
    order = [name for name in rooms.find() if name in set(df["room"])]
    for room, (colour, marker) in zip(order, LOOKS, strict=False):
        own = df[df["room"] == room]
        how = {
            "color": colour,
            "marker": marker,
            "markersize": 5.5,
            "alpha": 0.75,
            "linestyle": "none",
        }
        (handles[rooms.find()[room].name],) = ax.plot(
            own["speedup_shipped"], own["speedup_fresh"], **how
        )
    ends = df[["speedup_fresh", "speedup_shipped"]].to_numpy()
    low, high = max(ends.min(), LEAST) / 1.15, ends.max() * 1.15
    (handles["the same on both"],) = ax.plot(
        [low, high], [low, high], color=style.BOUND, linewidth=1.2
    )
    for line in (ax.axhline, ax.axvline):
        line(1, color=style.BASELINE, linewidth=1, linestyle=(0, (4, 3)))
    handles["as fast as the library"] = Line2D([], [], color=style.BASELINE, linestyle=(0, (4, 3)))
    ax.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high))
    for axis in (ax.xaxis, ax.yaxis):
        plot.log(axis)
    first, second = titles(c)
    ax.set(
        xlabel=f"speedup over the library, {second}", ylabel=f"speedup over the library, {first}"
    )
    plot.legend(fig, handles, columns=4)
    return fig, df.drop(columns="agrees")


def titles(c: compare.Comparison) -> tuple[str, str]:
    """What the two sides are called."""
    return (f"{c.fresh}, first", f"{c.shipped}, second") if c.same_gpu else (c.fresh, c.shipped)


def below(c: compare.Comparison) -> dict[str, str]:
    """Alternative text and caption."""
    both = c.summary.dropna(subset=["speedup_fresh", "speedup_shipped"])
    ratio = both["speedup_fresh"] / both["speedup_shipped"]
    near = (np.abs(ratio - 1) <= compare.SPEEDUP_TOLERANCE).sum()
    first, second = titles(c)
    return {
        "alt": f"Speedups over the library on {first} against those on {second}: {near} of {len(both)} differ by at most "
        f"{compare.SPEEDUP_TOLERANCE:.0%}, the median ratio is {ratio.median():.2f}.",
        "caption": "One mark for each contender of each experiment, geometric means over the points that both have. On the line "
        "the library and the contender gain alike; above it the contender gains more.",
    }


def verdict(c: compare.Comparison) -> str:
    """What `make compare` ends with, in a sentence or two."""
    covers = f"The first have {f'all {c.total}' if c.covered == c.total else f'{c.covered} of the {c.total}'} points of the second."
    if c.same_gpu:
        off = (~c.summary["agrees"]).sum()
        said = (
            "agree"
            if c.agrees
            else f"differ in {off} of {len(c.summary)} contenders and experiments"
        )
        return f"{covers} On one kind of GPU times and speedups decide: the records {said}."
    given = (c.verdicts[["fresh", "shipped"]] != measures.NOT_MEASURED).all(axis=1)
    kept = int(c.verdicts.loc[given, "agrees"].sum())
    return (
        f"{covers} On two kinds of GPU times say nothing about each other and the claims decide. Of {len(c.verdicts)} rows of the "
        f"ledger {given.sum()} were judged on both: {kept} have the same verdict ({kept / max(1, given.sum()):.0%}), "
        f"{given.sum() - kept} change. The others lack what decides them on one of the two, such as the counters of hardware."
    )


@captioned("Claims whose verdict changes.")
def changes(c: compare.Comparison) -> pd.DataFrame | None:
    """Claims whose verdict changes, with what was measured on both, and why; None where none does."""
    df = c.verdicts[~c.verdicts["agrees"]]
    if df.empty:
        return None
    first, second = titles(c)

    ours = {claim.id for claim in load.claims() if claim.extension}

    def cell(row, given: str, measured: str) -> str:
        return f"{page.badge(given, row.id in ours)}<br>{html.escape(measured)}"

    return pd.DataFrame(
        {
            "claim": f'<a href="{LEDGER}#claim-{row.id}">{row.id}</a><br>{html.escape(row.says)}',
            first: cell(row, row.fresh, row.fresh_measured),
            second: cell(row, row.shipped, row.shipped_measured),
            "why": f'<div class="why">{html.escape(row.why)}</div>',
        }
        for row in df.itertuples()
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


def differing(machines: pd.DataFrame, count: int) -> str:
    """The sentence above the table of machines. count: of verdicts that change."""
    if machines.shape[1] < 3:
        return ""
    return (
        "What may change a verdict from one GPU to another is how its rates relate: bandwidth of memory and of the L2 cache, "
        "arithmetic, and the power under which the clock is held. Ratios are to the first column."
        + (f" {count} verdicts change." if count else " No verdict changes.")
    )


def table(df: pd.DataFrame | None) -> str:
    return "" if df is None or df.empty else prose.table(df, prose=True)
