"""Which kernels exist for which N, how each is made ready, and `auto`, the fastest of some of them.

A variant's template arguments follow from N; `shared_tiles` also chooses, by a prediction, how many rows a
group of lanes keeps. Which variant is the fastest depends on the matrix: `candidates` are tried.
"""

import math
from pathlib import Path

import numpy as np

from .. import autotune
from ..autotune import Rounds
from ..contract import Kernel, Launch, PreparedKernel, Problem, require, step, timed
from ..formats import csr
from ..formats.csr import INT32_MAX
from ..formats.half import array_module
from .operands import SYSTEM

HERE = Path(__file__).parent
BASELINES = ("cusparse",)
WARPS = 8  # rows of a block in the warp-per-row kernels; the source leaves THREADS_PER_BLOCK open
THREADS = 512
RESIDENT_THREADS = 1536  # of an SM: what __launch_bounds__ in rows_per_warp and split_rows asks for
UNROLL = 4
SPLIT_AT_LEAST = 32  # non-zeros of a work item, where rows are short
NARROW, WIDE = 32, 128  # columns of a panel: 128 bytes a row, or what a warp loads at once
SHARED_PANEL = 32  # columns of a tile in shared memory: one 128-byte row, all 32 banks
ROW_BYTES = 4 * SHARED_PANEL
SHARED_THREADS, SHARED_UNROLL = 1024, 2
SHARED_ROWS = (1, 2, 4, 8)  # rows that a group of eight lanes keeps in registers
#: Rows and columns of C at most: the kernels count up to a block's edge beyond the last one with 32 bits.
MOST = 2**31 - 4096
#: What `auto` tries; where two are equal, the one with the least preprocessing.
TRIED = ("in_flight", "any_n", "l2_panels", "rows_per_warp", "split_rows", "shared_tiles")
ROUNDS = Rounds(first=5, final=9, finalists=3, short_us=40, factor=3)
#: Constants of the cost model that sizes the groups of shared_tiles, for one SM; read off an H200.
#: Elsewhere they choose less well, not wrongly; `auto` still measures against the other variants.
L2_BYTES_PER_CYCLE = 36
SHARED_BYTES_PER_CYCLE = 128
TILE_CYCLES = 3000  # barriers and latency around the staging of a tile
SEGMENT_WASTE = 2  # non-zeros' worth of time that each (row, tile) pair rounds away
SHARED_OVERHEAD = 1.5  # measured over ideal time of the gather in shared memory


# ---------------------------------------------------------------- instantiations


def vector_width(n: int) -> int:
    """float32 values that a lane may load at once: rows of B start at multiples of 4·n bytes."""
    return 4 if n % 4 == 0 else 2 if n % 2 == 0 else 1


def tiles_per_warp(n: int) -> int:
    """Return how many tiles of C a warp computes for n columns."""
    return 2 if n > 32 * vector_width(n) else 1


def lanes_of(n: int, columns: int) -> int:
    """Lanes that share a row: enough for a panel of `columns`, fewer where n itself is narrower."""
    vectors = math.ceil(min(n, columns) / vector_width(n))
    return min(32, max(UNROLL, 1 << (vectors - 1).bit_length()))


def entry(variant: str, n: int, rows: int = SHARED_ROWS[-1]) -> str:
    """Return the template instantiation for n columns; `rows` is the row count of shared_tiles' groups.

    Raises ValueError where the variant takes no such n.
    """
    vec = vector_width(n)
    every = {
        "warp_per_row": f"warp_per_row<{WARPS}>",
        "scalar": f"any_n<{WARPS}, 1>",
        "no_staging": f"no_staging<{WARPS}>",
        "any_n": f"any_n<{WARPS}, {vec}>",
        "column_tiles": f"column_tiles<{WARPS}, {vec}, {tiles_per_warp(n)}, {UNROLL}>",
        "l2_panels": f"l2_panels<{WARPS}, {vec}, {tiles_per_warp(n)}, {UNROLL}>",
        "rows_per_warp": f"rows_per_warp<{THREADS}, {lanes_of(n, NARROW)}, {vec}, {UNROLL}>",
        "in_flight": f"rows_per_warp<{THREADS}, {lanes_of(n, WIDE)}, {vec}, {UNROLL}>",
        "split_rows": f"split_rows<{THREADS}, {lanes_of(n, WIDE)}, {vec}, {UNROLL}>",
        "shared_tiles": f"shared_tiles<{SHARED_THREADS}, {rows}, {SHARED_UNROLL}>",
    }
    require(
        variant in every,
        f"{variant!r} has no kernel of its own: choose one of {', '.join(every)}",
    )
    require(
        n % 4 == 0 or variant not in ("warp_per_row", "no_staging", "shared_tiles"),
        f"{variant} loads float4 and needs N divisible by 4, but N is {n}: use any_n",
    )
    return every[variant]


