// pipelined: the prefetched registers are used. Beyond the report: what its section 3.5 stops short
// of.
//
//   registers      load 1 ───────── │ load 2 ───────── │ ...     in flight while the previous step
//   shared memory  0                │ 1                │         is multiplied
//   FMA              multiply 0     │   multiply 1     │
//
// Every row is requested once, as in the baseline, but its latency passes behind the multiplication
// of the step before.
//
// Template:  BM, BN, BK  see tile.cuh

#include "tile.cuh"

template <int BM, int BN, int BK>
__global__ void
pipelined(int m, int n, int w,            // sizes; w compressed rows of B
          const float* __restrict__ A,    // m x k, column-major
          const float* __restrict__ val,  // w x n, row-major
          const int* __restrict__ index,  // w x n, row-major: the row of B that a value comes from
          float* __restrict__ C)          // m x n, column-major
{
    using T = Tile<BM, BN>;
    __shared__ alignas(16) float As[BK * BM], Bs[BK * BN];
    const T t;
    float acc[4][4] = {};

    Step<BM, BN, BK> step;
    step.load(A + t.m0, val + t.n0, index + t.n0, m, n, w);
    for (int w0 = 0; w0 < w; w0 += BK) {
        const int rows = min(BK, w - w0);
        __syncthreads();  // everyone is done with the previous step
        step.store_a(As, rows);
        step.store_b(Bs, rows);
        __syncthreads();
        const size_t after = (size_t)(w0 + BK) * n + t.n0;
        step.load(A + t.m0, val + after, index + after, m, n,
                  w - w0 - BK);  // of no rows after the last step
        multiply(acc, As, Bs, t, rows);
    }
    store_tile(C, acc, t, m);
}
