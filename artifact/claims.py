"""What the sources claim, and what our records say about it.

`claims.toml` holds the claims. Each names one of the MEASURES below and its parameters, so the
whole rule behind a verdict is the measure's docstring plus the numbers in the TOML; no text from a
file is evaluated. Every measure states when it gives "reproduced", "partly" and "not reproduced". A
claim whose records are missing is "not measured on this GPU", with the reason. Shares and quantiles
count the points (shape x density) of the experiments that the claim names, or of those among them
that `where` keeps: every rule may hold one, column = value or a list of values. With `repeats = true`,
which every rule may hold too, the experiments are runs of one measurement: their times and rates
count by the geometric mean over the runs that have a point, and the verdict of each run is given
beside it.

An experiment "fig9@A100" is none of ours: it is the series for the A100 that a source published,
`artifact/published/<room>_fig9.csv`. A claim about it says whether a source's text is borne out by
its own data, whatever GPU the records are of.
"""

import contextlib
import html
import inspect
import itertools
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from artifact import paths, records

REPRODUCED = "reproduced"
PARTLY = "partly"
NOT_REPRODUCED = "not reproduced"
NOT_MEASURED = "not measured on this GPU"
VERDICTS = (REPRODUCED, PARTLY, NOT_REPRODUCED, NOT_MEASURED)

TOML = Path(__file__).with_name("claims.toml")
CEILINGS = "ceilings"  # its own room, used by claims of any room
NOT_SWEEPS = (
    records.COUNTERS,
    CEILINGS,
)  # may stand among a claim's experiments, but hold no times of kernels
# Contenders that exist point by point only: the fastest algorithm of cuSPARSE, the fastest variant
# of the room.
BEST, DEFAULT, ROOM_BEST = "cusparse_best", "cusparse_default", "room_best"
# A baseline that may choose its algorithm -> the name of its library, and the one that does not.
DEFAULTS = {BEST: ("cuSPARSE", DEFAULT), "cusparselt": ("cuSPARSELt", "cusparselt_default")}
# Why warps do not issue, as Nsight Compute counts it; but one that issues is no stall.
STALL = re.compile(
    r"smsp__average_warps_issue_stalled_(?!selected_)(\w+)_per_issue_active\.(?:ratio|pct)"
)
LIBRARIES = records.LIBRARIES
SERIES = "@"  # in the name of an experiment that is a published series: <figure>@<gpu>
COMMON = ("where", "repeats")  # what every rule may hold besides the parameters of its measure


class NotMeasured(Exception):
    """The records that a claim needs are not there; the message says which."""


@dataclass(frozen=True)
class Claim:
    id: str
    room: str
    source: str  # the system's name
    where: str  # section, figure or table of the source
    says: str  # in our words
    experiment: tuple[str, ...]
    measure: str
    rule: Mapping[str, object]  # parameters of the measure
    published: str  # the source's value, for people
    minutes: float  # to measure its experiments on one H200
    note: str = ""
    contradicts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    verdict: str
    measured: str  # value with its unit
    why: str


@dataclass
class Evidence:
    """The records of one GPU for one room, read when first needed.

    Raises FileNotFoundError or ValueError if it is not known on which machine they were measured,
    ValueError if a record is not valid or not complete.
    """

    folder: Path  # of the GPU
    room: str
    read: dict[str, pd.DataFrame] = field(default_factory=dict)
    where: Mapping[str, object] = field(default_factory=dict)  # column: value, or list of values
    repeats: bool = False  # experiments are runs of one measurement
    published: Path = paths.PUBLISHED  # where the series of the sources lie

    def __post_init__(self):
        # A room that was not measured has no machine; counters may lie there before its records.
        if records.experiments(self.folder / self.room):
            records.read_machine(self.folder / self.room)

    def only(self, where: Mapping[str, object], repeats: bool = False) -> "Evidence":
        """The same evidence, of the rows alone whose columns have these values; with `repeats`,
        experiments that are read together are runs of one measurement."""
        return replace(self, where=where, repeats=repeats)

    def frame(self, experiments: Iterable[str]) -> pd.DataFrame:
        """Records of these experiments with the rows of BEST and ROOM_BEST, runs of one measurement
        as one experiment; NotMeasured if one is missing, or if none is left of what `where`
        keeps."""
        sweeps = _sweeps(experiments)
        df = pd.concat([self._one(e) for e in sweeps], ignore_index=True)
        for column, value in self.where.items():
            df = df[df[column].isin(value if isinstance(value, list) else [value])]
        if self.where and df.empty:
            raise NotMeasured(f"The records of {', '.join(sweeps)} have nothing at {self.kept}.")
        return _mean_of_runs(df) if self.repeats and len(sweeps) > 1 else df

    @property
    def kept(self) -> str:
        """`where` as text."""
        values = {c: v if isinstance(v, list) else [v] for c, v in self.where.items()}
        return ", ".join(f"{c} = {' or '.join(map(str, v))}" for c, v in values.items())

    def _one(self, experiment: str) -> pd.DataFrame:
        if SERIES in experiment:
            if experiment not in self.read:
                self.read[experiment] = _series(self.published, self.room, experiment)
        elif experiment not in self.read:
            path = self.folder / self.room / f"{experiment}.csv"
            if not path.exists():
                raise NotMeasured(f"There is no record of the experiment {experiment!r}.")
            df = records.complete(records.read(path), path)
            ours = df[~df["variant"].str.startswith(LIBRARIES)]
            if df["variant"].str.startswith("cusparse_").any():  # not cuSPARSELt, another library
                df = records.best_of(df, "cusparse_")
            if not ours.empty:
                best = records.best_of(ours, "", ROOM_BEST)
                df = pd.concat([df, best[best["variant"] == ROOM_BEST]], ignore_index=True)
            self.read[experiment] = df
        return self.read[experiment]

    @cached_property
    def ceilings(self) -> dict[str, dict[str, float]]:
        try:
            return records.ceilings(self.folder)
        except FileNotFoundError:
            raise NotMeasured(
                "The ceilings of this GPU (copy, FMA, L2) were not measured."
            ) from None

    def ceiling(self, name: str, unit: str) -> float:
        if name not in self.ceilings:
            raise NotMeasured(f"The ceiling {name!r} was not measured.")
        return self.ceilings[name][unit]

    @property
    def counters(self) -> pd.DataFrame:
        if records.COUNTERS not in self.read:
            path = self.folder / self.room / f"{records.COUNTERS}.csv"
            try:
                self.read[records.COUNTERS] = records.read_counters(path)
            except FileNotFoundError:
                raise NotMeasured(
                    "There are no hardware counters of this GPU (make profile)."
                ) from None
        return self.read[records.COUNTERS]

    def counter(
        self, variant: str, metrics: Sequence[str], experiments: Iterable[str]
    ) -> pd.Series:
        """The first of `metrics` that was profiled, per point of the experiments, indexed by
        experiment, m, n, k, density.

        "cusparse_best" means, at each point, the algorithm that was fastest there.
        """
        times = self.frame(experiments)
        at = ["m", "n", "k", "density"]
        rows = times[times["variant"] == variant]
        actual = rows["best_of"] if variant in (BEST, ROOM_BEST) else rows["variant"]
        wanted = rows[["experiment", *at]].assign(variant=actual)
        for metric in metrics:
            profiled = self.counters[self.counters["metric"] == metric]
            profiled = profiled.drop_duplicates(["variant", *at], keep="last")
            found = wanted.merge(profiled, on=["variant", *at])
            if not found.empty:
                return found.set_index(["experiment", *at])["value"].rename(metric)
        raise NotMeasured(f"The counter {metrics[0]} was not profiled for {variant}.")


# ---------------------------------------------------------------- helpers of the measures


def _sweeps(experiments: Iterable[str]) -> list[str]:
    return [e for e in experiments if e not in NOT_SWEEPS]


