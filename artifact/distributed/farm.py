"""`make measure GPUS=all`: the points of all experiments dealt out to the GPUs of a host, or of a cluster.

    python -m artifact.distributed.farm --gpus all --target build/farm notebooks/*.ipynb -- --preset full
    python -m artifact.distributed.farm --scheduler tcp://head:8786 --target … notebooks/*.ipynb

One chapter runs after the other, each in a process that hands its points to Dask's scheduler and appends what comes
back (`artifact.measure.run`); workers, one a GPU with CUDA_VISIBLE_DEVICES set and one thread, measure them. With
--scheduler they are those of a cluster, whose workers (`dask worker --nthreads 1 --memory-limit 0`) find this folder's
code. Interrupted, it goes on from what is recorded; the point of a worker that dies goes to another one.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from artifact import command
from artifact.measure.run import SCHEDULER
from artifact.paths import ROOT
from kernels.contract import require
from kernels.lazy import core

#: Of a worker: nothing looks at its thread while it measures, and it finds what is measured.
SETTINGS = {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False", "PYTHONPATH": str(ROOT)}


def visible(asked: str, environment=os.environ) -> list[str]:
    """CUDA's numbers, or UUIDs, of the GPUs that "all" or "0,2" names.

    Raises ValueError, one sentence, where there are none, or one is named twice or is not there.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    known = [x for x in (given or "").split(",") if x]
    if given is None:
        with suppress(Exception):  # without a library, or a driver: each raises its own
            known = [str(device.device_id) for device in core.Device.get_all_devices()]
    require(bool(known), "there is no GPU here that CUDA shows: measure where there is one")
    chosen = known if asked == "all" else asked.split(",")
    for gpu in chosen:
        require(gpu in known, f"GPU {gpu!r} is not here: choose among {', '.join(known)}, or say all")
        require(chosen.count(gpu) <= 1, f"GPU {gpu} is named {chosen.count(gpu)} times: name each once")
    return chosen


@contextmanager
def workers(gpus: Sequence[str]) -> Iterator[str]:
    """Start a scheduler of this host alone with a worker for each GPU; yields its address."""
    try:
        from distributed import Nanny, Scheduler, SpecCluster
    except ImportError:
        raise ValueError(
            "points are dealt out by Dask, which is not installed: pip install distributed, or leave GPUS out"
        ) from None
    of_each: Any = {"nthreads": 1, "memory_limit": 0, "host": "127.0.0.1"}
    made = {gpu: {"cls": Nanny, "options": of_each | {"env": SETTINGS | {"CUDA_VISIBLE_DEVICES": gpu}}} for gpu in gpus}
    alone = {"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, "dashboard": False}}
    with SpecCluster(workers=made, scheduler=alone) as cluster:
        yield cluster.scheduler_address


def execute(notebook: str, scheduler: str, target: str, options: Sequence[str]) -> str:
    """Run a chapter in a process of its own, which deals its points out; its last words where it failed, else nothing.

    target: folder of what is executed.
    """
    to = Path(target) / Path(notebook).name
    to.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "artifact.build", "notebook", notebook, str(to), *options],
        cwd=ROOT,
        env=os.environ | {SCHEDULER: scheduler},
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    return f"{to.stem}: {last.removeprefix('error: ')}" if done.returncode else ""


@command.program(
    "artifact.distributed.farm",
    __doc__,
    command.option("notebooks", nargs="+", help="and behind -- the options of each"),
    command.option("--gpus", default="all", help='"all", or numbers: 0,2'),
    command.option("--scheduler", help="address of a Dask cluster's scheduler"),
    command.option("--target", required=True, help="folder of the executed chapters"),
)
def main(given: command.Options) -> int:
    """Execute chapters, in order, with their points dealt out."""
    names = [x for x in given.notebooks if x.endswith(".ipynb")]
    options, failed = given.notebooks[len(names) :], []
    with nullcontext(given.scheduler) if given.scheduler else workers(visible(given.gpus)) as scheduler:
        print(f"measure: {len(names)} chapters, points dealt out by {scheduler}", flush=True)
        for name in names:
            why = execute(name, scheduler, given.target, options)
            print(f"{Path(name).stem}: {'failed' if why else 'done'}", flush=True)
            failed += [why] * bool(why)
    for why in failed:
        command.failed(why)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
