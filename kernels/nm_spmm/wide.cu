// wide: 16 x 8 of C a thread, warps whose lanes share their rows of A, steps unrolled whole, copies
// by cp.async.
//
//   a compressed row costs a thread      loads of 16 bytes     multiply-adds     of each other
//     8 x 8 (Table I, large)                    4                   64              1 : 16
//     16 x 8                                    6                  128              1 : 21
//
// A warp's 32 columns are one vector, so its lanes read the same row of As: one index, one address
// a row, and TM / 4 loads that differ by constants. With ROWS known, offsets into Bs are constants
// too, and no loop is counted.
//
// Template:  BM, BN, TM, TN, SLOT  see fragments.cuh
//            ROWS, DEPTH  compressed rows of B and rows of A^T in a step: N and M, times its
//                         windows
//            STAGES       in shared memory, from 2: STAGES - 1 steps are on their way, one is
//                         multiplied
//            BLOCKS       that an SM shall hold at once
//            ALIGNED      m is a multiple of 4
//            BANKS        the order of multiply-adds, and the epilogue, that keep operands in two
//                         banks

#include "cp_async.cuh"
#include "sums.cuh"

template <int BM, int BN, int TM, int TN, int SLOT, int ROWS, int DEPTH, int STAGES, int BLOCKS,
          bool ALIGNED, bool BANKS>
__global__ void __launch_bounds__(BM* BN / TM / TN, BLOCKS)
    wide(int m, int n, int k, int steps,
         int lda,      // sizes; steps of DEPTH rows of A^T, lda floats apart, a multiple of 4
         float alpha,  // C = alpha A B with BANKS; 1
         const float* __restrict__ A,    // m x k, column-major
         const float* __restrict__ val,  // gridDim.y x steps x ROWS x BN
         const int* __restrict__ index,  // gridDim.y x steps x BN/SLOT x ROWS: rows within the step
         float* __restrict__ C)          // m x n, column-major
{
    using T = FragmentTile<BM, BN, TM, TN, SLOT>;
    constexpr int A_FLOATS = DEPTH * BM, B_FLOATS = ROWS * BN, INDICES = BN / SLOT * ROWS,
                  STAGE = A_FLOATS + B_FLOATS + INDICES;
    constexpr int A_ROWS = T::THREADS * 4 / BM;  // rows of A^T that the block copies at a time
    static_assert(
        ROWS % 4 == 0,
        "indices are read four at a time: choose windows so that a step has 4, 8, ... rows");
    extern __shared__ __align__(128) float stages[];
    const T t;
    const unsigned base = address(stages);
    const int a_row = threadIdx.x / (BM / 4), a_column = threadIdx.x % (BM / 4) * 4;
    const bool inside = blockIdx.x * BM + a_column < m;
    const float* a_from = A + (size_t)a_row * lda + blockIdx.x * BM + a_column;
    const float* b_from = val + (size_t)blockIdx.y * steps * B_FLOATS;
    const int* d_from = index + (size_t)blockIdx.y * steps * INDICES;

    auto copy = [&](int step, int stage) {
        if (step < steps) {
            const unsigned to = base + stage * STAGE * 4;
            const float* from = a_from + (size_t)step * DEPTH * lda;
            const int there = min(DEPTH, k - step * DEPTH) -
                              a_row;  // rows of A^T beyond k stay as they were: no index names one
#pragma unroll
            for (int r = 0; r < DEPTH; r += A_ROWS, from += (size_t)A_ROWS * lda)
                cp_async_or_zeros<16, CG>(
                    to + ((r + a_row) * BM + a_column) * 4, from, inside, r < there);
#pragma unroll
            for (int i = 4 * threadIdx.x; i < B_FLOATS; i += 4 * T::THREADS)
                cp_async<16, CG>(to + (A_FLOATS + i) * 4, b_from + (size_t)step * B_FLOATS + i);
            for (int i = 4 * threadIdx.x; i < INDICES; i += 4 * T::THREADS)
                cp_async<16, CG>(
                    to + (A_FLOATS + B_FLOATS + i) * 4, d_from + (size_t)step * INDICES + i);
        }
        cp_async_commit_group();  // an empty one counts, too
    };

#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) copy(s, s);
    float acc[TN][TM] = {};
    for (int step = 0, stage = 0, fill = STAGES - 1; step < steps; ++step) {
        cp_async_wait_group<STAGES - 2>();
        __syncthreads();  // the step is there, and nobody reads the one before it any more
        copy(step + STAGES - 1, fill);
        const unsigned at = base + stage * STAGE * 4;
        multiply_stage<T, ROWS, ROWS, BANKS>(acc, at + t.m * 4, at + (A_FLOATS + t.n) * 4,
                                             at + (A_FLOATS + B_FLOATS + t.n / SLOT * ROWS) * 4);
        stage = stage + 1 == STAGES ? 0 : stage + 1;
        fill = fill + 1 == STAGES ? 0 : fill + 1;
    }
    if constexpr (BANKS) scale<T>(acc, alpha);
    store<ALIGNED>(C, acc, t, m, n, blockIdx.x, blockIdx.y);
}
