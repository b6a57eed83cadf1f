"""Are records of these kernels? Whether the compiler makes the same machine code of a system as at the records' commit.

    python -m artifact.measure.same_code [FOLDER ...]

A folder of records names the commit that they were made at. The kernels of both trees are compiled for `ARCH` by the
NVRTC that is here, and their SASS is compared, so that what changed in comments, names or Python does not count, and
what changed in a shared header does. Needs git and the commits, no GPU. Exit status 1 where code differs.
"""

import base64
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from artifact import command, paths
from artifact.measure import device, files, records
from kernels import jit

ARCH = "sm_90a"
#: Runs in a tree, with the folder on Python's path: every entry of a system's variants that is made for `ARCH`.
COMPILE = """
import base64, importlib, json, sys
from kernels import jit
kernels = importlib.import_module("kernels." + sys.argv[1]).VARIANTS.values()
# Of before there were targets, all entries were for all of them.
here = [k for k in kernels if sys.argv[2] in getattr(k, "targets", sys.argv[2:])]
asked = {(k.source, e) for k in here for e in k.entries}
made = {f"{s.name}: {e}": jit.compile_cubin(s, e, sys.argv[2]) for s, e in sorted(asked)}
json.dump({name: [base64.b64encode(c.code).decode(), c.symbol] for name, c in made.items()}, sys.stdout)
"""


def sass(tree: Path, system: str) -> dict[str, str]:
    """SASS of a system's kernels in a tree, by "file: entry"; RuntimeError where they do not compile."""
    run = subprocess.run(
        [sys.executable, "-c", COMPILE, system, ARCH],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        capture_output=True,
        check=False,
        encoding="utf-8",
        errors="replace",
    )
    if run.returncode:
        raise RuntimeError(f"{system} does not compile in {tree}: {run.stderr.strip().splitlines()[-1]}")
    return {
        # Names of templates' parameters are in the symbol alone, which is no code.
        name: jit.disassemble(jit.Cubin(tree, name, ARCH, symbol, base64.b64decode(code))).replace(symbol, "")
        for name, (code, symbol) in json.loads(run.stdout).items()
    }


def compare(here: Mapping[str, str], there: Mapping[str, str]) -> dict[str, list[str]]:
    """How the entries of two trees, "file: entry", compare -> their names."""
    return {
        "same": [name for name in here if here[name] == there.get(name)],
        "differ": [name for name in here if name in there and here[name] != there[name]],
        "only here": [name for name in here if name not in there],
        "only there": [name for name in there if name not in here],
    }


def said(system: str, commit: str, found: Mapping[str, Sequence[str]]) -> str:
    """Return a line of what compared so."""
    others = [f"; {how}: {', '.join(names)}" for how, names in found.items() if names and how != "same"]
    return f"{system} at {commit}: {len(found['same'])} kernels with the same machine code{''.join(others)}"


def of_records(folders: Sequence[Path]) -> dict[tuple[str, str], dict[str, list[str]]]:
    """(system, commit) of each folder of a system's records -> how they compare; systems without variants are left out.

    Raises FileNotFoundError or ValueError where a folder has no machine.json, RuntimeError where git lacks the commit.
    """
    parts = ((folder.name, part.commit.rstrip("+")) for folder in folders for part in records.made(folder))
    every = dict.fromkeys(part for part in parts if part[1] != files.NOT_RECORDED)
    asked = [key for key in every if hasattr(importlib.import_module(f"kernels.{key[0]}"), "VARIANTS")]
    here = {system: sass(paths.ROOT, system) for system in dict(asked)}
    found = {}
    for system, commit in asked:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            device.git("worktree", "add", "--detach", str(tree), commit)
            try:
                found[system, commit] = compare(here[system], sass(tree, system))
            finally:
                device.git("worktree", "remove", "--force", str(tree))
    return found


@command.program(
    "artifact.measure.same_code",
    __doc__,
    command.option("folders", nargs="*", type=Path, help="of a system's records; default: all that are shipped"),
)
def main(given: command.Options) -> int:
    """Say of each system and commit what differs in machine code; 1 where anything does."""
    found = of_records(given.folders or [path.parent for path in sorted(paths.RECORDED.glob("*/*/machine.json"))])
    print(*(said(*key, compared) for key, compared in found.items()), sep="\n")
    return int(any(compared["differ"] for compared in found.values()))


if __name__ == "__main__":
    raise SystemExit(main())
