"""Claims: what they are, and reading them from a room's claims.toml.

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
    expect = { at_most = 0.95, partly = 1.0 }               # … and held against what the source says
    published = "slower"                    # the source's value: a text, or {figure, quantity, …} of published/

- `quantity` names a function of `quantities.py`, `reduce` one of `reducers.py`, `expect` one of
  `expectations.py`, or of the room's own `measures.py`; each function's docstring is its definition, and the
  ledger prints all that are used. The value of the first key is the function's first parameter, the other keys
  are the others. `reduce = { quantile = 0.1 }` is a name with a parameter.
- A claim's verdict is "reproduced", "partly" or "not reproduced": every expectation has a limit for the first
  and a weaker one, `partly`. Where a source gives a word and no number, the number is ours and the file says
  so. A claim whose records are missing is "not measured on this GPU", with the reason.
- A list of contenders, `speedup = ["a", "b"]`, holds each to the expectation, by name; a string is one
  contender.
- `"published"` among the numbers of `expect` stands for those of `published`: `near = "published"` for [low,
  high], `near = [0, "published"]` for its upper end alone. No number may be infinite: a range has two ends, and both
  are judged; what is a limit in one direction is `at_least` or `at_most`.
- `extension = true`: the source asks it as an open question, or what is judged is ours. The ledger lists it and
  does not count it among the claims.
- `gpu = ["A100"]`: the GPUs that the source speaks of; by default those of the room's room.toml, or the one whose
  published series decides.
- `depends_on`: "gpu" for what the source measured on its GPU, "method" for what it says in general, for what follows
  from the programs or from arithmetic, and for what fails for a reason that is known to be another than the GPU. By
  default "gpu" if `published` refers to numbers of the source and the quantity depends on hardware. A claim of the
  first kind that fails on another GPU "does not carry over to this GPU"; of the second kind it is "not reproduced".
- `reason`: why it is not reproduced, one sentence for people; `reasons.py` fills its {placeholders} from the records,
  so that no number that was measured is typed. Shown with every verdict of the records but "reproduced".
- `note`: what a reader of the verdict should know, shown with it. What several claims note stands once, by a name, in
  the file's `[notes]`; a note is then that name, or a list of names and sentences.
- `also_over = "cusparse_default"` in a quantity gives the verdict against a second baseline beside the first,
  where a source does not say which algorithm of its library it ran.
- An experiment "others/anchors" is what the code of others gave on this GPU, `others/<gpu>/anchors.csv` of the room:
  the verdict is on the source's own program, where ours is no faithful rebuilding. On other GPUs it is not measured.
- With `repeats` times and rates count by the geometric mean over the runs that have a point, and each run's own
  verdict is given beside.
- `[minutes]` names every experiment that a claim may ask for, with the minutes it takes. They are printed only where
  the records of the home GPU do not tell (`took`): counters, a single point, a room that was not measured there yet.
- What a source says and no experiment can test stands in the same file as `[[untested]]`, with `where`, `says` and the
  `reason`; `coverage.py` shows it beside the claims, section by section.
- An experiment "fig9@A100" is none of ours: it is the series for the A100 that the source published,
  `published/fig9.csv`. A claim about it says whether a source's text is borne out by its own data, whatever GPU
  the records are of.
"""

import functools
import hashlib
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from artifact import paths, registry
from artifact.measure import minutes, records
from artifact.verdicts import evidence, measures, quantities

SAID = "published"  # in the numbers of an expectation: those of the source
GPU, METHOD = "gpu", "method"  # what a claim may depend on
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
    id: str
    room: str
    source: str  # the system's name
    where: str  # section, figure or table of the source
    says: str  # in our words
    experiment: tuple[str, ...]
    rule: measures.Rule
    published: str  # the source's value, for people
    typed: Mapping[str, float]  # experiment -> minutes, for where no record tells them
    note: str = ""
    contradicts: tuple[str, ...] = ()
    gpu: tuple[str, ...] = ()  # that the source speaks of
    depends_on: str = METHOD
    reason: str = ""
    extension: bool = False  # no claim of the source

    @property
    def minutes(self) -> float:
        """To measure its experiments, on the home GPU."""
        return round(took(self, paths.RECORDED / paths.HOME), 2)


