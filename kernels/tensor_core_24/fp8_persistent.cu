// fp8_persistent: wgmma_persistent on 8-bit floats: e4m3 2:4 times e4m3, B with k contiguous.
//
//   BF16    a step of 64 columns of A:  128 bytes of B for each column of C     m64nNk32, B transposed by the instruction
//   e4m3    a step of 128 columns:      128 bytes of B for each column of C     m64nNk64, B^T row-major
//
// The same bytes of a stage are twice the multiplications in as many cycles of the tensor cores, so that all else, the ring,
// the roles of the warpgroups and the order of the tiles, stays as it was.
//
// Template:  as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "store_eight.cuh"
#include "tile_order.cuh"

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) fp8_persistent(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: fp8_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,
    int steps, int high, int wide, int band,  // k in steps of 128; TileOrder
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
    begin<GROUPS, STAGES>(from, full, empty);

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
                    ring.load(from, at.stage, row * S::M, column * N, step * S::K, &full[at.stage], hints);
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