def _series(folder: Path, room: str, experiment: str) -> pd.DataFrame:
    """A published series as records: <room>_<figure>.csv with the columns gpu, library, density, m,
    n, k and tflops, those of the dense product. A library at density 1 alone is a dense one, and
    stands beside the others at each of their densities. FileNotFoundError or ValueError, one
    sentence, where there is none."""
    figure, _, gpu = experiment.partition(SERIES)
    path = folder / f"{room}_{figure}.csv"
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


def _mean_of_runs(df: pd.DataFrame) -> pd.DataFrame:
    """Several experiments as one: times and rates of each contender at each point are geometric
    means over the experiments that have it, other columns those of the first."""
    runs = df.groupby(list(records.KEY), sort=False)
    mean = runs[["median_us", "tflops", "gbps"]].agg(lambda v: np.exp(np.log(v).mean()))
    first = runs.first().assign(experiment=" and ".join(dict.fromkeys(df["experiment"])))
    return first.assign(**mean).reset_index()[df.columns]


def _rows(e: Evidence, experiments: Iterable[str], *variants: str) -> pd.DataFrame:
    """The records of `variants`; NotMeasured if one of them has none."""
    df = e.frame(experiments)
    for name in variants:
        if not (df["variant"] == name).any():
            raise NotMeasured(f"The variant {name!r} was not measured in {', '.join(experiments)}.")
    return df[df["variant"].isin(variants)]


def _speedup(e: Evidence, experiments: Iterable[str], variant: str, baseline: str) -> pd.Series:
    try:
        return records.speedup(_rows(e, experiments, variant, baseline), variant, baseline)
    except ValueError as error:
        raise NotMeasured(str(error)) from None


def _library(baseline: str) -> str:
    return "cuSPARSE" if baseline in (BEST, DEFAULT) else DEFAULTS.get(baseline, [baseline])[0]


def _over(baseline: str) -> str:
    """What a speedup is over, where that is not cuSPARSE, whose algorithm `_outcome` names."""
    return "" if baseline in (BEST, DEFAULT) else f" over {_library(baseline)}"


def _of(variant: str, baseline: str) -> str:
    return _over(baseline) and f" of {variant}{_over(baseline)}"


def _density(fraction: float) -> str:
    return f"density {fraction * 100:g} %"


def _near(
    values: pd.Series, low: float, high: float, reproduced: float, partly: float
) -> tuple[str, float]:
    """The verdict on values that are stated to lie in [low, high], and their worst distance.

    A distance is the factor by which a value lies outside, 1 inside. Reproduced if nine in ten are
    within the factor `reproduced`, partly within `partly`.
    """
    with np.errstate(divide="ignore"):
        off = np.maximum(1.0, np.maximum(low / values, values / high)) * (1 - 1e-9)
    within = {limit: (off <= limit).mean() >= 0.9 for limit in (reproduced, partly)}
    verdict = REPRODUCED if within[reproduced] else PARTLY if within[partly] else NOT_REPRODUCED
    return verdict, float(off.max())


def _digits(values: Iterable[float]) -> str:
    """The range of values: three significant digits, or all before the point."""
    values = np.asarray(list(values), dtype=float)
    pair = (f"{v:.3g}" if v < 1000 else f"{v:.0f}" for v in (values.min(), values.max()))
    return "–".join(dict.fromkeys(pair))


def _stated(low: float, high: float) -> str:
    """Numbers of a source as text, with the digits that it gives."""
    if math.isinf(high):
        return f"at least {low:.10g}"
    pair = [f"{v:.2f}" if 0 < v < 1 and v == round(v, 2) else f"{v:.10g}" for v in (low, high)]
    return "–".join(dict.fromkeys(pair))


def _grade(value: float, reproduced: float, partly: float) -> str:
    """Larger is better; `partly` is the weaker threshold."""
    return REPRODUCED if value >= reproduced else PARTLY if value >= partly else NOT_REPRODUCED


def _all_of(verdicts: Sequence[str]) -> str:
    """The verdict on a claim about several things at once."""
    return verdicts[0] if len(set(verdicts)) == 1 else PARTLY


def _range(values: Iterable[float], unit: str = "", digits: int = 2) -> str:
    values = np.asarray(list(values), dtype=float)
    low, high = (f"{v:.{digits}f}" for v in (values.min(), values.max()))
    return f"{low}{unit}" if low == high else f"{low}–{high}{unit}"


def _per_experiment(s: pd.Series) -> str:
    groups = s.groupby("experiment", sort=False)
    return ", ".join(f"{name} {records.geomean(v):.2f}×" for name, v in groups)


def _points(count: int) -> str:
    return f"{count} point" + ("s" if count != 1 else "")


# ---------------------------------------------------------------- measures


def share_of_points(
    e: Evidence, experiment, variant: str, faster: str, reproduced=1.0, partly=0.5, baseline=BEST
) -> Outcome:
    """Who is faster, point by point. `faster` is "variant" or "baseline".

    Reproduced if that one is faster at a share of at least `reproduced` of the points, partly at
    `partly`.
    """
    if faster not in ("variant", "baseline"):
        raise ValueError(f"`faster` is {faster!r}; it must be 'variant' or 'baseline'.")
    s = _speedup(e, experiment, variant, baseline)
    wins = s > 1 if faster == "variant" else s < 1
    names = {"variant": variant, "baseline": _library(baseline)}
    return Outcome(
        _grade(wins.mean(), reproduced, partly),
        f"{names[faster]} faster at {wins.sum()} of {_points(len(s))}",
        f"Speedup{_of(variant, baseline)} {_range(s, '×')}; geometric means: {_per_experiment(s)}.",
    )


def speedup_range(
    e: Evidence, experiment, variant: str, low: float, high: float, tolerance: float, baseline=BEST
) -> Outcome:
    """Where the speedups lie. Reproduced if 90% of the points lie in [low, high] widened by
    `tolerance` on each side, partly if half of them or their geometric mean do."""
    s = _speedup(e, experiment, variant, baseline)
    inside = s.between(low - tolerance, high + tolerance).mean()
    mean = records.geomean(s)
    verdict = _grade(inside, 0.9, 0.5)
    if verdict == NOT_REPRODUCED and low - tolerance <= mean <= high + tolerance:
        verdict = PARTLY
    return Outcome(
        verdict,
        f"{_range(s, '×')}{_over(baseline)}, geometric mean {mean:.2f}×",
        f"{inside:.0%} of {_points(len(s))} lie in {low:g}–{high:g} ± {tolerance:g}.",
    )


def speedup_mean(
    e: Evidence,
    experiment,
    variant: str,
    reproduced: float,
    partly: float,
    each=False,
    baseline=BEST,
) -> Outcome:
    """How fast on average. Reproduced if the geometric mean of the speedup is at least
    `reproduced`, partly at `partly`; with `each`, in every experiment (partly: in some). Where
    `reproduced` < `partly` the claim is that it is slow, and the mean must be at most that."""
    s = _speedup(e, experiment, variant, baseline)
    sign = 1 if reproduced >= partly else -1
    groups = [v for _, v in s.groupby("experiment", sort=False)] if each else [s]
    grades = [_grade(sign * records.geomean(v), sign * reproduced, sign * partly) for v in groups]
    limit = "at least" if sign > 0 else "at most"
    return Outcome(
        _all_of(grades),
        f"geometric mean {records.geomean(s):.2f}×{_over(baseline)}",
        f"Asked: {limit} {reproduced:g}×. {_per_experiment(s)}; range {_range(s, '×')}.",
    )


