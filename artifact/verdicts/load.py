"""Claims: what they are, and reading them from a system's claims.toml.

A claim of a source is judged by a rule, which the file states in full:

    [[claim]]
    id = "nm-large"
    where = "4; Fig. 2"                     # in the source
    says = "At large sizes cuBLAS is ahead."  # in our words
    experiment = ["published"]              # the records that decide; "counters" and "ceilings" may stand beside
    at = { m = [4096, 8192] }               # of those only the rows whose columns have these values (optional)
    repeats = true                          # the experiments are runs of one measurement (optional, see below)
    quantity = { speedup = "baseline", over = "cublas" }    # a value at every point (shape × density) …
    reduce = "geometric mean"                               # … made one, or few …
    kind = "gain"                                           # how near is near enough: see kinds.toml …
    expect = { at_most = 0.95 }                             # … held against what the source says
    published = "slower"                    # the source's value: a text, or {figure, quantity, …} of published/

- `quantity` names a function of `evidence.py`, `reduce` and `expect` one of `measures.py`, or all three one
  of the system's own `measures.py`; each function's docstring is its definition, and the
  ledger prints all that are used. What a verdict says stands in `words.j2` beside them. The value of the first key is
  the function's first parameter, the other keys are the others. `reduce = { quantile = 0.1 }` is a name with a
  parameter.
- A claim's verdict is "reproduced", "partly" or "not reproduced": every expectation has a limit for the first
  and a weaker one, `partly`. The claim's `kind` gives its tolerances and how far `partly` reaches, which a claim does
  not give itself. Where a source gives a word and no number, the number is ours and the file says so. A claim whose
  records are missing is "not measured on this GPU", with the reason.
- `better = "more"` or `"less"` in an expectation of a range, for what a source says is at least so fast: what lies
  beyond the range on that side, and is else as claimed, is "exceeded".
- `set = true`: the claim is over the source's own set of matrices, whose names are the rows of the system's
  matrices.csv with `source = yes`. It is judged on these alone, and only where the records have every one of them, or a
  reason for what they lack; else it is "undecided on these inputs", and what was measured stands there by classes of
  non-zeros.
- A list of contenders, `speedup = ["a", "b"]`, holds each to the expectation, by name; a string is one
  contender.
- `"published"` among the numbers of `expect` stands for those of `published`: `near = "published"` for [low,
  high], `near = [0, "published"]` for its upper end alone. No number may be infinite: a range has two ends, and both
  are judged; what is a limit in one direction is `at_least` or `at_most`.
- `extension = true`: the source asks it as an open question, or what is judged is ours. `stand_in` says what is judged
  in place of what. The ledger lists both and does not count them among the claims.
- `gpu = ["A100"]`: the GPUs that the source speaks of; by default those of the system's system.toml, or the one whose
  published series decides.
- `fact = "nm-large"`: claims with one `fact` are readings of one, which is tallied once. By default the claim's own id.
- `mechanism = true`: it says why. Our rebuilding decides it only where it meets every `[[anchor]]` of the file, a point
  at which the source states how fast its kernel is (`anchors`); else the verdict is "on our rebuilding".
- `depends_on`: "gpu" for what depends on hardware, "method" for what follows from the programs or from arithmetic, and
  for what fails for a reason that is known to be another than the GPU. By default the quantity tells: times, rates and
  counters depend on hardware, whether the source gives a number or a word. A claim of the first kind that fails on
  another GPU "does not carry over to this GPU"; of the second kind it is "not reproduced".
- `reason`: why it is not reproduced, one sentence for people; `judge.py` fills its {placeholders} from the records,
  so that no number that was measured is typed. Shown with every verdict of the records but "reproduced".
- `like = "nm-large"`: the claim has of that one, which stands above it, all that it does not say itself, but for
  `note`, `reason`, `contradicts`, `fact` and `stand_in`.
- `note`: what a reader of the verdict should know, shown with it. What several claims note stands once, by a name, in
  the file's `[notes]`; a note is then that name, or a list of names and sentences.
- `also_over = "cusparse_default"` in a quantity gives the verdict against a second baseline beside the first,
  where a source does not say which algorithm of its library it ran.
- An experiment "others/anchors" is what the code of others gave on this GPU, `others/<gpu>/anchors.csv` of the system:
  the verdict is on the source's own program, where ours is no faithful rebuilding. On other GPUs it is not measured.
- With `repeats` a point that several of the experiments have, runs of one measurement or sweeps that cross, counts
  once: times and rates by the geometric mean over them. The verdict by each experiment alone is given beside.
- `[minutes]` names every experiment that a claim may ask for, with the minutes it takes. They are printed only where
  the records of the home GPU do not tell (`took`): counters, a single point, a system that was not measured there yet.
- What a source says and no experiment can test stands in the same file as `[[untested]]`, with `where`, `says` and the
  `reason`; `judge.coverage` shows it beside the claims, section by section.
- An experiment "fig9@A100" is none of ours: it is the series for the A100 that the source published,
  `published/fig9.csv`. A claim about it says whether a source's text is borne out by its own data, whatever GPU
  the records are of.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import pandas as pd
from pydantic import with_config

from artifact import paths, registry
from artifact.measure import durations, records
from artifact.verdicts import evidence, kinds, measures
from artifact.verdicts.anchors import Anchor

SAID = "published"  #: in the numbers of an expectation: those of the source
GPU, METHOD = "gpu", "method"  #: what a claim may depend on
#: Counters of what a program does, whatever GPU runs it. Bank conflicts are none: their counters also count collisions
#: with data that arrives from L2.
OF_PROGRAMS = re.compile(
    r"launch__(registers|grid|block)|l1tex__t_bytes|smsp__(inst_executed|warps_launched)\.sum|smsp__sass_"
    r"|l1tex__data_pipe_lsu_wavefronts_mem_shared\w*\.sum"
)
#: Parameters of quantities that name hardware counters.
COUNTERS = ("metric", "beside", "share_of", "plus")


@dataclass(frozen=True)
class Claim:
    """What a source claims, and the rule that judges it: a `[[claim]]` of claims.toml."""

    id: str
    room: str
    source: str  #: the system's name
    where: str  #: section, figure or table of the source
    says: str  #: in our words
    experiment: tuple[str, ...]
    rule: measures.Rule
    published: str  #: the source's value, for people
    typed: Mapping[str, float]  #: experiment -> minutes, for where no record tells them
    note: str = ""
    contradicts: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()  #: that the source speaks of
    depends_on: str = METHOD
    reason: str = ""
    extension: bool = False  #: no claim of the source
    kind: str = ""  #: of its tolerances
    fact: str = ""  #: what it is one reading of, with others that have the same
    stand_in: str = ""  #: what it is judged by in place of the source's own
    set: bool = False  #: is over the source's own set of matrices
    mechanism: bool = False  #: says why, which a rebuilding decides only where it is as fast as the source's

    @property
    def ours(self) -> bool:
        """Whether a kernel that is rebuilt here decides it, no series of the source's and no code of others."""
        return not any(mark in e for mark in (evidence.OTHERS, evidence.SERIES) for e in self.experiment)

    @property
    def aside(self) -> str:
        """Why it is listed and not counted; nothing of a claim of the source that is judged by what it speaks of."""
        return "extension" if self.extension else f"stand-in: {self.stand_in}" if self.stand_in else ""

    @property
    def minutes(self) -> float:
        """Minutes to measure its experiments, on the home GPU."""
        return round(took(self, paths.RECORDED / paths.HOME), 2)


