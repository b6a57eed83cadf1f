"""The records of one GPU for one system, as the evidence for its claims, and quantities, read from them at every point.

A quantity is a function of the evidence, of the experiments and of what the claim says of it:
`quantity = { speedup = "v3", over = "cublas" }` calls `speedup(evidence, experiments, of="v3", over="cublas")`;
the value of the quantity's own name is the first parameter. A list of contenders is several, each named in what
is shown; a string is one. What a quantity is called, and where it comes from, `words.j2` says.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import device, external, records
from kernels.contract import require

CEILINGS = "ceilings"  #: its own system, used by claims of any system
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
    """Records of experiments; many claims ask for the same, and arranging them takes milliseconds."""

    df: pd.DataFrame
    at: np.ndarray  #: row -> number of its point
    points: pd.MultiIndex  #: of INDEX

    @cached_property
    def times(self) -> pd.DataFrame:
        """Median times, as `wide`."""
        return self.wide("median_us")

    def wide(self, column: str) -> pd.DataFrame:
        """Return a column of the records, a row for each point and a column for each contender."""
        (row, at), (of, names) = pd.factorize(self.at), pd.factorize(self.df["variant"], sort=True)
        values = np.full((len(at), len(names)), np.nan)
        values[row, of] = self.df[column]
        return pd.DataFrame(values, self.points[at], names)

    @cached_property
    def labels(self) -> dict[str, set[str]]:
        """Contender -> the labels at which it was measured."""
        return self.df.groupby("variant")["label"].agg(set).to_dict()


@dataclass
class Evidence:
    """The records of one GPU for one system, read when first needed.

    Raises FileNotFoundError or ValueError if it is not known on which machine they were measured, or if
    one that was planned is not there, ValueError if a record is not valid or not complete.
    """

    folder: Path  #: of the GPU
    room: str
    read: dict[str, pd.DataFrame] = field(default_factory=dict)
    frames: dict[tuple, Frame] = field(default_factory=dict)
    counts: dict[str, dict[tuple, float]] = field(default_factory=dict)  #: counter -> (contender, *SHAPE) -> value
    where: Mapping[str, object] = field(default_factory=dict)  #: column: value, or list of values
    repeats: bool = False  #: experiments are runs of one measurement
    seen: set[str] = field(default_factory=set)  #: experiments, COUNTERS, CEILINGS: what was used
    absent: Mapping[str, Mapping[tuple, str]] = field(init=False)  #: as `records.read_absent`

    def __post_init__(self) -> None:
        # A system that was not measured has no machine; counters may lie there before its records.
        records.check_system(self.folder / self.room)
        self.absent = records.read_absent(self.folder / self.room)

    def only(self, where: Mapping[str, object], repeats: bool = False) -> "Evidence":
        """Return the same evidence, of the rows alone whose columns have these values.

        With `repeats`, experiments that are read together are runs of one measurement.
        """
        made = copy(self)  # the folder has been looked at
        made.where, made.repeats, made.seen = where, repeats, set()
        return made

    def frame(self, experiments: Iterable[str], *variants: str) -> pd.DataFrame:
        """Return records of these experiments with the rows of BEST and ROOM_BEST.

        Runs of one measurement are one experiment. Raises NotMeasured if one is missing, if none is left of what
        `where` keeps, or if one of `variants` has no rows there. Nobody may change the result.
        """
        return self.framed(experiments, *variants).df

    def ratio(self, experiments: Iterable[str], variant: str, baseline: str) -> pd.Series:
        """Return time of `baseline` over that of `variant` at each point that both have, indexed by INDEX.

        NotMeasured if there is none.
        """
        times = self.framed(experiments, baseline, variant).times
        found = (times[baseline] / times[variant]).dropna().rename("speedup")
        need(not found.empty, f"{variant!r} and {baseline!r} were not measured at any common point.")
        return found

    def framed(self, experiments: Iterable[str], *variants: str) -> Frame:
        """Return the same as `frame` with its points."""
        names = sweeps(experiments)
        key = (*names, repr(self.where), self.repeats)
        if key not in self.frames:
            self.frames[key] = (
                self._among(self.only({}, self.repeats).framed(names)) if self.where else self._all(names)
            )
        self.seen.update(names)
        for name in variants:
            need(name in self.frames[key].labels, f"The variant {name!r} was not measured in {', '.join(names)}.")
        return self.frames[key]

    def _among(self, whole: Frame) -> Frame:
        """Return the rows that `where` keeps."""
        held = [whole.df[c].isin(v if isinstance(v, list) else [v]).to_numpy() for c, v in self.where.items()]
        kept, names = np.logical_and.reduce(held), whole.df["experiment"].unique()
        need(bool(kept.any()), f"The records of {', '.join(names)} have nothing at {self.kept}.")
        return replace(whole, df=whole.df[kept], at=whole.at[kept])

    def _all(self, names: Sequence[str]) -> Frame:
        df = pd.concat([self._one(name) for name in names], ignore_index=True)
        if self.repeats and len(names) > 1:
            # Times and rates of each contender at each point are geometric means over the experiments that have it,
            # other columns those of the first.
            rates, both = ["median_us", "tflops", "gbps"], " and ".join(dict.fromkeys(df["experiment"]))
            runs, logs = (x.groupby(list(records.KEY), sort=False) for x in (df, df.assign(**np.log(df[rates]))))
            df = runs.first().assign(experiment=both, **np.exp(logs[rates].mean())).reset_index()[df.columns]
        at = df.groupby(INDEX, sort=False).ngroup().to_numpy()
        return Frame(df, at, pd.MultiIndex.from_frame(df[INDEX].drop_duplicates()))

    def labels(self, experiments: Iterable[str], variants: Iterable[str] = ()) -> set[str]:
        """Return the real matrices at which each of `variants` was measured, or is left out for a reason given.

        Of any contender where none is named. NotMeasured as `frame`.
        """
        known = self.framed(experiments).labels
        absent = [key[:2] for name in sweeps(experiments) for key in self.absent.get(name, ())]
        by = {v: known.get(v, set()) | {at for name, at in absent if name == v} for v in variants}
        return set.intersection(*by.values()) if by else set.union(*known.values(), {at for _, at in absent})

    @property
    def kept(self) -> str:
        """`where` as text."""
        return ", ".join(
            f"{c} = {' or '.join(map(str, v if isinstance(v, list) else [v]))}" for c, v in self.where.items()
        )

    def _one(self, name: str) -> pd.DataFrame:
        """Return what lies under one name, read once: an experiment, the counters, the ceilings."""
        if name in self.read:
            return self.read[name]
        path = place(name, self.folder, self.room)
        if name == CEILINGS:
            records.check_system(path.parent)
            df = pd.DataFrame(records.ceilings(self.folder))
        elif name.startswith(OTHERS) or SERIES in name:
            df = _of_sources(path, self.room, name, self.folder.name)
        else:
            counted = name == records.COUNTERS
            counters = "are no hardware counters of this system on this GPU (make profile)."
            none = counters if counted else f"is no record of the experiment {name!r}."
            need(path.exists() or path.is_symlink(), f"There {none}")  # a link to nothing is an error, not a gap
            df = records.read_counters(path) if counted else with_best(records.complete(records.read(path), path))
        self.read[name] = df
        return df

    def ceiling(self, name: str, unit: str) -> float:
        """Return what a microbenchmark reached on this GPU, as "tflops" or "gbps"."""
        known = self._one(CEILINGS)
        which = "ceilings of this GPU (copy, FMA, L2) were" if known.empty else f"ceiling {name!r} was"
        need(name in known, f"The {which} not measured.")
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
        if metric not in self.counts:
            df = self.counters[self.counters["metric"] == metric]
            keys = df[["variant", *SHAPE]].itertuples(index=False, name=None)
            self.counts[metric] = dict(zip(keys, df["value"], strict=True))
        framed, actual = self.framed(experiments), "best_of" if variant in (BEST, ROOM_BEST) else "variant"
        asked = (framed.df["variant"] == variant).to_numpy()
        keys = framed.df.loc[asked, [actual, *SHAPE]].itertuples(index=False, name=None)
        at = framed.points[framed.at[asked]].droplevel(["label", "useful_flops"])
        found = pd.Series(map(self.counts[metric].get, keys), at, float, metric).dropna()
        need(not found.empty, f"The counter {metric} was not profiled for {variant}.")
        self.seen.add(records.COUNTERS)
        return found


def with_best(df: pd.DataFrame) -> pd.DataFrame:
    """Return a record with the rows of BEST, where cuSPARSE was measured, and of ROOM_BEST."""
    ours = df[~df["variant"].str.startswith(registry.PREFIXES)]
    if df["variant"].str.startswith("cusparse_").any():  # not cuSPARSELt, another library
        df = records.best_of(df, "cusparse_")
    best = [] if ours.empty else [records.best_of(ours, "", ROOM_BEST)[len(ours) :]]
    return pd.concat([df, *best], ignore_index=True)


# ---------------------------------------------------------------- records of other kinds


def sweeps(experiments: Iterable[str]) -> list[str]:
    """Return those that hold times of kernels; counters and ceilings may stand among a claim's experiments."""
    return [e for e in experiments if e not in (records.COUNTERS, CEILINGS)]


