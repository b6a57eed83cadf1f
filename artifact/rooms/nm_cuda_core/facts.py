"""The chapter's facts, by the part of it that they stand in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from artifact.book.facts import Fact, each, spread, under
from artifact.measure import again
from artifact.measure.run import Run
from artifact.profiling import ncu
from artifact.rooms.nm_cuda_core import counters, machine_code
from artifact.rooms.nm_cuda_core.counters import PIPES, TRAFFIC, Counters
from artifact.rooms.nm_cuda_core.figures import compare_readings, cublas_times, fit_published, fit_readings
from artifact.rooms.nm_cuda_core.gather import Gathered
from artifact.rooms.nm_cuda_core.machine_code import HOPPER
from artifact.rooms.nm_cuda_core.trial import LETTER, PUBLISHED, READINGS, VARIANTS, of_size, ratios, start
from artifact.rooms.nm_cuda_core.trial import of as by_variant
from kernels import jit
from kernels import nm_cuda_core as room

#: The report's card: TFLOP/s of its cores (section 4.1) at the boost clock, and its GB/s.
CARD_TFLOPS, CARD_GBPS = 2 * 5888 * 2.475e9 / 1e12, 504
#: GB/s of 16 lanes of PCIe 3.0, which the Xeon E5-2650 v2 of its host has.
SLOT_GBPS = 16 * 8e9 * 128 / 130 / 8e9
#: TFLOP/s that its section 5.1 states from 4096³ on.
FALLEN = (2.9, 2.1)


def of(run: Run) -> Iterator[Fact]:
    """Yield every fact that records hold."""
    trial = start("recorded", run.gpu, folder=run.folder.parent.parent)
    scaling, published, sequential = trial.measure("scaling"), trial.measure("published"), trial.on_cpu()
    counted = counters.read(trial.run)
    yield from over_cublas(scaling)
    yield from with_handle(published, sequential)
    yield from contains(published, trial.stated["fig2"])
    yield from ladder(scaling)
    yield from letter(scaling)
    yield from profile(ncu.launches(trial.run.folder), counted)
    yield from reasons(counted, trial.run.machine, trial.stated["fig3"])
    yield from reversal(scaling, trial.fma)
    yield from right_gather(scaling, trial.measure("element_wise"))
    yield from on_cpu(sequential, trial.run.machine)
    yield from accuracy(scaling)
    yield from repeats(scaling, trial.second())


def by_size(name: str, ratio: pd.Series) -> Iterator[Fact]:
    """Of a speedup by size: its spread over all sizes and on both sides of 1024³, and how often it is above 1."""
    ahead = int((ratio > 1).sum())
    yield from spread(name, ratio)
    yield from spread(f"{name}.below_1024", ratio[ratio.index < 1024])
    yield from spread(f"{name}.from_1024", ratio[ratio.index >= 1024])
    yield from each(f"{name}.at", ratio)
    yield from under(name, largest=ratio[ratio.index.max()], ahead=ahead, behind=len(ratio) - ahead)


def measured(facts: Iterator[Fact]) -> Iterator[Fact]:
    """Leave out what this GPU has no counter for."""
    return (fact for fact in facts if pd.notna(fact[1]))


# ---------------------------------------------------------------- which index, machine code


def which_index(case: Gathered) -> Iterator[Fact]:
    right = case.right_columns
    yield from under("gather", error=case.error, right=len(right), same_if_shared=case.same_if_shared)
    yield "gather.where", ", ".join(f"column {c}" for c in right[:4])


def run_here(off: tuple[float, float] | None) -> Iterator[Fact]:
    """off: `gather.run_it`."""
    if off is not None:
        yield from under("run_here", from_right=off[0], from_gathered=off[1])


def compiled(report: pd.DataFrame) -> Iterator[Fact]:
    """Of the compile report; registers a thread on Hopper, for the 2:4 pattern."""
    distinct = report.drop_duplicates(["entry", "target"])
    yield from under(
        "compiled",
        targets=", ".join(dict.fromkeys(report["target"])),
        entries=distinct["entry"].nunique(),
        count=len(distinct),
        spilling=int(distinct["spills"].astype(bool).sum()),
    )
    yield from each("registers", {v: machine_code.registers(report, v) for v in VARIANTS})


def code() -> Iterator[Fact]:
    """What the compiler makes for Hopper of the report to the letter, and of ours."""
    names = ("verbatim", "baseline", "verbatim_double_buffer", "double_buffer")
    cubins = [jit.compile_cubin(room.VARIANTS[v].source, room.entry(v), HOPPER) for v in names]
    yield "code.target", HOPPER
    for name, (used, mix) in zip(names, jit.reports(cubins), strict=True):
        stores, generic = (sum(n for op, n in mix.items() if op.startswith(kind)) for kind in ("STG", "LD."))
        yield from under(f"code.{name}", registers=used.registers, stack_bytes=used.stack_bytes)
        yield from under(f"code.{name}", stores=stores, generic_loads=generic)
    for name in LETTER[:2]:
        yield f"code.{name}.global_loads", machine_code.loads(name, HOPPER)


def prefetch(targets: list[str]) -> Iterator[Fact]:
    """On how many targets `prefetch` is not the baseline, instruction by instruction."""
    same = [machine_code.the_same("baseline", "prefetch", target) for target in targets]
    yield "code.prefetch.targets_that_differ", same.count(False)


# ---------------------------------------------------------------- the library


def over_cublas(scaling: pd.DataFrame) -> Iterator[Fact]:
    yield "largest", scaling["m"].max()
    for variant in ("verbatim", "baseline", "zigzag"):
        if variant in set(scaling["variant"]):
            yield from by_size(f"over_cublas.{variant}", ratios(scaling, variant, "cublas"))


def with_handle(published: pd.DataFrame, sequential: pd.DataFrame | None) -> Iterator[Fact]:
    """The published kernel's speedup at 512³ over a cuBLAS call that makes a handle, in each record that has both."""
    for experiment, df in (("published", published), ("cpu", sequential)):
        if df is not None and {LETTER[0], "cublas_handle"} <= set(of_size(df, 512)["variant"]):
            yield f"with_handle.{experiment}", ratios(df, LETTER[0], "cublas_handle")[512]


