"""What of a source is judged, section by section: claims, experiments, figures, and what no experiment can test.

A room's room.toml lists the sections of its source; `where` of a claim, and of what is untested, names one or more of
them, as in "IV-B; Table II; Fig. 6".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from artifact import registry
from artifact.verdicts import evidence, load

#: In `where`: a figure or table of the source, or several.
FIGURE = re.compile(r"(?:Figs?\.|Tables?|Eqs?\.|Listings?)\s*\w+(?:(?:,| and| to|–)\s*(?=[\dIVX])\w+)*")
COLUMNS = ("section", "title", "claims", "says", "experiment", "figure", "reason")


def places(where: str, sections: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the sections that `where` names, in their order, and its figures and tables. Sections that are themselves
    figures count where there is no other. Raises ValueError, one sentence, where it names none, or something else.
    """
    figures, rest, found = FIGURE.findall(where), FIGURE.sub("", where), set()
    # The longest first, so that "V.D" is not "V".
    for key in sorted(sections, key=len, reverse=True):
        rest, count = re.subn(rf"(?<![\w.]){re.escape(key)}(?![\w-])(?:\.\d+)*", "", rest)
        found |= {key} if count else set()
    found = found or {figure for figure in figures if figure in sections}
    if not found or re.search(r"\w", rest):
        raise ValueError(
            f"{where!r} names {rest.strip(' ;,') or 'no section'!r} of its source, whose sections are: "
            f"{', '.join(sections)}."
        )
    return [key for key in sections if key in found], figures


def first(room: registry.Room, where: str) -> str:
    """Return the first section that `where` names; "" of a room that lists none."""
    return places(where, room.sections)[0][0] if room.sections else ""


def table(
    room: registry.Room, claims: Sequence[load.Claim], untested: Sequence[load.Untested], figures: Mapping[str, str]
) -> pd.DataFrame:
    """Return COLUMNS: a row for each section and choice of experiments with the ids of its claims, then one for each
    statement that is untested, with its reason; a section of which there is nothing has a row of its own.

    figures: experiment -> the figure of the source that it regenerates. Errors as `places`.
    """
    rows: dict[tuple, dict[str, Any]] = {}
    for claim in (claim for claim in claims if claim.room == room.room):
        sections, named = places(claim.where, room.sections)
        sweeps = (e.partition(evidence.SERIES)[0] for e in evidence.sweeps(claim.experiment))
        made = [figures[sweep] for sweep in sweeps if sweep in figures]
        for section in sections:
            empty: dict[str, Any] = {"claims": [], "experiment": ", ".join(claim.experiment), "made": made, "named": []}
            row = rows.setdefault((section, *claim.experiment), empty)
            row["claims"].append(claim.id)
            row["named"] += named
    for entry in (entry for entry in untested if entry.room == room.room):
        sections, named = places(entry.where, room.sections)
        told = {"claims": [], "says": entry.says, "made": [], "named": named, "reason": entry.reason}
        rows |= {(section, entry): told for section in sections}
    order = list(room.sections)
    rows |= {(key,): {"claims": [], "made": [], "named": []} for key in order if key not in {at[0] for at in rows}}
    df = pd.DataFrame(
        row
        | {
            "section": at[0],
            "title": room.sections[at[0]],
            "figure": ", ".join(dict.fromkeys(row["made"] + row["named"])),
        }
        for at, row in sorted(rows.items(), key=lambda pair: order.index(pair[0][0]))
    )
    return df.reindex(columns=list(COLUMNS)).fillna("")
