"""`make measure GPUS=all`: the points of all experiments dealt out to the GPUs of a host, or of a cluster.

    python -m artifact.distributed.farm --gpus all --target build/farm notebooks/*.ipynb -- --preset full
    python -m artifact.distributed.farm --scheduler tcp://head:8786 --target … notebooks/*.ipynb

Dask gives each GPU every chapter, in a process of its own. A chapter goes through its points as always, and measures
those that no other has begun (`artifact.measure.dealt`). With --scheduler the GPUs are those of a cluster, whose
workers, one a GPU with CUDA_VISIBLE_DEVICES set, share this folder. Interrupted, it goes on from what is recorded; a
process that dies takes its point with it, and another measures that.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from artifact.measure import dealt
from artifact.paths import ROOT

#: Times that a chapter is begun again on a GPU where its process died.
RETRIES = 2


@dataclass(frozen=True)
class Task:
    """A chapter on a GPU."""

    notebook: str
    target: str
    options: tuple[str, ...]


def visible(asked: str, environment=os.environ) -> list[str]:
    """CUDA's numbers, or UUIDs, of the GPUs that "all" or "0,2" names.

    Raises ValueError, one sentence, where there are none, or one is named twice or is not there.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    known = [x for x in given.split(",") if x] if given is not None else _counted()
    if not known:
        raise ValueError("there is no GPU here that CUDA shows: measure where there is one")
    if asked == "all":
        return known
    chosen = asked.split(",")
    for gpu in chosen:
        if gpu not in known:
            raise ValueError(f"GPU {gpu!r} is not here: choose among {', '.join(known)}, or say all")
        if chosen.count(gpu) > 1:
            raise ValueError(f"GPU {gpu} is named {chosen.count(gpu)} times: name each once")
    return chosen


def _counted() -> list[str]:
    try:
        from cuda.core import Device

        return [str(device.device_id) for device in Device.get_all_devices()]
    except Exception:  # no library, no driver: each raises its own
        return []


def execute(task: Task, gpu: str | None = None) -> str:
    """Run a chapter in a process of its own; what it says at the end where it failed, else nothing.

    gpu: of this process; None on a cluster, whose worker knows by CUDA_VISIBLE_DEVICES.
    """
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0") if gpu is None else gpu
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": gpu, dealt.VARIABLE: gpu}
    stem = Path(task.notebook).stem
    target = Path(task.target) / gpu / f"{stem}.ipynb"
    target.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "artifact.build", "notebook", task.notebook, str(target), *task.options],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode == 0:
        return ""
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if done.returncode < 0:  # killed: it may go well next time
        raise RuntimeError(f"{stem} on GPU {gpu} was ended by signal {-done.returncode}: {last}")
    return f"{stem} on GPU {gpu}: {last.removeprefix('error: ')}"


def deal(tasks: Sequence[Task], client, gpus: dict[str, str | None], say=print) -> list[str]:
    """Give every worker every chapter, in order; the sentences of those that failed. gpus: worker's address -> GPU."""
    from distributed import as_completed

    futures = {}
    for number, task in enumerate(tasks):
        for worker, gpu in gpus.items():
            future = client.submit(execute, task, gpu, workers=[worker], pure=False, retries=RETRIES, priority=-number)
            futures[future] = task, gpu or worker
    failed = []
    for future in as_completed(list(futures)):
        task, gpu = futures[future]
        why = str(future.exception()) if future.status == "error" else future.result()
        say(f"{Path(task.notebook).stem} on GPU {gpu}: {'failed' if why else 'done'}")
        if why:
            failed.append(why)
    return failed


def main(argv: list[str] | None = None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    at = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(prog="python -m artifact.distributed.farm")
    parser.add_argument("notebooks", nargs="+")
    parser.add_argument("--gpus", default="all", help='"all", or numbers: 0,2')
    parser.add_argument("--scheduler", help="address of a Dask cluster's scheduler")
    parser.add_argument("--target", required=True, help="folder of the executed chapters")
    given = parser.parse_args(argv[:at])
    tasks = [Task(name, given.target, tuple(argv[at + 1 :])) for name in given.notebooks]
    try:
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise ValueError(
                "points are dealt out by Dask, which is not installed: pip install distributed, or leave GPUS out"
            ) from None
        if given.scheduler:
            client = Client(given.scheduler, timeout=20)
            gpus: dict[str, str | None] = dict.fromkeys(client.nthreads())
            cluster = None
        else:
            chosen = visible(given.gpus)
            cluster = LocalCluster(n_workers=len(chosen), threads_per_worker=1, processes=False, dashboard_address=None)
            client = Client(cluster)
            gpus = dict(zip(client.nthreads(), chosen, strict=True))
        with client:
            print(f"measure: {len(tasks)} chapters on {len(gpus)} GPUs", flush=True)
            failed = deal(tasks, client, gpus, lambda text: print(text, flush=True))
        if cluster is not None:
            cluster.close()
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for why in failed:
        print(f"error: {why}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
