"""Sentences on the format, the published kernel and its side studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from artifact.drawing.cells import NO_COUNTERS
from artifact.drawing.words import change, cube, listed
from artifact.measure.records import geomean
from artifact.rooms.tensor_core_24 import experiments, variants
from artifact.rooms.tensor_core_24.experiments import SHARED, TENSOR, Ceilings, Counters, by_size
from artifact.rooms.tensor_core_24.sass import Published
from kernels.formats import two_four

#: The post's RTX 4070: SMs, and Hz of boost clock (its data sheet).
POST_SMS, POST_CLOCK = 46, 2.475e9

# ---------------------------------------------------------------- the format


def compressed(a: two_four.TwoFour) -> str:
    """What a matrix takes compressed, and what the format does with groups that are not 2:4."""
    dense_bytes = 2 * a.m * a.k
    return (
        f"This matrix takes {dense_bytes:,} bytes dense and {a.nbytes:,} compressed, {a.nbytes / dense_bytes:.1%}: half for the "
        "values, a sixteenth for the metadata. A group with fewer than two non-zeros stores zeros; one with three or four is "
        "refused, with its row and group, unless pruning was asked for, which keeps the two largest magnitudes."
    )


def pruned(made: pd.DataFrame | None) -> str:
    """How long pruning and compressing take; made: the record of `prepare.measure`, or None."""
    if made is None:
        return "How long pruning and compressing take on this GPU was not recorded."
    taken = (f"{row.median_us:,.0f} µs at {row.m} × {row.k} ({row.gbps:,.0f} GB/s)" for row in made.itertuples())
    return (
        f"Pruning and compressing a dense matrix takes this GPU {listed(taken)}. The bytes are those that must be read and "
        "written; values and metadata were compared with NumPy's first, bit by bit."
    )


def code(made: Published) -> str:
    first, second = made.selectors["0x0"], made.selectors["0x1"]
    return (
        f"The post counts 64 `mma.sp` a warp and step; on Hopper the loop has {made.multiplications}, {first} with selector 0 and {second} with "
        f"selector 1. {'All' if made.past_l1 else 'Not all'} copies are `LDGSTS.BYPASS`, the machine's name for `.cg`. From the "
        "loop, in order, only the tensor cores' instructions, loads from shared memory and copies:"
    )


# ---------------------------------------------------------------- its share of the library


@dataclass(frozen=True)
class Share:
    """The published kernel's throughput over cuSPARSELt's best, by size."""

    measured: pd.Series
    claimed: dict[int, float]

    @property
    def there(self) -> list[int]:
        """Sizes of the source that were measured."""
        return [size for size in self.claimed if size in self.measured.index]

    @property
    def carries_over(self) -> bool:
        return all(self.measured[size] > self.claimed[size] - 0.03 for size in self.there)


def share(square: pd.DataFrame, benchmarks: pd.DataFrame) -> Share:
    """benchmarks: what the source states."""
    rows = benchmarks[(benchmarks["quantity"] == "speedup_cusparselt") & benchmarks["size"].notna()]
    claimed = dict(zip(rows["size"].astype(int), rows["low"], strict=True))
    return Share(1 / experiments.over(square, "cusparselt", "mma_sp"), claimed)


def over_the_library(square: pd.DataFrame, share: Share) -> str:
    ours, library = by_size(square, "mma_sp"), by_size(square, "cusparselt")
    at, lows = share.measured, share.claimed
    points = "; ".join(
        f"at {cube(s)} {at[s]:.0%} ({ours[s]:.0f} of {library[s]:.0f} TFLOP/s; the post: {lows[s]:.0%})"
        for s in share.there
    )
    return f"The published kernel over cuSPARSELt's best: {points}. " + (
        "The claim carries over to this GPU."
        if share.carries_over
        else f"The claim does not carry over: over all sizes it is {at.min():.0%} to {at.max():.0%}."
    )


def instruction(square: pd.DataFrame, ceilings: Ceilings) -> str:
    """The first reason; nothing where the GPU has no second sparse instruction."""
    if not ceilings.two_instructions:
        return ""
    top, dense = ceilings.peak["mma_sp"], ceilings.peak["wgmma"]
    ours, library, cublas = (by_size(square, v) for v in ("mma_sp", "cusparselt", "cublaslt"))
    beyond = ", which no kernel with `mma.sp` can: it must use the other one"
    change_by = f"{'gains' if top > dense else 'loses'} {abs(top / dense - 1):.0%}"
    return f"""
