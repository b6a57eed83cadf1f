"""union_rows on a GPU: exact products of every pattern that could go wrong, every height, cut groups, both orders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_operands import pattern
from test_windows_gpu import SEED, places

from kernels.async_sparse import operands, tasks, union
from kernels.async_sparse.union import Union
from kernels.contract import Operands
from kernels.formats import csr, half
from kernels.formats.csr import Csr
from kernels.formats.half import Half

CONFIGS = [
    Union(rows, vec, loads, unroll, chunk, order)
    for rows in union.HEIGHTS
    for vec, loads, unroll in ((4, 1, 4), (4, 2, 4), (1, 1, 4), (2, 1, 8))
    for chunk, order in ((0, ""), (32, "similar"), (-1, ""))
    if rows * loads <= 8
]


@pytest.fixture(scope="module")
def stream(device):
    return device.create_stream()


def whole_numbers(which: str, m: int, k: int, n: int):
    """A problem of small whole numbers, whose sums float32 holds, and its C in float64."""
    where = places(which, m, k)
    rng = np.random.default_rng((SEED, n))
    dense = np.where(where, rng.integers(1, 8, where.shape), 0).astype(np.float32)
    row_ptr = np.concatenate([[0], np.cumsum(where.sum(1))]).astype(np.int32)
    a = Csr(m, k, row_ptr, np.nonzero(where)[1].astype(np.int32), dense[where])
    b = rng.integers(-4, 5, (k, n)).astype(np.float32)
    return a, b, dense.astype(np.float64) @ b


def half_bound(a: Csr, b, dtype: str, device, config: Union):
    """The same with B and C in 16 bits, which small whole numbers do not mind."""
    import cupy

    p = operands.problem_from_csr(a, b.shape[1], 0, format="csr", dtype=dtype, reorder="")
    c = Half(dtype, cupy.zeros((a.m, b.shape[1]), cupy.uint16))
    c.fill(np.nan)
    there = half.to_device(Half(dtype, half.to_bits(b, dtype)))
    made = Operands(csr.to_device(a), there, c)
    return union.bind("union_half", replace(p, make_device=lambda: made, _device=None), device, config)


def bound(a: Csr, b, device, config: Union):
    import cupy

    p = operands.problem_from_csr(a, b.shape[1], 0, format="csr", dtype="float32", reorder="")
    c = cupy.full((a.m, b.shape[1]), np.nan, cupy.float32)
    made = Operands(csr.to_device(a), cupy.asarray(b), c)
    return union.bind("union_rows", replace(p, make_device=lambda: made, _device=None), device, config)


@pytest.mark.gpu
@pytest.mark.parametrize("which", ["random", "none", "all", "empty windows", "a heavy row"])
@pytest.mark.parametrize("n", [1, 6, 32, 129 * 4])
def test_every_configuration_on_every_pattern(device, stream, which, n):
    a, b, right = whole_numbers(which, 299, 130, n)
    for config in CONFIGS:
        launch = bound(a, b, device, config)
        for _ in range(2):  # cut groups are cleared by the launch itself
            launch.launch(stream)
            stream.sync()
            found = launch.result().get()
            assert np.array_equal(found, right), f"{config}, {which}, n={n}, seed {SEED}"


@pytest.mark.gpu
@pytest.mark.parametrize("which", ["random", "none", "all", "empty windows", "a heavy row"])
@pytest.mark.parametrize("n", [1, 7, 64, 300])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bits_on_every_pattern(device, stream, which, n, dtype):
    """C is rounded once, also where several tasks add to it."""
    a, b, right = whole_numbers(which, 299, 130, n)
    expected = half.from_bits(half.to_bits(right.astype(np.float32), dtype), dtype)
    for rows, unroll in union.HALF_BLOCKS:
        for chunk, order in ((0, "similar"), (32, ""), (-1, "")):
            config = Union(rows, unroll=unroll, chunk=chunk, order=order)
            launch = half_bound(a, b, dtype, device, config)
            for _ in range(3):
                launch.launch(stream)
                stream.sync()
                found = half.from_bits(half.to_host(launch.result()).bits, dtype)
                assert np.array_equal(found, expected), f"{config}, {which}, n={n}, seed {SEED}"


@pytest.mark.gpu
def test_a_row_keeps_what_is_infinite_in_b_to_itself(device, stream):
    a = pattern(200, 64, SEED)
    b = np.ones((64, 8), np.float32)
    b[5, 3] = np.inf
    launch = bound(a, b, device, Union(1))
    launch.launch(stream)
    stream.sync()
    names = np.zeros(200, bool)
    names[csr.rows(a)[a.col_idx == 5]] = True
    assert np.array_equal(~np.isfinite(launch.result().get()[:, 3]), names)


@pytest.mark.gpu
def test_launches_that_a_configuration_makes(device):
    a, b, _ = whole_numbers("a heavy row", 299, 4000, 64)
    for chunk in (0, tasks.STEP):
        assert len(bound(a, b, device, Union(chunk=chunk)).steps) == 1
