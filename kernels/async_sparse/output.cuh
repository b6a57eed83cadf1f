// C leaves through shared memory: accumulators, rounded once, to swizzled boxes that the copy
// engine takes away (sm_90a).
//
// A warpgroup's 64 x N of C in boxes of 64 x WIDE; rows and columns beyond the matrix are the copy
// engine's business.
//
//   C row-major      a box has 64 lines of WIDE columns
//   C column-major   a box has WIDE lines of 64 rows: stmatrix transposes. Of float32 it is two
//                    boxes of 32 rows
//
// A line of 128 bytes has its 16-byte unit u at u ^ line % 8; lines of 64 and 32 bytes have the
// smaller swizzles.
//
// Template:  T        BF16, F16, or TF32: C is float32
//            COLUMN   whether C is column-major
//            N        columns of a warpgroup, a multiple of 8
//            BUFFERS  boxes that a warpgroup has
//            WIDEST   columns of a box at most where N is a multiple of 64: 64, or 32 or 16 where
//                     shared memory is scarce
#pragma once

#include "half.cuh"
#include "ldmatrix.cuh"
#include "step.cuh"

template <bool FIRST, class A, class B>
struct Picked {
    using type = A;
};
template <class A, class B>
struct Picked<false, A, B> {
    using type = B;
};
template <bool FIRST, class A, class B>
using Pick = typename Picked<FIRST, A, B>::type;

template <Dtype T, bool COLUMN, int N, int BUFFERS, int WIDEST = 64>
struct Output {
    static constexpr int MOST =
        T == TF32 && !COLUMN && WIDEST > 32 ? 32 : WIDEST;  // columns of a line of 128 bytes
    static constexpr int WIDE = N % 64 == 0 ? MOST : N % 32 == 0 ? 32 : N % 16 == 0 ? 16 : 8;
    static constexpr int BOXES = N / WIDE, BYTES = 64 * WIDE * SIZE<T>;
    static constexpr int LINE = COLUMN ? 128 : WIDE * SIZE<T>;  // bytes

    unsigned char box[BUFFERS][BYTES];  // aligned to 1024 bytes

    // Where the 16-byte unit of a line is.
    static __device__ __forceinline__ int place(int line, int unit)
    {
        constexpr int UNITS = LINE / 16;
        return line * LINE + 16 * (unit ^ line / (8 / UNITS) % UNITS);
    }

    // The columns of box i of this thread's accumulators.
    __device__ __forceinline__ void arrange(unsigned char* to, const float* acc) const
    {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, g = lane / 4, t = lane % 4;
        if constexpr (T == TF32) {
#pragma unroll
            for (int j = 0; j < WIDE / 8; ++j)
#pragma unroll
                for (int down = 0; down < 2; ++down) {
                    const int row = 16 * warp + 8 * down + g, column = 8 * j + 2 * t;
                    const float x = acc[4 * j + 2 * down], y = acc[4 * j + 2 * down + 1];
                    if constexpr (COLUMN) {
                        unsigned char* half = to + row / 32 * (BYTES / 2) + row % 4 * 4;
                        *reinterpret_cast<float*>(half + place(column, row % 32 / 4)) = x;
                        *reinterpret_cast<float*>(half + place(column + 1, row % 32 / 4)) = y;
                    } else {
                        *reinterpret_cast<float2*>(to + place(row, column / 4) + column % 4 * 4) =
                            make_float2(x, y);
                    }
                }
        } else {
            // 16 columns: matrices of rows 0-7 and 8-15, columns 0-7 and 8-15.
#pragma unroll
            for (int j = 0; j < (WIDE + 15) / 16; ++j) {
                unsigned x[4];
#pragma unroll
                for (int q = 0; q < (WIDE >= 16 ? 4 : 2); ++q)
                    x[q] = pack<T>(acc[8 * j + 2 * q], acc[8 * j + 2 * q + 1]);
                const int right = 8 * (lane / 16), down = lane / 8 % 2;
                const unsigned at =
                    shared_address(to) + (COLUMN ? place(16 * j + right + lane % 8, 2 * warp + down)
                                                 : place(16 * warp + lane % 16, 2 * j + lane / 16));
                if constexpr (WIDE < 16)
                    COLUMN ? stmatrix_x2_trans(at, x[0], x[1]) : stmatrix_x2(at, x[0], x[1]);
                else
                    COLUMN ? stmatrix_x4_trans(at, x[0], x[1], x[2], x[3])
                           : stmatrix_x4(at, x[0], x[1], x[2], x[3]);
            }
        }
    }

