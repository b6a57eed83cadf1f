// wgmma_multicast: two blocks, one below the other, read the same columns of B: each fetches half and gives it to both.
//
//   cluster    block 0   tile (i, j)        B rows 0-31 of every stage ──┬──► both blocks      half of B's reads of L2
//              block 1   tile (i + 1, j)    B rows 32-63 ───────────────┴──► both blocks
//
// The price: a stage is filled again only when the warpgroups of both blocks have handed it back, so neither runs ahead.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "cluster.cuh"
#include "sparse_stages.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_multicast(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder, of pairs of tiles
    int kept,  // 1: L2 is asked to keep A, 2: B
    float alpha)
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const TileOrder order{high, wide, band};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, BUFFERS, false>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128;
    begin<GROUPS, STAGES>(from, full, empty, 2 * 4 * GROUPS);  // every warp of both blocks
    const int rank = blockIdx.x % 2, clusters = gridDim.x / 2;
    cluster_barrier();  // the other block's barriers are there

    int row, column;
    Place<STAGES> at;
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
            for (int pair = blockIdx.x / 2; pair < order.tiles(); pair += clusters) {
                order.find(pair, row, column);
                for (int step = 0; step < steps; ++step, at.next()) {
                    wait(&empty[at.stage], at.parity ^ 1);
                    ring.template load_share<2>(from, at.stage, (2 * row + rank) * S::M, column * N, step * S::K,
                                                &full[at.stage], hints, rank);
                }
            }
        }
        cluster_barrier();
        return;
    }
    take_registers<232>();
    typename S::Accumulators acc;
    for (int pair = blockIdx.x / 2; pair < order.tiles(); pair += clusters) {
        order.find(pair, row, column);
        ring.consume(acc, at, steps, group, full, [&](int stage) {
            __syncwarp();
            if (threadIdx.x % 32 < 2) arrive_remote(&empty[stage], threadIdx.x % 32);
        });
        out[group].write(acc, c, (2 * row + rank) * S::M + group * BLOCKS * 64, column * N, {alpha}, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
    cluster_barrier();  // nobody leaves while another copies into its shared memory
}