#: Columns that ask for every width of vectors and both numbers of tiles, and for every number of lanes.
_TILED = (4, 132, 2, 66, 1, 33)
_GROUPED = (1, 2, 4, 5, 10, 20, 9, 18, 36, 17, 34, 68)


def _kernel(name: str, idea: str, prediction: str, columns: tuple[int, ...] = (4,), source: str = "") -> Kernel:
    """Return a variant, whose instantiations are those for some numbers of columns."""
    entries = dict.fromkeys(entry(name, n, rows) for n in columns for rows in SHARED_ROWS)
    every = (*entries, *["zero_rows"] * (name == "split_rows"))
    return Kernel(name, HERE / f"{source or name}.cu", idea, prediction, every, name == "warp_per_row")


VARIANTS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        _kernel(
            "warp_per_row", "the published kernel: one warp per row, 32 non-zeros staged in shared memory, float4", ""
        ),
        _kernel(
            "scalar",
            "the published kernel with 4-byte instead of 16-byte loads of B",
            "A third of the speed: four times the load instructions for the same bytes.",
            source="any_n",
        ),
        _kernel(
            "no_staging",
            "the published kernel without shared memory: every lane reads A itself",
            "0.8x: two dependent loads from L1 before every load of B instead of one from shared memory.",
        ),
        _kernel(
            "any_n",
            "every N: the vector width follows from what N divides",
            "No gain where 4 divides N; the point is that the others run.",
            _TILED,
        ),
        _kernel(
            "column_tiles",
            "several column tiles per warp, columns spread over the grid",
            "1.2x: two independent loads per non-zero where the published kernel has one, and half the reads of A.",
            _TILED,
        ),
        _kernel(
            "l2_panels",
            "blocks ordered by column panel, so that rows of B are reused through L2",
            "2x at N = 32768, where B is ten times the L2 and DRAM re-reads it; nothing where B fits L2 anyway.",
            _TILED,
        ),
        _kernel(
            "rows_per_warp",
            "four rows share a warp, so that a panel of 32 columns fits L1",
            "1.8x at K = 4096: half of a 512 KiB panel fits L1, so half of the reads from L2 vanish.",
            _GROUPED,
        ),
        _kernel(
            "in_flight",
            "the same file with a whole warp to a row: 40 registers, 48 warps an SM",
            "None was made: found while sweeping the panel width of rows_per_warp.",
            _GROUPED,
            "rows_per_warp",
        ),
        _kernel(
            "split_rows",
            "long rows cut into work items",
            "Nothing on the sweeps, whose rows differ by a factor of two; several times on graphs with hubs.",
            _GROUPED,
        ),
        _kernel(
            "shared_tiles",
            "tiles of B in shared memory, A cut by columns beforehand",
            "4x at S = 5 %: 128 bytes a cycle and SM from shared memory instead of the 36 that L2 delivers.",
        ),
        Kernel(
            "auto",
            Path(__file__),
            "tries the others on the problem at hand and keeps the fastest",
            "The best of them at every point.",
        ),
    )
}


# ---------------------------------------------------------------- blocks, tiles and what they cost


