"""How each variant is made ready: preprocessing, arguments, grid; and `auto`, the fastest of some of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from .. import jit, tuning
from ..contract import Bound, Family, Launch, Operands, Problem, require, timed
from ..formats import csr
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
from .operands import ROOM

BASELINES = ("cusparse",)


def bind(variant: str, problem: Problem, device) -> Bound:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess, and make it ready.

    Raises ValueError where the variant does not exist or does not take these sizes.
    """
    require(
        variant in VARIANTS,
        f"{ROOM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    for name, size in (("m", problem.m), ("n", problem.n)):
        require(
            size <= MOST,
            f"{name} is {size}, but the kernels of {ROOM} count up to {MOST} rows and columns of C: "
            "multiply in several ranges",
        )
    if problem.m == 0:  # nothing to compute, and some kernels divide by the number of row blocks
        return Launch(variant, [], problem.device().c)
    return _BIND[variant](variant, problem, device)


def _load(name: str, entry: str, device, dynamic_shared_bytes: int = 0):
    return jit.load(jit.compile_cubin(VARIANTS[name].source, entry, jit.arch_of(device)), dynamic_shared_bytes)


def _config(grid: int, block: int, shared: int = 0):
    from cuda.core import LaunchConfig

    require(grid < 2**31, f"{grid} blocks exceed a grid's 2^31 - 1: multiply in several column ranges")
    return LaunchConfig(grid=max(grid, 1), block=block, shmem_size=shared)


def _csr_arguments(ops: Operands) -> tuple:
    return tuple(x.data.ptr for x in (ops.a.row_ptr, ops.a.col_idx, ops.a.val, ops.b, ops.c))


def _bind_warp_per_row(variant: str, p: Problem, device) -> Launch:
    ops = p.device()
    kernel = _load(variant, entry(variant, p.n), device)
    columns = p.n // 4 if variant == "warp_per_row" else p.n
    step = (
        kernel,
        _config(math.ceil(p.m / WARPS), 32 * WARPS),
        (np.int32(p.m), np.int32(columns), *_csr_arguments(ops)),
    )
    return Launch(variant, [step], ops.c)


def _bind_column_tiles(variant: str, p: Problem, device) -> Launch:
    ops = p.device()
    kernel = _load(variant, entry(variant, p.n), device)
    tiles = math.ceil(p.n / (32 * vector_width(p.n) * tiles_per_warp(p.n)))
    step = (
        kernel,
        _config(math.ceil(p.m / WARPS) * tiles, 32 * WARPS),
        (np.int32(p.m), np.int32(p.n), *_csr_arguments(ops)),
    )
    return Launch(variant, [step], ops.c)


def _bind_rows_per_warp(variant: str, p: Problem, device) -> Launch:
    ops = p.device()
    rows, blocks = panel_grid(p.m, p.n, NARROW if variant == "rows_per_warp" else WIDE, device)
    step = (
        _load(variant, entry(variant, p.n), device),
        _config(blocks, THREADS),
        (np.int32(p.m), np.int32(p.n), np.int32(rows), *_csr_arguments(ops)),
    )
    return Launch(variant, [step], ops.c)


@dataclass(frozen=True)
class Items:
    """Work items of `split_rows`, int32 (items, 4): row, first non-zero, count, shared; cut rows."""

    item: object
    cut: object


def split(a: csr.Csr, chunk: int | None = None) -> Items:
    """Cut the rows of A into items of at most `chunk` non-zeros; empty rows keep one empty item.

    Works on NumPy and on CuPy arrays. Without a chunk, rows up to four times the mean at least stay whole:
    a cut costs atomics, so only the rows that others would wait for are worth it.
    """
    xp = _array_module(a.row_ptr)
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
    return Items(xp.ascontiguousarray(item), xp.flatnonzero(pieces > 1).astype(np.int32))


def _bind_split_rows(variant: str, p: Problem, device) -> Launch:
    ops = p.device()
    items, prepare_ms = timed(lambda: split(ops.a))
    count = items.item.shape[0]
    size, blocks = panel_grid(count, p.n, WIDE, device)
    main = (
        _load(variant, entry(variant, p.n), device),
        _config(blocks, THREADS),
        (
            *(np.int32(x) for x in (count, p.n, size)),
            items.item.data.ptr,
            *_csr_arguments(ops)[1:],
        ),
    )
    clear = []
    if items.cut.size:
        arguments = (np.int32(p.n), items.cut.data.ptr, ops.c.data.ptr)
        clear = [(_load(variant, "zero_rows", device), _config(items.cut.size, 256), arguments)]
    held = items.item.nbytes + items.cut.nbytes
    return Launch(variant, [*clear, main], ops.c, prepare_ms, held, keep=(items,))


@dataclass(frozen=True)
class Tiled:
    """A cut by columns for `shared_tiles`.

    m_pad: rows rounded up to a multiple of row_multiple. order: int32 (m,), position -> row, longest rows first.
    ptr: int32 (tiles·m_pad + 1,), by tile, then by position. pair: int32 (nnz, 2), the byte offset of
    B's row within the staged tile and the bits of the value.
    """

    k_tile: int
    m_pad: int
    order: object
    ptr: object
    pair: object


def cut_columns(a: csr.Csr, k_tile: int, row_multiple: int) -> Tiled:
    """Sort the non-zeros of A by (column tile, length rank of the row); NumPy or CuPy arrays."""
    xp = _array_module(a.row_ptr)
    stable = {"kind": "stable"} if xp is np else {}  # CuPy's only sort, radix sort, is stable
    length = a.row_ptr[1:] - a.row_ptr[:-1]
    order = xp.argsort(-length, **stable)
    rank = xp.empty(a.m, np.int64)
    rank[order] = xp.arange(a.m)
    # The row of every non-zero: how many rows end at or before it.
    row = xp.searchsorted(a.row_ptr[1:], xp.arange(a.nnz, dtype=np.int32), side="right")
    tiles, m_pad = -(-a.k // k_tile), -(-a.m // row_multiple) * row_multiple
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
    return Tiled(k_tile, m_pad, order.astype(np.int32), ptr, xp.ascontiguousarray(pair))


def _bind_shared_tiles(variant: str, p: Problem, device) -> Launch:
    why_not = why_not_shared_tiles(p, device)
    require(not why_not, why_not)
    group_rows = best_rows(p, device)
    name = entry(variant, p.n, group_rows)
    ops = p.device()
    k_tile, block_rows = tile_rows(p.k, device), SHARED_THREADS // 8 * group_rows
    tiled, prepare_ms = timed(lambda: cut_columns(ops.a, k_tile, block_rows))
    shared = (k_tile + 1) * 4 * SHARED_PANEL
    blocks = tiled.m_pad // block_rows * math.ceil(p.n / SHARED_PANEL)
    step = (
        _load(variant, name, device, shared),
        _config(blocks, SHARED_THREADS, shared),
        (
            *(np.int32(x) for x in (p.m, tiled.m_pad, p.n, p.k, k_tile)),
            *(x.data.ptr for x in (tiled.order, tiled.ptr, tiled.pair, ops.b, ops.c)),
        ),
    )
    held = tiled.order.nbytes + tiled.ptr.nbytes + tiled.pair.nbytes
    return Launch(variant, [step], ops.c, prepare_ms, held, keep=(tiled,))


def _bind_auto(variant: str, p: Problem, device) -> Bound:
    """The fastest of `family.TRIED` on this problem; its preprocessing is all of theirs and the trials.

    No choice is kept: it depends on where the non-zeros are, which no short key tells, and a race takes
    some fifty launches of each.
    """
    winner = _tuned(p, device, family.candidates(p, device))
    best = winner.bound
    best.name, best.prepare_ms = variant, winner.spent_ms
    return best


def _tuned(p: Problem, device, names: list[str]) -> tuning.Winner:
    return tuning.tune(
        p,
        names,
        lambda p, name: bind(name, p, device),
        (lambda p: bind("scalar", p, device),),
        device,
        family.ROUNDS,
        [job for job in family.jobs(p, device) if job[0] in {family.VARIANTS[name].source for name in names}],
    )


def _in_place(p: Problem, device) -> list[str]:
    """Those that read A's values where they are: shared_tiles has a copy."""
    return [name for name in family.candidates(p, device) if name != "shared_tiles"]


def _array_module(array):
    if isinstance(array, np.ndarray):
        return np
    import cupy

    return cupy


_BIND = {
    "warp_per_row": _bind_warp_per_row,
    "scalar": _bind_warp_per_row,
    "no_staging": _bind_warp_per_row,
    "any_n": _bind_warp_per_row,
    "column_tiles": _bind_column_tiles,
    "l2_panels": _bind_column_tiles,
    "rows_per_warp": _bind_rows_per_warp,
    "in_flight": _bind_rows_per_warp,
    "split_rows": _bind_split_rows,
    "shared_tiles": _bind_shared_tiles,
    "auto": _bind_auto,
}

FAMILIES = {
    "in_place": Family(
        bind=lambda _, p, device, name: bind(name, p, device),
        candidates=lambda p, device: ["split_rows"],
        fits=lambda name, p, device: name in _in_place(p, device),
        tune=lambda p, device: _tuned(p, device, _in_place(p, device)),
    )
}
