"""Random numbers by position: number i of a stream is number i of a SplitMix64, with NumPy as on the device.

Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014. A generator's state is
a counter, so any part of a stream can be made alone: `common/splitmix.cuh` makes the same numbers in the
threads of a kernel.
"""

import numpy as np

from .formats import half

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
TF32_BITS = 0xFFFFE000  #: bits of a float32 that TF32 holds
_CACHED = 1 << 16  # numbers that NumPy makes at a time: their temporaries stay in a core's cache


def key(seed: int, stream: int) -> int:
    """Where one of a seed's three streams begins among the 2^64 states: numbers of a generator of their own."""
    return int(_mix(np.array([3 * seed + stream + 1], np.uint64) * _GAMMA)[0])


def random_u32(key: int, index: np.ndarray) -> np.ndarray:
    """Uniform 32-bit numbers, as uint64, at the positions `index` (uint64) of the stream `key`."""
    return _mix((index + np.uint64(1)) * _GAMMA + np.uint64(key)) >> np.uint64(32)


def positions(part: range, xp=np):
    """Return a run of positions, uint64; `xp` is NumPy or CuPy."""
    return xp.arange(part.start, part.stop, dtype=xp.uint64)


def symmetric(x):
    """Numbers in (-1, 1), float32, of 32-bit ones: the middles of 2^24 equal steps, never 0."""
    steps = (x >> np.uint64(8)).astype(np.float32)
    return (steps - 2**23 + np.float32(0.5)) * np.float32(2.0**-23)


def uniform(key: int, size: int, dtype: str, xp=np):
    """Return the first `size` numbers of a stream, uniform in (-1, 1) and never 0, flat, NumPy or CuPy (`xp`).

    dtype: "bfloat16" or "float16", rounded to uint16 bit patterns; "float32"; "tf32", float32 cut to
    what TF32 holds. Raises ValueError, one sentence, for another dtype.
    """
    if dtype not in (*half.DTYPES, "float32", "tf32"):
        raise ValueError(
            f"dtype of random values is {dtype!r}, but must be one of {', '.join(half.DTYPES)}, float32, tf32"
        )
    made = xp.empty(size, xp.uint16 if dtype in half.DTYPES else xp.float32)
    if xp is not np:
        return _on_gpu(made, key, dtype)
    for start in range(0, size, _CACHED):
        part = range(start, min(start + _CACHED, size))
        x = symmetric(random_u32(key, positions(part)))
        if dtype in half.DTYPES:
            x = half.to_bits(x, dtype)
        elif dtype == "tf32":
            x = (x.view(np.uint32) & np.uint32(TF32_BITS)).view(np.float32)
        made[part.start : part.stop] = x
    return made


def _on_gpu(made, key: int, dtype: str):
    """`uniform` of a CuPy array, by half.cu."""
    from . import jit

    entry, keep = f"uniform<{'BF16' if dtype == 'bfloat16' else 'F16'}>", []
    if dtype not in half.DTYPES:
        entry, keep = "uniform_float", [np.uint32(TF32_BITS if dtype == "tf32" else 0xFFFFFFFF)]
    if made.size:
        given = np.int64(made.size), np.uint64(key), *keep, made.data.ptr
        jit.run_on_cupy_stream(half.SOURCE, entry, made.size, 256, *given)
    return made


def _mix(x: np.ndarray) -> np.ndarray:
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
