"""The verdict on each claim, from the records of one GPU.

When a claim "does not carry over to this GPU": its rule says "not reproduced", its quantity depends on hardware
(`depends_on = "gpu"`, see `load`), the records that decide are this GPU's and not a series of the source's own, and
none of the GPUs that the source speaks of is this one. GPUs of one chip count as one (CHIPS): an H200 is an H100 with
more and faster memory, and no excuse for what was said of an H100. All else that fails is "not reproduced": a count or
a size that follows from the programs; what fails for another reason that is known; what a source's own data
contradicts.

Why a claim is not reproduced is the sentence of its claims.toml, its placeholders filled from the records:

    reason = "Packing costs more than it saves here: V2 has {speedup v2 / v1} of the speed of V1."

- `{measured}`: as the ledger shows it;
- `{least}`, `{most}`, `{mean}` (geometric), `{median}`: of the quantity over all points that the claim is judged at;
- `{speedup A / B}`: the geometric mean over these points of the time of B over that of A;
- `{counter METRIC of A}`: the median of a hardware counter there; with `A / B` the geometric mean of the ratios;
- `{claim ID}`: what was measured for another claim of the system, as the ledger shows it, or "not measured here".

Behind the two in the middle ` at COLUMN = NUMBER` chooses points, and ` in EXPERIMENT` an experiment of the system,
those of others' code among them.

A system.toml lists the sections of its source; `where` of a claim, and of what is untested, names one or more of
them, as in "IV-B; Table II; Fig. 6" (`places`).
"""

import contextlib
import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import paths, registry
from artifact.measure import records
from artifact.verdicts import anchors, evidence, load, measures, sets
from artifact.verdicts.evidence import OTHERS, SERIES, Evidence, NotMeasured
from artifact.verdicts.load import Claim
from artifact.verdicts.measures import (
    EXCEEDED,
    NOT_CARRIED,
    NOT_MEASURED,
    NOT_REPRODUCED,
    PARTLY,
    REPRODUCED,
    UNDECIDED,
    VERDICTS,
    Outcome,
)
from kernels.contract import require

#: Of a verdict: the claim; its numbers: the value that was judged, between low and high, in `unit`, and the threshold
#: within which it is as claimed; in words what was measured and why; what it rests on. own: a series of the source's
#: own decides it, and nothing that was measured here. aside: why it is listed and not counted, an extension or a
#: stand-in. classes: of a claim over a set of matrices, class of non-zeros -> value, matrices, measured.
#: rebuilt: it says why, and our rebuilding, which decides it, is not as fast as the source's kernel at an anchor.
#: probability: of the verdict, see `uncertainty`; sure: the same in words.
LEDGER_COLUMNS = (
    *("id", "room", "source", "where", "says", "published", "value", "low", "high", "unit", "threshold", "points"),
    *("measured", "verdict", "reason", "why", "minutes", "gpu", "extension", "own", "rests"),
    *("aside", "fact", "classes", "rebuilt", "probability", "sure"),
)
LISTS = ("rests", "threshold")  #: of these, what JSON has as lists
STABILITY = "stability.csv"  #: beside the records of a GPU: how sure its verdicts are
#: Beside the folders of the GPUs' records: the verdict on each claim by the records of each.
SHIPPED = "verdicts.csv"
#: Suffixes of files that verdicts follow from.
FOLLOWED = (".py", ".toml", ".j2", ".csv", ".json")
#: GPUs that are one chip with another memory -> the chip.
CHIPS = {"h100": "gh100", "h200": "gh100", "gh200": "gh100"}


