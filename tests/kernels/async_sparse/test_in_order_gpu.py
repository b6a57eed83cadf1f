"""Sums in one order on a GPU: the same bits at every launch, whatever else runs, and the right ones."""

from __future__ import annotations

import functools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from test_windows_gpu import SEED

from artifact.measure import bench
from kernels import casper_sparse, jit
from kernels.async_sparse import any_csr, family, model, operands, union, wcsr
from kernels.async_sparse.union import Union
from kernels.async_sparse.windows import Windows
from kernels.contract import Operands
from kernels.formats import csr, half
from kernels.formats.csr import Csr
from kernels.formats.half import Half
from kernels.library import in_order

pytestmark = pytest.mark.gpu
LAUNCHES = 50
M, K, N = 333, 7000, 260  # rows and columns that no tile divides
#: Parts of rows that are cut at 32 columns.
PARTS = (2, 3, 4, 15, 16, 17, 32, 33, 100, 200)
#: dtype -> the largest |found - right| over the sum of its products' magnitudes: additions, and C's rounding.
LIMITS = {"float32": 2e-5, "tf32": 2e-4, "bfloat16": 5e-3, "float16": 1e-3}
LEAST = 2.0**-24  #: that float16 holds; half of it is rounded away, whatever the magnitudes


@pytest.fixture(scope="module")
def stream(device):
    return device.create_stream()


@functools.cache
def drawn(dtype: str) -> tuple[Csr, np.ndarray, np.ndarray, np.ndarray]:
    """(A, B, A · B, |A| · |B| in float64): short rows and long ones in between, of numbers so different in size that
    the order of additions shows."""
    rng = np.random.default_rng((SEED, 7))
    lengths = rng.integers(0, 12, M)
    lengths[rng.choice(M, len(PARTS), replace=False)] = [32 * x - x % 3 for x in PARTS]
    row_ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    col_idx = np.concatenate([np.sort(rng.choice(K, x, replace=False)) for x in lengths])

    most = 3 if dtype == "float16" else 6  # whose sums would be infinite

    def numbers(size):
        powers = 2.0 ** rng.integers(-most, most + 1, size)
        x = (rng.standard_normal(size) * powers).astype(np.float32)
        if dtype in half.DTYPES:
            return half.from_bits(half.to_bits(x, dtype), dtype)
        return (x.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) if dtype == "tf32" else x

    a = Csr(M, K, row_ptr, col_idx.astype(np.int32), numbers(col_idx.size))
    b = numbers((K, N))
    wide = csr.to_dense(a).astype(np.float64)
    return a, b, wide @ b, np.abs(wide) @ np.abs(b)


def problem_of(dtype: str):
    """The problem on the GPU, with C full of NaN."""
    import cupy

    a, b, _, _ = drawn(dtype)
    p = operands.problem_from_csr(a, N, 0, format="csr", dtype=dtype, reorder="")
    if dtype in half.DTYPES:
        there = half.to_device(Half(dtype, half.to_bits(b, dtype)))
        c = Half(dtype, cupy.zeros((M, N), cupy.uint16))
    else:
        there, c = cupy.asarray(b), cupy.zeros((M, N), cupy.float32)
    made = Operands(csr.to_device(a), there, c)
    return replace(p, make_device=lambda: made, _device=None)


def bits(bound, launch, stream, device) -> np.ndarray:
    """C after a launch, NaN before it."""
    bound.result().fill(np.nan)
    device.sync()
    launch()
    stream.sync()
    result = bound.result()
    found = result.bits if isinstance(result, Half) else result
    return found.get().view(np.uint16 if isinstance(result, Half) else np.uint32)


