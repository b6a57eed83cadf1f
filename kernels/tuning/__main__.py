"""python -m kernels.tuning [--stamp ROOM]: do the shipped choices belong to today's kernels?

--stamp says so of a room's files: for whoever has shown that the machine code is what it was, because
only names changed. Where it is another, delete the rows and let `auto` choose again on the GPU.
"""

import argparse
import importlib
from pathlib import Path

from . import choices


def rooms() -> dict[str, choices.Choices]:
    """room -> where its choices are, of every room that keeps some."""
    names = sorted(path.parent.name for path in Path(__file__).parents[1].glob("*/choices"))
    return {name: importlib.import_module(f"..{name}.family", __package__).CHOICES for name in names}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("--stamp", metavar="ROOM", choices=rooms(), help="say so of ROOM's files")
    chosen = parser.parse_args(arguments).stamp
    for name, room in rooms().items():
        for path in sorted(room.shipped.glob("*.csv")):
            changed = choices.stamp(room, path) if name == chosen else 0
            rows = choices.read(room, path).values()
            now = sum(c.kernels == choices.digest(room.sources(c.config)) for c in rows)
            compilers = ", ".join(sorted({c.nvrtc or "unknown" for c in rows}))
            print(
                f"{name}/{path.name}: {now} of {len(rows)} choices are of today's kernels"
                f"{f' ({changed} stamped)' if name == chosen else ''}, made with NVRTC {compilers}"
            )


if __name__ == "__main__":
    main()
