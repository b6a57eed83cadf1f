"""How each variant is made ready: preprocessing, arguments, grid; and `auto`, the fastest of some of them."""

import math

import numpy as np

from .. import autotune, jit
from ..contract import Family, Launch, PreparedKernel, Problem, require, timed
from ..formats import csr
from ..formats.half import array_module
from ..lazy import core
from . import family
from .family import (
    MOST,
    NARROW,
    SHARED_PANEL,
    SHARED_THREADS,
    SPLIT_AT_LEAST,
    THREADS,
    VARIANTS,
    WARPS,
    WIDE,
    best_rows,
    entry,
    panel_grid,
    tile_rows,
    tiles_per_warp,
    vector_width,
    why_not_shared_tiles,
)
from .operands import SYSTEM

BASELINES = ("cusparse",)


def prepare(variant: str, problem: Problem, device) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess, and make it ready.

    Raises ValueError where the variant does not exist or does not take these sizes.
    """
    require(
        variant in VARIANTS,
        f"{SYSTEM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    for name, size in (("m", problem.m), ("n", problem.n)):
        require(
            size <= MOST,
            f"{name} is {size}, but the kernels of {SYSTEM} count up to {MOST} rows and columns of C: "
            "multiply in several ranges",
        )
    if problem.m == 0:  # nothing to compute, and some kernels divide by the number of row blocks
        return Launch(variant, [], problem.device().c)
    return _BIND.get(variant, _prepare_csr)(variant, problem, device)


def _step(name: str, entry: str, device, blocks: int, threads: int, arguments: tuple, shared: int = 0) -> tuple:
    """Return a launch (kernel, config, arguments); numbers become int32 and arrays addresses."""
    require(blocks < 2**31, f"{blocks} blocks exceed a grid's 2^31 - 1: multiply in several column ranges")
    config = core.LaunchConfig(grid=max(blocks, 1), block=threads, shmem_size=shared)
    kernel = jit.load(jit.compile_cubin(VARIANTS[name].source, entry, jit.arch_of(device)), shared)
    return kernel, config, tuple(np.int32(x) if isinstance(x, int) else x.data.ptr for x in arguments)


def _prepare_csr(variant: str, p: Problem, device) -> Launch:
    """Return a kernel that reads A as it is."""
    ops, threads, numbers = p.device(), 32 * WARPS, [p.m, p.n]
    blocks = math.ceil(p.m / WARPS)
    name = entry(variant, p.n)
    if variant == "warp_per_row":
        numbers[1] = p.n // 4
    elif variant in ("column_tiles", "l2_panels"):
        blocks *= math.ceil(p.n / (32 * vector_width(p.n) * tiles_per_warp(p.n)))
    elif variant in ("rows_per_warp", "in_flight"):
        rows, blocks = panel_grid(p.m, p.n, NARROW if variant == "rows_per_warp" else WIDE, device)
        numbers, threads = [p.m, p.n, rows], THREADS
    arrays = ops.a.row_ptr, ops.a.col_idx, ops.a.val, ops.b, ops.c
    return Launch(variant, [_step(variant, name, device, blocks, threads, (*numbers, *arrays))], ops.c)


def split(a: csr.Csr, chunk: int | None = None) -> tuple:
    """(items, cut rows): rows of A cut into items of at most `chunk` non-zeros; empty rows keep one empty item.

    items: int32 (items, 4): row, first non-zero, count, whether the row has others. Works on NumPy and on CuPy arrays.
    Without a chunk, rows up to four times the mean at least stay whole: a cut costs atomics, so only the rows that
    others would wait for are worth it.
    """
    xp = array_module(a.row_ptr)
    if chunk is None:
        chunk = max(SPLIT_AT_LEAST, 1 << (4 * a.nnz // max(a.m, 1)).bit_length())
    length = a.row_ptr[1:] - a.row_ptr[:-1]
    pieces = xp.maximum(-(-length // chunk), 1)
    edges = xp.zeros(a.m + 1, np.int64)
    edges[1:] = xp.cumsum(pieces)
    # The row of an item: how many rows end at or before it.
    row = xp.searchsorted(edges[1:], xp.arange(int(edges[-1])), side="right")
    offset = (xp.arange(row.size) - edges[row]) * chunk
    count = xp.minimum(length[row] - offset, chunk)
    item = xp.stack([row, a.row_ptr[row] + offset, count, pieces[row] > 1], axis=1).astype(np.int32)
    return xp.ascontiguousarray(item), xp.flatnonzero(pieces > 1).astype(np.int32)


def _prepare_split_rows(variant: str, p: Problem, device) -> Launch:
    ops = p.device()
    (items, cut), prepare_ms = timed(lambda: split(ops.a))
    count = items.shape[0]
    size, blocks = panel_grid(count, p.n, WIDE, device)
    arguments = (count, p.n, size, items, ops.a.col_idx, ops.a.val, ops.b, ops.c)
    steps = [_step(variant, entry(variant, p.n), device, blocks, THREADS, arguments)]
    if cut.size:
        steps.insert(0, _step(variant, "zero_rows", device, cut.size, 256, (p.n, cut, ops.c)))
    return Launch(variant, steps, ops.c, prepare_ms, items.nbytes + cut.nbytes, keep=(items, cut))


def cut_columns(a: csr.Csr, k_tile: int, m_pad: int) -> tuple:
    """(order, ptr, pair): the non-zeros of A by (tile of k_tile columns, length rank of the row); NumPy or CuPy arrays.

    m_pad: rows rounded up to whole blocks. order: int32 (m,), position -> row, longest rows first. ptr: int32
    (tiles·m_pad + 1,), by tile, then by position. pair: int32 (nnz, 2), the byte offset of B's row within the staged
    tile and the bits of the value.
    """
    xp = array_module(a.row_ptr)
    stable = {"kind": "stable"} if xp is np else {}  # CuPy's only sort, radix sort, is stable
    length = a.row_ptr[1:] - a.row_ptr[:-1]
    order = xp.argsort(-length, **stable)
    rank = xp.empty(a.m, np.int64)
    rank[order] = xp.arange(a.m)
    # The row of every non-zero: how many rows end at or before it.
    row = xp.searchsorted(a.row_ptr[1:], xp.arange(a.nnz, dtype=np.int32), side="right")
    tiles = -(-a.k // k_tile)
    key = (a.col_idx // k_tile).astype(np.int64) * m_pad + rank[row]
    by_key = xp.argsort(key, **stable)
    # How many non-zeros each pair of tile and row has, counted where there are any: 32 bits for a pair, no more.
    ordered = xp.concatenate([key[by_key], xp.full(1, tiles * m_pad, np.int64)])
    last = xp.flatnonzero(ordered[1:] != ordered[:-1])
    ptr = xp.zeros(tiles * m_pad + 1, np.int32)
    ptr[ordered[last] + 1] = xp.diff(xp.concatenate([xp.full(1, -1, np.int64), last]))
    ptr = xp.cumsum(ptr, dtype=np.int32)
    offset = ((a.col_idx[by_key] % k_tile + 1) * (SHARED_PANEL * 4)).astype(np.int32)
    pair = xp.stack([offset, a.val[by_key].view(np.int32)], axis=1)
    return order.astype(np.int32), ptr, xp.ascontiguousarray(pair)


def _prepare_shared_tiles(variant: str, p: Problem, device) -> Launch:
    why_not = why_not_shared_tiles(p, device)
    require(not why_not, why_not)
    group_rows = best_rows(p, device)
    name, ops = entry(variant, p.n, group_rows), p.device()
    k_tile, block_rows = tile_rows(p.k, device), SHARED_THREADS // 8 * group_rows
    m_pad = math.ceil(p.m / block_rows) * block_rows
    arrays, prepare_ms = timed(lambda: cut_columns(ops.a, k_tile, m_pad))
    blocks = m_pad // block_rows * math.ceil(p.n / SHARED_PANEL)
    arguments = (p.m, m_pad, p.n, p.k, k_tile, *arrays, ops.b, ops.c)
    step = _step(variant, name, device, blocks, SHARED_THREADS, arguments, (k_tile + 1) * 4 * SHARED_PANEL)
    return Launch(variant, [step], ops.c, prepare_ms, sum(x.nbytes for x in arrays), keep=arrays)


def _prepare_auto(variant: str, p: Problem, device) -> PreparedKernel:
    """Return the fastest of `family.TRIED` on this problem; its preprocessing is all of theirs and the trials.

    No choice is kept: it depends on where the non-zeros are, which no short key tells, and a race takes
    some fifty launches of each.
    """
    winner = _tuned(p, device, family.candidates(p, device))
    best = winner.bound
    best.name, best.prepare_ms = variant, winner.spent_ms
    return best


def _tuned(p: Problem, device, names: list[str]) -> autotune.Winner:
    return autotune.tune(
        p,
        names,
        lambda p, name: prepare(name, p, device),
        (lambda p: prepare("scalar", p, device),),
        device,
        family.ROUNDS,
        [job for job in family.jobs(p, device) if job[0] in {family.VARIANTS[name].source for name in names}],
    )


def _in_place(p: Problem, device) -> list[str]:
    """Those that read A's values where they are: shared_tiles has a copy."""
    return [name for name in family.candidates(p, device) if name != "shared_tiles"]


_BIND = {"split_rows": _prepare_split_rows, "shared_tiles": _prepare_shared_tiles, "auto": _prepare_auto}

FAMILIES = {
    "in_place": Family(
        prepare=lambda _, p, device, name: prepare(name, p, device),
        candidates=lambda p, device: ["split_rows"],
        fits=lambda name, p, device: name in _in_place(p, device),
        tune=lambda p, device: _tuned(p, device, _in_place(p, device)),
    )
}