@with_config(registry.STRICT)
@dataclass(frozen=True)
class Untested:
    """A statement of a source that no experiment here tests."""

    room: str
    where: str  #: section, figure or table of the source
    says: str  #: in our words
    reason: str  #: one sentence


# ---------------------------------------------------------------- loading

#: Keys of a claim that are taken as they are.
PLAIN = ("id", "where", "says", "reason", "extension", "kind", "fact", "stand_in", "set", "mechanism")
#: A [[claim]] as a file has it.
TABLE = registry.keys(
    dict.fromkeys(("id", "where", "says"), str)
    | {"experiment": list[str], "published": str | dict[str, Any]}
    | dict.fromkeys(measures.PARTS, str | dict[str, Any]),
    {"at": dict[Literal[tuple(records.COLUMNS)], Any]}  # type: ignore[misc]
    | {"note": str | list[str], "reason": str}
    | {"contradicts": list[str], "gpu": list[str], "depends_on": Literal["gpu", "method"]}
    | dict.fromkeys(("kind", "fact", "stand_in"), str)
    | dict.fromkeys(("repeats", "extension", "set", "mechanism"), bool),
)


#: An [[anchor]] as a file has it.
ANCHOR = registry.keys(
    dict.fromkeys(("where", "of", "over"), str) | {"experiment": list[str], "at": dict[str, Any]},
    dict.fromkeys(("absolute", "ratio"), dict[str, Any]),
)


@cache
def claims() -> list[Claim]:
    """Return the claims of every system, as `read` does, read once."""
    return read(registry.FOLDER)


