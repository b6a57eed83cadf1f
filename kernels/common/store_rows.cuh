// How a warpgroup writes its part of a tile without shared memory: as store.cuh rounds it, from
// registers.
#pragma once

#include "store.cuh"
#include "store_registers.cuh"

// 64 x 2 HALF_N accumulators, which begin at (row, column) of C: four lanes of a row exchange
// words, so that each has 16 bytes.
template <Dtype T, int EXTRA, int HALF_N>
__device__ __forceinline__ void
store_rows(const float (&acc)[HALF_N], unsigned short* c, int row, int column, const Scale& scale)
{
    constexpr int PIECES = HALF_N / 4;  // of 8 columns
    const int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int r = row + threadIdx.x / 32 % 4 * 16 + lane / 4 + 8 * h;
        const auto word = [&](int p) {
            float2 extra = {0.f, 0.f};
            if (EXTRA) extra = scale.added<T>(r, column + 8 * p + 2 * t);
            const float* x = acc + 4 * p + 2 * h;
            return pack<T>(activated<EXTRA>(fmaf(scale.alpha, x[0], extra.x)),
                           activated<EXTRA>(fmaf(scale.alpha, x[1], extra.y)));
        };
        unsigned short* line = c + (size_t)r * scale.pitch;
#pragma unroll
        for (int p = 0; p + 4 <= PIECES; p += 4) {
            unsigned x[4] = {word(p), word(p + 1), word(p + 2), word(p + 3)};
            transpose_words(x);
            const int q = column + 8 * (p + t);
            if (r < scale.m && q < scale.n)
                *reinterpret_cast<uint4*>(line + q) = make_uint4(x[0], x[1], x[2], x[3]);
        }
#pragma unroll
        for (int p = PIECES / 4 * 4; p < PIECES; ++p) {
            const unsigned x = word(p);
            const int q = column + 8 * p + 2 * t;
            if (r < scale.m && q < scale.n) *reinterpret_cast<unsigned*>(line + q) = x;
        }
    }
}
