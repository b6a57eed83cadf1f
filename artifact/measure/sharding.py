"""Points of an experiment dealt out by Dask's scheduler to workers, one a GPU, of a host or of a cluster.

`distributed.farm` starts them, and names the scheduler in the environment of the process that goes through a chapter.
That one hands in all points that are missing (`each`), and alone appends what comes back, point by point. A point is
never split: its contenders stay on one GPU. That of a worker that died goes to another. Without a scheduler the points
are measured here, in their order.
"""

import hashlib
import json
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from artifact.measure import device

#: Set to the address of Dask's scheduler in the process that deals.
VARIABLE = "SPARSITY_SCHEDULER"
#: Beside the records: for each experiment, which GPU measured which point.
FOLDER = ".dealt"

Point = TypeVar("Point")


def each(work: Callable[[Point], Any], points: Iterable[Point]) -> Iterator[tuple[Point, dict[str, str], Any]]:
    """Yield each point as it is done, who did it, and what `work` made of it.

    Who: ("gpu" and "host"; nothing where nobody dealt). Raises what `work` raises.
    """
    if VARIABLE not in os.environ:
        yield from ((point, {}, work(point)) for point in points)
        return
    import cloudpickle
    from distributed import Client, as_completed

    with Client(os.environ[VARIABLE]) as client:
        # Unpickled by the thread that measures, in which the GPU is current.
        futures = {client.submit(_there, cloudpickle.dumps((work, point)), pure=False): point for point in points}
        for future, (who, made) in as_completed(list(futures), with_results=True):
            yield futures[future], who, made


def _there(task: bytes) -> tuple[dict[str, str], Any]:
    if gpu := device.find():
        gpu.open()
    work, point = pickle.loads(task)
    host = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
    return {"gpu": os.environ.get("CUDA_VISIBLE_DEVICES", "0"), "host": host}, work(point)


def mark(folder: Path, experiment: str, name: str, who: dict[str, str]) -> None:
    """Write down which GPU measured a point, where points are dealt out."""
    if who:
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        line = {"point": name, **who, "when": datetime.now(UTC).isoformat(timespec="seconds")}
        with (folder / FOLDER / f"{experiment}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def marks(folder: Path, experiment: str) -> dict[str, str]:
    """Point -> "host gpu" that measured it; the host by a checksum of its name."""
    path = folder / FOLDER / f"{experiment}.jsonl"
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines() if path.is_file() else ())
    return {line["point"]: f"{line['host']} {line['gpu']}" for line in lines}
