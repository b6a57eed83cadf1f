// The sums of windows.cu, in TF32 or 3xTF32, and how they are stored.
//
// Template:  as in windows.cu
#pragma once

#include "windows.cuh"

// x rounded to TF32, to the nearest; returns the rest such that wgmma, which cuts off what TF32 has
// not, rounds it likewise. NaN and infinity stay in x.
__device__ __forceinline__ unsigned halve(unsigned& x)
{
    const float all = __uint_as_float(x);
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(x) : "f"(all));
    return __float_as_uint(all - __uint_as_float(x)) + 0x1000;
}
__device__ __forceinline__ uint4 halve(uint4& x)
{
    return {halve(x.x), halve(x.y), halve(x.z), halve(x.w)};
}

// What a warpgroup adds up: 2 x 64 columns of C of a window's W rows.
template <int W, int GROUPS, bool EXACT>
struct Sums {
    static constexpr int PITCH = 128 * GROUPS + 8, SLICE = W * 32 * (1 + EXACT);  // Shared's
    static constexpr bool BOTH =
        EXACT && W <= 16;            // big B times both parts of A at once, side by side
    static constexpr int E = W / 2;  // accumulators of a thread
    float acc[2][BOTH ? W : E], rest[2][BOTH ? E : 1], sum[2][EXACT ? E : 1];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < E; ++j) {
                acc[i][j] = 0.f;
                if constexpr (EXACT) sum[i][j] = 0.f;
            }
    }

    // Multiplies COUNT slices; gathered: this lane's of B; values: theirs; add: to what acc holds.
    template <int COUNT>
    __device__ __forceinline__ void
    multiply(const float* gathered, const unsigned char* values, bool add)
    {
        uint4 big[COUNT][2], small[EXACT ? COUNT : 1][2];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float4 x = *reinterpret_cast<const float4*>(gathered + 8 * k * PITCH);
            const float4 y = *reinterpret_cast<const float4*>(gathered + (8 * k + 4) * PITCH);
            big[k][0] = bits(x.x, x.y, y.x, y.y);
            big[k][1] = bits(x.z, x.w, y.z, y.w);
            if constexpr (EXACT)
#pragma unroll
                for (int i = 0; i < 2; ++i) small[k][i] = halve(big[k][i]);
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                pin(big[k][i]);
                if constexpr (EXACT) pin(small[k][i]);
            }
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const unsigned char* at = values + k * SLICE;
            const unsigned long long right = k_major<32>(at);
#pragma unroll
            for (int i = 0; i < 2; ++i)
                if constexpr (BOTH) {
                    WgmmaTf32<2 * W>::dense(acc[i], big[k][i], right, k > 0);
                    WgmmaTf32<W>::dense(rest[i], small[k][i], right, k > 0);
                } else if constexpr (EXACT) {
                    WgmmaTf32<W>::dense(acc[i], small[k][i], right, k > 0);
                    WgmmaTf32<W>::dense(acc[i], big[k][i], k_major<32>(at + W * 32), true);
                    WgmmaTf32<W>::dense(acc[i], big[k][i], right, true);
                } else {
                    WgmmaTf32<W>::dense(acc[i], big[k][i], right, k > 0 || add);
                }
        }
        wgmma_commit();
        wgmma_wait<0>();  // meanwhile other warpgroups' instructions run
        if constexpr (EXACT) {
            settle(acc);
            if constexpr (BOTH) settle(rest);
            add_up();
        }
    }

    // 3xTF32: a product, or big B times both parts of A and small B times the big part.
    __device__ __forceinline__ void add_up()
    {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int j = 0; j < E; ++j) {
                if constexpr (BOTH) sum[i][j] += acc[i][j] + (acc[i][E + j] + rest[i][j]);
                else sum[i][j] += acc[i][j];
            }
    }
};

// This lane's 4 columns of C, from `column` on, of 2 rows in every 8: stored, or added where the
// window is cut.
template <int W>
__device__ __forceinline__ void put_tile(const float (&acc)[2][W / 2], const int* order, float* c,
                                         int m, int width, const Tile& it, int column, int t)
{
#pragma unroll
    for (int j = 0; j < W / 4; ++j) {
        const int p = it.window * W + j / 2 * 8 + 2 * t + j % 2, d = j / 2 * 4 + j % 2;
        if (p >= m) continue;
        float* to = c + (size_t)row_of(order, p) * width + column;
        const float4 x = {acc[0][d], acc[0][d + 2], acc[1][d], acc[1][d + 2]};
        if (it.cut < 0) *reinterpret_cast<float4*>(to) = x;
        else add4(to, x);
    }
}

// Of a cut window adds this warp's part to the others' (in_order.cuh); true where acc is to be
// stored, as a whole window's is.
template <int W>
__device__ __forceinline__ bool
add_tile_in_order(float (&acc)[2][W / 2], const Slots& to, const Tile& it, int strip, int column,
                  int width, int t)
{
    constexpr int LOADS = W / 4;  // as put_tile has them
    vec<4> x[LOADS];
#pragma unroll
    for (int j = 0; j < LOADS; ++j) {
        const int d = j / 2 * 4 + j % 2;
        x[j] = {{acc[0][d], acc[0][d + 2], acc[1][d], acc[1][d + 2]}};
    }
    const auto offset = [&](int j) { return (unsigned)(j / 2 * 8 + 2 * t + j % 2) * width; };
    const auto inside = [&](int) { return column < width; };
    const bool whole = add_in_order<W == 8    ? 4
                                    : W == 16 ? 2
                                              : 1>(
        x, to.parts + it.cut, it.first, to.counts + (size_t)strip * to.slots, to.sums + column,
        (size_t)W * width, offset, inside);
#pragma unroll
    for (int j = 0; j < LOADS; ++j) {
        const int d = j / 2 * 4 + j % 2;
        acc[0][d] = x[j].at[0], acc[0][d + 2] = x[j].at[1], acc[1][d] = x[j].at[2],
        acc[1][d + 2] = x[j].at[3];
    }
    return whole;
}
