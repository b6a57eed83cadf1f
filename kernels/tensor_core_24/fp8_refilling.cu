// fp8_refilling: 192 x 256 of C, three warpgroups that refill the ring themselves, in turn.
//
//   warp 0     multiply 0 │ multiply 1 │ refill │ multiply 2 │ ...         the stage of the step before the last, which by
//   warp 1     multiply 0 │ multiply 1 │ multiply 2 │ refill │ ...         then all twelve warps have handed back
//
// A fourth warpgroup that copies would leave 128 registers a thread at launch, and an instruction of 256 columns asks for 155;
// three share the SM's registers, 168 each. A tile of 192 x 256 has as many sums as one of 256 x 192, but B, which every
// warpgroup reads from shared memory, is read three times and not four.
//
// Template:  as in fp8_stages.cuh and store_eight.cuh
#include "fp8_stages.cuh"
#include "store_eight.cuh"
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

template <int GROUPS, int BLOCKS, int N, int STAGES, int BUFFERS, Out OUT, bool ROWS, bool COLUMNS>
__global__ void __launch_bounds__(GROUPS * 128, 1) fp8_refilling(
    const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap e,  // operands: fp8_stages.cuh
    const __grid_constant__ TensorMap b, const __grid_constant__ TensorMap d,
    int steps, int high, int wide, int band,  // k in steps of 128; TileOrder
    int kept,  // 1: L2 is asked to keep A, 2: B, 0: neither
    const float* scale_a, const float* scale_b, const float* scale_d, int m, int n)  // Scales: store_eight.cuh
{
    using S = Stages<GROUPS, BLOCKS, N, STAGES>;
    static_assert(STAGES >= 3, "a warp refills a stage while the next one is multiplied and another is there");
    const Operands from{a, e, b, d};
    const TileOrder order{high, wide, band};
    const Scales scales{scale_a, scale_b, scale_d, m, n};
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    auto* out = after<S, StoreEight<BUFFERS, OUT, ROWS, COLUMNS>>(shared);
    __shared__ Barrier full[STAGES], empty[STAGES];
    const int group = threadIdx.x / 128, warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const bool leads = threadIdx.x % 32 == 0;
    if (threadIdx.x == 0) ring_init<STAGES>(full, empty, 1, 4 * GROUPS);
    __syncthreads();

    Cursor ask{(int)blockIdx.x, 0};
    order.find(ask.tile, ask.row, ask.column);
    for (int s = 0; s < STAGES; ++s, ask.next(order, steps))
        if (threadIdx.x == 0 && ask.tile < order.tiles())
            ring.load(from, s, ask.row * S::M, ask.column * N, ask.step * S::K, &full[s], Hints(kept));

    Place<STAGES> refilled;  // the stage that is refilled next, with the parity of its hand-backs
    int turn = -1;           // the warp that does so; the first step hands back, and nobody refills
    const auto hand_back = [&](int stage) {
        hand_back_warp(&empty[stage]);
        if (turn >= 0) {
            if (turn == warp && leads && ask.tile < order.tiles()) {
                wait(&empty[refilled.stage], refilled.parity);
                ring.load(from, refilled.stage, ask.row * S::M, ask.column * N, ask.step * S::K, &full[refilled.stage],
                          Hints(kept));
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
        ring.consume(acc, at, steps, group, full, hand_back);
        out[group].write(acc, d, row * S::M + group * BLOCKS * 64, column * N, scales, 1 + group);
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
