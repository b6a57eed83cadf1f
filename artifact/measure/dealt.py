"""Points of an experiment dealt out to several processes, one a GPU, that measure into one folder of records.

Every process goes through the same points. One that begins with a point locks a file of it: the others leave it out,
and look again at the end. A lock ends with its process, so that the point of one that died is taken by another. A point
is never split: its contenders stay on one GPU. `distributed.farm` starts the processes, and tells each by a variable of
the environment which GPU it has; without it nothing is locked.
"""

import fcntl
import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

#: Set to a GPU's name, "0" say, in the process that measures on it.
VARIABLE = "SPARSITY_DEALT"
#: Beside the records: locks, and for each experiment which GPU measured which point.
FOLDER = ".dealt"


def gpu() -> str:
    """Which of several GPUs this process measures on; empty where it is the only one."""
    return os.environ.get(VARIABLE, "")


def points(todo: Iterable, folder: Path, name: Callable, there: Callable) -> Iterator:
    """Those of the points that this process shall measure, each locked until the next is asked for.

    name: point -> text, the same in all processes. there: point -> whether the record has it by now.
    """
    later: list = []
    for waits in (False, True):
        for point in later if waits else todo:
            file = hashlib.sha256(name(point).encode()).hexdigest()[:16]
            with _locked(folder, file, waits) as mine:
                if not mine:
                    later.append(point)
                elif not (gpu() and there(point)):
                    yield point


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Nobody else changes the folder's records meanwhile."""
    with _locked(folder, "records", True):
        yield


def mark(folder: Path, experiment: str, name: str) -> None:
    """Write down that this process's GPU measured a point."""
    if gpu():
        host, when = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8], datetime.now(UTC)
        line = {"point": name, "gpu": gpu(), "host": host, "when": when.isoformat(timespec="seconds")}
        with (folder / FOLDER / f"{experiment}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def marks(folder: Path, experiment: str) -> dict[str, str]:
    """Point -> "host gpu" that measured it; the host by a checksum of its name."""
    path = folder / FOLDER / f"{experiment}.jsonl"
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines() if path.is_file() else ())
    return {line["point"]: f"{line['host']} {line['gpu']}" for line in lines}


@contextmanager
def _locked(folder: Path, name: str, waits: bool) -> Iterator[bool]:
    """Whether the lock was had; without several GPUs there is none."""
    if not gpu():
        yield True
        return
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    with (folder / FOLDER / f"{name}.lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
