"""Verdicts on a page: badges, the ledger, what sources say against themselves."""

import html
import inspect
import re
from collections.abc import Mapping, Sequence
from itertools import groupby

import pandas as pd

from artifact.measure import minutes
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


#: What is said of claims that nothing measured here decides.
OWN_DATA = "rest on their source's own published data alone"


def badge(verdict: str, extension: bool = False) -> str:
    """A verdict as HTML: a sign, the words of `measures.said`, and a colour; none of them alone carries the meaning.

    Raises ValueError for what is no verdict.
    """
    if verdict not in BADGES:
        raise ValueError(f"{verdict!r} is no verdict; these are: {', '.join(VERDICTS)}.")
    sign, name = BADGES[verdict]
    return f'<span class="{name}"><span aria-hidden="true">{sign}</span> {measures.said(verdict, extension)}</span>'


def _own_data(theirs: pd.DataFrame) -> str:
    """How many claims a source's own series decide, and how many of them they bear out."""
    holds = (theirs["verdict"] == REPRODUCED).sum()
    return f"{len(theirs)} more {OWN_DATA}, and {holds} of these are consistent with it"


#: Columns of the ledger before those of the GPUs.
BEFORE = ("Claim", "Source", "GPU of the source", "Published")


#: name of a GPU -> id of a claim -> address of a file with the numbers that it is judged by, and what it is called.
Files = Mapping[str, Mapping[str, Mapping[str, str]]]


def ledger(
    judged: Mapping[str, pd.DataFrame],
    beside: str = "",
    first: Sequence[str] = (),
    files: Files | None = None,
) -> str:
    """The verdicts of `judge` as an HTML table, with a line that counts them above it; whole without a script.

    judged: name of a GPU -> the verdicts on the same claims by its records, a column for each in this order; the line
    above counts those of the first. A row can be linked as #claim-<id>, and says in how many minutes it is measured
    again; how it was judged unfolds in it, with links to the claims that it names and to `files`. beside: on a page
    that is not the ledger's, the ledger's address, to which the ids link; the ledger's own rows stand below the
    sections of their sources. first: ids of claims that are shown, where the others unfold in a table of their own.
    """
    df = next(iter(judged.values()))
    claims, theirs = judge.by_evidence(df)
    ours = len(df) - len(claims) - len(theirs)
    more = "is an extension" if ours == 1 else "are extensions"
    apart = f"; {_own_data(theirs)}" if len(theirs) else ""
    apart += f"; {ours} more {more}, listed and not counted" if ours else ""
    on = f" on {html.escape(next(iter(judged)))}" if len(judged) > 1 else ""
    ids = [re.escape(html.escape(str(i))) for i in sorted(df["id"], key=len, reverse=True)]
    known = re.compile(rf"(?<![\w-])({'|'.join(ids)})(?![\w-])")
    line = f"<p>{len(claims)} claims{on}: {counts(claims)}{apart}</p>"
    rows = {name: frame.set_index("id") for name, frame in judged.items()}
    every = list(df["id"])
    shown = [i for i in every if i in set(first)] or every
    rest = [i for i in every if i not in set(shown)]
    df, files = df if beside else by_section(df), files or {}
    table = _table(df, rows, known, beside, shown, "Claims and their verdicts.", files)
    if not rest:
        return f"{line}\n{table}"
    others = _table(df, rows, known, beside, rest, "The other claims and their verdicts.", files)
    folded = f'<details class="folded"><summary>The other {len(rest)} rows</summary>\n{others}\n</details>'
    return "\n".join((line, table, folded))


#: A section of a source by its number, alone or with a part's: "5", "5.1", "IV", "III-B1", "V.A".
_NUMBERED = re.compile(r"(?:\d|[IVX]+)(?:[.-][A-Z\d])?(?![A-Za-z])")
_ROMAN = ("I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X")
#: Where sections without a number stand before and after all others.
_BEFORE, _AFTER = ("abstract", "TL;DR"), ("Conclusion",)


def section(where: str) -> str:
    """The first section that `where` of a claim names, without figure, table and lesser parts."""
    head = re.split(r"; |, ", where)[0]
    found = _NUMBERED.match(head)
    return found[0] if found else head


