"""Tests side by side: how many processes, and how one of them gets a GPU for itself."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: On a GPU: processes at most, and bytes of its memory for each. Compiling and exact products on the host are most
#: of what such tests do, so they gain from cores; kernels of several processes take turns on the GPU.
MOST, MEMORY = 16, 6 * 2**30


def workers(cores: int, memory_bytes: int | None) -> int:
    """Processes that run the tests: one a core; with a GPU (of so much memory) fewer, so that some stay for threads."""
    if memory_bytes is None:
        return max(1, cores)
    return max(1, min(MOST, cores * 7 // 8, memory_bytes // MEMORY))


@contextmanager
def locked(path: Path, how: int) -> Iterator[None]:
    """A file locked for this process, with `how` of fcntl; the system lets go of it if the process ends."""
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield


@contextmanager
def turn(alone: bool, folder: Path) -> Iterator[None]:
    """Wait until nobody is alone on the GPU; or, to be alone, until everybody else's test has ended."""
    # Who waits to be alone keeps the door shut, or the others would follow each other for ever.
    with locked(folder / "door", fcntl.LOCK_EX):
        inside = locked(folder / "room", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        inside.__enter__()
    try:
        yield
    finally:
        inside.__exit__(None, None, None)
