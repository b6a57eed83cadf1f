"""What of a source is judged, section by section: claims, experiments, figures, and what no experiment can test.

A room's room.toml lists the sections of its source; `where` of a claim, and of what is untested, names one or more of
them, as in "IV-B; Table II; Fig. 6".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from artifact import registry
from artifact.verdicts import evidence, load

#: In `where`: a figure or table of the source, or several.
FIGURE = re.compile(r"(?:Figs?\.|Tables?|Eqs?\.|Listings?)\s*\w+(?:(?:,| and| to|–)\s*(?=[\dIVX])\w+)*")
COLUMNS = ("section", "title", "claims", "says", "experiment", "figure", "reason")


def places(where: str, sections: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """The sections that `where` names, in their order, and its figures and tables. Sections that are themselves
    figures count where there is no other. Raises ValueError, one sentence, where it names none, or something else.
    """
    figures, rest = FIGURE.findall(where), FIGURE.sub("", where)
    found = set()
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


def table(
    room: registry.Room,
    claims: Sequence[load.Claim],
    untested: Sequence[load.Untested],
    figures: Mapping[str, str],
) -> pd.DataFrame:
    """COLUMNS: a row for each section and choice of experiments with the ids of its claims, then one for each statement
    that is untested, with its reason; a section of which there is nothing has a row of its own.

    figures: experiment -> the figure of the source that it regenerates. Errors as `places`.
    """
    mine = [(c, *places(c.where, room.sections)) for c in claims if c.room == room.room]
    others = [(u, *places(u.where, room.sections)) for u in untested if u.room == room.room]
    rows = []
    for section, title in room.sections.items():
        groups: dict[tuple[str, ...], list] = {}
        for claim, named, said in mine:
            if section in named:
                groups.setdefault(claim.experiment, []).append((claim.id, said))
        start = len(rows)
        for experiments, group in groups.items():
            sweeps = evidence.sweeps(experiments)
            made = [figures[e.partition("@")[0]] for e in sweeps if e.partition("@")[0] in figures]
            said = [figure for _, named in group for figure in named]
            rows.append(
                {
                    "claims": [i for i, _ in group],
                    "experiment": ", ".join(experiments),
                    "figure": ", ".join(dict.fromkeys([*made, *said])),
                }
            )
        for entry, named, said in others:
            if section in named:
                rows.append({"says": entry.says, "figure": ", ".join(said), "reason": entry.reason})
        rows += [{}] if len(rows) == start else []
        for row in rows[start:]:
            row |= {"section": section, "title": title}
    df = pd.DataFrame(rows, columns=list(COLUMNS))
    df["claims"] = [ids if isinstance(ids, list) else [] for ids in df["claims"]]
    return df.fillna("")
