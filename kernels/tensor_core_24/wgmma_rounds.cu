// wgmma_rounds: wgmma_lean where k is whole rounds of the ring, so that the compiler knows each stage's place.
//
//   k = 4096, four stages     stage 0  1  2  3 │ 0  1  2  3 │ ... │ 0  1  2  3        64 steps, 16 rounds, and the next tile
//                                                                                 begins with stage 0, too
//
// Descriptors, barriers and words of metadata are then constants away from what is in registers.
//
// Template:  as in sparse_stages.cuh and store.cuh; STAGES is even
#include "sparse_reader.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, bool EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_rounds(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64, a multiple of STAGES; TileOrder
    int kept,  // 1: L2 is asked to keep A, 2: B, 0: neither
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
    const int group = warpgroup();
    begin<GROUPS, STAGES>(from, full, empty);

    int row, column;
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
            Place<STAGES> at;
            for (int tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
                order.find(tile, row, column);
                for (int step = 0; step < steps; ++step, at.next()) {
                    wait(&empty[at.stage], at.parity ^ 1);
                    ring.load(from, at.stage, row * S::M, column * N, step * S::K, &full[at.stage], hints);
                }
            }
        }
        return;
    }
    take_registers<232>();
    const Reader<S> reader(ring, group, empty);
    typename S::Accumulators acc;
    unsigned parity = 0;
    for (int tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
        order.find(tile, row, column);
        reader.consume_rounds(acc, parity, steps, full);
        out[group].write(acc, c, row * S::M + group * BLOCKS * 64, column * N, scale, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
