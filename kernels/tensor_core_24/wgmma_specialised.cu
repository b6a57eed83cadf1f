// wgmma_specialised: one warp only asks for copies, two warpgroups only multiply, and share what is copied.
//
//   producer      wait empty[s] ── copy ──► full[s]          gives its registers away
//   warpgroup 0   wait full[s] ── multiply rows 0 to 63 ──► empty[s]          and takes more than its share of them
//   warpgroup 1   wait full[s] ── multiply rows 64 to 127 ──► empty[s]
//
// Nobody who multiplies stops to ask, and no barrier holds all warps. The sums of 128 x 256 of C take 32768 registers, half
// of those of the SM; B is read from L2 once for both warpgroups.
//
// Template:  as in sparse_stages.cuh; BUFFERS: squares that a warpgroup stores through
#include "sparse_stages.cuh"
#include "store.cuh"
#include "tile_order.cuh"

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS>
__global__ void __launch_bounds__((GROUPS + 1) * 128, 1) wgmma_specialised(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder; one block a tile
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
    begin<GROUPS, STAGES>(from, full, empty);

    int row, column;
    order.find(blockIdx.x, row, column);
    Place<STAGES> at;
    if (group == GROUPS) {
        give_registers<40>();
        if (threadIdx.x == GROUPS * 128)
            for (int step = 0; step < steps; ++step, at.next()) {
                wait(&empty[at.stage], at.parity ^ 1);  // the first round finds every stage empty
                ring.load(from, at.stage, row * S::M, column * N, step * S::K, &full[at.stage]);
            }
        return;
    }
    take_registers<232>();
    typename S::Accumulators acc;
    ring.consume(acc, at, steps, group, full, empty);
    out[group].write(acc, c, row * S::M + group * BLOCKS * 64, column * N, {alpha}, 1 + group);
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
