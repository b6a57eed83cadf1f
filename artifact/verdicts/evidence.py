"""The records of one GPU for one room, as the evidence for its claims."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import others, records
from artifact.measure.device import slug

CEILINGS = "ceilings"  #: its own room, used by claims of any room
NOT_SWEEPS = (records.COUNTERS, CEILINGS)  #: may stand among a claim's experiments, but hold no times of kernels
#: Contenders that exist point by point only: the fastest algorithm of cuSPARSE, the fastest variant of the room.
BEST, ROOM_BEST = "cusparse_best", "room_best"
SERIES = "@"  #: in the name of an experiment that is a published series: <figure>@<gpu>
OTHERS = f"{registry.OTHERS}/"  #: begins the name of an experiment that ran the code of others: others/<name>
#: What tells the values of one variant apart, for whoever reduces them.
INDEX = ["experiment", *records.POINT, "useful_flops"]
SHAPE = ["m", "n", "k", "density"]


class NotMeasured(Exception):
    """The records that a claim needs are not there; the message says which."""


@dataclass(frozen=True)
class Frame:
    """Records of some experiments, and what finding rows in them takes: pandas spends milliseconds on each."""

    df: pd.DataFrame
    experiments: Sequence[str]

    @cached_property
    def points(self) -> list[tuple]:
        """Of each row: what was measured there, whoever computed it."""
        return list(zip(*(self.df[c].tolist() for c in ("experiment", *records.POINT)), strict=True))

    @cached_property
    def index(self) -> pd.MultiIndex:
        return pd.MultiIndex.from_frame(self.df[INDEX])

    @cached_property
    def _places(self) -> dict[str, np.ndarray]:
        return self.df.groupby("variant").indices

    def of(self, variant: str) -> np.ndarray:
        """Return where its rows are; NotMeasured if it has none."""
        if variant not in self._places:
            raise NotMeasured(f"The variant {variant!r} was not measured in {', '.join(self.experiments)}.")
        return self._places[variant]


@dataclass
class Evidence:
    """The records of one GPU for one room, read when first needed.

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
        # A room that was not measured has no machine; counters may lie there before its records.
        records.check_room(self.folder / self.room)

    def only(self, where: Mapping[str, object], repeats: bool = False) -> Evidence:
        """Return the same evidence, of the rows alone whose columns have these values; with `repeats`,
        experiments that are read together are runs of one measurement."""
        made = copy(self)  # the folder has been looked at
        made.where, made.repeats, made.seen = where, repeats, set()
        return made

    def frame(self, experiments: Iterable[str]) -> pd.DataFrame:
        """Return records of these experiments with the rows of BEST and ROOM_BEST, runs of one measurement
        as one experiment; NotMeasured if one is missing, or if none is left of what `where`
        keeps. Nobody may change it."""
        return self._framed(experiments).df

    def rows(self, experiments: Iterable[str], variants: Iterable[str]) -> pd.DataFrame:
        """Return those of `frame` that are of `variants`; NotMeasured if one of them has none."""
        frame = self._framed(experiments)
        return frame.df.iloc[np.sort(np.concatenate([frame.of(name) for name in dict.fromkeys(variants)]))]

    def ratio(self, experiments: Iterable[str], variant: str, baseline: str) -> pd.Series:
        """Return time of `baseline` over that of `variant` at each point that both have, indexed by INDEX;
        NotMeasured if there is none."""
        frame = self._framed(experiments)
        theirs = {frame.points[i]: i for i in frame.of(baseline)}
        both = [(i, theirs[frame.points[i]]) for i in frame.of(variant) if frame.points[i] in theirs]
        if not both:
            raise NotMeasured(f"{variant!r} and {baseline!r} were not measured at any common point.")
        (one, other), times = np.array(both).T, frame.df["median_us"].to_numpy()
        return pd.Series(times[other] / times[one], frame.index[one], name="speedup")

    def _framed(self, experiments: Iterable[str]) -> Frame:
        names = sweeps(experiments)
        key = (*names, repr(self.where), self.repeats)
        if key not in self.frames:
            self.frames[key] = Frame(self._frame(names), names)
        self.seen.update(names)
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

    def _one(self, experiment: str) -> pd.DataFrame:
        if experiment not in self.read:
            self.read[experiment] = self._records(experiment)
        return self.read[experiment]

    def _records(self, experiment: str) -> pd.DataFrame:
        path = place(experiment, self.folder, self.room)
        if experiment.startswith(OTHERS):
            return _of_others(self.room, experiment, self.folder.name)
        if SERIES in experiment:
            return _series(path, self.room, experiment)
        if not os.path.lexists(path):  # a link to nothing is an error, not a gap
            raise NotMeasured(f"There is no record of the experiment {experiment!r}.")
        df = records.complete(records.read(path), path)
        whole(df, planned(self.room, experiment), path)
        return with_best(df)

    def ceiling(self, name: str, unit: str) -> float:
        """Return what a microbenchmark reached on this GPU, as "tflops" or "gbps"."""
        if CEILINGS not in self.read:
            records.check_room(self.folder / CEILINGS)
            self.read[CEILINGS] = pd.DataFrame(ceilings(self.folder))
        if self.read[CEILINGS].empty:
            raise NotMeasured("The ceilings of this GPU (copy, FMA, L2) were not measured.")
        if name not in self.read[CEILINGS]:
            raise NotMeasured(f"The ceiling {name!r} was not measured.")
        self.seen.add(CEILINGS)
        return float(self.read[CEILINGS].loc[unit, name])

    @property
    def counters(self) -> pd.DataFrame:
        """The hardware counters of the room; NotMeasured where there are none."""
        if records.COUNTERS not in self.read:
            try:
                self.read[records.COUNTERS] = records.read_counters(place(records.COUNTERS, self.folder, self.room))
            except FileNotFoundError:
                raise NotMeasured("There are no hardware counters of this room on this GPU (make profile).") from None
        return self.read[records.COUNTERS]

    def _profiled(self, metric: str) -> pd.DataFrame:
        key = f"{records.COUNTERS}: {metric}"
        if key not in self.read:
            self.read[key] = self.counters[self.counters["metric"] == metric]
        return self.read[key]

    def counter(self, variant: str, metric: str, experiments: Iterable[str]) -> pd.Series:
        """Return one counter at the points of the experiments, indexed by experiment, m, n, k, density.

        "cusparse_best" means, at each point, the algorithm that was fastest there.
        """
        times = self.frame(experiments)
        rows = times[times["variant"] == variant]
        actual = rows["best_of" if variant in (BEST, ROOM_BEST) else "variant"]
        wanted = rows[["experiment", *SHAPE]].assign(variant=actual)
        found = wanted.merge(self._profiled(metric), on=["variant", *SHAPE])
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


