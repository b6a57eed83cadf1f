"""Kernels for blocks, windows and groups on a GPU beyond the contract of all systems: every configuration on every
pattern, orders of sums, memory beside the operands, sizes beyond a grid, and kernels that are wrong on purpose."""

from dataclasses import replace
from functools import partial

import emulated
import numpy as np
import pytest
from matrices import PATTERNS, of_lengths, pattern, shuffled
from products import SEED, between, exact, launched

from artifact.measure import verification
from kernels import async_sparse as system, autotune, casper_sparse, gpu as gpus, jit
from kernels.async_sparse import any_csr, family, heads, launch, operands, published, subwarp, windows
from kernels.async_sparse.family import Tile, Unit
from kernels.async_sparse.subwarp import Subwarp
from kernels.async_sparse.windows import Union, WcsrTile, Windows
from kernels.contract import Operands
from kernels.formats import bcsr, csr, half
from kernels.formats.half import Half
from kernels.library.routes import in_order

gpu = pytest.mark.gpu
RUNGS = tuple(published.KERNELS)
OF_BLOCKS = (*RUNGS, "unit_ring", "blocks_mma")
BLOCKS = (16, 32, 64, 128, (128, 32), (64, 128), (16, 128))


def usable(name: str, device):
    """Skip where a kernel is not for the GPU."""
    if jit.arch_of(device) not in system.VARIANTS[name].targets:
        pytest.skip("this GPU has no wgmma")


def of_matrix(a: csr.Csr, n: int, dtype: str):
    return system.problem_from_csr(a, n, SEED, dtype=dtype, format="csr", reorder="")


def deep(width: int, shape: family.Shape) -> Unit:
    """Rings as deep as an H100's or H200's shared memory."""
    return family.filled(Unit(width, tall=shape.b_row == 128), shape, 232_448)


# ------------------------------------------------------------------------------------------ blocks


#: Smaller than a block, around blocks and tiles, k that TMA cannot address, more tiles than multiprocessors.
RAGGED = [(1, 1, 1), (64, 1, 64), (129, 77, 63), (129, 1536, 130), (64 * 150 - 9, 512, 264)]


@gpu
@pytest.mark.parametrize("name", OF_BLOCKS)
def test_ragged_sizes_empty_rows_and_all_blocks(device, name):
    usable(name, device)
    cases = [((*sizes, 0.3), {"layout": layout}) for sizes in RAGGED for layout in ("source", "linear")]
    cases += [((64 * 40 - 3, 192, 250, density), {"layout": "linear"}) for density in (0, 1 / 160, 0.02, 1)]
    cases += [((129, 77, 63, 0.3), {"dtype": "tf32", "layout": "linear"})] * (name != "blocks_mma")
    for sizes, how in cases:
        exact(system.problem(*sizes, SEED, **how), partial(system.prepare, name, device=device), device)


@gpu
@pytest.mark.parametrize("layout", operands.LAYOUTS)
@pytest.mark.parametrize("dtype", family.DTYPES)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_every_block_dtype_and_layout(device, block, dtype, layout):
    names = ["unit_ring"] * (jit.arch_of(device) in family.TARGETS and (dtype, layout) != ("tf32", "row"))
    for name in names + ["blocks_mma"] * (dtype != "tf32"):
        for *sizes, density in ((1, 1, 1, 1), (77, 77, 100, 0.5), (300, 1030, 333, 0.3), (200, 9, 264, 0)):
            p = system.problem(*sizes, density, SEED, block=block, dtype=dtype, layout=layout)
            exact(p, partial(system.prepare, name, device=device), device)


@gpu
@pytest.mark.parametrize("width", family.WIDTHS)
def test_every_width_and_ring_of_unit_ring(hopper, width):
    """Rings as deep as they go and as short as they may be, groups of one panel and of all, rows as they lie."""
    for block, dtype, layout in ((64, "bfloat16", "source"), (128, "tf32", "linear"), ((128, 32), "float16", "row")):
        if layout == "row" and width % 64:
            continue
        p = system.problem(700, 1030, 520, 0.3, SEED, block=block, dtype=dtype, layout=layout)
        most = deep(width, family.shape_of(p))
        least = replace(most, shared=2, private=3, buffers=1, group_kib=0)
        other = replace(most, shared=3, private=4, group_kib=2**20, longest_first=False)
        for config in (most, least, other) if block == 64 else (most,):
            exact(p, lambda p, c=config: c.prepare(str(c), p, hopper), hopper)