**The instruction is the first reason.** A loop of nothing but `mma.sp` sustains {top:.0f} TFLOP/s on this GPU; a loop of `wgmma.sp`, which Hopper adds, {ceilings.peak[ceilings.best_sparse]:.0f}.
The library reaches {library.max():.0f} at {cube(library.idxmax())}{beyond if library.max() > top else ""}. A perfect kernel of the published
kind would be at {top / library[4096]:.0%} of cuSPARSELt at 4096³. Dense `wgmma` alone sustains {dense:.0f}: sparsity by `mma.sp`
{change_by} over not being sparse at all, and the kernel, at {ours[4096]:.0f},
{"is behind" if ours[4096] < cublas[4096] else "is ahead of"} dense cuBLASLt, {cublas[4096]:.0f}. The RTX 4070 has no second instruction; there `mma.sp` is all there is, for the library too.
"""


# ---------------------------------------------------------------- shared memory


@dataclass(frozen=True)
class Clocks:
    """What a step of the published kernel takes: of shared memory, and of the tensor cores there and here."""

    shared: float
    there: float
    here: float

    @property
    def level(self) -> bool:
        """Whether shared memory needs about as long for a step as the tensor cores."""
        return abs(self.shared / self.here - 1) < 0.25


def clocks(ceilings: Ceilings, sms: int, benchmarks: pd.DataFrame) -> Clocks | None:
    """sms: of this GPU. None where its `mma.sp` was not measured."""
    if "mma_sp" not in ceilings.peak:
        return None
    step = variants.step()
    there = _post_peak(benchmarks) * 1e12 / POST_SMS / POST_CLOCK
    here = ceilings.peak["mma_sp"] * 1e12 / sms / (ceilings.sm_mhz["mma_sp"] * 1e6)
    return Clocks(step.clocks, step.flop / there, step.flop / here)


def _post_peak(benchmarks: pd.DataFrame) -> float:
    rows = benchmarks[(benchmarks["quantity"] == "peak") & (benchmarks["variant"] == "mma_sp")]
    return rows["low"].iloc[0]


def shared_memory(
    square: pd.DataFrame,
    ceilings: Ceilings,
    clocks: Clocks | None,
    share: Share,
    benchmarks: pd.DataFrame,
    counters: Counters,
) -> str:
    """The second reason; nothing where the GPU's `mma.sp` was not measured."""
    if clocks is None:
        return ""
    step, ours, top = variants.step(), by_size(square, "mma_sp"), ceilings.peak["mma_sp"]
    rows = benchmarks[(benchmarks["quantity"] == "tflops") & (benchmarks["variant"] == "mma_sp")]
    posted = rows.set_index("size")["low"] / _post_peak(benchmarks)
    if clocks.level:
        verdict = "both take nearly the same time, and whatever does not overlap is lost"
    elif clocks.shared > clocks.here:
        verdict = "they do not"
    else:
        verdict = "they still should, but with less to spare"
    counted = NO_COUNTERS
    if counters.has("mma_sp", size=4096, metrics=(TENSOR, SHARED)):
        pipe, cores = (counters.get("mma_sp", 4096, metric) for metric in (SHARED, TENSOR))
        counted = (
            f"Nsight Compute counts, at 4096³: the pipe of shared memory busy {pipe:.0f}% of the time, that of the tensor "
            f"cores {cores:.0f}%."
        )
    return f"""
**Shared memory is the second.** Of what its instruction sustains, the kernel reaches {listed(f"{ours[s] / top:.0%} at {cube(s)}" for s in share.there)}; the post {listed(f"{posted[s]:.0%}" for s in share.there)}.
In a step, a block's warps read {step.read / 1024:.0f} KiB from shared memory and `cp.async` writes {step.written / 1024:.0f} KiB, which at 128 bytes a clock takes {clocks.shared:.0f} clocks. The multiplications of the step
take {clocks.there:,.0f} clocks of an RTX 4070's SM and {clocks.here:.0f} of this one's, at the {ceilings.sm_mhz["mma_sp"]:.0f} MHz that NVML sampled during the loop. There the loads hide behind the tensor cores; here
{verdict}.
{counted}"""


# ---------------------------------------------------------------- side studies


def mean_of(studies: pd.DataFrame) -> dict[str, float]:
    """Study -> its speedup over the published kernel, geometric mean of the sizes."""
    known = [v for v in variants.STUDIES if (studies["variant"] == v).any()]
    return {v: geomean(experiments.over(studies, v, "mma_sp")) for v in known}


