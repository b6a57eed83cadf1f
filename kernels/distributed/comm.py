"""How parts talk: a thin protocol, and those who speak it. The transport is NCCL's or MPI's, none of it is ours.

    rank, size            which part this is, of how many
    gather(x)             every rank's small Python object, in the order of ranks
    ready(send, recv)     a call that sends send[q] to rank q and gets recv[q] from it, all at once; the arrays are
                          contiguous, and stay where they are
    split(color)          the ranks with the same color, in their order

`start` finds what started the processes: torchrun, Slurm or MPI. The call that `ready` returns takes a stream, and on a
GPU returns when the exchange is enqueued there. NVLink multicast stays off: NCCL_NVLS_ENABLE=0, unless it is set.

When a rank dies all end, with one sentence. A collective operation on a GPU waits for a rank that is gone, for ever
where NVLink joins them: NCCL notices connections of other hosts alone, and those of InfiniBand late. What launchers do
when a rank is killed or fails:

    torchrun, all ranks on one host    ends the others within a second, says which rank, and its exit code or signal
    mpirun of Open MPI                 the same, on all hosts
    torchrun over several hosts        ends those of the same host; the others wait
    srun                               nothing, unless -K, --kill-on-bad-exit or the site's KillOnBadExit asks for it
    other MPIs, a bare start per rank  nothing that can be relied on

So under the first two a rank that fails says why, and exits. Under the others every rank also holds a connection to
rank 0 (`watched`), whose end says who died: rank 0 says one sentence on stderr, and all exit; where rank 0 is the one,
rank 1 says so. Keepalive finds a host that lost its power. Lines of strangers are passed over.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy as np

from ..contract import require
from ..gpu import open_device
from ..lazy import Lazy, cupy, torch

dist, mpi = Lazy("torch.distributed"), Lazy("mpi4py.MPI")

#: Seconds that ranks wait for each other: for one that still compiles, say. Of one that is dead, the watch tells.
PATIENCE = 300
#: Variables of torchrun, Open MPI, other MPIs and Slurm: rank, size, rank on the host.
STARTERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)
SILENCE = 12  #: seconds without a sign of life of its host after which a rank counts as dead
ARRIVAL = 20.0  #: seconds that ranks have to come after the first
#: Seconds that a rank waits with its own error, in case that another's death made it, and for all to be told of it.
ECHO, TOLD = 1.0, 4.0
CODE = 70  #: exit code of the ranks that are ended
#: What stands between a rank and why it died; why, where it did not say so.
DIED, SILENT = " died: ", "its process ended without a word (killed, out of memory, or a crash)"
#: Seconds of silence, seconds from question to question then, and how many are asked.
KEEPALIVE = {socket.TCP_KEEPIDLE: SILENCE // 2, socket.TCP_KEEPINTVL: 2, socket.TCP_KEEPCNT: 3}
_ENDING = threading.RLock()  #: of the thread that ends this process: what follows from that is not told
#: Names of rank 0's host that only processes of the same host use: no other is listened to.
HERE = ("localhost", "127.0.0.1")


class Comm(Protocol):
    """See above."""

    rank: int
    size: int

    def gather(self, x: Any) -> list:
        """Return x of every rank, in their order."""

    def ready(self, send: list, recv: list) -> Callable[..., None]:
        """Return what exchanges these arrays: send[q] goes to rank q, recv[q] comes from it."""

    def split(self, color: int) -> Comm:
        """Return the communicator of the ranks that give the same color."""


@dataclass(frozen=True)
class Place:
    """Of a process among those that were started together."""

    rank: int
    size: int
    local: int  #: rank on its host, which is the number of its GPU
    ended: bool = False  #: whether what started it ends all processes where one dies, and says so


def place(environment=os.environ) -> Place:
    """Which process this is; alone where nothing says that there are others.

    Raises ValueError, one sentence, for what is no rank of that many.
    """
    for rank, size, local in STARTERS:
        if rank in environment and size in environment:
            try:
                one, of, here = (int(environment.get(name, 0)) for name in (rank, size, local))
            except ValueError:
                raise ValueError(
                    f"{rank}, {size} and {local} are {environment[rank]!r}, {environment[size]!r} and "
                    f"{environment.get(local)!r}, but must be numbers: start the processes with torchrun"
                ) from None
            require(
                0 <= one < of,
                f"{rank} is {one}, but ranks of {size} = {of} are 0 to {of - 1}: start as many processes as that",
            )
            one_host = "TORCHELASTIC_RUN_ID" in environment and environment.get("LOCAL_WORLD_SIZE") == environment[size]
            return Place(one, of, here, ended=one_host if rank == "RANK" else rank.startswith("OMPI"))
    return Place(0, 1, 0)


@contextmanager
def start(*, size: int | None = None, gpu: bool = True) -> Iterator[Comm]:
    """Join the other ranks until the end of the block: one process a GPU, started by torchrun, Slurm or MPI.

        with distributed.start() as ranks:
            made = distributed.plan(a, n, ranks)

    size: how many there must be; None: as many as there are. gpu: NCCL, and the GPU with the rank's number on its host
    becomes current; without, gloo on the host. A rank that fails, or is gone, ends all of them with one sentence.
    Raises ValueError, one sentence, for another world size, and NoGpu where the host has too few.
    """
    at = place()
    require(
        size in (None, at.size),
        f"there are {at.size} processes, but {size} are asked for: start them with torchrun --nproc-per-node {size}",
    )
    if gpu:
        open_device(at.local)
    with nullcontext(alone()) if at.size == 1 else _started_torch(at, gpu) as ranks:
        yield ranks


# ---------------------------------------------------------------- threads: a rank alone, tests, and to look at


class Threads:
    """Parts as threads of this process, with NumPy arrays; they share a barrier and a list with a place for each."""

    def __init__(self, rank: int, barrier: threading.Barrier, slots: list):
        self.rank, self.size, self._barrier, self._slots = rank, len(slots), barrier, slots

    def gather(self, x) -> list:
        """Return x of every rank, in their order."""
        self._slots[self.rank] = x
        self._barrier.wait()
        found = list(self._slots)
        self._barrier.wait()  # all have read what the next call overwrites
        return found

    def ready(self, send: list, recv: list) -> Callable[..., None]:
        """Return what exchanges these arrays between threads."""

        def move(stream=None) -> None:
            for q, of in enumerate(self.gather(send)):
                recv[q][...] = of[self.rank]
            self._barrier.wait()  # nobody changes what others still read

        return move

    def split(self, color: int) -> Threads:
        """Return the communicator of the ranks that give the same color."""
        members = [q for q, c in enumerate(self.gather(color)) if c == color]
        made = self.gather(_shared(len(members)))  # those of the first one count
        return Threads(members.index(self.rank), *made[members[0]])


def _shared(size: int) -> tuple[threading.Barrier, list]:
    return threading.Barrier(size, timeout=PATIENCE), [None] * size


def alone() -> Threads:
    """One part, which talks to nobody."""
    return Threads(0, *_shared(1))


def run_threads(size: int, work: Callable[[Comm], Any]) -> list:
    """Return what `work(comm)` returns on each of `size` threads; an error of any ends all, and is raised."""
    barrier, slots = _shared(size)

    def one(rank: int) -> Any:
        try:
            return work(Threads(rank, barrier, slots))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        made = [pool.submit(one, rank) for rank in range(size)]
    # Of who waited for one that failed, last.
    for each in sorted(made, key=lambda x: isinstance(x.exception(), threading.BrokenBarrierError)):
        each.result()
    return [each.result() for each in made]


# ---------------------------------------------------------------- MPI, on the host


class Mpi:
    """mpi4py's communicator, for NumPy arrays."""

    def __init__(self, comm):
        self._comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    def gather(self, x) -> list:
        """Return x of every rank, in their order."""
        return self._comm.allgather(x)

    def ready(self, send: list, recv: list) -> Callable[..., None]:
        """Return what exchanges these arrays by MPI."""
        out, into = [_bytes(x) for x in send], [_bytes(x) for x in recv]

        def move(stream=None) -> None:
            requests = [self._comm.Irecv(x, q) for q, x in enumerate(into) if x.size]
            requests += [self._comm.Isend(x, q) for q, x in enumerate(out) if x.size]
            mpi.Request.Waitall(requests)

        return move

    def split(self, color: int) -> Mpi:
        """Return the communicator of the ranks that give the same color."""
        return Mpi(self._comm.Split(color, self.rank))


