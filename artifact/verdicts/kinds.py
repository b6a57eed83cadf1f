"""Kinds of claims: how near is near enough, from the one table kinds.toml, whose head says what its keys mean."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from artifact import registry

FILE = Path(__file__).with_suffix(".toml")
#: A kind: what its claims say, the parameters of their expectation, of these the powers of the stated ratio that bound
#: them, and why they are so wide.
KIND = registry.keys({"says": str, "expect": dict[str, Any], "why": str}, {"effect": dict[str, float]})


@cache
def known() -> dict[str, dict[str, Any]]:
    """Return name -> kind, in the order of the file."""
    return {name: registry.checked(KIND, table, FILE) for name, table in registry.toml(FILE).items()}


def given(kind: Mapping[str, Any], said: Mapping[str, Any], scale: float = 1.0) -> dict[str, Any]:
    """Return the parameters that a kind gives an expectation, of which a claim has `said` {its name: first value …}.

    scale: by what all tolerances are multiplied: distances as they are, factors on a logarithmic axis.
    """
    (word, first), *_ = said.items()
    expect, effect = kind["expect"], kind.get("effect", {})
    ends = [end for end in (first if isinstance(first, list) else [first]) if effect and end]
    ratio, by_factor = max((max(end, 1 / end) for end in ends), default=1.0), {"factor", "slack"} & expect.keys()
    wide = {
        key: value if isinstance(value, bool | str) else value**scale if by_factor else value * scale
        for key, value in expect.items()
    }
    wide |= {key: min(wide[key], ratio ** (power * scale)) for key, power in effect.items() if ratio > 1}
    if slack := wide.pop("slack", None):
        wide["partly"] = first / slack if word == "at_least" else first * slack
    return wide