def side_studies(studies: pd.DataFrame, machine: variants.Machine, counters: Counters, shapes: list[dict]) -> str:
    """A list of what each choice of the post is worth; shapes: of the sweep."""
    mean = mean_of(studies)
    points = [
        _cached(mean, machine, shapes, counters),
        _undone("mma_sp_all_threads", "Metadata by all threads, 8 bytes each", mean, machine, shapes),
        _two_warps(mean, machine, shapes),
        _one_selector(mean, machine, shapes),
        _x2(mean, machine, shapes),
        *(_stages(count, mean, machine, shapes) for count in (2, 4, 5)),
    ]
    registers, shared = variants.blocks_by_registers(machine), variants.blocks_by_shared(machine)
    waits = ": while one block waits, another can work." if min(shared, registers) > 1 else "."
    sizes = [cube(s) for s in by_size(studies, "mma_sp").index]
    return (
        f"{'Geometric means over' if len(sizes) > 1 else 'At'} {listed(sizes)}:\n\n"
        + "\n".join(points)
        + "\n\nOn the post's GPU three stages leave room for one block an SM. Here shared memory would hold "
        f"{shared}, and registers allow {registers}{waits}"
    )


def _undone(variant: str, text: str, mean: Mapping[str, float], machine: variants.Machine, shapes) -> str:
    """One choice of the post, undone: what it costs and what was predicted, or why it is not there."""
    if variant not in mean:
        fits = variants.takes_all(machine, variant, shapes)
        why = "was not recorded" if fits else "does not fit into the shared memory of this GPU"
        return f"- **{text}**: {why}."
    predicted = variants.prediction(variant)
    return f"- **{text}**: {mean[variant]:.2f}×, {change(mean[variant])}. *Predicted: {predicted}*"


def _cached(mean, machine, shapes, counters: Counters) -> str:
    text = _undone("mma_sp_ca", "`.ca` for all copies", mean, machine, shapes)
    past, through = _conflicts(counters, "mma_sp"), _conflicts(counters, "mma_sp_ca")
    if np.isnan(past + through):
        return text
    return (
        f"{text} The post says around 10% slower, by bank conflicts. Conflicts are {past:.1%} of the wavefronts of shared "
        f"memory with `.cg` and {through:.1%} with `.ca`; with `.ca` for the metadata alone "
        f"{_conflicts(counters, 'mma_sp_all_threads'):.1%}."
    )


def _conflicts(counters: Counters, variant: str) -> float:
    """Share of conflicts in the wavefronts of shared memory, at the first size that was profiled."""
    metrics = experiments.CONFLICTS, experiments.WAVES
    for size in (4096, 8192, 2048):
        if counters.has(variant, size=size, metrics=metrics):
            return counters.get(variant, size, metrics[0]) / counters.get(variant, size, metrics[1])
    return np.nan


def _two_warps(mean, machine, shapes) -> str:
    variant = "mma_sp_two_warps"
    text = _undone(variant, "Metadata by the first two warps, 16 bytes a thread", mean, machine, shapes)
    if variant not in mean:
        return text
    came = "So it is here." if mean[variant] < 0.98 else "Copies are predicated, so no warp diverges either way."
    return f"{text} The post tried this briefly, against divergence, and found it slower. {came}"


def _one_selector(mean, machine, shapes) -> str:
    variant = "mma_sp_one_selector"
    text = _undone(variant, "One selector, no `ldmatrix` for metadata", mean, machine, shapes)
    if variant not in mean:
        return text
    if mean[variant] < 0.98:
        return f"{text} The swizzle that the post is about is worth this much here."
    return f"{text} On this GPU the swizzle that the post is about is not what the kernel waits for."


def _x2(mean, machine, shapes) -> str:
    text = _undone("mma_sp_x2", "`ldmatrix.x2`, half a step ahead", mean, machine, shapes)
    ratio = mean.get("mma_sp_x2")
    if ratio is None:
        return text
    if ratio > 1.02:
        came = "It is faster."
    elif ratio > 0.98:
        came = "In this kernel there is nothing to gain: metadata is a sixteenth of what is read."
    else:
        came = "In this kernel it costs."
    return f"{text} The post found it in the library's fastest kernels and wondered. {came}"


def _stages(count: int, mean, machine, shapes) -> str:
    variant = f"mma_sp_stages_{count}"
    text = _undone(variant, f"{count} stages", mean, machine, shapes)
    if variant not in mean:
        return text
    blocks = min(variants.blocks_by_registers(machine), variants.blocks_by_shared(machine, variant))
    return f"{text} {blocks} block{'s' * (blocks > 1)} an SM."
