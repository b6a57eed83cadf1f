"""The records of one GPU for one system, as the evidence for its claims."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import external, records
from artifact.measure.device import slug

CEILINGS = "ceilings"  #: its own system, used by claims of any system
NOT_SWEEPS = (records.COUNTERS, CEILINGS)  #: may stand among a claim's experiments, but hold no times of kernels
#: Contenders that exist point by point only: the fastest algorithm of cuSPARSE, the fastest variant of the system.
BEST, ROOM_BEST = "cusparse_best", "room_best"
SERIES = "@"  #: in the name of an experiment that is a published series: <figure>@<gpu>
OTHERS = f"{registry.OTHERS}/"  #: begins the name of an experiment that ran the code of others: others/<name>
#: What tells the values of one variant apart, for whoever reduces them.
INDEX = ["experiment", *records.POINT, "useful_flops"]
SHAPE = ["m", "n", "k", "density"]


class NotMeasured(Exception):
    """The records that a claim needs are not there; the message says which."""


def need(held: bool, otherwise: str) -> None:
    """Raise NotMeasured where records do not hold what a claim is about."""
    if not held:
        raise NotMeasured(otherwise)


@dataclass(frozen=True)
class Frame:
    """Records of some experiments, and the times in them, which take pandas milliseconds to arrange."""

    df: pd.DataFrame

    @cached_property
    def times(self) -> pd.DataFrame:
        """Median times, a row for each point (INDEX) in the order of the records, a column for each contender."""
        values = self.df.set_index([*INDEX, "variant"])["median_us"]
        return values.unstack("variant").loc[values.index.droplevel("variant").unique()]


@dataclass
class Evidence:
    """The records of one GPU for one system, read when first needed.

    Raises FileNotFoundError or ValueError if it is not known on which machine they were measured, or if
    one that was planned is not there, ValueError if a record is not valid or not complete.
    """

    folder: Path  #: of the GPU
    room: str
    read: dict[str, pd.DataFrame] = field(default_factory=dict)
    frames: dict[tuple, Frame] = field(default_factory=dict)  #: many claims ask for the same
    where: Mapping[str, object] = field(default_factory=dict)  #: column: value, or list of values
    repeats: bool = False  #: experiments are runs of one measurement
    seen: set[str] = field(default_factory=set)  #: experiments, COUNTERS, CEILINGS: what was used

    def __post_init__(self) -> None:
        # A system that was not measured has no machine; counters may lie there before its records.
        records.check_system(self.folder / self.room)

    def only(self, where: Mapping[str, object], repeats: bool = False) -> Evidence:
        """Return the same evidence, of the rows alone whose columns have these values.

        With `repeats`, experiments that are read together are runs of one measurement.
        """
        made = copy(self)  # the folder has been looked at
        made.where, made.repeats, made.seen = where, repeats, set()
        return made

    def frame(self, experiments: Iterable[str]) -> pd.DataFrame:
        """Return records of these experiments with the rows of BEST and ROOM_BEST.

        Runs of one measurement are one experiment. Raises NotMeasured if one is missing, or if none is left of what
        `where` keeps. Nobody may change the result.
        """
        return self._framed(experiments).df

    def rows(self, experiments: Iterable[str], variants: Iterable[str]) -> pd.DataFrame:
        """Return those of `frame` that are of `variants`; NotMeasured if one of them has none."""
        df = self._framed(experiments, *variants).df
        return df[df["variant"].isin(list(variants))]

    def ratio(self, experiments: Iterable[str], variant: str, baseline: str) -> pd.Series:
        """Return time of `baseline` over that of `variant` at each point that both have, indexed by INDEX.

        NotMeasured if there is none.
        """
        times = self._framed(experiments, baseline, variant).times
        found = (times[baseline] / times[variant]).dropna().rename("speedup")
        if found.empty:
            raise NotMeasured(f"{variant!r} and {baseline!r} were not measured at any common point.")
        return found

    def _framed(self, experiments: Iterable[str], *variants: str) -> Frame:
        """Return the records of these experiments; NotMeasured if one of `variants` has no rows there."""
        names = sweeps(experiments)
        key = (*names, repr(self.where), self.repeats)
        if key not in self.frames:
            self.frames[key] = Frame(self._frame(names))
        self.seen.update(names)
        for name in variants:
            if name not in self.frames[key].times:
                raise NotMeasured(f"The variant {name!r} was not measured in {', '.join(names)}.")
        return self.frames[key]

    def _frame(self, names: Sequence[str]) -> pd.DataFrame:
        df = pd.concat([self._one(name) for name in names], ignore_index=True)
        for column, value in self.where.items():
            df = df[df[column].isin(value if isinstance(value, list) else [value])]
        if df.empty:
            raise NotMeasured(f"The records of {', '.join(names)} have nothing at {self.kept}.")
        return _mean_of_runs(df) if self.repeats and len(names) > 1 else df

    @property
    def kept(self) -> str:
        """`where` as text."""
        values = {c: v if isinstance(v, list) else [v] for c, v in self.where.items()}
        return ", ".join(f"{c} = {' or '.join(map(str, v))}" for c, v in values.items())

    def _one(self, name: str) -> pd.DataFrame:
        """Return what lies under one name, read once: an experiment, the counters, the ceilings."""
        if name not in self.read:
            self.read[name] = self._records(name)
        return self.read[name]

    def _records(self, name: str) -> pd.DataFrame:
        path = place(name, self.folder, self.room)
        if name == CEILINGS:
            records.check_system(path.parent)
            return pd.DataFrame(ceilings(self.folder))
        if name.startswith(OTHERS):
            return _as_records(_of_others(self.room, name, self.folder.name), self.room, name)
        if SERIES in name:
            return _as_records(_series(path, name), self.room, name)
        if not os.path.lexists(path):  # a link to nothing is an error, not a gap
            none = f"is no record of the experiment {name!r}."
            counters = "are no hardware counters of this system on this GPU (make profile)."
            raise NotMeasured(f"There {counters if name == records.COUNTERS else none}")
        return (
            records.read_counters(path)
            if name == records.COUNTERS
            else with_best(records.complete(records.read(path), path))
        )

    def ceiling(self, name: str, unit: str) -> float:
        """Return what a microbenchmark reached on this GPU, as "tflops" or "gbps"."""
        if name not in (known := self._one(CEILINGS)):
            which = "ceilings of this GPU (copy, FMA, L2) were" if known.empty else f"ceiling {name!r} was"
            raise NotMeasured(f"The {which} not measured.")
        self.seen.add(CEILINGS)
        return float(known.loc[unit, name])

    @property
    def counters(self) -> pd.DataFrame:
        """The hardware counters of the system; NotMeasured where there are none."""
        return self._one(records.COUNTERS)

    def counter(self, variant: str, metric: str, experiments: Iterable[str]) -> pd.Series:
        """Return one counter at the points of the experiments, indexed by experiment, m, n, k, density.

        "cusparse_best" means, at each point, the algorithm that was fastest there.
        """
        times = self.frame(experiments)
        rows = times[times["variant"] == variant]
        actual = rows["best_of" if variant in (BEST, ROOM_BEST) else "variant"]
        wanted = rows[["experiment", *SHAPE]].assign(variant=actual)
        found = wanted.merge(self.counters[self.counters["metric"] == metric], on=["variant", *SHAPE])
        if found.empty:
            raise NotMeasured(f"The counter {metric} was not profiled for {variant}.")
        self.seen.add(records.COUNTERS)
        return found.set_index(["experiment", *SHAPE])["value"].rename(metric)


def with_best(df: pd.DataFrame) -> pd.DataFrame:
    """Return a record with the rows of BEST, where cuSPARSE was measured, and of ROOM_BEST."""
    ours = df[~df["variant"].str.startswith(registry.PREFIXES)]
    if df["variant"].str.startswith("cusparse_").any():  # not cuSPARSELt, another library
        df = records.best_of(df, "cusparse_")
    if ours.empty:
        return df
    best = records.best_of(ours, "", ROOM_BEST)
    return pd.concat([df, best[best["variant"] == ROOM_BEST]], ignore_index=True)


# ---------------------------------------------------------------- records of other kinds


def sweeps(experiments: Iterable[str]) -> list[str]:
    """Return those that hold times of kernels."""
    return [e for e in experiments if e not in NOT_SWEEPS]


def place(experiment: str, folder: Path, system: str) -> Path:
    """Return where an experiment's numbers lie, if they are there. folder: of the GPU."""
    if experiment.startswith(OTHERS):
        return registry.others(system, experiment.removeprefix(OTHERS), folder.name)
    if SERIES in experiment:
        return registry.published(system, experiment.partition(SERIES)[0])
    return folder / (CEILINGS if experiment == CEILINGS else system) / f"{experiment}.csv"