def place(experiment: str, folder: Path, system: str) -> Path:
    """Return where an experiment's numbers lie, if they are there. folder: of the GPU."""
    if experiment.startswith(OTHERS):
        return registry.others(system, experiment.removeprefix(OTHERS), folder.name)
    if SERIES in experiment:
        return registry.published(system, experiment.partition(SERIES)[0])
    return folder / (CEILINGS if experiment == CEILINGS else system) / f"{experiment}.csv"


def _of_sources(path: Path, system: str, experiment: str, gpu: str) -> pd.DataFrame:
    """Return as records a published series, or what the code of others gave on this GPU.

    Series: <figure>.csv with the columns gpu, library, density, m, n, k and tflops, those of the dense product. A
    library at density 1 alone is a dense one, and stands beside the others at each of their densities.
    FileNotFoundError or ValueError, one sentence, where there is none.

    Of speedups, among them those of the baseline, 1, times are in units of the baseline's at each point, so that ratios
    of them are right; rates are there where the baseline's is known.
    """
    if SERIES in experiment:
        gpu, df = experiment.partition(SERIES)[2], records.published(path)
        df = df[df["gpu"] == gpu]
        require(not df.empty, f"{path}: there is no series of the GPU {gpu!r}.")
        dense = df.groupby("library")["density"].transform("min") == 1
        df = pd.concat(
            [
                df[~dense],
                df[dense].drop(columns="density").merge(df.loc[~dense, ["density"]].drop_duplicates(), how="cross"),
            ],
            ignore_index=True,
        )
    else:
        measured = external.nearest(system, name := experiment.removeprefix(OTHERS), gpu)
        ran = " and ".join(f"an {m.gpu}" for m in external.find(system, name=name))
        need(device.slug(measured.gpu) == gpu, f"The code of others did not run on this GPU, only on {ran}.")
        df = measured.numbers()
        over = [] if "tflops" in df else [df.drop_duplicates(SHAPE).assign(library=measured.over, speedup=1.0)]
        df = pd.concat([df, *over], ignore_index=True)
    flops = 2.0 * df["m"] * df["n"] * df["k"]
    timed = "tflops" in df
    rate = df["tflops"] if timed else df["speedup"] * df.get("over_tflops", np.nan)
    return df.rename(columns={"library": "variant"}).assign(
        room=system,
        experiment=experiment,
        label=df.get("label", ""),
        median_us=flops / rate / 1e6 if timed else 1 / df["speedup"],
        useful_flops=flops * df["density"],
        tflops=rate * df["density"],
    )


