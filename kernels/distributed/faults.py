"""A process that dies ends all: every rank holds a connection to rank 0, and a broken one says who died.

    with faults.watched(place):     # rank, size
        …                           # what ends here with an exception ends every rank, with that sentence

Collective operations on a GPU wait for ever for a rank that is gone. So each rank has a thread that waits for the end
of its connection instead. Rank 0 hears of the first death, or misses heartbeats where a host lost its power, tells the
others, and all exit: the lowest rank that is left says one sentence on stderr, who died and of what. Where rank 0 is
the one, the others see it by themselves.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager

from .comm import Place

BEAT = 2.0  #: seconds from heartbeat to heartbeat
SILENCE = 12.0  #: seconds without one after which a rank counts as dead
ARRIVAL = 20.0  #: seconds that ranks have to come after the first
#: Seconds that a rank waits with its own error, in case that another's death made it.
ECHO = 1.0
CODE = 70  #: exit code of the ranks that are ended
SILENT = "its process ended without a word (killed, out of memory, or a crash)"


@contextmanager
def watched(place: Place, *, arrival: float = ARRIVAL, port: int | None = None):
    """Watch the other ranks, and be watched, until the end of the block.

    port: of rank 0's host, MASTER_ADDR; by default MASTER_PORT and 1. An exception inside is told to all and ends this
    process with a sentence; ranks that do not come within `arrival` seconds end all.
    """
    if place.size == 1:
        yield
        return
    host = os.environ.get("MASTER_ADDR", "localhost")
    port = port or int(os.environ.get("MASTER_PORT", "29517")) + 1
    hub = _Hub(place, port, arrival) if place.rank == 0 else None
    link = _Link(place, host, port, arrival)
    before = _patient()
    try:
        yield
    except BaseException as error:  # a KeyboardInterrupt as well ends all
        if isinstance(error, SystemExit) and error.code in (None, 0):  # who says that all is well
            _leave(link, hub, before)
            raise
        time.sleep(ECHO)  # where it is only the echo of another's death, that is told first
        said = (str(error).strip().splitlines() or [""])[0]
        link.tell({"dies": f"{type(error).__name__}: {said}" if said else type(error).__name__})
        time.sleep(2 * BEAT)  # what was told comes back, and ends this process too
        _end(f"rank {place.rank} died: {type(error).__name__}: {said}")
    else:
        _leave(link, hub, before)


def _leave(link: _Link, hub: _Hub | None, before) -> None:
    link.bye()
    if hub is not None:
        hub.last(SILENCE)
    if before is not None:
        signal.signal(signal.SIGTERM, before)


def _patient():
    """On SIGTERM wait a little, for what the others tell; what was done before, or None outside of the main thread.

    torchrun sends it to the ranks that are left as soon as one is gone, which would leave nobody to say who it was.
    """
    if threading.current_thread() is not threading.main_thread():
        return None

    def end(*_) -> None:
        time.sleep(2 * ECHO)
        os._exit(128 + signal.SIGTERM)

    return signal.signal(signal.SIGTERM, end)


class _Hub:
    """Rank 0's ear: one connection of each rank, its own included."""

    def __init__(self, place: Place, port: int, arrival: float):
        self._size, self._arrival = place.size, arrival
        self._lock, self._done = threading.Lock(), threading.Event()
        self._links: dict[int, socket.socket] = {}
        self._left: set[int] = set()
        self._dead = ""  #: the sentence with which all ended
        self._server = socket.create_server(("", port), backlog=place.size)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        deadline, whole = time.monotonic() + self._arrival, False
        while True:
            waits = not whole and not self._dead
            self._server.settimeout(max(0.01, deadline - time.monotonic()) if waits else None)
            try:
                link, _ = self._server.accept()
            except TimeoutError:
                self._tell(self._missing())
                continue
            except OSError:
                return  # closed, at the end
            link.settimeout(SILENCE)
            lines = link.makefile("r")
            try:
                said = json.loads(lines.readline())
            except (ValueError, OSError):
                continue  # no rank of ours
            wrong = self._wrong(said)
            with self._lock:
                if self._dead:  # who comes late is told as well
                    _send(link, {"end": self._dead, "speak": False})
                    continue
                self._links[-1 if wrong else said["rank"]] = link
                whole = len(self._links) == self._size and not wrong
            if wrong:
                self._tell(wrong)
                continue
            threading.Thread(target=self._hear, args=(said["rank"], lines), daemon=True).start()
            if whole:
                for other in self._links.values():
                    _send(other, {"go": True})

    def _wrong(self, said: dict) -> str:
        """What is wrong with a rank that comes, in a sentence; or nothing."""
        if said["size"] != self._size:
            return (
                f"rank {said['rank']} was started as one of {said['size']}, but rank 0 as one of {self._size}: "
                "start all with the same number of processes"
            )
        if said["rank"] in self._links:
            return f"rank {said['rank']} was started twice: give each process a rank of its own"
        return ""

    def _missing(self) -> str:
        missing = sorted(set(range(self._size)) - set(self._links))
        names = ", ".join(map(str, missing))
        return (
            f"{self._size - len(missing)} of {self._size} ranks came within {self._arrival:g} s, rank {names} did "
            f"not: start {self._size} processes, or say another world size"
        )

    def _hear(self, rank: int, lines) -> None:
        why = SILENT
        try:
            for line in lines:
                said = json.loads(line)
                if "bye" in said:
                    with self._lock:
                        self._left.add(rank)
                        if len(self._left) == self._size:
                            self._done.set()
                    return
                if "dies" in said:
                    why = said["dies"]
                    break
        except TimeoutError:
            why = f"nothing was heard of it for {SILENCE:g} s"
        except (OSError, ValueError):
            pass
        self._tell(f"rank {rank} died: {why}", rank)

    def _tell(self, sentence: str, dead: int = -1) -> None:
        with self._lock:
            if self._dead:
                return
            self._dead = sentence
            alive = sorted(r for r in self._links if r != dead and r not in self._left)
            speaks = alive[0] if alive else dead
            # This process ends when it hears of it itself: so it tells itself last.
            for rank, link in sorted(self._links.items(), key=lambda of: (of[0] == 0, of[0])):
                _send(link, {"end": sentence, "speak": rank == speaks})

    def last(self, patience: float) -> None:
        """Wait for the others' goodbyes, so that they do not take this rank's end for a death."""
        self._done.wait(patience)
        self._server.close()


