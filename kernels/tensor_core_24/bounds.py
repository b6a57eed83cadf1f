"""What a step takes where a part of it is left out: kernels that load nothing, or multiply nothing, to be profiled.

A part of the system, as `fp8` is, with its problems. What these kernels compute is wrong, and nobody checks it: one
that loads nothing multiplies whatever lies in shared memory, one that multiplies nothing stores whatever lies in
registers. All else is the rung's own source, with one text changed: barriers, metadata, order, and how C is stored.
"""

import re
import tempfile
from dataclasses import replace
from pathlib import Path

from ..contract import Kernel, PreparedKernel, Problem, require
from . import wgmma
from .family import RUNGS, Wgmma
from .operands import SYSTEM, problem
from .tiles import HERE, TARGETS

__all__ = ["BASELINES", "VARIANTS", "prepare", "changed", "problem"]

BASELINES = ()

#: The tiles of the ladder, each by the kernel that has the fewest instructions around a multiplication.
TILES: dict[str, Wgmma] = {
    "wgmma_rounds": RUNGS["wgmma_rounds"][0],
    "wgmma_rounds_tall": replace(RUNGS["wgmma_lean_tall"][0], kernel="rounds"),
    "wgmma_three": RUNGS["wgmma_three"][0],
}
#: What is left out -> the file it stands in, or None for the kernel's own; what stands there, as a regular expression;
#: how often; and what stands there instead.
LEFT_OUT: dict[str, tuple[str | None, str, int, str]] = {
    "": (None, r"\Z", 1, ""),
    "_unloaded": ("roles.cuh", r"ring\.load\(from, s, [^;]*;", 2, "arrive(full);"),  # of Plain and of Tiled
    "_unmultiplied": ("sparse_reader.cuh", r"Wgmma<N, T, B>::template sparse<[01]>\([^;]*;", 2, ";"),
}

#: Variant -> its tile and what it leaves out.
_OF = {name + part: (name, part) for name in TILES for part in LEFT_OUT}
_SAID = {"": "", "_unloaded": ", without loads", "_unmultiplied": ", without wgmma"}

VARIANTS: dict[str, Kernel] = {
    variant: Kernel(
        variant,
        TILES[name].source,
        f"{TILES[name].m} x {TILES[name].n} of C{_SAID[part]}",
        entries=(TILES[name].entry("bfloat16"),),
        targets=TARGETS,
    )
    for variant, (name, part) in _OF.items()
}


def changed(variant: str) -> dict[str, str]:
    """File name -> text, of the files in which a variant differs from its rung; the kernel's own is always among them.

    Raises ValueError where a rung no longer has the text that is left out.
    """
    name, part = _OF[variant]
    file, text, times, instead = LEFT_OUT[part]
    own = TILES[name].source.name
    edited, count = re.subn(text, instead, (HERE / (file or own)).read_text(encoding="utf-8"))
    require(
        count == times,
        f"{file or own} has {text!r} {count} times instead of {times}: adapt LEFT_OUT of bounds.py",
    )
    return {own: (HERE / own).read_text(encoding="utf-8")} | {file or own: edited}


def prepare(variant: str, problem: Problem, device) -> PreparedKernel:
    """Compile a variant for `device` and make it ready, as `wgmma.prepare` does. Its result means nothing."""
    require(
        variant in VARIANTS,
        f"{SYSTEM}.bounds has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    config = TILES[_OF[variant][0]]
    with tempfile.TemporaryDirectory() as folder:
        for file, text in changed(variant).items():
            (Path(folder) / file).write_text(text, encoding="utf-8")
        source = Path(folder) / config.source.name
        return wgmma.prepare(variant, problem, device, config, source=source)
