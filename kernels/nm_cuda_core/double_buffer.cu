// double_buffer: two buffers for B, filled by cp.async while the other is multiplied, and split-K
// (the report, section 3.6).
//
//   step       0              1              2
//   B  copy 0 │ copy 1 ───── │ copy 2 ───── │ ...      asynchronous, into the buffer that is not
//                                                      being read
//   A  gather │              │ gather       │ gather   still synchronous: addresses depend on the
//                                                      indices
//   FMA       │ multiply 0   │      multiply 1 ...
//
// Split-K: blockIdx.z takes a share of the steps; with more than one share the partial sums meet in
// C by atomicAdd, so C must be zero before the launch.
//
// Template:  BM, BN, BK  see tile.cuh; the report has 32, 32, 32
//            SPLIT_K     shares of the compressed rows, = gridDim.z; the report measures 2
//            ZIGZAG      how lanes share the tile, see tile.cuh; false in the report

#include "cp_async.cuh"
#include "tile.cuh"

template <int BM, int BN, int BK, int SPLIT_K, bool ZIGZAG>
__global__ void __launch_bounds__(Tile<BM, BN>::THREADS, 11)
    double_buffer(                      // 11 blocks: 88 registers
        int m, int n, int w,            // sizes; w compressed rows of B
        const float* __restrict__ A,    // m x k, column-major
        const float* __restrict__ val,  // w x n, row-major
        const int* __restrict__ index,  // w x n, row-major: the row of B that a value comes from
        float* __restrict__ C)          // m x n, column-major
{
    using T = Tile<BM, BN, ZIGZAG>;
    __shared__ alignas(16) float As[BK * BM], Bs[2][BK * BN];
    const T t;
    float acc[4][4] = {};

    const int steps = (w + BK - 1) / BK, share = (steps + SPLIT_K - 1) / SPLIT_K;
    const int first = blockIdx.z * share, last = min(steps, first + share);
    if (first >= last) return;

    auto gather = [&](int step) {
        const int rows = min(BK, w - step * BK);
        Step<BM, BN, BK> s;
        s.load_index(index + (size_t)step * BK * n + t.n0, n, rows);
        s.load_a(A + t.m0, m, rows);
        s.store_a(As, rows);
    };
    auto copy_b = [&](int step, float* to) {
        const float* from = val + (size_t)step * BK * n + t.n0;
        for_each_float4<BK, BN, T::THREADS>(min(BK, w - step * BK), [&](int i, int column, int) {
            cp_async_16(&to[i * BN + column], &from[(size_t)i * n + column]);
        });
    };

    gather(first);
    copy_b(first, Bs[first % 2]);
    cp_async_wait_all();
    __syncthreads();
    for (int step = first; step < last; ++step) {
        if (step + 1 < last) copy_b(step + 1, Bs[(step + 1) % 2]);
        multiply(acc, As, Bs[step % 2], t, min(BK, w - step * BK));
        if (step + 1 < last) {
            cp_async_wait_all();
            __syncthreads();  // everyone is done with As, and the copies of all threads have landed
            gather(step + 1);
            __syncthreads();
        }
    }

    if constexpr (SPLIT_K == 1) {
        store_tile(C, acc, t, m);
    } else {
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                atomicAdd(&C[(size_t)(t.n0 + t.t_n + j) * m + t.m0 + t.t_m + i], acc[j][i]);
    }
}
