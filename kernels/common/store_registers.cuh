// How a warpgroup writes its part of a product of 8-bit floats without shared memory: as
// store_eight.cuh rounds it, from registers, for any multiple of 8 columns.
//
//   four lanes of a row      lane 0   lane 1   lane 2   lane 3
//   piece 0                  word     word     word     word    a piece is 8 columns of bfloat16 or
//     ...                                                       16 of e4m3, a lane's word 2 or 4 of
//   piece 3                  word     word     word     word    them; four pieces are exchanged, so
//                                                               that each lane has one of 16 bytes:
//                                                               64 bytes of C's row
#pragma once

#include "store_eight.cuh"

// Four words of each of four neighbouring lanes: lane t gets word t of all, in their order.
__device__ __forceinline__ void transpose_words(unsigned (&x)[4])
{
    const int t = threadIdx.x % 4;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const unsigned got = __shfl_xor_sync(~0u, t & 1 ? x[i] : x[i + 1], 1);
        (t & 1 ? x[i] : x[i + 1]) = got;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const unsigned got = __shfl_xor_sync(~0u, t & 2 ? x[i] : x[i + 2], 2);
        (t & 2 ? x[i] : x[i + 2]) = got;
    }
}

// The 8 x 8 halves that a warp holds, transposed: a lane's word is of column lane / 4, its rows 2
// (lane % 4) and the next.
__device__ __forceinline__ unsigned transposed(unsigned word)
{
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(word));
    return word;
}

// TURNED: D is column-major, and bfloat16: its columns are lines of `pitch` bytes. EXTRA: as in
// store_eight.cuh.
template <Out OUT, bool ROWS, bool COLUMNS, bool TURNED = false, int EXTRA = NOTHING>
struct StoreRegisters {
    static_assert(OUT == TO_BF16 || !TURNED, "e4m3 is stored by rows");
    static constexpr int SIZE = OUT == TO_BF16 ? 2 : 1,
                         PIECE = 16 / SIZE;  // bytes of an element; columns of 16 bytes