def ceilings(folder: Path) -> dict[str, dict[str, float]]:
    """Return what microbenchmarks reached on a GPU, as `records.ceilings`; nothing where they were not measured."""
    try:
        return records.ceilings(folder)
    except FileNotFoundError:
        return {}


def _series(path: Path, experiment: str) -> pd.DataFrame:
    """Return a published series.

    <figure>.csv with the columns gpu, library, density, m, n, k and tflops, those of the dense product. A library at
    density 1 alone is a dense one, and stands beside the others at each of their densities. FileNotFoundError or
    ValueError, one sentence, where there is none.
    """
    gpu, df = experiment.partition(SERIES)[2], records.published(path)
    df = df[df["gpu"] == gpu]
    if df.empty:
        raise ValueError(f"{path}: there is no series of the GPU {gpu!r}.")
    dense = df.groupby("library")["density"].transform("min") == 1
    beside = df[dense].drop(columns="density").merge(df.loc[~dense, ["density"]].drop_duplicates(), how="cross")
    return pd.concat([df[~dense], beside], ignore_index=True)


def _of_others(system: str, experiment: str, gpu: str) -> pd.DataFrame:
    """Return what the code of others gave on this GPU; where that is speedups, also those of the baseline, 1."""
    measured = external.nearest(system, name := experiment.removeprefix(OTHERS), gpu)
    if slug(measured.gpu) != gpu:
        ran = " and ".join(f"an {m.gpu}" for m in external.find(system, name=name))
        raise NotMeasured(f"The code of others did not run on this GPU, only on {ran}.")
    df = measured.numbers()
    over = df.drop_duplicates(SHAPE).assign(library=measured.over, speedup=1.0)
    return df if "tflops" in df else pd.concat([df, over], ignore_index=True)


