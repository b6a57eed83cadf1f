"""What a rule is about: quantities, read from the records at every point (shape × density).

A quantity is a function of the evidence, of the experiments and of what the claim says of it:
`quantity = { speedup = "v3", over = "cublas" }` calls `speedup(evidence, experiments, of="v3", over="cublas")`;
the value of the quantity's own name is the first parameter. A list of contenders is several, each named in what
is shown; a string is one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from artifact import registry
from artifact.measure import records
from artifact.verdicts.evidence import INDEX, SHAPE, Evidence, NotMeasured

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
    """A quantity: for each contender its values, indexed by experiment and point."""

    by: Mapping[str, pd.Series]
    name: str  #: of the quantity, as in "Speedup of v3 over cublas"
    format: str = ".2f"  #: of a number that stands for many
    scale: float = 1.0  #: shown are numbers times this, 100 for per cent
    unit: str = ""
    tail: str = ""  #: behind the numbers: over what, of what
    named: bool = False  #: whether to say whose each number is
    words: Mapping[str, str] = field(default_factory=dict)  #: "above", "below": what a point there is called
    called: str = ""  #: how a course of it is told: "achieved occupancy"; the name, if empty
    text: str = ""  #: what is shown of all points, where ranges do not say it
    how: str = ""  #: a sentence on where the values come from
    upper: Values | None = None  #: the same from above, where records only bound the quantity

    def one(self, value: float) -> str:
        """Return a value as it is shown."""
        return f"{value * self.scale:{self.format}}{self.unit}"

    def range(self, values: Iterable[float]) -> str:
        """Return the range of values as it is shown."""
        values = np.asarray(list(values), dtype=float) * self.scale
        low, high = (f"{v:{self.format}}" for v in (values.min(), values.max()))
        return f"{low}{self.unit}" if low == high else f"{low}–{high}{self.unit}"

    @property
    def all(self) -> pd.Series:
        return pd.concat(self.by)

    @property
    def points(self) -> str:
        return points(sum(map(len, self.by.values())))


def contenders(of: str | Sequence[str]) -> list[str]:
    return [of] if isinstance(of, str) else list(of)


def points(count: int) -> str:
    return f"{count} point" + ("s" if count != 1 else "")


def counted(metric: str, per: float = 1.0) -> tuple[str, str]:
    """(unit, what is counted) of a hardware counter in units of `per`; of one that is not in COUNTERS, its own name."""
    unit, what = COUNTERS.get(metric, ("%" if "pct" in metric else "", metric))
    told = unit == " bytes" and per in _BYTES
    return (f" {_BYTES[per]}", what) if told else (unit, what + f", in units of {per:g}" * (per != 1))


def density(fraction: float) -> str:
    return f"density {fraction * 100:g} %"


def stated(low: float, high: float) -> str:
    """Numbers of a source as text, with the digits that it gives."""
    pair = [f"{v:.2f}" if 0 < v < 1 and v == round(v, 2) else f"{v:.10g}" for v in (low, high)]
    return "–".join(dict.fromkeys(pair))


def rows(e: Evidence, experiments: Iterable[str], *variants: str) -> pd.DataFrame:
    """Return the records of `variants`; NotMeasured if one of them has none."""
    return e.rows(experiments, variants)


def by_variant(df: pd.DataFrame, column: str | pd.Series, names: Iterable[str]) -> dict[str, pd.Series]:
    """Return a column of records, by variant, indexed by experiment and point."""
    values = df[column] if isinstance(column, str) else column
    table = df[["variant", *INDEX]].assign(value=values)
    return {n: table[table["variant"] == n].set_index(INDEX)["value"] for n in names}


def _of(e: Evidence, experiments, of: str | Sequence[str], take: Callable, shown: Values) -> Values:
    """Return what `take` makes of the rows of contenders, by contender, shown as `shown`."""
    df = rows(e, experiments, *contenders(of))
    return replace(shown, by=by_variant(df, take(df), contenders(of)), named=not isinstance(of, str))


# ---------------------------------------------------------------- times and rates


def speedup(e: Evidence, experiments, of: str | Sequence[str], over: str | Sequence[str]) -> Values:
    """Time of the baseline `over` divided by the time of `of`: above 1, `of` is the faster one. Over
    several baselines it is the speedup over the fastest of them at each point."""
    if isinstance(over, str):
        by = {name: e.ratio(experiments, name, over) for name in contenders(of)}
        library, said = registry.library(over), f"Speedup of {', '.join(by)} over {registry.library(over)}"
        words = {"above": f"{contenders(of)[0]} faster", "below": f"{library} faster"}
        return Values(by, said, unit="×", tail=f" over {library}", named=not isinstance(of, str), words=words)
    each = {v: e.ratio(experiments, str(of), v) for v in over}
    least = pd.DataFrame(each).dropna().min(axis=1)
    if least.empty:
        raise NotMeasured(f"{of}, {', '.join(over)} were not measured at any common point.")
    means = ", ".join(f"{v} {records.geomean(s):.2f}×" for v, s in each.items())
    said = f"Speedup of {of} over the fastest of {', '.join(over)}"
    how = f"Geometric means over each: {means}."
    return Values({str(of): least}, said, unit="×", words={"at_least": f"{of} the fastest"}, how=how)


def time(e: Evidence, experiments, of: str | Sequence[str]) -> Values:
    """Median time of one launch, in µs."""
    return _of(e, experiments, of, lambda df: df["median_us"], Values({}, "Time", ".3g", unit=" µs"))


def tflops(e: Evidence, experiments, of: str | Sequence[str], flops: str = "useful") -> Values:
    """TFLOP/s. Records give every contender the useful FLOPs of the sparse product; with
    `flops = "dense"` those of the dense product count, useful FLOPs over density, as a source counts
    them for a dense library."""
    how, take = {
        "useful": ("", lambda df: df["tflops"]),
        "dense": ("Every FLOP of the dense product counts.", lambda df: df["tflops"] / df["density"]),
    }[flops]
    return _of(e, experiments, of, take, Values({}, "Throughput", ".3g", unit=" TFLOP/s", how=how))


def share_of_ceiling(e: Evidence, experiments, ceiling: str, of: str, rate: str) -> Values:
    """The contender's `rate`, "tflops" or "gbps", as a share of the ceiling that a microbenchmark
    measured on the same GPU."""
    top = e.ceiling(ceiling, rate)
    how = f"Ceiling measured here: {top:.3g} {RATES[rate]}."
    shown = Values({}, "Share", ".0f", 100, "%", f" of the {ceiling} ceiling", how=how)
    return _of(e, experiments, of, lambda df: df[rate] / top, shown)


# ---------------------------------------------------------------- columns of the records


def column(e: Evidence, experiments, column: str, of: str | Sequence[str]) -> Values:
    """A column of the records, such as "rel_err", over all points of all the contenders."""
    df = rows(e, experiments, *contenders(of))
    worst = df.loc[df[column].idxmax()]
    how = f"The largest is at m = {worst['m']}, n = {worst['n']}, k = {worst['k']}, {density(worst['density'])}."
    return Values({COLUMNS.get(column, column): df.set_index(INDEX)[column]}, column, ".1e", named=True, how=how)


def true_density(e: Evidence, experiments, of: str, operand: str = "A") -> Values:
    """Non-zeros of the generated matrices over the elements of the sparse `operand`, m × k of "A" or
    k × n of "B", over the density that they are labelled with."""
    df = e.frame(experiments)
    df = df[(df["variant"] == of) & (df["label"] == "")]
    if df.empty:
        raise NotMeasured("No generated matrix was measured.")
    elements = df["k"].astype(float) * df[{"A": "m", "B": "n"}[operand]]
    by = by_variant(df, df["nnz"] / elements / df["density"], [of])
    return Values(by, "True density over nominal density", ".3f", tail=" of the target density")


def prepared_bytes(e: Evidence, experiments, of: str | Sequence[str]) -> Values:
    """Device memory that a contender keeps beside the values of its sparse operand, such as indices, in bytes for each
    stored value."""
    shown = Values({}, "Bytes beside a value", ".3g", unit=" bytes", tail=" beside each value")
    return _of(e, experiments, of, lambda df: df["prepare_bytes"] / df["nnz"], shown)


# ---------------------------------------------------------------- hardware counters


def counter(e: Evidence, experiments, metric: str, of: str | Sequence[str], over="", per=1.0) -> Values:
    """A hardware counter, in units of `per`; with `over`, the counter of `of` divided by that of
    `over`."""
    by = {name: e.counter(name, metric, experiments) / per for name in contenders(of)}
    (unit, what), called = counted(metric, per), f"Counter {metric}" + f" in units of {per:g}" * (per != 1)
    shown = Values(by, called, ".4g", unit=unit, tail=f" ({what})", named=not isinstance(of, str), called=what)
    if not over:
        return shown
    theirs, said = e.counter(over, metric, experiments), f"The counter {metric} of {over} has no positive values."
    by = {name: _quotient(values, theirs, said) for name, values in by.items()}
    return replace(shown, by=by, format=".2f", unit="×", tail=f" over {registry.library(over)} ({what})")


def _quotient(part: pd.Series, whole: pd.Series, said: str) -> pd.Series:
    """Return one counter over another where both were read; NotMeasured, which says `said`, where that is not above
    0."""
    part, whole = part.align(whole, join="inner")
    if part.empty or (whole <= 0).any():
        raise NotMeasured(said)
    return part / whole


def counter_share(
    e: Evidence, experiments, metric: str, share_of: str, of: str | Sequence[str], plus: Sequence[str] = ()
) -> Values:
    """A hardware counter, or its sum with all of `plus`, as a share of the counter `share_of`."""
    metrics, said = [metric, *plus], f"The counter {share_of} has no positive values where {metric} was read."
    parts = {name: sum(e.counter(name, m, experiments) for m in metrics).dropna() for name in contenders(of)}
    by = {name: _quotient(part, e.counter(name, share_of, experiments), said) for name, part in parts.items()}
    tail = f" ({' and '.join(counted(m)[1] for m in metrics)}, of {counted(share_of)[1]})"
    called = f"Counter {' + '.join(metrics)} over {share_of}"
    return Values(by, called, ".1f", 100, "%", tail, named=not isinstance(of, str))


def memory_use(e: Evidence, experiments, of: str, metric: str, beside: str | Sequence[str] = ()) -> Values:
    """How busy the memory of a kernel is beside its FMA units, both as shares of their peak.

    Memory is the DRAM, which is what every source means by being bound by memory: the counter `metric`, and without
    hardware counters from the least bytes to the requested ones over the copy ceiling, which may not decide. Caches,
    the counters `beside`, are said beside it and decide nothing. FMA units: useful FLOPs over the FMA ceiling.
    """
    df = rows(e, experiments, of).set_index(["experiment", *SHAPE])
    fma = df["tflops"] / e.ceiling("fma", "tflops")
    shares = {}
    for name in (metric, *contenders(beside)):
        with contextlib.suppress(NotMeasured):  # not every GPU has every counter
            shares[name] = e.counter(of, name, experiments) / 100
    bounds, how = [shares.pop(metric, None)], f"Memory: DRAM, {metric}."
    if bounds[0] is None:
        rates = (df[c] / df["median_us"] / 1e3 / e.ceiling("copy", "gbps") for c in ("least_bytes", "requested_bytes"))
        bounds = [rate.clip(upper=1.0) for rate in rates]
        how = "Memory: DRAM; no hardware counters, so from least to requested bytes over the copy ceiling."
    caches = [f" Not counted: {c} {s.median():.0%} (median), at most {s.max():.0%}." for c, s in shares.items()]
    how += f" At most {bounds[-1].max():.0%}.{''.join(caches)}"

    def values(memory: pd.Series, upper: Values | None = None) -> Values:
        by = {"memory": memory, "FMA units": fma.loc[memory.index]}
        text = f"DRAM {memory.median():.0%}, FMA units {by['FMA units'].median():.0%} of peak (medians)"
        return Values(by, "Use", ".0f", 100, "%", how=how, named=True, text=text, upper=upper)

    return values(bounds[0], *map(values, bounds[1:]))


QUANTITIES = (
    *(speedup, time, tflops, share_of_ceiling, column, true_density, prepared_bytes),
    *(counter, counter_share, memory_use),
)
