"""Verdicts told: how each looks, how many there are of each, rules in words, what sources say against themselves."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import pandas as pd

from artifact.verdicts import judge, load, measures
from artifact.verdicts.measures import (
    NOT_CARRIED,
    NOT_MEASURED,
    NOT_REPRODUCED,
    PARTLY,
    REPRODUCED,
    VERDICTS,
)

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
    """Count the claims of the sources by verdict, in the order of LOOKS. own: what those are called that a series of
    the source's own decides, whatever the verdict."""
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
    """Return the verdicts of `judge` as a table in Markdown, with a line that counts them and names the GPU of the
    records."""
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
    alike = first.map({VERDICTS.index(REPRODUCED): "both"}).fillna("neither")
    stands = df["one"].where(first < second, df["other"].where(first > second, alike))
    unknown = VERDICTS.index(NOT_MEASURED)
    return df.assign(stands=stands.mask((first == unknown) | (second == unknown), "undecided"))


def rules(known: Sequence[load.Claim]) -> pd.DataFrame:
    """Return what the rules of these claims are made of: part (quantity, reduce or expect), name, definition
    (the function's docstring on one line), claims (ids); one row per function, in the order of the
    parts and then of the claims."""
    used: dict[tuple, list[str]] = {}
    for part in measures.PARTS:
        for claim in known:
            used.setdefault((part, getattr(claim.rule, part).function), []).append(claim.id)
    rows = [(part, f.__name__, " ".join(str(inspect.getdoc(f)).split()), ids) for (part, f), ids in used.items()]
    return pd.DataFrame(rows, columns=["part", "name", "definition", "claims"])


def written(value: object) -> str:
    """A part of a claim as its file has it: a text, a number, a list or a table in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {written(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:.10g}"