def _as_records(df: pd.DataFrame, system: str, experiment: str) -> pd.DataFrame:
    """Return the numbers of libraries as records: TFLOP/s of the dense product, or speedups.

    Of these, times are in units of the baseline's at each point, so that ratios of them are right; rates are there
    where the baseline's is known.
    """
    flops = 2.0 * df["m"] * df["n"] * df["k"]
    timed = "tflops" in df
    rate = df["tflops"] if timed else df["speedup"] * df.get("over_tflops", np.nan)
    return df.rename(columns={"library": "variant"}).assign(
        room=system,
        experiment=experiment,
        label="",
        median_us=flops / rate / 1e6 if timed else 1 / df["speedup"],
        useful_flops=flops * df["density"],
        tflops=rate * df["density"],
    )


def _mean_of_runs(df: pd.DataFrame) -> pd.DataFrame:
    """Return several experiments as one.

    Times and rates of each contender at each point are geometric means over the experiments that have it, other
    columns those of the first.
    """
    runs = df.groupby(list(records.KEY), sort=False)
    mean = runs[["median_us", "tflops", "gbps"]].agg(lambda v: np.exp(np.log(v).mean()))
    first = runs.first().assign(experiment=" and ".join(dict.fromkeys(df["experiment"])))
    return first.assign(**mean).reset_index()[df.columns]
