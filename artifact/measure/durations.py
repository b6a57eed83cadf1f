"""What records tell of measuring: how long it took, by their stamps, and how far a second run is from the first.

A second run, of all experiments of a system or of some, lies in `records.REPEAT` beside the first (`run.start` with
repeat=True). What commands take without a GPU stands here, too.
"""

import functools
from pathlib import Path

import pandas as pd

from artifact.measure import records

#: A longer gap between two points of an experiment is taken for an interruption, not for work.
PAUSE_S = 300
#: The system "ceilings" is on the page of the machine; every other system has a page of its own.
NOTEBOOKS = {"ceilings": "machine"}
#: Seconds of `make environment`, `artifact` (with the environment), `test` (after `artifact`) and `compare` (of the two
#: GPUs whose records are shipped), by a stopwatch, on WITHOUT_GPU. They stand here and nowhere else.
COMMANDS_S = {"environment": 41, "artifact": 286, "test": 445, "compare": 14}
#: The same of `make artifact` after that, of other records: those of the H100.
AGAIN_S = 200
WITHOUT_GPU = "two cores without a GPU, on 2026-11-24"
#: GPU -> the same of `make kick`, few kernels or none compiled before, its environment from wheels, on KICKED.
KICK_S = {"H200": 447, "H100": 558}
KICKED = "nodes with 16 cores, on 2026-11-24"
SECOND_RUNS = "gpu room experiments measurements of median most_of_ten most between same_code".split()


def durations(folder: Path) -> pd.DataFrame:
    """How long each experiment under a GPU's folder took, from the records themselves.

    Columns: system, experiment, repeat (the second run), notebook, points, rows, minutes (wall clock, from the rows'
    times; preparing, checking and flushing included), told (whether these times tell it; else minutes are those of the
    kernels alone), kernel_s (samples x medians), gpu.
    """
    rows = [
        {
            "room": system,
            "experiment": experiment,
            "repeat": bool(repeat),
            "notebook": NOTEBOOKS.get(system, system),
            "points": len(df.drop_duplicates(list(records.POINT))),
            "rows": len(df),
            "minutes": wall_s / 60,
            "told": told,
            "kernel_s": kernel_s,
            "gpu": df["gpu"].iloc[0],
        }
        for system in records.systems(folder)
        for repeat in ("", records.REPEAT)
        for experiment in records.experiments(folder / system / repeat)
        for df in [records.read(folder / system / repeat / f"{experiment}.csv")]
        for wall_s, told, kernel_s in [took(df)]
    ]
    return pd.DataFrame(rows)


def took(df: pd.DataFrame) -> tuple[float, bool, float]:
    """Seconds that a record took, whether its stamps tell them, and seconds of its kernels alone.

    Rows are stamped when their point is done, so the first point is taken to have cost as much as the mean of the
    others; at least the kernels' own time. One stamp alone tells nothing, nor does a gap that is a pause.
    """
    when = pd.to_datetime(df["when"], utc=True, format="ISO8601").drop_duplicates().sort_values()
    gaps = when.diff().dt.total_seconds().dropna()
    gaps = gaps[gaps <= PAUSE_S]
    kernel_s = float((df["samples"] * df["median_us"]).sum() / 1e6)
    return max(float(gaps.sum() + gaps.mean()), kernel_s) if len(gaps) else kernel_s, len(gaps) > 0, kernel_s


def of_record(path: Path) -> float | None:
    """Minutes that the record of an experiment took; None where there is none, or where it does not tell."""
    return _of_record(path, path.stat().st_mtime_ns) if path.is_file() else None


@functools.lru_cache(maxsize=512)  # some claims share an experiment
def _of_record(path: Path, _written: int) -> float | None:
    wall_s, told, _ = took(
        pd.read_csv(path, usecols=["when", "samples", "median_us"])
    )  # whoever judges it validates it
    return wall_s / 60 if told else None


def said(minutes: float) -> str:
    """Minutes as pages write them, to a tenth."""
    return "under 0.1" if 0 < minutes < 0.05 else f"{minutes:.1f}" if minutes else "0"


# ---------------------------------------------------------------- second runs


def apart(first: pd.DataFrame, second: pd.DataFrame) -> pd.Series:
    """By how much of the first's each median time of the second is off, for what both have measured."""
    both = first.merge(second, on=["experiment", "seed", *records.KEY], suffixes=("", "_again"))
    return (both["median_us_again"] / both["median_us"] - 1).abs()


def runs(root: Path) -> pd.DataFrame:
    """Return a row for each system of each GPU that has a second run; columns SECOND_RUNS.

    root: a folder of records. experiments: their names. measurements: medians that both runs have, of so many in the
    first. median, most_of_ten, most: of `apart`, its median, 90th percentile and maximum. between: time from one run to
    the other. same_code: whether both are of the same kernels, timer and driver.
    """
    found = []
    for here in (root / gpu / system for gpu in records.list_gpus(root) for system in records.systems(root / gpu)):
        there = here / records.REPEAT
        names = sorted({*records.experiments(there)} & {*records.experiments(here)})
        twice = {name: tuple(records.read(folder / f"{name}.csv") for folder in (here, there)) for name in names}
        off = pd.concat([pd.Series(dtype=float), *(apart(*pair) for pair in twice.values())])
        if not off.empty:
            first, second = (pd.concat(side) for side in zip(*twice.values(), strict=True))
            early, late = (pd.to_datetime(df["when"], utc=True, format="ISO8601").median() for df in (first, second))
            # A repetition without a machine.json of its own is the system's.
            machines = [records.read_machine(x) for x in (here, there) if (x / records.MACHINE).exists()]
            same = len({(machine.get("sources"), machine["driver"]) for machine in machines}) == 1
            spread = off.median(), off.quantile(0.9), off.max()
            found.append((here.parent.name, here.name, names, len(off), len(first), *spread, abs(late - early), same))
    return pd.DataFrame(found, columns=SECOND_RUNS)
