"""The paper's analysis with this GPU's measured ceilings: Eq. 3 to 6, and how long the parts of a step take."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy as np
import pandas as pd

from artifact.rooms.nm_spmm.contenders import NMSPARSE, RUNGS, chosen_tile
from artifact.rooms.nm_spmm.trial import BIG, GROUP, SPARSITIES, VECTOR, Trial
from artifact.rooms.nm_spmm.words import sparsity
from kernels.formats import nm
from kernels.nm_spmm import analysis, packing, published
from kernels.nm_spmm import schedule as stream_k

BLOCK = analysis.TABLE_1["large"]
KINDS = {
    "staged whole": lambda d: analysis.intensity(BLOCK.rows, BLOCK.columns, d),
    f"packed, {BLOCK.columns // VECTOR} vectors": lambda d: analysis.intensity(
        BLOCK.rows, BLOCK.columns, d, share=analysis.needed_share(d, BLOCK.columns // VECTOR)
    ),
    "whole product": lambda d: analysis.intensity(BIG, BIG, d, depth=BIG),
}


@dataclass(frozen=True)
class Shifts:
    """The sparsity from which on memory is the limit: 0 always, 1 never."""

    block: dict[str, float]  #: GPU -> of the large block, its operands from DRAM
    whole: float  #: of the whole product on this GPU, each operand read from DRAM once
    from_l2: float  #: of the large block on this GPU, its operands from L2


def random_patterns(k: int, n: int, seed: int) -> dict[float, nm.Nm]:
    """Density -> a random pattern of the paper's sparsity at it."""
    return {d: nm.random(k=k, n=n, keep=round(d * GROUP), group=GROUP, vector=VECTOR, seed=seed) for d in SPARSITIES}


def needed(b: nm.Nm, vectors: int) -> float:
    """The share of A's rows that a block of so many vectors needs of a step, over all blocks and steps."""
    index, windows = np.asarray(b.index), b.k // b.group
    local = index[: windows * b.keep].reshape(windows, b.keep, b.q) % b.group
    asked = np.zeros((windows, b.group, b.q), bool)
    np.put_along_axis(asked, local, True, axis=1)
    whole = b.q // vectors * vectors
    return asked[:, :, :whole].reshape(windows, b.group, -1, vectors).any(axis=3).mean()


def prepared(b: nm.Nm, columns: int, windows: int, slot: int, tiled: bool = False) -> packing.Packed:
    """B packed for blocks of `columns` columns and steps of `windows` windows."""
    return packing.prepare(b, columns=columns, windows=windows, packed=True, slot=slot, tiled=tiled)


def col_info_shares(patterns: dict[float, nm.Nm]) -> pd.Series:
    """Bytes of `col_info` over those of B's values, for blocks of 128 columns, at the sparsities that are packed."""
    added = {}
    for density, b in patterns.items():
        if 1 - density > analysis.HIGH:
            made = prepared(b, columns=128, windows=1, slot=VECTOR)
            added[density] = made.col_info_bytes / made.val.nbytes
    return pd.Series(added)


def devices(here: analysis.Device) -> list[analysis.Device]:
    """Those of Table III, and this one."""
    return [*analysis.TABLE_3.values(), here]


def intensities(here: analysis.Device) -> pd.DataFrame:
    """Eq. 3 of the large block and of the whole product: gpu, kind, sparsity, intensity, ridge (FLOP/B)."""
    return pd.DataFrame(
        [
            (device.name, kind, 1 - d, value(d), device.ridge)
            for device in devices(here)
            for kind, value in KINDS.items()
            for d in np.linspace(1, 0.005, 200)
        ],
        columns=["gpu", "kind", "sparsity", "intensity", "ridge"],
    )


def at_l2(trial: Trial) -> analysis.Device:
    """This GPU with L2 for a memory."""
    return replace(trial.here, bandwidth_gbs=trial.gbps["L2"])


def shifts(trial: Trial) -> Shifts:
    block = (BLOCK.rows, BLOCK.columns)
    return Shifts(
        {device.name: analysis.transition(device, *block) for device in devices(trial.here)},
        analysis.transition(trial.here, BIG, BIG, depth=BIG),
        analysis.transition(at_l2(trial), *block),
    )


def published_tile(trial: Trial, density: float, variant: str = "v3") -> analysis.Tile:
    """The configuration of a published kernel at 4096³."""
    name = analysis.class_of(trial.here, BIG, BIG)
    return published.configured(variant, name, round(density * GROUP), GROUP)


def staged(tile: analysis.Tile, density: float) -> float:
    """The share of A's rows that a block stages."""
    return analysis.needed_share(density, tile.columns // VECTOR) if tile.packed else 1.0


def step_of(tile: analysis.Tile, density: float) -> str:
    """What a step of a published kernel is, as the title of its picture."""
    how = "packed" if tile.packed else "staged whole"
    return f"{sparsity(density)} sparsity, {how}, k_s = {tile.windows * GROUP}"


def durations(trial: Trial, tile: analysis.Tile, density: float) -> dict[str, float]:
    """Of one step of a block that has an SM to itself, ns: each part at its measured ceiling."""
    sms, word = trial.here.sm_count, analysis.WORD
    depth = tile.windows * GROUP
    rows, count, share = round(depth * density), tile.columns // VECTOR, staged(tile, density)
    l2, shared = (trial.gbps[what] / sms for what in ("L2", "shared memory"))  # bytes per ns
    fragments = rows * tile.threads // 32 * sum(tile.warp)
    return {
        "load": word * (tile.rows * depth * share + tile.columns * rows) / l2,
        "fragments": word * fragments / shared,
        "index": word * rows * count / shared,
        "compute": 2 * tile.rows * tile.columns * rows / (trial.fma * 1e3 / sms),
    } | ({"col_info": word * depth * share / l2} if tile.packed else {})


def schedule(rung: str) -> tuple[tuple[int, int], int]:
    """A product of 4096³ with a rung's tiles: how many down and across, and steps of each."""
    one = RUNGS[rung][0]
    down, across, steps = (ceil(BIG / side) for side in (one.bm, one.bn, one.depth))
    return (down, across), steps


def last_steps(rung: str, blocks: int) -> dict[str, int]:
    """How many steps a product of 4096³ with a rung's tiles takes, in waves and as stream-K deals them out."""
    (down, across), steps = schedule(rung)
    dealt = stream_k.parts(down, across, steps, blocks)
    return {
        "waves": ceil(down * across / blocks) * steps,
        "stream-K": max(int(end) for parts in dealt for _, _, end, _ in parts),
    }


def by_eq3(trial: Trial) -> dict[tuple[str, float], float]:
    """(variant, density) -> FLOP per byte by Eq. 3 at 4096³, of V3, nmSPARSE, our kernel in its style, and `auto`."""
    found = {}
    for d in SPARSITIES:
        tile = published_tile(trial, d)
        found["v3", d] = analysis.intensity(tile.rows, tile.columns, d, share=staged(tile, d))
        for gathers in NMSPARSE:  # tiles of 32 × 32, and no row that is not multiplied
            found[gathers, d] = analysis.intensity(32, 32, d, share=d)
        if tile := chosen_tile(trial.run.gpu, (BIG, BIG, BIG, round(d * GROUP), GROUP, VECTOR)):
            found["auto", d] = analysis.intensity(*tile, d)
    return found
