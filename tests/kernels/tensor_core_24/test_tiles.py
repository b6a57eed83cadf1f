"""Configurations of Hopper's kernels, in 16 bits and in 8: what they take and need, and that tiles are done once."""

import re
from dataclasses import fields, replace
from math import ceil

import pytest
from hypothesis import given, settings, strategies as st
from refused import says
from there import FP8, KINDS, MOST, PACKED, SMS, WGMMA

from kernels import jit
from kernels.tensor_core_24 import family, tiles
from kernels.tensor_core_24.family import Wgmma

WHOLE = 8192, 8200, 8192  #: rows of B of 16 bits begin at odd multiples of 16 bytes, steps are whole rounds


def orders_of(config) -> str:
    return "FF" if config.n in config.kind.narrow or "CC" not in config.kind.orders else "CC"


@pytest.mark.parametrize("config", (*WGMMA, *PACKED, *FP8), ids=str)
def test_every_configuration_takes_its_problem_and_names_itself(config):
    config.check(*WHOLE, SMS, MOST, orders_of(config))
    # 227 KiB of shared memory, and the copy engine's boxes of at most 256.
    assert config.shared_bytes + 1024 <= MOST and config.shared_bytes % 1024 == 0 and max(config.m, config.n) <= 256
    assert config.source.is_file() and f"{config.name}(" in config.source.read_text()
    entry = config.entry(*(["bfloat16"] if isinstance(config, Wgmma) else []))
    assert entry.startswith(f"{config.name}<") and re.search(rf"\b{config.n}\b", entry)
    # The orders of tiles and the hints are arguments: they compile nothing.
    assert replace(config, band=3, keep="b").entry(*(["bfloat16"] if isinstance(config, Wgmma) else [])) == entry


def test_no_configuration_is_tried_twice_and_every_kernel_is_there():
    for one in (family.WGMMA_FAMILY, family.NARROW_FAMILY, family.FP8_FAMILY, family.FP8_NARROW_FAMILY):
        assert len(set(one)) == len(one)
    names = {f"wgmma_{x}" for x in family.KINDS} | {f"fp8_{x}" for x in family.FP8_KINDS}
    assert set(KINDS) == names == {path.stem for x in ("wgmma", "fp8") for path in tiles.HERE.glob(f"{x}_*.cu")}


#: A knob or a size, its value that is refused, and what the sentence says. Each of a configuration of a kernel.
REFUSED = [
    ("wgmma_persistent", {"groups": 3}, ["groups 3", "1, 2"]),
    ("wgmma_persistent", {"blocks": 3}, ["rows of a tile 384"]),
    ("wgmma_persistent", {"n": 96}, ["n 96", "64, 128, 192, 256"]),
    ("wgmma_persistent", {"n": 32}, ["n 32"]),
    ("wgmma_persistent", {"keep": "ab"}, ["keep 'ab'", "'a', 'b'"]),
    ("wgmma_packed", {"keep": ""}, ["keep ''", "'a', 'b'"]),
    ("wgmma_multicast", {"keep": ""}, ["keep ''"]),
    ("wgmma_clusters", {"keep": ""}, ["keep ''"]),
    ("wgmma_clusters", {"share": 1}, ["share 1", "2, 4"]),
    ("wgmma_ring", {"keep": "a"}, ["keep 'a'"]),
    ("wgmma_persistent", {"buffers": 0}, ["buffers 0", "1 to 16"]),
    ("wgmma_persistent", {"splits": 2}, ["splits 2", "takes 1"]),
    ("wgmma_split_k", {"splits": 9}, ["splits 9", "1 to 8"]),
    ("wgmma_persistent", {"share": 2}, ["share 2"]),
    ("wgmma_persistent", {"stages": 1}, ["stages 1", "2 to 32"]),
    ("wgmma_refilling", {"stages": 2}, ["stages 2", "3 to 32"]),
    ("wgmma_three", {"stages": 5}, ["stages 5", "by 2"]),
    ("wgmma_rounds", {"stages": 5}, ["stages 5", "by 2"]),
    ("wgmma_one_stage", {"stages": 2}, ["stages 2"]),
    ("wgmma_persistent", {"band": 0}, ["bands of 0 rows"]),
    ("wgmma_persistent", {"blocks": 2, "n": 256}, ["2 x 256 / 2 sums", "192"]),
    ("wgmma_persistent", {"stages": 5}, ["5 stages of 128 x 256", "fewer", "232448"]),
    ("wgmma_persistent", {"sizes": (2**30, 64, 64)}, ["m=1073741824", "1073741823"]),
    ("wgmma_persistent", {"sizes": (64, 2**30, 64)}, ["n=1073741824"]),
    ("wgmma_persistent", {"sizes": (64, 64, 2**30)}, ["k=1073741824"]),
    ("wgmma_persistent", {"orders": "FF"}, ["orders CC", "'FF'", "lean"]),
    ("wgmma_few", {"orders": "CC"}, ["orders FF", "'CC'", "split_k"]),
    ("wgmma_lean", {"n": 8, "orders": "FC"}, ["n 8"]),
    ("wgmma_few", {"packed": True}, ["one order only"]),
    ("wgmma_persistent", {"packed": True}, ["one order only"]),
    ("wgmma_lean", {"copied": True, "sizes": (512, 512, 512)}, ["lines of 512 elements"]),
    ("wgmma_stream_k", {"sizes": (128 * 11, 256 * 11, 64)}, ["11 x 11 tiles", "132 multiprocessors"]),
    ("wgmma_split_k", {"sizes": (512, 512, 64)}, ["1 steps of 64", "2 parts"]),
    ("wgmma_split_k", {"stages": 2}, ["128 x 128 sums", "2 stages"]),
    ("wgmma_last_wave", {"n": 64, "blocks": 1}, ["1 x 64 sums", "odd number"]),
    ("wgmma_last_wave", {"stages": 2}, ["half of", "2 stages"]),
    ("wgmma_gpc", {"n": 128, "stages": 3}, ["one block for each multiprocessor", "room"]),
    ("wgmma_rounds", {"sizes": (512, 512, 320)}, ["5 steps of 64", "use lean"]),
    ("wgmma_cp_async", {"n": 8}, ["n 8"]),
    ("wgmma_cp_async", {"stages": 7, "n": 32}, ["7 stages of 64 x 32", "243712"]),
    ("wgmma_cp_async", {"n": 32, "sizes": (1, 32 * 65535 + 1, 64)}, ["65535 of them, not 65536", "use lean"]),
    ("fp8_refilling", {"groups": 2}, ["groups 2", "3"]),
    ("fp8_direct", {"n": 168}, ["n 168"]),
    ("fp8_direct", {"buffers": 2}, ["buffers 2"]),
    ("fp8_multicast", {"keep": ""}, ["keep ''"]),
    ("fp8_pairs", {"blocks": 2, "n": 192}, ["rows of a tile 256"]),
    ("fp8_packed", {"n": 16, "orders": "CC"}, ["n 16"]),
    ("fp8_persistent", {"ahead": 64}, ["ahead 64"]),
    ("fp8_split_k", {"splits": 8, "sizes": (512, 512, 512)}, ["4 steps of 128 columns into 8"]),
    ("fp8_split_k", {"splits": 1}, ["splits 1", "2 to 8"]),
    ("fp8_persistent", {"stages": 9}, ["fewer"]),
]


