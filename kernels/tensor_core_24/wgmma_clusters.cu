// wgmma_clusters: wgmma_lean by clusters of blocks, one below the other, each of which fetches its share of B for all.
//
//   cluster of 4    block r   tile (4 i + r, j)    B rows 16 r to 16 r + 15 of every stage ────► all four
//
// What a small product waits for is the way into its SMs, and for B's rows the copy engine's requests: where rows begin at
// odd multiples of 16 bytes, L2 counts about three times as many. In a cluster each SM asks for a half or a quarter of the
// rows. Large products lose by it: blocks that wait for each other no longer read what other SMs read at that moment.
//
// Template:  as in sparse_stages.cuh and store.cuh; SHARE: blocks of a cluster, 2 or 4
#include "cluster.cuh"
#include "sparse_reader.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, bool EXTRA, int SHARE>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_clusters(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder, of tiles that are SHARE times as high
    int kept,  // 1: L2 is asked to keep A, 2: B
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n, int pitch)  // Scale: store.cuh
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{a, e, b, c};
    const TileOrder order{high, wide, band};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, BUFFERS, EXTRA>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = warpgroup(), rank = blockIdx.x % SHARE, clusters = gridDim.x / SHARE;
    begin<GROUPS, STAGES>(from, full, empty, SHARE * 4 * GROUPS);  // every warp of all blocks
    cluster_barrier();  // the other blocks' barriers are there

    int row, column;
    Place<STAGES> at;
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
            for (int tall = blockIdx.x / SHARE; tall < order.tiles(); tall += clusters) {
                order.find(tall, row, column);
                for (int step = 0; step < steps; ++step, at.next()) {
                    wait(&empty[at.stage], at.parity ^ 1);
                    ring.template load_share<SHARE>(from, at.stage, (SHARE * row + rank) * S::M, column * N, step * S::K,
                                                    &full[at.stage], hints, rank);
                }
            }
        }
        cluster_barrier();
        return;
    }
    take_registers<232>();
    const Reader<S> reader(ring, group, empty);
    typename S::Accumulators acc;
    for (int tall = blockIdx.x / SHARE; tall < order.tiles(); tall += clusters) {
        order.find(tall, row, column);
        reader.consume(acc, at, steps, full, [&](int stage) {
            __syncwarp();
            if (threadIdx.x % 32 < SHARE) arrive_remote(&empty[stage], threadIdx.x % 32);
        });
        out[group].write(acc, c, (SHARE * row + rank) * S::M + group * BLOCKS * 64, column * N, scale, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
    cluster_barrier();  // nobody leaves while another copies into its shared memory
}
