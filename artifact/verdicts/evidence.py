"""The records of one GPU for one room, as the evidence for its claims."""

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

CEILINGS = "ceilings"  # its own room, used by claims of any room
NOT_SWEEPS = (
    records.COUNTERS,
    CEILINGS,
)  # may stand among a claim's experiments, but hold no times of kernels
# Contenders that exist point by point only: the fastest algorithm of cuSPARSE, the fastest variant of the room.
BEST, ROOM_BEST = "cusparse_best", "room_best"
SERIES = "@"  # in the name of an experiment that is a published series: <figure>@<gpu>
OTHERS = f"{registry.OTHERS}/"  # begins the name of an experiment that ran the code of others: others/<name>


#: What tells the values of one variant apart, for whoever reduces them.
INDEX = ["experiment", *records.POINT, "useful_flops"]


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
        """Where its rows are; NotMeasured if it has none."""
        if variant not in self._places:
            where = ", ".join(self.experiments)
            raise NotMeasured(f"The variant {variant!r} was not measured in {where}.")
        return self._places[variant]


@dataclass
class Evidence:
    """The records of one GPU for one room, read when first needed.

    Raises FileNotFoundError or ValueError if it is not known on which machine they were measured, or if
    one that was planned is not there, ValueError if a record is not valid or not complete.
    """

    folder: Path  # of the GPU
    room: str
    read: dict[str, pd.DataFrame] = field(default_factory=dict)
    frames: dict[tuple, "Frame"] = field(default_factory=dict)  # many claims ask for the same
    where: Mapping[str, object] = field(default_factory=dict)  # column: value, or list of values
    repeats: bool = False  # experiments are runs of one measurement
    rooms: Path = registry.FOLDER  # where the series of the sources lie
    seen: set[str] = field(default_factory=set)  # experiments, COUNTERS, CEILINGS: what was used

    def __post_init__(self):
        # A room that was not measured has no machine; counters may lie there before its records.
        records.check_room(self.folder / self.room)

    def only(self, where: Mapping[str, object], repeats: bool = False) -> "Evidence":
        """The same evidence, of the rows alone whose columns have these values; with `repeats`,
        experiments that are read together are runs of one measurement."""
        made = copy(self)  # the folder has been looked at
        made.where, made.repeats, made.seen = where, repeats, set()
        return made

    def frame(self, experiments: Iterable[str]) -> pd.DataFrame:
        """Records of these experiments with the rows of BEST and ROOM_BEST, runs of one measurement
        as one experiment; NotMeasured if one is missing, or if none is left of what `where`
        keeps. Nobody may change it."""
        return self._framed(experiments).df

    def rows(self, experiments: Iterable[str], variants: Iterable[str]) -> pd.DataFrame:
        """Those of `frame` that are of `variants`; NotMeasured if one of them has none."""
        frame = self._framed(experiments)
        places = [frame.of(name) for name in dict.fromkeys(variants)]
        return frame.df.iloc[np.sort(np.concatenate(places))]

    def ratio(self, experiments: Iterable[str], variant: str, baseline: str) -> pd.Series:
        """Time of `baseline` over that of `variant` at each point that both have, indexed by INDEX;
        NotMeasured if there is none."""
        frame = self._framed(experiments)
        ours, theirs = frame.of(variant), {frame.points[i]: i for i in frame.of(baseline)}
        both = [(i, theirs[frame.points[i]]) for i in ours if frame.points[i] in theirs]
        if not both:
            raise NotMeasured(f"{variant!r} and {baseline!r} were not measured at any common point.")
        ours, theirs = np.array(both).T
        times = frame.df["median_us"].to_numpy()
        return pd.Series(times[theirs] / times[ours], frame.index[ours], name="speedup")

    def _framed(self, experiments: Iterable[str]) -> "Frame":
        names = sweeps(experiments)
        key = (*names, repr(self.where), self.repeats)
        if key not in self.frames:
            self.frames[key] = Frame(self._frame(names), names)
        self.seen.update(names)
        return self.frames[key]

    def _frame(self, names: Sequence[str]) -> pd.DataFrame:
        df = pd.concat([self._one(e) for e in names], ignore_index=True)
        for column, value in self.where.items():
            df = df[df[column].isin(value if isinstance(value, list) else [value])]
        if self.where and df.empty:
            raise NotMeasured(f"The records of {', '.join(names)} have nothing at {self.kept}.")
        return _mean_of_runs(df) if self.repeats and len(names) > 1 else df

    @property
    def kept(self) -> str:
        """`where` as text."""
        values = {c: v if isinstance(v, list) else [v] for c, v in self.where.items()}
        return ", ".join(f"{c} = {' or '.join(map(str, v))}" for c, v in values.items())

    def _one(self, experiment: str) -> pd.DataFrame:
        if experiment.startswith(OTHERS):
            if experiment not in self.read:
                self.read[experiment] = self._of_others(experiment)
        elif SERIES in experiment:
            if experiment not in self.read:
                path = place(experiment, self.folder, self.room, self.rooms)
                self.read[experiment] = _series(path, self.room, experiment)
        elif experiment not in self.read:
            path = place(experiment, self.folder, self.room, self.rooms)
            if not os.path.lexists(path):  # a link to nothing is an error, not a gap
                raise NotMeasured(f"There is no record of the experiment {experiment!r}.")
            df = records.complete(records.read(path), path)
            whole(df, planned(self.room, experiment, self.rooms), path)
            self.read[experiment] = with_best(df)
        return self.read[experiment]

    def _of_others(self, experiment: str) -> pd.DataFrame:
        """What the code of others gave on this GPU, as records."""
        name = experiment.removeprefix(OTHERS)
        measured = others.nearest(self.room, name, self.folder.name, self.rooms)
        if slug(measured.gpu) != self.folder.name:
            ran = " and ".join(f"an {m.gpu}" for m in others.find(self.room, self.rooms, name))
            raise NotMeasured(f"The code of others did not run on this GPU, only on {ran}.")
        return _of_others(measured, self.rooms, experiment)

    def ceiling(self, name: str, unit: str) -> float:
        """What a microbenchmark reached on this GPU, as "tflops" or "gbps"."""
        if CEILINGS not in self.read:
            records.check_room(self.folder / CEILINGS)
            try:
                self.read[CEILINGS] = pd.DataFrame(records.ceilings(self.folder))
            except FileNotFoundError:
                raise NotMeasured("The ceilings of this GPU (copy, FMA, L2) were not measured.") from None
        if name not in self.read[CEILINGS]:
            raise NotMeasured(f"The ceiling {name!r} was not measured.")
        self.seen.add(CEILINGS)
        return float(self.read[CEILINGS].at[unit, name])

    @property
    def counters(self) -> pd.DataFrame:
        if records.COUNTERS not in self.read:
            path = self.folder / self.room / f"{records.COUNTERS}.csv"
            try:
                self.read[records.COUNTERS] = records.read_counters(path)
            except FileNotFoundError:
                raise NotMeasured("There are no hardware counters of this room on this GPU (make profile).") from None
        return self.read[records.COUNTERS]

    def _profiled(self, metric: str) -> pd.DataFrame:
        key = f"{records.COUNTERS}: {metric}"
        if key not in self.read:
            self.read[key] = self.counters[self.counters["metric"] == metric]
        return self.read[key]

    def counter(self, variant: str, metric: str, experiments: Iterable[str]) -> pd.Series:
        """One counter at the points of the experiments, indexed by experiment, m, n, k, density.

        "cusparse_best" means, at each point, the algorithm that was fastest there.
        """
        times = self.frame(experiments)
        at = ["m", "n", "k", "density"]
        rows = times[times["variant"] == variant]
        actual = rows["best_of"] if variant in (BEST, ROOM_BEST) else rows["variant"]
        wanted = rows[["experiment", *at]].assign(variant=actual)
        profiled = self._profiled(metric)
        found = wanted.merge(profiled, on=["variant", *at])
        if found.empty:
            raise NotMeasured(f"The counter {metric} was not profiled for {variant}.")
        self.seen.add(records.COUNTERS)
        return found.set_index(["experiment", *at])["value"].rename(metric)


