"""Measuring with whoever takes the problem: who refuses it, or is a library that is wrong there, is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from artifact import registry
from artifact.measure import check
from artifact.measure.run import Contender
from kernels.contract import Bound, Problem

Result = TypeVar("Result")


class Refused(ValueError):
    """A contender does not take a problem; `name` says which, as the message does."""

    def __init__(self, name: str, why: str):
        super().__init__(why if name in why else f"{name}: {why}")
        self.name = name


def measure(
    contenders: Mapping[str, Contender],
    work: Callable[[Mapping[str, Contender]], Result],
    left_out: Callable[[str, str], None],
    must: str = "",
) -> Result:
    """What `work` makes of the contenders, without those that refuse.

    work: measures all that it is given, and raises what their binding and their check raise. left_out: hears each
    name, and why. must: the one that is not left out. Raises `check.WrongResult` for a wrong contender that is no
    library, ValueError as `must` does, and Refused by the last one where nobody is left.
    """
    here = {name: bind if name == must else _named(name, bind) for name, bind in contenders.items()}
    while True:
        try:
            return work(here)
        except (Refused, check.WrongResult) as error:
            name = getattr(error, "name", str(error).split(" ", 1)[0])
            wrong = isinstance(error, check.WrongResult)
            if name not in here or (wrong and not name.startswith(registry.PREFIXES)):
                raise
            del here[name]
            if not here:
                raise
            left_out(name, str(error))


def _named(name: str, bind: Contender) -> Contender:
    def bound(problem: Problem) -> Bound:
        try:
            return bind(problem)
        except ValueError as error:
            raise Refused(name, str(error)) from error

    return bound
