// What the kernels on tensor cores share: a step of a block row, and how a warpgroup multiplies it
// (sm_90a).
//
//             N columns of C
//          ┌───────────────┐
//   128 B  │ B             │    a step: 128 bytes of k, 64 values of 16 bits or 32 of TF32. A block
//   of k   └───────────────┘    of A, at least 64 x 64, is so many steps as its rows have times 128
//                               bytes.
//   ┌────┐ ┌───────────────┐
// 64│ A  │ │ C             │    A is K-major: 64 rows of 128 bytes, 8 KiB, 128-byte swizzle. B is
//   └────┘ └───────────────┘    K_MAJOR (column-major), N rows of 128 bytes, or MN_MAJOR
//                               (row-major), chunks of 64 columns: 64 rows of 128 bytes.
//
// Template:  T  BF16, F16 or TF32, which needs B K_MAJOR
//            N  columns that one wgmma multiplies (WGMMA_N of the source): a multiple of 8, of 64
//               where B is MN_MAJOR
//            P  pieces of a step, 1, 2 or 4: blocks that are narrower than 128 bytes of k share
//               one. A piece of A, and of B that is K_MAJOR, has lines of 128 / P bytes with the
//               swizzle of that width
#pragma once

#include "tma.cuh"
#include "wgmma_widths.cuh"

template <Dtype T>
constexpr int SIZE = T == TF32 ? 4 : 2;  // bytes of a value
template <Dtype T>
constexpr int K = 128 / SIZE<T>;   // of a step
constexpr int A_BYTES = 64 * 128;  // of a step

// A warpgroup issues the four wgmma of a step, each for 32 bytes of k, and commits them as a group;
// acc: 64 x N.
template <Dtype T, Major B, int N, int P = 1>
__device__ __forceinline__ void
multiply_step(float (&acc)[1][N / 2], const unsigned char* a, const unsigned char* b, bool add)
{
    static_assert(
        N % 8 == 0 && 8 <= N && N <= 256, "wgmma multiplies 8 to 256 columns, a multiple of 8");
    static_assert(T != TF32 || B == K_MAJOR, "TF32 wants a column-major B");
    static_assert(P == 1 || P == 2 || P == 4, "a step has 1, 2 or 4 pieces");
    constexpr int WIDTH = 128 / P, EACH = 4 / P;  // bytes of a line; wgmma of a piece
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int piece = i / EACH, inside = i % EACH * 32;
        const unsigned long long of_a = k_major<WIDTH>(a + piece * 64 * WIDTH) + inside / 16;
        const unsigned long long of_b =
            B == K_MAJOR ? k_major<WIDTH>(b + piece * N * WIDTH) + inside / 16
                         : wgmma_matrix(b + 2048 * i, 8192, 1024);
        if constexpr (T == TF32) WgmmaTf32<N>::dense(acc[0], of_a, of_b, add || i > 0);
        else Wgmma<N, T, B>::dense(acc[0], of_a, of_b, add || i > 0);
    }
    wgmma_commit();
}

// One thread asks for piece p of N columns of B, from `column` on, whose rows begin at k.
template <Dtype T, Major B, int N, int P = 1>
__device__ __forceinline__ void
load_b(unsigned char* shared, const TensorMap& b, int k, int column, Barrier* full, int p = 0)
{
    if constexpr (B == K_MAJOR) {
        tma_load(shared + p * N * (128 / P), b, k, column, full);
    } else {
        static_assert(N % 64 == 0, "a row-major B comes in chunks of 64 columns");
#pragma unroll
        for (int chunk = 0; chunk < N / 64; ++chunk)
            tma_load(shared + 8192 * chunk + p * (8192 / P), b, column + 64 * chunk, k, full);
    }
}