def speedup_near(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    low: float,
    high: float,
    reproduced: float,
    partly: float,
    mean="",
    baseline=BEST,
) -> Outcome:
    """Whether the speedup of each variant is the stated one, [low, high], up to a factor.

    Reproduced if nine in ten of the points of all variants are within the factor `reproduced` of
    the range, partly if they are within the factor `partly`. With `mean` geometric means count
    instead of points, of a variant over "all" of them or at each "density" of each experiment.
    """
    if mean not in ("", "all", "density"):
        raise ValueError(f"`mean` is {mean!r}; it must be 'all' or 'density', or not be given.")
    each = {v: _speedup(e, experiment, v, baseline) for v in variants}
    if mean:
        points = sum(map(len, each.values()))
        ranges = ", ".join(f"{v} {_digits(s)}×" for v, s in each.items())
        by = ["experiment", "density"]
        each = {
            v: s.groupby(by, sort=False).apply(records.geomean)
            if mean == "density"
            else pd.Series([records.geomean(s)])
            for v, s in each.items()
        }
        verdict, off = _near(pd.concat(each), low, high, reproduced, partly)
        which = "geometric mean" if mean == "all" else "geometric means"
        return Outcome(
            verdict,
            ", ".join(f"{v} {which} {_range(s, '×')}" for v, s in each.items()) + _over(baseline),
            f"Asked: {_stated(low, high)}×, within a factor of {reproduced:g}; off by a factor of "
            f"{off:.3g}. Over {_points(points)}: {ranges}.",
        )
    verdict, off = _near(pd.concat(each), low, high, reproduced, partly)
    return Outcome(
        verdict,
        ", ".join(f"{v} {_digits(s)}×" for v, s in each.items()) + _over(baseline),
        f"Asked: {_stated(low, high)}×, within a factor of {reproduced:g}. The farthest of "
        f"{_points(sum(map(len, each.values())))} is off by a factor of {off:.3g}.",
    )


def share_of_ideal(
    e: Evidence, experiment, variant: str, reproduced: float, partly: float, baseline=BEST
) -> Outcome:
    """How much of the work that sparsity saves is saved in time: the speedup over a dense baseline
    as a share of 1 / density, geometric mean. Reproduced from `reproduced` on, partly from `partly`
    on."""
    s = _speedup(e, experiment, variant, baseline)
    shares = s * s.index.get_level_values("density")
    each = ", ".join(
        f"{_density(d)} {records.geomean(v):.0%}" for d, v in shares.groupby("density", sort=False)
    )
    mean = records.geomean(shares)
    return Outcome(
        _grade(mean, reproduced, partly),
        f"geometric mean {mean:.0%} of the ideal speedup{_over(baseline)}",
        f"Ideal is 1 / density; asked: at least {reproduced:.0%}. {each}.",
    )


def fastest_of(
    e: Evidence,
    experiment,
    variant: str,
    among: Sequence[str],
    tolerance=0.0,
    reproduced=1.0,
    partly=0.5,
) -> Outcome:
    """Whether one is the fastest of several, point by point: no other takes less time by more than
    the relative `tolerance`. Reproduced if so at a share of at least `reproduced` of the points,
    partly at `partly`."""
    each = {v: _speedup(e, experiment, variant, v) for v in among}
    least = pd.DataFrame(each).dropna().min(axis=1)
    if least.empty:
        raise NotMeasured(f"{variant}, {', '.join(among)} were not measured at any common point.")
    wins = least * (1 + tolerance) >= 1
    over = ", ".join(f"{v} {records.geomean(s):.2f}×" for v, s in each.items())
    return Outcome(
        _grade(wins.mean(), reproduced, partly),
        f"{variant} the fastest at {wins.sum()} of {_points(len(wins))}",
        f"Speedup of {variant} over {over} (geometric means); at worst {least.min():.2f}× over the "
        f"fastest other. A difference within {tolerance:.0%} counts as none.",
    )


def rate_near(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    low: float,
    high: float,
    reproduced: float,
    partly: float,
    dense=False,
) -> Outcome:
    """Whether the TFLOP/s of each variant are the stated ones, [low, high], up to a factor.

    Records give every contender the useful FLOPs of the sparse product. With `dense` those of the
    dense product count, useful FLOPs over density, as a source counts them for a dense library.
    Reproduced if nine in ten of the points of all variants are within the factor `reproduced` of
    the range, partly if they are within the factor `partly`.
    """
    rows = _rows(e, experiment, *variants)
    rates = rows["tflops"] / rows["density"] if dense else rows["tflops"]
    verdict, off = _near(rates, low, high, reproduced, partly)
    each = (f"{v} {_digits(rates[rows['variant'] == v])} TFLOP/s" for v in variants)
    return Outcome(
        verdict,
        ", ".join(each),
        f"Asked: {_stated(low, high)} TFLOP/s, within a factor of {reproduced:g}"
        f"{'; every FLOP of the dense product counts' if dense else ''}. The farthest of "
        f"{_points(len(rows))} is off by a factor of {off:.3g}.",
    )


def levels_off(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    along: str,
    low: float,
    high: float,
    flat: float,
) -> Outcome:
    """Where throughput stops rising along a size ("m", "n"): at the smallest size at which it is
    within the share `flat` of its largest value, per variant, experiment and density.

    Reproduced if that size lies in [low, high] for every line, partly if for some, or if some are
    no further than a factor of two outside. Counting useful or dense FLOPs changes nothing here.
    """
    rows = _rows(e, experiment, *variants)
    verdicts, texts = [], []
    for (variant, _, _), line in rows.groupby(["variant", "experiment", "density"], sort=False):
        rate = line.groupby(along)["tflops"].max()
        if len(rate) < 3:
            continue
        knee = rate.index[rate >= (1 - flat) * rate.max()].min()
        verdicts.append(_near(pd.Series([float(knee)]), low, high, 1.0, 2.0)[0])
        texts.append(f"{variant} from {along.upper()} = {knee} on")
    if not verdicts:
        raise NotMeasured("No sweep has three sizes.")
    return Outcome(
        _all_of(verdicts),
        f"level: {', '.join(texts)}",
        f"Within {flat:.0%} of the largest throughput of the sweep; "
        f"asked: {_stated(low, high)}, a factor of two off counts as partly.",
    )


def somewhere_faster(e: Evidence, experiment, variant: str, baseline=BEST) -> Outcome:
    """Whether there is a scenario (experiment and density) in which the variant is faster.
    Reproduced if the geometric mean of one scenario is over 1, partly if only single points are."""
    s = _speedup(e, experiment, variant, baseline)
    means = s.groupby(["experiment", "density"], sort=False).apply(records.geomean)
    (where, density), best = means.idxmax(), means.max()
    verdict = REPRODUCED if best > 1 else PARTLY if s.max() > 1 else NOT_REPRODUCED
    return Outcome(
        verdict,
        f"best scenario {best:.2f}×{_over(baseline)} ({where}, {_density(density)})",
        f"Faster in {(means > 1).sum()} of {len(means)} scenarios "
        f"and at {(s > 1).sum()} of {_points(len(s))}.",
    )


