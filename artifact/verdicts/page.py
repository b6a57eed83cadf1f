"""Verdicts on a page: badges, the ledger, what sources say against themselves."""

import html
import inspect
import re
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

# Dark enough that white text on them has a contrast of 4.5:1, in either mode of the page.
#: verdict -> its sign, and the class that the book's style sheet colours.
BADGES = {
    REPRODUCED: ("✓", "verdict-reproduced"),
    PARTLY: ("◐", "verdict-partly"),
    NOT_REPRODUCED: ("✗", "verdict-not"),
    NOT_CARRIED: ("↛", "verdict-elsewhere"),
    NOT_MEASURED: ("–", "verdict-unmeasured"),
}


def badge(verdict: str) -> str:
    """A verdict as HTML: a sign, the words, and a colour; none of them alone carries the meaning.

    Raises ValueError for what is no verdict.
    """
    if verdict not in BADGES:
        raise ValueError(f"{verdict!r} is no verdict; these are: {', '.join(VERDICTS)}.")
    sign, name = BADGES[verdict]
    return f'<span class="{name}"><span aria-hidden="true">{sign}</span> {verdict}</span>'


def ledger(df: pd.DataFrame) -> str:
    """The verdicts of `judge` as an HTML table, with a line that counts them above it.

    A row can be linked as #claim-<id>; how it was judged unfolds in it, with links to the claims
    that it names.
    """
    claims = judge.counted(df)
    counts = claims["verdict"].value_counts()
    total = ", ".join(f"{counts[v]} {badge(v)}" for v in VERDICTS if v in counts)
    heads = ("Claim", "Published", "Measured", "Verdict", "Minutes")
    ids = [re.escape(html.escape(str(i))) for i in sorted(df["id"], key=len, reverse=True)]
    known = re.compile(rf"(?<![\w-])({'|'.join(ids)})(?![\w-])")
    out = [
        f"<p>{len(claims)} claims: {total}</p>",
        '<div style="overflow-x:auto"><table style="text-align:left">',
        "<thead><tr>" + "".join(f'<th scope="col">{head}</th>' for head in heads) + "</tr></thead>",
        "<tbody>",
    ]
    for row in df.to_dict("records"):
        cell = {key: html.escape(str(value)) for key, value in row.items()}
        why = known.sub(r'<a href="#claim-\1">\1</a>', cell["why"])
        out.append(
            f'<tr id="claim-{cell["id"]}" style="vertical-align:top">'
            '<th scope="row" style="font-weight:normal;text-align:left;min-width:14em">'
            f"<code>{cell['id']}</code><br>"
            f"{cell['says']} <em>({cell['source']}, {cell['where']})</em></th>"
            f'<td style="min-width:6em">{cell["published"]}</td>'
            f'<td style="min-width:14em">{cell["measured"]}'
            f"<details><summary>how it was judged</summary>{why}</details></td>"
            f'<td style="min-width:8em">{badge(row["verdict"])}</td>'
            f"<td>{row['minutes']:g}</td></tr>"
        )
    return "\n".join([*out, "</tbody></table></div>"])


def contradictions(judged: pd.DataFrame, known: Sequence[load.Claim]) -> pd.DataFrame:
    """Pairs of claims of one source that cannot both hold: one, other (ids), and which `stands`.

    judged: verdicts from `claims.judge`. stands: an id, "both", "neither" or "undecided".
    """
    verdict = judged.set_index("id")["verdict"]
    pairs = dict.fromkeys(frozenset((c.id, other)) for c in known for other in c.contradicts)
    order = [c.id for c in known]
    rows = []
    for pair in pairs:
        one, other = sorted(pair, key=order.index)
        # What fails here fails, whether it may hold elsewhere or not.
        here = {
            i: verdict[i] if verdict[i] != NOT_CARRIED else NOT_REPRODUCED for i in (one, other)
        }
        ranks = [measures.VERDICTS.index(here[i]) for i in (one, other)]
        if measures.VERDICTS.index(measures.NOT_MEASURED) in ranks:
            stands = "undecided"
        elif ranks[0] == ranks[1]:
            stands = "both" if verdict[one] == measures.REPRODUCED else "neither"
        else:
            stands = one if ranks[0] < ranks[1] else other
        rows.append({"one": one, "other": other, "stands": stands})
    return pd.DataFrame(rows, columns=["one", "other", "stands"])


def rules(known: Sequence[load.Claim]) -> pd.DataFrame:
    """What the rules of these claims are made of: part (quantity, reduce or expect), name, definition
    (the function's docstring on one line), claims (ids); one row per function, in the order of the
    parts and then of the claims."""
    used: dict[tuple, list[str]] = {}
    for part in measures.PARTS:
        for claim in known:
            function = getattr(claim.rule, part).function
            used.setdefault((part, function), []).append(claim.id)
    return pd.DataFrame(
        [
            (part, f.__name__, " ".join(inspect.getdoc(f).split()), ids)
            for (part, f), ids in used.items()
        ],
        columns=["part", "name", "definition", "claims"],
    )


def written(value: object) -> str:
    """A part of a claim as its file has it: a text, a number, a list or a table in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {written(v)}" for key, v in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:.10g}"
