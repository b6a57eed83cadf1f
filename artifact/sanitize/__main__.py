"""Run every kernel under memcheck, initcheck, synccheck and racecheck, a process for each room and tool.

    python -m artifact.sanitize [--rooms ...] [--tools ...] [--only TEXT] [--jobs N] [--limit SECONDS]

First without a tool, which compiles what is missing, compares results with the oracle's and says which kernels there
are; those that copy by TMA are left out of racecheck, which does not see it. Then under each tool, several processes
side by side. Logs lie in build/sanitize. Exit status 1 where a tool reports a kernel of ours, a result is wrong, a
process hangs or breaks off, or a kernel of a case never ran.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from artifact import paths, registry
from artifact.sanitize import cases, jobs
from artifact.sanitize.jobs import TOOLS, Ran

LIMIT_S = 420
#: Folders of kernels that no case runs: ceilings measure, and compute nothing.
LEFT_OUT = ("ceilings/",)


def main(arguments: Sequence[str] | None = None) -> int:
    given = _arguments(arguments)
    try:
        if given.tools:
            jobs.sanitizer()
        _compile_all()
    except (FileNotFoundError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    folder = paths.BUILD / "sanitize"
    with ThreadPoolExecutor(given.jobs) as pool:

        def run(number: int, room: str, tool: str, kernels: dict[str, bool]) -> Ran:
            made = jobs.run(
                room,
                tool,
                folder / f"{room}-{tool or 'alone'}",
                kernels,
                given.limit,
                number=number,
                only=given.only,
            )
            print(row(made), flush=True)
            return made

        print(row(None), flush=True)
        alone = list(pool.map(lambda job: run(job[0], job[1], "", {}), enumerate(given.rooms)))
        kernels = {made.room: made.kernels for made in alone}
        asked = [
            (room, tool)
            for room in given.rooms
            for tool in given.tools
            if tool != "racecheck" or not all(kernels[room].values())
        ]
        watched = list(pool.map(lambda job: run(job[0], *job[1], kernels[job[1][0]]), enumerate(asked)))
    every = [*alone, *watched]
    print(*details(every), sep="\n")
    if not given.only and set(given.rooms) == set(cases.find()):
        missing = never_loaded(kernels)
        print(*missing, sep="\n")
        return int(bool(missing) or not all(made.is_right for made in every))
    return int(not all(made.is_right for made in every))


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m artifact.sanitize", description=__doc__.splitlines()[0])
    names = list(cases.find())
    parser.add_argument("--rooms", nargs="+", choices=names, default=names)
    parser.add_argument(
        "--tools",
        nargs="*",
        choices=TOOLS,
        default=list(TOOLS),
        help="none: results alone are compared",
    )
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, min(6, (os.cpu_count() or 1) // 2)),
        help="processes side by side",
    )
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that a process may take")
    return parser.parse_args(arguments)


def _compile_all() -> None:
    """Every declared entry of every room, on all cores; raises RuntimeError, one sentence, where there is no GPU."""
    from artifact.measure import device
    from kernels import jit

    arch = jit.arch_of(device.require().open())
    parts = [importlib.import_module(f"kernels.{name}") for name in registry.profiles()]
    kernels = [kernel for part in parts for kernel in part.VARIANTS.values()]
    asked = {(kernel.source, entry, arch) for kernel in kernels if arch in kernel.targets for entry in kernel.entries}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda job: jit.compile_cubin(*job), sorted(asked)))


def row(made: Ran | None) -> str:
    """A line of the table; None: its head."""
    form = "{:16} {:10} {:>6} {:>8} {:>8} {:>7} {:>7}  {}"
    if made is None:
        return form.format("room", "tool", "cases", "kernels", "seconds", "errors", "wrong", "")
    return form.format(
        made.room,
        made.tool or "none",
        len(made.ran),
        len(made.kernels),
        f"{made.seconds:.0f}",
        made.errors,
        len(made.failed),
        made.broken or ("" if made.is_right else "see below"),
    ).rstrip()


def details(every: Sequence[Ran]) -> list[str]:
    """What is not right, a line each; what fails in the same way is said once with its number."""
    said = []
    for made in every:
        where = f"{made.room}, {made.tool or 'no tool'}"
        said += [f"{where}: {count} x {report}" for report, count in made.found]
        by_reason: dict[str, list[str]] = {}
        for case, reason in made.failed.items():
            by_reason.setdefault(reason, []).append(case)
        for reason, names in by_reason.items():
            more = f" and {len(names) - 1} others" if len(names) > 1 else ""
            said.append(f"{where}: {names[0]}{more}: {reason}")
        said += [
            f"{where}: {name} never ran: {next(r for c, r in made.refused.items() if c.startswith(name))}"
            for name in made.never
        ]
        if made.broken:
            said.append(f"{where}: {made.broken}")
    return said


def never_loaded(kernels: dict[str, dict[str, bool]], root: Path = paths.ROOT / "kernels") -> list[str]:
    """Kernels in the sources that no room has loaded, a line each."""
    ran = {name for found in kernels.values() for name in found}
    return [
        f"{name} of {file} is run by no case: add one to its room's sanitize.py, or to artifact/sanitize/cases.py"
        for name, file in jobs.declared(root).items()
        if name not in ran and not file.startswith(LEFT_OUT)
    ]


if __name__ == "__main__":
    sys.exit(main())