def speedup_trend(
    e: Evidence,
    experiment,
    variant: str,
    along: str,
    direction: str,
    change: float,
    each_step=False,
    baseline=BEST,
) -> Outcome:
    """How the speedup moves along a size ("m", "n" or "useful_flops"), in each experiment and
    density on its own.

    A line follows the claim if the speedup at the largest size differs from that at the smallest by
    more than `change` in that direction and the rank correlation has that sign. With `each_step` a
    line that follows counts half if it does not move in that direction from every size to the next.
    Reproduced if every line follows, partly if half do.
    """
    if direction not in ("rises", "falls"):
        raise ValueError(f"`direction` is {direction!r}; it must be 'rises' or 'falls'.")
    s = _speedup(e, experiment, variant, baseline)
    df = e.frame(experiment)
    rows = df[df["variant"] == variant]
    size = rows.set_index(["experiment", *records.POINT], drop=False)[along]
    both = pd.DataFrame({"speedup": s, "size": size.loc[s.index]})
    sign = 1 if direction == "rises" else -1
    lines = []
    for (name, density), line in both.groupby(["experiment", "density"], sort=False):
        line = line.sort_values("size")
        if len(line) < 2:
            continue
        factor = line["speedup"].iloc[-1] / line["speedup"].iloc[0]
        ranks = line.rank().corr().iloc[0, 1]  # Spearman's; NaN if all speedups are equal
        follows = float(sign * (factor - 1) > change and sign * ranks > 0)
        text = f"{name}, {_density(density)}: {factor:.2f}×"
        if each_step:
            text += f" ({', '.join(f'{v:.3g}' for v in line['speedup'])})"
            if (sign * np.diff(line["speedup"]) <= 0).any():
                follows /= 2
        lines.append((follows, text))
    if not lines:
        raise NotMeasured("No sweep has two sizes.")
    share = np.mean([follows for follows, _ in lines])
    steps = f", at every step in {sum(f == 1 for f, _ in lines)}" if each_step else ""
    return Outcome(
        _grade(share, 1.0, 0.5),
        f"{direction} in {sum(f > 0 for f, _ in lines)} of {len(lines)} sweeps{steps}",
        f"Speedup{_of(variant, baseline)} at the largest size over that at the smallest: "
        + "; ".join(text for _, text in lines)
        + ".",
    )


def faster_scenario(
    e: Evidence,
    experiment,
    variant: str,
    larger: Sequence[str],
    smaller: Sequence[str],
    tolerance: float,
    baseline=BEST,
) -> Outcome:
    """Whether the speedup is better in some experiments than in others, by geometric means.

    Reproduced if the mean over `larger` exceeds that of each of `smaller` by more than the relative
    `tolerance`; partly if it does so for some, or if none differs by more than the tolerance.
    """
    best = records.geomean(_speedup(e, larger, variant, baseline))
    means = {name: records.geomean(_speedup(e, [name], variant, baseline)) for name in smaller}
    above = [best > (1 + tolerance) * mean for mean in means.values()]
    even = [abs(best / mean - 1) <= tolerance for mean in means.values()]
    verdict = REPRODUCED if all(above) else PARTLY if any(above) or all(even) else NOT_REPRODUCED
    others = ", ".join(f"{name} {mean:.2f}×" for name, mean in means.items())
    return Outcome(
        verdict,
        f"{' and '.join(larger)} {best:.2f}×, against {others}",
        f"Geometric means of the speedup{_over(baseline)}; "
        f"a difference within {tolerance:.0%} counts as none.",
    )


def label_trend(
    e: Evidence, experiment, variant: str, labels: Sequence[str], change: float
) -> Outcome:
    """Whether throughput rises along labels, in each size and density on its own: from the first of
    `labels` that was measured there to the last by more than the relative `change`. Reproduced if
    it does in every one, partly if in half."""
    rows = _rows(e, experiment, variant)
    lines = []
    for (m, n, k, density), line in rows.groupby(["m", "n", "k", "density"], sort=False):
        rates = line.groupby("label")["tflops"].max().reindex(labels).dropna()
        if len(rates) > 1:
            factor = rates.iloc[-1] / rates.iloc[0]
            steps = ", ".join(f"{rate:.3g}" for rate in rates)
            text = f"{m} × {n} × {k}, {_density(density)}: {factor:.2f}× ({steps} TFLOP/s)"
            lines.append((factor > 1 + change, text))
    if not lines:
        raise NotMeasured(f"No size of {variant} was measured with two of these labels.")
    rises = [follows for follows, _ in lines]
    return Outcome(
        _grade(np.mean(rises), 1.0, 0.5),
        f"rises in {sum(rises)} of {len(lines)} sweeps",
        f"From {labels[0] or 'the usual pattern'} to {labels[-1] or 'the usual pattern'}: "
        + "; ".join(text for _, text in lines)
        + ".",
    )


def power_law(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    along: str,
    low: float,
    high: float,
    tolerance: float,
    scatter: float,
) -> Outcome:
    """Time as a power of a size, fitted on log axes per variant and density.

    Reproduced if every exponent lies in [low, high] widened by `tolerance` and no point is further
    than the factor `scatter` from its fit, partly if that holds for half of the fits.
    """
    df = _rows(e, experiment, *variants)
    fits, exponents, worst = [], [], 1.0
    for variant in variants:
        for _, line in df[df["variant"] == variant].groupby("density"):
            if line[along].nunique() < 3:
                continue
            x, y = np.log(line[along].to_numpy(float)), np.log(line["median_us"].to_numpy())
            slope, offset = np.polyfit(x, y, 1)
            off = float(np.exp(np.abs(y - slope * x - offset).max()))
            fits.append(low - tolerance <= slope <= high + tolerance and off <= scatter)
            exponents.append(slope)
            worst = max(worst, off)
    if not fits:
        raise NotMeasured("No sweep has three sizes.")
    return Outcome(
        _grade(np.mean(fits), 1.0, 0.5),
        f"exponent {_range(exponents)}, points within {worst:.2f}× of the fit",
        f"{sum(fits)} of {len(fits)} fits of time against {along} have an exponent in "
        f"{low:g}–{high:g} ± {tolerance:g} and points within {scatter:g}×.",
    )


def largest(
    e: Evidence,
    experiment,
    variant: str | Sequence[str],
    column: str,
    reproduced: float,
    partly: float,
) -> Outcome:
    """The largest value of a column, over one variant or several. Reproduced up to `reproduced`,
    partly up to `partly`."""
    rows = _rows(e, experiment, *([variant] if isinstance(variant, str) else variant))
    worst = rows.loc[rows[column].idxmax()]
    return Outcome(
        _grade(-worst[column], -reproduced, -partly),
        f"{column} at most {worst[column]:.1e}",
        f"Over {_points(len(rows))}; the largest is at "
        f"m = {worst['m']}, n = {worst['n']}, k = {worst['k']}, "
        f"{_density(worst['density'])}. Limit {reproduced:.0e}.",
    )


def true_density(e: Evidence, experiment, variant: str, tolerance: float) -> Outcome:
    """Whether the generated matrices have the density they are labelled with: nnz / (m k) over the
    nominal one.

    Reproduced if the mean ratio is within `tolerance` of 1, partly within five times that.
    """
    rows = e.frame(experiment)
    rows = rows[(rows["variant"] == variant) & (rows["label"] == "")]
    if rows.empty:
        raise NotMeasured("No generated matrix was measured.")
    ratio = rows["nnz"] / (rows["m"].astype(float) * rows["k"]) / rows["density"]
    off = abs(ratio.mean() - 1)
    return Outcome(
        _grade(-off, -tolerance, -5 * tolerance),
        f"{ratio.mean():.3f} of the target",
        f"True density over nominal density, {_range(ratio, digits=3)} over {_points(len(rows))}.",
    )


def share_of_ceiling(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    ceiling: str,
    unit: str,
    reproduced: float,
    partly: float,
) -> Outcome:
    """How near a rate comes to its measured ceiling. `unit` is the column: "tflops" or "gbps".

    Reproduced if the largest share is at most `reproduced`, partly up to `partly`. Where
    `reproduced` > `partly` it must come near: the smallest share must be at least that.
    """
    top = e.ceiling(ceiling, unit)
    rows = e.frame(experiment)
    shares = rows[rows["variant"].isin(variants)][unit] / top
    if shares.empty:
        raise NotMeasured(f"{', '.join(variants)} was not measured in {', '.join(experiment)}.")
    verdict, limit, worst = _share(shares, reproduced, partly)
    return Outcome(
        verdict,
        f"{limit} {worst:.0%} of the {ceiling} ceiling, median {shares.median():.0%}",
        f"Ceiling measured here: {top:.3g} {'TFLOP/s' if unit == 'tflops' else 'GB/s'}.",
    )


