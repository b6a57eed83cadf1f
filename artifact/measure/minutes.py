"""How long measuring took, by the stamps of the records, and how much room files take."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from artifact.measure import records
from artifact.verdicts import load

#: A longer gap between two points of an experiment is taken for an interruption, not for work.
PAUSE_S = 300
#: The room "ceilings" is on the page of the machine; every other room has a page of its own.
NOTEBOOKS = {"ceilings": "machine"}


def durations(folder: Path) -> pd.DataFrame:
    """How long each experiment under a GPU's folder took, from the records themselves.

    Columns: room, experiment, repeat (the second run), figure (of the source, as
    claims.toml says), notebook, points, rows, minutes (wall clock, from the rows' times; preparing,
    checking and flushing included), kernel_s (samples x medians), gpu.
    """
    stated = load.figures_of()
    rows = []
    for room in records.rooms(folder):
        for repeat in (False, True):
            here = folder / room / "repeat" if repeat else folder / room
            for experiment in records.experiments(here):
                df = records.read(here / f"{experiment}.csv")
                rows.append(
                    {
                        "room": room,
                        "experiment": experiment,
                        "repeat": repeat,
                        "figure": stated.get(room, {}).get(experiment, ""),
                        "notebook": NOTEBOOKS.get(room, room),
                        "points": len(df.drop_duplicates(list(records.POINT))),
                        "rows": len(df),
                        "minutes": wall_s(df) / 60,
                        "kernel_s": float((df["samples"] * df["median_us"]).sum() / 1e6),
                        "gpu": df["gpu"].iloc[0],
                    }
                )
    return pd.DataFrame(rows)


def wall_s(df: pd.DataFrame) -> float:
    """Seconds that a record took. Rows are stamped when their point is done, so the first point is
    taken to have cost as much as the mean of the others; at least the kernels' own time."""
    when = pd.to_datetime(df["when"], utc=True, format="ISO8601").drop_duplicates().sort_values()
    gaps = when.diff().dt.total_seconds().dropna()
    gaps = gaps[gaps <= PAUSE_S]
    kernels = float((df["samples"] * df["median_us"]).sum() / 1e6)
    return max(float(gaps.sum() + gaps.mean()) if len(gaps) else 0.0, kernels)


def size_bytes(folder: Path) -> int:
    """Bytes of the files under a folder, links not followed; 0 if there is none."""
    return sum(f.lstat().st_size for f in Path(folder).rglob("*") if not f.is_dir())
