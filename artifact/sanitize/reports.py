"""What a tool of compute-sanitizer wrote: its reports, by kind and kernel, and what it counts itself."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

_PREFIX = "========= "
_WHERE = re.compile(r"\bat (?:void )?([A-Za-z_][\w:]*)[^ ]*(?:.* in (\S+:\d+))?")
_SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)")
#: What is said beside reports.
_SAID = re.compile(r"COMPUTE-SANITIZER|SUMMARY|LEAK|This tool|No errors|Target application|Host Frame|Saved host")


@dataclass(frozen=True)
class Report:
    kind: str  #: what is wrong, as the tool says it
    kernel: str  #: "" where it names none
    where: str  #: file and line, "" likewise

    def __str__(self) -> str:
        return ", ".join(filter(None, (self.kind, " in ".join(filter(None, (self.kernel, self.where))))))


@dataclass(frozen=True)
class Log:
    reports: tuple[Report, ...]
    counted: int | None  #: errors or hazards, by the tool; None where it came to no end

    def grouped(self, kernels: Iterable[str] = ()) -> list[tuple[Report, int]]:
        """Reports, and how often each; kernels: theirs alone, and those without one; all where none are named."""
        names = set(kernels)
        mine = [x for x in self.reports if not names or not x.kernel or x.kernel in names]
        return Counter(mine).most_common()


def read(text: str) -> Log:
    """A log of any tool. A report is a line that begins it and indented ones, the first place of which is its own."""
    reports: list[Report] = []
    counted = None
    for line in text.splitlines():
        if not line.startswith(_PREFIX):
            continue
        said = line.removeprefix(_PREFIX)
        if summary := _SUMMARY.search(said):
            counted = (counted or 0) + int(summary[1])
        elif _SAID.search(said) or not said.strip():
            continue
        elif not said.startswith(" "):
            kind, kernel, where = _placed(said)
            reports.append(Report(kind, kernel, where))
        elif reports and not reports[-1].kernel and (found := _WHERE.search(said)):
            reports[-1] = Report(reports[-1].kind, found[1], found[2] or "")
    return Log(tuple(reports), counted)


def _placed(said: str) -> tuple[str, str, str]:
    """The kind of a report, and the kernel and the line that its first line may name."""
    found = _WHERE.search(said)
    if not found:
        return said.strip(), "", ""
    return said[: found.start()].strip(), found[1], found[2] or ""