@gpu
@pytest.mark.parametrize("width", published.WIDTHS)
def test_every_width_of_the_sweep(hopper, width):
    """n = 333 is no multiple of any; some columns of tiles lie beyond C."""
    p = system.problem(200, 333, 200, 0.3, SEED)
    exact(p, partial(system.prepare, f"opt5_n{width}", device=hopper), hopper)


@gpu
@pytest.mark.parametrize("b_row", bcsr.SIDES)
def test_every_tile_of_blocks_mma_in_every_ring_and_on_every_gpu(device, b_row):
    """Compiled without Hopper's own instructions as well, with the shared memory of a GeForce or an A100."""
    for layout in ("row", "linear"):
        p = system.problem(331, 601, 419, 0.5, SEED, block=(b_row, 64), layout=layout)
        for tile in (Tile(w, s) for w in family.tile_widths(b_row) for s in range(2, family.MOST_STAGES + 1)):
            if (b_row, tile.columns, tile.stages) != (128, 128, 2):
                exact(p, lambda p, t=tile: t.prepare(f"{t}", p, device), device)
        for most in (None, 101_376, 166_912):
            here = gpus.Portable(device, most)
            exact(p, partial(Tile(0).prepare, "portable", device=here), device)


@gpu
@pytest.mark.parametrize("how", [{}, {"block": 128}, {"block": 32, "layout": "linear"}, {"dtype": "tf32"}], ids=str)
def test_thousands_of_tiles_give_the_same_bits(hopper, how):
    """A result that moves is a race: block rows of all lengths and empty ones, rings always full or always empty."""
    p = system.problem(64 * 1000, 1024, 512, 0.15, SEED, **how)
    narrow = deep(16, family.shape_of(p))
    binds = [partial(system.prepare, "unit_ring"), partial(narrow.prepare, "narrow")]
    for prepare in binds + [partial(system.prepare, name) for name in ("opt6_atomic", "opt6_stealing") if not how]:
        bound = prepare(p, device=hopper)
        verification.check(bound, p, verification.oracle(p), hopper.create_stream())
        first = launched(bound, hopper)
        assert all(np.array_equal(launched(bound, hopper), first) for _ in range(10)), f"{bound.name}, seed {SEED}"
    p.release()


@gpu
@pytest.mark.parametrize("name", ["opt5", "unit_ring"])
def test_a_million_block_rows(hopper, name):
    """C has 2^29 elements; 500 rows of blocks have one, the others are zeros."""
    import cupy

    p = system.problem(64 * 10**6, 8, 64, 500 / 10**6, SEED)
    ops, bound = p.host(), system.prepare(name, p, hopper)
    filled = bcsr.block_rows_of(ops.a)
    right = half.from_bits(ops.a.val, "bfloat16").astype(float) @ half.to_dense(ops.b).astype(float)
    bits = bound.result().bits.reshape(10**6, 512)
    bits.fill(0x7FFF)
    stream = hopper.create_stream()
    hopper.sync()
    bound.launch(stream)
    stream.sync()
    found = half.from_bits(bits[cupy.asarray(filled)].get(), "bfloat16").reshape(right.shape)
    assert np.linalg.norm(found - right) < verification.LIMITS["bfloat16"].rel_err * np.linalg.norm(right)
    assert int((bits & 0x7FFF).any(axis=1).sum()) == len(filled), "not 0 where no block is"
    p.release()


@gpu
def test_more_panels_than_the_second_dimension_of_a_grid(hopper):
    p = system.problem(130, 2**20 + 16, 64, 0.7, SEED)
    for name in ("opt0", *published.PERSISTENT, "unit_ring"):
        exact(p, partial(system.prepare, name, device=hopper), hopper, 1)
    for other in ("opt2", "opt5", "opt7", "opt5_n8"):
        with pytest.raises(ValueError, match=f"^{other} .* at most 65535: use unit_ring$"):
            system.prepare(other, p, hopper)
    p.release()


# ------------------------------------------------------------------------------- windows and groups

