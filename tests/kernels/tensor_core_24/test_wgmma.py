"""The Hopper ladder without a GPU: configurations, the metadata of a ring, what bind prepares, and the SASS."""

from __future__ import annotations

import os
import re
import sys
import types
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import ceil
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from compiled import count, width
from hypothesis import given, settings
from hypothesis import strategies as st

from artifact.measure import check
from kernels import jit, pitch
from kernels import tensor_core_24 as room
from kernels.contract import Operands
from kernels.formats import half, two_four
from kernels.formats.half import Half
from kernels.formats.two_four import TwoFour
from kernels.registers import used_before
from kernels.tensor_core_24 import bounds, family, fp8, fp8_layer, gpcs, wgmma
from kernels.tensor_core_24.family import Wgmma

DTYPES = half.DTYPES
PITCHES = tuple(pitch.ENTRIES.values())  #: copy rows
RUNGS = tuple(room.RUNGS)
#: Multiprocessors of an H200, and bytes of shared memory that a block may have there.
SMS, MOST = 132, 232448
PROPERTIES = SimpleNamespace(multiprocessor_count=SMS, max_shared_memory_per_block_optin=MOST, l2_cache_size=50 * 2**20)
H200 = SimpleNamespace(name="NVIDIA H200", device_id=3, compute_capability=(9, 0), properties=PROPERTIES)
#: Kernels with a warp that only copies.
SPECIALISED = tuple(name for name, kind in family.KINDS.items() if kind.producer)
EXCHANGING = tuple(name for name, kind in family.KINDS.items() if kind.exchanging)
#: Kernels that tell L2 what to keep.
HINTING = (
    "persistent",
    "packed",
    "multicast",
    "stream_k",
    "split_k",
    "lean",
    "rounds",
    "last_wave",
    "refilling",
    "gpc",
    "clusters",
)
#: Kernels with a block for each multiprocessor, which goes from tile to tile; or with a cluster for each two.
RESIDENT = {
    "persistent": SMS,
    "packed": SMS,
    "stream_k": SMS,
    "lean": SMS,
    "rounds": SMS,
    "refilling": SMS,
    "three": SMS,
    "multicast": SMS // 2,
    "last_wave": SMS // 2,
    "clusters": SMS // 2,
}
#: Kernels whose clusters of two each multiply half of the steps of a tile of the last wave.
CUTTING = ("last_wave",)
#: Kernels whose blocks form clusters of two, whatever the configuration says.
PAIRS = ("multicast", *CUTTING)
#: The kernel whose threads copy, past the copy engine: it has no tensor maps, no order of tiles and nothing in shared
#: memory to store through.
DIRECT = "cp_async"
#: Every configuration that the room binds.
CONFIGS = tuple(dict.fromkeys([*(config for config, *_ in room.RUNGS.values()), *family.WGMMA_FAMILY]))
#: Of what a tuner tries beside the rungs, the largest tile and the smallest of each kernel: they are compiled.
ENDS = tuple(
    end((c for c in family.WGMMA_FAMILY if c.kernel == kernel), key=lambda c: (c.m * c.n, c.stages))
    for kernel in dict.fromkeys(c.kernel for c in family.WGMMA_FAMILY)
    for end in (min, max)
)
#: Those whose code is short enough to look at every one.
DIRECTS = tuple(c for c in CONFIGS if c.kernel == DIRECT)
#: Rungs that are compiled in the other dtype, too: an instruction and a conversion are all that differs.
IN_FLOAT16 = ("one_stage", "packed", "split_k", "lean", DIRECT, *EXCHANGING)
#: Kernels that add C and a bias, but for those that take B and C by columns alone, for which see test_orders.py.
BY_ROWS = [kernel for kernel in family.COMPLETE if kernel != "few"]
#: entry -> a configuration that asks for it, its dtype, and whether it adds C and a bias.
ENTRIES = {
    c.entry(dtype, extra): (c, dtype, extra)
    for configs, dtype, extra in (
        ([*(config for config, *_ in room.RUNGS.values()), *ENDS, *DIRECTS], "bfloat16", False),
        ([room.RUNGS[f"wgmma_{name}"][0] for name in IN_FLOAT16], "float16", False),
        (
            {c.kernel: c for c, *_ in room.RUNGS.values() if c.kernel in family.COMPLETE}.values(),
            "bfloat16",
            True,
        ),
        (DIRECTS, "bfloat16", True),
    )
    for c in configs
}


def threads(config: Wgmma) -> int:
    """Of a block: the warpgroups that multiply, and one for the producer where there is one."""
    return 128 * (config.groups + (config.kernel in SPECIALISED))


def metadata_rows(config: Wgmma) -> int:
    """What the rows of metadata are rounded up to: 256 has room for whole tiles of 64, 128 and 256 rows, not of 192."""
    return 192 if config.m == 192 else 256


def metadata_columns(config: Wgmma) -> int:
    """What its columns are rounded up to: a step, or a round of the ring."""
    return 64 * (config.stages if config.kernel in EXCHANGING else 1)


def ring_metadata(a: TwoFour, config: Wgmma) -> np.ndarray:
    """What bind prepares for a configuration."""
    return wgmma.ring_metadata(a, metadata_rows(config), metadata_columns(config))


# ------------------------------------------------------------------------------- the variants


def test_the_ladder_is_one_of_predictions_written_down():
    names = list(room.VARIANTS)
    assert names[0] == "mma_sp" and names[-1] == "auto"
    assert tuple(name for name in names if name.startswith("wgmma_")) == RUNGS
    assert [name for name, kernel in room.VARIANTS.items() if kernel.published] == ["mma_sp"]
    for name, kernel in room.VARIANTS.items():
        assert kernel.name == name and kernel.idea and "\n" not in kernel.idea
        assert bool(kernel.prediction) == (name != "mma_sp"), name
        assert kernel.source.is_file() and kernel.spill_free == (not name.startswith("mma_sp"))
    ideas = [kernel.idea for kernel in room.VARIANTS.values()]
    assert len(set(ideas)) == len(ideas), "a rung does something that no other does"
    assert set(room.BASELINES) == {"cusparselt", "cublaslt"}


def test_no_source_is_left_over():
    used = {kernel.source.name for kernel in (room.VARIANTS | fp8.VARIANTS).values()}
    used |= {"generate.cu", "generate_eight.cu", gpcs.SOURCE.name}
    used |= {config.source.name for config in family.NARROW_FAMILY} | {fp8_layer.QUANTISE.name}
    assert {path.name for path in wgmma.HERE.glob("*.cu")} == used - {"family.py", "fp8_family.py"}
    assert {f"wgmma_{kernel}.cu" for kernel in family.KERNELS} <= used


@pytest.mark.parametrize("name", RUNGS)
def test_a_rung_is_for_hopper_and_fits_it(name):
    config, kernel = room.RUNGS[name][0], room.VARIANTS[name]
    assert kernel.targets == family.TARGETS == ("sm_90a",)
    assert kernel.source == config.source
    assert kernel.entries == tuple(config.entry(dtype) for dtype in DTYPES)
    assert f"wgmma_{config.kernel}(" in kernel.source.read_text()
    # The sizes of the experiment that measures it.
    for shape in room.sweeps("full")["ladder"]:
        m, n, k = shape["m"], shape["n"], shape["k"]
        if name == "wgmma_stream_k" and m == 2048:
            continue  # 128 tiles for 132 multiprocessors: the test of check has it
        config.check(m, n, k, SMS, MOST)


def test_what_is_not_for_hopper_is_for_every_target():
    others = [kernel for name, kernel in room.VARIANTS.items() if name not in RUNGS]
    assert others and all(kernel.targets == jit.TARGETS for kernel in others)


def test_no_configuration_is_tried_twice():
    assert len(set(family.WGMMA_FAMILY)) == len(family.WGMMA_FAMILY)


# --------------------------------------------------------------------------- configurations


@pytest.mark.parametrize(
    ("config", "entry", "rows"),
    [
        (Wgmma("one_stage", 1, 2, 128, 1, 1), "one_stage<BF16, 2, 128>", 128),
        (Wgmma("ring", 1, 2, 128, 4, 1), "ring<BF16, 2, 128, 4, false>", 128),
        (Wgmma("specialised", 2, 1, 256, 4, 2), "specialised<BF16, 2, 1, 256, 4, 2>", 128),
        (Wgmma("multicast", 2, 2, 192, 4, 2), "multicast<BF16, 2, 2, 192, 4, 2>", 256),
        (Wgmma("persistent", 1, 1, 64, 8, 1), "persistent<BF16, 1, 1, 64, 8, 1, false>", 64),
        (Wgmma("packed", 2, 1, 256, 4, 2), "packed<BF16, 2, 1, 256, 4, 2, false>", 128),
        (Wgmma("stream_k", 2, 1, 256, 4, 2), "stream_k<BF16, 2, 1, 256, 4, 2, false>", 128),
        (Wgmma("split_k", 2, 2, 128, 5, 1, 3), "split_k<BF16, 2, 2, 128, 5, 3, false>", 256),
        (Wgmma("lean", 1, 2, 128, 6, 2), "lean<BF16, 1, 2, 128, 6, 2, false>", 128),
        (Wgmma("rounds", 2, 1, 128, 8, 1), "rounds<BF16, 2, 1, 128, 8, 1, false>", 128),
        (Wgmma("last_wave", 2, 2, 192, 4, 2), "last_wave<BF16, 2, 2, 192, 4, 2, false>", 256),
        (Wgmma("refilling", 3, 1, 256, 4, 1), "refilling<BF16, 3, 1, 256, 4, 1>", 192),
        (Wgmma("gpc", 2, 1, 256, 4, 2), "gpc<BF16, 2, 1, 256, 4, 2>", 128),
        (Wgmma("three", 3, 1, 256, 4, 1), "three<BF16, 3, 1, 256, 4, 1, false>", 192),
        (Wgmma("pieces", 3, 1, 256, 4, 1), "pieces<BF16, 3, 1, 256, 4, 1>", 192),
        (Wgmma("cp_async", 1, 1, 32, 4, 0), "cp_async<BF16, 32, 4, false>", 64),
        (Wgmma("cp_async", 1, 1, 16, 6, 0), "cp_async<BF16, 16, 6, false>", 64),
    ],
    ids=lambda x: getattr(x, "kernel", ""),
)
def test_an_entry_names_every_knob_of_its_kernel(config, entry, rows):
    assert config.entry("bfloat16") == f"wgmma_{entry}" and config.m == rows
    assert config.entry("float16") == f"wgmma_{entry}".replace("BF16", "F16")
    more = config.entry("bfloat16", extra=True)
    if config.kernel in family.COMPLETE:
        assert more == f"wgmma_{entry}".replace("false", "true")
    # The orders of tiles and the hints are arguments: they compile nothing.
    assert replace(config, band=3, keep="b").entry("bfloat16") == f"wgmma_{entry}"
    assert (config.threads == 128 * config.groups) == (config.kernel not in SPECIALISED)