class _Link:
    """This rank's connection to rank 0."""

    def __init__(self, place: Place, host: str, port: int, arrival: float):
        self._place, self._lock, self._left = place, threading.Lock(), False
        self._all_here = threading.Event()
        deadline = time.monotonic() + arrival
        while True:
            try:
                self._socket = socket.create_connection((host, port), timeout=2)
                break
            except OSError as error:
                if time.monotonic() > deadline:
                    _end(
                        f"rank {place.rank} did not reach rank 0 at {host}:{port} within {arrival:g} s ({error}): "
                        f"start all {place.size} processes, with one MASTER_ADDR and MASTER_PORT"
                    )
                time.sleep(0.1)
        self._socket.settimeout(None)
        self.tell({"rank": place.rank, "size": place.size})
        threading.Thread(target=self._hear, daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()
        if not self._all_here.wait(arrival + SILENCE):
            _end(
                f"rank {place.rank} of {place.size} came to rank 0 at {host}:{port}, which waits for others: start "
                "all with the same number of processes"
            )

    def tell(self, said: dict) -> None:
        with self._lock:
            _send(self._socket, said)

    def bye(self) -> None:
        self._left = True
        self.tell({"bye": True})

    def _beat(self) -> None:
        while not self._left:
            time.sleep(BEAT)
            if not self._left:
                self.tell({"beat": True})

    def _hear(self) -> None:
        try:
            for line in self._socket.makefile("r"):
                said = json.loads(line)
                if "end" in said:
                    _end(said["end"] if said["speak"] else "")
                self._all_here.set()
        except OSError:
            pass  # the connection broke, as below
        if not self._left:
            # Rank 0 is gone: of those who see it, rank 1 speaks.
            _end(f"rank 0 died: {SILENT}" if self._place.rank == 1 else "")


def _send(link: socket.socket, said: dict) -> None:
    try:
        link.sendall((json.dumps(said) + "\n").encode())
    except OSError:
        pass  # who listens at the other end is gone, which is seen there where its own words are read


def _end(sentence: str) -> None:
    """End the process at once: a thread of it may wait for a GPU that never answers."""
    if sentence:
        print(f"error: {sentence}", file=sys.stderr, flush=True)
    time.sleep(0.2)  # what the others are told is on its way
    os._exit(CODE)
