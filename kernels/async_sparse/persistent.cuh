// What the persistent kernels share: blocks that stay, one for each SM, and go from tile to tile
// (specialised.cuh).
//
// The ring is filled for the next tile while this one is stored, so C has boxes of its own, small
// ones: the ring takes the rest of shared memory. Tiles follow each other in strips of `band` block
// rows, in a strip down the rows before across (the PID swizzle of section III-E, GROUP_M = band):
// what runs at a time shares columns of B.
#pragma once

#include "specialised.cuh"
#include "tile_order.cuh"

// Two tiles at most are known ahead: the one that is loaded, and the one that is multiplied.
struct Mailbox {
    Barrier full[2], empty[2];
    int tile[2];
};

// next(): the tile that a block does next, >= order.tiles() when there is none. It is called by the
// thread that loads, which posts it for the warpgroups that multiply.
template <Dtype T, bool COLUMN, int N, int STAGES, class Next>
__device__ __forceinline__ void
persist(const Operands& from, const TileOrder& order, unsigned char* memory, Next next)
{
    using R = Ring<T, N, STAGES>;
    using Out = Output<T, COLUMN, N, 1, T == TF32 ? 16 : 32>;
    R& ring = *reinterpret_cast<R*>(memory);
    Out* out = reinterpret_cast<Out*>(memory + sizeof(R));
    __shared__ Barrier full[STAGES], empty[STAGES];
    __shared__ Mailbox mail;
    OneArrives<STAGES> signals{full, empty};
    const int group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        signals.init();
        for (int s = 0; s < 2; ++s) barrier_init(&mail.full[s], 1), barrier_init(&mail.empty[s], 8);
        barrier_init_fence();
        tma_prefetch(from.a), tma_prefetch(from.b), tma_prefetch(from.c);
    }
    __syncthreads();
    Place<STAGES> at;
    Place<2> slot;
    int row, panel;
    if (group == 0) {
        give_registers<40>();
        if (threadIdx.x == 0)
            for (int tile = 0; tile < order.tiles(); slot.next()) {
                tile = next();
                wait(&mail.empty[slot.stage], slot.parity ^ 1);
                mail.tile[slot.stage] = tile;
                arrive(&mail.full[slot.stage]);
                if (tile >= order.tiles()) break;
                order.find(tile, row, panel);
                ring.produce(from, at, row, panel, signals);
            }
        return;
    }
    take_registers<232>();
    signals.offer();
    float acc[1][N / 2];
    for (;; slot.next()) {
        wait(&mail.full[slot.stage], slot.parity);
        const int tile = mail.tile[slot.stage];
        hand_back_warp(&mail.empty[slot.stage]);
        if (tile >= order.tiles()) break;
        order.find(tile, row, panel);
        ring.template consume<false>(
            acc, at, (from.row_ptr[row + 1] - from.row_ptr[row]) * R::STEPS, group - 1, signals);
        out[group - 1].write(acc, from.c, row * 64, (2 * panel + group - 1) * N, group, let_go());
    }
    if (threadIdx.x % 128 == 0) tma_store_wait<0>();
}