def _share(shares: pd.Series, reproduced: float, partly: float) -> tuple[str, str, float]:
    """The verdict on shares that must all be small, or large where `reproduced` > `partly`; which
    of the two as text, and the share that decides."""
    if reproduced > partly:
        return _grade(shares.min(), reproduced, partly), "at least", float(shares.min())
    return _grade(-shares.max(), -reproduced, -partly), "at most", float(shares.max())


def roofline_transition(
    e: Evidence,
    experiment,
    rows: int,
    columns: int,
    low: float,
    high: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """The sparsity at which NM-SpMM's Eq. 3, for blocks of rows x columns that stage all of A,
    falls under the ridge of the roofline: the FMA ceiling over that of copies in DRAM.

    Reproduced if it is no further than `reproduced` (a share, as the sparsity is) from [low, high],
    partly no further than `partly`. What the bandwidth of the L2 would give is said beside it.
    """
    from kernels.nm_spmm import analysis  # no other room's claims need it

    peak = e.ceiling("fma", "tflops")

    def at(ceiling: str) -> tuple[float, float]:
        device = analysis.Device("", 0, 0.0, peak, e.ceiling(ceiling, "gbps"), 0, 0)
        return analysis.transition(device, rows, columns), device.ridge

    sparsity, ridge = at("copy")
    off = max(low - sparsity, sparsity - high, 0.0)
    beside = ""
    with contextlib.suppress(NotMeasured):
        beside = f" Against the bandwidth of the L2: {at('l2_read')[0]:.0%}."
    return Outcome(
        _grade(-off, -reproduced, -partly),
        f"{sparsity:.0%} sparsity",
        f"Blocks of {rows} × {columns}; ridge at {ridge:.1f} FLOP/B, the FMA ceiling of {peak:.3g} "
        f"TFLOP/s over the copy ceiling.{beside}",
    )


def ceiling_ratio(
    e: Evidence,
    experiment,
    ceiling: str,
    over: str,
    unit: str,
    low: float,
    high: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """Whether one measured ceiling is the stated multiple of another, [low, high], up to a factor.
    `unit` is the column: "tflops" or "gbps".

    Reproduced within the factor `reproduced` of the range, partly within `partly`.
    """
    ours, theirs = e.ceiling(ceiling, unit), e.ceiling(over, unit)
    verdict, _ = _near(pd.Series([ours / theirs]), low, high, reproduced, partly)
    rate = "TFLOP/s" if unit == "tflops" else "GB/s"
    return Outcome(
        verdict,
        f"{ours / theirs:.2f}× over {over}",
        f"Ceilings measured here: {ceiling} {ours:.4g} {rate}, {over} {theirs:.4g} {rate}; asked: "
        f"{_stated(low, high)}×, within a factor of {reproduced:g}.",
    )


def dram_share(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    metric: Sequence[str],
    often: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """Share of the DRAM bandwidth in use, as the profiler counts it: the value that the share
    `often` of the points reach (0: the largest, 0.5: the median). Reproduced if it is at least
    `reproduced`, partly at `partly`; several variants must agree, else partly.

    Without hardware counters the share lies between two bounds: least bytes over the copy ceiling
    (all reuse in caches) and requested bytes over it (none). Where both bounds give one verdict,
    that stands; else the claim is not measured.
    """
    verdicts, texts, how = [], [], "Hardware counters"
    for variant in variants:
        try:
            low = high = e.counter(variant, metric, experiment) / 100
        except NotMeasured as missing:
            how = (
                "No hardware counters; bounds from least and requested bytes over the copy ceiling"
            )
            low, high = _dram_bounds(e, experiment, variant)
            pair = {_grade(float(b.quantile(1 - often)), reproduced, partly) for b in (low, high)}
            if len(pair) > 1:
                a, b = (float(s.quantile(1 - often)) for s in (low, high))
                raise NotMeasured(
                    f"{missing} Without counters the DRAM share of {variant} is only known to lie "
                    f"between {a:.0%} and {b:.0%}."
                ) from None
        a, b = (float(s.quantile(1 - often)) for s in (low, high))
        verdicts.append(_grade(a, reproduced, partly))
        texts.append(f"{variant} {a:.0%}" if a == b else f"{variant} {a:.0%}–{b:.0%}")
    which = {0: "largest", 0.5: "median", 1: "smallest"}.get(
        often, f"reached by {often:.0%} of points"
    )
    return Outcome(
        _all_of(verdicts), ", ".join(texts), f"{how}; {which}; asked: at least {reproduced:.0%}."
    )


def _dram_bounds(e: Evidence, experiment, variant: str) -> tuple[pd.Series, pd.Series]:
    copy = e.ceiling("copy", "gbps")
    rows = _rows(e, experiment, variant)
    bounds = (rows[c] / rows["median_us"] / 1e3 / copy for c in ("least_bytes", "requested_bytes"))
    low, high = (b.clip(upper=1.0) for b in bounds)
    return low, high


def memory_bound(
    e: Evidence,
    experiment,
    variant: str,
    memory: Sequence[str],
    busy: float,
    share: float,
) -> Outcome:
    """Whether memory limits the kernel rather than arithmetic: some memory (DRAM, L2 or L1) is used
    at `busy` or more of its peak, and more than the FMA units.

    Reproduced if both hold at a share `share` of the points, partly if only "more" does. Memory is
    the largest of the counters `memory`; without hardware counters, the larger of least bytes over
    the copy ceiling and requested bytes over the L2 ceiling. Arithmetic is useful FLOPs over the
    FMA ceiling.
    """
    rows = _rows(e, experiment, variant).set_index(["experiment", "m", "n", "k", "density"])
    arithmetic = rows["tflops"] / e.ceiling("fma", "tflops")
    profiled = []
    for metric in memory:
        with contextlib.suppress(NotMeasured):  # not every GPU has every counter
            profiled.append(e.counter(variant, [metric], experiment) / 100)
    if profiled:
        used = pd.concat(profiled, axis=1).max(axis=1)
        arithmetic = arithmetic.loc[used.index]
        how = f"the largest of {', '.join(str(s.name) for s in profiled)}"
    else:
        per_us = rows["median_us"] * 1e3
        dram = rows["least_bytes"] / per_us / e.ceiling("copy", "gbps")
        l2 = rows["requested_bytes"] / per_us / e.ceiling("l2_read", "gbps")
        used = np.maximum(dram, l2).clip(upper=1.0)
        how = "no hardware counters: rates over the measured copy and L2 ceilings"
    more = (used > arithmetic).mean()
    both = ((used > arithmetic) & (used >= busy)).mean()
    return Outcome(
        REPRODUCED if both >= share else PARTLY if more >= share else NOT_REPRODUCED,
        f"memory {used.median():.0%}, FMA units {arithmetic.median():.0%} of peak (medians)",
        f"Memory over {busy:.0%} and over arithmetic at {both:.0%} of {_points(len(used))}; {how}.",
    )


def counter_limit(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    metric: Sequence[str],
    often: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """One hardware counter: the value that the share `often` of the points reach. Reproduced from
    `reproduced` on, partly from `partly` on; where `reproduced` < `partly` the counter must be
    small, and these are upper limits."""
    sign = 1 if reproduced >= partly else -1
    verdicts, texts = [], []
    for variant in variants:
        values = e.counter(variant, metric, experiment)
        value = float(values.quantile(1 - often if sign > 0 else often))
        verdicts.append(_grade(sign * value, sign * reproduced, sign * partly))
        texts.append(f"{variant} {value:.4g}")
    limit = "at least" if sign > 0 else "at most"
    return Outcome(
        _all_of(verdicts),
        ", ".join(texts),
        f"Counter {values.name}, {_points(len(values))}; asked: {limit} {reproduced:g}.",
    )


def counter_share(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    metric: Sequence[str],
    of: str,
    reproduced: float,
    partly: float,
    plus: Sequence[str] = (),
) -> Outcome:
    """One hardware counter, or its sum with all of `plus`, as a share of another. Reproduced if no
    share is over `reproduced`, partly if none is over `partly`; where `reproduced` > `partly` no
    share may be under them."""
    verdicts, texts = [], []
    for variant in variants:
        part, whole = (e.counter(variant, m, experiment) for m in (metric, [of]))
        part = sum((e.counter(variant, [m], experiment) for m in plus), start=part).dropna()
        part, whole = part.align(whole, join="inner")
        if part.empty or (whole <= 0).any():
            raise NotMeasured(
                f"The counter {of} has no positive values where {metric[0]} was read."
            )
        share = part / whole
        verdict, limit, worst = _share(share, reproduced, partly)
        verdicts.append(verdict)
        texts.append(f"{variant} {limit} {worst:.1%}, median {share.median():.1%}")
    return Outcome(
        _all_of(verdicts),
        ", ".join(texts),
        f"Counter {' + '.join([metric[0], *plus])} over {of}, {_points(len(share))}; "
        f"asked: {limit} {reproduced:.0%}.",
    )


def flops_per_count(
    e: Evidence,
    experiment,
    metric: Sequence[str],
    variants: Sequence[str],
    densities: Sequence[float],
    tolerance: float,
) -> Outcome:
    """Useful FLOPs for each unit of a hardware counter, an intensity where that counts bytes or
    loads: along several variants at one density, or several densities of one variant, from the most
    to the least; geometric means over the points.

    Reproduced if each is less than the one before it by more than the relative `tolerance`, partly
    if the last is less than the first by more than that.
    """
    length = max(len(variants), len(densities))
    rates, texts = [], []
    for variant, density in zip(
        list(variants) * (length // len(variants)),
        list(densities) * (length // len(densities)),
        strict=True,
    ):
        here = e.only({**e.where, "density": density}, e.repeats)
        counts = here.counter(variant, metric, experiment)
        flops = here.frame(experiment)
        flops = flops[flops["variant"] == variant].set_index(list(counts.index.names))
        rate = flops["useful_flops"].groupby(level=counts.index.names).first() / counts
        if not np.isfinite(rate.dropna()).all():
            raise NotMeasured(f"The counter {counts.name} of {variant} has a value of 0.")
        rates.append(records.geomean(rate.dropna()))
        texts.append(f"{variant} at {_density(density)} {rates[-1]:.4g}")
    falls = [after * (1 + tolerance) < before for before, after in itertools.pairwise(rates)]
    overall = rates[-1] * (1 + tolerance) < rates[0]
    return Outcome(
        REPRODUCED if all(falls) else PARTLY if overall else NOT_REPRODUCED,
        f"{sum(falls)} of {len(falls)} steps fall, {rates[0] / rates[-1]:.2f}× over all",
        f"FLOPs for each of {counts.name}: {', '.join(texts)}.",
    )


def counter_trend(
    e: Evidence, experiment, variant: str, metric: Sequence[str], along: str, change: float
) -> Outcome:
    """Whether one hardware counter rises along a size ("m" or "n"), in each experiment and
    density on its own: from the smallest to the largest profiled size by more than the relative
    `change`. Reproduced if it does in every one, partly if in half."""
    values = e.counter(variant, metric, experiment)
    lines = []
    for (name, density), line in values.groupby(level=["experiment", "density"], sort=False):
        sizes = line.index.get_level_values(along)
        if len(line) > 1 and sizes.min() < sizes.max():
            first, last = (float(line[sizes == end].mean()) for end in (sizes.min(), sizes.max()))
            lines.append((last > (1 + change) * first, f"{name}, {_density(density)}", first, last))
    if not lines:
        raise NotMeasured(f"The counter {metric[0]} was profiled at no two sizes of a sweep.")
    share = np.mean([rises for rises, *_ in lines])
    return Outcome(
        _grade(share, 1.0, 0.5),
        f"rises in {sum(rises for rises, *_ in lines)} of {len(lines)} sweeps",
        f"Counter {values.name} at the smallest and the largest {along.upper()} that were profiled: "
        + "; ".join(f"{name}: {first:.3g} to {last:.3g}" for _, name, first, last in lines)
        + ".",
    )


def counter_ratio(
    e: Evidence,
    experiment,
    variant: str,
    metric: Sequence[str],
    reproduced: float,
    partly: float,
    baseline=BEST,
) -> Outcome:
    """One hardware counter of a variant over that of a baseline, geometric mean over the points.

    Reproduced from `reproduced` on, partly from `partly` on; where `reproduced` < `partly` the
    counter must be the smaller one, and these are upper limits.
    """
    sign = 1 if reproduced >= partly else -1
    ours, theirs = (e.counter(v, metric, experiment) for v in (variant, baseline))
    ours, theirs = ours.align(theirs, join="inner")
    if ours.empty or (ours <= 0).any() or (theirs <= 0).any():
        raise NotMeasured(f"The counter {metric[0]} has no positive values at common points.")
    ratio = records.geomean(ours / theirs)
    return Outcome(
        _grade(sign * ratio, sign * reproduced, sign * partly),
        f"{ratio:.2f}×",
        f"Counter {ours.name} of {variant} over {baseline}, {_points(len(ours))}; "
        f"asked: {'at least' if sign > 0 else 'at most'} {reproduced:g}×.",
    )


def counter_near(
    e: Evidence,
    experiment,
    variants: Sequence[str],
    metric: Sequence[str],
    low: float,
    high: float,
    reproduced: float,
    partly: float,
    baseline="",
    per=1.0,
) -> Outcome:
    """Whether one hardware counter of each variant, in units of `per`, is the stated one, [low,
    high], up to a factor; with a `baseline`, the same of the counter over that of the baseline.

    Reproduced if nine in ten of the points of all variants are within the factor `reproduced` of
    the range, partly if they are within the factor `partly`.
    """
    each = {}
    for variant in variants:
        values = e.counter(variant, metric, experiment)
        if baseline:
            values, theirs = values.align(e.counter(baseline, metric, experiment), join="inner")
            if values.empty or (theirs <= 0).any():
                raise NotMeasured(
                    f"The counter {metric[0]} of {baseline} has no positive values to divide by."
                )
            values = values / theirs
        each[variant] = values / per
    verdict, off = _near(pd.concat(each), low, high, reproduced, partly)
    unit, scale = ("×" if baseline else ""), (f" in units of {per:g}" if per != 1 else "")
    over = f" over {baseline}" if baseline else ""
    return Outcome(
        verdict,
        ", ".join(f"{v} {_digits(values)}{unit}" for v, values in each.items()) + over,
        f"Counter {values.name or metric[0]}{scale}, {_points(sum(map(len, each.values())))}; asked: "
        f"{_stated(low, high)}{unit}, within a factor of {reproduced:g}; off by {off:.3g}.",
    )


def dominant_stall(e: Evidence, experiment, variants: Sequence[str], reason: str) -> Outcome:
    """Whether `reason` is why most warps that do not issue wait: its stall counter is the largest
    of all that were profiled ("selected" is a warp that issues, and no stall).

    Reproduced if it is at every point of every variant, partly if at half of them.
    """
    counters = {
        found[1]: name for name in e.counters["metric"].unique() if (found := STALL.fullmatch(name))
    }
    wins, texts = [], []
    for variant in variants:
        stalls = {}
        for other, metric in counters.items():
            with contextlib.suppress(NotMeasured):
                per = 100 if metric.endswith(".pct") else 1
                stalls[other] = e.counter(variant, [metric], experiment) / per
        if reason not in stalls or len(stalls) < 2:
            raise NotMeasured(f"The stalls of {variant} were not profiled, {reason} among others.")
        table = pd.DataFrame(stalls)
        wins.extend(table.drop(columns=reason).max(axis=1) < table[reason])
        most = table.mean().nlargest(3)
        texts.append(f"{variant} " + ", ".join(f"{name} {v:.3g}" for name, v in most.items()))
    return Outcome(
        _grade(np.mean(wins), 1.0, 0.5),
        f"{reason} the largest at {sum(wins)} of {_points(len(wins))}",
        f"Warps that wait, for each instruction issued; the largest means: {'; '.join(texts)}.",
    )


def counter_scenario(
    e: Evidence,
    experiment,
    variant: str,
    metric: Sequence[str],
    larger: str,
    smaller: str,
    tolerance: float,
) -> Outcome:
    """One hardware counter in two experiments, by medians. Reproduced if it is larger in `larger`
    by more than the relative `tolerance`, partly if the two are within it."""
    a, b = (float(e.counter(variant, metric, [name]).median()) for name in (larger, smaller))
    return Outcome(
        _grade(a / b - 1 if b else math.inf, tolerance, -tolerance),
        f"{larger} {a:.4g}, {smaller} {b:.4g}",
        f"Medians of {metric[0]}; a difference within {tolerance:.0%} counts as none.",
    )


def added_memory(
    e: Evidence,
    experiment,
    variant: str,
    baseline: str,
    low: float,
    high: float,
    reproduced: float,
    partly: float,
) -> Outcome:
    """Device memory that the preprocessing of a variant adds to that of another one, over that of
    the sparse operand's values, 4 bytes each.

    Reproduced if nine in ten of the points are within the factor `reproduced` of [low, high],
    partly if they are within the factor `partly`.
    """
    rows = _rows(e, experiment, variant, baseline)
    index = ["experiment", *records.POINT]
    ours, theirs = (rows[rows["variant"] == name].set_index(index) for name in (variant, baseline))
    added = (ours["prepare_bytes"] - theirs["prepare_bytes"]) / (4 * ours["nnz"])
    added = added.dropna()
    if added.empty:
        raise NotMeasured(f"{variant} and {baseline} were not measured at any common point.")
    verdict, off = _near(added.clip(lower=0), low, high, reproduced, partly)
    return Outcome(
        verdict,
        f"{_range(added * 100, digits=1)} % over {baseline}",
        f"Asked: {low:.0%}–{high:.0%} of the values of the sparse operand; {_points(len(added))}, "
        f"off by a factor of {off:.3g}.",
    )


def prepare_cost(
    e: Evidence, experiment, variant: str, reproduced: float, partly: float
) -> Outcome:
    """Preprocessing in units of launches: prepare time over the time of one launch, median over the
    points.

    Reproduced up to `reproduced` launches, partly up to `partly`.
    """
    rows = e.frame(experiment)
    rows = rows[rows["variant"] == variant]
    if rows.empty:
        raise NotMeasured(f"The variant {variant!r} was not measured.")
    launches = rows["prepare_ms"] * 1e3 / rows["median_us"]
    return Outcome(
        _grade(-launches.median(), -reproduced, -partly),
        f"median {launches.median():.3g} launches, {launches.min():.3g}–{launches.max():.3g}",
        f"Median preprocessing {rows['prepare_ms'].median():.3g} ms over {_points(len(rows))}; "
        f"asked: at most {reproduced:g} launches.",
    )


MEASURES: dict[str, Callable[..., Outcome]] = {
    f.__name__: f
    for f in (
        share_of_points,
        speedup_range,
        speedup_mean,
        speedup_near,
        share_of_ideal,
        fastest_of,
        rate_near,
        levels_off,
        somewhere_faster,
        speedup_trend,
        faster_scenario,
        label_trend,
        power_law,
        largest,
        true_density,
        share_of_ceiling,
        roofline_transition,
        ceiling_ratio,
        dram_share,
        memory_bound,
        counter_limit,
        counter_share,
        flops_per_count,
        counter_trend,
        counter_ratio,
        counter_near,
        dominant_stall,
        counter_scenario,
        added_memory,
        prepare_cost,
    )
}

# ---------------------------------------------------------------- loading

REQUIRED = ("id", "source", "where", "says", "experiment", "measure", "rule", "published")
OPTIONAL = ("note", "contradicts")


def load(path: str | Path = TOML, published: str | Path = paths.PUBLISHED) -> list[Claim]:
    """The claims, in the order of the file. Raises ValueError, one sentence, for a claim that is
    not well formed: a key that is missing or unknown, an unknown source, experiment, measure or
    parameter, an id used twice."""
    path = Path(path)
    data = _toml(path)
    sources = data.get("sources", {})
    claims = [_claim(table, sources, path, Path(published)) for table in data.get("claim", [])]
    ids = [claim.id for claim in claims]
    for claim in claims:
        if ids.count(claim.id) > 1:
            raise ValueError(f"{path}: the claim {claim.id!r} is there twice.")
        for other in claim.contradicts:
            if other not in ids:
                raise ValueError(
                    f"{path}: the claim {claim.id!r} contradicts {other!r}, which is no claim."
                )
    return claims


def figures_of(path: str | Path = TOML) -> dict[str, dict[str, str]]:
    """Room -> experiment -> the figure of the source that it regenerates. Errors as `load`."""
    sources = _toml(Path(path)).get("sources", {})
    return {room: source.get("figures", {}) for room, source in sources.items()}


def _toml(path: Path) -> dict:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: there are no claims.") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path}: this is not valid TOML ({error}).") from None


def _claim(table: Mapping, sources: Mapping, path: Path, published: Path) -> Claim:
    name = f"{path}: the claim {table.get('id', '?')!r}"
    for key in REQUIRED:
        if key not in table:
            raise ValueError(f"{name} has no {key!r}.")
    for key in table:
        if key not in REQUIRED + OPTIONAL:
            raise ValueError(f"{name} has a key {key!r} that no claim has.")
    if table["source"] not in sources:
        raise ValueError(
            f"{name} is from {table['source']!r}; known sources: {', '.join(sources)}."
        )
    minutes = sources[table["source"]]["minutes"]
    experiments = tuple(table["experiment"])
    for experiment in experiments:
        if experiment not in minutes:
            raise ValueError(
                f"{name} asks for the experiment {experiment!r}; known: {', '.join(minutes)}."
            )
    if table["measure"] not in MEASURES:
        raise ValueError(
            f"{name} asks for the measure {table['measure']!r}; known: {', '.join(MEASURES)}."
        )
    parameters = dict(list(inspect.signature(MEASURES[table["measure"]]).parameters.items())[2:])
    rule, text = dict(table["rule"]), table["published"]
    if isinstance(text, Mapping):
        numbers, text = _published(text, published, name)
        rule = {key: value for key, value in numbers.items() if key in parameters} | rule
    where = rule.get("where", {})
    if not isinstance(where, Mapping) or not set(where) <= set(records.COLUMNS):
        raise ValueError(f"{name} has a 'where' that is not a table of columns of the records.")
    if rule.get("repeats") and len(_sweeps(experiments)) < 2:
        raise ValueError(f"{name} has 'repeats' and no two experiments that repeat each other.")
    for key in rule:
        if key not in (*parameters, *COMMON):
            raise ValueError(
                f"{name} gives {key!r} to {table['measure']}; it takes {', '.join(parameters)}."
            )
    for key, parameter in parameters.items():
        if parameter.default is parameter.empty and key not in rule:
            raise ValueError(f"{name} does not give {key!r}, which {table['measure']} needs.")
    return Claim(
        id=table["id"],
        room=table["source"],
        source=sources[table["source"]]["name"],
        where=table["where"],
        says=table["says"],
        experiment=experiments,
        measure=table["measure"],
        rule=rule,
        published=text,
        minutes=float(sum(minutes[experiment] for experiment in experiments)),
        note=table.get("note", ""),
        contradicts=tuple(table.get("contradicts", ())),
    )


def _published(reference: Mapping, folder: Path, name: str) -> tuple[dict[str, float], str]:
    """low and high of {figure, quantity} from the published numbers, and the same as text.

    Other keys are columns of that file, with a value or a list of values; rows that they leave must
    agree.
    """
    if not {"figure", "quantity"} <= set(reference):
        raise ValueError(f"{name} needs a figure and a quantity in 'published', or a text.")
    figure = reference["figure"]
    df = records.published(folder / f"{figure}.csv")
    for key, value in reference.items():
        if key == "figure":
            continue
        if key not in df.columns:
            raise ValueError(f"{name}: {figure}.csv has no column {key!r}.")
        df = df[df[key].isin(value if isinstance(value, list) else [value])]
    said = df[["low", "high", "unit"]].drop_duplicates()
    if len(said) != 1:
        rest = "".join(
            f" at {k} = {v}" for k, v in reference.items() if k not in ("figure", "quantity")
        )
        raise ValueError(
            f"{name}: {figure}.csv has no single quantity {reference['quantity']!r}{rest}."
        )
    low, high, unit = said.iloc[0]
    unit = "" if pd.isna(unit) else "×" if unit == "×" else f" {unit}"
    numbers = {
        key: float(value) for key, value in (("low", low), ("high", high)) if not pd.isna(value)
    }
    if len(numbers) == 2:
        return numbers, _stated(low, high) + unit
    if not numbers:
        raise ValueError(f"{name}: {figure}.csv gives {reference['quantity']!r} no number.")
    return numbers, f"under {high:g}{unit}" if "high" in numbers else f"over {low:g}{unit}"


def counters_wanted(claims: Iterable[Claim]) -> list[str]:
    """Every hardware counter that a claim can use, for the profiler."""
    claims = list(claims)
    wanted = (claim.rule.get(key, ()) for claim in claims for key in ("metric", "memory", "plus"))
    whole = {claim.rule["of"] for claim in claims if "of" in claim.rule}
    return sorted(whole | {metric for metrics in wanted for metric in metrics})


# ---------------------------------------------------------------- judging

LEDGER_COLUMNS = (
    "id",
    "source",
    "where",
    "says",
    "published",
    "measured",
    "verdict",
    "why",
    "minutes",
)


def judge(claims: Iterable[Claim], folder: str | Path) -> pd.DataFrame:
    """Verdicts from the records in `folder`, that of one GPU: one row per claim, columns
    LEDGER_COLUMNS.

    A record that is there but not valid raises ValueError, one without its machine.json
    FileNotFoundError: a broken file is no verdict.
    """
    evidence: dict[str, Evidence] = {}
    rows = []
    for claim in claims:
        if claim.room not in evidence:
            evidence[claim.room] = Evidence(Path(folder), claim.room)
        outcome = _outcome(claim, evidence[claim.room])
        rows.append(
            {
                key: getattr(outcome if hasattr(outcome, key) else claim, key)
                for key in LEDGER_COLUMNS
            }
        )
    return pd.DataFrame(rows, columns=list(LEDGER_COLUMNS))


def _outcome(claim: Claim, e: Evidence) -> Outcome:
    measure = MEASURES[claim.measure]
    rule = {key: value for key, value in claim.rule.items() if key not in COMMON}
    e = e.only(claim.rule.get("where", {}), claim.rule.get("repeats", False))
    try:
        outcome = measure(e, claim.experiment, **rule)
    except NotMeasured as missing:
        outcome = Outcome(NOT_MEASURED, "—", str(missing))
    why = outcome.why
    if claim.rule.get("where") and outcome.verdict != NOT_MEASURED:
        why += f" Judged at {e.kept}."
    if any(SERIES in experiment for experiment in claim.experiment):
        why += " Judged by the series that the source published, not by this GPU's records."
    if e.repeats and outcome.verdict != NOT_MEASURED:
        why += f" Judged by the geometric means of the runs; {_each_run(claim, e, rule)}."
    # Where a source does not say which algorithm of cuSPARSE it ran, the default is judged as well.
    parameter = inspect.signature(measure).parameters.get("baseline")
    chosen = rule.get("baseline", parameter.default) if parameter else ""
    if outcome.verdict != NOT_MEASURED and chosen in DEFAULTS:
        library, default = DEFAULTS[chosen]
        with contextlib.suppress(NotMeasured):
            other = measure(e, claim.experiment, **rule | {"baseline": default})
            why += f" Against {library}'s default algorithm: {other.measured} ({other.verdict})."
    if claim.note:
        why += f" {claim.note}"
    if claim.contradicts:
        why += f" The source also claims the opposite: {', '.join(claim.contradicts)}."
    return replace(outcome, why=why)


def _each_run(claim: Claim, e: Evidence, rule: Mapping[str, object]) -> str:
    """What a claim whose experiments repeat each other would be by each of them alone."""
    sweeps, texts = _sweeps(claim.experiment), []
    for name in sweeps:
        run = [other for other in claim.experiment if other == name or other not in sweeps]
        try:
            outcome = MEASURES[claim.measure](e, run, **rule)
            texts.append(f"{name} alone: {outcome.measured} ({outcome.verdict})")
        except NotMeasured:
            texts.append(f"{name} alone: {NOT_MEASURED}")
    return "; ".join(texts)


# Dark enough that white text on them has a contrast of 4.5:1, in either mode of the page.
#: verdict -> its sign, and the class that the book's style sheet colours.
BADGES = {
    REPRODUCED: ("✓", "verdict-reproduced"),
    PARTLY: ("◐", "verdict-partly"),
    NOT_REPRODUCED: ("✗", "verdict-not"),
    NOT_MEASURED: ("–", "verdict-unmeasured"),
}


def badge(verdict: str) -> str:
    """A verdict as HTML: a sign, the words, and a colour; none of them alone carries the meaning.

    Raises ValueError for what is no verdict.
    """
    if verdict not in BADGES:
        raise ValueError(f"{verdict!r} is no verdict; these are: {', '.join(VERDICTS)}.")
    sign, name = BADGES[verdict]
    return f'<span class="{name}"><span aria-hidden="true">{sign}</span> {verdict}</span>'


def ledger(df: pd.DataFrame) -> str:
    """The verdicts of `judge` as an HTML table, with a line that counts them above it.

    A row can be linked as #claim-<id>; how it was judged unfolds in it, with links to the claims
    that it names.
    """
    counts = df["verdict"].value_counts()
    total = ", ".join(f"{counts[v]} {badge(v)}" for v in VERDICTS if v in counts)
    heads = ("Claim", "Published", "Measured", "Verdict", "Minutes")
    ids = [re.escape(html.escape(str(i))) for i in sorted(df["id"], key=len, reverse=True)]
    known = re.compile(rf"(?<![\w-])({'|'.join(ids)})(?![\w-])")
    out = [
        f"<p>{len(df)} claims: {total}</p>",
        '<div style="overflow-x:auto"><table style="text-align:left">',
        "<thead><tr>" + "".join(f'<th scope="col">{head}</th>' for head in heads) + "</tr></thead>",
        "<tbody>",
    ]
    for row in df.to_dict("records"):
        cell = {key: html.escape(str(value)) for key, value in row.items()}
        why = known.sub(r'<a href="#claim-\1">\1</a>', cell["why"])
        out.append(
            f'<tr id="claim-{cell["id"]}" style="vertical-align:top">'
            '<th scope="row" style="font-weight:normal;text-align:left;min-width:14em">'
            f"<code>{cell['id']}</code><br>"
            f"{cell['says']} <em>({cell['source']}, {cell['where']})</em></th>"
            f'<td style="min-width:6em">{cell["published"]}</td>'
            f'<td style="min-width:14em">{cell["measured"]}'
            f"<details><summary>how it was judged</summary>{why}</details></td>"
            f'<td style="min-width:8em">{badge(row["verdict"])}</td>'
            f"<td>{row['minutes']:g}</td></tr>"
        )
    return "\n".join([*out, "</tbody></table></div>"])
