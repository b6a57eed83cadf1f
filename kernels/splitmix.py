"""Random numbers by position: number i of a stream is number i of a SplitMix64, with NumPy as on the device.

Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014. A generator's state is
a counter, so any part of a stream can be made alone: `common/splitmix.cuh` makes the same numbers in the
threads of a kernel.
"""

from __future__ import annotations

import numpy as np

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def key(seed: int, stream: int) -> int:
    """Where one of a seed's three streams begins among the 2^64 states: numbers of a generator of their own."""
    return int(_mix(np.array([3 * seed + stream + 1], np.uint64) * _GAMMA)[0])


def random_u32(key: int, index: np.ndarray) -> np.ndarray:
    """Uniform 32-bit numbers, as uint64, at the positions `index` (uint64) of the stream `key`."""
    return _mix((index + np.uint64(1)) * _GAMMA + np.uint64(key)) >> np.uint64(32)


def positions(part: range) -> np.ndarray:
    """A run of positions, uint64."""
    return np.arange(part.start, part.stop, dtype=np.uint64)


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
