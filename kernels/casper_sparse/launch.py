"""The room's variants, its problems, and how each variant is configured and launched."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kernels import jit
from kernels.casper_sparse import generate
from kernels.contract import Bound, Kernel, Launch, Operands, Problem, require, timed
from kernels.formats import csr

ROOM = "casper_sparse"
HERE = Path(__file__).parent
BASELINES = ("cusparse",)
FLOPS_DEF = "2·nnz·N"  # a multiply and an add for every non-zero and every column (source, Eq. 4)
WARPS = 8  # rows of a block in the warp-per-row kernels; the source leaves THREADS_PER_BLOCK open
THREADS = 512
RESIDENT_THREADS = 1536  # of an SM: what __launch_bounds__ in rows_per_warp and split_rows asks for
UNROLL = 4
SPLIT_AT_LEAST = 32  # non-zeros of a work item, where rows are short
NARROW, WIDE = 32, 128  # columns of a panel: 128 bytes a row, or what a warp loads at once
SHARED_PANEL = 32  # columns of a tile in shared memory: one 128-byte row, all 32 banks
SHARED_THREADS, SHARED_UNROLL = 1024, 2
SHARED_ROWS = (1, 2, 4, 8)  # rows that a group of eight lanes keeps in registers
INT32_MAX = 2**31 - 1
#: Rows and columns of C at most: the kernels count up to a block's edge beyond the last one with 32 bits.
MOST = 2**31 - 4096


def _kernel(name: str, idea: str, prediction: str, *entries: str, source: str = "") -> Kernel:
    return Kernel(name, HERE / f"{source or name}.cu", idea, prediction, entries)


def _groups(name: str, columns: int) -> tuple[str, ...]:
    """Instantiations of a kernel whose groups of lanes share a row, for every N and panel width."""
    shapes = {(_lanes(n, columns), vector_width(n)) for n in range(1, 2 * columns + 1)}
    return tuple(f"{name}<{THREADS}, {lanes}, {vec}, {UNROLL}>" for lanes, vec in sorted(shapes))


def vector_width(n: int) -> int:
    """float32 values that a lane may load at once: rows of B start at multiples of 4·n bytes."""
    return 4 if n % 4 == 0 else 2 if n % 2 == 0 else 1


def _tiles(n: int) -> int:
    return 2 if n > 32 * vector_width(n) else 1


def _lanes(n: int, columns: int) -> int:
    """Lanes that share a row: enough for a panel of `columns`, fewer where n itself is narrower."""
    vectors = math.ceil(min(n, columns) / vector_width(n))
    return min(32, max(UNROLL, 1 << (vectors - 1).bit_length()))


_TILES = [f"<{WARPS}, {vec}, {tiles}, {UNROLL}>" for vec in (4, 2, 1) for tiles in (1, 2)]

VARIANTS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "warp_per_row",
            HERE / "warp_per_row.cu",
            "the published kernel: one warp per row, 32 non-zeros staged in shared memory, float4",
            entries=(f"warp_per_row<{WARPS}>",),
            published=True,
        ),
        _kernel(
            "scalar",
            "the published kernel with 4-byte instead of 16-byte loads of B",
            "A third of the speed: four times the load instructions for the same bytes.",
            f"any_n<{WARPS}, 1>",
            source="any_n",
        ),
        _kernel(
            "no_staging",
            "the published kernel without shared memory: every lane reads A itself",
            "0.8x: two dependent loads from L1 before every load of B instead of one from shared "
            "memory.",
            f"no_staging<{WARPS}>",
        ),
        _kernel(
            "any_n",
            "every N: the vector width follows from what N divides",
            "No gain where 4 divides N; the point is that the others run.",
            *(f"any_n<{WARPS}, {vec}>" for vec in (4, 2, 1)),
        ),
        _kernel(
            "column_tiles",
            "several column tiles per warp, columns spread over the grid",
            "1.2x: two independent loads per non-zero where the published kernel has one, and half "
            "the reads of A.",
            *(f"column_tiles{t}" for t in _TILES),
        ),
        _kernel(
            "l2_panels",
            "blocks ordered by column panel, so that rows of B are reused through L2",
            "2x at N = 32768, where B is ten times the L2 and DRAM re-reads it; nothing where B "
            "fits L2 anyway.",
            *(f"l2_panels{t}" for t in _TILES),
        ),
        _kernel(
            "rows_per_warp",
            "four rows share a warp, so that a panel of 32 columns fits L1",
            "1.8x at K = 4096: half of a 512 KiB panel fits L1, so half of the reads from L2 vanish.",
            *_groups("rows_per_warp", NARROW),
        ),
        _kernel(
            "in_flight",
            "the same file with a whole warp to a row: 40 registers, 48 warps an SM",
            "None was made: found while sweeping the panel width of rows_per_warp.",
            *_groups("rows_per_warp", WIDE),
            source="rows_per_warp",
        ),
        _kernel(
            "split_rows",
            "long rows cut into work items",
            "Nothing on the sweeps, whose rows differ by a factor of two; several times on graphs "
            "with hubs.",
            *_groups("split_rows", WIDE),
            "zero_rows",
        ),
        _kernel(
            "shared_tiles",
            "tiles of B in shared memory, A cut by columns beforehand",
            "4x at S = 5 %: 128 bytes a cycle and SM from shared memory instead of the 36 that L2 "
            "delivers.",
            *(f"shared_tiles<{SHARED_THREADS}, {rows}, {SHARED_UNROLL}>" for rows in SHARED_ROWS),
        ),
        Kernel(
            "auto",
            Path(__file__),
            "tries the others on the problem at hand and keeps the fastest",
            "The best of them at every point.",
        ),
    )
}
#: What `auto` tries; where two are equal, the one with the least preprocessing.
TRIALS = 5
TRIED = ("in_flight", "any_n", "l2_panels", "rows_per_warp", "split_rows", "shared_tiles")


def problem(m: int, n: int, k: int, density: float, seed: int = 0) -> Problem:
    """C (m, n) = A (m, k) · B (k, n) with the source's generators.

    density is the source's S / 100: a row holds between K·S/200 and K·S/100 non-zeros.
    Raises ValueError with one sentence for sizes that make no problem.
    """
    generate.validate(m, n, k, density, seed)
    m, n, k, seed = int(m), int(n), int(k), int(seed)  # NumPy's integers would wrap in the products
    nnz = int(generate.row_counts(m, k, density, seed).sum(dtype=np.int64))
    generate.require_int32(nnz)
    arguments = (m, n, k, density, seed)
    return _problem(
        "", m, n, k, nnz, density, seed,
        lambda: generate.host_operands(*arguments),
        lambda: generate.device_operands(*arguments),
    )  # fmt: skip


def problem_from_csr(a: csr.Csr, n: int, seed: int = 0, label: str = "") -> Problem:
    """C (m, n) = A · B for a given A on the host, with the source's generator of B; validates A."""
    csr.validate(a)
    # Repeated entries could make it more than 1, and no rows or no columns make it nothing.
    density = min(1.0, a.nnz / (a.m * a.k)) if a.m * a.k else 0.0
    generate.validate(max(a.m, 1), n, max(a.k, 1), density, seed)
    n, seed = int(n), int(seed)

    def on_device() -> Operands:
        import cupy

        return Operands(
            csr.to_device(a),
            generate.device_dense(a.k, n, seed),
            cupy.empty((a.m, n), cupy.float32),
        )

    return _problem(
        label, a.m, n, a.k, a.nnz, density, seed,
        lambda: Operands(a, generate.host_dense(a.k, n, seed)),
        on_device,
    )  # fmt: skip