# ---------------------------------------------------------------- whether a record is whole


@cache
def planned(room: str, experiment: str) -> Sequence[Counter]:
    """Count the points of each shape and density of an experiment, in full and as a kick: by the sweep of
    the room's kernels that has its name, or that claims.toml gives it under [points]. Empty where no
    sweep says it, as of matrices from outside."""
    path = registry.FOLDER / room / registry.CLAIMS
    try:
        sweeps = importlib.import_module(f"kernels.{room}").sweeps
    except (ModuleNotFoundError, AttributeError):
        return ()
    name = registry.toml(path).get("points", {}).get(experiment, experiment)
    shapes = [sweeps(preset).get(name, ()) for preset in ("full", "kick")]
    return tuple(Counter(tuple(float(s[key]) for key in SHAPE) for s in made) for made in shapes) if all(shapes) else ()


def whole(df: pd.DataFrame, plans: Sequence[Counter], path: Path) -> None:
    """Raise ValueError, one sentence, if a record holds neither all points of its sweep nor those of
    its kick: it was cut at a point's boundary, as an interrupted measurement leaves it, and a verdict
    on it would be one on other points."""
    points = df[list(records.POINT)].drop_duplicates()[SHAPE].astype(float)
    have = Counter(points.itertuples(index=False, name=None))
    if not plans or have == plans[1] or not (lacks := plans[0] - have):
        return
    at = ", ".join(f"{key} = {value:g}" for key, value in zip(SHAPE, next(lacks.elements()), strict=True))
    raise ValueError(
        f"{path}: this record lacks {lacks.total()} of the {plans[0].total()} points of its sweep, the "
        f"first at {at}, so it was cut or its measurement was interrupted; measuring goes on from there."
    )


