"""The kernels as a layer calls them: which tile, what is refused, and what the compiler makes of gated.cu. No GPU."""

from __future__ import annotations

from math import ceil
from types import SimpleNamespace

import compiled
import numpy as np
import pytest
from compiled import count
from refused import says

from kernels import jit, tma
from kernels.async_sparse import family, layer, published
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


# ------------------------------------------------------------------------------------- the launch


@pytest.fixture
def launched(monkeypatch):
    """What would be enqueued on an H200: (config, kernel, arguments), tensor maps as what they say."""
    import cuda.core

    found = []
    properties = SimpleNamespace(max_shared_memory_per_block_optin=MOST, multiprocessor_count=SMS)
    h200 = SimpleNamespace(compute_capability=(9, 0), properties=properties, name="no known GPU")
    monkeypatch.setattr(cuda.core, "Device", lambda ordinal: h200)
    monkeypatch.setattr(cuda.core, "LaunchConfig", lambda **knobs: SimpleNamespace(**knobs))
    monkeypatch.setattr(cuda.core, "launch", lambda stream, how, kernel, *given: found.append((how, kernel, given)))
    monkeypatch.setattr(layer.jit, "compile_cubin", lambda source, entry, arch: (source, entry))
    monkeypatch.setattr(layer.jit, "load", lambda cubin, bytes: (*cubin, bytes))
    monkeypatch.setattr(tma, "encoded", lambda said: (said, said.box, said.swizzle))
    layer.launcher.cache_clear()
    yield found
    layer.launcher.cache_clear()


X, Y, VAL, INDEX, COLUMNS, COUNTER = range(0x1000, 0x7000, 0x1000)


@pytest.mark.parametrize("tokens", [8, 77, 4096])
@pytest.mark.parametrize("kernel", layer.KERNELS)
def test_a_launch_has_a_block_for_each_tile_and_maps_of_what_it_reads(launched, kernel, tokens):
    tokens = tokens + -tokens % 8 if kernel == "opt5" else tokens
    sizes = Sizes(kernel, 328, 200, 11, tokens, "bfloat16")
    made = layer.launcher(sizes, 0)
    made("stream", X, Y, VAL, INDEX, COLUMNS, COUNTER)
    ((how, (source, entry, need), (a, b, c, *rest)),) = launched
    assert source.name == {"gated": "gated.cu"}.get(kernel, f"{kernel}.cu") and how.block == 384
    assert how.shmem_size == need <= MOST - family.STATIC
    for (mapped, box, swizzle), address, shape, lines in (
        (a, VAL, (11 * 64, 64), (64, 64)),
        (b, X, (tokens, 200), (made.width, 64)),
        (
            c,
            Y,
            *(((328, tokens), (64, made.wide)) if kernel == "opt5" else ((tokens, 328), (made.wide, 64))),
        ),
    ):
        assert (mapped.address, mapped.shape, mapped.typestr, box) == (address, shape, "<u2", lines)
        assert mapped.strides == (2 * shape[1], 2) and max(box) <= 256
        assert swizzle == (0 if 2 * box[1] <= 16 else min(128, 2 * box[1]))
    if kernel == "opt5":
        width = published.wgmma_n(tokens)
        assert how.grid == (6, ceil(tokens / (2 * width))) and rest == [INDEX, COLUMNS, 0]
        return
    index, columns, counter, high, panels, group, steps = rest
    assert (index, columns, counter, high, steps) == (INDEX, COLUMNS, COUNTER, 6, 1)
    assert panels == ceil(tokens / (2 * made.width)) and 1 <= group <= panels
    assert how.grid == min(SMS, 6 * panels)
    assert all(type(x) is np.int32 for x in (high, panels, group, steps))  # integers are addresses


def test_maps_are_kept_by_address(launched):
    made = layer.launcher(Sizes("gated", 64, 64, 1, 64, "float16"), 0)
    for y in (Y, Y, Y + 256):
        made("stream", X, y, VAL, INDEX, COLUMNS, COUNTER)
    maps = [arguments[2] for _, _, arguments in launched]
    assert maps[0] is maps[1] is not maps[2] and len(made._maps) == 4


def test_a_layer_without_blocks_has_a_map_of_one(launched):
    layer.launcher(Sizes("gated", 64, 64, 0, 64, "bfloat16"), 0)("", X, Y, VAL, INDEX, COLUMNS, COUNTER)
    assert launched[0][2][0][0].shape == (64, 64)


def test_tokens_that_the_sources_kernel_cannot_write_are_refused(launched):
    says(
        ["77 tokens", "use unit_ring"],
        lambda: layer.launcher(Sizes("opt5", 64, 64, 1, 77, "bfloat16"), 0),
    )
