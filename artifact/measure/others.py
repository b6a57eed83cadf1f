"""What the code of others gave on a GPU here: neither a source's own numbers nor records of our kernels.

Such a measurement is two files in a room's folder others/: NAME.csv with the numbers, and NAME.toml that says whose
code it was, at which commit, how it was built and timed, on what, and how to run it again. What is not known is said
there in words.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

import pandas as pd

from artifact import rooms
from artifact.measure import records

#: Columns of the numbers: a point and whose they are; beside them a rate (2·m·n·k / t, every FLOP of the dense
#: product) or a speedup.
POINT = ("m", "n", "k", "density", "library")


@dataclass(frozen=True)
class Others:
    """One measurement; texts for people, but for `gpu`, `over` and the numbers."""

    room: str
    name: str
    what: str  #: was measured
    code: str  #: whose, and where it is
    commit: str
    build: str
    gpu: str  #: as the driver calls it
    driver: str
    cuda: str
    date: str
    protocol: str
    again: str  #: how to run it
    over: str = ""  #: the library that speedups are over

    def table(self, folder: Path = rooms.FOLDER) -> pd.DataFrame:
        """The numbers as they lie there, by points or only their means. Errors as `records.published`."""
        return records.published(rooms.others(self.room, self.name, folder))

    def numbers(self, folder: Path = rooms.FOLDER) -> pd.DataFrame:
        """Numbers by points: POINT, with "speedup" (over `over`) or "tflops". Errors as `table`; ValueError, one
        sentence, where a column is missing."""
        path, df = rooms.others(self.room, self.name, folder), self.table(folder)
        missing = set(POINT) - set(df.columns)
        if missing or not {"speedup", "tflops"} & set(df.columns):
            raise ValueError(
                f"{path}: it needs the columns {', '.join(POINT)}, and speedup or tflops."
            )
        return df


def find(room: str, folder: Path = rooms.FOLDER) -> list[Others]:
    """All that a room has, by name. Raises ValueError, one sentence, where a file lacks a key or has an unknown one."""
    return [
        read(room, path.stem, folder)
        for path in sorted((Path(folder) / room / rooms.OTHERS).glob("*.toml"))
    ]


def read(room: str, name: str, folder: Path = rooms.FOLDER) -> Others:
    """One of them. Raises FileNotFoundError or ValueError as `find`."""
    path = rooms.others(room, name, folder).with_suffix(".toml")
    table = rooms.toml(path)
    known = {f.name for f in fields(Others)[2:]}
    for key in sorted((set(table) ^ known) - {"over"}):
        what = "is missing" if key in known else "is none of such a file's"
        raise ValueError(f"{path}: the key {key!r} {what}; what is not known is said in words.")
    return Others(room, name, **table)
