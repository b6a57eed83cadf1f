"""`kernels.splitmix`: the generator is SplitMix64, whole or in parts."""

from __future__ import annotations

import numpy as np
import pytest

from kernels import splitmix
from kernels.formats import half


def test_the_generator_is_splitmix64():
    """The first outputs from state 0 that its authors' reference code prints."""
    first = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    made = splitmix.random_u32(0, splitmix.positions(range(3)))
    assert made.dtype == np.uint64 and made.tolist() == [x >> 32 for x in first]


def test_a_part_of_a_stream_is_what_the_whole_has_there():
    key = splitmix.key(7, 2)
    whole = splitmix.random_u32(key, splitmix.positions(range(1000)))
    assert (splitmix.random_u32(key, splitmix.positions(range(400, 700))) == whole[400:700]).all()


def test_streams_of_all_seeds_begin_apart():
    keys = [splitmix.key(seed, stream) for seed in (0, 1, 2, 2**32 - 1) for stream in range(3)]
    assert len(set(keys)) == len(keys) and all(0 <= key < 2**64 for key in keys)


def test_symmetric_numbers_are_the_middles_of_equal_steps():
    ends = splitmix.symmetric(np.array([0, 2**32 - 1, 2**31, 2**31 - 1], np.uint64))
    assert ends.dtype == np.float32
    assert ends.tolist() == [-1 + 2.0**-24, 1 - 2.0**-24, 2.0**-24, -(2.0**-24)]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "tf32"])
def test_uniform_values_are_a_stream_s_symmetric_numbers(monkeypatch, dtype):
    made = splitmix.uniform(5, 1000, dtype)
    exact = splitmix.symmetric(splitmix.random_u32(5, splitmix.positions(range(1000))))
    if dtype == "tf32":
        assert not (made.view(np.uint32) & 0x1FFF).any()
        assert (np.abs(made) <= np.abs(exact)).all() and np.allclose(made, exact, rtol=2.0**-10)
    else:
        expected = exact if dtype == "float32" else half.to_bits(exact, dtype)
        assert made.dtype == expected.dtype and np.array_equal(made, expected)
    monkeypatch.setattr(splitmix, "_CACHED", 7)
    assert np.array_equal(splitmix.uniform(5, 1000, dtype), made), "in parts of any size"
    assert splitmix.uniform(5, 0, dtype).shape == (0,)


def test_other_dtypes_are_refused():
    with pytest.raises(ValueError, match="dtype of random values is 'float64'"):
        splitmix.uniform(0, 1, "float64")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "tf32"])
def test_the_gpu_makes_the_same_values(device, dtype):
    import cupy

    key = splitmix.key(2**32 - 1, 2)
    made = splitmix.uniform(key, 100_001, dtype, cupy)
    assert isinstance(made, cupy.ndarray)
    assert np.array_equal(made.get(), splitmix.uniform(key, 100_001, dtype))
