"""The format and the analysis: what is stored, what packing can leave out, where memory is the limit."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from artifact.drawing.words import listed
from artifact.rooms.nm_spmm.model import Shifts
from artifact.rooms.nm_spmm.trial import BIG, GROUP, VECTOR, Trial, text
from artifact.rooms.nm_spmm.words import at_each, from_sparsity, sparsity
from kernels.contract import Problem
from kernels.nm_spmm import analysis, published


def stored(example: Problem) -> str:
    """What a problem of 75% sparsity stores. example: of vectors of 32."""
    entries = round(example.density * example.k) * (example.n // VECTOR)
    return (
        f"At {BIG}³ and {sparsity(example.density)} sparsity, {example.nnz:,} values of {BIG * BIG:,} are stored, "
        f"beside {entries:,} indices: one for {example.nnz / entries:.0f} values. Sizes that M, N or L do not divide "
        "are padded when B is prepared, never when it is multiplied."
    )


def packable(footprint: pd.DataFrame) -> str:
    """What packing can leave out for a block of four vectors. footprint: the data behind that figure."""
    share = footprint[footprint["vectors"] == 4].set_index("case")["per_cent"]
    left = listed(f"{100 - v:.0f}% of A at {case.split()[0]}" for case, v in share.items())
    return (
        f"For a block of four vectors packing can leave out {left}. That is for random patterns. A pruner that makes "
        "neighbouring vectors alike would leave more; one vector alone needs N of M."
    )


def col_info(added: pd.Series, stated: Mapping[str, pd.DataFrame]) -> str:
    """added: share of the bytes of B's values by density."""
    said = text(stated, "col_info_memory")
    return (
        f"`col_info` and its counts take {at_each(added, '{:.1%}')} of the bytes of B's values, for blocks of 128 "
        f"columns; the paper says {said['low']:.0%} to {said['high']:.0%}."
    )


def compiled(report: pd.DataFrame, target: str) -> str:
    return (
        f"Compiled here, for {target}: registers a thread, over all kernels of a variant; of the one with the most "
        "multiply-adds (`FFMA`) their number in the machine code and their share. "
        f"{str(int(report['spills'].astype(bool).sum()) or 'none').capitalize()} of {len(report)} spills."
    )


def transitions(trial: Trial, shifts: Shifts, stated: float) -> str:
    """stated: the sparsity at which the paper puts the transition."""
    each = listed(f"{from_sparsity(v)} ({name})" for name, v in shifts.block.items())
    return (
        f"Read as every step's operands coming from DRAM, memory is the limit {each}. The paper says {stated:.0%}, "
        "depending on the GPU. Blocks share what they read through L2, of course: against L2's "
        f"{trial.gbps['L2'] / 1e3:.1f} TB/s, measured, the same block is on this GPU memory-bound {from_sparsity(shifts.from_l2)}, "
        "and the whole product, each operand read from DRAM once, "
        f"{from_sparsity(shifts.whole)}. Between these lies what happens, and the counters further down say where."
    )


def classes(here: analysis.Device, proposed: pd.DataFrame) -> str:
    """Whether the classes of Table II are those that our rule gives on this GPU. proposed: the table."""
    moved = proposed.loc[proposed["class in Table II"] != proposed["class here"], ""]
    return (
        f"What the analysis proposes for this GPU, {here.sm_count} SMs with {here.shared_bytes // 1024} KiB of shared "
        f"memory each. The paper gives no rule for the class; ours asks for {analysis.BLOCKS_PER_SM:g} blocks an SM, "
        "which puts every size of Table II where the paper has it on its own GPUs, and here "
        + (f"all but {listed(moved)}." if len(moved) else "too.")
    )


def deepest_step(here: analysis.Device) -> str:
    """What Eq. 5 allows at 50% sparsity, and why nobody takes it."""
    one = analysis.propose(here, BIG, BIG, BIG, GROUP // 2, GROUP)
    size = analysis.shared_bytes(one.rows, one.columns, one.windows, GROUP // 2, GROUP)
    return (
        f"One warning comes from Eq. 5 itself: at {BIG}³ and {sparsity(0.5)} it allows k_s = {one.windows * GROUP}, "
        f"{size / 1024:.0f} KiB for a single block of {one.threads} threads. A block that takes half of an SM leaves "
        f"{one.threads * 2 // 32} warps on it, double-buffered {one.threads // 32}. Like the authors' code, ours takes "
        f"steps of {published.DEPTH[False]} rows of A, {published.DEPTH[True]} where it packs, and more blocks."
    )


def step_of(tile: analysis.Tile, density: float) -> str:
    """What a step of a published kernel is, as the title of its picture."""
    staged = "packed" if tile.packed else "staged whole"
    return f"{sparsity(density)} sparsity, {staged}, k_s = {tile.windows * GROUP}"


def pipelines(steps: Mapping[float, Mapping[str, float]]) -> str:
    """steps: density -> durations of the parts of a step, the sparsest last."""
    loads = pd.Series({d: s["load"] / s["compute"] for d, s in steps.items()})
    feed = pd.Series({d: s["fragments"] / s["compute"] for d, s in steps.items()})
    return (
        f"A step's loads from L2 take {at_each(loads, '{:.0%}')} of its arithmetic, its reads of shared memory "
        f"{at_each(feed, '{:.0%}')}. "
        + (
            "The paper's picture of high sparsity, loads that hide arithmetic, is that of this GPU too."
            if loads.iloc[-1] > 1
            else "On this GPU arithmetic is the longer part even at high sparsity, as long as A comes from L2: loads "
            "are to be hidden at both ends."
        )
    )
