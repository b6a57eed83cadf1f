"""How long measuring took, by the stamps of the records, and what commands take without a GPU."""

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


def durations(folder: Path) -> pd.DataFrame:
    """How long each experiment under a GPU's folder took, from the records themselves.

    Columns: system, experiment, repeat (the second run), notebook, points, rows, minutes (wall clock, from the rows'
    times; preparing, checking and flushing included), told (whether these times tell it; else minutes are those of the
    kernels alone), kernel_s (samples x medians), gpu.
    """
    found = [
        (system, repeat, name, records.read(folder / system / repeat / f"{name}.csv"))
        for system in records.systems(folder)
        for repeat in ("", records.REPEAT)
        for name in records.experiments(folder / system / repeat)
    ]
    rows = [
        {
            "room": system,
            "experiment": experiment,
            "repeat": bool(repeat),
            "notebook": NOTEBOOKS.get(system, system),
            "points": len(df.drop_duplicates(list(records.POINT))),
            "rows": len(df),
            "minutes": wall_s(df) / 60,
            "told": tells(df),
            "kernel_s": _kernel_s(df),
            "gpu": df["gpu"].iloc[0],
        }
        for system, repeat, experiment, df in found
    ]
    return pd.DataFrame(rows)


def wall_s(df: pd.DataFrame) -> float:
    """Seconds that a record took.

    Rows are stamped when their point is done, so the first point is taken to have cost as much as the mean of the
    others; at least the kernels' own time.
    """
    gaps = _gaps_s(df)
    return max(float(gaps.sum() + gaps.mean()) if len(gaps) else 0.0, _kernel_s(df))


def _kernel_s(df: pd.DataFrame) -> float:
    return float((df["samples"] * df["median_us"]).sum() / 1e6)


def tells(df: pd.DataFrame) -> bool:
    """Whether a record tells how long it took: one stamp alone does not."""
    return len(_gaps_s(df)) > 0


def _gaps_s(df: pd.DataFrame) -> pd.Series:
    """Seconds between the stamps of a record that follow each other without a pause."""
    when = pd.to_datetime(df["when"], utc=True, format="ISO8601").drop_duplicates().sort_values()
    gaps = when.diff().dt.total_seconds().dropna()
    return gaps[gaps <= PAUSE_S]


def of_record(path: Path) -> float | None:
    """Minutes that the record of an experiment took; None where there is none, or where it does not tell."""
    return _of_record(path, path.stat().st_mtime_ns) if path.is_file() else None


@functools.lru_cache(maxsize=512)  # some claims share an experiment
def _of_record(path: Path, _written: int) -> float | None:
    df = records.read(path)
    return wall_s(df) / 60 if tells(df) else None


def said(minutes: float) -> str:
    """Minutes as pages write them, to a tenth."""
    return "under 0.1" if 0 < minutes < 0.05 else f"{minutes:.1f}" if minutes else "0"


def size_bytes(folder: Path) -> int:
    """Bytes of the files under a folder, links not followed; 0 if there is none."""
    return sum(f.lstat().st_size for f in Path(folder).rglob("*") if not f.is_dir())
