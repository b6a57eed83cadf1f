"""Claims: what they are, and reading them from a room's claims.toml."""

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from artifact import rooms
from artifact.measure import records
from artifact.verdicts import evidence, measures
from artifact.verdicts.measures import MEASURES

COMMON = ("where", "repeats")  # what every rule may hold besides the parameters of its measure


@dataclass(frozen=True)
class Claim:
    id: str
    room: str
    source: str  # the system's name
    where: str  # section, figure or table of the source
    says: str  # in our words
    experiment: tuple[str, ...]
    measure: str
    rule: Mapping[str, object]  # parameters of the measure
    published: str  # the source's value, for people
    minutes: float  # to measure its experiments on one H200
    note: str = ""
    contradicts: tuple[str, ...] = ()


# ---------------------------------------------------------------- loading

REQUIRED = ("id", "where", "says", "experiment", "measure", "rule", "published")
OPTIONAL = ("note", "contradicts")


def claims(folder: str | Path = rooms.FOLDER) -> list[Claim]:
    """The claims of every room below `folder`, in the order of the rooms and of their files.

    Raises ValueError, one sentence, for a claim that is not well formed: a key that is missing or
    unknown, an unknown experiment, measure or parameter, an id used twice.
    """
    claims: list[Claim] = []
    for room in rooms.find(Path(folder)).values():
        path = Path(folder) / room.room / rooms.CLAIMS
        if path.is_file():
            data = rooms.toml(path)
            claims += [
                _claim(c, room, data.get("minutes", {}), path) for c in data.get("claim", [])
            ]
    ids = [claim.id for claim in claims]
    for claim in claims:
        if ids.count(claim.id) > 1:
            raise ValueError(f"{folder}: the claim {claim.id!r} is there twice.")
        for other in claim.contradicts:
            if other not in ids:
                raise ValueError(
                    f"{folder}: the claim {claim.id!r} contradicts {other!r}, which is no claim."
                )
    return claims


def figures_of(folder: str | Path = rooms.FOLDER) -> dict[str, dict[str, str]]:
    """Room -> experiment -> the figure of the source that it regenerates. Errors as `claims`."""
    files = {room: Path(folder) / room / rooms.CLAIMS for room in rooms.find(Path(folder))}
    return {
        r: rooms.toml(p).get("source", {}).get("figures", {})
        for r, p in files.items()
        if p.is_file()
    }


def _claim(table: Mapping, room: rooms.Room, minutes: Mapping, path: Path) -> Claim:
    name = f"{path}: the claim {table.get('id', '?')!r}"
    for key in REQUIRED:
        if key not in table:
            raise ValueError(f"{name} has no {key!r}.")
    for key in table:
        if key not in REQUIRED + OPTIONAL:
            raise ValueError(f"{name} has a key {key!r} that no claim has.")
    experiments = tuple(table["experiment"])
    for experiment in experiments:
        if experiment not in minutes:
            raise ValueError(
                f"{name} asks for the experiment {experiment!r}; known: {', '.join(minutes)}."
            )
    if table["measure"] not in MEASURES:
        raise ValueError(
            f"{name} asks for the measure {table['measure']!r}; known: {', '.join(MEASURES)}."
        )
    parameters = dict(list(inspect.signature(MEASURES[table["measure"]]).parameters.items())[2:])
    rule, text = dict(table["rule"]), table["published"]
    if isinstance(text, Mapping):
        numbers, text = _published(text, path.parent / rooms.PUBLISHED, name)
        rule = {key: value for key, value in numbers.items() if key in parameters} | rule
    where = rule.get("where", {})
    if not isinstance(where, Mapping) or not set(where) <= set(records.COLUMNS):
        raise ValueError(f"{name} has a 'where' that is not a table of columns of the records.")
    if rule.get("repeats") and len(evidence.sweeps(experiments)) < 2:
        raise ValueError(f"{name} has 'repeats' and no two experiments that repeat each other.")
    for key in rule:
        if key not in (*parameters, *COMMON):
            raise ValueError(
                f"{name} gives {key!r} to {table['measure']}; it takes {', '.join(parameters)}."
            )
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in rule:
            raise ValueError(f"{name} does not give {key!r}, which {table['measure']} needs.")
    return Claim(
        id=table["id"],
        room=room.room,
        source=room.name,
        where=table["where"],
        says=table["says"],
        experiment=experiments,
        measure=table["measure"],
        rule=rule,
        published=text,
        minutes=float(sum(minutes[experiment] for experiment in experiments)),
        note=table.get("note", ""),
        contradicts=tuple(table.get("contradicts", ())),
    )


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
        rest = "".join(
            f" at {k} = {v}" for k, v in reference.items() if k not in ("figure", "quantity")
        )
        raise ValueError(
            f"{name}: {figure}.csv has no single quantity {reference['quantity']!r}{rest}."
        )
    low, high, unit = said.iloc[0]
    unit = "" if pd.isna(unit) else "×" if unit == "×" else f" {unit}"
    numbers = {
        key: float(value) for key, value in (("low", low), ("high", high)) if not pd.isna(value)
    }
    if len(numbers) == 2:
        return numbers, measures.stated(low, high) + unit
    if not numbers:
        raise ValueError(f"{name}: {figure}.csv gives {reference['quantity']!r} no number.")
    return numbers, f"under {high:g}{unit}" if "high" in numbers else f"over {low:g}{unit}"


def counters_wanted(claims: Iterable[Claim]) -> list[str]:
    """Every hardware counter that a claim can use, for the profiler."""
    claims = list(claims)
    wanted = (claim.rule.get(key, ()) for claim in claims for key in ("metric", "memory", "plus"))
    whole = {claim.rule["of"] for claim in claims if "of" in claim.rule}
    return sorted(whole | {metric for metrics in wanted for metric in metrics})
