"""`start`: the processes that torchrun, Slurm or MPI started, as a `Comm`; when one dies all end, with one sentence.

By what started them, and by a watch of our own where that does not.

    with faults.watched(place):     # rank, size
        …                           # what ends here with an exception ends every rank, with that sentence

A collective operation on a GPU waits for a rank that is gone, for ever where NVLink joins them: NCCL notices
connections of other hosts alone, and those of InfiniBand late. What launchers do when a rank is killed or fails:

    torchrun, all ranks on one host    ends the others within a second, says which rank, and its exit code or signal
    mpirun of Open MPI                 the same, on all hosts
    torchrun over several hosts        ends those of the same host; the others wait
    srun                               nothing, unless -K, --kill-on-bad-exit or the site's KillOnBadExit asks for it
    other MPIs, a bare start per rank  nothing that can be relied on

So under the first two a rank that fails says why, and exits. Under the others every rank also holds a connection to
rank 0, whose end says who died: rank 0 says one sentence on stderr, and all exit; where rank 0 is the one, rank 1 says
so. Keepalive finds a host that lost its power.
"""

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from ..contract import require
from . import comm
from .comm import Comm, Place

SILENCE = 12  #: seconds without a sign of life of its host after which a rank counts as dead
ARRIVAL = 20.0  #: seconds that ranks have to come after the first
#: Seconds that a rank waits with its own error, in case that another's death made it, and for all to be told of it.
ECHO, TOLD = 1.0, 4.0
CODE = 70  #: exit code of the ranks that are ended
SILENT = "its process ended without a word (killed, out of memory, or a crash)"
#: Seconds of silence, seconds from question to question then, and how many are asked.
KEEPALIVE = {socket.TCP_KEEPIDLE: SILENCE // 2, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}
_ENDING = threading.RLock()  #: of the thread that ends this process: what follows from that is not told
#: Names of rank 0's host that only processes of the same host use: no other is listened to.
HERE = ("localhost", "127.0.0.1")


@contextmanager
def start(*, size: int | None = None, gpu: bool = True) -> Iterator[Comm]:
    """Join the other ranks until the end of the block: one process a GPU, started by torchrun, Slurm or MPI.

        with distributed.start() as ranks:
            made = distributed.plan(a, n, ranks)

    size: how many there must be; None: as many as there are. gpu: NCCL, and the GPU with the rank's number on its host
    becomes current; without, gloo on the host. A rank that fails, or is gone, ends all of them with one sentence.
    Raises ValueError, one sentence, for another world size, and NoGpu where the host has too few.
    """
    at = comm.place()
    require(
        size in (None, at.size),
        f"there are {at.size} processes, but {size} are asked for: start them with torchrun --nproc-per-node {size}",
    )
    if gpu:
        from ..gpu import open_device

        open_device(at.local)
    with watched(at), nullcontext(comm.alone()) if at.size == 1 else comm.started_torch(at, gpu) as talk:
        yield talk


@contextmanager
def watched(place: Place, *, arrival: float = ARRIVAL):
    """Watch the other ranks, and be watched, until the end of the block.

    On rank 0's host, MASTER_ADDR (this host alone, by default), at MASTER_PORT and 1. An exception inside is told to
    all and ends this process with a sentence; ranks that do not come within `arrival` seconds end all.
    """
    if place.size == 1:
        yield
        return
    host = os.environ.get("MASTER_ADDR", HERE[0])
    port = int(os.environ.get("MASTER_PORT", "29517")) + 1
    watch = None if place.ended else (_Link if place.rank else _Hub)(place, host, port, arrival)
    try:
        yield
    except BaseException as error:  # a KeyboardInterrupt as well ends all
        if not isinstance(error, SystemExit) or error.code not in (None, 0):  # else it says that all is well
            time.sleep(ECHO)  # where it is only the echo of another's death, that is told first
            why = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
            if watch:
                watch.dies(why)
            _end(f"rank {place.rank} died: {why}")
        raise
    finally:
        if watch:
            watch.leave()


class _Hub:
    """Rank 0's ear: a connection of each other rank."""

    def __init__(self, place: Place, host: str, port: int, arrival: float):
        self._size, self._lock = place.size, threading.Lock()
        self._links: dict[int, socket.socket] = {}  #: of ranks that have come, and have not said goodbye
        self._whole, self._gone = threading.Event(), threading.Event()
        self._server = socket.create_server((HERE[1] if host in HERE else "", port), backlog=place.size)
        _at_once(self._listen)
        if not self._whole.wait(arrival):
            missing = ", ".join(str(rank) for rank in range(1, place.size) if rank not in self._links)
            self._end(
                f"{1 + len(self._links)} of {place.size} ranks came within {arrival:g} s, rank {missing} did not: "
                f"start {place.size} processes, or say another world size"
            )

    def _listen(self) -> None:
        with suppress(OSError):  # closed, at the end
            while True:
                _at_once(self._hear, self._server.accept()[0])

    def _hear(self, link: socket.socket) -> None:
        lines = _said(link)
        hello = next(lines)
        rank, size = hello.get("rank"), hello.get("size")
        if type(rank) is not int or type(size) is not int or not 0 <= rank < size:
            link.close()  # no rank of ours
            return
        with self._lock:
            if size != self._size:
                self._end(
                    f"rank {rank} was started as one of {size}, but rank 0 as one of {self._size}: start all with the "
                    "same number of processes",
                    link,
                )
            if rank in (0, *self._links):
                self._end(f"rank {rank} was started twice: give each process a rank of its own", link)
            self._links[rank] = link
            if len(self._links) == self._size - 1:
                for other in self._links.values():
                    _send(other, go=True)
                self._whole.set()
        last = next(said for said in lines if "bye" in said or "dies" in said)
        if "dies" in last:
            self._end(f"rank {rank} died: {last['dies']}")
        del self._links[rank]
        if not self._links:
            self._gone.set()

    def _end(self, sentence: str, *more: socket.socket) -> None:
        _ENDING.acquire()
        for link in (*self._links.values(), *more):
            _send(link, end=True)
        _end(sentence)

    def dies(self, why: str) -> None:
        self._end(f"rank 0 died: {why}")

    def leave(self) -> None:
        """Wait for the others' goodbyes, so that they do not take this rank's end for a death."""
        self._gone.wait(SILENCE)
        self._server.close()


class _Link:
    """Another rank's connection to rank 0."""

    def __init__(self, place: Place, host: str, port: int, arrival: float):
        self._rank, self._left, self._all_here = place.rank, False, threading.Event()
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
        _send(self._socket, rank=place.rank, size=place.size)
        _at_once(self._hear)
        if not self._all_here.wait(arrival + SILENCE):
            _end(
                f"rank {place.rank} of {place.size} came to rank 0 at {host}:{port}, which waits for others: start "
                "all with the same number of processes"
            )

    def _hear(self) -> None:
        for said in _said(self._socket):
            if "end" in said:
                _end()
            if "dies" in said and not self._left:  # rank 0 is gone: of those who see it, rank 1 speaks
                _end(f"rank 0 died: {said['dies']}" if self._rank == 1 else "")
            self._all_here.set()

    def dies(self, why: str) -> None:
        _send(self._socket, dies=why)
        time.sleep(TOLD)  # rank 0 says so, and ends this process too

    def leave(self) -> None:
        self._left = True
        _send(self._socket, bye=True)


def _at_once(work, *given) -> None:
    threading.Thread(target=work, args=given, daemon=True).start()


def _said(link: socket.socket) -> Iterator[dict]:
    """Yield what the other end says, and at last why it "dies"; lines that are none of ours are passed over."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        link.setsockopt(socket.IPPROTO_TCP, option, value)
    why = SILENT
    try:
        for line in link.makefile("rb"):
            with suppress(ValueError, RecursionError):
                said = json.loads(line)
                if isinstance(said, dict):
                    yield said
    except ConnectionError:  # as its end is seen where more was being sent
        pass
    except OSError:
        why = f"nothing was heard of it for {SILENCE} s"
    yield {"dies": why}


def _send(link: socket.socket, **said) -> None:
    with suppress(OSError):  # who listens at the other end is gone, which is seen there where its own words are read
        link.sendall((json.dumps(said) + "\n").encode())


def _end(sentence: str = "") -> None:
    """End the process at once: a thread of it may wait for a GPU that never answers."""
    _ENDING.acquire()
    if sentence:
        print(f"error: {sentence}", file=sys.stderr, flush=True)
    time.sleep(0.2)  # what the others are told is on its way
    os._exit(CODE)