@dataclass(frozen=True)
class Untested:
    """A statement of a source that no experiment here tests."""

    room: str
    where: str  # section, figure or table of the source
    says: str  # in our words
    reason: str  # one sentence


# ---------------------------------------------------------------- loading

REQUIRED = ("id", "where", "says", "experiment", *measures.PARTS, "published")
OPTIONAL = (
    "at",
    "repeats",
    "note",
    "contradicts",
    "gpu",
    "depends_on",
    "reason",
    "extension",
)


def claims(folder: str | Path = registry.FOLDER) -> list[Claim]:
    """The claims of every room below `folder`, in the order of the rooms and of their files.

    Raises ValueError, one sentence, for a claim that is not well formed: a key that is missing or
    unknown, an unknown experiment, part of a rule or parameter, an id used twice.
    """
    return list(_claims(Path(folder), _written(Path(folder))))


def _written(folder: Path) -> str:
    """A digest of the files that claims are made of."""
    files = (path for path in sorted(folder.glob("*/**/*")) if path.suffix in (".toml", ".csv", ".py"))
    texts = ((os.fsencode(path), path.read_bytes()) for path in files)
    return hashlib.sha256(b"\0".join(part for pair in texts for part in pair)).hexdigest()


@functools.lru_cache(maxsize=4)
def _claims(folder: Path, written: str) -> list[Claim]:
    """The claims below `folder`, whose files have the digest `written`."""
    claims: list[Claim] = []
    for room in registry.find(folder).values():
        path = folder / room.room / registry.CLAIMS
        if path.is_file():
            data = registry.toml(path)
            claims += [
                _claim(c, room, data.get("minutes", {}), data.get("notes", {}), path) for c in data.get("claim", [])
            ]
    ids = [claim.id for claim in claims]
    for claim in claims:
        if ids.count(claim.id) > 1:
            raise ValueError(f"{folder}: the claim {claim.id!r} is there twice.")
        for other in claim.contradicts:
            if other not in ids:
                raise ValueError(f"{folder}: the claim {claim.id!r} contradicts {other!r}, which is no claim.")
    return claims


def took(claim: Claim, folder: Path) -> float:
    """Minutes that the experiments of a claim took, by the records of one GPU in `folder`; those of claims.toml for an
    experiment whose record is not there or does not tell, as of counters and of a single point."""
    found = {e: _recorded(e, folder, claim.room) for e in claim.experiment}
    return sum(claim.typed[e] if told is None else told for e, told in found.items())


def _recorded(experiment: str, folder: Path, room: str) -> float | None:
    """Minutes of an experiment's record; None where it has none: counters, a published series, others' code."""
    if experiment == records.COUNTERS or experiment.startswith(evidence.OTHERS):
        return None
    if evidence.SERIES in experiment:
        return None
    return minutes.of_record(evidence.place(experiment, folder, room))


def figures_of(folder: str | Path = registry.FOLDER) -> dict[str, dict[str, str]]:
    """Room -> experiment -> the figure of the source that it regenerates. Errors as `claims`."""
    files = {room: Path(folder) / room / registry.CLAIMS for room in registry.find(Path(folder))}
    return {r: registry.toml(p).get("source", {}).get("figures", {}) for r, p in files.items() if p.is_file()}


def untested(folder: str | Path = registry.FOLDER) -> list[Untested]:
    """What the sources say and no experiment tests, in the order of the rooms and of their files. Raises ValueError,
    one sentence, for an entry that lacks a key or has another one."""
    found = []
    for room in registry.find(Path(folder)):
        path = Path(folder) / room / registry.CLAIMS
        for table in registry.toml(path).get("untested", []) if path.is_file() else ():
            if set(table) != {"where", "says", "reason"}:
                raise ValueError(
                    f"{path}: what is untested, {table.get('says', '?')!r}, has the keys {', '.join(table)}; it needs "
                    "where, says and reason."
                )
            found.append(Untested(room, **table))
    return found


