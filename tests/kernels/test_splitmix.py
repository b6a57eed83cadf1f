"""`kernels.splitmix`: the generator is SplitMix64, whole or in parts."""

import numpy as np
import pytest
from numbers_by_position import random_u32
from refused import says

from kernels import splitmix
from kernels.formats import half

each = pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "tf32"])


def test_the_generator_is_splitmix64_and_streams_of_all_seeds_begin_apart():
    """The first outputs from state 0 that its authors' reference code prints; any part of a stream, alone."""
    first = splitmix.random_u32(0, splitmix.positions(range(3)))
    assert first.tolist() == [x >> 32 for x in (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)]
    seeds = [(seed, stream) for seed in (0, 1, 2, 2**32 - 1) for stream in range(3)]
    for seed, stream in seeds:
        part = splitmix.random_u32(splitmix.key(seed, stream), splitmix.positions(range(400, 420)))
        assert part.dtype == np.uint64 and part.tolist() == [random_u32(seed, stream, i) for i in range(400, 420)]
    assert len({splitmix.key(*seed) for seed in seeds}) == len(seeds)


@each
def test_uniform_values_are_the_middles_of_equal_steps(monkeypatch, dtype):
    ends = splitmix.symmetric(np.array([0, 2**32 - 1, 2**31, 2**31 - 1], np.uint64))
    assert ends.tolist() == [-1 + 2.0**-24, 1 - 2.0**-24, 2.0**-24, -(2.0**-24)] and ends.dtype == np.float32
    made = splitmix.uniform(5, 1000, dtype)
    exact = splitmix.symmetric(splitmix.random_u32(5, splitmix.positions(range(1000))))
    if dtype == "tf32":
        exact = (exact.view(np.uint32) >> 13 << 13).view(np.float32)
    expected = half.to_bits(exact, dtype) if dtype in half.DTYPES else exact
    assert made.dtype == expected.dtype and np.array_equal(made, expected)
    monkeypatch.setattr(splitmix, "_CACHED", 7)
    assert np.array_equal(splitmix.uniform(5, 1000, dtype), made), "in parts of any size"
    assert splitmix.uniform(5, 0, dtype).shape == (0,)
    says(["dtype of random values is 'float64'"], lambda: splitmix.uniform(0, 1, "float64"))


@pytest.mark.gpu
@each
def test_the_gpu_makes_the_same_values(device, dtype):
    import cupy

    key = splitmix.key(2**32 - 1, 2)
    assert np.array_equal(splitmix.uniform(key, 100_001, dtype, cupy).get(), splitmix.uniform(key, 100_001, dtype))
