"""The FP8 kernels of Hopper: which configurations exist, which are valid, what they need, how long they may take."""

from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar

from .. import tma
from . import tiles
from .tiles import Kind, Rules, Tile

K = 128  #: columns of A in a stage
NARROW = (16, 32)  #: columns of a tile for few tokens
WIDTHS = (16, 32, 64, 96, 128, 144, 160, 176, 184, 192, 256)  #: of wgmma_eight.cuh
_OUTS = {"bfloat16": "TO_BF16", "e4m3": "TO_E4M3"}

_KEEP = ("", "a", "b", "ab")
_ANY: dict[str, Any] = {"keep": _KEEP, "orders": ("CC", "FF")}
_PAIRS: dict[str, Any] = {**_ANY, "keep": _KEEP[1:], "below": 2}
_PACKED: dict[str, Any] = {**_ANY, "packed": True}
_THREE: dict[str, Any] = {"groups": (3,), "rows": (192,), "stages": range(3, 33)}
KINDS: dict[str, Kind] = {
    "persistent": Kind(**_ANY),
    "multicast": Kind(**_PAIRS),
    "refilling": Kind(**_ANY, **_THREE, producer=False),
    "packed": Kind(**_PACKED, narrow=NARROW),
    "direct": Kind(**_PACKED, buffers=(0,), widths=WIDTHS),
    "pairs": Kind(**_PACKED | _PAIRS, buffers=(0,), rows=(64, 128)),
    "split_k": Kind(**_PACKED, narrow=NARROW, buffers=(1,), splits=range(2, 9), stays=False),
}


@dataclass(frozen=True)
class Fp8(Tile):
    """The knobs of the kernels, as fp8_stages.cuh and store_eight.cuh describe them."""

    NAME: ClassVar[str] = "fp8"
    K: ClassVar[int] = K
    KINDS: ClassVar[dict[str, Kind]] = KINDS
    INSTEAD: ClassVar[str] = "FP8 has no other kernel here"

    ahead: int = 0  #: bytes of B that L2 fetches at a time from DRAM; 0: those of a stage

    def entry(
        self,
        out: str = "bfloat16",
        extra: bool | str = False,
        orders: str = "CC",
        rows: bool = False,
        columns: bool = False,
    ) -> str:
        """Return the template instantiation.

        out: dtype of C; extra: with a bias, or an activation behind it (`ACTIVATIONS`); orders: "FF": C by columns;
        rows, columns: scales for each of A's and B's.
        """
        c, by_columns = self, orders == "FF"
        flags = [rows, columns, *([by_columns] if extra or by_columns else [])]
        added = [extra.upper() if isinstance(extra, str) else "ADDS"] if extra else []
        last = c.splits if len(c.kind.splits) > 1 else c.buffers
        knobs = (c.groups, c.blocks, c.n, c.stages, last, _OUTS[out], *(str(x).lower() for x in flags), *added)
        return f"{c.name}<{', '.join(map(str, knobs))}>"

    def rules(self, m: int, n: int, k: int, orders: str) -> Rules:
        """Yield what must hold for sizes and orders, each with its sentence."""
        known = ", ".join(map(str, tma.AHEAD))
        yield self.ahead in tma.AHEAD, f"{self.name} has ahead {self.ahead!r}, but takes {known}"


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
    *(Fp8("packed", groups, 1, n, 10, 1, keep="b") for groups in (1, 2) for n in NARROW),
    *(
        Fp8("split_k", groups, 1, n, 10, 1, splits, keep="b")
        for groups in (1, 2)
        for n in NARROW
        for splits in (2, 3, 4, 8)
    ),
)


def likely(m: int, n: int, k: int, sms: int, shared_most: int, orders: str = "CC") -> tuple[Fp8, ...]:
    """Return what takes the problem, without what a prediction rules out."""
    family = (*FAMILY, *(NARROW_FAMILY if orders == "FF" else ()))
    return tiles.likely(family, predict, m, n, k, sms, shared_most, orders)


def predict(config: Fp8, m: int, n: int, k: int, sms: int, orders: str = "CC") -> float:
    """Cycles of a configuration, to rank them, as family.predict.

    A step is of 128 columns of A here, and nobody is faster than DRAM brings the operands and takes C.
    """
    c, (high, wide) = config, config.grid(m, n)
    waves = ceil(high * wide * c.cluster / sms)
    store = 1500 + c.m * c.n / 64 + (3000 if c.splits > 1 else 0)
    steps = waves * ceil(c.steps(k) / c.splits) * c.clocks(c.groups * c.blocks) + waves * store
    return 2000 + max(steps, (m * k * 5 / 8 + n * k + 2 * m * n) / tiles.DRAM_BYTES)