def _claim(table: Mapping, room: registry.Room, typed: Mapping, notes: Mapping, path: Path) -> Claim:
    name = f"{path}: the claim {table.get('id', '?')!r}"
    for key in REQUIRED:
        if key not in table:
            raise ValueError(f"{name} has no {key!r}.")
    for key in table:
        if key not in REQUIRED + OPTIONAL:
            raise ValueError(f"{name} has a key {key!r} that no claim has.")
    experiments = tuple(table["experiment"])
    for experiment in experiments:
        if experiment not in typed:
            raise ValueError(f"{name} asks for the experiment {experiment!r}; known: {', '.join(typed)}.")
    numbers, text = {}, table["published"]
    if isinstance(text, Mapping):
        numbers, text = _published(text, path.parent / registry.PUBLISHED, name)
    endless = [str(v) for v in _numbers([table["expect"], *numbers.values()]) if not math.isfinite(v)]
    if endless:
        raise ValueError(
            f"{name} has the number {endless[0]} in its 'expect'; a range has two ends, and a limit is "
            "'at_least' or 'at_most'."
        )
    rule = _rule(table, experiments, numbers, room.room, path.parent.parent, name)
    series = [e.partition(evidence.SERIES)[2] for e in experiments if evidence.SERIES in e]
    measured = isinstance(table["published"], Mapping) and not _of_the_program(rule.quantity)
    depends_on = table.get("depends_on", GPU if measured else METHOD)
    if not isinstance(table.get("gpu", []), list):
        raise ValueError(f"{name} has a 'gpu' that is no list of names.")
    if not isinstance(table.get("extension", False), bool):
        raise ValueError(f"{name} has an 'extension' that is neither true nor false.")
    if depends_on not in (GPU, METHOD):
        raise ValueError(f"{name} depends on {depends_on!r}; it must be {GPU!r} or {METHOD!r}.")
    return Claim(
        id=table["id"],
        room=room.room,
        source=room.name,
        where=table["where"],
        says=table["says"],
        experiment=experiments,
        rule=rule,
        published=text,
        typed={experiment: float(typed[experiment]) for experiment in experiments},
        note=_note(table.get("note", ""), notes, name),
        contradicts=tuple(table.get("contradicts", ())),
        gpu=tuple(table.get("gpu", series or room.gpus)),
        depends_on=depends_on,
        reason=table.get("reason", ""),
        extension=table.get("extension", False),
    )


def _note(said: str | list[str], notes: Mapping[str, str], name: str) -> str:
    """A note as its file has it: a text, or a list of texts and of names in `notes`, which hold what several claims
    say. Raises ValueError, one sentence, for one word that is no name there."""
    parts = [said] if isinstance(said, str) else said
    for part in parts:
        if part and " " not in part and part not in notes:
            known = ", ".join(notes) or "none"
            raise ValueError(f"{name} has the note {part!r}, which is not among [notes]: {known}.")
    return " ".join(notes.get(part, part) for part in parts)


def _numbers(value: object) -> Iterable[float]:
    """Every number in a value of a claims.toml."""
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    for part in inner:
        yield from _numbers(part)
    if isinstance(value, int | float):
        yield value


def _of_the_program(quantity: measures.Part) -> bool:
    """Whether a quantity follows from the program alone, not from the GPU that runs it."""
    if quantity.function.__name__ in measures.OF_PROGRAMS:
        return True
    metrics = [m for key in COUNTERS for m in quantities.contenders(quantity.parameters.get(key, ()))]
    return bool(metrics) and all(OF_PROGRAMS.match(metric) for metric in metrics)


