// wgmma_packed: wgmma_persistent with A in the order of use.
//
//   A row-major     row 0  ████ ─ ─ ─       a stage takes 64 bytes, half of a line of L2, from each of M rows:
//                   row 1  ████ ─ ─ ─       as many requests, and the other half of the line again in the next step
//   packed          ████████████████        64 rows x 64 columns side by side, 4096 bytes, one request
//
// A is the weight: it is compressed once and read often, so its order is ours to choose. It is swizzled beforehand as the
// tensor cores want it in shared memory (unit u of row r at u ^ r / 2 % 4, four units of 16 bytes a row).
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "sparse_stages.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, bool EXTRA>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_packed(
    const unsigned char* __restrict__ packed,  // m'/64 x k'/64 pieces of 4096 bytes; m' and k' are padded with zeros
    const __grid_constant__ TensorMap e,       // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder
    int kept,  // 1: L2 is asked to keep A, 2: B
    float alpha, float beta, const unsigned short* c_in, const float* bias, int m, int n, int pitch)  // Scale: store.cuh
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    const Operands from{e, e, b, c};  // A has no tensor map
    const TileOrder order{high, wide, band};
    const Scale scale{alpha, beta, c_in, bias, m, n, pitch};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, BUFFERS, EXTRA>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128;
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
                    ring.load_packed(from, packed, steps, at.stage, row * S::M, column * N, step * S::K, &full[at.stage],
                                     hints);
                }
            }
        }
        return;
    }
    take_registers<232>();
    typename S::Accumulators acc;
    for (int tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
        order.find(tile, row, column);
        ring.consume(acc, at, steps, group, full, empty);
        out[group].write(acc, c, row * S::M + group * BLOCKS * 64, column * N, scale, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