def read(folder: Path, scale: float = 1.0) -> list[Claim]:
    """Return the claims of every system below `folder`, in the order of the systems and of their files.

    scale: by what the tolerances of all kinds are multiplied, see `kinds.given`.

    Raises ValueError, one sentence, for a claim that is not well formed: a key that is missing or
    unknown, an unknown experiment, part of a rule or parameter, an id used twice.
    """
    found = [
        _claim(table, system, data, path, scale)
        for system, data, path in _files(folder)
        for table in data.get("claim", ())
    ]
    ids = [claim.id for claim in found]
    for claim in found:
        _refuse(
            f"{folder}: the claim {claim.id!r}",
            ["is there twice"] * (ids.count(claim.id) > 1),
            [f"contradicts {other!r}, which is no claim" for other in claim.contradicts if other not in ids],
        )
    return found


def _files(folder: Path = registry.FOLDER) -> Iterator[tuple[registry.System, dict[str, Any], Path]]:
    """Yield every system that has claims, what its claims.toml says, and where that lies."""
    for system in registry.find(folder).values():
        if (path := folder / system.room / registry.CLAIMS).is_file():
            yield system, registry.toml(path), path


def _refuse(name: str, *wrong: Iterable[str]) -> None:
    """Raise ValueError that says the first of what is wrong, if anything is."""
    for said in (said for each in wrong for said in each):
        raise ValueError(f"{name} {said}.")


def took(claim: Claim, folder: Path) -> float:
    """Return minutes that the experiments of a claim took, by the records of one GPU in `folder`.

    Those of claims.toml for an experiment whose record is not there or does not tell, as of counters and of a single
    point.
    """
    others = (records.COUNTERS, evidence.OTHERS, evidence.SERIES)
    measured = [e for e in claim.experiment if not any(mark in e for mark in others)]
    told = {e: durations.of_record(evidence.place(e, folder, claim.room)) for e in measured}
    return sum(claim.typed[e] if (minutes := told.get(e)) is None else minutes for e in claim.experiment)


@cache
def anchors(system: str) -> list[Anchor]:
    """Return the points at which what is rebuilt of a system is held against its source's kernel."""
    found, path = [], registry.FOLDER / system / registry.CLAIMS
    for table in registry.toml(path).get("anchor", ()):
        name, folder = f"{path}: the anchor {table.get('where', '?')!r}", path.parent / registry.PUBLISHED
        given = registry.checked(ANCHOR, table, name)
        stated = {key: quoted(given.pop(key), folder, name) for key in ("absolute", "ratio") if key in given}
        ends: dict[str, Any] = {key: (min(of.values()), max(of.values())) for key, (of, _) in stated.items()}
        unit = stated["absolute"][1].rpartition(" ")[2] if "absolute" in stated else ""
        found.append(Anchor(**given, **ends, unit=unit))
    return found


def figures_of() -> dict[str, dict[str, str]]:
    """Return system -> experiment -> the figure of the source that it regenerates."""
    return {system.room: data.get("source", {}).get("figures", {}) for system, data, _ in _files()}


def untested() -> list[Untested]:
    """Return what the sources say and no experiment tests, in the order of the systems and of their files."""
    return [
        registry.checked(Untested, {"room": system.room} | table, path)
        for system, data, path in _files()
        for table in data.get("untested", ())
    ]


def _claim(
    table: Mapping[str, Any], system: registry.System, data: Mapping[str, Any], path: Path, scale: float
) -> Claim:
    """Return a claim of a system's file, which holds `data`."""
    name, typed = f"{path}: the claim {table.get('id', '?')!r}", data.get("minutes", {})
    table, experiments = registry.checked(TABLE, table, name), tuple(table.get("experiment", ()))
    _refuse(name, [f"asks for the experiment {e!r}; known: {', '.join(typed)}" for e in experiments if e not in typed])
    said, of_source = table["published"], isinstance(table["published"], Mapping)
    numbers, said = quoted(said, path.parent / registry.PUBLISHED, name) if of_source else ({}, said)
    rule = _rule(table, experiments, numbers, system.room, name, scale)
    series = [e.partition(evidence.SERIES)[2] for e in experiments if evidence.SERIES in e]
    programs = [bool(OF_PROGRAMS.match(metric)) for metric in _counters(rule.quantity)] or [
        rule.quantity.func.__name__ in measures.OF_PROGRAMS
    ]
    parts, notes = evidence.contenders(table.get("note", "")), data.get("notes", {})
    unknown, known = [p for p in parts if p and " " not in p and p not in notes], ", ".join(notes) or "none"
    _refuse(name, [f"has the note {part!r}, which is not among [notes]: {known}" for part in unknown])
    return Claim(
        room=system.room,
        source=system.name,
        experiment=experiments,
        rule=rule,
        published=said,
        typed={experiment: float(typed[experiment]) for experiment in experiments},
        note=" ".join(notes.get(part, part) for part in parts),
        contradicts=tuple(table.get("contradicts", ())),
        gpu=tuple(table.get("gpu", series or system.gpus)),
        depends_on=table.get("depends_on", METHOD if all(programs) else GPU),
        **{"fact": table["id"]} | {key: table[key] for key in PLAIN if key in table},
    )