    // One thread asks for a box to be stored, and for it alone to be waited for.
    static __device__ __forceinline__ void
    store(const TensorMap& c, int row, int column, const unsigned char* from, Policy policy)
    {
        if constexpr (COLUMN) {
            tma_store(c, row, column, from, policy);
            if constexpr (T == TF32) tma_store(c, row + 32, column, from + BYTES / 2, policy);
        } else {
            tma_store(c, column, row, from, policy);
        }
        tma_store_commit();
    }

    // A warpgroup's tile, which begins at (row, column); number: its named barrier.
    __device__ __forceinline__ void write(const float (&acc)[1][N / 2], const TensorMap& c, int row,
                                          int column, int number, Policy policy)
    {
        const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
        for (int i = 0; i < BOXES; ++i) {
            if (i == 0 || i >= BUFFERS) {  // a box is free once the copy engine has read it
                if (leader) {
                    if (i == 0) tma_store_wait<0>();
                    else tma_store_wait<BUFFERS - 1>();
                }
                named_barrier(number, 128);
            }
            arrange(box[i % BUFFERS], acc[0] + i * (WIDE / 2));
            if (i == BUFFERS - 1 || i >= BUFFERS || i == BOXES - 1) {
                async_proxy_fence();
                named_barrier(number, 128);
                if (leader)
#pragma unroll
                    for (int s = i >= BUFFERS ? i : 0; s <= i; ++s)
                        store(c, row, column + WIDE * s, box[s % BUFFERS], policy);
            }
        }
    }

    // The same for a tile of zeros, from a box of them; nothing is waited for.
    static __device__ __forceinline__ void
    write_zeros(const unsigned char* zeros, const TensorMap& c, int row, int column, Policy policy)
    {
        if (threadIdx.x % 128 == 0)
#pragma unroll
            for (int i = 0; i < BOXES; ++i) store(c, row, column + WIDE * i, zeros, policy);
    }
};

template <bool THROUGH, class Element>
__device__ __forceinline__ void put(Element* to, Element x)
{
    if (THROUGH) __stwt(to, x);
    else *to = x;
}

// The same without shared memory: each thread stores what it has. width: elements from a row
// (COLUMN: a column) to the next, whole pairs of columns. THROUGH: written through the caches,
// __stwt.
template <Dtype T, bool COLUMN, bool THROUGH, int N>
__device__ __forceinline__ void store_direct(const float (&acc)[1][N / 2], void* c, long long width,
                                             int m, int n, int row, int column)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    using Element = Pick<T == TF32, float, unsigned short>;
    using Two = Pick<T == TF32, float2, unsigned>;
#pragma unroll
    for (int j = 0; j < N / 8; ++j)
#pragma unroll
        for (int down = 0; down < 2; ++down) {
            const int r = row + 16 * warp + 8 * down + lane / 4,
                      right = column + 8 * j + 2 * (lane % 4);
            const float x = acc[0][4 * j + 2 * down], y = acc[0][4 * j + 2 * down + 1];
            Two two;
            if constexpr (T == TF32) two = make_float2(x, y);
            else two = pack<T>(x, y);
            if constexpr (COLUMN) {
                const Element* one = reinterpret_cast<const Element*>(&two);
                Element* to = static_cast<Element*>(c) + right * width + r;
                if (r < m && right < n) put<THROUGH>(to, one[0]);
                if (r < m && right + 1 < n) put<THROUGH>(to + width, one[1]);
            } else if (r < m && right < width) {
                put<THROUGH>(
                    reinterpret_cast<Two*>(static_cast<Element*>(c) + r * width + right), two);
            }
        }
}