def test_shared_memory_is_what_the_kernels_lay_out(tmp_path):
    """The compiler's own sizes: the ring, rounded to 1024, then the squares of each warpgroup."""
    sources = wgmma.HERE / "sparse_stages.cuh", jit.COMMON / "store.cuh"
    lines = [*(f'#include "{source}"' for source in sources), "__global__ void sizes() {"]
    for c in CONFIGS:
        if c.kernel == DIRECT:  # lays its stages out itself, as the next tests have them
            continue
        ring = f"Stages<BF16, {c.groups}, {c.blocks}, {c.n}, {c.stages}>"
        # Whatever is stored through comes after the ring, at a multiple of 1024 as TMA's swizzle wants.
        lines += [
            f"static_assert((sizeof({ring}) + 1023) / 1024 * 1024 + {c.groups} * "
            f"sizeof(Store<BF16, {c.buffers}, false>) == {c.shared_bytes});",
            f"static_assert({ring}::M == {c.m} && {ring}::K == {family.K});",
            f"static_assert({ring}::BYTES * {c.stages} == sizeof({ring}));",
        ]
    probe = tmp_path / "sizes.cu"
    probe.write_text("\n".join([*lines, "}"]))
    assert jit.compile_cubin(probe, "sizes", "sm_90a").code


@pytest.mark.parametrize("config", DIRECTS, ids=str)
def test_a_stage_of_four_steps_begins_at_a_whole_swizzle(config):
    """Of each step 64 rows of B and of A's values, then the words of all four, 512 bytes each; nothing else."""
    step, words = 128 * config.n + 4096, 512
    assert config.shared_bytes == config.stages * 4 * (step + words)
    # What a descriptor points to: the swizzle of up to 128 bytes counts from multiples of 1024.
    assert step % 1024 == (128 * config.n) % 1024 == 4 * words % 1024 == 0


