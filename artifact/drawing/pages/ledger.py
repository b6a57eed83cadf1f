"""The ledger: verdicts of every GPU on every claim as HTML, how the sources fare, and the facts of the page's text."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import pandas as pd
from markupsafe import Markup

from artifact import paths, registry
from artifact.book import text
from artifact.book.facts import Fact, flat
from artifact.drawing import provenance
from artifact.drawing.pages import rebuilt
from artifact.measure import records
from artifact.verdicts import evidence, judge, kinds, load, measures, rules as history

SCRIPT = Path(__file__).with_suffix(".js")
#: Claims of an abstract that a source's finding names.
WORST = 2
SURE = 0.95  #: probability of a verdict that counts as sure
#: Columns before those of the GPUs.
BEFORE = ("Claim", "Source", "GPU of the source", "Published")
#: What `judge.contradictions` says of a pair -> how the table puts it; else it names the claim that stands.
STANDS = {
    "both": "both: the two rules are wide enough",
    "neither": "neither",
    "undecided": "undecided: one of them was not measured",
}
#: Name of a GPU -> verdicts on the same claims by its records, as `judge.everywhere`; this page's GPU first.
Judged = Mapping[str, pd.DataFrame]
#: Name of a GPU -> id of a claim -> address of a file with the numbers that it is judged by, and what it is called.
Files = Mapping[str, Mapping[str, Mapping[str, str]]]


def facts(judged: Judged, known: Sequence[load.Claim]) -> Iterator[Fact]:
    """Yield the facts of the ledger's page.

    They are which GPUs count as one, how many claims depend on the GPU, how many rules changed and what that moved, how
    many claims contradict each other, and the claim that the page takes as its example.
    """
    chips = pd.Series(judge.CHIPS).rename_axis("gpu").reset_index(name="chip").groupby("chip", sort=False)["gpu"]
    of_kind = {
        system.name: judge.decider(judged, system.room)
        for system in registry.find().values()
        if any(judge.of_kind(system.room, gpu) for gpu in judged)
    }
    yield from flat(
        {
            "chips": "; ".join(text.listed(names.str.upper()) for _, names in chips),
            "claims": {"count": len(known), "of_gpu": sum(claim.depends_on == load.GPU for claim in known)}
            | {"example": known[0].id},
            "deciders": text.listed(f"{name} by the {gpu}" for name, gpu in of_kind.items()) or "none",
        }
    )
    moved = history.changes(history.log())
    which = {"all": moved["way"], "last": moved.drop_duplicates("claim", keep="last")["way"]}
    told = {name: way.value_counts().reindex(history.WAYS, fill_value=0) for name, way in which.items()}
    yield from flat({"changed": {"claims": moved["claim"].nunique(), "rules": len(moved), **told}})
    if (table := pairs(judged, known)) is not None:
        yield from flat({"pairs": {"count": len(table), "decided": (~table["stands"].isin(STANDS.values())).sum()}})


def numbers(known: Sequence[load.Claim], origin: provenance.Origin, shipped: Path = paths.RECORDED) -> Files:
    """Return the records by which each claim is judged on each GPU, copied to where a page finds them."""

    @cache  # many claims are judged by one file
    def copied(path: Path) -> str:
        to = Path("records", *path.parts[-3:])  # beside the figures
        records.write_text(paths.FIGURES / to, path.read_text(encoding="utf-8"))
        return f"{paths.FROM_PAGES}/{to.as_posix()}"

    return {
        gpu: {
            c.id: {
                copied(path): path.stem
                for experiment in c.experiment
                if (path := evidence.place(experiment, folder, c.room)).is_file()
            }
            for c in known
        }
        for gpu, folder in provenance.folders(origin.folder, shipped).items()
    }


def ledger(judged: Judged, files: Files | None = None, beside: str = "", first: Collection[str] = ()) -> Markup:
    """Return verdicts as an HTML table, with a line that counts those of the first GPU above it; nothing without any.

    Whole without a script, by which it is searched on the ledger's own page.

    A row can be linked as #claim-<id>, and says in how many minutes it is measured again; how it was judged unfolds in
    it, with links to the claims that it names and to `files`, which `numbers` makes. beside: on a page that is not the
    ledger's, the ledger's address, to which the ids link; the ledger's own rows stand below the sections of their
    sources. first: ids of claims that are shown, where the others unfold in a table of their own.
    """
    if not judged:
        return Markup()
    df = next(iter(judged.values()))
    on = {gpu: frame.set_index("id").to_dict("index") for gpu, frame in judged.items()}
    rows = [
        row | {"on": {gpu: own[row["id"]] for gpu, own in on.items()}}
        for row in (df if beside else by_section(df)).to_dict("records")
    ]
    known = set(first) & set(df["id"])
    rest = [row for row in rows if known and row["id"] not in known]
    tables = [
        ("Claims and their verdicts.", "", [row for row in rows if row not in rest]),
        *[("The other claims and their verdicts.", f"The other {len(rest)} rows", rest)] * bool(rest),
    ]
    decides = judge.deciding(judged)
    ids = "|".join(re.escape(i) for i in sorted(df["id"], key=len, reverse=True))
    return text.made(
        "ledger",
        tables=tables,
        gpus=list(judged),
        before=[head for head in BEFORE if not (beside and df["source"].nunique() == 1 and head == "Source")],
        beside=beside,
        grouped=not beside,
        files=files or {},
        replies=[reply for room in set(df["room"]) for reply in rebuilt.of(room).get("reply", ())],
        rebuilt=rebuilt.pages(),
        split=re.compile(rf"(?<![\w-])({ids})(?![\w-])").split,
        **judge.tally(decides),
        aside=(decides["aside"] != "").sum(),
        decider={system: judge.decider(judged, system) for system in {row["room"] for row in rows}},
        script="" if beside else SCRIPT.read_text(encoding="utf-8"),
        tables_script=paths.TABLES,
    )


def by_section(df: pd.DataFrame) -> pd.DataFrame:
    """Return verdicts with a column `section`, those of a source together and in the order of its text."""
    systems = registry.find()
    sections = [
        judge.places(where, systems[system].sections)[0][0] if systems[system].sections else ""
        for system, where in zip(df["room"], df["where"], strict=True)
    ]
    order = [
        (list(systems).index(r), [*systems[r].sections, ""].index(s)) for r, s in zip(df["room"], sections, strict=True)
    ]
    # Readings of one fact stand together, where the first of them does.
    first: dict[tuple[str, str], int] = {}
    for i, key in enumerate(zip(df["room"], df["fact"], strict=True)):
        first.setdefault(key, i)
    heads = [first[key] for key in zip(df["room"], df["fact"], strict=True)]
    together = sorted(range(len(df)), key=lambda i: (order[heads[i]], heads[i], i))
    return df.assign(section=[sections[i] for i in heads]).iloc[together]


def bars(judged: Judged) -> Markup:
    """Return a bar for each source.

    How many of its facts have which verdict by the GPU that decides, how many its own data decide, and how many our
    rebuilding alone. Signs repeat what the badges' colours mean.
    """
    every = judge.deciding(judged).groupby("source", sort=False) if judged else ()
    sources = {source: judge.counts(own) for source, own in every}
    return text.made(
        "bars",
        sources=sources,
        seen=[verdict for verdict in judge.LOOKS if any(verdict in of for of in sources.values())],
    )


def fared(judged: Judged) -> Markup:
    """Return what matters first.

    All facts together, then for each source how the claims of its abstract fare and the worst of that, by the GPU that
    decides.
    """
    if not judged:
        return Markup()
    claims = judge.counted(judge.deciding(judged))
    of = judge.facts(claims)
    decided = of[(of["apart"] == "") & ~of["verdict"].isin(measures.OPEN)]
    measured = claims[~claims["verdict"].isin(measures.OPEN)]
    holds = measured["verdict"].isin(measures.HOLDS)
    sources = []
    for source, own in measured.groupby("source", sort=False):
        head = own[own["where"].str.contains("abstract", case=False)]
        few = len(head) <= WORST
        kept = own if few else head
        rank = kept["verdict"].map({measures.NOT_REPRODUCED: 0, measures.NOT_CARRIED: 0, measures.PARTLY: 1}).dropna()
        worst = kept.loc[rank.sort_values(kind="stable").index[:WORST]].to_dict("records")
        of, count = "the source" if few else "its abstract", int(holds[kept.index].sum())
        sources.append({"name": source, "of": of, "claims": len(kept), "kept": count, "worst": worst})
    return text.made(
        "fared",
        decided=len(decided),
        of={verdict: int((decided["verdict"] == verdict).sum()) for verdict in measures.HOLDS},
        share=f"{decided['verdict'].isin(measures.HOLDS).mean():.0%}",
        sure=(measured["probability"].astype(float) >= SURE).sum(),
        known=measured["probability"].notna().sum(),
        sources=sources,
    )


def reconciled(judged: Judged) -> pd.DataFrame | None:
    """Return how the rows of the ledger become the tally; None without verdicts."""
    return judge.reconciled(judge.deciding(judged)) if judged else None


def pairs(judged: Judged, known: Sequence[load.Claim]) -> pd.DataFrame | None:
    """Return pairs of claims of which at most one can stand; None without verdicts."""
    if judged:
        df = judge.deciding(judged)
        rows = {row["id"]: text.part("stood", row) for row in df.to_dict("records")}
        found = judge.contradictions(df, known)
        return pd.DataFrame(
            {
                "one": found["one"].map(rows),
                "other": found["other"].map(rows),
                "stands": [STANDS.get(said, f"`{said}`") for said in found["stands"]],
            }
        )
    return None


def kinds_of_claims() -> pd.DataFrame:
    """Return the kinds of claims: name, what they are, their tolerances, what bounds these, and why they are so."""
    df = pd.DataFrame.from_dict(kinds.known(), orient="index").rename_axis("name").reset_index()
    written = {
        key: df[key].map(lambda said: f"`{judge.written(said)}`", na_action="ignore") for key in ("expect", "effect")
    }
    return df.assign(**written, name="`" + df["name"] + "`").fillna("")


def changed(log: pd.DataFrame) -> pd.DataFrame:
    """Return the changes of rules that moved a verdict, newest first."""
    df = history.changes(log).query("way in ('up', 'down')").iloc[::-1]
    code = {name: "`" + df[name] + "`" for name in ("old", "rule")}
    return df.assign(claim=df["claim"].map(lambda i: text.part("claim", i)), **code)


def rules(judged: Judged, known: Sequence[load.Claim]) -> pd.DataFrame:
    """Return what rules are made of; claims link to their rows where there are verdicts."""
    df = judge.rules(known)
    return df.assign(
        name="`" + df["name"] + "`",
        claims=[text.part("links", ids) if judged else ", ".join(ids) for ids in df["claims"]],
    )