def _rule(table: Mapping, experiments: tuple, numbers: Mapping, room: str, folder: Path, name: str) -> measures.Rule:
    at, repeats = table.get("at", {}), table.get("repeats", False)
    if not isinstance(at, Mapping) or not set(at) <= set(records.COLUMNS):
        raise ValueError(f"{name} has an 'at' that is not a table of columns of the records.")
    if repeats and len(evidence.sweeps(experiments)) < 2:
        raise ValueError(f"{name} has 'repeats' and no two experiments that repeat each other.")
    words = {key: table[key] for key in measures.PARTS}
    also = ""
    if isinstance(words["quantity"], Mapping):
        words["quantity"] = dict(words["quantity"])
        also = words["quantity"].pop("also_over", "")
    if isinstance(words["expect"], Mapping):
        words["expect"] = {k: _said(v, numbers, name) for k, v in words["expect"].items()}
    parts = {key: measures.part(key, words[key], room, folder, name) for key in measures.PARTS}
    if also and not isinstance(parts["quantity"].parameters.get("over"), str):
        raise ValueError(f"{name} has 'also_over' and no baseline 'over' beside which it stands.")
    written = {key: table[key] for key in ("at", "repeats", *measures.PARTS) if key in table}
    return measures.Rule(**parts, written=written, also_over=also, at=at, repeats=repeats)


def _said(value: object, numbers: Mapping[str, float], name: str) -> object:
    """A value of an expectation, "published" replaced by the numbers of the source."""
    ends = value if isinstance(value, list) else [value, value] if value == SAID else None
    if ends is None or SAID not in ends:
        return value
    missing = [end for end, said in zip(("low", "high"), ends, strict=True) if said == SAID and end not in numbers]
    if missing:
        raise ValueError(f"{name} expects a published number, and its 'published' has no {missing[0]!r}.")
    return [numbers[end] if said == SAID else said for end, said in zip(("low", "high"), ends, strict=True)]


def _published(reference: Mapping, folder: Path, name: str) -> tuple[dict[str, float], str]:
    """low and high of {figure, quantity} from the published numbers, and the same as text.

    Other keys are columns of that file, with a value or a list of values; rows that they leave must
    agree.
    """
    if not {"figure", "quantity"} <= set(reference):
        raise ValueError(f"{name} needs a figure and a quantity in 'published', or a text.")
    figure = reference["figure"]
    df = records.published(folder / f"{figure}.csv")
    for key, value in reference.items():
        if key == "figure":
            continue
        if key not in df.columns:
            raise ValueError(f"{name}: {figure}.csv has no column {key!r}.")
        df = df[df[key].isin(value if isinstance(value, list) else [value])]
    said = df[["low", "high", "unit"]].drop_duplicates()
    if len(said) != 1:
        rest = "".join(f" at {k} = {v}" for k, v in reference.items() if k not in ("figure", "quantity"))
        raise ValueError(f"{name}: {figure}.csv has no single quantity {reference['quantity']!r}{rest}.")
    low, high, unit = said.iloc[0]
    unit = "" if pd.isna(unit) else "×" if unit == "×" else f" {unit}"
    numbers = {key: float(value) for key, value in (("low", low), ("high", high)) if not pd.isna(value)}
    if len(numbers) == 2:
        return numbers, quantities.stated(low, high) + unit
    if not numbers:
        raise ValueError(f"{name}: {figure}.csv gives {reference['quantity']!r} no number.")
    return numbers, f"under {high:g}{unit}" if "high" in numbers else f"over {low:g}{unit}"


def of_sources(claims: Iterable[Claim]) -> list[Claim]:
    """Without extensions, which are no claims of a source."""
    return [claim for claim in claims if not claim.extension]


def counters_wanted(claims: Iterable[Claim]) -> list[str]:
    """Every hardware counter that a claim can use, for the profiler."""
    given = (claim.rule.quantity.parameters for claim in claims)
    wanted = (quantities.contenders(table[key]) for table in given for key in COUNTERS if key in table)
    return sorted({metric for metrics in wanted for metric in metrics})


def contenders(claim: Claim) -> list[str]:
    """The contenders that a claim's quantity is of, without what they are compared with."""
    return quantities.contenders(claim.rule.quantity.parameters.get("of", ()))
