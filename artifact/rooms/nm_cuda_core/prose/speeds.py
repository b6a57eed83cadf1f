"""The report's figures and what goes beyond them: handles, variants, the reversal, patterns, CPUs, errors, repeats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from artifact.measure import again, records
from artifact.rooms.nm_cuda_core.machine_code import registers
from artifact.rooms.nm_cuda_core.trial import (
    LETTER,
    PATTERN_SIZE,
    PUBLISHED,
    VARIANTS,
    Trial,
    as_published,
    at,
    of,
    ratios,
)

#: GB/s of the report's card, by its section 4.1, and the TFLOP/s that its section 5.1 states from 4096³ on.
CARD_GBPS, FALLEN = 504, (2.9, 2.1)
NO_COMPILER = "There is no C compiler here, so the sequential CPU was not measured, nor what is compared with it."


def cubes(sizes) -> str:
    return ", ".join(f"{s}³" for s in sizes)


def _sizes(some: list, every) -> str:
    return "every size" if len(some) == len(every) else cubes(some)


def with_handle(published: pd.DataFrame, sequential: pd.DataFrame | None) -> list[float]:
    """The published kernel's speedup at 512³ over a cuBLAS call that makes a handle, in each record that has both."""
    named = as_published(published, "baseline")
    frames = [df for df in (published, sequential) if df is not None and named in set(df["variant"])]
    return sorted(ratios(df, named, "cublas_handle")[512] for df in frames)


def over_cublas(scaling: pd.DataFrame, handles: list[float]) -> str:
    """handles: `with_handle`."""
    named = as_published(scaling, "baseline")
    alone = ratios(scaling, named, "cublas")
    behind = alone.index[alone < 1].tolist()
    return (
        f"The speedup of `{named}` over cuBLAS, by what is counted as cuBLAS. With a handle in every call it is "
        f"{' and '.join(f'{h:.1f}×' for h in handles)} at 512³ in "
        f"{'two records' if len(handles) > 1 else 'the record'} of this machine (the report: 16×): what a handle costs "
        f"does not repeat well. Over the kernel alone it is {at(alone, 512)}, and that does; "
        + (f"it is behind at {_sizes(behind, alone)}." if behind else "it is ahead at every size.")
        + _ours_over_cublas(scaling, named)
    )


def _ours_over_cublas(scaling: pd.DataFrame, named: str) -> str:
    """`baseline` where it is not what stands for the report; nothing else."""
    if named == "baseline":
        return ""
    ours = ratios(scaling, "baseline", "cublas")
    ahead = ours.index[ours > 1].tolist()
    where = f"at {_sizes(ahead, ours) or 'no size'}"
    return (
        f" Ours of the same idea, `baseline`, with the loads of a step in order and wide stores, is ahead of it {where}: "
        f"{ours.min():.2f} to {ours.max():.2f}×."
    )


def parted(series: pd.Series, least: int = 1024) -> tuple[float, float]:
    """Geometric means below a size and from it on; of all sizes where there is none on a side."""
    small, big = series[series.index < least], series[series.index >= least]
    return tuple(records.geomean(part if len(part) else series) for part in (small, big))


def variants(scaling: pd.DataFrame, report: pd.DataFrame) -> str:
    """What came of each idea, over the baseline. report: of the compilation, for the registers."""
    known = set(scaling["variant"])
    over = {v: ratios(scaling, v, "baseline") for v in VARIANTS[1:] if v in known}
    small, big = ({v: parted(r)[side] for v, r in over.items()} for side in (0, 1))
    both = {v: f"{small[v]:.2f}× below and {big[v]:.2f}× from 1024³" for v in over}
    largest = scaling["m"].max()
    lanes = parted(ratios(scaling, "zigzag", "double_buffer_split1"))[1]
    mine = scaling[scaling["variant"].isin(VARIANTS)]
    fastest = mine.loc[mine.groupby("m")["median_us"].idxmin()].set_index("m")["variant"]
    pays = "Used instead of thrown away, the same registers pay, a little"
    no = "Used instead of thrown away, the registers still do not pay"
    split1 = over["double_buffer_split1"][largest]
    return f"""
What came of each idea, over the baseline (kernels alone; the predictions stand in the figure):

- **`prefetch`**: {over["prefetch"].min():.2f} to {over["prefetch"].max():.2f}×. One program, measured twice.
- **`prefetch_kept`**: {small["prefetch_kept"]:.2f}× below 1024³ and {big["prefetch_kept"]:.2f}× from there.
  {registers(report, "prefetch_kept")} registers leave half of the baseline's warps,
  and everything is requested twice.
- **`pipelined`**: {both["pipelined"]}. {pays if big["pipelined"] > 1 else no}.
- **`double_buffer`** (split-K 2): {both["double_buffer"]}, {over["double_buffer"][largest]:.2f}× at {largest}³; without
  split-K {small["double_buffer_split1"]:.2f}×, {big["double_buffer_split1"]:.2f}× and {split1:.2f}×. Half the step
  needs {registers(report, "double_buffer")} registers instead of {registers(report, "baseline")}, so more warps share
  an SM; split-K clears C first and adds to it atomically.
- **`element_wise`**: {both["element_wise"]}.
- **`zigzag`**: {lanes:.2f}× over `double_buffer_split1` from 1024³, {ratios(scaling, "zigzag", "cublas")[largest]:.2f}×
  over cuBLAS at {largest}³. The counters below led to it.

Fastest: {", ".join(f"`{v}` at {s}³" for s, v in fastest.items())}.
"""


