"""The front page: the map and the race of all systems, what was found, where to go on, and what a verdict means."""

import itertools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from markupsafe import Markup, escape
from matplotlib.patches import FancyBboxPatch

from artifact import paths, registry
from artifact.book.facts import Fact, flat
from artifact.book.text import NOT_MEASURED, Text, made, part
from artifact.drawing import provenance, sketch, style, summary
from artifact.measure import records
from artifact.verdicts import judge, load, measures

#: Blocks of the text, each a head and what is said below it.
FINDINGS = ("opponent", "stopwatch", "instruction", "contradiction", "balance")
#: A number that a claim's records gave, as the ledger words it.
NUMBER = re.compile(r"\d+ of \d+(?: [a-z]+)?|\d[\d.]*(?:–\d[\d.]*)?[×%]?")


def facts(data: pd.DataFrame, judged: Mapping[str, pd.DataFrame], known: Sequence[load.Claim]) -> Iterator[Fact]:
    """Yield the facts of the front page: systems, citation, claims and their numbers on each GPU.

    What a claim has "here" is by the GPU that decides. Claims link to the ledger. Those that records of two GPUs or
    more decide, and whose verdicts differ, are listed.

    data: `systems`; judged: name of a GPU -> its verdicts, this page's first.
    """
    cited = yaml.safe_load((paths.ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    yield from flat(
        {
            "systems": data.set_index("room")[["name", "format", "unit", "state", "cite", "claims"]],
            "citation": {
                "author": " and ".join(f"{{{author['name']}}}" for author in cited["authors"]),
                "title": cited["title"],
                "version": cited["version"],
                "year": str(cited["date-released"])[:4],
                "note": f"Software, {cited['license']}",
            },
        }
    )
    short = records.short_gpus(judged)
    frames = {short[gpu]: df[df["verdict"] != measures.NOT_MEASURED].set_index("id") for gpu, df in judged.items()}
    decides = {system: short[judge.decider(judged, system)] for system in {claim.room for claim in known if judged}}
    for claim in known:
        said_on = {gpu: _told(df.loc[claim.id]) for gpu, df in frames.items() if claim.id in df.index}
        given = {gpu: number[0] for gpu, (words, _) in said_on.items() if (number := NUMBER.search(words))}
        said: dict[str, Any] = {"stated": str(escape(claim.published))}
        if (gpu := decides.get(claim.room)) in given:
            said["here"] = part("here", claim.id, given[gpu])
            said["each"] = part("each", claim.id, given)
            said["on"] = said_on[gpu][1]
        sizes = {column: of if isinstance(of, list) else [of] for column, of in claim.rule.at.items()}
        said["at"] = {column: {"least": min(of), "most": max(of)} for column, of in sizes.items()}
        yield from flat({f"claim.{claim.id}": said})
    claims = {gpu: df[(df["aside"] == "") & ~df["own"].astype(bool)] for gpu, df in judged.items()}
    if len(claims) > 1:
        verdicts = pd.DataFrame({gpu: df.set_index("id")["verdict"] for gpu, df in claims.items()})
        yield from flat(
            {
                "gpus": {
                    "changed": len(provenance.changed(claims)),
                    "decided": ((~verdicts.isin(measures.OPEN)).sum(axis=1) > 1).sum(),
                }
            }
        )


def _told(row: pd.Series) -> tuple[str, str]:
    """Return what was measured in words, and on which inputs: where the set leaves it undecided, its largest class."""
    if row["verdict"] != measures.UNDECIDED:
        return row["measured"], "the source's inputs"
    name, of = list(row["classes"].items())[-1]
    return of["measured"], f"matrices of {name} non-zeros, the largest here"


def findings(text: Text) -> Markup:
    """Return heads, each with its sentences, as an HTML list, without those of which a number was not measured."""
    missing = NOT_MEASURED.partition("{")[0]
    return made("findings", items=[said for said in map(text, FINDINGS) if not said.startswith(missing)])


def raced(found: Mapping[str, Path], judged: Mapping[str, pd.DataFrame]) -> tuple[tuple | None, dict[str, str]]:
    """Return the figure over all systems as `summary.drawn` has it, and its alternative text and caption.

    found: `provenance.folders`; judged: verdicts of each of these GPUs on all claims.
    """
    df = summary.table(found)
    counts = {
        (system, gpu): judge.counts(own, summary.OWN)
        for gpu, of in judged.items()
        for system, own in of.groupby("room", sort=False)
    }
    decide = {system: judge.decider(judged, system) for system in df["room"]}
    return summary.drawn(df, counts, decide), summary.told(df, decide)


def fare(judged: Mapping[str, pd.DataFrame]) -> Markup:
    """Return how many facts have which verdict, by the GPU that decides and by each, as HTML; nothing without records."""
    if not judged:
        return Markup()
    df = judge.deciding(judged)
    return made(
        "fare",
        claims=len(df),
        sources=df["source"].nunique(),
        **judge.tally(df),
        each={gpu: judge.counts(own) for gpu, own in judged.items()},
    )


# ---------------------------------------------------------------- the map of the systems

#: An 8 x 8 example of each of `registry.PATTERNS`, of similar density.
EXAMPLES = (
    "......#. ##....## ........ #......# ...#.... ##.####. ...#...# .....#..",
    "##....## ##....## ..##.... ..##.... ##...... ##...... ....#### ....####",
    "####.... ####.... ....#### ....#### ####.... ######## ....#### ........",
    "#..##..# #..##..# ##..#..# ##...#.# #.#..#.# #.#.##.. .##.##.. ..###.#.",
)

#: Of the cards, in turn.
COLOURS = (style.PUBLISHED, style.CLAIM, style.BEST, style.BASELINE, *style.RUNGS[1:])
#: Sizes on the map, where a column of patterns is 1 wide: its left margin, the top of the first row of cards, the gap
#: between rows, a cell of an example, a card of one column (width, height).
LEFT, TOP, GAP, CELL, CARD = 0.52, 0.98, 0.1, 0.068, (0.94, 0.78)
HEAD, STATE = {"weight": "bold", "linespacing": 1.5}, {"ha": "right", "fontsize": 8, "weight": "bold"}
INCHES = 5.15 / (TOP + 2 * (CARD[1] + GAP))  #: of paper, for 1 of that


def systems(folder: Path | None) -> pd.DataFrame:
    """Return one row per system.

    It has the fields of `registry.System` that tell what it is, and whether a GPU's `folder` has records of it.
    """
    df = pd.DataFrame(list(registry.find().values())).drop(columns=["headline", "names"])
    return df.assign(
        state=df["room"]
        .isin(records.systems(folder) if folder else [])
        .map({True: "measured", False: "built, not measured"})
    )


def systems_map(folder: Path | None) -> tuple[Any, pd.DataFrame]:
    """Draw the systems by what kind of sparsity they take (columns) and which unit computes (rows), a card each.

    Where cards would lie on one another, their row has several lanes. (fig, data)
    """
    data, columns, units = systems(folder), LEFT + np.arange(len(registry.PATTERNS)), registry.UNITS
    placed = list(zip(data.itertuples(), lanes(data), itertools.cycle(COLOURS), strict=False))
    depth = [max((lane + 1 for s, lane, _ in placed if s.unit == unit), default=1) for unit in units]
    tops = TOP + (CARD[1] + GAP) * np.cumsum([0, *depth])
    filled, cell = np.array([[*grid.replace(" ", "")] for grid in EXAMPLES]) == "#", np.arange(64)
    looks = {"facecolor": np.where(filled, style.BOUND, "none"), "alpha": np.where(filled, 0.85, 0.3)}
    x, y = columns[:, None] + (1 - 8 * CELL) / 2 + cell % 8 * CELL, 0.26 + cell // 8 * CELL
    fig = sketch.picture(
        (0, columns[-1] + 1.02),
        (tops[-1], 0),
        (sketch.frame, x, y, CELL, CELL, looks | {"fill": True, "linewidth": 0.35}),
        (sketch.put, columns + 0.5, 0.13, registry.PATTERNS, {"weight": "bold"}),
        (sketch.put, 0.28, (tops[:-1] + tops[1:] - GAP) / 2, [u.replace(" ", "\n") for u in units], HEAD),
        height=tops[-1] * INCHES,
        whole=True,
    )
    for system, lane, colour in placed:
        x = columns[registry.PATTERNS.index(system.patterns[0])] + (1 - CARD[0]) / 2
        _card(fig.axes[0], x, tops[units.index(system.unit)] + lane * (CARD[1] + GAP), system, colour)
    return fig, data.drop(columns=["title", "order", "patterns"])


def lanes(data: pd.DataFrame) -> list[int]:
    """Return the lane of each system in the row of its unit, from 0.

    The first in which no system before it has one of its patterns.
    """
    found: list[int] = []
    for system in data.itertuples():
        taken = {
            n
            for s, n in zip(data.itertuples(), found, strict=False)
            if s.unit == system.unit and set(s.patterns) & set(system.patterns)
        }
        found.append(next(lane for lane in itertools.count() if lane not in taken))
    return found


def _card(ax: Any, x: float, y: float, system: Any, colour: str) -> None:
    """Draw what a system is and how far, in a frame."""
    span = len(system.patterns)
    width, height = span - 1 + CARD[0], CARD[1]
    for looks in ({"facecolor": colour, "edgecolor": "none", "alpha": 0.2}, {"facecolor": "none", "edgecolor": colour}):
        shape: Any = {"boxstyle": "round,pad=0,rounding_size=0.04", "linewidth": 1.5} | looks
        ax.add_patch(FancyBboxPatch((x, y), width, height, **shape))
    lines = [
        f"{system.format}, {system.precision}",
        *textwrap.wrap(system.idea, 25 if span == 1 else 54),
        *textwrap.wrap("on " + system.written_for, 24 if span == 1 else 54),
    ]
    sketch.draw(
        ax,
        (sketch.put, x + 0.05, y + 0.11, system.name, {"ha": "left", "weight": "bold", "fontsize": 9.5}),
        (sketch.put, x + 0.05, y + 0.22 + np.arange(len(lines)) * 0.083, lines, {"ha": "left", "fontsize": 8}),
        (sketch.put, x + width - 0.05, y + height - 0.07, system.state, STATE),
    )
