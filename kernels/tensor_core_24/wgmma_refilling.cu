// wgmma_refilling: 192 x 256 of C, three warpgroups that refill the ring themselves, in turn.
//
//   warp 0     multiply 0 │ multiply 1 │ refill │ multiply 2 │ ...         the stage of the step before the last, which by
//   warp 1     multiply 0 │ multiply 1 │ multiply 2 │ refill │ ...         then all twelve warps have handed back
//
// An instruction of 256 columns asks for 155 registers a thread. A fourth warpgroup that copies, or even a single warp more,
// would leave 128 at launch (wgmma_three.cu has one); three warpgroups alone have 168 each. Of the tiles that fit, this one
// reads least from shared memory for each element of C: all of B for every 64 rows, as any, but A's 64 rows for 256 columns;
// and B arrives once for 192 rows.
//
// Template:  as in sparse_stages.cuh and store.cuh
#include "sparse_reader.cuh"
#include "store.cuh"
#include "tile_order.cuh"

// Which stage of which tile is asked for next, in the order in which the block multiplies them.
struct Cursor {
    int tile, step, row, column;
    __device__ __forceinline__ void next(const TileOrder& order, int steps)
    {
        if (++step < steps) return;
        step = 0, tile += gridDim.x;
        if (tile < order.tiles()) order.find(tile, row, column);
    }
};

template <Dtype T, int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS>
__global__ void __launch_bounds__(GROUPS * 128, 1) wgmma_refilling(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: sparse_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap c,
    int steps, int high, int wide, int band,  // k in steps of 64; TileOrder
    int kept,  // 1: L2 is asked to keep A, 2: B, 0: neither
    float alpha)
{
    using S = Stages<T, GROUPS, BLOCKS, N, STAGES>;
    static_assert(STAGES >= 3, "a warp refills a stage while the next one is multiplied and another is there");
    const Operands from{a, e, b, c};
    const TileOrder order{high, wide, band};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, Store<T, BUFFERS, false>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = warpgroup(), warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const bool leads = threadIdx.x % 32 == 0;
    if (threadIdx.x == 0) ring_init<STAGES>(full, empty, 1, 4 * GROUPS);
    __syncthreads();

    Cursor ask{(int)blockIdx.x, 0};
    order.find(ask.tile, ask.row, ask.column);
    const Hints hints(kept);
    const auto refill = [&](int stage) {
        ring.load(from, stage, ask.row * S::M, ask.column * N, ask.step * S::K, &full[stage], hints);
    };
    for (int s = 0; s < STAGES; ++s, ask.next(order, steps))
        if (threadIdx.x == 0 && ask.tile < order.tiles()) refill(s);

    const Reader<S> reader(ring, group, empty);
    Place<STAGES> refilled;  // the stage that is refilled next, with the parity of its hand-backs
    int turn = -1;           // the warp that does so; the first step hands back, and nobody refills
    const auto hand_back = [&](int stage) {
        reader.hand_back(stage);
        if (turn >= 0) {
            if (turn == warp && leads && ask.tile < order.tiles()) {
                wait(&empty[refilled.stage], refilled.parity);
                refill(refilled.stage);
            }
            refilled.next();
            ask.next(order, steps);
        }
        if (++turn == 4 * GROUPS) turn = 0;
        __syncwarp();
    };

    typename S::Accumulators acc;
    int row, column;
    Place<STAGES> at;
    for (int tile = blockIdx.x; tile < order.tiles(); tile += gridDim.x) {
        order.find(tile, row, column);
        reader.consume(acc, at, steps, full, hand_back);
        out[group].write(acc, c, row * S::M + group * BLOCKS * 64, column * N, {alpha}, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
