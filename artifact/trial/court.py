"""A contender beside the kernels of a room and its libraries: checked, timed, recorded, drawn, judged.

It gets the operands, the check, the timer and the columns of the records that everybody gets. What a room's own
chapter shows stays as it is: a trial has records and a figure of its own, with the room's kernels and libraries
measured in the same run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import paths, registry
from artifact.measure import check, records, run
from artifact.trial.contenders import Contender
from kernels.contract import Problem

EXPERIMENT = "trial"
FASTER, LEVEL, SLOWER = "faster", "level", "slower"


def folder() -> Path:
    """Where trials lie: <folder>/<contender>/<gpu>/<room>/trial.csv."""
    return paths.BUILD / "trials"


def recorded(root: Path) -> dict[tuple[str, str, str], Path]:
    """(contender, GPU's slug, room) -> folder, of the trials that are there."""
    found = sorted(root.glob(f"*/*/*/{EXPERIMENT}.csv"))
    return {(p.parts[-4], p.parts[-3], p.parts[-2]): p.parent for p in found}


def start(contender: Contender, room: str, preset: str, seed: int, root: Path | None = None):
    """The `run.Run` of a trial, whose earlier record is set aside: its contender may have been another.

    Raises `device.NoGpu` where there is nothing to measure on.
    """
    begun = run.start(room, "measure", preset=preset, seed=seed, records=(root or folder()) / contender.name)
    path = begun.folder / f"{EXPERIMENT}.csv"
    if path.exists():
        os.replace(path, path.with_name(path.name + run.SET_ASIDE))
    for other in (records.PLAN, records.ABSENT):
        (begun.folder / other).unlink(missing_ok=True)
    machine = begun.machine | {"contender": f"{contender.source.name} {contender.digest}"}
    records.write_machine(begun.folder, machine)
    return begun


def refuse_name(contender: Contender, known: Iterable[str]) -> None:
    """Raise ValueError for a contender that is called as one that it is compared with."""
    if contender.name in known or contender.name.startswith(registry.PREFIXES):
        raise ValueError(f"There is a {contender.name!r} already: call the contender something else with --name.")


def check_first(contender: Contender, problem: Problem, opened) -> None:
    """Raise `check.WrongResult` for a wrong contender before anybody else is made ready, ValueError as its bind."""
    reference = check.oracle(problem)
    run.check_exactly(problem, {contender.name: lambda p: contender.bind(p, opened)}, opened)
    bound = contender.bind(problem, opened)
    stream = opened.create_stream()
    try:
        check.check(bound, problem, reference, stream)
    finally:
        run.close(stream)
        problem.release()


def measure(
    begun: run.Run,
    contender: Contender,
    problems: Iterable[Problem],
    others: Mapping[str, run.Contender],
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> pd.DataFrame:
    """The record of a trial, a row for each problem and everyone who takes it.

    Who does not take a problem that the contender takes, and a library that is wrong there, is left out of it, which is
    said and written down. Raises `check.WrongResult` for a contender, or a kernel of ours, that is wrong, and
    ValueError for a contender that does not take a problem.
    """
    path = begun.folder / f"{EXPERIMENT}.csv"
    everybody = {contender.name: lambda p: contender.bind(p, begun.device)} | dict(others)
    for problem in problems:

        def left_out(name: str, why: str, problem: Problem = problem) -> None:
            say(f"left out: {why}")
            point = (getattr(problem, column) for column in records.POINT)
            records.leave_out(path, (name, *point), why)

        def work(here: Mapping[str, run.Contender], problem: Problem = problem) -> pd.DataFrame:
            return begun.measure(EXPERIMENT, [problem], here)

        run.willing(everybody, work, left_out, must=contender.name)
    return records.read(path)


def standings(df: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row for each point of a trial: POINT, median_us of the contender, the fastest other and its time, the fastest
    library and its time ("" and NaN where none was measured), speedups over both, and a verdict.

    Level is whose quartiles overlap. Raises ValueError where the record has no such contender, or nobody beside it.
    """
    at = list(records.POINT)
    mine, others = (df[own].set_index(at) for own in (df["variant"] == name, df["variant"] != name))
    if mine.empty or set(mine.index) != set(others.index):
        raise ValueError(f"The trial needs {name!r} and somebody beside it at every point.")
    best = _fastest(others).loc[mine.index]
    library = _fastest(others[others["variant"].str.startswith(registry.PREFIXES)]).reindex(mine.index)
    apart = np.where(mine["q25_us"] > best["q75_us"], SLOWER, LEVEL)
    return pd.DataFrame(
        {
            "median_us": mine["median_us"],
            "best": best["variant"],
            "best_us": best["median_us"],
            "library": library["variant"].fillna(""),
            "library_us": library["median_us"],
            "verdict": np.where(mine["q75_us"] < best["q25_us"], FASTER, apart),
            "over_best": best["median_us"] / mine["median_us"],
            "over_library": library["median_us"] / mine["median_us"],
        }
    ).reset_index()


def _fastest(df: pd.DataFrame) -> pd.DataFrame:
    """The row of the fastest at each point."""
    return df.sort_values("median_us", kind="stable").groupby(level=list(records.POINT), dropna=False).head(1)


def verdict(table: pd.DataFrame, name: str) -> str:
    """How a contender stands, in a sentence or two; table: its `standings`."""
    counts = table["verdict"].value_counts()
    points = f"{len(table)} point{'s' * (len(table) > 1)}"
    held = ", ".join(f"{word} at {counts[word]}" for word in (FASTER, LEVEL, SLOWER) if word in counts)
    best = "/".join(dict.fromkeys(table["best"]))
    text = f"{name} against the best at each of {points} ({best}): {records.geomean(table['over_best']):.2f}×, {held}."
    library = table.dropna(subset="over_library")
    if len(library):
        names = "/".join(dict.fromkeys(library["library"]))
        text += f" Over the fastest library ({names}): {records.geomean(library['over_library']):.2f}×."
    return text