def _problem(label, m, n, k, nnz, density, seed, on_host, on_device) -> Problem:
    a_bytes = 8 * nnz + 4 * (m + 1)
    column_tiles = math.ceil(n / 128)  # the published kernel reads its row of A again for each
    return Problem(
        room=ROOM,
        label=label,
        m=m,
        n=n,
        k=k,
        nnz=nnz,
        density=density,
        seed=seed,
        useful_flops=2 * nnz * n,
        flops_def=FLOPS_DEF,
        least_bytes=a_bytes + 4 * k * n + 4 * m * n,
        requested_bytes=8 * nnz * column_tiles + 8 * m + 4 * nnz * n + 4 * m * n,
        make_host=on_host,
        make_device=on_device,
    )


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


def entry(variant: str, n: int, rows: int = SHARED_ROWS[-1]) -> str:
    """The template instantiation for n columns; `rows` is the row count of shared_tiles' groups.

    Raises ValueError where the variant takes no such n.
    """
    require(
        variant in VARIANTS and variant != "auto",
        f"{variant!r} has no kernel of its own: choose one of {', '.join(VARIANTS)} but auto",
    )
    vec = vector_width(n)
    if variant in ("warp_per_row", "no_staging", "shared_tiles"):
        require(
            n % 4 == 0,
            f"{variant} loads float4 and needs N divisible by 4, but N is {n}: use any_n",
        )
    return {
        "warp_per_row": f"warp_per_row<{WARPS}>",
        "scalar": f"any_n<{WARPS}, 1>",
        "no_staging": f"no_staging<{WARPS}>",
        "any_n": f"any_n<{WARPS}, {vec}>",
        "column_tiles": f"column_tiles<{WARPS}, {vec}, {_tiles(n)}, {UNROLL}>",
        "l2_panels": f"l2_panels<{WARPS}, {vec}, {_tiles(n)}, {UNROLL}>",
        "rows_per_warp": f"rows_per_warp<{THREADS}, {_lanes(n, NARROW)}, {vec}, {UNROLL}>",
        "in_flight": f"rows_per_warp<{THREADS}, {_lanes(n, WIDE)}, {vec}, {UNROLL}>",
        "split_rows": f"split_rows<{THREADS}, {_lanes(n, WIDE)}, {vec}, {UNROLL}>",
        "shared_tiles": f"shared_tiles<{SHARED_THREADS}, {rows}, {SHARED_UNROLL}>",
    }[variant]