# ---------------------------------------------------------------- NCCL, through PyTorch


class Torch:
    """`torch.distributed`: NCCL for CuPy's arrays; gloo for small objects, and for NumPy's arrays without a GPU."""

    def __init__(self, group, objects, device: int | None):
        self._group, self._objects, self._device = group, objects, device
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self._ranks = dist.get_process_group_ranks(group)

    def gather(self, x) -> list:
        """Return x of every rank, in their order."""
        found = [None] * self.size
        dist.all_gather_object(found, x, group=self._objects)
        return found

    def ready(self, send: list, recv: list) -> Callable[..., None]:
        """Return what exchanges these arrays by torch.distributed."""
        # Of bytes, since NCCL is told fewer dtypes than arrays have; made once, since sharing memory takes host time.
        out, into = [self._tensor(x) for x in send], [self._tensor(x) for x in recv]
        move = self._on_host if self._device is None else self._enqueue
        return lambda stream=None: move(out, into, stream)

    def _tensor(self, x):
        if x.size == 0:
            return torch.empty(0, dtype=torch.uint8, device="cpu" if self._device is None else f"cuda:{self._device}")
        return torch.from_dlpack(_bytes(x))

    def _enqueue(self, out, into, stream) -> None:
        address = (stream or cupy.cuda.get_current_stream()).ptr
        # PyTorch takes the address 0 for no stream at all, and makes one.
        at = torch.cuda.ExternalStream(address, self._device) if address else torch.cuda.default_stream(self._device)
        with torch.cuda.stream(at):
            dist.all_to_all(into, out, group=self._group)

    def _on_host(self, out, into, stream) -> None:
        into[self.rank].copy_(out[self.rank])
        every = [(call, x, q) for call, of in ((dist.irecv, into), (dist.isend, out)) for q, x in enumerate(of)]
        others = [(call, x, self._ranks[q]) for call, x, q in every if q != self.rank and x.numel()]
        for work in [call(x, q, group=self._group) for call, x, q in others]:
            work.wait()

    def split(self, color: int) -> Torch:
        """Return the communicator of the ranks that give the same color."""
        colors, kinds = self.gather(color), ["gloo"] if self._device is None else ["nccl", "gloo"]
        members = {c: [self._ranks[q] for q, of in enumerate(colors) if of == c] for c in sorted(set(colors))}
        # Every rank makes every group, in one order.
        groups = {c: [dist.new_group(ranks, backend=kind) for kind in kinds] for c, ranks in members.items()}
        return Torch(groups[color][0], groups[color][-1], self._device)


