"""What all tests share: how they run side by side, and what becomes of those that need a GPU where there is none."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from artifact import device as gpu

#: On a GPU: processes at most, and bytes of its memory for each. Compiling and exact products on the host are most
#: of what such tests do, so they gain from cores; kernels of several processes take turns on the GPU.
MOST, MEMORY = 12, 6 * 2**30
#: Held for as long as a test runs: by all but those marked `alone` together, by one of these for itself.
TURN = Path(tempfile.gettempdir()) / f"sparsity-on-trial-tests-{os.getuid()}"


def workers(cores: int, memory_bytes: int | None) -> int:
    """Processes that run the tests: one a core; with a GPU (of so much memory) fewer, so that some stay for threads."""
    if memory_bytes is None:
        return max(1, cores)
    return max(1, min(MOST, cores * 3 // 4, memory_bytes // MEMORY))


def pytest_xdist_auto_num_workers() -> int:
    info = gpu.find()
    return workers(len(os.sched_getaffinity(0)), info and info.memory_bytes)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and gpu.find() is None:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU with a driver here"))


@contextmanager
def locked(path: Path, how: int) -> Iterator[None]:
    """A file locked for this process, with `how` of fcntl; the system lets go of it if the process ends."""
    with path.open("a") as file:
        fcntl.flock(file, how)
        yield


@contextmanager
def turn(alone: bool, folder: Path = TURN) -> Iterator[None]:
    """Wait until nobody is alone on the GPU; or, to be alone, until everybody else's test has ended."""
    folder.mkdir(exist_ok=True)
    # Who waits to be alone keeps the door shut, or the others would follow each other for ever.
    with locked(folder / "door", fcntl.LOCK_EX):
        inside = locked(folder / "room", fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        inside.__enter__()
    try:
        yield
    finally:
        inside.__exit__(None, None, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item):
    """Where there is a GPU, every test waits for its turn: a busy host spoils timings as well."""
    if os.environ.get("PYTEST_XDIST_WORKER") is None or gpu.find() is None:
        return (yield)
    with turn(item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture(scope="session")
def device():
    """The GPU as a `cuda.core.Device`, current in this thread."""
    return gpu.require().open()
