"""The paper's analysis with this GPU's measured ceilings: Eq. 3 to 6, and how long the parts of a step take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

import numpy as np
import pandas as pd

from artifact.rooms.nm_spmm.study import BIG, GROUP, RUNGS, SPARSITIES, VECTOR, Spmm, sparsity
from kernels import tuning
from kernels.formats import nm
from kernels.nm_spmm import analysis, family, packing, published
from kernels.nm_spmm import schedule as stream_k

BLOCK = analysis.TABLE_1["large"]
VECTORS = BLOCK.columns // VECTOR
KINDS = {
    "staged whole": lambda d: analysis.intensity(BLOCK.rows, BLOCK.columns, d),
    f"packed, {VECTORS} vectors": lambda d: analysis.intensity(
        BLOCK.rows, BLOCK.columns, d, share=analysis.needed_share(d, VECTORS)
    ),
    "whole product": lambda d: analysis.intensity(BIG, BIG, d, depth=BIG),
}


def kept(density: float) -> int:
    """Return N of N:M."""
    return round(density * GROUP)


def random_patterns(k: int, n: int, seed: int) -> dict[float, nm.Nm]:
    """Return density -> a random pattern of the paper's sparsity at it."""
    return {d: nm.random(k=k, n=n, keep=kept(d), group=GROUP, vector=VECTOR, seed=seed) for d in SPARSITIES}


def asked(b: nm.Nm) -> np.ndarray:
    """Tell which row of A each vector of B needs: bool (k, q). b: of whole windows."""
    found = np.zeros((b.k, b.q), bool)
    np.put_along_axis(found, np.asarray(b.index), True, axis=0)
    return found


def needed(b: nm.Nm, vectors: int) -> float:
    """Return the share of A's rows that a block of so many vectors needs of a step, over all blocks and steps."""
    return asked(b)[:, : b.q // vectors * vectors].reshape(b.k, -1, vectors).any(axis=2).mean()


def col_info_shares(patterns: Mapping[float, nm.Nm]) -> pd.Series:
    """Return bytes of `col_info` over those of B's values, for blocks of 128 columns, at sparsities that are packed."""
    high = {d: b for d, b in patterns.items() if 1 - d > analysis.HIGH}
    made = {d: packing.prepare(b, columns=128, windows=1, packed=True, slot=VECTOR) for d, b in high.items()}
    return pd.Series({d: packed.col_info_bytes / packed.val.nbytes for d, packed in made.items()})


def devices(here: analysis.Device) -> list[analysis.Device]:
    """List those of Table III, and this one."""
    return [*analysis.TABLE_3.values(), here]


def intensities(here: analysis.Device) -> pd.DataFrame:
    """Return Eq. 3 of the large block and of the whole product: gpu, kind, sparsity, intensity, ridge (FLOP/B)."""
    rows = [
        (device.name, kind, 1 - d, value(d), device.ridge)
        for device in devices(here)
        for kind, value in KINDS.items()
        for d in np.linspace(1, 0.005, 200)
    ]
    return pd.DataFrame(rows, columns=["gpu", "kind", "sparsity", "intensity", "ridge"])


def at_l2(study: Spmm) -> analysis.Device:
    """Return this GPU with L2 for a memory."""
    return replace(study.here, bandwidth_gbs=study.gbps["L2"])


def published_tile(study: Spmm, density: float) -> analysis.Tile:
    """Return V3's configuration at 4096³."""
    return published.configured("v3", analysis.class_of(study.here, BIG, BIG), kept(density), GROUP)


def staged(tile: analysis.Tile, density: float) -> float:
    """Return the share of A's rows that a block stages."""
    return analysis.needed_share(density, tile.columns // VECTOR) if tile.packed else 1.0


def step_of(tile: analysis.Tile, density: float) -> str:
    """Say what a step of a published kernel is, as the title of its picture."""
    how = "packed" if tile.packed else "staged whole"
    return f"{sparsity(density)} sparsity, {how}, k_s = {tile.windows * GROUP}"


def durations(study: Spmm, density: float) -> dict[str, float]:
    """Return how long the parts of a step of V3 take in a block that has an SM to itself, ns: each at its ceiling."""
    tile, word, sms = published_tile(study, density), analysis.WORD, study.here.sm_count
    depth, share = tile.windows * GROUP, staged(tile, density)
    rows, l2, shared = round(depth * density), study.gbps["L2"] / sms, study.gbps["shared memory"] / sms  # bytes per ns
    return {
        "load": word * (tile.rows * depth * share + tile.columns * rows) / l2,
        "fragments": word * (rows * tile.threads // 32 * sum(tile.warp)) / shared,
        "index": word * rows * (tile.columns // VECTOR) / shared,
        "compute": 2 * tile.rows * tile.columns * rows / (study.fma * 1e3 / sms),
    } | ({"col_info": word * depth * share / l2} if tile.packed else {})


def schedule(rung: str) -> tuple[tuple[int, int], int]:
    """Return a product of 4096³ with a rung's tiles: how many down and across, and steps of each."""
    one = RUNGS[rung][0]
    return (ceil(BIG / one.bm), ceil(BIG / one.bn)), ceil(BIG / one.depth)


def last_steps(rung: str, blocks: int) -> dict[str, int]:
    """Return how many steps a product of 4096³ takes with a rung's tiles, in waves and as stream-K deals them out."""
    tiles, steps = schedule(rung)
    dealt = stream_k.parts(*tiles, steps, blocks)
    evened = max(int(end) for parts in dealt for _, _, end, _ in parts)
    return {"waves": ceil(np.prod(tiles) / blocks) * steps, "stream-K": evened}


def by_eq3(study: Spmm) -> dict[tuple[str, float], float]:
    """Return (variant, density) -> FLOP per byte by Eq. 3 at 4096³, of V3, nmSPARSE, and `auto` by shipped choices."""
    path, found = family.CHOICES.shipped / f"{study.run.gpu}.csv", {}
    choices = tuning.read(family.CHOICES, path) if path.is_file() else {}
    for d in SPARSITIES:
        tile = published_tile(study, d)
        found["v3", d] = analysis.intensity(tile.rows, tile.columns, d, share=staged(tile, d))
        # Tiles of 32 × 32, and no row that is not multiplied.
        found["nmsparse_vw32", d] = analysis.intensity(32, 32, d, share=d)
        if choice := choices.get((BIG, BIG, BIG, kept(d), GROUP, VECTOR)):
            found["auto", d] = analysis.intensity(choice.config.bm, choice.config.bn, d)
    return found
