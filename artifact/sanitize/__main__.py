"""Run every kernel under memcheck, initcheck, synccheck and racecheck, a process for each system and tool.

    python -m artifact.sanitize [--rooms ...] [--tools ...] [--only TEXT] [--jobs N] [--limit SECONDS]

First without a tool, which compiles what is missing, compares results with the oracle's and says which kernels there
are; those that copy by TMA are left out of racecheck, which does not see it. Then under each tool, several processes
side by side. Logs lie in build/sanitize. Exit status 1 where a tool reports a kernel of ours, a result is wrong, a
process hangs or breaks off, or a kernel of a case never ran.
"""

import importlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, namedtuple
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, product
from pathlib import Path
from typing import Any

from artifact import command, paths, registry
from artifact.sanitize import cases

TOOLS = ("memcheck", "initcheck", "synccheck", "racecheck")
#: What each tool is told besides. memcheck: guard bytes around arrays, a kernel that errs ends alone, and what CuPy
#: asks of the driver is its own business; initcheck: copies to the host are no kernels.
OPTIONS = {
    "memcheck": ("--padding", "256", "--destroy-on-device-error", "kernel", "--report-api-errors", "no"),
    "initcheck": ("--check-api-memory-access", "no"),
    "synccheck": (),
    "racecheck": (),
}
NAMES = list(cases.find())
CHILD = (sys.executable, "-m", "artifact.sanitize.cases")


def sanitizer() -> str:
    """Return the path of compute-sanitizer: on the PATH, else in the environment.

    Raises FileNotFoundError, one sentence.
    """
    installed = (
        str(x)
        for at in filter(None, sys.path)
        for place in ("compute-sanitizer", "bin")  # of the package's versions
        for x in Path(at).glob(f"nvidia/*/{place}/compute-sanitizer")
    )
    found = shutil.which("compute-sanitizer") or next(installed, None)
    if found is None:
        raise FileNotFoundError(
            "compute-sanitizer is not on the PATH: install a CUDA toolkit, or the package nvidia-cuda-sanitizer-api"
        )
    return found


# ---------------------------------------------------------------- what a tool wrote

_PREFIX = "========= "
#: A line that begins a report, and indented ones.
_REPORT = re.compile(r"^(\S.*)((?:\n .*)*)", re.MULTILINE)
_WHERE = re.compile(r"^(.*?)\bat (?:void )?([A-Za-z_][\w:]*)[^ \n]*(?:.* in (\S+:\d+))?", re.MULTILINE)
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
#: What is said beside reports.
_SAID = re.compile(r"COMPUTE-SANITIZER|SUMMARY|LEAK|This tool|No errors|Target application|Host Frame|Saved host")


class Report(namedtuple("Report", "kind kernel where")):
    """What is wrong, as the tool says it; the kernel, "" where it names none; file and line, "" likewise."""

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.kind, " in ".join(filter(None, (self.kernel, self.where))))))


def read_log(text: str, kernels: Collection[str] = ()) -> tuple[list[tuple[Report, int]], int | None]:
    """Return the reports in a log of any tool, how often each, and errors or hazards as the tool counts them.

    kernels: reports of theirs alone, and those without one; all where none are named. None where it came to no end.

    A report is a line that begins it and indented ones, the first place of which is its own.
    """
    lines = [line.removeprefix(_PREFIX) for line in text.splitlines() if line.startswith(_PREFIX)]
    counted = [int(found[1]) for found in map(_SUMMARY.search, lines) if found]
    said = "\n".join(line for line in lines if line.strip() and not _SAID.search(line))
    reports: Counter[Report] = Counter()
    for first, more in _REPORT.findall(said):
        own = _WHERE.search(first)  # it may name the kernel and its line
        place = own or _WHERE.search(more)
        reports[Report((own[1] if own else first).strip(), *(place.groups("")[1:] if place else ("", "")))] += 1
    ours = [(x, many) for x, many in reports.most_common() if not kernels or x.kernel in {*kernels, ""}]
    return ours, sum(counted) if counted else None


