// fp8_multicast: two blocks, one below the other, read the same columns of B: each fetches half and gives it to both.
//
//   cluster    block 0   tile (i, j)        columns 0 to N/2 - 1 of B ──┬──► both blocks      half of B's reads of L2
//              block 1   tile (i + 1, j)    columns N/2 to N - 1 ───────┴──► both blocks
//
// As wgmma_multicast, but the halves are of columns, because B^T lies with k contiguous. A stage is filled again only when the
// warpgroups of both blocks have handed it back.
//
// Template:  as in fp8_stages.cuh and store_eight.cuh
#include "cluster.cuh"
#include "fp8_stages.cuh"
#include "store_eight.cuh"
#include "tile_order.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_multicast(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: fp8_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,
    int steps, int high, int wide, int band,  // k in steps of 128; TileOrder, of pairs of tiles
    int kept,  // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, d};
    const TileOrder order{high, wide, band};
    const Scales scales{scale_a, scale_b, scale_d, m, n};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, StoreEight<BUFFERS, OUT, ROWS, COLUMNS>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128;
    begin<GROUPS, STAGES>(from, full, empty, 2 * 4 * GROUPS);  // every warp of both blocks
    const int rank = blockIdx.x % 2, clusters = gridDim.x / 2;
    cluster_barrier();  // the other block's barriers are there

    int row, column;
    Place<STAGES> at;
    if (group == GROUPS) {
        give_registers<24>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
            for (int pair = blockIdx.x / 2; pair < order.tiles(); pair += clusters) {
                order.find(pair, row, column);
#pragma unroll 1
                for (int step = 0; step < steps; ++step, at.next()) {
                    wait(&empty[at.stage], at.parity ^ 1);
                    ring.load_half(from, at.stage, (2 * row + rank) * S::M, column * N, step * S::K, &full[at.stage], hints,
                                   rank);
                }
            }
        }
        cluster_barrier();
        return;
    }
    take_registers<240>();
    typename S::Accumulators acc;
    for (int pair = blockIdx.x / 2; pair < order.tiles(); pair += clusters) {
        order.find(pair, row, column);
        ring.consume(acc, at, steps, group, full, [&](int stage) {
            __syncwarp();
            if (threadIdx.x % 32 < 2) arrive_remote(&empty[stage], threadIdx.x % 32);
        });
        out[group].write(acc, d, (2 * row + rank) * S::M + group * BLOCKS * 64, column * N, scales, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
    cluster_barrier();  // nobody leaves while another copies into its shared memory
}