def panel_grid(rows: int, n: int, columns: int, device) -> tuple[int, int]:
    """(rows of a block, blocks) of a kernel whose groups of lanes take panels of `columns`.

    A block works through its rows of one panel before it ends. More rows a block cost less to schedule, but the blocks
    in flight should stay within one panel, or they push each other's rows of B out of L2; two rounds of blocks a panel
    keep its end from idling SMs.
    """
    lanes = lanes_of(n, columns)
    in_flight = THREADS // lanes  # rows that a block has at once
    slots = device.properties.multiprocessor_count * (RESIDENT_THREADS // THREADS)
    size = in_flight * max(1, min(8, rows // (2 * slots * in_flight)))
    return size, math.ceil(rows / size) * math.ceil(n / (lanes * vector_width(n)))


def tile_rows(k: int, device) -> int:
    """Rows of B that a block stages at once: few tiles, all of one size."""
    staging = 8 * SHARED_THREADS + ROW_BYTES + 1024  # pairs, the row of zeros, the driver's own share
    most = (device.properties.max_shared_memory_per_block_optin - staging) // ROW_BYTES
    return math.ceil(k / math.ceil(k / most))


def shared_cycles(p: Problem, device, rows: int) -> float:
    """Predicted cycles of shared_tiles with `rows` rows a group: staging, then the gather, by waves.

    More rows share a staged tile but make fewer blocks, which may leave SMs idle.
    """
    block_rows = SHARED_THREADS // 8 * rows
    blocks = math.ceil(p.m / block_rows) * math.ceil(p.n / SHARED_PANEL)
    tiles = math.ceil(p.k / tile_rows(p.k, device))
    reads = block_rows * (p.nnz / p.m + SEGMENT_WASTE * tiles)
    block = (
        tiles * TILE_CYCLES
        + p.k * ROW_BYTES / L2_BYTES_PER_CYCLE
        + SHARED_OVERHEAD * reads * ROW_BYTES / SHARED_BYTES_PER_CYCLE
    )
    return math.ceil(blocks / device.properties.multiprocessor_count) * block


def best_rows(p: Problem, device) -> int:
    """Return the height of the shared tiles with the fewest predicted cycles."""
    return min(SHARED_ROWS, key=lambda rows: shared_cycles(p, device, rows))


def why_not_shared_tiles(p: Problem, device) -> str:
    """One sentence where shared_tiles does not take a problem, said before anything is allocated; else ""."""
    if p.nnz == 0:
        return "shared_tiles has nothing to cut in a matrix without non-zeros: use any_n"
    k_tile, block_rows = tile_rows(p.k, device), SHARED_THREADS // 8 * best_rows(p, device)
    tiles, m_pad = math.ceil(p.k / k_tile), math.ceil(p.m / block_rows) * block_rows
    # The kernel's counters end one tile beyond the last.
    if (tiles + 1) * m_pad > INT32_MAX or tiles * k_tile > INT32_MAX:
        return (
            f"shared_tiles would cut A of {p.m} x {p.k} into {tiles} x {m_pad} parts, but counts them "
            "with 32 bits: use in_flight"
        )
    return ""


# ---------------------------------------------------------------- preprocessing


def split(a: csr.Csr, chunk: int | None = None) -> tuple:
    """(items, cut rows): rows of A cut into items of at most `chunk` non-zeros; empty rows keep one empty item.

    items: int32 (items, 4): row, first non-zero, count, whether the row has others. Works on NumPy and on CuPy arrays.
    Without a chunk, rows up to four times the mean at least stay whole: a cut costs atomics, so only the rows that
    others would wait for are worth it.
    """
    xp = array_module(a.row_ptr)
    chunk = chunk or max(SPLIT_AT_LEAST, 1 << (4 * a.nnz // max(a.m, 1)).bit_length())
    length = a.row_ptr[1:] - a.row_ptr[:-1]
    pieces = xp.maximum(-(-length // chunk), 1)
    ends = xp.cumsum(pieces, dtype=np.int64)
    # The row of an item: how many rows end at or before it.
    row = xp.searchsorted(ends, xp.arange(int(ends[-1])), side="right")
    offset = (xp.arange(row.size) - (ends - pieces)[row]) * chunk
    count = xp.minimum(length[row] - offset, chunk)
    item = xp.stack([row, a.row_ptr[row] + offset, count, pieces[row] > 1], axis=1).astype(np.int32)
    return xp.ascontiguousarray(item), xp.flatnonzero(pieces > 1).astype(np.int32)


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
    tiles = -(-a.k // k_tile)
    key = (a.col_idx // k_tile).astype(np.int64) * m_pad + rank[csr.rows(a)]
    by_key = xp.argsort(key, **stable)
    # How many non-zeros each pair of tile and row has, counted where there are any: 32 bits for a pair, no more.
    ordered = xp.concatenate([key[by_key], xp.full(1, tiles * m_pad, np.int64)])
    last = xp.flatnonzero(ordered[1:] != ordered[:-1])
    ptr = xp.zeros(tiles * m_pad + 1, np.int32)
    ptr[ordered[last] + 1] = xp.diff(xp.concatenate([xp.full(1, -1, np.int64), last]))
    ptr = xp.cumsum(ptr, dtype=np.int32)
    offset = ((a.col_idx[by_key] % k_tile + 1) * ROW_BYTES).astype(np.int32)
    pair = xp.stack([offset, a.val[by_key].view(np.int32)], axis=1)
    return order.astype(np.int32), ptr, xp.ascontiguousarray(pair)


# ---------------------------------------------------------------- launches


def prepare(variant: str, problem: Problem, device) -> PreparedKernel:
    """Compile `variant` for `device` (a current `cuda.core.Device`), preprocess, and make it ready.

    "auto" is the fastest of `TRIED` on this problem; its preprocessing is all of theirs and the trials. No choice is
    kept: it depends on where the non-zeros are, which no short key tells, and a race takes some fifty launches of each.

    Raises ValueError where the variant does not exist or does not take these sizes.
    """
    require(
        variant in VARIANTS,
        f"{SYSTEM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    m, n, k = problem.m, problem.n, problem.k
    for name, size in (("m", m), ("n", n)):
        require(
            size <= MOST,
            f"{name} is {size}, but the kernels of {SYSTEM} count up to {MOST} rows and columns of C: "
            "multiply in several ranges",
        )
    if m == 0:  # nothing to compute, and some kernels divide by the number of row blocks
        return Launch(variant, [], problem.device().c)
    if variant == "auto":
        names, rows = candidates(problem, device), best_rows(problem, device) if problem.nnz else SHARED_ROWS[-1]
        winner = autotune.tune(
            problem,
            names,
            lambda p, name: prepare(name, p, device),
            (lambda p: prepare("scalar", p, device),),
            device,
            ROUNDS,
            [(VARIANTS[name].source, entry(name, n, rows)) for name in names],
        )
        winner.bound.name, winner.bound.prepare_ms = variant, winner.spent_ms
        return winner.bound
    why_not = why_not_shared_tiles(problem, device) if variant == "shared_tiles" else ""
    require(not why_not, why_not)
    rows = best_rows(problem, device) if variant == "shared_tiles" else SHARED_ROWS[-1]
    job = VARIANTS[variant].source, entry(variant, n, rows)
    operands = problem.device()
    a = operands.a
    made: tuple = ()
    prepare_ms = 0.0
    steps = []
    threads = THREADS
    shared = 0
    match variant:
        case "split_rows":
            made, prepare_ms = timed(lambda: split(a))
            items, cut = made
            if cut.size:
                steps = [step((job[0], "zero_rows"), device, cut.size, 256, (n, cut, operands.c))]
            size, blocks = panel_grid(len(items), n, WIDE, device)
            arguments: tuple = len(items), n, size, items, a.col_idx, a.val
        case "shared_tiles":
            block_rows = SHARED_THREADS // 8 * rows
            m_pad = math.ceil(m / block_rows) * block_rows
            k_tile = tile_rows(k, device)
            made, prepare_ms = timed(lambda: cut_columns(a, k_tile, m_pad))
            threads = SHARED_THREADS
            shared = (k_tile + 1) * ROW_BYTES
            blocks = m_pad // block_rows * math.ceil(n / SHARED_PANEL)
            arguments = m, m_pad, n, k, k_tile, *made
        case "rows_per_warp" | "in_flight":
            size, blocks = panel_grid(m, n, NARROW if variant == "rows_per_warp" else WIDE, device)
            arguments = m, n, size, a.row_ptr, a.col_idx, a.val
        case _:
            threads = 32 * WARPS
            columns = 32 * vector_width(n) * tiles_per_warp(n) if variant in ("column_tiles", "l2_panels") else n
            blocks = math.ceil(m / WARPS) * math.ceil(n / columns)
            arguments = m, n // 4 if variant == "warp_per_row" else n, a.row_ptr, a.col_idx, a.val
    require(blocks <= INT32_MAX, f"{blocks} blocks exceed a grid's 2^31 - 1: multiply in several column ranges")
    steps.append(step(job, device, max(blocks, 1), threads, (*arguments, operands.b, operands.c), shared))
    return Launch(variant, steps, operands.c, prepare_ms, sum(x.nbytes for x in made), keep=made)


def candidates(problem: Problem, device) -> list[str]:
    """Those of `TRIED` that take the problem."""
    tiles = problem.n % 4 == 0 and not why_not_shared_tiles(problem, device)
    return [name for name in TRIED if tiles or name != "shared_tiles"]