def repeats(bind, dtype: str, device, stream, said: str) -> None:
    """The same bits from two that are bound apart, at many launches beside something else, and from a graph."""
    import cupy

    _, _, right, size = drawn(dtype)
    bounds = [bind(problem_of(dtype)) for _ in range(2)]
    first = bits(bounds[0], lambda: bounds[0].launch(stream), stream, device)
    numbers = half.from_bits(first, dtype) if dtype in half.DTYPES else first.view(np.float32)
    least = LEAST if dtype == "float16" else 0
    off = (np.abs(numbers - right) - least) / np.maximum(size, np.finfo(np.float32).tiny)
    assert off.max() <= LIMITS[dtype], f"{said}: off by {off.max():.2e} of the magnitudes, seed {SEED}"
    noise = cupy.empty(2**26, cupy.uint8)
    beside = cupy.cuda.Stream(non_blocking=True)
    for i in range(LAUNCHES):
        if i % 3:  # L2 empty, or busy
            with beside:
                noise.fill(i)
        bound = bounds[i % 2]
        found = bits(bound, lambda bound=bound: bound.launch(stream), stream, device)
        assert np.array_equal(found, first), f"{said}: launch {i}, seed {SEED}"
    graph = bench.capture(said, bounds[1], stream)
    for i in range(5):
        found = bits(bounds[1], lambda: graph.launch(stream), stream, device)
        assert np.array_equal(found, first), f"{said}: replay {i} of a graph, seed {SEED}"


SHAPES = {(c.rows, c.loads, c.unroll) for c in model.POOLS["fp32"] if isinstance(c, Union)}


@pytest.mark.parametrize("chunk", [32, 64, -1])
@pytest.mark.parametrize("rows, loads, unroll", sorted(SHAPES | {(1, 1, 4), (8, 1, 4)}))
def test_rows_repeat(device, stream, rows, loads, unroll, chunk):
    for vec, order in ((4, ""), (2, "similar"), (1, "")):
        config = in_order.in_order(Union(rows, vec, loads, unroll, chunk, order))
        bind = partial(of_rows, device=device, config=config)
        if chunk == 32:
            assert len(bind(problem_of("float32")).steps[0][2]) == 17, "of a kernel in order"
        repeats(bind, "float32", device, stream, f"{config}")


def of_rows(p, device, config):
    return any_csr.bind_config("rows", p, device, config)


@pytest.mark.parametrize("dtype", half.DTYPES)
@pytest.mark.parametrize("rows, unroll", union.HALF_BLOCKS)
def test_rows_of_16_bits_repeat(device, stream, rows, unroll, dtype):
    for chunk, order in ((32, ""), (-1, "similar")):
        config = in_order.in_order(Union(rows, unroll=unroll, chunk=chunk, order=order))
        bind = partial(of_rows, device=device, config=config)
        repeats(bind, dtype, device, stream, f"{config}, {dtype}")


@pytest.mark.parametrize("window", [8, 16, 32, 64])
@pytest.mark.parametrize("exact", [False, True])
def test_windows_repeat(device, stream, window, exact):
    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("windows are multiplied by wgmma")
    dtype = "float32" if exact else "tf32"
    for groups, chunk, longest_first, order in (
        (1, 32, True, ""),
        (2, 32, False, "similar"),
        (2, 256, True, ""),
    ):
        config = in_order.in_order(Windows(window, groups, exact, chunk, longest_first, order))
        bind = partial(of_rows, device=device, config=config)
        assert len(bind(problem_of(dtype)).steps) == 1, "nobody clears C"
        repeats(bind, dtype, device, stream, f"{config}")


def test_the_published_windows_repeat_whole(device, stream):
    if jit.arch_of(device) not in family.TARGETS:
        pytest.skip("windows are multiplied by wgmma")
    config = in_order.in_order(wcsr.Config(chunk=256))
    for dtype in ("tf32", "bfloat16"):
        bind = partial(wcsr.bind, "wcsr", device=device, config=config)
        repeats(bind, dtype, device, stream, f"wcsr, {dtype}")


def test_rows_of_the_other_room_repeat_whole(device, stream):
    for name in ("split_rows", "rows_per_warp", "l2_panels", "shared_tiles"):
        bind = partial(casper_sparse.bind, in_order.in_order(name), device=device)
        repeats(bind, "float32", device, stream, name)
