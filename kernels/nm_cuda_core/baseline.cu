// baseline: the kernel of the report (sections 3.1 to 3.4; verbatim.cu is it to the letter), its
// rows requested together.
//
// Load, synchronise, multiply, synchronise: while a block waits for its next rows, only other
// blocks can hide the latency.
//
//        w0                                for each step of BK compressed rows:
//   B  ┌────┐ index[w][n0] ──► row k of A    1. As = gathered rows of A (index first, then 16 bytes
//      │    │ val[w][n0...n0+BN) ──► Bs         a thread), Bs = values of B
//      └────┘                                2. acc += As x Bs
//
// Template:  BM, BN, BK  see tile.cuh; the report has 32, 32, 64

#include "tile.cuh"

template <int BM, int BN, int BK>
__global__ void
baseline(int m, int n, int w,            // sizes; w compressed rows of B
         const float* __restrict__ A,    // m x k, column-major
         const float* __restrict__ val,  // w x n, row-major
         const int* __restrict__ index,  // w x n, row-major: the row of B that a value comes from
         float* __restrict__ C)          // m x n, column-major
{
    using T = Tile<BM, BN>;
    __shared__ alignas(16) float As[BK * BM], Bs[BK * BN];
    const T t;
    float acc[4][4] = {};

    for (int w0 = 0; w0 < w; w0 += BK) {
        const int rows = min(BK, w - w0);
        const size_t at = (size_t)w0 * n + t.n0;
        Step<BM, BN, BK> step;
        __syncthreads();  // everyone is done with the previous step
        step.load(A + t.m0, val + at, index + at, m, n, rows);
        step.store_a(As, rows);
        step.store_b(Bs, rows);
        __syncthreads();
        multiply(acc, As, Bs, t, rows);
    }
    store_tile(C, acc, t, m);
}
