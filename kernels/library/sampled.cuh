// What kernels of a sampled product share: numbers of a load as float32, and sums over a team.
#pragma once

#include "packed.cuh"

template <Dtype T>
constexpr int SIZE_OF = T == FLOAT32 ? 4 : 2;

template <Dtype T, int V>
__device__ __forceinline__ vec<V> floats(const Packed<T, V>& x)
{
    if constexpr (T == FLOAT32 && V == 1) return {__uint_as_float(x.bits)};
    else if constexpr (T == FLOAT32) return x.at;
    else if constexpr (V == 1) return {unpack<T>(x.bits).x};
    else {
        vec<V> y;
#pragma unroll
        for (int w = 0; w < V / 2; ++w) {
            const float2 two = unpack<T>(__float_as_uint(x.at.at[w]));
            y.at[2 * w] = two.x, y.at[2 * w + 1] = two.y;
        }
        return y;
    }
}

// Adds up UNROLL sums over a team. A lane's first max(1, UNROLL / TEAM) are then whole: those of
// the places from lane * UNROLL / TEAM on.
template <int TEAM, int UNROLL>
__device__ __forceinline__ void add_up(float (&sum)[UNROLL], int lane)
{
#pragma unroll
    for (int far = TEAM / 2, have = UNROLL; far; far /= 2) {
        if (have == 1) {
            sum[0] += __shfl_xor_sync(~0u, sum[0], far);
            continue;
        }
        have /= 2;
        const bool high = lane & far;
#pragma unroll
        for (int i = 0; i < have; ++i) {
            const float keep = high ? sum[i + have] : sum[i], give = high ? sum[i] : sum[i + have];
            sum[i] = keep + __shfl_xor_sync(~0u, give, far);
        }
    }
}
