"""Second runs: how far the same measurement, made once more, is from the first.

A second run, of all experiments of a room or of some, lies in `records.REPEAT` beside the first (`run.start` with
repeat=True).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from artifact.measure import records

COLUMNS = ("gpu", "room", "experiments", "measurements", "median", "most_of_ten", "most", "days")


def apart(first: pd.DataFrame, second: pd.DataFrame) -> pd.Series:
    """By how much of the first's each median time of the second is off, for what both have measured."""
    both = first.merge(second, on=["experiment", *records.KEY], suffixes=("", "_again"))
    return (both["median_us_again"] / both["median_us"] - 1).abs()


def runs(root: Path) -> pd.DataFrame:
    """A row for each room of each GPU that has a second run; columns COLUMNS.

    root: a folder of records. experiments: their names. measurements: medians that both runs have. median, most_of_ten,
    most: of `apart`, its median, 90th percentile and maximum. days: from the first run to the second.
    """
    found = []
    for gpu in records.list_gpus(root):
        for room in records.rooms(root / gpu):
            here = root / gpu / room
            names = records.experiments(here / records.REPEAT)
            if not names:
                continue
            off = pd.concat(
                apart(
                    *(
                        records.read(folder / f"{name}.csv")
                        for folder in (here, here / records.REPEAT)
                    )
                )
                for name in names
            )
            first, second = (_day(folder, here) for folder in (here, here / records.REPEAT))
            spread = off.median(), off.quantile(0.9), off.max()
            found.append((gpu, room, names, len(off), *spread, abs((second - first).days)))
    return pd.DataFrame(found, columns=list(COLUMNS))


def _day(folder: Path, room: Path) -> pd.Timestamp:
    """When the records of a folder were made; a repetition may lie there without a machine.json of its own."""
    described = folder if (folder / records.MACHINE).exists() else room
    return pd.Timestamp(records.read_machine(described)["date"])
