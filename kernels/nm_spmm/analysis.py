"""NM-SpMM's analysis as code (sections III-A and III-B): intensity, limits, and a configuration.

A block computes m_s x n_s of C in steps of k_s rows of A^T and w_s = k_s * N / M compressed rows of
B. Here m_s is `rows`, n_s `columns`, k_s `depth` and N / M `density`. Everything is FP32, 4 bytes an
element; intensities are in FLOP/B, peaks in TFLOP/s, bandwidths in GB/s.

The text that this artifact works from has lost the formulas of Eqs. 3 to 6. They follow from the
quantities that it names. It leaves one choice, whether Eq. 3 counts the block of C: section III-A
names the footprints of A_s, B_s and D_s only, but section IV-E says that a larger k_s raises the
intensity, which it does if C is counted and not otherwise. So that is an argument, `depth`.
"""

import math
from dataclasses import dataclass, replace

from ..contract import require, require_whole
from ..formats.nm import INT32_MAX

WORD = 4  #: bytes of an element
REGISTERS = 255  #: that a thread may have (III-B2)
HIGH = 0.70  #: the paper calls a sparsity above this one high, others moderate (III-A)
#: Fewest blocks per SM for a class of Table I to be proposed. The paper gives no rule; with this one
#: the sizes of Table II get the classes that it gives them, on every GPU of Table III.
BLOCKS_PER_SM = 3.5


@dataclass(frozen=True)
class Device:
    """What the analysis needs to know of a GPU."""

    name: str
    sm_count: int
    clock_mhz: float
    peak_tflops: float  #: FP32 on the CUDA cores
    bandwidth_gbs: float  #: of DRAM, or of what else the roofline is drawn for
    shared_bytes: int  #: of an SM; Table III gives it together with the L1
    l2_bytes: int

    @property
    def ridge(self) -> float:
        """FLOP/B from which on arithmetic is the limit: peak / bandwidth, where the roofline bends."""
        return self.peak_tflops * 1e3 / self.bandwidth_gbs


@dataclass(frozen=True)
class Tile:
    """How C is cut into blocks, warps and threads, and how deep a block's step is; sizes in elements."""

    rows: int  #: m_s
    columns: int  #: n_s
    warp: tuple[int, int]  #: m_w, n_w
    thread: tuple[int, int]  #: m_t, n_t
    windows: int = 1  #: k_s / M
    packed: bool = False

    @property
    def threads(self) -> int:
        """Of a block; each computes m_t x n_t elements."""
        return self.rows * self.columns // math.prod(self.thread)

    def blocks(self, m: int, n: int) -> int:
        """Of a C of m x n."""
        return math.ceil(m / self.rows) * math.ceil(n / self.columns)


#: Table I: the recommended configuration of each class of matrices.
TABLE_1 = {
    "small": Tile(32, 32, (16, 32), (4, 4)),
    "medium": Tile(32, 64, (32, 32), (8, 4)),
    "large": Tile(64, 128, (64, 32), (8, 8)),
}
#: Table II: label -> (class, (m, n, k)).
TABLE_2 = {
    "A": ("small", (512, 512, 512)),
    "B": ("small", (512, 1024, 1024)),
    "C": ("medium", (512, 2048, 2048)),
    "D": ("medium", (1024, 2048, 2048)),
    "E": ("large", (2048, 4096, 4096)),
    "F": ("large", (4096, 4096, 4096)),
}
#: Table III, as far as the analysis uses it.
TABLE_3 = {
    device.name: device
    for device in (
        Device("A100", 108, 1410, 19.5, 1935, 192 * 1024, 40 * 2**20),
        Device("RTX 3090", 82, 1695, 35.6, 936, 128 * 1024, 6 * 2**20),
        Device("RTX 4090", 128, 2520, 82.6, 1008, 128 * 1024, 72 * 2**20),
    )
}


def device_of(device, peak_tflops: float, bandwidth_gbs: float) -> Device:
    """Return the GPU at hand as in Table III, from the properties of its `cuda.core.Device`.

    peak_tflops, bandwidth_gbs: measured, because the driver knows neither. Shared memory is what
    kernels may use of an SM, without the L1's part.
    """
    properties = device.properties
    return Device(
        device.name,
        properties.multiprocessor_count,
        properties.clock_rate / 1e3,  # of kHz
        peak_tflops,
        bandwidth_gbs,
        properties.max_shared_memory_per_multiprocessor,
        properties.l2_cache_size,
    )


# ---------------------------------------------------------------- Eq. 3, arithmetic intensity


def needed_share(density: float, vectors: int) -> float:
    """Return expected share of a window's M rows of A^T that a block of `vectors` vectors needs.

    That is the union of their choices, each N of M rows drawn independently: 1 - (1 - N/M)^q_s. It
    lies between the bounds of section III-A for the footprint of A_s, w_s / k_s (all choices equal)
    and 1 (all of k_s needed, or staged unpacked).
    """
    _require_share("density", density)
    require_whole("vectors", vectors, 1, INT32_MAX, "2^31 - 1")
    return 1 - (1 - density) ** vectors


def intensity(rows: int, columns: int, density: float, *, share: float = 1.0, depth: float = math.inf) -> float:
    """FLOP/B of a block, Eq. 3: 2 m_s n_s w_s FLOPs over the bytes of A_s and B_s.

    share: of A_s's k_s rows, those that are read: 1 unpacked (the upper bound of its footprint,
    m_s k_s), `density` at least (the lower one, m_s w_s), between them `needed_share`. depth: k_s;
    the block of C, m_s n_s, then counts too. Left out, C is spread over a k without end. The index
    D_s is ignored, as in the paper. With rows, columns and depth = m, n and k this is the intensity
    of the whole product, every operand moved once, as DRAM sees it where the L2 holds the rest.
    Raises ValueError for a share that is none, and for sizes under 1.
    """
    _require_share("density", density)
    _require_share("share", share)
    for name, value in (("rows", rows), ("columns", columns), ("depth", depth)):
        require(value >= 1, f"{name} is {value}, but a block has at least 1")
    moved = rows * share + columns * density + rows * columns / depth
    return 2 * rows * columns * density / (WORD * moved)