def contains(published: pd.DataFrame, fig2: pd.DataFrame) -> Iterator[Fact]:
    """What a call of the report's cuBLAS contains, by the fit of its times; what its parts cost here, µs."""
    theirs, fit = cublas_times(fig2), fit_published(fig2)
    yield from under("stated", us_64=theirs[64] * 1e6, ms_4096=theirs[4096] * 1e3, ms_8192=theirs[8192] * 1e3)
    yield from under("fit", constant_us=fit.constant * 1e6, gbps=fit.gbps, tflops=fit.tflops)
    yield from under("fit.square", ms_4096=fit.square * 4096**2 * 1e3, ms_8192=fit.square * 8192**2 * 1e3)
    rests = [theirs.drop(size) for size in theirs.index]
    rates = [fit_readings(rest.index, rest).tflops for rest in rests]
    yield from under("fit.without_one", low=min(rates), high=max(rates))
    yield from under("card", tflops=CARD_TFLOPS, gbps=CARD_GBPS, slot_gbps=SLOT_GBPS)
    yield "fit.ms_1024", float(fit.seconds(np.array([1024]))[0]) * 1e3
    at = fig2[fig2["size"] == 1024].set_index("quantity")
    faster, rate = at.loc[["speedup_cublas"], "low"].iloc[0], at.loc[["tflops"], ["low", "high"]].iloc[0]
    low, high = (faster * 1024**3 / rate[end] / 1e9 for end in ("high", "low"))
    yield from under("implied_ms", low=low, high=high)
    alone = by_variant(published, "cublas")
    least = alone.index.min()
    yield from under("costs_us", multiplication=alone[least])
    for reading in READINGS[1:]:
        yield f"costs_us.{reading.removeprefix('cublas_')}", (by_variant(published, reading) - alone)[least]
    yield from each("worst_factor", compare_readings(published, fig2).set_index("reading")["worst_factor"])


# ---------------------------------------------------------------- the variants


def ladder(scaling: pd.DataFrame) -> Iterator[Fact]:
    """Each variant over the baseline, and the fastest at each size."""
    mine = scaling[scaling["variant"].isin(VARIANTS)]
    for variant in VARIANTS[1:]:
        if variant in set(mine["variant"]):
            yield from by_size(f"over.{variant}", ratios(scaling, variant, "baseline"))
    yield from by_size("lanes", ratios(scaling, "zigzag", "double_buffer_split1"))
    yield from each("fastest", mine.loc[mine.groupby("m")["median_us"].idxmin()].set_index("m")["variant"])


def letter(scaling: pd.DataFrame) -> Iterator[Fact]:
    """The report's kernels to the letter over ours of the same idea."""
    for theirs, ours in zip(LETTER, PUBLISHED, strict=True):
        if theirs in set(scaling["variant"]):
            yield f"letter.{theirs}.ours", ours
            yield from by_size(f"letter.{theirs}", ratios(scaling, theirs, ours))


# ---------------------------------------------------------------- what Nsight Compute counts


def profile(launches: pd.DataFrame, counted: Counters | None) -> Iterator[Fact]:
    """launches: `ncu.launches`."""
    if counted is not None and len(launches):
        kernels = launches["kernel"].nunique()
        yield from under("profile", launches=len(launches), kernels=kernels, metrics=len(counted.metrics))