def with_best(df: pd.DataFrame) -> pd.DataFrame:
    """A record with the rows of BEST, where cuSPARSE was measured, and of ROOM_BEST."""
    ours = df[~df["variant"].str.startswith(registry.PREFIXES)]
    if df["variant"].str.startswith("cusparse_").any():  # not cuSPARSELt, another library
        df = records.best_of(df, "cusparse_")
    if not ours.empty:
        best = records.best_of(ours, "", ROOM_BEST)
        df = pd.concat([df, best[best["variant"] == ROOM_BEST]], ignore_index=True)
    return df


# ---------------------------------------------------------------- whether a record is whole

_SHAPE = ("m", "n", "k", "density")


@cache
def planned(room: str, experiment: str, folder: Path = registry.FOLDER) -> Sequence[Counter]:
    """How many points of each shape and density an experiment has, in full and as a kick: by the sweep of
    the room's kernels that has its name, or that claims.toml gives it under [points]. Empty where no
    sweep says it, as of matrices from outside."""
    try:
        module = importlib.import_module(f"kernels.{room}")
    except ModuleNotFoundError:
        return ()
    path = Path(folder) / room / registry.CLAIMS
    name = registry.toml(path).get("points", {}).get(experiment) if path.is_file() else None
    sweeps = getattr(module, "sweeps", None)
    presets = [sweeps(preset) for preset in ("full", "kick")] if sweeps else []
    shapes = [preset.get(name or experiment) for preset in presets]
    if not all(shapes):
        return ()
    return tuple(Counter(tuple(float(s[key]) for key in _SHAPE) for s in made) for made in shapes)


