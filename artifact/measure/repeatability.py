"""Second runs: how far the same measurement, made once more, is from the first.

A second run, of all experiments of a system or of some, lies in `records.REPEAT` beside the first (`run.start` with
repeat=True).
"""

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
    key = ["experiment", "seed", *records.KEY]
    both = first.merge(second, on=key, suffixes=("", "_again"))
    return (both["median_us_again"] / both["median_us"] - 1).abs()


def runs(root: Path) -> pd.DataFrame:
    """Return a row for each system of each GPU that has a second run; columns COLUMNS.

    root: a folder of records. experiments: their names. measurements: medians that both runs have, of so many in the
    first. median, most_of_ten, most: of `apart`, its median, 90th percentile and maximum. between: time from one run to
    the other. same_code: whether both are of the same kernels, timer and driver.
    """
    found = []
    for here in (root / gpu / system for gpu in records.list_gpus(root) for system in records.systems(root / gpu)):
        twice, there = _twice(here), here / records.REPEAT
        off = pd.concat([pd.Series(dtype=float), *(apart(*pair) for pair in twice.values())])
        if not off.empty:
            first, second = (pd.concat(side) for side in zip(*twice.values(), strict=True))
            of_system = here.parent.name, here.name, [*twice], len(off), len(first)
            between = abs(_when(second) - _when(first))
            # A repetition without a machine.json of its own is the system's.
            same = _made_from(here) == _made_from(there if (there / records.MACHINE).exists() else here)
            found.append((*of_system, off.median(), off.quantile(0.9), off.max(), between, same))
    return pd.DataFrame(found, columns=list(COLUMNS))


def _twice(here: Path) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Experiment -> its record and that of the second run, of those of a system's folder that have both."""
    there, known = here / records.REPEAT, records.experiments(here)
    names = [name for name in records.experiments(there) if name in known]
    return {name: (records.read(here / f"{name}.csv"), records.read(there / f"{name}.csv")) for name in names}


def _when(df: pd.DataFrame) -> pd.Timestamp:
    return pd.to_datetime(df["when"], utc=True, format="ISO8601").median()


def _made_from(folder: Path) -> tuple:
    machine = records.read_machine(folder)
    return machine.get("sources"), machine["driver"]
