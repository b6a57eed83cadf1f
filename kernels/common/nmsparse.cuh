// nmSPARSE's vector-wise kernel as it is written, in pieces, for systems that put it on trial or
// descend from it.
//
//   C (m x n) = A (m x k) . B (k x n, vector-wise N:M along k),
//   float32, A and C column-major, the rest row-major.
//
// What makes it what it is, and slower than it could be: a row of A is asked for when its index is
// there and stored before the next is asked for, so far as the compiler keeps that order; lanes of
// a warp lie along n, so that they store C float by float into eight columns at once; addresses are
// counted in 32 bits; nothing is `__restrict__`.
//
// Template:  BM, BN  rows and columns of C that a block computes; nmSPARSE has 32, 32
#pragma once

#include "float4.cuh"

// Where a thread works: on 4 x 4 of C, and in loads on 16 bytes of a row.
//
//   t_n     0  4  8 ... 28      lanes 0 to 7 of a warp have the same four rows of C and all columns
//   t_m 0   0  1  2 ...  7
//   t_m 4   8  9 10 ... 15
template <int BM, int BN>
struct NmSparseTile {
    static_assert(BM % 32 == 0 && BN % 32 == 0,
                  "a tile has rows of 32 floats: choose BM and BN as multiples of 32");
    static constexpr int THREADS = (BM / 4) * (BN / 4);
    static constexpr int STRIDE_A = THREADS / (BM / 4),
                         STRIDE_B = THREADS / (BN / 4);  // rows of a turn of the block
    int m0, n0;                                          // first row and column of the block's tile
    int t_m, t_n;  // first row and column of the thread's 4 x 4 within it

    __device__ __forceinline__ NmSparseTile()
        : m0(blockIdx.x * BM),
          n0(blockIdx.y * BN),
          t_m(threadIdx.x / (BN / 4) * 4),
          t_n(threadIdx.x % (BN / 4) * 4)
    {
    }

    // As [rows][BM]: the rows of A^T that the indices of the block's first column name. rows: of a
    // step, a multiple of STRIDE_A. END: `left`, the compressed rows from here on, may be fewer;
    // else B has whole steps, as in nmSPARSE
    template <bool END>
    __device__ __forceinline__ void
    gather_a(float* As, const float* A, const int* index, int m, int n, int rows, int left) const
    {
        const int row = threadIdx.x / (BM / 4), column = threadIdx.x % (BM / 4) * 4;
#pragma unroll
        for (int i = 0; i < rows; i += STRIDE_A)
            if (!END || i + row < left) {
                const int k = *(index + n0 + (i + row) * n);
                store4(As + (i + row) * BM + column, load4(A + m0 + k * m + column));
            }
    }

    // Bs [rows][BN]: the values
    template <bool END>
    __device__ __forceinline__ void
    load_b(float* Bs, const float* val, int n, int rows, int left) const
    {
        const int row = threadIdx.x / (BN / 4), column = threadIdx.x % (BN / 4) * 4;
#pragma unroll
        for (int i = 0; i < rows; i += STRIDE_B)
            if (!END || i + row < left)
                store4(Bs + (i + row) * BN + column, load4(val + n0 + (i + row) * n + column));
    }

    // acc[j][i] += b[j] * a[i] for every compressed row: eight floats from shared memory, 16
    // multiply-adds
    __device__ __forceinline__ void
    multiply(float (&acc)[4][4], const float* As, const float* Bs, int rows) const
    {
        float a[4], b[4];
#pragma unroll
        for (int row = 0; row < rows; ++row) {
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = As[row * BM + t_m + i];
#pragma unroll
            for (int j = 0; j < 4; ++j) b[j] = Bs[row * BN + t_n + j];
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int i = 0; i < 4; ++i) acc[j][i] += b[j] * a[i];
        }
    }

    // Float by float, columns apart
    __device__ __forceinline__ void store(float* C, const float (&acc)[4][4], int m) const
    {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) C[(n0 + t_n + j) * m + m0 + t_m + i] = acc[j][i];
    }
};
