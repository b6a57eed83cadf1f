"""python -m artifact.rooms.async_sparse.prefill: measure what the page of the prefill shows, and nothing else.

What is there already is kept, so that an interrupted measurement goes on where it was.
"""

from __future__ import annotations

import argparse
import math
import sys
import time

from artifact.measure import device
from artifact.measure import run as harness
from artifact.rooms.async_sparse.arithmetic import ROOM
from artifact.rooms.async_sparse.prefill import experiments


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("--preset", choices=("full", "kick"), default="full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--records", default="", help="folder of records; fresh ones in build/ by default")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which nothing new is begun")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    try:
        run = harness.start(ROOM, "measure", preset=chosen.preset, seed=chosen.seed, records=chosen.records)
    except (device.NoGpu, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not experiments.can_measure(run):
        needs = ", ".join(experiments.NEEDS)
        print(f"error: a prefill needs a GPU of compute capability 9.0, and {needs}", file=sys.stderr)
        return 1
    for what, measure in experiments.steps(run):
        if time.monotonic() - began > chosen.budget:
            print(f"left for another time: {what}")
        else:
            measure()
    print(f"records: {run.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
