"""Second runs: how far the same measurement, made once more, is from the first.

A second run, of all experiments of a room or of some, lies in `records.REPEAT` beside the first (`run.start` with
repeat=True).
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from artifact.measure import records

COLUMNS = (
    "gpu",
    "room",
    "experiments",
    "measurements",
    "of",
    "median",
    "most_of_ten",
    "most",
    "between",
    "same_code",
)


def apart(first: pd.DataFrame, second: pd.DataFrame) -> pd.Series:
    """By how much of the first's each median time of the second is off, for what both have measured."""
    both = first.merge(second, on=["experiment", "seed", *records.KEY], suffixes=("", "_again"))
    return (both["median_us_again"] / both["median_us"] - 1).abs()


def beside(first: pd.DataFrame, second: pd.DataFrame) -> pd.Series:
    """By how much of itself each median time of the second moved against those beside it, at the same point: what a
    ratio of two times moves by, when all of a run is slower or faster does not count."""
    both = first.merge(second, on=["experiment", "seed", *records.KEY], suffixes=("", "_again"))
    moved = both["median_us_again"] / both["median_us"]
    point = [both[column] for column in ("experiment", *records.POINT)]
    return (moved / moved.groupby(point).transform("median") - 1).abs()


def spread(gpu: Path, room: str) -> float:
    """The 90th percentile of `beside` over all experiments of a room that were measured twice; NaN where none was."""
    here, there = gpu / room, gpu / room / records.REPEAT
    names = [n for n in records.experiments(there) if n in records.experiments(here)]
    pairs = ([records.read(folder / f"{n}.csv") for folder in (here, there)] for n in names)
    off = [beside(*pair) for pair in pairs]
    return float(pd.concat(off).quantile(0.9)) if off else float("nan")


def runs(root: Path) -> pd.DataFrame:
    """A row for each room of each GPU that has a second run; columns COLUMNS.

    root: a folder of records. experiments: their names. measurements: medians that both runs have, of so many in the
    first. median, most_of_ten, most: of `apart`, its median, 90th percentile and maximum. between: time from one run to
    the other. same_code: whether both are of the same kernels, timer and driver.
    """
    found = []
    for gpu in records.list_gpus(root):
        for room in records.rooms(root / gpu):
            here = root / gpu / room
            there = here / records.REPEAT
            names = [n for n in records.experiments(there) if n in records.experiments(here)]
            both = [[records.read(folder / f"{name}.csv") for name in names] for folder in (here, there)]
            off = pd.concat([apart(*pair) for pair in zip(*both, strict=True)]) if names else ()
            if not len(off):
                continue
            spread = off.median(), off.quantile(0.9), off.max()
            between = abs(_when(both[1]) - _when(both[0]))
            rows = sum(map(len, both[0]))
            same = _code(here) == _code(there, here)
            found.append((gpu, room, names, len(off), rows, *spread, between, same))
    return pd.DataFrame(found, columns=list(COLUMNS))


def _when(frames: list[pd.DataFrame]) -> pd.Timestamp:
    return pd.to_datetime(pd.concat(frames)["when"], utc=True, format="ISO8601").median()


def _code(folder: Path, room: Path | None = None) -> tuple:
    """What the numbers of a folder come from; a repetition without a machine.json of its own is the room's."""
    described = folder if (folder / records.MACHINE).exists() else room
    machine = records.read_machine(described)
    return machine.get("sources"), machine["driver"]