# ---------------------------------------------------------------- what a number is called

#: Of times and rates. Counters know no label and no FLOPs.
RATES = {"tflops": "TFLOP/s", "gbps": "GB/s"}  #: columns that hold a rate, and their units
#: Columns that a claim may be about, in words.
COLUMNS = {"rel_err": "relative error", "max_err": "largest error of an element"}

#: Counter -> the unit behind its number, and what it is.
COUNTERS = {
    "dram__bytes_read.sum": (" bytes", "read from DRAM"),
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "DRAM throughput"),
    "gpu__time_duration.sum": (" ns", "profiled time"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": ("", "bank conflicts"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": ("", "bank conflicts of loads"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum": ("", "bank conflicts of stores"),
    "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed": ("%", "L1 data pipe in use"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": ("", "shared-memory wavefronts"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": ("", "shared-memory load wavefronts"),
    "l1tex__t_bytes.sum": (" bytes", "through L1"),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": ("", "sectors that threads load"),
    "l1tex__t_sector_hit_rate.pct": ("%", "sectors that hit in L1"),
    "launch__occupancy_limit_registers": ("", "blocks an SM that registers allow"),
    "launch__occupancy_limit_shared_mem": ("", "blocks an SM that shared memory allows"),
    "launch__registers_per_thread": ("", "registers a thread"),
    "lts__t_sector_hit_rate.pct": ("%", "sectors that hit in L2"),
    "lts__t_sectors_op_read.sum": ("", "sectors read from L2"),
    "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active": ("%", "issue slots of the FMA pipe"),
    "sm__maximum_warps_per_active_cycle_pct": ("%", "theoretical occupancy"),
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": ("%", "FMA pipe busy"),
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed": ("%", "tensor cores busy"),
    "sm__sass_thread_inst_executed_op_ffma_pred_on.sum": ("", "FMAs"),
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "SM throughput"),
    "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "achieved occupancy"),
    "smsp__inst_executed.avg.per_cycle_active": ("", "instructions a cycle, of each SM sub-partition"),
    "smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.pct": ("%", "bytes of loaded sectors that are used"),
    "smsp__thread_inst_executed_per_inst_executed.ratio": ("", "threads an instruction"),
    "smsp__warps_launched.sum": ("", "warps launched"),
    **{
        f"smsp__average_warps_issue_stalled_{why}_per_issue_active.ratio": ("", f"warps waiting {what}, for each issue")
        for why, what in {
            "barrier": "at a barrier",
            "drain": "for stores to drain",
            "long_scoreboard": "for memory",
        }.items()
    },
}
#: Prefixes of bytes.
_BYTES = {1.0: "bytes", 1e3: "kB", 1e6: "MB", 1e9: "GB"}


@dataclass(frozen=True)
class Values:
    """A quantity: for each contender its values, indexed by experiment and point, and how a number of it is shown."""

    by: Mapping[str, pd.Series]
    format: str = ".2f"  #: of a number that stands for many
    unit: str = ""
    scale: float = 1.0  #: shown are numbers times this, 100 for per cent
    named: bool | None = None  #: whether to say whose each number is; None: where the claim lists contenders
    data: Mapping[str, Any] = field(default_factory=dict)  #: what else its words name
    upper: "Values | None" = None  #: the same from above, where records only bound the quantity

    def one(self, value: float) -> str:
        """Return a value as it is shown."""
        return f"{value * self.scale:{self.format}}{self.unit}"

    def range(self, values: Iterable[float]) -> str:
        """Return the range of values as it is shown."""
        return span(np.asarray(list(values), dtype=float) * self.scale, self.format) + self.unit

    @cached_property
    def all(self) -> pd.Series:
        """All values; the first level of the index is the contender."""
        return pd.concat(self.by, names=["contender"])


def span(values: Sequence[float] | np.ndarray | pd.Series, form: str) -> str:
    """Return the least and the largest value as text, once if they read the same."""
    return "–".join(dict.fromkeys(f"{v:{form}}" for v in (min(values), max(values))))


def contenders(of: str | Sequence[str]) -> list[str]:
    """Return one contender or several as a list."""
    return [of] if isinstance(of, str) else list(of)


def counted(metric: str, per: float = 1.0) -> tuple[str, str]:
    """Return (unit, what is counted) of a hardware counter in units of `per`.

    Of one that is not in COUNTERS, its own name.
    """
    unit, what = COUNTERS.get(metric, ("%" if "pct" in metric else "", metric))
    told = unit == " bytes" and per in _BYTES
    return (f" {_BYTES[per]}", what) if told else (unit, what + f", in units of {per:g}" * (per != 1))


def density(fraction: float) -> str:
    """Return a density as pages write it: "density 5 %"."""
    return f"density {fraction * 100:g} %"


def stated(low: float, high: float) -> str:
    """Numbers of a source as text, with the digits that it gives."""
    return "–".join(dict.fromkeys([f"{v:.2f}" if 0 < v < 1 and v == round(v, 2) else f"{v:.10g}" for v in (low, high)]))


def rows(e: Evidence, experiments: Iterable[str], *variants: str) -> pd.DataFrame:
    """Return the records of `variants`; NotMeasured if one of them has none."""
    df = e.frame(experiments, *variants)
    return df[df["variant"].isin(variants)]


def by_variant(df: pd.DataFrame, column: str | pd.Series, names: Iterable[str]) -> dict[str, pd.Series]:
    """Return a column of records, by variant, indexed by experiment and point."""
    values = (df[column] if isinstance(column, str) else column).set_axis(pd.MultiIndex.from_frame(df[INDEX]))
    return {name: values[(df["variant"] == name).to_numpy()].rename("value") for name in names}


def denser(s: pd.Series, than: float) -> pd.Series:
    """Return the points that are denser than a share of non-zeros; NotMeasured where there are none."""
    kept = s[s.index.get_level_values("density") > than]
    need(len(kept) > 0, f"No point was measured above {density(than)}.")
    return kept


def _of(e: Evidence, experiments, of: str | Sequence[str], take: Callable, than: float = -1.0, **shown: Any) -> Values:
    """Return what `take` makes of the rows of contenders, by contender, of the points that are denser than `than`."""
    df = rows(e, experiments, *contenders(of))
    return Values({name: denser(s, than) for name, s in by_variant(df, take(df), contenders(of)).items()}, **shown)


# ---------------------------------------------------------------- times and rates


def speedup(e: Evidence, experiments, of: str | Sequence[str], over: str | Sequence[str], than: float = -1.0) -> Values:
    """Time of the baseline `over` divided by the time of `of`: above 1, `of` is the faster one.

    Over several baselines it is the speedup over the fastest of them at each point. With `than`, on the matrices that
    are denser than this share of non-zeros.
    """
    if isinstance(over, str):
        return Values({name: denser(e.ratio(experiments, name, over), than) for name in contenders(of)}, unit="×")
    each = {v: e.ratio(experiments, str(of), v) for v in over}
    least = pd.DataFrame(each).dropna().min(axis=1)
    need(not least.empty, f"{of}, {', '.join(over)} were not measured at any common point.")
    return Values({str(of): denser(least, than)}, unit="×", data={"each": each})


def time(e: Evidence, experiments, of: str | Sequence[str]) -> Values:
    """Median time of one launch, in µs."""
    return _of(e, experiments, of, lambda df: df["median_us"], format=".3g", unit=" µs")


def tflops(e: Evidence, experiments, of: str | Sequence[str], flops: str = "useful", than: float = -1.0) -> Values:
    """TFLOP/s.

    Records give every contender the useful FLOPs of the sparse product; with `flops = "dense"` those of the dense
    product count, useful FLOPs over density, as a source counts them for a dense library. With `than`, on the matrices
    that are denser than this share of non-zeros.
    """
    take = {"useful": lambda df: df["tflops"], "dense": lambda df: df["tflops"] / df["density"]}[flops]
    return _of(e, experiments, of, take, than, format=".3g", unit=" TFLOP/s")


def share_of_ceiling(e: Evidence, experiments, ceiling: str | float, of: str, rate: str) -> Values:
    """Return the contender's `rate` as a share of the ceiling measured on the same GPU.

    rate: "tflops" or "gbps". The ceiling is a microbenchmark's, or a number, the peak that the source states.
    """
    top = e.ceiling(ceiling, rate) if isinstance(ceiling, str) else ceiling
    return _of(
        e,
        experiments,
        of,
        lambda df: df[rate] / top,
        format=".0f",
        scale=100,
        unit="%",
        data={"top": top, "per": RATES[rate]},
    )


# ---------------------------------------------------------------- columns of the records


def column(e: Evidence, experiments, column: str, of: str | Sequence[str]) -> Values:
    """Return a column of the records, such as "rel_err", over all points of all the contenders."""
    df = rows(e, experiments, *contenders(of))
    by, worst = {COLUMNS.get(column, column): df.set_index(INDEX)[column]}, df.loc[df[column].idxmax()]
    return Values(by, ".1e", named=True, data={"worst": worst})


def true_density(e: Evidence, experiments, of: str, operand: str = "A") -> Values:
    """Return the density of the generated matrices over the one that they are labelled with.

    Non-zeros over the elements of the sparse `operand`, m × k of "A" or k × n of "B".
    """
    df = e.frame(experiments)
    df = df[(df["variant"] == of) & (df["label"] == "")]
    need(not df.empty, "No generated matrix was measured.")
    elements = df["k"].astype(float) * df[{"A": "m", "B": "n"}[operand]]
    return Values(by_variant(df, df["nnz"] / elements / df["density"], [of]), ".3f")


def prepared_bytes(e: Evidence, experiments, of: str | Sequence[str]) -> Values:
    """Return the device memory that a contender keeps beside the values of its sparse operand.

    Such as indices, in bytes for each stored value.
    """
    return _of(e, experiments, of, lambda df: df["prepare_bytes"] / df["nnz"], format=".3g", unit=" bytes")


# ---------------------------------------------------------------- hardware counters


def counter(e: Evidence, experiments, metric: str, of: str | Sequence[str], over="", per=1.0, than="") -> Values:
    """Return a hardware counter, in units of `per`; with `over`, the counter of `of` divided by that of `over`.

    With `than`, by how much it is less than that of `than`.
    """
    by = {name: e.counter(name, metric, experiments) / per for name in contenders(of)}
    if over:
        theirs, said = e.counter(over, metric, experiments), f"The counter {metric} of {over} has no positive values."
        return Values({name: _quotient(values, theirs, said) for name, values in by.items()}, unit="×")
    if than:
        pairs = {name: e.counter(than, metric, experiments).align(s, join="inner") for name, s in by.items()}
        by = {name: theirs - ours for name, (theirs, ours) in pairs.items()}
        need(all(map(len, by.values())), f"The counter {metric} was not profiled for {of} and {than} at one point.")
        return Values(
            by,
            ".4g",
            counted(metric)[0],
            data={"means": {than: pairs[str(of)][0].mean(), of: pairs[str(of)][1].mean()}},
        )
    return Values(by, ".4g", counted(metric, per)[0])


def _quotient(part: pd.Series, whole: pd.Series, said: str) -> pd.Series:
    """Return one counter over another where both were read.

    NotMeasured, which says `said`, where that is not above 0.
    """
    part, whole = part.align(whole, join="inner")
    need(not part.empty and bool((whole > 0).all()), said)
    return part / whole


def counter_share(
    e: Evidence,
    experiments,
    metric: str,
    share_of: str,
    of: str | Sequence[str],
    plus: Sequence[str] = (),
    stated: float = 0.0,
) -> Values:
    """Return a hardware counter, or its sum with all of `plus`, as a share of the counter `share_of`.

    With `stated`, bytes over a time in ns, as a share of the bandwidth that the source states for its GPU, in GB/s.
    """
    metrics, said = [metric, *plus], f"The counter {share_of} has no positive values where {metric} was read."
    parts = {name: sum(e.counter(name, m, experiments) for m in metrics).dropna() for name in contenders(of)}
    by = {name: _quotient(part, e.counter(name, share_of, experiments), said) for name, part in parts.items()}
    shares = {name: s / (stated or 1.0) for name, s in by.items()}
    return Values(shares, ".0f" if stated else ".1f", "%", 100, data={"most": max(s.max() for s in by.values())})


def _bounded(bounds: Sequence[Mapping[str, pd.Series]], data: Mapping[str, Any]) -> Values:
    """Return shares in per cent; where there are two bounds, the second as `upper`."""
    upper = [_bounded([by], data) for by in bounds[1:]]
    return Values(bounds[0], ".0f", "%", 100, data=data, upper=upper[0] if upper else None)


def dram_use(e: Evidence, experiments, of: str | Sequence[str], metric: str) -> Values:
    """Share of the DRAM bandwidth in use, as the counter `metric` has it in per cent.

    Without hardware counters the share lies between two bounds: least bytes over the copy ceiling (all
    reuse in caches) and requested bytes over it (none). Where both give one verdict, that stands; else
    the claim is not measured.
    """
    try:
        return _bounded(
            [{name: e.counter(name, metric, experiments) / 100 for name in contenders(of)}], {"missing": ""}
        )
    except NotMeasured as missing:
        df, top = rows(e, experiments, *contenders(of)), e.ceiling("copy", "gbps")
        shares = [(df[c] / df["median_us"] / 1e3 / top).clip(upper=1.0) for c in ("least_bytes", "requested_bytes")]
        return _bounded([by_variant(df, share, contenders(of)) for share in shares], {"missing": str(missing)})


def memory_use(e: Evidence, experiments, of: str, metric: str, beside: str | Sequence[str] = ()) -> Values:
    """How busy the memory of a kernel is beside its FMA units, both as shares of their peak.

    Memory is the DRAM, which is what every source means by being bound by memory: the counter `metric`, and without
    hardware counters from the least bytes to the requested ones over the copy ceiling, which may not decide. Caches,
    the counters `beside`, are said beside it and decide nothing. FMA units: useful FLOPs over the FMA ceiling.
    """
    dram = dram_use(e, experiments, of, metric)
    bounds = [v.by[of] for v in (dram, dram.upper) if v is not None]
    fma = rows(e, experiments, of).set_index(list(bounds[0].index.names))["tflops"] / e.ceiling("fma", "tflops")
    caches = {}
    for name in contenders(beside):
        with contextlib.suppress(NotMeasured):  # not every GPU has every counter
            caches[name] = e.counter(of, name, experiments) / 100
    return _bounded(
        [{"memory": use, "FMA units": fma.loc[use.index]} for use in bounds],
        {**dram.data, "most": bounds[-1].max(), "caches": caches},
    )


QUANTITIES = (
    *(speedup, time, tflops, share_of_ceiling, column, true_density, prepared_bytes),
    *(counter, counter_share, dram_use, memory_use),
)
