"""What is known before a kernel runs.

The paper's analysis with this GPU's measured ceilings, Eq. 3 to 6, how long the parts of a step take, and what the
compiler makes of the system's kernels.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import ceil, prod

import numpy as np
import pandas as pd

from artifact.drawing import compiled as made_by_compiler
from artifact.systems.nm_spmm.study import BIG, GROUP, RUNGS, SPARSITIES, VECTOR, Spmm, sparsity
from kernels import autotune, jit
from kernels import nm_spmm as system
from kernels.contract import Problem
from kernels.formats import nm
from kernels.nm_spmm import analysis, banks, family, packing, published
from kernels.nm_spmm import schedule as stream_k

BLOCK = analysis.TABLE_1["large"]


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


def col_info_shares(patterns: Mapping[float, nm.Nm]) -> dict[float, float]:
    """Return bytes of `col_info` over those of B's values, for blocks of 128 columns, at sparsities that are packed."""
    high = {d: b for d, b in patterns.items() if 1 - d > analysis.HIGH}
    made = {d: packing.convert(b, columns=128, windows=1, packed=True, slot=VECTOR) for d, b in high.items()}
    return {d: packed.col_info_bytes / packed.val.nbytes for d, packed in made.items()}


def devices(here: analysis.Device) -> list[analysis.Device]:
    """List those of Table III, and this one."""
    return [*analysis.TABLE_3.values(), here]


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
    evened = max(int(end) for parts in stream_k.parts(*tiles, steps, blocks) for _, _, end, _ in parts)
    return {"waves": ceil(prod(tiles) / blocks) * steps, "stream-K": evened}


def by_eq3(study: Spmm) -> dict[tuple[str, float], float]:
    """Return (variant, density) -> FLOP per byte by Eq. 3 at 4096³, of V3, nmSPARSE, and `auto` by shipped choices."""
    path, found = family.CHOICES.shipped / f"{study.run.gpu}.csv", {}
    choices = autotune.read(family.CHOICES, path) if path.is_file() else {}
    for d in SPARSITIES:
        tile = published_tile(study, d)
        found["v3", d] = analysis.intensity(tile.rows, tile.columns, d, share=staged(tile, d))
        # Tiles of 32 × 32, and no row that is not multiplied.
        found["nmsparse_vw32", d] = analysis.intensity(32, 32, d, share=d)
        if choice := choices.get((BIG, BIG, BIG, kept(d), GROUP, VECTOR)):
            found["auto", d] = analysis.intensity(choice.config.bm, choice.config.bn, d)
    return found


# ---------------------------------------------------------------- machine code


def fullest(report: pd.DataFrame) -> pd.DataFrame:
    """Return, by variant, the entry with the most multiply-adds: its unrolled step of the largest tile.

    report: `artifact.measure.run.compile_report` for one target.
    """
    return report.loc[report.groupby("variant", sort=False)["FFMA"].idxmax()].set_index("variant")


def loops(study: Spmm, variants: Iterable[str]) -> dict[str, str]:
    """Return the machine code of each variant's largest loop of multiply-adds, of those that the page's target has."""
    most = fullest(study.report)["entry"]
    cubins = {v: jit.compile_cubin(system.VARIANTS[v].source, most[v], study.target) for v in variants if v in most}
    code = {v: jit.disassemble(cubin) for v, cubin in cubins.items()}
    return {v: banks.loop(sass) or sass for v, sass in code.items()}


def clashes(loops: Mapping[str, str]) -> pd.DataFrame:
    """Of each main loop return, by variant.

    Useful (share of multiply-adds in all instructions), clash (share of them with two operands in one register bank),
    left (of the ceiling, if each clash costs a cycle).
    """
    rows = pd.DataFrame({v: banks.conflicts(code) | {"all": banks.instructions(code)} for v, code in loops.items()}).T
    useful, clash = rows["ffma"] / rows["all"], (rows["two_same"] + rows["three_same"]) / rows["ffma"]
    return pd.DataFrame({"useful": useful, "clash": clash, "left": useful / (1 + useful * clash)})


def compiled(report: pd.DataFrame) -> pd.DataFrame:
    """Return registers, shared memory, spills and multiply-adds of the variants, a row each, over all their entries."""
    own, most = report.groupby("variant", sort=False), fullest(report)
    columns = {
        "kernels": own.size(),
        "registers": own["registers"].agg(lambda used: " to ".join(map(str, sorted({used.min(), used.max()})))),
        "shared": own["shared_bytes"].max(),
        "spilling": own["spills"].sum().replace(0, "none"),
        "FFMA": most["FFMA"],
        "useful": (most["FFMA"] / most["instructions"]).replace(0, np.nan),
        "tensor": most.filter(regex="^HG?MMA").sum(axis=1).replace(0, np.nan),
    }
    return pd.DataFrame(columns).reset_index()


def own(here: analysis.Device, problem: Problem, target: str) -> pd.DataFrame:
    """Return V1 to V3 as they are compiled for a reader's own problem on the GPU `here`.

    Their template instantiation, registers a thread, multiply-adds in the machine code. Raises ValueError, one
    sentence, for what V3 does not take.
    """
    b, name = problem.host().b, analysis.class_of(here, problem.m, problem.n)
    tiles = {v: published.configured(v, name, b.keep, b.group) for v in ("v1", "v2", "v3")}
    stems = {v: published.source_of(v, tile.packed) for v, tile in tiles.items()}
    entries = {
        v: (published.HERE / f"{stem}.cu", published.entry(stem, tiles[v], b.keep, b.group, published.slot_of(b)))
        for v, stem in stems.items()
    }
    return made_by_compiler.own(entries, target).assign(kernel=lambda df: "`" + df["kernel"] + "`")
