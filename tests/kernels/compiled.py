"""What the compiler makes of a room's kernels, for the tests that look at it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernels import jit

_LOCK = Path(__file__).parents[2] / "requirements" / "base.lock"
#: The compiler that make installs, such as "13.1"; counts of instructions, as far as a test knows them, are its.
LOCKED = re.search(r"^nvidia-cuda-nvrtc==(\d+\.\d+)", _LOCK.read_text(), re.MULTILINE)[1]
#: For a test that counts what another version of the compiler may well do in another way.
exact = pytest.mark.skipif(
    jit.nvrtc_version() != LOCKED,
    reason=f"instructions are counted for the locked compiler, {LOCKED}, and this is {jit.nvrtc_version()}",
)
#: An entry and a target.
Key = tuple[str, str]


def cubins(
    entries: Iterable[tuple[Path, str]], targets: Iterable[str] = jit.TARGETS
) -> dict[Key, jit.Cubin]:
    """Every (source, entry) compiled for every target; threads, since the compiler lets go of the lock."""
    jobs = [(*entry, target) for entry in entries for target in targets]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda job: jit.compile_cubin(*job), jobs))
    return {(cubin.entry, cubin.arch): cubin for cubin in made}


def reports(cubins: dict[Key, jit.Cubin]) -> dict[Key, tuple[jit.Resources, dict[str, int]]]:
    """Resources and instruction mix of each."""
    return dict(zip(cubins, jit.reports(cubins.values()), strict=True))


def count(mix: dict[str, int], opcode: str, bits: int | None = None) -> int:
    """Instructions of one opcode, of any width or of 32, 64 or 128 bits."""
    return sum(
        number
        for name, number in mix.items()
        if name.split(".")[0] == opcode and bits in (None, width(name))
    )


def width(name: str) -> int:
    """Bits that an instruction moves for a thread; 32 where its name has no other number."""
    return next((w for w in (128, 64) if str(w) in name.split(".")[1:]), 32)


def changed(room: Path, folder: Path, file: str, old: str, new: str) -> None:
    """A room's sources, and what rooms share, in another folder; one text of a file, there once, is changed."""
    for path in (*jit.COMMON.glob("*.cu*"), *room.glob("*.cu*")):
        shutil.copy(path, folder)
    text = (folder / file).read_text()
    assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
    (folder / file).write_text(text.replace(old, new))