def reasons(counted: Counters | None, machine: Mapping[str, Any], fig3: pd.DataFrame) -> Iterator[Fact]:
    """What keeps the kernels from being faster. fig3: the report's counters."""
    if counted is not None:
        yield from under("machine", sm_count=machine["sm_count"], l2_mib=machine["l2_bytes"] / 2**20)
        yield from measured(_idle(counted))
        yield from measured(_busy(counted))
        yield from measured(_traffic(counted, fig3))


def _idle(counted: Counters) -> Iterator[Fact]:
    """At 256³."""
    for v in ("baseline", "double_buffer", "double_buffer_split1"):
        time_us = counted.get(v, 256, "gpu__time_duration.sum") / 1e3
        yield from under(f"idle.{v}", time_us=time_us, drain=counted.stalled(v, 256, "drain"))


def _busy(counted: Counters) -> Iterator[Fact]:
    """At 4096³, per cent; wavefronts of a 16-byte read at 2048³."""
    for v in ("baseline", "verbatim", "zigzag"):
        yield from each(f"busy.{v}", {pipe.lower(): counted.get(v, 4096, metric) for pipe, metric in PIPES.items()})
    for reason in ("long_scoreboard", "short_scoreboard"):
        yield f"stalls.zigzag.{reason}", counted.stalled("zigzag", 4096, reason)
    yield from each("wavefronts", {v: counted.wavefronts(v, 2048) for v in ("baseline", "zigzag")})


def _traffic(counted: Counters, fig3: pd.DataFrame) -> Iterator[Fact]:
    """L1 traffic, MB: as stated, of `verbatim`, and of the baseline if it stored C as the report does."""
    stated = fig3[(fig3["variant"] == "baseline") & (fig3["metric"] == TRAFFIC)]
    theirs = stated.drop_duplicates("size").set_index("size")["low"]
    for size in (256, 2048):
        ours, to_the_letter = (counted.get(v, size, TRAFFIC) / 1e6 for v in ("baseline", "verbatim"))
        narrow = ours + 12e-6 * size**2
        yield from under(f"traffic.at_{size}", stated=theirs[size], narrow=narrow, verbatim=to_the_letter)
    base = counted.get("baseline", 2048, TRAFFIC)
    for v in ("prefetch", "prefetch_kept"):
        yield f"traffic.{v}", counted.get(v, 2048, TRAFFIC) / base


# ---------------------------------------------------------------- the reversal and beyond the report


def reversal(scaling: pd.DataFrame, fma: float) -> Iterator[Fact]:
    """fma: the FMA ceiling, TFLOP/s."""
    rows = of_size(scaling, 4096)
    rows = rows[rows["variant"] == LETTER[0]]
    if rows.empty:
        return
    row, rate = rows.iloc[0], by_variant(scaling, LETTER[0], "tflops")
    largest = rate[rate.index.max()]
    yield from under("fma_share", at_4096=rate[4096] / fma, largest=largest / fma)
    yield "kept_of_best", min(rate[4096], largest) / rate.max()
    yield "from_dram_ms", row["requested_bytes"] / (CARD_GBPS * 1e9) * 1e3
    low, high = (row["useful_flops"] / tflops / 1e9 for tflops in FALLEN)
    yield from under("fallen_ms", low=low, high=high)


def right_gather(scaling: pd.DataFrame, element: pd.DataFrame) -> Iterator[Fact]:
    """`element_wise` over the baseline on a vector-wise matrix, at the largest size, by its own matrix; over cuBLAS."""
    times = {on: by_variant(df, "element_wise") for on, df in (("vectors", scaling), ("elements", element))}
    baseline = by_variant(scaling, "baseline")
    largest = baseline.index.max()
    yield from each("element_wise", {on: time[largest] / baseline[largest] for on, time in times.items()})
    speed = ratios(element, "element_wise", "cublas")
    yield from by_size("element_wise.over_cublas", speed)
    yield "element_wise.ahead_at", ", ".join(f"{size}³" for size in speed.index[speed > 1]) or "no size"


def on_cpu(sequential: pd.DataFrame | None, machine: Mapping[str, Any]) -> Iterator[Fact]:
    """How many times as fast the published kernel is as the host at the largest size."""
    if machine.get("cpu"):
        yield from under("host", cpu=machine["cpu"], cores=machine["cpu_cores"])
    if sequential is not None and LETTER[0] in set(sequential["variant"]):
        for host in ("cpu_loop", "cpu_blas"):
            yield f"over_{host}", ratios(sequential, LETTER[0], host).iloc[-1]


def accuracy(scaling: pd.DataFrame) -> Iterator[Fact]:
    yield "error.most", scaling["max_err"].max()


def repeats(scaling: pd.DataFrame, second: pd.DataFrame | None) -> Iterator[Fact]:
    """How far a second run is from the first, and two names of one program within a run."""
    if second is not None:
        off = again.apart(scaling, second)
        yield from under("again", count=len(off), median=off.median(), most=off.max())
    yield "twins.most", (ratios(scaling, "prefetch", "baseline") - 1).abs().max()
