"""What the compiler makes of a system's kernels, for the tests that look at it."""

from __future__ import annotations

import functools
import os
import re
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernels import jit

_LOCK = Path(__file__).parents[2] / "requirements" / "base.lock"
#: The compiler that make installs, such as "13.1"; counts of instructions, as far as a test knows them, are its.
LOCKED = re.search(r"^nvidia-cuda-nvrtc==(\d+\.\d+)", _LOCK.read_text(), re.MULTILINE)[1]
#: How often `again` has kernels compiled anew.
AGAIN = 3
#: An entry and a target.
Key = tuple[str, str]


class Reports(dict[Key, tuple[jit.Resources, dict[str, int]]]):
    """Resources and instruction mix of kernels; `cubins` are what they were read from."""

    def __init__(self, cubins: dict[Key, jit.Cubin]) -> None:
        super().__init__(zip(cubins, jit.reports(cubins.values()), strict=True))
        self.cubins = cubins

    @functools.cached_property
    def listings(self) -> dict[Key, list[str]]:
        """Instructions of each, in order, where all are for one target."""
        return dict(zip(self.cubins, jit.listings(self.cubins.values()), strict=True))

    def anew(self) -> Reports:
        """Of the same kernels, compiled once more."""
        return Reports(_compiled([(cubin.source, *key) for key, cubin in self.cubins.items()], anew=True))


def again(test: Callable[..., None]) -> Callable[..., None]:
    """For a test to which machine code is right that the compiler makes as a rule.

    A compilation now and then comes out otherwise (see `jit.compile_cubin`). What does not hold of `reports` is
    therefore asked of the same kernels compiled anew, and is wrong where it does not hold of those.
    """

    @functools.wraps(test)
    def tried(reports: Reports, **asked) -> None:
        for _ in range(AGAIN):
            try:
                return test(reports=reports, **asked)
            except AssertionError:
                reports = reports.anew()
        return test(reports=reports, **asked)

    return tried


def exact(test: Callable[..., None]) -> Callable[..., None]:
    """For a test that counts what another version of the compiler may well do in another way."""
    skipped = pytest.mark.skipif(
        jit.nvrtc_version() != LOCKED,
        reason=f"instructions are counted for the locked compiler, {LOCKED}, and this is {jit.nvrtc_version()}",
    )
    return skipped(again(test))


def cubins(entries: Iterable[tuple[Path, str]], targets: Iterable[str] = jit.TARGETS) -> dict[Key, jit.Cubin]:
    """Every (source, entry) compiled for every target."""
    return _compiled([(*entry, target) for entry in entries for target in targets])


def spread(
    entries: Iterable[tuple[Path, str]], always: Iterable[str] = ("sm_90a",), targets: Iterable[str] = jit.TARGETS
) -> dict[Key, jit.Cubin]:
    """Every (source, entry) compiled for `always` and one other target in turn, the first of each source for all: many
    entries of one source differ in numbers, which no target but the compiler's own limits tells apart."""
    entries, others = list(entries), [target for target in targets if target not in always]
    first = {source: entry for source, entry in reversed(entries)}
    jobs = [
        (source, entry, target)
        for i, (source, entry) in enumerate(entries)
        for target in (targets if first[source] == entry else (*always, others[i % len(others)]))
    ]
    return _compiled(jobs)


def reports(cubins: dict[Key, jit.Cubin]) -> Reports:
    """Resources and instruction mix of each."""
    return Reports(cubins)


def count(mix: dict[str, int], opcode: str, bits: int | None = None) -> int:
    """Instructions of one opcode, of any width or of 32, 64 or 128 bits."""
    return sum(number for name, number in mix.items() if name.split(".")[0] == opcode and bits in (None, width(name)))


def width(name: str) -> int:
    """Bits that an instruction moves for a thread; 32 where its name has no other number."""
    return next((w for w in (128, 64) if str(w) in name.split(".")[1:]), 32)


def _compiled(jobs: list[tuple[Path, str, str]], anew: bool = False) -> dict[Key, jit.Cubin]:
    """Threads, since the compiler lets go of the lock."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda job: jit.compile_cubin(*job, anew=anew), jobs))
    return {(cubin.entry, cubin.arch): cubin for cubin in made}


def changed(system: Path, folder: Path, file: str, old: str, new: str) -> None:
    """A system's sources, and what systems share, in another folder; one text of a file, there once, is changed.

    Where lines of it break does not count.
    """
    for path in (*jit.COMMON.glob("*.cu*"), *system.glob("*.cu*")):
        shutil.copy(path, folder)
    (folder / file).write_text(edited(folder / file, old, new))


def edited(path: Path, old: str, new: str) -> str:
    """A source in which one text, there once, is another; where lines of it break does not count."""
    text, times = re.subn(r"\s+".join(map(re.escape, old.split())), lambda _: new, path.read_text())
    assert times == 1, f"{path.name} has {times} times {old!r}"
    return text


def are_there(system: Path, edits: Iterable[tuple]) -> None:
    """Assert that each (file, old, new, …) may be edited so."""
    for file, old, new, *_ in edits:
        edited(next(x for x in (system / file, jit.COMMON / file) if x.is_file()), old, new)
