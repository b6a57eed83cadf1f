"""How parts talk: a thin protocol, and those who speak it. The transport is NCCL's or MPI's, none of it is ours.

    rank, size            which part this is, of how many
    gather(x)             every rank's small Python object, in the order of ranks
    ready(send, recv)     a call that sends send[q] to rank q and gets recv[q] from it, all at once; the arrays are
                          contiguous, and stay where they are
    split(color)          the ranks with the same color, in their order

`start` finds what started the processes: torchrun, Slurm or MPI. The call that `ready` returns takes a stream, and on a
GPU returns when the exchange is enqueued there. NVLink multicast stays off: NCCL_NVLS_ENABLE=0, unless it is set.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy as np

from ..contract import require
from ..lazy import Lazy, cupy, torch

dist, mpi = Lazy("torch.distributed"), Lazy("mpi4py.MPI")

#: Seconds that ranks wait for each other: for one that still compiles, say. Of one that is dead, `watchdog` tells.
PATIENCE = 300
#: Variables of torchrun, Open MPI, other MPIs and Slurm: rank, size, rank on the host.
STARTERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
)


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
    ended: bool = False  #: whether what started it ends all processes where one dies, and says so (see `watchdog`)


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
                if recv[q].size:
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
        if self._device is None:
            return lambda stream=None: self._on_host(out, into)
        return lambda stream=None: self._enqueue(out, into, stream)

    def _tensor(self, x):
        if x.size == 0:
            where = "cpu" if self._device is None else f"cuda:{self._device}"
            return torch.empty(0, dtype=torch.uint8, device=where)
        return torch.from_dlpack(_bytes(x))

    def _enqueue(self, out, into, stream) -> None:
        address = (cupy.cuda.get_current_stream() if stream is None else stream).ptr
        # PyTorch takes the address 0 for no stream at all, and makes one.
        at = torch.cuda.ExternalStream(address, self._device) if address else torch.cuda.default_stream(self._device)
        with torch.cuda.stream(at):
            dist.all_to_all(into, out, group=self._group)

    def _on_host(self, out, into) -> None:
        into[self.rank].copy_(out[self.rank])
        others = [q for q in range(self.size) if q != self.rank]
        ops = [(dist.irecv, into[q], q) for q in others if into[q].numel()]
        ops += [(dist.isend, out[q], q) for q in others if out[q].numel()]
        works = [call(x, self._ranks[q], group=self._group) for call, x, q in ops]
        for work in works:
            work.wait()

    def split(self, color: int) -> Torch:
        """Return the communicator of the ranks that give the same color."""
        colors = self.gather(color)
        mine: list = []
        for c in sorted(set(colors)):  # every rank makes every group, in one order
            ranks = [self._ranks[q] for q, of in enumerate(colors) if of == c]
            kinds = ["gloo"] if self._device is None else ["nccl", "gloo"]
            groups = [dist.new_group(ranks, backend=kind) for kind in kinds]
            if c == color:
                mine = groups
        return Torch(mine[0], mine[-1], self._device)


def _bytes(x):
    """Return a contiguous array as flat uint8 that shares its memory."""
    return x.reshape(-1).view(np.uint8)


@contextmanager
def started_torch(at: Place, gpu: bool) -> Iterator[Torch]:
    """Hold `torch.distributed` among processes that torchrun started, until the end of the block.

    Or what else sets MASTER_ADDR and MASTER_PORT. After an error its end could wait for the others, who are told
    first.

    gpu: NCCL, with GPU `at.local` for this process; without, gloo on the host.
    """
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    patience = timedelta(seconds=PATIENCE)
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29517")
    # The host's group first: it can say that two ranks share a GPU, of which NCCL makes a page of text.
    dist.init_process_group("gloo", rank=at.rank, world_size=at.size, timeout=patience)
    whole = Torch(dist.group.WORLD, dist.group.WORLD, None)
    if gpu:
        torch.cuda.set_device(at.local)
        one_gpu_each(whole, str(torch.cuda.get_device_properties(at.local).uuid))
        whole = Torch(dist.new_group(backend="nccl", timeout=patience), dist.group.WORLD, at.local)
    yield whole
    dist.destroy_process_group()  # and all groups


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
    found: dict[tuple[str, str], int] = {}
    for rank, gpu in enumerate(comm.gather((socket.gethostname(), uuid))):
        require(
            gpu not in found,
            f"ranks {found.get(gpu)} and {rank} both use GPU {gpu[1]} of {gpu[0]}: give each a GPU of its own, or "
            "start fewer processes",
        )
        found[gpu] = rank