def _bytes(x):
    """Return a contiguous array as flat uint8 that shares its memory."""
    return x.reshape(-1).view(np.uint8)


@contextmanager
def _started_torch(at: Place, gpu: bool) -> Iterator[Torch]:
    """Hold `torch.distributed` among processes that torchrun started, until the end of the block.

    Or what else sets MASTER_ADDR and MASTER_PORT. After an error its end could wait for the others, who are told
    first.

    gpu: NCCL, with GPU `at.local` for this process; without, gloo on the host.
    """
    for name, value in {"NCCL_NVLS_ENABLE": "0", "MASTER_ADDR": HERE[0], "MASTER_PORT": "29517"}.items():
        os.environ.setdefault(name, value)
    patience = timedelta(seconds=PATIENCE)
    with watched(at):
        # The host's group first: it can say that two ranks share a GPU, of which NCCL makes a page of text.
        dist.init_process_group("gloo", rank=at.rank, world_size=at.size, timeout=patience)
        whole = Torch(dist.group.WORLD, dist.group.WORLD, None)
        if gpu:
            torch.cuda.set_device(at.local)
            one_gpu_each(whole, str(torch.cuda.get_device_properties(at.local).uuid))
            whole = Torch(dist.new_group(backend="nccl", timeout=patience), dist.group.WORLD, at.local)
        yield whole
        dist.destroy_process_group()  # and all groups


# ---------------------------------------------------------------- errors that all ranks raise


def together(comm: Comm, work: Callable[[], Any]) -> Any:
    """Return what `work()` returns; where it raises ValueError on any rank, all raise it.

    Nobody waits for who gave up.
    """
    made, wrong = None, ""
    try:
        made = work()
    except ValueError as error:
        wrong = str(error)
    for rank, said in enumerate(comm.gather(wrong)):
        require(not said, f"on rank {rank}, {said}")
    return made


def same(comm: Comm, **values) -> None:
    """Raise ValueError on all ranks, one sentence, unless they bring the same values."""
    found = comm.gather(values)
    for name, here in found[0].items():
        for rank, there in enumerate(found):
            require(
                there[name] == here,
                f"{name} is {here!r} on rank 0, but {there[name]!r} on rank {rank}: all ranks must bring the same",
            )


def one_gpu_each(comm: Comm, uuid: str) -> None:
    """Raise ValueError on all ranks, one sentence, where two use one GPU. uuid: of this rank's."""
    every = comm.gather((socket.gethostname(), uuid))
    for rank, gpu in enumerate(every):
        first = every.index(gpu)
        require(
            first == rank,
            f"ranks {first} and {rank} both use GPU {gpu[1]} of {gpu[0]}: give each a GPU of its own, or start fewer "
            "processes",
        )


# ---------------------------------------------------------------- the watch


