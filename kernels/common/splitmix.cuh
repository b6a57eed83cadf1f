// Random numbers by position: number i of a stream is number i of a SplitMix64 whose state begins
// at the stream's key.
//
// Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
// kernels/splitmix.py makes the same numbers with NumPy.
#pragma once

using u64 = unsigned long long;

// A uniform 32-bit number for (key, index).
__device__ __forceinline__ unsigned random_u32(u64 key, u64 index)
{
    u64 x = key + (index + 1) * 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ x >> 27) * 0x94D049BB133111EBull;
    return (x ^ x >> 31) >> 32;
}
