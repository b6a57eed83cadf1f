"""Both families of kernels: which configurations exist, which are valid, what they need, how long they may take.

`MmaSp` is a configuration of the source's kernel, `Wgmma` one of Hopper's. Both say what there is to
compile: `source` and `entry`.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import jit, padding
from ..autotune import Choices, Rounds
from ..autotune.choices import UNSAID
from ..contract import Problem, require
from . import fp8_family, gpcs, tiles
from .operands import LABELS, ORDERS, label_of
from .tiles import ACTIVATIONS, HERE, INT32_MAX, KEEP, SHARED_REACHED, TARGETS, Kind, Own, Rules, Tile, limits

__all__ = ["ACTIVATIONS", "HERE", "INT32_MAX", "KEEP", "SHARED_REACHED", "TARGETS"]

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
EPILOGUES = tuple(EPILOGUE_OF.values())


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

    def fits(self, device) -> bool:
        """Whether a block finds its shared memory on a `cuda.core.Device`."""
        return self.shared_bytes <= device.properties.max_shared_memory_per_block_optin

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
#: memory; `fits` says which do.
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


# What a kernel alone refuses, is given, and takes: see `Kind`.


def _in_whole_rounds(c: Wgmma, m: int, n: int, k: int, *_) -> Rules:
    said = f"rounds goes through the {ceil(k / K)} steps of {K} columns in whole rounds of stages, not of {c.stages}"
    yield ceil(k / K) % c.stages == 0, f"{said}: use lean"


def _halved(c: Wgmma, *_) -> Rules:
    said = f"last_wave shares the squares of {c.blocks} x {c.n} sums of a warpgroup between two blocks, but they are"
    yield c.blocks * c.n % 128 == 0, f"{said} an odd number: use another tile"
    said = f"last_wave passes half of {c.m} x {c.n} sums through the memory of its {c.stages} stages"
    yield 2 * c.m * c.n <= c.stages * c.step_bytes, f"{said}: use more of them"


def _one_for_each(c: Wgmma, m: int, n: int, k: int, sms: int, shared_most: int) -> Rules:
    said = f"gpc counts on one block for each multiprocessor, but two with {c.shared_bytes} bytes of shared memory"
    yield 2 * c.shared_bytes >= shared_most, f"{said} have room: use a larger tile or more stages"


def _enough_for_all(c: Wgmma, m: int, n: int, k: int, sms: int, *_) -> Rules:
    high, wide = c.tiles(m, n)
    said = f"stream_k shares {high} x {wide} tiles among {sms} multiprocessors, each of which must get at least one"
    yield high * wide >= sms, f"{said}: use split_k or a smaller tile"


def _in_a_grid(c: Wgmma, m: int, n: int, *_) -> Rules:
    wide = c.tiles(m, n)[1]
    said = f"wgmma_cp_async has a row of blocks for {c.n} columns of C and may have {GRID_Y} of them, not {wide}"
    yield wide <= GRID_Y, f"{said} for n={n}: use lean"


def _count(c: Wgmma, sizes, device) -> tuple[int, int]:
    high, wide = c.grid(sizes.m, sizes.n)
    return high * wide, device.properties.multiprocessor_count


def _own_of_last_wave(c: Wgmma, sizes, device) -> Own:
    count, sms = _count(c, sizes, device)
    return Own((np.int32(whole_tiles(count, sms) if c.steps(sizes.k) > 1 else count),))


def _own_of_pieces(c: Wgmma, sizes, device) -> Own:
    count, sms = _count(c, sizes, device)
    cut = cut_into_pieces(count, c.groups, sms)
    return Own((np.int32(cut.whole), np.int32(cut.groups)), count=cut.whole + cut.pieces)


def _places(c: Wgmma, sizes, device) -> Own:
    places = gpcs.places(device.device_id)
    return Own((places.data.ptr,), (places,))


def _shares(c: Wgmma, sizes, device) -> Own:
    import cupy

    count, sms = _count(c, sizes, device)
    sums = cupy.empty((sms, c.m * c.n), cupy.float32)
    handovers = cupy.zeros((sms, c.groups, 2), cupy.uint32)  # `Handover`s
    cut = np.int32(shared_tiles(count, sms))
    return Own((cut, sums.data.ptr, handovers.data.ptr), (sums, handovers), (sums, handovers))


def _waves_cut_in_two(c: Wgmma, count: int, steps: int, sms: int, asked: float) -> tuple[float, bool]:
    waves = count / sms
    return (ceil(2 * waves) / 2, True) if waves % 1 <= 0.5 and steps > 1 else (ceil(waves), False)


def _waves_of_pieces(c: Wgmma, count: int, steps: int, sms: int, asked: float) -> tuple[float, bool]:
    cut = cut_into_pieces(count, c.groups, sms)
    lower = bool(cut.pieces) * c.clocks(cut.groups, asked) / c.clocks(c.groups * c.blocks, asked)
    return ceil(cut.whole / sms) + lower, False


_QUIET, _ALWAYS = ("",), ("a", "b")
_ANY: dict[str, Any] = {"orders": tuple(ORDERS)}
_THREE: dict[str, Any] = {"groups": (3,), "rows": (192,)}
_EXCHANGING: dict[str, Any] = {**_THREE, "keep": _QUIET, "exchanging": True, "stages": range(4, 33, 2)}
_FEW: dict[str, Any] = {"keep": _ALWAYS, "stays": False, "splits": range(1, 9), "narrow": NARROW}
_PIECES: dict[str, Any] = {"box": 64, "own": _own_of_pieces, "waves": _waves_of_pieces}
_HALVES: dict[str, Any] = {"rules": _halved, "own": _own_of_last_wave, "waves": _waves_cut_in_two}
KINDS: dict[str, Kind] = {
    "one_stage": Kind(producer=False, adds=False, keep=_QUIET, stays=False, groups=(1,), stages=(1,)),
    "ring": Kind(producer=False, keep=_QUIET, stays=False, groups=(1,)),
    "specialised": Kind(adds=False, keep=_QUIET, stays=False),
    "persistent": Kind(),
    "packed": Kind(packed=True, keep=_ALWAYS),
    "multicast": Kind(adds=False, keep=_ALWAYS, below=2),
    "stream_k": Kind(rules=_enough_for_all, own=_shares),
    "split_k": Kind(**(_FEW | {"keep": Kind.keep}), **_ANY),
    "few": Kind(**_FEW, packed=True, widths=(64,), orders=("FF",)),
    "lean": Kind(**_ANY, narrow=NARROW),
    "rounds": Kind(**_ANY, stages=range(2, 33, 2), rules=_in_whole_rounds),
    "last_wave": Kind(**_ANY, **_HALVES, pairs=True),
    "refilling": Kind(producer=False, adds=False, **_THREE, stages=range(3, 33)),
    "gpc": Kind(adds=False, everywhere=True, rules=_one_for_each, own=_places),
    "clusters": Kind(**_ANY, keep=_ALWAYS, stays=False, share=(2, 4)),
    "three": Kind(**_ANY, **_EXCHANGING),
    "pieces": Kind(**_EXCHANGING, **_PIECES, adds=False),
    "cp_async": Kind(
        producer=False,
        keep=_QUIET,
        stays=False,
        deep=4,
        groups=(1,),
        rows=(64,),
        widths=(16, 32, 64),
        buffers=(0,),
        rules=_in_a_grid,
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


def row_cost(n: int) -> float:
    """Of rows of n 16-bit elements: 1 where they begin at whole lines, or are copied to such rows for everybody."""
    return ROW_COST.get(begin_at(n), 1.0)


def lines_of(n: int, k: int, orders: str) -> int:
    """Elements of B side by side: of a row, or of a column."""
    return k if orders[0] == "F" else n


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

    @property
    def below(self) -> int:
        return max(self.kind.below, self.share)

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

    def rules(self, m: int, n: int, k: int, orders: str) -> Rules:
        c, kind, length = self, self.kind, lines_of(n, k, orders)
        shares = ", ".join(map(str, kind.share))
        yield c.share in kind.share, f"{c.name} has share {c.share!r}, but takes {shares}"
        free = kind.ordered and not kind.packed
        yield not c.packed or free, f"{c.name} has A in one order only: leave packed out"
        said = "copied is for lines of B that begin at multiples of 16 bytes and not of 128, not for lines of"
        yield not c.copied or row_cost(length) > 1, f"{said} {length} elements: leave it out"


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


@functools.cache
def _family(orders: str, apart: bool) -> tuple[Wgmma, ...]:
    """Return what there is for memory orders of B and C. apart: lines of B do not begin at whole ones of L2.

    Blocks that wait for each other were nowhere ahead where they do.
    """
    family = [c for c in WGMMA_FAMILY if apart or c.kernel != "clusters"]
    if orders == "FF":
        family += NARROW_FAMILY
        family += [replace(c, packed=True) for c in family if c.kind.ordered and not c.kind.packed]
    return tuple(family)


@functools.lru_cache(1024)
def likely(m: int, n: int, k: int, sms: int, most: int, orders: str = "CC") -> tuple[Wgmma, ...]:
    """Return what takes a problem and is not ruled out by prediction. sms, most: of the GPU, see `Tile.check`."""
    return tiles.likely(_family(orders, row_cost(lines_of(n, k, orders)) > 1), predict, m, n, k, sms, most, orders)


def candidates(problem: Problem, device) -> list[Wgmma | MmaSp]:
    """Return what takes the problem on this GPU, without what a prediction rules out: Hopper's, or the source's."""
    if jit.arch_of(device) not in TARGETS:
        return [config for config in MMA_SP_FAMILY if config.fits(device)]
    return list(likely(problem.m, problem.n, problem.k, *limits(device), problem.orders))


def fits(config: Wgmma | MmaSp | fp8_family.Fp8, problem: Problem, device) -> bool:
    """Whether the GPU takes a configuration for the problem, whose operands have 16 bits."""
    if isinstance(config, MmaSp):
        return config.fits(device) and problem.orders == "CC"
    taken = config.takes(problem.m, problem.n, problem.k, *limits(device), problem.orders)
    return isinstance(config, Wgmma) and taken and jit.arch_of(device) in TARGETS


def jobs(configs, problem: Problem) -> list[tuple[Path, str]]:
    """(source, entry) to compile for the problem; `mma_sp.prepare` compiles its own, which depend on alignment."""
    dtype = problem.device().a.dtype
    return [(c.source, c.entry(dtype, orders=problem.orders)) for c in configs if isinstance(c, Wgmma)]


def complete(config: Wgmma | MmaSp, more) -> Wgmma | MmaSp:
    """Return the same tile from a kernel that adds C and a bias, where `more` than a product is asked for."""
    if not more or not isinstance(config, Wgmma) or config.kind.adds:
        return config
    if config.kind.exchanging:
        return replace(config, kernel="three")
    return replace(config, kernel="lean", groups=min(config.groups, 2))  # refilling has three: nobody only copies


#: Sums that blocks of a cluster give each other in a clock, and the share of DRAM's time that is not hidden. Of 15
#: products of layers on an H100, 16 to 4096 tokens, each with 20 to 44 candidates: what is predicted to be the fastest
#: took 1.025 times as long as what was, in the mean, and 1.08 without these two.
EXCHANGED, FROM_DRAM = 5.5, 0.05


def predict(config: Wgmma, m: int, n: int, k: int, sms: int, orders: str = "CC") -> float:
    """Cycles of a Hopper configuration, to rank them: what bounds a step, times steps, times waves.

    Rows of B that do not begin at whole lines take the copy engine longer, `row_cost`, unless they are copied first,
    through DRAM.
    """
    c, kind = config, config.kind
    cost = 1.0 if c.copied else row_cost(lines_of(n, k, orders))
    asked = c.n * 128 / c.share * cost  # of B's rows, as bytes that take as long
    high, wide = c.tiles(m, n)
    high = ceil(high / c.share) * c.share
    steps = ceil(c.steps(k) / c.splits)
    full = c.clocks(c.groups * c.blocks, asked)
    waves, shared = kind.waves(c, high * wide, steps, sms, asked)
    fill, store = 2000 + shared * c.m * c.n / EXCHANGED, 1500 + c.m * c.n / 64
    if kind.deep > 1:  # nothing waits for tensor maps, C passes through no shared memory
        fill, store = 1000, 500 + c.m * c.n / 64
    if c.copied:  # B is read and written once more; what TMA cannot address at all is copied by everybody
        fill += 2000 + 4 * n * k / tiles.DRAM_BYTES
    down = min(c.band, high)
    across = min(ceil(sms / down), wide)
    down = min(high, max(down, ceil(sms / wide)))
    read = (down * c.m * 9 / 8 + 2 * across * c.n) * K  # bytes of a step of all that are worked on at a time
    waited = FROM_DRAM * max(high * wide * c.splits / sms, 1) * steps * read / tiles.DRAM_BYTES
    return waves * (steps * full + store) + fill + waited


def sources(config: Wgmma | MmaSp | fp8_family.Fp8) -> set[Path]:
    """Return what a configuration was tried against: the kernels of its family."""
    every = (*WGMMA_FAMILY, *NARROW_FAMILY, *MMA_SP_FAMILY, *fp8_family.FAMILY)
    return {member.source for member in every if type(member) is type(config)}


#: Where choices are kept. Any: whoever looks one up says by `fits` which of the families it is of.
CHOICES: Choices[Any] = Choices(
    "tensor_core_24",
    HERE / "choices",
    {"m": int, "n": int, "k": int, "dtype": str},
    {"wgmma": Wgmma, "mma_sp": MmaSp, "fp8": fp8_family.Fp8},
    sources,
)
ROUNDS = Rounds(first=4, final=9, finalists=4, short_us=40, factor=3)


def key(problem: Problem) -> tuple[int, int, int, str]:
    # The system's own labels tell the dtype, so that looking a choice up makes no operands.
    dtypes = {label_of(dtype, orders): dtype for dtype in LABELS for orders in ORDERS}
    dtype = dtypes.get(getattr(problem, "label", "")) or problem.device().a.dtype
    orders = "" if problem.orders == "CC" else f" {problem.orders}"  # as files of choices had it before
    return problem.m, problem.n, problem.k, dtype + orders