@contextmanager
def watched(place: Place, *, arrival: float = ARRIVAL):
    """Watch the other ranks, and be watched, until the end of the block.

    On rank 0's host, MASTER_ADDR (this host alone, by default), at MASTER_PORT and 1. An exception inside is told to
    all and ends this process with a sentence; ranks that do not come within `arrival` seconds end all.
    """
    at = os.environ.get("MASTER_ADDR", HERE[0]), int(os.environ.get("MASTER_PORT", "29517")) + 1
    watch = None if place.ended else (_Link if place.rank else _Hub)(place, *at, arrival)
    try:
        yield
    except BaseException as error:  # a KeyboardInterrupt as well ends all
        if not isinstance(error, SystemExit) or error.code not in (None, 0):  # else it says that all is well
            time.sleep(ECHO)  # where it is only the echo of another's death, that is told first
            why = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
            (watch.end if watch else _end)(f"rank {place.rank}{DIED}{why}")
        raise
    finally:
        if watch:
            watch.leave()


class _Hub:
    """Rank 0's ear: a connection of each other rank."""

    def __init__(self, place: Place, host: str, port: int, arrival: float):
        self._size, self._changed = place.size, threading.Condition()
        self._links: dict[int, socket.socket | None] = {}  #: of ranks that have come; None: they have said goodbye
        self._server = socket.create_server((HERE[1] if host in HERE else "", port), backlog=place.size)
        _at_once(self._listen)
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._links) == place.size - 1, arrival):
                missing = ", ".join(str(rank) for rank in range(1, place.size) if rank not in self._links)
                self.end(
                    f"{1 + len(self._links)} of {place.size} ranks came within {arrival:g} s, rank {missing} did not: "
                    f"start {place.size} processes, or say another world size"
                )

    def _listen(self) -> None:
        with suppress(OSError):  # closed, at the end
            while True:
                _at_once(self._hear, self._server.accept()[0])

    def _hear(self, link: socket.socket) -> None:
        lines = _said(link)
        hello = re.fullmatch(r"rank (\d{1,9}) of (\d{1,9})", next(lines))
        rank, size = map(int, hello.groups()) if hello else (0, 0)
        if rank >= size:
            link.close()  # no rank of ours
            return
        with self._changed:
            if size != self._size:
                self.end(
                    f"rank {rank} was started as one of {size}, but rank 0 as one of {self._size}: start all with the "
                    "same number of processes",
                    link,
                )
            if rank in (0, *self._links):
                self.end(f"rank {rank} was started twice: give each process a rank of its own", link)
            self._links[rank] = link
            self._changed.notify()
        last = next(line for line in lines if line == "bye" or DIED in line)
        if last != "bye":
            self.end(f"rank {rank}{DIED}{last.partition(DIED)[2]}")
        with self._changed:
            self._links[rank] = None
            self._changed.notify()

    def end(self, sentence: str, *more: socket.socket) -> None:
        _end(sentence, *filter(None, (*self._links.values(), *more)))

    def leave(self) -> None:
        """Wait for the others' goodbyes, so that they do not take this rank's end for a death."""
        with self._changed:
            self._changed.wait_for(lambda: not any(self._links.values()), SILENCE)
        self._server.close()


class _Link:
    """Another rank's connection to rank 0."""

    def __init__(self, place: Place, host: str, port: int, arrival: float):
        self._rank, self._left, deadline = place.rank, False, time.monotonic() + arrival
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
        _send(self._socket, f"rank {place.rank} of {place.size}")
        _at_once(self._hear)

    def _hear(self) -> None:
        for line in _said(self._socket):
            if line == "end":
                _end()
            if DIED in line and not self._left:  # rank 0 is gone: of those who see it, rank 1 speaks
                _end(f"rank 0{line}" if self._rank == 1 else "")

    def end(self, sentence: str) -> None:
        _send(self._socket, sentence)
        time.sleep(TOLD)  # rank 0 says so, and ends this process too
        _end(sentence)

    def leave(self) -> None:
        self._left = True
        _send(self._socket, "bye")


def _at_once(work, *given) -> None:
    threading.Thread(target=work, args=given, daemon=True).start()


def _said(link: socket.socket) -> Iterator[str]:
    """Yield the lines of the other end, and at last why it died."""
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in KEEPALIVE.items():
        link.setsockopt(socket.IPPROTO_TCP, option, value)
    try:
        with suppress(ConnectionError):  # as its end is seen where more was being sent
            yield from map(str.rstrip, link.makefile(encoding="utf-8", errors="replace"))
        yield f"{DIED}{SILENT}"
    except OSError:
        yield f"{DIED}nothing was heard of it for {SILENCE} s"


def _send(link: socket.socket, line: str) -> None:
    with suppress(OSError):  # who listens at the other end is gone, which is seen there where its own words are read
        link.sendall(f"{line}\n".encode())


def _end(sentence: str = "", *others: socket.socket) -> None:
    """End these ranks and this process at once: a thread of it may wait for a GPU that never answers."""
    _ENDING.acquire()
    for link in others:
        _send(link, "end")
    if sentence:
        print(f"error: {sentence}", file=sys.stderr, flush=True)
    time.sleep(0.2)  # what the others are told is on its way
    os._exit(CODE)
