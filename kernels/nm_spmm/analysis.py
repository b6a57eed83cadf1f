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

from ..contract import require

WORD = 4  #: bytes of an element
HIGH = 0.70  #: the paper calls a sparsity above this one high, others moderate (III-A)
#: Fewest blocks per SM for a class of Table I to be proposed. The paper gives no rule; with this one
#: the sizes of Table II get the classes that it gives them, on every GPU of Table III.
BLOCKS_PER_SM = 3.5


@dataclass(frozen=True)
class Device:
    """What the analysis needs to know of a GPU."""

    name: str
    sm_count: int
    peak_tflops: float  #: FP32 on the CUDA cores
    bandwidth_gbs: float  #: of DRAM, or of what else the roofline is drawn for
    shared_bytes: int  #: of an SM; Table III gives it together with the L1

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
        Device("A100", 108, 19.5, 1935, 192 * 1024),
        Device("RTX 3090", 82, 35.6, 936, 128 * 1024),
        Device("RTX 4090", 128, 82.6, 1008, 128 * 1024),
    )
}


# ---------------------------------------------------------------- Eq. 3, arithmetic intensity


def needed_share(density: float, vectors: int) -> float:
    """Return expected share of a window's M rows of A^T that a block of `vectors` vectors needs.

    That is the union of their choices, each N of M rows drawn independently: 1 - (1 - N/M)^q_s. It
    lies between the bounds of section III-A for the footprint of A_s, w_s / k_s (all choices equal)
    and 1 (all of k_s needed, or staged unpacked).
    """
    return 1 - (1 - density) ** vectors


def intensity(rows: int, columns: int, density: float, *, share: float = 1.0, depth: float = math.inf) -> float:
    """FLOP/B of a block, Eq. 3: 2 m_s n_s w_s FLOPs over the bytes of A_s and B_s.

    share: of A_s's k_s rows, those that are read: 1 unpacked (the upper bound of its footprint,
    m_s k_s), `density` at least (the lower one, m_s w_s), between them `needed_share`. depth: k_s;
    the block of C, m_s n_s, then counts too. Left out, C is spread over a k without end. The index
    D_s is ignored, as in the paper. With rows, columns and depth = m, n and k this is the intensity
    of the whole product, every operand moved once, as DRAM sees it where the L2 holds the rest.
    """
    moved = rows * share + columns * density + rows * columns / depth
    return 2 * rows * columns * density / (WORD * moved)


def transition(device: Device, rows: int, columns: int, *, depth: float = math.inf) -> float:
    """Return the sparsity, 0 to 1, at which Eq. 3's intensity falls under the ridge (section III-A).

    Above it memory is the limit. 0 where that is so of the dense product already, 1 where it is so
    of no sparsity. depth: as in `intensity`.

    The paper says 70%, and that the point varies with the hardware. No reading gives 70% for all
    of Table III. On the A100 two surround it: the large block of Table I, unpacked, against the
    bandwidth of DRAM crosses at 77% without C, and at 62% with C and k_s = 192, that of Eq. 5 at
    50%. The ridges of the RTX 3090 and RTX 4090 are above even the dense block, so by the same
    reading memory is the limit throughout (0). The whole product, 4096 x 4096 x 4096, crosses at
    99, 96 and 92% on the three GPUs.
    """
    low, high = 1e-9, 1.0  # of the density, along which the intensity rises
    if intensity(rows, columns, high, depth=depth) < device.ridge:
        return 0.0
    if intensity(rows, columns, low, depth=depth) >= device.ridge:
        return 1.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if intensity(rows, columns, middle, depth=depth) < device.ridge else (low, middle)
    return 1 - high


# ---------------------------------------------------------------- Eqs. 5 and 6, shared memory and registers


def shared_bytes(rows: int, columns: int, windows: int, keep: int, group: int) -> int:
    """Bytes of shared memory of a block's step, the left side of Eq. 5: A_s, packed or not, and B_s."""
    return windows * WORD * (rows * group + columns * keep)


def cmar(thread_rows: int, thread_columns: int) -> float:
    """FMA instructions for each load of 4 floats from shared memory of a thread, Eq. 6: m_t n_t / (a (m_t + n_t)).

    a is the share of a load of a float, 1/4 in LDS.128.
    """
    return thread_rows * thread_columns * 4 / (thread_rows + thread_columns)


def registers(thread_rows: int, thread_columns: int) -> int:
    """Return registers of a thread for its C, A and B: m_t n_t + m_t + n_t, at most 255 (III-B2)."""
    return thread_rows * thread_columns + thread_rows + thread_columns


# ---------------------------------------------------------------- what to launch


def class_of(sms: int, m: int, n: int) -> str:
    """Return the class of Table I for a C of m x n: the largest that gives every SM `BLOCKS_PER_SM` blocks."""
    enough = (name for name in ("large", "medium") if TABLE_1[name].blocks(m, n) >= BLOCKS_PER_SM * sms)
    return next(enough, "small")


def propose(device: Device, m: int, n: int, k: int, keep: int, group: int) -> Tile:
    """Return the configuration that the analysis gives for C (m, n) = A (m, k) . B (k, n), B N:M.

    Block, warp and thread by `class_of` (Table I); packed above 70% sparsity (III-C1); k_s the
    largest that Eq. 5 allows and k needs: half of the memory is kept for buffers and the rest. Raises ValueError where
    not one window fits.
    """
    tile = TABLE_1[class_of(device.sm_count, m, n)]
    most = device.shared_bytes // 2 // shared_bytes(tile.rows, tile.columns, 1, keep, group)
    require(
        most >= 1,
        f"a window of {group} rows does not fit half of the {device.shared_bytes} B of shared memory of {device.name}: "
        "choose a smaller group",
    )
    return replace(tile, windows=min(most, math.ceil(k / group)), packed=1 - keep / group > HIGH)