def judge(claims: Iterable[Claim], folder: str | Path) -> pd.DataFrame:
    """Return verdicts from the records in `folder`, that of one GPU.

    One row per claim, columns LEDGER_COLUMNS.

    A record that is there but not valid raises ValueError, one without its machine.json
    FileNotFoundError: a broken file is no verdict.
    """
    claims, folder = list(claims), Path(folder)
    known = {claim.id: claim for claim in (*load.claims(), *claims)}
    of, rows, drawn = cache(partial(Evidence, folder)), [], drawings(folder)

    @cache
    def outcome(i: str) -> Outcome:
        """Of any claim: a reason may speak of one that is not judged."""
        return _outcome(known[i], of(known[i].room))

    @cache
    def faithful(system: str) -> bool:
        """Whether what is rebuilt of a system is as fast as the source's at every anchor."""
        return anchors.met(load.anchors(system), of(system), of_kind(system, folder.name))

    for claim in claims:
        came = outcome(claim.id)
        plain = {NOT_MEASURED: came.why, UNDECIDED: came.lacks, REPRODUCED: ""}.get(came.verdict)
        verdict = carried(claim, came.verdict, folder.name)
        sure = drawn.get((claim.id, verdict), {"probability": np.nan})
        more = {
            "verdict": verdict,
            "probability": sure["probability"],
            "sure": "" if np.isnan(sure["probability"]) else measures.say("sure", sure),
            "reason": filled(claim, inputs(claim, of(claim.room))[0], came, outcome) if plain is None else plain,
            "gpu": ", ".join(claim.gpu),
            "own": bool(claim.experiment) and all(SERIES in experiment for experiment in claim.experiment),
            "rebuilt": _gated(claim, came) and not faithful(claim.room),
        }
        rows.append({key: getattr(came, key, getattr(claim, key, None)) for key in LEDGER_COLUMNS} | more)
    return pd.DataFrame(rows, columns=list(LEDGER_COLUMNS))