def by_section(df: pd.DataFrame) -> pd.DataFrame:
    """Rows of the same claims with a column `section`, those of a source together and in the order of its text."""
    heads = df["where"].map(section)
    sources, found = (list(dict.fromkeys(names)) for names in (df["source"], heads))

    def place(row: int) -> tuple:
        head = heads.iloc[row]
        rank, number = 2, ()
        if head in _BEFORE + _AFTER:
            rank = 0 if head in _BEFORE else 3
        elif _NUMBERED.match(head):
            first, *part = re.split("[.-]", head)
            rank, number = 1, (_ROMAN.index(first) if first in _ROMAN else int(first), part)
        return sources.index(df["source"].iloc[row]), rank, number, found.index(head)

    return df.assign(section=heads).iloc[sorted(range(len(df)), key=place)]


def _table(
    df: pd.DataFrame,
    rows: Mapping[str, pd.DataFrame],
    known: re.Pattern,
    beside: str,
    ids: Sequence[str],
    caption: str,
    files: Files,
) -> str:
    """The rows of the claims `ids`, below heads where `df` is `by_section`. rows: name of a GPU -> verdicts by id;
    known: matches an id in a text. A page of one source does not repeat its name, nor do rows below a head."""
    alone = bool(beside) and df["source"].nunique() == 1
    grouped = "section" in df
    heads = [f'<th scope="col">{head}</th>' for head in BEFORE if not (alone and head == "Source")]
    heads += [f'<th scope="col" data-gpu="">{html.escape(gpu)}</th>' for gpu in rows]
    out = [
        '<div style="overflow-x:auto" tabindex="0" role="region" aria-label="Claims and their verdicts">'
        f'<table class="ledger{" grouped" * grouped}"><caption>{caption}</caption>',
        f"<thead><tr>{''.join(heads)}</tr></thead>",
        "<tbody>",
    ]
    of = df[df["id"].isin(ids)].to_dict("records")
    for group, members in groupby(of, key=lambda row: (row["source"], row.get("section", ""))):
        told = html.escape(" · ".join(group))
        if grouped:
            out.append(f'<tr class="group"><th scope="rowgroup" colspan="{len(heads) - 1}">{told}</th></tr>')
        for row in members:
            cell = {key: html.escape(str(value)) for key, value in row.items()}
            shown = f'<a href="{beside}#claim-{cell["id"]}"><code>{cell["id"]}</code></a>'
            found = "".join(
                _found(own.loc[row["id"]], known, gpu, files.get(gpu, {}).get(row["id"], {}))
                for gpu, own in rows.items()
            )
            below = f' data-group="{told}"' * grouped
            out.append(
                f'<tr id="claim-{cell["id"]}"{below}><th scope="row">{cell["says"]} '
                f"<em>({cell['where']})</em> {shown} <small>{minutes.said(row['minutes'])} min</small></th>"
                + f"<td>{cell['source']}</td>" * (not alone)
                + f'<td>{cell["gpu"]}</td><td data-label="published">{cell["published"]}</td>{found}</tr>'
            )
    return "\n".join([*out, "</tbody></table></div>"])


def _found(row: pd.Series, known: re.Pattern, gpu: str, files: Mapping[str, str]) -> str:
    """A claim's cell for one GPU: verdict, what was measured, why; what is searched in it begins with the verdict. A
    narrow page has no heads of columns, so the cell names its GPU. files: address -> name."""
    cell = {key: html.escape(str(value)) for key, value in row.items()}
    why, reason = (known.sub(r'<a href="#claim-\1">\1</a>', cell[k]) for k in ("why", "reason"))
    said = f"<p>{reason}</p>" if reason and row["verdict"] != NOT_MEASURED else ""
    close = f"<p>{cell['close']}</p>" if cell["close"] else ""
    extension = " <small>(extension, not counted)</small>" if row["extension"] else ""
    word = measures.said(row["verdict"], row["extension"])
    order = VERDICTS.index(row["verdict"]) + 0.5 * bool(row["extension"])  # behind the claims
    judged = f'<p class="judged">{why}</p>'
    numbers = ", ".join(f'<a href="{to}" download="">{name}</a>' for to, name in files.items())
    numbers = numbers and f'<p class="numbers">The numbers (CSV): {numbers}</p>'
    # What may change what a reader makes of a verdict is named where it is folded.
    kinds = ("a close call, " * bool(close), "why, " * bool(said), "how it was judged")
    searched = " ".join(cell[k] for k in ("measured", "reason", "close", "why"))
    return (
        f'<td data-label="{html.escape(gpu)}" data-verdict="{word}" data-search="{word}: {searched}" '
        f'data-order="{order:g}">'
        f"{badge(row['verdict'], row['extension'])}{extension} {cell['measured']} "
        f"<details><summary>{''.join(kinds)}</summary>{close}{said}{judged}{numbers}</details></td>"
    )


