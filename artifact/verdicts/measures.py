"""A rule: a quantity, a reducer and an expectation, and what the three say of the records.

The functions that a claim may name are those of `quantities`, `reducers` and `expectations`, and what the room
adds to them in its own `artifact/rooms/<room>/measures.py`, found by looking.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

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
#: Where the functions of each part are listed, the module that all rooms share, and how many of their parameters are no
#: words of the claim: evidence and experiments, then what came of the one before.
_PARTS = {
    "quantity": ("QUANTITIES", quantities, 2),
    "reduce": ("REDUCERS", reducers, 1),
    "expect": ("EXPECTATIONS", expectations, 1),
}
MODULE = "measures"  #: of a room
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
    """Return a verdict in words: as it is of a claim, as an answer of an extension."""
    return ANSWERS.get(verdict, verdict) if extension else verdict


@dataclass(frozen=True)
class Part:
    """One of the three, with the parameters that the claim gives it."""

    name: str
    function: Callable[..., Any]
    parameters: Mapping[str, Any]

    def __call__(self, *given: Any) -> Any:
        return self.function(*given, **self.parameters)


@dataclass(frozen=True)
class Rule:
    quantity: Part
    reduce: Part
    expect: Part
    written: Mapping[str, object]  #: as the claim has it, key by key
    also_over: str = ""  #: a second baseline, whose verdict is given beside the first
    at: Mapping[str, object] = field(default_factory=dict)  #: column: value, or list of values
    repeats: bool = False  #: the experiments are runs of one measurement


@dataclass(frozen=True)
class Outcome:
    verdict: str
    measured: str  #: value with its unit
    why: str
    close: str = ""  #: a sentence where the verdict lies close to a threshold
    values: quantities.Values | None = None  #: what it was judged by
    #: What it rests on: experiments, "counters", "ceilings"; nothing where it follows from programs alone.
    rests: tuple[str, ...] = ()


def outcome(rule: Rule, e: Evidence, experiments: Iterable[str]) -> Outcome:
    """Return what the rule makes of the records. Raises NotMeasured where they do not decide."""
    return judged(rule, rule.quantity(e, experiments))


def judged(rule: Rule, values: quantities.Values) -> Outcome:
    """Return what the rule makes of values. Raises NotMeasured where they do not decide."""
    reduced = rule.reduce(values)
    found = rule.expect(reduced)
    why = " ".join(filter(None, (found.asked, reduced.why, values.how)))
    below = Outcome(found.verdict, found.measured or reduced.measured, why, found.close, values)
    if values.upper is None:
        return below
    above = judged(rule, values.upper)
    if below.verdict != above.verdict:
        raise NotMeasured(f"{values.how} These leave it between {below.measured} and {above.measured}.")
    return replace(below, measured=f"between {below.measured} and {above.measured}")


# ---------------------------------------------------------------- from the words of a claim


def table(part: str, room: str) -> dict[str, Callable[..., Any]]:
    """Return every function that a claim of the room may name as this part, by name."""
    listed, shared, _ = _PARTS[part]
    own = [registry.module(room, MODULE)] if (registry.FOLDER / room / f"{MODULE}.py").is_file() else []
    return {f.__name__: f for module in (shared, *own) for f in getattr(module, listed, ())}


def part(key: str, words: Mapping[Any, Any], room: str, name: str) -> Part:
    """Return a part of a rule from what a claim says under `key`, {name: its first parameter or None, parameter:
    value …}. Raises ValueError, one sentence that begins with `name`."""
    (first, value), *rest = words.items()
    said, known = str(first).replace(" ", "_"), table(key, room)
    if said not in known:
        raise ValueError(f"{name} names {said!r} as its {key!r}; known: {', '.join(known)}.")
    skip = _PARTS[key][2]
    given = [None] * skip + [value] * (value is not None)
    try:
        bound = inspect.signature(known[said]).bind(*given, **dict(rest))
    except TypeError as error:
        raise ValueError(f"{name} names {said!r} as its {key!r}, with {error}.") from None
    return Part(said, known[said], dict(list(bound.arguments.items())[skip:]))
