"""python -m kernels.autotune [--stamp ROOM]: do the shipped choices belong to today's kernels?

--stamp says so of a system's files: for whoever has shown that the machine code is what it was, because
only names changed. Where it is another, delete the rows and let `auto` choose again on the GPU.
"""

import argparse
import functools
import importlib
from pathlib import Path

from . import choices


def systems() -> dict[str, choices.Choices]:
    """System -> where its choices are, of every system that keeps some."""
    names = sorted(path.parent.name for path in Path(__file__).parents[1].glob("*/choices"))
    return {name: importlib.import_module(f"..{name}.family", __package__).CHOICES for name in names}


def main(arguments: list[str] | None = None) -> None:
    """Print how many shipped choices belong to today's kernels; stamp those of one system."""
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("--stamp", metavar="ROOM", choices=systems(), help="say so of SYSTEM's files")
    chosen = parser.parse_args(arguments).stamp
    digest = functools.cache(choices.digest)  # of sources that most rows share
    for name, system in systems().items():
        for path in sorted(system.shipped.glob("*.csv")):
            changed = choices.stamp(system, path) if name == chosen else 0
            rows = choices.read(system, path).values()
            now = sum(c.kernels == digest(frozenset(system.sources(c.config))) for c in rows)
            print(
                f"{name}/{path.name}: {now} of {len(rows)} choices are of today's kernels"
                f"{f' ({changed} stamped)' if name == chosen else ''}, made with NVRTC "
                f"{', '.join(sorted({c.nvrtc or 'unknown' for c in rows}))}"
            )


if __name__ == "__main__":
    main()
