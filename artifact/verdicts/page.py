"""Verdicts told.

How each looks, how many there are of each, rules in words, what sources say against themselves, and what of a source
is judged, section by section: claims, experiments, figures, and what no experiment can test.

A system.toml lists the sections of its source; `where` of a claim, and of what is untested, names one or more of
them, as in "IV-B; Table II; Fig. 6".
"""

import inspect
import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from artifact import registry
from artifact.verdicts import evidence, judge, load, measures
from artifact.verdicts.measures import NOT_CARRIED, NOT_MEASURED, NOT_REPRODUCED, PARTLY, REPRODUCED, VERDICTS

#: What is said of claims that nothing measured here decides.
OWN_DATA = "rest on their source's own published data alone"
#: Verdict -> its sign, and the class that the book's style sheet colours: dark enough that white text on it has a
#: contrast of 4.5:1, in either mode of the page.
LOOKS = {
    REPRODUCED: ("✓", "verdict-reproduced"),
    PARTLY: ("◐", "verdict-partly"),
    NOT_REPRODUCED: ("✗", "verdict-not"),
    NOT_CARRIED: ("↛", "verdict-elsewhere"),
    NOT_MEASURED: ("–", "verdict-unmeasured"),
    OWN_DATA: ("=", "verdict-theirs"),
}


def counts(df: pd.DataFrame, own: str = OWN_DATA) -> dict[str, int]:
    """Count the claims of the sources by verdict, in the order of LOOKS.

    own: what those are called that a series of the source's own decides, whatever the verdict.
    """
    claims = judge.counted(df)
    told = claims["verdict"].mask(claims["own"].astype(bool), own).value_counts()
    return {verdict: int(told[verdict]) for verdict in (*VERDICTS, own) if verdict in told}


def totals(df: pd.DataFrame) -> str:
    """Say how many claims have which verdict; apart from them those that a source's own data decide."""
    of, (_, theirs) = counts(df), judge.by_evidence(df)
    own, holds = of.pop(OWN_DATA, 0), (theirs["verdict"] == REPRODUCED).sum()
    apart = f"; {own} more {OWN_DATA}, and {holds} of these are consistent with it"
    return (", ".join(f"{count} {verdict}" for verdict, count in of.items()) or "none") + apart * bool(own)


def markdown(df: pd.DataFrame, gpu: str) -> str:
    """Return the verdicts of `judge` as a table in Markdown.

    With a line that counts them and names the GPU of the records.
    """
    words = [measures.said(*row) for row in zip(df["verdict"], df["extension"], strict=True)]
    shown = {
        "claim": "`" + df["id"] + "`",
        "says": df["says"] + " (" + df["source"] + ", " + df["where"] + ")",
        "GPU of the source": df["gpu"],
        "published": df["published"],
        "measured": df["measured"],
        "verdict": pd.Series(words, df.index) + df["extension"].map({True: " (extension, not counted)", False: ""}),
        "reason": (df["reason"] + " " + df["close"]).str.strip(),
    }
    return f"{len(judge.by_evidence(df)[0])} claims on {gpu}: {totals(df)}\n\n{table(pd.DataFrame(shown))}"