def _rule(
    table: Mapping[str, Any], experiments: tuple, numbers: Mapping, system: str, name: str, scale: float
) -> measures.Rule:
    at, repeats, words = table.get("at", {}), table.get("repeats", False), {k: table[k] for k in measures.PARTS}
    words = {k: dict(v) if isinstance(v, Mapping) else {v: None} for k, v in words.items()}
    also = words["quantity"].pop("also_over", "")
    given = _tolerances(table.get("kind", ""), words["expect"], numbers, name, scale)
    written = {key: table[key] for key in ("kind", "at", "repeats", *measures.PARTS) if key in table}
    written |= {"expect": words["expect"] | given} if given else {}
    words["expect"] = {k: _said(v, numbers, name) for k, v in (words["expect"] | given).items()}
    ends = [v for said in words["expect"].values() for v in (said if isinstance(said, list) else [said])]
    told = "a range has two ends, and a limit is 'at_least' or 'at_most'"
    alone = repeats and len(evidence.sweeps(experiments)) < 2
    _refuse(
        name,
        ["has 'repeats' and no two experiments that repeat each other"] * alone,
        [f"has the number {v} in its 'expect'; {told}" for v in ends if isinstance(v, float) and not math.isfinite(v)],
    )
    parts = {key: measures.part(key, word, system, name) for key, word in words.items()}
    over = parts["quantity"].keywords.get("over")
    lone = also and not (over and isinstance(over, str))
    _refuse(name, ["has 'also_over' and no baseline 'over' beside which it stands"] * bool(lone))
    return measures.Rule(**parts, written=written, also_over=also, at=at, repeats=repeats)


def _tolerances(kind: str, said: Mapping, numbers: Mapping, name: str, scale: float) -> dict[str, Any]:
    """Return the parameters of an expectation that a claim has of its kind; none without a kind."""
    if not kind:
        return {}
    _refuse(name, [f"is of the kind {kind!r}; known: {', '.join(kinds.known())}"] * (kind not in kinds.known()))
    given = kinds.given(kinds.known()[kind], {k: _said(v, numbers, name) for k, v in said.items()}, scale)
    _refuse(name, [f"gives {key!r}, which its kind {kind!r} gives" for key in given if key in said])
    return given


def _said(value: Any, numbers: Mapping[str, float], name: str) -> Any:
    """Return a value of an expectation, "published" replaced by the numbers of the source."""
    ends = [SAID, SAID] if value == SAID else value
    if not isinstance(ends, list) or SAID not in ends:
        return value
    named = list(zip(("low", "high"), ends, strict=True))
    _refuse(
        name,
        [
            f"expects a published number, and its 'published' has no {end!r}"
            for end, said in named
            if said == SAID and end not in numbers
        ],
    )
    return [numbers[end] if said == SAID else said for end, said in named]


def quoted(reference: Mapping[str, Any], folder: Path, name: str) -> tuple[dict[str, float], str]:
    """Return low and high of {figure, quantity} from the published numbers, and the same as text.

    Other keys are columns of that file, with a value or a list of values; rows that they leave must
    agree.
    """
    at, file = {key: value for key, value in reference.items() if key != "figure"}, f"{reference.get('figure')}.csv"
    df, asked = records.published(folder / file), ", ".join(f"{key} = {value}" for key, value in at.items())
    _refuse(name, [f"asks {file} for a column {key!r}, which it has not" for key in at if key not in df])
    for key, value in at.items():
        df = df[df[key].isin(value if isinstance(value, list) else [value])]
    said = df[["low", "high", "unit"]].drop_duplicates()
    _refuse(name, [f"asks {file} for {asked}, which has no single number there"] * (len(said) != 1))
    low, high, unit = said.iloc[0]
    unit = "" if pd.isna(unit) else "×" if unit == "×" else f" {unit}"
    numbers = {key: float(value) for key, value in (("low", low), ("high", high)) if not pd.isna(value)}
    if len(numbers) == 2:
        return numbers, evidence.stated(low, high) + unit
    return numbers, f"under {high:g}{unit}" if "high" in numbers else f"over {low:g}{unit}"


def _counters(quantity: partial) -> list[str]:
    return [metric for key in COUNTERS for metric in evidence.contenders(quantity.keywords.get(key, ()))]


def counters_wanted(claims: Iterable[Claim]) -> list[str]:
    """Return every hardware counter that a claim can use, for the profiler."""
    return sorted({metric for claim in claims for metric in _counters(claim.rule.quantity)})
