"""`kernels.splitmix`: the generator is SplitMix64, whole or in parts."""

from __future__ import annotations

import numpy as np

from kernels import splitmix


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
