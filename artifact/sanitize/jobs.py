"""One room under one tool: the command, its end or the end of its time, and what came of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from artifact import paths
from artifact.sanitize import reports

TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
#: What each tool is told besides. memcheck: guard bytes around arrays, a kernel that errs ends alone, and what CuPy
#: asks of the driver is its own business; initcheck: copies to the host are no kernels.
OPTIONS = {
    "memcheck": ("--padding", "256", "--destroy-on-device-error", "kernel", "--report-api-errors", "no"),
    "initcheck": ("--check-api-memory-access", "no"),
    "synccheck": (),
    "racecheck": (),
}
#: initcheck must see what CuPy's kernels write, since ours read it: nothing is left out there, and reports are sorted.
UNFILTERED = ("initcheck",)
CHILD = (sys.executable, "-m", "artifact.sanitize.child")


def sanitizer() -> str:
    """The path of compute-sanitizer: on the PATH, else in the environment. Raises FileNotFoundError, one sentence."""
    found = shutil.which("compute-sanitizer")
    if found is None:
        places = ("compute-sanitizer", "bin")  # of the package's versions
        found = next(
            (
                str(x)
                for at in filter(None, sys.path)
                for place in places
                for x in Path(at).glob(f"nvidia/*/{place}/compute-sanitizer")
            ),
            None,
        )
    if found is None:
        raise FileNotFoundError(
            "compute-sanitizer is not on the PATH: install a CUDA toolkit, or the package nvidia-cuda-sanitizer-api"
        )
    return found


def name_filter(kernels: Iterable[str]) -> str:
    """A regular expression for the mangled names of kernels, which are no members of anything."""
    return f"regex=^_Z[0-9]+({'|'.join(sorted(kernels))})"


@dataclass
class Ran:
    """What came of a job."""

    room: str
    tool: str  #: "" without one
    seconds: float = 0.0
    ran: set[str] = field(default_factory=set)  #: names of cases
    refused: dict[str, str] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)  #: what the tool cannot run
    failed: dict[str, str] = field(default_factory=dict)
    kernels: dict[str, bool] = field(default_factory=dict)  #: name -> whether it copies by TMA
    found: list[tuple[reports.Report, int]] = field(default_factory=list)
    broken: str = ""  #: what is wrong with the run itself

    @property
    def never(self) -> list[str]:
        """Kernels of cases that were refused on every problem."""
        return sorted({_who(x) for x in self.refused} - {_who(x) for x in (*self.ran, *self.failed, *self.unseen)})

    @property
    def errors(self) -> int:
        return sum(count for _, count in self.found)

    @property
    def is_right(self) -> bool:
        return not (self.found or self.failed or self.never or self.broken)


def _who(case: str) -> str:
    return case.split(",")[0]


def command(
    room: str,
    tool: str,
    folder: Path,
    kernels: Iterable[str],
    *,
    number: int = 0,
    only: str = "",
    child: Sequence[str] = CHILD,
) -> list[str]:
    """What is executed. kernels: that the tool looks at; number: of the job, for a port of its own; only: of cases."""
    inner = [*child, room, str(folder / "cases.jsonl"), "--tool", tool]
    inner += ["--only", only] if only else []
    if not tool:
        return inner
    names = [] if tool in UNFILTERED else ["--kernel-name", name_filter(kernels)]
    return [
        sanitizer(),
        "--tool",
        tool,
        *OPTIONS[tool],
        *names,
        "--port",
        str(49152 + 20 * number),
        "--print-limit",
        "1000",
        "--show-backtrace",
        "device",
        "--demangle",
        "simple",
        "--log-file",
        str(folder / "log.txt"),
        *inner,
    ]


def run(room: str, tool: str, folder: Path, kernels: dict[str, bool], limit_s: float, **more) -> Ran:
    """Run a job in `folder`, a new one, for at most `limit_s` seconds. kernels: of the room, where they are known.

    A process that hangs is ended, and the case that it was at is named.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = Ran(room, tool)
    watched = [name for name, copies in kernels.items() if tool != "racecheck" or not copies]
    begin = time.perf_counter()
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            command(room, tool, folder, watched, **more),
            cwd=paths.ROOT,
            stdout=output,
            stderr=output,
            env=os.environ | {"SPARSITY_CHOICES": str(folder / "choices"), "PYTHONPATH": str(paths.ROOT)},
            start_new_session=True,
        )
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            status = None
    made.seconds = time.perf_counter() - begin
    at, ended = _read_cases(made, folder / "cases.jsonl")
    log = reports.read(_text(folder / "log.txt"))
    if tool:
        made.kernels = {name: copies for name, copies in made.kernels.items() if name in watched}
        made.found = log.grouped(kernels if tool in UNFILTERED else ())
    if status is None:
        made.broken = f"not through after {limit_s:.0f} s, in {at or 'its beginning'}: ended"
    elif not ended:
        why = _last_line(folder / "output.txt")
        made.broken = f"ended with status {status} in {at or 'its beginning'}" + (f": {why}" if why else "")
    elif tool and log.counted is None:
        made.broken = f"{tool} wrote no summary: see {folder / 'log.txt'}"
    return made


def _read_cases(made: Ran, path: Path) -> tuple[str, bool]:
    """(the case that was begun and not ended, whether the process came to its end); fills in what came of cases."""
    at, ended = "", False
    for line in _text(path).splitlines():
        try:
            said = json.loads(line)
        except ValueError:  # cut in the middle
            continue
        if "end" in said:
            ended = True
        elif "done" not in said:
            at = said["case"]
            continue
        else:
            made.kernels |= said["kernels"]
            for kind, into in (
                ("refused", made.refused),
                ("unseen", made.unseen),
                ("failed", made.failed),
            ):
                if kind in said:
                    into[said["case"]] = said[kind]
                    break
            else:
                made.ran.add(said["case"])
        at = ""
    return at, ended


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def _last_line(path: Path) -> str:
    lines = [line for line in _text(path).splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


_GLOBAL = re.compile(r"__global__\s+void\s+(?:__\w+__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*)*(\w+)\s*\(")


def declared(root: Path) -> dict[str, str]:
    """Kernel -> the file that has it, below a folder."""
    return {
        name: str(path.relative_to(root))
        for path in sorted(root.rglob("*.cu*"))
        for name in _GLOBAL.findall(path.read_text(encoding="utf-8"))
    }
