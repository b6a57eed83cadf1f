"""`start`: the processes that torchrun, Slurm or MPI started, as a `Comm`, watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import comm, faults
from .comm import Comm


@contextmanager
def start(*, size: int | None = None, gpu: bool = True) -> Iterator[Comm]:
    """The other ranks, until the end of the block: one process a GPU, as torchrun, Slurm or MPI started them.

        with distributed.start() as ranks:
            made = distributed.plan(a, n, ranks)

    size: how many there must be; None: as many as there are. gpu: NCCL, and the GPU with the rank's number on its host
    becomes current; without, gloo on the host. A rank that fails, or is gone, ends all of them with one sentence.
    Raises ValueError, one sentence, for another world size, and NoGpu where the host has too few.
    """
    at = comm.place()
    comm.require(
        size in (None, at.size),
        f"there are {at.size} processes, but {size} are asked for: start them with torchrun --nproc-per-node {size}",
    )
    if gpu:
        from ..gpu import open_device

        open_device(at.local)
    with faults.watched(at):
        talk = comm.alone() if at.size == 1 else comm.start_torch(at, gpu=gpu)
        yield talk
        talk.close()  # after an error it could wait for the others, who are told first