# ---------------------------------------------------------------- records of other kinds


def sweeps(experiments: Iterable[str]) -> list[str]:
    """Return those that hold times of kernels."""
    return [e for e in experiments if e not in NOT_SWEEPS]


def place(experiment: str, folder: Path, room: str) -> Path:
    """Return where an experiment's numbers lie, if they are there. folder: of the GPU."""
    if experiment.startswith(OTHERS):
        return registry.others(room, experiment.removeprefix(OTHERS), folder.name)
    if SERIES in experiment:
        return registry.published(room, experiment.partition(SERIES)[0])
    return folder / (CEILINGS if experiment == CEILINGS else room) / f"{experiment}.csv"


def files(experiments: Iterable[str], folder: Path, room: str) -> list[Path]:
    """Return `place` of each, once, of those that are there."""
    return [path for path in dict.fromkeys(place(e, folder, room) for e in experiments) if path.is_file()]


def ceilings(folder: Path) -> dict[str, dict[str, float]]:
    """Return what microbenchmarks reached on a GPU, as `records.ceilings`; nothing where they were not measured."""
    try:
        return records.ceilings(folder)
    except FileNotFoundError:
        return {}


def _series(path: Path, room: str, experiment: str) -> pd.DataFrame:
    """Return a published series as records: <figure>.csv with the columns gpu, library, density, m,
    n, k and tflops, those of the dense product. A library at density 1 alone is a dense one, and
    stands beside the others at each of their densities. FileNotFoundError or ValueError, one
    sentence, where there is none."""
    gpu, df = experiment.partition(SERIES)[2], records.published(path)
    df = df[df["gpu"] == gpu]
    if df.empty:
        raise ValueError(f"{path}: there is no series of the GPU {gpu!r}.")
    dense = df.groupby("library")["density"].transform("min") == 1
    beside = df[dense].drop(columns="density").merge(df.loc[~dense, ["density"]].drop_duplicates(), how="cross")
    df = pd.concat([df[~dense], beside], ignore_index=True)
    return _as_records(df, _flops(df) / df["tflops"] / 1e6, df["tflops"], room, experiment)


def _of_others(room: str, experiment: str, gpu: str) -> pd.DataFrame:
    """Return what the code of others gave on this GPU as records. Where its numbers are speedups, times are in units of
    the baseline's at each point, so that ratios of them are right; rates are there where the baseline's is known."""
    measured = others.nearest(room, name := experiment.removeprefix(OTHERS), gpu)
    if slug(measured.gpu) != gpu:
        ran = " and ".join(f"an {m.gpu}" for m in others.find(room, name=name))
        raise NotMeasured(f"The code of others did not run on this GPU, only on {ran}.")
    df = measured.numbers()
    if "tflops" in df:
        return _as_records(df, _flops(df) / df["tflops"] / 1e6, df["tflops"], room, experiment)
    over = df.drop_duplicates(SHAPE).assign(library=measured.over, speedup=1.0)
    df = pd.concat([df, over], ignore_index=True)
    return _as_records(df, 1 / df["speedup"], df["speedup"] * df.get("over_tflops", np.nan), room, experiment)


def _flops(df: pd.DataFrame) -> pd.Series:
    """Count the FLOPs of the dense product."""
    return 2.0 * df["m"] * df["n"] * df["k"]


def _as_records(df: pd.DataFrame, us: pd.Series, dense: pd.Series, room: str, experiment: str) -> pd.DataFrame:
    """Return the numbers of libraries as records. us: times; dense: TFLOP/s of the dense product."""
    return df.rename(columns={"library": "variant"}).assign(
        room=room,
        experiment=experiment,
        label="",
        median_us=us,
        useful_flops=_flops(df) * df["density"],
        tflops=dense * df["density"],
    )


def _mean_of_runs(df: pd.DataFrame) -> pd.DataFrame:
    """Return several experiments as one: times and rates of each contender at each point are geometric
    means over the experiments that have it, other columns those of the first."""
    runs = df.groupby(list(records.KEY), sort=False)
    mean = runs[["median_us", "tflops", "gbps"]].agg(lambda v: np.exp(np.log(v).mean()))
    first = runs.first().assign(experiment=" and ".join(dict.fromkeys(df["experiment"])))
    return first.assign(**mean).reset_index()[df.columns]