PUBLISHED = [WcsrTile(width, chunk) for width in windows.WIDTHS for chunk in (0, 32)]
OURS = [
    Windows(window, groups, exact_, chunk, longest_first=chunk != 32)
    for window in windows.HEIGHTS
    for groups in (1, 2)
    for exact_ in (False, True)
    for chunk in (0, 32)
]
GROUPS = [
    Union(rows, vec, loads, unroll, chunk, order)
    for rows in windows.GROUP_HEIGHTS
    for vec, loads, unroll in ((4, 1, 4), (4, 2, 4), (1, 1, 4), (2, 1, 8))
    for chunk, order in ((0, ""), (32, "similar"))
    if rows * loads <= 8
]
FEW = sorted({replace(c, rows=rows) for c in emulated.FEW for rows in subwarp.GROUP_HEIGHTS}, key=str)
FEW += emulated.HEADS
NARROW = (*subwarp.KERNELS, *heads.KERNELS)
HALVES = [Union(rows, unroll=unroll, chunk=chunk) for rows, unroll in windows.HALF_BLOCKS for chunk in (0, 32)]
HALVES += [replace(c, order="similar" * (c.groups == 2)) for c in OURS if not c.exact]


@gpu
@pytest.mark.parametrize("n", [1, 77, 260, 2, 3, 8, 12, 40, 100])
@pytest.mark.parametrize("dtype", operands.CSR_DTYPES)
def test_every_configuration_on_every_pattern(device, dtype, n):
    """Twice: cut windows and groups are cleared by each launch, and rounded once."""
    others = {"float32": GROUPS + [c for c in OURS if c.exact], "tf32": PUBLISHED + OURS}.get(dtype)
    configs = FEW + (others or HALVES + [WcsrTile(chunk=32)]) * (n in (1, 77, 260))
    if jit.arch_of(device) not in family.TARGETS:
        configs = [c for c in configs if not isinstance(c, Windows | WcsrTile)]
    for which in PATTERNS:
        p = of_matrix(pattern(which, SEED % 99), n, dtype)
        for config in configs:
            exact(p, partial(config.prepare, f"{config}, {which}", device=device), device)


@gpu
@pytest.mark.parametrize("dtype", operands.CSR_DTYPES)
def test_columns_in_any_order_and_kernels_for_blocks(hopper, dtype):
    """Entries that repeat or do not ascend, as `problem_from_csr` never has them."""
    p = of_matrix(shuffled(), 64, dtype)
    a = shuffled()
    given = replace(a, val=np.ones(a.nnz, np.float32))

    def there():
        return replace(of_matrix(a, 64, dtype).device(), a=csr.to_device(given))

    mixed = replace(p, make_host=lambda: Operands(given, p.host().b), make_device=there, source=given, nnz=a.nnz)
    names = ("union_half", "wcsr") if dtype in half.DTYPES else ("union_rows",) if dtype == "float32" else ("windows",)
    for name in names:
        bound = system.prepare(name, mixed, hopper)
        verification.check(bound, mixed, verification.oracle(mixed), hopper.create_stream())
    if dtype in half.DTYPES:
        assert exact(p, partial(system.prepare, "unit_ring", device=hopper), hopper).prepare_bytes > 64 * 64 * 2


@gpu
def test_a_row_keeps_what_is_infinite_in_b_to_itself(device):
    a = shuffled(200, 64, SEED % 99)
    p = of_matrix(a, 8, "float32")
    p.device().b[5, 3] = np.inf
    names = np.zeros(200, bool)
    names[csr.rows(a)[a.col_idx == 5]] = True
    for config in (Union(1), *(c for c in FEW if c.rows == 1)):
        found = launched(config.prepare("single rows", p, device), device)
        assert np.array_equal(~np.isfinite(found[:, 3]), names), config


@gpu
@pytest.mark.parametrize(
    "name", [*OF_BLOCKS, "wcsr", "windows", "windows_exact", "windows_half", "union_rows", "union_half", *NARROW]
)
def test_nothing_beside_the_operands_is_read_into_a_sum_or_written(device, name):
    """B and C lie between NaN; addresses that TMA can take and cannot, and then copies. Groups of rows read B four
    columns at a time, wherever it lies on 16 bytes."""
    usable(name, device)
    of_csr = name in windows.KERNELS or name in NARROW
    dtype = "bfloat16" if name in (*OF_BLOCKS, "union_half", "windows_half") else "tf32"
    for shift in (0,) if name in ("union_rows", "union_half", *NARROW) else (0, 1):

        def inside(p, shift=shift):
            ops = p.device()
            arrays = [x.bits if isinstance(x, Half) else x for x in (ops.b, ops.c)]
            (_, b), (around, c) = (between(x, shift=shift) for x in arrays)
            b, c = (Half(dtype, x) if isinstance(ops.b, Half) else x for x in (b, c))
            bound = system.prepare(name, replace(p, make_device=lambda: Operands(ops.a, b, c), _device=None), device)
            bound.keep = (*bound.keep, around)
            return bound

        for shape in ((200, 192, 200), (129, 77, 63)):
            p = system.problem(*shape, 0.5, SEED, layout="linear")
            p = of_matrix(pattern("a heavy row", SEED % 99), shape[1], dtype) if of_csr else p
            bound = exact(p, inside, device)
            around = bound.keep[-1].get().view(np.uint16 if dtype == "bfloat16" else np.uint32)
            beside = [around[: 2**14 + shift], around[2**14 + shift + bound.result().size :]]
            assert all((x == x.dtype.type(-1 & (1 << 8 * x.itemsize) - 1)).all() for x in beside), f"{name}, {shape}"