def drawings(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Return (claim, verdict) -> its row of what `uncertainty` wrote beside the records of a GPU; nothing without."""
    path = folder / STABILITY
    rows = pd.read_csv(path).fillna({"next": ""}).to_dict("records") if path.is_file() else []
    return {(row["claim"], row["verdict"]): row for row in rows}


def carried(claim: Claim, verdict: str, gpu: str) -> str:
    """Return a rule's verdict on the records of a GPU, or that the claim does not carry over to it."""
    ours = not any(SERIES in name for name in claim.experiment)
    elsewhere = claim.depends_on == load.GPU and ours and not any(same_gpu(said, gpu) for said in claim.gpu)
    return NOT_CARRIED if verdict == NOT_REPRODUCED and elsewhere else verdict


def kept(claims: Iterable[Claim], folder: Path) -> pd.DataFrame:
    """Return `judge`.

    By shipped records from a table of all claims that lies in the build folder, as long as no file changes that it
    follows from: pages judge the same again and again.
    """
    claims, known = list(claims), {claim.id: claim for claim in load.claims()}
    if folder.parent != paths.RECORDED or not all(known.get(claim.id) is claim for claim in claims):
        return judge(claims, folder)
    place, state, table = paths.BUILD / "verdicts" / f"{folder.name}.json", _state(), {}
    with contextlib.suppress(OSError, ValueError):
        table = json.loads(place.read_text(encoding="utf-8"))
    if table.get("state") != state:
        df = judge(known.values(), folder)
        table = {"state": state, "verdicts": df.astype(object).where(df.notna(), None).to_dict("records")}
        records.write_json(place, table)
    df = pd.DataFrame(table["verdicts"], columns=list(LEDGER_COLUMNS)).set_index("id", drop=False)
    df = df.assign(probability=df["probability"].astype(float), **{key: df[key].map(tuple) for key in LISTS})
    return df.loc[[claim.id for claim in claims]].reset_index(drop=True)


def _state() -> str:
    """Return a checksum of the shipped records' place and of all files that their verdicts follow from.

    It is made of the files' sizes and times.
    """
    files = sorted(x for folder in ("artifact", "kernels") for x in (paths.ROOT / folder).rglob("*.*"))
    found = [(str(x), x.stat().st_size, x.stat().st_mtime_ns) for x in files if x.suffix in FOLLOWED]
    return hashlib.sha256(repr((str(paths.RECORDED), found)).encode()).hexdigest()


def everywhere(claims: Iterable[Claim], folders: Mapping[str, Path]) -> dict[str, pd.DataFrame]:
    """Return name of a GPU -> the verdicts by its records. folders: name of a GPU -> its records."""
    claims = list(claims)
    return {gpu: kept(claims, folder) for gpu, folder in folders.items()}


def shipped() -> dict[str, pd.DataFrame]:
    """Return `everywhere` of all claims by the shipped records, those of the home GPU first."""
    gpus = sorted(records.list_gpus(paths.RECORDED), key=lambda gpu: gpu != paths.HOME)
    return everywhere(load.claims(), {gpu: paths.RECORDED / gpu for gpu in gpus})


def to_csv(judged: Mapping[str, pd.DataFrame]) -> str:
    """Return the text of SHIPPED: claim, GPU, verdict. judged: name of a GPU -> the verdicts by its records."""
    df = pd.concat(df.assign(claim=df["id"], gpu=gpu) for gpu, df in judged.items())
    return df[["claim", "gpu", "verdict"]].to_csv(index=False, lineterminator="\n")


def counted(df: pd.DataFrame) -> pd.DataFrame:
    """Return those of the verdicts that are on claims of the sources: extensions and stand-ins are only listed."""
    return df[df["aside"] == ""]


def decider(judged: Mapping[str, pd.DataFrame], system: str) -> str:
    """Return the GPU whose records decide the claims of a system: the first of the source's own kind that has some.

    Else the first of all. judged: as `everywhere`.
    """
    of = {gpu: df.loc[df["room"] == system, "verdict"] for gpu, df in judged.items() if of_kind(system, gpu)}
    return next(iter([*(gpu for gpu in of if (of[gpu] != NOT_MEASURED).any()), *judged]))


def by_decider(claims: Iterable[Claim], judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return verdicts on claims, each by the shipped records of the GPU that decides those of its system.

    judged: as `everywhere`.
    """
    claims = list(claims)
    gpu = {system: decider(judged, system) for system in {claim.room for claim in claims}}
    return pd.concat(judge([c for c in claims if gpu[c.room] == name], paths.RECORDED / name) for name in judged)


def deciding(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return a verdict on each claim, by the records of the GPU that decides the claims of its system."""
    every = next(iter(judged.values()))
    of = {system: judged[decider(judged, system)].set_index("id", drop=False) for system in every["room"].unique()}
    return pd.DataFrame(
        [of[row.room].loc[row.id] for row in every.itertuples()], columns=every.columns, index=every.index
    )


def of_kind(system: str, gpu: str) -> bool:
    """Tell whether a GPU is of a kind that the source of a system measured on, which another memory makes another."""
    known = registry.find().get(system)
    return known is not None and any(same_gpu(said, gpu, {}) for said in known.gpus)


def same_gpu(said: str, measured: str, chips: Mapping[str, str] = CHIPS) -> bool:
    """Tell whether a source speaks of the GPU `measured`, or of one with the same chip.

    said: "RTX 4070", "H100 96 GB"; measured: a name or a slug. Without `chips` it must be the GPU of that name.
    """
    said, another = re.sub(r"\d+ ?GB", "", said, flags=re.IGNORECASE), {"ti", "super", "d"}  # behind its number
    ours, theirs = ([chips.get(w, w) for w in re.findall(r"[a-z0-9]+", s.lower())] for s in (measured, said))
    return any(
        ours[i : i + len(theirs)] == theirs and not {*ours[i + len(theirs) :][:1]} & another
        for i in range(len(ours) - len(theirs) + 1)
    )


def _gated(claim: Claim, came: Outcome) -> bool:
    """Whether a verdict is on a mechanism, by kernels that are rebuilt here."""
    return claim.mechanism and claim.ours and came.verdict not in measures.OPEN


def inputs(claim: Claim, e: Evidence) -> tuple[Evidence, frozenset[str]]:
    """Return the evidence that a claim is judged by, and what of the source's set of matrices that lacks.

    Of a claim over this set it is the rows of the set alone, if all of it was measured; else all that was.
    """
    whole, lacking = e.only(claim.rule.at, claim.rule.repeats), frozenset[str]()
    with contextlib.suppress(NotMeasured):
        lacking = sets.lacking(claim.room, claim.rule, whole, claim.experiment) if claim.set else lacking
        if claim.set and not lacking:
            names = {"label": sorted(sets.source(claim.room))}
            return e.only({**claim.rule.at, **names}, claim.rule.repeats), lacking
    return whole, lacking


def _outcome(claim: Claim, every: Evidence) -> Outcome:
    rule, (e, lacking) = claim.rule, inputs(claim, every)
    found = replace(_tried(rule, e, claim.experiment), rests=tuple(sorted(e.seen)))
    given = found.verdict != NOT_MEASURED
    if claim.set and given:
        found = replace(found, classes=sets.by_class(rule, e, claim.experiment))
        if lacking:
            size = {"all": len(sets.source(claim.room)), "lacking": len(lacking)}
            lacks, measured = measures.say("undecided", size), measures.say("by_class", {"classes": found.classes})
            found = replace(found, verdict=UNDECIDED, lacks=lacks, measured=measured)
    sweeps = evidence.sweeps(claim.experiment) if rule.repeats and given else []
    runs = {name: [other for other in claim.experiment if other == name or other not in sweeps] for name in sweeps}
    second = replace(rule, quantity=partial(rule.quantity, over=rule.also_over)) if rule.also_over and given else None
    also = _tried(second, e, claim.experiment) if second else found
    seen = {
        "c": claim,
        "rule": found.why,
        "given": given,
        "kept": every.only(rule.at).kept,
        "classes": found.classes,
        "lacks": found.lacks,
        "series": any(SERIES in name for name in claim.experiment),
        "theirs": any(OTHERS in name for name in claim.experiment),
        "runs": {name: _tried(rule, e, run) for name, run in runs.items()},
        "also": also if second and also.verdict != NOT_MEASURED else None,
        "also_said": measures.said(also.verdict, claim.aside),
    }
    return replace(found, why=measures.say("why", seen))


def _tried(rule: measures.Rule, e: Evidence, experiments: Iterable[str]) -> Outcome:
    """Return what a rule makes of experiments, or that their records do not decide, which rests on nothing."""
    try:
        return measures.outcome(rule, e, experiments)
    except NotMeasured as missing:
        e.seen.clear()
        return Outcome(NOT_MEASURED, "—", str(missing))


# ---------------------------------------------------------------- why a claim is not reproduced

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_WHERE = re.compile(r"^(.*?)(?: at (\w+) = ([\d.]+))?(?: in ([\w/]+))?$")
_REDUCED: Mapping[str, Callable[[pd.Series], float]] = {
    "least": pd.Series.min,
    "most": pd.Series.max,
    "median": pd.Series.median,
    "mean": records.geomean,
}


def filled(claim: Claim, e: Evidence, outcome: Outcome, others: Callable[[str], Outcome]) -> str:
    """Return the claim's reason with numbers.

    What was asked and what came if it has none, as on a GPU on which a claim fails that holds on others, or if a
    record that it speaks of is not there, counters say.

    e: the claim's own evidence. others: from the id of another claim what came of it.
    Raises ValueError, one sentence, for a placeholder that is none.
    """
    seen = {"published": claim.published, "measured": outcome.measured, "missing": ""}
    try:
        said = PLACEHOLDER.sub(lambda m: _value(m[1], claim, e, outcome, others), claim.reason)
    except NotMeasured as nothing:
        said, seen["missing"] = "", str(nothing)
    beyond = outcome.verdict == EXCEEDED and not claim.reason
    return said or measures.say("beyond" if beyond else "plain", seen)


def _value(word: str, claim: Claim, e: Evidence, outcome: Outcome, others: Callable[[str], Outcome]) -> str:
    if word in _REDUCED and outcome.values is not None:
        return outcome.values.one(_REDUCED[word](outcome.values.all))
    ((said, column, at, experiment),) = _WHERE.findall(word)
    e = e.only({**e.where, column: float(at)}, e.repeats) if column else e
    experiments = [experiment] if experiment else claim.experiment
    match said.split():
        case ["measured"]:
            return outcome.measured
        case ["claim", other]:
            found = others(other)
            return "not measured here" if found.verdict == NOT_MEASURED else found.measured
        case ["speedup", of, "/", over]:
            return f"{records.geomean(e.ratio(experiments, of, over)):.2f}×"
        case ["counter", metric, "of", of]:
            return f"{e.counter(of, metric, experiments).median():.3g}"
        case ["counter", metric, "of", of, "/", over]:
            return f"{records.geomean(evidence.counter(e, experiments, metric, of, over).by[of]):.2f}×"
    raise ValueError(f"The reason of the claim {claim.id!r} has a placeholder {word!r} that is none.")


# ---------------------------------------------------------------- verdicts told

#: Why a row of the ledger is not in the tally, in the order in which rows are taken out of it.
EXTENSIONS, STAND_INS = "are extensions", "are judged by a stand-in"
OWN_DATA = "rest on their source's own published data alone"
REBUILT = "say why, on our rebuilding"  #: which is not as fast as the source's kernel at a named anchor
APART = (EXTENSIONS, STAND_INS, OWN_DATA, REBUILT)
#: Verdict -> its sign, and the class that the book's style sheet colours: dark enough that white text on it has a
#: contrast of 4.5:1, in either mode of the page.
LOOKS = {
    REPRODUCED: ("✓", "verdict-reproduced"),
    EXCEEDED: ("▲", "verdict-exceeded"),
    PARTLY: ("◐", "verdict-partly"),
    NOT_REPRODUCED: ("✗", "verdict-not"),
    NOT_CARRIED: ("↛", "verdict-elsewhere"),
    UNDECIDED: ("?", "verdict-undecided"),
    NOT_MEASURED: ("–", "verdict-unmeasured"),
    REBUILT: ("≈", "verdict-rebuilt"),
    OWN_DATA: ("=", "verdict-theirs"),
}


def facts(df: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each fact: room, source, apart (of APART, "" in the tally), fact, verdict, claims (ids).

    Claims that are readings of one fact are one: its verdict is that of all of them, or partly (`measures.all_of`).
    """
    taken = [df["extension"].astype(bool), df["aside"] != "", df["own"].astype(bool), df["rebuilt"].astype(bool)]
    groups = df.assign(apart=np.select(taken, APART, "")).groupby(["room", "source", "apart", "fact"], sort=False)
    return groups.agg(verdict=("verdict", measures.all_of), claims=("id", list)).reset_index()


def counts(df: pd.DataFrame, own: str = OWN_DATA) -> dict[str, int]:
    """Count the facts of the sources by verdict, in the order of LOOKS.

    own: what those are called that a series of the source's own decides, whatever the verdict; REBUILT are apart too.
    """
    of = facts(df)
    told = of["verdict"].where(of["apart"] == "", of["apart"].replace(OWN_DATA, own)).value_counts()
    return {verdict: int(told[verdict]) for verdict in (*VERDICTS, REBUILT, own) if verdict in told}


def reconciled(df: pd.DataFrame) -> pd.DataFrame:
    """Return how the rows of the ledger become the tally: what, claims, facts.

    All, those that are apart by why, the tally, and this by verdict; then what is on our rebuilding by verdict. Every
    number of claims that is shown is one of these.
    """
    of, verdict = facts(df), df.set_index("id")["verdict"]

    def row(what: str, some: pd.DataFrame, told: str = "") -> tuple[str, int, int]:
        ids = [i for claims in some["claims"] for i in claims]
        return (
            what + told,
            sum(told in ("", verdict[i]) for i in ids),
            int((some["verdict"] == told).sum()) if told else len(some),
        )

    groups = {why: of[of["apart"] == why] for why in ("", *APART)}
    rows = [row("rows of the ledger", of), *(row(f"of these {why}", groups[why]) for why in APART)]
    rows += [row("the tally", groups[""]), *(row("", groups[""], told) for told in VERDICTS)]
    rows += [row("on our rebuilding: ", groups[REBUILT], told) for told in VERDICTS]
    return pd.DataFrame([r for r in rows if r[1] or r[2]], columns=["what", "claims", "facts"])


def tally(df: pd.DataFrame) -> dict[str, Any]:
    """Count facts: in the tally, by verdict, and those of a source's own data, with how many of them hold."""
    every = facts(df)
    theirs = every[every["apart"] == OWN_DATA]
    return {"facts": (every["apart"] == "").sum(), "of": counts(df), "theirs": len(theirs)} | {
        "consistent": theirs["verdict"].isin(measures.HOLDS).sum()
    }


def totals(df: pd.DataFrame) -> str:
    """Say how many facts have which verdict, and how many are apart from them."""
    told = tally(df)
    of, said = told["of"], {OWN_DATA: f", and {told['consistent']} of these are consistent with it"}
    more = [f"; {of.pop(why)} more {why}{said.get(why, '')}" for why in (REBUILT, OWN_DATA) if why in of]
    return (", ".join(f"{count} {verdict}" for verdict, count in of.items()) or "none") + "".join(more)


def markdown(df: pd.DataFrame, gpu: str) -> str:
    """Return the verdicts of `judge` as a table in Markdown.

    With a line that counts them and names the GPU of the records.
    """
    words = [measures.said(*row) for row in zip(df["verdict"], df["aside"], strict=True)]
    shown = {
        "claim": "`" + df["id"] + "`",
        "says": df["says"] + " (" + df["source"] + ", " + df["where"] + ")",
        "GPU of the source": df["gpu"],
        "published": df["published"],
        "measured": df["measured"],
        "verdict": pd.Series(words, df.index) + df["aside"].map(lambda why: f" ({why}, not counted)" * bool(why)),
        "how sure": df["sure"],
        "reason": df["reason"],
    }
    return f"{tally(df)['facts']} facts on {gpu}: {totals(df)}\n\n{table(pd.DataFrame(shown))}"


def table(df: pd.DataFrame, right: int = 0) -> str:
    """Return a table in Markdown. right: how many of its columns, the last ones, stand on the right."""
    cells = df.astype(str).replace(r"\|", r"\\|", regex=True).itertuples(index=False)
    return "\n".join(
        f"| {' | '.join(line)} |"
        for line in [list(df.columns), ["---"] * (df.shape[1] - right) + ["---:"] * right, *cells]
    )


def contradictions(judged: pd.DataFrame, known: Sequence[load.Claim]) -> pd.DataFrame:
    """Return pairs of claims of one source that cannot both hold: one, other (ids), and which `stands`.

    judged: verdicts from `judge.judge`. stands: an id, "both", "neither" or "undecided".
    """
    # What fails here fails, whether it may hold elsewhere or not; what holds by more than stated holds; what is
    # undecided says nothing.
    alike = {NOT_CARRIED: NOT_REPRODUCED, EXCEEDED: REPRODUCED, UNDECIDED: NOT_MEASURED}
    rank = judged.set_index("id")["verdict"].replace(alike).map(VERDICTS.index)
    order = [claim.id for claim in known]
    found = dict.fromkeys(frozenset((claim.id, other)) for claim in known for other in claim.contradicts)
    df = pd.DataFrame([sorted(pair, key=order.index) for pair in found], columns=["one", "other"])
    first, second = df["one"].map(rank), df["other"].map(rank)
    cases = [
        np.maximum(first, second) == VERDICTS.index(NOT_MEASURED),  # the last of the verdicts
        first < second,
        first > second,
        first == VERDICTS.index(REPRODUCED),
    ]
    return df.assign(stands=np.select(cases, ["undecided", df["one"], df["other"], "both"], "neither"))


def rules(known: Sequence[load.Claim]) -> pd.DataFrame:
    """Return what the rules of these claims are made of.

    Part (quantity, reduce or expect), name, definition (the function's docstring on one line), claims (ids); one row
    per function, in the order of the parts and then of the claims.
    """
    df = pd.DataFrame(
        [(part, getattr(claim.rule, part).func, claim.id) for part in measures.PARTS for claim in known],
        columns=["part", "name", "claims"],
    )
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
    require(
        found and not re.search(r"\w", rest),
        f"{where!r} names {rest.strip(' ;,') or 'no section'!r} of its source, whose sections are: "
        f"{', '.join(sections)}.",
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
        sweeps = (e.partition(evidence.SERIES)[0] for e in evidence.sweeps(claim.experiment))
        told = [figures[sweep] for sweep in sweeps if sweep in figures] + named
        rows += [(section, ", ".join(claim.experiment), "", "", [claim.id], told) for section in sections]
    for entry in (entry for entry in untested if entry.room == system.room):
        sections, named = places(entry.where, system.sections)
        rows += [(section, "", entry.says, entry.reason, [], named) for section in sections]
    rows += [(section, "", "", "", [], []) for section in system.sections if section not in {row[0] for row in rows}]
    key = ["section", "experiment", "says", "reason"]
    df = (
        pd.DataFrame(rows, columns=[*key, "claims", "figure"])
        .groupby(key, sort=False)
        .agg(lambda lists: [*dict.fromkeys(sum(lists, []))])
        .reset_index()
    )
    df = df.assign(title=df["section"].map(system.sections), figure=df["figure"].map(", ".join))
    return df.sort_values("section", key=lambda c: c.map([*system.sections].index), kind="stable")[list(COVERAGE)]
