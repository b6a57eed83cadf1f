"""The kernels as a layer calls them: which tile, what is refused, and what the compiler makes of gated.cu. No GPU."""

from dataclasses import replace
from math import ceil

import compiled
import numpy as np
import pytest
from compiled import count
from racing import H200
from refused import says

from kernels import tma
from kernels.async_sparse import family, layer
from kernels.async_sparse.family import Unit
from kernels.async_sparse.layer import Sizes

MOST, SMS = 232_448, 132  # of an H200
GATE = Sizes("gated", 18944, 3584, 3316, 16384, "bfloat16")
DOWN = Sizes("unit_ring", 3584, 18944, 1658, 16384, "bfloat16")


@pytest.mark.parametrize("sizes", [GATE, DOWN])
def test_every_number_of_tokens_has_a_tile_that_fits_and_few_a_narrow_one(sizes):
    found = [replace(sizes, tokens=tokens) for tokens in (1, 7, 8, 64, 300, 1024, 4096, 16384, 65536)]
    configs = [layer.config_of(x, H200) for x in found]
    for sized, config in zip(found, configs, strict=True):
        family.check(config, layer.shape_of(sized), MOST)
    assert configs[2].width < 64 and configs[-1].width == 256


def test_entries_name_the_kernel_of_the_sizes():
    unit = family.filled(Unit(256), layer.shape_of(GATE), MOST)
    assert layer.entry(GATE, unit) == "gated<BF16, 256, 3, 5, 2>"
    assert layer.entry(DOWN, unit).startswith("unit_ring<BF16, K_MAJOR, true, false, 256,")
    assert layer.entry(replace(DOWN, kernel="opt5", dtype="float16"), unit) == "opt5<F16, false, 256, 3>"


@pytest.mark.parametrize(
    "sizes, words",
    [
        (Sizes("opt9", 64, 64, 1, 8, "bfloat16"), ["opt9", "unit_ring"]),
        (Sizes("gated", 64, 64, 1, 8, "float32"), ["float32", "convert"]),
        (Sizes("gated", 64, 60, 1, 8, "bfloat16"), ["60 inputs", "multiples of 8"]),
        (Sizes("gated", 63, 64, 1, 8, "bfloat16"), ["63 outputs", "pad"]),
    ],
)
def test_sizes_that_no_kernel_takes_are_refused_in_a_sentence(sizes, words):
    says(words, lambda: layer.check(sizes))


# ------------------------------------------------------------------------------------- gated.cu


@pytest.fixture(scope="module")
def reports():
    entries = {
        layer.entry(sizes, family.filled(Unit(width), layer.shape_of(sizes), MOST)): width
        for width in family.WIDTHS
        for sizes in (GATE, Sizes("gated", 64, 64, 1, 64, "float16"))
    }
    made = compiled.cubins(((family.HERE / "gated.cu", entry) for entry in entries), family.TARGETS)
    return {entries[entry]: pair for (entry, _), pair in compiled.reports(made).items()}


def test_both_products_are_wgmma_and_silu_divides_once_for_two_values(reports):
    for width, (used, mix) in reports.items():
        assert not used.spills and used.registers * family.THREADS <= 65_536, (width, used)
        assert used.shared_bytes - 1024 <= family.STATIC  # 1 KiB is the driver's
        assert count(mix, "HGMMA") == 8, width  # four of a step, in each of two loops
        of = {op: sum(n for x, n in mix.items() if x.startswith(f"MUFU.{op}")) for op in ("EX2", "RCP")}
        assert of["EX2"] == width // 2, width  # a value of a thread's accumulators each
        assert of["RCP"] <= width // 4 + 2, width  # and those of the tile's place


# ------------------------------------------------------------------------------------- the launch


@pytest.fixture
def h200(pretended, monkeypatch):
    """A GPU whose `launched` is what would be enqueued, tensor maps as what they say."""
    device = pretended(H200)
    monkeypatch.setattr("cuda.core.Device", lambda ordinal: device)
    monkeypatch.setattr(tma, "encoded", lambda said: said)
    layer.launcher.cache_clear()
    yield device
    layer.launcher.cache_clear()


X, Y, VAL, INDEX, COLUMNS, COUNTER = range(0x1000, 0x7000, 0x1000)


@pytest.mark.parametrize("tokens", [8, 77, 4096])
@pytest.mark.parametrize("kernel", layer.KERNELS)
def test_a_launch_has_a_block_for_each_tile_and_maps_of_what_it_reads(h200, kernel, tokens):
    tokens = tokens + -tokens % 8 if kernel == "opt5" else tokens
    made = layer.launcher(Sizes(kernel, 328, 200, 11, tokens, "bfloat16"), 0)
    made("stream", X, Y, VAL, INDEX, COLUMNS, COUNTER)
    ((_, how, said, *maps_and_rest),) = h200.launched
    (a, b, c, *rest), turned = maps_and_rest, kernel == "opt5"
    assert said.startswith(f"{kernel}: {kernel}<") and how.block == 384 and how.shmem_size <= MOST - family.STATIC
    boxes = (64, 64), (made.width, 64), (64, made.wide) if turned else (made.wide, 64)
    places = (VAL, (11 * 64, 64)), (X, (tokens, 200)), (Y, (328, tokens) if turned else (tokens, 328))
    for mapped, box, (address, shape) in zip((a, b, c), boxes, places, strict=True):
        swizzle = 0 if 2 * box[1] <= 16 else min(128, 2 * box[1])
        assert mapped == tma.Mapped(address, shape, (2 * shape[1], 2), "<u2", box, swizzle)
    panels = ceil(tokens / (2 * made.width))
    if turned:
        assert how.grid == (6, panels) and rest == [INDEX, COLUMNS, 0]
        return
    *addresses, high, found, group, steps = rest
    assert (addresses, high, found, steps) == ([INDEX, COLUMNS, COUNTER], 6, panels, 1) and 1 <= group <= panels
    assert how.grid == min(SMS, 6 * panels)
    assert all(type(x) is np.int32 for x in (high, found, group, steps))  # integers are addresses


def test_maps_are_kept_by_address_and_without_blocks_there_is_one(h200):
    made = layer.launcher(Sizes("gated", 64, 64, 0, 64, "float16"), 0)
    for y in (Y, Y, Y + 256):
        made("stream", X, y, VAL, INDEX, COLUMNS, COUNTER)
    maps = [launch[5] for launch in h200.launched]
    assert maps[0] is maps[1] is not maps[2] and len(made._maps) == 4
    assert h200.launched[0][3].shape == (64, 64)


def test_tokens_that_the_sources_kernel_cannot_write_are_refused(h200):
    says(
        ["77 tokens", "use unit_ring"],
        lambda: layer.launcher(Sizes("opt5", 64, 64, 1, 77, "bfloat16"), 0),
    )
