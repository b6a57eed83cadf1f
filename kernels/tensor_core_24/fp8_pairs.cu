// fp8_pairs: fp8_direct in clusters of two blocks, one below the other, that fetch B for each other.
//
//   fp8_direct      80 bytes of A for each row, 128 of B for each column                     42 KiB a step of 128 x 256 from L2
//   fp8_multicast   half of B; A in halves of lines; four stages, so that a block that waits for the other soon has none left
//   fp8_pairs       half of B; A in the order of use; five stages                            26 KiB
//
// The two also go in step: what L2 has brought for one is not gone when the other asks.
//
// Template:  as in fp8_stages.cuh; BUFFERS is 0
#include "cluster.cuh"
#include "fp8_stages.cuh"
#include "store_registers.cuh"
#include "tile_order.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_pairs(
    const unsigned char* __restrict__ packed,  // m'/64 x steps pieces; m' and k' are padded with zeros
    const __grid_constant__ TensorMap b, unsigned char* __restrict__ d, int pitch,  // fp8_stages.cuh; bytes of a row of D
    int steps, int high, int wide, int band,  // k in steps of 128; TileOrder, of pairs of tiles
    int kept,  // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES, true>;
    const TileOrder order{high, wide, band};
    const Scales scales{scale_a, scale_b, scale_d, m, n};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128;
    ring_begin<GROUPS, STAGES>(full, empty, 1, 2 * 4 * GROUPS, [&] { tma_prefetch(b); });  // every warp of both blocks
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
#pragma unroll 1
                for (int step = 0; step < steps; ++step, at.next()) {
                    wait(&empty[at.stage], at.parity ^ 1);
                    ring.load_packed_half(packed, steps, b, at.stage, (2 * row + rank) * S::M, column * N, step,
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
        StoreRegisters<OUT, ROWS, COLUMNS>::write(acc, d, pitch, (2 * row + rank) * S::M + group * BLOCKS * 64, column * N,
                                                  scales);
    }
    cluster_barrier();  // nobody leaves while another copies into its shared memory
}