# ------------------------------------------------------------------------------------ one order


def in_one_order() -> list:
    """Every kernel that adds up in order, where rows are cut into few parts and into many."""
    shapes = {(c.rows, c.loads, c.unroll) for c in any_csr.POOLS["fp32"] if isinstance(c, Union)}
    made = [Union(rows, 4, loads, unroll, chunk) for rows, loads, unroll in sorted(shapes) for chunk in (32, -1)]
    made += [Windows(window, 2, exact_, 32) for window in windows.HEIGHTS for exact_ in (False, True)]
    made += [*(Subwarp(rows, columns=16) for rows in subwarp.GROUP_HEIGHTS), *emulated.HEADS]
    return [*made, Union(4, 1, chunk=32, order="similar"), WcsrTile(chunk=256), "split_rows", "shared_tiles"]


@gpu
@pytest.mark.parametrize("config", in_one_order(), ids=str)
def test_sums_in_one_order_repeat_their_bits(device, config):
    """From two that are bound apart, beside something else that keeps L2 busy; A has rows of up to 200 parts."""
    import cupy

    if isinstance(config, Windows | WcsrTile) and jit.arch_of(device) not in family.TARGETS:
        pytest.skip("this GPU has no wgmma")
    lengths = np.random.default_rng(SEED).integers(0, 12, 333)
    lengths[::33] = [32 * x - x % 3 for x in (2, 3, 4, 15, 16, 17, 32, 33, 100, 200, 7)]
    a, ordered = of_lengths(lengths, 7000), in_order(config)
    tf32 = isinstance(config, WcsrTile) or not getattr(config, "exact", True)
    dtypes = ["tf32" if tf32 else "float32"]
    if isinstance(config, Union) and (config.rows, config.unroll) in windows.HALF_BLOCKS and config.loads == 1:
        dtypes += [x for x in half.DTYPES if config.vec == 4]
    if isinstance(config, Windows) and not config.exact:
        dtypes += half.DTYPES
    for dtype in dtypes:
        p = of_matrix(a, 260, dtype)
        prepare = casper_sparse.prepare if isinstance(config, str) else ordered.prepare
        bounds = [prepare(str(ordered), p, device) for _ in range(2)]
        verification.check(bounds[0], p, verification.oracle(p), device.create_stream())
        first, noise = launched(bounds[0], device), cupy.empty(2**26, cupy.uint8)
        for i in range(20):
            noise.fill(i)
            assert np.array_equal(launched(bounds[i % 2], device), first), f"{config}, {dtype}, seed {SEED}"


# ------------------------------------------------------------------------------------------ trials


@gpu
@pytest.mark.alone
@pytest.mark.parametrize("name", ["auto", *any_csr.ACCURACIES])
def test_a_choice_is_right_kept_and_found_again(device, tmp_path, monkeypatch, name):
    usable(name, device)
    file, dtype = tmp_path / "choices.csv", {"auto_tf32": "tf32", "auto_half": "bfloat16"}.get(name, "float32")
    p = system.problem(1000, 1024, 1000, 0.2, SEED) if name == "auto" else of_matrix(pattern("a heavy row"), 129, dtype)
    first = launch.prepare_auto(name, p, device, file=file)
    verification.check(first, p, verification.oracle(p), device.create_stream())
    assert len(file.read_text().splitlines()) == 2
    monkeypatch.setattr(autotune, "tune", lambda *_, **__: pytest.fail("tried once more"))
    again = launch.prepare_auto(name, p, device, file=file)
    assert again.prepare_ms < first.prepare_ms / 2, "no trial, nothing to compile"
    verification.check(again, p, verification.oracle(p), device.create_stream())