def whole(df: pd.DataFrame, plans: Sequence[Counter], path: Path) -> None:
    """Raises ValueError, one sentence, if a record holds neither all points of its sweep nor those of
    its kick: it was cut at a point's boundary, as an interrupted measurement leaves it, and a verdict
    on it would be one on other points."""
    if not plans:
        return
    points = df[list(records.POINT)].drop_duplicates()[list(_SHAPE)].astype(float)
    have = Counter(points.itertuples(index=False, name=None))
    full, kick = plans
    if have == kick or not full - have:
        return
    lacking = next(iter((full - have).elements()))
    at = ", ".join(f"{key} = {value:g}" for key, value in zip(_SHAPE, lacking, strict=True))
    raise ValueError(
        f"{path}: this record lacks {(full - have).total()} of the {full.total()} points of its sweep, the "
        f"first at {at}, so it was cut or its measurement was interrupted; measuring goes on from there."
    )


# ---------------------------------------------------------------- records of other kinds


def sweeps(experiments: Iterable[str]) -> list[str]:
    return [e for e in experiments if e not in NOT_SWEEPS]


def place(experiment: str, folder: Path, room: str, known: Path = registry.FOLDER) -> Path:
    """Where an experiment's numbers lie, if they are there. folder: of the GPU; known: as `registry.find` takes it."""
    if experiment.startswith(OTHERS):
        return registry.others(room, experiment.removeprefix(OTHERS), folder.name, known)
    if SERIES in experiment:
        return registry.published(room, experiment.partition(SERIES)[0], known)
    return folder / (CEILINGS if experiment == CEILINGS else room) / f"{experiment}.csv"


def files(experiments: Iterable[str], folder: Path, room: str) -> list[Path]:
    """`place` of each, once, of those that are there."""
    found = dict.fromkeys(place(experiment, folder, room) for experiment in experiments)
    return [path for path in found if path.is_file()]


def _series(path: Path, room: str, experiment: str) -> pd.DataFrame:
    """A published series as records: <figure>.csv with the columns gpu, library, density, m,
    n, k and tflops, those of the dense product. A library at density 1 alone is a dense one, and
    stands beside the others at each of their densities. FileNotFoundError or ValueError, one
    sentence, where there is none."""
    gpu = experiment.partition(SERIES)[2]
    df = records.published(path)
    df = df[df["gpu"] == gpu]
    if df.empty:
        raise ValueError(f"{path}: there is no series of the GPU {gpu!r}.")
    dense = df.groupby("library")["density"].transform("min") == 1
    others = pd.DataFrame({"density": df.loc[~dense, "density"].unique()})
    beside = df[dense].drop(columns="density").merge(others, how="cross")
    df = pd.concat([df[~dense], beside], ignore_index=True).rename(columns={"library": "variant"})
    flops = 2.0 * df["m"] * df["n"] * df["k"]
    return df.assign(
        room=room,
        experiment=experiment,
        label="",
        median_us=flops / df["tflops"] / 1e6,
        useful_flops=flops * df["density"],
        tflops=df["tflops"] * df["density"],
    )


def _of_others(measured: others.Others, folder: Path, experiment: str) -> pd.DataFrame:
    """The numbers of others' code as records. Where they are speedups, times are in units of the baseline's at each
    point, so that ratios of them are right; rates are there where the baseline's is known."""
    df = measured.numbers(folder).rename(columns={"library": "variant"})
    flops = 2.0 * df["m"] * df["n"] * df["k"]
    if "tflops" in df.columns:
        times, rate = flops / df["tflops"] / 1e6, df["tflops"]
    else:
        over = df.drop_duplicates(["m", "n", "k", "density"]).assign(variant=measured.over, speedup=1.0)
        df = pd.concat([df, over], ignore_index=True)
        flops = 2.0 * df["m"] * df["n"] * df["k"]
        times, rate = 1 / df["speedup"], df["speedup"] * df.get("over_tflops", np.nan)
    return df.assign(
        room=measured.room,
        experiment=experiment,
        label="",
        median_us=times,
        useful_flops=flops * df["density"],
        tflops=rate * df["density"],
    )


def _mean_of_runs(df: pd.DataFrame) -> pd.DataFrame:
    """Several experiments as one: times and rates of each contender at each point are geometric
    means over the experiments that have it, other columns those of the first."""
    runs = df.groupby(list(records.KEY), sort=False)
    mean = runs[["median_us", "tflops", "gbps"]].agg(lambda v: np.exp(np.log(v).mean()))
    first = runs.first().assign(experiment=" and ".join(dict.fromkeys(df["experiment"])))
    return first.assign(**mean).reset_index()[df.columns]
