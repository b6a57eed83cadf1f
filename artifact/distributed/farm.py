"""`make measure GPUS=all`: the points of all experiments dealt out to the GPUs of a host, or of a cluster.

    python -m artifact.distributed.farm --gpus all --target build/farm notebooks/*.ipynb -- --preset full
    python -m artifact.distributed.farm --scheduler tcp://head:8786 --target … notebooks/*.ipynb

Dask gives each GPU every chapter, in a process of its own. A chapter goes through its points as always, and measures
those that no other has begun (`artifact.measure.dealt`). With --scheduler the GPUs are those of a cluster, whose
workers, one a GPU with CUDA_VISIBLE_DEVICES set, share this folder. Interrupted, it goes on from what is recorded; a
process that dies takes its point with it, and another measures that.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from artifact import command
from artifact.measure import dealt
from artifact.paths import ROOT

#: Times that a chapter is begun again on a GPU where its process died.
RETRIES = 2


def visible(asked: str, environment=os.environ) -> list[str]:
    """CUDA's numbers, or UUIDs, of the GPUs that "all" or "0,2" names.

    Raises ValueError, one sentence, where there are none, or one is named twice or is not there.
    """
    given = environment.get("CUDA_VISIBLE_DEVICES")
    known = _counted() if given is None else [x for x in given.split(",") if x]
    if not known:
        raise ValueError("there is no GPU here that CUDA shows: measure where there is one")
    chosen = known if asked == "all" else asked.split(",")
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


def execute(notebook: str, gpu: str | None, target: str, options: Sequence[str]) -> str:
    """Run a chapter in a process of its own; what it says at the end where it failed, else nothing.

    gpu: of this process; None on a cluster, whose worker knows by CUDA_VISIBLE_DEVICES. target: folder of what GPUs
    execute. Raises RuntimeError where the process was ended by a signal.
    """
    gpu = os.environ.get("CUDA_VISIBLE_DEVICES", "0") if gpu is None else gpu
    to = Path(target) / gpu / Path(notebook).name
    to.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "artifact.build", "notebook", notebook, str(to), *options],
        cwd=ROOT,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": gpu, dealt.VARIABLE: gpu},
        capture_output=True,
        encoding="utf-8",
        errors="replace",
    )
    last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    if done.returncode < 0:  # killed: it may go well next time
        raise RuntimeError(f"{to.stem} on GPU {gpu} was ended by signal {-done.returncode}: {last}")
    return f"{to.stem} on GPU {gpu}: {last.removeprefix('error: ')}" if done.returncode else ""


def work(given: command.Options, options: tuple[str, ...] = ()) -> int:
    """Give every GPU every chapter that `given` names, in order; options: of each chapter."""
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError:
        raise ValueError(
            "points are dealt out by Dask, which is not installed: pip install distributed, or leave GPUS out"
        ) from None
    with contextlib.ExitStack() as stack:
        if given.scheduler:
            client = stack.enter_context(Client(given.scheduler, timeout=20))
            gpus: dict[str, str | None] = dict.fromkeys(client.nthreads())
        else:
            chosen = visible(given.gpus)
            how: Any = {"threads_per_worker": 1, "processes": False, "dashboard_address": None}
            client = stack.enter_context(Client(stack.enter_context(LocalCluster(n_workers=len(chosen), **how))))
            gpus = dict(zip(client.nthreads(), chosen, strict=True))
        print(f"measure: {len(given.notebooks)} chapters on {len(gpus)} GPUs", flush=True)
        futures = {}
        for (number, name), (worker, gpu) in product(enumerate(given.notebooks), gpus.items()):
            where: Any = {"workers": [worker], "pure": False, "retries": RETRIES, "priority": -number}
            future = client.submit(execute, name, gpu, given.target, options, **where)
            futures[future] = f"{Path(name).stem} on GPU {gpu or worker}"
        failed = []
        for future in as_completed(list(futures)):
            why = str(future.exception()) if future.status == "error" else future.result()
            print(f"{futures[future]}: {'failed' if why else 'done'}", flush=True)
            failed += [why] * bool(why)
    for why in failed:
        command.failed(why)
    return 1 if failed else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Deal chapters out; what stands behind -- are the options of each."""
    given = list(sys.argv[1:] if argv is None else argv)
    at = given.index("--") if "--" in given else len(given)
    options = (
        command.option("notebooks", nargs="+"),
        command.option("--gpus", default="all", help='"all", or numbers: 0,2'),
        command.option("--scheduler", help="address of a Dask cluster's scheduler"),
        command.option("--target", required=True, help="folder of the executed chapters"),
    )
    of_each = partial(work, options=tuple(given[at + 1 :]))
    return command.run(of_each, "artifact.distributed.farm", __doc__, options, given[:at])


if __name__ == "__main__":
    sys.exit(main())
