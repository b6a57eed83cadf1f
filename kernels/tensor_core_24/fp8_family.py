"""The FP8 kernels of Hopper: which configurations exist, which are valid, what they need, how long they may take."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path

from .. import tma
from ..contract import require

HERE = Path(__file__).parent
TARGETS = ("sm_90a",)
INT32_MAX = 2**31 - 1
K = 128  #: columns of A in a stage
KERNELS = ("persistent", "multicast", "refilling", "packed", "direct", "pairs", "split_k")
PACKED = ("packed", "direct", "pairs", "split_k")  #: take A in the order of use
DIRECT = ("direct", "pairs")  #: write C from registers
KEEP = {"": 0, "a": 1, "b": 2, "ab": 3}
WIDTHS = (16, 32, 64, 96, 128, 144, 160, 176, 184, 192, 256)  #: of wgmma_eight.cuh
#: Bytes that pass between DRAM and the L2 of an H200 in a cycle, at most.
DRAM_BYTES = 2600
SHARED_REACHED = 0.92  #: as of family.py
_OUTS = {"bfloat16": "TO_BF16", "e4m3": "TO_E4M3"}


@dataclass(frozen=True)
class Fp8:
    """The knobs of the kernels, as fp8_stages.cuh and store_eight.cuh describe them."""

    kernel: str = "persistent"  #: fp8_<kernel>.cu
    groups: int = 2  #: warpgroups that multiply
    blocks: int = 1  #: blocks of 64 rows of C of each
    n: int = 256  #: columns of C that a block computes
    stages: int = 4  #: of the ring
    buffers: int = 2  #: squares of 64 x 64 that a warpgroup stores C through
    splits: int = 1  #: blocks that share the steps of a tile; split_k only
    band: int = 8  #: rows of tiles, or of pairs of them, that are worked on at a time
    keep: str = ""  #: what L2 is asked to keep, "a", "b" or "ab"; the other one it may let go
    ahead: int = 0  #: bytes of B that L2 fetches at a time from DRAM; 0: those of a stage

    @property
    def m(self) -> int:
        """Rows of C that a block computes."""
        return 64 * self.groups * self.blocks

    @property
    def pairs(self) -> bool:
        """Whether blocks work in pairs, one below the other."""
        return self.kernel in ("multicast", "pairs")

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return 2 if self.pairs else self.splits

    @property
    def threads(self) -> int:
        return 128 * (self.groups + (self.kernel != "refilling"))  # one more warpgroup, which copies

    @property
    def source(self) -> Path:
        return HERE / f"fp8_{self.kernel}.cu"

    def entry(
        self,
        out: str = "bfloat16",
        rows: bool = False,
        columns: bool = False,
        orders: str = "CC",
        extra: bool | str = False,
    ) -> str:
        """The template instantiation; out: dtype of C; rows, columns: scales for each of A's and B's; orders: "FF": C
        by columns; extra: with a bias, or an activation behind it (`family.ACTIVATIONS`)."""
        c, flags = self, f"{str(rows).lower()}, {str(columns).lower()}"
        if extra:
            added = extra.upper() if isinstance(extra, str) else "ADDS"
            flags += f", {str(orders == 'FF').lower()}, {added}"
        elif orders == "FF":
            flags += ", true"
        last = c.splits if c.kernel == "split_k" else c.buffers
        tile = f"{c.groups}, {c.blocks}, {c.n}, {c.stages}, {last}"
        return f"fp8_{c.kernel}<{tile}, {_OUTS[out]}, {flags}>"

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: the ring, rounded to 1024, and the squares of each warpgroup."""
        stage = self.m * K // 2 + self.n * K + self.m * K // 8
        squares = 0 if self.kernel in DIRECT else self.groups * self.buffers * 8192
        return -(-self.stages * stage // 1024) * 1024 + squares

    def tiles(self, m: int, n: int) -> tuple[int, int]:
        """Tiles, or pairs of them, in a column and tiles in a row of C."""
        return ceil(m / (2 * self.m if self.pairs else self.m)), ceil(n / self.n)

    def check(self, m: int, n: int, k: int, shared_most: int, orders: str = "CC") -> None:
        """Raise ValueError, one sentence, where a configuration does not take a problem on a GPU.

        shared_most: bytes of shared memory that a block may have; orders: "FF": C by columns.
        """
        c, refilling = self, self.kernel == "refilling"
        narrow = (16, 32) if orders == "FF" and c.kernel in ("packed", "split_k") else ()
        for what, value, known in (
            ("kernel", c.kernel, KERNELS),
            ("groups", c.groups, (3,) if refilling else (1, 2)),
            ("rows of a tile", c.m, {"refilling": (192,), "pairs": (64, 128)}.get(c.kernel, (64, 128, 256))),
            ("n", c.n, WIDTHS if c.kernel == "direct" else (*narrow, 64, 128, 192, 256)),
            ("keep", c.keep, tuple(KEEP)[1:] if c.pairs else tuple(KEEP)),
            ("ahead", c.ahead, tuple(tma.AHEAD)),
            ("buffers", c.buffers, {"split_k": (1,), **dict.fromkeys(DIRECT, (0,))}.get(c.kernel, range(1, 17))),
            ("splits", c.splits, range(2, 9) if c.kernel == "split_k" else (1,)),
            ("stages", c.stages, range(3 if refilling else 2, 33)),
        ):
            ends = f"{known[0]} to {known[-1]}" if isinstance(known, range) else ""
            choice = ends or ", ".join(map(repr, known))
            require(value in known, f"fp8_{c.kernel} has {what} {value!r}, but takes {choice}")
        require(c.band >= 1, f"fp8_{c.kernel} has bands of {c.band} rows of tiles: give it 1 or more")
        require(
            c.blocks * c.n <= 384,
            f"fp8_{c.kernel} keeps {c.blocks} x {c.n} / 2 sums in a thread, but has registers for 192: "
            "use a smaller tile",
        )
        require(
            max(m, n, k) <= INT32_MAX // 2,
            f"fp8_{c.kernel} takes sizes up to {INT32_MAX // 2}, not m={m}, n={n}, k={k}: multiply in several ranges",
        )
        require(
            c.shared_bytes + 1024 <= shared_most,
            f"fp8_{c.kernel} with {c.stages} stages of {c.m} x {c.n} needs {c.shared_bytes} bytes of shared "
            f"memory and a KiB for its barriers, but a block may have {shared_most}: use fewer stages",
        )
        if c.kernel == "split_k":
            require(
                ceil(k / K) >= c.splits,
                f"fp8_split_k cannot cut {ceil(k / K)} steps of {K} columns into {c.splits} parts: use fewer",
            )
            require(
                4 * c.m * c.n <= c.stages * (c.m * K // 2 + c.n * K + c.m * K // 8),
                f"fp8_split_k adds {c.m} x {c.n} sums in the memory of its {c.stages} stages: use more stages",
            )


#: The ladder: configuration, idea, and what was expected of it before it was measured.
RUNGS: dict[str, tuple[Fp8, str, str]] = {
    "fp8_persistent": (
        Fp8("persistent", 2, 1, 256, 4, 2, band=16, keep="a"),
        "wgmma_keep on e4m3: 128 columns of A in a stage of as many bytes",
        "1.9x over wgmma_keep: twice the multiplications for each byte and cycle, the same time to store C.",
    ),
    "fp8_tall": (
        Fp8("persistent", 2, 2, 192, 4, 2, band=8, keep="a"),
        "256 x 192 of C a block, 192 accumulators a thread",
        "1.05x over fp8_persistent where tiles divide evenly: 29 instead of 42 KiB from L2 for each 128 x 256 x 128.",
    ),
    "fp8_refilling": (
        Fp8("refilling", 3, 1, 256, 4, 1, band=11, keep="a"),
        "192 x 256 of C a block, three warpgroups that refill the ring in turn",
        "1.04x over fp8_tall where tiles divide evenly: 864 instead of 896 cycles of shared memory a step.",
    ),
    "fp8_multicast": (
        Fp8("multicast", 2, 1, 256, 4, 2, band=8, keep="a"),
        "clusters of two blocks: each fetches half of B for both",
        "1.0x: half of B's reads of L2, but the port to the SM, which bounds a step, sees the same bytes.",
    ),
    "fp8_packed": (
        Fp8("packed", 2, 1, 256, 5, 1, band=16, keep="a"),
        "fp8_persistent with A and its metadata in the order of use, five stages and one square",
        "1.08x over fp8_persistent: a stage more is worth 7% at 4096 cubed, 80 instead of 144 requests for A the rest.",
    ),
    "fp8_direct": (
        Fp8("direct", 2, 2, 176, 5, 0, band=8, keep="a"),
        "C from registers to memory: all shared memory is ring, and the width is one that fills waves",
        "1.05x over fp8_packed at 4096 cubed: three full waves of 256 x 176, three quarters of the bytes of a step.",
    ),
    "fp8_pairs": (
        Fp8("pairs", 2, 1, 256, 5, 0, band=8, keep="ab"),
        "fp8_direct in clusters of two blocks, which fetch B for each other",
        "1.15x over fp8_packed at 16384 cubed: 26 instead of 42 KiB a step from L2, asked for by neighbours in step.",
    ),
    "fp8_split_k": (
        Fp8("split_k", 2, 1, 128, 6, 1, 2, keep="b"),
        "a cluster of two blocks shares the steps of a tile and adds in shared memory",
        "Ahead of one block for each tile where there are fewer than 66 tiles, behind where there are more.",
    ),
}

#: What the tuner chooses from, as WGMMA_FAMILY of family.py: what won or came near anywhere, and what is new.
FAMILY: tuple[Fp8, ...] = (
    Fp8("persistent", 2, 1, 256, 4, 2, band=16, keep="a"),
    *(Fp8("persistent", 2, 2, 192, 4, 2, band=band, keep="a") for band in (8, 11)),
    *(Fp8("packed", 2, 1, 256, 5, 1, band=band, keep="a") for band in (12, 16, 22)),
    *(Fp8("packed", 2, 1, 256, 5, 1, band=band) for band in (8, 16)),
    Fp8("packed", 2, 1, 256, 5, 1, band=16, keep="ab"),
    Fp8("packed", 2, 1, 256, 5, 1, band=16, keep="a", ahead=256),
    *(Fp8("packed", 2, 2, 192, 4, 2, band=band, keep="a") for band in (4, 8, 11, 16)),
    *(Fp8("packed", 2, 2, 192, 4, 2, band=8, keep=keep) for keep in ("", "ab")),
    *(Fp8("direct", 2, 1, 256, 5, 0, band=band, keep="a") for band in (16, 22)),
    *(Fp8("direct", 2, 1, 256, 5, 0, band=16, keep=keep) for keep in ("b", "ab")),
    Fp8("direct", 2, 1, 256, 5, 0, band=8),
    Fp8("direct", 2, 1, 256, 5, 0, band=16, keep="a", ahead=256),
    *(Fp8("pairs", 2, 1, 256, 5, 0, band=band, keep="ab") for band in (4, 8, 16)),
    *(Fp8("pairs", 2, 1, 256, 5, 0, band=band, keep="a") for band in (8, 16)),
    *(Fp8("direct", 2, 2, 192, 5, 0, band=8, keep=keep) for keep in ("", "a")),
    Fp8("direct", 2, 2, 184, 5, 0, band=8, keep="a"),
    *(Fp8("direct", 2, 2, 176, 5, 0, band=band, keep="a") for band in (4, 8)),
    Fp8("direct", 2, 2, 176, 5, 0, band=8, keep="ab"),
    Fp8("direct", 2, 2, 160, 5, 0, band=8, keep="a"),
    *(Fp8("direct", 2, 2, 144, 5, 0, band=band, keep="a") for band in (6, 12)),
    *(Fp8("direct", 2, 2, 128, 6, 0, band=8, keep=keep) for keep in ("a", "b")),
    Fp8("direct", 2, 1, 192, 6, 0, band=16, keep="a"),
    *(Fp8("direct", 2, 1, 128, 8, 0, keep=keep) for keep in ("", "b")),
    Fp8("direct", 1, 2, 128, 8, 0, keep="b"),
    Fp8("direct", 1, 1, 256, 5, 0, keep="b"),
    *(Fp8("direct", 1, 1, 128, 10, 0, keep=keep) for keep in ("", "b")),
    *(Fp8("direct", 2, 1, 64, 12, 0, keep=keep) for keep in ("", "b")),
    *(Fp8("direct", 1, 1, 64, 16, 0, keep=keep) for keep in ("", "b")),
    *(Fp8("direct", 1, 1, 32, 22, 0, keep=keep) for keep in ("", "b")),
    *(Fp8("direct", 1, 1, 16, 30, 0, keep=keep) for keep in ("", "b")),
    Fp8("persistent", 1, 1, 128, 8, 2, keep="b"),
    Fp8("persistent", 2, 1, 64, 8, 1, keep="b"),
    *(Fp8("split_k", 1, 1, 64, 8, 1, splits, keep=keep) for splits in (2, 4) for keep in ("", "b")),
    *(Fp8("split_k", 2, 1, 64, 8, 1, splits, keep="b") for splits in (2, 4)),
    Fp8("split_k", 1, 1, 128, 6, 1, 2, keep="b"),
    *(Fp8("split_k", 2, 1, 128, 6, 1, splits, keep="b") for splits in (2, 3)),
    Fp8("split_k", 1, 2, 128, 6, 1, 2, keep="b"),
    Fp8("split_k", 2, 2, 128, 5, 1, 2, keep="b"),
)
#: For few tokens, C by columns.
NARROW_FAMILY: tuple[Fp8, ...] = (
    *(Fp8("packed", groups, 1, n, 10, 1, keep="b") for groups in (1, 2) for n in (16, 32)),
    *(
        Fp8("split_k", groups, 1, n, 10, 1, splits, keep="b")
        for groups in (1, 2)
        for n in (16, 32)
        for splits in (2, 3, 4, 8)
    ),
)
#: Of the candidates, those within this factor of the least predicted time are tried.
WITHIN = 1.5


def candidates(m: int, n: int, k: int, sms: int, shared_most: int, orders: str = "CC") -> list[Fp8]:
    """What takes the problem, without what a prediction rules out."""
    predicted = {
        c: predict(c, m, n, k, sms)
        for c in (*FAMILY, *(NARROW_FAMILY if orders == "FF" else ()))
        if fits(c, m, n, k, shared_most, orders)
    }
    least = min(predicted.values(), default=0.0)
    return [config for config, time in predicted.items() if time <= WITHIN * least]


def fits(config: Fp8, m: int, n: int, k: int, shared_most: int, orders: str = "CC") -> bool:
    """Whether a configuration takes the problem."""
    try:
        config.check(m, n, k, shared_most, orders)
    except ValueError:
        return False
    return True


def predict(config: Fp8, m: int, n: int, k: int, sms: int) -> float:
    """Cycles of a configuration, to rank them, as family.predict: a step is of 128 columns of A here, and nobody is
    faster than DRAM brings the operands and takes C."""
    c = config
    rows = c.groups * c.blocks  # of 64
    math = rows * c.n
    shared = rows * (128 * c.n + 4096) / 128 / SHARED_REACHED
    copied = (c.m * 80 + c.n * 128) / 64
    high, wide = c.tiles(m, n)
    waves = ceil(high * wide * c.cluster / sms)
    fill, store = 2000, 1500 + c.m * c.n / 64 + (3000 if c.splits > 1 else 0)
    steps = waves * ceil(ceil(k / K) / c.splits) * max(math, shared, copied) + waves * store
    return fill + max(steps, (m * k * 5 / 8 + n * k + 2 * m * n) / DRAM_BYTES)


def worth_keeping(n: int) -> str:
    """The operand that L2 is best asked to keep, where all else is equal: B while it is small."""
    return "b" if n <= 1024 else "a"
