// fp8_packed: fp8_persistent with A in the order of use, values and metadata side by side.
//
//   A row-major     row 0  ████ ─ ─ ─       a stage takes 64 bytes, half of a line of L2, from each of M rows, and the words
//                   row 1  ████ ─ ─ ─       of the metadata from another place
//   packed          ████████████████ ██     64 rows x 128 columns with their words: 5120 bytes, one request
//
// As wgmma_packed, which leaves the metadata where it is. A cold A comes from DRAM in pages, not in halves of lines.
//
// Template:  as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "store_eight.cuh"
#include "tile_order.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_packed(
    const unsigned char* __restrict__ packed,  // m'/64 x steps pieces; m' and k' are padded with zeros
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,  // fp8_stages.cuh
    int steps, int high, int wide, int band,  // k in steps of 128; TileOrder
    int kept,  // Hints
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES, true>;
    const TileOrder order{high, wide, band};
    const Scales scales{scale_a, scale_b, scale_d, m, n};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, StoreEight<BUFFERS, OUT, ROWS, COLUMNS>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128;
    ring_begin<GROUPS, STAGES>(full, empty, 1, 4 * GROUPS, [&] { tma_prefetch(b), tma_prefetch(d); });

    int row, column;
    Place<STAGES> at;
    if (group == GROUPS) {
        give_registers<24>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
            for (int tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
                order.find(tile, row, column);
#pragma unroll 1
                for (int step = 0; step < steps; ++step, at.next()) {
                    wait(&empty[at.stage], at.parity ^ 1);
                    ring.load_packed(packed, steps, b, at.stage, row * S::M, column * N, step, &full[at.stage], hints);
                }
            }
        }
        return;
    }
    take_registers<240>();
    typename S::Accumulators acc;
    for (int tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
        order.find(tile, row, column);
        ring.consume(acc, at, steps, group, full, empty);
        out[group].write(acc, d, row * S::M + group * BLOCKS * 64, column * N, scales, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
