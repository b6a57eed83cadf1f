"""Command lines as data: arguments as `argparse` takes them; an error is one line on stderr, and exit code 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

Options = argparse.Namespace
Argument = tuple[tuple[str, ...], dict[str, Any]]
BAD_INPUT = 2


def option(*names: str, **how: Any) -> Argument:
    """Return an argument, as `ArgumentParser.add_argument` takes it."""
    return names, how


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, where argparse puts the usage in front."""

    def error(self, message: str) -> NoReturn:
        sys.exit(failed(message))

    def add(self, arguments: Iterable[Argument]) -> Parser:
        """Add arguments; returns the parser."""
        for names, how in arguments:
            self.add_argument(*names, **how)
        return self


def failed(error: object) -> int:
    """Say why a command failed; returns its exit code."""
    print(f"error: {error}", file=sys.stderr)
    return BAD_INPUT


def run(
    work: Callable[[Options], int | None],
    module: str,
    says: str | None,
    arguments: Iterable[Argument],
    given: Sequence[str] | None = None,
) -> int:
    """Do the work of `python -m MODULE` with the options that are given, by default those of the process.

    Returns the exit code: what `work` returns, or 2 where it raises OSError or ValueError, whose sentence is said.
    """
    options = Parser(prog=f"python -m {module}", description=says).add(arguments).parse_args(given)
    try:
        return work(options) or 0
    except (OSError, ValueError) as error:
        return failed(error)