@pytest.mark.parametrize("n", [16, 32, 64])
def test_threads_copy_every_byte_of_a_step_to_where_the_swizzle_has_it(n):
    """As wgmma_cp_async.cu has its 128 threads copy 16 bytes at a time; A's rows have 64 bytes and B's 2 n."""

    def swizzled(row: int, unit: int, width: int) -> int:
        """The hardware's place: bits 4 to 6 of it, as many as a row has, are combined with those three higher."""
        at = width * row + 16 * unit
        return at ^ (at >> 3 & (width - 1) & 0x70)

    units = n // 8
    rows = 128 // units
    a, b = {}, {}
    for t in range(128):
        for row in (t // 4, t // 4 + 32):
            to = 64 * (t // 4) + 16 * (t % 4 ^ t // 4 // 2 % 4) + 2048 * (row >= 32)
            assert to == swizzled(row, t % 4, 64)
            a[to] = row, t % 4
        for first in range(0, 64, rows):
            row, unit = t // units, t % units
            to = 2 * n * row + 16 * (unit ^ row * units // 8 % units) + 2 * n * first
            assert to == swizzled(row + first, unit, 2 * n)
            b[to] = row + first, unit
    assert sorted(a) == list(range(0, 4096, 16)) and len(set(a.values())) == 256
    assert sorted(b) == list(range(0, 128 * n, 16)) and len(set(b.values())) == 8 * n


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_every_configuration_fits_the_gpu(config):
    """227 KiB of shared memory, and the copy engine's boxes of at most 256."""
    n = 8200 if config.copied else 8192
    config.check(8192, n, 8192, SMS, MOST)
    assert config.m <= 256
    assert config.n in ((16, 32, 64) if config.kernel == DIRECT else (64, 128, 192, 256))
    assert config.shared_bytes + 1024 <= MOST
    assert config.shared_bytes % 1024 == 0
    if config.kernel in ("one_stage", "ring"):
        assert config.groups == config.buffers == 1
    if config.kernel == DIRECT:
        assert config.m == 64 and config.buffers == 0 and not config.keep
    assert (config.splits > 1) == (config.kernel == "split_k")
    assert config.buffers == 1 or config.kernel != "split_k"
    # A second block on an SM would take the same place, and leave another to nobody.
    if config.kernel == "gpc":
        assert 2 * config.shared_bytes > MOST


BIG = Wgmma("persistent", 2, 1, 256, 4, 2)
SMALL = Wgmma("cp_async", 1, 1, 32, 4, 0)


@pytest.mark.parametrize(
    ("config", "sizes", "words"),
    [
        (
            replace(BIG, kernel="fast"),
            (512, 512, 512),
            ["'fast'", "'one_stage', 'ring'", "split_k"],
        ),
        (replace(BIG, groups=3), (512, 512, 512), ["groups 3", "1, 2"]),
        (Wgmma("ring", 2, 1, 64, 4, 1), (512, 512, 512), ["wgmma_ring has groups 2", "takes 1"]),
        (replace(BIG, blocks=3), (512, 512, 512), ["rows of a tile 384", "64, 128, 256"]),
        (replace(BIG, n=96), (512, 512, 512), ["n 96", "64, 128, 192, 256"]),
        (replace(BIG, keep="c"), (512, 512, 512), ["keep 'c'", "'a', 'b'"]),
        (replace(BIG, keep="", kernel="packed"), (512, 512, 512), ["wgmma_packed", "'a' or 'b'"]),
        (replace(BIG, keep="", kernel="multicast"), (512, 512, 512), ["wgmma_multicast", "'a' or"]),
        (replace(BIG, buffers=0), (512, 512, 512), ["buffers 0", "1 to 16"]),
        (replace(BIG, splits=2), (512, 512, 512), ["splits 2", "takes 1"]),
        (Wgmma("split_k", 2, 1, 64, 6, 1, 9), (512, 512, 8192), ["splits 9", "1 to 8"]),
        (replace(BIG, stages=1), (512, 512, 512), ["stages 1", "2 to 32"]),
        (Wgmma("one_stage", 1, 1, 64, 2, 1), (512, 512, 512), ["stages 2", "takes 1"]),
        (replace(BIG, band=0), (512, 512, 512), ["bands of 0 rows", "1 or more"]),
        (Wgmma("persistent", 2, 2, 256, 2, 1), (512, 512, 512), ["2 x 256 / 2 sums", "192"]),
        (replace(BIG, stages=5), (512, 512, 512), ["5 stages of 128 x 256", "fewer", "232448"]),
        (BIG, (2**30, 64, 64), ["m=1073741824", "up to 1073741823"]),
        (BIG, (64, 2**30, 64), ["n=1073741824", "up to 1073741823"]),
        (BIG, (64, 64, 2**30), ["k=1073741824", "up to 1073741823"]),
        (
            replace(BIG, kernel="stream_k"),
            (128 * 11, 256 * 11, 64),
            ["11 x 11 tiles", "132 multiprocessors", "split_k"],
        ),
        (
            Wgmma("split_k", 2, 1, 128, 6, 1, 2),
            (512, 512, 64),
            ["1 steps of 64", "2 parts", "fewer"],
        ),
        (Wgmma("split_k", 2, 2, 128, 5, 1, 3), (512, 512, 128), ["2 steps", "3 parts"]),
        (Wgmma("split_k", 2, 1, 128, 2, 1, 2), (512, 512, 512), ["128 x 128 sums", "2 stages"]),
        (
            Wgmma("refilling", 2, 1, 256, 4, 1),
            (512, 512, 512),
            ["wgmma_refilling has groups 2", "takes 3"],
        ),
        (
            Wgmma("refilling", 3, 2, 128, 4, 1),
            (512, 512, 512),
            ["rows of a tile 384", "takes 192"],
        ),
        (Wgmma("refilling", 3, 1, 256, 2, 1), (512, 512, 512), ["stages 2", "3 to 32"]),
        (Wgmma("three", 2, 1, 256, 4, 1), (512, 512, 512), ["wgmma_three has groups 2", "takes 3"]),
        (Wgmma("pieces", 3, 2, 128, 4, 1), (512, 512, 512), ["rows of a tile 384", "takes 192"]),
        (Wgmma("three", 3, 1, 128, 5, 1), (512, 512, 512), ["an even number of stages, not 5"]),
        (
            Wgmma("pieces", 3, 1, 256, 4, 1, keep="a"),
            (512, 512, 512),
            ["wgmma_pieces asks L2 to keep nothing, not 'a'", "leave it out"],
        ),
        (
            Wgmma("last_wave", 1, 1, 64, 8, 1),
            (512, 512, 512),
            ["squares of 1 x 64 sums", "odd number", "another tile"],
        ),
        (Wgmma("last_wave", 2, 1, 192, 4, 1), (512, 512, 512), ["1 x 192 sums", "odd number"]),
        (
            Wgmma("last_wave", 2, 2, 192, 2, 2),
            (512, 512, 512),
            ["half of 256 x 192 sums", "2 stages", "more of them"],
        ),
        (
            Wgmma("gpc", 1, 1, 64, 4, 1),
            (512, 512, 512),
            ["one block for each multiprocessor", "two with 59", "a larger tile or more stages"],
        ),
        (
            replace(BIG, kernel="rounds"),
            (512, 512, 320),
            ["5 steps of 64", "not of 4", "use lean"],
        ),
        (
            Wgmma("rounds", 2, 1, 128, 5, 1),
            (512, 512, 320),
            ["5 steps of 64", "an even number of stages, not of 5"],
        ),
        (replace(SMALL, groups=2), (512, 512, 512), ["wgmma_cp_async has groups 2", "takes 1"]),
        (
            replace(SMALL, blocks=2),
            (512, 512, 512),
            ["wgmma_cp_async has rows of a tile 128", "takes 64"],
        ),
        (replace(SMALL, n=128), (512, 512, 512), ["wgmma_cp_async has n 128", "takes 16, 32, 64"]),
        (replace(SMALL, n=8), (512, 512, 512), ["wgmma_cp_async has n 8", "takes 16, 32, 64"]),
        (replace(BIG, n=32), (512, 512, 512), ["wgmma_persistent has n 32", "takes 64, 128"]),
        (replace(SMALL, buffers=1), (512, 512, 512), ["wgmma_cp_async has buffers 1", "takes 0"]),
        (
            replace(SMALL, keep="a"),
            (512, 512, 512),
            ["wgmma_cp_async asks L2 to keep nothing, not 'a'", "leave it out"],
        ),
        (replace(SMALL, stages=1), (512, 512, 512), ["wgmma_cp_async has stages 1", "2 to 32"]),
        (replace(SMALL, splits=2), (512, 512, 512), ["wgmma_cp_async has splits 2", "takes 1"]),
        (replace(SMALL, share=2), (512, 512, 512), ["wgmma_cp_async has share 2", "takes 1"]),
        (
            replace(SMALL, stages=7),
            (512, 512, 512),
            ["wgmma_cp_async with 7 stages of 64 x 32", "243712", "232448", "fewer"],
        ),
        (
            SMALL,
            (1, 32 * 65535 + 1, 64),
            ["32 columns", "65535 of them, not 65536 for n=2097121", "use lean"],
        ),
        (
            replace(SMALL, n=16),
            (1, 32 * 65535, 64),
            ["16 columns", "65535 of them, not 131070 for n=2097120", "use lean"],
        ),
        (replace(SMALL, copied=True), (512, 512, 512), ["copied", "not for lines of 512 elements", "leave it out"]),
    ],
)
def test_what_a_configuration_does_not_take_is_one_sentence(config, sizes, words):
    with pytest.raises(ValueError) as caught:
        config.check(*sizes, SMS, MOST)
    message = str(caught.value)
    assert "\n" not in message and ". " not in message
    for word in words:
        assert word in message, f"{word!r} is not in: {message}"


def test_the_limits_themselves_are_taken():
    most = 2**30 - 1
    BIG.check(most, most, most, SMS, MOST)
    replace(BIG, kernel="stream_k").check(128 * 11, 256 * 12, 1, SMS, MOST)
    Wgmma("split_k", 2, 1, 128, 6, 1, 2).check(1, 1, 65, SMS, MOST)
    Wgmma("refilling", 3, 1, 256, 3, 1).check(1, 1, 1, SMS, MOST)
    for kernel in EXCHANGING:
        Wgmma(kernel, 3, 1, 256, 4, 1).check(1, 1, 1, SMS, MOST)
    for last_wave in (Wgmma("last_wave", 2, 1, 128, 6, 1), Wgmma("last_wave", 1, 2, 64, 8, 1)):
        last_wave.check(1, 1, 1, SMS, MOST)
    for k in (193, 256, 449):  # the last step of the last round may be a part of one
        replace(BIG, kernel="rounds").check(1, 1, k, SMS, MOST)
    for few in (replace(SMALL, n=n, stages=stages) for n in (16, 32, 64) for stages in (2, 4)):
        few.check(1, 1, 1, SMS, MOST)
        few.check(most, few.n * 65535, most, SMS, MOST)  # only a grid's second dimension is short
    for config in (BIG, SMALL):
        config.check(1, 1, 1, SMS, config.shared_bytes + 1024)
        with pytest.raises(ValueError, match="shared memory"):
            config.check(1, 1, 1, SMS, config.shared_bytes + 1023)


# ------------------------------------------------------------------------------- stream-K's shares


def shares(count: int, sms: int, steps: int) -> list[list[tuple[int, int, int]]]:
    """What each block does of the shared tiles, in the order of wgmma_stream_k.cu: (tile, from, to)."""
    whole = wgmma.shared_tiles(count, sms) * steps
    length, rest = divmod(whole, sms)
    found = []
    for block in range(sms):
        step = block * length + min(block, rest)
        end, parts = step + length + (block < rest), []
        while step < end:
            to = min(steps, step % steps + end - step)
            parts.append((step // steps, step % steps, to))
            step += to - step % steps
        found.append(parts[::-1])
    return found


@given(sms=st.integers(1, 160), more=st.integers(0, 1000), steps=st.integers(1, 300))
@settings(deadline=None, max_examples=200)
def test_shared_tiles_leave_whole_waves_and_parts_that_meet(sms, more, steps):
    """What the kernel relies on: three parts at most, and a tail's head is the block's before, done before anything
    that is waited for: no block waits for a later one, so none waits for one that cannot begin."""
    count = sms + more
    shared = wgmma.shared_tiles(count, sms)
    assert 0 <= shared <= count and (count - shared) % sms == 0
    assert shared == 0 if count % sms == 0 else sms < shared < 2 * sms
    found = shares(count, sms, steps)
    done = Counter()
    for block, parts in enumerate(found):
        assert len(parts) <= 3
        for i, (tile, start, end) in enumerate(parts):
            assert 0 <= start < end <= steps
            done[tile] += end - start
            if start > 0:
                assert end == steps and i == len(parts) - 1, "a tail ends its tile and is done last"
                assert found[block - 1][0] == (tile, 0, start), "the rest is its neighbour's"
            elif end < steps:
                assert i == 0, "a head is done first"
                assert found[block + 1][-1] == (tile, end, steps)
    assert done == {tile: steps for tile in range(shared)}
    lengths = [sum(end - start for _, start, end in parts) for parts in found]
    assert max(lengths) - min(lengths) <= 1


# ------------------------------------------------------------------- a last wave that is cut


@pytest.mark.parametrize(
    ("count", "sms", "whole"),
    [
        (1, 132, 0),
        (66, 132, 0),
        (67, 132, 67),
        (131, 132, 131),
        (132, 132, 132),
        (133, 132, 132),
        (198, 132, 132),
        (199, 132, 199),
        (264, 132, 264),
        (1024, 132, 1024),
        (1376, 132, 1320),
        # Clusters of two leave one of an odd number of multiprocessors out: as if it were not there.
        (57, 115, 0),
        (58, 115, 58),
        (114, 115, 114),
        (115, 115, 114),
        (1, 3, 0),
        (2, 3, 2),
        (3, 3, 2),
    ],
)
def test_the_last_wave_is_cut_where_it_is_at_most_half_full(count, sms, whole):
    assert wgmma.whole_tiles(count, sms) == whole


@given(count=st.integers(1, 2000), sms=st.integers(2, 200), steps=st.integers(2, 300))
@settings(deadline=None, max_examples=300)
def test_every_tile_is_whole_or_cut_and_done_once(count, sms, steps):
    """As wgmma_last_wave.cu assigns them, with the clusters that bind launches."""
    whole, blocks = wgmma.whole_tiles(count, sms), 2 * min(count, sms // 2)
    assert 0 <= whole <= count
    ends, loads = Counter(), []  # (tile, step) where somebody begins, or is done
    for block in range(blocks):
        tiles = range(block, whole, blocks)
        ends.update((tile, step) for tile in tiles for step in (0, steps))
        loads.append(len(tiles) * steps)
        if (last := whole + block // 2) < count:
            rank = block % 2
            first, end = steps * rank // 2, steps * (rank + 1) // 2
            assert first < end, "a warpgroup multiplies at least one step"
            ends.update([(last, first), (last, end)])
            loads[-1] += end - first
    # Each tile has two ends, and one that is cut a seam where its halves meet.
    expected = {(tile, step): 1 for tile in range(count) for step in (0, steps)}
    expected |= {(tile, steps // 2): 2 for tile in range(whole, count)}
    assert ends == expected
    # That is what it is for: half a wave instead of a whole one.
    waves = ceil(2 * count / (sms // 2 * 2)) / 2 if whole < count else ceil(count / blocks)
    assert max(loads) <= ceil(waves * steps)


# ------------------------------------------------------------------------- pieces of the last wave


@pytest.mark.parametrize(
    ("count", "whole", "groups", "pieces"),
    [
        (1, 0, 1, 3),
        (44, 0, 1, 132),
        (45, 0, 2, 90),
        (66, 0, 2, 132),
        (67, 67, 3, 0),
        (131, 131, 3, 0),
        (132, 132, 1, 0),
        (133, 132, 1, 3),
        (1376, 1320, 2, 112),
        (2400, 2376, 1, 72),
        (3072, 3036, 1, 108),
        (5504, 5504, 3, 0),
    ],
)
def test_the_last_wave_is_cut_as_low_as_there_are_multiprocessors(count, whole, groups, pieces):
    """The last ones but one are those of 8192 cubed, 28672 x 4096 and 12288 cubed."""
    cut = family.cut_into_pieces(count, 3, SMS)
    assert (cut.whole, cut.pieces) == (whole, pieces)
    assert cut.groups == groups or not pieces, "of none it does not matter"


@given(count=st.integers(1, 3000), sms=st.integers(1, 200))
@settings(deadline=None, max_examples=300)
def test_every_block_of_rows_is_done_once(count, sms):
    """As wgmma_pieces.cu assigns them, with the grid that bind launches."""
    cut = family.cut_into_pieces(count, 3, sms)
    grid = min(cut.whole + cut.pieces, sms)
    done, loads = Counter(), Counter()
    each = ceil(3 / cut.groups)
    for block in range(grid):
        number = block
        while True:
            tile, first, groups = number, 0, 3
            if number >= cut.whole:
                tile = cut.whole + (number - cut.whole) // each
                first = (number - cut.whole) % each * cut.groups
                groups = min(cut.groups, 3 - first)
            if tile >= count:
                break
            done.update((tile, first + i) for i in range(groups))
            loads[block] += groups
            number += grid
    assert done == {(tile, i): 1 for tile in range(count) for i in range(3)}
    # Nobody has more than one piece, which is what it is for; and whole waves are left alone.
    assert max(loads.values()) == 3 * ceil(cut.whole / sms) + cut.groups * bool(cut.pieces)
    assert not cut.pieces or cut.whole % sms == 0


# --------------------------------------------------------------------------- metadata of a ring


def word_by_word(a: TwoFour, rows: int, columns: int) -> np.ndarray:
    """The ring's metadata as the PTX ISA assigns it, one lane at a time.

    "Matrix Fragments for sparse wgmma.mma_async.m64nNk32": warp w has rows 16 w to 16 w + 15; lane 4 g + t
    holds row g in the low half and row g + 8 in the high half; of 32 columns, lanes t = 0 and 1 serve
    the first and the second 16 with selector 0, lanes t = 2 and 3 with selector 1.
    """

    def group_of_16(row: int, column: int) -> int:
        inside = row < a.m and column < 16 * a.meta.shape[1]
        return int(a.meta[row, column // 16]) if inside else two_four.EMPTY

    high, wide = ceil(a.m / rows) * rows // 64, ceil(a.k / columns) * columns // 64
    ring = np.zeros((high, wide, 4, 32), np.uint32)
    for i, j, warp, lane in np.ndindex(ring.shape):
        g, t = divmod(lane, 4)
        row = 64 * i + 16 * warp + g
        column = 64 * j + 32 * (t // 2) + 16 * (t % 2)
        low, upper = group_of_16(row, column), group_of_16(row + 8, column)
        ring[i, j, warp, lane] = low | upper << 16
    return ring.reshape(high, -1)


@given(
    m=st.integers(1, 200),
    k=st.integers(1, 200),
    rows=st.sampled_from([64, 128, 192, 256]),
    columns=st.sampled_from([64, 128, 256]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=25)
def test_every_lane_gets_its_word(m, k, rows, columns, seed):
    a = two_four.random(m, k, "bfloat16", seed)
    made = wgmma.ring_metadata(a, rows, columns)
    assert made.dtype == np.uint32 and made.flags.c_contiguous
    assert made.shape == (ceil(m / rows) * rows // 64, 2 * ceil(k / columns) * columns)
    assert np.array_equal(made, word_by_word(a, rows, columns))
    if columns == 64:
        assert np.array_equal(made, wgmma.ring_metadata(a, rows)), "a step, where nothing else is asked for"


def test_ring_metadata_leaves_its_argument_alone():
    a = two_four.random(64, 64, "bfloat16", 0)
    before = a.meta.copy()
    wgmma.ring_metadata(a)[:] = 0
    assert np.array_equal(a.meta, before)


@given(
    m=st.integers(1, 200),
    k=st.integers(1, 200),
    rows=st.sampled_from([64, 128, 256]),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=25)
def test_packed_values_lie_as_the_copy_engine_would_swizzle_them(m, k, rows, seed):
    """Of a byte's place in 64 rows of 64 bytes, bits 4 and 5 are combined with bits 7 and 8."""
    a = two_four.random(m, k, "bfloat16", seed)
    before = a.val.copy()
    made = wgmma.pack_values(a, rows)
    high, wide = ceil(m / rows) * rows // 64, ceil(k / 64)
    assert made.shape == (high, wide, 64, 32) and made.dtype == np.uint16
    assert made.flags.c_contiguous and np.array_equal(a.val, before)
    whole = np.zeros((64 * high, 32 * wide), np.uint16)
    whole[:m, : a.val.shape[1]] = a.val
    place = np.arange(0, 4096, 2)
    place ^= (place >> 7 & 3) << 4
    for i, j in np.ndindex(high, wide):
        piece = whole[64 * i : 64 * i + 64, 32 * j : 32 * j + 32].ravel()
        assert np.array_equal(made[i, j].ravel()[place // 2], piece)


def multiplied(a: TwoFour, b: np.ndarray, ring: np.ndarray, config: Wgmma) -> np.ndarray:
    """The product as the kernels make it: tiles, stages, warps and lanes, A's zeros beyond its edges.

    ring: uint32, row-major; b: float64 (k, n). sparse_stages.cuh, load: boxes of M/64 x 128 words at row / 64 and 2 k,
    and of M x 32 values at row and k / 2. multiply: block i of a warpgroup reads word (group BLOCKS + i) 128 + thread.
    """
    steps, high = (
        ring.shape[1] // 128,
        ceil(a.m / config.m),
    )  # of whole rounds, where they are asked for
    val = np.zeros((high * config.m, 32 * steps))
    val[: a.m, : a.val.shape[1]] = half.from_bits(a.val, a.dtype)
    wide = np.zeros((64 * steps, b.shape[1]))
    wide[: a.k] = b
    out = np.zeros((high * config.m, b.shape[1]))
    for row in range(0, high * config.m, config.m):
        for k in range(0, 64 * steps, 64):
            stage = ring[row // 64 : (row + config.m) // 64, 2 * k : 2 * k + 128].ravel()
            for block in range(config.m // 64):
                words = stage[block * 128 : block * 128 + 128].reshape(4, 8, 4)  # warp, g, t
                for selector in (0, 1):
                    dense = np.zeros((64, 32))
                    for warp, g, t, upper in np.ndindex(4, 8, 2, 2):
                        bits = int(words[warp, g, 2 * selector + t]) >> 16 * upper & 0xFFFF
                        r = 16 * warp + g + 8 * upper
                        for group in range(4):
                            pair = bits >> 4 * group & 15
                            c = k // 2 + 16 * selector + 8 * t + 2 * group
                            for i in (0, 1):
                                at = 16 * t + 4 * group + (pair >> 2 * i & 3)
                                dense[r, at] += val[row + 64 * block + r, c + i]
                    at = k + 32 * selector
                    out[row + 64 * block : row + 64 * block + 64] += dense @ wide[at : at + 32]
    return out[: a.m]


@pytest.mark.parametrize(
    "config",
    [
        BIG,
        Wgmma("refilling", 3, 1, 256, 4, 1),
        Wgmma("three", 3, 1, 256, 4, 1),
        Wgmma("persistent", 2, 2, 192),
    ],
    ids=["128", "192", "192 in rounds", "256"],
)
@pytest.mark.parametrize(("m", "k"), [(128, 128), (150, 200), (300, 68)])
def test_the_words_multiply_to_the_product_and_any_other_order_does_not(config, m, k):
    """The harness's own limit must refuse metadata that is in the order of rows, of ldmatrix, …"""
    a = two_four.random(m, k, "bfloat16", 9)
    b = np.random.default_rng(4).uniform(-1, 1, (k, 24))
    reference = check.reference(two_four.to_dense(a).astype(np.float64) @ b)
    rows, ring = metadata_rows(config), ring_metadata(a, config)
    right = multiplied(a, b, ring, config)
    assert np.allclose(right, reference.values, rtol=0, atol=1e-12)
    for name, words in wrong_orders(a, ring, rows).items():
        assert words.shape == ring.shape, name
        out = half.from_dense(multiplied(a, b, words, config).astype(np.float32), "bfloat16")
        with pytest.raises(check.WrongResult, match="is wrong: relative error"):
            check.compare(out, reference, name)


def wrong_orders(a: TwoFour, ring: np.ndarray, rows: int = 256) -> dict[str, np.ndarray]:
    """The same words of metadata at wrong places; rows: what those of `ring` are rounded up to."""
    by_lane = ring.reshape(ring.shape[0], -1, 4, 8, 4)  # rows, steps, warps, g, t

    def at(words: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(words).reshape(ring.shape)

    return {
        "swizzled for ldmatrix": at(two_four.swizzle(a.meta, rows, ring.shape[1] // 2).view(np.uint32)),
        "lanes swapped": at(by_lane[..., [1, 0, 3, 2]]),
        "selectors swapped": at(by_lane[..., [2, 3, 0, 1]]),
        "warps swapped": at(by_lane[:, :, [1, 0, 3, 2]]),
        "rows g and g + 8 swapped": ring << 16 | ring >> 16,
    }


# ----------------------------------------------------------------------------------------- bind


class Array(np.ndarray):
    """A NumPy array with what bind needs of CuPy's."""

    @property
    def data(self):
        def memset_async(value, size):
            np.asarray(self).view(np.uint8)[...] = value

        return SimpleNamespace(ptr=self.ctypes.data, memset_async=memset_async)


def array(shape, dtype) -> Array:
    return np.zeros(shape, dtype).view(Array)


#: Of each multiprocessor, by its number, its place among those of its GPC: here any order of them.
PLACES = np.random.default_rng(1).permutation(SMS).astype(np.int32).view(Array)


@pytest.fixture
def loaded(monkeypatch):
    """bind without a GPU: (source, entry, arch, bytes of dynamic shared memory) of what it would load.

    Registers that a kernel is launched with, other than the compiler's, come after these.
    """
    import cuda.core

    cubins = []

    def load(cubin, dynamic=0):
        cubins.append((*cubin[:3], dynamic, *cubin[3:]))
        return cubin[1]

    cupy = types.ModuleType("cupy")
    cupy.uint16, cupy.uint32, cupy.float32 = np.uint16, np.uint32, np.float32
    cupy.empty = cupy.zeros = array
    cupy.cuda = SimpleNamespace(get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None))
    cupy.empty_like = lambda x: array(x.shape, x.dtype)
    here = types.SimpleNamespace(synchronize=lambda: None)
    cupy.cuda = types.SimpleNamespace(get_current_stream=lambda: here)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda.core, "LaunchConfig", lambda **knobs: SimpleNamespace(**knobs))
    monkeypatch.setattr(jit, "compile_cubin", lambda *what, include=(): what)
    monkeypatch.setattr(jit, "launched_with", lambda cubin, registers: (*cubin, registers))
    monkeypatch.setattr(jit, "load", load)
    monkeypatch.setattr(
        jit,
        "loaded",
        lambda source, entry, device, dynamic=0: jit.load((source, entry, jit.arch_of(device)), dynamic),
    )
    monkeypatch.setattr(wgmma, "timed", lambda work: (work().view(Array), 1.25))
    monkeypatch.setattr(wgmma, "tensor_map", lambda *what: what)
    monkeypatch.setattr(jit, "most_clusters", lambda kernel, config, device: SMS // config.cluster)
    # By clusters that run on a GPU; and it is this one whose multiprocessors are asked for.
    monkeypatch.setattr(gpcs, "places", {H200.device_id: PLACES}.__getitem__)
    return cubins


def on_fake_gpu(p):
    """A problem of host arrays that look like the device's."""
    a, b = p.host().a, p.host().b
    there = TwoFour(a.m, a.k, a.dtype, a.val.view(Array), a.meta.view(Array))
    ops = Operands(there, Half(b.dtype, b.bits.view(Array)), Half(b.dtype, array((p.m, p.n), np.uint16)))
    return replace(p, make_device=lambda: ops)


def never() -> Operands:
    raise AssertionError("the operands are made before the sizes are checked")


def matrices(config: Wgmma, bound, arguments) -> list:
    """A's values, its metadata, B and C as a kernel gets them: by their addresses, or in tensor maps."""
    if config.kernel != DIRECT:  # packed values have no map, either
        return [x[0] if isinstance(x, tuple) else x for x in arguments[:4]]
    found = [bound.keep[i] for i in (1, 2, 5, 6)]
    assert [x.data.ptr for x in found] == [int(x) for x in arguments[:4]]
    # A row is read and written without its length, and 16 bytes at a time.
    assert all(x.flags.c_contiguous and x.data.ptr % 16 == 0 for x in found)
    return found


#: m, n, k: one tile, several, whole and ragged; 132 tiles and more for stream-K; whole rounds of four stages in two of
#: them, and a wave of tiles with a third of another in the last.
SIZES = [(1, 8, 16), (300, 520, 200), (1408, 3072, 128), (1500, 3080, 70), (2816, 3000, 200)]


@pytest.mark.parametrize("name", RUNGS)
def test_bind_makes_one_launch_that_covers_the_output(loaded, name):
    config = room.RUNGS[name][0]
    bound_at = []
    for m, n, k in SIZES:
        p = on_fake_gpu(room.problem(m, n, k))
        try:
            config.check(m, n, k, SMS, MOST)
        except ValueError as error:
            with pytest.raises(ValueError, match=re.escape(str(error))):
                room.bind(name, p, H200)
            continue
        bound_at.append((m, n, k))
        loaded.clear()
        bound = room.bind(name, p, H200)
        ops = p.device()
        ((kernel, how, arguments),) = bound.steps
        assert kernel in room.VARIANTS[name].entries and bound.name == name
        ((source, entry, arch, dynamic, *registers),) = loaded
        assert (source, entry, arch) == (room.VARIANTS[name].source, kernel, "sm_90a")
        assert registers == ([128] if config.kernel in EXCHANGING else [])
        assert dynamic == how.shmem_size == config.shared_bytes

        high, wide = ceil(m / config.m), ceil(n / config.n)
        clusters = 2 if config.kernel in PAIRS else max(config.splits, config.share)
        share = 2 if config.kernel == "multicast" else config.share
        high = ceil(high / share)
        most = RESIDENT.get(config.kernel, high * wide)
        if config.kernel == "gpc":
            assert how.grid == SMS, "every place is a block's, with a tile or without"
        elif config.kernel == "pieces":
            cut = family.cut_into_pieces(high * wide, 3, SMS)
            assert how.grid == min(cut.whole + cut.pieces, SMS)
        elif config.kernel == DIRECT:
            assert how.grid == (high, wide), "rows of tiles along x, which has room for all of them"
        else:
            assert how.grid == min(high * wide, most), "of clusters, where there are any"
        assert getattr(how, "cluster", 1) == clusters
        # All blocks run at the same time, so that each has an SM and its place for itself.
        assert getattr(how, "is_cooperative", False) == (config.kernel == "gpc")
        assert how.block == config.threads == threads(config)

        direct = config.kernel == DIRECT
        # Where a block's place in the grid is its tile, there is no order of them.
        (steps, *order), rest = (arguments[4:5], arguments[5:]) if direct else (arguments[4:8], arguments[8:])
        val, metadata, b, c = arguments[:4]
        packed = [x for x in bound.keep if getattr(x, "ndim", 0) == 4]
        if direct:  # the maps that another kernel would have of what it gets
            box = (64, 32), 64
            val, metadata, b, c = matrices(config, bound, arguments)
            val, metadata = (val, *box), (metadata, (1, 128))
            b, c = (b, (64, 64), 128), (c, (64, 64), 128)
        if config.kernel == "packed":
            assert val == packed[0].data.ptr
            assert np.array_equal(packed[0], wgmma.pack_values(p.host().a, 256))
            assert len(packed[0]) % (config.m // 64) == 0, "and no tile ends within a piece"
        else:
            box = 64 if config.kernel == "pieces" else config.m
            assert val[1:] == ((box, 32), 64) and not packed
            assert val[0] is ops.a.val or k % 64, "whole steps stay where they are"
            assert val[0].shape == (m, ceil(k / 64) * 32), "and every row begins at a multiple of 64 bytes"
            assert np.array_equal(val[0][:, : ops.a.val.shape[1]], ops.a.val)
            assert not val[0][:, ops.a.val.shape[1] :].any()
        assert metadata[1:] == ((config.m // 64, 128),)
        assert np.array_equal(metadata[0], ring_metadata(p.host().a, config))
        assert len(metadata[0]) % (config.m // 64) == 0, "no box has half of its rows"
        assert b == (ops.b.bits, (64 // share, 64), 128)
        assert c == (ops.c.bits, (64, 64), 128)
        every = ceil(k / metadata_columns(config)) * metadata_columns(config) // 64
        expected = [] if direct else [high, wide, min(config.band, high)]
        assert [int(steps), *map(int, order)] == [every, *expected]
        check_rest(config, arguments, m, n, k, n)
        assert all(isinstance(x, (int, np.int32, np.float32)) for x in rest)
        assert bound.result() is ops.c and not bound.accumulates
        moved = packed or [x for x in val[:1] if x is not ops.a.val]
        assert bound.prepare_ms == 1.25 * (1 + len(moved)), "metadata, and values where they move"
        assert ops in bound.keep and any(x is metadata[0] for x in bound.keep)
        sums = SMS * (config.m * config.n + 2 * config.groups) * 4 * (config.kernel == "stream_k")
        table = 4 * SMS * (config.kernel == "gpc")
        held = metadata[0].nbytes + sums + table + sum(x.nbytes for x in moved)
        assert bound.prepare_bytes == held
    assert len(bound_at) >= 2, bound_at


def check_rest(config: Wgmma, arguments, m, n, k, width, scale=(1, 0), c_in=0, bias=0, b_width=None) -> None:
    """The arguments after the order of tiles, as the signatures of the kernels have them.

    width: elements from a row of C to the next; b_width: of B, where that is another number.
    """
    direct = config.kernel == DIRECT  # in no order
    steps, rest = int(arguments[4]), list(arguments[5 if direct else 8 :])
    tiles = ceil(m / config.m) * ceil(n / config.n)
    if config.kernel in CUTTING:  # one step cannot be cut in two
        assert rest.pop(0) == (wgmma.whole_tiles(tiles, SMS) if steps > 1 else tiles)
    if config.kernel == "pieces":
        cut = family.cut_into_pieces(tiles, config.groups, SMS)
        assert [rest.pop(0), rest.pop(0)] == [cut.whole, cut.groups]
    if config.kernel == "gpc":
        assert rest.pop(0) == PLACES.data.ptr
    if config.kernel == "stream_k":
        assert rest.pop(0) == wgmma.shared_tiles(tiles, SMS)
        partial, handovers = rest.pop(0), rest.pop(0)
        assert partial and handovers and partial % 16 == 0 and handovers != partial
    if config.kernel in HINTING:
        assert rest.pop(0) == {"": 0, "a": 1, "b": 2}[config.keep]
    assert rest.pop(0) == np.float32(scale[0])
    if config.kernel in family.COMPLETE:
        assert rest.pop(0) == np.float32(scale[1])
        assert rest[:2] == [c_in, bias] and [int(x) for x in rest[2:5]] == [m, n, width]
        del rest[:5]
    if config.kind.ordered:
        assert rest.pop(0) == 0, "A lies in rows"
    if direct:  # what tensor maps tell other kernels: 128 words of metadata for each step, in rows
        assert all(isinstance(x, np.int32) for x in rest)
        words = 128 * ceil(k / 64)
        assert [int(rest.pop(0)) for _ in range(3)] == [k, words, b_width or width]
    assert not rest


@pytest.mark.parametrize(
    ("high", "wide", "k", "whole"),
    [
        (1, 1, 64, 1),
        (1, 1, 65, 0),  # a step cannot be cut, two can
        (11, 6, 128, 0),
        (67, 1, 128, 67),
        (12, 11, 128, 132),
        (13, 11, 128, 132),
        (40, 5, 128, 200),
    ],
)
@pytest.mark.parametrize("kernel", CUTTING)
def test_what_is_cut_of_the_last_wave_is_told_to_the_kernel(loaded, kernel, high, wide, k, whole):
    """high x wide tiles, the last row and column of them ragged, by 66 clusters of two."""
    config = room.RUNGS[f"wgmma_{kernel}"][0]
    p = on_fake_gpu(room.problem(config.m * high - 1, config.n * wide - 8, k))
    ((_, how, arguments),) = wgmma.bind("trial", p, H200, config).steps
    assert arguments[8] == whole and isinstance(arguments[8], np.int32)
    assert how.cluster == 2 and how.grid == min(high * wide, 66)
    assert high * wide - whole <= how.grid, "each tile that is cut has a cluster"


def test_every_sm_has_a_block_and_the_table_of_places_stays(loaded):
    """There is one tile, and whichever block has the first place multiplies it. A launch is made again and again, so
    that what it reads is kept with it."""
    p = on_fake_gpu(room.problem(1, 8, 64))
    bound = room.bind("wgmma_gpc", p, H200)
    ((_, how, arguments),) = bound.steps
    assert vars(how).keys() == {"grid", "block", "shmem_size", "is_cooperative"}
    assert how.grid == SMS and how.is_cooperative is True
    assert arguments[5] * arguments[6] == 1 and arguments[8] == PLACES.data.ptr
    assert any(x is PLACES for x in bound.keep[4])
    assert bound.prepare_bytes == wgmma.ring_metadata(p.host().a, 256).nbytes + PLACES.nbytes
    # Nobody else asks for it: it takes a launch of clusters to know.
    assert room.bind("wgmma_lean", p, H200).keep[4] == ()


@pytest.mark.parametrize("n", [1, 257, 1030])
@pytest.mark.parametrize("name", [name for name in RUNGS if name != "wgmma_stream_k"])
def test_rows_that_tma_cannot_address_are_copied_to_others(loaded, name, n):
    config = room.RUNGS[name][0]
    p = on_fake_gpu(room.problem(300, n, 200))
    bound = room.bind(name, p, H200)
    ops, width, unit = p.device(), ceil(n / 64) * 64, min(n & -n, 8)
    (first, _, b_in), (_, how, arguments), (last, _, c_out) = bound.steps
    assert first == last == pitch.ENTRIES[2 * unit] and loaded[0][0] == pitch.SOURCE
    _, _, b, c = matrices(config, bound, arguments)
    assert b.shape == (200, width) and c.shape == (300, width)
    check_rest(config, arguments, 300, n, 200, width)
    if config.kernel == DIRECT:  # which loads and stores 8 columns, and never those of another row
        assert how.grid == (5, ceil(n / config.n)) and ceil(n / 8) * 8 <= width
    else:
        assert arguments[6] == ceil(n / config.n)

    def at(x) -> int:
        return x.data.ptr

    # units of a row, rows, from, its pitch, to, its pitch
    assert b_in == (n // unit, 200, at(ops.b.bits), n // unit, at(b), width // unit)
    assert c_out == (n // unit, 300, at(c), width // unit, at(ops.c.bits), n // unit)
    assert any(x is b for x in bound.keep) and any(x is c for x in bound.keep)
    assert bound.result() is ops.c


@pytest.mark.parametrize("kernel", ["lean", DIRECT])
def test_b_alone_is_copied_where_the_configuration_says_so(loaded, kernel):
    p = on_fake_gpu(room.problem(300, 200, 192))
    config = replace(room.RUNGS[f"wgmma_{kernel}"][0], copied=True)
    bound = wgmma.bind("copied", p, H200, config)
    ops = p.device()
    (first, _, b_in), (_, _, arguments) = bound.steps
    _, _, b, c = matrices(config, bound, arguments)
    assert first == pitch.ENTRIES[16], "16 bytes at once, as rows of both begin at multiples of it"
    assert b.shape == (192, 256) and c is ops.c.bits
    assert b_in == (25, 192, ops.b.bits.data.ptr, 25, b.data.ptr, 32)
    check_rest(config, arguments, 300, 200, 192, 200, b_width=256)
    assert any(x is b for x in bound.keep) and bound.result() is ops.c


@pytest.mark.parametrize("n", [3080, 3075])
@pytest.mark.parametrize("kernel", BY_ROWS)
def test_c_and_a_bias_reach_the_kernels_that_add_them(loaded, kernel, n):
    config = next(c for c, *_ in room.RUNGS.values() if c.kernel == kernel)
    m, k = 1500, 200
    p = on_fake_gpu(room.problem(m, n, k))
    c, bias = Half("bfloat16", array((m, n), np.uint16)), array(m, np.float32)
    bound = wgmma.bind(kernel, p, H200, config, alpha=0.5, beta=-2, c=c, bias=bias)
    width = n if n % 8 == 0 else ceil(n / 64) * 64
    copies = [arguments for entry, _, arguments in bound.steps if entry in PITCHES]
    ((entry, _, arguments),) = [step for step in bound.steps if step[0] not in PITCHES]
    assert entry == config.entry("bfloat16", extra=True)
    c_in = c.bits.data.ptr
    if width != n:
        assert len(copies) == 3 and copies[1][:4] == (n, m, c_in, n) and copies[1][5] == width
        c_in = copies[1][4]
        out = matrices(config, bound, arguments)[3]
        assert c_in not in (out.data.ptr, c.bits.data.ptr), "C is not overwritten"
    check_rest(config, arguments, m, n, k, width, (0.5, -2), c_in, bias.data.ptr)
    assert any(x is c for x in bound.keep) and any(x is bias for x in bound.keep)
    # Without either, the kernel that pays nothing for them; alpha is in all of them.
    plain = wgmma.bind(kernel, p, H200, config, alpha=3).steps
    assert config.entry("bfloat16") in [step[0] for step in plain]
    only_bias = wgmma.bind(kernel, p, H200, config, bias=bias).steps
    assert config.entry("bfloat16", extra=True) in [step[0] for step in only_bias]


@pytest.mark.parametrize("config", [BIG, SMALL], ids=lambda config: config.kernel)
def test_metadata_that_is_there_is_not_made_again(loaded, monkeypatch, config):
    p = on_fake_gpu(room.problem(300, 64, 192))
    there = wgmma.ring_metadata(p.device().a, 256).view(Array)
    monkeypatch.setattr(wgmma, "timed", lambda work: pytest.fail("made again"))
    bound = wgmma.bind("trial", p, H200, config, metadata=there)
    ((_, _, arguments),) = bound.steps
    assert matrices(config, bound, arguments)[1] is there and bound.prepare_ms == 0
    assert bound.prepare_bytes == there.nbytes


def test_metadata_of_whole_rounds_has_longer_rows_than_its_steps(loaded):
    """As a tuner may have it for kernels in rounds: a row of tiles begins where its own words do."""
    p = on_fake_gpu(room.problem(300, 64, 200))
    there = wgmma.ring_metadata(p.device().a, 256, 8 * 64).view(Array)
    bound = wgmma.bind("trial", p, H200, SMALL, metadata=there)
    ((_, how, arguments),) = bound.steps
    assert int(arguments[4]) == 4 and [int(x) for x in arguments[-3:]] == [200, 8 * 128, 64]
    assert arguments[1] == there.data.ptr and how.grid == (5, 2)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (10, 0), (12, 0)])
@pytest.mark.parametrize("name", RUNGS)
def test_a_gpu_without_wgmma_is_refused_and_told_what_to_use(loaded, name, capability):
    p = replace(room.problem(4096, 4096, 4096), make_device=never)
    gpu = SimpleNamespace(compute_capability=capability, properties=PROPERTIES)
    said = f"^{name} is made of wgmma, .* this GPU, {capability[0]}.{capability[1]}, has not: use mma_sp$"
    with pytest.raises(ValueError, match=said):
        room.bind(name, p, gpu)
    assert not loaded


@pytest.mark.parametrize("kernel", [k for k in family.KERNELS if k not in family.COMPLETE])
def test_kernels_that_add_nothing_say_who_does(loaded, kernel):
    p = on_fake_gpu(room.problem(256, 256, 128))
    name, (config, *_) = next(x for x in room.RUNGS.items() if x[1][0].kernel == kernel)
    c, bias = Half("bfloat16", array((256, 256), np.uint16)), array(256, np.float32)
    for extra in ({"bias": bias}, {"beta": 1.0, "c": c}, {"activation": "relu"}):
        with pytest.raises(ValueError, match=f"^wgmma_{kernel} adds neither C nor a bias, .*: use one "):
            room.bind(name, p, H200, **extra)
    assert not loaded
    # Without a factor C is not looked at, and nothing is added.
    ((entry, *_),) = room.bind(name, p, H200, beta=0.0, c=c).steps
    assert entry == config.entry("bfloat16")


def test_what_is_added_must_go_with_the_product(loaded):
    """A wrong shape or dtype would be read as something else, and beyond its end."""
    p = on_fake_gpu(room.problem(64, 72, 128))
    out, words = p.device().c, np.uint16

    def c(shape, dtype="bfloat16") -> Half:
        return Half(dtype, array(shape, words))

    for extra, said in (
        ({"beta": 1.0}, "nothing to multiply by beta = 1.0"),
        ({"beta": 1.0, "c": c((72, 64))}, r"c of \(64, 72\) .*, not bfloat16 \(72, 64\)"),
        ({"beta": 1.0, "c": c((64, 72), "float16")}, "adds a bfloat16 c .* not float16"),
        ({"beta": 1.0, "c": Half("bfloat16", c((64, 144)).bits[:, ::2])}, "lies in memory as the output"),
        ({"beta": 1.0, "c": out}, "would change the c that it adds"),
        ({"bias": array(72, np.float32)}, r"float32 bias of \(64,\), .* not float32 \(72,\)"),
        ({"bias": array((64, 1), np.float32)}, r"not float32 \(64, 1\)"),
        ({"bias": array(64, np.float64)}, r"not float64 \(64,\)"),
        ({"bias": array(128, np.float32)[::2]}, "adds a contiguous float32 bias"),
    ):
        with pytest.raises(ValueError, match=f"^wgmma_keep .*{said}") as caught:
            room.bind("wgmma_keep", p, H200, **extra)
        assert "\n" not in str(caught.value)
    assert not loaded


@pytest.mark.parametrize("name", ["wgmma_keep", "wgmma_cp_async"])
@pytest.mark.parametrize("which", ["b", "c", "c_in"])
def test_addresses_that_tma_cannot_take_are_copied_as_well(loaded, which, name):
    """A part of another array may begin at any multiple of two bytes."""

    def moved(shape) -> Array:
        there = array(shape[0] * shape[1] + 4, np.uint16)
        assert there.data.ptr % 16 == 0
        return there[4:].reshape(shape)

    p = on_fake_gpu(room.problem(64, 72, 128))
    ops = p.device()
    if which != "c_in":
        setattr(ops, which, Half("bfloat16", moved(getattr(ops, which).shape)))
    c = Half("bfloat16", moved((64, 72)) if which == "c_in" else array((64, 72), np.uint16))
    config = room.RUNGS[name][0]
    bound = room.bind(name, p, H200, beta=1.0, c=c)
    copies = [(x[2], x[4]) for entry, _, x in bound.steps if entry in PITCHES]
    (arguments,) = (x for entry, _, x in bound.steps if entry not in PITCHES)
    *_, b_there, out = matrices(config, bound, arguments)
    added = arguments[7 if config.kernel == DIRECT else 11]
    assert b_there.data.ptr % 16 == out.data.ptr % 16 == added % 16 == 0
    assert bound.result() is ops.c
    if which == "b":
        assert copies == [(ops.b.bits.data.ptr, b_there.data.ptr)]
    else:
        assert copies == [(c.bits.data.ptr, added), (out.data.ptr, ops.c.bits.data.ptr)]


def test_configurations_that_are_tried_share_what_they_prepare(loaded):
    p, cache = on_fake_gpu(room.problem(64, 75, 128)), {}
    config = room.RUNGS["wgmma_packed"][0]
    one = wgmma.bind("one", p, H200, config, cache=cache)
    two = wgmma.bind("two", p, H200, config, cache=cache)
    assert one.prepare_ms > two.prepare_ms
    for x, y in zip(one.keep[3:7], two.keep[3:7], strict=True):
        assert x is y or x == y == (), "packed values, and rows of another length"
    alone = wgmma.bind("alone", p, H200, config)
    assert alone.keep[3] is not one.keep[3] and alone.keep[6] is not one.keep[6]


@pytest.mark.parametrize("name", ["wgmma_keep", "wgmma_cp_async"])
def test_values_at_any_address_are_taken(loaded, name):
    p = on_fake_gpu(room.problem(64, 72, 128))
    a = p.device().a
    there = array(a.val.size + 4, np.uint16)[4:].reshape(a.val.shape)
    p.device().a = replace(a, val=there)
    bound = room.bind(name, p, H200)
    ((_, _, arguments),) = bound.steps
    assert matrices(room.RUNGS[name][0], bound, arguments)[0] is bound.keep[1]
    assert there.data.ptr % 16 and bound.keep[1] is not there and bound.keep[1].data.ptr % 16 == 0


def test_refusals_come_before_the_operands(loaded):
    p = replace(room.problem(512, 512, 64), make_device=never)
    with pytest.raises(ValueError, match="^stream_k shares 4 x 2 tiles"):
        room.bind("wgmma_stream_k", p, H200)
    with pytest.raises(ValueError, match="^split_k cannot cut 1 steps"):
        room.bind("wgmma_split_k", p, H200)
    with pytest.raises(ValueError, match="^rounds goes through the 1 steps"):
        room.bind("wgmma_rounds", p, H200)
    with pytest.raises(ValueError, match="no variant 'wgmma': choose one of mma_sp, "):
        room.bind("wgmma", p, H200)


# --------------------------------------------------------------------------- what the compiler makes


@pytest.fixture(scope="module")
def cubins():
    """entry -> cubin for the only target."""
    sources = [(config.source, entry) for entry, (config, *_) in ENTRIES.items()]
    return {entry: x for (entry, _), x in compiled.cubins(sources, family.TARGETS).items()}


@pytest.fixture(scope="module")
def reports(cubins):
    """entry -> resources and instruction mix."""
    return compiled.reports(cubins)


@pytest.fixture(scope="module")
def listings(cubins) -> dict[str, list[str]]:
    """entry -> what multiplies, waits for it and reads shared memory, in the order of the SASS."""

    def listing(cubin):
        code = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", jit.disassemble(cubin))
        return [" ".join(op.split()) for op in code if re.search(r"HGMMA|WARPGROUP\.|\bLDS", op)]

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(cubins, pool.map(listing, cubins.values()), strict=True))


def inner_loop(cubin) -> list[str]:
    """The instructions of the shortest loop that multiplies: steps of a warpgroup, and nothing of a tile."""
    code, labels, loops = [], {}, []
    for line in jit.disassemble(cubin).splitlines():
        if label := re.match(r"(\.L_\w+):", line):
            labels[label[1]] = len(code)
        elif op := re.search(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", line):
            code.append(op[1])
    for end, op in enumerate(code):
        back = re.search(r"\bBRA\b.*(\.L_\w+)", op)
        if back and labels[back[1]] <= end:
            loops.append(code[labels[back[1]] : end + 1])
    return min((loop for loop in loops if any("HGMMA" in op for op in loop)), key=len)


def modified(mix: dict[str, int], opcode: str, modifier: str) -> int:
    """Instructions of one opcode with a modifier."""
    return sum(n for op, n in mix.items() if op.startswith(opcode) and modifier in op.split(".")[1:])


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_compiles_without_spills_and_fits_its_block(reports, entry):
    config, *_ = ENTRIES[entry]
    used, _ = reports[entry]
    assert not used.spills and used.stack_bytes == used.local_bytes == 0, used
    barriers = 0 if config.kernel == DIRECT else 1024
    assert used.shared_bytes <= barriers + 1024, "for which check leaves a KiB, and the driver's own"
    exchanging = config.kernel in EXCHANGING
    assert used.registers == 160 or not exchanging
    assert (family.AT_LAUNCH if exchanging else used.registers) * threads(config) <= 65536


def registers(op: str) -> int:
    """How many registers a thread has at least that executes an instruction: it names the first of several."""
    named = [int(number) for number in re.findall(r"\bR(\d+)\b", op)]
    kind = re.sub(r"^@!?U?P\w+\s+", "", op).split()[0]
    if sums := re.match(r"HGMMA.*x(\d+)x", kind):  # N / 2 of a thread, and a word of metadata
        return max(named[0] + int(sums[1]) // 2, max(named) + 1)
    pairs = 2 * bool({"WIDE", "HI"} & {*kind.split(".")})
    several = 4 if kind.endswith(".M88.4") else max(pairs, width(kind) // 32)
    return max(named, default=-several) + several


def most_registers(listing: str) -> dict[str, int]:
    """How many registers paths through a disassembly need: from the entry, and behind each kind of setmaxnreg."""
    code, labels = [], {}
    for line in listing.splitlines():
        if label := re.match(r"\s*(\.L_\w+):", line):
            labels[label[1]] = len(code)
        elif op := re.search(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", line):
            code.append(op[1])
    most: Counter = Counter()
    todo, seen = [(0, "launch")], set()
    while todo:
        at, state = todo.pop()
        if at >= len(code) or (at, state) in seen:
            continue
        seen.add((at, state))
        op = code[at]
        state = next((kind for kind in ("TRY_ALLOC", "DEALLOC") if f"USETMAXREG.{kind}" in op), state)
        most[state] = max(most[state], registers(op))
        todo += [(labels[label], state) for label in re.findall(r"\.L_\w+", op) if label in labels]
        ends = re.match(r"(EXIT|BRA|RET\S*|BRA\.U)\b(?!\.DIV|\.U\.ANY)", op)  # without a predicate
        if not ends:
            todo.append((at + 1, state))
    return dict(most)


@pytest.mark.parametrize("entry", [entry for entry, (c, *_) in ENTRIES.items() if c.kernel in SPECIALISED])
def test_nobody_uses_registers_that_it_does_not_have(cubins, reports, entry):
    """What a block has is shared out by setmaxnreg, and who waits for more than that waits for ever. Some are launched
    with 128, of which the compiler, told of 160, knows nothing: the code must do with them until it has more."""
    config, sass = ENTRIES[entry][0], jit.disassemble(cubins[entry])
    asked = re.findall(r"USETMAXREG\.(\w+)\.CTAPOOL (?:UP\d, )?(0x\w+)", sass)
    has = {kind: int(number, 16) for kind, number in asked}
    assert len(asked) == 2 and has.keys() == {"TRY_ALLOC", "DEALLOC"}
    exchanging = config.kernel in EXCHANGING
    has["launch"] = 128 if exchanging else reports[entry][0].registers
    assert config.groups * has["TRY_ALLOC"] + has["DEALLOC"] <= (config.groups + 1) * has["launch"]
    found = most_registers(sass)
    assert found.keys() == has.keys()
    assert all(found[part] <= has[part] for part in has), (found, has)
    # What is read without nvdisasm, where such a kernel is made ready, is no less.
    assert used_before(jit._instructions(cubins[entry])) >= found["launch"]
    assert not exchanging or found["TRY_ALLOC"] > 128, "otherwise nothing need be exchanged"


def test_registers_are_counted_along_paths():
    lines = [
        "MOV R5, R1 ;",
        "@P0 BRA `(.L_x_1) ;",
        "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0xa0 ;",
        "FADD R150, R150, R3 ;",
        "@P1 BRA `(.L_x_2) ;",
        "EXIT ;",
        ".L_x_1:",
        "USETMAXREG.DEALLOC.CTAPOOL 0x20 ;",
        "MOV R31, R9 ;",
        "EXIT ;",
        ".L_x_2:",
        "FADD R155, R150, R3 ;",
        "EXIT ;",
        "MOV R200, R200 ;",
    ]
    listing = [x if x.startswith(".") else f"        /*{16 * i:04x}*/    {x}" for i, x in enumerate(lines)]
    assert most_registers("\n".join(listing)) == {"launch": 6, "TRY_ALLOC": 156, "DEALLOC": 32}


@pytest.mark.parametrize(
    ("op", "needed"),
    [
        ("USETMAXREG.DEALLOC.CTAPOOL 0x20 ;", 0),
        ("FADD R1, R7, RZ ;", 8),
        ("UIADD3 UR40, UR4, 0x1, URZ ;", 0),
        ("HGMMA.SP.64x256x32.F32.BF16 R24, gdesc[UR20].tnspB, R24, UP0, R153, 0x0 ;", 154),
        ("HGMMA.SP.64x256x32.F32.BF16 R40, gdesc[UR20].tnspB, R40, R8, 0x1, gsb0 ;", 168),
        ("@!P0 LDC.64 R30, c[0x0][0x448] ;", 32),
        ("STSM.16.M88.4 [R7], R12 ;", 16),
        ("IMAD.HI.U32 R3, R3, R7, R30 ;", 32),
        ("LDG.E.128 R28, desc[UR4][R2.64] ;", 32),
    ],
)
def test_an_instruction_needs_registers_that_it_does_not_name(op, needed):
    assert registers(op) == needed


def test_three_blocks_of_the_first_rung_share_an_sm(reports):
    """Its prediction says that they hide each other's waiting."""
    config = room.RUNGS["wgmma_one_stage"][0]
    used, _ = reports[config.entry("bfloat16")]
    assert 65536 // (ceil(used.registers / 8) * 8 * 128) >= 3
    assert 3 * (config.shared_bytes + used.shared_bytes) <= 228 * 1024


def stages(listing: list[str], blocks: int, steps: int = 1) -> list[list[tuple[str, str, bool]]]:
    """(register of metadata, selector, whether it closes the group) of the instructions of each stage.

    steps: of 64 columns, of a stage.
    """
    # B is as it lies in memory, rows of columns; the instruction transposes it.
    work = [re.fullmatch(r"HGMMA.*\.tnspB, .*, (R\d+), (0x[01])(, gsb0)? ;", op) for op in listing if "HGMMA" in op]
    each = 2 * blocks * steps
    assert work and all(work) and len(work) % each == 0, listing
    found = [(match.group(1), match.group(2), bool(match.group(3))) for match in work]
    return [found[i : i + each] for i in range(0, len(found), each)]


@pytest.mark.parametrize("entry", ENTRIES)
def test_the_sparse_instruction_is_what_runs_with_both_selectors(reports, listings, entry):
    """HGMMA.SP and nothing else; a step is each block of 64 rows with selector 0, then each with 1."""
    config, dtype, _ = ENTRIES[entry]
    steps = family.DEEP if config.kernel == DIRECT else 1  # of a stage
    _, mix = reports[entry]
    kind = ".F32.BF16" if dtype == "bfloat16" else ".F32"
    work = [op.split()[0] for op in listings[entry] if "HGMMA" in op]
    assert set(work) == {f"HGMMA.SP.64x{config.n}x32{kind}"}
    assert sum(n for op, n in mix.items() if op.startswith("HGMMA.SP")) == len(work)
    assert not any(op.startswith(("HMMA", "IMMA", "LDSM")) for op in mix)
    assert bool(count(mix, "LDGSTS")) == (config.kernel == DIRECT)
    blocks = config.blocks
    each = 2 * blocks
    for stage in stages(listings[entry], blocks, steps):
        closes = [False] * (each * steps - 1) + [True]
        assert [close for *_, close in stage] == closes, "serialised: a group is one instruction"
        for step in (stage[i : i + each] for i in range(0, len(stage), each)):
            assert [selector for _, selector, _ in step] == ["0x0"] * blocks + ["0x1"] * blocks
            words = [word for word, *_ in step]
            assert words[:blocks] == words[blocks:], "a word serves both selectors"
            assert len(set(words)) == blocks, "and one block of rows"
        assert len({word for word, *_ in stage}) == blocks * steps, "of one step"
    # Nothing but metadata is read from shared memory by threads: a word for two instructions.
    plan = {"stream_k": 17, "gpc": 2}.get(config.kernel, 0)  # and what a block's share is, or its place
    assert count(mix, "LDS") - plan == len(work) / 2, mix


@pytest.mark.parametrize("entry", ENTRIES)
def test_one_multiplication_stays_under_way_and_no_word_is_overwritten(listings, entry):
    """wgmma reads metadata from registers while it runs, hence two sets of them; or it is waited for in every stage."""
    config, *_ = ENTRIES[entry]
    assert overwritten(listings[entry]) == []
    waits = [op.split(", ")[-1] for op in listings[entry] if "WARPGROUP.DEPBAR" in op]
    alone = config.kernel in ("one_stage", DIRECT)
    assert set(waits) == ({"0x0 ;"} if alone else {"0x0 ;", "0x1 ;"})
    assert len(waits) == 1 or config.kernel != DIRECT, "where there is one place that multiplies"


def overwritten(listing: list[str]) -> list[str]:
    """Reads of metadata into a register that a group of HGMMA which is still under way reads."""
    under_way, group, wrong = [], set(), []
    for op in listing:
        if match := re.search(r"HGMMA.*, (R\d+), 0x[01]", op):
            group.add(match.group(1))
            if "gsb0" in op:
                under_way.append(group)
                group = set()
        elif match := re.search(r"WARPGROUP\.DEPBAR\.LE gsb0, 0x(\d)", op):
            under_way = under_way[max(0, len(under_way) - int(match.group(1))) :]
        elif match := re.search(r"\bLDS (R\d+),", op):
            wrong += [op] * any(match.group(1) in words for words in under_way)
    return wrong


def test_a_word_that_is_overwritten_is_seen():
    stage = [
        "HGMMA.SP.64x64x32.F32.BF16 R8, gdesc[UR4].tnspB, R8, {0}, 0x0 ;",
        "HGMMA.SP.64x64x32.F32.BF16 R8, gdesc[UR4].tnspB, R8, {0}, 0x1, gsb0 ;",
    ]
    one, two = ([line.format(word) for line in stage] for word in ("R90", "R91"))
    wait = ["WARPGROUP.DEPBAR.LE gsb0, 0x1 ;"]
    read = ["LDS R90, [R4] ;"]
    assert overwritten([*read, *one, "LDS R91, [R4] ;", *two, *wait, *read]) == []
    assert overwritten([*read, *one, *read]) == read
    assert overwritten([*one, *two, *read, *wait]) == read


@pytest.mark.parametrize("entry", [entry for entry, (c, *_) in ENTRIES.items() if c.kernel == DIRECT])
def test_threads_move_everything_where_there_is_no_copy_engine(cubins, reports, entry):
    """One place copies: for each of four steps 16 bytes of A twice, of B as often as 64 rows need, and a word."""
    config, _, extra = ENTRIES[entry]
    used, mix = reports[entry]
    asked = {"LDGSTS.E.BYPASS.LTC128B.128": 2 + config.n // 16, "LDGSTS.E.LTC128B": 1}
    copies = {op: n for op, n in mix.items() if op.startswith("LDGSTS")}
    assert copies == {op: family.DEEP * n for op, n in asked.items()}
    assert sum(copies.values()) == family.DEEP * (3 + config.n // 16)
    # Neither the copy engine nor barriers to wait for it, and nothing is stored through shared memory.
    others = r"UTMA|UBLKCP|SYNCS|UCGABAR|USETMAXREG|STSM|STS\b"
    assert not any(re.match(others, op) for op in mix), mix
    assert not any(op.startswith(("RED", "ATOM")) for op in mix)
    # C goes from registers to memory, 16 bytes of a row at once where a tile has four pieces of 8 columns. Of two a
    # thread has pairs; where C and a bias are read first, the compiler may write the code for them more than once.
    stores = {op: n for op, n in mix.items() if op.startswith("STG")}
    if config.n >= 32:
        assert stores == {"STG.E.128": config.n // 16}, mix
        assert count(mix, "SHFL") == config.n // 4, "four lanes of a row exchange words"
    else:
        assert stores.keys() == {"STG.E"} and stores["STG.E"] >= 4
        assert stores["STG.E"] == 4 or extra
        assert not count(mix, "SHFL")
    assert bool(count(mix, "LDG")) == extra, "a thread reads C and a bias, or nothing"
    assert used.registers <= 40 + config.n // 2


@pytest.mark.parametrize("entry", [entry for entry, (c, *_) in ENTRIES.items() if c.kernel == DIRECT])
def test_the_next_stage_is_asked_for_while_four_steps_are_multiplied(cubins, entry):
    """One loop does everything, and code that a product of microseconds reads first of all is short."""
    config, _, extra = ENTRIES[entry]
    sass = jit.disassemble(cubins[entry])
    code = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(\S[^;]*;)", sass)
    loop = inner_loop(cubins[entry])

    def places(what: str) -> list[int]:
        """In the loop, which has all that there are."""
        found = [i for i, op in enumerate(loop) if re.search(what, op)]
        assert len(found) == sum(bool(re.search(what, op)) for op in code), what
        return found

    work, copies = places(r"\bHGMMA"), places(r"\bLDGSTS")
    assert len(work) == 2 * family.DEEP and len(copies) == family.DEEP * (3 + config.n // 16)
    (wait,), (closed,) = places(r"\bWARPGROUP\.DEPBAR"), places(r"\bLDGDEPBAR")
    (there,), (fence,), (met,) = (
        places(what) for what in (r"\bDEPBAR\.LE SB0", r"\bFENCE\.VIEW\.ASYNC", r"\bBAR\.SYNC")
    )
    words = places(r"\bLDS R\d")
    assert len(words) == family.DEEP
    # This thread's copies, everybody's, then all words before the first multiplication.
    assert there < fence < met < words[0] and words[-1] < work[0]
    assert work[-1] < copies[0] and copies[-1] < closed and copies[-1] < wait
    pending = int(re.search(r"SB0, (0x\w+)", loop[there])[1], 16)
    assert pending == config.stages - 2, "all but the latest stages have come"
    # Stages are as far from each other as `shared_bytes` has them.
    stage = config.shared_bytes // config.stages
    assert any(f", {stage:#x}, " in op for op in loop if "IMAD" in op)
    assert extra or len(code) < 320 + 4 * config.n, "instructions of 16 bytes each"


@pytest.mark.parametrize("entry", [entry for entry, (c, *_) in ENTRIES.items() if c.kernel != DIRECT])
def test_the_copy_engine_moves_everything(reports, entry):
    config, _, extra = ENTRIES[entry]
    _, mix = reports[entry]
    kernel, chunks = config.kernel, config.n // 64
    # Of each stage: A, its metadata, and B in chunks of 64 columns, all of which a cluster shares.
    copies, shared = count(mix, "UTMALDG"), modified(mix, "UTMALDG", "MULTICAST")
    boxes = chunks + (1 if kernel == "packed" else 2)
    if kernel == "pieces":  # A in boxes of 64 rows, of a step in a loop that is not unrolled
        boxes += config.m // 64 - 1
    assert copies and copies % boxes == 0, mix
    assert shared == (copies // boxes * chunks if kernel in ("multicast", "clusters") else 0)
    pieces = config.m // 64 if kernel == "packed" else 0  # side by side, no boxes
    assert count(mix, "UBLKCP") == copies // boxes * pieces
    # Out: squares of 64 x 64, 16 columns of a warp at a time. split_k has a loop for them; who cuts the last wave has
    # them twice: of whole tiles, and of the one that is cut.
    whole = config.blocks * chunks
    squares = 1 if kernel == "split_k" else whole * (1 + (kernel in CUTTING))
    assert count(mix, "UTMASTG") == squares and count(mix, "STSM") == 4 * squares
    changes = [modified(mix, "USETMAXREG", name) for name in ("TRY_ALLOC", "DEALLOC")]
    assert changes == ([1, 1] if kernel in SPECIALISED else [0, 0])
    # Sums in float32 travel between blocks: through global memory, or through each other's shared.
    sums = config.blocks * config.n // 8 if kernel == "stream_k" else 0
    assert count(mix, "LDG", 128) == count(mix, "STG", 128) == sums, mix
    adding = kernel == "split_k" or kernel in CUTTING
    assert bool(count(mix, "LD", 128)) == adding
    if kernel != "stream_k":  # which writes its share of the tiles there
        assert bool(count(mix, "STS", 128)) == adding
    # A square is given away or added to, as the rank has it: 32 sums of a thread either way.
    if kernel in CUTTING:
        assert count(mix, "LD", 128) == count(mix, "STS", 128) == 8 * whole
    assert bool(count(mix, "UCGABAR_ARV")) == (kernel in ("split_k", "clusters", *PAIRS))
    place = kernel == "gpc"  # one word of a table
    assert count(mix, "LDG") >= sums + place
    assert bool(count(mix, "LDG") - sums - place) == extra, "a thread reads C and a bias, or nothing"
    # No atomics but the two counts of a handover, whose results nobody waits for.
    assert sum(n for op, n in mix.items() if op.startswith("RED")) == 2 * (kernel == "stream_k")
    assert not any(op.startswith("ATOM") for op in mix)


def test_lean_steps_have_fewer_instructions_and_those_of_rounds_fewer_still(cubins):
    """Their predictions say so: some 52, 28 and 17 of a warp for each step."""
    step = {}
    for name in ("wgmma_keep", "wgmma_lean", "wgmma_rounds"):
        config = room.RUNGS[name][0]
        loop = inner_loop(cubins[config.entry("bfloat16")])
        multiplications = sum("HGMMA" in op for op in loop)
        assert multiplications and multiplications % 4 == 0 and "UTMASTG" not in str(loop)
        step[name] = len(loop) / (multiplications / (2 * config.blocks))
    assert step["wgmma_lean"] < 0.62 * step["wgmma_keep"], step
    assert step["wgmma_rounds"] < 0.75 * step["wgmma_lean"], step


@pytest.mark.parametrize("entry", ENTRIES)
def test_one_kernel_asks_where_it_runs(cubins, entry):
    """And no other one depends on it."""
    asks = "SR_VIRTUALSMID" in jit.disassemble(cubins[entry])
    assert asks == (ENTRIES[entry][0].kernel == "gpc")


@pytest.mark.parametrize("variant", bounds.VARIANTS)
def test_what_a_bound_leaves_out_is_gone_and_nothing_else(tmp_path, variant):
    """Without loads it still multiplies and stores; without multiplications it still loads and stores."""
    for file, text in bounds.changed(variant).items():
        (tmp_path / file).write_text(text)
    kernel = bounds.VARIANTS[variant]
    source = tmp_path / kernel.source.name
    (entry,) = kernel.entries
    cubin = jit.compile_cubin(source, entry, "sm_90a", include=[wgmma.HERE])
    mix, (whole, _) = jit.instruction_mix(cubin), bounds._OF[variant]
    all_of_it = jit.instruction_mix(jit.compile_cubin(kernel.source, entry, "sm_90a"))
    for op, part in (("UTMALDG", "_unloaded"), ("HGMMA.SP", "_unmultiplied")):
        left = 0 if variant == whole + part else count(all_of_it, op)
        assert count(mix, op) == left, (op, mix)
    assert count(mix, "UTMASTG") == count(all_of_it, "UTMASTG")
    assert not jit.resources(cubin).spills


def test_a_bound_whose_rung_was_rewritten_says_so(monkeypatch):
    monkeypatch.setitem(bounds.LEFT_OUT, "_unloaded", (None, "no such text", 1, ""))
    with pytest.raises(ValueError, match="wgmma_three.cu has 'no such text' 0 times instead of 1"):
        bounds.changed("wgmma_three_unloaded")
    with pytest.raises(ValueError, match="no variant 'wgmma_keep': choose one of wgmma_rounds, "):
        bounds.bind("wgmma_keep", None, H200)


def test_hopper_is_the_only_target():
    """That is why Kernel.targets says so: another architecture has not the instruction."""
    kernel = room.VARIANTS["wgmma_one_stage"]
    for arch in set(jit.TARGETS) - set(kernel.targets):
        with pytest.raises(jit.CompileError, match=f"does not compile for {arch}"):
            jit.compile_cubin(kernel.source, kernel.entries[0], arch)


def test_rows_are_copied_without_spills():
    for entry in PITCHES:
        used = jit.resources(jit.compile_cubin(pitch.SOURCE, entry, "sm_90a"))
        assert not used.spills and used.registers <= 64


@pytest.mark.parametrize(
    ("source", "entry", "reason"),
    [
        ("wgmma_persistent.cu", "wgmma_persistent<BF16, 2, 1, 96, 4, 2, false>", "up to 256 columns"),
        (
            "wgmma_persistent.cu",
            "wgmma_persistent<BF16, 1, 1, 320, 4, 2, false>",
            "up to 256 columns",
        ),
        ("wgmma_split_k.cu", "wgmma_split_k<BF16, 2, 1, 256, 2, 2, false>", "more stages"),
        ("wgmma_rounds.cu", "wgmma_rounds<BF16, 2, 1, 128, 5, 1, false>", "two sets of words"),
        ("wgmma_refilling.cu", "wgmma_refilling<BF16, 3, 1, 256, 2, 1>", "another is there"),
        (
            "wgmma_three.cu",
            "wgmma_three<BF16, 2, 1, 256, 4, 1, false>",
            "160 registers for each of three",
        ),
        ("wgmma_pieces.cu", "wgmma_pieces<BF16, 3, 2, 128, 4, 1>", "160 registers for each of"),
        ("wgmma_pieces.cu", "wgmma_pieces<BF16, 3, 1, 128, 5, 1>", "two sets of words"),
        (
            "wgmma_last_wave.cu",
            "wgmma_last_wave<BF16, 1, 1, 64, 8, 1, false>",
            "half of the sums",
        ),
        ("wgmma_last_wave.cu", "wgmma_last_wave<BF16, 2, 2, 192, 2, 2, false>", "half of the sums"),
        (
            "wgmma_cp_async.cu",
            "wgmma_cp_async<BF16, 128, 4, false>",
            "a row of B is a swizzled row",
        ),
        ("wgmma_cp_async.cu", "wgmma_cp_async<F16, 8, 4, true>", "a row of B is a swizzled row"),
    ],
)
def test_an_impossible_instantiation_says_why(source, entry, reason):
    with pytest.raises(jit.CompileError, match=f"(?s){entry}.*{reason}"):
        jit.compile_cubin(wgmma.HERE / source, entry, "sm_90a")


def test_the_plain_kernel_of_every_rung_is_among_them():
    assert {room.VARIANTS[name].entries[0] for name in RUNGS} <= set(ENTRIES)
    assert {dtype for _, dtype, _ in ENTRIES.values()} == set(DTYPES)
    assert {c.kernel for c, _, extra in ENTRIES.values() if extra} == set(BY_ROWS)
