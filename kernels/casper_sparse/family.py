"""Which kernels exist for which N, how they are configured, and what `auto` chooses among.

A variant's template arguments follow from N; `shared_tiles` also chooses, by a prediction, how many rows a
group of lanes keeps. Which variant is the fastest depends on the matrix: `candidates` are tried.
"""

import math
from pathlib import Path

from ..autotune import Rounds
from ..contract import Kernel, Problem, require

HERE = Path(__file__).parent
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
    """Return instantiations of a kernel whose groups of lanes share a row, for every N and panel width."""
    shapes = {(lanes_of(n, columns), vector_width(n)) for n in range(1, 2 * columns + 1)}
    return tuple(f"{name}<{THREADS}, {lanes}, {vec}, {UNROLL}>" for lanes, vec in sorted(shapes))


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
            "0.8x: two dependent loads from L1 before every load of B instead of one from shared memory.",
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
            "1.2x: two independent loads per non-zero where the published kernel has one, and half the reads of A.",
            *(f"column_tiles{t}" for t in _TILES),
        ),
        _kernel(
            "l2_panels",
            "blocks ordered by column panel, so that rows of B are reused through L2",
            "2x at N = 32768, where B is ten times the L2 and DRAM re-reads it; nothing where B fits L2 anyway.",
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
            "Nothing on the sweeps, whose rows differ by a factor of two; several times on graphs with hubs.",
            *_groups("split_rows", WIDE),
            "zero_rows",
        ),
        _kernel(
            "shared_tiles",
            "tiles of B in shared memory, A cut by columns beforehand",
            "4x at S = 5 %: 128 bytes a cycle and SM from shared memory instead of the 36 that L2 delivers.",
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
TRIED = ("in_flight", "any_n", "l2_panels", "rows_per_warp", "split_rows", "shared_tiles")
ROUNDS = Rounds(first=5, final=9, finalists=3, short_us=40, factor=3)


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


def candidates(problem: Problem, device) -> list[str]:
    """Those of `TRIED` that take the problem."""
    tiles = problem.n % 4 == 0 and not why_not_shared_tiles(problem, device)
    return [name for name in TRIED if tiles or name != "shared_tiles"]


def jobs(problem: Problem, device) -> list[tuple[Path, str]]:
    """(source, entry) of every candidate."""
    rows = best_rows(problem, device) if problem.nnz else SHARED_ROWS[-1]
    return [(VARIANTS[name].source, entry(name, problem.n, rows)) for name in candidates(problem, device)]


def entry(variant: str, n: int, rows: int = SHARED_ROWS[-1]) -> str:
    """Return the template instantiation for n columns; `rows` is the row count of shared_tiles' groups.

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
        "column_tiles": f"column_tiles<{WARPS}, {vec}, {tiles_per_warp(n)}, {UNROLL}>",
        "l2_panels": f"l2_panels<{WARPS}, {vec}, {tiles_per_warp(n)}, {UNROLL}>",
        "rows_per_warp": f"rows_per_warp<{THREADS}, {lanes_of(n, NARROW)}, {vec}, {UNROLL}>",
        "in_flight": f"rows_per_warp<{THREADS}, {lanes_of(n, WIDE)}, {vec}, {UNROLL}>",
        "split_rows": f"split_rows<{THREADS}, {lanes_of(n, WIDE)}, {vec}, {UNROLL}>",
        "shared_tiles": f"shared_tiles<{SHARED_THREADS}, {rows}, {SHARED_UNROLL}>",
    }[variant]


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
    row_bytes = 4 * SHARED_PANEL
    staging = 8 * SHARED_THREADS + row_bytes + 1024  # pairs, the row of zeros, the driver's own share
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
    tiles = math.ceil(p.k / tile_rows(p.k, device))
    row_bytes = 4 * SHARED_PANEL
    reads = block_rows * (p.nnz / p.m + SEGMENT_WASTE * tiles)
    block = (
        tiles * TILE_CYCLES
        + p.k * row_bytes / L2_BYTES_PER_CYCLE
        + SHARED_OVERHEAD * reads * row_bytes / SHARED_BYTES_PER_CYCLE
    )
    return math.ceil(blocks / device.properties.multiprocessor_count) * block


def best_rows(p: Problem, device) -> int:
    """Return the height of the shared tiles with the fewest predicted cycles."""
    return min(SHARED_ROWS, key=lambda rows: shared_cycles(p, device, rows))
