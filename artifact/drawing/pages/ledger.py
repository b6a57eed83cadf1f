"""The ledger's tables and sentences besides the verdicts themselves, which are `artifact.verdicts.page`'s."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd

from artifact import rooms
from artifact.drawing import prose
from artifact.verdicts import judge, load, page

#: Claims that a cell names without being unfolded.
FEW = 4
#: What `page.contradictions` says of a pair -> how the table puts it; else it names the claim that stands.
STANDS = {
    "both": "both: the two rules are wide enough",
    "neither": "neither",
    "undecided": "undecided: one of them was not measured",
}


def judged(known: Sequence[load.Claim], origin: prose.Origin) -> pd.DataFrame | None:
    """Verdicts; None where there are no records at all."""
    return None if origin.folder is None else judge.judge(known, origin.folder)


def without_records(known: Sequence[load.Claim], origin: prose.Origin) -> str:
    if origin.folder is not None:
        return ""
    return f"{origin.missing} Until then there are {len(load.of_sources(known))} claims and no verdicts."


def without_claims(known: Sequence[load.Claim], found: Iterable[rooms.Room]) -> str:
    """Systems of which nothing is claimed yet; nothing where each has claims. found: all rooms."""
    found, claimed = list(found), {claim.room for claim in known}
    silent = [room.name for room in found if room.room not in claimed]
    if not silent:
        return ""
    return (
        f"No claims are written down yet for {len(silent)} of the {len(found)} systems: {', '.join(silent)}. Their rooms are not "
        "built, so they have no verdicts, good or bad."
    )


# ---------------------------------------------------------------- where a source contradicts itself


def pairs(judged: pd.DataFrame | None, known: Sequence[load.Claim]) -> pd.DataFrame | None:
    """Pairs of claims of which at most one can stand; None without verdicts."""
    if judged is None:
        return None
    verdicts, where = judged.set_index("id"), {claim.id: claim.where for claim in known}

    def cell(i: str) -> str:
        row = verdicts.loc[i]
        badge = page.badge(row["verdict"])
        return f'{row["says"]} <em>({where[i]})</em><br>{badge} <a href="#claim-{i}">{i}</a>'

    return pd.DataFrame(
        [
            (
                cell(row.one),
                cell(row.other),
                STANDS.get(row.stands, f"<code>{row.stands}</code>"),
            )
            for row in page.contradictions(judged, known).itertuples(index=False)
        ],
        columns=["one", "the other", "which stands"],
    )


def decided(judged: pd.DataFrame | None, known: Sequence[load.Claim]) -> str:
    if judged is None:
        count = len({frozenset((c.id, other)) for c in known for other in c.contradicts})
        return f"There are {count} such pairs; without records none is decided."
    stands = page.contradictions(judged, known)["stands"]
    count = (~stands.isin(list(STANDS))).sum()
    return f"There are {len(stands)} such pairs, and the records decide {count} of them."


# ---------------------------------------------------------------- how a verdict is reached


def rules(known: Sequence[load.Claim], linked: bool) -> pd.DataFrame:
    """What rules are made of. linked: whether the claims have their rows on the page."""
    made_of = page.rules(known)

    def named(i: str) -> str:
        return f'<a href="#claim-{i}">{i}</a>' if linked else i

    def listed(ids: Sequence[str]) -> str:
        """Folded where they are many, so that the definitions keep the page."""
        names = ", ".join(map(named, ids))
        if len(ids) <= FEW:
            return names
        return f"<details><summary>{len(ids)} claims</summary>{names}</details>"

    return pd.DataFrame(
        {
            "part": made_of["part"],
            "name": "<code>" + made_of["name"] + "</code>",
            "definition": made_of["definition"].map(prose.inline_code),
            "claims": list(map(listed, made_of["claims"])),
        }
    )


def rerun(known: Sequence[load.Claim]) -> str:
    """The commands for one claim, as a block of Markdown."""
    one = known[0].id
    return (
        "```sh\n"
        f"python -m artifact claims --id {one}   # verdict, rule, minutes\n"
        f"make measure {' ' * (len(one) + 21)}# new records, on your GPU\n"
        f"python -m artifact claims --id {one} --records build/records\n"
        "```"
    )
