// A block whose warps refill the ring themselves, in turn, and no warpgroup only loads.
//
//   warp 0     multiply 0 │ multiply 1 │ refill │ multiply 2 │ ...    the stage of the step before
//   warp 1     multiply 0 │ multiply 1 │ multiply 2 │ refill │ ...    the last, which by then all
//                                                                     warps have handed back
//
// Blocks stay, as Resident has it.
#pragma once

#include "roles.cuh"

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

template <class Loop, class S, class Loader, class Epilogue>
__device__ __forceinline__ void multiply_refilling(const Loader& loader, const TileOrder& order,
                                                   int steps, const Epilogue& epilogue)
{
    static_assert(S::STAGES >= 3,
                  "a warp refills a stage while the next one is multiplied and another is there");
    extern __shared__ __align__(1024) unsigned char shared[];
    S& ring = *reinterpret_cast<S*>(shared);
    __shared__ Barrier full[S::STAGES], empty[S::STAGES];
    const int group = Loop::group(), warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
    const bool leads = threadIdx.x % 32 == 0;
    if (threadIdx.x == 0) ring_init<S::STAGES>(full, empty, 1, 4 * S::GROUPS);
    __syncthreads();

    Cursor ask{(int)blockIdx.x, 0};
    order.find(ask.tile, ask.row, ask.column);
    const auto hints = loader.hints();
    const auto refill = [&](int stage) {
        loader.load(ring, stage, ask.row, ask.column, ask.step, &full[stage], hints);
    };
    for (int s = 0; s < S::STAGES; ++s, ask.next(order, steps))
        if (threadIdx.x == 0 && ask.tile < order.tiles()) refill(s);

    Loop loop(ring, group, empty);
    Place<S::STAGES>
        refilled;   // the stage that is refilled next, with the parity of its hand-backs
    int turn = -1;  // the warp that does so; the first step hands back, and nobody refills
    const auto hand_back = [&](int stage) {
        loop.hand_back(stage);
        if (turn >= 0) {
            if (turn == warp && leads && ask.tile < order.tiles()) {
                wait(&empty[refilled.stage], refilled.parity);
                refill(refilled.stage);
            }
            refilled.next();
            ask.next(order, steps);
        }
        if (++turn == 4 * S::GROUPS) turn = 0;
        __syncwarp();
    };
    typename S::Accumulators acc;
    Resident{order, steps}.each([&](const Part& part) {
        loop(acc, steps, full, hand_back);
        epilogue.template store<S>(shared, acc, group, part);
    });
    epilogue.finish();
}
