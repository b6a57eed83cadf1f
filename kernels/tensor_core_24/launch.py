"""The room's variants: the source's kernel and its side studies, the Hopper ladder, and the tuned choice."""

from __future__ import annotations

from pathlib import Path

from kernels.contract import Bound, Kernel, Problem, require
from kernels.tensor_core_24 import mma_sp, tuner, wgmma
from kernels.tensor_core_24.operands import ROOM
from kernels.tensor_core_24.wgmma import Config

HERE = Path(__file__).parent
BASELINES = ("cusparselt", "cublaslt")

#: The Hopper ladder: configuration, idea, and what was expected of it before it was measured.
LADDER: dict[str, tuple[Config, str, str]] = {
    "wgmma_one_stage": (
        Config("one_stage", 1, 2, 128, 1, 1, band=1),
        "wgmma.sp from one stage of shared memory, filled by TMA; waits for each other take turns",
        "1.3x over mma_sp: the instruction is 1.7 times as fast, and three blocks an SM hide some of the waiting.",
    ),
    "wgmma_ring": (
        Config("ring", 1, 2, 128, 4, 1, band=1),
        "a ring of four stages: copies run ahead",
        "1.3x over one stage: the latency of L2 passes behind three steps of multiplication.",
    ),
    "wgmma_specialised": (
        Config("specialised", 2, 1, 256, 4, 2, band=1),
        "a producer warp and two warpgroups with most of the registers, 128 x 256 of C",
        "1.3x over the ring: twice the tile reads two thirds of the bytes for each multiplication.",
    ),
    "wgmma_persistent": (
        Config("persistent", 2, 1, 256, 4, 2, band=1),
        "one block for each SM goes from tile to tile; C is stored while the next tile is copied",
        "1.1x: four tiles an SM at 4096 cubed, each with some 2 of 30 us to fill the ring and to store.",
    ),
    "wgmma_bands": (
        Config("persistent", 2, 1, 256, 4, 2, band=16),
        "tiles in bands of 16 rows, so that what the SMs read at a time is as high as wide",
        "1.05x: at 8192 cubed a wave of tiles reads 50 MB instead of 138 from DRAM.",
    ),
    "wgmma_keep": (
        Config("persistent", 2, 1, 256, 4, 2, band=16, keep="a"),
        "L2 is asked to keep A, which the next tiles of the band read again, and to let B go",
        "1.03x: less DRAM traffic, and power is what the clock depends on.",
    ),
    "wgmma_multicast": (
        Config("multicast", 2, 1, 256, 4, 2, band=8, keep="a"),
        "clusters of two blocks: each fetches half of B for both",
        "1.05x: 25 instead of 41 KiB from L2 for each step.",
    ),
    "wgmma_tall": (
        Config("persistent", 2, 2, 192, 4, 2, band=8, keep="a"),
        "256 x 192 of C a block, 192 accumulators a thread",
        "1.08x over wgmma_keep where the tiles divide evenly: 28 instead of 41 KiB from L2 for each 128 x 256 x 64.",
    ),
    "wgmma_packed": (
        Config("packed", 2, 2, 192, 4, 2, band=8, keep="a"),
        "wgmma_tall with A in the order of use: each stage's part lies side by side",
        "1.02x over wgmma_tall: half of the requests for A, which are 256 of 452 a stage.",
    ),
    "wgmma_stream_k": (
        Config("stream_k", 2, 1, 256, 4, 2, band=16, keep="a"),
        "the first tiles are cut along k, so that every SM gets the same number of steps",
        "1.03x over wgmma_keep at 4096 and 8192 cubed, whose last wave is 88 and 52% full; sums cost 5 us.",
    ),
    "wgmma_split_k": (
        Config("split_k", 2, 1, 128, 6, 1, 2, keep="b"),
        "a cluster of two blocks shares the steps of a tile and adds in shared memory",
        "Ahead of one block for each tile where there are fewer than 66 tiles, behind where there are more.",
    ),
}  # fmt: skip

_STUDIES = {
    "mma_sp_ca": ("copies of 16 bytes by .ca, through L1", "0.9x, as the source says."),
    "mma_sp_all_threads": (
        "every thread copies 8 bytes of metadata, by .ca",
        "0.98x: an eighth of the copies, but with conflicts.",
    ),
    "mma_sp_two_warps": (
        "the first two warps copy the metadata",
        "1.0x: the same copies; the source found it slower and gives no number.",
    ),
    "mma_sp_one_selector": (
        "metadata for one selector, loaded without ldmatrix",
        "0.97x: four loads for one, while the tensor cores wait for B.",
    ),
    "mma_sp_x2": ("ldmatrix.x2, one step ahead", "1.0x: metadata is a sixteenth of what is read."),
    "mma_sp_stages_2": ("two stages", "0.9x: one step of copies in flight."),
    "mma_sp_stages_4": ("four stages", "1.0x: two steps cover the latency of L2."),
    "mma_sp_stages_5": ("five stages", "0.9x: one block an SM instead of two."),
}


#: The published kernel in both dtypes, and the one that masks any sizes. The side studies, and the family
#: that the tuner tries, have as many more, which `bind` compiles when they are asked for.
_PUBLISHED = tuple(
    mma_sp.entry(mma_sp.PUBLISHED, dtype, mask=mask)
    for dtype in ("bfloat16", "float16")
    for mask in (False, True)
)

VARIANTS: dict[str, Kernel] = {
    "mma_sp": Kernel(
        "mma_sp",
        mma_sp.SOURCE,
        "the published kernel: 128 x 128 x 64, three stages, both selectors, ldmatrix.x4 for metadata",
        entries=_PUBLISHED,
        published=True,
        spill_free=False,  # 255 registers: on sm_120 some compilers put one or two of them aside
    ),
    **{
        name: Kernel(
            name,
            mma_sp.SOURCE,
            idea,
            prediction,
            (mma_sp.entry(mma_sp.STUDIES[name], "bfloat16"),),
            spill_free=False,
        )
        for name, (idea, prediction) in _STUDIES.items()
    },
    **{
        name: Kernel(
            name,
            wgmma.source(config),
            idea,
            prediction,
            tuple(wgmma.entry(config, dtype) for dtype in ("bfloat16", "float16")),
            targets=wgmma.TARGETS,
        )
        for name, (config, idea, prediction) in LADDER.items()
    },
    "auto": Kernel(
        "auto",
        HERE / "tuner.py",
        "the fastest of this GPU's family for the shape, found by trying and written down",
        "1.1x over cuSPARSELt's best: power is what both are bound by, but no one tile suits every shape.",
    ),
}


def bind(variant: str, problem: Problem, device, **extra) -> Bound:
    """Compile `variant` for `device` (a current `cuda.core.Device`), prepare A's metadata, make it ready.

    extra: alpha, beta, c and bias of C = alpha·A·B + beta·c + bias, as `mma_sp.bind` and `wgmma.bind` take
    them. Raises ValueError where the variant does not exist or does not take the problem or the GPU.
    """
    require(
        variant in VARIANTS,
        f"{ROOM} has no variant {variant!r}: choose one of {', '.join(VARIANTS)}",
    )
    if variant == "auto":
        return tuner.bind(variant, problem, device, **extra)
    if variant in LADDER:
        return wgmma.bind(variant, problem, device, LADDER[variant][0], **extra)
    config = mma_sp.PUBLISHED if variant == "mma_sp" else mma_sp.STUDIES[variant]
    return mma_sp.bind(variant, problem, device, config, **extra)