def attainable(device: Device, flops_per_byte: float) -> float:
    """TFLOP/s that the roofline allows at that intensity (section IV-E, Fig. 10)."""
    return min(device.peak_tflops, flops_per_byte * device.bandwidth_gbs / 1e3)


def transition(device: Device, rows: int, columns: int, *, vectors: int = 0, depth: float = math.inf) -> float:
    """Return the sparsity, 0 to 1, at which Eq. 3's intensity falls under the ridge (section III-A).

    Above it memory is the limit. 0 where that is so of the dense product already, 1 where it is so
    of no sparsity. vectors: those of a block that packs, as in `needed_share`; 0 without packing.
    depth: as in `intensity`.

    The paper says 70%, and that the point varies with the hardware. No reading gives 70% for all
    of Table III. On the A100 two surround it: the large block of Table I, unpacked, against the
    bandwidth of DRAM crosses at 77% without C, and at 62% with C and k_s = 192, that of Eq. 5 at
    50%. The ridges of the RTX 3090 and RTX 4090 are above even the dense block, so by the same
    reading memory is the limit throughout (0). The whole product, 4096 x 4096 x 4096, crosses at
    99, 96 and 92% on the three GPUs.
    """

    def under(density: float) -> bool:
        share = needed_share(density, vectors) if vectors else 1.0
        return intensity(rows, columns, density, share=share, depth=depth) < device.ridge

    low, high = 1e-9, 1.0  # of the density, along which the intensity rises
    if under(high):
        return 0.0
    if not under(low):
        return 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if under(middle) else (low, middle)
    return 1 - high


# ---------------------------------------------------------------- Eqs. 4 and 5, shared memory


def shared_bytes(rows: int, columns: int, windows: int, keep: int, group: int, *, vector: int | None = None) -> float:
    """Bytes of shared memory of a block's step, the left side of Eq. 5: A_s and B_s.

    A_s has room for all k_s = windows * M rows, packed or not. With `vector` = L the index D_s is
    counted too, as in Eq. 4: ceil(log2 M) bits for each of w_s * n_s / L vectors.
    """
    bits = math.ceil(columns / vector) * math.ceil(math.log2(group)) if vector else 0
    return windows * (WORD * (rows * group + columns * keep) + keep * bits / 8)


def largest_windows(shared: int, rows: int, columns: int, keep: int, group: int, *, vector: int | None = None) -> int:
    """Return the most pruning windows of a step: the largest k_s / M, and w_s / N, of Eq. 5.

    shared: bytes of shared memory of an SM, of which one half is kept for buffers and the rest. With
    `vector` the index counts, Eq. 4. 0 where not even one window fits.
    """
    return int(shared / 2 // shared_bytes(rows, columns, 1, keep, group, vector=vector))


# ---------------------------------------------------------------- Eq. 6, registers


def cmar(thread_rows: int, thread_columns: int, words: int = 4) -> float:
    """FMA instructions for each load from shared memory of a thread, Eq. 6: m_t n_t / (a (m_t + n_t)).

    words: floats of a load, 1 (LDS.32), 2 or 4 (LDS.128); a = 1 / words.
    """
    require(words in (1, 2, 4), f"words is {words}, but a load from shared memory has 1, 2 or 4")
    return thread_rows * thread_columns * words / (thread_rows + thread_columns)


def registers(thread_rows: int, thread_columns: int) -> int:
    """Return registers of a thread for its C, A and B: m_t n_t + m_t + n_t, at most 255 (III-B2)."""
    return thread_rows * thread_columns + thread_rows + thread_columns


# ---------------------------------------------------------------- what to launch


def class_of(device: Device, m: int, n: int) -> str:
    """Return the class of Table I for a C of m x n: the largest that gives every SM `BLOCKS_PER_SM` blocks."""
    for name in ("large", "medium"):
        if TABLE_1[name].blocks(m, n) >= BLOCKS_PER_SM * device.sm_count:
            return name
    return "small"


def propose(device: Device, m: int, n: int, k: int, keep: int, group: int, *, resident: int = 1) -> Tile:
    """Return the configuration that the analysis gives for C (m, n) = A (m, k) . B (k, n), B N:M.

    Block, warp and thread by `class_of` (Table I); packed above 70% sparsity (III-C1); k_s the
    largest that Eq. 5 allows and k needs. resident: blocks that share an SM's memory; the paper's
    equation has one. Raises ValueError where N:M is no pattern, or not one window fits.
    """
    for name, value in (("m", m), ("n", n), ("k", k), ("group", group), ("resident", resident)):
        require_whole(name, value, 1, INT32_MAX, "2^31 - 1")
    require_whole("keep", keep, 1, group, f"{group}, the rows of a window")
    tile = TABLE_1[class_of(device, m, n)]
    most = largest_windows(device.shared_bytes // resident, tile.rows, tile.columns, keep, group)
    require(
        most >= 1,
        f"a window of {group} rows does not fit half of the {device.shared_bytes} B of shared memory "
        f"of {device.name} among {resident} blocks: choose a smaller group",
    )
    windows = min(most, math.ceil(k / group))
    return replace(tile, windows=windows, packed=1 - keep / group > HIGH)


def _require_share(name: str, value: float) -> None:
    require(0 < value <= 1, f"{name} is {value}, but must be a share over 0 and up to 1")