# ---------------------------------------------------------------- a job


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
    found: list[tuple[Report, int]] = field(default_factory=list)
    broken: str = ""  #: what is wrong with the run itself

    @property
    def never(self) -> list[str]:
        """Kernels of cases that were refused on every problem."""
        tried = {case.split(",")[0] for case in (*self.ran, *self.failed, *self.unseen)}
        return sorted({case.split(",")[0] for case in self.refused} - tried)

    @property
    def is_right(self) -> bool:
        """Tell whether every case ran, was right and gave no report."""
        return not (self.found or self.failed or self.never or self.broken)


def words(
    system: str,
    tool: str,
    folder: Path,
    kernels: Iterable[str],
    *,
    number: int = 0,
    only: str = "",
    child: Sequence[str] = CHILD,
) -> list[str]:
    """Return what is executed.

    kernels: that the tool looks at; number: of the job, for a port of its own; only: of cases.
    """
    inner = [*child, system, str(folder / "cases.jsonl"), "--tool", tool, *(["--only", only] if only else [])]
    if not tool:
        return inner
    # The mangled names of kernels, which are no members of anything.
    mangled = f"regex=^_Z[0-9]+({'|'.join(sorted(kernels))})"
    return [
        *(sanitizer(), "--tool", tool, *OPTIONS[tool]),
        # initcheck must see what CuPy's kernels write, since ours read it: nothing is left out, and reports are sorted.
        *(() if tool == "initcheck" else ("--kernel-name", mangled)),
        *("--port", str(49152 + 20 * number)),
        *("--print-limit", "1000", "--show-backtrace", "device", "--demangle", "simple"),
        *("--log-file", str(folder / "log.txt")),
        *inner,
    ]


