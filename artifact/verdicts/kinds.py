"""Kinds of claims: how near is near enough, from the one table kinds.toml, whose head says what its keys mean."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import with_config

from artifact import registry

FILE = Path(__file__).with_suffix(".toml")


@with_config(registry.STRICT)
@dataclass(frozen=True)
class Kind:
    """What claims of one kind have in common: a table of kinds.toml."""

    says: str
    expect: Mapping[str, float | bool | str]  #: parameters of the expectation
    why: str  #: they are so wide
    effect: Mapping[str, float] = field(default_factory=dict)  #: parameter -> power of the stated ratio that bounds it


@cache
def known() -> dict[str, Kind]:
    """Return name -> kind, in the order of the file."""
    return {name: registry.checked(Kind, table, FILE) for name, table in registry.toml(FILE).items()}


def given(kind: Kind, said: Mapping[str, Any], scale: float = 1.0) -> dict[str, Any]:
    """Return the parameters that a kind gives an expectation, of which a claim has `said` {its name: first value …}.

    scale: by what all tolerances are multiplied: distances as they are, factors on a logarithmic axis.
    """
    (word, first), *_ = said.items()
    ends = [end for end in (first if isinstance(first, list) else [first]) if kind.effect and end]
    ratio = max((max(end, 1 / end) for end in ends), default=1.0)
    by_factor = "factor" in kind.expect or "slack" in kind.expect
    wide = {
        key: value if isinstance(value, bool | str) else value**scale if by_factor else value * scale
        for key, value in kind.expect.items()
    }
    wide |= {key: min(wide[key], ratio ** (power * scale)) for key, power in kind.effect.items() if ratio > 1}
    if slack := wide.pop("slack", None):
        wide["partly"] = first / slack if word == "at_least" else first * slack
    return wide