def _load(name: str, entry: str, device, dynamic_shared_bytes: int = 0):
    return jit.load(
        jit.compile_cubin(VARIANTS[name].source, entry, jit.arch_of(device)), dynamic_shared_bytes
    )


def _config(grid: int, block: int, shared: int = 0):
    from cuda.core import LaunchConfig

    require(
        grid < 2**31, f"{grid} blocks exceed a grid's 2^31 - 1: multiply in several column ranges"
    )
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
    tiles = math.ceil(p.n / (32 * vector_width(p.n) * _tiles(p.n)))
    step = (
        kernel,
        _config(math.ceil(p.m / WARPS) * tiles, 32 * WARPS),
        (np.int32(p.m), np.int32(p.n), *_csr_arguments(ops)),
    )
    return Launch(variant, [step], ops.c)


def rows_per_block(rows: int, in_flight: int, slots: int) -> int:
    """Rows that a block of one column panel works through before it ends.

    More rows a block cost less to schedule, but the blocks in flight should stay within one panel,
    or they push each other's rows of B out of L2. in_flight: rows that a block has at once; slots:
    blocks that the GPU holds at once; two rounds of blocks a panel keep its end from idling SMs.
    """
    return in_flight * max(1, min(8, rows // (2 * slots * in_flight)))


def _slots(device) -> int:
    return device.properties.multiprocessor_count * (RESIDENT_THREADS // THREADS)


def _grid(rows: int, n: int, columns: int, device) -> tuple[int, int]:
    """(rows of a block, blocks) of a kernel whose groups of lanes take panels of `columns`."""
    lanes = _lanes(n, columns)
    size = rows_per_block(rows, THREADS // lanes, _slots(device))
    return size, math.ceil(rows / size) * math.ceil(n / (lanes * vector_width(n)))


def _bind_rows_per_warp(variant: str, p: Problem, device) -> Launch:
    ops = p.device()
    rows, blocks = _grid(p.m, p.n, NARROW if variant == "rows_per_warp" else WIDE, device)
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
    size, blocks = _grid(count, p.n, WIDE, device)
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


def _tile_rows(k: int, device) -> int:
    """Rows of B that a block stages at once: few tiles, all of one size."""
    row_bytes = 4 * SHARED_PANEL
    staging = (
        8 * SHARED_THREADS + row_bytes + 1024
    )  # pairs, the row of zeros, the driver's own share
    most = (device.properties.max_shared_memory_per_block_optin - staging) // row_bytes
    return math.ceil(k / math.ceil(k / most))


#: Constants of the cost model that sizes the groups of shared_tiles, for one SM; read off an H200.
#: Elsewhere they choose less well, not wrongly; `auto` still measures against the other variants.
L2_BYTES_PER_CYCLE = 36
SHARED_BYTES_PER_CYCLE = 128
TILE_CYCLES = 3000  # barriers and latency around the staging of a tile
SEGMENT_WASTE = 2  # non-zeros' worth of time that each (row, tile) pair rounds away
SHARED_OVERHEAD = 1.5  # measured over ideal time of the gather in shared memory


def shared_cycles(p: Problem, device, rows: int) -> float:
    """Predicted cycles of shared_tiles with `rows` rows a group: staging, then the gather, by waves.

    More rows share a staged tile but make fewer blocks, which may leave SMs idle.
    """
    block_rows = SHARED_THREADS // 8 * rows
    blocks = math.ceil(p.m / block_rows) * math.ceil(p.n / SHARED_PANEL)
    tiles = math.ceil(p.k / _tile_rows(p.k, device))
    row_bytes = 4 * SHARED_PANEL
    reads = block_rows * (p.nnz / p.m + SEGMENT_WASTE * tiles)
    block = (
        tiles * TILE_CYCLES
        + p.k * row_bytes / L2_BYTES_PER_CYCLE
        + SHARED_OVERHEAD * reads * row_bytes / SHARED_BYTES_PER_CYCLE
    )
    return math.ceil(blocks / device.properties.multiprocessor_count) * block


def _best_rows(p: Problem, device) -> int:
    return min(SHARED_ROWS, key=lambda rows: shared_cycles(p, device, rows))


def why_not_shared_tiles(p: Problem, device) -> str:
    """One sentence where shared_tiles does not take a problem, said before anything is allocated; else ""."""
    if p.nnz == 0:
        return "shared_tiles has nothing to cut in a matrix without non-zeros: use any_n"
    k_tile, block_rows = _tile_rows(p.k, device), SHARED_THREADS // 8 * _best_rows(p, device)
    tiles, m_pad = math.ceil(p.k / k_tile), math.ceil(p.m / block_rows) * block_rows
    # The kernel's counters end one tile beyond the last.
    if (tiles + 1) * m_pad > INT32_MAX or tiles * k_tile > INT32_MAX:
        return (
            f"shared_tiles would cut A of {p.m} x {p.k} into {tiles} x {m_pad} parts, but counts them "
            "with 32 bits: use in_flight"
        )
    return ""


def _bind_shared_tiles(variant: str, p: Problem, device) -> Launch:
    why_not = why_not_shared_tiles(p, device)
    require(not why_not, why_not)
    group_rows = _best_rows(p, device)
    name = entry(variant, p.n, group_rows)
    ops = p.device()
    k_tile, block_rows = _tile_rows(p.k, device), SHARED_THREADS // 8 * group_rows
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


def _bind_auto(variant: str, p: Problem, device) -> Launch:
    """The fastest of `TRIED` on this problem; its preprocessing is all of theirs and the trials."""
    best, best_us, spent_ms = None, math.inf, 0.0
    for name in TRIED:
        if name == "shared_tiles" and (p.n % 4 or why_not_shared_tiles(p, device)):
            continue
        bound = bind(name, p, device)
        begin = time.perf_counter()
        us = _trial_us(bound, device)
        spent_ms += bound.prepare_ms + (time.perf_counter() - begin) * 1e3
        if us < best_us:
            best, best_us = bound, us
    best.name, best.prepare_ms = variant, spent_ms
    return best


def _trial_us(bound: Launch, device) -> float:
    """Median of a few launches, caches warm, in microseconds; enough to rank, not to publish."""
    import cupy

    stream = device.create_stream()
    device.sync()
    samples = []
    with cupy.cuda.Stream.from_external(stream) as on:
        for _ in range(TRIALS):
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record(on)
            bound.launch(stream)
            end.record(on)
            end.synchronize()
            samples.append(cupy.cuda.get_elapsed_time(begin, end) * 1e3)
    return float(np.median(samples))


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
