"""Command lines as data: arguments as `argparse` takes them; an error is one line on stderr, and exit code 2.

Ctrl-C, and the signals with which Slurm, `timeout` and a closed terminal end a process, become KeyboardInterrupt, so
that what cleans up behind Ctrl-C, temporary files first of all, always does.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from kernels.gpu import NoGpu

Options = argparse.Namespace
Argument = tuple[tuple[str, ...], dict[str, Any]]
BAD_INPUT = 2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def option(*names: str, **how: Any) -> Argument:
    """Return an argument, as `ArgumentParser.add_argument` takes it."""
    return names, how


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, where argparse puts the usage in front."""

    who, hint = "error", ""  #: before and behind what is wrong

    def error(self, message: str) -> NoReturn:
        """End with one sentence and exit code 2."""
        sys.exit(failed(message + self.hint, self.who))

    def add(self, arguments: Iterable[Argument]) -> Parser:
        """Add arguments; returns the parser."""
        for names, how in arguments:
            self.add_argument(*names, **how)
        return self


def failed(error: object, who: str = "error", code: int = BAD_INPUT) -> int:
    """Say why a command failed; returns its exit code."""
    print(f"{who}: {error}", file=sys.stderr)
    return code


def program(module: str, says: str | None, *arguments: Argument) -> Callable:
    """Make a function of the parsed options the `main` of `python -m MODULE`.

    That takes a list of words, by default those of the process, and returns the exit code: the function's, or 2 where
    it raises OSError, ValueError or NoGpu, whose sentence is said.
    """

    def made(work: Callable[[Options], int | None]) -> Callable[..., int]:
        def main(given: Sequence[str] | None = None) -> int:
            options = Parser(prog=f"python -m {module}", description=says).add(arguments).parse_args(given)
            try:
                return work(options) or 0
            except (OSError, ValueError, NoGpu) as error:
                return failed(error)

        return main

    return made


def as_interrupt(first: Callable[[], object] = lambda: None) -> None:
    """Make each of SIGNALS raise KeyboardInterrupt in the main thread, with the signal as its argument.

    One that is ignored, as SIGHUP under nohup, stays so. first: called before it is raised.
    """

    def stop(number, _):
        first()
        raise KeyboardInterrupt(number)

    for number in SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