def letter(scaling: pd.DataFrame) -> str:
    """The report's kernels to the letter over ours of the same idea; says so where the records do not have them."""
    known = set(scaling["variant"])
    if not set(LETTER) <= known:
        return (
            "The records of this page are older than the kernels to the letter, so that `baseline`, `prefetch` and "
            "`double_buffer` stand for them."
        )
    parts = []
    for theirs, ours in zip(LETTER, PUBLISHED, strict=True):
        over = ratios(scaling, theirs, ours)
        small, big = parted(over)
        parts.append(
            f"`{theirs}` is at {small:.2f}× of `{ours}` below 1024³ and at {big:.2f}× from there ({over.min():.2f} to "
            f"{over.max():.2f}×)"
        )
    alone = ratios(scaling, "verbatim", "cublas")
    behind = alone.index[alone < 1].tolist()
    return (
        f"To the letter, kernels alone: {'; '.join(parts)}. Over cuBLAS `verbatim` is at {alone.min():.2f} to "
        f"{alone.max():.2f}×." + (f" It is behind at {_sizes(behind, alone)}." if behind else "")
    )


def reversal(scaling: pd.DataFrame, fma: float) -> str:
    """What would explain the report's fall from 4096³ on; nothing where that was not measured. fma: the FMA ceiling,
    TFLOP/s."""
    named = as_published(scaling, "baseline")
    rows = scaling[(scaling["variant"] == named) & (scaling["m"] == 4096)]
    if rows.empty:
        return ""
    row, largest = rows.iloc[0], scaling["m"].max()
    share, alone = of(scaling, named, "tflops") / fma, ratios(scaling, named, "cublas")
    level = of(scaling, named, "tflops")
    falls = level.loc[[4096, largest]].min() < 0.9 * level.max()
    kept = "Its own throughput falls, too" if falls else "Its own throughput does not fall"
    both = alone.loc[[4096, largest]]
    place = "ahead of" if (both > 1).all() else "behind" if (both < 1).all() else "about even with"
    cold = row["requested_bytes"] / (CARD_GBPS * 1e9) * 1e3
    stated = [row["useful_flops"] / rate / 1e9 for rate in FALLEN]
    return (
        f"On this GPU `{named}` is {place} the kernel of cuBLAS at these sizes ({at(alone, 4096)} at 4096³ and "
        f"{at(alone, largest)} at {largest}³). {kept}: it has {share.loc[4096]:.0%} and {share.loc[largest]:.0%} of the "
        f"FMA ceiling there. We can say what would explain the report's numbers, not that it does: if no row of A "
        f"or B were found in L2 a second time, what the kernel requests at 4096³ would take {cold:.0f} ms at the "
        f"card's {CARD_GBPS} GB/s, and the report's 2.1 to 2.9 TFLOP/s are {stated[0]:.0f} to {stated[1]:.0f} ms. Its "
        "own counters at 2048³, DRAM at 5%, do not show that yet. It is a claim to try on a card with less L2; the "
        "verdicts are those of this GPU."
    )


def of_baseline(scaling: pd.DataFrame, element: pd.DataFrame) -> float:
    """Time of the right gather on an element-wise matrix over the baseline's on a vector-wise one, at the largest
    size."""
    largest = scaling["m"].max()
    return of(element, "element_wise")[largest] / of(scaling, "baseline")[largest]


