// cluster: split-K whose partial sums meet in shared memory.
//
// A small C has too few tiles for 132 SMs, so SPLIT blocks share a tile, each with a part of the
// steps. The published code adds their sums to C with atomics, after C was cleared: SPLIT times the
// traffic, and an order that changes from run to run. The blocks of a cluster run at the same time
// and read each other's (distributed) shared memory:
//
//   block 0   steps    0 ... s/4   tile in shared memory ─┐  block r adds up column share r of
//   block 1   steps  s/4 ... s/2   tile in shared memory ─┼► SPLIT tiles, always in the same order,
//   ...                                                  ─┘  and writes it to C once
//
// Template:  SPLIT         blocks that share a tile of C, = gridDim.z = the cluster: 2, 4 or 8
//            the others    as bulk.cu has them

#include "cluster.cuh"
#include "ring.cuh"
#include "sums.cuh"

template <int BM, int BN, int TM, int TN, int SLOT, int ROWS, int DEPTH, int STAGES, bool AHEAD,
          int UNROLL, int BLOCKS, bool ALIGNED, int SPLIT>
__global__ void __launch_bounds__(BM* BN / TM / TN, BLOCKS) cluster(
    int m, int n, int steps,              // sizes of C; steps of DEPTH rows of A^T
    float alpha,                          // C = alpha A B; 1
    const __grid_constant__ TensorMap A,  // A^T: k x m, boxes of DEPTH x BM
    const float* __restrict__ val,        // gridDim.y x steps x ROWS x BN
    const int* __restrict__ index,  // gridDim.y x steps x BN/SLOT x ROWS: rows within the step
    float* __restrict__ C)          // m x n, column-major
{
    using T = FragmentTile<BM, BN, TM, TN, SLOT>;
    using R = Ring<T, ROWS, DEPTH, STAGES, AHEAD, UNROLL>;
    static_assert(
        BN % SPLIT == 0,
        "the blocks of a cluster share the columns of a tile: choose SPLIT as a divisor of BN");
    extern __shared__ __align__(
        128) float memory[];  // the ring; afterwards the partial sums, BN x BM
    __shared__ Barrier barriers[2 * STAGES];
    const size_t block = (size_t)blockIdx.y * steps;
    const int share = (steps + SPLIT - 1) / SPLIT, first = min(steps, (int)blockIdx.z * share);
    const int total = min(share, steps - first);
    const Panel<R> panel{
        (int)blockIdx.x * BM, first, val + block * R::B_FLOATS, index + block * R::INDICES};

    const T t;
    R ring(memory, barriers, A, t);
    ring.start(panel, total);
    float acc[TN][TM] = {};
    ring.multiply(acc, panel, 0, total, total);
    scale<T>(acc, alpha);

    __syncthreads();  // nobody reads the ring any more
#pragma unroll
    for (int j = 0; j < TN; ++j)
#pragma unroll
        for (int c = 0; c < TM; c += 4)
            *reinterpret_cast<float4*>(
                memory + (t.n + j / 4 * 4 * T::ACROSS + j % 4) * BM + t.m + T::DOWN * c) =
                make_float4(acc[j][c], acc[j][c + 1], acc[j][c + 2], acc[j][c + 3]);
    cluster_barrier();

    for (int i = threadIdx.x; i < BN / SPLIT * BM / 4; i += T::THREADS) {
        const int down = i % (BM / 4) * 4, across = blockIdx.z * (BN / SPLIT) + i / (BM / 4);
        float sum[4] = {};
#pragma unroll
        for (int r = 0; r < SPLIT; ++r) {
            const float4 x = load_remote(memory + across * BM + down, r);
            sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w;
        }
        const int row = blockIdx.x * BM + down, column = blockIdx.y * BN + across;
        float* to = C + (size_t)column * m + row;
        if (column < n && row < m) {
            if constexpr (ALIGNED) {
                *reinterpret_cast<float4*>(to) = make_float4(sum[0], sum[1], sum[2], sum[3]);
            } else {
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    if (row + k < m) to[k] = sum[k];
            }
        }
    }
    cluster_barrier();  // a block that left would take its shared memory with it
}
