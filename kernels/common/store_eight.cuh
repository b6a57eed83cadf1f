// How a warpgroup writes its part of a product of 8-bit floats: D[i, j] = scale_a[i] scale_b[j] /
// scale_d sum, rounded once to bfloat16 or to e4m3, through squares of 64 x 64 in shared memory as
// store.cuh does.
//
// Rows of a square of e4m3 are 64 bytes (16-byte unit u of row r lies at u ^ r / 2 % 4). stmatrix
// deals out pairs of 16 bits, four neighbours of e4m3, but a lane has only two of them: two lanes
// exchange theirs first.
//
//   lane t of four has    columns 2t, 2t+1 │ 8+2t, 8+2t+1          it stores    columns 4t to 4t+3
#pragma once

#include "store.cuh"

enum Out { TO_BF16, TO_E4M3 };

// Two floats in the lower 16 bits, the first in the lower byte; beyond 448 it is 448, NaN 0x7F.
__device__ __forceinline__ unsigned pack_e4m3(float low, float high)
{
    unsigned short two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(two) : "f"(high), "f"(low));
    return two;
}

// Scales in device memory, so that a captured launch sees new ones.
struct Scales {
    const float *a, *b, *d;  // of A: 1 or m; of B: 1 or n; of D: 1, or null for none
    int m, n;
    const float* bias = nullptr;  // of D's rows, m, or null; looked at where something is added
    __device__ __forceinline__ float bias_of_row(int i) const
    {
        return bias && i < m ? __ldg(bias + i) : 0.f;
    }
    __device__ __forceinline__ float of_row(int i) const { return i < m ? __ldg(a + i) : 0.f; }
    __device__ __forceinline__ float of_column(int j) const { return j < n ? __ldg(b + j) : 0.f; }
    // What all of D is multiplied by. ROWS, COLUMNS: what is not in it
    template <bool ROWS, bool COLUMNS>
    __device__ __forceinline__ float of_all() const
    {
        return (ROWS ? 1.f : __ldg(a)) * (COLUMNS ? 1.f : __ldg(b)) / (d ? __ldg(d) : 1.f);
    }
};

// Template:  BUFFERS  squares of 64 x 64 that a warpgroup has in shared memory at once
//            OUT      what D is
//            ROWS     whether A has a scale for each row
//            COLUMNS  whether B has one for each column: the plain kernel does not look
//            TURNED   whether D is column-major, and bfloat16: the tensor map is that of D^T, n x m
//            EXTRA    of store.cuh's Extra: a bias, and an activation
template <int BUFFERS, Out OUT, bool ROWS, bool COLUMNS, bool TURNED = false, int EXTRA = NOTHING>
struct StoreEight {
    static_assert(OUT == TO_BF16 || !TURNED, "e4m3 is stored by rows");
    unsigned char square[BUFFERS][8192];  // aligned to 1024 bytes

    // Four neighbouring columns of e4m3 of this lane, from the pairs of two 8-column pieces.
    static __device__ __forceinline__ unsigned exchange(unsigned left, unsigned right)
    {
        const int lane = threadIdx.x % 32, t = lane % 4, from = lane - t + 2 * t % 4;
        const unsigned mine = left | right << 16;
        const unsigned first = __shfl_sync(~0u, mine, from),
                       second = __shfl_sync(~0u, mine, from + 1);
        return __byte_perm(first, second, t < 2 ? 0x5410 : 0x7632);
    }

