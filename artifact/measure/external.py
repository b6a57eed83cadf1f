"""What the code of others gave on a GPU here: neither a source's own numbers nor records of our kernels.

Such a measurement is two files in a system's folder others/<gpu>/: NAME.csv with the numbers, and NAME.toml that says
whose code it was, at which commit, which options matter, how it was timed, and on what; how to build it, its own
repository says. What is not known is said there in words. The same measurement of several GPUs has one name.
"""

from pathlib import Path
from types import SimpleNamespace

import pandas as pd

from artifact import paths, registry
from artifact.measure import records
from artifact.measure.device import slug
from kernels.contract import require

#: Columns of the numbers: a point and whose they are; beside them a rate (2·m·n·k / t, every FLOP of the dense
#: product) or a speedup.
POINT = ("m", "n", "k", "density", "library")


#: What such a NAME.toml says, in texts for people, but for `gpu` and `over`.
KEYS = {
    "what": "was measured",
    "code": "whose, and where it is",
    "commit": "of the code",
    "options": "that matter, of its compiler and of its calls",
    "gpu": "as the driver calls it; its slug is the folder's name",
    "driver": "its version",
    "cuda": "its version",
    "date": "of the measurement",
    "protocol": "how it was timed",
    "over": "the library that speedups are over; may be missing",
}


class Others(SimpleNamespace):
    """One measurement: the system, its name, and KEYS."""

    def path(self, folder: Path = registry.FOLDER) -> Path:
        """Of the numbers."""
        return registry.others(self.room, self.name, slug(self.gpu), folder)

    def table(self, folder: Path = registry.FOLDER) -> pd.DataFrame:
        """Return the numbers as they lie there, by points or only their means. Errors as `records.published`."""
        return records.published(self.path(folder))

    def numbers(self, folder: Path = registry.FOLDER) -> pd.DataFrame:
        """Numbers by points: POINT, with "speedup" (over `over`) or "tflops".

        Errors as `table`; ValueError, one sentence, where a column is missing.
        """
        path, df = self.path(folder), self.table(folder)
        require(
            {*POINT} <= {*df} and bool({"speedup", "tflops"} & {*df}),
            f"{path}: it needs the columns {', '.join(POINT)}, and speedup or tflops.",
        )
        return df


def find(system: str, folder: Path = registry.FOLDER, name: str = "*") -> list[Others]:
    """All that a system has, or all of a name: by name, of a name that of the home GPU first.

    Raises ValueError, one sentence, where a file lacks a key, has an unknown one, or lies in the folder of another GPU
    than its own.
    """
    found = []
    for path in (folder / system / registry.OTHERS).glob(f"*/{name}.toml"):
        table = {"over": ""} | registry.toml(path)
        for key in sorted(table.keys() ^ KEYS):
            what = "is missing" if key in KEYS else "is none of such a file's"
            raise ValueError(f"{path}: the key {key!r} {what}; what is not known is said in words.")
        require(
            slug(table["gpu"]) == path.parent.name,
            f"{path}: it is of an {table['gpu']}, so it belongs in the folder {slug(table['gpu'])!r}.",
        )
        found.append(Others(room=system, name=path.stem, **table))
    return sorted(found, key=lambda m: (m.name, slug(m.gpu) != paths.HOME, m.gpu))


def nearest(system: str, name: str, gpu: str, folder: Path = registry.FOLDER) -> Others:
    """Return that of a GPU, by its slug.

    Where the code did not run there, that of the home GPU, or of the first that has it.

    Raises FileNotFoundError, one sentence, where no GPU has one, and ValueError as `find`.
    """
    found = find(system, folder, name)
    require(found, f"The system {system!r} has no {name!r} of others' code on any GPU.", FileNotFoundError)
    return next((m for m in found if slug(m.gpu) == gpu), found[0])