    // A warpgroup's blocks of 64 rows, which begin at (row, column). pitch: bytes from a row of D
    // to the next, a multiple of 16; what lies in it beyond column n may be written.
    template <int BLOCKS, int HALF_N>
    static __device__ __forceinline__ void
    write(float (&acc)[BLOCKS][HALF_N], unsigned char* d, int pitch, int row, int column,
          const Scales& scales)
    {
        constexpr int N = 2 * HALF_N, PIECES = N / PIECE, WHOLE = N % PIECE ? 0 : PIECES / 4 * 4;
        const int lane = threadIdx.x % 32, t = lane % 4;
        const float all = scales.of_all<ROWS, COLUMNS>();
        if (COLUMNS)  // in place, because sums leave no registers for scales that wait
#pragma unroll
            for (int j = 0; j < N / 8; ++j) {
                const int c = column + 8 * j + 2 * t;
                const float left = scales.of_column(c), right = scales.of_column(c + 1);
#pragma unroll
                for (int i = 0; i < 2 * BLOCKS; ++i) {
                    float* x = &acc[i / 2][4 * j + i % 2 * 2];
                    x[0] *= left, x[1] *= right;
                }
            }
        if constexpr (TURNED) return write_lines(acc, d, pitch, row, column, scales, all);
        else
#pragma unroll
            for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int r = row + 64 * i + threadIdx.x / 32 % 4 * 16 + lane / 4 + 8 * h;
                    const bool there = r < scales.m;
                    const float down = ROWS ? all * scales.of_row(r) : all;
                    unsigned char* line = d + (size_t)r * pitch;
                    const float bias = EXTRA ? scales.bias_of_row(r) : 0.f;
                    const auto scaled = [&](int j) {  // columns 8 j + 2 t and + 1
                        const float left = acc[i][4 * j + 2 * h] * down,
                                    right = acc[i][4 * j + 2 * h + 1] * down;
                        if (!EXTRA) return make_float2(left, right);
                        return make_float2(
                            activated<EXTRA>(left + bias), activated<EXTRA>(right + bias));
                    };
                    const auto bytes = [&](int j) {
                        const float2 x = scaled(j);
                        return pack_e4m3(x.x, x.y);
                    };
                    const auto word = [&](int p) {
                        if constexpr (OUT == TO_BF16) {
                            const float2 x = scaled(p);
                            return pack<BF16>(x.x, x.y);
                        } else {
                            return StoreEight<1, OUT, ROWS, COLUMNS>::exchange(
                                bytes(2 * p), bytes(2 * p + 1));
                        }
                    };
#pragma unroll
                    for (int p = 0; p < WHOLE; p += 4) {
                        unsigned x[4] = {word(p), word(p + 1), word(p + 2), word(p + 3)};
                        transpose_words(x);
                        const int c = column + PIECE * (p + t);
                        if (there && c < scales.n)
                            __stcs(reinterpret_cast<uint4*>(line + c * SIZE),
                                   make_uint4(x[0], x[1], x[2], x[3]));
                    }
#pragma unroll
                    for (int p = WHOLE; p < PIECES; ++p) {
                        const unsigned x = word(p);
                        const int c = column + PIECE * p + PIECE / 4 * t;
                        if (there && c < scales.n)
                            __stcs(reinterpret_cast<unsigned*>(line + c * SIZE), x);
                    }
                    if constexpr (N % PIECE != 0) {  // e4m3, and half of a piece
                        const unsigned short x = bytes(N / 8 - 1);
                        const int c = column + N - 8 + 2 * t;
                        if (there && c < scales.n)
                            __stcs(reinterpret_cast<unsigned short*>(line + c * SIZE), x);
                    }
                }
    }

    // The same by columns: of two pieces of 8 columns, four lanes of a column exchange words, so
    // that each has 8 rows of one.
    template <int BLOCKS, int HALF_N>
    static __device__ __forceinline__ void
    write_lines(float (&acc)[BLOCKS][HALF_N], unsigned char* d, int pitch, int row, int column,
                const Scales& scales, float all)
    {
        constexpr int PIECES = HALF_N / 4;
        const int lane = threadIdx.x % 32, t = lane % 4;
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) {
            const int top = row + 64 * i + threadIdx.x / 32 % 4 * 16;
            float down[2] = {all, all};
            if (ROWS)
                down[0] *= scales.of_row(top + lane / 4),
                    down[1] *= scales.of_row(top + lane / 4 + 8);
            float bias[2] = {};
            if (EXTRA)
                bias[0] = scales.bias_of_row(top + lane / 4),
                bias[1] = scales.bias_of_row(top + lane / 4 + 8);
            const auto word = [&](int j, int h) {
                const float* x = &acc[i][4 * j + 2 * h];
                float left = x[0] * down[h], right = x[1] * down[h];
                if (EXTRA)
                    left = activated<EXTRA>(left + bias[h]),
                    right = activated<EXTRA>(right + bias[h]);
                return transposed(pack<BF16>(left, right));
            };
            const auto line = [&](int c) { return d + (size_t)c * pitch; };
#pragma unroll
            for (int j = 0; j + 2 <= PIECES; j += 2) {
                unsigned x[4] = {word(j, 0), word(j, 1), word(j + 1, 0), word(j + 1, 1)};
                transpose_words(x);
                const int c = column + 8 * (j + t / 2) + lane / 4, r = top + 8 * (t % 2);
                if (r < scales.m && c < scales.n)
                    __stcs(reinterpret_cast<uint4*>(line(c) + 2 * r),
                           make_uint4(x[0], x[1], x[2], x[3]));
            }
            if constexpr (PIECES % 2)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const unsigned x = word(PIECES - 1, h);
                    const int c = column + 8 * (PIECES - 1) + lane / 4, r = top + 8 * h + 2 * t;
                    if (r < scales.m && c < scales.n)
                        __stcs(reinterpret_cast<unsigned*>(line(c) + 2 * r), x);
                }
        }
    }
};
