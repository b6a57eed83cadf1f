// What becomes of a thread's sums: times alpha, and into C. The tile: fragments.cuh.
#pragma once

#include "fragments.cuh"

// Tile (x, y) of C; rows beyond m and columns beyond n are not written. ALIGNED: m is a multiple of
// 4, four rows a store.
template <bool ALIGNED, class T>
__device__ __forceinline__ void
store(float* C, const float (&acc)[T::TN][T::TM], const T& t, int m, int n, int x, int y)
{
#pragma unroll
    for (int j = 0; j < T::TN; ++j) {
        const int column = y * T::BN + t.n + j / 4 * 4 * T::ACROSS + j % 4;
#pragma unroll
        for (int c = 0; c < T::TM; c += 4) {
            const int row = x * T::BM + t.m + T::DOWN * c;
            float* to = C + (size_t)column * m + row;
            if (column < n && row < m) {
                if constexpr (ALIGNED) {
                    *reinterpret_cast<float4*>(to) =
                        make_float4(acc[j][c], acc[j][c + 1], acc[j][c + 2], acc[j][c + 3]);
                } else {
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (row + i < m) to[i] = acc[j][c + i];
                }
            }
        }
    }
}

// The product times alpha. A store of four rows wants them in four registers in a row, the first a
// multiple of 4. Without the multiplication those are the accumulators themselves, and then each
// lies in the same bank as the value of A that it is added to. Its results may lie where stores
// want them, and the accumulators anywhere.
template <class T>
__device__ __forceinline__ void scale(float (&acc)[T::TN][T::TM], float alpha)
{
#pragma unroll
    for (int j = 0; j < T::TN; ++j)
#pragma unroll
        for (int i = 0; i < T::TM; ++i) acc[j][i] *= alpha;
}