def right_gather(scaling: pd.DataFrame, element: pd.DataFrame) -> str:
    """What it costs to be right for the 2:4 of Fig. 1."""
    largest, speed = scaling["m"].max(), ratios(element, "element_wise", "cublas")
    shared = 1 / ratios(scaling, "element_wise", "baseline")[largest]
    ahead = speed.index[speed > 1].tolist()
    return (
        f"At {largest}³ it takes {shared:.2f} times the baseline's time on a vector-wise matrix, where neighbouring "
        f"lanes still find the same row of A, and {of_baseline(scaling, element):.2f} times on the element-wise one, "
        f"where they do not. That is {speed[largest]:.2f}× the speed of the dense multiplication that it is meant to "
        "halve. "
        + (f"It is ahead of cuBLAS at {cubes(ahead)}." if ahead else "It is ahead of cuBLAS nowhere.")
        + " With this tile true 2:4 is a storage format, not a speedup; tensor cores read it in hardware."
    )


def patterns() -> str:
    return (
        f"Speedup over cuBLAS on the dense matrix at {PATTERN_SIZE}³, vectors of 32 columns. *Ideal* is what skipping "
        "the zeros alone would give. Patterns of one density take one time: it is the number of compressed rows that "
        "counts, not how they are grouped."
    )


def on_cpu(sequential: pd.DataFrame, machine: Mapping[str, Any]) -> str:
    """What the host is, and what its loop and its BLAS have to do with the largest speedup."""
    named = as_published(sequential, "baseline")
    loop, blas = (ratios(sequential, named, v).iloc[-1] for v in ("cpu_loop", "cpu_blas"))
    host = machine.get("cpu")
    return (f"Host: {host}, {machine.get('cpu_cores')} cores. " if host else "") + (
        "The loop is the report's own: i, j, k, one scalar sum, B walked down its columns. Most of the "
        f"{loop:,.0f}× at the largest size is that loop; the same host with its BLAS on all cores is {blas:.0f}× "
        "behind there."
    )


def accuracy(scaling: pd.DataFrame) -> str:
    return (
        "Largest of all sizes. The report accepts 10⁻³ element by element; the largest here is "
        f"{scaling['max_err'].max():.0e}, with operands in (0, 1] as there."
    )


def repeats(scaling: pd.DataFrame, second: pd.DataFrame) -> str:
    """How far a second run is from the first, and two names of one program within a run."""
    moved = again.apart(scaling, second)
    twins = (ratios(scaling, "prefetch", "baseline") - 1).abs()
    return (
        f"Over all {len(moved)} measurements the second run differs from the first by {moved.median():.1%} at the "
        f"median and {moved.max():.1%} at most. `baseline` and `prefetch`, one program, differ by {twins.max():.1%} at "
        "most within a run."
    )


def in_short(trial: Trial, handles: list[float], removed: bool) -> str:
    """The chapter's four findings. handles: `with_handle`; removed: whether the prefetch is."""
    scaling = trial.measure("scaling")
    costs = of_baseline(scaling, trial.measure("element_wise"))
    ours, largest = ratios(scaling, "baseline", "cublas"), scaling["m"].max()
    alone = ratios(scaling, as_published(scaling, "baseline"), "cublas")
    reaches = "never reaches the machine code" if removed else "reaches the machine code with this compiler"
    return f"""
- The gather reads one index for 32 columns: right for vector-wise N:M, wrong for the 2:4 that the report draws. Doing
  it right costs {costs:.1f}× the time.
- The register prefetch {reaches}.
- The large speedups over cuBLAS at small sizes time the creation of a library handle: at 512³ {min(handles):.0f} to
  {max(handles):.0f}× with it, {at(alone, 512)} without.
- To the letter, the kernel is at {alone.min():.2f} to {alone.max():.2f}× of a cuBLAS that does twice the work. Its
  idea is sound: with the loads of a step in order and wide stores it is at {ours.min():.2f} to {ours.max():.2f}×, and with asynchronous copies and lanes in pairs it reaches
  {ratios(scaling, "zigzag", "cublas")[largest]:.2f}× at {largest}³. What limits it is how its 4 × 4 tiles are fed, not
  DRAM. The half of the multiplications that 2:4 saves would allow 2×; larger tiles a thread are the way there, and the
  subject of NM-SpMM.
"""
