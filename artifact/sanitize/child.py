"""One process of `python -m artifact.sanitize`: the cases of a system in turn, as compute-sanitizer watches.

    python -m artifact.sanitize.child SYSTEM OUT [--tool TOOL] [--only TEXT]

Writes a line of JSON to OUT before each case, its name, and one after it: what came of it, and which kernels it loaded.
So a case that hangs or ends the process is known by its name.
"""

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from artifact import command

#: Opcodes of the copy engine on compute capability 9.0, without what says where operands lie: UTMALDG, UTMASTG, UBLKCP.
_COPIES = (0x1B4, 0x1B5, 0x1BA)
_CLUSTERS = (0x1C7,)  #: barriers of a cluster: UCGABAR


def by_copy_engine(instructions: bytes, opcodes: tuple[int, ...] = _COPIES) -> bool:
    """Whether a kernel's machine code copies by TMA, which racecheck does not see, or has other opcodes."""
    return bool(np.isin(np.frombuffer(instructions, "<u8")[::2] & 0x1FF, opcodes).any())


class Unseen(Exception):
    """A tool does not look at a kernel, and breaks when it is launched."""


class Loaded:
    """What `jit.load` loads, from when it is made on: kernel -> whether it copies by TMA.

    tool: "racecheck" refuses kernels that copy by TMA between the blocks of a cluster: it leaves them out and yet ends
    with "failed to handle a hardware exception" (CUDA 13.0's, on an H100).
    """

    def __init__(self, jit, tool: str = ""):
        self.kernels: dict[str, bool] = {}
        load = jit.load

        def noted(cubin, *more):
            name, instructions = cubin.entry.split("<")[0], jit._instructions(cubin)
            copies = self.kernels.setdefault(name, by_copy_engine(instructions))
            if tool == "racecheck" and copies and by_copy_engine(instructions, _CLUSTERS):
                raise Unseen(f"{name} copies by TMA in a cluster, which racecheck does not see")
            return load(cubin, *more)

        jit.load = noted

    def take(self) -> dict[str, bool]:
        """Those since the last call."""
        taken, self.kernels = self.kernels, {}
        return taken


def run(cases: Iterable, loaded: Loaded, only: str, write) -> None:
    """Run cases; write(line) for each. only: a text that their names have."""
    for name, work in ((name, work) for name, work in cases if only in name):
        write({"case": name})
        begin, said = time.perf_counter(), {}
        try:
            work()
        except (ValueError, Unseen) as error:
            said = {"unseen" if isinstance(error, Unseen) else "refused": str(error)}
        except Exception as error:  # a wrong result, or an error of the driver's
            said = {"failed": f"{type(error).__name__}: {error}".splitlines()[0]}
        seconds = round(time.perf_counter() - begin, 3)
        write({"case": name, "done": True, "kernels": loaded.take(), "seconds": seconds} | said)


@command.program(
    "artifact.sanitize.child",
    str(__doc__).splitlines()[0],
    command.option("room"),
    command.option("out", type=Path),
    command.option("--tool", default=""),
    command.option("--only", default="", help="cases whose name has this text"),
)
def main(given: command.Options) -> None:
    """Run the cases of one process, and write what was run and what was wrong."""
    import cupy

    from artifact.sanitize import cases
    from kernels import gpu, jit

    cupy.cuda.set_allocator(None)  # an array is an allocation: what lies beyond it is nobody's
    loaded, most = Loaded(jit, given.tool), jit.most_clusters
    jit.most_clusters = lambda *asked: min(cases.SMS // 2, most(*asked))
    with given.out.open("w", encoding="utf-8") as file:

        def write(line: dict) -> None:
            print(json.dumps(line), file=file, flush=True)

        run(cases.find()[given.room](cases.Lab(gpu.open_device(0), given.tool)), loaded, given.only, write)
        write({"end": True})


if __name__ == "__main__":
    sys.exit(main())
