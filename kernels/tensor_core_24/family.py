"""Which configurations exist, which are valid, how long they may take, and what the tuner chooses from.

`MmaSp` is a configuration of the source's kernel, `Wgmma` one of Hopper's, `Fp8` one of those in e4m3. All say what
there is to compile, `source` and `entry`, what they take, and what a prediction gives them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from .. import jit, padding
from ..autotune import Choices, Rounds
from ..autotune.choices import UNSAID
from ..contract import Problem, require
from .operands import EIGHT, LABELS, ORDERS, OUTS, SCALES, instance_of, label_of
from .tiles import ACTIVATIONS, DRAM_BYTES, HERE, INT32_MAX, KEEP, SHARED_REACHED, TARGETS, WITHIN, Kind, Tile, limits

__all__ = ["ACTIVATIONS", "HERE", "INT32_MAX", "KEEP", "SHARED_REACHED", "TARGETS"]

# ---- the source's kernel

_DTYPES = {"bfloat16": "BF16", "float16": "F16"}

# ---- the source's kernel

#: What mma_sp.cu calls the values of a configuration.
_CACHES = {"cg": "CG", "ca": "CA"}
_METADATA = {
    "even_threads": "EVEN_THREADS",
    "all_threads": "ALL_THREADS",
    "first_warps": "FIRST_WARPS",
}
EPILOGUE_OF = {
    (False, False, False): "PLAIN",
    (True, False, False): "ALPHA",
    (True, True, False): "ALPHA | BETA",
    (True, False, True): "ALPHA | BIAS",
    (True, True, True): "ALPHA | BETA | BIAS",
}


@dataclass(frozen=True)
class MmaSp:
    """The knobs of the kernel, as mma_sp.cu describes them; the defaults are the published kernel."""

    bm: int = 128  #: rows of C that a block computes
    bn: int = 128  #: columns of C that a block computes
    bk: int = 64  #: columns of A in a stage
    wm: int = 64  #: rows of C that a warp computes, 32 or 64
    wn: int = 64  #: columns of C that a warp computes, 32 or 64
    stages: int = 3  #: of the cp.async pipeline
    cache: str = "cg"  #: copies of 16 bytes pass L1 by, "cg", or not, "ca"
    metadata: str = "even_threads"  #: or "first_warps": 16 bytes each; "all_threads": 8 by .ca
    selectors: int = 2  #: pairs of lanes that hold metadata in turns, or 1
    ldmatrix: int = 4  #: matrices of metadata at once: 4, of 64 columns of A, or 2, of 32
    group: int = 1  #: rows of tiles that neighbouring blocks share; 1: tiles row by row

    source = HERE / "mma_sp.cu"

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.bm // self.wm * (self.bn // self.wn) * 32

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block: in each stage, values and metadata of A and a part of B."""
        return self.stages * (self.bm * self.bk + 2 * self.bk * self.bn + self.bm * self.bk // 8)

    def takes(self, m: int, n: int, k: int, sms: int, shared_most: int, orders: str = "CC") -> bool:
        """Whether operands lie by rows, and a block finds its shared memory."""
        return orders == "CC" and self.shared_bytes <= shared_most

    def predict(self, *_) -> float:
        """Return 0: nobody ranks them."""
        return 0.0

    def check(self) -> MmaSp:
        """Return the configuration, or raise ValueError: one sentence, what the kernel is not made for."""
        c = self
        for name, known in (
            ("cache", tuple(_CACHES)),
            ("metadata", tuple(_METADATA)),
            ("bm", (64, 128, 256)),
            ("bn", (64, 128, 256)),
            ("bk", (64, 128)),
            ("wm", (32, 64)),
            ("wn", (32, 64)),
            ("selectors", (1, 2)),
            ("ldmatrix", (2, 4)),
            ("stages", range(2, INT32_MAX)),
            ("group", range(1, INT32_MAX)),
        ):
            value, least = getattr(c, name), f"a whole number from {known[0]}"
            choice = least if isinstance(known, range) else f"one of {', '.join(map(str, known))}"
            require(value in known, f"{name} is {value!r}, but must be {choice}")
        require(
            c.ldmatrix == 4 or (c.selectors == 2 and c.wm == 64),
            f"ldmatrix.x2 needs both selectors and warps of 64 rows, not {c.selectors} and {c.wm}",
        )
        require(
            32 <= c.threads <= 256,
            f"a tile of {c.bm} x {c.bn} in warps of {c.wm} x {c.wn} takes {c.threads} threads, but the "
            "registers of a multiprocessor are enough for 256",
        )
        return c

    def entry(self, dtype: str, mask: bool = False, align: int = 16, epilogue: str = "PLAIN") -> str:
        """Return the template instantiation for a dtype; align: bytes that divide every row of B and C."""
        c = self.check()
        return (
            f"mma_sp<{_DTYPES[dtype]}, {c.bm}, {c.bn}, {c.bk}, {c.wm}, {c.wn}, {c.stages}, "
            f"{_CACHES[c.cache]}, {_METADATA[c.metadata]}, {c.selectors}, {c.ldmatrix}, {c.group}, "
            f"{align}, {str(mask).lower()}, {epilogue}>"
        )


PUBLISHED = MmaSp()
#: The side studies of the source, each the published kernel but for one decision.
STUDIES: dict[str, MmaSp] = {
    "mma_sp_ca": MmaSp(cache="ca"),
    "mma_sp_all_threads": MmaSp(metadata="all_threads"),
    "mma_sp_two_warps": MmaSp(metadata="first_warps"),
    "mma_sp_one_selector": MmaSp(selectors=1),
    "mma_sp_x2": MmaSp(ldmatrix=2),
    "mma_sp_stages_2": MmaSp(stages=2),
    "mma_sp_stages_4": MmaSp(stages=4),
    "mma_sp_stages_5": MmaSp(stages=5),
}
#: What a tuner chooses from: the source's "family of kernels". Not all fit into every GPU's shared
#: memory; `takes` says which do.
MMA_SP_FAMILY: tuple[MmaSp, ...] = (
    PUBLISHED,
    MmaSp(group=8),
    MmaSp(stages=4, group=8),
    MmaSp(wn=32, group=8),
    MmaSp(wn=32, stages=4, group=8),
    MmaSp(bn=256, stages=2, group=8),
    MmaSp(bn=256, group=4),
    MmaSp(bm=256, stages=2, group=4),
    MmaSp(bm=256, group=4),
    MmaSp(bm=64, bn=128, wm=32, stages=4, group=8),
    MmaSp(bm=128, bn=64, wn=32, stages=4, group=8),
    MmaSp(bm=64, bn=64, wm=32, wn=32, stages=4),
    MmaSp(bm=64, bn=64, bk=128, wm=32, wn=32, stages=4),
)


# ---- Hopper's kernels

K = 64  #: columns of A in a stage
GRID_Y = 65535  #: blocks of a grid along y, at most
AT_LAUNCH = 128  #: registers of a thread at launch where warpgroups exchange some afterwards
NARROW = (8, 16, 32)  #: columns of a tile for few tokens


class Pieces(NamedTuple):
    """How the tiles of wgmma_pieces are cut."""

    whole: int  #: tiles that are not, of whole waves, or all
    groups: int  #: blocks of 64 rows of a piece of the others
    pieces: int  #: of them, one for an SM at most


def cut_into_pieces(count: int, groups: int, sms: int) -> Pieces:
    """Pieces as low as there are SMs for those of the last wave; where there are too few SMs, all tiles are whole.

    count: tiles; groups: blocks of 64 rows of each.
    """
    rest = count % sms
    cuts = ((lower, rest * ceil(groups / lower)) for lower in range(1, groups))
    return next((Pieces(count - rest, *cut) for cut in cuts if cut[1] <= sms), Pieces(count, groups, 0))


def shared_tiles(count: int, sms: int) -> int:
    """Tiles that stream_k cuts along k: none where they divide evenly, else one wave and the rest."""
    return 0 if count % sms == 0 else count % sms + sms


def whole_tiles(count: int, sms: int) -> int:
    """Tiles that last_wave does not cut: those of whole waves, or all where more than half a wave remains.

    sms: rounded down to an even number, as clusters of two have it.
    """
    wave = sms // 2 * 2
    return count - count % wave if count % wave <= wave // 2 else count


_QUIET, _ALWAYS = ("",), ("a", "b")
_ANY: dict[str, Any] = {"orders": tuple(ORDERS)}
_THREE: dict[str, Any] = {"groups": (3,), "rows": (192,)}
_EXCHANGING: dict[str, Any] = {**_THREE, "keep": _QUIET, "exchanging": True, "stages": range(4, 33, 2)}
_FEW: dict[str, Any] = {"keep": _ALWAYS, "stays": False, "splits": range(1, 9), "narrow": NARROW}
KINDS: dict[str, Kind] = {
    "one_stage": Kind(producer=False, adds=False, keep=_QUIET, stays=False, groups=(1,), stages=(1,)),
    "ring": Kind(producer=False, keep=_QUIET, stays=False, groups=(1,)),
    "specialised": Kind(adds=False, keep=_QUIET, stays=False),
    "persistent": Kind(),
    "packed": Kind(packed=True, keep=_ALWAYS),
    "multicast": Kind(adds=False, keep=_ALWAYS, below=2),
    "stream_k": Kind(),
    "split_k": Kind(**(_FEW | {"keep": Kind.keep}), **_ANY),
    "few": Kind(**_FEW, packed=True, widths=(64,), orders=("FF",)),
    "lean": Kind(**_ANY, narrow=NARROW),
    "rounds": Kind(**_ANY, stages=range(2, 33, 2)),
    "last_wave": Kind(**_ANY, pairs=True),
    "refilling": Kind(producer=False, adds=False, **_THREE, stages=range(3, 33)),
    "gpc": Kind(adds=False, everywhere=True),
    "clusters": Kind(**_ANY, keep=_ALWAYS, stays=False, share=(2, 4)),
    "three": Kind(**_ANY, **_EXCHANGING),
    "pieces": Kind(**_EXCHANGING, adds=False, box=64),
    "cp_async": Kind(
        producer=False,
        keep=_QUIET,
        stays=False,
        deep=4,
        groups=(1,),
        rows=(64,),
        widths=(16, 32, 64),
        buffers=(0,),
    ),
}
#: These add beta·C and a bias, too.
COMPLETE = tuple(name for name, kind in KINDS.items() if kind.adds)

#: What a row of B costs the copy engine, by the bytes at whose multiples rows begin, over one that begins at a line of
#: 128: about what wgmma_lean took longer at n = 1000, 4112 and 4128 on an H200. It only says what is worth a trial.
ROW_COST = {16: 2.0, 32: 1.25, 64: 1.1}


def begin_at(n: int) -> int:
    """Bytes at whose multiples rows of n 16-bit elements begin, 128 at most: a line of L2."""
    return min(2 * n & -2 * n, padding.LINE)


def line_cost(n: int, k: int, orders: str = "CC") -> float:
    """Of B's lines, rows or columns: 1 where they begin at whole lines of L2."""
    return ROW_COST.get(begin_at(k if orders[0] == "F" else n), 1.0)


#: Sums that blocks of a cluster give each other in a clock, and the share of DRAM's time that is not hidden. Of 15
#: products of layers on an H100, 16 to 4096 tokens, each with 20 to 44 candidates: what is predicted to be the fastest
#: took 1.025 times as long as what was, in the mean, and 1.08 without these two.
EXCHANGED, FROM_DRAM = 5.5, 0.05


@dataclass(frozen=True)
class Wgmma(Tile):
    """The knobs of the kernels, as sparse_stages.cuh and store.cuh describe them."""

    NAME: ClassVar[str] = "wgmma"
    K: ClassVar[int] = K
    KINDS: ClassVar[dict[str, Kind]] = KINDS
    INSTEAD: ClassVar[str] = "use mma_sp"

    share: int = 1  #: blocks, one below the other, that fetch B for each other; clusters only
    copied: bool = False  #: whether B is copied first, to rows that begin at multiples of 128 bytes
    #: Whether A lies in the order of use, where a kernel that takes orders leaves it open.
    packed: bool = field(default=False, metadata=UNSAID)

    def entry(self, dtype: str, extra: bool | str = False, orders: str = "CC") -> str:
        """Return the template instantiation for a dtype.

        extra: with beta·C and bias, or one of `ACTIVATIONS` behind them; orders: of B and C in memory.
        """
        c, kind = self, self.kind
        tile = [c.groups, c.blocks, c.n, c.stages, c.splits if len(kind.splits) > 1 else c.buffers]
        if kind.deep > 1:
            tile = [c.n, c.stages]
        elif kind.groups == (1,):
            tile = [c.blocks, c.n, *([c.stages] if len(kind.stages) > 1 else [])]
        adds = [extra.upper() if isinstance(extra, str) else str(extra).lower()] if kind.adds else []
        share = [c.share] if len(kind.share) > 1 else []
        layout = ["K_MAJOR" if orders[0] == "F" else "MN_MAJOR", str(orders[1] == "F").lower()]
        layout += ["true"] if c.packed else []
        said = len(kind.orders) > 1 and (orders != "CC" or c.packed)
        return f"{c.name}<{', '.join(map(str, (_DTYPES[dtype], *tile, *adds, *share, *(layout if said else ()))))}>"

    def check(self, m: int, n: int, k: int, sms: int, shared_most: int, orders: str = "CC") -> None:
        """Raise ValueError where tiles of any kernel do not take a problem, or this kernel's alone do not."""
        super().check(m, n, k, sms, shared_most, orders)
        c, kernel, steps, (high, wide) = self, self.kernel, ceil(k / K), self.tiles(m, n)
        for holds, said in (
            (
                not c.packed or (c.kind.ordered and not c.kind.packed),
                f"{c.name} has A in one order only: leave packed out",
            ),
            (
                not c.copied or line_cost(n, k, orders) > 1,
                "copied is for lines of B that begin at multiples of 16 bytes and not of 128, not for lines of "
                f"{k if orders[0] == 'F' else n} elements: leave it out",
            ),
            (
                kernel != "rounds" or steps % c.stages == 0,
                f"rounds goes through the {steps} steps of {K} columns in whole rounds of stages, not of {c.stages}: "
                "use lean",
            ),
            (
                kernel != "last_wave" or c.blocks * c.n % 128 == 0,
                f"last_wave shares the squares of {c.blocks} x {c.n} sums of a warpgroup between two blocks, but they "
                "are an odd number: use another tile",
            ),
            (
                kernel != "last_wave" or 2 * c.m * c.n <= c.stages * c.step_bytes,
                f"last_wave passes half of {c.m} x {c.n} sums through the memory of its {c.stages} stages: use more of "
                "them",
            ),
            (
                kernel != "gpc" or 2 * c.shared_bytes >= shared_most,
                f"gpc counts on one block for each multiprocessor, but two with {c.shared_bytes} bytes of shared "
                "memory have room: use a larger tile or more stages",
            ),
            (
                kernel != "stream_k" or high * wide >= sms,
                f"stream_k shares {high} x {wide} tiles among {sms} multiprocessors, each of which must get at least "
                "one: use split_k or a smaller tile",
            ),
            (
                kernel != "cp_async" or wide <= GRID_Y,
                f"wgmma_cp_async has a row of blocks for {c.n} columns of C and may have {GRID_Y} of them, not {wide} "
                f"for n={n}: use lean",
            ),
        ):
            require(holds, said)

    def predict(self, m: int, n: int, k: int, sms: int, orders: str = "CC") -> float:
        """Cycles, to rank configurations: what bounds a step, times steps, times waves.

        Lines of B that do not begin at whole ones of L2 take the copy engine longer, `line_cost`, unless they are
        copied first, through DRAM.
        """
        c, (high, wide) = self, self.tiles(m, n)
        asked = c.n * 128 / c.share * (1.0 if c.copied else line_cost(n, k, orders))  # of B: bytes that take as long
        high = ceil(high / c.share) * c.share
        count, steps, full = high * wide, ceil(c.steps(k) / c.splits), c.clocks(c.groups * c.blocks, asked)
        waves: float = ceil(count * c.splits / sms)
        added = c.splits > 1  # whether blocks of a cluster give each other sums
        if c.kernel == "last_wave" and count / sms % 1 <= 0.5 and steps > 1:
            waves, added = ceil(2 * count / sms) / 2, True
        elif c.kernel == "pieces":
            cut = cut_into_pieces(count, c.groups, sms)
            waves = ceil(cut.whole / sms) + bool(cut.pieces) * c.clocks(cut.groups, asked) / full
        fill, store = 2000 + added * c.m * c.n / EXCHANGED, 1500 + c.m * c.n / 64
        if c.kind.deep > 1:  # nothing waits for tensor maps, C passes through no shared memory
            fill, store = 1000, 500 + c.m * c.n / 64
        if c.copied:  # B is read and written once more; what TMA cannot address at all is copied by everybody
            fill += 2000 + 4 * n * k / DRAM_BYTES
        down = min(c.band, high)
        across = min(ceil(sms / down), wide)
        down = min(high, max(down, ceil(sms / wide)))
        read = (down * c.m * 9 / 8 + 2 * across * c.n) * K  # bytes of a step of all that are worked on at a time
        waited = FROM_DRAM * max(count * c.splits / sms, 1) * steps * read / DRAM_BYTES
        return waves * (steps * full + store) + fill + waited


#: The Hopper ladder: configuration, idea, and what was expected of it before it was measured.
RUNGS: dict[str, tuple[Wgmma, str, str]] = {
    "wgmma_one_stage": (
        Wgmma("one_stage", 1, 2, 128, 1, 1, band=1),
        "wgmma.sp from one stage of shared memory, filled by TMA; waits for each other take turns",
        "1.3x over mma_sp: the instruction is 1.7 times as fast, and three blocks an SM hide some of the waiting.",
    ),
    "wgmma_ring": (
        Wgmma("ring", 1, 2, 128, 4, 1, band=1),
        "a ring of four stages: copies run ahead",
        "1.3x over one stage: the latency of L2 passes behind three steps of multiplication.",
    ),
    "wgmma_specialised": (
        Wgmma("specialised", 2, 1, 256, 4, 2, band=1),
        "a producer warp and two warpgroups with most of the registers, 128 x 256 of C",
        "1.3x over the ring: twice the tile reads two thirds of the bytes for each multiplication.",
    ),
    "wgmma_persistent": (
        Wgmma("persistent", 2, 1, 256, 4, 2, band=1),
        "one block for each SM goes from tile to tile; C is stored while the next tile is copied",
        "1.1x: four tiles an SM at 4096 cubed, each with some 2 of 30 us to fill the ring and to store.",
    ),
    "wgmma_bands": (
        Wgmma("persistent", 2, 1, 256, 4, 2, band=16),
        "tiles in bands of 16 rows, so that what the SMs read at a time is as high as wide",
        "1.05x: at 8192 cubed a wave of tiles reads 50 MB instead of 138 from DRAM.",
    ),
    "wgmma_keep": (
        Wgmma("persistent", 2, 1, 256, 4, 2, band=16, keep="a"),
        "L2 is asked to keep A, which the next tiles of the band read again, and to let B go",
        "1.03x: less DRAM traffic, and power is what the clock depends on.",
    ),
    "wgmma_multicast": (
        Wgmma("multicast", 2, 1, 256, 4, 2, band=8, keep="a"),
        "clusters of two blocks: each fetches half of B for both",
        "1.05x: 25 instead of 41 KiB from L2 for each step.",
    ),
    "wgmma_tall": (
        Wgmma("persistent", 2, 2, 192, 4, 2, band=8, keep="a"),
        "256 x 192 of C a block, 192 accumulators a thread",
        "1.08x over wgmma_keep where the tiles divide evenly: 28 instead of 41 KiB from L2 for each 128 x 256 x 64.",
    ),
    "wgmma_packed": (
        Wgmma("packed", 2, 2, 192, 4, 2, band=8, keep="a"),
        "wgmma_tall with A in the order of use: each stage's part lies side by side",
        "1.02x over wgmma_tall: half of the requests for A, which are 256 of 452 a stage.",
    ),
    "wgmma_stream_k": (
        Wgmma("stream_k", 2, 1, 256, 4, 2, band=16, keep="a"),
        "the first tiles are cut along k, so that every SM gets the same number of steps",
        "1.03x over wgmma_keep at 4096 and 8192 cubed, whose last wave is 88 and 52% full; sums cost 5 us.",
    ),
    "wgmma_split_k": (
        Wgmma("split_k", 2, 1, 128, 6, 1, 2, keep="b"),
        "a cluster of two blocks shares the steps of a tile and adds in shared memory",
        "Ahead of one block for each tile where there are fewer than 66 tiles, behind where there are more.",
    ),
    "wgmma_lean": (
        Wgmma("lean", 2, 1, 256, 4, 2, band=16, keep="a"),
        "wgmma_keep, with descriptors and addresses counted up, not made anew for every step",
        "1.01x over wgmma_keep: 28 instructions of a warp for each step instead of 52.",
    ),
    "wgmma_lean_tall": (
        Wgmma("lean", 2, 2, 192, 4, 2, band=8, keep="a"),
        "the same with 256 x 192 of C a block",
        "1.01x over wgmma_tall, for the same reason.",
    ),
    "wgmma_rounds": (
        Wgmma("rounds", 2, 1, 256, 4, 2, band=16, keep="a"),
        "wgmma_lean for a k of whole rounds of the ring, each stage in a place that the compiler knows",
        "1.01x over wgmma_lean: 17 instructions of a warp for each step instead of 28.",
    ),
    "wgmma_last_wave": (
        Wgmma("last_wave", 2, 2, 192, 4, 2, band=8, keep="a"),
        "wgmma_lean_tall; the last wave, where it is at most half full, cut along k by clusters of two",
        "1.02x over wgmma_lean_tall: 10.5 waves instead of 11 at 8192 cubed, none less at 4096 cubed.",
    ),
    "wgmma_refilling": (
        Wgmma("refilling", 3, 1, 256, 4, 1, band=12, keep="a"),
        "192 x 256 of C by three warpgroups, whose warps refill the ring in turn",
        "1.03x over wgmma_lean_tall: 864 clocks of shared memory instead of 896 for each 49,152 elements of C.",
    ),
    "wgmma_three": (
        Wgmma("three", 3, 1, 256, 4, 1, band=12),
        "192 x 256 of C by three warpgroups and a fourth that copies, which exchange registers after launch",
        "1.05x over wgmma_refilling: 864 clocks of shared memory for each step, and nobody stops to copy.",
    ),
    "wgmma_pieces": (
        Wgmma("pieces", 3, 1, 256, 4, 1, band=12),
        "the same; where few tiles are left for the last wave, it computes lower ones",
        "1.03x over wgmma_three at 8192 cubed: 10.7 waves instead of 11; none less at 4096 cubed.",
    ),
    "wgmma_cp_async": (
        Wgmma("cp_async", 1, 1, 32, 4, 0),
        "64 x 32 tiles for products of microseconds: threads copy, past tensor maps and the copy engine",
        "Far behind with many tiles; 1.1x over wgmma_ring at 512 cubed: one trip to DRAM less, as many tiles as SMs.",
    ),
    "wgmma_clusters": (
        Wgmma("clusters", 2, 1, 256, 4, 2, keep="a", share=2),
        "wgmma_lean by clusters of two blocks that fetch B for each other",
        "1.0x over wgmma_lean; 1.8x where rows of B begin at odd multiples of 16 bytes: 656, not 1168, clocks a step.",
    ),
    "wgmma_gpc": (
        Wgmma("gpc", 2, 1, 256, 4, 2, band=8, keep="a"),
        "wgmma_lean, with tiles that follow each other on the SMs of one GPC",
        "1.05x over wgmma_lean, if neighbours' reads merge on their way to L2: half of what its slices handle.",
    ),
}


# ---- what the tuner chooses from

#: The Hopper family: tiles by their share of waves and of bytes, with the orders that L2 likes.
WGMMA_FAMILY: tuple[Wgmma, ...] = (
    *(Wgmma("rounds", 2, 1, 256, 4, 2, band=band, keep="a") for band in (8, 16, 22, 32)),
    *(Wgmma("rounds", 2, 2, 192, 4, 2, band=band, keep="a") for band in (4, 8, 11, 16)),
    *(Wgmma("rounds", 2, 1, 128, 8, 1, keep=keep) for keep in ("", "b")),
    Wgmma("rounds", 1, 1, 128, 8, 2, keep="b"),
    *(Wgmma("rounds", groups, 1, 64, 8, 1) for groups in (1, 2)),
    *(Wgmma("lean", 2, 1, 256, 4, 2, band=band, keep="a") for band in (8, 16, 22, 32)),
    *(Wgmma("lean", 2, 1, 256, 5, 1, band=16, keep=keep) for keep in ("a", "b")),
    Wgmma("lean", 2, 1, 256, 4, 2, band=16, keep="b"),
    *(Wgmma("lean", 2, 2, 192, 4, 2, band=band, keep="a") for band in (4, 8, 11, 16)),
    *(Wgmma("last_wave", 2, 2, 192, 4, 2, band=band, keep="a") for band in (4, 8, 11, 16)),
    *(Wgmma("last_wave", 2, 1, 256, 4, 2, band=band, keep="a") for band in (8, 16)),
    Wgmma("three", 3, 1, 256, 4, 1, band=12),
    *(Wgmma("pieces", 3, 1, 256, 4, 1, band=band) for band in (8, 12, 16)),
    *(Wgmma("lean", 2, 2, 128, 5, 2, band=8, keep=keep) for keep in ("a", "b")),
    *(Wgmma("lean", 2, 1, 192, 5, 2, band=16, keep=keep) for keep in ("", "a")),
    *(Wgmma("lean", 1, 2, 128, 6, 2, keep=keep) for keep in ("", "b")),
    *(Wgmma("lean", 2, 1, 128, 6, 1, keep=keep) for keep in ("", "b")),
    *(Wgmma("last_wave", 2, 1, 128, 6, 1, keep=keep) for keep in ("", "b")),
    *(Wgmma("lean", 1, 1, 128, 8, 2, keep=keep) for keep in ("", "b")),
    *(Wgmma("lean", 1, 1, 64, stages, 1) for stages in (8, 10)),
    Wgmma("lean", 2, 1, 64, 8, 1),
    Wgmma("lean", 1, 2, 64, 8, 1),
    *(Wgmma("cp_async", 1, 1, n, stages, 0) for n, most in ((16, 6), (32, 6), (64, 4)) for stages in (3, most)),
    Wgmma("cp_async", 1, 1, 32, 4, 0),
    Wgmma("cp_async", 1, 1, 64, 2, 0),
    *(Wgmma("ring", 1, 1, 64, stages, 1) for stages in (3, 4, 5, 6, 8)),
    *(Wgmma("ring", 1, 1, 128, stages, 1) for stages in (4, 5)),
    *(Wgmma("ring", 1, 2, 64, stages, 1) for stages in (4, 5)),
    *(Wgmma("split_k", 1, 2, 128, 6, 1, 2, keep=keep) for keep in ("", "b")),
    *(Wgmma("split_k", 2, 1, 128, 6, 1, 2, keep=keep) for keep in ("", "b")),
    *(Wgmma("split_k", 2, 2, 128, 5, 1, splits, keep="b") for splits in (2, 3)),
    Wgmma("split_k", 1, 1, 64, 6, 1, 2),
    Wgmma("split_k", 1, 1, 128, 6, 1, 2),
    # Where rows of B do not begin at whole lines: the copy engine's requests shared, or B copied first.
    *(
        Wgmma("clusters", *tile, 1, keep="b", share=share)
        for tile in ((1, 1, 64, 10), (1, 2, 64, 8), (2, 1, 64, 8), (2, 1, 128, 6), (1, 2, 128, 6))
        for share in (2, 4)
    ),
    Wgmma("clusters", 1, 1, 64, 10, 1, keep="a", share=2),
    *(Wgmma("clusters", 2, 1, 256, 4, 2, keep="a", share=share) for share in (2, 4)),
    Wgmma("clusters", 2, 2, 192, 4, 2, keep="a", share=4),
    *(Wgmma(kernel, 2, 1, 256, 4, 2, keep="a", copied=True) for kernel in ("rounds", "lean", "last_wave")),
    *(Wgmma(kernel, 2, 2, 192, 4, 2, keep="a", copied=True) for kernel in ("lean", "last_wave")),
    Wgmma("rounds", 2, 1, 256, 4, 2, band=16, keep="a", copied=True),
    *(Wgmma(kernel, 2, 1, 128, 6, 1, keep="b", copied=True) for kernel in ("lean", "last_wave")),
    Wgmma("lean", 2, 2, 128, 5, 2, keep="a", copied=True),
    Wgmma("split_k", 2, 1, 128, 6, 1, 2, keep="b", copied=True),
)
#: For few tokens, B and C by columns: steps are shared by many blocks, and tiles are as wide as need be.
NARROW_FAMILY: tuple[Wgmma, ...] = (
    *(Wgmma("lean", groups, 1, n, 12, 1, keep="b") for groups in (1, 2) for n in NARROW),
    *(
        Wgmma("split_k", groups, 1, n, 12, 1, splits, keep="b")
        for groups in (1, 2)
        for n in NARROW
        for splits in (2, 4)
    ),
    *(Wgmma("split_k", groups, 1, 64, 8, 1, splits, keep="b") for groups in (1, 2) for splits in (2, 4)),
    *(
        Wgmma("few", groups, 1, n, stages, 1, splits, keep="b")
        for groups, stages in ((1, 8), (2, 5), (2, 8))
        for n in (*NARROW, 64)
        for splits in (1, 2, 3, 4, 8)
    ),
)


# ---- in e4m3

FP8_NARROW = (16, 32)  #: columns of a tile for few tokens
_WIDTHS = (16, 32, 64, 96, 128, 144, 160, 176, 184, 192, 256)  #: of wgmma_eight.cuh
_OUTS = {"bfloat16": "TO_BF16", "e4m3": "TO_E4M3"}

_KEPT = ("", "a", "b", "ab")
_BOTH: dict[str, Any] = {"keep": _KEPT, "orders": ("CC", "FF")}
_PAIRS: dict[str, Any] = {**_BOTH, "keep": _KEPT[1:], "below": 2}
_PACKED: dict[str, Any] = {**_BOTH, "packed": True}
FP8_KINDS: dict[str, Kind] = {
    "persistent": Kind(**_BOTH),
    "multicast": Kind(**_PAIRS),
    "refilling": Kind(**_BOTH, **_THREE, stages=range(3, 33), producer=False),
    "packed": Kind(**_PACKED, narrow=FP8_NARROW),
    "direct": Kind(**_PACKED, buffers=(0,), widths=_WIDTHS),
    "pairs": Kind(**_PACKED | _PAIRS, buffers=(0,), rows=(64, 128)),
    "split_k": Kind(**_PACKED, narrow=FP8_NARROW, buffers=(1,), splits=range(2, 9), stays=False),
}


@dataclass(frozen=True)
class Fp8(Tile):
    """The knobs of the kernels, as fp8_stages.cuh and store_eight.cuh describe them."""

    NAME: ClassVar[str] = "fp8"
    K: ClassVar[int] = 128
    KINDS: ClassVar[dict[str, Kind]] = FP8_KINDS
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

    def predict(self, m: int, n: int, k: int, sms: int, orders: str = "CC") -> float:
        """Cycles, to rank configurations: nobody is faster than DRAM brings the operands and takes C."""
        c, (high, wide) = self, self.grid(m, n)
        waves = ceil(high * wide * c.cluster / sms)
        store = 1500 + c.m * c.n / 64 + (3000 if c.splits > 1 else 0)
        steps = waves * ceil(c.steps(k) / c.splits) * c.clocks(c.groups * c.blocks) + waves * store
        return 2000 + max(steps, (m * k * 5 / 8 + n * k + 2 * m * n) / DRAM_BYTES)


#: The ladder: configuration, idea, and what was expected of it before it was measured.
FP8_RUNGS: dict[str, tuple[Fp8, str, str]] = {
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

#: What the tuner chooses from, as WGMMA_FAMILY: what won or came near anywhere, and what is new.
FP8_FAMILY: tuple[Fp8, ...] = (
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
FP8_NARROW_FAMILY: tuple[Fp8, ...] = (
    *(Fp8("packed", groups, 1, n, 10, 1, keep="b") for groups in (1, 2) for n in FP8_NARROW),
    *(
        Fp8("split_k", groups, 1, n, 10, 1, splits, keep="b")
        for groups in (1, 2)
        for n in FP8_NARROW
        for splits in (2, 3, 4, 8)
    ),
)


# ---- what the tuner tries, and keeps


@functools.lru_cache(1024)
def likely(eight: bool, m: int, n: int, k: int, sms: int, most: int, orders: str = "CC") -> tuple[Any, ...]:
    """Return Hopper's configurations that take a problem and are not ruled out by prediction.

    sms, most: of the GPU, see `Tile.check`. Blocks that wait for each other were nowhere ahead where lines of B begin
    at whole ones of L2.
    """
    apart = line_cost(n, k, orders) > 1
    family: list[Any] = [c for c in (FP8_FAMILY if eight else WGMMA_FAMILY) if apart or c.kernel != "clusters"]
    if orders == "FF":
        family += FP8_NARROW_FAMILY if eight else NARROW_FAMILY
        family += [] if eight else [replace(c, packed=True) for c in family if c.kind.ordered and not c.kind.packed]
    times = {c: c.predict(m, n, k, sms, orders) for c in family if c.takes(m, n, k, sms, most, orders)}
    least = min(times.values(), default=0.0)
    return tuple(c for c, time in times.items() if time <= WITHIN * least)


def candidates(problem: Problem, device) -> list[Any]:
    """Return what takes the problem on this GPU, without what a prediction rules out: Hopper's, or the source's."""
    of, eight = (problem.m, problem.n, problem.k, *limits(device), problem.orders), dtype_of(problem) == EIGHT
    if jit.arch_of(device) in TARGETS:
        return [*likely(eight, *of)]
    return [config for config in MMA_SP_FAMILY if config.takes(*of) and not eight]


def fits(config: Wgmma | MmaSp | Fp8, problem: Problem, device) -> bool:
    """Whether the GPU takes a configuration for the problem."""
    there = isinstance(config, MmaSp) or jit.arch_of(device) in TARGETS
    taken = config.takes(problem.m, problem.n, problem.k, *limits(device), problem.orders)
    return there and taken and isinstance(config, Fp8) == (dtype_of(problem) == EIGHT)


def jobs(configs, problem: Problem) -> list[tuple[Path, str]]:
    """(source, entry) to compile for the problem; `mma_sp.prepare` compiles its own, which depend on alignment."""
    dtype, *scaled = instance_of(problem.device())
    return [(c.source, c.entry(dtype, False, problem.orders, *scaled)) for c in configs if not isinstance(c, MmaSp)]


def complete(config: Wgmma | MmaSp, more) -> Wgmma | MmaSp:
    """Return the same tile from a kernel that adds C and a bias, where `more` than a product is asked for."""
    if not more or not isinstance(config, Wgmma) or config.kind.adds:
        return config
    if config.kind.exchanging:
        return replace(config, kernel="three")
    return replace(config, kernel="lean", groups=min(config.groups, 2))  # refilling has three: nobody only copies


def sources(config: Wgmma | MmaSp | Fp8) -> set[Path]:
    """Return what a configuration was tried against: the kernels of its family."""
    every = (*WGMMA_FAMILY, *NARROW_FAMILY, *MMA_SP_FAMILY, *FP8_FAMILY)
    return {member.source for member in every if type(member) is type(config)}


#: Where choices are kept. Any: whoever looks one up says by `fits` which of the families it is of.
CHOICES: Choices[Any] = Choices(
    "tensor_core_24",
    HERE / "choices",
    {"m": int, "n": int, "k": int, "dtype": str},
    {"wgmma": Wgmma, "mma_sp": MmaSp, "fp8": Fp8},
    sources,
)
ROUNDS = Rounds(first=4, final=9, finalists=4, short_us=40, factor=3)
#: The system's own labels tell the dtype, so that looking a choice up makes no operands.
_LABELLED = {label_of(x, orders): x for x in LABELS for orders in ORDERS}
_LABELLED |= {label_of(EIGHT, orders, scale, out): EIGHT for orders in ORDERS for scale in SCALES for out in OUTS}


def dtype_of(problem: Problem) -> str:
    """Return the dtype of A and B."""
    return _LABELLED.get(getattr(problem, "label", "")) or problem.device().a.dtype


def key(problem: Problem) -> tuple[int, int, int, str]:
    """Return what a choice is kept under."""
    dtype = dtype_of(problem)
    orders = "" if problem.orders == "CC" else f" {problem.orders}"  # as files of choices had it before
    return problem.m, problem.n, problem.k, problem.label if dtype == EIGHT else dtype + orders
