// wgmma_lean: wgmma_persistent with half of the instructions around each multiplication (sparse_reader.cuh).
//
// A step is two to four wgmma.sp of a warpgroup, for hundreds of clocks, and what a warp does besides is some dozens of
// instructions of one or two clocks. They cost nothing while another step is under way, one should think; but they cost energy,
// and a stage is handed back, hence filled again, only when its warps have got through them.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "sparse_reader.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, bool EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_lean(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder
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
    Place<STAGES> at;
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * 128) {
            const Hints hints(kept);
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
    for (int tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
        order.find(tile, row, column);
        reader.consume(acc, at, steps, full);
        out[group].write(acc, c, row * S::M + group * BLOCKS * 64, column * N, scale, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
