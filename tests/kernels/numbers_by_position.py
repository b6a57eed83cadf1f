"""What generators of operands are held against: SplitMix64 one number at a time, and tests of chance."""

import numpy as np
import scipy.stats

#: A statistic beyond this quantile happens once in 10^5 seeds; tests' seeds are fixed.
CONFIDENCE = 1 - 1e-5


def mix(x: int) -> int:
    """SplitMix64's finalizer in Python's unbounded integers."""
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def random_u32(seed: int, stream: int, index: int) -> int:
    """Number `index` of a seed's stream, uniform in 32 bits."""
    key = mix((3 * seed + stream + 1) * 0x9E3779B97F4A7C15 % 2**64)
    return mix((key + (index + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 32


def uniform(counts: np.ndarray) -> bool:
    """Chi-square test that draws fall into equally likely bins `counts`."""
    expected = counts.sum() / counts.size
    return ((counts - expected) ** 2 / expected).sum() < scipy.stats.chi2.ppf(CONFIDENCE, counts.size - 1)