@pytest.mark.parametrize(("name", "change", "words"), REFUSED, ids=str)
def test_what_a_configuration_does_not_take_is_one_sentence(name, change, words):
    knobs = {f.name for f in fields(KINDS[name])}
    config = replace(KINDS[name], **{knob: value for knob, value in change.items() if knob in knobs})
    of = *change.get("sizes", WHOLE), SMS, MOST, change.get("orders", "CC" if "n" in change else orders_of(KINDS[name]))
    says([name.partition("_")[2], *words] if "copied" not in change else words, lambda: config.check(*of))
    assert not config.takes(*of)


@pytest.mark.parametrize("config", KINDS.values(), ids=KINDS)
def test_the_limits_themselves_are_taken(config):
    """The last byte of shared memory, and the largest sizes, but for who counts tiles or blocks of a grid."""
    config, orders, most = replace(config, stages=max(config.stages, 1)), orders_of(config), tiles.INT32_MAX // 2
    sizes = 64 * config.m, 200 * config.n, config.stages * 512
    config.check(*sizes, SMS, config.shared_bytes + 1024, orders)
    says(["shared memory"], lambda: config.check(*sizes, SMS, config.shared_bytes + 1023, orders))
    if config.splits > 1:
        config.check(*sizes[:2], config.splits * config.K, SMS, MOST, orders)
    config.check(most, 65535 * config.n if config.kernel == "cp_async" else most, 2**29, SMS, MOST, orders)
    unknown = replace(config, kernel="fast")
    says(["'fast'", "'split_k'"], lambda: unknown.check(*sizes, SMS, MOST))


def test_shared_memory_is_what_the_kernels_lay_out(tmp_path):
    """The compiler's own sizes: the ring, rounded to 1024, then the squares of each warpgroup."""
    sources = tiles.HERE / "sparse_stages.cuh", jit.COMMON / "store.cuh"
    lines = [*(f'#include "{source}"' for source in sources), "__global__ void sizes() {"]
    for c in WGMMA:
        if c.kind.deep > 1 or c.n in family.NARROW:  # lays its stages out itself; or in another layout
            continue
        ring = f"Stages<BF16, {c.groups}, {c.blocks}, {c.n}, {c.stages}>"
        # Whatever is stored through comes after the ring, at a multiple of 1024 as TMA's swizzle wants.
        lines += [
            f"static_assert((sizeof({ring}) + 1023) / 1024 * 1024 + {c.groups} * "
            f"sizeof(Store<BF16, {c.buffers}, false>) == {c.shared_bytes});",
            f"static_assert({ring}::M == {c.m} && {ring}::BYTES * {c.stages} == sizeof({ring}));",
        ]
    probe = tmp_path / "sizes.cu"
    probe.write_text("\n".join([*lines, "}"]))
    assert jit.compile_cubin(probe, "sizes", "sm_90a").code


@given(count=st.integers(1, 3000), sms=st.integers(2, 200))
@settings(deadline=None, max_examples=150)
def test_only_the_last_waves_are_cut_and_only_where_that_saves_time(count, sms):
    """Along k for stream_k and last_wave, whose clusters of two leave an odd multiprocessor out; along m in pieces as
    low as there are multiprocessors for them."""
    shared = family.shared_tiles(count, sms)
    assert (count - shared) % sms == 0 and shared in ([0] if count % sms == 0 else [count % sms + sms])
    wave, whole = sms // 2 * 2, family.whole_tiles(count, sms)
    assert whole == (count - count % wave if 2 * (count % wave) <= wave else count)
    cut, rest = family.cut_into_pieces(count, 3, sms), count % sms
    counts = {lower: rest * ceil(3 / lower) for lower in (1, 2)}
    lowest = next((lower for lower, pieces in counts.items() if pieces <= sms), 3)
    assert cut == ((count - rest, lowest, counts[lowest]) if lowest < 3 else (count, 3, 0))