    // 64 x WIDE accumulators, WIDE / 2 of this thread, to square s; (row, column): where it belongs
    // in D.
    template <int WIDE = 64>
    __device__ __forceinline__ void
    arrange(int s, const float* acc, int row, int column, const Scales& scales, float all)
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
        const int g = row + 16 * warp + lane / 4, c = column + 2 * (lane % 4);
        float down[2] = {all, all};
        if (ROWS) down[0] = all * scales.of_row(g), down[1] = all * scales.of_row(g + 8);
        float bias[2] = {};
        if (EXTRA) bias[0] = scales.bias_of_row(g), bias[1] = scales.bias_of_row(g + 8);
        const auto scaled =
            [&](int i) {  // accumulators i and i + 1: row g + 8 (i / 2 % 2), columns c + 8 (i / 4)
                float2 x = {acc[i] * down[i / 2 % 2], acc[i + 1] * down[i / 2 % 2]};
                if (COLUMNS)
                    x.x *= scales.of_column(c + 8 * (i / 4)),
                        x.y *= scales.of_column(c + 8 * (i / 4) + 1);
                if (EXTRA)
                    x.x = activated<EXTRA>(x.x + bias[i / 2 % 2]),
                    x.y = activated<EXTRA>(x.y + bias[i / 2 % 2]);
                return x;
            };
        if constexpr (OUT == TO_BF16) {
            arrange_square<TURNED, WIDE>(square[s], [&](int i, int, int) {
                const float2 x = scaled(i);
                return pack<BF16>(x.x, x.y);
            });
        } else {
            const int r = 16 * warp + lane % 16;
#pragma unroll
            for (int j = 0; j < 2;
                 ++j) {  // 32 columns: matrices of rows 0-7 and 8-15, units 2j and 2j + 1
                unsigned x[4];
#pragma unroll
                for (int q = 0; q < 4; ++q) {
                    const int i = 16 * j + 8 * (q / 2) + 2 * (q % 2);
                    const float2 left = scaled(i), right = scaled(i + 4);
                    x[q] = exchange(pack_e4m3(left.x, left.y), pack_e4m3(right.x, right.y));
                }
                const int unit = (2 * j + lane / 16) ^ r / 2 % 4;
                stmatrix_x4(shared_address(square[s] + 64 * r + 16 * unit), x[0], x[1], x[2], x[3]);
            }
        }
    }

    // 64 x WIDE accumulators of a warpgroup, by its first square; number: its named barrier.
    template <int WIDE = 64>
    __device__ __forceinline__ void write_square(const float* acc, const TensorMap& d, int row,
                                                 int column, const Scales& scales, int number)
    {
        if (threadIdx.x % 128 == 0) tma_store_wait<0>();
        named_barrier(number, 128);
        arrange<WIDE>(0, acc, row, column, scales, scales.of_all<ROWS, COLUMNS>());
        async_proxy_fence();
        named_barrier(number, 128);
        if (threadIdx.x % 128 == 0) {
            send(d, row, column, square[0]);
            tma_store_commit();
        }
    }
    static __device__ __forceinline__ void
    send(const TensorMap& d, int row, int column, const unsigned char* square)
    {
        if (TURNED) tma_store(d, row, column, square);
        else tma_store(d, column, row, square);
    }

    // A warpgroup's blocks of 64 rows, which begin at (row, column); number: its named barrier.
    template <int BLOCKS, int HALF_N>
    __device__ __forceinline__ void write(const float (&acc)[BLOCKS][HALF_N], const TensorMap& d,
                                          int row, int column, const Scales& scales, int number)
    {
        constexpr int WIDE = HALF_N < 32 ? 2 * HALF_N : 64, CHUNKS = 2 * HALF_N / WIDE,
                      ALL = BLOCKS * CHUNKS;
        static_assert(CHUNKS * WIDE == 2 * HALF_N && (WIDE == 64 || TURNED),
                      "squares are 64 columns wide, or lines of D^T");
        const bool leader = threadIdx.x % 128 == 0;
        const float all = scales.of_all<ROWS, COLUMNS>();
#pragma unroll
        for (int i = 0; i < ALL; ++i) {
            if (leader && i >= BUFFERS)
                tma_store_wait<BUFFERS - 1>();  // a square is free once it has been read
            if (leader && i == 0) tma_store_wait<0>();
            if (i == 0 || i >= BUFFERS) named_barrier(number, 128);
            const int r = row + 64 * (i / CHUNKS), c = column + WIDE * (i % CHUNKS);
            arrange<WIDE>(i % BUFFERS, acc[0] + WIDE / 2 * i, r, c, scales, all);
            if (i >= BUFFERS - 1 || i == ALL - 1) {
                async_proxy_fence();
                named_barrier(number, 128);
                if (leader)
#pragma unroll
                    for (int s = i >= BUFFERS ? i : 0; s <= i; ++s) {
                        send(d, row + 64 * (s / CHUNKS), column + WIDE * (s % CHUNKS),
                             square[s % BUFFERS]);
                        tma_store_commit();
                    }
            }
        }
    }
};
