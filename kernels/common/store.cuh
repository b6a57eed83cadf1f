// How a warpgroup writes its part of a tile: D = alpha A B + beta C + bias, rounded once, through shared memory.
//
// The accumulators of a lane are neighbours in pairs only. stmatrix arranges 64 x 64 of them into rows of 128 bytes, swizzled
// (16-byte unit u of row r lies at u ^ r % 8), which is free of bank conflicts, and the copy engine writes them while the
// warpgroup goes on. Rows and columns beyond the matrix are the copy engine's business, too.
#pragma once

#include "half.cuh"
#include "ldmatrix.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

// 64 x 64 accumulators of a warpgroup, 32 of this thread, to a square in shared memory. two(i, row, column): accumulators i and
// i + 1 as they are stored, side by side; (row, column): their place in the square.
template <class Two>
__device__ __forceinline__ void arrange_square(unsigned char* square, Two two)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, r = 16 * warp + lane % 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {  // 16 columns: matrices of rows 0-7 and 8-15, columns 0-7 and 8-15
        unsigned x[4];
#pragma unroll
        for (int q = 0; q < 4; ++q)
            x[q] = two(8 * j + 2 * q, 16 * warp + lane / 4 + 8 * (q % 2), 16 * j + 8 * (q / 2) + 2 * (lane % 4));
        const int unit = (2 * j + lane / 16) ^ r % 8;
        stmatrix_x4(shared_address(square + 128 * r + 16 * unit), x[0], x[1], x[2], x[3]);
    }
}

struct Scale {
    float alpha, beta;
    const unsigned short* c;  // m x n row-major with rows of `pitch` elements, or null
    const float* bias;        // one for every row, or null
    int m, n, pitch;

    // What is added to an element and its right neighbour.
    template <Dtype T>
    __device__ __forceinline__ float2 added(int row, int column) const
    {
        const float b = bias && row < m ? bias[row] : 0.f;
        if (!c || row >= m || column >= n) return {b, b};
        const float2 x = unpack<T>(*reinterpret_cast<const unsigned*>(c + (size_t)row * pitch + column));
        return {fmaf(beta, x.x, b), fmaf(beta, x.y, b)};
    }
};

// Template:  BUFFERS  how many squares of 64 x 64 a warpgroup has in shared memory at once
//            EXTRA    whether beta C and a bias are added; the plain kernel pays nothing for them
template <Dtype T, int BUFFERS, bool EXTRA>
struct Store {
    unsigned char square[BUFFERS][8192];  // aligned to 1024 bytes

    // 64 x 64 accumulators, 32 of this thread, to a square in shared memory; (row, column): where it belongs in C.
    __device__ __forceinline__ void arrange(int s, const float* acc, int row, int column, const Scale& scale)
    {
        arrange_square(square[s], [&](int i, int down, int right) {
            float2 extra = {0.f, 0.f};
            if (EXTRA) extra = scale.added<T>(row + down, column + right);
            return pack<T>(fmaf(scale.alpha, acc[i], extra.x), fmaf(scale.alpha, acc[i + 1], extra.y));
        });
    }

    // 64 x 64 accumulators of a warpgroup, by its first square; number: its named barrier.
    __device__ __forceinline__ void write_square(const float* acc, const TensorMap& c, int row, int column, const Scale& scale,
                                                 int number)
    {
        if (threadIdx.x % 128 == 0) tma_store_wait<0>();
        named_barrier(number, 128);
        arrange(0, acc, row, column, scale);
        async_proxy_fence();
        named_barrier(number, 128);
        if (threadIdx.x % 128 == 0) {
            tma_store(c, column, row, square[0]);
            tma_store_commit();
        }
    }

    // A warpgroup's blocks of 64 rows, which begin at (row, column); number: its named barrier.
    template <int BLOCKS, int HALF_N>
    __device__ __forceinline__ void write(const float (&acc)[BLOCKS][HALF_N], const TensorMap& c, int row, int column,
                                          const Scale& scale, int number)
    {
        constexpr int CHUNKS = HALF_N / 32, ALL = BLOCKS * CHUNKS;
        const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
        for (int i = 0; i < ALL; ++i) {
            if (i == 0 || i >= BUFFERS) {  // a square is free once the copy engine has read it
                if (leader) {
                    if (i == 0) tma_store_wait<0>();
                    else tma_store_wait<BUFFERS - 1>();
                }
                named_barrier(number, 128);
            }
            arrange(i % BUFFERS, acc[0] + 32 * i, row + 64 * (i / CHUNKS), column + 64 * (i % CHUNKS), scale);
            if (i == BUFFERS - 1 || i >= BUFFERS || i == ALL - 1) {
                async_proxy_fence();
                named_barrier(number, 128);
                if (leader)
#pragma unroll
                    for (int s = i >= BUFFERS ? i : 0; s <= i; ++s) {
                        tma_store(c, column + 64 * (s % CHUNKS), row + 64 * (s / CHUNKS), square[s % BUFFERS]);
                        tma_store_commit();
                    }
            }
        }
    }
};

// The ring, then what each warpgroup stores through, in a block's dynamic shared memory.
template <class Ring, class Out>
__device__ __forceinline__ Out* after(unsigned char* shared)
{
    return reinterpret_cast<Out*>(shared + (sizeof(Ring) + 1023) / 1024 * 1024);
}
