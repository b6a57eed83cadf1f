"""The kernels as a layer calls them: which tile, what is refused, and what the compiler makes of gated.cu. No GPU."""

from __future__ import annotations

import compiled
import pytest
from compiled import count
from refused import says

from kernels import jit
from kernels.async_sparse import family, layer
from kernels.async_sparse.family import Unit
from kernels.async_sparse.layer import Sizes

MOST, SMS = 232_448, 132  # of an H200
GATE = Sizes("gated", 18944, 3584, 3316, 16384, "bfloat16")
DOWN = Sizes("unit_ring", 3584, 18944, 1658, 16384, "bfloat16")


def with_tokens(sizes: Sizes, tokens: int) -> Sizes:
    return Sizes(sizes.kernel, sizes.m, sizes.k, sizes.blocks, tokens, sizes.dtype)


@pytest.mark.parametrize("sizes", [GATE, DOWN])
def test_every_number_of_tokens_has_a_tile_that_fits(sizes):
    for tokens in (1, 7, 64, 300, 1024, 4096, 16384, 65536):
        sized = with_tokens(sizes, tokens)
        config = layer.predicted(sized, MOST, SMS)
        family.check(config, layer.shape_of(sized), MOST)


def test_many_tokens_get_the_widest_tile_and_few_a_narrow_one():
    assert layer.predicted(GATE, MOST, SMS).width == 256
    assert layer.predicted(with_tokens(GATE, 8), MOST, SMS).width < 64


def test_entries_name_the_kernel_of_the_sizes():
    unit = family.filled(Unit(256), layer.shape_of(GATE), MOST)
    assert layer.entry(GATE, unit) == "gated<BF16, 256, 3, 5, 2>"
    assert layer.entry(DOWN, unit).startswith("unit_ring<BF16, K_MAJOR, true, false, 256,")
    published = Sizes("opt5", 3584, 18944, 1658, 16384, "float16")
    assert layer.entry(published, unit) == "opt5<F16, false, 256, 3>"


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
    made = compiled.cubins(((layer.GATED, entry) for entry in entries), family.TARGETS)
    return {entries[entry]: pair for (entry, _), pair in compiled.reports(made).items()}


def test_no_width_spills_and_all_find_their_registers(reports):
    for width, (used, _) in reports.items():
        assert not used.spills, (width, used)
        assert used.registers * family.THREADS <= 65_536
        assert used.shared_bytes - 1024 <= family.STATIC  # 1 KiB is the driver's


def test_both_products_are_wgmma_and_silu_divides_once_for_two_values(reports):
    for width, (_, mix) in reports.items():
        assert count(mix, "HGMMA") == 8, width  # four of a step, in each of two loops
        exponentials = sum(n for name, n in mix.items() if name.startswith("MUFU.EX2"))
        assert exponentials == width // 2, width  # a value of a thread's accumulators each
        divisions = sum(n for name, n in mix.items() if name.startswith("MUFU.RCP"))
        assert divisions <= width // 4 + 2, width  # and those of the tile's place


def test_the_kernel_is_for_hopper_alone():
    with pytest.raises(jit.CompileError):
        jit.compile_cubin(layer.GATED, "gated<BF16, 256, 3, 5, 2>", "sm_80")