def table(df: pd.DataFrame, right: int = 0) -> str:
    """Return a table in Markdown. right: how many of its columns, the last ones, stand on the right."""
    cells = df.astype(str).replace(r"\|", r"\\|", regex=True).itertuples(index=False)
    lines = [list(df.columns), ["---"] * (df.shape[1] - right) + ["---:"] * right, *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def contradictions(judged: pd.DataFrame, known: Sequence[load.Claim]) -> pd.DataFrame:
    """Return pairs of claims of one source that cannot both hold: one, other (ids), and which `stands`.

    judged: verdicts from `judge.judge`. stands: an id, "both", "neither" or "undecided".
    """
    # What fails here fails, whether it may hold elsewhere or not.
    rank = judged.set_index("id")["verdict"].replace(NOT_CARRIED, NOT_REPRODUCED).map(VERDICTS.index)
    order = [claim.id for claim in known]
    found = dict.fromkeys(frozenset((claim.id, other)) for claim in known for other in claim.contradicts)
    df = pd.DataFrame([sorted(pair, key=order.index) for pair in found], columns=["one", "other"])
    first, second = df["one"].map(rank), df["other"].map(rank)
    unknown = np.maximum(first, second) == VERDICTS.index(NOT_MEASURED)  # the last of the verdicts
    cases = [unknown, first < second, first > second, first == VERDICTS.index(REPRODUCED)]
    return df.assign(stands=np.select(cases, ["undecided", df["one"], df["other"], "both"], "neither"))


def rules(known: Sequence[load.Claim]) -> pd.DataFrame:
    """Return what the rules of these claims are made of.

    Part (quantity, reduce or expect), name, definition (the function's docstring on one line), claims (ids); one row
    per function, in the order of the parts and then of the claims.
    """
    used = [(part, getattr(claim.rule, part).func, claim.id) for part in measures.PARTS for claim in known]
    df = pd.DataFrame(used, columns=["part", "name", "claims"])
    df = df.groupby(["part", "name"], sort=False)["claims"].agg(list).reset_index()
    told = df["name"].map(lambda f: " ".join(str(inspect.getdoc(f)).split()))
    return df.assign(definition=told, name=df["name"].map(lambda f: f.__name__))[
        ["part", "name", "definition", "claims"]
    ]


def written(value: object) -> str:
    """Return a part of a claim as its file has it: a text, a number, a list or a table in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {written(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:.10g}"


# ---------------------------------------------------------------- section by section

#: In `where`: a figure or table of the source, or several.
FIGURE = re.compile(r"(?:Figs?\.|Tables?|Eqs?\.|Listings?)\s*\w+(?:(?:,| and| to|–)\s*(?=[\dIVX])\w+)*")
COVERAGE = ("section", "title", "claims", "says", "experiment", "figure", "reason")


def places(where: str, sections: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the sections that `where` names, in their order, and its figures and tables.

    Sections that are themselves figures count where there is no other. Raises ValueError, one sentence, where it names
    none, or something else.
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


def coverage(
    system: registry.System, claims: Sequence[load.Claim], untested: Sequence[load.Untested], figures: Mapping[str, str]
) -> pd.DataFrame:
    """Return COVERAGE.

    A row for each section and choice of experiments with the ids of its claims, then one for each statement that is
    untested, with its reason; a section of which there is nothing has a row of its own.

    figures: experiment -> the figure of the source that it regenerates. Errors as `places`.
    """
    rows = []
    for claim in (claim for claim in claims if claim.room == system.room):
        sections, named = places(claim.where, system.sections)
        sweeps = [e.partition(evidence.SERIES)[0] for e in evidence.sweeps(claim.experiment)]
        told = [figures[sweep] for sweep in sweeps if sweep in figures] + named
        rows += [(section, ", ".join(claim.experiment), "", "", [claim.id], told) for section in sections]
    for entry in (entry for entry in untested if entry.room == system.room):
        sections, named = places(entry.where, system.sections)
        rows += [(section, "", entry.says, entry.reason, [], named) for section in sections]
    rows += [(section, "", "", "", [], []) for section in system.sections if section not in {row[0] for row in rows}]
    key = ["section", "experiment", "says", "reason"]
    df = pd.DataFrame(rows, columns=[*key, "claims", "figure"]).groupby(key, sort=False)
    df = df.agg(lambda lists: [*dict.fromkeys(sum(lists, []))]).reset_index()
    df = df.assign(title=df["section"].map(system.sections), figure=df["figure"].map(", ".join))
    return df.sort_values("section", key=lambda c: c.map([*system.sections].index), kind="stable")[list(COVERAGE)]
