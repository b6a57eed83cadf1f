// How a warpgroup writes its part of a tile: D = alpha A B + beta C + bias, rounded once, through
// shared memory.
//
// The accumulators of a lane are neighbours in pairs only. stmatrix arranges 64 x 64 of them into
// rows of 128 bytes, swizzled (16-byte unit u of row r lies at u ^ r % 8), which is free of bank
// conflicts, and the copy engine writes them while the warpgroup goes on. Rows and columns beyond
// the matrix are the copy engine's business, too.
#pragma once

#include "half.cuh"
#include "ldmatrix.cuh"
#include "tma.cuh"
#include "wgmma.cuh"

// 64 x WIDE accumulators of a warpgroup, WIDE / 2 of this thread, to a square in shared memory.
// two(i, row, column): accumulators i and i + 1 as they are stored, side by side; (row, column):
// their place in the square. COLUMN: the square is transposed, WIDE lines of 64 rows.
template <bool COLUMN = false, int WIDE = 64, class Two>
__device__ __forceinline__ void arrange_square(unsigned char* square, Two two)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, r = 16 * warp + lane % 16;
#pragma unroll
    for (int j = 0; j < (WIDE + 15) / 16;
         ++j) {  // 16 columns: matrices of rows 0-7 and 8-15, columns 0-7 and 8-15
        unsigned x[4];
#pragma unroll
        for (int q = 0; q < (WIDE >= 16 ? 4 : 2); ++q)
            x[q] = two(8 * j + 2 * q, 16 * warp + lane / 4 + 8 * (q % 2),
                       16 * j + 8 * (q / 2) + 2 * (lane % 4));
        if constexpr (COLUMN) {
            const int line = 16 * j + 8 * (lane / 16) + lane % 8,
                      unit = (2 * warp + lane / 8 % 2) ^ line % 8;
            const unsigned at = shared_address(square + 128 * line + 16 * unit);
            if constexpr (WIDE < 16) stmatrix_x2_trans(at, x[0], x[1]);
            else stmatrix_x4_trans(at, x[0], x[1], x[2], x[3]);
        } else {
            const int unit = (2 * j + lane / 16) ^ r % 8;
            stmatrix_x4(shared_address(square + 128 * r + 16 * unit), x[0], x[1], x[2], x[3]);
        }
    }
}

// What becomes of a sum: nothing but alpha, or beta C and a bias are added, and then an activation.
enum Extra { NOTHING, ADDS, RELU, GELU, SILU };  // NOTHING is false and ADDS true

template <int EXTRA>
__device__ __forceinline__ float activated(float x)
{
    if (EXTRA == RELU) return fmaxf(x, 0.f);
    if (EXTRA == GELU) return 0.5f * x * (1.f + erff(x * 0.70710678f));
    if (EXTRA == SILU) return x / (1.f + __expf(-x));
    return x;
}

struct Scale {
    float alpha, beta;
    const unsigned short*
        c;              // m x n row-major with rows of `pitch` elements, COLUMN n x m, or null
    const float* bias;  // one for every row, or null
    int m, n, pitch;

    // What is added to an element and its right neighbour.
    template <Dtype T, bool COLUMN = false>
    __device__ __forceinline__ float2 added(int row, int column) const
    {
        const float b = bias && row < m ? bias[row] : 0.f;
        if (!c || row >= m || column >= n) return {b, b};
        if (COLUMN) {
            const unsigned short* at = c + (size_t)column * pitch + row;
            const float2 x = unpack<T>(at[0] | (column + 1 < n ? at[pitch] : 0u) << 16);
            return {fmaf(beta, x.x, b), fmaf(beta, x.y, b)};
        }
        const float2 x =
            unpack<T>(*reinterpret_cast<const unsigned*>(c + (size_t)row * pitch + column));
        return {fmaf(beta, x.x, b), fmaf(beta, x.y, b)};
    }
};

// Template:  BUFFERS  how many squares of 64 x 64 a warpgroup has in shared memory at once
//            EXTRA    of Extra: the plain kernel pays nothing for what others add
//            COLUMN   whether C is column-major: the tensor map is that of C^T, n x m, and a square
//                     has lines of 64 rows
template <Dtype T, int BUFFERS, int EXTRA, bool COLUMN = false>
struct Store {
    unsigned char square[BUFFERS][8192];  // aligned to 1024 bytes

    // 64 x 64 accumulators, 32 of this thread, to a square in shared memory; (row, column): where
    // it belongs in C.
    template <int WIDE = 64>
    __device__ __forceinline__ void
    arrange(int s, const float* acc, int row, int column, const Scale& scale)
    {
        arrange_square<COLUMN, WIDE>(square[s], [&](int i, int down, int right) {
            float2 extra = {0.f, 0.f};
            if (EXTRA) extra = scale.added<T, COLUMN>(row + down, column + right);
            return pack<T>(activated<EXTRA>(fmaf(scale.alpha, acc[i], extra.x)),
                           activated<EXTRA>(fmaf(scale.alpha, acc[i + 1], extra.y)));
        });
    }

    // 64 x WIDE accumulators of a warpgroup, by its first square; number: its named barrier.
    template <int WIDE = 64>
    __device__ __forceinline__ void write_square(const float* acc, const TensorMap& c, int row,
                                                 int column, const Scale& scale, int number)
    {
        if (threadIdx.x % 128 == 0) tma_store_wait<0>();
        named_barrier(number, 128);
        arrange<WIDE>(0, acc, row, column, scale);
        async_proxy_fence();
        named_barrier(number, 128);
        if (threadIdx.x % 128 == 0) {
            send(c, row, column, square[0]);
            tma_store_commit();
        }
    }
    static __device__ __forceinline__ void
    send(const TensorMap& c, int row, int column, const unsigned char* square)
    {
        if (COLUMN) tma_store(c, row, column, square);
        else tma_store(c, column, row, square);
    }

    // A warpgroup's blocks of 64 rows, which begin at (row, column); number: its named barrier.
    template <int BLOCKS, int HALF_N>
    __device__ __forceinline__ void write(const float (&acc)[BLOCKS][HALF_N], const TensorMap& c,
                                          int row, int column, const Scale& scale, int number)
    {
        constexpr int WIDE = HALF_N < 32 ? 2 * HALF_N : 64, CHUNKS = 2 * HALF_N / WIDE,
                      ALL = BLOCKS * CHUNKS;
        static_assert(CHUNKS * WIDE == 2 * HALF_N && (WIDE == 64 || COLUMN),
                      "squares are 64 columns wide, or lines of C^T");
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
            arrange<WIDE>(i % BUFFERS, acc[0] + WIDE / 2 * i, row + 64 * (i / CHUNKS),
                          column + WIDE * (i % CHUNKS), scale);
            if (i == BUFFERS - 1 || i >= BUFFERS || i == ALL - 1) {
                async_proxy_fence();
                named_barrier(number, 128);
                if (leader)
#pragma unroll
                    for (int s = i >= BUFFERS ? i : 0; s <= i; ++s) {
                        send(c, row + 64 * (s / CHUNKS), column + WIDE * (s % CHUNKS),
                             square[s % BUFFERS]);
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
