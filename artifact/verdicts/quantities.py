"""What a rule is about: quantities, read from the records at every point (shape × density).

A quantity is a function of the evidence, of the experiments and of what the claim says of it:
`quantity = { speedup = "v3", over = "cublas" }` calls `speedup(evidence, experiments, of="v3", over="cublas")`;
the value of the quantity's own name is the first parameter. A list of contenders is several, each named in what
is shown; a string is one. What a quantity is called, and where it comes from, `words.j2` says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from artifact.verdicts.evidence import INDEX, Evidence, NotMeasured, need

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
    """A quantity: for each contender its values, indexed by experiment and point, and how a number of it is shown."""

    by: Mapping[str, pd.Series]
    format: str = ".2f"  #: of a number that stands for many
    unit: str = ""
    scale: float = 1.0  #: shown are numbers times this, 100 for per cent
    named: bool | None = None  #: whether to say whose each number is; None: where the claim lists contenders
    data: Mapping[str, Any] = field(default_factory=dict)  #: what else its words name
    upper: Values | None = None  #: the same from above, where records only bound the quantity

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


def denser(s: pd.Series, than: float) -> pd.Series:
    """Return the points that are denser than a share of non-zeros; NotMeasured where there are none."""
    kept = s[s.index.get_level_values("density") > than]
    need(len(kept) > 0, f"No point was measured above {density(than)}.")
    return kept


def _of(e: Evidence, experiments, of: str | Sequence[str], take: Callable, than: float = -1.0, **shown: Any) -> Values:
    """Return what `take` makes of the rows of contenders, by contender, of the points that are denser than `than`."""
    df = rows(e, experiments, *contenders(of))
    by = by_variant(df, take(df), contenders(of))
    return Values({name: denser(s, than) for name, s in by.items()}, **shown)


# ---------------------------------------------------------------- times and rates


def speedup(e: Evidence, experiments, of: str | Sequence[str], over: str | Sequence[str], than: float = -1.0) -> Values:
    """Time of the baseline `over` divided by the time of `of`: above 1, `of` is the faster one.

    Over several baselines it is the speedup over the fastest of them at each point. With `than`, on the matrices that
    are denser than this share of non-zeros.
    """
    if isinstance(over, str):
        by = {name: e.ratio(experiments, name, over) for name in contenders(of)}
        return Values({name: denser(s, than) for name, s in by.items()}, unit="×")
    each = {v: e.ratio(experiments, str(of), v) for v in over}
    least = pd.DataFrame(each).dropna().min(axis=1)
    need(not least.empty, f"{of}, {', '.join(over)} were not measured at any common point.")
    return Values({str(of): denser(least, than)}, unit="×", data={"each": each})


def time(e: Evidence, experiments, of: str | Sequence[str]) -> Values:
    """Median time of one launch, in µs."""
    return _of(e, experiments, of, lambda df: df["median_us"], format=".3g", unit=" µs")


def tflops(
    e: Evidence, experiments, of: str | Sequence[str], flops: str = "useful", than: float = -1.0, matrices: int = 0
) -> Values:
    """TFLOP/s.

    Records give every contender the useful FLOPs of the sparse product; with `flops = "dense"` those of the dense
    product count, useful FLOPs over density, as a source counts them for a dense library. With `than`, on the matrices
    that are denser than this share of non-zeros. A mean of rates belongs to its set, so for one of the source a record
    of fewer than so many `matrices` decides nothing.
    """
    take = {"useful": lambda df: df["tflops"], "dense": lambda df: df["tflops"] / df["density"]}[flops]
    count = rows(e, experiments, *contenders(of))["label"].nunique()
    need(count >= matrices, f"The rate is a mean over {matrices} matrices of the source, and the records hold {count}.")
    return _of(e, experiments, of, take, than, format=".3g", unit=" TFLOP/s")


def share_of_ceiling(e: Evidence, experiments, ceiling: str | float, of: str, rate: str) -> Values:
    """Return the contender's `rate` as a share of the ceiling measured on the same GPU.

    rate: "tflops" or "gbps". The ceiling is a microbenchmark's, or a number, the peak that the source states.
    """
    top = e.ceiling(ceiling, rate) if isinstance(ceiling, str) else ceiling
    data = {"top": top, "per": RATES[rate]}
    return _of(e, experiments, of, lambda df: df[rate] / top, format=".0f", scale=100, unit="%", data=data)


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
        means = {than: pairs[str(of)][0].mean(), of: pairs[str(of)][1].mean()}
        return Values(by, ".4g", counted(metric)[0], data={"means": means})
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
    most = max(s.max() for s in by.values())
    by = {name: s / (stated or 1.0) for name, s in by.items()}
    return Values(by, ".0f" if stated else ".1f", "%", 100, data={"most": most})


def _dram(
    e: Evidence, experiments, names: Sequence[str], metric: str
) -> tuple[list[dict[str, pd.Series]], NotMeasured | None]:
    """Return the share of the DRAM bandwidth in use of each contender by the counter `metric`.

    Without it two bounds, least and requested bytes over the copy ceiling, and what was not measured.
    """
    try:
        return [{name: e.counter(name, metric, experiments) / 100 for name in names}], None
    except NotMeasured as missing:
        df, copy = rows(e, experiments, *names), e.ceiling("copy", "gbps")
        rates = (df[c] / df["median_us"] / 1e3 / copy for c in ("least_bytes", "requested_bytes"))
        return [by_variant(df, rate.clip(upper=1.0), names) for rate in rates], missing


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
    bounds, missing = _dram(e, experiments, contenders(of), metric)
    return _bounded(bounds, {"missing": missing})


def memory_use(e: Evidence, experiments, of: str, metric: str, beside: str | Sequence[str] = ()) -> Values:
    """How busy the memory of a kernel is beside its FMA units, both as shares of their peak.

    Memory is the DRAM, which is what every source means by being bound by memory: the counter `metric`, and without
    hardware counters from the least bytes to the requested ones over the copy ceiling, which may not decide. Caches,
    the counters `beside`, are said beside it and decide nothing. FMA units: useful FLOPs over the FMA ceiling.
    """
    bounds, missing = _dram(e, experiments, [of], metric)
    at = list(bounds[0][of].index.names)
    fma = rows(e, experiments, of).set_index(at)["tflops"] / e.ceiling("fma", "tflops")
    caches = {}
    for name in contenders(beside):
        with contextlib.suppress(NotMeasured):  # not every GPU has every counter
            caches[name] = e.counter(of, name, experiments) / 100
    data = {"missing": missing, "most": bounds[-1][of].max(), "caches": caches}
    return _bounded([{"memory": by[of], "FMA units": fma.loc[by[of].index]} for by in bounds], data)


QUANTITIES = (
    *(speedup, time, tflops, share_of_ceiling, column, true_density, prepared_bytes),
    *(counter, counter_share, dram_use, memory_use),
)
