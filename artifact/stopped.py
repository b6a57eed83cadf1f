"""Being stopped: by Ctrl-C, and by the signals with which Slurm, `timeout` and a closed terminal end a process.

All of them become KeyboardInterrupt, so that what cleans up behind Ctrl-C, temporary files first of all, always does.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def as_interrupt(first: Callable[[], object] = lambda: None) -> None:
    """Make each of SIGNALS raise KeyboardInterrupt in the main thread, with the signal as its argument. One that is
    ignored, as SIGHUP under nohup, stays so. first: called before it is raised."""

    def stop(number, _):
        first()
        raise KeyboardInterrupt(number)

    for number in SIGNALS:
        if number == signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)


def code(stop: KeyboardInterrupt) -> int:
    """What a shell returns for a program that this stopped."""
    return 128 + int(stop.args[0] if stop.args else signal.SIGINT)
