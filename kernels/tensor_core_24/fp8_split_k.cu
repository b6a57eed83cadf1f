// fp8_split_k: a cluster of blocks shares the steps of one tile, and adds the sums through each other's shared memory.
//
//   cluster of 2      block 0: steps 0 to 7       block 1: steps 8 to 15        for products with fewer tiles than SMs
//                          │ sums │                    │ sums │
//                     shared memory ◄──── each adds ────► shared memory         squares 0, 2, ... by block 0, the rest by 1
//
// As wgmma_split_k, with A packed as in fp8_packed. What the blocks add is float32 with all its bits, so that a sum cut in two is more accurate, too.
//
// Template:  SPLITS  blocks of a cluster; the others as in fp8_stages.cuh and store_eight.cuh
#include "cluster.cuh"
#include "fp8_stages.cuh"
#include "store_eight.cuh"
#include "tile_order.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int SPLITS, Out OUT, bool ROWS, bool COLUMNS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_split_k(
    const unsigned char* __restrict__ packed,  // as in fp8_packed
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,  // fp8_stages.cuh
    int steps, int high, int wide, int band,  // k in steps of 128, at least SPLITS; TileOrder
    int kept,  // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES, true>;
    constexpr int CHUNKS = N / 64, SQUARES = BLOCKS * CHUNKS;
    static_assert(sizeof(S) >= S::M * N * 4, "the ring must have room for the sums: more stages");
    const Operands from{b, b, b, d};
    const TileOrder order{high, wide, band};
    const Scales scales{scale_a, scale_b, scale_d, m, n};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, StoreEight<1, OUT, ROWS, COLUMNS>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128, rank = blockIdx.x % SPLITS;
    ring_begin<GROUPS, STAGES>(full, empty, 1, 4 * GROUPS, [&] { tma_prefetch(b), tma_prefetch(d); });

    int row, column;
    order.find(blockIdx.x / SPLITS, row, column);
    const int first = (long long)steps * rank / SPLITS, end = (long long)steps * (rank + 1) / SPLITS;
    Place<STAGES> at;
    if (group == GROUPS) {
        give_registers<24>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
#pragma unroll 1
            for (int step = first; step < end; ++step, at.next()) {
                wait(&empty[at.stage], at.parity ^ 1);
                ring.load_packed(from, packed, steps, at.stage, row * S::M, column * N, step * S::K, &full[at.stage], hints);
            }
        }
        return;  // the cluster's barrier counts only threads that are still there
    }
    take_registers<240>();
    typename S::Accumulators acc;
    ring.consume(acc, at, end - first, group, full, empty);
    named_barrier(2 + GROUPS, 128 * GROUPS);  // every warpgroup is done with the ring, whose memory now takes the sums

    float4* sums = reinterpret_cast<float4*>(shared) + group * SQUARES * 8 * 128 + threadIdx.x % 128;
#pragma unroll
    for (int i = 0; i < SQUARES * 8; ++i) {
        const float* x = acc[0] + 4 * i;
        sums[i * 128] = make_float4(x[0], x[1], x[2], x[3]);
    }
    cluster_barrier();
    const float all = scales.of_all<ROWS, COLUMNS>();
    for (int square = rank; square < SQUARES; square += SPLITS) {
        float sum[32] = {};
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int block = 0; block < SPLITS; ++block) {
                const float4 x = load_remote(sums + (square * 8 + i) * 128, block);
                sum[4 * i] += x.x, sum[4 * i + 1] += x.y, sum[4 * i + 2] += x.z, sum[4 * i + 3] += x.w;
            }
        const int r = row * S::M + (group * BLOCKS + square / CHUNKS) * 64, q = column * N + square % CHUNKS * 64;
        if (threadIdx.x % 128 == 0) tma_store_wait<0>();
        named_barrier(1 + group, 128);
        out[group].arrange(0, sum, r, q, scales, all);
        async_proxy_fence();
        named_barrier(1 + group, 128);
        if (threadIdx.x % 128 == 0) {
            tma_store(d, q, r, out[group].square[0]);
            tma_store_commit();
        }
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
    cluster_barrier();  // nobody leaves while another reads its shared memory
}