#: Claims that a cell names without being unfolded.
FEW = 4


def links(ids: Sequence[str], beside: str = "") -> str:
    """Claims by id, each a link to its row, folded where they are many. beside: the ledger's address, if elsewhere."""
    names = ", ".join(f'<a href="{beside}#claim-{i}">{i}</a>' for i in ids)
    if len(ids) <= FEW:
        return names
    return f"<details><summary>{len(ids)} claims</summary>{names}</details>"


def totals(df: pd.DataFrame) -> str:
    """How many claims have which verdict, as plain text; apart from them those that a source's own data decide."""
    claims, theirs = judge.by_evidence(df)
    of = claims["verdict"].value_counts()
    total = ", ".join(f"{of[v]} {v}" for v in VERDICTS if v in of) or "none"
    return f"{total}; {_own_data(theirs)}" if len(theirs) else total


def markdown(df: pd.DataFrame, gpu: str) -> str:
    """The verdicts of `judge` as a table in Markdown, with a line that counts them and names the GPU of the records."""
    lines = [f"{len(judge.by_evidence(df)[0])} claims on {gpu}: {totals(df)}", ""]
    lines += [
        "| claim | says | GPU of the source | published | measured | verdict | reason |",
        "|---" * 7 + "|",
    ]
    for row in df.to_dict("records"):
        says = f"{row['says']} ({row['source']}, {row['where']})"
        mark = " (extension, not counted)" if row["extension"] else ""
        verdict = measures.said(row["verdict"], row["extension"]) + mark
        reason = " ".join(filter(None, (row["reason"], row["close"])))
        cells = (
            f"`{row['id']}`",
            says,
            row["gpu"],
            row["published"],
            row["measured"],
            verdict,
            reason,
        )
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def counts(claims: pd.DataFrame) -> str:
    """How many of which verdict, with badges."""
    of = claims["verdict"].value_counts()
    return ", ".join(f"{of[v]} {badge(v)}" for v in VERDICTS if v in of)


def bars(df: pd.DataFrame) -> str:
    """A bar for each source, all of one length: how many of its claims have which verdict, and how many its own data
    decide, as HTML. Signs repeat what the badges' colours mean."""
    claims = judge.counted(df)
    theirs = claims["id"].isin(judge.on_their_data(claims)["id"])
    claims = claims.assign(verdict=claims["verdict"].mask(theirs, OWN_DATA))
    looks = BADGES | {OWN_DATA: ("=", "verdict-theirs")}
    rows = []
    for source, own in claims.groupby("source", sort=False):
        of = own["verdict"].value_counts()
        parts = [(v, int(of[v])) for v in looks if v in of]
        told = ", ".join(f"{count} {v}" for v, count in parts)
        spans = "".join(
            f'<span class="bar {looks[v][1]}" style="flex:{count}" title="{count} {v}">'
            f'<span aria-hidden="true">{looks[v][0]}</span> {count}</span>'
            for v, count in parts
        )
        rows.append(
            f'<tr><th scope="row">{html.escape(source)}</th><td>{len(own)}</td>'
            f'<td><div class="bars" role="img" aria-label="{told}">'
            f"{spans}</div></td></tr>"
        )
    legend = " ".join(badge(v) for v in VERDICTS if v in set(claims["verdict"]))
    sign, name = looks[OWN_DATA]
    legend += f' <span class="{name}"><span aria-hidden="true">{sign}</span> {OWN_DATA}</span>' * bool(theirs.any())
    head = '<thead><tr><th scope="col">Source</th><th scope="col">Claims</th><th scope="col">Verdicts</th></tr></thead>'
    caption = "<caption>Verdicts on the claims of each source.</caption>"
    return f'<table class="ledger-bars">{caption}{head}<tbody>{"".join(rows)}</tbody></table><p>{legend}</p>'


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
        here = {i: verdict[i] if verdict[i] != NOT_CARRIED else NOT_REPRODUCED for i in (one, other)}
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
        [(part, f.__name__, " ".join(inspect.getdoc(f).split()), ids) for (part, f), ids in used.items()],
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
