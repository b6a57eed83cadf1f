"""A rule: a quantity, a reducer and an expectation, and what the three say of the records.

The functions that a claim may name are those of `quantities`, `reducers` and `expectations`, and what the room
adds to them in its own `artifact/rooms/<room>/measures.py`, found by looking.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType

from artifact import registry
from artifact.verdicts import expectations, quantities, reducers
from artifact.verdicts.evidence import Evidence, NotMeasured
from artifact.verdicts.expectations import (
    NOT_CARRIED,
    NOT_MEASURED,
    NOT_REPRODUCED,
    PARTLY,
    REPRODUCED,
    VERDICTS,
)

__all__ = ["NOT_CARRIED", "NOT_MEASURED", "NOT_REPRODUCED", "PARTLY", "REPRODUCED", "VERDICTS"]

PARTS = ("quantity", "reduce", "expect")  #: keys of a claim
_TABLES = ("QUANTITIES", "REDUCERS", "EXPECTATIONS")
#: How many parameters of each are no words of the claim: evidence and experiments, then what came of the one before.
_GIVEN = (2, 1, 1)
MODULE = "measures"  # of a room
#: Quantities that follow from programs and formats, whatever GPU runs them: those of `quantities`, and of rooms.
OF_PROGRAMS = {
    "column",
    "true_density",
    "prepared_bytes",
    "added_memory",
    "stored_over_blocks",
    "counter_less",
    "machine_code",
}


#: What is said of an extension, an open question of a source or a kernel of ours: nothing was claimed, so that nothing
#: is reproduced. The sign and the colour are those of the verdict.
ANSWERS = {
    REPRODUCED: "holds here",
    PARTLY: "holds here in part",
    NOT_REPRODUCED: "does not hold here",
    NOT_CARRIED: "does not hold here",
}


def said(verdict: str, extension: bool = False) -> str:
    """A verdict in words: as it is of a claim, as an answer of an extension."""
    return ANSWERS.get(verdict, verdict) if extension else verdict


@dataclass(frozen=True)
class Part:
    """One of the three, with the parameters that the claim gives it."""

    name: str
    function: Callable
    parameters: Mapping[str, object]

    def __call__(self, *given):
        return self.function(*given, **self.parameters)


@dataclass(frozen=True)
class Rule:
    quantity: Part
    reduce: Part
    expect: Part
    written: Mapping[str, object]  # as the claim has it, key by key
    also_over: str = ""  # a second baseline, whose verdict is given beside the first
    at: Mapping[str, object] = field(default_factory=dict)  # column: value, or list of values
    repeats: bool = False  # the experiments are runs of one measurement


@dataclass(frozen=True)
class Outcome:
    verdict: str
    measured: str  # value with its unit
    why: str
    close: str = ""  # a sentence where the verdict lies close to a threshold
    values: quantities.Values | None = None  # what it was judged by
    #: What it rests on: experiments, "counters", "ceilings"; nothing where it follows from programs alone.
    rests: tuple[str, ...] = ()


def outcome(rule: Rule, e: Evidence, experiments: Iterable[str]) -> Outcome:
    """What the rule makes of the records. Raises NotMeasured where they do not decide."""
    values = rule.quantity(e, experiments)
    found = replace(_judged(rule, values), values=values)
    if values.upper is None:
        return found
    above = _judged(rule, values.upper)
    if found.verdict != above.verdict:
        raise NotMeasured(f"{values.how} These leave it between {found.measured} and {above.measured}.")
    return replace(found, measured=f"between {found.measured} and {above.measured}")


def _judged(rule: Rule, values: quantities.Values) -> Outcome:
    reduced = rule.reduce(values)
    judged = rule.expect(reduced)
    why = " ".join(filter(None, (judged.asked, reduced.why, values.how)))
    return Outcome(judged.verdict, judged.measured or reduced.measured, why, judged.close)


# ---------------------------------------------------------------- from the words of a claim


def table(part: str, room: str, folder: Path = registry.FOLDER) -> dict[str, Callable]:
    """Every function that a claim of the room may name as this part, by name."""
    shared = dict(zip(PARTS, (quantities, reducers, expectations), strict=True))[part]
    known = [shared, *filter(None, [_own(room, Path(folder))])]
    listed = _TABLES[PARTS.index(part)]
    return {f.__name__: f for module in known for f in getattr(module, listed, ())}


def part(key: str, words: object, room: str, folder: Path, name: str) -> Part:
    """A part of a rule from what a claim says under `key`: a name, or a table whose first key is the name
    and whose other keys are parameters. Raises ValueError, one sentence that begins with `name`."""
    words = {words: None} if isinstance(words, str) else words
    if not isinstance(words, Mapping) or not words:
        raise ValueError(f"{name} has {key!r} that is neither a name nor a table.")
    said = next(iter(words)).replace(" ", "_")
    known = table(key, room, folder)
    if said not in known:
        raise ValueError(f"{name} names {said!r} as its {key!r}; known: {', '.join(known)}.")
    skip = _GIVEN[PARTS.index(key)]
    takes = dict(list(inspect.signature(known[said]).parameters.items())[skip:])
    first, *rest = [value for value in words.values()]
    given = dict(zip(list(words)[1:], rest, strict=True))
    if first is not None:
        if not takes:
            raise ValueError(f"{name} gives a value to {said!r}, which takes none.")
        given = {next(iter(takes)): first} | given
    for parameter in given:
        if parameter not in takes:
            raise ValueError(f"{name} gives {parameter!r} to {said!r}; it takes {', '.join(takes) or 'nothing'}.")
    for parameter, described in takes.items():
        if described.default is described.empty and parameter not in given:
            raise ValueError(f"{name} does not give {parameter!r}, which {said!r} needs.")
    return Part(said, known[said], given)


def _own(room: str, folder: Path) -> ModuleType | None:
    path = folder / room / f"{MODULE}.py"
    return _load(path) if path.is_file() else None


@cache
def _load(path: Path) -> ModuleType:
    if path.parent.parent == registry.FOLDER:
        return registry.module(path.parent.name, MODULE)
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{MODULE}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