def run(system: str, tool: str, folder: Path, kernels: dict[str, bool], limit_s: float, **more) -> Ran:
    """Run a job in `folder`, a new one, for at most `limit_s` seconds. kernels: of the system, where they are known.

    A process that hangs is ended, and the case that it was at is named.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    made = Ran(system, tool)
    watched = [name for name, copies in kernels.items() if tool != "racecheck" or not copies]
    begin = time.perf_counter()
    with (folder / "output.txt").open("w", encoding="utf-8") as output:
        process = subprocess.Popen(
            words(system, tool, folder, watched, **more),
            cwd=paths.ROOT,
            stdout=output,
            stderr=output,
            env=os.environ
            | {
                "SPARSITY_CHOICES": str(folder / "choices"),
                "PYTHONPATH": os.pathsep.join([str(paths.ROOT), *sys.path]),
            },
            start_new_session=True,
        )
        status: int | None = None
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    made.seconds = time.perf_counter() - begin
    at, ended = _read_cases(made, folder / "cases.jsonl")
    made.found, counted = read_log(_text(folder / "log.txt"), kernels if tool == "initcheck" else ())
    if tool:
        made.kernels = {name: copies for name, copies in made.kernels.items() if name in watched}
    if status is None:
        made.broken = f"not through after {limit_s:.0f} s, in {at or 'its beginning'}: ended"
    elif not ended:
        why = _text(folder / "output.txt").rstrip().rpartition("\n")[2].strip()
        made.broken = f"ended with status {status} in {at or 'its beginning'}" + f": {why}" * bool(why)
    elif tool and counted is None:
        made.broken = f"{tool} wrote no summary: see {folder / 'log.txt'}"
    return made


def _read_cases(made: Ran, path: Path) -> tuple[str, bool]:
    """Return (the case that was begun and not ended, whether the process came to its end).

    Fills in what came of cases.
    """
    # The last line may be cut.
    lines: list[dict[str, Any]] = [{}, *(json.loads(x) for x in _text(path).splitlines(True) if x.endswith("\n"))]
    kinds, done = ("refused", "unseen", "failed"), [line for line in lines if "done" in line]
    made.refused, made.unseen, made.failed = ({x["case"]: x[kind] for x in done if kind in x} for kind in kinds)
    made.ran = {line["case"] for line in done if not {*kinds} & {*line}}
    made.kernels = {name: copies for line in done for name, copies in line["kernels"].items()}
    last = lines[-1]
    return "" if "done" in last else last.get("case", ""), "end" in last


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


_GLOBAL = re.compile(r"__global__\s+void\s+(?:__\w+__\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*)*(\w+)\s*\(")


# ---------------------------------------------------------------- the whole


@command.program(
    "artifact.sanitize",
    str(__doc__).splitlines()[0],
    command.option("--rooms", nargs="+", choices=NAMES, default=NAMES),
    command.option("--tools", nargs="*", choices=TOOLS, default=list(TOOLS), help="none: results alone are compared"),
    command.option("--only", default="", help="cases whose name has this text"),
    command.option("--jobs", type=int, default=max(1, min(6, (os.cpu_count() or 1) // 2)), help="side by side"),
    command.option("--limit", type=float, default=420, help="seconds that a process may take"),
)
def main(given: command.Options) -> int:
    """Run the cases of the chosen systems alone, then under every chosen tool, and print the report."""
    try:
        if given.tools:
            sanitizer()
        _compile_all()
    except RuntimeError as error:
        return command.failed(error)

    def job(number: int, system: str, tool: str, kernels: dict[str, bool]) -> Ran:
        folder = paths.BUILD / "sanitize" / f"{system}-{tool or 'alone'}"
        made = run(system, tool, folder, kernels, given.limit, number=number, only=given.only)
        print(row(made), flush=True)
        return made

    with ThreadPoolExecutor(given.jobs) as pool:
        print(HEAD, flush=True)
        alone = list(pool.map(lambda number, system: job(number, system, "", {}), count(), given.rooms))
        kernels = {made.room: made.kernels for made in alone}
        asked = [
            (system, tool, kernels[system])
            for system, tool in product(given.rooms, given.tools)
            if tool != "racecheck" or not all(kernels[system].values())
        ]
        every = [*alone, *pool.map(lambda number, asked: job(number, *asked), count(), asked)]
    missing = never_loaded(kernels) if not given.only and set(given.rooms) == set(NAMES) else []
    print(*details(every), *missing, sep="\n")
    return int(bool(missing) or not all(made.is_right for made in every))


def _compile_all() -> None:
    """Every declared entry of every system, on all cores; raises RuntimeError, one sentence, where there is no GPU."""
    from artifact.measure import device
    from kernels import jit

    arch = jit.arch_of(device.require().open())
    systems = [importlib.import_module(f"kernels.{name}").VARIANTS.values() for name in registry.profiles()]
    asked = {(x.source, entry, arch) for system in systems for x in system if arch in x.targets for entry in x.entries}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: jit.compile_cubin(*job), sorted(asked)))


FORM = "{:16} {:10} {:>6} {:>8} {:>8} {:>7} {:>7}  {}"
HEAD = FORM.format("room", "tool", "cases", "kernels", "seconds", "errors", "wrong", "").rstrip()


def row(made: Ran) -> str:
    """Return a line of the table."""
    errors = sum(count for _, count in made.found)
    counts = len(made.ran), len(made.kernels), f"{made.seconds:.0f}", errors, len(made.failed)
    said = made.broken or ("" if made.is_right else "see below")
    return FORM.format(made.room, made.tool or "none", *counts, said).rstrip()


def details(every: Sequence[Ran]) -> list[str]:
    """Return what is not right, a line each; what fails in the same way is said once with its number."""
    said = []
    for made in every:
        alike = {why: [case for case in made.failed if made.failed[case] == why] for why in made.failed.values()}
        lines = [
            *(f"{count} x {report}" for report, count in made.found),
            *(f"{first}{f' and {len(more)} others' if more else ''}: {why}" for why, (first, *more) in alike.items()),
            *(
                f"{name} never ran: {next(why for case, why in made.refused.items() if case.startswith(name))}"
                for name in made.never
            ),
            *filter(None, [made.broken]),
        ]
        said += [f"{made.room}, {made.tool or 'no tool'}: {line}" for line in lines]
    return said


def never_loaded(kernels: dict[str, dict[str, bool]], root: Path = paths.ROOT / "kernels") -> list[str]:
    """Kernels in the sources that no system has loaded, a line each."""
    ran = {name for found in kernels.values() for name in found}
    return [
        f"{name} of {path.relative_to(root)} is run by no case: add one to its system's sanitize.toml or .py, or to "
        "artifact/sanitize/cases.py"
        for path in sorted(root.rglob("*.cu*"))
        for name in dict.fromkeys(_GLOBAL.findall(path.read_text(encoding="utf-8")))
        if name not in ran and not path.is_relative_to(root / "ceilings")  # which measure, and compute nothing
    ]


if __name__ == "__main__":
    raise SystemExit(main())
